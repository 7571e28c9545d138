//! Structs, maps and unions as JSON, in the forms of Postgres' `to_json`.
//!
//! Numbers are bare but for NaN and infinities; moments have a `T`; bytes and intervals are strings of their text.

use bytes::BufMut;

use super::column::{Column, Values, child};
use super::error::EncodeError;
use super::quote::json_escape;
use super::state::State;

/// Appends a value, NULLs as `null`.
pub(super) fn value(
    column: &Column<'_>,
    row: usize,
    out: &mut Vec<u8>,
    state: &mut State,
) -> Result<(), EncodeError> {
    if column.is_null(row) {
        out.put_slice(b"null");
        return Ok(());
    }
    if column.as_text(row).is_some() {
        return string(column, row, out, state);
    }
    match &column.values {
        Values::Struct(fields) => {
            for (at, (name, field)) in fields.iter().enumerate() {
                out.put_slice(if at == 0 { b"{\"" } else { b",\"" });
                out.put_slice(name.as_bytes());
                out.put_slice(b"\":");
                value(field, row, out, state)?;
            }
            out.put_slice(if fields.is_empty() { b"{}" } else { b"}" });
        }
        Values::Map(offsets, keys, values) => {
            out.put_u8(b'{');
            let entries = offsets[row] as usize..offsets[row + 1] as usize;
            for (at, entry) in entries.enumerate() {
                if at > 0 {
                    out.put_u8(b',');
                }
                string(keys, entry, out, state)?;
                out.put_u8(b':');
                value(values, entry, out, state)?;
            }
            out.put_u8(b'}');
        }
        Values::Union(array, children) => {
            if let Some(child) = child(children, array.type_id(row)) {
                value(child, array.value_offset(row), out, state)?;
            }
        }
        Values::List(list) => {
            out.put_u8(b'[');
            for (at, element) in list.range(row).enumerate() {
                if at > 0 {
                    out.put_u8(b',');
                }
                value(&list.elements, element, out, state)?;
            }
            out.put_u8(b']');
        }
        Values::Mapped(rows, values) => value(values, rows[row], out, state)?,
        Values::Boolean(values) => {
            out.put_slice(if values.value(row) { b"true" } else { b"false" });
        }
        _ if is_bare(column, row) => column.text(row, out, state)?,
        _ => string(column, row, out, state)?,
    }
    Ok(())
}

/// Whether the value is a number that JSON has.
fn is_bare(column: &Column<'_>, row: usize) -> bool {
    match &column.values {
        Values::Int8(_)
        | Values::Int16(_)
        | Values::Int32(_)
        | Values::Int64(_)
        | Values::UInt8(_)
        | Values::UInt16(_)
        | Values::UInt32(_)
        | Values::UInt64(_)
        | Values::Decimal32(..)
        | Values::Decimal64(..)
        | Values::Decimal128(..)
        | Values::Decimal256(..) => true,
        Values::Float16(values) => values[row].is_finite(),
        Values::Float32(values) => values[row].is_finite(),
        Values::Float64(values) => values[row].is_finite(),
        _ => false,
    }
}

/// Appends the value's text as a string.
fn string(
    column: &Column<'_>,
    row: usize,
    out: &mut Vec<u8>,
    state: &mut State,
) -> Result<(), EncodeError> {
    out.put_u8(b'"');
    if let Values::Mapped(rows, values) = &column.values {
        out.truncate(out.len() - 1);
        return string(values, rows[row], out, state);
    }
    if let Some(text) = column.as_text(row) {
        json_escape(text, |piece| out.put_slice(piece));
    } else if !column.is_null(row) {
        let start = out.len();
        state.in_json = true;
        let done = column.text(row, out, state);
        state.in_json = false;
        done?;
        // Text of bytes has a backslash, that of a map's key of a nested type has quotes.
        if out[start..].iter().any(|byte| matches!(byte, b'"' | b'\\')) {
            let text = String::from_utf8_lossy(&out[start..]).into_owned();
            out.truncate(start);
            json_escape(&text, |piece| out.put_slice(piece));
        }
    }
    out.put_u8(b'"');
    Ok(())
}
