//! Text to values without loss, where the decoders of arrow-csv and arrow-json would cut.
//!
//! They cut decimals to the column's scale, times to microseconds and, for a column of dates, to days, shift
//! times with a zone into columns without one, and arrow-json reads 1.5 into a whole-number column as 1.
//! Such columns, and what lists and objects have of such types, are decoded as text first and converted
//! here, where anything that would change is refused.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Date32Array, Decimal128Array, Int8Array, Int16Array, Int32Array,
    Int64Array, ListArray, MapArray, RecordBatch, StringArray, StructArray,
    TimestampMicrosecondArray,
};
use arrow::compute::kernels::cast_utils::string_to_datetime;
use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;
use chrono::{NaiveDate, Utc};

/// Does text of this type go through here? `json`: whole numbers do too.
pub(super) fn is_strict(data_type: &DataType, json: bool) -> bool {
    match data_type {
        DataType::Decimal128(_, _) | DataType::Timestamp(_, _) | DataType::Date32 => true,
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => json,
        _ => false,
    }
}

/// The schema to decode with: strict columns as text.
pub(super) fn reading_schema(schema: &SchemaRef, json: bool) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| reading_field(field, json));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn reading_field(field: &FieldRef, json: bool) -> FieldRef {
    let inner = |field: &FieldRef| reading_field(field, json);
    let data_type = match field.data_type() {
        strict if is_strict(strict, json) => DataType::Utf8,
        DataType::List(item) => DataType::List(inner(item)),
        DataType::Map(entries, sorted) => DataType::Map(inner(entries), *sorted),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(inner).collect()),
        _ => return Arc::clone(field),
    };
    Arc::new(field.as_ref().clone().with_data_type(data_type))
}

/// Converts the strict columns of a decoded batch.
///
/// # Errors
/// The first value that would not survive.
pub(super) fn convert(batch: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    if batch.schema_ref() == schema {
        return Ok(batch);
    }
    let columns = batch
        .columns()
        .iter()
        .zip(schema.fields())
        .map(|(column, field)| converted(column, field.data_type()))
        .collect::<Result<Vec<_>, _>>()?;
    RecordBatch::try_new(Arc::clone(schema), columns)
}

pub(super) fn converted(column: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    if column.data_type() == to {
        return Ok(Arc::clone(column));
    }
    let nulls = column.nulls().cloned();
    Ok(match to {
        DataType::List(item) => {
            let list = column.as_list::<i32>();
            let values = converted(list.values(), item.data_type())?;
            let offsets = list.offsets().clone();
            Arc::new(ListArray::try_new(Arc::clone(item), offsets, values, nulls)?)
        }
        DataType::Map(entries, sorted) => {
            let map = column.as_map();
            let all: ArrayRef = Arc::new(map.entries().clone());
            let all = converted(&all, entries.data_type())?.as_struct().clone();
            let offsets = map.offsets().clone();
            Arc::new(MapArray::try_new(Arc::clone(entries), offsets, all, nulls, *sorted)?)
        }
        DataType::Struct(fields) => {
            let columns = column.as_struct().columns().iter().zip(fields);
            let columns = columns.map(|(column, field)| converted(column, field.data_type()));
            let columns = columns.collect::<Result<Vec<_>, _>>()?;
            Arc::new(StructArray::try_new(fields.clone(), columns, nulls)?)
        }
        to => column_of(column.as_string::<i32>(), to)?,
    })
}

fn column_of(text: &StringArray, data_type: &DataType) -> Result<ArrayRef, ArrowError> {
    Ok(match data_type {
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let values: TimestampMicrosecondArray =
                parsed(text, |t| micros(t, zone.is_some()))?.into_iter().collect();
            Arc::new(values.with_timezone_opt(zone.clone()))
        }
        DataType::Decimal128(precision, scale) => {
            let values: Decimal128Array =
                parsed(text, |t| decimal(t, *precision, *scale))?.into_iter().collect();
            Arc::new(values.with_precision_and_scale(*precision, *scale)?)
        }
        DataType::Date32 => Arc::new(Date32Array::from(parsed(text, day)?)),
        DataType::Int8 => Arc::new(Int8Array::from(parsed(text, whole)?)),
        DataType::Int16 => Arc::new(Int16Array::from(parsed(text, whole)?)),
        DataType::Int32 => Arc::new(Int32Array::from(parsed(text, whole)?)),
        DataType::Int64 => Arc::new(Int64Array::from(parsed(text, whole)?)),
        other => return Err(ArrowError::CastError(format!("text cannot become {other}"))),
    })
}

