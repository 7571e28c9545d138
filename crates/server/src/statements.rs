//! Statements that run for connections: all of them are known here, by number and with what they cost, and any can
//! be stopped.
//!
//! Connections live on the network's runtime. Planning, rows and their encoding are driven by threads of their own
//! (`drivers`), and what computes runs on the compute runtime: a look at a socket never waits for rows.
//!
//! # Invariants
//! - A statement is listed from the moment that its text is known until its [`Running`] is dropped.
//! - A statement that is stopped, or whose [`Running`] is dropped, computes no further than to the next time that it
//!   waits, and gives its slot and memory back then.
//! - A client that hears of a stop in the code of a stop has committed nothing with that statement; if its commit was sent
//!   by then, the client hears that nobody knows.
//!
//! # Not here
//! Whose turn it is (the engine's admission); how far an answer may run ahead of its reader (`spool`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Instant;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use uplake_engine::{EngineError, QueryProgress, Spent};
use uplake_table::Payer;

use crate::access_sql::without_secrets;
use crate::audit::{Action, Audit, Note, action_of};
pub(crate) use crate::cause::Cause;
pub(crate) use crate::client::{Before, Client, Protocol};
use crate::cost::{Cost, Prices};
use crate::drivers::AbortOnDrop;
use crate::failure::Failure;
use crate::labels::{Labels, of_statement};
use crate::lanes::{Lane, Lanes};
use crate::limits::{Quotas, Used};
use crate::loads::{self, Load, Loaded};
use crate::log::{Log, Row};
use crate::stage::Stage;
use crate::traceparent::TraceParent;

/// Characters of a statement that are listed and kept; passwords are not.
pub(crate) const KEPT_CHARACTERS: usize = 4096;
/// Statements that are over and still told of.
const KEPT_STATEMENTS: usize = 10_000;
/// What a label takes of memory beside its name and its value.
const LABEL_BYTES: usize = 64;

/// A statement that runs.
#[derive(Debug)]
struct Entry {
    id: u64,
    client: Client,
    text: Arc<str>,
    labels: Labels,
    trace: Option<TraceParent>,
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
    spooled: Arc<AtomicU64>,
    /// SQLSTATE and message of its end, if it failed.
    failed: Mutex<Option<Failure>>,
    /// Of a text of several statements the one that runs.
    part: Mutex<Option<String>>,
}

/// A statement, as of now.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub id: u64,
    pub client: Client,
    pub text: Arc<str>,
    pub labels: Labels,
    /// Milliseconds since 1970, UTC.
    pub began_millis: i64,
    pub stage: Stage,
    pub cost: Cost,
    /// Why it failed, if it is over and did.
    pub failed: Option<Failure>,
    /// What it is a part of, as its client sees it.
    #[cfg_attr(not(feature = "otel"), allow(dead_code, reason = "traces are told of it"))]
    pub trace: Option<TraceParent>,
    /// Who goes on to tell what is still under way.
    pub payer: Arc<Payer>,
}

impl Listed {
    /// What it is charged, in US dollars. A part is charged to its statement, by the node that was asked.
    pub fn dollars(&self, prices: &Prices) -> f64 {
        match self.client.protocol {
            Protocol::Node => 0.0,
            _ => self.cost.dollars(prices),
        }
    }

    /// With what was still under way when it ended: tasks that are stopped end a moment later.
    pub fn settled(mut self) -> Self {
        self.cost.counts.storage = self.payer.counts();
        self.cost.counts.busy = self.payer.busy();
        self
    }
}

impl Row for Listed {
    fn memory_bytes(&self) -> usize {
        let Client { role, tenant, application, address, labels, .. } = &self.client;
        let of_client: usize = [role, tenant, application, address].map(String::len).iter().sum();
        let of_label = |(name, value): (&String, &String)| LABEL_BYTES + name.len() + value.len();
        let labels: usize = self.labels.iter().chain(labels).map(of_label).sum();
        let failed = self.failed.as_ref().map_or(0, |failure| {
            failure.message.len() + failure.hint.as_ref().map_or(0, String::len)
        });
        size_of::<Self>() + self.text.len() + of_client + labels + failed
    }
}

