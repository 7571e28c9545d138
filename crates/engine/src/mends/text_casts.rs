//! A number made of a text that was made of a number: `CAST(CAST(n AS TEXT) AS BIGINT) > 7`.
//!
//! DataFusion estimates how many rows such a condition keeps from the least and the greatest n, of which it
//! makes texts: '9' and '11', an interval that ends before it begins, and refuses the statement. What goes
//! through a function it does not estimate.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

pub(super) static FUNCTION: LazyLock<ScalarUDF> = LazyLock::new(|| {
    ScalarUDF::from(AsItIs { signature: Signature::any(1, Volatility::Immutable) })
});

/// The value, of which no rule knows how it is computed.
pub(super) fn as_it_is(value: Expr) -> Expr {
    FUNCTION.call(vec![value])
}

/// The outer of two casts, whose inner one is to text: of a value of which nothing is known.
pub(super) fn apart(part: Expr, _: &DFSchema) -> Transformed<Expr> {
    let Expr::Cast(mut outer) = part else { return Transformed::no(part) };
    let is_of_text = matches!(
        outer.expr.as_ref(),
        Expr::Cast(inner) if inner.field.data_type().is_string() && !is_literal(&inner.expr)
    );
    if is_of_text && outer.field.data_type().is_numeric() {
        *outer.expr = as_it_is(*outer.expr);
        return Transformed::yes(Expr::Cast(outer));
    }
    Transformed::no(Expr::Cast(outer))
}

fn is_literal(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(..))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct AsItIs {
    signature: Signature,
}

impl ScalarUDFImpl for AsItIs {
    fn name(&self) -> &'static str {
        "as_it_is"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [data_type] => Ok(data_type.clone()),
            _ => internal_err!("as_it_is has one argument"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        match args.arg_fields {
            [of] => Ok(Arc::new(Field::new(self.name(), of.data_type().clone(), of.is_nullable()))),
            _ => internal_err!("as_it_is has one argument"),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.pop() {
            Some(value) => Ok(value),
            None => internal_err!("as_it_is has one argument"),
        }
    }
}
