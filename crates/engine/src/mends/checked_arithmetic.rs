//! `+`, `-` and `*` of whole numbers, which are right or an error.
//!
//! DataFusion's wrap round beyond the type's range. Where a result may leave it, the operator becomes a call of
//! a function that refuses; where it cannot, as in `CAST(int AS BIGINT) + 1`, the operator stays, so that
//! everything that knows operators still does. Operators on one another's results are one call.
//!
//! # Invariants
//! - Names of columns do not change: the function's is the operator's.
//! - Only what is computed can fail, as with division: branches of CASE that are not taken do not.
//!
//! # Not here
//! Sums: `sum`, and `dense::sums`. Division and `%`, which DataFusion checks.

use std::hash::{Hash, Hasher};
use std::ops::RangeInclusive;
use std::sync::{Arc, OnceLock};

use datafusion::arrow::compute::kernels::numeric::{add, mul, neg, sub};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::arrow::error::ArrowError;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRewriter};
use datafusion::common::{
    DFSchema, Result, ScalarValue, exec_datafusion_err, internal_err, plan_err,
};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_expr_common::datum::apply;

/// Characters of an expression, and of each of its operands, that an error shows.
const SHOWN: usize = 100;

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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Operation {
    Add,
    Subtract,
    Multiply,
    Negate,
}

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
    plan_err!(
        "more than {MOST_NESTED} operations +, - and * of whole numbers stand inside one another, with others \
         between them; split the expression, or cast to DOUBLE"
    )
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
        Operation::Negate => return None,
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

/// The operation as a call, and how many such calls are inside one another then. A call that is an operand
/// becomes part of this one.
fn checked(expr: Expr, operation: Operation, operands: &[Operand]) -> (Expr, usize) {
    let exprs = match expr {
        Expr::BinaryExpr(BinaryExpr { left, right, .. }) => vec![*left, *right],
        Expr::Negative(value) => vec![*value],
        other => return (other, 0),
    };
    let (mut steps, mut args, mut nested) = (Vec::new(), Vec::new(), 1);
    for (expr, operand) in exprs.into_iter().zip(operands) {
        let known = match &expr {
            Expr::ScalarFunction(call) => call.func.inner().downcast_ref::<Checked>(),
            _ => None,
        };
        if let Some(inner) = known {
            steps.extend(inner.steps.iter().cloned());
            nested = nested.max(operand.nested);
        } else {
            steps.push(Step::Operand(shown(&expr).into()));
            nested = nested.max(operand.nested + 1);
        }
        match expr {
            Expr::ScalarFunction(call) if call.func.inner().is::<Checked>() => {
                args.extend(call.args);
            }
            other => args.push(other),
        }
    }
    steps.push(Step::Operation(operation));
    let func = Arc::new(ScalarUDF::from(Checked::new(steps, args.len())));
    (Expr::ScalarFunction(ScalarFunction { func, args }), nested)
}

/// An operand as an error shows it.
fn shown(expr: &Expr) -> String {
    // Not with types and casts, but calls of ours as the operators that they are.
    let text = cut(expr.schema_name().to_string());
    if matches!(expr, Expr::BinaryExpr(_)) { format!("({text})") } else { text }
}

fn cut(text: String) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
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

/// Operations on one another's results as a function of all that they begin with: calls inside calls would
/// be asked for their types at each level.
#[derive(Debug)]
struct Checked {
    /// Unlike formulas have unlike names. Made when it is asked for: most calls become part of others.
    name: OnceLock<String>,
    /// An operation takes the last results before it.
    steps: Vec<Step>,
    signature: Signature,
}

#[derive(Clone, Debug)]
enum Step {
    /// The next argument; with what errors show, which says nothing of what is computed.
    Operand(Arc<str>),
    Operation(Operation),
}

impl Step {
    fn operation(&self) -> Option<Operation> {
        match self {
            Self::Operand(_) => None,
            Self::Operation(operation) => Some(*operation),
        }
    }
}

impl PartialEq for Step {
    fn eq(&self, other: &Self) -> bool {
        self.operation() == other.operation()
    }
}

impl Eq for Step {}

impl Hash for Step {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.operation().hash(state);
    }
}

impl PartialEq for Checked {
    fn eq(&self, other: &Self) -> bool {
        self.steps == other.steps
    }
}

impl Eq for Checked {}

impl Hash for Checked {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.steps.hash(state);
    }
}

impl Checked {
    fn new(steps: Vec<Step>, args: usize) -> Self {
        let signature = Signature::any(args, Volatility::Immutable);
        Self { name: OnceLock::new(), steps, signature }
    }

    /// What `operation` makes of the last of `values`, which it takes.
    fn compute(operation: Operation, values: &mut Vec<ColumnarValue>) -> Result<ColumnarValue> {
        let last = values.pop();
        let before = if operation == Operation::Negate { None } else { values.pop() };
        match (operation, before, last) {
            (Operation::Add, Some(left), Some(right)) => apply(&left, &right, add),
            (Operation::Subtract, Some(left), Some(right)) => apply(&left, &right, sub),
            (Operation::Multiply, Some(left), Some(right)) => apply(&left, &right, mul),
            (Operation::Negate, _, Some(value)) => negated(&value),
            _ => internal_err!("{operation:?} has too few operands"),
        }
    }
}

