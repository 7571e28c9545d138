//! Floating-point numbers as Postgres 15 writes them (`extra_float_digits` 1).
//!
//! The fewest digits that read back as the same number, with an exponent if it is below -4 or not below 15 (6 for
//! `real`): `100000000000000`, `1e+15`, `1e-05`.
//! A decimal that lies exactly between two numbers is never written, though a reader that rounds to even would take it:
//! 1e23 is `9.999999999999999e+22`, as in Postgres.

use std::fmt::Write;

use super::text::{self, Ascii, Text};

/// Exponents from here on are written: `DBL_DIG`.
const DOUBLE_DIGITS: i32 = 15;
/// `FLT_DIG`.
const REAL_DIGITS: i32 = 6;

pub(super) fn double(value: f64, out: &mut impl Ascii) {
    if special(value, out) {
        return;
    }
    // Sums and counts are mostly whole: their digits need no search.
    if value.abs() < 1e15 && value == (value as i64) as f64 {
        return whole(value, out);
    }
    if let Some(places) = four_places(value) {
        if value < 0.0 {
            out.push(b'-');
        }
        out.unsigned(places / 10_000);
        out.push(b'.');
        out.two((places / 100 % 100) as u8);
        if !places.is_multiple_of(100) {
            out.two((places % 100) as u8);
        }
        return out.without_zeros();
    }
    if (1e-4..1e15).contains(&value.abs())
        && few_digits(ryu::Buffer::new().format_finite(value), DOUBLE_DIGITS, out)
    {
        return;
    }
    searched_double(value, out);
}

/// A number that is not whole and has no more than four places behind the point, as amounts have, by 10,000: it is what a
/// whole number below 10^15 comes to over 10,000, and a division is exact to the last bit. Of decimals of so few digits no
/// two stand for one number, as in [`few_digits`].
#[inline]
fn four_places(value: f64) -> Option<u64> {
    let magnitude = value.abs();
    if !(1e-4..1e11).contains(&magnitude) {
        return None;
    }
    let places = (magnitude * 1e4 + 0.5) as u64;
    (places as f64 / 1e4 == magnitude).then_some(places)
}

/// The commonest texts of [`double`], whole numbers and amounts: the first so many of these bytes.
#[inline]
pub(super) fn short_double(value: f64) -> Option<([u8; 24], usize)> {
    let whole = value as i64;
    if whole as f64 == value {
        // Zero may be below it.
        return if whole > 0 { text::few_digits(whole) } else { None };
    }
    let places = four_places(value)?;
    let (whole, mut fraction, mut count) = (places / 10_000, places % 10_000, 4);
    while fraction.is_multiple_of(10) {
        (fraction, count) = (fraction / 10, count - 1);
    }
    text::pointed(value < 0.0, whole, fraction, count)
}

fn searched_double(value: f64, out: &mut impl Ascii) {
    shortest(17, parts64(value), DOUBLE_DIGITS, out, |precision, digits| {
        let done = match precision {
            None => write!(digits, "{value:e}"),
            Some(precision) => write!(digits, "{value:.precision$e}"),
        };
        done.is_ok() && (precision.is_none() || read_back(digits) == Some(value))
    });
}

pub(super) fn real(value: f32, out: &mut impl Ascii) {
    if special(f64::from(value), out) {
        return;
    }
    if value.abs() < 1e6 && value == value.trunc() {
        return whole(f64::from(value), out);
    }
    if (1e-4..1e6).contains(&value.abs())
        && few_digits(ryu::Buffer::new().format_finite(value), REAL_DIGITS, out)
    {
        return;
    }
    searched_real(value, out);
}

fn searched_real(value: f32, out: &mut impl Ascii) {
    shortest(9, parts32(value), REAL_DIGITS, out, |precision, digits| {
        let done = match precision {
            None => write!(digits, "{value:e}"),
            Some(precision) => write!(digits, "{value:.precision$e}"),
        };
        done.is_ok() && (precision.is_none() || read_back(digits) == Some(value))
    });
}

