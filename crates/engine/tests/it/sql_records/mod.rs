//! The records of tests/sql/*.slt, all in this process; tests/sql/run.py says what the format means.
//!
//! Every file is run in four ways, each on a lake of its own, and its expected rows must come of all:
//! - plain: every record has a session of its own, as if it were a process of its own;
//! - indexed: one session; all columns of whole numbers and text are indexed when their table was made;
//! - in a bucket: as indexed, on the simulated S3 server;
//! - in parts: every record has a session of its own, and its statement is cut into 1, 2, 3 and 7 parts that travel,
//!   where it can be.
//!
//! # Invariants
//! - A query is asked three times in a row: the second time its plan is there, the third its columns.
//! - Indexing is a commit, so later versions are counted one higher; what shows versions or layouts
//!   (SHOW, DESCRIBE) is asked in the plain way alone.
//!
//! # Not here
//! What the command adds to errors and rows: tests/sql/test_sql_files.py runs a few files through it.

mod format;
mod text;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use futures::TryStreamExt;
use regex::Regex;
use uplake_engine::{Answer, EngineError, HereInParts, Session, SessionOptions, parse};
use uplake_faulty_s3::{Faults, Server};
use uplake_table::{AsOf, IndexSpec, Lake, ReindexOptions, StorageOptions, reindex};

use self::format::{Expected, Record, records};
use self::text::{letters, lines};
use crate::{block_on, bucket_session, options};

const TIMES: usize = 3;
const MEMORY_BYTES: usize = 1 << 30;
const THREADS: usize = 2;

static CREATED: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"(?i)^\s*create\s+table\s+(?:if\s+not\s+exists\s+)?("[^"]+"|\w+)"#).unwrap()
});
static VERSION: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?i)(version\s+as\s+of\s+'?)([1-9])\b").unwrap());
/// A change is no query, though RETURNING may follow.
static WRITES: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?i)^\s*(insert|update|delete)\b").unwrap());
static SHOWS_LAYOUT: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?i)^\s*(show|describe)\b").unwrap());
static EXPLAINS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?i)^\s*explain\b").unwrap());
static ORDERS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?i)\border\s+by\b").unwrap());
static INDEXABLE: [&str; 5] = ["text", "bigint", "integer", "smallint", "tinyint"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Plain,
    Indexed,
    Bucket,
    /// Every record in a session of its own, its statement in so many parts if it can be.
    InParts {
        parts: u32,
        whole_rows: u64,
    },
    /// The same; every plan of a query travels, or is refused.
    Travel,
}

/// Plans that travelled, and why others did not.
#[derive(Default)]
struct Travels {
    arrived: usize,
    refused: Vec<String>,
}

static TRAVELS: LazyLock<Mutex<Travels>> = LazyLock::new(Mutex::default);

#[test]
fn every_record_holds() {
    check_all(Way::Plain);
}

#[test]
fn every_record_holds_with_indexes() {
    check_all(Way::Indexed);
}

#[test]
fn every_record_holds_in_a_bucket() {
    check_all(Way::Bucket);
}

#[test]
fn every_record_holds_in_parts() {
    let ways = [(1, 0), (2, u64::MAX), (3, 0), (7, u64::MAX)];
    let ways = ways.map(|(parts, whole_rows)| Way::InParts { parts, whole_rows });
    let failures: Vec<String> = ways.into_iter().flat_map(failures).collect();
    assert!(failures.is_empty(), "{} records failed:\n{}", failures.len(), failures.join("\n"));
}

/// What is not equal after the round trip is refused, which costs speed: few plans may be.
#[test]
fn plans_travel() {
    let failures = failures(Way::Travel);
    let Travels { arrived, mut refused } = std::mem::take(&mut *TRAVELS.lock().unwrap());
    let all = arrived + refused.len();
    refused.sort_unstable();
    println!("{arrived} of {all} plans travel; others do not:\n{}", refused.join("\n"));
    assert!(failures.is_empty(), "{} records failed:\n{}", failures.len(), failures.join("\n"));
    assert!(all > 1000 && arrived * 100 >= all * 95, "{arrived} of {all}");
}

fn check_all(way: Way) {
    let failures = failures(way);
    assert!(failures.is_empty(), "{} records failed:\n{}", failures.len(), failures.join("\n"));
}

/// What is wrong with each record that does not hold.
fn failures(way: Way) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/sql");
    let files: BTreeSet<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "slt"))
        .collect();
    assert!(!files.is_empty(), "there are no files");
    let (left, failures) = (Mutex::new(files.iter()), Mutex::new(Vec::new()));
    let check = || {
        let next = || left.lock().unwrap().next();
        while let Some(file) = next() {
            let found = block_on(check_file(file, way));
            failures.lock().unwrap().extend(found);
        }
    };
    thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(check))));
    failures.into_inner().unwrap()
}

