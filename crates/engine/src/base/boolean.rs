//! Booleans of three values.

use datafusion::arrow::array::{Array, BooleanArray};
use datafusion::arrow::buffer::BooleanBuffer;

/// Where it is true; where it is NULL it is not.
pub(crate) fn true_only(condition: &BooleanArray) -> BooleanBuffer {
    match condition.nulls() {
        None => condition.values().clone(),
        Some(valid) => condition.values() & valid.inner(),
    }
}
