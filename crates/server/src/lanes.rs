//! Threads of tenants: each tenant's statements compute on threads of its own, and on threads that go behind all others
//! while it has computed more than its share.
//!
//! A runtime's thread stays with a task until that waits, and a scan waits seldom: a short statement would stand behind
//! the long ones of others at each of its steps. Between threads the system shares the cores out every few
//! milliseconds, whatever they do; that is long beside a short statement, which comes to a thread a dozen times. So
//! threads of who computes more than its share have a lower priority: they go on with all that others leave.
//!
//! # Invariants
//! - Statements of those who are no tenant's, and of tenants beyond [`MOST_LANES`], are on the threads of the process.
//! - What computes while no other tenant is there has threads as any other.
//! - Nothing waits for a thread that goes behind but what is there itself, shares a read or a computation with it, or
//!   wants a lock that it holds; with one that waits a core is free for it.
//!
//! # Not here
//! Whose turn it is to compute at all (the engine's admission); who is behind (`fair_share`); what waits for a bucket, which
//! has threads that all share (`objectio`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use tokio::runtime::{Builder, Handle, Runtime};
use uplake_engine::QueryProgress;

use crate::drivers::{AbortOnDrop, Drivers, STACK_BYTES};
use crate::fair_share::FairShare;

/// Tenants that have threads of their own; each costs about twice as many threads as there are cores, which sleep, and
/// as many again once it has gone behind.
const MOST_LANES: usize = 32;
/// What is added to how nice threads are that go behind: beside one that is as nice as usual they get a tenth of a
/// core (110 to 1024), enough to let go of what they hold.
#[cfg(target_os = "linux")]
const NICER: i32 = 10;
/// What they are called: the system shows 15 characters.
const BEHIND: &str = "behind";

/// Threads that compute, and those that drive what does.
#[derive(Debug)]
struct Threads {
    /// They go first.
    drivers: Arc<Drivers>,
    runtime: Option<Runtime>,
}

impl Threads {
    /// So many, each of which does `first` before all else.
    fn start(count: usize, name: &str, first: fn()) -> Option<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(count)
            .thread_name(name)
            .thread_stack_size(STACK_BYTES)
            .on_thread_start(first)
            .enable_all()
            .build()
            .ok()?;
        let drivers = Arc::new(Drivers::new(runtime.handle(), first));
        Some(Self { drivers, runtime: Some(runtime) })
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        // They may be dropped by a thread of another runtime, which must not wait. Somebody has to: a thread that ends
        // while it is let go of is a fault of glibc's (`environment.rs` of the command).
        let (give, taken) = std::sync::mpsc::sync_channel::<Runtime>(1);
        let waits = std::thread::Builder::new().name("ending".to_owned());
        match waits.spawn(move || drop(taken.recv())) {
            Ok(_) => drop(give.send(runtime)),
            // There are no threads any more; the fault is seldom.
            Err(_) => runtime.shutdown_background(),
        }
    }
}

/// From now on this thread goes behind others.
fn go_behind() {
    // Where that is not allowed it goes with them.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(NICER);
}

/// The threads of one tenant, or of all others.
#[derive(Debug)]
pub(crate) struct Lane {
    usual: Threads,
    /// Made when first it goes behind; without threads of its own for that it goes with all others.
    behind: OnceLock<Option<Threads>>,
    threads: usize,
    /// Its number in `share`, and whether it is behind.
    number: usize,
    is_behind: Arc<AtomicBool>,
    share: Arc<Mutex<FairShare>>,
}

impl Lane {
    fn new(usual: Threads, threads: usize, share: &Arc<Mutex<FairShare>>) -> Arc<Self> {
        let now = Instant::now();
        let mut joined = share.lock().unwrap_or_else(PoisonError::into_inner);
        let (number, is_behind) = joined.join(now);
        drop(joined);
        let (behind, share) = (OnceLock::new(), Arc::clone(share));
        Arc::new(Self { usual, behind, threads, number, is_behind, share })
    }

