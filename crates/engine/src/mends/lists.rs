//! Functions of lists, where one of them is NULL or has a NULL.
//!
//! - `array_has_all` and `array_has_any` of a list and NULL are true or false, if no other list of the batch has
//!   an element; they are NULL.
//! - `array_has([1, NULL], x)` becomes `x IN (1, NULL)`, which is NULL where the function is false, and
//!   `array_has([], x)` becomes false, which is NULL where x is.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, BooleanArray};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::common::cast::as_boolean_array;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl};

use super::as_before::scalar_as_before;

/// The function, which is NULL if one of its lists is.
pub(super) fn with_nulls(function: Arc<ScalarUDF>) -> ScalarUDF {
    ScalarUDF::from(WithNulls { function })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct WithNulls {
    function: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for WithNulls {
    scalar_as_before!(return_field_from_args, coerce_types);

    fn simplify(&self, args: Vec<Expr>, context: &SimplifyContext) -> Result<ExprSimplifyResult> {
        // `x IN (1, 2)` is as good; not so with a NULL, and nothing is NULL in an empty list.
        match args.first() {
            Some(Expr::Literal(list, _)) if is_full(list) => self.function.simplify(args, context),
            _ => Ok(ExprSimplifyResult::Original(args)),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let (rows, mut nulls) = (args.number_rows, None);
        for arg in &args.args {
            match arg {
                ColumnarValue::Scalar(list) if list.is_null() => {
                    return Ok(ColumnarValue::Scalar(ScalarValue::Boolean(None)));
                }
                ColumnarValue::Scalar(_) => {}
                ColumnarValue::Array(lists) => {
                    nulls = NullBuffer::union(nulls.as_ref(), lists.logical_nulls().as_ref());
                }
            }
        }
        let found = self.function.invoke_with_args(args)?;
        let Some(nulls) = nulls else { return Ok(found) };
        let found = found.into_array(rows)?;
        let found = as_boolean_array(&found)?;
        let nulls = NullBuffer::union(found.nulls(), Some(&nulls));
        let found = BooleanArray::new(found.values().clone(), nulls);
        Ok(ColumnarValue::Array(Arc::new(found)))
    }
}

/// Has the list elements, and is none of them NULL?
fn is_full(list: &ScalarValue) -> bool {
    let is_full = |items: ArrayRef| !items.is_empty() && items.logical_null_count() == 0;
    match list {
        _ if list.is_null() => false,
        ScalarValue::List(list) => is_full(list.value(0)),
        ScalarValue::LargeList(list) => is_full(list.value(0)),
        ScalarValue::FixedSizeList(list) => is_full(list.value(0)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::ListArray;
    use datafusion::arrow::datatypes::{DataType, Field, Int32Type};

    use super::*;

    fn function(name: &str) -> ScalarUDF {
        let functions = datafusion::execution::SessionStateDefaults::default_scalar_functions();
        let function = functions.into_iter().find(|function| function.name() == name);
        with_nulls(function.unwrap())
    }

    fn lists(lists: Vec<Option<Vec<Option<i32>>>>) -> ArrayRef {
        Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists))
    }

    fn call(name: &str, args: Vec<ColumnarValue>) -> Vec<Option<bool>> {
        let field = |arg: &ColumnarValue| Arc::new(Field::new("x", arg.data_type(), true));
        let found = function(name).invoke_with_args(ScalarFunctionArgs {
            arg_fields: args.iter().map(field).collect(),
            number_rows: 2,
            return_field: Arc::new(Field::new("x", DataType::Boolean, true)),
            config_options: Arc::default(),
            args,
        });
        let found = found.unwrap().into_array(2).unwrap();
        as_boolean_array(&found).unwrap().iter().collect()
    }

    #[test]
    fn a_list_that_is_null_has_neither_all_nor_any() {
        let some = || lists(vec![Some(vec![Some(1)]), Some(vec![Some(2)])]);
        let none = || lists(vec![None, Some(vec![])]);
        for (name, of_nothing) in [("array_has_all", true), ("array_has_any", false)] {
            let array = |list: ArrayRef| ColumnarValue::Array(list);
            let expected = [None, Some(of_nothing)];
            assert_eq!(call(name, vec![array(some()), array(none())]), expected, "{name}");
            let null = ScalarValue::try_new_null(some().data_type()).unwrap();
            let null = ColumnarValue::Scalar(null);
            assert_eq!(call(name, vec![array(some()), null]), [None, None], "{name}");
        }
    }

    #[test]
    fn a_list_is_full_without_null() {
        let first = |list| ScalarValue::try_from_array(&lists(vec![list]), 0).unwrap();
        assert!(is_full(&first(Some(vec![Some(1), Some(2)]))));
        assert!(!is_full(&first(Some(vec![]))));
        assert!(!is_full(&first(Some(vec![Some(1), None]))));
        assert!(!is_full(&first(None)));
    }
}
