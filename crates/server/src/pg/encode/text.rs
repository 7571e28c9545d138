//! A piece of text on the stack: one number, date or interval at a time.
//!
//! # Not here
//! What is written there: `float`, `numeric`, `calendar`.

/// Bytes of the longest text: a decimal of 77 digits with 128 zeros behind it has 206.
const CAPACITY: usize = 256;

/// Room for one short text of ASCII, used again for every value.
pub(in crate::pg) struct Text {
    bytes: [u8; CAPACITY],
    len: usize,
}

impl Text {
    pub(in crate::pg) fn new() -> Self {
        Self { bytes: [0; CAPACITY], len: 0 }
    }

    #[inline]
    pub(in crate::pg) fn clear(&mut self) {
        self.len = 0;
    }

    #[inline]
    pub(in crate::pg) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    #[inline]
    pub(super) fn push(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }

    #[inline]
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// The number with at least `width` digits.
    pub(super) fn padded(&mut self, number: u64, width: usize) {
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(number).as_bytes();
        (digits.len()..width).for_each(|_| self.push(b'0'));
        self.put(digits);
    }

    /// A number below 100 with two digits.
    #[inline]
    pub(super) fn two(&mut self, number: u8) {
        self.push(b'0' + number / 10);
        self.push(b'0' + number % 10);
    }

    #[inline]
    pub(super) fn unsigned(&mut self, number: u64) {
        self.put(itoa::Buffer::new().format(number).as_bytes());
    }

    #[inline]
    pub(super) fn integer(&mut self, number: i64) {
        self.put(itoa::Buffer::new().format(number).as_bytes());
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
        for number in [0, 7, -7, 10, 1_000_000, i64::MIN, i64::MAX] {
            text.clear();
            text.integer(number);
            assert_eq!(text.as_bytes(), number.to_string().as_bytes());
        }
        text.clear();
        text.padded(7, 3);
        text.padded(1234, 3);
        assert_eq!(text.as_bytes(), b"0071234");
    }
}
