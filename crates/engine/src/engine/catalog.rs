//! The lake as DataFusion's catalog: a name becomes a snapshot when a statement is planned.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, Result as DfResult};
use futures::future::{Either, join_all, select, try_join, try_join_all};
use tokio::sync::mpsc::Sender;
use uplake_table::{AsOf, Lake, LostIds, Snapshot, TableError, table_called};

use crate::base::warnings::Warnings;
use crate::engine::additions::Additions;
use crate::engine::pending::PendingWrites;
use crate::engine::plan_cache::{CachedPlan, PlanCache};
use crate::scan::lake_table::{LakeTable, Tables};
use crate::sql::statement::Statement;
use crate::sql::words::split_version;

/// Name of the catalog and schema that hold the lake's tables.
pub(crate) const CATALOG: &str = "lake";
pub(crate) const SCHEMA: &str = "public";

/// What a cached table takes beside its snapshot: map entries.
const ENTRY_BYTES: usize = 256;

tokio::task_local! {
    /// What names mean to the statement of this task, whatever they mean to others: tables that it
    /// takes for unchanged (see [`OptimisticSnapshot`]), or parts of tables (see [`with_table`]).
    static BELIEVED: HashMap<String, Arc<LakeTable>>;
}

/// Does `work`, to which `name`, as plans have it, means `table`.
pub(crate) async fn with_table<F: Future>(name: &str, table: Arc<LakeTable>, work: F) -> F::Output {
    let names = HashMap::from([(name.to_owned(), table)]);
    BELIEVED.scope(names, work).await
}

/// The tables of one lake.
#[derive(Debug)]
pub(crate) struct LakeCatalog {
    lake: Lake,
    as_of: AsOf,
    cache: Mutex<Snapshots>,
    /// Tables that stay at one version.
    pinned: HashMap<String, Arc<LakeTable>>,
    /// Who looks tables up that are first read in a transaction, if this is its catalog.
    parent: Option<Arc<LakeCatalog>>,
    /// Tables as a transaction first read them, by the names that it has for them.
    first_read: Mutex<HashMap<String, Arc<LakeTable>>>,
    /// What the transaction has written, if this is its catalog.
    pub pending: Option<PendingWrites>,
    /// The tables there were when a statement last asked for all of them.
    names: Mutex<Vec<String>>,
    /// Statements begun so far.
    statements: AtomicU64,
    /// Who wants to hear of snapshots that are new.
    listener: Mutex<Option<Sender<Arc<LakeTable>>>>,
    warnings: Arc<Warnings>,
    /// Tables beside the lake's.
    pub additions: Arc<Additions>,
    /// Of the tables as they are kept here, and gone with them.
    plans: Arc<PlanCache>,
}

/// Before the first statement.
const NEVER: u64 = 0;

/// A snapshot and when it was last found to be the newest, in statements begun.
#[derive(Clone, Debug)]
struct Cached {
    table: Arc<LakeTable>,
    checked: u64,
    bytes: usize,
    used: u64,
}

/// Newest snapshots, kept so that a statement on an unchanged table does not read its log again.
#[derive(Debug)]
struct Snapshots {
    tables: HashMap<String, Cached>,
    bytes: usize,
    /// Of the newest alone there may be more.
    limit_bytes: usize,
    /// Goes up with every use of a table.
    clock: u64,
}

impl Snapshots {
    fn new(limit_bytes: usize) -> Self {
        Self { tables: HashMap::new(), bytes: 0, limit_bytes, clock: 0 }
    }

    /// What is kept of a table.
    fn get(&self, name: &str) -> Option<&Cached> {
        self.tables.get(name)
    }

    /// The same for a statement.
    fn used(&mut self, name: &str) -> Option<Cached> {
        self.clock += 1;
        let cached = self.tables.get_mut(name)?;
        cached.used = self.clock;
        Some(cached.clone())
    }

    fn is_kept(&self, table: &Arc<LakeTable>) -> bool {
        let kept = self.tables.get(table.snapshot().table());
        kept.is_some_and(|kept| Arc::ptr_eq(&kept.table, table))
    }

    /// This snapshot is the newest, as of a statement.
    fn check(&mut self, table: &Arc<LakeTable>, checked: u64) {
        if self.is_kept(table)
            && let Some(cached) = self.tables.get_mut(table.snapshot().table())
        {
            cached.checked = checked;
        }
    }

