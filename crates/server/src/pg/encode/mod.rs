//! Batches to bytes of the wire.
//!
//! A [`RowEncoder`] writes DataRow messages: `D`, int32 length, int16 columns, then each value behind its int32 length
//! (-1 is NULL). [`copy::CopyEncoder`] writes CopyData.
//! Columns are seen through their own types once for a batch; a value then costs a branch, and no allocation. Many rows
//! are written column by column ([`columns`]).
//!
//! # Invariants
//! - What is appended is whole rows: an error takes the row back in which it happened, and leaves those before.
//! - Text and binary are byte for byte those of Postgres 15 with `DateStyle` ISO, `IntervalStyle` postgres,
//!   `bytea_output` hex and `extra_float_digits` 1.
//!
//! # Not here
//! RowDescription and the messages around rows; text and binary of parameters (`params`).

use std::ops::Range;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::{DataType, Schema};
use bytes::BufMut;

use self::column::{Column, Values};
pub(crate) use self::error::EncodeError;
use self::state::{MOST_ROW_BYTES, State};
pub(crate) use self::zone::Zone;
use super::types;

pub(in crate::pg) mod calendar;
mod column;
mod columns;
pub(crate) mod copy;
mod error;
mod float;
mod json;
mod list;
mod numeric;
mod quote;
mod state;
#[cfg(test)]
mod tests;
mod text;
mod value;
mod zone;

/// Columns of a result at most, as in Postgres (`MaxTupleAttributeNumber`).
pub(crate) const MOST_COLUMNS: usize = 1664;

/// So few rows are written one by one: what is prepared for columns would take longer.
const FEW_ROWS: usize = 8;

/// What a session has set that rows are written by.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    /// Of `timestamp with time zone` as text; UTC if nothing else is said.
    pub time_zone: Zone,
}

/// Rows of one result as DataRow messages.
pub(crate) struct RowEncoder {
    columns: Vec<Target>,
    state: State,
    told_of_cut: bool,
}

/// How a column goes to the client.
#[derive(Clone, Copy, Debug)]
struct Target {
    /// What RowDescription said.
    oid: u32,
    binary: bool,
}

impl RowEncoder {
    /// An encoder of batches with this schema. `formats` are those of Bind: none for text, one for all columns, or one for
    /// each; 0 is text, 1 binary.
    ///
    /// # Errors
    /// [`EncodeError::TooManyColumns`], [`EncodeError::FormatCount`], [`EncodeError::Format`].
    pub(crate) fn new(
        schema: &Schema,
        formats: &[i16],
        options: Options,
    ) -> Result<Self, EncodeError> {
        let count = schema.fields().len();
        if count > MOST_COLUMNS {
            return Err(EncodeError::TooManyColumns { columns: count, most: MOST_COLUMNS });
        }
        if formats.len() > 1 && formats.len() != count {
            return Err(EncodeError::FormatCount { formats: formats.len(), columns: count });
        }
        if let Some(format) = formats.iter().find(|format| !matches!(format, 0 | 1)) {
            return Err(EncodeError::Format { format: *format });
        }
        let format = |at: usize| match formats {
            [] => false,
            [all] => *all == 1,
            each => each[at] == 1,
        };
        let columns = schema.fields().iter().enumerate().map(|(at, field)| Target {
            oid: types::of(field.data_type()).oid,
            binary: format(at),
        });
        let state = State::new(options.time_zone);
        Ok(Self { columns: columns.collect(), state, told_of_cut: false })
    }

    /// One for other rows of the same result.
    pub(crate) fn another(&self) -> Self {
        let state = State::new(self.state.zone);
        Self { columns: self.columns.clone(), state, told_of_cut: false }
    }

    /// The format of each column.
    #[cfg(test)]
    pub(crate) fn formats(&self) -> impl Iterator<Item = i16> {
        self.columns.iter().map(|column| i16::from(column.binary))
    }

    /// Appends a DataRow for each of `rows` of the batch.
    ///
    /// # Errors
    /// [`EncodeError::OutOfRange`] and others if a value has no form in Postgres, [`EncodeError::RowTooLarge`] above
    /// 1 GiB - 1, [`EncodeError::Bug`] if the batch is not of the schema. Rows before that are whole.
    pub(crate) fn encode(
        &mut self,
        batch: &RecordBatch,
        rows: Range<usize>,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let batch = part(batch, rows)?;
        let cells = cells(&batch, &self.columns, &mut self.state)?;
        match batch.num_rows() {
            rows @ ..FEW_ROWS => encode_rows(&cells, rows, out, &mut self.state),
            rows => columns::encode(b'D', &cells, rows, out, &mut self.state),
        }
    }

    /// Whether nanoseconds were left out, which Postgres' types do not have. It is said once, for one NOTICE.
    pub(crate) fn cut_nanoseconds(&mut self) -> bool {
        let is_news = self.state.cut && !self.told_of_cut;
        self.told_of_cut |= is_news;
        is_news
    }
}

