//! Rows that a plan would drop, found in kept columns before anything is copied.
//!
//! A join tells the scan of its large side which keys there are on the small one. A list of whole numbers
//! becomes a bitmap; of a longer one the join's own table is asked. A row whose key is not there would be
//! dropped by the join, so it is not handed out. Likewise for conditions on one column: where text is
//! kept as numbers, each different value is asked about once; in text that is kept end to end, the word
//! of a `LIKE '%word%'` is looked for in all of a piece at once.
//!
//! # Invariants
//! - Only speed depends on it: the join looks every key up again, the filter asks every row again, but
//!   what is known of a row ([`AppliedFilters`]) is not computed for it.
//! - What drops few rows is not asked any more.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, RecordBatch, StringArray,
    UInt32Array, new_null_array,
};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::{
    DataType, FieldRef, Int8Type, Int16Type, Int32Type, Int64Type, Schema, SchemaRef, UInt8Type,
    UInt16Type, UInt32Type,
};
use datafusion::common::{Result, ScalarValue};
use datafusion::physical_expr::expressions::{
    Column, DynamicFilterPhysicalExpr, InListExpr, LikeExpr, Literal,
};
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns};
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::joins::HashTableLookupExpr;
use memchr::memmem::Finder;

use uplake_functions::holds as true_only;

use crate::scan::among_ids::AmongIds;

/// Bits of the longest bitmap: 4 MiB, which the second-level caches of a few cores hold.
const BITS_MAX: i128 = 1 << 25;
/// Rows after which it is known how many of them are dropped.
const TRIED_ROWS: usize = 1 << 16;

/// Which values of one column rows may have.
pub(crate) struct RowFilter {
    /// Among the columns that the scan reads.
    column: usize,
    passes: Passes,
    /// The condition of a filter, over those columns: what passes satisfies it.
    filter: Option<Arc<dyn PhysicalExpr>>,
    asked: AtomicUsize,
    kept: AtomicUsize,
}

/// By bit, the row_filters that rows have passed; of the first 64.
pub(crate) type AppliedFilters = u64;

enum Passes {
    /// The keys of a join's small side.
    Bitmap { least: i64, bits: Arc<[u64]> },
    /// A condition.
    If(Condition),
    /// A condition on text, for columns that are kept as numbers; and the word of `LIKE '%word%'`, for
    /// those that are kept end to end.
    Text(Condition, Mutex<Option<Codes>>, Option<Box<Finder<'static>>>),
}

/// A condition on a column that has the schema to itself.
struct Condition {
    holds: Arc<dyn PhysicalExpr>,
    schema: SchemaRef,
}

/// What a condition says of each different value of a column, and of NULL.
#[derive(Clone)]
struct Codes {
    values: ArrayRef,
    pass: Arc<[bool]>,
    null: bool,
}

impl Condition {
    /// `None` if it cannot be computed: then the filter above says so, if such a row gets there.
    fn evaluate(&self, values: ArrayRef) -> Option<BooleanArray> {
        let rows = values.len();
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), vec![values]).ok()?;
        let held = self.holds.evaluate(&batch).ok()?.into_array(rows).ok()?;
        held.as_boolean_opt().cloned()
    }

    fn codes(&self, values: &ArrayRef) -> Option<Codes> {
        let held = self.evaluate(Arc::clone(values))?;
        let null = self.evaluate(new_null_array(values.data_type(), 1))?;
        let (pass, null) = (true_only(&held).iter().collect(), true_only(&null).value(0));
        Some(Codes { values: Arc::clone(values), pass, null })
    }
}

