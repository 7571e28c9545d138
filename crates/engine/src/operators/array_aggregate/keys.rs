//! The group of each row, found by arrays.
//!
//! One column of ids: the group's number stands in an array at the place of the id. The id that rows were
//! joined on: the group is the row of the other side. Several columns of few values: each value has a
//! small code, and a table of codes gives the group.

use std::mem::size_of;
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Int32Array, Int64Array, PrimitiveArray,
    StringViewArray, UInt32Array,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Date32Type, Int32Type, Int64Type, UInt32Type};
use datafusion::common::{HashMap, Result};

/// Stands for no row of the other side.
pub(crate) const NO_MATCH: u32 = u32::MAX;
/// Ids of a page of [`IdKeys`], as a power of two.
const PAGE_SHIFT: u32 = 14;
const PAGE: usize = 1 << PAGE_SHIFT;
/// Whole numbers from zero below this have their codes in an array.
const DIRECT: i64 = 1 << 16;
/// More groups by columns of few values than this are left to DataFusion, which spills.
pub(crate) const FEW_GROUPS: usize = 1 << 18;
/// Places of the table of two codes; beyond it is a hash table.
const TABLE_MAX: usize = 1 << 20;

/// Groups by one column of ids or by several of few values.
pub(crate) enum Keys {
    Id(IdKeys),
    Partner(BuildRowKeys),
    Few(FewKeys),
}

impl Keys {
    /// Can rows be grouped by such a column, next to others of few values?
    pub fn takes(data_type: &DataType) -> bool {
        use DataType::{
            Boolean, Date32, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, Utf8View,
        };
        matches!(
            data_type,
            Boolean | Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | Date32 | Utf8View
        )
    }

    pub fn new(types: &[DataType], one_id: bool) -> Self {
        if one_id {
            return Self::Id(IdKeys::default());
        }
        Self::Few(FewKeys {
            columns: types.iter().cloned().map(Codes::new).collect(),
            pairs: types.iter().skip(1).map(|_| Pairs::default()).collect(),
            groups: Vec::new(),
            count: 0,
        })
    }

    /// Groups there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Id(keys) => keys.len(),
            Self::Partner(keys) => keys.rows.len() + 1,
            Self::Few(keys) => keys.count,
        }
    }

    /// Puts the group of each row into `groups`. `columns`: what rows are grouped by, or the row of the
    /// other side that each was joined with.
    pub fn find(&mut self, columns: &[ArrayRef], groups: &mut Vec<usize>) -> Result<()> {
        groups.clear();
        match self {
            Self::Id(keys) => keys.find(columns[0].as_primitive::<Int32Type>(), groups),
            Self::Partner(keys) => keys.find(columns[0].as_primitive::<UInt32Type>(), groups),
            Self::Few(keys) => keys.find(columns, groups)?,
        }
        Ok(())
    }

    /// The groups here of another's groups, in their order.
    pub fn merge(&mut self, other: &Self, groups: &mut Vec<usize>) -> Result<()> {
        match other {
            Self::Partner(_) => {
                groups.clear();
                groups.extend(0..other.len());
                Ok(())
            }
            other => self.find(&other.values()?, groups),
        }
    }

    /// Are there more groups, or values of a column, than arrays are good for?
    pub fn is_too_long(&self) -> bool {
        match self {
            Self::Id(_) | Self::Partner(_) => false,
            Self::Few(keys) => {
                let values = keys.columns.iter().map(|codes| codes.count as usize);
                values.chain([keys.count]).any(|count| count > FEW_GROUPS)
            }
        }
    }

    /// The columns' values of all groups, in the order of the groups; without that of rows that were not
    /// joined.
    pub fn values(&self) -> Result<Vec<ArrayRef>> {
        match self {
            Self::Id(keys) => Ok(vec![Arc::new(keys.values())]),
            Self::Partner(keys) => Ok(vec![keys.ids.slice(keys.rows.start, keys.rows.len())]),
            Self::Few(keys) => {
                let width = keys.columns.len();
                let values = |(at, codes): (usize, &Codes)| {
                    codes.values(keys.groups.iter().skip(at).step_by(width).copied())
                };
                keys.columns.iter().enumerate().map(values).collect()
            }
        }
    }

    /// The groups by their ids, if they came in another order: whoever looks them up for rows that are
    /// sorted by id finds neighbours beside each other then.
    pub fn in_order(&self) -> Option<UInt32Array> {
        match self {
            Self::Id(keys) => keys.in_order(),
            Self::Partner(_) | Self::Few(_) => None,
        }
    }

    /// Bytes.
    pub fn size(&self) -> usize {
        match self {
            Self::Id(keys) => keys.size(),
            Self::Partner(_) => 0,
            Self::Few(keys) => {
                keys.groups.capacity() * size_of::<u32>()
                    + keys.columns.iter().map(|codes| codes.bytes).sum::<usize>()
                    + keys.pairs.iter().map(Pairs::size).sum::<usize>()
            }
        }
    }
}

