//! `percentile_cont`, interpolated to the last digit.
//!
//! DataFusion's takes the place between two values, `p * (n - 1)`, with six digits: of 12,345 rows
//! the seventh digit of p99 is another one than it should be.
//!
//! # Invariants
//! - NULL is left out, NaN is above every number.
//! - From the top (ORDER BY x DESC) the place is counted from the top; `1 - p` would be rounded.
//! - States are DataFusion's: a list of the group's values, in no order.
//!
//! # Not here
//! What collects the values of DISTINCT and of windows is DataFusion's own.

use std::mem::size_of;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float64Array, ListArray, RecordBatch,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Float64Type, Schema};
use datafusion::common::{Result, ScalarValue, internal_err, resources_err};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::function::{AccumulatorArgs, AggregateFunctionSimplification};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, EmitTo, Expr, GroupsAccumulator,
};
use uplake_functions::passes;

use super::as_before::aggregate_as_before;
use super::min_max;

/// DataFusion's `percentile_cont`, with every digit.
pub(super) fn with_every_digit(function: Arc<AggregateUDF>) -> AggregateUDF {
    AggregateUDF::from(WithEveryDigit { function })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct WithEveryDigit {
    function: Arc<AggregateUDF>,
}

impl AggregateUDFImpl for WithEveryDigit {
    aggregate_as_before!(
        state_fields,
        groups_accumulator_supported,
        order_sensitivity,
        reverse_expr
    );

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let collected = self.function.accumulator(args.clone())?;
        if args.expr_fields[0].data_type().is_null() {
            return Ok(collected);
        }
        let data_type = args.expr_fields[0].data_type().clone();
        let forgets = !args.is_distinct;
        Ok(Box::new(Single { data_type, place: Place::of(&args)?, collected, forgets }))
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        // DataFusion says what is wrong with the arguments.
        self.function.create_groups_accumulator(args.clone())?;
        let data_type = args.expr_fields[0].data_type().clone();
        Ok(Box::new(Groups::new(data_type, Place::of(&args)?)))
    }

    /// The least and the greatest need no list.
    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        let simplify = self.function.simplify()?;
        Some(Box::new(move |function, info| {
            Ok(match simplify(function, info)? {
                Expr::AggregateFunction(AggregateFunction { func, params })
                    if ["min", "max"].contains(&func.name()) =>
                {
                    let func = Arc::new(min_max::in_total_order(func));
                    Expr::AggregateFunction(AggregateFunction { func, params })
                }
                other => other,
            })
        }))
    }

    fn supports_within_group_clause(&self) -> bool {
        self.function.supports_within_group_clause()
    }
}

/// Where a percentile lies among values in their order.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// From 0 to 1.
    fraction: f64,
    from_top: bool,
}

impl Place {
    /// Of arguments that DataFusion has found right.
    fn of(args: &AccumulatorArgs) -> Result<Self> {
        let nothing = RecordBatch::new_empty(Arc::new(Schema::empty()));
        let ColumnarValue::Scalar(fraction) = args.exprs[1].evaluate(&nothing)? else {
            return internal_err!("the fraction of a percentile is a column");
        };
        let ScalarValue::Float64(Some(fraction)) = fraction.cast_to(&DataType::Float64)? else {
            return internal_err!("the fraction of a percentile is {fraction}");
        };
        let from_top = args.order_bys.first().is_some_and(|order| order.options.descending);
        Ok(Self { fraction, from_top })
    }

    /// The percentile of `values`, which are put into another order; `None` of none.
    fn value(self, values: &mut [f64]) -> Option<f64> {
        let last = values.len().checked_sub(1)?;
        let mut nth = |place: usize| {
            let place = if self.from_top { last - place } else { place };
            *values.select_nth_unstable_by(place, f64::total_cmp).1
        };
        let place = self.fraction * last as f64;
        let (low, high) = (nth(place.floor() as usize), nth(place.ceil() as usize));
        Some(between(low, high, place.fract()))
    }
}

