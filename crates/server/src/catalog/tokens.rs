//! A statement's text as tokens, as far as the catalog has to know: words, quoted names, literals and symbols.
//!
//! # Invariants
//! - Tokens are in the order of the text and do not overlap; between them are spaces and comments alone.
//!
//! # Not here
//! Grammar: the engine parses.

use std::ops::Range;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A name or a keyword.
    Word,
    /// A name in double quotes.
    Quoted,
    /// A text, with its quotes.
    Text,
    Number,
    /// `$1`
    Parameter,
    /// An operator, or one of `( ) [ ] , . ; :` or `::`.
    Symbol,
}

/// A piece of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub kind: Kind,
    pub text: &'a str,
    /// Its first byte.
    pub at: usize,
}

impl Token<'_> {
    pub fn range(&self) -> Range<usize> {
        self.at..self.at + self.text.len()
    }

    /// Is it that word, in any case?
    pub fn is_word(&self, word: &str) -> bool {
        self.kind == Kind::Word && self.text.eq_ignore_ascii_case(word)
    }

    pub fn is_symbol(&self, symbol: &str) -> bool {
        self.kind == Kind::Symbol && self.text == symbol
    }

    /// A name as the catalog has it: in lower case unless it is quoted.
    pub fn name(&self) -> Option<String> {
        match self.kind {
            Kind::Word => Some(self.text.to_lowercase()),
            Kind::Quoted => Some(self.text.trim_matches('"').replace("\"\"", "\"")),
            _ => None,
        }
    }
}

const OPERATORS: &str = "+-*/<>=~!@#%^&|`?";

/// The tokens of a text; `None` if a literal or a comment does not end.
pub(crate) fn tokens(text: &str) -> Option<Vec<Token<'_>>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(next) = text[at..].chars().next() {
        let rest = &text[at..];
        if next.is_whitespace() {
            at += next.len_utf8();
            continue;
        }
        if rest.starts_with("--") {
            at += rest.find('\n').unwrap_or(rest.len());
            continue;
        }
        if rest.starts_with("/*") {
            at += comment(rest)?;
            continue;
        }
        let (kind, length) = token(rest, next)?;
        found.push(Token { kind, text: &rest[..length], at });
        at += length;
    }
    Some(found)
}

/// What `rest` begins with, and its bytes.
fn token(rest: &str, first: char) -> Option<(Kind, usize)> {
    let second = rest[first.len_utf8()..].chars().next();
    let while_is = |is: &dyn Fn(char) -> bool| rest.find(|c| !is(c)).unwrap_or(rest.len());
    let is_in_name = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    Some(match first {
        '\'' => (Kind::Text, quoted(rest, 0, '\'', false)?),
        '"' => (Kind::Quoted, quoted(rest, 0, '"', false)?),
        'e' | 'E' if second == Some('\'') => (Kind::Text, quoted(rest, 1, '\'', true)?),
        'b' | 'B' | 'x' | 'X' | 'n' | 'N' if second == Some('\'') => {
            (Kind::Text, quoted(rest, 1, '\'', false)?)
        }
        '$' if second.is_some_and(|c| c.is_ascii_digit()) => (
            Kind::Parameter,
            1 + rest[1..].find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len() - 1),
        ),
        '$' => (Kind::Text, in_dollars(rest)?),
        c if c.is_alphabetic() || c == '_' => (Kind::Word, while_is(&is_in_name)),
        c if c.is_ascii_digit() => {
            (Kind::Number, while_is(&|c| c.is_ascii_alphanumeric() || c == '.' || c == '_'))
        }
        ':' if second == Some(':') => (Kind::Symbol, 2),
        c if OPERATORS.contains(c) => {
            let run = while_is(&|c| OPERATORS.contains(c));
            let comment = ["--", "/*"].iter().filter_map(|begin| rest[..run].find(begin)).min();
            (Kind::Symbol, comment.unwrap_or(run).max(1))
        }
        c => (Kind::Symbol, c.len_utf8()),
    })
}

/// The bytes up to the quote that ends what begins with one at `open`.
fn quoted(rest: &str, open: usize, quote: char, escapes: bool) -> Option<usize> {
    let mut chars = rest.char_indices().skip(open + 1).peekable();
    while let Some((at, c)) = chars.next() {
        if escapes && c == '\\' {
            chars.next();
        } else if c == quote {
            if chars.peek().is_some_and(|(_, next)| *next == quote) {
                chars.next();
            } else {
                return Some(at + 1);
            }
        }
    }
    None
}

/// The bytes of `$tag$ … $tag$`; a lone `$` is one.
fn in_dollars(rest: &str) -> Option<usize> {
    let tag = rest[1..].find(|c: char| !(c.is_alphanumeric() || c == '_')).map(|end| end + 1)?;
    if !rest[tag..].starts_with('$') {
        return Some(1);
    }
    let tag = &rest[..=tag];
    rest[tag.len()..].find(tag).map(|end| end + 2 * tag.len())
}

/// The bytes of a comment, which may have others in it.
fn comment(rest: &str) -> Option<usize> {
    let (mut depth, mut at) = (0_usize, 0);
    loop {
        let open = rest[at..].find("/*");
        let close = rest[at..].find("*/")?;
        match open {
            Some(open) if open < close => (depth, at) = (depth + 1, at + open + 2),
            _ => (depth, at) = (depth - 1, at + close + 2),
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<&str> {
        tokens(text).unwrap().iter().map(|token| token.text).collect()
    }

    #[test]
    fn a_text_is_cut_where_postgres_cuts_it() {
        let check = |text: &str, expected: &[&str]| assert_eq!(texts(text), expected, "{text}");
        check("a.b::text", &["a", ".", "b", "::", "text"]);
        check("'it''s' E'a\\'b' \"q\"\"q\"", &["'it''s'", "E'a\\'b'", "\"q\"\"q\""]);
        check("$1 $x$a'b$x$ $$c$$", &["$1", "$x$a'b$x$", "$$c$$"]);
        check("a!~b--c\n-1", &["a", "!~", "b", "-", "1"]);
        check("1/*a/*b*/c*/+2", &["1", "+", "2"]);
        check("x=-1 <>1.5e3", &["x", "=-", "1", "<>", "1.5e3"]);
        check("é€", &["é", "€"]);
    }

    #[test]
    fn what_does_not_end_is_no_text() {
        for text in ["'a", "\"a", "/* a", "E'a\\'", "$x$ a"] {
            assert_eq!(tokens(text), None, "{text}");
        }
    }

    #[test]
    fn every_cut_of_a_statement_ends() {
        let text = "SELECT 'a', \"b\", $1, $$c$$ /* d */ FROM é.t -- e";
        for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
            let _ = tokens(&text[..end]);
        }
    }
}
