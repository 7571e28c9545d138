//! An operator that goes on in another way when it is refused what it needs.
//!
//! ```text
//! FallbackExec                       rows of a hash join, of groups in arrays, of a sort on many threads;
//!   HashJoinExec                     if one of its partitions is refused memory before any has handed
//!     ...                            out a row: of the same in the form that spills (`spilling`)
//! ```
//!
//! Nobody above notices, and what others have handed out stands. A statement is not begun again.
//!
//! # Invariants
//! - All partitions have their rows from one of the two: the first that hands out a row, or comes to its end, or is
//!   refused, decides for all.
//! - A form that spills is not tried in yet another way: what is below it spills, too. Arrays over rows in any order,
//!   which go on where rows are not in the order of time, may still be refused.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder};
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use futures::future::Shared;
use futures::{FutureExt, Stream};
use tokio::sync::oneshot;

use crate::base::one_input::{OneInput, OneInputExec};
use crate::base::refusal::{Refusal, refusal};
use crate::operators::array_aggregate::aggregate::Otherwise;
use crate::operators::array_aggregate::exec::ArrayAggregateExec;
use crate::operators::spilling::{can_spill, spilling};
use crate::operators::stoppable::stoppable;

/// What other forms are made with.
#[derive(Clone)]
pub(crate) struct Ways {
    /// The rules of plans without groups in arrays.
    pub rules: Arc<[Arc<dyn PhysicalOptimizerRule + Send + Sync>]>,
    /// See [`stoppable`].
    pub stopped: Arc<AtomicBool>,
}

impl fmt::Debug for Ways {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ways")
    }
}

/// The plan, whose operators that need memory they cannot give back have another way to go on.
pub(crate) fn with_fallbacks(
    plan: Arc<dyn ExecutionPlan>,
    ways: &Ways,
) -> Result<Arc<dyn ExecutionPlan>> {
    let changed = plan.transform_down(|node| {
        // What is recursive runs many times, over rows that can be taken once.
        if node.is::<RecursiveQueryExec>() {
            return Ok(Transformed::new(node, false, TreeNodeRecursion::Jump));
        }
        if !node.is::<ArrayAggregateExec>() && !can_spill(&node)? {
            return Ok(Transformed::no(node));
        }
        // Not this one again, nor the sort of a merge, but what is below.
        let below = |child| Ok(Transformed::yes(with_fallbacks(child, ways)?));
        let merges = node.is::<SortPreservingMergeExec>();
        let input = node.map_children(|child| match merges && child.is::<SortExec>() {
            true => child.map_children(below),
            false => below(child),
        })?;
        let fallback: Arc<dyn ExecutionPlan> =
            Arc::new(FallbackExec::over(Fallback::new(ways.clone()), input.data));
        Ok(Transformed::new(fallback, true, TreeNodeRecursion::Jump))
    })?;
    Ok(changed.data)
}

fn without_fallbacks(plan: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let changed = Arc::clone(plan).transform_down(|node| {
        Ok(match node.downcast_ref::<FallbackExec>() {
            Some(fallback) => Transformed::yes(Arc::clone(&fallback.input)),
            None => Transformed::no(node),
        })
    })?;
    Ok(changed.data)
}

/// Bytes that operators of a plan have written to disk for want of memory.
pub(crate) fn spilled_bytes(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let own = plan.metrics().and_then(|metrics| metrics.spilled_bytes()).unwrap_or_default();
    let other = plan.downcast_ref::<FallbackExec>().and_then(|fallback| fallback.operator.other());
    let below = plan.children().into_iter().chain(&other).map(spilled_bytes);
    own + below.sum::<usize>()
}

/// Rows of its input, or of another form of it.
pub(crate) type FallbackExec = OneInputExec<Fallback>;

#[derive(Debug)]
pub(crate) struct Fallback {
    ways: Ways,
    decision: Arc<Decision>,
}

impl Fallback {
    fn new(ways: Ways) -> Self {
        Self { ways, decision: Arc::new(Decision::new()) }
    }

    /// The other form, once it is used.
    fn other(&self) -> Option<Arc<dyn ExecutionPlan>> {
        match &*self.decision.lock() {
            State::Other(_, Some(Ok(other))) => Some(Arc::clone(other)),
            _ => None,
        }
    }
}

