//! `+`, `-` and `*` of whole numbers, which are right or an error.
//!
//! DataFusion's wrap round beyond the type's range. Where a result may leave it, the operator becomes a call of
//! a function that refuses; where it cannot, as in `CAST(int AS BIGINT) + 1`, the operator stays, so that
//! everything that knows operators still does. Operators on one another's results are one call
//! (`checked_formula`), with the divisions between them.
//!
//! # Invariants
//! - Names of columns do not change: the function's is the operator's.
//! - Only what is computed can fail, as with division: branches of CASE that are not taken do not.
//!
//! # Not here
//! Sums: `sum`, and `operators::array_aggregate::sums`. Division and `%`, which DataFusion checks.

use std::ops::RangeInclusive;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRewriter};
use datafusion::common::{DFSchema, Result, ScalarValue, internal_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, ScalarUDF};
use datafusion::optimizer::AnalyzerRule;

use crate::base::error::EngineError;
use crate::base::sql_state::SqlState;

use super::checked_formula::{Checked, Operation, Step, cut};

/// The rule, which comes when types are known.
#[derive(Debug)]
pub(super) struct CheckedArithmetic;

impl AnalyzerRule for CheckedArithmetic {
    fn name(&self) -> &'static str {
        "checked_arithmetic"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| {
            // What a scan filters by is the table's own affair.
            if matches!(node, LogicalPlan::TableScan(_)) {
                return Ok(Transformed::no(node));
            }
            let computes = |expr: &Expr| Ok(operation_of(expr).is_some());
            let expressions = node.expressions();
            let found = expressions.iter().map(|expr| expr.exists(computes));
            if !found.collect::<Result<Vec<_>>>()?.contains(&true) {
                return Ok(Transformed::no(node));
            }
            let schema = merge_schema(&node.inputs());
            let names = NamePreserver::new(&node);
            node.map_expressions(|expr| {
                let name = names.save(&expr);
                let rewritten = expr.rewrite(&mut Checker { schema: &schema, open: Vec::new() })?;
                Ok(rewritten.update_data(|expr| name.restore(expr)))
            })
        })
        .data()
    }
}

/// Calls of checked operators inside one another, with something else between them, as in `(a + b) / 2 + c`:
/// what one gives is asked at each level for all below it, by name.
const MOST_NESTED: usize = 100;

fn operation_of(expr: &Expr) -> Option<Operation> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { op: Operator::Plus, .. }) => Some(Operation::Add),
        Expr::BinaryExpr(BinaryExpr { op: Operator::Minus, .. }) => Some(Operation::Subtract),
        Expr::BinaryExpr(BinaryExpr { op: Operator::Multiply, .. }) => Some(Operation::Multiply),
        Expr::Negative(_) => Some(Operation::Negate),
        _ => None,
    }
}

/// Goes through an expression once, and knows of each part what the one above it asks.
struct Checker<'a> {
    schema: &'a DFSchema,
    /// The parts from the whole down to the one that is looked at.
    open: Vec<Part>,
}

struct Part {
    /// Does an operation want to know the values that this part may have?
    wanted: bool,
    /// Does this part want to know that of those below?
    asks: bool,
    /// The type, if it is wanted and says all that is known of the values.
    data_type: Option<DataType>,
    /// In their order.
    below: Vec<Operand>,
}

struct Operand {
    /// `None` if they are no whole numbers, or nobody has asked.
    numbers: Option<Numbers>,
    /// Checked calls inside one another.
    nested: usize,
}

/// The values that whole numbers may have.
#[derive(Clone)]
struct Numbers {
    data_type: DataType,
    range: RangeInclusive<i128>,
}

impl Numbers {
    fn of_type(data_type: &DataType) -> Option<Self> {
        let range = range_of_type(data_type)?;
        Some(Self { data_type: data_type.clone(), range })
    }

    fn all_in(&self, range: &RangeInclusive<i128>) -> bool {
        range.contains(self.range.start()) && range.contains(self.range.end())
    }
}

