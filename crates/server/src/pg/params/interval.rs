//! Text to intervals: `1 year 2 mons -3 days +04:05:06.789`, `P1Y2M3DT4H5M6S`, `1-2`, `90 minutes ago`.

use super::datetime::{Wrong, fraction_nanos};
use super::number::trim;

/// Nanoseconds of a second, an hour and a day.
const SECOND: i128 = 1_000_000_000;
const HOUR: i128 = 3600 * SECOND;
const DAY: i128 = 24 * HOUR;

/// Months, days and nanoseconds, none of which is a part of another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Length {
    pub months: i32,
    pub days: i32,
    pub nanos: i128,
}

/// What is added up, in numbers that no text is long enough to overflow.
#[derive(Default)]
struct Sum {
    months: i128,
    days: i128,
    nanos: i128,
}

/// A number with nine digits behind its point.
struct Amount {
    whole: i64,
    nanos: i64,
}

pub(super) fn interval(text: &str) -> Result<Length, Wrong> {
    let text = trim(text);
    let mut sum = Sum::default();
    if let Some(iso) = text.strip_prefix(['P', 'p']) {
        iso_8601(iso, &mut sum)?;
    } else {
        words(text, &mut sum)?;
    }
    let narrow = |number: i128| i32::try_from(number).map_err(|_| Wrong::Range);
    Ok(Length { months: narrow(sum.months)?, days: narrow(sum.days)?, nanos: sum.nanos })
}

fn words(text: &str, sum: &mut Sum) -> Result<(), Wrong> {
    let mut words = text.split_ascii_whitespace().peekable();
    if words.peek() == Some(&"@") {
        words.next();
    }
    if words.peek().is_none_or(|word| word.eq_ignore_ascii_case("ago")) {
        return Err(Wrong::Syntax);
    }
    while let Some(word) = words.next() {
        if word.eq_ignore_ascii_case("ago") && words.peek().is_none() {
            (sum.months, sum.days, sum.nanos) = (-sum.months, -sum.days, -sum.nanos);
            return Ok(());
        }
        if word.contains(':') {
            sum.nanos += clock(word)?;
            continue;
        }
        let unit_at = word.find(|letter: char| letter.is_ascii_alphabetic());
        let (number, unit) = word.split_at(unit_at.unwrap_or(word.len()));
        let after_sign = number.get(1..).unwrap_or_default();
        if unit.is_empty() && after_sign.contains('-') {
            sum.months += i128::from(years_and_months(number)?);
            continue;
        }
        let amount = amount(number)?;
        match unit {
            // Units stand behind their number or are the next word; a number alone is seconds, or days before a time.
            "" => match words.peek() {
                Some(unit) if unit.starts_with(|letter: char| letter.is_ascii_alphabetic()) => {
                    let unit = words.next().unwrap_or_default();
                    if unit.eq_ignore_ascii_case("ago") {
                        return Err(Wrong::Syntax);
                    }
                    add(&amount, unit, sum)?;
                }
                Some(clock) if clock.contains(':') => add(&amount, "day", sum)?,
                _ => add(&amount, "second", sum)?,
            },
            unit => add(&amount, unit, sum)?,
        }
    }
    Ok(())
}

/// `[-]H:MM[:SS[.f]]` in nanoseconds.
fn clock(text: &str) -> Result<i128, Wrong> {
    let negative = text.starts_with('-');
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    let parts: Vec<&str> = text.split(':').collect();
    let (hours, minutes, seconds) = match parts[..] {
        [hours, minutes] => (hours, minutes, "0"),
        [hours, minutes, seconds] => (hours, minutes, seconds),
        _ => return Err(Wrong::Syntax),
    };
    let (hours, minutes, seconds) = (digits(hours)?, digits(minutes)?, amount(seconds)?);
    if seconds.whole < 0 || seconds.nanos < 0 {
        return Err(Wrong::Syntax);
    }
    if minutes > 59 || seconds.whole > 60 {
        return Err(Wrong::Range);
    }
    let nanos = i128::from(hours) * HOUR
        + i128::from(minutes * 60 + seconds.whole) * SECOND
        + i128::from(seconds.nanos);
    Ok(if negative { -nanos } else { nanos })
}

/// `[-]Y-M`
fn years_and_months(text: &str) -> Result<i64, Wrong> {
    let negative = text.starts_with('-');
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (years, months) = text.split_once('-').ok_or(Wrong::Syntax)?;
    let (years, months) = (digits(years)?, digits(months)?);
    if months > 11 {
        return Err(Wrong::Range);
    }
    Ok(if negative { -(years * 12 + months) } else { years * 12 + months })
}

/// Digits alone, of a number that is far from what overflows.
fn digits(text: &str) -> Result<i64, Wrong> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Wrong::Syntax);
    }
    let number = text.parse::<i64>().map_err(|_| Wrong::Range)?;
    if number > 1 << 53 { Err(Wrong::Range) } else { Ok(number) }
}

fn amount(text: &str) -> Result<Amount, Wrong> {
    let negative = text.starts_with('-');
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() && fraction.is_empty() {
        return Err(Wrong::Syntax);
    }
    let whole = if whole.is_empty() { 0 } else { digits(whole)? };
    let nanos = fraction_nanos(fraction)?;
    Ok(if negative { Amount { whole: -whole, nanos: -nanos } } else { Amount { whole, nanos } })
}

