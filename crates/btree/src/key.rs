//! What a key is, and lists of entries on their way between pages.

/// A key's longest length. With it, two halves of a full page and one more entry always fit into
/// two pages: (3904 + 2 * 524) / 2 + 2 * 512 for the fences is less than the 3904 bytes of a page.
pub const MAX_KEY_BYTES: usize = 512;

/// Kinds of keys a tree can have: `u64` and `[u8]`, both in their natural order.
///
/// Sealed: pages know these two.
pub trait Key: sealed::Sealed {}

impl Key for u64 {}
impl Key for [u8] {}

pub(crate) mod sealed {
    /// How pages see a key.
    pub trait Sealed: Ord {
        /// All keys have 8 bytes, so the head is the key.
        const FIXED: bool;
        /// The kind's number in files.
        const KIND: u8;
        /// 8 bytes after `skip` as a big-endian number, zeros behind the end.
        fn head(&self, skip: usize) -> u64;
        /// The key's bytes, in the order keys have.
        fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R;
        /// Gives the key with these bytes. For `u64` there are 8.
        fn from_bytes<R>(bytes: &[u8], use_key: impl FnOnce(&Self) -> R) -> R;
        /// Gives the key with this head, where heads are keys.
        fn from_head<R>(head: u64, use_key: impl FnOnce(&Self) -> R) -> R;
        /// Number of bytes.
        fn bytes_len(&self) -> usize;
    }

    impl Sealed for u64 {
        const FIXED: bool = true;
        const KIND: u8 = 1;

        #[inline(always)]
        fn head(&self, _skip: usize) -> u64 {
            *self
        }

        #[inline]
        fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
            use_bytes(&self.to_be_bytes())
        }

        #[inline]
        fn from_bytes<R>(bytes: &[u8], use_key: impl FnOnce(&Self) -> R) -> R {
            use_key(&super::head_of(bytes))
        }

        #[inline(always)]
        fn from_head<R>(head: u64, use_key: impl FnOnce(&Self) -> R) -> R {
            use_key(&head)
        }

        #[inline(always)]
        fn bytes_len(&self) -> usize {
            8
        }
    }

    impl Sealed for [u8] {
        const FIXED: bool = false;
        const KIND: u8 = 2;

        #[inline(always)]
        fn head(&self, skip: usize) -> u64 {
            super::head_of(self.get(skip..).unwrap_or_default())
        }

        #[inline]
        fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
            use_bytes(self)
        }

        #[inline]
        fn from_bytes<R>(bytes: &[u8], use_key: impl FnOnce(&Self) -> R) -> R {
            use_key(bytes)
        }

        #[inline]
        fn from_head<R>(head: u64, use_key: impl FnOnce(&Self) -> R) -> R {
            use_key(&head.to_be_bytes())
        }

        #[inline(always)]
        fn bytes_len(&self) -> usize {
            self.len()
        }
    }
}

/// The first 8 bytes as a big-endian number, zeros behind the end.
#[inline(always)]
pub(crate) fn head_of(bytes: &[u8]) -> u64 {
    if let Some(head) = bytes.first_chunk::<8>() {
        return u64::from_be_bytes(*head);
    }
    bytes.iter().enumerate().fold(0, |head, (i, byte)| head | u64::from(*byte) << (56 - 8 * i))
}

/// Length of the bytes two keys start with alike.
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The shortest key that is greater than `left` and not greater than `right`.
pub(crate) fn separator<'a>(left: &[u8], right: &'a [u8], fixed: bool) -> &'a [u8] {
    debug_assert!(left < right);
    if fixed { right } else { &right[..(common_prefix(left, right) + 1).min(right.len())] }
}

/// Entries in ascending order: keys back to back, with their values.
#[derive(Debug, Default, Clone)]
pub(crate) struct Entries {
    bytes: Vec<u8>,
    ends: Vec<u32>,
    values: Vec<u64>,
}

impl Entries {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.values.clear();
    }

    #[inline]
    pub(crate) fn key(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        &self.bytes[start..self.ends[index] as usize]
    }

    #[inline]
    pub(crate) fn value(&self, index: usize) -> u64 {
        self.values[index]
    }

    #[inline]
    pub(crate) fn push(&mut self, key: &[u8], value: u64) {
        self.bytes.extend_from_slice(key);
        self.finish_key(value);
    }

    /// Appends entries of 8-byte keys.
    #[inline]
    pub(crate) fn extend_fixed(&mut self, entries: impl ExactSizeIterator<Item = (u64, u64)>) {
        let (start, count) = (self.bytes.len(), entries.len());
        self.bytes.resize(start + 8 * count, 0);
        let bytes = self.bytes[start..].chunks_exact_mut(8);
        self.ends.extend((1..=count).map(|n| (start + 8 * n) as u32));
        self.values.extend(entries.zip(bytes).map(|((head, value), bytes)| {
            bytes.copy_from_slice(&head.to_be_bytes());
            value
        }));
    }

    /// Where the next key's bytes are appended before [`Self::finish_key`].
    pub(crate) fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    #[inline]
    pub(crate) fn finish_key(&mut self, value: u64) {
        self.ends.push(self.bytes.len() as u32);
        self.values.push(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_are_short_and_between() {
        let check = |left: &str, right: &str, expected: &str| {
            assert_eq!(separator(left.as_bytes(), right.as_bytes(), false), expected.as_bytes());
        };
        check("anna", "berta", "b");
        check("user_1234", "user_1277", "user_127");
        check("a", "ab", "ab");
        check("", "x", "x");
        check("a", "a\0", "a\0");
    }

    #[test]
    fn heads_order_keys_as_far_as_they_go() {
        let keys: [&[u8]; 6] = [b"", b"\0", b"a", b"a\0\0", b"ab", b"abcdefghi"];
        for pair in keys.windows(2) {
            assert!(pair[0].head_at(0) <= pair[1].head_at(0));
        }
        assert_eq!(head_of(b"abcdefghi"), u64::from_be_bytes(*b"abcdefgh"));
    }

    trait HeadAt {
        fn head_at(&self, skip: usize) -> u64;
    }
    impl HeadAt for &[u8] {
        fn head_at(&self, skip: usize) -> u64 {
            sealed::Sealed::head(*self, skip)
        }
    }
}
