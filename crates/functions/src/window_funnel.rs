//! How far a user came through the steps of a funnel within a window: the meaning of
//! `window_funnel`, without SQL.
//!
//! Rows are taken in the order of time. A row that meets several conditions counts as several
//! events, and the events of one time are taken in the order of their steps.
//!
//! | mode | a chain is | the search ends early |
//! |---|---|---|
//! | default | events of steps 1, 2, 3 …, in that order, the last within the window of the first | never |
//! | strict_increase | the same, each later than the one before | never |
//! | strict_dedup | as default | before an event of a step after the first that has been reached |
//! | strict_order | as default | after the first event of step 1: before a row without a condition, and before an event of a step whose step before has not been reached |
//!
//! The answer is the length of the longest chain found.
//!
//! # Invariants
//! - Of all chains that reach a step, the one with the latest start can go on the longest, so one
//!   start per step is all there is to remember.
//!
//! - [`Ongoing`] is the same, of rows that come in the order of time.
//!
//! # Source
//! ClickHouse's `windowFunnel` (26.9). `strict_increase` differs where ClickHouse forgets an
//! earlier event of a step for a later one: `A@1 B@2 B@3 C@3` is 3 here and 2 there.

use datafusion_expr::EmitTo;

use crate::event_log::{Mask, RowRun};

/// Conditions that a function takes at most: a bit each.
pub(crate) const CONDITIONS_MAX: usize = 32;

/// When a search ends early, and what a chain is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Mode {
    Default,
    StrictOrder,
    StrictIncrease,
    StrictDedup,
}

impl Mode {
    /// The names, for messages.
    pub const NAMES: &str = "'default', 'strict_order', 'strict_increase' or 'strict_dedup'";

    /// By its name in SQL; ClickHouse's name of `strict_dedup` is taken too.
    pub fn of_name(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "default" => Some(Self::Default),
            "strict_order" => Some(Self::StrictOrder),
            "strict_increase" => Some(Self::StrictIncrease),
            "strict_dedup" | "strict_deduplication" => Some(Self::StrictDedup),
            _ => None,
        }
    }
}

/// A funnel: times and window in one unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Funnel {
    pub window: i64,
    pub mode: Mode,
    /// At most [`CONDITIONS_MAX`].
    pub steps: usize,
}

impl Funnel {
    /// The steps passed. `times`: sorted; `masks`: a bit per step, the first lowest; 0 for a row
    /// without a condition, which only `strict_order` looks at.
    pub fn level<M: Mask>(&self, times: &[i64], masks: &[M]) -> usize {
        let each_later = times.is_sorted_by(|a, b| a < b);
        if each_later && self.mode == Mode::Default && times.first() != Some(&NEVER) {
            return self.level_of_different_times(times, masks);
        }
        self.search(times, masks).reached
    }

    /// When the steps of the longest chain were passed. Of several chains as long it is the one that ends
    /// first, of those the one that begins last, and each step between comes as early as it can.
    ///
    /// `times` and `masks`: as in [`Self::level`].
    pub fn passed<M: Mask>(&self, times: &[i64], masks: &[M]) -> Vec<i64> {
        let Chains { start, reached, .. } = self.search(times, masks);
        let mut passed: Vec<i64> = Vec::with_capacity(reached);
        for step in 0..reached {
            let earliest = match passed.last() {
                None => start,
                Some(last) if self.mode == Mode::StrictIncrease => last.saturating_add(1),
                Some(last) => *last,
            };
            let first = times.partition_point(|time| *time < earliest);
            let is_passed = |mask: &M| mask.bits() >> step & 1 == 1;
            let Some(row) = masks[first..].iter().position(is_passed) else { break };
            passed.push(times[first + row]);
        }
        passed
    }

