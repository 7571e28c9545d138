//! A list that CASE or `nullif` makes NULL holds nothing.
//!
//! They only mark such rows and leave the values where they were, and `array_append`, `array_concat` and their
//! like read them: `array_append(CASE WHEN false THEN [1, 2] END, 3)` over rows was [1, 2, 3] in place of [3].
//!
//! And a value that is cast to a list is its only element, but NULL is no list, as `CAST(NULL AS BIGINT[])` is none.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{Array, ArrayRef, AsArray, OffsetSizeTrait, UInt64Array};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchema, Result, internal_err};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility, when,
};
use datafusion::optimizer::AnalyzerRule;

pub(super) static FUNCTION: LazyLock<ScalarUDF> = LazyLock::new(|| {
    ScalarUDF::from(EmptyNulls { signature: Signature::any(1, Volatility::Immutable) })
});

/// The rule, which comes when types are known.
#[derive(Debug)]
pub(super) struct NullLists;

impl AnalyzerRule for NullLists {
    fn name(&self) -> &'static str {
        "null_lists"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| {
            let schema = merge_schema(&node.inputs());
            let makes_null = |expr: &Expr| match expr {
                Expr::Case(case) => case.else_expr.is_none(),
                Expr::ScalarFunction(call) => call.func.name() == "nullif",
                _ => false,
            };
            let is_wanted =
                |expr: &Expr| makes_null(expr) && expr.get_type(&schema).is_ok_and(|t| is_list(&t));
            let names = NamePreserver::new(&node);
            node.map_expressions(|expr| {
                let name = names.save(&expr);
                let rewritten = expr.transform_up(|part| {
                    let (part, is_value) = of_values(part, &schema)?;
                    let found = is_value || is_wanted(&part);
                    let part = if found { FUNCTION.call(vec![part]) } else { part };
                    Ok(Transformed::new_transformed(part, found))
                })?;
                Ok(rewritten.update_data(|expr| name.restore(expr)))
            })
        })
        .data()
    }
}

/// A value that is cast to a list, NULL if it is NULL, and whether it is one.
fn of_values(cast: Expr, schema: &DFSchema) -> Result<(Expr, bool)> {
    let value = match &cast {
        Expr::Cast(cast) if is_list(cast.field.data_type()) => &cast.expr,
        Expr::TryCast(cast) if is_list(cast.field.data_type()) => &cast.expr,
        _ => return Ok((cast, false)),
    };
    let is_one = value.get_type(schema).is_ok_and(|t| !t.is_nested() && t != DataType::Null);
    if !is_one {
        return Ok((cast, false));
    }
    let there = (**value).clone().is_not_null();
    Ok((when(there, cast).end()?, true))
}

fn is_list(data_type: &DataType) -> bool {
    matches!(data_type, DataType::List(_) | DataType::LargeList(_) | DataType::Map(..))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct EmptyNulls {
    signature: Signature,
}

impl ScalarUDFImpl for EmptyNulls {
    fn name(&self) -> &'static str {
        "empty_nulls"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [data_type] => Ok(data_type.clone()),
            _ => internal_err!("empty_nulls has one argument"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        match args.arg_fields {
            [of] => Ok(Arc::new(Field::new(self.name(), of.data_type().clone(), of.is_nullable()))),
            _ => internal_err!("empty_nulls has one argument"),
        }
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.pop() {
            Some(ColumnarValue::Array(lists)) => Ok(ColumnarValue::Array(empty_nulls(lists)?)),
            Some(scalar) => Ok(scalar),
            None => internal_err!("empty_nulls has one argument"),
        }
    }
}

/// The same array, if no NULL holds anything.
fn empty_nulls(lists: ArrayRef) -> Result<ArrayRef> {
    let holds = match (lists.nulls(), lists.data_type()) {
        (Some(nulls), DataType::List(_)) => any_holds(nulls, lists.as_list::<i32>().offsets()),
        (Some(nulls), DataType::LargeList(_)) => any_holds(nulls, lists.as_list::<i64>().offsets()),
        (Some(nulls), DataType::Map(..)) => any_holds(nulls, lists.as_map().offsets()),
        _ => false,
    };
    if !holds {
        return Ok(lists);
    }
    let rows = (0_u64..).take(lists.len()).zip(0..);
    let rows: UInt64Array = rows.map(|(row, at)| lists.is_valid(at).then_some(row)).collect();
    Ok(take(&lists, &rows, None)?)
}

fn any_holds<O: OffsetSizeTrait>(nulls: &NullBuffer, offsets: &OffsetBuffer<O>) -> bool {
    nulls.iter().zip(offsets.windows(2)).any(|(valid, ends)| !valid && ends[0] < ends[1])
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{BooleanArray, ListArray};
    use datafusion::arrow::compute::nullif;
    use datafusion::arrow::datatypes::Int32Type;

    use super::*;

    #[test]
    fn a_null_that_holds_values_holds_none_afterwards() {
        let lists = [Some(vec![Some(1), Some(2)]), Some(vec![Some(3)]), None, Some(vec![])];
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(lists);
        let drop = BooleanArray::from(vec![true, false, false, false]);
        let marked = nullif(&lists, &drop).unwrap();
        assert_eq!(marked.as_list::<i32>().value_length(0), 2, "nullif leaves the values");
        let empty = empty_nulls(Arc::clone(&marked)).unwrap();
        assert_eq!(&empty, &marked);
        let lengths: Vec<i32> =
            (0..4).map(|row| empty.as_list::<i32>().value_length(row)).collect();
        assert_eq!(lengths, [0, 1, 0, 0]);
    }

    #[test]
    fn lists_without_such_a_null_are_not_copied() {
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1)]), None]);
        let lists: ArrayRef = Arc::new(lists);
        assert!(Arc::ptr_eq(&lists, &empty_nulls(Arc::clone(&lists)).unwrap()));
    }
}
