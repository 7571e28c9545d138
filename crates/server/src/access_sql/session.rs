//! A session of whoever can open the lake itself, which may change access without a server.

use std::sync::Arc;

use uplake_engine::{Additions, Engine, Result, Session, SessionOptions, SharedMemory};
use uplake_table::Lake;

use super::run::AccessStatements;
use crate::random::system_random;

/// A session of an engine of its own, which may do everything: who can write the lake's folder is an admin anyway.
///
/// # Errors
/// As [`Engine::new`].
pub fn owner_session(lake: Lake, options: &SessionOptions) -> Result<Session> {
    let (clock, random) = (Arc::clone(&options.clock), Arc::new(system_random));
    let about_access = Arc::new(AccessStatements::new(lake.clone(), None, clock, random));
    let statements = Arc::clone(&about_access) as _;
    let additions = Additions { statements: Some(statements), ..Additions::default() };
    let memory = SharedMemory::new(options.memory_bytes);
    let engine = Engine::with_additions(lake, options, &memory, additions)?;
    about_access.set_engine(&engine);
    Ok(engine.session())
}
