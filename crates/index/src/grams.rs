//! Substrings: which blocks of rows may hold one.
//!
//! A gram is three bytes of a row's text in lower case, as a number. A text that holds a substring
//! holds all of its grams, so the blocks that hold all of them are the only ones to look at. They
//! are candidates: grams may come from different rows, or in another order, and case is lost.
//! Three bytes are three letters of English and one Han character; two of those have four grams.
//!
//! # Source
//! Cox, "Regular Expression Matching with a Trigram Index", 2012.

/// Bytes of a gram.
const GRAM_BYTES: usize = 3;

/// `text` in lower case, character by character: lower case of a part is a part of lower case.
fn lower(text: &str, out: &mut String) {
    out.clear();
    out.extend(text.chars().flat_map(char::to_lowercase));
}

fn gram(bytes: [u8; GRAM_BYTES]) -> u64 {
    let [a, b, c] = bytes;
    u64::from(a) << 16 | u64::from(b) << 8 | u64::from(c)
}

/// Calls `each` with the grams of `text`; `lowered` is working memory.
pub(crate) fn of_text(text: &str, lowered: &mut String, each: impl FnMut(u64)) {
    lower(text, lowered);
    lowered.as_bytes().array_windows().copied().map(gram).for_each(each);
}

/// The grams that a text must hold to match a LIKE pattern; empty if the pattern does not say.
pub(crate) fn of_pattern(pattern: &str, escape: Option<char>) -> Vec<u64> {
    let mut grams = Vec::new();
    let mut lowered = String::new();
    for piece in pieces(pattern, escape) {
        of_text(&piece, &mut lowered, |gram| grams.push(gram));
    }
    grams.sort_unstable();
    grams.dedup();
    grams
}

/// The literal parts of a LIKE pattern.
fn pieces(pattern: &str, escape: Option<char>) -> Vec<String> {
    let mut pieces = vec![String::new()];
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        let literal = match c {
            // An escape at the end stands for itself.
            _ if Some(c) == escape => Some(chars.next().unwrap_or(c)),
            '%' | '_' => None,
            _ => Some(c),
        };
        match (literal, pieces.last_mut()) {
            (Some(c), Some(piece)) => piece.push(c),
            _ => pieces.push(String::new()),
        }
    }
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_cut_at_their_wildcards() {
        for (pattern, expected) in [
            ("", vec![]),
            ("%", vec![]),
            ("%shop%", vec!["shop"]),
            ("a_b%c", vec!["a", "b", "c"]),
            (r"100\%%", vec!["100%"]),
            (r"a\\b\_", vec![r"a\b_"]),
            (r"a\", vec![r"a\"]),
        ] {
            assert_eq!(pieces(pattern, Some('\\')), expected, "{pattern}");
        }
        assert_eq!(pieces(r"a\%", None), [r"a\"]);
    }

    #[test]
    fn a_part_has_no_gram_that_the_whole_lacks() {
        let mut lowered = String::new();
        for (text, part) in [("Große STRASSE", "STRA"), ("İstanbul ΣΑΣ", "ΣΑ"), ("手机壳", "机壳")]
        {
            let mut grams = Vec::new();
            of_text(text, &mut lowered, |gram| grams.push(gram));
            let wanted = of_pattern(&format!("%{part}%"), None);
            assert!(!wanted.is_empty() && wanted.iter().all(|gram| grams.contains(gram)), "{text}");
        }
        assert!(of_pattern("%ab%", None).is_empty());
    }
}
