//! Sessions of one engine.

use datafusion::arrow::util::pretty::pretty_format_batches;
use uplake_engine::{Engine, Session};
use uplake_table::Lake;

use crate::{block_on, options};

fn rows(session: &Session, sql: &str) -> String {
    pretty_format_batches(&block_on(session.query(sql)).unwrap()).unwrap().to_string()
}

#[test]
fn what_one_sets_changes_nothing_in_another() {
    let folder = tempfile::tempdir().unwrap();
    let lake = Lake::open(folder.path().to_str().unwrap()).unwrap();
    let engine = Engine::new(lake, &options(256 << 20, 2)).unwrap();
    let (one, other) = (engine.session(), engine.session());
    rows(&one, "CREATE TABLE t AS SELECT k % 3 AS k, k AS n FROM (SELECT unnest(range(100)) AS k)");
    let grouped = "EXPLAIN SELECT k, sum(n) FROM t GROUP BY k";
    let arrays = |session: &Session| rows(session, grouped).contains("ArrayAggregateExec");
    assert!(arrays(&one) && arrays(&other));
    rows(&one, "SET uplake.disabled_rules = 'array_aggregates'; SET uplake.timeout = '7s'");
    rows(&one, "SET datafusion.execution.batch_size = 123");
    assert!(!arrays(&one) && arrays(&other));
    for (name, value) in [("datafusion.execution.batch_size", "123"), ("uplake.timeout", "7 s")] {
        let show = format!("SHOW {name}");
        assert!(rows(&one, &show).contains(value), "{show}");
        assert!(!rows(&other, &show).contains(value), "{show}");
        assert!(!rows(&engine.session(), &show).contains(value), "{show}");
    }
    let asked = "SELECT k, sum(n) AS s FROM t GROUP BY k ORDER BY k";
    // The second has the first one's plan or not: the rows are the same.
    for _ in 0..2 {
        assert_eq!(rows(&one, asked), rows(&other, asked));
    }
    rows(&other, "INSERT INTO t VALUES (7, 7)");
    assert!(rows(&one, asked).contains("| 7 | 7 "), "what another has written is there");
    let unknown = block_on(one.query("RESET uplake.nothing")).unwrap_err().to_string();
    assert!(unknown.contains("uplake.disabled_rules"), "{unknown}");
    rows(&one, "RESET uplake.disabled_rules");
    assert!(arrays(&one));
}

/// Thousands of connections that ask nothing cost nothing.
#[test]
fn a_session_is_small_until_it_asks() {
    assert!(size_of::<Session>() <= 4096, "{}", size_of::<Session>());
}

#[test]
fn a_folder_in_place_is_what_it_is_now() {
    let folder = tempfile::tempdir().unwrap();
    let lake = Lake::open(folder.path().join("lake").to_str().unwrap()).unwrap();
    let session = Session::new(lake, &options(256 << 20, 2)).unwrap();
    let files = folder.path().join("files");
    std::fs::create_dir(&files).unwrap();
    let write = |name: &str, rows: &str| {
        std::fs::write(files.join(name), format!("k\n{rows}")).unwrap();
    };
    let counted = || {
        [format!("{}/*.csv", files.display()), format!("{}/", files.display())].map(|path| {
            let found = rows(&session, &format!("SELECT sum(k) AS s FROM '{path}'"));
            found.lines().nth(3).unwrap().trim_matches(['|', ' ']).parse::<i64>().unwrap()
        })
    };
    write("a.csv", "1\n");
    assert_eq!(counted(), [1, 1]);
    write("b.csv", "20\n");
    assert_eq!(counted(), [21, 21]);
    write("b.csv", "20\n300\n");
    assert_eq!(counted(), [321, 321]);
    std::fs::remove_file(files.join("a.csv")).unwrap();
    assert_eq!(counted(), [320, 320]);
}
