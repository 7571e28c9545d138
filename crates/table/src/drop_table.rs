//! Removing a table.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::Path as LocalPath;

use futures::{StreamExt, TryStreamExt};
use object_store::ObjectStore;
use object_store::path::Path;

use crate::as_of::AsOf;
use crate::error::{Result, TableError};
use crate::index;
use crate::lake::{Lake, Place, folder_has_table};
use crate::vacuum::{DROPPED, Found, below, is_of_a_table, is_of_a_writer, remove_file, walk};

impl Lake {
    /// Removes a table, its data, its log and its indexes.
    ///
    /// The log goes first, so that a crash half-way leaves no table that looks whole. In a folder, links and
    /// files that no writer of tables names so stay where they are.
    ///
    /// # Errors
    /// [`TableError::NoSuchTable`], [`TableError::Io`], [`TableError::Store`].
    pub async fn drop_table(&self, name: &str) -> Result<()> {
        if !self.has_table(name).await? {
            return Err(self.no_such_table(name).await?);
        }
        if let Place::Folder(folder) = self.place() {
            let path = folder.join(name);
            // Whatever else is in it, a log is Delta's; what it names is data whatever it is called.
            let live = match self.snapshot(name, &AsOf::Latest).await {
                Ok(snapshot) => snapshot.files().iter().map(|f| f.path.clone()).collect(),
                Err(_) => HashSet::new(),
            };
            remove_table(&path, &live)?;
            if folder_has_table(folder, name) {
                let path = path.display();
                return Err(TableError::Invalid(format!(
                    "a log in {path} is a link; remove it yourself"
                )));
            }
            return Ok(());
        }
        let failed = |e| TableError::store(format!("removing table `{name}`"), e);
        let folder = self.path_of(name)?;
        let log = folder.clone().join("_delta_log");
        let listed = self.store().list(Some(&folder)).map_ok(|meta| meta.location);
        let (mut log, data): (Vec<Path>, Vec<Path>) = listed
            .try_collect::<Vec<_>>()
            .await
            .map_err(failed)?
            .into_iter()
            .partition(|path| path.prefix_matches(&log));
        // Checkpoints, then the oldest commit alone: without it the later ones say nothing.
        log.sort_by_key(|path| {
            let name = path.filename().unwrap_or_default();
            (name.ends_with(".json"), name.to_owned())
        });
        let commits = log.partition_point(|path| !path.as_ref().ends_with(".json"));
        let later = log.split_off((commits + 1).min(log.len()));
        let oldest = log.split_off(commits);
        for step in [log, oldest, later, data] {
            let paths = futures::stream::iter(step.into_iter().map(Ok)).boxed();
            let mut removed = self.store().delete_stream(paths);
            while let Some(path) = removed.next().await {
                match path {
                    Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                    Err(e) => return Err(failed(e)),
                }
            }
        }
        end_uploads(self, name).await
    }
}

/// Ends what uploads in parts a table has that is dropped, in a bucket, as far as it may.
async fn end_uploads(lake: &Lake, table: &str) -> Result<()> {
    let folder = lake.table_prefix(table)?;
    // Who may not list them can drop a table all the same.
    let uploads = lake.storage().unfinished_uploads(&folder).await.unwrap_or_default();
    for upload in uploads {
        if below(&folder, &upload.location).is_some_and(is_of_a_table) {
            let ended = lake.storage().end_upload(&upload).await;
            ended.map_err(|e| TableError::store(format!("ending {}", upload.location), e))?;
        }
    }
    Ok(())
}

/// Removes a table's folder but for links and what is not a table's. `live` are its data files.
fn remove_table(root: &LocalPath, live: &HashSet<String>) -> Result<()> {
    // In one step there is no table any more, whatever comes.
    let log = root.join("_delta_log");
    if log.symlink_metadata().is_ok_and(|found| found.is_dir()) {
        let gone = root.join(format!("{DROPPED}{}", uuid::Uuid::new_v4()));
        let renamed =
            std::fs::rename(&log, gone).and_then(|()| std::fs::File::open(root)?.sync_all());
        renamed.map_err(|e| TableError::io(format!("removing {}", log.display()), e))?;
    }
    let is_log = |f: &Found| f.relative.starts_with(DROPPED);
    let is_ours = |f: &&Found| {
        let path = &f.relative;
        live.contains(path)
            || is_of_a_writer(path)
            || path.starts_with(&format!("{}/", index::FOLDER))
            || f.is_stray_upload(i64::MAX)
    };
    let (mut log, others): (Vec<Found>, Vec<Found>) = walk(root)?.into_iter().partition(is_log);
    // Checkpoints, then the oldest commit: without them the later ones say nothing, and never an older version.
    log.sort_by_key(|file| (file.relative.ends_with(".json"), file.relative.clone()));
    for file in log.iter().chain(others.iter().filter(is_ours)) {
        remove_file(&root.join(&file.relative))?;
    }
    remove_empty_folders(root)
}

fn remove_empty_folders(folder: &LocalPath) -> Result<()> {
    let fail = |e| TableError::io(format!("removing {}", folder.display()), e);
    for entry in std::fs::read_dir(folder).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_empty_folders(&entry.path())?;
        }
    }
    match std::fs::remove_dir(folder) {
        Ok(()) => Ok(()),
        // Something stays, or the folder is there by a link.
        Err(e) if matches!(e.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::NotADirectory) => {
            Ok(())
        }
        Err(e) => Err(fail(e)),
    }
}
