//! Statements of every kind stopped at seeded moments: nothing of them is left a moment later.
//!
//! What is counted is what could stay: tokio's tasks, bytes in the pool, spill files, reads, threads of
//! writers, locks of tables, places in the queue. `examples/dropped.rs` does the same thousands of times
//! and says how long it took.

use std::fmt;
use std::future::poll_fn;
use std::path::Path;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

#[cfg(test)]
use datafusion::arrow::{array::AsArray, datatypes::Int64Type};
use futures::StreamExt;
use futures::future::join_all;
use uplake_engine::{Answer, EngineError, RunOptions, Session, SessionOptions, Usage, parse};
use uplake_experiment::query::MomentsQuery;
use uplake_experiment::{Experiment, plan};
use uplake_table::{AsOf, InputFile, Lake, LoadOptions, Progress, TableError, expand_inputs, load};

/// So little that sorts spill and groups in arrays give up.
const MEMORY_BYTES: usize = 40 << 20;
const ROWS: usize = 200_000;
/// For everything to be gone; a leak stays forever.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_micros(250);
/// Files after which the table that is written is made anew.
const MOST_FILES: usize = 40;

const DEFINITION: &str = r#"
name = "t"
start = "2026-11-01"
end = "2026-11-04"
[exposures]
table = "exposures"
user = "user_id"
variant = "variant"
time = "ts"
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
cap = "99 %"
[[metric]]
name = "bought"
type = "proportion"
table = "events"
where = "event = 'buy'"
"#;

const SETUP: &str = "
CREATE TABLE events (dt DATE, user_id TEXT, ts TIMESTAMP, n BIGINT, event TEXT, name TEXT, amount DOUBLE)
  PARTITIONED BY (dt) CLUSTERED BY (user_id, ts) INDEXED BY (n, name ngrams) ID DOMAINS (user_id users);
CREATE TABLE exposures (user_id TEXT, variant TEXT, ts TIMESTAMP) CLUSTERED BY (user_id) ID DOMAINS (user_id users);
INSERT INTO events SELECT DATE '2026-11-01' + CAST(value % 3 AS INT), concat('user ', CAST((value * 7919) % 20011 AS VARCHAR)),
  arrow_cast(1793491200000000 + value * 1000000, 'Timestamp(Microsecond, None)'), value,
  CASE value % 5 WHEN 0 THEN 'visit' WHEN 1 THEN 'click' WHEN 2 THEN 'buy' ELSE 'look' END,
  concat('a name that is long enough to take some memory ', CAST((value * 104729) % {ROWS} AS VARCHAR)),
  CAST(value % 1000 AS DOUBLE) / 4 FROM generate_series(1, {ROWS}) AS s(value);
INSERT INTO exposures SELECT concat('user ', CAST(value AS VARCHAR)), CASE value % 2 WHEN 0 THEN 'a' ELSE 'b' END,
  arrow_cast(1793491200000000 + value * 1000000, 'Timestamp(Microsecond, None)') FROM generate_series(1, 15000) AS s(value)";

const SINK: &str = "CREATE TABLE IF NOT EXISTS sink (user_id TEXT, n BIGINT, name TEXT) CLUSTERED BY (user_id) \
                    INDEXED BY (n) ID DOMAINS (user_id users)";

const STATEMENTS: [&str; 22] = [
    "SELECT * FROM events",
    "SELECT name, n FROM events WHERE n % 7 = 3 LIMIT 20000",
    "SELECT sum(n), max(amount) FROM events",
    "SELECT count(*), min(name) FROM events WHERE n IN (1, 500, 70000, 199999)",
    "SELECT count(*) FROM events WHERE name LIKE '%memory 1234%'",
    "SELECT * FROM events WHERE user_id = 'user 77'",
    "SELECT * FROM events ORDER BY name, n",
    "SELECT name, n, row_number() OVER (PARTITION BY event ORDER BY name) FROM events",
    "SELECT user_id, count(*), sum(amount) FROM events GROUP BY user_id",
    "SELECT event, dt, count(DISTINCT user_id), avg(amount) FROM events GROUP BY event, dt",
    "SELECT name, count(*), max(n) FROM events GROUP BY name",
    "SELECT user_id, window_funnel(INTERVAL '1 hour', ts, event = 'visit', event = 'click', event = 'buy') \
     FROM events GROUP BY user_id",
    "WITH u AS (SELECT user_id, min(variant) AS v, min(ts) AS t FROM exposures GROUP BY user_id) \
     SELECT u.v, e.dt, count(*), sum(e.amount) FROM events e JOIN u ON e.user_id = u.user_id AND e.ts >= u.t GROUP BY 1, 2",
    "SELECT a.name, b.n FROM events a JOIN events b ON a.name = b.name AND a.n = b.n",
    "SELECT count(*) FROM events a JOIN exposures b ON a.user_id < b.user_id WHERE a.n < 400",
    "SELECT dt, approx_distinct(name) FROM events GROUP BY dt UNION ALL SELECT dt, count(*) FROM events GROUP BY dt",
    "EXPLAIN ANALYZE SELECT event, count(*) FROM events GROUP BY event",
    "CREATE OR REPLACE ID SET some AS SELECT DISTINCT user_id FROM events WHERE event = 'buy'",
    "INSERT INTO sink SELECT user_id, n, name FROM events",
    "INSERT INTO sink SELECT user_id, n, name FROM events WHERE n < 3000",
    "DELETE FROM gone WHERE n % 2 = 0",
    "COPY (SELECT name, n FROM events) TO '{FOLDER}/copy.parquet'",
];

