//! One value of a column as text or binary, appended to a buffer.
//!
//! # Not here
//! Lengths in front and frames around (`mod`, `copy`).

use arrow::datatypes::TimeUnit;
use bytes::BufMut;

use super::calendar::{self, DAY_MICROS, Interval, POSTGRES_EPOCH_MICROS, Style};
use super::column::{Column, List, Values};
use super::error::EncodeError;
use super::numeric::Decimal;
use super::state::{MOST_ROW_BYTES, State};
use super::text::Ascii;
use super::{float, json, list, quote};

/// A value without its unit.
enum Plain {
    Boolean(bool),
    Int(i64),
    Decimal(Decimal),
    Real(f32),
    Double(f64),
    /// Days since 1970.
    Date(i64),
    /// Microseconds.
    Time(i64),
    /// Microseconds since 1970, and whether in a zone.
    Timestamp(i64, bool),
    Interval(Interval),
}

impl Column<'_> {
    /// Appends the text of a value that is not NULL.
    pub(super) fn text(
        &self,
        row: usize,
        out: &mut Vec<u8>,
        state: &mut State,
    ) -> Result<(), EncodeError> {
        // The commonest first, without a detour.
        match &self.values {
            Values::Int64(values) => {
                out.integer(values[row]);
                return Ok(());
            }
            Values::Int32(values) => {
                out.integer(values[row].into());
                return Ok(());
            }
            Values::Boolean(values) => {
                out.put_u8(if values.value(row) { b't' } else { b'f' });
                return Ok(());
            }
            _ => {}
        }
        if let Some(text) = self.as_text(row) {
            return put(text.as_bytes(), out);
        }
        if let Some(bytes) = self.as_bytes(row) {
            fits(bytes.len().saturating_mul(2))?;
            out.put_slice(b"\\x");
            quote::hex(bytes, |piece| out.put_slice(piece));
            return Ok(());
        }
        match &self.values {
            Values::List(list) => return list::text(list, row, out, state),
            Values::Struct(_) | Values::Map(..) | Values::Union(..) => {
                return json::value(self, row, out, state);
            }
            Values::Mapped(rows, values) => return values.text(rows[row], out, state),
            _ => {}
        }
        let Some(plain) = self.plain(row, &mut state.cut)? else { return Ok(()) };
        match plain {
            Plain::Boolean(value) => Ascii::push(out, if value { b't' } else { b'f' }),
            Plain::Int(value) => out.integer(value),
            Plain::Decimal(value) => value.text(out),
            Plain::Real(value) => float::real(value, out),
            Plain::Double(value) => float::double(value, out),
            Plain::Date(days) => calendar::date(days, out),
            Plain::Time(micros) => calendar::time(micros, out),
            Plain::Timestamp(micros, zoned) => {
                let offset = zoned.then(|| state.zone.offset_at(micros));
                let style = Style { offset, json: state.in_json };
                calendar::timestamp(micros, style, &mut state.day, out);
            }
            Plain::Interval(value) => calendar::interval(value, out),
        }
        Ok(())
    }

    /// Appends the binary form of a value that is not NULL.
    pub(super) fn binary(
        &self,
        row: usize,
        out: &mut Vec<u8>,
        state: &mut State,
    ) -> Result<(), EncodeError> {
        // The commonest first, without a detour.
        match &self.values {
            Values::Int64(values) => out.put_i64(values[row]),
            Values::Float64(values) => out.put_f64(values[row]),
            Values::Int32(values) => out.put_i32(values[row]),
            Values::Int8(values) => out.put_i16(i16::from(values[row])),
            Values::Int16(values) => out.put_i16(values[row]),
            Values::UInt8(values) => out.put_i16(i16::from(values[row])),
            Values::UInt16(values) => out.put_i32(i32::from(values[row])),
            Values::Boolean(values) => out.put_u8(values.value(row).into()),
            Values::List(list) => return list::binary(list, row, out, state),
            Values::Struct(_) | Values::Map(..) | Values::Union(..) => {
                return json::value(self, row, out, state);
            }
            Values::Mapped(rows, values) => return values.binary(rows[row], out, state),
            _ => {
                let text = self.as_text(row).map(str::as_bytes);
                if let Some(bytes) = text.or_else(|| self.as_bytes(row)) {
                    return put(bytes, out);
                }
                match self.plain(row, &mut state.cut)? {
                    Some(plain) => plain.binary(out),
                    None => return Ok(()),
                }
            }
        }
        Ok(())
    }

    /// The text of a column of text.
    pub(super) fn as_text(&self, row: usize) -> Option<&str> {
        match &self.values {
            Values::Utf8(values) => Some(values.value(row)),
            Values::LargeUtf8(values) => Some(values.value(row)),
            Values::Utf8View(values) => Some(values.value(row)),
            _ => None,
        }
    }

    pub(super) fn as_bytes(&self, row: usize) -> Option<&[u8]> {
        match &self.values {
            Values::Binary(values) => Some(values.value(row)),
            Values::LargeBinary(values) => Some(values.value(row)),
            Values::BinaryView(values) => Some(values.value(row)),
            Values::FixedBinary(values) => Some(values.value(row)),
            _ => None,
        }
    }

    /// The list of a column of lists.
    pub(super) fn as_list(&self) -> Option<&List<'_>> {
        match &self.values {
            Values::List(list) => Some(list),
            _ => None,
        }
    }

    #[inline]
    fn plain(&self, row: usize, cut: &mut bool) -> Result<Option<Plain>, EncodeError> {
        let decimal = |value: i128, scale| Plain::Decimal(Decimal::new(value, scale));
        Ok(Some(match &self.values {
            Values::Boolean(values) => Plain::Boolean(values.value(row)),
            Values::Int8(values) => Plain::Int(values[row].into()),
            Values::Int16(values) => Plain::Int(values[row].into()),
            Values::Int32(values) => Plain::Int(values[row].into()),
            Values::Int64(values) => Plain::Int(values[row]),
            Values::UInt8(values) => Plain::Int(values[row].into()),
            Values::UInt16(values) => Plain::Int(values[row].into()),
            Values::UInt32(values) => Plain::Int(values[row].into()),
            Values::UInt64(values) => decimal(values[row].into(), 0),
            Values::Float16(values) => Plain::Real(values[row].to_f32()),
            Values::Float32(values) => Plain::Real(values[row]),
            Values::Float64(values) => Plain::Double(values[row]),
            Values::Decimal32(values, scale) => decimal(values[row].into(), *scale),
            Values::Decimal64(values, scale) => decimal(values[row].into(), *scale),
            Values::Decimal128(values, scale) => decimal(values[row], *scale),
            Values::Decimal256(values, scale) => {
                Plain::Decimal(Decimal::of_256(values[row].to_le_bytes(), *scale))
            }
            Values::Date32(values) => date(values[row].into())?,
            Values::Date64(values) => date(values[row].div_euclid(DAY_MICROS / 1000))?,
            Values::Time32(values, unit) => time(values[row].into(), *unit, cut)?,
            Values::Time64(values, unit) => time(values[row], *unit, cut)?,
            Values::Timestamp(values, unit, zoned) => {
                let micros = micros(values[row], *unit, cut);
                let micros = micros.filter(|at| calendar::postgres_micros(*at).is_some());
                Plain::Timestamp(micros.ok_or(out_of_range("timestamp"))?, *zoned)
            }
            Values::YearMonth(values) => {
                Plain::Interval(Interval { months: values[row], ..Interval::default() })
            }
            Values::DayTime(values) => Plain::Interval(Interval {
                months: 0,
                days: values[row].days,
                micros: i64::from(values[row].milliseconds) * 1000,
            }),
            Values::MonthDayNano(values) => {
                let nanos = values[row].nanoseconds;
                *cut |= nanos % 1000 != 0;
                let (months, days) = (values[row].months, values[row].days);
                Plain::Interval(Interval { months, days, micros: nanos / 1000 })
            }
            Values::Duration(values, unit) => duration(values[row], *unit, cut)?,
            _ => return Ok(None),
        }))
    }
}

