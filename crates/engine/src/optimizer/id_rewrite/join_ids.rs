//! Joins, groups and windows by keys use ids.
//!
//! `SELECT user_id, count(*) FROM events GROUP BY user_id` groups by `__id_user_id` and looks the keys
//! of the groups up, and `a JOIN b ON a.user_id = b.user_id` compares ids, if those of both are from
//! one log; windows: see [`window_ids`](crate::optimizer::id_rewrite::window_ids). The optimizer's other rules then find that the keys need not be read, and that keys which
//! nobody looks at need not be looked up.
//!
//! # Invariants
//! - The plan's rows, columns and names do not change.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{NullEquality, Result};
use datafusion::logical_expr::logical_plan::builder::project;
use datafusion::logical_expr::{Aggregate, Expr, Join, LogicalPlan, Projection};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::optimizer::id_rewrite::key_ids::with_ids;
use crate::optimizer::id_rewrite::window_ids::windowed;

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
                LogicalPlan::Aggregate(aggregate) => grouped(aggregate),
                LogicalPlan::Window(window) => windowed(window),
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

/// The aggregate grouping by ids, with the keys that go with them.
fn grouped(aggregate: &Aggregate) -> Result<Option<LogicalPlan>> {
    for (position, key) in aggregate.schema.columns().iter().enumerate() {
        if position == aggregate.group_expr.len() {
            break;
        }
        let Some(found) = with_ids(&LogicalPlan::Aggregate(aggregate.clone()), key)? else {
            continue;
        };
        // Without the ids, which nobody above knows.
        let columns = aggregate.schema.columns().into_iter().map(Expr::Column);
        return Ok(Some(project(found.plan, columns)?));
    }
    Ok(None)
}
