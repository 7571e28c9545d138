//! Rows that a plan would drop, found in kept columns before anything is copied.
//!
//! A join tells the scan of its large side which keys there are on the small one. A list of whole numbers
//! becomes a bitmap; of a longer one the join's own table is asked. A row whose key is not there would be
//! dropped by the join, so it is not handed out. Likewise for conditions on one column: where text is
//! kept as numbers, each different value is asked about once; in text that is kept end to end, the word
//! of a `LIKE '%word%'` is looked for in all of a piece at once. Ranges of whole numbers are found by bisection where
//! these are in order, which is looked at.
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
use datafusion::common::Result;
use datafusion::physical_expr::expressions::{
    Column, DynamicFilterPhysicalExpr, InListExpr, LikeExpr, Literal,
};
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns};
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::joins::HashTableLookupExpr;
use memchr::memmem::Finder;

use uplake_functions::holds as true_only;

use crate::cache::columns::SortedRuns;
use crate::scan::among_ids::AmongIds;
use crate::scan::integer_ranges::{IntegerRanges, whole_number};

/// Bits of the longest bitmap: 4 MiB, which the second-level caches of a few cores hold.
const BITS_MAX: i128 = 1 << 25;
/// Rows after which it is known how many of them are dropped.
const TRIED_ROWS: usize = 1 << 16;

/// Rows that are looked at together for whether they are in order.
const BLOCK: usize = 256;
/// Rows of a piece on average at least, if they are found by bisection: a batch is made of each.
const PIECE_ROWS: usize = 512;
/// So many pieces may be shorter.
const FEW_PIECES: usize = 16;

/// Which values of one column rows may have.
pub(crate) struct RowFilter {
    /// Among the columns that the scan reads.
    pub column: usize,
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
    /// A condition, and the ranges of whole numbers that it holds for, if it is one of those.
    If(Condition, Option<IntegerRanges>),
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
            Passes::If(..) => 2,
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
        whole.then(|| Self::new(column, Passes::If(condition, None)))
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
            kind if kind.is_primitive() => {
                let ranges = IntegerRanges::of(&condition.holds, fields[column].name());
                Passes::If(condition, ranges.filter(|_| kind.is_integer()))
            }
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

    /// Does it find rows by bisection, where its column is in order?
    pub fn asks_order(&self) -> bool {
        matches!(self.passes, Passes::If(_, Some(_)))
    }

