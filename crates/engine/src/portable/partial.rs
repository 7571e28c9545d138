//! Operators in two halves: what a part computes of one, and what makes the operator's rows of the parts'.

use std::sync::Arc;

use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{
    Aggregate, AggregateUDF, Expr, ExprSchemable, FetchType, Limit, LogicalPlan, Projection,
    SkipType, lit,
};

use crate::functions::halves::{Argument, merged, partial};
use crate::portable::columns::{Together, tells_apart};

/// Aggregates that are as they are, whatever the order in which states are merged, beside those of [`half`].
const MERGEABLE: [&str; 34] = [
    "sum",
    "avg",
    "bool_and",
    "bool_or",
    "bit_and",
    "bit_or",
    "bit_xor",
    "var",
    "var_pop",
    "var_samp",
    "var_population",
    "var_sample",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "covar",
    "covar_pop",
    "covar_samp",
    "corr",
    "regr_avgx",
    "regr_avgy",
    "regr_count",
    "regr_intercept",
    "regr_r2",
    "regr_slope",
    "regr_sxx",
    "regr_sxy",
    "regr_syy",
    "exact_sum",
    "approx_distinct",
    "bitmap_agg",
    "bitmap_union",
    "bitmap_union_count",
    "distinct_ids",
];

/// What makes the plan that was cut of the rows of its parts.
pub(crate) type Above = Box<dyn FnOnce(LogicalPlan) -> Result<LogicalPlan>>;

/// What a part computes of an operator over rows that are split, and what makes the operator's rows of the parts'.
/// `None` if there is no such thing. `together` is said of the rows below.
pub(crate) fn halves(
    plan: &LogicalPlan,
    together: &[Together],
) -> Result<Option<(LogicalPlan, Above)>> {
    match plan {
        LogicalPlan::Aggregate(aggregate) => aggregate_halves(aggregate, together),
        LogicalPlan::Sort(sort) if sort.fetch.is_some() => {
            let whole = sort.clone();
            let above: Above = Box::new(move |rows| {
                let mut sort = whole;
                sort.input = Arc::new(rows);
                Ok(LogicalPlan::Sort(sort))
            });
            Ok(Some((plan.clone(), above)))
        }
        LogicalPlan::Limit(limit) => {
            let (Ok(SkipType::Literal(skip)), Ok(FetchType::Literal(Some(fetch)))) =
                (limit.get_skip_type(), limit.get_fetch_type())
            else {
                return Ok(None);
            };
            let Ok(most) = i64::try_from(skip.saturating_add(fetch)) else { return Ok(None) };
            let half = Limit {
                skip: None,
                fetch: Some(Box::new(lit(most))),
                input: Arc::clone(&limit.input),
            };
            let whole = limit.clone();
            let above: Above = Box::new(move |rows| {
                Ok(LogicalPlan::Limit(Limit { input: Arc::new(rows), ..whole }))
            });
            Ok(Some((LogicalPlan::Limit(half), above)))
        }
        _ => Ok(None),
    }
}

pub(crate) fn aggregate_halves(
    aggregate: &Aggregate,
    together: &[Together],
) -> Result<Option<(LogicalPlan, Above)>> {
    let (mut below, mut above) = (Vec::new(), Vec::new());
    for (place, expr) in aggregate.aggr_expr.iter().enumerate() {
        let Some((part, merged)) = half(expr, &aggregate.input, together)? else { return Ok(None) };
        let name = format!("__part_{place}");
        below.push(Expr::AggregateFunction(part).alias(&name));
        above.push((merged, Column::new_unqualified(name)));
    }
    let (input, groups) = (Arc::clone(&aggregate.input), aggregate.group_expr.clone());
    let part = Aggregate::try_new(input, groups, below)?;
    let whole = aggregate.clone();
    let grouped: Vec<Column> =
        part.schema.columns().into_iter().take(part.schema.fields().len() - above.len()).collect();
    let above: Above = Box::new(move |rows| {
        let call = |(function, column): (AggregateUDF, Column)| function.call(vec![column.into()]);
        let functions = above.into_iter().map(call).collect();
        let groups = grouped.into_iter().map(Expr::Column).collect();
        let merged = Aggregate::try_new(Arc::new(rows), groups, functions)?;
        let named = |(new, old): (Column, Column)| match new == old {
            true => Expr::Column(new),
            false => Expr::Column(new).alias_qualified(old.relation, old.name),
        };
        let names = merged.schema.columns().into_iter().zip(whole.schema.columns());
        let columns = names.map(named).collect();
        let merged = Arc::new(LogicalPlan::Aggregate(merged));
        Ok(LogicalPlan::Projection(Projection::try_new(columns, merged)?))
    });
    Ok(Some((LogicalPlan::Aggregate(part), above)))
}

/// What a part computes of an aggregate, and what merges that; `None` if it is not known to be the same.
pub(crate) fn half(
    expr: &Expr,
    input: &LogicalPlan,
    together: &[Together],
) -> Result<Option<(AggregateFunction, AggregateUDF)>> {
    let Expr::AggregateFunction(function) = expr.clone().unalias() else { return Ok(None) };
    let params = &function.params;
    if !params.order_by.is_empty() || params.null_treatment.is_some() {
        return Ok(None);
    }
    let of_ids = |args: &[Expr]| match args {
        [only] => tells_apart(only, input.schema(), together),
        _ => false,
    };
    let mut arguments = Vec::new();
    for arg in &params.args {
        let field = arg.to_field(input.schema().as_ref())?.1;
        let value = match arg {
            Expr::Literal(value, _) => Some(value.clone()),
            _ => None,
        };
        arguments.push((field, value));
    }
    let count = || -> Vec<Argument> {
        let number = datafusion::arrow::datatypes::Field::new(
            "counted",
            datafusion::arrow::datatypes::DataType::Int64,
            true,
        );
        vec![(Arc::new(number), None)]
    };
    let merged = match function.func.name() {
        // Ids are in one part each.
        "count" if params.distinct && !of_ids(&params.args) => return Ok(None),
        "count" => merged(Arc::clone(&function.func), count(), false),
        "distinct_ids" if of_ids(&params.args) => {
            merged(datafusion::functions_aggregate::count::count_udaf(), count(), false)
        }
        "min" | "max" => merged(Arc::clone(&function.func), arguments, false),
        name if MERGEABLE.contains(&name) && !params.distinct => {
            let of = Arc::clone(&function.func);
            let mut part = function.clone();
            part.func = Arc::new(partial(Arc::clone(&of)));
            return Ok(Some((part, merged(of, arguments, true))));
        }
        _ => return Ok(None),
    };
    Ok(Some((function, merged)))
}
