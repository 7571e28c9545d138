//! Threads that drive statements: they poll answers, and what computes rows runs on the runtime's own threads.
//!
//! A join or an aggregate can keep a runtime's thread for a long time. Were the task that waits for its rows, knows
//! its deadline and hears that its client is gone one of the same threads', it would not be polled either, and
//! nobody could stop the statement. A command has its main thread for that; a server has these.
//!
//! Planning is done in one poll, which takes seconds for a statement of a thousand parts. So there are more of these
//! threads than the runtime has, and what comes goes to one that is not at it; a statement that is stopped, or whose
//! client is gone, is planned no further than to its next step. Of those it is the one with the fewest statements, and the
//! first of them: of statements one after the other each finds the caches, and the allocator's, as the last one left them.
//!
//! # Invariants
//! - What a driven future spawns runs on the runtime of the drivers that poll it.
//! - A future that is to go on elsewhere does so from its next poll on; what it has spawned stays where it is.
//! - A panic ends one future.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;

use futures::stream::{FuturesUnordered, StreamExt};
use futures::{FutureExt, future};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use uplake_engine::Stop;

/// Futures that wait for a thread to take them; it takes all that there are at once.
const WAITING: usize = 10_000;
/// Statements are planned here, by functions that call themselves for each level of an expression. Only what is
/// touched becomes memory.
pub(crate) const STACK_BYTES: usize = 256 << 20;
/// There are at least so many threads, and so many for each of the runtime's, so that those that plan do not keep all.
const LEAST: usize = 8;
const FOR_EACH: usize = 2;

type Driven = Pin<Box<dyn Future<Output = ()> + Send>>;
/// Whose threads are to poll a future from now on, if others.
type Elsewhere = Box<dyn Fn() -> Option<Arc<Drivers>> + Send>;

/// What is polled.
struct Task {
    work: Driven,
    elsewhere: Option<Elsewhere>,
}

/// The threads.
#[derive(Debug)]
pub(crate) struct Drivers {
    threads: Vec<Thread>,
}

#[derive(Debug)]
struct Thread {
    come: mpsc::Sender<(Task, Counted)>,
    load: Arc<Load>,
}

#[derive(Debug, Default)]
struct Load {
    /// It polls something now.
    polls: AtomicBool,
    tasks: AtomicUsize,
}

/// One of a thread's tasks, until this is dropped.
#[derive(Debug)]
struct Counted(Arc<Load>);

impl Counted {
    fn of(load: &Arc<Load>) -> Self {
        load.tasks.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(load))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.tasks.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drivers {
    /// Threads for a runtime, that each do `first` before all else. They end when this is dropped and what they drive
    /// is done.
    pub fn new(runtime: &Handle, first: fn()) -> Self {
        let count = (FOR_EACH * runtime.metrics().num_workers()).max(LEAST);
        let threads = (0..count).filter_map(|_| {
            let (sender, come) = mpsc::channel(WAITING);
            let runtime = runtime.clone();
            let thread = std::thread::Builder::new().name("driver".to_owned());
            let work = drive(come);
            let spawned = thread.stack_size(STACK_BYTES).spawn(move || {
                first();
                runtime.block_on(work);
            });
            spawned.is_ok().then(|| Thread { come: sender, load: Arc::default() })
        });
        Self { threads: threads.collect() }
    }

    /// Drives a future until it is done, or what is given back is dropped. With no room for it, it is dropped at once.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortOnDrop {
        self.start(work, None)
    }

    /// As [`Self::spawn`], until `elsewhere`, which is asked before each poll, has other threads for it.
    pub fn spawn_until(
        &self,
        elsewhere: impl Fn() -> Option<Arc<Self>> + Send + 'static,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> AbortOnDrop {
        self.start(work, Some(Box::new(elsewhere)))
    }

