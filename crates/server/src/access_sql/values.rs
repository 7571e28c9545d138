//! Times, sizes and sums as statements have them.

use arrow::compute::kernels::cast_utils::Parser;
use arrow::datatypes::{Date32Type, TimestampMillisecondType};

const DAY_MILLIS: i64 = 86_400_000;
const MICRODOLLARS: f64 = 1e6;
/// More is no sum.
const MOST_DOLLARS: f64 = 1e12;

/// A last moment, milliseconds since 1970, UTC: a time, or a day, which counts to its end. `None` is no end.
pub(super) fn moment(text: &str) -> Result<Option<i64>, String> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("infinity") {
        return Ok(None);
    }
    let is_day = text.len() == "2027-01-31".len();
    let end = match is_day {
        true => Date32Type::parse(text)
            .and_then(|day| (i64::from(day) + 1).checked_mul(DAY_MILLIS))
            .map(|next| next - 1),
        false => TimestampMillisecondType::parse(text),
    };
    let wrong = || "it is no day, '2027-01-31', and no time, '2027-01-31T18:00:00Z'".to_owned();
    end.map(Some).ok_or_else(wrong)
}

/// Bytes: `8GB`, `512MB`, or a number of them; units are of 1024.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text[digits.len()..].to_ascii_uppercase();
    let factor: u64 = match unit.trim_end_matches('B').trim_end_matches('I') {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        "T" => 1 << 40,
        _ => 0,
    };
    let number: f64 = digits.trim().parse().unwrap_or(-1.0);
    let bytes = number * factor as f64;
    if !(1.0..=i64::MAX as f64).contains(&bytes) {
        return Err("it is no size, such as '512MB' or '8GB'".to_owned());
    }
    Ok(bytes as u64)
}

/// A whole number from 1.
pub(super) fn whole<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let number = text.trim().parse::<u64>().ok().filter(|number| *number > 0);
    let number = number.and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| "it is no whole number above 0, or too great a one".to_owned())
}

/// Dollars, in millionths.
pub(super) fn dollars(text: &str) -> Result<u64, String> {
    let dollars: f64 = text.trim().parse().unwrap_or(-1.0);
    if !(0.0..=MOST_DOLLARS).contains(&dollars) {
        return Err("it is no sum of dollars, such as 20 or 0.5".to_owned());
    }
    Ok((dollars * MICRODOLLARS).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_counts_to_its_end() {
        assert_eq!(moment("1970-01-01"), Ok(Some(DAY_MILLIS - 1)));
        assert_eq!(moment("1970-01-01T00:00:01Z"), Ok(Some(1000)));
        assert_eq!(moment("1970-01-01 01:00:00+01:00"), Ok(Some(0)));
        assert_eq!(moment("Infinity"), Ok(None));
        for bad in ["", "tomorrow", "2027-02-30", "2027-13-01", "2027-01-31 25:00:00"] {
            assert!(moment(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_have_units_of_1024() {
        assert_eq!(bytes("8GB"), Ok(8 << 30));
        assert_eq!(bytes("1.5 kB"), Ok(1536));
        assert_eq!(bytes("5TiB"), Ok(5 << 40));
        assert_eq!(bytes("7"), Ok(7));
        for bad in ["", "GB", "-1GB", "0", "8 parsecs", "inf", "NaN"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
        assert_eq!(whole::<u32>("3"), Ok(3));
        assert!(whole::<u32>("0").is_err() && whole::<u32>("5000000000").is_err());
        assert_eq!(dollars("0.5"), Ok(500_000));
        assert!(dollars("-1").is_err() && dollars("x").is_err());
    }
}
