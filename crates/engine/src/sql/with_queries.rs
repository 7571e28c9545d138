//! How often queries of WITH are planned: each time that a query names one, with all that it names itself.
//!
//! DataFusion copies the plan of such a query wherever it is named. One that names the one before it twice doubles it, so
//! a text of forty lines would be a plan of 2^40 scans. Views are counted likewise (`sql::views`).
//!
//! Each copy is computed by itself, too. One with `random()` would have other rows in each place where it is named, and in
//! PostgreSQL and DuckDB it has the same: it is refused where it is named twice.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::ptr;

use datafusion::sql::parser::{CopyToSource, Statement as DfStatement};
use datafusion::sql::sqlparser::ast::{self, ObjectName, Visit, Visitor};

use crate::base::error::{EngineError, Result};
use crate::base::sql_state::SqlState;
use crate::sql::words::spelled;

/// So many take two seconds to plan.
const MOST_PLANNED: u64 = 4_000;

/// What gives another value each time; other functions that are volatile to DataFusion, as those of ids, give the same.
const RANDOM: [&str; 2] = ["random", "uuid"];

/// # Errors
/// [`EngineError::Statement`] if queries of WITH would be planned too often, or a random one would be computed twice.
pub(crate) fn check(parsed: &DfStatement) -> Result<()> {
    let mut counter = Counter { open: vec![Scope::default()] };
    let visited = match parsed {
        DfStatement::Statement(inner) => inner.visit(&mut counter),
        DfStatement::Explain(explain) => return check(&explain.statement),
        DfStatement::CopyTo(copy) => match &copy.source {
            CopyToSource::Query(query) => query.visit(&mut counter),
            CopyToSource::Relation(_) => return Ok(()),
        },
        _ => return Ok(()),
    };
    if let ControlFlow::Break(name) = visited {
        let what = format!(
            "the WITH query `{name}` is random and is named twice: each would have rows of its own"
        );
        return Err(EngineError::unsupported(what).with_hint("CREATE TABLE AS of it first"));
    }
    if counter.open.first().is_some_and(|whole| whole.planned > MOST_PLANNED) {
        let message = format!("queries of WITH would be planned more than {MOST_PLANNED} times");
        return Err(EngineError::statement(SqlState::StatementTooComplex, message)
            .with_hint("CREATE TABLE AS of those that others name more than once"));
    }
    Ok(())
}

/// A query.
#[derive(Default)]
struct Scope {
    /// Of its own WITH that are not visited yet, by where they are.
    queries: Vec<(*const ast::Query, String)>,
    /// Of those that are.
    known: HashMap<String, Known>,
    /// Queries of WITH that it stands for.
    planned: u64,
    /// Does it call one of [`RANDOM`], or name one that does?
    is_random: bool,
}

/// A query of WITH.
struct Known {
    /// Queries of WITH that it stands for.
    planned: u64,
    is_random: bool,
    is_named: bool,
}

struct Counter {
    /// The statement, and the queries around what is visited.
    open: Vec<Scope>,
}

impl Visitor for Counter {
    /// The name of a query that would be computed twice.
    type Break = String;

    fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<String> {
        let tables = query.with.iter().flat_map(|with| &with.cte_tables);
        let named = |cte: &ast::Cte| (ptr::from_ref(cte.query.as_ref()), spelled(&cte.alias.name));
        self.open.push(Scope { queries: tables.map(named).collect(), ..Scope::default() });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &ast::Query) -> ControlFlow<String> {
        let Scope { planned, is_random, .. } = self.open.pop().unwrap_or_default();
        if let Some(around) = self.open.last_mut() {
            let own = around.queries.iter().find(|(at, _)| ptr::eq(*at, query));
            match own.map(|(_, name)| name.clone()) {
                Some(name) => {
                    let planned = planned.saturating_add(1);
                    around.known.insert(name, Known { planned, is_random, is_named: false });
                }
                None => {
                    around.planned = around.planned.saturating_add(planned);
                    around.is_random |= is_random;
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<String> {
        let [part] = relation.0.as_slice() else { return ControlFlow::Continue(()) };
        let Some(name) = part.as_ident().map(spelled) else { return ControlFlow::Continue(()) };
        let Some(known) = self.open.iter_mut().rev().find_map(|scope| scope.known.get_mut(&name))
        else {
            return ControlFlow::Continue(());
        };
        if known.is_random && std::mem::replace(&mut known.is_named, true) {
            return ControlFlow::Break(name);
        }
        let (planned, is_random) = (known.planned, known.is_random);
        if let Some(scope) = self.open.last_mut() {
            scope.planned = scope.planned.saturating_add(planned);
            scope.is_random |= is_random;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &ast::Expr) -> ControlFlow<String> {
        if let ast::Expr::Function(call) = expr
            && let [part] = call.name.0.as_slice()
            && part.as_ident().is_some_and(|name| RANDOM.contains(&spelled(name).as_str()))
            && let Some(scope) = self.open.last_mut()
        {
            scope.is_random = true;
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::statement::parse;

    fn planned(text: &str) -> u64 {
        let mut counter = Counter { open: vec![Scope::default()] };
        let DfStatement::Statement(inner) = &parse(text).unwrap()[0].parsed else { panic!() };
        let _ = inner.visit(&mut counter);
        assert_eq!(counter.open.len(), 1);
        counter.open[0].planned
    }

    #[test]
    fn each_name_stands_for_all_that_its_query_names() {
        for (text, expected) in [
            ("SELECT 1 FROM t", 0),
            ("WITH a AS (SELECT 1) SELECT 1", 0),
            ("WITH a AS (SELECT 1) SELECT * FROM a", 1),
            ("WITH a AS (SELECT 1) SELECT * FROM A, \"a\", \"A\", s.a", 2),
            ("WITH a AS (SELECT 1), b AS (SELECT * FROM a, a x) SELECT * FROM b, b y", 6),
            // In subqueries, and where a name hides another.
            (
                "WITH a AS (SELECT 1) SELECT 1 WHERE EXISTS (SELECT 1 FROM a) OR 1 IN (SELECT 1 FROM a)",
                2,
            ),
            ("WITH a AS (WITH a AS (SELECT 1) SELECT * FROM a, a b) SELECT * FROM a", 3),
            (
                "WITH a AS (SELECT 1) (WITH a AS (SELECT 1 FROM a, a b) SELECT * FROM a) UNION SELECT 1 FROM a",
                4,
            ),
            ("WITH RECURSIVE a AS (SELECT 1 UNION SELECT 1 FROM a) SELECT * FROM a", 1),
            ("INSERT INTO t WITH a AS (SELECT 1) SELECT * FROM a", 1),
        ] {
            assert_eq!(planned(text), expected, "{text}");
        }
    }

    #[test]
    fn what_doubles_is_refused() {
        let doubled = |deep: usize| {
            let each: Vec<_> = (1..=deep)
                .map(|n| format!("q{n} AS (SELECT 1 FROM q{0} a, q{0} b)", n - 1))
                .collect();
            format!("WITH q0 AS (SELECT 1), {} SELECT 1 FROM q{deep}", each.join(", "))
        };
        let checked = |text: &str| check(&parse(text).unwrap()[0].parsed);
        assert!(checked(&doubled(10)).is_ok());
        for refused in [doubled(12), doubled(200), format!("EXPLAIN {}", doubled(12))] {
            assert!(checked(&refused).unwrap_err().to_string().contains("more than 4000 times"));
        }
    }

    #[test]
    fn what_is_random_is_named_once() {
        let checked =
            |text: &str| check(&parse(text).unwrap()[0].parsed).map_err(|error| error.to_string());
        for allowed in [
            "WITH q AS (SELECT random() x) SELECT * FROM q",
            "WITH q AS (SELECT x IN ID SET s AS y FROM t) SELECT * FROM q, q r",
            "WITH q AS (SELECT 1 x) SELECT random() FROM q, q r",
            "WITH q AS (SELECT random() x), r AS (SELECT * FROM q) SELECT * FROM r WHERE x > random()",
            "WITH q AS (SELECT random() x), r AS (WITH q AS (SELECT 1 x) SELECT * FROM q) SELECT * FROM q, r, r s",
        ] {
            assert_eq!(checked(allowed), Ok(()), "{allowed}");
        }
        for (refused, name) in [
            ("WITH q AS (SELECT Random() x) SELECT * FROM q UNION SELECT * FROM Q", "q"),
            ("WITH q AS (SELECT random() x), r AS (SELECT * FROM q) SELECT * FROM r, r s", "r"),
            ("WITH q AS (SELECT random() x), r AS (SELECT * FROM q) SELECT * FROM r, q", "q"),
            (
                "WITH q AS (SELECT 1 ORDER BY random()) SELECT 1 FROM q WHERE 1 IN (SELECT * FROM q)",
                "q",
            ),
            ("EXPLAIN WITH q AS (SELECT (SELECT random())) SELECT 1 FROM q, q r", "q"),
        ] {
            let message = checked(refused).unwrap_err();
            assert!(message.contains(&format!("`{name}` is random")), "{refused}: {message}");
        }
    }
}
