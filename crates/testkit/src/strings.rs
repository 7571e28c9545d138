//! A column of strings without one allocation per value.

/// Strings laid end to end: value `i` is `bytes[offsets[i]..offsets[i + 1]]`, valid UTF-8.
///
/// The two vectors are the buffers of an Arrow `Utf8` array, so they become one without copying.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strings {
    /// One more than there are values, starting with 0, never decreasing.
    pub offsets: Vec<i32>,
    /// The text of all values, in order.
    pub bytes: Vec<u8>,
}

impl Strings {
    /// An empty column with room for `values` strings of `bytes` bytes together.
    #[must_use]
    pub fn with_capacity(values: usize, bytes: usize) -> Self {
        let mut offsets = Vec::with_capacity(values + 1);
        offsets.push(0);
        Self { offsets, bytes: Vec::with_capacity(bytes) }
    }

    /// How many strings there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// True if there are no strings.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The string at `index`.
    ///
    /// # Panics
    /// If `index` is not below [`Strings::len`].
    #[must_use]
    pub fn get(&self, index: usize) -> &str {
        std::str::from_utf8(self.slice(index)).expect("only whole strings are pushed")
    }

    /// Appends one string.
    pub fn push(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
        self.close();
    }

    /// The bytes of the string at `index`.
    #[inline]
    pub(crate) fn slice(&self, index: usize) -> &[u8] {
        &self.bytes[self.offsets[index] as usize..self.offsets[index + 1] as usize]
    }

    /// Ends the value whose bytes were appended to `bytes` since the last call.
    #[inline]
    pub(crate) fn close(&mut self) {
        let end = i32::try_from(self.bytes.len());
        self.offsets.push(end.expect("a string column holds less than 2 GiB; ask for fewer rows"));
    }
}

impl<T: AsRef<str>> FromIterator<T> for Strings {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut strings = Self::with_capacity(0, 0);
        values.into_iter().for_each(|value| strings.push(value.as_ref()));
        strings
    }
}

/// Appends the first `digits` hexadecimal digits of `words`, most significant first.
pub(crate) fn push_hex(bytes: &mut Vec<u8>, words: &[u64], digits: usize) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for digit in 0..digits {
        let word = words[digit / 16];
        bytes.push(DIGITS[(word >> (60 - 4 * (digit % 16)) & 15) as usize]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_come_back_as_pushed() {
        let strings: Strings = ["", "a", "烤鸭", ""].into_iter().collect();
        assert_eq!(strings.len(), 4);
        assert_eq!((0..4).map(|i| strings.get(i)).collect::<Vec<_>>(), ["", "a", "烤鸭", ""]);
    }

    #[test]
    fn hex_is_most_significant_digit_first() {
        let mut bytes = Vec::new();
        push_hex(&mut bytes, &[0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210], 20);
        assert_eq!(bytes, b"0123456789abcdeffedc");
    }
}
