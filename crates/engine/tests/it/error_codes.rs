//! Codes, kinds, places and hints of errors: real statements through the engine, so that a new version of a
//! library that tells an error otherwise fails here.

use uplake_engine::{EngineError, ErrorKind, Session, SqlState};

use crate::arrays::rows;
use crate::{block_on, session};

const MEMORY: usize = 256 << 20;

fn asked() -> (tempfile::TempDir, Session) {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), MEMORY, 2);
    for sql in [
        "CREATE TABLE t (id BIGINT NOT NULL, name TEXT, day DATE)",
        "INSERT INTO t VALUES (1, 'a', '2026-01-01')",
        "CREATE ID SET s AS SELECT name FROM t",
    ] {
        block_on(session.query(sql)).unwrap();
    }
    (folder, session)
}

fn error(session: &Session, sql: &str) -> EngineError {
    match block_on(session.query(sql)) {
        Ok(rows) => panic!("{sql}: {rows:?}"),
        Err(error) => error,
    }
}

fn check(code: &str, kind: ErrorKind, statements: &[&str]) {
    let (_folder, session) = asked();
    let wrong: Vec<String> = statements
        .iter()
        .filter_map(|sql| {
            let error = error(&session, sql);
            let found = (error.code().as_str(), error.kind());
            (found != (code, kind)).then(|| format!("{sql}\n  {found:?}: {error}"))
        })
        .collect();
    assert!(wrong.is_empty(), "not {code}:\n{}", wrong.join("\n"));
}

#[test]
fn what_is_not_there() {
    use ErrorKind::{Invalid, Missing};
    let tables = [
        "SELECT * FROM nope",
        "INSERT INTO nope VALUES (1)",
        "DROP TABLE nope",
        "DELETE FROM nope",
        "SELECT nope.* FROM t",
    ];
    check("42P01", Missing, &tables);
    check("58P01", Missing, &["SELECT * FROM 'nope.parquet'"]);
    let objects = [
        "SELECT * FROM t VERSION AS OF 99",
        "DROP ID SET nope",
        "SELECT id FROM t WHERE name IN ID SET nope",
        "SELECT CAST(1 AS nosuchtype)",
        "SET nope.x = 1",
        "SET uplake.nope = 1",
        "SET datafusion.execution.nope = 1",
        "RESET uplake.nope",
        "SHOW nope",
        "SELECT sum(id) OVER nope FROM t",
    ];
    check("42704", Missing, &objects);
    let columns = [
        "SELECT nam FROM t",
        "SELECT t.nope FROM t",
        "SELECT 1 AS a ORDER BY b",
        "INSERT INTO t (nope) VALUES (1)",
        "CREATE TABLE x (a INT) PARTITIONED BY (b)",
        "SELECT a.s FROM (VALUES (1, 'x')) a(a, s) \
         WHERE EXISTS (SELECT 1 FROM (VALUES (1, 'x')) b(a, s) WHERE b.s = a.s)",
    ];
    check("42703", Invalid, &columns);
    let functions = [
        "SELECT nofn(1)",
        "SELECT * FROM nofn(1)",
        "SELECT substr()",
        "SELECT sum(name) FROM t",
        "SELECT retention(id) FROM t",
        "SELECT bitmap_count(to_bitmap('a'))",
        "SELECT substring('foo' FROM 'fo+')",
    ];
    check("42883", Invalid, &functions);
    check("42P02", Invalid, &["SELECT $1"]);
}

#[test]
fn what_is_there_twice() {
    use ErrorKind::Invalid;
    check("42P07", Invalid, &["CREATE TABLE t (a INT)"]);
    check("42710", Invalid, &["CREATE ID SET s AS SELECT id FROM t"]);
    check("42702", Invalid, &["SELECT a.id FROM t a, t b WHERE id = 1"]);
    let columns =
        ["INSERT INTO t (id, id) VALUES (1, 2)", "CREATE TABLE y AS SELECT 1 AS a, 2 AS a"];
    check("42701", Invalid, &columns);
    let names =
        ["SELECT *, * FROM t", "SELECT id FROM t WINDOW w AS (ORDER BY id), w AS (ORDER BY id)"];
    check("42712", Invalid, &names);
}

