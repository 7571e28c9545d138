//! The order of a sorted subquery, as long as it is read row by row.
//!
//! `SELECT * FROM (SELECT … ORDER BY x) LIMIT 3` is the first three, `string_agg(event, '>') FROM (SELECT … ORDER BY ts)`
//! a path in time, `row_number() OVER ()` counts in it: SQL promises none of it, but PostgreSQL, DuckDB and ClickHouse
//! do so. DataFusion forgets the order of what stands in FROM (`enable_subquery_sort_elimination`, which is off).
//!
//! - Aggregates and windows to which the order of rows matters, and that name none, have that of their input, of which
//!   columns may not be among its output. DISTINCT ON takes the first row in it.
//! - A sort stays where its rows come to the end of the statement, or to a LIMIT, by what keeps their order: columns,
//!   conditions, aliases, windows over all rows. Others go: a join or a group has no order.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    Distinct, DistinctOn, Expr, Filter, Limit, LogicalPlan, Projection, SortExpr, SubqueryAlias,
    Window, WindowFrame, WindowFrameUnits,
};
use datafusion::optimizer::AnalyzerRule;

use crate::mends::aggregate_order::unaliased;

/// What gives another result if rows come in another order.
const AGGREGATES: [&str; 5] = ["array_agg", "first_value", "last_value", "nth_value", "string_agg"];
const WINDOWS: [&str; 7] =
    ["first_value", "lag", "last_value", "lead", "nth_value", "ntile", "row_number"];

/// The rule, which comes before types are known: it names columns and nothing else.
#[derive(Debug)]
pub(super) struct SortedSubqueries;

