//! Dates, times and intervals: numbers to text, as Postgres writes them with `DateStyle` ISO and `IntervalStyle` postgres.
//!
//! Days and microseconds count from 1970-01-01, as Arrow's do; the calendar is the Gregorian one for all time, and the
//! year before 1 is 1 BC.
//!
//! # Not here
//! Text to numbers (`params`), zones (`zone`).

use super::text::{Ascii, PAIRS};

pub(in crate::pg) const DAY_MICROS: i64 = 86_400_000_000;
/// From 1970-01-01, where Arrow begins, to 2000-01-01, where Postgres does.
pub(in crate::pg) const POSTGRES_EPOCH_DAYS: i32 = 10_957;
pub(in crate::pg) const POSTGRES_EPOCH_MICROS: i64 = POSTGRES_EPOCH_DAYS as i64 * DAY_MICROS;
/// 4714-11-24 BC, the first day of Postgres, in its days.
const FIRST_DAY: i64 = -2_451_545;
/// 5874898-01-01, the first day after all of Postgres'.
const END_DAY: i64 = 2_145_031_949;

/// Postgres' days of a date, or `None` if it has no such date.
#[inline]
pub(in crate::pg) fn postgres_days(days: i64) -> Option<i32> {
    let days = days.checked_sub(i64::from(POSTGRES_EPOCH_DAYS))?;
    (FIRST_DAY..END_DAY).contains(&days).then_some(days as i32)
}

/// Postgres' microseconds of a moment, or `None` if it has no such moment. Its last year, 294276, is beyond Arrow's.
#[inline]
pub(in crate::pg) fn postgres_micros(micros: i64) -> Option<i64> {
    let micros = micros.checked_sub(POSTGRES_EPOCH_MICROS)?;
    (micros >= FIRST_DAY * DAY_MICROS).then_some(micros)
}

/// Year (0 is 1 BC), month and day.
pub(in crate::pg) fn civil(days: i64) -> (i64, u32, u32) {
    // Years that begin in March, in eras of 400 years, which have 146,097 days each.
    let shifted = days + 719_468;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month as u32, day as u32)
}

/// Days whose years have four digits: those of the years 1 to 9999.
pub(super) const FOUR_DIGITS: std::ops::RangeInclusive<i64> = -719_162..=2_932_896;

/// The text of one of [`FOUR_DIGITS`], for which the calendar is multiplications alone (Neri and Schneider, "Euclidean
/// affine functions and their application to calendar algorithms", 2022).
#[inline]
pub(super) fn four_digits(days: i64) -> [u8; 10] {
    // From 0000-03-01, so that a leap day is a year's last.
    let days = (days + 719_468) as u32;
    let (century, of_century) = ((4 * days + 3) / 146_097, (4 * days + 3) % 146_097 / 4);
    let years = 2_939_745 * u64::from(4 * of_century + 3);
    let (year, of_year) = ((years >> 32) as u32, years as u32 / 2_939_745 / 4);
    let months = 2_141 * of_year + 197_913;
    let (month, day) = (months >> 16, (months & 0xffff) / 2_141 + 1);
    let is_next = u32::from(of_year >= 306);
    let (year, month) = (100 * century + year + is_next, month - 12 * is_next);
    let pair = |number: u32| PAIRS[number as usize];
    let ([a, b], [c, d]) = (pair(year / 100), pair(year % 100));
    let ([e, f], [g, h]) = (pair(month), pair(day));
    [a, b, c, d, b'-', e, f, b'-', g, h]
}

/// Days of a date; the month is from 1 to 12.
pub(in crate::pg) fn days_of(year: i64, month: u32, day: u32) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    let month = i64::from((month + 9) % 12);
    let day = (153 * month + 2) / 5 + i64::from(day) - 1;
    era * 146_097 + year * 365 + year / 4 - year / 100 + day - 719_468
}

pub(super) fn date(days: i64, out: &mut impl Ascii) {
    if day(days, out) {
        out.put(b" BC");
    }
}

/// Whether the year is BC, which is said at the very end.
fn day(days: i64, out: &mut impl Ascii) -> bool {
    if FOUR_DIGITS.contains(&days) {
        out.put(&four_digits(days));
        return false;
    }
    let (year, month, day) = civil(days);
    out.padded(if year > 0 { year } else { 1 - year } as u64, 4);
    out.push(b'-');
    out.two(month as u8);
    out.push(b'-');
    out.two(day as u8);
    year <= 0
}

/// Microseconds since midnight, from 0 to a whole day.
pub(super) fn time(micros: i64, out: &mut impl Ascii) {
    let seconds = micros / 1_000_000;
    clock(seconds / 3600, seconds, micros % 1_000_000, out);
}

