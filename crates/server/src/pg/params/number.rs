//! Text to numbers, booleans and bytes, as Postgres reads them.

/// Why a text is no number of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    Syntax,
    /// It is larger than the type has.
    Range,
    /// It has digits behind the point that the type has not.
    Inexact,
}

/// Postgres' spaces.
pub(super) fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t', '\n', '\r', '\u{b}', '\u{c}'])
}

/// `t`, `true`, `yes`, `on`, `1` and their beginnings.
pub(super) fn boolean(text: &str) -> Option<bool> {
    let text = trim(text).to_ascii_lowercase();
    let begins = |word: &str, least| text.len() >= least && word.starts_with(&text);
    if begins("true", 1) || begins("yes", 1) || begins("on", 2) || text == "1" {
        Some(true)
    } else if begins("false", 1) || begins("no", 1) || begins("off", 2) || text == "0" {
        Some(false)
    } else {
        None
    }
}

pub(super) fn integer(text: &str) -> Result<i128, Wrong> {
    let text = trim(text);
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Wrong::Syntax);
    }
    text.parse().map_err(|_| Wrong::Range)
}

/// A number in its shortest words: `digits · 10^power`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Digits {
    pub negative: bool,
    /// ASCII, without zeros in front.
    pub digits: String,
    pub power: i64,
}

impl Digits {
    /// `-12.5e3`
    pub(super) fn parse(text: &str) -> Result<Self, Wrong> {
        let text = trim(text);
        let negative = text.starts_with('-');
        let text = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (number, power) = match text.split_once(['e', 'E']) {
            Some((number, power)) => {
                let digits = power.strip_prefix(['-', '+']).unwrap_or(power);
                if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                    return Err(Wrong::Syntax);
                }
                (number, power.parse::<i32>().map_err(|_| Wrong::Range)?)
            }
            None => (text, 0),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.len() + fraction.len() == 0 || !is_digits(whole) || !is_digits(fraction) {
            return Err(Wrong::Syntax);
        }
        let digits = format!("{whole}{fraction}");
        let power = i64::from(power) - fraction.len() as i64;
        Ok(Self { negative, digits: digits.trim_start_matches('0').to_owned(), power })
    }

    /// The digits of the number times `10^scale`, at most `precision` of them.
    pub(super) fn scaled(&self, precision: u8, scale: i8) -> Result<String, Wrong> {
        let digits = self.digits.trim_end_matches('0');
        if digits.is_empty() {
            return Ok("0".into());
        }
        let zeros = self.power + (self.digits.len() - digits.len()) as i64 + i64::from(scale);
        if digits.len() as i64 + zeros > i64::from(precision) {
            return Err(Wrong::Range);
        }
        let zeros = usize::try_from(zeros).map_err(|_| Wrong::Inexact)?;
        let mut digits = digits.to_owned();
        digits.extend(std::iter::repeat_n('0', zeros));
        Ok(if self.negative { format!("-{digits}") } else { digits })
    }

    /// The number, if it is whole.
    pub(super) fn whole(&self) -> Result<i128, Wrong> {
        self.scaled(38, 0)?.parse().map_err(|_| Wrong::Range)
    }

    /// Text that every reader of floating-point numbers takes.
    pub(super) fn text(&self) -> String {
        let sign = if self.negative { "-" } else { "" };
        let digits = if self.digits.is_empty() { "0" } else { &self.digits };
        format!("{sign}{digits}e{}", self.power)
    }
}

/// A floating-point number; `is_zero` and `is_infinite` say what one of its type has become.
pub(super) fn float<T: std::str::FromStr>(
    text: &str,
    is_zero: impl Fn(&T) -> bool,
    is_infinite: impl Fn(&T) -> bool,
) -> Result<T, Wrong> {
    let text = trim(text);
    let value = text.parse::<T>().map_err(|_| Wrong::Syntax)?;
    let mantissa = text.split(['e', 'E']).next().unwrap_or(text);
    let has_digits = mantissa.bytes().any(|byte| matches!(byte, b'1'..=b'9'));
    let is_lost = is_zero(&value) || is_infinite(&value);
    if has_digits && is_lost { Err(Wrong::Range) } else { Ok(value) }
}

/// The wire's form of a numeric: count of digits, weight, sign, scale, digits of base 10,000.
///
/// `None` if the bytes are no numeric; NaN and infinities are [`Wrong::Range`].
pub(super) fn numeric(bytes: &[u8]) -> Option<Result<Digits, Wrong>> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let [count, weight, sign, _, digits @ ..] = pairs else { return None };
    let negative = match u16::from_be_bytes(*sign) {
        0 => false,
        0x4000 => true,
        0xc000 | 0xd000 | 0xf000 if digits.is_empty() => return Some(Err(Wrong::Range)),
        _ => return None,
    };
    if usize::from(u16::from_be_bytes(*count)) != digits.len() {
        return None;
    }
    let mut text = String::with_capacity(digits.len() * 4);
    for digit in digits {
        let digit = u16::from_be_bytes(*digit);
        if digit >= 10_000 {
            return None;
        }
        text.push_str(&format!("{digit:04}"));
    }
    let weight = i64::from(i16::from_be_bytes(*weight));
    let power = (weight + 1 - digits.len() as i64) * 4;
    let digits = text.trim_start_matches('0').to_owned();
    Some(Ok(Digits { negative, digits, power }))
}

