//! A value as the wire has it, and as a type of Arrow.
//!
//! # Invariants
//! A value fits a type whole or is refused: no digit, no second and no sign is lost on the way. Two things are rounded, as
//! in Postgres: fractions of seconds behind microseconds, and `double precision` to `real`.

use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Float16Type, IntervalDayTime, IntervalMonthDayNano, IntervalUnit,
    TimeUnit, i256,
};
use uplake_engine::ScalarValue;

use super::error::{ParamError, shown};
use super::interval::Length;
use super::number::{self, Digits, Wrong};
use crate::pg::encode::calendar;
use crate::pg::types;

type Half = <Float16Type as ArrowPrimitiveType>::Native;

const DAY_NANOS: i128 = calendar::DAY_MICROS as i128 * 1000;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Plain {
    Boolean(bool),
    Whole(i128),
    Digits(Digits),
    Real(f32),
    Double(f64),
    Text(String),
    Bytes(Vec<u8>),
    /// Since 1970.
    Days(i64),
    /// Nanoseconds since midnight.
    Time(i64),
    /// Nanoseconds since 1970, in UTC or in no zone.
    Moment(i128),
    Length(Length),
}

/// Why a value does not fit.
enum Misfit {
    Number(Wrong),
    Time,
    Kind,
}

impl Plain {
    /// The value as one of the type. `oid` is what it was sent as.
    pub(super) fn fit(self, data_type: &DataType, oid: u32) -> Result<ScalarValue, ParamError> {
        let type_name = || types::postgres_name(data_type);
        let text = self.shown();
        self.value(data_type).map_err(|misfit| match misfit {
            Misfit::Number(Wrong::Inexact) => ParamError::Inexact { type_name: type_name(), text },
            Misfit::Number(_) => ParamError::OutOfRange { type_name: type_name(), text },
            Misfit::Time => ParamError::DateOutOfRange { type_name: type_name(), text },
            Misfit::Kind => ParamError::Mismatch { said: types::name_of(oid), wanted: type_name() },
        })
    }

    fn shown(&self) -> String {
        match self {
            Self::Whole(value) => value.to_string(),
            Self::Digits(digits) => shown(&digits.text()),
            Self::Real(value) => value.to_string(),
            Self::Double(value) => value.to_string(),
            Self::Text(text) => shown(text),
            // Times have many spellings, and none is the one that came.
            Self::Days(days) => format!("{days} days since 1970"),
            Self::Time(nanos) => format!("{nanos} ns"),
            Self::Moment(nanos) => format!("{nanos} ns since 1970"),
            Self::Length(Length { months, days, nanos }) => {
                format!("{months} mons {days} days {nanos} ns")
            }
            Self::Boolean(_) | Self::Bytes(_) => String::new(),
        }
    }

    fn value(self, data_type: &DataType) -> Result<ScalarValue, Misfit> {
        Ok(match data_type {
            DataType::Boolean => match self {
                Self::Boolean(value) => ScalarValue::Boolean(Some(value)),
                _ => return Err(Misfit::Kind),
            },
            DataType::Int8 => ScalarValue::Int8(Some(self.integer()?)),
            DataType::Int16 => ScalarValue::Int16(Some(self.integer()?)),
            DataType::Int32 => ScalarValue::Int32(Some(self.integer()?)),
            DataType::Int64 => ScalarValue::Int64(Some(self.integer()?)),
            DataType::UInt8 => ScalarValue::UInt8(Some(self.integer()?)),
            DataType::UInt16 => ScalarValue::UInt16(Some(self.integer()?)),
            DataType::UInt32 => ScalarValue::UInt32(Some(self.integer()?)),
            DataType::UInt64 => ScalarValue::UInt64(Some(self.integer()?)),
            DataType::Float16 => {
                let single = self.real()?;
                let value = Half::from_f32(single);
                if value.is_infinite() && single.is_finite() {
                    return Err(Misfit::Number(Wrong::Range));
                }
                ScalarValue::Float16(Some(value))
            }
            DataType::Float32 => ScalarValue::Float32(Some(self.real()?)),
            DataType::Float64 => ScalarValue::Float64(Some(self.double()?)),
            DataType::Decimal32(precision, scale) => {
                let value = self.decimal(*precision, *scale)?.parse();
                ScalarValue::Decimal32(Some(value.map_err(|_| range())?), *precision, *scale)
            }
            DataType::Decimal64(precision, scale) => {
                let value = self.decimal(*precision, *scale)?.parse();
                ScalarValue::Decimal64(Some(value.map_err(|_| range())?), *precision, *scale)
            }
            DataType::Decimal128(precision, scale) => {
                let value = self.decimal(*precision, *scale)?.parse();
                ScalarValue::Decimal128(Some(value.map_err(|_| range())?), *precision, *scale)
            }
            DataType::Decimal256(precision, scale) => {
                let value = i256::from_string(&self.decimal(*precision, *scale)?);
                ScalarValue::Decimal256(Some(value.ok_or_else(range)?), *precision, *scale)
            }
            DataType::Utf8 | DataType::Null => ScalarValue::Utf8(Some(self.into_text()?)),
            DataType::LargeUtf8 => ScalarValue::LargeUtf8(Some(self.into_text()?)),
            DataType::Utf8View => ScalarValue::Utf8View(Some(self.into_text()?)),
            DataType::Binary => ScalarValue::Binary(Some(self.into_bytes()?)),
            DataType::LargeBinary => ScalarValue::LargeBinary(Some(self.into_bytes()?)),
            DataType::BinaryView => ScalarValue::BinaryView(Some(self.into_bytes()?)),
            DataType::FixedSizeBinary(size) => {
                let bytes = self.into_bytes()?;
                if usize::try_from(*size) != Ok(bytes.len()) {
                    return Err(range());
                }
                ScalarValue::FixedSizeBinary(*size, Some(bytes))
            }
            _ => return self.time_value(data_type),
        })
    }

