//! What is said of a definition that cannot be used, and of rows that are in no figure.

use uplake_engine::{EngineError, Session};
use uplake_experiment::left_out::NoExposures;
use uplake_experiment::{Experiment, MomentsTable, plan};

use crate::{block_on, options, session};

const DEFINITION: &str = r#"
name = "t"
start = "2026-11-02"
end = "2026-11-05"
[exposures]
table = "exposures"
user = "user_id"
variant = "variant"
time = "ts"
where = "exp = 1"
[[variant]]
name = "a"
share = 0.5
[[variant]]
name = "b"
share = 0.5
[[metric]]
name = "spend"
type = "mean"
table = "events"
value = '''amount'''
where = '''event = 'buy''''
[[metric]]
name = "rate"
type = "ratio"
table = "events"
where = "n > 0"
numerator = { value = "amount", where = '''event = 'buy'''' }
denominator = { value = "n" }
[[metric]]
name = "way"
type = "funnel"
table = "events"
steps = [{ name = "view", where = "event = 'view'" }, { name = "buy", where = '''event = 'buy'''' }]
[[metric]]
name = "kinds"
type = "distinct"
table = "events"
value = "event"
[[metric]]
name = "p90"
type = "quantile"
table = "events"
value = "amount"
level = 0.9
per = "row"
[[dimension]]
name = "country"
sql = '''country'''
"#;

/// u1 and u5 had been exposed before; u5 is in two arms then, in one within the period; u6 is in two
/// within it, u7 in none that is known. Of those without a user one is early and one has no time.
const DATA: &str = "
CREATE TABLE exposures AS SELECT column1 AS exp, column2 AS user_id, column3 AS variant, arrow_cast(column4, 'Timestamp(Microsecond, None)') AS ts, column5 AS country FROM (VALUES
 (1,'u1','a','2026-11-01T23:59:59','DE'), (1,'u1','a','2026-11-02T00:00:00','DE'), (1,'u2','b','2026-11-02T12:00:00','DE'),
 (1,'u3','b',NULL,'DE'), (1,'u2','b',NULL,'DE'), (1,NULL,'a','2026-11-02T00:00:00','DE'), (1,NULL,'a','2026-11-04T23:59:59','DE'),
 (1,NULL,'a','2026-11-01T00:00:00','DE'), (1,NULL,'a','2026-11-05T00:00:00','DE'), (1,NULL,'b',NULL,'DE'),
 (1,'u4','a','2026-11-01T00:00:00','DE'), (1,'u5','a','2026-10-01T00:00:00','DE'), (1,'u5','b','2026-10-02T00:00:00','DE'), (1,'u5','b','2026-11-03T00:00:00','DE'),
 (1,'u6','a','2026-11-01T00:00:00','DE'), (1,'u6','a','2026-11-02T00:00:00','DE'), (1,'u6','b','2026-11-02T00:00:00','DE'),
 (1,'u7','z','2026-11-01T00:00:00','DE'), (1,'u7','z','2026-11-02T00:00:00','DE'), (1,'u2','b','2026-11-09T00:00:00','DE'),
 (2,'u2','a','2026-11-01T00:00:00','DE'), (2,NULL,'a','2026-11-02T00:00:00','DE'));
CREATE TABLE events AS SELECT column1 AS user_id, arrow_cast(column2, 'Timestamp(Microsecond, None)') AS ts, column3 AS event, column4 AS amount, column5 AS n FROM (VALUES
 ('u1','2026-11-02T01:00:00','buy',1.5,1), ('u2','2026-11-03T00:00:00','view',4.0,2), ('u9','2026-11-03T00:00:00','refund',9.0,3));
CREATE TABLE vacant (user_id TEXT, ts TIMESTAMP, event TEXT, amount DOUBLE, n INT)";

/// With and without the scan that experiments share.
fn sessions(folder: &std::path::Path) -> [Session; 2] {
    let one_scan = session(folder, 1 << 30, 2);
    block_on(one_scan.query(DATA)).unwrap();
    let by_sql = uplake_engine::SessionOptions { use_indexes: false, ..options(1 << 30, 2) };
    [
        one_scan,
        Session::new(
            uplake_table::Lake::open(folder.join("lake").to_str().unwrap()).unwrap(),
            &by_sql,
        )
        .unwrap(),
    ]
}

fn moments(session: &Session, changes: &[(&str, &str)]) -> Result<MomentsTable, EngineError> {
    let mut text = DEFINITION.to_owned();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replacen(from, to, 1);
    }
    let experiment = Experiment::parse(&text, "t.toml").unwrap();
    let query = plan(&experiment, &["country".to_owned()], None).unwrap();
    block_on(session.moments(&query))
}

#[test]
fn an_expression_is_named_with_its_metric_its_key_and_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = sessions(folder.path());
    let (value, filter) = ("value = '''amount'''", "where = '''event = 'buy''''");
    let numerator = "where = '''event = 'buy'''' }\ndenominator";
    let last_step = "where = '''event = 'buy'''' }]";
    let sql = "sql = '''country'''";
    let one_row = "an expression of a definition is about one row";
    for (from, to, says) in [
        (
            value,
            "value = 'amount +'",
            &["metric `spend`: `value`", "expression", "(at its end)"][..],
        ),
        (
            value,
            "value = 'amount) + (1'",
            &["metric `spend`: `value`", "`)`", "(character 7, at `) + (1`)"],
        ),
        (value, "value = '(amount'", &["metric `spend`: `value`", "(at its end)"]),
        (value, "value = 'amount, n'", &["metric `spend`: `value`", "(character 7, at `, n`)"]),
        (
            value,
            "value = 'amount FROM vacant'",
            &["metric `spend`: `value`", "(character 8, at `FROM vacant`)"],
        ),
        (
            value,
            "value = 'amount; DROP TABLE events'",
            &["`value`", "(character 7, at `; DROP TABLE events`)"],
        ),
        (
            value,
            "value = 'amount -- in euros'",
            &["`value`", "comment", "(character 8, at `-- in euros`)"],
        ),
        (value, "value = 'amount /* in euros'", &["metric `spend`: `value`", "comment"]),
        (
            value,
            "value = 'amout'",
            &["metric `spend`: `value`", "amout", "(character 1, at `amout`)"],
        ),
        (value, "value = 'n + amout'", &["metric `spend`: `value`", "(character 5, at `amout`)"]),
        (
            value,
            "value = '''\nn\n  + amout\n'''",
            &["`value`", "(line 2, character 5, at `amout`)"],
        ),
        (
            value,
            "value = 'sum(amount)'",
            &["metric `spend`: `value`", "`sum` is an aggregate", one_row],
        ),
        (
            value,
            "value = 'n * COUNT(*)'",
            &["`COUNT` is an aggregate", "(character 5, at `COUNT(*)`)"],
        ),
        (value, "value = 'row_number() OVER ()'", &["`row_number` is a window function", one_row]),
        (
            value,
            "value = 'lag(amount) OVER (PARTITION BY user_id ORDER BY ts)'",
            &["`lag` is a window function"],
        ),
        (
            filter,
            "where = '''event = = 'buy''''",
            &["metric `spend`: `where`", "(character 9, at `= 'buy'`)"],
        ),
        (
            filter,
            "where = '''event = 'buy'''",
            &["metric `spend`: `where`", "(character 9, at `'buy`)"],
        ),
        (
            filter,
            "where = '''event = 'buy') OR (true'''",
            &["metric `spend`: `where`", "(character 14, at `) OR (true`)"],
        ),
        (filter, "where = 'max(n) > 1'", &["metric `spend`: `where`", "`max` is an aggregate"]),
        (
            filter,
            "where = '''evnt = 'buy''''",
            &["metric `spend`: `where`", "(character 1, at `evnt = 'buy'`)"],
        ),
        (
            numerator,
            "where = 'n >' }\ndenominator",
            &["metric `rate`: `numerator.where`", "(at its end)"],
        ),
        (
            last_step,
            "where = '''event ='''}]",
            &["metric `way`: `step buy: where`", "(at its end)"],
        ),
        (sql, "sql = 'min(country)'", &["dimension `country`: `sql`", "`min` is an aggregate"]),
        (sql, "sql = 'city'", &["dimension `country`: `sql`", "(character 1, at `city`)"]),
        ("where = \"exp = 1\"", "where = 'exp ='", &["[exposures]: `where`", "(at its end)"]),
        ("time = \"ts\"", "time = 'at'", &["[exposures]: `time`", "(character 1, at `at`)"]),
        ("table = \"events\"", "table = \"evnts\"", &["metric `spend`: `table`", "evnts"]),
    ] {
        for session in &sessions {
            let message = moments(session, &[(from, to)]).expect_err(to).to_string();
            for says in says {
                assert!(message.contains(says), "{to}: {message}");
            }
        }
    }
}

#[test]
fn a_value_that_cannot_be_computed_names_its_metric() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = sessions(folder.path());
    for (changes, says) in [
        (("value = '''amount'''", "value = 'CAST(event AS INT)'"), "metric `spend`: "),
        (("value = \"n\"", "value = '9223372036854775807 + n'"), "metric `rate`: "),
        (("value = \"event\"", "value = 'CAST(event AS INT)'"), "metric `kinds`: "),
        (("value = \"amount\"\nlevel", "value = 'CAST(event AS DOUBLE)'\nlevel"), "metric `p90`: "),
        (("where = \"exp = 1\"", "where = 'CAST(country AS INT) = 1'"), "the exposures: "),
    ] {
        for session in &sessions {
            let message = moments(session, &[changes]).expect_err(changes.1).to_string();
            assert!(message.starts_with(says), "{}: {message}", changes.1);
        }
    }
}

