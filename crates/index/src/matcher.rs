//! Testing rows for words without an index, with the same rules.

use crate::words::{self, Word};

/// The words of a query, to test texts by.
///
/// # Examples
/// ```
/// let coffee = uplake_index::WordMatcher::new("iced COFFEE");
/// assert!(coffee.matches("Coffee, iced"));
/// assert!(!coffee.matches("coffee"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WordMatcher {
    words: Vec<Word>,
}

impl WordMatcher {
    /// The words of `query`, as an index of words cuts them.
    #[must_use]
    pub fn new(query: &str) -> Self {
        Self { words: words::of_query(query) }
    }

    /// Does `text` hold all the words? A query without a word matches nothing.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        let mut missing: Vec<&Word> = self.words.iter().collect();
        let any = !missing.is_empty();
        words::of_row(text, |term| {
            missing.retain(|word| match word.is_prefix {
                true => !term.starts_with(&word.text),
                false => term != word.text,
            });
        });
        any && missing.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_whatever_their_case_and_order() {
        let found = |query: &str, text: &str| WordMatcher::new(query).matches(text);
        assert!(found("b a", "A, B!") && found("咖啡", "冰咖啡馆") && found("啡", "咖啡"));
        assert!(
            !found("ab", "a b") && !found("咖茶", "咖啡") && !found("", "a") && !found("!", "!")
        );
    }
}
