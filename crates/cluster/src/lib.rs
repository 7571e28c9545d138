//! Which node of a warehouse does what: decisions that take values and time as arguments.
//!
//! A *node* is a process of the server; a *warehouse* is a named group of them. A query is cut into
//! *parts*, each of some *slots*: ranges of ids of one domain, so that the rows of a user are in one
//! part. What is here says which nodes there may be ([`members`]), which of them can be used
//! ([`nodes`]), which slots each has ([`place()`]), and which parts are done a second time ([`late`]).
//!
//! # Invariants
//! - Nothing is agreed on between nodes: two coordinators that see different nodes place slots
//!   differently and lose cache hits, never rows. Each query carries its own division.
//! - The clock is an argument: [`std::time::Duration`] since a start that the caller chose.
//!
//! # Not here
//! No network, no plans, no SQL.

#![forbid(unsafe_code)]

pub mod late;
pub mod members;
pub mod nodes;
mod place;

pub use place::{LOAD_MAX, place};
