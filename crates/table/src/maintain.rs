//! Keeping a table tidy: compact small files, check what is there.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::{SortOptions, interleave_record_batch};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::row::{OwnedRow, RowConverter, Rows, SortField};
use deltalake_core::protocol::DeltaOperation;
use object_store::ObjectStoreExt;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::errors::ParquetError;
use tokio::runtime::Handle;
use uplake_objectio::Store;

use crate::columns::fit;
use crate::commit::{self, Change, check_removable, remove_action};
use crate::data_file::DataFile;
use crate::encodings::{ROW_GROUP_ROWS, sort_order};
use crate::error::{Result, TableError};
use crate::id_domain::{IdColumns, IdDomainSpec, LostIds};
use crate::int96::reader_metadata;
use crate::lake::Lake;
use crate::layout::Layout;
use crate::reindex::check_index;
use crate::sealed::{DamagedCommit, damaged_commits};
use crate::snapshot::Snapshot;
use crate::store_file::StoreFile;
use crate::thread::{on_thread, spawn_paid};
use crate::unpanicked::{reason, unpanicked};
use crate::write::{ENCODE_ROWS, TableWriter};

/// A file below this is worth merging with others.
const SMALL_FILE_BYTES: u64 = 128 << 20;
/// Compaction cuts files here.
const TARGET_FILE_BYTES: usize = 256 << 20;
/// Bytes of a file read at a time for its checksum.
const CHECK_READ_BYTES: u64 = 8 << 20;
/// Rows of a file read at a time while merging.
const MERGE_BATCH_ROWS: usize = 8192;

/// How to compact.
#[derive(Clone, Debug)]
pub struct CompactOptions {
    /// Threads; each merges one partition.
    pub threads: usize,
    /// The clock: milliseconds since 1970, UTC.
    pub now_millis: i64,
}

/// What compaction did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompactSummary {
    /// The commit, or `None` if there was nothing to do.
    pub version: Option<u64>,
    /// Files merged.
    pub files_before: usize,
    /// Files written instead.
    pub files_after: usize,
    /// Bytes before.
    pub bytes_before: u64,
    /// Bytes after.
    pub bytes_after: u64,
}

/// Merges small files, and files of one partition whose sort ranges overlap, into sorted large ones.
///
/// Rows do not change. Appends that commit meanwhile are kept.
///
/// # Errors
/// [`TableError::Conflict`] if someone else replaced one of the files meanwhile.
pub async fn compact(
    lake: &Lake,
    base: &Snapshot,
    options: &CompactOptions,
) -> Result<CompactSummary> {
    let replaced = lake.replaced_ids(base).await?;
    let groups = compaction_groups(base, &replaced);
    if groups.is_empty() {
        return Ok(CompactSummary::default());
    }
    let lock = lake.lock_for_writing(base.table()).await?;
    let done = compact_groups(lake, base, groups, &replaced, options).await;
    lock.release().await;
    done
}

async fn compact_groups(
    lake: &Lake,
    base: &Snapshot,
    groups: Vec<Vec<DataFile>>,
    replaced: &[String],
    options: &CompactOptions,
) -> Result<CompactSummary> {
    let layout = Layout::of(base);
    let store = Arc::clone(lake.storage());
    let sort_by = layout.sort_by();
    let writer = Arc::new(TableWriter::new(lake, layout, Handle::current(), 0, options.now_millis));
    let merged: Vec<DataFile> = groups.iter().flatten().cloned().collect();
    check_removable(base.table(), &merged)?;
    writer.ids().keep_ids_of(&merged, replaced).await?;
    let (work, threads) = (Arc::clone(&writer), options.threads);
    let schema = file_schema(base);
    let partition_columns = base.partition_columns().to_vec();
    let runtime = Handle::current();
    let result = on_thread(move || {
        let merge = Merge { writer: &work, store, runtime, schema, partition_columns, sort_by };
        merge.all(groups, threads)
    })
    .await;
    let mut adds = writer.take_files();
    if let Err(error) = result {
        commit::discard(lake, base.table(), &adds).await;
        return Err(error);
    }
    for add in &mut adds {
        add.data_change = false;
    }
    let mut summary = CompactSummary {
        version: None,
        files_before: merged.len(),
        files_after: adds.len(),
        bytes_before: merged.iter().map(|f| f.size).sum(),
        bytes_after: adds.iter().map(|a| a.size as u64).sum(),
    };
    let operation =
        DeltaOperation::Optimize { predicate: None, target_size: TARGET_FILE_BYTES as i64 };
    let change = Change {
        add: adds.clone(),
        remove: merged.iter().map(|f| remove_action(f, options.now_millis, false)).collect(),
        ..Change::nothing(operation, options.now_millis)
    };
    match commit::commit(lake, base, change).await {
        Ok(version) => {
            summary.version = Some(version);
            Ok(summary)
        }
        Err(error) => {
            commit::discard(lake, base.table(), &adds).await;
            Err(error.without_label(base.table()))
        }
    }
}

