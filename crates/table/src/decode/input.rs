//! One input, whatever its format.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};

use super::bad_row::{BadRow, shorten};
use super::fit::Fit;
use super::parquet_file::{self, ParquetInput};
use super::progress::Progress;
use super::records;
use super::source::{self, Format, InputFile, Opened};
use super::text::{self, Decoded, Header, TextInput, TextOptions};
use crate::error::{Result, TableError};

/// One input, opened: its columns are known, its rows are still to come.
pub(crate) struct Input {
    pub file: InputFile,
    /// The file's own columns, as stored types.
    pub schema: SchemaRef,
    /// `None` while it is closed.
    reader: Option<Reader>,
    /// How it is opened again.
    options: TextOptions,
    key: Vec<String>,
    progress: Arc<Progress>,
}

/// An input that was looked at, and can be read as often as somebody asks.
#[derive(Clone)]
pub(crate) struct KnownInput {
    file: InputFile,
    schema: SchemaRef,
    options: TextOptions,
    key: Vec<String>,
}

impl KnownInput {
    /// From its beginning, and not opened before it is read; `progress` says how far it is.
    pub fn again(&self, progress: &Arc<Progress>) -> Input {
        let KnownInput { file, schema, options, key } = self.clone();
        Input { file, schema, reader: None, options, key, progress: Arc::clone(progress) }
    }

    /// In bytes, if that is known.
    pub fn size(&self) -> Option<u64> {
        self.file.size()
    }
}

enum Reader {
    Text(Box<TextInput>),
    Parquet(Box<ParquetInput>),
}

/// A piece of an input that one thread decodes.
pub(crate) enum Unit {
    Text(records::Chunk),
    RowGroup(usize),
}

impl Unit {
    /// Of a text file.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Text(chunk) => chunk.bytes.len(),
            Self::RowGroup(_) => 0,
        }
    }
}

impl Input {
    /// Opens a file and finds its columns. Columns of `known` keep their types: text is parsed as them.
    /// Columns of `key`, a primary key, are not NULL.
    pub fn open(
        file: &InputFile,
        options: &TextOptions,
        known: Option<&Schema>,
        key: &[String],
        progress: &Arc<Progress>,
    ) -> Result<Self> {
        let (schema, reader) = Self::read(file, options, (known, None), key, progress)?;
        let mut options = options.clone();
        if let Reader::Text(input) = &reader {
            if options.header == Header::Find && input.header == Header::No {
                let names = schema.fields().iter().map(|field| field.name().as_str());
                let note = format!(
                    "{}: the first line is no header, and is read as a row; the columns are {}",
                    file.name,
                    shorten(&names.collect::<Vec<_>>().join(", "))
                );
                progress.note(note);
            }
            options.header = input.header;
        }
        Ok(Self {
            file: file.clone(),
            schema,
            reader: Some(reader),
            options,
            key: key.to_vec(),
            progress: Arc::clone(progress),
        })
    }

    /// `found`: what an input of the same file has found before.
    fn read(
        file: &InputFile,
        options: &TextOptions,
        (known, found): (Option<&Schema>, Option<&Schema>),
        key: &[String],
        progress: &Arc<Progress>,
    ) -> Result<(SchemaRef, Reader)> {
        Ok(match source::open(file, progress)? {
            Opened::Parquet(handle) => {
                let input = ParquetInput::open(file, handle)?;
                (input.stored_schema()?, Reader::Parquet(Box::new(input)))
            }
            Opened::Text(Format::Csv, bytes) => {
                let input = TextInput::csv(file, bytes, options, known, key)?;
                (input.schema(), Reader::Text(Box::new(input)))
            }
            Opened::Text(format, bytes) => {
                let is_rows = format == Format::JsonArray;
                let input = TextInput::json(file, bytes, known, key, found, is_rows)?;
                (input.schema(), Reader::Text(Box::new(input)))
            }
        })
    }

    /// The same, closed until it is read: of many inputs only a few are open at once. What cannot be read
    /// twice, as a pipe, stays open.
    pub fn open_later(
        file: &InputFile,
        options: &TextOptions,
        known: Option<&Schema>,
        key: &[String],
        progress: &Arc<Progress>,
    ) -> Result<Self> {
        let before = progress.bytes_read.load(Ordering::Relaxed);
        let mut input = Self::open(file, options, known, key, progress)?;
        if file.is_kept() {
            progress.bytes_read.store(before, Ordering::Relaxed);
            input.reader = None;
        }
        Ok(input)
    }

