//! Columns as they are kept: text of few different values as small numbers, other text end to end.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, DictionaryArray, MutableArrayData, PrimitiveArray, StringArray,
    StringViewArray, StringViewBuilder, UInt32Array, make_array,
};
use datafusion::arrow::buffer::{Buffer, OffsetBuffer};
use datafusion::arrow::compute::{cast, take};
use datafusion::arrow::datatypes::{ArrowDictionaryKeyType, DataType, UInt8Type, UInt16Type};
use datafusion::common::{HashMap, Result};

/// Bytes of all different values that are longer than a view holds. Every piece that is handed out
/// refers to them, and counts as if it had them to itself.
const LONG_VALUES_BYTES: usize = 64 << 10;

/// The same values in less memory, if they are text.
pub(crate) fn compact(values: &ArrayRef) -> ArrayRef {
    let Some(texts) = values.as_string_view_opt() else { return Arc::clone(values) };
    // Parquet's dictionary gives equal text in a row group equal views.
    let mut codes: HashMap<u128, u32> = HashMap::default();
    let mut numbers = Vec::with_capacity(texts.len());
    let mut rows = Vec::new();
    let mut last: Option<(u128, u32)> = None;
    for (row, view) in texts.views().iter().enumerate() {
        if texts.is_null(row) {
            numbers.push(None);
            continue;
        }
        let code = match last {
            Some((same, code)) if same == *view => code,
            _ => *codes.entry(*view).or_insert_with(|| {
                rows.push(row);
                rows.len() as u32 - 1
            }),
        };
        if code > u32::from(u16::MAX) {
            return end_to_end(texts).unwrap_or_else(|| Arc::clone(values));
        }
        last = Some((*view, code));
        numbers.push(Some(code));
    }
    let long = |row: &usize| Some(texts.value(*row).len()).filter(|bytes| *bytes > 12);
    if rows.iter().filter_map(long).sum::<usize>() > LONG_VALUES_BYTES {
        return end_to_end(texts).unwrap_or_else(|| Arc::clone(values));
    }
    let mut different = StringViewBuilder::new();
    rows.iter().for_each(|row| different.append_value(texts.value(*row)));
    let different = different.finish();
    let numbers = numbers.into_iter();
    if rows.len() <= 1 << 8 {
        dictionary::<UInt8Type>(numbers.map(|n| n.map(|n| n as u8)).collect(), different)
    } else {
        dictionary::<UInt16Type>(numbers.map(|n| n.map(|n| n as u16)).collect(), different)
    }
    .unwrap_or_else(|| Arc::clone(values))
}

fn dictionary<K: ArrowDictionaryKeyType>(
    numbers: PrimitiveArray<K>,
    values: StringViewArray,
) -> Option<ArrayRef> {
    Some(Arc::new(DictionaryArray::try_new(numbers, Arc::new(values)).ok()?))
}

/// Text without room between, so that words can be looked for in all of it at once.
fn end_to_end(texts: &StringViewArray) -> Option<ArrayRef> {
    let valid = |row: usize| texts.is_valid(row);
    let length = |row: usize| if valid(row) { texts.views()[row] as u32 as usize } else { 0 };
    let total: usize = (0..texts.len()).map(length).sum();
    i32::try_from(total).ok()?;
    let mut bytes = Vec::with_capacity(total);
    for row in (0..texts.len()).filter(|row| valid(*row)) {
        bytes.extend_from_slice(texts.value(row).as_bytes());
    }
    let offsets = OffsetBuffer::from_lengths((0..texts.len()).map(length));
    let whole = StringArray::try_new(offsets, Buffer::from(bytes), texts.nulls().cloned());
    Some(Arc::new(whole.ok()?))
}

/// Rows of a kept column, of the type that the table has, in memory of their own unless they are `lent`:
/// operators that keep a piece count all memory that it refers to.
pub(crate) fn piece(values: &ArrayRef, from: usize, rows: usize, lent: bool) -> Result<ArrayRef> {
    if lent || values.as_any_dictionary_opt().is_some() {
        return as_in_table(values.slice(from, rows));
    }
    let data = values.to_data();
    let mut copy = MutableArrayData::new(vec![&data], false, rows);
    copy.try_extend(0, from, from + rows)?;
    as_in_table(make_array(copy.freeze()))
}

/// Kept values as the table has them.
fn as_in_table(kept: ArrayRef) -> Result<ArrayRef> {
    match kept.as_any_dictionary_opt() {
        Some(texts) => Ok(take(texts.values().as_ref(), texts.keys(), None)?),
        None if kept.data_type() == &DataType::Utf8 => Ok(cast(&kept, &DataType::Utf8View)?),
        None => Ok(kept),
    }
}

/// Rows of a kept column by number, of the type that the table has.
pub(crate) fn picked(values: &ArrayRef, rows: &UInt32Array) -> Result<ArrayRef> {
    as_in_table(take(values.as_ref(), rows, None)?)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Int64Array;

    use super::*;

    fn texts(rows: usize, different: usize, long: bool) -> ArrayRef {
        // As Parquet's dictionary makes them: equal text has equal views.
        let mut texts = StringViewBuilder::new().with_deduplicate_strings();
        for row in 0..rows {
            match row % (different + 1) {
                0 => texts.append_null(),
                n if long => texts.append_value(format!("a text that no view holds {n}")),
                n => texts.append_value(n.to_string()),
            }
        }
        Arc::new(texts.finish())
    }

    #[test]
    fn pieces_of_what_is_kept_are_pieces_of_what_there_was() {
        let numbers: ArrayRef =
            Arc::new((0..5000).map(|n| (n % 7 > 0).then_some(n)).collect::<Int64Array>());
        let columns = [
            (texts(5000, 4, false), 3),
            (texts(5000, 1, true), 3),
            (texts(5000, 300, true), 3),
            (texts(5000, 4000, true), 1),
            (Arc::new(StringViewArray::from(vec!["x"; 5000])) as ArrayRef, 3),
            (numbers, 0),
        ];
        for (values, smaller) in columns {
            let kept = compact(&values);
            let is_as = match kept.data_type() {
                DataType::Dictionary(..) => 3,
                DataType::Utf8 => 1,
                _ => 0,
            };
            assert_eq!(is_as, smaller);
            assert!(kept.get_array_memory_size() * smaller <= values.get_array_memory_size());
            for (from, rows) in [(0, 5000), (17, 1), (4000, 1000), (300, 0)] {
                for lent in [false, true] {
                    let piece = piece(&kept, from, rows, lent).unwrap();
                    assert_eq!(&piece, &values.slice(from, rows));
                }
            }
            let rows = UInt32Array::from(vec![4999, 3, 3, 0]);
            assert_eq!(&picked(&kept, &rows).unwrap(), &take(&values, &rows, None).unwrap());
        }
    }
}
