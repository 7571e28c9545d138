//! Text to words, the same way when a row is indexed and when a query is asked.
//!
//! A word is a longest run of letters and digits, without case. Han characters and kana are
//! written without spaces, so a run of them becomes its bigrams, and its last character alone:
//! every character is then the start of some term, and a query of one character asks for the
//! prefix.
//!
//! # Not here
//! Unicode normalisation: a combining mark parts words, in rows and queries alike. Stemming, stop
//! words, dictionaries of words: a search engine's work.

use crate::fold::fold;
use crate::like::pieces;

/// Bytes of a word; longer ones are cut there, in rows and queries alike.
const MAX_WORD_BYTES: usize = 128;

/// A word of a query.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Word {
    pub(crate) text: String,
    /// Whether any term that starts with it will do.
    pub(crate) is_prefix: bool,
}

/// Whether text in this script is cut into bigrams: Han with its extensions, and kana.
fn is_unspaced(c: char) -> bool {
    matches!(u32::from(c),
        0x3005 | 0x3007 | 0x3040..=0x30ff | 0x31f0..=0x31ff | 0x3400..=0x4dbf | 0x4e00..=0x9fff
        | 0xf900..=0xfaff | 0xff66..=0xff9f | 0x20000..=0x323af)
}

/// Cuts `text` into runs of one sort: unspaced characters, or other letters and digits.
fn runs(text: &str) -> impl Iterator<Item = (bool, &str)> {
    let sort = |c: char| if is_unspaced(c) { 2 } else { u8::from(c.is_alphanumeric()) };
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            let of = sort(rest.chars().next()?);
            let end = rest.find(|c| sort(c) != of).unwrap_or(rest.len());
            let (run, after) = rest.split_at(end);
            rest = after;
            if of > 0 {
                return Some((of == 2, run));
            }
        }
    })
}

/// A word without case, cut to its limit.
fn fold_word(word: &str, out: &mut String) {
    out.clear();
    let mut full = false;
    for c in word.chars() {
        fold(c, |c| {
            full |= out.len() + c.len_utf8() > MAX_WORD_BYTES;
            if !full {
                out.push(c);
            }
        });
        if full {
            break;
        }
    }
}

/// Calls `each` with the terms of a row, some of them more than once.
pub(crate) fn of_row(text: &str, mut each: impl FnMut(&str)) {
    let mut word = String::new();
    for (unspaced, run) in runs(text) {
        if !unspaced {
            fold_word(run, &mut word);
            each(&word);
            continue;
        }
        for (at, first) in run.char_indices() {
            let after = at + first.len_utf8();
            let second = run[after..].chars().next().map_or(0, char::len_utf8);
            each(&run[at..after + second]);
        }
    }
}

/// The words of a query; a row that holds all of them matches.
pub(crate) fn of_query(text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let mut put = |text: &str, is_prefix| {
        let word = Word { text: text.to_owned(), is_prefix };
        if !words.contains(&word) {
            words.push(word);
        }
    };
    let mut word = String::new();
    for (unspaced, run) in runs(text) {
        if !unspaced {
            fold_word(run, &mut word);
            put(&word, false);
            continue;
        }
        let ends: Vec<usize> = run.char_indices().map(|(at, c)| at + c.len_utf8()).collect();
        match ends[..] {
            [_] => put(run, true),
            _ => {
                let starts = std::iter::once(0).chain(ends.iter().copied());
                starts.zip(&ends[1..]).for_each(|(start, &end)| put(&run[start..end], false));
            }
        }
    }
    words
}

/// The terms that a row must hold to match a LIKE or ILIKE pattern; none if the pattern does not
/// say. Within a literal part bigrams are certain, and so are words that something ends on both
/// sides; a word at its edge may go on in the row.
///
/// With them, whether every row that holds them matches: `%XY%` and `%X%` of characters that are
/// written without spaces ask for just what the index has. They have no case.
pub(crate) fn of_pattern(pattern: &str, escape: Option<char>) -> (Vec<Word>, bool) {
    let mut words: Vec<Word> = Vec::new();
    let pieces = pieces(pattern, escape);
    let is_exact = match pieces.as_slice() {
        [piece] => {
            let (count, unspaced) = (piece.chars().count(), piece.chars().all(is_unspaced));
            unspaced && count <= 2 && is_anywhere(pattern, piece)
        }
        _ => false,
    };
    for piece in pieces {
        let from = piece.as_ptr().addr();
        for (unspaced, run) in runs(&piece) {
            let start = run.as_ptr().addr() - from;
            let is_inside = start > 0 && start + run.len() < piece.len();
            if unspaced || is_inside {
                words.extend(of_query(run));
            }
        }
    }
    words.dedup();
    (words, is_exact)
}

