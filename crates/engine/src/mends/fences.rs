//! Conditions that must not go below an aggregate.
//!
//! DataFusion pushes a condition below an aggregate if all of its columns are grouped by, and so one
//! without columns, too: `SELECT count(*) FROM t HAVING (SELECT max(x) FROM t) > 100` then counted no rows
//! and answered 0 in place of no row, and `HAVING random() < 0.5` left out rows in place of groups. No
//! filter passes a LIMIT: it is the fence.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Aggregate, Expr, Limit, LogicalPlan, lit};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// The rule, which comes before filters are pushed down.
#[derive(Debug)]
pub(super) struct Fences;

impl OptimizerRule for Fences {
    fn name(&self) -> &'static str {
        "fences"
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let (mut asked, mut volatile) = (false, false);
        plan.apply_with_subqueries(|node| {
            if let LogicalPlan::Filter(filter) = node {
                for part in split_conjunction(&filter.predicate) {
                    volatile |= part.is_volatile();
                    asked |= part.is_volatile() || asks_once(part)?;
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        if !asked {
            return Ok(Transformed::no(plan));
        }
        plan.transform_up_with_subqueries(|node| {
            let most = match &node {
                LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => 1,
                LogicalPlan::Aggregate(aggregate) if volatile || has_total(aggregate) => i64::MAX,
                LogicalPlan::Window(_) | LogicalPlan::Distinct(_) if volatile => i64::MAX,
                LogicalPlan::Limit(limit) => return Ok(without_second_fence(limit, node.clone())),
                _ => return Ok(Transformed::no(node)),
            };
            let fetch = Some(Box::new(lit(most)));
            let fence = Limit { skip: None, fetch, input: Arc::new(node) };
            Ok(Transformed::yes(LogicalPlan::Limit(fence)))
        })
    }
}

/// Does a condition ask a subquery, and no column?
fn asks_once(condition: &Expr) -> Result<bool> {
    let asks = condition.exists(|part| Ok(matches!(part, Expr::ScalarSubquery(_))))?;
    Ok(asks && condition.column_refs().is_empty())
}

/// Is there a group of all rows beside the others?
fn has_total(aggregate: &Aggregate) -> bool {
    aggregate.group_expr.iter().any(|expr| matches!(expr, Expr::GroupingSet(_)))
}

/// The optimizer comes by several times: the fence that was there is enough.
fn without_second_fence(limit: &Limit, node: LogicalPlan) -> Transformed<LogicalPlan> {
    match limit.input.as_ref() {
        LogicalPlan::Limit(below) if (&below.skip, &below.fetch) == (&limit.skip, &limit.fetch) => {
            Transformed::yes(limit.input.as_ref().clone())
        }
        _ => Transformed::no(node),
    }
}
