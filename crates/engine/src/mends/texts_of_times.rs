//! `CAST(t AS TEXT)`, and `'at ' || t`, of a time have a `T` in them, and of an interval words: `1 mons 1 days`.
//!
//! PostgreSQL and DuckDB write `2001-02-16 20:00:00.5` and `1 mon 1 day 01:00:00`; a cast of text reads both.
//!
//! # Not here
//! Times of day, which a load makes text of, too, with three, six or nine digits: `10:00:00.500`.
//!
//! # Source
//! PostgreSQL 15, "Date/Time Output" and "Interval Output", with `DateStyle` ISO and `IntervalStyle` postgres.

use std::fmt::Write;
use std::sync::{Arc, LazyLock};

use chrono::{Datelike, NaiveDateTime, Offset, Timelike};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray, StringViewBuilder,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    ArrowTimestampType, DataType, IntervalMonthDayNano, IntervalMonthDayNanoType, TimeUnit,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType,
};
use datafusion::arrow::temporal_conversions::{as_datetime, as_datetime_with_timezone};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::one_argument::by_array;
use super::time_spans::{INTERVAL, days_and_clock};
use crate::base::error::EngineError;
use crate::base::sql_state::SqlState;

const SECOND_NANOS: u64 = 1_000_000_000;

/// A cast to text, by the function.
pub(super) fn of_postgres(mut expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let (value, wanted) = match &mut expr {
        Expr::Cast(cast) => (cast.expr.as_mut(), cast.field.data_type()),
        Expr::TryCast(cast) => (cast.expr.as_mut(), cast.field.data_type()),
        _ => return Transformed::no(expr),
    };
    if !wanted.is_string() || !value.get_type(schema).is_ok_and(|found| is_time(&found)) {
        return Transformed::no(expr);
    }
    let text = FUNCTION.call(vec![std::mem::take(value)]);
    if *wanted == DataType::Utf8View {
        return Transformed::yes(text);
    }
    *value = text;
    Transformed::yes(expr)
}

fn is_time(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(..) | DataType::Interval(_) | DataType::Duration(_))
}

pub(super) static FUNCTION: LazyLock<ScalarUDF> = LazyLock::new(|| {
    ScalarUDF::from(TextOfTime { signature: Signature::any(1, Volatility::Immutable) })
});

/// The text of a time with or without a zone, or of an interval.
#[derive(Debug, PartialEq, Eq, Hash)]
struct TextOfTime {
    signature: Signature,
}

impl ScalarUDFImpl for TextOfTime {
    fn name(&self) -> &'static str {
        "__text_of_time"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        by_array(&args, texts)
    }
}

fn texts(times: &ArrayRef) -> Result<ArrayRef> {
    match times.data_type() {
        DataType::Timestamp(unit, _) => match unit {
            TimeUnit::Second => moments::<TimestampSecondType>(times),
            TimeUnit::Millisecond => moments::<TimestampMillisecondType>(times),
            TimeUnit::Microsecond => moments::<TimestampMicrosecondType>(times),
            TimeUnit::Nanosecond => moments::<TimestampNanosecondType>(times),
        },
        DataType::Duration(_) => written(&days_and_clock(times)?, |span, text| {
            write_interval(span, text);
            Ok(())
        }),
        _ => {
            let intervals = cast(times, &INTERVAL)?;
            written(intervals.as_primitive::<IntervalMonthDayNanoType>(), |interval, text| {
                write_interval(interval, text);
                Ok(())
            })
        }
    }
}

/// The text of each value that is not NULL.
fn written<T: ArrowPrimitiveType>(
    values: &PrimitiveArray<T>,
    write: impl Fn(T::Native, &mut String) -> Result<()>,
) -> Result<ArrayRef> {
    let mut texts = StringViewBuilder::with_capacity(values.len());
    let mut text = String::new();
    for value in values {
        match value {
            None => texts.append_null(),
            Some(value) => {
                text.clear();
                write(value, &mut text)?;
                texts.try_append_value(&text)?;
            }
        }
    }
    Ok(Arc::new(texts.finish()))
}

fn moments<T: ArrowTimestampType>(times: &ArrayRef) -> Result<ArrayRef> {
    let zone = match times.data_type() {
        DataType::Timestamp(_, zone) => zone.as_deref().map(str::parse::<Tz>).transpose()?,
        _ => None,
    };
    written(times.as_primitive::<T>(), |value, text| {
        let local = match zone {
            None => as_datetime::<T>(value).map(|at| (at, None)),
            Some(zone) => as_datetime_with_timezone::<T>(value, zone)
                .map(|at| (at.naive_local(), Some(at.offset().fix().local_minus_utc()))),
        };
        let (at, offset) = local.ok_or_else(|| {
            let message = "the time is beyond the years that have a calendar";
            EngineError::statement(SqlState::DatetimeFieldOverflow, message)
        })?;
        write_moment(&at, offset, text);
        Ok(())
    })
}