    /// Those of `rows` that pass, found by bisection in the stretches of all rows that are in order. `None` if that cannot
    /// be or gives short runs, then all may pass.
    pub fn of_sorted(
        &self,
        values: &ArrayRef,
        rows: &Range<usize>,
        runs: &[Range<usize>],
    ) -> Option<Vec<Range<usize>>> {
        let Passes::If(_, Some(ranges)) = &self.passes else { return None };
        match values.data_type() {
            DataType::Int32 => sorted_rows::<Int32Type>(ranges, values, rows, runs),
            DataType::Int64 => sorted_rows::<Int64Type>(ranges, values, rows, runs),
            _ => None,
        }
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
            Passes::If(_, Some(ranges)) if ranges.is_faster => {
                all_asked = retain_ranges(ranges, values, rows);
            }
            Passes::If(condition, _) => {
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
    let holds = |key: i64| {
        let bit = key.wrapping_sub(least) as u64;
        bits.get((bit / 64) as usize).is_some_and(|word| word >> (bit % 64) & 1 == 1)
    };
    retain_integers(values, rows, false, holds)
}

/// Keeps those of `rows` that are in the ranges, likewise.
fn retain_ranges(ranges: &IntegerRanges, values: &ArrayRef, rows: &mut Vec<u32>) -> bool {
    retain_integers(values, rows, ranges.null, |number| ranges.contains(number))
}

/// Keeps those of `rows` whose number `holds`, and those of NULL if `null`; all, and false, if the column has no numbers.
fn retain_integers(
    values: &ArrayRef,
    rows: &mut Vec<u32>,
    null: bool,
    holds: impl Fn(i64) -> bool,
) -> bool {
    match values.data_type() {
        DataType::Int8 => retain_integers_of::<Int8Type>(values, rows, null, holds),
        DataType::Int16 => retain_integers_of::<Int16Type>(values, rows, null, holds),
        DataType::Int32 => retain_integers_of::<Int32Type>(values, rows, null, holds),
        DataType::Int64 => retain_integers_of::<Int64Type>(values, rows, null, holds),
        DataType::UInt8 => retain_integers_of::<UInt8Type>(values, rows, null, holds),
        DataType::UInt16 => retain_integers_of::<UInt16Type>(values, rows, null, holds),
        DataType::UInt32 => retain_integers_of::<UInt32Type>(values, rows, null, holds),
        _ => return false,
    }
    true
}

fn retain_integers_of<T: ArrowPrimitiveType>(
    values: &ArrayRef,
    rows: &mut Vec<u32>,
    null: bool,
    holds: impl Fn(i64) -> bool,
) where
    T::Native: Into<i64>,
{
    let values = values.as_primitive::<T>();
    let numbers = values.values();
    match values.nulls() {
        // The number of a NULL means nothing.
        Some(nulls) => keep_where(rows, |_, row| match nulls.is_null(row) {
            true => null,
            false => holds(numbers[row].into()),
        }),
        None => keep_where(rows, |_, row| holds(numbers[row].into())),
    }
}

fn sorted_rows<T: ArrowPrimitiveType>(
    ranges: &IntegerRanges,
    values: &ArrayRef,
    rows: &Range<usize>,
    runs: &[Range<usize>],
) -> Option<Vec<Range<usize>>>
where
    T::Native: Into<i64>,
{
    let values = values.as_primitive_opt::<T>()?.values();
    let mut found: Vec<Range<usize>> = Vec::new();
    let first = runs.partition_point(|run| run.end <= rows.start);
    for run in runs[first..].iter().take_while(|run| run.start < rows.end) {
        let run = run.start.max(rows.start)..run.end.min(rows.end);
        let of_run = values.get(run.clone())?;
        let of_border = |border: i64| run.start + of_run.partition_point(|n| (*n).into() < border);
        for next in ranges.between(of_border, run.clone()) {
            match found.last_mut() {
                Some(last) if last.end == next.start => last.end = next.end,
                _ => found.push(next),
            }
        }
    }
    let left: usize = found.iter().map(Range::len).sum();
    (found.len() <= FEW_PIECES + left / PIECE_ROWS).then_some(found)
}

/// The longest stretches of a column of whole numbers that are in order; `None` if there are many, or NULLs.
pub(crate) fn sorted_runs_of(values: &ArrayRef) -> Option<SortedRuns> {
    if values.null_count() > 0 {
        return None;
    }
    let runs = match values.data_type() {
        DataType::Int32 => sorted_runs(values.as_primitive::<Int32Type>().values()),
        DataType::Int64 => sorted_runs(values.as_primitive::<Int64Type>().values()),
        _ => None,
    };
    runs.map(SortedRuns::from)
}

fn sorted_runs<N: PartialOrd>(values: &[N]) -> Option<Vec<Range<usize>>> {
    let (mut runs, mut start) = (Vec::new(), 0);
    for at in (0..values.len()).step_by(BLOCK) {
        // With the first of the next.
        let end = (at + BLOCK + 1).min(values.len());
        if values[at..end].is_sorted() {
            continue;
        }
        for next in at + 1..end {
            if values[next] < values[next - 1] {
                runs.push(start..next);
                start = next;
            }
        }
        if runs.len() > 1 + at / PIECE_ROWS {
            return None;
        }
    }
    runs.push(start..values.len());
    Some(runs)
}

/// The filter's bit, if there is one for it.
pub(crate) fn bit_of(row_filter: usize) -> AppliedFilters {
    AppliedFilters::from(true).checked_shl(row_filter as u32).unwrap_or_default()
}

/// Appends to `found` the rows of a range that pass all row_filters but those of `passed`, which all of them do; says
/// which they have passed then. `column` has the kept values of a column, if they differ from row to row.
pub(crate) fn select<'v>(
    row_filters: &[RowFilter],
    mut passed: AppliedFilters,
    column: impl Fn(usize) -> Option<&'v ArrayRef>,
    range: Range<usize>,
    found: &mut Vec<u32>,
) -> Result<AppliedFilters> {
    let mut rows: Vec<u32> = (range.start as u32..range.end as u32).collect();
    for (number, one) in row_filters.iter().enumerate() {
        if passed & bit_of(number) == 0
            && let Some(values) = column(one.column)
        {
            let picked = rows.len() < range.len();
            if one.retain(values, picked, &mut rows)? {
                passed |= bit_of(number);
            }
        }
    }
    found.append(&mut rows);
    Ok(passed)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Float64Array, Int32Array, StringViewArray, UInt32Array};
    use datafusion::arrow::datatypes::{Field, Schema};
    use datafusion::common::ScalarValue;
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
        select(std::slice::from_ref(row_filter), 0, |_| Some(&values), range, &mut found).unwrap();
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
    fn several_ranges_are_one_look_up() {
        let field = Arc::new(Field::new("n", DataType::Int32, true));
        let schema = Schema::new(vec![Arc::clone(&field)]);
        let column = || col("n", &schema).unwrap();
        let compared = |op, number: i32| binary(column(), op, lit(number), &schema).unwrap();
        let joined = |one, op, other| binary(one, op, other, &schema).unwrap();
        let range = |from, to| {
            joined(compared(Operator::GtEq, from), Operator::And, compared(Operator::Lt, to))
        };
        let two = joined(range(0, 8), Operator::Or, range(16, 24));
        let or_null = joined(Arc::clone(&two), Operator::Or, is_null(column()).unwrap());
        let numbers = vec![Some(7), None, Some(8), Some(16), Some(i32::MAX), Some(-1), Some(0)];
        let numbers: ArrayRef = Arc::new(Int32Array::from(numbers));
        for (condition, expected) in [(two, vec![0, 3, 6]), (or_null, vec![0, 1, 3, 6])] {
            let row_filters = RowFilter::of(&[Arc::clone(&condition)], &[Arc::clone(&field)]);
            let row_filters = row_filters.unwrap();
            assert!(matches!(&row_filters[0].passes, Passes::If(_, Some(set)) if set.is_faster));
            let mut found = Vec::new();
            let passed = select(&row_filters, 0, |_| Some(&numbers), 0..7, &mut found).unwrap();
            assert_eq!((passed, found), (1, expected));
            assert_eq!(RowFilter::position(&row_filters, &condition), Some(0));
        }
    }