fn between(low: f64, high: f64, fraction: f64) -> f64 {
    if low == high || fraction == 0.0 {
        return low;
    }
    let gap = high - low;
    if gap.is_finite() {
        return low + gap * fraction;
    }
    // An infinite one, or too far apart.
    low * (1.0 - fraction) + high * fraction
}

/// `value` with the sign that NaN has in the order of numbers.
fn in_order(value: f64) -> f64 {
    if value.is_nan() { f64::NAN.abs() } else { value }
}

/// One group: DataFusion's, which gives its values as its state.
#[derive(Debug)]
struct Single {
    data_type: DataType,
    place: Place,
    collected: Box<dyn Accumulator>,
    /// Are the values gone from `collected` with the state?
    forgets: bool,
}

impl Accumulator for Single {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.collected.update_batch(values)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        // DataFusion takes in the first state alone.
        for values in states[0].as_list::<i32>().iter().flatten() {
            self.collected.update_batch(&[values])?;
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.collected.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.collected.supports_retract_batch()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.collected.state()
    }

    /// A window asks after each row.
    fn evaluate(&mut self) -> Result<ScalarValue> {
        let state = self.collected.state()?;
        let Some(ScalarValue::List(list)) = state.first() else {
            return internal_err!("percentile_cont has no list of its values");
        };
        let values = list.value(0);
        let floats = cast(&values, &DataType::Float64)?;
        let floats = floats.as_primitive::<Float64Type>().values();
        let mut floats: Vec<f64> = floats.iter().map(|value| in_order(*value)).collect();
        if self.forgets {
            self.collected.update_batch(&[values])?;
        }
        ScalarValue::Float64(self.place.value(&mut floats)).cast_to(&self.data_type)
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.collected.size()
    }
}

/// The values of each group.
#[derive(Debug)]
struct Groups {
    data_type: DataType,
    place: Place,
    groups: Vec<Vec<f64>>,
    /// Of the inner vectors.
    bytes: usize,
}

impl Groups {
    fn new(data_type: DataType, place: Place) -> Self {
        Self { data_type, place, groups: Vec::new(), bytes: 0 }
    }

    fn add(&mut self, group: usize, values: impl Iterator<Item = f64>) {
        let group = &mut self.groups[group];
        let before = group.capacity();
        group.extend(values.map(in_order));
        self.bytes += (group.capacity() - before) * size_of::<f64>();
    }

    fn take(&mut self, emit_to: EmitTo) -> Vec<Vec<f64>> {
        let taken = emit_to.take_needed(&mut self.groups);
        self.bytes -=
            taken.iter().map(|values| values.capacity() * size_of::<f64>()).sum::<usize>();
        taken
    }

    /// A state of lists that are as long as `lengths` say.
    fn lists(
        &self,
        lengths: impl Iterator<Item = usize>,
        values: Float64Array,
    ) -> Result<Vec<ArrayRef>> {
        if i32::try_from(values.len()).is_err() {
            return resources_err!("percentile_cont has more than 2,147,483,647 values at once");
        }
        let field = Arc::new(Field::new_list_field(self.data_type.clone(), true));
        let values = cast(&values, &self.data_type)?;
        let offsets = OffsetBuffer::from_lengths(lengths);
        Ok(vec![Arc::new(ListArray::try_new(field, offsets, values, None)?)])
    }
}

