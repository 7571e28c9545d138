//! Rows to runs: what neighbouring rows of one user and day add up to.
//!
//! ```text
//! users, times, values ─► runs: id, day, times from to, sums
//! ```
//!
//! A run ends where rows begin or cease to count for any of the user's experiments, such as at a first
//! exposure, so it counts for an experiment as a whole or not at all. Where rows are sorted by user and
//! time a run is a user's day or a part of it, and a report of many experiments adds each row once.
//! Rows in any other order give the same answer from more runs.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, Float64Array, PrimitiveArray, RecordBatch};
use datafusion::arrow::datatypes::TimestampMicrosecondType;

use super::exposed::Members;
use super::keys::{Keys, NO_MATCH_GROUP};
use super::passes::{NO_TIME, Pass, ValueKind};
use crate::base::error::Result;
use crate::functions::daily_values::comes_before;
use crate::functions::exact_sum::Sum;
use crate::functions::local_day::LocalDays;
use crate::report::decode::doubles;

/// Runs of a block: its number and a run's place in it make 32 bits.
const BLOCK_RUNS: usize = 1 << 13;
const NO_RUN: u32 = u32::MAX;

/// Some rows of one user.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Run {
    pub id: u32,
    /// Since 1970, local; 0 if nobody asks.
    pub day: i32,
    /// Times of the first and the last row; whenever one counts the other does.
    pub first: i64,
    pub last: i64,
    /// Into the block's items; they end where the next run's start.
    start: u32,
}

/// What a run adds to one value. Items that add nothing are left out. Of a value that is first or last, `sum`
/// is it and the bits of `lost` are its time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    pub value: u16,
    pub sum: f64,
    pub lost: f64,
}

impl Item {
    /// A first or last value and its time.
    pub fn at_time(&self) -> (i64, f64) {
        (self.lost.to_bits().cast_signed(), self.sum)
    }
}

/// No first or last value yet: those that are have a number.
const NO_VALUE: f64 = f64::NAN;

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
pub(super) struct Log {
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

    pub fn push(&mut self, run: Run, items: impl IntoIterator<Item = Item>) {
        self.begin(run).items.extend(items);
    }

    /// Runs and their items.
    pub fn runs(&self) -> impl Iterator<Item = (&Run, &[Item])> {
        let blocks = self.full.iter().chain([&self.open]);
        blocks.flat_map(|block| {
            block.runs.iter().enumerate().map(|(place, run)| (run, block.items(place)))
        })
    }

    pub fn bytes(&self) -> usize {
        self.full_bytes + self.open.bytes()
    }

    fn count(&self) -> usize {
        self.full.len() * BLOCK_RUNS + self.open.runs.len()
    }

    fn into_blocks(mut self) -> Vec<Block> {
        self.full.push(self.open);
        self.full
    }
}

/// Runs of one thread, found by id.
#[derive(Debug)]
pub(super) struct Found {
    blocks: Vec<Block>,
    /// By id, where its runs start in `order`; one more at the end.
    starts: Vec<u32>,
    /// Block and place.
    order: Vec<u32>,
}

impl Found {
    /// Of several logs, by ids below `ids`; `None` for too many runs.
    pub fn of_logs(logs: Vec<Log>, ids: usize) -> Option<Self> {
        Self::of(logs.into_iter().flat_map(Log::into_blocks).collect(), ids)
    }

    /// Bytes that [`Self::of_logs`] takes besides the logs.
    pub fn bytes_besides(logs: &[Log], ids: usize) -> usize {
        Self::order_bytes(logs.iter().map(Log::count).sum(), ids)
    }

