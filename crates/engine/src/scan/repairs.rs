//! Indexes that queries had to do without, and what becomes of each.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc::Sender;
use uplake_table::{DataFile, Fallback};

/// A data file: its table and its path there.
pub(crate) type File = (String, String);

/// What is known of indexes that were missed.
#[derive(Debug, Default)]
pub(crate) struct Repairs(Mutex<State>);

#[derive(Debug, Default)]
pub(crate) struct State {
    pub listener: Option<Sender<File>>,
    /// Those asked for and not built yet; why, if that failed.
    pub files: HashMap<File, Option<String>>,
}

impl Repairs {
    pub fn locked(&self) -> MutexGuard<'_, State> {
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
