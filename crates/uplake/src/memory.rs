//! What the process may hold beside what operators count.
//!
//! Operators take from the budget before they allocate; accumulators, windows, decoders and the planner do not,
//! and some statements make gigabytes of a few words there. The whole process is looked at, too: a statement
//! that holds much more than the budget ends with the same error.
//!
//! Memory that was freed stays with the allocator for a while (`.cargo/config.toml`), which is as good as gone
//! for everybody else: it goes back to the system when the process has more than the budget with it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tikv_jemalloc_ctl::{Access, AsName, arenas, stats};

/// Beside the budget: planning, decoding, what accumulators hold. An eighth of it, if that is more.
const BESIDE_BYTES: usize = 256 << 20;
/// What is made in a millisecond, at most: 4 GiB in a second. The less room there is, the sooner it is looked at.
const MADE_PER_MILLISECOND: usize = 4 << 20;
const LOOK_EVERY_MILLISECONDS: std::ops::RangeInclusive<usize> = 3..=100;

/// Giving back is not worth its while for less, nor more often: it is cleared anew when it is asked for again.
const LEAST_GIVEN_BACK: usize = 32 << 20;
const GIVE_BACK_EVERY: Duration = Duration::from_millis(250);
/// How often it is looked at when the budget is nearly used.
const NEAR_EVERY: Duration = Duration::from_millis(20);

/// Huge pages are for who holds this much: a page of the allocator's that is touched at all is 2 MiB then, of which a
/// short statement in a process of its own uses a quarter.
const HUGE_PAGES_FROM: usize = 16 << 20;
/// A process gets there within milliseconds, and each page of 4 KiB that it touches before costs a microsecond: until then
/// it is looked at this often while it grows by that much from look to look, and half as often each time it does not.
const GROWING_EVERY: Duration = Duration::from_millis(2);
const GROWN_BYTES: usize = 1 << 20;

/// Of all arenas (`MALLCTL_ARENAS_ALL` is 4096).
const OF_THREADS: &str = "stats.arenas.4096.tcache_bytes\0";

/// 0 before anything is to be watched.
static LIMIT: AtomicUsize = AtomicUsize::new(0);
/// From here on freed memory is given back: the rest of the budget is for the program itself.
static FULL: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Says what the budget is.
pub fn watch(budget: usize) {
    let limit = budget.saturating_add(BESIDE_BYTES.max(budget / 8));
    LIMIT.store(limit, Ordering::Relaxed);
    FULL.store(budget - budget / 8, Ordering::Relaxed);
}

/// Should memory be in huge pages, as the allocator asks for (`.cargo/config.toml`)? What is touched already stays as it
/// is. The system may know no such thing; then all is as before.
pub fn use_huge_pages(wanted: bool) {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(!wanted);
    #[cfg(not(target_os = "linux"))]
    let _ = wanted;
}

/// What the process has in use. The allocator's counts are those of its last epoch, and have what was freed and each
/// thread keeps for itself: megabytes of each that is idle.
pub fn allocated_bytes() -> usize {
    let _ = tikv_jemalloc_ctl::epoch::advance();
    let allocated = stats::allocated::read().unwrap_or(0);
    allocated.saturating_sub(OF_THREADS.name().read().unwrap_or(0))
}

/// Gives back what was freed, if the process is nearly at its budget with it. True if so.
fn give_back(resident: usize) -> bool {
    let freed = resident.saturating_sub(stats::allocated::read().unwrap_or(resident));
    if resident <= FULL.load(Ordering::Relaxed) || freed < LEAST_GIVEN_BACK {
        return false;
    }
    let usual: isize = "arenas.dirty_decay_ms\0".name().read().unwrap_or(0);
    for arena in 0..arenas::narenas::read().unwrap_or(0) {
        // Whatever is older than nothing goes at once; an arena that nobody has used yet is not there.
        let name = format!("arena.{arena}.dirty_decay_ms\0");
        let _ = name.name().write(0_isize).and_then(|()| name.name().write(usual));
    }
    true
}

/// Ends when the process holds too much.
pub async fn exceeded() {
    let mut next_given_back = Instant::now();
    let (mut is_small, mut before, mut small_wait) = (true, 0, GROWING_EVERY);
    loop {
        let limit = LIMIT.load(Ordering::Relaxed);
        // What is allocated, and not what is touched of it: that is milliseconds later.
        let held = if limit > 0 { uplake_engine::held_bytes() } else { 0 };
        if held > limit {
            return;
        }
        if is_small && held > HUGE_PAGES_FROM {
            use_huge_pages(true);
            is_small = false;
        }
        // As of the same epoch.
        let resident = stats::resident::read().unwrap_or(0);
        if Instant::now() >= next_given_back && give_back(resident) {
            next_given_back = Instant::now() + GIVE_BACK_EVERY;
        }
        let is_near = resident > FULL.load(Ordering::Relaxed) / 4 * 3;
        let room = (limit - held) / MADE_PER_MILLISECOND;
        let (least, most) = LOOK_EVERY_MILLISECONDS.into_inner();
        let mut wait = Duration::from_millis(room.clamp(least, most) as u64);
        if is_small {
            let is_growing = held > before + GROWN_BYTES;
            small_wait = if is_growing { GROWING_EVERY } else { (small_wait * 2).min(wait) };
            (wait, before) = (small_wait, held);
        }
        tokio::time::sleep(if is_near { wait.min(NEAR_EVERY) } else { wait }).await;
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
