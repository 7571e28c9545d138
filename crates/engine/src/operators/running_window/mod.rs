//! Window functions of the rows so far, over rows that are sorted by partition and order.
//!
//! DataFusion's `BoundedWindowAggExec` keeps a batch, a state and a result for each partition of the window, and
//! evaluates row by row. Of events by user there are a few rows in each of very many partitions; here a function
//! goes over a whole batch and begins anew where a partition does.
//!
//! ```text
//! user_id    a  a  a  b  b │ b  c         a batch ends where it ends, not where a partition does
//! position   0  1  2  0  1 │ 2  0
//! max(x)     3  3  7  1  1 │ 4  2         ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
//! ```
//!
//! # Invariants
//! - Rows are handed out as soon as nothing after them counts: at once, or (`lead`, frames that end with the peers
//!   of a row) when the rows that count are there. What waits for them is of the memory budget.
//!
//! # Not here
//! Which windows are computed so: [`crate::optimizer::running_windows`].

mod functions;

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use datafusion::arrow::compute::{concat, concat_batches, partition};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::windows::BoundedWindowAggExec;
use datafusion::physical_plan::{ExecutionPlan, PlanProperties};
use futures::{StreamExt, TryStreamExt, stream};

use crate::base::one_input::{OneInput, OneInputExec};

pub(crate) use functions::{Call, Function};
use functions::{Running, Step, copied, too_many};

/// Computes [`Call`]s for each row of its input, behind the input's columns.
pub(crate) type RunningWindowExec = OneInputExec<RunningWindow>;

/// See [`RunningWindowExec`].
#[derive(Clone, Debug)]
pub(crate) struct RunningWindow {
    calls: Vec<Call>,
    partition_by: Vec<Arc<dyn PhysicalExpr>>,
    /// What makes rows peers, if that counts.
    order_by: Vec<Arc<dyn PhysicalExpr>>,
    names: Vec<String>,
    properties: Arc<PlanProperties>,
}

impl RunningWindow {
    /// What `window` computes, by `calls`, one for each of its expressions.
    pub fn of(window: &BoundedWindowAggExec, calls: Vec<Call>) -> Self {
        let functions = window.window_expr();
        let first = functions.first();
        let partition_by = first.map_or_else(Vec::new, |first| first.partition_by().to_vec());
        let peers = first.filter(|_| calls.iter().any(Call::looks_at_peers));
        let order_by = peers.map_or(&[][..], |first| first.order_by());
        Self {
            calls,
            partition_by,
            order_by: order_by.iter().map(|sort| Arc::clone(&sort.expr)).collect(),
            names: functions.iter().map(|function| function.name().to_owned()).collect(),
            properties: Arc::clone(window.properties()),
        }
    }
}

impl OneInput for RunningWindow {
    const NAME: &'static str = "RunningWindowExec";

    fn details(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ": wdw=[{}]", self.names.join(", "))
    }

    fn properties(&self, _: &Arc<dyn ExecutionPlan>) -> Arc<PlanProperties> {
        Arc::clone(&self.properties)
    }

    fn expressions(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        let arguments = self.calls.iter().filter_map(|call| call.argument.as_ref());
        arguments.chain(&self.partition_by).chain(&self.order_by).collect()
    }

    fn again(&self) -> Self {
        self.clone()
    }

    fn rows(
        &self,
        input: &Arc<dyn ExecutionPlan>,
        metrics: &ExecutionPlanMetricsSet,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let name = format!("RunningWindow[{partition}]");
        let memory = MemoryConsumer::new(name).register(context.memory_pool());
        let schema = Arc::clone(self.properties.equivalence_properties().schema());
        let baseline = BaselineMetrics::new(metrics, partition);
        let mut rows = Windows::new(self.clone(), Arc::clone(&schema), memory)?;
        let input = input.execute(partition, context)?;
        let batches = input.map_ok(Some).chain(stream::iter([Ok(None)])).map(move |batch| {
            let _timer = baseline.elapsed_compute().timer();
            let done = match batch? {
                Some(batch) => rows.take(batch)?,
                None => rows.finish()?,
            };
            baseline.record_output(done.as_ref().map_or(0, RecordBatch::num_rows));
            Ok::<_, DataFusionError>(done)
        });
        let batches = batches.try_filter_map(async |batch| Ok(batch));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}

/// One partition of the plan, as its rows come.
struct Windows {
    window: RunningWindow,
    schema: SchemaRef,
    running: Vec<Box<dyn Running>>,
    /// Rows that have come and wait for others.
    waiting: Vec<RecordBatch>,
    memory: MemoryReservation,
    /// The last row handed out: what the window is by, and the row's place.
    last: Option<Last>,
    /// How many rows after a row count for it.
    ahead: usize,
    /// Does it count whether rows are peers, and do they wait for each other?
    looks_at_peers: bool,
    waits_for_peers: bool,
}

struct Last {
    partition_by: Vec<ArrayRef>,
    order_by: Vec<ArrayRef>,
    position: u64,
}

impl Windows {
    fn new(window: RunningWindow, schema: SchemaRef, memory: MemoryReservation) -> Result<Self> {
        let own = schema.fields().len().saturating_sub(window.calls.len());
        let fields = &schema.fields()[own..];
        let running =
            window.calls.iter().zip(fields).map(|(call, field)| call.running(field.data_type()));
        Ok(Self {
            running: running.collect::<Result<_>>()?,
            waiting: Vec::new(),
            memory,
            last: None,
            ahead: window.calls.iter().map(Call::rows_ahead).max().unwrap_or(0),
            looks_at_peers: window.calls.iter().any(Call::looks_at_peers),
            waits_for_peers: window.calls.iter().any(|call| call.to_last_peer),
            window,
            schema,
        })
    }

