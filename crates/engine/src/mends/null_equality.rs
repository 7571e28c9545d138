//! `=` beside IS NOT DISTINCT FROM.
//!
//! A join has keys, and says once for all of them whether NULL equals NULL. DataFusion forgets it twice, and
//! `=` was true of two NULLs, or IS NOT DISTINCT FROM was not:
//!
//! - `eliminate_cross_join` makes one list of the keys of inner joins upon each other and of the `=` in a
//!   condition above, and gives all of them what the uppermost join says. [`JoinsApart`] puts a projection
//!   between, which goes when it has passed.
//! - `extract_equijoin_predicate` adds an `=` to the keys of whatever join it was pushed into.
//!   [`KeysOfOneKind`] makes keys of IS NOT DISTINCT FROM conditions again, so that `=` alone are keys.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{JoinType, NullEquality, Result};
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{
    BinaryExpr, Expr, Join, LogicalPlan, Operator, Projection, binary_expr,
};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// The rule that comes before keys are taken from conditions.
#[derive(Debug)]
pub(super) struct KeysOfOneKind;

impl OptimizerRule for KeysOfOneKind {
    fn name(&self) -> &'static str {
        "keys_of_one_kind"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Join(mut join) = plan else { return Ok(Transformed::no(plan)) };
        let takes_nulls = join.null_equality == NullEquality::NullEqualsNull && !join.null_aware;
        if !takes_nulls || !(join.on.is_empty() || has_equality(&join)) {
            return Ok(Transformed::no(LogicalPlan::Join(join)));
        }
        let keys = std::mem::take(&mut join.on).into_iter();
        let keys = keys.map(|(left, right)| binary_expr(left, Operator::IsNotDistinctFrom, right));
        join.filter = conjunction(keys.chain(join.filter.take()));
        join.null_equality = NullEquality::NullEqualsNothing;
        Ok(Transformed::yes(LogicalPlan::Join(join)))
    }
}

/// Has the join a condition that could become a key?
fn has_equality(join: &Join) -> bool {
    let is_equality =
        |part: &&Expr| matches!(part, Expr::BinaryExpr(BinaryExpr { op: Operator::Eq, .. }));
    join.filter.as_ref().is_some_and(|filter| split_conjunction(filter).iter().any(is_equality))
}

/// The rule that comes before inner joins are put in another order.
#[derive(Debug)]
pub(super) struct JoinsApart;

impl OptimizerRule for JoinsApart {
    fn name(&self) -> &'static str {
        "joins_apart"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Filter(mut filter)
                if inner_join(&filter.input) == Some(NullEquality::NullEqualsNull) =>
            {
                filter.input = apart(filter.input);
                Ok(Transformed::yes(LogicalPlan::Filter(filter)))
            }
            LogicalPlan::Join(mut join) if join.join_type == JoinType::Inner => {
                let here = join.null_equality;
                let differs = |side: &LogicalPlan| inner_join(side).is_some_and(|it| it != here);
                let (left, right) = (differs(&join.left), differs(&join.right));
                if left {
                    join.left = apart(join.left);
                }
                if right {
                    join.right = apart(join.right);
                }
                Ok(Transformed::new_transformed(LogicalPlan::Join(join), left || right))
            }
            other => Ok(Transformed::no(other)),
        }
    }
}

/// What an inner join says of NULLs.
fn inner_join(plan: &LogicalPlan) -> Option<NullEquality> {
    match plan {
        LogicalPlan::Join(join) if join.join_type == JoinType::Inner => Some(join.null_equality),
        _ => None,
    }
}

fn apart(plan: Arc<LogicalPlan>) -> Arc<LogicalPlan> {
    let schema = Arc::clone(plan.schema());
    Arc::new(LogicalPlan::Projection(Projection::new_from_schema(plan, schema)))
}
