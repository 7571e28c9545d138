//! Values of parameters: text and binary of the wire to the types that a statement wants.
//!
//! A value is read as the type that the client said at Parse, or else as the Postgres type of what the statement wants, and
//! then fitted to the latter: whole, or not at all. `n = $1` with 1.5 for a `bigint` is an error and not `n = 1`.
//!
//! # Invariants
//! No bytes make it panic, and what is allocated is in proportion to them.
//!
//! # Not here
//! What type a parameter has (`uplake_engine::Prepared`).

use std::sync::Arc;

use arrow::array::{
    ArrayRef, FixedSizeListArray, GenericListArray, GenericListViewArray, OffsetSizeTrait,
    new_empty_array,
};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, FieldRef};
use uplake_engine::{ArrayElement, ScalarValue, array_elements};

pub(crate) use self::error::ParamError;
use self::error::shown;
use super::encode::Zone;
use super::types;

mod datetime;
mod error;
mod interval;
mod number;
mod plain;
mod read;
#[cfg(test)]
mod tests;

/// Dimensions of an array at most, as in Postgres.
const MOST_DIMENSIONS: usize = 6;

/// The value of a parameter of type `data_type`; no bytes are NULL.
///
/// `format` is 0 for text, 1 for binary; `oid` is what the client said at Parse, 0 if nothing. Moments without a zone are in
/// that of `data_type`. Where any type will do (`Null`), the value is text.
///
/// # Errors
/// [`ParamError`], whose [`code`](ParamError::code) is the SQLSTATE.
pub(crate) fn decode(
    value: Option<&[u8]>,
    format: i16,
    data_type: &DataType,
    oid: u32,
) -> Result<ScalarValue, ParamError> {
    let Some(bytes) = value else {
        return ScalarValue::try_new_null(data_type).map_err(bug);
    };
    match format {
        0 => from_text(read::utf8(bytes)?, data_type, oid),
        1 => from_binary(bytes, data_type, oid),
        format => Err(ParamError::Format { format }),
    }
}

fn bug(error: impl std::fmt::Display) -> ParamError {
    ParamError::Bug { message: error.to_string() }
}

/// The type that a value is read as.
fn sent_as(data_type: &DataType, oid: u32) -> Result<u32, ParamError> {
    if matches!(data_type, DataType::Struct(_) | DataType::Map(..) | DataType::Union(..)) {
        return Err(ParamError::Unsupported { type_name: types::postgres_name(data_type) });
    }
    let is_text = matches!(
        oid,
        0 | types::CHAR
            | types::NAME
            | types::TEXT
            | types::JSON
            | types::UNKNOWN
            | types::BPCHAR
            | types::VARCHAR
    );
    Ok(if is_text { types::of(data_type).oid } else { oid })
}

/// Values that are kept by number or by run are read as what they are.
fn kept_otherwise(
    data_type: &DataType,
    read: impl FnOnce(&DataType) -> Result<ScalarValue, ParamError>,
) -> Option<Result<ScalarValue, ParamError>> {
    match data_type {
        DataType::Dictionary(keys, values) => {
            Some(read(values).map(|value| ScalarValue::Dictionary(keys.clone(), Box::new(value))))
        }
        DataType::RunEndEncoded(ends, values) => Some(read(values.data_type()).map(|value| {
            ScalarValue::RunEndEncoded(Arc::clone(ends), Arc::clone(values), Box::new(value))
        })),
        _ => None,
    }
}

fn is_utf8(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null)
}

fn zone_of(data_type: &DataType) -> Zone {
    match data_type {
        DataType::Timestamp(_, Some(zone)) => Zone::parse(zone).unwrap_or_default(),
        _ => Zone::UTC,
    }
}

fn from_text(text: &str, data_type: &DataType, oid: u32) -> Result<ScalarValue, ParamError> {
    let kept = |inner: &DataType| from_text(text, inner, oid);
    if let Some(value) = kept_otherwise(data_type, kept) {
        return value;
    }
    let oid = sent_as(data_type, oid)?;
    if let Some(element) = types::element(data_type) {
        let malformed = || ParamError::Array { text: shown(text) };
        // Of an array in an array the type is that of the array: both are lists of the same elements.
        let inner = types::element_oid(oid).ok_or_else(|| mismatch(data_type, oid))?;
        let is_nested = types::element(element).is_some();
        let inner = if is_nested { oid } else { inner };
        let mut values = Vec::new();
        for found in array_elements(text).ok_or_else(malformed)? {
            values.push(match found {
                ArrayElement::Null => ScalarValue::try_new_null(element).map_err(bug)?,
                ArrayElement::Value(value) if !is_nested => from_text(&value, element, inner)?,
                ArrayElement::Array(array) if is_nested => from_text(array, element, inner)?,
                _ => return Err(malformed()),
            });
        }
        return list(data_type, values);
    }
    if is_utf8(data_type) {
        return plain::Plain::Text(text.to_owned()).fit(data_type, oid);
    }
    read::text(text, oid, zone_of(data_type))?.fit(data_type, oid)
}

