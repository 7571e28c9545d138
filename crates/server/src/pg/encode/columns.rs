//! Rows of a batch, column by column: where each row lies is known before its values are written.
//!
//! A value that is written beside others of its column costs a length, a store and no branch; beside those of other
//! columns it costs all branches anew. So a block of rows is made in two passes: how long each row is, then all values of
//! the first column, those of the second, and so on. Values of a fixed width and texts are written where they go; others
//! are made first, behind each other, and then copied.
//!
//! # Invariants
//! - The bytes are those of [`encode_row`](super::encode_row) for each row, and so are the error and the rows before it.
//! - What is made first is bounded: a block ends early behind [`MOST_MADE`] bytes.

use arrow::datatypes::TimeUnit;

use super::calendar::{
    FOUR_DIGITS, POSTGRES_EPOCH_DAYS, POSTGRES_EPOCH_MICROS, WrittenDay, four_digits,
    postgres_days, postgres_micros,
};
use super::column::{Column, Values};
use super::error::EncodeError;
use super::float::short_double;
use super::numeric::Decimal;
use super::state::{MOST_ROW_BYTES, Made, State};
use super::text::few_digits;
use super::{Cell, put_value};

/// Rows of a block: with what they become they stay in a core's cache.
const BLOCK_ROWS: usize = 512;
/// Bytes of a column that are made before they are copied.
const MOST_MADE: usize = 4 << 20;
/// A letter, the length, the number of columns.
const HEAD_BYTES: usize = 7;
/// The length in front of a value.
const LENGTH_BYTES: usize = 4;
const NULL: [u8; LENGTH_BYTES] = (-1_i32).to_be_bytes();

/// How the values of a column get into rows.
#[derive(Clone, Copy)]
enum Way {
    /// So many bytes each, without the length.
    Fixed(usize),
    /// As they are in the batch.
    Bytes,
    /// Of a dictionary whose values are written already.
    Ready,
    /// Made first: the place among those that are.
    Made(usize),
}

