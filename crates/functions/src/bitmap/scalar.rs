//! Functions of a row over bitmaps.
//!
//! # Invariants
//! - NULL in, NULL out, but for `bitmap_or`, which leaves NULLs out, and for counts, which are 0
//!   for NULL.
//! - What Doris calls invalid (a number below 0, a range that ends before it begins) gives NULL.
//! - An argument that is the same for all rows is decoded once.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, Int64Builder, LargeBinaryArray,
    LargeBinaryBuilder, ListBuilder, StringArray,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int64Type, UInt64Type};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use roaring::RoaringTreemap;

use super::aggregate::is_bitmap;
use super::{decode, encode};
use crate::error::refuse;

/// The functions, to be registered with a session.
pub(crate) fn functions() -> Vec<ScalarUDF> {
    let function = |(name, what): &(&'static str, What)| {
        let signature = Signature::user_defined(Volatility::Immutable);
        ScalarUDF::from(BitmapFunction { name, what: *what, signature })
    };
    FUNCTIONS.iter().map(function).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum What {
    Empty,
    OfNumber,
    OfArray,
    OfString,
    ToString,
    ToArray,
    Count,
    Min,
    Max,
    Contains,
    HasAny,
    HasAll,
    Combine(Combination),
    CountOf(Combination),
    SubsetInRange,
    SubsetLimit,
    SubBitmap,
}

/// Of two bitmaps or more; of exactly two for `Minus`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Combination {
    And,
    Or,
    Xor,
    Minus,
}

const FUNCTIONS: [(&str, What); 27] = [
    ("bitmap_empty", What::Empty),
    ("to_bitmap", What::OfNumber),
    ("bitmap_from_array", What::OfArray),
    ("bitmap_from_string", What::OfString),
    ("bitmap_to_string", What::ToString),
    ("bitmap_to_array", What::ToArray),
    ("bitmap_count", What::Count),
    ("bitmap_min", What::Min),
    ("bitmap_max", What::Max),
    ("bitmap_contains", What::Contains),
    ("bitmap_has_any", What::HasAny),
    ("bitmap_has_all", What::HasAll),
    ("bitmap_and", What::Combine(Combination::And)),
    ("bitmap_or", What::Combine(Combination::Or)),
    ("bitmap_xor", What::Combine(Combination::Xor)),
    ("bitmap_not", What::Combine(Combination::Minus)),
    ("bitmap_and_not", What::Combine(Combination::Minus)),
    ("bitmap_andnot", What::Combine(Combination::Minus)),
    ("bitmap_and_count", What::CountOf(Combination::And)),
    ("bitmap_or_count", What::CountOf(Combination::Or)),
    ("bitmap_xor_count", What::CountOf(Combination::Xor)),
    ("bitmap_not_count", What::CountOf(Combination::Minus)),
    ("bitmap_and_not_count", What::CountOf(Combination::Minus)),
    ("bitmap_andnot_count", What::CountOf(Combination::Minus)),
    ("bitmap_subset_in_range", What::SubsetInRange),
    ("bitmap_subset_limit", What::SubsetLimit),
    ("sub_bitmap", What::SubBitmap),
];

#[derive(Debug, PartialEq, Eq, Hash)]
struct BitmapFunction {
    name: &'static str,
    what: What,
    signature: Signature,
}