fn from_binary(bytes: &[u8], data_type: &DataType, oid: u32) -> Result<ScalarValue, ParamError> {
    let kept = |inner: &DataType| from_binary(bytes, inner, oid);
    if let Some(value) = kept_otherwise(data_type, kept) {
        return value;
    }
    let said = oid;
    let oid = sent_as(data_type, oid)?;
    if types::element(data_type).is_some() {
        let broken = || ParamError::binary(oid);
        if types::element_oid(oid).is_none() {
            return Err(mismatch(data_type, oid));
        }
        let (head, mut rest) = bytes.split_first_chunk::<12>().ok_or_else(broken)?;
        let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|byte| head[at * 4 + byte]));
        let (dimensions, inner) = (word(0) as usize, word(2));
        if dimensions > MOST_DIMENSIONS || word(1) > 1 {
            return Err(broken());
        }
        let mut lengths = Vec::new();
        for _ in 0..dimensions {
            let (length, behind) = rest.split_first_chunk().ok_or_else(broken)?;
            // The second word is the first index.
            rest = behind.get(4..).ok_or_else(broken)?;
            let length = usize::try_from(i32::from_be_bytes(*length)).map_err(|_| broken())?;
            lengths.push(length);
        }
        if lengths.contains(&0) {
            lengths.clear();
        }
        let count = lengths.iter().try_fold(1usize, |all, length| all.checked_mul(*length));
        // An element has four bytes at least.
        if count.is_none_or(|count| count > 1 + rest.len() / 4) {
            return Err(broken());
        }
        let mut reader = Reader { rest, oid: inner };
        let value = reader.list(&lengths, data_type)?;
        return if reader.rest.is_empty() { Ok(value) } else { Err(broken()) };
    }
    if oid != said && said != 0 {
        // The client said text, whose binary form is text.
        return from_text(read::utf8(bytes)?, data_type, said);
    }
    read::binary(bytes, oid)?.fit(data_type, oid)
}

fn mismatch(data_type: &DataType, oid: u32) -> ParamError {
    ParamError::Mismatch { said: types::name_of(oid), wanted: types::postgres_name(data_type) }
}

/// The elements of a binary array, one behind the other.
struct Reader<'a> {
    rest: &'a [u8],
    /// Of the elements.
    oid: u32,
}

impl Reader<'_> {
    fn list(&mut self, lengths: &[usize], data_type: &DataType) -> Result<ScalarValue, ParamError> {
        let element = types::element(data_type).ok_or_else(|| mismatch(data_type, self.oid))?;
        let mut values = Vec::new();
        let (length, inner) = lengths.split_first().unwrap_or((&0, &[]));
        let is_nested = types::element(element).is_some();
        if *length > 0 && is_nested == inner.is_empty() {
            // Another number of dimensions than the type has.
            return Err(mismatch(data_type, self.oid));
        }
        for _ in 0..*length {
            values.push(if is_nested {
                self.list(inner, element)?
            } else {
                self.element(element)?
            });
        }
        list(data_type, values)
    }

    fn element(&mut self, data_type: &DataType) -> Result<ScalarValue, ParamError> {
        let broken = || ParamError::binary(self.oid);
        let (length, rest) = self.rest.split_first_chunk().ok_or_else(broken)?;
        self.rest = rest;
        let length = i32::from_be_bytes(*length);
        if length == -1 {
            return ScalarValue::try_new_null(data_type).map_err(bug);
        }
        let length = usize::try_from(length).map_err(|_| broken())?;
        let (value, rest) = self.rest.split_at_checked(length).ok_or_else(broken)?;
        self.rest = rest;
        from_binary(value, data_type, self.oid)
    }
}

/// A list of values, each of the type of its elements.
fn list(data_type: &DataType, values: Vec<ScalarValue>) -> Result<ScalarValue, ParamError> {
    let element = types::element(data_type).ok_or_else(|| mismatch(data_type, 0))?;
    let count = values.len();
    let values: ArrayRef = if values.is_empty() {
        new_empty_array(element)
    } else {
        ScalarValue::iter_to_array(values).map_err(bug)?
    };
    let values = match values.data_type() == element {
        true => values,
        // Fields of inner lists may be called otherwise.
        false => arrow::compute::cast(&values, element).map_err(bug)?,
    };
    Ok(match data_type {
        DataType::List(field) => ScalarValue::List(Arc::new(one_list(field, values)?)),
        DataType::LargeList(field) => ScalarValue::LargeList(Arc::new(one_list(field, values)?)),
        DataType::ListView(field) => ScalarValue::ListView(Arc::new(one_view(field, values)?)),
        DataType::LargeListView(field) => {
            ScalarValue::LargeListView(Arc::new(one_view(field, values)?))
        }
        DataType::FixedSizeList(field, size) => {
            if usize::try_from(*size) != Ok(count) {
                let type_name = types::postgres_name(data_type);
                return Err(ParamError::OutOfRange {
                    type_name,
                    text: format!("{count} elements"),
                });
            }
            let array = FixedSizeListArray::try_new(Arc::clone(field), *size, values, None);
            ScalarValue::FixedSizeList(Arc::new(array.map_err(bug)?))
        }
        other => return Err(mismatch(other, 0)),
    })
}

fn one_list<O: OffsetSizeTrait>(
    field: &FieldRef,
    values: ArrayRef,
) -> Result<GenericListArray<O>, ParamError> {
    let offsets = OffsetBuffer::from_lengths([values.len()]);
    GenericListArray::try_new(Arc::clone(field), offsets, values, None).map_err(bug)
}

fn one_view<O: OffsetSizeTrait>(
    field: &FieldRef,
    values: ArrayRef,
) -> Result<GenericListViewArray<O>, ParamError> {
    let size = O::from_usize(values.len()).ok_or_else(|| bug("a list is too long"))?;
    let (offsets, sizes) =
        (ScalarBuffer::from(vec![O::usize_as(0)]), ScalarBuffer::from(vec![size]));
    GenericListViewArray::try_new(Arc::clone(field), offsets, sizes, values, None).map_err(bug)
}
