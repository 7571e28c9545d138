//! Batches from a query into a table, in one commit: INSERT, CREATE TABLE AS, DELETE, UPDATE, MERGE, ALTER TABLE.
//!
//! # Invariants
//! - Nothing is visible before [`StreamWriter::commit`]; dropping the writer commits nothing, and its
//!   threads end soon and remove what they have written.
//! - At most [`QUEUE_BATCHES`] batches wait; a fast producer is slowed down.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use deltalake_core::kernel::Add;
use deltalake_core::protocol::{DeltaOperation, SaveMode};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use uplake_objectio::Payer;

use crate::alter::NewColumns;
use crate::as_of::AsOf;
use crate::changed_rows::ChangedRows;
use crate::commit::{self, Change, CommitError, check_removable, remove_action};
use crate::data_file::DataFile;
use crate::definition::{TableDefinition, check_definition, check_new_columns};
use crate::error::{Result, TableError};
use crate::lake::Lake;
use crate::layout::{Layout, OnConflict};
use crate::lock::TableLock;
use crate::names::check_table_name;
use crate::primary_key;
use crate::snapshot::Snapshot;
use crate::thread::paid;
use crate::write::{Sequence, TableWriter};

/// Tries of a commit that others keep coming before.
const KEYED_ATTEMPTS: usize = 100;
/// Batches between the query and the encoders.
const QUEUE_BATCHES: usize = 8;

/// What the written rows are.
#[derive(Clone, Debug)]
pub enum WriteKind {
    /// The first rows of a new table.
    Create,
    /// More rows.
    Append,
    /// Rows that replace these files (what is left of them after a DELETE).
    Delete { replaced: Vec<DataFile>, predicate: String, rows: ChangedRows },
    /// The same after an UPDATE, with the rows that it changed.
    Update { replaced: Vec<DataFile>, predicate: String, rows: ChangedRows },
    /// The same after a MERGE, with its new rows. `exactly`: only if the table has no other files by then.
    Merge { replaced: Vec<DataFile>, predicate: String, rows: ChangedRows, exactly: bool },
    /// All rows of a table, in its new columns ([`StreamWriter::into_new_columns`]).
    Columns(NewColumns),
}

impl WriteKind {
    /// What is done to rows, beside those of files that only come.
    pub(crate) fn rows(&self) -> Option<ChangedRows> {
        match self {
            Self::Create | Self::Append | Self::Columns(_) => None,
            Self::Delete { rows, .. } | Self::Update { rows, .. } | Self::Merge { rows, .. } => {
                Some(*rows)
            }
        }
    }

    /// By what, in Delta's words.
    pub(crate) fn operation(&self) -> &'static str {
        match self {
            Self::Create | Self::Append | Self::Columns(_) => "WRITE",
            Self::Delete { .. } => "DELETE",
            Self::Update { .. } => "UPDATE",
            Self::Merge { .. } => "MERGE",
        }
    }

    /// The condition that rows were changed by.
    pub(crate) fn predicate(&self) -> Option<&str> {
        match self {
            Self::Create | Self::Append | Self::Columns(_) => None,
            Self::Delete { predicate, .. }
            | Self::Update { predicate, .. }
            | Self::Merge { predicate, .. } => Some(predicate),
        }
    }

    /// The files in whose place the rows are; `None` if they are more rows.
    pub(crate) fn replaced(&self) -> Option<&[DataFile]> {
        match self {
            Self::Create | Self::Append => None,
            Self::Delete { replaced, .. }
            | Self::Update { replaced, .. }
            | Self::Merge { replaced, .. } => Some(replaced),
            Self::Columns(columns) => Some(columns.replaced()),
        }
    }
}

/// Writes batches of a table's schema and commits them at the end.
pub struct StreamWriter {
    lake: Lake,
    table: String,
    target: Target,
    writer: Arc<TableWriter>,
    queue: Option<mpsc::Sender<(Sequence, RecordBatch)>>,
    done: Vec<oneshot::Receiver<Result<()>>>,
    /// Threads that have not come to their end.
    threads: Arc<AtomicUsize>,
    sent: usize,
    now_millis: i64,
    lock: Option<TableLock>,
}

enum Target {
    New(TableDefinition),
    Existing(Box<Snapshot>),
}

