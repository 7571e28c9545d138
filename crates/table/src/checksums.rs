//! Checksums of a data file, compared as its bytes enter memory.
//!
//! ```text
//! | PAR1 | page | page | … | bloom filters, in blocks | page | … | page indexes, footer |
//!    └──────┴──────┴── a CRC-32 of each unit, in the footer ─┘      one CRC-32, in the log
//! ```
//!
//! Parquet has a checksum of its own for pages, without their headers, indexes and bloom filters, and the
//! `parquet` crate can compare it but not write it. So the units are ours: they lie side by side from the
//! file's first byte to its footer. A reader asks for whole pages, and so for whole units.
//!
//! | where | what |
//! |---|---|
//! | footer, key [`UNITS_KEY`] | base64 of each unit's length (LEB128) and CRC-32 (little-endian) |
//! | `Add` tag [`TAIL_TAG`] | `bytes:crc32` of the rest: page indexes and footer |
//!
//! # Invariants
//! - Every byte of a file is in one unit, and the log, whose commits are sealed, vouches for the first of them.
//! - Files without the tag, of other writers and of older versions, are read as they are.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use bytes::Bytes;
use crc32fast::Hasher;
use parquet::column::page_store::{PageKey, PageStore, PageStoreArgs, PageStoreFactory};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataPushDecoder};

/// Key of the footer's metadata: the checksums of what is before it.
pub(crate) const UNITS_KEY: &str = "uplake.checksums";
/// Tag of an Add action: length and CRC-32 of the file's end, `bytes:crc32`, the latter eight hexadecimal digits.
pub(crate) const TAIL_TAG: &str = "uplake.tail";
/// Bytes that are not pages are vouched for in blocks of so many.
const BLOCK_BYTES: u64 = 64 << 10;

/// What vouches for the bytes of one data file.
#[derive(Debug)]
pub struct Checksums {
    size: u64,
    tail_bytes: u64,
    tail_crc32: u32,
    /// Known once the footer was read.
    units: OnceLock<Units>,
}

#[derive(Debug)]
struct Units {
    /// Where each ends; the first begins at 0, the last is the tail.
    ends: Vec<u64>,
    crc32: Vec<u32>,
}

/// Bytes of a file that are not those that were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedBytes {
    /// Of the unit: what is wrong is somewhere in it.
    pub bytes: Range<u64>,
}

impl fmt::Display for DamagedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { start, end } = self.bytes;
        write!(
            f,
            "it is damaged: bytes {start} to {end} do not have the checksum they were written with; put \
             it back from a copy (uplake lake restore)"
        )
    }
}

impl std::error::Error for DamagedBytes {}

impl Checksums {
    /// Of a file of `size` bytes, whose [`TAIL_TAG`] says `tag`; `None` if that is not as we write it.
    pub(crate) fn from_tag(tag: &str, size: u64) -> Option<Arc<Self>> {
        let (bytes, crc32) = tag.split_once(':')?;
        let tail_bytes = bytes.parse().ok().filter(|bytes| *bytes <= size)?;
        let tail_crc32 = u32::from_str_radix(crc32, 16).ok()?;
        Some(Arc::new(Self { size, tail_bytes, tail_crc32, units: OnceLock::new() }))
    }

    /// The file's end that [`Self::footer`] reads: page indexes and footer.
    pub fn tail(&self) -> Range<u64> {
        self.size - self.tail_bytes..self.size
    }

    /// The footer and page indexes from `bytes`, which are those of `range` and among them [`Self::tail`].
    ///
    /// # Errors
    /// If they are not those that were written.
    pub fn footer(&self, range: &Range<u64>, bytes: &Bytes) -> ParquetResult<ParquetMetaData> {
        let tail = self.tail().start.saturating_sub(range.start) as usize;
        let tail = bytes.slice(tail.min(bytes.len())..);
        self.compare(self.tail(), self.tail_crc32, &tail)?;
        let mut decoder = ParquetMetaDataPushDecoder::try_new(self.size)?
            .with_page_index_policy(PageIndexPolicy::Optional);
        decoder.push_range(self.tail(), tail)?;
        match decoder.try_decode()? {
            parquet::DecodeResult::Data(footer) => Ok(footer),
            _ => Err(ParquetError::EOF("its footer is larger than the log says".to_owned())),
        }
    }

