//! `daily_first(day, time, x)` and `daily_last(day, time, x)`: per day that has a row, its first or last number.
//!
//! The answer is a list in the order of days, of structs `{day, value}`. Of several numbers at the same time the
//! first is the least and the last the greatest. A row without day or time, or whose number is NULL or not
//! finite, is none.
//!
//! # Invariants
//! - The answer does not depend on the order of rows.

use std::mem::size_of;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Date32Array, Float64Array, Int64Array, ListArray,
    StructArray,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Field, FieldRef, Fields, Float64Type, Int64Type, TimeUnit,
    TimestampMicrosecondType,
};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
};
use uplake_functions::{Single, no_distinct};

use crate::functions::exact_sum::passes;

/// Is a number at a time before another at its time (or after it, for the last)?
pub(crate) fn comes_before(last: bool, one: (i64, f64), other: (i64, f64)) -> bool {
    if last { one > other } else { one < other }
}

/// `daily_first`, to be registered with a session.
pub(crate) fn daily_first() -> AggregateUDF {
    AggregateUDF::from(DailyValue { last: false, signature: signature() })
}

/// `daily_last`, to be registered with a session.
pub(crate) fn daily_last() -> AggregateUDF {
    AggregateUDF::from(DailyValue { last: true, signature: signature() })
}

fn signature() -> Signature {
    Signature::user_defined(Volatility::Immutable)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct DailyValue {
    last: bool,
    signature: Signature,
}

impl AggregateUDFImpl for DailyValue {
    fn name(&self) -> &'static str {
        if self.last { "daily_last" } else { "daily_first" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        if arguments.len() != 3 {
            return plan_err!("{} needs a day, a time and a number", self.name());
        }
        let time = DataType::Timestamp(TimeUnit::Microsecond, None);
        Ok(vec![DataType::Date32, time, DataType::Float64])
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::List(item()))
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        no_distinct(&args, self.name())?;
        Ok(Box::new(Single::new(Groups::new(self.last))))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let list = DataType::List(Arc::new(Field::new_list_field(DataType::Int64, false)));
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
        Ok(Box::new(Groups::new(self.last)))
    }
}

/// What a list holds: a day and its number.
fn item() -> FieldRef {
    Arc::new(Field::new_list_field(DataType::Struct(fields()), false))
}

fn fields() -> Fields {
    let day = Field::new("day", DataType::Date32, false);
    [day, Field::new("value", DataType::Float64, false)].into_iter().collect()
}

/// The number of a day that counts so far.
#[derive(Debug, Clone, Copy)]
struct Entry {
    day: i32,
    time: i64,
    value: f64,
}

/// How many whole numbers an entry is in a state.
const STATE_NUMBERS: usize = 3;

/// Per group the days in order.
#[derive(Debug, Default)]
struct Groups {
    last: bool,
    groups: Vec<Vec<Entry>>,
    /// Of the inner vectors.
    bytes: usize,
}

impl Groups {
    fn new(last: bool) -> Self {
        Self { last, ..Self::default() }
    }

    /// Rows mostly come in the order of time.
    fn add(&mut self, group: usize, new: Entry) {
        let entries = &mut self.groups[group];
        let mut at = entries.len();
        while at > 0 && entries[at - 1].day > new.day {
            at -= 1;
        }
        if at > 0 && entries[at - 1].day == new.day {
            let known = &mut entries[at - 1];
            if comes_before(self.last, (new.time, new.value), (known.time, known.value)) {
                *known = new;
            }
            return;
        }
        let before = entries.capacity();
        entries.insert(at, new);
        self.bytes += (entries.capacity() - before) * size_of::<Entry>();
    }

    fn take(&mut self, emit_to: EmitTo) -> Vec<Vec<Entry>> {
        let taken = emit_to.take_needed(&mut self.groups);
        self.bytes -= taken.iter().map(Vec::capacity).sum::<usize>() * size_of::<Entry>();
        taken
    }
}

fn offsets(groups: &[Vec<Entry>], numbers: usize) -> OffsetBuffer<i32> {
    OffsetBuffer::from_lengths(groups.iter().map(|entries| entries.len() * numbers))
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
        let times = values[1].as_primitive::<TimestampMicrosecondType>();
        let numbers = values[2].as_primitive::<Float64Type>();
        for (row, group) in group_indices.iter().enumerate() {
            let known = days.is_valid(row) && times.is_valid(row) && numbers.is_valid(row);
            if known && numbers.value(row).is_finite() && passes(filter, row) {
                let (day, time, value) = (days.value(row), times.value(row), numbers.value(row));
                self.add(*group, Entry { day, time, value });
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let groups = self.take(emit_to);
        let entries = || groups.iter().flatten();
        let days: Date32Array = entries().map(|entry| Some(entry.day)).collect();
        let values: Float64Array = entries().map(|entry| Some(entry.value)).collect();
        let columns: Vec<ArrayRef> = vec![Arc::new(days), Arc::new(values)];
        let items = StructArray::try_new(fields(), columns, None)?;
        Ok(Arc::new(ListArray::try_new(item(), offsets(&groups, 1), Arc::new(items), None)?))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let groups = self.take(emit_to);
        let field = Arc::new(Field::new_list_field(DataType::Int64, false));
        let entries = groups.iter().flatten();
        let numbers = entries.flat_map(|entry| {
            [i64::from(entry.day), entry.time, entry.value.to_bits().cast_signed()]
        });
        let numbers = Int64Array::from_iter_values(numbers);
        let offsets = offsets(&groups, STATE_NUMBERS);
        Ok(vec![Arc::new(ListArray::try_new(field, offsets, Arc::new(numbers), None)?)])
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
            let numbers = lists.value(row);
            let numbers = numbers.as_primitive::<Int64Type>().values();
            for entry in numbers.chunks_exact(STATE_NUMBERS) {
                let value = f64::from_bits(entry[2].cast_unsigned());
                self.add(*group, Entry { day: entry[0] as i32, time: entry[1], value });
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
        let mut each = Self::new(self.last);
        each.update_batch(values, &(0..rows).collect::<Vec<_>>(), filter, rows)?;
        each.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        self.groups.capacity() * size_of::<Vec<Entry>>() + self.bytes
    }
}
