//! How large planning makes a statement, told from its plan before any rule runs.
//!
//! `sql::statement_size` bounds what a text has, and `sql::with_queries` how often its queries are planned. A short text
//! can be a plan of millions of operators all the same:
//!
//! | what | becomes |
//! |---|---|
//! | a subquery in an expression | is walked twice, so what nests n deep 2^n times |
//! | `coalesce(x, …)`, `nvl(x, …)`, `x BETWEEN`, a CASE of truth values, a part of a date or `floor` compared | has `x` twice (DataFusion's `simplify_expressions`) |
//! | a filter above a SELECT list | has the list's expressions wherever it has their names (`push_down_filter`) |
//!
//! Each is counted once for each plan and expression of the text, whatever it becomes.

use std::collections::HashMap;
use std::ptr;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion, TreeNodeVisitor};
use datafusion::common::{Column, DFSchema, Result as DfResult, ScalarValue};
use datafusion::logical_expr::{BinaryExpr, Case, Expr, LogicalPlan};

use crate::base::error::{EngineError, Result};
use crate::base::sql_state::SqlState;

/// Operators of plans, and parts of expressions, that planning may make beside those that the text has: as many as
/// operators of a text. So many of plans take 5 s, which are steps that can be stopped; of an expression half a second.
const MOST_MADE: u64 = 20_000;

/// # Errors
/// [`EngineError::Statement`] if planning would make too much of it.
pub(crate) fn check(plan: &LogicalPlan) -> Result<()> {
    let mut sizer = Sizer { known: HashMap::new(), open: vec![Vec::new()] };
    plan.visit_with_subqueries(&mut sizer)?;
    let whole = sizer.open.pop().and_then(|mut sizes| sizes.pop()).unwrap_or_default();
    let refused = |what: &str| {
        let message = format!("planning would make more than {MOST_MADE} operators of {what}");
        EngineError::statement(SqlState::StatementTooComplex, message)
    };
    if whole.plans.saturating_sub(sizer.known.len() as u64) > MOST_MADE {
        return Err(refused("subqueries that nest in subqueries")
            .with_hint("join them, or CREATE TABLE AS of the innermost first"));
    }
    if whole.made > MOST_MADE {
        return Err(refused("expressions within coalesce, BETWEEN, CASE or computed columns")
            .with_hint("nest them less deep, or CREATE TABLE AS of what is computed first"));
    }
    Ok(())
}

/// Of a plan with all that it reads.
#[derive(Clone, Default)]
struct Size {
    /// Plans in it, one that is read twice counted twice.
    plans: u64,
    /// Parts of expressions that the text does not have.
    made: u64,
    /// Parts of the expression that each column is; `None` if all are columns of tables.
    columns: Option<Arc<[u64]>>,
}

struct Sizer {
    /// Those whose addresses last: a subquery's is that of a copy.
    known: HashMap<*const LogicalPlan, Size>,
    /// What is read by each plan that is being visited.
    open: Vec<Vec<Size>>,
}

impl<'n> TreeNodeVisitor<'n> for Sizer {
    type Node = LogicalPlan;

    fn f_down(&mut self, plan: &'n LogicalPlan) -> DfResult<TreeNodeRecursion> {
        if self.known.contains_key(&ptr::from_ref(plan)) {
            return Ok(TreeNodeRecursion::Jump);
        }
        self.open.push(Vec::new());
        Ok(TreeNodeRecursion::Continue)
    }

    fn f_up(&mut self, plan: &'n LogicalPlan) -> DfResult<TreeNodeRecursion> {
        let size = match self.known.get(&ptr::from_ref(plan)) {
            Some(known) => known.clone(),
            None => {
                let read = self.open.pop().unwrap_or_default();
                let size = size_of(plan, &read)?;
                if !matches!(plan, LogicalPlan::Subquery(_)) {
                    self.known.insert(ptr::from_ref(plan), size.clone());
                }
                size
            }
        };
        if let Some(above) = self.open.last_mut() {
            above.push(size);
        }
        Ok(TreeNodeRecursion::Continue)
    }
}

/// Of a plan that reads others: subqueries of its expressions come first.
fn size_of(plan: &LogicalPlan, read: &[Size]) -> DfResult<Size> {
    let inputs = plan.inputs();
    let read_columns: Vec<_> = read[read.len().saturating_sub(inputs.len())..]
        .iter()
        .zip(&inputs)
        .map(|(size, input)| (input.schema().as_ref(), size.columns.as_deref()))
        .collect();
    let of_columns = sizes_of_columns(&read_columns);
    let (mut made, mut written) = (0_u64, Vec::new());
    let is_pushed_down = matches!(plan, LogicalPlan::Filter(_) | LogicalPlan::Join(_));
    plan.apply_expressions(|expr| {
        let (there, alone) = parts(expr, &HashMap::new())?;
        let within = match of_columns.is_empty() {
            true => alone,
            false => parts(expr, &of_columns)?.1,
        };
        let becomes = if is_pushed_down { within } else { alone };
        made = made.saturating_add(becomes.saturating_sub(there));
        written.push(within);
        Ok(TreeNodeRecursion::Continue)
    })?;
    let times = if matches!(plan, LogicalPlan::Subquery(_)) { 2 } else { 1 };
    let sum = |of: fn(&Size) -> u64| {
        read.iter().fold(0_u64, |sum, size| sum.saturating_add(of(size))).saturating_mul(times)
    };
    let columns = columns_of(plan, &read_columns, written);
    Ok(Size {
        plans: sum(|size| size.plans).saturating_add(1),
        made: sum(|size| size.made).saturating_add(made),
        columns: columns.filter(|columns| columns.iter().any(|parts| *parts > 1)),
    })
}

