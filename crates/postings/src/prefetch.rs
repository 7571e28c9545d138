//! Asking for a cache line before it is needed.

/// Asks the processor to bring `slice[index]` near. A hint: it reads nothing, cannot fault, and
/// does nothing on processors other than x86-64.
#[inline]
#[allow(unsafe_code)]
pub(crate) fn line<T>(slice: &[T], index: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let address = slice.as_ptr().wrapping_add(index);
        // SAFETY: a prefetch has no effect but on speed, whatever the address; SSE, which has the
        // instruction, is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (slice, index);
}
