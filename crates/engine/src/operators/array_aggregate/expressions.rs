//! What is known of expressions that an aggregate computes.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, Literal, NotExpr,
};

/// Does it compare two values, and nothing else?
pub(crate) fn compares(op: &Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

/// The expression with every column written as `column` says.
pub(crate) fn with_columns(
    expr: &Arc<dyn PhysicalExpr>,
    column: impl Fn(&Column) -> Column,
) -> Result<Arc<dyn PhysicalExpr>> {
    let changed = Arc::clone(expr).transform_up(|part| match part.downcast_ref::<Column>() {
        Some(found) => Ok(Transformed::yes(Arc::new(column(found)) as _)),
        None => Ok(Transformed::no(part)),
    })?;
    Ok(changed.data)
}

/// Is this true, false or NULL, for any values?
pub(crate) fn asks(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let is_plain = |expr: &Arc<dyn PhysicalExpr>| expr.is::<Column>() || expr.is::<Literal>();
    if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
        return match binary.op() {
            Operator::And | Operator::Or => asks(binary.left()) && asks(binary.right()),
            op => compares(op) && is_plain(binary.left()) && is_plain(binary.right()),
        };
    }
    if let Some(list) = expr.downcast_ref::<InListExpr>() {
        return is_plain(list.expr()) && list.list().iter().all(is_plain);
    }
    if let Some(like) = expr.downcast_ref::<LikeExpr>() {
        return is_plain(like.expr()) && like.pattern().is::<Literal>();
    }
    if let Some(not) = expr.downcast_ref::<NotExpr>() {
        return asks(not.arg());
    }
    let null = expr.downcast_ref::<IsNullExpr>().map(IsNullExpr::arg);
    let null = null.or_else(|| expr.downcast_ref::<IsNotNullExpr>().map(IsNotNullExpr::arg));
    null.is_some_and(is_plain)
}
