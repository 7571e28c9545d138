//! Aggregates over groups that are numbers: sums and counts in arrays, all others by DataFusion's own.
//!
//! `sum(CASE WHEN c THEN x ELSE 0 END)` adds `x` or 0 in one pass: the CASE is never made a column.
//!
//! # Invariants
//! - NULLs are left out; a sum or a mean without a term is NULL.
//! - Sums of whole numbers are exact, or an error if they do not fit.
//! - The first half of a sum or a mean ([`of_partial`]) is added up likewise, and answered as its state.

use std::mem::size_of;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Float64Array, Int64Array, RecordBatch,
    StructArray, UInt64Array,
};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Field, Fields, Float64Type, Int64Type, Schema,
};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::{CaseExpr, CastExpr, Column, Literal};
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};

use uplake_functions::{EventBits, RowRun, absorb, expect_order, time_of, update_runs};

use uplake_functions::holds as true_only;

use crate::functions::halves::of_partial;
use crate::operators::array_aggregate::expressions::asks;
use crate::operators::array_aggregate::rows::RowGroups;
use crate::operators::array_aggregate::whole_sums::{WholeSums, largest};

/// The largest number of [`SumPlan::of_short`].
const LARGEST_SHORT: u64 = u32::MAX as u64;

/// Functions that take numbers out of rows, and keep no part of a column.
const FORGETFUL: [&str; 8] = [
    "conversion_times",
    "distinct_ids",
    "event_path",
    "max",
    "min",
    "sequence_count",
    "sequence_match",
    "window_funnel",
];

/// What an aggregate adds up, known before a row is seen.
#[derive(Clone, Debug)]
pub(crate) struct SumPlan {
    what: SumKind,
    function: Arc<AggregateFunctionExpr>,
    /// One number of each row, or what the function takes.
    arguments: Vec<Arc<dyn PhysicalExpr>>,
    /// Rows whose argument counts.
    condition: Option<Arc<dyn PhysicalExpr>>,
    /// Do the other rows count as 0?
    else_zero: bool,
    /// Is the argument a cast of a whole number of at most 32 bits?
    of_short: bool,
    /// Of the first half of a sum or mean: the state that stands for it.
    state: Option<Fields>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum SumKind {
    Count,
    Sum,
    Mean,
    SumWhole,
    /// What all rows of a group have, see [`SumPlan::of_key`].
    OfKey(usize),
    Other,
}

impl SumPlan {
    /// `None` if the function needs more than groups and rows.
    pub fn new(
        function: &Arc<AggregateFunctionExpr>,
        filter: Option<&Arc<dyn PhysicalExpr>>,
        schema: &Schema,
    ) -> Option<Self> {
        if !function.order_bys().is_empty() || !function.groups_accumulator_supported() {
            return None;
        }
        let arguments = function.expressions();
        let arguments = EventBits::in_arguments(function.fun(), &arguments).unwrap_or(arguments);
        let mut plan = Self {
            what: SumKind::Other,
            function: Arc::clone(function),
            arguments,
            condition: filter.cloned(),
            else_zero: false,
            of_short: false,
            state: None,
        };
        if function.is_distinct() {
            return Some(plan);
        }
        let [argument] = plan.arguments.as_slice() else { return Some(plan) };
        let data_type = argument.data_type(schema).ok()?;
        let (name, output, state) = match (of_partial(function.fun()), function.field().data_type())
        {
            // A sum, and so is what a mean needs, is of its argument's type.
            (Some(whole), DataType::Struct(state)) => {
                (whole.name(), data_type.clone(), Some(state.clone()))
            }
            (_, output) => (function.fun().name(), output.clone(), None),
        };
        plan.what = match (name, data_type, output) {
            ("count", _, DataType::Int64) => SumKind::Count,
            ("sum", DataType::Float64, DataType::Float64) => SumKind::Sum,
            ("avg", DataType::Float64, DataType::Float64) => SumKind::Mean,
            ("sum", DataType::Int64, DataType::Int64) => SumKind::SumWhole,
            _ => return Some(plan),
        };
        plan.state = state;
        let short = |inner: &Arc<dyn PhysicalExpr>| {
            let data_type = inner.data_type(schema);
            data_type.is_ok_and(|t| t.is_integer() && t.primitive_width().is_some_and(|w| w <= 4))
        };
        plan.of_short = inner_of_cast(argument).is_some_and(short);
        if filter.is_none()
            && let Some((condition, value, else_zero)) = simple_case(argument)
        {
            plan.arguments = vec![value];
            plan.condition = Some(condition);
            plan.else_zero = else_zero;
        }
        Some(plan)
    }

