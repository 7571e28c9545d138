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
//!
//! # Source
//! Buckets the size of a cache line: Bronson & Shi, "Open-sourcing F14", Meta Engineering 2019.

const SLOTS: usize = 8;
const SHARDS: usize = 256;
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
struct Shard {
    buckets: Vec<Bucket>,
    used: usize,
}

/// Numbers below 2^31 by the hashes of what they number.
#[derive(Debug, Clone)]
pub(crate) struct Index {
    shards: Vec<Shard>,
}

impl Default for Index {
    fn default() -> Self {
        Self { shards: vec![Shard::default(); SHARDS] }
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
    /// Makes room for `more` entries at once, instead of step by step.
    pub(crate) fn reserve(&mut self, more: usize) {
        for shard in &mut self.shards {
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
        let shard = &mut self.shards[shard_of(hash)];
        if shard.used >= shard.room() {
            shard.resize(shard.buckets.len() * GROWTH.0 / GROWTH.1 + 1);
        }
        shard.put(tag_of(hash), number + 1);
        shard.used += 1;
    }

    /// The number for which `is_it` says so, asked of those whose hash looks the same.
    #[inline]
    pub(crate) fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let shard = &self.shards[shard_of(hash)];
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
        let shard = &self.shards[shard_of(hash)];
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
        let shard = &self.shards[shard_of(hash)];
        let home = home(tag_of(hash), shard.buckets.len());
        shard.buckets.get(home).map_or(0, |bucket| bucket.tags[0])
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.buckets.capacity() * size_of::<Bucket>()).sum()
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
