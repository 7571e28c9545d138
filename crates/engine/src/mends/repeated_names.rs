//! Columns and aggregates that have one name: `SELECT a, a`, and `max(t)` beside `max(CAST(t AS DATE))`.
//!
//! DataFusion tells columns of a SELECT list apart by the names that it makes of their expressions, in
//! which there are no casts, and refuses two of one name. A statement that was refused gets other names
//! and is planned again:
//!
//! ```text
//! SELECT a, a, max(CAST(t AS DATE))     SELECT a, a AS "␟1", max("cast"(CAST(t AS DATE), 'DATE'))  name_apart
//!                                       Projection  a, a AS "a␟1", …                               with_names
//! ```
//!
//! The answer shows the name up to the mark ([`shown_name`]). So it is for `SELECT a + 1 … GROUP BY a ORDER BY 1`,
//! which is refused because a + 1 is no group.
//!
//! # Invariants
//! - A statement that DataFusion takes stays as it is.
//! - No table and no file gets a name with a mark.
//!
//! # Not here
//! `SELECT *, *`, and names that are given twice beside a `*`.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result, internal_err};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    ColumnarValue, DdlStatement, Expr, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Union, Volatility,
};
use datafusion::sql::parser::{CopyToSource, CopyToStatement, Statement as DfStatement};
use datafusion::sql::sqlparser::ast::{
    self, Ident, SelectItem, SelectItemQualifiedWildcardKind, VisitMut, VisitorMut,
};

use super::grouping_sets::keys_below;
use crate::base::error::EngineError;
use crate::base::sql_state::SqlState;
use crate::sql::using_joins::{last_part, normal};

/// Stands between a name and the number of the column that has it again.
const MARK: char = '\u{1f}';
/// The function around casts that are to have names.
const CAST: &str = "cast";