/// Which of the two all partitions have their rows from.
#[derive(Debug)]
struct Decision {
    state: Mutex<State>,
    /// Ready when it is the other form, and an error when it is the input.
    refused: Shared<oneshot::Receiver<()>>,
}

#[derive(Debug)]
enum State {
    Open(oneshot::Sender<()>),
    Input,
    /// Why, and the other form, once one partition has asked for it.
    Other(Refusal, Option<Result<Arc<dyn ExecutionPlan>, Arc<DataFusionError>>>),
}

impl Decision {
    fn new() -> Self {
        let (sender, refused) = oneshot::channel();
        Self { state: Mutex::new(State::Open(sender)), refused: refused.shared() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Is it the input, by now?
    fn is_input(&self) -> bool {
        let mut state = self.lock();
        if matches!(*state, State::Open(_)) {
            *state = State::Input;
        }
        matches!(*state, State::Input)
    }

    /// Is it the other form, by now?
    fn is_other(&self, refusal: Refusal) -> bool {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::Other(refusal, None)) {
            State::Open(sender) => {
                // Nobody may be waiting.
                let _ = sender.send(());
            }
            decided => *state = decided,
        }
        matches!(*state, State::Other(..))
    }
}

/// What one partition needs to go on in the other form.
struct Partition {
    input: Arc<dyn ExecutionPlan>,
    ways: Ways,
    decision: Arc<Decision>,
    number: usize,
    context: Arc<TaskContext>,
    fallbacks: Count,
}

impl Partition {
    fn other(&self) -> Result<SendableRecordBatchStream> {
        let mut state = self.decision.lock();
        let State::Other(refusal, plan) = &mut *state else {
            return Err(DataFusionError::Internal("nothing was refused".into()));
        };
        let make = || {
            self.fallbacks.add(1);
            self.other_form(*refusal).map_err(Arc::new)
        };
        let plan = plan.get_or_insert_with(make).clone();
        drop(state);
        plan.map_err(DataFusionError::Shared)?.execute(self.number, Arc::clone(&self.context))
    }

    fn other_form(&self, refusal: Refusal) -> Result<Arc<dyn ExecutionPlan>> {
        if refusal == Refusal::Rows
            && let Some(groups) = self.input.downcast_ref::<ArrayAggregateExec>()
            && let Otherwise::AnyOrder(groups) = &groups.what.otherwise
        {
            let groups = stoppable(Arc::clone(groups), &self.ways.stopped)?;
            return with_fallbacks(groups, &self.ways);
        }
        let options = self.context.session_config().options();
        let input = without_fallbacks(&self.input)?;
        stoppable(spilling(&input, &self.ways.rules, options)?, &self.ways.stopped)
    }
}

/// A partition's rows.
struct FallbackStream {
    schema: SchemaRef,
    stream: Option<SendableRecordBatchStream>,
    /// While it is not decided.
    open: Option<(Partition, Shared<oneshot::Receiver<()>>)>,
}

impl Stream for FallbackStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let Some(stream) = &mut this.stream else { return Poll::Ready(None) };
        let Some((partition, refused)) = &mut this.open else {
            return stream.as_mut().poll_next(context);
        };
        let decision = &partition.decision;
        match refused.poll_unpin(context) {
            Poll::Ready(Ok(())) => {}
            // Another partition has decided for the input.
            Poll::Ready(Err(_)) => {
                this.open = None;
                return stream.as_mut().poll_next(context);
            }
            Poll::Pending => {
                let next = std::task::ready!(stream.as_mut().poll_next(context));
                let goes_on = match &next {
                    Some(Err(error)) => match refusal(error) {
                        Some(refusal) => !decision.is_other(refusal),
                        // Whichever it is, this is an error.
                        None => true,
                    },
                    Some(Ok(_)) | None => decision.is_input(),
                };
                if goes_on {
                    this.open = None;
                    return Poll::Ready(next);
                }
            }
        }
        // What it holds is free before the other form asks for it.
        this.stream = None;
        match partition.other() {
            Ok(other) => {
                this.open = None;
                this.stream.insert(other).as_mut().poll_next(context)
            }
            Err(error) => Poll::Ready(Some(Err(error))),
        }
    }
}

impl RecordBatchStream for FallbackStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

impl OneInput for Fallback {
    const NAME: &'static str = "FallbackExec";

    fn again(&self) -> Self {
        Self::new(self.ways.clone())
    }

