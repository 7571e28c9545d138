//! RETURNING as the query that it is, of the rows that its statement writes.
//!
//! ```text
//! INSERT INTO t … RETURNING a, b + 1             SELECT a, b + 1 FROM t
//! UPDATE t SET … FROM s WHERE … RETURNING *      SELECT * FROM t CROSS JOIN s
//! DELETE FROM t USING s WHERE … RETURNING s.b    SELECT s.b FROM t CROSS JOIN s
//! ```
//!
//! # Not here
//! Its rows (`engine::returning`).

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{self, SelectItem};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

use crate::sql::row_changes::{cross_joined, target};

/// What a statement gives back.
pub(crate) fn items(parsed: &DfStatement) -> Option<&[SelectItem]> {
    let DfStatement::Statement(inner) = parsed else { return None };
    let items = match inner.as_ref() {
        ast::Statement::Insert(insert) => insert.returning.as_ref(),
        ast::Statement::Update(update) => update.returning.as_ref(),
        ast::Statement::Delete(delete) => delete.returning.as_ref(),
        _ => None,
    };
    items.map(Vec::as_slice)
}

/// The query of what a statement gives back; `None` without RETURNING.
pub(crate) fn query_of(parsed: &DfStatement) -> Option<DfStatement> {
    let items = items(parsed)?.to_vec();
    let DfStatement::Statement(inner) = parsed else { return None };
    select(items, Some(rows_of(inner)?))
}

/// The same without what it is asked of: what it reads beside that.
pub(crate) fn read_beside(parsed: &DfStatement) -> Option<DfStatement> {
    select(items(parsed)?.to_vec(), None)
}

/// The statement without RETURNING.
pub(crate) fn without(parsed: DfStatement) -> DfStatement {
    match parsed {
        DfStatement::Statement(mut inner) => {
            match inner.as_mut() {
                ast::Statement::Insert(insert) => insert.returning = None,
                ast::Statement::Update(update) => update.returning = None,
                ast::Statement::Delete(delete) => delete.returning = None,
                _ => {}
            }
            DfStatement::Statement(inner)
        }
        DfStatement::Explain(mut explain) => {
            explain.statement = Box::new(without(*explain.statement));
            DfStatement::Explain(explain)
        }
        other => other,
    }
}

/// The table that a statement changes, with what it changes rows by.
fn rows_of(statement: &ast::Statement) -> Option<ast::TableWithJoins> {
    match statement {
        ast::Statement::Insert(insert) => {
            let ast::TableObject::TableName(name) = &insert.table else { return None };
            let mut of_table = table_factor()?;
            if let ast::TableFactor::Table { name: named, .. } = &mut of_table {
                *named = name.clone();
            }
            Some(ast::TableWithJoins { relation: of_table, joins: Vec::new() })
        }
        ast::Statement::Update(update) => {
            let sources = match &update.from {
                Some(
                    ast::UpdateTableFromKind::BeforeSet(from)
                    | ast::UpdateTableFromKind::AfterSet(from),
                ) => from.clone(),
                None => Vec::new(),
            };
            Some(cross_joined(update.table.relation.clone(), sources))
        }
        ast::Statement::Delete(delete) => {
            let sources = delete.using.clone().unwrap_or_default();
            Some(cross_joined(target(delete)?.relation, sources))
        }
        _ => None,
    }
}

/// A table without all that may be said of one.
fn table_factor() -> Option<ast::TableFactor> {
    let ast::SetExpr::Select(select) = *template()?.body else { return None };
    select.from.into_iter().next().map(|table| table.relation)
}

fn select(projection: Vec<SelectItem>, from: Option<ast::TableWithJoins>) -> Option<DfStatement> {
    let mut query = template()?;
    let ast::SetExpr::Select(select) = query.body.as_mut() else { return None };
    select.projection = projection;
    select.from = from.into_iter().collect();
    Some(DfStatement::Statement(Box::new(ast::Statement::Query(query))))
}

fn template() -> Option<Box<ast::Query>> {
    match Parser::parse_sql(&GenericDialect, "SELECT 1 FROM t").ok()?.pop()? {
        ast::Statement::Query(query) => Some(query),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::statement::parse;

    #[test]
    fn what_is_given_back_is_a_query_of_the_rows() {
        for (text, expected) in [
            ("INSERT INTO t (a) VALUES (1) RETURNING a + 1 AS b", "SELECT a + 1 AS b FROM t"),
            ("INSERT INTO T SELECT 1 RETURNING t.*", "SELECT t.* FROM T"),
            ("UPDATE t SET a = 1 WHERE b RETURNING *", "SELECT * FROM t"),
            (
                "UPDATE t x SET a = 1 FROM s, u RETURNING u.a",
                "SELECT u.a FROM t x CROSS JOIN (s CROSS JOIN u)",
            ),
            ("DELETE FROM t WHERE a RETURNING a", "SELECT a FROM t"),
            (
                "DELETE FROM t USING s WHERE t.a = s.a RETURNING s.b",
                "SELECT s.b FROM t CROSS JOIN s",
            ),
        ] {
            let parsed = parse(text).unwrap().pop().unwrap().parsed;
            assert_eq!(query_of(&parsed).unwrap().to_string(), expected, "{text}");
            let before = text.split(" RETURNING").next().unwrap();
            assert_eq!(without(parsed).to_string(), before);
        }
        let parsed = |text: &str| parse(text).unwrap().pop().unwrap().parsed;
        assert!(query_of(&parsed("DELETE FROM t")).is_none());
        let beside =
            read_beside(&parsed("DELETE FROM t RETURNING (SELECT max(a) FROM u)")).unwrap();
        assert_eq!(beside.to_string(), "SELECT (SELECT max(a) FROM u)");
    }
}
