//! Reports from definitions, how far they are, and engines that share memory.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use uplake_engine::{
    Answer, Definition, Definitions, Engine, EngineError, ErrorKind, LastResults, MetricCatalogue,
    MetricSet, ProgressCounts, QueryProgress, ReportOptions, ReportRequest, RunOptions, Session,
    SharedMemory, SqlState, last_results, list_experiments, parse, save_report,
};
use uplake_experiment::definition::{State, Use, metrics_of};
use uplake_experiment::{Report, alternatives, analyze};
use uplake_table::{Lake, Versioned};

use crate::{block_on, options, session};

/// Of 1000 users half are in each arm; each has five events. 7 exposures have no arm that is known.
const DATA: &str = "
CREATE TABLE exposures AS SELECT concat('u', CAST(value AS VARCHAR)) AS user_id,
  CASE WHEN value > 1000 THEN 'z' WHEN value % 2 = 0 THEN 'a' ELSE 'b' END AS variant,
  arrow_cast('2026-11-02T12:00:00', 'Timestamp(Microsecond, None)') AS ts,
  CASE WHEN value % 3 = 0 THEN 'DE' ELSE 'FR' END AS country
  FROM generate_series(1, 1007) AS s(value);
CREATE TABLE events AS SELECT concat('u', CAST(value % 1000 + 1 AS VARCHAR)) AS user_id,
  arrow_cast('2026-11-03T00:00:00', 'Timestamp(Microsecond, None)') AS ts,
  CAST(value % 7 AS DOUBLE) AS amount FROM generate_series(1, 5000) AS s(value);
CREATE TABLE other AS SELECT * FROM events";

const EXPOSURES: u64 = 1007;
const EVENTS: u64 = 5000;
/// 2026-11-03T00:00:00Z.
const NOW: i64 = 1_793_664_000_000;

/// A definition with one metric.
fn text(name: &str, metric: &str) -> String {
    format!(
        "name = \"{name}\"\nstart = \"2026-11-02\"\nend = \"2026-11-05\"\n[exposures]\ntable = \"exposures\"\n\
         user = \"user_id\"\nvariant = \"variant\"\ntime = \"ts\"\n[[variant]]\nname = \"a\"\nshare = 0.5\n\
         [[variant]]\nname = \"b\"\nshare = 0.5\n[[dimension]]\nname = \"country\"\n[[metric]]\n{metric}\n"
    )
}

fn mean(table: &str, value: &str) -> String {
    format!("name = \"spend\"\ntype = \"mean\"\ntable = \"{table}\"\nvalue = \"{value}\"")
}

fn read(session: &Session, text: &str) -> Definition {
    block_on(Definitions::new(session.lake()).read(text, "t.toml")).unwrap()
}

fn request(session: &Session, name: &str, table: &str, value: &str) -> ReportRequest {
    let definition = read(session, &text(name, &mean(table, value)));
    let options = ReportOptions { dimensions: vec!["country".into()], ..ReportOptions::default() };
    ReportRequest::new(definition, &options).unwrap()
}

fn reports(session: &Session, requests: &[ReportRequest]) -> Vec<Result<Report, EngineError>> {
    block_on(session.report(requests, RunOptions::default()))
}

fn with_data(folder: &Path) -> Session {
    let session = session(folder, 1 << 30, 2);
    block_on(session.query(DATA)).unwrap();
    session
}

