//! Texts in the lake of which every version stays: metrics, `_uplake/metrics/revenue/00000003.toml`, and saved
//! results of reports, `_uplake/results/free_shipping/00000001.json`.
//!
//! # Invariants
//! - A version is written once, by whoever creates its object, and never again.
//!
//! # Not here
//! What the texts say (`experiment`).

use std::collections::BTreeMap;

use futures::TryStreamExt;
use object_store::{ObjectMeta, ObjectStore};

use crate::error::{Result, TableError};
use crate::lake::Lake;
use crate::names::check_name;

/// Digits of a version's name, so that names sort as numbers.
const DIGITS: usize = 8;

/// What has versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versioned {
    /// Metrics of the catalogue; names are plain identifiers.
    Metric,
    /// Results of experiments, by the experiment's name.
    Result,
}

impl Versioned {
    pub(crate) const fn folder(self) -> &'static str {
        match self {
            Self::Metric => "_uplake/metrics",
            Self::Result => "_uplake/results",
        }
    }

    fn extension(self) -> &'static str {
        match self {
            Self::Metric => "toml",
            Self::Result => "json",
        }
    }

    fn path(self, name: &str, version: u32) -> String {
        format!("{}/{name}/{version:0DIGITS$}.{}", self.folder(), self.extension())
    }

    /// Name and version of what lies at a path below the lake.
    pub(crate) fn version_of(self, relative: &str) -> Option<(&str, u32)> {
        let below = relative.strip_prefix(self.folder())?.strip_prefix('/')?;
        let (name, file) = below.split_once('/')?;
        let digits = file.strip_suffix(self.extension())?.strip_suffix('.')?;
        let is_number = digits.len() == DIGITS && digits.bytes().all(|b| b.is_ascii_digit());
        let version = digits.parse().ok().filter(|version| is_number && *version > 0)?;
        Some((name, version))
    }

    /// # Errors
    /// [`TableError::Invalid`] says which character is in the way.
    pub fn check_name(self, name: &str) -> Result<()> {
        match self {
            Self::Metric => check_name("metric", name),
            Self::Result => check_experiment_name(name),
        }
    }
}

impl Lake {
    /// The versions that there are of each name, sorted.
    ///
    /// # Errors
    /// [`TableError::Store`].
    pub async fn versions(&self, of: Versioned) -> Result<BTreeMap<String, Vec<u32>>> {
        let folder = self.path_of(of.folder())?;
        let root = match self.root().as_ref() {
            "" => String::new(),
            root => format!("{root}/"),
        };
        let listed: Vec<ObjectMeta> = match self.store().list(Some(&folder)).try_collect().await {
            Ok(listed) => listed,
            Err(object_store::Error::NotFound { .. }) => Vec::new(),
            Err(e) => return Err(TableError::store(format!("listing {folder}"), e)),
        };
        let mut found: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for object in &listed {
            let relative = object.location.as_ref().strip_prefix(&root);
            let Some((name, version)) = relative.and_then(|path| of.version_of(path)) else {
                continue;
            };
            found.entry(name.to_owned()).or_default().push(version);
        }
        found.values_mut().for_each(|versions| versions.sort_unstable());
        Ok(found)
    }

    /// A version's text and where it lies; `None` if it is not there.
    ///
    /// # Errors
    /// [`TableError::Store`], and [`TableError::Invalid`] if it is no text.
    pub async fn version(
        &self,
        of: Versioned,
        name: &str,
        version: u32,
    ) -> Result<Option<(String, String)>> {
        self.text(&of.path(name, version)).await
    }

    /// Writes a version; false if another writer has made it.
    ///
    /// # Errors
    /// [`TableError::Invalid`] for what is no name, [`TableError::Store`].
    pub async fn add_version(
        &self,
        of: Versioned,
        name: &str,
        version: u32,
        text: &str,
    ) -> Result<bool> {
        of.check_name(name)?;
        self.add_text(&of.path(name, version), text).await
    }
}

/// An experiment whose files bear its name.
///
/// # Errors
/// [`TableError::Invalid`] says which character is in the way.
pub fn check_experiment_name(name: &str) -> Result<()> {
    const MAX_BYTES: usize = 128;
    let allowed = |c: char| c.is_alphanumeric() || " _-.".contains(c);
    let problem = if name.trim() != name || name.is_empty() {
        "is empty, or begins or ends with a space".to_owned()
    } else if name.len() > MAX_BYTES {
        format!("is longer than {MAX_BYTES} bytes")
    } else if name.starts_with('.') {
        "begins with `.`".to_owned()
    } else if let Some(c) = name.chars().find(|c| !allowed(*c)) {
        format!("holds `{}`; use letters, digits, spaces, `_`, `-` and `.`", c.escape_default())
    } else {
        return Ok(());
    };
    Err(TableError::Invalid(format!("experiment name `{name}` {problem}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_versions_are_told_from_paths() {
        let of = Versioned::Metric;
        assert_eq!(of.version_of(&of.path("revenue", 12)), Some(("revenue", 12)));
        for other in [
            "_uplake/metrics/revenue/00000000.toml",
            "_uplake/metrics/revenue/1.toml",
            "_uplake/metrics/revenue/+0000001.toml",
            "_uplake/metrics/revenue/00000001.toml.bak",
            "_uplake/metrics/revenue/old/00000001.toml",
            "_uplake/metrics/00000001.toml",
            "_uplake/results/revenue/00000001.toml",
        ] {
            assert_eq!(of.version_of(other), None, "{other}");
        }
    }

    #[test]
    fn names_of_experiments_are_names_of_files() {
        for good in ["free_shipping", "free shipping v2", "a-b.c", "été"] {
            assert!(check_experiment_name(good).is_ok(), "{good}");
        }
        for bad in ["", " a", "a/b", "a\\b", "..", ".a", "a\nb", "a\u{1b}[2J", "a:b", "a%2Fb"] {
            assert!(check_experiment_name(bad).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn of_writers_of_one_version_one_is_told_that_it_did() {
        let folder = tempfile::tempdir().unwrap();
        let lake = Lake::open(folder.path().to_str().unwrap()).unwrap();
        let texts: Vec<String> = (0..20).map(|writer| format!("writer {writer}")).collect();
        let add = |text| lake.add_version(Versioned::Metric, "m", 1, text);
        let won = futures::future::join_all(texts.iter().map(|text| add(text))).await;
        let won: Vec<bool> = won.into_iter().map(|won| won.unwrap()).collect();
        assert_eq!(won.iter().filter(|won| **won).count(), 1);
        let winner = &texts[won.iter().position(|won| *won).unwrap()];
        let (there, _) = lake.version(Versioned::Metric, "m", 1).await.unwrap().unwrap();
        assert_eq!(there, *winner);
        assert!(add(winner).await.unwrap(), "sent again it finds itself");
        let versions = lake.versions(Versioned::Metric).await.unwrap();
        assert_eq!(versions, BTreeMap::from([("m".to_owned(), vec![1])]));
        assert!(lake.add_version(Versioned::Metric, "a/b", 1, "").await.is_err());
    }
}
