//! HTTP: statements and loads, what runs, how the server is.
//!
//! # Invariants
//! - An answer that fails half-way never looks whole: its body ends without its last chunk (HTTP/1.1) or with a reset
//!   stream (HTTP/2).
//! - A request whose client is gone is dropped, and its statement with it.
//!
//! # Not here
//! Pages and reports, which have routes of their own; Flight SQL (`flight`), which is merged into the same router.

mod auth;
mod health;
mod here;
mod listen;
mod load;
mod queries;
mod refusal;
mod route;
mod rows;
mod sql;

pub(crate) use listen::serve;

#[cfg(test)]
mod tests;
