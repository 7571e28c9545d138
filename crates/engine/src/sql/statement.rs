//! SQL text to statements: what DataFusion's parser does not know is taken out first, while the text is tokens.
//!
//! # Not here
//! Tokens and their places (`tokens`), clauses of ours (`clauses`), long lists of literals, which are taken out even before
//! (`literals`).

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::sql::parser::{DFParserBuilder, Statement as DfStatement};
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Whitespace};

use crate::base::error::{EngineError, Position, Result};
use crate::base::foreign_errors::{ends_early, parser_error};
use crate::base::sql_state::SqlState;
use crate::sql::about_query::{take_describe, take_summarize};
use crate::sql::added_statement::{AddedStatement, take_added};
pub(crate) use crate::sql::clauses::IdSetStatement;
use crate::sql::clauses::{
    name_id_sets, name_versions, take_columns, take_id_set_statement, take_on_conflict,
};
use crate::sql::copy_statement::{CopyFrom, spell_copy_options, take_copy_from};
use crate::sql::dialect::UplakeDialect;
use crate::sql::id_set::IdSet;
use crate::sql::plain_forms::join_digits;
use crate::sql::prepare_statement::{PrepareStatement, take_prepare};
use crate::sql::question_marks::number_parameters;
use crate::sql::result_names::{NamedBy, named_by, postgres_names};
use crate::sql::returning;
use crate::sql::rewrite::rewrite;
use crate::sql::statement_size;
use crate::sql::token_rewrite::{
    bracket_grouping_keys, name_operators, name_words, plain_words, select_before_from,
    separate_not_exists, set_for_reset,
};
use crate::sql::tokens::{
    offset_of, span_of, starts_with, syntax, text_of, tokenize, tokens_and_lists, unexpected,
};
use crate::sql::view_statement::{ViewStatement, take_view};
use crate::sql::views::{Views, expanded};
use crate::sql::warm_statement::{WarmStatement, take_warm};
use crate::sql::words::{is_space, is_word};

/// One parsed statement.
#[derive(Clone, Debug)]
pub struct Statement {
    /// The statement as it was written.
    pub text: String,
    pub(crate) parsed: DfStatement,
    pub(crate) tokens: Vec<TokenWithSpan>,
    /// The lists that were taken out of the whole text; marks in it name them by their place.
    pub(crate) lists: Arc<Vec<Arc<IdSet>>>,
    pub(crate) partitioned_by: Vec<String>,
    pub(crate) clustered_by: Vec<String>,
    /// Columns, and kinds where they are named.
    pub(crate) indexed_by: Vec<(String, Option<String>)>,
    /// Columns and their domains.
    pub(crate) id_domains: Vec<(String, Option<String>)>,
    pub(crate) id_set: Option<IdSetStatement>,
    pub(crate) added: Option<AddedStatement>,
    pub(crate) warm: Option<WarmStatement>,
    pub(crate) prepare: Option<PrepareStatement>,
    pub(crate) view: Option<ViewStatement>,
    /// Is it the columns of the query that are asked for?
    pub(crate) describes: bool,
    /// Is it what the columns of the query hold?
    pub(crate) summarizes: bool,
    /// What gives names to its columns.
    pub(crate) named: Arc<[NamedBy]>,
    /// Those that it reads, once they are in their places.
    pub(crate) views: Option<Arc<Views>>,
    /// Of `$1`, `$2` and so on, if it is executed.
    pub(crate) values: Vec<ScalarValue>,
    /// `INSERT … ON CONFLICT DO NOTHING`.
    pub(crate) ignores_conflicts: bool,
    /// COPY … FROM files, of which the INSERT that is parsed has the table alone.
    pub(crate) copy_from: Option<CopyFrom>,
    /// Is it the query of what another one gives back?
    pub(crate) is_returned: bool,
}

