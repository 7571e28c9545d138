//! Statements as they are meant, where the parser or DataFusion's planner reads them otherwise.
//!
//! What can be said in another way is rewritten, on tokens where the parser is at fault and on its tree
//! where the planner is; what cannot be is refused, because a wrong answer is worse.
//!
//! # Invariants
//! - A statement that is read rightly as it is stays as it is.
//! - Tokens keep their places, so that errors still point at the text.

use std::ops::ControlFlow;

use datafusion::sql::parser::{CopyToSource, Statement as DfStatement};
use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, Expr, SelectItem, TableFactor, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

use crate::base::error::{EngineError, Result};
use crate::base::sql_state::SqlState;
use crate::sql::calls::{in_time_zone, meant};
use crate::sql::copies::number_copies;
use crate::sql::copy_formats;
use crate::sql::exact_casts::keep_exact;
use crate::sql::grouping_keys::write_keys;
use crate::sql::interval_text::in_units;
use crate::sql::like_escapes::with_backslashes;
use crate::sql::named_windows::{NameWindows, windows_of};
use crate::sql::order_by_all::order_by_all;
use crate::sql::plain_forms::{
    has_no_column, have_subquery, refuse_generated, refuse_ordinality, refuse_recursion,
    write_plainly,
};
use crate::sql::quantified::compared_with_any;
use crate::sql::similar_to::as_regular_expression;
use crate::sql::statement_size::balance;
use crate::sql::token_rewrite::{DISTINCT_FROM, NOT_DISTINCT_FROM};
use crate::sql::using_joins::{MergedKeys, Place, Qualified, name_merged_columns};
use crate::sql::whole_rows::refuse_whole_rows;

/// `SELECT DISTINCT a + 1 … ORDER BY a + 1` is sorted by its first column; DataFusion looks for a, which is not there
/// any more.
fn sort_by_places(select: &ast::Select, order: &mut ast::OrderBy) {
    let (Some(ast::Distinct::Distinct), ast::OrderByKind::Expressions(keys)) =
        (&select.distinct, &mut order.kind)
    else {
        return;
    };
    let exprs = select.projection.iter().map(|item| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    });
    // How many columns a `*` is nobody knows here.
    let Some(exprs) = exprs.collect::<Option<Vec<_>>>() else { return };
    for key in keys {
        let is_computed =
            !matches!(key.expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_));
        let place = exprs.iter().position(|expr| **expr == key.expr);
        if let (true, Some(place)) = (is_computed, place) {
            key.expr = Expr::value(ast::Value::Number((place + 1).to_string(), false));
        }
    }
}

/// Rewrites what DataFusion 55 would answer wrongly, and refuses what cannot be rewritten.
///
/// # Errors
/// [`EngineError::Statement`] for what is refused.
pub(crate) fn rewrite(statement: &mut DfStatement) -> Result<()> {
    let visited = match statement {
        DfStatement::Statement(inner) => inner.as_mut().visit(&mut Rewriter::default()),
        DfStatement::CopyTo(copy) => {
            copy_formats::by_name(copy)?;
            let CopyToSource::Query(query) = &mut copy.source else { return Ok(()) };
            query.as_mut().visit(&mut Rewriter::default())
        }
        DfStatement::Explain(explain) => return rewrite(&mut explain.statement),
        _ => return Ok(()),
    };
    if let ControlFlow::Break(error) = visited {
        return Err(error);
    }
    let has_no_column = |statement: &ast::Statement| match statement {
        ast::Statement::Query(query) => has_no_column(query),
        _ => false,
    };
    match statement {
        DfStatement::Statement(inner) if has_no_column(inner.as_ref()) => {
            Err(EngineError::statement(SqlState::SyntaxError, "SELECT has no column")
                .with_hint("write SELECT * or name some"))
        }
        _ => Ok(()),
    }
}

/// A query that is being read.
#[derive(Default)]
struct Query {
    place: Place,
    /// What its SELECT merges.
    keys: Option<MergedKeys>,
}

#[derive(Default)]
struct Rewriter {
    /// Joins that have a name for their merged columns so far.
    named: usize,
    /// Subqueries around this place that see the columns outside them.
    subqueries: usize,
    /// The queries around this place.
    queries: Vec<Query>,
    /// Comparisons with a row of a subquery so far: each is written three times or more.
    compared: usize,
}

