//! Whether scans tell the planner from when to when their days and times go.
//!
//! By such bounds DataFusion estimates what a filter leaves. Where the condition computes with days or times, 55.2 finds
//! intervals of two types (`a - b <= 7` of dates: durations and whole numbers) and refuses the statement. Scans of such
//! a statement tell no bounds of days and times.

use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator};

/// An extension of the configuration: scans tell none.
#[derive(Debug)]
pub(crate) struct NoTemporalBounds;

/// Does the plan add, subtract or cast days or times that are not literals?
pub(crate) fn computes_with_times(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        // What a scan filters by is the table's own affair, or stands in a filter above it.
        if matches!(node, LogicalPlan::TableScan(_)) {
            return Ok(TreeNodeRecursion::Continue);
        }
        let mut schema = None;
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                found |= operands(expr).into_iter().any(|operand| {
                    let schema = schema.get_or_insert_with(|| merge_schema(&node.inputs()));
                    operand.get_type(schema).map_or(true, |of| of.is_temporal())
                });
                Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
            })
        })
    })?;
    Ok(found)
}

/// What an expression computes with, as far as intervals of values are worked out for it.
fn operands(expr: &Expr) -> Vec<&Expr> {
    let all = match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Plus | Operator::Minus, right }) => {
            vec![left.as_ref(), right.as_ref()]
        }
        Expr::Cast(cast) => vec![cast.expr.as_ref()],
        Expr::TryCast(cast) => vec![cast.expr.as_ref()],
        Expr::Negative(operand) => vec![operand.as_ref()],
        _ => Vec::new(),
    };
    all.into_iter().filter(|operand| !matches!(operand, Expr::Literal(..))).collect()
}