#[test]
fn expressions_may_be_written_as_anybody_would() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = sessions(folder.path());
    let expected: Vec<f64> = sessions
        .iter()
        .map(|session| moments(session, &[]).unwrap().cells[0].groups[0].mean(0))
        .collect();
    assert_eq!(expected, [1.5, 1.5], "u1 alone is in arm a");
    for value in [
        "'''\namount -- in euros\n'''",
        "'amount /* in euros */'",
        "'(amount)'",
        "'(((amount)) + 0)'",
        "'CASE WHEN amount > 0 THEN amount ELSE NULL END'",
        "'\"amount\"'",
    ] {
        for session in &sessions {
            let to = format!("value = {value}");
            let changed = [("value = '''amount'''", to.as_str())];
            let table = moments(session, &changed).unwrap_or_else(|e| panic!("{value}: {e}"));
            assert_eq!(table.cells[0].groups[0].mean(0), 1.5, "{value}");
        }
    }
    // A subquery looks at other rows.
    let first = "where = '''event = 'buy' AND n IN (SELECT n FROM events WHERE n = 1)'''";
    for session in &sessions {
        let table = moments(session, &[("where = '''event = 'buy''''", first)]).unwrap();
        assert_eq!(table.cells[0].groups[0].mean(0), 1.5);
    }
}

