//! A session: one lake, one budget, statements in, answers out.
//!
//! # Invariants
//! - All queries of a session share one memory pool; sorts, aggregates and joins spill when it is full,
//!   and a query that cannot go on fails with [`EngineError::Limit`].
//! - Dropping an answer's stream stops its query.
//! - A bounded number of statements compute at once (`admission`); all others wait, and hold nothing.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::information_schema::INFORMATION_SCHEMA;
use datafusion::catalog::{CatalogProvider, MemoryCatalogProvider, MemoryCatalogProviderList};
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, TableReference};
use datafusion::execution::context::SessionContext;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{MemoryPool, TrackConsumersPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::execution::{FunctionRegistry, SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::OptimizerRule;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, execute_stream, execute_stream_partitioned};
use datafusion::prelude::SessionConfig;
use futures::future::join_all;
use futures::{StreamExt, TryStreamExt};
use uplake_table::{AsOf, Domain, IndexCache, Lake};

use crate::admission::Admission;
use crate::catalog::LakeCatalog;
use crate::count_ids::count_ids;
use crate::dense::{
    self, DenseAggregateExec, DenseAggregates, GroupsBeforeUnions, IdRanges, LookupJoins, TextTests,
};
use crate::domain_functions;
use crate::error::{EngineError, Result};
use crate::filter_ids::{self, filter_ids};
use crate::hot::ColumnCache;
use crate::id_keys;
use crate::id_ranges;
use crate::id_set::Mark;
use crate::id_sets::IdSets;
use crate::indexed::IndexUse;
use crate::join_ids::JoinIds;
use crate::kept_sides::{KeepSides, Planner, Sides};
use crate::key_ids::highest_ids;
use crate::match_words::MatchWords;
use crate::mends::{self, Microseconds};
use crate::moments::Shelf;
use crate::plans::{self, Plans, Prepared};
use crate::pool::{ClassPool, SharedPool};
use crate::repair::Repairs;
use crate::settings::Settings;
use crate::split_distinct::{self, SplitDistinct};
use crate::statement::{self, Statement, with_lower_case};
use crate::stoppable::{stoppable, stopping};

use crate::storage::{self, QueryStore};
use crate::top_candidates::TopCandidates;
use crate::warnings::Warnings;
use crate::window_candidates::WindowCandidates;

/// Name of the catalog and schema that hold the lake's tables.
pub(crate) const CATALOG: &str = "lake";
pub(crate) const SCHEMA: &str = "public";
/// Consumers that a limit error names.
const NAMED_CONSUMERS: usize = 3;
/// Of the memory budget, what decoded columns may take while queries do not need it.
const COLUMN_CACHE_SHARE: usize = 2;
/// Of the memory budget, what the session keeps of index files.
const INDEX_CACHE_SHARE: usize = 16;
/// Values of a join's small side that are looked up in an index of the other: making the list takes
/// 3 ms at most, which a scan without an index loses.
const JOIN_LOOKUPS: usize = 20_000;
/// Bytes of those values; text counts with the pages it was read from.
const JOIN_LOOKUP_BYTES: usize = 64 << 20;
/// A join's side of up to so many bytes is kept once for all threads, so that the other side stays
/// where it was read. Ids are looked up in an array then, and the other side is often 10 times as long.
const SHARED_SIDE_BYTES: usize = 256 << 20;
const SHARED_SIDE_ROWS: usize = 16 << 20;
/// Whole numbers are looked up in an array instead of hashed if one in so many is there: 64 bytes of the
/// array for each, about twice what it takes to hash it. Ids of some users are among those of all.
const ARRAY_DENSITY: f64 = 1.0 / 16.0;
/// Statements that compute at once, for each thread: when one waits for a file or has a step on one
/// thread, another uses the core. More of them take longer, all together (docs/BENCHMARKS.md).
const STATEMENTS_PER_THREAD: usize = 2;
/// Of the memory budget, footers and page indexes kept: a 20-column file's are about 100 KiB.
const METADATA_CACHE_SHARE: usize = 32;

/// What a session may use.
#[derive(Clone)]
pub struct SessionOptions {
    /// Bytes for all queries together.
    pub memory_bytes: usize,
    /// Threads a query runs on.
    pub threads: usize,
    /// The version of every table that a statement does not name one for.
    pub as_of: AsOf,
    /// Where to spill; the system's temporary folder if `None`.
    pub spill_folder: Option<PathBuf>,
    /// Ask the indexes of data files; without, every answer comes from the data alone.
    pub use_indexes: bool,
    /// Statements that compute at once, at least 1; `None` is twice the threads.
    pub at_once: Option<usize>,
    /// What a statement may take, in the queue and computing, unless it says otherwise.
    pub timeout: Option<Duration>,
    /// The clock: milliseconds since 1970, UTC.
    pub clock: Arc<dyn Fn() -> i64 + Send + Sync>,
}

/// The part of the options that writing operators need, carried in DataFusion's session config.
#[derive(Clone)]
pub(crate) struct Budget {
    pub memory_bytes: usize,
    pub threads: usize,
    clock: Arc<dyn Fn() -> i64 + Send + Sync>,
}

impl Budget {
    /// A third for rows waiting to be written; the query that makes them needs the rest.
    pub fn write_bytes(&self) -> usize {
        self.memory_bytes / 3
    }

    pub fn now_millis(&self) -> i64 {
        (self.clock)()
    }

    pub fn of(config: &SessionConfig) -> Arc<Self> {
        config.get_extension::<Self>().expect("every session sets its budget when it is made")
    }
}

/// Answers statements about one lake.
pub struct Session {
    pub(crate) context: SessionContext,
    pub(crate) lake: Lake,
    pub(crate) catalog: Arc<LakeCatalog>,
    pub(crate) budget: Budget,
    use_indexes: bool,
    warnings: Arc<Warnings>,
    pub(crate) repairs: Arc<Repairs>,
    pub(crate) id_sets: Arc<IdSets>,
    pub(crate) admission: Arc<Admission>,
    /// Where what files add up to is remembered.
    pub(crate) shelf: Option<Arc<Shelf>>,
    /// Columns by which there were too many groups for arrays, and scans that could not be by ranges of ids.
    too_many_groups: Arc<Mutex<HashSet<String>>>,
    pub(crate) plans: Plans,
    /// Of all sessions that keep columns together.
    sides: Arc<Sides>,
}

/// What a statement gives back.
pub enum Answer {
    /// Rows, as they are computed. Dropping the stream stops the query.
    Rows { schema: SchemaRef, stream: SendableRecordBatchStream },
    /// Something was done; `rows` were written or removed.
    Done { message: String, rows: Option<u64> },
}

impl Session {
    /// A session on a lake.
    ///
    /// # Errors
    /// [`EngineError::Execution`] if the spill folder cannot be used.
    pub fn new(lake: Lake, options: &SessionOptions) -> Result<Self> {
        let columns = Arc::new(ColumnCache::new(options.memory_bytes / COLUMN_CACHE_SHARE));
        let pool: Arc<dyn MemoryPool> = Arc::new(TrackConsumersPool::new(
            SharedPool::new(options.memory_bytes, Arc::clone(&columns)),
            NonZeroUsize::new(NAMED_CONSUMERS).unwrap_or(NonZeroUsize::MIN),
        ));
        let slots = options.at_once.unwrap_or(options.threads * STATEMENTS_PER_THREAD);
        let (taken, half) = (Arc::clone(&pool), options.memory_bytes / 2);
        let admission = Admission::new(slots, move || taken.reserved() <= half);
        let mut disk = DiskManagerBuilder::default();
        if let Some(folder) = &options.spill_folder {
            disk = disk.with_mode(DiskManagerMode::Directories(vec![folder.clone()]));
        }
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(pool)
            .with_disk_manager_builder(disk)
            .with_metadata_cache_limit(options.memory_bytes / METADATA_CACHE_SHARE)
            .build_arc()?;
        storage::register(&runtime, &lake);
        let budget = Budget {
            memory_bytes: options.memory_bytes,
            threads: options.threads,
            clock: Arc::clone(&options.clock),
        };
        let warnings = Arc::new(Warnings::default());
        let (of_lake, as_of) = (lake.clone(), options.as_of.clone());
        let catalog = Arc::new(LakeCatalog::new(of_lake, as_of, Arc::clone(&warnings)));
        let repairs = Arc::new(Repairs::default());
        let settings = Settings { timeout: options.timeout, memory_bytes: options.memory_bytes };
        let config = session_config(options.threads, &budget);
        let mut config = config.with_option_extension(settings);
        let too_many_groups = Arc::default();
        if options.use_indexes {
            let cache = IndexCache::new(options.memory_bytes / INDEX_CACHE_SHARE);
            let cache = Arc::new(cache.over(lake.storage()));
            let (warnings, repairs) = (Arc::clone(&warnings), Arc::clone(&repairs));
            let columns = Arc::clone(&columns);
            let in_use = IndexUse { cache, columns, warnings, repairs };
            config = config.with_extension(Arc::new(in_use));
        }
        let mut state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(runtime)
            .with_default_features()
            .with_aggregate_functions(aggregate_functions())
            .with_scalar_functions(scalar_functions())
            .with_window_functions(window_functions())
            .with_table_function_list(mends::table_functions())
            .with_file_formats(mends::file_formats())
            .with_expr_planners(mends::expr_planners())
            .with_type_planner(Arc::new(Microseconds))
            .with_relation_planners(mends::relation_planners())
            .with_analyzer_rules(mends::analyzer_rules())
            .with_optimizer_rules(logical_rules())
            .with_physical_optimizer_rules(mends::physical_rules());
        if options.use_indexes {
            state = state.with_optimizer_rule(Arc::new(JoinIds));
            state = state.with_query_planner(Arc::new(Planner(columns)));
            state = state.with_physical_optimizer_rules(physical_rules(Some(&too_many_groups)));
        }
        let state = state.build();
        let id_sets = Arc::default();
        let (context, use_indexes) = (context(state, &catalog)?, options.use_indexes);
        Ok(Self {
            context,
            lake,
            catalog,
            budget,
            use_indexes,
            warnings,
            repairs,
            id_sets,
            admission,
            shelf: None,
            too_many_groups,
            plans: Plans::default(),
            sides: Arc::default(),
        })
    }

    /// This session, which remembers on this machine what data files add up to in reports, so that the
    /// next report of the same metrics reads only files that are new. The same session if the machine
    /// keeps nothing of this lake, or without indexes.
    #[must_use]
    pub fn remembering(self) -> Self {
        let folder = self.lake.local_folder().filter(|_| self.use_indexes);
        let shelf = folder.map(|folder| Arc::new(Shelf::new(folder.join("runs"))));
        Self { shelf, ..self }
    }

    /// Data files that reports of this session did not read because what they add up to was remembered,
    /// and files of which it is remembered since.
    pub fn remembered(&self) -> (u64, u64) {
        self.shelf.as_ref().map_or((0, 0), |shelf| shelf.counts())
    }

    pub(crate) fn warn(&self, about: &str, message: &str) {
        self.warnings.add(about, message);
    }

    /// The lake.
    pub fn lake(&self) -> &Lake {
        &self.lake
    }

    pub(crate) fn uses_indexes(&self) -> bool {
        self.use_indexes
    }

    /// What the user should hear of the statements since the last call, although they were answered.
    pub fn take_warnings(&self) -> Vec<String> {
        let mut warnings = self.warnings.take();
        warnings.extend(self.lake.storage().take_warnings());
        warnings
    }

    /// The state that one query is planned with, and what it will have asked of the store.
    pub(crate) fn query_state(&self) -> (SessionState, QueryStore) {
        let mut state = self.context.state();
        let store = QueryStore::new(&self.lake);
        state.config_mut().set_extension(Arc::new(store.clone()));
        (state, store)
    }

    /// This session with `tables` kept at the versions they have now, so that several statements
    /// read one state of the lake; and those versions. Names that are no tables of the lake are
    /// left out.
    ///
    /// # Errors
    /// [`EngineError::Table`] if a table cannot be read.
    pub async fn pinned(&self, tables: &[String]) -> Result<(Self, Vec<(String, i64)>)> {
        self.catalog.begin_statement();
        let catalog = Arc::new(self.catalog.pin(tables).await?);
        let state = SessionStateBuilder::new_from_existing(self.context.state())
            .with_catalog_list(Arc::new(MemoryCatalogProviderList::new()))
            .build();
        let versions = catalog.pins();
        let pinned = self.over(state, catalog)?;
        Ok((pinned, versions))
    }

    /// This session, whose statements together take at most `limit` bytes of the memory.
    pub(crate) fn with_share(&self, limit: usize) -> Result<Self> {
        let env = self.context.runtime_env();
        let memory_pool = Arc::new(ClassPool::new(Arc::clone(&env.memory_pool), limit));
        let runtime = RuntimeEnv { memory_pool, ..env.as_ref().clone() };
        let state = SessionStateBuilder::new_from_existing(self.context.state())
            .with_catalog_list(Arc::new(MemoryCatalogProviderList::new()))
            .with_runtime_env(Arc::new(runtime))
            .build();
        self.over(state, Arc::clone(&self.catalog))
    }

    /// A session of the same lake and memory.
    fn over(&self, state: SessionState, catalog: Arc<LakeCatalog>) -> Result<Self> {
        Ok(Self {
            context: context(state, &catalog)?,
            lake: self.lake.clone(),
            catalog,
            budget: self.budget.clone(),
            use_indexes: self.use_indexes,
            warnings: Arc::clone(&self.warnings),
            repairs: Arc::clone(&self.repairs),
            id_sets: Arc::clone(&self.id_sets),
            admission: Arc::clone(&self.admission),
            shelf: self.shelf.clone(),
            too_many_groups: Arc::clone(&self.too_many_groups),
            plans: Plans::default(),
            sides: Arc::clone(&self.sides),
        })
    }

    /// Runs one statement now, whoever else computes.
    pub(crate) async fn run_now(&self, statement: &Statement) -> Result<Answer> {
        self.catalog.begin_statement();
        if let Some(answer) = self.run_own(statement).await? {
            return Ok(answer);
        }
        if statement.only_asks() && self.lake.is_remote() {
            let references = self.references(&statement.parsed)?;
            // An error, too, can come from what a table was.
            if let Some(belief) = self.catalog.believe(references.iter().map(|r| r.table())).await
                && let Some(answer) = self.catalog.during(belief, self.answer(statement)).await
            {
                return answer;
            }
        }
        self.answer(statement).await
    }

    async fn answer(&self, statement: &Statement) -> Result<Answer> {
        let mut tables = None;
        let answer = if plans::may_be_kept(statement) {
            let named = tables.insert(self.tables_of(&statement.parsed).await?);
            self.ask(statement, named).await?
        } else {
            self.run_plan(self.plan(statement).await?).await?
        };
        if !statement.only_asks() {
            // It may have set how plans are made.
            self.plans.forget();
            self.sides.forget();
        }
        match answer {
            Answer::Rows { schema, stream } => {
                let schema = match &tables {
                    Some(tables) => spelled(&schema, &mixed_case_columns(tables)),
                    None => self.spell(statement, &schema).await?,
                };
                Ok(Answer::Rows { stream: with_schema(stream, Arc::clone(&schema)), schema })
            }
            done @ Answer::Done { .. } => Ok(done),
        }
    }

    /// A query's answer, by the plan that it had before if nothing has changed.
    async fn ask(&self, statement: &Statement, tables: &plans::Tables) -> Result<Answer> {
        let (state, _) = self.query_state();
        let prepared = match self.plans.of(&statement.text, tables) {
            Some(prepared) => prepared,
            None => {
                let plan = self.parsed_plan(statement).await?;
                let decided = plans::is_decided(&plan, tables)?;
                let plan = self.resolved(plan, statement).await?;
                if !decided {
                    return self.run_plan(plan).await;
                }
                let mut prepared = self.prepared(&state, plan).await?;
                if prepared.whole && self.use_indexes {
                    prepared.optimized = self.sides.marked(prepared.optimized)?;
                    self.plans.keep(&statement.text, tables.clone(), prepared.clone());
                }
                prepared
            }
        };
        let plan = self.with_keys(&state, prepared).await?;
        let stream = self.run_optimized(plan, state).await?;
        Ok(Answer::Rows { schema: stream.schema(), stream })
    }

    /// Runs a text of statements and returns the rows of the last one.
    ///
    /// # Errors
    /// The first statement that fails ends it.
    pub async fn query(&self, text: &str) -> Result<Vec<RecordBatch>> {
        let mut last = Vec::new();
        for statement in statement::parse(text)? {
            last = match self.run(&statement).await? {
                Answer::Rows { stream, .. } => stream.try_collect().await?,
                Answer::Done { .. } => Vec::new(),
            };
        }
        Ok(last)
    }

    pub(crate) async fn plan(&self, statement: &Statement) -> Result<LogicalPlan> {
        let plan = self.parsed_plan(statement).await?;
        self.resolved(plan, statement).await
    }

    /// What the text says.
    pub(crate) async fn parsed_plan(&self, statement: &Statement) -> Result<LogicalPlan> {
        let exact = mixed_case_columns(&self.tables_of(&statement.parsed).await?);
        let spelled = || match exact.is_empty() {
            true => Ok(statement.parsed.clone()),
            false => with_lower_case(statement, &exact.values().cloned().collect()),
        };
        let parsed = spelled()?;
        let about_all = |r: &TableReference| r.schema() == Some(INFORMATION_SCHEMA);
        if self.references(&parsed)?.iter().any(about_all) {
            self.catalog.read_names().await?;
        }
        let planned = self.context.state().statement_to_plan(parsed).await;
        let (lacks_group, repeats_name) = match &planned {
            Ok(plan) => (false, mends::repeats_key(plan)?),
            Err(error) => (mends::lacks_group(error), mends::repeats_name(error)),
        };
        let mended = match lacks_group || repeats_name {
            true => self.plan_otherwise(spelled()?, lacks_group, repeats_name).await?,
            false => None,
        };
        let plan = match (mended, planned) {
            (Some(plan), _) | (None, Ok(plan)) => plan,
            (None, Err(error)) => return Err(self.explain(error).await),
        };
        let plan = mends::without_marks(plan)?;
        if statement.ignores_conflicts { self.ignoring_conflicts(plan) } else { Ok(plan) }
    }

    /// The plan of a statement that was refused because it groups by primary keys, or because two of its
    /// columns have one name.
    async fn plan_otherwise(
        &self,
        mut parsed: datafusion::sql::parser::Statement,
        mut lacks_group: bool,
        mut repeats_name: bool,
    ) -> Result<Option<LogicalPlan>> {
        let mut state = self.context.state();
        state.register_udf(mends::named_cast())?;
        // One may only show when the other has been mended.
        for _ in 0..2 {
            if lacks_group {
                let tables = self.tables_of(&parsed).await?;
                let is_aggregate = |name: &str| state.aggregate_functions().contains_key(name);
                if !mends::name_decided_columns(&mut parsed, &tables, &is_aggregate) {
                    mends::name_apart(&mut parsed, true);
                }
            } else if repeats_name {
                mends::name_apart(&mut parsed, false);
            } else {
                return Ok(None);
            }
            match state.statement_to_plan(parsed.clone()).await {
                Ok(plan) => return Ok(Some(mends::with_names(plan)?)),
                Err(error) => {
                    lacks_group = !lacks_group && mends::lacks_group(&error);
                    repeats_name = !repeats_name && mends::repeats_name(&error);
                }
            }
        }
        Ok(None)
    }

    /// The plan with the sets of ids and the domains that it names.
    async fn resolved(&self, plan: LogicalPlan, statement: &Statement) -> Result<LogicalPlan> {
        let plan = self.resolve_id_sets(plan, statement).await?;
        self.resolve_domains(plan).await
    }

    /// The plan with the domains that its functions name, each read to the end of its log.
    async fn resolve_domains(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let names = domain_functions::named_domains(&plan)?;
        if names.is_empty() {
            return Ok(plan);
        }
        let mut domains = HashMap::new();
        for name in names {
            let domain = self.lake.domain(&name).await?;
            domains.insert(name, domain);
        }
        Ok(domain_functions::resolve(plan, &domains)?)
    }

    /// The answer's schema with columns spelled as their tables spell them: `userid` comes out as `UserId`.
    pub(crate) async fn spell(
        &self,
        statement: &Statement,
        schema: &SchemaRef,
    ) -> Result<SchemaRef> {
        let tables = self.tables_of(&statement.parsed).await?;
        Ok(spelled(schema, &mixed_case_columns(&tables)))
    }

    /// The lake's tables that a statement names, by the names that it has for them.
    async fn tables_of(
        &self,
        parsed: &datafusion::sql::parser::Statement,
    ) -> Result<plans::Tables> {
        let references = self.references(parsed)?;
        // All at once: in a bucket each is some round trips. All to their ends, because one that is
        // dropped while the log is read leaves a thread that panics.
        let find = references.iter().map(|reference| self.catalog.find(reference.table()));
        let found = references.iter().zip(join_all(find).await);
        let named = found.filter_map(|(reference, table)| {
            let name = reference.table().to_owned();
            Some(table.transpose()?.map(|table| (name, table)))
        });
        Ok(named.collect::<Result<_, _>>()?)
    }

    /// The names of tables in a statement.
    pub(crate) fn references(
        &self,
        parsed: &datafusion::sql::parser::Statement,
    ) -> Result<Vec<TableReference>> {
        Ok(self.context.state_ref().read().resolve_table_references(parsed)?)
    }

    /// A missing table's message names the tables there are.
    async fn explain(&self, error: DataFusionError) -> EngineError {
        let error = EngineError::from(error);
        let EngineError::Statement { message, position } = error else { return error };
        let missing = message.strip_prefix("table '").and_then(|m| m.strip_suffix("' not found"));
        let Some(name) = missing else { return EngineError::Statement { message, position } };
        let prefix = format!("{CATALOG}.{SCHEMA}.");
        let name = statement::split_version(name.strip_prefix(&prefix).unwrap_or(name)).0;
        let known = self.lake.table_names().await.unwrap_or_default();
        let is_file = name.contains('/')
            || [".parquet", ".csv", ".json", ".gz", ".zst"].iter().any(|e| name.ends_with(e));
        let message = if is_file {
            format!("no file matches '{name}' (Parquet, CSV and JSON files can be read in place)")
        } else if known.is_empty() {
            format!(
                "there is no table `{name}`; the lake {} is empty, load a file first: uplake load {name} FILE",
                self.lake.location()
            )
        } else {
            format!("there is no table `{name}`; the lake has {}", known.join(", "))
        };
        EngineError::Statement { message, position }
    }

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
        let streams = execute_stream_partitioned(physical, self.context.task_ctx())?;
        Ok(streams.into_iter().map(|stream| stopping(stream, Arc::clone(&stop))).collect())
    }

    /// The plan as it is run, with ids in place of keys where that changes nothing but the speed.
    pub(crate) async fn optimized(
        &self,
        state: &SessionState,
        plan: LogicalPlan,
    ) -> Result<LogicalPlan> {
        let prepared = self.prepared(state, plan).await?;
        self.with_keys(state, prepared).await
    }

    /// That plan, which still has to be told the domains that it takes keys from.
    async fn prepared(&self, state: &SessionState, plan: LogicalPlan) -> Result<Prepared> {
        if !self.use_indexes {
            let optimized = optimize(state.clone(), plan.clone()).await?;
            return Ok(Prepared { optimized, before: plan, whole: true });
        }
        let mut before = count_ids(plan)?;
        let sources = filter_ids::wanted_sources(&before)?;
        let wanted = sources.len();
        // A domain that cannot be read makes the statement slower, no more.
        let domains = self.domains_of(sources, &before).await?;
        if !domains.is_empty() {
            before = filter_ids(before, &domains)?;
        }
        let whole = domains.len() == wanted;
        let optimized = optimize(state.clone(), before.clone()).await?;
        Ok(Prepared { optimized, before, whole })
    }

    async fn with_keys(&self, state: &SessionState, prepared: Prepared) -> Result<LogicalPlan> {
        let Prepared { optimized, before, .. } = prepared;
        let sources = id_keys::wanted_sources(&optimized)?;
        if sources.is_empty() {
            return Ok(optimized);
        }
        let wanted = sources.len();
        let domains = self.domains_of(sources, &before).await?;
        if domains.len() < wanted {
            // The keys are in the data files, too.
            return self.without_ids(state, before).await;
        }
        Ok(id_keys::resolve(optimized, &domains)?)
    }

    /// The domains and logs of that name that can be read, with every id that the plan's tables have.
    async fn domains_of(
        &self,
        sources: HashSet<String>,
        plan: &LogicalPlan,
    ) -> Result<HashMap<String, Arc<Domain>>> {
        if sources.is_empty() {
            return Ok(HashMap::new());
        }
        let highest = highest_ids(plan)?;
        let mut domains = HashMap::new();
        for source in sources {
            let Some((name, log)) = source.split_once(':') else { continue };
            let highest = highest.get(&source).copied().flatten();
            if let Ok(domain) = self.lake.domain_with_ids(name, log, highest).await {
                domains.extend(domain.map(|domain| (source, domain)));
            }
        }
        Ok(domains)
    }

    /// The plan with keys compared where ids could be.
    async fn without_ids(&self, state: &SessionState, plan: LogicalPlan) -> Result<LogicalPlan> {
        let rules = state.optimizer().rules.iter().filter(|rule| rule.name() != JoinIds.name());
        let state = SessionStateBuilder::new_from_existing(state.clone())
            .with_optimizer_rules(rules.cloned().collect())
            .build();
        optimize(state, plan).await
    }

    /// The rows of a query; some of them, or its end, are there when this returns.
    pub(crate) async fn run_query(&self, plan: LogicalPlan) -> Result<SendableRecordBatchStream> {
        let (state, store) = self.query_state();
        let analyzes = matches!(plan, LogicalPlan::Analyze(_)) && self.lake.is_remote();
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
            let error = match begun(&physical, self.context.task_ctx()).await {
                Ok(stream) => return Ok(stopping(stream, stop)),
                Err(error) => error,
            };
            state = match id_ranges::unfit(&error) {
                Some(scan) if had_ranges => {
                    had_ranges = false;
                    let mut failed =
                        self.too_many_groups.lock().unwrap_or_else(PoisonError::into_inner);
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
        if let Some(columns) = dense::too_many_by(&error) {
            self.too_many_groups.lock().unwrap_or_else(PoisonError::into_inner).insert(columns);
        } else if joins {
            options.optimizer.prefer_hash_join = false;
        } else {
            options.execution.target_partitions = 1;
        }
        Ok(state)
    }
}

/// The plan as it is run. It takes seconds of large statements, which nothing stops: who waits for it may go on at
/// a deadline.
async fn optimize(state: SessionState, plan: LogicalPlan) -> Result<LogicalPlan> {
    let work = SpawnedTask::spawn(async move { state.optimize(&plan) });
    match work.join().await {
        Ok(optimized) => Ok(optimized?),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(error) => Err(EngineError::Execution(error.to_string())),
        },
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

/// A context whose names are the lake's tables, or files.
fn context(state: SessionState, catalog: &Arc<LakeCatalog>) -> Result<SessionContext> {
    let schemas = MemoryCatalogProvider::new();
    schemas.register_schema(SCHEMA, Arc::clone(catalog) as _)?;
    let context = SessionContext::new_with_state(state);
    context.register_catalog(CATALOG, Arc::new(schemas));
    Ok(context.enable_url_table())
}

/// Columns of tables whose names are not lower case, by lower-case name.
fn mixed_case_columns(tables: &plans::Tables) -> HashMap<String, String> {
    let fields = tables.iter().flat_map(|(_, table)| table.snapshot().schema().fields());
    let is_mixed = |field: &&Arc<Field>| field.name().chars().any(|c| c.to_lowercase().ne([c]));
    let mixed = fields.filter(is_mixed);
    mixed.map(|field| (field.name().to_lowercase(), field.name().clone())).collect()
}

/// The schema with these columns as their tables spell them.
fn spelled(schema: &SchemaRef, exact: &HashMap<String, String>) -> SchemaRef {
    let name = |field: &'_ Arc<Field>| -> String {
        let shown = mends::shown_name(field.name());
        exact.get(shown).map_or(shown, String::as_str).to_owned()
    };
    if schema.fields().iter().all(|field| name(field) == *field.name()) {
        return Arc::clone(schema);
    }
    let fields = schema.fields().iter();
    let named = fields.map(|field| Arc::new(field.as_ref().clone().with_name(name(field))));
    let fields: Vec<_> = named.collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// The same rows under other column names.
pub(crate) fn with_schema(
    stream: SendableRecordBatchStream,
    schema: SchemaRef,
) -> SendableRecordBatchStream {
    if stream.schema() == schema {
        return stream;
    }
    let renamed = Arc::clone(&schema);
    let rows = stream.map(move |batch| {
        Ok(RecordBatch::try_new(Arc::clone(&renamed), batch?.columns().to_vec())?)
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, rows))
}

/// The state whose groups are in hash tables, which can spill.
fn without_arrays(state: SessionState) -> SessionState {
    SessionStateBuilder::new_from_existing(state)
        .with_physical_optimizer_rules(physical_rules(None))
        .build()
}

/// The state that takes no rows by ranges of ids.
fn without_ranges(state: SessionState) -> SessionState {
    let is_ranges = |rule: &str| rule == IdRanges::default().name();
    let rules = state.physical_optimizers().iter().filter(|rule| !is_ranges(rule.name()));
    let rules = rules.cloned().collect();
    SessionStateBuilder::new_from_existing(state).with_physical_optimizer_rules(rules).build()
}

fn logical_rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let mut rules = mends::logical_rules();
    let place = rules.iter().position(|rule| rule.name() == split_distinct::PLACE);
    rules.insert(place.unwrap_or_default(), Arc::new(SplitDistinct));
    rules
}

/// DataFusion's rules, and ours among them; without groups in arrays if nobody says which are too many.
fn physical_rules(
    too_many_groups: Option<&Arc<Mutex<HashSet<String>>>>,
) -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut rules = mends::physical_rules();
    let mut before = |name: &str, rule: Arc<dyn PhysicalOptimizerRule + Send + Sync>| {
        if let Some(place) = rules.iter().position(|rule| rule.name() == name) {
            rules.insert(place, rule);
        }
    };
    before(dense::PLACE, Arc::new(KeepSides));
    if let Some(too_many) = too_many_groups.cloned() {
        before(dense::PLACE, Arc::new(DenseAggregates { too_many: Arc::clone(&too_many) }));
        before(dense::LAST_PLACE, Arc::new(LookupJoins));
        before(dense::LAST_PLACE, Arc::new(TextTests));
        before(dense::LAST_PLACE, Arc::new(IdRanges { failed: too_many }));
        before(dense::LAST_PLACE, Arc::new(TopCandidates));
        before(dense::LAST_PLACE, Arc::new(WindowCandidates));
        before(dense::LAST_PLACE, Arc::new(GroupsBeforeUnions));
    }
    rules
}

fn contains(plan: &dyn ExecutionPlan, wanted: fn(&dyn ExecutionPlan) -> bool) -> bool {
    wanted(plan) || plan.children().iter().any(|child| contains(child.as_ref(), wanted))
}

fn aggregate_functions() -> Vec<Arc<datafusion::logical_expr::AggregateUDF>> {
    let mut functions = mends::aggregate_functions();
    let own = [
        crate::exact_sum::exact_sum(),
        crate::daily_sums::daily_sums(),
        crate::daily_values::daily_first(),
        crate::daily_values::daily_last(),
        crate::funnel::funnel(),
    ];
    functions.extend(own.map(Arc::new));
    functions.extend(uplake_functions::aggregates().into_iter().map(Arc::new));
    // Under the name that other engines have for it.
    let sketch = functions.iter().position(|function| function.name() == "approx_distinct");
    if let Some(sketch) = sketch.map(|place| functions[place].as_ref().clone()) {
        functions.push(Arc::new(sketch.with_aliases(["approx_count_distinct"])));
    }
    functions
}

fn window_functions() -> Vec<Arc<datafusion::logical_expr::WindowUDF>> {
    let mut functions = mends::window_functions();
    functions.extend(uplake_functions::windows().into_iter().map(Arc::new));
    functions
}

fn scalar_functions() -> Vec<Arc<datafusion::logical_expr::ScalarUDF>> {
    let mut functions = mends::scalar_functions();
    let own = [crate::local_day::local_day(), Mark::function(), MatchWords::function()];
    functions.extend(own.map(Arc::new));
    functions.extend(crate::assignment::functions().into_iter().map(Arc::new));
    functions.extend(crate::domain_functions::functions().map(Arc::new));
    functions.extend(uplake_functions::scalars().into_iter().map(Arc::new));
    functions
}

fn session_config(threads: usize, budget: &Budget) -> SessionConfig {
    let mut config = SessionConfig::new()
        .with_target_partitions(threads)
        .with_default_catalog_and_schema(CATALOG, SCHEMA)
        .with_create_default_catalog_and_schema(false)
        .with_information_schema(true)
        .with_extension(Arc::new(budget.clone()));
    let options = config.options_mut();
    options.sql_parser.collect_spans = true;
    options.execution.time_zone = Some("+00:00".into());
    // DataFusion 55.2 says of `a IS TRUE` in a group that it may be NULL, and refuses what it said.
    options.execution.skip_physical_aggregate_schema_check = true;
    options.execution.parquet.pushdown_filters = false;
    // Nanoseconds, which Spark's times of 96 bits would become, end in 2262.
    options.execution.parquet.coerce_int96 = Some("us".into());
    // The small side of a join as a list of values, which an index can look up.
    options.optimizer.hash_join_inlist_pushdown_max_distinct_values = JOIN_LOOKUPS;
    options.optimizer.hash_join_inlist_pushdown_max_size = JOIN_LOOKUP_BYTES;
    let shared = SHARED_SIDE_BYTES.min(budget.memory_bytes / 8);
    options.optimizer.hash_join_single_partition_threshold = shared;
    options.optimizer.hash_join_single_partition_threshold_rows = SHARED_SIDE_ROWS;
    options.execution.perfect_hash_join_min_key_density = ARRAY_DENSITY;
    // DataFusion 55.2 prunes by what min() and max() have seen so far, but forgets an aggregate that has
    // seen only NULLs: min(a), max(b) lost files and gave wrong answers.
    options.optimizer.enable_aggregate_dynamic_filter_pushdown = false;
    config
}

/// A session for unit tests: two threads, 256 MiB, and a clock that stands still.
#[cfg(test)]
pub(crate) fn for_tests(folder: &std::path::Path, use_indexes: bool) -> Session {
    let options = SessionOptions {
        memory_bytes: 256 << 20,
        threads: 2,
        as_of: AsOf::Latest,
        spill_folder: None,
        use_indexes,
        at_once: None,
        timeout: None,
        clock: Arc::new(|| 1_793_491_200_000),
    };
    Session::new(Lake::open(folder.to_str().unwrap()).unwrap(), &options).unwrap()
}
