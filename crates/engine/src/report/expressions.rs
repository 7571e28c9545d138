//! The SQL of a definition, expression by expression.
//!
//! Each is read alone before anything is computed, so that an error points into what somebody wrote and
//! not into the statements that are made of it, and nothing is right only because a bracket of ours
//! closes it. When a query fails all the same, the expression or the metric that it fails for is looked for.

use std::ops::ControlFlow;

use datafusion::arrow::datatypes::DataType::{Boolean, Null};
use datafusion::sql::sqlparser::ast::{self, Expr, Visit, Visitor};
use uplake_experiment::expression::{Expression, Role};
use uplake_experiment::query::MomentsQuery;

use super::only_statement;
use super::sql::as_timestamp;
use crate::base::error::{EngineError, Position, Problem, Result, refuse};
use crate::base::foreign_errors::ends_early;
use crate::base::sql_state::SqlState;
use crate::engine::session::Session;
use crate::sql::statement::parse_expression;

/// Characters of an expression that are shown from a place on.
const NEAR: usize = 40;

impl Session {
    /// Is each expression one by itself, about one row?
    ///
    /// # Errors
    /// [`EngineError::Report`] with the section, the key and the place within the expression.
    pub(super) fn check_expressions(&self, query: &MomentsQuery) -> Result<()> {
        let state = self.context().state();
        let is_aggregate = |name: &str| {
            state.aggregate_functions().contains_key(name)
                && !state.scalar_functions().contains_key(name)
        };
        for expression in &query.expressions {
            let checked = parse_expression(&expression.sql).and_then(|parsed| {
                match parsed.visit(&mut OfOneRow { queries: 0, is_aggregate: &is_aggregate }) {
                    ControlFlow::Continue(()) => Ok(()),
                    ControlFlow::Break(error) => Err(error),
                }
            });
            checked.map_err(|error| in_expression(expression, error))?;
        }
        Ok(())
    }

    /// The error of a query, with the expression or the metric that it comes from, if one can be found.
    pub(super) async fn explained(&self, query: &MomentsQuery, error: EngineError) -> EngineError {
        match error {
            EngineError::Statement(problem) => match self.unplanned(query).await {
                Some(error) => error,
                None => EngineError::Report(
                    problem.within("an expression of the experiment's definition cannot be used"),
                ),
            },
            // A disk, a network or nodes, or somebody who stopped it: no expression is to blame, and none is asked again.
            EngineError::Execution(problem)
                if matches!(problem.code, SqlState::IoError | SqlState::QueryCanceled) =>
            {
                EngineError::Execution(problem)
            }
            EngineError::Execution(problem) => match self.unplanned(query).await {
                Some(error) => error,
                None => self.failing(query, problem).await,
            },
            other => other,
        }
    }

    /// The error of the first expression that cannot be planned by itself.
    async fn unplanned(&self, query: &MomentsQuery) -> Option<EngineError> {
        for expression in &query.expressions {
            let Err(error) = self.plan_alone(expression).await else { continue };
            if !matches!(error, EngineError::Statement { .. } | EngineError::Execution(_)) {
                continue;
            }
            // Nothing can be planned over a table that is not there.
            let sql = "1".to_owned();
            let table =
                Expression { key: "table".into(), sql, role: Role::Any, ..expression.clone() };
            return Some(match self.plan_alone(&table).await {
                Ok(()) => in_expression(expression, error),
                Err(of_table) => {
                    let text = of_table.to_string();
                    in_expression(&table, EngineError::statement(of_table.code(), text))
                }
            });
        }
        None
    }

    async fn plan_alone(&self, expression: &Expression) -> Result<()> {
        let Expression { sql, table, role, .. } = expression;
        // On lines of its own, so that places are those within it.
        let text = match role {
            Role::Number => format!("SELECT CAST((\n{sql}\n) AS DOUBLE) AS v FROM {table}"),
            Role::Text => format!("SELECT CAST((\n{sql}\n) AS VARCHAR) AS v FROM {table}"),
            Role::Time => {
                format!("SELECT {} AS v FROM {table}", as_timestamp(&format!("(\n{sql}\n)")))
            }
            Role::Condition | Role::Any => format!("SELECT (\n{sql}\n) AS v FROM {table}"),
        };
        let planned = async {
            let plan = self.plan(&only_statement(&text)?).await?;
            let is_condition = *role == Role::Condition;
            if is_condition && !matches!(plan.schema().field(0).data_type(), Boolean | Null) {
                return refuse!(DatatypeMismatch, "it is neither true nor false");
            }
            self.optimized(&self.context().state(), plan).await
        };
        planned.await.map(|_| ()).map_err(|error| match error {
            EngineError::Statement(problem) => {
                let within = |at: Position| Position { line: at.line.saturating_sub(1), ..at };
                let lines = sql.lines().count() as u64;
                let position = problem.position.map(within);
                let position = position.filter(|at| (1..=lines).contains(&at.line));
                EngineError::Statement(Problem { position, ..problem })
            }
            other => other,
        })
    }