    /// The column of which this is the least or the largest value, and no other: if all rows of a group
    /// have the same value, it is that.
    pub fn one_of(&self, schema: &Schema) -> Option<usize> {
        let [argument] = self.arguments.as_slice() else { return None };
        let column = argument.downcast_ref::<Column>()?;
        let is_one = self.what == SumKind::Other
            && self.condition.is_none()
            && ["min", "max"].contains(&self.function.fun().name())
            && self.function.field().data_type() == schema.field(column.index()).data_type();
        is_one.then(|| column.index())
    }

    /// The same, where all rows of a group have the value that stands at `place` of
    /// [`GroupJoin::of_key`](crate::operators::array_aggregate::group_join::Lookup::of_key).
    pub fn of_key(&self, place: usize) -> Self {
        Self { what: SumKind::OfKey(place), arguments: Vec::new(), ..self.clone() }
    }

    /// Are the rows that it sees of no use to it later? An array of values, for one, keeps them.
    pub fn forgets_rows(&self) -> bool {
        self.what != SumKind::Other || FORGETFUL.contains(&self.function.fun().name())
    }

    /// The time by which it orders rows.
    pub fn time(&self) -> Option<&Arc<dyn PhysicalExpr>> {
        time_of(self.function.fun(), &self.arguments)
    }

    pub fn expressions(&self) -> impl Iterator<Item = &Arc<dyn PhysicalExpr>> {
        self.arguments.iter().chain(&self.condition)
    }

