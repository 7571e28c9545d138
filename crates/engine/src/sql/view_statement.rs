//! `CREATE VIEW name [(column, …)] AS query` and what else is said of views.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::base::error::{EngineError, Result};
use crate::base::sql_state::SqlState;
use crate::sql::words::{column_name, is_space, is_word};

/// A statement about a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ViewStatement {
    /// The query is what is parsed.
    Create {
        name: String,
        columns: Vec<String>,
        replace: bool,
        if_not_exists: bool,
        /// As it is written.
        query: String,
    },
    Drop {
        name: String,
        if_exists: bool,
    },
    /// `SHOW CREATE VIEW name`.
    Show {
        name: String,
    },
}

/// Takes all but the query out; the others leave a statement that says nothing, because the parser needs one.
pub(crate) fn take_view(tokens: &mut Vec<TokenWithSpan>) -> Result<Option<ViewStatement>> {
    let solid: Vec<TokenWithSpan> =
        tokens.iter().filter(|t| !is_space(t) && t.token != Token::EOF).cloned().collect();
    let is = |n: usize, text: &str| solid.get(n).is_some_and(|token| is_word(token, text));
    let mut at = 0;
    let goes_on = |at: &mut usize, words: &[&str]| {
        let is_there = words.iter().enumerate().all(|(n, word)| is(*at + n, word));
        *at += if is_there { words.len() } else { 0 };
        is_there
    };
    let is_create = goes_on(&mut at, &["create"]);
    let replace = is_create && goes_on(&mut at, &["or", "replace"]);
    let is_drop = !is_create && goes_on(&mut at, &["drop"]);
    let is_show = !is_create && !is_drop && goes_on(&mut at, &["show", "create"]);
    if !((is_create || is_drop || is_show) && goes_on(&mut at, &["view"])) {
        return Ok(None);
    }
    let if_not_exists = is_create && goes_on(&mut at, &["if", "not", "exists"]);
    let if_exists = is_drop && goes_on(&mut at, &["if", "exists"]);
    let malformed = || {
        let message = match (is_create, is_drop) {
            (true, _) => "write CREATE [OR REPLACE] VIEW name [(column, …)] AS SELECT …",
            (_, true) => "write DROP VIEW [IF EXISTS] name",
            _ => "write SHOW CREATE VIEW name",
        };
        EngineError::statement(SqlState::SyntaxError, message)
    };
    let token = |n: usize| solid.get(n).map(|token| &token.token);
    let Some(Token::Word(word)) = token(at) else { return Err(malformed()) };
    let mut name = column_name(word);
    at += 1;
    // `public.name`
    while token(at) == Some(&Token::Period) {
        let Some(Token::Word(word)) = token(at + 1) else { return Err(malformed()) };
        name = column_name(word);
        at += 2;
    }
    let found = if is_create {
        let mut columns = Vec::new();
        if token(at) == Some(&Token::LParen) {
            loop {
                let Some(Token::Word(word)) = token(at + 1) else { return Err(malformed()) };
                columns.push(column_name(word));
                at += 2;
                match token(at) {
                    Some(Token::Comma) => {}
                    Some(Token::RParen) => break,
                    _ => return Err(malformed()),
                }
            }
            at += 1;
        }
        let query = solid.get(at + 1).filter(|_| is(at, "as")).ok_or_else(malformed)?;
        let begins = tokens.iter().position(|token| token.span == query.span);
        tokens.drain(..begins.unwrap_or_default());
        let query = String::new();
        return Ok(Some(ViewStatement::Create { name, columns, replace, if_not_exists, query }));
    } else if at < solid.len() {
        return Err(malformed());
    } else if is_drop {
        ViewStatement::Drop { name, if_exists }
    } else {
        ViewStatement::Show { name }
    };
    let span = solid[0].span;
    let nothing = [Token::make_keyword("SELECT"), Token::Number("1".into(), false)];
    *tokens = nothing.map(|token| TokenWithSpan { token, span }).into();
    Ok(Some(found))
}