fn file_schema(base: &Snapshot) -> SchemaRef {
    let fields = base.schema().fields().iter();
    let kept: Vec<_> =
        fields.filter(|f| !base.partition_columns().contains(f.name())).cloned().collect();
    Arc::new(Schema::new(kept))
}

/// Per partition, the files worth merging. `replaced`: logs whose ids are made anew.
fn compaction_groups(base: &Snapshot, replaced: &[String]) -> Vec<Vec<DataFile>> {
    let mut partitions: BTreeMap<Vec<Option<String>>, Vec<DataFile>> = BTreeMap::new();
    for file in base.files() {
        let key = base
            .partition_columns()
            .iter()
            .map(|c| file.partition_values.get(c).cloned().flatten())
            .collect();
        partitions.entry(key).or_default().push(file.clone());
    }
    let sort_by = Layout::of(base).sort_by();
    // Ids of several logs are no use together, and ids of files that others wrote are not believed.
    let mixed = base.id_domains().iter().any(|spec| {
        let sources = base.files().iter().filter_map(|f| f.ids.get(&spec.column));
        sources.collect::<HashSet<_>>().len() > 1
    });
    let lacks_ids = |f: &DataFile| {
        let source = |spec: &IdDomainSpec| f.ids.get(&spec.column);
        let lacks = |spec| source(spec).is_none_or(|source| replaced.contains(source));
        mixed || base.id_domains().iter().any(lacks)
    };
    let lead = sort_by.first();
    partitions
        .into_values()
        .filter_map(|files| {
            let overlapping = lead.is_some_and(|column| ranges_overlap(&files, column));
            let chosen: Vec<DataFile> = if overlapping {
                files
            } else {
                let wanted = |f: &DataFile| f.size < SMALL_FILE_BYTES || lacks_ids(f);
                files.into_iter().filter(wanted).collect()
            };
            (chosen.len() > 1 || chosen.iter().any(lacks_ids)).then_some(chosen)
        })
        .collect()
}

/// Do the ranges of the leading sort column cross? Unknown ranges count as crossing.
fn ranges_overlap(files: &[DataFile], column: &str) -> bool {
    let mut ranges = Vec::with_capacity(files.len());
    for file in files {
        let Some(stats) = file.stats.as_deref() else { return true };
        let Ok(stats) = serde_json::from_str::<serde_json::Value>(stats) else { return true };
        let bound = |kind: &str| stats.get(kind)?.get(column).cloned();
        match (bound("minValues"), bound("maxValues")) {
            (Some(low), Some(high)) => ranges.push((low, high)),
            _ => return files.len() > 1,
        }
    }
    ranges.sort_by(|a, b| json_order(&a.0, &b.0));
    ranges.windows(2).any(|w| json_order(&w[1].0, &w[0].1).is_lt())
}

fn json_order(a: &serde_json::Value, b: &serde_json::Value) -> std::cmp::Ordering {
    match (a.as_i64(), b.as_i64()) {
        (Some(a), Some(b)) => return a.cmp(&b),
        _ => {
            if let (Some(a), Some(b)) = (a.as_f64(), b.as_f64()) {
                return a.total_cmp(&b);
            }
        }
    }
    a.as_str().cmp(&b.as_str())
}

