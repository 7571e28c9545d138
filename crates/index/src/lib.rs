//! The sidecar index of one data file: which of its rows hold which term.
//!
//! ```text
//! WRITE  builders, a column each ─► Writer ─► bytes (FORMAT.md draws them)
//! READ   tail ─► Footer ─► ColumnInfo::first_read ─► Column::open
//!             ─► Column::plan(query) ─► ranges ─► Column::answer ─► rows, perhaps to recheck
//!        or, for a few terms of a large dictionary,
//!             ColumnInfo::header_read ─► Sparse::open ─► Probe::next ⇄ ranges ─► rows
//! ```
//!
//! The reader never reads: it says which ranges it needs and takes the bytes, so the caller fetches
//! them as it likes, in one round trip, cached or mapped.
//!
//! # Invariants
//! - An index changes speed, never answers: whatever is wrong with its bytes is an error, on which
//!   the caller reads the data instead.
//! - Bytes are checked against a checksum before they are used, and again wherever they name an
//!   offset or a row.
//!
//! # Not here
//! Files, object stores, Arrow, SQL; how a column's values become integers or text.
#![forbid(unsafe_code)]

mod column;
mod error;
mod fold;
mod format;
mod grams;
mod like;
mod matcher;
mod query;
mod sparse;
mod terms;
mod words;
mod writer;
mod zones;

pub use column::{Answer, Column, Plan};
pub use error::IndexError;
pub use format::{
    BLOCK_BYTES, ColumnInfo, DataFile, FORMAT, Footer, Kind, SMALL_HEAP_BYTES, TAIL_BYTES, Tail,
    tail_range,
};
pub use matcher::WordMatcher;
pub use query::Query;
pub use sparse::{Probe, Sparse, Step};
pub use uplake_postings::{
    BytesBuilder, IntegersBuilder, Options, PostingsError, RowSet, Run, Scratch, Selection,
    SelectionRuns,
};
pub use writer::{GramsBuilder, WordsBuilder, Writer};
pub use zones::{ZonesBuilder, key_of_f64, key_of_i64};