/// `offset` in seconds east of Greenwich.
fn write_moment(at: &NaiveDateTime, offset: Option<i32>, text: &mut String) {
    // The year before 1 is 1 BC.
    let year = if at.year() > 0 { at.year() } else { 1 - at.year() };
    put(text, format_args!("{year:04}-{:02}-{:02} ", at.month(), at.day()));
    let seconds = u64::from(at.num_seconds_from_midnight());
    write_clock(seconds * SECOND_NANOS + u64::from(at.nanosecond()), text);
    if let Some(offset) = offset {
        text.push(if offset < 0 { '-' } else { '+' });
        let offset = offset.unsigned_abs();
        let (minutes, seconds) = (offset / 60 % 60, offset % 60);
        put(text, format_args!("{:02}", offset / 3600));
        if minutes != 0 || seconds != 0 {
            put(text, format_args!(":{minutes:02}"));
        }
        if seconds != 0 {
            put(text, format_args!(":{seconds:02}"));
        }
    }
    if at.year() <= 0 {
        text.push_str(" BC");
    }
}

/// Hours, minutes and seconds, whose fraction has no zeros behind.
fn write_clock(nanos: u64, text: &mut String) {
    let seconds = nanos / SECOND_NANOS;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    put(text, format_args!("{hours:02}:{minutes:02}:{seconds:02}"));
    let fraction = nanos % SECOND_NANOS;
    if fraction != 0 {
        put(text, format_args!(".{fraction:09}"));
        text.truncate(text.trim_end_matches('0').len());
    }
}

/// A part that is positive says so behind a negative one.
fn write_interval(interval: IntervalMonthDayNano, text: &mut String) {
    let IntervalMonthDayNano { months, days, nanoseconds } = interval;
    let mut is_behind_negative = false;
    for (number, unit) in [(months / 12, "year"), (months % 12, "mon"), (days, "day")] {
        if number == 0 {
            continue;
        }
        let space = if text.is_empty() { "" } else { " " };
        let sign = if is_behind_negative && number > 0 { "+" } else { "" };
        let plural = if number == 1 { "" } else { "s" };
        put(text, format_args!("{space}{sign}{number} {unit}{plural}"));
        is_behind_negative = number < 0;
    }
    if nanoseconds == 0 && !text.is_empty() {
        return;
    }
    if !text.is_empty() {
        text.push(' ');
    }
    if nanoseconds < 0 {
        text.push('-');
    } else if is_behind_negative {
        text.push('+');
    }
    write_clock(nanoseconds.unsigned_abs(), text);
}

fn put(text: &mut String, what: std::fmt::Arguments<'_>) {
    // Text takes all that is written to it.
    let _ = text.write_fmt(what);
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{
        DurationMicrosecondArray, IntervalMonthDayNanoArray, TimestampNanosecondArray,
    };

    use super::*;

    fn of(times: ArrayRef) -> Vec<String> {
        let texts = texts(&times).unwrap();
        texts.as_string_view().iter().map(|text| text.unwrap_or("NULL").to_owned()).collect()
    }

    /// What Postgres 15 writes.
    #[test]
    fn intervals_say_signs_as_postgres_does() {
        let hour = 3_600_000_000_000;
        let intervals = [
            ((0, 0, 0), "00:00:00"),
            ((1, 1, hour), "1 mon 1 day 01:00:00"),
            ((14, 0, 0), "1 year 2 mons"),
            ((-1, 1, -hour - 500_000_000), "-1 mons +1 day -01:00:00.5"),
            ((-14, 2, hour), "-1 years -2 mons +2 days 01:00:00"),
            ((0, -1, hour), "-1 days +01:00:00"),
            ((0, 0, 101 * hour), "101:00:00"),
        ];
        let values = intervals
            .iter()
            .map(|((months, days, nanos), _)| IntervalMonthDayNano::new(*months, *days, *nanos));
        let found = of(Arc::new(IntervalMonthDayNanoArray::from_iter_values(values)));
        let wanted: Vec<&str> = intervals.iter().map(|(_, text)| *text).collect();
        assert_eq!(found, wanted);
    }

    #[test]
    fn what_lies_between_moments_has_days() {
        let hour = 3_600_000_000;
        let lengths = DurationMicrosecondArray::from(vec![121 * hour, -25 * hour, 0]);
        assert_eq!(of(Arc::new(lengths)), ["5 days 01:00:00", "-1 days -01:00:00", "00:00:00"]);
    }

    #[test]
    fn moments_have_no_zeros_behind_and_offsets_only_the_parts_they_need() {
        let at = TimestampNanosecondArray::from(vec![Some(1_500_000_000), Some(-1), None]);
        let plain = ["1970-01-01 00:00:01.5", "1969-12-31 23:59:59.999999999", "NULL"];
        assert_eq!(of(Arc::new(at.clone())), plain);
        let east = at.clone().with_timezone("Asia/Kolkata");
        assert_eq!(of(Arc::new(east))[0], "1970-01-01 05:30:01.5+05:30");
        let west = at.with_timezone("-03:00");
        assert_eq!(of(Arc::new(west))[0], "1969-12-31 21:00:01.5-03");
    }
}
