//! Lists as Postgres' arrays: `{1,NULL,"a b"}`, or dimensions and elements in binary.

use bytes::BufMut;

use super::column::List;
use super::error::EncodeError;
use super::quote;
use super::state::{MOST_ROW_BYTES, State};

/// Dimensions that an array of Postgres has at most (`MAXDIM`).
const MOST_DIMENSIONS: usize = 6;

/// Appends a list as text. Lists of lists may be of different lengths, which Postgres itself would not have.
pub(super) fn text(
    list: &List<'_>,
    row: usize,
    out: &mut Vec<u8>,
    state: &mut State,
) -> Result<(), EncodeError> {
    out.put_u8(b'{');
    for (at, element) in list.range(row).enumerate() {
        if at > 0 {
            out.put_u8(b',');
        }
        if list.elements.is_null(element) {
            out.put_slice(b"NULL");
            continue;
        }
        let start = out.len();
        list.elements.text(element, out, state)?;
        if list.elements.as_list().is_none() {
            quote_behind(start, out, state);
        }
        room(out)?;
    }
    out.put_u8(b'}');
    Ok(())
}

/// Puts what is behind `start` in quotes if an array needs them.
fn quote_behind(start: usize, out: &mut Vec<u8>, state: &mut State) {
    if quote::element_needs_quotes(&out[start..]) {
        state.scratch.clear();
        quote::quote_element(&out[start..], &mut state.scratch);
        out.truncate(start);
        out.put_slice(&state.scratch);
    }
}

/// That many small elements are not more than a row may have.
fn room(out: &[u8]) -> Result<(), EncodeError> {
    // A buffer with other rows in front has room for twice as much.
    if out.len() > 2 * MOST_ROW_BYTES {
        return Err(EncodeError::RowTooLarge { most: MOST_ROW_BYTES });
    }
    Ok(())
}

/// Appends a list in binary: count of dimensions, whether there are NULLs, the elements' oid, length and first index of
/// each dimension, then each element behind its length.
pub(super) fn binary(
    list: &List<'_>,
    row: usize,
    out: &mut Vec<u8>,
    state: &mut State,
) -> Result<(), EncodeError> {
    if list.dimensions > MOST_DIMENSIONS {
        return Err(EncodeError::TooManyDimensions { most: MOST_DIMENSIONS });
    }
    let mut lengths = [None; MOST_DIMENSIONS];
    measure(list, row, &mut lengths)?;
    let lengths = &lengths[..list.dimensions];
    let is_empty = lengths.iter().any(|length| length.unwrap_or(0) == 0);
    let dimensions = if is_empty { 0 } else { list.dimensions };
    out.put_i32(dimensions as i32);
    let has_nulls = out.len();
    out.put_i32(0);
    out.put_u32(list.oid);
    if is_empty {
        return Ok(());
    }
    for length in lengths {
        out.put_i32(length.unwrap_or(0));
        out.put_i32(1);
    }
    if elements(list, row, out, state)? {
        out[has_nulls + 3] = 1;
    }
    Ok(())
}

/// Finds the length of each dimension, which is the same for all lists there.
fn measure(list: &List<'_>, row: usize, lengths: &mut [Option<i32>]) -> Result<(), EncodeError> {
    let Some((own, inner)) = lengths.split_first_mut() else { return Ok(()) };
    let rows = list.range(row);
    let too_large = |_| EncodeError::RowTooLarge { most: MOST_ROW_BYTES };
    let length = i32::try_from(rows.len()).map_err(too_large)?;
    if *own.get_or_insert(length) != length {
        return Err(EncodeError::Ragged);
    }
    if let Some(lists) = list.elements.as_list() {
        for row in rows {
            if list.elements.is_null(row) {
                return Err(EncodeError::Ragged);
            }
            measure(lists, row, inner)?;
        }
    }
    Ok(())
}

/// Appends the innermost elements; whether there is a NULL.
fn elements(
    list: &List<'_>,
    row: usize,
    out: &mut Vec<u8>,
    state: &mut State,
) -> Result<bool, EncodeError> {
    let mut has_nulls = false;
    for row in list.range(row) {
        if let Some(lists) = list.elements.as_list() {
            has_nulls |= elements(lists, row, out, state)?;
        } else if list.elements.is_null(row) {
            has_nulls = true;
            out.put_i32(-1);
        } else {
            let start = out.len();
            out.put_i32(0);
            list.elements.binary(row, out, state)?;
            room(out)?;
            let length = (out.len() - start - 4) as u32;
            out[start..start + 4].copy_from_slice(&length.to_be_bytes());
        }
    }
    Ok(has_nulls)
}
