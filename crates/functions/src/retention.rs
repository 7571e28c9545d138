//! `retention(first, second, …)`: which conditions a user met, given the first.
//!
//! The answer is an array of as many truths as conditions: place 1 is whether some row met the
//! first, place n whether some row met the first and some row met the n-th, in any order.
//!
//! # Source
//! `retention` of ClickHouse and Doris.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, ListArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::{Result, internal_err};
use datafusion_expr::AggregateUDF;
use datafusion_expr::function::AccumulatorArgs;

use crate::error::refuse;
use crate::fold::{Fold, Function};
use crate::window_funnel::CONDITIONS_MAX;

/// The function, to be registered with a session.
pub(crate) fn function() -> AggregateUDF {
    Retention.aggregate()
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Retention;

impl Function for Retention {
    type Fold = Met;

    fn name(&self) -> &'static str {
        "retention"
    }

    fn coerce(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let truths = given.iter().all(|d| matches!(d, DataType::Boolean | DataType::Null));
        if !truths || !(1..=CONDITIONS_MAX).contains(&given.len()) {
            return refuse!(Call, "retention takes 1 to {CONDITIONS_MAX} conditions");
        }
        Ok(vec![DataType::Boolean; given.len()])
    }

    fn output(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::List(item()))
    }

    fn fold(&self, args: &AccumulatorArgs) -> Result<Met> {
        Ok(Met { conditions: args.exprs.len() })
    }
}

fn item() -> FieldRef {
    Arc::new(Field::new_list_field(DataType::Boolean, false))
}

/// A bit per condition that was met.
#[derive(Debug, Clone)]
struct Met {
    conditions: usize,
}

impl Fold for Met {
    type State = u32;
    type Columns = Vec<BooleanArray>;

    fn columns(&self, values: &[ArrayRef]) -> Result<Vec<BooleanArray>> {
        Ok(values.iter().map(|column| column.as_boolean().clone()).collect())
    }

    fn add(&self, met: &mut u32, columns: &Vec<BooleanArray>, row: usize) -> Result<()> {
        for (i, column) in columns.iter().enumerate() {
            *met |= u32::from(column.value(row) && column.is_valid(row)) << i;
        }
        Ok(())
    }

    fn save(&self, met: &u32, bytes: &mut Vec<u8>) {
        bytes.extend(met.to_le_bytes());
    }

    fn merge(&self, met: &mut u32, bytes: &[u8]) -> Result<()> {
        let Ok(bytes) = bytes.try_into() else {
            return internal_err!("a partial state of retention is cut off");
        };
        *met |= u32::from_le_bytes(bytes);
        Ok(())
    }

    fn finish(&self, states: Vec<u32>) -> Result<ArrayRef> {
        let truths = states.iter().flat_map(|met| {
            (0..self.conditions).map(move |i| Some(met & 1 == 1 && met >> i & 1 == 1))
        });
        let truths = BooleanArray::from_iter(truths);
        let offsets = OffsetBuffer::from_lengths(states.iter().map(|_| self.conditions));
        Ok(Arc::new(ListArray::try_new(item(), offsets, Arc::new(truths), None)?))
    }

    fn heap_bytes(_: &u32) -> usize {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fold::answers_of_split;
    use crate::random::Random;

    #[test]
    fn a_condition_counts_if_some_row_met_it_and_some_row_the_first() {
        for seed in 0..500 {
            let mut random = Random::new(seed);
            let (rows, conditions) = (random.below(8) as usize, 1 + random.below(4) as usize);
            let cell =
                |random: &mut Random| [Some(true), Some(false), None][random.below(3) as usize];
            let table: Vec<Vec<Option<bool>>> =
                (0..conditions).map(|_| (0..rows).map(|_| cell(&mut random)).collect()).collect();
            let group_of: Vec<usize> = (0..rows).map(|_| random.below(3) as usize).collect();
            let columns: Vec<ArrayRef> =
                table.iter().map(|c| Arc::new(BooleanArray::from(c.clone())) as ArrayRef).collect();
            let found = answers_of_split(&Met { conditions }, &columns, &group_of, 3, &mut random);
            for group in 0..3 {
                let met =
                    |i: usize| (0..rows).any(|r| group_of[r] == group && table[i][r] == Some(true));
                let expected: Vec<bool> = (0..conditions).map(|i| met(0) && met(i)).collect();
                let found: Vec<bool> =
                    found.as_list::<i32>().value(group).as_boolean().values().iter().collect();
                assert_eq!(found, expected, "seed {seed}: {table:?} {group_of:?}");
            }
        }
    }
}
