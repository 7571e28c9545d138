//! `CAST(2.7 AS INT)`, and 2.7 in a column of whole numbers: DataFusion cuts the fraction, PostgreSQL and DuckDB round.
//!
//! # Source
//! PostgreSQL 15, `dtoi8` and `numeric_int8`: a double halfway between two numbers goes to the even one, a decimal away
//! from zero. A literal with a point is a decimal there.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility, cast,
};

use super::one_argument::by_array;

const WHOLE: DataType = DataType::Decimal128(38, 0);

/// A cast to whole numbers, of what is one.
pub(super) fn to_whole(mut expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let (value, wanted) = match &mut expr {
        Expr::Cast(cast) => (cast.expr.as_mut(), cast.field.data_type()),
        Expr::TryCast(cast) => (cast.expr.as_mut(), cast.field.data_type()),
        _ => return Transformed::no(expr),
    };
    if !wanted.is_integer() {
        return Transformed::no(expr);
    }
    let Ok(found) = value.get_type(schema) else { return Transformed::no(expr) };
    let of = std::mem::take(value);
    *value = match (of, found) {
        (Expr::Literal(ScalarValue::Float64(Some(number)), metadata), _) => {
            Expr::Literal(ScalarValue::Float64(Some(number.round())), metadata)
        }
        (of, found) if found.is_floating() => FUNCTION.call(vec![of]),
        (
            of,
            DataType::Decimal32(_, 1..)
            | DataType::Decimal64(_, 1..)
            | DataType::Decimal128(_, 1..),
        ) => cast(of, WHOLE),
        (of, DataType::Decimal256(_, 1..)) => cast(of, DataType::Decimal256(76, 0)),
        (of, _) => {
            *value = of;
            return Transformed::no(expr);
        }
    };
    Transformed::yes(expr)
}

/// What is rounded here, or else the expression.
pub(crate) fn rounded(expr: &Expr) -> &Expr {
    match expr {
        Expr::ScalarFunction(call) if *call.func == *FUNCTION => call.args.first().unwrap_or(expr),
        Expr::Cast(inner) if inner.field.data_type() == &WHOLE => &inner.expr,
        other => other,
    }
}

pub(super) static FUNCTION: LazyLock<ScalarUDF> = LazyLock::new(|| {
    ScalarUDF::from(Nearest { signature: Signature::any(1, Volatility::Immutable) })
});

/// The nearest whole number of a float, as a float; the even one if there are two.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Nearest {
    signature: Signature,
}

impl ScalarUDFImpl for Nearest {
    fn name(&self) -> &'static str {
        "__nearest"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [float] => Ok(float.clone()),
            _ => internal_err!("{} has one argument", self.name()),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        by_array(&args, nearest)
    }
}

fn nearest(floats: &ArrayRef) -> Result<ArrayRef> {
    Ok(match floats.data_type() {
        DataType::Float64 => Arc::new(
            floats.as_primitive::<Float64Type>().unary::<_, Float64Type>(f64::round_ties_even),
        ),
        DataType::Float32 => Arc::new(
            floats.as_primitive::<Float32Type>().unary::<_, Float32Type>(f32::round_ties_even),
        ),
        // No column has another one.
        _ => Arc::clone(floats),
    })
}
