//! `sum` of whole numbers, which is right or an error.
//!
//! DataFusion's wraps round beyond 64 bits. Here sums are carried in 128 bits, which 2^64 numbers do not fill:
//! only what a sum comes to has to fit, whatever the order of its terms. Sums of decimals of 38 digits are carried
//! in 76 (`decimals`).
//!
//! # Invariants
//! - The partial state is a decimal of 38 digits, so partial sums are exact, too.
//!
//! # Not here
//! Sums of groups in arrays (`operators::array_aggregate::sums`), and `sum(DISTINCT x)` over a frame that slides, which is
//! DataFusion's and wraps.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::mem::{size_of, size_of_val};
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, PrimitiveArray,
};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::{
    ArrowPrimitiveType, DataType, Decimal128Type, Field, FieldRef, Int64Type, UInt64Type,
};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, Expr, GroupsAccumulator, Operator,
};
use datafusion::physical_expr::NullState;

use crate::base::error::EngineError;
use crate::base::sql_state::SqlState;

use super::as_before::aggregate_as_before;
use super::decimals::{Wide, carried, carrier};
use super::sliding_floats;
use uplake_functions::holds as true_only;

/// What a sum of whole numbers is carried in.
const TOTAL: DataType = DataType::Decimal128(38, 0);

/// The error of a sum beyond 64 bits.
pub(crate) fn does_not_fit() -> DataFusionError {
    EngineError::execution(SqlState::NumericValueOutOfRange, "the sum does not fit bigint")
        .with_hint("sum CAST(x AS DECIMAL(38, 0))")
        .into()
}

