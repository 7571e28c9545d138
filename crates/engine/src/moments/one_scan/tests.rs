//! One scan against SQL on the same tables, bit by bit.

use std::sync::Arc;

use uplake_experiment::query::{Cell, MomentsQuery, MomentsTable};
use uplake_experiment::{Experiment, Moments, plan};
use uplake_table::{AsOf, Lake};

use super::super::caps;
use super::super::time::Times;
use super::{KeyKind, Question};
use crate::session::{Session, SessionOptions};

fn session(folder: &std::path::Path, memory_bytes: usize, threads: usize) -> Session {
    let lake = Lake::open(folder.to_str().unwrap()).unwrap();
    let clock = Arc::new(|| 1_793_491_200_000);
    let options = SessionOptions {
        memory_bytes,
        threads,
        as_of: AsOf::Latest,
        spill_folder: None,
        use_indexes: true,
        at_once: None,
        timeout: None,
        clock,
    };
    Session::new(lake, &options).unwrap()
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(work)
}

/// 600 users in six files of events, which overlap in time; two of them are not sorted by user. Keys
/// and times can be NULL; some users change arms, some are in arms without a name.
const DATA: &str = "
CREATE TABLE exposures (exp INT, user_id TEXT, variant TEXT, ts TIMESTAMP, country TEXT, plan TEXT) CLUSTERED BY (user_id) KEYS;
INSERT INTO exposures SELECT value % 3, CASE WHEN value % 50 = 7 THEN NULL ELSE concat('u', CAST(value % 600 AS VARCHAR)) END,
  CASE WHEN value % 600 = 11 THEN 'z' WHEN value % 600 = 13 THEN NULL WHEN (value % 600) % 97 = 5 AND value > 700 THEN 'b' WHEN (value % 600) % 2 = 0 THEN 'a' ELSE 'b' END,
  CASE WHEN value % 71 = 3 THEN NULL ELSE to_timestamp_micros(1791756000000000 + ((value * 7919) % 2419200) * 1000000) END,
  CASE WHEN value % 3 = 0 THEN 'DE' WHEN value % 3 = 1 THEN 'FR' END, concat('p', CAST(value % 4 AS VARCHAR))
  FROM generate_series(1, 2500) AS s(value);
CREATE TABLE events (user_id TEXT, ts TIMESTAMP, event TEXT, amount DOUBLE, n INT) CLUSTERED BY (user_id, ts) KEYS;
CREATE TABLE late (n INT, user_id TEXT, ts TIMESTAMP, event TEXT, amount DOUBLE) CLUSTERED BY (n) KEYS;
FILES
DELETE FROM events WHERE n % 37 = 1 AND n < 400";

/// Users have ids.
const IDS: &[(&str, &str)] = &[("KEYS", "ID DOMAINS (user_id users)")];
/// Users are text.
const TEXT: &[(&str, &str)] = &[("KEYS", "")];
/// Users are numbers, of different types in different tables.
const NUMBERS: &[(&str, &str)] = &[
    ("KEYS", ""),
    ("exp INT, user_id TEXT", "exp INT, user_id BIGINT"),
    ("user_id TEXT", "user_id INT"),
    ("concat('u', CAST(value % 600 AS VARCHAR))", "value % 600 - 5"),
    (
        "concat('u', CAST((value * 104729) % 700 AS VARCHAR))",
        "CAST((value * 104729) % 700 - 5 AS INT)",
    ),
];

fn fill(session: &Session, keys: &[(&str, &str)]) {
    let rows = |file: i64, columns: &str| {
        format!(
            "SELECT {columns} FROM (SELECT CASE WHEN value % 90 = 4 THEN NULL ELSE concat('u', CAST((value * 104729) % 700 AS VARCHAR)) END AS user_id, \
             CASE WHEN value % 83 = 1 THEN NULL ELSE to_timestamp_micros(1791756000000000 - 604800000000 + ((value * 15485863) % 3024000) * 1000000) END AS ts, \
             CASE (value * 31) % 5 WHEN 0 THEN 'buy' WHEN 1 THEN 'cart' ELSE 'view' END AS event, \
             CASE WHEN value % 11 = 0 THEN NULL WHEN value % 13 = 0 THEN -0.7 ELSE 0.1 + CAST((value * 7907) % 10007 AS DOUBLE) / 300.0 END AS amount, \
             CAST(value AS INT) AS n FROM generate_series({file} * 4000, {file} * 4000 + 3999) AS s(value)) x"
        )
    };
    let mut files: Vec<String> = (0..4)
        .map(|file| format!("INSERT INTO events {}", rows(file, "user_id, ts, event, amount, n")))
        .collect();
    files.extend(
        (4..6).map(|file| {
            format!("INSERT INTO late {}", rows(file, "n, user_id, ts, event, amount"))
        }),
    );
    let mut data = DATA.replace("FILES", &format!("{};", files.join(";")));
    keys.iter().for_each(|(name, by)| data = data.replace(name, by));
    block_on(session.query(&data)).unwrap();
}

