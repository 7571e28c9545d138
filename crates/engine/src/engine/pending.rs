//! What a transaction has written and not committed: rows of one table, and removals.
//!
//! Rows of small statements are held until they are read, until they are many, or until the transaction ends, so that
//! a thousand statements of one row make one data file.
//!
//! # Invariants
//! - Of a statement that fails no row stays.
//! - What is here is on top of the snapshot that the transaction first read.

use std::fmt;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::concat_batches;
use datafusion::common::DataFusionError;
use tokio::sync::{Mutex, MutexGuard};
use uplake_table::{
    Lake, OnConflict, Snapshot, StagedChanges, StagedWrite, StreamWriter, WriteKind,
};

use crate::base::budget::Budget;
use crate::base::error::{EngineError, Result};

/// Bytes of rows that wait for more before they become a data file.
pub(crate) const HELD_BYTES: usize = 4 << 20;
/// What a writer beside many others may hold before it cuts a file.
pub(crate) const WRITER_BYTES: usize = 96 << 20;

/// What a transaction writes; nothing at first.
#[derive(Default)]
pub(crate) struct PendingWrites(Mutex<Option<Pending>>);

impl fmt::Debug for PendingWrites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PendingWrites")
    }
}

impl PendingWrites {
    pub async fn lock(&self) -> MutexGuard<'_, Option<Pending>> {
        self.0.lock().await
    }
}

/// Writes into one table.
pub(crate) struct Pending {
    pub staged: StagedWrite,
    held: Vec<RecordBatch>,
    held_bytes: usize,
}

/// What a transaction had written at a moment, to which it can go back.
#[derive(Clone, Debug, Default)]
pub struct Savepoint(pub(crate) Option<StagedChanges>);

impl Pending {
    /// What the transaction writes into this table, from now on if it has written nothing.
    ///
    /// # Errors
    /// 0A000 if it has written into another, or in another way.
    pub async fn of<'p>(
        pending: &'p mut Option<Self>,
        lake: &Lake,
        budget: &Budget,
        table: &Snapshot,
        on_conflict: OnConflict,
    ) -> Result<&'p mut Self> {
        Self::check(pending.as_ref(), table, on_conflict)?;
        Ok(match pending {
            Some(pending) => pending,
            None => {
                let now = budget.now_millis();
                let staged = StagedWrite::new(lake, table.clone(), on_conflict, now).await?;
                pending.insert(Self { staged, held: Vec::new(), held_bytes: 0 })
            }
        })
    }

    /// May rows be written into this table now?
    ///
    /// # Errors
    /// As [`Self::of`].
    pub fn check(pending: Option<&Self>, table: &Snapshot, on_conflict: OnConflict) -> Result<()> {
        let Some(pending) = pending else { return Ok(()) };
        let (base, name) = (pending.staged.base(), table.table());
        let refuse = |what: String| {
            Err(EngineError::unsupported(what).with_hint("COMMIT, then BEGIN another transaction"))
        };
        if base.table() != name {
            let other = base.table();
            return refuse(format!(
                "a transaction writes into one table: this one has written into `{other}`, and `{name}` is another"
            ));
        }
        if pending.is_keyed() && pending.staged.on_conflict() != on_conflict {
            return refuse(
                "a transaction inserts rows with ON CONFLICT DO NOTHING or without, not both"
                    .into(),
            );
        }
        if pending.is_keyed() && pending.staged.removes() {
            return refuse(format!(
                "rows of `{name}`, which has a primary key, were deleted in this transaction, and cannot be \
                 inserted in the same"
            ));
        }
        Ok(())
    }

    /// Does the table have a primary key?
    pub fn is_keyed(&self) -> bool {
        !self.staged.base().primary_key().is_empty()
    }

    /// Are there rows that are in no file?
    pub fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// Rows of a statement that is done.
    pub async fn hold(
        &mut self,
        lake: &Lake,
        budget: &Budget,
        rows: Vec<RecordBatch>,
    ) -> Result<()> {
        self.held_bytes += rows.iter().map(RecordBatch::get_array_memory_size).sum::<usize>();
        self.held.extend(rows);
        if self.held_bytes > HELD_BYTES { self.stage(lake, budget).await } else { Ok(()) }
    }

    /// Those of a statement that has a writer.
    pub async fn take(&mut self, writer: StreamWriter, kind: WriteKind) -> Result<()> {
        Ok(self.staged.take(writer, kind).await?)
    }

    /// All rows become files.
    pub async fn stage(&mut self, lake: &Lake, budget: &Budget) -> Result<()> {
        if self.held.is_empty() {
            return Ok(());
        }
        let (base, on_conflict) = (self.staged.base().clone(), self.staged.on_conflict());
        let rows = concat_batches(base.schema(), &self.held).map_err(DataFusionError::from)?;
        let mut writer =
            writer(lake, budget, &base, on_conflict, (budget.write_bytes(), 1)).await?;
        writer.write(rows).await?;
        self.staged.take(writer, WriteKind::Append).await?;
        self.forget_held();
        Ok(())
    }

    /// Goes back to what was written then.
    pub fn restore(&mut self, changes: StagedChanges) {
        self.forget_held();
        self.staged.restore(changes);
    }

    fn forget_held(&mut self) {
        (self.held, self.held_bytes) = (Vec::new(), 0);
    }
}

/// A writer of rows that may be one of many, with so many bytes for rows at most, and threads.
pub(crate) async fn writer(
    lake: &Lake,
    budget: &Budget,
    table: &Snapshot,
    on_conflict: OnConflict,
    (bytes, threads): (usize, usize),
) -> Result<StreamWriter> {
    let (bytes, now) = (bytes.min(WRITER_BYTES), budget.now_millis());
    Ok(StreamWriter::into_table(lake, table.clone(), on_conflict, bytes, threads, now).await?)
}
