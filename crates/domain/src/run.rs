//! The bytes of a run: keys in order, each with its place in order of arrival.
//!
//! FORMAT.md draws them. A base is a run of all keys so far. Nothing is read before the checksums
//! that vouch for it are right, and then every number is checked all the same: hostile bytes give
//! an error, never a panic.

use crate::error::{DomainError, Result};
use crate::keys::{Keys, MAX_KEY_BYTES};

/// Bytes of the header.
pub(crate) const HEADER_BYTES: usize = 96;
const MAGIC: [u8; 8] = *b"UPLKDRUN";
const FORMAT: u16 = 1;
/// A block is closed once it is this long.
const BLOCK_BYTES: usize = 64 << 10;
const TABLE_ENTRY_BYTES: usize = 12;
/// Shortest entry: two lengths of one byte each and the place.
const MIN_ENTRY_BYTES: usize = 6;
/// Ids a domain may have: what a signed 32-bit column holds.
pub const MAX_IDS: u64 = 1 << 31;

/// What an object of the log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Keys that one writer saw first.
    Run,
    /// All keys of the runs up to its number.
    Base,
}

/// What a run says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    /// Whether a vacuum left only this header, so that the name stays taken.
    pub(crate) emptied: bool,
    /// Number of the run; of a base, of the last run it covers.
    pub(crate) number: u32,
    /// What no other writer's run has; of a base, the last run's.
    pub(crate) nonce: u128,
    /// Nonce of run 1: which log this is.
    pub(crate) domain: u128,
    pub(crate) first_id: u32,
    pub(crate) count: u32,
    /// Bytes of all keys.
    pub(crate) key_bytes: u64,
    /// Bytes of the object.
    pub(crate) bytes: u64,
    blocks: u32,
    table_crc: u32,
}

/// The part of a header that a writer decides.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    pub(crate) number: u32,
    pub(crate) nonce: u128,
    pub(crate) domain: u128,
    pub(crate) first_id: u32,
}

/// A run's keys in order of arrival: the id of key `i` is `header.first_id + i`.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) header: Header,
    starts: Vec<usize>,
    bytes: Vec<u8>,
}

impl Keys for Run {
    fn len(&self) -> usize {
        self.header.count as usize
    }

    #[inline]
    fn key(&self, row: usize) -> &[u8] {
        &self.bytes[self.starts[row]..self.starts[row + 1]]
    }
}

/// The bytes of a run of `keys`, in order of arrival; `order` is their rows in order of the keys.
pub(crate) fn encode<K: Keys + ?Sized>(head: Head, keys: &K, order: &[u32]) -> Vec<u8> {
    assert_eq!(keys.len(), order.len(), "the order names every key");
    let mut body = Body::default();
    let mut last: &[u8] = &[];
    let mut key_bytes = 0;
    for &row in order {
        let key = keys.key(row as usize);
        key_bytes += key.len() as u64;
        body.push(last, key, row);
        last = key;
    }
    body.close();
    let bytes = HEADER_BYTES + body.table.len() + body.blocks.len();
    let header = Header {
        kind: head.kind,
        emptied: false,
        number: head.number,
        nonce: head.nonce,
        domain: head.domain,
        first_id: head.first_id,
        count: keys.len() as u32,
        key_bytes,
        bytes: bytes as u64,
        blocks: (body.table.len() / TABLE_ENTRY_BYTES) as u32,
        table_crc: crc32fast::hash(&body.table),
    };
    let mut out = Vec::with_capacity(bytes);
    out.extend_from_slice(&header.to_bytes());
    out.extend_from_slice(&body.table);
    out.extend_from_slice(&body.blocks);
    out
}

/// Blocks and their table, while they are made.
#[derive(Default)]
struct Body {
    table: Vec<u8>,
    blocks: Vec<u8>,
    /// Where the open block starts, and how many keys it has.
    start: usize,
    keys: u32,
}

impl Body {
    fn push(&mut self, last: &[u8], key: &[u8], row: u32) {
        let shared = if self.keys == 0 {
            0
        } else {
            last.iter().zip(key).take_while(|(a, b)| a == b).count()
        };
        put_varint(&mut self.blocks, shared);
        put_varint(&mut self.blocks, key.len() - shared);
        self.blocks.extend_from_slice(&key[shared..]);
        self.blocks.extend_from_slice(&row.to_le_bytes());
        self.keys += 1;
        if self.blocks.len() - self.start >= BLOCK_BYTES {
            self.close();
        }
    }

    fn close(&mut self) {
        if self.keys == 0 {
            return;
        }
        let block = &self.blocks[self.start..];
        self.table.extend_from_slice(&(block.len() as u32).to_le_bytes());
        self.table.extend_from_slice(&self.keys.to_le_bytes());
        self.table.extend_from_slice(&crc32fast::hash(block).to_le_bytes());
        (self.start, self.keys) = (self.blocks.len(), 0);
    }
}