/// When a statement is stopped.
#[derive(Clone, Copy, Debug)]
enum Moment {
    Polls(u32),
    Batches(u32),
    Dropped(Duration),
    TimedOut(Duration),
    Spilling,
    /// It comes to its end.
    Never,
}

/// A statement and when it is stopped.
#[derive(Clone, Copy, Debug)]
struct Act {
    /// A statement, then a report, then a load.
    kind: usize,
    moment: Moment,
}

/// What is left of statements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    usage: Usage,
    tasks: usize,
    threads: usize,
    locked: bool,
}

/// What was done, and how long something of it was left.
pub struct Outcome {
    pub what: String,
    pub gone_after: Duration,
    /// What stayed longest, if something stayed at all.
    last: Option<Held>,
    pub spilled: bool,
    /// What a statement says that had to stop for want of memory.
    pub refused: Option<String>,
}

/// A lake and a session on it.
pub struct Ground {
    folder: tempfile::TempDir,
    session: Session,
    report: MomentsQuery,
    rows: Vec<InputFile>,
}

/// SplitMix64.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    /// Every order of magnitude as often: 1 to below 2^`bits`.
    fn of_any_size(&mut self, bits: u64) -> u64 {
        let bits = self.below(bits);
        (1 << bits) + self.below(1 << bits)
    }

    fn act(&mut self) -> Act {
        let kind = self.below(STATEMENTS.len() as u64 + 2) as usize;
        let micros = Duration::from_micros(self.of_any_size(18));
        let moment = match self.below(12) {
            0..4 => Moment::Polls(self.of_any_size(9) as u32 - 1),
            4..6 => Moment::Batches(self.of_any_size(6) as u32),
            6..8 => Moment::Dropped(micros),
            8..10 => Moment::TimedOut(micros),
            10 => Moment::Spilling,
            _ => Moment::Never,
        };
        Act { kind, moment }
    }
}

