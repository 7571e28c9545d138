//! Forms of SQL that DataFusion reads as something else, written as forms that it reads rightly.
//!
//! | form | read as | becomes |
//! |---|---|---|
//! | `GROUP BY (a, b)` | one struct | `GROUP BY a, b` |
//! | `DISTINCT ON (1)` | the number 1 | the first column of the list |
//! | `* REPLACE (e AS b)` without such a `b` | `*` | the same, and a condition with `b`: an error |
//! | `1_000` | `1 AS _000` | `1000` |
//! | VALUES with a subquery | an error | SELECT … UNION ALL SELECT … (`rewrite`) |
//!
//! What is ignored without a word is refused: WITH ORDINALITY, generated columns, LIMIT within a recursive
//! query; and a recursive query that reads itself in a subquery, too.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, ColumnOption, Expr, GroupByExpr, SelectItem, Statement, TableFactor,
    Visit, Visitor,
};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::base::error::{EngineError, Position, Result};
use crate::base::sql_state::SqlState;

/// `1_000` is one number, as in PostgreSQL 16.
///
/// # Errors
/// [`EngineError::Statement`] for other words that begin with `_` at the end of a number.
pub(crate) fn join_digits(tokens: Vec<TokenWithSpan>) -> Result<Vec<TokenWithSpan>> {
    let goes_on = |token: &TokenWithSpan| match &token.token {
        Token::Word(word) => word.quote_style.is_none() && word.value.starts_with('_'),
        _ => false,
    };
    let adjoin = |pair: &[TokenWithSpan]| pair[0].span.end == pair[1].span.start;
    let begins = |pair: &[TokenWithSpan]| {
        matches!(pair[0].token, Token::Number(..)) && goes_on(&pair[1]) && adjoin(pair)
    };
    if !tokens.windows(2).any(begins) {
        return Ok(tokens);
    }
    let mut joined: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        let mut token = tokens[at].clone();
        at += 1;
        if tokens.get(at - 1..=at).is_some_and(begins) {
            let mut text = token.to_string();
            while let Some(next) = tokens.get(at).filter(|next| {
                next.span.start == token.span.end
                    && matches!(next.token, Token::Word(_) | Token::Number(..) | Token::Period)
            }) {
                text.push_str(&next.to_string());
                token.span = token.span.union(&next.span);
                at += 1;
            }
            token.token = Token::Number(without_marks(&text, &token)?, false);
        }
        joined.push(token);
    }
    Ok(joined)
}

/// The digits without the marks that stand between two of them.
fn without_marks(text: &str, token: &TokenWithSpan) -> Result<String> {
    let is_digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_digit);
    let bytes = text.as_bytes();
    let mark = |at: usize| {
        bytes[at] == b'_' && at > 0 && is_digit(bytes.get(at - 1)) && is_digit(bytes.get(at + 1))
    };
    let digits: String = text.char_indices().filter(|(at, _)| !mark(*at)).map(|(_, c)| c).collect();
    if digits.contains('_') || digits.parse::<f64>().is_err() {
        let start = token.span.start;
        let place = Position { line: start.line, column: start.column };
        let message = format!("`{text}` is no number");
        return Err(EngineError::statement(SqlState::SyntaxError, message).at(Some(place)));
    }
    Ok(digits)
}

/// `GROUP BY (a, b)`, `DISTINCT ON (1)`, and names of `* REPLACE` that are no columns.
pub(crate) fn write_plainly(select: &mut ast::Select) -> ControlFlow<EngineError> {
    if let GroupByExpr::Expressions(groups, _) = &mut select.group_by {
        let flat = std::mem::take(groups).into_iter().flat_map(|group| match group {
            Expr::Tuple(parts) if !parts.is_empty() => parts,
            other => vec![other],
        });
        *groups = flat.collect();
    }
    for key in distinct_on(&mut select.distinct) {
        let Some(place) = place(key) else { continue };
        let named = place.checked_sub(1).and_then(|at| select.projection.get(at));
        *key = match named {
            Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) => {
                expr.clone()
            }
            _ => {
                let message = format!(
                    "DISTINCT ON ({place}) is the column at that place, which has no name here"
                );
                return ControlFlow::Break(EngineError::unsupported(message));
            }
        };
    }
    for column in replaced(select) {
        let is_null = Expr::IsNull(Box::new(column));
        let always = Expr::value(ast::Value::Boolean(true));
        let exists = nested(binary(is_null, BinaryOperator::Or, always));
        select.selection = Some(match select.selection.take() {
            Some(condition) => binary(nested(condition), BinaryOperator::And, exists),
            None => exists,
        });
    }
    ControlFlow::Continue(())
}

