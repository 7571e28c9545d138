//! A range of ids, whose rows a scan takes from files that are sorted by id.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::Int32Type;

/// The ids that are wanted of a file.
#[derive(Debug, Clone)]
pub(crate) struct IdRange {
    /// The column of ids.
    pub column: Arc<str>,
    /// The first id; all ids before it are in other ranges.
    pub from: Option<i32>,
    /// The first id after the range.
    pub to: Option<i32>,
}

impl IdRange {
    /// The rows of a row group, given its ids; `None` if they are not in order.
    pub fn rows(&self, ids: &ArrayRef) -> Option<Range<usize>> {
        let ids = ids.as_primitive_opt::<Int32Type>().filter(|ids| ids.null_count() == 0)?.values();
        let start = self.from.map_or(0, |from| ids.partition_point(|id| *id < from));
        let end = self.to.map_or(ids.len(), |to| ids.partition_point(|id| *id < to));
        let (from, to) = (self.from.unwrap_or(i32::MIN), self.to.unwrap_or(i32::MAX));
        let is_last = self.to.is_none();
        // Without a branch for each.
        let outside = |id: &i32| u32::from(*id < from || (*id >= to && !is_last));
        let misplaced: u32 = ids.get(start..end)?.iter().map(outside).sum();
        (misplaced == 0).then_some(start..end)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Int32Array;

    use super::*;

    fn range(from: Option<i32>, to: Option<i32>) -> IdRange {
        IdRange { column: "id".into(), from, to }
    }

    fn rows(ids: &[i32], ends: &[i32]) -> Vec<Option<Range<usize>>> {
        let ids: ArrayRef = Arc::new(Int32Array::from(ids.to_vec()));
        let firsts = std::iter::once(None).chain(ends.iter().copied().map(Some));
        let lasts = ends.iter().copied().map(Some).chain([None]);
        firsts.zip(lasts).map(|(from, to)| range(from, to).rows(&ids)).collect()
    }

    #[test]
    fn every_row_of_a_sorted_file_is_in_one_range() {
        let ids = [0, 0, 3, 3, 3, 7, 9, i32::MAX];
        assert_eq!(rows(&ids, &[3, 4, 8]), [Some(0..2), Some(2..5), Some(5..6), Some(6..8)]);
        assert_eq!(rows(&ids, &[]), [Some(0..8)]);
        assert_eq!(rows(&[], &[3]), [Some(0..0), Some(0..0)]);
    }

    /// Whatever the order, the ranges that do not fail have all rows if none fails.
    #[test]
    fn a_file_that_is_not_sorted_fails_in_some_range_or_is_whole() {
        let mut random = 7u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        let (mut whole, mut failed) = (0, 0);
        for _ in 0..20_000 {
            let ids: Vec<i32> = (0..next(7)).map(|_| next(9) as i32).collect();
            let mut ends = [next(9) as i32, next(9) as i32];
            ends.sort_unstable();
            let found = rows(&ids, &ends);
            let Some(found) = found.into_iter().collect::<Option<Vec<_>>>() else {
                assert!(!ids.is_sorted());
                failed += 1;
                continue;
            };
            let taken: Vec<i32> = found.into_iter().flat_map(|rows| ids[rows].to_vec()).collect();
            assert_eq!(taken, ids);
            whole += 1;
        }
        assert!(whole > 1000 && failed > 1000);
    }

    #[test]
    fn ids_that_are_missing_are_not_in_order() {
        let ids: ArrayRef = Arc::new(Int32Array::from(vec![None, Some(3)]));
        assert!(range(None, None).rows(&ids).is_none());
    }
}
