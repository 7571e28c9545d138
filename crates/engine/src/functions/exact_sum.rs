//! `exact_sum(x)`: a sum of doubles that does not depend on the order of its terms.
//!
//! The sum is carried as two doubles (the rounded sum and what rounding lost), which gives 106 bits;
//! rounded to 53 at the end, every order of adding and merging gives the same double unless the
//! exact sum lies within 2⁻¹⁰⁰ of a rounding boundary. Reports are byte-equal because of it.
//!
//! # Source
//! Knuth, TAOCP 2, 4.2.2, Theorem B (two-sum); Ogita, Rump & Oishi, "Accurate Sum and Dot Product",
//! SIAM J. Sci. Comput. 26 (2005).

use std::mem::size_of;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion::common::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
};
use uplake_functions::{Single, no_distinct, passes};

/// The function, to be registered with a session.
pub(crate) fn exact_sum() -> AggregateUDF {
    AggregateUDF::from(ExactSum {
        signature: Signature::exact(vec![DataType::Float64], Volatility::Immutable),
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ExactSum {
    signature: Signature,
}

impl AggregateUDFImpl for ExactSum {
    fn name(&self) -> &'static str {
        "exact_sum"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        no_distinct(&args, self.name())?;
        Ok(Box::<Single<Groups>>::default())
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let field = |part: &str| {
            Arc::new(Field::new(format!("{}[{part}]", args.name), DataType::Float64, true))
        };
        Ok(vec![field("sum"), field("lost")])
    }

    fn groups_accumulator_supported(&self, _: AccumulatorArgs) -> bool {
        true
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        no_distinct(&args, self.name())?;
        Ok(Box::<Groups>::default())
    }
}

/// A sum and what rounding it lost; NaN in `sum` and `lost` marks no value yet only with `seen` false.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum {
    pub sum: f64,
    pub lost: f64,
    seen: bool,
}

impl Sum {
    /// What [`Sum::sum`] and [`Sum::lost`] held.
    pub fn of(sum: f64, lost: f64) -> Self {
        Self { sum, lost, seen: true }
    }

    pub fn add(&mut self, x: f64) {
        let sum = self.sum + x;
        let part = sum - self.sum;
        let lost = (self.sum - (sum - part)) + (x - part);
        self.sum = sum;
        // An infinite sum has lost nothing that matters, and inf - inf would be NaN.
        if lost.is_finite() {
            self.lost += lost;
        }
        self.seen = true;
    }

    pub fn merge(&mut self, sum: f64, lost: f64) {
        self.add(sum);
        self.add(lost);
    }

    /// `None` without terms.
    pub fn value(self) -> Option<f64> {
        self.seen.then_some(self.sum + self.lost)
    }
}

#[derive(Debug, Default)]
struct Groups(Vec<Sum>);

impl GroupsAccumulator for Groups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.0.resize(total_num_groups, Sum::default());
        let values = values[0].as_primitive::<Float64Type>();
        for (i, group) in group_indices.iter().enumerate() {
            if values.is_valid(i) && passes(filter, i) {
                self.0[*group].add(values.value(i));
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let sums = emit_to.take_needed(&mut self.0);
        Ok(Arc::new(sums.into_iter().map(Sum::value).collect::<Float64Array>()))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let sums = emit_to.take_needed(&mut self.0);
        let part = |f: fn(&Sum) -> f64| -> ArrayRef {
            Arc::new(sums.iter().map(|s| s.seen.then(|| f(s))).collect::<Float64Array>())
        };
        Ok(vec![part(|s| s.sum), part(|s| s.lost)])
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.0.resize(total_num_groups, Sum::default());
        let [sums, lost] = values else { return Ok(()) };
        let (sums, lost) = (sums.as_primitive::<Float64Type>(), lost.as_primitive::<Float64Type>());
        for (i, group) in group_indices.iter().enumerate() {
            if sums.is_valid(i) {
                self.0[*group].merge(sums.value(i), lost.value(i));
            }
        }
        Ok(())
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let values = values[0].as_primitive::<Float64Type>();
        let kept = |i: usize| values.is_valid(i) && passes(filter, i);
        let sums: Float64Array =
            (0..values.len()).map(|i| kept(i).then(|| values.value(i))).collect();
        let lost: Float64Array = (0..values.len()).map(|i| kept(i).then_some(0.0)).collect();
        Ok(vec![Arc::new(sums), Arc::new(lost)])
    }

    fn size(&self) -> usize {
        self.0.capacity() * size_of::<Sum>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_and_split_gives_the_same_sum() {
        let mut values: Vec<f64> =
            (0..1000).map(|i| f64::from(i * 7919 % 1000).powi(3) * 1e-3 + 0.1).collect();
        values.extend([1e16, -1e16, 1e-9]);
        let sum = |values: &[f64]| {
            let mut sum = Sum::default();
            values.iter().for_each(|x| sum.add(*x));
            sum
        };
        let forwards = sum(&values).value().unwrap();
        let mut turned = values.clone();
        turned.reverse();
        assert_eq!(sum(&turned).value().unwrap().to_bits(), forwards.to_bits());
        for split in [1, 17, 500, 1002] {
            let mut left = sum(&values[..split]);
            let right = sum(&values[split..]);
            left.merge(right.sum, right.lost);
            assert_eq!(left.value().unwrap().to_bits(), forwards.to_bits(), "split at {split}");
        }
    }

    #[test]
    fn infinity_stays_infinity_and_nothing_is_null() {
        let mut sum = Sum::default();
        assert_eq!(sum.value(), None);
        sum.add(1.0);
        sum.add(f64::INFINITY);
        assert_eq!(sum.value(), Some(f64::INFINITY));
    }
}
