//! Whole numbers that functions give as BIGINT.
//!
//! DataFusion's `row_number()`, `array_length(list)`, `approx_distinct(x)` and their like are unsigned, and an
//! unsigned operand beside a signed one makes a decimal: `row_number() OVER () / 2` was 0.5 of the first row, and
//! `7 - array_length(list)` had 21 digits. No table has unsigned columns, so nothing else is.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::{
    AccumulatorArgs, ExpressionArgs, PartitionEvaluatorArgs, WindowUDFFieldArgs,
};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, EmitTo, GroupsAccumulator,
    LimitEffect, PartitionEvaluator, ReversedUDWF, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    WindowUDF, WindowUDFImpl,
};
use datafusion::physical_expr::PhysicalExpr;

use super::as_before::{aggregate_as_before, named_as_before, scalar_as_before};

/// The function, of BIGINT.
pub(super) fn scalar(function: Arc<ScalarUDF>) -> ScalarUDF {
    ScalarUDF::from(Signed { function })
}

/// The aggregate, of BIGINT.
pub(super) fn aggregate(function: Arc<AggregateUDF>) -> AggregateUDF {
    AggregateUDF::from(Signed { function })
}

/// The function of windows, of BIGINT.
pub(super) fn window(function: Arc<WindowUDF>) -> WindowUDF {
    WindowUDF::from(Signed { function })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Signed<F> {
    function: F,
}

fn signed(data_type: &DataType) -> DataType {
    match data_type {
        DataType::UInt64 => DataType::Int64,
        DataType::List(item) => {
            let item_type = signed(item.data_type());
            DataType::List(Arc::new(Field::clone(item).with_data_type(item_type)))
        }
        other => other.clone(),
    }
}

fn signed_array(values: &ArrayRef) -> Result<ArrayRef> {
    Ok(cast(values, &signed(values.data_type()))?)
}

fn signed_value(value: &ScalarValue) -> Result<ScalarValue> {
    value.cast_to(&signed(&value.data_type()))
}

impl ScalarUDFImpl for Signed<Arc<ScalarUDF>> {
    named_as_before!();
    scalar_as_before!(@coerce_types);

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(signed(&self.function.return_type(types)?))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(match self.function.invoke_with_args(args)? {
            ColumnarValue::Array(values) => ColumnarValue::Array(signed_array(&values)?),
            ColumnarValue::Scalar(value) => ColumnarValue::Scalar(signed_value(&value)?),
        })
    }
}

impl AggregateUDFImpl for Signed<Arc<AggregateUDF>> {
    named_as_before!();
    aggregate_as_before!(@state_fields);
    aggregate_as_before!(@groups_accumulator_supported);
    aggregate_as_before!(@order_sensitivity);
    aggregate_as_before!(@coerce_types);
    aggregate_as_before!(@is_identical_reversed);
    aggregate_as_before!(@is_nullable);

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(signed(&self.function.return_type(types)?))
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        signed_value(&self.function.default_value(data_type)?)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(SignedAccumulator(self.function.accumulator(args)?)))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(SignedAccumulator(self.function.create_sliding_accumulator(args)?)))
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(SignedGroups(self.function.create_groups_accumulator(args)?)))
    }
}

#[derive(Debug)]
struct SignedAccumulator(Box<dyn Accumulator>);

impl Accumulator for SignedAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.update_batch(values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        signed_value(&self.0.evaluate()?)
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.0.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.0.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.0.supports_retract_batch()
    }
}

struct SignedGroups(Box<dyn GroupsAccumulator>);

impl GroupsAccumulator for SignedGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.0.update_batch(values, group_indices, filter, total_num_groups)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        signed_array(&self.0.evaluate(emit_to)?)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.0.state(emit_to)
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.0.merge_batch(values, group_indices, total_num_groups)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        self.0.convert_to_state(values, filter)
    }

    fn size(&self) -> usize {
        self.0.size()
    }
}

impl WindowUDFImpl for Signed<Arc<WindowUDF>> {
    named_as_before!();

    fn expressions(&self, args: ExpressionArgs) -> Vec<Arc<dyn PhysicalExpr>> {
        self.function.expressions(args)
    }

    fn partition_evaluator(
        &self,
        args: PartitionEvaluatorArgs,
    ) -> Result<Box<dyn PartitionEvaluator>> {
        Ok(Box::new(SignedNumbers(self.function.partition_evaluator_factory(args)?)))
    }

    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        let field = self.function.field(args)?;
        let data_type = signed(field.data_type());
        Ok(Arc::new(Field::clone(&field).with_data_type(data_type)))
    }

    fn sort_options(&self) -> Option<datafusion::arrow::compute::SortOptions> {
        self.function.sort_options()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.function.coerce_types(types)
    }

    fn reverse_expr(&self) -> ReversedUDWF {
        match self.function.reverse_expr() {
            ReversedUDWF::Reversed(function) => ReversedUDWF::Reversed(Arc::new(window(function))),
            other => other,
        }
    }

    fn limit_effect(&self, args: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        self.function.inner().limit_effect(args)
    }
}

#[derive(Debug)]
struct SignedNumbers(Box<dyn PartitionEvaluator>);

impl PartitionEvaluator for SignedNumbers {
    fn memoize(
        &mut self,
        state: &mut datafusion::logical_expr::window_state::WindowAggState,
    ) -> Result<()> {
        self.0.memoize(state)
    }

    fn get_range(&self, row: usize, rows: usize) -> Result<Range<usize>> {
        self.0.get_range(row, rows)
    }

    fn is_causal(&self) -> bool {
        self.0.is_causal()
    }

    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        signed_array(&self.0.evaluate_all(values, rows)?)
    }

    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> Result<ScalarValue> {
        signed_value(&self.0.evaluate(values, range)?)
    }

    fn evaluate_all_with_rank(&self, rows: usize, ranks: &[Range<usize>]) -> Result<ArrayRef> {
        signed_array(&self.0.evaluate_all_with_rank(rows, ranks)?)
    }

    fn supports_bounded_execution(&self) -> bool {
        self.0.supports_bounded_execution()
    }

    fn uses_window_frame(&self) -> bool {
        self.0.uses_window_frame()
    }

    fn include_rank(&self) -> bool {
        self.0.include_rank()
    }
}
