//! Time as an argument: what waits asks a [`Clock`], so that a test can run an hour in a millisecond.
//!
//! # Invariants
//! - `now` never goes back and starts near 0, so that times are [`Duration`]s and can be literals.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;

/// Tells the time and waits.
pub trait Clock: Debug + Send + Sync + 'static {
    /// Time since some fixed moment of this process.
    fn now(&self) -> Duration;
    /// Completes `wait` after it is first polled; dropping it is safe.
    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()>;
}

/// The machine's monotonic clock and tokio's timer.
#[derive(Debug)]
pub struct RealClock {
    start: Instant,
}

impl Default for RealClock {
    fn default() -> Self {
        Self { start: Instant::now() }
    }
}

impl Clock for RealClock {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()> {
        // The timer is made inside the future: `tokio::time::sleep` wants a runtime when called.
        async move { tokio::time::sleep(wait).await }.boxed()
    }
}
