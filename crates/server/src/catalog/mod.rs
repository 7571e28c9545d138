//! What drivers and tools ask about names: `pg_catalog` and `information_schema`, from what is kept of all tables.
//!
//! A server makes one [`Catalog`], gives its [`additions`](Catalog::additions) to the engine, calls
//! [`refresh`](Catalog::refresh) every [`REFRESH_SECONDS`] and after its own DDL, and has every text of a client go
//! through [`rewrite`]. It tells a session who uses it by facts: [`USER`], [`PID`], [`ADDRESS`], [`PORT`], and
//! [`SETTING`] with a setting's name.
//!
//! # Invariants
//! - A look at the catalog is answered from what is kept, and asks neither the store nor the disk.
//! - Numbers of objects are made of names, so they are the same on every node and after a restart.
//!
//! # Not here
//! Who may see what: `access`. The wire: `pg`.

mod functions;
mod known;
mod lake_catalog;
mod listing;
mod names;
mod oids;
mod parameters;
mod rewrite;
mod rights;
mod settings;
mod shared;
mod state;
mod tableoid;
mod tables;
mod tokens;
mod types;
mod words;

#[cfg(test)]
mod tests;

pub(crate) use lake_catalog::{Catalog, REFRESH_SECONDS, rewrite};
pub(crate) use listing::Hidden;
pub(crate) use parameters::catalog_parameters;
pub(crate) use state::{
    ADDRESS, OF_OIDS, ONE_CHARACTER, PID, PORT, SETTING, ServerState, Stop, USER,
};
pub(crate) use tokens::{Kind, Token, tokens};
