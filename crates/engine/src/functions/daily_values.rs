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
    Array, ArrayRef, AsArray, Date32Array, Float64Array, ListArray, StructArray,
    TimestampMicrosecondArray,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Field, FieldRef, Fields, Float64Type, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::AggregateUDF;
use datafusion::logical_expr::function::AccumulatorArgs;
use uplake_functions::{Fold, Function};

/// Is a number at a time before another at its time (or after it, for the last)?
pub(crate) fn comes_before(last: bool, one: (i64, f64), other: (i64, f64)) -> bool {
    if last { one > other } else { one < other }
}

/// `daily_first`, to be registered with a session.
pub(crate) fn daily_first() -> AggregateUDF {
    DailyValue { last: false }.aggregate()
}

/// `daily_last`, to be registered with a session.
pub(crate) fn daily_last() -> AggregateUDF {
    DailyValue { last: true }.aggregate()
}

/// Of a group the days in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct DailyValue {
    last: bool,
}

impl Function for DailyValue {
    type Fold = Self;

    fn name(&self) -> &'static str {
        if self.last { "daily_last" } else { "daily_first" }
    }

    fn coerce(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        if given.len() != 3 {
            return plan_err!("{} needs a day, a time and a number", self.name());
        }
        let time = DataType::Timestamp(TimeUnit::Microsecond, None);
        Ok(vec![DataType::Date32, time, DataType::Float64])
    }

    fn output(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::List(item()))
    }

    fn fold(&self, _: &AccumulatorArgs) -> Result<Self> {
        Ok(self.clone())
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

impl DailyValue {
    /// Rows mostly come in the order of time.
    fn insert(&self, entries: &mut Vec<Entry>, new: Entry) {
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
        entries.insert(at, new);
    }
}

impl Fold for DailyValue {
    type State = Vec<Entry>;
    type Columns = (Date32Array, TimestampMicrosecondArray, Float64Array);

    fn columns(&self, values: &[ArrayRef]) -> Result<Self::Columns> {
        let times = values[1].as_primitive::<TimestampMicrosecondType>().clone();
        let numbers = values[2].as_primitive::<Float64Type>().clone();
        Ok((values[0].as_primitive::<Date32Type>().clone(), times, numbers))
    }

    fn add(&self, state: &mut Vec<Entry>, columns: &Self::Columns, row: usize) -> Result<()> {
        let (days, times, numbers) = columns;
        let known = days.is_valid(row) && times.is_valid(row) && numbers.is_valid(row);
        if known && numbers.value(row).is_finite() {
            let (day, time, value) = (days.value(row), times.value(row), numbers.value(row));
            self.insert(state, Entry { day, time, value });
        }
        Ok(())
    }

    fn save(&self, state: &Vec<Entry>, bytes: &mut Vec<u8>) {
        for Entry { day, time, value } in state {
            bytes.extend(i64::from(*day).to_le_bytes());
            bytes.extend(time.to_le_bytes());
            bytes.extend(value.to_le_bytes());
        }
    }

    fn merge(&self, state: &mut Vec<Entry>, bytes: &[u8]) -> Result<()> {
        for [day, time, value] in bytes.as_chunks::<8>().0.as_chunks::<3>().0 {
            let day = i64::from_le_bytes(*day) as i32;
            let (time, value) = (i64::from_le_bytes(*time), f64::from_le_bytes(*value));
            self.insert(state, Entry { day, time, value });
        }
        Ok(())
    }

    fn finish(&self, states: Vec<Vec<Entry>>) -> Result<ArrayRef> {
        let entries = || states.iter().flatten();
        let days: Date32Array = entries().map(|entry| Some(entry.day)).collect();
        let values: Float64Array = entries().map(|entry| Some(entry.value)).collect();
        let columns: Vec<ArrayRef> = vec![Arc::new(days), Arc::new(values)];
        let items = StructArray::try_new(fields(), columns, None)?;
        let offsets = OffsetBuffer::from_lengths(states.iter().map(Vec::len));
        Ok(Arc::new(ListArray::try_new(item(), offsets, Arc::new(items), None)?))
    }

    fn heap_bytes(state: &Vec<Entry>) -> usize {
        state.capacity() * size_of::<Entry>()
    }
}