impl Statement {
    /// What it does, in PostgreSQL's words of a command tag: `SELECT`, `INSERT`, `CREATE TABLE`; `OTHER` for what has no
    /// word there.
    pub fn command(&self) -> &'static str {
        match &self.id_set {
            Some(IdSetStatement::Create { .. }) => return "CREATE ID SET",
            Some(IdSetStatement::Drop { .. }) => return "DROP ID SET",
            Some(IdSetStatement::Show) => return "SHOW",
            None => {}
        }
        if let Some(added) = &self.added {
            return added.command;
        }
        if self.warm.is_some() {
            return "WARM UP";
        }
        if self.copy_from.is_some() {
            return "COPY";
        }
        if self.prepare.is_some() {
            return "PREPARE";
        }
        match &self.view {
            Some(ViewStatement::Create { .. }) => return "CREATE VIEW",
            Some(ViewStatement::Drop { .. }) => return "DROP VIEW",
            Some(ViewStatement::Show { .. }) => return "SHOW",
            None if self.describes || self.summarizes => return "SHOW",
            None => {}
        }
        let inner = match &self.parsed {
            DfStatement::Explain(_) => return "EXPLAIN",
            DfStatement::Reset(_) => return "RESET",
            DfStatement::CopyTo(_) => return "COPY",
            DfStatement::Statement(inner) => inner.as_ref(),
            DfStatement::CreateExternalTable(_) => return "CREATE TABLE",
        };
        match inner {
            ast::Statement::Query(_) => "SELECT",
            ast::Statement::Insert(_) => "INSERT",
            ast::Statement::Delete(_) => "DELETE",
            ast::Statement::Update(_) => "UPDATE",
            ast::Statement::Merge(_) => "MERGE",
            ast::Statement::CreateTable(_) => "CREATE TABLE",
            ast::Statement::Drop { .. } => "DROP TABLE",
            ast::Statement::AlterTable(_) => "ALTER TABLE",
            ast::Statement::Comment { .. } => "COMMENT",
            ast::Statement::Execute { .. } => "SELECT",
            ast::Statement::Deallocate { .. } => "DEALLOCATE",
            ast::Statement::Set(_) => "SET",
            ast::Statement::ShowTables { .. }
            | ast::Statement::ShowVariable { .. }
            | ast::Statement::ShowColumns { .. }
            | ast::Statement::ShowCreate { .. }
            | ast::Statement::ExplainTable { .. } => "SHOW",
            _ => "OTHER",
        }
    }

    /// Can it be prepared: is it a query, or does it write rows?
    pub fn can_be_prepared(&self) -> bool {
        self.prepare.is_none() && (self.only_asks() || self.writes_rows())
    }

    /// Names that Postgres would give to the `count` columns of its answer, where they are others than written:
    /// `None` for a column with an alias, for a plain column, and for those of `*`.
    pub fn result_names(&self, count: usize) -> Vec<Option<String>> {
        postgres_names(&self.parsed, count)
    }

    /// Where a type of that name stands: behind `::` or AS, or else where the name stands first.
    pub(crate) fn place_of_type(&self, name: &str) -> Option<Position> {
        let solid: Vec<&TokenWithSpan> = self.tokens.iter().filter(|t| !is_space(t)).collect();
        let named = |at: &usize| is_word(solid[*at], name);
        let is_cast = |at: &usize| {
            let before = at.checked_sub(1).map(|at| solid[at]);
            before.is_some_and(|t| t.token == Token::DoubleColon || is_word(t, "as"))
        };
        let places = || (0..solid.len()).filter(named);
        let at = places().find(is_cast).or_else(|| places().next())?;
        let Location { line, column } = solid[at].span.start;
        Some(Position { line, column })
    }

    /// Is it an INSERT, a DELETE, an UPDATE or a MERGE?
    pub(crate) fn writes_rows(&self) -> bool {
        let writes = |inner: &ast::Statement| {
            use ast::Statement::{Delete, Insert, Merge, Update};
            matches!(inner, Insert(_) | Delete(_) | Update(_) | Merge(_))
        };
        self.copy_from.is_none()
            && matches!(&self.parsed, DfStatement::Statement(inner) if writes(inner))
    }

    /// The query of what it gives back, if it has RETURNING.
    pub(crate) fn returned(&self) -> Option<Self> {
        let parsed = returning::query_of(&self.parsed)?;
        Some(Self { parsed, is_returned: true, ..self.clone() })
    }

    /// Does it change nothing, so that it may be begun twice?
    pub fn only_asks(&self) -> bool {
        let is_query = |statement: &ast::Statement| matches!(statement, ast::Statement::Query(_));
        let parsed = match &self.parsed {
            DfStatement::Explain(explain) => explain.statement.as_ref(),
            parsed => parsed,
        };
        self.id_set.is_none()
            && self.added.is_none()
            && self.warm.is_none()
            && self.prepare.is_none()
            && self.view.is_none()
            && !self.describes
            && !self.summarizes
            && matches!(parsed, DfStatement::Statement(inner) if is_query(inner))
    }
}

