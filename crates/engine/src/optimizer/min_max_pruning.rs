//! Files that can hold neither the least nor the greatest value are not read for them.
//!
//! ```text
//! min(ts), max(ts)              min(ts), max(ts)
//!   scan of 365 days     ─►       scan of the first day and the last
//! ```
//!
//! The log's bounds of a file are no answers, because they may be cut (times to milliseconds, long texts), but they
//! say where the answers are.
//!
//! # Invariants
//! - Every row of the scan is a row of the aggregate: nothing between them drops rows, and the scan has no condition
//!   that is asked of rows.
//! - A file without bounds is read.

use std::sync::Arc;

use datafusion::common::stats::Precision;
use datafusion::common::{Result, ScalarValue};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig, FileScanConfigBuilder};
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::{
    ChildrenPropertiesMode, ReplaceChildrenOptions, replace_children_if_necessary,
};

use crate::base::one_input::EachNode;
use crate::base::progress;
use crate::optimizer::shapes::{Layer, layer, stored};

/// The rule. It comes before files are spread over partitions.
pub(crate) const MIN_MAX_PRUNING: EachNode =
    EachNode { name: "min_max_pruning", other: with_fewer_files };

/// Which end of a column is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Least,
    Greatest,
}

fn with_fewer_files(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(aggregate) = node.downcast_ref::<AggregateExec>() else { return Ok(None) };
    if !aggregate.group_expr().is_empty() || aggregate.filter_expr().iter().any(Option::is_some) {
        return Ok(None);
    }
    let asked = aggregate.aggr_expr().iter().map(|call| {
        let end = match call.fun().name() {
            "min" => End::Least,
            "max" => End::Greatest,
            _ => return None,
        };
        let [of] = &call.expressions()[..] else { return None };
        Some((of.downcast_ref::<Column>()?.index(), end))
    });
    let Some(asked) = asked.collect::<Option<Vec<_>>>() else { return Ok(None) };
    let Some(input) = pruned(aggregate.input(), &asked)? else { return Ok(None) };
    Ok(Some(replace_children_if_necessary(Arc::clone(node), vec![input])?))
}

/// The plan over fewer files; `asked` are columns of its rows.
fn pruned(
    node: &Arc<dyn ExecutionPlan>,
    asked: &[(usize, End)],
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(scan) = node.downcast_ref::<DataSourceExec>() {
        return Ok(pruned_scan(scan, asked).map(|scan| Arc::new(scan) as _));
    }
    let Some((layer @ (Layer::Same | Layer::Dealt | Layer::Projection(_)), below)) = layer(node)
    else {
        return Ok(None);
    };
    let below_of = |(column, end): &(usize, End)| Some((layer.column(*column)?, *end));
    let Some(asked) = asked.iter().map(below_of).collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    let Some(input) = pruned(below, &asked)? else { return Ok(None) };
    let changed = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    Ok(Some(Arc::clone(node).replace_children(vec![input], changed)?))
}

fn pruned_scan(scan: &DataSourceExec, asked: &[(usize, End)]) -> Option<DataSourceExec> {
    let source = scan.data_source();
    let config = source.downcast_ref::<FileScanConfig>()?;
    if config.limit.is_some() || config.file_source().filter().is_some() {
        return None;
    }
    let schema = config.file_source().table_schema().table_schema();
    let files: Vec<&PartitionedFile> =
        config.file_groups.iter().flat_map(|group| group.iter()).collect();
    let mut needed = vec![false; files.len()];
    for (column, end) in asked {
        let at = schema.index_of(stored(source, *column)?.name()).ok()?;
        let bounds: Vec<_> = files.iter().map(|file| bounds(file, at)).collect();
        needed.iter_mut().zip(can_hold(*end, &bounds)).for_each(|(needed, can)| *needed |= can);
    }
    let dropped = needed.iter().filter(|needed| !**needed).count();
    if dropped == 0 {
        return None;
    }
    progress::skips(dropped);
    let mut needed = needed.into_iter();
    let groups = config.file_groups.iter().map(|group| {
        let kept = group.iter().filter(|_| needed.next() == Some(true));
        FileGroup::new(kept.cloned().collect())
    });
    let config = FileScanConfigBuilder::from(config.clone())
        .with_file_groups(groups.collect())
        .with_statistics(config.statistics().to_inexact())
        .build();
    Some(DataSourceExec::new(Arc::new(config)))
}

/// What every value of a file's column that is not NULL is between; such a value is there.
type Bounds = (ScalarValue, ScalarValue);

fn bounds(file: &PartitionedFile, column: usize) -> Option<Bounds> {
    let column = file.statistics.as_ref()?.column_statistics.get(column)?;
    let known =
        |bound: &Precision<ScalarValue>| bound.get_value().filter(|v| !v.is_null()).cloned();
    Some((known(&column.min_value)?, known(&column.max_value)?))
}

