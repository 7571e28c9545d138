//! The first groups by floats: `SELECT DISTINCT x FROM t ORDER BY x LIMIT 3`, `… GROUP BY k ORDER BY min(x) LIMIT 3`.
//!
//! DataFusion keeps so many groups and no more. One that has to go it looks for by `==`: a NaN is not found, and
//! the statement panics. Their min or max it compares by `<`, so that a NaN takes the place of any other. Groups
//! are all kept and the first are sorted out of them.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;

/// DataFusion's rule that tells aggregates how many groups are wanted, and ours after it.
#[derive(Debug)]
pub(super) struct TopGroups(pub(super) Arc<dyn PhysicalOptimizerRule + Send + Sync>);

impl PhysicalOptimizerRule for TopGroups {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = self.0.optimize(plan, config)?;
        plan.transform_down(|node| match without_limit(&node)? {
            Some(all) => Ok(Transformed::yes(all)),
            None => Ok(Transformed::no(node)),
        })
        .data()
    }
}

fn without_limit(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(aggregate) = node.downcast_ref::<AggregateExec>() else { return Ok(None) };
    // A limit without an order is of any groups, which are found as always.
    if aggregate.limit_options().is_none_or(|limit| limit.descending.is_none()) {
        return Ok(None);
    }
    let keys = aggregate.group_expr().expr().iter();
    let mut has_floats =
        aggregate.aggr_expr().iter().any(|expr| expr.field().data_type().is_floating());
    for (key, _) in keys {
        has_floats |= key.data_type(&aggregate.input().schema())?.is_floating();
    }
    Ok(has_floats.then(|| Arc::new(aggregate.with_new_limit_options(None)) as _))
}
