//! Hashing of keys: one multiplication per 16 bytes, folded.
//!
//! The hash lives in memory only, so its seed is each process's own and keys cannot be chosen to
//! collide. The folded 128-bit product is that of Wang Yi's wyhash and of `foldhash`.

/// Odd constants with irregular bits.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
const MIX: u64 = 0xBF58_476D_1CE4_E5B9;

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[inline]
pub(crate) fn hash(seed: u64, key: &[u8]) -> u64 {
    let word = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
    let (pairs, tail) = key.as_chunks::<16>();
    let mut hash = seed ^ (key.len() as u64).wrapping_mul(MIX);
    for pair in pairs {
        let (words, _) = pair.as_chunks::<8>();
        hash = fold(hash ^ word(&words[0]), word(&words[1]) ^ seed ^ SPREAD);
    }
    if !tail.is_empty() {
        let mut last = [0; 16];
        last[..tail.len()].copy_from_slice(tail);
        let (words, _) = last.as_chunks::<8>();
        hash = fold(hash ^ word(&words[0]), word(&words[1]) ^ seed ^ SPREAD);
    }
    fold(hash ^ seed, MIX)
}
