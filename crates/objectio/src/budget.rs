//! How many requests per second a store takes, learned from its refusals.
//!
//! S3 takes 5,500 reads and 3,500 writes a second per prefix and answers 503 beyond; a fresh prefix
//! or another provider takes fewer. Requests get their time from a token bucket; a refusal lowers
//! its rate to what got through lately, and time raises it again.
//!
//! # Invariants
//! - A refusal of a request sent before the last cut does not cut again.
//! - Nothing waits without bound: a wait is the number of requests before it over the rate.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

/// Tokens that were not used are kept for this long.
const BURST: Duration = Duration::from_millis(20);
/// After a refusal: this share of what got through.
const CUT: f64 = 0.85;
/// Without anything known to have got through.
const BLIND_CUT: f64 = 0.5;
/// The rate grows by this share of itself per second.
const RAISE_PER_SECOND: f64 = 0.05;
/// What got through is counted in windows of this length.
const WINDOW: Duration = Duration::from_millis(500);
/// A first cut may not go by less time than this.
const SHORTEST_WINDOW: Duration = Duration::from_millis(50);
const LEAST_RATE: f64 = 1.0;
/// Prefixes that are told apart; further ones share a bucket.
const MOST_BUCKETS: usize = 256;

/// The token buckets of one client.
#[derive(Debug)]
pub(crate) struct Budget {
    reads_per_second: f64,
    writes_per_second: f64,
    buckets: Mutex<HashMap<Key, Bucket>>,
}

/// Which bucket a request draws from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) prefix: String,
    pub(crate) writes: bool,
}

impl Budget {
    pub(crate) fn new(reads_per_second: f64, writes_per_second: f64) -> Self {
        Self { reads_per_second, writes_per_second, buckets: Mutex::default() }
    }

    /// How long the next request must wait; its place is taken with the call.
    pub(crate) fn reserve(&self, key: &Key, now: Duration) -> Duration {
        self.with(key, now, |bucket| bucket.reserve(now))
    }

    /// A request sent at `sent` was answered.
    pub(crate) fn accepted(&self, key: &Key, now: Duration) {
        self.with(key, now, |bucket| bucket.accepted(now));
    }

    /// A request sent at `sent` was refused.
    pub(crate) fn refused(&self, key: &Key, sent: Duration, now: Duration) {
        self.with(key, now, |bucket| bucket.refused(sent, now));
    }

    fn with<T>(&self, key: &Key, now: Duration, act: impl FnOnce(&mut Bucket) -> T) -> T {
        let mut buckets = self.buckets.lock();
        let rate = if key.writes { self.writes_per_second } else { self.reads_per_second };
        if !buckets.contains_key(key) && buckets.len() >= MOST_BUCKETS {
            let shared = Key { prefix: String::new(), writes: key.writes };
            return act(buckets.entry(shared).or_insert_with(|| Bucket::new(rate, now)));
        }
        act(buckets.entry(key.clone()).or_insert_with(|| Bucket::new(rate, now)))
    }
}

#[derive(Debug, Clone)]
struct Bucket {
    /// Requests per second now.
    rate: f64,
    ceiling: f64,
    /// When the next token is free.
    next: Duration,
    raised: Duration,
    cut: Option<Duration>,
    window: Duration,
    got_through: u32,
    /// Requests per second of the window before.
    before: Option<f64>,
}

impl Bucket {
    fn new(rate: f64, now: Duration) -> Self {
        Self {
            rate,
            ceiling: rate,
            next: now,
            raised: now,
            cut: None,
            window: now,
            got_through: 0,
            before: None,
        }
    }

    fn reserve(&mut self, now: Duration) -> Duration {
        let idle = now.saturating_sub(self.raised).as_secs_f64();
        self.rate = (self.rate * (1.0 + RAISE_PER_SECOND * idle)).min(self.ceiling);
        self.raised = now;
        let earliest = self.next.max(now.saturating_sub(BURST));
        self.next = earliest + Duration::from_secs_f64(1.0 / self.rate);
        earliest.saturating_sub(now)
    }

    fn accepted(&mut self, now: Duration) {
        let took = now.saturating_sub(self.window);
        if took >= WINDOW {
            self.before = Some(f64::from(self.got_through) / took.as_secs_f64());
            self.window = now;
            self.got_through = 0;
        }
        self.got_through += 1;
    }

