//! One limit for all reads of a store: how many requests, and how many bytes, are under way.
//!
//! The number of requests is found by climbing: as long as more requests bring more bytes, allow
//! more; when they do not, allow fewer. The bytes are a fixed bound on memory.
//!
//! # Invariants
//! - Requests under way <= `most`, their bytes <= the byte limit (one request is never refused).
//! - A waiting reader whose future is dropped leaves nothing behind.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::clock::Clock;

/// Bytes are counted in units of 64 KiB, so that 256 TiB fit a semaphore's `u32`.
const UNIT: u64 = 64 << 10;
/// A request costs its first byte too: 20 ms at 60 MB/s are about 1 MiB not read.
const REQUEST_BYTES: u64 = 1 << 20;
/// Shorter windows measure noise.
const WINDOW: Duration = Duration::from_millis(100);
/// A rate counts as changed from here: 5 %.
const CHANGE: f64 = 0.05;
/// After an overload the limit is lowered once, not once per failed request.
const OVERLOAD_PAUSE: Duration = Duration::from_secs(1);

/// Bounds of the limiter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) least: usize,
    pub(crate) start: usize,
    pub(crate) most: usize,
    pub(crate) bytes: u64,
}

/// Hands out permits for requests.
#[derive(Debug)]
pub(crate) struct Limiter {
    slots: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    byte_units: u32,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    climb: Climb,
    /// Permits to take back when they are returned.
    debt: usize,
    waiting: usize,
}

/// Permission for one request; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Permit {
    slot: Option<OwnedSemaphorePermit>,
    _bytes: OwnedSemaphorePermit,
    limiter: Arc<Limiter>,
}

impl Limiter {
    pub(crate) fn new(bounds: Bounds, clock: Arc<dyn Clock>) -> Arc<Self> {
        let climb = Climb::new(bounds, clock.now());
        let byte_units = u32::try_from(bounds.bytes.div_ceil(UNIT).max(1)).unwrap_or(u32::MAX >> 3);
        Arc::new(Self {
            slots: Arc::new(Semaphore::new(climb.limit)),
            bytes: Arc::new(Semaphore::new(byte_units as usize)),
            byte_units,
            clock,
            state: Mutex::new(State { climb, debt: 0, waiting: 0 }),
        })
    }

    /// Waits for a permit to request `len` bytes, first come, first served.
    pub(crate) async fn acquire(self: &Arc<Self>, len: u64) -> Permit {
        let waiting = Waiting::new(self);
        let slot = Arc::clone(&self.slots).acquire_owned().await;
        let bytes = Arc::clone(&self.bytes).acquire_many_owned(self.units(len)).await;
        drop(waiting);
        let never = "the semaphore is never closed";
        Permit {
            slot: Some(slot.expect(never)),
            _bytes: bytes.expect(never),
            limiter: Arc::clone(self),
        }
    }

    /// Memory for a second request of `len` bytes, if there is some now.
    pub(crate) fn try_bytes(&self, len: u64) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.bytes).try_acquire_many_owned(self.units(len)).ok()
    }

    /// Lowers the limit: the store said it is too much, or stopped answering.
    pub(crate) fn overloaded(&self) {
        let mut state = self.state.lock();
        let limit = state.climb.overloaded(self.clock.now());
        self.resize(&mut state, limit);
    }

    /// Requests that could begin now.
    pub(crate) fn free(&self) -> usize {
        self.slots.available_permits()
    }

    /// Requests allowed at once now.
    pub(crate) fn limit(&self) -> usize {
        self.state.lock().climb.limit
    }

    fn units(&self, len: u64) -> u32 {
        u32::try_from(len.div_ceil(UNIT)).unwrap_or(u32::MAX).clamp(1, self.byte_units)
    }

    fn resize(&self, state: &mut State, before: usize) {
        let after = state.climb.limit;
        if after >= before {
            let grow = after - before;
            let repaid = grow.min(state.debt);
            state.debt -= repaid;
            self.slots.add_permits(grow - repaid);
        } else {
            let shrink = before - after;
            state.debt += shrink - self.slots.forget_permits(shrink);
        }
    }
}

impl Permit {
    /// The request is over and brought `len` bytes.
    pub(crate) fn done(self, len: u64) {
        let mut state = self.limiter.state.lock();
        let crowded = state.waiting > 0;
        let before = state.climb.finished(self.limiter.clock.now(), len, crowded);
        self.limiter.resize(&mut state, before);
        drop(state);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.limiter.state.lock();
        if state.debt > 0
            && let Some(slot) = self.slot.take()
        {
            state.debt -= 1;
            slot.forget();
        }
    }
}

/// Counts a waiting reader for as long as it waits, also when it stops waiting by being dropped.
struct Waiting<'a>(&'a Limiter);

impl<'a> Waiting<'a> {
    fn new(limiter: &'a Limiter) -> Self {
        limiter.state.lock().waiting += 1;
        Self(limiter)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state.lock().waiting -= 1;
    }
}

/// Finds the number of requests beyond which nothing is gained.
#[derive(Debug, Clone)]
struct Climb {
    limit: usize,
    bounds: Bounds,
    up: bool,
    window: Window,
    /// Bytes per second of the window before; 0 if unknown.
    rate: f64,
    overloaded_at: Option<Duration>,
}

#[derive(Debug, Clone)]
struct Window {
    start: Duration,
    requests: usize,
    bytes: u64,
    crowded: bool,
}

