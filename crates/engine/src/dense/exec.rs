//! The operator: every thread its own groups, merged as threads come to an end.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, Statistics};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
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

use super::keys::Keys;
use super::sums::{Plan, Slot};
use super::too_many;

/// Bytes by which a thread's groups grow before it asks for more.
const MEMORY_STEP: usize = 1 << 20;

/// `GROUP BY` of an id or of columns of few values.
#[derive(Debug)]
pub(crate) struct DenseAggregateExec {
    what: What,
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    run: Mutex<Run>,
}

#[derive(Clone, Debug)]
struct What {
    schema: SchemaRef,
    columns: Vec<Arc<dyn PhysicalExpr>>,
    types: Vec<DataType>,
    one_id: bool,
    sums: Vec<Plan>,
}

impl What {
    fn names(&self, from: usize, to: usize) -> String {
        let fields = self.schema.fields()[from..to].iter();
        fields.map(|field| field.name().as_str()).collect::<Vec<_>>().join(", ")
    }

    fn group_names(&self) -> String {
        self.names(0, self.columns.len())
    }
}

/// All groups, once every thread has come to its end.
type Whole = Shared<BoxFuture<'static, Result<RecordBatch, Arc<DataFusionError>>>>;

/// The answer while there are partitions that have not asked for it.
#[derive(Debug, Default)]
struct Run {
    whole: Option<Whole>,
    asked: usize,
}

impl DenseAggregateExec {
    /// `plan`: what this takes the place of. `input`: what it groups.
    pub(super) fn new(
        plan: &Arc<dyn ExecutionPlan>,
        input: &Arc<dyn ExecutionPlan>,
        columns: Vec<Arc<dyn PhysicalExpr>>,
        types: Vec<DataType>,
        one_id: bool,
        sums: Vec<Plan>,
    ) -> Self {
        let schema = plan.schema();
        Self::over(What { schema, columns, types, one_id, sums }, Arc::clone(input))
    }

    /// What the rows are grouped by.
    pub fn group_names(&self) -> String {
        self.what.group_names()
    }

    fn over(what: What, input: Arc<dyn ExecutionPlan>) -> Self {
        let partitions = input.output_partitioning().partition_count();
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
        run.asked += 1;
        if run.asked < self.properties.output_partitioning().partition_count() {
            run.whole = Some(whole.clone());
        } else {
            run.asked = 0;
        }
        Ok(whole)
    }

    fn start(&self, context: &Arc<TaskContext>) -> Result<Whole> {
        let meeting: Arc<Mutex<Option<Groups>>> = Arc::default();
        let groups = MetricBuilder::new(&self.metrics).global_counter("groups");
        let mut threads = Vec::new();
        for partition in 0..self.input.output_partitioning().partition_count() {
            let input = self.input.execute(partition, Arc::clone(context))?;
            let consumer = MemoryConsumer::new("DenseAggregate").register(context.memory_pool());
            let baseline = BaselineMetrics::new(&self.metrics, partition);
            let grouped = Groups::new(self.what.clone(), consumer)?;
            let meeting = Arc::clone(&meeting);
            threads.push(SpawnedTask::spawn(grouped.take_all(input, baseline, meeting)));
        }
        let what = self.what.clone();
        let whole = async move {
            for thread in threads {
                thread.join().await.map_err(|e| DataFusionError::ExecutionJoin(Box::new(e)))??;
            }
            let last = meeting.lock().unwrap_or_else(PoisonError::into_inner).take();
            match last {
                Some(last) => last.finish(&groups),
                None => Ok(RecordBatch::new_empty(what.schema)),
            }
        };
        Ok(whole.map_err(Arc::new).boxed().shared())
    }
}

/// The groups of the rows that one thread, or several, have seen.
struct Groups {
    what: What,
    keys: Keys,
    slots: Vec<Slot>,
    /// Of each group.
    rows: Vec<i64>,
    memory: MemoryReservation,
}

impl Groups {
    fn new(what: What, memory: MemoryReservation) -> Result<Self> {
        let slots = what.sums.iter().map(Plan::start).collect::<Result<_>>()?;
        let keys = Keys::new(&what.types, what.one_id);
        Ok(Self { what, keys, slots, rows: Vec::new(), memory })
    }

    /// Groups all of `input`, then merges with the threads that have come to their ends before.
    async fn take_all(
        mut self,
        mut input: SendableRecordBatchStream,
        baseline: BaselineMetrics,
        meeting: Arc<Mutex<Option<Self>>>,
    ) -> Result<()> {
        let mut groups = Vec::new();
        while let Some(batch) = input.next().await {
            let _timer = baseline.elapsed_compute().timer();
            self.add(&batch?, &mut groups)?;
        }
        drop(input);
        let _timer = baseline.elapsed_compute().timer();
        let lock = || meeting.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let mut waiting = lock();
            let Some(mut other) = waiting.take() else {
                *waiting = Some(self);
                return Ok(());
            };
            drop(waiting);
            // The larger one takes in the smaller.
            if other.keys.len() > self.keys.len() {
                std::mem::swap(&mut self, &mut other);
            }
            self.merge(other)?;
        }
    }

    fn add(&mut self, batch: &RecordBatch, groups: &mut Vec<usize>) -> Result<()> {
        let columns: Vec<ArrayRef> = self
            .what
            .columns
            .iter()
            .map(|column| column.evaluate(batch)?.into_array(batch.num_rows()))
            .collect::<Result<_>>()?;
        self.keys.find(&columns, groups)?;
        if self.keys.is_too_long() {
            return Err(too_many(&self.what.group_names()));
        }
        let count = self.keys.len();
        self.rows.resize(count, 0);
        groups.iter().for_each(|group| self.rows[*group] += 1);
        for slot in &mut self.slots {
            slot.add(batch, groups, count)?;
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
        let mut groups = Vec::new();
        self.keys.find(&other.keys.values()?, &mut groups)?;
        let count = self.keys.len();
        self.rows.resize(count, 0);
        other.rows.iter().zip(&groups).for_each(|(more, group)| self.rows[*group] += more);
        for (slot, more) in self.slots.iter_mut().zip(other.slots) {
            slot.merge(more, &groups, count)?;
        }
        self.account()
    }

    fn finish(self, groups: &Count) -> Result<RecordBatch> {
        groups.add(self.keys.len());
        let mut columns = self.keys.values()?;
        for slot in self.slots {
            columns.push(slot.finish(&self.rows)?);
        }
        Ok(RecordBatch::try_new(self.what.schema, columns)?)
    }
}

impl DisplayAs for DenseAggregateExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let aggregates = self.what.names(self.what.columns.len(), self.what.schema.fields().len());
        write!(f, "DenseAggregateExec: gby=[{}], aggr=[{aggregates}]", self.group_names())
    }
}

impl ExecutionPlan for DenseAggregateExec {
    fn name(&self) -> &'static str {
        "DenseAggregateExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let expressions =
            self.what.columns.iter().chain(self.what.sums.iter().flat_map(Plan::expressions));
        for expr in expressions {
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
        let input = children
            .pop()
            .ok_or_else(|| DataFusionError::Internal("an aggregate has one input".into()))?;
        Ok(Arc::new(Self::over(self.what.clone(), input)))
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
            let share = whole.num_rows().div_ceil(parts);
            let start = (share * partition).min(whole.num_rows());
            let end = (start + share).min(whole.num_rows());
            let pieces = (start..end).step_by(rows.max(1)).map(move |from| {
                let piece = whole.slice(from, rows.min(end - from));
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
        vec![ChildStats::At(None)]
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