/// Splits text at semicolons and parses each statement.
///
/// # Errors
/// [`EngineError::Statement`] with the place of the first thing that is not understood.
pub fn parse(text: &str) -> Result<Vec<Statement>> {
    parse_each(text)?.into_iter().map(|(_, statement)| statement).collect()
}

/// The same, statement by statement: each with the place where it begins, and parsed or not.
///
/// # Errors
/// [`EngineError::Statement`] if the text cannot be split, as after a quote that is not closed.
pub fn parse_each(text: &str) -> Result<Vec<(Position, Result<Statement>)>> {
    let (tokens, lists) = tokens_and_lists(text)?;
    let lists = Arc::new(lists);
    let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
    let lines: Vec<usize> = std::iter::once(0).chain(breaks.map(|(at, _)| at + 1)).collect();
    let mut statements = Vec::new();
    for part in tokens.split(|t| t.token == Token::SemiColon) {
        let blank = |t: &&TokenWithSpan| matches!(t.token, Token::Whitespace(_) | Token::EOF);
        if let Some(first) = part.iter().find(|t| !blank(t)) {
            let Location { line, column } = first.span.start;
            let statement = parse_one(text, &lines, part, &lists);
            statements.push((Position { line, column }, statement));
        }
    }
    Ok(statements)
}

/// The statements of a text as they are written, each with the comments before it and the byte at which it begins;
/// nothing is parsed.
///
/// # Errors
/// As [`parse_each`].
pub fn split(text: &str) -> Result<Vec<(usize, &str)>> {
    let (tokens, _) = tokens_and_lists(text)?;
    let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
    let lines: Vec<usize> = std::iter::once(0).chain(breaks.map(|(at, _)| at + 1)).collect();
    let is_blank = |t: &&TokenWithSpan| {
        use Whitespace::{Newline, Space, Tab};
        matches!(t.token, Token::Whitespace(Space | Newline | Tab))
    };
    let spans = tokens.split(|t| t.token == Token::SemiColon).filter_map(|part| {
        let span = span_of(text, &lines, part);
        let first = part.iter().find(|t| !is_blank(t)).filter(|_| !span.is_empty())?;
        Some(offset_of(text, &lines, first.span.start)..span.end)
    });
    Ok(spans.filter_map(|span| text.get(span.clone()).map(|part| (span.start, part))).collect())
}

/// One statement, whose long lists stay as they are: it becomes a part of others, which have lists of their own.
///
/// # Errors
/// As [`parse`].
pub(crate) fn parse_as_is(text: &str) -> Result<Statement> {
    let mut tokens = Vec::new();
    tokenize(text, Location { line: 1, column: 1 }, &mut tokens)?;
    let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
    let lines: Vec<usize> = std::iter::once(0).chain(breaks.map(|(at, _)| at + 1)).collect();
    parse_one(text, &lines, &tokens, &Arc::default())
}

