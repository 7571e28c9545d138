//! What is asked of a column.

use std::ops::RangeInclusive;

/// A question to a column's index.
#[derive(Debug, Clone)]
pub enum Query<'q> {
    /// Rows that hold one of these integers; an index of integers answers it. Whoever wrote signed
    /// ones with [`crate::key_of_i64`] asks with it, too.
    IntegerIn(&'q [u64]),
    /// Rows that hold an integer in the range; an index of integers, if it is ordered.
    IntegerBetween(RangeInclusive<u64>),
    /// Rows that hold one of these strings; an index of strings.
    StringIn(&'q [&'q [u8]]),
    /// Rows that hold a string with this prefix; an index of strings, if it is ordered.
    StringPrefix(&'q [u8]),
    /// Rows that hold all words of this text; an index of words.
    Match(&'q str),
    /// Rows that may match this LIKE or ILIKE pattern; an index of grams, or one of words, which
    /// knows bigrams of Han and kana and whole words inside the pattern. To `%XY%` and `%X%` of
    /// such characters an index of words has the exact answer.
    Like {
        /// The pattern, with `%` and `_`.
        pattern: &'q str,
        /// What makes the character after it literal.
        escape: Option<char>,
    },
    /// Rows that may hold a key in the range; zone maps.
    KeyBetween(RangeInclusive<u64>),
}