#[test]
fn rows_that_are_left_out_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let period = "start = \"2026-11-02\"\nend = \"2026-11-05\"\n";
    for session in sessions(folder.path()) {
        let found = moments(&session, &[]).unwrap().left_out;
        assert_eq!((found.exposures_without_user, found.exposures_without_time), (2, 3));
        assert_eq!(found.users_exposed_before, Some(2), "u1 and u5");
        assert_eq!(found.no_exposures, None);
        let found = moments(&session, &[(period, "")]).unwrap().left_out;
        assert_eq!((found.exposures_without_user, found.exposures_without_time), (4, 3));
        assert_eq!(found.users_exposed_before, None, "there is no before");
        let clustered = [
            ("where = \"exp = 1\"", "where = \"exp = 1\"\ncluster = \"country\""),
            ("per = \"row\"", ""),
            ("quantile", "mean"),
            ("level = 0.9", ""),
        ];
        let found = moments(&session, &clustered).unwrap().left_out;
        assert_eq!((found.exposures_without_user, found.exposures_without_time), (2, 3));
        assert_eq!(found.users_exposed_before, Some(2));
    }
}

#[test]
fn why_nobody_is_exposed_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let filter = "where = \"exp = 1\"";
    for session in sessions(folder.path()) {
        for (changes, expected) in [
            (&[(filter, "where = 'exp = 3'")][..], NoExposures::WherePassesNothing),
            (
                &[(
                    "start = \"2026-11-02\"\nend = \"2026-11-05\"",
                    "start = \"2025-11-02\"\nend = \"2025-11-05\"",
                )],
                NoExposures::NoneCounts,
            ),
            (&[(filter, "where = 'user_id IS NULL'")], NoExposures::NoneCounts),
            (
                &[
                    ("table = \"exposures\"", "table = \"vacant\""),
                    (filter, "where = 'n = 1'"),
                    ("variant = \"variant\"", "variant = 'event'"),
                    ("sql = '''country'''", "sql = 'event'"),
                ],
                NoExposures::EmptyTable,
            ),
        ] {
            let found = moments(&session, changes).unwrap().left_out;
            assert_eq!(found.no_exposures, Some(expected), "{changes:?}");
            assert!(found.unmatched_columns.is_empty(), "there is nobody to have rows");
        }
    }
}

