//! `EXCEPT ALL` and `INTERSECT ALL`: copies of a row are numbered on both sides, and become different rows.
//!
//! Three copies less one are numbers 1 to 3 less number 1. DataFusion plans these as semi and anti joins, which take
//! all copies or none.

use datafusion::common::{Column, Result};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{Expr, ExprFunctionExt, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::sqlparser::ast::{self, SetExpr, TableFactor};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

/// The relation whose rows are numbered, and the number.
const NUMBERED: &str = "__numbered";
const COPY: &str = "__copy";

/// Plans relations that [`number_copies`] has named.
#[derive(Debug)]
pub(crate) struct NumberedCopies;

impl RelationPlanner for NumberedCopies {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let (lateral, subquery) = match relation {
            TableFactor::Derived { lateral, subquery, alias: Some(alias), .. }
                if alias.name.value == NUMBERED =>
            {
                (lateral, subquery)
            }
            other => return Ok(RelationPlanning::Original(Box::new(other))),
        };
        let of = TableFactor::Derived { lateral, subquery, alias: None, sample: None };
        let plan = numbered(context.plan(of)?)?;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, None))))
    }
}

/// The rows, each with its number among those that are the same.
fn numbered(plan: LogicalPlan) -> Result<LogicalPlan> {
    let columns: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
    let numbering = row_number().partition_by(columns.clone()).build()?;
    let name = numbering.schema_name().to_string();
    let number = Expr::Column(Column::from_name(name)).alias(COPY);
    LogicalPlanBuilder::from(plan)
        .window(vec![numbering])?
        .project(columns.into_iter().chain([number]))?
        .alias(NUMBERED)?
        .build()
}

/// Writes such operations of a query as those of numbered rows.
pub(crate) fn number_copies(body: &mut SetExpr) {
    use ast::SetQuantifier::All;
    let SetExpr::SetOperation { op, set_quantifier, left, right } = body else { return };
    number_copies(left);
    number_copies(right);
    if *op != ast::SetOperator::Union && *set_quantifier == All {
        number_copies_of(body);
    }
}

/// The same of one operation. Apart, because thousands may stand in one another, and this takes a good part of a stack.
#[inline(never)]
fn number_copies_of(body: &mut SetExpr) {
    use ast::SetQuantifier;
    let SetExpr::SetOperation { op, left, right, .. } = body else { return };
    let operation = |op: ast::SetOperator, left: SetExpr, right: SetExpr| {
        let (left, right) =
            (Box::new(within(NUMBERED_ROWS, left)?), Box::new(within(NUMBERED_ROWS, right)?));
        let of = SetExpr::SetOperation { op, set_quantifier: SetQuantifier::None, left, right };
        within(WITHOUT_NUMBER, of)
    };
    if let Some(operation) = operation(*op, (**left).clone(), (**right).clone()) {
        *body = operation;
    }
}

const NUMBERED_ROWS: &str = "SELECT * FROM (SELECT 1) AS __numbered";
const WITHOUT_NUMBER: &str = "SELECT * EXCLUDE (__copy) FROM (SELECT 1) AS __rows";

/// The query of a text, with other rows in its subquery.
pub(crate) fn within(text: &str, rows: SetExpr) -> Option<SetExpr> {
    let parsed = Parser::parse_sql(&GenericDialect {}, text).ok()?.pop()?;
    let ast::Statement::Query(mut query) = parsed else { return None };
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    let TableFactor::Derived { subquery, .. } = &mut select.from.first_mut()?.relation else {
        return None;
    };
    *subquery.body = rows;
    Some(*query.body)
}
