//! Rows to runs: what neighbouring rows of one user and day add up to.
//!
//! ```text
//! users, times, values ─► runs ─┬─► whole: id, day, times from to, sums      counts for every experiment
//!                             │                                            whose bounds it lies within
//!                             └─► partial: member, day, sums of the rows within the bounds
//!                                 of one experiment that begin or end inside the run
//! ```
//!
//! Where rows are sorted by user and time a run is a user's day, and a report of many experiments adds
//! each row once. Rows in any other order give the same answer from more runs.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, Float64Array, PrimitiveArray, RecordBatch};
use datafusion::arrow::datatypes::TimestampMicrosecondType;

use super::exposed::Members;
use super::keys::{Keys, NOBODY};
use super::passes::{NO_TIME, Pass, ValueKind};
use crate::error::Result;
use crate::exact_sum::Sum;
use crate::local_day::LocalDays;
use crate::moments::decode::doubles;

/// Runs of a block: its number and a run's place in it make 32 bits.
const BLOCK_RUNS: usize = 1 << 13;
const NO_RUN: u32 = u32::MAX;

/// Some rows of one user, or of one user in one experiment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    /// The id, or the member.
    pub key: u32,
    /// Since 1970, local; 0 if nobody asks.
    pub day: i32,
    /// Times of the first and the last row; of partial runs nobody asks.
    pub first: i64,
    pub last: i64,
    /// Into the block's items; they end where the next run's start.
    start: u32,
    /// Of a partial run, the group whose bounds these rows lie within.
    pub group: u16,
}

/// What a run adds to one value. Items that add nothing are left out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    pub value: u16,
    pub sum: f64,
    pub lost: f64,
}

/// Some runs and their items.
#[derive(Debug, Default)]
pub(super) struct Block {
    pub runs: Vec<Run>,
    items: Vec<Item>,
}

impl Block {
    /// The items of a run.
    pub fn items(&self, run: usize) -> &[Item] {
        let end = self.runs.get(run + 1).map_or(self.items.len(), |next| next.start as usize);
        &self.items[self.runs[run].start as usize..end]
    }

    fn bytes(&self) -> usize {
        self.runs.capacity() * size_of::<Run>() + self.items.capacity() * size_of::<Item>()
    }
}

/// Runs in the order in which they were found.
#[derive(Debug, Default)]
struct Log {
    full: Vec<Block>,
    open: Block,
    full_bytes: usize,
}

impl Log {
    /// Begins a run, to which items are pushed.
    fn begin(&mut self, run: Run) -> &mut Block {
        if self.open.runs.len() == BLOCK_RUNS {
            let full = std::mem::take(&mut self.open);
            self.full_bytes += full.bytes();
            self.full.push(full);
        }
        let start = self.open.items.len() as u32;
        self.open.runs.push(Run { start, ..run });
        &mut self.open
    }

    fn bytes(&self) -> usize {
        self.full_bytes + self.open.bytes()
    }

    fn into_blocks(mut self) -> Vec<Block> {
        self.full.push(self.open);
        self.full
    }
}

/// Runs of one thread, found by key.
#[derive(Debug)]
pub(super) struct ByKey {
    blocks: Vec<Block>,
    /// By key, where its runs start in `order`; one more at the end.
    starts: Vec<u32>,
    /// Block and place.
    order: Vec<u32>,
}

impl ByKey {
    /// `None` for more runs than can be told apart (4 thousand million).
    fn of(blocks: Vec<Block>, keys: usize) -> Option<Self> {
        let runs: usize = blocks.iter().map(|block| block.runs.len()).sum();
        u32::try_from(blocks.len() * BLOCK_RUNS).ok()?;
        let mut starts = vec![0u32; keys + 1];
        for run in blocks.iter().flat_map(|block| &block.runs) {
            starts[run.key as usize] += 1;
        }
        let mut end = 0;
        for start in &mut starts {
            end += *start;
            *start = end;
        }
        let mut order = vec![0u32; runs];
        for (number, block) in blocks.iter().enumerate().rev() {
            for (place, run) in block.runs.iter().enumerate().rev() {
                let start = &mut starts[run.key as usize];
                *start -= 1;
                order[*start as usize] = (number * BLOCK_RUNS + place) as u32;
            }
        }
        Some(Self { blocks, starts, order })
    }

    /// The runs of a key: blocks and places in them.
    pub fn of_key(&self, key: usize) -> impl Iterator<Item = (&Block, usize)> {
        let runs = self.starts[key] as usize..self.starts[key + 1] as usize;
        self.order[runs].iter().map(|at| {
            let at = *at as usize;
            (&self.blocks[at / BLOCK_RUNS], at % BLOCK_RUNS)
        })
    }

