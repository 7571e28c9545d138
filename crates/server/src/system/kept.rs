//! Tables of `system` whose rows are kept in the lake: the newest are in memory, the others in files.
//!
//! # Invariants
//! - Each row is in an answer once. The rows in memory are taken first, with the number after which all rows of this
//!   process are among them; of a snapshot that is no older, rows of this process after that number are left out.

use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;

use super::columns::Columns;
use crate::log::{Log, Row};

/// The columns that say which row of which process a row is.
pub(super) const NODE: &str = "node";
pub(super) const NUMBER: &str = "number";
/// The column of the role whose row it is.
pub(super) const ROLE: &str = "role";
/// The column by which files are apart.
pub(super) const DAY: &str = "dt";

/// One of these tables.
pub(super) trait Kept: Send + Sync {
    fn schema(&self) -> SchemaRef;

    /// Rows in memory, of one role or of all, and the number after which all rows are among them.
    fn newest(&self, role: Option<&str>) -> Result<(RecordBatch, u64), ArrowError>;

    /// Rows that are not in the lake, and the number of the last; `None` if there are none.
    fn unstored(&self) -> Result<Option<(RecordBatch, u64)>, ArrowError>;

    /// Rows up to this number are in the lake.
    fn store(&self, number: u64);

    /// Will rows be let go soon before they are?
    fn is_pressing(&self) -> bool;

    /// Rows that were let go before they were.
    fn lost(&self) -> u64;
}

/// What the columns see of a row and its number.
pub(super) type See<R, S> = Box<dyn Fn(&R, u64) -> S + Send + Sync>;

/// A table of the rows of a log. `R` is what the log has, `S` the same as the columns see it.
pub(super) struct KeptLog<R, S> {
    pub columns: Columns<S>,
    pub log: Arc<Mutex<Log<R>>>,
    pub role: fn(&R) -> &str,
    pub seen: See<R, S>,
}

impl<R, S> KeptLog<R, S> {
    fn with_log<T>(&self, look: impl FnOnce(&mut Log<R>) -> T) -> T {
        look(&mut self.log.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<R: Row + Send, S> Kept for KeptLog<R, S> {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.columns.schema)
    }

    fn newest(&self, role: Option<&str>) -> Result<(RecordBatch, u64), ArrowError> {
        let (rows, before) = self.with_log(|log| {
            let is_seen = |(_, row): &(u64, &R)| role.is_none_or(|role| (self.role)(row) == role);
            let seen = log.numbered().filter(is_seen).map(|(number, row)| (self.seen)(row, number));
            (seen.collect::<Vec<S>>(), log.before())
        });
        Ok((self.columns.batch(&rows)?, before))
    }

    fn unstored(&self) -> Result<Option<(RecordBatch, u64)>, ArrowError> {
        let (rows, last) = self.with_log(|log| {
            let mut last = None;
            let seen = log.unstored().map(|(number, row)| {
                last = Some(number);
                (self.seen)(row, number)
            });
            (seen.collect::<Vec<S>>(), last)
        });
        last.map(|last| Ok((self.columns.batch(&rows)?, last))).transpose()
    }

    fn store(&self, number: u64) {
        self.with_log(|log| log.store(number));
    }

    fn is_pressing(&self) -> bool {
        self.with_log(|log| log.is_pressing())
    }

    fn lost(&self) -> u64 {
        self.with_log(|log| log.lost())
    }
}
