//! `count(t.*)` where an outer join may have no row of t.
//!
//! In PostgreSQL it counts the rows that t has; DataFusion reads it as `count(*)`, which counts the others, too. It is
//! refused there; elsewhere both are the same.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, Expr, FunctionArg, FunctionArgExpr, JoinOperator, TableFactor, TableWithJoins, Visit,
    Visitor,
};

use crate::base::error::EngineError;
use crate::sql::words::spelled;

/// # Errors
/// [`EngineError::Statement`] for a `count(t.*)` of a t that may have no row.
pub(crate) fn refuse_whole_rows(select: &ast::Select) -> ControlFlow<EngineError> {
    let mut nullable = Vec::new();
    for from in &select.from {
        nullable_tables(from, &mut nullable);
    }
    if nullable.is_empty() {
        return ControlFlow::Continue(());
    }
    let mut counts = Counts { nullable, depth: 0 };
    select.projection.visit(&mut counts)?;
    select.having.visit(&mut counts)
}

/// Adds the tables that may have no row in what is joined here; returns all of them.
fn nullable_tables(from: &TableWithJoins, nullable: &mut Vec<String>) -> Vec<String> {
    use JoinOperator::{FullOuter, Left, LeftOuter, Right, RightOuter};
    let mut tables = tables_of(&from.relation, nullable);
    for join in &from.joins {
        let joined = tables_of(&join.relation, nullable);
        if matches!(join.join_operator, Left(_) | LeftOuter(_) | FullOuter(_)) {
            nullable.extend_from_slice(&joined);
        }
        if matches!(join.join_operator, Right(_) | RightOuter(_) | FullOuter(_)) {
            nullable.extend_from_slice(&tables);
        }
        tables.extend(joined);
    }
    tables
}

fn tables_of(table: &TableFactor, nullable: &mut Vec<String>) -> Vec<String> {
    match table {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. } => vec![spelled(&alias.name)],
        TableFactor::Table { name, .. } => {
            name.0.last().and_then(|part| part.as_ident()).map(spelled).into_iter().collect()
        }
        TableFactor::NestedJoin { table_with_joins, .. } => {
            nullable_tables(table_with_joins, nullable)
        }
        _ => Vec::new(),
    }
}

struct Counts {
    nullable: Vec<String>,
    /// Subqueries around this place, which have tables of their own.
    depth: usize,
}

impl Visitor for Counts {
    type Break = EngineError;

    fn pre_visit_query(&mut self, _: &ast::Query) -> ControlFlow<EngineError> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &ast::Query) -> ControlFlow<EngineError> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<EngineError> {
        let Expr::Function(call) = expr else { return ControlFlow::Continue(()) };
        let ast::FunctionArguments::List(list) = &call.args else {
            return ControlFlow::Continue(());
        };
        for arg in &list.args {
            if let FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(name)) = arg
                && let Some(table) = name.0.last().and_then(|part| part.as_ident()).map(spelled)
                && self.depth == 0
                && self.nullable.contains(&table)
            {
                let what = format!("{}({table}.*) of an outer join is not supported", call.name);
                let hint = format!("count a column of {table} that is never NULL");
                return ControlFlow::Break(EngineError::unsupported(what).with_hint(hint));
            }
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use crate::sql::statement::parse;

    #[test]
    fn rows_that_a_side_may_lack_are_not_counted_as_if_they_were_there() {
        for refused in [
            "SELECT count(u.*) FROM t LEFT JOIN u ON t.a = u.a",
            "SELECT 1 FROM t RIGHT OUTER JOIN s.\"U\" ON t.a = \"U\".a HAVING count(T.*) > 1",
            "SELECT t.a, count(v.*) FROM t FULL JOIN (SELECT 1) v ON true GROUP BY t.a",
            "SELECT count(v.*) FROM t, (u LEFT JOIN v ON true)",
            "SELECT count(u.*) FILTER (WHERE true) OVER () FROM t LEFT JOIN u ON true JOIN v ON true",
        ] {
            let message = parse(refused).unwrap_err().to_string();
            assert!(message.contains("of an outer join is not supported"), "{refused}: {message}");
        }
        for allowed in [
            "SELECT count(t.*), count(*) FROM t LEFT JOIN u ON t.a = u.a",
            "SELECT count(u.*) FROM t JOIN u ON t.a = u.a",
            "SELECT (SELECT count(u.*) FROM u) FROM t LEFT JOIN u ON t.a = u.a",
            "SELECT u.* FROM t LEFT JOIN u ON t.a = u.a",
        ] {
            assert!(parse(allowed).is_ok(), "{allowed}");
        }
    }
}