impl StreamWriter {
    /// Writes into an existing table, on top of this snapshot.
    ///
    /// `memory_bytes` bounds the rows held before a file is cut; `threads` encode.
    ///
    /// # Errors
    /// [`TableError::Io`] if a thread cannot be started.
    pub async fn into_table(
        lake: &Lake,
        base: Snapshot,
        on_conflict: OnConflict,
        memory_bytes: usize,
        threads: usize,
        now_millis: i64,
    ) -> Result<Self> {
        let layout = Layout { on_conflict, ..Layout::of(&base) };
        let target = Target::Existing(Box::new(base));
        Self::start(lake, layout, target, memory_bytes, threads, now_millis).await
    }

    /// Writes all rows of a table again, in its new columns.
    ///
    /// # Errors
    /// As [`Self::into_table`].
    pub async fn into_new_columns(
        lake: &Lake,
        base: Snapshot,
        columns: &NewColumns,
        memory_bytes: usize,
        threads: usize,
        now_millis: i64,
    ) -> Result<Self> {
        let layout = Layout::new(lake, base.table(), columns.definition())?;
        let target = Target::Existing(Box::new(base));
        Self::start(lake, layout, target, memory_bytes, threads, now_millis).await
    }

    /// Writes a table that does not exist yet.
    ///
    /// # Errors
    /// [`TableError::TableExists`], [`TableError::Invalid`] for a definition that cannot be laid out.
    pub async fn into_new_table(
        lake: &Lake,
        table: &str,
        definition: TableDefinition,
        memory_bytes: usize,
        threads: usize,
        now_millis: i64,
    ) -> Result<Self> {
        check_table_name(table)?;
        check_definition(&definition)?;
        check_new_columns(&definition.schema)?;
        if lake.has_table(table).await? {
            return Err(TableError::TableExists { name: table.to_owned() });
        }
        lake.refuse_view(table).await?;
        let layout = Layout::new(lake, table, &definition)?;
        let target = Target::New(definition);
        Self::start(lake, layout, target, memory_bytes, threads, now_millis).await
    }

    async fn start(
        lake: &Lake,
        layout: Layout,
        target: Target,
        memory_bytes: usize,
        threads: usize,
        now_millis: i64,
    ) -> Result<Self> {
        let table = layout.table.clone();
        // Which row of a key is the last one is a matter of order.
        let threads = if layout.primary_key.is_empty() { threads } else { 1 };
        let lock = lake.lock_for_writing(&table).await?;
        let writer =
            Arc::new(TableWriter::new(lake, layout, Handle::current(), memory_bytes, now_millis));
        let (queue, batches) = mpsc::channel(QUEUE_BATCHES);
        let batches = Arc::new(Mutex::new(batches));
        let at_work = Arc::new(AtomicUsize::new(0));
        let mut done = Vec::new();
        for _ in 0..threads.max(1) {
            let (tell, told) = oneshot::channel();
            let (lake, runtime) = (lake.clone(), Handle::current());
            let (writer, batches) = (Arc::clone(&writer), Arc::clone(&batches));
            let at_work = Arc::clone(&at_work);
            let payer = Payer::current();
            at_work.fetch_add(1, Ordering::AcqRel);
            std::thread::Builder::new()
                .name("uplake-write".into())
                .spawn(move || {
                    let result = paid(payer, || {
                        let result = encode(&writer, &batches);
                        if at_work.fetch_sub(1, Ordering::AcqRel) == 1 && writer.is_stopped() {
                            let (table, files) = (&writer.layout().table, writer.take_files());
                            runtime.block_on(commit::discard(&lake, table, &files));
                        }
                        result
                    });
                    // The receiver is gone only if the statement was dropped.
                    let _ = tell.send(result);
                })
                .map_err(|e| TableError::io("starting a thread", e))?;
            done.push(told);
        }
        let lake = lake.clone();
        Ok(Self {
            lake,
            table,
            target,
            writer,
            queue: Some(queue),
            done,
            threads: at_work,
            sent: 0,
            now_millis,
            lock: Some(lock),
        })
    }

