//! Joins on functions of a struct's fields: `ON abs(a.s['x']) = abs(b.s['x'])`, or of floats in structs.
//!
//! DataFusion has fields taken out below a join, under names of their own, but what the key is called afterwards
//! depends on the name; the plan then lacks a column. Where a join has such a key, no fields are taken out.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// The rule that takes fields out, but not of plans that it would break.
#[derive(Debug)]
pub(super) struct FieldsOfKeys(pub(super) Arc<dyn OptimizerRule + Send + Sync>);

impl OptimizerRule for FieldsOfKeys {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        if has_function_of_field(&plan)? {
            return Ok(Transformed::no(plan));
        }
        self.0.rewrite(plan, config)
    }
}

/// Has a join of the plan a key that is more than a field?
fn has_function_of_field(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Join(join) = node {
            let keys = join.on.iter().flat_map(|(left, right)| [left, right]);
            for key in keys.filter(|key| !is_field(key)) {
                found |= key.exists(|part| Ok(is_field(part)))?;
            }
        }
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

fn is_field(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if call.func.name() == "get_field")
}
