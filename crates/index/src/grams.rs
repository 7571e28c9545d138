//! Substrings: which blocks of rows may hold one.
//!
//! A gram is three bytes of a row's text without case, as a number. A text that holds a substring
//! holds all of its grams, so the blocks that hold all of them are the only ones to look at. They
//! are candidates: grams may come from different rows, or in another order, and case is lost.
//! Three bytes are three letters of English and one Han character; two of those have four grams.
//!
//! # Source
//! Cox, "Regular Expression Matching with a Trigram Index", 2012.

use crate::fold::fold;
use crate::like::pieces;

/// Bytes of a gram.
const GRAM_BYTES: usize = 3;

fn gram(bytes: [u8; GRAM_BYTES]) -> u64 {
    let [a, b, c] = bytes;
    u64::from(a) << 16 | u64::from(b) << 8 | u64::from(c)
}

/// Calls `each` with the grams of `text`; `folded` is working memory.
pub(crate) fn of_text(text: &str, folded: &mut String, each: impl FnMut(u64)) {
    folded.clear();
    text.chars().for_each(|c| fold(c, |c| folded.push(c)));
    folded.as_bytes().array_windows().copied().map(gram).for_each(each);
}

/// The grams that a text must hold to match a LIKE pattern; empty if the pattern does not say.
pub(crate) fn of_pattern(pattern: &str, escape: Option<char>) -> Vec<u64> {
    let mut grams = Vec::new();
    let mut folded = String::new();
    for piece in pieces(pattern, escape) {
        of_text(&piece, &mut folded, |gram| grams.push(gram));
    }
    grams.sort_unstable();
    grams.dedup();
    grams
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_no_gram_that_the_whole_lacks() {
        let mut folded = String::new();
        for (text, part) in [("Große STRASSE", "STRA"), ("İstanbul ΣΑΣ", "ΣΑ"), ("手机壳", "机壳")]
        {
            let mut grams = Vec::new();
            of_text(text, &mut folded, |gram| grams.push(gram));
            let wanted = of_pattern(&format!("%{part}%"), None);
            assert!(!wanted.is_empty() && wanted.iter().all(|gram| grams.contains(gram)), "{text}");
        }
        assert!(of_pattern("%ab%", None).is_empty());
    }
}
