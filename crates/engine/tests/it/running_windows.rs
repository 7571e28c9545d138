//! Windows of the rows so far against DataFusion's own, which `SET uplake.disabled_rules` leaves in place.

use datafusion::arrow::util::pretty::pretty_format_batches;
use uplake_engine::Session;

use crate::{block_on, session};

const MEMORY: usize = 256 << 20;

/// Of 2,000 rows: users of one row, of some and one of 900; times that several rows share; NULLs everywhere.
const TABLE: &str = "CREATE TABLE t AS SELECT
    CASE WHEN v % 20 < 9 THEN 'all' WHEN v % 97 = 0 THEN NULL ELSE concat('u', CAST(v % 331 AS TEXT)) END AS who,
    CASE WHEN v % 53 = 0 THEN NULL ELSE to_timestamp_micros(v * 7919 % 211 * 1000000) END AS ts,
    v AS row,
    CASE WHEN v % 11 = 0 THEN NULL ELSE v * 31 % 1009 - 500 END AS n,
    CASE WHEN v % 13 = 0 THEN NULL ELSE CAST(v * 17 % 89 AS DOUBLE) / 8 END AS x,
    CASE WHEN v % 7 = 0 THEN NULL ELSE concat('t', CAST(v % 5 AS TEXT)) END AS s,
    CAST(v % 100 AS DECIMAL(9, 2)) AS d
  FROM generate_series(1, 2000) AS g(v)";

/// The functions, and what their window is; `{w}` is by whom and in which order.
const CALLS: [&str; 24] = [
    "row_number() OVER ({w})",
    "rank() OVER ({w})",
    "dense_rank() OVER ({w})",
    "lag(n) OVER ({w})",
    "lag(s, 3) OVER ({w})",
    "lag(ts, 0) OVER ({w})",
    "lead(n) OVER ({w})",
    "lead(s, 5) OVER ({w})",
    "first_value(n) OVER ({w})",
    "first_value(s) OVER ({w} ROWS UNBOUNDED PRECEDING)",
    "count(*) OVER ({w})",
    "count(n) OVER ({w})",
    "count(s) OVER ({w} ROWS UNBOUNDED PRECEDING)",
    "sum(n) OVER ({w})",
    "sum(n) OVER ({w} ROWS UNBOUNDED PRECEDING)",
    "sum(x) OVER ({w} ROWS UNBOUNDED PRECEDING)",
    "min(n) OVER ({w})",
    "max(n) OVER ({w} ROWS UNBOUNDED PRECEDING)",
    "min(ts) OVER ({w} ROWS UNBOUNDED PRECEDING)",
    "max(d) OVER ({w})",
    "max(CASE WHEN s = 't1' THEN ts END) OVER ({w} ROWS UNBOUNDED PRECEDING)",
    "min(CAST(ts AS DATE)) OVER ({w} GROUPS UNBOUNDED PRECEDING)",
    "count(d) OVER ({w} RANGE UNBOUNDED PRECEDING)",
    "max(CAST(n AS SMALLINT)) OVER ({w})",
];

const WINDOWS: [&str; 6] = [
    "PARTITION BY who ORDER BY ts, row",
    "PARTITION BY who ORDER BY ts DESC NULLS LAST, row",
    "PARTITION BY who ORDER BY row",
    "PARTITION BY who, s ORDER BY row DESC",
    "ORDER BY row",
    "PARTITION BY d ORDER BY n NULLS FIRST, row",
];

/// Where rows are peers only functions of which it does not matter in which order these come.
const OF_PEERS: [&str; 9] = [
    "rank() OVER ({w})",
    "dense_rank() OVER ({w})",
    "count(*) OVER ({w})",
    "count(n) OVER ({w})",
    "sum(n) OVER ({w})",
    "min(n) OVER ({w})",
    "max(ts) OVER ({w} RANGE UNBOUNDED PRECEDING)",
    "max(d) OVER ({w} GROUPS UNBOUNDED PRECEDING)",
    "min(n) FILTER (WHERE n > 0) OVER ({w})",
];

const WINDOWS_WITH_PEERS: [&str; 4] = [
    "PARTITION BY who ORDER BY ts",
    "PARTITION BY s ORDER BY d DESC",
    "ORDER BY d",
    "PARTITION BY who ORDER BY s NULLS FIRST, d",
];

fn text(session: &Session, sql: &str) -> String {
    let batches = block_on(session.query(sql)).unwrap_or_else(|error| panic!("{sql}: {error}"));
    pretty_format_batches(&batches).unwrap().to_string()
}