impl ScalarUDFImpl for BitmapFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let name = self.name;
        let whole = |given: &DataType| given.is_integer() || given.is_null();
        let bitmap = DataType::LargeBinary;
        let fits = match (self.what, given) {
            (What::Empty, []) => Some(vec![]),
            (What::OfNumber, [number]) if whole(number) => Some(vec![unsigned_or_signed(number)]),
            (What::OfArray, [list]) => match list {
                DataType::List(of)
                | DataType::LargeList(of)
                | DataType::FixedSizeList(of, _)
                | DataType::ListView(of)
                    if whole(of.data_type()) =>
                {
                    Some(vec![list_of(unsigned_or_signed(of.data_type()))])
                }
                DataType::Null => Some(vec![list_of(DataType::Int64)]),
                _ => None,
            },
            (What::OfString, [text]) if text.is_string() || text.is_null() => {
                Some(vec![DataType::Utf8])
            }
            (What::ToString | What::ToArray | What::Count | What::Min | What::Max, [one])
                if is_bitmap(one) =>
            {
                Some(vec![bitmap])
            }
            (What::Contains, [one, number]) if is_bitmap(one) && whole(number) => {
                Some(vec![bitmap, unsigned_or_signed(number)])
            }
            (What::HasAny | What::HasAll, [one, other]) if is_bitmap(one) && is_bitmap(other) => {
                Some(vec![bitmap.clone(), bitmap])
            }
            (What::Combine(how) | What::CountOf(how), bitmaps)
                if bitmaps.iter().all(is_bitmap)
                    && bitmaps.len() >= 2
                    && (how != Combination::Minus || bitmaps.len() == 2) =>
            {
                Some(vec![bitmap; bitmaps.len()])
            }
            (What::SubsetInRange | What::SubsetLimit | What::SubBitmap, [one, from, to])
                if is_bitmap(one) && whole(from) && whole(to) =>
            {
                Some(vec![bitmap, DataType::Int64, DataType::Int64])
            }
            _ => None,
        };
        match fits {
            Some(types) => Ok(types),
            None => refuse!(Call, "{name} takes {}", self.takes()),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.what {
            What::ToString => DataType::Utf8,
            What::ToArray => list_of(DataType::Int64),
            What::Count | What::CountOf(_) | What::Min | What::Max => DataType::Int64,
            What::Contains | What::HasAny | What::HasAll => DataType::Boolean,
            _ => DataType::LargeBinary,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let answers = self.answers(&args.args, rows)?;
        Ok(if constant {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&answers, 0)?)
        } else {
            ColumnarValue::Array(answers)
        })
    }
}

fn list_of(of: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(of, true)))
}

fn unsigned_or_signed(number: &DataType) -> DataType {
    if number.is_unsigned_integer() { DataType::UInt64 } else { DataType::Int64 }
}

