//! Bytes of the key file: frames of pages of keys. FORMAT.md draws them.
//!
//! A frame's header vouches for its table of pages, and the table for each page, so that a reader
//! may go from frame to frame without their keys, and read one page alone and still know that it is
//! right.

use crate::keys::{Keys, MAX_KEY_BYTES};
use crate::position::Position;
use crate::run::MAX_IDS;

const MAGIC: [u8; 8] = *b"UPLKDKEY";
const FORMAT: u16 = 2;
/// Bytes of a frame's header.
pub(crate) const HEADER_BYTES: usize = 80;
const ENTRY_BYTES: usize = 12;
/// Bytes of a page, unless its only key is longer: what a disk reads as fast as a byte.
const PAGE_BYTES: usize = 4096;
/// A frame is closed at so many keys or bytes of pages, so that making one needs little memory.
const FRAME_KEYS: usize = 1 << 18;
const FRAME_BODY_BYTES: usize = 8 << 20;
/// What a frame has at most: pages up to the limit, and the one that went over it.
const MAX_BODY_BYTES: u64 = (FRAME_BODY_BYTES + MAX_KEY_BYTES) as u64;
/// In place of the length of all keys of a page: each has its own.
const VARIED: u16 = u16::MAX;

/// What the table says of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageEntry {
    pub(crate) bytes: u32,
    pub(crate) keys: u16,
    /// Bytes of every key, or [`VARIED`]; of no meaning if there is one key.
    width: u16,
    crc: u32,
}

impl PageEntry {
    fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let mut out = [0; ENTRY_BYTES];
        out[..4].copy_from_slice(&self.bytes.to_le_bytes());
        out[4..6].copy_from_slice(&self.keys.to_le_bytes());
        out[6..8].copy_from_slice(&self.width.to_le_bytes());
        out[8..].copy_from_slice(&self.crc.to_le_bytes());
        out
    }

    /// `None` if no page is like that.
    fn parse(bytes: &[u8; ENTRY_BYTES]) -> Option<Self> {
        let (length, rest) = bytes.split_first_chunk()?;
        let (keys, rest) = rest.split_first_chunk()?;
        let (width, crc) = rest.split_first_chunk()?;
        let entry = Self {
            bytes: u32::from_le_bytes(*length),
            keys: u16::from_le_bytes(*keys),
            width: u16::from_le_bytes(*width),
            crc: u32::from_le_bytes(*crc.first_chunk()?),
        };
        let (length, keys) = (entry.bytes as usize, usize::from(entry.keys));
        let is_page = match (keys, entry.width) {
            (0, _) => false,
            (1, _) => length <= MAX_KEY_BYTES,
            (_, VARIED) => length <= PAGE_BYTES && length >= 2 * keys,
            (_, width) => length <= PAGE_BYTES && length == keys * usize::from(width),
        };
        is_page.then_some(entry)
    }

    /// Bytes of its keys.
    pub(crate) fn key_bytes(&self) -> u64 {
        let ends = if self.keys > 1 && self.width == VARIED { 2 * u64::from(self.keys) } else { 0 };
        u64::from(self.bytes) - ends
    }

    /// The keys of the page, if these are its bytes.
    pub(crate) fn page<'a>(&self, bytes: &'a [u8]) -> Option<Page<'a>> {
        let is_it = bytes.len() == self.bytes as usize && crc32fast::hash(bytes) == self.crc;
        if !is_it {
            return None;
        }
        let page = self.page_as_is(bytes)?;
        // A forged file may have right checksums.
        let is_sound = page.ends.is_empty()
            || (page.is_ascending() && page.end(page.keys - 1) == page.bytes.len());
        is_sound.then_some(page)
    }

    /// The same without a look at the bytes, which went through [`PageEntry::page`] before.
    #[inline]
    pub(crate) fn page_as_is<'a>(&self, bytes: &'a [u8]) -> Option<Page<'a>> {
        if self.keys == 1 {
            return Some(Page { keys: 1, width: bytes.len(), ends: &[], bytes });
        }
        if self.width != VARIED {
            let (keys, width) = (usize::from(self.keys), usize::from(self.width));
            return Some(Page { keys, width, ends: &[], bytes });
        }
        let keys = usize::from(self.keys);
        let (ends, bytes) = bytes.split_at_checked(2 * keys)?;
        Some(Page { keys, width: 0, ends, bytes })
    }
}

/// The keys of a page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Page<'a> {
    keys: usize,
    width: usize,
    /// Where each key ends in `bytes`, as `u16`; empty if all are `width` long.
    ends: &'a [u8],
    bytes: &'a [u8],
}

impl<'a> Page<'a> {
    fn is_ascending(&self) -> bool {
        self.ends.as_chunks().0.is_sorted_by_key(|end| u16::from_le_bytes(*end))
    }

