//! Indexes that queries had to do without, built again in the background.
//!
//! For sessions that live long: the statement that misses an index is answered from the data and
//! asks for a repair, one file at a time. A statement that is a process would end before it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use datafusion::common::runtime::SpawnedTask;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use uplake_table::{AsOf, DataFile, Fallback, Lake, repair_index};

use crate::session::Session;

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
        self.repairs.locked().listener = Some(sender);
        let (lake, repairs) = (self.lake.clone(), self.repairs.clone());
        Repair { _task: SpawnedTask::spawn(async move { run(&lake, asked, &repairs).await }) }
    }
}

/// A data file: its table and its path there.
type File = (String, String);

/// What is known of indexes that were missed.
#[derive(Debug, Default)]
pub(crate) struct Repairs(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    listener: Option<Sender<File>>,
    /// Those asked for and not built yet; why, if that failed.
    files: HashMap<File, Option<String>>,
}

impl Repairs {
    fn locked(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for the index of a file, if somebody listens: what becomes of it, for the user.
    pub fn ask(&self, table: &str, file: &DataFile, fallback: &Fallback) -> String {
        let by_hand = format!("mend it with: uplake table reindex {table}");
        let mut state = self.locked();
        let State { listener: Some(listener), files } = &mut *state else { return by_hand };
        if !fallback.is_ours_to_mend() {
            return by_hand;
        }
        let file: File = (table.to_owned(), file.path.clone());
        match files.get(&file) {
            Some(Some(error)) => return format!("building it again failed ({error}); {by_hand}"),
            Some(None) => {}
            None => match listener.try_send(file.clone()) {
                Ok(()) => drop(files.insert(file, None)),
                // There are too many, or the work was dropped.
                Err(_) => return by_hand,
            },
        }
        "it is being built again".to_owned()
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
