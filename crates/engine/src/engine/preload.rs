//! Footers and indexes of a lake's tables, brought into the cache in the background.
//!
//! For sessions that live long: the first statement about a table then reads its log and its columns.
//! What is new after a load or a compaction is brought in when a statement notices it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use datafusion::common::runtime::SpawnedTask;
use tokio::sync::mpsc::{Receiver, channel};
use uplake_table::{AsOf, DataFile, Lake, Snapshot, WarmOptions, preload};

use crate::engine::session::Session;
use crate::scan::lake_table::LakeTable;

/// Tables of which something new was noticed and not looked at yet; more are left out.
const PRELOAD_QUEUE: usize = 64;
/// Statements come first.
const PACE: WarmOptions = WarmOptions { bytes_per_second: Some(32 << 20), at_once: 4 };

/// The work in the background; it ends when this is dropped.
#[derive(Debug)]
pub struct Preload {
    _task: SpawnedTask<()>,
}

impl Session {
    /// Begins to bring footers and indexes into the cache, as the settings `preload` and `preload_new`
    /// say. `None` if there is nothing to do: they are off, or the lake is a folder.
    ///
    /// Must be called by a task.
    pub fn preload(&self) -> Option<Preload> {
        let options = self.engine.lake.storage().options();
        if !self.engine.lake.is_remote() || !(options.preload || options.preload_new) {
            return None;
        }
        let (sender, news) = channel(PRELOAD_QUEUE);
        if options.preload_new {
            self.catalog.tell(sender);
        }
        let work = run(self.engine.lake.clone(), options.preload, news);
        Some(Preload { _task: SpawnedTask::spawn(work) })
    }
}

/// What cannot be read now is read by the statement that needs it, which says what is wrong.
async fn run(lake: Lake, at_once: bool, mut news: Receiver<Arc<LakeTable>>) {
    let mut known: HashMap<String, HashSet<String>> = HashMap::new();
    if at_once {
        for name in lake.table_names().await.unwrap_or_default() {
            if let Ok(table) = lake.snapshot(&name, &AsOf::Latest).await {
                preload(&lake, &table, table.files(), PACE).await;
                known.insert(name, paths(&table));
            }
        }
    }
    while let Some(table) = news.recv().await {
        let table = table.snapshot();
        // Of a table that is seen for the first time nothing is new.
        if let Some(before) = known.get(table.table()) {
            let is_new = |file: &&DataFile| !before.contains(&file.path);
            let files: Vec<DataFile> = table.files().iter().filter(is_new).cloned().collect();
            preload(&lake, table, &files, PACE).await;
        }
        known.insert(table.table().to_owned(), paths(table));
    }
}

fn paths(table: &Snapshot) -> HashSet<String> {
    table.files().iter().map(|file| file.path.clone()).collect()
}
