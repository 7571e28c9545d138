//! The key of `a FULL JOIN b USING (k)` by itself, which is neither a's nor b's.
//!
//! DataFusion 55 takes the left table's for every join, joins a third table by that, keeps the table's
//! whose name comes first in the alphabet in `SELECT *`, and finds k ambiguous in WHERE. So the joins get
//! a column of their own, at the place of the left table's:
//!
//! ```text
//! a FULL JOIN b USING (k)         (a FULL JOIN b USING (k)) AS "#using"     name_merged_columns
//!
//!                                 Projection  coalesce(a.k, b.k) AS "#using".k, a.k, a.x, b.k, b.y
//!                                   Join  Full, a.k = b.k                   MergedColumns
//! ```
//!
//! That k is "#using".k is known from the tree where joins have USING, and the tree's WHERE and ON say so.
//! Elsewhere, and for NATURAL joins, DataFusion has to find it among the three: it does if there is a join
//! USING them above the projection. This mark is an anti join without rows on its right, which changes
//! nothing, and [`without_marks`] takes it out when names have been found.
//!
//! # Invariants
//! - A statement stays as it is if it has one such join, INNER or LEFT, no `*`, and k only where the left
//!   table's will do.
//! - "#using" sorts before every table's name, and comes before the columns that it merges.
//!
//! # Not here
//! Keys of NATURAL joins in WHERE, and those of an outer query in a subquery, are ambiguous still.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{
    Column, DFSchema, JoinConstraint, JoinType, NullEquality, Result, TableReference, internal_err,
    plan_err,
};
use datafusion::functions::core::expr_fn::coalesce;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::utils::expand_wildcard;
use datafusion::logical_expr::{
    EmptyRelation, Expr, Join, LogicalPlan, LogicalPlanBuilder, Projection, lit,
};
use datafusion::sql::sqlparser::ast::{
    self, Ident, JoinOperator, ObjectName, SelectItem, SelectItemQualifiedWildcardKind,
    TableFactor, TableWithJoins, Visit, VisitMut, Visitor, VisitorMut,
};

/// How the names begin that merged columns have for a table.
const MERGED: &str = "#using";

/// Names the joins of a SELECT that merge columns, if it would be read wrongly otherwise. `named` counts
/// the statement's names so far.
pub(crate) fn name_merged_columns(select: &mut ast::Select, named: &mut usize) {
    let nested = |factor: &TableFactor| matches!(factor, TableFactor::NestedJoin { .. });
    if !select.from.iter().any(|t| !t.joins.is_empty() || nested(&t.relation)) {
        return;
    }
    let mut mended = select.clone();
    let mut joins = Joins { named, count: 0, misread: false };
    let mut scope = Scope::default();
    mended.from.clear();
    for tables in select.from.clone() {
        let (tables, its) = joins.tables(tables);
        mended.from.push(tables);
        scope.beside(its);
    }
    let Joins { count, misread, .. } = joins;
    let mut names = NameKeys { keys: &scope.keys, depth: 0, found: false };
    names.within(&mut mended.selection);
    if names_others(&select.projection, &scope.keys) {
        // There, k would be the column of the SELECT list.
        names.within(&mut mended.group_by);
        names.within(&mut mended.having);
        names.within(&mut mended.qualify);
    }
    let all = select.projection.iter().any(|item| matches!(item, SelectItem::Wildcard(_)));
    if count > 0 && (misread || all || names.found) {
        *select = mended;
    }
}

/// What a part of FROM has.
#[derive(Default)]
struct Scope {
    tables: Vec<String>,
    /// What its joins merge, by name; `None` where two columns have the name.
    keys: HashMap<String, Option<Key>>,
}

struct Key {
    /// The name that stands for a table.
    merged: String,
    /// The tables whose column is always equal to it.
    tables: Vec<String>,
}

impl Scope {
    fn named(factor: &TableFactor) -> Self {
        let table = match factor {
            TableFactor::Table { alias: Some(alias), .. }
            | TableFactor::Derived { alias: Some(alias), .. }
            | TableFactor::Function { alias: Some(alias), .. }
            | TableFactor::TableFunction { alias: Some(alias), .. }
            | TableFactor::UNNEST { alias: Some(alias), .. }
            | TableFactor::NestedJoin { alias: Some(alias), .. } => Some(&alias.name),
            TableFactor::Table { name, alias: None, .. } => last_part(name),
            _ => None,
        };
        Self { tables: table.map(normal).into_iter().collect(), keys: HashMap::new() }
    }

