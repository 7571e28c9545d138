//! Rows to data files: split by partition, sorted, cut, encoded, uploaded.
//!
//! A [`TableWriter`] is shared by the threads of a load. Each thread pushes batches; the thread
//! whose push fills a partition's buffer sorts, encodes and uploads it itself, while the others go
//! on decoding. So there is no queue to bound: memory is the buffers (a fixed share of the budget)
//! plus one flush per thread.
//!
//! # Invariants
//! - A data file holds one partition and never changes once written; its name is unique.
//! - Rows of a file are sorted by the table's clustering columns (NULLs last), ties in arrival order.
//! - Nothing here touches the log: until a commit names the files they are garbage.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::{
    Array, ArrayRef, AsArray, Float32Array, Float64Array, RecordBatch, UInt32Array,
};
use arrow::compute::{interleave_record_batch, take_record_batch};
use arrow::datatypes::{Field, Float32Type, Float64Type, Schema, SchemaRef};
use arrow::row::{RowConverter, SortField};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use deltalake_core::kernel::Add;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::file::metadata::KeyValue;
use tokio::runtime::Handle;

use crate::checksums::{PageLengths, Summing, TAIL_TAG, UNITS_KEY};
use crate::encodings::{ROW_GROUP_ROWS, sort_order, writer_properties};
use crate::error::{Result, TableError};
use crate::id_domain::{IdColumns, IdSample};
use crate::index::{IndexBuilder, index_path};
use crate::key_columns::without_repeats;
use crate::lake::Lake;
use crate::layout::Layout;
use crate::lock::AtWork;
use crate::properties::{CRC32_TAG, ID_MARKS_TAG, ID_QUANTILES_TAG, IDS_TAG};
use crate::stats;
use crate::upload_sink::{PART_BYTES, UploadSink};

/// Buffered Arrow bytes at which a partition becomes a file. Rows shrink 3 to 8 times in Parquet, so
/// this gives files of 128 to 340 MB.
const FILE_BUFFER_BYTES: usize = 1 << 30;
/// Where in the input a batch came from; files keep this order when they are not clustered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sequence {
    pub input: usize,
    pub unit: usize,
    pub batch: usize,
}

/// Collects rows from several threads into data files.
pub(crate) struct TableWriter {
    layout: Layout,
    partition_indices: Vec<usize>,
    file_indices: Vec<usize>,
    sort_by: Vec<String>,
    ids: IdColumns,
    store: Arc<dyn ObjectStore>,
    runtime: Handle,
    buffer_budget: usize,
    now_millis: i64,
    state: Mutex<State>,
    /// Nobody wants the files any more.
    stopped: AtomicBool,
    /// Bytes of finished files, for progress.
    pub bytes_written: AtomicU64,
    /// Rows sorted and encoded, or left out, for progress.
    pub rows_written: Arc<AtomicU64>,
    /// Rows left out because another of their key came with them.
    pub repeated_rows: AtomicU64,
}

#[derive(Default)]
struct State {
    partitions: HashMap<Vec<Option<String>>, Pending>,
    bytes: usize,
    done: Vec<Add>,
}

#[derive(Default)]
struct Pending {
    batches: Vec<(Sequence, RecordBatch)>,
    bytes: usize,
}

impl TableWriter {
    /// `buffer_budget`: bytes of Arrow data held before a file is cut.
    pub fn new(
        lake: &Lake,
        layout: Layout,
        runtime: Handle,
        buffer_budget: usize,
        now_millis: i64,
    ) -> Self {
        let is_partition = |f: &Field| layout.partition_columns.contains(f.name());
        let fields = layout.schema.fields();
        let partition_indices = layout
            .partition_columns
            .iter()
            .filter_map(|name| layout.schema.index_of(name).ok())
            .collect();
        let file_indices: Vec<usize> =
            (0..fields.len()).filter(|i| !is_partition(&fields[*i])).collect();
        let given = Arc::new(Schema::new(
            file_indices.iter().map(|i| Arc::clone(&fields[*i])).collect::<Vec<_>>(),
        ));
        let ids = IdColumns::new(lake, &layout.id_domains, &given);
        Self {
            sort_by: layout.sort_by(),
            ids,
            layout,
            partition_indices,
            file_indices,
            store: Arc::clone(lake.store()),
            runtime,
            buffer_budget,
            now_millis,
            state: Mutex::default(),
            stopped: AtomicBool::new(false),
            bytes_written: AtomicU64::new(0),
            rows_written: Arc::default(),
            repeated_rows: AtomicU64::new(0),
        }
    }

