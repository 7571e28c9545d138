//! Arrow's types and Postgres': oids, sizes, names.
//!
//! # Invariants
//! - Every Arrow type has a Postgres type, and [`arrow_type`] of its oid is a type whose values go to the wire alike.
//! - A list has the array type of its innermost elements: Postgres' arrays have one type for any number of dimensions.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, IntervalUnit, TimeUnit};

use crate::catalog::OF_OIDS;

pub(crate) const BOOL: u32 = 16;
pub(crate) const BYTEA: u32 = 17;
pub(crate) const CHAR: u32 = 18;
pub(crate) const NAME: u32 = 19;
pub(crate) const INT8: u32 = 20;
pub(crate) const INT2: u32 = 21;
pub(crate) const INT4: u32 = 23;
pub(crate) const TEXT: u32 = 25;
pub(crate) const OID: u32 = 26;
/// Their list.
const OIDS: u32 = 1028;
pub(crate) const JSON: u32 = 114;
pub(crate) const FLOAT4: u32 = 700;
pub(crate) const FLOAT8: u32 = 701;
pub(crate) const UNKNOWN: u32 = 705;
pub(crate) const BPCHAR: u32 = 1042;
pub(crate) const VARCHAR: u32 = 1043;
pub(crate) const DATE: u32 = 1082;
pub(crate) const TIME: u32 = 1083;
pub(crate) const TIMESTAMP: u32 = 1114;
pub(crate) const TIMESTAMPTZ: u32 = 1184;
pub(crate) const INTERVAL: u32 = 1186;
pub(crate) const NUMERIC: u32 = 1700;
pub(crate) const UUID: u32 = 2950;
pub(crate) const JSONB: u32 = 3802;

/// Elements and their arrays, with the bytes of an element (-1 if they vary) and its name in SQL.
const TYPES: [(u32, u32, i16, &str); 23] = [
    (BOOL, 1000, 1, "boolean"),
    (BYTEA, 1001, -1, "bytea"),
    (CHAR, 1002, 1, "\"char\""),
    (NAME, 1003, 64, "name"),
    (INT8, 1016, 8, "bigint"),
    (INT2, 1005, 2, "smallint"),
    (INT4, 1007, 4, "integer"),
    (TEXT, 1009, -1, "text"),
    (OID, OIDS, 4, "oid"),
    (JSON, 199, -1, "json"),
    (FLOAT4, 1021, 4, "real"),
    (FLOAT8, 1022, 8, "double precision"),
    (UNKNOWN, 0, -2, "unknown"),
    (BPCHAR, 1014, -1, "character"),
    (VARCHAR, 1015, -1, "character varying"),
    (DATE, 1182, 4, "date"),
    (TIME, 1183, 8, "time without time zone"),
    (TIMESTAMP, 1115, 8, "timestamp without time zone"),
    (TIMESTAMPTZ, 1185, 8, "timestamp with time zone"),
    (INTERVAL, 1187, 16, "interval"),
    (NUMERIC, 1231, -1, "numeric"),
    (UUID, 2951, 16, "uuid"),
    (JSONB, 3807, -1, "jsonb"),
];

/// Digits before and behind the point of a `numeric` parameter that nothing else says: 28 and 10.
const PARAMETER_DECIMAL: DataType = DataType::Decimal128(38, 10);

/// A decimal of as many digits as there are, half of them behind the point.
pub(crate) const WIDEST_DECIMAL: DataType = DataType::Decimal256(76, 38);

/// What RowDescription says of a column's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PgType {
    pub oid: u32,
    /// Bytes of a value, or -1 if they vary.
    pub size: i16,
    /// Precision and scale of `numeric`, else -1.
    pub typmod: i32,
}

/// That of a text of one character in a catalog.
pub(crate) const ONE_CHARACTER: PgType = PgType { oid: CHAR, size: 1, typmod: -1 };

