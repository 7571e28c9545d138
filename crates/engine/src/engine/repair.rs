//! Indexes that queries had to do without, built again in the background.
//!
//! For sessions that live long: the statement that misses an index is answered from the data and
//! asks for a repair, one file at a time. A statement that is a process would end before it.

use datafusion::common::runtime::SpawnedTask;
use tokio::sync::mpsc::{Receiver, channel};
use uplake_table::{AsOf, Lake, repair_index};

use crate::engine::session::Session;
use crate::scan::repairs::{File, Repairs};

/// Files that wait; what is left out is asked for by the next statement that misses it.
const REPAIR_QUEUE: usize = 1024;

/// The work in the background; it ends when this is dropped.
#[derive(Debug)]
pub struct Repair {
    _task: SpawnedTask<()>,
}

impl Session {
    /// Begins to build indexes that are missing or damaged as statements notice them.
    ///
    /// An index of a newer version of Uplake is left alone, and one that could not be written is not
    /// tried again. Must be called by a task.
    pub fn repair_indexes(&self) -> Repair {
        let (sender, asked) = channel(REPAIR_QUEUE);
        self.engine.repairs.locked().listener = Some(sender);
        let (lake, repairs) = (self.engine.lake.clone(), self.engine.repairs.clone());
        Repair { _task: SpawnedTask::spawn(async move { run(&lake, asked, &repairs).await }) }
    }
}

async fn run(lake: &Lake, mut asked: Receiver<File>, repairs: &Repairs) {
    while let Some((table, file)) = asked.recv().await {
        let done = repair(lake, &table, &file).await;
        let mut state = repairs.locked();
        match done {
            Ok(()) => state.files.remove(&(table, file)),
            Err(error) => state.files.insert((table, file), Some(error.to_string())),
        };
    }
}

async fn repair(lake: &Lake, table: &str, file: &str) -> uplake_table::Result<()> {
    // The table's indexes, and its files, may be others by now.
    let table = lake.snapshot(table, &AsOf::Latest).await?;
    match table.files().iter().find(|f| f.path == file) {
        Some(file) => repair_index(lake, &table, file).await,
        None => Ok(()),
    }
}