#[test]
fn conditions_that_no_row_passes_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let filter = "where = '''event = 'buy''''\n[[metric]]\nname = \"rate\"";
    let to = |filter: &str| format!("where = '''{filter}'''\n[[metric]]\nname = \"rate\"");
    for session in sessions(folder.path()) {
        let found = moments(&session, &[]).unwrap().left_out;
        assert_eq!(
            (found.unmatched_columns, found.zero_columns),
            (vec![], vec![4]),
            "nobody went all the way"
        );
        let typo = to("event = 'payed' ");
        let found = moments(&session, &[(filter, &typo)]).unwrap().left_out;
        assert_eq!((found.unmatched_columns, found.zero_columns), (vec![0], vec![4]));
        // u9 is not exposed.
        let others = to("event = 'refund' ");
        let found = moments(&session, &[(filter, &others)]).unwrap().left_out;
        assert_eq!((found.unmatched_columns, found.zero_columns), (vec![], vec![0, 4]));
        let step = [("where = '''event = 'buy'''' }]", "where = '''event = 'payed' ''' }]")];
        let found = moments(&session, &step).unwrap().left_out;
        assert_eq!((found.unmatched_columns, found.zero_columns), (vec![4], vec![]));
        let of_rows =
            [("value = \"amount\"\nlevel", "where = \"n > 9\"\nvalue = \"amount\"\nlevel")];
        let found = moments(&session, &of_rows).unwrap().left_out;
        assert_eq!((found.unmatched_columns, found.unmatched_quantiles), (vec![], vec![0]));
        let table = [(
            "name = \"kinds\"\ntype = \"distinct\"\ntable = \"events\"",
            "name = \"kinds\"\ntype = \"distinct\"\ntable = \"vacant\"",
        )];
        let found = moments(&session, &table).unwrap().left_out;
        assert_eq!((found.unmatched_columns, found.zero_columns), (vec![5], vec![4]));
    }
}

#[test]
fn a_name_with_a_line_end_stays_within_its_comment() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), 1 << 30, 1);
    let text = DEFINITION.replace("name = \"p90\"", r#"name = "p90\nDROP TABLE events""#);
    let experiment = Experiment::parse(&text, "t.toml").unwrap();
    let sql = block_on(session.moments_sql(&plan(&experiment, &[], None).unwrap())).unwrap();
    assert!(sql.contains("p90⏎DROP TABLE events"), "{sql}");
    assert!(sql.lines().all(|line| !line.starts_with("DROP")), "{sql}");
}
