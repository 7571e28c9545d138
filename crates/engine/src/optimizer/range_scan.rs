//! Functions of events in the order of time, over scans that can give each user's in that order.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::{DataSource, DataSourceExec};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::filter::FilterExec;

use crate::operators::array_aggregate::aggregate::{Group, Otherwise, Ranges};
use crate::operators::array_aggregate::exec::ArrayAggregateExec;
use crate::optimizer::array_aggregate::rewritten;
use crate::scan::id_ranges::{ByRanges, by_ranges};

/// The rule. It comes after all that changes scans.
#[derive(Debug, Default)]
pub(crate) struct IdRanges;

impl PhysicalOptimizerRule for IdRanges {
    fn name(&self) -> &'static str {
        "id_ranges"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        rewritten(plan, over_ranges)
    }
}

/// The aggregate over a scan by ranges.
fn over_ranges(node: &Arc<dyn ExecutionPlan>) -> Result<Option<ArrayAggregateExec>> {
    let Some(aggregate) = node.downcast_ref::<ArrayAggregateExec>() else { return Ok(None) };
    // What is above counts on so many partitions.
    let threads = aggregate.properties().output_partitioning().partition_count();
    let what = &aggregate.what;
    let ([Group::Row(id)], true, None) = (what.columns.as_slice(), what.one_id, &what.lookup)
    else {
        return Ok(None);
    };
    let times: HashSet<Option<&Column>> =
        what.sums.iter().filter_map(|sum| sum.time()).map(|time| time.downcast_ref()).collect();
    let mut times = times.into_iter();
    let (Some(id), Some(Some(time)), None) =
        (id.downcast_ref::<Column>(), times.next(), times.next())
    else {
        return Ok(None);
    };
    let found = with_ranges(&aggregate.input, id.index(), time.index(), threads)?;
    Ok(found.map(|(input, by_ranges)| {
        let mut what = what.clone();
        what.ranges = Some(Ranges { count: by_ranges.ranges, threads });
        what.otherwise = Otherwise::AnyOrder(Arc::clone(node));
        ArrayAggregateExec::over(what, input)
    }))
}

/// The plan over a scan by ranges; `id` and `time` are columns of its rows.
fn with_ranges(
    node: &Arc<dyn ExecutionPlan>,
    id: usize,
    time: usize,
    threads: usize,
) -> Result<Option<(Arc<dyn ExecutionPlan>, ByRanges)>> {
    if let Some(scan) = node.downcast_ref::<DataSourceExec>() {
        let source = scan.data_source();
        let (Some(id), Some(time)) = (stored(source, id), stored(source, time)) else {
            return Ok(None);
        };
        return Ok(by_ranges(source, id.name(), time.name(), threads).map(|found| {
            let scan: Arc<dyn ExecutionPlan> =
                Arc::new(DataSourceExec::new(Arc::clone(&found.scan)));
            (scan, found)
        }));
    }
    let below = |column: usize, filter: &FilterExec| match filter.projection() {
        Some(columns) => columns[column],
        None => column,
    };
    let found = if let Some(filter) =
        node.downcast_ref::<FilterExec>().filter(|filter| filter.fetch().is_none())
    {
        with_ranges(filter.input(), below(id, filter), below(time, filter), threads)?
    } else if let Some(cooperative) = node.downcast_ref::<CooperativeExec>() {
        with_ranges(cooperative.input(), id, time, threads)?
    } else {
        None
    };
    let Some((input, by_ranges)) = found else { return Ok(None) };
    let changed = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    Ok(Some((Arc::clone(node).replace_children(vec![input], changed)?, by_ranges)))
}

/// The column of the table that a scan hands out as its column of this number.
fn stored(scan: &Arc<dyn DataSource>, column: usize) -> Option<Column> {
    let config = scan.downcast_ref::<FileScanConfig>()?;
    let projection = config.file_source().projection()?;
    let expr: &Arc<dyn PhysicalExpr> = &projection.iter().nth(column)?.expr;
    expr.downcast_ref::<Column>().cloned()
}
