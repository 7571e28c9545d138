//! A hash table in bytes: 32-bit tags to 32-bit ordinals, eight to a cache line.
//!
//! ```text
//! bucket, 64 bytes:  u32 tag × 8, u32 ordinal + 1 × 8; 0 where the slot is empty
//! ```
//! A key's home is `hash * buckets >> 64` (`hash.rs` draws the hash), so any number of buckets will
//! do and a table is two thirds full. A key whose home is full lies in the next bucket that was
//! not.
//!
//! # Invariants
//! - Slots of a bucket fill from the front.
//! - Tags of a bucket differ, so the ordinals of all matching slots can be or-ed together: a
//!   look-up compares eight tags without a branch.
//!
//! # Source
//! Buckets the size of a cache line: Bronson & Shi, "Open-sourcing F14", Meta Engineering 2019.

use crate::error::PostingsError;

const SLOTS: usize = 8;
pub(crate) const BUCKET_BYTES: usize = 64;
/// Buckets a look-up may visit. At this load 4 million random keys need 14.
pub(crate) const MAX_PROBES: u32 = 64;
/// Seeds tried before the builder gives up. One in a thousand tables of a million terms needs a
/// second one, because two tags of a bucket were the same.
const MAX_SEEDS: u64 = 64;

/// A key as the table knows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key {
    pub(crate) hash: u64,
    pub(crate) tag: u32,
}

/// What [`build`] made.
pub(crate) struct Built {
    pub(crate) bytes: Vec<u8>,
    pub(crate) probes: u32,
    pub(crate) seed: u64,
}

#[inline]
pub(crate) fn home(hash: u64, buckets: usize) -> usize {
    ((u128::from(hash) * buckets as u128) >> 64) as usize
}

/// A table of `ordinals`, whose keys for a seed are `key(seed, ordinal)`.
pub(crate) fn build(
    ordinals: impl ExactSizeIterator<Item = u32> + Clone,
    key: impl Fn(u64, u32) -> Key,
) -> Result<Built, PostingsError> {
    let terms = ordinals.len();
    for seed in 0..MAX_SEEDS {
        // Two thirds full: 12 bytes a term, and 1 look-up in 28 goes past its home. Four fifths
        // would save 2 bytes and cost 54 µs instead of 36 for 10,000 look-ups, because one in 12
        // mispredicts. Room grows when eight seeds in a row were unlucky.
        let buckets = (terms * 3).div_ceil(16).max(1) * (1 + seed as usize / 8);
        let mut table = vec![[0u32; 2 * SLOTS]; buckets];
        let filled = ordinals.clone().try_fold(1, |probes: u32, ordinal| {
            Some(probes.max(insert(&mut table, key(seed, ordinal), ordinal)?))
        });
        if let Some(probes) = filled {
            let bytes = table.as_flattened().iter().flat_map(|word| word.to_le_bytes()).collect();
            return Ok(Built { bytes, probes, seed });
        }
    }
    let (found, limit) = (terms as u64, u64::from(MAX_PROBES) * SLOTS as u64);
    Err(PostingsError::TooLarge { what: "terms, many of one hash,", found, limit })
}

/// Puts a key in; how many buckets a look-up visits, or `None` if there are too many or a bucket
/// on the way has the tag already.
fn insert(table: &mut [[u32; 2 * SLOTS]], key: Key, ordinal: u32) -> Option<u32> {
    let mut at = home(key.hash, table.len());
    for probes in 1..=MAX_PROBES {
        let (tags, values) = table[at].split_at_mut(SLOTS);
        let used = values.iter().position(|&value| value == 0).unwrap_or(SLOTS);
        if tags[..used].contains(&key.tag) {
            return None;
        }
        if used < SLOTS {
            (tags[used], values[used]) = (key.tag, ordinal + 1);
            return Some(probes);
        }
        at = if at + 1 == table.len() { 0 } else { at + 1 };
    }
    None
}

/// The table in its bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Table<'a> {
    pub(crate) buckets: &'a [[u8; BUCKET_BYTES]],
    pub(crate) probes: u32,
}

impl<'a> Table<'a> {
    /// `None` if the numbers cannot be a table's.
    pub(crate) fn new(buckets: &'a [[u8; BUCKET_BYTES]], probes: u32) -> Option<Self> {
        let sound = !buckets.is_empty() && (1..=MAX_PROBES).contains(&probes);
        sound.then_some(Self { buckets, probes })
    }

    /// The ordinal of the key for which `is_it` says so, asked of those with the key's tag.
    #[inline]
    pub(crate) fn find(&self, key: Key, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = home(key.hash, self.buckets.len());
        for _ in 0..self.probes {
            let (found, full) = probe(&self.buckets[at], key.tag);
            if found != 0 && is_it(found - 1) {
                return Some(found - 1);
            }
            if !full {
                return None;
            }
            at = if at + 1 == self.buckets.len() { 0 } else { at + 1 };
        }
        None
    }

    /// Asks for the cache line of a key's home.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        crate::prefetch::line(self.buckets, home(hash, self.buckets.len()));
    }
}

/// Ordinal + 1 of the slot with this tag, or 0, and whether the bucket is full.
#[inline]
pub(crate) fn probe(bucket: &[u8; BUCKET_BYTES], tag: u32) -> (u32, bool) {
    let (words, _) = bucket.as_chunks::<4>();
    let mut found = 0;
    for slot in 0..SLOTS {
        let value = u32::from_le_bytes(words[slot + SLOTS]);
        found |= if u32::from_le_bytes(words[slot]) == tag { value } else { 0 };
    }
    (found, words[2 * SLOTS - 1] != [0; 4])
}
