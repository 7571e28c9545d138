//! Columns of an id domain: hidden, complete, and used where they answer the same.

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use datafusion::arrow::util::pretty::pretty_format_batches;
use uplake_engine::{Session, SessionOptions};
use uplake_table::{AsOf, Lake};

use crate::{block_on, options, session};

const MEMORY: usize = 256 << 20;

fn text(session: &Session, sql: &str) -> String {
    let batches = block_on(session.query(sql)).unwrap_or_else(|e| panic!("{sql}: {e}"));
    pretty_format_batches(&batches).unwrap().to_string()
}

/// Two tables of one domain: five keys and NULL, in several files.
fn two_tables(folder: &std::path::Path) -> Session {
    let session = session(folder, MEMORY, 2);
    let layout = "CLUSTERED BY (user_id, n) ID DOMAINS (user_id users)";
    for statement in [
        format!("CREATE TABLE events (user_id TEXT, n INT, city TEXT) {layout}"),
        format!("CREATE TABLE visits (user_id TEXT, n INT) {layout}"),
        "INSERT INTO events VALUES ('bo', 1, 'x'), ('al', 2, 'x'), (NULL, 3, 'y'), ('', 4, 'y')"
            .into(),
        "INSERT INTO events VALUES ('bo', 5, 'y'), ('Ünal', 6, 'x'), (NULL, 7, 'x')".into(),
        "INSERT INTO visits VALUES ('al', 1), ('zoe', 2), ('bo', 3)".into(),
    ] {
        block_on(session.query(&statement)).unwrap_or_else(|e| panic!("{statement}: {e}"));
    }
    session
}

#[test]
fn ids_are_counted_in_place_of_keys() {
    let folder = tempfile::tempdir().unwrap();
    let session = two_tables(folder.path());
    for (sql, expected) in [
        ("SELECT count(DISTINCT user_id) FROM events", "4"),
        ("SELECT count(DISTINCT e.user_id) FROM events e WHERE n > 4", "2"),
        ("SELECT count(DISTINCT u) FROM (SELECT user_id AS u, n FROM events) t", "4"),
        (
            "SELECT count(DISTINCT e.user_id) FROM events e LEFT JOIN visits v \
             ON e.user_id = v.user_id",
            "4",
        ),
        (
            "SELECT count(DISTINCT v.user_id) FROM events e LEFT JOIN visits v \
             ON e.user_id = v.user_id",
            "2",
        ),
        ("SELECT count(DISTINCT user_id) FILTER (WHERE city = 'x') FROM events", "3"),
    ] {
        let rows = text(&session, sql);
        assert!(rows.contains(&format!(" {expected} ")), "{sql}: {rows}");
        let plan = text(&session, &format!("EXPLAIN {sql}"));
        assert!(plan.contains("__id_user_id"), "{sql}: {plan}");
    }
    let grouped = text(
        &session,
        "SELECT city, count(DISTINCT user_id) AS users, count(*) AS n FROM events \
         GROUP BY city HAVING count(DISTINCT user_id) > 1 ORDER BY city",
    );
    assert!(grouped.contains("| x    | 3     | 4 |"), "{grouped}");
    assert!(grouped.contains("| y    | 2     | 3 |"), "{grouped}");
}

/// Both are `__id_user_id` where they come from, so an alias gives one of them another name.
#[test]
fn two_keys_of_one_name_keep_their_own_ids() {
    let folder = tempfile::tempdir().unwrap();
    let session = two_tables(folder.path());
    let plain = SessionOptions { use_indexes: false, ..options(MEMORY, 2) };
    let lake = Lake::open(folder.path().join("lake").to_str().unwrap()).unwrap();
    let plain = Session::new(lake, &plain).unwrap();
    let both = "(SELECT e.user_id AS a, v.user_id AS b, e.n FROM events e CROSS JOIN visits v)";
    for (place, question) in [
        "SELECT count(*) FROM {both} x WHERE a = 'bo' AND b = 'al'",
        "SELECT count(*) FROM {both} x WHERE b IN ('al', 'zoe') AND a <> 'bo'",
        "SELECT count(DISTINCT a), count(DISTINCT b) FROM {both} x WHERE b = 'al'",
        "SELECT count(DISTINCT b) FILTER (WHERE n > 2), count(DISTINCT a) FROM {both} x",
        "SELECT a, count(DISTINCT b) AS c FROM {both} x GROUP BY a ORDER BY a",
        "SELECT b, count(DISTINCT a) AS c, count(*) FROM {both} x GROUP BY b ORDER BY b",
        "SELECT x.a, y.b, count(*) FROM {both} x JOIN {both} y ON x.a = y.a AND x.b = y.b GROUP BY 1, 2 ORDER BY 1, 2",
        "SELECT count(*) FROM {both} x JOIN visits w ON x.b = w.user_id WHERE x.a = 'al'",
        "WITH x AS {both}, y AS (SELECT a AS p, b AS q FROM x WHERE b = 'bo') SELECT p, q, count(*) FROM y WHERE p = 'al' GROUP BY p, q",
        "SELECT count(*) FROM (SELECT l.user_id AS a, r.user_id AS b FROM events l JOIN events r ON l.n < r.n) x WHERE a = b",
    ]
    .iter()
    .enumerate()
    {
        let sql = question.replace("{both}", both);
        let expected = text(&plain, &sql);
        assert_eq!(text(&session, &sql), expected, "{sql}");
        assert!(place != 0 || expected.contains("| 2 "), "{expected}");
    }
}