/// `\x0aff`, or characters with `\\` and `\ooo`.
pub(super) fn bytes(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let mut found = Vec::new();
    if let Some(hex) = text.strip_prefix("\\x") {
        let mut rest = hex.bytes();
        while let Some(high) = rest.next() {
            if matches!(high, b' ' | b'\n' | b'\t' | b'\r') {
                continue;
            }
            found.push(digit(high)? << 4 | digit(rest.next()?)?);
        }
        return Some(found);
    }
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        (rest, _) = match (first, behind) {
            (b'\\', [b'\\', behind @ ..]) => (behind, found.push(b'\\')),
            (b'\\', [high @ b'0'..=b'3', middle @ b'0'..=b'7', low @ b'0'..=b'7', behind @ ..]) => {
                (behind, found.push((high - b'0') << 6 | (middle - b'0') << 3 | (low - b'0')))
            }
            (b'\\', _) => return None,
            (other, behind) => (behind, found.push(*other)),
        };
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans_are_beginnings_of_words() {
        for (text, expected) in [
            ("T", Some(true)),
            (" tr ", Some(true)),
            ("y", Some(true)),
            ("1", Some(true)),
            ("of", Some(false)),
            ("No", Some(false)),
            ("o", None),
            ("", None),
            ("truer", None),
        ] {
            assert_eq!(boolean(text), expected, "{text}");
        }
    }

    #[test]
    fn decimals_are_exact_or_refused() {
        let scaled = |text: &str, precision, scale| {
            Digits::parse(text).and_then(|digits| digits.scaled(precision, scale))
        };
        let ok = |text: &str| Ok(text.to_owned());
        assert_eq!(scaled(" -1.230 ", 5, 2), ok("-123"));
        assert_eq!(scaled("1.5e3", 10, 0), ok("1500"));
        assert_eq!(scaled(".5", 10, 1), ok("5"));
        assert_eq!(scaled("5.", 10, 1), ok("50"));
        assert_eq!(scaled("12300", 3, -2), ok("123"));
        assert_eq!(scaled("-0.000", 3, 2), ok("0"));
        assert_eq!(scaled("1e-3", 10, 2), Err(Wrong::Inexact));
        assert_eq!(scaled("123456", 5, 2), Err(Wrong::Range));
        assert_eq!(scaled("1e2000000000", 38, 0), Err(Wrong::Range));
        assert_eq!(scaled("1e99999999999", 38, 0), Err(Wrong::Range));
        for wrong in ["", ".", "-", "1e", "e5", "1.2.3", "1 2", "NaN", "--1", "1e+-5"] {
            assert_eq!(Digits::parse(wrong), Err(Wrong::Syntax), "{wrong}");
        }
    }

    #[test]
    fn integers_have_no_point_and_floats_no_overflow() {
        assert_eq!(integer("  +5 "), Ok(5));
        assert_eq!(integer("1.0"), Err(Wrong::Syntax));
        assert_eq!(integer("-"), Err(Wrong::Syntax));
        assert_eq!(integer(&"9".repeat(60)), Err(Wrong::Range));
        let double = |text| float(text, |v: &f64| *v == 0.0, |v| v.is_infinite());
        assert_eq!(double(" -Infinity "), Ok(f64::NEG_INFINITY));
        assert_eq!(double("0e5"), Ok(0.0));
        assert_eq!(double("1e400"), Err(Wrong::Range));
        assert_eq!(double("1e-400"), Err(Wrong::Range));
        assert_eq!(double("1,5"), Err(Wrong::Syntax));
        assert!(double("nan").unwrap().is_nan());
    }

    // Of `numeric_send` of Postgres 15.
    #[test]
    fn binary_decimals_are_read() {
        for (words, expected) in [
            (vec![0, 0, 0, 4], "0e-0"),
            (vec![3, 1, 0, 2, 12, 3456, 7800], "1234567800e-4"),
            (vec![1, -1, 0x4000, 2, 500], "-500e-4"),
            (vec![1, 1, 0, 0, 1], "1e4"),
        ] {
            let bytes: Vec<u8> = words.iter().flat_map(|word: &i16| word.to_be_bytes()).collect();
            let found = numeric(&bytes).unwrap().unwrap();
            let expected = Digits::parse(expected).unwrap();
            assert_eq!(found.scaled(38, 8), expected.scaled(38, 8));
        }
        assert_eq!(numeric(&[0, 0, 0, 0, 0xc0, 0, 0, 0]), Some(Err(Wrong::Range)));
        assert_eq!(numeric(&[0, 1, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(numeric(&[0, 1, 0, 0, 0, 0, 0, 0, 0x27, 0x10]), None);
        assert_eq!(numeric(&[0; 7]), None);
    }

    #[test]
    fn bytes_are_hex_or_escaped() {
        assert_eq!(bytes("\\x00Ff 10"), Some(vec![0, 255, 16]));
        assert_eq!(bytes("a\\\\b\\001"), Some(b"a\\b\x01".to_vec()));
        for wrong in ["\\xzz", "\\x0", "\\x0 1", "\\9", "\\", "\\40"] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
    }
}