/// `checked_add` of operands from left to right; another formula is in the name.
fn name_of(steps: &[Step]) -> String {
    let operations = || steps.iter().filter_map(Step::operation);
    // Operands and operations in turn, after the first operand.
    let is_chain = steps.len() < 3
        || steps[1..]
            .iter()
            .enumerate()
            .all(|(at, step)| step.operation().is_some() == (at % 2 == 1));
    match operations().next() {
        Some(first) if is_chain && operations().all(|operation| operation == first) => {
            match first {
                Operation::Add => "checked_add".into(),
                Operation::Subtract => "checked_subtract".into(),
                Operation::Multiply => "checked_multiply".into(),
                Operation::Negate => "checked_negate".into(),
            }
        }
        _ => {
            let places = (1..).map(|place| format!("${place}"));
            format!("checked[{}]", formula(steps, places, true).unwrap_or_default())
        }
    }
}

/// What the last of `steps` computes, written with operators. DataFusion's names have no brackets.
fn formula(
    steps: &[Step],
    mut operands: impl Iterator<Item = String>,
    brackets: bool,
) -> Option<String> {
    /// How strongly `+` and `-`, `*`, and what needs no brackets bind.
    const SUM: u8 = 1;
    const PRODUCT: u8 = 2;
    const ONE: u8 = 3;

    let mut written: Vec<(String, u8)> = Vec::new();
    for step in steps {
        let Some(operation) = step.operation() else {
            written.push((operands.next()?, ONE));
            continue;
        };
        let (right, binds_right) = written.pop()?;
        let (sign, binds) = match operation {
            Operation::Add => (" + ", SUM),
            Operation::Subtract => (" - ", SUM),
            Operation::Multiply => (" * ", PRODUCT),
            Operation::Negate => {
                written.push((format!("(- {right})"), ONE));
                continue;
            }
        };
        let (mut text, binds_left) = written.pop()?;
        if brackets && binds_left < binds {
            text = format!("({text})");
        }
        text.push_str(sign);
        if brackets && binds_right <= binds {
            text.push_str(&format!("({right})"));
        } else {
            text.push_str(&right);
        }
        written.push((text, binds));
    }
    written.pop().map(|(text, _)| text)
}

