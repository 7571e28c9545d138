//! The footer: what an index file holds and where. FORMAT.md draws the bytes.
//!
//! # Invariants
//! - Sections lie inside the file, before the footer, in the order of the columns.
//! - Every block of a section has a checksum in the footer; the footer has one in the trailer.
//!
//! # Not here
//! What is inside a section: [`crate::column`].

use std::ops::Range;

use crate::error::IndexError;

/// Version of the format that this crate writes, and the newest that it reads.
pub const FORMAT: u16 = 1;
/// Bytes under one checksum: a query that needs one list fetches and checks this much. A first
/// byte from an object store takes as long as a megabyte after it, so smaller would gain nothing.
pub const BLOCK_BYTES: u64 = 64 << 10;
/// Bytes to fetch from the end first: the footer of some ten columns fits.
pub const TAIL_BYTES: u64 = 64 << 10;
/// A heap this small comes with its dictionary in one read.
pub const SMALL_HEAP_BYTES: u64 = 256 << 10;
/// Sections start at a multiple of this, so that hash buckets of a mapped file are cache lines.
pub(crate) const ALIGN: usize = 64;

/// Version of the tables that say what a letter is and how it folds. Words and grams made with
/// other tables could miss rows.
pub(crate) const UNICODE: [u8; 4] = {
    let (major, minor, update) = char::UNICODE_VERSION;
    [major, minor, update, 0]
};

const MAGIC: [u8; 8] = *b"UPLKINDX";
const TRAILER_BYTES: usize = 32;
/// Columns of a file; far above what anybody indexes, far below what would hurt.
const MAX_COLUMNS: usize = 4096;
/// Bytes of a footer: checksums for a 256 GB file.
const MAX_FOOTER_BYTES: u64 = 16 << 20;

type Result<T> = std::result::Result<T, IndexError>;

/// The data file that an index belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataFile {
    /// Its name, as the table's log has it.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its rows.
    pub rows: u32,
}

/// What a column's index answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Which rows hold an integer.
    Integers,
    /// Which rows hold a string.
    Strings,
    /// Which rows hold all words of a text.
    Words,
    /// Which blocks of rows may hold a substring.
    Grams,
    /// Which blocks of rows may hold a number in a range.
    Zones,
}

impl Kind {
    /// What there is one entry for, in a message.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Integers => "integers",
            Self::Strings => "strings",
            Self::Words => "words",
            Self::Grams => "grams",
            Self::Zones => "zones",
        }
    }

    fn code(self) -> u8 {
        match self {
            Self::Integers => 1,
            Self::Strings => 2,
            Self::Words => 3,
            Self::Grams => 4,
            Self::Zones => 5,
        }
    }

    fn of_code(code: u8) -> Option<Self> {
        let all = [Self::Integers, Self::Strings, Self::Words, Self::Grams, Self::Zones];
        all.into_iter().find(|kind| kind.code() == code)
    }
}

/// A part of the file, checked block by block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// CRC-32 of each block of [`BLOCK_BYTES`]; the last may be shorter.
    pub(crate) checksums: Vec<u32>,
}

impl Section {
    pub(crate) fn new(offset: u64, bytes: &[u8]) -> Self {
        let checksums = bytes.chunks(BLOCK_BYTES as usize).map(crc32fast::hash).collect();
        Self { offset, bytes: bytes.len() as u64, checksums }
    }

    pub(crate) fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.bytes
    }

    /// `within`, a part of the section, widened to whole blocks.
    pub(crate) fn blocks(&self, within: &Range<u64>) -> Range<u64> {
        let start = within.start / BLOCK_BYTES * BLOCK_BYTES;
        start..within.end.next_multiple_of(BLOCK_BYTES).min(self.bytes)
    }

    /// Checks whole blocks, the first of which starts at `start` in the section.
    pub(crate) fn check(&self, start: u64, bytes: &[u8]) -> Result<()> {
        let first = (start / BLOCK_BYTES) as usize;
        for (i, block) in bytes.chunks(BLOCK_BYTES as usize).enumerate() {
            if self.checksums.get(first + i) != Some(&crc32fast::hash(block)) {
                let at = self.offset + (first + i) as u64 * BLOCK_BYTES;
                return Err(IndexError::corrupt("a block fails its checksum", at));
            }
        }
        Ok(())
    }
}

/// Where the index of one column is, and what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnInfo {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) file_rows: u32,
    /// Rows of a block, for grams and zones; otherwise 1.
    pub(crate) block_rows: u32,
    /// Version of Unicode that cut texts.
    pub(crate) unicode: [u8; 4],
    pub(crate) dictionary: Section,
    pub(crate) heap: Section,
}

