//! The lake as DataFusion's catalog: a name becomes a snapshot when a statement is planned.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::{DataFusionError, Result as DfResult};
use uplake_table::{AsOf, Lake};

use crate::provider::LakeTable;
use crate::statement::split_version;

/// Snapshots kept so that a statement on an unchanged table does not read its log again.
const CACHED_TABLES: usize = 256;

/// The tables of one lake.
#[derive(Debug)]
pub(crate) struct LakeCatalog {
    lake: Lake,
    as_of: AsOf,
    cache: Mutex<HashMap<String, Arc<LakeTable>>>,
    /// Tables that stay at one version.
    pinned: HashMap<String, Arc<LakeTable>>,
}

impl LakeCatalog {
    pub fn new(lake: Lake, as_of: AsOf) -> Self {
        Self { lake, as_of, cache: Mutex::default(), pinned: HashMap::new() }
    }

    /// The same lake with `tables` kept at the versions they have now. Names that are no tables of
    /// the lake are left out.
    pub async fn pin(&self, tables: &[String]) -> uplake_table::Result<Self> {
        let mut pinned = HashMap::new();
        for name in tables {
            let exact = self.exact_name(name.trim_matches('"'));
            if self.lake.has_table(&exact) {
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

    /// The table of that name, at the version in the name or the session's.
    pub async fn load(&self, name: &str) -> uplake_table::Result<Arc<LakeTable>> {
        let (asked, version) = split_version(name);
        let table = &self.exact_name(asked);
        if let Some(pinned) = self.pinned.get(table).filter(|_| version.is_none()) {
            return Ok(Arc::clone(pinned));
        }
        let as_of = version.unwrap_or_else(|| self.as_of.clone());
        if let Some(hit) = self.cached(table, &as_of)? {
            return Ok(hit);
        }
        let snapshot = self.lake.snapshot(table, &as_of).await?;
        let loaded = Arc::new(LakeTable::new(self.lake.clone(), snapshot));
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= CACHED_TABLES {
            cache.clear();
        }
        if as_of == AsOf::Latest {
            cache.insert(table.clone(), Arc::clone(&loaded));
        }
        Ok(loaded)
    }

    /// The table of that name, or the only one that differs from it in case alone.
    pub fn exact_name(&self, name: &str) -> String {
        if self.lake.has_table(name) {
            return name.to_owned();
        }
        let mut same = self.lake.table_names().unwrap_or_default();
        same.retain(|known| known.to_lowercase() == name.to_lowercase());
        match same.as_slice() {
            [only] => only.clone(),
            _ => name.to_owned(),
        }
    }

    /// Does the session read old versions?
    pub fn is_historic(&self) -> bool {
        self.as_of != AsOf::Latest
    }

    fn cached(&self, table: &str, as_of: &AsOf) -> uplake_table::Result<Option<Arc<LakeTable>>> {
        let hit = {
            let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
            cache.get(table).cloned()
        };
        let Some(hit) = hit else { return Ok(None) };
        let fresh = match as_of {
            AsOf::Latest => self.lake.is_latest(hit.snapshot())?,
            AsOf::Version(version) => hit.snapshot().version() == *version,
            AsOf::TimestampMillis(_) => false,
        };
        Ok(fresh.then_some(hit))
    }
}

#[async_trait]
impl SchemaProvider for LakeCatalog {
    fn table_names(&self) -> Vec<String> {
        self.lake.table_names().unwrap_or_default()
    }

    async fn table(&self, name: &str) -> DfResult<Option<Arc<dyn TableProvider>>> {
        if !self.table_exist(name) {
            return Ok(None);
        }
        let table = self.load(name).await.map_err(|e| DataFusionError::External(Box::new(e)))?;
        Ok(Some(table))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.lake.has_table(&self.exact_name(split_version(name).0))
    }
}
