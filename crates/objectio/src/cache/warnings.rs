//! What a user should be told once, and nobody fails for.

use parking_lot::Mutex;

/// More than this many untold warnings are not kept.
const MOST: usize = 16;

/// Warnings until somebody takes them.
#[derive(Debug, Default)]
pub(crate) struct Warnings(Mutex<Vec<String>>);

impl Warnings {
    pub(crate) fn add(&self, text: String) {
        let mut warnings = self.0.lock();
        if warnings.len() < MOST {
            warnings.push(text);
        }
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }
}
