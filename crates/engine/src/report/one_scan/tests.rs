//! One scan against SQL on the same tables, bit by bit.

use std::sync::Arc;

use uplake_experiment::query::{Cell, MomentsQuery, MomentsTable};
use uplake_experiment::{Experiment, Moments, plan};
use uplake_table::{AsOf, Lake};

use super::super::caps;
use super::super::time::Times;
use super::{Counted, KeyKind, Layout, ScanQuery, Sql};
use crate::engine::parts::HereInParts;
use crate::engine::session::{Session, SessionOptions};
use crate::portable::bytes::Writer;

fn session(folder: &std::path::Path, memory_bytes: usize, threads: usize) -> Session {
    let lake = Lake::open(folder.to_str().unwrap()).unwrap();
    let lake = lake.with_cache(Some(folder.join("cache")), None);
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
FOLLOWED
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
KINDS
ASSIGNED
[[dimension]]
name = "country"
[[dimension]]
name = "size"
sql = "upper(plan)"
"#;

fn experiment(replaced: &[(&str, &str)]) -> Experiment {
    let mut text = DEFINITION.to_owned();
    for (name, by) in replaced {
        text = text.replace(name, by);
    }
    for name in ["CUPED", "WINDOW", "ORDERED", "KINDS", "ASSIGNED", "FOLLOWED"] {
        text = text.replace(name, "");
    }
    let text = text.replace("TABLE", "events");
    Experiment::parse(&text, "t.toml").unwrap()
}

fn query(replaced: &[(&str, &str)]) -> MomentsQuery {
    let experiment = experiment(replaced);
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
/// Values by time, with ties, values that are none, and days.
const KINDS: (&str, &str) = (
    "KINDS",
    r#"[[metric]]
name = "first"
type = "first"
table = "TABLE"
time = "ts"
value = "CASE WHEN n % 17 = 3 THEN CAST('NaN' AS DOUBLE) WHEN n % 17 = 4 THEN 0 ELSE amount END"
[[metric]]
name = "last"
type = "last"
table = "TABLE"
time = "date_trunc('day', ts)"
value = "amount"
where = "event <> 'view'"
zeros = true
[[metric]]
name = "first of a tie"
type = "first"
table = "TABLE"
time = "date_trunc('day', ts)"
value = "-amount"
[[metric]]
name = "last, reduced"
type = "last"
table = "TABLE"
time = "ts"
value = "n"
KINDCUPED
[[metric]]
name = "days"
type = "unique_days"
table = "TABLE"
time = "ts"
where = "amount > 3"
cap = 4
[[metric]]
name = "log"
type = "mean"
table = "TABLE"
time = "ts"
value = "amount + 0.7"
transform = "log1p""#,
);
const FOLLOWED: (&str, &str) = ("FOLLOWED", "in_progress = \"exclude\"\ndays_since_exposure = 6");
const ASSIGNED: (&str, &str) = ("ASSIGNED", "[assignment]\nsystem = \"growthbook\"\nseed = \"s\"");

/// Experiments that differ in everything that one scan must keep apart.
fn experiments() -> Vec<MomentsQuery> {
    let first = ("EXPOSED", "time = \"ts\"\nwhere = \"exp = 0\"");
    let days = ("WINDOW", "window = { from = \"2 days\", to = \"5 days\" }");
    let short = ("PERIOD", "start = \"2026-10-20T07:30:00\"\nend = \"2026-10-26T01:00:00\"");
    let mut without_days = query(&[OCTOBER, first, days]);
    without_days.days = false;
    let exclude = "time = \"ts\"\nexclude = [{ table = \"late\", where = \"amount > 25\" }, { table = \"events\", where = \"n % 40 = 3\" }]";
    let late = ("PERIOD", "start = \"2026-10-28T12:00:00\"\nend = \"2026-11-09\"");
    let mut beside = query(&[late, ("EXPOSED", "time = \"ts\"\nwhere = \"exp = 1\""), CUPED]);
    for other in [experiment(&[short, TIMED]), experiment(&[("PERIOD", ""), TIMED])] {
        beside.tell_apart(&other).unwrap();
    }
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
        query(&[OCTOBER, TIMED, KINDS, ("KINDCUPED", "cuped = { pre = \"7 days\" }")]),
        query(&[short, first, KINDS, ("KINDCUPED", "window = \"50 hours\"")]),
        query(&[("PERIOD", ""), TIMED, KINDS, ("KINDCUPED", "")]),
        query(&[OCTOBER, ("EXPOSED", "where = \"exp > 0\""), KINDS, ("KINDCUPED", "")]),
        query(&[OCTOBER, first, days, ORDERED, FOLLOWED, CUPED]),
        query(&[("PERIOD", ""), TIMED, days, ORDERED, FOLLOWED]),
        query(&[short, TIMED, ("WINDOW", "window = \"1 day\""), ORDERED, FOLLOWED]),
        without_days,
        query(&[OCTOBER, ("EXPOSED", exclude), ORDERED]),
        beside,
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
        "{} {:?} {:?} {:?} {:?} {:?} {:?} {:?}",
        table.users_in_many_variants,
        table.users_excluded,
        table.unknown_variants,
        table.first_exposures,
        table.users_assigned_otherwise,
        table.active_users,
        table.observed_until,
        table.in_progress
    ));
    let left_out = &table.left_out;
    lines.push(format!(
        "{} {} {:?}",
        left_out.exposures_without_user,
        left_out.exposures_without_time,
        left_out.users_exposed_before
    ));
    lines.extend(table.since.iter().flatten().map(|moments| format!("{:?}", bits(moments))));
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
    let times: Vec<Times> =
        queries.iter().map(|query| block_on(session.times(query)).unwrap()).collect();
    let questions: Vec<ScanQuery<'_>> = queries
        .iter()
        .zip(&times)
        .map(|(query, times)| ScanQuery { query, times, caps: caps(query, &[]) })
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
    let left_out: Vec<&String> = expected[..4].iter().filter_map(|lines| lines.last()).collect();
    let counted = |place: usize| {
        let counts = left_out.iter().filter_map(|line| line.split(' ').nth(place));
        counts.into_iter().any(|count| count != "0" && count != "Some(0)")
    };
    assert!((0..3).all(counted), "{left_out:?}");
    let values = ["(not in it)", "(several)", "\"a\"", "\"b\""];
    let told = |value: &str| expected.last().unwrap().iter().any(|line| line.contains(value));
    assert!(values.into_iter().all(told), "{values:?}");
    assert!(block_on(sql.catalog.find("events")).unwrap().unwrap().snapshot().files().len() > 2);
    // Users who are told apart by ids can be in parts, each of which knows nothing of the others.
    for (threads, parts) in [(1, 0), (2, 0), (5, 0), (2, 1), (1, 2), (2, 3), (2, 7)] {
        let mut session = session(folder.path(), 1 << 30, threads);
        if parts > 0 {
            session = session.with_elsewhere(Arc::new(HereInParts { parts, whole_rows: 0 }));
        }
        let threads = format!("{threads} threads, {parts} parts");
        for (number, (query, expected)) in queries.iter().zip(&expected).enumerate() {
            let alone = in_one_scan(&session, kind, std::slice::from_ref(query));
            assert_same(&alone[0], expected, &format!("{number} alone, {threads}"));
        }
        let together = in_one_scan(&session, kind, &queries);
        for (number, (table, expected)) in together.iter().zip(&expected).enumerate() {
            assert_same(table, expected, &format!("{number} of all, {threads}"));
        }
    }
}

