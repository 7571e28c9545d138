//! Hashing of keys: one multiplication per 16 bytes, folded.
//!
//! The seed is drawn by whoever makes an index, so keys cannot be chosen to collide. Checkpoints of
//! the index hold hashes: another hash is another format of [`crate::index_file`]. The folded 128-bit product is that of Wang Yi's wyhash and of `foldhash`.

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
    let mut hash = seed ^ (key.len() as u64).wrapping_mul(MIX);
    let (pairs, tail) = key.as_chunks::<16>();
    for pair in pairs {
        let (words, _) = pair.as_chunks::<8>();
        hash = step(seed, hash, u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1]));
    }
    // The last bytes are read as two words that may overlap each other and what came before: no
    // copy, and with the length in the hash no two keys look the same.
    if !tail.is_empty() {
        let (first, last) = ends(key, tail);
        hash = step(seed, hash, first, last);
    }
    fold(hash ^ seed, MIX)
}

#[inline]
fn step(seed: u64, hash: u64, first: u64, last: u64) -> u64 {
    fold(hash ^ first, last ^ seed ^ SPREAD)
}

/// Words that hold all of `tail`, the at most 15 last bytes of `key`.
#[inline]
fn ends(key: &[u8], tail: &[u8]) -> (u64, u64) {
    if let Some(last) = key.last_chunk::<16>() {
        let (words, _) = last.as_chunks::<8>();
        return (u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1]));
    }
    if let (Some(first), Some(last)) = (tail.first_chunk::<8>(), tail.last_chunk::<8>()) {
        return (u64::from_le_bytes(*first), u64::from_le_bytes(*last));
    }
    if let (Some(first), Some(last)) = (tail.first_chunk::<4>(), tail.last_chunk::<4>()) {
        return (u64::from(u32::from_le_bytes(*first)), u64::from(u32::from_le_bytes(*last)));
    }
    let byte = |at: usize| u64::from(tail[at.min(tail.len() - 1)]);
    (byte(0) | byte(1) << 8 | byte(2) << 16, 0)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Made by a second implementation of the text above.
    const HASHES: [u64; 9] = [
        0x0000_0000_0000_0000,
        0xb2d1_90f0_daea_8b25,
        0x8ef1_e807_b0e6_bc86,
        0x4da7_d3b4_ba1d_25e8,
        0x3c64_b53f_19a3_2281,
        0x3feb_886c_f7e7_8c57,
        0x13c7_77d0_ac76_e2af,
        0xf901_a3af_f022_e797,
        0xafa2_646b_5ad9_5cb1,
    ];

    #[test]
    fn hashes_are_those_that_checkpoints_hold() {
        let of = |length: usize| hash(7, &[b'a'; 40][..length]);
        let hashes = [of(0), of(1), of(3), of(4), of(8), of(15), of(16), of(17), of(40)];
        assert_eq!(hashes, HASHES);
    }

    #[test]
    fn keys_of_any_length_that_differ_in_a_bit_have_other_hashes() {
        let mut hashes = HashSet::new();
        let mut count = 0;
        for length in 0..70 {
            let mut key = vec![0x5A; length];
            for bit in 0..=8 * length {
                hashes.insert(hash(3, &key) >> 8);
                count += 1;
                if bit < 8 * length {
                    key[bit / 8] ^= 1 << (bit % 8);
                }
            }
        }
        assert_eq!(hashes.len(), count);
    }
}
