//! CSV and JSON files in a bucket that are read in place, a record at a time. Those of this machine: `scan::text_files`.
//!
//! DataFusion takes in a record whole, however long, and as many as a batch has: a file of 64 KB whose one field
//! unpacks to gigabytes takes them all. From a bucket it reads a JSON file whole to know its columns. Here files
//! are unpacked before DataFusion has them, and their records are counted as their bytes come by.
//!
//! # Invariants
//! - What DataFusion reads are the same bytes, uncompressed, or an error.
//! - Columns are those of a file's first [`SAMPLE_RECORDS`] records, or of its first [`SAMPLE_BYTES`].

use std::collections::HashMap;
use std::fmt::{self, Display, Formatter};
use std::io::{Read, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::Session;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, GetExt, Result, Statistics};
use datafusion::datasource::file_format::csv::CsvFormat;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::json::JsonFormat;
use datafusion::datasource::file_format::{FileFormat, FileFormatFactory};
use datafusion::datasource::physical_plan::{
    FileOpener, FileScanConfig, FileScanConfigBuilder, FileSinkConfig, FileSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::object_store::path::Path;
use datafusion::object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result as StoreResult,
};
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::{LexRequirement, PhysicalExpr};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::physical_plan::{DisplayFormatType, ExecutionPlan};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};

use crate::base::error::EngineError;
use crate::base::settings::Settings;
use crate::base::sql_state::SqlState;

/// Of one record, as a load has it.
const RECORD_BYTES: usize = 64 << 20;
/// The records of one batch: of the session's memory, but not less than a record.
const MEMORY_SHARE: usize = 4;
/// What columns are told from, as DuckDB's `sample_size` has it.
const SAMPLE_RECORDS: usize = 20_480;
/// However long those are.
const SAMPLE_BYTES: usize = 16 << 20;
/// One read of a local file.
const READ_BYTES: usize = 256 << 10;
/// DataFusion's name of an option.
const COMPRESSION: &str = "format.compression";

/// DataFusion's format of text files, within bounds.
#[derive(Debug)]
pub(super) struct CountedRecords(pub Arc<dyn FileFormatFactory>);

impl GetExt for CountedRecords {
    fn get_ext(&self) -> String {
        self.0.get_ext()
    }
}

impl FileFormatFactory for CountedRecords {
    fn create(
        &self,
        state: &dyn Session,
        options: &HashMap<String, String>,
    ) -> Result<Arc<dyn FileFormat>> {
        let mut plain = options.clone();
        plain.remove(COMPRESSION);
        let (asked, plain) = (self.0.create(state, options)?, self.0.create(state, &plain)?);
        Ok(Arc::new(CountedFormat { asked, plain: with_sample(plain) }))
    }

    fn default(&self) -> Arc<dyn FileFormat> {
        let plain = with_sample(self.0.default());
        Arc::new(CountedFormat { asked: self.0.default(), plain })
    }
}

/// The format, which looks at as many records as it is given to tell their columns.
fn with_sample(format: Arc<dyn FileFormat>) -> Arc<dyn FileFormat> {
    if let Some(csv) = format.downcast_ref::<CsvFormat>() {
        let options = csv.options().clone();
        let csv = CsvFormat::default().with_options(options);
        return Arc::new(csv.with_schema_infer_max_rec(SAMPLE_RECORDS));
    }
    if let Some(json) = format.downcast_ref::<JsonFormat>() {
        let options = json.options().clone();
        let json = JsonFormat::default().with_options(options);
        return Arc::new(json.with_schema_infer_max_rec(SAMPLE_RECORDS));
    }
    format
}

#[derive(Debug)]
struct CountedFormat {
    /// As it was asked for.
    asked: Arc<dyn FileFormat>,
    /// Without compression.
    plain: Arc<dyn FileFormat>,
}

impl CountedFormat {
    fn compression(&self) -> FileCompressionType {
        self.asked.compression_type().unwrap_or(FileCompressionType::UNCOMPRESSED)
    }

