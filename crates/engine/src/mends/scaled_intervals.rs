//! An interval times a number, or divided by one, which DataFusion refuses: `ts + n * INTERVAL '1 day'`.
//!
//! # Source
//! PostgreSQL 15, `interval_mul`: what is left of a month goes to its days, of which it has 30, and what is left of a
//! day to its hours.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray};
use datafusion::arrow::compute::{cast, try_binary};
use datafusion::arrow::datatypes::{
    DataType, Float64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
};
use datafusion::arrow::error::ArrowError;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility, cast as cast_to, lit,
};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use crate::base::error::EngineError;
use crate::base::sql_state::SqlState;

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
const DAYS_PER_MONTH: f64 = 30.0;
const SECONDS_PER_DAY: f64 = 86_400.0;

/// Plans `*` and `/` of intervals.
#[derive(Debug)]
pub(super) struct ScaledIntervals;

impl ExprPlanner for ScaledIntervals {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let divides = match expr.op {
            BinaryOperator::Multiply => false,
            BinaryOperator::Divide => true,
            _ => return Ok(PlannerResult::Original(expr)),
        };
        let is_interval = |side: &Expr| matches!(side.get_type(schema), Ok(DataType::Interval(_)));
        let is_number = |side: &Expr| side.get_type(schema).is_ok_and(|found| found.is_numeric());
        // The right side first: the left one of a chain is as long as the chain.
        let (interval, number) = match (is_interval(&expr.right), is_number(&expr.right)) {
            (true, _) if !divides && is_number(&expr.left) => (expr.right, expr.left),
            (_, true) if is_interval(&expr.left) => (expr.left, expr.right),
            _ => return Ok(PlannerResult::Original(expr)),
        };
        let args =
            vec![cast_to(interval, INTERVAL), cast_to(number, DataType::Float64), lit(divides)];
        Ok(PlannerResult::Planned(FUNCTION.call(args)))
    }
}

/// The function.
pub(super) static FUNCTION: LazyLock<ScalarUDF> = LazyLock::new(|| {
    let types = vec![INTERVAL, DataType::Float64, DataType::Boolean];
    ScalarUDF::from(Scaled { signature: Signature::exact(types, Volatility::Immutable) })
});

/// `interval * number`, or `/` if the third argument is true.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Scaled {
    signature: Signature,
}

impl ScalarUDFImpl for Scaled {
    fn name(&self) -> &'static str {
        "__scaled_interval"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(INTERVAL)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let are_scalars = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let divides = matches!(
            args.args.get(2),
            Some(ColumnarValue::Scalar(ScalarValue::Boolean(Some(true))))
        );
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let intervals = cast(&arrays[0], &INTERVAL)?;
        let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
        let numbers = arrays[1].as_primitive::<Float64Type>();
        let found: PrimitiveArray<IntervalMonthDayNanoType> =
            try_binary(intervals, numbers, |interval, number| match divides {
                true if number == 0.0 => Err(refused(SqlState::DivisionByZero, "division by zero")),
                true => times(interval, |part| part / number),
                false => times(interval, |part| part * number),
            })?;
        let found: ArrayRef = Arc::new(found);
        Ok(match are_scalars {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&found, 0)?),
            false => ColumnarValue::Array(found),
        })
    }
}

type Interval = <IntervalMonthDayNanoType as ArrowPrimitiveType>::Native;

fn refused(code: SqlState, message: &str) -> ArrowError {
    ArrowError::ExternalError(Box::new(EngineError::statement(code, message)))
}

fn times(
    interval: Interval,
    scaled: impl Fn(f64) -> f64,
) -> std::result::Result<Interval, ArrowError> {
    let out_of_range = || refused(SqlState::DatetimeFieldOverflow, "interval out of range");
    let whole = |number: f64| {
        let number = number.trunc();
        let is_within = number >= f64::from(i32::MIN) && number <= f64::from(i32::MAX);
        if is_within { Ok(number as i32) } else { Err(out_of_range()) }
    };
    // To six digits, as PostgreSQL does, of days as of seconds.
    let rounded = |number: f64| (number * 1e6).round() / 1e6;
    let (months, days) = (scaled(f64::from(interval.months)), scaled(f64::from(interval.days)));
    let days_of_month = rounded((months - months.trunc()) * DAYS_PER_MONTH);
    let day_left = (days - days.trunc()) + (days_of_month - days_of_month.trunc());
    let seconds = rounded(day_left * SECONDS_PER_DAY);
    // What is left of both may be a day and more.
    let days_of_seconds = (seconds / SECONDS_PER_DAY).trunc();
    let more_days = days_of_month.trunc() + days_of_seconds;
    let seconds = seconds - days_of_seconds * SECONDS_PER_DAY;
    let microseconds = (scaled(interval.nanoseconds as f64 / 1e3) + seconds * 1e6).round();
    let nanoseconds = microseconds * 1e3;
    if !(-9.2e18..=9.2e18).contains(&nanoseconds) {
        return Err(out_of_range());
    }
    let days = f64::from(whole(days)?) + more_days;
    Ok(IntervalMonthDayNano::new(whole(months)?, whole(days)?, nanoseconds as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As PostgreSQL 15 has them.
    #[test]
    fn what_is_left_of_months_and_days_goes_to_what_is_shorter() {
        let hour = 3_600_000_000_000_i64;
        let of = IntervalMonthDayNano::new;
        for (interval, factor, expected) in [
            (of(0, 1, 0), 2.0, of(0, 2, 0)),
            (of(1, 0, 0), 0.5, of(0, 15, 0)),
            (of(1, 1, hour), 1.5, of(1, 16, 13 * hour + hour / 2)),
            (of(14, 3, 0), -0.25, of(-3, -15, -18 * hour)),
            (of(0, 0, hour), 1.0 / 3.0, of(0, 0, hour / 3)),
            (of(12, 0, 0), 1.0 / 7.0, of(1, 21, 37_028_534_400_000)),
            (of(0, 1, 0), 0.1, of(0, 0, 8_640 * 1_000_000_000)),
        ] {
            let found = times(interval, |part| part * factor).unwrap();
            assert_eq!(found, expected, "{interval:?} {factor}");
        }
        for factor in [f64::NAN, f64::INFINITY, 1e300, -1e10] {
            assert!(times(of(1, 1, 1), |part| part * factor).is_err(), "{factor}");
        }
    }
}
