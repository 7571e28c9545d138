//! Rows of a file's row groups, by what its footer says, and the reader of what is decoded of them.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::datatypes::FieldRef;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::object_store::ObjectStore;
use datafusion::parquet::arrow::arrow_reader::ArrowReaderOptions;
use datafusion::parquet::arrow::async_reader::AsyncFileReader;
use datafusion::parquet::errors::{ParquetError, Result as ParquetResult};
use datafusion::parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use futures::FutureExt;
use futures::future::BoxFuture;
use uplake_table::Selection;

use crate::scan::prefetch::{external, read_ranges};

/// Text of more bytes a row is long: it is not kept as numbers.
const LONG_TEXT_BYTES: usize = 12;

/// About the bytes that a column of a row group takes when it is kept, and whether it is long text.
pub(super) fn kept_bytes(
    metadata: &ParquetMetaData,
    row_group: usize,
    field: &FieldRef,
) -> (usize, bool) {
    let group = metadata.row_group(row_group);
    let rows = usize::try_from(group.num_rows()).unwrap_or_default();
    if let Some(width) = field.data_type().primitive_width() {
        return (rows * width, false);
    }
    let column = group.columns().iter().find(|c| c.column_path().string() == *field.name());
    let bytes = column.map_or(0, |c| usize::try_from(c.uncompressed_size()).unwrap_or_default());
    (bytes.max(2 * rows), bytes > LONG_TEXT_BYTES * rows)
}

/// A file of the store whose footer is known.
pub(super) struct StoreReader {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) file: PartitionedFile,
    pub(super) metadata: Arc<ParquetMetaData>,
}

impl AsyncFileReader for StoreReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, ParquetResult<Bytes>> {
        async move {
            let ranges = [range];
            let read = read_ranges(&self.store, &self.file, &ranges, false).await;
            let bytes = read.map_err(external)?.into_iter().next();
            bytes.ok_or_else(|| ParquetError::EOF("a range without bytes".into()))
        }
        .boxed()
    }

    fn get_byte_ranges(
        &mut self,
        ranges: Vec<Range<u64>>,
    ) -> BoxFuture<'_, ParquetResult<Vec<Bytes>>> {
        async move {
            let read = read_ranges(&self.store, &self.file, &ranges, true).await;
            read.map_err(external)
        }
        .boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        _options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, ParquetResult<Arc<ParquetMetaData>>> {
        let metadata = Arc::clone(&self.metadata);
        async move { Ok(metadata) }.boxed()
    }
}

/// The rows to read, by row group, as ranges: those groups whose start lies in the file's range, which
/// is how the Parquet scan shares a file out.
pub(crate) fn group_rows(
    file: &PartitionedFile,
    metadata: &ParquetMetaData,
    rows: &Selection,
) -> Vec<(usize, Vec<Range<usize>>)> {
    let mut wanted = Vec::new();
    let mut first = 0u64;
    let mut runs = rows.runs();
    for (number, group) in metadata.row_groups().iter().enumerate() {
        let end = first + u64::try_from(group.num_rows()).unwrap_or_default();
        let start = first;
        first = end;
        if !is_in_range(file, group) {
            continue;
        }
        runs.skip_to(u32::try_from(start).unwrap_or(u32::MAX));
        let mut here = Vec::new();
        for run in runs.clone() {
            let (low, high) = (u64::from(run.start).max(start), u64::from(run.end).min(end));
            if low >= end {
                break;
            }
            here.push((low - start) as usize..(high - start) as usize);
        }
        if !here.is_empty() {
            wanted.push((number, here));
        }
    }
    wanted
}

/// Does the row group start in the file's range?
fn is_in_range(file: &PartitionedFile, group: &RowGroupMetaData) -> bool {
    let column = group.column(0);
    let offset = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
    file.range.as_ref().is_none_or(|range| range.contains(offset))
}

/// The row groups that start in the file's range.
pub(super) fn groups_of<'m>(
    file: &'m PartitionedFile,
    metadata: &'m ParquetMetaData,
) -> impl Iterator<Item = usize> + 'm {
    let groups = metadata.row_groups().iter().enumerate();
    groups.filter(|(_, group)| is_in_range(file, group)).map(|(number, _)| number)
}

/// [`group_rows`] one by one.
pub(super) fn wanted_rows(
    file: &PartitionedFile,
    metadata: &ParquetMetaData,
    rows: &Selection,
) -> Vec<(usize, Vec<u32>)> {
    let rows_of = |ranges: Vec<Range<usize>>| ranges.into_iter().flatten().map(|row| row as u32);
    let wanted = group_rows(file, metadata, rows).into_iter();
    wanted.map(|(group, ranges)| (group, rows_of(ranges).collect())).collect()
}

/// The rows of the pages of a column that hold any of `rows`; `None` without a page index.
pub(super) fn decoded_rows(
    metadata: &ParquetMetaData,
    row_group: usize,
    column: &str,
    rows: &[u32],
) -> Option<u64> {
    let group = metadata.row_group(row_group);
    let at = group.columns().iter().position(|c| c.column_path().string() == column)?;
    let pages = metadata.offset_index()?.get(row_group)?.get(at)?.page_locations();
    let mut decoded = 0;
    let mut rest = rows;
    for (number, page) in pages.iter().enumerate() {
        let end = pages.get(number + 1).map_or(group.num_rows(), |next| next.first_row_index);
        let here = rest.partition_point(|row| i64::from(*row) < end);
        if here > 0 {
            decoded += end - page.first_row_index;
        }
        rest = &rest[here..];
    }
    u64::try_from(decoded).ok()
}
