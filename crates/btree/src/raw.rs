//! The unsafe corner: memory for frames, and the three loops safe atomics are too slow for.
//!
//! Pages are arrays of [`AtomicU64`], because readers look at a page while a writer changes it and
//! find out afterwards (see `latch`). All other modules use plain relaxed loads and stores. Here are:
//! the allocation of frames, counting how many of 16 keys are not greater than a key, moving words
//! inside a page, and prefetching. On x86-64 the two loops are inline assembly: to the compiler an
//! opaque access, so there is no data race in Rust's sense, and to the machine ordinary loads and
//! stores of at least 8 aligned bytes at a time. Everywhere else, and under Miri, they are loops
//! over relaxed atomics, which are also the oracle of the tests.
//!
//! # Invariants
//! - Every word of a frame and of [`zeroed_words`] is initialised (zero) and lives until the drop.
//! - Word indexes are checked here, so no caller can reach beyond its page.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes of a page, in memory and in the file. 4 KiB beat 16 KiB on every unbatched operation
/// (insert 1.9x, get 1.7x), and a read of either costs about the same from this class of disk.
pub const PAGE_BYTES: usize = 4096;
/// 8-byte words of a page.
pub(crate) const WORDS: usize = PAGE_BYTES / 8;
/// Keys compared at once.
pub(crate) const BLOCK: usize = 16;
/// Frames start at a multiple of this, so that the kernel can back them by 2 MiB pages: 16-19 %
/// fewer nanoseconds per look-up at 10 million keys.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// The words of one page.
#[repr(C, align(4096))]
pub(crate) struct Words {
    words: [AtomicU64; WORDS],
}

impl Words {
    #[inline(always)]
    pub(crate) fn word(&self, index: usize) -> &AtomicU64 {
        &self.words[index]
    }

    #[inline(always)]
    pub(crate) fn get(&self, index: usize) -> u64 {
        self.words[index & (WORDS - 1)].load(Relaxed)
    }

    #[inline(always)]
    pub(crate) fn set(&self, index: usize, value: u64) {
        self.words[index].store(value, Relaxed);
    }

    /// How many of the `count <= 16` words from `start` are not greater than `key`.
    #[inline(always)]
    pub(crate) fn count_not_above(&self, start: usize, count: usize, key: u64) -> usize {
        debug_assert!(count <= BLOCK);
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if start <= WORDS - BLOCK && has_avx512() {
            let found: u64;
            // SAFETY: the 16 words from `start` are inside the page (just checked) and
            // initialised; the instructions used are part of AVX-512F and POPCNT, which the machine
            // has; the block writes no memory and says which registers it changes.
            unsafe {
                std::arch::asm!(
                    "vpbroadcastq zmm16, {key}",
                    "vpcmpuq k1, zmm16, zmmword ptr [{at}], 5",
                    "vpcmpuq k2, zmm16, zmmword ptr [{at} + 64], 5",
                    "kmovw {low:e}, k1",
                    "kmovw {high:e}, k2",
                    "shl {high:e}, 8",
                    "or {low:e}, {high:e}",
                    "and {low:e}, {wanted:e}",
                    "popcnt {low:e}, {low:e}",
                    key = in(reg) key,
                    wanted = in(reg) (1u64 << count) - 1,
                    at = in(reg) self.words.as_ptr().add(start),
                    low = out(reg) found,
                    high = out(reg) _,
                    out("xmm16") _,
                    out("k1") _,
                    out("k2") _,
                    options(readonly, nostack),
                );
            }
            return found as usize;
        }
        self.count_not_above_plain(start, count, key)
    }

    fn count_not_above_plain(&self, start: usize, count: usize, key: u64) -> usize {
        (start..start + count).map(|index| usize::from(self.get(index) <= key)).sum()
    }

    /// Copies `count` words from word `from` to word `to`; the two may overlap.
    #[inline(always)]
    pub(crate) fn shift(&self, from: usize, to: usize, count: usize) {
        assert!(from + count <= WORDS && to + count <= WORDS, "words outside the page");
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: both ranges are inside the page (just checked). The words are atomics, so they
        // may change behind a shared reference; only the holder of the page's latch calls this.
        // Each loop loads what it stores at once before it stores it, and walks away from the
        // overlap. Lines go first, then what is left of fewer than 8 words.
        unsafe {
            let base = self.words.as_ptr().cast::<u64>().cast_mut();
            let (mut from, mut to, mut count) = (from, to, count);
            if count >= 8 && has_avx512() {
                let rest = count % 8;
                if to <= from {
                    move_lines_ascending(base.add(from), base.add(to), count - rest);
                    (from, to) = (from + count - rest, to + count - rest);
                } else {
                    move_lines_descending(
                        base.add(from + count),
                        base.add(to + count),
                        count - rest,
                    );
                }
                count = rest;
            }
            if to <= from {
                move_ascending(base.add(from), base.add(to), count);
            } else {
                move_descending(base.add(from + count), base.add(to + count), count);
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        self.shift_plain(from, to, count);
    }

    #[cfg(any(test, miri, not(target_arch = "x86_64")))]
    fn shift_plain(&self, from: usize, to: usize, count: usize) {
        if to <= from {
            (0..count).for_each(|i| self.set(to + i, self.get(from + i)));
        } else {
            (0..count).rev().for_each(|i| self.set(to + i, self.get(from + i)));
        }
    }

    /// Asks for the cache line of a word, and does not wait for it.
    #[inline(always)]
    pub(crate) fn prefetch(&self, index: usize) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a prefetch changes nothing and may be given any address; this one is in the page.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch(self.words.as_ptr().add(index & (WORDS - 1)).cast(), _MM_HINT_T0);
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = index;
    }
}

/// Every machine with AVX-512F has POPCNT.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn has_avx512() -> bool {
    std::arch::is_x86_feature_detected!("avx512f")
}