impl Plain {
    #[inline]
    fn binary(self, out: &mut Vec<u8>) {
        match self {
            Self::Boolean(value) => out.put_u8(value.into()),
            Self::Int(value) => out.put_i64(value),
            Self::Decimal(value) => value.binary(|piece| out.put_slice(piece)),
            Self::Real(value) => out.put_f32(value),
            Self::Double(value) => out.put_f64(value),
            Self::Date(days) => {
                out.put_i32((days - i64::from(calendar::POSTGRES_EPOCH_DAYS)) as i32);
            }
            Self::Time(micros) => out.put_i64(micros),
            Self::Timestamp(micros, _) => out.put_i64(micros - POSTGRES_EPOCH_MICROS),
            Self::Interval(value) => {
                out.put_i64(value.micros);
                out.put_i32(value.days);
                out.put_i32(value.months);
            }
        }
    }
}

fn out_of_range(what: &'static str) -> EncodeError {
    EncodeError::OutOfRange { what }
}

/// That a value is not larger than a row may be, before it is copied.
fn fits(bytes: usize) -> Result<(), EncodeError> {
    if bytes > MOST_ROW_BYTES {
        return Err(EncodeError::RowTooLarge { most: MOST_ROW_BYTES });
    }
    Ok(())
}

#[inline]
fn put(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    fits(bytes.len())?;
    out.put_slice(bytes);
    Ok(())
}

/// Microseconds; nanoseconds are cut towards the past, so that the digits that stay are those that were there.
fn micros(value: i64, unit: TimeUnit, cut: &mut bool) -> Option<i64> {
    match unit {
        TimeUnit::Second => value.checked_mul(1_000_000),
        TimeUnit::Millisecond => value.checked_mul(1000),
        TimeUnit::Microsecond => Some(value),
        TimeUnit::Nanosecond => {
            *cut |= value % 1000 != 0;
            Some(value.div_euclid(1000))
        }
    }
}

fn date(days: i64) -> Result<Plain, EncodeError> {
    match calendar::postgres_days(days) {
        Some(_) => Ok(Plain::Date(days)),
        None => Err(out_of_range("date")),
    }
}

fn time(value: i64, unit: TimeUnit, cut: &mut bool) -> Result<Plain, EncodeError> {
    let micros = micros(value, unit, cut).filter(|micros| (0..=DAY_MICROS).contains(micros));
    micros.map(Plain::Time).ok_or(out_of_range("time"))
}

/// A length of time in days of 24 hours and the rest, as `timestamp - timestamp` of Postgres has it.
fn duration(value: i64, unit: TimeUnit, cut: &mut bool) -> Result<Plain, EncodeError> {
    let micros = match unit {
        TimeUnit::Second => i128::from(value) * 1_000_000,
        TimeUnit::Millisecond => i128::from(value) * 1000,
        TimeUnit::Microsecond => i128::from(value),
        TimeUnit::Nanosecond => {
            *cut |= value % 1000 != 0;
            i128::from(value / 1000)
        }
    };
    let day = i128::from(DAY_MICROS);
    let days = i32::try_from(micros / day).map_err(|_| out_of_range("interval"))?;
    Ok(Plain::Interval(Interval { months: 0, days, micros: (micros % day) as i64 }))
}
