//! Deadlines that are noticed however busy the runtime is.
//!
//! A runtime looks at its timers when a thread of it has nothing to do or has done some dozens of polls; where
//! each takes a second, a deadline is minutes late. These have a thread of their own.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use uplake_table::Payer;

use crate::base::error::{EngineError, Result};

/// The thread's list; `None` if the system gives no thread.
static CLOCK: LazyLock<Option<Arc<Clock>>> = LazyLock::new(|| {
    let clock = Arc::new(Clock::default());
    let ticks = Arc::clone(&clock);
    let thread = std::thread::Builder::new().name("deadlines".to_owned());
    thread.spawn(move || ticks.run()).ok()?;
    Some(clock)
});

/// Who waits, by the time and a number of its own.
type Place = (Instant, u64);

/// Those who wait for an instant, and the thread that wakes them.
///
/// A deadline that nobody waits for any more does not wake the thread, and one that is later than what it sleeps for does
/// not, either: of short statements one after the other, each with a minute, one in a minute does.
#[derive(Debug, Default)]
struct Clock {
    waiting: Mutex<Waiting>,
    sooner: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    wakers: BTreeMap<Place, Waker>,
    /// What the thread sleeps for.
    until: Option<Instant>,
}

impl Clock {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut waiting = self.waiting();
        loop {
            let now = Instant::now();
            let later = waiting.wakers.split_off(&(now, u64::MAX));
            let over = std::mem::replace(&mut waiting.wakers, later);
            if !over.is_empty() {
                drop(waiting);
                over.into_values().for_each(Waker::wake);
                waiting = self.waiting();
                continue;
            }
            waiting.until = waiting.wakers.first_key_value().map(|((at, _), _)| *at);
            let slept = match waiting.until {
                Some(at) => {
                    let slept = self.sooner.wait_timeout(waiting, at - now);
                    slept.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.sooner.wait(waiting).unwrap_or_else(PoisonError::into_inner),
            };
            waiting = slept;
        }
    }

    fn wake(&self, place: Place, waker: &Waker) {
        let mut waiting = self.waiting();
        if waiting.wakers.get(&place).is_some_and(|known| known.will_wake(waker)) {
            return;
        }
        let before = waiting.wakers.insert(place, waker.clone());
        if waiting.until.is_none_or(|until| place.0 < until) {
            // Once for all that come before it looks.
            waiting.until = Some(place.0);
            self.sooner.notify_one();
        }
        drop(waiting);
        drop(before);
    }

    /// Nobody waits there any more.
    fn forget(&self, place: Place) {
        // Dropped after the list is free again: it may be the last that holds a task, with alarms of its own.
        let waker = self.waiting().wakers.remove(&place);
        drop(waker);
    }
}

/// Ends at an instant. Nothing before it is polled: most statements are done before anybody waits for their deadline.
#[derive(Debug)]
pub(crate) struct Alarm {
    at: Instant,
    timer: Option<Timer>,
}

#[derive(Debug)]
enum Timer {
    Thread(Arc<Clock>, u64),
    Here(Pin<Box<tokio::time::Sleep>>),
}

impl Alarm {
    pub const fn at(instant: Instant) -> Self {
        Self { at: instant, timer: None }
    }

    /// Is it past now?
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.at
    }
}

impl Timer {
    fn new(at: Instant) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        match CLOCK.as_ref() {
            Some(clock) => Self::Thread(Arc::clone(clock), NEXT.fetch_add(1, Ordering::Relaxed)),
            None => Self::Here(Box::pin(tokio::time::sleep_until(at.into()))),
        }
    }
}

impl Future for Alarm {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.is_over() {
            return Poll::Ready(());
        }
        let at = self.at;
        match self.timer.get_or_insert_with(|| Timer::new(at)) {
            Timer::Thread(clock, number) => {
                clock.wake((at, *number), context.waker());
                Poll::Pending
            }
            Timer::Here(sleep) => sleep.as_mut().poll(context),
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if let Some(Timer::Thread(clock, number)) = &self.timer {
            clock.forget((self.at, *number));
        }
    }
}

