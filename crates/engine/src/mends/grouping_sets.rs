//! Keys of GROUPING SETS, ROLLUP and CUBE as columns of a projection below.
//!
//! A key there can have no name, so a rule that rewrites it changes the name of the groups' column, or the
//! number of columns, and the statement is refused: `ROLLUP (k + 1)` where k is constant. A column stays:
//!
//! ```text
//! Aggregate  ROLLUP (x + 1)     Projection  __group_key_2 AS x + 1, …
//!                                 Aggregate  ROLLUP (__group_key_2)
//!                                   Projection  x, y, x + 1 AS __group_key_2
//! ```

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, Projection, ident};
use datafusion::optimizer::AnalyzerRule;

/// The rule, which comes before all that rewrite expressions.
#[derive(Debug)]
pub(super) struct SetsOfColumns;

impl AnalyzerRule for SetsOfColumns {
    fn name(&self) -> &'static str {
        "sets_of_columns"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| {
            let LogicalPlan::Aggregate(aggregate) = &node else { return Ok(Transformed::no(node)) };
            let is_computed = |key: &Expr| !matches!(key, Expr::Column(_));
            match keys_below(aggregate, is_computed, |key| key)? {
                Some(grouped) => Ok(Transformed::yes(grouped)),
                None => Ok(Transformed::no(node)),
            }
        })
        .data()
    }
}

/// Begins the name of a computed key of grouping sets.
pub(crate) const GROUP_KEY: &str = "__group_key_";

/// The groups with the wanted keys of their sets as columns, which are what `value` makes of the keys; `None`
/// if there are none.
pub(super) fn keys_below(
    aggregate: &Aggregate,
    is_wanted: impl Fn(&Expr) -> bool,
    value: impl Fn(Expr) -> Expr,
) -> Result<Option<LogicalPlan>> {
    let [Expr::GroupingSet(sets)] = aggregate.group_expr.as_slice() else { return Ok(None) };
    let keys = sets.distinct_expr().into_iter();
    let wanted: Vec<&Expr> = keys.filter(|key| is_wanted(key)).collect();
    if wanted.is_empty() {
        return Ok(None);
    }
    let width = aggregate.input.schema().fields().len();
    let name = |at: usize| format!("{GROUP_KEY}{}", width + at);
    let columns = aggregate.input.schema().columns().into_iter().map(Expr::Column);
    let keys = wanted.iter().enumerate();
    let keys = keys.map(|(at, key)| value((*key).clone().unalias()).alias(name(at)));
    let below = Projection::try_new(columns.chain(keys).collect(), Arc::clone(&aggregate.input))?;
    let as_column = |part: Expr| {
        Ok(match wanted.iter().position(|key| **key == part) {
            Some(at) => Transformed::new(ident(name(at)), true, TreeNodeRecursion::Jump),
            None => Transformed::no(part),
        })
    };
    let groups = aggregate.group_expr[0].clone().transform_down(as_column)?;
    // grouping() names a key.
    let aggregates = aggregate.aggr_expr.iter().cloned().map(|expr| {
        let named = expr.transform_down(|part| match part {
            Expr::AggregateFunction(mut call) if call.func.name() == "grouping" => {
                let keys = call.params.args.into_iter();
                let keys = keys.map(|key| key.transform_down(as_column).data());
                call.params.args = keys.collect::<Result<_>>()?;
                Ok(Transformed::new(Expr::AggregateFunction(call), true, TreeNodeRecursion::Jump))
            }
            other => Ok(Transformed::no(other)),
        });
        named.data()
    });
    let aggregates = aggregates.collect::<Result<_>>()?;
    let below = Arc::new(LogicalPlan::Projection(below));
    // Where grouping() is still to be computed of it, nobody asks for the number of the set yet.
    let asks_later = aggregate.aggr_expr.iter().any(|expr| {
        let is_grouping = |part: &Expr| {
            Ok(matches!(part, Expr::AggregateFunction(call) if call.func.name() == "grouping"))
        };
        expr.exists(is_grouping).unwrap_or_default()
    });
    let grouped = Aggregate::try_new(below, vec![groups.data], aggregates)?;
    let found = grouped.schema.columns().into_iter().zip(aggregate.schema.columns());
    let found =
        found.filter(|(column, _)| !(asks_later && column.name == Aggregate::INTERNAL_GROUPING_ID));
    let shown = found.map(|(column, shown)| {
        let same = column == shown;
        let column = Expr::Column(column);
        if same { column } else { column.alias_qualified(shown.relation, shown.name) }
    });
    let shown = shown.collect();
    let grouped = Arc::new(LogicalPlan::Aggregate(grouped));
    Ok(Some(LogicalPlan::Projection(Projection::try_new(shown, grouped)?)))
}
