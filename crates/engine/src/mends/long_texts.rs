//! Functions that make texts of any length, within bounds.
//!
//! Arrow's columns of text hold 2 GiB, and building a longer one panics.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::compute::kernels::length::length;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl};

use super::as_before::scalar_as_before;

/// What one call may make for the rows of a batch: a quarter of what Arrow's 32-bit offsets reach, because a
/// character has up to 4 bytes.
const MOST_CHARACTERS: u128 = (i32::MAX / 4) as u128;

/// `lpad`, `rpad` or `repeat`, which refuse what would be too long.
pub(super) fn bounded(function: Arc<ScalarUDF>) -> ScalarUDF {
    ScalarUDF::from(Bounded { function })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Bounded {
    function: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for Bounded {
    scalar_as_before!(return_field_from_args, coerce_types);

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let [text, count, ..] = args.args.as_slice() {
            let characters = characters(self.name(), text, count, args.number_rows)?;
            if characters > MOST_CHARACTERS {
                return exec_err!(
                    "{} would make {characters} characters for {} rows; at most {MOST_CHARACTERS} \
                     fit, ask for shorter texts",
                    self.name(),
                    args.number_rows
                );
            }
        }
        self.function.invoke_with_args(args)
    }
}

/// How many characters a call makes at most.
fn characters(
    name: &str,
    text: &ColumnarValue,
    count: &ColumnarValue,
    rows: usize,
) -> Result<u128> {
    let array = |value: &ColumnarValue| -> Result<(ArrayRef, usize)> {
        Ok(match value {
            ColumnarValue::Array(array) => (Arc::clone(array), 1),
            // One value, for all rows.
            ColumnarValue::Scalar(value) => (value.to_array()?, 0),
        })
    };
    let (counts, step) = array(count)?;
    let counts = cast(&counts, &DataType::Int64)?;
    let counts = counts.as_primitive::<Int64Type>();
    let (texts, text_step) = array(text)?;
    let lengths = cast(&length(&texts)?, &DataType::Int64)?;
    let lengths = lengths.as_primitive::<Int64Type>();
    let of_row = |row: usize| {
        let (at, text_at) = (row * step, row * text_step);
        if counts.is_null(at) || lengths.is_null(text_at) {
            return 0;
        }
        let count = counts.value(at).max(0) as u128;
        let each = if name == "repeat" { lengths.value(text_at) as u128 } else { 1 };
        count * each
    };
    Ok((0..rows).map(of_row).sum())
}
