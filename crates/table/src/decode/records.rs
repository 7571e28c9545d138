//! Text files cut where their records end: chunks of whole records, and the fields of CSV's.
//!
//! # Invariants
//! - No chunk is longer than [`RECORD_MAX_BYTES`] and what was read at once, whatever the file holds.
//!
//! # Not here
//! What fields mean: `text`.

use std::io::Read;

use crate::error::{Result, TableError};

/// Bytes of a chunk: a few milliseconds of parsing.
const CHUNK_BYTES: usize = 4 << 20;
/// A record longer than this is an unclosed quote, not a record.
const RECORD_MAX_BYTES: usize = 64 << 20;

/// Whole records of one file.
pub(crate) struct Chunk {
    pub(super) bytes: Vec<u8>,
    /// Line number of the first record, from 1.
    pub(super) first_line: u64,
    /// Where the last record starts, if a quote in it is never closed.
    pub(super) unclosed: Option<usize>,
}

pub(super) fn input_error(file: &str, reason: String) -> TableError {
    TableError::Input { file: file.to_owned(), reason }
}

fn guess_delimiter(line: &[u8]) -> u8 {
    let count = |d: u8| memchr::memchr_iter(d, line).count();
    // The comma wins ties: it is what the C in CSV stands for.
    [b',', b'\t', b';', b'|'].into_iter().rev().max_by_key(|d| count(*d)).unwrap_or(b',')
}

pub(super) fn line_at(chunk: &Chunk, offset: usize) -> u64 {
    chunk.first_line + memchr::memchr_iter(b'\n', &chunk.bytes[..offset]).count() as u64
}

/// How quotes are understood: not at all (JSON), or as in CSV, where one opens only at the start of a field.
#[derive(Clone, Copy)]
pub(super) struct Quotes {
    /// `None` until the first line has shown it.
    pub(super) delimiter: Option<u8>,
}

/// Reads a stream and cuts it at record ends.
pub(super) struct Chunker {
    name: String,
    reader: Box<dyn Read + Send>,
    carry: Vec<u8>,
    line: u64,
    quotes: Option<Quotes>,
    started: bool,
    done: bool,
}

impl Chunker {
    pub(super) fn new(name: &str, reader: Box<dyn Read + Send>, quotes: Option<Quotes>) -> Self {
        let name = name.to_owned();
        Self { name, reader, carry: Vec::new(), line: 1, quotes, started: false, done: false }
    }

    pub(super) fn delimiter(&self) -> u8 {
        self.quotes.and_then(|q| q.delimiter).unwrap_or(b',')
    }

    pub(super) fn next_chunk(&mut self) -> Result<Option<Chunk>> {
        let mut wanted = CHUNK_BYTES;
        while !self.done {
            let missing = wanted.saturating_sub(self.carry.len()) as u64;
            let read = (&mut self.reader)
                .take(missing)
                .read_to_end(&mut self.carry)
                .map_err(|e| input_error(&self.name, format!("cannot be read to its end: {e}")))?;
            if !self.started {
                self.start();
            }
            if (read as u64) < missing {
                self.done = true;
                break;
            }
            if let Some(end) = last_record_end(&self.carry, self.quoted()) {
                let rest = self.carry.split_off(end);
                let bytes = std::mem::replace(&mut self.carry, rest);
                return Ok(Some(self.chunk(bytes, None)));
            }
            wanted = self.carry.len() * 2;
            if wanted > RECORD_MAX_BYTES {
                return Err(input_error(
                    &self.name,
                    format!(
                        "line {}: no end of record within {} MiB; is a quote not closed?",
                        self.line,
                        self.carry.len() >> 20
                    ),
                ));
            }
        }
        let bytes = std::mem::take(&mut self.carry);
        if bytes.is_empty() {
            return Ok(None);
        }
        let unclosed = unclosed_quote(&bytes, self.quoted());
        Ok(Some(self.chunk(bytes, unclosed)))
    }

    /// Drops a byte order mark and blank lines before the first record, and finds the delimiter.
    fn start(&mut self) {
        self.started = true;
        let mark = if self.carry.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        let blank = self.carry[mark..].iter().take_while(|b| matches!(b, b'\n' | b'\r')).count();
        let skipped = &self.carry[..mark + blank];
        self.line += memchr::memchr_iter(b'\n', skipped).count() as u64;
        self.carry.drain(..mark + blank);
        if let Some(Quotes { delimiter: delimiter @ None }) = &mut self.quotes {
            let line = self.carry.split(|b| *b == b'\n').next().unwrap_or_default();
            *delimiter = Some(guess_delimiter(line));
        }
    }