/// Groups by ids. Pages that no id is in are not there.
#[derive(Default)]
pub(crate) struct IdKeys {
    /// At the place of an id its group and one; 0 is none yet.
    pages: Vec<Option<Box<[u32; PAGE]>>>,
    ids: Vec<i32>,
    null: Option<usize>,
}

impl IdKeys {
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Bytes.
    pub fn size(&self) -> usize {
        self.pages.iter().flatten().count() * PAGE * size_of::<u32>()
            + self.ids.capacity() * size_of::<i32>()
    }

    pub fn find(&mut self, ids: &Int32Array, groups: &mut Vec<usize>) {
        if ids.null_count() == 0 {
            groups.extend(ids.values().iter().map(|id| self.group(*id)));
            return;
        }
        for id in ids {
            let group = match id {
                Some(id) => self.group(id),
                None => self.null_group(),
            };
            groups.push(group);
        }
    }

    /// The group of each id that has one, or [`NO_MATCH`]; and how many have.
    pub fn look_up(&self, ids: &Int32Array) -> (Vec<u32>, usize) {
        let page = |id: u32| self.pages.get((id >> PAGE_SHIFT) as usize).and_then(Option::as_ref);
        let in_page = |page: &[u32; PAGE], id: u32| page[id as usize % PAGE].wrapping_sub(1);
        let values = ids.values();
        let first = values.first().map_or(0, |id| *id as u32);
        // Files are sorted by ids: mostly all are in one page.
        let differ = values.iter().fold(0, |differ, id| differ | (*id as u32 ^ first));
        let mut found: Vec<u32> = match page(first).filter(|_| differ >> PAGE_SHIFT == 0) {
            Some(page) => values.iter().map(|id| in_page(page, *id as u32)).collect(),
            None => {
                let place = |id: u32| page(id).map_or(NO_MATCH, |page| in_page(page, id));
                values.iter().map(|id| place(*id as u32)).collect()
            }
        };
        if let Some(nulls) = ids.nulls() {
            let rows = found.iter_mut().zip(nulls).filter(|(_, valid)| !valid);
            rows.for_each(|(place, _)| *place = NO_MATCH);
        }
        let matched = found.iter().map(|place| usize::from(*place != NO_MATCH)).sum();
        (found, matched)
    }

    fn null_group(&mut self) -> usize {
        *self.null.get_or_insert_with(|| {
            self.ids.push(0);
            self.ids.len() - 1
        })
    }

