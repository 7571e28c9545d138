//! DataFusion's Parquet format for files that are read in place, with what their footers say of floats as far as
//! it holds for all of them (see [`true_bounds`](crate::scan::true_bounds)).

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
use datafusion::datasource::physical_plan::{
    FileScanConfig, FileScanConfigBuilder, FileSinkConfig, FileSource, ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::cache::cache_manager::FileMetadataCache;
use datafusion::object_store::{ObjectMeta, ObjectStore};
use datafusion::parquet::arrow::arrow_reader::ArrowReaderOptions;
use datafusion::parquet::arrow::async_reader::AsyncFileReader;
use datafusion::parquet::errors::Result as ParquetResult;
use datafusion::parquet::file::metadata::ParquetMetaData;
use datafusion::physical_expr::{LexOrdering, LexRequirement};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};

use crate::scan::prefetch::read_footer;
use crate::scan::temporal_bounds::NoTemporalBounds;
use crate::scan::true_bounds::with_true_bounds;

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
        let mut of_files =
            FileScanConfigBuilder::from(config.clone()).with_source(Arc::new(source));
        // What is kept of a file is for all statements, so those of this one are taken out here.
        if state.config().get_extension::<NoTemporalBounds>().is_some() {
            let told =
                without_bounds(config.statistics(), config.file_schema(), DataType::is_temporal);
            of_files = of_files.with_statistics(told);
        }
        Ok(DataSourceExec::from_data_source(of_files.build()))
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
fn without_float_bounds(statistics: Statistics, schema: &Schema) -> Statistics {
    without_bounds(statistics, schema, is_floating)
}

fn without_bounds(
    mut statistics: Statistics,
    schema: &Schema,
    of_types: fn(&DataType) -> bool,
) -> Statistics {
    for (column, field) in statistics.column_statistics.iter_mut().zip(schema.fields()) {
        if of_types(field.data_type()) {
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