    #[inline]
    fn end(&self, at: usize) -> usize {
        let bytes = self.ends.get(2 * at..).and_then(|rest| rest.first_chunk());
        bytes.map_or(0, |end| usize::from(u16::from_le_bytes(*end)))
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.keys
    }

    /// The length of all keys, if it is one, and the keys one after another.
    pub(crate) fn uniform(&self) -> Option<(usize, &'a [u8])> {
        self.ends.is_empty().then_some((self.width, self.bytes))
    }

    /// Key `at`, which is below [`Page::len`].
    #[inline]
    pub(crate) fn key(&self, at: usize) -> &'a [u8] {
        if self.ends.is_empty() {
            return &self.bytes[at * self.width..(at + 1) * self.width];
        }
        let start = if at == 0 { 0 } else { self.end(at - 1) };
        &self.bytes[start..self.end(at)]
    }
}

/// What a frame says of itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    /// Whether the run of `position` is complete with this frame.
    pub(crate) last: bool,
    pub(crate) position: Position,
    pub(crate) first_id: u32,
    pub(crate) count: u32,
    body_bytes: u64,
    pages: u32,
    table_crc: u32,
}

impl Header {
    fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&FORMAT.to_le_bytes());
        out.extend_from_slice(&[u8::from(self.last), 0]);
        out.extend_from_slice(&self.position.run.to_le_bytes());
        out.extend_from_slice(&self.position.nonce.to_le_bytes());
        out.extend_from_slice(&self.position.domain.to_le_bytes());
        out.extend_from_slice(&self.first_id.to_le_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(&self.body_bytes.to_le_bytes());
        out.extend_from_slice(&self.pages.to_le_bytes());
        out.extend_from_slice(&self.table_crc.to_le_bytes());
        out.resize(HEADER_BYTES - 4, 0);
        out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
        out.try_into().expect("the fields are as long as the header")
    }

    /// `None` if the bytes are not a frame's header of this format.
    pub(crate) fn parse(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let u32_at = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let u64_at = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let u128_at = |at: usize| Some(u128::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let crc = crc32fast::hash(&bytes[..HEADER_BYTES - 4]);
        let is_ours = bytes.starts_with(&MAGIC)
            && bytes[8..10] == FORMAT.to_le_bytes()
            && crc == u32_at(HEADER_BYTES - 4)?;
        let position = Position { run: u32_at(12)?, nonce: u128_at(16)?, domain: u128_at(32)? };
        let header = Self {
            last: bytes[10] == 1,
            position,
            first_id: u32_at(48)?,
            count: u32_at(52)?,
            body_bytes: u64_at(56)?,
            pages: u32_at(64)?,
            table_crc: u32_at(68)?,
        };
        let fits = header.body_bytes <= MAX_BODY_BYTES
            && header.count as usize <= FRAME_KEYS
            && header.pages <= header.count
            && u64::from(header.first_id) + u64::from(header.count) <= MAX_IDS;
        (is_ours && fits).then_some(header)
    }

    /// Bytes of the table that follows the header.
    pub(crate) fn table_bytes(&self) -> usize {
        ENTRY_BYTES * self.pages as usize
    }

    /// Bytes of the pages that follow the table.
    pub(crate) fn body_bytes(&self) -> usize {
        self.body_bytes as usize
    }

    /// Bytes of the frame.
    pub(crate) fn frame_bytes(&self) -> u64 {
        (HEADER_BYTES + self.table_bytes()) as u64 + self.body_bytes
    }

    /// The pages, if this is the frame's table.
    pub(crate) fn table(&self, bytes: &[u8]) -> Option<Vec<PageEntry>> {
        let is_it = bytes.len() == self.table_bytes() && crc32fast::hash(bytes) == self.table_crc;
        if !is_it {
            return None;
        }
        let entries: Option<Vec<PageEntry>> =
            bytes.as_chunks().0.iter().map(PageEntry::parse).collect();
        let entries = entries?;
        let keys: u64 = entries.iter().map(|entry| u64::from(entry.keys)).sum();
        let bytes: u64 = entries.iter().map(|entry| u64::from(entry.bytes)).sum();
        (keys == u64::from(self.count) && bytes == self.body_bytes).then_some(entries)
    }
}

/// A frame, made from keys.
pub(crate) struct Frame {
    pub(crate) header: Header,
    pub(crate) entries: Vec<PageEntry>,
    /// Table and pages: what follows the header.
    pub(crate) rest: Vec<u8>,
}