const DEFINITION: &str = r#"
name = "t"
PERIOD
time_zone = "Europe/Berlin"
[exposures]
table = "exposures"
user = "user_id"
variant = "variant"
EXPOSED
[[variant]]
name = "a"
share = 0.5
control = true
[[variant]]
name = "b"
share = 0.5
[[metric]]
name = "spend"
type = "mean"
table = "TABLE"
value = "amount"
where = "event = 'buy'"
CUPED
[[metric]]
name = "capped"
type = "mean"
table = "TABLE"
value = "amount"
cap = 40
WINDOW
[[metric]]
name = "bought"
type = "proportion"
table = "TABLE"
where = "event = 'buy' AND n % 3 = 0"
[[metric]]
name = "late ones"
type = "threshold"
table = "late"
value = "amount"
at_least = 30
[[metric]]
name = "price"
type = "ratio"
table = "TABLE"
numerator = { value = "amount", where = "event = 'buy'" }
denominator = { value = "1", where = "event = 'buy'" }
ORDERED
ASSIGNED
[[dimension]]
name = "country"
[[dimension]]
name = "size"
sql = "upper(plan)"
"#;

fn query(replaced: &[(&str, &str)]) -> MomentsQuery {
    let mut text = DEFINITION.to_owned();
    for (name, by) in replaced {
        text = text.replace(name, by);
    }
    for name in ["CUPED", "WINDOW", "ORDERED", "ASSIGNED"] {
        text = text.replace(name, "");
    }
    let text = text.replace("TABLE", "events");
    let experiment = Experiment::parse(&text, "t.toml").unwrap();
    plan(&experiment, &["country".to_owned(), "size".to_owned()], None).unwrap()
}

const OCTOBER: (&str, &str) = ("PERIOD", "start = \"2026-10-12\"\nend = \"2026-11-09\"");
const TIMED: (&str, &str) = ("EXPOSED", "time = \"ts\"");
const CUPED: (&str, &str) = ("CUPED", "cuped = { pre = \"7 days\" }");

const ORDERED: (&str, &str) = (
    "ORDERED",
    r#"[[metric]]
name = "kinds"
type = "distinct"
table = "TABLE"
value = "event"
[[metric]]
name = "way"
type = "funnel"
table = "TABLE"
window = "6 days"
steps = [{ name = "view", where = "event = 'view'" }, { name = "buy", where = "event = 'buy'" }]"#,
);
const ASSIGNED: (&str, &str) = ("ASSIGNED", "[assignment]\nsystem = \"growthbook\"\nseed = \"s\"");

/// Experiments that differ in everything that one scan must keep apart.
fn experiments() -> Vec<MomentsQuery> {
    let first = ("EXPOSED", "time = \"ts\"\nwhere = \"exp = 0\"");
    let days = ("WINDOW", "window = { from = \"2 days\", to = \"5 days\" }");
    let short = ("PERIOD", "start = \"2026-10-20T07:30:00\"\nend = \"2026-10-26T01:00:00\"");
    let mut without_days = query(&[OCTOBER, first, days]);
    without_days.days = false;
    vec![
        query(&[OCTOBER, TIMED]),
        query(&[OCTOBER, first, CUPED]),
        query(&[short, first, days]),
        query(&[short, TIMED, CUPED, ("WINDOW", "window = \"90 minutes\"")]),
        query(&[("PERIOD", ""), TIMED]),
        query(&[OCTOBER, ("EXPOSED", "where = \"exp > 0\"")]),
        query(&[("PERIOD", ""), ("EXPOSED", "")]),
        query(&[OCTOBER, TIMED, ("TABLE", "late")]),
        query(&[OCTOBER, TIMED, ("event = 'buy'", "amount > 1e9")]),
        query(&[OCTOBER, first, ORDERED, ASSIGNED]),
        query(&[("PERIOD", ""), TIMED, ORDERED]),
        without_days,
    ]
}

/// All that a table says, with numbers by their bits.
fn said(table: &MomentsTable) -> Vec<String> {
    let bits = |m: &Moments| {
        let means = (0..m.columns()).map(|i| m.mean(i).to_bits());
        let pairs = (0..m.columns()).flat_map(|i| (i..m.columns()).map(move |j| (i, j)));
        let pairs = pairs.map(|(i, j)| m.covariance(i, j).to_bits());
        (m.count(), means.chain(pairs).collect::<Vec<u64>>())
    };
    let cell = |cell: &Cell| {
        let groups: Vec<_> = cell.groups.iter().map(bits).collect();
        format!("{:?} {} {} {groups:?}", cell.slice, cell.variant, cell.users)
    };
    let mut lines: Vec<String> = table.cells.iter().map(cell).collect();
    for day in &table.days {
        lines.extend(day.cells.iter().map(|c| format!("{} {}", day.day, cell(c))));
    }
    lines.push(format!(
        "{} {:?} {:?} {:?} {:?}",
        table.users_in_many_variants,
        table.unknown_variants,
        table.first_exposures,
        table.users_assigned_otherwise,
        table.active_users
    ));
    lines
}

