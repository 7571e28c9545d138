//! What functions of events have in common.

use std::error::Error;
use std::fmt;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray};
use arrow::buffer::{BooleanBuffer, ScalarBuffer};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use datafusion_common::Result;

/// The error that rows make which break the promise of [`expect_order`](crate::expect_order).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotInOrder;

impl fmt::Display for NotInOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the rows of a group are not in the order of time")
    }
}

impl Error for NotInOrder {}

pub(crate) fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// Where a condition is true: not NULL and not false.
pub fn holds(condition: &BooleanArray) -> BooleanBuffer {
    match condition.nulls() {
        Some(valid) => condition.values() & valid.inner(),
        None => condition.values().clone(),
    }
}

/// The raw numbers of a time column.
pub(crate) fn raw_times(times: &ArrayRef) -> Result<ScalarBuffer<i64>> {
    let times = cast(times, &Int64Type::DATA_TYPE)?;
    Ok(times.as_primitive::<Int64Type>().values().clone())
}
