//! Statements that change rows, in the forms that DataFusion plans.
//!
//! ```text
//! UPDATE t SET … FROM s WHERE c      MERGE INTO t USING s ON c WHEN MATCHED THEN UPDATE SET …
//! DELETE FROM t USING s WHERE c      MERGE INTO t USING s ON c WHEN MATCHED THEN DELETE
//! DELETE FROM t AS x WHERE c         UPDATE t AS x WHERE c, which sets nothing: see `as_deletion`
//! ```

use datafusion::logical_expr::{LogicalPlan, WriteOp};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{self, helpers::attached_token::AttachedToken};

/// The statement as it is planned.
pub(crate) fn plannable(statement: DfStatement) -> DfStatement {
    match statement {
        DfStatement::Statement(inner) => DfStatement::Statement(Box::new(planned_as(*inner))),
        DfStatement::Explain(mut explain) => {
            explain.statement = Box::new(plannable(*explain.statement));
            DfStatement::Explain(explain)
        }
        other => other,
    }
}

/// Is it a DELETE that is planned as an UPDATE?
pub(crate) fn is_aliased_deletion(statement: &DfStatement) -> bool {
    let DfStatement::Statement(inner) = statement else { return false };
    matches!(inner.as_ref(), ast::Statement::Delete(delete) if aliased_target(delete).is_some())
}

/// The plan of such an UPDATE as that of the DELETE that it stands for.
pub(crate) fn as_deletion(plan: LogicalPlan) -> LogicalPlan {
    match plan {
        LogicalPlan::Dml(mut dml) if dml.op == WriteOp::Update => {
            if let LogicalPlan::Projection(columns) = dml.input.as_ref() {
                dml.input = std::sync::Arc::clone(&columns.input);
            }
            dml.op = WriteOp::Delete;
            LogicalPlan::Dml(dml)
        }
        other => other,
    }
}

fn planned_as(statement: ast::Statement) -> ast::Statement {
    match statement {
        ast::Statement::Update(mut update) if update.table.joins.is_empty() => {
            let sources = match update.from.take() {
                Some(
                    ast::UpdateTableFromKind::BeforeSet(from)
                    | ast::UpdateTableFromKind::AfterSet(from),
                ) => from,
                None => return ast::Statement::Update(update),
            };
            let action = ast::MergeAction::Update(ast::MergeUpdateExpr {
                update_token: AttachedToken::empty(),
                assignments: update.assignments,
                update_predicate: None,
                delete_predicate: None,
            });
            merge(update.table.relation, sources, update.selection, action)
        }
        ast::Statement::Delete(mut delete) => match (target(&delete), delete.using.take()) {
            (Some(table), Some(sources)) => {
                let action = ast::MergeAction::Delete { delete_token: AttachedToken::empty() };
                merge(table.relation, sources, delete.selection, action)
            }
            (_, using) => match aliased_target(&delete) {
                Some(table) => ast::Statement::Update(ast::Update {
                    update_token: AttachedToken::empty(),
                    optimizer_hints: Vec::new(),
                    table,
                    assignments: Vec::new(),
                    from: None,
                    selection: delete.selection,
                    returning: None,
                    output: None,
                    or: None,
                    order_by: Vec::new(),
                    limit: None,
                }),
                None => {
                    delete.using = using;
                    ast::Statement::Delete(delete)
                }
            },
        },
        other => other,
    }
}

/// The one table of a DELETE.
pub(crate) fn target(delete: &ast::Delete) -> Option<ast::TableWithJoins> {
    let (ast::FromTable::WithFromKeyword(tables) | ast::FromTable::WithoutKeyword(tables)) =
        &delete.from;
    match tables.as_slice() {
        [table] if table.joins.is_empty() => Some(table.clone()),
        _ => None,
    }
}

fn aliased_target(delete: &ast::Delete) -> Option<ast::TableWithJoins> {
    let is_aliased = |table: &ast::TableWithJoins| {
        matches!(&table.relation, ast::TableFactor::Table { alias: Some(_), .. })
    };
    target(delete).filter(|table| is_aliased(table) && delete.using.is_none())
}

fn merge(
    table: ast::TableFactor,
    sources: Vec<ast::TableWithJoins>,
    on: Option<ast::Expr>,
    action: ast::MergeAction,
) -> ast::Statement {
    let truth = ast::Expr::Value(ast::Value::Boolean(true).with_empty_span());
    ast::Statement::Merge(ast::Merge {
        merge_token: AttachedToken::empty(),
        optimizer_hints: Vec::new(),
        into: true,
        table,
        source: together(sources),
        on: Box::new(on.unwrap_or(truth)),
        clauses: vec![ast::MergeClause {
            when_token: AttachedToken::empty(),
            clause_kind: ast::MergeClauseKind::Matched,
            predicate: None,
            action,
        }],
        output: None,
    })
}

/// A table and what its rows are changed by.
pub(crate) fn cross_joined(
    table: ast::TableFactor,
    sources: Vec<ast::TableWithJoins>,
) -> ast::TableWithJoins {
    let joins = match sources.is_empty() {
        true => Vec::new(),
        false => vec![cross(together(sources))],
    };
    ast::TableWithJoins { relation: table, joins }
}

fn cross(relation: ast::TableFactor) -> ast::Join {
    let join_operator = ast::JoinOperator::CrossJoin(ast::JoinConstraint::None);
    ast::Join { relation, global: false, join_operator }
}

/// Several of FROM as one.
fn together(sources: Vec<ast::TableWithJoins>) -> ast::TableFactor {
    let mut sources = sources.into_iter().map(|source| match source.joins.is_empty() {
        true => source.relation,
        false => nested(source),
    });
    let relation = sources.next().expect("the parser asks for one after FROM and USING");
    let joins: Vec<ast::Join> = sources.map(cross).collect();
    match joins.is_empty() {
        true => relation,
        false => nested(ast::TableWithJoins { relation, joins }),
    }
}

fn nested(joined: ast::TableWithJoins) -> ast::TableFactor {
    ast::TableFactor::NestedJoin { table_with_joins: Box::new(joined), alias: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::statement::parse;

    #[test]
    fn statements_become_those_that_are_planned() {
        for (text, expected) in [
            (
                "UPDATE t SET a = s.b FROM s WHERE t.k = s.k",
                "MERGE INTO t USING s ON t.k = s.k WHEN MATCHED THEN UPDATE SET a = s.b",
            ),
            (
                "UPDATE t x SET a = 1 FROM s JOIN u ON s.k = u.k, v",
                "MERGE INTO t x USING ((s JOIN u ON s.k = u.k) CROSS JOIN v) ON true \
                 WHEN MATCHED THEN UPDATE SET a = 1",
            ),
            (
                "DELETE FROM t USING s WHERE t.k = s.k",
                "MERGE INTO t USING s ON t.k = s.k WHEN MATCHED THEN DELETE",
            ),
            ("UPDATE t SET a = 1 WHERE b", "UPDATE t SET a = 1 WHERE b"),
            ("DELETE FROM t WHERE b", "DELETE FROM t WHERE b"),
        ] {
            let parsed = parse(text).unwrap().pop().unwrap().parsed;
            assert!(!is_aliased_deletion(&parsed), "{text}");
            assert_eq!(plannable(parsed).to_string(), expected);
        }
        let parsed = parse("DELETE FROM t AS x WHERE x.b").unwrap().pop().unwrap().parsed;
        assert!(is_aliased_deletion(&parsed));
    }
}
