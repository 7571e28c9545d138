//! Who has computed more than its share lately, and goes behind the others.
//!
//! The share of one that is there is its weight's part of all cores. What it has used fades, so that whoever computes at
//! a steady rate of `r` cores has `r` times [`MEMORY_SECONDS`].
//!
//! # Invariants
//! - One that is there alone is never behind.
//! - Of those that are there, the one that has used least for its weight is never behind.
//! - Who goes before others has had no more than its share lately: those behind keep theirs.
//!
//! # Not here
//! What being behind means (`lanes`); quotas, which end (`limits`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// In so many seconds what was used fades to a third. Short, so that a flood is behind a few seconds after it began;
/// long beside a statement of a page, so that one heavy page among light ones is not behind.
const MEMORY_SECONDS: f64 = 4.0;
/// So long after its last statement one is still there: who asks every few seconds would come to a flood that is not
/// behind yet each time.
const PRESENT_SECONDS: f64 = 10.0;

/// What all have used lately.
#[derive(Debug)]
pub(crate) struct FairShare {
    cores: f64,
    all: Vec<RecentUse>,
}

#[derive(Debug)]
struct RecentUse {
    weight: f64,
    /// Of cores, faded as of `at`.
    seconds: f64,
    at: Instant,
    /// When it was there last; `None` is never.
    seen: Option<Instant>,
    is_behind: Arc<AtomicBool>,
}

impl FairShare {
    /// Nobody's yet.
    pub fn new(cores: usize) -> Self {
        Self { cores: cores.max(1) as f64, all: Vec::new() }
    }

    /// One more: its number, and what says whether it is behind.
    pub fn join(&mut self, now: Instant) -> (usize, Arc<AtomicBool>) {
        let is_behind = Arc::<AtomicBool>::default();
        let flag = Arc::clone(&is_behind);
        self.all.push(RecentUse { weight: 1.0, seconds: 0.0, at: now, seen: None, is_behind });
        (self.all.len() - 1, flag)
    }

    /// It is there, and has used so many seconds of cores since the last time.
    pub fn used(&mut self, number: usize, seconds: f64, now: Instant) {
        if let Some(one) = self.all.get_mut(number) {
            one.fade(now);
            one.seconds += seconds;
            one.seen = Some(now);
        }
        self.judge(now);
    }

    /// It is there from now on, with a weight.
    pub fn comes(&mut self, number: usize, weight: u32, now: Instant) {
        if let Some(one) = self.all.get_mut(number) {
            one.weight = f64::from(weight.max(1));
        }
        self.used(number, 0.0, now);
    }

    /// Says who is behind.
    fn judge(&mut self, now: Instant) {
        self.all.iter_mut().for_each(|one| one.fade(now));
        let present = || self.all.iter().filter(|one| one.is_present(now));
        let weights: f64 = present().map(|one| one.weight).sum();
        let least = present().map(RecentUse::by_weight).fold(f64::INFINITY, f64::min);
        let share = self.cores * MEMORY_SECONDS / weights;
        for one in &self.all {
            let used = one.by_weight();
            let is_behind = one.is_present(now) && used > share && used > least;
            one.is_behind.store(is_behind, Ordering::Relaxed);
        }
    }
}

impl RecentUse {
    fn fade(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.seconds *= (-passed / MEMORY_SECONDS).exp();
        self.at = self.at.max(now);
    }

    fn by_weight(&self) -> f64 {
        self.seconds / self.weight
    }

    fn is_present(&self, now: Instant) -> bool {
        let since = |seen| now.saturating_duration_since(seen).as_secs_f64();
        self.seen.is_some_and(|seen| since(seen) < PRESENT_SECONDS)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Those that use so many cores each, with weights, on two cores for so many seconds: who is behind then.
    fn after(seconds: u32, use_and_weight: &[(f64, u32)]) -> Vec<bool> {
        let began = Instant::now();
        let mut share = FairShare::new(2);
        let all: Vec<_> = use_and_weight.iter().map(|_| share.join(began)).collect();
        for tick in 0..=seconds * 10 {
            let now = began + Duration::from_millis(100) * tick;
            for ((number, _), (cores, weight)) in all.iter().zip(use_and_weight) {
                share.comes(*number, *weight, now);
                share.used(*number, cores * 0.1, now);
            }
        }
        all.iter().map(|(_, is_behind)| is_behind.load(Ordering::Relaxed)).collect()
    }

    #[test]
    fn who_uses_more_than_its_share_is_behind() {
        assert_eq!(after(10, &[(1.9, 1), (0.1, 1)]), [true, false]);
        assert_eq!(after(10, &[(1.2, 1), (0.8, 1)]), [true, false]);
        assert_eq!(after(10, &[(0.9, 1), (0.3, 1)]), [false, false]);
        // Not by how many there are but by their weights.
        assert_eq!(after(10, &[(1.2, 3), (0.3, 1)]), [false, false]);
        assert_eq!(after(10, &[(1.0, 1), (0.9, 1), (0.1, 1)]), [true, true, false]);
        // It takes a while.
        assert_eq!(after(1, &[(1.9, 1), (0.1, 1)]), [false, false]);
    }

    #[test]
    fn one_alone_and_the_one_with_least_are_never_behind() {
        assert_eq!(after(60, &[(2.0, 1)]), [false]);
        // What is told is more than there are cores while threads wait for each other.
        assert_eq!(after(60, &[(8.0, 1), (4.0, 1)]), [true, false]);
        assert_eq!(after(60, &[(4.0, 1), (4.0, 4)]), [true, false]);
        assert_eq!(after(60, &[(4.0, 1), (4.0, 1)]), [false, false]);
    }

    #[test]
    fn what_was_used_fades_and_who_is_gone_takes_no_share() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut share = FairShare::new(2);
        let (flood, is_behind) = share.join(began);
        let (small, _) = share.join(began);
        let is_behind = || is_behind.load(Ordering::Relaxed);
        share.comes(small, 1, at(0));
        share.used(flood, 8.0, at(0));
        assert!(is_behind());
        // A third of it is left.
        share.used(flood, 0.0, at(5));
        assert!(!is_behind());
        share.used(flood, 20.0, at(6));
        assert!(is_behind());
        // The other is not there any more.
        share.used(flood, 20.0, at(11));
        assert!(!is_behind());
        share.comes(small, 1, at(12));
        assert!(is_behind());
    }
}
