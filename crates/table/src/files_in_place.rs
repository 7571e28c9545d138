//! Text files read where they are, as a load reads them.
//!
//! # Invariants
//! - Columns, types, rows and errors are those of a load of the same files into a new table; what errors advise is a
//!   query's.
//! - One file is open at a time, and a piece of it is [`TextPiece::bytes`] long.
//! - What is waited for, such as a file in a bucket, is read by a thread that is none of the runtime.
//!
//! # Not here
//! Parquet: whoever asks has a reader for it that is asked for columns and rows.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};

use crate::decode::{Decoder, Fit, Input, InputFile, KnownInput, Progress, TextOptions, Unit};
use crate::error::{Result, TableError};
use crate::load_plan::Columns;
use crate::thread::on_thread;

/// Longer records are long: as many of them as a batch has rows, 8,192, take more than 128 MiB.
const LONG_RECORD_BYTES: usize = 16 << 10;

/// Text files whose columns are known.
pub struct TextFiles {
    inputs: Vec<KnownInput>,
    is_waited_for: bool,
    has_long_records: bool,
    columns: Columns,
    options: TextOptions,
    progress: Arc<Progress>,
}

impl TextFiles {
    /// No file yet.
    pub fn new(options: TextOptions) -> Self {
        let progress = Arc::new(Progress::default());
        let (inputs, columns) = (Vec::new(), Columns::default());
        Self { inputs, is_waited_for: false, has_long_records: false, columns, options, progress }
    }

    /// Looks at one more file. The first one says what the columns are.
    ///
    /// # Errors
    /// What a load says of it; [`TableError::Input`] if it is Parquet.
    pub async fn with(mut self, file: InputFile) -> Result<Self> {
        let is_waited_for = file.is_waited_for();
        self.is_waited_for |= is_waited_for;
        let add = move || {
            self.add(&file).map_err(TableError::of_query)?;
            Ok(self)
        };
        if is_waited_for { on_thread(add).await } else { add() }
    }

    fn add(&mut self, file: &InputFile) -> Result<()> {
        let hints = self.columns.hints(None);
        let mut input = Input::open(file, &self.options, hints.as_ref(), &[], &self.progress)?;
        if !input.is_text()? {
            return Err(is_parquet(&file.name));
        }
        self.columns.merge(&file.name, &input.schema, None, self.inputs.is_empty())?;
        self.has_long_records |= input.record_bytes()? > LONG_RECORD_BYTES;
        self.inputs.push(input.known());
        Ok(())
    }

    /// Are the records of a file so long that whoever gathers rows by their number takes too much memory?
    pub fn has_long_records(&self) -> bool {
        self.has_long_records
    }

    /// The columns.
    pub fn schema(&self) -> SchemaRef {
        Arc::new(Schema::new(self.columns.fields.clone()))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.inputs.len()
    }

    /// How large they are together, if that is known.
    pub fn bytes(&self) -> Option<u64> {
        self.inputs.iter().map(KnownInput::size).sum()
    }

    /// What was taken for granted of the files, which users should hear of.
    pub fn notes(&self) -> Vec<String> {
        self.progress.notes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The rows with these columns, in this order.
    ///
    /// # Errors
    /// [`TableError::Input`] if a file lacks what it had.
    pub fn rows(&self, columns: &[usize]) -> Result<TextRows> {
        let schema = Arc::new(
            self.schema()
                .project(columns)
                .map_err(|e| TableError::arrow("choosing columns of files".to_owned(), e))?,
        );
        let progress = Arc::default();
        let inputs = self.inputs.iter().map(|input| input.again(&progress)).collect();
        let is_waited_for = self.is_waited_for;
        Ok(TextRows { inputs, is_waited_for, schema, decoder: None, progress })
    }
}

fn is_parquet(file: &str) -> TableError {
    let reason = "is Parquet, among text files; name them apart".to_owned();
    TableError::Input { file: file.to_owned(), reason }
}

/// The rows of text files, in order.
pub struct TextRows {
    inputs: VecDeque<Input>,
    schema: SchemaRef,
    is_waited_for: bool,
    /// Of the first input, once it is read.
    decoder: Option<Decoder>,
    progress: Arc<Progress>,
}

impl TextRows {
    /// Bytes that were read of the files so far, those of compressed ones as they are.
    pub fn bytes_read(&self) -> u64 {
        self.progress.bytes_read.load(Ordering::Relaxed)
    }

    /// Files that are not read to their end yet.
    pub fn files_left(&self) -> usize {
        self.inputs.len()
    }

    /// The next records, to be decoded by whoever has time, and what comes after them; `None` at the end.
    ///
    /// # Errors
    /// A file that cannot be read, or has other columns now.
    pub async fn next(mut self) -> Result<Option<(TextPiece, Self)>> {
        let is_waited_for = self.is_waited_for;
        let next = move || {
            let piece = self.next_piece().map_err(TableError::of_query)?;
            Ok(piece.map(|piece| (piece, self)))
        };
        if is_waited_for { on_thread(next).await } else { next() }
    }

    fn next_piece(&mut self) -> Result<Option<TextPiece>> {
        while let Some(input) = self.inputs.front_mut() {
            let decoder = match &mut self.decoder {
                Some(decoder) => decoder,
                none => none.insert(decoder(input, &self.schema)?),
            };
            if let Some(unit) = input.next_unit()? {
                return Ok(Some(TextPiece { unit, decoder: decoder.clone() }));
            }
            self.inputs.pop_front();
            self.decoder = None;
        }
        Ok(None)
    }
}

fn decoder(input: &mut Input, schema: &SchemaRef) -> Result<Decoder> {
    let found = SchemaRef::clone(&input.schema);
    let wanted = schema.fields().iter().filter_map(|field| found.index_of(field.name()).ok());
    let wanted: Vec<usize> = wanted.collect();
    let read = found
        .project(&wanted)
        .map_err(|e| TableError::arrow(format!("choosing columns of {}", input.file.name), e))?;
    let fit = Fit::new(&input.file.name, &read, schema)?;
    input.decoder_of(&fit, &wanted)?.ok_or_else(|| is_parquet(&input.file.name))
}

/// Some records of one file.
pub struct TextPiece {
    unit: Unit,
    decoder: Decoder,
}

impl TextPiece {
    /// Of text.
    pub fn bytes(&self) -> usize {
        self.unit.bytes()
    }

    /// The rows.
    ///
    /// # Errors
    /// [`TableError::InPlace`] for the first row that cannot be read.
    pub fn decode(self) -> Result<Vec<RecordBatch>> {
        let mut batches = Vec::new();
        let decoded = self.decoder.decode(self.unit, 1, &Progress::default(), &mut |batch| {
            batches.push(batch);
            Ok(())
        });
        let bad = decoded.map_err(TableError::of_query)?;
        match bad.into_iter().next() {
            Some(row) => Err(TableError::BadRow(Box::new(row)).of_query()),
            None => Ok(batches),
        }
    }
}
