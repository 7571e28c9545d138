//! The operator: every thread its own groups, merged when all have come to their ends.
//!
//! Groups by ids are in as many parts as there are threads, by ranges of ids, so that they are merged
//! and handed out by all threads, too. Files are sorted by ids: a batch is mostly of one part. Where the
//! input itself comes by ranges of ids ([`Ranges`]), each is grouped by one thread, and nothing is merged.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, Statistics};
use datafusion::execution::memory_pool::MemoryConsumer;
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

use crate::cache::pool::ARRAYS;
use crate::operators::array_aggregate::aggregate::{ArrayAggregate, Group, Otherwise, Ranges};
use crate::operators::array_aggregate::expressions::with_columns;
use crate::operators::array_aggregate::group_join::{GroupJoin, GroupJoinBuild, Seen};
use crate::operators::array_aggregate::groups::{BuildRead, Groups, Parts};
use crate::operators::array_aggregate::rows::RowGroups;
use crate::operators::array_aggregate::sums::{Slot, SumPlan};

/// Columns of a lookup's other side have numbers from here on, see
/// [`ArrayAggregateExec::input_expressions`].
pub(crate) const SIDE_COLUMNS: usize = 1 << 20;
/// `GROUP BY` of an id or of columns of few values.
#[derive(Debug)]
pub(crate) struct ArrayAggregateExec {
    pub(crate) what: ArrayAggregate,
    pub(crate) input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    run: Mutex<Run>,
}

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
