//! COPY TO in text, CSV and binary: the same columns as CopyData messages.
//!
//! A message is one row, as Postgres has it: what drivers take for a row is a message. In binary the head comes with the
//! first row, and the end alone. CopyOutResponse and CopyDone are the caller's.
//!
//! # Not here
//! COPY FROM.

use std::ops::Range;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use bytes::BufMut;

use super::state::{MOST_ROW_BYTES, State};
use super::{
    Cell, EncodeError, FEW_ROWS, MOST_COLUMNS, Options, Target, cells, columns, part, patch, quote,
};
use crate::pg::types;

/// What binary files begin with: signature, no flags, no extension.
pub(crate) const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyFormat {
    Text,
    Csv,
    Binary,
}

/// The options of COPY TO; those of [`CopyOptions::new`] are Postgres' defaults.
#[derive(Clone, Debug)]
pub(crate) struct CopyOptions {
    pub format: CopyFormat,
    pub delimiter: u8,
    /// What stands for NULL.
    pub null: String,
    /// A first line with the columns' names.
    pub header: bool,
    /// CSV alone.
    pub quote: u8,
    /// CSV alone.
    pub escape: u8,
    pub force_quote: ForceQuote,
}

/// Which columns of CSV are always in quotes, unless NULL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ForceQuote {
    None,
    All,
    /// Numbers of columns, from 0.
    Columns(Vec<usize>),
}

impl CopyOptions {
    pub(crate) fn new(format: CopyFormat) -> Self {
        let is_csv = format == CopyFormat::Csv;
        Self {
            format,
            delimiter: if is_csv { b',' } else { b'\t' },
            null: if is_csv { String::new() } else { "\\N".into() },
            header: false,
            quote: b'"',
            escape: b'"',
            force_quote: ForceQuote::None,
        }
    }

    /// That the file can be read back, by Postgres' rules.
    ///
    /// # Errors
    /// [`EncodeError::CopyOption`]
    pub(crate) fn check(&self) -> Result<(), EncodeError> {
        let refuse = |message: &str| Err(EncodeError::CopyOption { message: message.into() });
        let ends_lines = |byte| matches!(byte, b'\n' | b'\r');
        if self.format == CopyFormat::Binary {
            return if self.header {
                refuse("cannot specify HEADER in BINARY mode")
            } else {
                Ok(())
            };
        }
        if ends_lines(self.delimiter) || !self.delimiter.is_ascii() {
            return refuse(
                "COPY delimiter must be a single byte, and no newline or carriage return",
            );
        }
        if self.null.bytes().any(ends_lines) {
            return refuse("COPY null representation cannot use newline or carriage return");
        }
        if self.null.bytes().any(|byte| byte == self.delimiter) {
            return refuse("COPY delimiter character must not appear in the NULL specification");
        }
        match self.format {
            CopyFormat::Csv => {
                if self.delimiter == self.quote {
                    return refuse("COPY delimiter and quote must be different");
                }
                if ends_lines(self.quote) || !self.quote.is_ascii() || !self.escape.is_ascii() {
                    return refuse("COPY quote and escape must be a single byte, and no newline");
                }
                if self.null.bytes().any(|byte| byte == self.quote) {
                    return refuse("CSV quote character must not appear in the NULL specification");
                }
            }
            _ => {
                if b"\\.abcdefghijklmnopqrstuvwxyz0123456789".contains(&self.delimiter) {
                    return refuse("COPY delimiter cannot be a lower-case letter, digit, . or \\");
                }
                if self.force_quote != ForceQuote::None {
                    return refuse("COPY force quote available only in CSV mode");
                }
            }
        }
        Ok(())
    }
}

/// Rows of one result as CopyData messages.
pub(crate) struct CopyEncoder {
    options: CopyOptions,
    names: Vec<String>,
    columns: Vec<Target>,
    state: State,
    /// The head of binary files has not been written.
    lacks_head: bool,
    told_of_cut: bool,
}

impl CopyEncoder {
    /// # Errors
    /// [`EncodeError::CopyOption`] for options that do not go together, [`EncodeError::TooManyColumns`].
    pub(crate) fn new(
        schema: &Schema,
        copy: CopyOptions,
        options: Options,
    ) -> Result<Self, EncodeError> {
        copy.check()?;
        let count = schema.fields().len();
        if count > MOST_COLUMNS {
            return Err(EncodeError::TooManyColumns { columns: count, most: MOST_COLUMNS });
        }
        let binary = copy.format == CopyFormat::Binary;
        let columns = schema.fields().iter();
        let columns = columns.map(|field| Target { oid: types::of(field.data_type()).oid, binary });
        Ok(Self {
            lacks_head: binary,
            options: copy,
            names: schema.fields().iter().map(|field| field.name().clone()).collect(),
            columns: columns.collect(),
            state: State::new(options.time_zone),
            told_of_cut: false,
        })
    }

