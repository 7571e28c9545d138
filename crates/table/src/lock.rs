//! Who may do what with the data files of a table at once.
//!
//! Files that are not committed yet look like garbage to a vacuum. In a folder writers and vacuums
//! hold a file lock, which the system lets go of when a process ends, however it ends. A bucket has
//! no locks: a writer leaves a mark, `_uplake/writers/<table>/<id>`, before it writes its first file
//! and takes it away after its commit; a vacuum keeps every unknown file that is not older than the
//! oldest mark. Nobody waits for anybody, and the store's clock alone is asked.
//!
//! # Invariants
//! - A vacuum lists the files, then the marks, then reads the log: a file that it found was marked
//!   then, or is committed, or nobody will commit it.
//! - The mark of a writer that ends while nobody knows what becomes of its commit stays.
//! - A mark that stays, such as that of a writer that was killed, counts for [`MARK_LIFE`]; then a vacuum removes it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use chrono::{DateTime, Duration, Utc};
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::runtime::Handle;
use uplake_objectio::Payer;

use crate::error::{Result, TableError};
use crate::lake::{Lake, Place};
use crate::thread::on_thread;

/// Longer than any load takes.
const MARK_LIFE: Duration = Duration::hours(24);

static AT_WORK: AtomicUsize = AtomicUsize::new(0);

/// Files that this process writes, and marks of it in buckets, that are not complete or taken away yet.
pub fn writers_at_work() -> usize {
    AT_WORK.load(Ordering::Relaxed)
}

/// Counts as long as it is there.
#[derive(Debug)]
pub(crate) struct AtWork(());

impl AtWork {
    pub fn begin() -> Self {
        AT_WORK.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        AT_WORK.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A lock on a table. Let it go with [`TableLock::release`]; dropping it works, too, unless the
/// process ends at once.
#[derive(Debug)]
pub(crate) struct TableLock {
    mark: Option<Mark>,
    _file: Option<std::fs::File>,
}

#[derive(Debug)]
struct Mark {
    store: Arc<dyn ObjectStore>,
    path: Path,
    runtime: Handle,
    /// Whose commit it is for, once that is under way.
    payer: Option<Arc<Payer>>,
    /// Until it is taken away.
    at_work: AtWork,
}

impl TableLock {
    /// The commit begins: if this is dropped after it was sent, it may take effect yet, and a vacuum must leave its files
    /// alone until then.
    pub fn commits(mut self) -> Self {
        if let Some(mark) = &mut self.mark {
            mark.payer = Payer::current();
        }
        self
    }

    /// Lets go and waits until that is done.
    pub async fn release(mut self) {
        if let Some(mark) = self.mark.take() {
            // One that stays holds a vacuum back, for a day.
            let _ = mark.store.delete(&mark.path).await;
        }
    }
}

impl Drop for TableLock {
    fn drop(&mut self) {
        if let Some(mark) = self.mark.take() {
            if mark.payer.as_ref().is_some_and(|payer| payer.sent_commit().is_some()) {
                return;
            }
            mark.runtime.clone().spawn(async move {
                let deleted = mark.store.delete(&mark.path).await;
                drop(mark.at_work);
                deleted
            });
        }
    }
}

impl Lake {
    /// Held while data files of a table are written and committed; many writers hold it at once.
    ///
    /// In a folder it waits while a vacuum runs.
    pub(crate) async fn lock_for_writing(&self, table: &str) -> Result<TableLock> {
        let (initialised, promised) = tokio::join!(self.initialise(), self.check_promise());
        promised?;
        initialised?;
        if let Place::Folder(folder) = self.place() {
            return lock_file(folder.clone(), table.to_owned(), std::fs::File::lock_shared).await;
        }
        let path = self.path_of(&format!("{}/{}", marks_of(table), uuid::Uuid::new_v4()))?;
        // It may be taken away by a task that nobody began for a statement.
        let store = self.storage().charged();
        let put = store.put(&path, "a writer is at work\n".into()).await;
        put.map_err(|e| TableError::store(format!("writing {path}"), e))?;
        let mark =
            Mark { store, path, runtime: Handle::current(), payer: None, at_work: AtWork::begin() };
        Ok(TableLock { mark: Some(mark), _file: None })
    }

    /// Held by a vacuum of a folder, alone; a bucket's vacuum asks [`Lake::writers_since`].
    pub(crate) async fn lock_for_vacuum(&self, table: &str) -> Result<TableLock> {
        self.initialise().await?;
        match self.place() {
            Place::Folder(folder) => {
                lock_file(folder.clone(), table.to_owned(), std::fs::File::lock).await
            }
            Place::Url(_) => Ok(TableLock { mark: None, _file: None }),
        }
    }

    /// When the first of the writers began that are at work in a bucket, by the store's clock; marks
    /// that are too old are removed, unless it is a dry run.
    pub(crate) async fn writers_since(
        &self,
        table: &str,
        now_millis: i64,
        dry_run: bool,
    ) -> Result<Option<DateTime<Utc>>> {
        let folder = self.path_of(&marks_of(table))?;
        let failed = |e| TableError::store(format!("listing {folder}"), e);
        let marks: Vec<_> = self.store().list(Some(&folder)).try_collect().await.map_err(failed)?;
        let mut oldest: Option<DateTime<Utc>> = None;
        for mark in marks {
            let age = now_millis.saturating_sub(mark.last_modified.timestamp_millis());
            if age > MARK_LIFE.num_milliseconds() {
                if !dry_run {
                    // Another vacuum may have been faster.
                    let _ = self.store().delete(&mark.location).await;
                }
                continue;
            }
            oldest = Some(oldest.map_or(mark.last_modified, |o| o.min(mark.last_modified)));
        }
        Ok(oldest)
    }
}

fn marks_of(table: &str) -> String {
    format!("_uplake/writers/{table}")
}

async fn lock_file(
    lake: PathBuf,
    table: String,
    lock: fn(&std::fs::File) -> std::io::Result<()>,
) -> Result<TableLock> {
    on_thread(move || {
        let folder = lake.join("_uplake/locks");
        let path = folder.join(format!("{table}.lock"));
        let file = std::fs::create_dir_all(&folder)
            .and_then(|()| std::fs::OpenOptions::new().create(true).append(true).open(&path))
            .map_err(|e| TableError::io(format!("creating {}", path.display()), e))?;
        lock(&file).map_err(|e| TableError::io(format!("locking {}", path.display()), e))?;
        Ok(TableLock { mark: None, _file: Some(file) })
    })
    .await
}