/// All that run, and the last that did.
#[derive(Debug)]
pub(crate) struct Statements {
    lanes: Lanes,
    clock: Clock,
    quotas: Arc<Quotas>,
    next: AtomicU64,
    state: Mutex<State>,
    pub over: Arc<Mutex<Log<Listed>>>,
    pub loads: Arc<Mutex<Log<Load>>>,
    pub audit: Arc<Audit>,
    /// What is to be told of each that is over.
    at_end: RwLock<Vec<AtEnd>>,
}

/// What hears of statements that are over.
struct AtEnd(Box<dyn Fn(&Listed) + Send + Sync>);

impl std::fmt::Debug for AtEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AtEnd")
    }
}

/// Milliseconds since 1970, UTC.
#[derive(Clone)]
pub(crate) struct Clock(pub Arc<dyn Fn() -> i64 + Send + Sync>);

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

/// Those that run.
#[derive(Debug, Default)]
struct State {
    /// Why none may run any more.
    closed: Option<Cause>,
    running: BTreeMap<u64, Arc<Entry>>,
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
            over: Arc::new(Mutex::new(Log::new(KEPT_STATEMENTS))),
            loads: Arc::new(Mutex::new(Log::new(loads::KEPT))),
            audit: Arc::default(),
            at_end: RwLock::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on `hear` is told of each that is over, too.
    pub fn at_end(&self, hear: impl Fn(&Listed) + Send + Sync + 'static) {
        let mut all = self.at_end.write().unwrap_or_else(PoisonError::into_inner);
        all.push(AtEnd(Box::new(hear)));
    }

    /// Milliseconds since 1970, UTC.
    pub fn now(&self) -> i64 {
        (self.clock.0)()
    }

    /// A statement comes.
    pub fn begin(self: &Arc<Self>, client: Client, text: &str) -> Running {
        let progress = client.before.take();
        self.list(Stage::Computing, client, text, progress)
    }

    /// A statement is only planned: it is listed meanwhile, and told of later if it fails. If it does not, the client's
    /// next statement pays for it.
    pub fn begin_plan(self: &Arc<Self>, client: Client, text: &str) -> Running {
        let progress = client.before.progress();
        self.list(Stage::Planning, client, text, progress)
    }

    fn list(
        self: &Arc<Self>,
        stage: Stage,
        client: Client,
        text: &str,
        progress: Arc<QueryProgress>,
    ) -> Running {
        let kept: String = text.trim().chars().take(KEPT_CHARACTERS).collect();
        let tenant = self.quotas.tenant_of(&client.role);
        let lane = self.lanes.of(tenant.as_ref().map(|(name, _)| name.as_str()));
        lane.comes(tenant.map_or(1, |(_, tenant)| tenant.weight));
        progress.payer().known_as(&client.role);
        let mut labels = of_statement(&client.labels, &kept);
        let trace = TraceParent::take(&mut labels, text);
        let entry = Arc::new(Entry {
            lane,
            id: self.next.fetch_add(1, Ordering::Relaxed),
            labels,
            trace,
            progress,
            client,
            text: without_secrets(&kept).into(),
            began: Instant::now(),
            began_millis: (self.clock.0)(),
            stage: AtomicU8::new(stage as u8),
            stop: watch::Sender::new(None),
            charged: Mutex::default(),
            over_quota: OnceLock::new(),
            rows_sent: AtomicU64::new(0),
            bytes_sent: AtomicU64::new(0),
            spooled: Arc::default(),
            failed: Mutex::default(),
            part: Mutex::default(),
        });
        let mut state = self.lock();
        state.running.insert(entry.id, Arc::clone(&entry));
        entry.stop.send_replace(state.closed);
        drop(state);
        Running { statements: Arc::clone(self), entry }
    }

    /// Somebody has done something that is told of later, or tried to.
    pub fn note(&self, action: Action, client: &Client, what: &str, failed: Option<&Failure>) {
        self.audit.note(Note {
            at: self.now(),
            action,
            role: client.role.clone(),
            address: client.address.clone(),
            protocol: client.protocol.name().to_owned(),
            what: what.to_owned(),
            sqlstate: failed.map(|failure| failure.code.to_string()),
        });
    }

