//! Long chains of UNION are planned a query at a time.
//!
//! DataFusion looks at each link of a chain for the places in the text of all that is to the left of it: 1,500 links take
//! 2 s, in one step that nobody can stop. Here each query is planned alone, and joined to those before it.
//!
//! # Invariants
//! - The plan is the one that DataFusion makes of the whole, but for names of columns that no query outside sees. What
//!   cannot be planned so is planned as a whole, and its error is that of the whole.

use datafusion::common::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    Query, SetExpr, SetOperator, SetQuantifier, Statement as Ast, Values,
};

use crate::base::stop;

/// Shorter ones are planned as they are.
const LONG_CHAIN: usize = 64;

/// Queries of a chain that associates to the left, each with how it is joined to those before it.
pub(crate) struct Chain {
    /// A query without its body.
    frame: Query,
    first: SetExpr,
    /// Whether rows that are alike stay, and the query.
    rest: Vec<(bool, SetExpr)>,
}

impl Chain {
    /// The long chain that a statement is, and nothing else.
    pub fn of(parsed: &DfStatement) -> Option<Self> {
        let DfStatement::Statement(inner) = parsed else { return None };
        let Ast::Query(query) = inner.as_ref() else { return None };
        let Query { with: None, body, order_by: None, limit_clause: None, fetch: None, .. } =
            query.as_ref()
        else {
            return None;
        };
        let is_plain = query.locks.is_empty()
            && query.for_clause.is_none()
            && query.settings.is_none()
            && query.format_clause.is_none()
            && query.pipe_operators.is_empty();
        let (mut rest, mut link) = (Vec::new(), body.as_ref());
        while let SetExpr::SetOperation { op: SetOperator::Union, set_quantifier, left, right } =
            link
        {
            let keeps = match set_quantifier {
                SetQuantifier::All => true,
                SetQuantifier::None | SetQuantifier::Distinct => false,
                _ => break,
            };
            rest.push((keeps, right.as_ref()));
            link = left.as_ref();
        }
        if !is_plain || rest.len() < LONG_CHAIN {
            return None;
        }
        let values = Values { explicit_row: false, value_keyword: false, rows: Vec::new() };
        let frame = Query {
            with: None,
            body: Box::new(SetExpr::Values(values)),
            order_by: None,
            limit_clause: None,
            fetch: None,
            locks: Vec::new(),
            for_clause: None,
            settings: None,
            format_clause: None,
            pipe_operators: Vec::new(),
        };
        let rest = rest.into_iter().rev().map(|(keeps, query)| (keeps, query.clone())).collect();
        Some(Self { frame, first: link.clone(), rest })
    }

    /// Its plan; `None` if one of its queries cannot be planned alone.
    ///
    /// # Errors
    /// That of who stops the statement.
    pub async fn plan(
        self,
        state: &SessionState,
    ) -> crate::base::error::Result<Option<LogicalPlan>> {
        let Self { frame, first, rest } = self;
        let alone = |body: SetExpr| {
            let query = Query { body: Box::new(body), ..frame.clone() };
            DfStatement::Statement(Box::new(Ast::Query(Box::new(query))))
        };
        let Ok(mut plan) = state.statement_to_plan(alone(first)).await else { return Ok(None) };
        for (keeps, query) in rest {
            stop::check()?;
            let Ok(next) = state.statement_to_plan(alone(query)).await else { return Ok(None) };
            let Ok(joined) = joined(plan, next, keeps) else { return Ok(None) };
            let Some(joined) = joined else { return Ok(None) };
            plan = joined;
        }
        Ok(Some(plan))
    }
}

