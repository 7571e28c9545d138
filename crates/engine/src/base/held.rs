//! What the whole process holds, which its allocator knows and a library does not.
//!
//! Operators count what they take; accumulators, decoders and the planner do not. Whoever owns the process says
//! how it is counted and has it counted now and then: kept columns make room for what is not counted, and calls
//! that would make much are refused.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

static COUNT: OnceLock<fn() -> usize> = OnceLock::new();
/// As it was counted last.
static LATELY: AtomicUsize = AtomicUsize::new(0);

/// From now on `count` says how many bytes the process holds. The first who says so is heard.
pub fn count_held_by(count: fn() -> usize) {
    let _ = COUNT.set(count);
}

/// Counts what the process holds; 0 if nobody counts.
pub fn held_bytes() -> usize {
    let bytes = COUNT.get().map_or(0, |count| count());
    LATELY.store(bytes, Ordering::Relaxed);
    bytes
}

/// What it held when that was counted last.
pub(crate) fn lately() -> usize {
    LATELY.load(Ordering::Relaxed)
}

/// So much of it was let go since.
pub(crate) fn less(bytes: usize) {
    let _ = LATELY.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
        Some(held.saturating_sub(bytes))
    });
}
