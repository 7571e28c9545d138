//! Ids in place of keys, groups in arrays and columns kept in memory: the same answers as without.

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::display::array_value_to_string;
use uplake_engine::{Session, SessionOptions};
use uplake_table::Lake;

use crate::{block_on, options, session};

/// Two tables of one domain in several files and partitions, with NULL everywhere it can be. Numbers
/// are multiples of 0.25, so that sums do not depend on the order of rows.
pub(crate) const DATA: &str = "
CREATE TABLE events (dt DATE, user_id TEXT, n BIGINT, event TEXT, value DOUBLE, small SMALLINT)
  PARTITIONED BY (dt) CLUSTERED BY (user_id, n) ID DOMAINS (user_id users);
CREATE TABLE exposures (user_id TEXT, exp INT, variant INT, t BIGINT)
  CLUSTERED BY (exp, user_id) ID DOMAINS (user_id users);
INSERT INTO events SELECT DATE '2026-11-01' + CAST(value % 3 AS INT), CASE WHEN value % 50 = 7 THEN NULL
  ELSE concat('user number ', CAST((value * 7919) % 3001 AS VARCHAR)) END, value,
  CASE value % 7 WHEN 0 THEN NULL WHEN 1 THEN 'pay' WHEN 2 THEN 'an event with a longer name' ELSE 'click' END,
  CASE WHEN value % 11 = 0 THEN NULL ELSE CAST((value * 31) % 1000 AS DOUBLE) / 4 END,
  CASE WHEN value % 13 = 0 THEN NULL ELSE CAST(value % 5 - 2 AS SMALLINT) END
  FROM generate_series(1, 30000) AS s(value);
INSERT INTO events SELECT DATE '2026-11-03', concat('late ', CAST(value AS VARCHAR)), value, 'pay', 0.5, 1
  FROM generate_series(1, 500) AS s(value);
INSERT INTO exposures SELECT CASE WHEN value % 97 = 0 THEN NULL
  ELSE concat('user number ', CAST((value * 31) % 4000 AS VARCHAR)) END,
  CAST(value % 3 AS INT), CASE WHEN value % 19 = 0 THEN NULL ELSE CAST(value % 2 AS INT) END, value
  FROM generate_series(1, 9000) AS s(value);
INSERT INTO exposures VALUES ('late 1', 1, 0, 5), ('late 2', 1, 1, 6), ('nobody else', 1, 1, 7)";

const FIRST: &str = "u AS (SELECT user_id, MIN(variant) AS variant, MIN(t) AS t FROM exposures \
                     WHERE exp = 1 GROUP BY user_id)";

