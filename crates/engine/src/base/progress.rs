//! How far a statement is and what it has cost, for whoever asks while it runs.
//!
//! Scans count rows, bytes and files anyway (EXPLAIN ANALYZE shows them). A [`QueryProgress`] knows where those
//! counters are and adds them up when it is asked: a scan does nothing for it. What is asked of the store and the
//! time of threads are its [`Payer`]'s. Both are known to a statement's task, and [`follow_tasks`] hands them to each
//! task that DataFusion begins for it, and to those of ours that are begun as its are (`SpawnedTask`, its `JoinSet`).
//!
//! # Invariants
//! - No count ever gets less, the memory that is held aside: a statement that runs again adds its scans to those it
//!   had, and rows that are read again count again.
//! - Counters alone are held, never a plan, its memory or its files.
//! - Work that nobody began for a statement (indexes that are mended, the first look at a lake) is no statement's.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use datafusion::common::runtime::{JoinSetTracer, set_join_set_tracer};
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::{DataSource, DataSourceExec};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricValue};
use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use uplake_table::{Counts, Payer};

/// What DataFusion calls its counters of a scan.
pub(crate) const FILES_DONE: &str = "files_processed";
pub(crate) const BYTES_READ: &str = "bytes_scanned";

tokio::task_local! {
    /// Who wants to know how far the statement of this task is.
    static WATCHER: Arc<QueryProgress>;
}

/// The progress of one statement, or report: give it to [`RunOptions`](crate::RunOptions), and ask it whenever.
#[derive(Debug, Default)]
pub struct QueryProgress {
    scans: Mutex<Vec<Scan>>,
    rows_answered: AtomicU64,
    files_skipped: AtomicU64,
    payer: Arc<Payer>,
    nodes: Mutex<Spent>,
    memory: AtomicU64,
    memory_peak: AtomicU64,
    spilled_bytes: AtomicU64,
    sides_kept: AtomicU64,
    saved_nanos: AtomicU64,
    times: Mutex<Times>,
    /// Where its tasks go on, if not where they began.
    elsewhere: OnceLock<Handle>,
}

/// What parts of a statement cost that other nodes computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// How long threads were at it: see [`Payer::busy`].
    pub busy: Duration,
    /// Bytes of data files that were read.
    pub bytes_read: u64,
    /// Requests to the store: for bytes, and for lists.
    pub gets: u64,
    pub lists: u64,
}

/// Where the time went.
#[derive(Debug, Default)]
struct Times {
    queued: Duration,
    planned: Duration,
    /// In slots that were given back.
    computed: Duration,
    /// Since when it has a slot.
    slot: Option<Instant>,
    /// Since when it is planned.
    planning: Option<Instant>,
}

#[derive(Debug)]
struct Scan {
    files: u64,
    /// Of all of them, if they are read from their beginning to their end.
    bytes: Option<u64>,
    counters: ExecutionPlanMetricsSet,
}

/// How far a statement is, as of now. All of it is 0 before it is planned.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ProgressCounts {
    /// Files that the scans planned so far have to read, those that bounds rule out aside. A file that is read in
    /// parts counts for each, and a plan that comes later adds its own.
    pub files_planned: u64,
    /// Of them, those that are read. What need not be read after all stays: a LIMIT is reached, the side of a join
    /// was kept.
    pub files_done: u64,
    /// Bytes that will have been read, if all files are read from their beginning to their end, as those of text are;
    /// else 0.
    pub bytes_planned: u64,
    /// Rows that scans have handed on.
    pub rows_read: u64,
    /// Bytes of data files that were read; none of columns that are kept decoded.
    pub bytes_read: u64,
    /// Rows of the answer that were handed out.
    pub rows_answered: u64,
    /// Files that partitions, bounds and ids ruled out.
    pub files_skipped: u64,
    /// What was asked of the store.
    pub storage: Counts,
    /// How long threads were at it: see [`Payer::busy`].
    pub busy: Duration,
    /// What its parts cost on other nodes, of which nothing is in the other numbers.
    pub nodes: Spent,
    /// Bytes that its operators hold.
    pub memory_bytes: u64,
    /// The most that they held.
    pub memory_peak_bytes: u64,
    /// Bytes that operators wrote to disk for want of memory, once they are done.
    pub spilled_bytes: u64,
    /// Sides of joins that were there from a statement before.
    pub sides_kept: u64,
    /// How long these took when they were computed, from their first row to their last.
    pub saved: Duration,
    /// In the queue.
    pub queued: Duration,
    /// From a slot to a plan.
    pub planned: Duration,
    /// In a slot, planning included.
    pub in_slot: Duration,
}

