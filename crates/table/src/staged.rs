//! Files that are written and that no commit names yet: what a transaction has done to a table so far.
//!
//! # Invariants
//! - Others see nothing of it before [`StagedWrite::commit`], and then all of it at once.
//! - Its files are gone after [`StagedWrite::abort`], and soon after it is dropped. Those of a process that was killed
//!   are garbage for a vacuum.
//! - It holds the table's lock for writers, so that no vacuum takes its files for garbage.

use deltalake_core::kernel::Add;
use tokio::runtime::Handle;

use crate::changed_rows::ChangedRows;
use crate::commit::{self, CommitError, check_removable};
use crate::data_file::DataFile;
use crate::error::{Result, TableError};
use crate::lake::Lake;
use crate::layout::{Layout, OnConflict};
use crate::lock::TableLock;
use crate::primary_key;
use crate::snapshot::{Snapshot, rows_of};
use crate::write_stream::{StreamWriter, WriteKind, change, commit_keyed};

/// What a transaction writes into one table, on top of one snapshot of it.
pub struct StagedWrite {
    lake: Lake,
    base: Snapshot,
    on_conflict: OnConflict,
    /// All files written for it, in their order; also those that are not to be committed any more.
    written: Vec<Add>,
    changes: StagedChanges,
    lock: Option<TableLock>,
    runtime: Handle,
    now_millis: i64,
}

/// What a staged write would change, as of a moment.
#[derive(Clone, Debug, Default)]
pub struct StagedChanges {
    /// In the order in which they were written.
    add: Vec<Add>,
    /// Files of the table that others are in place of.
    remove: Vec<DataFile>,
    /// What their rows were changed by.
    predicates: Vec<String>,
    /// The statements that did it, each kind of them once, and what they did to rows.
    operations: Vec<&'static str>,
    rows: ChangedRows,
}

impl StagedWrite {
    /// Nothing yet, on top of `base`.
    ///
    /// # Errors
    /// Those of the table's lock.
    pub async fn new(
        lake: &Lake,
        base: Snapshot,
        on_conflict: OnConflict,
        now_millis: i64,
    ) -> Result<Self> {
        let lock = lake.lock_for_writing(base.table()).await?;
        Ok(Self {
            lake: lake.clone(),
            base,
            on_conflict,
            written: Vec::new(),
            changes: StagedChanges::default(),
            lock: Some(lock),
            runtime: Handle::current(),
            now_millis,
        })
    }

    /// What it is on top of.
    pub fn base(&self) -> &Snapshot {
        &self.base
    }

    /// What becomes of rows whose keys are there.
    pub fn on_conflict(&self) -> OnConflict {
        self.on_conflict
    }

    /// Are files of the table replaced?
    pub fn removes(&self) -> bool {
        !self.changes.remove.is_empty()
    }

    /// Ends a writer, whose files are this write's from now on; the files in whose place they are may be of the table or
    /// of these.
    ///
    /// # Errors
    /// What stopped the writer; nothing is left of it then.
    pub async fn take(&mut self, writer: StreamWriter, kind: WriteKind) -> Result<()> {
        let files = writer.into_files().await?;
        self.written.extend(files.iter().cloned());
        let changes = &mut self.changes;
        let come: u64 = files.iter().filter_map(rows_of).sum();
        let come = ChangedRows { inserted: come, ..ChangedRows::default() };
        changes.rows = changes.rows.and(kind.rows().unwrap_or(come));
        if !changes.operations.contains(&kind.operation()) {
            changes.operations.push(kind.operation());
        }
        if let Some(replaced) = kind.replaced() {
            let is_gone = |add: &Add| replaced.iter().any(|file| file.path == add.path);
            let is_ours = |file: &DataFile| changes.add.iter().any(|add| add.path == file.path);
            let of_table: Vec<_> = replaced.iter().filter(|file| !is_ours(file)).cloned().collect();
            check_removable(self.base.table(), &of_table)?;
            changes.add.retain(|add| !is_gone(add));
            changes.remove.extend(of_table);
            changes.predicates.extend(kind.predicate().map(str::to_owned));
        }
        self.changes.add.extend(files);
        Ok(())
    }

