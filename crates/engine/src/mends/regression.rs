//! `regr_r2` of a constant y, which is 1 as in PostgreSQL, whatever files and threads its rows come from.
//!
//! DataFusion's is NULL. Parts of a group are merged by their means, which are rounded, so that a constant seen
//! in parts is none any more and the result is noise: constants are told apart here.

use std::mem::size_of_val;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray};
use datafusion::arrow::datatypes::{Float64Type, UInt64Type};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl};

use super::as_before::aggregate_as_before;

/// DataFusion's `regr_r2`, which knows constants.
pub(super) fn of_constants(function: Arc<AggregateUDF>) -> AggregateUDF {
    AggregateUDF::from(OfConstants { function })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfConstants {
    function: Arc<AggregateUDF>,
}

impl AggregateUDFImpl for OfConstants {
    aggregate_as_before!(state_fields);

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let sums = self.function.accumulator(args)?;
        Ok(Box::new(Single { sums, x: Merged::Nothing, y: Merged::Nothing }))
    }
}

/// What a group's merged parts have of a variable.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Merged {
    Nothing,
    Constant(f64),
    Values,
}

impl Merged {
    fn with(self, mean: f64, squares: f64) -> Self {
        match self {
            _ if squares != 0.0 => Self::Values,
            Self::Nothing => Self::Constant(mean),
            Self::Constant(value) if value == mean => self,
            _ => Self::Values,
        }
    }
}

/// `sums`: DataFusion's, whose state is the count, the means of x and y, and their sums of squares.
#[derive(Debug)]
struct Single {
    sums: Box<dyn Accumulator>,
    x: Merged,
    y: Merged,
}

impl Accumulator for Single {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.sums.update_batch(values)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [counts, means_x, means_y, squares_x, squares_y, ..] = states else {
            return internal_err!("regr_r2 has {} columns of state", states.len());
        };
        let counts = counts.as_primitive::<UInt64Type>();
        let of = |column: &ArrayRef, row| column.as_primitive::<Float64Type>().value(row);
        for row in 0..counts.len() {
            if counts.value(row) > 0 {
                self.x = self.x.with(of(means_x, row), of(squares_x, row));
                self.y = self.y.with(of(means_y, row), of(squares_y, row));
            }
        }
        self.sums.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.sums.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.sums.supports_retract_batch()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.sums.state()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let state = self.sums.state()?;
        let [ScalarValue::UInt64(Some(count)), _, _, squares_x, squares_y, ..] = &state[..] else {
            return internal_err!("regr_r2 has another state: {state:?}");
        };
        let is_constant = |merged: Merged, squares: &ScalarValue| {
            let is_zero = matches!(squares, ScalarValue::Float64(Some(sum)) if *sum == 0.0);
            is_zero || matches!(merged, Merged::Constant(_))
        };
        if *count < 2 || is_constant(self.x, squares_x) {
            return Ok(ScalarValue::Float64(None));
        }
        if is_constant(self.y, squares_y) {
            return Ok(ScalarValue::Float64(Some(1.0)));
        }
        self.sums.evaluate()
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.sums.size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_one_value_are_a_constant_and_others_are_not() {
        let merged = |parts: &[(f64, f64)]| {
            parts
                .iter()
                .fold(Merged::Nothing, |merged, (mean, squares)| merged.with(*mean, *squares))
        };
        assert_eq!(merged(&[(0.1, 0.0), (0.1, 0.0)]), Merged::Constant(0.1));
        assert_eq!(merged(&[(0.1, 0.0), (0.2, 0.0), (0.1, 0.0)]), Merged::Values);
        assert_eq!(merged(&[(0.1, 0.5), (0.1, 0.0)]), Merged::Values);
        assert_eq!(merged(&[]), Merged::Nothing);
    }
}
