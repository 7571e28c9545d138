//! `SELECT count(*), max(x) FROM t` from what is known of the data, without a scan.
//!
//! As DataFusion's rule of the same name, which looks for an aggregate's first stage below it and, where
//! that one has a FILTER, goes on to the first stage of another aggregate: `count(c) FILTER (…)` of
//! `SELECT count(*) AS c` answered the inner count.
//!
//! # Invariants
//! - The first stage is the first aggregate below the last one.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::logical_expr::StatisticsArgs as FunctionArgs;
use datafusion::physical_expr::expressions::lit;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};

#[derive(Debug)]
pub(super) struct AggregateStatistics;

impl PhysicalOptimizerRule for AggregateStatistics {
    fn name(&self) -> &'static str {
        "aggregate_statistics"
    }

    /// A literal is NULL or not, whatever the aggregate might have been.
    fn schema_check(&self) -> bool {
        false
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_down(|node| match known(&node)? {
            Some(values) => Ok(Transformed::yes(values)),
            None => Ok(Transformed::no(node)),
        })
        .data()
    }
}

/// The one row of an aggregate, if statistics have all of it.
fn known(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(first) = plan.downcast_ref::<AggregateExec>().and_then(first_stage) else {
        return Ok(None);
    };
    let input = first.input().as_ref();
    let statistics = StatisticsContext::new().compute(input, &StatisticsArgs::new())?;
    let mut values = Vec::new();
    for aggregate in first.aggr_expr() {
        let (field, exprs) = (aggregate.field(), aggregate.expressions());
        let value = aggregate.fun().value_from_stats(&FunctionArgs {
            statistics: &statistics,
            return_type: field.data_type(),
            is_distinct: aggregate.is_distinct(),
            exprs: exprs.as_slice(),
        });
        let Some(value) = value else { return Ok(None) };
        values.push(ProjectionExpr { expr: lit(value), alias: aggregate.name().to_owned() });
    }
    let row = Arc::new(PlaceholderRowExec::new(plan.schema()));
    Ok(Some(Arc::new(ProjectionExec::try_new(values, row)?)))
}

/// The stage of an aggregate that sees rows, if all of them are one group.
fn first_stage(last: &AggregateExec) -> Option<&AggregateExec> {
    let first = match last.mode() {
        AggregateMode::Single | AggregateMode::SinglePartitioned => last,
        AggregateMode::Final | AggregateMode::FinalPartitioned => {
            let mut below = last.input();
            loop {
                if let Some(first) = below.downcast_ref::<AggregateExec>() {
                    break (*first.mode() == AggregateMode::Partial).then_some(first)?;
                }
                let [input] = below.children()[..] else { return None };
                below = input;
            }
        }
        AggregateMode::Partial | AggregateMode::PartialReduce => return None,
    };
    let is_whole = |stage: &AggregateExec| {
        stage.group_expr().is_empty() && stage.filter_expr().iter().all(Option::is_none)
    };
    (is_whole(first) && is_whole(last)).then_some(first)
}