/// What is wrong with each record of a file that does not hold.
async fn check_file(path: &Path, way: Way) -> Vec<String> {
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let text = fs::read_to_string(path).unwrap();
    let mut ground = Ground::new(way).await;
    let mut failures = Vec::new();
    for record in records(&text).unwrap_or_else(|problem| panic!("{name}: {problem}")) {
        if let Err(problem) = ground.check(&record).await {
            let Record { line, sql, .. } = &record;
            failures.push(format!("{name}:{line} ({way:?})\n{sql}\n{problem}\n"));
        }
    }
    failures
}

/// A lake for one file.
struct Ground {
    way: Way,
    folder: tempfile::TempDir,
    session: Session,
    /// One clock for all sessions of the lake.
    options: SessionOptions,
    /// Replaces `$TMP`.
    substitutes: bool,
    _server: Option<Server>,
}

impl Ground {
    async fn new(way: Way) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = options(MEMORY_BYTES, THREADS);
        let (session, server) = if way == Way::Bucket {
            let server = Server::start(1, Faults::none(6)).await.unwrap();
            (bucket_session(&server, StorageOptions::default(), None), Some(server))
        } else {
            (session_in(folder.path(), &options), None)
        };
        Self { way, folder, session, options, substitutes: false, _server: server }
    }

    async fn check(&mut self, record: &Record) -> Result<(), String> {
        if let Expected::Substitution(on) = record.expected {
            self.substitutes = on;
            return Ok(());
        }
        if let Way::InParts { parts, whole_rows } = self.way {
            let session = self.session.engine().session();
            self.session = session.with_elsewhere(Arc::new(HereInParts { parts, whole_rows }));
            // Rows change parts, too, however few they are.
            let always = self.session.query("SET uplake.elsewhere = 'always'").await;
            always.map_err(|error| error.to_string())?;
        } else if self.way == Way::Travel {
            self.session = self.session.engine().session();
        } else if self.way == Way::Plain {
            self.session = session_in(self.folder.path(), &self.options);
        } else if SHOWS_LAYOUT.is_match(&record.sql) {
            return Ok(());
        }
        let sql = self.sql(record);
        let is_query = record.is_query && !WRITES.is_match(&sql);
        if self.way == Way::Travel && is_query && !record.expected.is_error() {
            self.travel(&sql).await?;
            return Ok(());
        }
        let in_parts = matches!(self.way, Way::InParts { .. });
        // Operators that are shown are others.
        if in_parts && EXPLAINS.is_match(&sql) {
            return Ok(());
        }
        let times = if is_query && !in_parts { TIMES } else { 1 };
        for time in 1..=times {
            let answer = answer(&self.session, &sql).await;
            self.session.take_warnings();
            // Rows of parts come in another order.
            let orders = !in_parts || ORDERS.is_match(&sql);
            judge(record, answer, orders)
                .map_err(|problem| format!("{problem}\n(asked for time {time} of {times})"))?;
        }
        match CREATED.captures(&record.sql) {
            Some(created) if !self.is_plain() && !record.expected.is_error() => {
                self.index(&created[1]).await
            }
            _ => Ok(()),
        }
    }

    /// Has every record a session of its own, and no table an index?
    fn is_plain(&self) -> bool {
        matches!(self.way, Way::Plain | Way::InParts { .. } | Way::Travel)
    }

    /// Counts whether the plans of a text arrive as they are.
    async fn travel(&self, sql: &str) -> Result<(), String> {
        for statement in parse(sql).into_iter().flatten() {
            // What is refused, or is no query, has no plan.
            let Ok(Some(travel)) = self.session.travels(&statement).await else { continue };
            let mut travels = TRAVELS.lock().unwrap();
            match travel {
                Ok(()) => travels.arrived += 1,
                Err(why) => travels.refused.push(format!("{why}: {}", statement.text)),
            }
        }
        Ok(())
    }

    fn sql(&self, record: &Record) -> String {
        let mut sql = record.sql.clone();
        if self.substitutes {
            sql = sql.replace("$TMP", self.folder.path().to_str().unwrap());
        }
        if self.is_plain() {
            return sql;
        }
        let higher = |found: &regex::Captures<'_>| {
            format!("{}{}", &found[1], found[2].parse::<u64>().unwrap() + 1)
        };
        VERSION.replace_all(&sql, higher).into_owned()
    }

    /// Indexes all that can be indexed, unless the table has indexes already.
    async fn index(&self, table: &str) -> Result<(), String> {
        let described = answer(&self.session, &format!("DESCRIBE {table}")).await?;
        let Rows { schema, batches } = described.rows().ok_or("DESCRIBE has no rows")?;
        let at = |name: &str| schema.index_of(name).map_err(|error| error.to_string());
        let (name_at, kind_at, layout_at) = (at("column_name")?, at("data_type")?, at("layout")?);
        let mut add = Vec::new();
        for row in text::values(&batches) {
            let (name, kind, layout) = (&row[name_at], row[kind_at].as_str(), &row[layout_at]);
            if layout.contains("index") {
                return Ok(());
            }
            // Blanks are tabs in what records hold.
            let odd = name.contains([',', ':', '\t']) || name.trim() != name;
            if layout.contains("partition") || odd || !INDEXABLE.contains(&kind) {
                continue;
            }
            let kinds: &[&str] = if kind == "text" { &["", ":words", ":ngrams"] } else { &[""] };
            for suffix in kinds {
                let spec: Result<IndexSpec, _> = format!("{name}{suffix}").parse();
                add.push(spec.map_err(|error| error.to_string())?);
            }
        }
        let folder = match table.strip_prefix('"') {
            Some(quoted) => quoted.trim_end_matches('"').to_owned(),
            None => table.to_lowercase(),
        };
        let now_millis = (self.options.clock)();
        let options =
            ReindexOptions { add, threads: THREADS, now_millis, ..ReindexOptions::default() };
        let lake = self.session.lake();
        let base =
            lake.snapshot(&folder, &AsOf::Latest).await.map_err(|error| error.to_string())?;
        reindex(lake, &base, &options).await.map_err(|error| error.to_string())?;
        Ok(())
    }
}

