//! Stored sets of ids that were read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uplake_table::StoredIdSet;

use crate::sql::id_set::IdSet;

/// The stored sets that were read, and what each file was then.
pub(crate) struct StoredSets {
    limit_bytes: usize,
    sets: Mutex<HashMap<String, (StoredIdSet, Arc<IdSet>)>>,
}

impl StoredSets {
    /// Room for so many bytes.
    pub fn new(limit_bytes: usize) -> Self {
        Self { limit_bytes, sets: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, (StoredIdSet, Arc<IdSet>)>> {
        self.sets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The set of that name, if its file is what it was.
    pub fn get(&self, name: &str, file: &StoredIdSet) -> Option<Arc<IdSet>> {
        let kept = self.lock();
        kept.get(name).filter(|(same, _)| same == file).map(|(_, set)| Arc::clone(set))
    }

    pub fn keep(&self, name: &str, file: StoredIdSet, set: &Arc<IdSet>) {
        let bytes = set.memory_bytes();
        let mut kept = self.lock();
        kept.remove(name);
        let others: usize = kept.values().map(|(_, set)| set.memory_bytes()).sum();
        if others + bytes > self.limit_bytes {
            kept.clear();
        }
        if bytes <= self.limit_bytes {
            kept.insert(name.to_owned(), (file, Arc::clone(set)));
        }
    }
}