fn joined(left: LogicalPlan, right: LogicalPlan, keeps: bool) -> Result<Option<LogicalPlan>> {
    if left.schema().fields().len() != right.schema().fields().len() {
        return Ok(None);
    }
    let left = LogicalPlanBuilder::from(left);
    let union = if keeps { left.union(right)? } else { left.union_distinct(right)? };
    union.build().map(Some)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::util::pretty::pretty_format_batches;

    use super::*;
    use crate::engine::session::for_tests;
    use crate::sql::statement::parse;

    /// A chain of these queries, over and over.
    fn chain(queries: &[&str], by: &[&str]) -> String {
        let mut text = queries[0].to_owned();
        for at in 1..=LONG_CHAIN + 10 {
            text += &format!(" {} {}", by[at % by.len()], queries[at % queries.len()]);
        }
        text
    }

    #[test]
    fn a_chain_is_what_datafusion_makes_of_the_whole() {
        let folder = tempfile::tempdir().unwrap();
        let session = for_tests(folder.path(), true);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime
            .block_on(session.query(
                "CREATE TABLE t (n BIGINT, x TEXT); INSERT INTO t VALUES (1, 'a'), (2, 'b')",
            ))
            .unwrap();
        for (queries, by) in [
            (
                &["SELECT n, x FROM t", "SELECT n + 1, x || 'y' FROM t WHERE n > 1"][..],
                &["UNION ALL"][..],
            ),
            // Types that become others on the way, and rows that are alike.
            (
                &["SELECT 1 AS a", "SELECT 2.5", "SELECT NULL", "SELECT n FROM t"],
                &["UNION ALL", "UNION"],
            ),
            (&["SELECT 1 AS a, 'b' AS b", "(SELECT n, x FROM t ORDER BY n LIMIT 1)"], &["UNION"]),
            (&["SELECT 1 AS a", "VALUES (2), (3)"], &["UNION ALL"]),
            (&["SELECT 1 AS a", "SELECT 1 INTERSECT SELECT 1"], &["UNION ALL"]),
        ] {
            let text = chain(queries, by);
            let statement = parse(&text).unwrap().remove(0);
            let state = session.context().state();
            let pieces = runtime.block_on(Chain::of(&statement.parsed).unwrap().plan(&state));
            let pieces = pieces.unwrap().unwrap_or_else(|| panic!("not planned: {}", queries[1]));
            let whole =
                runtime.block_on(state.statement_to_plan(statement.parsed.clone())).unwrap();
            let types = |plan: &LogicalPlan| -> Vec<_> {
                let fields = plan.schema().fields().iter();
                fields.map(|field| (field.name().clone(), field.data_type().clone())).collect()
            };
            assert_eq!(types(&pieces), types(&whole), "{}", queries[1]);
            let rows = |plan: LogicalPlan| {
                let rows = runtime.block_on(async {
                    session.context().execute_logical_plan(plan).await.unwrap().collect().await
                });
                let text = pretty_format_batches(&rows.unwrap()).unwrap().to_string();
                let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
                lines.sort();
                lines
            };
            assert_eq!(rows(pieces), rows(whole), "{}", queries[1]);
        }
    }

    #[test]
    fn what_is_no_long_chain_is_left_to_datafusion() {
        let of = |text: &str| Chain::of(&parse(text).unwrap().remove(0).parsed);
        let long = chain(&["SELECT 1 AS a"], &["UNION ALL"]);
        assert!(of(&long).is_some());
        for text in [
            "SELECT 1 UNION ALL SELECT 2".to_owned(),
            format!("{long} ORDER BY a"),
            format!("{long} LIMIT 3"),
            format!("WITH w AS (SELECT 1) {long}"),
            format!("SELECT * FROM ({long})"),
            chain(&["SELECT 1 AS a"], &["EXCEPT ALL"]),
        ] {
            assert!(of(&text).is_none(), "{}", &text[..30]);
        }
        // Errors are those of the whole.
        let folder = tempfile::tempdir().unwrap();
        let session = for_tests(folder.path(), true);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let state = session.context().state();
        for wrong in ["SELECT 1, 2", "SELECT nothing"] {
            let text = chain(&["SELECT 1 AS a", wrong], &["UNION ALL"]);
            let plan = runtime.block_on(of(&text).unwrap().plan(&state)).unwrap();
            assert!(plan.is_none(), "{wrong}");
            assert!(runtime.block_on(session.query(&text)).is_err(), "{wrong}");
        }
    }
}
