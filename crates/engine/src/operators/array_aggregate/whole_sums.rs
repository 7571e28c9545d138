//! Sums of whole numbers by group: of 64 bits as long as none can need more, of 128 from then on.
//!
//! What all numbers so far can add up to at most is known before they are added, so that nothing is checked
//! row by row.
//!
//! # Invariants
//! - Sums are exact, whatever the order of their terms; one that does not fit in the end is an error.

use std::mem::{size_of, take};

use datafusion::arrow::array::Int64Array;
use datafusion::common::Result;

use crate::mends::does_not_fit;

/// One sum of each group.
#[derive(Debug, Default)]
pub(crate) struct WholeSums {
    /// Empty once there are `long` ones.
    short: Vec<i64>,
    /// No sum of any of the numbers in `short` is farther from 0.
    most: u64,
    long: Option<Vec<i128>>,
}

impl WholeSums {
    /// The sums of `count` groups, if `rows` more numbers can be added to them, the one farthest from 0 being
    /// `largest` from it.
    pub fn short(&mut self, count: usize, rows: usize, largest: u64) -> Option<&mut [i64]> {
        let more = largest.checked_mul(rows as u64)?;
        let most = self.most.checked_add(more).filter(|most| *most <= i64::MAX as u64)?;
        if self.long.is_some() {
            return None;
        }
        self.most = most;
        self.short.resize(count, 0);
        Some(&mut self.short)
    }

    /// The sums of `count` groups, of 128 bits: room for more numbers than there are rows in the world.
    pub fn long(&mut self, count: usize) -> &mut [i128] {
        let short = take(&mut self.short);
        let long = self.long.get_or_insert_with(|| short.into_iter().map(i128::from).collect());
        long.resize(count, 0);
        long
    }

    /// Adds others, whose groups are `groups` here, of `count` there are.
    pub fn merge(&mut self, more: Self, groups: &[usize], count: usize) {
        if let Some(more) = more.long {
            let sums = self.long(count);
            more.into_iter().zip(groups).for_each(|(x, group)| sums[*group] += x);
        } else if let Some(sums) = self.short(count, 1, more.most) {
            more.short.into_iter().zip(groups).for_each(|(x, group)| sums[*group] += x);
        } else {
            let sums = self.long(count);
            more.short.into_iter().zip(groups).for_each(|(x, group)| sums[*group] += i128::from(x));
        }
    }

    pub fn as_floats(&self) -> Vec<f64> {
        match &self.long {
            Some(sums) => sums.iter().map(|sum| *sum as f64).collect(),
            None => self.short.iter().map(|sum| *sum as f64).collect(),
        }
    }

    /// The sum of every group. `counts`: numbers of each; the sum of none is NULL.
    pub fn finish(self, counts: impl Iterator<Item = i64>) -> Result<Int64Array> {
        let Some(sums) = self.long else {
            let sum = |(sum, count): (i64, i64)| (count > 0).then_some(sum);
            return Ok(self.short.into_iter().zip(counts).map(sum).collect());
        };
        let sum = |(sum, count): (i128, i64)| match i64::try_from(sum) {
            Ok(sum) => Ok((count > 0).then_some(sum)),
            Err(_) => Err(does_not_fit()),
        };
        sums.into_iter().zip(counts).map(sum).collect()
    }

    /// The same, of any size.
    pub fn totals(self) -> Vec<i128> {
        let Self { short, long, .. } = self;
        long.unwrap_or_else(|| short.into_iter().map(i128::from).collect())
    }

    /// Bytes.
    pub fn size(&self) -> usize {
        let long = self.long.as_ref().map_or(0, Vec::capacity);
        self.short.capacity() * size_of::<i64>() + long * size_of::<i128>()
    }
}