pub(crate) fn questions() -> Vec<String> {
    let mut questions: Vec<String> = [
        // Groups by ids, with keys that are looked at and keys that are not.
        "SELECT user_id, count(*), sum(value), avg(value), min(n), max(event) FROM events GROUP BY user_id",
        "SELECT user_id FROM events GROUP BY user_id ORDER BY user_id DESC NULLS LAST LIMIT 7",
        // The first users by something else, of which many are level.
        "SELECT user_id, count(*) AS c, sum(value) FROM events GROUP BY user_id ORDER BY c DESC, user_id LIMIT 20",
        "SELECT user_id, sum(value) AS v FROM events GROUP BY user_id ORDER BY v, user_id DESC LIMIT 3 OFFSET 2",
        "SELECT user_id, sum(value) AS v FROM events GROUP BY user_id
           ORDER BY v DESC NULLS FIRST, count(*), user_id LIMIT 300",
        "SELECT user_id, max(small) AS m FROM events GROUP BY user_id ORDER BY m NULLS FIRST, user_id LIMIT 4",
        "SELECT upper(user_id) AS k, avg(value) AS v FROM events GROUP BY user_id
           ORDER BY round(avg(value), 1) DESC, k LIMIT 1",
        "SELECT user_id, max(event) AS m FROM events GROUP BY user_id ORDER BY m DESC, user_id LIMIT 5",
        "SELECT upper(user_id), c FROM (SELECT user_id, count(*) AS c FROM events GROUP BY 1) WHERE c > 8",
        "SELECT c, count(*) FROM (SELECT user_id, count(*) AS c FROM events GROUP BY 1) GROUP BY c",
        "SELECT DISTINCT user_id FROM exposures WHERE user_id LIKE '%9'",
        "SELECT user_id, count(DISTINCT event) FROM events GROUP BY user_id",
        "SELECT user_id, dt, count(*) FROM events GROUP BY user_id, dt",
        "SELECT user_id, count(*) FROM events GROUP BY user_id HAVING user_id > 'user number 29'",
        "SELECT user_id, array_agg(n ORDER BY n) FROM events WHERE n < 60 GROUP BY user_id",
        // The first rows of each group.
        "SELECT user_id, n FROM (SELECT user_id, n, row_number() OVER (PARTITION BY user_id ORDER BY n) AS r
           FROM events) WHERE r = 1",
        "SELECT * FROM (SELECT event, small, value, n, row_number() OVER (PARTITION BY event, small
           ORDER BY value DESC NULLS LAST, n) AS r FROM events) WHERE r <= 3",
        "SELECT * FROM (SELECT dt, event, n % 500 AS m, n, rank() OVER (PARTITION BY dt
           ORDER BY event NULLS FIRST, n % 500 DESC) AS r FROM events) WHERE r < 9 AND n > 0",
        // Windows by users, beside others, over groups, and with a key that is sorted by.
        "SELECT user_id, n, lag(n) OVER (PARTITION BY user_id ORDER BY n) FROM events WHERE n < 4000",
        "SELECT n, count(*) OVER (PARTITION BY user_id), rank() OVER (PARTITION BY dt, user_id ORDER BY n DESC),
           first_value(n) OVER (PARTITION BY event ORDER BY n, user_id) FROM events",
        "SELECT n, row_number() OVER (PARTITION BY small ORDER BY user_id, n),
           count(*) OVER (PARTITION BY small, user_id ORDER BY n) FROM events",
        "SELECT n, sum(value) OVER (PARTITION BY user_id ORDER BY n ROWS BETWEEN 2 PRECEDING AND CURRENT ROW),
           max(n) OVER (PARTITION BY user_id ORDER BY user_id) FROM events",
        "SELECT user_id, dt, c - lag(c) OVER (PARTITION BY user_id ORDER BY dt) FROM
           (SELECT user_id, dt, count(*) AS c FROM events GROUP BY user_id, dt)",
        "SELECT count(*), sum(r) FROM (SELECT x.user_id AS a, count(e.n) OVER (PARTITION BY x.user_id) AS r
           FROM events e FULL JOIN exposures x ON e.user_id = x.user_id AND x.exp = 1 AND e.n > 9000)",
        "SELECT n, r FROM (SELECT user_id, n, row_number() OVER (PARTITION BY user_id ORDER BY n) AS r
           FROM events) WHERE user_id = 'user number 17' AND r < 9",
        "SELECT a, count(DISTINCT s), max(s) FROM (SELECT user_id AS a, sum(CASE WHEN gap > 900 THEN 1 ELSE 0 END)
           OVER (PARTITION BY user_id ORDER BY n) AS s FROM (SELECT user_id, n, n - lag(n) OVER
           (PARTITION BY user_id ORDER BY n) AS gap FROM events)) GROUP BY a",
        // Groups by columns of few values, of every type that arrays take.
        "SELECT event, count(*), count(value), sum(value), avg(value), min(user_id) FROM events GROUP BY event",
        "SELECT dt, event, small, count(*), sum(n), avg(n), min(value) FROM events GROUP BY 1, 2, 3",
        "SELECT small, sum(small), avg(small), max(small) FROM events GROUP BY small",
        "SELECT value > 100 AS big, count(DISTINCT user_id) FROM events GROUP BY 1",
        "SELECT exp, variant, count(DISTINCT user_id), count(*) FROM exposures GROUP BY exp, variant",
        "SELECT n % 4, event, round(stddev(value), 6), corr(value, n) IS NULL FROM events GROUP BY 1, 2",
        "SELECT event, sum(CASE WHEN small > 0 THEN value ELSE 0.0 END), sum(CASE WHEN small > 0 THEN value END),
           avg(CASE WHEN event = 'pay' THEN value END), count(CASE WHEN small = 1 THEN 1 END),
           sum(CASE WHEN small = 1 THEN 1.0 ELSE 0.0 END), sum(CASE WHEN small = 1 THEN 1 ELSE 0 END),
           sum(CASE WHEN small = 1 THEN n END), sum(CASE WHEN value > 9999 THEN value END),
           sum(CASE WHEN value > 9999 THEN value ELSE 0.0 END) FROM events GROUP BY event",
        "SELECT event, sum(value) FILTER (WHERE small > 0), count(*) FILTER (WHERE small IS NULL),
           sum(n) FILTER (WHERE value IS NULL) FROM events GROUP BY event",
        // So many of one number in long runs.
        "SELECT dt, sum(CASE WHEN small > 0 THEN 2.0 ELSE 0.0 END), sum(CASE WHEN small > 0 THEN 0.25 END),
           sum(CASE WHEN small > 0 THEN 3 END), sum(CASE WHEN value > 9999 THEN 3 END),
           sum(CASE WHEN small > 0 AND event = 'pay' THEN value END), count(CASE WHEN small > 0 AND n < 99 THEN 7 END)
           FROM events GROUP BY dt",
        // Means of what others add up.
        "SELECT event, sum(CASE WHEN small > 0 THEN value ELSE 0.0 END), avg(CASE WHEN small > 0 THEN value END),
           avg(CASE WHEN small > 0 THEN value ELSE 0.0 END), avg(value), sum(small), avg(small),
           avg(small) FILTER (WHERE n > 900), sum(small) FILTER (WHERE n > 900), avg(n), sum(n),
           avg(small) FILTER (WHERE n < 0), sum(small) FILTER (WHERE n < 0) FROM events GROUP BY event",
        "SELECT event, count(*) FROM events WHERE n < 0 GROUP BY event",
        // Names that columns of ids have, for what are none.
        "SELECT __id_a, count(*) FROM (SELECT upper(event) AS __id_a FROM events) GROUP BY __id_a",
        "SELECT __id_a, count(*) FROM (SELECT CAST(n % 5 - 2 AS INT) AS __id_a FROM events) GROUP BY __id_a",
        "SELECT count(*) FROM (SELECT n, count(*) FROM events GROUP BY n)",
        "SELECT GROUPING(event), event, dt, count(*) FROM events GROUP BY ROLLUP (event, dt)",
        // Conditions that partitions alone decide, and others.
        "SELECT count(*), sum(n) FROM events WHERE dt = DATE '2026-11-02'",
        "SELECT count(*), sum(n) FROM events WHERE dt <> DATE '2026-11-02' AND n > 100",
        "SELECT count(*), sum(n) FROM events WHERE dt = DATE '2026-11-02' OR n < 100",
        "SELECT count(*), sum(n) FROM events WHERE dt IS NULL",
        "SELECT count(*), sum(n) FROM events WHERE dt IN (SELECT max(dt) FROM events)",
        "SELECT count(*), sum(n) FROM events WHERE date_part('day', dt) = 3 AND dt > DATE '2026-11-02'",
        "SELECT dt, n, event, value, user_id FROM events WHERE n BETWEEN 7000 AND 7040",
        "SELECT dt, n, event FROM events WHERE user_id = 'user number 17'",
    ]
    .map(str::to_owned)
    .to_vec();
    // Joins of rows with one row for each user.
    for body in [
        "SELECT e.dt, u.variant, count(*), sum(CASE WHEN e.event = 'pay' THEN e.value ELSE 0.0 END),
           count(DISTINCT e.user_id) FROM events e JOIN u ON e.user_id = u.user_id GROUP BY e.dt, u.variant",
        "SELECT u.user_id, min(u.variant), sum(CASE WHEN e.n >= u.t AND e.event = 'pay' THEN e.value ELSE 0.0 END),
           count(e.n) FROM u LEFT JOIN events e ON e.user_id = u.user_id GROUP BY u.user_id",
        "SELECT variant, count(*) FROM u WHERE EXISTS (SELECT 1 FROM events e WHERE e.user_id = u.user_id AND
           e.dt = DATE '2026-11-03') AND NOT EXISTS (SELECT 1 FROM events p WHERE p.event = 'pay' AND
           p.user_id = u.user_id) GROUP BY variant",
        "SELECT u.user_id, u.t, a.c FROM u JOIN (SELECT user_id, count(*) AS c FROM events GROUP BY user_id) a
           ON a.user_id = u.user_id WHERE a.c > 9",
        "SELECT count(*), count(u.user_id), count(e.user_id) FROM u FULL JOIN events e ON e.user_id = u.user_id",
        "SELECT count(*) FROM u WHERE user_id NOT IN (SELECT user_id FROM events WHERE user_id IS NOT NULL)",
        "SELECT e.user_id, u.user_id FROM events e JOIN u ON e.user_id = u.user_id AND e.n < 90",
        // Conditions on both sides, of the join and after it.
        "SELECT u.variant, e.event, count(*), sum(e.n - u.t), min(u.t), max(e.event) FROM events e
           JOIN u ON e.user_id = u.user_id AND e.n >= u.t GROUP BY 1, 2",
        "SELECT e.dt, count(*), avg(CASE WHEN u.variant = 1 THEN e.value END), min(u.variant) FROM events e
           JOIN u ON e.user_id = u.user_id WHERE e.n > u.t * 2 AND e.small <> 1 GROUP BY e.dt",
        "SELECT e.dt, u.variant, sum(CASE WHEN e.event = 'pay' THEN e.value ELSE 0.0 END), sum(e.small),
           avg(CASE WHEN e.event = 'pay' THEN e.value END), avg(e.small) FROM events e
           JOIN u ON e.user_id = u.user_id GROUP BY e.dt, u.variant",
        "SELECT u.variant, u.t % 3, count(*), sum(e.value) FROM events e JOIN u ON e.user_id = u.user_id
           WHERE e.event LIKE '%pay%' OR e.event IS NULL GROUP BY 1, 2",
        "SELECT u.t, u.variant, count(*), count(DISTINCT e.event) FROM events e JOIN u USING (user_id)
           WHERE u.t < 400 AND e.event IN ('pay', 'click') GROUP BY 1, 2",
        "SELECT e.user_id, count(*), sum(CASE WHEN e.event <> 'pay' THEN 1 ELSE 0 END), max(u.t) FROM events e
           JOIN u ON e.user_id = u.user_id GROUP BY e.user_id",
        "SELECT u.user_id, count(e.n), sum(e.value), min(u.t) FROM u LEFT JOIN events e
           ON e.user_id = u.user_id AND e.n > u.t + 12000 GROUP BY u.user_id",
        "SELECT u.variant, count(*), count(e.n), sum(CASE WHEN e.event IN ('pay', 'click') THEN e.value END),
           count(CASE WHEN NOT e.event = 'pay' THEN 1 END), sum(CASE WHEN e.event IS NULL THEN u.t ELSE 0 END)
           FROM u LEFT JOIN events e ON e.user_id = u.user_id GROUP BY u.variant",
        "SELECT u.variant, window_funnel(100, e.n, e.event = 'click', e.event = 'pay') AS level
           FROM events e JOIN u ON e.user_id = u.user_id GROUP BY u.variant",
        "SELECT u.user_id, window_funnel(9000, 'strict_increase', e.n, e.event IN ('click', 'pay'), e.event = 'pay',
           e.event IS NULL) AS level, sequence_count('(?1).*(?2)', e.n, e.event = 'pay', e.value > 100) AS pairs
           FROM u LEFT JOIN events e ON e.user_id = u.user_id GROUP BY u.user_id",
        "SELECT u.user_id, event_path(9000, 5, e.n, e.event, e.event = 'click', e.event = 'pay') AS path,
           conversion_times(9000, e.n, e.event = 'click', e.event = 'pay') AS times
           FROM u LEFT JOIN events e ON e.user_id = u.user_id GROUP BY u.user_id",
        "SELECT e.user_id, count(*), sum(u.t), max(e.n) FROM u LEFT JOIN events e
           ON e.user_id = u.user_id GROUP BY e.user_id",
        // Few partners, and none.
        "SELECT e.dt, v.variant, count(*), sum(e.n) FROM events e JOIN (SELECT * FROM u WHERE t < 60) v
           ON e.user_id = v.user_id GROUP BY 1, 2",
        "SELECT e.dt, v.variant, count(*) FROM events e JOIN (SELECT * FROM u WHERE t < 0) v
           ON e.user_id = v.user_id GROUP BY 1, 2",
        "SELECT v.user_id, count(e.n) FROM (SELECT * FROM u WHERE t < 60) v LEFT JOIN events e
           ON e.user_id = v.user_id GROUP BY v.user_id",
        // Of a cohort.
        "SELECT e.dt, u.variant, count(*), sum(e.value) FROM events e JOIN u ON e.user_id = u.user_id
           WHERE u.user_id IN (SELECT user_id FROM events WHERE event = 'pay' AND n < 9000) GROUP BY 1, 2",
        "SELECT u.user_id, min(u.variant), count(e.n), sum(e.value) FROM u LEFT JOIN events e ON e.user_id = u.user_id
           WHERE u.user_id IN (SELECT user_id FROM exposures WHERE exp = 2) GROUP BY u.user_id",
        "SELECT u.variant, count(*), max(e.n) FROM events e JOIN u ON e.user_id = u.user_id
           WHERE NOT EXISTS (SELECT 1 FROM exposures x WHERE x.exp = 2 AND x.user_id = u.user_id) GROUP BY 1",
        // What users add up to, joined with them.
        "SELECT u.variant, count(*), sum(f.c), max(f.last), sum(f.level) FROM (SELECT user_id, count(*) AS c,
           max(n) AS last, window_funnel(100, n, event = 'click', event = 'pay') AS level FROM events
           WHERE event IN ('pay', 'click') GROUP BY user_id) f JOIN u ON f.user_id = u.user_id GROUP BY u.variant",
        "SELECT v.variant, sum(f.c) FROM (SELECT user_id, count(*) AS c FROM events GROUP BY user_id) f
           JOIN (SELECT * FROM u WHERE t < 60) v ON f.user_id = v.user_id AND f.c > v.t % 5 GROUP BY v.variant",
        "SELECT f.user_id, f.c, u.t FROM (SELECT user_id, count(*) AS c FROM events GROUP BY user_id) f
           LEFT JOIN u ON f.user_id = u.user_id",
        "SELECT f.user_id, f.c FROM (SELECT user_id, sum(n) AS c FROM events GROUP BY user_id) f
           WHERE f.user_id IN (SELECT user_id FROM u WHERE t < 60)",
        "SELECT f.event, f.c, u.t FROM (SELECT small AS event, count(*) AS c FROM events GROUP BY small) f
           JOIN u ON f.event = u.t",
        // What fails for rows that the join drops.
        "SELECT e.dt, sum(CAST(substr(e.user_id, 13) AS BIGINT)) FROM events e
           JOIN (SELECT * FROM u WHERE user_id LIKE 'user number%') v ON e.user_id = v.user_id GROUP BY e.dt",
        "SELECT v.variant, sum(100 / (e.n - v.t)) FROM events e JOIN u v ON e.user_id = v.user_id AND e.n <> v.t
           GROUP BY v.variant",
    ] {
        questions.push(format!("WITH {FIRST} {body}"));
    }
    questions
}

