//! Sums of floats, and what is made of such, over frames that slide.
//!
//! DataFusion takes away again what leaves a frame: after a NaN or an infinity all later rows of
//! `avg(x) OVER (… ROWS 6 PRECEDING)` were NaN, and after 1e20 what had been small beside it was 0. Here nothing is
//! taken away. Rows are aggregated as they come, and when the first of them leaves, once more from the last to
//! the first, with the state after each: what is left when it has gone. A frame is the two parts merged.
//!
//! ```text
//! rows   1 2 3 4 5 │ 6 7      states  12345  2345  345  45  5   running  67
//! frame      3 4 5   6 7      345 + 67
//! ```
//!
//! # Source
//! The two-stacks algorithm: Tangwongsan, Hirzel & Schneider, "General Incremental Sliding-Window Aggregation",
//! VLDB 2015.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::datatypes::{FieldRef, Schema, SchemaRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};

use super::as_before::aggregate_as_before;

/// The function, for frames that slide, too.
pub(super) fn merged(function: Arc<AggregateUDF>) -> AggregateUDF {
    AggregateUDF::from(Merged { function })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Merged {
    function: Arc<AggregateUDF>,
}

impl AggregateUDFImpl for Merged {
    aggregate_as_before!(
        accumulator,
        state_fields,
        groups_accumulator_supported,
        create_groups_accumulator,
        order_sensitivity,
        reverse_expr,
        coerce_types,
        default_value,
        is_nullable,
    );

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        sliding(&self.function, args)
    }
}

/// What aggregates a frame: two stacks for floats, DataFusion's own where it subtracts without loss.
pub(super) fn sliding(
    function: &Arc<AggregateUDF>,
    args: AccumulatorArgs,
) -> Result<Box<dyn Accumulator>> {
    if args.is_distinct || !args.return_field.data_type().is_floating() {
        return function.create_sliding_accumulator(args);
    }
    let call = Call::of(function, &args);
    let running = call.accumulator()?;
    Ok(Box::new(Frame { call, states: Vec::new(), running, rows: Vec::new() }))
}

/// A call of a function, to make accumulators of.
#[derive(Debug)]
struct Call {
    function: Arc<AggregateUDF>,
    return_field: FieldRef,
    schema: SchemaRef,
    ignore_nulls: bool,
    order_bys: Vec<PhysicalSortExpr>,
    is_reversed: bool,
    name: String,
    exprs: Vec<Arc<dyn PhysicalExpr>>,
    expr_fields: Vec<FieldRef>,
}

impl Call {
    fn of(function: &Arc<AggregateUDF>, args: &AccumulatorArgs) -> Self {
        Self {
            function: Arc::clone(function),
            return_field: Arc::clone(&args.return_field),
            schema: Arc::new(Schema::clone(args.schema)),
            ignore_nulls: args.ignore_nulls,
            order_bys: args.order_bys.to_vec(),
            is_reversed: args.is_reversed,
            name: args.name.to_owned(),
            exprs: args.exprs.to_vec(),
            expr_fields: args.expr_fields.to_vec(),
        }
    }

    fn accumulator(&self) -> Result<Box<dyn Accumulator>> {
        self.function.accumulator(AccumulatorArgs {
            return_field: Arc::clone(&self.return_field),
            schema: &self.schema,
            ignore_nulls: self.ignore_nulls,
            order_bys: &self.order_bys,
            is_reversed: self.is_reversed,
            name: &self.name,
            is_distinct: false,
            exprs: &self.exprs,
            expr_fields: &self.expr_fields,
        })
    }
}

#[derive(Debug)]
struct Frame {
    call: Call,
    /// Of the rows that are left of the first part: of the last one, of the last two, and so on.
    states: Vec<Vec<ScalarValue>>,
    /// Of the rows of the second part.
    running: Box<dyn Accumulator>,
    rows: Vec<Vec<ArrayRef>>,
}

impl Frame {
    /// The second part becomes the first.
    fn turn(&mut self) -> Result<()> {
        let mut from_last = self.call.accumulator()?;
        for row in self.rows.drain(..).rev() {
            from_last.update_batch(&row)?;
            self.states.push(from_last.state()?);
        }
        self.running = self.call.accumulator()?;
        Ok(())
    }
}

impl Accumulator for Frame {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let count = values.first().map_or(0, |first| first.len());
        let row = |at: usize| values.iter().map(|column| column.slice(at, 1)).collect();
        self.rows.extend((0..count).map(row));
        self.running.update_batch(values)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for _ in 0..values.first().map_or(0, |first| first.len()) {
            if self.states.is_empty() {
                self.turn()?;
            }
            self.states.pop();
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let Some(first) = self.states.last() else { return self.running.evaluate() };
        let mut whole = self.call.accumulator()?;
        for state in [first, &self.running.state()?] {
            let state = state.iter().map(ScalarValue::to_array).collect::<Result<Vec<_>>>()?;
            whole.merge_batch(&state)?;
        }
        whole.evaluate()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.running.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.running.merge_batch(states)
    }

    fn size(&self) -> usize {
        let states = self.states.iter().flatten().map(ScalarValue::size).sum::<usize>();
        // Rows are parts of batches that the window holds.
        let rows = self.rows.capacity() * size_of::<Vec<ArrayRef>>();
        size_of_val(self) + self.running.size() + states + rows
    }
}