    fn rows(
        &self,
        input: &Arc<dyn ExecutionPlan>,
        metrics: &ExecutionPlanMetricsSet,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let stream = input.execute(partition, Arc::clone(&context))?;
        let open = Partition {
            input: Arc::clone(input),
            ways: self.ways.clone(),
            decision: Arc::clone(&self.decision),
            number: partition,
            context,
            fallbacks: MetricBuilder::new(metrics).counter("fallbacks", partition),
        };
        let refused = self.decision.refused.clone();
        let open = Some((open, refused));
        Ok(Box::pin(FallbackStream { schema: input.schema(), stream: Some(stream), open }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use datafusion::arrow::util::pretty::pretty_format_batches;
    use datafusion::execution::memory_pool::{
        MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
    };

    use super::*;
    use crate::base::error::EngineError;
    use crate::engine::session::{Session, for_tests};

    /// A pool that refuses requests.
    #[derive(Debug)]
    struct Refusing {
        pool: Arc<dyn MemoryPool>,
        /// Requests that are granted before.
        granted: usize,
        /// How many are refused then.
        refused: usize,
        requests: AtomicUsize,
    }

    impl fmt::Display for Refusing {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "refusing({})", self.granted)
        }
    }

    impl MemoryPool for Refusing {
        fn name(&self) -> &'static str {
            "refusing"
        }

        fn register(&self, consumer: &MemoryConsumer) {
            self.pool.register(consumer);
        }

        fn unregister(&self, consumer: &MemoryConsumer) {
            self.pool.unregister(consumer);
        }

        fn grow(&self, reservation: &MemoryReservation, additional: usize) {
            self.pool.grow(reservation, additional);
        }

        fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
            self.pool.shrink(reservation, shrink);
        }

        fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
            // What deals rows out is never refused, see the pool.
            if !reservation.consumer().name().starts_with("RepartitionExec") {
                let number = self.requests.fetch_add(1, Ordering::Relaxed);
                if (self.granted..self.granted.saturating_add(self.refused)).contains(&number) {
                    let name = reservation.consumer().name().to_owned();
                    return Err(DataFusionError::ResourcesExhausted(name));
                }
            }
            self.pool.try_grow(reservation, additional)
        }

        fn reserved(&self) -> usize {
            self.pool.reserved()
        }

        fn memory_limit(&self) -> MemoryLimit {
            self.pool.memory_limit()
        }
    }

    const DATA: &str = "
        CREATE TABLE e (user_id TEXT, day DATE, ts TIMESTAMP, event TEXT, n BIGINT)
          PARTITIONED BY (day) CLUSTERED BY (user_id, ts) ID DOMAINS (user_id users);
        CREATE TABLE x (user_id TEXT, variant INT, place TEXT)
          CLUSTERED BY (user_id) ID DOMAINS (user_id users);
        INSERT INTO e SELECT concat('u', CAST(v * 7 % 900 AS TEXT)), DATE '2026-01-01' + CAST(v % 2 AS INT),
          to_timestamp(1767225600 + v % 2 * 86400 + v),
          CASE v % 3 WHEN 0 THEN 'view' WHEN 1 THEN 'add' ELSE 'buy' END, v % 1000
          FROM generate_series(1, 20000) AS s(v);
        INSERT INTO x SELECT concat('u', CAST(v AS TEXT)), CAST(v % 2 AS INT), concat('p', CAST(v % 5 AS TEXT))
          FROM generate_series(0, 600) AS s(v);
    ";

    /// Each with its rows in one order.
    const STATEMENTS: [&str; 16] = [
        "SELECT user_id, count(*), sum(n) FROM e GROUP BY user_id ORDER BY user_id",
        "SELECT event, place, count(DISTINCT e.user_id), sum(n) FROM e JOIN x ON e.user_id = x.user_id
           GROUP BY event, place ORDER BY event, place",
        "WITH u AS (SELECT user_id, min(variant) AS variant FROM x GROUP BY user_id)
           SELECT variant, count(*), sum(n), count(DISTINCT u.user_id) FROM e JOIN u ON e.user_id = u.user_id
           GROUP BY variant ORDER BY variant",
        "WITH u AS (SELECT user_id, min(variant) AS variant FROM x GROUP BY user_id)
           SELECT variant, count(n), sum(n) FROM u LEFT JOIN e ON e.user_id = u.user_id AND e.n > 990
           GROUP BY variant ORDER BY variant",
        "SELECT count(*), sum(a.n + b.n) FROM e a JOIN e b ON a.n = b.n AND a.ts < b.ts",
        "SELECT a.n, b.variant FROM e a LEFT JOIN x b ON a.n = b.variant WHERE a.n < 20 ORDER BY a.n, b.variant",
        "SELECT a.user_id, b.user_id FROM x a FULL JOIN (SELECT DISTINCT user_id FROM e) b ON a.user_id = b.user_id
           ORDER BY a.user_id, b.user_id",
        "SELECT user_id FROM x WHERE user_id IN (SELECT user_id FROM e WHERE n > 990) ORDER BY user_id",
        "SELECT user_id FROM x WHERE user_id NOT IN (SELECT user_id FROM e WHERE n > 100) ORDER BY user_id",
        "SELECT user_id, n FROM e ORDER BY n, user_id, ts",
        "SELECT user_id, n, row_number() OVER (PARTITION BY user_id ORDER BY ts) AS r FROM e
           QUALIFY r < 3 ORDER BY user_id, r",
        "SELECT user_id, count(*) AS c FROM e GROUP BY user_id ORDER BY c DESC, user_id LIMIT 9",
        "SELECT 0 AS c UNION ALL SELECT count(*) FROM e GROUP BY user_id
           UNION ALL SELECT a.n FROM e a JOIN x ON a.n = x.variant ORDER BY c",
        "SELECT user_id, window_funnel(3600, ts, event = 'view', event = 'add', event = 'buy') AS steps
           FROM e GROUP BY user_id ORDER BY user_id",
        "SELECT t.variant, t.c FROM (SELECT variant, count(*) AS c FROM x GROUP BY variant) t
           JOIN (SELECT max(variant) AS m FROM x) u ON t.variant = u.m ORDER BY 1",
        "SELECT place, (SELECT count(*) FROM e WHERE e.user_id = x.user_id) AS c FROM x
           WHERE variant = 1 ORDER BY place, c",
    ];

    fn run(session: &Session, sql: &str) -> Result<String, EngineError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let rows = runtime.block_on(session.query(sql))?;
        Ok(pretty_format_batches(&rows).unwrap().to_string())
    }

    /// Runs a statement again and again, whose first, second, ... request is the first of `refused` that are
    /// refused: runs, and who was refused where that was the end.
    fn refused_everywhere(session: &Session, sql: &str, refused: usize) -> (usize, Vec<String>) {
        let expected = run(session, sql).unwrap();
        let (mut runs, mut ends) = (0, Vec::new());
        loop {
            let pool = Arc::clone(&session.context().runtime_env().memory_pool);
            let requests = AtomicUsize::new(0);
            let pool = Arc::new(Refusing { pool, granted: runs, refused, requests });
            let refusing = session.with_pool(Arc::clone(&pool) as _).unwrap();
            match run(&refusing, sql) {
                Ok(rows) => assert_eq!(rows, expected, "{runs} granted: {sql}"),
                Err(EngineError::Limit(problem)) => {
                    let (_, who) = problem.message.split_once(": ").unwrap();
                    ends.push(who.to_owned());
                }
                Err(error) => panic!("{runs} granted: {sql}: {error}"),
            }
            assert_eq!(pool.reserved(), 0, "{runs} granted: {sql}");
            if pool.requests.load(Ordering::Relaxed) <= runs {
                return (runs, ends);
            }
            runs += 1;
        }
    }

    /// Whichever request for memory is refused, and however many after it, a statement has the same rows or one
    /// error; and the rows, if it is one request of what goes on in another way.
    #[test]
    fn what_is_refused_somewhere_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let session = for_tests(folder.path(), true);
        run(&session, DATA).unwrap();
        let (mut all, mut same) = (0, 0);
        for sql in STATEMENTS {
            for refused in [1, 3, usize::MAX] {
                let (runs, ends) = refused_everywhere(&session, sql, refused);
                (all, same) = (all + runs, same + runs - ends.len());
                let goes_on = ["HashJoinInput", "ArrayAggregate", "GroupJoinBuild"];
                let wrong = |end: &&String| goes_on.iter().any(|name| end.starts_with(name));
                let wrong = ends.iter().find(wrong).filter(|_| refused == 1);
                assert_eq!(wrong, None, "{sql}");
            }
        }
        assert!(all > 400 && same > 150, "{same} of {all}");
    }
}