    /// `None` for more runs than can be told apart (4 thousand million).
    fn of(blocks: Vec<Block>, ids: usize) -> Option<Self> {
        let runs: usize = blocks.iter().map(|block| block.runs.len()).sum();
        u32::try_from(blocks.len() * BLOCK_RUNS).ok()?;
        let mut starts = vec![0u32; ids + 1];
        for run in blocks.iter().flat_map(|block| &block.runs) {
            starts[run.id as usize] += 1;
        }
        let mut end = 0;
        for start in &mut starts {
            end += *start;
            *start = end;
        }
        let mut order = vec![0u32; runs];
        for (number, block) in blocks.iter().enumerate().rev() {
            for (place, run) in block.runs.iter().enumerate().rev() {
                let start = &mut starts[run.id as usize];
                *start -= 1;
                order[*start as usize] = (number * BLOCK_RUNS + place) as u32;
            }
        }
        Some(Self { blocks, starts, order })
    }

    /// The runs of an id: blocks and places in them.
    pub fn of_id(&self, id: usize) -> impl Iterator<Item = (&Block, usize)> {
        let runs = self.starts[id] as usize..self.starts[id + 1] as usize;
        self.order[runs].iter().map(|at| {
            let at = *at as usize;
            (&self.blocks[at / BLOCK_RUNS], at % BLOCK_RUNS)
        })
    }

    /// Reads a little of each run of some ids. They lie far apart in memory, and none of these reads
    /// waits for another, so that all together take little longer than one; whoever reads them in
    /// turn afterwards finds them in the processor's cache. What is returned means nothing.
    pub fn touch(&self, ids: Range<usize>) -> usize {
        let runs = self.starts[ids.start] as usize..self.starts[ids.end] as usize;
        let read = |at: &u32| {
            let at = *at as usize;
            self.blocks[at / BLOCK_RUNS].items(at % BLOCK_RUNS).first().map_or(0, |i| i.value)
        };
        self.order[runs].iter().map(|at| usize::from(read(at))).sum()
    }

    /// Bytes that this takes besides the blocks.
    fn order_bytes(runs: usize, ids: usize) -> usize {
        (runs + ids + 1) * size_of::<u32>()
    }
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
    counts: bool,
}

/// Where the run goes on: rows of this id and day whose times lie between these.
#[derive(Debug, Clone, Copy)]
struct Open {
    id: u32,
    day: i32,
    from: i64,
    to: i64,
    /// Do they count for anybody?
    counts: bool,
}

impl Open {
    /// Nothing goes on.
    const NOTHING: Self = Self { id: NO_MATCH_GROUP, day: 0, from: 0, to: 0, counts: false };

    /// Around a row: up to where rows begin or cease to count, or to one of the `cuts`.
    fn around(id: u32, day: i32, time: i64, bounds: &[(i64, i64)], cuts: &[(u32, i64)]) -> Self {
        let (from, to) = match time {
            NO_TIME => (NO_TIME, NO_TIME + 1),
            _ => (NO_TIME + 1, i64::MAX),
        };
        let mut open = Self { id, day, from, to, counts: false };
        let mut cut = |at: i64| {
            if at <= time {
                open.from = open.from.max(at);
            } else {
                open.to = open.to.min(at);
            }
        };
        cuts.iter().for_each(|(_, at)| cut(*at));
        bounds.iter().flat_map(|(low, high)| [*low, *high]).for_each(cut);
        open.counts = bounds.iter().any(|(low, high)| (*low..*high).contains(&time));
        open
    }
}

/// The runs that one thread finds.
pub(super) struct Runs {
    pass: Arc<Pass>,
    keys: Arc<Keys>,
    members: Arc<Members>,
    days: LocalDays,
    /// Runs that count for somebody.
    log: Log,
    /// The others, if somebody wants them.
    others: Option<Log>,
    /// Ids and times at which runs end, too; sorted.
    cuts: Arc<Vec<(u32, i64)>>,
    /// When rows of this id count for its experiments.
    bounds: Vec<(i64, i64)>,
    bounds_of: u32,
    // Room for one batch.
    ids: Vec<u32>,
    here: Vec<Here>,
    /// By row, the run it is in.
    run_of: Vec<u32>,
    sums: Vec<Sum>,
}

/// Columns of a batch.
struct RunRows<'b> {
    times: Option<&'b PrimitiveArray<TimestampMicrosecondType>>,
    values: Vec<Float64Array>,
}