    fn search<M: Mask>(&self, times: &[i64], masks: &[M]) -> Chains {
        let mut chains = Chains::new(self.window);
        let mut row = 0;
        while row < times.len() && chains.reached < self.steps {
            let time = times[row];
            let mut bits = masks[row].bits();
            let mut last = row + 1;
            while last < times.len() && times[last] == time {
                bits |= masks[last].bits();
                last += 1;
            }
            let goes_on = match self.mode {
                Mode::Default => chains.ascending(bits, time),
                Mode::StrictIncrease => chains.descending(bits, time),
                Mode::StrictDedup => chains.without_repeats(bits, &masks[row..last], time),
                Mode::StrictOrder => chains.in_order(bits, &masks[row..last], time),
            };
            if !goes_on {
                break;
            }
            row = last;
        }
        chains
    }

    /// The same in the default mode, of rows of different times: without a branch, because which step comes
    /// next is hard to foresee.
    fn level_of_different_times<M: Mask>(&self, times: &[i64], masks: &[M]) -> usize {
        // Until when the step after can be passed; in front of them all that of the first step: always.
        let mut until = [NEVER; CONDITIONS_MAX + 1];
        for (time, mask) in times.iter().zip(masks) {
            until[0] = time.saturating_add(self.window);
            let mut bits = mask.bits();
            while bits != 0 {
                let step = bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let before = until[step];
                until[step + 1] = if *time <= before { before } else { until[step + 1] };
            }
        }
        until[1..=self.steps].iter().take_while(|until| **until != NEVER).count()
    }
}

/// Before all times but itself.
const NEVER: i64 = i64::MIN;

/// The funnels of many groups whose rows come in the order of time: a few numbers for each group, and no
/// rows. The bits of a group's last time are kept until a later time comes, because rows of one time are
/// taken together.
#[derive(Debug)]
pub(crate) struct Ongoing {
    funnel: Funnel,
    /// For each group, until when the step after each step can be passed, in front of them a place for that
    /// of the first; then its last time.
    states: Vec<i64>,
    /// For each group, the bits of its last time.
    bits: Vec<u32>,
}

impl Ongoing {
    /// `None` in a mode that looks at single rows of one time.
    pub fn new(funnel: Funnel) -> Option<Self> {
        let looks_at_rows = matches!(funnel.mode, Mode::StrictOrder | Mode::StrictDedup);
        (!looks_at_rows).then(|| Self { funnel, states: Vec::new(), bits: Vec::new() })
    }

    fn width(&self) -> usize {
        self.funnel.steps + 2
    }

    /// Adds rows in the groups of `runs`, of which there are `groups`; `false` if they are not in the order
    /// of time, after which nothing more can be asked.
    #[must_use]
    pub fn add<M: Mask>(
        &mut self,
        runs: &[RowRun],
        times: &[i64],
        masks: &[M],
        groups: usize,
    ) -> bool {
        let (width, funnel) = (self.width(), self.funnel);
        self.states.resize(groups * width, NEVER);
        self.bits.resize(groups, 0);
        let mut from = 0;
        for RowRun { end, group } in runs.iter().copied() {
            let state = &mut self.states[group * width..(group + 1) * width];
            let (until, last) = state.split_at_mut(width - 1);
            let (mut last_time, mut bits) = (last[0], self.bits[group]);
            for (time, mask) in times[from..end].iter().zip(&masks[from..end]) {
                if *time > last_time {
                    funnel.pass(until, bits, last_time);
                    (last_time, bits) = (*time, mask.bits());
                } else if *time == last_time && *time != NEVER {
                    bits |= mask.bits();
                } else {
                    return false;
                }
            }
            (last[0], self.bits[group], from) = (last_time, bits, end);
        }
        true
    }

    /// The steps passed by each group that is emitted, of so many; the others move down.
    pub fn take(&mut self, emit_to: EmitTo, groups: usize) -> Vec<usize> {
        let width = self.width();
        self.states.resize(groups * width, NEVER);
        self.bits.resize(groups, 0);
        let emitted = match emit_to {
            EmitTo::All => groups,
            EmitTo::First(first) => first,
        };
        let mut levels = Vec::with_capacity(emitted);
        for (state, bits) in self.states.chunks_exact_mut(width).zip(&self.bits).take(emitted) {
            let (until, last) = state.split_at_mut(width - 1);
            self.funnel.pass(until, *bits, last[0]);
            levels.push(until[1..].iter().take_while(|until| **until != NEVER).count());
        }
        self.states.drain(..emitted * width);
        self.bits.drain(..emitted);
        levels
    }

