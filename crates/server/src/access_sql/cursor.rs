//! The tokens of a statement, one after the other, and errors with their places.
//!
//! # Invariants
//! - No error repeats a literal: it may be a password.

use uplake_engine::{EngineError, Position, Result, SqlState};

use super::statement::{Named, RoleName};
use crate::access::{AccessError, SCHEMA, folded};
use crate::catalog::{Kind, Token, tokens};

/// What queries call the lake, before a schema.
const LAKE: &str = "lake";

/// What is read of a statement, and what is not yet.
pub(super) struct Cursor<'a> {
    text: &'a str,
    tokens: Vec<Token<'a>>,
    next: usize,
}

/// The place of a byte of a text.
pub(super) fn place(text: &str, at: usize) -> Option<Position> {
    let before = text.get(..at)?;
    let line_at = before.rfind('\n').map_or(0, |end| end + 1);
    let line = before.bytes().filter(|byte| *byte == b'\n').count() as u64 + 1;
    Some(Position { line, column: before[line_at..].chars().count() as u64 + 1 })
}

/// A code's name by its characters, where another part of the server has these alone.
fn state(code: &str) -> SqlState {
    let known = SqlState::ALL.iter().find(|state| state.as_str() == code);
    known.copied().unwrap_or(SqlState::InternalError)
}

/// What a change of access fails with, for the client.
pub(super) fn refused(error: AccessError) -> EngineError {
    match error {
        AccessError::Table(error) => error.into(),
        error => EngineError::statement(state(error.code()), error.to_string()),
    }
}

impl<'a> Cursor<'a> {
    /// # Errors
    /// 42601 if a literal or a comment does not end.
    pub fn new(text: &'a str) -> Result<Self> {
        let unended = || EngineError::statement(SqlState::SyntaxError, "a literal does not end");
        Ok(Self { text, tokens: tokens(text).ok_or_else(unended)?, next: 0 })
    }

