//! The memory that all queries of a session share.
//!
//! A consumer that can spill may take what is free until four fifths are taken, and always its even
//! share of them; the last fifth is for those that cannot spill, such as the merge of spilled runs.
//!
//! DataFusion's pools do one or the other: the even shares of `FairSpillPool` are too small when 24
//! queries have 150 spilling operators while memory is free (measured: an aggregation of 118 MB failed
//! under 14 GB), and without shares the first takes all and the merge at the end of a sort fails.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation, human_readable_size,
};

/// A pool of so many bytes.
#[derive(Debug)]
pub(crate) struct SharedPool {
    limit: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    spilling_consumers: usize,
    taken: usize,
}

impl SharedPool {
    pub fn new(limit: usize) -> Self {
        Self { limit, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// May a consumer that holds `held` take `more`?
    fn fits(&self, state: &State, can_spill: bool, held: usize, more: usize) -> bool {
        let total = state.taken.saturating_add(more);
        if !can_spill {
            return total <= self.limit;
        }
        let for_spilling = self.limit / 5 * 4;
        let share = for_spilling / state.spilling_consumers.max(1);
        total <= for_spilling || held + more <= share && total <= self.limit
    }
}

impl fmt::Display for SharedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shared({})", human_readable_size(self.limit))
    }
}

impl MemoryPool for SharedPool {
    fn name(&self) -> &'static str {
        "shared"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        if consumer.can_spill() {
            self.lock().spilling_consumers += 1;
        }
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        if consumer.can_spill() {
            let mut state = self.lock();
            state.spilling_consumers = state.spilling_consumers.saturating_sub(1);
        }
    }

    fn grow(&self, _: &MemoryReservation, additional: usize) {
        self.lock().taken += additional;
    }

    fn shrink(&self, _: &MemoryReservation, shrink: usize) {
        let mut state = self.lock();
        state.taken = state.taken.saturating_sub(shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let mut state = self.lock();
        let can_spill = reservation.consumer().can_spill();
        if !self.fits(&state, can_spill, reservation.size(), additional) {
            return Err(DataFusionError::ResourcesExhausted(format!(
                "{} asked for {} on top of {}, with {} of {} taken",
                reservation.consumer().name(),
                human_readable_size(additional),
                human_readable_size(reservation.size()),
                human_readable_size(state.taken),
                human_readable_size(self.limit),
            )));
        }
        state.taken += additional;
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.lock().taken
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_memory_is_given_and_shares_and_the_last_fifth_are_kept() {
        let pool = SharedPool::new(1000);
        let state = |spilling_consumers, taken| State { spilling_consumers, taken };
        // Free memory goes to whoever asks, even beyond an even share.
        assert!(pool.fits(&state(10, 0), true, 0, 700));
        // Past four fifths only up to the share of 80.
        assert!(pool.fits(&state(10, 800), true, 0, 80));
        assert!(!pool.fits(&state(10, 800), true, 10, 80));
        // The last fifth is for those that cannot spill, and the limit is for all.
        assert!(pool.fits(&state(10, 800), false, 0, 200));
        assert!(!pool.fits(&state(10, 950), true, 0, 80));
        assert!(!pool.fits(&state(10, 900), false, 0, 200));
    }
}
