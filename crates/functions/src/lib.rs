//! SQL functions of experiments and behaviour.
//!
//! | module | functions |
//! |---|---|
//! | `event_function` | `window_funnel`, `sequence_match`, `sequence_count` |
//!
//! # Invariants
//! - Every aggregate has a state that merges: any split of the rows gives the same answer.
//! - What an aggregate holds is counted as it grows.
//!
//! # Not here
//! No tables, no sessions: `engine` registers what [`aggregates`] and [`scalars`] give.
#![forbid(unsafe_code)]

mod arguments;
mod event_function;
mod event_log;
#[cfg(test)]
mod random;
mod sequence;
mod single;
mod window_funnel;

use datafusion_expr::AggregateUDF;

/// All aggregate functions.
pub fn aggregates() -> Vec<AggregateUDF> {
    event_function::functions().into_iter().collect()
}