/// Row by row.
fn encode_rows(
    cells: &[Cell<'_>],
    rows: usize,
    out: &mut Vec<u8>,
    state: &mut State,
) -> Result<(), EncodeError> {
    for row in 0..rows {
        let start = out.len();
        let done = encode_row(cells, row, out, state);
        if done.is_err() {
            out.truncate(start);
            return done;
        }
    }
    Ok(())
}

fn encode_row(
    cells: &[Cell<'_>],
    row: usize,
    out: &mut Vec<u8>,
    state: &mut State,
) -> Result<(), EncodeError> {
    let start = out.len();
    out.put_slice(b"D\0\0\0\0");
    out.put_i16(cells.len() as i16);
    for cell in cells {
        cell.put(row, out, state)?;
        if out.len() - start > MOST_ROW_BYTES {
            return Err(EncodeError::RowTooLarge { most: MOST_ROW_BYTES });
        }
    }
    // The length is its own four bytes too, but not the `D`.
    let length = out.len() - start - 1;
    patch(out, start + 1, length);
    Ok(())
}

#[inline]
fn patch(out: &mut [u8], at: usize, length: usize) {
    out[at..at + 4].copy_from_slice(&(length as u32).to_be_bytes());
}

/// Some rows of a batch.
fn part(batch: &RecordBatch, rows: Range<usize>) -> Result<RecordBatch, EncodeError> {
    if rows.start > rows.end || rows.end > batch.num_rows() {
        let message = format!("rows {rows:?} of a batch of {}", batch.num_rows());
        return Err(EncodeError::Bug { message });
    }
    Ok(batch.slice(rows.start, rows.len()))
}

/// A column of a batch and how it is written.
struct Cell<'a> {
    column: Column<'a>,
    binary: bool,
    /// Values of a dictionary as they are sent.
    ready: Option<Ready>,
}

/// Values with their lengths in front: those of `i` are `bytes[ends[i]..ends[i + 1]]`.
struct Ready {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

/// # Errors
/// [`EncodeError::Bug`] if the batch has other columns than were described.
fn cells<'a>(
    batch: &'a RecordBatch,
    targets: &[Target],
    state: &mut State,
) -> Result<Vec<Cell<'a>>, EncodeError> {
    if batch.num_columns() != targets.len() {
        let (found, described) = (batch.num_columns(), targets.len());
        let message = format!("{found} columns came where {described} were described");
        return Err(EncodeError::Bug { message });
    }
    let cells = batch.columns().iter().zip(targets).map(|(array, target)| {
        let found = types::of(array.data_type()).oid;
        if found != target.oid {
            let message = format!("a column of oid {found} came where {} was said", target.oid);
            return Err(EncodeError::Bug { message });
        }
        let mut cell = Cell { column: Column::new(array)?, binary: target.binary, ready: None };
        cell.ready = ready(&cell, array, state);
        Ok(cell)
    });
    cells.collect()
}

/// The values of a dictionary, written once, if they are fewer than the rows and more work than a copy.
fn ready(cell: &Cell<'_>, array: &dyn Array, state: &mut State) -> Option<Ready> {
    let (DataType::Dictionary(..), Values::Mapped(_, values)) =
        (array.data_type(), &cell.column.values)
    else {
        return None;
    };
    let many = arrow::array::AsArray::as_any_dictionary(array).values().len();
    if many > array.len() || matches!(values.values, Values::Utf8(_) | Values::Utf8View(_)) {
        return None;
    }
    let mut ready = Ready { bytes: Vec::new(), ends: vec![0] };
    for row in 0..many {
        // A value that cannot be sent may be one that no row has.
        put_value(values, cell.binary, row, &mut ready.bytes, state).ok()?;
        if ready.bytes.len() > MOST_ROW_BYTES {
            return None;
        }
        ready.ends.push(ready.bytes.len());
    }
    Some(ready)
}

impl Cell<'_> {
    /// Appends a value behind its length.
    #[inline]
    fn put(&self, row: usize, out: &mut Vec<u8>, state: &mut State) -> Result<(), EncodeError> {
        if let (Some(ready), Values::Mapped(rows, _)) = (&self.ready, &self.column.values)
            && !self.column.is_null(row)
        {
            let at = rows[row];
            out.put_slice(&ready.bytes[ready.ends[at]..ready.ends[at + 1]]);
            return Ok(());
        }
        put_value(&self.column, self.binary, row, out, state)
    }
}

#[inline]
fn put_value(
    column: &Column<'_>,
    binary: bool,
    row: usize,
    out: &mut Vec<u8>,
    state: &mut State,
) -> Result<(), EncodeError> {
    if column.is_null(row) {
        out.put_i32(-1);
        return Ok(());
    }
    let start = out.len();
    out.put_i32(0);
    if binary {
        column.binary(row, out, state)?;
    } else {
        column.text(row, out, state)?;
    }
    let length = out.len() - start - 4;
    patch(out, start, length);
    Ok(())
}