/// The Postgres type of an Arrow type.
pub(crate) fn of(data_type: &DataType) -> PgType {
    let oid = oid(data_type);
    if let DataType::Decimal32(precision, scale)
    | DataType::Decimal64(precision, scale)
    | DataType::Decimal128(precision, scale)
    | DataType::Decimal256(precision, scale) = data_type
    {
        let typmod = (i32::from(*precision) << 16 | i32::from(*scale) & 0x7ff) + 4;
        return PgType { oid, size: -1, typmod };
    }
    if let Some(inner) = encoded(data_type) {
        return of(inner);
    }
    if let Some(element) = element(data_type) {
        return PgType { oid, size: -1, typmod: of(element).typmod };
    }
    let size = TYPES.iter().find(|known| known.0 == oid).map_or(-1, |known| known.2);
    PgType { oid, size, typmod: -1 }
}

/// The type of what a list holds, `None` for what is no list.
pub(crate) fn element(data_type: &DataType) -> Option<&DataType> {
    match data_type {
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _) => Some(field.data_type()),
        _ => None,
    }
}

/// The type of values that are kept by number or by run.
fn encoded(data_type: &DataType) -> Option<&DataType> {
    match data_type {
        DataType::Dictionary(_, values) => Some(values),
        DataType::RunEndEncoded(_, values) => Some(values.data_type()),
        _ => None,
    }
}

/// The oid of a list's innermost elements, or of the type itself.
pub(crate) fn innermost(data_type: &DataType) -> u32 {
    match element(data_type).or_else(|| encoded(data_type)) {
        Some(inner) => innermost(inner),
        None => oid(data_type),
    }
}

fn oid(data_type: &DataType) -> u32 {
    match data_type {
        DataType::Boolean => BOOL,
        DataType::Int8 | DataType::Int16 | DataType::UInt8 => INT2,
        DataType::Int32 | DataType::UInt16 => INT4,
        DataType::Int64 | DataType::UInt32 => INT8,
        DataType::UInt64
        | DataType::Decimal32(..)
        | DataType::Decimal64(..)
        | DataType::Decimal128(..)
        | DataType::Decimal256(..) => NUMERIC,
        DataType::Float16 | DataType::Float32 => FLOAT4,
        DataType::Float64 => FLOAT8,
        DataType::Null | DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => TEXT,
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => BYTEA,
        DataType::Date32 | DataType::Date64 => DATE,
        DataType::Time32(_) | DataType::Time64(_) => TIME,
        DataType::Timestamp(_, None) => TIMESTAMP,
        DataType::Timestamp(_, Some(_)) => TIMESTAMPTZ,
        DataType::Interval(_) | DataType::Duration(_) => INTERVAL,
        DataType::Dictionary(_, values) => oid(values),
        DataType::RunEndEncoded(_, values) => oid(values.data_type()),
        DataType::Struct(_) | DataType::Map(..) | DataType::Union(..) => JSON,
        DataType::List(item) if item.metadata().contains_key(OF_OIDS) => OIDS,
        DataType::List(_)
        | DataType::LargeList(_)
        | DataType::ListView(_)
        | DataType::LargeListView(_)
        | DataType::FixedSizeList(..) => {
            let innermost = innermost(data_type);
            TYPES.iter().find(|known| known.0 == innermost).map_or(TEXT, |known| known.1)
        }
    }
}

/// The oid of an array's elements, `None` if it is no array's.
pub(crate) fn element_oid(array: u32) -> Option<u32> {
    TYPES.iter().find(|known| known.1 == array && array != 0).map(|known| known.0)
}

/// The Arrow type of a parameter whose type a client says at Parse; `None` for 0, `unknown` and what is not known here.
///
/// `numeric` is a decimal of 38 digits, 10 of them behind the point: a statement that knows better should.
pub(crate) fn arrow_type(oid: u32) -> Option<DataType> {
    let data_type = match oid {
        BOOL => DataType::Boolean,
        BYTEA => DataType::Binary,
        INT2 => DataType::Int16,
        INT4 => DataType::Int32,
        INT8 | OID => DataType::Int64,
        CHAR | NAME | TEXT | JSON | JSONB | BPCHAR | VARCHAR | UUID => DataType::Utf8,
        FLOAT4 => DataType::Float32,
        FLOAT8 => DataType::Float64,
        DATE => DataType::Date32,
        TIME => DataType::Time64(TimeUnit::Microsecond),
        TIMESTAMP => DataType::Timestamp(TimeUnit::Microsecond, None),
        TIMESTAMPTZ => DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())),
        INTERVAL => DataType::Interval(IntervalUnit::MonthDayNano),
        NUMERIC => PARAMETER_DECIMAL,
        other => {
            let element = arrow_type(element_oid(other)?)?;
            DataType::List(Arc::new(Field::new_list_field(element, true)))
        }
    };
    Some(data_type)
}