    fn group(&mut self, id: i32) -> usize {
        let id = id as u32;
        let page = (id >> PAGE_SHIFT) as usize;
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, || None);
        }
        let page = self.pages[page].get_or_insert_with(|| Box::new([0; PAGE]));
        let group = &mut page[id as usize % PAGE];
        if *group == 0 {
            self.ids.push(id as i32);
            *group = self.ids.len() as u32;
        }
        *group as usize - 1
    }

    /// See [`Keys::in_order`]; NULL comes last.
    fn in_order(&self) -> Option<UInt32Array> {
        if self.null.is_none() && self.ids.is_sorted() {
            return None;
        }
        let mut order = Vec::with_capacity(self.ids.len());
        for page in self.pages.iter().flatten() {
            order.extend(page.iter().filter(|group| **group > 0).map(|group| group - 1));
        }
        order.extend(self.null.map(|group| group as u32));
        Some(UInt32Array::from(order))
    }

    fn values(&self) -> Int32Array {
        if self.null.is_none() {
            return Int32Array::from(self.ids.clone());
        }
        let id = |(group, id): (usize, &i32)| (Some(group) != self.null).then_some(*id);
        self.ids.iter().enumerate().map(id).collect()
    }
}

/// Groups by the id that rows were joined on, for some rows of the other side: each is a group, and after
/// them comes one for rows that were not joined.
pub(crate) struct BuildRowKeys {
    pub rows: Range<usize>,
    /// Of all rows of the other side.
    pub ids: ArrayRef,
}

impl BuildRowKeys {
    fn find(&self, partners: &UInt32Array, groups: &mut Vec<usize>) {
        // Rows without a partner have the largest number.
        let (start, nobody) = (self.rows.start, self.rows.len());
        let group = |partner: &u32| (*partner as usize).wrapping_sub(start).min(nobody);
        groups.extend(partners.values().iter().map(group));
    }
}

/// Groups by columns of few values each.
pub(crate) struct FewKeys {
    columns: Vec<Codes>,
    /// From the code of the columns so far and the code of the next to a code of both.
    pairs: Vec<Pairs>,
    /// Per group the code of each column.
    groups: Vec<u32>,
    count: usize,
}

impl FewKeys {
    fn find(&mut self, columns: &[ArrayRef], groups: &mut Vec<usize>) -> Result<()> {
        let mut codes = Vec::with_capacity(columns.len());
        for (column, coder) in columns.iter().zip(&mut self.columns) {
            let mut of_column = Vec::with_capacity(column.len());
            coder.find(column, &mut of_column)?;
            codes.push(of_column);
        }
        let (first, rest) = codes.split_at(1);
        let mut whole = first[0].clone();
        for (pairs, next) in self.pairs.iter_mut().zip(rest) {
            let mut last = (u32::MAX, u32::MAX, 0);
            for (code, next) in whole.iter_mut().zip(next) {
                if let Some(known) = pairs.known(*code, *next) {
                    *code = known;
                    continue;
                }
                if (last.0, last.1) != (*code, *next) {
                    last = (*code, *next, pairs.new_code(*code, *next));
                }
                *code = last.2;
            }
        }
        groups.extend(whole.iter().enumerate().map(|(row, group)| {
            let group = *group as usize;
            // Codes are given in the order of their first rows.
            if group == self.count {
                self.groups.extend(codes.iter().map(|of_column| of_column[row]));
                self.count += 1;
            }
            group
        }));
        Ok(())
    }
}

/// A code for each pair of codes, in the order in which they come.
#[derive(Default)]
struct Pairs {
    /// At `left << shift | right` the code and one.
    table: Vec<u32>,
    shift: u32,
    others: HashMap<(u32, u32), u32>,
    count: u32,
}

impl Pairs {
    /// The code of a pair that is in the table.
    fn known(&self, left: u32, right: u32) -> Option<u32> {
        let place = ((left as usize) << self.shift) | right as usize;
        let code = self.table.get(place).filter(|_| right >> self.shift == 0)?;
        code.checked_sub(1)
    }