impl RunRows<'_> {
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
            log: Log::default(),
            others: None,
            cuts: Arc::default(),
            bounds: Vec::new(),
            bounds_of: NO_MATCH_GROUP,
            ids: Vec::new(),
            here: Vec::new(),
            run_of: Vec::new(),
            sums: Vec::new(),
        }
    }

    /// With the runs of users and times that count for nobody, too. `cuts`: ids and times at which runs
    /// end besides, sorted.
    pub fn of_everyone(self, cuts: Arc<Vec<(u32, i64)>>) -> Self {
        Self { others: Some(Log::default()), cuts, ..self }
    }

    /// Bytes held, and those of the order that is made of them in the end.
    pub fn bytes(&self) -> usize {
        let others = self.others.as_ref().map_or(0, Log::bytes);
        self.log.bytes() + others + Found::order_bytes(self.log.count(), self.members.ids())
    }

    /// Runs that count for somebody, and the others.
    pub fn into_logs(self) -> (Log, Log) {
        (self.log, self.others.unwrap_or_default())
    }

    /// Takes in a run of another time, if it counts for anybody; false if rows of it count and others
    /// do not.
    pub fn add_run(&mut self, run: Run, items: &[Item]) -> bool {
        self.find_bounds(run.id);
        let mut counts = false;
        for (low, high) in &self.bounds {
            let within = run.first >= *low && run.last < *high;
            if !within && run.last >= *low && run.first < *high {
                return false;
            }
            counts |= within;
        }
        if counts {
            self.log.push(run, items.iter().copied());
        }
        true
    }

    /// What was found, by id; `None` for too many runs.
    pub fn finish(self) -> Option<Found> {
        Found::of(self.log.into_blocks(), self.members.ids())
    }

    /// Takes in rows: key, time if the pass has one, values.
    pub fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        self.keys.find(batch.column(0), &mut self.ids)?;
        let timed = usize::from(self.pass.time.is_some());
        let values = batch.columns()[1 + timed..].iter().map(doubles);
        let rows = RunRows {
            times: (timed > 0).then(|| batch.column(1).as_primitive()),
            values: values.collect::<Result<_>>()?,
        };
        self.find_runs(&rows);
        self.add_up(&rows);
        Ok(())
    }

    /// Neighbours of one id and day that count for the same experiments, if they do for any or everyone
    /// is wanted.
    fn find_runs(&mut self, rows: &RunRows<'_>) {
        self.here.clear();
        self.run_of.clear();
        let everyone = self.others.is_some();
        let mut open = Open::NOTHING;
        for row in 0..self.ids.len() {
            let id = self.ids[row];
            if id == NO_MATCH_GROUP {
                open = Open::NOTHING;
                continue;
            }
            let time = rows.time(row);
            let day = match self.pass.by_day {
                true if time != NO_TIME => self.days.day(time).unwrap_or(i32::MIN),
                _ => 0,
            };
            if (open.id, open.day) != (id, day) || !(open.from..open.to).contains(&time) {
                self.find_bounds(id);
                let cuts = &self.cuts[self.cuts.partition_point(|(of, _)| *of < id)..];
                let cuts = &cuts[..cuts.partition_point(|(of, _)| *of == id)];
                open = Open::around(id, day, time, &self.bounds, cuts);
                if open.counts || everyone {
                    let (first, last, counts) = (time, time, open.counts);
                    self.here.push(Here { from: row, to: row, id, day, first, last, counts });
                }
            }
            if (open.counts || everyone)
                && let Some(run) = self.here.last_mut()
            {
                run.to = row + 1;
                run.first = run.first.min(time);
                run.last = run.last.max(time);
            }
        }
        for (number, run) in self.here.iter().enumerate() {
            self.run_of.resize(run.from, NO_RUN);
            self.run_of.resize(run.to, number as u32);
        }
    }

    fn find_bounds(&mut self, id: u32) {
        if self.bounds_of == id {
            return;
        }
        self.bounds_of = id;
        self.bounds.clear();
        for member in &self.members.members[self.members.range(id as usize)] {
            let groups = &self.pass.groups[member.experiment as usize];
            self.bounds.extend(groups.iter().filter_map(|uses| uses.when.bounds(member.time())));
        }
    }

    /// The values of each run.
    fn add_up(&mut self, rows: &RunRows<'_>) {
        let width = self.pass.values.len();
        self.sums.clear();
        self.sums.resize(self.here.len() * width, Sum::default());
        let by_time = |kind: ValueKind| matches!(kind, ValueKind::First | ValueKind::Last);
        let values = self.pass.values.iter().enumerate();
        for (number, _) in values.filter(|(_, value)| by_time(value.kind)) {
            let sums = self.sums.iter_mut().skip(number).step_by(width);
            sums.for_each(|sum| *sum = Sum::of(NO_VALUE, 0.0));
        }
        for (number, values) in rows.values.iter().enumerate() {
            let kind = self.pass.values[number].kind;
            let (run_of, sums) = (&self.run_of, &mut self.sums);
            let mut add = |row: usize| match run_of.get(row) {
                Some(run) if *run != NO_RUN => {
                    let sum = &mut sums[*run as usize * width + number];
                    match kind {
                        ValueKind::Sum | ValueKind::Any => add_to(sum, kind, values.value(row)),
                        ValueKind::First | ValueKind::Last => {
                            take_by_time(sum, kind, (rows.time(row), values.value(row)));
                        }
                    }
                }
                _ => {}
            };
            match values.nulls() {
                None => (0..values.len()).for_each(&mut add),
                Some(nulls) => nulls.valid_indices().for_each(&mut add),
            }
        }
        for (number, run) in self.here.iter().enumerate() {
            let log = match (&mut self.others, run.counts) {
                (Some(others), false) => others,
                _ => &mut self.log,
            };
            let Here { id, day, first, last, .. } = *run;
            let block = log.begin(Run { id, day, first, last, start: 0 });
            push_sums(block, &self.pass, &self.sums[number * width..(number + 1) * width]);
        }
    }
}

