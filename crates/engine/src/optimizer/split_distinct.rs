//! `count(DISTINCT a), count(DISTINCT b)` of all rows as one aggregate each, beside each other.
//!
//! DataFusion makes a GROUP BY of an aggregate whose DISTINCT are of one expression: its values are spread over
//! the threads and can spill. Several have a set each on every thread, which cannot, and takes three times what
//! it says it does. A table's columns are read once all the same: each scan has those that it counts.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams};
use datafusion::logical_expr::{
    Aggregate, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, when,
};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// The rule.
#[derive(Debug)]
pub(crate) struct SplitDistinct;

impl OptimizerRule for SplitDistinct {
    fn name(&self) -> &'static str {
        "split_distinct"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let split = match &plan {
            LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => {
                split(aggregate)?
            }
            _ => None,
        };
        Ok(split.map_or_else(|| Transformed::no(plan), Transformed::yes))
    }
}

/// `None` if it is one already.
fn split(aggregate: &Aggregate) -> Result<Option<LogicalPlan>> {
    // By what is counted: the count, and the columns that it is.
    let mut counted: Vec<(Expr, Expr, Vec<&str>)> = Vec::new();
    let (mut others, mut other_names) = (Vec::new(), Vec::new());
    for (expr, field) in aggregate.aggr_expr.iter().zip(aggregate.schema.fields()) {
        match counted_values(expr, aggregate)? {
            Some(values) => match counted.iter_mut().find(|(of, ..)| *of == values) {
                Some((_, _, names)) => names.push(field.name()),
                None => {
                    let count = of_values(expr.clone(), &values);
                    counted.push((values, count, vec![field.name()]));
                }
            },
            None => {
                others.push(expr.clone());
                other_names.push(field.name().as_str());
            }
        }
    }
    let is_split = counted.len() > 1 || counted.len() == 1 && others.iter().any(|e| !joins_one(e));
    if !is_split || !can_be_read_again(&aggregate.input) {
        return Ok(None);
    }
    let of_input = |exprs: Vec<Expr>| {
        let input = LogicalPlanBuilder::from(Arc::clone(&aggregate.input));
        input.aggregate(Vec::<Expr>::new(), exprs)
    };
    let mut parts = Vec::new();
    for (_, count, names) in counted {
        let computed = count.schema_name().to_string();
        let named = names.into_iter().map(|name| column(&computed).alias(name));
        parts.push(of_input(vec![count])?.project(named.collect::<Vec<_>>())?);
    }
    if !others.is_empty() {
        let named = other_names.into_iter().map(column);
        parts.push(of_input(others)?.project(named.collect::<Vec<_>>())?);
    }
    let mut parts = parts.into_iter();
    let Some(mut joined) = parts.next() else { return Ok(None) };
    for part in parts {
        joined = joined.cross_join(part.build()?)?;
    }
    let names = aggregate.schema.fields().iter().map(|field| column(field.name()));
    joined.project(names.collect::<Vec<_>>())?.build().map(Some)
}

/// What a count of different values counts, NULL where its FILTER leaves a row out; `None` for other aggregates, and
/// for types of so few values that a set of them is small.
fn counted_values(expr: &Expr, aggregate: &Aggregate) -> Result<Option<Expr>> {
    let Expr::AggregateFunction(AggregateFunction { func, params }) = expr else { return Ok(None) };
    let AggregateFunctionParams { args, distinct: true, filter, order_by, .. } = params else {
        return Ok(None);
    };
    let ("count", [value], true) = (func.name(), args.as_slice(), order_by.is_empty()) else {
        return Ok(None);
    };
    let few = match value.get_type(aggregate.input.schema())? {
        DataType::Boolean | DataType::Null => true,
        other => other.is_integer() && other.primitive_width().is_some_and(|bytes| bytes < 4),
    };
    if few || value.is_volatile() {
        return Ok(None);
    }
    Ok(Some(match filter {
        Some(filter) => when(filter.as_ref().clone(), value.clone()).end()?,
        None => value.clone(),
    }))
}

/// The count of those values.
fn of_values(expr: Expr, values: &Expr) -> Expr {
    match expr {
        Expr::AggregateFunction(AggregateFunction { func, mut params }) => {
            params.args = vec![values.clone()];
            params.filter = None;
            Expr::AggregateFunction(AggregateFunction { func, params })
        }
        other => other,
    }
}

/// Does DataFusion's rule take the aggregate beside a count of different values?
fn joins_one(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::AggregateFunction(AggregateFunction { func, params })
            if matches!(func.name(), "sum" | "min" | "max")
                && !params.distinct && params.filter.is_none() && params.order_by.is_empty()
    )
}

/// The same rows each time, for little more than reading columns.
fn can_be_read_again(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::TableScan(_) => true,
        LogicalPlan::SubqueryAlias(alias) => can_be_read_again(&alias.input),
        LogicalPlan::Projection(projection) => {
            !projection.expr.iter().any(Expr::is_volatile) && can_be_read_again(&projection.input)
        }
        LogicalPlan::Filter(filter) => {
            !filter.predicate.is_volatile() && can_be_read_again(&filter.input)
        }
        _ => false,
    }
}

fn column(name: &str) -> Expr {
    Expr::Column(Column::new_unqualified(name))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::util::pretty::pretty_format_batches;

    use crate::engine::session::for_tests;

    #[test]
    fn several_counts_of_different_values_are_those_of_each_alone() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let session = for_tests(folder.path(), true);
        let query = |text: &str| runtime.block_on(session.query(text)).unwrap();
        query(
            "CREATE TABLE t AS SELECT value % 7 AS a, CASE WHEN value % 3 > 0 THEN concat('x', value % 11) END AS b, \
             value FROM generate_series(1, 5000) AS s(value)",
        );
        for from in ["t", "t WHERE a > 100", "(SELECT a, b, value + 0.5 AS value FROM t) t"] {
            let all = [
                "count(DISTINCT a)",
                "count(DISTINCT b)",
                "count(DISTINCT a) FILTER (WHERE b = 'x4')",
                "count(DISTINCT CASE WHEN b = 'x4' THEN a END)",
                "count(*)",
                "avg(value)",
                "min(b)",
            ];
            let together = query(&format!("SELECT {} FROM {from}", all.join(", ")));
            let each = all.map(|one| format!("(SELECT {one} FROM {from}) AS \"{one}\""));
            let alone = query(&format!("SELECT {}", each.join(", ")));
            let values = |rows| {
                let text = pretty_format_batches(rows).unwrap().to_string();
                text.lines()
                    .nth(3)
                    .unwrap()
                    .split_whitespace()
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            };
            assert_eq!(values(&together), values(&alone), "{from}");
            let plan = query(&format!("EXPLAIN SELECT {} FROM {from}", all.join(", ")));
            let plan = pretty_format_batches(&plan).unwrap().to_string();
            assert!(plan.contains("Cross"), "{plan}");
        }
    }
}
