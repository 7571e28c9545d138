//! Filling the store's cache with what queries of a table will read.
//!
//! # Not here
//! How it is paced, kept below the cache's limit and counted (`objectio`).

use std::ops::Range;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use parquet::file::metadata::ParquetMetaData;
use tokio::runtime::Handle;
use uplake_objectio::{Warm, WarmOptions, Warmed};

use crate::checksums::Checksums;
use crate::data_file::DataFile;
use crate::error::{Result, TableError};
use crate::lake::Lake;
use crate::snapshot::Snapshot;
use crate::store_file::StoreFile;
use crate::thread::on_thread;
use crate::unpanicked::unpanicked;

/// The end of a file that is read for its footer and page indexes: one part in so many of it, …
const FOOTER_SHARE: u64 = 512;
/// … at least so many bytes, which take as long as fewer, …
const LEAST_FOOTER_BYTES: u64 = 64 << 10;
/// … and at most.
const MOST_FOOTER_BYTES: u64 = 512 << 10;
/// Footers read at once.
const FOOTERS_AT_ONCE: usize = 8;

/// Brings data files of a table and their indexes into the cache of the lake's store.
///
/// `columns` are all if `None`; footers come always. Nothing that is cached is pushed out.
///
/// # Errors
/// [`TableError::Invalid`] for a lake in a folder, [`TableError::NoSuchColumn`].
/// Files that cannot be read are counted.
pub async fn warm(
    lake: &Lake,
    table: &Snapshot,
    files: &[DataFile],
    columns: Option<&[String]>,
    options: WarmOptions,
    progress: impl Fn(&Warmed) + Send + Sync,
) -> Result<Warmed> {
    if !lake.is_remote() {
        return Err(TableError::Invalid(format!(
            "{} is a local folder, which needs no cache; WARM UP is for lakes in a bucket",
            lake.location()
        )));
    }
    let stored = table.stored_schema();
    for column in columns.unwrap_or_default() {
        stored.field_with_name(column).map_err(|_| {
            let what = format!("table `{}`: column", table.table());
            TableError::no_such_column(&what, column, &stored)
        })?;
    }
    let columns: Option<Arc<Vec<String>>> = columns.map(|c| Arc::new(c.to_vec()));
    let mut footers = Vec::new();
    for file in files {
        footers.push(data_item(lake.clone(), file.clone(), columns.clone()));
    }
    let mut items: Vec<Warm> =
        futures::stream::iter(footers).buffered(FOOTERS_AT_ONCE).try_collect().await?;
    if !table.indexes().is_empty() {
        let index =
            |file: &DataFile| Warm { path: file.index_path.clone(), ranges: None, size: None };
        items.extend(files.iter().map(index));
    }
    Ok(lake.storage().warm(items, options, progress).await)
}

/// Brings footers and indexes of `files` into the cache of the lake's store: what every query of them
/// reads first. Nothing that is cached is pushed out, and nothing is asked about what is there.
pub async fn preload(
    lake: &Lake,
    table: &Snapshot,
    files: &[DataFile],
    options: WarmOptions,
) -> Warmed {
    let mut items = Vec::new();
    for file in files {
        let footer = footer_range(file.size, file.checksums.as_deref());
        let path = file.store_path.clone();
        items.push(Warm { path, ranges: Some(vec![footer]), size: Some(file.size) });
        if !table.indexes().is_empty() {
            items.push(Warm { path: file.index_path.clone(), ranges: None, size: None });
        }
    }
    lake.storage().warm(items, options, |_| {}).await
}

/// What to read of a data file of `size` bytes for its footer and page indexes: what the log says, or enough
/// for nearly all. Of a small file it is all.
pub fn footer_range(size: u64, checksums: Option<&Checksums>) -> Range<u64> {
    let bytes = match checksums {
        Some(checksums) => (size - checksums.tail().start).max(LEAST_FOOTER_BYTES),
        None => (size / FOOTER_SHARE).clamp(LEAST_FOOTER_BYTES, MOST_FOOTER_BYTES),
    };
    size.saturating_sub(bytes)..size
}

/// What to read of a data file.
async fn data_item(lake: Lake, file: DataFile, columns: Option<Arc<Vec<String>>>) -> Result<Warm> {
    let path = file.store_path.clone();
    let Some(columns) = columns else {
        return Ok(Warm { path, ranges: None, size: Some(file.size) });
    };
    let runtime = Handle::current();
    on_thread(move || {
        let chunks = StoreFile::new(lake.storage(), &file, &runtime);
        let footer = unpanicked(|| chunks.footer());
        let footer =
            footer.map_err(|e| TableError::Parquet { file: file.path.clone(), source: e })?;
        let tail = footer_range(file.size, file.checksums.as_deref());
        let ranges = Some(ranges(&footer, tail, &columns));
        Ok(Warm { path, ranges, size: Some(file.size) })
    })
    .await
}

/// The columns' bytes in each row group, and the file's end: page indexes and footer.
fn ranges(footer: &ParquetMetaData, tail: Range<u64>, columns: &[String]) -> Vec<Range<u64>> {
    let mut ranges = Vec::new();
    let mut data_end = 0;
    for column in footer.row_groups().iter().flat_map(|group| group.columns()) {
        let (start, length) = column.byte_range();
        data_end = data_end.max(start + length);
        let path = column.column_path();
        if path.parts().first().is_some_and(|root| columns.contains(root)) {
            ranges.push(start..start + length);
        }
    }
    ranges.push(data_end.min(tail.start)..tail.end);
    merged(ranges)
}

/// The same bytes, each once.
fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_byte_is_wanted_twice() {
        assert_eq!(merged(vec![8..9, 0..3, 2..5, 5..6, 9..12]), vec![0..6, 8..12]);
        assert_eq!(merged(Vec::new()), Vec::<Range<u64>>::new());
    }
}
