//! A hash table whose slots hold the runs: one cache line an id, and nothing behind it.
//!
//! ```text
//! bucket, 64 bytes:  upper half of a slot, u32 × 8, lower half, u32 × 8; 0 where it is empty
//! slot, from the highest bit:  tag | first row | rows; `tag bits` and `length bits` are given
//! ```
//! An integer minus the smallest is permuted among the 32-bit numbers. Its home is
//! `permuted * buckets >> 32`, so each bucket is the home of a stretch of them, and the lowest bits
//! tell the members of `probes` stretches in a row apart: with a million ids 19 bits are a proof
//! that would otherwise take 32, and the rest holds the run. That is 12 bytes an id.
//!
//! # Invariants
//! - `tag bits` distinguish all integers whose home is less than `probes` buckets away.
//! - Slots of a bucket fill from the front, and `rows` of a full slot is above 0.
//!
//! # Source
//! Tags that leave out what the place says: Knuth, "The Art of Computer Programming", volume 3,
//! 6.4, exercise 13 (Cleary 1984, "Compact hash tables using bidirectional linear probing").

use crate::hash::permute;
use crate::run::Run;
use crate::table::{BUCKET_BYTES, MAX_PROBES};

/// Slots of a bucket.
pub(crate) const SLOTS: usize = 8;
/// Most bits of a run's length: the end of a run is a `u32`.
const MAX_LENGTH_BITS: u32 = 31;
/// Least bits of a tag, so that first rows never have more than 31.
const MIN_TAG_BITS: u32 = 2;

/// The table in its bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inline<'a> {
    buckets: &'a [[u8; BUCKET_BYTES]],
    probes: u32,
    seed: u32,
    tag_bits: u32,
    length_bits: u32,
}

/// What [`build`] made.
pub(crate) struct Built {
    pub(crate) bytes: Vec<u8>,
    pub(crate) probes: u32,
    pub(crate) seed: u32,
    pub(crate) tag_bits: u32,
    pub(crate) length_bits: u32,
}

/// Where a permuted integer lives.
#[inline]
pub(crate) fn home(permuted: u32, buckets: usize) -> usize {
    // At most 2^30 terms, so the product fits.
    ((u64::from(permuted) * buckets as u64) >> 32) as usize
}

#[inline]
pub(crate) fn next(at: usize, buckets: usize) -> usize {
    if at + 1 == buckets { 0 } else { at + 1 }
}

/// A table of runs by integer minus the smallest; `None` if a slot is too small for them.
pub(crate) fn build(terms: &[(u32, Run)], file_rows: u32) -> Option<Built> {
    let seed = 0;
    // Two thirds full, for the reason that `table.rs` gives.
    let buckets = (terms.len() * 3).div_ceil(16).max(1);
    let mut used = vec![0u8; buckets];
    let mut places = Vec::with_capacity(terms.len());
    let mut most = 1;
    for &(key, _) in terms {
        let (mut at, mut probes) = (home(permute(seed, key), buckets), 1);
        while usize::from(used[at]) == SLOTS {
            (at, probes) = (next(at, buckets), probes + 1);
        }
        places.push((at * SLOTS + usize::from(used[at])) as u32);
        used[at] += 1;
        most = most.max(probes);
        if most > MAX_PROBES {
            return None;
        }
    }
    let stretch = (1u64 << 32).div_ceil(buckets as u64) * u64::from(most);
    let tag_bits = (u64::BITS - (stretch - 1).leading_zeros()).clamp(MIN_TAG_BITS, 32);
    let row_bits = u32::BITS - file_rows.leading_zeros();
    let length_bits = (u64::BITS - tag_bits - row_bits).min(MAX_LENGTH_BITS);
    if terms.iter().any(|(_, run)| run.len() >> length_bits != 0) {
        return None;
    }
    let mut table = vec![[[0u32; SLOTS]; 2]; buckets];
    for (&(key, run), place) in terms.iter().zip(places) {
        let tag = u64::from(permute(seed, key)) << (u64::BITS - tag_bits);
        let slot = tag | u64::from(run.start) << length_bits | u64::from(run.len());
        let (bucket, index) = (place as usize / SLOTS, place as usize % SLOTS);
        table[bucket][0][index] = (slot >> 32) as u32;
        table[bucket][1][index] = slot as u32;
    }
    let words = table.as_flattened().as_flattened();
    let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    Some(Built { bytes, probes: most, seed, tag_bits, length_bits })
}

impl<'a> Inline<'a> {
    /// `None` if the numbers cannot be a table's. `bits` is tag bits, then length bits.
    pub(crate) fn new(
        buckets: &'a [[u8; BUCKET_BYTES]],
        probes: u32,
        seed: u32,
        bits: [u32; 2],
    ) -> Option<Self> {
        let [tag_bits, length_bits] = bits;
        let sound = u32::try_from(buckets.len()).is_ok_and(|count| are_sound(count, probes, bits));
        sound.then_some(Self { buckets, probes, seed, tag_bits, length_bits })
    }

    /// Asks for the cache line of a key's home.
    #[inline]
    pub(crate) fn prefetch(&self, key: u32) {
        crate::prefetch::line(self.buckets, home(permute(self.seed, key), self.buckets.len()));
    }

