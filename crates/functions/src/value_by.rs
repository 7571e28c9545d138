//! `first_value_by(value, key)` and `last_value_by(value, key)`: the value of the row with the
//! least or greatest key, also as `min_by`, `max_by`, `arg_min` and `arg_max`.
//!
//! Rows in which one of the two is NULL do not count. Of several rows with the same key the least
//! value is taken, so the answer does not depend on the order of rows. NaN is above every number.
//!
//! # Invariants
//! - Key and value are kept as one comparable string of bytes (Arrow's row format), the key
//!   turned round for the greatest: the least string is the answer.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float32Array, Float64Array, UInt64Array};
use arrow::buffer::NullBuffer;
use arrow::compute::{SortOptions, take};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use arrow::row::{RowConverter, Rows, SortField};
use datafusion_common::Result;
use datafusion_expr::AggregateUDF;
use datafusion_expr::function::AccumulatorArgs;

use crate::error::refuse;
use crate::fold::{Fold, Function};

/// The functions, to be registered with a session.
pub(crate) fn functions() -> impl Iterator<Item = AggregateUDF> {
    let first = ["first_value_by", "min_by", "arg_min"].map(|name| ValueBy { name, last: false });
    let last = ["last_value_by", "max_by", "arg_max"].map(|name| ValueBy { name, last: true });
    first.into_iter().chain(last).map(Function::aggregate)
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ValueBy {
    name: &'static str,
    last: bool,
}

impl Function for ValueBy {
    type Fold = Least;

    fn name(&self) -> &'static str {
        self.name
    }

    fn coerce(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let [value, key] = given else {
            return refuse!(Call, "{} takes a value and a key to order by", self.name);
        };
        let plain = |data_type: &DataType| match data_type {
            DataType::Dictionary(_, of) => of.as_ref().clone(),
            other => other.clone(),
        };
        let key = match plain(key) {
            DataType::Float16 => DataType::Float32,
            key => key,
        };
        let types = vec![plain(value), key];
        let fields = types.iter().cloned().map(SortField::new).collect::<Vec<_>>();
        if !RowConverter::supports_fields(&fields) {
            return refuse!(Call, "{} cannot order these types", self.name);
        }
        Ok(types)
    }

    fn output(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(arguments[0].clone())
    }

    fn fold(&self, args: &AccumulatorArgs) -> Result<Least> {
        let options = SortOptions { descending: self.last, nulls_first: false };
        let of = |i: usize| args.expr_fields[i].data_type().clone();
        let key = SortField::new_with_options(of(1), options);
        Ok(Least { fields: vec![key, SortField::new(of(0))] })
    }
}

/// The least row seen.
#[derive(Debug, Clone)]
struct Least {
    /// Of the key, then of the value.
    fields: Vec<SortField>,
}

impl Least {
    fn take_less(state: &mut Option<Vec<u8>>, row: &[u8]) {
        match state {
            Some(least) if least.as_slice() <= row => {}
            Some(least) => {
                least.clear();
                least.extend_from_slice(row);
            }
            None => *state = Some(row.to_vec()),
        }
    }
}

impl Fold for Least {
    type State = Option<Vec<u8>>;
    type Columns = (Rows, Option<NullBuffer>);

    fn columns(&self, values: &[ArrayRef]) -> Result<Self::Columns> {
        let converter = RowConverter::new(self.fields.clone())?;
        let rows = converter.convert_columns(&[plain(&values[1])?, Arc::clone(&values[0])])?;
        let (value, key) = (values[0].logical_nulls(), values[1].logical_nulls());
        Ok((rows, NullBuffer::union(value.as_ref(), key.as_ref())))
    }

    fn add(&self, state: &mut Self::State, columns: &Self::Columns, row: usize) -> Result<()> {
        let (rows, valid) = columns;
        if valid.as_ref().is_none_or(|valid| valid.is_valid(row)) {
            Self::take_less(state, rows.row(row).as_ref());
        }
        Ok(())
    }

