//! What rows of catalogs are made of.

use uplake_engine::SessionFacts;

use super::system::SystemTables;
use crate::catalog::listing::Listing;
use crate::catalog::state::ServerState;

/// What rows are made of.
pub(in crate::catalog) struct View<'a> {
    pub tables: &'a SystemTables,
    pub listing: &'a Listing,
    pub server: &'a ServerState,
    pub facts: &'a SessionFacts,
}
