//! Rows that several statements of a batch read: computed when the first of them comes, kept in the
//! session's memory, let go with the last.
//!
//! # Invariants
//! - Whatever goes wrong while they are computed (memory, a file, an error of one user's expression), the
//!   answer is that there are none, and each user computes what it needs by itself.
//! - What is kept is counted in the session's pool, and never more than a share of it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use async_trait::async_trait;
use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::compute::{BatchCoalescer, prep_null_mask_filter};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session as PlanningSession, TableProvider};
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::utils::memory::get_record_batch_memory_size;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::TableType;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_datasource::source::DataSourceExec;
use futures::StreamExt;
use futures::future::BoxFuture;
use tokio::sync::OnceCell;

use super::parts::PartId;
use crate::cache::computed_rows::{ComputedRows, KeptSource, Room, Space};
use crate::engine::session::Session;

/// Rows of a kept batch.
const BATCH_ROWS: usize = 8192;

/// How rows are computed.
pub(super) enum Recipe {
    Plan { plan: LogicalPlan, reads: Vec<Arc<Kept>> },
    Together(Arc<Together>),
}

/// Rows that are computed once, or will be.
pub(super) struct Kept {
    pub part: PartId,
    pub schema: SchemaRef,
    /// The column that has a value once at most.
    key: Option<usize>,
    /// Of what is read, with the names of `schema`.
    rows: OnceCell<Option<Arc<ComputedRows>>>,
    recipe: Mutex<Option<Recipe>>,
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kept({})", self.part)
    }
}

impl Kept {
    pub fn new(part: PartId, schema: SchemaRef, key: Option<usize>, recipe: Recipe) -> Self {
        Self { part, schema, key, rows: OnceCell::new(), recipe: Mutex::new(Some(recipe)) }
    }