    fn limits(&self, state: &dyn Session) -> Limits {
        let options = state.config_options();
        let memory = options.extensions.get::<Settings>().map_or(0, |s| s.memory_bytes);
        let shape = if let Some(csv) = self.plain.downcast_ref::<CsvFormat>() {
            Shape::Csv { delimiter: csv.delimiter(), quote: csv.quote(), escape: csv.escape() }
        } else {
            let json = self.plain.downcast_ref::<JsonFormat>();
            let is_lines = json.is_none_or(JsonFormat::is_newline_delimited);
            Shape::Json { outer: if is_lines { 0 } else { 1 } }
        };
        Limits {
            compression: self.compression(),
            shape,
            batch_records: options.execution.batch_size.get(),
            batch_bytes: if memory == 0 {
                usize::MAX
            } else {
                (memory / MEMORY_SHARE).max(RECORD_BYTES)
            },
        }
    }
}

#[async_trait]
impl FileFormat for CountedFormat {
    fn get_ext(&self) -> String {
        self.asked.get_ext()
    }

    fn get_ext_with_compression(&self, compression: &FileCompressionType) -> Result<String> {
        self.asked.get_ext_with_compression(compression)
    }

    fn compression_type(&self) -> Option<FileCompressionType> {
        self.asked.compression_type()
    }

    async fn infer_schema(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        files: &[ObjectMeta],
    ) -> Result<SchemaRef> {
        let counted =
            CountedStore { store: Arc::clone(store), limits: self.limits(state), is_sample: true };
        let store: Arc<dyn ObjectStore> = Arc::new(counted);
        match self.plain.downcast_ref::<CsvFormat>() {
            Some(csv) => csv_schema(csv, state, &store, files).await,
            None => self.plain.infer_schema(state, &store, files).await,
        }
    }

    async fn infer_stats(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        schema: SchemaRef,
        file: &ObjectMeta,
    ) -> Result<Statistics> {
        self.asked.infer_stats(state, store, schema, file).await
    }

    async fn create_physical_plan(
        &self,
        state: &dyn Session,
        config: FileScanConfig,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = self.plain.create_physical_plan(state, config).await?;
        let scan = plan.downcast_ref::<DataSourceExec>();
        let config = scan.and_then(|scan| scan.data_source().downcast_ref::<FileScanConfig>());
        let Some(config) = config else { return Ok(plan) };
        let source =
            CountedSource { source: Arc::clone(config.file_source()), limits: self.limits(state) };
        let config = FileScanConfigBuilder::from(config.clone())
            // A compressed file is read from its beginning.
            .with_file_compression_type(self.compression())
            .with_source(Arc::new(source));
        Ok(DataSourceExec::from_data_source(config.build()))
    }

    async fn create_writer_physical_plan(
        &self,
        input: Arc<dyn ExecutionPlan>,
        state: &dyn Session,
        config: FileSinkConfig,
        order: Option<LexRequirement>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.asked.create_writer_physical_plan(input, state, config, order).await
    }

    fn file_source(&self, schema: TableSchema) -> Arc<dyn FileSource> {
        self.plain.file_source(schema)
    }
}

/// What `CsvFormat::infer_schema` does, which loses its place in quotes from one chunk to the next.
async fn csv_schema(
    csv: &CsvFormat,
    state: &dyn Session,
    store: &Arc<dyn ObjectStore>,
    files: &[ObjectMeta],
) -> Result<SchemaRef> {
    let mut schemas = Vec::new();
    let mut records = SAMPLE_RECORDS;
    for file in files {
        let sample = async { Ok(store.get(&file.location).await?.bytes().await?) };
        let chunks = futures::stream::once(sample);
        let chunks = chunks.try_filter(|sample| std::future::ready(!sample.is_empty()));
        let read = csv.infer_schema_from_stream(state, records, chunks).await;
        let (schema, read) = read.map_err(|e| e.context(format!("in {}", file.location)))?;
        schemas.push(schema);
        records = records.saturating_sub(read);
        if records == 0 {
            break;
        }
    }
    Ok(Arc::new(Schema::try_merge(schemas)?))
}

/// DataFusion's scan of text files, of a store that counts their records.
#[derive(Clone)]
struct CountedSource {
    source: Arc<dyn FileSource>,
    limits: Limits,
}

impl CountedSource {
    fn with(&self, source: Arc<dyn FileSource>) -> Arc<dyn FileSource> {
        Arc::new(Self { source, limits: self.limits })
    }
}

impl FileSource for CountedSource {
    fn create_file_opener(
        &self,
        store: Arc<dyn ObjectStore>,
        config: &FileScanConfig,
        partition: usize,
    ) -> Result<Arc<dyn FileOpener>> {
        let store = CountedStore { store, limits: self.limits, is_sample: false };
        let config = FileScanConfigBuilder::from(config.clone())
            .with_file_compression_type(FileCompressionType::UNCOMPRESSED)
            .build();
        self.source.create_file_opener(Arc::new(store), &config, partition)
    }

