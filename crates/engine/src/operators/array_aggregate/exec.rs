//! The operator: every thread its own groups, merged when all have come to their ends.
//!
//! Groups by ids are in as many parts as there are threads, by ranges of ids, so that they are merged
//! and handed out by all threads, too. Files are sorted by ids: a batch is mostly of one part. Where the
//! input itself comes by ranges of ids ([`Ranges`]), each is grouped by one thread, and nothing is merged.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int32Array, RecordBatch};
use datafusion::arrow::compute::{filter, filter_record_batch, take};
use datafusion::arrow::datatypes::{DataType, FieldRef, Int32Type, Schema, SchemaRef, UInt32Type};
use datafusion::common::config::ConfigOptions;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, Statistics};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::filter_pushdown::{
    ChildFilterDescription, FilterDescription, FilterPushdownPhase,
};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning,
    PlanProperties,
};
use futures::future::{BoxFuture, Shared};
use futures::{FutureExt, StreamExt, TryFutureExt};
use tokio::task::JoinError;

use crate::base::refusal::Unfit;
use crate::cache::pool::ARRAYS;
use crate::operators::array_aggregate::expressions::with_columns;
use crate::operators::array_aggregate::group_join::{
    GroupJoin, GroupJoinBuild, NO_MATCH_GROUP, Seen,
};
use crate::operators::array_aggregate::keys::{Keys, NO_MATCH};
use crate::operators::array_aggregate::rows::RowGroups;
use crate::operators::array_aggregate::sums::{Held, Slot, SumPlan};

/// Columns of a lookup's other side have numbers from here on, see
/// [`ArrayAggregateExec::input_expressions`].
pub(crate) const SIDE_COLUMNS: usize = 1 << 20;
/// Ids of which all groups are in one part: a file's batch has a tenth of them.
const IDS_TOGETHER: u32 = 1 << 14;
/// Batches in more pieces than this are not sorted by ids, and are taken apart by copying.
const PIECES_MAX: usize = 8;
/// Bytes by which a thread's groups grow before it asks for more.
const MEMORY_STEP: usize = 1 << 20;

/// `GROUP BY` of an id or of columns of few values.
#[derive(Debug)]
pub(crate) struct ArrayAggregateExec {
    pub(crate) what: ArrayAggregate,
    pub(crate) input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    run: Mutex<Run>,
}

#[derive(Clone, Debug)]
pub(crate) struct ArrayAggregate {
    pub schema: SchemaRef,
    pub columns: Vec<Group>,
    /// Of the columns that are [`Group::Row`], and of an id.
    pub types: Vec<DataType>,
    pub one_id: bool,
    pub sums: Vec<SumPlan>,
    /// The rows are joined first.
    pub lookup: Option<GroupJoin>,
    /// Each partition of the input has other ids.
    pub ranges: Option<Ranges>,
    /// The same in another way.
    pub otherwise: Otherwise,
}

/// What goes on where groups in arrays cannot, see [`fallback`](crate::operators::fallback).
#[derive(Clone, Debug)]
pub(crate) enum Otherwise {
    /// The aggregate as it was planned, before partitions were chosen.
    Hashes(Arc<dyn ExecutionPlan>),
    /// Arrays over rows in any order, instead of over [`Ranges`].
    AnyOrder(Arc<dyn ExecutionPlan>),
}

/// Partitions of an input that have different ids, each id's rows in the order of time, see
/// [`crate::scan::id_ranges`]. Each thread groups one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Ranges {
    pub count: usize,
    pub threads: usize,
}

/// What rows are grouped by.
#[derive(Clone, Debug)]
pub(crate) enum Group {
    Row(Arc<dyn PhysicalExpr>),
    /// Of [`GroupJoin::groups`].
    BuildSide(usize),
    /// [`GroupJoin::key`].
    Key,
}

impl Group {
    pub fn expression(&self) -> Option<&Arc<dyn PhysicalExpr>> {
        match self {
            Self::Row(expr) => Some(expr),
            Self::BuildSide(_) | Self::Key => None,
        }
    }
}