impl TreeNodeRewriter for Checker<'_> {
    type Node = Expr;

    fn f_down(&mut self, expr: Expr) -> Result<Transformed<Expr>> {
        let wanted = self.open.last().is_some_and(|above| above.asks);
        let (asks, data_type) = match &expr {
            Expr::Cast(_) | Expr::Alias(_) => (wanted, None),
            _ if operation_of(&expr).is_some() => (true, None),
            _ if wanted => (false, expr.get_type(self.schema).ok()),
            _ => (false, None),
        };
        self.open.push(Part { wanted, asks, data_type, below: Vec::new() });
        Ok(Transformed::no(expr))
    }

    fn f_up(&mut self, expr: Expr) -> Result<Transformed<Expr>> {
        let Some(part) = self.open.pop() else {
            return internal_err!("an expression ends that has not begun");
        };
        let nested = part.below.iter().map(|operand| operand.nested).max().unwrap_or_default();
        let (expr, operand) = match operation_of(&expr) {
            Some(operation) => match results(operation, &part.below) {
                Some((numbers, true)) => {
                    let (call, nested) = checked(expr, operation, &part.below);
                    if nested > MOST_NESTED {
                        return too_deep();
                    }
                    (Transformed::yes(call), Operand { numbers: Some(numbers), nested })
                }
                found => {
                    let numbers = found.map(|(numbers, _)| numbers);
                    (Transformed::no(expr), Operand { numbers, nested })
                }
            },
            None => {
                let numbers = if part.wanted { values_of(&expr, part) } else { None };
                (Transformed::no(expr), Operand { numbers, nested })
            }
        };
        if let Some(above) = self.open.last_mut() {
            above.below.push(operand);
        }
        Ok(expr)
    }
}

fn too_deep<T>() -> Result<T> {
    let what = format!(
        "more than {MOST_NESTED} operations +, - and * of whole numbers stand inside one another, with others \
         between them"
    );
    Err(EngineError::statement(SqlState::StatementTooComplex, what)
        .with_hint("split the expression, or cast to DOUBLE")
        .into())
}

/// The values that an expression which is no operation may have.
fn values_of(expr: &Expr, mut part: Part) -> Option<Numbers> {
    match expr {
        Expr::Literal(value, _) => {
            let number = whole(value)?;
            Some(Numbers { data_type: value.data_type(), range: number..=number })
        }
        Expr::Alias(_) => part.below.pop()?.numbers,
        Expr::Cast(cast) => {
            let of_type = Numbers::of_type(cast.field.data_type())?;
            // Nothing is computed of NULL, which the operator stays for: the optimizer knows it.
            if matches!(cast.expr.as_ref(), Expr::Literal(value, _) if value.is_null()) {
                return Some(Numbers { range: 0..=0, ..of_type });
            }
            let below = part.below.pop().and_then(|operand| operand.numbers);
            match below.filter(|numbers| numbers.all_in(&of_type.range)) {
                Some(narrower) => Some(Numbers { range: narrower.range, ..of_type }),
                None => Some(of_type),
            }
        }
        _ => Numbers::of_type(&part.data_type?),
    }
}

/// What an operation may come to, and whether it may overflow; `None` if it is not on whole numbers of one
/// type.
fn results(operation: Operation, operands: &[Operand]) -> Option<(Numbers, bool)> {
    let operands: Vec<_> =
        operands.iter().map(|one| one.numbers.as_ref()).collect::<Option<_>>()?;
    let (data_type, range) = match (operation, operands.as_slice()) {
        // There is nothing below 0 to be had, and DataFusion says so itself.
        (Operation::Negate, [value]) if value.data_type.is_signed_integer() => {
            (&value.data_type, Some(-*value.range.end()..=-*value.range.start()))
        }
        (_, [left, right]) if left.data_type == right.data_type => {
            (&left.data_type, range_of_results(operation, &left.range, &right.range))
        }
        _ => return None,
    };
    let of_type = Numbers::of_type(data_type)?;
    let computed = range.map(|range| Numbers { range, ..of_type.clone() });
    match computed.filter(|numbers| numbers.all_in(&of_type.range)) {
        Some(numbers) => Some((numbers, false)),
        None => Some((of_type, true)),
    }
}