impl Ground {
    pub async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let lake = Lake::open(folder.path().join("lake").to_str().unwrap()).unwrap();
        let spill = folder.path().join("spill");
        std::fs::create_dir(&spill).unwrap();
        let options = SessionOptions {
            memory_bytes: 1 << 30,
            threads: 2,
            as_of: AsOf::Latest,
            spill_folder: Some(spill),
            use_indexes: true,
            at_once: Some(2),
            timeout: None,
            clock: Arc::new(|| 1_793_577_600_000),
        };
        let rich = Session::new(lake.clone(), &options).unwrap();
        rich.query(&SETUP.replace("{ROWS}", &ROWS.to_string())).await.unwrap();
        rich.query("CREATE TABLE gone AS SELECT value AS n FROM generate_series(1, 5000)")
            .await
            .unwrap();
        let csv = folder.path().join("rows.csv");
        let copy = format!("COPY (SELECT user_id, n, name FROM events) TO '{}'", csv.display());
        rich.query(&copy).await.unwrap();
        let session =
            Session::new(lake, &SessionOptions { memory_bytes: MEMORY_BYTES, ..options }).unwrap();
        drop(rich);
        session.query(SINK).await.unwrap();
        let report = Experiment::parse(DEFINITION, "t.toml").unwrap();
        let report = plan(&report, &[], None).unwrap();
        let rows = expand_inputs(&[csv.to_str().unwrap().to_owned()]).unwrap();
        let ground = Self { folder, session, report, rows };
        // Threads of what made the tables come to their ends.
        while ground.held() != Held::default() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        ground
    }

    fn held(&self) -> Held {
        Held {
            usage: self.session.usage(),
            tasks: tokio::runtime::Handle::current().metrics().num_alive_tasks(),
            threads: threads_of_writers(),
            locked: is_locked(&self.folder.path().join("lake/_uplake/locks/sink.lock")),
        }
    }

    /// Runs up to three statements at once, each to its moment, and waits until nothing is left.
    ///
    /// # Panics
    /// If something stays, and if a statement fails otherwise than by its time-out, a conflict or the
    /// little memory.
    pub async fn one(&self, seed: u64) -> Outcome {
        let mut dice = Dice(seed);
        let acts: Vec<Act> = (0..=dice.below(3)).map(|_| dice.act()).collect();
        let what = || format!("seed {seed}: {acts:?}");
        let done = join_all(acts.iter().map(|act| self.to_its_moment(*act))).await;
        let over = Instant::now();
        let refused = done.iter().find_map(|result| match result {
            Err(error @ EngineError::Limit { .. }) => Some(error.to_string()),
            _ => None,
        });
        for result in &done {
            // Two that delete the same rows are in conflict.
            let expected = matches!(
                result,
                Ok(_)
                    | Err(EngineError::TimedOut { .. })
                    | Err(EngineError::Limit { .. })
                    | Err(EngineError::Table(TableError::Conflict { .. }))
            );
            assert!(expected, "{}: {result:?}", what());
        }
        let spilled = done.iter().any(|result| matches!(result, Ok(true)));
        let mut last = None;
        loop {
            let held = self.held();
            if held == Held::default() {
                break;
            }
            last = Some(held);
            assert!(over.elapsed() < PATIENCE, "{}: {held:?} is left", what());
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let gone_after = over.elapsed();
        self.tidy().await;
        Outcome { what: what(), gone_after, last, spilled, refused }
    }

    async fn to_its_moment(&self, act: Act) -> Result<bool, EngineError> {
        let options = RunOptions {
            timeout: match act.moment {
                Moment::TimedOut(after) => Some(after),
                _ => None,
            },
            ..RunOptions::default()
        };
        let batches = match act.moment {
            Moment::Batches(batches) => batches,
            _ => u32::MAX,
        };
        let mut work = Box::pin(self.work(act.kind, options, batches));
        match act.moment {
            Moment::Polls(polls) => {
                let mut left = polls;
                let counted = poll_fn(|context| {
                    if left == 0 {
                        return Poll::Ready(Ok(()));
                    }
                    left -= 1;
                    work.as_mut().poll(context)
                });
                counted.await.map(|()| false)
            }
            Moment::Dropped(after) => {
                tokio::time::timeout(after, work).await.unwrap_or(Ok(())).map(|()| false)
            }
            Moment::Spilling => {
                let spilling = async {
                    while self.session.usage().spill_files == 0 {
                        tokio::time::sleep(LOOK_EVERY).await;
                    }
                };
                tokio::select! {
                    () = spilling => Ok(true),
                    done = work => done.map(|()| false),
                }
            }
            Moment::Batches(_) | Moment::TimedOut(_) | Moment::Never => work.await.map(|()| false),
        }
    }

    async fn work(
        &self,
        kind: usize,
        options: RunOptions,
        batches: u32,
    ) -> Result<(), EngineError> {
        let Some(text) = STATEMENTS.get(kind) else {
            return match kind - STATEMENTS.len() {
                0 => self.session.moments(&self.report).await.map(drop),
                _ => self.load().await,
            };
        };
        let text = text.replace("{FOLDER}", self.folder.path().to_str().unwrap());
        let statement = parse(&text)?.remove(0);
        if let Answer::Rows { stream, .. } = self.session.run_with(&statement, options).await? {
            let mut stream = stream.take(batches as usize);
            while let Some(batch) = stream.next().await {
                batch?;
            }
        }
        Ok(())
    }

    async fn load(&self) -> Result<(), EngineError> {
        let options = LoadOptions::new(16 << 20, 2, 1_793_577_600_000);
        let progress = Arc::new(Progress::default());
        load(self.session.lake(), "sink", &self.rows, &options, &progress).await?;
        Ok(())
    }

    /// Keeps the table that is written small.
    async fn tidy(&self) {
        let sink = self.session.lake().snapshot("sink", &AsOf::Latest).await.unwrap();
        if sink.files().len() > MOST_FILES {
            self.session.query(&format!("DROP TABLE sink; {SINK}")).await.unwrap();
        }
    }
}

/// Threads of this process that write tables; 0 where the system does not say.
fn threads_of_writers() -> usize {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return 0 };
    let name = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("comm"));
    let names = threads.flatten().filter_map(|thread| name(thread).ok());
    names.filter(|name| ["uplake-write", "uplake-load"].contains(&name.trim())).count()
}

fn is_locked(path: &Path) -> bool {
    std::fs::File::open(path).is_ok_and(|file| file.try_lock().is_err())
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let after = self.gone_after.as_secs_f64() * 1000.0;
        write!(f, "{after:.1} ms: {}", self.what)?;
        self.last.map_or(Ok(()), |last| write!(f, ", last {last:?}"))
    }
}

#[cfg(test)]
#[test]
fn nothing_is_left_of_statements_stopped_at_any_moment() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(async {
        let ground = Ground::new().await;
        let (mut spilled, mut refused) = (0, Vec::new());
        for seed in 0..120 {
            let outcome = ground.one(seed).await;
            spilled += usize::from(outcome.spilled);
            refused.extend(outcome.refused.map(|says| format!("{}: {says}", outcome.what)));
        }
        // Who of three gets the last of the memory is a matter of moments, too.
        assert!(refused.len() <= 4, "{refused:#?}");
        println!("{spilled} moments were in the middle of spilling");
        // And the lake is as good as before.
        let rows = ground.session.query("SELECT count(*) FROM events").await.unwrap();
        assert_eq!(rows[0].column(0).as_primitive::<Int64Type>().value(0), ROWS as i64);
    });
}
