//! `corr`, and `regr_slope`, `regr_intercept` and `regr_r2` of constants.
//!
//! - Groups of DataFusion's `corr` add up x, y and their products, and subtract: of values about 1e9 that differ
//!   by hundreds it was 1.005. With a NaN it is NULL, which PostgreSQL and DuckDB have NaN. Here it is made of
//!   what `regr_r2` keeps: counts, means and sums of squares about them, by Welford's method.
//! - `regr_r2` of a constant y is NULL, which PostgreSQL has 1.
//! - Parts of a group are merged by their means, which are rounded, so that a constant seen in parts is none any
//!   more and the result is noise: constants are told apart here, also in parts that are merged once more.

use std::mem::size_of_val;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray};
use datafusion::arrow::datatypes::{FieldRef, Float64Type, UInt64Type};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::functions_aggregate::regr::regr_r2_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl};

use super::as_before::aggregate_as_before;

/// DataFusion's `regr_slope`, `regr_intercept` or `regr_r2`, which knows constants.
pub(super) fn of_constants(function: Arc<AggregateUDF>) -> AggregateUDF {
    let result = match function.name() {
        "regr_r2" => OfConstantY::One,
        _ => OfConstantY::Computed,
    };
    AggregateUDF::from(Regression { sums: Arc::clone(&function), function, result })
}

/// `corr`, named as DataFusion's.
pub(super) fn correlation(function: Arc<AggregateUDF>) -> AggregateUDF {
    let result = OfConstantY::Correlation;
    AggregateUDF::from(Regression { sums: regr_r2_udaf(), function, result })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Regression {
    function: Arc<AggregateUDF>,
    /// What keeps the sums.
    sums: Arc<AggregateUDF>,
    result: OfConstantY,
}

/// What is given where x is not constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum OfConstantY {
    /// What is computed.
    Computed,
    /// 1 if y is constant, or what is computed.
    One,
    /// NULL if y is constant, or the correlation.
    Correlation,
}

impl AggregateUDFImpl for Regression {
    aggregate_as_before!();

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.sums.state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let (sums, result) = (self.sums.accumulator(args)?, self.result);
        Ok(Box::new(Single { sums, result, x: Merged::Nothing, y: Merged::Nothing }))
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

/// `sums`: DataFusion's, whose state is the count, the means of x and y, their sums of squares, and the sum of
/// their products, about the means.
#[derive(Debug)]
struct Single {
    sums: Box<dyn Accumulator>,
    result: OfConstantY,
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
        let mut state = self.sums.state()?;
        let [_, mean_x, mean_y, squares_x, squares_y, products] = state.as_mut_slice() else {
            return internal_err!("regr_r2 has another state: {state:?}");
        };
        for (merged, mean, squares) in [(self.x, mean_x, squares_x), (self.y, mean_y, squares_y)] {
            if let Merged::Constant(value) = merged {
                *mean = ScalarValue::Float64(Some(value));
                *squares = ScalarValue::Float64(Some(0.0));
                *products = ScalarValue::Float64(Some(0.0));
            }
        }
        Ok(state)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let state = self.sums.state()?;
        let [
            ScalarValue::UInt64(Some(count)),
            _,
            _,
            ScalarValue::Float64(Some(squares_x)),
            ScalarValue::Float64(Some(squares_y)),
            ScalarValue::Float64(Some(products)),
        ] = state[..]
        else {
            return internal_err!("regr_r2 has another state: {state:?}");
        };
        let is_constant =
            |merged: Merged, squares: f64| squares == 0.0 || matches!(merged, Merged::Constant(_));
        // One row does not vary, unless it is NaN.
        let fewest = if self.result == OfConstantY::Correlation { 1 } else { 2 };
        if count < fewest || is_constant(self.x, squares_x) {
            return Ok(ScalarValue::Float64(None));
        }
        let of_constant = is_constant(self.y, squares_y);
        Ok(ScalarValue::Float64(match self.result {
            OfConstantY::One if of_constant => Some(1.0),
            OfConstantY::Correlation if of_constant => None,
            OfConstantY::Correlation => {
                let both = squares_x * squares_y;
                let deviations = if both.is_normal() {
                    both.sqrt()
                } else {
                    squares_x.sqrt() * squares_y.sqrt()
                };
                Some((products / deviations).clamp(-1.0, 1.0))
            }
            OfConstantY::One | OfConstantY::Computed => return self.sums.evaluate(),
        }))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.sums.size()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Float64Array;
    use datafusion::functions_aggregate::regr::{RegrAccumulator, RegrType};

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

    /// As nodes do with what their threads have.
    #[test]
    fn a_constant_is_one_however_often_it_was_merged() {
        let single = || {
            let sums = Box::new(RegrAccumulator::try_new(&RegrType::R2).unwrap());
            let result = OfConstantY::Correlation;
            Single { sums, result, x: Merged::Nothing, y: Merged::Nothing }
        };
        let columns = |state: Vec<ScalarValue>| -> Vec<ArrayRef> {
            state.iter().map(|value| value.to_array().unwrap()).collect()
        };
        let mut last = single();
        for part in 0..3 {
            let mut merged = single();
            for thread in 1..8 {
                let mut first = single();
                let rows = 3 * thread + part;
                let y: ArrayRef = Arc::new(Float64Array::from(vec![0.1; rows]));
                let x: ArrayRef =
                    Arc::new(Float64Array::from_iter_values((0..rows).map(|row| row as f64)));
                first.update_batch(&[y, x]).unwrap();
                merged.merge_batch(&columns(first.state().unwrap())).unwrap();
            }
            last.merge_batch(&columns(merged.state().unwrap())).unwrap();
        }
        assert_eq!(last.evaluate().unwrap(), ScalarValue::Float64(None));
    }
}
