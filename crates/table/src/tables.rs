//! What the log of a table says: its content at a version, and whether that is the newest.

use crate::as_of::AsOf;
use crate::error::{Result, TableError};
use crate::lake::Lake;
use crate::log_reader::LogReader;
use crate::names::check_table_name;
use crate::snapshot::{SeenVersion, Snapshot};

impl Lake {
    /// The table's content at a version.
    ///
    /// # Errors
    /// [`TableError::NoSuchTable`], [`TableError::UnsupportedFeature`], [`TableError::Delta`].
    pub async fn snapshot(&self, name: &str, as_of: &AsOf) -> Result<Snapshot> {
        if self.is_remote() && check_table_name(name).is_ok() {
            // Round trips that need not wait for each other.
            let log = self.path_of(&format!("{name}/_delta_log"))?;
            let log = LogReader::new(&self.storage().charged(), log);
            let load = Snapshot::load(self, name, as_of, Some(&log));
            let (has, marked, loaded) = tokio::join!(log.has_commits(), self.is_marked(), load);
            marked?;
            let has = match has {
                Some(has) => has,
                None => self.has_table(name).await?,
            };
            if !has {
                return Err(self.no_such_table(name).await?);
            }
            let loaded = loaded?;
            if *as_of == AsOf::Latest
                && let Some(listed) = log.whole_listing().await
            {
                self.remember(name, &listed);
            }
            return Ok(loaded);
        }
        if !self.has_table(name).await? {
            return Err(self.no_such_table(name).await?);
        }
        Snapshot::load(self, name, as_of, None).await
    }

    pub(crate) async fn no_such_table(&self, name: &str) -> Result<TableError> {
        Ok(TableError::NoSuchTable {
            name: name.to_owned(),
            lake: self.location(),
            known: self.table_names().await?,
        })
    }

    /// Is there no newer commit than this snapshot's?
    ///
    /// # Errors
    /// [`TableError::Io`] or [`TableError::Store`] if the log cannot be looked at, and those of a lake of
    /// a later format.
    pub async fn is_latest(&self, snapshot: &Snapshot) -> Result<bool> {
        self.is_newest(&snapshot.seen()).await
    }

    /// The same of what is left of a snapshot.
    ///
    /// # Errors
    /// As [`Self::is_latest`].
    pub async fn is_newest(&self, seen: &SeenVersion) -> Result<bool> {
        let SeenVersion { table, version, stamp } = seen;
        // A dropped and remade table starts again at 0, so this snapshot's own commit must be there.
        let (next, this, _) = futures::try_join!(
            self.commit_stamp(table, version + 1),
            self.commit_stamp(table, *version),
            self.is_marked()
        )?;
        Ok(next.is_none() && this.is_some() && this == *stamp)
    }

    /// Is the commit of this snapshot's version still the one that it was read from? A table that was
    /// dropped and made again has other ones.
    ///
    /// # Errors
    /// As [`Self::is_latest`].
    pub async fn is_same(&self, snapshot: &Snapshot) -> Result<bool> {
        let now = self.commit_stamp(snapshot.table(), snapshot.version()).await?;
        // Of both none: an old log that somebody has tidied up.
        Ok(now.as_ref() == snapshot.stamp())
    }
}