    /// A statement is over.
    fn note_end(&self, client: &Client, text: &str, rows_out: u64, failed: Option<&Failure>) {
        if let Some(action) = action_of(text, rows_out) {
            self.note(action, client, text, failed);
        }
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

    /// What those that run have used since the last time is counted, those of tenants that have used more than their
    /// share go behind, and those of tenants that have used up a quota are stopped; how many.
    pub fn charge(&self) -> usize {
        let entries: Vec<Arc<Entry>> = self.lock().running.values().cloned().collect();
        let mut stopped = 0;
        for entry in entries {
            // What is only planned is charged with what it is planned for.
            if entry.stage() != Stage::Planning {
                entry.charge(&self.quotas, &entry.cost());
                entry.lane.look_at(&entry.progress);
            }
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
        self.over.lock().unwrap_or_else(PoisonError::into_inner).all().cloned().collect()
    }

    /// Does `work` on the compute runtime, which is stopped if this future is dropped.
    ///
    /// # Errors
    /// Those of the work; a panic in it is one.
    pub async fn compute<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Failure>> + Send + 'static,
    ) -> Result<T, Failure> {
        driven(|work| self.lanes.common().spawn_own(work), work).await
    }

    /// Work on the compute runtime that ends with what is given back, if not before.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortOnDrop {
        self.lanes.common().spawn_own(work)
    }
}