impl GroupsAccumulator for Groups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.groups.resize_with(count, Vec::new);
        let values = cast(&values[0], &DataType::Float64)?;
        let values = values.as_primitive::<Float64Type>();
        for (row, group) in groups.iter().enumerate() {
            if values.is_valid(row) && passes(filter, row) {
                self.add(*group, std::iter::once(values.value(row)));
            }
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        self.groups.resize_with(count, Vec::new);
        let lists = states[0].as_list::<i32>();
        let values = cast(lists.values(), &DataType::Float64)?;
        let values = values.as_primitive::<Float64Type>().values();
        for (ends, group) in lists.value_offsets().windows(2).zip(groups) {
            let values = &values[ends[0] as usize..ends[1] as usize];
            self.add(*group, values.iter().copied());
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let mut groups = self.take(emit_to);
        let percentiles = groups.iter_mut().map(|values| self.place.value(values));
        Ok(cast(&percentiles.collect::<Float64Array>(), &self.data_type)?)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let groups = self.take(emit_to);
        let values = Float64Array::from(groups.concat());
        self.lists(groups.iter().map(Vec::len), values)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let values = cast(&values[0], &DataType::Float64)?;
        let values = values.as_primitive::<Float64Type>();
        let counts = |row: &usize| values.is_valid(*row) && passes(filter, *row);
        let rows = 0..values.len();
        let counted: Vec<f64> = rows.clone().filter(counts).map(|row| values.value(row)).collect();
        self.lists(rows.map(|row| usize::from(counts(&row))), Float64Array::from(counted))
    }

    fn size(&self) -> usize {
        self.groups.capacity() * size_of::<Vec<f64>>() + self.bytes
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Float32Array;

    use super::*;

    fn percentile(fraction: f64, from_top: bool, values: &[f64]) -> Option<f64> {
        Place { fraction, from_top }.value(&mut values.to_vec())
    }

    #[test]
    fn places_between_values_are_interpolated_with_every_digit() {
        let values: Vec<f64> = (0..12_345).rev().map(f64::from).collect();
        for fraction in [0.0, 0.01, 0.123_456_789, 0.5, 0.99, 0.999_999_9, 1.0] {
            let expected = fraction * 12_344.0;
            let found = percentile(fraction, false, &values).unwrap();
            assert!((found - expected).abs() < 1e-11, "{fraction}: {found}");
            let found = percentile(fraction, true, &values).unwrap();
            assert!((found - (12_344.0 - expected)).abs() < 1e-11, "{fraction}: {found}");
        }
        assert_eq!(percentile(0.5, false, &[]), None);
        assert_eq!(percentile(0.3, true, &[7.5]), Some(7.5));
    }

    #[test]
    fn infinity_is_no_nan_and_nan_is_above_it() {
        let (inf, max) = (f64::INFINITY, f64::MAX);
        assert_eq!(percentile(0.5, false, &[inf, inf]), Some(inf));
        assert_eq!(percentile(0.5, false, &[1.0, -inf]), Some(-inf));
        assert_eq!(percentile(0.5, false, &[max, -max]), Some(0.0));
        assert_eq!(percentile(0.0, false, &[f64::NAN, 1.0, inf]), Some(1.0));
        assert!(percentile(1.0, false, &[f64::NAN, 1.0, inf]).unwrap().is_nan());
    }

    #[test]
    fn states_merged_have_the_values_of_all_and_bytes_are_counted() {
        let place = Place { fraction: 0.25, from_top: false };
        let column = |values: &[Option<f32>]| -> ArrayRef {
            Arc::new(values.iter().copied().collect::<Float32Array>())
        };
        let mut part = Groups::new(DataType::Float32, place);
        let mut last = Groups::new(DataType::Float32, place);
        let rows = column(&[Some(4.0), None, Some(-0.5), Some(9.0), Some(2.5)]);
        let filter = BooleanArray::from(vec![Some(true), Some(true), Some(true), None, Some(true)]);
        part.update_batch(&[Arc::clone(&rows)], &[0, 0, 2, 2, 2], Some(&filter), 4).unwrap();
        let state = part.state(EmitTo::First(1)).unwrap();
        last.merge_batch(&state, &[1], 2).unwrap();
        let state = part.state(EmitTo::All).unwrap();
        assert_eq!((part.bytes, part.groups.len()), (0, 0));
        last.merge_batch(&state, &[0, 1, 2], 3).unwrap();
        let state = last.convert_to_state(&[rows], Some(&filter)).unwrap();
        last.merge_batch(&state, &[1, 1, 1, 0, 1], 3).unwrap();
        // Group 1 has 4, -0.5, 2.5 twice each, group 0 and 2 have none.
        let found = last.evaluate(EmitTo::All).unwrap();
        assert_eq!(&found, &column(&[None, Some(0.25), None]));
        assert_eq!(last.bytes, 0);
    }
}
