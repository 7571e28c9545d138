//! What a user should hear of although the answer is right.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Things of which warnings are kept; a server may be asked for them by nobody for days.
const MOST: usize = 1000;

/// One warning for each thing, and how often it came.
#[derive(Debug, Default)]
pub(crate) struct Warnings(Mutex<BTreeMap<String, (String, usize)>>);

impl Warnings {
    /// Adds a warning about `what`; of several about one thing the first is kept, and counted.
    pub fn add(&self, what: &str, message: &str) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MOST && !kept.contains_key(what) {
            return;
        }
        kept.entry(what.to_owned()).or_insert_with(|| (message.to_owned(), 0)).1 += 1;
    }

    /// Takes the warnings out.
    pub fn take(&self) -> Vec<String> {
        let kept = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let text = |(message, count): (String, usize)| match count {
            1 => message,
            count => format!("{message} (and {} more like it)", count - 1),
        };
        kept.into_values().map(text).collect()
    }
}
