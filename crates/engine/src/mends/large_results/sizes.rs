//! How many bytes values have, and how many a row.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, GenericByteViewArray, Int64Array, OffsetSizeTrait,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::compute::kernels::length::length;
use datafusion::arrow::datatypes::{ArrowNativeType, ByteViewType, DataType, Int64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::ColumnarValue;

/// Of a text or list, beside its own: where it begins, or a view.
pub(super) const OFFSET_BYTES: u128 = 16;
/// Of a constant that is neither text nor list.
const NUMBER_BYTES: u128 = 16;

/// An argument for so many rows: a constant is repeated for each, which most functions do.
pub(super) fn of(arg: &ColumnarValue, rows: usize) -> u128 {
    match arg {
        ColumnarValue::Array(array) => of_array(array),
        ColumnarValue::Scalar(value) => of_scalar(value) * rows as u128,
    }
}

/// What is there already: nothing of a constant.
pub(super) fn of_column(arg: &ColumnarValue) -> u128 {
    match arg {
        ColumnarValue::Array(array) => of_array(array),
        ColumnarValue::Scalar(_) => 0,
    }
}

pub(super) fn of_scalar(value: &ScalarValue) -> u128 {
    match value {
        ScalarValue::Utf8(text) | ScalarValue::LargeUtf8(text) | ScalarValue::Utf8View(text) => {
            text.as_ref().map_or(0, |text| text.len() as u128)
        }
        ScalarValue::Binary(bytes)
        | ScalarValue::LargeBinary(bytes)
        | ScalarValue::BinaryView(bytes)
        | ScalarValue::FixedSizeBinary(_, bytes) => {
            bytes.as_ref().map_or(0, |bytes| bytes.len() as u128)
        }
        ScalarValue::Struct(fields) => of_array(fields.as_ref()),
        ScalarValue::Map(map) => of_array(map.as_ref()),
        ScalarValue::Dictionary(_, value) => of_scalar(value),
        other => list(other).map_or(NUMBER_BYTES, of_array),
    }
}

/// A list, as an array of it alone.
pub(super) fn list(value: &ScalarValue) -> Option<&dyn Array> {
    match value {
        ScalarValue::List(list) => Some(list.as_ref()),
        ScalarValue::LargeList(list) => Some(list.as_ref()),
        ScalarValue::FixedSizeList(list) => Some(list.as_ref()),
        _ => None,
    }
}

/// From offsets and widths; of views, which may share their bytes with others, each has its own.
pub(super) fn of_array(array: &dyn Array) -> u128 {
    let rows = array.len() as u128;
    match array.data_type() {
        DataType::Utf8 => spanned(array.as_string::<i32>().value_offsets()),
        DataType::LargeUtf8 => spanned(array.as_string::<i64>().value_offsets()),
        DataType::Binary => spanned(array.as_binary::<i32>().value_offsets()),
        DataType::LargeBinary => spanned(array.as_binary::<i64>().value_offsets()),
        DataType::Utf8View => viewed(array.as_string_view()),
        DataType::BinaryView => viewed(array.as_binary_view()),
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            of_items(list.values(), list.value_offsets())
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            of_items(list.values(), list.value_offsets())
        }
        DataType::Map(..) => {
            let map = array.as_map();
            of_items(map.entries(), map.value_offsets())
        }
        DataType::FixedSizeList(..) => of_array(array.as_fixed_size_list().values()),
        DataType::Struct(_) => array.as_struct().columns().iter().map(|c| of_array(c)).sum(),
        DataType::FixedSizeBinary(width) => rows * u128::from(width.unsigned_abs()),
        DataType::Null | DataType::Boolean => rows / 8,
        other => match other.primitive_width() {
            Some(width) => rows * width as u128,
            None => array.get_array_memory_size() as u128,
        },
    }
}

/// From the first to the last, and the offsets.
fn spanned<O: OffsetSizeTrait>(offsets: &[O]) -> u128 {
    let span = match offsets {
        [first, .., last] => last.as_usize() - first.as_usize(),
        _ => 0,
    };
    (span + size_of_val(offsets)) as u128
}

/// A view's first 32 bits are its length.
fn viewed<T: ByteViewType + ?Sized>(array: &GenericByteViewArray<T>) -> u128 {
    let long: u64 = array.views().iter().map(|view| u64::from(*view as u32)).sum();
    u128::from(long) + OFFSET_BYTES * array.len() as u128
}

fn of_items<O: OffsetSizeTrait>(items: &dyn Array, offsets: &[O]) -> u128 {
    let of_items = match offsets {
        [first, .., last] => {
            let (first, last) = (first.as_usize(), last.as_usize());
            of_array(&items.slice(first, last - first))
        }
        _ => 0,
    };
    of_items + size_of_val(offsets) as u128
}

