//! Memory that engines of a process take from together.
//!
//! # Invariants
//! - What operators of all engines have taken, and columns that are kept for any of them, is within one limit
//!   (`pool` says how far over it a few may go).
//! - An engine that may take less than all takes no more than that.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryPool, MemoryReservation, TrackConsumersPool,
};
use tokio::sync::Notify;

use crate::base::error::{EngineError, Result};
use crate::base::sql_state::SqlState;
use crate::cache::columns::KeptColumns;
use crate::cache::pool::{ClassPool, SharedPool};

/// Consumers that a limit error names.
const NAMED_CONSUMERS: usize = 3;
/// Of an engine's memory, what all writers of rows may have, as one part of so many.
const WRITERS_SHARE: usize = 2;
/// Of the memory, what decoded columns may take while queries do not need it.
const COLUMN_CACHE_SHARE: usize = 2;

/// Memory for the queries of several engines, made once from a number of bytes.
///
/// Copies are the same memory. See [`Engine::with_memory`](crate::Engine::with_memory).
#[derive(Clone)]
pub struct SharedMemory(Arc<Shared>);

struct Shared {
    bytes: usize,
    pool: Arc<dyn MemoryPool>,
    columns: Arc<KeptColumns>,
    engines: AtomicUsize,
    given_back: Arc<Notify>,
}

impl fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedMemory").field("bytes", &self.0.bytes).finish_non_exhaustive()
    }
}

impl SharedMemory {
    /// So many bytes for all queries of all engines together.
    pub fn new(bytes: usize) -> Self {
        let columns = KeptColumns::new(bytes / COLUMN_CACHE_SHARE);
        let given_back = Arc::<Notify>::default();
        let pool = Arc::new(TrackConsumersPool::new(
            SharedPool::new(bytes, Arc::clone(&columns), Arc::clone(&given_back)),
            NonZeroUsize::new(NAMED_CONSUMERS).unwrap_or(NonZeroUsize::MIN),
        ));
        Self(Arc::new(Shared { bytes, pool, columns, engines: AtomicUsize::new(0), given_back }))
    }

    /// The limit.
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// What operators have taken, without columns that are kept.
    pub fn taken_bytes(&self) -> usize {
        self.0.pool.reserved()
    }

    /// What is kept of columns while nobody needs it.
    pub fn kept_bytes(&self) -> usize {
        self.0.columns.bytes()
    }

    /// The part of one more engine: at most `bytes`.
    pub(crate) fn join(&self, bytes: usize) -> EngineMemory {
        self.0.engines.fetch_add(1, Ordering::Relaxed);
        let of_all = || Arc::clone(&self.0.pool);
        let part = (bytes < self.0.bytes).then(|| Arc::new(ClassPool::new(of_all(), bytes)));
        let bytes = bytes.min(self.0.bytes);
        EngineMemory { shared: self.clone(), bytes, part, writing: AtomicUsize::new(0) }
    }
}

/// A part of an engine's memory that the statements of several sessions take from together, so that others find the
/// rest free. Copies are the same part.
#[derive(Clone, Debug)]
pub struct MemoryShare(Arc<ClassPool>);

impl MemoryShare {
    pub(crate) fn new(pool: Arc<dyn MemoryPool>, bytes: usize) -> Self {
        Self(Arc::new(ClassPool::new(pool, bytes)))
    }

    /// It has so many bytes from now on; those that are taken already stay.
    pub fn set_bytes(&self, bytes: usize) {
        self.0.set_limit(bytes);
    }

    pub(crate) fn pool(&self) -> Arc<dyn MemoryPool> {
        Arc::clone(&self.0) as _
    }

    /// How often somebody was refused because the part is taken, whatever is free beside it.
    pub(crate) fn refusals(&self) -> u64 {
        self.0.refusals()
    }
}

/// Memory that is taken, until it is dropped: see [`Session::hold_memory`](crate::Session::hold_memory).
#[derive(Debug)]
pub struct HeldMemory(MemoryReservation);

impl HeldMemory {
    pub(crate) fn take(
        pool: &Arc<dyn MemoryPool>,
        what: &str,
        most: usize,
        least: usize,
    ) -> Result<Self> {
        let reservation = MemoryConsumer::new(what).register(pool);
        let mut bytes = most;
        while bytes >= least.max(1) {
            if reservation.try_grow(bytes).is_ok() {
                return Ok(Self(reservation));
            }
            bytes /= 2;
        }
        let what = format!("{what} needs {} MiB, and statements have taken them", least >> 20);
        Err(EngineError::limit(SqlState::OutOfMemory, &what))
    }

    /// How much it is.
    pub fn bytes(&self) -> usize {
        self.0.size()
    }
}

/// What one engine may take.
pub(crate) struct EngineMemory {
    shared: SharedMemory,
    bytes: usize,
    /// If it is not all.
    part: Option<Arc<ClassPool>>,
    /// What [`WriterMemory`] has taken.
    writing: AtomicUsize,
}

/// Memory for rows that come from elsewhere and are written, until it is dropped.
pub(crate) struct WriterMemory {
    held: HeldMemory,
    of: Arc<EngineMemory>,
}

impl WriterMemory {
    /// Takes up to `most` bytes out of `pool`, but no more than half of what writers may still have: all of them
    /// together have half of the engine's memory, so that queries find the rest.
    ///
    /// # Errors
    /// [`EngineError::Limit`] if there is less than `least`.
    pub fn take(
        of: &Arc<EngineMemory>,
        pool: &Arc<dyn MemoryPool>,
        most: usize,
        least: usize,
    ) -> Result<Self> {
        let for_writers = of.bytes / WRITERS_SHARE;
        let left = for_writers.saturating_sub(of.writing.load(Ordering::Relaxed));
        let held = HeldMemory::take(pool, "writing rows", most.min(left / 2), least)?;
        of.writing.fetch_add(held.bytes(), Ordering::Relaxed);
        Ok(Self { held, of: Arc::clone(of) })
    }