impl ColumnInfo {
    /// The column's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the index answers.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Bytes of the column's index in the file.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.dictionary.bytes + self.heap.bytes
    }

    /// Checks every byte of the column's index against its checksum; `file` is the whole file.
    ///
    /// # Errors
    /// [`IndexError::Corrupt`].
    pub fn check_bytes(&self, file: &[u8]) -> Result<()> {
        for section in [&self.dictionary, &self.heap] {
            let Range { start, end } = section.range();
            let cut_off = IndexError::corrupt("a section is cut off", start);
            section.check(0, file.get(start as usize..end as usize).ok_or(cut_off)?)?;
        }
        Ok(())
    }

    /// The bytes of the file to fetch before anything can be asked of the column, for
    /// [`crate::Column::open`]: the dictionary, and the heap with it if that is small.
    #[must_use]
    pub fn first_read(&self) -> Range<u64> {
        let dictionary = self.dictionary.range();
        if self.heap.bytes > SMALL_HEAP_BYTES {
            return dictionary;
        }
        dictionary.start..self.heap.range().end
    }
}

/// What an index file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Footer {
    data_file: DataFile,
    columns: Vec<ColumnInfo>,
}

/// What [`Footer::read`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tail {
    /// The footer.
    Footer(Footer),
    /// The footer is longer than the tail: fetch from this range to the end and read again.
    More(Range<u64>),
}

/// The bytes of a file of `file_bytes` to fetch first.
#[must_use]
pub fn tail_range(file_bytes: u64) -> Range<u64> {
    file_bytes.saturating_sub(TAIL_BYTES)..file_bytes
}

impl Footer {
    pub(crate) fn new(data_file: DataFile, columns: Vec<ColumnInfo>) -> Result<Self> {
        let (found, limit) = (columns.len() as u64, MAX_COLUMNS as u64);
        if found > limit {
            return Err(IndexError::TooLarge { what: "columns", found, limit });
        }
        Ok(Self { data_file, columns })
    }

    /// The data file that the index was made for.
    #[must_use]
    pub fn data_file(&self) -> &DataFile {
        &self.data_file
    }

    /// The indexed columns.
    #[must_use]
    pub fn columns(&self) -> &[ColumnInfo] {
        &self.columns
    }

    /// The index of `kind` of the column `name`, if there is one.
    #[must_use]
    pub fn column(&self, name: &str, kind: Kind) -> Option<&ColumnInfo> {
        self.columns.iter().find(|column| column.name == name && column.kind == kind)
    }

    /// Checks that the index is that of `data_file`.
    ///
    /// # Errors
    /// [`IndexError::Stale`] if name, size or rows differ.
    pub fn check(&self, data_file: &DataFile) -> Result<()> {
        if self.data_file == *data_file {
            return Ok(());
        }
        let words =
            |file: &DataFile| format!("{} ({} bytes, {} rows)", file.name, file.bytes, file.rows);
        Err(IndexError::Stale { found: words(&self.data_file), expected: words(data_file) })
    }

    /// Reads the footer from `tail`, the last bytes of a file of `file_bytes`.
    ///
    /// # Errors
    /// [`IndexError::Corrupt`] and [`IndexError::TooNew`].
    pub fn read(file_bytes: u64, tail: &[u8]) -> Result<Tail> {
        let cut_off = IndexError::corrupt("no room for a trailer", file_bytes);
        let (rest, trailer) = tail.split_last_chunk::<TRAILER_BYTES>().ok_or(cut_off)?;
        let mut fields = Fields { bytes: trailer, at: file_bytes };
        let (length, footer_bytes) = (fields.u64()?, u64::from(fields.u32()?));
        let (checksum, format, zero) = (fields.u32()?, fields.u16()?, fields.u16()?);
        if fields.u32()? != 0 || zero != 0 || fields.bytes != MAGIC {
            return Err(IndexError::corrupt("not an index file: wrong magic", file_bytes));
        }
        if format != FORMAT {
            return Err(IndexError::TooNew { found: format, supported: FORMAT });
        }
        let footer_end = file_bytes.saturating_sub(TRAILER_BYTES as u64);
        if length != file_bytes || footer_bytes > footer_end.min(MAX_FOOTER_BYTES) {
            return Err(IndexError::corrupt("the file is not as long as it was", file_bytes));
        }
        let start = footer_end - footer_bytes;
        let Some(at) = rest.len().checked_sub(footer_bytes as usize) else {
            return Ok(Tail::More(start..file_bytes));
        };
        let footer = &rest[at..];
        if crc32fast::hash(footer) != checksum {
            return Err(IndexError::corrupt("the footer fails its checksum", start));
        }
        Self::decode(footer, start).map(Tail::Footer)
    }