/// If nothing wraps; `None`: more than 128 bits.
fn range_of_results(
    operation: Operation,
    left: &RangeInclusive<i128>,
    right: &RangeInclusive<i128>,
) -> Option<RangeInclusive<i128>> {
    let compute: fn(i128, i128) -> Option<i128> = match operation {
        Operation::Add => i128::checked_add,
        Operation::Subtract => i128::checked_sub,
        Operation::Multiply => i128::checked_mul,
        Operation::Negate | Operation::Divide | Operation::Remainder => return None,
    };
    // The least and the largest result are of least and largest operands.
    let corners = [
        compute(*left.start(), *right.start()),
        compute(*left.start(), *right.end()),
        compute(*left.end(), *right.start()),
        compute(*left.end(), *right.end()),
    ];
    let corners: Option<Vec<i128>> = corners.into_iter().collect();
    let corners = corners?;
    Some(*corners.iter().min()?..=*corners.iter().max()?)
}

/// The operation as a call, and how many such calls are inside one another then. Calls that are operands,
/// and divisions of such, become part of this one.
fn checked(expr: Expr, operation: Operation, operands: &[Operand]) -> (Expr, usize) {
    let exprs = match expr {
        Expr::BinaryExpr(BinaryExpr { left, right, .. }) => vec![*left, *right],
        Expr::Negative(value) => vec![*value],
        other => return (other, 0),
    };
    let (mut formula, mut nested) = (Formula::default(), 1);
    for (expr, operand) in exprs.into_iter().zip(operands) {
        let inside = usize::from(!is_formula(&expr));
        nested = nested.max(operand.nested + inside);
        formula.take(expr);
    }
    let Formula { mut steps, args } = formula;
    steps.push(Step::Operation(operation));
    let func = Arc::new(ScalarUDF::from(Checked::new(steps, args.len())));
    (Expr::ScalarFunction(ScalarFunction { func, args }), nested)
}

#[derive(Default)]
struct Formula {
    steps: Vec<Step>,
    args: Vec<Expr>,
}

impl Formula {
    fn take(&mut self, expr: Expr) {
        if !is_formula(&expr) {
            self.steps.push(Step::Operand(shown(&expr).into()));
            self.args.push(expr);
            return;
        }
        match expr {
            Expr::ScalarFunction(call) => {
                let inner = call.func.inner().downcast_ref::<Checked>();
                self.steps.extend(inner.into_iter().flat_map(|inner| inner.steps.iter().cloned()));
                self.args.extend(call.args);
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                self.take(*left);
                self.take(*right);
                self.steps.extend(division(op).map(Step::Operation));
            }
            other => self.args.push(other),
        }
    }
}

/// Is it a call of ours, or a division that has one for an operand? All of its operands are of one type.
fn is_formula(expr: &Expr) -> bool {
    match expr {
        Expr::ScalarFunction(call) => call.func.inner().is::<Checked>(),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            division(*op).is_some() && (is_formula(left) || is_formula(right))
        }
        _ => false,
    }
}

fn division(op: Operator) -> Option<Operation> {
    match op {
        Operator::Divide => Some(Operation::Divide),
        Operator::Modulo => Some(Operation::Remainder),
        _ => None,
    }
}

/// An operand as an error shows it.
fn shown(expr: &Expr) -> String {
    // Not with types and casts, but calls of ours as the operators that they are.
    let text = cut(expr.schema_name().to_string());
    if matches!(expr, Expr::BinaryExpr(_)) { format!("({text})") } else { text }
}

fn range_of_type(data_type: &DataType) -> Option<RangeInclusive<i128>> {
    Some(match data_type {
        DataType::Int8 => i8::MIN.into()..=i8::MAX.into(),
        DataType::Int16 => i16::MIN.into()..=i16::MAX.into(),
        DataType::Int32 => i32::MIN.into()..=i32::MAX.into(),
        DataType::Int64 => i64::MIN.into()..=i64::MAX.into(),
        DataType::UInt8 => 0..=u8::MAX.into(),
        DataType::UInt16 => 0..=u16::MAX.into(),
        DataType::UInt32 => 0..=u32::MAX.into(),
        DataType::UInt64 => 0..=u64::MAX.into(),
        _ => return None,
    })
}