/// Merges groups of files into new ones.
struct Merge<'a> {
    writer: &'a TableWriter,
    store: Arc<Store>,
    runtime: Handle,
    /// A file's columns without the ids.
    schema: SchemaRef,
    partition_columns: Vec<String>,
    sort_by: Vec<String>,
}

impl Merge<'_> {
    fn all(&self, groups: Vec<Vec<DataFile>>, threads: usize) -> Result<()> {
        let queue = Mutex::new(groups);
        let first_error = Mutex::new(None);
        let work = || {
            loop {
                let stop = first_error.lock().unwrap_or_else(PoisonError::into_inner).is_some();
                let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop();
                let Some(group) = next.filter(|_| !stop) else { return };
                if let Err(error) = self.group(&group) {
                    let mut slot = first_error.lock().unwrap_or_else(PoisonError::into_inner);
                    slot.get_or_insert(error);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads.max(1) {
                spawn_paid(scope, work);
            }
            work();
        });
        first_error.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    fn group(&self, files: &[DataFile]) -> Result<()> {
        let key: Vec<Option<String>> = self
            .partition_columns
            .iter()
            .map(|c| files[0].partition_values.get(c).cloned().flatten())
            .collect();
        let mut output = Output { writer: self.writer, key, file: None };
        for file in files.iter().filter(|f| !self.writer.ids().believes(f)) {
            self.learn_keys(file)?;
        }
        if self.sort_by.is_empty() {
            for file in files {
                for batch in self.read(file)? {
                    output.write(&batch?)?;
                }
            }
        } else {
            self.merge_sorted(files, &mut output)?;
        }
        output.finish()
    }

    /// Numbers the keys of a file whose ids are to be made anew, many at a time: later, when its
    /// rows are read in small batches, all are known.
    fn learn_keys(&self, file: &DataFile) -> Result<()> {
        let mut reader = self.read(file)?;
        loop {
            let (mut batches, mut rows) = (Vec::new(), 0);
            while rows < ROW_GROUP_ROWS {
                let Some(batch) = reader.next_stored() else { break };
                let batch = batch?;
                rows += batch.num_rows();
                batches.push(batch);
            }
            if batches.is_empty() {
                return Ok(());
            }
            self.writer.ids().append(batches, &self.runtime)?;
        }
    }

    /// A file's rows, in the table's schema without partition columns, with ids.
    fn read(&self, file: &DataFile) -> Result<FittedReader<'_>> {
        let chunks = StoreFile::new(&self.store, file, &self.runtime);
        let parquet = |e| TableError::Parquet { file: file.path.clone(), source: e };
        let metadata = reader_metadata(&chunks).map_err(parquet)?;
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(chunks, metadata)
            .with_batch_size(MERGE_BATCH_ROWS)
            .build()
            .map_err(parquet)?;
        let ids = self.writer.ids();
        let believed = ids.believes(file);
        Ok(FittedReader {
            path: file.path.clone(),
            reader,
            schema: Arc::clone(if believed { ids.schema() } else { &self.schema }),
            number: (!believed).then(|| (ids, self.runtime.clone())),
        })
    }

    fn merge_sorted(&self, files: &[DataFile], output: &mut Output<'_>) -> Result<()> {
        let mut keys = SortKeys::new(self.writer.ids().schema(), &self.sort_by)?;
        let mut cursors = Vec::with_capacity(files.len());
        for file in files {
            let source = self.sorted_source(file, &mut keys)?;
            if let Some(cursor) = Cursor::open(source, &keys)? {
                cursors.push(cursor);
            }
        }
        merge_cursors(cursors, &keys, &mut |rows| output.write(rows))
    }

    /// The file's batches in order; a file that turns out not to be sorted is sorted in memory.
    fn sorted_source(&self, file: &DataFile, keys: &mut SortKeys) -> Result<Source<'_>> {
        let mut last: Option<OwnedRow> = None;
        let mut sorted = true;
        // A first pass over the key columns alone would need a second reader; reading the file once
        // more only when it lies is cheaper, since files we wrote never do.
        if !self.declares_order(file)? {
            for batch in self.read(file)? {
                let rows = keys.rows(&batch?)?;
                for row in &rows {
                    if last.as_ref().is_some_and(|l| l.row() > row) {
                        sorted = false;
                        break;
                    }
                    last = Some(row.owned());
                }
                if !sorted {
                    break;
                }
            }
        }
        if sorted {
            return Ok(Source::File(self.read(file)?));
        }
        let batches = self.read(file)?.collect::<Result<Vec<_>>>()?;
        let order = sort_order(&batches, &self.sort_by)?;
        let refs: Vec<&RecordBatch> = batches.iter().collect();
        let sorted = order
            .chunks(MERGE_BATCH_ROWS)
            .map(|chunk| interleave_record_batch(&refs, chunk))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| TableError::arrow("sorting rows", e))?;
        Ok(Source::Memory(sorted.into_iter()))
    }

    /// Was the file written by us, with this clustering?
    fn declares_order(&self, file: &DataFile) -> Result<bool> {
        let chunks = StoreFile::new(&self.store, file, &self.runtime);
        let known = reader_metadata(&chunks)
            .map_err(|e| TableError::Parquet { file: file.path.clone(), source: e })?;
        let footer = known.metadata();
        let ours = footer.file_metadata().created_by().is_some_and(|by| by.starts_with("uplake "));
        let columns: Result<Vec<usize>, _> =
            self.sort_by.iter().map(|c| known.schema().index_of(c)).collect();
        let Ok(columns) = columns else { return Ok(false) };
        let columns: Vec<i32> = columns.into_iter().map(|i| i as i32).collect();
        Ok(ours
            && self.writer.ids().believes(file)
            && footer.row_groups().iter().all(|g| {
                g.sorting_columns()
                    .is_some_and(|s| s.iter().map(|c| c.column_idx).collect::<Vec<_>>() == columns)
            }))
    }
}