pub(crate) fn rows(session: &Session, sql: &str) -> Vec<String> {
    let batches = block_on(session.query(sql)).unwrap_or_else(|e| panic!("{sql}: {e}"));
    let row = |batch: &RecordBatch, row: usize| -> String {
        let cell = |column| array_value_to_string(column, row).unwrap();
        batch.columns().iter().map(|column| cell(column) + "|").collect()
    };
    let mut rows: Vec<String> =
        batches.iter().flat_map(|batch| (0..batch.num_rows()).map(|at| row(batch, at))).collect();
    rows.sort_unstable();
    rows
}

fn compare(memory: usize, threads: usize) {
    let folder = tempfile::tempdir().unwrap();
    block_on(session(folder.path(), 1 << 30, 2).query(DATA)).unwrap();
    let lake = Lake::open(folder.path().join("lake").to_str().unwrap()).unwrap();
    let plain = SessionOptions { use_indexes: false, ..options(1 << 30, 2) };
    let plain = Session::new(lake, &plain).unwrap();
    let fast = session(folder.path(), memory, threads);
    for sql in questions() {
        let expected = rows(&plain, &sql);
        // The first scans read files, later ones have columns in memory.
        for turn in 0..4 {
            let found = rows(&fast, &sql);
            assert!(found == expected, "turn {turn}: {sql}\n{found:?}\nnot\n{expected:?}");
        }
    }
    assert_eq!(fast.take_warnings(), Vec::<String>::new());
}