    fn beside(&mut self, right: Self) {
        self.tables.extend(right.tables);
        for (name, key) in right.keys {
            match self.keys.entry(name) {
                Entry::Occupied(mut both) => {
                    both.insert(None);
                }
                Entry::Vacant(place) => {
                    place.insert(key);
                }
            }
        }
    }

    fn merged_with(&mut self, right: Self, join_type: JoinType, names: &[String], merged: &str) {
        let key = |name: &String| {
            let (left, right) = (self.tables_of(name), right.tables_of(name));
            let tables = match join_type {
                JoinType::Left => left,
                JoinType::Right => right,
                JoinType::Full => Vec::new(),
                _ => [left, right].concat(),
            };
            (name.clone(), Some(Key { merged: merged.to_owned(), tables }))
        };
        let keys: Vec<_> = names.iter().map(key).collect();
        self.beside(right);
        self.keys.extend(keys);
    }

    /// The tables that have a key's values in this part: all may, as only one of them has such a column.
    fn tables_of(&self, name: &str) -> Vec<String> {
        match self.keys.get(name) {
            Some(Some(key)) => key.tables.clone(),
            _ => self.tables.clone(),
        }
    }
}

/// The joins of a SELECT that merge columns.
struct Joins<'a> {
    named: &'a mut usize,
    count: usize,
    /// Does DataFusion read them wrongly, whatever the SELECT asks for?
    misread: bool,
}

impl Joins<'_> {
    /// Puts all up to each join that merges columns into brackets with a name.
    fn tables(&mut self, tables: TableWithJoins) -> (TableWithJoins, Scope) {
        let (relation, mut scope) = self.factor(tables.relation);
        let mut tables_so_far = TableWithJoins { relation, joins: Vec::new() };
        let mut merged: Option<String> = None;
        for join in tables.joins {
            let (relation, right) = self.factor(join.relation);
            let mut join = ast::Join { relation, ..join };
            let Some((join_type, constraint)) = merging(&join) else {
                scope.beside(right);
                let mut names = NameKeys { keys: &scope.keys, depth: 0, found: false };
                names.within(&mut join.join_operator);
                self.misread |= names.found;
                tables_so_far.joins.push(join);
                continue;
            };
            self.count += 1;
            // A NATURAL join without a name in common is a cross join, even if it is an outer one.
            let natural = *constraint == ast::JoinConstraint::Natural;
            let plain = join_type == JoinType::Inner || (join_type == JoinType::Left && !natural);
            self.misread |= self.count > 1 || !plain;
            let name = merged.get_or_insert_with(|| next_name(self.named)).clone();
            let keys: Vec<String> = match constraint {
                ast::JoinConstraint::Using(keys) => {
                    keys.iter().filter_map(last_part).map(normal).collect()
                }
                _ => Vec::new(),
            };
            scope.merged_with(right, join_type, &keys, &name);
            tables_so_far.joins.push(join);
            let relation = bracketed(tables_so_far, Some(Ident::with_quote('"', name)));
            tables_so_far = TableWithJoins { relation, joins: Vec::new() };
        }
        (tables_so_far, scope)
    }

    fn factor(&mut self, factor: TableFactor) -> (TableFactor, Scope) {
        match factor {
            TableFactor::NestedJoin { table_with_joins, alias } => {
                let before = self.count;
                let (tables, scope) = self.tables(*table_with_joins);
                let hidden = alias.is_some();
                self.misread |= hidden && self.count > before;
                let table_with_joins = Box::new(tables);
                let factor = TableFactor::NestedJoin { table_with_joins, alias };
                let scope = if hidden { Scope::named(&factor) } else { scope };
                (factor, scope)
            }
            other => {
                let scope = Scope::named(&other);
                (other, scope)
            }
        }
    }
}

fn next_name(named: &mut usize) -> String {
    *named += 1;
    match *named {
        1 => MERGED.to_owned(),
        number => format!("{MERGED}{number}"),
    }
}

fn bracketed(tables: TableWithJoins, name: Option<Ident>) -> TableFactor {
    let alias = |name| ast::TableAlias { explicit: true, name, columns: Vec::new(), at: None };
    TableFactor::NestedJoin { table_with_joins: Box::new(tables), alias: name.map(alias) }
}