/// Cuts rows into files of the target size.
struct Output<'a> {
    writer: &'a TableWriter,
    key: Vec<Option<String>>,
    file: Option<crate::write::DataFileWriter>,
}

impl Output<'_> {
    fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        if self.file.is_none() {
            self.file = Some(self.writer.open_file(&self.key, std::slice::from_ref(rows), rows)?);
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        file.write(rows)?;
        if file.bytes() >= TARGET_FILE_BYTES
            && let Some(full) = self.file.take()
        {
            self.writer.close_file(full)?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        match self.file.take() {
            Some(file) => self.writer.close_file(file),
            None => Ok(()),
        }
    }
}

struct FittedReader<'a> {
    path: String,
    reader: ParquetRecordBatchReader,
    schema: SchemaRef,
    /// Who makes the ids that are not read from the file.
    number: Option<(&'a IdColumns, Handle)>,
}

impl FittedReader<'_> {
    fn next_stored(&mut self) -> Option<Result<RecordBatch>> {
        let batch = self.reader.next()?;
        let fitted = batch.and_then(|batch| fit(&batch, &self.schema));
        Some(fitted.map_err(|e| TableError::arrow(format!("reading {}", self.path), e)))
    }
}

impl Iterator for FittedReader<'_> {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.next_stored()?;
        let Some((ids, runtime)) = &self.number else { return Some(batch) };
        let numbered = batch.and_then(|batch| ids.append(vec![batch], runtime));
        Some(numbered.map(|mut batches| batches.swap_remove(0)))
    }
}

enum Source<'a> {
    File(FittedReader<'a>),
    Memory(std::vec::IntoIter<RecordBatch>),
}

impl Iterator for Source<'_> {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::File(reader) => reader.next(),
            Self::Memory(batches) => batches.next().map(Ok),
        }
    }
}

/// The sort key of rows in a form that compares as bytes.
struct SortKeys {
    converter: RowConverter,
    columns: Vec<usize>,
}

