//! What `latch` and `gate` need of the machine; the loom models put their own in its place.

pub(crate) use std::sync::atomic::{AtomicI64, AtomicU64, Ordering, fence};

use std::cell::Cell;
use std::sync::atomic::AtomicUsize;

/// Stripes that threads are spread over; half the threads of a large machine.
pub(crate) const STRIPES: usize = 16;

/// One turn of a waiting loop.
#[inline]
pub(crate) fn relax(give_way: bool) {
    if give_way { std::thread::yield_now() } else { std::hint::spin_loop() }
}

/// A small number of this thread, to spread threads over stripes and shards.
#[inline]
pub(crate) fn stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static STRIPE: Cell<usize> = const { Cell::new(usize::MAX) });
    STRIPE.with(|stripe| {
        if stripe.get() == usize::MAX {
            stripe.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        stripe.get()
    })
}
