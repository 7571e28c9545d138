//! Building, repairing and dropping the indexes of a table's data files.
//!
//! # Invariants
//! - The table's wish is committed first; a file without its index is read without it until then.
//! - A data file is never touched.

use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use bytes::Bytes;
use deltalake_core::protocol::DeltaOperation;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tokio::runtime::Handle;
use uplake_index::{Footer, TAIL_BYTES, Tail};
use uplake_objectio::Store;

use crate::as_of::AsOf;
use crate::columns::fit;
use crate::commit::{self, Change};
use crate::data_file::DataFile;
use crate::error::{Result, TableError};
use crate::index::{
    Fallback, IndexBuilder, IndexSpec, check_specs, column_names, property, read_footer,
};
use crate::int96::reader_metadata;
use crate::lake::Lake;
use crate::properties::INDEXES;
use crate::snapshot::Snapshot;
use crate::store_file::StoreFile;
use crate::thread::{on_thread, spawn_paid};

/// Rows read at a time.
const BATCH_ROWS: usize = 8192;

/// What to change, before what is missing is built.
#[derive(Clone, Debug, Default)]
pub struct ReindexOptions {
    /// Indexes to add to the table.
    pub add: Vec<IndexSpec>,
    /// Indexes to take from it.
    pub drop: Vec<IndexSpec>,
    /// Build all files' indexes anew, sound ones, too.
    pub rebuild: bool,
    /// Threads; each builds the index of one file.
    pub threads: usize,
    /// The clock: milliseconds since 1970, UTC.
    pub now_millis: i64,
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReindexSummary {
    /// The commit that changed the table's indexes, if they changed.
    pub version: Option<u64>,
    /// The table's indexes now.
    pub indexes: Vec<IndexSpec>,
    /// Index files written.
    pub built: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Index files that were as they should be.
    pub sound: usize,
    /// Index files removed, because nothing is indexed any more.
    pub removed: usize,
}

/// Gives every data file of the table the index it should have.
///
/// # Errors
/// [`TableError::Invalid`] for a column that cannot be indexed, [`TableError::NoSuch`] for an index that
/// is not there to drop; [`TableError::Conflict`] if the table changed meanwhile in a way that matters.
pub async fn reindex(
    lake: &Lake,
    base: &Snapshot,
    options: &ReindexOptions,
) -> Result<ReindexSummary> {
    let lock = lake.lock_for_writing(base.table()).await?;
    let done = reindex_locked(lake, base, options).await;
    lock.release().await;
    done
}

async fn reindex_locked(
    lake: &Lake,
    base: &Snapshot,
    options: &ReindexOptions,
) -> Result<ReindexSummary> {
    let specs = wanted(base, options)?;
    let mut summary = ReindexSummary { indexes: specs.clone(), ..ReindexSummary::default() };
    if specs != base.declared_indexes() {
        summary.version = Some(commit_specs(lake, base, &specs, options.now_millis).await?);
    }
    // Files that came meanwhile are there, too.
    let newest = lake.snapshot(base.table(), &AsOf::Latest).await?;
    if specs.is_empty() {
        summary.removed = remove_all(lake, &newest).await?;
        return Ok(summary);
    }
    let (store, files) = (Arc::clone(lake.storage()), newest.files().to_vec());
    let (schema, runtime) = (SchemaRef::clone(newest.schema()), Handle::current());
    let (threads, rebuild) = (options.threads, options.rebuild);
    on_thread(move || {
        let work = Work { store, runtime, schema, specs, rebuild };
        work.all(&files, threads, summary)
    })
    .await
}

/// Gives one data file of the table the index that it should have, if it lacks it.
///
/// Takes no lock: of a file that is removed meanwhile it leaves an index that the next vacuum removes.
///
/// # Errors
/// What keeps the data from being read or the index from being written.
pub async fn repair_index(lake: &Lake, table: &Snapshot, file: &DataFile) -> Result<()> {
    let specs = wanted(table, &ReindexOptions::default())?;
    if specs.is_empty() {
        return Ok(());
    }
    let (store, file) = (Arc::clone(lake.storage()), file.clone());
    let (schema, runtime) = (SchemaRef::clone(table.schema()), Handle::current());
    let work = Work { store, runtime, schema, specs, rebuild: false };
    on_thread(move || work.file(&file).map(drop)).await
}

fn wanted(base: &Snapshot, options: &ReindexOptions) -> Result<Vec<IndexSpec>> {
    let mut specs = base.declared_indexes().to_vec();
    for spec in &options.drop {
        let before = specs.len();
        specs.retain(|known| known != spec);
        if specs.len() == before {
            let has: Vec<String> = specs.iter().map(ToString::to_string).collect();
            return Err(TableError::NoSuch(format!(
                "table `{}` has no index {spec}; it has {}",
                base.table(),
                if has.is_empty() { "none".to_owned() } else { has.join(", ") }
            )));
        }
    }
    specs.retain(|spec| base.indexes().contains(spec));
    let new = options.add.iter().filter(|spec| !base.indexes().contains(spec)).cloned();
    specs.extend(new);
    check_specs(&specs, base.schema(), base.partition_columns())?;
    Ok(specs)
}

async fn commit_specs(
    lake: &Lake,
    base: &Snapshot,
    specs: &[IndexSpec],
    now_millis: i64,
) -> Result<u64> {
    let text = property(specs);
    let operation = DeltaOperation::SetTableProperties {
        properties: [(INDEXES.to_owned(), text.clone())].into(),
    };
    let properties = vec![(INDEXES, text)];
    let change = Change { properties, ..Change::nothing(operation, now_millis) };
    let committed = commit::commit(lake, base, change).await;
    committed.map_err(|error| error.without_label(base.table()))
}

async fn remove_all(lake: &Lake, base: &Snapshot) -> Result<usize> {
    let mut removed = 0;
    for file in base.files() {
        match lake.store().delete(&file.index_path).await {
            Ok(()) => removed += 1,
            Err(object_store::Error::NotFound { .. }) => {}
            Err(e) => return Err(TableError::store(format!("removing {}", file.index_path), e)),
        }
    }
    Ok(removed)
}

/// Building the indexes of files, one file a thread.
struct Work {
    store: Arc<Store>,
    runtime: Handle,
    schema: SchemaRef,
    specs: Vec<IndexSpec>,
    rebuild: bool,
}

impl Work {
    fn all(
        &self,
        files: &[DataFile],
        threads: usize,
        summary: ReindexSummary,
    ) -> Result<ReindexSummary> {
        let queue = Mutex::new(files.iter());
        let outcome = Mutex::new(Ok(summary));
        let work = || {
            loop {
                if outcome.lock().unwrap_or_else(PoisonError::into_inner).is_err() {
                    return;
                }
                let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some(file) = next else { return };
                let done = self.file(file);
                let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
                match (outcome.as_mut(), done) {
                    (Ok(summary), Ok(Some(bytes))) => {
                        summary.built += 1;
                        summary.bytes += bytes;
                    }
                    (Ok(summary), Ok(None)) => summary.sound += 1,
                    (Ok(_), Err(error)) => *outcome = Err(error),
                    (Err(_), _) => {}
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads.max(1) {
                spawn_paid(scope, work);
            }
            work();
        });
        outcome.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes of the index that was written; `None` if the file's index is as it should be.
    fn file(&self, file: &DataFile) -> Result<Option<u64>> {
        // Another process may have built it again since it was cached.
        self.store.forget(&file.index_path);
        let sound = || {
            let checked = check_index(self.store.as_ref(), file, &self.specs);
            self.runtime.block_on(checked).is_ok()
        };
        if !self.rebuild && sound() {
            return Ok(None);
        }
        let index = self.build(file)?;
        let bytes = index.len() as u64;
        self.runtime
            .block_on(self.store.put(&file.index_path, index.into()))
            .map_err(|e| TableError::store(format!("writing {}", file.index_path), e))?;
        Ok(Some(bytes))
    }

    fn build(&self, file: &DataFile) -> Result<Vec<u8>> {
        let parquet = |e| TableError::Parquet { file: file.path.clone(), source: e };
        let chunks = StoreFile::new(&self.store, file, &self.runtime);
        let metadata = reader_metadata(&chunks).map_err(parquet)?;
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(chunks, metadata);
        let columns = column_names(&self.specs);
        let fields: Vec<_> = self
            .schema
            .fields()
            .iter()
            .filter(|f| columns.contains(&f.name().as_str()))
            .cloned()
            .collect();
        let wanted = Arc::new(Schema::new(fields));
        let mask = ProjectionMask::columns(
            builder.parquet_schema(),
            columns.iter().copied().filter(|c| builder.schema().index_of(c).is_ok()),
        );
        let reader =
            builder.with_projection(mask).with_batch_size(BATCH_ROWS).build().map_err(parquet)?;
        let empty = || TableError::Invalid(format!("{} has nothing to index", file.path));
        let mut index = IndexBuilder::new(&self.specs, &wanted).ok_or_else(empty)?;
        for batch in reader {
            let arrow = |e| TableError::arrow(format!("reading {}", file.path), e);
            let batch: RecordBatch = batch.map_err(arrow)?;
            index.push(&fit(&batch, &wanted).map_err(arrow)?)?;
        }
        index.finish(&file.path, file.size)
    }
}

/// Reads the index of a file to its last byte: is it there, whole, and of these columns?
pub(crate) async fn check_index(
    store: &dyn ObjectStore,
    file: &DataFile,
    specs: &[IndexSpec],
) -> Result<(), Fallback> {
    // The footer alone first: a missing or foreign index is not worth reading.
    read_footer(store, file, &mut 0).await?;
    let unreadable = |e: object_store::Error| Fallback::Unreadable(e.to_string());
    let bytes: Bytes = match store.get(&file.index_path).await {
        Ok(result) => result.bytes().await.map_err(unreadable)?,
        Err(error) => return Err(unreadable(error)),
    };
    let size = bytes.len() as u64;
    let mut from = size.saturating_sub(TAIL_BYTES);
    let footer: Footer = loop {
        match Footer::read(size, &bytes[from as usize..]).map_err(Fallback::Broken)? {
            Tail::Footer(footer) => break footer,
            Tail::More(range) => from = range.start,
        }
    };
    for column in footer.columns() {
        column.check_bytes(&bytes).map_err(Fallback::Broken)?;
    }
    let found: Vec<(&str, _)> = footer.columns().iter().map(|c| (c.name(), c.kind())).collect();
    let as_wished = |spec: &IndexSpec| {
        found.iter().any(|(name, kind)| *name == spec.column && spec.kind.is_file_kind(*kind))
    };
    match specs.len() == found.len() && specs.iter().all(as_wished) {
        true => Ok(()),
        false => Err(Fallback::NotIndexed),
    }
}