impl ArrayAggregate {
    fn names(&self, from: usize, to: usize) -> String {
        let fields = self.schema.fields()[from..to].iter();
        fields.map(|field| field.name().as_str()).collect::<Vec<_>>().join(", ")
    }

    fn group_names(&self) -> String {
        self.names(0, self.columns.len())
    }

    fn keys(&self) -> Keys {
        let mut types = self.types.clone();
        if self.lookup.is_some() && !self.one_id {
            // The group of the other side.
            types.push(DataType::UInt32);
        }
        Keys::new(&types, self.one_id)
    }

    /// What is computed of rows.
    pub fn expressions(&self) -> impl Iterator<Item = &Arc<dyn PhysicalExpr>> {
        let lookup = self.lookup.iter().flat_map(|lookup| &lookup.condition);
        let groups = self.columns.iter().filter_map(Group::expression);
        groups.chain(self.sums.iter().flat_map(SumPlan::expressions)).chain(lookup)
    }
}

/// The other side of a lookup, once it is read.
type BuildRead = Shared<BoxFuture<'static, Result<Arc<GroupJoinBuild>, Arc<DataFusionError>>>>;

/// All groups, once every thread has come to its end.
type Whole = Shared<BoxFuture<'static, Result<Arc<[RecordBatch]>, Arc<DataFusionError>>>>;

/// The answer while there are partitions that have not asked for it.
#[derive(Debug, Default)]
struct Run {
    whole: Option<Whole>,
    asked: usize,
}

impl ArrayAggregateExec {
    /// `plan`: what this takes the place of. `input`: what it groups.
    pub(crate) fn new(
        plan: &Arc<dyn ExecutionPlan>,
        input: &Arc<dyn ExecutionPlan>,
        columns: Vec<Arc<dyn PhysicalExpr>>,
        types: Vec<DataType>,
        one_id: bool,
        sums: Vec<SumPlan>,
    ) -> Self {
        let (schema, lookup, ranges) = (plan.schema(), None, None);
        let otherwise = Otherwise::Hashes(Arc::clone(plan));
        let columns = columns.into_iter().map(Group::Row).collect();
        let what =
            ArrayAggregate { schema, columns, types, one_id, sums, lookup, ranges, otherwise };
        Self::over(what, Arc::clone(input))
    }

    /// Does it look up what a join would have?
    pub fn joins(&self) -> bool {
        self.what.lookup.is_some()
    }

    /// Does that join hand out rows that no row of the input was joined with?
    pub fn is_outer(&self) -> bool {
        self.what.lookup.as_ref().is_some_and(|lookup| lookup.outer)
    }

    /// Are the rows that it sees of no use to it later?
    pub fn forgets_rows(&self) -> bool {
        self.what.sums.iter().all(SumPlan::forgets_rows)
    }

    /// Is it by one id, of which no two rows that it hands out have the same?
    pub fn is_by_id(&self) -> bool {
        self.what.one_id
    }

    /// What is computed of rows, over the columns of the input, and of the other side from
    /// [`SIDE_COLUMNS`] on; the last is the key that is looked up.
    pub(crate) fn input_expressions(&self) -> Result<Vec<Arc<dyn PhysicalExpr>>> {
        let expressions = self.what.expressions();
        let Some(lookup) = &self.what.lookup else { return Ok(expressions.cloned().collect()) };
        let (schema, of_input) = (self.input.schema(), &lookup.input_columns);
        let below = |column: &Column| match of_input.get(column.index()) {
            Some(below) => Column::new(schema.field(*below).name(), *below),
            None => Column::new(column.name(), SIDE_COLUMNS + column.index() - of_input.len()),
        };
        let mut found: Vec<Arc<dyn PhysicalExpr>> =
            expressions.map(|expr| with_columns(expr, below)).collect::<Result<_>>()?;
        found.push(Arc::new(lookup.key.clone()));
        Ok(found)
    }

