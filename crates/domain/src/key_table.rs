//! From an id to its key: all keys in order of their ids.
//!
//! Keys lie one after another in segments of 2^14. A segment whose keys are of one length, as most
//! ids are, needs no table of where they start: one cache miss less per look-up, and no memory.

use crate::keys::{Keys, MAX_KEY_BYTES};

const SEGMENT_BITS: u32 = 14;
/// Keys of a segment; its bytes fit a `u32`.
pub(crate) const SEGMENT_KEYS: usize = 1 << SEGMENT_BITS;
const _: () = assert!((SEGMENT_KEYS * MAX_KEY_BYTES) < u32::MAX as usize);

#[derive(Debug, Clone, Default)]
struct Segment {
    bytes: Vec<u8>,
    /// Where each key ends, once two keys differ in length.
    ends: Vec<u32>,
    /// The length of all keys before that.
    width: u32,
    keys: u32,
}

impl Segment {
    #[inline]
    fn place(&self, at: usize) -> (usize, usize) {
        if self.ends.is_empty() {
            let start = at * self.width as usize;
            return (start, start + self.width as usize);
        }
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        (start as usize, self.ends[at] as usize)
    }

    fn push(&mut self, key: &[u8]) {
        if self.keys == 0 {
            self.width = key.len() as u32;
        }
        if self.ends.is_empty() && key.len() != self.width as usize {
            self.ends.reserve_exact(SEGMENT_KEYS.min(2 * self.keys as usize + 16));
            self.ends.extend((1..=self.keys).map(|keys| keys * self.width));
        }
        self.bytes.extend_from_slice(key);
        if self.keys > 0 && (!self.ends.is_empty() || key.len() != self.width as usize) {
            self.ends.push(self.bytes.len() as u32);
        }
        self.keys += 1;
    }
}

/// All keys of a domain.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeyTable {
    segments: Vec<Segment>,
    len: usize,
    key_bytes: u64,
}

impl KeyTable {
    /// Adds the key of the next id. `more` keys of about this length will follow.
    #[inline]
    pub(crate) fn push(&mut self, key: &[u8], more: usize) {
        let at = self.len & (SEGMENT_KEYS - 1);
        if at == 0 {
            let keys = (more + 1).min(SEGMENT_KEYS);
            let bytes = Vec::with_capacity(keys * key.len());
            self.segments.push(Segment { bytes, ..Segment::default() });
        }
        let segment = self.segments.last_mut().expect("the first key of a segment makes it");
        segment.push(key);
        if at == SEGMENT_KEYS - 1 {
            segment.bytes.shrink_to_fit();
            segment.ends.shrink_to_fit();
        }
        self.len += 1;
        self.key_bytes += key.len() as u64;
    }

    #[inline]
    pub(crate) fn get(&self, id: u32) -> Option<&[u8]> {
        let id = id as usize;
        if id >= self.len {
            return None;
        }
        let segment = &self.segments[id >> SEGMENT_BITS];
        let (start, end) = segment.place(id & (SEGMENT_KEYS - 1));
        Some(&segment.bytes[start..end])
    }

    /// Reads a word of where the key is noted, if it is, so that its line is on the way.
    #[inline]
    pub(crate) fn touch_place(&self, id: u32) -> u32 {
        let segment = self.segments.get(id as usize >> SEGMENT_BITS);
        let end = segment.and_then(|segment| segment.ends.get(id as usize & (SEGMENT_KEYS - 1)));
        end.copied().unwrap_or(0)
    }

    pub(crate) fn key_bytes(&self) -> u64 {
        self.key_bytes
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        let of = |segment: &Segment| segment.bytes.capacity() + 4 * segment.ends.capacity();
        self.segments.iter().map(of).sum::<usize>()
            + self.segments.capacity() * size_of::<Segment>()
    }
}

impl Keys for KeyTable {
    fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn key(&self, row: usize) -> &[u8] {
        self.get(row as u32).expect("the row is below the length")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(key: impl Fn(usize) -> Vec<u8>) {
        let mut table = KeyTable::default();
        for id in 0..2 * SEGMENT_KEYS + 5 {
            table.push(&key(id), 3);
        }
        for id in 0..2 * SEGMENT_KEYS + 5 {
            assert_eq!(table.get(id as u32), Some(&key(id)[..]), "id {id}");
        }
        assert_eq!(table.get((2 * SEGMENT_KEYS + 5) as u32), None);
    }

    #[test]
    fn keys_of_one_length_need_no_ends() {
        check(|id| format!("{id:08}").into_bytes());
    }

    #[test]
    fn keys_of_any_length_come_back() {
        check(|id| vec![id as u8; id % 5]);
        check(|id| vec![7; usize::from(id == 1)]);
        check(|id| vec![7; usize::from(id > SEGMENT_KEYS + 2)]);
        check(|_| Vec::new());
    }
}