    /// The same of other rows: `change` says how an expression is written there.
    pub fn map(
        &self,
        mut change: impl FnMut(&Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>>,
    ) -> Result<Self> {
        Ok(Self {
            arguments: self.arguments.iter().map(&mut change).collect::<Result<_>>()?,
            condition: self.condition.as_ref().map(&mut change).transpose()?,
            ..self.clone()
        })
    }

    fn start(&self) -> Result<Slot> {
        let values = match self.what {
            SumKind::Count => Values::Count,
            SumKind::Sum | SumKind::Mean => Values::Numbers(Vec::new()),
            SumKind::SumWhole => Values::Whole(WholeSums::default()),
            SumKind::OfKey(place) => Values::OfKey(place),
            SumKind::Other => Values::Other(self.function.create_groups_accumulator()?),
        };
        Ok(Slot { plan: self.clone(), values, missing: Vec::new(), has_empty_groups: false })
    }

    /// One for each, in order. A mean whose terms another adds up takes the other's sums.
    pub fn start_all(plans: &[Self]) -> Result<Vec<Slot>> {
        let start = |plan: &Self| {
            let mut slot = plan.start()?;
            if let Some(other) = plans.iter().position(|other| plan.is_mean_of(other)) {
                slot.values = Values::SumsOf(other);
                // Only its NULLs are asked for.
                if let Some(inner) = inner_of_cast(&plan.arguments[0]).filter(|_| plan.of_short) {
                    slot.plan.arguments = vec![Arc::clone(inner)];
                }
            }
            Ok(slot)
        };
        plans.iter().map(start).collect()
    }

    /// Is this the mean of what `sum` adds up?
    fn is_mean_of(&self, sum: &Self) -> bool {
        let same = match sum.what {
            SumKind::Sum => self.arguments == sum.arguments,
            SumKind::SumWhole => {
                let inner = |plan: &Self| inner_of_cast(&plan.arguments[0]).cloned();
                self.of_short && sum.of_short && inner(self) == inner(sum)
            }
            _ => false,
        };
        self.what == SumKind::Mean && same && self.condition == sum.condition
    }
}

fn inner_of_cast(expr: &Arc<dyn PhysicalExpr>) -> Option<&Arc<dyn PhysicalExpr>> {
    expr.downcast_ref::<CastExpr>().map(CastExpr::expr)
}

/// A condition, a value, and whether rows without the condition count as 0.
type Case = (Arc<dyn PhysicalExpr>, Arc<dyn PhysicalExpr>, bool);

/// The parts of `CASE WHEN condition THEN value [ELSE 0] END`
/// whose value cannot fail where the condition does not hold.
fn simple_case(expr: &Arc<dyn PhysicalExpr>) -> Option<Case> {
    let case = expr.downcast_ref::<CaseExpr>()?;
    let ([(condition, value)], None) = (case.when_then_expr(), case.expr()) else { return None };
    if !(value.is::<Column>() || value.is::<Literal>()) {
        return None;
    }
    let else_zero = match case.else_expr() {
        None => false,
        Some(other) => match other.downcast_ref::<Literal>()?.value() {
            value if value.is_null() => false,
            ScalarValue::Float64(Some(0.0)) | ScalarValue::Int64(Some(0)) => true,
            _ => return None,
        },
    };
    Some((Arc::clone(condition), Arc::clone(value), else_zero))
}

enum Values {
    Count,
    Numbers(Vec<f64>),
    Whole(WholeSums),
    /// Those of the slot of this number.
    SumsOf(usize),
    OfKey(usize),
    Other(Box<dyn GroupsAccumulator>),
}

/// Where parts of conditions hold in a batch: aggregates have parts in common.
#[derive(Default)]
pub(crate) struct Held(Vec<(Arc<dyn PhysicalExpr>, BooleanBuffer)>);

impl Held {
    /// Where a condition holds, and is not NULL. If no part of it can fail or say something else when it is
    /// asked again, its parts are looked at one by one.
    fn of(
        &mut self,
        condition: &Arc<dyn PhysicalExpr>,
        batch: &RecordBatch,
    ) -> Result<BooleanBuffer> {
        let evaluate = |expr: &Arc<dyn PhysicalExpr>| -> Result<BooleanBuffer> {
            let held = expr.evaluate(batch)?.into_array(batch.num_rows())?;
            Ok(true_only(held.as_boolean()))
        };
        let parts = split_conjunction(condition);
        if !parts.iter().all(|part| part.is::<Column>() || asks(part)) {
            return evaluate(condition);
        }
        let mut all: Option<BooleanBuffer> = None;
        for part in parts {
            let held = match self.0.iter().find(|(known, _)| known == part) {
                Some((_, held)) => held.clone(),
                None => {
                    let held = evaluate(part)?;
                    self.0.push((Arc::clone(part), held.clone()));
                    held
                }
            };
            all = Some(all.map_or_else(|| held.clone(), |all| &all & &held));
        }
        Ok(all.unwrap_or_else(|| BooleanBuffer::new_set(batch.num_rows())))
    }
}

/// One aggregate of all groups.
pub(crate) struct Slot {
    plan: SumPlan,
    values: Values,
    /// Per group, rows that do not count.
    missing: Vec<i64>,
    /// Are there groups without a row, which the accumulator has not been told yet?
    has_empty_groups: bool,
}

impl Slot {
    /// The rows of each group will come in the order of time, and nothing will be merged.
    pub fn expect_order(&mut self) {
        if let Values::Other(accumulator) = &mut self.values {
            expect_order(accumulator.as_mut());
        }
    }

