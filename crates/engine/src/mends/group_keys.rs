//! GROUP BY a primary key, which stands for the other columns of its table.
//!
//! DataFusion adds them itself if a table tells it the key. But then it relies on the key to leave out
//! DISTINCT and joins, too, and other writers of Delta tables do not keep it. So a statement that is refused
//! gets the columns that it uses added to its GROUP BY, and is planned again.
//!
//! ```text
//! SELECT id, name, count(*) FROM t GROUP BY id      … GROUP BY id, t."name"
//! ```
//!
//! # Invariants
//! - Rows that differ in what is shown are never one group, whoever wrote them.
//! - A statement that DataFusion takes stays as it is.
//!
//! # Not here
//! GROUPING SETS, ROLLUP and CUBE, and keys by the names that a derived table has for them.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::parser::{CopyToSource, CopyToStatement, Statement as DfStatement};
use datafusion::sql::sqlparser::ast::{
    self, Expr, GroupByExpr, Ident, ObjectName, OrderBy, Select, SelectItem,
    SelectItemQualifiedWildcardKind, TableAlias, TableFactor, TableWithJoins, Value, Visit,
    VisitMut, Visitor, VisitorMut,
};

use crate::scan::lake_table::{LakeTable, Tables};
use crate::sql::using_joins::{last_part, normal};

/// Adds the columns that primary keys decide to each GROUP BY; are there any?
pub(crate) fn name_decided_columns(
    statement: &mut DfStatement,
    tables: &Tables,
    is_aggregate: &dyn Fn(&str) -> bool,
) -> bool {
    let mut names = CommonNames::default();
    let mut columns = DecidedColumns { tables, is_aggregate, hidden: HashSet::new(), found: false };
    match statement {
        DfStatement::Statement(inner) => {
            let _ = Visit::visit(&**inner, &mut names);
            columns.hidden = names.0;
            let _ = VisitMut::visit(&mut **inner, &mut columns);
        }
        DfStatement::CopyTo(CopyToStatement { source: CopyToSource::Query(query), .. }) => {
            let _ = Visit::visit(&**query, &mut names);
            columns.hidden = names.0;
            let _ = VisitMut::visit(&mut **query, &mut columns);
        }
        DfStatement::Explain(explain) => {
            return name_decided_columns(&mut explain.statement, tables, is_aggregate);
        }
        _ => {}
    }
    columns.found
}

/// The names that WITH gives.
#[derive(Default)]
struct CommonNames(HashSet<String>);

impl Visitor for CommonNames {
    type Break = ();

    fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
        let named = query.with.iter().flat_map(|with| &with.cte_tables);
        self.0.extend(named.map(|table| normal(&table.alias.name)));
        ControlFlow::Continue(())
    }
}

struct DecidedColumns<'a> {
    tables: &'a Tables,
    is_aggregate: &'a dyn Fn(&str) -> bool,
    /// Names that may not be the lake's tables here.
    hidden: HashSet<String>,
    found: bool,
}

impl VisitorMut for DecidedColumns<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<()> {
        if let ast::SetExpr::Select(select) = query.body.as_mut() {
            self.name_columns(select, query.order_by.as_ref());
        }
        ControlFlow::Continue(())
    }

    /// Parts of a UNION, which have no ORDER BY.
    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        self.name_columns(select, None);
        ControlFlow::Continue(())
    }
}