/// DataFusion's `sum`, whose whole numbers do not wrap round.
pub(super) fn in_full(function: Arc<AggregateUDF>) -> AggregateUDF {
    AggregateUDF::from(InFull { function })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct InFull {
    function: Arc<AggregateUDF>,
}

impl InFull {
    /// `sum(DISTINCT x)`: theirs of decimals.
    fn distinct<T: Whole>(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let args = AccumulatorArgs { return_field: total_field(args.name), ..args };
        let totals = self.function.accumulator(args)?;
        Ok(Box::new(Distinct::<T> { totals, of: PhantomData }))
    }

    /// What `made` is for other sums, in more digits where the sum has all that there are.
    fn wide(
        &self,
        args: AccumulatorArgs,
        made: impl FnOnce(AccumulatorArgs) -> Result<Box<dyn Accumulator>>,
    ) -> Result<Box<dyn Accumulator>> {
        let sum = args.return_field.data_type().clone();
        let Some(carrier) = carrier(&sum) else { return made(args) };
        let return_field = carried(args.name, carrier.clone());
        let of = made(AccumulatorArgs { return_field, ..args })?;
        Ok(Box::new(Wide { sum, carrier, of }))
    }
}

impl AggregateUDFImpl for InFull {
    aggregate_as_before!(
        groups_accumulator_supported,
        order_sensitivity,
        reverse_expr,
        value_from_stats,
        default_value
    );

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match (args.return_field.data_type(), args.is_distinct) {
            (DataType::Int64, false) => Ok(Box::new(Total::<Int64Type>::new())),
            (DataType::UInt64, false) => Ok(Box::new(Total::<UInt64Type>::new())),
            (DataType::Int64, true) => self.distinct::<Int64Type>(args),
            (DataType::UInt64, true) => self.distinct::<UInt64Type>(args),
            _ => self.wide(args, |args| self.function.accumulator(args)),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        if let Some(carrier) = carrier(args.return_field.data_type()) {
            let return_field = carried(args.name, carrier);
            return self.function.state_fields(StateFieldsArgs { return_field, ..args });
        }
        if !matches!(args.return_field.data_type(), DataType::Int64 | DataType::UInt64) {
            return self.function.state_fields(args);
        }
        let return_field = total_field(args.name);
        self.function.state_fields(StateFieldsArgs { return_field, ..args })
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        match args.return_field.data_type() {
            DataType::Int64 => Ok(Box::new(Groups::<Int64Type>::new())),
            DataType::UInt64 => Ok(Box::new(Groups::<UInt64Type>::new())),
            sum => match carrier(sum) {
                Some(carrier) => {
                    let (sum, return_field) = (sum.clone(), carried(args.name, carrier.clone()));
                    let args = AccumulatorArgs { return_field, ..args };
                    let of = self.function.create_groups_accumulator(args)?;
                    Ok(Box::new(Wide { sum, carrier, of }))
                }
                None => self.function.create_groups_accumulator(args),
            },
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match (args.return_field.data_type(), args.is_distinct) {
            (DataType::Int64, false) => Ok(Box::new(Total::<Int64Type>::new())),
            (DataType::UInt64, false) => Ok(Box::new(Total::<UInt64Type>::new())),
            _ => self.wide(args, |args| sliding_floats::sliding(&self.function, args)),
        }
    }

    fn simplify_expr_op_literal(
        &self,
        aggregate: &AggregateFunction,
        arg: &Expr,
        op: Operator,
        literal: &Expr,
        arg_is_left: bool,
    ) -> Result<Option<Expr>> {
        // `sum(x) + literal * count(x)` is not checked: where `sum(x + literal)` was safe, x is of 32 bits
        // and must meet a literal of no more.
        if is_long(literal) {
            return Ok(None);
        }
        self.function.simplify_expr_op_literal(aggregate, arg, op, literal, arg_is_left)
    }
}

/// Is it a whole number of more than 32 bits?
fn is_long(literal: &Expr) -> bool {
    match literal {
        Expr::Literal(ScalarValue::Int64(Some(x)), _) => i32::try_from(*x).is_err(),
        Expr::Literal(ScalarValue::UInt64(Some(x)), _) => i32::try_from(*x).is_err(),
        _ => false,
    }
}

fn total_field(name: &str) -> FieldRef {
    Arc::new(Field::new(name, TOTAL, true))
}

/// Types whose sums are carried in 128 bits.
trait Whole: ArrowPrimitiveType + Debug + Send + Sync {
    fn widened(x: Self::Native) -> i128;

    /// `None` if it does not fit.
    fn narrowed(total: i128) -> Option<Self::Native>;
}

impl Whole for Int64Type {
    fn widened(x: i64) -> i128 {
        x.into()
    }

    fn narrowed(total: i128) -> Option<i64> {
        total.try_into().ok()
    }
}

impl Whole for UInt64Type {
    fn widened(x: u64) -> i128 {
        x.into()
    }

    fn narrowed(total: i128) -> Option<u64> {
        total.try_into().ok()
    }
}

fn fitting<T: Whole>(total: i128) -> Result<T::Native> {
    T::narrowed(total).ok_or_else(does_not_fit)
}

/// The numbers that are not NULL and that `filter`, if there is one, keeps.
fn widened<T: Whole>(
    numbers: &PrimitiveArray<T>,
    filter: Option<&BooleanArray>,
) -> Decimal128Array {
    let kept = filter.map(|filter| NullBuffer::new(true_only(filter)));
    let valid = NullBuffer::union(numbers.nulls(), kept.as_ref());
    let wide: Vec<i128> = numbers.values().iter().map(|x| T::widened(*x)).collect();
    Decimal128Array::new(wide.into(), valid).with_data_type(TOTAL)
}

fn added_up<T: Whole>(numbers: &PrimitiveArray<T>) -> i128 {
    if numbers.null_count() == 0 {
        return numbers.values().iter().map(|x| T::widened(*x)).sum();
    }
    numbers.iter().flatten().map(T::widened).sum()
}

/// A sum without groups, which rows can leave again.
#[derive(Debug)]
struct Total<T> {
    sum: i128,
    /// How many numbers it is of.
    count: u64,
    of: PhantomData<T>,
}

impl<T: Whole> Total<T> {
    fn new() -> Self {
        Self { sum: 0, count: 0, of: PhantomData }
    }

    fn sum(&self) -> Option<i128> {
        (self.count > 0).then_some(self.sum)
    }
}

fn count_of(numbers: &dyn Array) -> u64 {
    (numbers.len() - numbers.null_count()) as u64
}

impl<T: Whole> Accumulator for Total<T> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let numbers = values[0].as_primitive::<T>();
        self.sum += added_up(numbers);
        self.count += count_of(numbers);
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let numbers = values[0].as_primitive::<T>();
        self.sum -= added_up(numbers);
        self.count -= count_of(numbers);
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::Decimal128(self.sum(), 38, 0)])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let sums = states[0].as_primitive::<Decimal128Type>();
        self.sum += sums.iter().flatten().sum::<i128>();
        self.count += count_of(sums);
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let sum = self.sum().map(fitting::<T>).transpose()?;
        ScalarValue::new_primitive::<T>(sum, &T::DATA_TYPE)
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// `totals`: of the same numbers as decimals.
#[derive(Debug)]
struct Distinct<T> {
    totals: Box<dyn Accumulator>,
    of: PhantomData<T>,
}