impl QueryProgress {
    /// Counts from now on.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// How far the statement is.
    pub fn counts(&self) -> ProgressCounts {
        let now = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut counts = ProgressCounts {
            rows_answered: now(&self.rows_answered),
            files_skipped: now(&self.files_skipped),
            storage: self.payer.counts(),
            busy: self.payer.busy(),
            nodes: *self.nodes.lock().unwrap_or_else(PoisonError::into_inner),
            memory_bytes: now(&self.memory),
            memory_peak_bytes: now(&self.memory_peak),
            spilled_bytes: now(&self.spilled_bytes),
            sides_kept: now(&self.sides_kept),
            saved: Duration::from_nanos(now(&self.saved_nanos)),
            ..ProgressCounts::default()
        };
        {
            let times = self.times();
            (counts.queued, counts.planned) = (times.queued, times.planned);
            counts.in_slot = times.computed + times.slot.map(|at| at.elapsed()).unwrap_or_default();
        }
        let mut are_whole = true;
        for scan in self.scans.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let mut done = 0;
            for metric in scan.counters.clone_inner().iter() {
                match metric.value() {
                    MetricValue::OutputRows(rows) => counts.rows_read += rows.value() as u64,
                    MetricValue::Count { name, count } if name == BYTES_READ => {
                        counts.bytes_read += count.value() as u64;
                    }
                    MetricValue::Count { name, count } if name == FILES_DONE => {
                        done += count.value() as u64;
                    }
                    _ => {}
                }
            }
            counts.files_planned += scan.files;
            counts.bytes_planned += scan.bytes.unwrap_or_default();
            are_whole &= scan.bytes.is_some() || scan.files == 0;
            // A recursive query reads its files several times, and so does what goes on in a form that spills.
            counts.files_done += done.min(scan.files);
        }
        if !are_whole {
            counts.bytes_planned = 0;
        }
        counts
    }

    /// Who pays: it goes on to tell what is still under way when the statement is over.
    pub fn payer(&self) -> Arc<Payer> {
        Arc::clone(&self.payer)
    }

    /// From now on the statement's tasks go on on another runtime, each from its next poll; the first that is said counts.
    pub fn go_on(&self, runtime: &Handle) {
        let _ = self.elsewhere.set(runtime.clone());
    }

    fn times(&self) -> std::sync::MutexGuard<'_, Times> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does `work` for the statement: it pays, and what is begun counts for it.
    pub fn run<T>(self: &Arc<Self>, work: impl FnOnce() -> T) -> T {
        if WATCHER.try_with(|watcher| Arc::ptr_eq(watcher, self)).unwrap_or(false) {
            return work();
        }
        WATCHER.sync_scope(Arc::clone(self), || self.payer.run(work))
    }

    /// The same whenever a future is polled.
    pub async fn during<F: Future>(self: Arc<Self>, work: F) -> F::Output {
        let mut work = std::pin::pin!(work);
        std::future::poll_fn(|context| self.run(|| work.as_mut().poll(context))).await
    }

    /// It has waited so long for a slot, and has one.
    pub(crate) fn begins(&self, queued: Duration) {
        let mut times = self.times();
        times.queued += queued;
        let now = Instant::now();
        (times.slot, times.planning) = (Some(now), Some(now));
    }

    /// Its slot is given back.
    pub(crate) fn ends(&self) {
        let mut times = self.times();
        let computed = times.slot.take().map(|at| at.elapsed()).unwrap_or_default();
        times.computed += computed;
        times.planning = None;
    }

    /// Operators hold so much more.
    pub(crate) fn took(&self, bytes: usize) {
        let held = self.memory.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        self.memory_peak.fetch_max(held, Ordering::Relaxed);
    }

    /// And so much less.
    pub(crate) fn gave(&self, bytes: usize) {
        self.memory.fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    /// Another node has computed a part.
    pub(crate) fn spent(&self, more: Spent) {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        *nodes = Spent {
            busy: nodes.busy.saturating_add(more.busy),
            bytes_read: nodes.bytes_read.saturating_add(more.bytes_read),
            gets: nodes.gets.saturating_add(more.gets),
            lists: nodes.lists.saturating_add(more.lists),
        };
    }

    /// Operators wrote so much to disk.
    pub(crate) fn spilled(&self, bytes: usize) {
        self.spilled_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// So many more rows of the answer were handed out.
    pub(crate) fn answered(&self, rows: usize) {
        self.rows_answered.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// From now on the scans of a plan, which is about to run, count.
    fn add(&self, plan: &dyn ExecutionPlan) {
        if let Some(scan) = plan.downcast_ref::<DataSourceExec>()
            && let Some(files) = scan.data_source().downcast_ref::<FileScanConfig>()
        {
            let count: usize = files.file_groups.iter().map(|group| group.len()).sum();
            let scan = Scan { files: count as u64, bytes: None, counters: files.metrics() };
            self.scans.lock().unwrap_or_else(PoisonError::into_inner).push(scan);
        }
        plan.children().into_iter().for_each(|child| self.add(child.as_ref()));
    }
}

/// Does `work`, whose plans `watcher` is to know of.
pub(crate) async fn watched<F: Future>(watcher: Option<Arc<QueryProgress>>, work: F) -> F::Output {
    match watcher {
        Some(watcher) => watcher.during(work).await,
        None => work.await,
    }
}

/// Whoever wants to know of the statement of this task. Mostly nobody does.
pub(crate) fn watcher() -> Option<Arc<QueryProgress>> {
    WATCHER.try_with(Arc::clone).ok()
}

/// A plan of this task is about to run.
pub(crate) fn runs(plan: &dyn ExecutionPlan) {
    let _ = WATCHER.try_with(|watcher| watcher.add(plan));
    is_planned();
}

/// The plan of this task's statement is there.
pub(crate) fn is_planned() {
    let _ = WATCHER.try_with(|watcher| {
        let mut times = watcher.times();
        let planned = times.planning.take().map(|at| at.elapsed()).unwrap_or_default();
        times.planned += planned;
    });
}

/// A scan of this task begins to read files of text, of so many bytes together; the counters are its.
pub(crate) fn reads_text(files: usize, bytes: Option<u64>, counters: &ExecutionPlanMetricsSet) {
    let reads = |watcher: &Arc<QueryProgress>| {
        let scan = Scan { files: files as u64, bytes, counters: counters.clone() };
        watcher.scans.lock().unwrap_or_else(PoisonError::into_inner).push(scan);
    };
    let _ = WATCHER.try_with(reads);
}

/// A scan of this task need not read so many files of its table.
pub(crate) fn skips(files: usize) {
    let skipped = |watcher: &Arc<QueryProgress>| {
        watcher.files_skipped.fetch_add(files as u64, Ordering::Relaxed);
    };
    let _ = WATCHER.try_with(skipped);
}

/// The side of a join was there, which took so long to compute.
pub(crate) fn finds_side(took_nanos: u64) {
    let found = |watcher: &Arc<QueryProgress>| {
        watcher.sides_kept.fetch_add(1, Ordering::Relaxed);
        watcher.saved_nanos.fetch_add(took_nanos, Ordering::Relaxed);
    };
    let _ = WATCHER.try_with(found);
}

/// From now on each task that DataFusion begins is that of whoever begins it. A program that has set a tracer of its
/// own has its statements' tasks counted for nobody.
pub(crate) fn follow_tasks() {
    let _ = set_join_set_tracer(&Follows);
}

/// Does `work` here until it is to go on elsewhere, and there from then on.
async fn until_elsewhere(watcher: Arc<QueryProgress>, work: BoxFuture<'static, Made>) -> Made {
    let mut work = Some(work);
    let done = std::future::poll_fn(|context| match (&mut work, watcher.elsewhere.get()) {
        (Some(work), None) => work.as_mut().poll(context).map(Some),
        _ => Poll::Ready(None),
    });
    if let Some(made) = done.await {
        return made;
    }
    let (Some(work), Some(runtime)) = (work, watcher.elsewhere.get()) else {
        return std::future::pending().await;
    };
    if runtime.id() == Handle::current().id() {
        return work.await;
    }
    // Ends with what waits for it.
    let mut there = JoinSet::new();
    there.spawn_on(work, runtime);
    match there.join_next().await {
        Some(Ok(made)) => made,
        Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // That runtime has ended, and the process does.
        _ => std::future::pending().await,
    }
}

struct Follows;

type Made = Box<dyn Any + Send>;

impl JoinSetTracer for Follows {
    fn trace_future(&self, work: BoxFuture<'static, Made>) -> BoxFuture<'static, Made> {
        match watcher() {
            Some(watcher) => {
                let work = Box::pin(Arc::clone(&watcher).during(work));
                Box::pin(until_elsewhere(watcher, work))
            }
            None => work,
        }
    }

    fn trace_block(
        &self,
        work: Box<dyn FnOnce() -> Made + Send>,
    ) -> Box<dyn FnOnce() -> Made + Send> {
        match watcher() {
            Some(watcher) => Box::new(move || watcher.run(work)),
            None => work,
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::common::runtime::SpawnedTask;
    use tokio::sync::mpsc;

    use super::*;

    #[test]
    fn tasks_of_a_statement_go_on_elsewhere_from_their_next_poll() {
        follow_tasks();
        let named = |name: &str| {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(1).thread_name(name).enable_all().build().unwrap()
        };
        let (here, there) = (named("here"), named("there"));
        let progress = QueryProgress::new();
        let (tell, mut told) = mpsc::channel(1);
        let (wake, mut woken) = mpsc::channel::<()>(1);
        let thread = || std::thread::current().name().unwrap_or_default().to_owned();
        let work = async move {
            loop {
                let inner = SpawnedTask::spawn(async move { thread() }).join().await.unwrap();
                tell.send((thread(), inner)).await.unwrap();
                if woken.recv().await.is_none() {
                    return 7;
                }
            }
        };
        let _here = here.enter();
        let task = progress.run(|| SpawnedTask::spawn(work));
        let both = |name: &str| Some((name.to_owned(), name.to_owned()));
        assert_eq!(told.blocking_recv(), both("here"));
        wake.blocking_send(()).unwrap();
        assert_eq!(told.blocking_recv(), both("here"));
        progress.go_on(there.handle());
        // It may be in the middle of a poll.
        let next = || {
            wake.blocking_send(()).unwrap();
            told.blocking_recv()
        };
        let found: Vec<_> = std::iter::repeat_with(next).take(100).collect();
        assert_eq!(found.last().unwrap(), &both("there"));
        assert!(progress.payer().busy() > Duration::ZERO, "it still pays");
        drop(wake);
        assert_eq!(here.block_on(task.join()).unwrap(), 7);
    }

    #[test]
    fn a_task_that_went_on_elsewhere_ends_with_its_statement_and_panics_as_it_would_have() {
        follow_tasks();
        let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let (here, there) = (runtime(), runtime());
        let progress = QueryProgress::new();
        progress.go_on(there.handle());
        let (tell, mut told) = mpsc::channel::<()>(1);
        let endless = async move {
            let _tell = tell;
            std::future::pending::<()>().await
        };
        let _here = here.enter();
        let task = progress.run(|| SpawnedTask::spawn(endless));
        drop(task);
        // What it held is gone.
        assert_eq!(told.blocking_recv(), None);
        let panics = async { panic!("on purpose") };
        let task: SpawnedTask<()> = progress.run(|| SpawnedTask::spawn(panics));
        assert!(here.block_on(task.join()).unwrap_err().is_panic());
    }
}
