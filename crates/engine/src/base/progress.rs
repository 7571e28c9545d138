//! How far a statement is, for whoever asks while it runs.
//!
//! Scans count rows, bytes and files anyway (EXPLAIN ANALYZE shows them). A [`QueryProgress`] knows where those
//! counters are and adds them up when it is asked: a scan does nothing for it.
//!
//! # Invariants
//! - No count ever gets less: a statement that runs again adds its scans to those it had, and rows that are read
//!   again count again.
//! - Counters alone are held, never a plan, its memory or its files.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::{DataSource, DataSourceExec};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricValue};
use uplake_table::Store;

/// What DataFusion calls its counters of a scan.
const FILES_DONE: &str = "files_processed";
const BYTES_READ: &str = "bytes_scanned";

tokio::task_local! {
    /// Who wants to know how far the statement of this task is.
    static WATCHER: Arc<QueryProgress>;
}

/// The progress of one statement, or report: give it to [`RunOptions`](crate::RunOptions), and ask it whenever.
#[derive(Debug, Default)]
pub struct QueryProgress {
    scans: Mutex<Vec<Scan>>,
    rows_answered: AtomicU64,
    slot: Mutex<Slot>,
    /// Handles that count what was asked of the store.
    stores: Mutex<Vec<Arc<Store>>>,
}

/// How long it had a slot, and since when it has one.
#[derive(Debug, Default)]
struct Slot {
    before: Duration,
    since: Option<Instant>,
}

#[derive(Debug)]
struct Scan {
    files: u64,
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
    /// Rows that scans have handed on.
    pub rows_read: u64,
    /// Bytes of data files that were read; none of columns that are kept decoded.
    pub bytes_read: u64,
    /// Rows of the answer that were handed out.
    pub rows_answered: u64,
    /// Seconds that it had a slot.
    pub slot_seconds: f64,
    /// Estimated US dollars of what was asked of the store.
    pub request_dollars: f64,
}

impl QueryProgress {
    /// Counts from now on.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// How far the statement is.
    pub fn counts(&self) -> ProgressCounts {
        let mut counts = ProgressCounts {
            rows_answered: self.rows_answered.load(Ordering::Relaxed),
            slot_seconds: self.slot_seconds(),
            request_dollars: self.request_dollars(),
            ..ProgressCounts::default()
        };
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
            // A recursive query reads its files several times, and so does what goes on in a form that spills.
            counts.files_done += done.min(scan.files);
        }
        counts
    }

    fn slot_seconds(&self) -> f64 {
        let slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        let now = slot.since.map_or(Duration::ZERO, |since| since.elapsed());
        (slot.before + now).as_secs_f64()
    }

    fn request_dollars(&self) -> f64 {
        let stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        stores.iter().map(|store| store.dollars()).sum()
    }

    /// It gets a slot, or gives it back.
    pub(crate) fn has_slot(&self, has: bool) {
        let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(since) = slot.since.take() {
            slot.before += since.elapsed();
        }
        slot.since = has.then(Instant::now);
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
            let scan = Scan { files: count as u64, counters: files.metrics() };
            self.scans.lock().unwrap_or_else(PoisonError::into_inner).push(scan);
        }
        plan.children().into_iter().for_each(|child| self.add(child.as_ref()));
    }
}

/// Does `work`, whose plans `watcher` is to know of.
pub(crate) async fn watched<F: Future>(watcher: Option<Arc<QueryProgress>>, work: F) -> F::Output {
    match watcher {
        Some(watcher) => WATCHER.scope(watcher, work).await,
        None => work.await,
    }
}

/// The statement of this task asks the store by this handle.
pub(crate) fn asks(store: &Arc<Store>) {
    let _ = WATCHER.try_with(|watcher| {
        let mut stores = watcher.stores.lock().unwrap_or_else(PoisonError::into_inner);
        stores.push(Arc::clone(store));
    });
}

/// A plan of this task is about to run.
pub(crate) fn runs(plan: &dyn ExecutionPlan) {
    // Mostly nobody wants to know.
    let _ = WATCHER.try_with(|watcher| watcher.add(plan));
}
