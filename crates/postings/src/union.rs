//! The rows of many terms at once.
//!
//! Three routes, chosen by what they cost:
//!
//! - **ordinals**, for a clustered dictionary: its ordinals are in row order, so marking them in a
//!   bitmap and reading off the edges gives coalesced runs without sorting. A few ordinals are
//!   sorted instead.
//! - **sort**, for runs from here and there, and for those that lie in the hash table: a radix sort
//!   of packed runs.
//! - **mask**, for scattered rows: every row sets its bit.
//!
//! # Invariants
//! - The result is runs or a mask, whichever takes fewer bytes; a few runs are always runs.

use std::ops::Range;

use crate::dictionary::{Dictionary, Postings, TermId};
use crate::error::PostingsError;
use crate::list::{Bounds, Heap, List, ListKind, Posting};
use crate::mask::{self, Mask};
use crate::portable::View;
use crate::prefetch;
use crate::row_set::{FEW_RUNS, RowSet, pack, unpack};
use crate::run::{self, Run};
use crate::sort::{join_numbers, join_packed, sort_apart, sort_numbers, sort_packed};

/// Ordinals that take as long to sort as one word of a bitmap takes to clear and scan.
const ORDINALS_PER_WORD: usize = 3;
/// Rows of the file that take as long to clear and scan in a mask as one run takes to sort.
const ROWS_PER_RUN: u64 = 64;
/// Lists between asking for their bytes and reading them.
const AHEAD: usize = 4;

type Result<T> = std::result::Result<T, PostingsError>;

/// The rows of a union.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// Sorted maximal runs.
    Runs(Vec<Run>),
    /// One bit per row of the file.
    Mask(Mask),
}

impl RowSet {
    /// The rows, all below `file_rows`, as runs or a mask, whichever takes fewer bytes.
    #[must_use]
    pub fn into_selection(self, file_rows: u32) -> Selection {
        let most = (file_rows as usize / 64).max(FEW_RUNS);
        if self.runs().take(most + 1).count() > most {
            return Selection::Mask(self.to_mask(file_rows));
        }
        Selection::Runs(self.runs().collect())
    }
}

impl Selection {
    /// Number of rows.
    #[must_use]
    pub fn cardinality(&self) -> u64 {
        match self {
            Self::Runs(runs) => run::rows(runs),
            Self::Mask(mask) => mask.cardinality(),
        }
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
}

/// Working memory of unions, worth keeping from one to the next on the same thread.
#[derive(Debug, Default)]
pub struct Scratch {
    ordinals: Vec<u32>,
    /// All zero between unions.
    marks: Vec<u64>,
    edges: Vec<u32>,
    spare_numbers: Vec<u32>,
    runs: Vec<u64>,
    spare: Vec<u64>,
    lists: Vec<List>,
    found: usize,
}

impl Scratch {
    /// Terms that the last union was made of: those of its ids that there were.
    #[must_use]
    pub fn found_terms(&self) -> usize {
        self.found
    }
}

impl Dictionary<'_> {
    /// The rows that hold any of `ids`; ids that no row holds, and repeated ones, are welcome.
    ///
    /// # Errors
    /// [`PostingsError::WrongTerms`] if the dictionary holds byte strings,
    /// [`PostingsError::NotFetched`] if the heap lacks a list, and [`PostingsError::Corrupt`].
    pub fn union_integers(
        &self,
        ids: &[u64],
        heap: &(impl Heap + ?Sized),
        scratch: &mut Scratch,
    ) -> Result<Selection> {
        if let Postings::Inline(inline) = self.postings {
            self.inline_runs(inline, ids, &mut scratch.runs)?;
            scratch.found = scratch.runs.len();
            return self.union_inline(scratch);
        }
        let mut ordinals = std::mem::take(&mut scratch.ordinals);
        ordinals.clear();
        ordinals.reserve(ids.len());
        let found = self.lookup_integers(ids, |_, term| ordinals.push(term.0));
        scratch.ordinals = ordinals;
        found.and_then(|()| self.union_scratch(heap, scratch))
    }

    /// The rows that hold any of `terms`; see [`Dictionary::union_integers`].
    ///
    /// # Errors
    /// As [`Dictionary::union_integers`].
    pub fn union_bytes<T: AsRef<[u8]>>(
        &self,
        terms: &[T],
        heap: &(impl Heap + ?Sized),
        scratch: &mut Scratch,
    ) -> Result<Selection> {
        let mut ordinals = std::mem::take(&mut scratch.ordinals);
        ordinals.clear();
        let found = self.lookup_all_bytes(terms, |_, term| ordinals.push(term.0));
        scratch.ordinals = ordinals;
        found.and_then(|()| self.union_scratch(heap, scratch))
    }

