//! A condition that is a set of ranges of whole numbers: numbers in order are asked by bisection, others by one look-up
//! each.
//!
//! A part of a statement that several compute reads the users of its slots: `id >= 0 AND id < 8 OR id >= 16 AND id < 24
//! OR …`, up to 32 ranges. As comparisons these are passes over a column for each border.
//!
//! # Invariants
//! - A set holds what its condition is true of, and nothing else.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, IsNullExpr, Literal};
use datafusion::physical_expr::utils::split_disjunction;
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};

/// Bits of the largest set: 64 KiB.
const BITS_MAX: i128 = 1 << 19;
/// Comparisons from which one look-up is faster than they are.
const LEAST: usize = 3;

/// Whole numbers between borders that are multiples of a power of two apart, as those of slots are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct IntegerRanges {
    /// The lowest border.
    least: i64,
    /// Of the distance between borders, as a power of two.
    shift: u32,
    /// Is what lies between two borders in the set?
    bits: Vec<u64>,
    count: u64,
    /// And what lies below and above all of them?
    below: bool,
    above: bool,
    /// And NULL?
    pub null: bool,
    /// Is a look-up faster than the condition's comparisons?
    pub is_faster: bool,
}

impl IntegerRanges {
    /// The set that a condition on the column `name` describes, if it is one of comparisons.
    pub fn of(condition: &Arc<dyn PhysicalExpr>, name: &str) -> Option<Self> {
        let (mut ranges, mut null, mut comparisons) = (Vec::new(), false, 0);
        for part in split_disjunction(condition) {
            if let Some(is_null) = part.downcast_ref::<IsNullExpr>() {
                is_column(is_null.arg(), name)?;
                null = true;
                continue;
            }
            let mut range = Range { from: None, to: None };
            for side in split_conjunction(part) {
                range.narrow(side, name)?;
                comparisons += 1;
            }
            ranges.push(range);
        }
        let borders = || ranges.iter().flat_map(|range| [range.from, range.to]).flatten();
        let (least, most) = (borders().min()?, borders().max()?);
        let distance = |border: i64| i128::from(border) - i128::from(least);
        let apart = borders().map(distance).fold(0, |all, one| all | one);
        // All borders are the same: one bit, of nothing.
        let shift = if apart == 0 { 0 } else { apart.trailing_zeros() };
        let count = distance(most) >> shift;
        if count > BITS_MAX {
            return None;
        }
        let mut bits = vec![0_u64; (count as usize).div_ceil(64)];
        for Range { from, to } in &ranges {
            let place = |border: &i64| (distance(*border) >> shift) as usize;
            let (from, to) =
                (from.as_ref().map_or(0, place), to.as_ref().map_or(count as usize, place));
            for bit in from..to {
                bits[bit / 64] |= 1 << (bit % 64);
            }
        }
        let below = ranges.iter().any(|range| range.from.is_none());
        let above = ranges.iter().any(|range| range.to.is_none());
        let (count, is_faster) = (count as u64, comparisons >= LEAST);
        Some(Self { least, shift, bits, count, below, above, null, is_faster })
    }

    /// The places of `all` that are in the set, given the place of each border in them; from the border on, numbers are at
    /// least that. They are in order.
    pub fn between(
        &self,
        place: impl Fn(i64) -> usize,
        all: std::ops::Range<usize>,
    ) -> Vec<std::ops::Range<usize>> {
        let (mut found, mut from) = (Vec::new(), self.below.then_some(all.start));
        let mut change = |at: usize, is_in: bool| match (from, is_in) {
            (None, true) => from = Some(at),
            (Some(start), false) => {
                if start < at {
                    found.push(start..at);
                }
                from = None;
            }
            _ => {}
        };
        let mut was_in = self.below;
        for bit in 0..=self.count {
            let is_in = match bit < self.count {
                true => self.has(bit),
                false => self.above,
            };
            if is_in != was_in {
                change(place(self.least.wrapping_add_unsigned(bit << self.shift)), is_in);
                was_in = is_in;
            }
        }
        change(all.end, false);
        found
    }

    fn has(&self, bit: u64) -> bool {
        self.bits[(bit / 64) as usize] >> (bit % 64) & 1 == 1
    }

    pub fn contains(&self, number: i64) -> bool {
        if number < self.least {
            return self.below;
        }
        let bit = number.wrapping_sub(self.least) as u64 >> self.shift;
        if bit >= self.count {
            return self.above;
        }
        self.has(bit)
    }
}

/// From the first number to before the second, where there are such borders.
struct Range {
    from: Option<i64>,
    to: Option<i64>,
}

impl Range {
    /// The numbers of it for which a comparison of the column with a literal holds.
    fn narrow(&mut self, comparison: &Arc<dyn PhysicalExpr>, name: &str) -> Option<()> {
        let comparison = comparison.downcast_ref::<BinaryExpr>()?;
        is_column(comparison.left(), name)?;
        let number = whole_number(comparison.right().downcast_ref::<Literal>()?.value())?;
        let (from, to) = match comparison.op() {
            Operator::GtEq => (Some(number), None),
            Operator::Gt => (Some(number.checked_add(1)?), None),
            Operator::Lt => (None, Some(number)),
            Operator::LtEq => (None, Some(number.checked_add(1)?)),
            Operator::Eq => (Some(number), Some(number.checked_add(1)?)),
            _ => return None,
        };
        self.from = self.from.max(from);
        self.to = match (self.to, to) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        Some(())
    }
}

