//! Parts of the memory that tenants' statements take from.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use uplake_engine::{Engine, MemoryShare};

/// The parts, by the names of tenants.
#[derive(Debug, Default)]
pub(crate) struct MemoryShares(Mutex<BTreeMap<String, MemoryShare>>);

impl MemoryShares {
    /// The part of a tenant, which has so many bytes from now on.
    pub fn of(&self, engine: &Engine, tenant: &str, bytes: usize) -> MemoryShare {
        let mut shares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let share = shares.entry(tenant.to_owned()).or_insert_with(|| engine.memory_share(bytes));
        share.set_bytes(bytes);
        share.clone()
    }
}
