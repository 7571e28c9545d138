//! What columns of an answer without an alias are called: by their text, `sum(x + 1)`; over a wire as Postgres calls
//! them, because drivers and tools look them up by these names.
//!
//! Within a statement, in subqueries, DataFusion's names stay: what is named there is resolved by it.
//!
//! # Source
//! PostgreSQL's `FigureColname` (parse_target.c): a column's or function's own name, a cast's type if what is cast has
//! none, else `?column?`.

use std::ops::ControlFlow;

use datafusion::sql::parser::{CopyToSource, CopyToStatement, Statement as DfStatement};
use datafusion::sql::sqlparser::ast::{
    self, Expr, SelectItem, SetExpr, Visit, VisitMut, Visitor, VisitorMut,
};

use crate::sql::id_set::MARK;
use crate::sql::returning;
use crate::sql::words::spelled;

/// A column that has no name of its own.
const UNNAMED: &str = "?column?";

/// Names that Postgres would give to the `count` columns of an answer: see [`Statement::result_names`].
///
/// [`Statement::result_names`]: crate::Statement::result_names
pub(crate) fn postgres_names(parsed: &DfStatement, count: usize) -> Vec<Option<String>> {
    by_place(select_of(parsed).unwrap_or_default(), count, name_of_item)
}

/// What of the first SELECT of a statement gives a column its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NamedBy {
    /// An alias, or a column.
    Name,
    /// An expression, which is its text.
    Text(String),
    Star,
}

/// What gives names to the columns of a statement's answer, of its tree as it was parsed.
pub(crate) fn named_by(parsed: &DfStatement) -> Vec<NamedBy> {
    let of = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias { .. } => NamedBy::Name,
        SelectItem::UnnamedExpr(expr) => match unbracketed(expr) {
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) => NamedBy::Name,
            expr => text_of(expr).map_or(NamedBy::Name, NamedBy::Text),
        },
        _ => NamedBy::Star,
    };
    select_of(parsed).unwrap_or_default().iter().map(of).collect()
}

fn unbracketed(mut expr: &Expr) -> &Expr {
    while let Expr::Nested(inner) = expr {
        expr = inner;
    }
    expr
}

/// The texts that are names of `count` columns.
pub(crate) fn written_names(named: &[NamedBy], count: usize) -> Vec<Option<String>> {
    by_place(named, count, |named| match named {
        NamedBy::Text(text) => Some(text.clone()),
        _ => None,
    })
}

/// Longer texts are no names.
const MOST_NAME_BYTES: usize = 128;

/// The text of an expression with its functions in lower case; `None` if it has marks of ours, or is too long.
fn text_of(expr: &Expr) -> Option<String> {
    // A chain of 20,000 operators is as deep before it is balanced, and would take a stack with it.
    if Visit::visit(expr, &mut Shallow::default()).is_break() {
        return None;
    }
    let mut expr = expr.clone();
    let _ = VisitMut::visit(&mut expr, &mut LowerCase);
    let text = expr.to_string();
    let is_short = text.len() <= MOST_NAME_BYTES && !text.contains(MARK);
    (is_short && !text.contains('\n')).then_some(text)
}

/// Goes no deeper than a text that is a name.
#[derive(Default)]
struct Shallow(usize);

/// An operator is a byte at least, and brackets are two.
const MOST_DEEP: usize = MOST_NAME_BYTES / 2;

impl Visitor for Shallow {
    type Break = ();