async fn driven<T: Send + 'static>(
    spawn: impl FnOnce(BoxFuture<'static, ()>) -> AbortOnDrop,
    work: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> Result<T, Failure> {
    let (tell, told) = oneshot::channel();
    let work = async move {
        // Who asked may be gone.
        let _ = tell.send(work.await);
    };
    let _guard = spawn(work.boxed());
    told.await.unwrap_or_else(|_| Err(Failure::bug("the statement could not be computed: a panic")))
}

impl Entry {
    fn cost(&self) -> Cost {
        Cost {
            counts: self.progress.counts(),
            rows_out: self.rows_sent.load(Ordering::Relaxed),
            bytes_out: self.bytes_sent.load(Ordering::Relaxed),
            spooled: self.spooled.load(Ordering::Relaxed),
            total: self.began.elapsed(),
        }
    }

    fn lock_part(&self) -> MutexGuard<'_, Option<String>> {
        self.part.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stage(&self) -> Stage {
        Stage::of(self.stage.load(Ordering::Relaxed))
    }

    /// What it has used since the last time is its tenant's.
    fn charge(&self, quotas: &Quotas, cost: &Cost) {
        let used = quotas.use_of(cost);
        let before = std::mem::replace(
            &mut *self.charged.lock().unwrap_or_else(PoisonError::into_inner),
            used,
        );
        let used = used.since(before);
        self.lane.used(used.core_seconds);
        quotas.used(&self.client.role, used);
    }

    fn listed(&self) -> Listed {
        Listed {
            id: self.id,
            client: self.client.clone(),
            text: Arc::clone(&self.text),
            labels: self.labels.clone(),
            trace: self.trace,
            began_millis: self.began_millis,
            cost: self.cost(),
            stage: self.stage(),
            failed: self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            payer: self.progress.payer(),
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

    /// Who asks for it.
    pub fn client(&self) -> &Client {
        &self.entry.client
    }

    /// Whose it is.
    pub fn role(&self) -> &str {
        &self.entry.client.role
    }

    /// What counts bytes of its rows that wait on the disk for its client.
    pub fn spooled(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.entry.spooled)
    }

    /// It has loaded rows.
    pub fn loaded(&self, loaded: &Loaded<'_>) {
        let Loaded { table, label, summary } = *loaded;
        let load = Load {
            statement: self.id(),
            at: self.statements.now(),
            role: self.role().to_owned(),
            table: table.to_owned(),
            label: label.map(str::to_owned),
            version: summary.version,
            rows: summary.rows,
            bad_rows: summary.bad_rows,
            replaced_rows: summary.replaced_rows,
            files: summary.files as u64,
            bytes: summary.bytes,
            seconds: self.entry.began.elapsed().as_secs_f64(),
        };
        self.statements.loads.lock().unwrap_or_else(PoisonError::into_inner).push(load);
    }

    /// What hears of its statements, if its text has several.
    pub fn parts(&self) -> Parts {
        Parts { statements: Arc::clone(&self.statements), entry: Arc::clone(&self.entry) }
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
        let work = self.progress().during(work);
        self.unless_stopped(driven(|work| self.entry.lane.spawn(work), work)).await
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
            cause = stopped => Err(self.ended(match self.entry.over_quota.get() {
                Some(failure) if cause == Cause::Quota => failure.clone(),
                _ => cause.failure(),
            })),
            done = work => done,
        };
        done.inspect_err(|failure| self.failed(failure))
    }

    /// What its client hears when nobody waits for it any more: why, or that nobody knows whether it took effect, if a
    /// commit of it was sent. None is from now on.
    pub fn ended(&self, why: Failure) -> Failure {
        match self.entry.progress.payer().refuse_commits() {
            None => why,
            Some(table) => EngineError::outcome_unknown(table, why.message).into(),
        }
    }

    /// Its first rows are there.
    pub fn sends(&self) {
        self.entry.stage.store(Stage::Sending as u8, Ordering::Relaxed);
    }

    /// Work of it on the compute runtime, which ends with what is given back, if not before.
    pub fn drive(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortOnDrop {
        self.entry.lane.spawn(self.progress().during(work))
    }

    /// A task of the compute runtime that makes its rows.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortOnDrop {
        self.sends();
        self.drive(work)
    }

    /// What it has cost so far, for the node that it is a part for.
    pub fn spent(&self) -> Spent {
        let counts = self.progress().counts();
        let (busy, bytes_read, storage) = (counts.busy, counts.bytes_read, counts.storage);
        Spent { busy, bytes_read, gets: storage.gets, lists: storage.lists }
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

/// The statements of a text.
pub(crate) struct Parts {
    statements: Arc<Statements>,
    entry: Arc<Entry>,
}

impl Parts {
    /// The next one begins, and the one before is done.
    pub fn begins(&self, text: &str) {
        let kept: String = text.chars().take(KEPT_CHARACTERS).collect();
        let text = without_secrets(&kept).into_owned();
        if let Some(done) = self.entry.lock_part().replace(text) {
            self.statements.note_end(&self.entry.client, &done, 0, None);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let over = self.entry.listed();
        if over.stage == Stage::Planning {
            if over.failed.is_none() {
                self.statements.lock().running.remove(&self.entry.id);
                return;
            }
            // It has paid for itself.
            self.entry.client.before.take();
        }
        self.entry.charge(&self.statements.quotas, &over.cost);
        let hear = self.statements.at_end.read().unwrap_or_else(PoisonError::into_inner);
        hear.iter().for_each(|AtEnd(hear)| hear(&over));
        drop(hear);
        let part = self.entry.lock_part().take();
        let text = part.as_deref().unwrap_or(&over.text);
        let (rows, failed) = (over.cost.rows_out, over.failed.as_ref());
        self.statements.note_end(&over.client, text, rows, failed);
        // It is seen in one of the two at any moment, and for a moment in both.
        self.statements.over.lock().unwrap_or_else(PoisonError::into_inner).push(over);
        self.statements.lock().running.remove(&self.entry.id);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn statements() -> (tokio::runtime::Runtime, Arc<Statements>) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let clock: Arc<dyn Fn() -> i64 + Send + Sync> = Arc::new(|| 7);
        let quotas = Quotas::new(Arc::default(), Arc::clone(&clock), Prices::default());
        let statements = Statements::new(runtime.handle(), Clock(clock), quotas);
        (runtime, statements)
    }

    fn client() -> Client {
        Client {
            role: "admin".into(),
            by_token: false,
            tenant: String::new(),
            protocol: Protocol::Postgres,
            application: "test".into(),
            address: "127.0.0.1:1".into(),
            labels: Labels::new(),
            before: Before::default(),
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
    fn who_stops_a_statement_hears_whether_its_commit_was_sent() {
        let (runtime, statements) = statements();
        for (sends, code) in [(false, "57014"), (true, "40003")] {
            let running = statements.begin(client(), "COMMIT");
            let payer = running.progress().payer();
            let (tell, told) = tokio::sync::oneshot::channel();
            let stopped = runtime.block_on(async {
                let work = running.compute::<()>(async move {
                    if sends {
                        assert!(Payer::current().unwrap().sends_commit("sales"));
                    }
                    tell.send(()).unwrap();
                    std::future::pending().await
                });
                let stop = async {
                    told.await.unwrap();
                    assert!(statements.stop(running.id(), Cause::Client));
                };
                tokio::join!(work, stop).0
            });
            let failure = stopped.unwrap_err();
            assert_eq!(failure.code, code);
            assert!(failure.message.contains("user request"), "{failure}");
            assert_eq!(payer.sends_commit("sales"), sends, "none is sent after a plain stop");
        }
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