#[test]
fn a_definition_that_fails_keeps_no_other_from_its_report() {
    let folder = tempfile::tempdir().unwrap();
    let session = with_data(folder.path());
    let requests = [
        request(&session, "good", "events", "amount"),
        request(&session, "misspelt", "events", "amout"),
        request(&session, "nowhere", "evnts", "amount"),
        request(&session, "last", "events", "amount * 2"),
    ];
    let made = reports(&session, &requests);
    assert_eq!(made.len(), 4);
    for (number, says) in [(1, "amout"), (2, "evnts")] {
        let error = made[number].as_ref().unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    for number in [0, 3] {
        let together = made[number].as_ref().unwrap();
        let alone = reports(&session, &requests[number..=number]).remove(0).unwrap();
        assert_eq!(together.to_json(), alone.to_json());
        assert_eq!(together.experiment, requests[number].experiment().name);
    }
    assert!(reports(&session, &[]).is_empty());
}

#[test]
fn a_table_that_cannot_be_read_is_the_business_of_those_that_read_it() {
    let folder = tempfile::tempdir().unwrap();
    drop(with_data(folder.path()));
    let log = folder.path().join("lake/other/_delta_log");
    let mut commits = std::fs::read_dir(&log).unwrap().map(|file| file.unwrap().path());
    let commit = commits.find(|path| path.extension().is_some_and(|e| e == "json")).unwrap();
    std::fs::write(commit, "").unwrap();
    let session = session(folder.path(), 1 << 30, 2);
    let requests = ["other", "events"].map(|table| request(&session, table, table, "amount"));
    let made = reports(&session, &requests);
    assert!(matches!(made[0], Err(EngineError::Table(_) | EngineError::Execution(_))));
    let report = made[1].as_ref().unwrap();
    assert_eq!(report.arms.iter().map(|arm| arm.units).sum::<u64>(), 1000);
}

/// The second path: moments, then the analysis, by hand.
#[test]
fn a_report_is_the_analysis_of_its_moments() {
    let folder = tempfile::tempdir().unwrap();
    let session = with_data(folder.path());
    let request = request(&session, "e", "events", "amount");
    let mut made = reports(&session, std::slice::from_ref(&request)).remove(0).unwrap();
    let (experiment, query) = (request.experiment(), request.query());
    let moments = block_on(session.moments(query)).unwrap();
    let mut expected = analyze(experiment, query, &moments).unwrap();
    expected.alternatives = alternatives(experiment, query, &moments).unwrap();
    let reproduce = made.reproduce.take().unwrap();
    assert_eq!((made.to_json(), made.to_html()), (expected.to_json(), expected.to_html()));
    assert_eq!(reproduce.definition, text("e", &mean("events", "amount")));
    assert_eq!(reproduce.sql, block_on(session.moments_sql(query)).unwrap());
    let tables = ["events", "exposures"].map(str::to_owned);
    assert_eq!(reproduce.tables, block_on(session.pinned(&tables)).unwrap().1);
    assert_eq!(reproduce.tables.len(), 2);
}

#[test]
fn what_a_definition_does_not_have_is_refused_before_any_table_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), 1 << 30, 2);
    let definition = read(&session, &text("e", &mean("events", "amount")));
    let unknown = |options| ReportRequest::new(definition.clone(), &options).unwrap_err();
    let name = || vec!["city".to_owned()];
    for options in [
        ReportOptions { dimensions: name(), ..ReportOptions::default() },
        ReportOptions { metrics: name(), ..ReportOptions::default() },
    ] {
        let error = unknown(options);
        assert!(matches!(error, EngineError::Definition(_)), "{error}");
        assert!(error.to_string().contains("`city`"), "{error}");
    }
    let itself = ReportOptions {
        overlap: vec![definition.experiment().clone()],
        ..ReportOptions::default()
    };
    let request = ReportRequest::new(definition.clone(), &itself).unwrap();
    assert!(request.query().others.is_empty(), "nobody is told apart from himself");
}