    /// The code of another pair.
    fn new_code(&mut self, left: u32, right: u32) -> u32 {
        if let Some(code) = self.others.get(&(left, right)) {
            return *code;
        }
        let code = self.count;
        self.count += 1;
        let bits = u32::BITS - right.leading_zeros();
        let shift = self.shift.max(bits);
        let rows = (left as usize + 1).max(self.table.len() >> self.shift).next_power_of_two();
        if rows.checked_shl(shift).is_none_or(|places| places > TABLE_MAX || shift > 20) {
            self.others.insert((left, right), code);
            return code;
        }
        if shift > self.shift || rows << shift > self.table.len() {
            let mut table = vec![0; rows << shift];
            for (place, code) in self.table.iter().enumerate().filter(|(_, code)| **code > 0) {
                let (left, right) = (place >> self.shift, place & ((1 << self.shift) - 1));
                table[(left << shift) | right] = *code;
            }
            (self.table, self.shift) = (table, shift);
        }
        self.table[((left as usize) << self.shift) | right as usize] = code + 1;
        code
    }

    fn size(&self) -> usize {
        self.table.capacity() * size_of::<u32>() + self.others.capacity() * 16
    }
}

/// Codes of one column's values, in the order in which they come.
struct Codes {
    data_type: DataType,
    /// Code and one of the whole numbers from zero.
    direct: Vec<u32>,
    numbers: HashMap<i64, u32>,
    /// Text of at most 12 bytes, as its view.
    short: HashMap<u128, u32>,
    long: HashMap<String, u32>,
    null: Option<u32>,
    /// Per code; one of the two, by the type.
    number_values: Vec<i64>,
    text_values: Vec<String>,
    count: u32,
    bytes: usize,
}

impl Codes {
    fn new(data_type: DataType) -> Self {
        Self {
            data_type,
            direct: Vec::new(),
            numbers: HashMap::default(),
            short: HashMap::default(),
            long: HashMap::default(),
            null: None,
            number_values: Vec::new(),
            text_values: Vec::new(),
            count: 0,
            bytes: 0,
        }
    }

    fn find(&mut self, column: &ArrayRef, codes: &mut Vec<u32>) -> Result<()> {
        if self.data_type == DataType::Utf8View {
            self.find_text(column.as_string_view(), codes);
            return Ok(());
        }
        match self.data_type {
            DataType::Int32 => self.find_numbers(column.as_primitive::<Int32Type>(), codes),
            DataType::Date32 => self.find_numbers(column.as_primitive::<Date32Type>(), codes),
            DataType::Int64 => self.find_numbers(column.as_primitive::<Int64Type>(), codes),
            DataType::UInt32 => self.find_numbers(column.as_primitive::<UInt32Type>(), codes),
            _ => {
                let wide = cast(column, &DataType::Int64)?;
                self.find_numbers(wide.as_primitive::<Int64Type>(), codes);
            }
        }
        Ok(())
    }

    fn find_numbers<T: ArrowPrimitiveType<Native: Into<i64>>>(
        &mut self,
        values: &PrimitiveArray<T>,
        codes: &mut Vec<u32>,
    ) {
        let mut last: Option<(i64, u32)> = None;
        let mut code = |codes: &mut Self, value: i64| {
            // Looked up without asking whether it is the last one: that is hard to foresee.
            if let Some(code) = codes.direct.get(value as usize).filter(|code| **code > 0) {
                return code - 1;
            }
            match last {
                Some((same, code)) if same == value => code,
                _ => {
                    let code = codes.number_code(value);
                    last = Some((value, code));
                    code
                }
            }
        };
        if values.null_count() == 0 {
            codes.extend(values.values().iter().map(|value| code(self, (*value).into())));
            return;
        }
        for value in values {
            codes.push(match value {
                Some(value) => code(self, value.into()),
                None => self.null_code(),
            });
        }
    }

    fn number_code(&mut self, value: i64) -> u32 {
        let place = usize::try_from(value).ok().filter(|_| value < DIRECT);
        let known = match place {
            Some(place) => self.direct.get(place).filter(|code| **code > 0).map(|code| code - 1),
            None => self.numbers.get(&value).copied(),
        };
        if let Some(code) = known {
            return code;
        }
        let code = self.next_code(24);
        self.number_values.resize(code as usize, 0);
        self.number_values.push(value);
        match place {
            Some(place) => {
                if self.direct.len() <= place {
                    self.direct.resize((place + 1).next_power_of_two(), 0);
                }
                self.direct[place] = code + 1;
            }
            None => {
                self.numbers.insert(value, code);
            }
        }
        code
    }

