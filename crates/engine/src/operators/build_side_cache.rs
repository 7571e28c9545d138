//! Small sides of joins that were asked for before: rows by id, such as first exposures.
//!
//! ```text
//! Join on id                             Join on id
//!   u: first exposures by id      ─►       CachedSubplanExec ◄── its rows, if they are known
//!   events                                   u: first exposures by id
//!                                          events
//! ```
//!
//! A platform asks hundreds of questions about the users of one experiment, and each finds them again.
//!
//! # Invariants
//! - Rows are known by the plan that makes them and the snapshots of its tables, which decide them as they
//!   decide [`plans`](crate::engine::plan_cache).
//! - Nothing above a side has a say in its rows: neither filters nor limits are pushed into it.
//! - Queries come first: rows are in the [`ColumnCache`], which lets them go.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use async_trait::async_trait;
use datafusion::arrow::array::{Array, AsArray, ListArray, RecordBatch, StructArray};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{DataType, Field, SchemaRef};
use datafusion::catalog::Session as PlanningSession;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchemaRef, DataFusionError, Result};
use datafusion::datasource::source_as_provider;
use datafusion::execution::context::{QueryPlanner, SessionState};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    Aggregate, Expr, Extension, LogicalPlan, UserDefinedLogicalNode, UserDefinedLogicalNodeCore,
};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
};
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};
use futures::{StreamExt, stream};

use crate::base::id_column::IdColumn;
use crate::base::one_input::{OneInput, OneInputExec};
use crate::base::progress;
use crate::cache::columns::{Chunk, ColumnCache};
use crate::scan::lake_table::LakeTable;
use crate::scan::temporal_bounds::{NoTemporalBounds, computes_with_times};

/// Sides whose numbers are known.
const KNOWN: usize = 256;
/// Of what the cache may hold, what one side may.
const SIDE_SHARE: usize = 8;
/// Of the rows that are kept, the nanoseconds that they took.
const TOOK: &str = "uplake.took_nanos";

/// The sides that statements have had, of all sessions with one [`ColumnCache`].
#[derive(Default)]
pub(crate) struct BuildSideCache(Mutex<State>);

#[derive(Default)]
struct State {
    known: Vec<Known>,
    /// Sides there have been.
    count: u64,
}

struct Known {
    plan: LogicalPlan,
    tables: Vec<RowsOf>,
    settings: String,
    number: u64,
}

/// See [`LakeTable::rows_of`].
type RowsOf = (String, u64, usize);

impl BuildSideCache {
    /// An optimized plan, which its text and its tables decide, with a [`CachedSubplan`] where a join may have one.
    /// `settings` have a say in rows, too.
    pub fn marked(&self, plan: LogicalPlan, settings: &str) -> Result<LogicalPlan> {
        let marked = plan.transform_up(|node| match node {
            LogicalPlan::Join(_) => node.map_children(|input| self.marked_side(input, settings)),
            _ => Ok(Transformed::no(node)),
        })?;
        Ok(marked.data)
    }

