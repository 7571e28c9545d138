//! Conditions that must not go below an aggregate.
//!
//! DataFusion pushes a condition below an aggregate if all of its columns are grouped by, and so one
//! without columns, too: `SELECT count(*) FROM t HAVING (SELECT max(x) FROM t) > 100` then counted no rows
//! and answered 0 in place of no row, and `HAVING random() < 0.5` left out rows in place of groups. A
//! condition on the way down has its columns replaced by what they are made of, so that one of constant
//! columns ends without any: `SELECT 0 FROM (SELECT 5 AS c, max(x) FROM t) q WHERE q.c = 7`. So do two that
//! contradict each other when they meet: `c = 3` and `c = 0` are false. No filter passes a LIMIT: it is the
//! fence.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Expr, Join, Limit, LogicalPlan, Operator, lit,
};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// The rule, which comes before filters are pushed down.
#[derive(Debug)]
pub(super) struct Fences;

impl OptimizerRule for Fences {
    fn name(&self) -> &'static str {
        "fences"
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let (mut asked, mut volatile, mut equalities) = (false, false, 0);
        plan.apply_with_subqueries(|node| {
            match node {
                LogicalPlan::Filter(filter) => {
                    for part in split_conjunction(&filter.predicate) {
                        volatile |= part.is_volatile();
                        asked |= part.is_volatile() || asks_once(part)?;
                    }
                    asked = asked || becomes_constant(&filter.predicate, &filter.input);
                    equalities += equalities_above_total(&filter.predicate, &[&filter.input]);
                }
                LogicalPlan::Join(Join { left, right, filter: Some(condition), .. }) => {
                    asked = asked
                        || becomes_constant(condition, left)
                        || becomes_constant(condition, right);
                    equalities += equalities_above_total(condition, &[left, right]);
                }
                _ => {}
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        if !asked && equalities < 2 {
            return Ok(Transformed::no(plan));
        }
        plan.transform_up_with_subqueries(|node| {
            let most = match &node {
                LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => 1,
                LogicalPlan::Aggregate(aggregate) if volatile || has_total(aggregate) => i64::MAX,
                LogicalPlan::Window(_) | LogicalPlan::Distinct(_) if volatile => i64::MAX,
                LogicalPlan::Limit(limit) => return Ok(without_second_fence(limit, node.clone())),
                _ => return Ok(Transformed::no(node)),
            };
            let fetch = Some(Box::new(lit(most)));
            let fence = Limit { skip: None, fetch, input: Arc::new(node) };
            Ok(Transformed::yes(LogicalPlan::Limit(fence)))
        })
    }
}

/// Does a condition ask a subquery, and no column?
fn asks_once(condition: &Expr) -> Result<bool> {
    let asks = condition.exists(|part| Ok(matches!(part, Expr::ScalarSubquery(_))))?;
    Ok(asks && condition.column_refs().is_empty())
}

/// How many parts of the condition ask for one value, above an aggregate that has a row of no rows.
fn equalities_above_total(condition: &Expr, inputs: &[&LogicalPlan]) -> usize {
    let asks_for_one = |part: &&Expr| match part {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
            left.column_refs().is_empty() != right.column_refs().is_empty()
        }
        _ => false,
    };
    let found = split_conjunction(condition).into_iter().filter(asks_for_one).count();
    if found > 0 && inputs.iter().any(|input| constants(input).is_some()) { found } else { 0 }
}

/// Would a part of the condition have no column left above an aggregate that has a row of no rows?
fn becomes_constant(condition: &Expr, input: &LogicalPlan) -> bool {
    let Some(constants) = constants(input) else { return false };
    split_conjunction(condition)
        .into_iter()
        .any(|part| !part.contains_outer() && is_constant(part, input.schema(), &constants))
}

/// Which columns of the plan are constant all the way down to an aggregate that has a row of no rows;
/// `None` if conditions meet no such aggregate.
fn constants(plan: &LogicalPlan) -> Option<Vec<bool>> {
    let width = plan.schema().fields().len();
    match plan {
        // No condition passes it.
        LogicalPlan::Limit(_) => None,
        LogicalPlan::Aggregate(aggregate) => {
            if aggregate.group_expr.is_empty() || has_total(aggregate) {
                return Some(vec![false; width]);
            }
            let below = constants(&aggregate.input)?;
            let schema = aggregate.input.schema();
            let mut known: Vec<bool> =
                aggregate.group_expr.iter().map(|expr| is_constant(expr, schema, &below)).collect();
            known.resize(width, false);
            Some(known)
        }
        LogicalPlan::Projection(projection) => {
            let below = constants(&projection.input)?;
            let schema = projection.input.schema();
            Some(projection.expr.iter().map(|expr| is_constant(expr, schema, &below)).collect())
        }
        LogicalPlan::SubqueryAlias(alias) => constants(&alias.input),
        LogicalPlan::Union(union) => {
            let branches = union.inputs.iter().filter_map(|input| constants(input));
            branches.reduce(|a, b| a.into_iter().zip(b).map(|(a, b)| a || b).collect())
        }
        // Columns keep their names.
        other => {
            let inputs = other.inputs().into_iter();
            let inputs: Vec<_> =
                inputs.filter_map(|input| Some((input.schema(), constants(input)?))).collect();
            let is_known = |column: &Column| {
                inputs.iter().any(|(schema, known)| is_known(column, schema, known))
            };
            (!inputs.is_empty()).then(|| other.schema().columns().iter().map(is_known).collect())
        }
    }
}

fn is_constant(expr: &Expr, schema: &DFSchema, known: &[bool]) -> bool {
    !expr.is_volatile() && expr.column_refs().iter().all(|column| is_known(column, schema, known))
}

fn is_known(column: &Column, schema: &DFSchema, known: &[bool]) -> bool {
    let place = schema.maybe_index_of_column(column);
    place.and_then(|place| known.get(place)).is_some_and(|known| *known)
}

/// Is there a group of all rows beside the others?
fn has_total(aggregate: &Aggregate) -> bool {
    aggregate.group_expr.iter().any(|expr| matches!(expr, Expr::GroupingSet(_)))
}

/// The optimizer comes by several times: the fence that was there is enough.
fn without_second_fence(limit: &Limit, node: LogicalPlan) -> Transformed<LogicalPlan> {
    match limit.input.as_ref() {
        LogicalPlan::Limit(below) if (&below.skip, &below.fetch) == (&limit.skip, &limit.fetch) => {
            Transformed::yes(limit.input.as_ref().clone())
        }
        _ => Transformed::no(node),
    }
}
