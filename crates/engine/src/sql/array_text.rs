//! The text that PostgreSQL has for an array, in its elements: `{1,NULL,"a b",{2}}` (8.15.2 and 8.15.6 of its manual).
//!
//! # Not here
//! What elements mean: casts of literals (`exact_casts`), parameters of the Postgres wire (the server).

/// An element of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArrayElement<'a> {
    /// The word NULL, in any letters, without quotes.
    Null,
    /// Without its quotes and backslashes.
    Value(String),
    /// An array in the array, with its braces.
    Array(&'a str),
}

/// The elements of an array, or `None` if the text is no array. Bounds in front (`[1:3]=`) are passed over.
pub fn array_elements(text: &str) -> Option<Vec<ArrayElement<'_>>> {
    let mut rest = trim(text);
    if rest.starts_with('[') {
        let (bounds, array) = rest.split_once('=')?;
        let is_bounds = |byte: u8| byte.is_ascii_digit() || b"[]:-+ ".contains(&byte);
        if !bounds.bytes().all(is_bounds) {
            return None;
        }
        rest = trim(array);
    }
    let inside = rest.strip_prefix('{')?.strip_suffix('}')?;
    let mut found = Vec::new();
    if trim(inside).is_empty() {
        return Some(found);
    }
    let mut rest = inside;
    loop {
        let (element, behind) = element(rest.trim_start_matches(SPACES))?;
        found.push(element);
        let behind = behind.trim_start_matches(SPACES);
        if behind.is_empty() {
            return Some(found);
        }
        rest = behind.strip_prefix(',')?;
    }
}

const SPACES: [char; 6] = [' ', '\t', '\n', '\r', '\u{b}', '\u{c}'];

fn trim(text: &str) -> &str {
    text.trim_matches(SPACES)
}

/// The first element and what is behind it.
fn element(text: &str) -> Option<(ArrayElement<'_>, &str)> {
    match text.as_bytes().first()? {
        b'{' => {
            let end = end_of_array(text)?;
            Some((ArrayElement::Array(&text[..end]), &text[end..]))
        }
        b'"' => quoted(text),
        _ => bare(text),
    }
}

/// Where the array ends that the text begins with.
fn end_of_array(text: &str) -> Option<usize> {
    let (mut depth, mut in_quotes, mut escaped) = (0usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        if escaped {
            escaped = false;
            continue;
        }
        match byte {
            b'\\' => escaped = true,
            b'"' => in_quotes = !in_quotes,
            b'{' if !in_quotes => depth += 1,
            b'}' if !in_quotes => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

fn quoted(text: &str) -> Option<(ArrayElement<'_>, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices().skip(1);
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((ArrayElement::Value(value), &text[at + 1..])),
            '\\' => value.push(characters.next()?.1),
            other => value.push(other),
        }
    }
    None
}

/// An element without quotes, whose spaces at the end are none of it unless they are escaped.
fn bare(text: &str) -> Option<(ArrayElement<'_>, &str)> {
    let (mut value, mut kept, mut escapes) = (String::new(), 0, false);
    let mut end = text.len();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            ',' => {
                end = at;
                break;
            }
            '{' | '}' | '"' => return None,
            '\\' => {
                escapes = true;
                value.push(characters.next()?.1);
                kept = value.len();
            }
            other => {
                value.push(other);
                if !trim(other.encode_utf8(&mut [0; 4])).is_empty() {
                    kept = value.len();
                }
            }
        }
    }
    value.truncate(kept);
    if value.is_empty() {
        return None;
    }
    let is_null = !escapes && value.eq_ignore_ascii_case("null");
    Some((if is_null { ArrayElement::Null } else { ArrayElement::Value(value) }, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_read_as_by_postgres_15() {
        let value = |text: &str| ArrayElement::Value(text.to_owned());
        for (text, expected) in [
            ("{}", Some(vec![])),
            (
                " { 1 , NULL,  null } ",
                Some(vec![value("1"), ArrayElement::Null, ArrayElement::Null]),
            ),
            ("{\"NULL\", a b ,\"\"}", Some(vec![value("NULL"), value("a b"), value("")])),
            ("[1:3]={1,2,3}", Some(vec![value("1"), value("2"), value("3")])),
            ("{\"a\\\"b\\\\\",c\\ }", Some(vec![value("a\"b\\"), value("c ")])),
            (
                "{{1,\"}\"},{2}}",
                Some(vec![ArrayElement::Array("{1,\"}\"}"), ArrayElement::Array("{2}")]),
            ),
            ("{é,\\NULL}", Some(vec![value("é"), value("NULL")])),
            ("{1,2", None),
            ("{1,,2}", None),
            ("{1,2}}", None),
            ("{1,}", None),
            (" ", None),
            ("", None),
            ("1", None),
            ("{a,\"b\"c}", None),
            ("{\"a\"\"b\"}", None),
            ("{\"a}", None),
            ("{a\\}", None),
            ("{{1}", None),
        ] {
            assert_eq!(array_elements(text), expected, "{text}");
        }
    }
}