    /// The columns of ids that rows get.
    pub fn ids(&self) -> &IdColumns {
        &self.ids
    }

    fn file_schema(&self) -> &SchemaRef {
        self.ids.schema()
    }

    /// Adds rows; may write a file before it returns.
    ///
    /// `batch` has the table's schema. Called from threads outside the async runtime.
    pub fn push(&self, sequence: Sequence, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        for (key, rows) in self.split(batch)? {
            if let Some((key, pending)) = self.buffer(sequence, key, rows) {
                self.flush(&key, pending)?;
            }
        }
        Ok(())
    }

    /// Writes one of the remaining buffers; false when there is none left.
    pub fn flush_one(&self) -> Result<bool> {
        let next = {
            let mut state = self.lock();
            take_largest(&mut state)
        };
        match next {
            Some((key, pending)) => self.flush(&key, pending).map(|()| true),
            None => Ok(false),
        }
    }

    /// The files written, as Delta actions. Call after [`Self::flush_one`] has returned false.
    pub fn take_files(&self) -> Vec<Add> {
        let mut done = self.take_files_as_written();
        done.sort_by(|a, b| a.path.cmp(&b.path));
        done
    }

    /// The same in the order in which they were completed.
    pub fn take_files_as_written(&self) -> Vec<Add> {
        std::mem::take(&mut self.lock().done)
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// No file is completed from now on; what is half done is dropped soon.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in another thread of the load ends the load; the state is not used after it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn buffer(
        &self,
        sequence: Sequence,
        key: Vec<Option<String>>,
        rows: RecordBatch,
    ) -> Option<(Vec<Option<String>>, Pending)> {
        let bytes = rows.get_array_memory_size();
        let mut state = self.lock();
        state.bytes += bytes;
        let total = state.bytes;
        let pending = state.partitions.entry(key.clone()).or_default();
        pending.batches.push((sequence, rows));
        pending.bytes += bytes;
        if pending.bytes >= FILE_BUFFER_BYTES.min(self.buffer_budget) {
            let pending = state.partitions.remove(&key)?;
            state.bytes -= pending.bytes;
            return Some((key, pending));
        }
        if total >= self.buffer_budget {
            return take_largest(&mut state);
        }
        None
    }

    /// Splits a batch by partition value; the partition columns are dropped from the parts.
    fn split(&self, batch: &RecordBatch) -> Result<Vec<(Vec<Option<String>>, RecordBatch)>> {
        let arrow = |e| TableError::arrow("splitting rows by partition", e);
        let file_rows = batch.project(&self.file_indices).map_err(arrow)?;
        if self.partition_indices.is_empty() {
            return Ok(vec![(Vec::new(), file_rows)]);
        }
        let keys: Vec<&ArrayRef> =
            self.partition_indices.iter().map(|i| batch.column(*i)).collect();
        let groups = group_rows(&keys)?;
        groups
            .into_iter()
            .map(|rows| {
                let first = rows[0] as usize;
                let key = keys
                    .iter()
                    .zip(&self.partition_indices)
                    .map(|(a, i)| partition_value(a, first, self.layout.schema.field(*i).name()))
                    .collect::<Result<Vec<_>>>()?;
                let part = if rows.len() == batch.num_rows() {
                    file_rows.clone()
                } else {
                    take_record_batch(&file_rows, &UInt32Array::from(rows)).map_err(arrow)?
                };
                Ok((key, part))
            })
            .collect()
    }