    fn refused(&mut self, sent: Duration, now: Duration) {
        if self.cut.is_some_and(|cut| sent <= cut) {
            return;
        }
        let took = now.saturating_sub(self.window);
        let measured = if took >= SHORTEST_WINDOW && self.got_through > 0 {
            Some(f64::from(self.got_through) / took.as_secs_f64())
        } else {
            self.before
        };
        let target = match measured {
            Some(rate) => (rate * CUT).min(self.rate * CUT),
            None => self.rate * BLIND_CUT,
        };
        // A measurement of a moment may be far too low; several cuts get there as well.
        self.rate = target.max(self.rate * 0.2).max(LEAST_RATE);
        self.cut = Some(now);
        self.raised = now;
        // Places that were given at the old rate are kept; new ones come after them.
        self.next = self.next.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    const READS: fn() -> Key = || Key { prefix: "bucket/events".to_owned(), writes: false };

    /// `readers` ask a store that takes `limit` a second, until `wanted` were answered; returns
    /// refusals and seconds.
    fn run(limit: f64, readers: usize, wanted: usize) -> (usize, f64) {
        let budget = Budget::new(5500.0, 3500.0);
        let key = READS();
        let (mut answered, mut refusals) = (0, 0);
        let (mut window, mut in_window) = (Duration::ZERO, 0.0);
        // When a reader acts, and whether it sends or has its answer (sent when, granted or not).
        let mut events = BinaryHeap::new();
        let mut now = Duration::ZERO;
        for reader in 0..readers {
            let wait = budget.reserve(&key, now);
            events.push(Reverse((now + wait, reader, None)));
        }
        while answered < wanted {
            let Reverse((at, reader, answer)) = events.pop().expect("readers never end");
            now = at;
            match answer {
                None => {
                    if now - window >= Duration::from_millis(100) {
                        (window, in_window) = (now, 0.0);
                    }
                    in_window += 1.0;
                    let granted = in_window <= limit / 10.0;
                    let takes = Duration::from_millis(if granted { 20 } else { 5 });
                    events.push(Reverse((now + takes, reader, Some((now, granted)))));
                }
                Some((sent, granted)) => {
                    if granted {
                        answered += 1;
                        budget.accepted(&key, now);
                    } else {
                        refusals += 1;
                        budget.refused(&key, sent, now);
                    }
                    let wait = budget.reserve(&key, now);
                    events.push(Reverse((now + wait, reader, None)));
                }
            }
        }
        (refusals, now.as_secs_f64())
    }

    #[test]
    fn a_throttled_store_is_asked_hardly_more_than_it_answers() {
        for (limit, readers) in [(200.0, 32), (200.0, 128), (50.0, 32), (1000.0, 128)] {
            let (refusals, seconds) = run(limit, readers, 3000);
            let per_answer = 1.0 + refusals as f64 / 3000.0;
            assert!(per_answer <= 1.3, "{limit}/s, {readers} readers: {per_answer} per answer");
            let share = 3000.0 / seconds / limit;
            assert!(share >= 0.75, "{limit}/s, {readers} readers: {share} of the limit is used");
        }
    }

    #[test]
    fn a_store_that_refuses_nothing_is_not_slowed() {
        let (refusals, seconds) = run(1e9, 32, 10_000);
        assert_eq!(refusals, 0);
        assert!(seconds < 10_000.0 / 32.0 * 0.020 * 1.2, "{seconds} s");
    }

    #[test]
    fn the_rate_comes_back_after_the_storm() {
        let mut bucket = Bucket::new(100.0, Duration::ZERO);
        for second in 1..10 {
            bucket.refused(Duration::from_secs(second), Duration::from_secs(second));
        }
        assert!(bucket.rate < 2.0, "{}", bucket.rate);
        for second in 10..200 {
            bucket.reserve(Duration::from_secs(second));
        }
        assert!(bucket.rate > 99.0, "{}", bucket.rate);
    }

    #[test]
    fn prefixes_beyond_the_limit_share_a_bucket() {
        let budget = Budget::new(10.0, 10.0);
        for i in 0..1000 {
            budget.reserve(&Key { prefix: i.to_string(), writes: false }, Duration::ZERO);
        }
        assert!(budget.buckets.lock().len() <= MOST_BUCKETS + 2);
    }
}