/// What a part answers arrives as it was; bytes that are anything are an error or other cells.
#[test]
fn cells_that_are_damaged_are_refused_or_are_others() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), 1 << 30, 2);
    fill(&session, IDS);
    let short = ("PERIOD", "start = \"2026-10-20T07:30:00\"\nend = \"2026-10-24\"");
    let query = query(&[short, TIMED, CUPED, ORDERED, FOLLOWED, ASSIGNED]);
    let times = block_on(session.times(&query)).unwrap();
    let caps = caps(&query, &[]);
    let question = ScanQuery { query: &query, times: &times, caps: caps.clone() };
    let kind = block_on(session.key_kind(&query, &times)).unwrap().unwrap();
    let counted = block_on(session.one_part(&kind, &[question], None)).unwrap().unwrap();
    let bytes = counted.into_iter().next().unwrap().into_bytes();
    let layout = Arc::new(Layout::new(&Sql::new(&query, &times).unwrap(), caps));
    let read = |bytes: &[u8]| Counted::from_bytes(&layout, bytes).and_then(Counted::finish);
    let expected = said(&block_on(session.moments_by_sql(&query)).unwrap());
    assert_same(&read(&bytes).unwrap(), &expected, "as it was");
    // Numbers are in the first thousands of bytes, and then again.
    let places = || (0..bytes.len()).filter(|place| *place < 3000 || place % 61 == 0);
    for end in places() {
        assert!(read(&bytes[..end]).is_err(), "cut off after {end} of {}", bytes.len());
    }
    assert!(read(&[bytes.as_slice(), &[0]].concat()).is_err(), "longer");
    let mut others = 0;
    for place in places() {
        for flip in [0x01, 0x40, 0x80] {
            let mut other = bytes.clone();
            other[place] ^= flip;
            others += usize::from(read(&other).is_ok());
        }
    }
    assert!(others > 1000, "counts and sums may be any: {others}");
    for count in [1 << 30, u64::MAX] {
        let mut to = Writer::default();
        (0..200).for_each(|_| to.number(count));
        assert!(read(&to.0).is_err());
    }
}