fn add(amount: &Amount, unit: &str, sum: &mut Sum) -> Result<(), Wrong> {
    let unit = unit.to_ascii_lowercase();
    let months = match unit.as_str() {
        "y" | "yr" | "yrs" | "year" | "years" => 12,
        "mon" | "mons" | "month" | "months" => 1,
        "decade" | "decades" => 120,
        "c" | "century" | "centuries" => 1200,
        _ => 0,
    };
    if months > 0 {
        // A part of a year is whole months; a part of a month is days, 30 of which Postgres takes for one.
        let part = i128::from(amount.nanos) * months;
        sum.months += i128::from(amount.whole) * months + part / SECOND;
        if months == 1 {
            whole_days(i128::from(amount.nanos) * 30, sum);
        } else if part % SECOND != 0 {
            return Err(Wrong::Range);
        }
        return Ok(());
    }
    let days = match unit.as_str() {
        "d" | "day" | "days" => 1,
        "w" | "week" | "weeks" => 7,
        _ => 0,
    };
    if days > 0 {
        sum.days += i128::from(amount.whole) * days;
        whole_days(i128::from(amount.nanos) * days, sum);
        return Ok(());
    }
    // Of a unit in nanoseconds; the fraction is a billionth of it.
    let unit = match unit.as_str() {
        "h" | "hr" | "hrs" | "hour" | "hours" => HOUR,
        "m" | "min" | "mins" | "minute" | "minutes" => 60 * SECOND,
        "s" | "sec" | "secs" | "second" | "seconds" => SECOND,
        "ms" | "msec" | "msecs" | "millisecond" | "milliseconds" => SECOND / 1000,
        "us" | "usec" | "usecs" | "microsecond" | "microseconds" => 1000,
        _ => return Err(Wrong::Syntax),
    };
    sum.nanos += i128::from(amount.whole) * unit + i128::from(amount.nanos) * unit / SECOND;
    Ok(())
}

/// Adds billionths of days: whole days, and the rest as time.
fn whole_days(billionths: i128, sum: &mut Sum) {
    sum.days += billionths / SECOND;
    sum.nanos += billionths % SECOND * (DAY / SECOND);
}

/// What is behind the `P`.
fn iso_8601(text: &str, sum: &mut Sum) -> Result<(), Wrong> {
    let (mut in_time, mut start, mut any) = (false, 0, false);
    for (at, letter) in text.char_indices().filter(|(_, letter)| letter.is_ascii_alphabetic()) {
        let number = &text[start..at];
        start = at + 1;
        if letter.eq_ignore_ascii_case(&'t') {
            if in_time || !number.is_empty() {
                return Err(Wrong::Syntax);
            }
            in_time = true;
            continue;
        }
        let unit = match (letter.to_ascii_uppercase(), in_time) {
            ('Y', false) => "year",
            ('M', false) => "month",
            ('W', false) => "week",
            ('D', false) => "day",
            ('H', true) => "hour",
            ('M', true) => "minute",
            ('S', true) => "second",
            _ => return Err(Wrong::Syntax),
        };
        add(&amount(number)?, unit, sum)?;
        any = true;
    }
    if !any || start != text.len() { Err(Wrong::Syntax) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_read_as_by_postgres_15() {
        let time = |hours: i128, minutes: i128, micros: i128| {
            hours * HOUR + minutes * 60 * SECOND + micros * 1000
        };
        for (text, months, days, nanos) in [
            ("1 day 02:03:04.5", 0, 1, time(2, 3, 4_500_000)),
            ("1 year 2 mons -3 days +04:05:06.789", 14, -3, time(4, 5, 6_789_000)),
            ("-1 years -2 mons +3 days -04:05:06", -14, 3, -time(4, 5, 6_000_000)),
            ("-00:00:00.000001", 0, 0, -1000),
            ("00:00:00", 0, 0, 0),
            ("1.5 days", 0, 1, time(12, 0, 0)),
            ("1.5 mons", 1, 15, 0),
            ("1-2", 14, 0, 0),
            ("-1-2 3 -4:05:06", -14, 3, -time(4, 5, 6_000_000)),
            ("P1Y2M3DT4H5M6.5S", 14, 3, time(4, 5, 6_500_000)),
            ("1 day ago", 0, -1, 0),
            ("@ 1 day 2 hours ago", 0, -1, -time(2, 0, 0)),
            ("90", 0, 0, time(0, 1, 30_000_000)),
            ("-1 day 2 hours", 0, -1, time(2, 0, 0)),
            ("1w 2d 3h 4m 5s 6ms 7us", 0, 9, time(3, 4, 5_006_007)),
            ("5 days 3", 0, 5, time(0, 0, 3_000_000)),
            ("2562047788:00:54.775807", 0, 0, i128::from(i64::MAX) * 1000),
        ] {
            assert_eq!(interval(text), Ok(Length { months, days, nanos }), "{text}");
        }
        for text in
            ["", "1 foo", "infinity", "ago", "1:2:3:4", "P", "PT", "P1", "P1H", "1 ago", "-", "--1"]
        {
            assert_eq!(interval(text), Err(Wrong::Syntax), "{text}");
        }
        for text in
            ["99999999999 days", "1:60", "1-12", "3000000000 mons", "7686143364045646.99 centuries"]
        {
            assert_eq!(interval(text), Err(Wrong::Range), "{text}");
        }
    }
}
