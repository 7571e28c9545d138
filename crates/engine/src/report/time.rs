//! The period of a query in UTC, and its local days.

use chrono::{DateTime, LocalResult, NaiveDate, NaiveDateTime, TimeZone, Utc};
use chrono_tz::Tz;
use uplake_experiment::definition::Period;
use uplake_experiment::query::MomentsQuery;

use crate::base::error::{EngineError, Result};
use crate::base::sql_state::SqlState;
use crate::functions::local_day::day_number;

/// Days that a report shows one by one; a longer period has no daily cells.
const DAYS_MAX: i32 = 1_100;

/// When rows count.
#[derive(Debug, Clone)]
pub(super) struct Times {
    pub zone: Tz,
    /// Half-open.
    pub period: Option<(DateTime<Utc>, DateTime<Utc>)>,
    /// Of the query's other experiments.
    pub others: Vec<Option<(DateTime<Utc>, DateTime<Utc>)>>,
    /// The local days of the period, if cells are asked for as of each.
    pub days: Option<Days>,
    /// Up to when the data are known, exclusive, if that matters (`end_of_data` finds it).
    pub observed: Option<DateTime<Utc>>,
}

/// Local days in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Days {
    /// Since 1970.
    pub first: i32,
    pub count: usize,
}

impl Days {
    /// A day's place in the row; days outside it go to its ends.
    pub fn index(&self, day: i32) -> usize {
        usize::try_from(day - self.first).unwrap_or(0).min(self.count - 1)
    }
}

impl Times {
    /// # Errors
    /// [`EngineError::Report`] for a zone or a time that cannot be read.
    pub fn of(query: &MomentsQuery) -> Result<Self> {
        let zone = parse_zone(&query.time_zone)?;
        let within = |period: &Option<Period>, zone| match period {
            None => Ok(None),
            Some(period) => Ok(Some((instant(&period.start, zone)?, instant(&period.end, zone)?))),
        };
        let period = within(&query.period, zone)?;
        let others = query.others.iter();
        let others = others.map(|other| within(&other.period, parse_zone(&other.time_zone)?));
        let others = others.collect::<Result<_>>()?;
        let wanted = query.days && query.exposures.time.is_some();
        let days = period.filter(|(start, end)| wanted && start < end).and_then(|(start, end)| {
            let day = |time: DateTime<Utc>| day_number(time.with_timezone(&zone).date_naive());
            let (first, last) = (day(start), day(end - chrono::Duration::microseconds(1)));
            let count = last - first + 1;
            (count <= DAYS_MAX).then_some(Days { first, count: count as usize })
        });
        Ok(Self { zone, period, others, days, observed: None })
    }
}

fn parse_zone(name: &str) -> Result<Tz> {
    name.parse().map_err(|_| {
        EngineError::report(SqlState::InvalidParameterValue, format!("unknown time zone `{name}`"))
            .with_hint("write an IANA name such as \"UTC\" or \"Asia/Shanghai\"")
    })
}

/// A local date or date-time as a UTC instant. A time that the clock skips is moved to the next that exists;
/// one that it shows twice is the first.
pub(super) fn instant(text: &str, zone: Tz) -> Result<DateTime<Utc>> {
    let local = NaiveDate::parse_from_str(text, "%Y-%m-%d")
        .map(|d| d.and_time(chrono::NaiveTime::MIN))
        .or_else(|_| NaiveDateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S%.f"))
        .or_else(|_| NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f"))
        .map_err(|_| {
            let message = format!("`{text}` is not a date or a date and time");
            EngineError::report(SqlState::InvalidDatetimeFormat, message)
        })?;
    let mut candidate = local;
    for _ in 0..=24 * 4 {
        match zone.from_local_datetime(&candidate) {
            LocalResult::Single(t) | LocalResult::Ambiguous(t, _) => {
                return Ok(t.with_timezone(&Utc));
            }
            LocalResult::None => candidate += chrono::Duration::minutes(15),
        }
    }
    let message = format!("`{text}` does not exist in {zone}");
    Err(EngineError::report(SqlState::DatetimeFieldOverflow, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_dates_become_utc_instants() {
        let check = |text: &str, zone: &str, expected: &str| {
            let got = instant(text, zone.parse().unwrap()).unwrap();
            assert_eq!(got.to_rfc3339(), expected, "{text} {zone}");
        };
        check("2026-11-01", "UTC", "2026-11-01T00:00:00+00:00");
        check("2026-11-01", "Asia/Shanghai", "2026-10-31T16:00:00+00:00");
        check("2026-03-29T02:30:00", "Europe/Berlin", "2026-03-29T01:00:00+00:00");
        check("2026-10-25T02:30:00", "Europe/Berlin", "2026-10-25T00:30:00+00:00");
        assert!(parse_zone("Mars/Base").is_err());
        assert!(instant("tomorrow", Tz::UTC).is_err());
    }
}
