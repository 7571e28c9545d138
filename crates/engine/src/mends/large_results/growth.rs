//! How many bytes a call makes at most, from its name and its arguments.
//!
//! Most functions give parts of what they are given, or all of it together: their results and what they make of
//! constants, which they repeat for each row, are no larger than their arguments. Those that may give more have
//! a formula each. A formula that says too much is followed by a count, where one is cheap.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::datatypes::{DataType, Int64Type, IntervalMonthDayNanoType, TimeUnit};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::ColumnarValue;
use memchr::memmem;

use super::sizes::{
    self, Numbers, OFFSET_BYTES, constant, leaves, of_array, of_scalar, sum_of_texts, text_at,
};

/// Of a character.
const CHARACTER_BYTES: u128 = 4;
/// Upper and lower case: ΐ becomes three characters of two bytes each.
const CASE_FACTOR: u128 = 3;
/// What `%+` of a time becomes, the longest.
const FORMATTED_BYTES: u128 = 40;
/// `J` of PostgreSQL's patterns is a number of seven digits and more.
const NAME_BYTES: u128 = 9;
/// A number as text: -1.7976931348623157e308; a decimal has up to 76 digits.
const NUMBER_TEXT_BYTES: u128 = 26;
const DECIMAL_TEXT_BYTES: u128 = 80;
/// Of a byte of a regular expression, to compile it: 3.4 GB were measured for 30 MB.
const COMPILED_BYTES: u128 = 128;
const NANOSECONDS_PER_DAY: i128 = 86_400_000_000_000;
/// Of the shortest month.
const DAYS_PER_MONTH: i128 = 28;

/// What is given, together.
const TOGETHER: [&str; 8] = [
    "||",
    "array_append",
    "array_concat",
    "array_prepend",
    "concat",
    "make_array",
    "map",
    "overlay",
];
/// The same, and once more for what they look up in.
const TWICE: [&str; 4] = ["array_distinct", "array_except", "array_intersect", "array_union"];
/// Parts of what is given: large only in a constant that is repeated for each row.
const PARTS: [&str; 46] = [
    "array_add",
    "array_any_value",
    "array_avg",
    "array_compact",
    "array_dims",
    "array_distance",
    "array_element",
    "array_max",
    "array_min",
    "array_normalize",
    "array_pop_back",
    "array_pop_front",
    "array_product",
    "array_remove",
    "array_remove_all",
    "array_remove_n",
    "array_reverse",
    "array_scale",
    "array_slice",
    "array_sort",
    "array_subtract",
    "array_sum",
    "arrays_overlap",
    "btrim",
    "character_length",
    "cosine_distance",
    "find_in_set",
    "flatten",
    "greatest",
    "inner_product",
    "least",
    "left",
    "levenshtein",
    "ltrim",
    "map_entries",
    "map_extract",
    "map_keys",
    "map_values",
    "nullif",
    "reverse",
    "right",
    "rtrim",
    "split_part",
    "strpos",
    "substr",
    "substr_index",
];
/// With a formula of their own.
const OTHERS: [&str; 28] = [
    "array_repeat",
    "array_replace",
    "array_replace_all",
    "array_replace_n",
    "array_resize",
    "array_to_string",
    "arrays_zip",
    "bitmap_to_array",
    "bitmap_to_string",
    "concat_ws",
    "encode",
    "generate_series",
    "initcap",
    "lower",
    "lpad",
    "range",
    "regexp_count",
    "regexp_instr",
    "regexp_like",
    "regexp_match",
    "regexp_replace",
    "repeat",
    "replace",
    "rpad",
    "string_to_array",
    "to_char",
    "translate",
    "upper",
];

/// May a call of this function make more than it is given?
pub(crate) fn grows(name: &str) -> bool {
    [&TOGETHER[..], &TWICE[..], &PARTS[..], &OTHERS[..]].iter().any(|names| names.contains(&name))
}

