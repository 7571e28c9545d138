//! Statements that change who may connect and who may what: `CREATE ROLE`, `GRANT`, `CREATE POLICY`, `CREATE TENANT`,
//! `CREATE TOKEN` and what belongs to them.
//!
//! ```text
//! any protocol ─► engine (knows their first words) ─► AccessStatements: parse, ask who it is, change the lake's document
//! ```
//!
//! # Invariants
//! - Whoever may not change access is refused before anything is looked up.
//! - What an error says has no password of the statement's text.
//! - The server that has changed something goes by it before the statement is answered.
//!
//! # Not here
//! What changes are possible and how they are kept: `access`. What is asked of other statements: `users`.

mod cursor;
mod grants;
mod lookup;
mod parser;
mod policies;
mod run;
mod secrets;
mod session;
mod statement;
mod values;

#[cfg(test)]
mod tests;

pub(crate) use run::{AccessStatements, BY_TOKEN, token_columns};
pub(crate) use secrets::without_secrets;
pub use session::owner_session;