/// Is `pattern` `piece`, as it stands, between percent signs?
fn is_anywhere(pattern: &str, piece: &str) -> bool {
    let before = pattern.trim_start_matches('%');
    let inside = before.trim_end_matches('%');
    inside == piece && before.len() < pattern.len() && inside.len() < before.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(text: &str) -> Vec<String> {
        let mut words = Vec::new();
        of_row(text, |word| words.push(word.to_owned()));
        words
    }

    #[test]
    fn rows_are_cut_into_words_and_bigrams() {
        for (text, expected) in [
            ("", vec![]),
            ("  -- ", vec![]),
            ("Red SHOES, size 42!", vec!["red", "shoes", "size", "42"]),
            ("Grüße_ÄÖ", vec!["grüsse", "äö"]),
            ("北京大学", vec!["北京", "京大", "大学", "学"]),
            ("iPhone手机壳 x", vec!["iphone", "手机", "机壳", "壳", "x"]),
            ("京", vec!["京"]),
            ("한국 말", vec!["한국", "말"]),
        ] {
            assert_eq!(row(text), expected, "{text}");
        }
        assert_eq!(row(&"a".repeat(1000))[0].len(), MAX_WORD_BYTES);
    }

    #[test]
    fn queries_ask_for_bigrams_or_a_prefix() {
        let query = |text| -> Vec<(String, bool)> {
            of_query(text).into_iter().map(|word| (word.text, word.is_prefix)).collect()
        };
        assert_eq!(query("大学 大学 A"), [("大学".to_owned(), false), ("a".to_owned(), false)]);
        assert_eq!(query("京"), [("京".to_owned(), true)]);
        assert_eq!(query("北京大"), [("北京".to_owned(), false), ("京大".to_owned(), false)]);
        assert!(query("%%").is_empty());
    }

    #[test]
    fn patterns_ask_for_what_is_certain() {
        let terms = |pattern| -> Vec<String> {
            of_pattern(pattern, None).0.into_iter().map(|word| word.text).collect()
        };
        assert_eq!(terms("%烤鸭%"), ["烤鸭"]);
        assert_eq!(terms("%鸭%"), ["鸭"]);
        assert_eq!(terms("%red shoe siz%"), ["shoe"]);
        assert_eq!(terms("red 5%手机x_y"), ["手机"]);
        assert!(terms("%shoes%").is_empty());
    }

    #[test]
    fn a_pattern_is_exact_if_it_asks_for_one_bigram_anywhere() {
        for (pattern, exact) in [
            ("%烤鸭%", true),
            ("%%烤鸭%%", true),
            ("%鸭%", true),
            ("%カナ%", true),
            ("烤鸭%", false),
            ("%烤鸭", false),
            ("烤鸭", false),
            ("%烤_鸭%", false),
            ("_%烤鸭%", false),
            ("%_烤鸭%", false),
            ("%烤%鸭%", false),
            ("%烤鸭卷%", false),
            ("%鸭a%", false),
            ("%ab%", false),
            ("%한국%", false),
            ("%", false),
            ("", false),
        ] {
            assert_eq!(of_pattern(pattern, None).1, exact, "{pattern}");
            assert_eq!(of_pattern(pattern, Some('\\')).1, exact, "{pattern}, escaped");
        }
        // What an escape makes literal is left to the recheck, whatever it is.
        assert!(!of_pattern(r"%\烤鸭%", Some('\\')).1);
        assert!(!of_pattern("%烤鸭%", Some('%')).1 && !of_pattern("%烤鸭%", Some('烤')).1);
    }

    #[test]
    fn unspaced_characters_have_no_case() {
        for c in '\0'..=char::MAX {
            let others = c.to_lowercase().chain(c.to_uppercase()).filter(|&other| other != c);
            let mut folded = Vec::new();
            fold(c, |c| folded.push(c));
            if is_unspaced(c) {
                assert_eq!(others.count(), 0, "{c:?}");
                assert_eq!(folded, [c]);
            } else {
                assert!(!others.chain(folded).any(is_unspaced), "{c:?} folds to one");
            }
        }
    }
}