    /// Nothing, or a 1 and the row.
    fn save(&self, state: &Self::State, bytes: &mut Vec<u8>) {
        if let Some(row) = state {
            bytes.push(1);
            bytes.extend_from_slice(row);
        }
    }

    fn merge(&self, state: &mut Self::State, bytes: &[u8]) -> Result<()> {
        if let Some((_, row)) = bytes.split_first() {
            Self::take_less(state, row);
        }
        Ok(())
    }

    fn finish(&self, states: Vec<Self::State>) -> Result<ArrayRef> {
        let converter = RowConverter::new(self.fields.clone())?;
        let parser = converter.parser();
        let rows = states.iter().flatten().map(|row| parser.parse(row));
        let columns = converter.convert_rows(rows)?;
        let mut next = 0;
        let places: UInt64Array = states
            .iter()
            .map(|state| {
                state.as_ref()?;
                next += 1;
                Some(next - 1)
            })
            .collect();
        Ok(take(&columns[1], &places, None)?)
    }

    fn heap_bytes(state: &Self::State) -> usize {
        state.as_ref().map_or(0, Vec::capacity)
    }
}

/// Numbers with one NaN and one 0: rows are compared by their bits, in which a sign would come first.
fn plain(keys: &ArrayRef) -> Result<ArrayRef> {
    Ok(match keys.data_type() {
        DataType::Float64 => {
            let plain = |key: f64| if key.is_nan() { f64::NAN } else { key + 0.0 };
            let plain: Float64Array = keys.as_primitive::<Float64Type>().unary(plain);
            Arc::new(plain)
        }
        DataType::Float32 => {
            let plain = |key: f32| if key.is_nan() { f32::NAN } else { key + 0.0 };
            let plain: Float32Array = keys.as_primitive::<Float32Type>().unary(plain);
            Arc::new(plain)
        }
        _ => Arc::clone(keys),
    })
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, StringArray};

    use super::*;
    use crate::fold::answers_of_split;
    use crate::random::Random;

    #[test]
    fn the_least_value_of_the_extreme_key_whatever_the_order() {
        for seed in 0..600 {
            let mut random = Random::new(seed);
            let rows = random.below(10) as usize;
            let keys: Vec<Option<f64>> = (0..rows)
                .map(|_| {
                    [None, Some(-1.5), Some(2.0), Some(f64::NAN), Some(7.0)]
                        [random.below(5) as usize]
                })
                .collect();
            let values: Vec<Option<String>> = (0..rows)
                .map(|_| (random.below(5) > 0).then(|| format!("v{}", random.below(30))))
                .collect();
            let group_of: Vec<usize> = (0..rows).map(|_| random.below(2) as usize).collect();
            let columns: [ArrayRef; 2] = [
                Arc::new(StringArray::from(values.clone())),
                Arc::new(Float64Array::from(keys.clone())),
            ];
            for last in [false, true] {
                let options = SortOptions { descending: last, nulls_first: false };
                let key = SortField::new_with_options(DataType::Float64, options);
                let fold = Least { fields: vec![key, SortField::new(DataType::Utf8)] };
                let found = answers_of_split(&fold, &columns, &group_of, 2, &mut random);
                let found = found.as_any().downcast_ref::<StringArray>().unwrap();
                for group in 0..2 {
                    let mut own: Vec<(f64, &String)> = (0..rows)
                        .filter(|row| group_of[*row] == group)
                        .filter_map(|row| Some((keys[row]?, values[row].as_ref()?)))
                        .collect();
                    own.sort_by(|a, b| {
                        let by_key = a.0.total_cmp(&b.0);
                        (if last { by_key.reverse() } else { by_key }).then(a.1.cmp(b.1))
                    });
                    let expected = own.first().map(|row| row.1.as_str());
                    let found = found.is_valid(group).then(|| found.value(group));
                    assert_eq!(found, expected, "seed {seed}, last {last}");
                }
            }
        }
    }
}
