//! `ORDER BY ALL`: by all columns from left to right.
//!
//! ```text
//! SELECT a, b + 1 FROM t ORDER BY ALL DESC     … ORDER BY 1 DESC, 2 DESC
//! SELECT * FROM t ORDER BY ALL DESC            SELECT * FROM (SELECT * FROM t) AS __all ORDER BY '__all' DESC, which becomes
//!                                              all columns when it is known which a star has
//! ```
//!
//! DataFusion's own looks columns up by their names, and finds none whose name has capitals: `Int64(1)`.

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{Expr, LogicalPlan, SortExpr};
use datafusion::sql::sqlparser::ast::{self, SetExpr, TableFactor};

use crate::sql::copies::within;

/// The relation whose rows are sorted, and what stands for its columns.
const ALL: &str = "__all";

/// Plans relations that [`order_by_all`] has named, whose columns stay those of their own relations.
#[derive(Debug)]
pub(crate) struct AllColumns;

impl RelationPlanner for AllColumns {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let (lateral, subquery) = match relation {
            TableFactor::Derived { lateral, subquery, alias: Some(alias), .. }
                if alias.name.value == ALL =>
            {
                (lateral, subquery)
            }
            other => return Ok(RelationPlanning::Original(Box::new(other))),
        };
        let of = TableFactor::Derived { lateral, subquery, alias: None, sample: None };
        let plan = context.plan(of)?;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, None))))
    }
}

/// The plan with columns in the places of what stands for them.
pub(crate) fn sorted_by_all(plan: LogicalPlan) -> Result<LogicalPlan> {
    let sorted = plan.transform_down_with_subqueries(|node| match node {
        LogicalPlan::Sort(mut sort) if matches!(sort.expr.as_slice(), [one] if is_all(one)) => {
            let SortExpr { asc, nulls_first, .. } = sort.expr[0];
            let columns = sort.input.schema().columns().into_iter();
            sort.expr = columns.map(|c| Expr::Column(c).sort(asc, nulls_first)).collect();
            Ok(Transformed::yes(LogicalPlan::Sort(sort)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(sorted.data)
}

fn is_all(key: &SortExpr) -> bool {
    matches!(&key.expr, Expr::Literal(ScalarValue::Utf8(Some(text)), _) if text == ALL)
}

/// Says by which columns `ORDER BY ALL` of a query is.
pub(crate) fn order_by_all(query: &mut ast::Query) {
    let Some(order) = &mut query.order_by else { return };
    let ast::OrderByKind::All(options) = order.kind else { return };
    match names(&query.body).map(|names| names.len()) {
        Some(count) => {
            let place = |place: usize| ast::OrderByExpr {
                expr: ast::Expr::value(ast::Value::Number(place.to_string(), false)),
                options,
                with_fill: None,
            };
            order.kind = ast::OrderByKind::Expressions((1..=count).map(place).collect());
        }
        None => {
            let text = format!("SELECT * FROM (SELECT 1) AS {ALL}");
            if let Some(body) = within(&text, (*query.body).clone()) {
                *query.body = body;
                let expr = ast::Expr::value(ast::Value::SingleQuotedString(ALL.to_owned()));
                let all = ast::OrderByExpr { expr, options, with_fill: None };
                order.kind = ast::OrderByKind::Expressions(vec![all]);
            }
        }
    }
}

/// What the columns of a query are called, as far as one is told from another; `None` if it does not say how many there are.
fn names(body: &SetExpr) -> Option<Vec<String>> {
    use ast::SetQuantifier::{AllByName, ByName, DistinctByName};
    match body {
        SetExpr::Select(select) => select.projection.iter().map(name).collect(),
        SetExpr::Query(query) => names(&query.body),
        SetExpr::SetOperation { left, right, set_quantifier, .. } => {
            let mut all = names(left)?;
            if matches!(set_quantifier, ByName | AllByName | DistinctByName) {
                let more: Vec<String> =
                    names(right)?.into_iter().filter(|name| !all.contains(name)).collect();
                all.extend(more);
            }
            Some(all)
        }
        _ => None,
    }
}

fn name(item: &ast::SelectItem) -> Option<String> {
    let of_ident = |ident: &ast::Ident| match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    };
    Some(match item {
        ast::SelectItem::ExprWithAlias { alias, .. } => of_ident(alias),
        ast::SelectItem::UnnamedExpr(ast::Expr::Identifier(ident)) => of_ident(ident),
        ast::SelectItem::UnnamedExpr(ast::Expr::CompoundIdentifier(idents)) => {
            of_ident(idents.last()?)
        }
        ast::SelectItem::UnnamedExpr(expr) => expr.to_string(),
        _ => return None,
    })
}
