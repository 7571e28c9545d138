//! The seam: who computes parts of a statement, and what they are told.
//!
//! # Invariants
//! - Rows of a part are handed on once: what computes it again after it was lost has handed on nothing of it.
//!
//! # Not here
//! Networks and other machines, which an implementation of [`Elsewhere`] knows alone.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};

use crate::base::error::{EngineError, Result};
use crate::base::progress::Spent;
use crate::cache::memory::HeldMemory;
use crate::portable::buckets::Buckets;
use crate::portable::part_error::PartError;
use crate::scan::file_bounds::FileIds;

/// What one part takes of the tables that are divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Share {
    /// Rows whose ids are in these ranges, each without its end but for `u32::MAX`, which is no end. Rows without an id
    /// are in the part that says so.
    Ids { ranges: Vec<Range<u32>>, without_id: bool },
    /// This part of so many: of a table's bytes, or of the buckets of what was shuffled.
    Stretch { part: u32, parts: u32 },
}

impl Share {
    /// All rows that parts like this one have together, as one part.
    #[must_use]
    pub fn of_all(&self) -> Self {
        match self {
            Self::Ids { .. } => {
                let all = 0..u32::MAX;
                Self::Ids { ranges: Vec::from([all]), without_id: true }
            }
            Self::Stretch { .. } => Self::Stretch { part: 0, parts: 1 },
        }
    }
}

/// A part, and who is to compute it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    pub share: Share,
    /// The node, by its name.
    pub node: String,
}

/// What is known before a statement is divided; no file is opened for it.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The id domain and log whose ids tell parts apart; `None` if a table is divided by its bytes.
    pub source: Option<&'a str>,
    /// The highest id, if files say.
    pub highest_id: Option<u32>,
    /// The ids of the table with the most rows, as its files say: ids are numbered as users come, and early ones have more rows.
    pub files: &'a [FileIds],
    /// Rows of the tables that are divided, without those of files that are ruled out. Of rows that are looked up, none.
    pub rows: u64,
    /// Bytes of these files, if they are not on this machine.
    pub remote_bytes: u64,
    /// Are rows answered as they are read, not groups or the first of them?
    pub is_raw: bool,
    /// Do rows change nodes before?
    pub shuffles: bool,
    /// Is it wanted whether it is worth it or not?
    pub always: bool,
}

/// Why a statement is not divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undivided {
    pub why: String,
    /// It would have been, but nobody is there.
    pub is_alone: bool,
}

/// What all parts of a statement have in common.
#[derive(Clone, Debug)]
pub struct Fragment {
    /// The plan, or the questions of a report.
    pub bytes: Bytes,
    /// The columns of its rows.
    pub schema: SchemaRef,
}

/// Rows of parts.
pub type PartRows = BoxStream<'static, Result<RecordBatch, PartError>>;

/// What one part reads of shuffles before it.
pub trait Shuffled: fmt::Debug + Send + Sync {
    /// The rows that it has of a shuffle, by its number. They are read once.
    fn rows(&self, shuffle: u32) -> PartRows;

    /// How many rows and bytes these are, if that is known.
    fn size(&self, shuffle: u32) -> Option<(usize, usize)>;
}

/// What a part reads that reads tables alone.
#[derive(Clone, Copy, Debug)]
pub struct NothingShuffled;

impl Shuffled for NothingShuffled {
    fn rows(&self, shuffle: u32) -> PartRows {
        let what = format!("a part reads shuffle {}, which nobody has", shuffle + 1);
        stream::iter([Err(EngineError::bug(what).into())]).boxed()
    }

    fn size(&self, _: u32) -> Option<(usize, usize)> {
        None
    }
}

/// Who does a part in this process: what [`Elsewhere`] falls back on; and what of the statement's it may use.
#[async_trait]
pub trait PartRunner: fmt::Debug + Send + Sync {
    /// The rows of one part, which reads from these shuffles.
    async fn run_part(
        &self,
        fragment: &[u8],
        share: &Share,
        from: &Arc<dyn Shuffled>,
    ) -> Result<PartRows>;

    /// Takes so much of the statement's memory, for rows that wait.
    ///
    /// # Errors
    /// [`EngineError::Limit`](crate::EngineError::Limit) if there is not that much.
    fn hold(&self, bytes: usize) -> Result<HeldMemory>;

    /// The statement pays for what another node has done for it.
    fn pay(&self, spent: Spent);