/// What a filter above a plan becomes for each of its columns, where it goes below the plan.
fn columns_of(
    plan: &LogicalPlan,
    read: &[(&DFSchema, Option<&[u64]>)],
    written: Vec<u64>,
) -> Option<Arc<[u64]>> {
    let width = plan.schema().fields().len();
    let columns: Vec<u64> = match plan {
        LogicalPlan::Projection(_) => written,
        // Filters of keys go below it.
        LogicalPlan::Aggregate(aggregate) => {
            let keys = aggregate.group_expr.len();
            written.into_iter().take(keys).chain(aggregate.aggr_expr.iter().map(|_| 1)).collect()
        }
        LogicalPlan::Filter(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Distinct(_)
        | LogicalPlan::Repartition(_)
        | LogicalPlan::Window(_)
        | LogicalPlan::Join(_) => {
            let each = read.iter().flat_map(|(schema, sizes)| match sizes {
                Some(sizes) => sizes.to_vec(),
                None => vec![1; schema.fields().len()],
            });
            // A window's own columns come last; a semi-join has those of one side.
            each.chain(std::iter::repeat(1)).take(width).collect()
        }
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => read.first()?.1?.to_vec(),
        LogicalPlan::Union(_) => {
            let largest = |at: usize| {
                let each = read.iter().filter_map(|(_, sizes)| sizes.and_then(|s| s.get(at)));
                each.copied().max().unwrap_or(1)
            };
            (0..width).map(largest).collect()
        }
        _ => return None,
    };
    (columns.len() == width).then(|| columns.into())
}

/// By name; those that are not here are columns of tables.
fn sizes_of_columns(read: &[(&DFSchema, Option<&[u64]>)]) -> HashMap<Column, u64> {
    let computed = read.iter().filter_map(|(schema, sizes)| Some((schema, (*sizes)?)));
    computed.flat_map(|(schema, sizes)| schema.columns().into_iter().zip(sizes.to_vec())).collect()
}

/// The parts that an expression has, and those that planning makes of it.
fn parts(expr: &Expr, columns: &HashMap<Column, u64>) -> DfResult<(u64, u64)> {
    let mut counter = Counter { columns, there: 0, made: Vec::new(), firsts: Vec::new() };
    expr.visit(&mut counter)?;
    Ok((counter.there, counter.made.first().copied().unwrap_or(1)))
}

struct Counter<'a> {
    columns: &'a HashMap<Column, u64>,
    there: u64,
    /// Of the operands so far of what is being visited, and where the first of each is.
    made: Vec<u64>,
    firsts: Vec<usize>,
}

impl<'n> TreeNodeVisitor<'n> for Counter<'_> {
    type Node = Expr;

    fn f_down(&mut self, _: &'n Expr) -> DfResult<TreeNodeRecursion> {
        self.there += 1;
        self.firsts.push(self.made.len());
        Ok(TreeNodeRecursion::Continue)
    }

    fn f_up(&mut self, expr: &'n Expr) -> DfResult<TreeNodeRecursion> {
        let first = self.firsts.pop().unwrap_or_default();
        let operands = self.made.split_off(first);
        let own = match expr {
            Expr::Column(column) => self.columns.get(column).copied().unwrap_or(1),
            _ => 1,
        };
        let each = operands
            .iter()
            .enumerate()
            .map(|(at, parts)| parts.saturating_mul(times_written(expr, at, operands.len())));
        self.made.push(each.fold(own, u64::saturating_add));
        Ok(TreeNodeRecursion::Continue)
    }
}

/// How often an operand stands in what `simplify_expressions` of DataFusion 55.2 makes of an expression.
fn times_written(expr: &Expr, at: usize, operands: usize) -> u64 {
    match expr {
        Expr::ScalarFunction(call)
            if matches!(call.name(), "coalesce" | "nvl") && at + 1 < operands =>
        {
            2
        }
        Expr::Between(_) if at == 0 => 2,
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if op.negate().is_some() && (is_part_of_value(left) || is_part_of_value(right)) =>
        {
            2
        }
        // A condition stands in its own term, and negated in those after it, of which three are more than literals.
        Expr::Case(case) if becomes_terms(case) && at < 2 * case.when_then_expr.len() => {
            let after = case.when_then_expr.len() - at / 2;
            if at.is_multiple_of(2) { after.min(3) as u64 + 1 } else { 1 }
        }
        _ => 1,
    }
}

/// What is compared by the bounds of what it is made of.
fn is_part_of_value(expr: &Expr) -> bool {
    match expr {
        Expr::ScalarFunction(call) => matches!(call.name(), "date_part" | "floor"),
        Expr::Cast(cast) => is_part_of_value(&cast.expr),
        _ => false,
    }
}

/// Is it written with AND and OR?
fn becomes_terms(case: &Case) -> bool {
    let is_literal = |expr: &Expr| matches!(expr, Expr::Literal(ScalarValue::Boolean(_), _));
    let mut results = case.when_then_expr.iter().map(|(_, then)| then.as_ref());
    case.expr.is_none()
        && (case.when_then_expr.len() < 3 || results.clone().all(is_literal))
        && results.all(may_be_truth)
}

/// As far as can be told without the types of columns and calls.
fn may_be_truth(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(value, _) => matches!(value.data_type(), DataType::Boolean | DataType::Null),
        Expr::BinaryExpr(BinaryExpr { op, .. }) => op.negate().is_some() || op.is_logic_operator(),
        Expr::Negative(_) => false,
        _ => true,
    }
}
