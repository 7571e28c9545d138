//! The memory that all queries of an engine share, or of several engines (`memory`).
//!
//! A consumer that can spill may take what is free until four fifths are taken, and always its even
//! share of them, or its first batch, because one that holds nothing has nothing to spill; the last fifth is for those that cannot spill, such as the merge of spilled runs.
//! Groups in arrays may take what is free until half is taken: they cannot spill, but groups that
//! do can go on in their place, and what stands beside them cannot. Few groups may overdraw as below.
//! A sort's merge counts half, and never more than the last fifth, and may go a quarter over the limit:
//! DataFusion counts every batch once when it is sorted or read back and again while it is merged, and a
//! batch that shares its strings' buffers with others counts all of them. And small requests of those that
//! cannot spill may overdraw by a tenth, so that a join or aggregate does not fail for the few rows that it
//! holds while sorts around it use what they may.
//! A hash join's build side asks for its hash table when it has all its rows, and then copies them, which nobody
//! counts: the table is there only if the copy has room, too. Groups in hash tables double before they ask, and are
//! sorted or handed on whole when they are refused: as much as they hold stays free beside them.
//! What deals rows out to partitions is never refused, only counted: when DataFusion 55.2 spills there, its
//! reader may wait for a file that its writer will not finish (apache/datafusion#24883), and the query hangs.
//! Its queues hold a few batches per partition as long as all partitions are read; of one that nobody has begun to read
//! they hold all there is. Refusing others would not shorten them, so at most half of the limit counts as theirs.
//!
//! DataFusion's pools do one or the other: the even shares of `FairSpillPool` are too small when 24
//! queries have 150 spilling operators while memory is free (measured: an aggregation of 118 MB failed
//! under 14 GB), and without shares the first takes all and the merge at the end of a sort fails.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation, human_readable_size,
};
use tokio::sync::Notify;

use crate::base::held;
use crate::base::progress::{self, QueryProgress};
use crate::cache::columns::KeptColumns;

/// What DataFusion calls the merges of a sort, before their partition: `ExternalSorterMerge[1]`.
const MERGES: [&str; 2] = ["ExternalSorterMerge", "SortPreservingMergeExec"];
/// And what deals rows out to partitions: `RepartitionExec[1]`.
const REPARTITION: &str = "RepartitionExec";
/// Groups in hash tables: `PartialHashAggregateStream[1]`, `FinalHashAggregateStream[1]`.
const HASHED_GROUPS: &str = "HashAggregateStream";
/// And the build sides of hash joins: `HashJoinInput`, `HashJoinInput[1]`.
const BUILD_SIDE: &str = "HashJoinInput";
/// The name of groups in arrays.
pub(crate) const ARRAYS: &str = "ArrayAggregate";

/// A pool of so many bytes.
#[derive(Debug)]
pub(crate) struct SharedPool {
    limit: usize,
    state: Mutex<State>,
    /// Takes what is free, and gives it back.
    columns: Arc<KeptColumns>,
    /// Wakes those that wait for memory.
    given_back: Arc<Notify>,
}

#[derive(Debug, Default)]
struct State {
    spilling_consumers: usize,
    /// By all but merges and queues between partitions.
    taken: usize,
    merging: usize,
    queued: usize,
    /// Whose statement a consumer is of, by its number, if somebody wants to know.
    owners: HashMap<usize, Arc<QueryProgress>>,
}

/// What a consumer can do when it is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Write to disk and ask again.
    Spilling,
    /// The same, after a copy.
    Groups,
    /// Fail, although most of what it asks for is counted already.
    Merge,
    /// Spill, and perhaps wait for itself forever.
    Repartition,
    /// Fail, and groups that spill go on.
    Arrays,
    /// Fail, and a merge join goes on.
    BuildSide,
    /// Fail.
    Fixed,
}

impl State {
    fn all(&self) -> usize {
        self.taken + self.merging + self.queued
    }
}