impl BitmapFunction {
    fn takes(&self) -> &'static str {
        match self.what {
            What::Empty => "no argument",
            What::OfNumber => "a whole number",
            What::OfArray => "an array of whole numbers",
            What::OfString => "a text such as '1,2,3'",
            What::ToString | What::ToArray | What::Count | What::Min | What::Max => "a bitmap",
            What::Contains => "a bitmap and a whole number",
            What::HasAny | What::HasAll => "two bitmaps",
            What::Combine(Combination::Minus) | What::CountOf(Combination::Minus) => "two bitmaps",
            What::Combine(_) | What::CountOf(_) => "two bitmaps or more",
            What::SubsetInRange => "a bitmap, the first number and the number after the last",
            What::SubsetLimit => "a bitmap, the first number and how many at most",
            What::SubBitmap => "a bitmap, a position from 0 and how many at most",
        }
    }

    fn answers(&self, args: &[ColumnarValue], rows: usize) -> Result<ArrayRef> {
        match self.what {
            What::Empty => bitmaps(rows, |_| Ok(Some(Cow::Owned(RoaringTreemap::new())))),
            What::OfNumber => {
                let numbers = Numbers::of(&args[0], rows)?;
                bitmaps(rows, |row| {
                    Ok(numbers.get(row).map(|number| Cow::Owned([number].into_iter().collect())))
                })
            }
            What::OfArray => of_arrays(&args[0].to_array(rows)?, rows),
            What::OfString => {
                let texts = args[0].to_array(rows)?;
                let texts = texts.as_string::<i32>();
                bitmaps(rows, |row| {
                    Ok(texts
                        .is_valid(row)
                        .then(|| of_text(texts.value(row)))
                        .flatten()
                        .map(Cow::Owned))
                })
            }
            _ => self.of_bitmaps(args, rows),
        }
    }

    fn of_bitmaps(&self, args: &[ColumnarValue], rows: usize) -> Result<ArrayRef> {
        let one = Bitmaps::of(&args[0])?;
        match self.what {
            What::ToString => Ok(Arc::new(collect::<_, StringArray>(rows, |row| {
                Ok(one.get(row)?.map(|map| text_of(&map)))
            })?)),
            What::ToArray => to_arrays(&one, rows),
            What::Count => Ok(Arc::new(collect::<_, Int64Array>(rows, |row| {
                Ok(Some(one.get(row)?.map_or(0, |map| map.len() as i64)))
            })?)),
            What::Min | What::Max => Ok(Arc::new(collect::<_, Int64Array>(rows, |row| {
                let Some(map) = one.get(row)? else { return Ok(None) };
                let end = if self.what == What::Min { map.min() } else { map.max() };
                end.map(bigint).transpose()
            })?)),
            What::Contains => {
                let numbers = Numbers::of(&args[1], rows)?;
                Ok(Arc::new(collect::<_, BooleanArray>(rows, |row| {
                    let Some(map) = one.get(row)? else { return Ok(None) };
                    // A number below 0 is in no bitmap; only NULL gives NULL.
                    let held = numbers.get(row).map(|number| map.contains(number));
                    Ok(if numbers.is_null(row) { None } else { Some(held.unwrap_or(false)) })
                })?))
            }
            What::HasAny | What::HasAll => {
                let other = Bitmaps::of(&args[1])?;
                Ok(Arc::new(collect::<_, BooleanArray>(rows, |row| {
                    let (Some(a), Some(b)) = (one.get(row)?, other.get(row)?) else {
                        return Ok(None);
                    };
                    let all = self.what == What::HasAll;
                    Ok(Some(if all { a.is_superset(&b) } else { !a.is_disjoint(&b) }))
                })?))
            }
            What::Combine(how) => {
                let others = args.iter().map(Bitmaps::of).collect::<Result<Vec<_>>>()?;
                bitmaps(rows, |row| Ok(combined(how, &others, row)?.map(Cow::Owned)))
            }
            What::CountOf(how) => {
                let others = args.iter().map(Bitmaps::of).collect::<Result<Vec<_>>>()?;
                Ok(Arc::new(collect::<_, Int64Array>(rows, |row| {
                    count_of(how, &others, row).map(Some)
                })?))
            }
            _ => self.subset(&one, args, rows),
        }
    }

    fn subset(&self, one: &Bitmaps, args: &[ColumnarValue], rows: usize) -> Result<ArrayRef> {
        let (from, to) = (args[1].to_array(rows)?, args[2].to_array(rows)?);
        let (from, to) = (from.as_primitive::<Int64Type>(), to.as_primitive::<Int64Type>());
        bitmaps(rows, |row| {
            let Some(map) = one.get(row)? else { return Ok(None) };
            if from.is_null(row) || to.is_null(row) {
                return Ok(None);
            }
            let subset = match self.what {
                What::SubsetInRange => in_range(&map, from.value(row), to.value(row)),
                What::SubsetLimit => u64::try_from(from.value(row))
                    .ok()
                    .and_then(|from| limited(&map, from, to.value(row))),
                _ => by_position(&map, from.value(row), to.value(row)),
            };
            Ok(subset.map(Cow::Owned))
        })
    }
}

/// A column of bitmaps.
enum Bitmaps {
    Same(Option<RoaringTreemap>),
    Each(LargeBinaryArray),
}

impl Bitmaps {
    fn of(argument: &ColumnarValue) -> Result<Self> {
        Ok(match argument {
            ColumnarValue::Scalar(ScalarValue::LargeBinary(bytes)) => {
                Self::Same(bytes.as_deref().map(decode).transpose()?)
            }
            ColumnarValue::Scalar(_) => Self::Same(None),
            ColumnarValue::Array(array) => Self::Each(array.as_binary::<i64>().clone()),
        })
    }