fn distinct_on(distinct: &mut Option<ast::Distinct>) -> &mut [Expr] {
    match distinct {
        Some(ast::Distinct::On(keys)) => keys,
        _ => &mut [],
    }
}

/// A whole number, which stands for a column of the list.
fn place(key: &Expr) -> Option<usize> {
    match key {
        Expr::Value(value) => match &value.value {
            ast::Value::Number(digits, _) => digits.parse().ok(),
            _ => None,
        },
        _ => None,
    }
}

/// The columns that `* REPLACE` names, where it is plain which tables' they are.
fn replaced(select: &mut ast::Select) -> Vec<Expr> {
    let only_table = select.from.len() == 1 && select.from.iter().all(|from| from.joins.is_empty());
    let mut columns = Vec::new();
    for item in &mut select.projection {
        let (table, options) = match item {
            SelectItem::Wildcard(options) => (None, options),
            SelectItem::QualifiedWildcard(
                ast::SelectItemQualifiedWildcardKind::ObjectName(table),
                options,
            ) => (Some(table.clone()), options),
            _ => continue,
        };
        for one in options.opt_replace.iter_mut().flat_map(|replace| &mut replace.items) {
            // The planner compares it as it is written.
            if one.column_name.quote_style.is_none() {
                one.column_name.value = one.column_name.value.to_lowercase();
            }
            let column = one.column_name.clone();
            let parts = table.iter().flat_map(|table| &table.0);
            let mut parts: Vec<_> = parts.filter_map(|part| part.as_ident().cloned()).collect();
            match table {
                Some(_) => {
                    parts.push(column);
                    columns.push(Expr::CompoundIdentifier(parts));
                }
                None if only_table => columns.push(Expr::Identifier(column)),
                None => {}
            }
        }
    }
    columns
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

fn nested(expr: Expr) -> Expr {
    Expr::Nested(Box::new(expr))
}

/// A table whose clauses would be ignored.
pub(crate) fn refuse_ordinality(table: &TableFactor) -> ControlFlow<EngineError> {
    match table {
        TableFactor::Table { with_ordinality: true, .. }
        | TableFactor::UNNEST { with_ordinality: true, .. } => ControlFlow::Break(
            EngineError::unsupported("WITH ORDINALITY is not supported")
                .with_hint("number the rows with row_number()"),
        ),
        _ => ControlFlow::Continue(()),
    }
}

/// Columns that would be plain ones.
pub(crate) fn refuse_generated(statement: &Statement) -> ControlFlow<EngineError> {
    let Statement::CreateTable(table) = statement else { return ControlFlow::Continue(()) };
    let is_generated = |column: &&ast::ColumnDef| {
        column.options.iter().any(|option| matches!(option.option, ColumnOption::Generated { .. }))
    };
    match table.columns.iter().find(is_generated) {
        Some(column) => ControlFlow::Break(
            EngineError::unsupported("generated columns are not supported")
                .with_hint(format!("compute `{}` in the statements that insert", column.name)),
        ),
        None => ControlFlow::Continue(()),
    }
}

/// SELECT without a column, the rows of which nobody can be given.
pub(crate) fn has_no_column(query: &ast::Query) -> bool {
    matches!(query.body.as_ref(), ast::SetExpr::Select(select) if select.projection.is_empty())
}

/// A recursive query with a LIMIT, which would be ignored, or that reads itself in a subquery beside FROM: the
/// rows of the last round are given out once.
pub(crate) fn refuse_recursion(query: &ast::Query) -> ControlFlow<EngineError> {
    let Some(with) = query.with.as_ref().filter(|with| with.recursive) else {
        return ControlFlow::Continue(());
    };
    for cte in &with.cte_tables {
        let ast::SetExpr::SetOperation { right, .. } = cte.query.body.as_ref() else { continue };
        let mut names = Names { name: &cte.alias.name.value, depth: 0, found: 0, within: 0 };
        let _ = right.visit(&mut names);
        if names.found > 0 && (cte.query.limit_clause.is_some() || cte.query.fetch.is_some()) {
            let name = &cte.alias.name;
            let error = EngineError::unsupported(format!(
                "LIMIT within the recursive query `{name}` is not supported"
            ));
            return ControlFlow::Break(
                error.with_hint("end it with a condition, or limit what reads it"),
            );
        }
        if names.within > 0 && names.found > names.within {
            let name = &cte.alias.name;
            let error = EngineError::unsupported(format!(
                "the recursive query `{name}` reads itself in a subquery"
            ));
            return ControlFlow::Break(error.with_hint("join it in FROM instead"));
        }
    }
    ControlFlow::Continue(())
}

/// How often a table is named, and how often of these within subqueries of expressions.
struct Names<'a> {
    name: &'a str,
    depth: usize,
    found: usize,
    within: usize,
}

