//! Subqueries that name columns of the outer query where DataFusion cannot take the condition out of them.
//!
//! It makes joins of such subqueries: a condition on an outer column goes up, out of the subquery. Above an
//! aggregate without groups, which has a row whatever comes, that row is lost: `EXISTS (SELECT count(*) …)` was
//! false. Such an aggregate is a value, and is asked as one. Above a window or out of the side of an outer join
//! that may have no row, the condition means another thing; these are refused.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, Result};
use datafusion::logical_expr::expr::InSubquery;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    BinaryExpr, Expr, LogicalPlan, Operator, Projection, Subquery, lit,
};
use datafusion::optimizer::AnalyzerRule;

use crate::base::error::EngineError;

/// The rule, which comes before others look at subqueries.
#[derive(Debug)]
pub(super) struct CorrelatedSubqueries;

impl AnalyzerRule for CorrelatedSubqueries {
    fn name(&self) -> &'static str {
        "correlated_subqueries"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| {
            if let LogicalPlan::Subquery(lateral) = &node {
                refuse_what_moves(&lateral.subquery)?;
            }
            let names = NamePreserver::new(&node);
            node.map_expressions(|expr| {
                let name = names.save(&expr);
                let rewritten = expr.transform_up(as_values)?;
                Ok(rewritten.update_data(|expr| name.restore(expr)))
            })
        })
        .data()
    }
}

/// A subquery that gives one row, as the value that it is.
fn as_values(expr: Expr) -> Result<Transformed<Expr>> {
    let subquery = match &expr {
        Expr::InSubquery(within) => &within.subquery,
        Expr::Exists(exists) => &exists.subquery,
        Expr::ScalarSubquery(subquery) => subquery,
        _ => return Ok(Transformed::no(expr)),
    };
    refuse_what_moves(&subquery.subquery)?;
    let total = total_of(&subquery.subquery);
    Ok(match (expr, total) {
        (Expr::InSubquery(InSubquery { expr, subquery, negated }), Some(None)) => {
            let op = if negated { Operator::NotEq } else { Operator::Eq };
            let value = Box::new(Expr::ScalarSubquery(subquery));
            Transformed::yes(Expr::BinaryExpr(BinaryExpr { left: expr, op, right: value }))
        }
        (Expr::Exists(exists), Some(None)) => Transformed::yes(lit(!exists.negated)),
        (Expr::Exists(exists), Some(Some((having, input)))) => {
            let holds = Expr::ScalarSubquery(value(&exists.subquery, having, input)?);
            Transformed::yes(if exists.negated { holds.is_not_true() } else { holds.is_true() })
        }
        (Expr::InSubquery(InSubquery { expr, subquery, negated }), Some(Some((having, input)))) => {
            let holds = Expr::ScalarSubquery(value(&subquery, having, input)?);
            let found = Expr::ScalarSubquery(subquery);
            Transformed::yes(match negated {
                false => holds.is_true().and((*expr).eq(found)),
                true => holds.is_not_true().or((*expr).not_eq(found)),
            })
        }
        (expr, _) => Transformed::no(expr),
    })
}

/// The subquery for one value of the rows of `input`.
fn value(subquery: &Subquery, value: Expr, input: Arc<LogicalPlan>) -> Result<Subquery> {
    let projection = Projection::try_new(vec![value], input)?;
    Ok(subquery.with_plan(Arc::new(LogicalPlan::Projection(projection))))
}

/// What HAVING asks, and of which rows.
type Having = Option<(Expr, Arc<LogicalPlan>)>;

/// Is it an aggregate without groups, of rows that depend on the outer one? With its HAVING, if it has one.
fn total_of(plan: &LogicalPlan) -> Option<Having> {
    match plan {
        LogicalPlan::Projection(projection) => total_of(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => total_of(&alias.input),
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => total_of(&sort.input),
        LogicalPlan::Filter(filter) => match total_of(&filter.input)? {
            None => Some(Some((filter.predicate.clone(), Arc::clone(&filter.input)))),
            Some(_) => None,
        },
        LogicalPlan::Aggregate(aggregate) => {
            (aggregate.group_expr.is_empty() && depends(&aggregate.input)).then_some(None)
        }
        _ => None,
    }
}

/// Conditions that would mean another thing further up.
fn refuse_what_moves(plan: &LogicalPlan) -> Result<()> {
    plan.apply(|node| {
        match node {
            // Those of a lateral join are looked at by themselves.
            LogicalPlan::Subquery(_) => return Ok(TreeNodeRecursion::Jump),
            LogicalPlan::Window(window) if depends(&window.input) => {
                let what = "window functions over rows that depend on an outer query's columns are not \
                            supported";
                return Err(EngineError::unsupported(what)
                    .with_hint("put the columns into PARTITION BY and join")
                    .into());
            }
            LogicalPlan::Join(join) => {
                let sides: &[&LogicalPlan] = match join.join_type {
                    JoinType::Left => &[&join.right],
                    JoinType::Right => &[&join.left],
                    JoinType::Full => &[&join.left, &join.right],
                    _ => &[],
                };
                if sides.iter().any(|side| depends(side)) {
                    let what = "an outer join is not supported in a subquery if the side that may have no \
                                row depends on an outer query's columns";
                    return Err(EngineError::unsupported(what)
                        .with_hint("join without the condition, and ask for it above")
                        .into());
                }
            }
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// Do its rows depend on the outer one? Those of a lateral join's own subquery depend on its other side.
fn depends(plan: &LogicalPlan) -> bool {
    let mut found = false;
    let visited = plan.apply(|node| {
        if matches!(node, LogicalPlan::Subquery(_)) {
            return Ok(TreeNodeRecursion::Jump);
        }
        found |= node.contains_outer_reference();
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    found || visited.is_err()
}