fn parse_one(
    text: &str,
    lines: &[usize],
    tokens: &[TokenWithSpan],
    lists: &Arc<Vec<Arc<IdSet>>>,
) -> Result<Statement> {
    let mut tokens: Vec<TokenWithSpan> = tokens.to_vec();
    let written = text_of(text, lines, &tokens);
    let added = take_added(&mut tokens);
    let id_set = take_id_set_statement(&mut tokens)?;
    let warm = take_warm(&mut tokens)?;
    let copy_from = take_copy_from(&mut tokens)?;
    tokens = spell_copy_options(tokens)?;
    let prepare = take_prepare(&mut tokens)?;
    let mut view = take_view(&mut tokens)?;
    let describes = take_describe(&mut tokens);
    let summarizes = take_summarize(&mut tokens);
    if let Some(ViewStatement::Create { query, .. }) = &mut view {
        *query = text_of(text, lines, &tokens);
    }
    let (mut partitioned_by, mut clustered_by) = (Vec::new(), Vec::new());
    let (mut indexed_by, mut id_domains) = (Vec::new(), Vec::new());
    if starts_with(&tokens, &[Keyword::CREATE]) {
        let bare = |columns: Vec<(String, Option<String>)>| columns.into_iter().map(|(c, _)| c);
        let partition = ["partitioned", "partition"];
        partitioned_by = bare(take_columns(&mut tokens, &partition, "by", false)?).collect();
        let cluster = ["clustered", "cluster"];
        clustered_by = bare(take_columns(&mut tokens, &cluster, "by", false)?).collect();
        indexed_by = take_columns(&mut tokens, &["indexed"], "by", true)?;
        id_domains = take_columns(&mut tokens, &["id"], "domains", true)?;
    }
    if starts_with(&tokens, &[Keyword::ALTER, Keyword::TABLE]) {
        tokens = set_for_reset(tokens);
    }
    let tokens = as_meant(tokens)?;
    let parsed = parse_tokens(tokens.clone()).map_err(|error| at_end(error, &tokens))?;
    let (mut parsed, named) = parsed;
    let ignores_conflicts = take_on_conflict(&mut parsed)?;
    let is_query =
        matches!(&parsed, DfStatement::Statement(s) if matches!(**s, ast::Statement::Query(_)));
    if matches!(id_set, Some(IdSetStatement::Create { .. })) && !is_query {
        let message = "an id set is made of a query: … AS SELECT …";
        return Err(EngineError::statement(SqlState::SyntaxError, message));
    }
    if matches!(view, Some(ViewStatement::Create { .. })) && !is_query {
        let message = "a view is made of a query: … AS SELECT …";
        return Err(EngineError::statement(SqlState::SyntaxError, message));
    }
    if describes && !is_query {
        let message = "write DESCRIBE table or DESCRIBE SELECT …";
        return Err(EngineError::statement(SqlState::SyntaxError, message));
    }
    if summarizes && !is_query {
        let message = "write SUMMARIZE table or SUMMARIZE SELECT …";
        return Err(EngineError::statement(SqlState::SyntaxError, message));
    }
    let lists = Arc::clone(lists);
    Ok(Statement {
        text: written,
        parsed,
        tokens,
        lists,
        partitioned_by,
        clustered_by,
        indexed_by,
        id_domains,
        id_set,
        added,
        warm,
        prepare,
        view,
        describes,
        summarizes,
        named: named.into(),
        views: None,
        values: Vec::new(),
        ignores_conflicts,
        copy_from,
        is_returned: false,
    })
}

/// An error of a text that ends too early, for which the parser has no place: it is behind the last token.
fn at_end(error: EngineError, tokens: &[TokenWithSpan]) -> EngineError {
    let last = tokens.iter().rfind(|token| !is_space(token) && token.token != Token::EOF);
    match last {
        Some(last) if ends_early(error.code(), &error.message()) => {
            let Location { line, column } = last.span.end;
            error.at(Some(Position { line, column }))
        }
        _ => error,
    }
}

/// Tokens that the parser reads as they are meant.
fn as_meant(tokens: Vec<TokenWithSpan>) -> Result<Vec<TokenWithSpan>> {
    let mut tokens = number_parameters(name_id_sets(name_versions(tokens)?)?)?;
    name_words(&mut tokens);
    let tokens = separate_not_exists(name_operators(plain_words(tokens)));
    join_digits(select_before_from(bracket_grouping_keys(tokens)))
}