impl AnalyzerRule for SortedSubqueries {
    fn name(&self) -> &'static str {
        "sorted_subqueries"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let mut has_sort = false;
        plan.apply_with_subqueries(|node| {
            if matches!(node, LogicalPlan::Sort(_)) {
                has_sort = true;
                return Ok(TreeNodeRecursion::Stop);
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        if !has_sort {
            return Ok(plan);
        }
        let ordered = plan.transform_up_with_subqueries(ordered_by_input).data()?;
        without_idle_sorts(ordered, true)
    }
}

/// An aggregate, windows or a DISTINCT ON in the order of its input, if it has none of its own.
fn ordered_by_input(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let asks = match &node {
        LogicalPlan::Aggregate(aggregate) => aggregate.aggr_expr.iter().any(lacks_order),
        LogicalPlan::Window(window) => window.window_expr.iter().any(lacks_order),
        LogicalPlan::Distinct(Distinct::On(_)) => true,
        _ => false,
    };
    let [input] = node.inputs()[..] else { return Ok(Transformed::no(node)) };
    if !asks {
        return Ok(Transformed::no(node));
    }
    let Some((input, keys)) = carried(input)? else { return Ok(Transformed::no(node)) };
    if let LogicalPlan::Distinct(Distinct::On(distinct)) = node {
        let DistinctOn { on_expr, select_expr, sort_expr, .. } = distinct;
        let on = || on_expr.iter().map(|expr| expr.clone().sort(true, false)).collect();
        let order = sort_expr.unwrap_or_else(on).into_iter().chain(keys);
        let order = Some(order.collect());
        let distinct = DistinctOn::try_new(on_expr, select_expr, order, Arc::new(input))?;
        return Ok(Transformed::yes(LogicalPlan::Distinct(Distinct::On(distinct))));
    }
    let names = NamePreserver::new(&node);
    let exprs = node.expressions().into_iter().map(|expr| {
        let name = names.save(&expr);
        name.restore(in_order(expr, &keys))
    });
    let exprs = exprs.collect();
    Ok(Transformed::yes(node.with_new_exprs(exprs, vec![input])?))
}

/// Is it a call to which the order of rows matters, and that names none?
fn lacks_order(expr: &Expr) -> bool {
    match expr {
        Expr::Alias(alias) => lacks_order(&alias.expr),
        Expr::AggregateFunction(call) => {
            let params = &call.params;
            let is_open = params.order_by.is_empty() && !params.distinct;
            is_open && AGGREGATES.contains(&call.func.name())
        }
        Expr::WindowFunction(call) => {
            let (name, params) = (call.fun.name(), &call.params);
            let is_known = WINDOWS.contains(&name) || AGGREGATES.contains(&name);
            params.order_by.is_empty() && (is_known || is_of_some_rows(&params.window_frame))
        }
        _ => false,
    }
}

fn is_of_some_rows(frame: &WindowFrame) -> bool {
    let is_of_all = frame.start_bound.is_unbounded() && frame.end_bound.is_unbounded();
    frame.units == WindowFrameUnits::Rows && !is_of_all
}

fn in_order(expr: Expr, keys: &[SortExpr]) -> Expr {
    if !lacks_order(&expr) {
        return expr;
    }
    match expr {
        Expr::Alias(mut alias) => {
            *alias.expr = in_order(*alias.expr, keys);
            Expr::Alias(alias)
        }
        Expr::AggregateFunction(mut call) => {
            call.params.order_by = keys.to_vec();
            Expr::AggregateFunction(call)
        }
        Expr::WindowFunction(mut call) => {
            call.params.order_by = keys.to_vec();
            Expr::WindowFunction(call)
        }
        other => other,
    }
}

/// A plan whose rows come in the order of a sort below, and that order by its columns, of which some may be added.
fn carried(plan: &LogicalPlan) -> Result<Option<(LogicalPlan, Vec<SortExpr>)>> {
    Ok(match plan {
        LogicalPlan::Sort(sort) => {
            let is_random = sort.expr.iter().any(|key| key.expr.is_volatile());
            (!is_random).then(|| (plan.clone(), sort.expr.clone()))
        }
        LogicalPlan::Filter(filter) => {
            let Some((input, keys)) = carried(&filter.input)? else { return Ok(None) };
            let filter = Filter::try_new(filter.predicate.clone(), Arc::new(input))?;
            Some((LogicalPlan::Filter(filter), keys))
        }
        LogicalPlan::Limit(limit) => {
            let Some((input, keys)) = carried(&limit.input)? else { return Ok(None) };
            let (skip, fetch) = (limit.skip.clone(), limit.fetch.clone());
            Some((LogicalPlan::Limit(Limit { skip, fetch, input: Arc::new(input) }), keys))
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let Some((input, keys)) = carried(&alias.input)? else { return Ok(None) };
            let before = Arc::clone(input.schema());
            let aliased = SubqueryAlias::try_new(Arc::new(input), alias.alias.clone())?;
            let keys = keys.into_iter().map(|key| by_alias(key, &before, &aliased.schema));
            let keys = keys.collect::<Result<_>>()?;
            Some((LogicalPlan::SubqueryAlias(aliased), keys))
        }
        LogicalPlan::Projection(projection) => {
            let Some((input, keys)) = carried(&projection.input)? else { return Ok(None) };
            let mut exprs = projection.expr.clone();
            let keys = keys.into_iter().map(|key| by_output(key, &mut exprs));
            let keys = keys.collect::<Result<_>>()?;
            let projection = Projection::try_new(exprs, Arc::new(input))?;
            Some((LogicalPlan::Projection(projection), keys))
        }
        _ => None,
    })
}

/// A key whose columns have the names that they have under an alias.
fn by_alias(key: SortExpr, before: &DFSchema, after: &DFSchema) -> Result<SortExpr> {
    let renamed = key.expr.transform(|part| match part {
        Expr::Column(column) => {
            let place = before.index_of_column(&column)?;
            Ok(Transformed::yes(Expr::Column(Column::from(after.qualified_field(place)))))
        }
        other => Ok(Transformed::no(other)),
    });
    Ok(SortExpr { expr: renamed.data()?, ..key })
}

/// A key by the columns of a projection, which has one more for each that it lacks.
fn by_output(key: SortExpr, exprs: &mut Vec<Expr>) -> Result<SortExpr> {
    let renamed = key.expr.transform_down(|part| {
        let found = exprs.iter().find(|expr| unaliased(expr) == &part);
        if let Some(found) = found {
            let (relation, name) = found.qualified_name();
            let named = Expr::Column(Column::new(relation, name));
            return Ok(Transformed::new(named, true, TreeNodeRecursion::Jump));
        }
        if !matches!(part, Expr::Column(_)) {
            return Ok(Transformed::no(part));
        }
        let name = format!("__sorted_by_{}", exprs.len());
        exprs.push(part.alias(&name));
        let added = Expr::Column(Column::new_unqualified(name));
        Ok(Transformed::new(added, true, TreeNodeRecursion::Jump))
    });
    Ok(SortExpr { expr: renamed.data()?, ..key })
}

/// The plan without the sorts whose order nobody sees. `is_seen` is that of its own rows.
fn without_idle_sorts(plan: LogicalPlan, is_seen: bool) -> Result<LogicalPlan> {
    // Inputs are visited one after the other, each with all below it: what is seen of the next one lies on top.
    let mut seen = vec![is_seen];
    let removed = plan.transform_down(|mut node| {
        let is_seen = seen.pop().unwrap_or(true);
        let mut removed = false;
        while let LogicalPlan::Sort(sort) = &node
            && sort.fetch.is_none()
            && !is_seen
        {
            node = Arc::unwrap_or_clone(Arc::clone(&sort.input));
            removed = true;
        }
        let node = node
            .map_subqueries(|subquery| without_idle_sorts(subquery, false).map(Transformed::yes))?;
        let inputs = node.data.inputs().len();
        seen.extend(std::iter::repeat_n(shows_order(&node.data, is_seen), inputs));
        Ok(Transformed::new_transformed(node.data, removed || node.transformed))
    });
    removed.data()
}

/// Is the order of a node's input seen, if that of its own rows is?
fn shows_order(node: &LogicalPlan, is_seen: bool) -> bool {
    match node {
        LogicalPlan::Limit(_) | LogicalPlan::Extension(_) | LogicalPlan::RecursiveQuery(_) => true,
        LogicalPlan::Window(window) => is_seen && is_over_all(window),
        LogicalPlan::Sort(_)
        | LogicalPlan::Aggregate(_)
        | LogicalPlan::Distinct(_)
        | LogicalPlan::Join(_)
        | LogicalPlan::Union(_)
        | LogicalPlan::Repartition(_) => false,
        _ => is_seen,
    }
}

fn is_over_all(window: &Window) -> bool {
    window.window_expr.iter().all(|expr| match unaliased(expr) {
        Expr::WindowFunction(call) => call.params.partition_by.is_empty(),
        _ => false,
    })
}
