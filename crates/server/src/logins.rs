//! Passwords that were right, so that a client that gives its password each time is not slow each time.

use std::collections::HashSet;
use std::sync::Mutex;

/// Passwords that were right, as digests of name, password and document.
#[derive(Debug, Default)]
pub(crate) struct Logins(pub Mutex<HashSet<[u8; 32]>>);