/// How many items lists have that are in no list themselves, and how many bytes their texts.
pub(super) fn leaves(list: &dyn Array) -> (u128, u128) {
    let inside =
        |items: &ArrayRef, first: usize, last: usize| leaves(&items.slice(first, last - first));
    match list.data_type() {
        DataType::List(_) => {
            let list = list.as_list::<i32>();
            match list.value_offsets() {
                [first, .., last] => inside(list.values(), first.as_usize(), last.as_usize()),
                _ => (0, 0),
            }
        }
        DataType::LargeList(_) => {
            let list = list.as_list::<i64>();
            match list.value_offsets() {
                [first, .., last] => inside(list.values(), first.as_usize(), last.as_usize()),
                _ => (0, 0),
            }
        }
        DataType::FixedSizeList(..) => leaves(list.as_fixed_size_list().values()),
        _ => (list.len() as u128, of_array(list)),
    }
}

/// Whole numbers of rows, of which NULL counts as nothing.
pub(super) struct Numbers {
    values: ArrayRef,
    /// 0 if one is for all rows.
    step: usize,
}

impl Numbers {
    pub fn of(value: &ColumnarValue) -> Result<Self> {
        let (array, step) = match value {
            ColumnarValue::Array(array) => (Arc::clone(array), 1),
            ColumnarValue::Scalar(value) => (value.to_array()?, 0),
        };
        Ok(Self { values: cast(&array, &DataType::Int64)?, step })
    }

    pub fn same(value: i64) -> Self {
        Self { values: Arc::new(Int64Array::from(vec![value])), step: 0 }
    }

    /// Bytes of texts, or items of lists.
    pub fn lengths(value: &ColumnarValue) -> Result<Self> {
        match value {
            ColumnarValue::Array(array) => match length(array) {
                Ok(lengths) => Self::of(&ColumnarValue::Array(lengths)),
                // It has none: all are NULL.
                Err(_) => Ok(Self::same(0)),
            },
            ColumnarValue::Scalar(value) => match value.try_as_str() {
                Some(text) => Ok(Self::same(text.map_or(0, |text| text.len() as i64))),
                None => match list(value) {
                    Some(list) => {
                        Ok(Self { values: cast(&length(list)?, &DataType::Int64)?, step: 0 })
                    }
                    None => Ok(Self::same(0)),
                },
            },
        }
    }

    pub fn get(&self, row: usize) -> Option<i64> {
        let (values, at) = (self.values.as_primitive::<Int64Type>(), row * self.step);
        values.is_valid(at).then(|| values.value(at))
    }

    /// Those below 0 count as nothing, too.
    pub fn at(&self, row: usize) -> u128 {
        self.get(row).map_or(0, |value| value.max(0) as u128)
    }

    pub fn most(&self) -> u128 {
        (0..self.values.len()).map(|row| self.at(row)).max().unwrap_or_default()
    }
}

/// The text of a constant.
pub(super) fn constant(arg: &ColumnarValue) -> Option<&str> {
    match arg {
        ColumnarValue::Scalar(value) => value.try_as_str().flatten(),
        ColumnarValue::Array(_) => None,
    }
}

/// The text of one row; NULL has none.
pub(super) fn text_at(arg: &ColumnarValue, row: usize) -> Option<&str> {
    let texts = match arg {
        ColumnarValue::Scalar(_) => return constant(arg),
        ColumnarValue::Array(texts) => texts,
    };
    if texts.is_null(row) {
        return None;
    }
    match texts.data_type() {
        DataType::Utf8 => Some(texts.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => Some(texts.as_string::<i64>().value(row)),
        DataType::Utf8View => Some(texts.as_string_view().value(row)),
        _ => None,
    }
}

/// What each text comes to, together; NULL is nothing.
pub(super) fn sum_of_texts(arg: &ColumnarValue, rows: usize, each: impl Fn(&str) -> u128) -> u128 {
    match arg {
        ColumnarValue::Scalar(_) => constant(arg).map_or(0, each) * rows as u128,
        ColumnarValue::Array(texts) => match texts.data_type() {
            DataType::Utf8 => texts.as_string::<i32>().iter().flatten().map(each).sum(),
            DataType::LargeUtf8 => texts.as_string::<i64>().iter().flatten().map(each).sum(),
            DataType::Utf8View => texts.as_string_view().iter().flatten().map(each).sum(),
            _ => 0,
        },
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{ListArray, StringArray, StringViewArray};

    use super::*;

    #[test]
    fn a_slice_has_its_own_bytes_and_a_view_all_of_its_text() {
        let long = "x".repeat(1000);
        let texts = StringArray::from(vec![long.as_str(), "ab", "c"]);
        assert_eq!(of_array(&texts.slice(1, 2)), 3 + 3 * 4);
        let views = StringViewArray::from(vec![long.as_str(), "ab"]);
        assert_eq!(of_array(&views), 1002 + 32);
        let list = ListArray::from_iter_primitive::<Int64Type, _, _>([
            Some(vec![Some(1); 100]),
            None,
            Some(vec![Some(2), None]),
        ]);
        assert_eq!(of_array(&list.slice(1, 2)), 2 * 8 + 3 * 4);
        assert_eq!(leaves(&list.slice(1, 2)), (2, 16));
        let list: ArrayRef = Arc::new(list);
        let lengths = Numbers::lengths(&ColumnarValue::Array(list)).unwrap();
        assert_eq!((lengths.at(0), lengths.at(1), lengths.most()), (100, 0, 100));
    }
}
