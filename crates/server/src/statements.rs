//! Statements that run for connections: all of them are known here, by number, and any can be stopped.
//!
//! Connections live on the network's runtime. Planning, rows and their encoding are driven by threads of their own
//! (`drivers`), and what computes runs on the compute runtime: a look at a socket never waits for rows.
//!
//! # Invariants
//! - A statement is listed from the moment that its text is known until its [`Running`] is dropped.
//! - A statement that is stopped, or whose [`Running`] is dropped, computes no further than to the next time that it
//!   waits, and gives its slot and memory back then.
//!
//! # Not here
//! Whose turn it is (the engine's admission); how far an answer may run ahead of its reader (`spool`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use uplake_engine::{ProgressCounts, QueryProgress};

use crate::access_sql::without_secrets;
use crate::drivers::{AbortOnDrop, Drivers};
use crate::failure::Failure;
use crate::lanes::{Lane, Lanes};
use crate::limits::{Quotas, Used};
use crate::stage::Stage;

/// Characters of a statement that are listed and kept; passwords are not.
const KEPT_CHARACTERS: usize = 4096;
/// Statements that are over and still told of.
const KEPT_STATEMENTS: usize = 10_000;

/// How a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Postgres,
    Http,
    Flight,
}

impl Protocol {
    /// Its name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Http => "http",
            Self::Flight => "flight",
        }
    }
}

/// Who asks.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub role: String,
    pub protocol: Protocol,
    /// What it calls itself.
    pub application: String,
    /// Where it comes from.
    pub address: String,
}

/// Who stopped a statement, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Its client asked for it.
    Client,
    /// Somebody else did who may.
    Admin,
    /// Somebody who may has ended the connection.
    Ended,
    /// The connection is gone.
    Socket,
    /// The client does not take the rows.
    SlowReader,
    /// The process held more memory than it may.
    Memory,
    /// Its tenant has used up a quota.
    Quota,
    /// The server goes down.
    Shutdown,
}

impl Cause {
    /// Its name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Admin => "admin",
            Self::Ended => "ended",
            Self::Socket => "socket",
            Self::SlowReader => "slow_reader",
            Self::Memory => "memory",
            Self::Quota => "quota",
            Self::Shutdown => "shutdown",
        }
    }

    /// What the client hears.
    pub fn failure(self) -> Failure {
        match self {
            Self::Client => Failure::new("57014", "canceling statement due to user request"),
            Self::Admin => Failure::new("57014", "the statement was cancelled by another user"),
            Self::Ended => {
                Failure::new("57P01", "terminating connection due to administrator command")
            }
            Self::Socket => Failure::new("57014", "the connection is closed"),
            Self::SlowReader => Failure::new("57014", "the rows were not taken in time")
                .with_hint("read them as they come"),
            Self::Memory => Failure::new("53200", "the server holds more memory than it may")
                .with_hint(
                    "ask for less (shorter texts, fewer groups, a LIMIT), or ask again later",
                ),
            Self::Quota => Failure::new("53400", "a quota of the tenant is used up"),
            Self::Shutdown => {
                Failure::new("57P01", "the server is shutting down").with_hint("connect again")
            }
        }
    }
}

/// A statement that runs.
#[derive(Debug)]
struct Entry {
    id: u64,
    client: Client,
    text: Arc<str>,
    began: Instant,
    began_millis: i64,
    stage: AtomicU8,
    progress: Arc<QueryProgress>,
    stop: watch::Sender<Option<Cause>>,
    /// Where it computes.
    lane: Arc<Lane>,
    /// What was counted of it so far.
    charged: Mutex<Used>,
    /// What its client hears if it is stopped for a quota.
    over_quota: OnceLock<Failure>,
    rows_sent: AtomicU64,
    bytes_sent: AtomicU64,
    /// SQLSTATE and message of its end, if it failed.
    failed: Mutex<Option<Failure>>,
}

