//! `+`, `-` and `*` of whole numbers, which are right or an error.
//!
//! DataFusion's wrap round beyond the type's range. Where a result may leave it, the operator becomes a call of
//! a function that refuses; where it cannot, as in `CAST(int AS BIGINT) + 1`, the operator stays, so that
//! everything that knows operators still does.
//!
//! # Invariants
//! - Names of columns do not change: the function's is the operator's.
//! - Only what is computed can fail, as with division: branches of CASE that are not taken do not.
//!
//! # Not here
//! Sums: `sum`, and `dense::sums`. Division and `%`, which DataFusion checks.

use std::hash::{Hash, Hasher};
use std::ops::RangeInclusive;
use std::sync::Arc;

use datafusion::arrow::compute::kernels::numeric::{add, mul, neg, sub};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::arrow::error::ArrowError;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue, exec_err, internal_err, plan_err};
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

/// Characters of an expression that an error shows.
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
                // From above: what an error shows has operators below it.
                let mut count = 0;
                let rewritten = expr.transform_down(|part| {
                    let part = checked(part, &schema);
                    count += usize::from(part.transformed);
                    if count > MOST_OPERATORS { too_many() } else { Ok(part) }
                })?;
                Ok(rewritten.update_data(|expr| name.restore(expr)))
            })
        })
        .data()
    }
}

/// Checked operators of one expression: what one gives is asked at each level for all below it, again and
/// again. Planning 500 in one chain took 25 s in place of 0.4 s, and 1,000 more than a minute.
const MOST_OPERATORS: usize = 100;

fn too_many<T>() -> Result<T> {
    plan_err!(
        "an expression has more than {MOST_OPERATORS} operators +, - and * of whole numbers; split it, or \
         cast to DOUBLE"
    )
}

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

fn checked(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let Some(operation) = operation_of(&expr) else { return Transformed::no(expr) };
    let Some(may_be) = result_range(&expr, schema) else { return Transformed::no(expr) };
    if may_be.can_overflow() {
        let text = shown(&expr);
        let args = match expr {
            Expr::BinaryExpr(BinaryExpr { left, right, .. }) => vec![*left, *right],
            Expr::Negative(value) => vec![*value],
            other => return Transformed::no(other),
        };
        let signature = Signature::any(args.len(), Volatility::Immutable);
        let function = ScalarUDF::from(Checked { operation, text, signature });
        let call = ScalarFunction { func: Arc::new(function), args };
        return Transformed::yes(Expr::ScalarFunction(call));
    }
    Transformed::no(expr)
}

