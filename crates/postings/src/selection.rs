//! Rows of a file as runs or as a mask, whichever takes fewer bytes: what a query reads.
//!
//! # Invariants
//! - Runs are sorted and maximal.
//! - What this crate makes is a mask if and only if runs would take more bytes; a few runs are
//!   always runs. Whoever builds a [`Selection`] by hand may choose.
//!
//! # Not here
//! Sets that live long or go to a file: [`crate::RowSet`].

use std::iter::FusedIterator;

use crate::mask::Mask;
use crate::row_set::{FEW_RUNS, RowSet};
use crate::run::{self, Run};

/// Some rows of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// Sorted maximal runs.
    Runs(Vec<Run>),
    /// One bit per row of the file.
    Mask(Mask),
}

/// Runs (8 bytes each) that take no more than a mask of the file, or are a few.
pub(crate) fn most_runs(file_rows: u32) -> u64 {
    (u64::from(file_rows) / 64).max(FEW_RUNS as u64)
}

impl RowSet {
    /// The rows, all below `file_rows`, as runs or a mask, whichever takes fewer bytes.
    #[must_use]
    pub fn into_selection(self, file_rows: u32) -> Selection {
        let most = most_runs(file_rows) as usize;
        if self.runs().take(most + 1).count() > most {
            return Selection::Mask(self.to_mask(file_rows));
        }
        Selection::Runs(self.runs().collect())
    }
}

impl Mask {
    /// The rows as runs, if those take fewer bytes.
    #[must_use]
    pub fn into_selection(self) -> Selection {
        if self.has_more_runs_than(most_runs(self.file_rows())) {
            return Selection::Mask(self);
        }
        Selection::Runs(self.to_runs())
    }
}

impl Selection {
    /// Sorted maximal runs below `file_rows`, or the mask of them if that takes fewer bytes.
    #[must_use]
    pub fn from_runs(runs: Vec<Run>, file_rows: u32) -> Self {
        if runs.len() as u64 <= most_runs(file_rows) {
            return Self::Runs(runs);
        }
        let mut mask = Mask::new(file_rows);
        runs.into_iter().for_each(|run| mask.set_run(run));
        Self::Mask(mask)
    }

    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Runs(runs) => runs.is_empty(),
            Self::Mask(mask) => mask.words().iter().all(|&word| word == 0),
        }
    }

    /// Number of rows.
    #[must_use]
    pub fn cardinality(&self) -> u64 {
        match self {
            Self::Runs(runs) => run::rows(runs),
            Self::Mask(mask) => mask.cardinality(),
        }
    }

    /// Number of maximal runs.
    #[must_use]
    pub fn run_count(&self) -> usize {
        match self {
            Self::Runs(runs) => runs.len(),
            Self::Mask(mask) => mask.run_count() as usize,
        }
    }

    /// The rows as ascending maximal runs.
    #[must_use]
    pub fn runs(&self) -> SelectionRuns<'_> {
        SelectionRuns { selection: self, index: 0, from: 0 }
    }

    /// The rows as sorted maximal runs.
    #[must_use]
    pub fn into_runs(self) -> Vec<Run> {
        match self {
            Self::Runs(runs) => runs,
            Self::Mask(mask) => mask.to_runs(),
        }
    }

    /// The rows as a set.
    #[must_use]
    pub fn into_row_set(self) -> RowSet {
        match self {
            Self::Runs(runs) => RowSet::from_list(runs),
            Self::Mask(mask) => RowSet::from_mask(&mask),
        }
    }

    /// Rows in both, which are of one file of `file_rows`.
    ///
    /// Masks meet word by word, and runs blank what lies between them in a mask, so no row is
    /// touched on its own.
    ///
    /// # Examples
    /// ```
    /// use uplake_postings::{RowSet, Run, Selection};
    /// let odd: RowSet = (0..1000).filter(|row| row % 2 == 1).collect();
    /// let shop = Selection::Runs(vec![Run::new(10, 14), Run::new(90, 91)]);
    /// let both = shop.and(odd.into_selection(1000), 1000);
    /// assert_eq!(both, Selection::Runs(vec![Run::new(11, 12), Run::new(13, 14)]));
    /// ```
    #[must_use]
    pub fn and(self, other: Self, file_rows: u32) -> Self {
        match (self, other) {
            (Self::Runs(a), Self::Runs(b)) => Self::from_runs(run::and(&a, &b), file_rows),
            (Self::Mask(mut mask), Self::Mask(other)) => {
                mask.keep(&other);
                mask.into_selection()
            }
            (Self::Mask(mut mask), Self::Runs(runs)) | (Self::Runs(runs), Self::Mask(mut mask)) => {
                mask.keep_runs(&runs);
                mask.into_selection()
            }
        }
    }
}

/// Ascending maximal runs of a [`Selection`].
#[derive(Debug, Clone)]
pub struct SelectionRuns<'a> {
    selection: &'a Selection,
    /// The run to look at next.
    index: usize,
    /// Rows below are done.
    from: u32,
}

impl SelectionRuns<'_> {
    /// Leaves out all rows below `row`; a run that holds it starts there. Never goes back.
    pub fn skip_to(&mut self, row: u32) {
        self.from = self.from.max(row);
    }
}

impl Iterator for SelectionRuns<'_> {
    type Item = Run;

    #[inline]
    fn next(&mut self) -> Option<Run> {
        let run = match self.selection {
            Selection::Runs(runs) => {
                self.index = run::seek(runs, self.index, self.from);
                let run = *runs.get(self.index)?;
                self.index += 1;
                Run::new(run.start.max(self.from), run.end)
            }
            Selection::Mask(mask) => mask.next_run(self.from)?,
        };
        self.from = run.end;
        Some(run)
    }
}

impl FusedIterator for SelectionRuns<'_> {}