fn clock(hours: i64, seconds: i64, micros: i64, out: &mut impl Ascii) {
    match hours.unsigned_abs() {
        hours @ ..100 => out.two(hours as u8),
        hours => out.unsigned(hours),
    }
    // Below 3,600: divisions of small numbers are the cheaper ones.
    let seconds = (seconds % 3600).unsigned_abs() as u32;
    let ([a, b], [c, d]) = (PAIRS[(seconds / 60) as usize], PAIRS[(seconds % 60) as usize]);
    out.put(&[b':', a, b, b':', c, d]);
    let mut fraction = micros.unsigned_abs();
    if fraction != 0 {
        let mut width = 6;
        while fraction.is_multiple_of(10) {
            fraction /= 10;
            width -= 1;
        }
        out.push(b'.');
        out.padded(fraction, width);
    }
}

/// How moments are written.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Style {
    /// Seconds east of Greenwich, written behind; `None` for moments without zone.
    pub offset: Option<i32>,
    /// `T` between date and time, and minutes in every offset, as in JSON.
    pub json: bool,
}

/// A day and its text, of the years with four digits.
#[derive(Default)]
pub(super) struct WrittenDay(Option<(i64, [u8; 10])>);

impl WrittenDay {
    /// A moment without a zone of the day that was written last, if it is at a whole second: the first 19 of these bytes.
    #[inline]
    pub(super) fn whole_second(&self, micros: i64) -> Option<[u8; 24]> {
        let (known, text) = self.0.as_ref()?;
        let of_day = micros.checked_sub(known * DAY_MICROS)?;
        if !(0..DAY_MICROS).contains(&of_day) || of_day % 1_000_000 != 0 {
            return None;
        }
        let seconds = (of_day / 1_000_000) as u32;
        let pair = |number: u32| PAIRS[number as usize];
        let ([a, b], [c, d], [e, f]) =
            (pair(seconds / 3600), pair(seconds / 60 % 60), pair(seconds % 60));
        let mut bytes = [0; 24];
        bytes[..10].copy_from_slice(text);
        bytes[10..19].copy_from_slice(&[b' ', a, b, b':', c, d, b':', e, f]);
        Some(bytes)
    }

    /// Whether the year is BC, which is said at the very end.
    #[inline]
    fn put(&mut self, days: i64, out: &mut impl Ascii) -> bool {
        if let Some((known, text)) = &self.0
            && *known == days
        {
            out.put(text);
            return false;
        }
        if FOUR_DIGITS.contains(&days) {
            let text = four_digits(days);
            out.put(&text);
            self.0 = Some((days, text));
            return false;
        }
        day(days, out)
    }
}

pub(super) fn timestamp(micros: i64, style: Style, written: &mut WrittenDay, out: &mut impl Ascii) {
    // The last moments of i64 in a zone are beyond it: days first.
    let offset = i64::from(style.offset.unwrap_or(0)) * 1_000_000;
    let clock = micros.rem_euclid(DAY_MICROS) + offset;
    let days = micros.div_euclid(DAY_MICROS) + clock.div_euclid(DAY_MICROS);
    let bc = written.put(days, out);
    out.push(if style.json { b'T' } else { b' ' });
    time(clock.rem_euclid(DAY_MICROS), out);
    if let Some(offset) = style.offset {
        out.push(if offset < 0 { b'-' } else { b'+' });
        let offset = u64::from(offset.unsigned_abs());
        let (minutes, seconds) = (offset / 60 % 60, offset % 60);
        out.padded(offset / 3600, 2);
        if minutes != 0 || seconds != 0 || style.json {
            out.push(b':');
            out.padded(minutes, 2);
        }
        if seconds != 0 {
            out.push(b':');
            out.padded(seconds, 2);
        }
    }
    if bc {
        out.put(b" BC");
    }
}

/// Months, days and microseconds, none of which is a part of another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::pg) struct Interval {
    pub months: i32,
    pub days: i32,
    pub micros: i64,
}