/// Writes the shortest text of a number that is not whole, if it has at most so many digits: of these no two stand for
/// one number, and none lies between two, so that there is nothing to choose.
fn few_digits(shortest: &str, most: i32, out: &mut impl Ascii) -> bool {
    let digits = shortest.trim_start_matches(['-', '0', '.']).bytes().filter(u8::is_ascii_digit);
    let is_few = !shortest.contains('e') && digits.count() <= most as usize;
    if is_few {
        out.put(shortest.as_bytes());
    }
    is_few
}

fn read_back<T: std::str::FromStr>(digits: &Text) -> Option<T> {
    std::str::from_utf8(digits.as_bytes()).ok()?.parse().ok()
}

/// Writes the fewest digits. `write` writes those that Rust finds, or so many behind the first, and says whether they
/// are read back as the number.
fn shortest(
    most: usize,
    parts: Parts,
    exponent_from: i32,
    out: &mut impl Ascii,
    write: impl Fn(Option<usize>, &mut Text) -> bool,
) {
    let mut digits = Text::new();
    for precision in std::iter::once(None).chain((1..most).map(Some)) {
        digits.clear();
        let reads_back = write(precision, &mut digits);
        let decimal = std::str::from_utf8(digits.as_bytes()).ok().and_then(read);
        let Some(decimal) = decimal.filter(|decimal| reads_back && !is_halfway(*decimal, &parts))
        else {
            continue;
        };
        // Rust takes the larger of two decimals that are equally near, Postgres the even one.
        return lay_out(digits.as_bytes(), is_tie(decimal, &parts), exponent_from, out);
    }
    debug_assert!(false, "so many digits are always enough");
}

fn special(value: f64, out: &mut impl Ascii) -> bool {
    if value.is_nan() {
        out.put(b"NaN");
    } else if value.is_infinite() {
        out.put(if value > 0.0 { b"Infinity" } else { b"-Infinity" });
    } else {
        return false;
    }
    true
}

fn whole(value: f64, out: &mut impl Ascii) {
    if value.is_sign_negative() {
        out.push(b'-');
    }
    out.unsigned(value.abs() as u64);
}

/// A magnitude: `mantissa · 2^exponent`.
struct Parts {
    mantissa: u64,
    exponent: i32,
    /// The number below is half as far as the one above: powers of two.
    is_near_below: bool,
}

fn parts64(value: f64) -> Parts {
    let bits = value.to_bits();
    let (exponent, fraction) = ((bits >> 52 & 0x7ff) as i32, bits & ((1 << 52) - 1));
    let is_near_below = fraction == 0 && exponent > 1;
    match exponent {
        0 => Parts { mantissa: fraction, exponent: -1074, is_near_below },
        _ => Parts { mantissa: fraction | 1 << 52, exponent: exponent - 1075, is_near_below },
    }
}

fn parts32(value: f32) -> Parts {
    let bits = value.to_bits();
    let (exponent, fraction) = ((bits >> 23 & 0xff) as i32, u64::from(bits & ((1 << 23) - 1)));
    let is_near_below = fraction == 0 && exponent > 1;
    match exponent {
        0 => Parts { mantissa: fraction, exponent: -149, is_near_below },
        _ => Parts { mantissa: fraction | 1 << 23, exponent: exponent - 150, is_near_below },
    }
}

/// The digits and the power of ten of `d.ddde±x`, as `digits · 10^power`.
fn read(text: &str) -> Option<(u128, i32)> {
    let (number, power) = text.trim_start_matches('-').split_once('e')?;
    let fraction = number.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    let digits = number.bytes().filter(u8::is_ascii_digit);
    let digits = digits.fold(0, |all, digit| all * 10 + u128::from(digit - b'0'));
    Some((digits, power.parse::<i32>().ok()? - fraction as i32))
}

