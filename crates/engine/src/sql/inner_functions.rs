//! Functions that are called within others by a second name, as `ifnull` for `nvl`, by their first.
//!
//! DataFusion gives a call by a second name an alias, which has all its arguments as text: of calls that nest n deep a
//! text of 2^n. Nobody sees the names of what is within another call.

use std::ops::ControlFlow;

use datafusion::sql::parser::{CopyToSource, Statement as DfStatement};
use datafusion::sql::sqlparser::ast::{Expr, ObjectName, ObjectNamePart, VisitMut, VisitorMut};

use crate::sql::words::spelled;

/// Calls functions within others by their first names; `first_name` tells that of a second one.
pub(crate) fn use_first_names(
    parsed: &mut DfStatement,
    first_name: &dyn Fn(&str) -> Option<String>,
) {
    let mut namer = Namer { first_name, within: 0 };
    // Nothing breaks it off.
    let _ = match parsed {
        DfStatement::Statement(inner) => inner.visit(&mut namer),
        DfStatement::Explain(explain) => {
            return use_first_names(&mut explain.statement, first_name);
        }
        DfStatement::CopyTo(copy) => match &mut copy.source {
            CopyToSource::Query(query) => query.visit(&mut namer),
            CopyToSource::Relation(_) => return,
        },
        _ => return,
    };
}

struct Namer<'a> {
    first_name: &'a dyn Fn(&str) -> Option<String>,
    /// Calls around what is visited.
    within: usize,
}

impl VisitorMut for Namer<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Function(call) = expr {
            if self.within > 0 {
                rename(&mut call.name, self.first_name);
            }
            self.within += 1;
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if matches!(expr, Expr::Function(_)) {
            self.within -= 1;
        }
        ControlFlow::Continue(())
    }
}

fn rename(name: &mut ObjectName, first_name: &dyn Fn(&str) -> Option<String>) {
    if let [part] = name.0.as_mut_slice()
        && let ObjectNamePart::Identifier(ident) = part
        && let Some(first) = first_name(&spelled(ident))
    {
        ident.value = first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::statement::parse;

    #[test]
    fn calls_within_others_have_their_first_name() {
        let first = |name: &str| (name == "ifnull").then(|| "nvl".to_owned());
        for (text, expected) in [
            ("SELECT ifnull(a, ifnull(b, 1))", "SELECT ifnull(a, nvl(b, 1))"),
            (
                "SELECT 1 + f(1 + IfNull(a, 1)), ifnull(a, b)",
                "SELECT 1 + f(1 + nvl(a, 1)), ifnull(a, b)",
            ),
            ("SELECT sum(s.ifnull(a, 1)), f(g(1))", "SELECT sum(s.ifnull(a, 1)), f(g(1))"),
            ("EXPLAIN SELECT f(ifnull(a, 1))", "EXPLAIN SELECT f(nvl(a, 1))"),
            ("INSERT INTO t SELECT f(ifnull(a, 1))", "INSERT INTO t SELECT f(nvl(a, 1))"),
        ] {
            let mut parsed = parse(text).unwrap()[0].parsed.clone();
            use_first_names(&mut parsed, &first);
            assert_eq!(parsed.to_string(), expected);
        }
    }
}