pub(super) fn interval(value: Interval, out: &mut impl Ascii) {
    let (mut begun, mut before) = (false, false);
    for (number, unit) in
        [(value.months / 12, "year"), (value.months % 12, "mon"), (value.days, "day")]
    {
        if number == 0 {
            continue;
        }
        if begun {
            out.push(b' ');
        }
        if before && number > 0 {
            out.push(b'+');
        }
        out.integer(i64::from(number));
        out.push(b' ');
        out.put(unit.as_bytes());
        if number != 1 {
            out.push(b's');
        }
        (begun, before) = (true, number < 0);
    }
    if begun && value.micros == 0 {
        return;
    }
    if begun {
        out.push(b' ');
    }
    if value.micros < 0 {
        out.push(b'-');
    } else if before {
        out.push(b'+');
    }
    let seconds = value.micros / 1_000_000;
    clock(seconds / 3600, seconds, value.micros % 1_000_000, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pg::encode::text::Text;

    fn text(write: impl FnOnce(&mut Text)) -> String {
        let mut text = Text::new();
        write(&mut text);
        String::from_utf8(text.as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn days_go_to_dates_and_back() {
        for days in (-3_000_000..3_000_000).step_by(97).chain([i64::from(i32::MAX), -2_440_588]) {
            let (year, month, day) = civil(days);
            assert_eq!(days_of(year, month, day), days);
        }
        for days in (-800_000..-719_000).chain(-150_000..150_000).chain(2_900_000..2_940_000) {
            let (year, month, day) = civil(days);
            assert_eq!(FOUR_DIGITS.contains(&days), (1..10_000).contains(&year), "{days}");
            if FOUR_DIGITS.contains(&days) {
                let found = four_digits(days);
                let expected = format!("{year:04}-{month:02}-{day:02}");
                assert_eq!(found, expected.as_bytes(), "{days}");
            }
        }
        for days in FOUR_DIGITS.step_by(1_009) {
            let (year, month, day) = civil(days);
            assert_eq!(four_digits(days), format!("{year:04}-{month:02}-{day:02}").as_bytes());
        }
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(days_of(2000, 1, 1), i64::from(POSTGRES_EPOCH_DAYS));
    }

    #[test]
    fn dates_before_1_and_after_9999_are_written_as_by_postgres_15() {
        for ((year, month, day), expected) in [
            ((-43, 3, 15), "0044-03-15 BC"),
            ((12345, 1, 2), "12345-01-02"),
            ((5874897, 12, 31), "5874897-12-31"),
            ((-4713, 11, 24), "4714-11-24 BC"),
            ((1, 1, 1), "0001-01-01"),
            ((0, 12, 31), "0001-12-31 BC"),
        ] {
            let days = days_of(year, month, day);
            assert_eq!(text(|out| date(days, out)), expected);
            assert!(postgres_days(days).is_some(), "{expected}");
        }
        assert_eq!(postgres_days(days_of(-4713, 11, 23)), None);
        assert_eq!(postgres_days(days_of(5_874_898, 1, 1)), None);
        assert_eq!(postgres_days(i64::MIN), None);
        assert_eq!(postgres_days(days_of(2000, 1, 1)), Some(0));
    }

    #[test]
    fn moments_have_no_zeros_behind_and_offsets_only_the_parts_they_need() {
        let moment = days_of(2024, 7, 1) * DAY_MICROS;
        let bc = days_of(-43, 3, 15) * DAY_MICROS + 3_723_500_000;
        let last = days_of(294_246, 12, 31) * DAY_MICROS + DAY_MICROS - 1;
        let plain = |offset| Style { offset, json: false };
        let mut written = WrittenDay::default();
        for (micros, style, expected) in [
            (moment, plain(None), "2024-07-01 00:00:00"),
            (moment + 100_000, plain(Some(19_800)), "2024-07-01 05:30:00.1+05:30"),
            (moment, plain(Some(0)), "2024-07-01 00:00:00+00"),
            (moment, plain(Some(-12_600)), "2024-06-30 20:30:00-03:30"),
            (bc, plain(None), "0044-03-15 01:02:03.5 BC"),
            (bc - 3_208_000_000, plain(Some(3_208)), "0044-03-15 01:02:03.5+00:53:28 BC"),
            (last, plain(None), "294246-12-31 23:59:59.999999"),
            (-1, plain(None), "1969-12-31 23:59:59.999999"),
            (moment, Style { offset: None, json: true }, "2024-07-01T00:00:00"),
            (moment, Style { offset: Some(0), json: true }, "2024-07-01T00:00:00+00:00"),
        ] {
            // Of a day that was written before, and of one that was not.
            for _ in 0..2 {
                assert_eq!(text(|out| timestamp(micros, style, &mut written, out)), expected);
            }
        }
        text(|out| timestamp(i64::MAX, plain(Some(50_000)), &mut written, out));
        text(|out| timestamp(i64::MIN, plain(Some(-50_000)), &mut written, out));
        assert_eq!(postgres_micros(last), Some(last - POSTGRES_EPOCH_MICROS));
        assert_eq!(postgres_micros(days_of(-4713, 11, 24) * DAY_MICROS - 1), None);
        assert_eq!(postgres_micros(i64::MIN), None);
        assert_eq!(text(|out| time(DAY_MICROS, out)), "24:00:00");
        assert_eq!(text(|out| time(3_723_000_100, out)), "01:02:03.0001");
    }

    #[test]
    fn intervals_say_signs_as_postgres_15_does() {
        for (months, days, micros, expected) in [
            (0, 1, 7_384_500_000, "1 day 02:03:04.5"),
            (0, 0, -1_000_000, "-00:00:01"),
            (14, -3, 14_706_789_000, "1 year 2 mons -3 days +04:05:06.789"),
            (0, 0, 0, "00:00:00"),
            (-1, 0, 0, "-1 mons"),
            (0, -1, 1_000_000, "-1 days +00:00:01"),
            (-14, 3, -14_706_000_000, "-1 years -2 mons +3 days -04:05:06"),
            (0, 0, i64::MAX, "2562047788:00:54.775807"),
            (1, 0, -1_000_000, "1 mon -00:00:01"),
            (0, 0, -1, "-00:00:00.000001"),
            (i32::MAX, i32::MIN, 0, "178956970 years 7 mons -2147483648 days"),
            (0, -1, -43_200_000_000, "-1 days -12:00:00"),
        ] {
            let value = Interval { months, days, micros };
            assert_eq!(text(|out| interval(value, out)), expected);
        }
        text(|out| interval(Interval { months: i32::MIN, days: 0, micros: i64::MIN }, out));
    }
}