    /// The same over other columns: `expressions` are those of [`Self::input_expressions`], over
    /// `input`.
    pub(crate) fn over_other_columns(
        &self,
        input: Arc<dyn ExecutionPlan>,
        mut expressions: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Self> {
        let mut what = self.what.clone();
        if let Some(lookup) = &mut what.lookup {
            let key = expressions.pop();
            if let Some(key) = key.as_ref().and_then(|key| key.downcast_ref::<Column>()) {
                lookup.key = key.clone();
            }
            let used: BTreeSet<usize> =
                expressions.iter().flat_map(collect_columns).map(|c| c.index()).collect();
            let of_input: Vec<usize> = used.into_iter().filter(|c| *c < SIDE_COLUMNS).collect();
            let of_side = &lookup.schema.fields()[lookup.input_columns.len()..];
            let schema = input.schema();
            let fields = of_input.iter().map(|column| schema.field(*column).clone());
            let fields = fields.map(|field| Arc::new(field.with_nullable(true)));
            let fields: Vec<FieldRef> = fields.chain(of_side.iter().cloned()).collect();
            let joined = Arc::new(Schema::new(fields));
            let place = |column: &Column| {
                let at = match column.index().checked_sub(SIDE_COLUMNS) {
                    Some(of_side) => of_input.len() + of_side,
                    None => of_input.partition_point(|used| *used < column.index()),
                };
                Column::new(joined.field(at).name(), at)
            };
            for expr in &mut expressions {
                *expr = with_columns(expr, place)?;
            }
            (lookup.input_columns, lookup.schema) = (of_input, joined);
        }
        let mut expressions = expressions.into_iter();
        let missing = || DataFusionError::Internal("an aggregate has too few expressions".into());
        let mut next = |_: &Arc<dyn PhysicalExpr>| expressions.next().ok_or_else(missing);
        for group in &mut what.columns {
            if let Group::Row(expr) = group {
                *expr = next(expr)?;
            }
        }
        what.sums = what.sums.iter().map(|sum| sum.map(&mut next)).collect::<Result<_>>()?;
        if let Some(condition) = what.lookup.as_mut().and_then(|lookup| lookup.condition.as_mut()) {
            *condition = next(condition)?;
        }
        Ok(Self::over(what, input))
    }

    pub(crate) fn over(what: ArrayAggregate, input: Arc<dyn ExecutionPlan>) -> Self {
        let partitions = match &what.ranges {
            Some(ranges) => ranges.threads,
            None => input.output_partitioning().partition_count(),
        };
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&what.schema)),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Self {
            what,
            input,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
            run: Mutex::default(),
        }
    }

    fn whole(&self, context: &Arc<TaskContext>) -> Result<Whole> {
        let mut run = self.run.lock().unwrap_or_else(PoisonError::into_inner);
        let whole = match run.whole.take() {
            Some(whole) => whole,
            None => self.start(context)?,
        };
        run.whole = Some(whole.clone());
        run.asked += 1;
        if run.asked == self.properties.output_partitioning().partition_count() {
            *run = Run::default();
        }
        Ok(whole)
    }

    fn start(&self, context: &Arc<TaskContext>) -> Result<Whole> {
        let groups = MetricBuilder::new(&self.metrics).global_counter("groups");
        if let Some(ranges) = &self.what.ranges {
            return Ok(self.start_ranges(ranges, context, groups));
        }
        let side = match &self.what.lookup {
            Some(lookup) => Some(self.read_side(lookup, context)?),
            None => None,
        };
        let partitions = self.input.output_partitioning().partition_count();
        let parts = if self.what.one_id { partitions } else { 1 };
        let mut work = Vec::new();
        for partition in 0..partitions {
            let input = self.input.execute(partition, Arc::clone(context))?;
            let baseline = BaselineMetrics::new(&self.metrics, partition);
            let memory = || MemoryConsumer::new(ARRAYS).register(context.memory_pool());
            let grouped = (0..parts).map(|_| Groups::new(self.what.clone(), memory()));
            let grouped = Parts { parts: grouped.collect::<Result<_>>()?, seen: Seen::default() };
            work.push(grouped.take_all(side.clone(), input, baseline));
        }
        let batch_rows = context.session_config().batch_size();
        let whole = async move {
            // Not before somebody asks: a join above may first say which ids it wants.
            let threads: Vec<_> = work.into_iter().map(SpawnedTask::spawn).collect();
            let mut seen = Seen::default();
            let mut of_threads: Vec<Vec<Groups>> = (0..parts).map(|_| Vec::new()).collect();
            for thread in threads {
                let found = ended(thread.join().await)?;
                seen.merge(&found.seen);
                let each = of_threads.iter_mut().zip(found.parts);
                each.for_each(|(part, groups)| part.push(groups));
            }
            let seen = Arc::new(seen);
            let merged = of_threads.into_iter().map(|groups| {
                let seen = Arc::clone(&seen);
                SpawnedTask::spawn(async move { Groups::whole(groups, &seen, batch_rows) })
            });
            let merged: Vec<_> = merged.collect();
            let mut batches = Vec::with_capacity(parts);
            for part in merged {
                let batch = ended(part.join().await)?;
                groups.add(batch.num_rows());
                batches.push(batch);
            }
            Ok(batches.into())
        };
        Ok(whole.map_err(Arc::new).boxed().shared())
    }

    fn start_ranges(&self, ranges: &Ranges, context: &Arc<TaskContext>, groups: Count) -> Whole {
        let next = Arc::new(AtomicUsize::new(0));
        let thread = |number: usize| {
            let thread = OfRanges {
                what: self.what.clone(),
                input: Arc::clone(&self.input),
                context: Arc::clone(context),
                baseline: BaselineMetrics::new(&self.metrics, number),
            };
            thread.take_all(Arc::clone(&next), ranges.count)
        };
        let work: Vec<_> = (0..ranges.threads).map(thread).collect();
        let whole = async move {
            let threads: Vec<_> = work.into_iter().map(SpawnedTask::spawn).collect();
            let mut batches = Vec::new();
            for thread in threads {
                batches.extend(ended(thread.join().await)?);
            }
            groups.add(batches.iter().map(RecordBatch::num_rows).sum());
            Ok(batches.into())
        };
        whole.map_err(Arc::new).boxed().shared()
    }

    fn read_side(&self, lookup: &GroupJoin, context: &Arc<TaskContext>) -> Result<BuildRead> {
        let rows = lookup.side.execute(0, Arc::clone(context))?;
        let memory = MemoryConsumer::new("GroupJoinBuild").register(context.memory_pool());
        let (lookup, context) = (lookup.clone(), Arc::clone(context));
        let read = GroupJoinBuild::read(lookup, rows, memory, context);
        let counter = MetricBuilder::new(&self.metrics).global_counter("lookup_rows");
        let side = async move {
            let side = read.await?;
            counter.add(side.len());
            Ok::<_, DataFusionError>(Arc::new(side))
        };
        Ok(side.map_err(Arc::new).boxed().shared())
    }
}

