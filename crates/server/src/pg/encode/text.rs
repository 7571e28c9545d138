//! Short pieces of text: one number, date or interval at a time.
//!
//! # Not here
//! What is written there: `float`, `numeric`, `calendar`.

/// Bytes of the longest text: a decimal of 77 digits with 128 zeros behind it has 206.
const CAPACITY: usize = 256;

/// Two digits of every number below 100.
pub(super) const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + number as u8 / 10, b'0' + number as u8 % 10];
        number += 1;
    }
    pairs
};

/// What short pieces of ASCII are appended to.
///
/// All go where they stay: a text that is copied at once waits until the stores that made it are done.
pub(super) trait Ascii {
    fn push(&mut self, byte: u8);

    fn put(&mut self, bytes: &[u8]);

    /// The first `count` of these, in one store.
    fn put_first(&mut self, bytes: [u8; 8], count: usize);

    /// Takes zeros at the end away; what is before them ends with something else.
    fn without_zeros(&mut self);

    /// The number with at least `width` digits.
    fn padded(&mut self, number: u64, width: usize) {
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(number).as_bytes();
        (digits.len()..width).for_each(|_| self.push(b'0'));
        self.put(digits);
    }

    /// A number below 100 with two digits.
    #[inline]
    fn two(&mut self, number: u8) {
        self.put(&PAIRS[usize::from(number)]);
    }

    #[inline]
    fn unsigned(&mut self, number: u64) {
        match number {
            0..EIGHT => {
                let (digits, count) = up_to_eight(number as u32);
                self.put_first(digits.to_le_bytes(), count);
            }
            EIGHT..SIXTEEN => {
                self.unsigned(number / EIGHT);
                self.put_first((eight((number % EIGHT) as u32) | ZEROS).to_le_bytes(), 8);
            }
            _ => self.put(itoa::Buffer::new().format(number).as_bytes()),
        }
    }

    #[inline]
    fn integer(&mut self, number: i64) {
        if number < 0 {
            self.push(b'-');
        }
        self.unsigned(number.unsigned_abs());
    }
}

/// The first numbers of more than 8 digits, and of more than 16.
const EIGHT: u64 = 100_000_000;
const SIXTEEN: u64 = EIGHT * EIGHT;
/// As digits.
const ZEROS: u64 = u64::from_le_bytes([b'0'; 8]);

/// The eight digits of a number that has no more, a byte each, the first one lowest: all of them at once, by halves.
#[inline]
const fn eight(number: u32) -> u64 {
    let halves = (number / 10_000) as u64 | ((number % 10_000) as u64) << 32;
    // n / 100 of n below 10,000, and n / 10 of n below 100.
    let hundreds = ((halves * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let pairs = hundreds | (halves - 100 * hundreds) << 16;
    let tens = ((pairs * 103) >> 10) & 0x000f_000f_000f_000f;
    tens | (pairs - 10 * tens) << 8
}

/// The digits of such a number without zeros in front, the first one lowest, and how many they are.
#[inline]
fn up_to_eight(number: u32) -> (u64, usize) {
    let digits = eight(number);
    // All but the last may be left out.
    let zeros = ((digits.trailing_zeros() / 8) as usize).min(7);
    ((digits | ZEROS) >> (8 * zeros), 8 - zeros)
}

/// A number that is not negative and has up to eight digits: the first so many of these bytes.
#[inline]
pub(super) fn few_digits(number: i64) -> Option<([u8; 24], usize)> {
    if !(0..EIGHT as i64).contains(&number) {
        return None;
    }
    let (digits, count) = up_to_eight(number as u32);
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&digits.to_le_bytes());
    Some((bytes, count))
}

/// A number with so many places behind its point, if that is short: the first so many of these bytes.
#[inline]
pub(super) fn pointed(
    negative: bool,
    whole: u64,
    fraction: u64,
    places: usize,
) -> Option<([u8; 24], usize)> {
    if whole >= EIGHT || !(1..=8).contains(&places) {
        return None;
    }
    let (digits, count) = up_to_eight(whole as u32);
    let length = usize::from(negative) + count + 1 + places;
    if length > 16 {
        return None;
    }
    // From the end: all of it is made in a register, and read as a whole at once.
    let behind = (eight(fraction as u32) | ZEROS) >> (8 * (8 - places));
    let mut text = u128::from(behind) << 8 | u128::from(b'.');
    text = text << (8 * count) | u128::from(digits) & ((1 << (8 * count)) - 1);
    if negative {
        text = text << 8 | u128::from(b'-');
    }
    let mut bytes = [0; 24];
    bytes[..16].copy_from_slice(&text.to_le_bytes());
    Some((bytes, length))
}

impl Ascii for Vec<u8> {
    #[inline]
    fn push(&mut self, byte: u8) {
        Self::push(self, byte);
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    #[inline]
    fn put_first(&mut self, bytes: [u8; 8], count: usize) {
        let end = self.len() + count;
        self.extend_from_slice(&bytes);
        self.truncate(end);
    }

    #[inline]
    fn without_zeros(&mut self) {
        while self.last() == Some(&b'0') {
            self.pop();
        }
    }
}

/// Room for one short text of ASCII, used again for every value.
pub(super) struct Text {
    bytes: [u8; CAPACITY],
    len: usize,
}

impl Text {
    pub(super) fn new() -> Self {
        Self { bytes: [0; CAPACITY], len: 0 }
    }

    #[inline]
    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Ascii for Text {
    #[inline]
    fn push(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    #[inline]
    fn put_first(&mut self, bytes: [u8; 8], count: usize) {
        self.put(&bytes[..count]);
    }

    #[inline]
    fn without_zeros(&mut self) {
        while self.len > 0 && self.bytes[self.len - 1] == b'0' {
            self.len -= 1;
        }
    }
}

impl std::fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.put(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_all_their_digits() {
        let mut text = Text::new();
        let powers = (0..19).map(|power| 10_i64.pow(power));
        let around = powers.flat_map(|power| [power - 1, power, power + 1, power * 7 / 3]);
        let many =
            (0..200_000).map(|number: i64| number.wrapping_mul(0x5851_f42d_4c95) >> (number % 48));
        for number in
            around.chain(many).chain([i64::MIN, i64::MAX]).flat_map(|n| [n, n.wrapping_neg()])
        {
            text.clear();
            text.integer(number);
            assert_eq!(text.as_bytes(), number.to_string().as_bytes());
            let mut bytes = b"before".to_vec();
            bytes.integer(number);
            assert_eq!(&bytes[6..], text.as_bytes());
        }
        text.clear();
        text.padded(7, 3);
        text.padded(1234, 3);
        assert_eq!(text.as_bytes(), b"0071234");
    }
}
