//! Hashing: one multiplication per 8 bytes, folded.
//!
//! ```text
//! fold(a, b)   = lower half of a × b, xor upper half
//! integer(id)  = fold(id xor seed, SPREAD)
//! bytes(term)  = h = seed xor length × MIX; for each whole 8 bytes w: h = fold(h xor w, SPREAD);
//!                then with the last 0 to 7 bytes, zeros after them:
//!                fold(fold(h xor w, MIX) xor seed, SPREAD)
//! permute(x)   = x xor seed, times SPREAD_32, xor upper half, times MIX_32; all of it modulo 2^32
//! ```
//!
//! # Invariants
//! - The result is part of the file format: it depends on seed and bytes only, on any platform.
//!
//! # Not here
//! Defence against chosen keys. A table's builder tries other seeds when buckets overflow, and says
//! so when none helps; look-ups stop after the number of buckets that the header names. But the map
//! that numbers terms while they come has one seed, so a load of ids made to collide is slow.
//!
//! # Source
//! The folded 128-bit product is that of Wang Yi's wyhash and of `foldhash`.

use std::hash::{BuildHasher, Hasher};

/// 2^64 divided by the golden ratio, odd: spreads consecutive ids evenly.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
/// An odd constant with irregular bits, for the second product of byte strings.
const MIX: u64 = 0xBF58_476D_1CE4_E5B9;

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[inline]
pub(crate) fn integer(seed: u64, id: u64) -> u64 {
    fold(id ^ seed, SPREAD)
}

#[inline]
pub(crate) fn bytes(seed: u64, term: &[u8]) -> u64 {
    let (words, tail) = term.as_chunks();
    let mut hash = seed ^ (term.len() as u64).wrapping_mul(MIX);
    for &word in words {
        hash = fold(hash ^ u64::from_le_bytes(word), SPREAD);
    }
    let mut last = [0; 8];
    last[..tail.len()].copy_from_slice(tail);
    fold(fold(hash ^ u64::from_le_bytes(last), MIX) ^ seed, SPREAD)
}

/// An odd number near 2^32 divided by the golden ratio.
const SPREAD_32: u32 = 0x9E37_79B1;
/// An odd constant with irregular bits.
const MIX_32: u32 = 0x85EB_CA6B;

/// Another 32-bit number for each: no two have the same.
#[inline]
pub(crate) fn permute(seed: u32, key: u32) -> u32 {
    let spread = (key ^ seed).wrapping_mul(SPREAD_32);
    (spread ^ (spread >> 16)).wrapping_mul(MIX_32)
}

/// The same hash for the maps of a builder.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Fold;

impl BuildHasher for Fold {
    type Hasher = FoldHasher;

    fn build_hasher(&self) -> FoldHasher {
        FoldHasher(MIX)
    }
}

#[derive(Debug)]
pub(crate) struct FoldHasher(u64);

impl Hasher for FoldHasher {
    #[inline]
    fn write(&mut self, term: &[u8]) {
        self.0 = bytes(self.0, term);
    }

    #[inline]
    fn write_u64(&mut self, id: u64) {
        self.0 = integer(self.0, id);
    }

    /// The length that `[u8]` writes before itself; [`bytes`] takes it in.
    #[inline]
    fn write_usize(&mut self, _: usize) {}

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}
