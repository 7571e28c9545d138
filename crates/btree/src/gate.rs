//! The gate all writers pass, so that a checkpoint can have the tree to itself.
//!
//! Passing costs two atomic additions on a cache line few threads share; closing marks every
//! stripe and waits for those inside. The mark is in the word that counts them, so that one
//! addition both enters and learns whether it may. The stripes also count entries, because the line
//! is taken anyway.
//!
//! # Invariants
//! - Between [`Gate::close`] and the drop of what it returns, no [`Pass`] exists.
//! - At most one closer at a time (the callers hold the checkpoint lock).

use super::sync::{AtomicI64, AtomicU64, Ordering, STRIPES, relax, stripe};

/// The stripe is closed; the other bits count writers inside.
const CLOSED: u64 = 1 << 63;
const SPINS: u32 = 40;

#[repr(align(128))]
struct Stripe {
    inside: AtomicU64,
    entries: AtomicI64,
}

/// See the module.
pub(crate) struct Gate {
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
        while stripe.inside.fetch_add(1, Ordering::Acquire) & CLOSED != 0 {
            stripe.inside.fetch_sub(1, Ordering::Relaxed);
            wait_until(&stripe.inside, |inside| inside & CLOSED == 0);
        }
        Pass { stripe }
    }

    /// Waits until the last writer has left, and keeps new ones out.
    pub(crate) fn close(&self) -> Closed<'_> {
        for stripe in &self.stripes {
            stripe.inside.fetch_or(CLOSED, Ordering::Relaxed);
        }
        for stripe in &self.stripes {
            wait_until(&stripe.inside, |inside| inside == CLOSED);
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
        for stripe in &self.gate.stripes {
            stripe.inside.fetch_and(!CLOSED, Ordering::Release);
        }
    }
}

#[cold]
fn wait_until(inside: &AtomicU64, is_so: impl Fn(u64) -> bool) {
    let mut turns = 0;
    while !is_so(inside.load(Ordering::Acquire)) {
        turns += 1;
        relax(turns > SPINS);
    }
}