#[test]
fn ids_arrays_and_kept_columns_answer_as_plain_scans_do() {
    compare(1 << 30, 3);
}

#[test]
fn a_small_budget_answers_as_plain_scans_do() {
    compare(24 << 20, 2);
}

/// Rows of three days, many of one user at the same time. `{clustered}`: how files are sorted.
const VISITS: &str = "
CREATE TABLE {name} (dt DATE, user_id TEXT, ts TIMESTAMP, event TEXT)
  PARTITIONED BY (dt) CLUSTERED BY ({clustered}) ID DOMAINS (user_id users);
INSERT INTO {name} SELECT DATE '2026-11-01' + CAST(value / 450000 AS INT),
  concat('user ', CAST((value * 7919) % 30011 AS VARCHAR)),
  to_timestamp_micros(1793491200000000 + (value / 450000 * 48 + (value * value % 1009 + value / 7) % 48) * 1800000000),
  CASE (value * value / 7 + value * 31) % 9 WHEN 0 THEN NULL WHEN 1 THEN 'pay' WHEN 2 THEN 'cart' WHEN 3 THEN 'cart'
    WHEN 4 THEN 'scroll' WHEN 5 THEN 'pay' ELSE 'visit' END
  FROM generate_series(0, 1349999) AS s(value)";