fn ended<T>(joined: Result<Result<T>, JoinError>) -> Result<T> {
    joined.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))?
}

/// A thread that takes one range after the other.
struct OfRanges {
    what: ArrayAggregate,
    input: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    baseline: BaselineMetrics,
}

impl OfRanges {
    /// The groups of each range that was not taken by another thread: `next` is the next one.
    async fn take_all(self, next: Arc<AtomicUsize>, ranges: usize) -> Result<Vec<RecordBatch>> {
        let mut batches = Vec::new();
        loop {
            let range = next.fetch_add(1, Ordering::Relaxed);
            if range >= ranges {
                return Ok(batches);
            }
            // After an error the others need not go on.
            let failed = |_: &DataFusionError| next.store(ranges, Ordering::Relaxed);
            let groups = self.take(range).await.inspect_err(failed)?;
            if groups.num_rows() > 0 {
                batches.push(groups);
            }
        }
    }

    async fn take(&self, range: usize) -> Result<RecordBatch> {
        let memory = MemoryConsumer::new(ARRAYS).register(self.context.memory_pool());
        let mut groups = Groups::new(self.what.clone(), memory)?;
        groups.slots.iter_mut().for_each(Slot::expect_order);
        let mut rows = RowGroups::default();
        let mut input = self.input.execute(range, Arc::clone(&self.context))?;
        while let Some(batch) = input.next().await {
            let _timer = self.baseline.elapsed_compute().timer();
            groups.add(&batch?, None, &mut rows)?;
        }
        let _timer = self.baseline.elapsed_compute().timer();
        groups.finish()
    }
}