    /// Bytes.
    pub fn size(&self) -> usize {
        self.states.capacity() * size_of::<i64>() + self.bits.capacity() * size_of::<u32>()
    }
}

impl Funnel {
    /// Takes the events of one time. `until`: as in [`Ongoing`].
    fn pass(&self, until: &mut [i64], mut bits: u32, time: i64) {
        until[0] = time.saturating_add(self.window);
        while bits != 0 {
            let step = match self.mode {
                // The last step first, so that no event follows another of the same time.
                Mode::StrictIncrease => 31 - bits.leading_zeros(),
                _ => bits.trailing_zeros(),
            };
            bits &= !(1 << step);
            let (step, before) = (step as usize, until[step as usize]);
            until[step + 1] = if time <= before { before } else { until[step + 1] };
        }
    }
}

/// What is known of the chains so far.
struct Chains {
    /// Per reached step, the latest start of a chain that reached it.
    latest: [i64; CONDITIONS_MAX],
    reached: usize,
    /// Of the first chain that was as long as the longest.
    start: i64,
    window: i64,
}

impl Chains {
    fn new(window: i64) -> Self {
        Self { latest: [0; CONDITIONS_MAX], reached: 0, start: 0, window }
    }

    /// An event of a step, from 0.
    fn pass(&mut self, step: usize, time: i64) {
        let start = match step {
            0 => time,
            _ if step > self.reached => return,
            _ => self.latest[step - 1],
        };
        if time > start.saturating_add(self.window) {
            return;
        }
        self.latest[step] = start;
        if step == self.reached {
            (self.reached, self.start) = (step + 1, start);
        }
    }

    fn ascending(&mut self, mut bits: u32, time: i64) -> bool {
        while bits != 0 {
            self.pass(bits.trailing_zeros() as usize, time);
            bits &= bits - 1;
        }
        true
    }

    /// The last step first, so that no event follows another of the same time.
    fn descending(&mut self, mut bits: u32, time: i64) -> bool {
        while bits != 0 {
            let step = 31 - bits.leading_zeros();
            self.pass(step as usize, time);
            bits &= !(1 << step);
        }
        true
    }

    fn without_repeats<M: Mask>(&mut self, mut bits: u32, same: &[M], time: i64) -> bool {
        while bits != 0 {
            let step = bits.trailing_zeros() as usize;
            bits &= bits - 1;
            for _ in same.iter().filter(|mask| mask.bits() >> step & 1 == 1) {
                if step > 0 && step < self.reached {
                    return false;
                }
                self.pass(step, time);
            }
        }
        true
    }

