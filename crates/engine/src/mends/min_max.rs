//! min and max of groups of floats, in one order: NaN is above every number. Those of lists and structs are
//! in [`nested_order`](super::nested_order).
//!
//! DataFusion's accumulator of groups compares with `<` and `>`, to which a NaN is neither, and so forgets
//! what came before one. Here numbers are compared as whole numbers of the same order (IEEE 754's
//! `totalOrder`, with one NaN), by the accumulator that DataFusion has for those.
//!
//! Like `count` and `sum`, they are not said to be monotonic (`set_monotonicity`): `max(x) OVER (ORDER BY y)` was
//! taken for sorted with its NULLs last, which come first, and `count(x)` over frames that slide for one that
//! only grows.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Float64Type, Int64Type};
use datafusion::common::Result;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator,
};

use super::as_before::aggregate_as_before;
use super::nested_order::{BestOfAll, BestOfFrame, End, is_nested};

/// DataFusion's `min` or `max`, whose groups know NaN.
pub(super) fn in_total_order(function: Arc<AggregateUDF>) -> AggregateUDF {
    AggregateUDF::from(InTotalOrder { function })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct InTotalOrder {
    function: Arc<AggregateUDF>,
}

impl InTotalOrder {
    fn end(&self) -> End {
        if self.function.name() == "min" { End::Least } else { End::Greatest }
    }
}

impl AggregateUDFImpl for InTotalOrder {
    aggregate_as_before!(
        state_fields,
        order_sensitivity,
        coerce_types,
        is_identical_reversed,
        value_from_stats
    );

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let data_type = args.return_field.data_type();
        if is_nested(data_type) {
            return Ok(Box::new(BestOfAll::new(self.end(), data_type.clone())));
        }
        self.function.accumulator(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        !is_nested(args.return_field.data_type())
            && self.function.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        let data_type = args.return_field.data_type().clone();
        if !data_type.is_floating() {
            return self.function.create_groups_accumulator(args);
        }
        let return_field = Arc::new(Field::new(args.name, DataType::Int64, true));
        let ranks = AccumulatorArgs { return_field, ..args };
        let ranks = self.function.create_groups_accumulator(ranks)?;
        Ok(Box::new(OfFloats { data_type, ranks }))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let data_type = args.return_field.data_type();
        if is_nested(data_type) {
            return Ok(Box::new(BestOfFrame::new(self.end(), data_type.clone())));
        }
        self.function.create_sliding_accumulator(args)
    }

    fn is_descending(&self) -> Option<bool> {
        self.function.is_descending()
    }
}

/// `ranks`: the least or the greatest of [`rank`] of each group.
struct OfFloats {
    data_type: DataType,
    ranks: Box<dyn GroupsAccumulator>,
}

impl OfFloats {
    fn floats(&self, ranks: &ArrayRef) -> Result<ArrayRef> {
        let floats: Float64Array = ranks.as_primitive::<Int64Type>().unary(of_rank);
        Ok(cast(&floats, &self.data_type)?)
    }
}

/// The place of a number in their order.
fn rank(x: f64) -> i64 {
    let x = if x.is_nan() { f64::NAN.abs() } else { x };
    let bits = x.to_bits() as i64;
    // Of negative ones all bits but the sign are turned: the larger, the lower.
    bits ^ (bits >> 63 & i64::MAX)
}

fn of_rank(rank: i64) -> f64 {
    f64::from_bits((rank ^ (rank >> 63 & i64::MAX)) as u64)
}

fn ranks_of(floats: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
    let ranks = |column: &ArrayRef| {
        let floats = cast(column, &DataType::Float64)?;
        let ranks: Int64Array = floats.as_primitive::<Float64Type>().unary(rank);
        Ok(Arc::new(ranks) as ArrayRef)
    };
    floats.iter().map(ranks).collect()
}

impl GroupsAccumulator for OfFloats {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.ranks.update_batch(&ranks_of(values)?, groups, filter, count)
    }

    fn merge_batch(&mut self, values: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        self.ranks.merge_batch(&ranks_of(values)?, groups, count)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let ranks = self.ranks.evaluate(emit_to)?;
        self.floats(&ranks)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let states = self.ranks.state(emit_to)?;
        states.iter().map(|ranks| self.floats(ranks)).collect()
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let states = self.ranks.convert_to_state(&ranks_of(values)?, filter)?;
        states.iter().map(|ranks| self.floats(ranks)).collect()
    }

    fn size(&self) -> usize {
        self.ranks.size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_in_the_order_of_numbers_with_nan_last() {
        let ordered = [f64::NEG_INFINITY, -1.5, -1e-310, -0.0, 0.0, 1e-310, 2.5, f64::INFINITY];
        let ranks: Vec<i64> = ordered.iter().map(|x| rank(*x)).collect();
        assert!(ranks.is_sorted_by(|a, b| a < b), "{ranks:?}");
        assert!(ordered.iter().all(|x| of_rank(rank(*x)).to_bits() == x.to_bits()));
        assert!(rank(-f64::NAN) == rank(f64::NAN) && rank(f64::NAN) > rank(f64::INFINITY));
        assert!(of_rank(rank(f64::NAN)).is_nan());
    }
}
