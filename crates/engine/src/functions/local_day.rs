//! `local_day(time, zone)`: the date that a clock in a time zone shows.

use std::sync::Arc;

use chrono::{DateTime, Datelike, Offset, TimeZone};
use chrono_tz::Tz;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, Date32Array};
use datafusion::arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType};
use datafusion::common::{DataFusionError, Result, ScalarValue, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::base::error::EngineError;
use crate::base::sql_state::SqlState;

const DAY_MICROS: i64 = 86_400_000_000;
/// UTC days whose offset is remembered; data rarely span more at a time.
const REMEMBERED: usize = 128;
/// 1970-01-01 counted from the first day of the year 1.
const UNIX_EPOCH_FROM_CE: i32 = 719_163;

/// Local days of instants, fast for instants of few different days.
pub(crate) struct LocalDays {
    zone: Tz,
    /// Per slot a UTC day and the offset that holds all through it, if one does.
    offsets: Vec<Option<(i64, Option<i64>)>>,
    /// The last answer, and instants that have the same: half-open.
    last: (i64, i64, i32),
}

impl LocalDays {
    pub fn new(zone: Tz) -> Self {
        Self { zone, offsets: vec![None; REMEMBERED], last: (0, 0, 0) }
    }

    /// Days since 1970 in the zone; `None` for an instant that no calendar has.
    pub fn day(&mut self, micros: i64) -> Option<i32> {
        let (from, to, day) = self.last;
        if (from..to).contains(&micros) {
            return Some(day);
        }
        let utc_day = micros.div_euclid(DAY_MICROS);
        let slot = utc_day.rem_euclid(REMEMBERED as i64) as usize;
        let offset = match self.offsets[slot] {
            Some((known, offset)) if known == utc_day => offset,
            _ => {
                let first = utc_day.checked_mul(DAY_MICROS)?;
                let last = first.checked_add(DAY_MICROS - 1)?;
                let offset = self.offset(first)?;
                let offset = (self.offset(last) == Some(offset)).then_some(offset);
                self.offsets[slot] = Some((utc_day, offset));
                offset
            }
        };
        let Some(offset) = offset else {
            let local = micros + self.offset(micros)?;
            return i32::try_from(local.div_euclid(DAY_MICROS)).ok();
        };
        let local = (micros + offset).div_euclid(DAY_MICROS);
        let day = i32::try_from(local).ok()?;
        // The part of the local day that lies in this UTC day has one offset.
        let (from, utc_from) = (local * DAY_MICROS - offset, utc_day * DAY_MICROS);
        self.last = (from.max(utc_from), (from + DAY_MICROS).min(utc_from + DAY_MICROS), day);
        Some(day)
    }

    fn offset(&self, micros: i64) -> Option<i64> {
        let utc = DateTime::from_timestamp_micros(micros)?.naive_utc();
        let offset = self.zone.offset_from_utc_datetime(&utc).fix();
        Some(i64::from(offset.local_minus_utc()) * 1_000_000)
    }
}

/// Days since 1970 of a date, as Arrow counts them.
pub(crate) fn day_number(date: chrono::NaiveDate) -> i32 {
    date.num_days_from_ce() - UNIX_EPOCH_FROM_CE
}

/// The text of a day: "2026-11-01".
pub(crate) fn day_text(day: i32) -> String {
    let date =
        day.checked_add(UNIX_EPOCH_FROM_CE).and_then(chrono::NaiveDate::from_num_days_from_ce_opt);
    date.map_or_else(|| format!("day {day}"), |date| date.to_string())
}

/// The function, to be registered with a session.
pub(crate) fn local_day() -> ScalarUDF {
    ScalarUDF::from(LocalDay { signature: Signature::user_defined(Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct LocalDay {
    signature: Signature,
}

impl ScalarUDFImpl for LocalDay {
    fn name(&self) -> &'static str {
        "local_day"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [DataType::Timestamp(_, _) | DataType::Date32 | DataType::Null, zone]
                if zone.is_string() || zone.is_null() =>
            {
                Ok(vec![DataType::Timestamp(TimeUnit::Microsecond, None), DataType::Utf8])
            }
            _ => plan_err!("local_day takes a time and an IANA time zone, such as 'Europe/Berlin'"),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Date32)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let zone = match &args.args[1] {
            ColumnarValue::Scalar(ScalarValue::Utf8(Some(name))) => match name.parse::<Tz>() {
                Ok(zone) => zone,
                Err(_) => return Err(no_zone(format!("local_day: unknown time zone `{name}`"))),
            },
            _ => {
                return Err(no_zone("local_day needs one IANA time zone, such as 'Europe/Berlin'"));
            }
        };
        let times: ArrayRef = args.args[0].to_array(args.number_rows)?;
        let times = times.as_primitive::<TimestampMicrosecondType>();
        let mut days = LocalDays::new(zone);
        let day = |row: usize| times.is_valid(row).then(|| days.day(times.value(row))).flatten();
        Ok(ColumnarValue::Array(Arc::new((0..times.len()).map(day).collect::<Date32Array>())))
    }
}

fn no_zone(message: impl Into<String>) -> DataFusionError {
    EngineError::execution(SqlState::InvalidParameterValue, message).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every half hour of two years against chrono, in zones that change their clocks at midnight,
    /// skip a day, or never change.
    #[test]
    fn days_are_those_that_chrono_names() {
        for name in ["UTC", "Europe/Berlin", "America/Sao_Paulo", "Pacific/Apia", "Asia/Kolkata"] {
            let zone: Tz = name.parse().unwrap();
            let mut days = LocalDays::new(zone);
            let start = DateTime::parse_from_rfc3339("2011-01-01T00:00:00Z").unwrap();
            for half_hour in 0..48 * 730 {
                let time = start + chrono::Duration::minutes(30 * half_hour);
                let expected = time.with_timezone(&zone).date_naive();
                let day = days.day(time.timestamp_micros()).unwrap();
                assert_eq!(day_text(day), expected.to_string(), "{time} in {name}");
                assert_eq!(day, day_number(expected));
            }
        }
    }

    #[test]
    fn the_day_before_1970_is_minus_one() {
        assert_eq!(LocalDays::new(Tz::UTC).day(-1), Some(-1));
        assert_eq!(LocalDays::new(Tz::UTC).day(i64::MIN), None);
    }
}
