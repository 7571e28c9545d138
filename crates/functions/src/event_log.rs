//! Rows of many groups in the order they came: time, and a bit per condition that holds.
//!
//! An entry per group would allocate millions of small vectors. Here rows are appended to blocks,
//! each of some thousand groups, and sorted by group once, by counting, when groups are handed out: the
//! rows of so many groups lie in the second-level cache meanwhile, and their blocks are gone before
//! those of the next. Rows of one group mostly come together, because files are sorted by user: the
//! group is written once for a run of them.
//!
//! # Invariants
//! - What is handed out of a group is in the order in which it was added.
//! - A row costs 8 bytes and its mask, a run 8 more; blocks of the same groups are full but the last.

use std::mem::size_of;
use std::ops::Range;

use datafusion_expr::EmitTo;

/// Rows of a block.
const BLOCK_ROWS: usize = 1 << 13;
/// Groups that share blocks: with a hundred rows of 9 bytes each they take 4 MiB.
const GROUPS_TOGETHER: usize = 1 << 12;

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

/// Rows of one group that came together.
#[derive(Debug, Clone, Copy)]
struct Run {
    group: u32,
    rows: u32,
}

#[derive(Debug, Default)]
struct Block<M> {
    runs: Vec<Run>,
    times: Vec<i64>,
    masks: Vec<M>,
}

impl<M: Mask> Block<M> {
    fn push(&mut self, group: u32, time: i64, mask: M) {
        match self.runs.last_mut() {
            Some(run) if run.group == group => run.rows += 1,
            _ => self.runs.push(Run { group, rows: 1 }),
        }
        self.times.push(time);
        self.masks.push(mask);
    }
}

impl<M> Block<M> {
    fn size(&self) -> usize {
        self.times.capacity() * size_of::<i64>()
            + self.masks.capacity() * size_of::<M>()
            + self.runs.capacity() * size_of::<Run>()
    }
}

/// Rows of some groups, one after the other: those of the `n`th are `starts[n]..starts[n + 1]`.
#[derive(Debug, Default)]
pub(crate) struct ByGroup<M> {
    pub starts: Vec<usize>,
    pub times: Vec<i64>,
    pub masks: Vec<M>,
}

impl<M: Mask> ByGroup<M> {
    /// Takes the rows of `groups`; others are given to `other`.
    fn fill(
        &mut self,
        groups: Range<usize>,
        blocks: &[Block<M>],
        mut other: impl FnMut(u32, &[i64], &[M]),
    ) {
        self.starts.clear();
        self.starts.resize(groups.len() + 1, 0);
        let place = |group: u32| (group as usize).wrapping_sub(groups.start);
        for run in blocks.iter().flat_map(|block| &block.runs) {
            if let Some(count) = self.starts.get_mut(place(run.group) + 1) {
                *count += run.rows as usize;
            }
        }
        for group in 0..groups.len() {
            self.starts[group + 1] += self.starts[group];
        }
        let rows = self.starts[groups.len()];
        self.times.clear();
        self.times.resize(rows, 0);
        self.masks.clear();
        self.masks.resize(rows, M::default());
        // The starts move to the ends as rows are put in, and back again.
        let next = &mut self.starts;
        for block in blocks {
            let mut at = 0;
            for Run { group, rows } in &block.runs {
                let from = at..at + *rows as usize;
                at = from.end;
                let place = place(*group);
                if place < groups.len() {
                    let to = next[place]..next[place] + from.len();
                    next[place] = to.end;
                    // Runs are short: a loop is faster than a call that copies.
                    for (to, from) in to.zip(from) {
                        self.times[to] = block.times[from];
                        self.masks[to] = block.masks[from];
                    }
                } else {
                    other(*group, &block.times[from.clone()], &block.masks[from]);
                }
            }
        }
        self.starts.rotate_right(1);
        self.starts[0] = 0;
    }
}

/// The log.
#[derive(Debug, Default)]
pub(crate) struct EventLog<M> {
    /// Blocks of the first [`GROUPS_TOGETHER`] groups, of the next, and so on.
    parts: Vec<Vec<Block<M>>>,
    /// Bytes of blocks that are full.
    full_bytes: usize,
}

impl<M: Mask> EventLog<M> {
    pub fn push(&mut self, group: u32, time: i64, mask: M) {
        let part = group as usize / GROUPS_TOGETHER;
        if let Some(block) = self.parts.get_mut(part).and_then(|blocks| blocks.last_mut())
            && block.times.len() < BLOCK_ROWS
        {
            return block.push(group, time, mask);
        }
        self.new_block(part).push(group, time, mask);
    }

