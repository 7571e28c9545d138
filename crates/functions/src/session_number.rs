//! `session_number(time, gap) OVER (PARTITION BY user ORDER BY time)`: which of a user's sessions
//! a row belongs to, from 1.
//!
//! A session ends where the next row is more than the gap later. Rows of NULL time have no number.
//! Rows must come in the order of time, up or down; sessions are counted in the order of rows.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion_common::Result;
use datafusion_expr::{PartitionEvaluator, Signature, Volatility, WindowUDF, WindowUDFImpl};
use datafusion_functions_window_common::field::WindowUDFFieldArgs;
use datafusion_functions_window_common::partition::PartitionEvaluatorArgs;
use datafusion_physical_expr::expressions::Literal;

use crate::error::refuse;
use crate::time::{span, span_type, time_type};

/// The function, to be registered with a session.
pub(crate) fn function() -> WindowUDF {
    let signature = Signature::user_defined(Volatility::Immutable);
    WindowUDF::from(SessionNumber { signature })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SessionNumber {
    signature: Signature,
}

impl WindowUDFImpl for SessionNumber {
    fn name(&self) -> &'static str {
        "session_number"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let [time, gap] = given else {
            return refuse!(Call, "session_number takes a time and the gap that ends a session");
        };
        let name = self.name();
        Ok(vec![time_type(time, name)?, span_type(gap, "gap", name)?])
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(args.name(), DataType::Int64, true)))
    }

    fn partition_evaluator(
        &self,
        args: PartitionEvaluatorArgs,
    ) -> Result<Box<dyn PartitionEvaluator>> {
        let Some(gap) = args.input_exprs()[1].downcast_ref::<Literal>() else {
            return refuse!(Value, "the gap of session_number must be a constant");
        };
        let time = args.input_fields()[0].data_type();
        Ok(Box::new(Sessions { gap: span(gap.value(), time, "gap", self.name())? }))
    }
}

#[derive(Debug)]
struct Sessions {
    /// In the unit of the times.
    gap: i64,
}

impl PartitionEvaluator for Sessions {
    fn evaluate_all(&mut self, values: &[ArrayRef], _: usize) -> Result<ArrayRef> {
        let times = cast(&values[0], &DataType::Int64)?;
        Ok(Arc::new(self.numbers(times.as_primitive::<Int64Type>())))
    }
}

impl Sessions {
    fn numbers(&self, times: &Int64Array) -> Int64Array {
        let (mut number, mut last) = (0, None::<i64>);
        let one = |time: Option<i64>| {
            let time = time?;
            let goes_on = last.is_some_and(|last| time.abs_diff(last) <= self.gap.unsigned_abs());
            number += i64::from(!goes_on);
            last = Some(time);
            Some(number)
        };
        times.iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_ends_after_more_than_the_gap() {
        let check = |gap: i64, times: Vec<Option<i64>>, expected: Vec<Option<i64>>| {
            assert_eq!(Sessions { gap }.numbers(&times.into()), Int64Array::from(expected));
        };
        let some = |values: &[i64]| values.iter().copied().map(Some).collect::<Vec<_>>();
        check(30, some(&[0, 30, 61, 61, 92]), some(&[1, 1, 2, 2, 3]));
        check(30, some(&[92, 61, 61, 30, 0]), some(&[1, 2, 2, 3, 3]));
        check(0, some(&[5, 5, 6]), some(&[1, 1, 2]));
        check(9, vec![], vec![]);
        check(9, vec![Some(1), None, Some(5)], vec![Some(1), None, Some(1)]);
        check(i64::MAX, some(&[i64::MIN, i64::MAX]), some(&[1, 2]));
    }
}
