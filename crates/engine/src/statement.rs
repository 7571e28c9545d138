//! SQL text to statements, with what DataFusion's parser does not know taken out first.
//!
//! Three things are ours: `PARTITIONED BY (…)` and `CLUSTERED BY (…)` of CREATE TABLE, and
//! `table VERSION AS OF 3` / `table TIMESTAMP AS OF '…'`. They are handled on tokens, which keep
//! their place in the text, so that errors still point at it.

use std::collections::{HashSet, VecDeque};
use std::ops::ControlFlow;

use datafusion::sql::parser::{DFParserBuilder, Statement as DfStatement};
use datafusion::sql::sqlparser::ast::{self, BinaryOperator, Expr};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer, Whitespace, Word};
use uplake_table::AsOf;

use crate::error::{EngineError, Position, Result, parser_error};

/// Separates a table's name from its version in the names we give to DataFusion.
const VERSION_MARK: char = '@';

/// One parsed statement.
#[derive(Clone, Debug)]
pub struct Statement {
    /// The statement as it was written.
    pub text: String,
    pub(crate) parsed: DfStatement,
    tokens: Vec<TokenWithSpan>,
    pub(crate) partitioned_by: Vec<String>,
    pub(crate) clustered_by: Vec<String>,
}

/// Splits text at semicolons and parses each statement.
///
/// # Errors
/// [`EngineError::Statement`] with the place of the first thing that is not understood.
pub fn parse(text: &str) -> Result<Vec<Statement>> {
    let dialect = GenericDialect {};
    let tokens = Tokenizer::new(&dialect, text).tokenize_with_location().map_err(|e| {
        EngineError::Statement {
            message: e.message,
            position: Some(Position { line: e.location.line, column: e.location.column }),
        }
    })?;
    let mut statements = Vec::new();
    for part in tokens.split(|t| t.token == Token::SemiColon) {
        let blank = |t: &TokenWithSpan| matches!(t.token, Token::Whitespace(_) | Token::EOF);
        if !part.iter().all(blank) {
            statements.push(parse_one(text, part)?);
        }
    }
    Ok(statements)
}

fn parse_one(text: &str, tokens: &[TokenWithSpan]) -> Result<Statement> {
    let mut tokens: Vec<TokenWithSpan> = tokens.to_vec();
    let written = text_of(text, &tokens);
    let create = starts_with(&tokens, &[Keyword::CREATE]);
    let (mut partitioned_by, mut clustered_by) = (Vec::new(), Vec::new());
    if create {
        partitioned_by = take_columns(&mut tokens, &[Keyword::PARTITIONED, Keyword::PARTITION])?;
        clustered_by = take_columns(&mut tokens, &[Keyword::CLUSTERED, Keyword::CLUSTER])?;
    }
    let tokens = name_versions(tokens)?;
    let parsed = parse_tokens(tokens.clone())?;
    Ok(Statement { text: written, parsed, tokens, partitioned_by, clustered_by })
}

fn parse_tokens(tokens: Vec<TokenWithSpan>) -> Result<DfStatement> {
    let dialect = GenericDialect {};
    // The builder takes text; the parser inside is then given our tokens.
    let mut parser = DFParserBuilder::new("")
        .with_dialect(&dialect)
        .with_recursion_limit(RECURSION_LIMIT)
        .build()
        .map_err(EngineError::from)?;
    parser.parser =
        std::mem::replace(&mut parser.parser, empty_parser()).with_tokens_with_locations(tokens);
    let mut parsed = parser.parse_statement().map_err(|e| match EngineError::from(e) {
        EngineError::Execution(message) => parser_error(&message),
        other => other,
    })?;
    if parser.parser.peek_token_ref().token != Token::EOF {
        let rest = parser.parser.peek_token();
        return Err(EngineError::Statement {
            message: format!("did not expect `{}` here", rest.token),
            position: Some(Position { line: rest.span.start.line, column: rest.span.start.column }),
        });
    }
    refuse_what_is_wrong(&mut parsed)?;
    Ok(parsed)
}