    fn find_text(&mut self, texts: &StringViewArray, codes: &mut Vec<u32>) {
        let mut last: Option<(u128, u32)> = None;
        let has_nulls = texts.null_count() > 0;
        for (row, view) in texts.views().iter().enumerate() {
            if has_nulls && texts.is_null(row) {
                codes.push(self.null_code());
                continue;
            }
            // The lowest four bytes are the length; up to 12 bytes of text follow in place.
            let is_short = *view as u32 <= 12;
            if let Some((same, code)) = last
                && same == *view
            {
                codes.push(code);
                continue;
            }
            let text = texts.value(row);
            let known = if is_short { self.short.get(view) } else { self.long.get(text) };
            let code = match known {
                Some(code) => *code,
                None => {
                    let code = self.next_code(64 + 2 * text.len());
                    self.text_values.resize(code as usize, String::new());
                    self.text_values.push(text.to_owned());
                    match is_short {
                        true => self.short.insert(*view, code),
                        false => self.long.insert(text.to_owned(), code),
                    };
                    code
                }
            };
            last = Some((*view, code));
            codes.push(code);
        }
    }

    fn null_code(&mut self) -> u32 {
        match self.null {
            Some(code) => code,
            None => {
                let code = self.next_code(0);
                self.null = Some(code);
                code
            }
        }
    }

    fn next_code(&mut self, bytes: usize) -> u32 {
        self.bytes += bytes;
        self.count += 1;
        self.count - 1
    }

