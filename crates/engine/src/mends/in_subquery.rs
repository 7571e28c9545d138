//! `x IN (SELECT y …)` wherever a condition may stand, and NULL where SQL has NULL.
//!
//! DataFusion 55 plans it as a join with a mark, which is true or false, and only as a part of WHERE.
//! [`ThreeValued`] says in the plan when the answer is NULL; [`Marks`] has DataFusion make the same joins
//! below SELECT lists, groups and windows.
//!
//! ```text
//! x IN S      M OR (U AND NULL)        M: x is one of S's values, the mark
//! x NOT IN S  NOT (M OR (U AND NULL))  U: S has a NULL, or x is NULL and S has rows
//! ```
//!
//! M and U are never NULL, so the formula is exact. M is written as EXISTS, because DataFusion makes its
//! own, null-aware anti join of a NOT IN, which knows one plain column on each side only. Where NULL and false are alike (WHERE x IN S), M alone
//! says it. U reads S a second time, up to its first such row, and is left out for columns without NULLs.
//!
//! # Not here
//! `> ANY`, `< ALL` and the like, which [`rewrite`](crate::sql::rewrite) refuses.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, DFSchema, Result, ScalarValue};
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, merge_schema, split_conjunction_owned};
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, ExprSchemable, Filter, Join, JoinType, LogicalPlan,
    LogicalPlanBuilder, Projection, Sort, Subquery, Window, col, lit, not,
};
use datafusion::optimizer::decorrelate_predicate_subquery::DecorrelatePredicateSubquery;
use datafusion::optimizer::{AnalyzerRule, OptimizerConfig, OptimizerRule};

use super::truth::rewrite_parts;
use super::window_keys::keys_below;

/// What S's values are called where they are compared with those of outer rows.
const VALUE: &str = "__set_value";
/// What is shown of a row that is there.
const ROW: &str = "__row";

/// Writes IN (SELECT …) so that it is NULL where it should be.
#[derive(Debug)]
pub(super) struct ThreeValued;

impl AnalyzerRule for ThreeValued {
    fn name(&self) -> &'static str {
        "three_valued_in_subquery"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let rewritten = plan.transform_up_with_subqueries(exact_node)?;
        if !rewritten.transformed {
            return Ok(rewritten.data);
        }
        // What may be NULL now could not before.
        let known = |node: LogicalPlan| Ok(Transformed::yes(node.recompute_schema()?));
        rewritten.data.transform_up_with_subqueries(known).data()
    }
}

fn exact_node(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let found = node.expressions().iter().map(has_in_subquery).collect::<Result<Vec<_>>>()?;
    if !found.contains(&true) {
        return Ok(Transformed::no(node));
    }
    let node = match node {
        LogicalPlan::Sort(sort) => return sorted_by_columns(sort).map(Transformed::yes),
        LogicalPlan::Join(join) if join.join_type == JoinType::Inner => {
            return conditions_above(join).map(Transformed::yes);
        }
        LogicalPlan::Window(window) => match keys_below(&window, |key, _| has_in_subquery(key))? {
            Some(keyed) => {
                let below = exact_node(LogicalPlan::Projection(keyed.below.clone()))?.data;
                let window = keyed.over(Arc::new(below))?;
                return window.transform_data(|shown| shown.map_children(exact_node));
            }
            None => LogicalPlan::Window(window),
        },
        other => other,
    };
    let schema = merge_schema(&node.inputs());
    let says_truth = matches!(node, LogicalPlan::Filter(_) | LogicalPlan::Join(_));
    let names = NamePreserver::new(&node);
    node.map_expressions(|expr| {
        let name = names.save(&expr);
        let exact = exact(expr, says_truth, &schema)?;
        Ok(Transformed::yes(name.restore(exact)))
    })
}

fn has_in_subquery(expr: &Expr) -> Result<bool> {
    expr.exists(|part| Ok(matches!(part, Expr::InSubquery(_))))
}

fn has_columns(expr: &Expr) -> bool {
    !expr.column_refs().is_empty()
}

/// The expression with every IN (SELECT …) NULL where it should be.
fn exact(expr: Expr, truth: bool, schema: &DFSchema) -> Result<Expr> {
    rewrite_parts(expr, truth, &|part, truth| match part {
        Expr::InSubquery(found) => membership(found.clone(), truth, schema).map(Some),
        Expr::Not(inner) => match inner.as_ref() {
            Expr::InSubquery(found) => {
                let found = InSubquery { negated: !found.negated, ..found.clone() };
                membership(found, truth, schema).map(Some)
            }
            _ => Ok(None),
        },
        _ => Ok(None),
    })
}