    fn get(&self, row: usize) -> Result<Option<Cow<'_, RoaringTreemap>>> {
        match self {
            Self::Same(map) => Ok(map.as_ref().map(Cow::Borrowed)),
            Self::Each(array) if array.is_null(row) => Ok(None),
            Self::Each(array) => Ok(Some(Cow::Owned(decode(array.value(row))?))),
        }
    }
}

/// A column of whole numbers; those below 0 are no members of bitmaps.
struct Numbers(ArrayRef);

impl Numbers {
    fn of(argument: &ColumnarValue, rows: usize) -> Result<Self> {
        Ok(Self(argument.to_array(rows)?))
    }

    fn is_null(&self, row: usize) -> bool {
        self.0.is_null(row)
    }

    fn get(&self, row: usize) -> Option<u64> {
        if self.is_null(row) {
            return None;
        }
        match self.0.as_primitive_opt::<UInt64Type>() {
            Some(unsigned) => Some(unsigned.value(row)),
            None => u64::try_from(self.0.as_primitive::<Int64Type>().value(row)).ok(),
        }
    }
}

/// An array of what `answer` gives per row.
fn collect<T, A: FromIterator<Option<T>>>(
    rows: usize,
    answer: impl FnMut(usize) -> Result<Option<T>>,
) -> Result<A> {
    (0..rows).map(answer).collect()
}

fn bitmaps<'m>(
    rows: usize,
    mut answer: impl FnMut(usize) -> Result<Option<Cow<'m, RoaringTreemap>>>,
) -> Result<ArrayRef> {
    let mut array = LargeBinaryBuilder::new();
    let mut bytes = Vec::new();
    for row in 0..rows {
        match answer(row)? {
            Some(map) => {
                bytes.clear();
                encode(&map, &mut bytes);
                array.append_value(&bytes);
            }
            None => array.append_null(),
        }
    }
    Ok(Arc::new(array.finish()))
}

fn of_arrays(lists: &ArrayRef, rows: usize) -> Result<ArrayRef> {
    let lists = lists.as_list::<i32>();
    bitmaps(rows, |row| {
        if lists.is_null(row) {
            return Ok(None);
        }
        // A member that cannot be one makes the whole NULL, as in Doris.
        let members = cast(&lists.value(row), &DataType::UInt64)?;
        let members = members.as_primitive::<UInt64Type>();
        let all = members.null_count() == 0;
        Ok(all.then(|| Cow::Owned(members.values().iter().copied().collect())))
    })
}

/// Numbers between commas, spaces allowed; nothing for an empty text, `None` if one is no number.
fn of_text(text: &str) -> Option<RoaringTreemap> {
    if text.trim().is_empty() {
        return Some(RoaringTreemap::new());
    }
    text.split(',').map(|number| number.trim().parse::<u64>().ok()).collect()
}

fn text_of(map: &RoaringTreemap) -> String {
    let mut text = String::new();
    for (i, number) in map.iter().enumerate() {
        let comma = if i == 0 { "" } else { "," };
        write!(text, "{comma}{number}").expect("writing to memory does not fail");
    }
    text
}

fn bigint(number: u64) -> Result<i64> {
    match i64::try_from(number) {
        Ok(number) => Ok(number),
        Err(_) => {
            refuse!(OutOfRange, "{number} of a bitmap is above bigint; bitmap_to_string shows it")
        }
    }
}

fn to_arrays(maps: &Bitmaps, rows: usize) -> Result<ArrayRef> {
    let mut lists = ListBuilder::new(Int64Builder::new());
    for row in 0..rows {
        let Some(map) = maps.get(row)? else {
            lists.append_null();
            continue;
        };
        for number in map.iter() {
            lists.values().append_value(bigint(number)?);
        }
        lists.append(true);
    }
    Ok(Arc::new(lists.finish()))
}

