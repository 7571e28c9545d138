//! Clauses and statements of ours that the parser does not know, taken out of the tokens or put in words that it knows.
//!
//! Ours are: `PARTITIONED BY (…)`, `CLUSTERED BY (…)`, `INDEXED BY (…)` and `ID DOMAINS (…)` of CREATE TABLE,
//! `ON CONFLICT DO NOTHING`, `table VERSION AS OF 3` / `table TIMESTAMP AS OF '…'`, `id IN ID SET name` with the statements
//! about such sets.

use std::collections::VecDeque;

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace, Word};
use uplake_table::AsOf;

use crate::base::error::{EngineError, Position, Result};
use crate::base::sql_state::SqlState;
use crate::sql::id_set::MARK;
use crate::sql::tokens::{drop_solid, follows, syntax, unexpected};
use crate::sql::words::{VERSION_MARK, column_name, is_space, is_word, keyword};

/// A statement about a stored set of ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum IdSetStatement {
    /// `CREATE [OR REPLACE] ID SET name AS query`; the query is what is parsed.
    Create { name: String, replace: bool },
    /// `DROP ID SET [IF EXISTS] name`.
    Drop { name: String, if_exists: bool },
    /// `SHOW ID SETS`.
    Show,
}

/// Takes `ON CONFLICT DO NOTHING` out of an INSERT; was it there?
pub(crate) fn take_on_conflict(statement: &mut DfStatement) -> Result<bool> {
    let inner = match statement {
        DfStatement::Statement(inner) => inner,
        DfStatement::Explain(explain) => return take_on_conflict(&mut explain.statement),
        _ => return Ok(false),
    };
    let ast::Statement::Insert(insert) = inner.as_mut() else { return Ok(false) };
    match insert.on.take() {
        None => Ok(false),
        Some(ast::OnInsert::OnConflict(ast::OnConflict {
            conflict_target: None,
            action: ast::OnConflictAction::DoNothing,
        })) => Ok(true),
        Some(_) => Err(EngineError::unsupported(
            "write ON CONFLICT DO NOTHING, or leave it out: a row of a table with a primary key \
             takes the place of the one with its key",
        )),
    }
}

/// Takes `CREATE ID SET name AS` from before its query; the others leave a statement that says
/// nothing, because the parser needs one.
pub(crate) fn take_id_set_statement(
    tokens: &mut Vec<TokenWithSpan>,
) -> Result<Option<IdSetStatement>> {
    let solid: Vec<usize> = (0..tokens.len()).filter(|at| !is_space(&tokens[*at])).collect();
    let word = |n: usize| match solid.get(n).map(|at| &tokens[*at].token) {
        Some(Token::Word(word)) => Some(word),
        _ => None,
    };
    let is = |n: usize, text: &str| solid.get(n).is_some_and(|at| is_word(&tokens[*at], text));
    let name = |n: usize| -> Result<String> {
        let place = solid.get(n).map_or(tokens[solid[0]].span.start, |at| tokens[*at].span.start);
        word(n).map(column_name).ok_or_else(|| {
            let place = Position { line: place.line, column: place.column };
            syntax("an id set has a name here", place)
        })
    };
    let ends = |n: usize| match solid.get(n) {
        None => Ok(()),
        Some(at) if tokens[*at].token == Token::EOF => Ok(()),
        Some(at) => Err(unexpected(&tokens[*at])),
    };
    let found = if is(0, "create") {
        let replace = is(1, "or") && is(2, "replace");
        let at = if replace { 3 } else { 1 };
        if !(is(at, "id") && is(at + 1, "set")) {
            return Ok(None);
        }
        let name = name(at + 2)?;
        let Some(query) = solid.get(at + 4).filter(|_| is(at + 3, "as")) else {
            let message = "write CREATE ID SET name AS SELECT …";
            return Err(EngineError::statement(SqlState::SyntaxError, message));
        };
        tokens.drain(..*query);
        return Ok(Some(IdSetStatement::Create { name, replace }));
    } else if is(0, "drop") && is(1, "id") && is(2, "set") {
        let if_exists = is(3, "if") && is(4, "exists");
        let at = if if_exists { 5 } else { 3 };
        ends(at + 1)?;
        IdSetStatement::Drop { name: name(at)?, if_exists }
    } else if is(0, "show") && is(1, "id") && is(2, "sets") {
        ends(3)?;
        IdSetStatement::Show
    } else {
        return Ok(None);
    };
    let span = tokens[solid[0]].span;
    let nothing = [Token::make_keyword("SELECT"), Token::Number("1".into(), false)];
    *tokens = nothing.map(|token| TokenWithSpan { token, span }).into();
    Ok(Some(found))
}

/// `IN ID SET vips` becomes `IN (id_set('vips'))`.
pub(crate) fn name_id_sets(tokens: Vec<TokenWithSpan>) -> Result<Vec<TokenWithSpan>> {
    let is = |token: Option<&TokenWithSpan>, text: &str| token.is_some_and(|t| is_word(t, text));
    let mut out: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    let mut rest: VecDeque<TokenWithSpan> = tokens.into();
    while let Some(token) = rest.pop_front() {
        let after_in = is(out.iter().rev().find(|t| !is_space(t)), "in");
        let mut solid = rest.iter().filter(|t| !is_space(t));
        if !(after_in && is(Some(&token), "id") && is(solid.next(), "set")) {
            out.push(token);
            continue;
        }
        drop_solid(&mut rest);
        let (name, span) = match drop_solid(&mut rest) {
            Some(TokenWithSpan { token: Token::Word(word), span }) => (column_name(&word), span),
            _ => {
                let place = token.span.start;
                let place = Position { line: place.line, column: place.column };
                return Err(syntax("write `IN ID SET name`", place));
            }
        };
        let mark = Token::make_word(MARK, None);
        let name = Token::SingleQuotedString(name);
        let call = [Token::LParen, mark, Token::LParen, name, Token::RParen, Token::RParen];
        out.extend(call.map(|token| TokenWithSpan { token, span }));
    }
    Ok(out)
}