fn add_to(sum: &mut Sum, kind: ValueKind, value: f64) {
    match kind {
        ValueKind::Sum => sum.add(value),
        ValueKind::Any if value != 0.0 => *sum = Sum::of(1.0, 0.0),
        ValueKind::Any | ValueKind::First | ValueKind::Last => {}
    }
}

/// Keeps the value that is first or last, as an [`Item`] has it.
fn take_by_time(sum: &mut Sum, kind: ValueKind, (time, value): (i64, f64)) {
    if time == NO_TIME || !value.is_finite() {
        return;
    }
    let known = (sum.lost.to_bits().cast_signed(), sum.sum);
    if sum.sum.is_nan() || comes_before(kind == ValueKind::Last, (time, value), known) {
        *sum = Sum::of(value, f64::from_bits(time.cast_unsigned()));
    }
}

fn push_sums(block: &mut Block, pass: &Pass, sums: &[Sum]) {
    for (value, (sum, of)) in sums.iter().zip(&pass.values).enumerate() {
        let adds = match of.kind {
            ValueKind::Sum | ValueKind::Any => sum.sum != 0.0 || sum.lost != 0.0,
            ValueKind::First | ValueKind::Last => !sum.sum.is_nan(),
        };
        if adds {
            block.items.push(Item { value: value as u16, sum: sum.sum, lost: sum.lost });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_found_by_id_with_their_items() {
        let mut log = Log::default();
        let ids = 1000;
        let of = |number: usize| (number * 7919) % ids;
        for number in 0..3 * BLOCK_RUNS + 5 {
            let run = Run { id: of(number) as u32, ..Run::default() };
            let block = log.begin(run);
            for value in 0..number % 3 {
                block.items.push(Item { value: value as u16, sum: number as f64, lost: 0.5 });
            }
        }
        let found = Found::of(log.into_blocks(), ids).unwrap();
        let mut seen = 0;
        for id in 0..ids {
            let mut numbers = (0..3 * BLOCK_RUNS + 5).filter(|number| of(*number) == id);
            for (block, place) in found.of_id(id) {
                let number = numbers.next().unwrap();
                assert_eq!(block.runs[place].id as usize, id);
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
