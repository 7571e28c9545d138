//! Aggregates over bitmaps, and over whole numbers into bitmaps.

use std::mem::size_of;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, LargeBinaryArray, UInt64Array,
};
use arrow::compute::kernels::cmp::eq;
use arrow::datatypes::{DataType, Int64Type, UInt64Type};
use datafusion_common::{Result, ScalarValue, internal_datafusion_err};
use datafusion_expr::AggregateUDF;
use datafusion_expr::function::AccumulatorArgs;
use datafusion_expr::type_coercion::binary::comparison_coercion;
use datafusion_physical_expr::expressions::Literal;
use roaring::RoaringTreemap;

use super::{decode, encode};
use crate::error::refuse;
use crate::fold::{Fold, Function};

/// Values that `intersect_count` takes at most.
const VALUES_MAX: usize = 1000;
/// A container and its place in the list, beside its values.
const CONTAINER_BYTES: usize = 48;
/// Bytes that a new value may cost until somebody looks: a container of its own.
const VALUE_BYTES_AT_MOST: usize = CONTAINER_BYTES + 8;
/// Bitmaps of so many values are put in one by one.
const FEW_VALUES: u64 = 8;
/// Values between two looks, at least.
const LOOK_AFTER: u64 = 1024;

/// The functions, to be registered with a session.
pub(crate) fn functions() -> Vec<AggregateUDF> {
    Which::ALL.into_iter().map(Function::aggregate).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Which {
    Agg,
    Union,
    UnionCount,
    UnionInt,
    Intersect,
    IntersectCount,
}

impl Which {
    const ALL: [Self; 6] = [
        Self::Agg,
        Self::Union,
        Self::UnionCount,
        Self::UnionInt,
        Self::Intersect,
        Self::IntersectCount,
    ];

    /// Takes whole numbers, not bitmaps.
    fn is_of_numbers(self) -> bool {
        matches!(self, Self::Agg | Self::UnionInt)
    }

    fn is_a_count(self) -> bool {
        matches!(self, Self::UnionCount | Self::UnionInt | Self::IntersectCount)
    }
}

impl Function for Which {
    type Fold = Sets;

    fn name(&self) -> &'static str {
        match self {
            Self::Agg => "bitmap_agg",
            Self::Union => "bitmap_union",
            Self::UnionCount => "bitmap_union_count",
            Self::UnionInt => "bitmap_union_int",
            Self::Intersect => "bitmap_intersect",
            Self::IntersectCount => "intersect_count",
        }
    }

    fn coerce(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let name = self.name();
        match (self, given) {
            (Self::Agg | Self::UnionInt, [number]) if number.is_integer() || number.is_null() => {
                let unsigned = number.is_unsigned_integer();
                Ok(vec![if unsigned { DataType::UInt64 } else { DataType::Int64 }])
            }
            (Self::Agg | Self::UnionInt, _) => refuse!(Call, "{name} takes a whole number"),
            (Self::IntersectCount, [bitmap, of, values @ ..])
                if !values.is_empty() && is_bitmap(bitmap) =>
            {
                if values.len() > VALUES_MAX {
                    return refuse!(Call, "{name} takes at most {VALUES_MAX} values");
                }
                let of = match of {
                    DataType::Dictionary(_, of) => of.as_ref(),
                    of => of,
                };
                // As `=` would compare them: 1.5 is no whole number.
                let mut both = of.clone();
                for value in values {
                    both = match comparison_coercion(&both, value) {
                        Some(both) => both,
                        None => return refuse!(Call, "{name} cannot compare {of} with {value}"),
                    };
                }
                let mut types = vec![both; given.len()];
                types[0] = DataType::LargeBinary;
                Ok(types)
            }
            (Self::IntersectCount, _) => refuse!(Call, "{name} takes (bitmap, column, value, …)"),
            (_, [bitmap]) if is_bitmap(bitmap) => Ok(vec![DataType::LargeBinary]),
            _ => refuse!(Call, "{name} takes a bitmap, such as to_bitmap gives"),
        }
    }

    fn output(&self, _: &[DataType]) -> Result<DataType> {
        Ok(if self.is_a_count() { DataType::Int64 } else { DataType::LargeBinary })
    }

    fn of_nothing(&self) -> Option<ScalarValue> {
        if self.is_a_count() {
            return Some(ScalarValue::Int64(Some(0)));
        }
        let mut bytes = Vec::new();
        encode(&RoaringTreemap::new(), &mut bytes);
        Some(ScalarValue::LargeBinary(Some(bytes)))
    }

    fn fold(&self, args: &AccumulatorArgs) -> Result<Sets> {
        let mut values = Vec::new();
        if *self == Self::IntersectCount {
            for (i, expression) in args.exprs.iter().enumerate().skip(2) {
                match expression.downcast_ref::<Literal>() {
                    Some(literal) => values.push(literal.value().clone()),
                    None => {
                        return refuse!(
                            Value,
                            "argument {} of intersect_count must be a constant",
                            i + 1
                        );
                    }
                }
            }
        }
        Ok(Sets { which: *self, values })
    }
}

