//! Conditions of a subquery that compare an expression of its own with the outer row.
//!
//! DataFusion makes joins of subqueries with aggregates only where what is equal is a column of the subquery:
//! `(SELECT max(x) FROM t WHERE t.k + 1 = outer.k)` is refused. So is every condition on floats, whose zeros
//! [`super::float_zero`] makes one. Here the expression becomes a column below the condition.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{
    BinaryExpr, Expr, Filter, LogicalPlan, LogicalPlanBuilder, Operator,
};
use datafusion::optimizer::AnalyzerRule;

/// The rule, which comes when conditions are as they stay.
#[derive(Debug)]
pub(super) struct KeysOfSubqueries;

impl AnalyzerRule for KeysOfSubqueries {
    fn name(&self) -> &'static str {
        "keys_of_subqueries"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Filter(filter) if filter.predicate.contains_outer() => of_columns(filter),
            other => Ok(Transformed::no(other)),
        })
        .data()
    }
}

fn of_columns(filter: Filter) -> Result<Transformed<LogicalPlan>> {
    let columns = filter.input.schema().columns();
    let mut made: Vec<Expr> = columns.iter().cloned().map(Expr::Column).collect();
    let mut column_of = |side: &Expr| {
        if side.contains_outer() || is_column(side) || side.column_refs().is_empty() {
            return side.clone();
        }
        let name = format!("__key_of_subquery_{}", made.len());
        made.push(side.clone().alias(&name));
        Expr::Column(Column::new_unqualified(name))
    };
    let mut conditions = Vec::new();
    for part in split_conjunction(&filter.predicate) {
        conditions.push(match part {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right })
                if left.contains_outer() != right.contains_outer() && !part.is_volatile() =>
            {
                column_of(left).eq(column_of(right))
            }
            other => other.clone(),
        });
    }
    let Some(condition) = conjunction(conditions).filter(|_| made.len() > columns.len()) else {
        return Ok(Transformed::no(LogicalPlan::Filter(filter)));
    };
    let rows = LogicalPlanBuilder::from(filter.input).project(made)?.filter(condition)?;
    rows.project(columns.into_iter().map(Expr::Column))?.build().map(Transformed::yes)
}

/// A column, as it is or cast, is a key already.
fn is_column(expr: &Expr) -> bool {
    match expr {
        Expr::Column(_) => true,
        Expr::Cast(cast) => matches!(cast.expr.as_ref(), Expr::Column(_)),
        _ => false,
    }
}
