//! What of a text of SQL is still open: where its last statement ends, and what a line after it goes on with.
//!
//! # Not here
//! No parser: brackets, quotes and comments alone are told apart.

/// What the next line goes on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// A statement without its `;`.
    Statement,
    /// `(`
    Bracket,
    /// `'`
    Text,
    /// `"`
    Name,
    /// `/*`
    Comment,
    /// `$$`, `$tag$`
    Dollar,
}

impl Open {
    /// As the prompt shows it.
    pub fn mark(self) -> &'static str {
        match self {
            Self::Statement => "-",
            Self::Bracket => "(",
            Self::Text => "'",
            Self::Name => "\"",
            Self::Comment => "/*",
            Self::Dollar => "$$",
        }
    }

    /// Is a line within it SQL, and not the text of a literal or a comment?
    pub fn is_code(self) -> bool {
        matches!(self, Self::Statement | Self::Bracket)
    }
}

/// How far a text goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The byte after the `;` of its last whole statement; 0 if there is none.
    pub ends: usize,
    /// What is open after that; nothing if only spaces and comments follow.
    pub open: Option<Open>,
}

/// Looks through a text.
pub fn extent(text: &str) -> Extent {
    let bytes = text.as_bytes();
    let (mut at, mut ends, mut depth, mut begun) = (0, 0, 0_usize, false);
    while at < bytes.len() {
        let (open, past) = match bytes[at] {
            b'\'' => (Open::Text, quoted(bytes, at, is_escaped(bytes, at))),
            b'"' => (Open::Name, quoted(bytes, at, false)),
            b'$' if dollar_tag(text, at).is_some() => (Open::Dollar, dollar_end(text, at)),
            b'/' if bytes[at..].starts_with(b"/*") => (Open::Comment, comment_end(bytes, at)),
            b'-' if bytes[at..].starts_with(b"--") => {
                at = text[at..].find('\n').map_or(bytes.len(), |line| at + line + 1);
                continue;
            }
            byte => {
                match byte {
                    b'(' => depth += 1,
                    b')' => depth = depth.saturating_sub(1),
                    b';' if depth == 0 => (ends, begun) = (at + 1, false),
                    _ => {}
                }
                begun |= !byte.is_ascii_whitespace() && ends != at + 1;
                at += 1;
                continue;
            }
        };
        begun |= open != Open::Comment;
        match past {
            Some(past) => at = past,
            None => return Extent { ends, open: Some(open) },
        }
    }
    let open = match (depth, begun) {
        (1.., _) => Some(Open::Bracket),
        (0, true) => Some(Open::Statement),
        (0, false) => None,
    };
    Extent { ends, open }
}

/// `E'it\'s'`
fn is_escaped(bytes: &[u8], quote: usize) -> bool {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let before = &bytes[..quote];
    matches!(before.last(), Some(b'e' | b'E'))
        && !before.get(quote.wrapping_sub(2)).is_some_and(is_word)
}

/// The byte after the quote that ends what the one at `from` begins. Two in a row end it and begin it again, which
/// comes to the same.
fn quoted(bytes: &[u8], from: usize, escaped: bool) -> Option<usize> {
    let mut at = from + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if escaped => at += 1,
            byte if byte == bytes[from] => return Some(at + 1),
            _ => {}
        }
        at += 1;
    }
    None
}

/// Comments may hold comments.
fn comment_end(bytes: &[u8], from: usize) -> Option<usize> {
    let (mut at, mut depth) = (from + 2, 1);
    while at < bytes.len() {
        if bytes[at..].starts_with(b"*/") {
            (at, depth) = (at + 2, depth - 1);
            if depth == 0 {
                return Some(at);
            }
        } else if bytes[at..].starts_with(b"/*") {
            (at, depth) = (at + 2, depth + 1);
        } else {
            at += 1;
        }
    }
    None
}

/// `$$` or `$tag$` at this place; `$1` is a parameter.
fn dollar_tag(text: &str, at: usize) -> Option<&str> {
    let end = text[at + 1..].find('$')?;
    let tag = &text[at..at + end + 2];
    let name = &tag[1..=end];
    let is_name = name.chars().all(|c| c.is_alphanumeric() || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit());
    is_name.then_some(tag)
}

fn dollar_end(text: &str, at: usize) -> Option<usize> {
    let tag = dollar_tag(text, at)?;
    let body = at + tag.len();
    text[body..].find(tag).map(|end| body + end + tag.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_is_what_the_next_line_goes_on_with() {
        let cases = [
            ("", None),
            ("  \n", None),
            ("SELECT 1;", None),
            ("SELECT 1; -- that is all", None),
            ("SELECT 1; /* that is all */ ", None),
            ("-- a remark", None),
            ("SELECT 1", Some(Open::Statement)),
            ("SELECT 1; SELECT", Some(Open::Statement)),
            ("SELECT ')' FROM (SELECT 1", Some(Open::Bracket)),
            ("SELECT (1; ", Some(Open::Bracket)),
            ("SELECT 'it''s", Some(Open::Text)),
            ("SELECT ';", Some(Open::Text)),
            ("SELECT 'it''s'", Some(Open::Statement)),
            ("SELECT E'it\\'s;", Some(Open::Text)),
            ("SELECT E'it\\'s';", None),
            ("SELECT 'C:\\';", None),
            ("SELECT \"a;", Some(Open::Name)),
            ("SELECT 1 /* a /* b */", Some(Open::Comment)),
            ("/* before", Some(Open::Comment)),
            ("SELECT $$a;", Some(Open::Dollar)),
            ("SELECT $q$a$$;", Some(Open::Dollar)),
            ("SELECT $q$a$q$;", None),
            ("EXECUTE a($1, $2);", None),
            ("SELECT 'größe — ;'; ", None),
            ("SELECT 1 -- isn't it\n;", None),
        ];
        for (text, open) in cases {
            assert_eq!(extent(text).open, open, "{text}");
        }
    }

    #[test]
    fn whole_statements_end_with_their_last_semicolon() {
        assert_eq!(extent("SELECT 1; SELECT ';'; SEL").ends, 21);
        assert_eq!(extent("SELECT (1;").ends, 0);
        assert_eq!(extent(";").ends, 1);
    }
}