    fn pre_visit_expr(&mut self, _: &Expr) -> ControlFlow<()> {
        self.0 += 1;
        if self.0 > MOST_DEEP { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn post_visit_expr(&mut self, _: &Expr) -> ControlFlow<()> {
        self.0 -= 1;
        ControlFlow::Continue(())
    }
}

/// `COUNT(*)` and `count(*)` are one name, as in DuckDB and PostgreSQL.
struct LowerCase;

impl VisitorMut for LowerCase {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Function(function) = expr {
            for part in &mut function.name.0 {
                if let ast::ObjectNamePart::Identifier(name) = part
                    && name.quote_style.is_none()
                {
                    name.value = name.value.to_lowercase();
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// Whether it stands for any number of columns.
trait Item {
    fn is_one(&self) -> bool;
}

impl Item for SelectItem {
    fn is_one(&self) -> bool {
        matches!(self, Self::UnnamedExpr(_) | Self::ExprWithAlias { .. })
    }
}

impl Item for NamedBy {
    fn is_one(&self) -> bool {
        *self != Self::Star
    }
}

/// The name of each of `count` columns by what selects it.
fn by_place<T: Item>(
    items: &[T],
    count: usize,
    name_of: impl Fn(&T) -> Option<String>,
) -> Vec<Option<String>> {
    let mut names = vec![None; count];
    // Nobody knows here how many columns a star has: those before the first and after the last are counted.
    let front = items.iter().take_while(|item| item.is_one()).count();
    for (name, item) in names.iter_mut().zip(&items[..front]) {
        *name = name_of(item);
    }
    if front < items.len() {
        let back = items.iter().rev().take_while(|item| item.is_one()).count();
        for (name, item) in names.iter_mut().rev().zip(items.iter().rev().take(back)) {
            *name = name_of(item);
        }
    }
    names
}

/// What the query of a statement selects, also that of which it makes a table or a file, or what it gives back.
fn select_of(parsed: &DfStatement) -> Option<&[SelectItem]> {
    let inner = match parsed {
        DfStatement::Statement(inner) => inner,
        DfStatement::CopyTo(CopyToStatement { source: CopyToSource::Query(query), .. }) => {
            return items(&query.body);
        }
        _ => return None,
    };
    match inner.as_ref() {
        ast::Statement::Query(query) => items(&query.body),
        // Columns that are listed have their names.
        ast::Statement::CreateTable(create) if create.columns.is_empty() => {
            items(&create.query.as_ref()?.body)
        }
        ast::Statement::CreateTable(_) => None,
        _ => returning::items(parsed),
    }
}

/// What the first SELECT of a query selects.
fn items(body: &SetExpr) -> Option<&[SelectItem]> {
    match body {
        SetExpr::Select(select) => Some(&select.projection),
        SetExpr::Query(query) => items(&query.body),
        SetExpr::SetOperation { left, .. } => items(left),
        _ => None,
    }
}

fn name_of_item(item: &SelectItem) -> Option<String> {
    let SelectItem::UnnamedExpr(expr) = item else { return None };
    if matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_)) {
        return None;
    }
    Some(name_of(expr).unwrap_or_else(|| UNNAMED.to_owned()))
}

fn name_of(expr: &Expr) -> Option<String> {
    let named = |name: &str| Some(name.to_owned());
    match expr {
        Expr::Identifier(name) => Some(spelled(name)),
        Expr::CompoundIdentifier(names) => names.last().map(spelled),
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => name_of(inner),
        Expr::Function(function) => {
            function.name.0.last().and_then(ast::ObjectNamePart::as_ident).map(spelled)
        }
        Expr::Cast { expr, data_type, .. } => name_of(expr).or_else(|| Some(type_name(data_type))),
        Expr::TypedString(typed) => Some(type_name(&typed.data_type)),
        Expr::Interval(_) => named("interval"),
        Expr::AtTimeZone { .. } => named("timezone"),
        Expr::Case { else_result, .. } => {
            else_result.as_ref().and_then(|expr| name_of(expr)).or_else(|| named("case"))
        }
        Expr::Exists { .. } => named("exists"),
        Expr::Extract { .. } => named("extract"),
        Expr::Substring { .. } => named("substring"),
        Expr::Trim { .. } => named("btrim"),
        Expr::Position { .. } => named("position"),
        Expr::Ceil { .. } => named("ceil"),
        Expr::Floor { .. } => named("floor"),
        Expr::Array(_) => named("array"),
        Expr::Tuple(_) => named("row"),
        Expr::Subquery(query) => match items(&query.body)?.first()? {
            SelectItem::ExprWithAlias { alias, .. } => Some(spelled(alias)),
            SelectItem::UnnamedExpr(expr) => name_of(expr),
            _ => None,
        },
        _ => None,
    }
}

fn type_name(data_type: &ast::DataType) -> String {
    use ast::DataType;

    let name = match data_type {
        DataType::BigInt(_) | DataType::Int8(_) => "int8",
        DataType::Int(_) | DataType::Integer(_) | DataType::Int4(_) => "int4",
        DataType::SmallInt(_) | DataType::Int2(_) => "int2",
        DataType::Double(_) | DataType::DoublePrecision | DataType::Float8 | DataType::Float(_) => {
            "float8"
        }
        DataType::Real | DataType::Float4 => "float4",
        DataType::Boolean | DataType::Bool => "bool",
        DataType::Varchar(_) | DataType::CharacterVarying(_) => "varchar",
        DataType::Timestamp(_, ast::TimezoneInfo::WithTimeZone | ast::TimezoneInfo::Tz) => {
            "timestamptz"
        }
        DataType::Timestamp(..) => "timestamp",
        DataType::Decimal(_) | DataType::Numeric(_) => "numeric",
        other => return other.to_string().to_lowercase(),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::NamedBy;
    use crate::sql::statement::parse;

    #[test]
    fn columns_are_called_as_postgres_calls_them() {
        let names = |sql: &str, count| {
            let names = parse(sql).unwrap().pop().unwrap().result_names(count);
            names.into_iter().map(|name| name.unwrap_or_else(|| "-".into())).collect::<Vec<_>>()
        };
        let sql = "SELECT 1, count(*), COUNT(DISTINCT a), a, t.a, a AS b, a + 1, sum(a) + 1, a::text, '1'::int, \
                   CAST(max(a) AS INT), CASE WHEN a THEN 1 ELSE b END, CASE WHEN a THEN 1 END, EXISTS (SELECT 1), \
                   (SELECT max(a) FROM t), DATE '2026-01-01', coalesce(a, 1), (a), NULL, -a, pg_catalog.version() \
                   FROM t";
        let expected = "?column? count count - - - ?column? ?column? a int4 max b case exists max date coalesce a \
                        ?column? ?column? version";
        assert_eq!(names(sql, 21).join(" "), expected);
        assert_eq!(names("SELECT 1, * FROM t", 4), ["?column?", "-", "-", "-"]);
        assert_eq!(names("SELECT *, 1 FROM t", 3), ["-", "-", "?column?"]);
        assert_eq!(names("SELECT 1, t.*, max(a) FROM t", 4), ["?column?", "-", "-", "max"]);
        assert_eq!(
            names("WITH c AS (SELECT 1) SELECT count(*) FROM c UNION ALL SELECT 2", 1),
            ["count"]
        );
        assert_eq!(names("VALUES (1, 2)", 2), ["-", "-"]);
        assert_eq!(names("SHOW TABLES", 2), ["-", "-"]);
    }

    #[test]
    fn what_is_deep_has_no_text_and_takes_no_stack() {
        let chain =
            |operators: usize| format!("SELECT {}, x + 1", vec!["x"; operators + 1].join(" AND "));
        let named = |text: &str| parse(text).unwrap().pop().unwrap().named.to_vec();
        let text = NamedBy::Text("x + 1".into());
        assert_eq!(named(&chain(1)), [NamedBy::Text("x AND x".into()), text.clone()]);
        assert_eq!(named(&chain(15_000)), [NamedBy::Name, text]);
    }
}
