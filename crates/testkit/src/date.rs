//! Days since 1970-01-01 as text.

/// `YYYY-MM-DD` of a day counted from 1970-01-01 (the proleptic Gregorian calendar).
///
/// # Examples
/// ```
/// assert_eq!(uplake_testkit::date_text(20_513), "2026-03-01");
/// ```
///
/// # Source
/// Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`.
#[must_use]
pub fn date_text(days: i32) -> String {
    let shifted = i64::from(days) + 719_468; // days since 0000-03-01
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::date_text;

    #[test]
    fn dates_match_the_calendar() {
        for (days, expected) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (20_512, "2026-02-28"),
            (20_513, "2026-03-01"),
            (20_818, "2026-12-31"),
        ] {
            assert_eq!(date_text(days), expected);
        }
    }
}
