//! The groups of one thread, by parts, and how those of all threads become one.
//!
//! # Invariants
//! - What groups hold is taken from the memory pool before they grow by another [`MEMORY_STEP`].

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int32Array, RecordBatch};
use datafusion::arrow::compute::{filter, filter_record_batch, take};
use datafusion::arrow::datatypes::{Int32Type, UInt32Type};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_plan::metrics::BaselineMetrics;
use futures::StreamExt;
use futures::future::{BoxFuture, Shared};

use crate::base::refusal::Unfit;
use crate::operators::array_aggregate::aggregate::{ArrayAggregate, Group};
use crate::operators::array_aggregate::group_join::{GroupJoinBuild, NO_MATCH_GROUP, Seen};
use crate::operators::array_aggregate::keys::{Keys, NO_MATCH};
use crate::operators::array_aggregate::rows::RowGroups;
use crate::operators::array_aggregate::sums::{Held, Slot, SumPlan};

/// Ids of which all groups are in one part: a file's batch has a tenth of them.
const IDS_TOGETHER: u32 = 1 << 14;
/// Batches in more pieces than this are not sorted by ids, and are taken apart by copying.
const PIECES_MAX: usize = 8;
/// Bytes by which a thread's groups grow before it asks for more.
const MEMORY_STEP: usize = 1 << 20;

/// The other side of a lookup, once it is read.
pub(super) type BuildRead =
    Shared<BoxFuture<'static, Result<Arc<GroupJoinBuild>, Arc<DataFusionError>>>>;

/// What a thread has seen.
pub(super) struct Parts {
    pub(super) parts: Vec<Groups>,
    /// Of the other side of an outer join, unless its rows are the groups.
    pub(super) seen: Seen,
}

impl Parts {
    pub(super) async fn take_all(
        mut self,
        side: Option<BuildRead>,
        mut input: SendableRecordBatchStream,
        baseline: BaselineMetrics,
    ) -> Result<Self> {
        let side = match side {
            Some(side) => Some(side.await.map_err(DataFusionError::Shared)?),
            None => None,
        };
        if let Some(side) = &side {
            let share = side.len().div_ceil(self.parts.len().max(1));
            for (part, groups) in self.parts.iter_mut().enumerate() {
                let end = |part: usize| (part * share).min(side.len());
                groups.look_up_in(Arc::clone(side), end(part)..end(part + 1));
            }
        }
        let mut rows = RowGroups::default();
        while let Some(batch) = input.next().await {
            let _timer = baseline.elapsed_compute().timer();
            let batch = batch?;
            match &side {
                Some(side) => {
                    let joined = side.join(&batch)?;
                    if side.is_outer() && !side.is_by_key() {
                        self.seen.add(&joined.partners);
                    }
                    self.add(&joined.batch, Some(&joined.partners), &mut rows)?;
                }
                None => self.add(&batch, None, &mut rows)?,
            }
        }
        Ok(self)
    }

    /// Adds rows to the parts that their groups are in.
    pub(super) fn add(
        &mut self,
        batch: &RecordBatch,
        partners: Option<&[u32]>,
        rows: &mut RowGroups,
    ) -> Result<()> {
        let count = self.parts.len();
        let Some(first) = self.parts.first_mut() else { return Ok(()) };
        if count == 1 || batch.num_rows() == 0 {
            return first.add(batch, partners, rows);
        }
        let columns = first.columns(batch, partners)?;
        let pieces = match columns[0].as_primitive_opt::<Int32Type>() {
            Some(ids) => pieces_of_ids(ids, count),
            None => {
                let share = first.partners.len().max(1);
                pieces_of_partners(columns[0].as_primitive::<UInt32Type>().values(), share, count)
            }
        };
        if pieces.len() <= PIECES_MAX {
            for (part, range) in pieces {
                let piece = batch.slice(range.start, range.len());
                let partners = partners.map(|partners| &partners[range.clone()]);
                self.parts[part].add(&piece, partners, rows)?;
            }
            return Ok(());
        }
        for (part, groups) in self.parts.iter_mut().enumerate() {
            let here = || pieces.iter().filter(|(of_piece, _)| *of_piece == part);
            let numbers = || here().flat_map(|(_, range)| range.clone());
            let mut mask = vec![false; batch.num_rows()];
            here().for_each(|(_, range)| mask[range.clone()].fill(true));
            let piece = filter_record_batch(batch, &BooleanArray::from(mask))?;
            let partners: Option<Vec<u32>> =
                partners.map(|partners| numbers().map(|row| partners[row]).collect());
            groups.add(&piece, partners.as_deref(), rows)?;
        }
        Ok(())
    }
}