    /// There are groups before a row of theirs has come, and some will have none.
    pub fn expect_empty_groups(&mut self) {
        self.has_empty_groups = true;
    }

    /// Adds rows, which are in groups of `count` there are. `held`: of this batch.
    pub fn add(
        &mut self,
        batch: &RecordBatch,
        rows: &mut RowGroups,
        held: &mut Held,
        count: usize,
    ) -> Result<()> {
        if self.is_of_key() {
            return Ok(());
        }
        let condition = self.plan.condition.as_ref().map(|condition| held.of(condition, batch));
        let condition = condition.transpose()?.map(BooleanArray::from);
        if let Values::Other(accumulator) = &mut self.values {
            let arguments: Vec<ArrayRef> = self
                .plan
                .arguments
                .iter()
                .map(|argument| argument.evaluate(batch)?.into_array(batch.num_rows()))
                .collect::<Result<_>>()?;
            if std::mem::take(&mut self.has_empty_groups) {
                // Without a filter and NULLs, DataFusion's `NullState` takes all of `count` groups to have
                // had a value, as they have in its own aggregate. Rows under a filter, none here, make it
                // mark each group that has.
                let none: Vec<ArrayRef> = arguments.iter().map(|rows| rows.slice(0, 0)).collect();
                let filter = BooleanArray::new(BooleanBuffer::new_unset(0), None);
                accumulator.update_batch(&none, &[], Some(&filter), count)?;
            }
            if let (Some(runs), None) = (rows.runs(), &condition)
                && update_runs(accumulator.as_mut(), &arguments, runs, count)?
            {
                return Ok(());
            }
            return accumulator.update_batch(&arguments, rows.groups(), condition.as_ref(), count);
        }
        self.missing.resize(count, 0);
        let argument = &self.plan.arguments[0];
        if let Some(literal) = argument.downcast_ref::<Literal>() {
            let value = literal.value().clone();
            self.add_literal(&value, rows, count, condition.as_ref());
            return Ok(());
        }
        let argument = argument.evaluate(batch)?.into_array(batch.num_rows())?;
        let (condition, else_zero) = (condition.as_ref(), self.plan.else_zero);
        match &mut self.values {
            Values::Numbers(sums) => {
                sums.resize(count, 0.0);
                let values = argument.as_primitive::<Float64Type>();
                add(values.values(), &argument, rows, condition, sums, |sum, x| *sum += x);
            }
            Values::Whole(sums) => {
                let values = argument.as_primitive::<Int64Type>().values();
                let largest = if self.plan.of_short { LARGEST_SHORT } else { largest(values) };
                match sums.short(count, values.len(), largest) {
                    Some(sums) => {
                        add(values, &argument, rows, condition, sums, |sum, x| *sum += x);
                    }
                    None => {
                        let values: Vec<i128> = values.iter().map(|x| i128::from(*x)).collect();
                        let sums = sums.long(count);
                        add(&values, &argument, rows, condition, sums, |sum, x| *sum += x);
                    }
                }
            }
            Values::Count | Values::SumsOf(_) | Values::OfKey(_) | Values::Other(_) => {}
        }
        let counts = match (condition, argument.nulls(), else_zero) {
            (_, None, true) | (None, None, _) => return Ok(()),
            (None, Some(valid), _) => valid.inner().clone(),
            (Some(condition), None, false) => condition.values().clone(),
            (Some(condition), Some(valid), false) => condition.values() & valid.inner(),
            (Some(condition), Some(valid), true) => &!condition.values() | valid.inner(),
        };
        self.leave_out(&counts, rows);
        Ok(())
    }

    /// Rows for which `counts` is false do not count.
    fn leave_out(&mut self, counts: &BooleanBuffer, rows: &RowGroups) {
        let missing = &mut self.missing;
        if counts.count_set_bits() * 2 < rows.len() {
            rows.add_to_each(missing, 1);
            rows.each_of(counts, |_, group| missing[group] -= 1);
        } else {
            rows.each_of(&!counts, |_, group| missing[group] += 1);
        }
    }

