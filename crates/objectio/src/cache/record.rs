//! The bytes of a segment file.
//!
//! ```text
//! segment   = "UPLKSEG1"  record*
//! record    = header  data
//! header    = magic u32 | header bytes u32 | crc32 of the rest of the header u32
//!             | data bytes u32 | start u64 | size of the object u64 | modified, ms u64
//!             | path bytes u16 | ETag bytes u16 | version bytes u16 | path | ETag | version
//!             | crc32 of each 64 KiB of data, u32 each
//! index     = "UPLKIDX1"  crc32 of the rest u32  (header | offset of its data u64)*
//! ```
//! Numbers are little-endian. ETag and version are empty if the object has none. The index file
//! repeats a sealed segment's headers, so that opening a cache reads no data.
//!
//! # Invariants
//! - Decoding hostile bytes gives `None`, never a panic or a length that was not checked.

use chrono::{DateTime, Utc};
use object_store::ObjectMeta;
use object_store::path::Path;

pub(super) const SEGMENT_MAGIC: &[u8; 8] = b"UPLKSEG1";
pub(super) const INDEX_MAGIC: &[u8; 8] = b"UPLKIDX1";
const RECORD_MAGIC: u32 = 0x5550_4c52;
/// magic, length, checksum.
pub(super) const PREAMBLE: usize = 12;
const FIXED: usize = PREAMBLE + 4 + 8 * 3 + 2 * 3;
/// A checksum covers this many bytes of data, so that a short read checks little.
pub(super) const CHUNK: u64 = 64 << 10;
/// Longer headers are not ours: path, ETag and version are at most 64 KiB each.
const MOST_HEADER: usize = 256 << 10;

/// What a record says about its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) meta: ObjectMeta,
    pub(super) start: u64,
    pub(super) len: u32,
    /// One per 64 KiB.
    pub(super) crcs: Vec<u32>,
}

/// The checksums of `data`.
pub(super) fn checksums(data: &[u8]) -> Vec<u32> {
    data.chunks(CHUNK as usize).map(crc32fast::hash).collect()
}

impl Record {
    /// The header's bytes; `None` if a name is too long to be kept.
    pub(super) fn encode(&self) -> Option<Vec<u8>> {
        let path = self.meta.location.as_ref();
        let etag = self.meta.e_tag.as_deref().unwrap_or_default();
        let version = self.meta.version.as_deref().unwrap_or_default();
        let mut bytes = Vec::with_capacity(FIXED + path.len() + etag.len() + 4 * self.crcs.len());
        bytes.extend_from_slice(&[0; PREAMBLE]);
        bytes.extend_from_slice(&self.len.to_le_bytes());
        bytes.extend_from_slice(&self.start.to_le_bytes());
        bytes.extend_from_slice(&self.meta.size.to_le_bytes());
        bytes.extend_from_slice(&self.meta.last_modified.timestamp_millis().to_le_bytes());
        for text in [path, etag, version] {
            bytes.extend_from_slice(&u16::try_from(text.len()).ok()?.to_le_bytes());
        }
        for text in [path, etag, version] {
            bytes.extend_from_slice(text.as_bytes());
        }
        for crc in &self.crcs {
            bytes.extend_from_slice(&crc.to_le_bytes());
        }
        let len = u32::try_from(bytes.len()).ok().filter(|&len| len as usize <= MOST_HEADER)?;
        bytes[0..4].copy_from_slice(&RECORD_MAGIC.to_le_bytes());
        bytes[4..8].copy_from_slice(&len.to_le_bytes());
        let crc = crc32fast::hash(&bytes[PREAMBLE..]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        Some(bytes)
    }

    /// How long the header is whose first [`PREAMBLE`] bytes these are.
    pub(super) fn header_len(preamble: &[u8]) -> Option<usize> {
        let mut reader = Reader(preamble);
        if reader.u32()? != RECORD_MAGIC {
            return None;
        }
        let len = reader.u32()? as usize;
        (FIXED..=MOST_HEADER).contains(&len).then_some(len)
    }

    /// Reads a header that is exactly these bytes.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        if Self::header_len(bytes)? != bytes.len() {
            return None;
        }
        let mut reader = Reader(&bytes[8..]);
        if reader.u32()? != crc32fast::hash(&bytes[PREAMBLE..]) {
            return None;
        }
        let len = reader.u32()?;
        let start = reader.u64()?;
        let size = reader.u64()?;
        let modified = i64::from_le_bytes(reader.take(8)?.try_into().ok()?);
        let lens = [reader.u16()?, reader.u16()?, reader.u16()?];
        let mut text = |len: u16| std::str::from_utf8(reader.take(usize::from(len))?).ok();
        let (path, etag, version) = (text(lens[0])?, text(lens[1])?, text(lens[2])?);
        let crcs = u64::from(len).div_ceil(CHUNK);
        let crcs = (0..crcs).map(|_| reader.u32()).collect::<Option<Vec<_>>>()?;
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let meta = ObjectMeta {
            location: Path::parse(path).ok()?,
            last_modified: DateTime::<Utc>::from_timestamp_millis(modified)?,
            size,
            e_tag: some(etag),
            version: some(version),
        };
        let fits = start.checked_add(u64::from(len))? <= size;
        (len > 0 && fits && reader.0.is_empty()).then_some(Self { meta, start, len, crcs })
    }
}

