//! Whole numbers as keys: their decimal text.
//!
//! So a column of numbers and one of texts may share a domain, the number 42 and the text `42` have
//! one id, and what `key_of` gives can be read. A text that is not written as a number is written
//! here (`042`, `+1`, `-0`) is another key.

use crate::keys::Keys;

/// Bytes of the longest, -9223372036854775808.
const MAX_BYTES: usize = 20;

/// A batch of whole numbers.
///
/// # Examples
/// ```
/// use uplake_domain::{Decimals, Keys, parse_decimal};
/// let keys = Decimals::new([42, -7]);
/// assert_eq!((keys.key(0), keys.key(1)), (&b"42"[..], &b"-7"[..]));
/// assert_eq!(parse_decimal(keys.key(1)), Some(-7));
/// assert_eq!(parse_decimal(b"007"), None);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Decimals {
    ends: Vec<u32>,
    bytes: Vec<u8>,
}

impl Decimals {
    /// The keys of these numbers, in their order. A batch has at most 2^27 numbers.
    ///
    /// # Panics
    /// If there are more.
    #[must_use]
    pub fn new(numbers: impl IntoIterator<Item = i64>) -> Self {
        let numbers = numbers.into_iter();
        let mut keys = Self::default();
        keys.ends.reserve(numbers.size_hint().0);
        for number in numbers {
            let mut text = [0; MAX_BYTES];
            keys.bytes.extend_from_slice(decimal(number, &mut text));
            keys.ends.push(keys.bytes.len() as u32);
            assert!(keys.ends.len() <= 1 << 27, "a batch of at most 2^27 numbers");
        }
        keys
    }
}

impl Keys for Decimals {
    fn len(&self) -> usize {
        self.ends.len()
    }

    #[inline]
    fn key(&self, row: usize) -> &[u8] {
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.bytes[start as usize..self.ends[row] as usize]
    }
}

/// The number whose key this is; none if no number's is.
#[must_use]
pub fn parse_decimal(key: &[u8]) -> Option<i64> {
    let number = std::str::from_utf8(key).ok()?.parse().ok()?;
    (decimal(number, &mut [0; MAX_BYTES]) == key).then_some(number)
}

fn decimal(number: i64, text: &mut [u8; MAX_BYTES]) -> &[u8] {
    let (mut at, mut rest) = (MAX_BYTES, number.unsigned_abs());
    loop {
        at -= 1;
        text[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        at -= 1;
        text[at] = b'-';
    }
    &text[at..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_everybody_writes_them() {
        let powers = (0..19).map(|power| 10_i64.pow(power));
        let numbers: Vec<i64> = powers
            .flat_map(|n| [n - 1, n, n + 1, -n, 1 - n])
            .chain([i64::MIN, i64::MIN + 1, i64::MAX])
            .collect();
        let keys = Decimals::new(numbers.iter().copied());
        assert_eq!(keys.len(), numbers.len());
        for (row, number) in numbers.into_iter().enumerate() {
            assert_eq!(keys.key(row), number.to_string().as_bytes());
            assert_eq!(parse_decimal(keys.key(row)), Some(number));
        }
    }

    #[test]
    fn other_texts_are_nobodys() {
        for key in
            ["", "-", "+1", "-0", "00", "042", "1 ", "9223372036854775808", "1e3", "4.0", "\u{661}"]
        {
            assert_eq!(parse_decimal(key.as_bytes()), None, "{key}");
        }
        assert_eq!(parse_decimal(&[0xFF]), None);
    }
}
