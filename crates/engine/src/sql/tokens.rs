//! A statement's text as tokens, and places in it.
//!
//! # Invariants
//! - Tokens keep their places in the whole text, whatever is taken out before them.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan, Tokenizer};

use crate::base::error::{EngineError, Position, Result};
use crate::base::sql_state::SqlState;
use crate::sql::id_set::{IdSet, MARK};
use crate::sql::literals;
use crate::sql::words::{is_space, keyword};

/// The text's tokens, in which `(id_set(n))` stands for the long list n.
pub(crate) fn tokens_and_lists(text: &str) -> Result<(Vec<TokenWithSpan>, Vec<Arc<IdSet>>)> {
    let (mut tokens, mut lists) = (Vec::new(), Vec::new());
    // Equal lists are one: SELECT a IN (…) … GROUP BY a IN (…).
    let mut known: HashMap<&str, usize> = HashMap::new();
    let mut from = 0;
    let mut place = Location { line: 1, column: 1 };
    for list in literals::find(text) {
        tokenize(&text[from..list.start], place, &mut tokens)?;
        let opens = place_after(place, &text[from..list.start]);
        place = place_after(opens, &text[list.start..list.end]);
        let span = Span { start: opens, end: place };
        let name = Token::make_word(MARK, None);
        let number = *known.entry(&text[list.start..list.end]).or_insert_with(|| {
            lists.push(list.set);
            lists.len() - 1
        });
        let number = Token::Number(number.to_string(), false);
        let mark = [Token::LParen, name, Token::LParen, number, Token::RParen, Token::RParen];
        tokens.extend(mark.map(|token| TokenWithSpan { token, span }));
        from = list.end;
    }
    tokenize(&text[from..], place, &mut tokens)?;
    Ok((tokens, lists))
}

/// Appends the tokens of a part of the text that starts at `place`.
pub(crate) fn tokenize(part: &str, place: Location, tokens: &mut Vec<TokenWithSpan>) -> Result<()> {
    let moved = |at: Location| match at.line {
        1 => Location { line: place.line, column: place.column + at.column - 1 },
        line => Location { line: place.line + line - 1, column: at.column },
    };
    let dialect = GenericDialect {};
    let found = Tokenizer::new(&dialect, part).tokenize_with_location().map_err(|e| {
        let Location { line, column } = moved(e.location);
        syntax(e.message, Position { line, column })
    })?;
    tokens.extend(found.into_iter().map(|TokenWithSpan { token, span }| TokenWithSpan {
        token,
        span: Span { start: moved(span.start), end: moved(span.end) },
    }));
    Ok(())
}

pub(crate) fn place_after(place: Location, text: &str) -> Location {
    match text.rfind('\n') {
        None => Location { column: place.column + text.chars().count() as u64, ..place },
        Some(at) => Location {
            line: place.line + text.bytes().filter(|b| *b == b'\n').count() as u64,
            column: text[at + 1..].chars().count() as u64 + 1,
        },
    }
}

/// The text of a statement; `lines` are the places where the lines of `text` start.
pub(crate) fn text_of(text: &str, lines: &[usize], tokens: &[TokenWithSpan]) -> String {
    text.get(span_of(text, lines, tokens)).unwrap_or_default().to_owned()
}

/// The bytes of a statement; `lines` as above.
pub(crate) fn span_of(text: &str, lines: &[usize], tokens: &[TokenWithSpan]) -> Range<usize> {
    let solid: Vec<&TokenWithSpan> =
        tokens.iter().filter(|t| !matches!(t.token, Token::Whitespace(_) | Token::EOF)).collect();
    let (Some(first), Some(last)) = (solid.first(), solid.last()) else { return 0..0 };
    let from = offset_of(text, lines, first.span.start);
    let to = offset_of(text, lines, last.span.end);
    from..to.max(from)
}

/// The byte of a place.
pub(crate) fn offset_of(text: &str, lines: &[usize], place: Location) -> usize {
    let Location { line, column } = place;
    let start = usize::try_from(line).ok().and_then(|line| lines.get(line.wrapping_sub(1)));
    let start = start.copied().unwrap_or(text.len());
    text[start..]
        .char_indices()
        .nth(column.saturating_sub(1) as usize)
        .map_or(text.len(), |(at, _)| start + at)
}

pub(crate) fn starts_with(tokens: &[TokenWithSpan], keywords: &[Keyword]) -> bool {
    let mut solid = tokens.iter().filter(|t| !is_space(t));
    keywords.iter().all(|k| solid.next().and_then(keyword) == Some(*k))
}

pub(crate) fn drop_solid(rest: &mut VecDeque<TokenWithSpan>) -> Option<TokenWithSpan> {
    while rest.front().is_some_and(is_space) {
        rest.pop_front();
    }
    rest.pop_front()
}

pub(crate) fn follows(rest: &VecDeque<TokenWithSpan>, keywords: &[Keyword]) -> bool {
    let mut solid = rest.iter().filter(|t| !is_space(t));
    keywords.iter().all(|k| solid.next().and_then(keyword) == Some(*k))
}

pub(crate) fn unexpected(TokenWithSpan { token, span }: &TokenWithSpan) -> EngineError {
    let place = Position { line: span.start.line, column: span.start.column };
    syntax(format!("did not expect `{token}` here"), place)
}

pub(crate) fn syntax(message: impl Into<String>, place: Position) -> EngineError {
    EngineError::statement(SqlState::SyntaxError, message).at(Some(place))
}