impl SortKeys {
    fn new(schema: &Schema, cluster_by: &[String]) -> Result<Self> {
        let arrow = |e| TableError::arrow("sorting rows", e);
        let columns = cluster_by
            .iter()
            .map(|c| schema.index_of(c))
            .collect::<Result<Vec<_>, _>>()
            .map_err(arrow)?;
        let options = SortOptions { descending: false, nulls_first: false };
        let fields = columns.iter().map(|i| {
            let data_type: DataType = schema.field(*i).data_type().clone();
            SortField::new_with_options(data_type, options)
        });
        let converter = RowConverter::new(fields.collect()).map_err(arrow)?;
        Ok(Self { converter, columns })
    }

    fn rows(&self, batch: &RecordBatch) -> Result<Rows> {
        let columns: Vec<ArrayRef> =
            self.columns.iter().map(|i| Arc::clone(batch.column(*i))).collect();
        self.converter.convert_columns(&columns).map_err(|e| TableError::arrow("sorting rows", e))
    }
}

struct Cursor<'a> {
    source: Source<'a>,
    batch: RecordBatch,
    keys: Rows,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn open(mut source: Source<'a>, keys: &SortKeys) -> Result<Option<Self>> {
        for batch in source.by_ref() {
            let batch = batch?;
            if batch.num_rows() > 0 {
                let rows = keys.rows(&batch)?;
                return Ok(Some(Self { source, batch, keys: rows, at: 0 }));
            }
        }
        Ok(None)
    }

    fn head(&self) -> OwnedRow {
        self.keys.row(self.at).owned()
    }
}

/// K-way merge: rows in key order, ties in file order, [`ENCODE_ROWS`] at a time.
fn merge_cursors(
    mut cursors: Vec<Cursor<'_>>,
    keys: &SortKeys,
    emit: &mut dyn FnMut(&RecordBatch) -> Result<()>,
) -> Result<()> {
    let mut heap: BinaryHeap<Reverse<(OwnedRow, usize)>> =
        cursors.iter().enumerate().map(|(i, c)| Reverse((c.head(), i))).collect();
    // Batches that chosen rows still point into.
    let mut held: Vec<RecordBatch> = cursors.iter().map(|c| c.batch.clone()).collect();
    let mut slot: Vec<usize> = (0..cursors.len()).collect();
    let mut chosen: Vec<(usize, usize)> = Vec::with_capacity(ENCODE_ROWS);
    while let Some(Reverse((_, i))) = heap.pop() {
        chosen.push((slot[i], cursors[i].at));
        cursors[i].at += 1;
        let mut alive = true;
        if cursors[i].at == cursors[i].batch.num_rows() {
            alive = false;
            while let Some(batch) = cursors[i].source.next() {
                let batch = batch?;
                if batch.num_rows() > 0 {
                    cursors[i].keys = keys.rows(&batch)?;
                    cursors[i].at = 0;
                    held.push(batch.clone());
                    slot[i] = held.len() - 1;
                    cursors[i].batch = batch;
                    alive = true;
                    break;
                }
            }
        }
        if chosen.len() == ENCODE_ROWS {
            emit_chosen(&held, &chosen, emit)?;
            chosen.clear();
            held = cursors.iter().map(|c| c.batch.clone()).collect();
            slot = (0..cursors.len()).collect();
        }
        if alive {
            heap.push(Reverse((cursors[i].head(), i)));
        }
    }
    if chosen.is_empty() { Ok(()) } else { emit_chosen(&held, &chosen, emit) }
}

fn emit_chosen(
    held: &[RecordBatch],
    chosen: &[(usize, usize)],
    emit: &mut dyn FnMut(&RecordBatch) -> Result<()>,
) -> Result<()> {
    let refs: Vec<&RecordBatch> = held.iter().collect();
    let rows =
        interleave_record_batch(&refs, chosen).map_err(|e| TableError::arrow("merging rows", e))?;
    emit(&rows)
}

/// What `check` found wrong with one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckFinding {
    /// Path from the table's folder.
    pub path: String,
    /// What is wrong.
    pub problem: String,
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Files looked at.
    pub files: usize,
    /// Rows read.
    pub rows: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// Empty if the table is sound.
    pub findings: Vec<CheckFinding>,
    /// Indexes that are missing or damaged: queries are slower, never wrong.
    pub index_findings: Vec<CheckFinding>,
    /// Ids that their domains have no more: keys are compared instead, and no rows can be added.
    pub lost_ids: Vec<LostIds>,
}

