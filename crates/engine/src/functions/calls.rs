//! Calls of scalar functions anywhere in a plan, subqueries included.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, ScalarUDF};

/// Looks at every call.
pub(crate) fn each_call(
    plan: &LogicalPlan,
    mut look: impl FnMut(&ScalarFunction) -> Result<()>,
) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Expr::ScalarFunction(call) = expr {
                    look(call)?;
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(())
}

/// The plan with other functions where `other` gives one. Columns keep their names.
pub(crate) fn with_functions(
    plan: LogicalPlan,
    other: impl Fn(&ScalarFunction) -> Result<Option<Arc<ScalarUDF>>>,
) -> Result<LogicalPlan> {
    let replaced = plan.transform_up_with_subqueries(|node| {
        let names = NamePreserver::new(&node);
        node.map_expressions(|expr| {
            let name = names.save(&expr);
            let replaced = expr.transform_up(|expr| {
                let Expr::ScalarFunction(call) = &expr else { return Ok(Transformed::no(expr)) };
                let Some(function) = other(call)? else { return Ok(Transformed::no(expr)) };
                let call = ScalarFunction::new_udf(function, call.args.clone());
                Ok(Transformed::yes(Expr::ScalarFunction(call)))
            })?;
            Ok(replaced.update_data(|expr| name.restore(expr)))
        })
    })?;
    Ok(replaced.data)
}
