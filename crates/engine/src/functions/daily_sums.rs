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
    Array, ArrayRef, AsArray, Date32Array, Float64Array, ListArray, StructArray,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::datatypes::{DataType, Date32Type, Field, FieldRef, Fields};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::AggregateUDF;
use datafusion::logical_expr::function::AccumulatorArgs;
use uplake_functions::{Fold, Function};

use crate::functions::exact_sum::Sum;

/// The function, to be registered with a session.
pub(crate) fn daily_sums() -> AggregateUDF {
    DailySums.aggregate()
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct DailySums;

impl Function for DailySums {
    type Fold = Days;

    fn name(&self) -> &'static str {
        "daily_sums"
    }

    fn coerce(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        if given.is_empty() {
            return plan_err!("daily_sums needs a day, and any count of numbers after it");
        }
        let mut types = vec![DataType::Float64; given.len()];
        types[0] = DataType::Date32;
        Ok(types)
    }

    fn output(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::List(item(arguments.len() - 1)))
    }

    fn fold(&self, args: &AccumulatorArgs) -> Result<Days> {
        Ok(Days { sums: args.exprs.len() - 1 })
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
#[derive(Clone, Debug)]
struct Days {
    sums: usize,
}

impl Days {
    fn stride(&self) -> usize {
        1 + 2 * self.sums
    }

    /// The sums of a day, zeros if they are new. Rows mostly come in the order of time.
    fn day<'e>(&self, entries: &'e mut Vec<f64>, day: f64) -> &'e mut [f64] {
        let stride = self.stride();
        let mut at = entries.len();
        while at > 0 && entries[at - stride] > day {
            at -= stride;
        }
        if at > 0 && entries[at - stride] == day {
            at -= stride;
        } else {
            entries.splice(at..at, std::iter::once(day).chain(vec![0.0; stride - 1]));
        }
        &mut entries[at + 1..at + stride]
    }
}

fn add(pair: &mut [f64], values: [f64; 2]) {
    let mut sum = Sum::of(pair[0], pair[1]);
    sum.merge(values[0], values[1]);
    pair.copy_from_slice(&[sum.sum, sum.lost]);
}

impl Fold for Days {
    type State = Vec<f64>;
    type Columns = (Date32Array, Vec<Float64Array>);

    fn columns(&self, values: &[ArrayRef]) -> Result<Self::Columns> {
        let numbers = values[1..].iter().map(|values| values.as_primitive().clone());
        Ok((values[0].as_primitive::<Date32Type>().clone(), numbers.collect()))
    }

    fn add(&self, state: &mut Vec<f64>, columns: &Self::Columns, row: usize) -> Result<()> {
        let (days, numbers) = columns;
        if days.is_null(row) {
            return Ok(());
        }
        let sums = self.day(state, f64::from(days.value(row)));
        for (pair, number) in sums.chunks_exact_mut(2).zip(numbers) {
            if number.is_valid(row) {
                add(pair, [number.value(row), 0.0]);
            }
        }
        Ok(())
    }

    fn save(&self, state: &Vec<f64>, bytes: &mut Vec<u8>) {
        bytes.extend(state.iter().flat_map(|number| number.to_le_bytes()));
    }

    fn merge(&self, state: &mut Vec<f64>, bytes: &[u8]) -> Result<()> {
        let numbers = bytes.as_chunks::<8>().0.iter().map(|number| f64::from_le_bytes(*number));
        for entry in numbers.collect::<Vec<_>>().chunks_exact(self.stride()) {
            let sums = self.day(state, entry[0]);
            for (pair, more) in sums.chunks_exact_mut(2).zip(entry[1..].chunks_exact(2)) {
                add(pair, [more[0], more[1]]);
            }
        }
        Ok(())
    }

    fn finish(&self, states: Vec<Vec<f64>>) -> Result<ArrayRef> {
        let stride = self.stride();
        let entries = || states.iter().flat_map(|entries| entries.chunks_exact(stride));
        let days: Date32Array = entries().map(|entry| Some(entry[0] as i32)).collect();
        let mut columns: Vec<ArrayRef> = vec![Arc::new(days)];
        for i in 0..self.sums {
            let sum = |entry: &[f64]| Sum::of(entry[1 + 2 * i], entry[2 + 2 * i]).value();
            columns.push(Arc::new(entries().map(sum).collect::<Float64Array>()));
        }
        let items = StructArray::try_new(fields(self.sums), columns, None)?;
        let offsets = OffsetBuffer::from_lengths(states.iter().map(|days| days.len() / stride));
        Ok(Arc::new(ListArray::try_new(item(self.sums), offsets, Arc::new(items), None)?))
    }

    fn heap_bytes(state: &Vec<f64>) -> usize {
        state.capacity() * size_of::<f64>()
    }
}