    /// Reads a little of each run of some keys. They lie far apart in memory, and none of these reads
    /// waits for another, so that all together take little longer than one; whoever reads them in
    /// turn afterwards finds them in the processor's cache. What is returned means nothing.
    pub fn touch(&self, keys: Range<usize>) -> usize {
        let runs = self.starts[keys.start] as usize..self.starts[keys.end] as usize;
        let read = |at: &u32| {
            let at = *at as usize;
            self.blocks[at / BLOCK_RUNS].items(at % BLOCK_RUNS).first().map_or(0, |i| i.value)
        };
        self.order[runs].iter().map(|at| usize::from(read(at))).sum()
    }

    /// Bytes that this takes besides the blocks.
    pub fn order_bytes(runs: usize, keys: usize) -> usize {
        (runs + keys + 1) * size_of::<u32>()
    }
}

/// What one thread found in a pass.
#[derive(Debug)]
pub(super) struct Found {
    /// By id.
    pub whole: ByKey,
    /// By member.
    pub partial: ByKey,
}

/// A run of the batch at hand.
#[derive(Debug, Clone, Copy)]
struct Here {
    from: usize,
    to: usize,
    id: u32,
    day: i32,
    first: i64,
    last: i64,
}

/// An experiment whose bounds begin or end within a run.
#[derive(Debug, Clone, Copy)]
struct Cut {
    run: usize,
    member: u32,
    group: u16,
    low: i64,
    high: i64,
}

/// The runs that one thread finds.
pub(super) struct Runs {
    pass: Arc<Pass>,
    keys: Arc<Keys>,
    members: Arc<Members>,
    days: LocalDays,
    whole: Log,
    partial: Log,
    // Room for one batch.
    ids: Vec<u32>,
    here: Vec<Here>,
    cuts: Vec<Cut>,
    /// By row, the run that counts as a whole.
    run_of: Vec<u32>,
    sums: Vec<Sum>,
}

/// Columns of a batch.
struct Rows<'b> {
    times: Option<&'b PrimitiveArray<TimestampMicrosecondType>>,
    values: Vec<Float64Array>,
}

impl Rows<'_> {
    fn time(&self, row: usize) -> i64 {
        match self.times {
            Some(times) if times.is_valid(row) => times.value(row),
            _ => NO_TIME,
        }
    }
}

impl Runs {
    pub fn new(pass: Arc<Pass>, keys: Arc<Keys>, members: Arc<Members>) -> Self {
        Self {
            days: LocalDays::new(pass.zone),
            pass,
            keys,
            members,
            ids: Vec::new(),
            whole: Log::default(),
            partial: Log::default(),
            here: Vec::new(),
            cuts: Vec::new(),
            run_of: Vec::new(),
            sums: Vec::new(),
        }
    }

    /// Bytes held, and those of the order that is made of them in the end.
    pub fn bytes(&self) -> usize {
        let log = |log: &Log, keys: usize| {
            let runs = log.full.len() * BLOCK_RUNS + log.open.runs.len();
            log.bytes() + ByKey::order_bytes(runs, keys)
        };
        log(&self.whole, self.members.ids()) + log(&self.partial, self.members.members.len())
    }

    /// What was found, by key; `None` for too many runs.
    pub fn finish(self) -> Option<Found> {
        Some(Found {
            whole: ByKey::of(self.whole.into_blocks(), self.members.ids())?,
            partial: ByKey::of(self.partial.into_blocks(), self.members.members.len())?,
        })
    }

