//! An engine, one of a lake and process, and its sessions: statements in, answers out.
//!
//! # Invariants
//! - All queries of an engine, and of others if it is made so (`cache::memory`), share one memory pool; sorts,
//!   aggregates and joins spill when it is full, and a query that cannot go on fails with
//!   [`EngineError::Limit`].
//! - Dropping an answer's stream stops its query.
//! - A bounded number of statements compute at once (`admission`); all others wait, and hold nothing.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use datafusion::catalog::information_schema::INFORMATION_SCHEMA;
use datafusion::catalog::{
    CatalogProvider, MemoryCatalogProvider, MemoryCatalogProviderList, SchemaProvider,
};
use datafusion::common::config::ExtensionOptions;
use datafusion::execution::TaskContext;
use datafusion::execution::cache::cache_manager::{CacheManagerConfig, CachedFileMetadataEntry};
use datafusion::execution::cache::default_cache::DefaultCache;
use datafusion::execution::context::SessionContext;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::planner::{ExprPlanner, RelationPlanner};
use datafusion::object_store::path::Path;
use datafusion::prelude::SessionConfig;
use tokio::sync::Semaphore;
use uplake_table::{AsOf, IndexCache, Lake};

use crate::base::budget::Budget;
use crate::base::error::{EngineError, Result};
use crate::base::progress;
use crate::base::settings::{InParts, Settings};
use crate::base::warnings::Warnings;
use crate::cache::columns::ColumnCache;
use crate::cache::memory::{EngineMemory, HeldMemory, MemoryShare, SharedMemory};
use crate::cache::pool::ClassPool;
use crate::cache::shelf::Shelf;
use crate::cache::stored_sets::StoredSets;
use crate::engine::additions::{Additions, SessionFacts};
use crate::engine::admission::Admission;
use crate::engine::catalog::{CATALOG, LakeCatalog, SCHEMA};
use crate::engine::file_tables::{self, FilePlaces};
use crate::engine::own_files;
use crate::engine::plan_cache::PlanCache;
use crate::engine::privileges::{Guard, Privilege};
use crate::engine::registry;
use crate::engine::seen::SeenTables;
use crate::engine::session_context::{Held, KEPT, bind_functions};
use crate::mends;
use crate::operators::build_side_cache::Planner;
use crate::optimizer::pipeline::{self, Physical};
use crate::optimizer::steps::Steps;
use crate::portable::elsewhere::Elsewhere;
use crate::portable::guard::PortablePlans;
use crate::portable::parts::PartsPlanner;
use crate::portable::shuffle_read::ShuffleReadPlanner;
use crate::scan::indexed_source::IndexUse;
use crate::scan::lake_table::LakeTable;
use crate::scan::repairs::Repairs;
use crate::scan::storage::{self, QueryStore};
use crate::sql::prepared::Prepared;
use crate::sql::types::StoredTypes;

/// What `SET` changes that no plan depends on.
const CHANGE_NO_PLANS: [&str; 3] = ["uplake.timeout", "uplake.labels", "uplake.traceparent"];

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
/// Of the memory budget, what work beside statements takes at most, as one part of so many.
const HELD_SHARE: usize = 4;
/// Of the memory budget, footers and page indexes kept: a 20-column file's are about 100 KiB.
const METADATA_CACHE_SHARE: usize = 32;
/// Of the memory budget, stored sets of ids that were read: ten million numbers are 250 MB.
const SETS_SHARE: usize = 16;
/// Of the memory budget, plans kept for those who ask again.
const PLAN_CACHE_SHARE: usize = 32;
/// Of the memory budget, tables as they were last seen: one of 10,000 files takes some 30 MB.
const SNAPSHOTS_SHARE: usize = 16;