    fn flush(&self, key: &[Option<String>], pending: Pending) -> Result<()> {
        let mut batches = pending.batches;
        batches.sort_by_key(|(sequence, _)| *sequence);
        let batches: Vec<RecordBatch> = batches.into_iter().map(|(_, b)| b).collect();
        let rows_of = |batches: &[RecordBatch]| batches.iter().map(RecordBatch::num_rows).sum();
        let rows: usize = rows_of(&batches);
        let batches = if self.layout.primary_key.is_empty() {
            batches
        } else {
            without_repeats(batches, &self.layout, &self.repeated_rows)?
        };
        let kept: usize = rows_of(&batches);
        self.rows_written.fetch_add((rows - kept) as u64, Ordering::Relaxed);
        let batches = self.ids.append(batches, &self.runtime)?;
        // Each of these steps takes a while, those that wait for a disk too.
        if self.is_stopped() {
            return Ok(());
        }
        let order = match self.sort_by.as_slice() {
            [] => None,
            columns => Some(sort_order(&batches, columns)?),
        };
        if self.is_stopped() {
            return Ok(());
        }
        let refs: Vec<&RecordBatch> = batches.iter().collect();
        let in_order: Box<dyn Iterator<Item = Result<RecordBatch>>> = match &order {
            None => Box::new(batches.iter().cloned().map(Ok)),
            Some(order) => Box::new(order.chunks(ENCODE_ROWS).map(|chunk| {
                interleave_record_batch(&refs, chunk)
                    .map_err(|e| TableError::arrow("sorting rows", e))
            })),
        };
        let mut file = None;
        for rows in in_order {
            if self.is_stopped() {
                return Ok(());
            }
            let rows = rows?;
            let file = match &mut file {
                Some(file) => file,
                None => file.insert(self.open_file(key, &batches, &rows)?),
            };
            file.write(&rows)?;
            self.rows_written.fetch_add(rows.num_rows() as u64, Ordering::Relaxed);
        }
        match file {
            Some(file) if !self.is_stopped() => self.close_file(file),
            _ => Ok(()),
        }
    }

    /// Starts a data file of one partition. `sample` holds rows like those to come, of which `first` are written first.
    pub(crate) fn open_file(
        &self,
        key: &[Option<String>],
        sample: &[RecordBatch],
        first: &RecordBatch,
    ) -> Result<DataFileWriter> {
        let mut relative = String::new();
        for (column, value) in self.layout.partition_columns.iter().zip(key) {
            relative.push_str(&partition_folder(column, value.as_deref()));
            relative.push('/');
        }
        relative.push_str(&format!("part-{}.parquet", uuid::Uuid::new_v4()));
        let location =
            crate::names::store_path(&self.layout.table, &self.layout.prefix, &relative)?;
        let upload = self
            .runtime
            .block_on(self.store.put_multipart(&location))
            .map_err(|e| TableError::store(format!("writing {location}"), e))?;
        let pages = PageLengths::default();
        let sink = UploadSink {
            upload: Some(upload),
            buffer: Vec::with_capacity(PART_BYTES + (1 << 20)),
            runtime: self.runtime.clone(),
            bytes: 0,
            sums: Summing::new(pages.clone()),
            _at_work: AtWork::begin(),
        };
        let properties = writer_properties(self.file_schema(), &self.sort_by, sample, first);
        let options = ArrowWriterOptions::new()
            .with_properties(properties)
            .with_page_store_factory(Arc::new(pages));
        let schema = Arc::clone(self.file_schema());
        let writer = ArrowWriter::try_new_with_options(sink, schema, options)
            .map_err(|e| TableError::Parquet { file: relative.clone(), source: e })?;
        let mut file = DataFileWriter {
            index: IndexBuilder::new(&self.layout.indexes, self.file_schema()),
            ids: self.ids.sample(),
            relative,
            writer,
            row_groups: 0,
            partition_values: self
                .layout
                .partition_columns
                .iter()
                .cloned()
                .zip(key.iter().cloned())
                .collect(),
        };
        file.sync()?;
        Ok(file)
    }

    /// Completes a data file and remembers it for the commit.
    pub(crate) fn close_file(&self, file: DataFileWriter) -> Result<()> {
        let DataFileWriter { relative, mut writer, partition_values, index, ids, .. } = file;
        let parquet = |e| TableError::Parquet { file: relative.clone(), source: e };
        let io = |e| TableError::io(format!("writing {relative}"), e);
        writer.flush().map_err(parquet)?;
        writer.sync().map_err(io)?;
        let units = writer.inner_mut().sums.begin_tail();
        writer.append_key_value_metadata(KeyValue::new(UNITS_KEY.to_owned(), units));
        let metadata = writer.finish().map_err(parquet)?;
        let sink = writer.inner_mut();
        sink.finish().map_err(io)?;
        let (size, sums) = (sink.bytes, sink.sums.finish());
        let mut tags = HashMap::from([
            (CRC32_TAG.to_owned(), Some(format!("{:08x}", sums.crc32))),
            (TAIL_TAG.to_owned(), Some(sums.tail)),
        ]);
        if let Some(sources) = self.ids.tag() {
            tags.insert(IDS_TAG.to_owned(), Some(sources));
        }
        if let Some(marks) = self.ids.marks(&self.runtime) {
            tags.insert(ID_MARKS_TAG.to_owned(), Some(marks));
        }
        if let Some(quantiles) = ids.tag() {
            tags.insert(ID_QUANTILES_TAG.to_owned(), Some(quantiles));
        }
        let add = Add {
            path: relative.clone(),
            size: i64::try_from(size).unwrap_or(i64::MAX),
            partition_values,
            data_change: true,
            modification_time: self.now_millis,
            stats: Some(stats::delta_stats(&metadata, self.file_schema())),
            tags: Some(tags),
            ..Add::default()
        };
        self.bytes_written.fetch_add(size, Ordering::Relaxed);
        // Remembered before its index is there: without one, who failed still knows what to delete.
        self.lock().done.push(add);
        match index.filter(|_| !self.is_stopped()) {
            Some(index) => self.put_index(&relative, index.finish(&relative, size)?),
            None => Ok(()),
        }
    }
}

