//! Puts groups in arrays (see [`array_aggregate`](crate::operators::array_aggregate)) where aggregates can have them.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};

use crate::base::id_column::IdColumn;
use crate::base::one_input::EachNode;
use crate::operators::array_aggregate::exec::ArrayAggregateExec;
use crate::operators::array_aggregate::keys::Keys;
use crate::operators::array_aggregate::sums::SumPlan;

/// The rule that puts [`ArrayAggregateExec`] in place of aggregates it can do. It must come before
/// partitions are chosen.
pub(crate) const ARRAY_AGGREGATES: EachNode = EachNode {
    name: "array_aggregates",
    other: |node| Ok(in_arrays(node).map(|aggregate| Arc::new(aggregate) as _)),
};

/// The same aggregate with groups in arrays.
fn in_arrays(node: &Arc<dyn ExecutionPlan>) -> Option<ArrayAggregateExec> {
    let last = node.downcast_ref::<AggregateExec>()?;
    let first = match last.mode() {
        AggregateMode::Single | AggregateMode::SinglePartitioned => last,
        AggregateMode::Final | AggregateMode::FinalPartitioned => {
            let first = last.input().downcast_ref::<AggregateExec>()?;
            (*first.mode() == AggregateMode::Partial).then_some(first)?
        }
        AggregateMode::Partial | AggregateMode::PartialReduce => return None,
    };
    let group_by = first.group_expr();
    let limited = last.limit_options().is_some() || first.limit_options().is_some();
    if limited || group_by.expr().is_empty() || !group_by.is_single() {
        return None;
    }
    let schema = first.input().schema();
    let columns: Vec<_> = group_by.expr().iter().map(|(expr, _)| Arc::clone(expr)).collect();
    let ids = columns.iter().filter_map(|expr| IdColumn::of_column(expr, &schema)).count();
    if ids > 0 && columns.len() > 1 {
        return None;
    }
    let types: Option<Vec<_>> =
        columns.iter().map(|column| column.data_type(&schema).ok().filter(Keys::takes)).collect();
    let sums: Option<Vec<SumPlan>> = first
        .aggr_expr()
        .iter()
        .zip(first.filter_expr())
        .map(|(function, filter)| SumPlan::new(function, filter.as_ref(), &schema))
        .collect();
    Some(ArrayAggregateExec::new(node, first.input(), columns, types?, ids == 1, sums?))
}