/// What a thread has seen.
struct Parts {
    parts: Vec<Groups>,
    /// Of the other side of an outer join, unless its rows are the groups.
    seen: Seen,
}

impl Parts {
    async fn take_all(
        mut self,
        side: Option<BuildRead>,
        mut input: SendableRecordBatchStream,
        baseline: BaselineMetrics,
    ) -> Result<Self> {
        let side = match side {
            Some(side) => Some(side.await.map_err(DataFusionError::Shared)?),
            None => None,
        };
        if let Some(side) = &side {
            let share = side.len().div_ceil(self.parts.len().max(1));
            for (part, groups) in self.parts.iter_mut().enumerate() {
                let end = |part: usize| (part * share).min(side.len());
                groups.look_up_in(Arc::clone(side), end(part)..end(part + 1));
            }
        }
        let mut rows = RowGroups::default();
        while let Some(batch) = input.next().await {
            let _timer = baseline.elapsed_compute().timer();
            let batch = batch?;
            match &side {
                Some(side) => {
                    let joined = side.join(&batch)?;
                    if side.is_outer() && !side.is_by_key() {
                        self.seen.add(&joined.partners);
                    }
                    self.add(&joined.batch, Some(&joined.partners), &mut rows)?;
                }
                None => self.add(&batch, None, &mut rows)?,
            }
        }
        Ok(self)
    }

    /// Adds rows to the parts that their groups are in.
    fn add(
        &mut self,
        batch: &RecordBatch,
        partners: Option<&[u32]>,
        rows: &mut RowGroups,
    ) -> Result<()> {
        let count = self.parts.len();
        let Some(first) = self.parts.first_mut() else { return Ok(()) };
        if count == 1 || batch.num_rows() == 0 {
            return first.add(batch, partners, rows);
        }
        let columns = first.columns(batch, partners)?;
        let pieces = match columns[0].as_primitive_opt::<Int32Type>() {
            Some(ids) => pieces_of_ids(ids, count),
            None => {
                let share = first.partners.len().max(1);
                pieces_of_partners(columns[0].as_primitive::<UInt32Type>().values(), share, count)
            }
        };
        if pieces.len() <= PIECES_MAX {
            for (part, range) in pieces {
                let piece = batch.slice(range.start, range.len());
                let partners = partners.map(|partners| &partners[range.clone()]);
                self.parts[part].add(&piece, partners, rows)?;
            }
            return Ok(());
        }
        for (part, groups) in self.parts.iter_mut().enumerate() {
            let here = || pieces.iter().filter(|(of_piece, _)| *of_piece == part);
            let numbers = || here().flat_map(|(_, range)| range.clone());
            let mut mask = vec![false; batch.num_rows()];
            here().for_each(|(_, range)| mask[range.clone()].fill(true));
            let piece = filter_record_batch(batch, &BooleanArray::from(mask))?;
            let partners: Option<Vec<u32>> =
                partners.map(|partners| numbers().map(|row| partners[row]).collect());
            groups.add(&piece, partners.as_deref(), rows)?;
        }
        Ok(())
    }
}

/// Ranges of rows that are in one part. Rows without an id are in the first.
fn pieces_of_ids(ids: &Int32Array, parts: usize) -> Vec<(usize, Range<usize>)> {
    let (values, nulls) = (ids.values(), ids.nulls());
    let of_id = |row: usize| values[row] as u32 / IDS_TOGETHER;
    let Some(nulls) = nulls else {
        return pieces_of(values.len(), of_id, |ids| ids as usize % parts);
    };
    let together = |row: usize| nulls.is_valid(row).then(|| of_id(row));
    pieces_of(values.len(), together, |ids| ids.map_or(0, |ids| ids as usize % parts))
}