    /// Adds rows of one group.
    pub fn extend(&mut self, group: u32, mut rows: impl ExactSizeIterator<Item = (i64, M)>) {
        let part = group as usize / GROUPS_TOGETHER;
        while rows.len() > 0 {
            let last = self.parts.get(part).and_then(|blocks| blocks.last());
            let is_full = last.is_none_or(|last| last.times.len() >= BLOCK_ROWS);
            let block = match self.parts.get_mut(part).and_then(|blocks| blocks.last_mut()) {
                Some(last) if !is_full => last,
                _ => self.new_block(part),
            };
            let fit = rows.len().min(BLOCK_ROWS - block.times.len());
            for (time, mask) in rows.by_ref().take(fit) {
                block.times.push(time);
                block.masks.push(mask);
            }
            block.runs.push(Run { group, rows: fit as u32 });
        }
    }

    /// Adds another log, whose group `g` is `groups[g]` here.
    pub fn absorb(&mut self, other: Self, groups: &[usize]) {
        for block in other.parts.into_iter().flatten() {
            let mut at = 0;
            for Run { group, rows } in block.runs {
                let from = at..at + rows as usize;
                at = from.end;
                let rows = from.map(|row| (block.times[row], block.masks[row]));
                self.extend(groups[group as usize] as u32, rows);
            }
        }
    }

    fn new_block(&mut self, part: usize) -> &mut Block<M> {
        if self.parts.len() <= part {
            self.parts.resize_with(part + 1, Vec::new);
        }
        let blocks = &mut self.parts[part];
        // The first block grows from nothing: most plans with few groups stay small.
        let rows = if blocks.is_empty() { 0 } else { BLOCK_ROWS };
        self.full_bytes += blocks.last().map_or(0, Block::size);
        blocks.push_mut(Block {
            runs: Vec::new(),
            times: Vec::with_capacity(rows),
            masks: Vec::with_capacity(rows),
        })
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
        let mut parts = std::mem::take(self).parts;
        parts.resize_with(parts.len().max(emitted.div_ceil(GROUPS_TOGETHER)), Vec::new);
        let mut out = ByGroup::default();
        for (part, blocks) in parts.into_iter().enumerate() {
            let end = |part: usize| (part * GROUPS_TOGETHER).min(emitted);
            let here = end(part)..end(part + 1);
            let is_some = !here.is_empty();
            out.fill(here, &blocks, |group, times, masks| {
                let rows = times.iter().copied().zip(masks.iter().copied());
                self.extend(group - emitted as u32, rows);
            });
            if is_some {
                see(&mut out);
            }
        }
        emitted
    }

    /// Bytes held.
    pub fn size(&self) -> usize {
        let last = self.parts.iter().filter_map(|blocks| blocks.last());
        self.full_bytes + last.map(Block::size).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn groups_come_out_in_the_order_of_adding_however_they_are_emitted() {
        for seed in 0..60 {
            let mut random = Random::new(seed);
            let groups = 1 + random.below(if seed % 5 == 0 { 20_000 } else { 40 }) as usize;
            let rows = if seed == 0 { 200_000 } else { random.below(500) };
            let mut log = EventLog::<u8>::default();
            let mut model = vec![Vec::new(); groups];
            let mut time = 0;
            // Another log's groups come from the last to the first.
            let mut other = EventLog::<u8>::default();
            for _ in 0..random.below(500) {
                let group = random.below(groups as u64) as usize;
                other.push((groups - 1 - group) as u32, -1, 7);
                model[group].push((-1, 7));
            }
            log.absorb(other, &(0..groups).rev().collect::<Vec<_>>());
            while time < rows as i64 {
                let group = random.below(groups as u64) as usize;
                let run = if random.below(3) == 0 { random.below(200) as i64 } else { 1 };
                let rows = (0..run as usize).map(|i| (time + i as i64, (time % 200) as u8));
                model[group].extend(rows.clone());
                if run == 1 {
                    log.push(group as u32, time, (time % 200) as u8);
                } else {
                    log.extend(group as u32, rows);
                }
                time += run;
            }
            let mut found = Vec::new();
            let mut left = groups;
            while left > 0 {
                let first = 1 + random.below(left as u64) as usize;
                let emit = if first == left { EmitTo::All } else { EmitTo::First(first) };
                left -= log.take(emit, left, |out| {
                    for pair in out.starts.windows(2) {
                        let rows = pair[0]..pair[1];
                        let times = out.times[rows.clone()].iter().copied();
                        found.push(times.zip(out.masks[rows].iter().copied()).collect::<Vec<_>>());
                    }
                });
            }
            assert_eq!(found, model, "seed {seed}");
            assert_eq!(log.size(), 0, "seed {seed}");
        }
    }
}