    /// The values of codes.
    fn values(&self, codes: impl Iterator<Item = u32>) -> Result<ArrayRef> {
        let is_null = |code: u32| Some(code) == self.null;
        if self.data_type == DataType::Utf8View {
            let text = |code: u32| (!is_null(code)).then(|| &self.text_values[code as usize]);
            return Ok(Arc::new(codes.map(text).collect::<StringViewArray>()));
        }
        let number = |code: u32| (!is_null(code)).then(|| self.number_values[code as usize]);
        let wide: ArrayRef = Arc::new(codes.map(number).collect::<Int64Array>());
        Ok(match self.data_type {
            DataType::Date32 => cast(&cast(&wide, &DataType::Int32)?, &DataType::Date32)?,
            _ => cast(&wide, &self.data_type)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap as StdMap;

    use datafusion::arrow::array::{BooleanArray, Date32Array, Int8Array};
    use datafusion::arrow::compute::take;

    use super::*;

    /// Rows of the same values, and only those, have the same group, and its values are theirs.
    fn check(keys: &mut Keys, columns: &[ArrayRef], seen: &mut StdMap<Vec<String>, usize>) {
        let mut groups = Vec::new();
        keys.find(columns, &mut groups).unwrap();
        let text = |column: &ArrayRef, row: usize| {
            let shown =
                datafusion::arrow::util::display::array_value_to_string(column, row).unwrap();
            format!("{}{shown}", if column.is_null(row) { "NULL" } else { "=" })
        };
        for (row, group) in groups.iter().enumerate() {
            let key: Vec<String> = columns.iter().map(|column| text(column, row)).collect();
            assert_eq!(*seen.entry(key).or_insert(*group), *group, "row {row}");
        }
        assert_eq!(seen.len(), keys.len());
        let values = keys.values().unwrap();
        for (key, group) in seen {
            let found: Vec<String> = values.iter().map(|column| text(column, *group)).collect();
            assert_eq!(*key, found);
        }
        assert_eq!(
            values.iter().map(|v| v.data_type()).collect::<Vec<_>>(),
            columns.iter().map(|c| c.data_type()).collect::<Vec<_>>()
        );
    }

    #[test]
    fn ids_and_null_have_groups_of_their_own() {
        let mut keys = Keys::new(&[DataType::Int32], true);
        let mut seen = StdMap::new();
        for ids in [
            vec![Some(5), Some(0), Some(5), Some(70_000), Some(i32::MAX)],
            vec![Some(0), None, Some(1), None, Some(70_000)],
        ] {
            check(&mut keys, &[Arc::new(Int32Array::from(ids))], &mut seen);
        }
        assert_eq!(keys.len(), 6);
        let order = keys.in_order().unwrap();
        let by_id = take(&keys.values().unwrap()[0], &order, None).unwrap();
        let expected = [Some(0), Some(1), Some(5), Some(70_000), Some(i32::MAX), None];
        assert_eq!(by_id.as_primitive::<Int32Type>(), &Int32Array::from(expected.to_vec()));
        let mut sorted = Keys::new(&[DataType::Int32], true);
        sorted.find(&[Arc::new(Int32Array::from(vec![3, 3, 7]))], &mut Vec::new()).unwrap();
        assert!(sorted.in_order().is_none());
    }

    #[test]
    fn rows_of_the_other_side_are_groups() {
        let ids: ArrayRef = Arc::new(Int32Array::from(vec![Some(9), None, Some(4), Some(7)]));
        let mut keys = Keys::Partner(BuildRowKeys { rows: 1..3, ids: Arc::clone(&ids) });
        let partners: ArrayRef = Arc::new(UInt32Array::from(vec![2, NO_MATCH, 1, 2]));
        let mut groups = Vec::new();
        keys.find(&[partners], &mut groups).unwrap();
        assert_eq!((groups, keys.len()), (vec![1, 2, 0, 1], 3));
        assert_eq!(keys.values().unwrap(), [ids.slice(1, 2)]);
    }

    #[test]
    fn values_of_every_type_and_any_range_have_codes() {
        let mut random = 3u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        for spread in [2, 40, 3000] {
            let types = [
                DataType::Int64,
                DataType::Utf8View,
                DataType::Date32,
                DataType::Boolean,
                DataType::Int8,
            ];
            let mut keys = Keys::new(&types, false);
            let mut seen = StdMap::new();
            for _ in 0..5 {
                let rows = 500;
                let mut pick = |of: u64| (next(9) > 0).then(|| next(of) as i64);
                let numbers: Int64Array = (0..rows)
                    .map(|_| pick(spread).map(|n| if n % 3 == 0 { -n * 1_000_000_007 } else { n }))
                    .collect();
                let texts: StringViewArray = (0..rows)
                    .map(|_| pick(spread).map(|n| "x".repeat(n as usize % 15) + &n.to_string()))
                    .collect();
                let days: Date32Array = (0..rows).map(|_| pick(3).map(|n| n as i32 - 1)).collect();
                let flags: BooleanArray = (0..rows).map(|_| pick(2).map(|n| n == 1)).collect();
                let small: Int8Array =
                    (0..rows).map(|_| pick(200).map(|n| (n - 100) as i8)).collect();
                let columns: [ArrayRef; 5] = [
                    Arc::new(numbers),
                    Arc::new(texts),
                    Arc::new(days),
                    Arc::new(flags),
                    Arc::new(small),
                ];
                check(&mut keys, &columns, &mut seen);
            }
        }
    }

    #[test]
    fn more_than_few_groups_are_too_many() {
        let mut keys = Keys::new(&[DataType::Int64], false);
        let mut add = |values: std::ops::Range<usize>| {
            let values: ArrayRef = Arc::new(values.map(|n| n as i64).collect::<Int64Array>());
            keys.find(&[values], &mut Vec::new()).unwrap();
            keys.is_too_long()
        };
        assert!(!add(0..FEW_GROUPS));
        assert!(add(FEW_GROUPS..FEW_GROUPS + 1));
    }
}