/// `work`, or `None` at the deadline if it is not done by then.
pub(crate) async fn until<T>(deadline: Instant, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        done = work => Some(done),
        () = Alarm::at(deadline) => None,
    }
}

/// What `work` comes to, which may take so long from now and is dropped then.
///
/// # Errors
/// [`EngineError::TimedOut`].
pub async fn within<T>(timeout: Option<Duration>, work: impl Future<Output = T>) -> Result<T> {
    let began = Instant::now();
    let Some(timeout) = timeout else { return Ok(work.await) };
    let Some(deadline) = began.checked_add(timeout) else { return Ok(work.await) };
    until(deadline, work).await.ok_or_else(|| {
        let (queued, ran) = (Duration::ZERO, began.elapsed());
        ended(EngineError::TimedOut { timeout, queued, ran, place: None })
    })
}

/// Why the statement of this task ended before it was done, or that nobody knows whether it took effect: its commit was
/// sent by then.
pub(crate) fn ended(error: EngineError) -> EngineError {
    match Payer::current().and_then(|payer| payer.sent_commit()) {
        None => error,
        Some(table) => EngineError::outcome_unknown(table, error.message()),
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn a_deadline_is_noticed_while_all_threads_are_at_work() {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (end, ended) = std::sync::mpsc::sync_channel::<()>(1);
        runtime.spawn(async move { ended.recv() });
        // The only worker waits for this test.
        let deadline = Instant::now() + Duration::from_millis(20);
        let late = runtime.block_on(until(deadline, std::future::pending::<()>()));
        assert_eq!(late, None);
        let soon = Instant::now() + Duration::from_secs(60);
        assert_eq!(runtime.block_on(until(soon, async { 7 })), Some(7));
        end.send(()).unwrap();
    }

    #[test]
    fn many_deadlines_in_any_order_are_noticed_and_leave_nothing() {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let began = Instant::now();
        let after = move |ms: u64| began + Duration::from_millis(ms);
        runtime.block_on(async {
            // A later one first, so that the thread sleeps for it; some are given up.
            let given_up = Alarm::at(after(60_000));
            assert!(futures::poll!(Box::pin(given_up)).is_pending());
            let waits = (0..100).map(|n| {
                tokio::spawn(async move {
                    let at = after(20 + n * 7 % 50);
                    Alarm::at(at).await;
                    let late = Instant::now().saturating_duration_since(at);
                    assert!(Instant::now() >= at && late < Duration::from_secs(5), "{late:?}");
                })
            });
            for wait in waits.collect::<Vec<_>>() {
                wait.await.unwrap();
            }
        });
        let clock = CLOCK.as_ref().unwrap();
        let mine = after(0)..after(60_001);
        let left = clock.waiting().wakers.keys().filter(|(at, _)| mine.contains(at)).count();
        assert!(left < 10, "{left} of other tests at most");
    }

    #[test]
    fn who_waits_too_long_for_a_commit_hears_that_nobody_knows() {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let of = |sends: bool| {
            let payer = Arc::new(Payer::default());
            let work = within(Some(Duration::from_millis(20)), async move {
                assert!(!sends || Payer::current().unwrap().sends_commit("sales"));
                std::future::pending::<()>().await
            });
            runtime.block_on(payer.pays_for(work)).unwrap_err()
        };
        assert_eq!(of(false).code().as_str(), "57014");
        let unknown = of(true);
        assert_eq!(unknown.code().as_str(), "40003");
        let text = unknown.to_string();
        assert!(text.contains("`sales`") && text.contains("the time-out of 20 ms"), "{text}");
    }

    #[test]
    fn what_takes_too_long_is_told_so() {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let of = |timeout, work: bool| {
            runtime.block_on(within(timeout, async move {
                match work {
                    true => 7,
                    false => std::future::pending().await,
                }
            }))
        };
        let late = of(Some(Duration::from_millis(20)), false).unwrap_err();
        assert_eq!(late.code().as_str(), "57014");
        for timeout in [None, Some(Duration::ZERO), Some(Duration::MAX)] {
            assert_eq!(of(timeout, true).unwrap(), 7);
        }
    }
}