/// How many bytes a call makes, at most. Beyond `most` it may take as long as the call would to say it better.
pub(super) fn bytes(name: &str, args: &[ColumnarValue], rows: usize, most: u128) -> Result<u128> {
    let together = || args.iter().map(|arg| sizes::of(arg, rows)).sum::<u128>();
    let parts = || args.iter().map(|arg| of_constant(arg, rows)).sum::<u128>();
    match (name, args) {
        ("repeat" | "lpad" | "rpad" | "array_repeat" | "array_resize", _) => {
            by_rows(name, args, rows)
        }
        ("range" | "generate_series", _) => series(args, rows),
        ("replace", [text, from, to]) => replaced(text, from, to, rows, most),
        ("regexp_replace", [text, pattern, with, ..]) => {
            Ok(compiled(pattern) + regexp_replaced(text, with, args.get(3), rows)?)
        }
        ("regexp_count" | "regexp_instr" | "regexp_like", [text, pattern, ..]) => {
            Ok(compiled(pattern) + of_constant(text, rows))
        }
        ("regexp_match", [text, pattern, ..]) => {
            let groups = sum_of_most(pattern, |text| text.matches('(').count() as u128).max(1);
            let of_group = sizes::of(text, rows) + OFFSET_BYTES * rows as u128;
            Ok(compiled(pattern) + groups * of_group)
        }
        ("translate", [text, _, to]) => {
            let is_ascii = constant(to).is_some_and(str::is_ascii);
            let factor = if is_ascii { 1 } else { CHARACTER_BYTES };
            Ok(parts() + factor * sizes::of(text, rows))
        }
        ("upper" | "lower" | "initcap", [text]) => Ok(in_case(name, text, rows, most)),
        ("encode", [bytes, ..]) => Ok(2 * sizes::of(bytes, rows)),
        ("concat_ws", [separator, texts @ ..]) => {
            let between = sizes::of(separator, rows) * texts.len().saturating_sub(1) as u128;
            Ok(between + texts.iter().map(|text| sizes::of(text, rows)).sum::<u128>())
        }
        ("to_char", [_, format]) => {
            Ok(sum_of_texts(format, rows, |format| match format.matches('%').count() {
                0 => NAME_BYTES * format.len() as u128,
                fields => format.len() as u128 + FORMATTED_BYTES * fields as u128,
            }))
        }
        ("string_to_array", [text, delimiter, ..]) => Ok(split(text, delimiter, rows, most)),
        ("array_to_string", [list, separator, null @ ..]) => {
            let null = null.first().map(Numbers::lengths).transpose()?;
            let null = null.map_or(0, |null| null.most());
            Ok(listed(list, rows)
                + items(list, rows) * (Numbers::lengths(separator)?.most() + null))
        }
        ("array_replace" | "array_replace_n" | "array_replace_all", [list, _, to, ..]) => {
            let to = match to {
                ColumnarValue::Scalar(value) => of_scalar(value),
                ColumnarValue::Array(_) if to.data_type().is_string() => {
                    Numbers::lengths(to)?.most()
                }
                ColumnarValue::Array(values) => of_array(values) / values.len().max(1) as u128,
            };
            let items = items(list, rows);
            let replaced = match (name, args.get(3)) {
                ("array_replace", _) => items.min(rows as u128),
                (_, Some(count)) => items.min(rows as u128 * Numbers::of(count)?.most()),
                _ => items,
            };
            Ok(sizes::of(list, rows) + replaced * to)
        }
        ("arrays_zip", lists) => zipped(lists, rows),
        ("bitmap_to_array" | "bitmap_to_string", [bitmaps]) => {
            // 18446744073709551615 and a comma.
            let width = if name == "bitmap_to_array" { 8 } else { 21 };
            Ok(width * of_bitmaps(bitmaps, rows))
        }
        (name, _) if PARTS.contains(&name) => Ok(parts()),
        (name, _) if TWICE.contains(&name) => Ok(2 * together()),
        _ => Ok(together()),
    }
}

/// A constant, if it is repeated for each row.
fn of_constant(arg: &ColumnarValue, rows: usize) -> u128 {
    match arg {
        ColumnarValue::Scalar(_) if rows > 1 => sizes::of(arg, rows),
        _ => 0,
    }
}