/// Functions of events over scans by ranges of ids, and what breaks the order that those need.
#[test]
fn events_in_ranges_of_ids_answer_as_plain_scans_do() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), 1 << 30, 2);
    let make = |name: &str, clustered: &str| {
        let sql = VISITS.replace("{name}", name).replace("{clustered}", clustered);
        block_on(session.query(&sql)).unwrap();
    };
    make("visits", "user_id, ts");
    make("not_by_time", "user_id, event");
    make("not_by_id", "ts, user_id");
    let steps = "ts, event = 'visit', event = 'cart', event = 'pay'";
    let window = |mode: &str| format!("window_funnel(INTERVAL '3' HOUR, {mode}{steps})");
    let path = |how: &str| {
        format!("event_path(INTERVAL '3' HOUR, {how}ts, event, event = 'visit', event = 'pay')")
    };
    let functions = [
        format!("{}, count(*), min(ts)", window("")),
        window("'strict_increase', "),
        window("'strict_order', "),
        format!("{}, {}", window("'strict_dedup', "), window("")),
        format!("{} FILTER (WHERE event <> 'cart' OR ts > TIMESTAMP '2026-11-02')", window("")),
        "window_funnel(INTERVAL '1' DAY, ts, event = 'pay', user_id LIKE '%7')".to_owned(),
        format!("sequence_match('(?1)(?2).*(?3)', {steps})"),
        format!("sequence_count('(?1)(?t<=3600)(?2)', {steps}), count(event)"),
        path("6, ").to_owned(),
        format!(
            "conversion_times(INTERVAL '3' HOUR, {steps}), {}",
            path("3, 'collapse_repeats', ")
        ),
        format!("{} FILTER (WHERE event <> 'scroll'), count(event)", path("4, ")),
    ];
    let question = |table: &str, function: &str, filter: &str| {
        format!("SELECT user_id, {function} FROM {table} {filter} GROUP BY user_id")
    };
    let plain = SessionOptions { use_indexes: false, ..options(1 << 30, 2) };
    let lake = Lake::open(folder.path().join("lake").to_str().unwrap()).unwrap();
    let plain = Session::new(lake, &plain).unwrap();
    let compare = |table: &str, functions: &[String]| {
        for (number, function) in functions.iter().enumerate() {
            let filter = ["", "WHERE event IN ('visit', 'cart', 'pay')"][number % 2];
            let sql = question(table, function, filter);
            let expected = rows(&plain, &sql);
            // The first two scans read files, the third keeps their columns.
            for turn in 0..if number == 0 { 4 } else { 1 } {
                assert!(rows(&session, &sql) == expected, "turn {turn}: {sql}");
            }
        }
    };
    let ranges = |table: &str| {
        let sql = question(table, &functions[0], "");
        rows(&session, &format!("EXPLAIN {sql}")).concat().contains("ranges=5")
    };
    assert!(!ranges("visits"), "columns are not kept yet");
    for (table, functions) in [
        ("visits", &functions[..]),
        ("not_by_time", &functions[..2]),
        ("not_by_id", &functions[..2]),
    ] {
        compare(table, functions);
        // What is not in order is found by those that read it, who go on in another way.
        assert!(ranges(table), "{table}");
        let analyzed = format!("EXPLAIN ANALYZE {}", question(table, &functions[0], ""));
        let fell_back = rows(&session, &analyzed).concat().contains("fallbacks=1");
        assert_eq!(fell_back, table != "visits", "{table}");
    }
    // The other part of a UNION has handed out a row before it is known that rows are not in order.
    let fresh = super::session(folder.path(), 1 << 30, 2);
    let kept = question("not_by_id", "count(event), min(ts)", "");
    (0..3).for_each(|_| drop(rows(&fresh, &kept)));
    let union = format!(
        "SELECT 'nobody' AS user_id, 0 AS level UNION ALL {}",
        question("not_by_id", &window(""), "")
    );
    let tried = rows(&fresh, &format!("EXPLAIN {union}")).concat();
    assert!(tried.contains("ranges=5"), "{tried}");
    assert!(rows(&fresh, &union) == rows(&plain, &union));
    let joined = format!(
        "SELECT u.first % 2, f.level, count(*) FROM (SELECT user_id, {} AS level FROM visits GROUP BY user_id) f
           JOIN (SELECT user_id, min(date_part('minute', ts)) AS first FROM visits
             WHERE dt = DATE '2026-11-01' GROUP BY user_id) u ON f.user_id = u.user_id GROUP BY 1, 2",
        window("")
    );
    assert_eq!(rows(&session, &joined), rows(&plain, &joined));
    // A late row; and one without a user.
    let late = "INSERT INTO visits VALUES (DATE '2026-11-01', 'user 17', TIMESTAMP '2026-11-01 12:00:01', 'pay')";
    block_on(session.query(late)).unwrap();
    compare("visits", &functions[..2]);
    assert!(!ranges("visits"), "files are not one after the other");
    block_on(session.query("DELETE FROM visits WHERE ts = TIMESTAMP '2026-11-01 12:00:01'"))
        .unwrap();
    let nobody = "INSERT INTO visits VALUES (DATE '2026-11-05', NULL, TIMESTAMP '2026-11-05 01:00:00', 'pay')";
    block_on(session.query(nobody)).unwrap();
    compare("visits", &functions[..2]);
    assert!(!ranges("visits"), "there are rows without an id");
}

