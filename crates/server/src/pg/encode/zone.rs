//! Zones: how far local time is from Greenwich, at a moment.

use arrow::array::temporal_conversions::as_datetime_with_timezone;
use arrow::array::timezone::Tz;
use arrow::datatypes::TimestampSecondType;

use super::error::EncodeError;

/// Seconds from 1970 within which zones are looked up; before and after, their first and last offsets hold.
///
/// 200,000 years: the calendar that is asked ends after 262,000.
const KNOWN_SECONDS: i64 = 200_000 * 366 * 86_400;
const DAY_SECONDS: i64 = 86_400;

/// A zone of the session, or of a value: `UTC`, `Europe/Berlin`, `+02:00` (east of Greenwich).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Zone(Option<Tz>);

impl Zone {
    pub(crate) const UTC: Self = Self(None);

    /// Finds a zone by its name, as IANA has it, or reads an offset whose sign is that of ISO 8601.
    ///
    /// `SET TimeZone` of Postgres reads `'+02'` the other way round, as POSIX does; that is for the caller to turn.
    ///
    /// # Errors
    /// [`EncodeError::UnknownZone`]
    pub(crate) fn parse(name: &str) -> Result<Self, EncodeError> {
        if matches!(name, "UTC" | "Etc/UTC" | "GMT" | "Z" | "+00:00" | "+00")
            || name.eq_ignore_ascii_case("utc")
        {
            return Ok(Self::UTC);
        }
        let zone = name.parse().map_err(|_| EncodeError::UnknownZone { name: name.to_owned() })?;
        Ok(Self(Some(zone)))
    }

    /// Seconds to be added to a moment (microseconds since 1970 in UTC) for local time.
    pub(in crate::pg) fn offset_at(&self, micros: i64) -> i32 {
        self.offset_at_second(micros.div_euclid(1_000_000))
    }

    fn offset_at_second(&self, second: i64) -> i32 {
        let Some(zone) = self.0 else { return 0 };
        let second = second.clamp(-KNOWN_SECONDS, KNOWN_SECONDS);
        let Some(moment) = as_datetime_with_timezone::<TimestampSecondType>(second, zone) else {
            return 0;
        };
        (moment.naive_local().and_utc().timestamp() - second) as i32
    }

    /// The offset of a local second: of two that are possible the later, and where a clock was put forward the earlier, as in
    /// Postgres.
    pub(in crate::pg) fn offset_of_local(&self, local: i64) -> i32 {
        let before = self.offset_at_second(local.saturating_sub(DAY_SECONDS));
        let after = self.offset_at_second(local.saturating_add(DAY_SECONDS));
        let holds =
            |offset: i32| self.offset_at_second(local.saturating_sub(i64::from(offset))) == offset;
        if holds(after) { after } else { before }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_times_that_are_twice_or_never_are_read_as_by_postgres_15() {
        let berlin = Zone::parse("Europe/Berlin").unwrap();
        // 2024-03-31 02:30 is never there, 2024-10-27 02:30 twice.
        let (never, twice) = (1_711_852_200, 1_729_996_200);
        assert_eq!(berlin.offset_of_local(never), 3600);
        assert_eq!(berlin.offset_of_local(twice), 3600);
        assert_eq!(berlin.offset_of_local(twice - 3600), 7200);
        assert_eq!(berlin.offset_at(i64::MIN), 3208);
        assert_eq!(Zone::parse("-03:30").unwrap().offset_at(0), -12_600);
        assert_eq!(Zone::UTC.offset_of_local(i64::MAX), 0);
        assert!(Zone::parse("Nowhere").is_err());
    }
}