/// The same of rows of the other side, of which `share` are together. Those without a partner are where
/// the row before them is: every part has a group that is not handed out.
fn pieces_of_partners(partners: &[u32], share: usize, parts: usize) -> Vec<(usize, Range<usize>)> {
    // Mostly all are in one part. After NONE comes 0.
    let bounds = |(least, after): (u32, u32), partner: &u32| {
        (least.min(*partner), after.max(partner.wrapping_add(1)))
    };
    let (least, after) = partners.iter().fold((NO_MATCH, 0), bounds);
    let part_of = |partner: u32| (partner as usize / share).min(parts - 1);
    if after == 0 || part_of(least) == part_of(after - 1) {
        let part = if after == 0 { 0 } else { part_of(least) };
        return vec![(part, 0..partners.len())];
    }
    let mut last = 0..0;
    let mut part = 0;
    let together = |row: usize| {
        let partner = partners[row];
        if partner != NO_MATCH && !last.contains(&(partner as usize)) {
            part = part_of(partner);
            last = part * share..(part + 1) * share;
        }
        part
    };
    pieces_of(partners.len(), together, |part| part)
}

/// Ranges of rows that are in one part: all that are `together` are.
fn pieces_of<T: PartialEq + Copy>(
    rows: usize,
    mut together: impl FnMut(usize) -> T,
    part_of: impl Fn(T) -> usize,
) -> Vec<(usize, Range<usize>)> {
    let mut pieces: Vec<(usize, Range<usize>)> = Vec::new();
    let mut before = None;
    for row in 0..rows {
        let here = together(row);
        if before == Some(here) {
            continue;
        }
        before = Some(here);
        let part = part_of(here);
        match pieces.last_mut() {
            None => pieces.push((part, 0..rows)),
            Some((same, _)) if *same == part => {}
            Some((_, range)) => {
                range.end = row;
                pieces.push((part, row..rows));
            }
        }
    }
    pieces
}

/// The groups of the rows that one thread, or several, have seen.
struct Groups {
    what: ArrayAggregate,
    keys: Keys,
    slots: Vec<Slot>,
    /// Of each group.
    rows: Vec<i64>,
    side: Option<Arc<GroupJoinBuild>>,
    /// Rows of the other side whose groups are here.
    partners: Range<usize>,
    memory: MemoryReservation,
}

impl Groups {
    fn new(what: ArrayAggregate, memory: MemoryReservation) -> Result<Self> {
        let slots = SumPlan::start_all(&what.sums)?;
        let keys = what.keys();
        Ok(Self { what, keys, slots, rows: Vec::new(), side: None, partners: 0..0, memory })
    }

    fn look_up_in(&mut self, side: Arc<GroupJoinBuild>, partners: Range<usize>) {
        if side.is_by_key() {
            self.keys = side.keys(partners.clone());
            self.slots.iter_mut().for_each(Slot::expect_empty_groups);
        }
        self.partners = partners;
        self.side = Some(side);
    }

    /// What rows are grouped by.
    fn columns(&self, batch: &RecordBatch, partners: Option<&[u32]>) -> Result<Vec<ArrayRef>> {
        let of_rows = self.what.columns.iter().filter_map(Group::expression);
        let of_rows = of_rows.map(|column| column.evaluate(batch)?.into_array(batch.num_rows()));
        let mut columns = of_rows.collect::<Result<Vec<_>>>()?;
        if let (Some(side), Some(partners)) = (&self.side, partners) {
            columns.push(side.groups(partners));
        }
        Ok(columns)
    }

    /// Adds rows; joined ones with their `partners`.
    fn add(
        &mut self,
        batch: &RecordBatch,
        partners: Option<&[u32]>,
        rows: &mut RowGroups,
    ) -> Result<()> {
        let columns = self.columns(batch, partners)?;
        rows.find(&mut self.keys, &columns)?;
        if self.keys.is_too_long() {
            return Err(Unfit::TooManyGroups.into());
        }
        let count = self.keys.len();
        self.rows.resize(count, 0);
        rows.add_to_each(&mut self.rows, 1);
        let mut held = Held::default();
        for slot in &mut self.slots {
            slot.add(batch, rows, &mut held, count)?;
        }
        self.account()
    }