/// `x [NOT] IN S`, see the module's formula.
fn membership(found: InSubquery, truth: bool, schema: &DFSchema) -> Result<Expr> {
    let InSubquery { expr, mut subquery, negated } = found;
    // How often a value is there does not matter, and DataFusion would name it twice where it joins it.
    if let LogicalPlan::Distinct(Distinct::All(rows)) = subquery.subquery.as_ref() {
        subquery.subquery = Arc::clone(rows);
    }
    let plan = subquery.subquery.as_ref();
    let is_limited = !subquery.outer_ref_columns.is_empty() && has_limit(plan)?;
    // DataFusion says itself that it cannot join what is limited for each outer row.
    let stays = (truth && !negated && has_columns(&expr)) || is_limited;
    if stays || expr.contains_outer() {
        let subquery = if is_limited { subquery } else { by_another_name(subquery)? };
        return Ok(Expr::InSubquery(InSubquery { expr, subquery, negated }));
    }
    let value = Expr::Column(Column::from(plan.schema().qualified_field(0)));
    // A name of its own: the outer row may be of a table that S reads, too.
    let set = LogicalPlanBuilder::from(plan.clone())
        .project(vec![value.clone().alias(VALUE)])?
        .filter(col(VALUE).eq(of_outer_row(expr.as_ref().clone(), schema)?))?;
    let is_member = has_rows(set.build()?, &subquery)?;
    if truth && !negated {
        return Ok(is_member);
    }
    let (_, field) = plan.schema().qualified_field(0);
    let mut unknown = None;
    if field.is_nullable() {
        let nulls = LogicalPlanBuilder::from(plan.clone()).filter(value.is_null())?.build()?;
        unknown = Some(has_rows(nulls, &subquery)?);
    }
    if expr.nullable(schema)? {
        let here = expr.is_null().and(has_rows(plan.clone(), &subquery)?);
        unknown = Some(unknown.map_or_else(|| here.clone(), |nulls| nulls.or(here.clone())));
    }
    let found = match unknown {
        None => is_member,
        Some(unknown) if truth => is_member.or(unknown),
        Some(unknown) => is_member.or(unknown.and(lit(ScalarValue::Boolean(None)))),
    };
    Ok(if negated { not(found) } else { found })
}

/// The subquery whose value is not called like a column that it is computed from, and is not computed below a
/// limit: DataFusion would ask for both where it joins it.
fn by_another_name(mut subquery: Subquery) -> Result<Subquery> {
    let plan = subquery.subquery.as_ref();
    let (_, field) = plan.schema().qualified_field(0);
    let is_called_so = |column: &&Column| column.relation.is_none() && column.name == *field.name();
    let is_below = matches!(plan, LogicalPlan::Limit(_) | LogicalPlan::Sort(_));
    let Some(value) = plan.head_output_expr()? else { return Ok(subquery) };
    let is_confused = match &value {
        // Of no table: what an aggregate is called.
        Expr::Column(column) => column.relation.is_none(),
        computed => is_below || computed.column_refs().iter().any(is_called_so),
    };
    if !is_confused {
        return Ok(subquery);
    }
    let value = Expr::Column(Column::from(plan.schema().qualified_field(0))).alias(VALUE);
    let named = LogicalPlanBuilder::from(plan.clone()).project(vec![value])?.build()?;
    subquery.subquery = Arc::new(named);
    Ok(subquery)
}

fn has_limit(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| Ok(matches!(node, LogicalPlan::Limit(_))))
}

/// The expression as a subquery sees it whose outer row has `schema`.
fn of_outer_row(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    expr.transform(|part| match part {
        Expr::Column(column) => {
            let (_, field) = schema.qualified_field_from_column(&column)?;
            Ok(Transformed::yes(Expr::OuterReferenceColumn(Arc::clone(field), column)))
        }
        other => Ok(Transformed::no(other)),
    })
    .data()
}

/// Has the plan a row? Asked once for a statement, unless it looks at the outer row.
fn has_rows(plan: LogicalPlan, like: &Subquery) -> Result<Expr> {
    let outer_ref_columns = plan.all_out_ref_exprs();
    let spans = like.spans.clone();
    if !outer_ref_columns.is_empty() {
        // As SQL has it: where DataFusion takes conditions on outer rows out, it adds the columns that they
        // need to a projection.
        let plan = LogicalPlanBuilder::from(plan).project(vec![lit(true).alias(ROW)])?.build()?;
        let subquery = Subquery { subquery: Arc::new(plan), outer_ref_columns, spans };
        return Ok(Expr::Exists(Exists { subquery, negated: false }));
    }
    // DataFusion's groups end with an error where a limit reaches them and their input is sorted.
    let groups = |node: &LogicalPlan| {
        Ok(matches!(node, LogicalPlan::Aggregate(_) | LogicalPlan::Distinct(_)))
    };
    let most = if plan.exists(groups)? { None } else { Some(1) };
    let counted = LogicalPlanBuilder::from(plan)
        .limit(0, most)?
        .aggregate(Vec::<Expr>::new(), vec![count(lit(1i64))])?
        .build()?;
    let subquery = Subquery { subquery: Arc::new(counted), outer_ref_columns, spans };
    Ok(Expr::ScalarSubquery(subquery).gt(lit(0i64)))
}

