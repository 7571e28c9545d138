//! Plans that are run.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, execute_stream, execute_stream_partitioned};
use futures::{StreamExt, TryStreamExt};

use crate::base::error::Result;
use crate::base::progress::{self, QueryProgress};
use crate::base::stop::{self, Stop};
use crate::engine::cast_columns;
use crate::engine::session::Session;
use crate::operators::fallback::{Ways, spilled_bytes, with_fallbacks};
use crate::operators::stoppable::{holding, stoppable};
use crate::optimizer::changes::{row_of_parts, row_of_rules};
#[cfg(test)]
use crate::sql::statement::Statement;

impl Session {
    /// The answer of a query, a stream per thread.
    pub(crate) async fn run_partitions(
        &self,
        plan: &LogicalPlan,
    ) -> Result<Vec<SendableRecordBatchStream>> {
        let (state, _) = self.query_state();
        let plan = self.optimized(&state, plan.clone()).await?;
        self.partitions_of(&plan, &state).await
    }

    /// The same of a plan that [`Self::optimized`] made.
    pub(crate) async fn partitions_of(
        &self,
        plan: &LogicalPlan,
        state: &SessionState,
    ) -> Result<Vec<SendableRecordBatchStream>> {
        let (physical, end) = self.physical(plan, state).await?;
        let end = Arc::new(end);
        let streams = execute_stream_partitioned(physical, self.task_context())?;
        Ok(streams.into_iter().map(|stream| holding(stream, Arc::clone(&end))).collect())
    }

    /// The rows of a query; some of them, or its end, are there when this returns.
    pub(crate) async fn run_query(&self, plan: LogicalPlan) -> Result<SendableRecordBatchStream> {
        let (state, store) = self.query_state();
        let analyzes = matches!(plan, LogicalPlan::Analyze(_)) && self.engine.lake.is_remote();
        let plan = self.optimized(&state, plan).await?;
        let stream = self.run_optimized(&plan, &state).await?;
        Ok(if analyzes { store.explained(stream) } else { stream })
    }

    /// Runs a plan that [`Self::optimized`] made. Its first rows, or its error, are there when this returns: a
    /// statement that had too little memory beside others has handed out nothing, and can be asked again, alone.
    pub(crate) async fn run_optimized(
        &self,
        plan: &LogicalPlan,
        state: &SessionState,
    ) -> Result<SendableRecordBatchStream> {
        if let Some(row) = constant_row(plan) {
            progress::is_planned();
            return Ok(one_batch(row));
        }
        let in_parts = self.in_parts(plan, state)?;
        // Errors name columns as the whole plan has them.
        let runs = in_parts.as_ref().and_then(|cut| cut.as_ref().ok()).unwrap_or(plan);
        let (physical, end) = self.physical(runs, state).await?;
        let stays = in_parts.as_ref().and_then(|cut| cut.as_ref().err());
        let stays = stays.and_then(|why| row_of_parts(&physical, why));
        let rules = stays.into_iter().chain(row_of_rules(&physical));
        let rules = futures::stream::iter(rules.map(Ok));
        let mut stream = execute_stream(physical, self.task_context())?;
        let first = stream.next().await.transpose();
        let Some(first) = first.map_err(|error| cast_columns::named(error, plan))? else {
            return Ok(holding(stream, end));
        };
        let schema = stream.schema();
        let plan = plan.clone();
        let stream = stream.map_err(move |error| cast_columns::named(error, &plan));
        let rows = futures::stream::iter([Ok(first)]).chain(stream).chain(rules);
        Ok(holding(Box::pin(RecordBatchStreamAdapter::new(schema, rows)), end))
    }

    /// A query's operators as they are run.
    #[cfg(test)]
    pub(crate) async fn physical_plan(
        &self,
        statement: &Statement,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (state, _) = self.query_state();
        let plan = self.plan(statement).await?;
        let plan = self.optimized(&state, plan).await?;
        Ok(self.physical(&plan, &state).await?.0)
    }

    /// The operators of a plan, which stop when the second is dropped, after their streams, and go on in another way
    /// where they are refused memory.
    pub(crate) async fn physical(
        &self,
        plan: &LogicalPlan,
        state: &SessionState,
    ) -> Result<(Arc<dyn ExecutionPlan>, End)> {
        let physical = state.query_planner().create_physical_plan(plan, state).await?;
        // EXPLAIN shows the error of a step instead of failing with it.
        stop::check()?;
        progress::runs(physical.as_ref());
        let stop = Stop::default();
        let physical = stoppable(physical, stop.flag())?;
        let rules = Arc::clone(&self.engine.spilling_rules);
        let ways = Ways { rules, stopped: Arc::clone(stop.flag()) };
        let physical = with_fallbacks(physical, &ways)?;
        let end = End { _stop: stop, plan: Arc::clone(&physical), watcher: progress::watcher() };
        Ok((physical, end))
    }
}

/// What becomes of a plan when nobody wants its rows any more.
pub(crate) struct End {
    _stop: Stop,
    plan: Arc<dyn ExecutionPlan>,
    watcher: Option<Arc<QueryProgress>>,
}

impl Drop for End {
    fn drop(&mut self) {
        if let Some(watcher) = &self.watcher {
            watcher.spilled(spilled_bytes(&self.plan));
        }
    }
}

/// The row of a plan that is literals alone, as the probes of connection pools are (`SELECT 1`): operators for it would
/// take longer than all else.
pub(crate) fn constant_row(plan: &LogicalPlan) -> Option<RecordBatch> {
    let LogicalPlan::Projection(projection) = plan else { return None };
    let LogicalPlan::EmptyRelation(nothing) = projection.input.as_ref() else { return None };
    if !nothing.produce_one_row {
        return None;
    }
    let literal = |expr: &Expr| match expr.clone().unalias_nested().data {
        Expr::Literal(value, _) => value.to_array().ok(),
        _ => None,
    };
    let values = projection.expr.iter().map(literal).collect::<Option<Vec<_>>>()?;
    RecordBatch::try_new(SchemaRef::clone(projection.schema.inner()), values).ok()
}

/// A stream of it alone.
pub(crate) fn one_batch(batch: RecordBatch) -> SendableRecordBatchStream {
    let schema = batch.schema();
    let rows = futures::stream::iter([Ok(batch)]);
    Box::pin(RecordBatchStreamAdapter::new(schema, rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::session::for_tests;

    #[test]
    fn literals_alone_are_a_row_without_operators() {
        let folder = tempfile::tempdir().unwrap();
        let session = for_tests(folder.path(), true);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        for (sql, is_constant) in [
            ("SELECT 1", true),
            ("SELECT 1 + 1 AS a, 'x' AS b, NULL AS c, 1.5 :: decimal(4, 2) AS d", true),
            ("SELECT * FROM (VALUES (1), (2)) AS t (k)", false),
            ("SELECT 1 WHERE 1 = 2", false),
            ("SELECT random()", false),
        ] {
            runtime.block_on(async {
                let plan = session.context().state().create_logical_plan(sql).await.unwrap();
                let (state, _) = session.query_state();
                let plan = session.optimized(&state, plan).await.unwrap();
                let row = constant_row(&plan);
                assert_eq!(row.is_some(), is_constant, "{sql}: {plan}");
                // What operators answer.
                if let Some(row) = row {
                    let (physical, _stop) = session.physical(&plan, &state).await.unwrap();
                    let context = session.context().task_ctx();
                    let rows = datafusion::physical_plan::collect(physical, context).await.unwrap();
                    assert_eq!(rows, [row], "{sql}");
                }
            });
        }
    }
}
