//! Rows that were computed once, as a source of plans.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::memory::MemoryStream;
use datafusion::physical_plan::{DisplayFormatType, Partitioning};
use datafusion_datasource::source::{DataSource, DataSourceExec};

/// Memory for what is kept.
#[derive(Debug)]
pub(crate) struct Room {
    pub limit_bytes: usize,
    taken: AtomicUsize,
    pool: Arc<dyn MemoryPool>,
}

impl Room {
    pub fn new(limit_bytes: usize, pool: &Arc<dyn MemoryPool>) -> Arc<Self> {
        Arc::new(Self { limit_bytes, taken: AtomicUsize::new(0), pool: Arc::clone(pool) })
    }
}

/// A share of a room, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Space {
    room: Arc<Room>,
    pub reservation: MemoryReservation,
    pub bytes: usize,
}

impl Space {
    pub fn new(room: &Arc<Room>) -> Self {
        let reservation = MemoryConsumer::new("Batch").register(&room.pool);
        Self { room: Arc::clone(room), reservation, bytes: 0 }
    }

    /// More of it, if there is.
    pub fn grow(&mut self, bytes: usize) -> bool {
        let before = self.room.taken.fetch_add(bytes, Ordering::AcqRel);
        if before + bytes > self.room.limit_bytes || self.reservation.try_grow(bytes).is_err() {
            self.room.taken.fetch_sub(bytes, Ordering::AcqRel);
            return false;
        }
        self.bytes += bytes;
        true
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        self.room.taken.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// Computed rows.
#[derive(Debug)]
pub(crate) struct ComputedRows {
    pub partitions: Vec<Vec<RecordBatch>>,
    pub rows: usize,
    pub space: Space,
}

/// A scan of kept rows.
#[derive(Clone, Debug)]
pub(crate) struct KeptSource {
    pub rows: Arc<ComputedRows>,
    pub schema: SchemaRef,
    /// The column that has a value once at most.
    pub key: Option<usize>,
    pub columns: Vec<usize>,
    /// One partition has all of it.
    pub whole: bool,
}

/// Has a scan of what is kept at most one row for each value of a column?
pub(crate) fn has_one_row_each(scan: &DataSourceExec, column: usize) -> bool {
    let source = scan.data_source().downcast_ref::<KeptSource>();
    source.is_some_and(|source| source.key == Some(column))
}

impl DataSource for KeptSource {
    fn open(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let batches = match self.whole {
            true => self.rows.partitions.iter().flatten().cloned().collect(),
            false => self.rows.partitions.get(partition).cloned().unwrap_or_default(),
        };
        let (schema, columns) = (Arc::clone(&self.schema), Some(self.columns.clone()));
        Ok(Box::pin(MemoryStream::try_new(batches, schema, columns)?))
    }

    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kept rows={}", self.rows.rows)
    }

    fn output_partitioning(&self) -> Partitioning {
        let partitions = if self.whole { 1 } else { self.rows.partitions.len().max(1) };
        Partitioning::UnknownPartitioning(partitions)
    }

    fn eq_properties(&self) -> EquivalenceProperties {
        EquivalenceProperties::new(Arc::clone(&self.schema))
    }

    fn partition_statistics(&self, partition: Option<usize>) -> Result<Arc<Statistics>> {
        let rows = match partition {
            Some(partition) if !self.whole => {
                let batches = self.rows.partitions.get(partition);
                batches.into_iter().flatten().map(RecordBatch::num_rows).sum()
            }
            _ => self.rows.rows,
        };
        let mut statistics = Statistics::new_unknown(&self.schema);
        statistics.num_rows = Precision::Exact(rows);
        let share = self.columns.len() as f64 / self.rows_columns() as f64;
        let bytes = self.rows.space.bytes as f64 * share * rows as f64;
        let bytes = bytes / self.rows.rows.max(1) as f64;
        statistics.total_byte_size = Precision::Inexact(bytes as usize);
        Ok(Arc::new(statistics))
    }

    fn with_fetch(&self, _: Option<usize>) -> Option<Arc<dyn DataSource>> {
        None
    }

    fn fetch(&self) -> Option<usize> {
        None
    }

    fn try_swapping_with_projection(
        &self,
        _: &ProjectionExprs,
    ) -> Result<Option<Arc<dyn DataSource>>> {
        Ok(None)
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }
}

impl KeptSource {
    fn rows_columns(&self) -> usize {
        let first = self.rows.partitions.iter().flatten().next();
        first.map_or(1, |batch| batch.num_columns().max(1))
    }
}