#[test]
fn what_cannot_be_understood() {
    use ErrorKind::{Invalid, Limit};
    let syntax = [
        "selec 1",
        "SELECT 1 1",
        "SELECT id FROM t WHERE",
        "SELECT 'abc",
        "SELECT (1 + 2 FROM t",
        "SELECT 1_000x",
        "SELECT id FROM t UNION SELECT name, id FROM t",
        "SELECT (SELECT 1, 2)",
        "VALUES (1), (1, 2)",
    ];
    check("42601", Invalid, &syntax);
    let groups = [
        "SELECT id, count(*) FROM t",
        "SELECT 1 FROM t WHERE count(*) > 1",
        "SELECT max(sum(id)) FROM t",
    ];
    check("42803", Invalid, &groups);
    let types = [
        "SELECT 1 + 'a'",
        "SELECT NOT 1",
        "SELECT - 'a'",
        "SELECT id FROM t WHERE id",
        "SELECT id FROM t WHERE id IN ('x', true)",
        "SELECT day * 2 FROM t",
        "SELECT 'a' LIKE 1",
    ];
    check("42804", Invalid, &types);
    let places = [
        "SELECT id FROM t ORDER BY 5",
        "SELECT id FROM t GROUP BY 5",
        "SELECT x FROM (VALUES (1, 2)) a(x, y) UNION ALL SELECT z FROM (VALUES (3)) b(z) ORDER BY a.y",
    ];
    check("42P10", Invalid, &places);
    let windows = ["SELECT sum(id) OVER (w ORDER BY id) FROM t WINDOW w AS (ORDER BY id)"];
    check("42P20", Invalid, &windows);
    let unsupported = [
        "ALTER TABLE t ALTER COLUMN id TYPE TEXT",
        "BEGIN",
        "SET TIME ZONE 'Europe/Berlin'",
        "SELECT CAST(day AS BOOLEAN) FROM t",
        "SELECT t.k, x.v FROM (VALUES (1, [1, 2])) t(k, l), unnest(t.l) AS x(v)",
    ];
    check("0A000", Invalid, &unsupported);
    let deep = format!("SELECT {}1{}", "(".repeat(2000), ")".repeat(2000));
    check("54001", Limit, &[&deep]);
}

/// Statements of few words that DataFusion would plan for minutes, or until memory ends.
#[test]
fn what_planning_would_make_many_of_is_refused_before_it_does() {
    let nested = |what: &str, within: &str, deep: usize| {
        (0..deep).fold(within.to_owned(), |inner, _| what.replace('@', &inner))
    };
    let named_twice = |what: &str, deep: usize| {
        let each: Vec<_> = (1..=deep)
            .map(|n| format!("q{n} AS ({})", what.replace('@', &format!("q{}", n - 1))))
            .collect();
        format!("WITH q0 AS (SELECT 1 AS x), {} SELECT count(*) FROM q{deep}", each.join(", "))
    };
    let of_one = |expr: &str| format!("SELECT {expr} FROM (VALUES (CAST(1 AS BIGINT))) v(x)");
    let statements = |deep: usize| {
        [
            of_one(&nested("coalesce(1 + @, 1)", "x", deep)),
            of_one(&nested("ifnull(@, 1)", "x", deep)),
            of_one(&nested("(@ BETWEEN false AND true)", "(x > 0)", deep)),
            of_one(&nested("CASE WHEN @ THEN x > 1 ELSE x > 2 END", "(x > 0)", deep)),
            of_one(&nested("CAST(floor(CAST(@ AS DOUBLE)) = 1 AS BIGINT)", "x", deep)),
            nested("SELECT x - x AS x FROM (@) q WHERE x < x + 1", "SELECT 1 AS x", deep),
            format!("SELECT 1 WHERE {}", nested("1 IN (SELECT 1 WHERE @)", "1 = 1", deep)),
            named_twice("SELECT l.x FROM @ l JOIN @ r ON l.x = r.x", deep),
            named_twice("SELECT x FROM @ UNION SELECT x FROM @", deep),
            named_twice("SELECT x FROM @ WHERE x IN (SELECT x FROM @)", deep),
        ]
    };
    for refused in statements(40) {
        check("54001", ErrorKind::Limit, &[&refused]);
    }
    let (_folder, session) = asked();
    for answered in statements(5) {
        rows(&session, &answered);
    }
}

