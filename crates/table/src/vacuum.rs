//! Removing what no recent version of a table needs.
//!
//! Files are listed and removed here: deltalake-core follows links out of the lake and does not name what it
//! removes. It is asked for the files alone that the log has as removed. What is removed is what is shown, and the
//! dry run is the same up to that. Nothing is removed that a writer is about to commit: see `lock`.
//!
//! # Invariants
//! - No link is followed or removed, and no file whose name is not one that the log has or that Uplake or another
//!   Delta writer gives ([`is_of_a_writer`]).

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::Path as LocalPath;
use std::sync::Arc;

use chrono::Duration;
use deltalake_core::operations::vacuum::{Clock, VacuumMode};
use futures::{StreamExt, TryStreamExt};
use object_store::ObjectStore;
use object_store::path::Path;

use crate::as_of::AsOf;
use crate::error::{Result, TableError};
use crate::lake::{Lake, Place};
use crate::snapshot::Snapshot;
use crate::{commit, index};

/// What a vacuum removed, or would remove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VacuumSummary {
    /// Paths from the table's folder.
    pub removed: Vec<String>,
    /// The same of uploads in parts that nobody completed, which have no file: in a bucket.
    pub ended_uploads: Vec<String>,
    /// Files and uploads that were kept because a writer may be about to commit them, in a bucket.
    pub kept_for_writers: usize,
    /// Why such uploads are not known: who may list objects may not always list these.
    pub unlisted_uploads: Option<String>,
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
        if !dry_run {
            // What a commit has replaced goes after the commit is on the disk; its writer may have been killed.
            commit::sync_log(self.lake, self.table).await?;
        }
        let before = walk(root)?;
        let unneeded = self.unneeded(&base, &before).await?;
        let there = |path: &str| root.join(path).exists() && !unneeded.contains(path);
        let mut removed = Vec::new();
        for file in &before {
            let goes = match index::data_file_of(&file.relative) {
                // An index is written after its data file, so one without is left over.
                Some(data_file) => !there(data_file),
                None => {
                    unneeded.contains(&file.relative)
                        || file.relative.starts_with(DROPPED)
                        || file.is_stray_upload(self.now_millis - self.retain_millis)
                }
            };
            if goes && (dry_run || remove_file(&root.join(&file.relative))?) {
                removed.push(file.relative.clone());
            }
        }
        removed.sort();
        Ok(VacuumSummary { removed, ..VacuumSummary::default() })
    }

    /// Files, then marks, then the log: see `lock`.
    async fn bucket(&self, dry_run: bool) -> Result<VacuumSummary> {
        let before = self.list().await?;
        let folder = self.lake.table_prefix(self.table)?;
        let uploads = self.lake.storage().unfinished_uploads(&folder).await;
        let writers = self.lake.writers_since(self.table, self.now_millis, dry_run).await?;
        let writers = writers.map_or(i64::MAX, |since| since.timestamp_millis());
        let base = self.lake.snapshot(self.table, &AsOf::Latest).await?;
        let live: HashSet<&str> = base.files().iter().map(|f| f.path.as_str()).collect();
        let unneeded = self.unneeded(&base, &before).await?;
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
        let uploads = uploads.unwrap_or_else(|error| {
            summary.unlisted_uploads = Some(error.to_string());
            Vec::new()
        });
        for upload in uploads {
            let begun = upload.begun.timestamp_millis();
            let Some(relative) = below(&folder, &upload.location) else { continue };
            if !is_of_a_table(relative) || begun > self.now_millis - self.retain_millis {
                continue;
            }
            // Of uploads a store may tell whole seconds only.
            if begun >= writers - 1000 {
                summary.kept_for_writers += 1;
                continue;
            }
            if !dry_run {
                let ended = self.lake.storage().end_upload(&upload).await;
                ended.map_err(|e| {
                    TableError::store(format!("ending the upload of {relative}"), e)
                })?;
            }
            summary.ended_uploads.push(relative.to_owned());
        }
        Ok(summary)
    }

    /// Data files that no version of late needs, of those that were there.
    async fn unneeded(&self, base: &Snapshot, before: &[Found]) -> Result<HashSet<String>> {
        let oldest = self.now_millis - self.retain_millis;
        let removed_before = self.removed_before(base, oldest).await?;
        let removed = self.removed_before(base, i64::MAX).await?;
        let live: HashSet<&str> = base.files().iter().map(|f| f.path.as_str()).collect();
        let is_left_over = |file: &Found| {
            // The log does not know it: a writer was killed.
            is_of_a_writer(&file.relative)
                && file.modified_millis <= oldest
                && !removed.contains(&file.relative)
        };
        let goes = |file: &&Found| {
            !live.contains(file.relative.as_str())
                && (removed_before.contains(&file.relative) || is_left_over(file))
        };
        Ok(before.iter().filter(goes).map(|file| file.relative.clone()).collect())
    }

    /// Files that the log has as removed before a time.
    async fn removed_before(&self, base: &Snapshot, millis: i64) -> Result<HashSet<String>> {
        let (_, metrics) = base
            .delta()
            .clone()
            .vacuum()
            .with_retention_period(Duration::zero())
            .with_enforce_retention_duration(false)
            .with_mode(VacuumMode::Lite)
            .with_dry_run(true)
            .with_clock(Arc::new(FixedClock(millis)))
            .await
            .map_err(|e| TableError::delta(self.table, e))?;
        let prefix = format!("{}/", base.prefix());
        let paths = metrics.files_deleted.into_iter();
        Ok(paths
            .map(|path| path.strip_prefix(&prefix).map_or(path.clone(), str::to_owned))
            .collect())
    }

    /// Every object of the table but its log.
    async fn list(&self) -> Result<Vec<Found>> {
        let folder = self.lake.table_prefix(self.table)?;
        let failed = |e| TableError::store(format!("listing {folder}"), e);
        let mut found = Vec::new();
        let mut objects = self.lake.store().list(Some(&folder));
        while let Some(object) = objects.try_next().await.map_err(failed)? {
            let Some(relative) = below(&folder, &object.location) else { continue };
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
            .map(|file| crate::names::store_path(self.table, &folder, file))
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

pub(crate) fn below<'a>(folder: &Path, location: &'a Path) -> Option<&'a str> {
    location.as_ref().strip_prefix(folder.as_ref())?.strip_prefix('/')
}