/// What a session may use.
#[derive(Clone)]
pub struct SessionOptions {
    /// Bytes for all queries of the engine together.
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

/// What all sessions about one lake share in a process: caches, memory, plans, and who computes when.
pub struct Engine {
    pub(crate) lake: Lake,
    pub(crate) catalog: Arc<LakeCatalog>,
    pub(crate) budget: Budget,
    warnings: Arc<Warnings>,
    pub(crate) repairs: Arc<Repairs>,
    pub(crate) id_sets: StoredSets,
    pub(crate) admission: Arc<Admission>,
    /// Of parts of statements that others were asked: they wait for each other alone, so that nodes that compute for
    /// each other always get on.
    pub(crate) part_admission: Arc<Admission>,
    /// Who may compute parts of statements.
    elsewhere: OnceLock<Arc<dyn Elsewhere>>,
    pub(crate) memory: Arc<EngineMemory>,
    /// See [`pipeline::physical_spilling`].
    pub(crate) spilling_rules: Arc<[Physical]>,
    pub(crate) plans: Arc<PlanCache>,
    pub(crate) footers: Arc<DefaultCache<Path, CachedFileMetadataEntry>>,
    pub(crate) indexes: Arc<IndexCache>,
    files: Arc<FilePlaces>,
    pub(crate) portable: PortablePlans,
    /// What sessions begin with, those that have a guard, and of these those that see none of the lake's own files.
    context: SessionContext,
    guarded: SessionContext,
    fenced: SessionContext,
    /// Sessions that may still rest with what they have.
    resting: Arc<Semaphore>,
}

/// Answers statements about one lake: an engine, and what one user has set.
///
/// Making one takes no time and little memory; what DataFusion needs is made with its first statement. `SET` in one
/// changes nothing in another.
pub struct Session {
    pub(crate) engine: Arc<Engine>,
    pub(crate) catalog: Arc<LakeCatalog>,
    /// Where what files add up to is remembered.
    pub(crate) shelf: Option<Arc<Shelf>>,
    /// Who is asked whether a statement may be run.
    pub(crate) guard: Option<Arc<dyn Guard>>,
    /// The part of the memory that it takes from with others, if that is not all.
    pub(crate) share: Option<MemoryShare>,
    /// Who may compute parts of its statements.
    pub(crate) elsewhere: Option<Arc<dyn Elsewhere>>,
    /// May its statements be cut, or is it one that computes parts?
    pub(crate) may_divide: bool,
    pub(crate) context: Held,
    /// What `SET` has changed, by name.
    pub(crate) changed: Mutex<BTreeMap<String, String>>,
    /// By their names.
    pub(crate) prepared: Arc<Mutex<HashMap<String, Prepared>>>,
}

impl Engine {
    /// An engine for a lake, with memory of its own.
    ///
    /// # Errors
    /// [`EngineError::Execution`](crate::EngineError::Execution) if the spill folder cannot be used.
    pub fn new(lake: Lake, options: &SessionOptions) -> Result<Arc<Self>> {
        Self::with_memory(lake, options, &SharedMemory::new(options.memory_bytes))
    }

    /// An engine that takes its memory from what others of this process take theirs from, but no more of it than
    /// [`SessionOptions::memory_bytes`].
    ///
    /// Each engine has slots and a queue of its own, and keeps of its lake beside that memory: index files and footers
    /// of at most 3/32 of its `memory_bytes`, plans of 1/32, tables as they were last seen and sets of ids of 1/16 each.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_memory(
        lake: Lake,
        options: &SessionOptions,
        memory: &SharedMemory,
    ) -> Result<Arc<Self>> {
        Self::with_additions(lake, options, memory, Additions::default())
    }