#[test]
fn metrics_results_and_definitions_are_kept_in_the_lake() {
    let folder = tempfile::tempdir().unwrap();
    let session = with_data(folder.path());
    let lake = session.lake();
    let metric = |value: &str| {
        let text = format!("[[metric]]\n{}", mean("events", value));
        metrics_of(&text, "m.toml").unwrap().remove(0)
    };
    block_on(async {
        let set = async |value| {
            MetricCatalogue::read(lake).await.unwrap().set(&metric(value), NOW).await.unwrap()
        };
        assert_eq!(set("amount").await, MetricSet { version: 1, is_new: true });
        assert_eq!(set("amount").await, MetricSet { version: 1, is_new: false });
        let before = MetricCatalogue::read(lake).await.unwrap();
        assert_eq!(set("amount * 2").await, MetricSet { version: 2, is_new: true });
        let lost = before.set(&metric("amount * 3"), NOW).await.unwrap_err();
        assert_eq!(lost.kind(), ErrorKind::Conflict, "{lost}");
        let catalogue = MetricCatalogue::read(lake).await.unwrap();
        let find = async |name| catalogue.find(&Use::parse(name).unwrap()).await;
        assert_eq!(find("spend").await.unwrap().0, 2);
        let first = find("spend@1").await.unwrap();
        assert_eq!(first.1.set_at.as_deref(), Some("2026-11-03T00:00:00Z"));
        for name in ["spend@3", "revenue"] {
            let missing = find(name).await.unwrap_err();
            assert_eq!(missing.kind(), ErrorKind::Missing, "{missing}");
        }
        let versions = catalogue.history("spend").await.unwrap();
        assert_eq!(versions.iter().map(|(version, _)| *version).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(catalogue.problem("spend").await.unwrap(), None);

        let written = text("e", "use = \"spend\"");
        lake.put_experiment("e", &written, false).await.unwrap();
        let definition = Definitions::new(lake).named("e").await.unwrap().unwrap();
        assert_eq!(definition.pinned(), text("e", "use = \"spend@2\""));
        assert!(Definitions::new(lake).named("f").await.unwrap().is_none());
        let request = ReportRequest::new(definition, &ReportOptions::default()).unwrap();
        let report = session.report(&[request], RunOptions::default()).await.remove(0).unwrap();

        for number in [1, 2] {
            assert_eq!(save_report(lake, &report, NOW).await.unwrap(), number);
        }
        let saved = lake.version(Versioned::Result, "e", 2).await.unwrap().unwrap().0;
        assert!(saved.starts_with(r#"{"saved_at":"2026-11-03T00:00:00Z","#), "{saved}");
        std::fs::write(folder.path().join("lake/_uplake/results/e/00000003.json"), "{}").unwrap();
        let LastResults { results, unreadable } = last_results(lake).await.unwrap();
        assert!(results.is_empty());
        let codes: Vec<SqlState> = unreadable.iter().map(EngineError::code).collect();
        assert_eq!(codes, [SqlState::DataCorrupted], "{unreadable:?}");
        std::fs::remove_file(folder.path().join("lake/_uplake/results/e/00000003.json")).unwrap();

        lake.put_experiment("wrong", "name = 1", false).await.unwrap();
        let listed = list_experiments(lake, NOW).await.unwrap();
        assert!(listed.unreadable.is_empty());
        let [e, wrong] = listed.experiments.as_slice() else { panic!("{listed:?}") };
        assert_eq!((e.name.as_str(), wrong.name.as_str()), ("e", "wrong"));
        assert!(matches!(e.state, Ok(Some(State::Running))) && wrong.experiment.is_err());
        let (version, saved) = e.last.as_ref().unwrap();
        assert_eq!((*version, saved.lifts.len()), (2, 1));
        assert_eq!(saved.verdict.sentence, report.verdict.sentence);
    });
}

/// No count is less than before.
fn expect_no_less(before: ProgressCounts, now: ProgressCounts) {
    let all = |c: ProgressCounts| {
        [c.files_planned, c.files_done, c.rows_read, c.bytes_read, c.rows_answered]
    };
    assert!(all(before).iter().zip(all(now)).all(|(b, n)| *b <= n), "{before:?} {now:?}");
    assert!(now.files_done <= now.files_planned, "{now:?}");
}

#[test]
fn a_statement_says_how_far_it_is_and_ends_at_all_rows() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(folder.path(), 1 << 30, 2);
    let run = async |text: &str, progress: &Arc<QueryProgress>| {
        let options = RunOptions { progress: Some(Arc::clone(progress)), ..RunOptions::default() };
        let Answer::Rows { mut stream, .. } =
            session.run_with(&parse(text).unwrap()[0], options).await.unwrap()
        else {
            panic!("rows")
        };
        let mut before = ProgressCounts::default();
        while let Some(batch) = stream.next().await {
            batch.unwrap();
            let now = progress.counts();
            expect_no_less(before, now);
            before = now;
        }
        progress.counts()
    };
    block_on(async {
        let rows = "SELECT value AS k, value % 10 AS v FROM generate_series(1, 1000) AS s(value)";
        session.query(&format!("CREATE TABLE t AS {rows}")).await.unwrap();
        for _ in 0..2 {
            session.query(&format!("INSERT INTO t {rows}")).await.unwrap();
        }
        session.query("SET datafusion.execution.batch_size = 100").await.unwrap();
        let progress = QueryProgress::new();
        assert_eq!(progress.counts(), ProgressCounts::default());
        let end = run("SELECT k, v FROM t", &progress).await;
        assert_eq!((end.rows_read, end.rows_answered), (3000, 3000), "{end:?}");
        assert!(end.files_planned >= 3 && end.files_done == end.files_planned, "{end:?}");
        assert!(end.bytes_read > 0, "{end:?}");
        let grouped = run("SELECT v, sum(k) FROM t GROUP BY v", &QueryProgress::new()).await;
        assert_eq!((grouped.rows_read, grouped.rows_answered), (3000, 10), "{grouped:?}");
        // Of a statement that follows, what came before stays.
        let again = run("SELECT k, v FROM t", &progress).await;
        assert_eq!((again.rows_read, again.rows_answered), (6000, 6000), "{again:?}");
        let some = run("SELECT k FROM t LIMIT 7", &QueryProgress::new()).await;
        assert_eq!(some.rows_answered, 7);
        let none = run("SHOW TABLES", &QueryProgress::new()).await;
        assert_eq!(none.files_planned, 0, "{none:?}");

        // Text in place is as far as its bytes, beside a table as its files.
        let texts = folder.path().join("texts");
        std::fs::create_dir(&texts).unwrap();
        let line = |n: usize| format!("{n},{}\n", "x".repeat(20));
        let text = format!("k,s\n{}", (0..200_000).map(line).collect::<String>());
        for name in ["a.csv", "b.csv"] {
            std::fs::write(texts.join(name), &text).unwrap();
        }
        let asked = format!("SELECT k, s FROM '{}/'", texts.display());
        let end = run(&asked, &QueryProgress::new()).await;
        assert_eq!((end.rows_read, end.rows_answered), (400_000, 400_000), "{end:?}");
        assert_eq!((end.files_planned, end.files_done), (2, 2), "{end:?}");
        let bytes = 2 * text.len() as u64;
        assert_eq!((end.bytes_planned, end.bytes_read), (bytes, bytes), "{end:?}");
        let joined =
            format!("SELECT t.k FROM t JOIN '{}/a.csv' AS f ON t.k = f.k", texts.display());
        let end = run(&joined, &QueryProgress::new()).await;
        assert!(end.files_planned >= 4 && end.files_done == end.files_planned, "{end:?}");
        assert_eq!((end.bytes_planned, end.rows_answered), (0, 3000), "{end:?}");
    });
}

#[test]
fn reports_say_how_far_they_are_and_read_a_table_once_for_all() {
    let folder = tempfile::tempdir().unwrap();
    let session = with_data(folder.path());
    let rows_of = |requests: &[ReportRequest]| {
        let progress = QueryProgress::new();
        let options = RunOptions { progress: Some(Arc::clone(&progress)), ..RunOptions::default() };
        for report in block_on(session.report(requests, options)) {
            report.unwrap();
        }
        let end = progress.counts();
        expect_no_less(ProgressCounts::default(), end);
        assert!(end.files_planned >= 2, "{end:?}");
        assert_eq!(end.rows_answered, 0, "a report is no rows");
        end.rows_read
    };
    let requests =
        ["amount", "amount * 2", "amount + 1"].map(|value| request(&session, "e", "events", value));
    let alone = rows_of(&requests[..1]);
    assert!(alone >= EXPOSURES + EVENTS, "{alone}");
    // Exposures are each experiment's own.
    let together = rows_of(&requests);
    assert!(together <= alone * 3 - EVENTS * 2, "{together} rows, and {alone} for one");
}

const SHARED: usize = 48 << 20;
/// Keeps 5 MiB in a join as long as its rows are not read to their end. Each row of the other side has its match: where
/// only the first had, one partition would find no more and read on, and a repartition holds what it meets for the
/// partition whose rows nobody takes.
const HOLDS: &str = "SELECT b.s FROM (SELECT value AS v, concat('a long string to be kept ', CAST(value AS VARCHAR)) AS s \
     FROM generate_series(1, 40000) AS g(value)) b JOIN generate_series(1, 1000000000) AS p(value) ON b.v = p.value % 40000 + 1";
/// Needs 23 MiB for what it adds up, which cannot spill, and perhaps as much again to hand it out.
const NEEDS_MOST: &str = "SELECT array_length(array_agg(concat('a long string to be kept ', CAST(value AS VARCHAR)))) \
     FROM generate_series(1, 1500000) AS s(value)";

fn sharing(folder: &Path, memory: &SharedMemory) -> Session {
    let lake = Lake::open(folder.to_str().unwrap()).unwrap();
    Engine::with_memory(lake, &options(SHARED, 2), memory).unwrap().session()
}

#[test]
fn what_one_engine_holds_another_cannot_take() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let memory = SharedMemory::new(SHARED);
    let one = sharing(folders[0].path(), &memory);
    block_on(async {
        let rows = async || -> Result<usize, EngineError> {
            let batches = one.query(NEEDS_MOST).await?;
            Ok(batches.iter().map(|batch| batch.num_rows()).sum())
        };
        assert_eq!(rows().await.unwrap(), 1, "it fits while nobody holds any");
        let statement = parse(HOLDS).unwrap().remove(0);
        let mut held = Vec::new();
        // An engine begins one statement, however much others hold.
        while memory.taken_bytes() < SHARED / 100 * 70 {
            assert!(held.len() < 40, "{} bytes are taken", memory.taken_bytes());
            let session = sharing(folders[1].path(), &memory);
            let Answer::Rows { mut stream, .. } = session.run(&statement).await.unwrap() else {
                panic!("rows")
            };
            stream.next().await.unwrap().unwrap();
            held.push((session, stream));
        }
        let taken = memory.taken_bytes();
        assert!(taken <= SHARED + SHARED / 10, "{taken} bytes are taken");
        assert!(one.usage().memory_bytes > SHARED / 2, "it is the same memory");
        let error = rows().await.unwrap_err();
        assert!(matches!(error, EngineError::Limit { .. }), "{error}");
        drop(held);
        // Rows on their way between threads are free when their tasks have ended.
        let all_free = async || {
            while memory.taken_bytes() > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), all_free()).await.unwrap();
        assert_eq!(rows().await.unwrap(), 1);
        tokio::time::timeout(Duration::from_secs(20), all_free()).await.unwrap();
    });
}
