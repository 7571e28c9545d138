//! Removing what no recent version of a table needs.
//!
//! Which files those are is for deltalake-core to say; ours are the indexes, which it does not know,
//! and that nothing is removed that a writer is about to commit: see `lock`.

use std::collections::HashSet;
use std::path::Path as LocalPath;
use std::sync::Arc;

use chrono::Duration;
use deltalake_core::operations::vacuum::{Clock, VacuumMode};
use futures::{StreamExt, TryStreamExt};
use object_store::ObjectStore;

use crate::error::{Result, TableError};
use crate::index;
use crate::lake::{AsOf, Lake, Place};
use crate::snapshot::Snapshot;

/// What a vacuum removed, or would remove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VacuumSummary {
    /// Paths from the table's folder.
    pub removed: Vec<String>,
    /// Files that were kept because a writer may be about to commit them, in a bucket.
    pub kept_for_writers: usize,
}

#[derive(Debug)]
struct FixedClock(i64);

impl Clock for FixedClock {
    fn current_timestamp_millis(&self) -> i64 {
        self.0
    }
}

/// Removes files that no version of the last `retain` needs: replaced ones, and what crashed loads left.
///
/// In a folder it waits for the writers of this lake that are at work, and holds up new ones; in a
/// bucket it leaves alone what may be theirs. Writers that know neither (other Delta tools) are safe
/// only with a `retain` longer than they take.
///
/// # Errors
/// [`TableError::Delta`], [`TableError::Io`], [`TableError::Store`].
pub async fn vacuum(
    lake: &Lake,
    base: &Snapshot,
    retain: std::time::Duration,
    dry_run: bool,
    now_millis: i64,
) -> Result<VacuumSummary> {
    let millis = i64::try_from(retain.as_millis()).unwrap_or(i64::MAX);
    let vacuum = Vacuum { lake, table: base.table(), retain_millis: millis, now_millis };
    match lake.place() {
        Place::Folder(folder) => vacuum.folder(&folder.join(base.table()), dry_run).await,
        Place::Url(_) => vacuum.bucket(dry_run).await,
    }
}

struct Vacuum<'a> {
    lake: &'a Lake,
    table: &'a str,
    retain_millis: i64,
    now_millis: i64,
}

