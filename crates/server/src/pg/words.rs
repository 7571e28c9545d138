//! The first words of a statement, for those that are not the engine's.
//!
//! # Not here
//! SQL: the engine reads it. What these words do not spell is left to it.

/// A word of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// Without quotes, in lower case.
    Bare(String),
    /// In double quotes, as it stands there.
    Quoted(String),
    /// In single quotes.
    Text(String),
    /// With its sign.
    Number(String),
    Sign(char),
}

impl Word {
    /// Is it this word without quotes?
    pub fn is(&self, word: &str) -> bool {
        matches!(self, Self::Bare(bare) if bare == word)
    }

    /// The name that it is.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Bare(name) | Self::Quoted(name) => Some(name),
            _ => None,
        }
    }

    /// What it says, with or without quotes.
    pub fn value(&self) -> Option<&str> {
        match self {
            Self::Bare(text) | Self::Quoted(text) | Self::Text(text) | Self::Number(text) => {
                Some(text)
            }
            Self::Sign(_) => None,
        }
    }
}

/// The words of a text, each with the byte at which it begins and the one behind it.
pub(crate) struct Words<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Words<'a> {
    pub fn of(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// All of them, up to `most`.
    pub fn all(text: &str, most: usize) -> Vec<Word> {
        Words::of(text).take(most).map(|(_, word, _)| word).collect()
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_blanks(&mut self) {
        loop {
            let rest = self.rest();
            let blank = rest.len() - rest.trim_start().len();
            self.at += blank;
            let rest = self.rest();
            if rest.starts_with("--") {
                self.at += rest.find('\n').map_or(rest.len(), |end| end + 1);
            } else if rest.starts_with("/*") {
                self.at += comment(rest);
            } else if blank == 0 {
                return;
            }
        }
    }

    /// The text between quotes of which one stands here, in which two are one.
    fn quoted(&mut self, quote: char) -> String {
        let mut text = String::new();
        let mut characters = self.rest()[1..].char_indices().peekable();
        let mut end = self.rest().len();
        while let Some((at, character)) = characters.next() {
            if character != quote {
                text.push(character);
            } else if characters.next_if(|(_, next)| *next == quote).is_some() {
                text.push(quote);
            } else {
                end = at + 2;
                break;
            }
        }
        self.at += end;
        text
    }
}

/// The bytes of the comment that `text` begins with; comments may hold comments.
fn comment(text: &str) -> usize {
    let (mut at, mut depth) = (2, 1);
    while depth > 0 {
        let Some(next) = text[at..].find(['*', '/']) else { return text.len() };
        at += next;
        if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
        } else if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else {
            at += 1;
        }
    }
    at
}

impl Iterator for Words<'_> {
    type Item = (usize, Word, usize);

    fn next(&mut self) -> Option<Self::Item> {
        self.skip_blanks();
        let rest = self.rest();
        let first = rest.chars().next()?;
        let start = self.at;
        let while_ = |holds: fn(char) -> bool| {
            rest.find(|character| !holds(character)).unwrap_or(rest.len())
        };
        let is_number = first.is_ascii_digit()
            || (matches!(first, '-' | '+') && rest[1..].starts_with(|c: char| c.is_ascii_digit()));
        let word = if first == '\'' {
            Word::Text(self.quoted('\''))
        } else if first == '"' {
            Word::Quoted(self.quoted('"'))
        } else if is_number {
            let digits = rest[1..].find(|c: char| !(c.is_ascii_alphanumeric() || c == '.'));
            self.at += digits.map_or(rest.len(), |digits| digits + 1);
            Word::Number(self.text[start..self.at].to_owned())
        } else if first.is_alphabetic() || first == '_' {
            self.at += while_(|c| c.is_alphanumeric() || matches!(c, '_' | '$'));
            Word::Bare(self.text[start..self.at].to_lowercase())
        } else {
            self.at += first.len_utf8();
            Word::Sign(first)
        };
        Some((start, word, self.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_between_blanks_and_comments() {
        let words = Words::all("/* a /* b */ c */ Set -- d\n \"A\"\"b\" = 'it''s', -1.5ms*", 20);
        let expected = [
            Word::Bare("set".into()),
            Word::Quoted("A\"b".into()),
            Word::Sign('='),
            Word::Text("it's".into()),
            Word::Sign(','),
            Word::Number("-1.5ms".into()),
            Word::Sign('*'),
        ];
        assert_eq!(words, expected);
        assert!(Words::all(" -- nothing", 9).is_empty());
        assert!(Words::all("/* not closed", 9).is_empty());
        assert_eq!(Words::all("'not closed", 9), [Word::Text("not closed".into())]);
        let places: Vec<_> = Words::of("ä b").map(|(from, _, to)| (from, to)).collect();
        assert_eq!(places, [(0, 2), (3, 4)]);
    }
}
