//! From an id to its key: all keys in order of their ids.
//!
//! Keys lie one after another in segments of 2^14. A segment whose keys are of one length, as most
//! ids are, needs no table of where they start: one cache miss less per look-up, and no memory.
//!
//! With a limit of memory, segments whose keys are in the local file are read when a key of theirs
//! is asked for; and if all together do not fit the limit, they are left in the file for good, and
//! keys are read page by page ([`crate::key_file`]).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::error::Result;
use crate::frame::Page;
use crate::key_file::{Held, KeyFile, Place};
use crate::keys::{Keys, MAX_KEY_BYTES};

const SEGMENT_BITS: u32 = 14;
/// Keys of a segment; its bytes fit a `u32`.
pub(crate) const SEGMENT_KEYS: usize = 1 << SEGMENT_BITS;
const _: () = assert!((SEGMENT_KEYS * MAX_KEY_BYTES) < u32::MAX as usize);

#[derive(Debug, Default)]
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

    #[inline]
    fn get(&self, at: usize) -> &[u8] {
        let (start, end) = self.place(at);
        &self.bytes[start..end]
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

    /// Adds the keys of a page from `first` to below `end`.
    fn push_page(&mut self, page: &Page<'_>, first: usize, end: usize) {
        if let Some((width, bytes)) = page.uniform()
            && (self.keys == 0 || self.ends.is_empty() && self.width as usize == width)
        {
            self.width = width as u32;
            self.bytes.extend_from_slice(&bytes[first * width..end * width]);
            self.keys += (end - first) as u32;
            return;
        }
        (first..end).for_each(|at| self.push(page.key(at)));
    }

    fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.ends.shrink_to_fit();
    }

    fn bytes(&self) -> usize {
        self.bytes.capacity() + 4 * self.ends.capacity()
    }
}

/// All keys of a domain.
#[derive(Debug, Default)]
pub(crate) struct KeyTable {
    /// Those that are not set are in the file.
    segments: Vec<OnceLock<Segment>>,
    /// How many are not set.
    missing: AtomicUsize,
    len: usize,
    key_bytes: u64,
    file: Option<KeyFile>,
    /// Whether segments stay in the file.
    is_paged: bool,
}

impl KeyTable {
    /// Adds the key of the next id. `more` keys of about this length will follow.
    ///
    /// # Panics
    /// If the last segment is in the file: see [`KeyTable::open`].
    #[inline]
    pub(crate) fn push(&mut self, key: &[u8], more: usize) {
        let at = self.len & (SEGMENT_KEYS - 1);
        if at == 0 {
            let keys = (more + 1).min(SEGMENT_KEYS);
            let bytes = Vec::with_capacity(keys * key.len());
            self.segments.push(OnceLock::from(Segment { bytes, ..Segment::default() }));
        }
        let segment = self.segments.last_mut().and_then(OnceLock::get_mut);
        let segment = segment.expect("a segment that is not full is in memory");
        segment.push(key);
        if at == SEGMENT_KEYS - 1 {
            segment.shrink();
        }
        self.len += 1;
        self.key_bytes += key.len() as u64;
    }

    /// Adds the keys of a page.
    pub(crate) fn push_page(&mut self, page: &Page<'_>) {
        let mut first = 0;
        while first < page.len() {
            let at = self.len & (SEGMENT_KEYS - 1);
            if at == 0 {
                self.segments.push(OnceLock::from(Segment::default()));
            }
            let end = page.len().min(first + SEGMENT_KEYS - at);
            let segment = self.segments.last_mut().and_then(OnceLock::get_mut);
            let segment = segment.expect("a segment that is not full is in memory");
            let before = segment.bytes.len();
            segment.push_page(page, first, end);
            self.key_bytes += (segment.bytes.len() - before) as u64;
            self.len += end - first;
            if self.len & (SEGMENT_KEYS - 1) == 0 {
                segment.shrink();
            }
            first = end;
        }
    }

    /// A table of the keys in a file; reads those of the last segment if it is not full.
    pub(crate) fn open(file: KeyFile, key_bytes: u64) -> Result<Self> {
        let len = file.len();
        let segments = (0..len.div_ceil(SEGMENT_KEYS)).map(|_| OnceLock::new()).collect();
        let missing = AtomicUsize::new(len.div_ceil(SEGMENT_KEYS));
        let table = Self { segments, missing, len, key_bytes, file: Some(file), is_paged: false };
        if !len.is_multiple_of(SEGMENT_KEYS) {
            table.load(len >> SEGMENT_BITS)?;
        }
        Ok(table)
    }

    /// Whether every key is in memory.
    #[inline]
    pub(crate) fn is_in_memory(&self) -> bool {
        self.missing.load(Relaxed) == 0
    }

    /// Whether keys stay in the file.
    pub(crate) fn is_paged(&self) -> bool {
        self.is_paged
    }

    /// Reads every segment, unless they are to stay in the file.
    pub(crate) fn load_all(&self) -> Result<()> {
        if self.is_in_memory() || self.is_paged {
            return Ok(());
        }
        (0..self.segments.len()).try_for_each(|segment| self.load(segment))
    }

    fn load(&self, number: usize) -> Result<()> {
        let (slot, Some(file)) = (&self.segments[number], &self.file) else { return Ok(()) };
        if slot.get().is_some() {
            return Ok(());
        }
        let first = (number << SEGMENT_BITS) as u32;
        let end = file.len().min((number + 1) << SEGMENT_BITS) as u32;
        let mut segment = Segment::default();
        file.read_range(first, end, |first_id, page| {
            let from = first.saturating_sub(first_id) as usize;
            let to = page.len().min((end - first_id) as usize);
            segment.push_page(page, from, to);
        })?;
        segment.shrink();
        // Another thread may have been faster with the same.
        if slot.set(segment).is_ok() {
            self.missing.fetch_sub(1, Relaxed);
        }
        Ok(())
    }