    /// Learns from the footer what vouches for the bytes before it.
    ///
    /// # Errors
    /// If it says nothing of that.
    pub fn learn(&self, footer: &ParquetMetaData) -> ParquetResult<()> {
        if self.units.get().is_some() {
            return Ok(());
        }
        let pairs = footer.file_metadata().key_value_metadata();
        let pair = pairs.and_then(|pairs| pairs.iter().find(|pair| pair.key == UNITS_KEY));
        let units = pair.and_then(|pair| pair.value.as_deref()).and_then(Units::decode);
        let units = units.filter(|units| units.ends.last() == Some(&self.tail().start));
        let lacks = || ParquetError::General("its footer lacks the checksums".to_owned());
        let mut units = units.ok_or_else(lacks)?;
        units.ends.push(self.size);
        units.crc32.push(self.tail_crc32);
        // Another thread may have learned the same.
        let _ = self.units.set(units);
        Ok(())
    }

    /// `range` and the rest of the units that it touches: what to read in order to compare.
    ///
    /// # Errors
    /// If the footer was not read.
    pub fn whole_units(&self, range: &Range<u64>) -> ParquetResult<Range<u64>> {
        let units = self.units()?;
        if range.is_empty() {
            return Ok(range.clone());
        }
        let first = units.ends.partition_point(|end| *end <= range.start);
        let last = units.ends.partition_point(|end| *end < range.end);
        Ok(units.start(first)..units.ends.get(last).copied().unwrap_or(range.end))
    }

    /// Compares `bytes`, which are those of `range`, with their checksums: the units that lie in it whole.
    ///
    /// # Errors
    /// If they are not those that were written, or the footer was not read.
    pub fn compare_units(&self, range: &Range<u64>, bytes: &[u8]) -> ParquetResult<()> {
        let units = self.units()?;
        let mut at = units.ends.partition_point(|end| *end <= range.start);
        if units.start(at) < range.start {
            at += 1;
        }
        while let Some(end) = units.ends.get(at).filter(|end| **end <= range.end) {
            let unit = units.start(at)..*end;
            let of_range = (unit.start - range.start) as usize..(unit.end - range.start) as usize;
            let found = bytes.get(of_range).unwrap_or_default();
            self.compare(unit, units.crc32[at], found)?;
            at += 1;
        }
        Ok(())
    }

    fn units(&self) -> ParquetResult<&Units> {
        let unread = || ParquetError::General("its checksums are not known yet".to_owned());
        self.units.get().ok_or_else(unread)
    }

    fn compare(&self, range: Range<u64>, crc32: u32, bytes: &[u8]) -> ParquetResult<()> {
        if bytes.len() as u64 == range.end - range.start && crc32fast::hash(bytes) == crc32 {
            return Ok(());
        }
        Err(ParquetError::External(Box::new(DamagedBytes { bytes: range })))
    }
}

impl Units {
    fn start(&self, at: usize) -> u64 {
        at.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or_default()
    }

    fn encode(units: &[(u64, u32)]) -> String {
        let mut bytes = Vec::with_capacity(7 * units.len());
        for (length, crc32) in units {
            let mut rest = *length;
            while rest >= 0x80 {
                bytes.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            bytes.push(rest as u8);
            bytes.extend(crc32.to_le_bytes());
        }
        BASE64.encode(bytes)
    }

    fn decode(text: &str) -> Option<Self> {
        let bytes = BASE64.decode(text).ok()?;
        let mut rest = bytes.as_slice();
        let (mut ends, mut crc32) = (Vec::new(), Vec::new());
        let mut end = 0u64;
        while !rest.is_empty() {
            let mut shift = 0;
            loop {
                let (byte, after) = rest.split_first()?;
                rest = after;
                end = end.checked_add(u64::from(byte & 0x7f).checked_shl(shift)?)?;
                shift += 7;
                if byte & 0x80 == 0 {
                    break;
                }
            }
            let (four, after) = rest.split_first_chunk::<4>()?;
            rest = after;
            ends.push(end);
            crc32.push(u32::from_le_bytes(*four));
        }
        Some(Self { ends, crc32 })
    }
}

/// Pages that were handed to a file's encoder on their way out, so that its bytes can be told apart.
///
/// The encoder takes each page back from its store right before it writes it: their lengths, in the order
/// of the file, are what a [`Summing`] needs to know of the bytes that come.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageLengths(Arc<Mutex<VecDeque<u64>>>);

impl PageLengths {
    fn push(&self, bytes: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(bytes);
    }

