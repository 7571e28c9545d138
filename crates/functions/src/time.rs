//! Times and spans of time as functions take them.

use arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion_common::{Result, ScalarValue};

use crate::error::refuse;

const NANOS_PER_DAY: i128 = 86_400_000_000_000;
const NANOS_PER_SECOND: i128 = 1_000_000_000;

/// The type a time is cast to: timestamps keep their unit, whole numbers have one of their own.
pub(crate) fn time_type(given: &DataType, function: &str) -> Result<DataType> {
    match given {
        time @ DataType::Timestamp(_, _) => Ok(time.clone()),
        DataType::Date32 => Ok(DataType::Timestamp(TimeUnit::Second, None)),
        DataType::Date64 => Ok(DataType::Timestamp(TimeUnit::Millisecond, None)),
        DataType::Null => Ok(DataType::Timestamp(TimeUnit::Microsecond, None)),
        whole if whole.is_integer() => Ok(DataType::Int64),
        _ => refuse!(Call, "the time of {function} is a timestamp, a date or a whole number"),
    }
}

/// Units of a time column in a second; `None` for whole numbers, whose unit nobody knows.
pub(crate) fn ticks(time: &DataType) -> Option<i64> {
    match time {
        DataType::Timestamp(TimeUnit::Second, _) => Some(1),
        DataType::Timestamp(TimeUnit::Millisecond, _) => Some(1000),
        DataType::Timestamp(TimeUnit::Microsecond, _) => Some(1_000_000),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => Some(1_000_000_000),
        _ => None,
    }
}

/// The type a span is cast to. `what` names it in messages, such as "window".
pub(crate) fn span_type(given: &DataType, what: &str, function: &str) -> Result<DataType> {
    match given {
        DataType::Interval(_) | DataType::Duration(_) => {
            Ok(DataType::Interval(IntervalUnit::MonthDayNano))
        }
        whole if whole.is_integer() => Ok(DataType::Int64),
        _ => refuse!(Call, "the {what} of {function} is an INTERVAL or whole seconds, from 0"),
    }
}

/// A span in units of the time column, rounded down; whole numbers are seconds, or for times that
/// are whole numbers, of their unit.
pub(crate) fn span(
    given: &ScalarValue,
    time: &DataType,
    what: &str,
    function: &str,
) -> Result<i64> {
    let units = match (given, ticks(time)) {
        (ScalarValue::Int64(Some(number)), ticks) => {
            Some(i128::from(*number) * i128::from(ticks.unwrap_or(1)))
        }
        (ScalarValue::IntervalMonthDayNano(Some(span)), _) if span.months != 0 => {
            return refuse!(
                Value,
                "the {what} of {function} has months, which differ in length; give days"
            );
        }
        (ScalarValue::IntervalMonthDayNano(Some(_)), None) => {
            return refuse!(
                Value,
                "the times of {function} are whole numbers, so its {what} is one too, in their unit"
            );
        }
        (ScalarValue::IntervalMonthDayNano(Some(span)), Some(ticks)) => {
            let nanos = i128::from(span.days) * NANOS_PER_DAY + i128::from(span.nanoseconds);
            Some((nanos * i128::from(ticks)).div_euclid(NANOS_PER_SECOND))
        }
        _ => None,
    };
    match units.map(|units| i64::try_from(units.min(i64::MAX.into()))) {
        Some(Ok(units)) if units >= 0 => Ok(units),
        _ => refuse!(Value, "the {what} of {function} is an INTERVAL or whole seconds, from 0"),
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::IntervalMonthDayNanoType;

    use super::*;

    #[test]
    fn spans_are_in_the_unit_of_the_times() {
        let interval = |months, days, nanos| {
            let span = IntervalMonthDayNanoType::make_value(months, days, nanos);
            ScalarValue::IntervalMonthDayNano(Some(span))
        };
        let timestamp = |unit| DataType::Timestamp(unit, None);
        let of = |given: &ScalarValue, time| span(given, &time, "window", "f");
        let ok = |given, time| of(&given, time).unwrap();
        assert_eq!(ok(interval(0, 1, 5), timestamp(TimeUnit::Nanosecond)), 86_400_000_000_005);
        assert_eq!(ok(interval(0, 0, 1_999), timestamp(TimeUnit::Microsecond)), 1);
        assert_eq!(ok(ScalarValue::Int64(Some(60)), timestamp(TimeUnit::Millisecond)), 60_000);
        assert_eq!(ok(ScalarValue::Int64(Some(60)), DataType::Int64), 60);
        let huge = ScalarValue::Int64(Some(i64::MAX));
        assert_eq!(ok(huge, timestamp(TimeUnit::Nanosecond)), i64::MAX);
        let error = |given, time| of(&given, time).unwrap_err().to_string();
        assert!(error(interval(1, 0, 0), timestamp(TimeUnit::Second)).contains("has months"));
        assert!(error(interval(0, 1, 0), DataType::Int64).contains("in their unit"));
        assert!(error(interval(0, 0, -1), timestamp(TimeUnit::Second)).contains("from 0"));
        assert!(error(ScalarValue::Int64(None), DataType::Int64).contains("from 0"));
    }
}