    fn remove(&mut self, name: &str) -> Option<Arc<LakeTable>> {
        let gone = self.tables.remove(name)?;
        self.bytes -= gone.bytes;
        Some(gone.table)
    }

    /// Keeps a table in place of others, which are returned: of its name, and not used for longest.
    fn keep(&mut self, name: &str, table: Arc<LakeTable>, checked: u64) -> Vec<Arc<LakeTable>> {
        let mut gone: Vec<Arc<LakeTable>> = self.remove(name).into_iter().collect();
        let bytes = ENTRY_BYTES + name.len() + table.memory_bytes();
        while self.bytes + bytes > self.limit_bytes
            && let Some((oldest, _)) = self.tables.iter().min_by_key(|(_, kept)| kept.used)
        {
            let oldest = oldest.clone();
            gone.extend(self.remove(&oldest));
        }
        self.clock += 1;
        self.bytes += bytes;
        self.tables.insert(name.to_owned(), Cached { table, checked, bytes, used: self.clock });
        gone
    }
}

/// Tables as they were last seen, and the question whether they still are, which takes a round trip.
///
/// A belief is one statement's: another one that looks at the same time asks for itself.
pub(crate) struct OptimisticSnapshot {
    tables: HashMap<String, Arc<LakeTable>>,
    /// Names of tables that have changed.
    changed: SpawnedTask<uplake_table::Result<Vec<String>>>,
    /// Domains of tables that this process has not seen, which it opens meanwhile: a round trip, too.
    _domains: Vec<SpawnedTask<()>>,
}

impl OptimisticSnapshot {
    fn new(lake: &Lake, tables: HashMap<String, Arc<LakeTable>>, domains: HashSet<String>) -> Self {
        let open = |name: String| {
            let lake = lake.clone();
            // Whoever needs it hears of trouble.
            SpawnedTask::spawn(async move { drop(lake.domain(&name).await) })
        };
        let _domains = domains.into_iter().map(open).collect();
        let (lake, asked) = (lake.clone(), tables.clone());
        let changed = SpawnedTask::spawn(async move {
            let look = asked.iter().map(async |(name, table)| {
                let snapshot = table.snapshot();
                let (is_latest, lost) =
                    try_join(lake.is_latest(snapshot), lake.lost_ids(snapshot)).await?;
                Ok((!is_latest || !lost.is_empty()).then(|| name.clone()))
            });
            let found: uplake_table::Result<Vec<_>> = try_join_all(look).await;
            found.map(|changed| changed.into_iter().flatten().collect())
        });
        Self { tables, changed, _domains }
    }
}

impl LakeCatalog {
    pub fn new(
        lake: Lake,
        as_of: AsOf,
        warnings: Arc<Warnings>,
        additions: Arc<Additions>,
        plans: Arc<PlanCache>,
        limit_bytes: usize,
    ) -> Self {
        Self {
            lake,
            as_of,
            cache: Mutex::new(Snapshots::new(limit_bytes)),
            pinned: HashMap::new(),
            parent: None,
            first_read: Mutex::default(),
            pending: None,
            names: Mutex::default(),
            statements: AtomicU64::new(1),
            listener: Mutex::default(),
            warnings,
            additions,
            plans,
        }
    }

    /// Bytes of tables as they were last seen.
    pub fn kept_bytes(&self) -> usize {
        self.cache().bytes
    }

    /// No table yet, of the same lake.
    fn another(&self) -> Self {
        let limit_bytes = self.cache().limit_bytes;
        Self::new(
            self.lake.clone(),
            self.as_of.clone(),
            Arc::clone(&self.warnings),
            Arc::clone(&self.additions),
            Arc::clone(&self.plans),
            limit_bytes,
        )
    }

    /// What users should hear of.
    pub fn warnings(&self) -> &Arc<Warnings> {
        &self.warnings
    }

    /// Tables that are kept.
    #[cfg(test)]
    pub fn kept_tables(&self) -> usize {
        self.cache().tables.len()
    }

