//! Joins and groups by keys that nobody looks at use ids.
//!
//! `SELECT avg(n) FROM (SELECT count(*) AS n FROM events GROUP BY user_id)` groups by
//! `__id_user_id`, and `a JOIN b ON a.user_id = b.user_id` compares ids, if those of both are from one
//! log. The optimizer's other rules then find that the keys need not be read.
//!
//! # Invariants
//! - The plan's rows, columns and names do not change.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, NullEquality, Result};
use datafusion::logical_expr::{Aggregate, Expr, Join, LogicalPlan, Projection};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::key_ids::with_ids;

/// The rule. It comes last: by then unneeded columns are out of the plan.
#[derive(Debug, Default)]
pub(crate) struct JoinIds;

impl OptimizerRule for JoinIds {
    fn name(&self) -> &str {
        "join_ids"
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        plan.transform_up_with_subqueries(|node| {
            let better = match &node {
                LogicalPlan::Join(join) => joined(join),
                LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_) => grouped(&node),
                _ => Ok(None),
            };
            // A plan that cannot be made is one that is not wanted: the one there is right.
            Ok(better.ok().flatten().map_or_else(|| Transformed::no(node), Transformed::yes))
        })
    }
}

/// The join with ids compared in place of keys.
fn joined(join: &Join) -> Result<Option<LogicalPlan>> {
    let (mut left, mut right) = (join.left.as_ref().clone(), join.right.as_ref().clone());
    let mut on = join.on.clone();
    let mut changed = false;
    if join.null_equality != NullEquality::NullEqualsNothing {
        return Ok(None);
    }
    for pair in &mut on {
        let (Expr::Column(l), Expr::Column(r)) = (&pair.0, &pair.1) else { continue };
        let (Some(l), Some(r)) = (with_ids(&left, l)?, with_ids(&right, r)?) else { continue };
        if l.source == r.source {
            *pair = (Expr::Column(l.ids), Expr::Column(r.ids));
            (left, right) = (l.plan, r.plan);
            changed = true;
        }
    }
    if !changed {
        return Ok(None);
    }
    let with_ids = Join::try_new(
        Arc::new(left),
        Arc::new(right),
        on,
        join.filter.clone(),
        join.join_type,
        join.join_constraint,
        join.null_equality,
        join.null_aware,
    )?;
    let columns: Vec<Expr> = join.schema.columns().into_iter().map(Expr::Column).collect();
    let with_ids = Arc::new(LogicalPlan::Join(with_ids));
    Ok(Some(LogicalPlan::Projection(Projection::try_new(columns, with_ids)?)))
}

/// `node` over groups by ids, if it is over groups by keys that it does not look at.
fn grouped(node: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    let [LogicalPlan::Aggregate(below)] = node.inputs()[..] else { return Ok(None) };
    let mut used: HashSet<Column> = HashSet::new();
    for expr in node.expressions() {
        used.extend(expr.column_refs().into_iter().cloned());
    }
    let mut input = below.input.as_ref().clone();
    let mut groups = below.group_expr.clone();
    let mut changed = false;
    for (group, name) in groups.iter_mut().zip(below.schema.columns()) {
        let Expr::Column(key) = group else { continue };
        if used.contains(&name) {
            continue;
        }
        let Some(found) = with_ids(&input, key)? else { continue };
        *group = Expr::Column(found.ids);
        input = found.plan;
        changed = true;
    }
    if !changed {
        return Ok(None);
    }
    let by_ids = Aggregate::try_new(Arc::new(input), groups, below.aggr_expr.clone())?;
    let by_ids = LogicalPlan::Aggregate(by_ids);
    Ok(Some(node.with_new_exprs(node.expressions(), vec![by_ids])?))
}