    fn account(&mut self) -> Result<()> {
        let slots: usize = self.slots.iter().map(Slot::size).sum();
        let bytes = self.keys.size() + slots + self.rows.capacity() * size_of::<i64>();
        let held = self.memory.size();
        if bytes > held || bytes + 2 * MEMORY_STEP < held {
            self.memory.try_resize(bytes.next_multiple_of(MEMORY_STEP))?;
        }
        Ok(())
    }

    fn merge(&mut self, other: Self) -> Result<()> {
        if other.rows.is_empty() {
            return Ok(());
        }
        let mut groups = Vec::new();
        self.keys.merge(&other.keys, &mut groups)?;
        let count = self.keys.len();
        self.rows.resize(count, 0);
        other.rows.iter().zip(&groups).for_each(|(more, group)| self.rows[*group] += more);
        for (slot, more) in self.slots.iter_mut().zip(other.slots) {
            slot.merge(more, &groups, count)?;
        }
        self.account()
    }

    /// The groups of all threads. `seen`: rows of a lookup's other side that have had a partner, if they
    /// are not the groups.
    fn whole(mut of_threads: Vec<Self>, seen: &Seen, batch_rows: usize) -> Result<RecordBatch> {
        // The largest takes in the others.
        of_threads.sort_by_key(|groups| groups.keys.len());
        let nothing = || DataFusionError::Internal("an aggregate has no threads".into());
        let mut whole = of_threads.pop().ok_or_else(nothing)?;
        for other in of_threads {
            whole.merge(other)?;
        }
        if let Some(side) = whole.side.clone().filter(|side| side.is_outer()) {
            let mut rows = RowGroups::default();
            let Range { start, end } = whole.partners;
            for from in (start..end).step_by(batch_rows.max(1)) {
                let rows_of = &whole.rows;
                let is_seen = |row: usize| match side.is_by_key() {
                    true => rows_of.get(row - start).is_some_and(|rows| *rows > 0),
                    false => seen.has(row),
                };
                let unseen = side.unseen(from..(from + batch_rows).min(end), is_seen)?;
                if let Some(joined) = unseen {
                    whole.add(&joined.batch, Some(&joined.partners), &mut rows)?;
                }
            }
        }
        whole.finish()
    }

    fn finish(self) -> Result<RecordBatch> {
        let mut values = self.keys.values()?;
        let (mut joined, mut rows) = (None, self.rows.as_slice());
        if let Some(side) = &self.side {
            if side.is_by_key() {
                // The last group is that of rows without a partner; there are none if no row came.
                rows = rows.get(..self.partners.len()).unwrap_or_default();
            } else {
                joined = values.pop().map(|of_side| (Arc::clone(side), of_side));
            }
        }
        let mut values = values.into_iter();
        let mut columns = Vec::with_capacity(self.what.schema.fields().len());
        for column in &self.what.columns {
            let from_rows = || DataFusionError::Internal("a group has too few columns".into());
            columns.push(match (column, &joined) {
                (Group::BuildSide(column), Some((side, of_side))) => {
                    side.values(*column, of_side)?
                }
                _ => values.next().ok_or_else(from_rows)?,
            });
        }
        let sums: Vec<_> = self.slots.iter().map(|slot| slot.sums_of_other(&self.slots)).collect();
        for (slot, sums) in self.slots.into_iter().zip(sums) {
            let of_key = |place: usize| match &self.side {
                Some(side) => Ok(side.of_key(place, self.partners.clone())),
                None => Err(DataFusionError::Internal("a group has no other side".into())),
            };
            columns.push(slot.finish(&self.rows, sums, of_key)?);
        }
        let kept: Option<BooleanArray> = match (self.side, joined) {
            (Some(_), None) => {
                columns.iter_mut().for_each(|column| *column = column.slice(0, rows.len()));
                rows.contains(&0).then(|| rows.iter().map(|rows| Some(*rows > 0)).collect())
            }
            (_, Some((_, of_side))) => {
                let of_side = of_side.as_primitive::<UInt32Type>().values();
                Some(of_side.iter().map(|group| Some(*group != NO_MATCH_GROUP)).collect())
            }
            (None, None) => None,
        };
        if let Some(kept) = kept {
            columns = columns.iter().map(|c| filter(c, &kept)).collect::<Result<_, _>>()?;
        }
        if let Some(order) = self.keys.in_order() {
            columns = columns.iter().map(|c| take(c, &order, None)).collect::<Result<_, _>>()?;
        }
        Ok(RecordBatch::try_new(self.what.schema, columns)?)
    }
}

