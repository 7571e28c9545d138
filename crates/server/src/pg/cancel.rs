//! Who may stop whose statement, or end whose connection: by process number and key, or by who asks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::watch;
use uplake_engine::{EngineError, Result, SessionFacts, SqlState};

use crate::access::ADMIN;
use crate::audit::{Action, Note, PEER, PROTOCOL};
use crate::catalog::{Stop, USER};
use crate::server::Shared;
use crate::statements::Cause;

/// No statement runs.
const NONE: u64 = 0;

/// The connections that can be told to stop.
#[derive(Debug, Default)]
pub(crate) struct Cancels(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: i32,
    connections: HashMap<i32, Entry>,
}

#[derive(Debug)]
struct Entry {
    key: Bytes,
    role: String,
    statement: Arc<AtomicU64>,
    end: watch::Sender<bool>,
}

/// A connection that can be told to stop, until this is dropped.
#[derive(Debug)]
pub(crate) struct Cancellable {
    cancels: Arc<Cancels>,
    pub process: i32,
    statement: Arc<AtomicU64>,
    end: watch::Receiver<bool>,
}

/// The statement that a connection runs, until this is dropped.
#[derive(Debug)]
pub(crate) struct Marked(Arc<AtomicU64>);

impl Drop for Marked {
    fn drop(&mut self) {
        self.0.store(NONE, Ordering::Release);
    }
}

impl Cancels {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection of a role, with a key that nobody can guess.
    pub fn join(self: &Arc<Self>, role: &str, key: Bytes) -> Cancellable {
        let mut state = self.lock();
        loop {
            state.last = state.last.checked_add(1).unwrap_or(1);
            if !state.connections.contains_key(&state.last) {
                break;
            }
        }
        let statement = Arc::new(AtomicU64::new(NONE));
        let process = state.last;
        let (end, ends) = watch::channel(false);
        let entry = Entry { key, role: role.to_owned(), statement: Arc::clone(&statement), end };
        state.connections.insert(process, entry);
        Cancellable { cancels: Arc::clone(self), process, statement, end: ends }
    }

    /// The number of the statement that runs in a connection, for who has its key.
    pub fn statement(&self, process: i32, key: &[u8]) -> Option<u64> {
        let state = self.lock();
        let entry = state.connections.get(&process).filter(|entry| are_equal(&entry.key, key))?;
        entry.runs()
    }

    /// Stops the statement of a connection, or ends it, for a session that may. False if there is none.
    ///
    /// # Errors
    /// 42501 for who may not.
    pub fn stop(
        &self,
        shared: &Shared,
        asks: &SessionFacts,
        process: i32,
        what: Stop,
    ) -> Result<bool> {
        let state = self.lock();
        let Some(entry) = state.connections.get(&process) else { return Ok(false) };
        // A session that was told of nobody is the process's own.
        let role = asks.get(USER).unwrap_or(ADMIN);
        let Some(cause) = shared.may_stop(role, &entry.role) else {
            let message = format!("permission denied to stop what `{}` runs", entry.role);
            return Err(EngineError::execution(SqlState::InsufficientPrivilege, message)
                .with_hint("one's own statements can be stopped, and by admins all"));
        };
        let cause = match what {
            Stop::Statement => cause,
            Stop::Connection => {
                entry.end.send_replace(true);
                Cause::Ended
            }
        };
        if role != entry.role {
            let of = match what {
                Stop::Statement => "the statement of connection",
                Stop::Connection => "connection",
            };
            let fact = |name: &str| asks.get(name).unwrap_or_default().to_owned();
            shared.statements.audit.note(Note {
                at: shared.statements.now(),
                action: Action::Cancel,
                role: role.to_owned(),
                address: fact(PEER),
                protocol: fact(PROTOCOL),
                what: format!("{of} {process} of {}", entry.role),
                sqlstate: None,
            });
        }
        if let Some(statement) = entry.runs()
            && shared.statements.stop(statement, cause)
        {
            shared.metrics.cancelled(cause);
        }
        Ok(true)
    }
}

impl Entry {
    fn runs(&self) -> Option<u64> {
        Some(self.statement.load(Ordering::Acquire)).filter(|id| *id != NONE)
    }
}

/// Takes the same time wherever they differ.
fn are_equal(left: &[u8], right: &[u8]) -> bool {
    let differ = left.iter().zip(right).fold(0, |differ, (left, right)| differ | (left ^ right));
    left.len() == right.len() && std::hint::black_box(differ) == 0
}

impl Cancellable {
    /// The connection runs this statement.
    pub fn mark(&self, statement: u64) -> Marked {
        self.statement.store(statement, Ordering::Release);
        Marked(Arc::clone(&self.statement))
    }

    /// Returns once somebody who may has ended the connection.
    pub async fn ended(&mut self) {
        if self.end.wait_for(|end| *end).await.is_err() {
            // Not while the connection is known.
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Cancellable {
    fn drop(&mut self) {
        self.cancels.lock().connections.remove(&self.process);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_has_the_key_finds_the_statement() {
        let cancels = Arc::new(Cancels::default());
        let one = cancels.join("ann", Bytes::from_static(b"key1"));
        let two = cancels.join("ann", Bytes::from_static(b"key2"));
        assert_ne!(one.process, two.process);
        assert_eq!(cancels.statement(one.process, b"key1"), None);
        let marked = one.mark(7);
        assert_eq!(cancels.statement(one.process, b"key1"), Some(7));
        for (process, key) in
            [(one.process, "key2"), (two.process, "key1"), (one.process, "key"), (9, "")]
        {
            assert_eq!(cancels.statement(process, key.as_bytes()), None);
        }
        drop(marked);
        assert_eq!(cancels.statement(one.process, b"key1"), None);
        let process = one.process;
        drop(one);
        assert_eq!(cancels.statement(process, b"key1"), None);
    }
}