    fn start(
        &self,
        work: impl Future<Output = ()> + Send + 'static,
        elsewhere: Option<Elsewhere>,
    ) -> AbortOnDrop {
        let stop = Stop::default();
        let work = stop.during(AssertUnwindSafe(work).catch_unwind());
        let (work, abort) = future::abortable(work);
        self.take(Task { work: Box::pin(work.map(drop)), elsewhere });
        AbortOnDrop { abort, _stop: stop }
    }

    /// Gives a task to a thread.
    fn take(&self, mut task: Task) {
        let load = |thread: &&Thread| {
            let Load { polls, tasks } = &*thread.load;
            (polls.load(Ordering::Relaxed), tasks.load(Ordering::Relaxed))
        };
        let mut threads: Vec<&Thread> = self.threads.iter().collect();
        threads.sort_by_cached_key(load);
        for thread in threads {
            match thread.come.try_send((task, Counted::of(&thread.load))) {
                Ok(()) => break,
                Err(full) => (task, _) = full.into_inner(),
            }
        }
    }
}

/// Polls a task, and says so meanwhile, until it is done or is given back, to go on elsewhere.
fn marked(
    task: Task,
    counted: Counted,
) -> impl Future<Output = Option<(Task, Arc<Drivers>)>> + Send {
    let mut task = Some(task);
    future::poll_fn(move |context| {
        let Some(polled) = &mut task else { return Poll::Ready(None) };
        if let Some(drivers) = polled.elsewhere.as_ref().and_then(|elsewhere| elsewhere()) {
            polled.elsewhere = None;
            return Poll::Ready(task.take().map(|task| (task, drivers)));
        }
        let polls = &counted.0.polls;
        polls.store(true, Ordering::Relaxed);
        let is_done = polled.work.as_mut().poll(context);
        polls.store(false, Ordering::Relaxed);
        is_done.map(|()| None)
    })
}

/// Polls what comes until nothing more can.
async fn drive(mut come: mpsc::Receiver<(Task, Counted)>) {
    let mut all = FuturesUnordered::new();
    let mut is_open = true;
    while is_open || !all.is_empty() {
        tokio::select! {
            biased;
            next = come.recv(), if is_open => match next {
                Some((task, counted)) => all.push(marked(task, counted)),
                None => is_open = false,
            },
            Some(moved) = all.next() => if let Some((task, drivers)) = moved {
                drivers.take(task);
            },
        }
    }
}