    fn add_literal(
        &mut self,
        value: &ScalarValue,
        rows: &mut RowGroups,
        count: usize,
        condition: Option<&BooleanArray>,
    ) {
        let bits = condition.map(BooleanArray::values);
        match (&mut self.values, value) {
            (Values::Numbers(sums), ScalarValue::Float64(x)) => {
                sums.resize(count, 0.0);
                let x = x.unwrap_or_default();
                // A whole number added up so often is exact.
                if let (Some(runs), Some(bits), true) = (rows.runs(), bits, is_small_whole(x)) {
                    count_in_runs(bits, runs, |group, n| sums[group] += x * n as f64);
                } else {
                    let ones = vec![x; rows.len()];
                    add_wanted(&ones, rows, bits, sums, |sum, x| *sum += x);
                }
            }
            (Values::Whole(sums), ScalarValue::Int64(x)) => {
                let x = x.unwrap_or_default();
                match (sums.short(count, rows.len(), x.unsigned_abs()), rows.runs(), bits) {
                    (Some(sums), Some(runs), Some(bits)) => {
                        count_in_runs(bits, runs, |group, n| sums[group] += x * n as i64);
                    }
                    (Some(sums), ..) => {
                        let ones = vec![x; rows.len()];
                        add_wanted(&ones, rows, bits, sums, |sum, x| *sum += x);
                    }
                    (None, ..) => {
                        let ones = vec![i128::from(x); rows.len()];
                        add_wanted(&ones, rows, bits, sums.long(count), |sum, x| *sum += x);
                    }
                }
            }
            _ => {}
        }
        match (!value.is_null(), self.plan.else_zero, bits) {
            (true, true, _) | (true, _, None) => {}
            (false, true, Some(bits)) => self.leave_out(&!bits, rows),
            (true, false, Some(bits)) => self.leave_out(bits, rows),
            (false, false, _) | (false, _, None) => rows.add_to_each(&mut self.missing, 1),
        }
    }

    fn is_of_key(&self) -> bool {
        matches!(self.values, Values::OfKey(_))
    }

    /// Adds another thread's, whose groups are `groups` here, of `count` there are.
    pub fn merge(&mut self, other: Self, groups: &[usize], count: usize) -> Result<()> {
        if self.is_of_key() {
            return Ok(());
        }
        match (&mut self.values, other.values) {
            (Values::Other(mine), Values::Other(mut other)) => {
                if absorb(mine.as_mut(), other.as_mut(), groups, count) {
                    return Ok(());
                }
                let states = other.state(EmitTo::All)?;
                return mine.merge_batch(&states, groups, count);
            }
            (Values::Numbers(sums), Values::Numbers(more)) => {
                sums.resize(count, 0.0);
                more.iter().zip(groups).for_each(|(x, group)| sums[*group] += x);
            }
            (Values::Whole(sums), Values::Whole(more)) => {
                sums.merge(more, groups, count);
            }
            _ => {}
        }
        self.missing.resize(count, 0);
        other.missing.iter().zip(groups).for_each(|(more, group)| self.missing[*group] += more);
        Ok(())
    }

    /// The sums that it takes from another of these, for [`Self::finish`].
    pub fn sums_of_other(&self, slots: &[Self]) -> Option<Vec<f64>> {
        let Values::SumsOf(other) = self.values else { return None };
        match &slots[other].values {
            Values::Numbers(sums) => Some(sums.clone()),
            Values::Whole(sums) => Some(sums.as_floats()),
            _ => None,
        }
    }