/// How a join that merges columns joins, and what it says of them.
fn merging(join: &ast::Join) -> Option<(JoinType, &ast::JoinConstraint)> {
    // What is planned with the tables before it in sight has to stay beside them.
    let lateral = matches!(
        join.relation,
        TableFactor::Derived { lateral: true, .. }
            | TableFactor::Function { lateral: true, .. }
            | TableFactor::UNNEST { .. }
    );
    let (join_type, constraint) = match &join.join_operator {
        JoinOperator::Join(by) | JoinOperator::Inner(by) => (JoinType::Inner, by),
        JoinOperator::Left(by) | JoinOperator::LeftOuter(by) => (JoinType::Left, by),
        JoinOperator::Right(by) | JoinOperator::RightOuter(by) => (JoinType::Right, by),
        JoinOperator::FullOuter(by) => (JoinType::Full, by),
        _ => return None,
    };
    let merges = matches!(constraint, ast::JoinConstraint::Using(_) | ast::JoinConstraint::Natural);
    (merges && !lateral).then_some((join_type, constraint))
}

pub(super) fn last_part(name: &ObjectName) -> Option<&Ident> {
    name.0.last().and_then(|part| part.as_ident())
}

/// A name as DataFusion compares it.
pub(super) fn normal(name: &Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_ascii_lowercase(),
    }
}

/// Does a SELECT list name a key's column of a table that has other values in it?
fn names_others(projection: &[SelectItem], keys: &HashMap<String, Option<Key>>) -> bool {
    projection.iter().any(|item| match item {
        SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
            let table = last_part(name).map(normal);
            let other = |key: &Key| table.as_ref().is_some_and(|t| !key.tables.contains(t));
            keys.values().flatten().any(other)
        }
        item => item.visit(&mut FindOthers { keys, depth: 0 }).is_break(),
    })
}

/// Ends at a table's column that is called like a key and is not equal to it, outside of subqueries.
struct FindOthers<'a> {
    keys: &'a HashMap<String, Option<Key>>,
    depth: usize,
}

impl Visitor for FindOthers<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &ast::Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &ast::Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &ast::Expr) -> ControlFlow<()> {
        if let (0, ast::Expr::CompoundIdentifier(parts)) = (self.depth, expr)
            && let [.., table, column] = parts.as_slice()
            && let Some(Some(key)) = self.keys.get(&normal(column))
            && !key.tables.contains(&normal(table))
        {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

/// Writes `"#using".k` for k, but not in subqueries, which may have a k of their own.
struct NameKeys<'a> {
    keys: &'a HashMap<String, Option<Key>>,
    depth: usize,
    found: bool,
}

impl NameKeys<'_> {
    fn within(&mut self, part: &mut impl VisitMut) {
        // It never ends early.
        let _ = VisitMut::visit(part, self);
    }
}