/// Copies upwards, 4 words at a time.
///
/// # Safety
/// `count` words are readable at `from` and writable at `to`, and `to <= from`.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
unsafe fn move_ascending(from: *const u64, to: *mut u64, count: usize) {
    // SAFETY: `count` words are read and written, as the caller promises; nothing else is touched.
    unsafe {
        std::arch::asm!(
            "2:",
            "cmp {n}, 4",
            "jb 3f",
            "movups {a}, [{s}]",
            "movups {b}, [{s} + 16]",
            "movups [{d}], {a}",
            "movups [{d} + 16], {b}",
            "add {s}, 32",
            "add {d}, 32",
            "sub {n}, 4",
            "jmp 2b",
            "3:",
            "test {n}, {n}",
            "jz 4f",
            "mov {t}, [{s}]",
            "mov [{d}], {t}",
            "add {s}, 8",
            "add {d}, 8",
            "dec {n}",
            "jmp 3b",
            "4:",
            n = inout(reg) count => _,
            s = inout(reg) from => _,
            d = inout(reg) to => _,
            t = out(reg) _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            options(nostack),
        );
    }
}

/// Copies upwards, 8 words at a time. The registers above 15 are those whose use costs older code
/// that runs afterwards nothing.
///
/// # Safety
/// `count` words, a multiple of 8, are readable at `from` and writable at `to`, `to <= from`, and
/// the machine has AVX-512F.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
unsafe fn move_lines_ascending(from: *const u64, to: *mut u64, count: usize) {
    // SAFETY: `count` words are read and written, as the caller promises; nothing else is touched.
    unsafe {
        std::arch::asm!(
            "2:",
            "vmovdqu64 zmm16, [{s} + {i}]",
            "vmovdqu64 [{d} + {i}], zmm16",
            "add {i}, 64",
            "cmp {i}, {n}",
            "jb 2b",
            s = in(reg) from,
            d = in(reg) to,
            n = in(reg) count * 8,
            i = inout(reg) 0usize => _,
            out("xmm16") _,
            options(nostack),
        );
    }
}

/// Copies downwards, 8 words at a time; the pointers are the ends of the ranges.
///
/// # Safety
/// `count` words, a multiple of 8, are readable before `from_end` and writable before `to_end`,
/// `to_end >= from_end`, and the machine has AVX-512F.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
unsafe fn move_lines_descending(from_end: *const u64, to_end: *mut u64, count: usize) {
    // SAFETY: `count` words are read and written, as the caller promises; nothing else is touched.
    unsafe {
        std::arch::asm!(
            "2:",
            "vmovdqu64 zmm16, [{s} + {i} - 64]",
            "vmovdqu64 [{d} + {i} - 64], zmm16",
            "sub {i}, 64",
            "cmp {i}, {n}",
            "jne 2b",
            s = in(reg) from_end,
            d = in(reg) to_end,
            n = in(reg) 0isize.wrapping_sub(count as isize * 8),
            i = inout(reg) 0usize => _,
            out("xmm16") _,
            options(nostack),
        );
    }
}

/// Copies downwards, 4 words at a time; the pointers are the ends of the ranges.
///
/// # Safety
/// `count` words are readable before `from_end` and writable before `to_end`, and
/// `to_end >= from_end`.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
unsafe fn move_descending(from_end: *const u64, to_end: *mut u64, count: usize) {
    // SAFETY: `count` words are read and written, as the caller promises; nothing else is touched.
    unsafe {
        std::arch::asm!(
            "2:",
            "cmp {n}, 4",
            "jb 3f",
            "movups {a}, [{s} - 16]",
            "movups {b}, [{s} - 32]",
            "movups [{d} - 16], {a}",
            "movups [{d} - 32], {b}",
            "sub {s}, 32",
            "sub {d}, 32",
            "sub {n}, 4",
            "jmp 2b",
            "3:",
            "test {n}, {n}",
            "jz 4f",
            "mov {t}, [{s} - 8]",
            "mov [{d} - 8], {t}",
            "sub {s}, 8",
            "sub {d}, 8",
            "dec {n}",
            "jmp 3b",
            "4:",
            n = inout(reg) count => _,
            s = inout(reg) from_end => _,
            d = inout(reg) to_end => _,
            t = out(reg) _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            options(nostack),
        );
    }
}

