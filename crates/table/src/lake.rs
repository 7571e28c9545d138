//! A lake: a folder of Delta tables with a small `_uplake` folder beside them.
//!
//! # Invariants
//! - `<lake>/<table>/_delta_log` makes a table; nothing else does.
//! - Names are plain identifiers, so a table name is a folder name and a SQL name at once.
//!
//! # Not here
//! Object stores other than the local file system come with the storage layer.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use deltalake_core::logstore::{LogStoreRef, StorageConfig, logstore_with};
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use url::Url;

use crate::error::{Result, TableError};
use crate::id_domain::{OpenDomains, ReportDomain};
use crate::snapshot::Snapshot;

/// The lake format this version writes.
const LAKE_FORMAT: u64 = 1;
const TABLE_NAME_MAX_BYTES: usize = 128;

/// A folder of tables.
#[derive(Clone, Debug)]
pub struct Lake {
    root: PathBuf,
    store: Arc<dyn ObjectStore>,
    domains: Arc<OpenDomains>,
}

/// Which version of a table to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AsOf {
    /// The newest commit.
    Latest,
    /// The table as of this commit number.
    Version(u64),
    /// The newest commit at or before this instant (milliseconds since 1970, UTC).
    TimestampMillis(i64),
}

impl AsOf {
    /// Parses a version number, a date (its first instant, UTC) or an RFC 3339 instant.
    ///
    /// # Errors
    /// [`TableError::Invalid`] shows the three forms.
    pub fn parse(text: &str) -> Result<Self> {
        if let Ok(version) = text.parse() {
            return Ok(Self::Version(version));
        }
        let instant = chrono::DateTime::parse_from_rfc3339(text)
            .map(|t| t.timestamp_millis())
            .or_else(|_| {
                chrono::NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f")
                    .map(|t| t.and_utc().timestamp_millis())
            })
            .or_else(|_| {
                chrono::NaiveDate::parse_from_str(text, "%Y-%m-%d")
                    .map(|d| d.and_time(chrono::NaiveTime::MIN).and_utc().timestamp_millis())
            });
        instant.map(Self::TimestampMillis).map_err(|_| {
            TableError::Invalid(format!(
                "`{text}` is not a version; write a number (12), a UTC time \
                 (\"2026-11-01 08:00:00\") or an RFC 3339 instant"
            ))
        })
    }
}

impl Lake {
    /// Opens a lake at a local path or `file://` URL. The folder need not exist yet.
    ///
    /// # Errors
    /// [`TableError::TooNew`] for a lake of a later format, [`TableError::Invalid`] for a URL of
    /// a store this version cannot reach.
    pub fn open(location: &str) -> Result<Self> {
        let path = match location.split_once("://") {
            Some(("file", rest)) => PathBuf::from(rest),
            Some((scheme, _)) => {
                return Err(TableError::Invalid(format!(
                    "`{location}`: {scheme}:// lakes are not supported yet; use a local folder"
                )));
            }
            None => PathBuf::from(location),
        };
        let root = std::path::absolute(&path)
            .map_err(|e| TableError::io(format!("the lake path {}", path.display()), e))?;
        if root.is_file() {
            return Err(TableError::Invalid(format!(
                "{} is a file; a lake is a folder",
                root.display()
            )));
        }
        let domains = Arc::default();
        let lake = Self { root, store: Arc::new(LocalFileSystem::new()), domains };
        lake.check_format()?;
        Ok(lake)
    }

    /// The lake with a folder for what can be made anew at any time, the dictionaries of id domains;
    /// `report` hears how far one is read, should that be needed.
    #[must_use]
    pub fn with_cache(self, folder: Option<PathBuf>, report: Option<ReportDomain>) -> Self {
        Self { domains: Arc::new(OpenDomains::new(folder, report)), ..self }
    }

    pub(crate) fn domains(&self) -> &OpenDomains {
        &self.domains
    }

