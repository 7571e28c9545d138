//! Stored sets of ids that were read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uplake_table::StoredIdSet;

use crate::sql::id_set::IdSet;

/// Stored sets kept.
const KEPT_SETS: usize = 16;

/// The stored sets that were read, and what each file was then.
#[derive(Default)]
pub(crate) struct StoredSets(Mutex<HashMap<String, (StoredIdSet, Arc<IdSet>)>>);

impl StoredSets {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, (StoredIdSet, Arc<IdSet>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The set of that name, if its file is what it was.
    pub fn get(&self, name: &str, file: &StoredIdSet) -> Option<Arc<IdSet>> {
        let kept = self.lock();
        kept.get(name).filter(|(same, _)| same == file).map(|(_, set)| Arc::clone(set))
    }

    pub fn keep(&self, name: &str, file: StoredIdSet, set: &Arc<IdSet>) {
        let mut kept = self.lock();
        if kept.len() >= KEPT_SETS {
            kept.clear();
        }
        kept.insert(name.to_owned(), (file, Arc::clone(set)));
    }
}
