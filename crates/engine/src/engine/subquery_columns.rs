//! Subqueries in conditions of statements that change rows by others: each is a column of the side that it asks about.
//!
//! ```text
//! MERGE INTO t USING s ON t.k = s.k AND t.n > (SELECT avg(n) FROM t) AND s.day IN (SELECT day FROM d)
//!   t: SELECT *, …                          s: SELECT *, (SELECT avg(n) FROM t) AS __subquery_0,
//!                                                         s.day IN (SELECT day FROM d) AS __subquery_1
//!   ON t.k = s.k AND t.n > __subquery_0 AND __subquery_1
//! ```
//!
//! DataFusion plans subqueries in WHERE and in lists of columns, but not in conditions of joins, of which such a
//! statement has several: of rows that match, of those that do not, and of new ones.
//!
//! # Invariants
//! - What a condition answers is the same in all of them: it has no function that answers otherwise each time.

use std::collections::HashSet;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result as DfResult};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Subquery};

use crate::base::error::{EngineError, Result};

/// A condition is asked twice: when rows are counted and when they are written.
pub(crate) fn must_be_same(condition: &Expr) -> Result<()> {
    match is_volatile(condition)? {
        false => Ok(()),
        true => Err(EngineError::unsupported(
            "the condition of a statement that changes rows has no function that answers otherwise each time",
        )
        .with_hint("keep what it answers in a table, and name that")),
    }
}

fn is_volatile(expr: &Expr) -> Result<bool> {
    let mut found = expr.is_volatile();
    expr.apply(|part| {
        if let Some(subquery) = subquery_of(part) {
            subquery.subquery.apply_with_subqueries(|plan| {
                found |= plan.expressions().iter().any(Expr::is_volatile);
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

fn subquery_of(expr: &Expr) -> Option<&Subquery> {
    match expr {
        Expr::Exists(exists) => Some(&exists.subquery),
        Expr::InSubquery(found) => Some(&found.subquery),
        Expr::SetComparison(compared) => Some(&compared.subquery),
        Expr::ScalarSubquery(subquery) => Some(subquery),
        _ => None,
    }
}

/// Rows with columns beside their own.
pub(crate) fn with_added(rows: LogicalPlan, added: &[Expr]) -> Result<LogicalPlan> {
    if added.is_empty() {
        return Ok(rows);
    }
    let own = rows.schema().columns().into_iter().map(Expr::Column);
    let columns: Vec<Expr> = own.chain(added.iter().cloned()).collect();
    Ok(LogicalPlanBuilder::from(rows).project(columns)?.build()?)
}

/// The subqueries of a statement.
pub(crate) struct SubqueryColumns<'a> {
    of_target: &'a DFSchema,
    of_source: &'a DFSchema,
    /// Columns that rows of the table have beside their own, and those of the source.
    pub target: Vec<Expr>,
    pub source: Vec<Expr>,
}

impl<'a> SubqueryColumns<'a> {
    pub fn of(of_target: &'a DFSchema, of_source: &'a DFSchema) -> Self {
        Self { of_target, of_source, target: Vec::new(), source: Vec::new() }
    }

    /// The condition with columns in the places of subqueries; one that asks about no column becomes one of the source,
    /// if the condition is asked with one.
    pub fn taken_out(&mut self, condition: &Expr, has_source: bool) -> Result<Expr> {
        must_be_same(condition)?;
        let mut asks_both = false;
        let taken = condition.clone().transform_down(|part| {
            if subquery_of(&part).is_none() {
                return Ok(Transformed::no(part));
            }
            let asked = columns_asked(&part)?;
            let of = |side: &DFSchema| asked.iter().any(|column| side.has_column(column));
            let of_target = of(self.of_target);
            let of_source = of(self.of_source);
            if of_target && of_source {
                asks_both = true;
                return Ok(Transformed::new(part, false, TreeNodeRecursion::Stop));
            }
            let name = format!("__subquery_{}", self.target.len() + self.source.len());
            let side = match of_target || !of_source && !has_source {
                true => &mut self.target,
                false => &mut self.source,
            };
            side.push(part.alias(&name));
            let column = Expr::Column(Column::new_unqualified(name));
            Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
        })?;
        match asks_both {
            false => Ok(taken.data),
            true => Err(EngineError::unsupported(
                "a subquery in a condition of MERGE, UPDATE … FROM or DELETE … USING asks about columns of the \
                 table or of the source, not of both",
            )
            .with_hint("join its rows in the source: USING (SELECT …) or FROM (SELECT …)")),
        }
    }
}

/// The columns around a subquery that it asks about.
fn columns_asked(expr: &Expr) -> DfResult<HashSet<Column>> {
    let mut asked = HashSet::new();
    expr.apply(|part| {
        if let Expr::Column(column) = part {
            asked.insert(column.clone());
        }
        if let Some(subquery) = subquery_of(part) {
            subquery.subquery.apply_with_subqueries(|plan| {
                plan.apply_expressions(|expr| {
                    expr.apply(|part| {
                        if let Expr::OuterReferenceColumn(_, column) = part {
                            asked.insert(column.clone());
                        }
                        Ok(TreeNodeRecursion::Continue)
                    })
                })
            })?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(asked)
}
