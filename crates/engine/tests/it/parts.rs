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
    session(folder, 1 << 30, 2).with_elsewhere(here)
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
        "SELECT count(DISTINCT event) FROM events",
    ] {
        let plan = rows(&parts, &format!("EXPLAIN {sql}")).concat();
        let physical = plan.split("physical_plan").last().unwrap();
        assert!(!physical.contains("final_"), "{sql}: {plan}");
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
        assert_eq!(parts.usage().memory_bytes, 0);
    }
}
