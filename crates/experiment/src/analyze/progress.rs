//! How far an experiment is: by its days and by its users.
//!
//! # Not here
//! No clock: today is the last day that has data.

use super::analysis::Analysis;
use crate::report::Progress;

impl Analysis<'_> {
    pub(super) fn progress(&self) -> Progress {
        let period = self.experiment.period.as_ref();
        let of_period = period.and_then(|period| {
            let first = day_number(&period.start)?;
            Some((first, u32::try_from(last_day(&period.end)? - first + 1).ok()?))
        });
        let table = self.table;
        let days = table.days.iter().map(|day| day.day.as_str());
        let exposed = table.first_exposures.iter().map(|(day, ..)| day.as_str());
        let active = table.active_users.iter().map(|(_, day, _)| day.as_str());
        let last = days.chain(exposed).chain(active).filter_map(day_number).max();
        let day = of_period.zip(last).and_then(|((first, days), last)| {
            u32::try_from(last - first + 1).ok().filter(|day| (1..=days).contains(day))
        });
        Progress {
            day,
            days: of_period.map(|(_, days)| days),
            users: self.total.users.iter().sum(),
            planned_users: self.experiment.planned_users,
        }
    }
}

/// The last day that a period with this end, which it does not hold, touches.
fn last_day(end: &str) -> Option<i64> {
    let midnight = end[10..].bytes().all(|byte| !byte.is_ascii_digit() || byte == b'0');
    Some(day_number(end)? - i64::from(midnight))
}

/// Days since 1 March of the year 0, of a text that begins as "2026-11-01" does.
fn day_number(text: &str) -> Option<i64> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    // Years from March on end with the day that leap years have.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leaps = year / 4 - year / 100 + year / 400;
    Some(365 * year + leaps + (153 * month + 2) / 5 + day - 1)
}

#[cfg(test)]
mod tests {
    use super::{day_number, last_day};

    #[test]
    fn each_day_of_four_centuries_follows_the_one_before() {
        let mut before = day_number("1899-12-31").expect("a day");
        for year in 1900..2300 {
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let lengths = [31, 28 + i64::from(leap), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
            for (month, length) in (1..).zip(lengths) {
                for day in 1..=length {
                    let text = format!("{year}-{month:02}-{day:02}");
                    assert_eq!(day_number(&text), Some(before + 1), "{text}");
                    before += 1;
                }
            }
        }
    }

    #[test]
    fn a_period_that_ends_at_midnight_ends_with_the_day_before() {
        let of = |text: &str| day_number(text).expect("a day");
        for (end, last) in [
            ("2026-11-15", "2026-11-14"),
            ("2026-11-15T00:00:00", "2026-11-14"),
            ("2026-11-15T00:00:00.5", "2026-11-15"),
            ("2026-11-15T12:00:00", "2026-11-15"),
            ("2026-03-01", "2026-02-28"),
        ] {
            assert_eq!(last_day(end), Some(of(last)), "{end}");
        }
    }
}
