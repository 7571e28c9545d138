//! When a request counts as slow, and how many second requests may be sent for slow ones.
//!
//! # Invariants
//! - Hedges never exceed `HEDGES_AT_START` plus `budget` times the requests made.
//!
//! # Not here
//! No clock and no request: durations in, decisions out.

use std::time::Duration;

use parking_lot::Mutex;

/// Durations remembered per size class; with fewer than [`MIN_SAMPLES`] the delay is a guess.
const SAMPLES: usize = 256;
const MIN_SAMPLES: usize = 20;
/// Size classes are powers of 4 from 64 KiB: <= 64 KiB, 256 KiB, 1 MiB, 4 MiB, 16 MiB, more.
const CLASSES: usize = 6;
const SMALLEST_CLASS_BITS: u32 = 16;
/// Before anything is known: 200 ms for the first byte, then 20 MB/s.
/// With one of 8 addresses dead the first call then waits 200 ms and not a time-out.
const FIRST_DELAY: Duration = Duration::from_millis(200);
const FIRST_BYTES_PER_MS: u64 = 20_000;
/// From this many samples on, before there are enough: this many times their median, which with S3's
/// spread one healthy request in 1,000 exceeds, and at least so long.
const FEW_SAMPLES: usize = 8;
const MEDIANS: f64 = 3.0;
const SHORTEST_DELAY_BY_FEW: Duration = Duration::from_millis(60);
/// A hedge waits this much longer than the p95. With S3's spread (sigma 0.35 of a lognormal) 1.1
/// leaves 2.8 % of healthy requests above it, so that with 1 % of tail the budget is kept.
const MARGIN: f64 = 1.1;
/// Below this a second request costs more than it saves.
const SHORTEST_DELAY: Duration = Duration::from_millis(10);
/// Hedges that are allowed before any request has earned one, and the most that can be saved up.
pub(crate) const HEDGES_AT_START: f64 = 16.0;

/// How long requests take, by size, and the budget of hedges.
#[derive(Debug)]
pub(crate) struct Pace {
    budget: f64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    classes: [Class; CLASSES],
    /// Hedges that may be sent now.
    tokens: f64,
}

#[derive(Debug, Default)]
struct Class {
    /// Seconds; a ring once it holds [`SAMPLES`].
    samples: Vec<f32>,
    next: usize,
    /// Of `samples`; recomputed when `stale` samples were added.
    p95: f32,
    stale: usize,
}

impl Pace {
    /// `budget`: hedges per request, 0.05 for 5 %; 0 turns hedging off.
    pub(crate) fn new(budget: f64) -> Self {
        let tokens = if budget > 0.0 { HEDGES_AT_START } else { 0.0 };
        Self { budget, state: Mutex::new(State { classes: Default::default(), tokens }) }
    }

    /// How long a request for `len` bytes may take before a second one is worth it; `None` if
    /// hedging is off.
    pub(crate) fn delay(&self, len: u64) -> Option<Duration> {
        if self.budget <= 0.0 {
            return None;
        }
        let mut state = self.state.lock();
        let class = &mut state.classes[class_of(len)];
        if class.samples.len() < MIN_SAMPLES {
            let guess = FIRST_DELAY + Duration::from_millis(len / FIRST_BYTES_PER_MS);
            return Some(class.few().map_or(guess, |few| guess.min(few)));
        }
        let p95 = f64::from(class.p95());
        Some(Duration::from_secs_f64(p95 * MARGIN).max(SHORTEST_DELAY))
    }

    /// A request for `len` bytes took `took`, or was given up after it: then the true duration is
    /// longer still, which is all the p95 needs to know.
    pub(crate) fn record(&self, len: u64, took: Duration) {
        self.state.lock().classes[class_of(len)].record(took.as_secs_f32());
    }

    /// A request was made: it earns its share of a hedge.
    pub(crate) fn earn(&self) {
        let mut state = self.state.lock();
        state.tokens = (state.tokens + self.budget).min(HEDGES_AT_START);
    }

