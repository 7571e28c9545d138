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
//! - It is done for kept columns only ([`crate::cache::columns`]): from files, the pages at the ends of ranges would be
//!   decoded for both.
//! - That a file is sorted by id is not believed. A range's rows lie between two places found by
//!   bisection, the same for the range before and the range after, and each of them is looked at; if one
//!   has an id of another range, the scan is refused ([`Unfit`](crate::base::refusal::Unfit)) and its aggregate
//!   goes on with one in any order.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig, FileScanConfigBuilder};
use datafusion::datasource::source::DataSource;
use datafusion::physical_plan::Partitioning;

use crate::scan::id_range::IdRange;
use crate::scan::indexed_source::IndexedSource;

/// Rows of a range at least: with fewer, files are opened too often.
const ROWS_MIN: usize = 1 << 18;
/// Rows of a range in each file at least, for the same reason.
const ROWS_OF_FILE_MIN: usize = 1 << 12;
/// The numbers of 64,000 users' funnels fit a second-level cache; more ranges gain nothing.
const RANGES_MAX: usize = 32;
/// Ranges for each thread at least, because ranges are not equally long.
const RANGES_OF_THREAD: usize = 2;

/// A scan by ranges.
pub(crate) struct ByRanges {
    pub scan: Arc<dyn DataSource>,
    /// Its partitions.
    pub ranges: usize,
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
    let column: Arc<str> = id.into();
    let width = last_id / ranges as i32 + 1;
    let bound =
        |range: usize| (range > 0 && range < ranges).then(|| (range as i32).saturating_mul(width));
    let group = |range: usize| {
        let part = |file: &PartitionedFile| {
            let mut file = file.clone();
            file.range = None;
            let column = Arc::clone(&column);
            let (from, to) = (bound(range), bound(range + 1));
            file.extensions.insert(IdRange { column, from, to });
            file
        };
        FileGroup::new(by_time.iter().map(|(_, file)| part(file)).collect())
    };
    let scan = FileScanConfigBuilder::from(config.clone())
        .with_file_groups((0..ranges).map(group).collect())
        // No partition takes another's files.
        .with_output_partitioning(Some(Partitioning::UnknownPartitioning(ranges)))
        .build();
    Some(ByRanges { scan: Arc::new(scan), ranges })
}