    /// Hands over rows in the table's schema. Dropping the future loses the batch: abort then.
    ///
    /// # Errors
    /// What stopped the encoders, such as a full disk.
    pub async fn write(&mut self, batch: RecordBatch) -> Result<()> {
        self.sent += 1;
        let sequence = Sequence { input: 0, unit: 0, batch: self.sent };
        let sent = match &self.queue {
            Some(queue) => queue.send((sequence, batch)).await.is_ok(),
            None => false,
        };
        if sent { Ok(()) } else { self.drain().await }
    }

    /// Waits for the encoders, then publishes all rows at once; returns the commit's number.
    ///
    /// # Errors
    /// [`TableError::Conflict`] if a replaced file was replaced by someone else in between.
    pub async fn commit(mut self, kind: WriteKind) -> Result<u64> {
        let lock = self.lock.take().map(TableLock::commits);
        let lake = self.lake.clone();
        let committed = self.commit_files(kind).await;
        if let Some(lock) = lock {
            lock.release().await;
        }
        lake.keep_dictionaries().await;
        committed
    }

    async fn commit_files(mut self, kind: WriteKind) -> Result<u64> {
        self.drain().await?;
        let keyed = !self.writer.layout().primary_key.is_empty();
        if keyed && kind.replaced().is_none() {
            return self.commit_keyed().await;
        }
        let adds = self.writer.take_files();
        if let Some(replaced) = kind.replaced()
            && let Err(error) = check_removable(&self.table, replaced)
        {
            commit::discard(&self.lake, &self.table, &adds).await;
            return Err(error);
        }
        let outcome = match (&self.target, kind) {
            (Target::New(definition), _) => {
                let added = adds.clone();
                let (lake, table) = (&self.lake, &self.table);
                commit::create(lake, table, definition, added, None, self.now_millis)
                    .await
                    .map(|()| 0)
            }
            (Target::Existing(base), kind) => {
                let change = change(base, kind, adds.clone(), self.now_millis);
                commit::commit(&self.lake, base, change).await
            }
        };
        match outcome {
            Ok(version) => return Ok(version),
            Err(_) => commit::discard(&self.lake, &self.table, &adds).await,
        }
        Err(match outcome {
            Err(CommitError::Failed(error)) => error,
            Err(CommitError::Conflict(reason)) => match self.target {
                Target::New(_) => TableError::TableExists { name: self.table.clone() },
                Target::Existing(_) => TableError::Conflict { table: self.table.clone(), reason },
            },
            Ok(_) | Err(CommitError::LabelTaken) => TableError::Conflict {
                table: self.table.clone(),
                reason: "its label is taken".into(),
            },
        })
    }

    /// Rows of a table with a primary key: one of each key is kept, whatever others commit meanwhile.
    async fn commit_keyed(self) -> Result<u64> {
        let layout = self.writer.layout();
        let written = self.writer.take_files_as_written();
        let (lake, table) = (&self.lake, &self.table);
        let (adds, _) = primary_key::among_new(lake, layout, written, self.now_millis).await?;
        match &self.target {
            Target::New(definition) => {
                let added = adds.clone();
                let created = commit::create(lake, table, definition, added, None, self.now_millis);
                match created.await {
                    Ok(()) => Ok(0),
                    Err(error) => {
                        commit::discard(lake, table, &adds).await;
                        Err(match error {
                            CommitError::Failed(error) => error,
                            _ => TableError::TableExists { name: table.clone() },
                        })
                    }
                }
            }
            Target::Existing(base) => {
                commit_keyed(lake, layout, base.as_ref().clone(), &adds, self.now_millis).await
            }
        }
    }

    /// Waits for the encoders: the files that are written, in their order, which are the caller's from now on.
    ///
    /// # Errors
    /// What stopped the encoders; nothing is left then.
    pub(crate) async fn into_files(mut self) -> Result<Vec<Add>> {
        let drained = self.drain().await;
        let files = self.writer.take_files_as_written();
        if drained.is_err() {
            commit::discard(&self.lake, &self.table, &files).await;
        }
        if let Some(lock) = self.lock.take() {
            lock.release().await;
        }
        drained.map(|()| files)
    }

    /// Stops and deletes what was written.
    pub async fn abort(mut self) {
        self.writer.stop();
        // The error that led here is the one to report.
        let _ = self.drain().await;
        commit::discard(&self.lake, &self.table, &self.writer.take_files()).await;
        if let Some(lock) = self.lock.take() {
            lock.release().await;
        }
    }

