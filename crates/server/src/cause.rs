//! Who stopped a statement, and what its client hears.

use crate::failure::Failure;

/// Who stopped a statement, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Its client asked for it.
    Client,
    /// Somebody else did who may.
    Admin,
    /// Somebody who may has ended the connection.
    Ended,
    /// The connection is gone.
    Socket,
    /// The client does not take the rows.
    SlowReader,
    /// The process held more memory than it may.
    Memory,
    /// Its tenant has used up a quota.
    Quota,
    /// The server goes down.
    Shutdown,
}

impl Cause {
    /// Its name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Admin => "admin",
            Self::Ended => "ended",
            Self::Socket => "socket",
            Self::SlowReader => "slow_reader",
            Self::Memory => "memory",
            Self::Quota => "quota",
            Self::Shutdown => "shutdown",
        }
    }

    /// What the client hears.
    pub fn failure(self) -> Failure {
        match self {
            Self::Client => Failure::new("57014", "canceling statement due to user request"),
            Self::Admin => Failure::new("57014", "the statement was cancelled by another user"),
            Self::Ended => {
                Failure::new("57P01", "terminating connection due to administrator command")
            }
            Self::Socket => Failure::new("57014", "the connection is closed"),
            Self::SlowReader => Failure::new("57014", "the rows were not taken in time")
                .with_hint("read them as they come"),
            Self::Memory => Failure::new("53200", "the server holds more memory than it may")
                .with_hint(
                    "ask for less (shorter texts, fewer groups, a LIMIT), or ask again later",
                ),
            Self::Quota => Failure::new("53400", "a quota of the tenant is used up"),
            Self::Shutdown => {
                Failure::new("57P01", "the server is shutting down").with_hint("connect again")
            }
        }
    }
}
