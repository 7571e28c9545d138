//! Decimals as Postgres' `numeric`: text with the scale's digits, and binary in digits of base 10,000.
//!
//! A decimal is a sign, a magnitude in four words (lowest first) and a scale, so that 128 and 256 bits are one thing.

use super::text::{Ascii, pointed};

/// Digits of 2^255, and one to spare.
const DIGITS: usize = 78;
/// 10^19, the largest power of ten in a word.
const CHUNK: u64 = 10_000_000_000_000_000_000;
/// Of the wire's digits.
const BASE: u128 = 10_000;

/// Bytes of the longest that begins with a word: count of digits, weight, sign and scale, then up to 8 digits, though
/// 2^64 · 1000 has 6.
const SHORT_BYTES: usize = 8 + 16;

/// `-1^negative · magnitude · 10^-scale`
#[derive(Clone, Copy, Debug)]
pub(super) struct Decimal {
    pub negative: bool,
    pub magnitude: [u64; 4],
    pub scale: i8,
}

impl Decimal {
    pub(super) fn new(value: i128, scale: i8) -> Self {
        let magnitude = value.unsigned_abs();
        Self {
            negative: value < 0,
            magnitude: [magnitude as u64, (magnitude >> 64) as u64, 0, 0],
            scale,
        }
    }

    /// Of the little-endian bytes of a number in two's complement.
    pub(super) fn of_256(bytes: [u8; 32], scale: i8) -> Self {
        let mut magnitude = [0u64; 4];
        for (word, bytes) in magnitude.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        let negative = magnitude[3] >> 63 == 1;
        if negative {
            let mut carry = true;
            for word in &mut magnitude {
                (*word, carry) = (!*word).overflowing_add(u64::from(carry));
            }
        }
        Self { negative, magnitude, scale }
    }

    pub(super) fn text(&self, out: &mut impl Ascii) {
        let mut room = [0; DIGITS];
        let mut short = itoa::Buffer::new();
        let digits = match self.magnitude {
            [0, 0, 0, 0] => &[],
            [magnitude, 0, 0, 0] => short.format(magnitude).as_bytes(),
            _ => self.digits(&mut room),
        };
        if self.negative {
            out.push(b'-');
        }
        let scale = usize::from(self.scale.max(0).unsigned_abs());
        if digits.len() > scale {
            out.put(&digits[..digits.len() - scale]);
        } else {
            out.push(b'0');
        }
        if scale > 0 {
            out.push(b'.');
            (digits.len()..scale).for_each(|_| out.push(b'0'));
            out.put(&digits[digits.len().saturating_sub(scale)..]);
        }
        if self.scale < 0 && !digits.is_empty() {
            (0..self.scale.unsigned_abs()).for_each(|_| out.push(b'0'));
        }
    }

    /// The text of a short one: the first so many of these bytes. `None` for others.
    #[inline]
    pub(super) fn short_text(&self) -> Option<([u8; 24], usize)> {
        let ([magnitude, 0, 0, 0], scale @ 1..=8) = (self.magnitude, self.scale) else {
            return None;
        };
        let one = 10_u64.pow(scale.unsigned_abs().into());
        let places = scale.unsigned_abs().into();
        pointed(self.negative, magnitude / one, magnitude % one, places)
    }

    /// Appends the wire's form: count of digits, weight, sign, scale, digits.
    pub(super) fn binary(&self, mut put: impl FnMut(&[u8])) {
        match self.short_binary() {
            Some((wire, length)) => put(&wire[..length]),
            None => self.long_binary(put),
        }
    }

    fn long_binary(&self, mut put: impl FnMut(&[u8])) {
        let mut room = [0; DIGITS];
        let digits = self.digits(&mut room);
        let scale = i32::from(self.scale);
        // The digit of 10^power, where the last of `digits` is that of 10^-scale.
        let digit = |power: i32| {
            let at = digits.len() as i32 - 1 - (power + scale);
            let digit = usize::try_from(at).ok().and_then(|at| digits.get(at));
            digit.map_or(0, |digit| i16::from(digit - b'0'))
        };
        let group =
            |at: i32| (0..4).rev().fold(0, |number, power| number * 10 + digit(at * 4 + power));
        let (first, mut last) =
            ((digits.len() as i32 - 1 - scale).div_euclid(4), (-scale).div_euclid(4));
        while last <= first && group(last) == 0 {
            last += 1;
        }
        let count = if digits.is_empty() { 0 } else { first - last + 1 };
        let weight = if digits.is_empty() { 0 } else { first };
        let sign = if self.negative { 0x4000 } else { 0 };
        for head in [count as i16, weight as i16, sign, i16::from(self.scale.max(0))] {
            put(&head.to_be_bytes());
        }
        for at in (0..count).map(|behind| first - behind) {
            put(&group(at).to_be_bytes());
        }
    }

