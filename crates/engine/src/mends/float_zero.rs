//! 0.0 and -0.0 are one number.
//!
//! They are to `=`, GROUP BY and joins, but `count(DISTINCT x)`, lists of four and more after IN,
//! `CASE x WHEN` and `nullif` compare bits, and so do scans that a join tells which values it wants.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{
    AggregateFunction, Case, InList, InSubquery, ScalarFunction, WindowFunction,
};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, lit, when,
};
use datafusion::optimizer::AnalyzerRule;

use super::nan_sign::{has_floats, one_number};

/// What the value of a subquery is called: not like the column that it is computed from.
const VALUE: &str = "__one_value";

/// The rule, which comes when types are known.
#[derive(Debug)]
pub(super) struct OneZero;

impl AnalyzerRule for OneZero {
    fn name(&self) -> &'static str {
        "one_zero"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| {
            let mut schema = merge_schema(&node.inputs());
            if let LogicalPlan::TableScan(scan) = &node {
                schema.merge(&DFSchema::try_from_qualified_schema(
                    scan.table_name.clone(),
                    &scan.source.schema(),
                )?);
            }
            let names = NamePreserver::new(&node);
            let joins = matches!(node, LogicalPlan::Join(_));
            node.map_expressions(|expr| {
                let name = names.save(&expr);
                let rewritten = expr.transform_up(|part| one_zero(part, joins, &schema))?;
                Ok(rewritten.update_data(|expr| name.restore(expr)))
            })
        })
        .data()
    }
}

/// `joins`: what is equal is looked up.
fn one_zero(expr: Expr, joins: bool, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let is_float = |expr: &Expr| expr.get_type(schema).is_ok_and(|found| has_floats(&found));
    Ok(match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right })
            if (joins || left.contains_outer() || right.contains_outer())
                && is_column(&left)
                && is_column(&right)
                && is_float(&left) =>
        {
            let mut sides = [*left, *right];
            make_one(&mut sides, is_float);
            let [left, right] = sides;
            Transformed::yes(left.eq(right))
        }
        Expr::InSubquery(InSubquery { expr, mut subquery, negated }) if is_float(&expr) => {
            let expr = one_number(*expr);
            let value = subquery.subquery.schema().columns().remove(0);
            let value = one_number(Expr::Column(value));
            let set = LogicalPlanBuilder::from(subquery.subquery.as_ref().clone());
            subquery.subquery = Arc::new(set.project(vec![value.alias(VALUE)])?.build()?);
            Transformed::yes(Expr::InSubquery(InSubquery {
                expr: Box::new(expr),
                subquery,
                negated,
            }))
        }
        Expr::AggregateFunction(mut function) if function.params.distinct => {
            let changed = make_one(&mut function.params.args, is_float);
            // What it is ordered by is one of them.
            function.params.order_by.iter_mut().for_each(|key| {
                make_one(std::slice::from_mut(&mut key.expr), is_float);
            });
            let AggregateFunction { func, params } = function;
            let function = Expr::AggregateFunction(AggregateFunction { func, params });
            if changed { Transformed::yes(function) } else { Transformed::no(function) }
        }
        Expr::WindowFunction(mut function) if function.params.distinct => {
            let changed = make_one(&mut function.params.args, is_float);
            let WindowFunction { fun, params } = *function;
            let function = Expr::from(WindowFunction { fun, params });
            if changed { Transformed::yes(function) } else { Transformed::no(function) }
        }
        Expr::InList(InList { expr, mut list, negated }) => {
            let zero = list.iter().find(|value| is_zero(value)).cloned();
            let both = zero.filter(|_| is_float(&expr));
            let changed = both.is_some();
            if let Some(zero) = both {
                list.push(Expr::Negative(Box::new(zero)));
            }
            let list = Expr::InList(InList { expr, list, negated });
            if changed { Transformed::yes(list) } else { Transformed::no(list) }
        }
        Expr::Case(Case { expr: Some(value), when_then_expr, else_expr }) if is_float(&value) => {
            let searched = when_then_expr.into_iter().map(|(same, then)| {
                let condition = value.as_ref().clone().eq(*same);
                (Box::new(condition), then)
            });
            let when_then_expr = searched.collect();
            Transformed::yes(Expr::Case(Case { expr: None, when_then_expr, else_expr }))
        }
        Expr::ScalarFunction(ScalarFunction { func, args }) if func.name() == "nullif" => {
            match args.as_slice() {
                [left, right] if is_float(left) => {
                    let null = lit(ScalarValue::try_new_null(&left.get_type(schema)?)?);
                    let same = left.clone().eq(right.clone());
                    Transformed::yes(when(same, null).otherwise(left.clone())?)
                }
                _ => Transformed::no(Expr::ScalarFunction(ScalarFunction { func, args })),
            }
        }
        other => Transformed::no(other),
    })
}

/// A column, as it is or cast. Fields of structs become columns only later, under other names.
fn is_column(expr: &Expr) -> bool {
    match expr {
        Expr::Column(_) | Expr::OuterReferenceColumn(..) => true,
        Expr::Cast(cast) => is_column(&cast.expr),
        _ => false,
    }
}

fn make_one(args: &mut [Expr], is_float: impl Fn(&Expr) -> bool) -> bool {
    let mut changed = false;
    for arg in args {
        if is_float(arg) {
            *arg = one_number(arg.clone());
            changed = true;
        }
    }
    changed
}

fn is_zero(expr: &Expr) -> bool {
    let Expr::Literal(value, _) = expr else { return false };
    match value {
        ScalarValue::Float16(Some(x)) => f32::from(*x) == 0.0,
        ScalarValue::Float32(Some(x)) => *x == 0.0,
        ScalarValue::Float64(Some(x)) => *x == 0.0,
        _ => false,
    }
}
