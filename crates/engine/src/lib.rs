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

mod admission;
mod ahead;
mod alarm;
mod assignment;
mod batch;
mod calls;
mod catalog;
mod count_ids;
mod daily_sums;
mod daily_values;
mod ddl;
mod dense;
mod dialect;
mod distinct_ids;
mod domain_functions;
mod error;
mod exact_sum;
mod filter_ids;
mod funnel;
mod held;
mod hot;
mod id_keys;
mod id_ranges;
mod id_set;
mod id_sets;
mod indexed;
mod join_ids;
mod kept_sides;
mod key_ids;
mod literals;
mod local_day;
mod match_words;
mod mends;
mod moments;
mod plain_forms;
mod plans;
mod pool;
mod preload;
mod provider;
mod question;
mod repair;
mod rewrite;
mod run;
mod session;
mod settings;
mod split_distinct;
mod statement;
mod statement_size;
mod stoppable;
mod storage;
mod top_candidates;
mod warm;
mod warnings;
mod window_candidates;

pub use admission::{Class, Listed, Queue};
pub use batch::{Batch, BatchOptions, BatchSummary};
pub use error::{EngineError, Position, Result};
pub use held::{count_held_by, held_bytes};
pub use preload::Preload;
pub use repair::Repair;
pub use run::{RunOptions, Usage};
pub use session::{Answer, Session, SessionOptions};
pub use settings::parse_timeout;
pub use statement::{Statement, parse, parse_each};