/// Row by row.
fn by_rows(name: &str, args: &[ColumnarValue], rows: usize) -> Result<u128> {
    let each: Box<dyn Fn(usize) -> u128> = match (name, args) {
        ("repeat", [text, count, ..]) => {
            let (bytes, count) = (Numbers::lengths(text)?, Numbers::of(count)?);
            Box::new(move |row| bytes.at(row) * count.at(row))
        }
        ("lpad" | "rpad", [text, count, fill @ ..]) => {
            let is_plain = fill.iter().all(|fill| constant(fill).is_some_and(str::is_ascii));
            let (bytes, count) = (Numbers::lengths(text)?, Numbers::of(count)?);
            let width = if is_plain { 1 } else { CHARACTER_BYTES };
            let fill = fill.iter().map(|fill| of_constant(fill, rows)).sum::<u128>();
            let fill = fill / rows.max(1) as u128;
            Box::new(move |row| bytes.at(row) + fill + width * count.at(row))
        }
        ("array_repeat", [value, count]) => {
            let count = Numbers::of(count)?;
            let bytes = match value {
                text if text.data_type().is_string() => Numbers::lengths(text)?,
                ColumnarValue::Scalar(value) => same(of_scalar(value)),
                ColumnarValue::Array(values) => {
                    same(of_array(values) / values.len().max(1) as u128)
                }
            };
            Box::new(move |row| (bytes.at(row) + OFFSET_BYTES / 2) * count.at(row))
        }
        ("array_resize", [list, count, fill @ ..]) => {
            let count = Numbers::of(count)?;
            let item = match list.data_type() {
                DataType::List(item) | DataType::LargeList(item) => {
                    item.data_type().primitive_width().map_or(OFFSET_BYTES, |width| width as u128)
                }
                _ => OFFSET_BYTES,
            };
            let fill = match fill.first() {
                Some(text) if text.data_type().is_string() => Numbers::lengths(text)?,
                Some(ColumnarValue::Scalar(value)) => same(of_scalar(value)),
                Some(ColumnarValue::Array(values)) => {
                    same(of_array(values) / values.len().max(1) as u128)
                }
                None => Numbers::same(0),
            };
            let list = sizes::of(list, rows) / rows.max(1) as u128;
            Box::new(move |row| list + (item + fill.at(row)) * count.at(row))
        }
        _ => return Ok(0),
    };
    Ok((0..rows).map(each).sum())
}

fn same(bytes: u128) -> Numbers {
    Numbers::same(i64::try_from(bytes).unwrap_or(i64::MAX))
}

/// Whole numbers, days or moments from one to another.
fn series(args: &[ColumnarValue], rows: usize) -> Result<u128> {
    let (start, stop, step) = match args {
        [stop] => (Numbers::same(0), Numbers::of(stop)?, Steps::Numbers(Numbers::same(1))),
        [start, stop] => {
            (Numbers::of(start)?, Numbers::of(stop)?, Steps::Numbers(Numbers::same(1)))
        }
        [start, stop, step, ..] => match (unit_nanoseconds(&stop.data_type()), step) {
            (Some(unit), step) => {
                (Numbers::of(start)?, Numbers::of(stop)?, Steps::intervals(step, unit)?)
            }
            (None, step) if step.data_type().is_integer() => {
                (Numbers::of(start)?, Numbers::of(stop)?, Steps::Numbers(Numbers::of(step)?))
            }
            _ => return Ok(0),
        },
        [] => return Ok(0),
    };
    let each = |row| {
        let (Some(start), Some(stop), Some((step, unit))) =
            (start.get(row), stop.get(row), step.at(row))
        else {
            return 0;
        };
        let is_forward = (start <= stop) == (step > 0);
        let steps = u128::from(stop.abs_diff(start)) * unit / step.unsigned_abs().max(1);
        // Of whole numbers and of moments; a day has half of it.
        if is_forward { 8 * (steps + 1) } else { 0 }
    };
    Ok((0..rows).map(each).sum())
}

/// By how much the values of a series differ.
enum Steps {
    Numbers(Numbers),
    /// In nanoseconds, of which `unit` are one of the numbers; of one row if it is for all.
    Intervals {
        nanoseconds: Vec<Option<i128>>,
        unit: u128,
    },
}

impl Steps {
    fn intervals(step: &ColumnarValue, unit: u128) -> Result<Self> {
        let array = match step {
            ColumnarValue::Array(array) => Arc::clone(array),
            ColumnarValue::Scalar(value) => value.to_array()?,
        };
        let intervals = array.as_primitive_opt::<IntervalMonthDayNanoType>();
        let nanoseconds = intervals.into_iter().flatten().map(|interval| {
            let interval = interval?;
            let days = i128::from(interval.months) * DAYS_PER_MONTH + i128::from(interval.days);
            Some(days * NANOSECONDS_PER_DAY + i128::from(interval.nanoseconds))
        });
        Ok(Self::Intervals { nanoseconds: nanoseconds.collect(), unit })
    }