impl Names<'_> {
    fn has_subquery(expr: &Expr) -> bool {
        matches!(expr, Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. })
    }
}

impl Visitor for Names<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        self.depth += usize::from(Self::has_subquery(expr));
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        self.depth -= usize::from(Self::has_subquery(expr));
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &ast::ObjectName) -> ControlFlow<()> {
        if relation.to_string().eq_ignore_ascii_case(self.name) {
            self.found += 1;
            self.within += usize::from(self.depth > 0);
        }
        ControlFlow::Continue(())
    }
}

/// Has one of the rows a subquery?
pub(crate) fn have_subquery(values: &ast::Values) -> bool {
    let is_subquery = |expr: &Expr| match expr {
        Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    ast::visit_expressions(values, is_subquery).is_break()
}

#[cfg(test)]
mod tests {
    use crate::sql::statement::parse;

    fn check(text: &str, expected: &str) {
        let statements = parse(text).unwrap();
        assert_eq!(statements[0].parsed.to_string(), expected, "{text}");
    }

    #[test]
    fn what_is_read_as_something_else_is_written_plainly() {
        check("SELECT a FROM t GROUP BY (a, b), c", "SELECT a FROM t GROUP BY a, b, c");
        check(
            "SELECT * REPLACE (1 AS B) FROM t WHERE a OR c",
            "SELECT * REPLACE (1 AS b) FROM t WHERE (a OR c) AND (b IS NULL OR true)",
        );
        check(
            "SELECT u.* REPLACE (1 AS b) FROM t, u",
            "SELECT u.* REPLACE (1 AS b) FROM t, u WHERE (u.b IS NULL OR true)",
        );
        check(
            "SELECT DISTINCT ON (2, c) a, b AS d FROM t",
            "SELECT DISTINCT ON (b, c) a, b AS d FROM t",
        );
        check(
            "SELECT * FROM (VALUES (1), ((SELECT 2))) v",
            "SELECT * FROM (SELECT 1 AS column1 UNION ALL SELECT (SELECT 2) AS column1) v",
        );
    }

    #[test]
    fn marks_between_digits_are_no_names() {
        check("SELECT 1_000_000 + 2", "SELECT 1000000 + 2");
        check("SELECT 1_0.2_5, 1_0e1", "SELECT 10.25, 10e1");
        check("SELECT 1 _0, a_1, 1 AS _2", "SELECT 1 AS _0, a_1, 1 AS _2");
        for wrong in ["SELECT 1_", "SELECT 1__0", "SELECT 1_0_", "SELECT 1_a"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_would_be_ignored_is_refused() {
        for refused in [
            "SELECT * FROM range(3) WITH ORDINALITY",
            "SELECT * FROM unnest([1, 2]) WITH ORDINALITY",
            "CREATE TABLE t (a int, b int GENERATED ALWAYS AS (a + 1) STORED)",
            "SELECT FROM t",
            "SELECT DISTINCT ON (2) a FROM t",
            "WITH RECURSIVE t AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM t LIMIT 9) SELECT * FROM t",
            "WITH RECURSIVE t AS (SELECT 1 AS x UNION ALL SELECT (SELECT x + 1 FROM t) FROM t) SELECT * FROM t",
        ] {
            assert!(parse(refused).is_err(), "{refused}");
        }
        for allowed in [
            "SELECT 1 WHERE EXISTS (SELECT FROM t)",
            "WITH RECURSIVE t AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM t WHERE x IN (SELECT 2)) SELECT * FROM t",
        ] {
            assert!(parse(allowed).is_ok(), "{allowed}");
        }
    }
}
