//! What functions and tables share: the listing and the server as they are now.

use std::sync::atomic::AtomicI64;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use super::listing::Listing;
use super::state::{ServerState, Stops};
use super::tables::SystemTables;

/// What functions and tables share.
pub(super) struct Shared {
    pub tables: SystemTables,
    pub listing: RwLock<Arc<Listing>>,
    pub server: RwLock<Arc<ServerState>>,
    pub transactions: AtomicI64,
    /// Whom `pg_cancel_backend` asks, once there are connections.
    pub stops: OnceLock<Box<Stops>>,
}

impl Shared {
    pub fn listing(&self) -> Arc<Listing> {
        Arc::clone(&self.listing.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn server(&self) -> Arc<ServerState> {
        Arc::clone(&self.server.read().unwrap_or_else(PoisonError::into_inner))
    }
}
