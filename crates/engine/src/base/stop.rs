//! What ends a statement, for code that computes for long without waiting: planning, and the conditions of joins.
//!
//! A future that nobody wants is dropped, but not while it is polled, and a plan is made in one poll. So a task knows
//! who may stop its statement and when its time is over, and planning asks between its steps.
//!
//! # Not here
//! The steps (`optimizer::steps`); deadlines of what waits (`alarm`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::base::error::{EngineError, Result};
use crate::base::sql_state::SqlState;

tokio::task_local! {
    /// What ends the statement of this task; any of them does.
    static ENDS: Vec<End>;
}

#[derive(Clone, Debug)]
enum End {
    Stopped(Arc<AtomicBool>),
    Over(Deadline),
}

/// The time of a statement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    pub at: Instant,
    pub timeout: Duration,
    pub came: Instant,
    pub queued: Duration,
}

/// Dropped, it stops what was made with it.
///
/// Dropping a future stops it, too, but no sooner than the poll that it is in comes to its end, which takes seconds where
/// a large statement is planned. Whoever lets others poll keeps one of these beside the future.
#[derive(Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// True once it is dropped.
    pub(crate) fn flag(&self) -> &Arc<AtomicBool> {
        &self.0
    }

    /// `work`, in which statements are planned no further once this is dropped: they end with an error that has nobody
    /// who hears it.
    pub fn during<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        until(End::Stopped(Arc::clone(&self.0)), work)
    }

    /// `work` for another task, which ends with this and with the statement of this task.
    pub(crate) fn inherited<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        ENDS.scope(ends_and(End::Stopped(Arc::clone(&self.0))), work)
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// `work`, in which planning ends at the deadline.
pub(crate) async fn before<F: Future>(deadline: Deadline, work: F) -> F::Output {
    until(End::Over(deadline), work).await
}

async fn until<F: Future>(end: End, work: F) -> F::Output {
    ENDS.scope(ends_and(end), work).await
}

fn ends_and(end: End) -> Vec<End> {
    let mut ends = ENDS.try_with(Vec::clone).unwrap_or_default();
    ends.push(end);
    ends
}

/// When the time of this task's statement is over.
pub(crate) fn deadline() -> Option<Instant> {
    let at = |end: &End| match end {
        End::Stopped(_) => None,
        End::Over(deadline) => Some(deadline.at),
    };
    ENDS.try_with(|ends| ends.iter().filter_map(at).min()).ok().flatten()
}

/// Between two steps: is the statement of this task still wanted?
///
/// # Errors
/// [`EngineError::TimedOut`] if its time is over, 57014 if it has been stopped.
pub(crate) fn check() -> Result<()> {
    let check = |end: &End| match end {
        End::Stopped(stopped) if stopped.load(Ordering::Relaxed) => Err(EngineError::execution(
            SqlState::QueryCanceled,
            "the statement was stopped while it was planned",
        )),
        End::Over(Deadline { at, timeout, came, queued }) if Instant::now() >= *at => {
            let ran = came.elapsed().saturating_sub(*queued);
            Err(EngineError::TimedOut { timeout: *timeout, queued: *queued, ran, place: None })
        }
        _ => Ok(()),
    };
    ENDS.try_with(|ends| ends.iter().try_for_each(check)).unwrap_or(Ok(()))
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn deadline(at: Instant) -> Deadline {
        let came = Instant::now();
        Deadline { at, timeout: Duration::from_secs(7), came, queued: Duration::ZERO }
    }

    /// What is found between two steps, once all that may end them is known.
    fn found(work: impl Future<Output = Result<()>>) -> Option<EngineError> {
        work.now_or_never().unwrap().err()
    }

    #[test]
    fn any_of_what_may_end_a_statement_does() {
        let (now, later) = (Instant::now(), Instant::now() + Duration::from_secs(60));
        let step = || async { check() };
        assert!(found(step()).is_none());
        assert!(found(before(deadline(later), step())).is_none());
        let at = async { super::deadline() };
        let at = before(deadline(later), before(deadline(now), at)).now_or_never().unwrap();
        assert_eq!((at, super::deadline()), (Some(now), None));
        let over = found(before(deadline(now), step()));
        assert!(matches!(over, Some(EngineError::TimedOut { .. })), "{over:?}");
        // The outer one counts within the inner one.
        assert!(found(before(deadline(now), before(deadline(later), step()))).is_some());
        let stop = Stop::default();
        let work = stop.during(before(deadline(later), step()));
        assert!(found(stop.during(step())).is_none());
        drop(stop);
        assert_eq!(found(work).unwrap().code(), SqlState::QueryCanceled);
        assert!(found(step()).is_none());
    }

    #[test]
    fn another_task_ends_with_the_statement_and_with_its_own_stop() {
        for (own, outer) in [(false, false), (false, true), (true, false)] {
            let [own_stop, outer_stop] = [Stop::default(), Stop::default()];
            let work = futures::future::lazy(|_| own_stop.inherited(async { check() }));
            let work = outer_stop.during(work);
            // Polled elsewhere, where nothing of the statement is known.
            let work = work.now_or_never().unwrap();
            let _left = [(own, own_stop), (outer, outer_stop)]
                .map(|(is_dropped, stop)| (!is_dropped).then_some(stop));
            assert_eq!(found(work).is_some(), own || outer, "{own} {outer}");
        }
    }
}
