//! Values as a .slt file spells them.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type, TimeUnit};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};

/// One letter per column: I integers, R floats and decimals, ? NULL alone, T the rest.
pub fn letters(kinds: &[&DataType]) -> String {
    let letter = |kind: &&DataType| match kind {
        kind if kind.is_integer() => 'I',
        kind if kind.is_floating() || kind.is_decimal() => 'R',
        DataType::Null => '?',
        _ => 'T',
    };
    kinds.iter().map(letter).collect()
}

/// One line per row, a TAB between values.
pub fn lines(batches: &[RecordBatch]) -> Vec<String> {
    values(batches).into_iter().map(|row| row.join("\t")).collect()
}

/// The values of each row.
pub fn values(batches: &[RecordBatch]) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for batch in batches {
        let columns: Vec<Vec<String>> = batch.columns().iter().map(column).collect();
        rows.extend(
            (0..batch.num_rows()).map(|row| columns.iter().map(|c| c[row].clone()).collect()),
        );
    }
    rows
}

fn column(values: &ArrayRef) -> Vec<String> {
    let text =
        |row: usize| if values.is_null(row) { "NULL".to_owned() } else { value(values, row) };
    (0..values.len()).map(text).collect()
}

fn value(values: &ArrayRef, row: usize) -> String {
    match values.data_type() {
        DataType::Float16 | DataType::Float32 | DataType::Float64 => {
            let wide = cast(&values.slice(row, 1), &DataType::Float64).unwrap();
            float(wide.as_primitive::<Float64Type>().value(0))
        }
        DataType::Timestamp(unit, zone) => timestamp(values, row, *unit, zone.is_some()),
        DataType::List(_) => {
            let inner = column(&values.as_list::<i32>().value(row));
            format!("[{}]", inner.join(",\t"))
        }
        _ => {
            let options = FormatOptions::default();
            let shown = ArrayFormatter::try_new(values, &options).unwrap().value(row).to_string();
            let words: Vec<&str> = shown.split_whitespace().collect();
            if words.is_empty() { "(empty)".to_owned() } else { words.join("\t") }
        }
    }
}

/// The shortest text that is read as the same float.
fn float(value: f64) -> String {
    if !value.is_finite() {
        return if value.is_nan() {
            "NaN"
        } else if value > 0.0 {
            "inf"
        } else {
            "-inf"
        }
        .to_owned();
    }
    let text = format!("{value:?}");
    // An exponent has a sign and two digits.
    match text.split_once('e') {
        None => text,
        Some((digits, exponent)) => {
            let (sign, exponent) = match exponent.strip_prefix('-') {
                Some(exponent) => ('-', exponent),
                None => ('+', exponent),
            };
            format!("{digits}e{sign}{exponent:0>2}")
        }
    }
}

/// 2026-01-31T10:00:00[.5] in UTC, with as many digits as microseconds need, and Z for an instant.
fn timestamp(values: &ArrayRef, row: usize, unit: TimeUnit, instant: bool) -> String {
    let one = values.slice(row, 1);
    let one = cast(&one, &DataType::Timestamp(unit, None)).unwrap();
    let one = cast(&one, &DataType::Timestamp(TimeUnit::Microsecond, None)).unwrap();
    let options = FormatOptions::default();
    let text = ArrayFormatter::try_new(&one, &options).unwrap().value(0).to_string();
    if instant { format!("{text}Z") } else { text }
}