    fn table_schema(&self) -> &TableSchema {
        self.source.table_schema()
    }

    fn with_batch_size(&self, batch_size: usize) -> Arc<dyn FileSource> {
        self.with(self.source.with_batch_size(batch_size))
    }

    fn try_pushdown_projection(
        &self,
        projection: &ProjectionExprs,
    ) -> Result<Option<Arc<dyn FileSource>>> {
        let source = self.source.try_pushdown_projection(projection)?;
        Ok(source.map(|source| self.with(source)))
    }

    fn projection(&self) -> Option<&ProjectionExprs> {
        self.source.projection()
    }

    fn metrics(&self) -> &ExecutionPlanMetricsSet {
        self.source.metrics()
    }

    fn file_type(&self) -> &str {
        self.source.file_type()
    }

    fn fmt_extra(&self, format: DisplayFormatType, f: &mut Formatter) -> fmt::Result {
        self.source.fmt_extra(format, f)
    }

    fn supports_repartitioning(&self) -> bool {
        self.source.supports_repartitioning()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.source.apply_expressions(f)
    }
}

/// How the files of one table are read.
#[derive(Clone, Copy, Debug)]
struct Limits {
    compression: FileCompressionType,
    shape: Shape,
    /// What DataFusion takes in before it hands on.
    batch_records: usize,
    batch_bytes: usize,
}

/// What ends a record.
#[derive(Clone, Copy, Debug)]
enum Shape {
    /// A newline that is not within quotes.
    Csv { delimiter: u8, quote: u8, escape: Option<u8> },
    /// The bracket that closes it, within so many others.
    Json { outer: usize },
    /// A newline: of parts of files, which begin anywhere.
    Lines,
}

/// A store whose text files come unpacked, or not at all.
#[derive(Debug)]
struct CountedStore {
    store: Arc<dyn ObjectStore>,
    limits: Limits,
    /// Only the records that columns are told from.
    is_sample: bool,
}

impl Display for CountedStore {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for CountedStore {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> StoreResult<GetResult> {
        let is_part = options.range.is_some();
        if options.head {
            return self.store.get_opts(location, options).await;
        }
        let mut result = self.store.get_opts(location, options).await?;
        let compression = self.limits.compression;
        let bytes: BoxStream<'static, Result<Bytes>> = match result.payload {
            GetResultPayload::File(mut file, _) => {
                file.seek(SeekFrom::Start(result.range.start)).map_err(unread)?;
                let part = file.take(result.range.end - result.range.start);
                let reader = compression.convert_read(part).map_err(unread)?;
                futures::stream::iter(Reads(Some(reader))).boxed()
            }
            GetResultPayload::Stream(body) => {
                let body = body.map_err(DataFusionError::from).boxed();
                compression.convert_stream(body).map_err(unread)?
            }
        };
        let shape = if is_part { Shape::Lines } else { self.limits.shape };
        let mut records = Records::new(shape, &self.limits, location);
        let is_sample = self.is_sample;
        let counted = bytes.map(move |bytes| {
            let bytes = bytes.map_err(unread)?;
            let end = records.count(&bytes)?;
            let is_enough = records.records >= SAMPLE_RECORDS || records.bytes >= SAMPLE_BYTES;
            if is_sample && is_enough && end > 0 {
                return Ok(ControlFlow::Break(bytes.slice(..end)));
            }
            Ok(ControlFlow::Continue(bytes))
        });
        result.payload = GetResultPayload::Stream(until_break(counted).boxed());
        // Of how many bytes is not known, and whoever collects them would reserve so many.
        result.range = 0..0;
        Ok(result)
    }

    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> StoreResult<PutResult> {
        self.store.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> StoreResult<Box<dyn MultipartUpload>> {
        self.store.put_multipart_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, StoreResult<Path>>,
    ) -> BoxStream<'static, StoreResult<Path>> {
        self.store.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, StoreResult<ObjectMeta>> {
        self.store.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> StoreResult<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> StoreResult<()> {
        self.store.copy_opts(from, to, options).await
    }
}

/// What a reader gives, to its end or its first error.
struct Reads(Option<Box<dyn Read + Send>>);

impl Iterator for Reads {
    type Item = Result<Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut bytes = Vec::with_capacity(READ_BYTES);
        let read = self.0.as_mut()?.take(READ_BYTES as u64).read_to_end(&mut bytes);
        if read.is_err() || bytes.is_empty() {
            self.0 = None;
        }
        match read {
            Ok(0) => None,
            Ok(_) => Some(Ok(bytes.into())),
            Err(error) => Some(Err(error.into())),
        }
    }
}

/// The bytes up to what breaks, and those.
fn until_break(
    bytes: impl futures::Stream<Item = StoreResult<ControlFlow<Bytes, Bytes>>> + Send + 'static,
) -> impl futures::Stream<Item = StoreResult<Bytes>> + Send + 'static {
    bytes.scan(false, |is_done, bytes| {
        let before = *is_done;
        *is_done |= matches!(bytes, Ok(ControlFlow::Break(_)));
        let bytes = bytes.map(|(ControlFlow::Break(bytes) | ControlFlow::Continue(bytes))| bytes);
        std::future::ready((!before).then_some(bytes))
    })
}