/// Kept columns say what each value answers; what is drawn, or known to the reader of a file, is not theirs.
#[test]
fn what_values_do_not_decide_is_asked_of_rows() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), 1 << 30, 2);
    block_on(session.query(DATA)).unwrap();
    let drawn = "SELECT sum(CAST(r AS INT)) FROM (SELECT event = 'pay' AND random() < 0.5 AS r FROM events)";
    let all: f64 = rows(&session, "SELECT count(*) FROM events WHERE event = 'pay'")[0]
        .trim_end_matches('|')
        .parse()
        .unwrap();
    for turn in 0..5 {
        let half: f64 = rows(&session, drawn)[0].trim_end_matches('|').parse().unwrap();
        assert!((half / all - 0.5).abs() < 0.1, "turn {turn}: {half} of {all}");
        let named = "SELECT count(DISTINCT input_file_name()), count(event) FROM events";
        assert!(!rows(&session, named)[0].starts_with("0|"), "turn {turn}");
    }
}

/// A side of a join that was kept by groups in arrays is in other partitions than hash tables have it in.
#[test]
fn kept_sides_are_not_taken_for_hashed_ones() {
    let folder = tempfile::tempdir().unwrap();
    let make = |session: &Session, sql: &str| drop(block_on(session.query(sql)).unwrap());
    let session = session(folder.path(), 1 << 30, 2);
    let layout = "CLUSTERED BY (user_id) ID DOMAINS (user_id users)";
    make(&session, &format!("CREATE TABLE e (user_id TEXT, n BIGINT) {layout}"));
    make(&session, &format!("CREATE TABLE x (user_id TEXT, variant BIGINT) {layout}"));
    make(
        &session,
        "INSERT INTO e SELECT concat('u', CAST(value % 20011 AS VARCHAR)), value FROM generate_series(1, 700000) AS s(value)",
    );
    make(
        &session,
        "INSERT INTO x SELECT concat('u', CAST(value AS VARCHAR)), value % 3 FROM generate_series(1, 15000) AS s(value)",
    );
    for limit in ["", "_rows"] {
        make(
            &session,
            &format!("SET datafusion.optimizer.hash_join_single_partition_threshold{limit} = 0"),
        );
    }
    let sql = "SELECT count(*), sum(c) FROM (
      WITH u AS (SELECT user_id, min(variant) AS variant FROM x GROUP BY user_id)
      SELECT n, count(*) AS c FROM e JOIN u ON e.user_id = u.user_id GROUP BY n)";
    let joined = (1..=700_000).filter(|n| (1..=15_000).contains(&(n % 20_011))).count();
    for turn in 0..3 {
        assert_eq!(rows(&session, sql), [format!("{joined}|{joined}|")], "turn {turn}");
    }
}

