//! Windows by keys go by ids: `lag(t) OVER (PARTITION BY user_id ORDER BY t)` sorts four bytes in place of a
//! string, and the key need not be read if nobody shows it.
//!
//! # Invariants
//! - The functions of one node are computed over one order of rows, so a key is replaced in all of them or in
//!   none. One that a function sorts by stays: ids are in another order.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, Window};

use crate::optimizer::id_rewrite::key_ids::with_ids;

/// The window by ids where it is by keys that have some; `None` if it is by none.
pub(crate) fn windowed(window: &Window) -> Result<Option<LogicalPlan>> {
    let functions: Option<Vec<&WindowFunction>> = window.window_expr.iter().map(function).collect();
    let Some(functions) = functions else { return Ok(None) };
    let mut input = window.input.as_ref().clone();
    let mut ids: HashMap<Column, Column> = HashMap::new();
    for key in functions.first().iter().flat_map(|first| &first.params.partition_by) {
        let Expr::Column(key) = key else { continue };
        if ids.contains_key(key) || !functions.iter().all(|function| only_parts_by(function, key)) {
            continue;
        }
        if let Some(found) = with_ids(&input, key)? {
            input = found.plan;
            ids.insert(key.clone(), found.ids);
        }
    }
    if ids.is_empty() {
        return Ok(None);
    }
    let names = NamePreserver::new_for_projection();
    let by_ids = |expr: &Expr| -> Result<Expr> {
        let name = names.save(expr);
        let by_ids = expr.clone().transform_down(|part| match part {
            Expr::WindowFunction(mut function) => {
                for key in &mut function.params.partition_by {
                    if let Expr::Column(column) = key
                        && let Some(found) = ids.get(column)
                    {
                        *column = found.clone();
                    }
                }
                Ok(Transformed::yes(Expr::WindowFunction(function)))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(name.restore(by_ids.data))
    };
    let functions = window.window_expr.iter().map(by_ids).collect::<Result<Vec<_>>>()?;
    let by_ids = Arc::new(LogicalPlan::Window(Window::try_new(functions, Arc::new(input))?));
    // Without the ids, which nobody above knows.
    let columns = window.schema.columns().into_iter().map(Expr::Column).collect();
    Ok(Some(LogicalPlan::Projection(Projection::try_new(columns, by_ids)?)))
}

fn function(expr: &Expr) -> Option<&WindowFunction> {
    match expr {
        Expr::WindowFunction(function) => Some(function),
        Expr::Alias(alias) => function(&alias.expr),
        _ => None,
    }
}

/// Is the window of a function by this key, and its order not?
fn only_parts_by(function: &WindowFunction, key: &Column) -> bool {
    let is_key = |expr: &Expr| matches!(expr, Expr::Column(column) if column == key);
    let params = &function.params;
    params.partition_by.iter().any(is_key)
        && !params.order_by.iter().any(|sort| sort.expr.column_refs().contains(key))
}

#[cfg(test)]
mod tests {
    use datafusion::functions_window::expr_fn::row_number;
    use datafusion::logical_expr::{ExprFunctionExt, col};

    use super::*;

    #[test]
    fn a_key_that_rows_are_sorted_by_stays() {
        let by = |order: Expr| {
            let windowed = row_number().partition_by(vec![col("k"), col("d")]);
            windowed.order_by(vec![order.sort(true, false)]).build().unwrap()
        };
        let parts = |expr: &Expr, key: &str| {
            only_parts_by(function(expr).unwrap(), &Column::new_unqualified(key))
        };
        let by_time = by(col("t")).alias("renamed");
        assert!(parts(&by_time, "k") && parts(&by_time, "d"));
        assert!(!parts(&by_time, "t") && !parts(&by_time, "other"));
        let by_key = by(-col("k"));
        assert!(!parts(&by_key, "k") && parts(&by_key, "d"));
    }
}
