//! `t AT TIME ZONE 'Europe/Berlin'`, which DataFusion takes for a cast: the zone stays with the time, so that a cast to
//! TIMESTAMP is of UTC again, the zone must be a literal, a local time that a change of clocks has twice is refused, and
//! times end in 2262.
//!
//! The statement's tree has the function in its place (`sql/rewrite.rs`), as PostgreSQL and DuckDB have it:
//! of a time with a zone it is the local time there, of one without it is the moment at which clocks there show it.
//!
//! # Source
//! PostgreSQL 15, "AT TIME ZONE", and `DetermineTimeZoneOffset` for a local time that clocks leave out (as if they had
//! not been put forward yet) or show twice (the second time).

use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use chrono::{DateTime, Datelike, MappedLocalTime, NaiveDate, NaiveDateTime, Offset, TimeZone};
use chrono_tz::{TZ_VARIANTS, Tz};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray, PrimitiveBuilder};
use datafusion::arrow::datatypes::{
    ArrowTimestampType, DataType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType,
};
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::base::error::EngineError;
use crate::base::sql_state::SqlState;

/// The zone of times that have one, as tables keep them.
const UTC: &str = "+00:00";
const DAY_SECONDS: i64 = 86_400;

/// `timezone(zone, time)`.
pub(super) fn function() -> ScalarUDF {
    ScalarUDF::from(AtTimeZone { signature: Signature::user_defined(Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct AtTimeZone {
    signature: Signature,
}

impl ScalarUDFImpl for AtTimeZone {
    fn name(&self) -> &'static str {
        "timezone"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [zone, time] = types else {
            return plan_err!("timezone has two arguments: a zone and a time");
        };
        if !zone.is_string() && !zone.is_null() {
            return plan_err!("a time zone is a text, such as 'Europe/Berlin', not {zone}");
        }
        let time = match time {
            DataType::Timestamp(..) => time.clone(),
            DataType::Date32 | DataType::Date64 | DataType::Null => {
                with_zone(TimeUnit::Microsecond)
            }
            text if text.is_string() => with_zone(TimeUnit::Microsecond),
            other => return plan_err!("AT TIME ZONE is of dates and times, not of {other}"),
        };
        Ok(vec![DataType::Utf8, time])
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [_, DataType::Timestamp(unit, None)] => Ok(with_zone(*unit)),
            [_, DataType::Timestamp(unit, Some(_))] => Ok(DataType::Timestamp(*unit, None)),
            _ => internal_err!("timezone of {types:?}"),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [zone, time] = args.args.as_slice() else {
            return internal_err!("timezone has two arguments");
        };
        let are_scalars =
            matches!((zone, time), (ColumnarValue::Scalar(_), ColumnarValue::Scalar(_)));
        let times = time.to_array(if are_scalars { 1 } else { args.number_rows })?;
        let zones = match zone {
            ColumnarValue::Scalar(zone) => match zone.try_as_str().flatten() {
                Some(zone) => Zones::One(named(zone)?),
                None => {
                    return Ok(ColumnarValue::Scalar(ScalarValue::try_new_null(
                        args.return_type(),
                    )?));
                }
            },
            ColumnarValue::Array(zones) => Zones::Each(zones),
        };
        let DataType::Timestamp(unit, _) = times.data_type() else {
            return internal_err!("timezone of {}", times.data_type());
        };
        let moved = match unit {
            TimeUnit::Second => moved::<TimestampSecondType>(&zones, &times, 1),
            TimeUnit::Millisecond => moved::<TimestampMillisecondType>(&zones, &times, 1_000),
            TimeUnit::Microsecond => moved::<TimestampMicrosecondType>(&zones, &times, 1_000_000),
            TimeUnit::Nanosecond => moved::<TimestampNanosecondType>(&zones, &times, 1_000_000_000),
        }?;
        Ok(match are_scalars {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&moved, 0)?),
            false => ColumnarValue::Array(moved),
        })
    }
}

fn with_zone(unit: TimeUnit) -> DataType {
    DataType::Timestamp(unit, Some(UTC.into()))
}

/// Of all rows, or of each.
enum Zones<'a> {
    One(Tz),
    Each(&'a ArrayRef),
}

fn moved<T: ArrowTimestampType>(
    zones: &Zones<'_>,
    times: &ArrayRef,
    second: i64,
) -> Result<ArrayRef> {
    let is_local = matches!(times.data_type(), DataType::Timestamp(_, None));
    let times: &PrimitiveArray<T> = times.as_primitive();
    let one = |time: i64, zone: Tz| {
        let seconds = time.div_euclid(second);
        let moved = match is_local {
            true => {
                offset_of_local(zone, seconds).and_then(|offset| time.checked_sub(offset * second))
            }
            false => offset_at(zone, seconds).and_then(|offset| time.checked_add(offset * second)),
        };
        moved.ok_or_else(|| {
            let message = "AT TIME ZONE: the time is beyond the years that have a calendar";
            EngineError::statement(SqlState::DatetimeFieldOverflow, message)
        })
    };
    let moved = match zones {
        Zones::One(zone) => times.try_unary::<_, T, EngineError>(|time| one(time, *zone))?,
        Zones::Each(zones) => {
            let names = zones.as_string::<i32>();
            let mut moved = PrimitiveBuilder::<T>::with_capacity(times.len());
            let mut last: Option<(&str, Tz)> = None;
            for (time, name) in times.iter().zip(names) {
                let (Some(time), Some(name)) = (time, name) else {
                    moved.append_null();
                    continue;
                };
                let zone = match last {
                    Some((known, zone)) if known == name => zone,
                    _ => named(name)?,
                };
                last = Some((name, zone));
                moved.append_value(one(time, zone)?);
            }
            moved.finish()
        }
    };
    let zone = is_local.then(|| UTC.into());
    Ok(Arc::new(moved.with_timezone_opt::<Arc<str>>(zone)))
}

/// A zone by its name, in any case.
fn named(name: &str) -> Result<Tz> {
    let name = name.trim();
    let known = Tz::from_str(name).ok().or_else(|| {
        TZ_VARIANTS.iter().find(|zone| zone.name().eq_ignore_ascii_case(name)).copied()
    });
    known.ok_or_else(|| {
        let error = EngineError::statement(
            SqlState::InvalidParameterValue,
            format!("time zone \"{name}\" is not known"),
        );
        // What a sign means is the opposite in PostgreSQL, in its names of zones and in times that are written.
        let hint = "write a name as 'Europe/Berlin', or add an INTERVAL to a time of 'UTC'";
        error.with_hint(hint).into()
    })
}

/// 2100-01-01, which is where what is known of zones ends.
const UNKNOWN_SECONDS: i64 = 4_102_444_800;
/// The last years that are known; days of the week and leap years are those of 28 years before.
const KNOWN_YEARS: Range<i32> = 2072..2100;

/// The same moment in a year that begins on the same day of the week and has as many days, if the year is not known:
/// its clocks are changed on the same days.
fn in_known_year(seconds: i64) -> Option<NaiveDateTime> {
    let at = DateTime::from_timestamp(seconds, 0)?.naive_utc();
    if seconds < UNKNOWN_SECONDS {
        return Some(at);
    }
    let first_day = |year| NaiveDate::from_yo_opt(year, 1);
    let first = first_day(at.year())?;
    let is_alike =
        |day: &NaiveDate| day.weekday() == first.weekday() && day.leap_year() == first.leap_year();
    let alike = KNOWN_YEARS.filter_map(first_day).find(is_alike)?;
    at.checked_add_signed(alike - first)
}

/// Seconds east of Greenwich, at a moment in seconds since 1970.
fn offset_at(zone: Tz, seconds: i64) -> Option<i64> {
    let at = in_known_year(seconds)?;
    Some(zone.offset_from_utc_datetime(&at).fix().local_minus_utc().into())
}

/// The same, when clocks there show so many seconds since 1970.
fn offset_of_local(zone: Tz, seconds: i64) -> Option<i64> {
    let shown = in_known_year(seconds)?;
    let east = |offset: chrono_tz::TzOffset| i64::from(offset.fix().local_minus_utc());
    match zone.offset_from_local_datetime(&shown) {
        MappedLocalTime::Single(offset) => Some(east(offset)),
        MappedLocalTime::Ambiguous(one, other) => Some(east(one).min(east(other))),
        MappedLocalTime::None => offset_at(zone, seconds.checked_sub(DAY_SECONDS)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(text: &str) -> i64 {
        chrono::NaiveDateTime::from_str(text).unwrap().and_utc().timestamp()
    }

    /// What Postgres 15 has for these.
    #[test]
    fn clocks_that_are_changed_are_read_as_postgres_reads_them() {
        let berlin = named("europe/berlin").unwrap();
        for (shown, hours) in [
            ("2024-03-31T01:59:59", 1),
            ("2024-03-31T02:30:00", 1), // left out
            ("2024-03-31T03:00:00", 2),
            ("2024-10-27T01:59:59", 2),
            ("2024-10-27T02:30:00", 1), // shown twice
            ("2024-10-27T03:00:00", 1),
        ] {
            assert_eq!(offset_of_local(berlin, seconds(shown)), Some(3600 * hours), "{shown}");
        }
        // Years that the zones' list does not have.
        for (shown, hours) in [
            ("2500-03-28T01:59:59", 1),
            ("2500-03-28T03:00:00", 2),
            ("2500-10-31T01:59:59", 2),
            ("2500-10-31T02:30:00", 1),
            ("2104-07-01T00:00:00", 2),
            ("2100-01-01T00:00:00", 1),
        ] {
            assert_eq!(offset_of_local(berlin, seconds(shown)), Some(3600 * hours), "{shown}");
        }
        assert_eq!(offset_at(berlin, seconds("2024-03-31T00:59:59")), Some(3600));
        assert_eq!(offset_at(berlin, seconds("2024-03-31T01:00:00")), Some(7200));
    }

    #[test]
    fn zones_have_names() {
        for known in ["UTC", "America/New_York", "AMERICA/new_york", " GMT ", "EST", "Etc/GMT+3"] {
            assert!(named(known).is_ok(), "{known}");
        }
        for other in ["", "+01:00", "Berlin", "é"] {
            assert!(named(other).is_err(), "{other}");
        }
    }
}