impl Header {
    /// The same header of an object that has nothing else.
    pub(crate) fn emptied(mut self) -> [u8; HEADER_BYTES] {
        self.emptied = true;
        self.bytes = HEADER_BYTES as u64;
        self.to_bytes()
    }

    fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&FORMAT.to_le_bytes());
        out.push(if self.kind == Kind::Run { 1 } else { 2 });
        out.push(u8::from(self.emptied));
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.nonce.to_le_bytes());
        out.extend_from_slice(&self.domain.to_le_bytes());
        out.extend_from_slice(&self.first_id.to_le_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(&self.key_bytes.to_le_bytes());
        out.extend_from_slice(&self.blocks.to_le_bytes());
        out.extend_from_slice(&self.table_crc.to_le_bytes());
        out.extend_from_slice(&self.bytes.to_le_bytes());
        out.resize(HEADER_BYTES - 4, 0);
        out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
        out.try_into().expect("the fields fill the header")
    }

    /// Reads the header of `object`, whose first bytes are given.
    pub(crate) fn parse(object: &str, bytes: &[u8]) -> Result<Self> {
        let corrupt = |what: &str| DomainError::corrupt(object, what);
        let Some(bytes) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(corrupt("shorter than its header"));
        };
        let mut fields = Fields { bytes, at: 0 };
        if fields.take::<8>() != MAGIC {
            return Err(corrupt("not a run"));
        }
        let format = u16::from_le_bytes(fields.take());
        let crc = u32::from_le_bytes(*bytes.last_chunk().expect("the header is longer"));
        if crc32fast::hash(&bytes[..HEADER_BYTES - 4]) != crc {
            return Err(corrupt("the header fails its checksum"));
        }
        if format != FORMAT {
            let (object, supported) = (object.to_owned(), FORMAT);
            return Err(DomainError::TooNew { object, found: format, supported });
        }
        let [kind, emptied] = fields.take();
        let header = Self {
            kind: if kind == 1 { Kind::Run } else { Kind::Base },
            emptied: emptied == 1,
            number: u32::from_le_bytes(fields.take()),
            nonce: u128::from_le_bytes(fields.take()),
            domain: u128::from_le_bytes(fields.take()),
            first_id: u32::from_le_bytes(fields.take()),
            count: u32::from_le_bytes(fields.take()),
            key_bytes: u64::from_le_bytes(fields.take()),
            blocks: u32::from_le_bytes(fields.take()),
            table_crc: u32::from_le_bytes(fields.take()),
            bytes: u64::from_le_bytes(fields.take()),
        };
        if !(1..=2).contains(&kind) || emptied > 1 {
            return Err(corrupt("the header names an unknown kind"));
        }
        if header.number == 0 || u64::from(header.first_id) + u64::from(header.count) > MAX_IDS {
            return Err(corrupt("the header's numbers are out of range"));
        }
        if header.kind == Kind::Base && header.first_id != 0 {
            return Err(corrupt("a base does not start at id 0"));
        }
        Ok(header)
    }
}

struct Fields<'a> {
    bytes: &'a [u8; HEADER_BYTES],
    at: usize,
}

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let out = self.bytes[self.at..].first_chunk().expect("the fields fit the header");
        self.at += N;
        *out
    }
}

/// Reads a whole object.
///
/// # Errors
/// [`DomainError::Corrupt`] or [`DomainError::TooNew`]; an emptied run is corrupt here, because the
/// caller has asked the header first.
pub(crate) fn decode(object: &str, bytes: &[u8]) -> Result<Run> {
    let corrupt = |what: &str| DomainError::corrupt(object, what);
    let header = Header::parse(object, bytes)?;
    if header.emptied || header.bytes != bytes.len() as u64 {
        return Err(corrupt("its length is not the one it was written with"));
    }
    let rest = &bytes[HEADER_BYTES..];
    let table_bytes = (header.blocks as usize).saturating_mul(TABLE_ENTRY_BYTES);
    let Some((table, blocks)) = rest.split_at_checked(table_bytes) else {
        return Err(corrupt("the table of its blocks is cut off"));
    };
    if crc32fast::hash(table) != header.table_crc {
        return Err(corrupt("the table of its blocks fails its checksum"));
    }
    let blocks = cut(object, table, blocks)?;
    let starts = places(object, &header, &blocks)?;
    let bytes = keys(object, &starts, &blocks)?;
    Ok(Run { header, starts, bytes })
}