    fn time_value(self, data_type: &DataType) -> Result<ScalarValue, Misfit> {
        Ok(match data_type {
            DataType::Date32 => ScalarValue::Date32(Some(narrow(self.days()?)?)),
            DataType::Date64 => {
                let millis = self.days()?.checked_mul(calendar::DAY_MICROS / 1000);
                ScalarValue::Date64(Some(millis.ok_or(Misfit::Time)?))
            }
            DataType::Time32(TimeUnit::Second) => {
                ScalarValue::Time32Second(Some(narrow(self.time(TimeUnit::Second)?)?))
            }
            DataType::Time32(_) => {
                ScalarValue::Time32Millisecond(Some(narrow(self.time(TimeUnit::Millisecond)?)?))
            }
            DataType::Time64(unit @ TimeUnit::Nanosecond) => {
                ScalarValue::Time64Nanosecond(Some(self.time(*unit)?))
            }
            DataType::Time64(_) => {
                ScalarValue::Time64Microsecond(Some(self.time(TimeUnit::Microsecond)?))
            }
            DataType::Timestamp(unit, zone) => {
                let (value, zone) = (Some(self.moment(*unit)?), zone.clone());
                match unit {
                    TimeUnit::Second => ScalarValue::TimestampSecond(value, zone),
                    TimeUnit::Millisecond => ScalarValue::TimestampMillisecond(value, zone),
                    TimeUnit::Microsecond => ScalarValue::TimestampMicrosecond(value, zone),
                    TimeUnit::Nanosecond => ScalarValue::TimestampNanosecond(value, zone),
                }
            }
            DataType::Interval(unit) => {
                let Length { months, days, nanos } = self.length()?;
                match unit {
                    IntervalUnit::MonthDayNano => {
                        let nanos = narrow(nanos)?;
                        let value = IntervalMonthDayNano::new(months, days, nanos);
                        ScalarValue::IntervalMonthDayNano(Some(value))
                    }
                    IntervalUnit::DayTime if months == 0 => {
                        let millis = narrow(in_unit(nanos, TimeUnit::Millisecond)?)?;
                        let value = IntervalDayTime::new(days, millis);
                        ScalarValue::IntervalDayTime(Some(value))
                    }
                    IntervalUnit::YearMonth if days == 0 && nanos == 0 => {
                        ScalarValue::IntervalYearMonth(Some(months))
                    }
                    _ => return Err(Misfit::Number(Wrong::Inexact)),
                }
            }
            DataType::Duration(unit) => {
                let Length { months, days, nanos } = self.length()?;
                if months != 0 {
                    return Err(Misfit::Number(Wrong::Inexact));
                }
                let value = Some(in_unit(i128::from(days) * DAY_NANOS + nanos, *unit)?);
                match unit {
                    TimeUnit::Second => ScalarValue::DurationSecond(value),
                    TimeUnit::Millisecond => ScalarValue::DurationMillisecond(value),
                    TimeUnit::Microsecond => ScalarValue::DurationMicrosecond(value),
                    TimeUnit::Nanosecond => ScalarValue::DurationNanosecond(value),
                }
            }
            _ => return Err(Misfit::Kind),
        })
    }

