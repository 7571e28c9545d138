//! Columns by their places in what an operator has, and where expressions have them.

use datafusion::common::{Column, DFSchema};
use datafusion::logical_expr::Expr;

/// Columns of an operator, by their places: rows that are equal in all of them are in one part.
pub(crate) type Together = Vec<usize>;

fn plain_column(expr: &Expr) -> Option<&Column> {
    match expr {
        Expr::Column(column) => Some(column),
        Expr::Alias(alias) => plain_column(&alias.expr),
        _ => None,
    }
}

/// Where a column of the input, by its place, stands among expressions over it.
pub(crate) fn places_of(exprs: &[Expr], input: &DFSchema, column: usize) -> Vec<usize> {
    let found = exprs.iter().enumerate().filter(|(_, expr)| is_at(expr, input, column));
    found.map(|(place, _)| place).collect()
}

/// The same columns of an operator above, which has each of them at these places; those that it does not have are left out.
pub(crate) fn moved(together: &[Together], now_at: impl Fn(usize) -> Vec<usize>) -> Vec<Together> {
    let each = |columns: &Together| {
        columns.iter().fold(vec![Together::new()], |so_far, column| {
            let places = now_at(*column);
            let with = |before: &Together| -> Vec<Together> {
                places.iter().map(|place| [before.as_slice(), &[*place]].concat()).collect()
            };
            so_far.iter().flat_map(with).collect()
        })
    };
    together.iter().flat_map(each).collect()
}

/// Is an expression this column?
pub(crate) fn is_at(expr: &Expr, schema: &DFSchema, column: usize) -> bool {
    place_of(expr, schema) == Some(column)
}

/// Where a column stands that an expression is; `None` of any other.
pub(crate) fn place_of(expr: &Expr, schema: &DFSchema) -> Option<usize> {
    plain_column(expr).and_then(|column| schema.maybe_index_of_column(column))
}

/// Does this column alone say in which part a row is?
pub(crate) fn tells_apart(expr: &Expr, schema: &DFSchema, together: &[Together]) -> bool {
    together.iter().any(|columns| matches!(columns[..], [only] if is_at(expr, schema, only)))
}