/// Has a plan groups by two keys of one name, as `GROUP BY t, CAST(t AS DATE)` has? Both are the first to what
/// is above. Or does it sort by a column that has the name of what such a key casts, as `SELECT 0 AS t …
/// GROUP BY CAST(t AS DATE) ORDER BY 1` does? It would be sorted by the key.
pub(crate) fn repeats_key(plan: &LogicalPlan) -> Result<bool> {
    let (mut found, mut sorts) = (false, false);
    let (mut casts, mut aliases) = (Vec::new(), Vec::new());
    plan.apply_with_subqueries(|node| {
        match node {
            LogicalPlan::Aggregate(aggregate) => {
                let keys = match aggregate.group_expr.as_slice() {
                    [Expr::GroupingSet(sets)] => sets.distinct_expr(),
                    keys => keys.iter().collect(),
                };
                for (key, of) in keys.iter().filter_map(|key| Some((key, cast_column(key)?))) {
                    let name = key.schema_name().to_string();
                    let same = keys.iter().filter(|key| key.schema_name().to_string() == name);
                    found |= same.count() > 1;
                    casts.push((name, of.map(|column| column.name.clone())));
                }
            }
            LogicalPlan::Projection(projection) => {
                let named = projection.expr.iter().filter_map(|expr| match expr {
                    Expr::Alias(alias) => Some((alias.name.clone(), alias.expr.clone())),
                    _ => None,
                });
                aliases.extend(named);
            }
            LogicalPlan::Sort(_) => sorts = true,
            _ => {}
        }
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    let confused = || {
        aliases.iter().any(|(alias, expr)| {
            let is_key =
                |name: &String| matches!(expr.as_ref(), Expr::Column(c) if c.name == *name);
            casts.iter().any(|(name, of)| of.as_ref() == Some(alias) && !is_key(name))
        })
    };
    Ok(found || sorts && confused())
}

/// What a key casts, if it is a cast: a column, if it is one.
fn cast_column(key: &Expr) -> Option<Option<&Column>> {
    let inner = match key {
        Expr::Cast(cast) => &cast.expr,
        Expr::TryCast(cast) => &cast.expr,
        _ => return None,
    };
    Some(match inner.as_ref() {
        Expr::Column(column) => Some(column),
        nested => cast_column(nested).flatten(),
    })
}

/// A column's name as it is shown.
pub(crate) fn shown_name(name: &str) -> &str {
    name.split_once(MARK).map_or(name, |(shown, _)| shown)
}

/// Gives columns of SELECT lists that are there again, and casts, names of their own; where there is ORDER BY,
/// also `computed` columns: `ORDER BY 1` would look for what such a column is computed from.
pub(crate) fn name_apart(statement: &mut DfStatement, computed: bool) {
    let mut names = NamesApart { named: 0, computed };
    // It never ends early.
    let _ = match statement {
        DfStatement::Statement(inner) => inner.as_mut().visit(&mut names),
        DfStatement::CopyTo(CopyToStatement { source: CopyToSource::Query(query), .. }) => {
            query.as_mut().visit(&mut names)
        }
        DfStatement::Explain(explain) => {
            name_apart(&mut explain.statement, computed);
            ControlFlow::Continue(())
        }
        _ => ControlFlow::Continue(()),
    };
}

struct NamesApart {
    named: usize,
    computed: bool,
}

impl VisitorMut for NamesApart {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut ast::Select) -> ControlFlow<()> {
        let stars = stars(&select.projection);
        let mut known = Vec::new();
        // A subquery comes last: ORDER BY means the column of a table that is called as it is.
        for last in [false, true] {
            let items = select.projection.iter_mut();
            for item in items.filter(|item| is_subquery(item) == last) {
                let Some(name) = ItemName::of(item) else { continue };
                let is_known = known.iter().any(|other| name.is_as(other));
                if is_known || stars.iter().any(|star| name.is_of(star)) {
                    self.named += 1;
                    give_other_name(item, self.named);
                }
                known.push(name);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<()> {
        if let (ast::SetExpr::Select(select), true) =
            (query.body.as_mut(), self.computed && query.order_by.is_some())
        {
            for item in &mut select.projection {
                if is_computed(item) {
                    self.named += 1;
                    give_other_name(item, self.named);
                }
            }
        }
        self.name_others(&mut query.body, true);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut ast::Expr) -> ControlFlow<()> {
        if let ast::Expr::Cast { kind, data_type, .. } = expr {
            let data_type = match kind {
                ast::CastKind::Cast | ast::CastKind::DoubleColon => data_type.to_string(),
                ast::CastKind::TryCast | ast::CastKind::SafeCast => format!("{data_type} OR NULL"),
            };
            let cast = std::mem::replace(expr, ast::Expr::value(ast::Value::Null));
            *expr = called(cast, data_type);
        }
        ControlFlow::Continue(())
    }
}

impl NamesApart {
    /// Only the first SELECT of a UNION names its columns; others get the same names and are refused if they
    /// have a column that is called so at another place.
    fn name_others(&mut self, part: &mut ast::SetExpr, first: bool) {
        match part {
            ast::SetExpr::SetOperation { left, right, set_quantifier, .. } => {
                use ast::SetQuantifier::{AllByName, ByName, DistinctByName};
                if !matches!(set_quantifier, ByName | AllByName | DistinctByName) {
                    self.name_others(left, first);
                    self.name_others(right, false);
                }
            }
            ast::SetExpr::Select(select) if !first => {
                for item in &mut select.projection {
                    if matches!(item, SelectItem::UnnamedExpr(_)) {
                        self.named += 1;
                        give_other_name(item, self.named);
                    }
                }
            }
            _ => {}
        }
    }
}

/// The tables that a SELECT list has all columns of; `None` is every table.
fn stars(projection: &[SelectItem]) -> Vec<Option<String>> {
    let star = |item: &SelectItem| match item {
        SelectItem::Wildcard(_) => Some(None),
        SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
            Some(Some(last_part(name).map(normal)?))
        }
        _ => None,
    };
    projection.iter().filter_map(star).collect()
}

/// A subquery that is a column has the name of its own column.
fn only_name(query: &ast::Query) -> Option<ItemName> {
    let ast::SetExpr::Select(select) = query.body.as_ref() else { return None };
    let name = match ItemName::of(select.projection.first()?)? {
        ItemName::Column(_, name) | ItemName::Alias(name) => name,
        ItemName::Expr(_) => return None,
    };
    Some(ItemName::Column(None, name))
}

/// What DataFusion's name of a column depends on.
enum ItemName {
    /// A column, of a table where that is said.
    Column(Option<String>, String),
    Alias(String),
    Expr(String),
}

impl ItemName {
    fn of(item: &SelectItem) -> Option<Self> {
        match item {
            SelectItem::ExprWithAlias { alias, .. } => Some(Self::Alias(normal(alias))),
            SelectItem::UnnamedExpr(expr) => Some(match without_casts(expr) {
                ast::Expr::Subquery(query) if let Some(name) = only_name(query) => name,
                ast::Expr::Identifier(name) => Self::Column(None, normal(name)),
                ast::Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                    [.., table, name] => Self::Column(Some(normal(table)), normal(name)),
                    _ => Self::Expr(text(expr)),
                },
                other => Self::Expr(text(other)),
            }),
            _ => None,
        }
    }

    fn is_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Column(a, x), Self::Column(b, y)) => {
                x == y && (a.is_none() || b.is_none() || a == b)
            }
            (Self::Column(_, x) | Self::Alias(x), Self::Column(_, y) | Self::Alias(y)) => x == y,
            (Self::Expr(x), Self::Expr(y)) => x == y,
            _ => false,
        }
    }

    /// Is it among the columns of a `*`?
    fn is_of(&self, star: &Option<String>) -> bool {
        match (self, star) {
            (Self::Column(..), None) => true,
            (Self::Column(of, _), Some(table)) => of.as_ref().is_none_or(|of| of == table),
            _ => false,
        }
    }
}