    fn integer<T: TryFrom<i128>>(self) -> Result<T, Misfit> {
        let whole = match self {
            Self::Whole(value) => value,
            other => other.digits()?.whole().map_err(Misfit::Number)?,
        };
        T::try_from(whole).map_err(|_| range())
    }

    fn decimal(self, precision: u8, scale: i8) -> Result<String, Misfit> {
        self.digits()?.scaled(precision, scale).map_err(Misfit::Number)
    }

    fn digits(self) -> Result<Digits, Misfit> {
        let text = match self {
            Self::Digits(digits) => return Ok(digits),
            Self::Whole(value) => value.to_string(),
            Self::Real(value) => format!("{value:e}"),
            Self::Double(value) => format!("{value:e}"),
            _ => return Err(Misfit::Kind),
        };
        // NaN and infinities are no digits.
        Digits::parse(&text).map_err(|_| range())
    }

    fn double(self) -> Result<f64, Misfit> {
        match self {
            Self::Double(value) => Ok(value),
            Self::Real(value) => Ok(value.into()),
            other => {
                let text = other.digits()?.text();
                number::float(&text, |value: &f64| *value == 0.0, |value| value.is_infinite())
                    .map_err(Misfit::Number)
            }
        }
    }

    fn real(self) -> Result<f32, Misfit> {
        match self {
            Self::Real(value) => Ok(value),
            Self::Double(value) => {
                let single = value as f32;
                let is_lost = single.is_infinite() && value.is_finite();
                if is_lost || single == 0.0 && value != 0.0 { Err(range()) } else { Ok(single) }
            }
            other => {
                let text = other.digits()?.text();
                number::float(&text, |value: &f32| *value == 0.0, |value| value.is_infinite())
                    .map_err(Misfit::Number)
            }
        }
    }

    fn into_text(self) -> Result<String, Misfit> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Whole(value) => Ok(value.to_string()),
            Self::Boolean(value) => Ok(value.to_string()),
            _ => Err(Misfit::Kind),
        }
    }

    fn into_bytes(self) -> Result<Vec<u8>, Misfit> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(Misfit::Kind),
        }
    }

    fn days(self) -> Result<i64, Misfit> {
        let days = match self {
            Self::Days(days) => days,
            Self::Moment(nanos) if nanos % DAY_NANOS == 0 => narrow(nanos / DAY_NANOS)?,
            Self::Moment(_) => return Err(Misfit::Number(Wrong::Inexact)),
            _ => return Err(Misfit::Kind),
        };
        calendar::postgres_days(days).map(|_| days).ok_or(Misfit::Time)
    }

    fn time(self, unit: TimeUnit) -> Result<i64, Misfit> {
        match self {
            Self::Time(nanos) if (0..=DAY_NANOS).contains(&i128::from(nanos)) => {
                in_unit(nanos.into(), unit)
            }
            Self::Time(_) => Err(Misfit::Time),
            _ => Err(Misfit::Kind),
        }
    }

    fn moment(self, unit: TimeUnit) -> Result<i64, Misfit> {
        let nanos = match self {
            Self::Moment(nanos) => nanos,
            Self::Days(days) => i128::from(days) * DAY_NANOS,
            _ => return Err(Misfit::Kind),
        };
        let micros = narrow(nanos.div_euclid(1000))?;
        calendar::postgres_micros(micros).ok_or(Misfit::Time)?;
        in_unit(nanos, unit)
    }

    fn length(self) -> Result<Length, Misfit> {
        match self {
            Self::Length(length) => Ok(length),
            _ => Err(Misfit::Kind),
        }
    }
}

fn range() -> Misfit {
    Misfit::Number(Wrong::Range)
}

fn narrow<T: TryFrom<N>, N>(number: N) -> Result<T, Misfit> {
    T::try_from(number).map_err(|_| Misfit::Time)
}

/// Nanoseconds in a unit: rounded to microseconds, exact in longer ones.
fn in_unit(nanos: i128, unit: TimeUnit) -> Result<i64, Misfit> {
    let unit_nanos = match unit {
        TimeUnit::Nanosecond => 1,
        TimeUnit::Microsecond => return narrow((nanos + 500).div_euclid(1000)),
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Second => 1_000_000_000,
    };
    if nanos % unit_nanos != 0 {
        return Err(Misfit::Number(Wrong::Inexact));
    }
    narrow(nanos / unit_nanos)
}
