//! Joins whose keys are merged, once their sides are planned: each key once, and the columns that `*` has.
//!
//! # Not here
//! What of a statement's text asks for them: `using_joins`.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{
    Column, DFSchema, JoinConstraint, JoinType, NullEquality, Result, TableReference, internal_err,
};
use datafusion::functions::core::expr_fn::coalesce;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::utils::expand_wildcard;
use datafusion::logical_expr::{
    EmptyRelation, Expr, Join, LogicalPlan, LogicalPlanBuilder, Projection, lit,
};
use datafusion::sql::sqlparser::ast::{self, ObjectName, TableFactor, TableWithJoins};

use crate::base::error::{EngineError, refuse};
use crate::sql::using_joins::{MERGED, WITHIN, bracketed, last_part, merging};

/// Plans what [`name_merged_columns`](crate::sql::using_joins::name_merged_columns) has named.
#[derive(Debug)]
pub(crate) struct MergedColumns;

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
            PlannedRelation::new(merged_join(tables, &alias, context)?, None)
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
    alias: &ast::TableAlias,
    context: &mut dyn RelationPlannerContext,
) -> Result<LogicalPlan> {
    let merged = alias.name.value.as_str();
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

    let stays = |column: &Column| !is_merged(column) && is_listed(column, alias);
    if alias.columns.iter().any(|listed| listed.name.value == WITHIN)
        && let Some((l, r)) = keys.iter().find(|(l, r)| stays(l) || stays(r))
    {
        let column = if stays(l) { l } else { r };
        let name = &column.name;
        let what = format!("NATURAL JOIN in a subquery has {column} and the {name} of both sides");
        return Err(EngineError::unsupported(what).with_hint("write JOIN … USING").into());
    }
    let mut columns = Vec::new();
    for column in left.schema().columns() {
        if let Some((l, r)) = keys.iter().find(|(l, _)| *l == column) {
            let table = TableReference::bare(merged);
            columns.push(merged_key(join_type, l, r).alias_qualified(Some(table), &l.name));
            if !stays(&column) {
                continue;
            }
        }
        columns.push(Expr::Column(column));
    }
    for column in right.schema().columns() {
        if stays(&column) || !keys.iter().any(|(_, r)| *r == column) {
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
        _ => refuse!(SyntaxError, "USING takes names of columns, without tables: {name}"),
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

/// Does the SELECT name a column with its table?
fn is_listed(column: &Column, alias: &ast::TableAlias) -> bool {
    let Some(table) = &column.relation else { return true };
    let names = [format!("{}.{}", table.table(), column.name), format!("{}.*", table.table())];
    alias.columns.iter().any(|listed| names.contains(&listed.name.value))
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
