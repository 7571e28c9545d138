//! Logins that failed: who guesses passwords has to wait, longer each time.
//!
//! # Invariants
//! - A name that nobody has is treated as any other.
//! - Others who give the same name from another address do not wait.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::MOST_KEPT;

/// Failures that cost nothing: a typing error, an old password in a file.
const FREE: u32 = 3;
/// What one has to wait after one more, which is doubled each time, up to the second.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const MOST_WAIT: Duration = Duration::from_secs(8);
/// After so long without another they are forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
/// Characters of a name that count: longer ones nobody has.
const NAME_CHARACTERS: usize = 64;

/// Failures by name and address.
#[derive(Debug, Default)]
pub(crate) struct FailedLogins(Mutex<HashMap<(String, IpAddr), Failures>>);

#[derive(Debug)]
struct Failures {
    count: u32,
    last: Instant,
}

impl Failures {
    fn wait(&self) -> Duration {
        match self.count.checked_sub(FREE + 1) {
            None => Duration::ZERO,
            Some(more) => FIRST_WAIT.saturating_mul(1 << more.min(16)).min(MOST_WAIT),
        }
    }
}

fn key(name: &str, address: IpAddr) -> (String, IpAddr) {
    (name.chars().take(NAME_CHARACTERS).collect(), address.to_canonical())
}

impl FailedLogins {
    fn lock(&self) -> MutexGuard<'_, HashMap<(String, IpAddr), Failures>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long it takes until a login of this name from this address is looked at again; `None` if it is now.
    pub fn wait(&self, name: &str, address: IpAddr, now: Instant) -> Option<Duration> {
        let all = self.lock();
        let failures = all.get(&key(name, address))?;
        let left = (failures.last + failures.wait()).saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }

    /// A login failed.
    pub fn add(&self, name: &str, address: IpAddr, now: Instant) {
        let mut all = self.lock();
        let key = key(name, address);
        let is_old = |last: Instant| now.saturating_duration_since(last) > FORGOTTEN_AFTER;
        if all.len() >= MOST_KEPT && !all.contains_key(&key) {
            all.retain(|_, failures| !is_old(failures.last));
            let oldest = all.iter().min_by_key(|(_, failures)| failures.last);
            if all.len() >= MOST_KEPT
                && let Some(oldest) = oldest.map(|(key, _)| key.clone())
            {
                all.remove(&oldest);
            }
        }
        let failures = all.entry(key).or_insert(Failures { count: 0, last: now });
        if is_old(failures.last) {
            failures.count = 0;
        }
        (failures.count, failures.last) = (failures.count.saturating_add(1), now);
    }

    /// A login was right.
    pub fn forget(&self, name: &str, address: IpAddr) {
        self.lock().remove(&key(name, address));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_guesses_waits_longer_each_time() {
        let (failed, address) = (FailedLogins::default(), "10.0.0.1".parse().unwrap());
        let mut now = Instant::now();
        let mut waits = Vec::new();
        for _ in 0..10 {
            failed.add("ann", address, now);
            let wait = failed.wait("ann", address, now).unwrap_or_default();
            assert_eq!(failed.wait("ann", address, now + wait), None);
            now += wait;
            waits.push(wait.as_millis());
        }
        assert_eq!(waits, [0, 0, 0, 500, 1000, 2000, 4000, 8000, 8000, 8000]);
        assert_eq!(failed.wait("ann", "10.0.0.2".parse().unwrap(), now), None);
        assert_eq!(failed.wait("bob", address, now), None);
        failed.add("ann", address, now + FORGOTTEN_AFTER * 2);
        assert_eq!(failed.wait("ann", address, now + FORGOTTEN_AFTER * 2), None);
        failed.forget("ann", address);
        assert!(failed.lock().is_empty());
    }

    #[test]
    fn names_are_bounded_in_number_and_length() {
        let (failed, address) = (FailedLogins::default(), "10.0.0.1".parse().unwrap());
        let now = Instant::now();
        for number in 0..MOST_KEPT as u32 + 10 {
            failed.add(&format!("user {number}"), address, now);
        }
        failed.add(&"x".repeat(10_000), address, now);
        let all = failed.lock();
        assert_eq!(all.len(), MOST_KEPT);
        assert!(all.keys().all(|(name, _)| name.len() <= NAME_CHARACTERS));
    }
}
