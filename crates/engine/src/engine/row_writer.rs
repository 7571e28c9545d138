//! Rows from elsewhere into a table: in one commit when all are there, or with their transaction's.
//!
//! # Invariants
//! - All rows of a writer are committed together, or none are: one that is dropped leaves nothing.
//! - What it holds of memory is bounded, however many rows come.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::memory_pool::MemoryPool;
use uplake_table::{OnConflict, Snapshot, StreamWriter, WriteKind};

use crate::base::error::{EngineError, Result};
use crate::base::sql_state::SqlState;
use crate::cache::memory::WriterMemory;
use crate::engine::catalog::LakeCatalog;
use crate::engine::pending::{HELD_BYTES, Pending, WRITER_BYTES, writer};
use crate::engine::privileges::Privilege;
use crate::engine::session::{Engine, Session};
use crate::scan::lake_table::stored_batch;

/// Of the memory of a writer, its rows that wait; the rest is for sorting and encoding them, as in a load.
const ROWS_SHARE: usize = 3;
/// Of memory, the least that a writer can do with, and of a small engine's a part of so many.
const LEAST_BYTES: usize = 6 << 20;
const LEAST_SHARE: usize = 8;
/// How long it waits for memory that others have; how often it looks although nobody says that he gave some back, as
/// when a part of the memory is made larger; and at most.
const MEMORY_WAIT: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LOOK_AFTER: Duration = Duration::from_millis(1);

/// Writes batches into one table.
pub struct RowWriter {
    engine: Arc<Engine>,
    catalog: Arc<LakeCatalog>,
    table: Snapshot,
    on_conflict: OnConflict,
    /// Rows until there are so many that they need a writer.
    held: Vec<RecordBatch>,
    held_bytes: usize,
    writer: Option<StreamWriter>,
    rows: u64,
    /// Where the writer's memory is taken from; `None` for rows of a query, which has the memory.
    pool: Option<Arc<dyn MemoryPool>>,
    /// The writer's, once there is one.
    memory: Option<WriterMemory>,
}

impl Session {
    /// A writer into a table of the lake. In a [`Self::transaction`] its rows are committed with the transaction.
    ///
    /// # Errors
    /// [`EngineError::Statement`] if there is no such table, or the guard or the transaction refuses.
    pub async fn row_writer(&self, table: &str) -> Result<RowWriter> {
        self.catalog.begin_statement();
        self.must_be_latest()?;
        let Some(found) = self.catalog.find(table).await? else {
            let message = format!("there is no table `{table}`");
            return Err(EngineError::statement(SqlState::UndefinedTable, message)
                .with_hint("CREATE TABLE first"));
        };
        if let Some(guard) = &self.guard {
            guard.check(Privilege::Insert, found.snapshot().table())?;
        }
        let writer = self.row_writer_into(found.snapshot().clone(), OnConflict::Replace).await?;
        let pool = Arc::clone(&self.context().runtime_env().memory_pool);
        Ok(RowWriter { pool: Some(pool), ..writer })
    }

    pub(crate) async fn row_writer_into(
        &self,
        table: Snapshot,
        on_conflict: OnConflict,
    ) -> Result<RowWriter> {
        if let Some(pending) = &self.catalog.pending {
            Pending::check(pending.lock().await.as_ref(), &table, on_conflict)?;
        }
        Ok(RowWriter {
            engine: Arc::clone(&self.engine),
            catalog: Arc::clone(&self.catalog),
            table,
            on_conflict,
            held: Vec::new(),
            held_bytes: 0,
            writer: None,
            rows: 0,
            pool: None,
            memory: None,
        })
    }
}

impl RowWriter {
    /// The table's own name.
    pub fn table(&self) -> &str {
        self.table.table()
    }

    /// The table's columns, which batches have, too, in the same order.
    pub fn schema(&self) -> &SchemaRef {
        self.table.schema()
    }

    /// Takes rows. Once they are many it waits for memory that statements have. Dropping the future loses the batch: drop
    /// the writer then.
    ///
    /// # Errors
    /// NULL where the table has none, 53200 if others keep the memory, and what stops a writer, such as a full disk.
    pub async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let batch = stored_batch(batch, self.table.schema())?;
        self.rows += batch.num_rows() as u64;
        self.held_bytes += batch.get_array_memory_size();
        self.held.push(batch);
        if self.held_bytes > HELD_BYTES { self.hand_over().await } else { Ok(()) }
    }

    /// What is held goes to a writer.
    async fn hand_over(&mut self) -> Result<()> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => {
                let made = self.make_writer(MEMORY_WAIT).await?;
                self.writer.insert(made)
            }
        };
        for batch in std::mem::take(&mut self.held) {
            writer.write(batch).await?;
        }
        self.held_bytes = 0;
        Ok(())
    }

    pub(crate) async fn make_writer(&mut self, wait: Duration) -> Result<StreamWriter> {
        let engine = Arc::clone(&self.engine);
        let Engine { lake, budget, memory, .. } = engine.as_ref();
        let mut rows_bytes = budget.write_bytes();
        if let Some(pool) = &self.pool {
            let most = WRITER_BYTES * ROWS_SHARE;
            let least = LEAST_BYTES.min(budget.memory_bytes / LEAST_SHARE);
            let until = Instant::now() + wait;
            let taken = loop {
                let mut given_back = pin!(memory.given_back().notified());
                // What is given back from here on wakes it.
                given_back.as_mut().enable();
                match WriterMemory::take(memory, pool, most, least) {
                    Err(EngineError::Limit(_)) if Instant::now() < until => {}
                    taken => break taken?,
                }
                let left = until.saturating_duration_since(Instant::now());
                let _ = tokio::time::timeout(left.min(LOOK_EVERY), given_back).await;
                tokio::time::sleep(LOOK_AFTER).await;
            };
            rows_bytes = taken.bytes() / ROWS_SHARE;
            self.memory = Some(taken);
        }
        let (table, threads) = (&self.table, budget.threads);
        writer(lake, budget, table, self.on_conflict, (rows_bytes, threads)).await
    }

    /// All rows are there: how many they were.
    ///
    /// # Errors
    /// As [`Self::write`]; nothing is committed then.
    pub async fn finish(mut self) -> Result<u64> {
        if self.rows == 0 {
            return Ok(0);
        }
        let catalog = Arc::clone(&self.catalog);
        let Some(pending) = &catalog.pending else {
            self.hand_over().await?;
            if let Some(writer) = self.writer.take() {
                writer.commit(WriteKind::Append).await?;
            }
            catalog.forget(self.table.table());
            return Ok(self.rows);
        };
        let engine = Arc::clone(&self.engine);
        let Engine { lake, budget, .. } = engine.as_ref();
        let mut pending = pending.lock().await;
        let pending =
            Pending::of(&mut pending, lake, budget, &self.table, self.on_conflict).await?;
        if self.writer.is_some() {
            self.hand_over().await?;
        }
        match self.writer.take() {
            None => pending.hold(lake, budget, self.held).await?,
            Some(writer) => {
                // In the order of statements: of two rows of a key the later one counts.
                pending.stage(lake, budget).await?;
                pending.take(writer, WriteKind::Append).await?;
            }
        }
        if !pending.holds() {
            self.catalog.read_as(pending.staged.snapshot()?);
        }
        Ok(self.rows)
    }
}
