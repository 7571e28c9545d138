//! Text files that are read in place, as a table of DataFusion.
//!
//! # Invariants
//! - Rows come in the order of the files, whoever decodes them, but where records are long. Then each thread reads the
//!   files and decodes its share: operators that spread rows to threads gather 8,192 for each.
//! - A scan holds what it has read and not handed on, of as many pieces as there are threads, and the pool knows.

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures::{StreamExt, TryStreamExt};
use uplake_table::{TextFiles, TextPiece, TextRows};

use crate::base::error::EngineError;
use crate::base::progress;

/// What a piece takes while it is decoded, in its own bytes: itself, its values, and those of a second form on the way
/// to some types.
const DECODING: usize = 4;

/// Files whose columns are known.
pub(crate) struct TextTable {
    files: Arc<TextFiles>,
    schema: SchemaRef,
}

impl TextTable {
    pub fn new(files: TextFiles) -> Self {
        let schema = files.schema();
        Self { files: Arc::new(files), schema }
    }
}

impl Debug for TextTable {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("TextTable").field("schema", &self.schema).finish_non_exhaustive()
    }
}

#[async_trait]
impl TableProvider for TextTable {
    fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let columns = match projection {
            Some(columns) => columns.clone(),
            None => (0..self.schema.fields().len()).collect(),
        };
        let schema = Arc::new(self.schema.project(&columns)?);
        let parts = match limit {
            None if self.files.has_long_records() => session.config().target_partitions(),
            _ => 1,
        };
        let scan = |part| {
            let (files, columns) = (Arc::clone(&self.files), columns.clone());
            let schema = SchemaRef::clone(&schema);
            Arc::new(TextScan { files, columns, schema, part, parts }) as Arc<dyn PartitionStream>
        };
        let scans = (0..parts).map(scan).collect();
        let scan = StreamingTableExec::try_new(schema, scans, None, Vec::new(), false, limit)?;
        Ok(Arc::new(scan))
    }
}

/// Some columns of them, of every `parts`-th piece from the `part`-th on.
struct TextScan {
    files: Arc<TextFiles>,
    columns: Vec<usize>,
    schema: SchemaRef,
    part: usize,
    parts: usize,
}

impl Debug for TextScan {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("TextScan").field("columns", &self.columns).finish_non_exhaustive()
    }
}

impl PartitionStream for TextScan {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let threads = context.session_config().target_partitions().div_ceil(self.parts);
        let are_counted = self.columns.is_empty();
        // Rows of no column are those of the first.
        let columns = match are_counted && !self.files.schema().fields().is_empty() {
            true => &[0][..],
            false => &self.columns,
        };
        let rows = self.files.rows(columns).map_err(failed);
        let seen = Seen::of(&self.files, self.part == 0);
        let batches_seen = seen.clone();
        let (part, parts) = (self.part, self.parts);
        let batches = futures::stream::once(std::future::ready(rows))
            .map_ok(move |rows| {
                let seen = seen.clone();
                let next = move |rows| next_piece(rows, seen.clone());
                let pieces = futures::stream::try_unfold(rows, next).enumerate();
                pieces.filter_map(move |(at, piece)| {
                    let is_own = at % parts == part || piece.is_err();
                    std::future::ready(is_own.then_some(piece))
                })
            })
            .try_flatten()
            .map(move |piece| decoded(piece, are_counted, Arc::clone(&context)))
            .buffered(threads)
            .map_ok(|(batches, held)| {
                // Let go of with the last of them.
                futures::stream::iter(batches).map(move |batch| {
                    let _held = &held;
                    Ok(batch)
                })
            })
            .try_flatten()
            .inspect_ok(move |batch| batches_seen.rows.add(batch.num_rows()));
        Box::pin(RecordBatchStreamAdapter::new(SchemaRef::clone(&self.schema), batches))
    }
}

/// What a scan has read, for whoever shows how far its statement is.
#[derive(Clone)]
struct Seen {
    files: usize,
    files_done: Count,
    bytes: Count,
    rows: Count,
}

impl Seen {
    /// Nothing yet. Of several scans of the same files one counts the files.
    fn of(files: &TextFiles, counts_files: bool) -> Self {
        let counters = ExecutionPlanMetricsSet::new();
        let count = if counts_files { files.count() } else { 0 };
        progress::reads_text(count, files.bytes().filter(|_| counts_files), &counters);
        let named = |name| MetricBuilder::new(&counters).counter(name, 0);
        Self {
            files: count,
            files_done: named(progress::FILES_DONE),
            bytes: named(progress::BYTES_READ),
            rows: MetricBuilder::new(&counters).output_rows(0),
        }
    }

    fn is_at(&self, rows: Option<&TextRows>, bytes_read: u64) {
        if self.files == 0 {
            return;
        }
        let done = self.files - rows.map_or(0, TextRows::files_left);
        self.files_done.add(done.saturating_sub(self.files_done.value()));
        let bytes = usize::try_from(bytes_read).unwrap_or(usize::MAX);
        self.bytes.add(bytes.saturating_sub(self.bytes.value()));
    }
}

async fn next_piece(rows: TextRows, seen: Seen) -> Result<Option<(TextPiece, TextRows)>> {
    let before = rows.bytes_read();
    let next = rows.next().await.map_err(failed)?;
    let rows = next.as_ref().map(|(_, rows)| rows);
    seen.is_at(rows, rows.map_or(before, TextRows::bytes_read));
    Ok(next)
}

async fn decoded(
    piece: Result<TextPiece>,
    are_counted: bool,
    context: Arc<TaskContext>,
) -> Result<(Vec<RecordBatch>, MemoryReservation)> {
    let piece = piece?;
    let held = MemoryConsumer::new("text file").register(context.memory_pool());
    held.try_grow(piece.bytes() * DECODING)?;
    let batches = SpawnedTask::spawn(async move { piece.decode() });
    let mut batches = batches
        .join_unwind()
        .await
        .map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))?
        .map_err(failed)?;
    if are_counted {
        let counted = batches.iter().map(|batch| batch.project(&[]));
        batches = counted.collect::<Result<_, _>>()?;
    }
    let bytes = batches.iter().map(RecordBatch::get_array_memory_size).sum();
    held.try_resize(bytes)?;
    Ok((batches, held))
}

fn failed(error: uplake_table::TableError) -> DataFusionError {
    EngineError::from(error).into()
}
