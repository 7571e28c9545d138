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
pub(crate) fn of_pattern(pattern: &str, escape: Option<char>) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    for piece in pieces(pattern, escape) {
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
    words
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
            of_pattern(pattern, None).into_iter().map(|word| word.text).collect()
        };
        assert_eq!(terms("%烤鸭%"), ["烤鸭"]);
        assert_eq!(terms("%鸭%"), ["鸭"]);
        assert_eq!(terms("%red shoe siz%"), ["shoe"]);
        assert_eq!(terms("red 5%手机x_y"), ["手机"]);
        assert!(terms("%shoes%").is_empty());
    }
}
