//! The ORDER BY of an aggregate, where DataFusion does not heed it or stumbles over it.
//!
//! - The same key twice, `array_agg(x ORDER BY y, y)`, is one key to what sorts and two to what describes the
//!   state of a group: it panics, or rows are wrong.
//! - `any_value(x ORDER BY y)` forgets the order; it is the first value in it that is not NULL.
//! - `array_agg(DISTINCT x ORDER BY x)` beside an aggregate in the opposite order comes in that one: DataFusion
//!   turns it round to sort once. It sorts by itself, so it asks for no order ([`InItsOrder`]).

use std::sync::Arc;

use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::logical_expr::expr::{AggregateFunction, NullTreatment};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{AggregateUDF, AggregateUDFImpl, Expr, LogicalPlan, SortExpr};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use super::as_before::aggregate_as_before;

/// The rule, which comes when expressions are as simple as they get: keys may be the same only then.
#[derive(Debug)]
pub(super) struct AggregateOrder;

impl OptimizerRule for AggregateOrder {
    fn name(&self) -> &'static str {
        "aggregate_order"
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        plan.transform_up_with_subqueries(|node| {
            let LogicalPlan::Aggregate(aggregate) = &node else { return Ok(Transformed::no(node)) };
            if !aggregate.aggr_expr.iter().any(is_faulty) {
                return Ok(Transformed::no(node));
            }
            let names = NamePreserver::new(&node);
            node.map_expressions(|expr| {
                let name = names.save(&expr);
                let rewritten = expr.transform_up(|part| match part {
                    Expr::AggregateFunction(function) => Ok(mended(function)),
                    other => Ok(Transformed::no(other)),
                })?;
                Ok(rewritten.update_data(|expr| name.restore(expr)))
            })
        })
    }
}

fn is_faulty(expr: &Expr) -> bool {
    match expr {
        Expr::Alias(alias) => is_faulty(&alias.expr),
        Expr::AggregateFunction(function) => {
            let keys = &function.params.order_by;
            is_any_value(function) || is_turned_round(function) || once(keys).len() < keys.len()
        }
        _ => false,
    }
}

fn is_any_value(function: &AggregateFunction) -> bool {
    function.func.name() == "any_value" && !function.params.order_by.is_empty()
}

fn is_turned_round(function: &AggregateFunction) -> bool {
    let params = &function.params;
    params.distinct
        && !params.order_by.is_empty()
        && function.func.name() == "array_agg"
        && !function.func.inner().is::<InItsOrder>()
}

fn mended(mut function: AggregateFunction) -> Transformed<Expr> {
    let keys = once(&function.params.order_by);
    let mut changed = keys.len() < function.params.order_by.len();
    function.params.order_by = keys;
    if is_any_value(&function) {
        function.func = first_value_udaf();
        function.params.distinct = false;
        function.params.null_treatment = Some(NullTreatment::IgnoreNulls);
        changed = true;
    }
    if is_turned_round(&function) {
        function.func = Arc::new(in_its_order(function.func));
        changed = true;
    }
    let expr = Expr::AggregateFunction(function);
    if changed { Transformed::yes(expr) } else { Transformed::no(expr) }
}

/// `array_agg` of distinct values, which are sorted when all are there.
#[derive(Debug, PartialEq, Eq, Hash)]
struct InItsOrder {
    function: Arc<AggregateUDF>,
}

/// What such an `array_agg` stands in front of.
pub(super) fn inner(function: &AggregateUDF) -> Option<&Arc<AggregateUDF>> {
    function.inner().downcast_ref::<InItsOrder>().map(|found| &found.function)
}

pub(super) fn in_its_order(function: Arc<AggregateUDF>) -> AggregateUDF {
    AggregateUDF::from(InItsOrder { function })
}

impl AggregateUDFImpl for InItsOrder {
    aggregate_as_before!(accumulator, state_fields, coerce_types, is_nullable);

    fn return_field(&self, fields: &[FieldRef]) -> Result<FieldRef> {
        self.function.return_field(fields)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.function.supports_null_handling_clause()
    }
}

/// The keys without those that stand before in their list: they say nothing any more, whatever their
/// direction.
fn once(keys: &[SortExpr]) -> Vec<SortExpr> {
    let mut kept: Vec<SortExpr> = Vec::with_capacity(keys.len());
    for key in keys {
        if !kept.iter().any(|other| unaliased(&other.expr) == unaliased(&key.expr)) {
            kept.push(key.clone());
        }
    }
    kept
}

/// What an expression computes, without its names.
pub(super) fn unaliased(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => unaliased(&alias.expr),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::col;

    use super::*;

    #[test]
    fn a_key_counts_where_it_stands_first() {
        let (a, b) = (|| col("a").sort(true, false), || col("b").sort(false, true));
        let again = col("a").alias("again").sort(false, false);
        assert_eq!(once(&[a(), b(), again, b()]), [a(), b()]);
        assert_eq!(once(&[b(), a()]), [b(), a()]);
        assert!(once(&[]).is_empty());
    }
}
