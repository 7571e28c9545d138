//! Statements in parts: the same answers as in one piece, whatever the number of parts.

use std::sync::Arc;

use uplake_engine::{HereInParts, Session, SessionOptions};
use uplake_table::Lake;

use crate::arrays::{DATA, questions, rows};
use crate::{block_on, options, session};

/// Parts, and rows of tables that each of them reads whole.
const WAYS: [(u32, u64); 4] = [(1, 0), (2, u64::MAX), (3, 0), (7, 4000)];

fn in_parts(folder: &std::path::Path, (parts, whole_rows): (u32, u64)) -> Session {
    let here = Arc::new(HereInParts { parts, whole_rows });
    let session = session(folder, 1 << 30, 2).with_elsewhere(here);
    block_on(session.query("SET uplake.elsewhere = 'always'")).unwrap();
    session
}

#[test]
fn parts_answer_as_one_piece_does() {
    let folder = tempfile::tempdir().unwrap();
    block_on(session(folder.path(), 1 << 30, 2).query(DATA)).unwrap();
    let lake = Lake::open(folder.path().join("lake").to_str().unwrap()).unwrap();
    let plain = SessionOptions { use_indexes: false, ..options(1 << 30, 2) };
    let plain = Session::new(lake, &plain).unwrap();
    let questions = questions();
    let mut wrong = Vec::new();
    let mut cut = 0;
    for way in WAYS {
        let parts = in_parts(folder.path(), way);
        for sql in &questions {
            let expected = rows(&plain, sql);
            let plan = rows(&parts, &format!("EXPLAIN {sql}")).concat();
            cut += usize::from(plan.contains("PartsExec"));
            // The first scans read files, later ones have columns in memory.
            for turn in 0..2 {
                let found = rows(&parts, sql);
                if found != expected {
                    wrong
                        .push(format!("{way:?}, turn {turn}: {sql}\n{found:?}\nnot\n{expected:?}"));
                }
            }
        }
    }
    let all = questions.len() * WAYS.len();
    println!("{cut} of {all} plans are cut");
    assert!(wrong.is_empty(), "{} are wrong\n{}", wrong.len(), wrong.join("\n\n"));
    assert!(cut * 10 > all * 9, "{cut} of {all}");
}

/// What stands above the parts, and below.
#[test]
fn plans_are_cut_where_parts_are_complete() {
    let folder = tempfile::tempdir().unwrap();
    block_on(session(folder.path(), 1 << 30, 2).query(DATA)).unwrap();
    let parts = in_parts(folder.path(), (3, 0));
    for (sql, above) in [
        ("SELECT user_id, count(*) FROM events GROUP BY user_id", None),
        ("SELECT event, count(*) FROM events GROUP BY event", Some("final_count")),
        ("SELECT sum(value), avg(value) FROM events", Some("final_sum")),
        ("SELECT count(DISTINCT user_id) FROM events", Some("final_count")),
        ("SELECT n FROM events ORDER BY value DESC, n LIMIT 3", Some("SortExec")),
        (
            "SELECT e.event, count(*) FROM events e JOIN exposures x ON e.user_id = x.user_id GROUP BY 1",
            Some("final_count"),
        ),
        ("SELECT lag(n) OVER (PARTITION BY user_id ORDER BY n) FROM events", None),
    ] {
        let plan = rows(&parts, &format!("EXPLAIN {sql}")).concat();
        let physical = plan.split("physical_plan").last().unwrap();
        assert!(physical.contains("PartsExec: parts=3"), "{sql}: {plan}");
        assert!(!physical.contains("DataSourceExec"), "{sql}: {plan}");
        if let Some(above) = above {
            assert!(physical.contains(above), "{sql}: {plan}");
        } else {
            assert!(!physical.contains("AggregateExec"), "{sql}: {plan}");
        }
    }
    for sql in [
        "SELECT array_agg(n) FROM (SELECT n FROM events ORDER BY n LIMIT 5)",
        "SELECT count(*) FROM (SELECT random() AS r FROM events) WHERE r < 0.5",
    ] {
        let plan = rows(&parts, &format!("EXPLAIN {sql}")).concat();
        let physical = plan.split("physical_plan").last().unwrap();
        assert!(!physical.contains("final_"), "{sql}: {plan}");
    }
}