/// `ORDER BY x IN S`: a column below is what rows are sorted by.
fn sorted_by_columns(sort: Sort) -> Result<LogicalPlan> {
    let Sort { expr, input, fetch } = sort;
    let columns: Vec<Expr> = input.schema().columns().into_iter().map(Expr::Column).collect();
    let (mut below, mut by) = (columns.clone(), Vec::new());
    for (number, mut key) in expr.into_iter().enumerate() {
        if has_in_subquery(&key.expr)? {
            let name = format!("__sort_key_{number}");
            below.push(key.expr.alias(&name));
            key.expr = Expr::Column(Column::new_unqualified(name));
        }
        by.push(key);
    }
    let below = LogicalPlan::Projection(Projection::try_new(below, input)?);
    let input = Arc::new(exact_node(below)?.data);
    let sorted = LogicalPlan::Sort(Sort { expr: by, input, fetch });
    Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(sorted))?))
}

/// `a JOIN b ON … AND x IN S` is a join and then a condition, which DataFusion can join S by.
fn conditions_above(mut join: Join) -> Result<LogicalPlan> {
    let conditions = join.filter.take().map(split_conjunction_owned).unwrap_or_default();
    let (mut above, mut within) = (Vec::new(), Vec::new());
    for condition in conditions {
        match has_in_subquery(&condition)? {
            true => above.push(condition),
            false => within.push(condition),
        }
    }
    join.filter = conjunction(within);
    let joined = Arc::new(LogicalPlan::Join(join));
    let Some(above) = conjunction(above) else { return Ok(Arc::unwrap_or_clone(joined)) };
    Ok(exact_node(LogicalPlan::Filter(Filter::try_new(above, joined)?))?.data)
}

/// Joins for IN (SELECT …) and EXISTS below SELECT lists, groups and windows, as DataFusion makes them
/// below WHERE.
#[derive(Debug)]
pub(super) struct Marks;

impl OptimizerRule for Marks {
    fn name(&self) -> &'static str {
        "subquery_marks"
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        plan.transform_up_with_subqueries(|node| marked(node, config))
    }
}

fn marked(node: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
    let names = NamePreserver::new(&node);
    let (input, exprs) = match &node {
        LogicalPlan::Projection(projection) => (&projection.input, node.expressions()),
        LogicalPlan::Aggregate(aggregate) => (&aggregate.input, node.expressions()),
        LogicalPlan::Window(window) => (&window.input, node.expressions()),
        _ => return Ok(Transformed::no(node)),
    };
    if !exprs.iter().any(has_predicate) {
        return Ok(Transformed::no(node));
    }
    let saved: Vec<_> = exprs.iter().map(|expr| names.save(expr)).collect();
    let Some((joined, exprs)) = joined(input, exprs, config)? else {
        return Ok(Transformed::no(node));
    };
    let exprs: Vec<Expr> =
        exprs.into_iter().zip(saved).map(|(expr, name)| name.restore(expr)).collect();
    let joined = Arc::new(joined);
    Ok(Transformed::yes(match node {
        LogicalPlan::Projection(_) => LogicalPlan::Projection(Projection::try_new(exprs, joined)?),
        LogicalPlan::Aggregate(aggregate) => {
            let (groups, aggregates) = exprs.split_at(aggregate.group_expr.len());
            let made = Aggregate::try_new(joined, groups.to_vec(), aggregates.to_vec())?;
            LogicalPlan::Aggregate(made)
        }
        // Its columns are those of its input and then its own.
        node => {
            let columns = node.schema().columns().into_iter().map(Expr::Column).collect();
            let window = Arc::new(LogicalPlan::Window(Window::try_new(exprs, joined)?));
            LogicalPlan::Projection(Projection::try_new(columns, window)?)
        }
    }))
}

fn has_predicate(expr: &Expr) -> bool {
    let is_predicate = |part: &Expr| Ok(matches!(part, Expr::InSubquery(_) | Expr::Exists(_)));
    expr.exists(is_predicate).unwrap_or_default()
}

/// The input with what the expressions ask of subqueries joined to it, and the expressions over that;
/// `None` if DataFusion cannot join one of them.
fn joined(
    input: &Arc<LogicalPlan>,
    mut exprs: Vec<Expr>,
    config: &dyn OptimizerConfig,
) -> Result<Option<(LogicalPlan, Vec<Expr>)>> {
    let places: Vec<usize> = (0..exprs.len()).filter(|at| has_predicate(&exprs[*at])).collect();
    // Conditions of any form stay as they are in the filter that comes back.
    let asked = places.iter().map(|at| exprs[*at].clone().unalias().is_not_null());
    let Some(condition) = conjunction(asked) else { return Ok(None) };
    let filter = LogicalPlan::Filter(Filter::try_new(condition, Arc::clone(input))?);
    let mut made = DecorrelatePredicateSubquery::new().rewrite(filter, config)?.data;
    if let LogicalPlan::Projection(projection) = made {
        made = Arc::unwrap_or_clone(projection.input);
    }
    let LogicalPlan::Filter(filter) = made else { return Ok(None) };
    let parts = split_conjunction_owned(filter.predicate);
    if parts.len() != places.len() || parts.iter().any(has_predicate) {
        return Ok(None);
    }
    for (place, part) in places.into_iter().zip(parts) {
        let Expr::IsNotNull(expr) = part else { return Ok(None) };
        exprs[place] = *expr;
    }
    Ok(Some((Arc::unwrap_or_clone(filter.input), exprs)))
}
