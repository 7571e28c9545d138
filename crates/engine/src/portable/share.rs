//! A part's plan: the fragment, in which the tables that are divided have the part's rows alone.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result, plan_err};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::logical_expr::utils::disjunction;
use datafusion::logical_expr::{
    Expr, Filter, LogicalPlan, Projection, TableScan, TableScanBuilder, lit,
};

use crate::portable::elsewhere::Share;
use crate::scan::lake_table::LakeTable;

/// A scan that is divided: its number in the order in which a plan's inputs are gone through, and the column of ids that
/// divides it, if it has one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Divided {
    pub scan: usize,
    pub ids: Option<String>,
}

/// The plan with the rows of one part.
///
/// # Errors
/// Scans that are not there, and those that cannot be divided so: such a part would have rows of others.
pub(crate) fn with_share(
    plan: LogicalPlan,
    divided: &[Divided],
    share: &Share,
) -> Result<LogicalPlan> {
    let (mut scans, mut found) = (0.., 0);
    let shared = plan.transform_up(|node| {
        let LogicalPlan::TableScan(scan) = node else { return Ok(Transformed::no(node)) };
        let number = scans.next();
        let Some(how) = divided.iter().find(|divided| Some(divided.scan) == number) else {
            return Ok(Transformed::no(LogicalPlan::TableScan(scan)));
        };
        found += 1;
        let provider = source_as_provider(&scan.source)?;
        let Some(table) = provider.downcast_ref::<LakeTable>() else {
            return plan_err!("{} cannot be divided", scan.table_name);
        };
        Ok(Transformed::yes(match (&how.ids, share) {
            (Some(ids), Share::Ids { ranges, without_id }) => {
                let column = Column::new(Some(scan.table_name.clone()), ids);
                match condition(&Expr::Column(column), ranges, *without_id) {
                    Some(condition) => with_condition(scan, table, ids, condition)?,
                    None => LogicalPlan::TableScan(scan),
                }
            }
            (None, Share::Stretch { part, parts }) => {
                let stretch = table.stretch(*part, *parts);
                let scan = TableScan { source: provider_as_source(stretch), ..scan };
                LogicalPlan::TableScan(scan)
            }
            _ => return plan_err!("{} is not divided in this way", scan.table_name),
        }))
    })?;
    match found == divided.len() {
        true => Ok(shared.data),
        false => plan_err!("a part divides {} tables, of which {found} are there", divided.len()),
    }
}

/// The condition of being in a share of ids; `None` if it is of something else.
pub(crate) fn condition_of(ids: &Expr, share: &Share) -> Option<Expr> {
    match share {
        Share::Ids { ranges, without_id } => {
            Some(condition(ids, ranges, *without_id).unwrap_or_else(|| lit(true)))
        }
        Share::Stretch { .. } => None,
    }
}

/// The condition of being in a share; `None` if all rows are.
fn condition(ids: &Expr, ranges: &[std::ops::Range<u32>], without_id: bool) -> Option<Expr> {
    if without_id && matches!(ranges, [all] if *all == (0..u32::MAX)) {
        return None;
    }
    // No id is larger than its type holds.
    let within = ranges.iter().filter_map(|range| {
        let from = ids.clone().gt_eq(lit(i32::try_from(range.start).ok()?));
        Some(match i32::try_from(range.end) {
            Ok(end) => from.and(ids.clone().lt(lit(end))),
            Err(_) => from,
        })
    });
    let null = without_id.then(|| ids.clone().is_null());
    Some(disjunction(within.chain(null)).unwrap_or_else(|| lit(false)))
}

/// The scan with this condition on its ids, and with the columns that it had.
fn with_condition(
    scan: TableScan,
    table: &LakeTable,
    ids: &str,
    condition: Expr,
) -> Result<LogicalPlan> {
    let columns: Vec<Expr> =
        scan.projected_schema.columns().into_iter().map(Expr::Column).collect();
    let wider = if table.is_with_ids() {
        Arc::clone(&scan.source)
    } else {
        provider_as_source(table.with_ids())
    };
    let at = wider.schema().index_of(ids)?;
    let projection = scan.projection.unwrap_or_else(|| (0..columns.len()).collect());
    let more = (!projection.contains(&at)).then_some(at);
    let is_wider = more.is_some();
    let filters = scan.filters.into_iter().chain([condition.clone()]).collect();
    let wider = TableScanBuilder::new(scan.table_name, wider)
        .with_projection(Some(projection.into_iter().chain(more).collect()))
        .with_filters(filters)
        .with_fetch(scan.fetch)
        .build()?;
    let rows = Arc::new(LogicalPlan::TableScan(wider));
    let rows = LogicalPlan::Filter(Filter::try_new(condition, rows)?);
    Ok(match is_wider {
        true => LogicalPlan::Projection(Projection::try_new(columns, Arc::new(rows))?),
        false => rows,
    })
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::col;

    use super::*;

    #[test]
    fn shares_are_conditions_on_ids() {
        let said = |ranges: &[(u32, u32)], without_id| {
            let ranges: Vec<_> = ranges.iter().map(|(from, to)| *from..*to).collect();
            condition(&col("i"), &ranges, without_id).map(|condition| condition.to_string())
        };
        assert_eq!(said(&[(0, u32::MAX)], true), None);
        assert_eq!(said(&[], false).unwrap(), "Boolean(false)");
        assert_eq!(
            said(&[(0, 8), (16, 24)], true).unwrap(),
            "i >= Int32(0) AND i < Int32(8) OR i >= Int32(16) AND i < Int32(24) OR i IS NULL"
        );
        assert_eq!(said(&[(24, u32::MAX)], false).unwrap(), "i >= Int32(24)");
    }
}