    fn cache(&self) -> MutexGuard<'_, Snapshots> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the plan of a statement for who asks again, if this has the tables that it is made of: nobody will be
    /// given others again.
    pub fn keep_plan(
        &self,
        settings: &str,
        statement: &Statement,
        tables: &Tables,
        plan: CachedPlan,
    ) {
        // Who lets go of a table has it forgotten after this, if it was here.
        let cache = self.cache();
        if tables.iter().all(|(_, table)| cache.is_kept(table)) {
            self.plans.keep(settings, statement, tables.clone(), plan);
        }
    }

    /// The same lake with `tables` kept at the versions they have now. Names that are no tables of
    /// the lake are left out.
    pub async fn pin(&self, tables: &[String]) -> uplake_table::Result<Self> {
        let names = tables.iter().map(|name| name.trim_matches('"'));
        let now = names.filter(|name| split_version(name).1.is_none());
        let mut pinned = HashMap::new();
        for table in join_all(now.map(|name| self.find(name))).await {
            let Some(table) = table? else { continue };
            pinned.insert(table.snapshot().table().to_owned(), table);
        }
        Ok(Self { pinned, ..self.another() })
    }

    /// The same lake with these tables, each at the version that it has.
    pub fn with_pinned(&self, tables: impl IntoIterator<Item = Arc<LakeTable>>) -> Self {
        let named = |table: Arc<LakeTable>| (table.snapshot().table().to_owned(), table);
        Self { pinned: tables.into_iter().map(named).collect(), ..self.another() }
    }

    /// The same tables, each kept at the version that it has when it is first looked up.
    pub fn of_transaction(parent: Arc<Self>) -> Self {
        let another = parent.another();
        Self { parent: Some(parent), pending: Some(PendingWrites::default()), ..another }
    }

    fn first_read(&self) -> MutexGuard<'_, HashMap<String, Arc<LakeTable>>> {
        self.first_read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tables of a transaction are looked up again.
    pub fn forget_versions(&self) {
        self.first_read().clear();
    }

    /// The transaction reads a table as this from now on.
    pub fn read_as(&self, snapshot: Snapshot) {
        let table = Arc::new(LakeTable::new(self.lake.clone(), snapshot));
        let name = table.snapshot().table().to_owned();
        let mut first = self.first_read();
        for known in first.values_mut().filter(|known| known.snapshot().table() == name) {
            *known = Arc::clone(&table);
        }
        first.insert(name, table);
    }

    /// [`Self::find`] in a transaction.
    async fn find_in_transaction(
        &self,
        parent: &Self,
        name: &str,
    ) -> uplake_table::Result<Option<Arc<LakeTable>>> {
        if split_version(name).1.is_some() {
            return Box::pin(parent.find(name)).await;
        }
        let known = self.first_read().get(name).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let found = Box::pin(parent.find(name)).await?;
        Ok(found.map(|found| {
            let mut first = self.first_read();
            // One table has one version, however it is spelled.
            let found_table = found.snapshot().table();
            let same = first.values().find(|known| known.snapshot().table() == found_table);
            let table = same.cloned().unwrap_or(found);
            Arc::clone(first.entry(name.to_owned()).or_insert(table))
        }))
    }

    /// Is there a table of that name? One that was seen in a bucket counts as one: a statement looks again when it
    /// reads it.
    pub async fn is_table(&self, name: &str) -> uplake_table::Result<bool> {
        if self.pinned.contains_key(name) || self.first_read().contains_key(name) {
            return Ok(true);
        }
        let cached = |of: &Self| of.cache().get(name).is_some();
        if self.lake.is_remote() && (cached(self) || self.parent.as_deref().is_some_and(cached)) {
            return Ok(true);
        }
        if !self.lake.is_remote() && self.lake.has_table(name).await? {
            return Ok(true);
        }
        if self.lake.is_remote()
            && !self.is_historic()
            && let Some(snapshot) = self.lake.remembered_snapshot(name).await
        {
            self.keep(name, snapshot, NEVER);
            return Ok(true);
        }
        Ok(self.find(name).await?.is_some())
    }

    /// Pinned tables and their versions, by name.
    pub fn pins(&self) -> Vec<(String, i64)> {
        let version = |(name, table): (&String, &Arc<LakeTable>)| {
            (name.clone(), table.snapshot().version() as i64)
        };
        let mut pins: Vec<(String, i64)> = self.pinned.iter().map(version).collect();
        pins.sort();
        pins
    }

