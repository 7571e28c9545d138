//! The seam: who computes parts of a statement, and what they are told.
//!
//! # Not here
//! Networks and other machines, which an implementation of [`Elsewhere`] knows alone.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;

use crate::base::error::Result;

/// What one part takes of the tables that are divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Share {
    /// Rows whose ids are in these ranges, each without its end but for `u32::MAX`, which is no end. Rows without an id
    /// are in the part that says so.
    Ids { ranges: Vec<Range<u32>>, without_id: bool },
    /// Of a table's bytes, this part of so many.
    Stretch { part: u32, parts: u32 },
}

/// What is known before a statement is divided; no file is opened for it.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The id domain and log whose ids tell parts apart; `None` if a table is divided by its bytes.
    pub source: Option<&'a str>,
    /// The highest id, if files say.
    pub highest_id: Option<u32>,
    /// Rows of the tables that are divided.
    pub rows: u64,
    /// Are rows answered as they are read, not groups or the first of them?
    pub is_raw: bool,
    /// Is it wanted whether it is worth it or not?
    pub always: bool,
}

/// What all parts of a statement have in common.
#[derive(Clone, Debug)]
pub struct Fragment {
    /// The plan.
    pub bytes: Bytes,
    /// The columns of its rows.
    pub schema: SchemaRef,
}

/// Who does a part in this process: what [`Elsewhere`] falls back on.
#[async_trait]
pub trait PartRunner: fmt::Debug + Send + Sync {
    /// The rows of one part.
    async fn run_part(&self, fragment: &[u8], share: &Share) -> Result<SendableRecordBatchStream>;
}

/// Who computes parts.
pub trait Elsewhere: fmt::Debug + Send + Sync {
    /// Rows up to which a table is read by every part, if it is not divided itself.
    fn whole_rows(&self) -> u64;

    /// The shares of the parts; `None` if it is not worth it, or if nobody is there.
    fn divide(&self, wanted: &Wanted<'_>) -> Option<Vec<Share>>;

    /// The rows of all parts, in any order. Dropping the stream stops all of them.
    fn rows(
        &self,
        fragment: Fragment,
        shares: Vec<Share>,
        here: Arc<dyn PartRunner>,
    ) -> SendableRecordBatchStream;
}