/// Is it an expression without a name, and more than a column?
fn is_computed(item: &SelectItem) -> bool {
    let SelectItem::UnnamedExpr(expr) = item else { return false };
    let is_column = matches!(ItemName::of(item), Some(ItemName::Column(..)));
    !is_column || is_subquery(item) || matches!(expr, ast::Expr::Cast { .. })
}

fn is_subquery(item: &SelectItem) -> bool {
    let SelectItem::UnnamedExpr(expr) = item else { return false };
    matches!(without_casts(expr), ast::Expr::Subquery(_))
}

fn without_casts(expr: &ast::Expr) -> &ast::Expr {
    match expr {
        ast::Expr::Nested(inner) | ast::Expr::Cast { expr: inner, .. } => without_casts(inner),
        other => other,
    }
}

/// An expression's text without casts and brackets.
fn text(expr: &ast::Expr) -> String {
    let mut plain = expr.clone();
    let _ = VisitMut::visit(&mut plain, &mut Plain);
    plain.to_string().to_lowercase()
}

struct Plain;

impl VisitorMut for Plain {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut ast::Expr) -> ControlFlow<()> {
        *expr = match &*expr {
            // All have one name.
            ast::Expr::Subquery(_) => ast::Expr::Identifier(Ident::new("(<subquery>)")),
            ast::Expr::Exists { .. } => ast::Expr::Identifier(Ident::new("EXISTS")),
            ast::Expr::InSubquery { .. } => ast::Expr::Identifier(Ident::new("IN")),
            other => without_casts(other).clone(),
        };
        ControlFlow::Continue(())
    }
}

fn give_other_name(item: &mut SelectItem, number: usize) {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => {
            *alias = Ident::with_quote('"', format!("{}{MARK}{number}", normal(alias)));
        }
        SelectItem::UnnamedExpr(expr) => {
            let expr = expr.clone();
            let alias = Ident::with_quote('"', format!("{MARK}{number}"));
            *item = SelectItem::ExprWithAlias { expr, alias };
        }
        _ => {}
    }
}