    #[test]
    fn ranges_of_numbers_in_order_are_bisected() {
        let field = Arc::new(Field::new("n", DataType::Int32, true));
        let schema = Schema::new(vec![Arc::clone(&field)]);
        let compared =
            |op, number: i32| binary(col("n", &schema).unwrap(), op, lit(number), &schema).unwrap();
        let joined = |one, op, other| binary(one, op, other, &schema).unwrap();
        let range = |from, to| {
            joined(compared(Operator::GtEq, from), Operator::And, compared(Operator::Lt, to))
        };
        let two = joined(range(0, 8), Operator::Or, range(16, 24));
        let all =
            [two, compared(Operator::Lt, 5), compared(Operator::Eq, 7), compared(Operator::Gt, 99)];
        for condition in all {
            let filter = &RowFilter::of(&[condition], &[Arc::clone(&field)]).unwrap()[0];
            let of_sorted = |numbers: &[Option<i32>], rows| {
                let values: ArrayRef = Arc::new(Int32Array::from(numbers.to_vec()));
                filter.of_sorted(&values, &rows, &sorted_runs_of(&values)?)
            };
            let numbers: Vec<_> = [-1, 0, 7, 7, 8, 16, 17, 23, 24, i32::MAX].map(Some).to_vec();
            let array: ArrayRef = Arc::new(Int32Array::from(numbers.clone()));
            for from in 0..=numbers.len() {
                for to in from..=numbers.len() {
                    let mut expected: Vec<u32> = (from as u32..to as u32).collect();
                    filter.retain(&array, true, &mut expected).unwrap();
                    let found = of_sorted(&numbers, from..to).unwrap();
                    assert!(found.iter().all(|run| !run.is_empty()), "{found:?}");
                    let found: Vec<u32> =
                        found.into_iter().flatten().map(|row| row as u32).collect();
                    assert_eq!(found, expected, "{from}..{to}");
                }
            }
            assert_eq!(of_sorted(&[Some(3), None], 0..2), None);
            // In order for a while, or hardly.
            let saws: Vec<_> = (0..6000).map(|row| Some(row % 3000 / 100)).collect();
            let array: ArrayRef = Arc::new(Int32Array::from(saws.clone()));
            let mut expected: Vec<u32> = (100..5900).collect();
            filter.retain(&array, true, &mut expected).unwrap();
            let found = of_sorted(&saws, 100..5900).unwrap();
            let found: Vec<u32> = found.into_iter().flatten().map(|row| row as u32).collect();
            assert_eq!(found, expected);
            let saws: Vec<_> = (0..6000).map(|row| Some(row % 100)).collect();
            assert_eq!(of_sorted(&saws, 0..6000), None);
        }
    }

    #[test]
    fn stretches_in_order_are_found() {
        let mut random = 7u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        for _ in 0..300 {
            let (mut values, mut expected) = (Vec::new(), Vec::new());
            for turn in 0..next(4) {
                // Each begins below the end of the one before.
                let rows = 1000 + next(600) as i64;
                let start = values.len();
                values.extend((0..rows).map(|row| row / 3 - turn as i64));
                expected.push(start..values.len());
            }
            if values.is_empty() {
                expected.push(0..0);
            }
            assert_eq!(sorted_runs(&values), Some(expected));
        }
        assert_eq!(sorted_runs(&[3, 2, 1]), None);
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
            (select(&row_filters, 0, column, 0..4, &mut found).unwrap(), found)
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