    /// The key of an id, if it is in memory.
    #[inline]
    pub(crate) fn get(&self, id: u32) -> Option<&[u8]> {
        let id = id as usize;
        if id >= self.len {
            return None;
        }
        let segment = self.segments[id >> SEGMENT_BITS].get()?;
        Some(segment.get(id & (SEGMENT_KEYS - 1)))
    }

    /// The key of an id, wherever it is.
    pub(crate) fn read<'a>(&'a self, id: u32, held: &'a mut Held) -> Result<Option<&'a [u8]>> {
        if let Some(key) = self.get(id) {
            return Ok(Some(key));
        }
        let (true, Some(file)) = ((id as usize) < self.len, &self.file) else { return Ok(None) };
        if self.is_paged {
            return file.read(id, held).map(Some);
        }
        self.load(id as usize >> SEGMENT_BITS)?;
        Ok(self.get(id))
    }

    /// Gives `each` the keys from id `first` on, in their order.
    pub(crate) fn for_each_from(&self, first: u32, mut each: impl FnMut(u32, &[u8])) -> Result<()> {
        let mut id = first as usize;
        while id < self.len {
            let end = self.len.min((id | (SEGMENT_KEYS - 1)) + 1);
            match (self.segments[id >> SEGMENT_BITS].get(), &self.file) {
                (None, Some(file)) => {
                    file.read_range(id as u32, end as u32, |first_id, page| {
                        let from = id.saturating_sub(first_id as usize);
                        for at in from..page.len().min(end - first_id as usize) {
                            each(first_id + at as u32, page.key(at));
                        }
                    })?
                }
                (Some(segment), _) => {
                    (id..end).for_each(|id| each(id as u32, segment.get(id & (SEGMENT_KEYS - 1))));
                }
                (None, None) => {}
            }
            id = end;
        }
        Ok(())
    }

    /// Reads a word of where the key is noted, if it is, so that its line is on the way.
    #[inline]
    pub(crate) fn touch_place(&self, id: u32) -> u32 {
        let segment = self.segments.get(id as usize >> SEGMENT_BITS).and_then(OnceLock::get);
        let end = segment.and_then(|segment| segment.ends.get(id as usize & (SEGMENT_KEYS - 1)));
        end.copied().unwrap_or(0)
    }

    /// Notes that more keys are in the file, and keeps to `limit` bytes.
    pub(crate) fn filed(&mut self, places: &[Place], limit: u64) {
        let Some(file) = &mut self.file else { return };
        file.extend(places);
        self.keep_to(limit);
    }

    /// Leaves segments in the file, if they all and what else is here are more than `limit` bytes.
    pub(crate) fn keep_to(&mut self, limit: u64) {
        let Some(file) = &mut self.file else { return };
        // Ends of keys of different lengths, at most 4 bytes each, come on top.
        let all = self.key_bytes + file.fixed_bytes();
        self.is_paged |= all > limit;
        if !self.is_paged {
            return;
        }
        for slot in &mut self.segments[..file.len() >> SEGMENT_BITS] {
            if slot.take().is_some() {
                *self.missing.get_mut() += 1;
            }
        }
        let tail: usize = self.segments.iter().filter_map(OnceLock::get).map(Segment::bytes).sum();
        file.resize_cache(limit.saturating_sub(file.fixed_bytes() + tail as u64));
    }

    /// From now on, keys that are in this file may be left there.
    pub(crate) fn attach(&mut self, file: KeyFile) {
        self.file = Some(file);
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn key_bytes(&self) -> u64 {
        self.key_bytes
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        let segments = self.segments.iter().filter_map(OnceLock::get);
        segments.map(Segment::bytes).sum::<usize>()
            + self.segments.capacity() * size_of::<OnceLock<Segment>>()
            + self.file.as_ref().map_or(0, KeyFile::bytes) as usize
    }

    /// The keys as a batch, if all are in memory; else a copy of them.
    pub(crate) fn gather(&self) -> Result<Gathered<'_>> {
        self.load_all()?;
        if self.is_in_memory() {
            return Ok(Gathered::Here(self));
        }
        let mut copy = Self::default();
        self.for_each_from(0, |_, key| copy.push(key, SEGMENT_KEYS))?;
        Ok(Gathered::Copy(copy))
    }

    /// The keys from id `from` on, which must be in memory, as a batch in which row `id` is `id`.
    pub(crate) fn tail(&self) -> Tail<'_> {
        Tail(self)
    }
}

/// All keys, in memory.
pub(crate) enum Gathered<'a> {
    Here(&'a KeyTable),
    Copy(KeyTable),
}

impl Keys for Gathered<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Here(table) => table.len,
            Self::Copy(table) => table.len,
        }
    }

    #[inline]
    fn key(&self, row: usize) -> &[u8] {
        let table = match self {
            Self::Here(table) => table,
            Self::Copy(table) => table,
        };
        table.get(row as u32).expect("all keys were gathered")
    }
}

/// Keys by their ids, of which those that are asked for are in memory.
pub(crate) struct Tail<'a>(&'a KeyTable);

impl Keys for Tail<'_> {
    fn len(&self) -> usize {
        self.0.len
    }

    #[inline]
    fn key(&self, row: usize) -> &[u8] {
        self.0.get(row as u32).expect("new keys are in memory until they are in the file")
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