    fn at(&self, row: usize) -> Option<(i128, u128)> {
        match self {
            Self::Numbers(numbers) => Some((i128::from(numbers.get(row)?), 1)),
            Self::Intervals { nanoseconds, unit } => {
                let row = if nanoseconds.len() == 1 { 0 } else { row };
                Some((nanoseconds.get(row).copied().flatten()?, *unit))
            }
        }
    }
}

/// One more day or moment.
fn unit_nanoseconds(data_type: &DataType) -> Option<u128> {
    match data_type {
        DataType::Date32 => Some(NANOSECONDS_PER_DAY as u128),
        DataType::Date64 | DataType::Timestamp(TimeUnit::Millisecond, _) => Some(1_000_000),
        DataType::Timestamp(TimeUnit::Second, _) => Some(1_000_000_000),
        DataType::Timestamp(TimeUnit::Microsecond, _) => Some(1000),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => Some(1),
        _ => None,
    }
}

fn replaced(
    text: &ColumnarValue,
    from: &ColumnarValue,
    to: &ColumnarValue,
    rows: usize,
    most: u128,
) -> Result<u128> {
    let whole = sizes::of(text, rows);
    let (bytes, width, with) =
        (Numbers::lengths(text)?, Numbers::lengths(from)?, Numbers::lengths(to)?);
    let grows = |row| with.at(row).saturating_sub(width.at(row));
    // An empty one is found before each character and at the end.
    let at_most = |row| bytes.at(row) / width.at(row).max(1) + 1;
    let bound = whole + (0..rows).map(|row| at_most(row) * grows(row)).sum::<u128>();
    if bound <= most {
        return Ok(bound);
    }
    let found = |row| match (text_at(text, row), text_at(from, row)) {
        (Some(text), Some(what)) if !what.is_empty() && grows(row) > 0 => count(text, what),
        _ => at_most(row),
    };
    Ok(whole + (0..rows).map(|row| found(row) * grows(row)).sum::<u128>())
}

/// How often it is found.
fn count(text: &str, what: &str) -> u128 {
    memmem::find_iter(text.as_bytes(), what).count() as u128
}

/// All groups that are named once come to no more than the text, however often the pattern is found.
fn regexp_replaced(
    text: &ColumnarValue,
    with: &ColumnarValue,
    flags: Option<&ColumnarValue>,
    rows: usize,
) -> Result<u128> {
    let whole = sizes::of(text, rows);
    let (bytes, with_bytes) = (Numbers::lengths(text)?, Numbers::lengths(with)?);
    let groups = sum_of_most(with, |with| {
        let marks = with.bytes().filter(|byte| matches!(byte, b'\\' | b'$'));
        marks.count() as u128
    });
    let is_once =
        flags.is_none_or(|flags| constant(flags).is_some_and(|flags| !flags.contains('g')));
    let found = |row| if is_once { 1 } else { bytes.at(row) + 1 };
    let put = (0..rows).map(|row| found(row) * with_bytes.at(row)).sum::<u128>();
    Ok(whole + put + groups * whole)
}

/// The longest of the patterns: they are compiled one after the other.
fn compiled(pattern: &ColumnarValue) -> u128 {
    COMPILED_BYTES * sum_of_most(pattern, |pattern| pattern.len() as u128)
}

/// The most that a text comes to.
fn sum_of_most(text: &ColumnarValue, each: impl Fn(&str) -> u128) -> u128 {
    match text {
        ColumnarValue::Scalar(_) => constant(text).map_or(0, each),
        ColumnarValue::Array(_) => {
            let most = std::cell::Cell::new(0);
            sum_of_texts(text, 1, |text| {
                most.set(most.get().max(each(text)));
                0
            });
            most.get()
        }
    }
}

fn in_case(name: &str, text: &ColumnarValue, rows: usize, most: u128) -> u128 {
    let whole = sizes::of(text, rows);
    if CASE_FACTOR * whole <= most {
        return CASE_FACTOR * whole;
    }
    let width = |text: &str| {
        if text.is_ascii() {
            return text.len() as u128;
        }
        let lower = |c: char| c.to_lowercase().map(char::len_utf8).sum::<usize>() as u128;
        let upper = |c: char| c.to_uppercase().map(char::len_utf8).sum::<usize>() as u128;
        match name {
            "lower" => text.chars().map(lower).sum(),
            "upper" => text.chars().map(upper).sum(),
            _ => text.chars().map(|c| upper(c).max(lower(c))).sum(),
        }
    };
    sum_of_texts(text, rows, width)
}

