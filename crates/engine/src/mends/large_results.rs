//! Functions whose result may be larger than what they are given, within bounds.
//!
//! `repeat`, `lpad` and `range` of a few words make gigabytes that nobody counts, for one batch or, of constants,
//! while a statement is planned; and building a text of more than 2 GiB panics in Arrow. Here what a call would
//! make is reckoned before it is made.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::compute::kernels::length::length;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl};

use super::as_before::scalar_as_before;
use crate::settings::Settings;

/// What one call may make at most: half of what Arrow's 32-bit offsets reach.
const MOST_BYTES: usize = (i32::MAX / 2) as usize;
/// Of the session's memory: several calls are under way at once, and each result is copied once or twice.
const MEMORY_SHARE: usize = 8;
/// However little memory there is: a batch of ordinary texts.
const LEAST_BYTES: usize = 16 << 20;
/// Of a character.
const CHARACTER_BYTES: u128 = 4;
/// Of a text within a list, beside its own.
const OFFSET_BYTES: u128 = 8;

/// The function, which refuses what would be too large.
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
        let memory = args.config_options.extensions.get::<Settings>().map_or(0, |s| s.memory_bytes);
        let most = match memory {
            // Nobody said.
            0 => MOST_BYTES,
            memory => (memory / MEMORY_SHARE).clamp(LEAST_BYTES, MOST_BYTES),
        };
        // Of constants one value is made, for however many rows.
        let is_constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { args.number_rows };
        let bytes = bytes(self.name(), &args.args, rows)?;
        if bytes > most as u128 {
            const MIB: u128 = 1 << 20;
            return exec_err!(
                "{} would make {} MiB for {rows} rows, and one call may make {} MiB with this much \
                 memory; ask for less, or for fewer rows before it",
                self.name(),
                bytes / MIB,
                most as u128 / MIB
            );
        }
        self.function.invoke_with_args(args)
    }
}

/// How many bytes a call makes, at most.
fn bytes(name: &str, args: &[ColumnarValue], rows: usize) -> Result<u128> {
    let each: Box<dyn Fn(usize) -> u128> = match (name, args) {
        ("repeat", [text, count, ..]) => {
            let (bytes, count) = (text_bytes(text)?, Numbers::of(count)?);
            Box::new(move |row| bytes.at(row) * count.at(row))
        }
        ("lpad" | "rpad", [text, count, fill @ ..]) => {
            let is_ascii = |fill: &ColumnarValue| match fill {
                ColumnarValue::Scalar(fill) => fill.to_string().is_ascii(),
                ColumnarValue::Array(_) => false,
            };
            let is_plain = fill.iter().all(is_ascii);
            let (bytes, count) = (text_bytes(text)?, Numbers::of(count)?);
            let width = if is_plain { 1 } else { CHARACTER_BYTES };
            Box::new(move |row| bytes.at(row) + width * count.at(row))
        }
        ("array_repeat", [value, count]) => {
            let (count, array) = (Numbers::of(count)?, value.to_array(1)?);
            let bytes = match array.data_type() {
                DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => text_bytes(value)?,
                _ => Numbers::same((array.get_array_memory_size() / array.len().max(1)) as i64),
            };
            Box::new(move |row| (bytes.at(row) + OFFSET_BYTES) * count.at(row))
        }
        ("range" | "generate_series", [.., last]) if last.data_type().is_integer() => {
            let zero = Numbers::same(0);
            let one = Numbers::same(1);
            let (start, stop, step) = match args {
                [stop] => (zero, Numbers::of(stop)?, one),
                [start, stop] => (Numbers::of(start)?, Numbers::of(stop)?, one),
                [start, stop, step, ..] => {
                    (Numbers::of(start)?, Numbers::of(stop)?, Numbers::of(step)?)
                }
                [] => return Ok(0),
            };
            Box::new(move |row| {
                let (Some(start), Some(stop), Some(step)) =
                    (start.get(row), stop.get(row), step.get(row))
                else {
                    return 0;
                };
                let is_forward = (start <= stop) == (step > 0);
                let steps = stop.abs_diff(start) / step.unsigned_abs().max(1);
                if is_forward { OFFSET_BYTES * (u128::from(steps) + 1) } else { 0 }
            })
        }
        _ => return Ok(0),
    };
    Ok((0..rows).map(each).sum())
}

/// Whole numbers of rows, of which NULL counts as nothing.
struct Numbers {
    values: ArrayRef,
    /// 0 if one is for all rows.
    step: usize,
}

impl Numbers {
    fn of(value: &ColumnarValue) -> Result<Self> {
        let (array, step) = match value {
            ColumnarValue::Array(array) => (Arc::clone(array), 1),
            ColumnarValue::Scalar(value) => (value.to_array()?, 0),
        };
        Ok(Self { values: cast(&array, &DataType::Int64)?, step })
    }

    fn same(value: i64) -> Self {
        let values = datafusion::arrow::array::Int64Array::from(vec![value]);
        Self { values: Arc::new(values), step: 0 }
    }

    fn get(&self, row: usize) -> Option<i64> {
        let (values, at) = (self.values.as_primitive::<Int64Type>(), row * self.step);
        values.is_valid(at).then(|| values.value(at))
    }

    /// Those below 0 count as nothing, too.
    fn at(&self, row: usize) -> u128 {
        self.get(row).map_or(0, |value| value.max(0) as u128)
    }
}

fn text_bytes(text: &ColumnarValue) -> Result<Numbers> {
    let lengths = match text {
        ColumnarValue::Array(array) => ColumnarValue::Array(length(array)?),
        ColumnarValue::Scalar(value) => {
            let length = length(&value.to_array()?)?;
            return Ok(Numbers { values: cast(&length, &DataType::Int64)?, step: 0 });
        }
    };
    Numbers::of(&lengths)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Int64Array, StringArray};
    use datafusion::common::ScalarValue;

    use super::*;

    fn number(value: i64) -> ColumnarValue {
        ColumnarValue::Scalar(ScalarValue::Int64(Some(value)))
    }

    fn text(value: &str) -> ColumnarValue {
        ColumnarValue::Scalar(ScalarValue::Utf8(Some(value.to_owned())))
    }

    #[test]
    fn results_are_reckoned_before_they_are_made() {
        let of = |name, args: &[ColumnarValue], rows| bytes(name, args, rows).unwrap();
        assert_eq!(of("repeat", &[text("abc"), number(700)], 1), 2100);
        assert_eq!(of("repeat", &[text("abc"), number(-1)], 1), 0);
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("ééé")]));
        let counts: ArrayRef = Arc::new(Int64Array::from(vec![Some(10), Some(10), Some(2)]));
        let columns = [ColumnarValue::Array(texts), ColumnarValue::Array(counts)];
        assert_eq!(of("repeat", &columns, 3), 10 + 12);
        assert_eq!(of("lpad", &columns, 3), 1 + 10 + 10 + 6 + 2);
        assert_eq!(of("lpad", &[text("a"), number(9), text("é")], 1), 37);
        assert_eq!(of("range", &[number(10)], 1), 88);
        assert_eq!(of("range", &[number(i64::MIN), number(i64::MAX)], 1), 8 << 64);
        assert_eq!(of("range", &[number(9), number(0), number(-3)], 1), 32);
        assert_eq!(of("range", &[number(9), number(0)], 1), 0);
        assert_eq!(of("array_repeat", &[text("abcd"), number(10)], 1), 120);
        assert_eq!(of("upper", &[text("abcd")], 1), 0);
    }
}