fn combined(how: Combination, maps: &[Bitmaps], row: usize) -> Result<Option<RoaringTreemap>> {
    let mut answer: Option<RoaringTreemap> = None;
    for map in maps {
        let map = map.get(row)?;
        answer = match (answer, map, how) {
            (answer, None, Combination::Or) => answer,
            (_, None, _) => return Ok(None),
            (None, Some(map), _) => Some(map.into_owned()),
            (Some(answer), Some(map), Combination::And) => Some(answer & &*map),
            (Some(answer), Some(map), Combination::Or) => Some(answer | &*map),
            (Some(answer), Some(map), Combination::Xor) => Some(answer ^ &*map),
            (Some(answer), Some(map), Combination::Minus) => Some(answer - &*map),
        };
    }
    Ok(answer)
}

fn count_of(how: Combination, maps: &[Bitmaps], row: usize) -> Result<i64> {
    let [one, other] = maps else {
        return Ok(combined(how, maps, row)?.map_or(0, |map| map.len() as i64));
    };
    let count = match (one.get(row)?, other.get(row)?) {
        (Some(a), Some(b)) => match how {
            Combination::And => a.intersection_len(&b),
            Combination::Or => a.union_len(&b),
            Combination::Xor => a.symmetric_difference_len(&b),
            Combination::Minus => a.difference_len(&b),
        },
        (Some(map), None) | (None, Some(map)) if how == Combination::Or => map.len(),
        _ => 0,
    };
    Ok(count as i64)
}

/// Members from `from` to below `end`.
fn in_range(map: &RoaringTreemap, from: i64, end: i64) -> Option<RoaringTreemap> {
    let (from, end) = (u64::try_from(from).ok()?, u64::try_from(end).ok()?);
    if from >= end {
        return None;
    }
    let mut subset = map.clone();
    subset.remove_range(..from);
    subset.remove_range(end..);
    Some(subset)
}

/// The first members from `from` on.
fn limited(map: &RoaringTreemap, from: u64, limit: i64) -> Option<RoaringTreemap> {
    let limit = usize::try_from(limit).ok()?;
    let mut members = map.iter();
    members.advance_to(from);
    Some(members.take(limit).collect())
}