/// Has a file of a table, or of its change data, a name that writers of Delta tables give?
pub(crate) fn is_of_a_writer(relative: &str) -> bool {
    let (folder, name) = relative.rsplit_once('/').unwrap_or(("", relative));
    let is_hidden = |part: &str| part.starts_with(['_', '.']) && !part.contains('=');
    if folder != "_change_data" && folder.split('/').any(is_hidden) {
        return false;
    }
    let is_data =
        ["part-", "cdc-"].iter().any(|begin| name.starts_with(begin)) && name.ends_with(".parquet");
    is_data || name.starts_with("deletion_vector_") && name.ends_with(".bin")
}

/// Has it the name of a file of a table: data, index or log?
pub(crate) fn is_of_a_table(relative: &str) -> bool {
    is_of_a_writer(relative)
        || index::data_file_of(relative).is_some()
        || relative.starts_with("_delta_log/")
}

/// Removes a file; false if it is gone already: an upload was completed, and its name with it, since the folder
/// was walked.
pub(crate) fn remove_file(path: &LocalPath) -> Result<bool> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        Err(e) => Err(TableError::io(format!("removing {}", path.display()), e)),
    }
}

/// Begins the name of what was a table's log.
pub(crate) const DROPPED: &str = "_dropped-";

/// A file of a table.
pub(crate) struct Found {
    /// From the table's folder, with `/`.
    pub relative: String,
    modified_millis: i64,
}

impl Found {
    /// A half-written upload of the local store (`name#1`), which the store itself does not list.
    pub(crate) fn is_stray_upload(&self, before_millis: i64) -> bool {
        let Some((whole, number)) = self.relative.rsplit_once('#') else { return false };
        let is_staged = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        is_of_a_table(whole) && is_staged && self.modified_millis <= before_millis
    }
}

/// Every file below a folder, links apart. One that vanishes meanwhile is left out.
pub(crate) fn walk(root: &LocalPath) -> Result<Vec<Found>> {
    let fail = |e| TableError::io(format!("listing {}", root.display()), e);
    let (mut found, mut folders) = (Vec::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            // Of a link it is the link's own.
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                folders.push(entry.path());
            }
            if !metadata.is_file() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_writers_are_told_from_others() {
        for ours in [
            "part-00000000-0000-4000-8000-000000000000.parquet",
            "_day=2026-11-01/k=a%2Fb/part-00000-0-c000.snappy.parquet",
            "_change_data/cdc-00000-0.c000.snappy.parquet",
            "ab/deletion_vector_0.bin",
        ] {
            assert!(is_of_a_writer(ours), "{ours}");
        }
        for other in [
            "notes.txt",
            "mine.parquet",
            "part-1.csv",
            "_delta_log/part-0.parquet",
            "_backup/part-0.parquet",
            ".trash/day=1/part-0.parquet",
        ] {
            assert!(!is_of_a_writer(other), "{other}");
        }
    }
}
