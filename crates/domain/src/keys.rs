//! Batches of keys, where the caller has them.

use crate::error::{DomainError, Result};

/// Bytes a key may have. Any bytes, also none: text need not be UTF-8. That a value is NULL is the
/// caller's to note; it has no id.
pub const MAX_KEY_BYTES: usize = 64 << 10;

/// A batch of keys by row.
///
/// Implemented for slices of slices and, over Arrow's layout, by [`Columnar`]; implement it for
/// other layouts, so that no key is copied to be looked up.
pub trait Keys: Sync {
    /// How many keys there are.
    fn len(&self) -> usize;

    /// The key of a row below [`Keys::len`].
    fn key(&self, row: usize) -> &[u8];

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K: AsRef<[u8]> + Sync> Keys for [K] {
    fn len(&self) -> usize {
        <[K]>::len(self)
    }

    #[inline]
    fn key(&self, row: usize) -> &[u8] {
        self[row].as_ref()
    }
}

impl<K: AsRef<[u8]> + Sync> Keys for Vec<K> {
    fn len(&self) -> usize {
        Vec::len(self)
    }

    #[inline]
    fn key(&self, row: usize) -> &[u8] {
        self[row].as_ref()
    }
}

impl<K: AsRef<[u8]> + Sync, const N: usize> Keys for [K; N] {
    fn len(&self) -> usize {
        N
    }

    #[inline]
    fn key(&self, row: usize) -> &[u8] {
        self[row].as_ref()
    }
}

/// An offset of Arrow's: `i32` of `StringArray` and `BinaryArray`, `i64` of the large ones.
pub trait Offset: Copy + Sync {
    /// The offset as a position in the data.
    fn position(self) -> usize;
}

impl Offset for i32 {
    #[inline]
    fn position(self) -> usize {
        self as usize
    }
}

impl Offset for i64 {
    #[inline]
    fn position(self) -> usize {
        self as usize
    }
}

/// Keys in Arrow's layout: key `row` is `data[offsets[row]..offsets[row + 1]]`.
///
/// # Examples
/// ```
/// use uplake_domain::{Columnar, Keys};
/// let keys = Columnar::new(&[0, 4, 4, 7], b"annabob");
/// assert_eq!((keys.len(), keys.key(0), keys.key(1)), (3, &b"anna"[..], &b""[..]));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Columnar<'a, O> {
    offsets: &'a [O],
    data: &'a [u8],
}

impl<'a, O: Offset> Columnar<'a, O> {
    /// `offsets`: ascending, one more than there are keys, or empty; the last at most `data.len()`.
    /// A slice of an array may be given with its part of the offsets and all of its data.
    ///
    /// # Panics
    /// Here or when a key is asked for, if the offsets are not of that form.
    #[must_use]
    pub fn new(offsets: &'a [O], data: &'a [u8]) -> Self {
        let end = offsets.last().map_or(0, |last| last.position());
        assert!(end <= data.len(), "the last offset is {end}, but there are {} bytes", data.len());
        Self { offsets, data }
    }
}

impl<O: Offset> Keys for Columnar<'_, O> {
    fn len(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    #[inline]
    fn key(&self, row: usize) -> &[u8] {
        &self.data[self.offsets[row].position()..self.offsets[row + 1].position()]
    }
}

/// Keys of our own, one after another.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeyHeap {
    /// Ends of the keys in `bytes`.
    ends: Vec<usize>,
    bytes: Vec<u8>,
}

impl KeyHeap {
    pub(crate) fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn clear(&mut self) {
        self.ends.clear();
        self.bytes.clear();
    }
}

impl Keys for KeyHeap {
    fn len(&self) -> usize {
        self.ends.len()
    }

    #[inline]
    fn key(&self, row: usize) -> &[u8] {
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.bytes[start..self.ends[row]]
    }
}

/// Refuses a key that is too long.
#[inline]
pub(crate) fn check_len(key: &[u8]) -> Result<()> {
    if key.len() <= MAX_KEY_BYTES {
        return Ok(());
    }
    Err(DomainError::KeyTooLong { found: key.len(), limit: MAX_KEY_BYTES })
}

/// The rows of `keys` in the order of their keys.
pub(crate) fn sorted_rows<K: Keys + ?Sized>(keys: &K) -> Vec<u32> {
    if keys.is_empty() {
        return Vec::new();
    }
    // Ids begin alike ("user_"); the 8 bytes after that decide nearly every comparison without a
    // look at the keys.
    let first = keys.key(0);
    let common = (1..keys.len()).fold(first.len(), |common, row| {
        first[..common].iter().zip(keys.key(row)).take_while(|(a, b)| a == b).count()
    });
    let head = |row: usize| {
        let rest = &keys.key(row)[common..];
        let mut head = [0; 8];
        let bytes = rest.len().min(8);
        head[..bytes].copy_from_slice(&rest[..bytes]);
        (u64::from_be_bytes(head), row as u32)
    };
    let mut heads: Vec<(u64, u32)> = (0..keys.len()).map(head).collect();
    heads.sort_unstable_by(|a, b| {
        a.0.cmp(&b.0).then_with(|| keys.key(a.1 as usize).cmp(keys.key(b.1 as usize)))
    });
    heads.into_iter().map(|(_, row)| row).collect()
}