    /// The rows, computed now if nobody did; `None` if they cannot be had. Whoever waits may stop: another
    /// who waits goes on from the start.
    pub fn rows<'a>(
        self: &'a Arc<Self>,
        session: &'a Arc<Session>,
        room: &'a Arc<Room>,
    ) -> BoxFuture<'a, Option<Arc<ComputedRows>>> {
        Box::pin(async move {
            if let Some(rows) = self.rows.get() {
                return rows.clone();
            }
            // Another's reading sets our rows.
            if let Some(together) = self.together() {
                together.read(session, room).await;
            }
            let rows = self.rows.get_or_init(|| self.compute(session, room)).await.clone();
            // What was read for them is not needed any more.
            self.lock().take();
            rows
        })
    }

    /// Parts that its computing needs, if it is still to come.
    pub fn reads(&self) -> Vec<Arc<Self>> {
        match self.lock().as_ref() {
            Some(Recipe::Plan { reads, .. }) => reads.clone(),
            _ => Vec::new(),
        }
    }

    /// The reading that makes it with others.
    pub fn together(&self) -> Option<Arc<Together>> {
        match self.lock().as_ref() {
            Some(Recipe::Together(together)) => Some(Arc::clone(together)),
            _ => None,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Recipe>> {
        self.recipe.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn compute(&self, session: &Arc<Session>, room: &Arc<Room>) -> Option<Arc<ComputedRows>> {
        let (plan, reads) = match self.lock().as_ref() {
            Some(Recipe::Plan { plan, reads }) => (plan.clone(), reads.clone()),
            _ => return None,
        };
        for read in &reads {
            read.rows(session, room).await?;
        }
        let (state, _) = session.query_state();
        let streams = session.partitions_of(&plan, &state).await.ok()?;
        let tasks: Vec<_> = streams
            .into_iter()
            .map(|stream| {
                let (schema, space) = (Arc::clone(&self.schema), Space::new(room));
                SpawnedTask::spawn(collect(stream, schema, space))
            })
            .collect();
        let mut all = Collected::empty(room);
        for task in tasks {
            all.add(task.join().await.ok()??);
        }
        Some(Arc::new(all.rows))
    }
}

/// What one thread has collected.
struct Collected {
    rows: ComputedRows,
}

impl Collected {
    fn empty(room: &Arc<Room>) -> Self {
        Self { rows: ComputedRows { partitions: Vec::new(), rows: 0, space: Space::new(room) } }
    }

    fn add(&mut self, mut part: ComputedRows) {
        self.rows.rows += part.rows;
        self.rows.partitions.append(&mut part.partitions);
        // The space is now ours.
        let bytes = std::mem::take(&mut part.space.bytes);
        self.rows.space.bytes += bytes;
        let moved = part.space.reservation.take();
        let size = moved.size();
        drop(moved);
        self.rows.space.reservation.grow(size);
    }
}

/// Rows as they come, in batches of memory of their own.
struct Collector {
    coalescer: BatchCoalescer,
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    rows: usize,
    space: Space,
}

impl Collector {
    fn new(schema: SchemaRef, space: Space) -> Self {
        let coalescer = BatchCoalescer::new(Arc::clone(&schema), BATCH_ROWS);
        Self { coalescer, schema, batches: Vec::new(), rows: 0, space }
    }

    /// Takes what is complete; `false` if there is no room.
    fn settle(&mut self) -> bool {
        while let Some(batch) = self.coalescer.next_completed_batch() {
            self.rows += batch.num_rows();
            if !self.space.grow(get_record_batch_memory_size(&batch)) {
                return false;
            }
            self.batches.push(batch);
        }
        true
    }

    /// Takes these columns' rows, or those of them that `wanted` picks.
    fn push(
        &mut self,
        columns: &[usize],
        batch: &RecordBatch,
        wanted: Option<&dyn Array>,
    ) -> Result<bool> {
        let columns = columns.iter().map(|at| Arc::clone(batch.column(*at))).collect();
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        match wanted {
            None => self.coalescer.push_batch(batch)?,
            Some(wanted) => {
                let wanted = wanted.as_boolean();
                let known = (wanted.null_count() > 0).then(|| prep_null_mask_filter(wanted));
                self.coalescer.push_batch_with_filter(batch, known.as_ref().unwrap_or(wanted))?;
            }
        }
        Ok(self.settle())
    }

    fn finish(mut self) -> Option<ComputedRows> {
        self.coalescer.finish_buffered_batch().ok()?;
        let fits = self.settle();
        let Self { batches, rows, space, .. } = self;
        fits.then(|| ComputedRows { partitions: vec![batches], rows, space })
    }
}

async fn collect(
    mut stream: SendableRecordBatchStream,
    schema: SchemaRef,
    space: Space,
) -> Option<ComputedRows> {
    let columns: Vec<usize> = (0..schema.fields().len()).collect();
    let mut collector = Collector::new(schema, space);
    while let Some(batch) = stream.next().await {
        if !collector.push(&columns, &batch.ok()?, None).ok()? {
            return None;
        }
    }
    collector.finish()
}

/// One reading of a scan for several filters.
pub(super) struct Together {
    /// The first filter it is for.
    pub number: PartId,
    what: OnceCell<KeptPart>,
    done: OnceCell<()>,
}

struct KeptPart {
    scan: LogicalPlan,
    /// Whoever still wants rows, and which.
    filters: Vec<(Expr, Weak<Kept>)>,
}

/// One filter of a reading, as it is applied to batches.
#[derive(Clone)]
struct Applied {
    condition: Arc<dyn PhysicalExpr>,
    columns: Vec<usize>,
    schema: SchemaRef,
}

impl Together {
    pub fn new(number: PartId) -> Self {
        Self { number, what: OnceCell::new(), done: OnceCell::new() }
    }

    /// What is read; once.
    pub fn fill(&self, scan: LogicalPlan, filters: Vec<(Expr, Arc<Kept>)>) {
        let filters = filters.into_iter().map(|(expr, kept)| (expr, Arc::downgrade(&kept)));
        // Nobody else knows it yet.
        let _ = self.what.set(KeptPart { scan, filters: filters.collect() });
    }

    /// Reads, and gives each filter its rows; a failure leaves all without.
    async fn read(&self, session: &Arc<Session>, room: &Arc<Room>) {
        let read = || async {
            let Some(what) = self.what.get() else { return };
            let wanted: Vec<(&Expr, Arc<Kept>)> = what
                .filters
                .iter()
                .filter_map(|(expr, kept)| Some((expr, kept.upgrade()?)))
                .collect();
            let Some(rows) = filtered(&what.scan, &wanted, session, room).await else { return };
            for ((_, kept), rows) in wanted.into_iter().zip(rows) {
                // Set once, here.
                let _ = kept.rows.set(rows.map(Arc::new));
            }
        };
        self.done.get_or_init(read).await;
    }
}

/// The rows of each filter; `None` for one that there was no room for.
async fn filtered(
    scan: &LogicalPlan,
    filters: &[(&Expr, Arc<Kept>)],
    session: &Arc<Session>,
    room: &Arc<Room>,
) -> Option<Vec<Option<ComputedRows>>> {
    let (state, _) = session.query_state();
    let mut applied = Vec::new();
    for (expr, kept) in filters {
        let condition = state.create_physical_expr((*expr).clone(), scan.schema()).ok()?;
        let fields = kept.schema.fields().iter();
        let columns = fields
            .map(|field| scan.schema().index_of_column_by_name(None, field.name()))
            .collect::<Option<_>>()?;
        applied.push(Applied { condition, columns, schema: Arc::clone(&kept.schema) });
    }
    let streams = session.partitions_of(scan, &state).await.ok()?;
    let tasks: Vec<_> = streams
        .into_iter()
        .map(|stream| SpawnedTask::spawn(filter_all(stream, applied.clone(), Arc::clone(room))))
        .collect();
    let mut all: Vec<Option<Collected>> =
        filters.iter().map(|_| Some(Collected::empty(room))).collect();
    for task in tasks {
        for (all, part) in all.iter_mut().zip(task.join().await.ok()??) {
            match (all.as_mut(), part) {
                (Some(all), Some(part)) => all.add(part),
                _ => *all = None,
            }
        }
    }
    Some(all.into_iter().map(|all| all.map(|all| all.rows)).collect())
}

async fn filter_all(
    mut stream: SendableRecordBatchStream,
    filters: Vec<Applied>,
    room: Arc<Room>,
) -> Option<Vec<Option<ComputedRows>>> {
    let start =
        |filter: &Applied| Some(Collector::new(Arc::clone(&filter.schema), Space::new(&room)));
    let mut collectors: Vec<Option<Collector>> = filters.iter().map(start).collect();
    while let Some(batch) = stream.next().await {
        let batch = batch.ok()?;
        for (filter, place) in filters.iter().zip(&mut collectors) {
            let Some(collector) = place else { continue };
            let pushed = filter
                .condition
                .evaluate(&batch)
                .and_then(|wanted| wanted.into_array(batch.num_rows()))
                .and_then(|wanted| collector.push(&filter.columns, &batch, Some(&wanted)));
            // Without room, or with an error, this filter's users read by themselves.
            if !pushed.unwrap_or(false) {
                *place = None;
            }
        }
        if collectors.iter().all(Option::is_none) {
            return None;
        }
    }
    Some(collectors.into_iter().map(|collector| collector?.finish()).collect())
}

/// Kept rows as a table. They are there when a plan with it is made.
#[derive(Debug)]
pub(super) struct KeptRows(pub Arc<Kept>);

#[async_trait]
impl TableProvider for KeptRows {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.0.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        state: &dyn PlanningSession,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(Some(rows)) = self.0.rows.get() else {
            return Err(DataFusionError::Internal("the rows of a batch are not there".into()));
        };
        let all = || (0..self.0.schema.fields().len()).collect();
        let columns = projection.cloned().unwrap_or_else(all);
        let schema = Arc::new(self.0.schema.project(&columns)?);
        let source = KeptSource {
            rows: Arc::clone(rows),
            schema,
            key: self.0.key.and_then(|key| columns.iter().position(|column| *column == key)),
            columns,
            // One thread reads all of it if a statement has no more.
            whole: state.config().target_partitions() == 1,
        };
        Ok(DataSourceExec::from_data_source(source))
    }
}
