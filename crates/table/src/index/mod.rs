//! Index files beside data files: which columns have one, building them, asking them.
//!
//! ```text
//! events/dt=2026-11-01/part-….parquet
//! events/_uplake_index/dt=2026-11-01/part-….parquet.idx     of exactly that file
//! ```
//!
//! # Invariants
//! - An index changes speed, never answers: whatever is wrong with one is a [`Fallback`], and the
//!   rows are read without it.
//! - A data file is committed after its index is written, and they are removed together.
//! - The folder starts with an underscore, so other Delta tools neither read nor vacuum it.
//!
//! # Not here
//! The bytes of an index file (`uplake-index`); when an index is worth asking (`engine`).

mod build;
mod cache;
mod file;
mod spec;

pub(crate) use build::{IndexBuilder, column_names};
pub(crate) use cache::read_footer;
pub use cache::{Answered, Fallback, FileRows, IndexCache, Question};
pub(crate) use file::{FOLDER, data_file_of, index_path};
pub use spec::{IndexKind, IndexSpec};
pub(crate) use spec::{check_specs, fits, parse_property, property};