    /// Tells of every newest snapshot that is loaded from now on, as far as there is room to.
    pub fn tell(&self, listener: Sender<Arc<LakeTable>>) {
        *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = Some(listener);
    }

    /// A statement begins: from now on snapshots are looked at again, once.
    pub fn begin_statement(&self) {
        let counts = self.parent.as_deref().unwrap_or(self);
        counts.statements.fetch_add(1, Ordering::AcqRel);
    }

    /// The tables of those names as they were last seen, if looking again takes a round trip. Names
    /// that have not been seen are left out.
    pub async fn believe(&self, names: impl Iterator<Item = &str>) -> Option<OptimisticSnapshot> {
        // What a transaction reads first must be known, not believed.
        if !self.lake.is_remote() || self.is_historic() || self.parent.is_some() {
            return None;
        }
        let (mut tables, mut domains) = (HashMap::new(), HashSet::new());
        let now = self.statements.load(Ordering::Acquire);
        for name in names.filter(|name| !self.pinned.contains_key(*name)) {
            let seen = self.cache().used(name);
            // It was looked at for this statement.
            if seen.as_ref().is_some_and(|cached| cached.checked == now) {
                continue;
            }
            let table = match seen {
                Some(cached) => {
                    if cached.checked == NEVER {
                        let specs = cached.table.snapshot().id_domains();
                        domains.extend(specs.iter().map(|spec| spec.domain.clone()));
                    }
                    cached.table
                }
                None => match self.lake.remembered_snapshot(name).await {
                    Some(snapshot) => {
                        domains
                            .extend(snapshot.id_domains().iter().map(|spec| spec.domain.clone()));
                        self.keep(name, snapshot, NEVER)
                    }
                    None => continue,
                },
            };
            tables.insert(name.to_owned(), table);
        }
        (!tables.is_empty()).then(|| OptimisticSnapshot::new(&self.lake, tables, domains))
    }

    /// What `work` comes to with tables as they are believed to be; `None` once they are known to have
    /// changed, and then they are read anew from now on.
    pub async fn during<F: Future>(
        &self,
        belief: OptimisticSnapshot,
        work: F,
    ) -> Option<F::Output> {
        let OptimisticSnapshot { tables, mut changed, _domains } = belief;
        let work = pin!(BELIEVED.scope(tables.clone(), work));
        let (done, rest, changed) = match select(work, &mut changed).await {
            Either::Left((answer, changed)) => (Some(answer), None, changed.await),
            Either::Right((changed, work)) => (None, Some(work), changed),
        };
        match changed {
            Ok(Ok(changed)) if changed.is_empty() => match rest {
                Some(work) => Some(work.await),
                None => done,
            },
            Ok(Ok(changed)) => {
                for name in changed {
                    let is_it = |now: &Cached| Arc::ptr_eq(&now.table, &tables[&name]);
                    let mut cache = self.cache();
                    let gone = match cache.get(&name).is_some_and(is_it) {
                        true => cache.remove(&name),
                        false => None,
                    };
                    drop(cache);
                    gone.iter().for_each(|table| self.plans.forget(table));
                }
                None
            }
            // Whoever asks again hears why.
            _ => None,
        }
    }

    /// This session has changed a table.
    pub fn forget(&self, table: &str) {
        if let Some(parent) = &self.parent {
            parent.forget(table);
            self.first_read().retain(|_, known| known.snapshot().table() != table);
        }
        let gone = self.cache().remove(table);
        gone.iter().for_each(|table| self.plans.forget(table));
    }

    /// Reads the names of all tables, which DataFusion asks for where nobody can wait.
    pub async fn read_names(&self) -> uplake_table::Result<()> {
        let names = self.lake.table_names().await?;
        *self.names.lock().unwrap_or_else(PoisonError::into_inner) = names;
        Ok(())
    }

    /// The table of that name, at the version in the name or the session's.
    pub async fn load(&self, name: &str) -> uplake_table::Result<Arc<LakeTable>> {
        match self.find(name).await? {
            Some(table) => Ok(table),
            // Says which tables there are.
            None => {
                let snapshot = self.lake.snapshot(split_version(name).0, &self.as_of).await?;
                let snapshot = self.believed(snapshot).await;
                Ok(Arc::new(LakeTable::new(self.lake.clone(), snapshot)))
            }
        }
    }

