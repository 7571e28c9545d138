//! Windows that are computed of the rows so far, a batch at a time, by [`RunningWindowExec`].

use std::fmt::Debug;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::logical_expr::{WindowFrame, WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::window::{PlainAggregateWindowExpr, StandardWindowExpr, WindowExpr};
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowUDFExpr};
use datafusion::physical_plan::{ExecutionPlan, InputOrderMode};

use crate::base::one_input::EachNode;
use crate::operators::running_window::{Call, Function, RunningWindow, RunningWindowExec};
use crate::optimizer::window_candidates::is_exact;

/// Rows before or after a row that are looked for at most; they are copied with each batch.
const SHIFT_MAX: usize = 1024;

/// The rule.
pub(crate) const RUNNING_WINDOWS: EachNode = EachNode { name: "running_windows", other: running };

fn running(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(window) = node.downcast_ref::<BoundedWindowAggExec>() else { return Ok(None) };
    let input = window.input();
    let (functions, schema) = (window.window_expr(), input.schema());
    let Some(first) = functions.first() else { return Ok(None) };
    let is_sorted = matches!(window.input_order_mode, InputOrderMode::Sorted);
    if !is_sorted || window.state_observer().is_some() {
        return Ok(None);
    }
    let same_window = |other: &Arc<dyn WindowExpr>| {
        other.partition_by() == first.partition_by() && other.order_by() == first.order_by()
    };
    if !functions.iter().all(same_window) {
        return Ok(None);
    }
    let mut calls = Vec::with_capacity(functions.len());
    for function in functions {
        let Some(call) = call(function) else { return Ok(None) };
        let argument = call.argument.as_ref().map(|a| a.data_type(&schema)).transpose()?;
        if !call.is_of(argument.as_ref(), function.field()?.data_type()) {
            return Ok(None);
        }
        calls.push(call);
    }
    let look_at_peers = calls.iter().any(Call::looks_at_peers);
    let order_by = first.order_by().iter().map(|sort| &sort.expr).filter(|_| look_at_peers);
    for key in first.partition_by().iter().chain(order_by) {
        if !is_exact(&key.data_type(&schema)?) {
            return Ok(None);
        }
    }
    let operator = RunningWindow::of(window, calls);
    Ok(Some(Arc::new(RunningWindowExec::over(operator, Arc::clone(input)))))
}

/// The function, if it is one of those.
fn call(function: &Arc<dyn WindowExpr>) -> Option<Call> {
    let to_last_peer = ends_with_peers(function.get_window_frame(), function.order_by().is_empty());
    if let Some(standard) = function.as_any().downcast_ref::<StandardWindowExpr>() {
        let function = standard.get_standard_func_expr().as_any();
        let function = function.downcast_ref::<WindowUDFExpr>()?;
        // It has no other way to say so.
        if !ends(function, "is_reversed: false, ignore_nulls: false }") {
            return None;
        }
        let arguments = function.args();
        let (name, argument) = (function.fun().name(), arguments.first().cloned());
        let function = match name {
            "row_number" => Function::RowNumber,
            "rank" => Function::Rank,
            "dense_rank" => Function::DenseRank,
            "lag" => Function::Lag(shift(arguments)?),
            "lead" => Function::Lead(shift(arguments)?),
            "first_value" => {
                to_last_peer?;
                Function::FirstValue
            }
            _ => return None,
        };
        return Some(Call { function, argument, to_last_peer: false });
    }
    let aggregate = function.as_any().downcast_ref::<PlainAggregateWindowExpr>()?;
    let to_last_peer = to_last_peer?;
    // The same.
    if !ends(aggregate, "filter: None }") {
        return None;
    }
    let aggregate = aggregate.get_aggregate_expr();
    if aggregate.is_distinct() || !aggregate.order_bys().is_empty() {
        return None;
    }
    let function = match aggregate.fun().name() {
        "count" => Function::Count,
        "sum" => Function::Sum,
        "min" => Function::Min,
        "max" => Function::Max,
        _ => return None,
    };
    let [argument] = aggregate.expressions().try_into().ok()?;
    Some(Call { function, argument: Some(argument), to_last_peer })
}

/// Does what is written of it for programmers end so?
fn ends(of: &impl Debug, end: &str) -> bool {
    format!("{of:?}").ends_with(end)
}

/// Does a frame that begins with the partition end with the row's last peer, or with the row? `None` if it is another.
fn ends_with_peers(frame: &WindowFrame, is_unordered: bool) -> Option<bool> {
    let from_first =
        matches!(&frame.start_bound, WindowFrameBound::Preceding(rows) if rows.is_null());
    let to_current = matches!(frame.end_bound, WindowFrameBound::CurrentRow);
    match frame.units {
        _ if !from_first || !to_current => None,
        WindowFrameUnits::Rows => Some(false),
        // All rows of a partition are peers then, and it is not for going through them.
        _ if is_unordered => None,
        WindowFrameUnits::Range | WindowFrameUnits::Groups => Some(true),
    }
}

/// The rows that `lag` and `lead` go, if the value of others is NULL.
fn shift(arguments: &[Arc<dyn PhysicalExpr>]) -> Option<usize> {
    let literal = |at: usize| match arguments.get(at) {
        None => Some(None),
        Some(argument) => argument.downcast_ref::<Literal>().map(|literal| Some(literal.value())),
    };
    if literal(2)?.is_some_and(|default| !default.is_null()) {
        return None;
    }
    let rows = match literal(1)? {
        None => 1,
        Some(rows) => rows.to_string().parse().ok()?,
    };
    (rows <= SHIFT_MAX).then_some(rows)
}