/// NULL stands for any type.
pub(super) fn is_bitmap(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::Null
    )
}

/// How sets are put together.
#[derive(Debug, Clone)]
pub(crate) struct Sets {
    which: Which,
    /// Of `intersect_count`.
    values: Vec<ScalarValue>,
}

/// The set of one group, and an upper bound of its bytes.
#[derive(Debug, Default)]
struct Held {
    map: RoaringTreemap,
    bytes: usize,
    /// Values when the bytes were looked at, and at most so many since.
    seen: u64,
    unseen: u64,
    last: Option<u64>,
}

impl Held {
    fn of(map: RoaringTreemap) -> Self {
        let mut held = Self { map, ..Self::default() };
        held.look();
        held
    }

    fn insert(&mut self, value: u64) {
        // Rows are mostly sorted by the id, so a value repeats itself.
        if self.last == Some(value) {
            return;
        }
        self.last = Some(value);
        if self.map.insert(value) {
            self.unseen += 1;
            self.bytes += VALUE_BYTES_AT_MOST;
            self.look_sometimes();
        }
    }

    fn look(&mut self) {
        self.bytes = bytes_of(&self.map);
        (self.seen, self.unseen) = (self.map.len(), 0);
    }

    /// Looking costs as much as there are containers, so it waits until many values are new.
    fn look_sometimes(&mut self) {
        if self.unseen >= LOOK_AFTER.max(self.seen / 4) {
            self.look();
        }
    }

    fn union(&mut self, other: RoaringTreemap) {
        let values = other.len();
        if values <= FEW_VALUES {
            return other.iter().for_each(|value| self.insert(value));
        }
        self.bytes += bytes_of(&other);
        self.unseen += values;
        self.map |= other;
        self.look_sometimes();
    }
}

fn bytes_of(map: &RoaringTreemap) -> usize {
    let containers = |part: &roaring::RoaringBitmap| part.statistics().n_containers as usize;
    let containers: usize = map.bitmaps().map(|(_, part)| containers(part)).sum();
    map.serialized_size() + containers * CONTAINER_BYTES
}

/// One set, or one per value of `intersect_count`. None: nothing seen yet.
#[derive(Debug, Default)]
pub(crate) struct State {
    first: Option<Held>,
    more: Vec<Option<Held>>,
}

impl State {
    fn slot(&mut self, i: usize) -> &mut Option<Held> {
        if i == 0 {
            return &mut self.first;
        }
        if self.more.len() < i {
            self.more.resize_with(i, || None);
        }
        &mut self.more[i - 1]
    }
}

/// What a row brings.
pub(crate) enum Columns {
    /// NULL where there was one below 0, and what there was if it is not to be left out.
    Numbers(UInt64Array, Option<Int64Array>),
    Bitmaps(ArrayRef),
    /// And per value of `intersect_count`, the rows that have it.
    BitmapsOf(ArrayRef, Vec<BooleanArray>),
}

impl Fold for Sets {
    type State = State;
    type Columns = Columns;

    fn columns(&self, values: &[ArrayRef]) -> Result<Columns> {
        if self.which.is_of_numbers() {
            let signed = values[0].as_primitive_opt::<Int64Type>();
            let refused = signed.filter(|_| self.which == Which::UnionInt).cloned();
            // Numbers below 0 become NULL, as to_bitmap has them.
            let numbers = arrow::compute::cast(&values[0], &DataType::UInt64)?;
            return Ok(Columns::Numbers(numbers.as_primitive::<UInt64Type>().clone(), refused));
        }
        let bitmaps = Arc::clone(&values[0]);
        if self.which != Which::IntersectCount {
            return Ok(Columns::Bitmaps(bitmaps));
        }
        let has = |value: &ScalarValue| Ok(eq(&values[1], &value.to_scalar()?)?);
        let has = self.values.iter().map(has).collect::<Result<Vec<_>>>()?;
        Ok(Columns::BitmapsOf(bitmaps, has))
    }