/// A future that is stopped when this is dropped.
#[derive(Debug)]
pub(crate) struct AbortOnDrop {
    abort: future::AbortHandle,
    /// In the middle of a poll, too.
    _stop: Stop,
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.abort.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn a_runtime_that_is_busy_keeps_nobody_from_stopping() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let drivers = Drivers::new(runtime.handle(), || ());
        let (stop, stopped) = std::sync::mpsc::sync_channel::<()>(1);
        let (tell, told) = oneshot::channel::<()>();
        let driven = drivers.spawn(async move {
            // Keeps the only thread until the future is dropped.
            let _busy = tokio::spawn(async move { stopped.recv().is_err() });
            let _stop = stop;
            let _told = tell;
            std::future::pending::<()>().await;
        });
        std::thread::sleep(Duration::from_millis(20));
        drop(driven);
        // Its sender is gone with the future.
        assert!(futures::executor::block_on(told).is_err());
        assert!(runtime.block_on(async { tokio::spawn(async { 7 }).await.unwrap() }) == 7);
    }

    #[test]
    fn what_comes_goes_to_a_thread_that_is_free() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let drivers = Drivers::new(runtime.handle(), || ());
        let (stop, stopped) = std::sync::mpsc::sync_channel::<()>(0);
        let stopped = Arc::new(std::sync::Mutex::new(stopped));
        let polling = || {
            drivers
                .threads
                .iter()
                .filter(|thread| thread.load.polls.load(Ordering::Relaxed))
                .count()
        };
        // All but one.
        let all_but_one = drivers.threads.len() - 1;
        let plans: Vec<_> = (1..=all_but_one)
            .map(|count| {
                let stopped = Arc::clone(&stopped);
                let plan = drivers.spawn(async move {
                    let _ = stopped.lock().unwrap().recv();
                });
                while polling() < count {
                    std::thread::sleep(Duration::from_millis(1));
                }
                plan
            })
            .collect();
        for _ in 0..20 {
            let (tell, told) = oneshot::channel();
            let _works = drivers.spawn(async move { tell.send(7).unwrap() });
            assert_eq!(futures::executor::block_on(told), Ok(7));
            // It marks its thread as free after its answer.
            while polling() > all_but_one {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        drop((stop, plans));
    }

    #[test]
    fn one_after_the_other_goes_to_one_thread_and_many_at_once_to_all() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let drivers = Drivers::new(runtime.handle(), || ());
        let tasks = || {
            let of = |thread: &Thread| thread.load.tasks.load(Ordering::Relaxed);
            drivers.threads.iter().map(of).collect::<Vec<_>>()
        };
        let name = || {
            let (tell, told) = oneshot::channel();
            let work = async move { tell.send(std::thread::current().id()).unwrap() };
            let _works = drivers.spawn(work);
            let id = futures::executor::block_on(told).unwrap();
            while tasks().iter().any(|count| *count > 0) {
                std::thread::sleep(Duration::from_millis(1));
            }
            id
        };
        let first = name();
        assert!((0..20).all(|_| name() == first));
        let wait = || drivers.spawn(std::future::pending::<()>());
        let count = drivers.threads.len();
        let waiting: Vec<_> = (0..2 * count).map(|_| wait()).collect();
        // One that polls for a moment has one less than the others then.
        assert_eq!(tasks().iter().sum::<usize>(), 2 * count);
        assert!(tasks().iter().all(|count| (1..=3).contains(count)), "{:?}", tasks());
        drop(waiting);
        while tasks().iter().any(|count| *count > 0) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_future_goes_on_elsewhere_and_can_still_be_stopped() {
        let named = |name: &str| {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(1).thread_name(name).enable_all().build().unwrap()
        };
        let (here, there) = (named("here"), named("there"));
        let [first, other] = [&here, &there].map(|of| Arc::new(Drivers::new(of.handle(), || ())));
        let goes = Arc::new(AtomicBool::new(false));
        let elsewhere = {
            let goes = Arc::clone(&goes);
            move || goes.load(Ordering::Relaxed).then(|| Arc::clone(&other))
        };
        let (name, mut names) = mpsc::channel(2);
        let (wake, mut woken) = mpsc::channel::<()>(1);
        let (tell, told) = oneshot::channel::<()>();
        let driven = first.spawn_until(elsewhere, async move {
            let _told = tell;
            loop {
                let of = || std::thread::current().name().unwrap_or_default().to_owned();
                let spawned = tokio::spawn(async move { of() }).await.unwrap();
                name.send(spawned).await.unwrap();
                woken.recv().await.unwrap();
            }
        });
        assert_eq!(names.blocking_recv().unwrap(), "here");
        goes.store(true, Ordering::Relaxed);
        // It may be in the middle of a poll.
        let next = || {
            wake.blocking_send(()).unwrap();
            names.blocking_recv().unwrap()
        };
        let found: Vec<String> = std::iter::repeat_with(next).take(100).collect();
        assert_eq!(found.last().unwrap(), "there");
        drop(driven);
        assert!(futures::executor::block_on(told).is_err());
    }

    #[test]
    fn a_panic_ends_one_future_alone() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let drivers = Drivers::new(runtime.handle(), || ());
        let _panics: Vec<_> =
            (0..8).map(|_| drivers.spawn(async { panic!("on purpose") })).collect();
        let (tell, told) = oneshot::channel();
        let _works = drivers.spawn(async move { tell.send(7).unwrap() });
        assert_eq!(futures::executor::block_on(told), Ok(7));
    }
}
