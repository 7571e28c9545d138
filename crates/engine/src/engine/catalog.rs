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
use crate::scan::lake_table::LakeTable;
use crate::sql::words::split_version;

/// Name of the catalog and schema that hold the lake's tables.
pub(crate) const CATALOG: &str = "lake";
pub(crate) const SCHEMA: &str = "public";

/// Snapshots kept so that a statement on an unchanged table does not read its log again.
const CACHED_TABLES: usize = 256;

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
    cache: Mutex<HashMap<String, Cached>>,
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
}

/// Before the first statement.
const NEVER: u64 = 0;

/// A snapshot and when it was last found to be the newest, in statements begun.
#[derive(Clone, Debug)]
struct Cached {
    table: Arc<LakeTable>,
    checked: u64,
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
    ) -> Self {
        Self {
            lake,
            as_of,
            cache: Mutex::default(),
            pinned: HashMap::new(),
            parent: None,
            first_read: Mutex::default(),
            pending: None,
            names: Mutex::default(),
            statements: AtomicU64::new(1),
            listener: Mutex::default(),
            warnings,
            additions,
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
        let (lake, warnings) = (self.lake.clone(), Arc::clone(&self.warnings));
        let additions = Arc::clone(&self.additions);
        Ok(Self { pinned, ..Self::new(lake, self.as_of.clone(), warnings, additions) })
    }

    /// The same tables, each kept at the version that it has when it is first looked up.
    pub fn of_transaction(parent: Arc<Self>) -> Self {
        let (lake, warnings) = (parent.lake.clone(), Arc::clone(&parent.warnings));
        let additions = Arc::clone(&parent.additions);
        Self {
            parent: Some(Arc::clone(&parent)),
            pending: Some(PendingWrites::default()),
            ..Self::new(lake, parent.as_of.clone(), warnings, additions)
        }
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
        for name in names.filter(|name| !self.pinned.contains_key(*name)) {
            let seen = {
                let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
                cache.get(name).map(|cached| Arc::clone(&cached.table))
            };
            let table = match seen {
                Some(table) => table,
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
                let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
                for name in changed {
                    let is_it = |now: &Cached| Arc::ptr_eq(&now.table, &tables[&name]);
                    if cache.get(&name).is_some_and(is_it) {
                        cache.remove(&name);
                    }
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
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).remove(table);
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
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= CACHED_TABLES {
            cache.clear();
        }
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(listener) = listener.as_ref() {
            // A full queue costs speed alone.
            let _ = listener.try_send(Arc::clone(&table));
        }
        cache.insert(name.to_owned(), Cached { table: Arc::clone(&table), checked });
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
        let hit = {
            let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
            cache.get(table).cloned()
        };
        let Some(Cached { table: hit, checked }) = hit else { return Ok(None) };
        let fresh = match as_of {
            AsOf::Latest => {
                // In a folder a look is cheap; elsewhere one is enough for a statement.
                let now = self.statements.load(Ordering::Acquire);
                let known = self.lake.is_remote() && checked == now;
                let fresh = known || self.lake.is_latest(hit.snapshot()).await?;
                if fresh && !known {
                    let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
                    if let Some(cached) = cache.get_mut(table)
                        && Arc::ptr_eq(&cached.table, &hit)
                    {
                        cached.checked = now;
                    }
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
