//! Plans that are run, and run again with less where there was too little memory.

use std::sync::{Arc, PoisonError};

use datafusion::common::DataFusionError;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, execute_stream, execute_stream_partitioned};
use futures::StreamExt;

use crate::base::error::Result;
use crate::engine::session::Session;
use crate::operators::array_aggregate::exec::DenseAggregateExec;
use crate::operators::array_aggregate::too_many::too_many_by;
use crate::operators::stoppable::{stoppable, stopping};
use crate::optimizer::pipeline;
use crate::optimizer::range_scan::IdRanges;
use crate::scan::id_range;

impl Session {
    /// The answer of a query, a stream per thread. `small`: with joins that spill.
    pub(crate) async fn run_partitions(
        &self,
        plan: &LogicalPlan,
        small: bool,
    ) -> Result<Vec<SendableRecordBatchStream>> {
        let (mut state, _) = self.query_state();
        if small {
            state.config_mut().options_mut().optimizer.prefer_hash_join = false;
            state = without_arrays(state);
        }
        let plan = self.optimized(&state, plan.clone()).await?;
        self.partitions_of(&plan, &state).await
    }

    /// The same of a plan that [`Self::optimized`] made.
    pub(crate) async fn partitions_of(
        &self,
        plan: &LogicalPlan,
        state: &SessionState,
    ) -> Result<Vec<SendableRecordBatchStream>> {
        let physical = state.query_planner().create_physical_plan(plan, state).await?;
        let (physical, stop) = stoppable(physical)?;
        let streams = execute_stream_partitioned(physical, self.context().task_ctx())?;
        Ok(streams.into_iter().map(|stream| stopping(stream, Arc::clone(&stop))).collect())
    }

    /// The rows of a query; some of them, or its end, are there when this returns.
    pub(crate) async fn run_query(&self, plan: LogicalPlan) -> Result<SendableRecordBatchStream> {
        let (state, store) = self.query_state();
        let analyzes = matches!(plan, LogicalPlan::Analyze(_)) && self.engine.lake.is_remote();
        let plan = self.optimized(&state, plan).await?;
        let stream = self.run_optimized(plan, state).await?;
        Ok(if analyzes { store.explained(stream) } else { stream })
    }

    /// Runs a plan that [`Self::optimized`] made.
    pub(crate) async fn run_optimized(
        &self,
        plan: LogicalPlan,
        mut state: SessionState,
    ) -> Result<SendableRecordBatchStream> {
        let (mut had_ranges, mut had_arrays) = (true, true);
        loop {
            let physical = state.query_planner().create_physical_plan(&plan, &state).await?;
            let (physical, stop) = stoppable(physical)?;
            let error = match begun(&physical, self.context().task_ctx()).await {
                Ok(stream) => return Ok(stopping(stream, stop)),
                Err(error) => error,
            };
            state = match id_range::unfit(&error) {
                Some(scan) if had_ranges => {
                    had_ranges = false;
                    let mut failed =
                        self.engine.too_many_groups.lock().unwrap_or_else(PoisonError::into_inner);
                    failed.extend(scan);
                    without_ranges(state)
                }
                _ if had_arrays => {
                    had_arrays = false;
                    self.with_less(error, physical.as_ref(), state)?
                }
                _ => return Err(error.into()),
            };
        }
    }

    /// A hash join keeps one side in memory, groups in arrays stay there, and every partition of a sort
    /// needs room to merge. If that is too much, the same query runs again: with joins and groups that
    /// spill, or sorting on one partition. Nothing has been handed out by then, because such a plan reads
    /// its input before it answers.
    ///
    /// # Errors
    /// `error`, if less of anything makes no difference.
    fn with_less(
        &self,
        error: DataFusionError,
        physical: &dyn ExecutionPlan,
        state: SessionState,
    ) -> Result<SessionState> {
        if !matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)) {
            return Err(error.into());
        }
        let joins = contains(physical, |plan| {
            plan.is::<HashJoinExec>()
                || plan.downcast_ref::<DenseAggregateExec>().is_some_and(DenseAggregateExec::joins)
        });
        let others =
            |plan: &dyn ExecutionPlan| plan.is::<SortExec>() || plan.is::<DenseAggregateExec>();
        if !joins && !contains(physical, others) {
            return Err(error.into());
        }
        let mut state = without_arrays(state);
        let options = state.config_mut().options_mut();
        if let Some(columns) = too_many_by(&error) {
            self.engine
                .too_many_groups
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(columns);
        } else if joins {
            options.optimizer.prefer_hash_join = false;
        } else {
            options.execution.target_partitions = 1;
        }
        Ok(state)
    }
}

/// The plan's stream once its first rows are there.
async fn begun(
    plan: &Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
) -> Result<SendableRecordBatchStream, DataFusionError> {
    let mut stream = execute_stream(Arc::clone(plan), context)?;
    let Some(first) = stream.next().await.transpose()? else { return Ok(stream) };
    let schema = stream.schema();
    let again = futures::stream::iter([Ok(first)]).chain(stream);
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, again)))
}

/// The state whose groups are in hash tables, which can spill.
fn without_arrays(state: SessionState) -> SessionState {
    SessionStateBuilder::new_from_existing(state)
        .with_physical_optimizer_rules(pipeline::physical_of_ours(None))
        .build()
}

/// The state that takes no rows by ranges of ids.
fn without_ranges(state: SessionState) -> SessionState {
    let is_ranges = |rule: &str| rule == IdRanges::default().name();
    let rules = state.physical_optimizers().iter().filter(|rule| !is_ranges(rule.name()));
    let rules = rules.cloned().collect();
    SessionStateBuilder::new_from_existing(state).with_physical_optimizer_rules(rules).build()
}

fn contains(plan: &dyn ExecutionPlan, wanted: fn(&dyn ExecutionPlan) -> bool) -> bool {
    wanted(plan) || plan.children().iter().any(|child| contains(child.as_ref(), wanted))
}