/// A statement, as of now.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub id: u64,
    pub client: Client,
    pub text: Arc<str>,
    /// Milliseconds since 1970, UTC.
    pub began_millis: i64,
    pub runs: Duration,
    pub stage: Stage,
    pub counts: ProgressCounts,
    pub rows_sent: u64,
    pub bytes_sent: u64,
    /// Why it failed, if it is over and did.
    pub failed: Option<Failure>,
}

/// All that run, and the last that did.
#[derive(Debug)]
pub(crate) struct Statements {
    lanes: Lanes,
    clock: Clock,
    quotas: Arc<Quotas>,
    next: AtomicU64,
    state: Mutex<State>,
}

/// Milliseconds since 1970, UTC.
#[derive(Clone)]
pub(crate) struct Clock(pub Arc<dyn Fn() -> i64 + Send + Sync>);

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

#[derive(Debug, Default)]
struct State {
    /// Why none may run any more.
    closed: Option<Cause>,
    running: BTreeMap<u64, Arc<Entry>>,
    over: VecDeque<Listed>,
}

impl Statements {
    /// None yet. What computes runs on `compute`.
    pub fn new(compute: &Handle, clock: Clock, quotas: Arc<Quotas>) -> Arc<Self> {
        Arc::new(Self {
            lanes: Lanes::new(compute),
            clock,
            quotas,
            next: AtomicU64::new(1),
            state: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A statement comes.
    pub fn begin(self: &Arc<Self>, client: Client, text: &str) -> Running {
        self.begin_at(Stage::Computing, client, text)
    }

    /// A statement is only planned: it is listed meanwhile, and told of later if it fails.
    pub fn begin_plan(self: &Arc<Self>, client: Client, text: &str) -> Running {
        self.begin_at(Stage::Planning, client, text)
    }

    fn begin_at(self: &Arc<Self>, stage: Stage, client: Client, text: &str) -> Running {
        let kept: String = text.trim().chars().take(KEPT_CHARACTERS).collect();
        let tenant = self.quotas.tenant_name(&client.role);
        let entry = Arc::new(Entry {
            lane: self.lanes.of(tenant.as_deref()),
            id: self.next.fetch_add(1, Ordering::Relaxed),
            client,
            text: without_secrets(&kept).into(),
            began: Instant::now(),
            began_millis: (self.clock.0)(),
            stage: AtomicU8::new(stage as u8),
            progress: QueryProgress::new(),
            stop: watch::Sender::new(None),
            charged: Mutex::default(),
            over_quota: OnceLock::new(),
            rows_sent: AtomicU64::new(0),
            bytes_sent: AtomicU64::new(0),
            failed: Mutex::default(),
        });
        let mut state = self.lock();
        state.running.insert(entry.id, Arc::clone(&entry));
        entry.stop.send_replace(state.closed);
        drop(state);
        Running { statements: Arc::clone(self), entry }
    }

    /// Stops a statement that runs. False if there is none of this number.
    pub fn stop(&self, id: u64, cause: Cause) -> bool {
        let entry = self.lock().running.get(&id).cloned();
        entry.is_some_and(|entry| {
            entry
                .stop
                .send_if_modified(|before| before.is_none() && before.replace(cause).is_none());
            true
        })
    }

    /// Stops those that run, and each one that comes later at once; how many these are.
    pub fn close(&self, cause: Cause) -> usize {
        let mut state = self.lock();
        state.closed = Some(cause);
        let all: Vec<u64> = state.running.keys().copied().collect();
        drop(state);
        all.into_iter().filter(|id| self.stop(*id, cause)).count()
    }

    /// Stops the one that came last, which others have not waited for.
    pub fn stop_newest(&self, cause: Cause) -> bool {
        let newest = self.lock().running.keys().next_back().copied();
        newest.is_some_and(|id| self.stop(id, cause))
    }

    /// What those that run have used since the last time is counted, and those of tenants that have used up a quota are
    /// stopped; how many.
    pub fn charge(&self) -> usize {
        let entries: Vec<Arc<Entry>> = self.lock().running.values().cloned().collect();
        let mut stopped = 0;
        for entry in entries {
            entry.charge(&self.quotas);
            if let Err(failure) = self.quotas.check(&entry.client.role)
                && entry.over_quota.set(failure).is_ok()
            {
                stopped += usize::from(self.stop(entry.id, Cause::Quota));
            }
        }
        stopped
    }

    /// What they are counted by.
    pub fn quotas(&self) -> &Arc<Quotas> {
        &self.quotas
    }

    /// Those that run, the oldest first.
    pub fn running(&self) -> Vec<Listed> {
        let entries: Vec<Arc<Entry>> = self.lock().running.values().cloned().collect();
        entries.iter().map(|entry| entry.listed()).collect()
    }

    /// How many are listed.
    pub fn count(&self) -> usize {
        self.lock().running.len()
    }

    /// Those that are over, the oldest first; at most 10,000.
    pub fn over(&self) -> Vec<Listed> {
        self.lock().over.iter().cloned().collect()
    }

    /// Does `work` on the compute runtime, which is stopped if this future is dropped.
    ///
    /// # Errors
    /// Those of the work; a panic in it is one.
    pub async fn compute<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Failure>> + Send + 'static,
    ) -> Result<T, Failure> {
        driven(self.lanes.common().drivers(), work).await
    }

    /// Work on the compute runtime that ends with what is given back, if not before.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortOnDrop {
        self.lanes.common().drivers().spawn(work)
    }
}

async fn driven<T: Send + 'static>(
    drivers: &Drivers,
    work: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> Result<T, Failure> {
    let (tell, told) = oneshot::channel();
    let _guard = drivers.spawn(async move {
        // Who asked may be gone.
        let _ = tell.send(work.await);
    });
    told.await.unwrap_or_else(|_| Err(Failure::bug("the statement could not be computed: a panic")))
}

impl Entry {
    fn charge(&self, quotas: &Quotas) {
        let counts = self.progress.counts();
        let used = quotas.use_of(counts.bytes_read, counts.slot_seconds, counts.request_dollars);
        let before = std::mem::replace(
            &mut *self.charged.lock().unwrap_or_else(PoisonError::into_inner),
            used,
        );
        quotas.used(&self.client.role, used.since(before));
    }

