//! Ids beside their keys in a plan: `__id_user_id` from the scan up to where it is wanted.
//!
//! ```text
//! Filter                     Filter                    outputs what it did, and
//!   SubqueryAlias e     ─►     SubqueryAlias e         e.__id_user_id
//!     TableScan events           TableScan events with its columns of ids
//! ```
//!
//! # Invariants
//! - Rows do not change, and neither do the columns a plan had; the ids come as one more.
//! - Ids are used only if all files of the table have them from one log; then two rows have the same
//!   id exactly if they have the same key, and NULL if it is NULL.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Column, ExprSchema, Result};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::logical_expr::logical_plan::builder::project;
use datafusion::logical_expr::{
    Aggregate, Expr, JoinType, LogicalPlan, Projection, TableScan, TableScanBuilder,
};
use uplake_table::id_column;

use crate::base::id_column::IdColumn;
use crate::optimizer::id_rewrite::id_keys::{ids_in_keys, keys_of};
use crate::scan::lake_table::LakeTable;

/// A plan with the ids of one of its columns.
pub(crate) struct WithIds {
    pub plan: LogicalPlan,
    /// The column of ids in it.
    pub ids: Column,
    /// The domain and log they are from, as the plan says of that column.
    pub source: String,
    /// Do the table's files have an index of the keys?
    pub indexed: bool,
}

/// The same before anybody asked the plan what its column holds.
struct Found {
    plan: LogicalPlan,
    ids: Column,
    indexed: bool,
}

