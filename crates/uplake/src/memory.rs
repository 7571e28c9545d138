//! What the process may hold beside what operators count.
//!
//! Operators take from the budget before they allocate; accumulators, windows, decoders and the planner do not,
//! and some statements make gigabytes of a few words there. The whole process is looked at, too: a statement
//! that holds much more than the budget ends with the same error.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Beside the budget: planning, decoding, what accumulators hold. An eighth of it, if that is more.
const BESIDE_BYTES: usize = 256 << 20;
/// What is made in a millisecond, at most: 4 GiB in a second. The less room there is, the sooner it is looked at.
const MADE_PER_MILLISECOND: usize = 4 << 20;
const LOOK_EVERY_MILLISECONDS: std::ops::RangeInclusive<usize> = 3..=100;

/// 0 before anything is to be watched.
static LIMIT: AtomicUsize = AtomicUsize::new(0);

/// Says what the budget is.
pub fn watch(budget: usize) {
    let limit = budget.saturating_add(BESIDE_BYTES.max(budget / 8));
    LIMIT.store(limit, Ordering::Relaxed);
}

/// What the process has allocated. The allocator's counts are those of its last epoch.
pub fn allocated_bytes() -> usize {
    let _ = tikv_jemalloc_ctl::epoch::advance();
    tikv_jemalloc_ctl::stats::allocated::read().unwrap_or(0)
}

/// Ends when the process holds too much.
pub async fn exceeded() {
    loop {
        let limit = LIMIT.load(Ordering::Relaxed);
        // What is allocated, and not what is touched of it: that is milliseconds later.
        let held = if limit > 0 { uplake_engine::held_bytes() } else { 0 };
        if held > limit {
            return;
        }
        let room = (limit - held) / MADE_PER_MILLISECOND;
        let (least, most) = LOOK_EVERY_MILLISECONDS.into_inner();
        tokio::time::sleep(Duration::from_millis(room.clamp(least, most) as u64)).await;
    }
}

/// The error that then ends a command.
pub fn error_text() -> String {
    let mib = LIMIT.load(Ordering::Relaxed) >> 20;
    format!(
        "the query needs more than its budget: the process holds more than {mib} MiB, most of which no operator \
         counts; give it more with --memory, or ask for less (shorter texts, fewer groups, a LIMIT)"
    )
}
