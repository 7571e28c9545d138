//! Bitmaps: sets of whole numbers from 0 to 2⁶⁴ - 1 as values of SQL.
//!
//! A bitmap is a value of type BINARY in the portable format of 64-bit Roaring bitmaps: the count
//! of parts as u64, then per part the high 32 bits as u32 and a 32-bit Roaring bitmap of the low
//! ones, all little-endian. CRoaring (`Roaring64Map`, portable), Java (`Roaring64NavigableMap`,
//! portable), Go and Rust read it.
//!
//! # Invariants
//! - [`decode`] refuses bytes that are no bitmap: parts, keys and values ascend, nothing is empty,
//!   nothing is left over.
//!
//! # Source
//! <https://github.com/RoaringBitmap/RoaringFormatSpec>; functions are named as in Apache Doris.

mod aggregate;
mod scalar;

use datafusion_common::Result;
use roaring::{RoaringBitmap, RoaringTreemap};

use crate::error::FunctionError;

pub(crate) use aggregate::functions as aggregates;
pub(crate) use scalar::functions as scalars;

/// A 32-bit bitmap begins with one of these: with a bit per container that says whether it is of
/// runs (and the count of containers above), or without (and the count after it).
const COOKIE_RUNS: u32 = 12347;
const COOKIE_PLAIN: u32 = 12346;

/// Reads a bitmap.
///
/// # Errors
/// If the bytes are not a bitmap.
pub(crate) fn decode(bytes: &[u8]) -> Result<RoaringTreemap> {
    read(bytes).ok_or_else(|| {
        let text = format!("these {} bytes are not a bitmap; to_bitmap makes one", bytes.len());
        FunctionError::Bytes(text).into()
    })
}

fn read(bytes: &[u8]) -> Option<RoaringTreemap> {
    let (parts, mut rest) = bytes.split_first_chunk::<8>()?;
    let mut read: Vec<(u32, RoaringBitmap)> = Vec::new();
    for _ in 0..u64::from_le_bytes(*parts) {
        let (key, after) = rest.split_first_chunk::<4>()?;
        let key = u32::from_le_bytes(*key);
        if read.last().is_some_and(|(last, _)| *last >= key) || !keys_ascend(after)? {
            return None;
        }
        rest = after;
        let part = RoaringBitmap::deserialize_from(&mut rest).ok()?;
        if part.is_empty() {
            return None;
        }
        read.push((key, part));
    }
    rest.is_empty().then(|| RoaringTreemap::from_bitmaps(read))
}

/// Whether the containers of a 32-bit bitmap stand in order, which its reader does not ask.
fn keys_ascend(bytes: &[u8]) -> Option<bool> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let cookie = word(0)?;
    let (count, start) = if cookie & 0xFFFF == COOKIE_RUNS {
        let count = (cookie >> 16) as usize + 1;
        (count, 4 + count.div_ceil(8))
    } else if cookie == COOKIE_PLAIN {
        (word(4)? as usize, 8)
    } else {
        return None;
    };
    // Per container its key and its size less one, as u16.
    let headers = bytes.get(start..)?.get(..count.checked_mul(4)?)?;
    let keys = headers.chunks_exact(4).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    Some(keys.is_sorted_by(|a, b| a < b))
}

/// Appends the bytes of a bitmap.
pub(crate) fn encode(map: &RoaringTreemap, bytes: &mut Vec<u8>) {
    bytes.reserve(map.serialized_size());
    map.serialize_into(bytes).expect("writing to memory does not fail");
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::random::Random;

    /// Sets with gaps, dense parts and high values, so that every kind of container comes up.
    pub(super) fn random_set(random: &mut Random) -> BTreeSet<u64> {
        let mut set = BTreeSet::new();
        for _ in 0..random.below(4) {
            let base = [0, 1 << 16, 5 << 32, u64::MAX - 20_000][random.below(4) as usize];
            match random.below(3) {
                0 => set.extend((0..random.below(20)).map(|_| base + random.below(20_000))),
                1 => set.extend(base..base + random.below(9000)),
                _ => set.extend((0..random.below(6000)).map(|i| base + 3 * i)),
            }
        }
        set
    }

    #[test]
    fn bytes_come_back_and_damaged_ones_are_refused_or_still_a_set() {
        let (mut refused, mut taken) = (0, 0);
        for seed in 0..500 {
            let mut random = Random::new(seed);
            let mut map: RoaringTreemap = random_set(&mut random).into_iter().collect();
            if seed % 2 == 0 {
                map.optimize();
            }
            let mut bytes = Vec::new();
            encode(&map, &mut bytes);
            assert_eq!(decode(&bytes).unwrap(), map, "seed {seed}");
            for _ in 0..8 {
                let mut damaged = bytes.clone();
                match random.below(4) {
                    0 => damaged.truncate(random.below(bytes.len() as u64) as usize),
                    1 => damaged.push(random.next() as u8),
                    _ => {
                        // Mostly in the headers, where it hurts.
                        let end = if random.below(2) == 0 { 40 } else { bytes.len() as u64 };
                        let at = random.below(end.min(bytes.len() as u64)) as usize;
                        damaged[at] = random.next() as u8;
                    }
                }
                let Ok(map) = decode(&damaged) else {
                    refused += 1;
                    continue;
                };
                taken += 1;
                let values: Vec<u64> = map.iter().collect();
                assert!(values.is_sorted_by(|a, b| a < b), "seed {seed}");
                assert_eq!(values.len() as u64, map.len(), "seed {seed}");
                assert!(values.iter().take(50).all(|value| map.contains(*value)), "seed {seed}");
            }
        }
        assert!(refused > 800 && taken > 150, "{refused} refused, {taken} taken");
    }

    #[test]
    fn the_format_is_the_published_one() {
        let mut bytes = Vec::new();
        encode(&[1, 1 << 32].into_iter().collect(), &mut bytes);
        let part = |key: u8, value: u8| {
            // Key, cookie, one container, its key and size, its offset, the value.
            [
                &[key, 0, 0, 0][..],
                &[0x3A, 0x30, 0, 0, 1, 0, 0, 0],
                &[0, 0, 0, 0],
                &[16, 0, 0, 0],
                &[value, 0],
            ]
            .concat()
        };
        assert_eq!(bytes, [&[2, 0, 0, 0, 0, 0, 0, 0][..], &part(0, 1), &part(1, 0)].concat());
        assert!(decode(b"").is_err());
        assert!(decode(b"some text, not a bitmap").is_err());
    }
}
