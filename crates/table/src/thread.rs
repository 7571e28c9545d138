//! Blocking work apart from the runtime.
//!
//! # Invariants
//! - Whoever pays for what begins a thread pays for the thread.

use uplake_objectio::Payer;

use crate::error::{Result, TableError};

/// Runs blocking work on a thread of its own and waits for it without blocking the runtime.
pub(crate) async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let (done, wait) = tokio::sync::oneshot::channel();
    let payer = Payer::current();
    let spawned = std::thread::Builder::new().name("uplake-load".into()).spawn(move || {
        // The receiver is gone only if the caller gave up; then nobody wants the result.
        let _ = done.send(paid(payer, work));
    });
    spawned.map_err(|e| TableError::io("starting a thread", e))?;
    wait.await.unwrap_or_else(|_| Err(TableError::Panicked("loading")))
}

/// A thread of a scope, at the cost of whoever begins it.
pub(crate) fn spawn_paid<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    work: impl FnOnce() + Send + 'scope,
) {
    let payer = Payer::current();
    scope.spawn(move || paid(payer, work));
}

/// Does what a thread is for, at the cost of whoever began it.
pub(crate) fn paid<T>(payer: Option<std::sync::Arc<Payer>>, work: impl FnOnce() -> T) -> T {
    match payer {
        Some(payer) => payer.run_thread(work),
        None => work(),
    }
}