/// Files of runs.
fn shelf(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let lakes = std::fs::read_dir(folder.join("cache")).unwrap();
    let runs = lakes.map(|lake| lake.unwrap().path().join("runs"));
    let files = runs.flat_map(|runs| std::fs::read_dir(runs).into_iter().flatten());
    files.map(|file| file.unwrap().path()).collect()
}

#[test]
fn what_is_remembered_says_what_rows_say() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut tables = IDS.to_vec();
    // Every row has a time.
    tables.push(("value % 83 = 1", "value % 83 = 99"));
    fill(&session(folder, 1 << 30, 2), &tables);
    let wide = ("PERIOD", "start = \"2026-10-01\"\nend = \"2026-12-01\"");
    let mut queries = vec![
        query(&[wide, TIMED, CUPED]),
        query(&[wide, TIMED, ("WINDOW", "window = { from = \"2 days\", to = \"5 days\" }")]),
    ];
    queries.extend(experiments());
    let run = |sql: &str| block_on(session(folder, 1 << 30, 2).query(sql)).map(drop).unwrap();
    let expected = || -> Vec<Vec<String>> {
        let sql = session(folder, 1 << 30, 2);
        queries.iter().map(|query| said(&block_on(sql.moments_by_sql(query)).unwrap())).collect()
    };
    // Two experiments alone and all together; files that were remembered, and that are since.
    let check = |expected: &[Vec<String>], threads: usize, what: &str| {
        let session = session(folder, 1 << 30, threads).remembering();
        let is_ids = |kind: &KeyKind| matches!(kind, KeyKind::Ids(_));
        for (number, query) in queries.iter().enumerate().take(2) {
            let alone = in_one_scan(&session, is_ids, std::slice::from_ref(query));
            assert_same(&alone[0], &expected[number], &format!("{number} alone, {what}"));
        }
        let together = in_one_scan(&session, is_ids, &queries);
        for (number, table) in together.iter().enumerate() {
            assert_same(table, &expected[number], &format!("{number} of all, {what}"));
        }
        session.remembered()
    };
    let now = expected();
    let (used, made) = check(&now, 2, "first");
    // The table of one metric is the same in both that are alone.
    assert!(used <= 2 && made > 12, "{used} {made}");
    let all = used + made;
    for threads in [1, 2, 5] {
        assert_eq!(check(&now, threads, "again"), (all, 0), "{threads} threads");
    }

    // Experiments that differ in first exposures take turns.
    let session_of_one = || session(folder, 1 << 30, 2).remembering();
    let ours = ("EXPOSED", "time = \"ts\"\nwhere = \"plan = 'p0'\"");
    let theirs = ("EXPOSED", "time = \"ts\"\nwhere = \"plan <> 'p0'\"");
    let mut read = Vec::new();
    for turn in [ours, theirs, ours, theirs] {
        let (session, mut query) = (session_of_one(), query(&[wide, turn, CUPED]));
        // Without days a run is all that a file has of a user.
        query.days = false;
        let expected = said(&block_on(session.moments_by_sql(&query)).unwrap());
        let is_ids = |kind: &KeyKind| matches!(kind, KeyKind::Ids(_));
        let answer = in_one_scan(&session, is_ids, std::slice::from_ref(&query));
        assert_same(&answer[0], &expected, turn.1);
        read.push(session.remembered().1);
    }
    assert!(
        read[0] > 0 && read[1] > 0 && read[2..] == [0, 0],
        "each is remembered beside the other: {read:?}"
    );

    // Rows of late days, and users that are exposed after all rows there are.
    run(
        "INSERT INTO events SELECT user_id, ts + INTERVAL '3 days', event, amount, n FROM events WHERE n % 5 = 0",
    );
    run(
        "INSERT INTO exposures SELECT 0, concat('new', CAST(value AS VARCHAR)), 'a', TIMESTAMP '2026-11-30 10:00:00', 'DE', 'p1' FROM generate_series(1, 40) AS s(value)",
    );
    let now = expected();
    let (used, made) = check(&now, 2, "after new rows");
    assert!(used >= all && made >= 3, "{used} {made} of {all}");

    // A first exposure that lies between rows that were added up together.
    run(
        "INSERT INTO exposures SELECT exp, user_id, variant, ts - INTERVAL '3 days', country, plan FROM exposures WHERE ts IS NOT NULL AND variant IN ('a', 'b')",
    );
    let now = expected();
    check(&now, 2, "after earlier exposures");
    assert_eq!(check(&now, 2, "after that").1, 0);

    run("DELETE FROM events WHERE n % 7 = 2");
    let now = expected();
    let (used, made) = check(&now, 2, "after a deletion");
    assert!(used > 0 && made > 0, "{used} {made}");

    let places = [0, 9, 40, 333, 5000];
    for (number, file) in shelf(folder).into_iter().enumerate() {
        let mut bytes = std::fs::read(&file).unwrap();
        let place = places[number % places.len()].min(bytes.len() - 1);
        bytes[place] ^= 4;
        std::fs::write(&file, &bytes[..bytes.len() - number % 2]).unwrap();
    }
    let (used, made) = check(&now, 2, "with damaged files");
    // Again only what was kept again.
    assert!(used <= 2 && made > 0, "{used} {made}");

    let runs = shelf(folder)[0].parent().unwrap().to_owned();
    std::fs::remove_dir_all(&runs).unwrap();
    std::fs::write(&runs, "no folder").unwrap();
    assert_eq!(check(&now, 2, "without a folder"), (0, 0));
}