    async fn drain(&mut self) -> Result<()> {
        self.queue = None;
        let mut first = Ok(());
        for told in self.done.drain(..) {
            let result = told.await.unwrap_or_else(|_| Err(TableError::Panicked("writing")));
            if first.is_ok() {
                first = result;
            }
        }
        first
    }
}

impl Drop for StreamWriter {
    fn drop(&mut self) {
        self.writer.stop();
        // Threads that are at work clean up themselves.
        if self.threads.load(Ordering::Acquire) > 0 {
            return;
        }
        let files = self.writer.take_files();
        if let (false, Ok(runtime)) = (files.is_empty(), Handle::try_current()) {
            let (lake, table) = (self.lake.clone(), self.table.clone());
            runtime.spawn(async move { commit::discard(&lake, &table, &files).await });
        }
    }
}

fn encode(
    writer: &TableWriter,
    batches: &Mutex<mpsc::Receiver<(Sequence, RecordBatch)>>,
) -> Result<()> {
    let stop = || writer.is_stopped();
    let work = || -> Result<()> {
        loop {
            let next = batches.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
            match next {
                Some((sequence, batch)) if !stop() => writer.push(sequence, &batch)?,
                _ => break,
            }
        }
        while !stop() && writer.flush_one()? {}
        Ok(())
    };
    let result = work();
    if result.is_err() {
        // The producer sees a closed queue and asks for the error.
        writer.stop();
        batches.lock().unwrap_or_else(PoisonError::into_inner).close();
    }
    result
}

/// Commits files with one row of each key, whatever others commit meanwhile; on an error they are gone.
pub(crate) async fn commit_keyed(
    lake: &Lake,
    layout: &Layout,
    mut base: Snapshot,
    adds: &[Add],
    now_millis: i64,
) -> Result<u64> {
    let table = &layout.table;
    let mut reason = String::new();
    for _ in 0..KEYED_ATTEMPTS {
        let change = change(&base, WriteKind::Append, Vec::new(), now_millis);
        match primary_key::commit(lake, layout, &base, adds, change).await {
            Ok((version, _)) => return Ok(version),
            Err(CommitError::Failed(error)) => {
                commit::discard(lake, table, adds).await;
                return Err(error);
            }
            Err(CommitError::LabelTaken) => {}
            Err(CommitError::Conflict(why)) => reason = why,
        }
        let newer = lake.snapshot(table, &AsOf::Latest).await?;
        if newer.schema() != base.schema() || newer.primary_key() != base.primary_key() {
            break;
        }
        base = newer;
    }
    commit::discard(lake, table, adds).await;
    Err(TableError::Conflict { table: table.clone(), reason })
}

pub(crate) fn change(base: &Snapshot, kind: WriteKind, add: Vec<Add>, now_millis: i64) -> Change {
    let partition_by =
        (!base.partition_columns().is_empty()).then(|| base.partition_columns().to_vec());
    let remove = kind.replaced().unwrap_or_default();
    let remove = remove.iter().map(|f| remove_action(f, now_millis, true)).collect();
    let rows = kind.rows();
    let on_these_files_only = matches!(kind, WriteKind::Merge { exactly: true, .. });
    if let WriteKind::Columns(columns) = kind {
        return Change { add, remove, ..columns.change(now_millis) };
    }
    let operation = match kind {
        WriteKind::Create | WriteKind::Append | WriteKind::Columns(_) => {
            DeltaOperation::Write { mode: SaveMode::Append, partition_by, predicate: None }
        }
        WriteKind::Delete { predicate, .. } => {
            DeltaOperation::Delete { predicate: Some(predicate) }
        }
        WriteKind::Update { predicate, .. } => {
            DeltaOperation::Update { predicate: Some(predicate) }
        }
        WriteKind::Merge { predicate, .. } => DeltaOperation::Merge {
            predicate: Some(predicate),
            merge_predicate: None,
            matched_predicates: Vec::new(),
            not_matched_predicates: Vec::new(),
            not_matched_by_source_predicates: Vec::new(),
        },
    };
    Change { add, remove, rows, on_these_files_only, ..Change::nothing(operation, now_millis) }
}
