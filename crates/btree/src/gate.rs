//! The gate all writers pass, so that a checkpoint can have the tree to itself.
//!
//! Passing costs two atomic additions on a cache line few threads share; closing visits every
//! stripe. The stripes also count entries, because the line is taken anyway.
//!
//! # Invariants
//! - Between [`Gate::close`] and the drop of what it returns, no [`Pass`] exists.
//! - At most one closer at a time (the callers hold the checkpoint lock).

use super::sync::{AtomicI64, AtomicU64, Ordering, relax, stripe};

/// Stripes of the gate; more than the cores of a usual machine divided by two.
pub(crate) const STRIPES: usize = 16;
const SPINS: u32 = 40;

#[repr(align(128))]
struct Stripe {
    inside: AtomicU64,
    entries: AtomicI64,
}

/// See the module.
pub(crate) struct Gate {
    closed: AtomicU64,
    stripes: [Stripe; STRIPES],
}

/// A writer inside the gate.
pub(crate) struct Pass<'a> {
    stripe: &'a Stripe,
}

/// The gate is closed while this lives.
pub(crate) struct Closed<'a> {
    gate: &'a Gate,
}

impl Gate {
    pub(crate) fn new(entries: u64) -> Self {
        let gate = Self {
            closed: AtomicU64::new(0),
            stripes: std::array::from_fn(|_| Stripe {
                inside: AtomicU64::new(0),
                entries: AtomicI64::new(0),
            }),
        };
        gate.stripes[0].entries.store(entries as i64, Ordering::Relaxed);
        gate
    }

    #[inline]
    pub(crate) fn pass(&self) -> Pass<'_> {
        let stripe = &self.stripes[stripe() % STRIPES];
        loop {
            // Both sides write their own word and then read the other's, so both need the single
            // order of SeqCst: otherwise each could miss the other.
            stripe.inside.fetch_add(1, Ordering::SeqCst);
            if self.closed.load(Ordering::SeqCst) == 0 {
                return Pass { stripe };
            }
            stripe.inside.fetch_sub(1, Ordering::Release);
            self.wait_until_open();
        }
    }

    #[cold]
    fn wait_until_open(&self) {
        while self.closed.load(Ordering::Acquire) != 0 {
            relax(true);
        }
    }

    /// Waits until the last writer has left, and keeps new ones out.
    pub(crate) fn close(&self) -> Closed<'_> {
        self.closed.store(1, Ordering::SeqCst);
        for stripe in &self.stripes {
            let mut turns = 0;
            while stripe.inside.load(Ordering::SeqCst) != 0 {
                turns += 1;
                relax(turns > SPINS);
            }
        }
        Closed { gate: self }
    }

    /// Entries of the tree; exact while nobody writes.
    pub(crate) fn entries(&self) -> u64 {
        let sum: i64 = self.stripes.iter().map(|s| s.entries.load(Ordering::Relaxed)).sum();
        sum.max(0) as u64
    }
}

impl Pass<'_> {
    #[inline]
    pub(crate) fn count(&self, entries: i64) {
        self.stripe.entries.fetch_add(entries, Ordering::Relaxed);
    }
}

impl Drop for Pass<'_> {
    #[inline]
    fn drop(&mut self) {
        self.stripe.inside.fetch_sub(1, Ordering::Release);
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.gate.closed.store(0, Ordering::Release);
    }
}