    /// How much it is.
    pub fn bytes(&self) -> usize {
        self.held.bytes()
    }
}

impl Drop for WriterMemory {
    fn drop(&mut self) {
        self.of.writing.fetch_sub(self.held.bytes(), Ordering::Relaxed);
    }
}

impl EngineMemory {
    pub fn pool(&self) -> Arc<dyn MemoryPool> {
        match &self.part {
            Some(part) => Arc::clone(part) as _,
            None => Arc::clone(&self.shared.0.pool),
        }
    }

    /// What wakes those that wait for memory of whichever engine.
    pub fn given_back(&self) -> &Notify {
        &self.shared.0.given_back
    }

    /// Columns that are kept for whichever engine.
    pub fn columns(&self) -> &Arc<KeptColumns> {
        &self.shared.0.columns
    }

    /// Bytes for all engines.
    pub fn shared_bytes(&self) -> usize {
        self.shared.bytes()
    }

    /// Do other engines take from the same?
    pub fn is_shared(&self) -> bool {
        self.shared.0.engines.load(Ordering::Relaxed) > 1
    }

    /// Is more than half of it free, and of this engine's part?
    pub fn has_room(&self) -> bool {
        self.shared.taken_bytes() <= self.shared.bytes() / 2
            && self.part.as_ref().is_none_or(|part| part.has_room())
    }
}

impl Drop for EngineMemory {
    fn drop(&mut self) {
        self.shared.0.engines.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn memory_is_held_as_far_as_there_is_some_and_a_share_is_a_share() {
        let memory = SharedMemory::new(64 << 20);
        let engine = memory.join(64 << 20);
        let share = MemoryShare::new(engine.pool(), 32 << 20);
        let held = HeldMemory::take(&share.pool(), "a load", 16 << 20, 4 << 20).unwrap();
        let half = HeldMemory::take(&share.pool(), "a load", 32 << 20, 4 << 20).unwrap();
        assert_eq!((held.bytes(), half.bytes()), (16 << 20, 16 << 20));
        let refused = HeldMemory::take(&share.pool(), "a load", 16 << 20, 8 << 20).unwrap_err();
        assert_eq!(refused.code().as_str(), "53200");
        assert!(share.refusals() > 0 && refused.message().contains("8 MiB"), "{refused}");
        share.set_bytes(64 << 20);
        assert!(HeldMemory::take(&share.pool(), "a load", 16 << 20, 8 << 20).is_ok());
        drop((held, half));
        assert_eq!(memory.taken_bytes(), 0);
    }

    #[test]
    fn who_waits_for_memory_is_woken_when_some_is_given_back() {
        let memory = SharedMemory::new(64 << 20);
        let engine = Arc::new(memory.join(32 << 20));
        let rows = MemoryConsumer::new("rows").register(&engine.pool());
        rows.try_grow(32 << 20).unwrap();
        // More than a part goes over its limit for whoever has nothing yet.
        let take = || WriterMemory::take(&engine, &engine.pool(), 32 << 20, 4 << 20);
        let waits = || {
            let mut woken = Box::pin(engine.given_back().notified());
            assert!(!woken.as_mut().enable());
            woken
        };
        let woken = waits();
        assert!(take().is_err() && woken.now_or_never().is_none());
        let woken = waits();
        rows.shrink(8 << 20);
        assert!(woken.now_or_never().is_some());
        let woken = waits();
        let writer = take().unwrap();
        assert!(woken.now_or_never().is_none());
        let woken = waits();
        drop(writer);
        assert!(woken.now_or_never().is_some() && take().is_ok());
    }

    #[test]
    fn writers_leave_half_of_the_memory_however_many_there_are() {
        let memory = SharedMemory::new(64 << 20);
        let engine = Arc::new(memory.join(64 << 20));
        let take = || WriterMemory::take(&engine, &engine.pool(), 256 << 20, 2 << 20);
        let writers: Vec<_> = std::iter::from_fn(|| take().ok()).collect();
        let bytes: Vec<_> = writers.iter().map(|writer| writer.bytes() >> 20).collect();
        assert_eq!(bytes, [16, 8, 4, 2]);
        assert_eq!(take().err().map(|error| error.code().as_str()), Some("53200"));
        let query = MemoryConsumer::new("rows").register(&engine.pool());
        query.try_grow(32 << 20).unwrap();
        drop(writers);
        assert_eq!(take().unwrap().bytes(), 16 << 20);
        query.try_grow(32 << 20).unwrap();
        assert!(take().is_err(), "queries have all");
    }

    #[test]
    fn engines_take_from_one_limit_and_none_more_than_its_part() {
        let memory = SharedMemory::new(64_000);
        let (whole, part) = (memory.join(64_000), memory.join(16_000));
        assert!(whole.is_shared() && whole.has_room());
        let of = |engine: &EngineMemory| MemoryConsumer::new("rows").register(&engine.pool());
        let (first, second) = (of(&whole), of(&part));
        second.try_grow(16_000).unwrap();
        assert!(!part.has_room() && whole.has_room());
        assert!(second.try_grow(2_000).is_err(), "16,000 are for this one");
        first.try_grow(40_000).unwrap();
        assert_eq!(memory.taken_bytes(), 56_000);
        assert!(!whole.has_room());
        assert!(first.try_grow(20_000).is_err(), "64,000 are for both");
        drop(second);
        first.try_grow(20_000).unwrap();
        drop((first, part));
        assert!(!whole.is_shared());
        assert_eq!((memory.taken_bytes(), memory.kept_bytes()), (0, 0));
    }
}
