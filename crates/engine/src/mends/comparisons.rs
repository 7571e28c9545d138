//! Comparisons of a column with a constant, in the one form in which DataFusion compares them with each other.
//!
//! Of all conditions on one column that meet on their way down it keeps the strictest, or false if none can be
//! (`simplify_predicates`). It takes `x = 'a'` and `'a' = x`, which join conditions still are, for a
//! contradiction, and so `x = 0.0` and `x = -0.0`; and `x >= 5` for as strict as `5 < x`.

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, binary_expr};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// The rule, which comes before filters are pushed down.
#[derive(Debug)]
pub(super) struct ConstantsLast;

impl OptimizerRule for ConstantsLast {
    fn name(&self) -> &'static str {
        "constants_last"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(
        &self,
        mut plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let found = match &plan {
            LogicalPlan::Filter(filter) => rewritten(&filter.predicate),
            LogicalPlan::Join(join) => join.filter.as_ref().and_then(rewritten),
            _ => None,
        };
        let Some(found) = found else { return Ok(Transformed::no(plan)) };
        match &mut plan {
            LogicalPlan::Filter(filter) => filter.predicate = found,
            LogicalPlan::Join(join) => join.filter = Some(found),
            _ => {}
        }
        Ok(Transformed::yes(plan))
    }
}

/// The condition with its comparisons in that form; `None` if they all are.
fn rewritten(condition: &Expr) -> Option<Expr> {
    let parts = split_conjunction(condition);
    let found: Vec<Option<Expr>> = parts.iter().map(|part| in_order(part)).collect();
    found.iter().any(Option::is_some).then_some(())?;
    let all = parts.into_iter().zip(found);
    conjunction(all.map(|(part, found)| found.unwrap_or_else(|| part.clone())))
}

fn in_order(condition: &Expr) -> Option<Expr> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = condition else { return None };
    let swapped = op.swap()?;
    match (left.as_literal(), right.as_literal()) {
        (Some(value), None) => Some(binary_expr(
            right.as_ref().clone(),
            swapped,
            one_zero(value).unwrap_or_else(|| left.as_ref().clone()),
        )),
        (None, Some(value)) => Some(binary_expr(left.as_ref().clone(), *op, one_zero(value)?)),
        _ => None,
    }
}

/// 0 for -0.
fn one_zero(value: &ScalarValue) -> Option<Expr> {
    let zero = match value {
        ScalarValue::Float64(Some(x)) if *x == 0.0 && x.is_sign_negative() => {
            ScalarValue::Float64(Some(0.0))
        }
        ScalarValue::Float32(Some(x)) if *x == 0.0 && x.is_sign_negative() => {
            ScalarValue::Float32(Some(0.0))
        }
        _ => return None,
    };
    Some(Expr::Literal(zero, None))
}