/// Ranges of rows that are in one part. Rows without an id are in the first.
fn pieces_of_ids(ids: &Int32Array, parts: usize) -> Vec<(usize, Range<usize>)> {
    let (values, nulls) = (ids.values(), ids.nulls());
    let of_id = |row: usize| values[row] as u32 / IDS_TOGETHER;
    let Some(nulls) = nulls else {
        return pieces_of(values.len(), of_id, |ids| ids as usize % parts);
    };
    let together = |row: usize| nulls.is_valid(row).then(|| of_id(row));
    pieces_of(values.len(), together, |ids| ids.map_or(0, |ids| ids as usize % parts))
}

/// The same of rows of the other side, of which `share` are together. Those without a partner are where
/// the row before them is: every part has a group that is not handed out.
fn pieces_of_partners(partners: &[u32], share: usize, parts: usize) -> Vec<(usize, Range<usize>)> {
    // Mostly all are in one part. After NONE comes 0.
    let bounds = |(least, after): (u32, u32), partner: &u32| {
        (least.min(*partner), after.max(partner.wrapping_add(1)))
    };
    let (least, after) = partners.iter().fold((NO_MATCH, 0), bounds);
    let part_of = |partner: u32| (partner as usize / share).min(parts - 1);
    if after == 0 || part_of(least) == part_of(after - 1) {
        let part = if after == 0 { 0 } else { part_of(least) };
        return vec![(part, 0..partners.len())];
    }
    let mut last = 0..0;
    let mut part = 0;
    let together = |row: usize| {
        let partner = partners[row];
        if partner != NO_MATCH && !last.contains(&(partner as usize)) {
            part = part_of(partner);
            last = part * share..(part + 1) * share;
        }
        part
    };
    pieces_of(partners.len(), together, |part| part)
}

/// Ranges of rows that are in one part: all that are `together` are.
fn pieces_of<T: PartialEq + Copy>(
    rows: usize,
    mut together: impl FnMut(usize) -> T,
    part_of: impl Fn(T) -> usize,
) -> Vec<(usize, Range<usize>)> {
    let mut pieces: Vec<(usize, Range<usize>)> = Vec::new();
    let mut before = None;
    for row in 0..rows {
        let here = together(row);
        if before == Some(here) {
            continue;
        }
        before = Some(here);
        let part = part_of(here);
        match pieces.last_mut() {
            None => pieces.push((part, 0..rows)),
            Some((same, _)) if *same == part => {}
            Some((_, range)) => {
                range.end = row;
                pieces.push((part, row..rows));
            }
        }
    }
    pieces
}

/// The groups of the rows that one thread, or several, have seen.
pub(super) struct Groups {
    pub(super) what: ArrayAggregate,
    keys: Keys,
    pub(super) slots: Vec<Slot>,
    /// Of each group.
    pub(super) rows: Vec<i64>,
    pub(super) side: Option<Arc<GroupJoinBuild>>,
    /// Rows of the other side whose groups are here.
    partners: Range<usize>,
    pub(super) memory: MemoryReservation,
}

impl Groups {
    pub(super) fn new(what: ArrayAggregate, memory: MemoryReservation) -> Result<Self> {
        let slots = SumPlan::start_all(&what.sums)?;
        let keys = what.keys();
        Ok(Self { what, keys, slots, rows: Vec::new(), side: None, partners: 0..0, memory })
    }

    fn look_up_in(&mut self, side: Arc<GroupJoinBuild>, partners: Range<usize>) {
        if side.is_by_key() {
            self.keys = side.keys(partners.clone());
            self.slots.iter_mut().for_each(Slot::expect_empty_groups);
        }
        self.partners = partners;
        self.side = Some(side);
    }

    /// What rows are grouped by.
    pub(super) fn columns(
        &self,
        batch: &RecordBatch,
        partners: Option<&[u32]>,
    ) -> Result<Vec<ArrayRef>> {
        let of_rows = self.what.columns.iter().filter_map(Group::expression);
        let of_rows = of_rows.map(|column| column.evaluate(batch)?.into_array(batch.num_rows()));
        let mut columns = of_rows.collect::<Result<Vec<_>>>()?;
        if let (Some(side), Some(partners)) = (&self.side, partners) {
            columns.push(side.groups(partners));
        }
        Ok(columns)
    }

    /// Adds rows; joined ones with their `partners`.
    pub(super) fn add(
        &mut self,
        batch: &RecordBatch,
        partners: Option<&[u32]>,
        rows: &mut RowGroups,
    ) -> Result<()> {
        let columns = self.columns(batch, partners)?;
        rows.find(&mut self.keys, &columns)?;
        if self.keys.is_too_long() {
            return Err(Unfit::TooManyGroups.into());
        }
        let count = self.keys.len();
        self.rows.resize(count, 0);
        rows.add_to_each(&mut self.rows, 1);
        let mut held = Held::default();
        for slot in &mut self.slots {
            slot.add(batch, rows, &mut held, count)?;
        }
        self.account()
    }