/// An expression that can stand within a statement, with nothing before it or behind.
///
/// # Errors
/// [`EngineError::Statement`] with the place of the first thing that is not understood.
pub(crate) fn parse_expression(text: &str) -> Result<ast::Expr> {
    let (tokens, _) = tokens_and_lists(text)?;
    let goes_on = |token: &&TokenWithSpan| {
        matches!(&token.token, Token::Whitespace(Whitespace::SingleLineComment { comment, .. })
            if !comment.ends_with('\n'))
    };
    if let Some(TokenWithSpan { span, .. }) = tokens.iter().find(goes_on) {
        let place = Position { line: span.start.line, column: span.start.column };
        let message = "a comment that no line ends takes in whatever follows";
        return Err(syntax(message, place).with_hint("write /* … */"));
    }
    let tokens = as_meant(tokens)?;
    statement_size::check(&tokens)?;
    let mut parser = empty_parser().with_tokens_with_locations(tokens);
    let parsed = parser.parse_expr().map_err(|e| parser_error(&e))?;
    match parser.peek_token() {
        TokenWithSpan { token: Token::EOF, .. } => Ok(parsed),
        rest => Err(unexpected(&rest)),
    }
}

fn parse_tokens(tokens: Vec<TokenWithSpan>) -> Result<(DfStatement, Vec<NamedBy>)> {
    statement_size::check(&tokens)?;
    let dialect = UplakeDialect;
    // The builder takes text; the parser inside is then given our tokens.
    let mut parser = DFParserBuilder::new("")
        .with_dialect(&dialect)
        .with_recursion_limit(RECURSION_LIMIT)
        .build()
        .map_err(EngineError::from)?;
    parser.parser =
        std::mem::replace(&mut parser.parser, empty_parser()).with_tokens_with_locations(tokens);
    let mut parsed = parser.parse_statement().map_err(EngineError::from)?;
    if parser.parser.peek_token_ref().token != Token::EOF {
        return Err(unexpected(&parser.parser.peek_token()));
    }
    let named = named_by(&parsed);
    rewrite(&mut parsed)?;
    Ok((parsed, named))
}

/// Nesting of expressions the parser follows; DataFusion's default of 50 is too low for generated SQL.
const RECURSION_LIMIT: usize = 300;

fn empty_parser<'a>() -> datafusion::sql::sqlparser::parser::Parser<'a> {
    datafusion::sql::sqlparser::parser::Parser::new(&UplakeDialect)
        .with_recursion_limit(RECURSION_LIMIT)
}

/// Quoted names that spell a column exactly are put in lower case, the form in which DataFusion sees columns
/// of mixed case (see `LakeTable`), so that `"UserId"`, `userid` and `UserID` are the same column.
///
/// `columns`: the exact names that are not lower case.
pub(crate) fn with_lower_case(
    statement: &Statement,
    columns: &HashSet<String>,
) -> Result<DfStatement> {
    let parsed = lowered(statement.tokens.clone(), columns)?;
    match &statement.views {
        Some(views) => expanded(parsed, views, |view| lowered(view.tokens.clone(), columns)),
        None => Ok(parsed),
    }
}

