//! Definitions with what they use of the lake's catalogue of metrics.

use std::collections::HashMap;

use futures::{StreamExt, TryStreamExt};
use uplake_experiment::Experiment;
use uplake_experiment::definition::{Catalogue, Entry, Use, pinned, uses};
use uplake_table::Lake;

use super::READS_AT_ONCE;
use super::catalogue::MetricCatalogue;
use crate::base::error::Result;

/// Reads definitions: each version of a metric once, and nothing of the catalogue for those that use none.
pub struct Definitions<'l> {
    lake: &'l Lake,
    metrics: Option<MetricCatalogue<'l>>,
    read: HashMap<(String, u32), Entry>,
}

/// A definition that was read, and that means the same for ever.
#[derive(Clone, Debug)]
pub struct Definition {
    experiment: Experiment,
    pinned: String,
}

impl Definition {
    /// What it defines.
    pub fn experiment(&self) -> &Experiment {
        &self.experiment
    }

    /// Its text, with the version of every metric of the catalogue that it uses.
    pub fn pinned(&self) -> &str {
        &self.pinned
    }
}

impl<'l> Definitions<'l> {
    pub fn new(lake: &'l Lake) -> Self {
        Self { lake, metrics: None, read: HashMap::new() }
    }

    /// The lake.
    pub fn lake(&self) -> &'l Lake {
        self.lake
    }

    /// The definition that is in the lake under a name; `None` if there is none.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub async fn named(&mut self, name: &str) -> Result<Option<Definition>> {
        match self.lake.experiment(name).await? {
            Some((text, path)) => Ok(Some(self.read(&text, &path).await?)),
            None => Ok(None),
        }
    }

    /// The definition that a text is. `path`: where it is from, for messages.
    ///
    /// # Errors
    /// [`EngineError::Definition`](crate::EngineError::Definition) says what is wrong and where;
    /// [`EngineError::Table`](crate::EngineError::Table) if the catalogue cannot be read.
    pub async fn read(&mut self, text: &str, path: &str) -> Result<Definition> {
        let catalogue = self.catalogue_of(text, path).await?;
        let experiment = Experiment::parse_with(text, path, &catalogue)?;
        Ok(Definition { experiment, pinned: pinned(text, path, &catalogue)? })
    }

    /// What a definition may use, with the texts of what it does use.
    async fn catalogue_of(&mut self, text: &str, path: &str) -> Result<Catalogue> {
        let used = uses(text, path)?;
        if used.is_empty() {
            return Ok(Catalogue::default());
        }
        let metrics = match self.metrics.take() {
            Some(metrics) => metrics,
            None => MetricCatalogue::read(self.lake).await?,
        };
        let metrics = self.metrics.insert(metrics);
        let mut catalogue = Catalogue { newest: metrics.newest(), entries: Vec::new() };
        let version =
            |used: &Use| catalogue.version_of(used).map(|version| (used.name.clone(), version));
        let mut wanted: Vec<(String, u32)> = used.iter().filter_map(version).collect();
        wanted.sort();
        wanted.dedup();
        let lacking = wanted.iter().filter(|key| !self.read.contains_key(*key));
        let reads: Vec<_> = lacking.map(|(name, version)| metrics.entry(name, *version)).collect();
        let found: Vec<Option<Entry>> =
            futures::stream::iter(reads).buffered(READS_AT_ONCE).try_collect().await?;
        for entry in found.into_iter().flatten() {
            self.read.insert((entry.name.clone(), entry.version), entry);
        }
        catalogue.entries = wanted.iter().filter_map(|key| self.read.get(key).cloned()).collect();
        Ok(catalogue)
    }
}
