//! `DESCRIBE SELECT …` and `SUMMARIZE SELECT …`, or of a table, which ask about a query.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::sql::words::{is_space, is_word};

/// Where the first two words are, and whether a query begins with the second.
fn begins(tokens: &[TokenWithSpan], words: &[&str]) -> Option<(usize, usize, bool)> {
    let mut solid = (0..tokens.len()).filter(|at| !is_space(&tokens[*at]));
    let (first, second) = (solid.next()?, solid.next()?);
    let is = |at: usize, words: &[&str]| words.iter().any(|word| is_word(&tokens[at], word));
    let is_query =
        is(second, &["select", "with", "from", "values"]) || tokens[second].token == Token::LParen;
    is(first, words).then_some((first, second, is_query))
}

/// Takes DESCRIBE from before a query; was it there?
pub(crate) fn take_describe(tokens: &mut Vec<TokenWithSpan>) -> bool {
    let Some((_, query, true)) = begins(tokens, &["describe", "desc"]) else { return false };
    tokens.drain(..query);
    true
}

/// Takes SUMMARIZE from before a query; a table becomes one. Was it there?
pub(crate) fn take_summarize(tokens: &mut Vec<TokenWithSpan>) -> bool {
    let Some((first, second, is_query)) = begins(tokens, &["summarize"]) else { return false };
    if tokens[second].token == Token::EOF {
        return false;
    }
    if is_query {
        tokens.drain(..second);
        return true;
    }
    let after = if is_word(&tokens[second], "table") { second + 1 } else { second };
    let span = tokens[first].span;
    let query = [Token::make_keyword("SELECT"), Token::Mul, Token::make_keyword("FROM")];
    tokens.splice(first..after, query.map(|token| TokenWithSpan { token, span }));
    true
}
