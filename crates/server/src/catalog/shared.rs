//! What functions and tables share: the listing and the server as they are now.

use std::sync::atomic::AtomicI64;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use uplake_engine::SessionFacts;

use super::listing::{Hidden, Listing};
use super::state::{ServerState, Stops, USER};
use super::tables::SystemTables;

/// What of these tables does not exist for a role.
pub(super) type HiddenFrom = dyn Fn(&str, &[&str]) -> Hidden + Send + Sync;

/// What functions and tables share.
pub(super) struct Shared {
    pub tables: SystemTables,
    pub listing: RwLock<Arc<Listing>>,
    pub server: RwLock<Arc<ServerState>>,
    pub transactions: AtomicI64,
    /// Whom `pg_cancel_backend` asks, once there are connections.
    pub stops: OnceLock<Box<Stops>>,
    /// Nothing is hidden without.
    pub hidden: OnceLock<Box<HiddenFrom>>,
}

impl Shared {
    pub fn listing(&self) -> Arc<Listing> {
        Arc::clone(&self.listing.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The listing as the user of a session sees it.
    pub fn listing_for(&self, facts: &SessionFacts) -> Arc<Listing> {
        let listing = self.listing();
        match (self.hidden.get(), facts.get(USER)) {
            (Some(hidden), Some(role)) => {
                let tables = listing.tables.values().filter(|table| table.view.is_none());
                let tables: Vec<&str> = tables.map(|table| table.name.as_str()).collect();
                let hidden = listing.hidden_with_views(hidden(role, &tables));
                listing.without(hidden)
            }
            _ => listing,
        }
    }

    pub fn server(&self) -> Arc<ServerState> {
        Arc::clone(&self.server.read().unwrap_or_else(PoisonError::into_inner))
    }
}