    /// The aggregate of every group. `rows`: rows of each; `sums`: those of another slot, if it takes them;
    /// `of_key`: the values at a place, by [`SumPlan::of_key`].
    pub fn finish(
        self,
        rows: &[i64],
        sums: Option<Vec<f64>>,
        of_key: impl Fn(usize) -> Result<ArrayRef>,
    ) -> Result<ArrayRef> {
        let counts = || rows.iter().zip(&self.missing).map(|(rows, missing)| rows - missing);
        let values = match (self.values, sums) {
            (Values::SumsOf(_), Some(sums)) => Values::Numbers(sums),
            (values, _) => values,
        };
        if let Some(fields) = &self.plan.state {
            return state(fields, values, counts());
        }
        Ok(match values {
            Values::Other(mut accumulator) => accumulator.evaluate(EmitTo::All)?,
            Values::OfKey(place) => of_key(place)?,
            Values::Count => Arc::new(counts().collect::<Int64Array>()),
            Values::SumsOf(other) => return internal_err!("a mean without the sums of {other}"),
            Values::Whole(sums) => Arc::new(sums.finish(counts())?),
            Values::Numbers(sums) => {
                let is_mean = self.plan.what == SumKind::Mean;
                let number = |(sum, count): (f64, i64)| {
                    (count > 0).then_some(if is_mean { sum / count as f64 } else { sum })
                };
                Arc::new(sums.into_iter().zip(counts()).map(number).collect::<Float64Array>())
            }
        })
    }

