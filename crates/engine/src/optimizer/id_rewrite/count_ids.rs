//! `COUNT(DISTINCT user_id)` counts ids: four bytes a row in place of a string.
//!
//! # Invariants
//! - The answer, its type and its name are those of the statement as it was written.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, Projection};

use crate::functions::distinct_ids::distinct_ids;
use crate::mends::GROUP_KEY;
use crate::optimizer::id_rewrite::key_ids::with_ids;

/// The plan with ids counted in place of their keys, where tables have them.
pub(crate) fn count_ids(plan: LogicalPlan) -> Result<LogicalPlan> {
    let counted = plan.transform_up_with_subqueries(|node| match &node {
        // A plan that cannot be made is one that is not wanted: the statement's own is right.
        LogicalPlan::Aggregate(aggregate) => match counted(aggregate) {
            Ok(Some(plan)) => Ok(Transformed::yes(plan)),
            Ok(None) | Err(_) => Ok(Transformed::no(node)),
        },
        _ => Ok(Transformed::no(node)),
    })?;
    Ok(counted.data)
}

fn counted(aggregate: &Aggregate) -> Result<Option<LogicalPlan>> {
    let mut input = aggregate.input.as_ref().clone();
    let mut expressions = aggregate.aggr_expr.clone();
    let mut changed = false;
    for expr in &mut expressions {
        let Some((function, key)) = distinct_count(expr) else { continue };
        let Some(found) = with_ids(&input, key)? else { continue };
        let mut function = function.clone();
        function.params.args = vec![Expr::Column(found.ids)];
        function.func = Arc::new(distinct_ids());
        function.params.distinct = false;
        *expr = Expr::AggregateFunction(function);
        input = found.plan;
        changed = true;
    }
    if !changed {
        return Ok(None);
    }
    let is_key = |column: &Column| column.name.starts_with(GROUP_KEY);
    if aggregate.input.schema().columns().iter().any(is_key) {
        // What the keys of sets have become names the sets' column above, which is left out here.
        return Ok(None);
    }
    let groups = aggregate.group_expr.clone();
    let counted = Aggregate::try_new(Arc::new(input), groups, expressions)?;
    let named = |(new, old): (Column, Column)| match new == old {
        true => Expr::Column(new),
        false => Expr::Column(new).alias_qualified(old.relation, old.name),
    };
    let names = counted.schema.columns().into_iter().zip(aggregate.schema.columns());
    // DataFusion's analyzer takes grouping() and the column of grouping sets out of the aggregate; nothing
    // above names that column before.
    let is_internal = |column: &Column| column.name == Aggregate::INTERNAL_GROUPING_ID;
    let columns: Vec<Expr> = names.filter(|(new, _)| !is_internal(new)).map(named).collect();
    let counted = Arc::new(LogicalPlan::Aggregate(counted));
    Ok(Some(LogicalPlan::Projection(Projection::try_new(columns, counted)?)))
}

/// The function and the column of `count(DISTINCT column)`.
fn distinct_count(expr: &Expr) -> Option<(&AggregateFunction, &Column)> {
    let Expr::AggregateFunction(function) = expr else { return None };
    let counts = function.func.name() == "count"
        && function.params.distinct
        && function.params.order_by.is_empty();
    match function.params.args.as_slice() {
        [Expr::Column(column)] if counts => Some((function, column)),
        _ => None,
    }
}
