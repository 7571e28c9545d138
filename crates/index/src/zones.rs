//! Zone maps: the least and the greatest key of every block of rows.
//!
//! For columns whose Parquet statistics do not serve: floats, whose bounds leave NaN out, and
//! blocks smaller than a page.
//!
//! # Invariants
//! - A block without keys has a least key above its greatest, and meets no range.
//!
//! # Not here
//! Types: a key is a `u64` that sorts like the value, see [`key_of_i64`] and [`key_of_f64`].

use std::ops::RangeInclusive;

use uplake_postings::{Run, Selection};

use crate::error::IndexError;

/// Bytes of a block's two keys.
pub(crate) const ZONE_BYTES: usize = 16;

/// A key that sorts like the integer.
#[must_use]
pub const fn key_of_i64(value: i64) -> u64 {
    value.cast_unsigned() ^ (1 << 63)
}

/// A key that sorts like the number: -0 equals 0, and every NaN is above infinity, which is where
/// the engine sorts it.
#[must_use]
pub fn key_of_f64(value: f64) -> u64 {
    if value.is_nan() {
        return u64::MAX;
    }
    // Adding 0 turns -0 into 0.
    let bits = (value + 0.0).to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

/// Collects the least and greatest key of each block.
#[derive(Debug, Clone)]
pub struct ZonesBuilder {
    block_rows: u32,
    zones: Vec<(u64, u64)>,
}

const EMPTY: (u64, u64) = (u64::MAX, 0);

impl ZonesBuilder {
    /// Zones of `block_rows` rows each; 0 is taken for 1.
    #[must_use]
    pub fn new(block_rows: u32) -> Self {
        Self { block_rows: block_rows.max(1), zones: Vec::new() }
    }

    /// Adds the key of `row`, in any order; a row without a value is left out.
    pub fn push(&mut self, row: u32, key: u64) {
        let block = (row / self.block_rows) as usize;
        if block >= self.zones.len() {
            self.zones.resize(block + 1, EMPTY);
        }
        let (least, greatest) = &mut self.zones[block];
        (*least, *greatest) = ((*least).min(key), (*greatest).max(key));
    }

    pub(crate) fn block_rows(&self) -> u32 {
        self.block_rows
    }

    /// The section of a file of `file_rows` rows.
    pub(crate) fn finish(mut self, file_rows: u32) -> Result<Vec<u8>, IndexError> {
        let blocks = file_rows.div_ceil(self.block_rows) as usize;
        if self.zones.len() > blocks {
            let (found, limit) = (self.zones.len() as u64, blocks as u64);
            return Err(IndexError::TooLarge { what: "blocks of rows", found, limit });
        }
        self.zones.resize(blocks, EMPTY);
        let keys = self.zones.iter().flat_map(|&(least, greatest)| [least, greatest]);
        Ok(keys.flat_map(u64::to_le_bytes).collect())
    }
}

/// The blocks that may hold a key in `keys`.
pub(crate) fn blocks_with(zones: &[u8], keys: &RangeInclusive<u64>) -> Selection {
    let meets = |zone: &[u8; ZONE_BYTES]| {
        let [least, greatest] = [&zone[..8], &zone[8..]]
            .map(|key| u64::from_le_bytes(key.first_chunk().copied().unwrap_or_default()));
        least <= greatest && least <= *keys.end() && greatest >= *keys.start()
    };
    let zones = zones.as_chunks().0;
    let mut runs: Vec<Run> = Vec::new();
    for block in (0..zones.len()).filter(|&block| meets(&zones[block])) {
        let (start, end) = (block as u32, block as u32 + 1);
        match runs.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => runs.push(Run::new(start, end)),
        }
    }
    Selection::Runs(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_like_values() {
        let numbers = [f64::NEG_INFINITY, -1e300, -1.5, -1e-310, 0.0, 1e-310, 2.0, f64::INFINITY];
        assert!(numbers.windows(2).all(|two| key_of_f64(two[0]) < key_of_f64(two[1])));
        assert_eq!(key_of_f64(-0.0), key_of_f64(0.0));
        assert!([f64::NAN, -f64::NAN].into_iter().all(|nan| key_of_f64(nan) == u64::MAX));
        let integers = [i64::MIN, -1, 0, 1, i64::MAX];
        assert!(integers.windows(2).all(|two| key_of_i64(two[0]) < key_of_i64(two[1])));
    }

    #[test]
    fn a_block_without_keys_meets_no_range() {
        let mut zones = ZonesBuilder::new(10);
        zones.push(5, 100);
        zones.push(0, 50);
        zones.push(25, 7);
        let section = zones.finish(40).expect("four blocks");
        assert_eq!(section.len(), 4 * ZONE_BYTES);
        for (keys, expected) in [
            (0..=u64::MAX, vec![0, 2]),
            (60..=70, vec![0]),
            (101..=u64::MAX, vec![]),
            (0..=7, vec![2]),
            #[allow(clippy::reversed_empty_ranges)]
            (9..=8, vec![]),
        ] {
            let found = blocks_with(&section, &keys).into_row_set().rows().collect::<Vec<u32>>();
            assert_eq!(found, expected, "{keys:?}");
        }
    }
}
