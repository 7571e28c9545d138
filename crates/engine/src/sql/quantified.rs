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

use datafusion::sql::sqlparser::ast::{self, BinaryOperator, Expr, SetExpr, TableFactor};
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
    let TableFactor::Derived { subquery, .. } = &mut select.from.first_mut()?.relation else {
        return None;
    };
    **subquery = query.clone();
    Some(asked)
}

fn parsed(text: &str) -> Option<Expr> {
    Parser::new(&GenericDialect {}).try_with_sql(text).ok()?.parse_expr().ok()
}