fn called(cast: ast::Expr, data_type: String) -> ast::Expr {
    let arg = |expr| ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr));
    let data_type = ast::Expr::value(ast::Value::SingleQuotedString(data_type));
    let args = ast::FunctionArgumentList {
        duplicate_treatment: None,
        args: vec![arg(cast), arg(data_type)],
        clauses: Vec::new(),
    };
    ast::Expr::Function(ast::Function {
        name: ast::ObjectName::from(vec![Ident::with_quote('"', CAST)]),
        uses_odbc_syntax: false,
        parameters: ast::FunctionArguments::None,
        args: ast::FunctionArguments::List(args),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// The plan of a statement with such names: columns have names that say what they are, and casts are
/// casts again.
///
/// # Errors
/// If a table or a file would get two columns of one name.
pub(crate) fn with_names(plan: LogicalPlan) -> Result<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(without_calls)?.data;
    let mut names = HashMap::new();
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            if let Expr::Alias(alias) = expr
                && alias.name.starts_with(MARK)
            {
                let (_, shown) = alias.expr.qualified_name();
                names.insert(alias.name.clone(), format!("{shown}{}", alias.name));
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    let plan = plan.transform_up_with_subqueries(|node| renamed(node, &names))?.data;
    let written = match &plan {
        LogicalPlan::Copy(copy) => Some(&copy.input),
        LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)) => Some(&create.input),
        _ => None,
    };
    let fields = written.iter().flat_map(|input| input.schema().fields());
    if let Some(again) = fields.map(|field| field.name()).find(|name| name.contains(MARK)) {
        let name = shown_name(again);
        let what = format!("two columns are called `{name}`");
        return Err(EngineError::statement(SqlState::DuplicateColumn, what)
            .with_hint("give one of them a name with AS")
            .into());
    }
    Ok(plan)
}

fn without_calls(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if let LogicalPlan::Aggregate(aggregate) = &node {
        let has_call = |key: &Expr| key.exists(|part| Ok(is_call(part))).unwrap_or_default();
        // What is left of a call in GROUPING SETS would have no name.
        if let Some(grouped) = keys_below(aggregate, has_call, |key| key)? {
            let plain = grouped.transform_up(without_calls)?;
            return Ok(Transformed::yes(plain.data));
        }
    }
    let names = NamePreserver::new(&node);
    node.map_expressions(|expr| {
        let name = names.save(&expr);
        let plain = expr.transform_up(|part| match part {
            Expr::ScalarFunction(call) if call.func.inner().is::<Named>() => {
                match call.args.into_iter().next() {
                    Some(cast) => Ok(Transformed::yes(cast)),
                    None => internal_err!("{CAST} has two arguments"),
                }
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(plain.update_data(|expr| name.restore(expr)))
    })
}

fn is_call(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if call.func.inner().is::<Named>())
}

fn renamed(node: LogicalPlan, names: &HashMap<String, String>) -> Result<Transformed<LogicalPlan>> {
    let column = |column: Column| match names.get(&column.name) {
        Some(name) => Column { name: name.clone(), ..column },
        None => column,
    };
    let node = node.map_expressions(|expr| {
        expr.transform_up(|part| match part {
            Expr::Alias(mut alias) => match names.get(&alias.name) {
                Some(name) => {
                    alias.name.clone_from(name);
                    Ok(Transformed::yes(Expr::Alias(alias)))
                }
                None => Ok(Transformed::no(Expr::Alias(alias))),
            },
            Expr::Column(found) => Ok(Transformed::yes(Expr::Column(column(found)))),
            Expr::OuterReferenceColumn(field, found) => {
                Ok(Transformed::yes(Expr::OuterReferenceColumn(field, column(found))))
            }
            other => Ok(Transformed::no(other)),
        })
    })?;
    let node = match node.data {
        // It keeps the names that it has.
        LogicalPlan::Union(union) => {
            LogicalPlan::Union(Union::try_new_with_loose_types(union.inputs)?)
        }
        other => other.recompute_schema()?,
    };
    Ok(Transformed::yes(node))
}

/// The function that gives a cast a name, until a statement is planned.
pub(crate) fn named_cast() -> Arc<ScalarUDF> {
    let signature = Signature::any(2, Volatility::Immutable);
    Arc::new(ScalarUDF::from(Named { signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Named {
    signature: Signature,
}

impl ScalarUDFImpl for Named {
    fn name(&self) -> &'static str {
        CAST
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        match args {
            [cast, Expr::Literal(data_type, _)] => {
                Ok(format!("CAST({} AS {data_type})", cast.schema_name()))
            }
            _ => internal_err!("{CAST} has a cast and its type"),
        }
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [data_type, _] => Ok(data_type.clone()),
            _ => internal_err!("{CAST} has two arguments"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.into_iter().next() {
            Some(value) => Ok(value),
            None => internal_err!("{CAST} has two arguments"),
        }
    }
}