    fn pop(&self) -> Option<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

impl PageStoreFactory for PageLengths {
    fn create(&self, _: &PageStoreArgs<'_>) -> ParquetResult<Box<dyn PageStore>> {
        Ok(Box::new(CountedPages { lengths: self.clone(), blobs: Vec::new(), bytes: 0 }))
    }
}

/// The pages of a column chunk until they are written: headers, each followed by its page.
struct CountedPages {
    lengths: PageLengths,
    blobs: Vec<Bytes>,
    bytes: usize,
}

impl PageStore for CountedPages {
    fn put(&mut self, blob: Bytes) -> ParquetResult<PageKey> {
        self.bytes += blob.len();
        self.blobs.push(blob);
        Ok(PageKey::new(self.blobs.len() as u64 - 1))
    }

    fn take(&mut self, key: PageKey) -> ParquetResult<Bytes> {
        let at = key.get() as usize;
        let length = |at: usize| self.blobs.get(at).map_or(0, Bytes::len);
        if at.is_multiple_of(2) {
            self.lengths.push((length(at) + length(at + 1)) as u64);
        }
        let blob = self.blobs.get_mut(at).map(std::mem::take);
        let blob = blob.ok_or_else(|| ParquetError::General(format!("there is no page {at}")))?;
        self.bytes -= blob.len();
        Ok(blob)
    }

