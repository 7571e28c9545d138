//! `date_part('hour', b - a)` of times two days apart is 48 and more: what lies between two times has no days.
//!
//! In PostgreSQL and DuckDB it is an interval of days and a time of day.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{ArrayRef, AsArray, PrimitiveArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::one_argument::by_array;
use crate::base::error::EngineError;
use crate::base::sql_state::SqlState;

pub(super) const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
const DAY_NANOS: i64 = 86_400_000_000_000;

/// `date_part` of what lies between two times, by its days and the rest of a day.
pub(super) fn of_days(mut expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    if let Expr::ScalarFunction(call) = &mut expr
        && call.func.name() == "date_part"
        && let [_, span] = call.args.as_mut_slice()
        && matches!(span.get_type(schema), Ok(DataType::Duration(_)))
    {
        *span = FUNCTION.call(vec![std::mem::take(span)]);
        return Transformed::yes(expr);
    }
    Transformed::no(expr)
}

pub(super) static FUNCTION: LazyLock<ScalarUDF> = LazyLock::new(|| {
    ScalarUDF::from(DaysAndClock { signature: Signature::any(1, Volatility::Immutable) })
});

#[derive(Debug, PartialEq, Eq, Hash)]
struct DaysAndClock {
    signature: Signature,
}

impl ScalarUDFImpl for DaysAndClock {
    fn name(&self) -> &'static str {
        "__days_and_clock"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(INTERVAL)
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        by_array(&args, |spans| Ok(Arc::new(days_and_clock(spans)?)))
    }
}

/// Durations as intervals of days, of 24 hours each, and the rest of a day, with the same sign.
///
/// # Errors
/// 22008 for more days than an interval has, or a duration that nanoseconds cannot say.
pub(super) fn days_and_clock(spans: &ArrayRef) -> Result<PrimitiveArray<IntervalMonthDayNanoType>> {
    let spans = cast(spans, &INTERVAL)?;
    let spans = spans.as_primitive::<IntervalMonthDayNanoType>();
    Ok(spans.try_unary::<_, IntervalMonthDayNanoType, EngineError>(|span| {
        let days = i32::try_from(span.nanoseconds / DAY_NANOS).map_err(|_| {
            let message = "what lies between the times has more days than an interval";
            EngineError::statement(SqlState::DatetimeFieldOverflow, message)
        })?;
        Ok(IntervalMonthDayNano { days, nanoseconds: span.nanoseconds % DAY_NANOS, ..span })
    })?)
}
