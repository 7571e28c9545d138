//! Parquet inputs: columns from the footer, a row group at a time.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema, SchemaRef};
use bytes::Bytes;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use super::progress::Progress;
use super::source::InputFile;
use crate::chunk_types::check_file;
use crate::error::{Result, TableError};
use crate::schema::loaded_type;
use crate::unpanicked::{reason, unpanicked};

/// Rows decoded at a time.
const BATCH_ROWS: usize = 16_384;

pub(super) struct ParquetInput {
    decoder: ParquetDecoder,
    next: usize,
}

/// Reads row groups of one file; cheap to clone, usable from several threads.
#[derive(Clone)]
pub(super) struct ParquetDecoder {
    name: Arc<str>,
    handle: SharedFile,
    metadata: ArrowReaderMetadata,
}

/// A file that several threads read at once: positioned reads, no shared cursor (which
/// `File::try_clone` would have).
#[derive(Clone)]
struct SharedFile {
    handle: Arc<File>,
    length: u64,
}

impl Length for SharedFile {
    fn len(&self) -> u64 {
        self.length
    }
}

impl ChunkReader for SharedFile {
    type T = ReadFrom;

    fn get_read(&self, start: u64) -> Result<ReadFrom, ParquetError> {
        Ok(ReadFrom { file: self.clone(), at: start })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let mut buffer = vec![0; length];
        self.handle.read_exact_at(&mut buffer, start)?;
        Ok(buffer.into())
    }
}

struct ReadFrom {
    file: SharedFile,
    at: u64,
}

impl Read for ReadFrom {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = self.file.handle.read_at(buffer, self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

impl ParquetInput {
    pub fn open(file: &InputFile, handle: Arc<File>) -> Result<Self> {
        let length = handle
            .metadata()
            .map_err(|e| TableError::io(format!("reading {}", file.name), e))?
            .len();
        let handle = SharedFile { handle, length };
        // Times of 96 bits as nanoseconds, so that those which microseconds would cut are refused.
        let options = ArrowReaderOptions::new();
        let metadata = unpanicked(|| ArrowReaderMetadata::load(&handle, options)).map_err(|e| {
            TableError::Input {
                file: file.name.clone(),
                reason: format!(
                    "is not a readable Parquet file ({}); was it cut short?",
                    reason(&e)
                ),
            }
        })?;
        let read =
            |range: Range<u64>| handle.get_bytes(range.start, (range.end - range.start) as usize);
        check_file(length, metadata.metadata(), read)
            .map_err(|e| TableError::Input { file: file.name.clone(), reason: reason(&e) })?;
        let decoder = ParquetDecoder { name: file.name.as_str().into(), handle, metadata };
        Ok(Self { decoder, next: 0 })
    }

    pub fn stored_schema(&self) -> Result<SchemaRef> {
        let mut fields = Vec::new();
        for field in self.decoder.metadata.schema().fields() {
            let stored = loaded_type(field.data_type()).map_err(|reason| TableError::Input {
                file: self.decoder.name.to_string(),
                reason: format!("column `{}`: {reason}", field.name()),
            })?;
            fields.push(Field::new(field.name(), stored, true));
        }
        Ok(Arc::new(Schema::new(fields)))
    }

    pub fn next_row_group(&mut self) -> Option<usize> {
        let group = self.next;
        if group >= self.decoder.metadata.metadata().num_row_groups() {
            return None;
        }
        self.next += 1;
        Some(group)
    }

    pub fn decoder(&self) -> ParquetDecoder {
        self.decoder.clone()
    }
}

impl ParquetDecoder {
    /// The batches of a row group, each with the number (from 1) of its first row in the file.
    pub fn read(
        &self,
        group: usize,
        progress: &Progress,
    ) -> Result<impl Iterator<Item = Result<(u64, RecordBatch)>>> {
        let footer = self.metadata.metadata();
        let mut row: u64 =
            1 + footer.row_groups()[..group].iter().map(|g| g.num_rows() as u64).sum::<u64>();
        let bytes = footer.row_group(group).compressed_size();
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(
            self.handle.clone(),
            self.metadata.clone(),
        );
        let builder = builder.with_row_groups(vec![group]).with_batch_size(BATCH_ROWS);
        let mut reader = unpanicked(|| builder.build())
            .map_err(|e| TableError::Parquet { file: self.name.to_string(), source: e })?;
        progress.bytes_read.fetch_add(u64::try_from(bytes).unwrap_or_default(), Ordering::Relaxed);
        let name = Arc::clone(&self.name);
        let next = move || unpanicked(|| reader.next().transpose().map_err(Into::into)).transpose();
        let mut failed = false;
        let batches = std::iter::from_fn(next)
            .take_while(move |batch| !std::mem::replace(&mut failed, batch.is_err()));
        Ok(batches.map(move |batch| {
            let batch = batch.map_err(|e| TableError::Input {
                file: name.to_string(),
                reason: format!("row group {group} cannot be decoded: {e}"),
            })?;
            let first = row;
            row += batch.num_rows() as u64;
            Ok((first, batch))
        }))
    }
}
