//! Reports in parts: the same bytes as in one piece, or one clear error, whatever becomes of the parts.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::arrow::array::{AsArray, LargeBinaryArray, RecordBatch};
use futures::{StreamExt, TryStreamExt, stream};
use uplake_engine::{
    Asked, Definitions, Elsewhere, EngineError, HereInParts, PartError, PartRows, Placed, Problem,
    ReportOptions, ReportRequest, RunOptions, Session, SqlState, Undivided, Wanted,
};
use uplake_experiment::Report;

use crate::{block_on, session};

/// 900 users with ids, of whom 700 have events; keys and times can be NULL.
const DATA: &str = "
CREATE TABLE exposures (exp INT, user_id TEXT, variant TEXT, ts TIMESTAMP, country TEXT, shop TEXT)
  CLUSTERED BY (user_id) ID DOMAINS (user_id users);
INSERT INTO exposures SELECT value % 3, CASE WHEN value % 50 = 7 THEN NULL ELSE concat('u', CAST(value % 900 AS VARCHAR)) END,
  CASE WHEN value % 900 = 11 THEN 'z' WHEN (value % 900) % 97 = 5 AND value > 1000 THEN 'b' WHEN (value % 900) % 2 = 0 THEN 'a' ELSE 'b' END,
  CASE WHEN value % 71 = 3 THEN NULL ELSE to_timestamp_micros(1791756000000000 + ((value * 7919) % 2419200) * 1000000) END,
  CASE WHEN value % 3 = 0 THEN 'DE' WHEN value % 3 = 1 THEN 'FR' END, concat('s', CAST(value % 900 % 40 AS VARCHAR))
  FROM generate_series(1, 3000) AS s(value);
CREATE TABLE events (user_id TEXT, ts TIMESTAMP, event TEXT, amount DOUBLE, n INT)
  CLUSTERED BY (user_id, ts) ID DOMAINS (user_id users);
INSERT INTO events SELECT CASE WHEN value % 90 = 4 THEN NULL ELSE concat('u', CAST((value * 104729) % 700 AS VARCHAR)) END,
  to_timestamp_micros(1791151200000000 + ((value * 15485863) % 3024000) * 1000000),
  CASE (value * 31) % 5 WHEN 0 THEN 'buy' WHEN 1 THEN 'cart' ELSE 'view' END,
  CASE WHEN value % 11 = 0 THEN NULL WHEN value % 13 = 0 THEN -0.7 ELSE 0.1 + CAST((value * 7907) % 10007 AS DOUBLE) / 300.0 END,
  CAST(value AS INT) FROM generate_series(1, 12000) AS s(value)";

const DEFINITION: &str = r#"
name = "NAME"
PERIOD
time_zone = "Europe/Berlin"
[exposures]
table = "exposures"
user = "user_id"
variant = "variant"
time = "ts"
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
table = "events"
value = "amount"
where = "event = 'buy'"
[[metric]]
name = "capped"
type = "mean"
table = "events"
value = "amount"
cap = "90 %"
[[metric]]
name = "price"
type = "ratio"
table = "events"
numerator = { value = "amount", where = "event = 'buy'" }
denominator = { value = "1", where = "event = 'buy'" }
MORE
[[dimension]]
name = "country"
"#;

const MORE: &str = r#"
[[metric]]
name = "before"
type = "mean"
table = "events"
value = "amount"
cuped = { pre = "7 days" }
[[metric]]
name = "median"
type = "quantile"
table = "events"
value = "amount"
level = 0.5
[[metric]]
name = "p90 of events"
type = "quantile"
table = "events"
value = "amount"
level = 0.9
per = "row"
[[metric]]
name = "back"
type = "retention"
table = "events"
window = { from = "2 days", to = "5 days" }
[[metric]]
name = "kinds"
type = "distinct"
table = "events"
value = "event"
[[metric]]
name = "way"
type = "funnel"
table = "events"
window = "6 days"
steps = [{ name = "view", where = "event = 'view'" }, { name = "buy", where = "event = 'buy'" }]
[[path]]
name = "to payment"
table = "events"
event = "event"
from = "event = 'view'"
to = "event = 'buy'"
"#;