#[test]
fn values_that_are_wrong() {
    use ErrorKind::{Invalid, Limit};
    check("21000", Invalid, &["SELECT (SELECT id FROM (VALUES (1), (2)) v(id))"]);
    check("22012", Invalid, &["SELECT 1 / 0", "SELECT 1 % 0", "SELECT id / (id - 1) FROM t"]);
    let numbers = [
        "SELECT 9223372036854775807 + 1",
        "SELECT id + 9223372036854775807 FROM t",
        "SELECT sum(9223372036854775807) FROM (VALUES (1), (2)) v(a)",
        "SELECT CAST(300 AS TINYINT)",
        "SELECT CAST(12345678901 AS DECIMAL(5, 2))",
        "SELECT factorial(100)",
        "SELECT p_adjust([0.5, 2.0], 'holm')",
    ];
    check("22003", Invalid, &numbers);
    let texts = ["SELECT CAST('abc' AS BIGINT)", "SELECT id FROM t WHERE id = 'x'"];
    check("22P02", Invalid, &texts);
    let expressions = [
        "SELECT 'a' ~ '('",
        "SELECT 'aa' ~ '(a)\\1'",
        "SELECT id FROM t WHERE name ~ 'x(?!y)'",
        "SELECT id FROM t WHERE name ~ concat('(', name)",
        "SELECT regexp_replace(name, '(', '') FROM t",
        "SELECT regexp_like(name, '(') FROM t",
    ];
    check("2201B", Invalid, &expressions);
    let times = [
        "SELECT * FROM t WHERE day = 'someday'",
        "SELECT TIMESTAMP 'abc'",
        "SELECT CAST('2020-13-45' AS TIMESTAMP)",
        "SELECT INTERVAL 'abc'",
    ];
    check("22007", Invalid, &times);
    let calendar = [
        "SELECT DATE '2020-01-01' + INTERVAL '900000 years'",
        "INSERT INTO t SELECT 1, 'a', arrow_cast('2026-01-01T08:00:00', 'Date64')",
    ];
    check("22008", Invalid, &calendar);
    let parameters = [
        "SELECT local_day(TIMESTAMP '2020-01-01 00:00:00', 'xx')",
        "SELECT p_adjust([0.5], 'sidak')",
        "SELECT id FROM t LIMIT -1",
        "SET uplake.timeout = 'abc'",
        "SET datafusion.execution.batch_size = 'abc'",
        "SELECT * FROM t TIMESTAMP AS OF 'yesterday'",
        "SELECT * FROM 'ftp://host/day.csv'",
    ];
    check("22023", Invalid, &parameters);
    let patterns = ["SELECT 'a' SIMILAR TO 'a('", "SELECT 'a' SIMILAR TO 'a\\'"];
    check("2201B", Invalid, &patterns);
    check("22P03", Invalid, &["SELECT bitmap_count(arrow_cast('x', 'Binary'))"]);
    check("23502", Invalid, &["INSERT INTO t VALUES (NULL, 'a', NULL)"]);
    check("54000", Limit, &["SELECT array_length(range(0, 300000000))"]);
}

