//! Plans that are run.

use std::sync::Arc;

use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, execute_stream, execute_stream_partitioned};
use futures::StreamExt;

use crate::base::error::Result;
use crate::base::progress;
use crate::engine::session::Session;
use crate::operators::fallback::{Ways, with_fallbacks};
use crate::operators::stoppable::{Stop, stoppable, stopping};
use crate::optimizer::changes::row_of_rules;

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
        let (physical, stop) = self.physical(plan, state).await?;
        let streams = execute_stream_partitioned(physical, self.context().task_ctx())?;
        Ok(streams.into_iter().map(|stream| stopping(stream, Arc::clone(&stop))).collect())
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
        let (physical, stop) = self.physical(plan, state).await?;
        let rules = futures::stream::iter(row_of_rules(&physical).map(Ok));
        let mut stream = execute_stream(physical, self.context().task_ctx())?;
        let Some(first) = stream.next().await.transpose()? else {
            return Ok(stopping(stream, stop));
        };
        let schema = stream.schema();
        let rows = futures::stream::iter([Ok(first)]).chain(stream).chain(rules);
        Ok(stopping(Box::pin(RecordBatchStreamAdapter::new(schema, rows)), stop))
    }

    /// The operators of a plan, which stop when the second is dropped, and go on in another way where they are
    /// refused memory.
    async fn physical(
        &self,
        plan: &LogicalPlan,
        state: &SessionState,
    ) -> Result<(Arc<dyn ExecutionPlan>, Arc<Stop>)> {
        let physical = state.query_planner().create_physical_plan(plan, state).await?;
        progress::runs(physical.as_ref());
        let stop = Arc::new(Stop::default());
        let physical = stoppable(physical, stop.flag())?;
        let rules = Arc::clone(&self.engine.spilling_rules);
        let ways = Ways { rules, stopped: Arc::clone(stop.flag()) };
        Ok((with_fallbacks(physical, &ways)?, stop))
    }
}
