//! SQL functions of experiments and behaviour.
//!
//! | module | functions |
//! |---|---|
//! | `ab_test` | `ab_test_mean`, `ab_test_proportion`, `ab_test_ratio`, `ab_test_cuped`, `ab_test_cuped_ratio`, `srm_test` |
//! | `bitmap` | `to_bitmap`, `bitmap_and` …; `bitmap_union`, `bitmap_intersect`, `intersect_count` … |
//! | `event_function` | `window_funnel`, `conversion_times`, `sequence_match`, `sequence_count` |
//! | `event_path` | `event_path` |
//! | `p_adjust` | `p_adjust` of a list, `adjusted_p` over a window |
//! | `poisson_weight` | `poisson_weight` |
//! | `retention` | `retention` |
//! | `session_number` | `session_number`, over a window |
//! | `value_by` | `first_value_by`, `last_value_by` and their other names |
//!
//! # Invariants
//! - Every aggregate has a state that merges: any split of the rows gives the same answer.
//! - What an aggregate holds is counted as it grows.
//!
//! # Not here
//! No tables, no sessions: `engine` registers what [`aggregates`] and [`scalars`] give.
#![forbid(unsafe_code)]

mod ab_test;
mod arguments;
mod bitmap;
mod bound;
mod error;
mod event_function;
mod event_log;
mod event_path;
mod events;
mod fold;
mod p_adjust;
mod path;
mod poisson_weight;
#[cfg(test)]
mod random;
mod retention;
mod sequence;
mod session_number;
mod single;
mod time;
mod value_by;
mod window_funnel;

use datafusion_expr::{AggregateUDF, ScalarUDF, WindowUDF};

pub use arguments::{BoundConstants, no_distinct, passes};
pub use bound::{bind, bound_constants};
pub use error::FunctionError;
pub use event_function::{EventBits, absorb, expect_order, time_of, update_runs};
pub use event_log::RowRun;
pub use events::{NotInOrder, holds};
pub use fold::{Fold, Function};
pub use single::Single;

/// All aggregate functions.
pub fn aggregates() -> Vec<AggregateUDF> {
    let mut functions = Vec::from(event_function::functions());
    functions.push(event_path::function());
    functions.extend(bitmap::aggregates());
    functions.push(retention::function());
    functions.extend(value_by::functions());
    functions.extend(ab_test::functions());
    functions
}

/// All functions of a row.
pub fn scalars() -> Vec<ScalarUDF> {
    let mut functions = bitmap::scalars();
    functions.extend([p_adjust::scalar(), poisson_weight::function()]);
    functions
}

/// How many numbers a bitmap holds; `None` if the bytes are none.
pub fn bitmap_len(bytes: &[u8]) -> Option<u64> {
    bitmap::decode(bytes).ok().map(|map| map.len())
}

/// All functions over windows.
pub fn windows() -> Vec<WindowUDF> {
    vec![session_number::function(), p_adjust::window()]
}