/// Whether `decimal · 10^power = binary · 2^twos`.
///
/// Both numbers are below 2^64, so a power of 5 above 27 cannot make them equal, and everything fits 128 bits.
fn is_same((decimal, power): (u128, i32), binary: u128, twos: i32) -> bool {
    let fives = power.unsigned_abs();
    if fives > 27 || decimal == 0 || binary == 0 {
        return false;
    }
    let fives = 5u128.pow(fives);
    let (left, right) =
        if power >= 0 { (decimal * fives, binary) } else { (decimal, binary * fives) };
    let (zeros_left, zeros_right) = (left.trailing_zeros(), right.trailing_zeros());
    left >> zeros_left == right >> zeros_right
        && zeros_left as i32 + power == zeros_right as i32 + twos
}

/// Whether a decimal is exactly the middle between the number and one of its neighbours.
fn is_halfway(decimal: (u128, i32), parts: &Parts) -> bool {
    let (doubled, half) = (2 * u128::from(parts.mantissa), parts.exponent - 1);
    is_same(decimal, doubled + 1, half)
        || match parts.is_near_below {
            true => is_same(decimal, 2 * doubled - 1, half - 1),
            false => doubled > 0 && is_same(decimal, doubled - 1, half),
        }
}

/// Whether the number is exactly between this decimal and the one whose last digit is one less, which stands for it too.
fn is_tie((decimal, power): (u128, i32), parts: &Parts) -> bool {
    decimal % 2 == 1
        // Half of 10^power is nearer than half of what lies between the number and the one below.
        && (!parts.is_near_below || 10f64.powi(power) < 2f64.powi(parts.exponent - 1))
        && is_same((decimal * 10 - 5, power - 1), u128::from(parts.mantissa), parts.exponent)
}