/// DataFusion 55 answers some forms wrongly; those are rewritten where that is simple and refused otherwise.
fn refuse_what_is_wrong(statement: &mut DfStatement) -> Result<()> {
    let inner = match statement {
        DfStatement::Statement(inner) => inner,
        DfStatement::Explain(explain) => return refuse_what_is_wrong(&mut explain.statement),
        _ => return Ok(()),
    };
    match ast::VisitMut::visit(inner.as_mut(), &mut Wrong) {
        ControlFlow::Break(message) => Err(EngineError::statement(message)),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Wrong;

impl ast::VisitorMut for Wrong {
    type Break = &'static str;

    fn pre_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<&'static str> {
        // Planned as plain semi and anti joins, which forget how often a row occurs.
        fn counted(body: &ast::SetExpr) -> bool {
            match body {
                ast::SetExpr::SetOperation { op, set_quantifier, left, right } => {
                    let bag = !matches!(op, ast::SetOperator::Union)
                        && matches!(
                            set_quantifier,
                            ast::SetQuantifier::All | ast::SetQuantifier::AllByName
                        );
                    bag || counted(left) || counted(right)
                }
                _ => false,
            }
        }
        if counted(&query.body) {
            return ControlFlow::Break(
                "EXCEPT ALL and INTERSECT ALL are not supported; number the duplicates with \
                 row_number() and use EXCEPT or INTERSECT",
            );
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<&'static str> {
        match expr {
            // Matched as a regular expression anywhere in the text.
            Expr::SimilarTo { .. } => {
                return ControlFlow::Break("SIMILAR TO is not supported; use LIKE or ~");
            }
            // Rewritten to a correlated EXISTS that confuses tables of one name.
            Expr::AnyOp { left, compare_op, right, .. }
                if matches!(right.as_ref(), Expr::Subquery(_)) =>
            {
                if *compare_op != BinaryOperator::Eq {
                    return ControlFlow::Break("ANY (subquery) is supported with = only");
                }
                *expr = in_subquery(left, right, false);
            }
            Expr::AllOp { left, compare_op, right }
                if matches!(right.as_ref(), Expr::Subquery(_)) =>
            {
                if *compare_op != BinaryOperator::NotEq {
                    return ControlFlow::Break("ALL (subquery) is supported with <> only");
                }
                *expr = in_subquery(left, right, true);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

fn in_subquery(left: &Expr, right: &Expr, negated: bool) -> Expr {
    match right {
        Expr::Subquery(subquery) => {
            Expr::InSubquery { expr: Box::new(left.clone()), subquery: subquery.clone(), negated }
        }
        other => other.clone(),
    }
}

/// Nesting of expressions the parser follows; DataFusion's default of 50 is too low for generated SQL.
const RECURSION_LIMIT: usize = 300;

fn empty_parser<'a>() -> datafusion::sql::sqlparser::parser::Parser<'a> {
    datafusion::sql::sqlparser::parser::Parser::new(&GenericDialect {})
        .with_recursion_limit(RECURSION_LIMIT)
}

fn text_of(text: &str, tokens: &[TokenWithSpan]) -> String {
    let solid: Vec<&TokenWithSpan> =
        tokens.iter().filter(|t| !matches!(t.token, Token::Whitespace(_) | Token::EOF)).collect();
    let (Some(first), Some(last)) = (solid.first(), solid.last()) else { return String::new() };
    let offset = |line: u64, column: u64| -> usize {
        let mut start = 0;
        for _ in 1..line {
            start = text[start..].find('\n').map_or(text.len(), |at| start + at + 1);
        }
        text[start..]
            .char_indices()
            .nth(column.saturating_sub(1) as usize)
            .map_or(text.len(), |(at, _)| start + at)
    };
    let from = offset(first.span.start.line, first.span.start.column);
    let to = offset(last.span.end.line, last.span.end.column);
    text.get(from..to.max(from)).unwrap_or_default().to_owned()
}

fn keyword(token: &TokenWithSpan) -> Option<Keyword> {
    match &token.token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.keyword),
        _ => None,
    }
}

fn is_space(token: &TokenWithSpan) -> bool {
    matches!(token.token, Token::Whitespace(_))
}

fn starts_with(tokens: &[TokenWithSpan], keywords: &[Keyword]) -> bool {
    let mut solid = tokens.iter().filter(|t| !is_space(t));
    keywords.iter().all(|k| solid.next().and_then(keyword) == Some(*k))
}

/// Takes `PARTITIONED BY (a, b)` out of the tokens, if it is there outside brackets.
fn take_columns(tokens: &mut Vec<TokenWithSpan>, names: &[Keyword]) -> Result<Vec<String>> {
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
        if depth == 0 && keyword(token).is_some_and(|k| names.contains(&k)) {
            start = Some(at);
            break;
        }
    }
    let Some(start) = start else { return Ok(Vec::new()) };
    let place = tokens[start].span.start;
    let malformed = || EngineError::Statement {
        message: format!("write `{} BY (column, …)`", tokens[start].token),
        position: Some(Position { line: place.line, column: place.column }),
    };
    let mut at = start + 1;
    let mut next = || {
        while tokens.get(at).is_some_and(is_space) {
            at += 1;
        }
        at += 1;
        tokens.get(at - 1)
    };
    if next().and_then(keyword) != Some(Keyword::BY)
        || next().map(|t| &t.token) != Some(&Token::LParen)
    {
        return Err(malformed());
    }
    let mut columns = Vec::new();
    loop {
        match next().map(|t| &t.token) {
            Some(Token::Word(word)) => columns.push(column_name(word)),
            _ => return Err(malformed()),
        }
        match next().map(|t| &t.token) {
            Some(Token::Comma) => {}
            Some(Token::RParen) => break,
            _ => return Err(malformed()),
        }
    }
    tokens.drain(start..at);
    Ok(columns)
}

fn column_name(word: &Word) -> String {
    if word.quote_style.is_some() { word.value.clone() } else { word.value.to_lowercase() }
}

/// `events VERSION AS OF 3 e` becomes `"events@3" e`; without an alias, `AS events` is added.
fn name_versions(tokens: Vec<TokenWithSpan>) -> Result<Vec<TokenWithSpan>> {
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
        let malformed = |message: &str| EngineError::Statement {
            message: message.to_owned(),
            position: Some(Position { line: place.line, column: place.column }),
        };
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
        AsOf::parse(&value).map_err(|e| malformed(&e.to_string()))?;
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

fn drop_solid(rest: &mut VecDeque<TokenWithSpan>) -> Option<TokenWithSpan> {
    while rest.front().is_some_and(is_space) {
        rest.pop_front();
    }
    rest.pop_front()
}

fn follows(rest: &VecDeque<TokenWithSpan>, keywords: &[Keyword]) -> bool {
    let mut solid = rest.iter().filter(|t| !is_space(t));
    keywords.iter().all(|k| solid.next().and_then(keyword) == Some(*k))
}

fn has_alias(rest: &VecDeque<TokenWithSpan>) -> bool {
    match rest.iter().find(|t| !is_space(t)) {
        Some(TokenWithSpan { token: Token::Word(word), .. }) => {
            word.quote_style.is_some() || matches!(word.keyword, Keyword::NoKeyword | Keyword::AS)
        }
        _ => false,
    }
}

/// A table name as DataFusion sees it, and the version in it.
pub(crate) fn split_version(name: &str) -> (&str, Option<AsOf>) {
    match name.split_once(VERSION_MARK) {
        Some((table, version)) => match AsOf::parse(version) {
            Ok(as_of) => (table, Some(as_of)),
            Err(_) => (name, None),
        },
        None => (name, None),
    }
}

/// Quoted names that spell a column exactly are put in lower case, the form in which DataFusion sees columns
/// of mixed case (see `LakeTable`), so that `"UserId"`, `userid` and `UserID` are the same column.
///
/// `columns`: the exact names that are not lower case.
pub(crate) fn with_lower_case(
    statement: &Statement,
    columns: &HashSet<String>,
) -> Result<DfStatement> {
    let mut tokens = statement.tokens.clone();
    for token in &mut tokens {
        if let Token::Word(word) = &mut token.token
            && word.quote_style.is_some()
            && columns.contains(&word.value)
        {
            word.value = word.value.to_lowercase();
        }
    }
    parse_tokens(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let statements = parse(text).unwrap();
        assert_eq!(statements.len(), 1, "{text}");
        assert_eq!(statements[0].parsed.to_string(), expected);
    }

    #[test]
    fn versions_become_part_of_the_table_name() {
        check("SELECT * FROM t VERSION AS OF 3", "SELECT * FROM \"t@3\" AS \"t\"");
        check("SELECT * FROM T version as of 3 x WHERE 1=1", "SELECT * FROM \"t@3\" x WHERE 1 = 1");
        check(
            "SELECT * FROM t TIMESTAMP AS OF '2026-11-01' AS a, u",
            "SELECT * FROM \"t@2026-11-01\" AS a, u",
        );
        check("SELECT TIMESTAMP '2026-01-01' AS of", "SELECT TIMESTAMP '2026-01-01' AS of");
    }

    #[test]
    fn layout_clauses_are_taken_out_of_create_table() {
        let text = "CREATE TABLE t (a INT, dt DATE) PARTITIONED BY (dt) CLUSTERED BY (a, \"B\")";
        let statement = &parse(text).unwrap()[0];
        assert_eq!(statement.partitioned_by, ["dt"]);
        assert_eq!(statement.clustered_by, ["a", "B"]);
        let text = "CREATE TABLE t AS SELECT rank() OVER (PARTITION BY a ORDER BY b) FROM u";
        assert!(parse(text).unwrap()[0].partitioned_by.is_empty());
    }

    #[test]
    fn statements_are_split_at_semicolons_outside_strings() {
        let texts: Vec<String> = parse("SELECT ';' ; -- c;\n\nSELECT 2;;")
            .unwrap()
            .into_iter()
            .map(|s| s.text)
            .collect();
        assert_eq!(texts, ["SELECT ';'", "SELECT 2"]);
    }

    #[test]
    fn errors_point_at_the_place_in_the_whole_text() {
        let position = |text: &str| match parse(text).unwrap_err() {
            EngineError::Statement { position, .. } => position.map(|p| (p.line, p.column)),
            other => panic!("{other}"),
        };
        assert_eq!(position("SELECT 1;\nSELECT (1 FROM x"), Some((2, 11)));
        assert_eq!(position("SELECT 1 1"), Some((1, 10)));
        assert_eq!(position("CREATE TABLE t (a INT) PARTITIONED BY a"), Some((1, 24)));
    }
}