/// Reads every data file to its last page and compares it with the log; reads the log's commits, also those
/// that a checkpoint stands for, and the indexes, too.
///
/// # Errors
/// Only for what stops the check itself; damaged files are findings.
pub async fn check(lake: &Lake, base: &Snapshot) -> Result<CheckReport> {
    let lost_ids = lake.lost_ids(base).await?;
    let damaged = damaged_commits(lake, base.table()).await?.into_iter();
    let of_log = |damaged: DamagedCommit| CheckFinding {
        path: format!("_delta_log/{}", damaged.file),
        problem: format!("is damaged: {}", damaged.what),
    };
    let findings: Vec<CheckFinding> = damaged.map(of_log).collect();
    let store = Arc::clone(lake.storage());
    let runtime = Handle::current();
    let (files, schema) = (base.files().to_vec(), file_schema(base));
    let indexes = base.indexes().to_vec();
    on_thread(move || {
        let mut report = CheckReport { lost_ids, findings, ..CheckReport::default() };
        let mut seen: HashMap<&str, ()> = HashMap::new();
        for file in &files {
            report.files += 1;
            report.bytes += file.size;
            // What the store has is asked, not what is cached of it.
            store.forget(&file.store_path);
            store.forget(&file.index_path);
            let checked = check_file(&store, &runtime, file, &schema);
            let problem = match (checked, seen.insert(&file.path, ())) {
                (_, Some(())) => Some("is in the log twice".to_owned()),
                (Ok(rows), None) => {
                    report.rows += rows;
                    file.rows
                        .filter(|expected| *expected != rows)
                        .map(|expected| format!("holds {rows} rows, the log says {expected}"))
                }
                (Err(problem), None) => Some(problem),
            };
            if let Some(problem) = problem {
                report.findings.push(CheckFinding { path: file.path.clone(), problem });
            }
            if indexes.is_empty() {
                continue;
            }
            let checked = runtime.block_on(check_index(store.as_ref(), file, &indexes));
            if let Err(fallback) = checked {
                let problem = fallback.to_string();
                report.index_findings.push(CheckFinding { path: file.path.clone(), problem });
            }
        }
        Ok(report)
    })
    .await
}

fn check_file(
    store: &Arc<Store>,
    runtime: &Handle,
    file: &DataFile,
    schema: &SchemaRef,
) -> Result<u64, String> {
    let found = runtime
        .block_on(store.head(&file.store_path))
        .map_err(|e| format!("cannot be read: {e}"))?;
    if found.size != file.size {
        return Err(format!("is {} bytes, the log says {}", found.size, file.size));
    }
    let chunks = StoreFile::new(store, file, runtime);
    if let Some(expected) = file.crc32 {
        let found = checksum(&chunks).map_err(|e| format!("cannot be read: {e}"))?;
        if found != expected {
            return Err(format!("has checksum {found:08x}, the log says {expected:08x}"));
        }
    }
    let mut reader = reader_metadata(&chunks)
        .and_then(|known| {
            let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(chunks, known);
            unpanicked(|| builder.build())
        })
        .map_err(|e| format!("is not readable Parquet: {}", reason(&e)))?;
    let mut rows = 0;
    while let Some(batch) = unpanicked(|| reader.next().transpose().map_err(Into::into)).transpose()
    {
        let batch = batch.map_err(|e| format!("has a damaged page: {e}"))?;
        fit(&batch, schema).map_err(|e| format!("does not fit the table: {e}"))?;
        rows += batch.num_rows() as u64;
    }
    Ok(rows)
}

fn checksum(file: &StoreFile) -> Result<u32, ParquetError> {
    let mut hasher = crc32fast::Hasher::new();
    let mut at = 0;
    while at < file.size {
        let length = CHECK_READ_BYTES.min(file.size - at);
        hasher.update(&file.read(&(at..at + length))?);
        at += length;
    }
    Ok(hasher.finalize())
}
