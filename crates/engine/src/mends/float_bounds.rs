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

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::catalog::Session;
use datafusion::common::stats::Precision;
use datafusion::common::{GetExt, Result, Statistics};
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::{FileFormat, FileFormatFactory, FileMeta};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::ParquetFileReaderFactory;
use datafusion::datasource::physical_plan::parquet::metadata::CachedParquetMetaData;
use datafusion::datasource::physical_plan::{
    FileScanConfig, FileScanConfigBuilder, FileSinkConfig, FileSource, ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::cache::cache_manager::{CachedFileMetadataEntry, FileMetadataCache};
use datafusion::object_store::{ObjectMeta, ObjectStore};
use datafusion::parquet::arrow::arrow_reader::ArrowReaderOptions;
use datafusion::parquet::arrow::async_reader::AsyncFileReader;
use datafusion::parquet::basic::{LogicalType, Type};
use datafusion::parquet::errors::Result as ParquetResult;
use datafusion::parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use datafusion::parquet::file::page_index::column_index::ColumnIndexMetaData;
use datafusion::parquet::file::statistics::Statistics as ChunkStatistics;
use datafusion::parquet::schema::types::ColumnDescriptor;
use datafusion::physical_expr::{LexOrdering, LexRequirement};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};

use crate::ahead::read_footer;

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

/// DataFusion's Parquet format, for files that are read in place.
#[derive(Debug)]
pub(super) struct TrueBounds(pub Arc<dyn FileFormatFactory>);

impl GetExt for TrueBounds {
    fn get_ext(&self) -> String {
        self.0.get_ext()
    }
}

impl FileFormatFactory for TrueBounds {
    fn create(
        &self,
        state: &dyn Session,
        options: &HashMap<String, String>,
    ) -> Result<Arc<dyn FileFormat>> {
        Ok(Arc::new(TrueBoundsFormat(self.0.create(state, options)?)))
    }

    fn default(&self) -> Arc<dyn FileFormat> {
        Arc::new(TrueBoundsFormat(self.0.default()))
    }
}

#[derive(Debug)]
struct TrueBoundsFormat(Arc<dyn FileFormat>);

#[async_trait]
impl FileFormat for TrueBoundsFormat {
    fn get_ext(&self) -> String {
        self.0.get_ext()
    }

    fn get_ext_with_compression(&self, compression: &FileCompressionType) -> Result<String> {
        self.0.get_ext_with_compression(compression)
    }

    fn compression_type(&self) -> Option<FileCompressionType> {
        self.0.compression_type()
    }

    async fn infer_schema(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        files: &[ObjectMeta],
    ) -> Result<SchemaRef> {
        // Read by us and kept, so that they are looked over before anybody believes them.
        let kept = state.runtime_env().cache_manager.get_file_metadata_cache();
        let footers = stream::iter(files.to_vec()).map(|file| {
            let (store, kept) = (Arc::clone(store), Arc::clone(&kept));
            async move { read_footer(&*store, &file.into(), &kept, None).await.map(drop) }
        });
        let at_once = state.config_options().execution.meta_fetch_concurrency.into();
        footers.buffer_unordered(at_once).try_collect::<()>().await?;
        self.0.infer_schema(state, store, files).await
    }

    async fn infer_stats(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        schema: SchemaRef,
        file: &ObjectMeta,
    ) -> Result<Statistics> {
        let found = self.0.infer_stats(state, store, Arc::clone(&schema), file).await?;
        Ok(without_float_bounds(found, &schema))
    }

    async fn infer_ordering(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        schema: SchemaRef,
        file: &ObjectMeta,
    ) -> Result<Option<LexOrdering>> {
        let found = self.0.infer_ordering(state, store, Arc::clone(&schema), file).await?;
        Ok(found.filter(|ordering| !has_float(ordering, &schema)))
    }

