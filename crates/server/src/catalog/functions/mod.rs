//! Functions that Postgres' clients call to read the catalog.
//!
//! # Invariants
//! - All of them know the lake by the listing that is kept, and ask nobody.
//! - A function that is told NULL says NULL, unless it is said otherwise here.
//!
//! # Not here
//! Functions of users' statements: `engine` and `functions`.

mod arguments;
mod lists;
mod objects;
mod rights;
mod session;

use std::sync::Arc;

use uplake_engine::AddedFunction;

use super::shared::Shared;

/// All of them.
pub(super) fn all(shared: &Arc<Shared>) -> Vec<AddedFunction> {
    let mut all = session::functions(shared);
    all.extend(objects::functions(shared));
    all.extend(rights::functions(shared));
    all.extend(lists::functions());
    all
}