    fn memory_size(&self) -> usize {
        self.bytes
    }
}

/// The checksums of a file's bytes as they come.
///
/// What comes while no page is expected is something else and cut into blocks: whoever writes sees to it
/// that all of that has come before the next page is handed out.
#[derive(Debug)]
pub(crate) struct Summing {
    pages: PageLengths,
    units: Vec<(u64, u32)>,
    /// Bytes of the page under way that have not come.
    left: u64,
    unit: Hasher,
    unit_bytes: u64,
    whole: Hasher,
    in_tail: bool,
}

/// What became of all bytes.
pub(crate) struct Sums {
    /// Of the whole file.
    pub crc32: u32,
    /// The value of [`TAIL_TAG`].
    pub tail: String,
}

impl Summing {
    pub fn new(pages: PageLengths) -> Self {
        Self {
            pages,
            units: Vec::new(),
            left: 0,
            unit: Hasher::new(),
            unit_bytes: 0,
            whole: Hasher::new(),
            in_tail: false,
        }
    }

    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            while self.left == 0
                && let Some(page) = self.pages.pop()
            {
                self.end_unit();
                self.left = page;
            }
            let room = match (self.in_tail, self.left) {
                (true, _) => u64::MAX,
                (false, 0) => BLOCK_BYTES - self.unit_bytes,
                (false, left) => left,
            };
            let (now, later) =
                bytes.split_at(bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX)));
            self.unit.update(now);
            self.unit_bytes += now.len() as u64;
            self.left = self.left.saturating_sub(now.len() as u64);
            if now.len() as u64 == room {
                self.end_unit();
            }
            bytes = later;
        }
    }

    /// All but page indexes and footer has come; what the footer is to say under [`UNITS_KEY`].
    pub fn begin_tail(&mut self) -> String {
        self.end_unit();
        self.in_tail = true;
        Units::encode(&self.units)
    }

    /// All has come.
    pub fn finish(&mut self) -> Sums {
        let tail = format!("{}:{:08x}", self.unit_bytes, self.unit.clone().finalize());
        self.whole.combine(&self.unit);
        Sums { crc32: self.whole.clone().finalize(), tail }
    }

    fn end_unit(&mut self) {
        if self.unit_bytes == 0 {
            return;
        }
        let unit = std::mem::take(&mut self.unit);
        self.whole.combine(&unit);
        self.units.push((self.unit_bytes, unit.finalize()));
        self.unit_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of the parts, of which `pages` are announced as pages, and its checksums.
    fn summed(parts: &[(&[u8], bool)], tail: &[u8]) -> (Vec<u8>, Checksums) {
        let pages = PageLengths::default();
        let mut sums = Summing::new(pages.clone());
        let mut file = Vec::new();
        for (bytes, is_page) in parts {
            if *is_page {
                pages.push(bytes.len() as u64);
            }
            // As they come: in pieces that know nothing of pages.
            for piece in bytes.chunks(7) {
                sums.update(piece);
            }
            file.extend_from_slice(bytes);
        }
        let units = Units::decode(&sums.begin_tail()).expect("what was encoded");
        sums.update(tail);
        file.extend_from_slice(tail);
        let found = sums.finish();
        assert_eq!(found.crc32, crc32fast::hash(&file));
        let checksums = Checksums::from_tag(&found.tail, file.len() as u64).expect("our own tag");
        let mut checksums = Arc::into_inner(checksums).expect("one owner");
        let mut all = units;
        all.ends.push(file.len() as u64);
        all.crc32.push(checksums.tail_crc32);
        checksums.units = OnceLock::from(all);
        (file, checksums)
    }

    fn sample() -> (Vec<u8>, Checksums) {
        let large = vec![7; 3 * BLOCK_BYTES as usize / 2];
        let parts: [(&[u8], bool); 6] = [
            (b"PAR1", false),
            (b"a page", true),
            (b"another page", true),
            (&large, false),
            (b"", true),
            (b"the last page", true),
        ];
        summed(&parts, b"footer")
    }

    #[test]
    fn units_are_pages_and_blocks_side_by_side() {
        let (file, checksums) = sample();
        let block = BLOCK_BYTES;
        let starts = [4, 10, 22, 22 + block, 22 + block * 3 / 2, 35 + block * 3 / 2];
        let ends = &checksums.units().unwrap().ends;
        assert_eq!(&ends[..6], &starts);
        assert_eq!(ends[6], file.len() as u64);
        let whole = |start, end| checksums.whole_units(&(start..end)).unwrap();
        assert_eq!(whole(4, 10), 4..10);
        assert_eq!(whole(5, 6), 4..10);
        assert_eq!(whole(5, 11), 4..22);
        assert_eq!(whole(0, 10), 0..10);
        assert_eq!(whole(23, 24), 22..22 + block);
        assert_eq!(whole(ends[5] + 1, ends[6]), ends[5]..ends[6]);
        assert_eq!(whole(12, 12), 12..12);
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let (mut file, checksums) = sample();
        let all = 0..file.len() as u64;
        checksums.compare_units(&all, &file).unwrap();
        for at in (0..file.len()).step_by(61).chain(file.len() - 50..file.len()) {
            file[at] ^= 1 << (at % 8);
            let found = checksums.compare_units(&all, &file).unwrap_err();
            let unit = checksums.whole_units(&(at as u64..at as u64 + 1)).unwrap();
            assert!(
                found.to_string().contains(&format!("{} to {}", unit.start, unit.end)),
                "{found}"
            );
            file[at] ^= 1 << (at % 8);
        }
        let short = checksums.compare_units(&all, &file[..file.len() - 1]);
        assert!(short.is_err(), "the end is missing");
        // Units that a range touches in part are not compared.
        file[3] ^= 1;
        checksums.compare_units(&(1..all.end), &file[1..]).unwrap();
        checksums.compare_units(&(0..3), &file[..3]).unwrap();
    }

    #[test]
    fn a_footer_that_says_something_else_is_none() {
        let (_, checksums) = sample();
        assert!(checksums.footer(&checksums.tail(), &Bytes::from_static(b"fooTer")).is_err());
        assert!(Checksums::from_tag("7:00000000", 6).is_none());
        assert!(Checksums::from_tag("x", 6).is_none());
        for bad in ["", "gA", "AQ", "!"] {
            let units = Units::decode(bad);
            assert!(units.is_none_or(|units| units.ends.is_empty()), "{bad}");
        }
    }
}