    fn in_order<M: Mask>(&mut self, mut bits: u32, same: &[M], time: i64) -> bool {
        if self.reached > 0 && same.iter().any(|mask| mask.bits() == 0) {
            return false;
        }
        while bits != 0 {
            let step = bits.trailing_zeros() as usize;
            bits &= bits - 1;
            if self.reached > 0 && step > self.reached {
                return false;
            }
            self.pass(step, time);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// An event: time, and its step from 1; 0 for a row without a condition.
    type Event = (i64, usize);

    /// The longest chain by trying them all.
    fn longest(events: &[Event], window: i64, steps: usize, strictly: bool) -> usize {
        fn from(
            events: &[Event],
            at: usize,
            chain: (i64, i64, usize),
            window: i64,
            steps: usize,
            strictly: bool,
        ) -> usize {
            let (start, last, length) = chain;
            let mut most = length;
            for (i, (time, step)) in events.iter().enumerate().skip(at) {
                let later = !strictly || length == 0 || *time > last;
                let inside = length == 0 || *time - start <= window;
                if *step == length + 1 && length < steps && later && inside {
                    let start = if length == 0 { *time } else { start };
                    let chain = (start, *time, length + 1);
                    most = most.max(from(events, i + 1, chain, window, steps, strictly));
                }
            }
            most
        }
        from(events, 0, (0, 0, 0), window, steps, strictly)
    }

    /// The events that the table of the module's text lets count, word by word, in order.
    fn counted(mut events: Vec<Event>, funnel: Funnel) -> Vec<Event> {
        events.sort_unstable();
        let Funnel { window, mode, steps } = funnel;
        let reached = |until: usize| longest(&events[..until], window, steps, false);
        let end = (0..events.len()).find(|&i| {
            let step = events[i].1;
            match mode {
                Mode::Default | Mode::StrictIncrease => false,
                Mode::StrictDedup => step >= 2 && reached(i) >= step,
                Mode::StrictOrder => reached(i) > 0 && (step == 0 || step > reached(i) + 1),
            }
        });
        events.truncate(end.unwrap_or(events.len()));
        events
    }

    /// The chain that [`Funnel::passed`] promises, among all of them.
    fn best_chain(events: &[Event], funnel: Funnel) -> Vec<i64> {
        fn chains(events: &[Event], chain: &mut Vec<i64>, funnel: Funnel, all: &mut Vec<Vec<i64>>) {
            all.push(chain.clone());
            for (i, (time, step)) in events.iter().enumerate() {
                let strictly = funnel.mode == Mode::StrictIncrease;
                let later = chain.last().is_none_or(|last| !strictly || time > last);
                let inside = chain.first().is_none_or(|start| time - start <= funnel.window);
                if *step == chain.len() + 1 && later && inside {
                    chain.push(*time);
                    chains(&events[i + 1..], chain, funnel, all);
                    chain.pop();
                }
            }
        }
        let mut all = Vec::new();
        chains(events, &mut Vec::new(), funnel, &mut all);
        let longest = all.iter().map(Vec::len).max().unwrap_or(0);
        let rank =
            |chain: &Vec<i64>| (chain.last().copied(), chain.first().map(|t| -t), chain.clone());
        all.into_iter().filter(|chain| chain.len() == longest).min_by_key(rank).unwrap_or_default()
    }

    #[test]
    fn every_mode_is_the_longest_of_all_chains_before_its_end() {
        let modes = [Mode::Default, Mode::StrictOrder, Mode::StrictIncrease, Mode::StrictDedup];
        let mut levels = [[0; 6]; 4];
        for seed in 0..40_000 {
            let mut random = Random::new(seed);
            let steps = 1 + random.below(4) as usize;
            let mode = random.below(4) as usize;
            let window = random.below(12) as i64;
            let funnel = Funnel { window, mode: modes[mode], steps };
            let (rows, span) = (random.below(9), 1 + random.below(12));
            let mut rows: Vec<(i64, u32)> = (0..rows)
                .map(|_| (random.below(span) as i64, random.below(1 << steps) as u32))
                .collect();
            let mut events = Vec::new();
            for (time, mask) in &rows {
                let met = (1..=steps).filter(|step| mask >> (step - 1) & 1 == 1);
                events.extend(met.map(|step| (*time, step)));
                if *mask == 0 {
                    events.push((*time, 0));
                }
            }
            random.shuffle(&mut rows);
            rows.sort_by_key(|row| row.0);
            let (times, masks): (Vec<i64>, Vec<u32>) = rows.iter().copied().unzip();
            let level = funnel.level(&times, &masks);
            if let Some(ongoing) = Ongoing::new(funnel) {
                assert_eq!(level_as_they_come(ongoing, &times, &masks, &mut random), level);
            }
            let counted = counted(events, funnel);
            let passed = funnel.passed(&times, &masks);
            assert_eq!(passed, best_chain(&counted, funnel), "seed {seed}: {funnel:?} {rows:?}");
            assert_eq!(passed.len(), level, "seed {seed}: {funnel:?} {rows:?}");
            let strictly = funnel.mode == Mode::StrictIncrease;
            let longest = longest(&counted, window, steps, strictly);
            assert_eq!(level, longest, "seed {seed}: {funnel:?} {rows:?}");
            levels[mode][level] += 1;
        }
        for of_mode in levels {
            assert!(of_mode[..5].iter().all(|count| *count > 20), "cases too easy: {levels:?}");
        }
    }

    /// The rows of one group among others, by and by.
    fn level_as_they_come(
        mut ongoing: Ongoing,
        times: &[i64],
        masks: &[u32],
        random: &mut Random,
    ) -> usize {
        let mut from = 0;
        let mut others = 0;
        while from < times.len() {
            let rows = 1 + random.below((times.len() - from) as u64) as usize;
            let here = from..from + rows;
            let run = |group| [RowRun { end: rows, group }];
            assert!(ongoing.add(&run(1), &times[here.clone()], &masks[here], others + 2));
            others += random.below(3) as usize;
            assert!(ongoing.add(&run(0), &vec![from as i64; rows], &vec![1u32; rows], others + 2));
            from += rows;
        }
        let first = ongoing.take(EmitTo::First(1), others + 2);
        assert_eq!(first, [usize::from(from > 0)]);
        ongoing.take(EmitTo::All, others + 1)[0]
    }

    #[test]
    fn rows_that_do_not_come_in_the_order_of_time_are_noticed() {
        let funnel = Funnel { window: 5, mode: Mode::Default, steps: 2 };
        let run = |group| [RowRun { end: 2, group }];
        let ongoing = || Ongoing::new(funnel).unwrap();
        assert!(ongoing().add(&run(0), &[3, 3], &[1u8, 2], 1));
        assert!(!ongoing().add(&run(0), &[3, 2], &[1u8, 2], 1));
        assert!(!ongoing().add(&run(0), &[i64::MIN, 2], &[1u8, 2], 1));
        let mut later = ongoing();
        assert!(later.add(&run(0), &[3, 4], &[1u8, 2], 1));
        assert!(later.add(&run(1), &[1, 2], &[1u8, 2], 2));
        assert!(!later.add(&run(0), &[3, 4], &[1u8, 2], 2));
        assert!(Ongoing::new(Funnel { mode: Mode::StrictOrder, ..funnel }).is_none());
        assert!(Ongoing::new(Funnel { mode: Mode::StrictDedup, ..funnel }).is_none());
    }

    #[test]
    fn published_examples() {
        let mode = |name: &str| Mode::of_name(name).unwrap();
        let level = |mode: Mode, events: &[(i64, u32)]| {
            let (times, masks): (Vec<i64>, Vec<u32>) = events.iter().copied().unzip();
            Funnel { window: 10, mode, steps: 4 }.level(&times, &masks)
        };
        let (a, b, c, d) = (1, 2, 4, 8);
        assert_eq!(level(mode("default"), &[(0, a), (1, b), (2, d), (3, c), (11, d)]), 3);
        assert_eq!(level(mode("strict_order"), &[(0, a), (1, b), (2, d), (3, c)]), 2);
        assert_eq!(level(mode("STRICT_DEDUP"), &[(0, a), (1, b), (2, c), (3, b), (4, d)]), 3);
        assert_eq!(level(mode("strict_increase"), &[(0, a), (1, b), (2, c), (2, d)]), 3);
        assert_eq!(level(mode("strict_increase"), &[(1, a), (2, b), (3, b), (3, c)]), 3);
    }

    #[test]
    fn a_window_at_the_end_of_time_does_not_overflow() {
        let funnel = Funnel { window: i64::MAX, mode: Mode::Default, steps: 2 };
        assert_eq!(funnel.level(&[i64::MAX - 1, i64::MAX], &[1u8, 2]), 2);
        assert_eq!(funnel.level(&[i64::MIN, i64::MAX], &[1u8, 2]), 1);
    }
}
