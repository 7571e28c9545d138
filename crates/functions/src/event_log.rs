//! Rows of many groups in the order they came: time, and a bit per condition that holds.
//!
//! An entry per group would allocate millions of small vectors. Here rows are appended to blocks,
//! and sorted by group once, by counting, when groups are handed out. Rows of one group mostly come
//! together, because files are sorted by user: the group is written once for a run of them.
//!
//! # Invariants
//! - What is handed out of a group is in the order in which it was added.
//! - A row costs 8 bytes and its mask, a run 8 more; blocks are full but the last.

use std::mem::size_of;

use datafusion_expr::EmitTo;

/// Rows of a block: 64 Ki rows of 9 bytes, with their runs 1 MiB at most, which lies in the
/// second-level cache while it fills.
const BLOCK_ROWS: usize = 1 << 16;

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
    fn new() -> Self {
        Self {
            runs: Vec::new(),
            times: Vec::with_capacity(BLOCK_ROWS),
            masks: Vec::with_capacity(BLOCK_ROWS),
        }
    }

    fn push(&mut self, group: u32, time: i64, mask: M) {
        match self.runs.last_mut() {
            Some(run) if run.group == group => run.rows += 1,
            _ => self.runs.push(Run { group, rows: 1 }),
        }
        self.times.push(time);
        self.masks.push(mask);
    }
}

/// Rows by group: those of group `g` are `starts[g]..starts[g + 1]`.
#[derive(Debug)]
pub(crate) struct ByGroup<M> {
    pub starts: Vec<usize>,
    pub times: Vec<i64>,
    pub masks: Vec<M>,
}

/// The log.
#[derive(Debug, Default)]
pub(crate) struct EventLog<M> {
    blocks: Vec<Block<M>>,
    /// Runs that blocks but the last have room for.
    runs: usize,
}

impl<M: Mask> EventLog<M> {
    pub fn push(&mut self, group: u32, time: i64, mask: M) {
        if let Some(block) = self.blocks.last_mut()
            && block.times.len() < BLOCK_ROWS
        {
            return block.push(group, time, mask);
        }
        self.new_block().push(group, time, mask);
    }

    /// Adds rows of one group.
    pub fn extend(&mut self, group: u32, mut rows: impl ExactSizeIterator<Item = (i64, M)>) {
        while rows.len() > 0 {
            let is_full = self.blocks.last().is_none_or(|b| b.times.len() >= BLOCK_ROWS);
            let block = match self.blocks.last_mut() {
                Some(last) if !is_full => last,
                _ => self.new_block(),
            };
            let fit = rows.len().min(BLOCK_ROWS - block.times.len());
            for (time, mask) in rows.by_ref().take(fit) {
                block.times.push(time);
                block.masks.push(mask);
            }
            block.runs.push(Run { group, rows: fit as u32 });
        }
    }

    fn new_block(&mut self) -> &mut Block<M> {
        // The first block grows from nothing: most plans with few groups stay small.
        let first = self.blocks.is_empty();
        let empty = Block { runs: Vec::new(), times: Vec::new(), masks: Vec::new() };
        self.runs += self.blocks.last().map_or(0, |last| last.runs.capacity());
        self.blocks.push_mut(if first { empty } else { Block::new() })
    }

    /// Takes the rows of the groups to be emitted; groups after them move down. `groups`: how many
    /// there are.
    pub fn take(&mut self, emit_to: EmitTo, groups: usize) -> ByGroup<M> {
        let emitted = match emit_to {
            EmitTo::All => groups,
            EmitTo::First(first) => first,
        };
        let blocks = std::mem::take(self).blocks;
        let mut starts = vec![0; emitted + 1];
        for run in blocks.iter().flat_map(|block| &block.runs) {
            if let Some(count) = starts.get_mut(run.group as usize + 1) {
                *count += run.rows as usize;
            }
        }
        for group in 0..emitted {
            starts[group + 1] += starts[group];
        }
        let rows = starts[emitted];
        // The starts move to the ends as rows are put in, and back again.
        let next = &mut starts;
        let (mut times, mut masks) = (vec![0; rows], vec![M::default(); rows]);
        for block in blocks {
            let mut at = 0;
            for Run { group, rows } in block.runs {
                let from = at..at + rows as usize;
                at = from.end;
                let place = group as usize;
                if place < emitted {
                    let to = next[place]..next[place] + rows as usize;
                    next[place] = to.end;
                    // Runs are short: a loop is faster than a call that copies.
                    for (to, from) in to.zip(from) {
                        times[to] = block.times[from];
                        masks[to] = block.masks[from];
                    }
                } else {
                    let rows = from.map(|from| (block.times[from], block.masks[from]));
                    self.extend(group - emitted as u32, rows);
                }
            }
        }
        starts.rotate_right(1);
        starts[0] = 0;
        ByGroup { starts, times, masks }
    }

    /// Bytes held.
    pub fn size(&self) -> usize {
        let full = self.blocks.len().saturating_sub(1) * BLOCK_ROWS;
        let last = self.blocks.last().map_or((0, 0), |b| (b.times.capacity(), b.runs.capacity()));
        (full + last.0) * (size_of::<i64>() + M::BYTES) + (self.runs + last.1) * size_of::<Run>()
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
            let groups = 1 + random.below(40) as usize;
            let rows = if seed == 0 { 200_000 } else { random.below(500) };
            let mut log = EventLog::<u8>::default();
            let mut model = vec![Vec::new(); groups];
            let mut time = 0;
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
                let out = log.take(emit, left);
                for pair in out.starts.windows(2) {
                    let rows = pair[0]..pair[1];
                    let times = out.times[rows.clone()].iter().copied();
                    found.push(times.zip(out.masks[rows].iter().copied()).collect::<Vec<_>>());
                }
                left -= first;
            }
            assert_eq!(found, model, "seed {seed}");
            assert_eq!(log.size(), 0, "seed {seed}");
        }
    }
}
