//! Long lists of literals, taken out of a statement's text before it is parsed.
//!
//! A parser makes a token, an expression and a plan node of every literal; a list of 100,000 ids
//! takes it longer than the query. Lists of whole numbers or of strings become an [`IdSet`] here.
//!
//! # Invariants
//! - Only a bracket after the word IN, outside strings, names and comments, is looked into, and it
//!   is left alone unless every entry is a whole number, or every entry is a plain string.

use std::sync::Arc;

use crate::sql::id_set::IdSet;

/// Entries from which a list becomes a set.
const MIN_ENTRIES: usize = 100;

/// A list in a text.
#[derive(Debug)]
pub(crate) struct LiteralList {
    /// Byte of the opening bracket.
    pub start: usize,
    /// Byte after the closing bracket.
    pub end: usize,
    pub set: Arc<IdSet>,
}

/// The long lists of a text, in its order.
pub(crate) fn find(text: &str) -> Vec<LiteralList> {
    let bytes = text.as_bytes();
    let mut lists = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'\'' | b'"' | b'`' => at = skip_quoted(bytes, at),
            b'-' if bytes.get(at + 1) == Some(&b'-') => at = skip_line(bytes, at),
            b'/' if bytes.get(at + 1) == Some(&b'*') => at = skip_comment(bytes, at),
            b'$' => match skip_dollars(text, at) {
                Some(end) => at = end,
                None => at += 1,
            },
            byte if is_word(byte) => {
                let start = at;
                while at < bytes.len() && is_word(bytes[at]) {
                    at += 1;
                }
                if !bytes[start..at].eq_ignore_ascii_case(b"in") {
                    continue;
                }
                let bracket = skip_space(bytes, at);
                if bytes.get(bracket) == Some(&b'(')
                    && let Some((end, set)) = read_list(text, bracket + 1)
                {
                    lists.push(LiteralList { start: bracket, end, set: Arc::new(set) });
                    at = end;
                }
            }
            _ => at += 1,
        }
    }
    lists
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

fn skip_space(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(u8::is_ascii_whitespace) {
        at += 1;
    }
    at
}

