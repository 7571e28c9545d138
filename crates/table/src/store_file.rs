//! A data file as the Parquet library reads it outside the runtime: to merge, index and check it.
//!
//! # Invariants
//! - Bytes that have checksums are compared with them before anybody sees them.

use std::io::Read;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use object_store::ObjectStore;
use object_store::path::Path;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use parquet::file::reader::{ChunkReader, Length};
use tokio::runtime::Handle;
use uplake_objectio::Store;

use crate::checksums::Checksums;
use crate::chunk_types::check_file;
use crate::data_file::DataFile;

/// From a store that is a round trip away, so many bytes are read at least, from a multiple of it
/// on: its cache has what the pages beside them hold when they are asked for.
const REMOTE_READ_BYTES: u64 = 2 << 20;
/// Bytes read for a page's header.
const HEADER_READ_BYTES: usize = 4 << 10;

/// A Parquet file in the store, read from a thread outside the runtime.
#[derive(Clone)]
pub(crate) struct StoreFile {
    store: Arc<Store>,
    path: Path,
    pub size: u64,
    checksums: Option<Arc<Checksums>>,
    runtime: Handle,
}

impl StoreFile {
    pub fn new(store: &Arc<Store>, file: &DataFile, runtime: &Handle) -> Self {
        Self::at(store, file.store_path.clone(), file.size, file.checksums.clone(), runtime)
    }

    pub fn at(
        store: &Arc<Store>,
        path: Path,
        size: u64,
        checksums: Option<Arc<Checksums>>,
        runtime: &Handle,
    ) -> Self {
        Self { store: Arc::clone(store), path, size, checksums, runtime: runtime.clone() }
    }

    /// The file's footer, which must be read before anything else of the file is.
    pub fn footer(&self) -> Result<Arc<ParquetMetaData>, ParquetError> {
        let Some(checksums) = &self.checksums else {
            let footer = ParquetMetaDataReader::new().parse_and_finish(self)?;
            check_file(self.size, &footer, |range| self.read(&range))?;
            return Ok(Arc::new(footer));
        };
        let tail = checksums.tail();
        let footer = checksums.footer(&tail, &self.read(&tail)?)?;
        checksums.learn(&footer)?;
        Ok(Arc::new(footer))
    }

    /// Bytes as they are in the store, whatever their checksum is.
    pub fn read(&self, wanted: &Range<u64>) -> Result<Bytes, ParquetError> {
        let around = self.around(wanted);
        // Cut at the multiples, so that other reads find the pieces in the cache.
        let mut ranges = Vec::new();
        let mut at = around.start;
        while at < around.end {
            let next = (at + REMOTE_READ_BYTES).min(around.end);
            let next = if around == *wanted { around.end } else { next };
            ranges.push(at..next);
            at = next;
        }
        let pieces = self
            .runtime
            .block_on(self.store.get_ranges(&self.path, &ranges))
            .map_err(|e| ParquetError::External(Box::new(e)))?;
        let bytes = match <[Bytes; 1]>::try_from(pieces) {
            Ok([piece]) => piece,
            Err(pieces) => Bytes::from(pieces.concat()),
        };
        within(&bytes, &around, wanted)
    }

    /// What to read for `wanted`: itself, unless there is a cache that keeps more.
    fn around(&self, wanted: &Range<u64>) -> Range<u64> {
        if self.store.cache_usage().is_none() {
            return wanted.clone();
        }
        let start = wanted.start - wanted.start % REMOTE_READ_BYTES;
        let end = wanted.end.next_multiple_of(REMOTE_READ_BYTES);
        start..end.min(self.size).max(wanted.end)
    }
}

/// The bytes `wanted` of those that `range` has.
fn within(bytes: &Bytes, range: &Range<u64>, wanted: &Range<u64>) -> Result<Bytes, ParquetError> {
    let (start, end) = ((wanted.start - range.start) as usize, (wanted.end - range.start) as usize);
    if end > bytes.len() {
        return Err(ParquetError::EOF("the file is shorter than the log says".to_owned()));
    }
    Ok(bytes.slice(start..end))
}

impl Length for StoreFile {
    fn len(&self) -> u64 {
        self.size
    }
}

impl ChunkReader for StoreFile {
    type T = Box<dyn Read + Send>;

    /// The Parquet reader reads a page's header from here, tens of bytes, and takes the page itself
    /// with [`Self::get_bytes`].
    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let reader = StoreReader { file: self.clone(), at: start };
        Ok(Box::new(std::io::BufReader::with_capacity(HEADER_READ_BYTES, reader)))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let wanted = start..start + length as u64;
        let Some(checksums) = &self.checksums else { return self.read(&wanted) };
        let units = checksums.whole_units(&wanted)?;
        let bytes = self.read(&units)?;
        checksums.compare_units(&units, &bytes)?;
        within(&bytes, &units, &wanted)
    }
}

/// A [`StoreFile`] from some byte on.
struct StoreReader {
    file: StoreFile,
    at: u64,
}

impl Read for StoreReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let rest = usize::try_from(self.file.size.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let length = buffer.len().min(rest);
        if length == 0 {
            return Ok(0);
        }
        let bytes = self.file.get_bytes(self.at, length).map_err(std::io::Error::other)?;
        buffer[..length].copy_from_slice(&bytes);
        self.at += length as u64;
        Ok(length)
    }
}