fn is_column(expression: &Arc<dyn PhysicalExpr>, name: &str) -> Option<()> {
    (expression.downcast_ref::<Column>()?.name() == name).then_some(())
}

/// The value of a literal, if it is a whole number and not NULL.
pub(crate) fn whole_number(value: &ScalarValue) -> Option<i64> {
    Some(match value {
        ScalarValue::Int8(Some(n)) => i64::from(*n),
        ScalarValue::Int16(Some(n)) => i64::from(*n),
        ScalarValue::Int32(Some(n)) => i64::from(*n),
        ScalarValue::Int64(Some(n)) => *n,
        ScalarValue::UInt8(Some(n)) => i64::from(*n),
        ScalarValue::UInt16(Some(n)) => i64::from(*n),
        ScalarValue::UInt32(Some(n)) => i64::from(*n),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch};
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use datafusion::physical_expr::expressions::{binary, col, is_null, lit};

    use super::*;

    fn schema() -> Schema {
        Schema::new(vec![
            Field::new("n", DataType::Int64, true),
            Field::new("m", DataType::Int64, true),
        ])
    }

    fn compared(op: Operator, number: i64) -> Arc<dyn PhysicalExpr> {
        let schema = schema();
        binary(col("n", &schema).unwrap(), op, lit(number), &schema).unwrap()
    }

    fn joined(op: Operator, all: Vec<Arc<dyn PhysicalExpr>>) -> Arc<dyn PhysicalExpr> {
        let two = |one, other| binary(one, op, other, &schema()).unwrap();
        all.into_iter().reduce(two).unwrap()
    }

    fn ranges(all: &[(i64, i64)]) -> Vec<Arc<dyn PhysicalExpr>> {
        let range = |(from, to): &(i64, i64)| {
            joined(
                Operator::And,
                vec![compared(Operator::GtEq, *from), compared(Operator::Lt, *to)],
            )
        };
        all.iter().map(range).collect()
    }

    /// The oracle is the condition itself.
    fn check(condition: &Arc<dyn PhysicalExpr>) -> IntegerRanges {
        let set = IntegerRanges::of(condition, "n").unwrap();
        let near = [-9_i64, -1, 0, 1, 7, 8, 9, 15, 16, 17, 23, 24, 25, 63, 64, 65, 1 << 30];
        let ends = [i64::MIN, i64::MIN + 1, i64::MAX - 1, i64::MAX];
        let numbers = near.into_iter().chain(ends).map(Some).chain([None]);
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter(numbers));
        let batch =
            RecordBatch::try_new(Arc::new(schema()), vec![Arc::clone(&numbers); 2]).unwrap();
        let held = condition.evaluate(&batch).unwrap().into_array(numbers.len()).unwrap();
        let held = uplake_functions::holds(held.as_boolean());
        let values = numbers.as_primitive::<datafusion::arrow::datatypes::Int64Type>();
        for row in 0..numbers.len() {
            let found = match values.is_null(row) {
                true => set.null,
                false => set.contains(values.value(row)),
            };
            assert_eq!(
                found,
                held.value(row),
                "{:?} in {condition}: {set:?}",
                numbers.slice(row, 1)
            );
        }
        set
    }

    #[test]
    fn a_set_holds_what_its_condition_is_true_of() {
        let null = || is_null(col("n", &schema()).unwrap()).unwrap();
        let or = |all| joined(Operator::Or, all);
        let slots = check(&or(ranges(&[(0, 8), (16, 24)])));
        assert_eq!((slots.shift, slots.bits.as_slice(), slots.count), (3, &[0b101][..], 3));
        check(&or([ranges(&[(0, 8), (64, 1 << 20)]), vec![null()]].concat()));
        let open = vec![compared(Operator::GtEq, 24), compared(Operator::Lt, 0)];
        check(&or([ranges(&[(8, 16)]), open].concat()));
        check(&or(vec![
            compared(Operator::Eq, 7),
            compared(Operator::Gt, 23),
            compared(Operator::LtEq, -9),
        ]));
        // Ends that have changed places, or all are one.
        check(&or(ranges(&[(16, 8), (64, 65)])));
        check(&or(ranges(&[(8, 8), (8, 8)])));
        check(&or(ranges(&[(8, 16), (8, 24), (0, 65)])));
        check(&or(ranges(&[(i64::MIN, i64::MIN + (1 << 60)), (0, 1 << 60)])));
        // Two comparisons are as fast as a look-up.
        assert!(!check(&or(ranges(&[(0, 8)]))).is_faster && slots.is_faster);
        check(&or(vec![compared(Operator::Lt, 1), compared(Operator::GtEq, 1)]));
    }

    #[test]
    fn other_conditions_are_none() {
        let of = |condition| IntegerRanges::of(&condition, "n");
        let or = |all| joined(Operator::Or, all);
        assert_eq!(of(is_null(col("n", &schema()).unwrap()).unwrap()), None);
        // Borders too far from each other for their distance.
        assert_eq!(of(or(ranges(&[(0, 8), (1, 1 << 40)]))), None);
        let mut other = ranges(&[(0, 8), (16, 24)]);
        other.push(compared(Operator::NotEq, 30));
        assert_eq!(of(or(other)), None);
        let schema = schema();
        let of_m = binary(col("m", &schema).unwrap(), Operator::Gt, lit(1_i64), &schema).unwrap();
        assert_eq!(of(or([ranges(&[(0, 8), (16, 24)]), vec![of_m]].concat())), None);
        assert_eq!(
            of(or([ranges(&[(0, 8)]), vec![compared(Operator::Gt, i64::MAX)]].concat())),
            None
        );
    }
}