    fn account(&mut self) -> Result<()> {
        let slots: usize = self.slots.iter().map(Slot::size).sum();
        let bytes = self.keys.size() + slots + self.rows.capacity() * size_of::<i64>();
        let held = self.memory.size();
        if bytes > held || bytes + 2 * MEMORY_STEP < held {
            self.memory.try_resize(bytes.next_multiple_of(MEMORY_STEP))?;
        }
        Ok(())
    }

    pub(super) fn merge(&mut self, other: Self) -> Result<()> {
        if other.rows.is_empty() {
            return Ok(());
        }
        let mut groups = Vec::new();
        self.keys.merge(&other.keys, &mut groups)?;
        let count = self.keys.len();
        self.rows.resize(count, 0);
        other.rows.iter().zip(&groups).for_each(|(more, group)| self.rows[*group] += more);
        for (slot, more) in self.slots.iter_mut().zip(other.slots) {
            slot.merge(more, &groups, count)?;
        }
        self.account()
    }

    /// The groups of all threads. `seen`: rows of a lookup's other side that have had a partner, if they
    /// are not the groups.
    pub(super) fn whole(
        mut of_threads: Vec<Self>,
        seen: &Seen,
        batch_rows: usize,
    ) -> Result<RecordBatch> {
        // The largest takes in the others.
        of_threads.sort_by_key(|groups| groups.keys.len());
        let nothing = || DataFusionError::Internal("an aggregate has no threads".into());
        let mut whole = of_threads.pop().ok_or_else(nothing)?;
        for other in of_threads {
            whole.merge(other)?;
        }
        if let Some(side) = whole.side.clone().filter(|side| side.is_outer()) {
            let mut rows = RowGroups::default();
            let Range { start, end } = whole.partners;
            for from in (start..end).step_by(batch_rows.max(1)) {
                let rows_of = &whole.rows;
                let is_seen = |row: usize| match side.is_by_key() {
                    true => rows_of.get(row - start).is_some_and(|rows| *rows > 0),
                    false => seen.has(row),
                };
                let unseen = side.unseen(from..(from + batch_rows).min(end), is_seen)?;
                if let Some(joined) = unseen {
                    whole.add(&joined.batch, Some(&joined.partners), &mut rows)?;
                }
            }
        }
        whole.finish()
    }

    pub(super) fn finish(self) -> Result<RecordBatch> {
        let mut values = self.keys.values()?;
        let (mut joined, mut rows) = (None, self.rows.as_slice());
        if let Some(side) = &self.side {
            if side.is_by_key() {
                // The last group is that of rows without a partner; there are none if no row came.
                rows = rows.get(..self.partners.len()).unwrap_or_default();
            } else {
                joined = values.pop().map(|of_side| (Arc::clone(side), of_side));
            }
        }
        let mut values = values.into_iter();
        let mut columns = Vec::with_capacity(self.what.schema.fields().len());
        for column in &self.what.columns {
            let from_rows = || DataFusionError::Internal("a group has too few columns".into());
            columns.push(match (column, &joined) {
                (Group::BuildSide(column), Some((side, of_side))) => {
                    side.values(*column, of_side)?
                }
                _ => values.next().ok_or_else(from_rows)?,
            });
        }
        let sums: Vec<_> = self.slots.iter().map(|slot| slot.sums_of_other(&self.slots)).collect();
        for (slot, sums) in self.slots.into_iter().zip(sums) {
            let of_key = |place: usize| match &self.side {
                Some(side) => Ok(side.of_key(place, self.partners.clone())),
                None => Err(DataFusionError::Internal("a group has no other side".into())),
            };
            columns.push(slot.finish(&self.rows, sums, of_key)?);
        }
        let kept: Option<BooleanArray> = match (self.side, joined) {
            (Some(_), None) => {
                columns.iter_mut().for_each(|column| *column = column.slice(0, rows.len()));
                rows.contains(&0).then(|| rows.iter().map(|rows| Some(*rows > 0)).collect())
            }
            (_, Some((_, of_side))) => {
                let of_side = of_side.as_primitive::<UInt32Type>().values();
                Some(of_side.iter().map(|group| Some(*group != NO_MATCH_GROUP)).collect())
            }
            (None, None) => None,
        };
        if let Some(kept) = kept {
            columns = columns.iter().map(|c| filter(c, &kept)).collect::<Result<_, _>>()?;
        }
        if let Some(order) = self.keys.in_order() {
            columns = columns.iter().map(|c| take(c, &order, None)).collect::<Result<_, _>>()?;
        }
        Ok(RecordBatch::try_new(self.what.schema, columns)?)
    }
}