impl DecidedColumns<'_> {
    fn name_columns(&mut self, select: &mut Select, order: Option<&OrderBy>) {
        let GroupByExpr::Expressions(keys, modifiers) = &select.group_by else { return };
        let is_set =
            |key: &Expr| matches!(key, Expr::GroupingSets(_) | Expr::Rollup(_) | Expr::Cube(_));
        if keys.is_empty() || !modifiers.is_empty() || keys.iter().any(is_set) {
            return;
        }
        let keys: Vec<Column> =
            keys.iter().filter_map(|key| column(meant(key, &select.projection))).collect();
        let used = self.uses(select, order);
        let mut added = Vec::new();
        for (name, table) in select.from.iter().flat_map(|tables| self.keyed(tables)) {
            let is = |(of, column): &Column, wanted: &str| {
                *column == wanted && of.as_ref().is_none_or(|of| *of == normal(name))
            };
            let is_key = |wanted: &str| keys.iter().any(|key| is(key, wanted));
            let snapshot = table.snapshot();
            if !snapshot.primary_key().iter().all(|column| is_key(&column.to_lowercase())) {
                continue;
            }
            let all = shows_all(&select.projection, name);
            let columns = snapshot.schema().fields().iter().map(|f| f.name().to_lowercase());
            let wanted = columns.filter(|c| !is_key(c) && (all || used.iter().any(|u| is(u, c))));
            added.extend(wanted.map(|column| {
                Expr::CompoundIdentifier(vec![name.clone(), Ident::with_quote('"', column)])
            }));
        }
        self.found |= !added.is_empty();
        if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
            keys.extend(added);
        }
    }

    fn uses(&self, select: &Select, order: Option<&OrderBy>) -> Vec<Column> {
        let mut uses = Uses { is_aggregate: self.is_aggregate, depth: 0, columns: Vec::new() };
        let _ = select.projection.visit(&mut uses);
        let _ = select.having.visit(&mut uses);
        let _ = select.qualify.visit(&mut uses);
        if let Some(order) = order {
            let _ = order.visit(&mut uses);
        }
        uses.columns
    }

    /// The tables with a primary key in a part of FROM, by the names that they have there.
    fn keyed<'b>(&'b self, tables: &'b TableWithJoins) -> Vec<(&'b Ident, &'b LakeTable)> {
        let joined = tables.joins.iter().map(|join| &join.relation);
        let factors = std::iter::once(&tables.relation).chain(joined);
        let keyed = factors.flat_map(|factor| match factor {
            TableFactor::Table { name, alias, args: None, .. } => {
                self.keyed_table(name, alias.as_ref()).into_iter().collect()
            }
            TableFactor::NestedJoin { table_with_joins, alias: None } => {
                self.keyed(table_with_joins)
            }
            _ => Vec::new(),
        });
        keyed.collect()
    }

    fn keyed_table<'b>(
        &'b self,
        name: &'b ObjectName,
        alias: Option<&'b TableAlias>,
    ) -> Option<(&'b Ident, &'b LakeTable)> {
        let last = last_part(name)?;
        let asked = normal(last);
        if self.hidden.contains(&asked) || alias.is_some_and(|alias| !alias.columns.is_empty()) {
            return None;
        }
        let (_, table) = self.tables.iter().find(|(known, _)| *known == asked)?;
        let has_key = !table.snapshot().primary_key().is_empty();
        has_key.then(|| (alias.map_or(last, |alias| &alias.name), table.as_ref()))
    }
}

/// A column's name, and its table's where that is said.
type Column = (Option<String>, String);

fn column(expr: &Expr) -> Option<Column> {
    match expr {
        Expr::Identifier(name) => Some((None, normal(name))),
        Expr::CompoundIdentifier(parts) => match parts.as_slice() {
            [table, name] => Some((Some(normal(table)), normal(name))),
            _ => None,
        },
        Expr::Nested(inner) => column(inner),
        _ => None,
    }
}

/// `GROUP BY 1` is by the first of the SELECT list.
fn meant<'a>(key: &'a Expr, projection: &'a [SelectItem]) -> &'a Expr {
    let Expr::Value(value) = key else { return key };
    let Value::Number(number, _) = &value.value else { return key };
    let place = number.parse::<usize>().ok().and_then(|n| n.checked_sub(1));
    match place.and_then(|place| projection.get(place)) {
        Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) => expr,
        _ => key,
    }
}

/// Does a SELECT list have `*`, or `t.*` of that table?
fn shows_all(projection: &[SelectItem], table: &Ident) -> bool {
    projection.iter().any(|item| match item {
        SelectItem::Wildcard(_) => true,
        SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
            last_part(name).is_some_and(|name| normal(name) == normal(table))
        }
        _ => false,
    })
}

/// The columns outside aggregates.
struct Uses<'a> {
    is_aggregate: &'a dyn Fn(&str) -> bool,
    /// Aggregates around this place.
    depth: usize,
    columns: Vec<Column>,
}

impl Uses<'_> {
    fn is_aggregate(&self, expr: &Expr) -> bool {
        let Expr::Function(call) = expr else { return false };
        let name = last_part(&call.name).map(normal);
        call.over.is_none() && name.is_some_and(|name| (self.is_aggregate)(&name))
    }
}

impl Visitor for Uses<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        self.depth += usize::from(self.is_aggregate(expr));
        if self.depth == 0 {
            self.columns.extend(column(expr));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        self.depth -= usize::from(self.is_aggregate(expr));
        ControlFlow::Continue(())
    }
}