    /// Takes in rows: key, time if the pass has one, values.
    pub fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        self.keys.find(batch.column(0), &mut self.ids)?;
        let timed = usize::from(self.pass.time.is_some());
        let values = batch.columns()[1 + timed..].iter().map(doubles);
        let rows = Rows {
            times: (timed > 0).then(|| batch.column(1).as_primitive()),
            values: values.collect::<Result<_>>()?,
        };
        self.find_runs(&rows);
        self.find_bounds();
        self.add_whole(&rows);
        self.add_partial(&rows);
        Ok(())
    }

    /// Neighbours of the same id and day, of ids that are exposed.
    fn find_runs(&mut self, rows: &Rows<'_>) {
        self.here.clear();
        for (row, id) in self.ids.iter().copied().enumerate() {
            if id == NOBODY {
                continue;
            }
            let time = rows.time(row);
            let day = match self.pass.by_day {
                true if time != NO_TIME => self.days.day(time).unwrap_or(i32::MIN),
                _ => 0,
            };
            if let Some(run) = self.here.last_mut()
                && (run.to, run.id, run.day) == (row, id, day)
                && (run.first == NO_TIME) == (time == NO_TIME)
            {
                run.to = row + 1;
                run.first = run.first.min(time);
                run.last = run.last.max(time);
                continue;
            }
            if !self.members.range(id as usize).is_empty() {
                let (first, last) = (time, time);
                self.here.push(Here { from: row, to: row + 1, id, day, first, last });
            }
        }
    }

    /// Which runs count as a whole for anybody, and which are cut by somebody's bounds.
    fn find_bounds(&mut self) {
        self.cuts.clear();
        self.run_of.clear();
        for (number, run) in self.here.iter().enumerate() {
            let mut whole = false;
            for member in self.members.range(run.id as usize) {
                let of = &self.members.members[member];
                for (group, uses) in self.pass.groups[of.experiment as usize].iter().enumerate() {
                    let Some((low, high)) = uses.when.bounds(of.time()) else { continue };
                    if run.first >= low && run.last < high {
                        whole = true;
                    } else if run.last >= low && run.first < high {
                        let (member, group) = (member as u32, group as u16);
                        self.cuts.push(Cut { run: number, member, group, low, high });
                    }
                }
            }
            self.run_of.resize(run.from, NO_RUN);
            self.run_of.resize(run.to, if whole { number as u32 } else { NO_RUN });
        }
    }

    fn add_whole(&mut self, rows: &Rows<'_>) {
        let width = self.pass.values.len();
        self.sums.clear();
        self.sums.resize(self.here.len() * width, Sum::default());
        for (number, values) in rows.values.iter().enumerate() {
            let kind = self.pass.values[number].kind;
            let (run_of, sums) = (&self.run_of, &mut self.sums);
            let mut add = |row: usize| match run_of.get(row) {
                Some(run) if *run != NO_RUN => {
                    add_to(&mut sums[*run as usize * width + number], kind, values.value(row));
                }
                _ => {}
            };
            match values.nulls() {
                None => (0..values.len()).for_each(&mut add),
                Some(nulls) => nulls.valid_indices().for_each(&mut add),
            }
        }
        for (number, run) in self.here.iter().enumerate() {
            if self.run_of[run.from] == NO_RUN {
                continue;
            }
            let run = Run {
                key: run.id,
                day: run.day,
                first: run.first,
                last: run.last,
                start: 0,
                group: 0,
            };
            let block = self.whole.begin(run);
            push_sums(block, &self.sums[number * width..(number + 1) * width]);
        }
    }

    fn add_partial(&mut self, rows: &Rows<'_>) {
        let width = self.pass.values.len();
        for cut in &self.cuts {
            let here = self.here[cut.run];
            self.sums.clear();
            self.sums.resize(width, Sum::default());
            for row in here.from..here.to {
                if !(cut.low..cut.high).contains(&rows.time(row)) {
                    continue;
                }
                for (number, values) in rows.values.iter().enumerate() {
                    if values.is_valid(row) {
                        let kind = self.pass.values[number].kind;
                        add_to(&mut self.sums[number], kind, values.value(row));
                    }
                }
            }
            let (first, last, start) = (NO_TIME, NO_TIME, 0);
            let (key, day, group) = (cut.member, here.day, cut.group);
            let block = self.partial.begin(Run { key, day, first, last, start, group });
            push_sums(block, &self.sums);
        }
    }
}

fn add_to(sum: &mut Sum, kind: ValueKind, value: f64) {
    match kind {
        ValueKind::Sum => sum.add(value),
        ValueKind::Any if value != 0.0 => *sum = Sum::of(1.0, 0.0),
        ValueKind::Any => {}
    }
}

fn push_sums(block: &mut Block, sums: &[Sum]) {
    for (value, sum) in sums.iter().enumerate() {
        if sum.sum != 0.0 || sum.lost != 0.0 {
            block.items.push(Item { value: value as u16, sum: sum.sum, lost: sum.lost });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_found_by_key_with_their_items() {
        let mut log = Log::default();
        let keys = 1000;
        let of = |number: usize| (number * 7919) % keys;
        for number in 0..3 * BLOCK_RUNS + 5 {
            let run = Run { key: of(number) as u32, day: 0, first: 0, last: 0, start: 0, group: 0 };
            let block = log.begin(run);
            for value in 0..number % 3 {
                block.items.push(Item { value: value as u16, sum: number as f64, lost: 0.5 });
            }
        }
        let found = ByKey::of(log.into_blocks(), keys).unwrap();
        let mut seen = 0;
        for key in 0..keys {
            let mut numbers = (0..3 * BLOCK_RUNS + 5).filter(|number| of(*number) == key);
            for (block, place) in found.of_key(key) {
                let number = numbers.next().unwrap();
                assert_eq!(block.runs[place].key as usize, key);
                let items = block.items(place).iter().map(|item| (item.value, item.sum));
                let items: Vec<(u16, f64)> = items.collect();
                let expected: Vec<(u16, f64)> =
                    (0..number % 3).map(|value| (value as u16, number as f64)).collect();
                assert_eq!(items, expected, "run {number}");
                seen += 1;
            }
            assert_eq!(numbers.next(), None);
        }
        assert_eq!(seen, 3 * BLOCK_RUNS + 5);
    }
}
