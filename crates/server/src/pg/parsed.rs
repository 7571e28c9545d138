//! Queries by their texts, parsed: many connections ask the same, and those that wait for a slot hold what they asked.
//!
//! What is parsed takes a hundred times the bytes of its text.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use uplake_engine::Statement;

use crate::catalog::rewrite;
use crate::failure::Failure;

/// Bytes of texts, and of each: some 25 MiB of what is parsed.
const MOST_BYTES: usize = 256 << 10;
const MOST_BYTES_OF_EACH: usize = 16 << 10;

/// Queries that were asked lately.
#[derive(Debug, Default)]
pub(crate) struct ParsedTexts(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    statements: HashMap<String, Arc<Statement>>,
    bytes: usize,
}

impl ParsedTexts {
    /// The one statement of a text.
    ///
    /// # Errors
    /// Those of the text; 42601 if there is no statement in it.
    pub fn parse(&self, text: &str) -> Result<Arc<Statement>, Failure> {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().statements.get(text) {
            return Ok(Arc::clone(known));
        }
        let parsed = uplake_engine::parse(&rewrite(text))?.pop();
        let missing = || Failure::new("42601", "there is no statement");
        let statement = Arc::new(parsed.ok_or_else(missing)?);
        if statement.only_asks() && text.len() <= MOST_BYTES_OF_EACH {
            let mut kept = lock();
            if kept.bytes + text.len() > MOST_BYTES {
                *kept = Kept::default();
            }
            if kept.statements.insert(text.to_owned(), Arc::clone(&statement)).is_none() {
                kept.bytes += text.len();
            }
        }
        Ok(statement)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_parsed_once_and_not_too_many_are_kept() {
        let texts = ParsedTexts::default();
        let is_kept = |text: &str| {
            let [first, second] = [texts.parse(text).unwrap(), texts.parse(text).unwrap()];
            assert_eq!(first.text, second.text);
            Arc::ptr_eq(&first, &second)
        };
        assert!(is_kept("SELECT 1"));
        assert!(is_kept("SELECT a FROM t"));
        assert!(!is_kept("INSERT INTO t VALUES (1)"));
        assert!(!is_kept("PREPARE q AS SELECT 1"));
        let long = |bytes: usize| format!("SELECT '{}'", "x".repeat(bytes));
        assert!(!is_kept(&long(MOST_BYTES_OF_EACH)));
        for n in 0..3 * MOST_BYTES / 1000 {
            assert!(is_kept(&format!("{} AS c{n}", long(1000))));
            assert!(texts.0.lock().unwrap().bytes <= MOST_BYTES);
        }
        let kept = texts.0.lock().unwrap();
        assert_eq!(kept.bytes, kept.statements.keys().map(String::len).sum::<usize>());
        drop(kept);
        assert_eq!(texts.parse("selct 1").unwrap_err().code, "42601");
        assert_eq!(texts.parse("-- nothing").unwrap_err().code, "42601");
    }
}
