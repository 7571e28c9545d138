//! Puts groups in arrays (see [`array_aggregate`](crate::operators::array_aggregate)) where aggregates can have them.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};

use crate::base::id_column::IdColumn;
use crate::operators::array_aggregate::exec::ArrayAggregateExec;
use crate::operators::array_aggregate::keys::Keys;
use crate::operators::array_aggregate::sums::SumPlan;

/// The rule that puts [`ArrayAggregateExec`] in place of aggregates it can do. It must come before
/// partitions are chosen.
#[derive(Debug, Default)]
pub(crate) struct ArrayAggregates;

impl PhysicalOptimizerRule for ArrayAggregates {
    fn name(&self) -> &'static str {
        "array_aggregates"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        rewritten(plan, |node| Ok(dense(node)))
    }
}

/// The plan with an aggregate in place of every node for which there is one, from below.
pub(crate) fn rewritten(
    plan: Arc<dyn ExecutionPlan>,
    aggregate: impl Fn(&Arc<dyn ExecutionPlan>) -> Result<Option<ArrayAggregateExec>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let replaced = plan.transform_up(|node| {
        Ok(match aggregate(&node)? {
            Some(aggregate) => Transformed::yes(Arc::new(aggregate) as _),
            None => Transformed::no(node),
        })
    })?;
    Ok(replaced.data)
}

/// The same aggregate with groups in arrays.
fn dense(node: &Arc<dyn ExecutionPlan>) -> Option<ArrayAggregateExec> {
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