impl TableWriter {
    fn put_index(&self, relative: &str, bytes: Vec<u8>) -> Result<()> {
        let location = index_path(&self.layout.table, &self.layout.prefix, relative)?;
        self.bytes_written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.runtime
            .block_on(self.store.put(&location, bytes.into()))
            .map(drop)
            .map_err(|e| TableError::store(format!("writing {location}"), e))
    }
}

/// Rows handed to the encoder at a time: small enough that a gathered batch stays in cache.
pub(crate) const ENCODE_ROWS: usize = 16_384;

/// A data file being written.
pub(crate) struct DataFileWriter {
    relative: String,
    writer: ArrowWriter<UploadSink>,
    /// Those that the sink has got to the last byte.
    row_groups: usize,
    partition_values: HashMap<String, Option<String>>,
    index: Option<IndexBuilder>,
    ids: IdSample,
}

impl DataFileWriter {
    pub fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        let rows = with_one_nan(rows)?;
        if let Some(index) = &mut self.index {
            index.push(&rows)?;
        }
        self.ids.look_at(&rows);
        // At most one row group is written at a time, see `Summing`.
        let mut first = 0;
        while first < rows.num_rows() {
            let part = rows.slice(first, ROW_GROUP_ROWS.min(rows.num_rows() - first));
            self.writer
                .write(&part)
                .map_err(|e| TableError::Parquet { file: self.relative.clone(), source: e })?;
            if self.writer.flushed_row_groups().len() > self.row_groups {
                self.sync()?;
            }
            first += part.num_rows();
        }
        Ok(())
    }

    /// The sink gets all that was written.
    fn sync(&mut self) -> Result<()> {
        self.row_groups = self.writer.flushed_row_groups().len();
        self.writer.sync().map_err(|e| TableError::io(format!("writing {}", self.relative), e))
    }

    /// Bytes encoded so far, for cutting files.
    pub fn bytes(&self) -> usize {
        self.writer.bytes_written() + self.writer.in_progress_size()
    }
}

/// Rows whose NaN have one form. Processors and other writers set signs, and whoever compares bits would
/// see several: a query relies on it that our files have one.
fn with_one_nan(rows: &RecordBatch) -> Result<RecordBatch> {
    let mut columns = rows.columns().to_vec();
    for column in &mut columns {
        if let Some(floats) = column.as_primitive_opt::<Float64Type>() {
            let nan = f64::NAN.abs();
            let is_other = |x: &f64| x.is_nan() && x.to_bits() != nan.to_bits();
            if floats.values().iter().any(is_other) {
                let plain: Float64Array = floats.unary(|x| if x.is_nan() { nan } else { x });
                *column = Arc::new(plain);
            }
        } else if let Some(floats) = column.as_primitive_opt::<Float32Type>() {
            let nan = f32::NAN.abs();
            let is_other = |x: &f32| x.is_nan() && x.to_bits() != nan.to_bits();
            if floats.values().iter().any(is_other) {
                let plain: Float32Array = floats.unary(|x| if x.is_nan() { nan } else { x });
                *column = Arc::new(plain);
            }
        }
    }
    RecordBatch::try_new(rows.schema(), columns)
        .map_err(|e| TableError::arrow("writing NaN in one form", e))
}

fn take_largest(state: &mut State) -> Option<(Vec<Option<String>>, Pending)> {
    let key = state
        .partitions
        .iter()
        .max_by(|a, b| (a.1.bytes, b.0).cmp(&(b.1.bytes, a.0)))
        .map(|(k, _)| k.clone())?;
    let pending = state.partitions.remove(&key)?;
    state.bytes -= pending.bytes;
    Some((key, pending))
}