/// Questions that differ in who computes what: parts, SQL in parts, or this process alone.
fn definitions() -> Vec<String> {
    let period = "start = \"2026-10-12\"\nend = \"2026-11-09\"";
    let followed = format!("{period}\nin_progress = \"exclude\"\ndays_since_exposure = 3");
    let exclude = "exclude = [{ table = \"events\", where = \"n % 40 = 3\" }]";
    let activated = "activated_by = { table = \"events\", where = \"event = 'cart'\" }";
    let definition = |name: &str, period: &str, exposed: &str, more: &str| {
        let text = DEFINITION.replace("NAME", name).replace("PERIOD", period);
        text.replace("EXPOSED", exposed).replace("MORE", more)
    };
    vec![
        definition("all", period, "", MORE),
        definition("first", period, "where = \"exp = 0\"", ""),
        definition("followed", &followed, exclude, MORE),
        definition("for ever", "", "where = \"extract(hour FROM ts) > 5\"", ""),
        definition("activated", period, activated, ""),
        definition("shops", period, "cluster = \"shop\"", ""),
        definition("of a few", period, "where = \"exp IN (SELECT min(exp) FROM exposures)\"", ""),
    ]
}

/// [`definitions`], each alone, one with another beside it, and all but the last together.
fn requests(session: &Session) -> Vec<Vec<ReportRequest>> {
    let texts = definitions();
    let read =
        |text: &String| block_on(Definitions::new(session.lake()).read(text, "t.toml")).unwrap();
    let request = |text: &String, overlap: Option<&String>| {
        let overlap = overlap.map(|text| read(text).experiment().clone());
        let dimensions = vec!["country".to_owned()];
        let options = ReportOptions {
            dimensions,
            overlap: overlap.into_iter().collect(),
            ..ReportOptions::default()
        };
        ReportRequest::new(read(text), &options).unwrap()
    };
    let mut all: Vec<Vec<ReportRequest>> =
        texts.iter().map(|text| vec![request(text, None)]).collect();
    all.push(vec![request(&texts[0], Some(&texts[1]))]);
    all.push(texts[..6].iter().map(|text| request(text, None)).collect());
    all
}

fn made(session: &Session, requests: &[ReportRequest]) -> Vec<Result<Report, EngineError>> {
    block_on(session.report(requests, RunOptions::default()))
}

/// All that a report is written as.
fn written(report: &Report) -> [String; 4] {
    [report.to_json(), report.to_html(), report.to_csv(), report.to_text(100, false)]
}

/// What becomes of the parts of a report.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Parts {
    AreRight,
    AreOne,
    CannotBeHad,
    TakeTooMuch,
    AreLost,
    AreStopped,
    AreMissing,
    AreThereTwice,
    AreOfOthers,
    AreDamaged,
}

/// Parts of reports with something wrong; statements are as they are.
#[derive(Debug)]
struct Faulty {
    inner: HereInParts,
    parts: Parts,
    /// Reports that were asked for.
    asked: Arc<AtomicUsize>,
}

impl Elsewhere for Faulty {
    fn whole_rows(&self) -> u64 {
        self.inner.whole_rows()
    }

    fn divide(&self, wanted: &Wanted<'_>) -> Result<Vec<Placed>, Undivided> {
        self.inner.divide(wanted)
    }

    fn of(&self, warehouse: &str) -> Arc<dyn Elsewhere> {
        self.inner.of(warehouse)
    }

    fn too_little(&self, rows: u64, remote_bytes: u64) -> Option<String> {
        self.inner.too_little(rows, remote_bytes)
    }

    fn rows(&self, mut asked: Asked) -> PartRows {
        // See `portable/fragment.rs`.
        if asked.fragment.bytes.get(4) != Some(&1) {
            return self.inner.rows(asked);
        }
        self.asked.fetch_add(1, Ordering::Relaxed);
        let failed = |error: EngineError| stream::iter([Err(PartError::from(error))]).boxed();
        match self.parts {
            Parts::AreRight => self.inner.rows(asked),
            Parts::AreOne => {
                asked.parts.truncate(1);
                asked.parts[0].share = asked.parts[0].share.of_all();
                self.inner.rows(asked)
            }
            Parts::CannotBeHad => changed(self.inner.rows(asked), |_| None),
            Parts::TakeTooMuch => {
                let (code, message) = (SqlState::OutOfMemory, "a node has no memory".to_owned());
                failed(EngineError::Limit(Problem { code, message, hint: None, position: None }))
            }
            Parts::AreLost => failed(EngineError::execution(SqlState::IoError, "lost twice")),
            Parts::AreStopped => {
                failed(EngineError::execution(SqlState::QueryCanceled, "stopped by someone"))
            }
            Parts::AreMissing => {
                asked.parts.pop();
                self.inner.rows(asked)
            }
            Parts::AreThereTwice => {
                self.inner.rows(asked.clone()).chain(self.inner.rows(asked)).boxed()
            }
            Parts::AreOfOthers => {
                let part = asked.parts[1].share.clone();
                asked.parts[0].share = part;
                self.inner.rows(asked)
            }
            Parts::AreDamaged => {
                changed(self.inner.rows(asked), |cells| Some(&cells[..cells.len() - 1]))
            }
        }
    }
}