    /// The same of a magnitude of one word: the first so many of these bytes. `None` for others.
    #[inline]
    pub(super) fn short_binary(&self) -> Option<([u8; SHORT_BYTES], usize)> {
        match (self.magnitude, self.scale) {
            ([magnitude, 0, 0, 0], 0..) => Some(self.of_word(magnitude)),
            _ => None,
        }
    }

    #[inline]
    fn of_word(&self, magnitude: u64) -> ([u8; SHORT_BYTES], usize) {
        // So that the point lies between two digits of base 10,000.
        let (behind, filled) = (self.scale.unsigned_abs().div_ceil(4), self.scale % 4);
        let factor = match filled {
            1 => 1000,
            2 => 100,
            3 => 10,
            _ => 1,
        };
        // Digits of base 10,000 without zeros behind all others, the lowest first, and how many zeros these are. All of
        // it is made in registers: what is written in pieces cannot be read as a whole at once.
        let (mut groups, mut count, mut zeros) = (0_u128, 0_u32, 0_i16);
        let mut digit = |group: u64| {
            if count == 0 && group == 0 {
                zeros += 1;
            } else {
                groups |= u128::from(group) << (16 * count);
                count += 1;
            }
        };
        // A division of two words takes ten times as long as one of one word, which most are.
        if let Some(mut rest) = magnitude.checked_mul(factor) {
            while rest > 0 {
                digit(rest % BASE as u64);
                rest /= BASE as u64;
            }
        } else {
            let mut rest = u128::from(magnitude) * u128::from(factor);
            while rest > 0 {
                digit((rest % BASE) as u64);
                rest /= BASE;
            }
        }
        let weight = if count == 0 { 0 } else { zeros + count as i16 - 1 - i16::from(behind) };
        let sign = if self.negative { 0x4000 } else { 0 };
        let head = [count as u16, weight as u16, sign, self.scale.unsigned_abs().into()];
        let head = head.iter().fold(0_u64, |head, part| head << 16 | u64::from(*part));
        let mut wire = [0; SHORT_BYTES];
        wire[..8].copy_from_slice(&head.to_be_bytes());
        let groups = groups.checked_shl(128 - 16 * count).unwrap_or_default();
        wire[8..].copy_from_slice(&groups.to_be_bytes());
        (wire, 8 + 2 * count as usize)
    }

