//! What joins know of their small sides, asked of kept columns before anything is copied.
//!
//! A join tells the scan of its large side which keys there are on the small one. A list of whole numbers
//! becomes a bitmap; of a longer one the join's own table is asked. A row whose key is not there would be
//! dropped by the join, so it is not handed out.
//!
//! # Invariants
//! - Only speed depends on it: the join looks every key up again.
//! - A join that drops few rows is not asked any more.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, RecordBatch, UInt32Array,
};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::{
    DataType, FieldRef, Int8Type, Int16Type, Int32Type, Int64Type, Schema, SchemaRef, UInt8Type,
    UInt16Type, UInt32Type,
};
use datafusion::common::{Result, ScalarValue};
use datafusion::physical_expr::expressions::{
    Column, DynamicFilterPhysicalExpr, InListExpr, Literal,
};
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns};
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};
use datafusion::physical_plan::joins::HashTableLookupExpr;

/// Bits of the longest bitmap: 4 MiB, which the second-level caches of a few cores hold.
const BITS_MAX: i128 = 1 << 25;
/// Rows after which it is known how many of them a join drops.
const TRIED_ROWS: usize = 1 << 16;

/// The keys of one join's small side.
pub(crate) struct Members {
    /// Among the columns that the scan reads.
    column: usize,
    keys: Keys,
    asked: AtomicUsize,
    kept: AtomicUsize,
}

enum Keys {
    Bitmap {
        least: i64,
        bits: Vec<u64>,
    },
    /// A condition on a column that has the schema to itself.
    Table {
        holds: Arc<dyn PhysicalExpr>,
        schema: SchemaRef,
    },
}

impl Members {
    /// What the joins above a scan say by now; `fields` are the columns that it reads.
    pub fn of(conditions: &[Arc<dyn PhysicalExpr>], fields: &[FieldRef]) -> Result<Vec<Self>> {
        let mut found = Vec::new();
        for condition in conditions {
            let Some(filter) = condition.downcast_ref::<DynamicFilterPhysicalExpr>() else {
                continue;
            };
            let current = filter.current()?;
            for part in split_conjunction(&current) {
                found.extend(Self::of_list(part, fields).or_else(|| Self::of_table(part, fields)));
            }
        }
        // A bitmap is faster, so it goes first.
        found.sort_by_key(|one| matches!(one.keys, Keys::Table { .. }));
        Ok(found)
    }

    fn new(column: usize, keys: Keys) -> Self {
        Self { column, keys, asked: AtomicUsize::new(0), kept: AtomicUsize::new(0) }
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
        Some(Self::new(column, Keys::Bitmap { least, bits }))
    }

    fn of_table(condition: &Arc<dyn PhysicalExpr>, fields: &[FieldRef]) -> Option<Self> {
        condition.downcast_ref::<HashTableLookupExpr>()?;
        let columns = collect_columns(condition);
        let name = columns.iter().next().filter(|_| columns.len() == 1)?.name();
        let column = fields.iter().position(|field| field.name() == name)?;
        if !fields[column].data_type().is_integer() {
            return None;
        }
        let schema = Arc::new(Schema::new(vec![Arc::clone(&fields[column])]));
        let holds = reassign_expr_columns(Arc::clone(condition), &schema).ok()?;
        Some(Self::new(column, Keys::Table { holds, schema }))
    }

    /// Does it drop a quarter of the rows, as far as is known?
    fn is_worth_it(&self) -> bool {
        let asked = self.asked.load(Ordering::Relaxed);
        asked < TRIED_ROWS || self.kept.load(Ordering::Relaxed) < asked / 4 * 3
    }