/// What tables are not divided by: rows change parts by what is joined, grouped or windowed, and are as good as divided
/// by it from then on.
#[test]
fn rows_are_shuffled_where_tables_are_not_divided_so() {
    let folder = tempfile::tempdir().unwrap();
    block_on(session(folder.path(), 1 << 30, 2).query(DATA)).unwrap();
    let plain = session(folder.path(), 1 << 30, 2);
    let parts = WAYS.map(|way| (way, in_parts(folder.path(), way)));
    let mut wrong = Vec::new();
    for (shuffles, sql) in [
        (
            2,
            "SELECT e.event, count(*), sum(x.t) FROM events e JOIN exposures x ON e.n = x.t GROUP BY 1",
        ),
        (
            2,
            "SELECT e.n, x.variant FROM events e JOIN exposures x ON e.n = x.t AND e.event = 'pay' WHERE e.n < 90",
        ),
        (
            2,
            "SELECT e.event, count(*), count(x.t) FROM events e LEFT JOIN exposures x ON e.n = x.t GROUP BY 1",
        ),
        (
            2,
            "SELECT count(*), count(a.t), count(b.t), sum(b.exp) FROM exposures a FULL JOIN exposures b \
             ON a.variant = b.exp AND a.t = b.t",
        ),
        (
            2,
            "SELECT count(*), sum(n) FROM events WHERE n IN (SELECT t FROM exposures WHERE exp = 1)",
        ),
        (
            2,
            "SELECT count(*), sum(n) FROM events e WHERE NOT EXISTS (SELECT 1 FROM exposures x WHERE x.t = e.n)",
        ),
        (1, "SELECT n, count(*), sum(value), max(event) FROM events GROUP BY n"),
        (
            1,
            "SELECT n % 9, c, count(*) FROM (SELECT n, count(*) AS c FROM events GROUP BY n) GROUP BY 1, 2",
        ),
        (1, "SELECT count(DISTINCT event), count(DISTINCT event) + 1 FROM events"),
        (1, "SELECT dt, count(DISTINCT event) FROM events GROUP BY dt"),
        (
            1,
            "SELECT event, median(value), array_agg(n ORDER BY n) FROM events WHERE n < 300 GROUP BY event",
        ),
        (
            1,
            "SELECT event, dt, median(n) FROM events GROUP BY event, dt ORDER BY event, dt LIMIT 4",
        ),
        (
            2,
            "SELECT n, row_number() OVER (PARTITION BY event ORDER BY n, user_id), \
             count(*) OVER (PARTITION BY dt, event) FROM events",
        ),
        // What was shuffled by a join's keys is joined and grouped by them.
        (
            2,
            "SELECT a.n, a.event, b.c FROM events a JOIN (SELECT t, count(*) AS c FROM exposures GROUP BY t) b \
             ON a.n = b.t",
        ),
        (2, "SELECT a.n, count(*) FROM events a JOIN exposures b ON a.n = b.t GROUP BY a.n"),
        (
            3,
            "SELECT count(*), sum(c.exp) FROM events a JOIN exposures b ON a.n = b.t JOIN exposures c ON b.t = c.t",
        ),
        (
            4,
            "SELECT c.exp, count(*) FROM events a JOIN exposures b ON a.n = b.t \
             JOIN exposures c ON b.exp = c.exp AND c.t < 30 GROUP BY 1",
        ),
        // One side is divided by users, and not shuffled before that is needed.
        (
            2,
            "SELECT u.c, count(*) FROM (SELECT user_id, count(*) AS c, min(n) AS first FROM events GROUP BY user_id) u \
             JOIN exposures x ON u.first = x.t GROUP BY 1",
        ),
    ] {
        let expected = rows(&plain, sql);
        for (way, parts) in &parts {
            let plan = rows(parts, &format!("EXPLAIN {sql}")).concat();
            let physical = plan.split("physical_plan").last().unwrap();
            let shown = format!("shuffles={shuffles}\n");
            if way.1 == 0 && (!physical.contains(&shown) || physical.contains("DataSourceExec")) {
                wrong.push(format!("{way:?}: {sql}\nnot {shown}\n{physical}"));
            }
            let found = rows(parts, sql);
            if found != expected {
                wrong.push(format!("{way:?}: {sql}\n{found:?}\nnot\n{expected:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} are wrong\n{}", wrong.len(), wrong.join("\n\n"));
}

/// Rows change nodes where one has too little memory for what it reads, unless it is told to.
#[test]
fn rows_are_shuffled_by_themselves_only_if_they_are_more_than_the_memory() {
    let folder = tempfile::tempdir().unwrap();
    block_on(session(folder.path(), 1 << 30, 2).query(DATA)).unwrap();
    let sql = "SELECT event, median(n) FROM events GROUP BY event";
    let expected = rows(&session(folder.path(), 1 << 30, 2), sql);
    for (bytes, elsewhere, shuffles) in
        [(1 << 30, "auto", false), (1 << 30, "always", true), (64 << 10, "auto", true)]
    {
        let here = Arc::new(HereInParts { parts: 3, whole_rows: 0 });
        let parts = session(folder.path(), bytes, 2).with_elsewhere(here);
        rows(&parts, &format!("SET uplake.elsewhere = '{elsewhere}'"));
        let plan = rows(&parts, &format!("EXPLAIN {sql}")).concat();
        assert_eq!(plan.contains("shuffles=1"), shuffles, "{bytes} {elsewhere}: {plan}");
        if bytes > 1 << 20 {
            assert_eq!(rows(&parts, sql), expected, "{elsewhere}");
        }
    }
}

/// What cannot be told apart by a hash, or has no key, is not shuffled.
#[test]
fn what_has_no_keys_is_not_shuffled() {
    let folder = tempfile::tempdir().unwrap();
    block_on(session(folder.path(), 1 << 30, 2).query(DATA)).unwrap();
    let (plain, parts) = (session(folder.path(), 1 << 30, 2), in_parts(folder.path(), (3, 0)));
    for sql in [
        // 0 and -0 are equal.
        "SELECT value, median(n) FROM events GROUP BY value",
        "SELECT median(n), count(*) FROM events",
        "SELECT count(*) FROM events WHERE n NOT IN (SELECT t FROM exposures)",
        "SELECT count(*) FROM exposures a JOIN exposures b ON a.t < b.t AND b.t < 20",
        "SELECT event, dt, count(DISTINCT n) FROM events GROUP BY GROUPING SETS ((event), (dt))",
        "SELECT row_number() OVER (ORDER BY n, user_id) FROM events",
        // What is asked once.
        "SELECT event, median(n + CAST(random() AS INT) * 0) FROM events GROUP BY event",
    ] {
        let plan = rows(&parts, &format!("EXPLAIN {sql}")).concat();
        assert!(!plan.contains("shuffles="), "{sql}: {plan}");
        assert_eq!(rows(&parts, sql), rows(&plain, sql), "{sql}");
    }
}

/// A part fails as the whole does, and a dropped answer leaves nothing.
#[test]
fn errors_of_parts_are_errors_of_the_statement() {
    let folder = tempfile::tempdir().unwrap();
    block_on(session(folder.path(), 1 << 30, 2).query(DATA)).unwrap();
    for way in WAYS {
        let parts = in_parts(folder.path(), way);
        let error =
            block_on(parts.query("SELECT event, sum(n / (small - 1)) FROM events GROUP BY event"));
        let error = error.unwrap_err().to_string();
        assert!(error.to_lowercase().contains("divi"), "{error}");
        let shuffled = "SELECT count(*) FROM (SELECT n / (small - 1) AS k FROM events) e JOIN exposures x ON e.k = x.t";
        let error = block_on(parts.query(shuffled)).unwrap_err().to_string();
        assert!(error.to_lowercase().contains("divi"), "{error}");
        assert_eq!(parts.usage().memory_bytes, 0);
    }
}

/// What is computed in this process because a setting says so.
#[test]
fn a_setting_has_statements_computed_in_parts_here() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), 1 << 30, 2);
    block_on(session.query(DATA)).unwrap();
    let sql = "SELECT event, count(*), sum(n) FROM events GROUP BY event";
    let (expected, explained) = (rows(&session, sql), format!("EXPLAIN {sql}"));
    for (set, shown) in [
        ("here:3", "PartsExec: parts=3"),
        ("Here:64", "PartsExec: parts=64"),
        // Nobody is there.
        ("always", "AggregateExec"),
        ("never", "AggregateExec"),
        ("auto", "AggregateExec"),
    ] {
        rows(&session, &format!("SET uplake.elsewhere = '{set}'"));
        assert_eq!(rows(&session, sql), expected, "{set}");
        let plan = rows(&session, &explained).concat();
        assert!(plan.contains(shown), "{set}: {plan}");
        assert_eq!(plan.contains("PartsExec"), set.to_lowercase().starts_with("here"), "{plan}");
        assert!(!plan.contains("parts|"), "{set}: {plan}");
        assert_eq!(rows(&session, "SHOW uplake.elsewhere").concat(), {
            format!("uplake.elsewhere|{}|", set.to_lowercase())
        });
    }
    for set in ["here", "here:0", "here:65", "here:x", "sometimes", ""] {
        let error = block_on(session.query(&format!("SET uplake.elsewhere = '{set}'")));
        assert!(error.unwrap_err().to_string().contains("here:<parts>"), "{set}");
    }
}

#[test]
fn explain_says_why_a_plan_stays_whole() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), 1 << 30, 2);
    block_on(session.query(DATA)).unwrap();
    rows(&session, "SET uplake.elsewhere = 'here:3'");
    for (sql, why) in [
        ("SELECT * FROM (VALUES (1), (2)) AS v", "reads no table"),
        ("SELECT count(*) FROM information_schema.tables", "reads no table of the lake"),
        ("SELECT n FROM events LIMIT 5", "needs all rows"),
    ] {
        let plan = rows(&session, &format!("EXPLAIN {sql}")).concat();
        assert!(plan.contains("parts|none: ") && plan.contains(why), "{sql}: {plan}");
    }
}

/// What is set is known to who computes parts, who begins with nothing.
#[test]
fn settings_travel() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), 1 << 30, 2);
    block_on(session.query(DATA)).unwrap();
    let sql = "SELECT n, to_timestamp(concat('2026-11-0', CAST(n % 9 + 1 AS TEXT), ' 05:02:03')), \
               date_trunc('day', arrow_cast(n * 3600, 'Timestamp(Second, Some(\"+00:00\"))')) \
               FROM events WHERE n < 50";
    let mut seen = Vec::new();
    for zone in ["+05:00", "America/New_York"] {
        rows(&session, &format!("SET datafusion.execution.time_zone = '{zone}'"));
        let expected = rows(&session, sql);
        rows(&session, "SET uplake.elsewhere = 'here:3'");
        let plan = rows(&session, &format!("EXPLAIN {sql}")).concat();
        assert!(plan.contains("PartsExec: parts=3"), "{plan}");
        assert_eq!(rows(&session, sql), expected, "{zone}");
        rows(&session, "RESET uplake.elsewhere");
        seen.push(expected);
    }
    assert_ne!(seen[0], seen[1], "the zone changes the answer");
}