    /// Tells the statement's user something, although it is answered.
    fn warn(&self, message: &str);
}

/// What became of a part, for who asks how a statement was computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartTold {
    /// Of which shuffle it was a part, if not of the answer.
    pub shuffle: Option<u32>,
    /// Who computed it.
    pub node: String,
    pub rows: u64,
    /// As they travel.
    pub bytes: u64,
    pub took: Duration,
    /// Other nodes that were asked for it: before, because they were lost, or beside, because it was late.
    pub others: u32,
}

/// What became of the parts of a statement so far.
#[derive(Debug, Default)]
pub struct PartsTold(Mutex<Vec<PartTold>>);

impl PartsTold {
    /// A part is done.
    pub fn add(&self, told: PartTold) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(told);
    }

    /// Those that are done, by shuffles and who did them.
    pub fn all(&self) -> Vec<PartTold> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        all.sort_by(|a, b| {
            let answer_last = |told: &PartTold| told.shuffle.unwrap_or(u32::MAX);
            (answer_last(a), &a.node).cmp(&(answer_last(b), &b.node))
        });
        all
    }
}

/// A step of a statement whose rows others read: each of these has one bucket of them.
#[derive(Clone, Debug)]
pub struct Shuffle {
    pub number: u32,
    pub fragment: Fragment,
    pub parts: Vec<Placed>,
    pub buckets: Buckets,
    /// The shuffles before it that its parts read, by their numbers.
    pub reads: Vec<u32>,
}

/// Parts that are to be computed.
#[derive(Clone, Debug)]
pub struct Asked {
    /// What is to be computed before, one after the other.
    pub shuffles: Vec<Shuffle>,
    pub fragment: Fragment,
    pub parts: Vec<Placed>,
    /// The shuffles that the parts read, by their numbers.
    pub reads: Vec<u32>,
    /// Are rows answered as they are read?
    pub is_raw: bool,
    /// When the statement's time is over.
    pub deadline: Option<Instant>,
    pub here: Arc<dyn PartRunner>,
    pub told: Arc<PartsTold>,
}

/// Everything that is asked, computed by one process as one part.
#[derive(Clone, Debug)]
struct AsOne(Arc<Asked>);

impl Shuffled for AsOne {
    fn rows(&self, shuffle: u32) -> PartRows {
        match self.0.shuffles.iter().find(|step| step.number == shuffle) {
            Some(Shuffle { fragment, parts, .. }) => self.run(fragment, parts),
            None => NothingShuffled.rows(shuffle),
        }
    }

    fn size(&self, _: u32) -> Option<(usize, usize)> {
        None
    }
}

impl AsOne {
    fn run(&self, fragment: &Fragment, parts: &[Placed]) -> PartRows {
        let Some(share) = parts.first().map(|part| part.share.of_all()) else {
            return stream::empty().boxed();
        };
        let (bytes, from) = (fragment.bytes.clone(), self.clone());
        let rows = async move {
            let (here, from) = (Arc::clone(&from.0.here), Arc::new(from) as Arc<dyn Shuffled>);
            here.run_part(&bytes, &share, &from).await.map_err(PartError::from)
        };
        stream::once(rows).try_flatten().boxed()
    }
}

impl Asked {
    /// The rows of all parts as one part in this process, where rows need no buckets.
    pub fn as_one(self) -> PartRows {
        let asked = Arc::new(self);
        AsOne(Arc::clone(&asked)).run(&asked.fragment, &asked.parts)
    }
}

/// Who computes parts.
pub trait Elsewhere: fmt::Debug + Send + Sync {
    /// Rows up to which a table is read by every part, if it is not divided itself.
    fn whole_rows(&self) -> u64;

    /// Those of another warehouse, by its name.
    fn of(&self, warehouse: &str) -> Arc<dyn Elsewhere>;

    /// Why a statement that reads so many rows, and so many bytes from a bucket, is not worth to be divided, whatever it
    /// asks; `None` if it may be.
    fn too_little(&self, rows: u64, remote_bytes: u64) -> Option<String>;

    /// The parts, or why there are none: it is not worth it, or nobody is there.
    fn divide(&self, wanted: &Wanted<'_>) -> Result<Vec<Placed>, Undivided>;

    /// The rows of all parts, in any order. Dropping the stream stops all of them.
    fn rows(&self, asked: Asked) -> PartRows;
}
