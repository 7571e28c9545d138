//! Threads that wait for stores, apart from those that compute.
//!
//! A runtime's thread stays with a task until that waits, and a scan that has its bytes at hand waits seldom; what wakes
//! up on such a thread meanwhile is not taken over by others (tokio keeps the last task that a thread has woken for that
//! thread alone). A read that shares threads with scans so stands still while they compute, its connection with it, and a
//! scan that has used up what was read ahead finds nothing there.
//!
//! # Source
//! DataFusion's documentation, "Thread Scheduling, CPU / IO Thread Pools, and Tokio Runtimes".

use std::sync::OnceLock;
use std::thread::available_parallelism;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};
use tokio::task::{JoinError, JoinHandle};

use crate::counters::{Payer, current};

/// A core copies 2 GB/s from sockets: with eight no network is faster.
const MOST_THREADS: usize = 8;

/// The threads of this process that wait for stores, begun when they are asked for first. `None` outside of a runtime of
/// several threads, whose tasks stay where they are, and where there are no threads any more.
#[must_use]
pub fn io_threads() -> Option<Handle> {
    static THREADS: OnceLock<Option<Runtime>> = OnceLock::new();
    let here = Handle::try_current().ok()?;
    if !matches!(here.runtime_flavor(), RuntimeFlavor::MultiThread) {
        return None;
    }
    let begin = || {
        Builder::new_multi_thread()
            .worker_threads(available_parallelism().map_or(1, usize::from).min(MOST_THREADS))
            .thread_name("uplake-io")
            .enable_all()
            .build()
            .ok()
    };
    THREADS.get_or_init(begin).as_ref().map(|threads| threads.handle().clone())
}

/// Runs `work` on the threads that wait for stores, counted and paid for as here. Dropping the future stops it.
pub(crate) fn on_io_threads<T, E>(
    work: impl Future<Output = Result<T, E>> + Send + 'static,
) -> BoxFuture<'static, Result<T, E>>
where
    T: Send + 'static,
    E: From<JoinError> + Send + 'static,
{
    let Some(threads) = io_threads() else { return work.boxed() };
    let work = match current() {
        Some(scope) => scope.run(work).boxed(),
        None => work.boxed(),
    };
    let mut task = StopOnDrop(match Payer::current() {
        Some(payer) => threads.spawn(payer.pays_for(work)),
        None => threads.spawn(work),
    });
    async move { (&mut task.0).await? }.boxed()
}

struct StopOnDrop<T>(JoinHandle<T>);

impl<T> Drop for StopOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{RecvTimeoutError, sync_channel};
    use std::time::Duration;

    use super::*;

    #[test]
    fn reads_go_on_while_all_threads_compute() {
        let runtime = Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let (sender, receiver) = sync_channel(1);
        let found = runtime.block_on(async {
            let computes = async move {
                let read = on_io_threads(async move {
                    sender.send(std::thread::current().name().map(str::to_owned)).unwrap();
                    Ok::<_, JoinError>(7)
                });
                // The only thread of this runtime does nothing else meanwhile.
                let name = receiver.recv_timeout(Duration::from_secs(60));
                (name, read.await.unwrap())
            };
            tokio::spawn(computes).await.unwrap()
        });
        assert_eq!(found, (Ok(Some("uplake-io".to_owned())), 7));
    }

    #[test]
    fn a_read_that_is_dropped_stops() {
        let runtime = Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let (sender, receiver) = sync_channel::<()>(1);
        runtime.block_on(async {
            let waits = on_io_threads::<(), JoinError>(async move {
                std::future::pending::<()>().await;
                drop(sender);
                Ok(())
            });
            assert_eq!(
                receiver.recv_timeout(Duration::from_millis(1)),
                Err(RecvTimeoutError::Timeout)
            );
            drop(waits);
        });
        assert_eq!(
            receiver.recv_timeout(Duration::from_secs(60)),
            Err(RecvTimeoutError::Disconnected)
        );
    }

    #[tokio::test]
    async fn a_runtime_of_one_thread_keeps_its_tasks() {
        assert!(io_threads().is_none());
        assert_eq!(on_io_threads(async { Ok::<_, JoinError>(7) }).await.unwrap(), 7);
    }
}
