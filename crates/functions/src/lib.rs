//! SQL functions of experiments and behaviour.
//!
//! | module | functions |
//! |---|---|
//! | `bitmap` | `to_bitmap`, `bitmap_and` …; `bitmap_union`, `bitmap_intersect`, `intersect_count` … |
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
mod bitmap;
mod event_function;
mod event_log;
mod fold;
#[cfg(test)]
mod random;
mod sequence;
mod single;
mod window_funnel;

use datafusion_expr::{AggregateUDF, ScalarUDF};

/// All aggregate functions.
pub fn aggregates() -> Vec<AggregateUDF> {
    let mut functions = Vec::from(event_function::functions());
    functions.extend(bitmap::aggregates());
    functions
}

/// All functions of a row.
pub fn scalars() -> Vec<ScalarUDF> {
    bitmap::scalars()
}