    /// Keeps those of `rows` whose key is there, or all.
    fn retain(&self, values: &ArrayRef, rows: &mut Vec<u32>) -> Result<()> {
        if !self.is_worth_it() || rows.is_empty() {
            return Ok(());
        }
        self.asked.fetch_add(rows.len(), Ordering::Relaxed);
        match &self.keys {
            Keys::Bitmap { least, bits } => retain_bits(*least, bits, values, rows),
            Keys::Table { holds, schema } => {
                let keys = take(values.as_ref(), &UInt32Array::from(rows.clone()), None)?;
                if let Ok(batch) = RecordBatch::try_new(Arc::clone(schema), vec![keys]) {
                    let held = holds.evaluate(&batch)?.into_array(rows.len())?;
                    if let Some(held) = held.as_boolean_opt() {
                        let mut at = 0..;
                        rows.retain(|_| at.next().is_none_or(|at| held.value(at)));
                    }
                }
            }
        }
        self.kept.fetch_add(rows.len(), Ordering::Relaxed);
        Ok(())
    }
}

/// Keeps those of `rows` whose bit is set; all if the column is of another type.
fn retain_bits(least: i64, bits: &[u64], values: &ArrayRef, rows: &mut Vec<u32>) {
    match values.data_type() {
        DataType::Int8 => retain_bits_of::<Int8Type>(least, bits, values, rows),
        DataType::Int16 => retain_bits_of::<Int16Type>(least, bits, values, rows),
        DataType::Int32 => retain_bits_of::<Int32Type>(least, bits, values, rows),
        DataType::Int64 => retain_bits_of::<Int64Type>(least, bits, values, rows),
        DataType::UInt8 => retain_bits_of::<UInt8Type>(least, bits, values, rows),
        DataType::UInt16 => retain_bits_of::<UInt16Type>(least, bits, values, rows),
        DataType::UInt32 => retain_bits_of::<UInt32Type>(least, bits, values, rows),
        _ => {}
    }
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
    // Without a branch: whether a row stays is as good as random.
    let mut kept = 0;
    for at in 0..rows.len() {
        let row = rows[at];
        rows[kept] = row;
        kept += usize::from(holds(keys[row as usize].into()));
    }
    rows.truncate(kept);
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

/// Appends to `found` the rows of a range that no join drops. `column` has the kept values of a column,
/// if they differ from row to row.
pub(crate) fn select<'v>(
    members: &[Members],
    column: impl Fn(usize) -> Option<&'v ArrayRef>,
    range: Range<usize>,
    found: &mut Vec<u32>,
) -> Result<()> {
    let mut rows: Vec<u32> = (range.start as u32..range.end as u32).collect();
    for one in members {
        if let Some(values) = column(one.column) {
            one.retain(values, &mut rows)?;
        }
    }
    found.append(&mut rows);
    Ok(())
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Int32Array, StringArray, UInt32Array};
    use datafusion::arrow::datatypes::{Field, Schema};
    use datafusion::physical_expr::expressions::{col, in_list, lit};

    use super::*;

    fn members(keys: &[Option<i32>], negated: bool) -> Option<Members> {
        let field = Arc::new(Field::new("k", DataType::Int32, true));
        let schema = Schema::new(vec![Arc::clone(&field)]);
        let list = keys.iter().map(|key| lit(ScalarValue::Int32(*key))).collect();
        let list = in_list(col("k", &schema).unwrap(), list, &negated, &schema).unwrap();
        Members::of_list(&list, &[field])
    }

    fn check(members: &Members, values: ArrayRef, range: Range<usize>, expected: &[u32]) {
        let mut found = Vec::new();
        select(std::slice::from_ref(members), |_| Some(&values), range, &mut found).unwrap();
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
    fn a_join_that_drops_few_rows_is_not_asked_any_more() {
        let one = members(&[Some(1)], false).unwrap();
        let rows = TRIED_ROWS + 1;
        let few: ArrayRef = Arc::new(Int32Array::from(vec![1; rows]));
        check(&one, few, 0..rows, &(0..rows as u32).collect::<Vec<_>>());
        assert!(!one.is_worth_it());
        check(&one, Arc::new(Int32Array::from(vec![2])), 0..1, &[0]);
    }

    #[test]
    fn what_is_no_short_list_of_whole_numbers_is_left_to_the_join() {
        assert!(members(&[Some(1)], true).is_none());
        assert!(members(&[None], false).is_none());
        assert!(members(&[Some(i32::MIN), Some(i32::MAX)], false).is_none());
        assert!(members(&[Some(i32::MAX)], false).is_some());
    }
}