impl Kind {
    fn of(consumer: &MemoryConsumer) -> Self {
        if consumer.name().starts_with(REPARTITION) {
            Self::Repartition
        } else if consumer.can_spill() {
            match consumer.name().contains(HASHED_GROUPS) {
                true => Self::Groups,
                false => Self::Spilling,
            }
        } else if MERGES.iter().any(|merge| consumer.name().starts_with(merge)) {
            Self::Merge
        } else if consumer.name() == ARRAYS {
            Self::Arrays
        } else if consumer.name().starts_with(BUILD_SIDE) {
            Self::BuildSide
        } else {
            Self::Fixed
        }
    }

    fn spills(self) -> bool {
        matches!(self, Self::Spilling | Self::Groups)
    }
}

impl SharedPool {
    pub fn new(limit: usize, columns: Arc<KeptColumns>, given_back: Arc<Notify>) -> Self {
        Self { limit, state: Mutex::default(), columns, given_back }
    }

    /// Makes room for what queries have taken by now, and for what the process holds without saying so; a part
    /// of the budget is for what it is counted to hold too late.
    fn displace_columns(&self, taken: usize) {
        let kept = self.columns.bytes();
        let held = match held::lately() {
            0 => 0,
            held => held.saturating_add(self.limit / 16),
        };
        let all = taken.saturating_add(kept).max(held);
        let excess = all.saturating_sub(self.limit).min(kept);
        self.columns.let_go(excess);
        held::less(excess);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// May a consumer that holds `held` take `more`?
    fn fits(&self, state: &State, kind: Kind, held: usize, more: usize) -> bool {
        let taken = state.taken.saturating_add(state.queued.min(self.limit / 2));
        let total = taken.saturating_add(state.merging.div_ceil(2).min(self.limit / 5));
        match kind {
            Kind::Repartition => true,
            Kind::Merge => {
                let merging = (state.merging.saturating_add(more)) / 2;
                taken.saturating_add(merging) <= self.limit + self.limit / 4
            }
            Kind::Arrays => {
                let is_small = held.saturating_add(more) <= self.limit / 32;
                let limit = if is_small { self.limit + self.limit / 10 } else { self.limit / 2 };
                total.saturating_add(more) <= limit
            }
            Kind::Fixed | Kind::BuildSide => {
                let is_small = more <= self.limit / 64;
                let overdraft = if is_small { self.limit / 10 } else { 0 };
                let copied = if kind == Kind::BuildSide && !is_small { held } else { 0 };
                total.saturating_add(more).saturating_add(copied) <= self.limit + overdraft
            }
            Kind::Spilling | Kind::Groups => {
                let for_spilling = self.limit / 5 * 4;
                let share = for_spilling / state.spilling_consumers.max(1);
                let copied = if kind == Kind::Groups { held + more } else { 0 };
                let total = total.saturating_add(more).saturating_add(copied);
                let may = held == 0 || held + more <= share;
                total <= for_spilling || may && total <= self.limit
            }
        }
    }

    /// The account that a consumer's bytes are on.
    fn account<'s>(state: &'s mut State, consumer: &MemoryConsumer) -> &'s mut usize {
        match Kind::of(consumer) {
            Kind::Merge => &mut state.merging,
            Kind::Repartition => &mut state.queued,
            _ => &mut state.taken,
        }
    }

    /// A consumer takes more.
    fn add(state: &mut State, consumer: &MemoryConsumer, bytes: usize) {
        *Self::account(state, consumer) += bytes;
        if let Some(owner) = state.owners.get(&consumer.id()) {
            owner.took(bytes);
        }
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
        let mut state = self.lock();
        if Kind::of(consumer).spills() {
            state.spilling_consumers += 1;
        }
        if let Some(owner) = progress::watcher() {
            state.owners.insert(consumer.id(), owner);
        }
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        let mut state = self.lock();
        if Kind::of(consumer).spills() {
            state.spilling_consumers = state.spilling_consumers.saturating_sub(1);
        }
        state.owners.remove(&consumer.id());
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        let mut state = self.lock();
        Self::add(&mut state, reservation.consumer(), additional);
        let taken = state.all();
        drop(state);
        self.displace_columns(taken);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        let mut state = self.lock();
        let account = Self::account(&mut state, reservation.consumer());
        *account = account.saturating_sub(shrink);
        if let Some(owner) = state.owners.get(&reservation.consumer().id()) {
            owner.gave(shrink);
        }
        drop(state);
        self.given_back.notify_waiters();
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let mut state = self.lock();
        let kind = Kind::of(reservation.consumer());
        if !self.fits(&state, kind, reservation.size(), additional) {
            return Err(DataFusionError::ResourcesExhausted(format!(
                "{} asked for {} on top of {}, with {} of {} taken",
                reservation.consumer().name(),
                human_readable_size(additional),
                human_readable_size(reservation.size()),
                human_readable_size(state.all()),
                human_readable_size(self.limit),
            )));
        }
        Self::add(&mut state, reservation.consumer(), additional);
        let taken = state.all();
        drop(state);
        self.displace_columns(taken);
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.lock().all()
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.limit)
    }
}

