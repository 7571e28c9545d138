//! `count(DISTINCT x)` of groups: the values of all groups in one table.
//!
//! DataFusion has that for whole numbers alone. For anything else each group has a set of its own,
//! and a set of texts takes 20 KB before it has one: for 155,000 users 3 GB are cleared, and once
//! more when they are merged. Here values are numbered, each once, as GROUP BY tells them apart,
//! and one set holds the pairs of a group and a number.
//!
//! # Invariants
//! - NULL is no value, and has no pair.
//! - `counts` has the pairs of each group that has not been handed out.
//! - States are DataFusion's: a list of the group's values, in no order.
//!
//! # Not here
//! Lists, structs, maps and all without DISTINCT or without GROUP BY are DataFusion's own.

use std::mem::{replace, size_of, take};
use std::slice::from_ref;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, ListArray, UInt32Array, new_empty_array,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::{HashSet, Result, resources_err};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator};
use datafusion::physical_plan::aggregates::group_values::{GroupValues, new_group_values};
use datafusion::physical_plan::aggregates::order::GroupOrdering;

use super::as_before::aggregate_as_before;

/// Pairs of groups that are gone, beside as many others, before the set is made anew.
const GONE_MAX: usize = 8192;

/// DataFusion's `count`, whose groups share one table.
pub(super) fn in_one_table(function: Arc<AggregateUDF>) -> AggregateUDF {
    AggregateUDF::from(InOneTable { function })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct InOneTable {
    function: Arc<AggregateUDF>,
}

impl AggregateUDFImpl for InOneTable {
    aggregate_as_before!(
        accumulator,
        state_fields,
        create_sliding_accumulator,
        order_sensitivity,
        is_identical_reversed,
        default_value,
        value_from_stats
    );

    fn is_nullable(&self) -> bool {
        self.function.is_nullable()
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        values_type(&args).is_some() || self.function.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        match values_type(&args) {
            Some(data_type) => Ok(Box::new(Groups::new(data_type)?)),
            None => self.function.create_groups_accumulator(args),
        }
    }
}

/// The type of the values that [`Groups`] count, `None` where DataFusion does.
fn values_type(args: &AccumulatorArgs) -> Option<DataType> {
    let [field] = args.expr_fields else { return None };
    if !args.is_distinct || field.data_type().is_integer() {
        return None;
    }
    let data_type = match field.data_type() {
        DataType::Dictionary(_, values) => values.as_ref(),
        data_type => data_type,
    };
    let has_numbers = data_type.is_primitive()
        || matches!(
            data_type,
            DataType::Boolean
                | DataType::Utf8
                | DataType::LargeUtf8
                | DataType::Utf8View
                | DataType::Binary
                | DataType::LargeBinary
                | DataType::BinaryView
        );
    has_numbers.then(|| data_type.clone())
}

struct Groups {
    data_type: DataType,
    /// Numbers values from 0 on.
    values: Box<dyn GroupValues>,
    /// See [`pair`]; groups count from the first that has ever been here.
    pairs: HashSet<u64>,
    /// Of each group from `gone` on.
    counts: Vec<i64>,
    /// Groups that have been handed out and may have pairs still.
    gone: usize,
    /// Pairs of those.
    gone_pairs: usize,
    /// Of the rows that are looked at; kept for its memory alone.
    numbers: Vec<usize>,
}

/// A group and the number of a value; both are below 2³².
fn pair(group: usize, number: usize) -> u64 {
    (group as u64) << 32 | number as u64
}

fn parts(pair: u64) -> (usize, u32) {
    ((pair >> 32) as usize, pair as u32)
}

fn no_values(data_type: &DataType) -> Result<Box<dyn GroupValues>> {
    let schema = Schema::new(vec![Field::new("value", data_type.clone(), true)]);
    new_group_values(Arc::new(schema), &GroupOrdering::None)
}

/// Rows that have a value and pass the FILTER; `None` if all do.
fn counted(values: &ArrayRef, filter: Option<&BooleanArray>) -> Option<BooleanArray> {
    let passed = filter.map(|filter| match filter.nulls() {
        Some(known) => filter.values() & known.inner(),
        None => filter.values().clone(),
    });
    let known = values.nulls().filter(|known| known.null_count() > 0);
    let known = known.map(|known| known.inner().clone());
    let rows = match (passed, known) {
        (Some(passed), Some(known)) => &passed & &known,
        (passed, known) => passed.or(known)?,
    };
    Some(BooleanArray::new(rows, None))
}

impl Groups {
    fn new(data_type: DataType) -> Result<Self> {
        Ok(Self {
            values: no_values(&data_type)?,
            data_type,
            pairs: HashSet::default(),
            counts: Vec::new(),
            gone: 0,
            gone_pairs: 0,
            numbers: Vec::new(),
        })
    }

    /// Not in a dictionary.
    fn plain(&self, column: &ArrayRef) -> Result<ArrayRef> {
        if column.data_type() == &self.data_type {
            return Ok(Arc::clone(column));
        }
        Ok(compute::cast(column, &self.data_type)?)
    }

    /// Makes room for groups 0 to `count`.
    fn grow(&mut self, count: usize) -> Result<()> {
        if u32::try_from(self.gone + count).is_err() {
            return resources_err!("count(DISTINCT) has more than 4,294,967,295 groups");
        }
        self.counts.resize(count, 0);
        Ok(())
    }

    fn add(
        &mut self,
        values: &ArrayRef,
        groups: &[usize],
        filter: Option<&BooleanArray>,
    ) -> Result<()> {
        match counted(values, filter) {
            None => self.add_all(values, groups.iter().copied()),
            Some(rows) => {
                let values = compute::filter(values, &rows)?;
                self.add_all(&values, rows.values().set_indices().map(|row| groups[row]))
            }
        }
    }

    /// Adds values, none of which is NULL.
    fn add_all(&mut self, values: &ArrayRef, groups: impl Iterator<Item = usize>) -> Result<()> {
        self.values.intern(from_ref(values), &mut self.numbers)?;
        if u32::try_from(self.values.len()).is_err() {
            return resources_err!("count(DISTINCT) has more than 4,294,967,295 values");
        }
        for (group, number) in groups.zip(&self.numbers) {
            if self.pairs.insert(pair(self.gone + group, *number)) {
                self.counts[group] += 1;
            }
        }
        Ok(())
    }

    /// Values by their numbers, which they lose.
    fn take_values(&mut self) -> Result<ArrayRef> {
        if self.values.is_empty() {
            return Ok(new_empty_array(&self.data_type));
        }
        let mut values = replace(&mut self.values, no_values(&self.data_type)?);
        Ok(values.emit(EmitTo::All)?.swap_remove(0))
    }

    /// Forgets groups that are gone, and numbers the values of the others anew.
    /// `values`: by the numbers they had.
    fn renumber(&mut self, values: &ArrayRef) -> Result<()> {
        let gone = take(&mut self.gone);
        self.gone_pairs = 0;
        let pairs = take(&mut self.pairs).into_iter().map(parts);
        let kept = pairs.filter_map(|(group, number)| Some((group.checked_sub(gone)?, number)));
        let (groups, numbers): (Vec<usize>, Vec<u32>) = kept.unzip();
        let values = compute::take(values, &UInt32Array::from(numbers), None)?;
        self.values.intern(from_ref(&values), &mut self.numbers)?;
        let pairs = groups.iter().zip(&self.numbers);
        self.pairs = pairs.map(|(group, number)| pair(*group, *number)).collect();
        Ok(())
    }

    fn lists(&self, offsets: OffsetBuffer<i32>, values: ArrayRef) -> Result<Vec<ArrayRef>> {
        let field = Arc::new(Field::new_list_field(self.data_type.clone(), true));
        Ok(vec![Arc::new(ListArray::try_new(field, offsets, values, None)?)])
    }
}

impl GroupsAccumulator for Groups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.grow(count)?;
        let values = self.plain(&values[0])?;
        self.add(&values, groups, filter)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        self.grow(count)?;
        let lists = states[0].as_list::<i32>();
        let offsets = lists.offsets();
        let lengths = offsets.lengths().zip(groups);
        let groups: Vec<usize> =
            lengths.flat_map(|(length, group)| std::iter::repeat_n(*group, length)).collect();
        let values = lists.values().slice(offsets[0] as usize, groups.len());
        let values = self.plain(&values)?;
        self.add(&values, &groups, None)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let counts = emit_to.take_needed(&mut self.counts);
        match emit_to {
            EmitTo::All => *self = Self::new(self.data_type.clone())?,
            EmitTo::First(groups) => {
                self.gone += groups;
                self.gone_pairs += counts.iter().sum::<i64>() as usize;
                if self.gone_pairs > self.pairs.len() / 2 + GONE_MAX {
                    let values = self.take_values()?;
                    self.renumber(&values)?;
                }
            }
        }
        Ok(Arc::new(Int64Array::from(counts)))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let counts = emit_to.take_needed(&mut self.counts);
        let mut places = Vec::with_capacity(counts.len());
        let mut count: usize = 0;
        for more in &counts {
            places.push(count);
            count += *more as usize;
        }
        if i32::try_from(count).is_err() {
            return resources_err!("count(DISTINCT) has more than 2,147,483,647 values at once");
        }
        let mut numbers = vec![0; count];
        for (group, number) in self.pairs.iter().map(|pair| parts(*pair)) {
            let group = group.checked_sub(self.gone);
            if let Some(place) = group.and_then(|group| places.get_mut(group)) {
                numbers[*place] = number;
                *place += 1;
            }
        }
        let all = self.take_values()?;
        let values = compute::take(&all, &UInt32Array::from(numbers), None)?;
        match emit_to {
            EmitTo::All => *self = Self::new(self.data_type.clone())?,
            EmitTo::First(groups) => {
                self.gone += groups;
                self.renumber(&all)?;
            }
        }
        let lengths = counts.iter().map(|count| *count as usize);
        self.lists(OffsetBuffer::from_lengths(lengths), values)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let values = self.plain(&values[0])?;
        match counted(&values, filter) {
            None => self.lists(OffsetBuffer::from_repeated_length(1, values.len()), values),
            Some(rows) => {
                let lengths = rows.values().iter().map(usize::from);
                let offsets = OffsetBuffer::from_lengths(lengths);
                self.lists(offsets, compute::filter(&values, &rows)?)
            }
        }
    }

    fn size(&self) -> usize {
        // A byte beside each pair says whether its place is taken.
        self.values.size()
            + self.pairs.capacity() * (size_of::<u64>() + 1)
            + self.counts.capacity() * size_of::<i64>()
            + self.numbers.capacity() * size_of::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use datafusion::arrow::array::{Float64Array, StringArray, UInt64Array};
    use datafusion::arrow::datatypes::Int64Type;

    use super::*;

    const GROUPS: usize = 23;

    /// Knuth's generator of MMIX, its upper half.
    fn random(seed: &mut u64, below: u64) -> u64 {
        *seed =
            seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) % below
    }

    /// Some rows: what is counted, of which group, and whether it is wanted.
    struct KeptRows {
        numbers: Vec<Option<u64>>,
        groups: Vec<usize>,
        wanted: BooleanArray,
    }

    impl KeptRows {
        fn new(seed: &mut u64, count: usize) -> Self {
            let number = |seed: &mut u64| (random(seed, 9) > 0).then(|| random(seed, 40) % 31);
            let wanted = |seed: &mut u64| match random(seed, 8) {
                0 => None,
                other => Some(other > 1),
            };
            Self {
                numbers: (0..count).map(|_| number(seed)).collect(),
                groups: (0..count).map(|_| random(seed, GROUPS as u64) as usize).collect(),
                wanted: (0..count).map(|_| wanted(seed)).collect(),
            }
        }

        fn values(&self, data_type: &DataType) -> ArrayRef {
            if data_type == &DataType::Boolean {
                let odd = self.numbers.iter().map(|number| number.map(|n| n % 2 == 1));
                return Arc::new(odd.collect::<BooleanArray>());
            }
            if data_type.is_primitive() {
                let numbers: UInt64Array = self.numbers.iter().copied().collect();
                let numbers = compute::cast(&numbers, &DataType::Int32).unwrap();
                return compute::cast(&numbers, data_type).unwrap();
            }
            let text = |number: &Option<u64>| number.map(|n| format!("{n}").repeat(n as usize));
            let texts: StringArray = self.numbers.iter().map(text).collect();
            compute::cast(&texts, data_type).unwrap()
        }

        fn add_to(&self, sets: &mut [BTreeSet<u64>], data_type: &DataType) {
            for (row, group) in self.groups.iter().enumerate() {
                if let Some(number) = self.numbers[row]
                    && self.wanted.is_valid(row)
                    && self.wanted.value(row)
                {
                    let is_boolean = data_type == &DataType::Boolean;
                    sets[*group].insert(if is_boolean { number % 2 } else { number });
                }
            }
        }
    }

    fn check(given: &DataType, counted: &DataType) {
        let mut seed = 20_261_124;
        let seed = &mut seed;
        for _ in 0..40 {
            let mut sets = vec![BTreeSet::new(); GROUPS];
            let mut last = Groups::new(counted.clone()).unwrap();
            for _ in 0..random(seed, 5) {
                let count = random(seed, 300) as usize;
                let rows = KeptRows::new(seed, count);
                rows.add_to(&mut sets, counted);
                let (values, wanted) = ([rows.values(given)], Some(&rows.wanted));
                match random(seed, 3) {
                    0 => last.update_batch(&values, &rows.groups, wanted, GROUPS).unwrap(),
                    1 => {
                        let state = last.convert_to_state(&values, wanted).unwrap();
                        last.merge_batch(&state, &rows.groups, GROUPS).unwrap();
                    }
                    _ => {
                        let mut part = Groups::new(counted.clone()).unwrap();
                        part.update_batch(&values, &rows.groups, wanted, GROUPS).unwrap();
                        let first = random(seed, GROUPS as u64) as usize;
                        let state = part.state(EmitTo::First(first)).unwrap();
                        let groups: Vec<usize> = (0..GROUPS).collect();
                        last.merge_batch(&state, &groups[..first], GROUPS).unwrap();
                        // Once more: what is in a set already changes nothing.
                        let left = GROUPS - first;
                        let shifted: Vec<usize> =
                            rows.groups.iter().map(|g| g.saturating_sub(first)).collect();
                        let later: BooleanArray = rows
                            .groups
                            .iter()
                            .zip(&rows.wanted)
                            .map(|(group, wanted)| Some(*group >= first && wanted == Some(true)))
                            .collect();
                        part.update_batch(&values, &shifted, Some(&later), left).unwrap();
                        let state = part.state(EmitTo::All).unwrap();
                        last.merge_batch(&state, &groups[first..], GROUPS).unwrap();
                    }
                }
            }
            last.grow(GROUPS).unwrap();
            let first = random(seed, GROUPS as u64) as usize;
            let mut found = Vec::new();
            for emit_to in [EmitTo::First(first), EmitTo::All] {
                let counts = last.evaluate(emit_to).unwrap();
                found.extend_from_slice(counts.as_primitive::<Int64Type>().values());
            }
            let expected: Vec<i64> = sets.iter().map(|set| set.len() as i64).collect();
            assert_eq!(found, expected, "{given}");
        }
    }

    #[test]
    fn counts_are_those_of_sets_however_rows_are_split() {
        let types = [
            DataType::Utf8,
            DataType::LargeUtf8,
            DataType::Utf8View,
            DataType::Binary,
            DataType::BinaryView,
            DataType::Boolean,
            DataType::Float64,
            DataType::Float32,
            DataType::Date32,
            DataType::Decimal128(20, 3),
        ];
        for data_type in types {
            check(&data_type, &data_type);
        }
        let dictionary = DataType::Dictionary(Box::new(DataType::Int16), Box::new(DataType::Utf8));
        check(&dictionary, &DataType::Utf8);
    }

    #[test]
    fn groups_that_are_gone_are_forgotten_in_time() {
        let mut groups = Groups::new(DataType::Utf8View).unwrap();
        for batch in 0..200 {
            let texts = (0..1000).map(|row| Some(format!("text {batch} of the row {row}")));
            let texts: ArrayRef = Arc::new(texts.collect::<StringArray>());
            // The last group of a batch is the first of the next.
            let of_rows: Vec<usize> = (0..1000).map(|row| usize::from(row >= 500)).collect();
            groups.update_batch(&[texts], &of_rows, None, 2).unwrap();
            let counts = groups.evaluate(EmitTo::First(1)).unwrap();
            let expected = if batch == 0 { 500 } else { 1000 };
            assert_eq!(counts.as_primitive::<Int64Type>().values(), &[expected]);
            let (pairs, values) = (groups.pairs.len(), groups.values.len());
            assert!(pairs <= 3 * GONE_MAX && values <= 3 * GONE_MAX, "{pairs} {values}");
        }
    }

    #[test]
    fn zeros_are_one_value() {
        let mut groups = Groups::new(DataType::Float64).unwrap();
        let values = vec![0.0, -0.0, f64::NAN, f64::NAN, 1.0];
        let values: ArrayRef = Arc::new(Float64Array::from(values));
        groups.update_batch(&[values], &[0; 5], None, 1).unwrap();
        let counts = groups.evaluate(EmitTo::All).unwrap();
        assert_eq!(counts.as_primitive::<Int64Type>().values(), &[3]);
    }
}
