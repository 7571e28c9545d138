//! Dates that become times, to the year 9999.
//!
//! Where a date stands beside a time, as in `coalesce(ended, DATE '9999-12-31')`, and where a function takes
//! times, DataFusion makes a time of nanoseconds of it, which ends in 2262. Here it becomes one of the kind
//! that it stands beside, and of microseconds for a function, before DataFusion looks at types.
//!
//! # Not here
//! Comparisons, which have types by then: `timestamps`.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Case, Expr, ExprSchemable, LogicalPlan, Projection, Union, cast};
use datafusion::optimizer::AnalyzerRule;

use crate::base::error::refuse;

/// The rule, which comes before DataFusion's own.
#[derive(Debug)]
pub(super) struct DatesAsTimes;

impl AnalyzerRule for DatesAsTimes {
    fn name(&self) -> &'static str {
        "dates_as_times"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let mended = plan.transform_up_with_subqueries(|node| {
            let node = match node {
                LogicalPlan::Union(union) => return one_kind(union),
                other => other,
            };
            let concerns = |expr: &Expr| expr.exists(|part| Ok(is_concerned(part)));
            let found = node.expressions().iter().map(concerns).collect::<Result<Vec<_>>>()?;
            if !found.contains(&true) {
                return Ok(Transformed::no(node));
            }
            let schema = merge_schema(&node.inputs());
            let names = NamePreserver::new(&node);
            node.map_expressions(|expr| {
                let name = names.save(&expr);
                let mended = expr.transform_up(|part| Ok(with_times(part, &schema)))?;
                Ok(mended.update_data(|expr| name.restore(expr)))
            })
        })?;
        if !mended.transformed {
            return Ok(mended.data);
        }
        let typed = |node: LogicalPlan| Ok(Transformed::yes(node.recompute_schema()?));
        mended.data.transform_up_with_subqueries(typed).data()
    }
}

fn is_concerned(expr: &Expr) -> bool {
    match expr {
        Expr::Case(_) => true,
        Expr::ScalarFunction(call) => takes_times(call.func.name()) || unites(call.func.name()),
        _ => false,
    }
}

/// Functions of times, which take dates for them.
fn takes_times(function: &str) -> bool {
    matches!(function, "date_trunc" | "date_bin")
}

/// Functions of values of one type.
fn unites(function: &str) -> bool {
    matches!(function, "coalesce" | "nvl" | "nvl2" | "greatest" | "least" | "make_array")
}

fn with_times(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    match expr {
        Expr::ScalarFunction(mut call) => {
            let changed = if takes_times(call.func.name()) {
                make_times(call.args.iter_mut(), Some(microseconds()), schema)
            } else if unites(call.func.name()) {
                make_times(call.args.iter_mut(), None, schema)
            } else {
                false
            };
            Transformed::new_transformed(Expr::ScalarFunction(call), changed)
        }
        Expr::Case(mut case) => {
            let Case { when_then_expr, else_expr, .. } = &mut case;
            let results = when_then_expr.iter_mut().map(|(_, then)| then.as_mut());
            let results = results.chain(else_expr.iter_mut().map(|value| value.as_mut()));
            let changed = make_times(results, None, schema);
            Transformed::new_transformed(Expr::Case(case), changed)
        }
        other => Transformed::no(other),
    }
}

fn microseconds() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, None)
}

fn is_date(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Date32 | DataType::Date64)
}

/// The time among these types that is of microseconds, if no other is of a finer kind.
fn time_among<'a>(types: impl IntoIterator<Item = &'a DataType>) -> Option<DataType> {
    let mut found = None;
    for data_type in types {
        match data_type {
            DataType::Timestamp(TimeUnit::Microsecond, _) => found = Some(data_type.clone()),
            DataType::Timestamp(..) => return None,
            _ => {}
        }
    }
    found
}

/// Makes times of the dates among `exprs`: of the type that is told, or that others of them have.
fn make_times<'a>(
    exprs: impl Iterator<Item = &'a mut Expr>,
    told: Option<DataType>,
    schema: &DFSchema,
) -> bool {
    let exprs: Vec<&mut Expr> = exprs.collect();
    let types: Vec<Option<DataType>> =
        exprs.iter().map(|expr| expr.get_type(schema).ok()).collect();
    let Some(time) = told.or_else(|| time_among(types.iter().flatten())) else { return false };
    let mut changed = false;
    for (expr, data_type) in exprs.into_iter().zip(&types) {
        if data_type.as_ref().is_some_and(is_date) {
            *expr = cast(expr.clone(), time.clone());
            changed = true;
        }
    }
    changed
}

/// The same of the columns of a UNION.
fn one_kind(union: Union) -> Result<Transformed<LogicalPlan>> {
    let width = union.schema.fields().len();
    // Its ORDER BY has asked for more of one of them.
    if union.inputs.iter().any(|input| input.schema().fields().len() != width) {
        return refuse!(
            InvalidColumnReference,
            "ORDER BY of a UNION may name the columns of its result only"
        );
    }
    let type_of = |input: &LogicalPlan, at: usize| input.schema().field(at).data_type().clone();
    let times: Vec<Option<DataType>> = (0..width)
        .map(|at| {
            let types: Vec<DataType> = union.inputs.iter().map(|i| type_of(i, at)).collect();
            time_among(&types).filter(|_| types.iter().any(is_date))
        })
        .collect();
    if times.iter().all(Option::is_none) {
        return Ok(Transformed::no(LogicalPlan::Union(union)));
    }
    let inputs = union.inputs.into_iter().map(|input| {
        let columns = input.schema().columns().into_iter().enumerate().map(|(at, column)| {
            let expr = Expr::Column(column.clone());
            match &times[at] {
                Some(time) if is_date(&type_of(&input, at)) => {
                    cast(expr, time.clone()).alias_qualified(column.relation, column.name)
                }
                _ => expr,
            }
        });
        let columns = columns.collect();
        Ok(Arc::new(LogicalPlan::Projection(Projection::try_new(columns, input)?)))
    });
    let union = Union::try_new_with_loose_types(inputs.collect::<Result<_>>()?)?;
    Ok(Transformed::yes(LogicalPlan::Union(union)))
}