/// `d.ddde±x` in Postgres' form, with a last digit that is `one_less` (it is odd).
fn lay_out(shortest: &[u8], one_less: bool, exponent_from: i32, out: &mut impl Ascii) {
    let (negative, shortest) = match shortest {
        [b'-', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let split = shortest.iter().position(|byte| *byte == b'e').unwrap_or(shortest.len());
    let (number, power) = shortest.split_at(split);
    let power = std::str::from_utf8(&power[power.len().min(1)..]).unwrap_or_default();
    let power: i32 = power.parse().unwrap_or(0);
    let mut digits = [0; 20];
    let mut count = 0;
    for digit in number.iter().filter(|byte| byte.is_ascii_digit()) {
        digits[count] = *digit;
        count += 1;
    }
    digits[count - 1] -= u8::from(one_less);
    let zeros = digits[1..count].iter().rev().take_while(|digit| **digit == b'0').count();
    let (first, rest) = (digits[0], &digits[1..count - zeros]);
    if negative {
        out.push(b'-');
    }
    if power < -4 || power >= exponent_from {
        out.push(first);
        if !rest.is_empty() {
            out.push(b'.');
            out.put(rest);
        }
        out.put(if power < 0 { b"e-" } else { b"e+" });
        return out.padded(u64::from(power.unsigned_abs()), 2);
    }
    if power < 0 {
        out.put(&b"0.0000"[..1 + power.unsigned_abs() as usize]);
        out.push(first);
        return out.put(rest);
    }
    out.push(first);
    let whole = power as usize;
    if rest.len() <= whole {
        out.put(rest);
        (rest.len()..whole).for_each(|_| out.push(b'0'));
    } else {
        out.put(&rest[..whole]);
        out.push(b'.');
        out.put(&rest[whole..]);
    }
}

#[cfg(test)]
#[expect(clippy::excessive_precision, reason = "ties are written out")]
mod tests {
    use super::*;

    fn double_text(value: f64) -> String {
        let mut text = Text::new();
        double(value, &mut text);
        String::from_utf8(text.as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn the_short_way_writes_what_the_search_does() {
        let mut bits = 0x9e37_79b9_7f4a_7c15u64;
        for round in 0..200_000u32 {
            // xorshift64
            bits ^= bits << 13;
            bits ^= bits >> 7;
            bits ^= bits << 17;
            let value = match round % 6 {
                0 => (bits % 10_000_000) as f64 / 100.0 * if bits >> 63 == 0 { 1.0 } else { -1.0 },
                1 => (bits >> 20) as f64 / f64::from(1u32 << (bits % 31)),
                2 => (bits % 1_000_000_007) as f64 * 1e-7,
                3 => (bits >> (bits % 64)) as f64 / 10_000.0,
                4 => (bits % 10_000) as f64 * 1e-4 + (bits >> 50) as f64,
                _ => f64::from_bits(bits),
            };
            if value.is_nan() || value == value.trunc() {
                continue;
            }
            let mut searched = Text::new();
            searched_double(value, &mut searched);
            assert_eq!(double_text(value).as_bytes(), searched.as_bytes());
            if let Some((short, length)) = short_double(value) {
                assert_eq!(short[..length], *searched.as_bytes());
            }
            let value = value as f32;
            if value.is_finite() && value != value.trunc() {
                searched.clear();
                searched_real(value, &mut searched);
                assert_eq!(real_text(value).as_bytes(), searched.as_bytes());
            }
        }
    }

    fn real_text(value: f32) -> String {
        let mut text = Text::new();
        real(value, &mut text);
        String::from_utf8(text.as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn doubles_are_written_as_by_postgres_15() {
        for (value, expected) in [
            (1e14, "100000000000000"),
            (1e15, "1e+15"),
            (123456789012345680.0, "1.2345678901234568e+17"),
            (123456789012345.0, "123456789012345"),
            (1234567890123456.0, "1.234567890123456e+15"),
            (0.0001, "0.0001"),
            (0.00012345, "0.00012345"),
            (0.00001, "1e-05"),
            (1e-7, "1e-07"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
            (f64::INFINITY, "Infinity"),
            (-0.0, "-0"),
            (1e20, "1e+20"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (999999999999999.9, "999999999999999.9"),
            (9007199254740993.0, "9.007199254740992e+15"),
            (0.1, "0.1"),
            (-2.5, "-2.5"),
            (100.0, "100"),
            (100000000000000.5, "100000000000000.5"),
            (1e-100, "1e-100"),
            (1e23, "9.999999999999999e+22"),
            (809381885676572.25, "809381885676572.2"),
            (2.9802322387695312e-8, "2.9802322387695312e-08"),
            (5.9604644775390625e-8, "5.960464477539063e-08"),
        ] {
            assert_eq!(double_text(value), expected);
            if let Some((short, length)) = short_double(value) {
                assert_eq!(short[..length], *expected.as_bytes());
            }
        }
    }

    #[test]
    fn reals_have_an_exponent_from_a_million_on() {
        for (value, expected) in [
            (1e5, "100000"),
            (1e6, "1e+06"),
            (123456.0, "123456"),
            (1234567.0, "1.234567e+06"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (0.1, "0.1"),
            (f32::MAX, "3.4028235e+38"),
            (1e-45, "1e-45"),
            (16777216.0, "1.6777216e+07"),
            (999999.9, "999999.9"),
            (100000.5, "100000.5"),
            (3295887.25, "3.2958872e+06"),
        ] {
            assert_eq!(real_text(value), expected);
        }
    }

    #[test]
    fn every_text_reads_back_as_the_same_number() {
        let mut seed = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..100_000 {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            let value = f64::from_bits(seed);
            if value.is_finite() {
                assert_eq!(double_text(value).parse(), Ok(value));
            }
            let value = f32::from_bits(seed as u32);
            if value.is_finite() {
                assert_eq!(real_text(value).parse(), Ok(value));
            }
        }
    }
}