    /// The rows of the terms at `positions` in term order.
    ///
    /// # Errors
    /// [`PostingsError::NotOrdered`], and as [`Dictionary::union_integers`].
    pub fn union_positions(
        &self,
        positions: Range<u32>,
        heap: &(impl Heap + ?Sized),
        scratch: &mut Scratch,
    ) -> Result<Selection> {
        scratch.ordinals.clear();
        for position in positions {
            scratch.ordinals.push(self.nth(position)?.0);
        }
        self.union_scratch(heap, scratch)
    }

    /// The rows of `terms`, in any order.
    ///
    /// # Errors
    /// As [`Dictionary::union_integers`].
    pub fn union_terms(
        &self,
        terms: &[TermId],
        heap: &(impl Heap + ?Sized),
        scratch: &mut Scratch,
    ) -> Result<Selection> {
        scratch.ordinals.clear();
        scratch.ordinals.extend(terms.iter().map(|term| term.0));
        self.union_scratch(heap, scratch)
    }

    /// The union of `scratch.ordinals`.
    fn union_scratch(
        &self,
        heap: &(impl Heap + ?Sized),
        scratch: &mut Scratch,
    ) -> Result<Selection> {
        scratch.found = scratch.ordinals.len();
        match self.postings {
            Postings::Clustered(starts) => {
                let runs = self.union_clustered(starts, scratch)?;
                Ok(self.bounds.smaller(runs))
            }
            Postings::Mixed(postings) => self.union_mixed(postings, heap, scratch),
            Postings::Inline(inline) => {
                let Scratch { ordinals, runs, .. } = scratch;
                runs.clear();
                for (at, &slot) in ordinals.iter().enumerate() {
                    if let Some(&next) = ordinals.get(at + 4 * AHEAD) {
                        inline.prefetch_slot(next);
                    }
                    let unknown = PostingsError::corrupt("no such ordinal", u64::from(slot));
                    runs.push(inline.run(slot).ok_or(unknown)?);
                }
                self.union_inline(scratch)
            }
        }
    }

    /// The union of `scratch.runs`.
    fn union_inline(&self, scratch: &mut Scratch) -> Result<Selection> {
        let Scratch { runs, spare, .. } = scratch;
        sort_apart(runs, spare, u32::BITS - self.bounds.file_rows.leading_zeros());
        let joined = join_packed(runs);
        match joined.last() {
            Some(last) if last.end > self.bounds.file_rows => {
                Err(PostingsError::corrupt("a run is beyond the file", last.end.into()))
            }
            _ => Ok(self.bounds.smaller(joined)),
        }
    }

    fn union_clustered(&self, starts: &[[u8; 4]], scratch: &mut Scratch) -> Result<Vec<Run>> {
        let Scratch { ordinals, marks, edges, spare_numbers, .. } = scratch;
        let words = (self.ordinals as usize).div_ceil(64);
        if ordinals.len() < words * ORDINALS_PER_WORD {
            sort_numbers(ordinals, spare_numbers, u32::BITS - self.ordinals.leading_zeros());
            join_numbers(ordinals, edges);
        } else {
            marks.resize(marks.len().max(words), 0);
            let marks = &mut marks[..words];
            // Look-ups have checked that ordinals are below `self.ordinals`; terms of another
            // dictionary have not been looked up here.
            for &ordinal in &*ordinals {
                if let Some(word) = marks.get_mut(ordinal as usize / 64) {
                    *word |= 1 << (ordinal % 64);
                }
            }
            mask::find_edges(marks, edges);
            marks.fill(0);
        }
        // An edge between ordinals is a row: where a run starts, and where the one before ends.
        // Loads that do not wait for each other, so their cache misses overlap.
        let row = |edge: u32| starts.get(edge as usize).map_or(0, |&row| u32::from_le_bytes(row));
        let mut runs = vec![Run::new(0, 0); edges.len() / 2];
        let (mut last, mut sound) = (0, true);
        for (run, &[start, end]) in runs.iter_mut().zip(edges.as_chunks::<2>().0) {
            *run = Run::new(row(start), row(end));
            sound &= (last <= run.start) & (run.start < run.end);
            // Runs that touch would have been one.
            last = run.end.saturating_add(1);
        }
        if !sound || runs.last().is_some_and(|run| run.end > self.bounds.file_rows) {
            return Err(PostingsError::corrupt("runs do not ascend", last.into()));
        }
        Ok(runs)
    }

