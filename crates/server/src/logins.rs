//! Passwords that were right, so that a client that gives its password each time is not slow each time; and who is
//! looked at now.

use std::collections::HashSet;
use std::sync::Mutex;

use tokio::sync::Semaphore;

/// Passwords that are looked at, at once: that is some milliseconds of a thread that statements need, too.
const AT_ONCE: usize = 1;

/// Passwords that were right, as digests of name, password and document.
#[derive(Debug)]
pub(crate) struct Logins {
    pub right: Mutex<HashSet<[u8; 32]>>,
    pub turn: Semaphore,
}

impl Default for Logins {
    fn default() -> Self {
        Self { right: Mutex::default(), turn: Semaphore::new(AT_ONCE) }
    }
}
