//! `a || b || c` as one call: one result, not two, and bounded as `concat` is.
//!
//! # Invariants
//! - NULL if one of them is NULL, as the operator.
//! - It is named as the operators are.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{Array, BooleanArray};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::compute::nullif;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::functions::string::concat;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::limits::expect_to_fit;

pub(super) static FUNCTION: LazyLock<ScalarUDF> = LazyLock::new(|| {
    ScalarUDF::from(Joined { signature: Signature::variadic_any(Volatility::Immutable) })
});

/// The texts, all of one type, one after the other.
pub(super) fn call(texts: Vec<Expr>) -> Expr {
    FUNCTION.call(texts)
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Joined {
    signature: Signature,
}

impl ScalarUDFImpl for Joined {
    fn name(&self) -> &'static str {
        "||"
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let names: Vec<_> = args.iter().map(|arg| arg.schema_name().to_string()).collect();
        Ok(names.join(" || "))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [first, ..] => Ok(first.clone()),
            [] => internal_err!("|| has arguments"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let Some(first) = args.arg_fields.first() else {
            return internal_err!("|| has arguments");
        };
        let is_nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), first.data_type().clone(), is_nullable)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let mut nulls = None;
        for arg in &args.args {
            match arg {
                ColumnarValue::Scalar(text) if text.is_null() => {
                    let null = ScalarValue::try_new_null(args.return_field.data_type())?;
                    return Ok(ColumnarValue::Scalar(null));
                }
                ColumnarValue::Scalar(_) => {}
                ColumnarValue::Array(texts) => {
                    nulls = NullBuffer::union(nulls.as_ref(), texts.logical_nulls().as_ref());
                }
            }
        }
        expect_to_fit(self.name(), &args)?;
        // For which NULL is nothing.
        let joined = concat().invoke_with_args(args)?;
        match (joined, nulls) {
            (ColumnarValue::Array(joined), Some(nulls)) => {
                let is_null = BooleanArray::new(!nulls.inner(), None);
                Ok(ColumnarValue::Array(nullif(&joined, &is_null)?))
            }
            (joined, _) => Ok(joined),
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{ArrayRef, AsArray, StringArray};
    use datafusion::common::config::ConfigOptions;
    use datafusion::logical_expr::col;

    use super::*;

    #[test]
    fn one_null_makes_the_whole_null() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("c")]));
        let field = Arc::new(Field::new("x", DataType::Utf8, true));
        let join = |between: Option<&str>| {
            let between = ScalarValue::Utf8(between.map(str::to_owned));
            let texts = || ColumnarValue::Array(Arc::clone(&texts));
            let args = ScalarFunctionArgs {
                args: vec![texts(), ColumnarValue::Scalar(between), texts()],
                arg_fields: vec![Arc::clone(&field), Arc::clone(&field), Arc::clone(&field)],
                number_rows: 3,
                return_field: Arc::clone(&field),
                config_options: Arc::new(ConfigOptions::default()),
            };
            FUNCTION.invoke_with_args(args).unwrap().into_array(3).unwrap()
        };
        let joined = join(Some("-"));
        let joined: Vec<_> = joined.as_string::<i32>().iter().collect();
        assert_eq!(joined, [Some("a-a"), None, Some("c-c")]);
        assert_eq!(join(None).null_count(), 3);
        let name = call(vec![col("a"), col("b"), col("c")]).schema_name().to_string();
        assert_eq!(name, "a || b || c");
    }
}