#[test]
fn ids_join_and_group_where_keys_are_not_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let session = two_tables(folder.path());
    for (sql, expected, uses_ids) in [
        (
            "SELECT sum(c) FROM (SELECT user_id, count(*) AS c FROM events GROUP BY user_id)",
            "7",
            true,
        ),
        (
            "SELECT max(c) FROM (SELECT user_id, count(*) AS c FROM events GROUP BY user_id)",
            "2",
            true,
        ),
        ("SELECT count(*) FROM (SELECT DISTINCT user_id FROM events)", "5", true),
        ("SELECT sum(e.n) FROM events e JOIN visits v ON e.user_id = v.user_id", "8", true),
        (
            "SELECT count(*) FROM events e WHERE EXISTS \
             (SELECT 1 FROM visits v WHERE v.user_id = e.user_id)",
            "3",
            true,
        ),
        (
            "SELECT count(*) FROM events WHERE user_id NOT IN \
             (SELECT user_id FROM visits WHERE user_id IS NOT NULL)",
            "2",
            false,
        ),
        ("SELECT max(user_id) FROM (SELECT user_id FROM visits GROUP BY user_id)", "zoe", false),
    ] {
        let rows = text(&session, sql);
        assert!(rows.contains(&format!(" {expected} ")), "{sql}: {rows}");
        let plan = text(&session, &format!("EXPLAIN {sql}"));
        assert!(!uses_ids || plan.contains("__id_user_id"), "{sql}: {plan}");
    }
}

/// Windows by ids, of a table that changes and of what it was.
#[test]
fn windows_by_users_have_the_rows_of_each() {
    let folder = tempfile::tempdir().unwrap();
    let session = two_tables(folder.path());
    let plain = SessionOptions { use_indexes: false, ..options(MEMORY, 2) };
    let lake = Lake::open(folder.path().join("lake").to_str().unwrap()).unwrap();
    let plain = Session::new(lake, &plain).unwrap();
    let questions = [
        "SELECT user_id, n, lag(n) OVER (PARTITION BY user_id ORDER BY n) AS p FROM events ORDER BY n",
        "SELECT n, p FROM (SELECT n, count(*) OVER (PARTITION BY user_id) AS p FROM events) ORDER BY n",
        "SELECT n, sum(n) OVER (PARTITION BY user_id ORDER BY n) AS p FROM events VERSION AS OF 1 ORDER BY n",
        "SELECT n, lag(n) OVER (PARTITION BY city, user_id ORDER BY n DESC) AS p FROM events ORDER BY n",
    ];
    for change in [
        "SELECT 1",
        "DELETE FROM events WHERE n = 1",
        "INSERT INTO events VALUES ('bo', 0, 'x'), (NULL, 9, 'x'), ('of late', 8, 'y')",
        "DELETE FROM events WHERE user_id IS NULL",
    ] {
        block_on(session.query(change)).unwrap_or_else(|e| panic!("{change}: {e}"));
        for sql in questions {
            assert_eq!(text(&session, sql), text(&plain, sql), "after {change}: {sql}");
            let plan = text(&session, &format!("EXPLAIN {sql}"));
            assert!(plan.contains("__id_user_id"), "{sql}: {plan}");
        }
    }
    block_on(session.query("SET uplake.disabled_rules = 'join_ids'")).unwrap();
    for sql in questions {
        assert_eq!(text(&session, sql), text(&plain, sql), "{sql}");
        let plan = text(&session, &format!("EXPLAIN {sql}"));
        assert!(!plan.contains("__id_user_id"), "{sql}: {plan}");
    }
}

