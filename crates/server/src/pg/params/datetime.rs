//! Text to dates, times and moments: ISO 8601 and what Postgres writes.
//!
//! # Not here
//! Words that ask a clock (`now`, `today`), names of months, dates with slashes: they are refused as bad text.

use super::number::trim;
use crate::pg::encode::calendar::days_of;

/// Why a text is no date or time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    Syntax,
    Range,
}

const SECOND: i64 = 1_000_000_000;
/// Years that are read: beyond Postgres' and Arrow's, far from what overflows.
const MOST_YEAR: i64 = 6_000_000;

/// Where a moment says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place<'a> {
    /// It says nothing.
    Nowhere,
    /// Seconds east of Greenwich.
    Offset(i32),
    Zone(&'a str),
}

/// A date and a time of day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment<'a> {
    /// Since 1970.
    pub days: i64,
    /// Nanoseconds since midnight, to a whole day (24:00) and a second more (23:59:60).
    pub nanos: i64,
    pub place: Place<'a>,
}

/// `2024-01-02`, `2024-01-02 +02`, `2024-01-02 03:04:05.6+02`, `20240102T030405Z`, `0044-03-15 BC`.
pub(super) fn moment(text: &str) -> Result<Moment<'_>, Wrong> {
    let mut text = trim(text);
    if text.eq_ignore_ascii_case("epoch") {
        return Ok(Moment { days: 0, nanos: 0, place: Place::Nowhere });
    }
    if matches!(text.to_ascii_lowercase().as_str(), "infinity" | "-infinity" | "+infinity") {
        return Err(Wrong::Range);
    }
    let mut is_bc = false;
    if let Some((front, era)) = text.rsplit_once(' ')
        && (era.eq_ignore_ascii_case("bc") || era.eq_ignore_ascii_case("ad"))
    {
        is_bc = era.eq_ignore_ascii_case("bc");
        text = trim(front);
    }
    let end = text.bytes().position(|byte| !byte.is_ascii_digit() && byte != b'-');
    let (date, rest) = text.split_at(end.unwrap_or(text.len()));
    let days = day(date, is_bc)?;
    let rest = match rest.as_bytes().first() {
        None => return Ok(Moment { days, nanos: 0, place: Place::Nowhere }),
        Some(b'T' | b't') => &rest[1..],
        Some(b' ') => trim(rest),
        Some(b'+') => rest,
        Some(_) => return Err(Wrong::Syntax),
    };
    // pgJDBC sends days as `2024-01-02 +00`.
    if rest.starts_with(['+', '-']) {
        return Ok(Moment { days, nanos: 0, place: place(rest)? });
    }
    let (nanos, place) = time(rest)?;
    Ok(Moment { days, nanos, place })
}

/// `2024-01-02` or `20240102`.
fn day(text: &str, is_bc: bool) -> Result<i64, Wrong> {
    let (year, month, day) = match text.split_once('-') {
        Some((year, rest)) => {
            let (month, day) = rest.split_once('-').ok_or(Wrong::Syntax)?;
            (year, month, day)
        }
        None if text.len() >= 8 => {
            let (rest, day) = text.split_at(text.len() - 2);
            let (year, month) = rest.split_at(rest.len() - 2);
            (year, month, day)
        }
        None => return Err(Wrong::Syntax),
    };
    if year.len() < 3 {
        // A year of two digits is a guess.
        return Err(Wrong::Syntax);
    }
    let (year, month, day) = (number(year, 7)?, number(month, 2)?, number(day, 2)?);
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let astronomical = if is_bc { 1 - year } else { year };
    let last = match month {
        2 => 28 + i64::from(is_leap(astronomical)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if !(1..=MOST_YEAR).contains(&year) || !(1..=12).contains(&month) || !(1..=last).contains(&day)
    {
        return Err(Wrong::Range);
    }
    Ok(days_of(astronomical, month as u32, day as u32))
}

/// A number of 1 to `most` digits.
fn number(text: &str, most: usize) -> Result<i64, Wrong> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Wrong::Syntax);
    }
    if text.len() > most {
        return Err(Wrong::Range);
    }
    text.parse().map_err(|_| Wrong::Syntax)
}

/// Nanoseconds since midnight, and a place behind them: `03:04`, `03:04:05.678`, `030405`, `24:00:00 Europe/Berlin`.
pub(super) fn time(text: &str) -> Result<(i64, Place<'_>), Wrong> {
    let text = trim(text);
    let is_clock = |byte: u8| byte.is_ascii_digit() || matches!(byte, b':' | b'.');
    let end = text.bytes().position(|byte| !is_clock(byte)).unwrap_or(text.len());
    let (clock, place) = text.split_at(end);
    let (hours, minutes, seconds) = match clock.split(':').collect::<Vec<_>>()[..] {
        [hours, minutes, seconds] => (hours, minutes, seconds),
        [hours, minutes] if !minutes.contains('.') => (hours, minutes, "0"),
        [all] if all.len() >= 6 && all.as_bytes()[..6].iter().all(u8::is_ascii_digit) => {
            (&all[..2], &all[2..4], &all[4..])
        }
        _ => return Err(Wrong::Syntax),
    };
    let (hours, minutes) = (number(hours, 2)?, number(minutes, 2)?);
    let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
    let (seconds, fraction) = (number(whole, 2)?, fraction_nanos(fraction)?);
    let is_end = hours == 24 && minutes == 0 && seconds == 0 && fraction == 0;
    if hours > 23 && !is_end || minutes > 59 || seconds > 60 || seconds == 60 && fraction > 0 {
        return Err(Wrong::Range);
    }
    Ok((((hours * 60 + minutes) * 60 + seconds) * SECOND + fraction, self::place(trim(place))?))
}

