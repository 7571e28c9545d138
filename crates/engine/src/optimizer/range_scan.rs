//! Functions of events in the order of time, over scans that can give each user's in that order.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};

use crate::base::one_input::EachNode;
use crate::operators::array_aggregate::aggregate::{Group, Otherwise, Ranges};
use crate::operators::array_aggregate::exec::ArrayAggregateExec;
use crate::optimizer::shapes::{Layer, layer, stored};
use crate::scan::id_ranges::{ByRanges, by_ranges};

/// The rule. It comes after all that changes scans.
pub(crate) const ID_RANGES: EachNode = EachNode {
    name: "id_ranges",
    other: |node| Ok(over_ranges(node)?.map(|aggregate| Arc::new(aggregate) as _)),
};

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
    let Some((layer @ (Layer::Same | Layer::Filter(_)), below)) = layer(node) else {
        return Ok(None);
    };
    let (Some(id), Some(time)) = (layer.column(id), layer.column(time)) else { return Ok(None) };
    let Some((input, by_ranges)) = with_ranges(below, id, time, threads)? else { return Ok(None) };
    let changed = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    Ok(Some((Arc::clone(node).replace_children(vec![input], changed)?, by_ranges)))
}
