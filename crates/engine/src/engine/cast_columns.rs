//! Which column a value came from that could not be cast: the kernels that cast know values and types alone.
//!
//! A message names a column if the plan casts to that type in one place, or names two or three it may be. A place is a
//! column that is cast, or else what its cast is called: the column of an INSERT, an alias.
//!
//! # Not here
//! Values of files that are loaded or read in place: `uplake_table` names their lines, too.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DataFusionError;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Cast, Expr, LogicalPlan};
use datafusion::scalar::ScalarValue;

use crate::base::error::{EngineError, Problem};
use crate::base::foreign_errors;
use crate::mends::rounded;

/// A message with more names says nothing.
const MOST_NAMES: usize = 3;
/// Characters of an expression that has no better name.
const SHOWN: usize = 60;

/// A place of a plan where values are cast.
#[derive(Debug, PartialEq)]
struct Place {
    /// None of a literal that is nothing's value.
    name: Option<String>,
    /// As Arrow's messages have it.
    to: String,
    /// The only value that is cast there.
    literal: Option<String>,
}

/// The error, with the column that the value is of, if it is one of a cast.
pub(super) fn named(error: DataFusionError, plan: &LogicalPlan) -> DataFusionError {
    let Some((value, to)) = foreign_errors::cast_error(&error) else { return error };
    let places = match places(plan) {
        Ok(places) => places.into_iter().filter(|place| place.to == to),
        Err(_) => return error,
    };
    let (own, others): (Vec<Place>, Vec<Place>) =
        places.partition(|place| place.literal.as_ref() == Some(&value));
    let of_columns = others.into_iter().filter(|place| place.literal.is_none());
    let named: Option<Vec<String>> = match own.is_empty() {
        true => of_columns.map(|place| place.name).collect(),
        false => own.into_iter().map(|place| place.name).collect(),
    };
    let mut names = named.unwrap_or_default();
    names.sort();
    names.dedup();
    if names.is_empty() || names.len() > MOST_NAMES {
        return error;
    }
    let of_column = |problem: Problem| {
        let message = format!("column {}: {}", names.join(" or "), problem.message);
        Problem { message, ..problem }
    };
    // When it failed says to reports whether one of their expressions can be planned at all.
    match EngineError::from(error) {
        EngineError::Statement(problem) => EngineError::Statement(of_column(problem)).into(),
        EngineError::Execution(problem) => EngineError::Execution(of_column(problem)).into(),
        other => other.into(),
    }
}

fn places(plan: &LogicalPlan) -> Result<Vec<Place>, DataFusionError> {
    let mut places = Vec::new();
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            let (called, inner) = match expr {
                Expr::Alias(alias) => (Some(alias.name.as_str()), alias.expr.as_ref()),
                other => (None, other),
            };
            inner.apply(|part| {
                if let Expr::Cast(cast) = part
                    && !is_computed(&cast.expr)
                {
                    let called = called.filter(|_| std::ptr::eq(part, inner));
                    places.push(place(cast, called));
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(places)
}

fn place(cast: &Cast, called: Option<&str>) -> Place {
    let to = cast.field.data_type().to_string();
    let mut from = rounded(&cast.expr);
    // What was text is cast to a wider text first.
    while let Expr::Cast(Cast { expr, field }) = from
        && is_text(field.data_type())
    {
        from = expr;
    }
    let literal = match from {
        Expr::Literal(value, _) => Some(text_of(value)),
        _ => None,
    };
    // An alias that is the text of its expression says nothing that the message does not.
    let called = called.filter(|name| !name.contains(['(', '\'', ':']));
    let name = match (from, called) {
        (Expr::Column(column), _) => Some(column.name.clone()),
        (_, Some(name)) => Some(name.to_owned()),
        (Expr::Literal(..), None) => None,
        (other, None) => Some(shortened(&other.to_string())),
    };
    Place { name: name.map(|name| format!("`{name}`")), to, literal }
}

/// A column that the optimizer has made of an expression, which casts before it.
fn is_computed(expr: &Expr) -> bool {
    matches!(expr, Expr::Column(column) if column.name.contains('('))
}

fn shortened(text: &str) -> String {
    match text.chars().count() > SHOWN {
        true => format!("{}…", text.chars().take(SHOWN).collect::<String>()),
        false => text.to_owned(),
    }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn text_of(value: &ScalarValue) -> String {
    value.try_as_str().flatten().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use crate::engine::session::for_tests;

    /// What is said of each statement, over a table of texts and numbers that fit nothing.
    #[tokio::test(flavor = "multi_thread")]
    async fn the_column_is_named_where_there_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let session = for_tests(folder.path(), true);
        for sql in [
            "CREATE TABLE t (a TEXT, b TEXT, n BIGINT)",
            "INSERT INTO t VALUES ('x', '7', 100000)",
            "CREATE TABLE u (k INT, s SMALLINT, d DATE)",
            "CREATE TABLE f AS SELECT CAST('1e10' AS DOUBLE) AS x, CAST('10000000000' AS DECIMAL(12,1)) AS d",
        ] {
            session.query(sql).await.unwrap();
        }
        for (sql, expected) in [
            ("SELECT a::int FROM t", "column `a`: cannot read 'x' as integer"),
            ("SELECT b::int, a::int AS c FROM t", "column `a` or `b`: cannot read 'x' as integer"),
            ("SELECT b::int, a::bigint AS c FROM t", "column `a`: cannot read 'x' as bigint"),
            (
                "SELECT n FROM t WHERE CAST(a AS DATE) > '2026-01-01'",
                "column `a`: cannot read 'x' as date",
            ),
            ("SELECT sum(a::double) FROM t GROUP BY n", "column `a`: cannot read 'x' as double"),
            ("SELECT n::smallint FROM t", "column `n`: 100000 does not fit smallint"),
            ("SELECT upper(a)::int AS c FROM t", "column `c`: cannot read 'X' as integer"),
            (
                "SELECT k FROM u UNION ALL SELECT a::int FROM t",
                "column `a`: cannot read 'x' as integer",
            ),
            ("INSERT INTO u (k, s) SELECT b, n FROM t", "column `n`: 100000 does not fit smallint"),
            ("INSERT INTO u (k) VALUES ('7'), ('y')", "cannot read 'y' as integer"),
            ("SELECT CAST('abc' AS INT)", "cannot read 'abc' as integer"),
            ("SELECT x::int FROM f", "column `x`: 10000000000.0 does not fit integer"),
            ("SELECT d::int FROM f", "column `d`: 10000000000 does not fit integer"),
            ("SELECT n FROM t WHERE n = 'z'", "cannot read 'z' as bigint"),
        ] {
            let said = session.query(sql).await.unwrap_err();
            assert!(said.to_string().ends_with(expected), "{sql}: {said}");
            assert!(said.to_string().starts_with(['c', '1']), "{sql}: {said}");
            assert!(
                ["22P02", "22003", "22007"].contains(&said.code().as_str()),
                "{sql}: {:?}",
                said.code()
            );
        }
    }
}
