//! The lake's catalogue of metrics, as far as definitions need it.

use std::collections::{BTreeMap, HashMap};

use anyhow::Result;
use futures::{StreamExt, TryStreamExt};
use uplake_experiment::definition::{Catalogue, Entry, Use, uses};
use uplake_table::{Lake, Versioned};

/// Versions that are read at once.
const READS_AT_ONCE: usize = 16;

/// Reads each version once, and nothing for definitions that use none.
pub struct CatalogueReader<'l> {
    lake: &'l Lake,
    newest: Option<BTreeMap<String, u32>>,
    read: HashMap<(String, u32), Entry>,
}

impl<'l> CatalogueReader<'l> {
    pub fn new(lake: &'l Lake) -> Self {
        Self { lake, newest: None, read: HashMap::new() }
    }

    pub fn lake(&self) -> &'l Lake {
        self.lake
    }

    /// What a definition may use, with the texts of what it does use.
    pub async fn catalogue_of(&mut self, text: &str, path: &str) -> Result<Catalogue> {
        let used = uses(text, path)?;
        if used.is_empty() {
            return Ok(Catalogue::default());
        }
        let newest = match self.newest.take() {
            Some(newest) => newest,
            None => newest_versions(self.lake).await?,
        };
        self.newest = Some(newest.clone());
        let mut catalogue = Catalogue { newest, entries: Vec::new() };
        let version =
            |used: &Use| catalogue.version_of(used).map(|version| (used.name.clone(), version));
        let mut wanted: Vec<(String, u32)> = used.iter().filter_map(version).collect();
        wanted.sort();
        wanted.dedup();
        let lacking = wanted.iter().filter(|key| !self.read.contains_key(*key)).cloned();
        let lake = self.lake;
        let read = async |(name, version): (String, u32)| {
            let found = lake.version(Versioned::Metric, &name, version).await?;
            let entry = found.map(|(text, path)| Entry { name, version, text, path });
            Ok::<_, uplake_table::TableError>(entry)
        };
        let reads: Vec<_> = lacking.map(read).collect();
        let found: Vec<Option<Entry>> =
            futures::stream::iter(reads).buffered(READS_AT_ONCE).try_collect().await?;
        for entry in found.into_iter().flatten() {
            self.read.insert((entry.name.clone(), entry.version), entry);
        }
        catalogue.entries = wanted.iter().filter_map(|key| self.read.get(key).cloned()).collect();
        Ok(catalogue)
    }
}

/// The newest version of every metric of the catalogue.
pub async fn newest_versions(lake: &Lake) -> Result<BTreeMap<String, u32>> {
    let versions = lake.versions(Versioned::Metric).await?;
    Ok(versions.into_iter().filter_map(|(name, all)| Some((name, *all.last()?))).collect())
}
