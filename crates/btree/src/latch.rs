//! The version latch of a page: writers exclude each other, readers write nothing.
//!
//! A word whose lowest bit says *latched* and whose other bits count changes. A reader takes the
//! version, reads the page, and asks whether the version is still the same; if not, it read a
//! mixture and starts again. So readers share cache lines and never take them from each other.
//!
//! # Invariants
//! - Versions of a frame only grow, also when the frame changes its page, so no reader takes a new
//!   page for the one it saw.
//! - Whoever changes a page holds its latch from before the first change until after the last.
//!
//! # Source
//! Leis, Scheibner, Kemper, Neumann, "The ART of Practical Synchronization", DaMoN 2016; the fences
//! are those of Boehm, "Can Seqlocks Get Along with Programming Language Memory Models?", MSPC 2012.

use super::sync::{AtomicU64, Ordering, fence, relax};

const LATCHED: u64 = 1;
/// Looks at a latched page before the thread lets others run. A latch is held for some 50 ns, a
/// spin takes about 10, and with more threads than cores the holder may not be running.
const SPINS: u32 = 40;

/// The version of the page once nobody holds its latch.
#[inline(always)]
pub(crate) fn read(latch: &AtomicU64) -> u64 {
    let version = latch.load(Ordering::Acquire);
    if version & LATCHED == 0 { version } else { read_contended(latch) }
}

#[cold]
fn read_contended(latch: &AtomicU64) -> u64 {
    let mut turns = 0;
    loop {
        let version = latch.load(Ordering::Acquire);
        if version & LATCHED == 0 {
            return version;
        }
        turns += 1;
        relax(turns > SPINS);
    }
}

/// The version, unless somebody holds the latch.
#[inline]
pub(crate) fn try_read(latch: &AtomicU64) -> Option<u64> {
    let version = latch.load(Ordering::Acquire);
    (version & LATCHED == 0).then_some(version)
}

/// Whether everything read since `version` was taken belongs together.
#[inline(always)]
pub(crate) fn validate(latch: &AtomicU64, version: u64) -> bool {
    fence(Ordering::Acquire);
    latch.load(Ordering::Relaxed) == version
}

/// Takes the latch if the page has not changed since `version`.
#[inline(always)]
pub(crate) fn try_latch(latch: &AtomicU64, version: u64) -> bool {
    debug_assert!(version & LATCHED == 0);
    let taken = latch
        .compare_exchange(version, version | LATCHED, Ordering::Acquire, Ordering::Relaxed)
        .is_ok();
    // A reader that sees one of our changes must also see the latch when it validates.
    fence(Ordering::Release);
    taken
}

/// Takes the latch, waiting for it.
pub(crate) fn latch(latch: &AtomicU64) {
    while !try_latch(latch, read(latch)) {}
}

/// Releases the latch after a change.
#[inline(always)]
pub(crate) fn release_changed(latch: &AtomicU64) {
    let version = latch.load(Ordering::Relaxed);
    debug_assert!(version & LATCHED != 0);
    latch.store(version + LATCHED, Ordering::Release);
}

/// Releases the latch when nothing was changed, so that readers need not start again.
#[inline(always)]
pub(crate) fn release_unchanged(latch: &AtomicU64) {
    let version = latch.load(Ordering::Relaxed);
    debug_assert!(version & LATCHED != 0);
    latch.store(version - LATCHED, Ordering::Release);
}