    /// The same with schemas and functions beside the lake's tables and ours.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_additions(
        lake: Lake,
        options: &SessionOptions,
        memory: &SharedMemory,
        additions: Additions,
    ) -> Result<Arc<Self>> {
        progress::follow_tasks();
        let additions = Arc::new(additions);
        let memory = Arc::new(memory.join(options.memory_bytes));
        let columns = Arc::new(ColumnCache::new(memory.columns()));
        let slots = options.at_once.unwrap_or(options.threads * STATEMENTS_PER_THREAD);
        let slots_for = || {
            let room = Arc::clone(&memory);
            Admission::new(slots, move || room.has_room())
        };
        let (admission, part_admission) = (slots_for(), slots_for());
        let mut disk = DiskManagerBuilder::default();
        if let Some(folder) = &options.spill_folder {
            disk = disk.with_mode(DiskManagerMode::Directories(vec![folder.clone()]));
        }
        let metadata_cache_limit = options.memory_bytes / METADATA_CACHE_SHARE;
        let footers = Arc::new(DefaultCache::new(metadata_cache_limit));
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(memory.pool())
            .with_disk_manager_builder(disk)
            .with_cache_manager(CacheManagerConfig {
                file_metadata_cache: Some(Arc::clone(&footers) as _),
                metadata_cache_limit,
                ..CacheManagerConfig::default()
            })
            // DataFusion would list a folder that is read in place once, and never see what comes into it later.
            .with_object_list_cache_limit(0)
            .build_arc()?;
        storage::register(&runtime, &lake);
        let fenced = own_files::fenced(&runtime, &lake);
        let budget = Budget {
            memory_bytes: options.memory_bytes,
            threads: options.threads,
            clock: Arc::clone(&options.clock),
        };
        let warnings = Arc::new(Warnings::default());
        let plans = Arc::new(PlanCache::new(options.memory_bytes / PLAN_CACHE_SHARE));
        let (of_lake, as_of) = (lake.clone(), options.as_of.clone());
        let catalog = Arc::new(LakeCatalog::new(
            of_lake,
            as_of,
            Arc::clone(&warnings),
            Arc::clone(&additions),
            Arc::clone(&plans),
            options.memory_bytes / SNAPSHOTS_SHARE,
        ));
        let repairs = Arc::new(Repairs::default());
        let settings = Settings {
            timeout: options.timeout,
            labels: String::new(),
            traceparent: String::new(),
            elsewhere: InParts::Auto,
            warehouse: String::new(),
            rules: &pipeline::SPEED,
            presets: &pipeline::PRESETS,
            disabled_rules: match options.use_indexes {
                true => Vec::new(),
                false => pipeline::NO_INDEX.map(str::to_owned).to_vec(),
            },
            memory_bytes: options.memory_bytes,
            shared_bytes: memory.shared_bytes(),
        };
        let config = session_config(options.threads, &budget);
        let config = config
            .with_option_extension(settings)
            .with_option_extension(SessionFacts::default())
            .with_information_schema(!additions.has_schema(INFORMATION_SCHEMA));
        let mut functions = registry::scalar_functions();
        functions.extend(additions.scalar_functions());
        let indexes = IndexCache::new(options.memory_bytes / INDEX_CACHE_SHARE);
        let indexes = Arc::new(indexes.over(lake.storage()));
        let in_use = IndexUse {
            cache: Arc::clone(&indexes),
            columns: Arc::clone(&columns),
            warnings: Arc::clone(&warnings),
            repairs: Arc::clone(&repairs),
        };
        let config = config.with_extension(Arc::new(in_use));
        let mut expr_planners: Vec<Arc<dyn ExprPlanner>> = vec![Arc::new(Steps)];
        expr_planners.extend(mends::expr_planners());
        let mut relation_planners: Vec<Arc<dyn RelationPlanner>> = vec![Arc::new(Steps)];
        relation_planners.extend(mends::relation_planners());
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(runtime)
            .with_default_features()
            .with_aggregate_functions(registry::aggregate_functions())
            .with_scalar_functions(functions)
            .with_window_functions(registry::window_functions())
            .with_table_function_list(mends::table_functions())
            .with_file_formats(mends::file_formats())
            .with_expr_planners(expr_planners)
            .with_type_planner(Arc::new(StoredTypes))
            .with_relation_planners(relation_planners)
            .with_analyzer_rules(pipeline::analysis())
            .with_optimizer_rules(pipeline::logical())
            .with_physical_optimizer_rules(pipeline::physical())
            .with_query_planner(Arc::new(Planner {
                columns,
                others: vec![Arc::new(PartsPlanner), Arc::new(ShuffleReadPlanner)],
            }));
        let state = state.build();
        let own = |runtime: Arc<RuntimeEnv>| {
            SessionStateBuilder::new_from_existing(state.clone())
                .with_catalog_list(Arc::new(MemoryCatalogProviderList::new()))
                .with_runtime_env(runtime)
                .build()
        };
        let (guarded, fenced) = (own(Arc::clone(state.runtime_env())), own(fenced));
        let files = FilePlaces::new(&lake, options.spill_folder.clone());
        Ok(Arc::new(Self {
            context: context(state, &catalog, Some(&files), false)?,
            guarded: context(guarded, &catalog, Some(&files), true)?,
            fenced: context(fenced, &catalog, Some(&files), true)?,
            resting: Arc::new(Semaphore::new(KEPT)),
            files,
            lake,
            catalog,
            budget,
            warnings,
            repairs,
            id_sets: StoredSets::new(options.memory_bytes / SETS_SHARE),
            admission,
            part_admission,
            elsewhere: OnceLock::new(),
            memory,
            spilling_rules: pipeline::physical_spilling(),
            plans,
            footers,
            indexes,
            portable: PortablePlans::default(),
        }))
    }

    /// What sessions begin with for a setting of ours.
    pub(crate) fn own_setting(&self, name: &str) -> Option<String> {
        let state = self.context.state();
        let settings = state.config_options().extensions.get::<Settings>()?;
        let entry =
            settings.entries().into_iter().find(|entry| entry.key == name.to_lowercase())?;
        entry.value
    }

    /// A part of the engine's memory, for the statements of several sessions together: see [`Session::sharing`].
    pub fn memory_share(&self, bytes: usize) -> MemoryShare {
        MemoryShare::new(self.memory.pool(), bytes)
    }

    /// Statements may read the process's standard input, as `'-'` and `'/dev/stdin'`: nobody else does.
    pub fn allow_standard_input(&self) {
        self.files.allow_standard_input();
    }

    /// From now on statements of its sessions may be computed in parts; the first that is said counts.
    pub fn set_elsewhere(&self, elsewhere: Arc<dyn Elsewhere>) {
        let _ = self.elsewhere.set(elsewhere);
    }

    /// A session with the engine's settings.
    pub fn session(self: &Arc<Self>) -> Session {
        Session {
            engine: Arc::clone(self),
            catalog: Arc::clone(&self.catalog),
            shelf: None,
            guard: None,
            share: None,
            elsewhere: self.elsewhere.get().cloned(),
            may_divide: true,
            context: Held::default(),
            changed: Mutex::default(),
            prepared: Arc::default(),
        }
    }
}