impl RowFilter {
    /// What joins and filters above a scan say by now; `fields` are the columns that it reads.
    pub fn of(conditions: &[Arc<dyn PhysicalExpr>], fields: &[FieldRef]) -> Result<Vec<Self>> {
        let mut found = Vec::new();
        for condition in conditions {
            let Some(filter) = condition.downcast_ref::<DynamicFilterPhysicalExpr>() else {
                found.extend(Self::of_filter(condition, fields));
                continue;
            };
            let current = filter.current()?;
            for part in split_conjunction(&current) {
                let ids = Self::of_ids(part, fields).or_else(|| Self::of_list(part, fields));
                found.extend(ids.or_else(|| Self::of_table(part, fields)));
            }
        }
        // The fastest go first.
        found.sort_by_key(|one| match one.passes {
            Passes::Text(_, _, None) => 0,
            Passes::Bitmap { .. } => 1,
            Passes::If(_) => 2,
            Passes::Text(_, _, Some(_)) => 3,
        });
        Ok(found)
    }

    fn new(column: usize, passes: Passes) -> Self {
        let (asked, kept) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { column, passes, filter: None, asked, kept }
    }

    /// Which of the row_filters, if any, lets through what satisfies `condition` and nothing else. The
    /// condition is over the columns that the scan reads.
    pub fn position(row_filters: &[Self], condition: &Arc<dyn PhysicalExpr>) -> Option<usize> {
        row_filters.iter().position(|one| one.filter.as_ref() == Some(condition))
    }

    fn of_ids(condition: &Arc<dyn PhysicalExpr>, fields: &[FieldRef]) -> Option<Self> {
        let among = condition.downcast_ref::<AmongIds>()?;
        let name = among.children()[0].downcast_ref::<Column>()?.name();
        let column = fields.iter().position(|field| field.name() == name)?;
        Some(Self::new(column, Passes::Bitmap { least: 0, bits: Arc::clone(among.bits()) }))
    }

    fn of_list(condition: &Arc<dyn PhysicalExpr>, fields: &[FieldRef]) -> Option<Self> {
        let list = condition.downcast_ref::<InListExpr>().filter(|list| !list.negated())?;
        let name = list.expr().downcast_ref::<Column>()?.name();
        let column = fields.iter().position(|field| field.name() == name)?;
        let mut keys = Vec::with_capacity(list.len());
        for value in list.list() {
            let value = value.downcast_ref::<Literal>()?.value();
            // NULL is equal to nothing.
            if !value.is_null() {
                keys.push(whole_number(value)?);
            }
        }
        let (least, most) = (*keys.iter().min()?, *keys.iter().max()?);
        let span = i128::from(most) - i128::from(least) + 1;
        if span > BITS_MAX {
            return None;
        }
        let mut bits = vec![0; (span as usize).div_ceil(64)];
        for key in keys {
            let bit = key.wrapping_sub(least) as usize;
            bits[bit / 64] |= 1 << (bit % 64);
        }
        Some(Self::new(column, Passes::Bitmap { least, bits: bits.into() }))
    }

    fn of_table(condition: &Arc<dyn PhysicalExpr>, fields: &[FieldRef]) -> Option<Self> {
        condition.downcast_ref::<HashTableLookupExpr>()?;
        let (column, condition) = on_one_column(condition, fields)?;
        let whole = fields[column].data_type().is_integer();
        whole.then(|| Self::new(column, Passes::If(condition)))
    }

    fn of_filter(condition: &Arc<dyn PhysicalExpr>, fields: &[FieldRef]) -> Option<Self> {
        if is_volatile(condition) {
            return None;
        }
        let schema = Schema::new(fields.to_vec());
        let filter = reassign_expr_columns(Arc::clone(condition), &schema).ok();
        let (column, condition) = on_one_column(condition, fields)?;
        let passes = match fields[column].data_type() {
            DataType::Utf8View => {
                let word = word_of(&condition.holds);
                Passes::Text(condition, Mutex::default(), word)
            }
            kind if kind.is_primitive() => Passes::If(condition),
            _ => return None,
        };
        Some(Self { filter, ..Self::new(column, passes) })
    }