/// What a column holds is said by the table that it is from, not by what a statement calls it.
#[test]
fn what_is_called_like_an_id_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let session = two_tables(folder.path());
    let plain = SessionOptions { use_indexes: false, ..options(MEMORY, 2) };
    let lake = Lake::open(folder.path().join("lake").to_str().unwrap()).unwrap();
    let plain = Session::new(lake, &plain).unwrap();
    let file = folder.path().join("f.csv");
    std::fs::write(&file, "__id_u,v\n7,1\n-1,2\n,3\n7,4\n").unwrap();
    let of_file = format!("SELECT CAST(__id_u AS INT) AS __id_u, v FROM '{}'", file.display());
    let named = "SELECT CAST(n % 3 - 1 AS INT) AS __id_u, n, city FROM events";
    for sql in [
        format!("SELECT __id_u, city, count(*) FROM ({named}) GROUP BY 1, 2 ORDER BY 1, 2"),
        format!("SELECT __id_u, count(*), sum(v) FROM ({of_file}) GROUP BY 1 ORDER BY 1"),
        format!(
            "SELECT b.city, count(*), sum(a.v) FROM (SELECT __id_u, sum(v) AS v FROM ({of_file}) GROUP BY 1) a
               JOIN ({named}) b ON a.__id_u = b.__id_u GROUP BY b.city ORDER BY b.city"
        ),
        format!("SELECT count(*) FROM ({named}) WHERE __id_u IN (-1, 1)"),
    ] {
        assert_eq!(text(&session, &sql), text(&plain, &sql), "{sql}");
        let plan = text(&session, &format!("EXPLAIN {sql}"));
        assert!(!plan.contains("join=["), "{sql}: {plan}");
        // Groups by ids stand alone, those by columns of few values do not.
        assert!(!sql.contains("1, 2") || plan.contains("ArrayAggregateExec"), "{sql}: {plan}");
    }
}

/// The same keys have other ids in another domain.
#[test]
fn ids_of_two_domains_are_never_compared() {
    let folder = tempfile::tempdir().unwrap();
    let session = two_tables(folder.path());
    for statement in [
        "CREATE TABLE members (user_id TEXT, n INT) CLUSTERED BY (user_id) ID DOMAINS (user_id members)",
        "INSERT INTO members VALUES ('zoe', 1), (NULL, 2), ('nobody', 3), ('al', 4), ('bo', 5)",
    ] {
        block_on(session.query(statement)).unwrap_or_else(|e| panic!("{statement}: {e}"));
    }
    let groups =
        |table: &str| format!("(SELECT user_id, count(*) AS c FROM {table} GROUP BY user_id)");
    for (sql, expected) in [
        ("SELECT sum(m.n) FROM events e JOIN members m ON e.user_id = m.user_id".to_owned(), "14"),
        (
            format!(
                "SELECT sum(e.c * 10 + m.c) FROM {} e JOIN {} m ON e.user_id = m.user_id",
                groups("events"),
                groups("members")
            ),
            "32",
        ),
        (
            "SELECT count(*) FROM members WHERE user_id IN (SELECT user_id FROM visits)".to_owned(),
            "3",
        ),
    ] {
        let found = text(&session, &sql);
        assert!(found.contains(&format!(" {expected} ")), "{sql}: {found}");
        let plan = text(&session, &format!("EXPLAIN {sql}"));
        assert!(!plan.contains("on=[(__id_") && !plan.contains("join=["), "{sql}: {plan}");
    }
}

#[test]
fn conditions_on_keys_ask_for_ids() {
    let folder = tempfile::tempdir().unwrap();
    let session = two_tables(folder.path());
    let many: Vec<String> = (0..200).map(|n| format!("'k{n}'")).collect();
    for (condition, expected) in [
        ("user_id = 'bo'", "2"),
        ("'bo' = user_id AND n < 3", "1"),
        ("user_id IN ('bo', 'al', 'nobody')", "3"),
        ("user_id = 'zoe'", "0"),
        ("user_id = 'nobody'", "0"),
        ("user_id = ''", "1"),
        ("user_id NOT IN ('bo', 'al')", "2"),
        (&format!("user_id IN ({}, 'al')", many.join(", ")), "1"),
    ] {
        let sql = format!("SELECT count(*) FROM events WHERE {condition}");
        let rows = text(&session, &sql);
        assert!(rows.contains(&format!(" {expected} ")), "{sql}: {rows}");
    }
    let plan = text(&session, "EXPLAIN SELECT n FROM events WHERE user_id = 'bo'");
    assert!(plan.contains("__id_user_id = "), "{plan}");
}