    /// Drives work of the server itself, which never goes behind.
    pub fn spawn_own(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortOnDrop {
        self.usual.drivers.spawn(work)
    }

    /// Drives a statement's work, behind from the moment on that this is.
    pub fn spawn(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) -> AbortOnDrop {
        if let Some(behind) = self.drivers_behind() {
            return behind.spawn(work);
        }
        // What is driven is not what keeps the threads.
        let lane = Arc::downgrade(self);
        let elsewhere = move || lane.upgrade().and_then(|lane| lane.drivers_behind());
        self.usual.drivers.spawn_until(elsewhere, work)
    }

    /// Those to go on with, if it is behind.
    fn drivers_behind(&self) -> Option<Arc<Drivers>> {
        self.threads_behind().map(|threads| Arc::clone(&threads.drivers))
    }

    fn threads_behind(&self) -> Option<&Threads> {
        if !self.is_behind.load(Ordering::Relaxed) {
            return None;
        }
        let start = || Threads::start(self.threads, BEHIND, go_behind);
        self.behind.get_or_init(start).as_ref()
    }

    /// If it is behind, so is what a statement of it computes already.
    pub fn look_at(&self, statement: &QueryProgress) {
        if let Some(runtime) = self.threads_behind().and_then(|threads| threads.runtime.as_ref()) {
            statement.go_on(runtime.handle());
        }
    }

    /// A statement comes, of somebody with a weight.
    pub fn comes(&self, weight: u32) {
        self.share().comes(self.number, weight, Instant::now());
    }

    /// Its statements have used so many seconds of cores.
    pub fn used(&self, seconds: f64) {
        self.share().used(self.number, seconds, Instant::now());
    }

    fn share(&self) -> std::sync::MutexGuard<'_, FairShare> {
        self.share.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The threads of all.
#[derive(Debug)]
pub(crate) struct Lanes {
    threads: usize,
    share: Arc<Mutex<FairShare>>,
    common: Arc<Lane>,
    tenants: Mutex<HashMap<String, Arc<Lane>>>,
}

impl Lanes {
    /// What is no tenant's computes on `common`.
    pub fn new(common: &Handle) -> Self {
        let threads = common.metrics().num_workers();
        let share = Arc::new(Mutex::new(FairShare::new(threads)));
        let drivers = Arc::new(Drivers::new(common, || ()));
        let common = Lane::new(Threads { drivers, runtime: None }, threads, &share);
        Self { threads, share, common, tenants: Mutex::default() }
    }

    /// Where statements of no tenant are.
    pub fn common(&self) -> &Arc<Lane> {
        &self.common
    }

    /// Where statements of a tenant are.
    pub fn of(&self, tenant: Option<&str>) -> Arc<Lane> {
        let Some(tenant) = tenant else { return Arc::clone(&self.common) };
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = tenants.get(tenant) {
            return Arc::clone(lane);
        }
        if tenants.len() >= MOST_LANES {
            return Arc::clone(&self.common);
        }
        // Without threads of its own it is as everybody.
        let Some(usual) = Threads::start(self.threads, "tenant", || ()) else {
            return Arc::clone(&self.common);
        };
        let lane = Lane::new(usual, self.threads, &self.share);
        tenants.insert(tenant.to_owned(), Arc::clone(&lane));
        lane
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::{mpsc, oneshot};

    use super::*;

    #[test]
    fn a_tenant_that_keeps_its_threads_keeps_nobody_elses() {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let lanes = Lanes::new(runtime.handle());
        let (flood, small) = (lanes.of(Some("flood")), lanes.of(Some("small")));
        assert!(Arc::ptr_eq(&flood, &lanes.of(Some("flood"))));
        assert!(Arc::ptr_eq(&lanes.of(None), lanes.common()));
        let (stop, stopped) = std::sync::mpsc::sync_channel::<()>(1);
        let stopped = Arc::new(Mutex::new(stopped));
        let _busy = flood.spawn(async move {
            for _ in 0..4 {
                let stopped = Arc::clone(&stopped);
                tokio::spawn(async move { stopped.lock().unwrap().recv().is_err() });
            }
            std::future::pending::<()>().await;
        });
        std::thread::sleep(Duration::from_millis(20));
        for lane in [&small, lanes.common()] {
            let (tell, told) = oneshot::channel();
            let _works = lane.spawn(async move {
                let sum = tokio::spawn(async { 3 + 4 }).await.unwrap();
                tell.send(sum).unwrap();
            });
            assert_eq!(futures::executor::block_on(told), Ok(7));
        }
        drop(stop);
    }

    #[test]
    fn tenants_with_threads_are_bounded() {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let lanes = Lanes::new(runtime.handle());
        let all: Vec<Arc<Lane>> =
            (0..MOST_LANES + 1).map(|n| lanes.of(Some(&format!("tenant {n}")))).collect();
        assert!(Arc::ptr_eq(&all[MOST_LANES], lanes.common()));
        assert!(!Arc::ptr_eq(&all[0], lanes.common()));
    }

    /// How nice the thread is on which a task runs that a statement of a lane spawns, and what that thread is called.
    fn thread_of(lane: &Arc<Lane>) -> (String, i64) {
        let (tell, told) = oneshot::channel();
        let _works = lane.spawn(async move {
            let spawned = tokio::spawn(async { this_thread() }).await.unwrap();
            let driver = this_thread();
            assert_eq!(driver.1, spawned.1, "who drives it is as nice");
            tell.send(spawned).unwrap();
        });
        futures::executor::block_on(told).unwrap()
    }

    fn this_thread() -> (String, i64) {
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        // The 19th word, the second of which is a name in brackets.
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap_or_default();
        let nice = stat.rsplit(')').next().and_then(|words| words.split_whitespace().nth(16));
        (name, nice.and_then(|nice| nice.parse().ok()).unwrap_or(0))
    }

    #[test]
    fn who_has_more_than_its_share_goes_behind_while_others_are_there() {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let lanes = Lanes::new(runtime.handle());
        let (flood, small) = (lanes.of(Some("flood")), lanes.of(Some("small")));
        let usual = this_thread().1;
        flood.comes(1);
        flood.used(1000.0);
        assert_eq!(thread_of(&flood), ("tenant".to_owned(), usual), "nobody else is there");
        small.comes(1);
        let (name, nice) = thread_of(&flood);
        assert_eq!(name, BEHIND);
        if cfg!(target_os = "linux") {
            assert_eq!(nice, (usual + 10).min(19));
        }
        assert_eq!(thread_of(&small), ("tenant".to_owned(), usual));
        // Others' use makes it the one with least.
        small.used(2000.0);
        assert_eq!(thread_of(&flood).0, "tenant");
        assert_eq!(thread_of(&small).0, BEHIND);
        // The process's own work stays.
        lanes.common().comes(1);
        lanes.common().used(4000.0);
        let (tell, told) = oneshot::channel();
        let _own = lanes.common().spawn_own(async move { tell.send(this_thread().1).unwrap() });
        assert_eq!(futures::executor::block_on(told), Ok(usual));
        assert_eq!(thread_of(lanes.common()).0, BEHIND);
    }

    #[test]
    fn one_that_waits_goes_behind_with_its_tenant() {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let lanes = Lanes::new(runtime.handle());
        let (flood, small) = (lanes.of(Some("flood")), lanes.of(Some("small")));
        let (grant, mut granted) = mpsc::channel::<()>(1);
        let (tell, mut told) = mpsc::channel(1);
        let _waits = flood.spawn(async move {
            while granted.recv().await.is_some() {
                let spawned = tokio::spawn(async { this_thread().0 }).await.unwrap();
                tell.send(spawned).await.unwrap();
            }
        });
        let mut next = || {
            grant.blocking_send(()).unwrap();
            told.blocking_recv().unwrap()
        };
        assert_eq!(next(), "tenant");
        small.comes(1);
        flood.used(1000.0);
        // It may be in the middle of a poll.
        let found: Vec<String> = std::iter::repeat_with(next).take(100).collect();
        assert_eq!(found.last().unwrap(), BEHIND);
    }
}
