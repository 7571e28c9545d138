//! Rows of many groups in the order they came: time, and a bit per condition that holds.
//!
//! An entry per group would allocate millions of small vectors. Here rows are appended to blocks as they
//! come, and each block notes the runs of rows of one group: files are sorted by user, so that a user's
//! rows of a file come together. When groups are handed out, some at once so that their rows lie in the
//! second-level cache meanwhile, runs are put in order, not rows: by group, and in a group by the time of
//! their first row, because files are mostly of different days. Blocks are gone as soon as all of their
//! groups are.
//!
//! # Invariants
//! - The rows of a run are handed out in the order in which they came. Runs of one group that begin at the
//!   same time may change places.
//! - A row costs 8 bytes and its mask, a run 8 more; all blocks but the last are full, or were another
//!   log's last.

use std::mem::size_of;
use std::ops::Range;

use datafusion_expr::EmitTo;

/// Rows of a block.
const BLOCK_ROWS: usize = 1 << 13;
/// Rows that are copied at once.
const COPIED_TOGETHER: usize = 8;
/// Groups handed out at once: with a hundred rows of 9 bytes each they take 2 MiB.
const GROUPS_TOGETHER: usize = 1 << 11;

/// A bit per condition, as narrow as the conditions allow.
pub(crate) trait Mask: Copy + Default + Send + Sync + std::fmt::Debug + 'static {
    const BYTES: usize = size_of::<Self>();

    fn from_bits(bits: u32) -> Self;

    fn bits(self) -> u32;
}

impl Mask for u8 {
    fn from_bits(bits: u32) -> Self {
        bits as Self
    }

    fn bits(self) -> u32 {
        self.into()
    }
}

impl Mask for u32 {
    fn from_bits(bits: u32) -> Self {
        bits
    }

    fn bits(self) -> u32 {
        self
    }
}

/// Rows of a batch that are in one group, from the end of the run before to `end`.
#[derive(Debug, Clone, Copy)]
pub struct RowRun {
    pub end: usize,
    pub group: usize,
}

/// The runs of rows that are in these groups.
pub(crate) fn row_runs(groups: &[usize]) -> Vec<RowRun> {
    let mut runs: Vec<RowRun> = Vec::new();
    for (row, group) in groups.iter().enumerate() {
        match runs.last_mut() {
            Some(run) if run.group == *group => run.end = row + 1,
            _ => runs.push(RowRun { end: row + 1, group: *group }),
        }
    }
    runs
}

/// Rows of one group that came together: where they begin in their block, and how many.
#[derive(Debug, Clone, Copy)]
struct Run {
    group: u32,
    start: u16,
    rows: u16,
}

#[derive(Debug, Default)]
struct Block<M> {
    runs: Vec<Run>,
    times: Vec<i64>,
    masks: Vec<M>,
}

impl<M: Mask> Block<M> {
    /// Notes so many rows of a group, of which the first has the number `start`.
    fn note(&mut self, group: usize, start: usize, rows: usize) {
        let (group, start, rows) = (group as u32, start as u16, rows as u16);
        match self.runs.last_mut() {
            Some(run) if run.group == group && run.start + run.rows == start => run.rows += rows,
            _ => self.runs.push(Run { group, start, rows }),
        }
    }

    fn is_full(&self) -> bool {
        self.times.len() >= BLOCK_ROWS
    }
}

impl<M> Block<M> {
    fn size(&self) -> usize {
        self.times.capacity() * size_of::<i64>()
            + self.masks.capacity() * size_of::<M>()
            + self.runs.capacity() * size_of::<Run>()
    }
}

/// Rows of some groups, one after the other: those of the `n`th are `starts[n]..starts[n + 1]`. What lies
/// after them means nothing.
#[derive(Debug, Default)]
pub(crate) struct ByGroup<M> {
    pub starts: Vec<usize>,
    pub times: Vec<i64>,
    pub masks: Vec<M>,
    /// The runs of these groups in order, and where those of the `n`th begin.
    pieces: Vec<Piece>,
    of_group: Vec<usize>,
}

/// A run, wherever it is.
#[derive(Debug, Default, Clone, Copy)]
struct Piece {
    block: u32,
    start: u16,
    rows: u16,
    /// Of its first row.
    time: i64,
}

