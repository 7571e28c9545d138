//! Intervals are compared by how long they are: a month has 30 days and a day 24 hours, as in PostgreSQL.
//!
//! DataFusion compares the months first, then the days, then the time. A difference of two timestamps has only
//! a time, so that `b - a > INTERVAL '1 day'` was never true, and 30 hours were less than a day.
//!
//! # Not here
//! GROUP BY, DISTINCT and windows' PARTITION BY, to which 24 hours and a day are two values.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, Decimal128Array};
use datafusion::arrow::array::{new_null_array, types};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, IntervalUnit, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue, internal_err};
use datafusion::functions_aggregate::first_last::first_value_udaf;
use datafusion::logical_expr::expr::{
    AggregateFunction, Between, InList, NullTreatment, Sort as SortExpr, WindowFunction,
};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, WindowFrame,
    WindowFrameBound, WindowFrameUnits, lit, when,
};
use datafusion::optimizer::AnalyzerRule;

use crate::base::error::EngineError;

/// The rule, which comes when types are known.
#[derive(Debug)]
pub(super) struct ByLength;

impl AnalyzerRule for ByLength {
    fn name(&self) -> &'static str {
        "intervals_by_length"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|mut node| {
            let schema = merge_schema(&node.inputs());
            let names = NamePreserver::new(&node);
            let sorted = match &mut node {
                LogicalPlan::Sort(sort) => sort_by_length(&mut sort.expr, &schema),
                _ => false,
            };
            let mut rewritten = node.map_expressions(|expr| {
                let name = names.save(&expr);
                let by_length = expr.transform_up(|part| by_length(part, &schema))?;
                Ok(by_length.update_data(|expr| name.restore(expr)))
            })?;
            rewritten.transformed |= sorted;
            Ok(rewritten)
        })
        .data()
    }
}

fn is_interval(expr: &Expr, schema: &DFSchema) -> bool {
    matches!(expr.get_type(schema), Ok(DataType::Interval(_)))
}

/// How long it is, without the cast to an interval that a difference of times has.
fn length(value: Expr, schema: &DFSchema) -> Expr {
    let value = match value {
        Expr::Cast(cast) if matches!(cast.expr.get_type(schema), Ok(DataType::Duration(_))) => {
            *cast.expr
        }
        other => other,
    };
    FUNCTION.call(vec![value])
}

/// Are they intervals? Then their lengths are in their places.
fn measure<'a>(values: impl IntoIterator<Item = &'a mut Expr>, schema: &DFSchema) -> bool {
    let values: Vec<&mut Expr> = values.into_iter().collect();
    let found = values.iter().any(|value| is_interval(value, schema));
    for value in values.into_iter().filter(|_| found) {
        *value = length(std::mem::take(value), schema);
    }
    found
}

fn sort_by_length(keys: &mut [SortExpr], schema: &DFSchema) -> bool {
    keys.iter_mut().fold(false, |changed, key| measure([&mut key.expr], schema) | changed)
}

/// An expression that compares.
fn by_length(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let (expr, changed) = match expr {
        Expr::BinaryExpr(BinaryExpr { mut left, op, mut right }) if compares(op) => {
            let changed = measure([left.as_mut(), right.as_mut()], schema);
            (Expr::BinaryExpr(BinaryExpr { left, op, right }), changed)
        }
        Expr::Between(Between { mut expr, negated, mut low, mut high }) => {
            let changed = measure([expr.as_mut(), low.as_mut(), high.as_mut()], schema);
            (Expr::Between(Between { expr, negated, low, high }), changed)
        }
        Expr::InList(InList { mut expr, mut list, negated }) => {
            let changed = measure(std::iter::once(expr.as_mut()).chain(&mut list), schema);
            (Expr::InList(InList { expr, list, negated }), changed)
        }
        Expr::Case(mut case) => {
            let whens = case.when_then_expr.iter_mut().map(|(when, _)| when.as_mut());
            let changed = match case.expr.as_deref_mut() {
                Some(of) => measure(std::iter::once(of).chain(whens), schema),
                None => false,
            };
            (Expr::Case(case), changed)
        }
        Expr::AggregateFunction(function) => shortest_or_longest(function, schema),
        Expr::WindowFunction(mut function) if !has_distances(&function.params.window_frame) => {
            let WindowFunction { params, .. } = function.as_mut();
            let changed = sort_by_length(&mut params.order_by, schema);
            (Expr::WindowFunction(function), changed)
        }
        Expr::ScalarFunction(call) if call.args.iter().any(|arg| is_interval(arg, schema)) => {
            match (call.func.name(), call.args.as_slice()) {
                ("nullif", [value, other]) => {
                    let alike = length(value.clone(), schema).eq(length(other.clone(), schema));
                    let null = ScalarValue::try_from(value.get_type(schema)?)?;
                    (when(alike, lit(null)).otherwise(value.clone())?, true)
                }
                (name @ ("greatest" | "least"), _) => {
                    let what = format!("{name} of intervals is not supported");
                    let error = EngineError::unsupported(what).with_hint("compare them in CASE");
                    return Err(error.into());
                }
                _ => (Expr::ScalarFunction(call), false),
            }
        }
        other => (other, false),
    };
    Ok(Transformed::new_transformed(expr, changed))
}

