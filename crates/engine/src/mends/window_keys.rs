//! Keys of windows as columns of a projection below.
//!
//! `PARTITION BY sqrt(x) ORDER BY x` is refused, and `PARTITION BY x ORDER BY sqrt(x)`: DataFusion concludes
//! from an order of x that rows of one sqrt(x) stand together, leaves sqrt(x) out of the sort, and then does
//! not find it in it. A column it takes as it is:
//!
//! ```text
//! Window  PARTITION BY sqrt(x)     Projection  x, …
//!                                    Window  PARTITION BY __window_key_1
//!                                      Projection  x, …, sqrt(x) AS __window_key_1
//! ```

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, Window};
use datafusion::optimizer::AnalyzerRule;

use super::nan_sign::is_one_number;

/// The rule.
#[derive(Debug)]
pub(super) struct PartitionsByColumns;

impl AnalyzerRule for PartitionsByColumns {
    fn name(&self) -> &'static str {
        "partitions_by_columns"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| {
            let LogicalPlan::Window(window) = &node else { return Ok(Transformed::no(node)) };
            let is_computed = |key: &Expr, role| {
                let is_column = is_column(key) && role == Role::Partition
                    || is_column(without_sign(key)) && role == Role::Order;
                Ok(!is_column && !key.column_refs().is_empty())
            };
            match keys_below(window, is_computed)? {
                Some(keyed) => keyed.over(Arc::new(LogicalPlan::Projection(keyed.below.clone()))),
                None => Ok(Transformed::no(node)),
            }
        })
        .data()
    }
}

fn is_column(key: &Expr) -> bool {
    matches!(key, Expr::Column(_))
}

/// What [`one_number`](super::nan_sign::one_number) is called with, which says nothing of orders.
fn without_sign(key: &Expr) -> &Expr {
    match key {
        Expr::ScalarFunction(call) if is_one_number(&call.func) => call.args.first().unwrap_or(key),
        _ => key,
    }
}

/// What a key is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Partition,
    Order,
}

/// A window by columns.
pub(super) struct Keyed {
    /// The window's input, and its keys.
    pub below: Projection,
    functions: Vec<Expr>,
    shown: Vec<Expr>,
}

impl Keyed {
    /// The window over a plan of the columns of `below`.
    pub fn over(&self, input: Arc<LogicalPlan>) -> Result<Transformed<LogicalPlan>> {
        let window = LogicalPlan::Window(Window::try_new(self.functions.clone(), input)?);
        let shown = Projection::try_new(self.shown.clone(), Arc::new(window))?;
        Ok(Transformed::yes(LogicalPlan::Projection(shown)))
    }
}

/// The window with the wanted keys as columns; `None` if there are none.
pub(super) fn keys_below(
    window: &Window,
    is_wanted: impl Fn(&Expr, Role) -> Result<bool>,
) -> Result<Option<Keyed>> {
    let names = NamePreserver::new(&LogicalPlan::Window(window.clone()));
    let mut below: Vec<Expr> =
        window.input.schema().columns().into_iter().map(Expr::Column).collect();
    let width = below.len();
    let mut keys: Vec<Expr> = Vec::new();
    let mut column_for = |key: &mut Expr, role| -> Result<()> {
        if is_wanted(key, role)? {
            let at = keys.iter().position(|known| known == key).unwrap_or_else(|| {
                keys.push(key.clone());
                keys.len() - 1
            });
            *key = Expr::Column(Column::new_unqualified(name(width + at)));
        }
        Ok(())
    };
    let mut functions = Vec::new();
    for function in &window.window_expr {
        let name = names.save(function);
        let by_columns = function.clone().transform_down(|part| match part {
            Expr::WindowFunction(mut function) => {
                let partition = &mut function.params.partition_by;
                partition.iter_mut().try_for_each(|key| column_for(key, Role::Partition))?;
                let mut order = function.params.order_by.iter_mut().map(|key| &mut key.expr);
                order.try_for_each(|key| column_for(key, Role::Order))?;
                Ok(Transformed::yes(Expr::WindowFunction(function)))
            }
            other => Ok(Transformed::no(other)),
        })?;
        functions.push(name.restore(by_columns.data));
    }
    if keys.is_empty() {
        return Ok(None);
    }
    below.extend(keys.into_iter().enumerate().map(|(at, key)| key.alias(name(width + at))));
    let below = Projection::try_new(below, Arc::clone(&window.input))?;
    let shown = window.schema.columns().into_iter().map(Expr::Column).collect();
    Ok(Some(Keyed { below, functions, shown }))
}

fn name(number: usize) -> String {
    format!("__window_key_{number}")
}