/// The highest id in the plan's tables, by domain and log; `None` where files do not say.
pub(crate) fn highest_ids(plan: &LogicalPlan) -> Result<HashMap<String, Option<u32>>> {
    let mut highest = HashMap::new();
    plan.apply_with_subqueries(|node| {
        let LogicalPlan::TableScan(scan) = node else { return Ok(TreeNodeRecursion::Continue) };
        let Ok(provider) = source_as_provider(&scan.source) else {
            return Ok(TreeNodeRecursion::Continue);
        };
        if let Some(table) = provider.downcast_ref::<LakeTable>() {
            for (source, id) in table.highest_ids() {
                let known = highest.entry(source).or_insert(id);
                *known = known.zip(id).map(|(known, id)| known.max(id));
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(highest)
}

/// `plan` with the ids of `key`; `None` if there are none, they cannot be had there, or DataFusion has forgotten
/// on the way what they are.
pub(crate) fn with_ids(plan: &LogicalPlan, key: &Column) -> Result<Option<WithIds>> {
    let Some(Found { plan, ids, indexed }) = found(plan, key)? else { return Ok(None) };
    let of = IdColumn::of(plan.schema().field_from_column(&ids)?);
    Ok(of.map(|of| WithIds { plan, ids, source: of.source(), indexed }))
}

fn found(plan: &LogicalPlan, key: &Column) -> Result<Option<Found>> {
    let Some(position) = plan.schema().maybe_index_of_column(key) else { return Ok(None) };
    match plan {
        LogicalPlan::TableScan(scan) => scan_with_ids(scan, key),
        LogicalPlan::Filter(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Window(_) => {
            let Some(below) = with_ids(plan.inputs()[0], key)? else { return Ok(None) };
            let plan = plan.with_new_exprs(plan.expressions(), vec![below.plan])?;
            Ok(Some(Found { plan, ids: below.ids, indexed: below.indexed }))
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let inner = Column::from(alias.input.schema().qualified_field(position));
            let Some(below) = with_ids(&alias.input, &inner)? else { return Ok(None) };
            // Ids of two tables may have one name below: then an alias gives one of them another.
            let place = below.plan.schema().index_of_column(&below.ids)?;
            let plan = plan.with_new_exprs(Vec::new(), vec![below.plan])?;
            let ids = Column::from(plan.schema().qualified_field(place));
            Ok(Some(Found { plan, ids, indexed: below.indexed }))
        }
        LogicalPlan::Aggregate(aggregate) => grouped_with_ids(aggregate, position),
        LogicalPlan::Projection(projection) => {
            if let Some((ids, source)) = ids_in_keys(&projection.expr[position]) {
                let of = IdColumn::of(projection.input.schema().field_from_column(&ids)?);
                if of != IdColumn::of_source(&source) {
                    return Ok(None);
                }
                let plan = and_column(projection, projection.input.as_ref().clone(), &ids)?;
                return Ok(Some(Found { plan, ids, indexed: false }));
            }
            let Some(inner) = plain_column(&projection.expr[position]) else { return Ok(None) };
            let Some(below) = with_ids(&projection.input, inner)? else { return Ok(None) };
            let plan = and_column(projection, below.plan, &below.ids)?;
            Ok(Some(Found { plan, ids: below.ids, indexed: below.indexed }))
        }
        LogicalPlan::Join(join) => {
            let on_left = join.left.schema().has_column(key);
            let outputs = match join.join_type {
                JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => true,
                JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => on_left,
                JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => !on_left,
            };
            let side = if on_left { &join.left } else { &join.right };
            let Some(below) = with_ids(side, key)?.filter(|_| outputs) else { return Ok(None) };
            let inputs = if on_left {
                vec![below.plan, join.right.as_ref().clone()]
            } else {
                vec![join.left.as_ref().clone(), below.plan]
            };
            let plan = plan.with_new_exprs(plan.expressions(), inputs)?;
            Ok(Some(Found { plan, ids: below.ids, indexed: below.indexed }))
        }
        // Of a UNION above all: DataFusion would say of its rows what one of the inputs says.
        _ => Ok(None),
    }
}

/// The projection, over `input` and with a column of it besides, if it is not there yet.
fn and_column(projection: &Projection, input: LogicalPlan, column: &Column) -> Result<LogicalPlan> {
    let mut columns = projection.expr.clone();
    if !columns.iter().any(|expr| matches!(expr, Expr::Column(there) if there == column)) {
        columns.push(Expr::Column(column.clone()));
    }
    project(input, columns)
}

/// The column that an expression merely renames.
fn plain_column(expr: &Expr) -> Option<&Column> {
    match expr {
        Expr::Column(column) => Some(column),
        Expr::Alias(alias) => plain_column(&alias.expr),
        _ => None,
    }
}

/// Groups by the ids of the key at `position`, with the keys that go with them.
fn grouped_with_ids(aggregate: &Aggregate, position: usize) -> Result<Option<Found>> {
    let Some(Expr::Column(key)) = aggregate.group_expr.get(position) else { return Ok(None) };
    let Some(found) = with_ids(&aggregate.input, key)? else { return Ok(None) };
    let mut groups = aggregate.group_expr.clone();
    groups[position] = Expr::Column(found.ids.clone());
    let grouped = Aggregate::try_new(Arc::new(found.plan), groups, aggregate.aggr_expr.clone())?;
    let old = aggregate.schema.columns();
    let new = grouped.schema.columns();
    if old.len() != new.len() {
        return Ok(None);
    }
    let ids = new[position].clone();
    let mut columns: Vec<Expr> = new.into_iter().map(Expr::Column).collect();
    let Column { relation, name, .. } = old[position].clone();
    columns[position] = keys_of(&found.source, ids.clone()).alias_qualified(relation, name);
    columns.push(Expr::Column(ids.clone()));
    let plan = project(LogicalPlan::Aggregate(grouped), columns)?;
    Ok(Some(Found { plan, ids, indexed: false }))
}

fn scan_with_ids(scan: &TableScan, key: &Column) -> Result<Option<Found>> {
    let Ok(provider) = source_as_provider(&scan.source) else { return Ok(None) };
    let Some(table) = provider.downcast_ref::<LakeTable>() else { return Ok(None) };
    let specs = table.snapshot().id_domains();
    let Some(spec) = specs.iter().find(|s| s.column.to_lowercase() == key.name) else {
        return Ok(None);
    };
    if table.snapshot().ids_of(&spec.column).is_none() {
        return Ok(None);
    }
    let name = id_column(&spec.column).to_lowercase();
    let wider = table.with_ids();
    let ids = Column::new(Some(scan.table_name.clone()), &name);
    let projection = match &scan.projection {
        None => None,
        Some(columns) => {
            let schema = datafusion::catalog::TableProvider::schema(wider.as_ref());
            let at = schema.index_of(&name)?;
            let more = (!columns.contains(&at)).then_some(at);
            Some(columns.iter().copied().chain(more).collect())
        }
    };
    let wider = TableScanBuilder::new(scan.table_name.clone(), provider_as_source(wider))
        .with_projection(projection)
        .with_filters(scan.filters.clone())
        .with_fetch(scan.fetch)
        .build()?;
    let indexed = table.snapshot().indexes().iter().any(|index| index.column == spec.column);
    Ok(Some(Found { plan: LogicalPlan::TableScan(wider), ids, indexed }))
}
