//! From the hash of a key to its number: tags and numbers, eight of each to a cache line.
//!
//! ```text
//! hash, 64 bits: shard (8) | tag (32) | unused
//! bucket, 64 bytes: u32 tag × 8, u32 number + 1 × 8; 0 where the slot is empty
//! ```
//! A tag's home in its shard is `tag * buckets >> 32`, so tags lie in order, a shard grows by any
//! amount in one pass over it, and no key is read again for that. A key whose home is full lies in
//! the next bucket that was not.
//!
//! # Invariants
//! - Slots of a bucket fill from the front, and nothing is ever taken out.
//! - A tag that is found is a candidate: the caller compares the key.
//! - An index over a file answers only for shards that [`Index::load`] has read; the others look
//!   empty. Who inserts a hash has loaded its shard.
//!
//! # Source
//! Buckets the size of a cache line: Bronson & Shi, "Open-sourcing F14", Meta Engineering 2019.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use crate::error::Result;
use crate::index_file::IndexFile;

const SLOTS: usize = 8;
pub(crate) const SHARDS: usize = 256;
/// Slots filled before a shard grows, out of 8; and how much it grows. Between 8/7 and 10/7 times
/// the 8 bytes of a slot: 9.1 to 11.4 bytes a key.
const FULL: usize = 7;
const GROWTH: (usize, usize) = (5, 4);

#[derive(Debug, Clone, Copy, Default)]
#[repr(align(64))]
struct Bucket {
    tags: [u32; SLOTS],
    /// The number + 1.
    numbers: [u32; SLOTS],
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Shard {
    buckets: Vec<Bucket>,
    used: usize,
}

static EMPTY: Shard = Shard { buckets: Vec::new(), used: 0 };

/// Numbers below 2^31 by the hashes of what they number.
#[derive(Debug)]
pub(crate) struct Index {
    /// Those that are not set are in the file.
    shards: Vec<OnceLock<Shard>>,
    /// How many are not set.
    missing: AtomicUsize,
    file: Option<Arc<IndexFile>>,
}

impl Default for Index {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| OnceLock::from(Shard::default())).collect();
        Self { shards, missing: AtomicUsize::new(0), file: None }
    }
}

#[inline]
fn shard_of(hash: u64) -> usize {
    (hash >> 56) as usize
}

#[inline]
fn tag_of(hash: u64) -> u32 {
    (hash >> 24) as u32
}

#[inline]
fn home(tag: u32, buckets: usize) -> usize {
    ((u64::from(tag) * buckets as u64) >> 32) as usize
}

impl Index {
    /// The index in a file.
    pub(crate) fn over(file: Arc<IndexFile>) -> Self {
        let shards = (0..SHARDS).map(|_| OnceLock::new()).collect();
        Self { shards, missing: AtomicUsize::new(SHARDS), file: Some(file) }
    }

    /// Whether every shard is in memory.
    #[inline]
    pub(crate) fn is_in_memory(&self) -> bool {
        self.missing.load(Relaxed) == 0
    }

    /// Reads the shard of a hash, if it is not in memory.
    #[inline]
    pub(crate) fn load(&self, hash: u64) -> Result<()> {
        if self.shards[shard_of(hash)].get().is_some() {
            Ok(())
        } else {
            self.fetch(shard_of(hash))
        }
    }

    /// Reads every shard that is not in memory.
    pub(crate) fn load_all(&self) -> Result<()> {
        if self.is_in_memory() {
            return Ok(());
        }
        (0..SHARDS)
            .filter(|shard| self.shards[*shard].get().is_none())
            .try_for_each(|n| self.fetch(n))
    }

