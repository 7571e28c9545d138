//! Experiments from values to values: a definition becomes a [`MomentsQuery`], the engine's
//! [`MomentsTable`] becomes a report.
//!
//! ```text
//! TOML ─► Experiment ─► plan ─► MomentsQuery ─► (engine) ─► MomentsTable ─► analyze ─► Report
//! ```
//!
//! # Not here
//! No rows, no SQL, no Arrow, no clock, no files: the engine has them.
#![forbid(unsafe_code)]

pub mod cuped;
pub mod definition;
pub mod distribution;
mod double;
pub mod effect;
pub mod health;
pub mod moments;
pub mod multiplicity;
pub mod query;
mod toml_reader;

pub use definition::{DefinitionError, Experiment};
pub use moments::Moments;
pub use query::{MomentsQuery, MomentsTable, plan};
pub use toml_reader::Place;