fn shown(expr: &Expr) -> String {
    let text = expr.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// What an operation on whole numbers may come to, if nothing wraps.
struct Results {
    /// `None`: more than 128 bits.
    range: Option<RangeInclusive<i128>>,
    of_type: RangeInclusive<i128>,
}

impl Results {
    fn can_overflow(&self) -> bool {
        let fits = |range: &RangeInclusive<i128>| {
            self.of_type.contains(range.start()) && self.of_type.contains(range.end())
        };
        !self.range.as_ref().is_some_and(fits)
    }
}

/// `None` if the expression is no operation on whole numbers of one type.
fn result_range(expr: &Expr, schema: &DFSchema) -> Option<Results> {
    let (left, right) = match expr {
        Expr::BinaryExpr(BinaryExpr { left, right, .. }) => (left.as_ref(), Some(right.as_ref())),
        Expr::Negative(value) => (value.as_ref(), None),
        _ => return None,
    };
    let data_type = left.get_type(schema).ok()?;
    let of_type = range_of_type(&data_type)?;
    let Some(right) = right else {
        // There is nothing below 0 to be had, and DataFusion says so itself.
        let signed = data_type.is_signed_integer();
        let values = range_of(left, schema).filter(|_| signed)?;
        return Some(Results { range: Some(-*values.end()..=-*values.start()), of_type });
    };
    if right.get_type(schema).ok()? != data_type {
        return None;
    }
    let (left, right) = (range_of(left, schema)?, range_of(right, schema)?);
    // The least and the largest result are of least and largest operands.
    let compute: fn(i128, i128) -> Option<i128> = match operation_of(expr)? {
        Operation::Add => i128::checked_add,
        Operation::Subtract => i128::checked_sub,
        Operation::Multiply => i128::checked_mul,
        Operation::Negate => return None,
    };
    let corners = [
        compute(*left.start(), *right.start()),
        compute(*left.start(), *right.end()),
        compute(*left.end(), *right.start()),
        compute(*left.end(), *right.end()),
    ];
    let corners: Option<Vec<i128>> = corners.into_iter().collect();
    let range = corners.and_then(|all| Some(*all.iter().min()?..=*all.iter().max()?));
    Some(Results { range, of_type })
}

/// The values that an expression of whole numbers may have; `None` if it is of others.
fn range_of(expr: &Expr, schema: &DFSchema) -> Option<RangeInclusive<i128>> {
    match expr {
        Expr::Literal(value, _) => {
            let value = whole(value)?;
            Some(value..=value)
        }
        Expr::Alias(alias) => range_of(&alias.expr, schema),
        Expr::Cast(cast) => {
            let of_type = range_of_type(cast.field.data_type())?;
            let narrower = range_of(&cast.expr, schema)
                .filter(|range| of_type.contains(range.start()) && of_type.contains(range.end()));
            Some(narrower.unwrap_or(of_type))
        }
        _ => match result_range(expr, schema) {
            Some(results) if !results.can_overflow() => results.range,
            Some(results) => Some(results.of_type),
            None => range_of_type(&expr.get_type(schema).ok()?),
        },
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

/// The operation as a function.
#[derive(Debug)]
struct Checked {
    operation: Operation,
    /// What errors show. It says nothing of what is computed.
    text: String,
    signature: Signature,
}

impl PartialEq for Checked {
    fn eq(&self, other: &Self) -> bool {
        self.operation == other.operation
    }
}

impl Eq for Checked {}

impl Hash for Checked {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.operation.hash(state);
    }
}

impl ScalarUDFImpl for Checked {
    fn name(&self) -> &'static str {
        match self.operation {
            Operation::Add => "checked_add",
            Operation::Subtract => "checked_subtract",
            Operation::Multiply => "checked_multiply",
            Operation::Negate => "checked_negate",
        }
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let binary = |op: Operator, left: &Expr, right: &Expr| {
            Expr::BinaryExpr(BinaryExpr::new(Box::new(left.clone()), op, Box::new(right.clone())))
        };
        let written = match (self.operation, args) {
            (Operation::Add, [left, right]) => binary(Operator::Plus, left, right),
            (Operation::Subtract, [left, right]) => binary(Operator::Minus, left, right),
            (Operation::Multiply, [left, right]) => binary(Operator::Multiply, left, right),
            (Operation::Negate, [value]) => Expr::Negative(Box::new(value.clone())),
            _ => return internal_err!("{} of {} arguments", self.name(), args.len()),
        };
        Ok(written.schema_name().to_string())
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
        let types: Vec<_> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), self.return_type(&types)?, nullable)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let result = match (self.operation, args.args.as_slice()) {
            (Operation::Add, [left, right]) => apply(left, right, add),
            (Operation::Subtract, [left, right]) => apply(left, right, sub),
            (Operation::Multiply, [left, right]) => apply(left, right, mul),
            (Operation::Negate, [value]) => negated(value),
            (_, args) => return internal_err!("{} of {} arguments", self.name(), args.len()),
        };
        match result {
            Err(DataFusionError::ArrowError(error, _)) => match *error {
                ArrowError::ArithmeticOverflow(what) => {
                    let what = what.trim_start_matches("Overflow happened on: ");
                    let remedy = if args.return_field.data_type().is_unsigned_integer() {
                        "CAST both sides to BIGINT, or one to DECIMAL(38, 0)"
                    } else {
                        "CAST one side to DECIMAL(38, 0) or DOUBLE"
                    };
                    exec_err!("integer overflow in {}: {what}; {remedy}", self.text)
                }
                error => Err(error.into()),
            },
            result => result,
        }
    }
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

    #[test]
    fn what_may_overflow_is_checked_and_nothing_else() {
        let schema = table();
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
            let found = checked(expr, &schema);
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
            assert!(!checked(expr, &schema).transformed, "{text}");
        }
    }

    #[test]
    fn a_result_that_is_checked_itself_may_be_anything_of_its_type() {
        // The product below leaves 32 bits or fails; it is not taken to be narrower than its type.
        let sum = col("a") * lit(0_i32) + col("b");
        assert!(!checked(sum, &table()).transformed);
        let sum = col("a") * lit(3_i32) + lit(1_i32);
        assert!(checked(sum, &table()).transformed);
    }

    #[test]
    fn names_and_nulls_are_those_of_the_operator() {
        let schema = table();
        let exprs = [
            (col("a") + col("b")) * col("b"),
            col("big") - lit(7_i64),
            Expr::Negative(Box::new(col("big"))),
        ];
        for expr in exprs {
            let name = expr.schema_name().to_string();
            let field = expr.to_field(&schema).unwrap().1;
            let found = expr.transform_down(|part| Ok(checked(part, &schema))).unwrap().data;
            assert!(matches!(found, Expr::ScalarFunction(_)));
            assert_eq!(found.schema_name().to_string(), name);
            let same = found.to_field(&schema).unwrap().1;
            assert_eq!(same.data_type(), field.data_type());
            assert_eq!(same.is_nullable(), field.is_nullable());
        }
    }

    #[test]
    fn one_operation_is_one_whatever_errors_show() {
        let of = |name: &str| match checked(col(name) + lit(1_i64), &table()).data {
            Expr::ScalarFunction(call) => call.func,
            other => panic!("{other}"),
        };
        let other = match checked(col("a") + col("b"), &table()).data {
            Expr::ScalarFunction(call) => call.func,
            other => panic!("{other}"),
        };
        assert_eq!(of("big"), other);
    }

    fn invoke(operation: Operation, args: Vec<ColumnarValue>) -> Result<ColumnarValue> {
        let signature = Signature::any(args.len(), Volatility::Immutable);
        let function = Checked { operation, text: "x ? y".into(), signature };
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
            error.contains("integer overflow in x ? y: 9223372036854775807 + 1; CAST one side"),
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
    fn long_expressions_are_cut_short_in_errors() {
        let all = (0..100).fold(col("a"), |sum, _| sum + col("b"));
        assert_eq!(shown(&all).chars().count(), SHOWN + 1);
        assert_eq!(shown(&(col("a") + col("b"))), "a + b");
    }
}