fn unread(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Generic { store: "text file", source: error.into() }
}

/// Counts the records of bytes that come by.
struct Records {
    shape: Shape,
    place: Place,
    /// Before the bytes at hand.
    last: u8,
    /// JSON's open brackets.
    depth: usize,
    /// All so far.
    records: usize,
    bytes: usize,
    /// Since the last record's end.
    record_bytes: usize,
    /// Of what may be one batch.
    batch: (usize, usize),
    limits: (usize, usize),
    file: String,
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Plain,
    Quoted,
    /// After a quote within quotes, which is the last or the first of two.
    Closing,
    /// After what takes the next byte's meaning.
    Escaped,
}

impl Records {
    fn new(shape: Shape, limits: &Limits, file: &Path) -> Self {
        Self {
            shape,
            place: Place::Plain,
            last: b'\n',
            depth: 0,
            records: 0,
            bytes: 0,
            record_bytes: 0,
            batch: (0, 0),
            limits: (limits.batch_records, limits.batch_bytes),
            file: file.to_string(),
        }
    }

    /// Where the last record of `bytes` ends, or 0.
    fn count(&mut self, bytes: &[u8]) -> StoreResult<usize> {
        let mut end = 0;
        let mut at = 0;
        while let Some(next) = self.next_end(&bytes[at..]) {
            at += next;
            self.last = bytes[at - 1];
            self.ended(at - end)?;
            end = at;
        }
        self.bytes += bytes.len();
        self.last = bytes.last().copied().unwrap_or(self.last);
        self.lengthen(bytes.len() - end)?;
        Ok(end)
    }

    fn ended(&mut self, bytes: usize) -> StoreResult<()> {
        self.lengthen(bytes)?;
        self.record_bytes = 0;
        self.records += 1;
        self.batch.0 += 1;
        if self.batch.0 >= self.limits.0 {
            self.batch = (0, 0);
        }
        Ok(())
    }

    fn lengthen(&mut self, bytes: usize) -> StoreResult<()> {
        self.record_bytes += bytes;
        self.batch.1 += bytes;
        if self.record_bytes > RECORD_BYTES {
            // No memory helps.
            let message = format!(
                "{}: record {} has no end within {} MiB; is a quote not closed?",
                self.file,
                self.records + 1,
                RECORD_BYTES >> 20
            );
            let error = EngineError::execution(SqlState::BadCopyFileFormat, message);
            return Err(unread(DataFusionError::from(error)));
        }
        if self.batch.1 > self.limits.1 {
            return Err(self.too_much(format!(
                "{} records have more than {} MiB, a quarter of the memory; load it into a table",
                self.batch.0 + 1,
                self.limits.1 >> 20
            )));
        }
        Ok(())
    }

    fn too_much(&self, what: String) -> Error {
        let error = DataFusionError::ResourcesExhausted(format!("{}: {what}", self.file));
        unread(error)
    }

    /// The offset after the next record's end.
    fn next_end(&mut self, bytes: &[u8]) -> Option<usize> {
        match self.shape {
            Shape::Lines => memchr::memchr(b'\n', bytes).map(|at| at + 1),
            Shape::Csv { delimiter, quote, escape } => {
                self.next_csv_end(bytes, delimiter, quote, escape)
            }
            Shape::Json { outer } => self.next_json_end(bytes, outer),
        }
    }

