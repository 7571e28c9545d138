//! `date_trunc` of times before 1678 and after 2262.
//!
//! DataFusion computes it with nanoseconds, which end there. The calendar repeats every 400 years, days of the
//! week included, so such a time is moved by as many times 400 years as it takes, and back.
//!
//! So do the bounds of a year, which `extract(year FROM t) = 3` is made into; where t has nanoseconds, the year is
//! computed.
//!
//! # Not here
//! Times with a zone: clocks do not repeat.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, PrimitiveArray};
use datafusion::arrow::compute::binary;
use datafusion::arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
};

use super::as_before::scalar_as_before;
use super::text_casts::as_it_is;

pub(super) fn as_computed(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let Expr::ScalarFunction(call) = &expr else { return Transformed::no(expr) };
    if let ("date_part", [Expr::Literal(part, _), time]) = (call.func.name(), call.args.as_slice())
        && part.try_as_str().flatten().is_some_and(|part| part.eq_ignore_ascii_case("year"))
        && let Ok(DataType::Timestamp(TimeUnit::Nanosecond, _)) = time.get_type(schema)
    {
        return Transformed::yes(as_it_is(expr));
    }
    Transformed::no(expr)
}

/// 400 years of the Gregorian calendar, 146,097 days.
const CYCLE_US: i64 = 146_097 * 86_400 * 1_000_000;
/// Times that DataFusion knows, with a year to either side: 1684 to 2255.
const KNOWN_US: Range<i64> = -9_000_000_000_000_000..9_000_000_000_000_000;

/// The function, for all times of microseconds.
pub(super) fn of_all_times(function: Arc<ScalarUDF>) -> ScalarUDF {
    ScalarUDF::from(AllTimes { function })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct AllTimes {
    function: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for AllTimes {
    scalar_as_before!(return_field_from_args, simplify, output_ordering);

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let zoneless = DataType::Timestamp(TimeUnit::Microsecond, None);
        let times = args.args.get(1).filter(|times| times.data_type() == zoneless);
        let Some(times) = times else { return self.function.invoke_with_args(args) };
        let is_one = matches!(times, ColumnarValue::Scalar(_));
        let rows = if is_one { 1 } else { args.number_rows };
        let times = times.to_array(rows)?;
        let times = times.as_primitive::<TimestampMicrosecondType>();
        if times.values().iter().all(|time| KNOWN_US.contains(time)) {
            return self.function.invoke_with_args(args);
        }
        let moved: PrimitiveArray<TimestampMicrosecondType> = times.unary(within_cycle);
        args.args[1] = value(Arc::new(moved), is_one)?;
        let found = self.function.invoke_with_args(args)?.to_array(rows)?;
        let found = found.as_primitive::<TimestampMicrosecondType>();
        // Whatever is below a NULL is added up, too: the largest of no times is i64::MIN there.
        let back =
            |found: i64, time: i64| found.wrapping_add(time.wrapping_sub(within_cycle(time)));
        let found: PrimitiveArray<TimestampMicrosecondType> = binary(found, times, back)?;
        value(Arc::new(found), is_one)
    }
}

/// The time in the cycle around 1970 that has its day and month.
fn within_cycle(time: i64) -> i64 {
    let after = time.rem_euclid(CYCLE_US);
    if after < CYCLE_US / 2 { after } else { after - CYCLE_US }
}

fn value(array: ArrayRef, is_one: bool) -> Result<ColumnarValue> {
    Ok(match is_one {
        true => ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?),
        false => ColumnarValue::Array(array),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_moves_by_whole_cycles() {
        for time in [0, -1, 1, CYCLE_US / 2, -CYCLE_US, 3 * CYCLE_US + 5, i64::MAX, i64::MIN] {
            let moved = within_cycle(time);
            assert!(KNOWN_US.contains(&moved), "{time}");
            assert_eq!((i128::from(time) - i128::from(moved)) % i128::from(CYCLE_US), 0, "{time}");
        }
    }
}