impl Session {
    /// The session of an engine of its own.
    ///
    /// # Errors
    /// As [`Engine::new`].
    pub fn new(lake: Lake, options: &SessionOptions) -> Result<Self> {
        Ok(Engine::new(lake, options)?.session())
    }

    /// The engine, for other sessions.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub(crate) fn context(&self) -> SessionContext {
        self.context.get(|config| SessionContext::new_with_state(self.first_state(config)))
    }

    /// What this session begins with, with the configuration that it had, if it had one.
    fn first_state(&self, config: Option<SessionConfig>) -> SessionState {
        let may = |guard: &dyn Guard| guard.check(Privilege::OwnFiles, "").is_ok();
        let first = match self.guard.as_deref() {
            None => &self.engine.context,
            Some(guard) if may(guard) => &self.engine.guarded,
            Some(_) => &self.engine.fenced,
        };
        let mut state = first.state();
        if let Some(share) = &self.share {
            let env = state.runtime_env();
            let runtime = RuntimeEnv { memory_pool: share.pool(), ..env.as_ref().clone() };
            let builder = SessionStateBuilder::new_from_existing(state);
            state = builder.with_runtime_env(Arc::new(runtime)).build();
        }
        let Some(config) = config else { return state };
        *state.config_mut() = config;
        let changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        if !changed.is_empty() {
            // What they do not take was refused when it was set.
            let _ = bind_functions(&mut state);
        }
        state
    }

    /// Gives back most of what the session has for its next statement, which takes a little longer then, if many others
    /// of the engine have as much. What was set stays, and what it computes goes on.
    pub fn rest(&self) {
        let of_runtime = |name: &String| name.starts_with("datafusion.runtime.");
        // Such settings are in no configuration.
        let is_whole = {
            let changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
            !changed.keys().any(of_runtime)
        };
        if is_whole {
            self.context.rest(&self.engine.resting);
        }
    }

    /// What is set, also of a session that rests.
    fn configuration(&self) -> SessionConfig {
        self.context.configuration().unwrap_or_else(|| self.engine.context.copied_config())
    }

    /// This session, before its first statement, whose statements take memory from a share alone.
    #[must_use]
    pub fn sharing(self, share: MemoryShare) -> Self {
        Self { share: Some(share), context: Held::default(), ..self }
    }

    /// Takes memory for work that is no statement, such as a load, of what statements may take: `most` bytes, or half
    /// as much and so on down to `least`, and no more than a quarter of the engine's. It is given back when what is
    /// returned is dropped.
    ///
    /// # Errors
    /// [`EngineError::Limit`](crate::EngineError::Limit) if there is not that much now.
    pub fn hold_memory(&self, what: &str, most: usize, least: usize) -> Result<HeldMemory> {
        let pool = &self.context().runtime_env().memory_pool;
        let most = most.min(self.engine.budget.memory_bytes / HELD_SHARE);
        HeldMemory::take(pool, what, most, least)
    }

    /// Tells functions and tables that were added to the engine who uses this session: see [`SessionFacts`].
    /// `None` is nobody, from now on.
    pub fn set_fact(&self, name: &str, value: Option<&str>) {
        let of_engine = || self.engine.context.copied_config();
        self.context.configure(of_engine, |options| {
            if let Some(facts) = options.extensions.get_mut::<SessionFacts>() {
                facts.put(name, value);
            }
        });
    }

    /// `SET uplake.labels`, as it is now: see [`parse_labels`](crate::parse_labels).
    pub fn labels(&self) -> String {
        let config = self.configuration();
        let settings = Settings::of(config.options());
        settings.map(|settings| settings.labels.clone()).unwrap_or_default()
    }

    /// `SET uplake.traceparent`, as it is now: what the session's statements are a part of, in W3C's form.
    pub fn traceparent(&self) -> String {
        let config = self.configuration();
        let settings = Settings::of(config.options());
        settings.map(|settings| settings.traceparent.clone()).unwrap_or_default()
    }

    /// What a statement may take, if it does not say.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        Settings::of(self.configuration().options())?.timeout
    }

    /// `SET name = value`, or its end, has been done.
    pub(crate) fn note_change(&self, name: &str, value: Option<String>) {
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        match value {
            Some(value) => changed.insert(name.to_lowercase(), value),
            None => changed.remove(&name.to_lowercase()),
        };
    }

    /// What plans of this session depend on beside texts and tables: empty if nothing was set.
    pub(crate) fn settings(&self) -> String {
        let changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        let others = changed.iter().filter(|(name, _)| !CHANGE_NO_PLANS.contains(&name.as_str()));
        others.map(|(name, value)| format!("{name}={value:?};")).collect()
    }

    /// What `SET` has changed that somebody who computes parts of a statement has to know.
    pub(crate) fn settings_of_parts(&self) -> Vec<(String, String)> {
        let changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        // What is of the process is decided by who has it.
        let is_here =
            |name: &str| name == "uplake.elsewhere" || name.starts_with("datafusion.runtime.");
        let matters = |name: &str| !CHANGE_NO_PLANS.contains(&name) && !is_here(name);
        let others = changed.iter().filter(|(name, _)| matters(name));
        others.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// The state that a part is planned and run with: what sessions begin with, and these settings.
    pub(crate) fn state_of_part(&self, settings: &[(String, String)]) -> Result<SessionState> {
        let mut state = self.context().state();
        let first = self.engine.context.state();
        let options = state.config_mut().options_mut();
        *options = first.config_options().as_ref().clone();
        for (name, value) in settings {
            options.set(name, value)?;
        }
        if !settings.is_empty() {
            bind_functions(&mut state)?;
        }
        state.config_mut().set_extension(Arc::new(QueryStore::new(&self.engine.lake)));
        Ok(pipeline::enabled(state))
    }

    /// This session for a part of somebody else's statement: these tables at the versions that they have, these settings,
    /// and no files in place.
    pub(crate) fn over_tables(
        &self,
        tables: Vec<Arc<LakeTable>>,
        settings: &[(String, String)],
    ) -> Result<Self> {
        let catalog = Arc::new(self.catalog.with_pinned(tables));
        let state = SessionStateBuilder::new_from_existing(self.state_of_part(settings)?)
            .with_catalog_list(Arc::new(MemoryCatalogProviderList::new()))
            .build();
        let context = context(state, &catalog, None, self.guard.is_some())?;
        let changed = Mutex::new(settings.iter().cloned().collect());
        Ok(Self { context: Held::given(context), catalog, changed, ..self.for_parts() })
    }

    /// This session, which remembers on this machine what data files add up to in reports, so that the
    /// next report of the same metrics reads only files that are new. The same session if the machine
    /// keeps nothing of this lake, or without indexes.
    #[must_use]
    pub fn remembering(self) -> Self {
        let folder = self.engine.lake.local_folder().filter(|_| self.is_on("one_scan"));
        let shelf = folder.map(|folder| Arc::new(Shelf::new(folder.join("runs"))));
        Self { shelf, ..self }
    }

    /// Data files that reports of this session did not read because what they add up to was remembered,
    /// and files of which it is remembered since.
    pub fn remembered(&self) -> (u64, u64) {
        self.shelf.as_ref().map_or((0, 0), |shelf| shelf.counts())
    }

    pub(crate) fn warn(&self, about: &str, message: &str) {
        self.engine.warnings.add(about, message);
    }

    /// The lake.
    pub fn lake(&self) -> &Lake {
        &self.engine.lake
    }

    /// Names of the functions that statements may call, in their order.
    pub fn function_names(&self) -> Vec<String> {
        let state = self.context().state_ref();
        let state = state.read();
        let names = state.scalar_functions().keys().chain(state.aggregate_functions().keys());
        let mut names: Vec<String> =
            names.chain(state.window_functions().keys()).cloned().collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Is a rule of speed not left out?
    pub(crate) fn is_on(&self, rule: &str) -> bool {
        let state = self.context().state_ref();
        !pipeline::is_disabled(&state.read(), rule)
    }

    /// What the user should hear of the statements since the last call, although they were answered.
    pub fn take_warnings(&self) -> Vec<String> {
        let mut warnings = self.engine.warnings.take();
        warnings.extend(self.engine.lake.storage().take_warnings());
        warnings
    }

    /// The state that one query is planned with, and what it will have asked of the store.
    pub(crate) fn query_state(&self) -> (Arc<SessionState>, QueryStore) {
        let store = QueryStore::new(&self.engine.lake);
        let added = Arc::new(store.clone());
        (self.context.planning(&self.context(), pipeline::enabled, added), store)
    }

    /// What its operators are run with.
    pub(crate) fn task_context(&self) -> Arc<TaskContext> {
        self.context.task(&self.context())
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
        let state = SessionStateBuilder::new_from_existing(self.context().state())
            .with_catalog_list(Arc::new(MemoryCatalogProviderList::new()))
            .build();
        let versions = catalog.pins();
        let pinned = self.over(state, catalog)?;
        Ok((pinned, versions))
    }

    /// [`Self::pinned`] for the tables that can be read, and why the others cannot.
    ///
    /// # Errors
    /// [`EngineError::Table`] if one of them cannot be read any more.
    pub(crate) async fn pinned_if_readable(
        &self,
        tables: Vec<String>,
    ) -> Result<(Self, Vec<(String, i64)>, Vec<(String, EngineError)>)> {
        if let Ok((session, versions)) = self.pinned(&tables).await {
            return Ok((session, versions, Vec::new()));
        }
        let (mut readable, mut others) = (Vec::new(), Vec::new());
        for table in tables {
            match self.pinned(std::slice::from_ref(&table)).await {
                Ok(_) => readable.push(table),
                Err(error) => others.push((table, error)),
            }
        }
        let (session, versions) = self.pinned(&readable).await?;
        Ok((session, versions, others))
    }

    /// This session, whose statements together take at most `limit` bytes of the memory.
    pub(crate) fn with_share(&self, limit: usize) -> Result<Self> {
        let pool = Arc::clone(&self.context().runtime_env().memory_pool);
        self.with_pool(Arc::new(ClassPool::new(pool, limit)))
    }

    /// This session, whose statements ask this pool for memory.
    pub(crate) fn with_pool(&self, memory_pool: Arc<dyn MemoryPool>) -> Result<Self> {
        let env = self.context().runtime_env();
        let runtime = RuntimeEnv { memory_pool, ..env.as_ref().clone() };
        let state = SessionStateBuilder::new_from_existing(self.context().state())
            .with_catalog_list(Arc::new(MemoryCatalogProviderList::new()))
            .with_runtime_env(Arc::new(runtime))
            .build();
        self.over(state, Arc::clone(&self.catalog))
    }

    /// What `SET` has changed, for a session of the same.
    pub(crate) fn changes(&self) -> Mutex<BTreeMap<String, String>> {
        Mutex::new(self.changed.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// A session of the same engine and settings.
    pub(crate) fn over(&self, state: SessionState, catalog: Arc<LakeCatalog>) -> Result<Self> {
        Ok(Self {
            engine: Arc::clone(&self.engine),
            context: Held::given(context(
                state,
                &catalog,
                Some(&self.engine.files),
                self.guard.is_some(),
            )?),
            catalog,
            shelf: self.shelf.clone(),
            guard: self.guard.clone(),
            share: self.share.clone(),
            elsewhere: self.elsewhere.clone(),
            may_divide: self.may_divide,
            changed: self.changes(),
            prepared: Arc::default(),
        })
    }
}

/// A context whose names are the lake's tables, as far as a statement sees them if it is guarded, or files.
fn context(
    state: SessionState,
    catalog: &Arc<LakeCatalog>,
    files: Option<&Arc<FilePlaces>>,
    is_guarded: bool,
) -> Result<SessionContext> {
    let schemas = MemoryCatalogProvider::new();
    let tables: Arc<dyn SchemaProvider> = match is_guarded {
        true => Arc::new(SeenTables(Arc::clone(catalog))),
        false => Arc::clone(catalog) as _,
    };
    schemas.register_schema(SCHEMA, tables)?;
    let context = SessionContext::new_with_state(state);
    let schemas = Arc::new(schemas);
    context.register_catalog(CATALOG, Arc::clone(&schemas) as _);
    let catalogs = Arc::clone(context.state_ref().read().catalog_list());
    for (name, added) in catalog.additions.providers(&catalogs) {
        schemas.register_schema(&name, added)?;
    }
    Ok(match files {
        Some(files) => file_tables::with_files(context, files, catalog.warnings()),
        None => context,
    })
}

fn session_config(threads: usize, budget: &Budget) -> SessionConfig {
    let mut config = SessionConfig::new()
        .with_target_partitions(threads)
        .with_default_catalog_and_schema(CATALOG, SCHEMA)
        .with_create_default_catalog_and_schema(false)
        .with_extension(Arc::new(budget.clone()));
    let options = config.options_mut();
    options.sql_parser.collect_spans = true;
    // The order of a sorted subquery is seen above it: `mends::sorted_subqueries`.
    options.sql_parser.enable_subquery_sort_elimination = false;
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