fn split(text: &ColumnarValue, delimiter: &ColumnarValue, rows: usize, most: u128) -> u128 {
    let whole = sizes::of(text, rows);
    let items = |count: u128| whole + OFFSET_BYTES * (count + rows as u128);
    match (delimiter, constant(delimiter)) {
        (ColumnarValue::Scalar(_), Some("")) => items(0),
        (ColumnarValue::Scalar(_), Some(delimiter)) => {
            let most_found = whole / delimiter.len() as u128;
            if items(most_found) <= most {
                return items(most_found);
            }
            items(sum_of_texts(text, rows, |text| count(text, delimiter)))
        }
        // NULL: each character; or one a row.
        _ => items(whole),
    }
}

/// Of lists, all of them.
fn items(list: &ColumnarValue, rows: usize) -> u128 {
    match list {
        ColumnarValue::Array(list) => leaves(list).0,
        ColumnarValue::Scalar(list) => sizes::list(list).map_or(0, |l| leaves(l).0) * rows as u128,
    }
}

/// Items as texts, without what is between them.
fn listed(list: &ColumnarValue, rows: usize) -> u128 {
    match list {
        ColumnarValue::Array(list) => as_texts(list),
        ColumnarValue::Scalar(list) => sizes::list(list).map_or(0, as_texts) * rows as u128,
    }
}

fn as_texts(list: &dyn Array) -> u128 {
    let (count, bytes) = leaves(list);
    match leaf_type(list.data_type()) {
        text if text.is_string() => bytes,
        DataType::Int64 => count * digits(list),
        decimal if decimal.is_decimal() => count * DECIMAL_TEXT_BYTES,
        _ => count * NUMBER_TEXT_BYTES,
    }
}

fn leaf_type(list: &DataType) -> &DataType {
    match list {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            leaf_type(item.data_type())
        }
        other => other,
    }
}

/// Of the longest whole number and its sign, if the list is one of numbers and of no lists.
fn digits(list: &dyn Array) -> u128 {
    let longest = 20;
    let Some(list) = list.as_list_opt::<i32>() else { return longest };
    let [first, .., last] = list.value_offsets() else { return longest };
    let numbers = list.values().slice(*first as usize, (last - first) as usize);
    let Some(numbers) = numbers.as_primitive_opt::<Int64Type>() else { return longest };
    let largest = numbers.iter().flatten().map(i64::unsigned_abs).max().unwrap_or_default();
    u128::from(largest.checked_ilog10().unwrap_or_default()) + 2
}

/// All are as long as the longest.
fn zipped(lists: &[ColumnarValue], rows: usize) -> Result<u128> {
    let lengths = lists.iter().map(Numbers::lengths).collect::<Result<Vec<_>>>()?;
    let longest = |row| lengths.iter().map(|list| list.at(row)).max().unwrap_or_default();
    let longest: u128 = (0..rows).map(longest).sum();
    let width: u128 = lists
        .iter()
        .map(|list| sizes::of(list, rows).div_ceil(items(list, rows).max(1)))
        .map(|width| width.min(1 << 40))
        .sum();
    let given: u128 = lists.iter().map(|list| sizes::of(list, rows)).sum();
    Ok((longest * width).max(given))
}