/// Appends a message of each of so many rows, which begins with `letter`.
///
/// # Errors
/// As `encode_row`; the rows before are whole.
pub(super) fn encode(
    letter: u8,
    cells: &[Cell<'_>],
    rows: usize,
    out: &mut Vec<u8>,
    state: &mut State,
) -> Result<(), EncodeError> {
    let mut made = std::mem::take(&mut state.made);
    let mut begin = 0;
    let mut done = Ok(());
    while begin < rows && done.is_ok() {
        let mut block = Block { begin, end: rows.min(begin + BLOCK_ROWS), error: None };
        let ways = block.prepare(cells, &mut made, state);
        block.write(letter, cells, &ways, &made, out);
        begin = block.end;
        done = block.error.map_or(Ok(()), Err);
    }
    state.made = made;
    done
}

/// Rows from `begin` to `end`; the error is that of the row at the end.
struct Block {
    begin: usize,
    end: usize,
    error: Option<EncodeError>,
}

impl Block {
    fn len(&self) -> usize {
        self.end - self.begin
    }

    /// Makes what must be made, and ends the block before the first row that cannot be written.
    fn prepare(&mut self, cells: &[Cell<'_>], made: &mut Vec<Made>, state: &mut State) -> Vec<Way> {
        let mut next = 0;
        let ways = cells.iter().map(|cell| {
            let way = self.way(cell);
            let Way::Made(_) = way else { return way };
            if made.len() == next {
                made.push(Made::default());
            }
            self.make(cell, &mut made[next], state);
            next += 1;
            Way::Made(next - 1)
        });
        ways.collect()
    }

    fn way(&self, cell: &Cell<'_>) -> Way {
        let column = &cell.column;
        if cell.ready.is_some() {
            return Way::Ready;
        }
        if is_bytes(column, cell.binary) {
            return Way::Bytes;
        }
        let rows = self.begin..self.end;
        let all = |is_good: &dyn Fn(usize) -> bool| {
            rows.clone().all(|row| column.is_null(row) || is_good(row))
        };
        if !cell.binary {
            return match &column.values {
                Values::Boolean(_) => Way::Fixed(1),
                Values::Date32(days) if all(&|row| FOUR_DIGITS.contains(&days[row].into())) => {
                    Way::Fixed(10)
                }
                _ => Way::Made(0),
            };
        }
        match &column.values {
            Values::Boolean(_) => Way::Fixed(1),
            Values::Int8(_) | Values::Int16(_) | Values::UInt8(_) => Way::Fixed(2),
            Values::Int32(_) | Values::UInt16(_) | Values::Float32(_) => Way::Fixed(4),
            Values::Int64(_) | Values::Float64(_) => Way::Fixed(8),
            // What Postgres has not is an error, which the making finds.
            Values::Date32(days) if all(&|row| postgres_days(days[row].into()).is_some()) => {
                Way::Fixed(4)
            }
            Values::Timestamp(moments, TimeUnit::Microsecond, _)
                if all(&|row| postgres_micros(moments[row]).is_some()) =>
            {
                Way::Fixed(8)
            }
            _ => Way::Made(0),
        }
    }

    fn make(&mut self, cell: &Cell<'_>, made: &mut Made, state: &mut State) {
        made.clear();
        for row in self.begin..self.end {
            let before = made.bytes.len();
            let done = match short(cell, row, &mut state.day) {
                Some((bytes, length)) => {
                    made.bytes.extend_from_slice(&(length as u32).to_be_bytes());
                    made.bytes.extend_from_slice(&bytes);
                    made.bytes.truncate(before + LENGTH_BYTES + length);
                    Ok(())
                }
                None => put_value(&cell.column, cell.binary, row, &mut made.bytes, state),
            };
            if let Err(error) = done {
                made.bytes.truncate(before);
                (self.end, self.error) = (row, Some(error));
                return;
            }
            made.ends.push(made.bytes.len());
            if made.bytes.len() > MOST_MADE {
                // The error of a row that is no longer in the block is found again.
                if row + 1 < self.end {
                    (self.end, self.error) = (row + 1, None);
                }
                return;
            }
        }
    }

    /// Appends the rows.
    fn write(
        &mut self,
        letter: u8,
        cells: &[Cell<'_>],
        ways: &[Way],
        made: &[Made],
        out: &mut Vec<u8>,
    ) {
        let mut sizes = vec![HEAD_BYTES + LENGTH_BYTES * cells.len(); self.len()];
        for (cell, way) in cells.iter().zip(ways) {
            self.add_sizes(cell, *way, made, &mut sizes);
        }
        if let Some(row) = sizes.iter().position(|size| *size > MOST_ROW_BYTES) {
            sizes.truncate(row);
            self.end = self.begin + row;
            self.error = Some(EncodeError::RowTooLarge { most: MOST_ROW_BYTES });
        }
        let mut at = out.len();
        out.resize(at + sizes.iter().sum::<usize>(), 0);
        let columns = (cells.len() as i16).to_be_bytes();
        // From here on where the next value of each row goes.
        let mut places = sizes;
        for place in &mut places {
            let size = *place;
            let head = &mut out[at..at + HEAD_BYTES];
            head[0] = letter;
            // The length is its own four bytes too, but not the letter.
            head[1..5].copy_from_slice(&((size - 1) as u32).to_be_bytes());
            head[5..].copy_from_slice(&columns);
            *place = at + HEAD_BYTES;
            at += size;
        }
        let mut rows = Places { begin: self.begin, places: &mut places, out };
        for (cell, way) in cells.iter().zip(ways) {
            rows.put(cell, *way, made);
        }
    }

    fn add_sizes(&self, cell: &Cell<'_>, way: Way, made: &[Made], sizes: &mut [usize]) {
        let column = &cell.column;
        let rows = sizes.iter_mut().zip(self.begin..);
        match (way, &cell.ready, &column.values) {
            (Way::Fixed(width), _, _) if column.has_no_nulls() => {
                rows.for_each(|(size, _)| *size += width);
            }
            (Way::Fixed(width), _, _) => rows.for_each(|(size, row)| {
                *size += if column.is_null(row) { 0 } else { width };
            }),
            (Way::Ready, Some(ready), Values::Mapped(of, _)) => rows.for_each(|(size, row)| {
                if !column.is_null(row) {
                    *size += ready.ends[of[row] + 1] - ready.ends[of[row]] - LENGTH_BYTES;
                }
            }),
            (Way::Made(place), _, _) => {
                let mut before = 0;
                for ((size, _), end) in rows.zip(&made[place].ends) {
                    *size += end - before - LENGTH_BYTES;
                    before = *end;
                }
            }
            _ => rows.for_each(|(size, row)| {
                if !column.is_null(row) {
                    *size += bytes_of(column, row).len();
                }
            }),
        }
    }
}

/// The commonest values of those that are made, without a detour: the first so many of these bytes.
#[inline]
fn short(cell: &Cell<'_>, row: usize, day: &mut WrittenDay) -> Option<([u8; 24], usize)> {
    if cell.column.is_null(row) {
        return None;
    }
    match &cell.column.values {
        Values::Decimal128(values, scale) if cell.binary => {
            Decimal::new(values[row], *scale).short_binary()
        }
        Values::Decimal128(values, scale) => Decimal::new(values[row], *scale).short_text(),
        Values::Float64(values) if !cell.binary => short_double(values[row]),
        Values::Int64(values) if !cell.binary => few_digits(values[row]),
        Values::Int32(values) if !cell.binary => few_digits(values[row].into()),
        Values::Timestamp(values, TimeUnit::Microsecond, false) if !cell.binary => {
            day.whole_second(values[row]).map(|text| (text, 19))
        }
        _ => None,
    }
}

/// Is each value in the batch as it is sent?
fn is_bytes(column: &Column<'_>, binary: bool) -> bool {
    match &column.values {
        Values::Utf8(_) | Values::LargeUtf8(_) | Values::Utf8View(_) => true,
        Values::Binary(_)
        | Values::LargeBinary(_)
        | Values::BinaryView(_)
        | Values::FixedBinary(_) => binary,
        Values::Mapped(_, values) => {
            !matches!(values.values, Values::Mapped(..)) && is_bytes(values, binary)
        }
        _ => false,
    }
}

/// The value of a row that [`is_bytes`] is true of.
#[inline]
fn bytes_of<'c>(column: &'c Column<'_>, row: usize) -> &'c [u8] {
    if let Values::Mapped(rows, values) = &column.values {
        return bytes_of(values, rows[row]);
    }
    let text = column.as_text(row).map(str::as_bytes);
    text.or_else(|| column.as_bytes(row)).unwrap_or_default()
}

/// Copies, to a place of the same length, without a call for what is short: as two pieces that may overlap.
#[inline]
fn copy(value: &[u8], to: &mut [u8]) {
    let length = value.len();
    match length {
        4..8 => {
            to[..4].copy_from_slice(&value[..4]);
            to[length - 4..].copy_from_slice(&value[length - 4..]);
        }
        8..=16 => {
            to[..8].copy_from_slice(&value[..8]);
            to[length - 8..].copy_from_slice(&value[length - 8..]);
        }
        17..=32 => {
            to[..16].copy_from_slice(&value[..16]);
            to[length - 16..].copy_from_slice(&value[length - 16..]);
        }
        _ => to.copy_from_slice(value),
    }
}

/// Where the next value of each row goes.
struct Places<'p> {
    begin: usize,
    places: &'p mut [usize],
    out: &'p mut [u8],
}

impl Places<'_> {
    fn put(&mut self, cell: &Cell<'_>, way: Way, made: &[Made]) {
        let column = &cell.column;
        match (way, &cell.ready, &column.values) {
            (Way::Made(place), _, _) => {
                let Made { bytes, ends } = &made[place];
                let mut before = 0;
                for (place, end) in self.places.iter_mut().zip(ends) {
                    let value = &bytes[before..*end];
                    copy(value, &mut self.out[*place..*place + value.len()]);
                    *place += value.len();
                    before = *end;
                }
            }
            (Way::Ready, Some(ready), Values::Mapped(of, _)) => {
                for (place, row) in self.places.iter_mut().zip(self.begin..) {
                    let value = match column.is_null(row) {
                        true => &NULL[..],
                        false => &ready.bytes[ready.ends[of[row]]..ready.ends[of[row] + 1]],
                    };
                    self.out[*place..*place + value.len()].copy_from_slice(value);
                    *place += value.len();
                }
            }
            (Way::Fixed(_), _, Values::Boolean(all)) if !cell.binary => {
                self.fixed(column, |row| [if all.value(row) { b't' } else { b'f' }]);
            }
            (Way::Fixed(_), _, Values::Date32(all)) if !cell.binary => {
                self.fixed(column, |row| four_digits(all[row].into()));
            }
            (Way::Fixed(_), _, values) => self.put_fixed(column, values),
            _ => {
                for (place, row) in self.places.iter_mut().zip(self.begin..) {
                    if column.is_null(row) {
                        self.out[*place..*place + LENGTH_BYTES].copy_from_slice(&NULL);
                        *place += LENGTH_BYTES;
                        continue;
                    }
                    let value = bytes_of(column, row);
                    let to = &mut self.out[*place..*place + LENGTH_BYTES + value.len()];
                    to[..LENGTH_BYTES].copy_from_slice(&(value.len() as u32).to_be_bytes());
                    copy(value, &mut to[LENGTH_BYTES..]);
                    *place += to.len();
                }
            }
        }
    }

    fn put_fixed(&mut self, column: &Column<'_>, values: &Values<'_>) {
        match values {
            Values::Boolean(all) => self.fixed(column, |row| [u8::from(all.value(row))]),
            Values::Int8(all) => self.fixed(column, |row| i16::from(all[row]).to_be_bytes()),
            Values::UInt8(all) => self.fixed(column, |row| i16::from(all[row]).to_be_bytes()),
            Values::Int16(all) => self.fixed(column, |row| all[row].to_be_bytes()),
            Values::UInt16(all) => self.fixed(column, |row| i32::from(all[row]).to_be_bytes()),
            Values::Int32(all) => self.fixed(column, |row| all[row].to_be_bytes()),
            Values::Int64(all) => self.fixed(column, |row| all[row].to_be_bytes()),
            Values::Float32(all) => self.fixed(column, |row| all[row].to_be_bytes()),
            Values::Float64(all) => self.fixed(column, |row| all[row].to_be_bytes()),
            Values::Date32(all) => {
                self.fixed(column, |row| all[row].wrapping_sub(POSTGRES_EPOCH_DAYS).to_be_bytes());
            }
            Values::Timestamp(all, ..) => {
                self.fixed(column, |row| {
                    all[row].wrapping_sub(POSTGRES_EPOCH_MICROS).to_be_bytes()
                });
            }
            // Has no fixed width.
            _ => {}
        }
    }

    fn fixed<const WIDTH: usize>(
        &mut self,
        column: &Column<'_>,
        value: impl Fn(usize) -> [u8; WIDTH],
    ) {
        let put = |out: &mut [u8], place: &mut usize, row: usize| {
            let to = &mut out[*place..*place + LENGTH_BYTES + WIDTH];
            to[..LENGTH_BYTES].copy_from_slice(&(WIDTH as u32).to_be_bytes());
            to[LENGTH_BYTES..].copy_from_slice(&value(row));
            *place += LENGTH_BYTES + WIDTH;
        };
        let rows = self.places.iter_mut().zip(self.begin..);
        if column.has_no_nulls() {
            rows.for_each(|(place, row)| put(self.out, place, row));
            return;
        }
        for (place, row) in rows {
            match column.is_null(row) {
                true => {
                    self.out[*place..*place + LENGTH_BYTES].copy_from_slice(&NULL);
                    *place += LENGTH_BYTES;
                }
                false => put(self.out, place, row),
            }
        }
    }
}