/// Row numbers by distinct value of `keys`, groups in order of first appearance.
fn group_rows(keys: &[&ArrayRef]) -> Result<Vec<Vec<u32>>> {
    let arrow = |e| TableError::arrow("splitting rows by partition", e);
    let fields = keys.iter().map(|k| SortField::new(k.data_type().clone())).collect();
    let converter = RowConverter::new(fields).map_err(arrow)?;
    let columns: Vec<ArrayRef> = keys.iter().map(|k| Arc::clone(k)).collect();
    let rows = converter.convert_columns(&columns).map_err(arrow)?;
    let mut groups: Vec<Vec<u32>> = Vec::new();
    let mut index: HashMap<&[u8], usize> = HashMap::new();
    let all: Vec<_> = rows.iter().collect();
    let mut last: Option<(&[u8], usize)> = None;
    for (at, row) in all.iter().enumerate() {
        let bytes: &[u8] = row.as_ref();
        let group = match last {
            Some((previous, group)) if previous == bytes => group,
            _ => *index.entry(bytes).or_insert_with(|| {
                groups.push(Vec::new());
                groups.len() - 1
            }),
        };
        groups[group].push(at as u32);
        last = Some((bytes, group));
    }
    Ok(groups)
}

/// A partition value as the Delta log spells it; `None` is NULL.
fn partition_value(array: &ArrayRef, row: usize, column: &str) -> Result<Option<String>> {
    if array.is_null(row) {
        return Ok(None);
    }
    let options = FormatOptions::default();
    let text = ArrayFormatter::try_new(array.as_ref(), &options)
        .map_err(|e| TableError::arrow("reading a partition value", e))?
        .value(row)
        .to_string();
    if text.is_empty() {
        // The protocol reads an empty partition value as NULL: storing one would change it.
        return Err(TableError::Invalid(format!(
            "partition column `{column}` holds an empty string, which Delta cannot tell from NULL; \
             load it as NULL or partition by another column"
        )));
    }
    Ok(Some(text))
}

/// `column=value` with anything unusual replaced: the log holds the real value, the folder is for people.
fn partition_folder(column: &str, value: Option<&str>) -> String {
    let tidy = |text: &str| -> String {
        text.chars()
            .take(64)
            .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' })
            .collect()
    };
    match value {
        Some(value) => format!("{}={}", tidy(column), tidy(value)),
        None => format!("{}=__HIVE_DEFAULT_PARTITION__", tidy(column)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use object_store::{MultipartUpload, PutPayload, PutResult, UploadPart};

    use super::*;

    #[test]
    fn nan_is_written_in_one_form() {
        let floats = Float64Array::from(vec![Some(-f64::NAN.abs()), None, Some(-0.0), Some(1.0)]);
        let singles = Float32Array::from(vec![-f32::NAN.abs(), 0.0, 1.0, f32::NAN.abs()]);
        let columns: [(&str, ArrayRef); 2] = [("x", Arc::new(floats)), ("f", Arc::new(singles))];
        let rows = with_one_nan(&RecordBatch::try_from_iter(columns).unwrap()).unwrap();
        let floats = rows.column(0).as_primitive::<Float64Type>();
        let singles = rows.column(1).as_primitive::<Float32Type>();
        assert_eq!(floats.value(0).to_bits(), f64::NAN.abs().to_bits());
        assert!(floats.is_null(1) && floats.value(2).is_sign_negative());
        assert_eq!(singles.value(0).to_bits(), singles.value(3).to_bits());
    }

    #[derive(Debug)]
    struct SlowToAbort(Arc<AtomicBool>);

    #[async_trait::async_trait]
    impl MultipartUpload for SlowToAbort {
        fn put_part(&mut self, _: PutPayload) -> UploadPart {
            unreachable!("nothing is sent")
        }

        async fn complete(&mut self) -> object_store::Result<PutResult> {
            unreachable!("it is given up")
        }

        async fn abort(&mut self) -> object_store::Result<()> {
            tokio::time::sleep(Duration::from_millis(50)).await;
            self.0.store(true, Ordering::Relaxed);
            Ok(())
        }
    }

    #[test]
    fn a_file_given_up_is_gone_when_its_writer_is() {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let gone = Arc::new(AtomicBool::new(false));
        let sink = UploadSink {
            upload: Some(Box::new(SlowToAbort(Arc::clone(&gone)))),
            buffer: Vec::new(),
            runtime: runtime.handle().clone(),
            bytes: 0,
            sums: Summing::new(PageLengths::default()),
            _at_work: AtWork::begin(),
        };
        drop(sink);
        assert!(gone.load(Ordering::Relaxed));
    }
}