#[test]
fn ids_are_hidden_and_named_by_functions_only() {
    let folder = tempfile::tempdir().unwrap();
    let session = two_tables(folder.path());
    for sql in ["SELECT * FROM events", "DESCRIBE events"] {
        assert!(!text(&session, sql).contains("__id_"), "{sql}");
    }
    assert!(block_on(session.query("SELECT __id_user_id FROM events")).is_err());
    let same = "SELECT count(*) AS n FROM events \
                WHERE key_of('users', id_of('users', user_id)) IS DISTINCT FROM user_id";
    assert!(text(&session, same).contains("| 0 |"), "{}", text(&session, same));
    let none = "SELECT id_of('users', 'nobody') IS NULL AND key_of('users', 99) IS NULL \
                AND key_of('users', -1) IS NULL AND id_of('users', NULL) IS NULL AS none";
    assert!(text(&session, none).contains("true"), "{}", text(&session, none));
    for wrong in ["SELECT id_of('nodomain', 'x')", "SELECT id_of(user_id, 'x') FROM events"] {
        assert!(block_on(session.query(wrong)).is_err(), "{wrong}");
    }
}

#[test]
fn deleted_and_copied_rows_keep_their_ids() {
    let folder = tempfile::tempdir().unwrap();
    let session = two_tables(folder.path());
    let ids = "SELECT user_id, id_of('users', user_id) AS id FROM events WHERE n <> 2 ORDER BY n";
    let before = text(&session, ids);
    block_on(session.query("DELETE FROM events WHERE n = 2")).unwrap();
    assert_eq!(text(&session, ids), before);
    assert!(text(&session, "SELECT count(DISTINCT user_id) FROM events").contains(" 3 "));
    let copy = "CREATE TABLE copied ID DOMAINS (user_id users) AS SELECT * FROM events";
    block_on(session.query(copy)).unwrap();
    let sql = "SELECT count(DISTINCT user_id) FROM copied";
    assert!(text(&session, sql).contains(" 3 "));
    assert!(text(&session, &format!("EXPLAIN {sql}")).contains("__id_user_id"));
}

/// By which statements are divided among nodes.
#[test]
fn files_say_how_rows_are_spread_over_ids() {
    let folder = tempfile::tempdir().unwrap();
    // One thread, which writes one file.
    let session = session(folder.path(), MEMORY, 1);
    let user = "lpad(CAST(n % CASE WHEN n % 2 = 0 THEN 1000 ELSE 10000 END AS TEXT), 5, '0')";
    let rows =
        format!("SELECT {user} AS user_id, n FROM (SELECT value AS n FROM range(0, 200000))");
    let layout = "(user_id TEXT, n INT) CLUSTERED BY (user_id, n) ID DOMAINS (user_id users)";
    for (table, only) in [("events", ""), ("small", "WHERE n < 9"), ("none", "WHERE n < 0")] {
        block_on(session.query(&format!("CREATE TABLE {table} {layout}"))).unwrap();
        block_on(session.query(&format!("INSERT INTO {table} {rows} {only}"))).unwrap();
    }
    let lake = Lake::open(folder.path().join("lake").to_str().unwrap()).unwrap();
    let files =
        |table: &str| block_on(lake.snapshot(table, &AsOf::Latest)).unwrap().files().to_vec();
    let [file] = &files("events")[..] else { panic!("one file") };
    let found = file.id_quantiles("user_id");
    assert_eq!((found.len(), file.id_quantiles("n")), (15, &[][..]));
    for (number, id) in found.iter().enumerate() {
        let sql = format!("SELECT count(*) FROM events WHERE id_of('users', user_id) <= {id}");
        let rows = block_on(session.query(&sql)).unwrap();
        let rows = rows[0].column(0).as_primitive::<Int64Type>().value(0) as f64;
        let wanted = 200_000.0 * (number + 1) as f64 / 16.0;
        assert!((rows - wanted).abs() < 4000.0, "{number}: {id} has {rows}");
    }
    // Of few rows bounds say enough.
    for table in ["small", "none"] {
        assert!(files(table).iter().all(|file| file.id_quantiles("user_id").is_empty()));
    }
}

#[test]
fn what_cannot_have_ids_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), MEMORY, 1);
    for (sql, says) in [
        ("CREATE TABLE t (a INT) ID DOMAINS (a users)", "text"),
        ("CREATE TABLE t (a TEXT) ID DOMAINS (b users)", "not in the table"),
        ("CREATE TABLE t (a TEXT) ID DOMAINS (a)", "ID DOMAINS"),
        ("CREATE TABLE t (a TEXT, __id_a INT)", "__id_"),
        ("CREATE TABLE t (a TEXT, b INT) PARTITIONED BY (a) ID DOMAINS (a users)", "partition"),
    ] {
        let error = block_on(session.query(sql)).unwrap_err().to_string();
        assert!(error.contains(says), "{sql}: {error}");
    }
}
