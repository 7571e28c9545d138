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
//!                                   Join  Full, a.k = b.k                   merged_joins
//! ```
//!
//! The columns of a and b that are called k are left out unless the SELECT names them with their table, so
//! that k is "#using".k everywhere. The alias of the brackets has a list of those that stay.
//!
//! Where they stay, DataFusion has to find k among the three. That it is "#using".k is known from the tree
//! where joins have USING, and the tree's WHERE and ON say so. Elsewhere, and for NATURAL joins, it is found
//! if there is a join USING the three above the projection. This mark is an anti join without rows on its
//! right, which changes nothing, and `without_marks` of `merged_joins` takes it out when names have been found.
//!
//! In a subquery DataFusion takes a name that is ambiguous there for the outer query's, without a word. So
//! its joins are always named, its tree says "#using".k everywhere, and NATURAL joins are refused there if
//! they have columns that stay.
//!
//! # Invariants
//! - A statement stays as it is if it has one such join, INNER or LEFT and with USING, no `*`, is no subquery,
//!   and has k only where the left table's will do.
//! - "#using" sorts before every table's name, and comes before the columns that it merges.
//!
//! # Not here
//! Keys that are named without and with their table, of NATURAL joins in WHERE and of an outer query in a
//! subquery, are ambiguous still.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use datafusion::common::JoinType;
use datafusion::sql::sqlparser::ast::{
    self, Ident, JoinOperator, ObjectName, SelectItem, SelectItemQualifiedWildcardKind,
    TableFactor, TableWithJoins, Visit, VisitMut, Visitor, VisitorMut,
};

/// How the names begin that merged columns have for a table.
pub(super) const MERGED: &str = "#using";
/// In the list of a NATURAL join's columns: it is in a subquery.
pub(super) const WITHIN: &str = "#within";

/// Where a SELECT stands.
#[derive(Default)]
pub(crate) struct Place {
    /// In a subquery of an expression?
    pub within: bool,
    /// What its query's ORDER BY names.
    pub ordered: Qualified,
}

/// Columns that are named with their tables; without a name, all of a table.
#[derive(Default)]
pub(crate) struct Qualified(HashSet<(String, Option<String>)>);

impl Qualified {
    /// Those of a part of a statement.
    pub fn of(part: &impl Visit) -> Self {
        let mut found = Self::default();
        // It never ends early.
        let _ = part.visit(&mut found);
        found
    }
}

impl Visitor for Qualified {
    type Break = ();