fn compares(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

/// min and max of intervals are the first in the order of lengths.
fn shortest_or_longest(function: AggregateFunction, schema: &DFSchema) -> (Expr, bool) {
    let AggregateFunction { mut func, mut params } = function;
    let mut changed = sort_by_length(&mut params.order_by, schema);
    let ascending = match func.name() {
        "min" => Some(true),
        "max" => Some(false),
        _ => None,
    };
    if let (Some(ascending), [value]) = (ascending, params.args.as_slice())
        && is_interval(value, schema)
    {
        let nulls_first = false;
        params.order_by =
            vec![SortExpr { expr: length(value.clone(), schema), asc: ascending, nulls_first }];
        params.distinct = false;
        params.null_treatment = Some(NullTreatment::IgnoreNulls);
        func = first_value_udaf();
        changed = true;
    }
    (Expr::AggregateFunction(AggregateFunction { func, params }), changed)
}

/// Is it a frame of rows that are not further than an interval away?
fn has_distances(frame: &WindowFrame) -> bool {
    let is_distance = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::Preceding(by) | WindowFrameBound::Following(by) => !by.is_null(),
        WindowFrameBound::CurrentRow => false,
    };
    frame.units == WindowFrameUnits::Range
        && (is_distance(&frame.start_bound) || is_distance(&frame.end_bound))
}

pub(super) static FUNCTION: LazyLock<ScalarUDF> = LazyLock::new(|| {
    ScalarUDF::from(Length { signature: Signature::any(1, Volatility::Immutable) })
});

/// Nanoseconds, of which 2^31 months have 24 digits.
const LENGTH: DataType = DataType::Decimal128(38, 0);

#[derive(Debug, PartialEq, Eq, Hash)]
struct Length {
    signature: Signature,
}

impl ScalarUDFImpl for Length {
    fn name(&self) -> &'static str {
        "interval_length"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(LENGTH)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let nullable = args.arg_fields.iter().any(|of| of.is_nullable());
        Ok(Arc::new(Field::new(self.name(), LENGTH, nullable)))
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.as_slice() {
            [ColumnarValue::Array(intervals)] => Ok(ColumnarValue::Array(lengths(intervals)?)),
            [ColumnarValue::Scalar(interval)] => {
                let length = lengths(&interval.to_array()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&length, 0)?))
            }
            _ => internal_err!("interval_length has one argument"),
        }
    }
}

const NANOS_PER_MILLISECOND: i128 = 1_000_000;
const NANOS_PER_SECOND: i128 = 1000 * NANOS_PER_MILLISECOND;
const NANOS_PER_DAY: i128 = 24 * 3600 * NANOS_PER_SECOND;
const DAYS_PER_MONTH: i128 = 30;

fn lengths(intervals: &ArrayRef) -> Result<ArrayRef> {
    let nanos_per_unit = |unit: &TimeUnit| match unit {
        TimeUnit::Second => NANOS_PER_SECOND,
        TimeUnit::Millisecond => NANOS_PER_MILLISECOND,
        TimeUnit::Microsecond => 1000,
        TimeUnit::Nanosecond => 1,
    };
    Ok(match intervals.data_type() {
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            computed::<types::IntervalMonthDayNanoType>(intervals, |of| {
                let days = i128::from(of.months) * DAYS_PER_MONTH + i128::from(of.days);
                days * NANOS_PER_DAY + i128::from(of.nanoseconds)
            })
        }
        DataType::Interval(IntervalUnit::DayTime) => {
            computed::<types::IntervalDayTimeType>(intervals, |of| {
                let time = i128::from(of.milliseconds) * NANOS_PER_MILLISECOND;
                i128::from(of.days) * NANOS_PER_DAY + time
            })
        }
        DataType::Interval(IntervalUnit::YearMonth) => {
            computed::<types::IntervalYearMonthType>(intervals, |months| {
                i128::from(months) * DAYS_PER_MONTH * NANOS_PER_DAY
            })
        }
        DataType::Duration(unit) => {
            let nanos = nanos_per_unit(unit);
            let ticks = cast(intervals, &DataType::Int64)?;
            computed::<types::Int64Type>(&ticks, |ticks| i128::from(ticks) * nanos)
        }
        DataType::Null => new_null_array(&LENGTH, intervals.len()),
        other => return internal_err!("{other} is no interval"),
    })
}

fn computed<T: ArrowPrimitiveType>(
    intervals: &ArrayRef,
    length: impl Fn(T::Native) -> i128,
) -> ArrayRef {
    let lengths: Decimal128Array = intervals.as_primitive::<T>().unary(length);
    Arc::new(lengths.with_data_type(LENGTH))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::types::Decimal128Type;

    use super::*;

    /// In nanoseconds.
    fn of(interval: &ScalarValue) -> i128 {
        lengths(&interval.to_array().unwrap()).unwrap().as_primitive::<Decimal128Type>().value(0)
    }

    #[test]
    fn a_month_has_30_days_and_a_day_24_hours() {
        let mdn = ScalarValue::new_interval_mdn;
        assert_eq!(of(&mdn(1, 0, 0)), of(&mdn(0, 30, 0)));
        assert_eq!(of(&mdn(0, 1, 0)), NANOS_PER_DAY);
        assert_eq!(of(&mdn(0, 1, -5)), NANOS_PER_DAY - 5);
        assert_eq!(of(&ScalarValue::new_interval_ym(1, 2)), of(&mdn(14, 0, 0)));
        assert_eq!(of(&ScalarValue::new_interval_dt(2, 3)), of(&mdn(0, 2, 3_000_000)));
        assert_eq!(of(&ScalarValue::DurationMicrosecond(Some(86_400_000_000))), NANOS_PER_DAY);
        assert_eq!(
            of(&ScalarValue::DurationSecond(Some(i64::MAX))),
            i128::from(i64::MAX) * 1_000_000_000
        );
    }

    #[test]
    fn the_longest_interval_has_a_length() {
        let longest = ScalarValue::new_interval_mdn(i32::MAX, i32::MAX, i64::MAX);
        assert!(of(&longest) > 0 && of(&longest) < 10_i128.pow(38));
        assert!(lengths(&ScalarValue::Null.to_array().unwrap()).unwrap().is_null(0));
    }
}