    /// Takes one hedge from the budget, if there is one.
    pub(crate) fn try_hedge(&self) -> bool {
        let mut state = self.state.lock();
        let may = state.tokens >= 1.0;
        if may {
            state.tokens -= 1.0;
        }
        may
    }
}

fn class_of(len: u64) -> usize {
    let bits = u64::BITS - len.max(1).saturating_sub(1).leading_zeros();
    (bits.saturating_sub(SMALLEST_CLASS_BITS).div_ceil(2) as usize).min(CLASSES - 1)
}

impl Class {
    fn record(&mut self, seconds: f32) {
        if self.samples.len() < SAMPLES {
            self.samples.push(seconds);
        } else {
            self.samples[self.next] = seconds;
            self.next = (self.next + 1) % SAMPLES;
        }
        self.stale += 1;
    }

    /// The delay after a few requests.
    fn few(&self) -> Option<Duration> {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f32::total_cmp);
        let median = sorted.get(sorted.len() / 2).filter(|_| sorted.len() >= FEW_SAMPLES)?;
        Some(Duration::from_secs_f64(f64::from(*median) * MEDIANS).max(SHORTEST_DELAY_BY_FEW))
    }

    fn p95(&mut self) -> f32 {
        // A selection over 256 floats takes 1-2 us; every 8th request pays it.
        if self.stale >= 8 || self.p95 == 0.0 {
            let mut sorted = self.samples.clone();
            let at = (sorted.len() * 95 / 100).min(sorted.len() - 1);
            let (_, p95, _) = sorted.select_nth_unstable_by(at, f32::total_cmp);
            self.p95 = *p95;
            self.stale = 0;
        }
        self.p95
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn sizes_fall_into_powers_of_four() {
        for (len, class) in [
            (0, 0),
            (1, 0),
            (64 << 10, 0),
            ((64 << 10) + 1, 1),
            (256 << 10, 1),
            (1 << 20, 2),
            (4 << 20, 3),
            (8 << 20, 4),
            (16 << 20, 4),
            (u64::MAX, 5),
        ] {
            assert_eq!(class_of(len), class, "{len} bytes");
        }
    }

    #[test]
    fn delay_follows_the_p95_of_its_size_class() {
        let pace = Pace::new(0.05);
        assert_eq!(pace.delay(1000), Some(200 * MS));
        assert_eq!(pace.delay(8 << 20), Some(200 * MS + 419 * MS));
        for i in 1..=100 {
            pace.record(1000, i * MS);
        }
        let delay = pace.delay(1000).expect("hedging is on");
        assert!(delay > 104 * MS && delay < 107 * MS, "{delay:?}"); // 1.1 x 96 ms
        assert_eq!(pace.delay(1 << 20), Some(200 * MS + 52 * MS), "another class knows nothing");
    }

    #[test]
    fn a_few_requests_say_what_is_far_too_slow() {
        let pace = Pace::new(0.05);
        for i in 0..7 {
            pace.record(1000, (20 + i) * MS);
        }
        assert_eq!(pace.delay(1000), Some(200 * MS), "seven say nothing");
        pace.record(1000, 500 * MS);
        let delay = pace.delay(1000).expect("hedging is on");
        assert!(delay > 71 * MS && delay < 73 * MS, "{delay:?}"); // 3 x 24 ms
        for _ in 0..8 {
            pace.record(1000, MS);
        }
        assert_eq!(pace.delay(1000), Some(60 * MS), "a loaded machine is not a slow store");
    }

    #[test]
    fn hedges_stay_within_the_budget() {
        let pace = Pace::new(0.05);
        let mut hedges = 0;
        for _ in 0..10_000 {
            pace.earn();
            hedges += u32::from(pace.try_hedge());
        }
        assert!((500..=516).contains(&hedges), "{hedges} hedges for 10,000 requests");
    }

    #[test]
    fn a_budget_of_zero_turns_hedging_off() {
        let pace = Pace::new(0.0);
        pace.earn();
        assert!(pace.delay(1).is_none() && !pace.try_hedge());
    }
}
