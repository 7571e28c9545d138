//! How the columns of a data file are encoded, from a sample of its rows.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::{SortOptions, cast, concat_batches};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use arrow::row::{RowConverter, SortField};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;

use crate::error::{Result, TableError};
use crate::id_domain::id_column;

/// Rows of a row group: enough that one is worth a request of several MiB, few enough that a
/// selective query skips most of a file.
pub(crate) const ROW_GROUP_ROWS: usize = 1 << 20;
/// Rows of a data page at most, so that the page index can skip within a row group.
const PAGE_ROWS: usize = 20_000;

/// Strings longer than this on average are compressed hard and not tried as a dictionary.
const LONG_STRING_BYTES: usize = 32;
/// A page of long text: what has to be decompressed for one row of it. With pages of 1 MiB that was a
/// third of the CPU time of a query for one user's rows.
const LONG_STRING_PAGE_BYTES: usize = 128 << 10;
/// Rows looked at to choose a column's encoding.
const SAMPLE_ROWS: usize = 4096;
/// A dictionary of a sorted id column: 150,000 ids of 28 bytes in a row group are 4 MiB.
const DICTIONARY_BYTES: usize = 8 << 20;
/// Numbers of a miniblock of `DELTA_BINARY_PACKED`, of which a block has four, as the `parquet` crate writes those of 32 bits.
const MINIBLOCK: usize = 32;
const BLOOM_FALSE_POSITIVES: f64 = 0.01;

/// The order (batch, row) that sorts all rows of `batches` by `columns`, NULLs last, stable.
///
/// Comparing 16-byte prefixes of the row format decides nearly every pair without touching memory
/// elsewhere; only equal prefixes compare the whole key.
pub(crate) fn sort_order(
    batches: &[RecordBatch],
    columns: &[String],
) -> Result<Vec<(usize, usize)>> {
    let arrow = |e| TableError::arrow("sorting rows", e);
    let Some(first) = batches.first() else { return Ok(Vec::new()) };
    let indices = columns
        .iter()
        .map(|c| first.schema().index_of(c))
        .collect::<Result<Vec<_>, _>>()
        .map_err(arrow)?;
    let fields = indices
        .iter()
        .map(|i| {
            let options = SortOptions { descending: false, nulls_first: false };
            SortField::new_with_options(first.schema().field(*i).data_type().clone(), options)
        })
        .collect();
    let converter = RowConverter::new(fields).map_err(arrow)?;
    let mut keys = Vec::with_capacity(batches.len());
    for batch in batches {
        let columns: Vec<ArrayRef> = indices.iter().map(|i| Arc::clone(batch.column(*i))).collect();
        keys.push(converter.convert_columns(&columns).map_err(arrow)?);
    }
    let mut order: Vec<(u128, u32, u32)> =
        Vec::with_capacity(batches.iter().map(RecordBatch::num_rows).sum());
    for (b, rows) in keys.iter().enumerate() {
        for (r, row) in rows.iter().enumerate() {
            let bytes: &[u8] = row.as_ref();
            let mut prefix = [0u8; 16];
            let length = bytes.len().min(16);
            prefix[..length].copy_from_slice(&bytes[..length]);
            order.push((u128::from_be_bytes(prefix), b as u32, r as u32));
        }
    }
    order.sort_unstable_by(|x, y| {
        x.0.cmp(&y.0)
            .then_with(|| {
                keys[x.1 as usize].row(x.2 as usize).cmp(&keys[y.1 as usize].row(y.2 as usize))
            })
            .then_with(|| (x.1, x.2).cmp(&(y.1, y.2)))
    });
    Ok(order.into_iter().map(|(_, b, r)| (b as usize, r as usize)).collect())
}

