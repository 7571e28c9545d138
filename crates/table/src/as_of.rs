//! Which version of a table to read.

use crate::error::{Result, TableError};

/// Which version of a table to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AsOf {
    /// The newest commit.
    Latest,
    /// The table as of this commit number.
    Version(u64),
    /// The newest commit at or before this instant (milliseconds since 1970, UTC).
    TimestampMillis(i64),
}

impl AsOf {
    /// Parses a version number, a date (its first instant, UTC) or an RFC 3339 instant.
    ///
    /// # Errors
    /// [`TableError::Invalid`] shows the three forms.
    pub fn parse(text: &str) -> Result<Self> {
        if let Ok(version) = text.parse() {
            return Ok(Self::Version(version));
        }
        let instant = chrono::DateTime::parse_from_rfc3339(text)
            .map(|t| t.timestamp_millis())
            .or_else(|_| {
                chrono::NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f")
                    .map(|t| t.and_utc().timestamp_millis())
            })
            .or_else(|_| {
                chrono::NaiveDate::parse_from_str(text, "%Y-%m-%d")
                    .map(|d| d.and_time(chrono::NaiveTime::MIN).and_utc().timestamp_millis())
            });
        instant.map(Self::TimestampMillis).map_err(|_| {
            TableError::Invalid(format!(
                "`{text}` is not a version; write a number (12), a UTC time \
                 (\"2026-11-01 08:00:00\") or an RFC 3339 instant"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_of_takes_a_version_a_day_or_an_instant() {
        assert_eq!(AsOf::parse("7").unwrap(), AsOf::Version(7));
        assert_eq!(AsOf::parse("1970-01-02").unwrap(), AsOf::TimestampMillis(86_400_000));
        assert_eq!(AsOf::parse("1970-01-01 00:00:01.5").unwrap(), AsOf::TimestampMillis(1500));
        assert_eq!(AsOf::parse("1970-01-01T01:00:00+01:00").unwrap(), AsOf::TimestampMillis(0));
        assert!(AsOf::parse("yesterday").is_err());
    }
}