    fn union_mixed(
        &self,
        postings: &[[u8; 8]],
        heap: &(impl Heap + ?Sized),
        scratch: &mut Scratch,
    ) -> Result<Selection> {
        let Scratch { ordinals, runs, lists, .. } = scratch;
        runs.clear();
        lists.clear();
        for (at, &ordinal) in ordinals.iter().enumerate() {
            if let Some(&next) = ordinals.get(at + 4 * AHEAD) {
                prefetch::line(postings, next as usize);
            }
            match self.posting(TermId(ordinal))? {
                Posting::Run(run) => runs.push(pack(run)),
                Posting::List(list) => lists.push(list),
            }
        }
        self.bounds.union_lists(scratch, heap)
    }
}

impl Bounds {
    /// Whether `runs` runs (8 bytes each) take no more than a mask of the file.
    fn runs_are_smaller(self, runs: u64) -> bool {
        runs <= FEW_RUNS as u64 || runs * 64 <= u64::from(self.file_rows)
    }

    /// Runs, or the mask of them if that is smaller.
    fn smaller(self, runs: Vec<Run>) -> Selection {
        if self.runs_are_smaller(runs.len() as u64) {
            return Selection::Runs(runs);
        }
        let mut mask = Mask::new(self.file_rows);
        runs.into_iter().for_each(|run| mask.set_run(run));
        Selection::Mask(mask)
    }

    /// The union of `postings`, in any order.
    pub(crate) fn union_postings(
        self,
        postings: &[Posting],
        heap: &(impl Heap + ?Sized),
        scratch: &mut Scratch,
    ) -> Result<Selection> {
        let Scratch { runs, lists, found, .. } = &mut *scratch;
        *found = postings.len();
        runs.clear();
        lists.clear();
        for posting in postings {
            match posting {
                Posting::Run(run) => runs.push(pack(*run)),
                Posting::List(list) => lists.push(*list),
            }
        }
        self.union_lists(scratch, heap)
    }

    /// The union of `scratch.runs` and `scratch.lists`.
    fn union_lists(self, scratch: &mut Scratch, heap: &(impl Heap + ?Sized)) -> Result<Selection> {
        let Scratch { runs, spare, lists, .. } = scratch;
        let items = lists.iter().map(|list| list.runs_at_most()).sum::<u64>() + runs.len() as u64;
        if items * ROWS_PER_RUN > u64::from(self.file_rows) {
            return self.union_in_mask(runs, lists, heap);
        }
        for &list in &*lists {
            let bytes = self.list_bytes(list, heap)?;
            self.for_each_run(list, bytes, |run| runs.push(pack(run)))?;
        }
        sort_packed(runs, spare, u32::BITS - self.file_rows.leading_zeros());
        Ok(self.smaller(join_packed(runs)))
    }

    fn union_in_mask(
        self,
        runs: &[u64],
        lists: &[List],
        heap: &(impl Heap + ?Sized),
    ) -> Result<Selection> {
        let mut mask = Mask::new(self.file_rows);
        runs.iter().for_each(|&run| mask.set_run(unpack(run)));
        for (at, &list) in lists.iter().enumerate() {
            if let Some(&next) = lists.get(at + AHEAD) {
                // All lines of a list of 100 rows; the processor follows longer ones by itself.
                let bytes = self.list_bytes(next, heap)?;
                (0..bytes.len().min(512)).step_by(64).for_each(|at| prefetch::line(bytes, at));
            }
            let bytes = self.list_bytes(list, heap)?;
            let beyond =
                PostingsError::corrupt("a row is beyond the file", list.heap_range().start);
            match list.kind {
                ListKind::Rows => {
                    let mut rows = bytes.as_chunks().0.iter().map(|&row| u32::from_le_bytes(row));
                    rows.all(|row| mask.set(row)).then_some(()).ok_or(beyond)?;
                }
                ListKind::Runs => self.for_each_run(list, bytes, |run| mask.set_run(run))?,
                ListKind::Roaring => View::parse(bytes)?.set_in(&mut mask)?,
            }
        }
        if self.runs_are_smaller(mask.run_count()) {
            return Ok(Selection::Runs(mask.to_runs()));
        }
        Ok(Selection::Mask(mask))
    }
}