impl Window {
    fn at(start: Duration) -> Self {
        Self { start, requests: 0, bytes: 0, crowded: false }
    }
}

impl Climb {
    fn new(mut bounds: Bounds, now: Duration) -> Self {
        bounds.least = bounds.least.max(1);
        bounds.most = bounds.most.max(bounds.least);
        let limit = bounds.start.clamp(bounds.least, bounds.most);
        Self { limit, bounds, up: true, window: Window::at(now), rate: 0.0, overloaded_at: None }
    }

    /// Counts a finished request and moves the limit at the end of a window; returns the limit
    /// before.
    fn finished(&mut self, now: Duration, len: u64, crowded: bool) -> usize {
        let before = self.limit;
        self.window.requests += 1;
        self.window.bytes += len + REQUEST_BYTES;
        self.window.crowded |= crowded;
        let took = now.saturating_sub(self.window.start);
        if self.window.requests < self.limit || took < WINDOW {
            return before;
        }
        let window = std::mem::replace(&mut self.window, Window::at(now));
        if !window.crowded {
            // Nobody waited: the limit was not what bounded the rate, so the rate says nothing.
            self.rate = 0.0;
            return before;
        }
        let rate = window.bytes as f64 / took.as_secs_f64();
        if self.rate > 0.0 {
            let change = rate / self.rate - 1.0;
            if change < -CHANGE {
                self.up = !self.up;
            } else if change < CHANGE {
                // As fast with fewer: prefer fewer, they leave room for others.
                self.up = false;
            }
        }
        self.rate = rate;
        let next = if self.up { self.limit + (self.limit / 4).max(1) } else { self.limit * 9 / 10 };
        self.limit = next.clamp(self.bounds.least, self.bounds.most);
        if self.limit == self.bounds.least {
            self.up = true;
        }
        before
    }

    fn overloaded(&mut self, now: Duration) -> usize {
        let before = self.limit;
        let recently = self.overloaded_at.is_some_and(|at| now.saturating_sub(at) < OVERLOAD_PAUSE);
        if !recently {
            self.overloaded_at = Some(now);
            self.limit = (self.limit * 7 / 10).max(self.bounds.least);
            self.rate = 0.0;
            self.up = true;
            self.window = Window::at(now);
        }
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::RealClock;
    use futures::FutureExt;

    const BOUNDS: Bounds = Bounds { least: 4, start: 16, most: 200, bytes: 1 << 20 };

    /// Runs `seconds` of a store that reads `per_request` bytes/s per request up to `line` bytes/s.
    fn settle(bounds: Bounds, per_request: f64, line: f64, seconds: u64) -> usize {
        let mut climb = Climb::new(bounds, Duration::ZERO);
        let mut now = Duration::ZERO;
        let len = 8 << 20;
        while now < Duration::from_secs(seconds) {
            let rate = (per_request * climb.limit as f64).min(line);
            now += Duration::from_secs_f64(len as f64 / rate);
            climb.finished(now, len, true);
        }
        climb.limit
    }

    #[test]
    fn limit_climbs_to_the_line_and_not_far_beyond() {
        let limit = settle(BOUNDS, 70e6, 4_000e6, 20);
        assert!((45..=90).contains(&limit), "57 requests fill the line, limit is {limit}");
        let limit = settle(BOUNDS, 70e6, 350e6, 60);
        assert!((4..=12).contains(&limit), "5 requests fill the line, limit is {limit}");
    }

    #[test]
    fn limit_stays_when_nobody_waits() {
        let mut climb = Climb::new(BOUNDS, Duration::ZERO);
        for i in 1..1000 {
            climb.finished(Duration::from_millis(10 * i), 1 << 20, false);
        }
        assert_eq!(climb.limit, 16);
    }

    #[test]
    fn overload_lowers_the_limit_once_a_second() {
        let mut climb = Climb::new(BOUNDS, Duration::ZERO);
        let at = Duration::from_millis;
        for (ms, limit) in [(0, 11), (10, 11), (999, 11), (1000, 7), (2000, 4), (3000, 4)] {
            climb.overloaded(at(ms));
            assert_eq!(climb.limit, limit, "after {ms} ms");
        }
    }

    #[test]
    fn permits_are_taken_back_and_given_again() {
        let clock: Arc<dyn Clock> = Arc::new(RealClock::default());
        let limiter = Limiter::new(Bounds { least: 2, start: 4, most: 8, bytes: 64 << 20 }, clock);
        let acquire = || limiter.acquire(1).now_or_never();
        let held: Vec<_> = (0..4).map(|_| acquire().expect("a free slot")).collect();
        assert!(acquire().is_none(), "a fifth request");
        limiter.overloaded(); // 4 -> 2
        assert_eq!(limiter.limit(), 2);
        drop(held);
        let held: Vec<_> = (0..2).map(|_| acquire().expect("a free slot")).collect();
        assert!(acquire().is_none(), "a third request");
        drop(held);
        assert_eq!(limiter.state.lock().waiting, 0);
    }

    #[test]
    fn bytes_are_bounded_but_one_long_request_passes() {
        let clock: Arc<dyn Clock> = Arc::new(RealClock::default());
        let limiter = Limiter::new(BOUNDS, clock);
        let long = limiter.acquire(1 << 30).now_or_never().expect("alone");
        assert!(limiter.acquire(1).now_or_never().is_none());
        assert!(limiter.try_bytes(1).is_none());
        drop(long);
        assert!(limiter.acquire(1).now_or_never().is_some());
    }
}
