//! A formula of whole numbers as one function, which is right or an error: what `checked_arithmetic` makes.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use datafusion::arrow::compute::kernels::numeric::{add, div, mul, neg, rem, sub};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::arrow::error::ArrowError;
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr_common::datum::apply;

use crate::base::error::EngineError;
use crate::base::sql_state::SqlState;

/// Characters of an expression, and of each of its operands, that an error shows.
const SHOWN: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Operation {
    Add,
    Subtract,
    Multiply,
    Negate,
    /// Only between the others: by itself it is DataFusion's, which checks it.
    Divide,
    Remainder,
}

/// Operations on one another's results as a function of all that they begin with: calls inside calls would
/// be asked for their types at each level.
#[derive(Debug)]
pub(super) struct Checked {
    /// Unlike formulas have unlike names. Made when it is asked for: most calls become part of others.
    name: OnceLock<String>,
    /// An operation takes the last results before it.
    pub steps: Vec<Step>,
    signature: Signature,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
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
    pub fn new(steps: Vec<Step>, args: usize) -> Self {
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
            (Operation::Divide, Some(left), Some(right)) => apply(&left, &right, div),
            (Operation::Remainder, Some(left), Some(right)) => apply(&left, &right, rem),
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
                Operation::Divide => "checked_divide".into(),
                Operation::Remainder => "checked_remainder".into(),
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
            Operation::Divide => (" / ", PRODUCT),
            Operation::Remainder => (" % ", PRODUCT),
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
    let message = format!("integer overflow in {text}: {what}");
    EngineError::execution(SqlState::NumericValueOutOfRange, message).with_hint(remedy).into()
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

/// An operand or formula, which ends where it is too long for an error.
pub(super) fn cut(text: String) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int32Array, Int64Array};
    use datafusion::arrow::datatypes::Int64Type;

    use super::*;

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
    }
}