/// Which files can hold the least or the greatest value.
fn can_hold(end: End, files: &[Option<Bounds>]) -> Vec<bool> {
    // The least value of a file is not above its upper bound, nor is that of all files.
    let mut limit: Option<&ScalarValue> = None;
    for (low, high) in files.iter().flatten() {
        let bound = if end == End::Least { high } else { low };
        let better = |limit: &&ScalarValue| match end {
            End::Least => bound < *limit,
            End::Greatest => bound > *limit,
        };
        if limit.as_ref().is_none_or(better) {
            limit = Some(bound);
        }
    }
    let can = |file: &Option<Bounds>| match (file, limit) {
        // Bounds that cannot be compared rule nothing out.
        (Some((low, _)), Some(limit)) if end == End::Least => {
            low.partial_cmp(limit).is_none_or(|order| order.is_le())
        }
        (Some((_, high)), Some(limit)) => high.partial_cmp(limit).is_none_or(|order| order.is_ge()),
        _ => true,
    };
    files.iter().map(can).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::session::for_tests;

    fn int(value: i64) -> ScalarValue {
        ScalarValue::Int64(Some(value))
    }

    /// Files with values, bounds that are wider by up to 3, and some without.
    #[test]
    fn files_with_the_ends_are_kept() {
        let mut dropped = 0;
        for seed in 0..500 {
            let mut state: u64 = seed;
            let mut below = |n: u64| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                ((state >> 33) % n) as i64
            };
            let files: Vec<(Vec<i64>, Option<Bounds>)> = (0..1 + below(6))
                .map(|_| {
                    let from = below(40);
                    let values: Vec<i64> =
                        (0..1 + below(4)).map(|_| from + below(10) - 20).collect();
                    let low = values.iter().min().unwrap() - below(4);
                    let high = values.iter().max().unwrap() + below(4);
                    let known = below(5) > 0;
                    (values, known.then(|| (int(low), int(high))))
                })
                .collect();
            let bounds: Vec<_> = files.iter().map(|(_, bounds)| bounds.clone()).collect();
            for end in [End::Least, End::Greatest] {
                let of = |values: Vec<i64>| match end {
                    End::Least => values.into_iter().min(),
                    End::Greatest => values.into_iter().max(),
                };
                let kept = can_hold(end, &bounds);
                let all: Vec<i64> = files.iter().flat_map(|(values, _)| values.clone()).collect();
                let left = files.iter().zip(&kept).filter(|(_, kept)| **kept);
                let left: Vec<i64> = left.flat_map(|((values, _), _)| values.clone()).collect();
                assert_eq!(of(all), of(left), "{end:?} of {files:?}, kept {kept:?}");
                dropped += kept.iter().filter(|kept| !**kept).count();
            }
        }
        assert!(dropped > 500, "{dropped}");
    }

    #[test]
    fn what_cannot_be_compared_is_kept() {
        let text = || ScalarValue::Utf8(Some("a".into()));
        let files = [Some((int(1), int(2))), Some((text(), text())), None];
        assert_eq!(can_hold(End::Least, &files), [true, true, true]);
        assert_eq!(can_hold(End::Greatest, &files), [true, true, true]);
        assert_eq!(can_hold(End::Least, &[]), [false; 0]);
    }

    /// Statements that a table of four files answers from fewer, or must not.
    #[test]
    fn fewer_files_are_read_where_all_rows_count() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let session = for_tests(folder.path(), true);
        let run = |sql: &str| {
            let rows = runtime.block_on(session.query(sql)).unwrap();
            datafusion::arrow::util::pretty::pretty_format_batches(&rows).unwrap().to_string()
        };
        run("CREATE TABLE t (day DATE, ts TIMESTAMP, n BIGINT, x DOUBLE, s TEXT) PARTITIONED BY (day);
             INSERT INTO t SELECT DATE '2026-11-01' + CAST(v % 4 AS INT),
               to_timestamp(1793491200 + v % 4 * 86400 + v),
               CASE WHEN v % 4 = 0 THEN NULL ELSE v % 4 * 100 + v END, v, concat('s', CAST(v AS TEXT))
             FROM generate_series(1, 40) AS s(v);");
        for (sql, files) in [
            ("SELECT min(ts), max(ts) FROM t", 2),
            ("SELECT min(ts) FROM t", 1),
            ("SELECT max(a) FROM (SELECT n AS a FROM t)", 2), // all are NULL in one: no bounds
            ("SELECT min(day), max(ts) FROM t", 2),
            ("SELECT max(ts) FROM t WHERE day < DATE '2026-11-03'", 1),
            ("SELECT min(ts), min(x) FROM t", 4), // floats have no bounds
            ("SELECT min(ts), count(*) FROM t", 4),
            ("SELECT min(ts) FROM t WHERE s = 's7'", 3), // by the bounds of s alone
            ("SELECT min(ts) FILTER (WHERE s = 's7') FROM t", 4),
            ("SELECT min(n + 1) FROM t", 4),
            ("SELECT min(ts) FROM (SELECT ts FROM t LIMIT 3)", 4),
            ("SELECT day, min(ts) FROM t GROUP BY day ORDER BY day", 4),
        ] {
            let plan = run(&format!("EXPLAIN {sql}"));
            let read: std::collections::BTreeSet<&str> =
                plan.match_indices("day=2026-11-0").map(|(at, _)| &plan[at..at + 14]).collect();
            assert_eq!(read.len(), files, "{sql}\n{plan}");
            let with = run(sql);
            run("SET uplake.disabled_rules = 'min_max_pruning'");
            if !sql.contains("LIMIT") {
                assert_eq!(with, run(sql), "{sql}");
            }
            run("SET uplake.disabled_rules = ''");
        }
    }
}