/// Would text that is not empty, which is NULL, be converted to this type?
pub(super) fn is_of(text: &str, to: &DataType) -> bool {
    match to {
        DataType::Timestamp(TimeUnit::Microsecond, zone) => micros(text, zone.is_some()).is_some(),
        DataType::Decimal128(precision, scale) => decimal(text, *precision, *scale).is_some(),
        DataType::Date32 => day(text).is_some(),
        DataType::Int8 => whole::<i8>(text).is_some(),
        DataType::Int16 => whole::<i16>(text).is_some(),
        DataType::Int32 => whole::<i32>(text).is_some(),
        DataType::Int64 => whole::<i64>(text).is_some(),
        _ => false,
    }
}

fn parsed<T>(
    text: &StringArray,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Vec<Option<T>>, ArrowError> {
    let one = |value: Option<&str>| match value {
        None | Some("") => Ok(None),
        Some(value) => parse(value)
            .map(Some)
            .ok_or_else(|| ArrowError::ParseError(format!("{value:?} does not fit the column"))),
    };
    text.iter().map(one).collect()
}

fn whole<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

/// Microseconds since 1970. A zone is needed or refused as the column's type says; without one in a
/// `timestamptz` column, UTC is meant.
fn micros(text: &str, zoned: bool) -> Option<i64> {
    plain_micros(text, zoned).or_else(|| any_micros(text, zoned))
}

/// Of `2026-11-01 10:00:00` and the like, which nearly all times are: in a tenth of the time of chrono.
fn plain_micros(text: &str, zoned: bool) -> Option<i64> {
    let text = text.strip_suffix('Z').filter(|_| zoned).unwrap_or(text);
    let (second, fraction) = text.as_bytes().split_first_chunk::<19>()?;
    let separators = [second[4], second[7], second[10], second[13], second[16]];
    if !matches!(separators, [b'-', b'-', b' ' | b'T', b':', b':']) {
        return None;
    }
    let (hour, minute) = (number(&second[11..13])?, number(&second[14..16])?);
    let (day, second) = (days(&second[..10])?, number(&second[17..])?);
    let fraction = match fraction.split_first() {
        None => 0,
        Some((b'.', digits)) if (1..=6).contains(&digits.len()) => {
            number(digits)? * 10_i32.pow(6 - digits.len() as u32)
        }
        Some(_) => return None,
    };
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = i64::from(day) * 86_400 + i64::from((hour * 60 + minute) * 60 + second);
    Some(seconds * 1_000_000 + i64::from(fraction))
}

/// At most nine digits.
fn number(digits: &[u8]) -> Option<i32> {
    digits.iter().try_fold(0, |number: i32, digit| {
        digit.is_ascii_digit().then(|| number * 10 + i32::from(digit - b'0'))
    })
}

/// Days since 1970 of `2026-11-01`, whatever stands in place of the dashes.
fn days(date: &[u8]) -> Option<i32> {
    let (year, month, day) = (number(&date[..4])?, number(&date[5..7])?, number(&date[8..])?);
    let date = NaiveDate::from_ymd_opt(year, month.try_into().ok()?, day.try_into().ok()?)?;
    Some(date.to_epoch_days())
}

fn any_micros(text: &str, zoned: bool) -> Option<i64> {
    let fraction = text.split_once('.').map_or("", |(_, rest)| rest);
    let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
    if fraction.as_bytes()[..digits].iter().skip(6).any(|d| *d != b'0') {
        return None;
    }
    // A zone may have a name, so it is whatever a time is not made of.
    let time = text.get(10..).unwrap_or_default();
    let is_time = |c: char| c.is_ascii_digit() || matches!(c, ' ' | 'T' | 't' | ':' | '.');
    if !zoned && !time.chars().all(is_time) {
        return None;
    }
    string_to_datetime(&Utc, text).ok().map(|t| t.timestamp_micros())
}

/// Days since 1970; of a time only the first instant of a day is one.
fn day(text: &str) -> Option<i32> {
    const MICROS: i64 = 86_400_000_000;
    if let Some(digits) = text.as_bytes().first_chunk::<10>().filter(|_| text.len() == 10)
        && digits[4] == b'-'
        && digits[7] == b'-'
    {
        return days(digits);
    }
    // Of a year of two digits nobody knows the century.
    let has_year = text.starts_with(['+', '-']) || text.as_bytes().get(4) == Some(&b'-');
    if has_year && let Ok(date) = NaiveDate::parse_from_str(text, "%Y-%m-%d") {
        return Some(date.to_epoch_days());
    }
    let micros = micros(text, false).filter(|micros| micros % MICROS == 0)?;
    i32::try_from(micros / MICROS).ok()
}

fn decimal(text: &str, precision: u8, scale: i8) -> Option<i128> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let fraction = fraction.trim_end_matches('0');
    let scale = usize::try_from(scale).ok()?;
    if fraction.len() > scale || whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let padding = std::iter::repeat_n(b'0', scale - fraction.len());
    let mut value: i128 = 0;
    for digit in whole.bytes().chain(fraction.bytes()).chain(padding) {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(i128::from(digit - b'0'))?;
    }
    if value >= 10i128.pow(u32::from(precision)) {
        return None;
    }
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_keep_every_digit_or_are_refused() {
        for (text, expected) in [
            ("12.34", Some(1234)),
            ("-0.5", Some(-50)),
            ("7", Some(700)),
            ("7.000", Some(700)),
            (".5", Some(50)),
            ("12.345", None),
            ("123456.00", None),
            ("99999.99", Some(9_999_999)),
            ("1e3", None),
            ("", None),
            ("-", None),
            ("1.2.3", None),
        ] {
            assert_eq!(decimal(text, 7, 2), expected, "{text}");
        }
    }

    #[test]
    fn times_keep_every_digit_or_are_refused() {
        assert_eq!(micros("1970-01-01 00:00:01.5", false), Some(1_500_000));
        assert_eq!(micros("1970-01-01T00:00:00.123456000", false), Some(123_456));
        assert_eq!(micros("1970-01-01 00:00:00.123456789", false), None);
        assert_eq!(micros("1970-01-01T01:00:00+01:00", true), Some(0));
        assert_eq!(micros("1970-01-01T01:00:00+01:00", false), None);
        assert_eq!(micros("1970-01-01T00:00:00Z", false), None);
        assert_eq!(micros("1970-01-01 10:00:00 Europe/Berlin", false), None);
        assert_eq!(micros("1970-01-01 00:00:00", true), Some(0));
        assert_eq!(micros("1970-01-01", false), Some(0));
        assert_eq!(micros("yesterday", false), None);
    }

    #[test]
    fn plain_times_are_what_chrono_makes_of_them() {
        let seconds = ["00:00:00", "23:59:59", "24:00:00", "12:60:00", "12:00:60", "1a:00:00"];
        let mut plain = 0;
        for date in
            ["2026-11-01", "1969-12-31", "2024-02-29", "2026-02-29", "0000-01-01", "2026-1-01"]
        {
            for second in seconds {
                for fraction in ["", ".5", ".123456", ".1234567", ".", "Z", ".25Z", "+01:00"] {
                    for between in [" ", "T", "t", "_"] {
                        let text = format!("{date}{between}{second}{fraction}");
                        for zoned in [false, true] {
                            let Some(found) = plain_micros(&text, zoned) else { continue };
                            assert_eq!(Some(found), any_micros(&text, zoned), "{text}");
                            plain += 1;
                        }
                    }
                }
            }
        }
        assert!(plain > 100, "{plain}");
    }

    #[test]
    fn days_are_whole_days_or_refused() {
        for (text, expected) in [
            ("1970-01-02", Some(1)),
            ("1969-12-31", Some(-1)),
            ("2026-11-01", Some(20_758)),
            ("2026-11-31", None),
            ("2026-11-0a", None),
            ("1970-1-3", Some(2)),
            ("1970-01-02 00:00:00", Some(1)),
            ("1970-01-02T00:00:00.000", Some(1)),
            ("1970-01-02 00:00:01", None),
            ("1970-01-02T00:30:00+02:00", None),
            ("1970-01-02T00:00:00Z", None),
            ("20261101", None),
            ("80-01-01", None),
            ("31-12-24", None),
            (" 026-11-01", None),
            ("2.5", None),
            ("yesterday", None),
        ] {
            assert_eq!(day(text), expected, "{text}");
        }
    }

    #[test]
    fn whole_numbers_are_whole() {
        assert_eq!(whole::<i64>("1.5"), None);
        assert_eq!(whole::<i8>("200"), None);
        assert_eq!(whole::<i64>("-3"), Some(-3));
    }
}