    /// Does it drop a quarter of the rows, as far as is known? `picked`: some are dropped already, so the
    /// others are copied anyway. Then a sixteenth is enough for a look into a table.
    fn is_worth_it(&self, picked: bool) -> bool {
        let looks = matches!(self.passes, Passes::Bitmap { .. } | Passes::Text(_, _, None));
        let asked = self.asked.load(Ordering::Relaxed);
        let enough = if picked && looks { asked / 16 * 15 } else { asked / 4 * 3 };
        asked < TRIED_ROWS || self.kept.load(Ordering::Relaxed) < enough
    }

    /// Keeps those of `rows` that pass, or all. Has each been asked?
    fn retain(&self, values: &ArrayRef, picked: bool, rows: &mut Vec<u32>) -> Result<bool> {
        if !self.is_worth_it(picked) || rows.is_empty() {
            return Ok(false);
        }
        self.asked.fetch_add(rows.len(), Ordering::Relaxed);
        let mut all_asked = true;
        match &self.passes {
            Passes::Bitmap { least, bits } => all_asked = retain_bits(*least, bits, values, rows),
            Passes::If(condition) => {
                let (first, last) = (rows[0] as usize, rows[rows.len() - 1] as usize);
                let asked = match last - first + 1 == rows.len() {
                    true => values.slice(first, rows.len()),
                    false => take(values.as_ref(), &UInt32Array::from(rows.clone()), None)?,
                };
                match condition.evaluate(asked) {
                    Some(held) => {
                        let held = true_only(&held);
                        keep_where(rows, |at, _| held.value(at));
                    }
                    None => all_asked = false,
                }
            }
            Passes::Text(condition, last, word) => {
                if let Some(codes) = known_codes(condition, last, values) {
                    all_asked = retain_codes(&codes, values, rows);
                } else if let (Some(word), Some(texts)) = (word, values.as_string_opt::<i32>()) {
                    retain_with(word, texts, rows);
                } else {
                    all_asked = false;
                }
            }
        }
        self.kept.fetch_add(rows.len(), Ordering::Relaxed);
        Ok(all_asked)
    }
}

/// The condition, as one on the only column that it is about, and that column's place.
fn on_one_column(
    condition: &Arc<dyn PhysicalExpr>,
    fields: &[FieldRef],
) -> Option<(usize, Condition)> {
    let columns = collect_columns(condition);
    let name = columns.iter().next().filter(|_| columns.len() == 1)?.name();
    let column = fields.iter().position(|field| field.name() == name)?;
    let schema = Arc::new(Schema::new(vec![Arc::clone(&fields[column])]));
    let holds = reassign_expr_columns(Arc::clone(condition), &schema).ok()?;
    Some((column, Condition { holds, schema }))
}

/// What the condition says of a kept column's different values, from the last time if they are the
/// same; `None` if the column is not kept by its different values.
fn known_codes(
    condition: &Condition,
    last: &Mutex<Option<Codes>>,
    column: &ArrayRef,
) -> Option<Codes> {
    let values = column.as_any_dictionary_opt()?.values();
    let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
    if !last.as_ref().is_some_and(|codes| Arc::ptr_eq(&codes.values, values)) {
        *last = condition.codes(values);
    }
    last.clone()
}

/// The word of `column LIKE '%word%'`.
fn word_of(condition: &Arc<dyn PhysicalExpr>) -> Option<Box<Finder<'static>>> {
    let like = condition.downcast_ref::<LikeExpr>()?;
    if like.negated() || like.case_insensitive() || !like.expr().is::<Column>() {
        return None;
    }
    let pattern = like.pattern().downcast_ref::<Literal>()?.value().try_as_str()??;
    let word = pattern.strip_prefix('%')?.strip_suffix('%')?;
    let is_plain = !word.is_empty() && !word.contains(['%', '_', '\\']);
    is_plain.then(|| Box::new(Finder::new(word).into_owned()))
}

/// The row, from `first` to `last`, whose text `place` is in: mostly it is near the first.
fn row_at(offsets: &[i32], first: usize, last: usize, place: usize) -> usize {
    let ends = |row: usize| offsets[row + 1] as usize <= place;
    let (mut low, mut step) = (first, 1);
    while low + step <= last && ends(low + step - 1) {
        low += step;
        step *= 2;
    }
    let high = (low + step).min(last + 1);
    low + offsets[low + 1..=high].partition_point(|start| *start as usize <= place)
}

