//! The lake as DataFusion's catalog: a name becomes a snapshot when a statement is planned.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::{DataFusionError, Result as DfResult};
use tokio::sync::mpsc::Sender;
use uplake_table::{AsOf, Lake, TableError};

use crate::provider::LakeTable;
use crate::statement::split_version;

/// Snapshots kept so that a statement on an unchanged table does not read its log again.
const CACHED_TABLES: usize = 256;

/// The tables of one lake.
#[derive(Debug)]
pub(crate) struct LakeCatalog {
    lake: Lake,
    as_of: AsOf,
    cache: Mutex<HashMap<String, Cached>>,
    /// Tables that stay at one version.
    pinned: HashMap<String, Arc<LakeTable>>,
    /// The tables there were when a statement last asked for all of them.
    names: Mutex<Vec<String>>,
    /// Statements begun so far.
    statements: AtomicU64,
    /// Who wants to hear of snapshots that are new.
    listener: Mutex<Option<Sender<Arc<LakeTable>>>>,
}

/// A snapshot and when it was last found to be the newest, in statements begun.
#[derive(Clone, Debug)]
struct Cached {
    table: Arc<LakeTable>,
    checked: u64,
}

impl LakeCatalog {
    pub fn new(lake: Lake, as_of: AsOf) -> Self {
        Self {
            lake,
            as_of,
            cache: Mutex::default(),
            pinned: HashMap::new(),
            names: Mutex::default(),
            statements: AtomicU64::new(1),
            listener: Mutex::default(),
        }
    }

    /// The same lake with `tables` kept at the versions they have now. Names that are no tables of
    /// the lake are left out.
    pub async fn pin(&self, tables: &[String]) -> uplake_table::Result<Self> {
        let mut pinned = HashMap::new();
        for name in tables {
            let exact = self.exact_name(name.trim_matches('"')).await?;
            if self.lake.has_table(&exact).await? {
                pinned.insert(exact.clone(), self.load(&exact).await?);
            }
        }
        Ok(Self { pinned, ..Self::new(self.lake.clone(), self.as_of.clone()) })
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
        self.statements.fetch_add(1, Ordering::AcqRel);
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
                Ok(Arc::new(LakeTable::new(self.lake.clone(), snapshot)))
            }
        }
    }

    /// The same, or `None` if there is no such table.
    pub async fn find(&self, name: &str) -> uplake_table::Result<Option<Arc<LakeTable>>> {
        let (asked, version) = split_version(name);
        let pinned = |table: &str| self.pinned.get(table).filter(|_| version.is_none()).cloned();
        let as_of = version.clone().unwrap_or_else(|| self.as_of.clone());
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
                let Some(table) = only_of_its_name(asked, known) else { return Ok(None) };
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
        let loaded = Arc::new(LakeTable::new(self.lake.clone(), snapshot));
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= CACHED_TABLES {
            cache.clear();
        }
        if as_of == AsOf::Latest {
            let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(listener) = listener.as_ref() {
                // A full queue costs speed alone.
                let _ = listener.try_send(Arc::clone(&loaded));
            }
            cache.insert(table, Cached { table: Arc::clone(&loaded), checked });
        }
        Ok(Some(loaded))
    }

    /// The table of that name, or the only one that differs from it in case alone.
    pub async fn exact_name(&self, name: &str) -> uplake_table::Result<String> {
        if self.lake.has_table(name).await? {
            return Ok(name.to_owned());
        }
        let known = self.lake.table_names().await?;
        Ok(only_of_its_name(name, known).unwrap_or_else(|| name.to_owned()))
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
            AsOf::Version(version) => hit.snapshot().version() == *version,
            AsOf::TimestampMillis(_) => false,
        };
        Ok(fresh.then_some(hit))
    }
}

/// The only one of `known` that differs from `name` in case alone.
fn only_of_its_name(name: &str, mut known: Vec<String>) -> Option<String> {
    known.retain(|known| known.to_lowercase() == name.to_lowercase());
    <[String; 1]>::try_from(known).ok().map(|[only]| only)
}

#[async_trait]
impl SchemaProvider for LakeCatalog {
    fn table_names(&self) -> Vec<String> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn table(&self, name: &str) -> DfResult<Option<Arc<dyn TableProvider>>> {
        let table = self.find(name).await.map_err(|e| DataFusionError::External(Box::new(e)))?;
        Ok(table.map(|table| table as Arc<dyn TableProvider>))
    }

    fn table_exist(&self, name: &str) -> bool {
        let asked = split_version(name).0.to_lowercase();
        self.table_names().iter().any(|known| known.to_lowercase() == asked)
    }
}
