//! Joins that end when nobody wants their rows any more, and keep no thread from others meanwhile.
//!
//! A stream is stopped between two polls, and a join looks for pairs in one poll until it has a batch of them:
//! of a condition that holds for few, billions. Such conditions are computed here unless they are stopped.
//! A thread of the runtime that has computed them for [`HELD`] is replaced by another one, so that whoever waits for
//! a thread gets one; the system shares the processor.

use std::cell::Cell;
use std::fmt::{self, Display, Formatter};
use std::hash::{Hash, Hasher};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{
    HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder,
};
use futures::Stream;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::base::error::EngineError;
use crate::base::sql_state::SqlState;

/// How long one task may keep a thread of the runtime from others.
const HELD: Duration = Duration::from_millis(50);

thread_local! {
    /// The task that computes here, and since when.
    static COMPUTES: Cell<Option<(tokio::task::Id, Instant)>> = const { Cell::new(None) };
}

/// The plan, whose joins end once they are `stopped`.
pub(crate) fn stoppable(
    plan: Arc<dyn ExecutionPlan>,
    stopped: &Arc<AtomicBool>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = plan.transform_up(|node| {
        let until = |filter: &JoinFilter| {
            let expr = UntilStopped {
                expr: Arc::clone(filter.expression()),
                stopped: Arc::clone(stopped),
            };
            let (columns, schema) = (filter.column_indices().to_vec(), Arc::clone(filter.schema()));
            Some(JoinFilter::new(Arc::new(expr), columns, schema))
        };
        if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>()
            && let Some(filter) = join.filter()
        {
            let (left, right) = (Arc::clone(join.left()), Arc::clone(join.right()));
            let again = NestedLoopJoinExecBuilder::new(left, right, *join.join_type())
                .with_filter(until(filter))
                .with_projection_ref(join.projection().clone())
                .build()?;
            return Ok(Transformed::yes(Arc::new(again) as _));
        }
        if let Some(join) = node.downcast_ref::<HashJoinExec>()
            && let Some(filter) = join.filter()
        {
            let again = join.builder().with_filter(until(filter)).build()?;
            return Ok(Transformed::yes(Arc::new(again) as _));
        }
        Ok(Transformed::no(node))
    })?;
    Ok(plan.data)
}

/// The stream, which lets go of what belongs to it when it is dropped.
pub(crate) fn holding<H: Send + Unpin + 'static>(
    stream: SendableRecordBatchStream,
    held: H,
) -> SendableRecordBatchStream {
    Box::pin(Holding { stream, _held: held })
}

struct Holding<H> {
    stream: SendableRecordBatchStream,
    _held: H,
}

impl<H: Unpin> Stream for Holding<H> {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.stream.as_mut().poll_next(context)
    }
}

impl<H: Unpin> RecordBatchStream for Holding<H> {
    fn schema(&self) -> SchemaRef {
        self.stream.schema()
    }
}

/// Has this task kept its thread for long? Between two polls it may have let it go; the answer is then wrong at the
/// cost of a thread that is woken.
fn is_held() -> bool {
    let Some(task) = tokio::task::try_id() else { return false };
    let now = Instant::now();
    let since = COMPUTES.get().filter(|(known, _)| *known == task).map(|(_, since)| since);
    let is_held = since.is_some_and(|since| now.duration_since(since) > HELD);
    if since.is_none() || is_held {
        COMPUTES.set(Some((task, now)));
    }
    // Other runtimes have no thread to put in its place.
    is_held && Handle::try_current().is_ok_and(|h| h.runtime_flavor() == RuntimeFlavor::MultiThread)
}

/// An expression that is an error once it is stopped.
#[derive(Debug)]
struct UntilStopped {
    expr: Arc<dyn PhysicalExpr>,
    stopped: Arc<AtomicBool>,
}

impl PartialEq for UntilStopped {
    fn eq(&self, other: &Self) -> bool {
        self.expr.eq(&other.expr)
    }
}

impl Eq for UntilStopped {}

impl Hash for UntilStopped {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.expr.hash(state);
    }
}

impl Display for UntilStopped {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.expr.fmt(f)
    }
}

impl PhysicalExpr for UntilStopped {
    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        self.expr.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.expr.nullable(schema)
    }

    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.expr.return_field(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        if self.stopped.load(Ordering::Relaxed) {
            let stopped =
                EngineError::execution(SqlState::QueryCanceled, "the statement was stopped");
            return Err(stopped.into());
        }
        if is_held() {
            return tokio::task::block_in_place(|| self.expr.evaluate(batch));
        }
        self.expr.evaluate(batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.expr]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let expr = children.pop().unwrap_or_else(|| Arc::clone(&self.expr));
        Ok(Arc::new(Self { expr, stopped: Arc::clone(&self.stopped) }))
    }

    fn fmt_sql(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.expr.fmt_sql(f)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use futures::StreamExt;

    use crate::base::answer::Answer;
    use crate::engine::session::for_tests;
    use crate::sql::statement::parse;

    /// The runtime has one thread, which the join would keep for minutes.
    #[test]
    fn a_join_without_end_leaves_threads_for_others() {
        let folder = tempfile::tempdir().unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let session = for_tests(folder.path(), true);
        let text = "SELECT a.v FROM generate_series(1, 400000) a(v), generate_series(1, 400000) b(v) \
                    WHERE a.v * b.v = -1";
        let statement = parse(text).unwrap().remove(0);
        let join = runtime.spawn(async move {
            let Ok(Answer::Rows { mut stream, .. }) = session.run(&statement).await else { return };
            stream.next().await;
        });
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(100));
            let other = runtime.spawn(async { 7 });
            let waited = runtime
                .block_on(async { tokio::time::timeout(Duration::from_secs(20), other).await });
            assert_eq!(waited.unwrap().unwrap(), 7);
            assert!(!join.is_finished());
        }
        join.abort();
        runtime.shutdown_background();
    }

    #[test]
    fn a_join_whose_rows_nobody_wants_ends_within_one_poll() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let session = for_tests(folder.path(), true);
        for join in ["a.v * b.v = -1", "a.v % 2 = b.v % 2 AND a.v * b.v = -1"] {
            // 1e11 pairs take minutes.
            let text = format!(
                "SELECT a.v FROM generate_series(1, 400000) a(v) JOIN generate_series(1, 400000) b(v) ON {join}"
            );
            let statement = parse(&text).unwrap().remove(0);
            runtime.block_on(async {
                let run = session.run(&statement);
                let late = tokio::time::timeout(Duration::from_millis(500), async {
                    match run.await {
                        Ok(Answer::Rows { mut stream, .. }) => stream.next().await.is_some(),
                        _ => true,
                    }
                });
                assert!(late.await.is_err(), "{join} gave rows");
            });
            let began = Instant::now();
            while session.usage().memory_bytes > 0 && began.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(session.usage().memory_bytes, 0, "{join} goes on");
        }
    }
}
