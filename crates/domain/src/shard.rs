//! A part of the index: tags and numbers, eight of each to a cache line.
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
//! - A number that is found for a tag is a candidate: the caller compares the key.
//!
//! # Source
//! Buckets the size of a cache line: Bronson & Shi, "Open-sourcing F14", Meta Engineering 2019.

const SLOTS: usize = 8;
/// Of an index.
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

#[inline]
fn home(tag: u32, buckets: usize) -> usize {
    ((u64::from(tag) * buckets as u64) >> 32) as usize
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

    /// One without entries, as [`Default`] makes it.
    pub(crate) const fn empty() -> Self {
        Self { buckets: Vec::new(), used: 0 }
    }

    /// How many buckets it has.
    pub(crate) fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// How many entries it has.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Makes room for its `share` of many entries at once, instead of step by step.
    pub(crate) fn reserve(&mut self, share: usize) {
        // Shares differ by the root of their size; six of those are never exceeded.
        let expected = self.used + share + 6 * share.isqrt() + 1;
        let buckets = (expected * 8).div_ceil(FULL * SLOTS);
        if self.used + share > self.room() {
            // Many small batches must not copy the shard for each of them.
            self.resize(buckets.max(self.buckets.len() * GROWTH.0 / GROWTH.1));
        }
    }

    /// Adds an entry, which must not be there.
    #[inline]
    pub(crate) fn insert(&mut self, tag: u32, number: u32) {
        if self.used >= self.room() {
            self.resize(self.buckets.len() * GROWTH.0 / GROWTH.1 + 1);
        }
        self.put(tag, number + 1);
        self.used += 1;
    }

    /// The number for which `is_it` says so, asked of those with this tag.
    #[inline]
    pub(crate) fn find(&self, tag: u32, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut at = home(tag, self.buckets.len());
        loop {
            let bucket = self.buckets.get(at)?;
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
            at = if at + 1 == self.buckets.len() { 0 } else { at + 1 };
        }
    }

    /// The first candidate in the tag's home, and whether the search may end with that one.
    #[inline]
    pub(crate) fn first(&self, tag: u32) -> (Option<u32>, bool) {
        let Some(bucket) = self.buckets.get(home(tag, self.buckets.len())) else {
            return (None, true);
        };
        let matches = bucket.matches(tag);
        let slot = matches.trailing_zeros() as usize;
        let candidate = (matches != 0).then(|| bucket.numbers[slot % SLOTS].wrapping_sub(1));
        (candidate, matches & matches.wrapping_sub(1) == 0 && bucket.numbers[SLOTS - 1] == 0)
    }

    /// Reads a word of the tag's home, so that its line is on the way while others are asked for.
    #[inline]
    pub(crate) fn touch(&self, tag: u32) -> u32 {
        let home = home(tag, self.buckets.len());
        self.buckets.get(home).map_or(0, |bucket| bucket.tags[0])
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.buckets.capacity() * size_of::<Bucket>()
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