/// Memory for the frames of a pool.
pub(crate) struct Arena {
    allocation: *mut u8,
    layout: Layout,
    frames: *const Words,
    count: usize,
}

// SAFETY: the arena owns its allocation, and all access to it goes through atomics.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// `None` if the system does not have the memory.
    pub(crate) fn new(count: usize) -> Option<Self> {
        let bytes = count.checked_mul(PAGE_BYTES)?;
        let is_large = bytes >= HUGE_PAGE_BYTES;
        let align = if is_large { HUGE_PAGE_BYTES } else { PAGE_BYTES };
        // Aligned by hand: asking the allocator for the alignment makes it clear the memory itself,
        // while large plain requests come from the system as untouched zero pages.
        let layout = Layout::from_size_align(bytes.checked_add(align)?, 16).ok()?;
        // SAFETY: the size is not 0, because `align` is not.
        let allocation = unsafe { alloc_zeroed(layout) };
        if allocation.is_null() {
            return None;
        }
        let skip = allocation.align_offset(align);
        // SAFETY: `skip < align`, so that `bytes` bytes remain inside the allocation.
        let frames = unsafe { allocation.add(skip) };
        if is_large {
            ask_for_huge_pages(frames, bytes);
        }
        Some(Self { allocation, layout, frames: frames.cast(), count })
    }

    #[inline(always)]
    pub(crate) fn frame(&self, frame: u32) -> &Words {
        assert!((frame as usize) < self.count, "frame outside the pool");
        // SAFETY: the index is inside; the memory is zeroed, aligned for `Words`, lives as long as
        // `self`, and is only ever reached through its atomics.
        unsafe { &*self.frames.add(frame as usize) }
    }

    /// The frame number of a page of this arena.
    #[inline]
    pub(crate) fn number(&self, words: &Words) -> u32 {
        let offset = std::ptr::from_ref(words).addr() - self.frames.addr();
        let frame = offset / PAGE_BYTES;
        assert!(frame < self.count, "page outside the pool");
        frame as u32
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.count
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout; borrows of frames end before the drop.
        unsafe { dealloc(self.allocation, self.layout) };
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
fn ask_for_huge_pages(start: *mut u8, bytes: usize) {
    const MADV_HUGEPAGE: i32 = 14;
    unsafe extern "C" {
        fn madvise(start: *mut u8, bytes: usize, advice: i32) -> i32;
    }
    // SAFETY: the range is our own allocation and this advice never changes its contents. A refusal
    // only costs speed, so the result is not looked at.
    let _ = unsafe { madvise(start, bytes, MADV_HUGEPAGE) };
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn ask_for_huge_pages(_start: *mut u8, _bytes: usize) {}

/// Words that are zero; the system hands out the memory when it is first written.
pub(crate) fn zeroed_words(count: usize) -> Box<[AtomicU64]> {
    let words = Box::<[AtomicU64]>::new_zeroed_slice(count);
    // SAFETY: all bits zero is a valid `AtomicU64`.
    unsafe { words.assume_init() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(state: &mut u64) -> u64 {
        *state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *state ^ (*state >> 31)
    }

    #[test]
    fn fast_loops_agree_with_plain_ones() {
        let arena = Arena::new(2).expect("two pages of memory");
        let (fast, plain) = (arena.frame(0), arena.frame(1));
        let mut state = 7;
        for _ in 0..if cfg!(miri) { 3 } else { 2000 } {
            for i in 0..WORDS {
                let value = random(&mut state) << (random(&mut state) % 64);
                fast.set(i, value);
                plain.set(i, value);
            }
            let start = random(&mut state) as usize % (WORDS - BLOCK + 1);
            let count = random(&mut state) as usize % (BLOCK + 1);
            let key =
                [0, u64::MAX, fast.get(start), random(&mut state)][random(&mut state) as usize % 4];
            assert_eq!(
                fast.count_not_above(start, count, key),
                plain.count_not_above_plain(start, count, key)
            );
            let count = random(&mut state) as usize % WORDS;
            let from = random(&mut state) as usize % (WORDS - count + 1);
            let to = random(&mut state) as usize % (WORDS - count + 1);
            fast.shift(from, to, count);
            plain.shift_plain(from, to, count);
            assert!((0..WORDS).all(|i| fast.get(i) == plain.get(i)), "{from} {to} {count}");
        }
    }

    #[test]
    fn frames_are_zero_aligned_and_know_their_number() {
        let arena = Arena::new(1024).expect("4 MiB of memory");
        for frame in 0..1024 {
            let words = arena.frame(frame);
            assert_eq!(arena.number(words), frame);
            assert!((0..WORDS).all(|i| words.get(i) == 0));
        }
    }
}
