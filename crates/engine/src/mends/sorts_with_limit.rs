//! `ORDER BY … LIMIT` above what needs its input in order.
//!
//! A sort with a limit that turns out to be needless, because the rows come in order or all of its keys are
//! constant, is removed by DataFusion, which hands the limit down with the order. It then stops at the next
//! sort, below the windows and aggregates in between: `SELECT count(*) OVER () AS n, max(false) OVER (ORDER BY
//! x) … ORDER BY n LIMIT 2` counted two rows. So the limit stands beside such a sort while sorts are placed; a
//! later rule makes them one again.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::sorts::sort::SortExec;

use crate::base::one_input::EachNode;

/// The rule, which comes before sorts are placed.
pub(super) const LIMITS_BESIDE_SORTS: EachNode =
    EachNode { name: "limits_beside_sorts", other: apart };

fn apart(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(sort) = node.downcast_ref::<SortExec>() else { return Ok(None) };
    let Some(fetch) = sort.fetch().filter(|_| !sort.preserve_partitioning()) else {
        return Ok(None);
    };
    if !needs_order(sort.input())? {
        return Ok(None);
    }
    let whole = Arc::new(sort.with_fetch(None));
    Ok(Some(Arc::new(GlobalLimitExec::new(whole, 0, Some(fetch)))))
}

/// Does the plan hold an operator that needs its input in order?
fn needs_order(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let mut found = false;
    plan.apply(|node| {
        found = node.required_input_ordering().iter().any(Option::is_some);
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}