impl<M: Mask> ByGroup<M> {
    /// Takes the rows of `groups`, before which there are no others. Writing one group after the other is
    /// faster than reading one block after the other.
    fn fill(&mut self, groups: Range<usize>, blocks: &mut [Leaving<M>]) {
        self.find_pieces(&groups, blocks);
        let rows: usize = self.pieces.iter().map(|piece| usize::from(piece.rows)).sum();
        if self.times.len() < rows + COPIED_TOGETHER {
            self.times.resize(rows + COPIED_TOGETHER, 0);
            self.masks.resize(rows + COPIED_TOGETHER, M::default());
        }
        self.starts.clear();
        let mut at = 0;
        for bounds in self.of_group.windows(2) {
            self.starts.push(at);
            let pieces = &mut self.pieces[bounds[0]..bounds[1]];
            if !pieces.is_sorted_by_key(|piece| piece.time) {
                pieces.sort_by_key(|piece| piece.time);
            }
            for piece in pieces {
                let block = &blocks[piece.block as usize].block;
                let (start, rows) = (usize::from(piece.start), usize::from(piece.rows));
                copy_rows(&block.times[start..], &mut self.times[at..], rows);
                copy_rows(&block.masks[start..], &mut self.masks[at..], rows);
                at += rows;
            }
        }
        self.starts.push(at);
        for leaving in blocks {
            leaving.leave(groups.end);
        }
    }

    fn find_pieces(&mut self, groups: &Range<usize>, blocks: &[Leaving<M>]) {
        // By counting: ends, which move to the starts as runs are put in from the last to the first.
        self.of_group.clear();
        self.of_group.resize(groups.len() + 1, 0);
        let place = |run: &Run| run.group as usize - groups.start;
        for run in blocks.iter().flat_map(|leaving| leaving.before(groups.end)) {
            self.of_group[place(run)] += 1;
        }
        let mut count = 0;
        for end in &mut self.of_group {
            count += *end;
            *end = count;
        }
        self.pieces.clear();
        self.pieces.resize(count, Piece::default());
        for (block, leaving) in blocks.iter().enumerate().rev() {
            for run in leaving.before(groups.end).iter().rev() {
                let Run { start, rows, .. } = *run;
                let time = leaving.block.times[usize::from(start)];
                let at = &mut self.of_group[place(run)];
                *at -= 1;
                self.pieces[*at] = Piece { block: block as u32, start, rows, time };
            }
        }
    }
}

/// Copies the first rows. Runs are short: some rows at once, and a few too many where there is room, is
/// faster than a call that copies so many.
fn copy_rows<T: Copy>(from: &[T], to: &mut [T], rows: usize) {
    for at in (0..rows).step_by(COPIED_TOGETHER) {
        let (from, to) = (&from[at..], &mut to[at..]);
        match (from.first_chunk::<COPIED_TOGETHER>(), to.first_chunk_mut::<COPIED_TOGETHER>()) {
            (Some(from), Some(to)) => *to = *from,
            _ => to.iter_mut().zip(from).take(rows - at).for_each(|(to, from)| *to = *from),
        }
    }
}

/// A block whose groups are handed out.
struct Leaving<M> {
    block: Block<M>,
    /// Runs that are handed out.
    gone: usize,
}

impl<M: Mask> Leaving<M> {
    /// Groups from `emitted` on stay.
    fn new(mut block: Block<M>, emitted: usize) -> Self {
        let together = |run: &Run| match run.group as usize {
            group if group < emitted => group / GROUPS_TOGETHER,
            _ => usize::MAX,
        };
        block.runs.sort_by_key(together);
        Self { block, gone: 0 }
    }

    /// The next runs, of groups before `end`.
    fn before(&self, end: usize) -> &[Run] {
        let runs = &self.block.runs[self.gone..];
        let count = runs.iter().take_while(|run| (run.group as usize) < end).count();
        &runs[..count]
    }

    /// Those have been handed out.
    fn leave(&mut self, end: usize) {
        self.gone += self.before(end).len();
        if self.gone == self.block.runs.len() {
            *self = Self { block: Block::default(), gone: 0 };
        }
    }

    /// What is left, if anything, after so many groups.
    fn rest(mut self, groups: usize) -> Option<Block<M>> {
        self.block.runs.drain(..self.gone);
        self.block.runs.iter_mut().for_each(|run| run.group -= groups as u32);
        (!self.block.runs.is_empty()).then_some(self.block)
    }
}

/// The log.
#[derive(Debug, Default)]
pub(crate) struct EventLog<M> {
    blocks: Vec<Block<M>>,
    /// Bytes of all blocks but the last.
    bytes_before: usize,
}

impl<M: Mask> EventLog<M> {
    /// Adds rows in the groups of `runs`.
    pub fn extend(&mut self, runs: &[RowRun], times: &[i64], masks: &[M]) {
        let (mut from, mut runs) = (0, runs.iter().peekable());
        while from < times.len() {
            if self.blocks.last().is_none_or(Block::is_full) {
                // The first block grows from nothing: most plans with few groups stay small.
                let rows = if self.blocks.is_empty() { 0 } else { BLOCK_ROWS };
                let (times, masks) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
                self.add_block(Block { runs: Vec::new(), times, masks });
            }
            let Some(block) = self.blocks.last_mut() else { return };
            let before = block.times.len();
            let to = times.len().min(from + BLOCK_ROWS - before);
            block.times.extend_from_slice(&times[from..to]);
            block.masks.extend_from_slice(&masks[from..to]);
            let mut at = from;
            while let Some(run) = runs.peek().copied().filter(|_| at < to) {
                let end = run.end.min(to);
                block.note(run.group, before + at - from, end - at);
                at = end;
                runs.next_if(|run| run.end == end);
            }
            from = to;
        }
    }