fn lowered(mut tokens: Vec<TokenWithSpan>, columns: &HashSet<String>) -> Result<DfStatement> {
    for token in &mut tokens {
        if let Token::Word(word) = &mut token.token
            && word.quote_style.is_some()
            && columns.contains(&word.value)
        {
            word.value = word.value.to_lowercase();
        }
    }
    let (mut parsed, _) = parse_tokens(tokens)?;
    take_on_conflict(&mut parsed)?;
    Ok(parsed)
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
    fn properties_are_reset_by_setting_them_to_null() {
        check("ALTER TABLE t RESET (a, B)", "ALTER TABLE t SET (a = NULL, B = NULL)");
        check("ALTER TABLE reset SET (a = 'x')", "ALTER TABLE reset SET (a = 'x')");
    }

    #[test]
    fn id_sets_and_match_are_functions() {
        check("SELECT a IN id SET \"V\"", "SELECT a IN (__id_set('V'))");
        check("SELECT a NOT IN ID SET Vips", "SELECT a NOT IN (__id_set('vips'))");
        check("SELECT match(a, 'x')", "SELECT match(a, 'x')");
        let of = |text: &str| parse(text).unwrap()[0].id_set.clone();
        let create = |replace| Some(IdSetStatement::Create { name: "vips".into(), replace });
        assert_eq!(of("CREATE ID SET Vips AS SELECT 1"), create(false));
        assert_eq!(
            of("create or replace id set vips as with a as (select 1) select * from a"),
            create(true)
        );
        let drop = IdSetStatement::Drop { name: "vips".into(), if_exists: true };
        assert_eq!(of("DROP ID SET IF EXISTS vips;"), Some(drop));
        assert_eq!(of("SHOW ID SETS"), Some(IdSetStatement::Show));
        assert_eq!(of("SELECT id, set FROM t"), None);
        for bad in
            ["CREATE ID SET AS SELECT 1", "DROP ID SET", "SHOW ID SETS x", "SELECT a IN ID SET"]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn long_lists_keep_the_places_of_what_follows() {
        let ids: Vec<String> = (0..150).map(|n| n.to_string()).collect();
        let list = format!("({})", ids.join(",\n"));
        let text = format!("SELECT 1;\nSELECT a IN {list}, b IN {list} AND 1 1");
        let position = parse(&text).unwrap_err().position();
        // The second list ends on line 2 + 149 + 149 with `149)`.
        assert_eq!(position, Some(Position { line: 300, column: 12 }));
        let text = text.strip_suffix(" 1").unwrap();
        let statement = &parse(text).unwrap()[1];
        let marks = "SELECT a IN (__id_set(0)), b IN (__id_set(0)) AND 1";
        assert_eq!(statement.parsed.to_string(), marks);
        assert_eq!(statement.lists.len(), 1);
        assert!(statement.text.ends_with("149) AND 1"), "{}", statement.text);
    }

    #[test]
    fn indexes_are_taken_out_of_create_table() {
        let text = "CREATE TABLE t (a INT, s TEXT) INDEXED BY (a, s words, s ngrams)";
        let words = |kind: &str| ("s".to_owned(), Some(kind.to_owned()));
        let expected = [("a".to_owned(), None), words("words"), words("ngrams")];
        assert_eq!(parse(text).unwrap()[0].indexed_by, expected);
    }

    #[test]
    fn id_domains_are_taken_out_of_create_table() {
        let text = "CREATE TABLE id (a TEXT) ID DOMAINS (a users, \"B\" \"Items\")";
        let pair = |column: &str, domain: &str| (column.to_owned(), Some(domain.to_owned()));
        let statement = &parse(text).unwrap()[0];
        assert_eq!(statement.id_domains, [pair("a", "users"), pair("B", "Items")]);
        assert_eq!(statement.parsed.to_string(), "CREATE TABLE id (a TEXT)");
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
    fn a_text_is_split_as_it_is_parsed() {
        let text = " SELECT ';ä' ; -- c;\n\nSELEKT 2 /* x */;; /* nothing */ ;";
        let parts = split(text).unwrap();
        let words: Vec<&str> = parts.iter().map(|(_, part)| *part).collect();
        assert_eq!(words, ["SELECT ';ä'", "-- c;\n\nSELEKT 2"]);
        assert!(parts.iter().all(|(at, part)| text[*at..].starts_with(part)));
        assert!(split("SELECT 'a").is_err());
        assert_eq!(parse("SELECT 1").unwrap()[0].command(), "SELECT");
        assert_eq!(parse("CREATE TABLE t (a INT)").unwrap()[0].command(), "CREATE TABLE");
    }

    #[test]
    fn errors_point_at_the_place_in_the_whole_text() {
        let position = |text: &str| match parse(text).unwrap_err() {
            EngineError::Statement(problem) => problem.position.map(|p| (p.line, p.column)),
            other => panic!("{other}"),
        };
        assert_eq!(position("SELECT 1;\nSELECT (1 FROM x"), Some((2, 11)));
        assert_eq!(position("SELECT 1 1"), Some((1, 10)));
        assert_eq!(position("CREATE TABLE t (a INT) PARTITIONED BY a"), Some((1, 24)));
    }
}