impl ScalarUDFImpl for Checked {
    fn name(&self) -> &str {
        self.name.get_or_init(|| name_of(&self.steps))
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let names = args.iter().map(|arg| arg.schema_name().to_string());
        match formula(&self.steps, names, false) {
            Some(name) => Ok(name),
            None => internal_err!("{} of {} arguments", self.name(), args.len()),
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types.first() {
            Some(data_type) => Ok(data_type.clone()),
            None => internal_err!("{} of nothing", self.name()),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let Some(first) = args.arg_fields.first() else {
            return internal_err!("{} of nothing", self.name());
        };
        let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new("checked", first.data_type().clone(), nullable)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let unsigned = args.return_field.data_type().is_unsigned_integer();
        let (mut args, mut values) = (args.args.into_iter(), Vec::new());
        for (at, step) in self.steps.iter().enumerate() {
            let Some(operation) = step.operation() else {
                values.extend(args.next());
                continue;
            };
            match Self::compute(operation, &mut values) {
                Ok(value) => values.push(value),
                Err(error) => return Err(overflow(error, &self.steps[..=at], unsigned)),
            }
        }
        match values.pop() {
            Some(value) => Ok(value),
            None => internal_err!("{} of nothing", self.name()),
        }
    }
}

/// The error of the last of `steps`, in words that say what to do.
fn overflow(error: DataFusionError, steps: &[Step], unsigned: bool) -> DataFusionError {
    let DataFusionError::ArrowError(inner, _) = &error else { return error };
    let ArrowError::ArithmeticOverflow(what) = inner.as_ref() else { return error };
    let what = what.trim_start_matches("Overflow happened on: ");
    let remedy = if unsigned {
        "CAST both sides to BIGINT, or one to DECIMAL(38, 0)"
    } else {
        "CAST one side to DECIMAL(38, 0) or DOUBLE"
    };
    let texts = steps.iter().filter_map(|step| match step {
        Step::Operand(text) => Some(text.to_string()),
        Step::Operation(_) => None,
    });
    let text = cut(formula(steps, texts, true).unwrap_or_default());
    exec_datafusion_err!("integer overflow in {text}: {what}; {remedy}")
}

fn negated(value: &ColumnarValue) -> Result<ColumnarValue> {
    Ok(match value {
        ColumnarValue::Array(array) => ColumnarValue::Array(neg(array.as_ref())?),
        ColumnarValue::Scalar(value) => {
            let array = neg(value.to_array()?.as_ref())?;
            ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?)
        }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int32Array, Int64Array};
    use datafusion::arrow::datatypes::Int64Type;
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
        let half = |depth: usize| {
            (0..depth).fold(col("big"), |x, _| (x + col("big")) / lit(2_i64)) + col("big")
        };
        let check = |expr: Expr| {
            expr.rewrite(&mut Checker { schema: &table(), open: Vec::new() }).map(|done| done.data)
        };
        assert!(check(half(MOST_NESTED - 1)).is_ok());
        let error = check(half(MOST_NESTED)).unwrap_err().to_string();
        assert!(error.contains("more than 100 operations"), "{error}");
    }

    fn invoke(operation: Operation, args: Vec<ColumnarValue>) -> Result<ColumnarValue> {
        let mut steps: Vec<Step> = args.iter().map(|_| Step::Operand("x".into())).collect();
        steps.push(Step::Operation(operation));
        evaluate(steps, args)
    }

    fn evaluate(steps: Vec<Step>, args: Vec<ColumnarValue>) -> Result<ColumnarValue> {
        let function = Checked::new(steps, args.len());
        let field = |arg: &ColumnarValue| Arc::new(Field::new("x", arg.data_type(), true));
        let number_rows = args
            .iter()
            .map(|arg| match arg {
                ColumnarValue::Array(array) => array.len(),
                ColumnarValue::Scalar(_) => 1,
            })
            .max();
        function.invoke_with_args(ScalarFunctionArgs {
            arg_fields: args.iter().map(field).collect(),
            number_rows: number_rows.unwrap_or(1),
            return_field: field(&args[0]),
            config_options: Arc::default(),
            args,
        })
    }

    #[test]
    fn borders_are_reached_and_not_passed() {
        let column = |values: Vec<Option<i64>>| {
            ColumnarValue::Array(Arc::new(Int64Array::from(values)) as ArrayRef)
        };
        let one = || ColumnarValue::Scalar(ScalarValue::Int64(Some(1)));
        let fits = column(vec![Some(i64::MAX - 1), None, Some(i64::MIN)]);
        let sums = invoke(Operation::Add, vec![fits, one()]).unwrap().into_array(3).unwrap();
        let expected = Int64Array::from(vec![Some(i64::MAX), None, Some(i64::MIN + 1)]);
        assert_eq!(sums.as_primitive::<Int64Type>(), &expected);

        let max = || column(vec![None, Some(i64::MAX)]);
        let error = invoke(Operation::Add, vec![max(), one()]).unwrap_err().to_string();
        assert!(
            error.contains("integer overflow in x + x: 9223372036854775807 + 1; CAST one side"),
            "{error}"
        );
        assert!(invoke(Operation::Multiply, vec![max(), max()]).is_err());
        assert!(invoke(Operation::Subtract, vec![column(vec![Some(i64::MIN)]), one()]).is_err());
        assert!(invoke(Operation::Negate, vec![column(vec![Some(i64::MIN)])]).is_err());
        assert!(invoke(Operation::Negate, vec![max()]).is_ok());

        let short = |x: i32| ColumnarValue::Array(Arc::new(Int32Array::from(vec![x])) as ArrayRef);
        assert!(invoke(Operation::Add, vec![short(i32::MAX), short(1)]).is_err());
        assert!(invoke(Operation::Add, vec![short(i32::MAX), short(0)]).is_ok());
        let null = ColumnarValue::Scalar(ScalarValue::Int64(None));
        let nothing = invoke(Operation::Add, vec![null, one()]).unwrap();
        assert!(matches!(nothing, ColumnarValue::Scalar(value) if value.is_null()));
    }

    #[test]
    fn formulas_are_computed_from_left_to_right_and_errors_show_what_failed() {
        use Operation::{Add, Multiply, Negate, Subtract};
        let operand = |name: &str| Step::Operand(name.into());
        // a - (b + c) * -d
        let steps = [
            vec![operand("a"), operand("b"), operand("c"), Step::Operation(Add), operand("d")],
            vec![Step::Operation(Negate), Step::Operation(Multiply), Step::Operation(Subtract)],
        ]
        .concat();
        let values = |values: [i64; 4]| {
            values.map(|x| ColumnarValue::Scalar(ScalarValue::Int64(Some(x)))).to_vec()
        };
        let found = evaluate(steps.clone(), values([1, 2, 3, 4])).unwrap();
        assert!(matches!(found, ColumnarValue::Scalar(ScalarValue::Int64(Some(21)))));
        let error = |args: [i64; 4]| {
            let error = evaluate(steps.clone(), values(args)).unwrap_err().to_string();
            error.split("integer overflow in ").nth(1).unwrap().to_owned()
        };
        assert!(error([1, i64::MAX, 1, 4]).starts_with("b + c: "));
        assert!(error([1, 2, 3, i64::MIN]).starts_with("(- d): "));
        assert!(error([1, i64::MAX, 0, 2]).starts_with("(b + c) * (- d): "));
        assert!(error([i64::MAX, 1, 1, 1]).starts_with("a - (b + c) * (- d): "));
    }

    #[test]
    fn long_expressions_are_cut_short_in_errors() {
        let long = "x".repeat(SHOWN);
        assert_eq!(cut(long.clone()), long);
        assert_eq!(cut(long + "y").chars().count(), SHOWN + 1);
        assert_eq!(shown(&(col("a") / lit(2_i32))), "(a / Int32(2))");
    }
}