impl Frame {
    /// Of the keys from id `from` on, as far as they fit; the run is `position`'s.
    pub(crate) fn make<K: Keys + ?Sized>(keys: &K, from: usize, position: Position) -> Self {
        let (mut body, mut entries) = (Vec::new(), Vec::new());
        let mut at = from;
        while at < keys.len() && at - from < FRAME_KEYS && body.len() < FRAME_BODY_BYTES {
            let most = (at + PAGE_BYTES).min(from + FRAME_KEYS).min(keys.len());
            let entry = push_page(&mut body, keys, at, most);
            at += usize::from(entry.keys);
            entries.push(entry);
        }
        let mut rest: Vec<u8> = entries.iter().flat_map(|entry| entry.to_bytes()).collect();
        let header = Header {
            last: at == keys.len(),
            position,
            first_id: from as u32,
            count: (at - from) as u32,
            body_bytes: body.len() as u64,
            pages: entries.len() as u32,
            table_crc: crc32fast::hash(&rest),
        };
        rest.append(&mut body);
        Self { header, entries, rest }
    }

    pub(crate) fn header_bytes(&self) -> [u8; HEADER_BYTES] {
        self.header.to_bytes()
    }
}

/// Adds a page of the keys from `first` on, fewer than those up to `most` if it is full before.
fn push_page<K: Keys + ?Sized>(
    body: &mut Vec<u8>,
    keys: &K,
    first: usize,
    most: usize,
) -> PageEntry {
    let width = keys.key(first).len();
    let (mut end, mut bytes, mut is_uniform) = (first + 1, width, true);
    while end < most {
        let length = keys.key(end).len();
        let still = is_uniform && length == width;
        let ends = if still { 0 } else { 2 * (end + 1 - first) };
        if bytes + length + ends > PAGE_BYTES {
            break;
        }
        (end, bytes, is_uniform) = (end + 1, bytes + length, still);
    }
    let start = body.len();
    if !is_uniform {
        let mut end_of_key = 0;
        for row in first..end {
            end_of_key += keys.key(row).len();
            body.extend_from_slice(&(end_of_key as u16).to_le_bytes());
        }
    }
    (first..end).for_each(|row| body.extend_from_slice(keys.key(row)));
    let page = &body[start..];
    PageEntry {
        bytes: page.len() as u32,
        keys: (end - first) as u16,
        // A page of one key says nothing about others, and its length may not fit.
        width: if !is_uniform {
            VARIED
        } else if end - first == 1 {
            0
        } else {
            width as u16
        },
        crc: crc32fast::hash(page),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(keys: &[Vec<u8>]) {
        let position = Position { run: 3, nonce: 4, domain: 5 };
        let mut from = 0;
        loop {
            let frame = Frame::make(keys, from, position);
            let header = Header::parse(&frame.header_bytes()).expect("a header");
            assert_eq!((header.first_id as usize, header.position), (from, position));
            assert_eq!(header.frame_bytes(), (HEADER_BYTES + frame.rest.len()) as u64);
            let (table, mut body) = frame.rest.split_at(header.table_bytes());
            let entries = header.table(table).expect("a table");
            assert_eq!(entries, frame.entries);
            for entry in entries {
                let (bytes, rest) = body.split_at(entry.bytes as usize);
                let page = entry.page(bytes).expect("a page");
                for at in 0..page.len() {
                    assert_eq!(page.key(at), keys[from + at], "key {}", from + at);
                }
                from += page.len();
                body = rest;
            }
            assert_eq!((body.len(), header.last), (0, from == keys.len()));
            if header.last {
                return;
            }
        }
    }

    #[test]
    fn keys_of_all_shapes_come_back_from_their_frames() {
        check(&[]);
        check(&(0..300_000).map(|n| format!("{n:08}").into_bytes()).collect::<Vec<_>>());
        check(&(0..5_000u32).map(|n| vec![n as u8; (n % 41) as usize]).collect::<Vec<_>>());
        check(&(0..300).map(|n| vec![n as u8; (n * 2221) % 65_537]).collect::<Vec<_>>());
        check(&[vec![1; 65_536], vec![], vec![2; 4096], vec![3], vec![4; 4095], vec![5]]);
        check(&(0..9_000).map(|n| vec![7; usize::from(n == 8_000)]).collect::<Vec<_>>());
    }

    #[test]
    fn forged_pages_are_refused() {
        let good = PageEntry { bytes: 6, keys: 2, width: VARIED, crc: 0 };
        for (ends, is_right) in [([1, 2], true), ([2, 2], true), ([2, 1], false), ([1, 3], false)] {
            let mut bytes: Vec<u8> = ends.iter().flat_map(|end: &u16| end.to_le_bytes()).collect();
            bytes.extend_from_slice(b"ab");
            let entry = PageEntry { crc: crc32fast::hash(&bytes), ..good };
            assert_eq!(entry.page(&bytes).is_some(), is_right, "{ends:?}");
        }
        for entry in [
            PageEntry { keys: 0, ..good },
            PageEntry { bytes: 3, ..good },
            PageEntry { width: 2, ..good },
            PageEntry { bytes: 4097, ..good },
            PageEntry { bytes: 65_537, keys: 1, ..good },
        ] {
            assert_eq!(PageEntry::parse(&entry.to_bytes()), None, "{entry:?}");
        }
    }
}