fn assert_same(table: &MomentsTable, expected: &[String], what: &str) {
    let said = said(table);
    assert_eq!(said.len(), expected.len(), "experiment {what}");
    for (said, expected) in said.iter().zip(expected) {
        assert_eq!(said, expected, "experiment {what}");
    }
}

fn in_one_scan(
    session: &Session,
    kind: fn(&KeyKind) -> bool,
    queries: &[MomentsQuery],
) -> Vec<MomentsTable> {
    let times: Vec<Times> = queries.iter().map(|query| Times::of(query).unwrap()).collect();
    let questions: Vec<Question<'_>> = queries
        .iter()
        .zip(&times)
        .map(|(query, times)| Question { query, times, caps: caps(query, &[]) })
        .collect();
    let answer = async {
        let mut found = None;
        for question in &questions {
            found = session.key_kind(question.query, question.times).await.unwrap();
            assert!(found.as_ref().is_some_and(kind), "{found:?}");
        }
        session.one_scan(&found.unwrap(), &questions).await
    };
    block_on(answer).unwrap().unwrap()
}

#[test]
fn one_scan_by_ids_says_what_sql_says() {
    one_scan_says_what_sql_says(IDS, |kind| matches!(kind, KeyKind::Ids(_)));
}

#[test]
fn one_scan_by_text_says_what_sql_says() {
    one_scan_says_what_sql_says(TEXT, |kind| *kind == KeyKind::Text);
}

#[test]
fn one_scan_by_numbers_says_what_sql_says() {
    one_scan_says_what_sql_says(NUMBERS, |kind| *kind == KeyKind::Whole);
}

fn one_scan_says_what_sql_says(keys: &[(&str, &str)], kind: fn(&KeyKind) -> bool) {
    let folder = tempfile::tempdir().unwrap();
    fill(&session(folder.path(), 1 << 30, 2), keys);
    let queries = experiments();
    let sql = session(folder.path(), 1 << 30, 2);
    let expected: Vec<Vec<String>> =
        queries.iter().map(|query| said(&block_on(sql.moments_by_sql(query)).unwrap())).collect();
    assert!(expected[0].iter().any(|line| line.starts_with("2026-10-25 None 1")), "a long day");
    assert!(block_on(sql.catalog.find("events")).unwrap().unwrap().snapshot().files().len() > 2);
    for threads in [1, 2, 5] {
        let session = session(folder.path(), 1 << 30, threads);
        for (number, (query, expected)) in queries.iter().zip(&expected).enumerate() {
            let alone = in_one_scan(&session, kind, std::slice::from_ref(query));
            assert_same(&alone[0], expected, &format!("{number} alone, {threads} threads"));
        }
        let together = in_one_scan(&session, kind, &queries);
        for (number, (table, expected)) in together.iter().zip(&expected).enumerate() {
            assert_same(table, expected, &format!("{number} of all, {threads} threads"));
        }
    }
}

#[test]
fn each_experiment_fails_alone() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), 1 << 30, 2);
    fill(&session, TEXT);
    let good = query(&[OCTOBER, TIMED]);
    let wrong = [
        query(&[OCTOBER, TIMED, ("event = 'buy'", "colour = 'red'")]),
        query(&[OCTOBER, TIMED, ("TABLE", "nowhere")]),
        query(&[OCTOBER, ("EXPOSED", "time = \"at\"")]),
        MomentsQuery { time_zone: "Mars/Base".into(), ..good.clone() },
        query(&[OCTOBER, TIMED, ("value = \"amount\"", "value = \"CAST(event AS INT)\"")]),
    ];
    let expected = said(&block_on(session.moments_by_sql(&good)).unwrap());
    let [a, b, c, d, when_read] = &wrong;
    let answers = block_on(session.moments_together(&[a, &good, b, c, &good, d, when_read]));
    let failed: Vec<bool> = answers.iter().map(Result::is_err).collect();
    assert_eq!(failed, [true, false, true, true, false, true, true]);
    for good in [1, 4] {
        assert_eq!(said(answers[good].as_ref().unwrap()), expected);
    }
    let message = answers[0].as_ref().unwrap_err().to_string();
    assert!(message.contains("colour"), "{message}");
}

#[test]
fn what_does_not_fit_is_answered_by_sql() {
    let folder = tempfile::tempdir().unwrap();
    fill(&session(folder.path(), 1 << 30, 2), TEXT);
    let queries = experiments();
    let small = session(folder.path(), 1 << 30, 2);
    let all = small.memory("everything else");
    all.grow(2 << 30);
    let times = Times::of(&queries[0]).unwrap();
    let question = Question { query: &queries[0], times: &times, caps: caps(&queries[0], &[]) };
    let failed = block_on(small.one_scan(&KeyKind::Text, std::slice::from_ref(&question)));
    let message = failed.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(message.contains("budget"), "there is no memory: {message}");
    all.free();
    assert!(
        block_on(small.one_scan(&KeyKind::Text, &[question])).unwrap().is_some(),
        "all was given back"
    );
}