/// Parquet settings of a file: codec and encoding per column, chosen from a sample, which is in any order, and from the rows
/// that are written first.
///
/// As measured on 40M events: lz4 decodes numbers and ids three times faster than zstd, zstd halves
/// long strings; a dictionary pays when values repeat.
pub(super) fn writer_properties(
    schema: &Schema,
    cluster_by: &[String],
    sample: &[RecordBatch],
    first: &RecordBatch,
) -> WriterProperties {
    let sorting = cluster_by
        .iter()
        .filter_map(|c| schema.index_of(c).ok())
        .map(|i| SortingColumn { column_idx: i as i32, descending: false, nulls_first: false })
        .collect::<Vec<_>>();
    // Leaf numbers equal column numbers only without nested columns.
    let flat = schema.fields().iter().all(|f| !f.data_type().is_nested());
    let mut builder = WriterProperties::builder()
        .set_created_by(concat!("uplake ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::LZ4_RAW)
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_write_batch_size(2048)
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_statistics_truncate_length(Some(64))
        .set_column_index_truncate_length(Some(32))
        .set_sorting_columns((flat && !sorting.is_empty()).then_some(sorting));
    let head = sample_rows(sample);
    for (i, field) in schema.fields().iter().enumerate() {
        let column = ColumnPath::from(field.name().as_str());
        let values = head.as_ref().map(|b| b.column(i));
        let first = first.columns().get(i);
        // Sorted by its ids, a column's equal values are side by side, too.
        let lead = cluster_by.first();
        let sorted = lead.is_some_and(|c| c == field.name() || *c == id_column(field.name()));
        builder = column_properties(builder, column, field, (values, first), sorted);
    }
    builder.build()
}

fn column_properties(
    mut builder: WriterPropertiesBuilder,
    column: ColumnPath,
    field: &Field,
    (values, first): (Option<&ArrayRef>, Option<&ArrayRef>),
    leads_the_sort: bool,
) -> WriterPropertiesBuilder {
    if is_id_like(field) || leads_the_sort && field.data_type() == &DataType::Utf8 {
        builder = builder
            .set_column_bloom_filter_enabled(column.clone(), true)
            .set_column_bloom_filter_fpp(column.clone(), BLOOM_FALSE_POSITIVES)
            .set_column_bloom_filter_max_ndv(column.clone(), ROW_GROUP_ROWS as u64);
    }
    match field.data_type() {
        DataType::Utf8 | DataType::Binary => {
            let (average, distinct) = values.map_or((0, 0.0), string_shape);
            if leads_the_sort {
                return builder.set_column_dictionary_page_size_limit(column, DICTIONARY_BYTES);
            }
            if average > LONG_STRING_BYTES {
                let level = ZstdLevel::try_new(1).map_or(Compression::SNAPPY, Compression::ZSTD);
                builder = builder
                    .set_column_compression(column.clone(), level)
                    .set_column_data_page_size_limit(column.clone(), LONG_STRING_PAGE_BYTES);
            }
            if distinct > 0.5 {
                builder = builder
                    .set_column_dictionary_enabled(column.clone(), false)
                    .set_column_encoding(column, Encoding::PLAIN);
            }
            builder
        }
        DataType::Int64 | DataType::Int32 | DataType::Timestamp(_, _) | DataType::Date32 => {
            let distinct = values.map_or(1.0, distinct_share);
            if distinct > 0.05 {
                // Sorted or nearly sorted numbers, such as ids within each experiment, shrink to a few
                // bits; others stay plain, which decodes at memory speed.
                let packed = leads_the_sort || first.is_some_and(is_nearly_sorted);
                let encoding = if packed { Encoding::DELTA_BINARY_PACKED } else { Encoding::PLAIN };
                builder = builder
                    .set_column_dictionary_enabled(column.clone(), false)
                    .set_column_encoding(column, encoding);
            }
            builder
        }
        DataType::Float64 | DataType::Float32 => {
            let distinct = values.map_or(1.0, distinct_share);
            // Parquet leaves NaN out of a column's bounds, while queries sort it above every number:
            // a reader that prunes by the bounds would lose it.
            builder
                .set_column_statistics_enabled(column.clone(), EnabledStatistics::None)
                .set_column_dictionary_enabled(column, distinct <= 0.05)
        }
        _ => builder,
    }
}

/// Would a number take at most a quarter of its bits as `DELTA_BINARY_PACKED` has it? What it is more than the one before,
/// less the least such difference of its block, in as many bits as the widest of its miniblock needs.
fn is_nearly_sorted(values: &ArrayRef) -> bool {
    let width = values.data_type().primitive_width().unwrap_or(size_of::<i64>()) * 8;
    let values = values.slice(0, values.len().min(SAMPLE_ROWS));
    let Ok(numbers) = cast(&values, &DataType::Int64) else { return false };
    let numbers: Vec<i64> = numbers.as_primitive::<Int64Type>().iter().flatten().collect();
    let more: Vec<i64> = numbers.windows(2).map(|two| two[1].wrapping_sub(two[0])).collect();
    let mut bits = 0;
    for block in more.chunks(4 * MINIBLOCK) {
        let least = block.iter().min().copied().unwrap_or_default();
        for miniblock in block.chunks(MINIBLOCK) {
            let most = miniblock.iter().max().copied().unwrap_or_default().abs_diff(least);
            bits += (u64::BITS - most.leading_zeros()) as usize * miniblock.len();
        }
    }
    !more.is_empty() && bits * 4 <= width * more.len()
}

/// Columns people look rows up by: named `id`, `…_id`, `…Id` or `uuid`, of text or whole numbers.
fn is_id_like(field: &Field) -> bool {
    let name = field.name();
    let lower = name.to_ascii_lowercase();
    matches!(field.data_type(), DataType::Utf8 | DataType::Int64)
        && (lower == "id" || lower == "uuid" || lower.ends_with("_id") || name.ends_with("Id"))
}

fn sample_rows(sample: &[RecordBatch]) -> Option<RecordBatch> {
    let first = sample.first()?;
    let mut taken = Vec::new();
    let mut rows = 0;
    for batch in sample {
        let n = batch.num_rows().min(SAMPLE_ROWS - rows);
        taken.push(batch.slice(0, n));
        rows += n;
        if rows == SAMPLE_ROWS {
            break;
        }
    }
    concat_batches(&first.schema(), &taken).ok()
}

/// (average length in bytes, distinct values per row) of a sample of strings.
fn string_shape(values: &ArrayRef) -> (usize, f64) {
    let rows = values.len().max(1);
    let (mut bytes, mut distinct) = (0, std::collections::HashSet::new());
    let mut see = |value: &[u8]| {
        bytes += value.len();
        distinct.insert(value.to_vec());
    };
    match values.data_type() {
        DataType::Utf8 => {
            values.as_string::<i32>().iter().flatten().for_each(|s| see(s.as_bytes()))
        }
        DataType::Binary => values.as_binary::<i32>().iter().flatten().for_each(&mut see),
        _ => {}
    }
    (bytes / rows, distinct.len() as f64 / rows as f64)
}

/// Distinct values per row of a sample of numbers.
fn distinct_share(values: &ArrayRef) -> f64 {
    let Ok(converter) = RowConverter::new(vec![SortField::new(values.data_type().clone())]) else {
        return 1.0;
    };
    let Ok(rows) = converter.convert_columns(&[Arc::clone(values)]) else { return 1.0 };
    let distinct: std::collections::HashSet<Vec<u8>> =
        rows.iter().map(|r| r.as_ref().to_vec()).collect();
    distinct.len() as f64 / values.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, Int64Array};

    use super::*;

    fn encoding(column: &str, values: ArrayRef) -> Option<Encoding> {
        let batch = RecordBatch::try_from_iter([(column, values)]).unwrap();
        let cluster_by = ["experiment".to_owned(), "user".to_owned()];
        let properties = writer_properties(
            batch.schema_ref(),
            &cluster_by,
            std::slice::from_ref(&batch),
            &batch,
        );
        properties.encoding(&ColumnPath::from(column))
    }

    #[test]
    fn numbers_that_are_sorted_in_long_stretches_are_packed() {
        // In no order: a step that shares no factor with how many there are.
        let mut ids: Vec<i32> = (0..4000).map(|n| (n * 618_033_i64 % 20_011) as i32).collect();
        let ints = |ids: &[i32]| Arc::new(Int32Array::from(ids.to_vec())) as ArrayRef;
        assert_eq!(encoding("n", ints(&ids)), Some(Encoding::PLAIN));
        ids[..2000].sort_unstable();
        ids[2000..].sort_unstable();
        assert_eq!(encoding("n", ints(&ids)), Some(Encoding::DELTA_BINARY_PACKED));
        // Of each user some that rise, as events have times.
        ids.chunks_mut(20).for_each(<[i32]>::sort_unstable);
        let turns: Vec<i32> = (0..4000).map(|n| ids[n / 20 + n % 20 * 200]).collect();
        assert_eq!(encoding("n", ints(&turns)), Some(Encoding::PLAIN));
        let edges = [i64::MIN, i64::MAX, 0, -1, 1].repeat(9);
        assert_eq!(encoding("n", Arc::new(Int64Array::from(edges))), Some(Encoding::PLAIN));
        // The first of the order is packed whatever it is; few different ones have a dictionary.
        assert_eq!(encoding("experiment", ints(&turns)), Some(Encoding::DELTA_BINARY_PACKED));
        assert_eq!(encoding("n", ints(&[5; 4000])), None);
        assert_eq!(encoding("n", ints(&[])), None);
    }
}