/// Comparisons by [`Rewriter::with_any`] in a statement.
const MOST_COMPARED: usize = 200;

impl Rewriter {
    /// The comparison with some row of a subquery, which is written several times.
    fn with_any(
        &mut self,
        left: &Expr,
        op: &BinaryOperator,
        right: &Expr,
    ) -> ControlFlow<EngineError, Expr> {
        self.compared += 1;
        if self.compared > MOST_COMPARED {
            let what = "too many ANY and ALL of subqueries, or too deep within one another";
            let error = EngineError::statement(SqlState::ProgramLimitExceeded, what);
            return ControlFlow::Break(error.with_hint("compare with min and max of the subquery"));
        }
        let query = match right {
            Expr::Subquery(query) => Some(query),
            _ => None,
        };
        match query.and_then(|query| compared_with_any(left, op, query)) {
            Some(expr) => ControlFlow::Continue(expr),
            None => ControlFlow::Break(EngineError::unsupported(format!(
                "`{op}` is no comparison for ANY and ALL"
            ))),
        }
    }
}

impl VisitorMut for Rewriter {
    type Break = EngineError;

    fn pre_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<EngineError> {
        if matches_by_name(&query.body) {
            let error = EngineError::unsupported("EXCEPT and INTERSECT BY NAME are not supported");
            return ControlFlow::Break(error.with_hint("name the columns in one order"));
        }
        number_copies(&mut query.body);
        limit_to_first(query);
        order_by_all(query);
        refuse_recursion(query)?;
        if matches!(query.body.as_ref(), ast::SetExpr::Values(values) if have_subquery(values)) {
            SelectValues.pre_visit_query(query)?;
        }
        // The windows of a SELECT are known in its query's ORDER BY, too.
        if let (ast::SetExpr::Select(select), Some(order)) =
            (query.body.as_ref(), &mut query.order_by)
        {
            let windows = match windows_of(&select.named_window) {
                Ok(windows) => windows,
                Err(error) => return ControlFlow::Break(error),
            };
            order.visit(&mut NameWindows { windows, depth: 0 })?;
            sort_by_places(select, order);
        }
        let place = Place { within: self.subqueries > 0, ordered: Qualified::of(&query.order_by) };
        self.queries.push(Query { place, keys: None });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<EngineError> {
        if let Some(Query { keys: Some(keys), .. }) = self.queries.pop()
            && matches!(query.body.as_ref(), ast::SetExpr::Select(_))
        {
            keys.name_in(&mut query.order_by);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut ast::Select) -> ControlFlow<EngineError> {
        let is_ilike = |item: &SelectItem| match item {
            SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) => {
                options.opt_ilike.is_some()
            }
            _ => false,
        };
        if select.projection.iter().any(is_ilike) {
            let error = EngineError::unsupported("SELECT * ILIKE is not supported");
            return ControlFlow::Break(error.with_hint("name the columns"));
        }
        let windows = match windows_of(&select.named_window) {
            Ok(windows) => windows,
            Err(error) => return ControlFlow::Break(error),
        };
        if let Err(error) = write_keys(select) {
            return ControlFlow::Break(error);
        }
        let mut names = NameWindows { windows, depth: 0 };
        select.projection.visit(&mut names)?;
        select.qualify.visit(&mut names)?;
        if let Some(query) = self.queries.last_mut() {
            query.keys = name_merged_columns(select, &query.place, &mut self.named);
        }
        refuse_whole_rows(select)?;
        write_plainly(select)
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<EngineError> {
        if matches!(table, TableFactor::Table { sample: Some(_), .. }) {
            let error = EngineError::unsupported("TABLESAMPLE is not supported");
            return ControlFlow::Break(error.with_hint("write WHERE random() < 0.1"));
        }
        self.subqueries += usize::from(is_lateral(table));
        refuse_ordinality(table)
    }

    fn post_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<EngineError> {
        self.subqueries -= usize::from(is_lateral(table));
        ControlFlow::Continue(())
    }

    fn pre_visit_statement(&mut self, statement: &mut ast::Statement) -> ControlFlow<EngineError> {
        refuse_generated(statement)?;
        // DataFusion takes every VALUES below these for rows of their table.
        let source = match statement {
            ast::Statement::Insert(insert) => insert.source.as_mut(),
            ast::Statement::CreateTable(create) if !create.columns.is_empty() => {
                create.query.as_mut()
            }
            _ => None,
        };
        if let Some(source) = source
            && !matches!(source.body.as_ref(), ast::SetExpr::Values(_))
        {
            return source.visit(&mut SelectValues);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<EngineError> {
        balance(expr);
        if let Err(error) = keep_exact(expr) {
            return ControlFlow::Break(error);
        }
        match expr {
            // Matched as a regular expression anywhere in the text.
            Expr::SimilarTo { negated, expr: text, pattern, escape_char } => {
                match as_regular_expression(*negated, text, pattern, escape_char.as_ref()) {
                    Ok(found) => *expr = found,
                    Err(error) => return ControlFlow::Break(error),
                }
            }
            // Rewritten to a correlated EXISTS that confuses tables of one name.
            Expr::AnyOp { left, compare_op, right, .. }
                if matches!(right.as_ref(), Expr::Subquery(_)) =>
            {
                *expr = match compare_op {
                    BinaryOperator::Eq => in_subquery(left, right, false),
                    other => self.with_any(left, other, right)?,
                };
            }
            // What it would be is false where it is NULL.
            Expr::AnyOp { left, compare_op, right, .. } if !has_no_null(right) => {
                if let Some(compare_op) = opposite(compare_op) {
                    let (left, right) = (left.clone(), right.clone());
                    let all = Box::new(Expr::AllOp { left, compare_op, right });
                    *expr = Expr::UnaryOp { op: ast::UnaryOperator::Not, expr: all };
                }
            }
            Expr::AllOp { left, compare_op, right }
                if matches!(right.as_ref(), Expr::Subquery(_)) =>
            {
                *expr = match opposite(compare_op) {
                    Some(BinaryOperator::Eq) => in_subquery(left, right, true),
                    other => {
                        let any =
                            self.with_any(left, other.as_ref().unwrap_or(compare_op), right)?;
                        Expr::UnaryOp { op: ast::UnaryOperator::Not, expr: Box::new(any) }
                    }
                };
            }
            Expr::BinaryOp { left, op: BinaryOperator::Custom(name), right } => {
                let (left, right) = (left.clone(), right.clone());
                match name.as_str() {
                    DISTINCT_FROM => *expr = Expr::IsDistinctFrom(left, right),
                    NOT_DISTINCT_FROM => *expr = Expr::IsNotDistinctFrom(left, right),
                    _ => {}
                }
            }
            Expr::Function(call) => match meant(call) {
                Ok(Some(plain)) => *expr = plain,
                Ok(None) => {}
                Err(error) => return ControlFlow::Break(error),
            },
            Expr::AtTimeZone { timestamp, time_zone } => {
                let of = |part: &mut Box<Expr>| {
                    std::mem::replace(part.as_mut(), Expr::value(ast::Value::Null))
                };
                *expr = in_time_zone(of(time_zone), of(timestamp));
            }
            Expr::Interval(interval) => read_clock(interval),
            // The parser would put the sign before the text, which is that of its first unit alone.
            Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr: negated }
                if matches!(negated.as_ref(), Expr::Interval(_)) =>
            {
                let interval = std::mem::replace(negated.as_mut(), Expr::value(ast::Value::Null));
                **negated = Expr::Nested(Box::new(interval));
            }
            Expr::Like { pattern, escape_char, .. } | Expr::ILike { pattern, escape_char, .. } => {
                if let Err(error) = with_backslashes(pattern, escape_char) {
                    return ControlFlow::Break(error);
                }
            }
            // In which order rows are does not matter to them, and DataFusion cannot join what is sorted.
            Expr::Exists { subquery, .. } | Expr::InSubquery { subquery, .. }
                if subquery.limit_clause.is_none() && subquery.fetch.is_none() =>
            {
                leave_unsorted(subquery);
            }
            _ => {}
        }
        self.subqueries += usize::from(is_subquery(expr));
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<EngineError> {
        self.subqueries -= usize::from(is_subquery(expr));
        ControlFlow::Continue(())
    }
}

/// `FETCH FIRST 3 ROWS ONLY` is `LIMIT 3`.
fn limit_to_first(query: &mut ast::Query) {
    let first = match &query.fetch {
        Some(ast::Fetch { with_ties: false, percent: false, quantity }) => quantity.clone(),
        _ => return,
    };
    let offset = match &mut query.limit_clause {
        None => None,
        Some(ast::LimitClause::LimitOffset { limit: None, offset, limit_by })
            if limit_by.is_empty() =>
        {
            offset.take()
        }
        Some(_) => return,
    };
    let first = first.unwrap_or_else(|| Expr::value(ast::Value::Number("1".into(), false)));
    let limit_by = Vec::new();
    query.limit_clause =
        Some(ast::LimitClause::LimitOffset { limit: Some(first), offset, limit_by });
    query.fetch = None;
}

fn leave_unsorted(query: &mut ast::Query) {
    let is_plain = match query.body.as_ref() {
        // DISTINCT ON keeps the first rows.
        ast::SetExpr::Select(select) => !matches!(select.distinct, Some(ast::Distinct::On(_))),
        _ => true,
    };
    if is_plain {
        query.order_by = None;
    }
}

/// `INTERVAL '1 day 02:00'` in units, where the parser of DataFusion knows no clock.
fn read_clock(interval: &mut ast::Interval) {
    let Expr::Value(value) = interval.value.as_mut() else { return };
    if let (ast::Value::SingleQuotedString(text), None) =
        (&mut value.value, &interval.leading_field)
        && let Some(units) = in_units(text)
    {
        *text = units;
    }
}

fn is_lateral(table: &TableFactor) -> bool {
    matches!(table, TableFactor::Derived { lateral: true, .. })
}

fn is_subquery(expr: &Expr) -> bool {
    matches!(expr, Expr::Subquery(_) | Expr::InSubquery { .. } | Expr::Exists { .. })
}

/// `VALUES (1, 2), (3, 4)` as SELECT 1 AS column1, 2 AS column2 UNION ALL SELECT 3, 4.
struct SelectValues;

impl VisitorMut for SelectValues {
    type Break = EngineError;

    fn pre_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<EngineError> {
        let values = match query.body.as_mut() {
            ast::SetExpr::Values(values) if !values.rows.is_empty() => values,
            _ => return ControlFlow::Continue(()),
        };
        if values.rows.len() > MOST_ROWS {
            let what = format!(
                "VALUES within a SELECT of INSERT or CREATE TABLE, or with subqueries, has {MOST_ROWS} rows at most"
            );
            let error = EngineError::statement(SqlState::ProgramLimitExceeded, what);
            return ControlFlow::Break(error.with_hint("insert them into a table first"));
        }
        let Some(template) = selects_nothing() else { return ControlFlow::Continue(()) };
        let rows = std::mem::take(&mut values.rows).into_iter().map(|row| {
            let names = (1..).map(|number| ast::Ident::new(format!("column{number}")));
            let item = |(expr, alias)| SelectItem::ExprWithAlias { expr, alias };
            let projection = row.content.into_iter().zip(names).map(item).collect();
            ast::SetExpr::Select(Box::new(ast::Select { projection, ..template.clone() }))
        });
        *query.body = union_all(rows.collect());
        ControlFlow::Continue(())
    }
}

/// Rows of one VALUES that become a SELECT each.
const MOST_ROWS: usize = 1000;

fn selects_nothing() -> Option<ast::Select> {
    let parsed = Parser::parse_sql(&GenericDialect {}, "SELECT 1").ok()?.pop()?;
    let ast::Statement::Query(query) = parsed else { return None };
    match *query.body {
        ast::SetExpr::Select(select) => Some(*select),
        _ => None,
    }
}

/// All of them, in halves of halves: a row by row union of many would be deep.
fn union_all(mut rows: Vec<ast::SetExpr>) -> ast::SetExpr {
    let half = rows.split_off(rows.len().div_ceil(2));
    match rows.pop() {
        Some(only) if rows.is_empty() && half.is_empty() => only,
        last => {
            rows.extend(last);
            ast::SetExpr::SetOperation {
                op: ast::SetOperator::Union,
                set_quantifier: ast::SetQuantifier::All,
                left: Box::new(union_all(rows)),
                right: Box::new(union_all(half)),
            }
        }
    }
}

/// Planned as if columns were in one order.
fn matches_by_name(body: &ast::SetExpr) -> bool {
    use ast::SetQuantifier::{AllByName, ByName, DistinctByName};
    match body {
        ast::SetExpr::SetOperation { op, set_quantifier, left, right } => {
            let by_name = matches!(set_quantifier, AllByName | ByName | DistinctByName);
            (*op != ast::SetOperator::Union && by_name)
                || matches_by_name(left)
                || matches_by_name(right)
        }
        _ => false,
    }
}

/// Is it a list of literals, none of which is NULL?
fn has_no_null(list: &Expr) -> bool {
    matches!(list, Expr::Array(list) if list.elem.iter().all(is_value))
}

/// Is it a literal, and not NULL?
fn is_value(expr: &Expr) -> bool {
    match expr {
        Expr::Value(value) => value.value != ast::Value::Null,
        Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr } => is_value(expr),
        Expr::TypedString(_) => true,
        _ => false,
    }
}

/// The comparison that is true where this one is false.
fn opposite(op: &BinaryOperator) -> Option<BinaryOperator> {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    Some(match op {
        Eq => NotEq,
        NotEq => Eq,
        Lt => GtEq,
        LtEq => Gt,
        Gt => LtEq,
        GtEq => Lt,
        _ => return None,
    })
}

fn in_subquery(left: &Expr, right: &Expr, negated: bool) -> Expr {
    match right {
        Expr::Subquery(subquery) => {
            Expr::InSubquery { expr: Box::new(left.clone()), subquery: subquery.clone(), negated }
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::statement::parse;

    fn check(text: &str, expected: &str) {
        let statements = parse(text).unwrap();
        assert_eq!(statements[0].parsed.to_string(), expected, "{text}");
    }

    #[test]
    fn what_is_wrong_is_rewritten_in_copy_too() {
        let any = "SELECT 1 FROM t WHERE a = ANY (SELECT b FROM u)";
        let within = "SELECT 1 FROM t WHERE a IN (SELECT b FROM u)";
        check(any, within);
        let copied = parse(&format!("COPY ({any}) TO 'x.csv'")).unwrap()[0].parsed.to_string();
        assert!(copied.contains(within), "{copied}");
    }

    #[test]
    fn not_comes_last_before_exists_too() {
        let asked = "EXISTS (SELECT (1) FROM u)";
        for after in ["IS NULL", "= true", "<> (false)", "IN (true)"] {
            check(
                &format!("SELECT 1 FROM t WHERE NOT {asked} {after}"),
                &format!("SELECT 1 FROM t WHERE NOT ({asked}) {after}"),
            );
        }
        for after in ["", " AND a", " OR NOT b", " GROUP BY a"] {
            let plain = format!("SELECT 1 FROM t WHERE NOT {asked}{after}");
            check(&plain, &plain);
        }
    }

    /// The expression with all of its brackets.
    fn shape(expr: &Expr) -> String {
        match expr {
            Expr::BinaryOp { left, op, right } => {
                format!("({} {op} {})", shape(left), shape(right))
            }
            Expr::UnaryOp { op, expr } => format!("({op} {})", shape(expr)),
            Expr::IsDistinctFrom(left, right) => format!("({} !== {})", shape(left), shape(right)),
            Expr::IsNotDistinctFrom(left, right) => {
                format!("({} === {})", shape(left), shape(right))
            }
            other => other.to_string(),
        }
    }

    #[test]
    fn distinct_from_ends_before_and_or_or() {
        for (text, expected) in [
            ("a IS DISTINCT FROM b AND c", "((a !== b) AND c)"),
            ("p AND a IS DISTINCT FROM b OR c", "((p AND (a !== b)) OR c)"),
            ("NOT a IS NOT DISTINCT FROM b AND c", "((NOT (a === b)) AND c)"),
            ("a = 1 IS DISTINCT FROM b = c", "((a = 1) !== (b = c))"),
            (
                "a is distinct from b + 1 AND c IS  DISTINCT FROM d OR e",
                "(((a !== (b + 1)) AND (c !== d)) OR e)",
            ),
        ] {
            let statement = &parse(&format!("SELECT {text} x FROM t")).unwrap()[0];
            let DfStatement::Statement(inner) = &statement.parsed else { panic!("{text}") };
            let ast::Statement::Query(query) = inner.as_ref() else { panic!("{text}") };
            let ast::SetExpr::Select(select) = query.body.as_ref() else { panic!("{text}") };
            let SelectItem::ExprWithAlias { expr, .. } = &select.projection[0] else {
                panic!("{text}")
            };
            assert_eq!(shape(expr), expected, "{text}");
        }
        let message = parse("SELECT DISTINCT FROM t").unwrap_err().to_string();
        assert!(message.starts_with("SELECT has no column"), "{message}");
    }

    #[test]
    fn top_is_a_column_and_a_table_alone_is_all_of_it() {
        check("SELECT top FROM t", "SELECT top FROM t");
        check("SELECT 1, TOP, t.top FROM t", "SELECT 1, TOP, t.top FROM t");
        check("FROM t", "SELECT * FROM t");
        check("SELECT 1 FROM (FROM t)", "SELECT 1 FROM (SELECT * FROM t)");
    }

    #[test]
    fn from_may_come_first() {
        for (text, expected) in [
            ("FROM t WHERE a = 1 ORDER BY b", "SELECT * FROM t WHERE a = 1 ORDER BY b"),
            (
                "FROM t UNION ALL FROM u WHERE b",
                "SELECT * FROM t UNION ALL SELECT * FROM u WHERE b",
            ),
            (
                "WITH s AS (FROM t WHERE a) FROM s WHERE b",
                "WITH s AS (SELECT * FROM t WHERE a) SELECT * FROM s WHERE b",
            ),
            (
                "SELECT a IN (FROM t WHERE a = 1), EXISTS (FROM u WHERE b) FROM v",
                "SELECT a IN (SELECT * FROM t WHERE a = 1), EXISTS (SELECT * FROM u WHERE b) FROM v",
            ),
            ("FROM (SELECT a FROM t) WHERE a", "SELECT * FROM (SELECT a FROM t) WHERE a"),
            ("INSERT INTO t FROM u WHERE a", "INSERT INTO t SELECT * FROM u WHERE a"),
            ("INSERT INTO t (a) FROM u WHERE a", "INSERT INTO t (a) SELECT * FROM u WHERE a"),
            ("EXPLAIN FROM t WHERE a", "EXPLAIN SELECT * FROM t WHERE a"),
            ("FROM t SELECT a WHERE b", "FROM t SELECT a WHERE b"),
            (
                "SELECT extract(YEAR FROM a) FROM t WHERE b IS DISTINCT FROM c",
                "SELECT EXTRACT(YEAR FROM a) FROM t WHERE b IS DISTINCT FROM c",
            ),
            ("DELETE FROM t WHERE a", "DELETE FROM t WHERE a"),
            (
                "WITH s AS (SELECT 1 AS a) SELECT f(a) FROM s",
                "WITH s AS (SELECT 1 AS a) SELECT f(a) FROM s",
            ),
        ] {
            check(text, expected);
        }
    }

    #[test]
    fn named_windows_are_written_out() {
        check(
            "SELECT sum(a) OVER (w ORDER BY b) FROM t WINDOW w AS (PARTITION BY c)",
            "SELECT sum(a) OVER (PARTITION BY c ORDER BY b) FROM t WINDOW w AS (PARTITION BY c)",
        );
        check(
            "SELECT sum(a) OVER v FROM t WINDOW w AS (ORDER BY c), v AS (w)",
            "SELECT sum(a) OVER (ORDER BY c) FROM t WINDOW w AS (ORDER BY c), v AS (w)",
        );
        check(
            "SELECT a FROM t WINDOW w AS (ORDER BY c) ORDER BY rank() OVER w",
            "SELECT a FROM t WINDOW w AS (ORDER BY c) ORDER BY rank() OVER (ORDER BY c)",
        );
        for wrong in [
            "SELECT sum(a) OVER (w ORDER BY b) FROM t WINDOW w AS (ORDER BY c)",
            "SELECT sum(a) OVER (w PARTITION BY b) FROM t WINDOW w AS (ORDER BY c)",
            "SELECT sum(a) OVER v FROM t WINDOW w AS (ORDER BY c)",
            "SELECT sum(a) OVER (w) FROM t WINDOW w AS (ROWS 1 PRECEDING)",
            "SELECT (SELECT sum(a) OVER w FROM u WINDOW v AS ()) FROM t WINDOW w AS (ORDER BY c)",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
