//! What Parquet files say of floats, as far as it holds for all of them.
//!
//! Parquet's bounds leave NaN out, which is above every number: scans that prune by them, or take a column
//! for constant whose bounds are equal, lose it. Its bloom filters compare bits, of which NaN has many
//! and 0 two. So footers are read here without the upper bounds of floats, their page bounds and their bloom
//! filters; a lower bound is one of NaN, too.
//!
//! # Invariants
//! - A footer that says nothing of the kind, as those of our own files, is handed on as it is.
//! - Footers that are kept are as they are handed on, so that each is copied once.

use std::sync::Arc;

use datafusion::datasource::physical_plan::parquet::metadata::CachedParquetMetaData;
use datafusion::execution::cache::cache_manager::{CachedFileMetadataEntry, FileMetadataCache};
use datafusion::object_store::ObjectMeta;
use datafusion::parquet::basic::{LogicalType, Type};
use datafusion::parquet::errors::Result as ParquetResult;
use datafusion::parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use datafusion::parquet::file::page_index::column_index::ColumnIndexMetaData;
use datafusion::parquet::file::statistics::Statistics as ChunkStatistics;
use datafusion::parquet::schema::types::ColumnDescriptor;

/// The footer of `file` with what holds for all floats.
pub(crate) fn with_true_bounds(
    footer: Arc<ParquetMetaData>,
    file: &ObjectMeta,
    kept: &Arc<FileMetadataCache>,
) -> ParquetResult<Arc<ParquetMetaData>> {
    let Some(truer) = true_bounds(&footer)? else { return Ok(footer) };
    let footer = Arc::new(truer);
    let entry = Arc::new(CachedParquetMetaData::new(Arc::clone(&footer)));
    kept.put(&file.location, CachedFileMetadataEntry::new(file.clone(), entry));
    Ok(footer)
}

/// `None` if all of it holds.
fn true_bounds(footer: &ParquetMetaData) -> ParquetResult<Option<ParquetMetaData>> {
    let columns = footer.file_metadata().schema_descr().columns();
    let floats: Vec<usize> = (0..columns.len()).filter(|at| is_float(&columns[*at])).collect();
    let groups = footer.row_groups();
    let say_too_much = |at: &usize| groups.iter().any(|group| says_too_much(group.column(*at)));
    if !floats.iter().any(say_too_much) {
        return Ok(None);
    }
    let mut builder = footer.clone().into_builder();
    let mut groups = builder.take_row_groups();
    for group in &mut groups {
        for at in &floats {
            let chunk = &mut group.columns_mut()[*at];
            *chunk = with_lower_bound(chunk.clone())?;
        }
    }
    let mut pages = builder.take_column_index();
    for group in pages.iter_mut().flatten() {
        for at in &floats {
            if let Some(bounds) = group.get_mut(*at) {
                *bounds = ColumnIndexMetaData::NONE;
            }
        }
    }
    Ok(Some(builder.set_row_groups(groups).set_column_index(pages).build()))
}

fn is_float(column: &ColumnDescriptor) -> bool {
    match column.physical_type() {
        Type::FLOAT | Type::DOUBLE => true,
        Type::FIXED_LEN_BYTE_ARRAY => {
            matches!(column.logical_type_ref(), Some(LogicalType::Float16))
        }
        _ => false,
    }
}

fn says_too_much(chunk: &ColumnChunkMetaData) -> bool {
    let more = |bounds: &ChunkStatistics| {
        bounds.max_bytes_opt().is_some()
            || bounds.min_bytes_opt() != lower_bound(bounds).min_bytes_opt()
    };
    chunk.bloom_filter_offset().is_some()
        || chunk.column_index_offset().is_some()
        || chunk.statistics().is_some_and(more)
}

fn with_lower_bound(chunk: ColumnChunkMetaData) -> ParquetResult<ColumnChunkMetaData> {
    let bounds = chunk.statistics().map(lower_bound);
    let builder = chunk
        .into_builder()
        .set_bloom_filter_offset(None)
        .set_bloom_filter_length(None)
        .set_column_index_offset(None)
        .set_column_index_length(None);
    match bounds {
        Some(bounds) => builder.set_statistics(bounds).build(),
        None => builder.build(),
    }
}

/// A writer that compares NaN as if it were a number may have it for a bound.
fn lower_bound(bounds: &ChunkStatistics) -> ChunkStatistics {
    let (distinct, nulls) = (bounds.distinct_count_opt(), bounds.null_count_opt());
    let old = bounds.is_min_max_deprecated();
    match bounds {
        ChunkStatistics::Float(bounds) => {
            let min = bounds.min_opt().copied().filter(|min| !min.is_nan());
            ChunkStatistics::float(min, None, distinct, nulls, old)
        }
        ChunkStatistics::Double(bounds) => {
            let min = bounds.min_opt().copied().filter(|min| !min.is_nan());
            ChunkStatistics::double(min, None, distinct, nulls, old)
        }
        _ => ChunkStatistics::fixed_len_byte_array(None, None, distinct, nulls, old),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use datafusion::arrow::array::{ArrayRef, Float32Array, Float64Array, Int64Array, RecordBatch};
    use datafusion::parquet::arrow::ArrowWriter;
    use datafusion::parquet::file::metadata::{PageIndexPolicy, ParquetMetaDataReader};
    use datafusion::parquet::file::properties::WriterProperties;

    use super::*;

    fn footer() -> ParquetMetaData {
        let columns: [(&str, ArrayRef); 3] = [
            ("n", Arc::new(Int64Array::from(vec![3, 5]))),
            ("x", Arc::new(Float64Array::from(vec![5.0, f64::NAN]))),
            ("f", Arc::new(Float32Array::from(vec![f32::NAN, f32::NAN]))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let properties = WriterProperties::builder().set_bloom_filter_enabled(true).build();
        let mut file = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut file, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        ParquetMetaDataReader::new()
            .with_page_index_policy(PageIndexPolicy::Required)
            .parse_and_finish(&Bytes::from(file))
            .unwrap()
    }

    #[test]
    fn of_floats_the_lower_bound_is_believed_and_nothing_else() {
        let before = footer();
        let after = true_bounds(&before).unwrap().unwrap();
        let (old, new) = (before.row_group(0), after.row_group(0));
        assert_eq!(old.column(0), new.column(0), "whole numbers");
        let bounds = new.column(1).statistics().unwrap();
        assert_eq!(bounds.min_bytes_opt(), Some(5.0f64.to_le_bytes().as_slice()));
        for column in new.columns().iter().skip(1) {
            assert!(column.statistics().is_none_or(|s| s.max_bytes_opt().is_none()));
            assert_eq!(column.bloom_filter_offset(), None);
            assert!(column.data_page_offset() > 0, "the rest stays");
        }
        let pages = after.column_index().unwrap();
        assert_eq!(pages[0][0], before.column_index().unwrap()[0][0]);
        assert!(pages[0][1..].iter().all(|bounds| *bounds == ColumnIndexMetaData::NONE));
        assert!(true_bounds(&after).unwrap().is_none(), "once");
    }

    #[test]
    fn a_lower_bound_that_is_nan_is_none() {
        let bounds = ChunkStatistics::double(Some(f64::NAN), Some(f64::NAN), None, Some(3), false);
        assert_eq!(lower_bound(&bounds).min_bytes_opt(), None);
        assert_eq!(lower_bound(&bounds).null_count_opt(), Some(3));
    }
}