/// A session on the lake in `folder` as a new process has it.
fn session_in(folder: &Path, options: &SessionOptions) -> Session {
    let lake = Lake::open(folder.join("lake").to_str().unwrap()).unwrap();
    Session::new(lake, options).unwrap()
}

struct Rows {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

enum Found {
    Rows(Rows),
    Count(Option<u64>),
}

impl Found {
    fn rows(self) -> Option<Rows> {
        match self {
            Self::Rows(rows) => Some(rows),
            Self::Count(_) => None,
        }
    }
}

/// The answer of the last statement in `sql`, or the message of the first error.
async fn answer(session: &Session, sql: &str) -> Result<Found, String> {
    let mut found = Found::Count(None);
    for statement in parse(sql).map_err(message)? {
        found = match session.run(&statement).await.map_err(message)? {
            Answer::Done { rows, .. } => Found::Count(rows),
            Answer::Rows { schema, stream } => {
                Found::Rows(Rows { schema, batches: stream.try_collect().await.map_err(message)? })
            }
        };
    }
    Ok(found)
}

/// An error with its causes, as the command says it.
fn message(error: impl Into<EngineError>) -> String {
    let error: EngineError = error.into();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(next) = cause {
        let more = next.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = next.source();
    }
    text
}

fn judge(record: &Record, answer: Result<Found, String>, orders: bool) -> Result<(), String> {
    match (&record.expected, answer) {
        (Expected::Error(pattern), Err(message)) if pattern.is_match(&message) => Ok(()),
        (Expected::Error(pattern), Err(message)) => {
            Err(format!("expected an error like: {pattern}\ngot: {message}"))
        }
        (Expected::Error(_), Ok(_)) => Err("it should fail, but it did not".to_owned()),
        (_, Err(message)) => Err(message),
        (Expected::Count(rows), Ok(found)) => match found {
            Found::Count(Some(got)) if got == *rows => Ok(()),
            Found::Count(got) => Err(format!("expected {rows} rows, got {got:?}")),
            Found::Rows(_) => Err(format!("expected {rows} rows written, got an answer")),
        },
        (Expected::Rows { types, rows, any_order }, Ok(found)) => {
            let found = found.rows().ok_or("expected rows, but it has none")?;
            compare(types, rows, *any_order || !orders, &found)
        }
        (Expected::Done | Expected::Substitution(_), Ok(_)) => Ok(()),
    }
}

fn compare(types: &str, rows: &[String], any_order: bool, found: &Rows) -> Result<(), String> {
    let kinds: Vec<&DataType> = found.schema.fields().iter().map(|f| f.data_type()).collect();
    let got = letters(&kinds);
    let alike = |(a, b): (char, char)| a == b || a == '?' || b == '?';
    if got.len() != types.len() || !got.chars().zip(types.chars()).all(alike) {
        return Err(format!("expected column types {types}, got {got}"));
    }
    let (mut want, mut got) = (rows.to_vec(), lines(&found.batches));
    if any_order {
        want.sort();
        got.sort();
    }
    if want == got {
        return Ok(());
    }
    Err(format!("expected:\n{}\ngot:\n{}", want.join("\n"), got.join("\n")))
}
