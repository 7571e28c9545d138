//! Which expressions end a statement at some value: where they are asked decides who sees the error, and of which rows.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

/// Functions that have a value for every value: of DataFusion, of SQL's words of ours, and what `mends` puts around
/// comparisons.
const TOTAL: [&str; 18] = [
    "as_it_is",
    "btrim",
    "character_length",
    "coalesce",
    "contains",
    "date_part",
    "ends_with",
    "get_field",
    "interval_length",
    "lower",
    "ltrim",
    "match",
    "nullif",
    "octet_length",
    "one_nan",
    "rtrim",
    "starts_with",
    "upper",
];

/// Has the expression, or a part of it, no value for some row? Functions that are not known to have one may fail.
pub(crate) fn may_fail(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> bool {
    let mut fails = false;
    let visited = expr.apply(|part| {
        fails = step_may_fail(part, schema);
        Ok(if fails { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    fails || visited.is_err()
}

/// Has this step alone no value for some values of its parts?
pub(crate) fn step_may_fail(part: &Arc<dyn PhysicalExpr>, schema: &Schema) -> bool {
    if let Some(binary) = part.downcast_ref::<BinaryExpr>() {
        return operator_may_fail(*binary.op(), part.data_type(schema));
    }
    if let Some(cast) = part.downcast_ref::<CastExpr>() {
        return cast.expr.data_type(schema).map_or(true, |from| !is_wider(&from, cast.cast_type()));
    }
    let call = part.downcast_ref::<ScalarFunctionExpr>();
    call.is_some_and(|call| !TOTAL.contains(&call.fun().name()))
}

fn operator_may_fail(operator: Operator, result: Result<DataType>) -> bool {
    use Operator::{
        And, BitwiseAnd, BitwiseOr, BitwiseXor, Divide, Eq, Gt, GtEq, IsDistinctFrom,
        IsNotDistinctFrom, Lt, LtEq, Minus, Modulo, Multiply, NotEq, Or, Plus, StringConcat,
    };
    match operator {
        // Whole numbers that overflow are told by functions of our own.
        Plus | Minus | Multiply => {
            !result.is_ok_and(|found| found.is_numeric() && !found.is_decimal())
        }
        Divide | Modulo => !result.is_ok_and(|found| found.is_floating()),
        Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom | And | Or
        | BitwiseAnd | BitwiseOr | BitwiseXor | StringConcat => false,
        _ => true,
    }
}

/// Has every value of one type a value of the other?
fn is_wider(from: &DataType, to: &DataType) -> bool {
    use DataType::{Dictionary, Float32, Float64, Int8, Int16, Int32, Int64, Null};
    use DataType::{UInt8, UInt16, UInt32};
    match (from, to) {
        (Null, _) => true,
        (Dictionary(_, value), to) => is_wider(value, to),
        (from, to) if from.is_string() && to.is_string() => true,
        (from, Float64) => from.is_integer() || matches!(from, Float32 | Float64),
        (from, Int64) => {
            matches!(from, Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32)
        }
        (from, Int32) => matches!(from, Int8 | Int16 | Int32 | UInt8 | UInt16),
        (from, to) => from == to,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{Field, TimeUnit};
    use datafusion::common::{DFSchema, ScalarValue};
    use datafusion::logical_expr::{Expr, binary_expr, cast, col, lit};
    use datafusion::prelude::SessionContext;

    use super::*;

    fn asked(expr: Expr) -> bool {
        let time = DataType::Timestamp(TimeUnit::Microsecond, None);
        let schema = Schema::new(vec![
            Field::new("t", DataType::Utf8, true),
            Field::new("n", DataType::Int64, true),
            Field::new("x", DataType::Float64, true),
            Field::new("d", DataType::Decimal128(10, 2), true),
            Field::new("at", time, true),
        ]);
        let named = DFSchema::try_from(schema.clone()).unwrap();
        may_fail(&SessionContext::new().create_physical_expr(expr, &named).unwrap(), &schema)
    }

    #[test]
    fn what_has_no_value_for_some_row_may_fail() {
        let number = |column| cast(col(column), DataType::Int32);
        assert!(asked(number("t").gt(lit(0))));
        assert!(asked(number("n").gt(lit(0))));
        assert!(asked(col("t").eq(lit("a")).or(number("x").eq(lit(1)))));
        assert!(asked((lit(7_i64) / col("n")).gt(lit(1_i64))));
        assert!(asked((col("d") * col("d")).gt(lit(ScalarValue::Decimal128(Some(1), 20, 4)))));
        assert!(asked(
            datafusion::functions::expr_fn::substring(col("t"), lit(1_i64), col("n")).eq(lit("a"))
        ));
    }

    #[test]
    fn what_has_a_value_for_every_row_does_not() {
        assert!(!asked(col("n").gt(lit(0_i64)).and(col("t").like(lit("a%")))));
        assert!(!asked(cast(col("n"), DataType::Float64).gt(col("x"))));
        assert!(!asked(cast(col("t"), DataType::Utf8View).eq(lit(ScalarValue::Utf8View(None)))));
        assert!(!asked((col("x") / lit(0.0)).gt(lit(1.0))));
        assert!(!asked(datafusion::functions::expr_fn::lower(col("t")).eq(lit("a"))));
        assert!(!asked(binary_expr(col("t"), Operator::NotEq, lit("a")).is_null()));
        assert!(!asked(col("at").is_not_null()));
    }
}