#[test]
fn what_changes_by_itself_is_not_remembered() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), 1 << 30, 2).remembering();
    fill(&session, IDS);
    block_on(session.query("CREATE ID SET some AS SELECT user_id FROM events WHERE n < 99"))
        .unwrap();
    for changing in [
        "event = 'buy' AND ts < now()",
        "event = 'buy' AND random() < 2",
        "user_id IN ID SET some",
        "id_of('users', user_id) > 3",
    ] {
        let query = query(&[("PERIOD", ""), TIMED, ("event = 'buy'", changing)]);
        let answer = block_on(session.moments_together(&[&query])).pop().unwrap().unwrap();
        assert_same(&answer, &said(&block_on(session.moments_by_sql(&query)).unwrap()), changing);
        // Metrics of the other table are.
        assert_eq!(session.remembered().1, 2, "{changing}");
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
    let messages: Vec<String> =
        answers.into_iter().map(|a| a.err().map(|e| e.to_string()).unwrap_or_default()).collect();
    for (number, begins) in [
        (0, "metric `spend`: `where` cannot be used: "),
        (2, "metric `spend`: `table` cannot be used: "),
        (3, "[exposures]: `time` cannot be used: "),
        (5, "unknown time zone"),
        (6, "metric `spend`: "),
    ] {
        assert!(messages[number].starts_with(begins), "{}", messages[number]);
    }
    assert!(messages[0].contains("colour"), "{}", messages[0]);
}

#[test]
fn what_does_not_fit_is_answered_by_sql() {
    let folder = tempfile::tempdir().unwrap();
    fill(&session(folder.path(), 1 << 30, 2), TEXT);
    let queries = experiments();
    let small = session(folder.path(), 1 << 30, 2);
    let all = small.memory("everything else");
    all.grow(2 << 30);
    let times = block_on(small.times(&queries[0])).unwrap();
    let question = ScanQuery { query: &queries[0], times: &times, caps: caps(&queries[0], &[]) };
    let failed = block_on(small.one_scan(&KeyKind::Text, std::slice::from_ref(&question)));
    let message = failed.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(message.contains("budget"), "there is no memory: {message}");
    all.free();
    assert!(
        block_on(small.one_scan(&KeyKind::Text, &[question])).unwrap().is_some(),
        "all was given back"
    );
}