    fn quoted(&self) -> Option<u8> {
        self.quotes.map(|_| self.delimiter())
    }

    fn chunk(&mut self, bytes: Vec<u8>, unclosed: Option<usize>) -> Chunk {
        let first_line = self.line;
        self.line += memchr::memchr_iter(b'\n', &bytes).count() as u64;
        Chunk { bytes, first_line, unclosed }
    }
}

/// Offsets after each record's newline. `delimiter`: CSV's, so that newlines within quotes do not count;
/// `None`: every newline ends a record.
pub(super) struct RecordEnds<'a> {
    bytes: &'a [u8],
    delimiter: Option<u8>,
    at: usize,
    inside: bool,
}

impl<'a> RecordEnds<'a> {
    pub(super) fn new(bytes: &'a [u8], delimiter: Option<u8>) -> Self {
        Self { bytes, delimiter, at: 0, inside: false }
    }

    /// A quote opens only at the start of a field, as csv-core has it; elsewhere it is a character.
    fn opens(&self, at: usize, delimiter: u8) -> bool {
        match at.checked_sub(1).map(|before| self.bytes[before]) {
            None => true,
            Some(before) => before == delimiter || matches!(before, b'\n' | b'\r'),
        }
    }
}

impl Iterator for RecordEnds<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        while let Some(found) = memchr::memchr2(b'"', b'\n', &self.bytes[self.at..]) {
            let at = self.at + found;
            self.at = at + 1;
            match (self.bytes[at], self.delimiter) {
                (b'\n', _) if !self.inside => return Some(at + 1),
                (b'"', Some(_)) if self.inside => {
                    // Two quotes are one within a quoted field.
                    if self.bytes.get(at + 1) == Some(&b'"') {
                        self.at += 1;
                    } else {
                        self.inside = false;
                    }
                }
                (b'"', Some(delimiter)) => self.inside = self.opens(at, delimiter),
                _ => {}
            }
        }
        None
    }
}

/// Where the last whole record ends. `bytes` starts at a record.
fn last_record_end(bytes: &[u8], delimiter: Option<u8>) -> Option<usize> {
    if delimiter.is_none() || memchr::memchr(b'"', bytes).is_none() {
        return memchr::memrchr(b'\n', bytes).map(|at| at + 1);
    }
    RecordEnds::new(bytes, delimiter).last()
}

/// Start of the record whose quote is open at the end of the file.
fn unclosed_quote(bytes: &[u8], delimiter: Option<u8>) -> Option<usize> {
    delimiter?;
    let mut ends = RecordEnds::new(bytes, delimiter);
    let start = ends.by_ref().last().unwrap_or(0);
    ends.inside.then_some(start)
}

/// Start and end of each record.
pub(super) fn record_ranges(bytes: &[u8], delimiter: Option<u8>) -> Vec<(usize, usize)> {
    let (mut ranges, mut start) = (Vec::new(), 0);
    for end in RecordEnds::new(bytes, delimiter) {
        ranges.push((start, end));
        start = end;
    }
    if start < bytes.len() {
        ranges.push((start, bytes.len()));
    }
    ranges
}

pub(super) struct CsvRecord {
    pub(super) fields: Vec<Vec<u8>>,
}

/// The records of some CSV bytes, for headers, guesses and explanations (not for loading).
pub(super) struct CsvRecords<'a> {
    reader: csv_core::Reader,
    rest: &'a [u8],
}

impl<'a> CsvRecords<'a> {
    pub(super) fn new(bytes: &'a [u8], delimiter: u8) -> Self {
        Self { reader: csv_core::ReaderBuilder::new().delimiter(delimiter).build(), rest: bytes }
    }
}

impl Iterator for CsvRecords<'_> {
    type Item = CsvRecord;

    fn next(&mut self) -> Option<CsvRecord> {
        let mut fields = Vec::new();
        let mut output = vec![0; 4096];
        let mut field = Vec::new();
        loop {
            let (result, read, written) = self.reader.read_field(self.rest, &mut output);
            self.rest = &self.rest[read..];
            field.extend_from_slice(&output[..written]);
            match result {
                csv_core::ReadFieldResult::Field { record_end } => {
                    fields.push(std::mem::take(&mut field));
                    if record_end {
                        return Some(CsvRecord { fields });
                    }
                }
                csv_core::ReadFieldResult::End => return None,
                csv_core::ReadFieldResult::InputEmpty | csv_core::ReadFieldResult::OutputFull => {}
            }
        }
    }
}
