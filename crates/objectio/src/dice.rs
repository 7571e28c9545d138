//! Seeded randomness for jitter and for choosing between addresses.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// A source of random numbers that threads can share: splitmix64 over a counter.
#[derive(Debug)]
pub(crate) struct Dice {
    state: AtomicU64,
}

impl Dice {
    /// The same `seed` gives the same numbers; `None` takes one from the operating system.
    pub(crate) fn new(seed: Option<u64>) -> Self {
        let seed = seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        Self { state: AtomicU64::new(seed) }
    }

    pub(crate) fn bits(&self) -> u64 {
        mix(self.state.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed))
    }

    /// Uniform in `[0, 1)`.
    pub(crate) fn unit(&self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Nearly uniform in `0..limit`; `limit` must not be 0.
    pub(crate) fn below(&self, limit: usize) -> usize {
        ((u128::from(self.bits()) * limit as u128) >> 64) as usize
    }
}

/// The finalizer of splitmix64: a bijection whose outputs look random.
pub(crate) const fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}