fn two(batch_rows: usize, folder: &std::path::Path) -> [Session; 2] {
    ["", "running_windows"].map(|disabled| {
        let session = session(folder, MEMORY, 2);
        for set in [
            format!("SET datafusion.execution.batch_size = {batch_rows}"),
            format!("SET uplake.disabled_rules = '{disabled}'"),
        ] {
            block_on(session.query(&set)).unwrap();
        }
        session
    })
}

fn is_here(session: &Session, sql: &str) -> bool {
    text(session, &format!("EXPLAIN {sql}")).contains("RunningWindowExec")
}

#[test]
fn windows_of_the_rows_so_far_are_datafusions() {
    let folder = tempfile::tempdir().unwrap();
    block_on(session(folder.path(), MEMORY, 2).query(TABLE)).unwrap();
    let mut computed_here = 0;
    for batch_rows in [1, 7, 64, 8192] {
        let [ours, theirs] = two(batch_rows, folder.path());
        let mut same = |calls: &[&str], window: &str| {
            let calls: Vec<String> = calls.iter().map(|call| call.replace("{w}", window)).collect();
            let sql = format!("SELECT row, {} FROM t ORDER BY row", calls.join(", "));
            assert_eq!(text(&ours, &sql), text(&theirs, &sql), "{batch_rows} rows: {sql}");
            assert!(!is_here(&theirs, &sql), "{sql}");
            computed_here += usize::from(is_here(&ours, &sql));
        };
        for window in WINDOWS {
            // Each alone, too: what waits for rows and what does not are in one operator else.
            if batch_rows == 7 {
                CALLS.iter().for_each(|call| same(&[call], window));
            }
            same(&CALLS, window);
        }
        for window in WINDOWS_WITH_PEERS {
            if batch_rows == 7 {
                OF_PEERS.iter().for_each(|call| same(&[call], window));
            }
            same(&OF_PEERS[..8], window);
        }
    }
    // All but those with FILTER, and what DataFusion finds sorted in reverse.
    assert!(computed_here > 180, "{computed_here} of the statements by RunningWindowExec");
}

#[test]
fn what_is_not_of_the_rows_so_far_stays_datafusions() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), MEMORY, 2);
    block_on(session.query(TABLE)).unwrap();
    for call in [
        "sum(n) OVER (PARTITION BY who ORDER BY row ROWS 3 PRECEDING)",
        "sum(n) OVER (PARTITION BY who)",
        "sum(x) OVER (PARTITION BY who ORDER BY ts)",
        "max(x) OVER (PARTITION BY who ORDER BY row ROWS UNBOUNDED PRECEDING)",
        "count(DISTINCT n) OVER (PARTITION BY who ORDER BY row ROWS UNBOUNDED PRECEDING)",
        "sum(n) FILTER (WHERE s = 't1') OVER (PARTITION BY who ORDER BY row ROWS UNBOUNDED PRECEDING)",
        "lag(n, 1, 7) OVER (PARTITION BY who ORDER BY row)",
        "lag(n) IGNORE NULLS OVER (PARTITION BY who ORDER BY row)",
        "first_value(n) IGNORE NULLS OVER (PARTITION BY who ORDER BY row)",
        "rank() OVER (PARTITION BY who ORDER BY x)",
        "row_number() OVER (PARTITION BY x ORDER BY row)",
    ] {
        let sql = format!("SELECT {call} FROM t");
        assert!(!is_here(&session, &sql), "{sql}");
    }
}

/// A sum that fits only with the last of its peers is that, and one that never fits is an error.
#[test]
fn sums_have_to_fit_where_their_frame_ends() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), MEMORY, 2);
    let most = i64::MAX;
    let rows = format!("(VALUES (1, {most}), (1, 1), (1, -5), (2, 3)) AS v(k, n)");
    let sql = format!("SELECT k, sum(n) OVER (ORDER BY k) FROM {rows} ORDER BY k, 2");
    assert!(is_here(&session, &sql));
    let (first, second) = (most - 4, most - 1);
    let found = text(&session, &sql);
    assert!(found.contains(&format!("{first}")) && found.contains(&format!("{second}")), "{found}");
    let rows = format!("(VALUES (1, {most}), (2, 1)) AS v(k, n)");
    let sql = format!("SELECT sum(n) OVER (ORDER BY k) FROM {rows}");
    let error = block_on(session.query(&sql)).unwrap_err().to_string();
    assert!(error.contains("the sum does not fit bigint"), "{error}");
}