    fn listed(&self) -> Listed {
        Listed {
            id: self.id,
            client: self.client.clone(),
            text: Arc::clone(&self.text),
            began_millis: self.began_millis,
            runs: self.began.elapsed(),
            stage: Stage::of(self.stage.load(Ordering::Relaxed)),
            counts: self.progress.counts(),
            rows_sent: self.rows_sent.load(Ordering::Relaxed),
            bytes_sent: self.bytes_sent.load(Ordering::Relaxed),
            failed: self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

/// A statement that is listed.
#[derive(Debug)]
pub(crate) struct Running {
    statements: Arc<Statements>,
    entry: Arc<Entry>,
}

impl Running {
    /// Its number, which is its alone while the process lives.
    pub fn id(&self) -> u64 {
        self.entry.id
    }

    /// Whose it is.
    pub fn role(&self) -> &str {
        &self.entry.client.role
    }

    /// What is to be given to the engine.
    pub fn progress(&self) -> Arc<QueryProgress> {
        Arc::clone(&self.entry.progress)
    }

    /// Does `work` for it on the compute runtime.
    ///
    /// # Errors
    /// Those of the work, and that of whoever stopped it.
    pub async fn compute<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Failure>> + Send + 'static,
    ) -> Result<T, Failure> {
        self.unless_stopped(driven(self.entry.lane.drivers(), work)).await
    }

    /// `work`, dropped when the statement is stopped.
    ///
    /// # Errors
    /// As [`Self::compute`].
    pub async fn unless_stopped<T>(
        &self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let mut told = self.entry.stop.subscribe();
        let stopped = async {
            match told.wait_for(Option::is_some).await.map(|cause| *cause) {
                Ok(Some(cause)) => cause,
                // Not while the entry lives.
                _ => std::future::pending().await,
            }
        };
        let done = tokio::select! {
            biased;
            cause = stopped => Err(match self.entry.over_quota.get() {
                Some(failure) if cause == Cause::Quota => failure.clone(),
                _ => cause.failure(),
            }),
            done = work => done,
        };
        done.inspect_err(|failure| self.failed(failure))
    }

    /// Its first rows are there.
    pub fn sends(&self) {
        self.entry.stage.store(Stage::Sending as u8, Ordering::Relaxed);
    }

    /// Work of it on the compute runtime, which ends with what is given back, if not before.
    pub fn drive(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortOnDrop {
        self.entry.lane.drivers().spawn(work)
    }

    /// A task of the compute runtime that makes its rows.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortOnDrop {
        self.sends();
        self.drive(work)
    }

    /// Its end, for who looks at it later; the first counts.
    pub fn failed(&self, failure: &Failure) {
        let mut failed = self.entry.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.get_or_insert_with(|| failure.clone());
    }

    /// So much more has been sent.
    pub fn sent(&self, rows: u64, bytes: u64) {
        self.entry.rows_sent.fetch_add(rows, Ordering::Relaxed);
        self.entry.bytes_sent.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.entry.charge(&self.statements.quotas);
        let over = self.entry.listed();
        let mut state = self.statements.lock();
        state.running.remove(&self.entry.id);
        if over.stage == Stage::Planning && over.failed.is_none() {
            return;
        }
        if state.over.len() >= KEPT_STATEMENTS {
            state.over.pop_front();
        }
        state.over.push_back(over);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statements() -> (tokio::runtime::Runtime, Arc<Statements>) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let clock: Arc<dyn Fn() -> i64 + Send + Sync> = Arc::new(|| 7);
        let quotas = Quotas::new(Arc::default(), Arc::clone(&clock), 0.0);
        let statements = Statements::new(runtime.handle(), Clock(clock), quotas);
        (runtime, statements)
    }

    fn client() -> Client {
        Client {
            role: "admin".into(),
            protocol: Protocol::Postgres,
            application: "test".into(),
            address: "127.0.0.1:1".into(),
        }
    }

    /// Tells when it is dropped.
    struct Told(Option<tokio::sync::oneshot::Sender<()>>);

    impl Drop for Told {
        fn drop(&mut self) {
            let _ = self.0.take().unwrap().send(());
        }
    }

    #[test]
    fn a_statement_is_listed_until_it_is_over_and_can_be_stopped() {
        let (runtime, statements) = statements();
        let running = statements.begin(client(), "  SELECT 1 ");
        let id = running.id();
        assert_eq!(&*statements.running()[0].text, "SELECT 1");
        let (tell, dropped) = tokio::sync::oneshot::channel();
        let told = Told(Some(tell));
        let endless = async move {
            let _told = told;
            std::future::pending::<Result<(), Failure>>().await
        };
        let stopped = runtime.block_on(async {
            let work = running.compute(endless);
            let stop = async {
                tokio::time::sleep(Duration::from_millis(5)).await;
                assert!(statements.stop(id, Cause::Client));
                // The first cause stays.
                assert!(statements.stop(id, Cause::Memory));
            };
            let (stopped, ()) = tokio::join!(work, stop);
            dropped.await.unwrap();
            stopped
        });
        assert_eq!(stopped.unwrap_err().code, "57014");
        drop(running);
        assert_eq!(statements.count(), 0);
        assert!(!statements.stop(id, Cause::Client));
        let over = statements.over();
        assert_eq!(over[0].failed.as_ref().unwrap().code, "57014");
        assert_eq!(over[0].began_millis, 7);
    }

    #[test]
    fn work_ends_with_who_waits_for_it_and_a_panic_is_an_error() {
        let (runtime, statements) = statements();
        let running = statements.begin(client(), "x");
        let (tell, dropped) = tokio::sync::oneshot::channel();
        let told = Told(Some(tell));
        runtime.block_on(async {
            let work = running.compute(async move {
                let _told = told;
                std::future::pending::<Result<(), Failure>>().await
            });
            let waited = tokio::time::timeout(Duration::from_millis(5), work).await;
            assert!(waited.is_err());
            dropped.await.unwrap();
            let panics = running.compute::<()>(async { panic!("on purpose") }).await;
            assert_eq!(panics.unwrap_err().code, "XX000");
        });
    }
}