    /// The file, opened again if it was closed.
    ///
    /// # Errors
    /// [`TableError::Input`] if its columns are others now.
    fn reader(&mut self) -> Result<&mut Reader> {
        let reader = match self.reader.take() {
            Some(reader) => reader,
            None => {
                let (found, progress) = (Some(self.schema.as_ref()), &self.progress);
                let (schema, reader) =
                    Self::read(&self.file, &self.options, (found, found), &self.key, progress)?;
                if schema != self.schema {
                    return Err(TableError::Input {
                        file: self.file.name.clone(),
                        reason: "was changed while it was being read: its columns are others now"
                            .into(),
                    });
                }
                reader
            }
        };
        Ok(self.reader.insert(reader))
    }

    /// The next piece to decode; `None` at the end of the file.
    pub fn next_unit(&mut self) -> Result<Option<Unit>> {
        match self.reader()? {
            Reader::Text(input) => Ok(input.next_chunk()?.map(Unit::Text)),
            Reader::Parquet(input) => Ok(input.next_row_group().map(Unit::RowGroup)),
        }
    }

    /// What is known of it, for readers of the same file.
    pub fn known(&self) -> KnownInput {
        KnownInput {
            file: self.file.clone(),
            schema: SchemaRef::clone(&self.schema),
            options: self.options.clone(),
            key: self.key.clone(),
        }
    }

    pub fn is_text(&mut self) -> Result<bool> {
        Ok(matches!(self.reader()?, Reader::Text(_)))
    }

    /// How long a record of a text file is, about.
    pub fn record_bytes(&mut self) -> Result<usize> {
        Ok(match self.reader()? {
            Reader::Text(input) => input.record_bytes(),
            Reader::Parquet(_) => 0,
        })
    }

    /// How the file's columns become the table's.
    pub fn fit(&self, table: &SchemaRef) -> Result<Fit> {
        Fit::new(&self.file.name, &self.schema, table)
    }

    /// A handle that decodes some columns of a text file's units; `fit` is theirs. `None` for Parquet.
    pub fn decoder_of(&mut self, fit: &Fit, wanted: &[usize]) -> Result<Option<Decoder>> {
        let Reader::Text(input) = self.reader()? else { return Ok(None) };
        let inner = DecoderKind::Text(input.decoder().with_columns(wanted));
        Ok(Some(Decoder { inner, fit: fit.clone() }))
    }

    /// A handle that decodes units, usable by several threads.
    pub fn decoder(&mut self, fit: &Fit) -> Result<Decoder> {
        let inner = match self.reader()? {
            Reader::Text(input) => DecoderKind::Text(input.decoder()),
            Reader::Parquet(input) => DecoderKind::Parquet(input.decoder()),
        };
        Ok(Decoder { inner, fit: fit.clone() })
    }
}

/// Decodes units of one input into batches of the table's schema.
#[derive(Clone)]
pub(crate) struct Decoder {
    inner: DecoderKind,
    fit: Fit,
}

#[derive(Clone)]
enum DecoderKind {
    Text(text::TextDecoder),
    Parquet(parquet_file::ParquetDecoder),
}

impl Decoder {
    /// Decodes one unit, handing over batches as they come. Bad rows are collected up to `max_bad`,
    /// then decoding of the unit stops.
    pub fn decode(
        &self,
        unit: Unit,
        max_bad: usize,
        progress: &Progress,
        emit: &mut dyn FnMut(RecordBatch) -> Result<()>,
    ) -> Result<Vec<BadRow>> {
        match (&self.inner, unit) {
            (DecoderKind::Text(decoder), Unit::Text(chunk)) => {
                let Decoded { batches, mut bad } = decoder.decode(&chunk, max_bad)?;
                for batch in batches {
                    let (batch, lost) = self.fit.apply(&batch, 0)?;
                    if let Some(row) = lost.into_iter().next() {
                        // The decoder has refused such rows and named their lines.
                        let reason = format!("a row was decoded that does not fit: {row}");
                        return Err(TableError::Input { file: row.file, reason });
                    }
                    progress.rows.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
                    emit(batch)?;
                }
                bad.truncate(max_bad);
                Ok(bad)
            }
            (DecoderKind::Parquet(decoder), Unit::RowGroup(group)) => {
                let mut bad = Vec::new();
                for batch in decoder.read(group, progress)? {
                    let (first_row, batch) = batch?;
                    let (batch, rejected) = self.fit.apply(&batch, first_row)?;
                    bad.extend(rejected);
                    if bad.len() >= max_bad {
                        break;
                    }
                    progress.rows.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
                    emit(batch)?;
                }
                Ok(bad)
            }
            _ => unreachable!("a unit is decoded by its own input's decoder"),
        }
    }
}
