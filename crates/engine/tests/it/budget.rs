//! Work larger than the memory budget spills, and gives the same answer.

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use uplake_engine::{EngineError, SqlState};

use crate::{block_on, session};

/// About 300 MB as Arrow; sorted, grouped and joined under 192 MiB.
const ROWS: u64 = 4_000_000;
const SMALL_BUDGET: usize = 192 << 20;

fn fill() -> String {
    format!(
        "CREATE TABLE t AS SELECT value AS id, (value * 7919) % {ROWS} AS shuffled, \
         concat('user-with-a-long-name-', CAST((value * 104729) % {ROWS} AS VARCHAR)) AS name \
         FROM generate_series(0, {}) AS s(value)",
        ROWS - 1
    )
}

fn number(session: &uplake_engine::Session, sql: &str) -> i64 {
    let batches = block_on(session.query(sql)).unwrap_or_else(|e| panic!("{sql}: {e}"));
    let batch = batches.iter().find(|b| b.num_rows() > 0).unwrap();
    batch.column(0).as_primitive::<Int64Type>().value(0)
}

#[test]
fn sorts_aggregates_and_joins_spill_and_stay_right() {
    let folder = tempfile::tempdir().unwrap();
    block_on(session(folder.path(), 1 << 30, 2).query(&fill())).unwrap();
    let small = session(folder.path(), SMALL_BUDGET, 2);
    let sorted = "SELECT count(*) FROM (SELECT id, lag(name) OVER (ORDER BY name) AS before, name FROM t) WHERE before > name";
    assert_eq!(number(&small, sorted), 0);
    let grouped = "SELECT count(*) FROM (SELECT name, count(*) AS n FROM t GROUP BY name HAVING count(*) = 1)";
    assert_eq!(number(&small, grouped), ROWS as i64);
    let joined = "SELECT count(*) FROM t a JOIN t b ON a.name = b.name AND a.id = b.id";
    assert_eq!(number(&small, joined), ROWS as i64);
}

#[test]
fn what_cannot_spill_fails_with_a_limit_error() {
    let folder = tempfile::tempdir().unwrap();
    let small = session(folder.path(), 4 << 20, 2);
    let sql = "SELECT array_agg(concat('a long string to be kept ', CAST(value AS VARCHAR))) FROM generate_series(1, 3000000) AS s(value)";
    let error = block_on(small.query(sql)).unwrap_err();
    assert!(matches!(error, EngineError::Limit { .. }), "{error}");
    assert_eq!(error.code(), SqlState::OutOfMemory);
    assert!(error.hint().is_some_and(|hint| hint.contains("--memory")), "{error}");
}