/// Writes an index of records and the offsets of their data.
pub(super) fn encode_index(records: &[(Vec<u8>, u64)]) -> Vec<u8> {
    let mut bytes = INDEX_MAGIC.to_vec();
    bytes.extend_from_slice(&[0; 4]);
    for (header, offset) in records {
        bytes.extend_from_slice(header);
        bytes.extend_from_slice(&offset.to_le_bytes());
    }
    let crc = crc32fast::hash(&bytes[12..]);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Reads an index: all of it or nothing.
pub(super) fn decode_index(bytes: &[u8]) -> Option<Vec<(Record, u64)>> {
    let mut reader = Reader(bytes);
    if reader.take(8)? != INDEX_MAGIC || reader.u32()? != crc32fast::hash(&bytes[12..]) {
        return None;
    }
    let mut records = Vec::new();
    while !reader.0.is_empty() {
        let len = Record::header_len(reader.0)?;
        let record = Record::decode(reader.take(len)?)?;
        records.push((record, reader.u64()?));
    }
    Some(records)
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uplake_testkit::random::Random;

    fn record(path: &str, etag: Option<&str>, data: &[u8]) -> Record {
        Record {
            meta: ObjectMeta {
                location: Path::from(path),
                last_modified: DateTime::from_timestamp_millis(1_700_000_000_123).expect("valid"),
                size: 1 << 30,
                e_tag: etag.map(str::to_owned),
                version: None,
            },
            start: 12_345,
            len: data.len() as u32,
            crcs: checksums(data),
        }
    }

    #[test]
    fn records_come_back_as_they_were() {
        for len in [1, CHUNK as usize, CHUNK as usize + 1, 1 << 20] {
            let record = record("a/b=1/c.parquet", Some("\"e\""), &vec![7; len]);
            let bytes = record.encode().expect("short names");
            assert_eq!(Record::header_len(&bytes), Some(bytes.len()));
            assert_eq!(Record::decode(&bytes), Some(record.clone()));
            let index = encode_index(&[(bytes.clone(), 99), (bytes, 1 << 40)]);
            let read = decode_index(&index).expect("an index");
            assert_eq!(read, [(record.clone(), 99), (record, 1 << 40)]);
        }
    }

    #[test]
    fn changed_bytes_are_noticed_and_never_panic() {
        let bytes = record("path", Some("etag"), &[1; 100_000]).encode().expect("short names");
        let index = encode_index(&[(bytes.clone(), 7)]);
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut bad = bytes.clone();
                bad[at] ^= 1 << bit;
                assert_eq!(Record::decode(&bad), None, "byte {at}");
                assert_eq!(Record::decode(&bytes[..at]), None);
            }
        }
        for at in 0..index.len() {
            let mut bad = index.clone();
            bad[at] ^= 1;
            assert_eq!(decode_index(&bad), None, "byte {at}");
        }
        let mut random = Random::new(17);
        for _ in 0..20_000 {
            let len = random.below(300) as usize;
            let mut bytes: Vec<u8> = (0..len).map(|_| random.bits() as u8).collect();
            if len >= 4 {
                bytes[..4].copy_from_slice(&RECORD_MAGIC.to_le_bytes());
            }
            assert_eq!(Record::decode(&bytes), None);
            assert!(decode_index(&bytes).is_none());
        }
    }
}