/// A literal's value; 0 in place of NULL, of which nothing is computed.
fn whole(value: &ScalarValue) -> Option<i128> {
    Some(match value {
        ScalarValue::Int8(x) => x.unwrap_or_default().into(),
        ScalarValue::Int16(x) => x.unwrap_or_default().into(),
        ScalarValue::Int32(x) => x.unwrap_or_default().into(),
        ScalarValue::Int64(x) => x.unwrap_or_default().into(),
        ScalarValue::UInt8(x) => x.unwrap_or_default().into(),
        ScalarValue::UInt16(x) => x.unwrap_or_default().into(),
        ScalarValue::UInt32(x) => x.unwrap_or_default().into(),
        ScalarValue::UInt64(x) => x.unwrap_or_default().into(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use datafusion::arrow::datatypes::Field;
    use datafusion::functions::math::expr_fn::abs;
    use datafusion::logical_expr::{cast, col, lit};

    use super::*;

    fn table() -> DFSchema {
        let field = |(name, data_type): (&str, DataType)| Field::new(name, data_type, true);
        let columns = [
            ("a", DataType::Int32),
            ("b", DataType::Int32),
            ("big", DataType::Int64),
            ("unsigned", DataType::UInt64),
            ("price", DataType::Float64),
            ("day", DataType::Date32),
        ];
        let fields = columns.map(field).to_vec();
        DFSchema::from_unqualified_fields(fields.into(), HashMap::new()).unwrap()
    }

    fn long(name: &str) -> Expr {
        cast(col(name), DataType::Int64)
    }

    fn rewritten(expr: Expr) -> Transformed<Expr> {
        expr.rewrite(&mut Checker { schema: &table(), open: Vec::new() }).unwrap()
    }

    fn call(expr: Expr) -> ScalarFunction {
        match rewritten(expr).data {
            Expr::ScalarFunction(call) => call,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn what_may_overflow_is_checked_and_nothing_else() {
        let may = [
            col("a") + col("b"),
            col("a") - lit(1_i32),
            col("big") + lit(1_i64),
            col("big") * long("a"),
            long("a") * long("b") * long("a"),
            long("a") + lit(i64::MAX),
            col("unsigned") - lit(1_u64),
            col("unsigned") * col("unsigned"),
            lit(i64::MAX) + lit(1_i64),
            Expr::Negative(Box::new(col("big"))),
            Expr::Negative(Box::new(lit(i64::MIN))),
        ];
        for expr in may {
            let text = expr.to_string();
            let found = rewritten(expr);
            assert!(found.transformed, "{text}");
            assert!(matches!(found.data, Expr::ScalarFunction(_)), "{text}");
        }
        let cannot = [
            long("a") + lit(1_i64),
            long("a") * long("b") - long("a"),
            long("a") + (long("b") + lit(1_i64)) * lit(1000_i64),
            col("big") + lit(0_i64),
            col("big") * lit(1_i64),
            lit(9_i64) * lit(7_i64) - lit(100_i64),
            col("price") * col("price"),
            col("day") - col("day"),
            Expr::Negative(Box::new(long("a"))),
            Expr::Negative(Box::new(col("price"))),
            col("big") / lit(2_i64),
        ];
        for expr in cannot {
            let text = expr.to_string();
            assert!(!rewritten(expr).transformed, "{text}");
        }
    }

    #[test]
    fn a_result_that_is_checked_itself_may_be_anything_of_its_type() {
        // The product below leaves 32 bits or fails; it is not taken to be narrower than its type.
        let sum = col("a") * lit(0_i32) + col("b");
        assert!(!rewritten(sum).transformed);
        let sum = col("a") * lit(3_i32) + lit(1_i32);
        assert!(rewritten(sum).transformed);
    }

    #[test]
    fn names_and_nulls_are_those_of_the_operator() {
        let schema = table();
        let exprs = [
            (col("a") + col("b")) * col("b"),
            col("big") - (col("big") - lit(7_i64)) * col("big"),
            Expr::Negative(Box::new(col("big"))),
        ];
        for expr in exprs {
            let name = expr.schema_name().to_string();
            let field = expr.to_field(&schema).unwrap().1;
            let found = Expr::ScalarFunction(call(expr));
            assert_eq!(found.schema_name().to_string(), name);
            let same = found.to_field(&schema).unwrap().1;
            assert_eq!(same.data_type(), field.data_type());
            assert_eq!(same.is_nullable(), field.is_nullable());
        }
    }

    #[test]
    fn one_operation_is_one_whatever_errors_show() {
        let of = |expr: Expr| call(expr).func;
        assert_eq!(of(col("big") + lit(1_i64)), of(col("a") + col("b")));
        assert_ne!(of(col("big") + lit(1_i64)), of(col("big") - lit(1_i64)));
    }

    #[test]
    fn operations_on_results_are_one_call_of_all_operands() {
        let chain = (0..1000).fold(col("big"), |sum, _| sum + col("big"));
        let chain = call(chain);
        assert_eq!((chain.args.len(), chain.name()), (1001, "checked_add"));
        let mixed = (0..1000).fold(col("big"), |x, _| col("big") * (x + col("big")));
        let mixed = call(mixed);
        assert_eq!(mixed.args.len(), 2001);
        assert_eq!(mixed.args[0], col("big"));
    }

    #[test]
    fn divisions_between_operations_are_part_of_the_call() {
        let half = (0..1000).fold(col("big"), |x, _| (x + col("big")) / lit(2_i64));
        let schema = table();
        let name = (half.clone() + col("big")).schema_name().to_string();
        let sum = call(half + col("big"));
        assert_eq!(sum.args.len(), 2002);
        assert_eq!(Expr::ScalarFunction(sum).schema_name().to_string(), name);
        // Alone, one is DataFusion's.
        let alone = (col("big") + col("big")) % lit(2_i64);
        assert!(matches!(rewritten(alone).data, Expr::BinaryExpr(_)));
        let plain = call(col("big") / lit(2_i64) + col("big"));
        assert_eq!((plain.args.len(), plain.name()), (2, "checked_add"));
        let mixed = call((col("big") + lit(1_i64)) % lit(7_i64) * col("big"));
        assert_eq!(mixed.name(), "checked[($1 + $2) % $3 * $4]");
        assert!(Expr::ScalarFunction(mixed).to_field(&schema).is_ok());
    }

    #[test]
    fn unlike_formulas_have_unlike_names() {
        let name = |expr: Expr| call(expr).name().to_owned();
        let big = || col("big");
        assert_eq!(name(big() - big() - big()), "checked_subtract");
        assert_eq!(name(big() - (big() - big())), "checked[$1 - ($2 - $3)]");
        assert_eq!(name(big() * (big() + big())), "checked[$1 * ($2 + $3)]");
        assert_eq!(name(big() * big() + big()), "checked[$1 * $2 + $3]");
        assert_eq!(name(Expr::Negative(Box::new(big()))), "checked_negate");
        assert_eq!(name(big() + Expr::Negative(Box::new(big()))), "checked[$1 + (- $2)]");
    }

    #[test]
    fn calls_inside_calls_have_a_limit_and_chains_have_none() {
        let sum =
            |depth: usize| (0..depth).fold(col("big"), |x, _| abs(x + col("big"))) + col("big");
        let check = |expr: Expr| {
            expr.rewrite(&mut Checker { schema: &table(), open: Vec::new() }).map(|done| done.data)
        };
        assert!(check(sum(MOST_NESTED - 1)).is_ok());
        let error = check(sum(MOST_NESTED)).unwrap_err().to_string();
        assert!(error.contains("more than 100 operations"), "{error}");
    }

    #[test]
    fn operands_are_shown_with_brackets() {
        assert_eq!(shown(&(col("a") / lit(2_i32))), "(a / Int32(2))");
    }
}