    /// One for rows of the same result that are not its first.
    pub(crate) fn another(&self) -> Self {
        Self {
            options: self.options.clone(),
            names: Vec::new(),
            columns: self.columns.clone(),
            state: State::new(self.state.zone),
            lacks_head: false,
            told_of_cut: false,
        }
    }

    /// Appends what is in front of the rows: the header. It may be nothing.
    pub(crate) fn begin(&mut self, out: &mut Vec<u8>) {
        if self.options.header {
            let (options, scratch) = (&self.options, &mut self.state.scratch);
            frame(out, |out| {
                for (at, name) in self.names.iter().enumerate() {
                    if at > 0 {
                        out.put_u8(options.delimiter);
                    }
                    let start = out.len();
                    out.put_slice(name.as_bytes());
                    let is_alone = self.names.len() == 1;
                    escape_behind(start, options, false, is_alone, out, scratch);
                }
                out.put_u8(b'\n');
            });
        }
    }

    /// Appends the rows in CopyData messages.
    ///
    /// # Errors
    /// As [`RowEncoder::encode`](super::RowEncoder::encode); the rows before are whole, in whole messages.
    pub(crate) fn encode(
        &mut self,
        batch: &RecordBatch,
        rows: Range<usize>,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let batch = part(batch, rows)?;
        let cells = cells(&batch, &self.columns, &mut self.state)?;
        let rows = batch.num_rows();
        if self.options.format == CopyFormat::Binary && !self.lacks_head && rows >= FEW_ROWS {
            return columns::encode(b'd', &cells, rows, out, &mut self.state);
        }
        for row in 0..rows {
            let start = out.len();
            out.put_slice(b"d\0\0\0\0");
            let done = self.row(&cells, row, out);
            if done.is_err() {
                out.truncate(start);
                return done;
            }
            let length = out.len() - start - 1;
            patch(out, start + 1, length);
            self.lacks_head = false;
        }
        Ok(())
    }

    /// Appends what is behind the rows, which only binary files have.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        if self.options.format == CopyFormat::Binary {
            let head = if self.lacks_head { SIGNATURE } else { &[] };
            frame(out, |out| {
                out.put_slice(head);
                out.put_i16(-1);
            });
        }
    }

    /// As [`RowEncoder::cut_nanoseconds`](super::RowEncoder::cut_nanoseconds).
    pub(crate) fn cut_nanoseconds(&mut self) -> bool {
        let is_news = self.state.cut && !self.told_of_cut;
        self.told_of_cut |= is_news;
        is_news
    }

    fn row(
        &mut self,
        cells: &[Cell<'_>],
        row: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let start = out.len();
        let options = &self.options;
        if options.format == CopyFormat::Binary {
            if self.lacks_head {
                out.put_slice(SIGNATURE);
            }
            out.put_i16(cells.len() as i16);
        }
        for (at, cell) in cells.iter().enumerate() {
            if options.format == CopyFormat::Binary {
                cell.put(row, out, &mut self.state)?;
            } else {
                if at > 0 {
                    out.put_u8(options.delimiter);
                }
                if cell.column.is_null(row) {
                    out.put_slice(options.null.as_bytes());
                } else {
                    let start = out.len();
                    cell.column.text(row, out, &mut self.state)?;
                    let force = match &options.force_quote {
                        ForceQuote::None => false,
                        ForceQuote::All => true,
                        ForceQuote::Columns(columns) => columns.contains(&at),
                    };
                    let scratch = &mut self.state.scratch;
                    escape_behind(start, options, force, cells.len() == 1, out, scratch);
                }
            }
            if out.len() - start > MOST_ROW_BYTES {
                return Err(EncodeError::RowTooLarge { most: MOST_ROW_BYTES });
            }
        }
        if options.format != CopyFormat::Binary {
            out.put_u8(b'\n');
        }
        Ok(())
    }
}

/// Appends a message of what `write` appends.
fn frame(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.put_slice(b"d\0\0\0\0");
    write(out);
    let length = out.len() - start - 1;
    patch(out, start + 1, length);
}

/// Escapes or quotes the field behind `start`, if it needs it.
fn escape_behind(
    start: usize,
    options: &CopyOptions,
    force: bool,
    is_alone: bool,
    out: &mut Vec<u8>,
    scratch: &mut Vec<u8>,
) {
    let field = &out[start..];
    scratch.clear();
    if options.format == CopyFormat::Csv {
        let needs = force
            || field == options.null.as_bytes()
            || is_alone && field == b"\\."
            || field.iter().any(|byte| {
                matches!(byte, b'\n' | b'\r')
                    || *byte == options.quote
                    || *byte == options.delimiter
            });
        if !needs {
            return;
        }
        quote::csv_quote(field, options.quote, options.escape, scratch);
    } else {
        if !quote::copy_needs_escape(field, options.delimiter) {
            return;
        }
        quote::copy_escape(field, options.delimiter, scratch);
    }
    out.truncate(start);
    out.put_slice(scratch);
}