    /// The same, or `None` if there is no such table.
    pub async fn find(&self, name: &str) -> uplake_table::Result<Option<Arc<LakeTable>>> {
        let (asked, version) = split_version(name);
        let pinned = |table: &str| self.pinned.get(table).filter(|_| version.is_none()).cloned();
        let as_of = version.clone().unwrap_or_else(|| self.as_of.clone());
        if version.is_none()
            && let Ok(Some(table)) = BELIEVED.try_with(|tables| tables.get(asked).cloned())
        {
            return Ok(Some(table));
        }
        if let Some(parent) = &self.parent {
            return self.find_in_transaction(parent, name).await;
        }
        // A snapshot that is still the newest says that the table is there, too.
        if let Some(pinned) = pinned(asked) {
            return Ok(Some(pinned));
        }
        if let Some(hit) = self.cached(asked, &as_of).await? {
            return Ok(Some(hit));
        }
        let mut checked = self.statements.load(Ordering::Acquire);
        let (table, snapshot) = match self.lake.snapshot(asked, &as_of).await {
            Err(TableError::NoSuchTable { known, .. }) => {
                let called = table_called(asked, known.iter().map(String::as_str));
                let Some(table) = called.map(str::to_owned) else { return Ok(None) };
                if let Some(pinned) = pinned(&table) {
                    return Ok(Some(pinned));
                }
                if let Some(hit) = self.cached(&table, &as_of).await? {
                    return Ok(Some(hit));
                }
                checked = self.statements.load(Ordering::Acquire);
                let snapshot = self.lake.snapshot(&table, &as_of).await?;
                (table, snapshot)
            }
            snapshot => (asked.to_owned(), snapshot?),
        };
        let snapshot = self.believed(snapshot).await;
        if as_of == AsOf::Latest {
            return Ok(Some(self.keep(&table, snapshot, checked)));
        }
        Ok(Some(Arc::new(LakeTable::new(self.lake.clone(), snapshot))))
    }

    /// A table at a version of which somebody else says that there is one; it is not asked whether that is the newest.
    pub async fn at_version(
        &self,
        table: &str,
        version: u64,
    ) -> uplake_table::Result<Arc<LakeTable>> {
        let is_it = |known: &Arc<LakeTable>| known.snapshot().version() == version;
        let known = self.cache().used(table).map(|cached| cached.table);
        if let Some(known) = known.filter(is_it) {
            return Ok(known);
        }
        // Mostly it is the newest, which is kept. What was seen before says nothing: there is one that is later.
        self.begin_statement();
        if let Ok(Some(newest)) = self.find(table).await
            && is_it(&newest)
        {
            return Ok(newest);
        }
        let snapshot = self.lake.snapshot(table, &AsOf::Version(version)).await?;
        let snapshot = self.believed(snapshot).await;
        Ok(Arc::new(LakeTable::new(self.lake.clone(), snapshot)))
    }

    /// A snapshot that was read, without ids that their domain has no more.
    async fn believed(&self, snapshot: Snapshot) -> Snapshot {
        let domains = match self.lake.lost_ids(&snapshot).await {
            Ok(lost) => {
                for lost in &lost {
                    let warning =
                        format!("{lost}. Keys are compared, which is slower. {}", LostIds::REMEDY);
                    self.warnings.add(&format!("ids of {}", lost.table), &warning);
                }
                lost.into_iter().map(|lost| lost.domain).collect()
            }
            // Nobody knows, and the keys are in the files, too.
            Err(_) => snapshot.id_domains().iter().map(|spec| spec.domain.clone()).collect(),
        };
        snapshot.without_ids_of(domains)
    }

    /// Keeps a newest snapshot.
    fn keep(&self, name: &str, snapshot: Snapshot, checked: u64) -> Arc<LakeTable> {
        let table = Arc::new(LakeTable::new(self.lake.clone(), snapshot));
        if let Some(listener) =
            self.listener.lock().unwrap_or_else(PoisonError::into_inner).as_ref()
        {
            // A full queue costs speed alone.
            let _ = listener.try_send(Arc::clone(&table));
        }
        let gone = self.cache().keep(name, Arc::clone(&table), checked);
        gone.iter().for_each(|table| self.plans.forget(table));
        table
    }

