//! Column types guessed from the first records of a text file.
//!
//! A guess only ever errs towards text: digits with a leading zero are text (they are codes, not
//! numbers), and so is a column whose sample mixes kinds.

use arrow::datatypes::{DataType, TimeUnit};

/// Floats hold whole numbers up to here, each of them.
const FLOAT_WHOLE_MAX: u64 = 1 << 53;

/// The type that every value seen so far fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Guess {
    /// Only NULLs so far.
    #[default]
    Nothing,
    Boolean,
    Integer,
    /// Whole numbers that a float does not hold.
    LongInteger,
    Float,
    Date,
    Timestamp,
    TimestampTz,
    Text,
}

impl Guess {
    pub fn of(value: &str) -> Self {
        let bytes = value.as_bytes();
        if matches!(bytes, b"true" | b"false" | b"TRUE" | b"FALSE" | b"True" | b"False") {
            Self::Boolean
        } else if let Some(number) = integer(bytes) {
            if number.unsigned_abs() <= FLOAT_WHOLE_MAX { Self::Integer } else { Self::LongInteger }
        } else if is_float(value) {
            Self::Float
        } else if is_date(bytes) {
            Self::Date
        } else {
            timestamp(value).unwrap_or(Self::Text)
        }
    }

    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nothing, x) | (x, Self::Nothing) => x,
            (a, b) if a == b => a,
            (Self::Integer, Self::LongInteger) | (Self::LongInteger, Self::Integer) => {
                Self::LongInteger
            }
            (Self::Integer, Self::Float) | (Self::Float, Self::Integer) => Self::Float,
            (Self::Date, Self::Timestamp) | (Self::Timestamp, Self::Date) => Self::Timestamp,
            _ => Self::Text,
        }
    }

    pub fn data_type(self) -> DataType {
        match self {
            Self::Nothing | Self::Text => DataType::Utf8,
            Self::Boolean => DataType::Boolean,
            Self::Integer | Self::LongInteger => DataType::Int64,
            Self::Float => DataType::Float64,
            Self::Date => DataType::Date32,
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::TimestampTz => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        }
    }
}

fn integer(bytes: &[u8]) -> Option<i64> {
    let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
    let leading_zero = digits.len() > 1 && digits[0] == b'0';
    let plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) && !leading_zero;
    std::str::from_utf8(bytes).ok().filter(|_| plain)?.parse().ok()
}

fn is_float(value: &str) -> bool {
    let digits = value.strip_prefix('-').unwrap_or(value);
    let starts = digits.as_bytes().first().is_some_and(|b| b.is_ascii_digit() || *b == b'.');
    let leading_zero = digits.len() > 1 && digits.starts_with('0') && !digits.starts_with("0.");
    // A whole number beyond 64 bits would lose digits as a float.
    let fractional = digits.contains(['.', 'e', 'E']);
    starts && fractional && !leading_zero && value.parse::<f64>().is_ok_and(f64::is_finite)
}

fn is_date(bytes: &[u8]) -> bool {
    bytes.len() == 10
        && bytes[4] == b'-'
        && bytes[7] == b'-'
        && std::str::from_utf8(bytes)
            .is_ok_and(|t| chrono::NaiveDate::parse_from_str(t, "%Y-%m-%d").is_ok())
}

fn timestamp(value: &str) -> Option<Guess> {
    let bytes = value.as_bytes();
    if bytes.len() < 16 || !is_date(&bytes[..10]) || !matches!(bytes[10], b' ' | b'T') {
        return None;
    }
    let rest = value.get(11..)?;
    let zone = rest.find(['Z', '+', '-']);
    let time = &rest[..zone.unwrap_or(rest.len())];
    let known = chrono::NaiveTime::parse_from_str(time, "%H:%M:%S%.f").is_ok();
    known.then_some(if zone.is_some() { Guess::TimestampTz } else { Guess::Timestamp })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_guessed_towards_text() {
        for (values, expected) in [
            (&["1", "-2", "0"][..], Guess::Integer),
            (&["007"], Guess::Text),
            (&["1", "2.5", "1e3"], Guess::Float),
            (&["99999999999999999999"], Guess::Text),
            (&["1", "9007199254740993"], Guess::LongInteger),
            (&["9007199254740993", "1.5"], Guess::Text),
            (&["9007199254740992", "1.5"], Guess::Float),
            (&["NaN"], Guess::Text),
            (&["true", "FALSE"], Guess::Boolean),
            (&["1", "true"], Guess::Text),
            (&["2026-11-01"], Guess::Date),
            (&["2026-11-31"], Guess::Text),
            (&["2026-11-01", "2026-11-01 10:00:00.5"], Guess::Timestamp),
            (&["2026-11-01T10:00:00Z", "2026-11-01T10:00:00+02:00"], Guess::TimestampTz),
            (&["2026-11-01 10:00:00", "2026-11-01T10:00:00Z"], Guess::Text),
            (&["é"], Guess::Text),
            (&["2026-11-01 1é:00:00xx"], Guess::Text),
        ] {
            let guess = values.iter().map(|v| Guess::of(v)).fold(Guess::Nothing, Guess::and);
            assert_eq!(guess, expected, "{values:?}");
        }
    }
}
