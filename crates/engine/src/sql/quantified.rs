//! `x > ANY (SELECT …)` and `x > ALL (SELECT …)`, by the least and the greatest value of the subquery.
//!
//! | | is |
//! |---|---|
//! | `x > ANY (q)` | false if q has no row; true if x is above the least; else NULL if q has a NULL, or x is one; else false |
//! | `x <> ANY (q)` | the same of x being other than the least or the greatest |
//! | `x > ALL (q)` | `NOT x <= ANY (q)` |
//!
//! # Not here
//! `= ANY` and `<> ALL`, which are IN and NOT IN (`rewrite`).

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, Expr, SelectItem, SetExpr, TableFactor, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

/// `left op ANY (query)`; `None` for an operator that does not compare.
pub(crate) fn compared_with_any(
    left: &Expr,
    op: &BinaryOperator,
    query: &ast::Query,
) -> Option<Expr> {
    use BinaryOperator::{And, Gt, GtEq, Lt, LtEq, NotEq, Or};
    let compare = |aggregate: &str| {
        let value = of_column(&format!("{aggregate}(value)"), query)?;
        Some(binary(nested(left.clone()), op.clone(), value))
    };
    let found = match op {
        Gt | GtEq => compare("min")?,
        Lt | LtEq => compare("max")?,
        NotEq => binary(compare("min")?, Or, compare("max")?),
        _ => return None,
    };
    let some = binary(of_column("count(*)", query)?, Gt, number("0"));
    let nulls = binary(of_column("count(*) - count(value)", query)?, Gt, number("0"));
    let mut unknown = parsed("CASE WHEN true THEN CAST(NULL AS BOOLEAN) ELSE false END")?;
    if let Expr::Case { conditions, .. } = &mut unknown {
        conditions.first_mut()?.condition = nulls;
    }
    Some(nested(binary(some, And, nested(binary(found, Or, unknown)))))
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

fn nested(expr: Expr) -> Expr {
    Expr::Nested(Box::new(expr))
}

fn number(text: &str) -> Expr {
    Expr::value(ast::Value::Number(text.to_owned(), false))
}

/// What is computed of the query's only column.
fn of_column(aggregate: &str, query: &ast::Query) -> Option<Expr> {
    let mut asked = parsed(&format!("(SELECT {aggregate} FROM (SELECT 1) AS __values (value))"))?;
    let Expr::Subquery(outer) = &mut asked else { return None };
    let SetExpr::Select(select) = outer.body.as_mut() else { return None };
    // In the query itself, where it may: outer columns in it are found there by whatever can be made a join.
    if let Some((of, column)) = plain_column(query) {
        let _ = select.projection.visit(&mut InPlaceOfValue(column));
        let projection = std::mem::take(&mut select.projection);
        **select = ast::Select { projection, ..of.clone() };
        return Some(asked);
    }
    let TableFactor::Derived { subquery, .. } = &mut select.from.first_mut()?.relation else {
        return None;
    };
    **subquery = query.clone();
    Some(asked)
}

/// The SELECT of a query that is one column of each row of FROM and WHERE.
fn plain_column(query: &ast::Query) -> Option<(&ast::Select, &Expr)> {
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    let [SelectItem::UnnamedExpr(column) | SelectItem::ExprWithAlias { expr: column, .. }] =
        select.projection.as_slice()
    else {
        return None;
    };
    let is_column = matches!(column, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
    let is_ungrouped = matches!(&select.group_by,
        ast::GroupByExpr::Expressions(keys, modifiers) if keys.is_empty() && modifiers.is_empty());
    let is_plain = query.with.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none()
        && select.distinct.is_none()
        && select.top.is_none()
        && select.having.is_none()
        && select.qualify.is_none()
        && !select.from.is_empty();
    (is_column && is_ungrouped && is_plain).then_some((select.as_ref(), column))
}

/// Puts a column where `value` stands.
struct InPlaceOfValue<'a>(&'a Expr);

impl VisitorMut for InPlaceOfValue<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if matches!(expr, Expr::Identifier(name) if name.value == "value") {
            *expr = self.0.clone();
        }
        ControlFlow::Continue(())
    }
}

fn parsed(text: &str) -> Option<Expr> {
    Parser::new(&GenericDialect {}).try_with_sql(text).ok()?.parse_expr().ok()
}
