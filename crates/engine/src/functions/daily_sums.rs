//! `daily_sums(day, x, y, ...)`: per day that has a row, the order-free sums of each number.
//!
//! The answer is a list in the order of days, of structs `{day, sum1, sum2, ...}`; a row without
//! a day adds nothing, a NULL number adds 0. Grouping by user and asking for a list of days holds
//! one hash entry per user instead of one per user and day.
//!
//! # Invariants
//! - Sums are those of [`crate::functions::exact_sum`]: equal bytes for every order of rows.

use std::mem::size_of;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Date32Array, Float64Array, ListArray, StructArray,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::datatypes::{DataType, Date32Type, Field, FieldRef, Fields, Float64Type};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
};
use uplake_functions::{Single, no_distinct};

use crate::functions::exact_sum::{Sum, passes};

/// The function, to be registered with a session.
pub(crate) fn daily_sums() -> AggregateUDF {
    AggregateUDF::from(DailySums { signature: Signature::user_defined(Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct DailySums {
    signature: Signature,
}

impl AggregateUDFImpl for DailySums {
    fn name(&self) -> &'static str {
        "daily_sums"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        if arguments.is_empty() {
            return plan_err!("daily_sums needs a day, and any count of numbers after it");
        }
        let mut types = vec![DataType::Float64; arguments.len()];
        types[0] = DataType::Date32;
        Ok(types)
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::List(item(arguments.len() - 1)))
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        no_distinct(&args, self.name())?;
        Ok(Box::new(Single::new(Groups::new(args.exprs.len() - 1))))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let list = DataType::List(Arc::new(Field::new_list_field(DataType::Float64, false)));
        Ok(vec![Arc::new(Field::new(format!("{}[days]", args.name), list, true))])
    }

    fn groups_accumulator_supported(&self, _: AccumulatorArgs) -> bool {
        true
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        no_distinct(&args, self.name())?;
        Ok(Box::new(Groups::new(args.exprs.len() - 1)))
    }
}

/// What a list holds: a day and its sums.
fn item(sums: usize) -> FieldRef {
    Arc::new(Field::new_list_field(DataType::Struct(fields(sums)), false))
}

fn fields(sums: usize) -> Fields {
    let day = Field::new("day", DataType::Date32, false);
    let sum = |i: usize| Field::new(format!("sum{i}"), DataType::Float64, false);
    std::iter::once(day).chain((1..=sums).map(sum)).collect()
}

/// Per group the days in order, each as `[day, sum, lost, sum, lost, ...]`.
#[derive(Debug, Default)]
struct Groups {
    sums: usize,
    groups: Vec<Vec<f64>>,
    /// Of the inner vectors.
    bytes: usize,
}

impl Groups {
    fn new(sums: usize) -> Self {
        Self { sums, ..Self::default() }
    }

    fn stride(&self) -> usize {
        1 + 2 * self.sums
    }

    /// The sums of a day, zeros if they are new. Rows mostly come in the order of time.
    fn day(&mut self, group: usize, day: f64) -> &mut [f64] {
        let stride = self.stride();
        let entries = &mut self.groups[group];
        let mut at = entries.len();
        while at > 0 && entries[at - stride] > day {
            at -= stride;
        }
        if at > 0 && entries[at - stride] == day {
            at -= stride;
        } else {
            let before = entries.capacity();
            entries.splice(at..at, std::iter::once(day).chain(vec![0.0; stride - 1]));
            self.bytes += (entries.capacity() - before) * size_of::<f64>();
        }
        &mut entries[at + 1..at + stride]
    }

    fn take(&mut self, emit_to: EmitTo) -> Vec<Vec<f64>> {
        let taken = emit_to.take_needed(&mut self.groups);
        self.bytes -= taken.iter().map(Vec::capacity).sum::<usize>() * size_of::<f64>();
        taken
    }
}

fn add(pair: &mut [f64], values: [f64; 2]) {
    let mut sum = Sum::of(pair[0], pair[1]);
    sum.merge(values[0], values[1]);
    pair.copy_from_slice(&[sum.sum, sum.lost]);
}

fn offsets(groups: &[Vec<f64>], entry: usize) -> OffsetBuffer<i32> {
    OffsetBuffer::from_lengths(groups.iter().map(|entries| entries.len() / entry))
}

impl GroupsAccumulator for Groups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.groups.resize(total_num_groups, Vec::new());
        let days = values[0].as_primitive::<Date32Type>();
        let numbers: Vec<&Float64Array> = values[1..].iter().map(|v| v.as_primitive()).collect();
        for (row, group) in group_indices.iter().enumerate() {
            if days.is_null(row) || !passes(filter, row) {
                continue;
            }
            let sums = self.day(*group, f64::from(days.value(row)));
            for (pair, number) in sums.chunks_exact_mut(2).zip(&numbers) {
                if number.is_valid(row) {
                    add(pair, [number.value(row), 0.0]);
                }
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let (sums, stride) = (self.sums, self.stride());
        let groups = self.take(emit_to);
        let entries = || groups.iter().flat_map(|entries| entries.chunks_exact(stride));
        let days: Date32Array = entries().map(|entry| Some(entry[0] as i32)).collect();
        let mut columns: Vec<ArrayRef> = vec![Arc::new(days)];
        for i in 0..sums {
            let sum = |entry: &[f64]| Sum::of(entry[1 + 2 * i], entry[2 + 2 * i]).value();
            columns.push(Arc::new(entries().map(sum).collect::<Float64Array>()));
        }
        let items = StructArray::try_new(fields(sums), columns, None)?;
        let lists =
            ListArray::try_new(item(sums), offsets(&groups, stride), Arc::new(items), None)?;
        Ok(Arc::new(lists))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let groups = self.take(emit_to);
        let field = Arc::new(Field::new_list_field(DataType::Float64, false));
        let offsets = offsets(&groups, 1);
        let values = Float64Array::from(groups.concat());
        Ok(vec![Arc::new(ListArray::try_new(field, offsets, Arc::new(values), None)?)])
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.groups.resize(total_num_groups, Vec::new());
        let Some(states) = values.first() else { return Ok(()) };
        let lists = states.as_list::<i32>();
        for (row, group) in group_indices.iter().enumerate() {
            if lists.is_null(row) {
                continue;
            }
            let entries = lists.value(row);
            for entry in entries.as_primitive::<Float64Type>().values().chunks(self.stride()) {
                let sums = self.day(*group, entry[0]);
                for (pair, more) in sums.chunks_exact_mut(2).zip(entry[1..].chunks_exact(2)) {
                    add(pair, [more[0], more[1]]);
                }
            }
        }
        Ok(())
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let rows = values[0].len();
        let mut each = Self::new(self.sums);
        each.update_batch(values, &(0..rows).collect::<Vec<_>>(), filter, rows)?;
        each.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        self.groups.capacity() * size_of::<Vec<f64>>() + self.bytes
    }
}