    fn marked_side(&self, plan: LogicalPlan, settings: &str) -> Result<Transformed<LogicalPlan>> {
        match &plan {
            LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) => {
                plan.map_children(|input| self.marked_side(input, settings))
            }
            LogicalPlan::Aggregate(aggregate) if is_by_id(aggregate) => {
                let Some(tables) = tables_of(&plan)? else { return Ok(Transformed::no(plan)) };
                let node = Arc::new(CachedSubplan {
                    number: self.number(&plan, tables, settings),
                    input: plan,
                });
                Ok(Transformed::yes(LogicalPlan::Extension(Extension { node })))
            }
            _ => Ok(Transformed::no(plan)),
        }
    }

    fn number(&self, plan: &LogicalPlan, tables: Vec<RowsOf>, settings: &str) -> u64 {
        let mut state = self.lock();
        let same = |known: &&Known| {
            known.tables == tables && known.settings == settings && known.plan == *plan
        };
        if let Some(known) = state.known.iter().find(same) {
            return known.number;
        }
        // Old snapshots are not kept for sides that nobody can ask for.
        let is_old = |(name, version, place): &RowsOf| {
            tables.iter().any(|(n, v, p)| n == name && (v, p) != (version, place))
        };
        state.known.retain(|known| !known.tables.iter().any(is_old));
        if state.known.len() >= KNOWN {
            state.known.clear();
        }
        state.count += 1;
        let number = state.count;
        state.known.push(Known {
            plan: plan.clone(),
            tables,
            settings: settings.to_owned(),
            number,
        });
        number
    }

    /// Nobody will be given this snapshot again: its sides go.
    pub fn forget(&self, table: &LakeTable) {
        let Some(rows) = table.rows_of() else { return };
        self.lock().known.retain(|known| !known.tables.contains(&rows));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The plan without the marks of [`BuildSideCache::marked`]: who computes parts of it has rows of its own.
pub(crate) fn without_sides(plan: LogicalPlan) -> Result<LogicalPlan> {
    let plain = plan.transform_up(|node| {
        if let LogicalPlan::Extension(extension) = &node
            && let Some(side) = extension.node.as_any().downcast_ref::<CachedSubplan>()
        {
            return Ok(Transformed::yes(side.input.clone()));
        }
        Ok(Transformed::no(node))
    })?;
    Ok(plain.data)
}

fn is_by_id(aggregate: &Aggregate) -> bool {
    match aggregate.group_expr.as_slice() {
        [key] => IdColumn::of_expr(key, aggregate.input.schema()).is_some(),
        _ => false,
    }
}

/// The tables whose rows a side is made of; `None` if anything else is.
fn tables_of(side: &LogicalPlan) -> Result<Option<Vec<RowsOf>>> {
    let (mut tables, mut plain) = (Vec::new(), true);
    side.apply(|node| {
        match node {
            LogicalPlan::TableScan(scan) => {
                let provider = source_as_provider(&scan.source).ok();
                let provider = provider.filter(|_| scan.fetch.is_none());
                let table = provider.as_ref().and_then(|p| p.downcast_ref::<LakeTable>());
                match table.and_then(LakeTable::rows_of) {
                    Some(rows) => tables.push(rows),
                    None => plain = false,
                }
            }
            LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Aggregate(_) => {}
            _ => plain = false,
        }
        node.apply_expressions(|expr| {
            expr.apply(|part| {
                let asks = matches!(
                    part,
                    Expr::ScalarSubquery(_)
                        | Expr::InSubquery(_)
                        | Expr::Exists(_)
                        | Expr::SetComparison(_)
                        | Expr::OuterReferenceColumn(..)
                );
                plain &= !asks;
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(Some(tables).filter(|_| plain))
}

/// Rows that may be known.
#[derive(Debug, PartialEq, Eq, PartialOrd, Hash)]
struct CachedSubplan {
    number: u64,
    input: LogicalPlan,
}

impl UserDefinedLogicalNodeCore for CachedSubplan {
    fn name(&self) -> &'static str {
        "CachedSubplan"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CachedSubplan: {}", self.number)
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        let input = inputs.pop().ok_or_else(no_input)?;
        Ok(Self { number: self.number, input })
    }
}

fn no_input() -> DataFusionError {
    DataFusionError::Internal("a kept side has one input".into())
}

/// DataFusion's planner, which plans sides, too.
pub(crate) struct Planner {
    pub columns: Arc<ColumnCache>,
    /// What plans operators of others.
    pub others: Vec<Arc<dyn ExtensionPlanner + Send + Sync>>,
}

impl fmt::Debug for Planner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Planner")
    }
}

#[async_trait]
impl QueryPlanner for Planner {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        session: &dyn PlanningSession,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let sides = Arc::new(SidePlanner(Arc::clone(&self.columns)));
        let mut planners: Vec<Arc<dyn ExtensionPlanner + Send + Sync>> = vec![sides];
        planners.extend(self.others.iter().cloned());
        let planner = DefaultPhysicalPlanner::with_extension_planners(planners);
        let state = session.as_any().downcast_ref::<SessionState>();
        let Some(state) = state.filter(|_| computes_with_times(plan).unwrap_or(true)) else {
            return planner.create_physical_plan(plan, session).await;
        };
        let mut state = state.clone();
        state.config_mut().set_extension(Arc::new(NoTemporalBounds));
        planner.create_physical_plan(plan, &state).await
    }
}

struct SidePlanner(Arc<ColumnCache>);

#[async_trait]
impl ExtensionPlanner for SidePlanner {
    async fn plan_extension(
        &self,
        _: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _: &[&LogicalPlan],
        inputs: &[Arc<dyn ExecutionPlan>],
        _: &dyn PlanningSession,
        _: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(side) = node.as_any().downcast_ref::<CachedSubplan>() else { return Ok(None) };
        let input = Arc::clone(inputs.first().ok_or_else(no_input)?);
        let rows = CachedRows::new(side.number, Arc::clone(&self.0));
        Ok(Some(Arc::new(CachedSubplanExec::over(rows, input))))
    }
}

/// The rule that leaves sides only where a join reads all of their rows before it reads others. It must
/// come after joins have their sides, and before filters are pushed down.
#[derive(Debug)]
pub(crate) struct CacheBuildSides;

impl PhysicalOptimizerRule for CacheBuildSides {
    fn name(&self) -> &'static str {
        "build_side_cache"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        left_sides(plan, false)
    }
}

fn left_sides(plan: Arc<dyn ExecutionPlan>, is_left: bool) -> Result<Arc<dyn ExecutionPlan>> {
    let (joins, stays_left) = (plan.is::<HashJoinExec>(), is_left && plan.is::<ProjectionExec>());
    let children = plan.children().into_iter().cloned().enumerate();
    let children =
        children.map(|(place, child)| left_sides(child, stays_left || (joins && place == 0)));
    let mut children = children.collect::<Result<Vec<_>>>()?;
    if plan.is::<CachedSubplanExec>() && !is_left {
        return children.pop().ok_or_else(no_input);
    }
    replace_children_if_necessary(plan, children)
}

/// Rows of its input, from memory if they are known. Another plan of the same may have had them in other
/// partitions and in another order.
pub(crate) type CachedSubplanExec = OneInputExec<CachedRows>;

#[derive(Debug)]
pub(crate) struct CachedRows {
    number: u64,
    cache: Arc<ColumnCache>,
    run: Arc<Mutex<Run>>,
}

#[derive(Debug, Default)]
struct Run {
    /// What was known when the first partition was asked for.
    known: Option<Option<ListArray>>,
    /// When the first row was asked for.
    began: Option<Instant>,
    /// Of each partition that has come to its end.
    rows: Vec<Option<Vec<RecordBatch>>>,
    bytes: usize,
}

impl CachedRows {
    fn new(number: u64, cache: Arc<ColumnCache>) -> Self {
        Self { number, cache, run: Arc::default() }
    }

    /// What was known when this began: one list of rows for each partition.
    fn known(&self, input: &Arc<dyn ExecutionPlan>) -> Option<ListArray> {
        let mut run = lock(&self.run);
        let known = run.known.get_or_insert_with(|| {
            let rows = self.cache.get(&Chunk::of_side(self.number, partitions(input)))?;
            let rows = rows.as_list_opt::<i32>()?;
            let is_same = rows.value_type() == DataType::Struct(input.schema().fields().clone());
            is_same.then(|| {
                progress::finds_side(took_nanos(rows));
                rows.clone()
            })
        });
        known.clone()
    }
}

/// How long rows took that are kept.
fn took_nanos(rows: &ListArray) -> u64 {
    let DataType::List(item) = rows.data_type() else { return 0 };
    item.metadata().get(TOOK).and_then(|took| took.parse().ok()).unwrap_or_default()
}

fn partitions(input: &Arc<dyn ExecutionPlan>) -> usize {
    input.output_partitioning().partition_count()
}

fn lock(run: &Mutex<Run>) -> MutexGuard<'_, Run> {
    run.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes note of one partition's rows.
struct Collector {
    number: u64,
    partition: usize,
    partitions: usize,
    /// The plan's: what is said of columns there, batches need not say.
    schema: SchemaRef,
    cache: Arc<ColumnCache>,
    run: Arc<Mutex<Run>>,
    rows: Vec<RecordBatch>,
}

impl Collector {
    /// `false` if there are too many.
    fn add(&mut self, batch: &RecordBatch) -> Result<bool> {
        let bytes = |column: &dyn Array| column.to_data().get_slice_memory_size();
        let bytes = batch.columns().iter().map(|c| bytes(c)).sum::<Result<usize, _>>()?;
        let mut run = lock(&self.run);
        run.bytes += bytes;
        self.rows.push(batch.clone());
        Ok(run.bytes <= self.cache.limit_bytes() / SIDE_SHARE)
    }

    /// The partition's end; with the last one all rows are known.
    fn finish(self) -> Result<()> {
        let mut run = lock(&self.run);
        run.rows.resize(self.partitions, None);
        run.rows[self.partition] = Some(self.rows);
        let Some(rows) = run.rows.iter().cloned().collect::<Option<Vec<_>>>() else {
            return Ok(());
        };
        run.rows.clear();
        let took = run.began.map(|began| began.elapsed().as_nanos()).unwrap_or_default();
        drop(run);
        if rows.iter().all(Vec::is_empty) {
            return Ok(());
        }
        let schema = &self.schema;
        let count = |batches: &Vec<RecordBatch>| batches.iter().map(RecordBatch::num_rows).sum();
        let lengths = OffsetBuffer::from_lengths(rows.iter().map(count));
        let all = StructArray::from(concat_batches(schema, rows.iter().flatten())?);
        let took = HashMap::from([(TOOK.to_owned(), took.to_string())]);
        let item = Field::new("item", DataType::Struct(schema.fields().clone()), false);
        let item = item.with_metadata(took);
        let rows = ListArray::try_new(Arc::new(item), lengths, Arc::new(all), None)?;
        let bytes = rows.get_array_memory_size();
        self.cache.keep(Chunk::of_side(self.number, self.partitions), Arc::new(rows), bytes);
        Ok(())
    }
}

impl OneInput for CachedRows {
    const NAME: &'static str = "CachedSubplanExec";
    const KEEPS_ORDER: bool = false;
    const KEEPS_STATISTICS: bool = true;

    fn properties(&self, input: &Arc<dyn ExecutionPlan>) -> Arc<PlanProperties> {
        Arc::new(PlanProperties::new(
            EquivalenceProperties::new(input.schema()),
            Partitioning::UnknownPartitioning(partitions(input)),
            input.pipeline_behavior(),
            input.boundedness(),
        ))
    }

    fn again(&self) -> Self {
        Self::new(self.number, Arc::clone(&self.cache))
    }

    fn rows(
        &self,
        input: &Arc<dyn ExecutionPlan>,
        _: &ExecutionPlanMetricsSet,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let schema = input.schema();
        if let Some(known) = self.known(input) {
            let columns = known.value(partition).as_struct().columns().to_vec();
            let rows = RecordBatch::try_new(Arc::clone(&schema), columns)?;
            let (many, count) = (context.session_config().batch_size().max(1), rows.num_rows());
            let piece = move |from: usize| Ok(rows.slice(from, many.min(rows.num_rows() - from)));
            let pieces = stream::iter((0..count).step_by(many).map(piece));
            return Ok(Box::pin(RecordBatchStreamAdapter::new(schema, pieces)));
        }
        let collector = Collector {
            number: self.number,
            partition,
            partitions: partitions(input),
            schema: Arc::clone(&schema),
            cache: Arc::clone(&self.cache),
            run: Arc::clone(&self.run),
            rows: Vec::new(),
        };
        let input = input.execute(partition, context)?;
        let rows = stream::try_unfold((input, Some(collector)), async |(mut input, collector)| {
            if let Some(collector) = &collector {
                lock(&collector.run).began.get_or_insert_with(Instant::now);
            }
            let Some(batch) = input.next().await.transpose()? else {
                if let Some(collector) = collector {
                    collector.finish()?;
                }
                return Ok(None);
            };
            let mut collector = collector;
            if let Some(rows) = &mut collector
                && !rows.add(&batch)?
            {
                collector = None;
            }
            Ok(Some((batch, (input, collector))))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::ArrayRef;
    use datafusion::arrow::util::pretty::pretty_format_batches;

    use super::*;
    use crate::base::progress::QueryProgress;
    use crate::engine::session::{Session, for_tests};
    use crate::scan::indexed_source::IndexUse;

    /// Rows are taken from memory when they are asked for again, by other statements, too; not when the
    /// table has changed.
    #[test]
    fn a_side_is_found_once() {
        let folder = tempfile::tempdir().unwrap();
        let (known, plain) = (for_tests(folder.path(), true), for_tests(folder.path(), false));
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let run = |session: &Session, sql: &str| {
            let rows =
                runtime.block_on(session.query(sql)).unwrap_or_else(|e| panic!("{sql}: {e}"));
            pretty_format_batches(&rows).unwrap().to_string()
        };
        run(
            &known,
            "CREATE TABLE e (user_id TEXT, n BIGINT) CLUSTERED BY (user_id) ID DOMAINS (user_id users);
             CREATE TABLE x (user_id TEXT, variant INT) CLUSTERED BY (user_id) ID DOMAINS (user_id users);
             INSERT INTO e SELECT concat('u', CAST(value % 900 AS TEXT)), value FROM generate_series(1, 20000) AS s(value);
             INSERT INTO x SELECT concat('u', CAST(value % 400 AS TEXT)), CAST(value % 2 AS INT) FROM generate_series(1, 500) AS s(value)",
        );
        let ask = |what: &str, having: &str| {
            format!(
                "WITH u AS (SELECT user_id, min(variant) AS variant FROM x {having} GROUP BY user_id)
                 SELECT variant, {what} FROM e JOIN u ON e.user_id = u.user_id GROUP BY 1 ORDER BY 1"
            )
        };
        let sums = ask("sum(n)", "");
        let state = known.context().state();
        let cache = Arc::clone(&state.config().get_extension::<IndexUse>().unwrap().columns);
        let kept = |number: u64| {
            let chunks = [1, 2].map(|partitions| Chunk::of_side(number, partitions));
            chunks.into_iter().find(|chunk| cache.keeps(chunk))
        };
        let expected = run(&plain, &sums);
        assert_eq!(run(&known, &sums), expected);
        let chunk = kept(1).unwrap();
        let progress = QueryProgress::new();
        progress.run(|| assert_eq!(run(&known, &sums), expected));
        let counts = progress.counts();
        assert!(counts.sides_kept == 1 && !counts.saved.is_zero(), "{counts:?}");
        // Another statement has the same side; one that asks for other users has another.
        let counts = ask("count(*)", "");
        assert_eq!(run(&known, &counts), run(&plain, &counts));
        assert!(kept(2).is_none());
        let others = ask("count(*)", "WHERE variant = 1");
        assert_eq!(run(&known, &others), run(&plain, &others));
        assert!(kept(2).is_some());
        // A session of older snapshots has the same memory, and sides of its own.
        let (pinned, _) = runtime.block_on(known.pinned(&["x".into(), "e".into()])).unwrap();
        let few = ask("count(*)", "WHERE variant = 0");
        assert_eq!(run(&pinned, &few), run(&plain, &few));
        assert_eq!(run(&pinned, &sums), expected);
        // What is kept is what is read.
        let rows = cache.get(&chunk).unwrap();
        let nobody = rows.as_list::<i32>().values().slice(0, 0);
        let DataType::List(item) = rows.data_type() else { panic!("{}", rows.data_type()) };
        let lengths = OffsetBuffer::from_lengths(vec![0; rows.len()]);
        let nobody = ListArray::new(Arc::clone(item), lengths, nobody, None);
        cache.keep(chunk, Arc::new(nobody) as ArrayRef, 1);
        assert!(!run(&known, &sums).contains('1'));
        run(&known, "INSERT INTO x VALUES ('u800', 1)");
        for sql in [&sums, &counts, &sums, &others] {
            assert_eq!(run(&known, sql), run(&plain, sql));
        }
        // Without memory nothing is kept, and nothing is missing.
        known.engine.memory.columns().let_go(usize::MAX);
        assert_eq!(run(&known, &sums), run(&plain, &sums));
    }
}