    /// The table as it is within the transaction.
    ///
    /// # Errors
    /// [`TableError::Invalid`] for a path that cannot be read back.
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.base.changed(&self.changes.remove, &self.changes.add)
    }

    /// What it would change now.
    pub fn changes(&self) -> StagedChanges {
        self.changes.clone()
    }

    /// It changes what it would have changed then.
    pub fn restore(&mut self, changes: StagedChanges) {
        self.changes = changes;
    }

    /// Publishes all of it in one commit, whose number is returned; none is made if nothing changes.
    ///
    /// A future that is dropped leaves garbage at most.
    ///
    /// # Errors
    /// [`TableError::Conflict`] if somebody else has replaced one of the files that it replaces.
    pub async fn commit(mut self) -> Result<Option<u64>> {
        let lock = self.lock.take().map(TableLock::commits);
        let lake = self.lake.clone();
        let committed = self.publish().await;
        if let Some(lock) = lock {
            lock.release().await;
        }
        lake.keep_dictionaries().await;
        committed
    }

    async fn publish(&mut self) -> Result<Option<u64>> {
        // Nobody else deletes a file from here on: it may be committed.
        let written = std::mem::take(&mut self.written);
        let StagedChanges { add, remove, predicates, operations, rows } =
            std::mem::take(&mut self.changes);
        let (lake, base, now) = (&self.lake, &self.base, self.now_millis);
        let table = base.table();
        let is_unused = |file: &&Add| !add.iter().any(|add| add.path == file.path);
        let unused: Vec<Add> = written.iter().filter(is_unused).cloned().collect();
        commit::discard(lake, table, &unused).await;
        if add.is_empty() && remove.is_empty() {
            return Ok(None);
        }
        if remove.is_empty() && !base.primary_key().is_empty() {
            let layout = Layout { on_conflict: self.on_conflict, ..Layout::of(base) };
            let (add, _) = primary_key::among_new(lake, &layout, add, now).await?;
            return commit_keyed(lake, &layout, base.clone(), &add, now).await.map(Some);
        }
        let (replaced, predicate) = (remove, predicates.join(" OR "));
        let kind = match operations.as_slice() {
            _ if replaced.is_empty() => WriteKind::Append,
            ["DELETE"] => WriteKind::Delete { replaced, predicate, rows },
            ["UPDATE"] => WriteKind::Update { replaced, predicate, rows },
            // What takes, changes and brings rows is a MERGE, whatever its statements.
            _ => WriteKind::Merge { replaced, predicate, rows, exactly: false },
        };
        let error = match commit::commit(lake, base, change(base, kind, add.clone(), now)).await {
            Ok(version) => return Ok(Some(version)),
            Err(CommitError::Failed(error)) => error,
            Err(CommitError::Conflict(reason)) => {
                TableError::Conflict { table: table.to_owned(), reason }
            }
            Err(CommitError::LabelTaken) => TableError::Conflict {
                table: table.to_owned(),
                reason: "its label is taken".into(),
            },
        };
        commit::discard(lake, table, &add).await;
        Err(error)
    }

    /// Deletes what was written.
    pub async fn abort(mut self) {
        // If nobody waits for it, it is done behind them.
        commit::discard(&self.lake, self.base.table(), &self.written).await;
        self.written.clear();
        if let Some(lock) = self.lock.take() {
            lock.release().await;
        }
    }
}

impl Drop for StagedWrite {
    fn drop(&mut self) {
        if self.written.is_empty() {
            return;
        }
        let (lake, written) = (self.lake.clone(), std::mem::take(&mut self.written));
        let (table, lock) = (self.base.table().to_owned(), self.lock.take());
        self.runtime.spawn(async move {
            commit::discard(&lake, &table, &written).await;
            drop(lock);
        });
    }
}