    /// The rows that are done now that these are there.
    fn take(&mut self, batch: RecordBatch) -> Result<Option<RecordBatch>> {
        if batch.num_rows() == 0 {
            return Ok(None);
        }
        if self.waits_for_peers && self.is_all_peers(&batch)? {
            self.hold(batch)?;
            return Ok(None);
        }
        self.waiting.push(batch);
        self.hand_out(false)
    }

    fn finish(&mut self) -> Result<Option<RecordBatch>> {
        self.hand_out(true)
    }

    fn hold(&mut self, batch: RecordBatch) -> Result<()> {
        self.memory.try_grow(batch.get_array_memory_size())?;
        self.waiting.push(batch);
        Ok(())
    }

    /// Are all rows peers of the last that waits? As they are sorted, the last of them tells.
    fn is_all_peers(&self, batch: &RecordBatch) -> Result<bool> {
        let Some(waiting) = self.waiting.last() else { return Ok(false) };
        let of = |batch: &RecordBatch| {
            let row = batch.slice(batch.num_rows() - 1, 1);
            let mut keys = evaluated(&self.window.partition_by, &row)?;
            keys.extend(evaluated(&self.window.order_by, &row)?);
            Ok::<_, DataFusionError>(keys)
        };
        Ok(!differ(&of(waiting)?, &of(batch)?)?)
    }

    fn hand_out(&mut self, is_end: bool) -> Result<Option<RecordBatch>> {
        let Some(first) = self.waiting.first() else { return Ok(None) };
        let rows = match self.waiting.as_slice() {
            [rows] => rows.clone(),
            rows => concat_batches(&first.schema(), rows)?,
        };
        let partition_by = evaluated(&self.window.partition_by, &rows)?;
        let order_by = evaluated(&self.window.order_by, &rows)?;
        let count = rows.num_rows();
        let last = self.last.as_ref();
        let starts = starts(&partition_by, last.map(|last| last.partition_by.as_slice()), count)?;
        let position = positions(&starts, last.map(|last| last.position), count);
        let mut peers = Vec::new();
        if self.looks_at_peers {
            let keys = [partition_by.as_slice(), &order_by].concat();
            let last = last.map(|last| [last.partition_by.as_slice(), &last.order_by].concat());
            peers = self::starts(&keys, last.as_deref(), count)?;
        }
        let mut done = if is_end { count } else { count.saturating_sub(self.ahead) };
        if self.waits_for_peers && !is_end {
            // The last peers may not all be there.
            let complete = peers.partition_point(|start| *start <= done);
            done = peers[..complete].last().copied().unwrap_or(0);
        }
        self.memory.free();
        self.waiting.clear();
        let left = rows.slice(done, count - done);
        if left.num_rows() > 0 {
            self.hold(left)?;
        }
        if done == 0 {
            return Ok(None);
        }
        let step = Step::new(&position, &peers, done);
        let mut columns = rows.slice(0, done).columns().to_vec();
        for (call, running) in self.window.calls.iter().zip(&mut self.running) {
            let argument = call.argument.as_ref();
            let values = argument.map(|argument| value(argument, &rows)).transpose()?;
            columns.push(running.next(&step, values.as_ref())?);
        }
        let at_end = |columns: &[ArrayRef]| -> Result<Vec<ArrayRef>> {
            let row = UInt32Array::from(vec![u32::try_from(done - 1).map_err(too_many)?]);
            columns.iter().map(|values| copied(values, &row)).collect()
        };
        self.last = Some(Last {
            partition_by: at_end(&partition_by)?,
            order_by: at_end(&order_by)?,
            position: position[done - 1],
        });
        Ok(Some(RecordBatch::try_new(Arc::clone(&self.schema), columns)?))
    }
}

fn value(expr: &Arc<dyn PhysicalExpr>, rows: &RecordBatch) -> Result<ArrayRef> {
    expr.evaluate(rows)?.into_array(rows.num_rows())
}

fn evaluated(exprs: &[Arc<dyn PhysicalExpr>], rows: &RecordBatch) -> Result<Vec<ArrayRef>> {
    exprs.iter().map(|expr| value(expr, rows)).collect()
}

/// Do two rows differ? Each is columns of one value; none are alike.
fn differ(a: &[ArrayRef], b: &[ArrayRef]) -> Result<bool> {
    if a.is_empty() {
        return Ok(false);
    }
    let both = a.iter().zip(b).map(|(a, b)| concat(&[a, b])).collect::<Result<Vec<_>, _>>()?;
    Ok(partition(&both)?.len() > 1)
}

/// The rows that differ from the one before them; `last` is before the first.
fn starts(columns: &[ArrayRef], last: Option<&[ArrayRef]>, count: usize) -> Result<Vec<usize>> {
    let first_differs = match last {
        None => true,
        Some(last) => {
            let first: Vec<ArrayRef> = columns.iter().map(|values| values.slice(0, 1)).collect();
            differ(last, &first)?
        }
    };
    let mut starts = match columns {
        [] => vec![0],
        _ => partition(columns)?.ranges().into_iter().map(|range| range.start).collect(),
    };
    debug_assert!(count > 0 && starts.first() == Some(&0), "rows, the first of which is one");
    if !first_differs {
        starts.remove(0);
    }
    Ok(starts)
}

/// How many rows of its partition are before each row; `last`: the same of the row before the first.
fn positions(starts: &[usize], last: Option<u64>, count: usize) -> Vec<u64> {
    let mut positions = Vec::with_capacity(count);
    let mut next = last.map_or(0, |last| last + 1);
    for end in starts.iter().copied().chain([count]) {
        let rows = (end - positions.len()) as u64;
        positions.extend(next..next + rows);
        next = 0;
    }
    positions
}