    /// Bytes.
    pub fn size(&self) -> usize {
        let values = match &self.values {
            Values::Count | Values::SumsOf(_) | Values::OfKey(_) => 0,
            Values::Numbers(sums) => sums.capacity() * size_of::<f64>(),
            Values::Whole(sums) => sums.size(),
            Values::Other(accumulator) => accumulator.size(),
        };
        values + self.missing.capacity() * size_of::<i64>()
    }
}

/// The state of sums or means, whose terms are counted.
fn state(
    fields: &Fields,
    values: Values,
    counts: impl Iterator<Item = i64> + Clone,
) -> Result<ArrayRef> {
    let sums: ArrayRef = match values {
        Values::Numbers(sums) => {
            let sums = sums.into_iter().zip(counts.clone());
            Arc::new(sums.map(|(x, n)| (n > 0).then_some(x)).collect::<Float64Array>())
        }
        Values::Whole(sums) => {
            let sums = sums.totals().into_iter().zip(counts.clone());
            let sums: Decimal128Array = sums.map(|(x, n)| (n > 0).then_some(x)).collect();
            Arc::new(sums.with_precision_and_scale(DECIMAL128_MAX_PRECISION, 0)?)
        }
        _ => return internal_err!("a state without sums"),
    };
    let column = |field: &Arc<Field>| -> Result<ArrayRef> {
        Ok(match field.data_type() {
            DataType::UInt64 => {
                let counts = counts.clone().take(sums.len());
                // Of no term both are NULL: who merges a count of 0 takes the sum for 0.
                let count = |n: i64| u64::try_from(n).ok().filter(|n| *n > 0);
                Arc::new(counts.map(count).collect::<UInt64Array>())
            }
            data_type => cast(&sums, data_type)?,
        })
    };
    let columns = fields.iter().map(column).collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(StructArray::try_new(fields.clone(), columns, None)?))
}

/// Of so many rows at most one is wanted if the others are passed over.
const FEW_WANTED: usize = 8;
/// Sums of so few groups are kept four times over, so that a sum need not wait for the one before.
const FEW_SUMS: usize = 64;
const COPIES: usize = 4;

/// Adds the values of rows that are not NULL and whose condition holds.
fn add<T: Copy + Default>(
    values: &[T],
    argument: &ArrayRef,
    rows: &mut RowGroups,
    condition: Option<&BooleanArray>,
    sums: &mut [T],
    plus: impl Fn(&mut T, T),
) {
    let wanted = wanted(argument, condition);
    add_wanted(values, rows, wanted.as_ref(), sums, plus);
}

fn add_wanted<T: Copy + Default>(
    values: &[T],
    rows: &mut RowGroups,
    wanted: Option<&BooleanBuffer>,
    sums: &mut [T],
    plus: impl Fn(&mut T, T),
) {
    if let Some(wanted) = wanted
        && wanted.count_set_bits() * FEW_WANTED < rows.len()
    {
        return rows.each_of(wanted, |row, group| plus(&mut sums[group], values[row]));
    }
    if let Some(runs) = rows.runs() {
        let mut start = 0;
        for run in runs {
            let mut sum = T::default();
            match wanted {
                None => values[start..run.end].iter().for_each(|x| plus(&mut sum, *x)),
                Some(wanted) => (start..run.end).for_each(|row| {
                    plus(&mut sum, if wanted.value(row) { values[row] } else { T::default() });
                }),
            }
            plus(&mut sums[run.group], sum);
            start = run.end;
        }
        return;
    }
    let groups = rows.groups();
    if sums.len() > FEW_SUMS {
        each(values, groups, wanted, |_, group, x| plus(&mut sums[group], x));
        return;
    }
    let mut copies = [T::default(); FEW_SUMS * COPIES];
    each(values, groups, wanted, |row, group, x| {
        plus(&mut copies[group * COPIES + row % COPIES], x);
    });
    for (sum, copies) in sums.iter_mut().zip(copies.chunks(COPIES)) {
        copies.iter().for_each(|copy| plus(sum, *copy));
    }
}

/// Are any so many of it, up to the rows of a batch, exactly what they are one by one?
fn is_small_whole(x: f64) -> bool {
    x.fract() == 0.0 && x.abs() < (1u64 << 20) as f64
}

/// Calls `add` with the group of each run and the rows of it that are wanted.
fn count_in_runs(wanted: &BooleanBuffer, runs: &[RowRun], mut add: impl FnMut(usize, usize)) {
    let words: Vec<u64> = wanted.bit_chunks().iter_padded().collect();
    let mut before = 0;
    // Of all words before each.
    let counts: Vec<usize> = words
        .iter()
        .map(|word| {
            let here = before;
            before += word.count_ones() as usize;
            here
        })
        .collect();
    let until = |row: usize| match words.get(row / 64) {
        Some(word) => counts[row / 64] + (word & ((1 << (row % 64)) - 1)).count_ones() as usize,
        None => before,
    };
    let mut last = 0;
    for run in runs {
        let now = until(run.end);
        add(run.group, now - last);
        last = now;
    }
}

/// Rows that are not NULL and whose condition holds, if not all.
fn wanted(argument: &ArrayRef, condition: Option<&BooleanArray>) -> Option<BooleanBuffer> {
    match (condition, argument.nulls()) {
        (None, None) => None,
        (Some(condition), None) => Some(condition.values().clone()),
        (None, Some(valid)) => Some(valid.inner().clone()),
        (Some(condition), Some(valid)) => Some(condition.values() & valid.inner()),
    }
}

/// Calls `add` with every row, its group and its value, or nothing where it is not wanted: adding
/// nothing is cheaper than a branch that is hard to foresee.
fn each<T: Copy + Default>(
    values: &[T],
    groups: &[usize],
    wanted: Option<&BooleanBuffer>,
    mut add: impl FnMut(usize, usize, T),
) {
    let Some(wanted) = wanted else {
        values.iter().zip(groups).enumerate().for_each(|(row, (x, group))| add(row, *group, *x));
        return;
    };
    let mut row = 0;
    let words = wanted.bit_chunks();
    for ((values, groups), word) in
        values.chunks(64).zip(groups.chunks(64)).zip(words.iter_padded())
    {
        for (bit, (x, group)) in values.iter().zip(groups).enumerate() {
            add(row, *group, if word >> bit & 1 == 1 { *x } else { T::default() });
            row += 1;
        }
    }
}