/// How far from 0 the numbers are at most: less than twice as far as one of them is.
pub(crate) fn largest(numbers: &[i64]) -> u64 {
    // Of a negative one the complement, which is one less than how far it is from 0. A maximum would take a
    // comparison of 64 bits, which SSE2 lacks.
    let bits = numbers.iter().fold(0, |bits, x| bits | (x ^ (x >> 63)) as u64);
    bits + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds one number to one group of two.
    fn add(sums: &mut WholeSums, group: usize, x: i64) {
        match sums.short(2, 1, largest(&[x])) {
            Some(short) => short[group] += x,
            None => sums.long(2)[group] += i128::from(x),
        }
    }

    fn of(numbers: &[(usize, i64)]) -> WholeSums {
        let mut sums = WholeSums::default();
        numbers.iter().for_each(|(group, x)| add(&mut sums, *group, *x));
        sums
    }

    fn finished(sums: WholeSums) -> Result<Vec<Option<i64>>> {
        Ok(sums.finish([1, 1].into_iter())?.iter().collect())
    }

    #[test]
    fn no_number_is_farther_from_0_than_the_largest() {
        for x in [0, 1, -1, 2, -2, 1000, -1000, i64::MAX, i64::MIN, i64::MIN + 1] {
            let found = largest(&[0, x, -1]);
            assert!(found >= x.unsigned_abs(), "{x}: {found}");
            assert!(found <= x.unsigned_abs().max(1).saturating_mul(2), "{x}: {found}");
        }
    }

    #[test]
    fn borders_are_reached_and_not_passed() {
        let fits = [(0, i64::MAX), (1, i64::MIN)];
        assert_eq!(finished(of(&fits)).unwrap(), [Some(i64::MAX), Some(i64::MIN)]);
        let one_more = [(0, i64::MAX), (1, 5), (0, 1)];
        let error = finished(of(&one_more)).unwrap_err().to_string();
        assert!(error.contains("does not fit bigint"), "{error}");
        assert!(finished(of(&[(1, i64::MIN), (1, -1)])).is_err());
    }

    #[test]
    fn a_sum_may_leave_64_bits_on_its_way() {
        let numbers = [(0, i64::MAX), (0, i64::MAX), (1, 3), (0, -i64::MAX), (1, 4)];
        assert_eq!(finished(of(&numbers)).unwrap(), [Some(i64::MAX), Some(7)]);
    }

    #[test]
    fn small_numbers_stay_in_64_bits() {
        let sums = of(&[(0, 1_000_000), (1, -5), (0, 7)]);
        assert!(sums.long.is_none());
        assert_eq!(sums.as_floats(), [1_000_007.0, -5.0]);
    }

    #[test]
    fn merging_is_exact_in_every_mixture() {
        let small = || of(&[(0, 5), (1, 6)]);
        let half = || of(&[(0, i64::MAX / 4), (1, 1)]);
        let large = || of(&[(0, i64::MAX), (0, i64::MAX), (1, 1)]);
        let back = || of(&[(0, -i64::MAX), (0, -i64::MAX + 10), (1, 2)]);
        let merged = |parts: Vec<WholeSums>| {
            let mut all = WholeSums::default();
            // The groups of the others are the other way round here.
            parts.into_iter().for_each(|part| all.merge(part, &[1, 0], 2));
            finished(all)
        };
        assert_eq!(merged(vec![small(), small()]).unwrap(), [Some(12), Some(10)]);
        assert_eq!(merged(vec![small(), large(), back()]).unwrap(), [Some(9), Some(15)]);
        assert_eq!(merged(vec![large(), small(), back()]).unwrap(), [Some(9), Some(15)]);
        assert_eq!(merged(vec![half(), half()]).unwrap(), [Some(2), Some(i64::MAX / 4 * 2)]);
        assert!(merged(vec![half(), half(), half(), half(), small()]).is_err());
        assert!(merged(vec![large(), small()]).is_err());
    }

    #[test]
    fn a_group_without_numbers_is_null() {
        for numbers in [&[(0, 1)][..], &[(0, i64::MIN)]] {
            let sums = of(numbers).finish([1, 0].into_iter()).unwrap();
            assert_eq!(sums.iter().nth(1), Some(None));
        }
    }
}