    /// The footer and the trailer, for a file that is `offset` bytes long so far.
    pub(crate) fn encode(&self, offset: u64) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        put_text(&mut out, &self.data_file.name)?;
        out.extend_from_slice(&self.data_file.bytes.to_le_bytes());
        out.extend_from_slice(&self.data_file.rows.to_le_bytes());
        out.extend_from_slice(&UNICODE);
        out.extend_from_slice(&(self.columns.len() as u32).to_le_bytes());
        for column in &self.columns {
            put_text(&mut out, &column.name)?;
            out.push(column.kind.code());
            out.extend_from_slice(&column.block_rows.to_le_bytes());
            for section in [&column.dictionary, &column.heap] {
                out.extend_from_slice(&section.offset.to_le_bytes());
                out.extend_from_slice(&section.bytes.to_le_bytes());
                let checksums = section.checksums.iter();
                checksums.for_each(|checksum| out.extend_from_slice(&checksum.to_le_bytes()));
            }
        }
        let found = out.len() as u64;
        if found > MAX_FOOTER_BYTES {
            let limit = MAX_FOOTER_BYTES;
            return Err(IndexError::TooLarge { what: "bytes of footer", found, limit });
        }
        let checksum = crc32fast::hash(&out);
        out.extend_from_slice(&(offset + found + TRAILER_BYTES as u64).to_le_bytes());
        out.extend_from_slice(&(found as u32).to_le_bytes());
        out.extend_from_slice(&checksum.to_le_bytes());
        out.extend_from_slice(&FORMAT.to_le_bytes());
        out.extend_from_slice(&[0; 6]);
        out.extend_from_slice(&MAGIC);
        Ok(out)
    }

    fn decode(bytes: &[u8], start: u64) -> Result<Self> {
        let mut fields = Fields { bytes, at: start };
        let name = fields.text()?;
        let data_file = DataFile { name, bytes: fields.u64()?, rows: fields.u32()? };
        let unicode = fields.array()?;
        let count = fields.u32()? as usize;
        if count > MAX_COLUMNS {
            return Err(fields.corrupt("too many columns"));
        }
        let mut columns = Vec::new();
        let mut end = 0;
        for _ in 0..count {
            let name = fields.text()?;
            let kind = fields.take(1)?[0];
            let kind = Kind::of_code(kind).ok_or(fields.corrupt("a column of no known kind"))?;
            let block_rows = fields.u32()?;
            let dictionary = fields.section(end, start)?;
            let heap = fields.section(dictionary.range().end, start)?;
            end = heap.range().end;
            // One read takes both, so nothing may lie between but the padding.
            let apart = heap.offset - dictionary.range().end >= ALIGN as u64;
            if block_rows == 0 || apart {
                return Err(fields.corrupt("a column contradicts itself"));
            }
            let file_rows = data_file.rows;
            let column =
                ColumnInfo { name, kind, file_rows, block_rows, unicode, dictionary, heap };
            columns.push(column);
        }
        if !fields.bytes.is_empty() {
            return Err(fields.corrupt("bytes after the last column"));
        }
        Ok(Self { data_file, columns })
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) -> Result<()> {
    let (found, limit) = (text.len() as u64, u64::from(u16::MAX));
    let too_large = IndexError::TooLarge { what: "bytes of a name", found, limit };
    let length = u16::try_from(text.len()).map_err(|_| too_large)?;
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

/// Takes fields off the front of the footer.
struct Fields<'a> {
    bytes: &'a [u8],
    /// Where the footer starts, for messages.
    at: u64,
}

impl<'a> Fields<'a> {
    fn corrupt(&self, what: &'static str) -> IndexError {
        IndexError::corrupt(what, self.at)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let cut_off = self.corrupt("the footer is cut off");
        let (head, rest) = self.bytes.split_at_checked(count).ok_or(cut_off)?;
        self.bytes = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let cut_off = self.corrupt("the footer is cut off");
        self.take(N)?.first_chunk().copied().ok_or(cut_off)
    }

    fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Result<String> {
        let length = usize::from(self.u16()?);
        let bytes = self.take(length)?.to_vec();
        String::from_utf8(bytes).map_err(|_| self.corrupt("a name is not UTF-8"))
    }

    /// A section between `low` and `high`.
    fn section(&mut self, low: u64, high: u64) -> Result<Section> {
        let (offset, bytes) = (self.u64()?, self.u64()?);
        let inside = offset >= low && offset.checked_add(bytes).is_some_and(|end| end <= high);
        if !inside {
            return Err(self.corrupt("a section lies outside the file"));
        }
        let blocks = bytes.div_ceil(BLOCK_BYTES) as usize;
        let checksums = self.take(blocks.checked_mul(4).ok_or(self.corrupt("too many blocks"))?)?;
        let checksums =
            checksums.as_chunks().0.iter().map(|&sum| u32::from_le_bytes(sum)).collect();
        Ok(Section { offset, bytes, checksums })
    }
}