/// The blocks with the number of their keys, once their checksums are right.
fn cut<'a>(object: &str, table: &[u8], mut rest: &'a [u8]) -> Result<Vec<(&'a [u8], u32)>> {
    let (entries, _) = table.as_chunks::<TABLE_ENTRY_BYTES>();
    let mut blocks = Vec::with_capacity(entries.len());
    for (number, entry) in entries.iter().enumerate() {
        let (fields, _) = entry.as_chunks::<4>();
        let [bytes, keys, crc] = [0, 1, 2].map(|field| u32::from_le_bytes(fields[field]));
        let Some((block, after)) = rest.split_at_checked(bytes as usize) else {
            return Err(DomainError::corrupt(object, format!("block {number} is cut off")));
        };
        if crc32fast::hash(block) != crc {
            return Err(DomainError::corrupt(object, format!("block {number} fails its checksum")));
        }
        blocks.push((block, keys));
        rest = after;
    }
    if !rest.is_empty() {
        return Err(DomainError::corrupt(object, "bytes follow the last block"));
    }
    Ok(blocks)
}

/// An entry of a block.
struct Entry<'a> {
    shared: usize,
    rest: &'a [u8],
    row: u32,
}

/// Takes an entry off the front of `block`; `None` if it is not one.
#[inline]
fn take_entry<'a>(block: &mut &'a [u8]) -> Option<Entry<'a>> {
    let shared = take_varint(block)?;
    let length = take_varint(block)?;
    let (rest, after) = block.split_at_checked(length)?;
    let (row, after) = after.split_first_chunk::<4>()?;
    *block = after;
    let fits = shared + length <= MAX_KEY_BYTES;
    fits.then_some(Entry { shared, rest, row: u32::from_le_bytes(*row) })
}

/// Where each key starts when they stand in order of arrival, and where the last one ends.
fn places(object: &str, header: &Header, blocks: &[(&[u8], u32)]) -> Result<Vec<usize>> {
    const UNSEEN: usize = usize::MAX;
    let corrupt = |what: &str| DomainError::corrupt(object, what);
    let count = header.count as usize;
    let room: usize = blocks.iter().map(|(block, _)| block.len() / MIN_ENTRY_BYTES).sum();
    if room < count {
        return Err(corrupt("it has fewer keys than its header says"));
    }
    let mut starts = vec![UNSEEN; count + 1];
    let mut seen = 0;
    for &(mut block, keys) in blocks {
        for _ in 0..keys {
            let entry = take_entry(&mut block).ok_or_else(|| corrupt("a key is cut off"))?;
            let length = starts[..count].get_mut(entry.row as usize);
            let length = length.filter(|length| **length == UNSEEN);
            let length =
                length.ok_or_else(|| corrupt("two keys have one id, or an id too high"))?;
            *length = entry.shared + entry.rest.len();
            seen += 1;
        }
        if !block.is_empty() {
            return Err(corrupt("bytes follow a block's last key"));
        }
    }
    if seen != count {
        return Err(corrupt("it has fewer keys than its header says"));
    }
    let mut end = 0;
    for start in &mut starts[..count] {
        let length = *start;
        *start = end;
        end += length;
    }
    starts[count] = end;
    if end as u64 != header.key_bytes {
        return Err(corrupt("its keys have other lengths than its header says"));
    }
    Ok(starts)
}

/// The bytes of all keys in order of arrival.
fn keys(object: &str, starts: &[usize], blocks: &[(&[u8], u32)]) -> Result<Vec<u8>> {
    let corrupt = |what: &str| DomainError::corrupt(object, what);
    let total = starts[starts.len() - 1];
    let mut bytes = Vec::new();
    // Prefixes can make a small object name more bytes than there is memory.
    if bytes.try_reserve_exact(total).is_err() {
        let (object, what) = (object.to_owned(), "bytes of keys");
        let limit = isize::MAX as u64;
        return Err(DomainError::TooLarge { object, what, found: total as u64, limit });
    }
    bytes.resize(total, 0);
    let mut key = Vec::with_capacity(64);
    let mut first = true;
    for &(mut block, keys) in blocks {
        for at in 0..keys {
            let entry = take_entry(&mut block).ok_or_else(|| corrupt("a key is cut off"))?;
            // What is shared is all that is shared, so one byte decides about the order.
            let ascends = match (at, key.get(entry.shared), entry.rest.first()) {
                (0, _, _) => entry.shared == 0 && (first || key.as_slice() < entry.rest),
                (_, Some(last), Some(next)) => last < next,
                (_, None, Some(_)) => entry.shared == key.len(),
                _ => false,
            };
            if !ascends {
                return Err(corrupt("its keys are not in order"));
            }
            first = false;
            key.truncate(entry.shared);
            key.extend_from_slice(entry.rest);
            let start = starts[entry.row as usize];
            bytes[start..start + key.len()].copy_from_slice(&key);
        }
    }
    Ok(bytes)
}

/// Seven bits a byte, the lowest first; the last byte is below 128.
fn put_varint(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[inline]
fn take_varint(bytes: &mut &[u8]) -> Option<usize> {
    let mut value = 0;
    // Three bytes hold more than the longest key.
    for shift in [0, 7, 14] {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= usize::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