    /// Asks for the cache line of a slot.
    #[inline]
    pub(crate) fn prefetch_slot(&self, slot: u32) {
        crate::prefetch::line(self.buckets, slot as usize / SLOTS);
    }

    /// The number of the slot of a key.
    #[inline]
    pub(crate) fn find(&self, key: u32) -> Option<u32> {
        self.probe(key, |words, mask| {
            // The first with the tag; others are empty slots, where it is 0.
            let slot = (0..SLOTS).find(|&slot| mask(slot) != 0)?;
            (words[slot + SLOTS] != [0; 4]).then_some(slot as u32)
        })
        .map(|(at, slot)| at * SLOTS as u32 + slot)
    }

    /// What is in the slot of a key, for [`Inline::unpack`].
    ///
    /// Or-ing what is masked looks at eight slots without a branch. Which slot it was cannot be had
    /// as fast: the compiler then asks slot by slot, and 10,000 look-ups take 200 µs instead of 50.
    #[inline]
    pub(crate) fn find_slot(&self, key: u32) -> Option<u64> {
        self.probe(key, |words, mask| {
            let (mut high, mut low) = (0, 0);
            for slot in 0..SLOTS {
                // An empty slot adds nothing.
                high |= u32::from_le_bytes(words[slot]) & mask(slot);
                low |= u32::from_le_bytes(words[slot + SLOTS]) & mask(slot);
            }
            (low != 0).then_some(u64::from(high) << 32 | u64::from(low))
        })
        .map(|(_, slot)| slot)
    }

    /// Calls `look` with the words of each bucket that may hold a key, and with what is all ones
    /// for the slots that have its tag; gives the number of the bucket and what `look` found.
    #[inline]
    fn probe<T>(
        &self,
        key: u32,
        look: impl Fn(&[[u8; 4]; 2 * SLOTS], &dyn Fn(usize) -> u32) -> Option<T>,
    ) -> Option<(u32, T)> {
        let permuted = permute(self.seed, key);
        let mut at = home(permuted, self.buckets.len());
        let unused = u32::BITS - self.tag_bits;
        let tag = permuted << unused >> unused;
        for _ in 0..self.probes {
            let words = self.buckets[at].as_chunks::<4>().0.first_chunk()?;
            let mask = |slot: usize| {
                if u32::from_le_bytes(words[slot]) >> unused == tag { !0 } else { 0 }
            };
            if let Some(found) = look(words, &mask) {
                return Some((at as u32, found));
            }
            if words[2 * SLOTS - 1] == [0; 4] {
                return None;
            }
            at = next(at, self.buckets.len());
        }
        None
    }

    /// The run in a slot, packed for a sort; `None` if there is no such slot or it is empty.
    #[inline]
    pub(crate) fn run(&self, number: u32) -> Option<u64> {
        let words = self.buckets.get(number as usize / SLOTS)?.as_chunks::<4>().0;
        let at = number as usize % SLOTS;
        let [high, low] = [at, at + SLOTS].map(|at| u64::from(u32::from_le_bytes(words[at])));
        (low != 0).then(|| self.unpack(high << 32 | low))
    }

    /// The run in what [`Inline::find_slot`] found, packed for a sort.
    #[inline]
    pub(crate) fn unpack(&self, slot: u64) -> u64 {
        unpack([self.tag_bits, self.length_bits], slot)
    }
}

/// The run in a slot, packed for a sort.
#[inline]
pub(crate) fn unpack([tag_bits, length_bits]: [u32; 2], slot: u64) -> u64 {
    let payload = slot << tag_bits >> tag_bits;
    let rows = payload & ((1 << length_bits) - 1);
    let start = payload >> length_bits;
    start << 32 | (start + rows)
}

/// Whether such numbers can be a table's, as [`Inline::new`] has it.
pub(crate) fn are_sound(buckets: u32, probes: u32, [tag_bits, length_bits]: [u32; 2]) -> bool {
    (1..1 << 29).contains(&buckets)
        && (1..=MAX_PROBES).contains(&probes)
        && (MIN_TAG_BITS..=32).contains(&tag_bits)
        && (1..=MAX_LENGTH_BITS).contains(&length_bits)
        // So that a first row is below 2^31, and the row after the last a `u32`.
        && tag_bits + length_bits > u32::BITS
}

/// The slot of a permuted key in one bucket, and whether that is full.
pub(crate) fn slot_in(
    bucket: &[u8; BUCKET_BYTES],
    tag_bits: u32,
    permuted: u32,
) -> (Option<u64>, bool) {
    let words = bucket.as_chunks::<4>().0;
    let unused = u32::BITS - tag_bits;
    let tag = permuted << unused >> unused;
    let slot = |at: usize| [at, at + SLOTS].map(|at| u32::from_le_bytes(words[at]));
    let slots = (0..SLOTS).map(slot);
    let found = slots.into_iter().find(|&[high, low]| low != 0 && high >> unused == tag);
    let found = found.map(|[high, low]| u64::from(high) << 32 | u64::from(low));
    (found, words[2 * SLOTS - 1] != [0; 4])
}
