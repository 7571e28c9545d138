//! Where in an expression false will do for NULL.

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::logical_expr::expr::{AggregateFunction, Case};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, not};

/// The expression with every part for which `rewrite` has another one, from above. `truth`, which it is told
/// of each part: false will do for NULL, as it does for conditions of WHERE, JOIN and FILTER and in
/// what AND, OR, WHEN and IS TRUE make of those, but not below NOT.
pub(super) fn rewrite_parts(
    expr: Expr,
    truth: bool,
    rewrite: &dyn Fn(&Expr, bool) -> Result<Option<Expr>>,
) -> Result<Expr> {
    if let Some(rewritten) = rewrite(&expr, truth)? {
        return Ok(rewritten);
    }
    let part = |expr: Expr, truth: bool| rewrite_parts(expr, truth, rewrite);
    let boxed = |expr: Box<Expr>, truth: bool| part(*expr, truth).map(Box::new);
    Ok(match expr {
        Expr::Not(inner) => not(part(*inner, false)?),
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
            Expr::BinaryExpr(BinaryExpr {
                left: boxed(left, truth)?,
                op,
                right: boxed(right, truth)?,
            })
        }
        Expr::IsTrue(inner) => Expr::IsTrue(boxed(inner, true)?),
        Expr::IsNotTrue(inner) => Expr::IsNotTrue(boxed(inner, true)?),
        Expr::Case(Case { expr: None, when_then_expr, else_expr }) => {
            let branch = |(when, then)| Ok((boxed(when, true)?, boxed(then, truth)?));
            Expr::Case(Case {
                expr: None,
                when_then_expr: when_then_expr.into_iter().map(branch).collect::<Result<_>>()?,
                else_expr: else_expr.map(|other| boxed(other, truth)).transpose()?,
            })
        }
        Expr::AggregateFunction(AggregateFunction { func, mut params }) => {
            let filter = params.filter.take();
            params.filter = filter.map(|filter| boxed(filter, true)).transpose()?;
            let args = params.args.into_iter().map(|arg| part(arg, false));
            params.args = args.collect::<Result<_>>()?;
            Expr::AggregateFunction(AggregateFunction { func, params })
        }
        other => other.map_children(|inner| part(inner, false).map(Transformed::yes)).data()?,
    })
}
