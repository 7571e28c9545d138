//! How many requests per second a store takes, learned from its refusals.
//!
//! S3 takes 5,500 reads and 3,500 writes a second per prefix and answers 503 beyond; a fresh prefix
//! or another provider takes fewer. Requests get their time from a token bucket whose rate follows
//! the *share* of refusals: a store that is busy for a moment refuses one of twenty at any rate, and
//! slowing down for those would end at one request per second. From one of ten on the rate falls to
//! what got through; below one of fifty it grows again.
//!
//! # Invariants
//! - A refusal of a request sent before the last cut does not cut again.
//! - Nothing waits without bound: a wait is the number of requests before it over the rate.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

/// Tokens that were not used are kept for this long.
const BURST: Duration = Duration::from_millis(20);
/// The rate after a cut, as a share of what got through. A little above, so that the share of
/// refusals stays between the two bounds and the rate stays where it is.
const KEPT: f64 = 1.04;
/// If nothing got through.
const BLIND_CUT: f64 = 0.5;
/// Shares of refusals from which on the rate falls, and below which it grows.
const TOO_MANY: f64 = 0.10;
const FEW: f64 = 0.02;
/// How much it grows per window.
const RAISE: f64 = 1.25;
/// The share is taken of the answers of so long a time, and of so many at least.
const WINDOW: Duration = Duration::from_millis(500);
const LEAST_ANSWERS: u32 = 20;
/// A storm of refusals is not watched for a whole window; stores count in tenths of seconds too.
const STORM: u32 = 12;
const STORM_WINDOW: Duration = Duration::from_millis(100);
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

    /// A request was answered.
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
    cut: Option<Duration>,
    /// Start of the window and its answers.
    window: Duration,
    accepted: u32,
    refused: u32,
}

impl Bucket {
    fn new(rate: f64, now: Duration) -> Self {
        let next = now.saturating_sub(BURST);
        Self { rate, ceiling: rate, next, cut: None, window: now, accepted: 0, refused: 0 }
    }

    fn reserve(&mut self, now: Duration) -> Duration {
        let earliest = self.next.max(now.saturating_sub(BURST));
        self.next = earliest + Duration::from_secs_f64(1.0 / self.rate);
        earliest.saturating_sub(now)
    }

    fn accepted(&mut self, now: Duration) {
        self.accepted += 1;
        self.judge(now);
    }

    fn refused(&mut self, sent: Duration, now: Duration) {
        if self.cut.is_none_or(|cut| sent > cut) {
            self.refused += 1;
            self.judge(now);
        }
    }

    fn judge(&mut self, now: Duration) {
        let took = now.saturating_sub(self.window);
        let answers = self.accepted + self.refused;
        let is_storm =
            self.refused >= STORM && self.refused > self.accepted && took >= STORM_WINDOW;
        if !is_storm && (took < WINDOW || answers < LEAST_ANSWERS) {
            return;
        }
        let share = f64::from(self.refused) / f64::from(answers);
        if share > TOO_MANY {
            let got_through = f64::from(self.accepted) / took.as_secs_f64().max(1e-3);
            let target = (got_through * KEPT).min(self.rate);
            // A storm is a short measurement; halving a few times gets there as well.
            let floor = self.rate * if is_storm { BLIND_CUT } else { 0.0 };
            self.rate = target.max(floor).max(LEAST_RATE);
            self.cut = Some(now);
            // Places that were given at the old rate are kept; new ones come after them.
            self.next = self.next.max(now);
        } else if share < FEW {
            self.rate = (self.rate * RAISE).min(self.ceiling);
        }
        (self.window, self.accepted, self.refused) = (now, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    const READS: fn() -> Key = || Key { prefix: "bucket/events".to_owned(), writes: false };

    /// The end of a backoff.
    const WOKEN: Option<(Duration, bool)> = Some((Duration::MAX, false));

    /// `readers` ask a store that takes `limit` a second, until `wanted` were answered; a refused
    /// one waits as the connections do. Returns refusals and seconds.
    fn run(limit: f64, readers: usize, wanted: usize) -> (usize, f64) {
        let budget = Budget::new(5500.0, 3500.0);
        let key = READS();
        let (mut answered, mut refusals) = (0, 0);
        let (mut window, mut in_window) = (Duration::ZERO, 0.0);
        let mut in_a_row = vec![0u32; readers];
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
                WOKEN => {
                    let wait = budget.reserve(&key, now);
                    events.push(Reverse((now + wait, reader, None)));
                }
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
                        in_a_row[reader] = 0;
                        budget.accepted(&key, now);
                    } else {
                        refusals += 1;
                        in_a_row[reader] += 1;
                        budget.refused(&key, sent, now);
                        let backoff = 75 << (in_a_row[reader] - 1).min(4);
                        events.push(Reverse((now + Duration::from_millis(backoff), reader, WOKEN)));
                        continue;
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
    fn refusals_that_do_not_depend_on_the_rate_do_not_slow() {
        let mut bucket = Bucket::new(1000.0, Duration::ZERO);
        for i in 0..100_000u64 {
            let now = Duration::from_millis(i);
            if i % 20 == 0 { bucket.refused(now, now) } else { bucket.accepted(now) }
        }
        assert!((bucket.rate - 1000.0).abs() < 1e-9, "{}", bucket.rate);
    }

    #[test]
    fn the_rate_comes_back_after_the_storm() {
        let mut bucket = Bucket::new(100.0, Duration::ZERO);
        for i in 0..2000 {
            bucket.refused(Duration::from_millis(i), Duration::from_millis(i));
        }
        assert!(bucket.rate < 2.0, "{}", bucket.rate);
        let mut now = Duration::from_secs(2);
        for _ in 0..2000 {
            now += bucket.reserve(now) + Duration::from_millis(1);
            bucket.accepted(now);
        }
        assert!(bucket.rate > 99.0, "{} after {now:?}", bucket.rate);
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
