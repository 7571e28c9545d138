//! Which parts are done a second time because they are late.
//!
//! A part that takes much longer than the others is on a node that is slow, stopped or cut off. A copy
//! on another node is started while the first goes on; the first to end wins. Copies cost work, so
//! they are few: [`Copies`] bounds them over all queries.

use std::collections::VecDeque;
use std::time::Duration;

/// A part is late after this many times the median of those that are done,
const TIMES_MEDIAN: u32 = 2;
/// and by this much at least: less is noise, and a copy costs about this.
const LATE_MIN: Duration = Duration::from_millis(200);
/// Copies may be this share of the parts of the last minute.
const COPIES_PER_PARTS: usize = 10;
const WINDOW: Duration = Duration::from_secs(60);

/// The parts of one query, and when each began and ended.
#[derive(Debug)]
pub struct Parts {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, Default)]
struct Part {
    began: Duration,
    took: Option<Duration>,
    copied: bool,
}

impl Parts {
    /// `count` parts that all begin at `now`.
    #[must_use]
    pub fn begin(count: usize, now: Duration) -> Self {
        Self { parts: vec![Part { began: now, ..Part::default() }; count] }
    }

    /// The part `number` is done. Said again, by its copy, it changes nothing.
    pub fn done(&mut self, number: usize, now: Duration) {
        let part = &mut self.parts[number];
        part.took.get_or_insert(now.saturating_sub(part.began));
    }

    /// The part `number` begins anew, elsewhere: its node was lost.
    pub fn again(&mut self, number: usize, now: Duration) {
        self.parts[number] = Part { began: now, ..Part::default() };
    }

    /// The parts to start a copy of, each named once, as far as `copies` allows.
    ///
    /// A part is late when at least half of the parts are done and it takes longer than twice their
    /// median and than the median and 200 ms.
    pub fn late(&mut self, now: Duration, copies: &mut Copies) -> Vec<usize> {
        self.late_at(now, copies, now)
    }

    /// The same where `copies` has another clock than the parts: the moment is `at` for it.
    pub fn late_at(&mut self, now: Duration, copies: &mut Copies, at: Duration) -> Vec<usize> {
        let Some(limit) = self.limit() else { return Vec::new() };
        let mut late = Vec::new();
        for (number, part) in self.parts.iter_mut().enumerate() {
            let runs = part.took.is_none() && !part.copied;
            if runs && now.saturating_sub(part.began) > limit && copies.take(at) {
                part.copied = true;
                late.push(number);
            }
        }
        late
    }

    /// When [`Parts::late`] may have an answer, if no part ends before: the time to sleep until.
    #[must_use]
    pub fn look_at(&self) -> Option<Duration> {
        let limit = self.limit()?;
        let running = self.parts.iter().filter(|part| part.took.is_none() && !part.copied);
        running.map(|part| part.began + limit).min()
    }

    fn limit(&self) -> Option<Duration> {
        let mut took: Vec<Duration> = self.parts.iter().filter_map(|part| part.took).collect();
        if took.is_empty() || took.len() * 2 < self.parts.len() {
            return None;
        }
        took.sort_unstable();
        let median = took[took.len() / 2];
        Some((median * TIMES_MEDIAN).max(median + LATE_MIN))
    }
}

/// How many copies a coordinator may start: one for ten parts of the last minute.
#[derive(Debug, Default)]
pub struct Copies {
    parts: VecDeque<(Duration, usize)>,
    copies: VecDeque<Duration>,
}

impl Copies {
    /// A query of `parts` parts begins.
    pub fn begin(&mut self, parts: usize, now: Duration) {
        self.forget(now);
        self.parts.push_back((now, parts));
    }

    /// Takes one copy, if there is one left. A query of few parts on an idle coordinator has one.
    pub fn take(&mut self, now: Duration) -> bool {
        self.forget(now);
        let parts: usize = self.parts.iter().map(|(_, parts)| parts).sum();
        let left = self.copies.len() < parts.div_ceil(COPIES_PER_PARTS);
        if left {
            self.copies.push_back(now);
        }
        left
    }

    fn forget(&mut self, now: Duration) {
        let old = |at: Duration| now.saturating_sub(at) > WINDOW;
        while self.parts.front().is_some_and(|(at, _)| old(*at)) {
            self.parts.pop_front();
        }
        while self.copies.front().is_some_and(|at| old(*at)) {
            self.copies.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn copies() -> Copies {
        let mut copies = Copies::default();
        copies.begin(1000, ms(0));
        copies
    }

    #[test]
    fn a_part_is_late_by_twice_the_median_once_half_are_done() {
        let (mut parts, mut copies) = (Parts::begin(4, ms(100)), copies());
        assert_eq!(parts.late(ms(90_000), &mut copies), [0; 0], "nothing to compare with");
        parts.done(0, ms(1100));
        assert_eq!(parts.late(ms(90_000), &mut copies), [0; 0], "a quarter is done");
        parts.done(2, ms(1300));
        assert_eq!(parts.look_at(), Some(ms(100 + 2400)), "twice 1,200 ms");
        assert_eq!(parts.late(ms(2500), &mut copies), [0; 0]);
        assert_eq!(parts.late(ms(2501), &mut copies), [1, 3]);
        assert_eq!(parts.late(ms(9000), &mut copies), [0; 0], "each has one copy");
        assert_eq!(parts.look_at(), None);
    }

    #[test]
    fn short_parts_are_late_by_200_ms() {
        let (mut parts, mut copies) = (Parts::begin(3, ms(0)), copies());
        parts.done(0, ms(3));
        parts.done(1, ms(5));
        assert_eq!(parts.late(ms(205), &mut copies), [0; 0]);
        assert_eq!(parts.late(ms(206), &mut copies), [2]);
    }

    #[test]
    fn a_part_that_begins_anew_is_late_by_its_own_time() {
        let (mut parts, mut copies) = (Parts::begin(2, ms(0)), copies());
        parts.done(0, ms(1000));
        parts.again(1, ms(1500));
        assert_eq!(parts.late(ms(3500), &mut copies), [0; 0]);
        assert_eq!(parts.late(ms(3501), &mut copies), [1]);
        parts.done(1, ms(4000));
        parts.done(1, ms(9000));
        assert_eq!(parts.parts[1].took, Some(ms(2500)), "its copy ends, too");
    }

    #[test]
    fn copies_are_a_tenth_of_the_parts_of_a_minute() {
        let mut copies = Copies::default();
        assert!(!copies.take(ms(0)), "no parts");
        copies.begin(3, ms(0));
        assert!(copies.take(ms(10)), "a small query has one");
        assert!(!copies.take(ms(20)));
        copies.begin(30, ms(1000));
        let taken = (0..10).filter(|_| copies.take(ms(1001))).count();
        assert_eq!(taken, 3, "four of 33 parts, and one was taken");
        assert!(!copies.take(ms(59_000)));
        copies.begin(3, ms(70_000));
        assert!(copies.take(ms(70_001)), "a minute later all is forgotten");
        assert!(!copies.take(ms(70_002)));
    }
}