/// The part of a pool that statements of one class, or of one engine, may take together, so that others find the
/// rest free.
/// Merges and what deals out rows are counted by the pool alone.
#[derive(Debug)]
pub(crate) struct ClassPool {
    pool: Arc<dyn MemoryPool>,
    limit: AtomicUsize,
    taken: Mutex<usize>,
    /// Times that this part was too small, whatever the pool had.
    refusals: AtomicU64,
}

impl ClassPool {
    pub fn new(pool: Arc<dyn MemoryPool>, limit: usize) -> Self {
        let limit = AtomicUsize::new(limit);
        Self { pool, limit, taken: Mutex::default(), refusals: AtomicU64::new(0) }
    }

    fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    pub fn set_limit(&self, bytes: usize) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    pub fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }

    fn taken(&self) -> MutexGuard<'_, usize> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Is more than half of it free?
    pub fn has_room(&self) -> bool {
        *self.taken() <= self.limit() / 2
    }

    fn counts(reservation: &MemoryReservation) -> bool {
        !matches!(Kind::of(reservation.consumer()), Kind::Merge | Kind::Repartition)
    }

    /// May one that holds `held` take `more` when so much is taken? As in [`SharedPool`], what holds
    /// nothing has nothing to spill, and a few rows more do not make a join fail.
    fn fits(&self, taken: usize, held: usize, more: usize) -> bool {
        let limit = self.limit();
        let overdraft = held == 0 || more <= limit / 64;
        let limit = if overdraft { limit + limit / 10 } else { limit };
        taken.saturating_add(more) <= limit
    }
}

impl fmt::Display for ClassPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "class({} of {})", human_readable_size(self.limit()), self.pool)
    }
}