/// More values of a column than arrays are for, and then the same statement again.
#[test]
fn too_many_groups_are_left_to_hash_tables() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), 1 << 30, 2);
    let make = "CREATE TABLE t AS SELECT value AS n, CAST(value AS VARCHAR) AS s FROM generate_series(1, 400000) AS s(value)";
    block_on(session.query(make)).unwrap();
    for column in ["n", "s", "n, s"] {
        let sql = format!(
            "SELECT count(*), sum(c) FROM (SELECT {column}, count(*) AS c FROM t GROUP BY {column})"
        );
        for _ in 0..2 {
            assert_eq!(rows(&session, &sql), ["400000|400000|"], "{column}");
        }
        // Nor is it too late when the other part of a UNION has handed out a row.
        let fresh = super::session(folder.path(), 1 << 30, 2);
        let sql = format!("SELECT 0 UNION ALL SELECT count(*) FROM t GROUP BY {column}");
        assert_eq!(rows(&fresh, &sql).len(), 400_001, "{column}");
        // What a subquery finds is known before the groups are.
        let sql = format!(
            "SELECT 0, 1 UNION ALL
             SELECT count(*), sum(n) FROM t WHERE n > (SELECT 399998 + min(n) FROM t) GROUP BY {column}"
        );
        assert_eq!(rows(&fresh, &sql), ["0|1|", "1|400000|"], "{column}");
    }
}

#[test]
fn plans_say_that_arrays_and_ids_are_used() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), 1 << 30, 2);
    block_on(session.query(DATA)).unwrap();
    let plan = |sql: &str| rows(&session, &format!("EXPLAIN {sql}")).concat();
    let users = plan("SELECT user_id, count(*) FROM events GROUP BY user_id");
    assert!(users.contains("ArrayAggregateExec: gby=[__id_user_id]"), "{users}");
    assert!(users.contains("keys_of_ids(__id_user_id"), "{users}");
    let first = |by: &str, rows: &str| {
        let groups = "SELECT user_id, count(*) AS c, max(event) AS m FROM events GROUP BY user_id";
        plan(&format!("{groups} ORDER BY {by}, user_id LIMIT {rows}")).contains("TopCandidatesExec")
    };
    assert!(first("c DESC", "20") && first("c NULLS FIRST", "1024"));
    assert!(!first("c", "1025") && !first("m", "20") && !first("user_id", "20"));
    let latest = |columns: &str, condition: &str| {
        let window = "OVER (PARTITION BY event ORDER BY n DESC, dt)";
        let columns = columns.replace("OVER w", window);
        let numbered =
            format!("SELECT event, n, row_number() {window} AS r, {columns} FROM events");
        let sql = format!("SELECT event, n FROM ({numbered}) WHERE {condition}");
        plan(&sql).contains("WindowCandidatesExec: by=[event@")
    };
    assert!(latest("dt", "r <= 2") && latest("dt", "2 > r AND n > 5"));
    assert!(latest("rank() OVER w AS k", "k = 1") && latest("rank() OVER w AS k", "r < 65"));
    assert!(!latest("dt", "r <= 65") && !latest("dt", "r > 1") && !latest("dt", "r <> 1"));
    assert!(!latest("dense_rank() OVER w AS k", "k = 1"));
    assert!(!latest("lead(n) OVER w AS k", "r = 1 AND k > 0"));
    let previous = plan("SELECT n, lag(n) OVER (PARTITION BY user_id ORDER BY n) FROM events");
    assert!(previous.contains("SortExec: expr=[__id_user_id@"), "{previous}");
    let unseen = plan("SELECT count(*) FROM (SELECT user_id FROM events GROUP BY user_id)");
    assert!(!unseen.contains("keys_of_ids"), "{unseen}");
    let joined =
        format!("WITH {FIRST} SELECT count(*) FROM events e JOIN u ON e.user_id = u.user_id");
    assert!(plan(&joined).contains("on=[(__id_user_id@"), "{}", plan(&joined));
    let sums = plan(&format!(
        "WITH {FIRST} SELECT e.dt, u.variant, sum(CASE WHEN e.event = 'pay' THEN e.value ELSE 0.0 END)
           FROM events e JOIN u ON e.user_id = u.user_id WHERE e.n >= u.t GROUP BY 1, 2"
    ));
    assert!(sums.contains("join=[__id_user_id@") && !sums.contains("HashJoinExec"), "{sums}");
    assert!(sums.contains("= pay as __test_0"), "{sums}");
    let cohort = plan(&format!(
        "WITH {FIRST} SELECT u.variant, count(e.n) FROM events e JOIN u ON e.user_id = u.user_id
           WHERE u.user_id IN (SELECT user_id FROM exposures WHERE exp = 2) GROUP BY u.variant"
    ));
    assert!(cohort.contains("join=[__id_user_id@") && cohort.contains("Semi"), "{cohort}");
    let day = plan("SELECT n FROM events WHERE dt = DATE '2026-11-02'");
    assert!(!day.contains("FilterExec"), "{day}");
    let sql = "SELECT sum(n) FROM events";
    for _ in 0..3 {
        rows(&session, sql);
    }
    let analyzed = rows(&session, &format!("EXPLAIN ANALYZE {sql}")).concat();
    assert!(analyzed.contains("hot_files="), "{analyzed}");
}

