//! Conditions that are kept for a table, as row policies are: whether one can be asked of each of its rows.

use std::ops::ControlFlow;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::TreeNode;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::sql::sqlparser::ast::{self, Visit, Visitor};

use crate::base::error::{EngineError, Position, Problem, Result, refuse};
use crate::base::sql_state::SqlState;
use crate::engine::session::Session;
use crate::sql::id_set::MARK;
use crate::sql::statement::{parse, parse_expression};

impl Session {
    /// Is it a condition of one row of a table: true or false by its columns, without subqueries, aggregates, sets
    /// of ids, parameters, and functions that answer otherwise each time?
    ///
    /// # Errors
    /// [`EngineError::Statement`] with the place within the condition.
    pub async fn check_condition(&self, table: &str, condition: &str) -> Result<()> {
        if let ControlFlow::Break(error) = parse_expression(condition)?.visit(&mut OfOneRow) {
            return Err(error);
        }
        // On lines of its own, so that places are those within it.
        let table = table.replace('"', "\"\"");
        let text = format!("SELECT (\n{condition}\n) AS v FROM \"{table}\"");
        let planned = async {
            let statement = parse(&text)?.pop().ok_or_else(|| EngineError::bug("no condition"))?;
            self.plan(&statement).await
        };
        let plan = planned.await.map_err(|error| {
            let EngineError::Statement(problem) = error else { return error };
            let lines = condition.lines().count() as u64;
            let within =
                problem.position.map(|at| Position { line: at.line.wrapping_sub(1), ..at });
            let position = within.filter(|at| (1..=lines).contains(&at.line));
            EngineError::Statement(Problem { position, ..problem })
        })?;
        let LogicalPlan::Projection(projection) = &plan else {
            return Err(EngineError::unsupported("a condition is about the columns of one row"));
        };
        let is_of_table = |plan: &LogicalPlan| {
            matches!(plan, LogicalPlan::TableScan(_) | LogicalPlan::SubqueryAlias(_))
        };
        if projection.input.exists(|node| Ok(!is_of_table(node)))? {
            return Err(EngineError::statement(
                SqlState::GroupingError,
                "a condition is about one row: it has no aggregates and no window functions",
            ));
        }
        for expr in &projection.expr {
            if expr.is_volatile() {
                let what = "a condition has no functions that answer otherwise each time";
                return Err(EngineError::unsupported(what));
            }
            if expr.exists(|part| Ok(matches!(part, Expr::Placeholder(_))))? {
                return refuse!(UndefinedParameter, "a condition has no parameters");
            }
        }
        match plan.schema().field(0).data_type() {
            DataType::Boolean => Ok(()),
            other => {
                let what = format!("a condition is true or false; this is of type {other}");
                Err(EngineError::statement(SqlState::DatatypeMismatch, what))
            }
        }
    }
}

/// Refuses what looks beyond the row.
struct OfOneRow;

impl Visitor for OfOneRow {
    type Break = EngineError;

    fn pre_visit_query(&mut self, _: &ast::Query) -> ControlFlow<EngineError> {
        let what = "a condition has no subqueries";
        ControlFlow::Break(
            EngineError::unsupported(what).with_hint("keep what it asks for as a column"),
        )
    }

    fn pre_visit_expr(&mut self, expr: &ast::Expr) -> ControlFlow<EngineError> {
        let ast::Expr::Function(call) = expr else { return ControlFlow::Continue(()) };
        if !call.name.to_string().eq_ignore_ascii_case(MARK) {
            return ControlFlow::Continue(());
        }
        let what = "a condition has no sets of ids and no lists of 100 literals or more";
        ControlFlow::Break(EngineError::unsupported(what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::session::for_tests;

    #[test]
    fn a_condition_is_about_one_row_of_its_table() {
        let folder = tempfile::tempdir().unwrap();
        let session = for_tests(folder.path(), true);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let table = "CREATE TABLE \"T\" AS SELECT 1 AS n, 'DE' AS \"Country\", true AS is_open";
        runtime.block_on(session.query(table)).unwrap();
        let check = |text: &str| runtime.block_on(session.check_condition("T", text));
        for good in ["n > 1", "country = 'DE' AND is_open", "is_open", "\"Country\" IN ('a', 'b')"]
        {
            check(good).unwrap_or_else(|error| panic!("{good}: {error}"));
        }
        let many: Vec<String> = (0..200).map(|n| n.to_string()).collect();
        for (bad, code, place) in [
            ("n >", "42601", None),
            ("n > 1) OR (true", "42601", Some((1, 6))),
            ("n > 1 -- x", "42601", Some((1, 7))),
            ("n >\n nothing", "42703", Some((2, 2))),
            ("n", "42804", None),
            ("n > (SELECT 1)", "0A000", None),
            ("EXISTS (SELECT 1)", "0A000", None),
            ("n IN ID SET vips", "0A000", None),
            (&format!("n IN ({})", many.join(", ")), "0A000", None),
            ("random() > 0.5", "0A000", None),
            ("sum(n) > 1", "42803", None),
            ("row_number() OVER () > 1", "42803", None),
            ("n > $1", "42P02", None),
        ] {
            let error = check(bad).err().unwrap_or_else(|| panic!("{bad} is let through"));
            assert_eq!(error.code().as_str(), code, "{bad}: {error}");
            if let Some((line, column)) = place {
                assert_eq!(error.position(), Some(Position { line, column }), "{bad}: {error}");
            }
        }
    }
}