    async fn infer_stats_and_ordering(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        schema: SchemaRef,
        file: &ObjectMeta,
    ) -> Result<FileMeta> {
        let whole = Arc::clone(&schema);
        let found = self.0.infer_stats_and_ordering(state, store, whole, file).await?;
        let ordering = found.ordering.filter(|ordering| !has_float(ordering, &schema));
        Ok(FileMeta::new(without_float_bounds(found.statistics, &schema)).with_ordering(ordering))
    }

    async fn create_physical_plan(
        &self,
        state: &dyn Session,
        config: FileScanConfig,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = self.0.create_physical_plan(state, config).await?;
        let scan = plan.downcast_ref::<DataSourceExec>();
        let config = scan.and_then(|scan| scan.data_source().downcast_ref::<FileScanConfig>());
        let source = config.and_then(|c| c.file_source().downcast_ref::<ParquetSource>());
        let readers = source.and_then(ParquetSource::parquet_file_reader_factory);
        let (Some(config), Some(source), Some(readers)) = (config, source, readers) else {
            return Ok(plan);
        };
        let readers = TrueBoundsReaders {
            readers: Arc::clone(readers),
            kept: state.runtime_env().cache_manager.get_file_metadata_cache(),
        };
        let source = source.clone().with_parquet_file_reader_factory(Arc::new(readers));
        let config = FileScanConfigBuilder::from(config.clone()).with_source(Arc::new(source));
        Ok(DataSourceExec::from_data_source(config.build()))
    }

    async fn create_writer_physical_plan(
        &self,
        input: Arc<dyn ExecutionPlan>,
        state: &dyn Session,
        config: FileSinkConfig,
        order: Option<LexRequirement>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.0.create_writer_physical_plan(input, state, config, order).await
    }

    fn file_source(&self, schema: TableSchema) -> Arc<dyn FileSource> {
        self.0.file_source(schema)
    }
}

fn is_floating(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => values.is_floating(),
        other => other.is_floating(),
    }
}

/// A file's bounds would be made of those row groups alone that have some.
fn without_float_bounds(mut statistics: Statistics, schema: &Schema) -> Statistics {
    for (column, field) in statistics.column_statistics.iter_mut().zip(schema.fields()) {
        if is_floating(field.data_type()) {
            column.min_value = Precision::Absent;
            column.max_value = Precision::Absent;
        }
    }
    statistics
}

/// Writers have different places for NaN.
fn has_float(ordering: &LexOrdering, schema: &Schema) -> bool {
    ordering.iter().any(|key| key.expr.data_type(schema).is_ok_and(|found| is_floating(&found)))
}

/// Hands out footers with what holds for all floats.
#[derive(Debug)]
struct TrueBoundsReaders {
    readers: Arc<dyn ParquetFileReaderFactory>,
    kept: Arc<FileMetadataCache>,
}

impl ParquetFileReaderFactory for TrueBoundsReaders {
    fn create_reader(
        &self,
        partition: usize,
        file: PartitionedFile,
        footer_bytes: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Box<dyn AsyncFileReader + Send>> {
        let (kept, meta) = (Arc::clone(&self.kept), file.object_meta.clone());
        let reader = self.readers.create_reader(partition, file, footer_bytes, metrics)?;
        Ok(Box::new(TrueBoundsReader { reader, kept, file: meta }))
    }
}

struct TrueBoundsReader {
    reader: Box<dyn AsyncFileReader + Send>,
    kept: Arc<FileMetadataCache>,
    file: ObjectMeta,
}

impl AsyncFileReader for TrueBoundsReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, ParquetResult<Bytes>> {
        self.reader.get_bytes(range)
    }

    fn get_byte_ranges(
        &mut self,
        ranges: Vec<Range<u64>>,
    ) -> BoxFuture<'_, ParquetResult<Vec<Bytes>>> {
        self.reader.get_byte_ranges(ranges)
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, ParquetResult<Arc<ParquetMetaData>>> {
        async move {
            let footer = self.reader.get_metadata(options).await?;
            with_true_bounds(footer, &self.file, &self.kept)
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
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