    /// What is wrong if a query fails while rows are read.
    async fn fails(&self, query: &MomentsQuery) -> Option<Problem> {
        match self.moments_by_sql(query).await {
            Err(EngineError::Execution(problem)) => Some(problem),
            _ => None,
        }
    }

    /// The error of the metric that fails while rows are read. Half of the suspects are asked at a time.
    async fn failing(&self, query: &MomentsQuery, problem: Problem) -> EngineError {
        if let Some(problem) = self.fails(&query.of_metrics(&[])).await {
            return EngineError::Execution(problem.within("the exposures"));
        }
        for path in &query.paths {
            let alone = MomentsQuery { paths: vec![path.clone()], ..query.of_metrics(&[]) };
            if let Some(problem) = self.fails(&alone).await {
                return EngineError::Execution(problem.within(&format!("path `{}`", path.name)));
            }
        }
        let mut suspects: Vec<usize> = (0..query.metrics.len()).collect();
        while suspects.len() > 1 {
            let others = suspects.split_off(suspects.len() / 2);
            if self.fails(&query.of_metrics(&suspects)).await.is_none() {
                suspects = others;
            }
        }
        let own = match suspects.as_slice() {
            [metric] => {
                let problem = self.fails(&query.of_metrics(&suspects)).await;
                problem.map(|problem| (&query.metrics[*metric], problem))
            }
            _ => None,
        };
        EngineError::Execution(match own {
            Some((name, problem)) => problem.within(&format!("metric `{name}`")),
            None => problem,
        })
    }
}

/// What an error of an expression means to who wrote it.
fn in_expression(expression: &Expression, error: EngineError) -> EngineError {
    let Expression { place, key, sql, .. } = expression;
    let (EngineError::Statement(problem) | EngineError::Execution(problem)) = error else {
        return error;
    };
    let position = problem.position;
    let at = match position.and_then(|position| Some((position, rest_of(sql, position)?))) {
        Some((Position { line, column }, rest)) => {
            let line = if sql.trim_end().contains('\n') {
                format!("line {line}, ")
            } else {
                String::new()
            };
            let near: String = rest.chars().take(NEAR).collect();
            match near.trim_end() {
                "" => " (at its end)".to_owned(),
                near => format!(" ({line}character {column}, at `{near}`)"),
            }
        }
        None if ends_early(problem.code, &problem.message) => " (at its end)".to_owned(),
        None => String::new(),
    };
    let message = format!("{place}: `{key}` cannot be used: {problem}{at}");
    EngineError::report(problem.code, message)
}

/// The rest of a place's line.
fn rest_of(sql: &str, Position { line, column }: Position) -> Option<&str> {
    let line = sql.lines().nth(line.checked_sub(1)? as usize)?;
    let mut places = line.char_indices().map(|(at, _)| at).chain([line.len()]);
    line.get(places.nth(column.checked_sub(1)? as usize)?..)
}

/// Refuses functions that look at several rows; a subquery may have them.
struct OfOneRow<'a> {
    queries: usize,
    is_aggregate: &'a dyn Fn(&str) -> bool,
}

impl Visitor for OfOneRow<'_> {
    type Break = EngineError;

    fn pre_visit_query(&mut self, _: &ast::Query) -> ControlFlow<EngineError> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &ast::Query) -> ControlFlow<EngineError> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<EngineError> {
        let Expr::Function(call) = expr else { return ControlFlow::Continue(()) };
        let Some(name) = call.name.0.last().and_then(|part| part.as_ident()) else {
            return ControlFlow::Continue(());
        };
        let kind = match call.over.is_some() {
            true => "a window function",
            false if (self.is_aggregate)(&name.value.to_lowercase()) => "an aggregate function",
            false => return ControlFlow::Continue(()),
        };
        if self.queries > 0 {
            return ControlFlow::Continue(());
        }
        let start = name.span.start;
        let position =
            (start.line > 0).then_some(Position { line: start.line, column: start.column });
        let what =
            format!("`{name}` is {kind}, and an expression of a definition is about one row");
        ControlFlow::Break(
            EngineError::statement(SqlState::GroupingError, what)
                .with_hint(
                    "the metric's type says how rows are added up, and a subquery may look at others",
                )
                .at(position),
        )
    }
}