    fn add(&self, state: &mut State, columns: &Columns, row: usize) -> Result<()> {
        match columns {
            Columns::Numbers(numbers, refused) => {
                if numbers.is_valid(row) {
                    state.first.get_or_insert_default().insert(numbers.value(row));
                } else if let Some(given) = refused.as_ref().filter(|given| given.is_valid(row)) {
                    let low = given.value(row);
                    return refuse!(
                        OutOfRange,
                        "bitmap_union_int counts numbers from 0, and there is {low}"
                    );
                }
            }
            Columns::Bitmaps(bitmaps) => {
                if bitmaps.is_valid(row) {
                    self.put(state.slot(0), decode(bitmaps.as_binary::<i64>().value(row))?);
                }
            }
            Columns::BitmapsOf(bitmaps, has) => {
                for (i, has) in has.iter().enumerate() {
                    if bitmaps.is_valid(row) && has.is_valid(row) && has.value(row) {
                        self.put(state.slot(i), decode(bitmaps.as_binary::<i64>().value(row))?);
                    }
                }
            }
        }
        Ok(())
    }

    /// Per set its number, its length and its bytes.
    fn save(&self, state: &State, bytes: &mut Vec<u8>) {
        for (i, held) in std::iter::once(&state.first).chain(&state.more).enumerate() {
            let Some(held) = held else { continue };
            bytes.extend((i as u64).to_le_bytes());
            bytes.extend((held.map.serialized_size() as u64).to_le_bytes());
            encode(&held.map, bytes);
        }
    }

    fn merge(&self, state: &mut State, mut bytes: &[u8]) -> Result<()> {
        let cut_off = || internal_datafusion_err!("a partial state of a bitmap is cut off");
        while !bytes.is_empty() {
            let (i, rest) = bytes.split_first_chunk::<8>().ok_or_else(cut_off)?;
            let (length, rest) = rest.split_first_chunk::<8>().ok_or_else(cut_off)?;
            let length = u64::from_le_bytes(*length) as usize;
            let (map, rest) = rest.split_at_checked(length).ok_or_else(cut_off)?;
            let i = u64::from_le_bytes(*i) as usize;
            if i >= self.values.len().max(1) {
                return Err(cut_off());
            }
            self.put(state.slot(i), decode(map)?);
            bytes = rest;
        }
        Ok(())
    }

    fn finish(&self, states: Vec<State>) -> Result<ArrayRef> {
        if self.which == Which::IntersectCount {
            return Ok(Arc::new(Int64Array::from_iter_values(
                states.into_iter().map(|state| self.common(state)),
            )));
        }
        let maps = states.into_iter().map(|state| state.first.unwrap_or_default().map);
        if self.which.is_a_count() {
            return Ok(Arc::new(Int64Array::from_iter_values(maps.map(|map| map.len() as i64))));
        }
        let bitmaps = maps.map(|mut map| {
            map.optimize();
            let mut bytes = Vec::new();
            encode(&map, &mut bytes);
            bytes
        });
        Ok(Arc::new(LargeBinaryArray::from_iter_values(bitmaps)))
    }

    fn heap_bytes(state: &State) -> usize {
        let of = |held: &Option<Held>| held.as_ref().map_or(0, |held| held.bytes);
        let more: usize = state.more.iter().map(of).sum();
        of(&state.first) + more + state.more.capacity() * size_of::<Option<Held>>()
    }
}

impl Sets {
    fn put(&self, slot: &mut Option<Held>, map: RoaringTreemap) {
        match slot {
            None => *slot = Some(Held::of(map)),
            Some(held) if self.which == Which::Intersect => {
                held.map &= map;
                held.look();
            }
            Some(held) => held.union(map),
        }
    }

    /// Numbers that the sets of all values have.
    fn common(&self, mut state: State) -> i64 {
        let mut common: Option<RoaringTreemap> = None;
        for i in 0..self.values.len() {
            let Some(held) = state.slot(i).take() else { return 0 };
            common = Some(match common {
                None => held.map,
                Some(common) => common & held.map,
            });
        }
        common.map_or(0, |common| common.len() as i64)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use arrow::array::StringArray;

    use super::super::tests::random_set;
    use super::*;
    use crate::fold::answers_of_split;
    use crate::random::Random;

    fn bitmap(set: &BTreeSet<u64>) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(&set.iter().copied().collect(), &mut bytes);
        bytes
    }

