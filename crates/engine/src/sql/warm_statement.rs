//! `WARM UP TABLE t [WHERE …] [COLUMNS (a, b)]` as a statement.
//!
//! It is read as a query of the table: WHERE chooses files, as it would there.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::base::error::{EngineError, Result};
use crate::base::sql_state::SqlState;
use crate::sql::words::{column_name, is_space, is_word};

/// What to warm beside the files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WarmStatement {
    /// Columns; all if none is named.
    pub columns: Option<Vec<String>>,
}

/// Makes the statement a query of its table and takes COLUMNS out.
pub(crate) fn take_warm(tokens: &mut Vec<TokenWithSpan>) -> Result<Option<WarmStatement>> {
    let solid: Vec<usize> = (0..tokens.len()).filter(|at| !is_space(&tokens[*at])).collect();
    let is = |n: usize, text: &str| solid.get(n).is_some_and(|at| is_word(&tokens[*at], text));
    if !(is(0, "warm") && is(1, "up") && is(2, "table")) {
        return Ok(None);
    }
    let columns = take_column_list(tokens)?;
    let (first, last) = (solid[0], solid[2]);
    let span = tokens[first].span;
    let query = [Token::make_keyword("SELECT"), Token::Mul, Token::make_keyword("FROM")];
    tokens.splice(first..=last, query.map(|token| TokenWithSpan { token, span }));
    Ok(Some(WarmStatement { columns }))
}

/// Takes the outermost `COLUMNS (a, b)` out.
fn take_column_list(tokens: &mut Vec<TokenWithSpan>) -> Result<Option<Vec<String>>> {
    let mut depth = 0;
    let start = tokens.iter().position(|token| {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        depth == 0 && is_word(token, "columns")
    });
    let Some(start) = start else { return Ok(None) };
    let malformed = || {
        EngineError::statement(SqlState::SyntaxError, "write WARM UP TABLE t COLUMNS (column, …)")
    };
    let end = tokens[start..].iter().position(|t| t.token == Token::RParen);
    let end = start + end.ok_or_else(malformed)?;
    let taken: Vec<TokenWithSpan> = tokens.drain(start..=end).collect();
    let solid = taken.into_iter().filter(|t| !is_space(t)).map(|t| t.token);
    let mut columns = Vec::new();
    for (at, token) in solid.skip(1).enumerate() {
        match (at, token) {
            (0, Token::LParen) | (_, Token::RParen) => {}
            (at, Token::Comma) if at > 0 && at % 2 == 0 => {}
            (at, Token::Word(word)) if at % 2 == 1 => columns.push(column_name(&word)),
            _ => return Err(malformed()),
        }
    }
    if columns.is_empty() { Err(malformed()) } else { Ok(Some(columns)) }
}
