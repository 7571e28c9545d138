//! Deadlines that are noticed however busy the runtime is.
//!
//! A runtime looks at its timers when a thread of it has nothing to do or has done some dozens of polls; where
//! each takes a second, a deadline is minutes late. These have a thread of their own.

use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle};
use tokio::task::JoinHandle;
use uplake_table::Payer;

use crate::base::error::{EngineError, Result};

/// The runtime of the thread; `None` if the system gives no thread.
static TIMERS: LazyLock<Option<Handle>> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_time().build().ok()?;
    let handle = runtime.handle().clone();
    let ticks = std::thread::Builder::new().name("deadlines".to_owned());
    ticks.spawn(move || runtime.block_on(std::future::pending::<()>())).ok()?;
    Some(handle)
});

/// Ends at an instant. Dropped, it costs nothing any more, and nothing before it is polled: most statements are done
/// before anybody waits for their deadline, and to wake that thread takes longer than a short one.
#[derive(Debug)]
pub(crate) struct Alarm {
    at: Instant,
    timer: Option<Timer>,
}

#[derive(Debug)]
enum Timer {
    Thread(JoinHandle<()>),
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
        let sleep = move || tokio::time::sleep_until(at.into());
        match TIMERS.as_ref() {
            Some(timers) => Self::Thread(timers.spawn(async move { sleep().await })),
            None => Self::Here(Box::pin(sleep())),
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
            Timer::Thread(task) => Pin::new(task).poll(context).map(drop),
            Timer::Here(sleep) => sleep.as_mut().poll(context),
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if let Some(Timer::Thread(task)) = &self.timer {
            task.abort();
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
    use std::sync::Arc;

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
