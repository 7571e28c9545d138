//! Bytes of the wire to plain values, by the type that they were sent as.

use super::datetime::{self, Place};
use super::error::{ParamError, shown};
use super::interval::{self, Length};
use super::number::{self, Digits, Wrong};
use super::plain::Plain;
use crate::pg::encode::Zone;
use crate::pg::encode::calendar::{DAY_MICROS, POSTGRES_EPOCH_DAYS, POSTGRES_EPOCH_MICROS};
use crate::pg::types::{self, *};

/// A value written as text. `zone` is that of moments that name none.
pub(super) fn text(text: &str, oid: u32, zone: Zone) -> Result<Plain, ParamError> {
    let syntax = || ParamError::Syntax { type_name: types::name_of(oid), text: shown(text) };
    let wrong = |wrong| match wrong {
        Wrong::Syntax => syntax(),
        _ => ParamError::OutOfRange { type_name: types::name_of(oid), text: shown(text) },
    };
    let wrong_time = |wrong| {
        let (type_name, text) = (types::name_of(oid), shown(text));
        match wrong {
            datetime::Wrong::Syntax => ParamError::DateSyntax { type_name, text },
            datetime::Wrong::Range => ParamError::DateOutOfRange { type_name, text },
        }
    };
    Ok(match oid {
        BOOL => Plain::Boolean(number::boolean(text).ok_or_else(syntax)?),
        INT2 | INT4 | INT8 | OID => Plain::Whole(number::integer(text).map_err(wrong)?),
        FLOAT4 => {
            let value = number::float(text, |value: &f32| *value == 0.0, |v| v.is_infinite());
            Plain::Real(value.map_err(wrong)?)
        }
        FLOAT8 => {
            let value = number::float(text, |value: &f64| *value == 0.0, |v| v.is_infinite());
            Plain::Double(value.map_err(wrong)?)
        }
        NUMERIC => {
            let special = number::trim(text).trim_start_matches(['-', '+']).to_ascii_lowercase();
            if matches!(special.as_str(), "nan" | "inf" | "infinity") {
                return Err(wrong(Wrong::Range));
            }
            Plain::Digits(Digits::parse(text).map_err(wrong)?)
        }
        BYTEA => Plain::Bytes(number::bytes(text).ok_or_else(syntax)?),
        DATE => Plain::Days(datetime::moment(text).map_err(wrong_time)?.days),
        TIME => Plain::Time(datetime::time(text).map_err(wrong_time)?.0),
        TIMESTAMP | TIMESTAMPTZ => {
            let moment = datetime::moment(text).map_err(wrong_time)?;
            let nanos = i128::from(moment.days) * i128::from(DAY_MICROS) * 1000;
            let nanos = nanos + i128::from(moment.nanos);
            if oid == TIMESTAMP {
                // A zone is passed over, as in Postgres.
                return Ok(Plain::Moment(nanos));
            }
            let local = moment.days * (DAY_MICROS / 1_000_000) + moment.nanos / 1_000_000_000;
            let offset = match moment.place {
                Place::Nowhere => zone.offset_of_local(local),
                Place::Offset(offset) => offset,
                Place::Zone(name) => {
                    let zone = Zone::parse(name);
                    zone.map_err(|_| wrong_time(datetime::Wrong::Syntax))?.offset_of_local(local)
                }
            };
            Plain::Moment(nanos - i128::from(offset) * 1_000_000_000)
        }
        INTERVAL => Plain::Length(interval::interval(text).map_err(wrong_time)?),
        _ => Plain::Text(text.to_owned()),
    })
}

/// A value in binary.
pub(super) fn binary(bytes: &[u8], oid: u32) -> Result<Plain, ParamError> {
    let broken = || ParamError::binary(oid);
    let out_of_range = || ParamError::DateOutOfRange {
        type_name: types::name_of(oid),
        text: "infinity".to_owned(),
    };
    Ok(match oid {
        BOOL => Plain::Boolean(fixed::<1>(bytes, oid)?[0] != 0),
        INT2 => Plain::Whole(i16::from_be_bytes(fixed(bytes, oid)?).into()),
        INT4 => Plain::Whole(i32::from_be_bytes(fixed(bytes, oid)?).into()),
        OID => Plain::Whole(u32::from_be_bytes(fixed(bytes, oid)?).into()),
        INT8 => Plain::Whole(i64::from_be_bytes(fixed(bytes, oid)?).into()),
        FLOAT4 => Plain::Real(f32::from_be_bytes(fixed(bytes, oid)?)),
        FLOAT8 => Plain::Double(f64::from_be_bytes(fixed(bytes, oid)?)),
        NUMERIC => {
            let digits = number::numeric(bytes).ok_or_else(broken)?;
            Plain::Digits(digits.map_err(|_| ParamError::OutOfRange {
                type_name: types::name_of(oid),
                text: "NaN or Infinity".to_owned(),
            })?)
        }
        BYTEA => Plain::Bytes(bytes.to_vec()),
        DATE => match i32::from_be_bytes(fixed(bytes, oid)?) {
            i32::MIN | i32::MAX => return Err(out_of_range()),
            days => Plain::Days(i64::from(days) + i64::from(POSTGRES_EPOCH_DAYS)),
        },
        TIME => {
            let micros = i64::from_be_bytes(fixed(bytes, oid)?);
            if !(0..=DAY_MICROS).contains(&micros) {
                return Err(broken());
            }
            Plain::Time(micros * 1000)
        }
        TIMESTAMP | TIMESTAMPTZ => match i64::from_be_bytes(fixed(bytes, oid)?) {
            i64::MIN | i64::MAX => return Err(out_of_range()),
            micros => {
                Plain::Moment((i128::from(micros) + i128::from(POSTGRES_EPOCH_MICROS)) * 1000)
            }
        },
        INTERVAL => {
            let all: [u8; 16] = fixed(bytes, oid)?;
            let (micros, rest) = all.split_first_chunk().ok_or_else(broken)?;
            let (days, months) = rest.split_first_chunk().ok_or_else(broken)?;
            Plain::Length(Length {
                months: i32::from_be_bytes(fixed(months, oid)?),
                days: i32::from_be_bytes(*days),
                nanos: i128::from(i64::from_be_bytes(*micros)) * 1000,
            })
        }
        UUID => {
            let digits = format!("{:032x}", u128::from_be_bytes(fixed(bytes, oid)?));
            let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20]];
            Plain::Text(format!("{}-{}", parts.join("-"), &digits[20..]))
        }
        JSONB => match bytes {
            [1, text @ ..] => Plain::Text(utf8(text)?.to_owned()),
            _ => return Err(broken()),
        },
        _ => Plain::Text(utf8(bytes)?.to_owned()),
    })
}

fn fixed<const N: usize>(bytes: &[u8], oid: u32) -> Result<[u8; N], ParamError> {
    bytes.try_into().map_err(|_| ParamError::binary(oid))
}

/// Text of the client, which has no zero bytes, as Postgres' has none.
pub(super) fn utf8(bytes: &[u8]) -> Result<&str, ParamError> {
    let text = std::str::from_utf8(bytes).map_err(|_| ParamError::Encoding)?;
    if text.contains('\0') { Err(ParamError::Encoding) } else { Ok(text) }
}