fn changed(rows: PartRows, change: fn(&[u8]) -> Option<&[u8]>) -> PartRows {
    let rows = rows.map_ok(move |batch| {
        let mut columns = batch.columns().to_vec();
        let cells = columns[2].as_binary::<i64>();
        let cells: LargeBinaryArray = cells.iter().map(|cells| change(cells?)).collect();
        columns[2] = Arc::new(cells);
        RecordBatch::try_new(batch.schema(), columns).unwrap()
    });
    rows.boxed()
}

fn in_parts(folder: &Path, count: u32, parts: Parts) -> (Session, Arc<AtomicUsize>) {
    let inner = HereInParts { parts: count, whole_rows: 0 };
    let asked = Arc::<AtomicUsize>::default();
    let faulty = Faulty { inner, parts, asked: Arc::clone(&asked) };
    (session(folder, 1 << 30, 2).with_elsewhere(Arc::new(faulty)), asked)
}

#[test]
fn reports_in_parts_are_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let whole = session(folder.path(), 1 << 30, 2);
    block_on(whole.query(DATA)).unwrap();
    let all = requests(&whole);
    let texts = |session: &Session, requests: &[ReportRequest]| -> Vec<[String; 4]> {
        made(session, requests).into_iter().map(|report| written(&report.unwrap())).collect()
    };
    let expected: Vec<Vec<[String; 4]>> =
        all.iter().map(|requests| texts(&whole, requests)).collect();
    assert!(expected[0][0][0].len() > 10_000, "there is something in them");
    for count in [1, 2, 3, 7] {
        let (parts, asked) = in_parts(folder.path(), count, Parts::AreRight);
        for (number, (requests, expected)) in all.iter().zip(&expected).enumerate() {
            let before = asked.load(Ordering::Relaxed);
            assert!(texts(&parts, requests) == *expected, "{number} of {count} parts");
            let in_parts = asked.load(Ordering::Relaxed) - before;
            // Activated users and shops are SQL's, and what subqueries read is in no part.
            let is_alone = [4, 5, 6].contains(&number);
            assert_eq!(in_parts, usize::from(!is_alone), "{number} of {count} parts");
            assert_eq!(parts.usage().memory_bytes, 0);
        }
    }
    // A setting does the same for whoever may divide.
    block_on(whole.query("SET uplake.elsewhere = 'here:3'")).unwrap();
    assert!(texts(&whole, &all[0]) == expected[0]);
}

/// A report is the right one or an error, never another one.
#[test]
fn parts_that_are_wrong_make_no_wrong_report() {
    let folder = tempfile::tempdir().unwrap();
    let whole = session(folder.path(), 1 << 30, 2);
    block_on(whole.query(DATA)).unwrap();
    let requests = requests(&whole).pop().unwrap();
    let expected: Vec<_> =
        made(&whole, &requests).into_iter().map(|report| written(&report.unwrap())).collect();
    for (what, fails) in [
        (Parts::AreOne, None),
        // Then SQL answers, in this process.
        (Parts::CannotBeHad, None),
        (Parts::TakeTooMuch, None),
        (Parts::AreLost, Some(SqlState::IoError)),
        (Parts::AreStopped, Some(SqlState::QueryCanceled)),
        (Parts::AreMissing, Some(SqlState::InternalError)),
        (Parts::AreThereTwice, Some(SqlState::InternalError)),
        (Parts::AreOfOthers, Some(SqlState::InternalError)),
        (Parts::AreDamaged, Some(SqlState::InternalError)),
    ] {
        let (parts, asked) = in_parts(folder.path(), 3, what);
        for (number, report) in made(&parts, &requests).into_iter().enumerate() {
            match (report, fails) {
                (Ok(report), None) => assert!(written(&report) == expected[number], "{what:?}"),
                // Those that nodes had nothing to do with.
                (Ok(report), Some(_)) if number >= 4 => {
                    assert!(written(&report) == expected[number], "{what:?}");
                }
                (Err(error), Some(code)) if number < 4 => {
                    assert_eq!(error.code(), code, "{what:?}: {error}");
                }
                (report, _) => panic!("{what:?} {number}: {:?}", report.map(|r| r.to_csv())),
            }
        }
        if fails.is_some() {
            assert_eq!(asked.load(Ordering::Relaxed), 1, "{what:?}: nodes are not asked again");
        }
        assert_eq!(parts.usage().memory_bytes, 0);
    }
}