impl MemoryPool for ClassPool {
    fn name(&self) -> &'static str {
        "class"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.pool.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.pool.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        if Self::counts(reservation) {
            *self.taken() += additional;
        }
        self.pool.grow(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        if Self::counts(reservation) {
            let mut taken = self.taken();
            *taken = taken.saturating_sub(shrink);
        }
        self.pool.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        if !Self::counts(reservation) {
            return self.pool.try_grow(reservation, additional);
        }
        let mut taken = self.taken();
        if !self.fits(*taken, reservation.size(), additional) {
            self.refusals.fetch_add(1, Ordering::Relaxed);
            return Err(DataFusionError::ResourcesExhausted(format!(
                "{} asked for {} on top of {}, with {} of {} taken by statements of its part",
                reservation.consumer().name(),
                human_readable_size(additional),
                human_readable_size(reservation.size()),
                human_readable_size(*taken),
                human_readable_size(self.limit()),
            )));
        }
        self.pool.try_grow(reservation, additional)?;
        *taken += additional;
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.pool.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.limit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_memory_is_given_and_shares_and_the_last_fifth_are_kept() {
        let pool = SharedPool::new(1000, KeptColumns::new(0), Arc::default());
        let state =
            |spilling_consumers, taken| State { spilling_consumers, taken, ..State::default() };
        // Free memory goes to whoever asks, even beyond an even share.
        assert!(pool.fits(&state(10, 0), Kind::Spilling, 0, 700));
        // Past four fifths only up to the share of 80.
        assert!(pool.fits(&state(10, 800), Kind::Spilling, 0, 80));
        assert!(!pool.fits(&state(10, 800), Kind::Spilling, 10, 80));
        // One that holds nothing cannot spill.
        assert!(pool.fits(&state(10, 800), Kind::Spilling, 0, 90));
        assert!(!pool.fits(&state(10, 950), Kind::Spilling, 0, 90));
        // The last fifth is for those that cannot spill, and the limit is for all.
        assert!(pool.fits(&state(10, 800), Kind::Fixed, 0, 200));
        assert!(!pool.fits(&state(10, 950), Kind::Spilling, 0, 80));
        assert!(!pool.fits(&state(10, 900), Kind::Fixed, 0, 200));
        // What a merge asks for is mostly counted already, and takes nothing from others beyond the last fifth.
        let merging =
            |taken, merging| State { spilling_consumers: 2, taken, merging, ..State::default() };
        assert!(pool.fits(&merging(800, 0), Kind::Merge, 0, 900));
        assert!(!pool.fits(&merging(800, 0), Kind::Merge, 0, 902));
        assert!(pool.fits(&merging(800, 900), Kind::Fixed, 0, 0));
        assert!(!pool.fits(&merging(800, 900), Kind::Fixed, 0, 16));
        // Arrays leave half to those that cannot go on in another way.
        assert!(pool.fits(&state(0, 300), Kind::Arrays, 300, 200));
        assert!(!pool.fits(&state(0, 300), Kind::Arrays, 300, 201));
        // A few groups need no such room.
        assert!(pool.fits(&state(0, 1069), Kind::Arrays, 0, 31));
        assert!(!pool.fits(&state(0, 1070), Kind::Arrays, 0, 31));
        assert!(!pool.fits(&state(0, 600), Kind::Arrays, 31, 31));
        // Queues between partitions must not spill, and leave half to others, however long they are.
        assert!(pool.fits(&merging(1000, 900), Kind::Repartition, 0, 500));
        let queued = |taken, queued| State { taken, queued, ..State::default() };
        assert!(pool.fits(&queued(300, 5000), Kind::Spilling, 300, 200));
        assert!(pool.fits(&queued(300, 5000), Kind::Fixed, 300, 200));
        assert!(!pool.fits(&queued(300, 5000), Kind::Fixed, 300, 216));
        assert!(pool.fits(&queued(300, 400), Kind::Fixed, 300, 300));
        // Groups leave as much as they hold, but have their first batch.
        assert!(pool.fits(&state(10, 300), Kind::Groups, 300, 100));
        assert!(!pool.fits(&state(10, 300), Kind::Groups, 300, 101));
        assert!(pool.fits(&state(10, 800), Kind::Groups, 0, 100));
        // A build side of 300 asks for its hash table while it can still be copied.
        assert!(pool.fits(&state(0, 300), Kind::BuildSide, 300, 400));
        assert!(!pool.fits(&state(0, 300), Kind::BuildSide, 300, 401));
        assert!(pool.fits(&state(0, 900), Kind::BuildSide, 900, 15));
        // Small requests may overdraw.
        assert!(pool.fits(&merging(800, 900), Kind::Fixed, 0, 15));
        assert!(!pool.fits(&merging(900, 900), Kind::Fixed, 0, 15));
    }

    #[test]
    fn a_class_leaves_the_rest_to_others() {
        let whole: Arc<dyn MemoryPool> =
            Arc::new(SharedPool::new(64_000, KeptColumns::new(0), Arc::default()));
        let class: Arc<dyn MemoryPool> = Arc::new(ClassPool::new(Arc::clone(&whole), 32_000));
        let of = |pool, name: &str| MemoryConsumer::new(name).register(pool);
        let (first, second) = (of(&class, "first"), of(&class, "second"));
        first.try_grow(30_000).unwrap();
        second.try_grow(3_000).unwrap();
        assert!(second.try_grow(3_000).is_err(), "32,000 are for this class");
        second.try_grow(500).unwrap();
        let other = of(&whole, "other");
        other.try_grow(30_000).unwrap();
        assert!(
            first.try_grow(400).is_ok() && other.try_grow(2_000).is_err(),
            "64,000 are for all"
        );
        drop(first);
        second.try_grow(20_000).unwrap();
        let rows = of(&class, "RepartitionExec[1]");
        rows.try_grow(50_000).unwrap();
        drop((second, rows, other));
        assert_eq!((whole.reserved(), class.reserved()), (0, 0));
        of(&class, "all").try_grow(32_000).unwrap();
    }
}
