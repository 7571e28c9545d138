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
use crate::run::Run;
use crate::run::{pack, unpack};
use crate::selection::Selection;
use crate::sort::{join_numbers, join_packed, sort_apart, sort_numbers, sort_packed};

/// Ordinals that take as long to sort as one word of a bitmap takes to clear and scan.
const ORDINALS_PER_WORD: usize = 3;
/// Rows of the file that take as long to clear and scan in a mask as one run takes to sort.
const ROWS_PER_RUN: u64 = 64;
/// The same for a run that is only looked up in other lists, and not sorted.
const ROWS_PER_MASKED_RUN: u64 = 256;
/// Lists between asking for their bytes and reading them.
const AHEAD: usize = 4;

type Result<T> = std::result::Result<T, PostingsError>;

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

    /// Puts `postings` into `runs` and `lists`.
    fn take(&mut self, postings: &[Posting]) {
        self.found = postings.len();
        self.runs.clear();
        self.lists.clear();
        for posting in postings {
            match posting {
                Posting::Run(run) => self.runs.push(pack(*run)),
                Posting::List(list) => self.lists.push(*list),
            }
        }
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
                Ok(Selection::from_runs(runs, self.bounds.file_rows))
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
            _ => Ok(Selection::from_runs(joined, self.bounds.file_rows)),
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
    /// The union of `postings`, in any order.
    pub(crate) fn union_postings(
        self,
        postings: &[Posting],
        heap: &(impl Heap + ?Sized),
        scratch: &mut Scratch,
    ) -> Result<Selection> {
        scratch.take(postings);
        self.union_lists(scratch, heap)
    }

    /// The rows that every one of `groups` has a posting of: the intersection of their unions.
    ///
    /// The lightest group goes first. If it is large, rows are a mask that the others thin out
    /// where it lies; a single Roaring list does so container by container, without being united
    /// with anything. If it is small, rows are runs, which are looked up in the others.
    pub(crate) fn intersect(
        self,
        groups: &[Vec<Posting>],
        heap: &(impl Heap + ?Sized),
        scratch: &mut Scratch,
    ) -> Result<Selection> {
        let mut groups: Vec<&[Posting]> = groups.iter().map(Vec::as_slice).collect();
        groups.sort_by_key(|group| group.iter().map(Posting::weight).sum::<u64>());
        let Some((first, others)) = groups.split_first() else {
            return Ok(Selection::Runs(Vec::new()));
        };
        let items = first.iter().map(|posting| match posting {
            Posting::Run(_) => 1,
            Posting::List(list) => list.runs_at_most(),
        });
        let in_mask = !others.is_empty()
            && items.sum::<u64>() * ROWS_PER_MASKED_RUN > u64::from(self.file_rows);
        let mut common = if in_mask {
            scratch.take(first);
            Selection::Mask(self.union_in_mask(&scratch.runs, &scratch.lists, heap)?)
        } else {
            self.union_postings(first, heap, scratch)?
        };
        for group in others {
            match (&mut common, group) {
                (Selection::Mask(mask), [Posting::List(list)])
                    if list.kind == ListKind::Roaring =>
                {
                    View::parse(self.list_bytes(*list, heap)?)?.keep_in(mask)?;
                }
                (Selection::Runs(runs), [Posting::List(list)])
                    if list.kind == ListKind::Roaring =>
                {
                    *runs = View::parse(self.list_bytes(*list, heap)?)?.and_runs(runs)?;
                }
                (Selection::Mask(mask), group) => {
                    match self.union_postings(group, heap, scratch)? {
                        Selection::Runs(runs) => mask.keep_runs(&runs),
                        Selection::Mask(other) => mask.keep(&other),
                    }
                }
                (Selection::Runs(_), group) => {
                    let rows = self.union_postings(group, heap, scratch)?;
                    common = common.and(rows, self.file_rows);
                }
            }
            if matches!(&common, Selection::Runs(runs) if runs.is_empty()) {
                break;
            }
        }
        Ok(match common {
            Selection::Runs(runs) => Selection::from_runs(runs, self.file_rows),
            Selection::Mask(mask) => mask.into_selection(),
        })
    }

    /// The union of `scratch.runs` and `scratch.lists`.
    fn union_lists(self, scratch: &mut Scratch, heap: &(impl Heap + ?Sized)) -> Result<Selection> {
        let Scratch { runs, spare, lists, .. } = scratch;
        let items = lists.iter().map(|list| list.runs_at_most()).sum::<u64>() + runs.len() as u64;
        if items * ROWS_PER_RUN > u64::from(self.file_rows) {
            return Ok(self.union_in_mask(runs, lists, heap)?.into_selection());
        }
        for &list in &*lists {
            let bytes = self.list_bytes(list, heap)?;
            self.for_each_run(list, bytes, |run| runs.push(pack(run)))?;
        }
        sort_packed(runs, spare, u32::BITS - self.file_rows.leading_zeros());
        Ok(Selection::from_runs(join_packed(runs), self.file_rows))
    }

    fn union_in_mask(
        self,
        runs: &[u64],
        lists: &[List],
        heap: &(impl Heap + ?Sized),
    ) -> Result<Mask> {
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
        Ok(mask)
    }
}
