//! Conditions on one value, where that is NULL.
//!
//! DataFusion merges `x IN (1, 2) AND x IN (3, 4)` to false and `x NOT IN (1, 2) OR x NOT IN (3, 4)` to true,
//! which they are not where x is NULL, and loses a NULL that stands in one of the lists. So the NULL is written
//! out; of what WHERE asks for only where true is wrong, because false is as good as NULL there:
//!
//! ```text
//! x IN (1, NULL)                     x IN (1) OR NULL
//! x IN (1, 2) AND x IN (3, 4)        (x IN (1, 2) AND x IN (3, 4)) OR (x IS NULL AND NULL)
//! x <> 1 OR x NOT IN (3, 4)          (x <> 1 OR x NOT IN (3, 4)) AND (x IS NOT NULL OR NULL)
//! WHERE x <> 1 OR x NOT IN (3, 4)    (x <> 1 OR x NOT IN (3, 4)) AND x IS NOT NULL
//! ```

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{merge_schema, split_binary};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, lit};
use datafusion::optimizer::AnalyzerRule;

use super::truth::rewrite_parts;

/// The rule.
#[derive(Debug)]
pub(super) struct NullsInLists;

impl AnalyzerRule for NullsInLists {
    fn name(&self) -> &'static str {
        "nulls_in_lists"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| {
            let tests = |expr: &Expr| Ok(matches!(expr, Expr::InList(_) | Expr::BinaryExpr(_)));
            let expressions = node.expressions();
            let found = expressions.iter().map(|expr| expr.exists(tests));
            if !found.collect::<Result<Vec<_>>>()?.contains(&true) {
                return Ok(Transformed::no(node));
            }
            let schema = merge_schema(&node.inputs());
            let says_truth = matches!(node, LogicalPlan::Filter(_) | LogicalPlan::Join(_));
            let names = NamePreserver::new(&node);
            node.map_expressions(|expr| {
                let name = names.save(&expr);
                let rewritten = with_nulls(expr, says_truth, &schema)?;
                Ok(Transformed::yes(name.restore(rewritten)))
            })
        })
        .data()
    }
}

fn with_nulls(expr: Expr, truth: bool, schema: &DFSchema) -> Result<Expr> {
    rewrite_parts(expr, truth, &|part, truth| match part {
        Expr::InList(list) => Ok(nulls_apart(list)),
        Expr::BinaryExpr(BinaryExpr { op: Operator::And, .. }) if truth => Ok(None),
        Expr::BinaryExpr(BinaryExpr { op: op @ (Operator::And | Operator::Or), .. }) => {
            merged_apart(part, *op, truth, schema)
        }
        _ => Ok(None),
    })
}

fn null() -> Expr {
    lit(ScalarValue::Boolean(None))
}

/// The literal that a value is, or is cast from: types were made alike before.
fn literal(value: &Expr) -> Option<&ScalarValue> {
    match value {
        Expr::Literal(value, _) => Some(value),
        Expr::Cast(cast) => literal(&cast.expr),
        Expr::TryCast(cast) => literal(&cast.expr),
        _ => None,
    }
}

/// The list without its NULLs, which are told by themselves.
fn nulls_apart(list: &InList) -> Option<Expr> {
    let is_null = |value: &Expr| literal(value).is_some_and(ScalarValue::is_null);
    let values: Vec<Expr> = list.list.iter().filter(|value| !is_null(value)).cloned().collect();
    if values.len() == list.list.len() {
        return None;
    }
    if values.is_empty() {
        return Some(null());
    }
    let rest = Expr::InList(InList { list: values, ..list.clone() });
    Some(if list.negated { rest.and(null()) } else { rest.or(null()) })
}

/// The operands of AND or OR with those together that ask the same value, and what they are if it is NULL.
fn merged_apart(expr: &Expr, op: Operator, truth: bool, schema: &DFSchema) -> Result<Option<Expr>> {
    let operands = split_binary(expr, op);
    let asked: Vec<Option<&Expr>> = operands.iter().map(|operand| asked_value(operand)).collect();
    let several = |value: &Expr| asked.iter().filter(|other| **other == Some(value)).count() > 1;
    if !asked.iter().flatten().any(|value| several(value)) {
        return Ok(None);
    }
    let join = |left: Expr, right: Expr| match op {
        Operator::And => left.and(right),
        _ => left.or(right),
    };
    let (mut done, mut parts): (Vec<&Expr>, Vec<Expr>) = (Vec::new(), Vec::new());
    for (operand, value) in operands.iter().zip(&asked) {
        let together = value.filter(|value| several(value));
        let Some(value) = together else {
            parts.push(with_nulls((*operand).clone(), truth, schema)?);
            continue;
        };
        if done.contains(&value) {
            continue;
        }
        done.push(value);
        let same = operands.iter().zip(&asked).filter(|(_, other)| **other == Some(value));
        let same = same.map(|(operand, _)| (*operand).clone()).reduce(join);
        let Some(same) = same else { continue };
        parts.push(match (value.nullable(schema)?, op) {
            (false, _) => same,
            (true, Operator::And) => same.or(value.clone().is_null().and(null())),
            (true, _) if truth && !denies(&same) => same,
            (true, _) if truth => same.and(value.clone().is_not_null()),
            (true, _) => same.and(value.clone().is_not_null().or(null())),
        });
    }
    Ok(parts.into_iter().reduce(join))
}

/// Is one of the conditions that a value is *not* something?
fn denies(condition: &Expr) -> bool {
    match condition {
        Expr::InList(list) => list.negated,
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And | Operator::Or, right }) => {
            denies(left) || denies(right)
        }
        Expr::BinaryExpr(BinaryExpr { op, .. }) => *op == Operator::NotEq,
        _ => true,
    }
}

/// The value that a condition compares with literals, and with nothing else.
fn asked_value(condition: &Expr) -> Option<&Expr> {
    let is_literal = |expr: &Expr| literal(expr).is_some_and(|value| !value.is_null());
    match condition {
        Expr::InList(list) if list.list.iter().all(is_literal) => Some(&list.expr),
        Expr::Not(inner) => asked_value(inner),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq | Operator::NotEq, right }) => {
            match (is_literal(left), is_literal(right)) {
                (false, true) => Some(left),
                (true, false) => Some(right),
                _ => None,
            }
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And | Operator::Or, right }) => {
            let value = asked_value(left)?;
            (asked_value(right)? == value).then_some(value)
        }
        _ => None,
    }
}