    fn next_csv_end(
        &mut self,
        bytes: &[u8],
        delimiter: u8,
        quote: u8,
        escape: Option<u8>,
    ) -> Option<usize> {
        let mut at = 0;
        while at < bytes.len() {
            match self.place {
                Place::Plain => {
                    at += memchr::memchr3(quote, b'\n', b'\r', &bytes[at..])?;
                    if bytes[at] != quote {
                        return Some(at + 1);
                    }
                    // Within a field it is a letter like others.
                    let before = if at == 0 { self.last } else { bytes[at - 1] };
                    if before == delimiter || matches!(before, b'\n' | b'\r') {
                        self.place = Place::Quoted;
                    }
                    at += 1;
                }
                Place::Quoted => {
                    at += memchr::memchr2(quote, escape.unwrap_or(quote), &bytes[at..])?;
                    self.place = if bytes[at] == quote { Place::Closing } else { Place::Escaped };
                    at += 1;
                }
                Place::Closing if bytes[at] == quote => {
                    self.place = Place::Quoted;
                    at += 1;
                }
                Place::Closing => self.place = Place::Plain,
                Place::Escaped => {
                    self.place = Place::Quoted;
                    at += 1;
                }
            }
        }
        None
    }

    fn next_json_end(&mut self, bytes: &[u8], outer: usize) -> Option<usize> {
        let mut at = 0;
        while at < bytes.len() {
            match self.place {
                Place::Quoted => {
                    at += memchr::memchr2(b'"', b'\\', &bytes[at..])?;
                    self.place = if bytes[at] == b'"' { Place::Plain } else { Place::Escaped };
                }
                Place::Escaped => self.place = Place::Quoted,
                Place::Plain | Place::Closing => match bytes[at] {
                    b'"' => self.place = Place::Quoted,
                    b'{' | b'[' => self.depth += 1,
                    b'}' | b']' => {
                        self.depth = self.depth.saturating_sub(1);
                        if self.depth <= outer {
                            return Some(at + 1);
                        }
                    }
                    _ => {}
                },
            }
            at += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CSV: Shape = Shape::Csv { delimiter: b',', quote: b'"', escape: None };
    const JSON: Shape = Shape::Json { outer: 0 };

    fn limits(shape: Shape) -> Limits {
        let compression = FileCompressionType::UNCOMPRESSED;
        Limits { compression, shape, batch_records: 2, batch_bytes: 10 }
    }

    /// How many records each part of a text ends, however it is cut.
    fn counted(shape: Shape, text: &str) -> usize {
        let all = |cut: usize| {
            let limits = Limits { batch_bytes: usize::MAX, ..limits(shape) };
            let mut records = Records::new(shape, &limits, &Path::from("f"));
            for part in text.as_bytes().chunks(cut) {
                records.count(part).unwrap();
            }
            assert_eq!(records.bytes, text.len());
            records.records
        };
        let whole = all(text.len());
        (1..text.len()).for_each(|cut| assert_eq!(all(cut), whole, "in parts of {cut}"));
        whole
    }

    #[test]
    fn records_end_where_the_format_says() {
        assert_eq!(counted(CSV, "a,b\n1,2\n"), 2);
        assert_eq!(counted(CSV, "a,b\n\"1\n\",2\n"), 2);
        assert_eq!(counted(CSV, "a,b\n\"1\"\"\n\",2\n3"), 2);
        assert_eq!(counted(CSV, "5\" pipe,x\n6\",y\n"), 2);
        assert_eq!(counted(CSV, "\"a\nb\n"), 0);
        assert_eq!(counted(Shape::Lines, "\"a\nb\n"), 2);
        let escaped = Shape::Csv { delimiter: b';', quote: b'"', escape: Some(b'\\') };
        assert_eq!(counted(escaped, "1;\"a\\\"\nb\"\n2;c\n"), 2);
        assert_eq!(counted(JSON, "{\"a\":{\"b\":[1]}}\n{\"a\":\"}\\\"}\"}"), 2);
        assert_eq!(counted(JSON, "{\n\"a\":\n1"), 0);
        assert_eq!(counted(Shape::Json { outer: 1 }, "[{\"a\":{}},{\"a\":1}]"), 3);
    }

    #[test]
    fn more_than_a_batch_may_have_is_refused() {
        let mut records = Records::new(CSV, &limits(CSV), &Path::from("f.csv"));
        for _ in 0..10 {
            records.count(b"1234\n").unwrap();
        }
        let error = records.count(b"1234\n567890\n").unwrap_err().to_string();
        assert!(error.contains("f.csv: 2 records have more than"), "{error}");
    }
}