/// Keeps those of `rows` whose text has the word.
fn retain_with(word: &Finder, texts: &StringArray, rows: &mut Vec<u32>) {
    let (Some(first), Some(last)) = (rows.first().copied(), rows.last().copied()) else { return };
    if (last - first) as usize + 1 > rows.len() {
        let has =
            |row: usize| texts.is_valid(row) && word.find(texts.value(row).as_bytes()).is_some();
        rows.retain(|row| has(*row as usize));
        return;
    }
    rows.clear();
    let (offsets, bytes) = (texts.value_offsets(), texts.value_data());
    let end = offsets[last as usize + 1] as usize;
    let (mut row, mut at) = (first as usize, offsets[first as usize] as usize);
    while let Some(found) = word.find(&bytes[at..end]) {
        let place = at + found;
        row = row_at(offsets, row, last as usize, place);
        let row_end = offsets[row + 1] as usize;
        if place + word.needle().len() > row_end {
            // Half in one text and half in the next.
            at = place + 1;
            continue;
        }
        if texts.is_valid(row) {
            rows.push(row as u32);
        }
        at = row_end;
    }
}

/// Keeps those of `rows` whose code passes; false if the codes are of another type.
fn retain_codes(codes: &Codes, column: &ArrayRef, rows: &mut Vec<u32>) -> bool {
    let keys = column.as_any_dictionary().keys();
    match keys.data_type() {
        DataType::UInt8 => retain_codes_of::<UInt8Type>(codes, keys, rows),
        DataType::UInt16 => retain_codes_of::<UInt16Type>(codes, keys, rows),
        _ => return false,
    }
    true
}

fn retain_codes_of<T: ArrowPrimitiveType>(codes: &Codes, keys: &dyn Array, rows: &mut Vec<u32>)
where
    T::Native: Into<u64>,
{
    let keys = keys.as_primitive::<T>();
    let (numbers, nulls) = (keys.values(), keys.nulls());
    keep_where(rows, |_, row| {
        let number: u64 = numbers[row].into();
        // The number of a NULL means nothing.
        match nulls {
            Some(nulls) if nulls.is_null(row) => codes.null,
            _ => codes.pass[number as usize],
        }
    });
}

/// Keeps those of `rows` of which `passes` says so, given their places in `rows` and the rows. Without a
/// branch: whether a row stays is as good as random.
fn keep_where(rows: &mut Vec<u32>, passes: impl Fn(usize, usize) -> bool) {
    let mut kept = 0;
    for at in 0..rows.len() {
        let row = rows[at];
        rows[kept] = row;
        kept += usize::from(passes(at, row as usize));
    }
    rows.truncate(kept);
}

/// Keeps those of `rows` whose bit is set; all, and false, if the column is of another type.
fn retain_bits(least: i64, bits: &[u64], values: &ArrayRef, rows: &mut Vec<u32>) -> bool {
    match values.data_type() {
        DataType::Int8 => retain_bits_of::<Int8Type>(least, bits, values, rows),
        DataType::Int16 => retain_bits_of::<Int16Type>(least, bits, values, rows),
        DataType::Int32 => retain_bits_of::<Int32Type>(least, bits, values, rows),
        DataType::Int64 => retain_bits_of::<Int64Type>(least, bits, values, rows),
        DataType::UInt8 => retain_bits_of::<UInt8Type>(least, bits, values, rows),
        DataType::UInt16 => retain_bits_of::<UInt16Type>(least, bits, values, rows),
        DataType::UInt32 => retain_bits_of::<UInt32Type>(least, bits, values, rows),
        _ => return false,
    }
    true
}

