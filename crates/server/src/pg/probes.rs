//! Texts of literals alone, as pools ask before each use of a connection (`SELECT 1`), as they were parsed: what is asked
//! again is answered where it came in, without a thread of the statements.
//!
//! # Not here
//! Whether a statement may be answered so: [`Session::known_row`](uplake_engine::Session::known_row).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use uplake_engine::Statement;

/// Texts, and bytes of each.
const MOST: usize = 256;
const MOST_BYTES: usize = 256;

/// Texts that were answered so the last time.
#[derive(Debug, Default)]
pub(crate) struct Probes(Mutex<HashMap<String, Arc<Statement>>>);

impl Probes {
    pub fn find(&self, text: &str) -> Option<Arc<Statement>> {
        if text.len() > MOST_BYTES {
            return None;
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(text).cloned()
    }

    pub fn keep(&self, text: &str, statement: Arc<Statement>) {
        if text.len() > MOST_BYTES {
            return;
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(text.to_owned(), statement);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_texts_are_kept_and_not_too_many() {
        let probes = Probes::default();
        let statement = || Arc::new(uplake_engine::parse("SELECT 1").unwrap().pop().unwrap());
        for n in 0..3 * MOST {
            let text = format!("SELECT {n}");
            assert!(probes.find(&text).is_none());
            probes.keep(&text, statement());
            assert!(probes.find(&text).is_some());
            assert!(probes.0.lock().unwrap().len() <= MOST);
        }
        let long = format!("SELECT '{}'", "x".repeat(MOST_BYTES));
        probes.keep(&long, statement());
        assert!(probes.find(&long).is_none());
    }
}
