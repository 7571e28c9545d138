//! `PREPARE name [(type, …)] AS query` as a statement, whose query is what is parsed.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::base::error::{EngineError, Result};
use crate::base::sql_state::SqlState;
use crate::sql::words::{column_name, is_space, is_word};

/// What stands before the query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PrepareStatement {
    pub name: String,
    /// The types of `$1`, `$2` and so on, as they are written; the others are found where they are used.
    pub types: Vec<String>,
}

/// Takes all but the query out.
pub(crate) fn take_prepare(tokens: &mut Vec<TokenWithSpan>) -> Result<Option<PrepareStatement>> {
    let solid: Vec<usize> = (0..tokens.len()).filter(|at| !is_space(&tokens[*at])).collect();
    let is = |n: usize, text: &str| solid.get(n).is_some_and(|at| is_word(&tokens[*at], text));
    if !is(0, "prepare") {
        return Ok(None);
    }
    let malformed = || {
        let message = "write PREPARE name (type, …) AS SELECT …";
        EngineError::statement(SqlState::SyntaxError, message)
    };
    let token = |n: usize| solid.get(n).map(|at| &tokens[*at].token);
    let Some(Token::Word(name)) = token(1) else { return Err(malformed()) };
    let name = column_name(name);
    let (mut types, mut next) = (Vec::new(), 2);
    if token(next) == Some(&Token::LParen) {
        let (mut depth, mut text) = (1, String::new());
        while depth > 0 {
            next += 1;
            let token = token(next).filter(|token| **token != Token::EOF).ok_or_else(malformed)?;
            match token {
                Token::LParen => depth += 1,
                Token::RParen => depth -= 1,
                _ => {}
            }
            if depth == 0 || (depth == 1 && *token == Token::Comma) {
                types.push(std::mem::take(&mut text));
            } else {
                text.push_str(&format!("{token} "));
            }
        }
        next += 1;
    }
    if !is(next, "as") || types.iter().any(|data_type| data_type.trim().is_empty()) {
        return Err(malformed());
    }
    let query = *solid.get(next + 1).ok_or_else(malformed)?;
    tokens.drain(..query);
    Ok(Some(PrepareStatement { name, types }))
}
