//! A subquery for a value is NULL where it has no row.
//!
//! DataFusion says that the value may be NULL only if the subquery's column may be. With an `x` that never is,
//! `SELECT (SELECT x FROM t WHERE false)` ended with an error, and `(SELECT …) IS NULL` was false.
//!
//! # Not here
//! Subqueries that look at the outer row: they become outer joins, which say so themselves.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, LogicalPlan, Operator, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Subquery, Volatility,
};
use datafusion::optimizer::AnalyzerRule;

/// The rule.
#[derive(Debug)]
pub(super) struct NullWithoutRows;

impl AnalyzerRule for NullWithoutRows {
    fn name(&self) -> &'static str {
        "null_without_rows"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let rewritten = plan.transform_up_with_subqueries(with_nulls)?;
        if !rewritten.transformed {
            return Ok(rewritten.data);
        }
        let known = |node: LogicalPlan| Ok(Transformed::yes(node.recompute_schema()?));
        rewritten.data.transform_up_with_subqueries(known).data()
    }
}

fn with_nulls(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    // `x = (SELECT …)` alone keeps no row for false and none for NULL, and stays plain for indexes.
    if let LogicalPlan::Filter(filter) = &node {
        let parts = split_conjunction(&filter.predicate);
        if parts.into_iter().all(|part| is_comparison(part) || !has_unsure(part)) {
            return Ok(Transformed::no(node));
        }
    }
    let names = NamePreserver::new(&node);
    node.map_expressions(|expr| {
        if !has_unsure(&expr) {
            return Ok(Transformed::no(expr));
        }
        let name = names.save(&expr);
        let rewritten = expr.transform_up(|part| match part {
            Expr::ScalarSubquery(subquery) if may_lack_row(&subquery) => {
                Ok(Transformed::yes(or_null().call(vec![Expr::ScalarSubquery(subquery)])))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(rewritten.update_data(|expr| name.restore(expr)))
    })
}

fn is_comparison(expr: &Expr) -> bool {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr else { return false };
    let is_plain = |side: &Expr| matches!(side, Expr::ScalarSubquery(_)) || !has_unsure(side);
    // IS DISTINCT FROM is never NULL.
    let is_null_of_null = matches!(
        op,
        Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq
    );
    is_null_of_null && is_plain(left) && is_plain(right)
}

fn has_unsure(expr: &Expr) -> bool {
    let is_unsure =
        |part: &Expr| Ok(matches!(part, Expr::ScalarSubquery(found) if may_lack_row(found)));
    expr.exists(is_unsure).unwrap_or_default()
}

/// May the subquery be NULL although its column never is?
fn may_lack_row(subquery: &Subquery) -> bool {
    let plan = subquery.subquery.as_ref();
    subquery.outer_ref_columns.is_empty()
        && !plan.schema().field(0).is_nullable()
        && !has_a_row(plan)
}

fn has_a_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => has_a_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => has_a_row(&alias.input),
        LogicalPlan::Sort(sort) => has_a_row(&sort.input),
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::EmptyRelation(relation) => relation.produce_one_row,
        LogicalPlan::Values(values) => !values.values.is_empty(),
        _ => false,
    }
}

fn one_of_any_type() -> Signature {
    Signature::any(1, Volatility::Immutable)
}

/// The function that says so of a value.
pub(super) fn or_null() -> ScalarUDF {
    ScalarUDF::from(OrNull { signature: one_of_any_type() })
}

/// A value as it is, of which it is said that it may be NULL.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OrNull {
    signature: Signature,
}

impl ScalarUDFImpl for OrNull {
    fn name(&self) -> &'static str {
        "or_null"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [one] => Ok(one.clone()),
            _ => internal_err!("or_null takes one value"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        match args.arg_fields {
            [one] => Ok(Arc::new(one.as_ref().clone().with_nullable(true))),
            _ => internal_err!("or_null takes one value"),
        }
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.pop() {
            Some(value) => Ok(value),
            None => internal_err!("or_null takes one value"),
        }
    }
}