/// How many numbers are in them.
fn of_bitmaps(bitmaps: &ColumnarValue, rows: usize) -> u128 {
    let numbers = |bytes: &[u8]| uplake_functions::bitmap_len(bytes).map_or(0, u128::from);
    match bitmaps {
        ColumnarValue::Array(bitmaps) => match bitmaps.as_binary_opt::<i64>() {
            Some(bitmaps) => bitmaps.iter().flatten().map(numbers).sum(),
            None => 0,
        },
        ColumnarValue::Scalar(ScalarValue::LargeBinary(Some(bitmap))) => {
            numbers(bitmap) * rows as u128
        }
        ColumnarValue::Scalar(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{ArrayRef, Int64Array, ListArray, StringArray};

    const MOST: u128 = 1 << 20;

    fn number(value: i64) -> ColumnarValue {
        ColumnarValue::Scalar(ScalarValue::Int64(Some(value)))
    }

    fn text(value: &str) -> ColumnarValue {
        ColumnarValue::Scalar(ScalarValue::Utf8(Some(value.to_owned())))
    }

    fn of(name: &str, args: &[ColumnarValue], rows: usize) -> u128 {
        bytes(name, args, rows, MOST).unwrap()
    }

    fn texts() -> ColumnarValue {
        ColumnarValue::Array(Arc::new(StringArray::from(vec![Some("a"), None, Some("ééé")])))
    }

    #[test]
    fn results_are_reckoned_before_they_are_made() {
        assert_eq!(of("repeat", &[text("abc"), number(700)], 1), 2100);
        assert_eq!(of("repeat", &[text("abc"), number(-1)], 1), 0);
        let counts: ArrayRef = Arc::new(Int64Array::from(vec![Some(10), Some(10), Some(2)]));
        let columns = [texts(), ColumnarValue::Array(counts)];
        assert_eq!(of("repeat", &columns, 3), 10 + 12);
        assert_eq!(of("lpad", &columns, 3), 1 + 10 + 10 + 6 + 2);
        assert_eq!(of("lpad", &[text("a"), number(9), text("é")], 1), 37);
        assert_eq!(of("range", &[number(10)], 1), 88);
        assert_eq!(of("range", &[number(i64::MIN), number(i64::MAX)], 1), 8 << 64);
        assert_eq!(of("range", &[number(9), number(0), number(-3)], 1), 32);
        assert_eq!(of("range", &[number(9), number(0)], 1), 0);
        assert_eq!(of("array_repeat", &[text("abcd"), number(10)], 1), 120);
    }

    #[test]
    fn constants_count_for_each_row() {
        // Seven bytes and four offsets.
        assert_eq!(of("concat", &[texts(), text("xy")], 3), 7 + 16 + 6);
        assert_eq!(of("||", &[texts(), text("xy")], 3), 7 + 16 + 6);
        assert_eq!(of("concat_ws", &[text("--"), texts(), texts()], 3), 2 * 23 + 6);
        // Only what is repeated, of a function that gives a part.
        assert_eq!(of("substr", &[texts(), number(2)], 3), 48);
        assert_eq!(of("left", &[text(&"x".repeat(1000)), number(2)], 1), 0);
    }

    #[test]
    fn what_grows_has_a_formula() {
        let long = "a".repeat(1000);
        assert_eq!(of("replace", &[text(&long), text("a"), text("bb")], 1), 1000 + 1001);
        assert_eq!(of("replace", &[text(&long), text("aa"), text("b")], 1), 1000);
        // Counted, because the formula says too much: nothing is replaced.
        let to = text(&"c".repeat(2000));
        assert_eq!(of("replace", &[text(&long), text("b"), to.clone()], 1), 1000);
        assert_eq!(of("replace", &[text("aba"), text("a"), to.clone()], 1), 3 + 4 * 1999);
        // 44 bytes, and by each row: of the two long ones nothing is replaced.
        let long = "a".repeat(1000);
        let rows: ArrayRef = Arc::new(StringArray::from(vec!["ab", &long, "cb", &long]));
        let rows = ColumnarValue::Array(rows);
        let bytes = 2004 + 20;
        assert_eq!(of("replace", &[rows.clone(), text("b"), rows.clone()], 4), bytes + 2);
        assert_eq!(of("regexp_replace", &[rows.clone(), text("b"), rows], 4), 128 + 2 * bytes - 20);
        assert_eq!(of("regexp_replace", &[text("aba"), text("a"), text("xy")], 1), 128 + 3 + 2);
        let all = [text("aba"), text("a"), text("[\\1]"), text("g")];
        assert_eq!(of("regexp_replace", &all, 1), 128 + 3 + 4 * 4 + 3);
        assert_eq!(of("regexp_match", &[text("abcd"), text("(a)(b)")], 1), 6 * 128 + 2 * (4 + 16));
        assert_eq!(of("translate", &[text("abcd"), text("a"), text("é")], 1), 16);
        assert_eq!(of("upper", &[text("abcd")], 1), 12);
        let many = "ΐ".repeat(400_000);
        assert_eq!(of("upper", &[text(&many)], 1), 2_400_000);
        assert_eq!(of("upper", &[text(&"a".repeat(900_000))], 1), 900_000);
        assert_eq!(of("string_to_array", &[text("a,b,c"), text(",")], 1), 5 + 16 * 6);
        let list = ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(123); 100])]);
        let list = ColumnarValue::Array(Arc::new(list));
        assert_eq!(of("array_to_string", &[list.clone(), text("--")], 1), 100 * (4 + 2));
        assert_eq!(of("array_resize", &[list.clone(), number(1000)], 1), 808 + 8000);
        assert_eq!(of("arrays_zip", &[list.clone(), list], 1), 2 * 900);
    }
}
