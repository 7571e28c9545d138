//! SQL to rows, and experiment to report, on one machine within one budget.
//!
//! ```no_run
//! # async fn example() -> Result<(), uplake_engine::EngineError> {
//! use std::sync::Arc;
//! use uplake_engine::{Session, SessionOptions};
//! use uplake_table::{AsOf, Lake};
//!
//! let options = SessionOptions {
//!     memory_bytes: 4 << 30,
//!     threads: 2,
//!     as_of: AsOf::Latest,
//!     spill_folder: None,
//!     use_indexes: true,
//!     at_once: None,
//!     timeout: None,
//!     clock: Arc::new(|| 0),
//! };
//! let session = Session::new(Lake::open("./lake")?, &options)?;
//! let rows = session.query("SELECT count(*) FROM events").await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Not here
//! Delta's types (`table`), statistics (`experiment`), protocols and other machines.

#![forbid(unsafe_code)]

// Who may use whom: the table of folders in ARCHITECTURE.md.
mod base;
mod batch;
mod cache;
mod engine;
mod experiments;
mod functions;
mod mends;
mod operators;
mod optimizer;
mod portable;
mod report;
mod scan;
mod sql;

pub use base::alarm::within;
pub use base::answer::Answer;
pub use base::durations::parse_timeout;
pub use base::error::{EngineError, Position, Problem, Result};
pub use base::held::{count_held_by, held_bytes};
pub use base::labels::parse_labels;
pub use base::progress::{ProgressCounts, QueryProgress, Spent};
pub use base::sql_state::{ErrorKind, SqlState};
pub use base::stop::Stop;
pub use batch::{Batch, BatchOptions, BatchSummary};
pub use cache::memory::{HeldMemory, MemoryShare, SharedMemory};
pub use datafusion::common::ScalarValue;
pub use engine::additions::{
    AddedAnswer, AddedFunction, AddedRows, AddedSchema, AddedStatements, Additions, Call,
    SessionFacts, Summary, Takes,
};
pub use engine::admission::{Class, Listed, Queue, Tenant};
pub use engine::parts::HereInParts;
pub use engine::pending::Savepoint;
pub use engine::preload::Preload;
pub use engine::privileges::{Guard, Privilege, Readable};
pub use engine::repair::Repair;
pub use engine::row_writer::RowWriter;
pub use engine::run::{KeptBytes, RunOptions, Usage};
pub use engine::sent_part::SentPart;
pub use engine::session::{Engine, Session, SessionOptions};
pub use engine::stored_rows::{NotAfter, StoredRows};
pub use engine::views::ViewDescription;
pub use experiments::catalogue::{MetricCatalogue, MetricSet};
pub use experiments::definitions::{Definition, Definitions};
pub use experiments::list::{ExperimentList, ListedExperiment, list_experiments};
pub use experiments::reports::{ReportOptions, ReportRequest};
pub use experiments::results::{LastResults, last_results, save_report, saved_report};
pub use portable::buckets::Buckets;
pub use portable::elsewhere::{
    Asked, Elsewhere, Fragment, NothingShuffled, PartRows, PartRunner, PartTold, PartsTold, Placed,
    Share, Shuffle, Shuffled, Undivided, Wanted,
};
pub use portable::fragment::parts_format;
pub use portable::part_error::PartError;
pub use scan::file_bounds::FileIds;
pub use sql::array_text::{ArrayElement, array_elements};
pub use sql::prepared::Prepared;
pub use sql::statement::{Statement, parse, parse_each, split};