    /// The folder, absolute.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The store that every data file of the lake is read through; paths in it are absolute.
    pub fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    /// Names of the tables, sorted.
    ///
    /// # Errors
    /// [`TableError::Io`] if the folder cannot be listed; a missing folder is an empty lake.
    pub fn table_names(&self) -> Result<Vec<String>> {
        let entries = match std::fs::read_dir(&self.root) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(TableError::io(format!("listing {}", self.root.display()), e)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry =
                entry.map_err(|e| TableError::io(format!("listing {}", self.root.display()), e))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if self.has_table(&name) {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Is there such a table? A log without a commit (a crash while the table was made) is none.
    pub fn has_table(&self, name: &str) -> bool {
        let is_commit = |entry: std::io::Result<std::fs::DirEntry>| {
            let name =
                entry.map(|e| e.file_name().to_string_lossy().into_owned()).unwrap_or_default();
            let digits = name.split('.').next().unwrap_or_default();
            digits.len() == 20
                && digits.bytes().all(|b| b.is_ascii_digit())
                && (name.ends_with(".json") || name.ends_with(".parquet"))
        };
        check_table_name(name).is_ok()
            && std::fs::read_dir(self.table_path(name).join("_delta_log"))
                .is_ok_and(|mut entries| entries.any(is_commit))
    }

    /// The table's content at a version.
    ///
    /// # Errors
    /// [`TableError::NoSuchTable`], [`TableError::UnsupportedFeature`], [`TableError::Delta`].
    pub async fn snapshot(&self, name: &str, as_of: &AsOf) -> Result<Snapshot> {
        if !self.has_table(name) {
            return Err(TableError::NoSuchTable {
                name: name.to_owned(),
                lake: self.root.display().to_string(),
                known: self.table_names()?,
            });
        }
        Snapshot::load(self, name, as_of).await
    }

    /// Is there no newer commit than this snapshot's?
    ///
    /// # Errors
    /// [`TableError::Io`] if the log cannot be looked at.
    pub fn is_latest(&self, snapshot: &Snapshot) -> Result<bool> {
        let log = self.table_path(snapshot.table()).join("_delta_log");
        let next = log.join(format!("{:020}.json", snapshot.version() + 1));
        let this = log.join(format!("{:020}.json", snapshot.version()));
        let exists = |path: &Path| {
            path.try_exists().map_err(|e| TableError::io(format!("reading {}", path.display()), e))
        };
        // A dropped and remade table starts again at 0, so this snapshot's own commit must be there.
        Ok(!exists(&next)? && exists(&this)? && snapshot.is_same_table(&this))
    }

    /// Removes a table, its data, its log and its indexes.
    ///
    /// The log goes first, so that a crash half-way leaves no table that looks whole.
    ///
    /// # Errors
    /// [`TableError::NoSuchTable`], [`TableError::Io`].
    pub fn drop_table(&self, name: &str) -> Result<()> {
        if !self.has_table(name) {
            return Err(TableError::NoSuchTable {
                name: name.to_owned(),
                lake: self.root.display().to_string(),
                known: self.table_names()?,
            });
        }
        let path = self.table_path(name);
        for folder in [path.join("_delta_log"), path] {
            std::fs::remove_dir_all(&folder)
                .map_err(|e| TableError::io(format!("removing {}", folder.display()), e))?;
        }
        Ok(())
    }

    pub(crate) fn table_path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(crate) fn table_url(&self, name: &str) -> Result<Url> {
        let path = self.table_path(name);
        Url::from_directory_path(&path).map_err(|()| {
            TableError::Invalid(format!("{} cannot be written as a file URL", path.display()))
        })
    }

    /// The path of the table's folder within [`Lake::store`].
    pub(crate) fn table_prefix(&self, name: &str) -> Result<object_store::path::Path> {
        object_store::path::Path::from_absolute_path(self.table_path(name)).map_err(|e| {
            TableError::Invalid(format!("table path {}: {e}", self.table_path(name).display()))
        })
    }

    pub(crate) fn log_store(&self, name: &str) -> Result<LogStoreRef> {
        logstore_with(Arc::clone(&self.store), &self.table_url(name)?, StorageConfig::default())
            .map_err(|e| TableError::delta(name, e))
    }

    /// Held while data files of a table are written and committed; many writers hold it at once.
    ///
    /// Blocks while a vacuum runs. The system lets go of it when a process ends, however it ends.
    pub(crate) fn lock_for_writing(&self, table: &str) -> Result<TableLock> {
        let (path, file) = self.lock_file(table)?;
        file.lock_shared().map_err(|e| TableError::io(format!("locking {}", path.display()), e))?;
        Ok(TableLock { _file: file })
    }

    /// Held by a vacuum, alone: files that are not committed yet look like garbage to it.
    pub(crate) fn lock_for_vacuum(&self, table: &str) -> Result<TableLock> {
        let (path, file) = self.lock_file(table)?;
        file.lock().map_err(|e| TableError::io(format!("locking {}", path.display()), e))?;
        Ok(TableLock { _file: file })
    }

    fn lock_file(&self, table: &str) -> Result<(PathBuf, std::fs::File)> {
        self.initialise()?;
        let folder = self.root.join("_uplake/locks");
        let path = folder.join(format!("{table}.lock"));
        let file = std::fs::create_dir_all(&folder)
            .and_then(|()| std::fs::OpenOptions::new().create(true).append(true).open(&path))
            .map_err(|e| TableError::io(format!("creating {}", path.display()), e))?;
        Ok((path, file))
    }

    /// Makes the folder and `_uplake/lake.json` if they are not there.
    pub(crate) fn initialise(&self) -> Result<()> {
        let folder = self.root.join("_uplake");
        let file = folder.join("lake.json");
        if file.exists() {
            return Ok(());
        }
        std::fs::create_dir_all(&folder)
            .and_then(|()| std::fs::write(&file, format!("{{\"format\": {LAKE_FORMAT}}}\n")))
            .map_err(|e| TableError::io(format!("creating the lake {}", self.root.display()), e))
    }

    fn check_format(&self) -> Result<()> {
        let path = self.root.join("_uplake/lake.json");
        let Ok(text) = std::fs::read_to_string(&path) else { return Ok(()) };
        let found = serde_json::from_str::<serde_json::Value>(&text)
            .ok()
            .and_then(|v| v.get("format")?.as_u64())
            .ok_or_else(|| {
                TableError::Invalid(format!(
                    "{} is not readable; it should be {{\"format\": {LAKE_FORMAT}}}",
                    path.display()
                ))
            })?;
        if found > LAKE_FORMAT {
            return Err(TableError::TooNew { path, found, supported: LAKE_FORMAT });
        }
        Ok(())
    }
}

/// A lock on a table, let go when dropped.
#[derive(Debug)]
pub(crate) struct TableLock {
    _file: std::fs::File,
}

/// A table name is a plain identifier that does not start with an underscore.
///
/// # Errors
/// [`TableError::Invalid`] says which character is in the way.
pub fn check_table_name(name: &str) -> Result<()> {
    check_name("table", name)
}

/// The same for other things with names.
pub(crate) fn check_name(what: &str, name: &str) -> Result<()> {
    let allowed = |c: char| c.is_alphanumeric() || c == '_';
    let problem = if name.is_empty() {
        "is empty".to_owned()
    } else if name.len() > TABLE_NAME_MAX_BYTES {
        format!("is longer than {TABLE_NAME_MAX_BYTES} bytes")
    } else if name.starts_with('_') {
        "starts with `_`, which is kept for uplake's own folders".to_owned()
    } else if name.starts_with(|c: char| c.is_ascii_digit()) {
        "starts with a digit".to_owned()
    } else if let Some(c) = name.chars().find(|c| !allowed(*c)) {
        format!("holds `{}`; use letters, digits and `_`", c.escape_default())
    } else {
        return Ok(());
    };
    Err(TableError::Invalid(format!("{what} name `{name}` {problem}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_names_are_identifiers() {
        for good in ["events", "Events2", "événements", "a_b"] {
            assert!(check_table_name(good).is_ok(), "{good}");
        }
        for bad in ["", "_x", "1a", "a/b", "..", "a b", "a.b"] {
            assert!(check_table_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn as_of_takes_a_version_a_day_or_an_instant() {
        assert_eq!(AsOf::parse("7").unwrap(), AsOf::Version(7));
        assert_eq!(AsOf::parse("1970-01-02").unwrap(), AsOf::TimestampMillis(86_400_000));
        assert_eq!(AsOf::parse("1970-01-01 00:00:01.5").unwrap(), AsOf::TimestampMillis(1500));
        assert_eq!(AsOf::parse("1970-01-01T01:00:00+01:00").unwrap(), AsOf::TimestampMillis(0));
        assert!(AsOf::parse("yesterday").is_err());
    }

    #[test]
    fn a_lake_of_a_later_format_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("_uplake")).unwrap();
        std::fs::write(dir.path().join("_uplake/lake.json"), "{\"format\": 99}").unwrap();
        let error = Lake::open(dir.path().to_str().unwrap()).unwrap_err();
        assert!(matches!(error, TableError::TooNew { found: 99, .. }), "{error}");
    }
}