#[test]
fn places_and_hints_are_fields() {
    let (_folder, session) = asked();
    for (sql, place, message, hint) in [
        ("SELECT * FROM nope", Some((1, 15)), "there is no table `nope`", Some("the lake has t")),
        (
            "SELECT\n  nam FROM t",
            Some((2, 3)),
            "column 'nam' not found",
            Some("possible column t.name; the columns are t.id, t.name, t.day"),
        ),
        (
            "SELECT a.id FROM t a, t b WHERE id = 1",
            Some((1, 33)),
            "column 'id' is ambiguous",
            Some("possible column a.id; possible column b.id"),
        ),
        (
            "SELECT nofn(1)",
            Some((1, 8)),
            "Invalid function 'nofn'",
            Some("Possible function 'now'"),
        ),
        ("SELECT 1 1", Some((1, 10)), "did not expect `1` here", None),
        ("SELECT (1 + 2 FROM t", Some((1, 15)), "Expected: ), found: FROM", None),
        (
            "SELECT id, count(*) FROM t",
            Some((1, 8)),
            "'t.id' must appear in GROUP BY clause because it's not an aggregate expression",
            None,
        ),
        (
            "SELECT 1 + 'a'",
            None,
            "expressions have incompatible types; has type Int64; has type Utf8",
            None,
        ),
        (
            "SELECT sum(9223372036854775807) FROM (VALUES (1), (2)) v(a)",
            None,
            "the sum does not fit bigint",
            Some("sum CAST(x AS DECIMAL(38, 0))"),
        ),
        ("SELECT 1 / 0", None, "Divide by zero error", None),
        (
            "SELECT 'a'\n SIMILAR TO 'a{x}'",
            Some((2, 13)),
            "'a{x}' is no pattern: repetition quantifier expects a valid decimal",
            Some(
                "a character before which \\ stands is itself: \\{ or \\(, if ESCAPE says no other",
            ),
        ),
        (
            "SELECT * FROM unnest([1]) WITH ORDINALITY",
            None,
            "WITH ORDINALITY is not supported",
            Some("number the rows with row_number()"),
        ),
        (
            "CREATE TABLE t (a INT)",
            None,
            "table `t` exists already",
            Some("drop it first or choose another name"),
        ),
    ] {
        let error = error(&session, sql);
        let found = error.position().map(|place| (place.line, place.column));
        let (told, hinted) = (error.message(), error.hint());
        assert_eq!((found, &*told, hinted.as_deref()), (place, message, hint), "{sql}");
        let text = hint.map_or(message.to_owned(), |hint| format!("{message}; {hint}"));
        assert_eq!(error.to_string(), text, "{sql}");
    }
}

#[test]
fn an_error_for_several_keeps_its_code() {
    let (_folder, session) = asked();
    // A side of a join is computed once for all parts of the other.
    let sql =
        "SELECT a.id FROM t a JOIN (SELECT CAST(name AS BIGINT) AS id FROM t) b ON a.id = b.id";
    assert_eq!(error(&session, sql).code(), SqlState::InvalidTextRepresentation);
}

/// Whoever asks a condition, an index, a scan by ids, a part or a filter above them, tells what it cannot compute alike.
#[test]
fn what_a_condition_cannot_compute_is_told_alike_beside_an_index() {
    let (_folder, session) = asked();
    let tables = "CREATE TABLE events (user_id TEXT, n BIGINT, kind TEXT) CLUSTERED BY (user_id) \
                  INDEXED BY (n, kind words) ID DOMAINS (user_id users); \
                  INSERT INTO events SELECT concat('u', x % 100), x, \
                  CASE WHEN x % 5 > 0 THEN CAST(x AS TEXT) ELSE 'buy' END FROM generate_series(1, 3000) g(x)";
    block_on(session.query(tables)).unwrap();
    for wrong in ["CAST(kind AS INT) > 0", "7 / (n % 5) > 0", "n * 9223372036854775807 > 7"] {
        let alone = error(&session, &format!("SELECT count(*) FROM events WHERE {wrong}"));
        for beside in [
            "n IN (5, 10)",
            "n BETWEEN 5 AND 10",
            "user_id = 'u5'",
            "user_id IN ('u5', 'u10', 'u16')",
            "match(kind, 'buy')",
            "n IN (SELECT n FROM events WHERE n < 20)",
        ] {
            for elsewhere in ["never", "here:3"] {
                rows(&session, &format!("SET uplake.elsewhere = '{elsewhere}'"));
                let sql = format!("SELECT user_id, kind FROM events WHERE {beside} AND {wrong}");
                let found = error(&session, &sql);
                assert_eq!(found.code(), alone.code(), "{sql}: {found}");
                assert!(!found.to_string().contains("predicate"), "{sql}: {found}");
            }
        }
    }
}