    fn pre_visit_select(&mut self, select: &ast::Select) -> ControlFlow<()> {
        for item in &select.projection {
            if let SelectItem::QualifiedWildcard(kind, _) = item
                && let SelectItemQualifiedWildcardKind::ObjectName(name) = kind
                && let Some(table) = last_part(name)
            {
                self.0.insert((normal(table), None));
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &ast::Expr) -> ControlFlow<()> {
        match expr {
            ast::Expr::CompoundIdentifier(parts) => {
                let pairs = parts.windows(2).map(|pair| (normal(&pair[0]), Some(normal(&pair[1]))));
                self.0.extend(pairs);
            }
            ast::Expr::QualifiedWildcard(name, _) => {
                self.0.extend(last_part(name).map(|table| (normal(table), None)));
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// The keys that a SELECT merges.
pub(crate) struct MergedKeys(HashMap<String, Option<Key>>);

impl MergedKeys {
    /// Names them in a part of the statement.
    pub fn name_in(&self, part: &mut impl VisitMut) {
        NameKeys { keys: &self.0, depth: 0, found: false }.within(part);
    }
}

/// Names the joins of a SELECT that merge columns, if it would be read wrongly otherwise. `named` counts
/// the statement's names so far. Gives the keys that the query's ORDER BY should name, too.
pub(crate) fn name_merged_columns(
    select: &mut ast::Select,
    place: &Place,
    named: &mut usize,
) -> Option<MergedKeys> {
    let nested = |factor: &TableFactor| matches!(factor, TableFactor::NestedJoin { .. });
    if !select.from.iter().any(|t| !t.joins.is_empty() || nested(&t.relation)) {
        return None;
    }
    let mut qualified = Qualified::of(select);
    qualified.0.extend(place.ordered.0.iter().cloned());
    let mut mended = select.clone();
    let mut joins =
        Joins { named, qualified: &qualified, within: place.within, count: 0, misread: false };
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
    let hidden = hides_keys(&select.projection, &scope.keys);
    if (place.within && !hidden) || names_others(&select.projection, &scope.keys) {
        // There, k would be the column of the SELECT list.
        names.within(&mut mended.group_by);
        names.within(&mut mended.having);
        names.within(&mut mended.qualify);
    }
    if place.within {
        names.within(&mut mended.projection);
    } else {
        // There DataFusion asks for types before it looks for merged columns.
        for item in mended.projection.iter_mut().filter(|item| needs_types(*item)) {
            if let SelectItem::UnnamedExpr(expr) = item {
                let alias = ast::Ident::with_quote('"', expr.to_string());
                *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
            }
            names.within(item);
        }
        if needs_types(&mended.group_by) {
            names.within(&mut mended.group_by);
        }
        if needs_types(&mended.having) {
            names.within(&mut mended.having);
        }
    }
    let all = select.projection.iter().any(|item| matches!(item, SelectItem::Wildcard(_)));
    if count > 0 && (misread || all || names.found || place.within) {
        *select = mended;
        return (place.within && !hidden).then_some(MergedKeys(scope.keys));
    }
    None
}

/// Is there what DataFusion asks for the types of its operands: a sign, NOT, `||`, `@>` or a cast to a time?
fn needs_types(part: &impl Visit) -> bool {
    use ast::BinaryOperator::{ArrowAt, AtArrow, StringConcat};
    let mut found = false;
    let _ = ast::visit_expressions(part, |expr| {
        found |= match expr {
            ast::Expr::UnaryOp { expr, .. } => !matches!(expr.as_ref(), ast::Expr::Value(_)),
            ast::Expr::BinaryOp { op: StringConcat | AtArrow | ArrowAt, .. } => true,
            // They are rewritten with NOT.
            ast::Expr::AllOp { .. } | ast::Expr::AnyOp { .. } => true,
            ast::Expr::Cast { data_type: ast::DataType::Timestamp(..), .. } => true,
            _ => false,
        };
        ControlFlow::<()>::Continue(())
    });
    found
}

/// Does a SELECT list give a key's name to something?
fn hides_keys(projection: &[SelectItem], keys: &HashMap<String, Option<Key>>) -> bool {
    let hides = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias { alias, .. } => keys.contains_key(&normal(alias)),
        _ => false,
    };
    projection.iter().any(hides)
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
    qualified: &'a Qualified,
    /// In a subquery?
    within: bool,
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
            let plain = matches!(join_type, JoinType::Inner | JoinType::Left) && !natural;
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
            let alias = self.alias(name, &scope, (!natural).then_some(keys.as_slice()));
            let relation = bracketed(tables_so_far, Some(alias));
            tables_so_far = TableWithJoins { relation, joins: Vec::new() };
        }
        (tables_so_far, scope)
    }

    /// The name of a join, and the columns called like keys that it has beside them. Which these may be is
    /// not known of a NATURAL join.
    fn alias(&self, name: String, scope: &Scope, keys: Option<&[String]>) -> ast::TableAlias {
        let is_of_join = |(table, column): &&(String, Option<String>)| {
            let is_key = |column: &String| keys.is_none_or(|keys| keys.contains(column));
            scope.tables.contains(table) && column.as_ref().is_none_or(is_key)
        };
        let mut kept: Vec<String> = self
            .qualified
            .0
            .iter()
            .filter(is_of_join)
            .map(|(table, column)| format!("{table}.{}", column.as_deref().unwrap_or("*")))
            .collect();
        kept.sort_unstable();
        if keys.is_none() && self.within {
            kept.insert(0, WITHIN.to_owned());
        }
        let column =
            |name| ast::TableAliasColumnDef { name: Ident::with_quote('"', name), data_type: None };
        ast::TableAlias {
            explicit: true,
            name: Ident::with_quote('"', name),
            columns: kept.into_iter().map(column).collect(),
            at: None,
        }
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

pub(super) fn bracketed(tables: TableWithJoins, alias: Option<ast::TableAlias>) -> TableFactor {
    TableFactor::NestedJoin { table_with_joins: Box::new(tables), alias }
}

/// How a join that merges columns joins, and what it says of them.
pub(super) fn merging(join: &ast::Join) -> Option<(JoinType, &ast::JoinConstraint)> {
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

pub(crate) fn last_part(name: &ObjectName) -> Option<&Ident> {
    name.0.last().and_then(|part| part.as_ident())
}

/// A name as DataFusion compares it.
pub(crate) fn normal(name: &Ident) -> String {
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

#[cfg(test)]
mod tests {
    use crate::sql::statement::parse;

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
            ("SELECT x FROM l NATURAL JOIN r", r##"SELECT x FROM (l NATURAL JOIN r) AS "#using""##),
            (
                "SELECT x, l.k FROM l NATURAL JOIN r ORDER BY r.j",
                r##"SELECT x, l.k FROM (l NATURAL JOIN r) AS "#using" ("l.k", "r.j") ORDER BY r.j"##,
            ),
            (
                "SELECT l.*, r.x FROM l RIGHT JOIN r USING (k)",
                r##"SELECT l.*, r.x FROM (l RIGHT JOIN r USING(k)) AS "#using" ("l.*")"##,
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
                    r##"SELECT x FROM (l JOIN r USING(k)) AS "#using" ("l.k") "##,
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
                    r##"SELECT l.k, count(x) FROM (l FULL JOIN r USING(k)) AS "#using" ("l.k") "##,
                    r##"GROUP BY "#using".k HAVING "#using".k > 1"##,
                ),
            ),
            (
                "SELECT r.k, count(x) FROM l LEFT JOIN r USING (k) GROUP BY k",
                concat!(
                    r##"SELECT r.k, count(x) FROM (l LEFT JOIN r USING(k)) AS "#using" ("r.k") "##,
                    r##"GROUP BY "#using".k"##,
                ),
            ),
            (
                "SELECT r.k, count(x) FROM l RIGHT JOIN r USING (k) GROUP BY k",
                concat!(
                    r##"SELECT r.k, count(x) FROM (l RIGHT JOIN r USING(k)) AS "#using" ("r.k") "##,
                    "GROUP BY k",
                ),
            ),
        ] {
            check(text, expected);
        }
    }
}