    #[test]
    fn every_split_gives_the_sets_of_a_plain_model() {
        for seed in 0..150 {
            let mut random = Random::new(seed);
            let (rows, groups) = (random.below(12) as usize, 1 + random.below(3) as usize);
            let group_of: Vec<usize> =
                (0..rows).map(|_| random.below(groups as u64) as usize).collect();
            let sets: Vec<Option<BTreeSet<u64>>> =
                (0..rows).map(|_| (random.below(6) > 0).then(|| random_set(&mut random))).collect();
            let days: Vec<Option<&str>> = (0..rows)
                .map(|_| [Some("a"), Some("b"), Some("c"), None][random.below(4) as usize])
                .collect();
            let bitmaps: ArrayRef = Arc::new(LargeBinaryArray::from_iter(
                sets.iter().map(|set| set.as_ref().map(bitmap)),
            ));
            let dim: ArrayRef = Arc::new(StringArray::from(days.clone()));
            let value = |text: &str| ScalarValue::Utf8(Some(text.into()));
            let values = vec![value("a"), value("c")];
            for which in [Which::Union, Which::UnionCount, Which::Intersect, Which::IntersectCount]
            {
                let values = if which == Which::IntersectCount { values.clone() } else { vec![] };
                let fold = Sets { which, values };
                let columns = [Arc::clone(&bitmaps), Arc::clone(&dim)];
                let found = answers_of_split(&fold, &columns, &group_of, groups, &mut random);
                for group in 0..groups {
                    let own = |day: Option<&str>| {
                        let rows = (0..rows).filter(|row| group_of[*row] == group);
                        let rows: Vec<usize> =
                            rows.filter(|row| day.is_none() || days[*row] == day).collect();
                        rows.into_iter().filter_map(|row| sets[row].clone()).collect::<Vec<_>>()
                    };
                    let union = |sets: Vec<BTreeSet<u64>>| {
                        sets.into_iter().flatten().collect::<BTreeSet<u64>>()
                    };
                    let what = format!("seed {seed}, {which:?}, group {group}");
                    let expected = match which {
                        Which::Intersect => {
                            own(None).into_iter().reduce(|a, b| &a & &b).unwrap_or_default()
                        }
                        Which::IntersectCount => &union(own(Some("a"))) & &union(own(Some("c"))),
                        _ => union(own(None)),
                    };
                    if which.is_a_count() {
                        let found =
                            found.as_primitive::<arrow::datatypes::Int64Type>().value(group);
                        assert_eq!(found, expected.len() as i64, "{what}");
                    } else {
                        let found = decode(found.as_binary::<i64>().value(group)).unwrap();
                        assert!(found.iter().eq(expected), "{what}");
                    }
                }
            }
        }
    }

    #[test]
    fn numbers_below_zero_and_nulls_are_left_out_and_bytes_are_counted() {
        let fold = Sets { which: Which::Agg, values: vec![] };
        let numbers: ArrayRef =
            Arc::new(Int64Array::from(vec![Some(7), Some(-1), None, Some(7), Some(9)]));
        let columns = fold.columns(&[numbers]).unwrap();
        let mut state = State::default();
        (0..5).for_each(|row| fold.add(&mut state, &columns, row).unwrap());
        assert_eq!(state.first.unwrap().map.iter().collect::<Vec<_>>(), [7, 9]);

        let mut held = Held::default();
        (0..1_000_000u64).for_each(|i| held.insert(i * 70_000));
        let (counted, stored) = (held.bytes, held.map.serialized_size());
        assert!(
            counted > stored && counted < 20 * stored,
            "{counted} bytes counted, {stored} stored"
        );
        let union_int = Sets { which: Which::UnionInt, values: vec![] };
        let below: ArrayRef = Arc::new(Int64Array::from(vec![Some(3), Some(-4), None]));
        let columns = union_int.columns(&[below]).unwrap();
        let add = |row| union_int.add(&mut State::default(), &columns, row);
        assert!(add(0).is_ok() && add(2).is_ok());
        assert!(add(1).unwrap_err().to_string().contains("there is -4"));
    }
}
