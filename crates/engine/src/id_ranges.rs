//! A scan by ranges of ids: each partition reads all files, one after the other in the order of time, and of
//! each only the rows whose ids are in the partition's range.
//!
//! ```text
//! partition:   0          1          2
//! day 1     ids 0..9  ids 10..19   20..
//! day 2     ids 0..9  ids 10..19   20..      files are sorted by id, then by time
//! ```
//!
//! A user's rows come in the order of time, and all of them from one partition. Who groups by the id has
//! few groups at once, which stay in the processor's cache, and need not bring together what several
//! partitions have seen.
//!
//! # Invariants
//! - It is done for kept columns only ([`crate::hot`]): from files, the pages at the ends of ranges would be
//!   decoded for both.
//! - That a file is sorted by id is not believed. A range's rows lie between two places found by
//!   bisection, the same for the range before and the range after, and each of them is looked at; if one
//!   has an id of another range, the scan fails ([`unfit`]) and the statement runs without ranges.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::Int32Type;
use datafusion::common::{DataFusionError, ScalarValue};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig, FileScanConfigBuilder};
use datafusion::datasource::source::DataSource;
use datafusion::physical_plan::Partitioning;

use crate::indexed::IndexedSource;

/// Rows of a range at least: with fewer, files are opened too often.
const ROWS_MIN: usize = 1 << 18;
/// Rows of a range in each file at least, for the same reason.
const ROWS_OF_FILE_MIN: usize = 1 << 12;
/// The numbers of 64,000 users' funnels fit a second-level cache; more ranges gain nothing.
const RANGES_MAX: usize = 32;
/// Ranges for each thread at least, because ranges are not equally long.
const RANGES_OF_THREAD: usize = 2;

/// The ids that are wanted of a file.
#[derive(Debug, Clone)]
pub(crate) struct IdRange {
    /// The column of ids.
    pub column: Arc<str>,
    /// The first id; all ids before it are in other ranges.
    from: Option<i32>,
    /// The first id after the range.
    to: Option<i32>,
    /// See [`ByRanges::name`].
    name: Arc<str>,
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

    /// Its rows are not in the order of ids, so the table's scans cannot be done so.
    pub fn not_in_order(&self) -> DataFusionError {
        not_in_order(&self.name)
    }

    /// Its columns are not kept, or not any more.
    pub fn not_kept(&self) -> DataFusionError {
        DataFusionError::ResourcesExhausted(NOT_FOR_RANGES.into())
    }
}

/// The error of a plan that is better run without ranges; memory is not the reason.
const NOT_FOR_RANGES: &str = "rows that are not for ranges of ids";

/// Rows are not in the order of ids or of time. `name`: see [`ByRanges::name`].
pub(crate) fn not_in_order(name: &str) -> DataFusionError {
    DataFusionError::ResourcesExhausted(format!("{NOT_FOR_RANGES}: {name}"))
}

/// Is it the error of a plan that is better run without ranges? And which of its scans is not to be tried so
/// again, if it is known that it would fail again?
pub(crate) fn unfit(error: &DataFusionError) -> Option<Option<String>> {
    let DataFusionError::ResourcesExhausted(message) = error.find_root() else { return None };
    Some(message.strip_prefix(NOT_FOR_RANGES)?.strip_prefix(": ").map(str::to_owned))
}

/// A scan by ranges.
pub(crate) struct ByRanges {
    pub scan: Arc<dyn DataSource>,
    /// Its partitions.
    pub ranges: usize,
    /// What such scans of the table are called where it is noted that they failed.
    pub name: Arc<str>,
}

/// The same scan by ranges of the column `id`, with files in the order of the column `time`. `None` if it is
/// not of files that lie one after the other in time, if they are not kept, or if there are few rows for
/// so many threads.
pub(crate) fn by_ranges(
    scan: &Arc<dyn DataSource>,
    id: &str,
    time: &str,
    threads: usize,
) -> Option<ByRanges> {
    let config = scan.downcast_ref::<FileScanConfig>()?;
    let source = config.file_source().downcast_ref::<IndexedSource>()?;
    if config.limit.is_some() || !source.reads_many() {
        return None;
    }
    // A file may be there in parts.
    let mut seen = HashSet::new();
    let all = config.file_groups.iter().flat_map(|group| group.iter());
    let files: Vec<&PartitionedFile> =
        all.filter(|file| seen.insert(&file.object_meta.location)).collect();
    let schema = config.file_source().table_schema().table_schema();
    let (id_at, time_at) = (schema.index_of(id).ok()?, schema.index_of(time).ok()?);
    let bounds = |file: &PartitionedFile, column: usize| -> Option<(ScalarValue, ScalarValue)> {
        let column = file.statistics.as_ref()?.column_statistics.get(column)?;
        Some((column.min_value.get_value()?.clone(), column.max_value.get_value()?.clone()))
    };
    let (mut rows, mut last_id, mut by_time) = (0, 0, Vec::with_capacity(files.len()));
    for file in files {
        rows += file.statistics.as_ref()?.num_rows.get_value()?;
        let nulls = file.statistics.as_ref()?.column_statistics.get(id_at)?.null_count;
        match (bounds(file, id_at)?, nulls.get_value()) {
            ((ScalarValue::Int32(Some(0..)), ScalarValue::Int32(Some(last))), Some(0)) => {
                last_id = last_id.max(last);
            }
            _ => return None,
        }
        by_time.push((bounds(file, time_at)?, file));
    }
    by_time
        .sort_by(|((a, _), _), ((b, _), _)| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    if !by_time.windows(2).all(|pair| pair[0].0.1 <= pair[1].0.0) {
        return None;
    }
    let most = (rows / ROWS_MIN).min(rows / by_time.len().max(1) / ROWS_OF_FILE_MIN);
    let ranges = most.min(RANGES_MAX.max(RANGES_OF_THREAD * threads));
    if ranges < RANGES_OF_THREAD * threads || !by_time.iter().all(|(_, file)| source.keeps(file)) {
        return None;
    }
    let name: Arc<str> = format!("{} by ranges", source.table()).into();
    let column: Arc<str> = id.into();
    let width = last_id / ranges as i32 + 1;
    let bound =
        |range: usize| (range > 0 && range < ranges).then(|| (range as i32).saturating_mul(width));
    let group = |range: usize| {
        let part = |file: &PartitionedFile| {
            let mut file = file.clone();
            file.range = None;
            let (column, name) = (Arc::clone(&column), Arc::clone(&name));
            let (from, to) = (bound(range), bound(range + 1));
            file.extensions.insert(IdRange { column, from, to, name });
            file
        };
        FileGroup::new(by_time.iter().map(|(_, file)| part(file)).collect())
    };
    let scan = FileScanConfigBuilder::from(config.clone())
        .with_file_groups((0..ranges).map(group).collect())
        // No partition takes another's files.
        .with_output_partitioning(Some(Partitioning::UnknownPartitioning(ranges)))
        .build();
    Some(ByRanges { scan: Arc::new(scan), ranges, name })
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Int32Array;

    use super::*;

    fn range(from: Option<i32>, to: Option<i32>) -> IdRange {
        IdRange { column: "id".into(), from, to, name: "t".into() }
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