/// Members by their place: from 0, or from -1 at the end. `None` if the place is outside.
fn by_position(map: &RoaringTreemap, from: i64, limit: i64) -> Option<RoaringTreemap> {
    let count = i64::try_from(map.len()).ok()?;
    let place = if from < 0 { count + from } else { from };
    if !(0..count).contains(&place) || limit <= 0 {
        return None;
    }
    let first = map.select(place as u64)?;
    limited(map, first, limit)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use arrow::array::NullArray;
    use datafusion_common::config::ConfigOptions;
    use datafusion_common::types::NativeType;

    use super::super::tests::random_set;
    use super::*;
    use crate::random::Random;

    type Set = BTreeSet<u64>;

    fn call(name: &str, args: Vec<ColumnarValue>, rows: usize) -> Result<ArrayRef> {
        let function = functions().into_iter().find(|f| f.name() == name).unwrap();
        let types: Vec<DataType> = args.iter().map(ColumnarValue::data_type).collect();
        let wanted = function.coerce_types(&types)?;
        let args = args.iter().zip(&wanted).map(|(arg, to)| arg.cast_to(to, None));
        let args = args.collect::<Result<Vec<_>>>()?;
        let answer = function.invoke_with_args(ScalarFunctionArgs {
            args,
            arg_fields: vec![],
            number_rows: rows,
            return_field: Arc::new(Field::new("f", function.return_type(&wanted)?, true)),
            config_options: Arc::new(ConfigOptions::default()),
        })?;
        assert_eq!(
            NativeType::from(answer.data_type()),
            NativeType::from(function.return_type(&wanted)?)
        );
        answer.into_array(rows)
    }

    fn bytes(set: &Option<Set>) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        encode(&set.as_ref()?.iter().copied().collect(), &mut bytes);
        Some(bytes)
    }

    fn sets_of(answer: &ArrayRef) -> Vec<Option<Set>> {
        let answer = answer.as_binary::<i64>();
        answer.iter().map(|bytes| Some(decode(bytes?).unwrap().iter().collect())).collect()
    }

    fn model(name: &str, a: &Set, b: &Set) -> Set {
        match name {
            "and" => a & b,
            "or" => a | b,
            "xor" => a ^ b,
            _ => a - b,
        }
    }

    #[test]
    fn every_function_agrees_with_plain_sets() {
        for seed in 0..150 {
            let mut random = Random::new(seed);
            let rows = 1 + random.below(4) as usize;
            let column = |random: &mut Random| -> (Vec<Option<Set>>, ColumnarValue) {
                let one = |random: &mut Random| (random.below(7) > 0).then(|| random_set(random));
                if random.below(3) == 0 {
                    let set = one(random);
                    let scalar = ScalarValue::LargeBinary(bytes(&set));
                    return (vec![set; rows], ColumnarValue::Scalar(scalar));
                }
                let sets: Vec<Option<Set>> = (0..rows).map(|_| one(random)).collect();
                let array = LargeBinaryArray::from_iter(sets.iter().map(bytes));
                (sets, ColumnarValue::Array(Arc::new(array)))
            };
            let ((a, x), (b, y)) = (column(&mut random), column(&mut random));
            let pairs = || a.iter().zip(&b);
            for name in ["and", "or", "xor", "not", "and_not"] {
                let found =
                    call(&format!("bitmap_{name}"), vec![x.clone(), y.clone()], rows).unwrap();
                let expected: Vec<Option<Set>> = pairs()
                    .map(|pair| match pair {
                        (Some(a), Some(b)) => Some(model(name, a, b)),
                        (one, other) if name == "or" => one.clone().or(other.clone()),
                        _ => None,
                    })
                    .collect();
                assert_eq!(sets_of(&found), expected, "seed {seed}, {name}");
                let counts =
                    call(&format!("bitmap_{name}_count"), vec![x.clone(), y.clone()], rows)
                        .unwrap();
                let lengths = expected.iter().map(|set| set.as_ref().map_or(0, Set::len) as i64);
                assert!(counts.as_primitive::<Int64Type>().values().iter().copied().eq(lengths));
            }
            let three = call("bitmap_xor", vec![x.clone(), y.clone(), x.clone()], rows).unwrap();
            let expected: Vec<_> = pairs().map(|(a, b)| a.as_ref().and(b.clone())).collect();
            assert_eq!(sets_of(&three), expected, "seed {seed}");
            let truths = |name: &str, truth: fn(&Set, &Set) -> bool| {
                let found = call(name, vec![x.clone(), y.clone()], rows).unwrap();
                let expected: BooleanArray =
                    pairs().map(|(a, b)| Some(truth(a.as_ref()?, b.as_ref()?))).collect();
                assert_eq!(found.as_boolean(), &expected, "seed {seed}, {name}");
            };
            truths("bitmap_has_any", |a, b| !a.is_disjoint(b));
            truths("bitmap_has_all", |a, b| a.is_superset(b));
            subsets_of(&a, &x, rows, &mut random, seed);
        }
    }

    fn subsets_of(
        a: &[Option<Set>],
        x: &ColumnarValue,
        rows: usize,
        random: &mut Random,
        seed: u64,
    ) {
        let big = |n: i64| ColumnarValue::Scalar(ScalarValue::Int64(Some(n)));
        let (from, to) = (random.below(30_000) as i64 - 2000, random.below(30_000) as i64 - 2000);
        let each = |name: &str, of: &dyn Fn(&Set) -> Option<Set>| {
            let found = call(name, vec![x.clone(), big(from), big(to)], rows).unwrap();
            let expected: Vec<_> = a.iter().map(|set| of(set.as_ref()?)).collect();
            assert_eq!(sets_of(&found), expected, "seed {seed}, {name}({from}, {to})");
        };
        each("bitmap_subset_in_range", &|set| {
            let inside = set.iter().copied().filter(|n| (from as u64..to as u64).contains(n));
            (from >= 0 && to > from).then(|| inside.collect())
        });
        each("bitmap_subset_limit", &|set| {
            let after = set.iter().copied().filter(|n| *n >= from as u64);
            (from >= 0 && to >= 0).then(|| after.take(to as usize).collect())
        });
        each("sub_bitmap", &|set| {
            let place = if from < 0 { set.len() as i64 + from } else { from };
            let first = set.iter().copied().nth(usize::try_from(place).ok()?)?;
            (to > 0).then(|| set.range(first..).copied().take(to as usize).collect())
        });
    }

    #[test]
    fn the_examples_of_doris_hold() {
        let text = |text: &str| ColumnarValue::Scalar(ScalarValue::Utf8(Some(text.into())));
        let big = |n: i64| ColumnarValue::Scalar(ScalarValue::Int64(Some(n)));
        let one = |name: &str, args| ColumnarValue::Array(call(name, args, 1).unwrap());
        let shown = |map: ColumnarValue| {
            let shown = call("bitmap_to_string", vec![map], 1).unwrap();
            shown.is_valid(0).then(|| shown.as_string::<i32>().value(0).to_owned())
        };
        let from = |set: &str| one("bitmap_from_string", vec![text(set)]);
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(shown(from("0, 1, 2")), some("0,1,2"));
        assert_eq!(shown(from("-1, 0, 1, 2")), None);
        assert_eq!(shown(from("0, 1, 18446744073709551615")), some("0,1,18446744073709551615"));
        assert_eq!(shown(one("to_bitmap", vec![big(-1)])), None);
        let set = "1,0,1,2,3,1,5";
        assert_eq!(shown(one("sub_bitmap", vec![from(set), big(0), big(3)])), some("0,1,2"));
        assert_eq!(shown(one("sub_bitmap", vec![from(set), big(-3), big(2)])), some("2,3"));
        assert_eq!(shown(one("sub_bitmap", vec![from(set), big(2), big(100)])), some("2,3,5"));
        let five = || from("1,2,3,4,5");
        assert_eq!(shown(one("bitmap_subset_in_range", vec![five(), big(2), big(3)])), some("2"));
        assert_eq!(shown(one("bitmap_subset_limit", vec![five(), big(4), big(3)])), some("4,5"));
        assert_eq!(shown(one("bitmap_not", vec![from("2,3,5"), from("1,2,3,4")])), some("5"));
        assert_eq!(shown(one("bitmap_empty", vec![])), some(""));
    }

    #[test]
    fn wrong_arguments_say_what_is_right() {
        let error = |name: &str, args| call(name, args, 1).unwrap_err().to_string();
        let text = ColumnarValue::Scalar(ScalarValue::Utf8(Some("x".into())));
        let null = || ColumnarValue::Array(Arc::new(NullArray::new(1)));
        assert!(error("to_bitmap", vec![text.clone()]).contains("takes a whole number"));
        assert!(error("bitmap_count", vec![text.clone()]).contains("takes a bitmap"));
        assert!(error("bitmap_not", vec![null(), null(), null()]).contains("takes two bitmaps"));
        assert!(error("bitmap_from_array", vec![text]).contains("an array of whole numbers"));
        let bytes = ColumnarValue::Scalar(ScalarValue::Binary(Some(vec![1, 2, 3])));
        assert!(error("bitmap_count", vec![bytes]).contains("not a bitmap"));
        let top = ColumnarValue::Scalar(ScalarValue::UInt64(Some(u64::MAX)));
        let top = ColumnarValue::Array(call("to_bitmap", vec![top], 1).unwrap());
        assert!(error("bitmap_max", vec![top]).contains("above bigint"));
    }
}