    /// The decimal digits of the magnitude, none for zero.
    fn digits<'a>(&self, room: &'a mut [u8; DIGITS]) -> &'a [u8] {
        let mut words = self.magnitude;
        let mut at = DIGITS;
        while words != [0; 4] {
            let mut chunk = 0;
            if words[1..] == [0; 3] {
                (chunk, words[0]) = (words[0] % CHUNK, words[0] / CHUNK);
            } else {
                for word in words.iter_mut().rev() {
                    let number = u128::from(chunk) << 64 | u128::from(*word);
                    (chunk, *word) =
                        ((number % u128::from(CHUNK)) as u64, (number / u128::from(CHUNK)) as u64);
                }
            }
            let more = words != [0; 4];
            let end = at;
            while chunk > 0 || more && end - at < 19 {
                at -= 1;
                room[at] = b'0' + (chunk % 10) as u8;
                chunk /= 10;
            }
        }
        &room[at..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pg::encode::text::Text;

    fn text(decimal: Decimal) -> String {
        let mut text = Text::new();
        decimal.text(&mut text);
        if let Some((short, length)) = decimal.short_text() {
            assert_eq!(short[..length], *text.as_bytes());
        }
        String::from_utf8(text.as_bytes().to_vec()).unwrap()
    }

    fn binary(decimal: Decimal) -> Vec<i16> {
        let mut bytes = Vec::new();
        decimal.binary(|more| bytes.extend_from_slice(more));
        bytes.as_chunks::<2>().0.iter().map(|pair| i16::from_be_bytes(*pair)).collect()
    }

    #[test]
    fn a_magnitude_of_one_word_is_written_as_longer_ones_are() {
        let mut magnitude = 0x9e37_79b9_7f4a_7c15u64;
        for round in 0..100_000u32 {
            // xorshift64
            magnitude ^= magnitude << 13;
            magnitude ^= magnitude >> 7;
            magnitude ^= magnitude << 17;
            let number = i128::from(magnitude >> (round % 64)) * 10i128.pow(round % 3);
            let decimal =
                Decimal::new(if round % 2 == 0 { number } else { -number }, (round % 40) as i8);
            let mut long = Vec::new();
            decimal.long_binary(|more| long.extend_from_slice(more));
            let mut short = Vec::new();
            decimal.binary(|more| short.extend_from_slice(more));
            assert_eq!(short, long, "{decimal:?}");
            text(decimal);
        }
        for (number, scale) in [(0, 0), (0, 3), (u64::MAX, 0), (u64::MAX, 1), (u64::MAX, 5)] {
            let decimal = Decimal::new(number.into(), scale);
            let mut long = Vec::new();
            decimal.long_binary(|more| long.extend_from_slice(more));
            let long: Vec<i16> =
                long.as_chunks::<2>().0.iter().map(|pair| i16::from_be_bytes(*pair)).collect();
            assert_eq!(binary(decimal), long);
        }
    }

    #[test]
    fn decimals_are_written_with_the_digits_of_their_scale() {
        for (value, scale, expected) in [
            (1, -2, "100"),
            (0, -2, "0"),
            (0, 4, "0.0000"),
            (-5, 2, "-0.05"),
            (123, 2, "1.23"),
            (123, 3, "0.123"),
            (-1_234_567_890, 0, "-1234567890"),
            (10i128.pow(19), 0, "10000000000000000000"),
            (10i128.pow(38) - 1, 10, "9999999999999999999999999999.9999999999"),
            (i128::MIN, 0, "-170141183460469231731687303715884105728"),
        ] {
            assert_eq!(text(Decimal::new(value, scale)), expected);
        }
    }

    #[test]
    fn all_digits_of_256_bits_are_there() {
        let largest: String = (0..76).map(|_| '9').collect();
        let mut bytes = [0u8; 32];
        // 10^76 - 1 by arithmetic on bytes.
        for _ in 0..76 {
            let mut carry = 9u32;
            for byte in &mut bytes {
                let number = u32::from(*byte) * 10 + carry;
                (*byte, carry) = (number as u8, number >> 8);
            }
        }
        assert_eq!(text(Decimal::of_256(bytes, 0)), largest);
        let expected = format!("{}.{}", &largest[..66], &largest[66..]);
        assert_eq!(text(Decimal::of_256(bytes, 10)), expected);
        assert_eq!(text(Decimal::of_256([0xff; 32], 1)), "-0.1");
        let mut least = [0; 32];
        least[31] = 0x80;
        let expected =
            "-57896044618658097711785492504343953926634992332820282019728792003956564819968";
        assert_eq!(text(Decimal::of_256(least, 0)), expected);
        assert_eq!(binary(Decimal::of_256(bytes, 0)).len(), 4 + 19);
    }

    // Of `numeric_send` of Postgres 15.
    #[test]
    fn binary_decimals_have_digits_of_base_10000() {
        for (value, scale, expected) in [
            (0, 0, vec![0, 0, 0, 0]),
            (0, 4, vec![0, 0, 0, 4]),
            (1, 0, vec![1, 0, 0, 0, 1]),
            (100, -2, vec![1, 1, 0, 0, 1]),
            (12_345_678, 2, vec![3, 1, 0, 2, 12, 3456, 7800]),
            (-5, 2, vec![1, -1, 0x4000, 2, 500]),
            (1, 5, vec![1, -2, 0, 5, 1000]),
            (10_000, 0, vec![1, 1, 0, 0, 1]),
            (1_000_000_000, 4, vec![1, 1, 0, 4, 10]),
        ] {
            assert_eq!(binary(Decimal::new(value, scale)), expected, "{value} {scale}");
        }
    }
}