    pub fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.next).copied()
    }

    fn after(&self, count: usize) -> Option<Token<'a>> {
        self.tokens.get(self.next + count).copied()
    }

    pub fn skip(&mut self) {
        self.next += 1;
    }

    /// The byte at which the next token begins.
    pub fn at(&self) -> usize {
        self.peek().map_or(self.text.len(), |token| token.at)
    }

    /// Is the next one this word?
    pub fn sees(&self, word: &str) -> bool {
        self.peek().is_some_and(|token| token.is_word(word))
    }

    /// Are the next ones these words?
    pub fn sees_all(&self, words: &[&str]) -> bool {
        let mut numbered = words.iter().enumerate();
        numbered.all(|(at, word)| self.after(at).is_some_and(|token| token.is_word(word)))
    }

    /// Takes the word if it is the next one.
    pub fn takes(&mut self, word: &str) -> bool {
        let sees = self.sees(word);
        self.next += usize::from(sees);
        sees
    }

    /// Takes the words if they are the next ones.
    pub fn takes_all(&mut self, words: &[&str]) -> bool {
        let sees = self.sees_all(words);
        self.next += if sees { words.len() } else { 0 };
        sees
    }

    pub fn takes_symbol(&mut self, symbol: &str) -> bool {
        let sees = self.peek().is_some_and(|token| token.is_symbol(symbol));
        self.next += usize::from(sees);
        sees
    }

    /// # Errors
    /// 42601 with `usage` if it is another.
    pub fn word(&mut self, word: &str, usage: &str) -> Result<()> {
        if self.takes(word) { Ok(()) } else { Err(self.expected(usage)) }
    }

    /// # Errors
    /// 42601 with `usage` if it is another.
    pub fn symbol(&mut self, symbol: &str, usage: &str) -> Result<()> {
        if self.takes_symbol(symbol) { Ok(()) } else { Err(self.expected(usage)) }
    }

    /// The next token is not what can stand there.
    pub fn expected(&self, usage: &str) -> EngineError {
        let found = match self.peek() {
            None => "the statement ends here".to_owned(),
            Some(token) if matches!(token.kind, Kind::Text | Kind::Number) => {
                "did not expect a literal here".to_owned()
            }
            Some(token) => format!("did not expect `{}` here", token.text),
        };
        self.refusal(self.at(), SqlState::SyntaxError, found).with_hint(format!("write {usage}"))
    }

    pub fn refusal(&self, at: usize, code: SqlState, what: impl Into<String>) -> EngineError {
        EngineError::statement(code, what).at(place(self.text, at))
    }

    /// What there is not.
    pub fn unsupported(&self, what: impl Into<String>) -> EngineError {
        self.refusal(self.at(), SqlState::FeatureNotSupported, what)
    }

    /// An error of access at the last token.
    pub fn refused(&self, error: AccessError) -> EngineError {
        let at = self.next.checked_sub(1).and_then(|at| self.tokens.get(at));
        refused(error).at(at.and_then(|token| place(self.text, token.at)))
    }

    /// # Errors
    /// 42601 if there is more.
    pub fn ends(&self, usage: &str) -> Result<()> {
        if self.peek().is_none() { Ok(()) } else { Err(self.expected(usage)) }
    }

    /// The name of a role, a policy, a tenant or a token.
    ///
    /// # Errors
    /// 42601 if there is none, 42602 if it can be none.
    pub fn name(&mut self, usage: &str) -> Result<String> {
        let token = self.peek().filter(|token| matches!(token.kind, Kind::Word | Kind::Quoted));
        let token = token.ok_or_else(|| self.expected(usage))?;
        self.skip();
        folded(token.text).map_err(|error| self.refused(error))
    }

    pub fn role(&mut self, usage: &str) -> Result<RoleName> {
        if self.takes("current_user") || self.takes("session_user") {
            return Ok(RoleName::Own);
        }
        self.name(usage).map(RoleName::Named)
    }

    /// The name of a table, maybe with its schema, and with the catalog that queries call the lake.
    pub fn table(&mut self, usage: &str) -> Result<Named> {
        let (mut before, mut name) = (Vec::new(), self.named(usage)?);
        while self.takes_symbol(".") {
            let next = self.named(usage)?;
            before.push(std::mem::replace(&mut name, next));
        }
        for (part, expected) in before.iter().rev().zip([SCHEMA, LAKE]) {
            if part.name != expected {
                let what = format!("tables are in {LAKE}.{SCHEMA}, not in `{}`", part.name);
                return Err(self.refusal(part.at, SqlState::UndefinedTable, what));
            }
        }
        match before.get(2) {
            None => Ok(name),
            Some(part) => {
                let what = "a table's name has a catalog and a schema before it at most";
                Err(self.refusal(part.at, SqlState::SyntaxError, what))
            }
        }
    }

    /// The name of a column, or of a table without its schema.
    pub fn named(&mut self, usage: &str) -> Result<Named> {
        let token = self.peek().filter(|token| matches!(token.kind, Kind::Word | Kind::Quoted));
        let found = token.and_then(|token| Some((token, token.name()?)));
        let (token, name) = found.ok_or_else(|| self.expected(usage))?;
        self.skip();
        Ok(Named { name, is_exact: token.kind == Kind::Quoted, at: token.at })
    }

    /// One or more, with commas.
    pub fn list<T>(
        &mut self,
        usage: &str,
        mut item: impl FnMut(&mut Self, &str) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut items = vec![item(self, usage)?];
        while self.takes_symbol(",") {
            items.push(item(self, usage)?);
        }
        Ok(items)
    }

    /// What stands in quotes.
    pub fn text(&mut self, usage: &str) -> Result<String> {
        let token = self.peek().filter(|token| token.kind == Kind::Text);
        let text = token.and_then(|token| unquoted(token.text));
        let text = text.ok_or_else(|| self.expected(usage))?;
        self.skip();
        Ok(text)
    }

    /// What stands between brackets of which the first comes next, and where it begins.
    pub fn in_brackets(&mut self, usage: &str) -> Result<(String, usize)> {
        self.symbol("(", usage)?;
        let begins = self.tokens.get(self.next - 1).map_or(0, |open| open.at + 1);
        let mut depth = 1_usize;
        loop {
            let Some(token) = self.peek() else { return Err(self.expected(usage)) };
            self.skip();
            depth += usize::from(token.is_symbol("("));
            depth -= usize::from(token.is_symbol(")"));
            if depth == 0 {
                return Ok((self.text[begins..token.at].to_owned(), begins));
            }
        }
    }
}

/// A literal of text without its quotes.
fn unquoted(literal: &str) -> Option<String> {
    if let Some(rest) = literal.strip_prefix('$') {
        let tag = rest.find('$')? + 2;
        return literal.get(tag..literal.len().checked_sub(tag)?).map(str::to_owned);
    }
    let escapes = literal.starts_with(['e', 'E']);
    let inner = literal.strip_prefix(['e', 'E']).unwrap_or(literal);
    let inner = inner.strip_prefix('\'')?.strip_suffix('\'')?;
    let mut text = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match c {
            // The second of two.
            '\'' => text.extend(chars.next()),
            '\\' if escapes => match chars.next()? {
                c @ ('\\' | '\'') => text.push(c),
                // The others make characters that no driver writes so.
                _ => return None,
            },
            c => text.push(c),
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_read_as_postgres_reads_them() {
        for (literal, expected) in [
            ("'a''b'", Some("a'b")),
            ("E'a\\\\b\\'c'", Some("a\\b'c")),
            ("'a\\b'", Some("a\\b")),
            ("$$a'b$$", Some("a'b")),
            ("$x$a$x$", Some("a")),
            ("E'\\n'", None),
            ("x'00'", None),
        ] {
            assert_eq!(unquoted(literal).as_deref(), expected, "{literal}");
        }
    }

    #[test]
    fn places_are_lines_and_characters() {
        let text = "GRANT ä\n TO é x";
        let at = text.find('x').unwrap();
        assert_eq!(place(text, at), Some(Position { line: 2, column: 7 }));
        assert_eq!(place(text, 0), Some(Position { line: 1, column: 1 }));
    }
}