/// Past a quoted text; its quote doubled is part of it.
fn skip_quoted(bytes: &[u8], start: usize) -> usize {
    let quote = bytes[start];
    // E'…' has escapes that a plain string has not; LIKE'…' is a plain one.
    let escapes = quote == b'\''
        && start > 0
        && matches!(bytes[start - 1], b'e' | b'E')
        && (start == 1 || !is_word(bytes[start - 2]));
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if escapes => at += 2,
            byte if byte == quote && bytes.get(at + 1) == Some(&quote) => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn skip_line(bytes: &[u8], start: usize) -> usize {
    bytes[start..].iter().position(|b| *b == b'\n').map_or(bytes.len(), |n| start + n)
}

fn skip_comment(bytes: &[u8], start: usize) -> usize {
    let (mut depth, mut at) = (0, start);
    while at < bytes.len() {
        match (bytes[at], bytes.get(at + 1)) {
            (b'/', Some(b'*')) => {
                depth += 1;
                at += 2;
            }
            (b'*', Some(b'/')) => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Past `$tag$ … $tag$`, if that is what it is.
fn skip_dollars(text: &str, start: usize) -> Option<usize> {
    let rest = &text[start + 1..];
    let tag_end = rest.find('$')?;
    let is_tag = rest[..tag_end].bytes().all(is_word);
    if !is_tag || rest.as_bytes().first().is_some_and(u8::is_ascii_digit) {
        return None;
    }
    let tag = &text[start..start + tag_end + 2];
    let body = start + tag.len();
    Some(text[body..].find(tag).map_or(text.len(), |n| body + n + tag.len()))
}

/// The entries from `at` to the closing bracket; `None` if the list is short or holds anything
/// but literals of one kind.
fn read_list(text: &str, at: usize) -> Option<(usize, IdSet)> {
    let bytes = text.as_bytes();
    let first = skip_space(bytes, at);
    if bytes.get(first) == Some(&b'\'') {
        let (end, texts) = entries(bytes, first, |at| string(text, at))?;
        return Some((end, IdSet::of_texts(texts)));
    }
    let (end, numbers) = entries(bytes, first, |at| number(text, at))?;
    Some((end, IdSet::of_integers(numbers)))
}

fn entries<T>(
    bytes: &[u8],
    mut at: usize,
    entry: impl Fn(usize) -> Option<(usize, T)>,
) -> Option<(usize, Vec<T>)> {
    let mut found = Vec::new();
    loop {
        let (end, value) = entry(skip_space(bytes, at))?;
        found.push(value);
        at = skip_space(bytes, end);
        match bytes.get(at)? {
            b',' => at += 1,
            b')' if found.len() >= MIN_ENTRIES => return Some((at + 1, found)),
            _ => return None,
        }
    }
}

fn number(text: &str, start: usize) -> Option<(usize, i64)> {
    let bytes = text.as_bytes();
    let mut end = start + usize::from(bytes.get(start) == Some(&b'-'));
    while bytes.get(end).is_some_and(u8::is_ascii_digit) {
        end += 1;
    }
    // What follows shows itself to the caller: a point, an exponent, a cast.
    Some((end, text[start..end].parse().ok()?))
}

fn string(text: &str, start: usize) -> Option<(usize, String)> {
    let bytes = text.as_bytes();
    if bytes.get(start) != Some(&b'\'') {
        return None;
    }
    let end = skip_quoted(bytes, start);
    let inside =
        text.get(start + 1..end - 1).filter(|_| end > start + 1 && bytes[end - 1] == b'\'')?;
    Some((end, if inside.contains('\'') { inside.replace("''", "'") } else { inside.to_owned() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(text: &str) -> Vec<(String, usize)> {
        find(text).iter().map(|l| (text[l.start..l.end].to_owned(), l.set.len())).collect()
    }

    fn numbers(count: usize) -> String {
        let all: Vec<String> = (0..count).map(|n| (n as i64 - 3).to_string()).collect();
        format!("({})", all.join(" ,\n"))
    }

    #[test]
    fn long_lists_after_in_are_found() {
        let list = numbers(100);
        let text = format!("SELECT 'in (1)' FROM t WHERE a NOT in {list} AND b IN{list}");
        assert_eq!(listed(&text), [(list.clone(), 100), (list.clone(), 100)]);
        let text = format!("s like'\\' and a in {list} and t = E'\\' in {list}'");
        assert_eq!(listed(&text), [(list.clone(), 100)]);
        let strings: Vec<String> = (0..150).map(|n| format!("'it''s {n} (x), IN'")).collect();
        let list = format!("( {} )", strings.join(","));
        let text = format!("select * from t where s in {list};");
        let found = find(&text);
        assert_eq!(&text[found[0].start..found[0].end], list);
        let IdSet::Texts { values, .. } = &*found[0].set else { panic!("texts") };
        assert!(values.contains(&"it's 7 (x), IN".to_owned()));
    }

    #[test]
    fn everything_else_is_left_alone() {
        let list = numbers(120);
        let mixed = list.replace(" ,", ", 'x',");
        let floats = list.replace(" ,", ".5 ,");
        for text in [
            format!("x IN {}", numbers(99)),
            format!("'x IN {list}'"),
            format!("-- IN {list}").replace('\n', " "),
            format!("/* /* */ IN {list} */ 1"),
            format!("$a$ IN {list} $a$"),
            format!("\"IN\" {list}"),
            format!("min {list}"),
            format!("x IN {mixed}"),
            format!("x IN {floats}"),
            format!("x IN {}", &list[..list.len() - 1]),
            format!("x IN {}, NULL)", &list[..list.len() - 1]),
            format!("x IN (99999999999999999999, {}", &list[1..]),
        ] {
            assert!(find(&text).is_empty(), "{text}");
        }
    }
}