/// What is asked about the same users again reads no file, and is what a new session says.
#[test]
fn users_that_are_asked_about_again_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let known = session(folder.path(), 1 << 30, 2);
    block_on(known.query(DATA)).unwrap();
    // A condition beside the id rules out pages that have rows of his.
    let pages =
        "CREATE TABLE pages (user_id TEXT, n BIGINT) CLUSTERED BY (n) ID DOMAINS (user_id users);
        INSERT INTO pages SELECT concat('user number ', CAST(value % 50 AS VARCHAR)), value
          FROM generate_series(1, 120000) AS s(value)";
    block_on(known.query(pages)).unwrap();
    let one = "FROM events WHERE user_id = 'user number 17'";
    let some =
        "FROM events WHERE user_id IN ('user number 17', 'user number 18', 'late 3', 'nobody')";
    let questions = [
        format!("SELECT dt, n, event {one}"),
        format!("SELECT dt, n, value, small, user_id {one} ORDER BY value DESC"),
        format!("SELECT count(*), max(small) {one} AND event = 'click'"),
        format!("SELECT count(*) {one}"),
        format!("SELECT n {one} AND dt = DATE '2026-11-03'"),
        format!("SELECT user_id, count(*), sum(value) {some} GROUP BY user_id"),
        format!("SELECT user_id, n, event {some} AND n > 9000 AND user_id <> 'user number 18'"),
        format!("SELECT n, event {one} AND user_id IN ('user number 17', 'user number 18')"),
        format!("SELECT event {one} ORDER BY n LIMIT 2"),
        "SELECT count(n) FROM events WHERE user_id = 'nobody'".to_owned(),
        "SELECT count(*), sum(n) FROM pages WHERE user_id = 'user number 7' AND n < 9000"
            .to_owned(),
        "SELECT count(*), sum(n) FROM pages WHERE user_id = 'user number 7'".to_owned(),
        "SELECT count(*), min(n) FROM pages WHERE user_id = 'user number 7' AND n > 100000"
            .to_owned(),
    ];
    let compare = || {
        for sql in questions.iter().chain(questions.iter().rev()) {
            let expected = rows(&session(folder.path(), 1 << 30, 1), sql);
            for _ in 0..3 {
                assert_eq!(rows(&known, sql), expected, "{sql}");
            }
        }
    };
    compare();
    let analyzed = rows(&known, &format!("EXPLAIN ANALYZE {}", questions[1])).concat();
    assert!(analyzed.contains("hot_files=") && !analyzed.contains("bytes_scanned="), "{analyzed}");
    for change in [
        "DELETE FROM events WHERE user_id = 'user number 17' AND n % 3 = 0",
        "INSERT INTO events VALUES (DATE '2026-11-03', 'user number 17', 77, 'pay', 0.5, 1),
           (DATE '2026-11-09', 'nobody', 78, NULL, NULL, NULL)",
        "DELETE FROM events",
    ] {
        block_on(known.query(change)).unwrap();
        compare();
    }
}

/// Rows of kept columns that a join would drop are not handed out, and the answer is the same. A group
/// that it would drop is not made.
#[test]
fn a_scan_of_kept_columns_leaves_out_what_a_join_drops() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), 1 << 30, 2);
    block_on(session.query(DATA)).unwrap();
    let few = "CREATE TABLE few AS SELECT value * 100 AS k FROM generate_series(1, 20) AS s(value)";
    block_on(session.query(few)).unwrap();
    let users = format!(
        "WITH {FIRST} SELECT f.user_id, f.c FROM (SELECT user_id, count(*) AS c FROM events GROUP BY user_id) f
           JOIN u ON f.user_id = u.user_id WHERE u.t < 60"
    );
    for (joined, plain) in [
        (
            "SELECT count(*), sum(e.n) FROM events e JOIN few ON e.n = few.k",
            "SELECT count(*), sum(n) FROM events WHERE n % 100 = 0 AND n <= 2000".to_owned(),
        ),
        (
            users.as_str(),
            format!(
                "WITH {FIRST} SELECT user_id, count(*) FROM events
                   WHERE user_id IN (SELECT user_id FROM u WHERE t < 60) GROUP BY user_id"
            ),
        ),
    ] {
        for _ in 0..4 {
            assert_eq!(rows(&session, joined), rows(&session, &plain));
        }
        let analyzed = rows(&session, &format!("EXPLAIN ANALYZE {joined}")).concat();
        let mut skipped = analyzed.split("hot_rows_skipped=").skip(1);
        assert!(skipped.any(|rows| !rows.starts_with('0')), "{analyzed}");
    }
}