/// Nanoseconds of the digits behind a point, rounded.
pub(super) fn fraction_nanos(digits: &str) -> Result<i64, Wrong> {
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Wrong::Syntax);
    }
    let mut padded = [b'0'; 10];
    padded.iter_mut().zip(digits.bytes()).for_each(|(place, digit)| *place = digit);
    let nanos = padded.iter().take(9).fold(0, |all, digit| all * 10 + i64::from(digit - b'0'));
    Ok(nanos + i64::from(padded[9] >= b'5'))
}

fn place(text: &str) -> Result<Place<'_>, Wrong> {
    let sign = match text.as_bytes().first() {
        None => return Ok(Place::Nowhere),
        Some(b'+') => 1,
        Some(b'-') => -1,
        Some(_) if matches!(text.to_ascii_lowercase().as_str(), "z" | "utc" | "gmt") => {
            return Ok(Place::Offset(0));
        }
        Some(byte) if byte.is_ascii_alphabetic() => return Ok(Place::Zone(text)),
        Some(_) => return Err(Wrong::Syntax),
    };
    let text = &text[1..];
    let parts: Vec<&str> = text.split(':').collect();
    let (hours, minutes, seconds) = match parts[..] {
        [hours] if hours.len() <= 2 => (hours, "0", "0"),
        [both] if both.len() == 4 && both.is_ascii() => (&both[..2], &both[2..], "0"),
        [hours, minutes] => (hours, minutes, "0"),
        [hours, minutes, seconds] => (hours, minutes, seconds),
        _ => return Err(Wrong::Syntax),
    };
    let (hours, minutes) = (number(hours, 2)?, number(minutes, 2)?);
    let seconds = number(seconds, 2)?;
    if hours > 15 || minutes > 59 || seconds > 59 {
        return Err(Wrong::Range);
    }
    Ok(Place::Offset(sign * (hours * 3600 + minutes * 60 + seconds) as i32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_as_by_postgres_15() {
        let day = days_of(2024, 1, 2);
        let at =
            |hours: i64, minutes: i64, nanos: i64| (hours * 60 + minutes) * 60 * SECOND + nanos;
        let moment_of = |nanos, place| Ok(Moment { days: day, nanos, place });
        let fifth = 5 * SECOND;
        for (text, expected) in [
            ("2024-01-02", moment_of(0, Place::Nowhere)),
            ("20240102", moment_of(0, Place::Nowhere)),
            ("2024-01-02 +00", moment_of(0, Place::Offset(0))),
            ("2024-01-02 -0330", moment_of(0, Place::Offset(-12_600))),
            ("2024-01-02+02", moment_of(0, Place::Offset(7_200))),
            ("2024-01-02 +", Err(Wrong::Syntax)),
            (" 2024-1-2 03:04 ", moment_of(at(3, 4, 0), Place::Nowhere)),
            ("2024-01-02T03:04:05Z", moment_of(at(3, 4, fifth), Place::Offset(0))),
            ("20240102T030405", moment_of(at(3, 4, fifth), Place::Nowhere)),
            (
                "2024-01-02 03:04:05.1234567-03:30",
                moment_of(at(3, 4, fifth + 123_456_700), Place::Offset(-12_600)),
            ),
            ("2024-01-02 00:00:00+00:53:28", moment_of(0, Place::Offset(3_208))),
            ("2024-01-02 00:00:00 +0200", moment_of(0, Place::Offset(7_200))),
            (
                "2024-01-02 24:00 Europe/Berlin",
                moment_of(at(24, 0, 0), Place::Zone("Europe/Berlin")),
            ),
            ("2024-13-01", Err(Wrong::Range)),
            ("2023-02-29", Err(Wrong::Range)),
            ("2024-01-02 25:00", Err(Wrong::Range)),
            ("infinity", Err(Wrong::Range)),
            ("0000-01-01", Err(Wrong::Range)),
            ("x", Err(Wrong::Syntax)),
            ("", Err(Wrong::Syntax)),
            ("24-01-02", Err(Wrong::Syntax)),
            ("2024-01", Err(Wrong::Syntax)),
            ("2024-01-02x", Err(Wrong::Syntax)),
            ("2024-01-02 3", Err(Wrong::Syntax)),
            ("2024-01-02 03:04:05,5", Err(Wrong::Syntax)),
        ] {
            assert_eq!(moment(text), expected, "{text}");
        }
        let bc = moment("0044-03-15 01:02:03.5+00:53:28 BC").unwrap();
        assert_eq!((bc.days, bc.place), (days_of(-43, 3, 15), Place::Offset(3_208)));
        assert_eq!(moment("12345-01-02").unwrap().days, days_of(12345, 1, 2));
        assert_eq!(moment("epoch").unwrap().days, 0);
    }

    #[test]
    fn fractions_have_nine_digits_and_are_rounded() {
        assert_eq!(fraction_nanos(""), Ok(0));
        assert_eq!(fraction_nanos("5"), Ok(500_000_000));
        assert_eq!(fraction_nanos("0000000015"), Ok(2));
        assert_eq!(fraction_nanos("9999999999"), Ok(SECOND));
    }
}