impl Vacuum<'_> {
    async fn folder(&self, root: &LocalPath, dry_run: bool) -> Result<VacuumSummary> {
        let _lock = self.lake.lock_for_vacuum(self.table).await?;
        // What was committed while waiting is not garbage.
        let base = self.lake.snapshot(self.table, &AsOf::Latest).await?;
        let before = walk(root)?;
        let mut removed = self.unneeded(&base, &before, dry_run).await?;
        let there = |path: &str| root.join(path).exists() && !removed.iter().any(|r| r == path);
        let garbage: Vec<&Found> = before
            .iter()
            .filter(|f| match index::data_file_of(&f.relative) {
                // An index is written after its data file, so one without is left over.
                Some(data_file) => !there(data_file),
                None => f.is_stray_upload(self.now_millis - self.retain_millis),
            })
            .collect();
        for file in garbage {
            if !dry_run {
                let path = root.join(&file.relative);
                match std::fs::remove_file(&path) {
                    Ok(()) => {}
                    // The upload was completed, and its name with it, since the folder was walked.
                    Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
                    Err(e) => {
                        return Err(TableError::io(format!("removing {}", path.display()), e));
                    }
                }
            }
            removed.push(file.relative.clone());
        }
        removed.sort();
        removed.dedup();
        Ok(VacuumSummary { removed, kept_for_writers: 0 })
    }

    /// Files, then marks, then the log: see `lock`.
    async fn bucket(&self, dry_run: bool) -> Result<VacuumSummary> {
        let before = self.list().await?;
        let writers = self.lake.writers_since(self.table, self.now_millis).await?;
        let writers = writers.map_or(i64::MAX, |since| since.timestamp_millis());
        let base = self.lake.snapshot(self.table, &AsOf::Latest).await?;
        let live: HashSet<&str> = base.files().iter().map(|f| f.path.as_str()).collect();
        let unneeded: HashSet<String> =
            self.unneeded(&base, &before, true).await?.into_iter().collect();
        let (mut summary, mut left) = (VacuumSummary::default(), live.clone());
        let is_index = |f: &&Found| index::data_file_of(&f.relative).is_some();
        for file in before.iter().filter(|f| !is_index(f)) {
            if !unneeded.contains(&file.relative) || live.contains(file.relative.as_str()) {
                left.insert(&file.relative);
            } else if file.modified_millis >= writers {
                left.insert(&file.relative);
                summary.kept_for_writers += 1;
            } else {
                summary.removed.push(file.relative.clone());
            }
        }
        for file in before.iter().filter(is_index) {
            match index::data_file_of(&file.relative) {
                Some(data_file) if left.contains(data_file) => {}
                _ if file.modified_millis >= writers => summary.kept_for_writers += 1,
                _ => summary.removed.push(file.relative.clone()),
            }
        }
        summary.removed.sort();
        if !dry_run {
            self.remove(&summary.removed).await?;
        }
        Ok(summary)
    }

    /// Data files that no version of late needs, of those that were there; without a dry run they
    /// are gone.
    async fn unneeded(
        &self,
        base: &Snapshot,
        before: &[Found],
        dry_run: bool,
    ) -> Result<Vec<String>> {
        let (_, metrics) = base
            .delta()
            .clone()
            .vacuum()
            .with_retention_period(Duration::milliseconds(self.retain_millis))
            .with_enforce_retention_duration(false)
            .with_mode(VacuumMode::Full)
            .with_dry_run(dry_run)
            .with_clock(Arc::new(FixedClock(self.now_millis)))
            .await
            .map_err(|e| TableError::delta(self.table, e))?;
        // The log remembers files for long after they are gone; only those that were there count.
        let there: HashSet<&str> = before.iter().map(|f| f.relative.as_str()).collect();
        let prefix = format!("{}/", base.prefix());
        let paths = metrics.files_deleted.into_iter();
        let paths =
            paths.map(|path| path.strip_prefix(&prefix).map_or(path.clone(), str::to_owned));
        Ok(paths.filter(|path| there.contains(path.as_str())).collect())
    }

    /// Every object of the table but its log.
    async fn list(&self) -> Result<Vec<Found>> {
        let folder = self.lake.table_prefix(self.table)?;
        let failed = |e| TableError::store(format!("listing {folder}"), e);
        let mut found = Vec::new();
        let mut objects = self.lake.store().list(Some(&folder));
        while let Some(object) = objects.try_next().await.map_err(failed)? {
            let path = object.location.as_ref();
            let Some(relative) =
                path.strip_prefix(folder.as_ref()).and_then(|p| p.strip_prefix('/'))
            else {
                continue;
            };
            if !relative.starts_with("_delta_log/") {
                found.push(Found {
                    relative: relative.to_owned(),
                    modified_millis: object.last_modified.timestamp_millis(),
                });
            }
        }
        Ok(found)
    }

    async fn remove(&self, relative: &[String]) -> Result<()> {
        let folder = self.lake.table_prefix(self.table)?;
        let paths: Vec<_> = relative
            .iter()
            .map(|file| crate::snapshot::store_path(self.table, &folder, file))
            .collect::<Result<_>>()?;
        let paths = futures::stream::iter(paths.into_iter().map(Ok)).boxed();
        let mut removed = self.lake.store().delete_stream(paths);
        while let Some(path) = removed.next().await {
            match path {
                Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                Err(e) => return Err(TableError::store(format!("vacuum of `{}`", self.table), e)),
            }
        }
        Ok(())
    }
}

struct Found {
    /// From the table's folder, with `/`.
    relative: String,
    modified_millis: i64,
}

impl Found {
    /// A half-written upload of the local store (`name#1`), which the store itself does not list.
    fn is_stray_upload(&self, before_millis: i64) -> bool {
        let staged = self
            .relative
            .rsplit_once('#')
            .is_some_and(|(_, n)| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
        staged && self.modified_millis <= before_millis
    }
}

/// Every file below a folder. One that vanishes meanwhile is left out.
fn walk(root: &LocalPath) -> Result<Vec<Found>> {
    let fail = |e| TableError::io(format!("listing {}", root.display()), e);
    let (mut found, mut folders) = (Vec::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                folders.push(entry.path());
                continue;
            }
            let modified = metadata.modified().map_err(fail)?;
            let age = modified.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            let path = entry.path();
            let relative = path.strip_prefix(root).unwrap_or(&path);
            found.push(Found {
                relative: relative.to_string_lossy().into_owned(),
                modified_millis: i64::try_from(age.as_millis()).unwrap_or(i64::MAX),
            });
        }
    }
    Ok(found)
}
