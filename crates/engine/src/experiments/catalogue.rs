//! The lake's catalogue of metrics.

use std::collections::BTreeMap;

use chrono::DateTime;
use futures::StreamExt;
use uplake_experiment::definition::{Entry, NewMetric, Stored, Use, stored, stored_text};
use uplake_table::{Lake, Versioned};

use super::READS_AT_ONCE;
use crate::base::error::{EngineError, Result};
use crate::base::sql_state::SqlState;

/// The metrics that a lake has, and their versions, as of when it was read.
///
/// A version never changes, so what is read of one stays right; metrics that are set later are in a catalogue that
/// is read later.
pub struct MetricCatalogue<'l> {
    lake: &'l Lake,
    /// Sorted, from 1.
    versions: BTreeMap<String, Vec<u32>>,
}

/// What became of a metric that was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricSet {
    /// The one that it is now.
    pub version: u32,
    /// False: the newest version was the same.
    pub is_new: bool,
}

impl<'l> MetricCatalogue<'l> {
    /// Reads which metrics there are, but not what they say.
    ///
    /// # Errors
    /// [`EngineError::Table`] if the lake cannot be read.
    pub async fn read(lake: &'l Lake) -> Result<Self> {
        Ok(Self { lake, versions: lake.versions(Versioned::Metric).await? })
    }

    /// The versions of every metric.
    pub fn versions(&self) -> &BTreeMap<String, Vec<u32>> {
        &self.versions
    }

    /// The newest version of every metric.
    pub fn newest(&self) -> BTreeMap<String, u32> {
        let newest = self.versions.iter();
        newest.filter_map(|(name, all)| Some((name.clone(), *all.last()?))).collect()
    }

    /// Every metric at its newest version, by name; each can fail alone.
    pub async fn metrics(&self) -> Vec<(String, u32, Result<Stored>)> {
        let read = async |(name, version): (String, u32)| {
            let found = self.metric(&name, version).await;
            (name, version, found)
        };
        let reads: Vec<_> = self.newest().into_iter().map(read).collect();
        futures::stream::iter(reads).buffered(READS_AT_ONCE).collect().await
    }

    /// The versions of one metric, the newest first; each can fail alone.
    ///
    /// # Errors
    /// One of kind *missing* if there is no such metric.
    pub async fn history(&self, name: &str) -> Result<Vec<(u32, Result<Stored>)>> {
        self.newest_of(name)?;
        let versions = self.versions.get(name).map_or(&[][..], Vec::as_slice);
        let read = async |version: u32| (version, self.metric(name, version).await);
        let reads: Vec<_> = versions.iter().rev().copied().map(read).collect();
        Ok(futures::stream::iter(reads).buffered(READS_AT_ONCE).collect().await)
    }

    /// The metric that a definition would use by that name, and its version.
    ///
    /// # Errors
    /// One of kind *missing* says what there is; otherwise as [`Self::metric`].
    pub async fn find(&self, used: &Use) -> Result<(u32, Stored)> {
        let newest = self.newest_of(&used.name)?;
        let version = used.version.unwrap_or(newest);
        if version > newest {
            let name = &used.name;
            return Err(EngineError::report(
                SqlState::UndefinedObject,
                format!("metric `{name}` has versions 1 to {newest}, and no {version}"),
            ));
        }
        Ok((version, self.metric(&used.name, version).await?))
    }

    /// One version of a metric.
    ///
    /// # Errors
    /// One of kind *missing* if it is not there, [`SqlState::DataCorrupted`] if it is another metric's,
    /// [`EngineError::Definition`] if it is none, and [`EngineError::Table`].
    pub async fn metric(&self, name: &str, version: u32) -> Result<Stored> {
        let found = self.entry(name, version).await?;
        let gone = || {
            EngineError::report(
                SqlState::UndefinedObject,
                format!("version {version} of {name} is gone"),
            )
        };
        let Entry { text, path, .. } = found.ok_or_else(gone)?;
        let metric = stored(&text, &path)?;
        if metric.name != name {
            return Err(EngineError::report(
                SqlState::DataCorrupted,
                format!("{path} defines `{}`; restore it from a copy of the lake", metric.name),
            ));
        }
        Ok(metric)
    }

    /// What is stored of a version, for definitions that use it; `None` if it is not there.
    pub(super) async fn entry(&self, name: &str, version: u32) -> Result<Option<Entry>> {
        let found = self.lake.version(Versioned::Metric, name, version).await?;
        Ok(found.map(|(text, path)| Entry { name: name.to_owned(), version, text, path }))
    }

    /// Puts a metric into the catalogue, as a new version if it is not as it was.
    ///
    /// # Errors
    /// [`SqlState::SerializationFailure`] if another writer set it since this catalogue was read, [`EngineError::Table`].
    pub async fn set(&self, metric: &NewMetric, now_millis: i64) -> Result<MetricSet> {
        let NewMetric { name, text } = metric;
        let before = self.versions.get(name).and_then(|all| all.last()).copied().unwrap_or(0);
        // One that cannot be read is replaced.
        if before > 0 && self.metric(name, before).await.is_ok_and(|m| m.text == *text) {
            return Ok(MetricSet { version: before, is_new: false });
        }
        let (version, text) = (before + 1, stored_text(text, &time_text(now_millis)));
        if !self.lake.add_version(Versioned::Metric, name, version, &text).await? {
            return Err(EngineError::report(
                SqlState::SerializationFailure,
                format!(
                    "another writer set version {version} of metric `{name}` at the same time; look at it with \
                 `uplake metric show {name}`, and run this again if yours shall follow it"
                ),
            ));
        }
        Ok(MetricSet { version, is_new: true })
    }

    /// Reads every version of a metric; what is wrong with them together, if anything is.
    ///
    /// # Errors
    /// The first that cannot be read.
    pub async fn problem(&self, name: &str) -> Result<Option<String>> {
        let versions = self.versions.get(name).map_or(&[][..], Vec::as_slice);
        for (expected, version) in (1..).zip(versions) {
            self.metric(name, *version).await?;
            if *version != expected {
                return Ok(Some(format!(
                    "metric {name} lacks version {expected}; restore it from a copy of the lake"
                )));
            }
        }
        Ok(None)
    }

    fn newest_of(&self, name: &str) -> Result<u32> {
        let newest = self.versions.get(name).and_then(|all| all.last()).copied();
        newest.ok_or_else(|| {
            let known: Vec<&str> = self.versions.keys().map(String::as_str).collect();
            let known = match known.as_slice() {
                [] => "it is empty; `uplake metric set FILE` puts metrics into it".to_owned(),
                known => format!("it has {}", known.join(", ")),
            };
            EngineError::report(
                SqlState::UndefinedObject,
                format!("there is no metric `{name}` in the catalogue; {known}"),
            )
        })
    }
}

/// RFC 3339, to the second.
pub(super) fn time_text(millis: i64) -> String {
    let time = DateTime::from_timestamp_millis(millis).unwrap_or_default();
    time.format("%Y-%m-%dT%H:%M:%SZ").to_string()
}