    fn fetch(&self, number: usize) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        // Another thread may be faster with the same.
        if self.shards[number].set(file.shard(number)?).is_ok() {
            self.missing.fetch_sub(1, Relaxed);
        }
        Ok(())
    }

    #[inline]
    fn shard(&self, hash: u64) -> &Shard {
        self.shards[shard_of(hash)].get().unwrap_or(&EMPTY)
    }

    /// The shards, all of which must be in memory.
    pub(crate) fn shards(&self) -> impl Iterator<Item = &Shard> {
        debug_assert!(self.is_in_memory(), "a checkpoint is of the whole index");
        self.shards.iter().map(|shard| shard.get().unwrap_or(&EMPTY))
    }

    /// Makes room for `more` entries at once, instead of step by step.
    pub(crate) fn reserve(&mut self, more: usize) {
        for shard in self.shards.iter_mut().filter_map(OnceLock::get_mut) {
            let share = more / SHARDS;
            // Shares differ by the root of their size; six of those are never exceeded.
            let expected = shard.used + share + 6 * share.isqrt() + 1;
            let buckets = (expected * 8).div_ceil(FULL * SLOTS);
            if shard.used + share > shard.room() {
                // Many small batches must not copy the shard for each of them.
                shard.resize(buckets.max(shard.buckets.len() * GROWTH.0 / GROWTH.1));
            }
        }
    }

    /// Adds an entry, which must not be there.
    #[inline]
    pub(crate) fn insert(&mut self, hash: u64, number: u32) {
        let shard = self.shards[shard_of(hash)].get_mut().expect("who inserts has looked it up");
        if shard.used >= shard.room() {
            shard.resize(shard.buckets.len() * GROWTH.0 / GROWTH.1 + 1);
        }
        shard.put(tag_of(hash), number + 1);
        shard.used += 1;
    }

    /// The number for which `is_it` says so, asked of those whose hash looks the same.
    #[inline]
    pub(crate) fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let shard = self.shard(hash);
        let tag = tag_of(hash);
        let mut at = home(tag, shard.buckets.len());
        loop {
            let bucket = shard.buckets.get(at)?;
            let mut matches = bucket.matches(tag);
            while matches != 0 {
                let slot = matches.trailing_zeros() as usize;
                let number = bucket.numbers[slot % SLOTS].wrapping_sub(1);
                if is_it(number) {
                    return Some(number);
                }
                matches &= matches - 1;
            }
            if bucket.numbers[SLOTS - 1] == 0 {
                return None;
            }
            at = if at + 1 == shard.buckets.len() { 0 } else { at + 1 };
        }
    }

    /// The first candidate in the key's home, and whether the search may end with that one: a
    /// candidate that is the key is the answer, and a miss is an answer if this says so.
    #[inline]
    pub(crate) fn first(&self, hash: u64) -> (Option<u32>, bool) {
        let shard = self.shard(hash);
        let tag = tag_of(hash);
        let Some(bucket) = shard.buckets.get(home(tag, shard.buckets.len())) else {
            return (None, true);
        };
        let matches = bucket.matches(tag);
        let slot = matches.trailing_zeros() as usize;
        let candidate = (matches != 0).then(|| bucket.numbers[slot % SLOTS].wrapping_sub(1));
        (candidate, matches & matches.wrapping_sub(1) == 0 && bucket.numbers[SLOTS - 1] == 0)
    }

    /// Reads a word of the key's home, so that its line is on the way while others are asked for.
    #[inline]
    pub(crate) fn touch(&self, hash: u64) -> u32 {
        let shard = self.shard(hash);
        let home = home(tag_of(hash), shard.buckets.len());
        shard.buckets.get(home).map_or(0, |bucket| bucket.tags[0])
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        let shards = self.shards.iter().filter_map(OnceLock::get);
        shards.map(|shard| shard.buckets.capacity() * size_of::<Bucket>()).sum()
    }
}

impl Bucket {
    /// A bit for each used slot with this tag.
    #[inline]
    fn matches(&self, tag: u32) -> u32 {
        let mut matches = 0;
        for slot in 0..SLOTS {
            let is_match = (self.tags[slot] == tag) & (self.numbers[slot] != 0);
            matches |= u32::from(is_match) << slot;
        }
        matches
    }
}

