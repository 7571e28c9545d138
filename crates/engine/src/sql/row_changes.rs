//! Statements that change rows, in the forms that DataFusion plans.
//!
//! ```text
//! UPDATE t SET … FROM s WHERE c      MERGE INTO t USING s ON c WHEN MATCHED THEN UPDATE SET …
//! DELETE FROM t USING s WHERE c      MERGE INTO t USING s ON c WHEN MATCHED THEN DELETE, less its clause: see `as_deletion`
//! DELETE FROM t AS x WHERE c         UPDATE t AS x WHERE c, which sets nothing: see `as_deletion`
//! MERGE … WHEN NOT MATCHED           names without a table are the source's, the only row there; BY SOURCE: the table's
//! ```

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::logical_expr::{LogicalPlan, WriteOp};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    self, VisitMut, VisitorMut, helpers::attached_token::AttachedToken,
};

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

/// Is it a DELETE that is planned as an UPDATE or a MERGE?
pub(crate) fn is_deletion_by_other_name(statement: &DfStatement) -> bool {
    match statement {
        DfStatement::Statement(inner) => match inner.as_ref() {
            ast::Statement::Delete(delete) => {
                delete.using.is_some() || aliased_target(delete).is_some()
            }
            _ => false,
        },
        DfStatement::Explain(explain) => is_deletion_by_other_name(&explain.statement),
        _ => false,
    }
}

/// The plan of such a statement as that of the DELETE that it stands for. That of DELETE … USING is a MERGE of no clause,
/// which SQL has not: what matches is removed, once, however many rows of the source it matches.
pub(crate) fn as_deletion(plan: LogicalPlan) -> LogicalPlan {
    match plan {
        LogicalPlan::Explain(mut explain) => {
            explain.plan = Arc::new(as_deletion(Arc::unwrap_or_clone(explain.plan)));
            LogicalPlan::Explain(explain)
        }
        LogicalPlan::Analyze(mut analyze) => {
            analyze.input = Arc::new(as_deletion(Arc::unwrap_or_clone(analyze.input)));
            LogicalPlan::Analyze(analyze)
        }
        LogicalPlan::Dml(mut dml) => {
            match &mut dml.op {
                WriteOp::Update => {
                    if let LogicalPlan::Projection(columns) = dml.input.as_ref() {
                        dml.input = Arc::clone(&columns.input);
                    }
                    dml.op = WriteOp::Delete;
                }
                WriteOp::MergeInto(merge) => merge.clauses.clear(),
                _ => {}
            }
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
        ast::Statement::Merge(mut merge) => {
            let (table, source) = (name_of(&merge.table), name_of(&merge.source));
            for clause in &mut merge.clauses {
                use ast::MergeClauseKind::{
                    Matched, NotMatched, NotMatchedBySource, NotMatchedByTarget,
                };
                let side = match clause.clause_kind {
                    Matched => None,
                    NotMatched | NotMatchedByTarget => source.clone(),
                    NotMatchedBySource => table.clone(),
                };
                let Some(side) = side else { continue };
                let mut names = OfOneSide { side, queries: 0 };
                let _ = clause.predicate.visit(&mut names);
                match &mut clause.action {
                    ast::MergeAction::Insert(insert) => {
                        let _ = insert.kind.visit(&mut names);
                    }
                    ast::MergeAction::Update(update) => {
                        for assignment in &mut update.assignments {
                            let _ = assignment.value.visit(&mut names);
                        }
                    }
                    ast::MergeAction::Delete { .. } => {}
                }
            }
            ast::Statement::Merge(merge)
        }
        other => other,
    }
}

/// What columns of a relation are qualified by, where that is certain.
fn name_of(relation: &ast::TableFactor) -> Option<ast::Ident> {
    let (name, alias) = match relation {
        ast::TableFactor::Table { name, alias, .. } => (Some(name), alias),
        ast::TableFactor::Derived { alias, .. } => (None, alias),
        _ => return None,
    };
    if let Some(alias) = alias {
        return Some(alias.name.clone());
    }
    let [ast::ObjectNamePart::Identifier(name)] = name?.0.as_slice() else { return None };
    // Not a file, and not a table at a version.
    let is_word = name.value.chars().all(|c| c.is_alphanumeric() || c == '_');
    is_word.then(|| name.clone())
}

/// Names of columns without a table get one, but in subqueries, which have relations of their own.
struct OfOneSide {
    side: ast::Ident,
    queries: usize,
}

impl VisitorMut for OfOneSide {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut ast::Query) -> ControlFlow<()> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut ast::Query) -> ControlFlow<()> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut ast::Expr) -> ControlFlow<()> {
        if self.queries == 0
            && let ast::Expr::Identifier(name) = expr
        {
            *expr = ast::Expr::CompoundIdentifier(vec![self.side.clone(), name.clone()]);
        }
        ControlFlow::Continue(())
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
            (
                "MERGE INTO t USING s ON t.k = s.k WHEN MATCHED AND b THEN UPDATE SET a = b \
                 WHEN NOT MATCHED AND b > t.k THEN INSERT (k) VALUES (k + (SELECT max(k) FROM u)) \
                 WHEN NOT MATCHED BY SOURCE AND b THEN UPDATE SET a = b",
                "MERGE INTO t USING s ON t.k = s.k WHEN MATCHED AND b THEN UPDATE SET a = b \
                 WHEN NOT MATCHED AND s.b > t.k THEN INSERT (k) VALUES (s.k + (SELECT max(k) FROM u)) \
                 WHEN NOT MATCHED BY SOURCE AND t.b THEN UPDATE SET a = t.b",
            ),
            (
                "MERGE INTO t USING (SELECT 1 AS k) AS \"Y\" ON true WHEN NOT MATCHED THEN INSERT VALUES (k)",
                "MERGE INTO t USING (SELECT 1 AS k) AS \"Y\" ON true \
                 WHEN NOT MATCHED THEN INSERT VALUES (\"Y\".k)",
            ),
        ] {
            let parsed = parse(text).unwrap().pop().unwrap().parsed;
            assert_eq!(is_deletion_by_other_name(&parsed), text.contains("DELETE FROM t USING"));
            assert_eq!(plannable(parsed).to_string(), expected);
        }
        for text in ["DELETE FROM t AS x WHERE x.b", "EXPLAIN DELETE FROM t AS x WHERE x.b"] {
            let parsed = parse(text).unwrap().pop().unwrap().parsed;
            assert!(is_deletion_by_other_name(&parsed), "{text}");
        }
    }
}