/// What SQL calls the type, as `format_type` does: `bigint`, `numeric(10,2)`, `integer[]`.
pub(crate) fn postgres_name(data_type: &DataType) -> String {
    if let Some(element) = element(data_type) {
        let name = postgres_name(element);
        return if name.ends_with("[]") { name } else { name + "[]" };
    }
    if let Some(inner) = encoded(data_type) {
        return postgres_name(inner);
    }
    let PgType { oid, typmod, .. } = of(data_type);
    match data_type {
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => format!("numeric({precision},{scale})"),
        _ => {
            debug_assert_eq!(typmod, -1);
            name_of(oid)
        }
    }
}

/// The name of an oid, without precision and scale.
pub(crate) fn name_of(oid: u32) -> String {
    if let Some(element) = element_oid(oid) {
        return name_of(element) + "[]";
    }
    let known = TYPES.iter().find(|known| known.0 == oid);
    known.map_or_else(|| format!("oid {oid}"), |known| known.3.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(data_type: DataType) -> DataType {
        DataType::List(Arc::new(Field::new_list_field(data_type, true)))
    }

    #[test]
    fn types_have_the_oids_sizes_and_names_of_postgres_15() {
        let zone = Some("UTC".into());
        for (data_type, oid, size, typmod, name) in [
            (DataType::Boolean, 16, 1, -1, "boolean"),
            (DataType::UInt8, 21, 2, -1, "smallint"),
            (DataType::UInt16, 23, 4, -1, "integer"),
            (DataType::UInt32, 20, 8, -1, "bigint"),
            (DataType::UInt64, 1700, -1, -1, "numeric"),
            (DataType::Float16, 700, 4, -1, "real"),
            (DataType::Float64, 701, 8, -1, "double precision"),
            (DataType::Decimal128(10, 2), 1700, -1, 655366, "numeric(10,2)"),
            (DataType::Decimal128(5, -2), 1700, -1, 329730, "numeric(5,-2)"),
            (DataType::Utf8View, 25, -1, -1, "text"),
            (DataType::Null, 25, -1, -1, "text"),
            (DataType::FixedSizeBinary(4), 17, -1, -1, "bytea"),
            (DataType::Date32, 1082, 4, -1, "date"),
            (DataType::Time32(TimeUnit::Second), 1083, 8, -1, "time without time zone"),
            (
                DataType::Timestamp(TimeUnit::Nanosecond, None),
                1114,
                8,
                -1,
                "timestamp without time zone",
            ),
            (DataType::Timestamp(TimeUnit::Second, zone), 1184, 8, -1, "timestamp with time zone"),
            (DataType::Duration(TimeUnit::Second), 1186, 16, -1, "interval"),
            (list(list(DataType::Int32)), 1007, -1, -1, "integer[]"),
            (list(DataType::Decimal128(10, 2)), 1231, -1, 655366, "numeric(10,2)[]"),
            (
                DataType::Struct(vec![Field::new("a", DataType::Int8, true)].into()),
                114,
                -1,
                -1,
                "json",
            ),
            (
                DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
                25,
                -1,
                -1,
                "text",
            ),
        ] {
            assert_eq!(of(&data_type), PgType { oid, size, typmod }, "{data_type}");
            assert_eq!(postgres_name(&data_type), name);
        }
    }

    #[test]
    fn parameters_have_types_that_go_to_the_same_oid() {
        for (oid, array, ..) in TYPES {
            let Some(data_type) = arrow_type(oid) else {
                assert_eq!(oid, UNKNOWN);
                continue;
            };
            let same = match oid {
                CHAR | NAME | JSON | JSONB | BPCHAR | VARCHAR | UUID => TEXT,
                OID => INT8,
                same => same,
            };
            assert_eq!(of(&data_type).oid, same);
            assert_eq!(element_oid(array), Some(oid));
            assert_eq!(arrow_type(array), Some(list(data_type)));
        }
        assert_eq!(arrow_type(0), None);
        assert_eq!(arrow_type(99_999), None);
    }
}