impl Shard {
    pub(crate) const BUCKET_BYTES: usize = size_of::<Bucket>();

    /// How many buckets it has.
    pub(crate) fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// How many entries it has.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Appends the buckets: eight tags, then eight numbers.
    pub(crate) fn to_bytes(&self, out: &mut Vec<u8>) {
        out.reserve(self.buckets.len() * Self::BUCKET_BYTES);
        for bucket in &self.buckets {
            let mut bytes = [0; Self::BUCKET_BYTES];
            let words = bucket.tags.iter().chain(&bucket.numbers);
            for (to, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
                *to = word.to_le_bytes();
            }
            out.extend_from_slice(&bytes);
        }
    }

    /// The shard of these buckets, if `used` slots of them hold numbers below `keys` and a search
    /// in it ends.
    pub(crate) fn from_bytes(bytes: &[u8], used: usize, keys: u32) -> Option<Self> {
        let mut buckets = Vec::with_capacity(bytes.len() / Self::BUCKET_BYTES);
        let (mut found, mut is_sound) = (0, true);
        for bytes in bytes.as_chunks::<64>().0 {
            let mut words = [0; 2 * SLOTS];
            for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
                *word = u32::from_le_bytes(*bytes);
            }
            let (mut tags, mut numbers) = ([0; SLOTS], [0; SLOTS]);
            tags.copy_from_slice(&words[..SLOTS]);
            numbers.copy_from_slice(&words[SLOTS..]);
            for slot in 0..SLOTS {
                found += usize::from(numbers[slot] != 0);
                is_sound &= numbers[slot] <= keys;
                is_sound &= slot == 0 || numbers[slot] == 0 || numbers[slot - 1] != 0;
            }
            buckets.push(Bucket { tags, numbers });
        }
        let shard = Self { buckets, used };
        // A slot that is free is the end of every search.
        (is_sound && found == used && used <= shard.room()).then_some(shard)
    }

    /// Entries it holds before it grows.
    #[inline]
    fn room(&self) -> usize {
        self.buckets.len() * FULL * SLOTS / 8
    }

    fn put(&mut self, tag: u32, value: u32) {
        let mut at = home(tag, self.buckets.len());
        loop {
            let bucket = &mut self.buckets[at];
            if let Some(slot) = bucket.numbers.iter().position(|&number| number == 0) {
                (bucket.tags[slot], bucket.numbers[slot]) = (tag, value);
                return;
            }
            at = if at + 1 == self.buckets.len() { 0 } else { at + 1 };
        }
    }

    fn resize(&mut self, buckets: usize) {
        let old = std::mem::replace(&mut self.buckets, vec![Bucket::default(); buckets]);
        for bucket in &old {
            for (&tag, &value) in bucket.tags.iter().zip(&bucket.numbers) {
                if value != 0 {
                    self.put(tag, value);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hashes with few different tags and shards.
    fn crowded(number: u32) -> u64 {
        u64::from(number % 3) << 56 | u64::from(number % 7) << 24
    }

    fn spread(number: u32) -> u64 {
        u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    fn check(hash: impl Fn(u32) -> u64, reserved: bool) {
        let mut index = Index::default();
        if reserved {
            index.reserve(3000);
        }
        for number in 0..3000 {
            assert_eq!(index.find(hash(number), |it| it == number), None);
            index.insert(hash(number), number);
        }
        for number in 0..3000 {
            assert_eq!(index.find(hash(number), |it| it == number), Some(number));
            let (first, is_all) = index.first(hash(number));
            assert!(first.is_some() || !is_all, "{number} is there");
        }
    }

    #[test]
    fn every_entry_is_found_however_it_grew() {
        check(spread, false);
        check(spread, true);
    }

    #[test]
    fn entries_of_one_hash_are_told_apart_by_the_caller() {
        check(crowded, false);
        check(crowded, true);
    }
}
