//! `bit_and`, `bit_or`, `bit_xor`, `bool_and` and `bool_or` of frames that slide.
//!
//! DataFusion's cannot take back a value that leaves the frame, and refuses; its `bit_xor` can, but says 0 of an
//! empty frame in place of NULL. Here the rows that have each bit are counted.

use std::mem::size_of_val;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type, UInt64Type};
use datafusion::common::{Result, ScalarValue, not_impl_err};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl};

use super::as_before::aggregate_as_before;

/// DataFusion's function, for frames that slide, too.
pub(super) fn sliding(function: Arc<AggregateUDF>) -> AggregateUDF {
    AggregateUDF::from(Sliding { function })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Sliding {
    function: Arc<AggregateUDF>,
}

impl AggregateUDFImpl for Sliding {
    aggregate_as_before!(
        accumulator,
        state_fields,
        groups_accumulator_supported,
        create_groups_accumulator,
        order_sensitivity,
        is_identical_reversed
    );

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let data_type = args.return_field.data_type();
        match (Combination::of(self.name()), width(data_type)) {
            // A value counts once, however often it is there.
            (Some(Combination::OddNumber), _) if args.is_distinct => {
                self.function.create_sliding_accumulator(args)
            }
            (Some(combination), Some(bits)) => {
                let data_type = data_type.clone();
                Ok(Box::new(Counts { data_type, combination, rows: 0, of_bits: vec![0; bits] }))
            }
            _ => self.function.create_sliding_accumulator(args),
        }
    }
}

/// Which rows must have a bit for the result to have it.
#[derive(Clone, Copy, Debug)]
enum Combination {
    All,
    Any,
    OddNumber,
}

impl Combination {
    fn of(function: &str) -> Option<Self> {
        match function {
            "bit_and" | "bool_and" => Some(Self::All),
            "bit_or" | "bool_or" => Some(Self::Any),
            "bit_xor" => Some(Self::OddNumber),
            _ => None,
        }
    }

    fn has(self, rows_with: u64, rows: u64) -> bool {
        match self {
            Self::All => rows_with == rows,
            Self::Any => rows_with > 0,
            Self::OddNumber => rows_with % 2 == 1,
        }
    }
}

/// The bits of a value; `None` if it has none.
fn width(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::Boolean => Some(1),
        whole if whole.is_integer() => whole.primitive_width().map(|bytes| bytes * 8),
        _ => None,
    }
}

/// How many rows of the frame have each bit; NULLs are left out.
#[derive(Debug)]
struct Counts {
    data_type: DataType,
    combination: Combination,
    rows: u64,
    of_bits: Vec<u64>,
}

impl Counts {
    fn count(&mut self, values: &ArrayRef, add: impl Fn(&mut u64)) -> Result<()> {
        let mut count = |value: u64| {
            add(&mut self.rows);
            for (bit, rows) in self.of_bits.iter_mut().enumerate() {
                if value >> bit & 1 == 1 {
                    add(rows);
                }
            }
        };
        if values.data_type().is_signed_integer() {
            let values = cast(values, &DataType::Int64)?;
            values.as_primitive::<Int64Type>().iter().flatten().for_each(|x| count(x as u64));
        } else {
            let values = cast(values, &DataType::UInt64)?;
            values.as_primitive::<UInt64Type>().iter().flatten().for_each(count);
        }
        Ok(())
    }
}

impl Accumulator for Counts {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.count(&values[0], |rows| *rows += 1)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.count(&values[0], |rows| *rows -= 1)
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.rows == 0 {
            return ScalarValue::try_new_null(&self.data_type);
        }
        let bits = self.of_bits.iter().enumerate();
        let value = bits
            .filter(|(_, rows)| self.combination.has(**rows, self.rows))
            .fold(0_u64, |value, (bit, _)| value | 1 << bit);
        let unused = 64 - self.of_bits.len();
        match &self.data_type {
            DataType::Boolean => Ok(ScalarValue::Boolean(Some(value == 1))),
            signed if signed.is_signed_integer() => {
                // The highest bit is the sign.
                let value = (value << unused) as i64 >> unused;
                ScalarValue::Int64(Some(value)).cast_to(signed)
            }
            unsigned => ScalarValue::UInt64(Some(value)).cast_to(unsigned),
        }
    }

    fn size(&self) -> usize {
        size_of_val(self) + size_of_val(self.of_bits.as_slice())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        not_impl_err!("a frame has no state")
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        not_impl_err!("a frame has no state")
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{BooleanArray, Int16Array, UInt64Array};

    use super::*;

    fn counts(data_type: DataType, combination: Combination) -> Counts {
        let of_bits = vec![0; width(&data_type).unwrap()];
        Counts { data_type, combination, rows: 0, of_bits }
    }

    #[test]
    fn values_that_leave_are_forgotten_and_nothing_is_null() {
        let rows: ArrayRef = Arc::new(Int16Array::from(vec![Some(-2), Some(5), None, Some(7)]));
        let check = |combination, all: i16, last: i16| {
            let mut counts = counts(DataType::Int16, combination);
            assert!(counts.evaluate().unwrap().is_null());
            counts.update_batch(&[Arc::clone(&rows)]).unwrap();
            assert_eq!(counts.evaluate().unwrap(), ScalarValue::Int16(Some(all)));
            counts.retract_batch(&[rows.slice(0, 1)]).unwrap();
            assert_eq!(counts.evaluate().unwrap(), ScalarValue::Int16(Some(last)));
            counts.retract_batch(&[rows.slice(1, 3)]).unwrap();
            assert!(counts.evaluate().unwrap().is_null());
        };
        check(Combination::All, -2 & 5 & 7, 5 & 7);
        check(Combination::Any, -2 | 5 | 7, 5 | 7);
        check(Combination::OddNumber, -2 ^ 5 ^ 7, 5 ^ 7);
    }

    #[test]
    fn truths_and_the_largest_numbers_have_all_their_bits() {
        let truths: ArrayRef = Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)]));
        for (combination, both, one) in
            [(Combination::All, false, true), (Combination::Any, true, true)]
        {
            let mut counts = counts(DataType::Boolean, combination);
            counts.update_batch(&[Arc::clone(&truths)]).unwrap();
            assert_eq!(counts.evaluate().unwrap(), ScalarValue::Boolean(Some(both)));
            counts.retract_batch(&[truths.slice(1, 2)]).unwrap();
            assert_eq!(counts.evaluate().unwrap(), ScalarValue::Boolean(Some(one)));
        }
        let mut counts = counts(DataType::UInt64, Combination::All);
        counts.update_batch(&[Arc::new(UInt64Array::from(vec![u64::MAX]))]).unwrap();
        assert_eq!(counts.evaluate().unwrap(), ScalarValue::UInt64(Some(u64::MAX)));
    }
}