fn retain_bits_of<T: ArrowPrimitiveType>(
    least: i64,
    bits: &[u64],
    values: &ArrayRef,
    rows: &mut Vec<u32>,
) where
    T::Native: Into<i64>,
{
    let values = values.as_primitive::<T>();
    let (keys, nulls) = (values.values(), values.nulls());
    let holds = |key: i64| {
        let bit = key.wrapping_sub(least) as u64;
        bits.get((bit / 64) as usize).is_some_and(|word| word >> (bit % 64) & 1 == 1)
    };
    keep_where(rows, |_, row| holds(keys[row].into()));
    if let Some(nulls) = nulls {
        rows.retain(|row| nulls.is_valid(*row as usize));
    }
}

fn whole_number(value: &ScalarValue) -> Option<i64> {
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

/// Appends to `found` the rows of a range that pass all row_filters, and says which they were asked by.
/// `column` has the kept values of a column, if they differ from row to row.
pub(crate) fn select<'v>(
    row_filters: &[RowFilter],
    column: impl Fn(usize) -> Option<&'v ArrayRef>,
    range: Range<usize>,
    found: &mut Vec<u32>,
) -> Result<AppliedFilters> {
    let mut rows: Vec<u32> = (range.start as u32..range.end as u32).collect();
    let mut passed = 0;
    for (number, one) in row_filters.iter().enumerate() {
        if let Some(values) = column(one.column) {
            let picked = rows.len() < range.len();
            let all_asked = one.retain(values, picked, &mut rows)?;
            passed |=
                AppliedFilters::from(all_asked).checked_shl(number as u32).unwrap_or_default();
        }
    }
    found.append(&mut rows);
    Ok(passed)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Float64Array, Int32Array, StringViewArray, UInt32Array};
    use datafusion::arrow::datatypes::{Field, Schema};
    use datafusion::logical_expr::Operator;
    use datafusion::physical_expr::expressions::{binary, cast, col, in_list, is_null, like, lit};

    use super::*;
    use crate::cache::dictionary::compact;

    fn members(keys: &[Option<i32>], negated: bool) -> Option<RowFilter> {
        let field = Arc::new(Field::new("k", DataType::Int32, true));
        let schema = Schema::new(vec![Arc::clone(&field)]);
        let list = keys.iter().map(|key| lit(ScalarValue::Int32(*key))).collect();
        let list = in_list(col("k", &schema).unwrap(), list, &negated, &schema).unwrap();
        RowFilter::of_list(&list, &[field])
    }

    fn check(row_filter: &RowFilter, values: ArrayRef, range: Range<usize>, expected: &[u32]) {
        let mut found = Vec::new();
        select(std::slice::from_ref(row_filter), |_| Some(&values), range, &mut found).unwrap();
        assert_eq!(found, expected);
    }

    #[test]
    fn rows_stay_whose_keys_are_there() {
        let some = members(&[Some(-3), None, Some(70), Some(0)], false).unwrap();
        let values = [-3, 4, 70, 71, i32::MIN, i32::MAX, -4, 0].map(Some);
        check(&some, Arc::new(Int32Array::from(values.to_vec())), 0..8, &[0, 2, 7]);
        check(&some, Arc::new(Int32Array::from(values.to_vec())), 1..3, &[2]);
        check(&some, Arc::new(Int32Array::from(vec![None, Some(0), None])), 0..3, &[1]);
        check(&some, Arc::new(UInt32Array::from(vec![u32::MAX, 70])), 0..2, &[1]);
        // What is no whole number is left to the join.
        check(&some, Arc::new(StringArray::from(vec!["a", "b"])), 0..2, &[0, 1]);
    }

    #[test]
    fn text_that_is_kept_as_numbers_is_asked_about_once_per_value() {
        let field = Arc::new(Field::new("t", DataType::Utf8View, true));
        let schema = Schema::new(vec![Arc::clone(&field)]);
        let column = col("t", &schema).unwrap();
        let texts = StringViewArray::from(vec![Some("a"), None, Some("b"), Some("a"), Some("c")]);
        let kept = compact(&(Arc::new(texts.clone()) as ArrayRef));
        assert!(kept.as_any_dictionary_opt().is_some());
        let a = lit(ScalarValue::Utf8View(Some("a".into())));
        let is_a = binary(column.clone(), Operator::Eq, a, &schema).unwrap();
        let conditions = [(is_a, vec![0, 3]), (is_null(column.clone()).unwrap(), vec![1])];
        for (condition, expected) in conditions {
            let row_filter = RowFilter::of_filter(&condition, &[Arc::clone(&field)]).unwrap();
            check(&row_filter, Arc::clone(&kept), 0..5, &expected);
            check(&row_filter, Arc::clone(&kept), 0..5, &expected);
            // Long text stays where it is.
            check(&row_filter, Arc::new(texts.clone()), 0..5, &[0, 1, 2, 3, 4]);
        }
        // A condition that fails on some value is left to the filter.
        let number = cast(column, &schema, DataType::Int32).unwrap();
        let failing = binary(number, Operator::Gt, lit(1), &schema).unwrap();
        let row_filter = RowFilter::of_filter(&failing, &[field]).unwrap();
        check(&row_filter, kept, 0..5, &[0, 1, 2, 3, 4]);
    }

    /// What rows have passed is said only if each of them was asked.
    #[test]
    fn filters_that_rows_have_passed_are_known() {
        let fields: Vec<FieldRef> = [("n", DataType::Int32), ("t", DataType::Utf8View)]
            .map(|(name, kind)| Arc::new(Field::new(name, kind, true)))
            .to_vec();
        let schema = Schema::new(fields.clone());
        let column = |name| col(name, &schema).unwrap();
        let some = lit(ScalarValue::Utf8View(Some("%a%".into())));
        let like = like(false, false, column("t"), some, &schema).unwrap();
        let large = binary(column("n"), Operator::Gt, lit(1), &schema).unwrap();
        let number = cast(column("t"), &schema, DataType::Int32).unwrap();
        let failing = binary(number, Operator::Gt, lit(1), &schema).unwrap();
        let conditions = [Arc::clone(&like), Arc::clone(&large), Arc::clone(&failing)];
        let row_filters = RowFilter::of(&conditions, &fields).unwrap();
        let place = |condition| RowFilter::position(&row_filters, condition).unwrap() as u32;
        let numbers: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), Some(2), None, Some(3)]));
        let values = vec!["a", "a", "a", "b"];
        let end_to_end: ArrayRef = Arc::new(StringArray::from(values.clone()));
        let as_read: ArrayRef = Arc::new(StringViewArray::from(values));
        let select = |texts: &ArrayRef| {
            let mut found = Vec::new();
            let column = |column| Some(if column == 0 { &numbers } else { texts });
            (select(&row_filters, column, 0..4, &mut found).unwrap(), found)
        };
        let both = 1 << place(&like) | 1 << place(&large);
        assert_eq!(select(&compact(&as_read)), (both, vec![1]));
        assert_eq!(select(&end_to_end), (both, vec![1]));
        assert_eq!(select(&as_read), (1 << place(&large), vec![1, 3]));
        let other = binary(column("n"), Operator::Gt, lit(2), &schema).unwrap();
        assert!(RowFilter::position(&row_filters, &other).is_none());
    }

    /// Words at every place, over borders, in empty text and in what a NULL hides.
    #[test]
    fn words_are_found_in_text_that_is_kept_end_to_end() {
        let texts = [
            Some("ab"),
            Some("a"),
            Some("ba"),
            Some(""),
            None,
            Some("xxab"),
            Some("abab"),
            Some("b"),
            Some("aab"),
            Some("a"),
            Some(""),
            Some("b"),
            None,
            Some("ab"),
        ];
        let kept: ArrayRef = Arc::new(StringArray::from(texts.to_vec()));
        let hidden = StringArray::new(
            kept.as_string::<i32>().offsets().clone(),
            kept.as_string::<i32>().values().clone(),
            Some(
                (0..texts.len())
                    .map(|row| row != 5 && texts[row].is_some())
                    .collect::<Vec<_>>()
                    .into(),
            ),
        );
        let field = Arc::new(Field::new("t", DataType::Utf8View, true));
        let schema = Schema::new(vec![Arc::clone(&field)]);
        let column = col("t", &schema).unwrap();
        for pattern in ["%ab%", "%b%", "%xxab%", "%abab%", "%ba%", "%c%"] {
            let literal = lit(ScalarValue::Utf8View(Some(pattern.into())));
            let condition = like(false, false, column.clone(), literal, &schema).unwrap();
            let row_filter = RowFilter::of_filter(&condition, &[Arc::clone(&field)]).unwrap();
            let word = pattern.trim_matches('%');
            let has = |row: &u32| texts[*row as usize].is_some_and(|text| text.contains(word));
            for range in [0..14, 3..9, 5..6, 12..14] {
                let all = range.start as u32..range.end as u32;
                let expected: Vec<u32> = all.clone().filter(has).collect();
                check(&row_filter, Arc::clone(&kept), range.clone(), &expected);
                let visible: Vec<u32> = expected.iter().copied().filter(|row| *row != 5).collect();
                check(&row_filter, Arc::new(hidden.clone()), range, &visible);
                let mut some: Vec<u32> = all.filter(|row| row % 3 != 1).collect();
                row_filter.retain(&kept, false, &mut some).unwrap();
                let expected = expected.into_iter().filter(|row| row % 3 != 1);
                assert_eq!(some, expected.collect::<Vec<_>>());
            }
        }
        for pattern in ["ab%", "%a_b%", "%", "%%", "%a%b%"] {
            let literal = lit(ScalarValue::Utf8View(Some(pattern.into())));
            let condition = like(false, false, column.clone(), literal, &schema).unwrap();
            assert!(word_of(&condition).is_none(), "{pattern}");
        }
    }

    #[test]
    fn numbers_are_asked_in_pieces_and_null_is_no() {
        let field = Arc::new(Field::new("n", DataType::Float64, true));
        let schema = Schema::new(vec![Arc::clone(&field)]);
        let condition =
            binary(col("n", &schema).unwrap(), Operator::Gt, lit(1.5), &schema).unwrap();
        let row_filter = RowFilter::of_filter(&condition, &[field]).unwrap();
        let values = Float64Array::from(vec![Some(1.0), Some(2.0), None, Some(f64::NAN)]);
        check(&row_filter, Arc::new(values), 0..4, &[1, 3]);
    }

    #[test]
    fn a_join_that_drops_few_rows_is_not_asked_any_more() {
        let one = members(&[Some(1)], false).unwrap();
        let rows = TRIED_ROWS + 1;
        let few: ArrayRef = Arc::new(Int32Array::from(vec![1; rows]));
        check(&one, few, 0..rows, &(0..rows as u32).collect::<Vec<_>>());
        assert!(!one.is_worth_it(false) && !one.is_worth_it(true));
        check(&one, Arc::new(Int32Array::from(vec![2])), 0..1, &[0]);
    }

    #[test]
    fn a_tenth_is_worth_dropping_where_rows_are_copied_anyway() {
        let one = members(&[Some(1)], false).unwrap();
        let tenth = |row| if row % 10 == 0 { 2 } else { 1 };
        let rows: ArrayRef = Arc::new((0..TRIED_ROWS as i32).map(tenth).collect::<Int32Array>());
        let mut all = (0..TRIED_ROWS as u32).collect();
        one.retain(&rows, false, &mut all).unwrap();
        assert!(!one.is_worth_it(false) && one.is_worth_it(true));
    }

    #[test]
    fn what_is_no_short_list_of_whole_numbers_is_left_to_the_join() {
        assert!(members(&[Some(1)], true).is_none());
        assert!(members(&[None], false).is_none());
        assert!(members(&[Some(i32::MIN), Some(i32::MAX)], false).is_none());
        assert!(members(&[Some(i32::MAX)], false).is_some());
    }
}
