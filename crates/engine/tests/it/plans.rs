//! Statements asked again: planned once, and never by a plan of what is no more.

use datafusion::arrow::util::pretty::pretty_format_batches;
use uplake_engine::Session;

use crate::{block_on, session};

const MEMORY: usize = 256 << 20;

fn text(session: &Session, sql: &str) -> String {
    match block_on(session.query(sql)) {
        Ok(batches) => pretty_format_batches(&batches).unwrap().to_string(),
        Err(error) => error.to_string(),
    }
}

/// Asks in a session that has been asked before and in a new one.
fn both(known: &Session, folder: &std::path::Path, sql: &str) -> String {
    let new = session(folder, MEMORY, 2);
    let (known, new) = (text(known, sql), text(&new, sql));
    assert_eq!(known, new, "{sql}");
    known
}

#[test]
fn a_statement_asked_again_sees_what_has_changed() {
    let folder = tempfile::tempdir().unwrap();
    let (folder, questions) = (
        folder.path(),
        [
            "SELECT count(*) AS n FROM t",
            "SELECT * FROM t ORDER BY 1",
            "SELECT count(*) AS n FROM t WHERE who = 'zoe'",
            "SELECT who, count(*) AS n FROM t GROUP BY who ORDER BY who",
            "SELECT count(*) AS n FROM t WHERE who IN ID SET some",
            "SELECT count(*) AS n FROM T JOIN other ON t.who = other.who",
            "SELECT k, count(*) AS n FROM t JOIN (SELECT who FROM other GROUP BY who) o ON t.who = o.who GROUP BY k ORDER BY k",
            "SELECT max(k) AS k FROM t VERSION AS OF 0",
            "SELECT (SELECT count(*) FROM other) AS n, count(*) AS m FROM t",
        ],
    );
    let known = session(folder, MEMORY, 2);
    let other = session(folder, MEMORY, 2);
    for (by_other, change) in [
        (false, "CREATE TABLE t (who TEXT, k INT) ID DOMAINS (who people)"),
        (false, "CREATE TABLE other (who TEXT) ID DOMAINS (who people)"),
        (false, "CREATE ID SET some AS SELECT 'al'"),
        (false, "INSERT INTO t VALUES ('al', 1), ('bo', 2)"),
        (true, "INSERT INTO t VALUES ('zoe', 3), (NULL, 4)"),
        (true, "INSERT INTO other VALUES ('zoe')"),
        (true, "DROP ID SET some"),
        (true, "CREATE ID SET some AS SELECT who FROM t WHERE who IS NOT NULL"),
        (false, "DELETE FROM t WHERE k = 2"),
        (true, "DROP TABLE t"),
        (true, "CREATE TABLE t (k INT, who TEXT)"),
        (true, "INSERT INTO t VALUES (7, 'zoe')"),
        (false, "DROP TABLE other"),
    ] {
        let changed = block_on(if by_other { &other } else { &known }.query(change));
        changed.unwrap_or_else(|e| panic!("{change}: {e}"));
        for sql in questions {
            let answer = both(&known, folder, sql);
            assert_eq!(text(&known, sql), answer, "after {change}: {sql}");
        }
    }
    assert!(text(&known, "SELECT * FROM t").contains("| 7 | zoe |"));
}

/// What changes by itself is asked each time, and settings are heeded.
#[test]
fn an_old_version_is_of_the_table_that_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let (known, other) = (session(folder.path(), MEMORY, 2), session(folder.path(), MEMORY, 2));
    for (changer, rows) in [(&known, 3), (&known, 5), (&other, 7)] {
        if rows > 3 {
            block_on(changer.query("DROP TABLE t")).unwrap();
            let gone = text(&known, "SELECT sum(k) FROM t VERSION AS OF 1");
            assert!(gone.contains("there is no table `t`"), "{gone}");
        }
        let make = format!(
            "CREATE TABLE t AS SELECT value AS k FROM generate_series(1, {rows}) AS s(value)"
        );
        block_on(changer.query(&make)).unwrap();
        for version in [0, 1] {
            for what in ["count(*)", "sum(k)"] {
                let sql = format!("SELECT {what} AS n FROM t VERSION AS OF {version}");
                both(&known, folder.path(), &sql);
            }
        }
        // Now it is known, as it was before a table is made again.
        both(&known, folder.path(), "SELECT sum(k) AS n FROM t");
    }
}

#[test]
fn what_text_does_not_decide_is_planned_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let known = session(folder.path(), MEMORY, 2);
    block_on(known.query("CREATE TABLE t AS SELECT 1 AS k, TIMESTAMP '2026-01-01' AS ts")).unwrap();
    for sql in
        ["SELECT k, now() FROM t", "SELECT k, random() FROM t", "SELECT now() - ts AS age FROM t"]
    {
        assert_ne!(text(&known, sql), text(&known, sql), "{sql}");
    }
    let sql = "SELECT K FROM t";
    let before = text(&known, sql);
    assert!(before.contains("| 1 |"), "{before}");
    let file = folder.path().join("f.csv");
    std::fs::write(&file, "k\n1\n").unwrap();
    let of_file = format!("SELECT sum(k) AS k FROM '{}'", file.display());
    assert!(text(&known, &of_file).contains("| 1 |"));
    std::fs::write(&file, "k\n25\n").unwrap();
    assert!(text(&known, &of_file).contains("| 25 |"));
    assert_eq!(text(&known, sql), before);
    block_on(known.query("SET datafusion.sql_parser.enable_ident_normalization = false")).unwrap();
    assert_ne!(text(&known, sql), before);
}

/// The side of a join that is kept is the one of which the log says that a filter leaves less.
#[test]
fn the_build_side_is_what_days_make_small() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), MEMORY, 2);
    for table in [
        "CREATE TABLE few AS SELECT x AS k FROM generate_series(1, 300) g(x)",
        "CREATE TABLE days AS SELECT x AS k, (20454 + x % 100)::INT::DATE AS d, \
         to_timestamp_micros(1767225600000000 + x % 100 * 86400000000)::TIMESTAMP AS at FROM generate_series(1, 1000) g(x)",
    ] {
        block_on(session.query(table)).unwrap();
    }
    for (condition, kept) in [
        ("d < DATE '2026-01-03'", "days"),
        ("d < DATE '2026-04-03'", "few"),
        ("at >= TIMESTAMP '2026-04-08'", "days"),
        ("at >= TIMESTAMP '2026-01-08'", "few"),
    ] {
        let plan = text(
            &session,
            &format!("EXPLAIN SELECT count(*) FROM few JOIN days USING (k) WHERE {condition}"),
        );
        let join = &plan[plan.find("HashJoinExec").unwrap_or_else(|| panic!("{plan}"))..];
        let place = |table: &str| join.find(&format!("/{table}/part-"));
        let [few, days] =
            ["few", "days"].map(|table| place(table).unwrap_or_else(|| panic!("{plan}")));
        assert_eq!(if few < days { "few" } else { "days" }, kept, "{condition}: {plan}");
    }
}