/// Takes `PARTITIONED BY (a, b)` out of the tokens, if it is there outside brackets; `second` is the
/// word after its name. With `kinds`, a word may follow each column.
pub(crate) fn take_columns(
    tokens: &mut Vec<TokenWithSpan>,
    names: &[&str],
    second: &str,
    kinds: bool,
) -> Result<Vec<(String, Option<String>)>> {
    let mut depth = 0;
    let mut start = None;
    for (at, token) in tokens.iter().enumerate() {
        match &token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        // A query after AS may have its own PARTITION BY.
        if depth == 0 && keyword(token) == Some(Keyword::AS) {
            break;
        }
        // A table may be called `id`.
        let follows = || tokens[at + 1..].iter().find(|t| !is_space(t));
        let named = || second == "by" || follows().is_some_and(|t| is_word(t, second));
        if depth == 0 && names.iter().any(|name| is_word(token, name)) && named() {
            start = Some(at);
            break;
        }
    }
    let Some(start) = start else { return Ok(Vec::new()) };
    let place = tokens[start].span.start;
    let malformed = || {
        let message = format!(
            "write `{} {} (column{}, …)`",
            tokens[start].token,
            second.to_uppercase(),
            if second == "domains" { " domain" } else { "" }
        );
        syntax(message, Position { line: place.line, column: place.column })
    };
    let mut at = start + 1;
    let mut next = || {
        while tokens.get(at).is_some_and(is_space) {
            at += 1;
        }
        at += 1;
        tokens.get(at - 1)
    };
    if !next().is_some_and(|t| is_word(t, second))
        || next().map(|t| &t.token) != Some(&Token::LParen)
    {
        return Err(malformed());
    }
    let mut columns = Vec::new();
    loop {
        match next().map(|t| &t.token) {
            Some(Token::Word(word)) => columns.push((column_name(word), None)),
            _ => return Err(malformed()),
        }
        let mut after = next().map(|t| &t.token);
        if let (true, Some(Token::Word(kind)), Some(column)) = (kinds, after, columns.last_mut()) {
            column.1 = Some(column_name(kind));
            after = next().map(|t| &t.token);
        }
        match after {
            Some(Token::Comma) => {}
            Some(Token::RParen) => break,
            _ => return Err(malformed()),
        }
    }
    tokens.drain(start..at);
    Ok(columns)
}

/// `events VERSION AS OF 3 e` becomes `"events@3" e`; without an alias, `AS events` is added.
pub(crate) fn name_versions(tokens: Vec<TokenWithSpan>) -> Result<Vec<TokenWithSpan>> {
    let mut out: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    let mut rest: VecDeque<TokenWithSpan> = tokens.into();
    while let Some(token) = rest.pop_front() {
        let kind = keyword(&token);
        let is_version = matches!(kind, Some(Keyword::VERSION | Keyword::TIMESTAMP))
            && follows(&rest, &[Keyword::AS, Keyword::OF]);
        if !is_version {
            out.push(token);
            continue;
        }
        while out.last().is_some_and(is_space) {
            out.pop();
        }
        let place = token.span.start;
        let malformed =
            |message: &str| syntax(message, Position { line: place.line, column: place.column });
        let Some(TokenWithSpan { token: Token::Word(table), span }) = out.pop() else {
            return Err(malformed("AS OF follows a table name"));
        };
        for _ in 0..2 {
            drop_solid(&mut rest);
        }
        let value = match drop_solid(&mut rest).map(|t| t.token) {
            Some(Token::Number(value, _)) if kind == Some(Keyword::VERSION) => value,
            Some(Token::SingleQuotedString(value)) => value,
            _ => {
                return Err(malformed(
                    "write `VERSION AS OF 3` or `TIMESTAMP AS OF '2026-11-01 08:00:00'`",
                ));
            }
        };
        AsOf::parse(&value).map_err(|e| {
            let place = Position { line: place.line, column: place.column };
            EngineError::statement(SqlState::InvalidParameterValue, e.to_string()).at(Some(place))
        })?;
        let name = column_name(&table);
        let quoted = |value: String| {
            let word = Word { value, quote_style: Some('"'), keyword: Keyword::NoKeyword };
            TokenWithSpan { token: Token::Word(word), span }
        };
        out.push(quoted(format!("{name}{VERSION_MARK}{value}")));
        if !has_alias(&rest) {
            let space = || TokenWithSpan { token: Token::Whitespace(Whitespace::Space), span };
            let alias = Token::make_keyword("AS");
            out.extend([space(), TokenWithSpan { token: alias, span }, space(), quoted(name)]);
        }
    }
    Ok(out)
}

pub(crate) fn has_alias(rest: &VecDeque<TokenWithSpan>) -> bool {
    match rest.iter().find(|t| !is_space(t)) {
        Some(TokenWithSpan { token: Token::Word(word), .. }) => {
            word.quote_style.is_some() || matches!(word.keyword, Keyword::NoKeyword | Keyword::AS)
        }
        _ => false,
    }
}