impl VisitorMut for NameKeys<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut ast::Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut ast::Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut ast::Expr) -> ControlFlow<()> {
        match expr {
            // Its parameters may be called like keys.
            ast::Expr::Lambda(_) => self.depth += 1,
            ast::Expr::Identifier(name) if self.depth == 0 => {
                if let Some(Some(key)) = self.keys.get(&normal(name)) {
                    let table = Ident::with_quote('"', key.merged.as_str());
                    *expr = ast::Expr::CompoundIdentifier(vec![table, name.clone()]);
                    self.found = true;
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut ast::Expr) -> ControlFlow<()> {
        if matches!(expr, ast::Expr::Lambda(_)) {
            self.depth -= 1;
        }
        ControlFlow::Continue(())
    }
}

/// Plans what [`name_merged_columns`] has named.
#[derive(Debug)]
pub(super) struct MergedColumns;

impl RelationPlanner for MergedColumns {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let (tables, alias) = match relation {
            TableFactor::NestedJoin { table_with_joins, alias: Some(alias) } => {
                (*table_with_joins, alias)
            }
            other => return Ok(RelationPlanning::Original(Box::new(other))),
        };
        let planned = if alias.name.value.starts_with(MERGED) {
            PlannedRelation::new(merged_join(tables, &alias.name.value, context)?, None)
        } else {
            let plan = context.plan(bracketed(tables, None))?;
            PlannedRelation::new(with_each_key_once(plan)?, Some(alias))
        };
        Ok(RelationPlanning::Planned(Box::new(planned)))
    }
}

/// Joins all before the last join with its table, and puts the keys that they share first.
fn merged_join(
    mut tables: TableWithJoins,
    merged: &str,
    context: &mut dyn RelationPlannerContext,
) -> Result<LogicalPlan> {
    let Some(join) = tables.joins.pop() else {
        return internal_err!("{merged} names a join");
    };
    let Some((join_type, constraint)) = merging(&join) else {
        return internal_err!("{merged} names a join that merges columns");
    };
    let using = match constraint {
        ast::JoinConstraint::Using(names) => Some(key_names(names, context)?),
        _ => None,
    };
    let left = context.plan(bracketed(tables, None))?;
    let right = context.plan(join.relation)?;
    let mut names = using.unwrap_or_else(|| shared_names(left.schema(), right.schema()));
    let mut known = HashSet::new();
    names.retain(|name| known.insert(name.clone()));
    let both = |name: &String| -> Result<(Column, Column)> {
        Ok((key_of(&left, name)?, key_of(&right, name)?))
    };
    let keys = names.iter().map(both).collect::<Result<Vec<_>>>()?;

    let mut columns = Vec::new();
    for column in left.schema().columns() {
        if let Some((l, r)) = keys.iter().find(|(l, _)| *l == column) {
            let table = TableReference::bare(merged);
            columns.push(merged_key(join_type, l, r).alias_qualified(Some(table), &l.name));
            if is_merged(&column) {
                continue;
            }
        }
        columns.push(Expr::Column(column));
    }
    for column in right.schema().columns() {
        if !(is_merged(&column) && keys.iter().any(|(_, r)| *r == column)) {
            columns.push(Expr::Column(column));
        }
    }
    let mut on: Vec<Expr> =
        keys.iter().map(|(l, r)| Expr::Column(l.clone()).eq(Expr::Column(r.clone()))).collect();
    if on.is_empty() {
        on.push(lit(true));
    }
    let joined = LogicalPlanBuilder::from(left).join_on(right, join_type, on)?.build()?;
    let plan = LogicalPlan::Projection(Projection::try_new(columns, Arc::new(joined))?);
    Ok(marked(plan, merged, &names))
}

fn key_names(names: &[ObjectName], context: &dyn RelationPlannerContext) -> Result<Vec<String>> {
    let name = |name: &ObjectName| match (name.0.len(), last_part(name)) {
        (1, Some(ident)) => Ok(context.normalize_ident(ident.clone())),
        _ => plan_err!("USING takes names of columns, without tables: {name}"),
    };
    names.iter().map(name).collect()
}

fn shared_names(left: &DFSchema, right: &DFSchema) -> Vec<String> {
    let names = right.fields().iter().map(|field| field.name());
    names.filter(|name| left.has_column_with_unqualified_name(name)).cloned().collect()
}

/// The column of a side that is called so; the merged one, if its own joins merged some.
fn key_of(side: &LogicalPlan, name: &str) -> Result<Column> {
    Column::from_name(name)
        .normalize_with_schemas_and_ambiguity_check(&[&[side.schema()]], &side.using_columns()?)
}

fn merged_key(join_type: JoinType, left: &Column, right: &Column) -> Expr {
    let (left, right) = (Expr::Column(left.clone()), Expr::Column(right.clone()));
    match join_type {
        JoinType::Full => coalesce(vec![left, right]),
        JoinType::Right => right,
        _ => left,
    }
}

fn is_merged(column: &Column) -> bool {
    column.relation.as_ref().is_some_and(|table| table.table().starts_with(MERGED))
}

/// The plan with the mark by which `k` and `*` find the merged columns.
fn marked(plan: LogicalPlan, merged: &str, names: &[String]) -> LogicalPlan {
    let mut on = Vec::new();
    for column in plan.schema().columns() {
        let key = Column::new(Some(TableReference::bare(merged)), &column.name);
        if names.contains(&column.name) && column != key {
            on.push((Expr::Column(key), Expr::Column(column)));
        }
    }
    if on.is_empty() {
        return plan;
    }
    let schema = Arc::clone(plan.schema());
    let nothing = EmptyRelation { produce_one_row: false, schema: Arc::clone(&schema) };
    LogicalPlan::Join(Join {
        left: Arc::new(plan),
        right: Arc::new(LogicalPlan::EmptyRelation(nothing)),
        on,
        filter: None,
        join_type: JoinType::LeftAnti,
        join_constraint: JoinConstraint::Using,
        schema,
        null_equality: NullEquality::NullEqualsNothing,
        null_aware: false,
    })
}

fn is_mark(join: &Join) -> bool {
    let empty = matches!(join.right.as_ref(), LogicalPlan::EmptyRelation(e) if !e.produce_one_row);
    empty && join.join_type == JoinType::LeftAnti && join.join_constraint == JoinConstraint::Using
}

/// The plan without the marks that [`MergedColumns`] left.
pub(crate) fn without_marks(plan: LogicalPlan) -> Result<LogicalPlan> {
    let without = plan.transform_down_with_subqueries(|node| match node {
        LogicalPlan::Join(join) if is_mark(&join) => {
            Ok(Transformed::yes(Arc::unwrap_or_clone(join.left)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(without.data)
}

/// What `*` has of a join in brackets with an alias.
fn with_each_key_once(plan: LogicalPlan) -> Result<LogicalPlan> {
    let columns = expand_wildcard(plan.schema(), &plan, None)?;
    if columns.len() == plan.schema().fields().len() {
        return Ok(plan);
    }
    Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(plan))?))
}

#[cfg(test)]
mod tests {
    use crate::statement::parse;

    fn check(text: &str, expected: &str) {
        let statements = parse(text).unwrap();
        assert_eq!(statements[0].parsed.to_string(), expected, "{text}");
    }

    #[test]
    fn what_is_read_rightly_stays() {
        for text in [
            "SELECT k, x FROM l JOIN r USING(k) GROUP BY k, x",
            "SELECT k, l.k, r.* FROM l LEFT JOIN r USING(k) WHERE x = 1",
            "SELECT l.k, count(x) FROM l LEFT JOIN r USING(k) GROUP BY k",
            "SELECT * FROM l LEFT SEMI JOIN r USING(k) WHERE k = 1",
            "SELECT * FROM l FULL JOIN r ON l.k = r.k WHERE k = 1",
            "SELECT x FROM l NATURAL JOIN r",
        ] {
            check(text, text);
        }
    }

    #[test]
    fn outer_joins_and_stars_are_named() {
        for (text, expected) in [
            (
                "SELECT k FROM l FULL JOIN r USING (K)",
                r##"SELECT k FROM (l FULL JOIN r USING(K)) AS "#using""##,
            ),
            (
                "SELECT * FROM l NATURAL JOIN r JOIN s ON true",
                r##"SELECT * FROM (l NATURAL JOIN r) AS "#using" JOIN s ON true"##,
            ),
            (
                "SELECT j.k FROM (l LEFT JOIN r USING (k)) j",
                r##"SELECT j.k FROM ((l LEFT JOIN r USING(k)) AS "#using") j"##,
            ),
            (
                "SELECT x FROM a JOIN b USING (k) JOIN c USING (k)",
                r##"SELECT x FROM ((a JOIN b USING(k)) AS "#using" JOIN c USING(k)) AS "#using""##,
            ),
            (
                "SELECT x FROM a RIGHT JOIN b USING (k) \
                 WHERE x IN (SELECT * FROM c JOIN d USING (j))",
                concat!(
                    r##"SELECT x FROM (a RIGHT JOIN b USING(k)) AS "#using" "##,
                    r##"WHERE x IN (SELECT * FROM (c JOIN d USING(j)) AS "#using2")"##,
                ),
            ),
        ] {
            check(text, expected);
        }
    }

    #[test]
    fn keys_are_named_where_it_is_known_whose_they_are() {
        for (text, expected) in [
            (
                "SELECT x FROM l JOIN r USING (k) WHERE k = 1 AND l.k IN (SELECT k FROM s)",
                concat!(
                    r##"SELECT x FROM (l JOIN r USING(k)) AS "#using" "##,
                    r##"WHERE "#using".k = 1 AND l.k IN (SELECT k FROM s)"##,
                ),
            ),
            (
                "SELECT x FROM a JOIN b USING (k) JOIN c ON c.j = k",
                r##"SELECT x FROM (a JOIN b USING(k)) AS "#using" JOIN c ON c.j = "#using".k"##,
            ),
            (
                "SELECT x FROM a JOIN b USING (k), c JOIN d USING (k, j) WHERE k = j",
                concat!(
                    r##"SELECT x FROM (a JOIN b USING(k)) AS "#using", "##,
                    r##"(c JOIN d USING(k, j)) AS "#using2" WHERE k = "#using2".j"##,
                ),
            ),
            (
                "SELECT l.k, count(x) FROM l FULL JOIN r USING (k) GROUP BY k HAVING k > 1",
                concat!(
                    r##"SELECT l.k, count(x) FROM (l FULL JOIN r USING(k)) AS "#using" "##,
                    r##"GROUP BY "#using".k HAVING "#using".k > 1"##,
                ),
            ),
            (
                "SELECT r.k, count(x) FROM l LEFT JOIN r USING (k) GROUP BY k",
                concat!(
                    r##"SELECT r.k, count(x) FROM (l LEFT JOIN r USING(k)) AS "#using" "##,
                    r##"GROUP BY "#using".k"##,
                ),
            ),
            (
                "SELECT r.k, count(x) FROM l RIGHT JOIN r USING (k) GROUP BY k",
                concat!(
                    r##"SELECT r.k, count(x) FROM (l RIGHT JOIN r USING(k)) AS "#using" "##,
                    "GROUP BY k",
                ),
            ),
        ] {
            check(text, expected);
        }
    }
}
