//! Where a term's rows are: one run, or a list in the heap.
//!
//! # Invariants
//! - Rows and lists are compared with the [`Bounds`] of their dictionary whenever they are used.
//!
//! # Not here
//! Uniting many of them: `union.rs`.

use std::ops::Range;

use crate::error::PostingsError;
use crate::portable::View;
use crate::run::Run;

/// Rows of a file that a dictionary can number: 2^31 - 1, so that a run fits a posting.
pub const MAX_FILE_ROWS: u32 = (1 << 31) - 1;

type Result<T> = std::result::Result<T, PostingsError>;

/// Where a term's rows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Posting {
    /// One run, right here.
    Run(Run),
    /// A list in the heap.
    List(List),
}

/// A list in the heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct List {
    pub(crate) kind: ListKind,
    /// In units of 4 bytes.
    pub(crate) place: u32,
    /// Runs, rows, or units of 4 bytes.
    pub(crate) count: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListKind {
    Runs = 1,
    Rows = 2,
    Roaring = 3,
}

impl List {
    /// The heap bytes of the list.
    #[must_use]
    pub fn heap_range(self) -> Range<u64> {
        let unit = if self.kind == ListKind::Runs { 8 } else { 4 };
        let start = u64::from(self.place) * 4;
        start..start + u64::from(self.count) * unit
    }

    /// Runs the list has at most; for Roaring, a guess from its bytes.
    pub(crate) fn runs_at_most(self) -> u64 {
        u64::from(self.count) * if self.kind == ListKind::Roaring { 2 } else { 1 }
    }
}

impl Posting {
    /// Rows of a run, bytes of a list: both grow with how common a term is.
    #[must_use]
    pub fn weight(&self) -> u64 {
        match self {
            Self::Run(run) => u64::from(run.len()),
            Self::List(list) => list.heap_range().end - list.heap_range().start,
        }
    }

    pub(crate) fn encode(self) -> u64 {
        let (kind, place, count) = match self {
            Self::Run(run) => (0, run.start, run.len()),
            Self::List(list) => (list.kind as u64, list.place, list.count),
        };
        kind | u64::from(count) << 2 | u64::from(place) << 33
    }

    #[inline]
    pub(crate) fn decode(posting: u64, file_rows: u32) -> Result<Self> {
        let place = (posting >> 33) as u32;
        let count = (posting >> 2) as u32 & MAX_FILE_ROWS;
        let kind = match posting & 3 {
            0 => {
                let run = Run::new(place, place + count);
                return if count > 0 && run.end <= file_rows {
                    Ok(Self::Run(run))
                } else {
                    Err(PostingsError::corrupt("a run is beyond the file", u64::from(place)))
                };
            }
            1 => ListKind::Runs,
            2 => ListKind::Rows,
            _ => ListKind::Roaring,
        };
        Ok(Self::List(List { kind, place, count }))
    }
}

/// The heap of a dictionary, or the parts of it that were fetched.
pub trait Heap {
    /// The bytes of `range`; `None` if they are not at hand.
    fn bytes(&self, range: Range<u64>) -> Option<&[u8]>;
}

impl Heap for [u8] {
    #[inline]
    fn bytes(&self, range: Range<u64>) -> Option<&[u8]> {
        self.get(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?)
    }
}

impl Heap for Vec<u8> {
    #[inline]
    fn bytes(&self, range: Range<u64>) -> Option<&[u8]> {
        self.as_slice().bytes(range)
    }
}

/// What the rows and lists of a dictionary must stay within.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) file_rows: u32,
    pub(crate) heap_bytes: u64,
}

impl Bounds {
    pub(crate) fn list_bytes(self, list: List, heap: &(impl Heap + ?Sized)) -> Result<&[u8]> {
        let Range { start, end } = list.heap_range();
        if end > self.heap_bytes {
            return Err(PostingsError::corrupt("a list is outside the heap", start));
        }
        heap.bytes(start..end).ok_or(PostingsError::NotFetched { start, end })
    }

    /// Calls `each` with the runs of a list, each checked to be in the file.
    pub(crate) fn for_each_run(
        self,
        list: List,
        bytes: &[u8],
        mut each: impl FnMut(Run),
    ) -> Result<()> {
        let mut sound = true;
        let mut check = |run: Run| {
            sound &= run.start < run.end && run.end <= self.file_rows;
            if sound {
                each(run);
            }
        };
        match list.kind {
            ListKind::Runs => {
                for &[a, b, c, d, e, f, g, h] in bytes.as_chunks().0 {
                    let (start, end) = ([a, b, c, d], [e, f, g, h]);
                    check(Run::new(u32::from_le_bytes(start), u32::from_le_bytes(end)));
                }
            }
            ListKind::Rows => {
                for &row in bytes.as_chunks().0 {
                    let row = u32::from_le_bytes(row);
                    check(Run::new(row, row.saturating_add(1)));
                }
            }
            ListKind::Roaring => View::parse(bytes)?.for_each_run(check)?,
        }
        if sound {
            return Ok(());
        }
        Err(PostingsError::corrupt("a row is beyond the file", list.place.into()))
    }
}