impl<T: Whole> Accumulator for Distinct<T> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let numbers: ArrayRef = Arc::new(widened::<T>(values[0].as_primitive(), None));
        self.totals.update_batch(&[numbers])
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.totals.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.totals.merge_batch(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let ScalarValue::Decimal128(total, ..) = self.totals.evaluate()? else {
            return internal_err!("a sum of decimals that is none");
        };
        let sum = total.map(fitting::<T>).transpose()?;
        ScalarValue::new_primitive::<T>(sum, &T::DATA_TYPE)
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.totals.size()
    }
}

/// The sums of groups.
struct Groups<T> {
    sums: Vec<i128>,
    nulls: NullState,
    of: PhantomData<T>,
}

impl<T: Whole> Groups<T> {
    fn new() -> Self {
        Self { sums: Vec::new(), nulls: NullState::new(), of: PhantomData }
    }
}

impl<T: Whole> GroupsAccumulator for Groups<T> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.sums.resize(count, 0);
        let sums = &mut self.sums;
        let add = |group: usize, x: T::Native| sums[group] += T::widened(x);
        self.nulls.accumulate(groups, values[0].as_primitive::<T>(), filter, count, add);
        Ok(())
    }

    fn merge_batch(&mut self, values: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        self.sums.resize(count, 0);
        let sums = &mut self.sums;
        let add = |group: usize, sum: i128| sums[group] += sum;
        let states = values[0].as_primitive::<Decimal128Type>();
        self.nulls.accumulate(groups, states, None, count, add);
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let sums = emit_to.take_needed(&mut self.sums);
        let valid = self.nulls.build(emit_to);
        // Those of no number are 0.
        let sums = sums.into_iter().map(fitting::<T>).collect::<Result<Vec<_>>>()?;
        Ok(Arc::new(PrimitiveArray::<T>::new(sums.into(), valid)))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let sums = emit_to.take_needed(&mut self.sums);
        let valid = self.nulls.build(emit_to);
        Ok(vec![Arc::new(Decimal128Array::new(sums.into(), valid).with_data_type(TOTAL))])
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        Ok(vec![Arc::new(widened::<T>(values[0].as_primitive(), filter))])
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<i128>() + self.nulls.size()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Int64Array, UInt64Array};
    use datafusion::functions_aggregate::sum::sum_udaf;

    use super::*;

    fn numbers(values: &[Option<i64>]) -> ArrayRef {
        Arc::new(Int64Array::from(values.to_vec()))
    }

    fn total(batches: &[&[Option<i64>]]) -> Result<ScalarValue> {
        let mut total = Total::<Int64Type>::new();
        for batch in batches {
            total.update_batch(&[numbers(batch)])?;
        }
        total.evaluate()
    }

    #[test]
    fn only_what_a_sum_comes_to_has_to_fit() {
        let (max, min) = (Some(i64::MAX), Some(i64::MIN));
        assert_eq!(total(&[&[max, Some(0), None]]).unwrap(), ScalarValue::Int64(max));
        assert_eq!(
            total(&[&[max, max], &[min, Some(-1)]]).unwrap(),
            ScalarValue::Int64(Some(i64::MAX - 2))
        );
        assert_eq!(total(&[&[None], &[]]).unwrap(), ScalarValue::Int64(None));
        let error = total(&[&[max], &[Some(1)]]).unwrap_err().to_string();
        assert!(error.contains("does not fit bigint"), "{error}");
        assert!(total(&[&[min, Some(-1)]]).is_err());
    }

    #[test]
    fn rows_leave_a_sum_that_was_too_large() {
        let mut total = Total::<Int64Type>::new();
        total.update_batch(&[numbers(&[Some(i64::MAX), Some(1), None])]).unwrap();
        assert!(total.evaluate().is_err());
        total.retract_batch(&[numbers(&[Some(i64::MAX)])]).unwrap();
        assert_eq!(total.evaluate().unwrap(), ScalarValue::Int64(Some(1)));
        total.retract_batch(&[numbers(&[Some(1), None])]).unwrap();
        assert_eq!(total.evaluate().unwrap(), ScalarValue::Int64(None));
    }

    #[test]
    fn states_carry_what_does_not_fit() {
        let mut first = Total::<Int64Type>::new();
        first.update_batch(&[numbers(&[Some(i64::MAX), Some(i64::MAX)])]).unwrap();
        let mut second = Total::<Int64Type>::new();
        second.update_batch(&[numbers(&[Some(-i64::MAX)])]).unwrap();
        let mut nothing = Total::<Int64Type>::new();
        let states = [&mut first, &mut second, &mut nothing].map(|t| t.state().unwrap().remove(0));
        let mut whole = Total::<Int64Type>::new();
        whole.merge_batch(&[ScalarValue::iter_to_array(states).unwrap()]).unwrap();
        assert_eq!(whole.evaluate().unwrap(), ScalarValue::Int64(Some(i64::MAX)));
    }

    #[test]
    fn groups_are_exact_over_states_filters_and_parts() {
        let values = numbers(&[Some(i64::MAX), Some(i64::MAX), None, Some(7), Some(9)]);
        let filter = BooleanArray::from(vec![Some(true), Some(true), Some(true), None, Some(true)]);
        let mut first = Groups::<Int64Type>::new();
        first.update_batch(&[Arc::clone(&values)], &[0, 0, 1, 2, 3], Some(&filter), 4).unwrap();
        let state = first.state(EmitTo::All).unwrap();
        assert_eq!(state[0].data_type(), &TOTAL);

        let mut whole = Groups::<Int64Type>::new();
        whole.merge_batch(&state, &[0, 1, 2, 3], 4).unwrap();
        let rows = whole.convert_to_state(&[values], Some(&filter)).unwrap();
        assert_eq!(rows[0].data_type(), &TOTAL);
        whole.merge_batch(&rows, &[4, 3, 1, 2, 3], 5).unwrap();
        whole.update_batch(&[numbers(&[Some(-i64::MAX)])], &[0], None, 5).unwrap();
        let head = whole.evaluate(EmitTo::First(3)).unwrap();
        let expected = Int64Array::from(vec![Some(i64::MAX), None, None]);
        assert_eq!(head.as_primitive::<Int64Type>(), &expected);
        // 9 + MAX + 9 is left in the first of the others.
        assert!(whole.evaluate(EmitTo::All).is_err());
    }

    #[test]
    fn unsigned_sums_reach_their_own_border() {
        let column = |values: Vec<u64>| Arc::new(UInt64Array::from(values)) as ArrayRef;
        let mut groups = Groups::<UInt64Type>::new();
        groups.update_batch(&[column(vec![u64::MAX - 1, 1, 5])], &[0, 0, 1], None, 2).unwrap();
        let sums = groups.evaluate(EmitTo::All).unwrap();
        assert_eq!(sums.as_primitive::<UInt64Type>(), &UInt64Array::from(vec![u64::MAX, 5]));
        groups.update_batch(&[column(vec![u64::MAX, 1])], &[0, 0], None, 1).unwrap();
        assert!(groups.evaluate(EmitTo::All).is_err());
    }

    #[test]
    fn partial_states_are_declared_as_they_are() {
        let sum = in_full(sum_udaf());
        let of = |data_type: DataType, is_distinct: bool| {
            let return_field = Arc::new(Field::new("s", data_type, true));
            let args = StateFieldsArgs {
                name: "s",
                input_fields: &[Arc::clone(&return_field)],
                return_field,
                ordering_fields: &[],
                is_distinct,
            };
            sum.state_fields(args).unwrap()[0].data_type().clone()
        };
        assert_eq!(sum.name(), "sum");
        assert_eq!(of(DataType::Int64, false), TOTAL);
        assert_eq!(of(DataType::UInt64, false), TOTAL);
        assert_eq!(of(DataType::Float64, false), DataType::Float64);
        assert_eq!(of(DataType::Int64, true), DataType::new_list(TOTAL, true));
    }
}