impl DisplayAs for ArrayAggregateExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let aggregates = self.what.names(self.what.columns.len(), self.what.schema.fields().len());
        write!(f, "ArrayAggregateExec: gby=[{}], aggr=[{aggregates}]", self.what.group_names())?;
        match (&self.what.lookup, &self.what.ranges) {
            (Some(lookup), _) => write!(f, ", {lookup}"),
            (None, Some(ranges)) => write!(f, ", ranges={}", ranges.count),
            (None, None) => Ok(()),
        }
    }
}

impl ExecutionPlan for ArrayAggregateExec {
    fn name(&self) -> &'static str {
        "ArrayAggregateExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        let side = self.what.lookup.as_ref().map(|lookup| &lookup.side);
        std::iter::once(&self.input).chain(side).collect()
    }

    /// What says which groups are wanted says which rows are.
    fn gather_filters_for_pushdown(
        &self,
        _: FilterPushdownPhase,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        _: &ConfigOptions,
    ) -> Result<FilterDescription> {
        if self.joins() {
            return Ok(FilterDescription::all_unsupported(&filters, &self.children()));
        }
        let below = self.input.schema();
        let is_same = |(at, group): (usize, &Group)| {
            let column = group.expression()?.downcast_ref::<Column>()?;
            // Columns are told by their names there.
            let name = self.what.schema.field(at).name();
            let place = below.index_of(name).ok().filter(|_| column.name() == name);
            (place == Some(column.index())).then_some(at)
        };
        let columns = self.what.columns.iter().enumerate().filter_map(is_same).collect();
        let input = &self.input;
        let wanted =
            ChildFilterDescription::from_child_with_allowed_indices(&filters, columns, input)?;
        Ok(FilterDescription::new().with_child(wanted))
    }

    fn dynamic_expressions_produced(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        let wanted = self.what.lookup.as_ref().and_then(|lookup| lookup.wanted.as_ref());
        wanted.map(|wanted| Arc::clone(&wanted.filter)).into_iter().collect()
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for expr in self.what.expressions() {
            if visit(expr)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut what = self.what.clone();
        let missing = || DataFusionError::Internal("an aggregate has one input".into());
        if let Some(lookup) = &mut what.lookup {
            lookup.side = children.pop().ok_or_else(missing)?;
        }
        let input = children.pop().ok_or_else(missing)?;
        Ok(Arc::new(Self::over(what, input)))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(
            children,
            ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute),
        )
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let whole = self.whole(&context)?;
        let (parts, rows) = (
            self.properties.output_partitioning().partition_count(),
            context.session_config().batch_size(),
        );
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let batches = async move {
            let whole = whole.await.map_err(DataFusionError::Shared)?;
            let mut pieces = Vec::new();
            for batch in whole.iter() {
                let share = batch.num_rows().div_ceil(parts);
                let start = (share * partition).min(batch.num_rows());
                let end = (start + share).min(batch.num_rows());
                let piece = |from: usize| batch.slice(from, rows.min(end - from));
                pieces.extend((start..end).step_by(rows.max(1)).map(piece));
            }
            let pieces = pieces.into_iter().map(move |piece| {
                baseline.record_output(piece.num_rows());
                Ok(piece)
            });
            Ok::<_, DataFusionError>(futures::stream::iter(pieces))
        };
        let stream = futures::stream::once(batches).flat_map(|pieces| match pieces {
            Ok(pieces) => pieces.left_stream(),
            Err(error) => futures::stream::iter([Err(error)]).right_stream(),
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.what.schema), stream)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn child_stats_requests(&self, _: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(None); self.children().len()]
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.what.schema);
        // At most as many groups as rows.
        if let Some(input) = inputs.first() {
            statistics.num_rows = input.num_rows.to_inexact();
        }
        Ok(Arc::new(statistics))
    }
}