    /// The table of that name, or the only one that differs from it in case alone.
    pub async fn exact_name(&self, name: &str) -> uplake_table::Result<String> {
        if self.lake.has_table(name).await? {
            return Ok(name.to_owned());
        }
        let known = self.lake.table_names().await?;
        let called = table_called(name, known.iter().map(String::as_str));
        Ok(called.unwrap_or(name).to_owned())
    }

    /// Does the session read old versions?
    pub fn is_historic(&self) -> bool {
        self.as_of != AsOf::Latest
    }

    async fn cached(
        &self,
        table: &str,
        as_of: &AsOf,
    ) -> uplake_table::Result<Option<Arc<LakeTable>>> {
        let hit = self.cache().used(table);
        let Some(Cached { table: hit, checked, .. }) = hit else { return Ok(None) };
        let fresh = match as_of {
            AsOf::Latest => {
                // In a folder a look is cheap; elsewhere one is enough for a statement.
                let now = self.statements.load(Ordering::Acquire);
                let known = self.lake.is_remote() && checked == now;
                let fresh = known || self.lake.is_latest(hit.snapshot()).await?;
                if fresh && !known {
                    self.cache().check(&hit, now);
                }
                fresh
            }
            AsOf::Version(version) => {
                hit.snapshot().version() == *version && self.lake.is_same(hit.snapshot()).await?
            }
            AsOf::TimestampMillis(_) => false,
        };
        Ok(fresh.then_some(hit))
    }
}

#[async_trait]
impl SchemaProvider for LakeCatalog {
    fn table_names(&self) -> Vec<String> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn table(&self, name: &str) -> DfResult<Option<Arc<dyn TableProvider>>> {
        let table = self.find(name).await.map_err(|e| DataFusionError::External(Box::new(e)))?;
        let table = table.map(|table| table as Arc<dyn TableProvider>);
        Ok(table.or_else(|| self.additions.searched(name)))
    }

    fn table_exist(&self, name: &str) -> bool {
        let asked = split_version(name).0.to_lowercase();
        self.table_names().iter().any(|known| known.to_lowercase() == asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::session::for_tests;

    #[test]
    fn tables_that_were_not_used_for_longest_make_room() {
        let folder = tempfile::tempdir().unwrap();
        let session = for_tests(folder.path(), true);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let table = |n: usize| {
            let name = format!("t{n}");
            let create = format!("CREATE TABLE {name} AS SELECT 1 AS k");
            runtime.block_on(session.query(&create)).unwrap();
            (name.clone(), runtime.block_on(session.catalog.load(&name)).unwrap())
        };
        let tables: Vec<(String, Arc<LakeTable>)> = (0..5).map(table).collect();
        let bytes = ENTRY_BYTES + 2 + tables[0].1.memory_bytes();
        let mut kept = Snapshots::new(3 * bytes + bytes / 2);
        for (name, table) in &tables {
            let gone = kept.keep(name, Arc::clone(table), 1);
            assert!(kept.used("t0").is_some(), "in use, after {name}");
            let expected = match name.as_str() {
                "t3" | "t4" => 1,
                _ => 0,
            };
            assert_eq!(gone.len(), expected, "{name}");
        }
        let are_kept: Vec<bool> = tables.iter().map(|(_, table)| kept.is_kept(table)).collect();
        assert_eq!(are_kept, [true, false, false, true, true]);
        // The newest of a name is there alone, and the newest of all however large it is.
        let again =
            Arc::new(LakeTable::new(session.lake().clone(), tables[0].1.snapshot().clone()));
        assert!(Arc::ptr_eq(&kept.keep("t0", Arc::clone(&again), 1)[0], &tables[0].1));
        kept.limit_bytes = 1;
        assert_eq!(kept.keep("t1", Arc::clone(&tables[1].1), 1).len(), 3);
        assert!(kept.is_kept(&tables[1].1) && !kept.is_kept(&again));
        assert_eq!(kept.bytes, kept.tables.values().map(|cached| cached.bytes).sum::<usize>());
    }
}