    fn add_block(&mut self, block: Block<M>) {
        self.bytes_before += self.blocks.last().map_or(0, Block::size);
        self.blocks.push(block);
    }

    /// Puts other masks in the place of all there are.
    pub fn change_masks(&mut self, change: impl Fn(M) -> M) {
        let masks = self.blocks.iter_mut().flat_map(|block| &mut block.masks);
        masks.for_each(|mask| *mask = change(*mask));
    }

    /// Adds another log, whose group `g` is `groups[g]` here.
    pub fn absorb(&mut self, other: Self, groups: &[usize]) {
        for mut block in other.blocks {
            for run in &mut block.runs {
                run.group = groups[run.group as usize] as u32;
            }
            self.add_block(block);
        }
    }

    /// Takes the rows of the groups to be emitted and calls `see` with some groups after the others;
    /// groups after those move down. `groups`: how many there are. Returns how many were emitted.
    pub fn take(
        &mut self,
        emit_to: EmitTo,
        groups: usize,
        mut see: impl FnMut(&mut ByGroup<M>),
    ) -> usize {
        let emitted = match emit_to {
            EmitTo::All => groups,
            EmitTo::First(first) => first,
        };
        let blocks = std::mem::take(self).blocks;
        let leaving = blocks.into_iter().map(|block| Leaving::new(block, emitted));
        let mut leaving: Vec<Leaving<M>> = leaving.collect();
        // Of sorted files this is the order of time for nearly all groups.
        leaving.sort_by_key(|leaving| leaving.block.times.first().copied());
        let mut out = ByGroup::default();
        for first in (0..emitted).step_by(GROUPS_TOGETHER) {
            out.fill(first..emitted.min(first + GROUPS_TOGETHER), &mut leaving);
            see(&mut out);
        }
        let left = leaving.into_iter().filter_map(|leaving| leaving.rest(emitted));
        left.for_each(|block| self.add_block(block));
        emitted
    }

    pub fn rows(&self) -> usize {
        self.blocks.iter().map(|block| block.times.len()).sum()
    }

    /// Bytes held.
    pub fn size(&self) -> usize {
        self.bytes_before + self.blocks.last().map_or(0, Block::size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn groups_come_out_whole_and_in_order_however_they_are_emitted() {
        for seed in 0..60 {
            let mut random = Random::new(seed);
            let groups = 1 + random.below(if seed % 5 == 0 { 20_000 } else { 40 }) as usize;
            let rows = if seed == 0 { 200_000 } else { random.below(500) };
            // In order, or any.
            let in_order = seed % 2 == 0;
            let mut log = EventLog::<u8>::default();
            let mut model = vec![Vec::new(); groups];
            let mut other = EventLog::<u8>::default();
            for _ in 0..random.below(500) {
                let group = random.below(groups as u64) as usize;
                // Another log's groups come from the last to the first.
                other.extend(&row_runs(&[groups - 1 - group]), &[-1], &[7]);
                model[group].push((-1, 7));
            }
            log.absorb(other, &(0..groups).rev().collect::<Vec<_>>());
            let mut added = 0;
            while added < rows {
                let group = random.below(groups as u64) as usize;
                let run = if random.below(3) == 0 { random.below(200) } else { 1 };
                let first = if in_order { added } else { random.below(500) };
                let times: Vec<i64> = (first..first + run).map(|time| time as i64).collect();
                let masks: Vec<u8> = (first..first + run).map(|time| (time % 200) as u8).collect();
                log.extend(&row_runs(&vec![group; times.len()]), &times, &masks);
                model[group].extend(times.into_iter().zip(masks));
                added += run;
            }
            let mut found = Vec::new();
            let mut left = groups;
            while left > 0 {
                let first = 1 + random.below(left as u64) as usize;
                let emit = if first == left { EmitTo::All } else { EmitTo::First(first) };
                // What comes after some were handed out is beside what was there.
                let group = random.below(left as u64) as usize;
                if !in_order && group >= first {
                    log.extend(&row_runs(&[group, group]), &[3, 1], &[5, 6]);
                    model[groups - left + group].extend([(3, 5), (1, 6)]);
                }
                left -= log.take(emit, left, |out| {
                    for pair in out.starts.windows(2) {
                        let rows = pair[0]..pair[1];
                        let times = out.times[rows.clone()].iter().copied();
                        found.push(times.zip(out.masks[rows].iter().copied()).collect::<Vec<_>>());
                    }
                });
            }
            if !in_order {
                found.iter_mut().chain(&mut model).for_each(|rows| rows.sort_unstable());
            }
            assert!(found == model, "seed {seed}");
            assert_eq!(log.size(), 0, "seed {seed}");
        }
    }
}
