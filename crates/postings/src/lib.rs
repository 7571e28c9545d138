//! Sets of row numbers of one data file, and dictionaries from terms to them.
//!
//! A cohort or a list of shops is thousands of ids in one query. Where rows are clustered by id,
//! each id's rows are one run, and 10,000 ids become a coalesced list of runs in 60 µs; where they
//! are not, the same call gives a mask.
//!
//! ```text
//! column ─► IntegersBuilder, BytesBuilder ─► Encoded { dictionary, heap } ─► a file
//! bytes  ─► Dictionary ─► union_integers(ids) ─► Selection: runs or mask ─► RowSet
//!                      └► lookup ─► Posting: one run inline, or a list in the heap
//! RowSet: and, or, and_not, contains, rank, select, runs, rows ◄─► portable Roaring bytes
//! ```
//!
//! # Examples
//! ```
//! use uplake_postings::{BytesBuilder, Dictionary, Options, Run, Scratch};
//! // Which rows hold a country, and which of those a cohort?
//! let mut builder = BytesBuilder::new(Options { ordered: true });
//! for (row, country) in ["DE", "DE", "FR", "DE", "DK"].into_iter().enumerate() {
//!     builder.push(country.as_bytes(), Run::new(row as u32, row as u32 + 1))?;
//! }
//! let encoded = builder.finish(5)?;
//! let countries = Dictionary::parse(&encoded.dictionary)?;
//! let with_d = countries.bytes_with_prefix(b"D")?;
//! let rows = countries.union_positions(with_d, &encoded.heap, &mut Scratch::default())?;
//! let cohort = [0, 2, 3].into_iter().collect();
//! assert_eq!(rows.into_row_set().and(&cohort).rows().collect::<Vec<_>>(), [0, 3]);
//! # Ok::<(), uplake_postings::PostingsError>(())
//! ```
//!
//! # Invariants
//! - A row is a `u32` ordinal of one file; equal sets are equal values with equal bytes.
//! - Bytes are used where they lie. Opening them looks at the header; every offset and row is
//!   checked when it is used, so hostile bytes give an error, never a panic or a row that the file
//!   does not have.
//!
//! # Not here
//! No files, checksums, Arrow or async: the index file is `index`. One use of unsafe code, a
//! prefetch in `prefetch.rs`, which other processors and Miri do without.

mod build;
mod container;
mod dictionary;
mod error;
mod hash;
mod header;
mod inline;
mod list;
mod mask;
mod outline;
pub mod portable;
mod prefetch;
mod row_set;
mod run;
mod selection;
mod sort;
mod table;
mod union;

pub use build::{BytesBuilder, Encoded, IntegersBuilder, Options};
pub use dictionary::{Dictionary, Term, TermId};
pub use error::PostingsError;
pub use header::HEADER_BYTES;
pub use list::{Heap, List, MAX_FILE_ROWS, Posting};
pub use mask::Mask;
pub use outline::{Lookup, Outline, Parts};
pub use row_set::{MAX_ROWS, RowSet, Rows, Runs};
pub use run::Run;
pub use selection::{Selection, SelectionRuns};
pub use union::Scratch;
