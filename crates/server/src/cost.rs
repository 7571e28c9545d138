//! What a statement has cost, and in dollars.
//!
//! # Not here
//! Who counts: the engine's progress (store, threads, memory) and `statements` (what was sent).

use std::time::Duration;

use uplake_engine::ProgressCounts;

/// What a statement has cost so far; at its end, in all. Whoever keeps to a limit reads this.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// What the engine has counted.
    pub counts: ProgressCounts,
    pub rows_out: u64,
    pub bytes_out: u64,
    /// Bytes of rows that waited on the disk for a slow client.
    pub spooled: u64,
    /// From its text to now, or to its end.
    pub total: Duration,
}

/// A statement that is at it for longer may be in a poll that is told only once it is over.
const LONG_POLL: Duration = Duration::from_secs(1);

/// What is charged for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Prices {
    /// Of the store, if it is one that costs anything: a folder does not.
    pub storage: Option<uplake_table::Prices>,
    /// US dollars for an hour of one core.
    pub core_hour: f64,
}

impl Cost {
    /// Seconds that count for a quota: of what threads were at, or in the slot, whichever is more. One poll that does
    /// not end, as of a cross join, is told only once it is over.
    pub fn quota_seconds(&self) -> f64 {
        self.compute_seconds().max(self.counts.in_slot.as_secs_f64())
    }

    /// Seconds of cores, as far as they are known while it runs: see [`Self::quota_seconds`]. A short one that waits for
    /// its turn at a core, or for the store, has nothing of them meanwhile.
    pub fn core_seconds(&self) -> f64 {
        self.compute_seconds().max(self.counts.in_slot.saturating_sub(LONG_POLL).as_secs_f64())
    }

    /// How long threads were at it.
    pub fn compute_seconds(&self) -> f64 {
        self.counts.busy.as_secs_f64()
    }

    /// Computing, without its plan; a statement that needs no slot has nothing else.
    pub fn ran(&self) -> Duration {
        if self.counts.in_slot.is_zero() {
            return self.total.saturating_sub(self.counts.queued);
        }
        self.counts.in_slot.saturating_sub(self.counts.planned)
    }

    /// Since its rows were computed.
    pub fn sent(&self) -> Duration {
        let before = self.counts.queued + self.counts.planned + self.ran();
        self.total.saturating_sub(before)
    }

    /// Seconds that threads of other nodes were at its parts.
    pub fn node_seconds(&self) -> f64 {
        self.counts.nodes.busy.as_secs_f64()
    }

    /// US dollars: cores and requests, those of other nodes for its parts, too.
    pub fn dollars(&self, prices: &Prices) -> f64 {
        let mut asked = self.counts.storage;
        asked.gets += self.counts.nodes.gets;
        asked.lists += self.counts.nodes.lists;
        let storage = prices.storage.map_or(0.0, |prices| asked.dollars(&prices));
        storage + (self.compute_seconds() + self.node_seconds()) / 3600.0 * prices.core_hour
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_add_up_to_the_whole() {
        let mut cost = Cost { total: Duration::from_secs(10), ..Cost::default() };
        assert_eq!((cost.ran(), cost.sent()), (Duration::from_secs(10), Duration::ZERO));
        cost.counts.queued = Duration::from_secs(1);
        cost.counts.planned = Duration::from_secs(2);
        cost.counts.in_slot = Duration::from_secs(5);
        assert_eq!((cost.ran(), cost.sent()), (Duration::from_secs(3), Duration::from_secs(4)));
        assert_eq!((cost.quota_seconds(), cost.core_seconds()), (5.0, 4.0));
        cost.counts.in_slot = Duration::from_millis(700);
        assert_eq!((cost.quota_seconds(), cost.core_seconds()), (0.7, 0.0));
    }

    #[test]
    fn cores_cost_and_folders_do_not() {
        let mut cost = Cost::default();
        cost.counts.busy = Duration::from_secs(1800);
        cost.counts.storage.gets = 1000;
        let mut prices = Prices { storage: None, core_hour: 0.05 };
        assert!((cost.dollars(&prices) - 0.025).abs() < 1e-12);
        prices.storage = Some(uplake_table::Prices::default());
        assert!((cost.dollars(&prices) - 0.0254).abs() < 1e-12);
        // What other nodes did for it is paid for, too.
        cost.counts.nodes.busy = Duration::from_secs(1800);
        cost.counts.nodes.gets = 1000;
        assert!((cost.dollars(&prices) - 0.0508).abs() < 1e-12);
        assert_eq!((cost.node_seconds(), cost.compute_seconds()), (1800.0, 1800.0));
    }
}
