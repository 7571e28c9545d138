//! Column types: how people write them, how Delta stores them, how files are fitted to them.
//!
//! # Invariants
//! - A stored type is one that every Delta reader knows: text, the integers, floats, decimal, boolean,
//!   binary, date, timestamp (no zone, microseconds) and timestamptz (UTC, microseconds), and lists,
//!   structs and maps of those.
//! - A file is fitted to a table by widening only. Anything that could change a value is a type
//!   clash, never a silent cast.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date64Type, Field, Fields, Schema, TimeUnit,
    TimestampNanosecondType,
};

use crate::error::{Result, TableError};

/// The SQL name of a type, as `DESCRIBE` prints it and `--schema` takes it.
pub fn type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "text".into(),
        DataType::Int64 => "bigint".into(),
        DataType::Int32 => "integer".into(),
        DataType::Int16 => "smallint".into(),
        DataType::Int8 => "tinyint".into(),
        DataType::Float64 => "double".into(),
        DataType::Float32 => "real".into(),
        DataType::Boolean => "boolean".into(),
        DataType::Date32 => "date".into(),
        DataType::Timestamp(_, None) => "timestamp".into(),
        DataType::Timestamp(_, Some(_)) => "timestamptz".into(),
        DataType::Decimal128(p, s) => format!("decimal({p},{s})"),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "binary".into(),
        DataType::List(item) => format!("{}[]", type_name(item.data_type())),
        DataType::Dictionary(_, value) => type_name(value),
        DataType::Struct(fields) => {
            let field = |f: &Arc<Field>| format!("{} {}", f.name(), type_name(f.data_type()));
            format!("struct<{}>", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        DataType::Map(entries, _) => match key_and_value(entries) {
            Some((key, value)) => {
                format!("map({}, {})", type_name(key.data_type()), type_name(value.data_type()))
            }
            None => data_type.to_string().to_lowercase(),
        },
        other => other.to_string().to_lowercase(),
    }
}

const TYPE_NAMES: &str = "text, bigint, integer, smallint, tinyint, double, real, boolean, date, \
     timestamp, timestamptz, decimal(p,s), binary";

/// The stored type a SQL type name stands for.
///
/// # Errors
/// [`TableError::Invalid`] lists the names that are known.
pub fn parse_type(name: &str) -> Result<DataType> {
    let lower = name.trim().to_ascii_lowercase();
    let base = lower.split('(').next().unwrap_or_default().trim();
    Ok(match base {
        "text" | "varchar" | "string" | "char" => DataType::Utf8,
        "bigint" | "int8" | "long" => DataType::Int64,
        "integer" | "int" | "int4" => DataType::Int32,
        "smallint" | "int2" | "short" => DataType::Int16,
        "tinyint" | "byte" => DataType::Int8,
        "double" | "float8" | "double precision" => DataType::Float64,
        "real" | "float" | "float4" => DataType::Float32,
        "boolean" | "bool" => DataType::Boolean,
        "date" => DataType::Date32,
        "timestamp" | "datetime" => DataType::Timestamp(TimeUnit::Microsecond, None),
        "timestamptz" | "timestamp with time zone" => {
            DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
        }
        "decimal" | "numeric" => parse_decimal(&lower)?,
        "binary" | "bytea" | "blob" => DataType::Binary,
        _ => {
            return Err(TableError::Invalid(format!(
                "unknown type `{}`; known types: {TYPE_NAMES}",
                name.trim()
            )));
        }
    })
}

fn parse_decimal(lower: &str) -> Result<DataType> {
    let bad = || TableError::Invalid(format!("`{lower}`: write decimal(precision, scale)"));
    let inner = lower.split_once('(').and_then(|(_, r)| r.strip_suffix(')')).ok_or_else(bad)?;
    let (p, s) = inner.split_once(',').unwrap_or((inner, "0"));
    let precision: u8 = p.trim().parse().map_err(|_| bad())?;
    let scale: i8 = s.trim().parse().map_err(|_| bad())?;
    if !(1..=38).contains(&precision) || scale < 0 || scale as u8 > precision {
        return Err(bad());
    }
    Ok(DataType::Decimal128(precision, scale))
}

/// Parses `"ts timestamp, user_id text not null, …"`.
///
/// # Errors
/// [`TableError::Invalid`] names the column and what is wrong with it.
///
/// # Examples
/// ```
/// let schema = uplake_table::parse_schema("ts timestamp, user_id text not null")?;
/// assert_eq!(schema.field(1).name(), "user_id");
/// assert!(!schema.field(1).is_nullable());
/// # Ok::<(), uplake_table::TableError>(())
/// ```
pub fn parse_schema(text: &str) -> Result<Schema> {
    let mut fields: Vec<Field> = Vec::new();
    for part in split_outside_brackets(text) {
        let part = part.trim();
        let (name, rest) = split_name(part)?;
        let lower = rest.to_ascii_lowercase();
        let (type_text, nullable) = match lower.strip_suffix("not null") {
            Some(_) => (&rest[..rest.len() - "not null".len()], false),
            None => (rest, true),
        };
        if fields.iter().any(|f| f.name() == name) {
            return Err(TableError::Invalid(format!("--schema names column `{name}` twice")));
        }
        let data_type = parse_type(type_text)
            .map_err(|e| TableError::Invalid(format!("--schema, column `{name}`: {e}")))?;
        fields.push(Field::new(name, data_type, nullable));
    }
    Ok(Schema::new(fields))
}

fn split_name(part: &str) -> Result<(&str, &str)> {
    let missing = || {
        TableError::Invalid(format!(
            "--schema: `{part}` is not `NAME TYPE`; example: \"ts timestamp, user_id text\""
        ))
    };
    if let Some(quoted) = part.strip_prefix('"') {
        let (name, rest) = quoted.split_once('"').ok_or_else(missing)?;
        return Ok((name, rest.trim()));
    }
    let (name, rest) = part.split_once(char::is_whitespace).ok_or_else(missing)?;
    Ok((name, rest.trim()))
}

fn split_outside_brackets(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0usize, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// The type a column of an input file is stored as: the nearest one that Delta has.
///
/// # Errors
/// A sentence about why there is none (unsigned 64-bit numbers become decimal(20,0); times of day,
/// intervals and unions are refused).
pub fn stored_type(data_type: &DataType) -> Result<DataType, String> {
    use DataType::{Date32, Date64, Decimal32, Decimal64, Decimal128};
    Ok(match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => DataType::Binary,
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => data_type.clone(),
        DataType::UInt8 => DataType::Int16,
        DataType::UInt16 => DataType::Int32,
        DataType::UInt32 => DataType::Int64,
        DataType::UInt64 => Decimal128(20, 0),
        DataType::Float16 | DataType::Float32 => DataType::Float32,
        DataType::Float64 | DataType::Boolean => data_type.clone(),
        Date32 | Date64 => Date32,
        DataType::Timestamp(_, None) => DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Timestamp(_, Some(_)) => {
            DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
        }
        Decimal32(p, s) | Decimal64(p, s) | Decimal128(p, s) if *s >= 0 => Decimal128(*p, *s),
        DataType::Dictionary(_, value) => stored_type(value)?,
        DataType::List(item) | DataType::LargeList(item) => {
            DataType::List(Arc::new(stored_field(item)?))
        }
        DataType::Struct(fields) => DataType::Struct(
            fields
                .iter()
                .map(|f| stored_field(f).map(Arc::new))
                .collect::<Result<Fields, String>>()?,
        ),
        DataType::Map(entries, _) => {
            let (key, value) = key_and_value(entries).ok_or("a map without keys or values")?;
            let (of_keys, of_values) =
                (stored_type(key.data_type())?, stored_type(value.data_type())?);
            // deltalake-core 1.1 does not look into maps for the feature that such a table needs, and nobody could open it.
            if [&of_keys, &of_values].into_iter().any(has_local_time) {
                return Err(format!(
                    "type {} cannot be stored: a map of times without a zone; cast them to timestamptz or text first",
                    type_name(data_type)
                ));
            }
            // Delta's names. Keys are never NULL.
            let key = Field::new("key", of_keys, false);
            let value = Field::new("value", of_values, true);
            let entry = DataType::Struct(Fields::from(vec![key, value]));
            DataType::Map(Arc::new(Field::new("key_value", entry, false)), false)
        }
        // A column of only NULLs, as JSON and Parquet can have it.
        DataType::Null => DataType::Utf8,
        other => {
            return Err(format!(
                "type {} cannot be stored in a Delta table; cast it to text or a number first",
                type_name(other)
            ));
        }
    })
}

/// The same of a column of a file. Delta has no times of day: they are text, such as `10:00:00.250`, which is of the
/// same order and has all digits.
pub(crate) fn loaded_type(data_type: &DataType) -> Result<DataType, String> {
    stored_type(&with_times_as_text(data_type))
}

fn with_times_as_text(data_type: &DataType) -> DataType {
    let inner = |field: &Arc<Field>| {
        let data_type = with_times_as_text(field.data_type());
        Arc::new(field.as_ref().clone().with_data_type(data_type))
    };
    match data_type {
        DataType::Time32(_) | DataType::Time64(_) => DataType::Utf8,
        DataType::List(item) => DataType::List(inner(item)),
        DataType::LargeList(item) => DataType::LargeList(inner(item)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(inner).collect()),
        DataType::Map(entries, is_sorted) => DataType::Map(inner(entries), *is_sorted),
        other => other.clone(),
    }
}

fn has_local_time(data_type: &DataType) -> bool {
    match data_type {
        DataType::Timestamp(_, None) => true,
        DataType::List(item) => has_local_time(item.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| has_local_time(field.data_type())),
        _ => false,
    }
}

fn key_and_value(entries: &Field) -> Option<(&Field, &Field)> {
    match entries.data_type() {
        DataType::Struct(fields) if fields.len() == 2 => Some((&fields[0], &fields[1])),
        _ => None,
    }
}

fn stored_field(field: &Field) -> Result<Field, String> {
    Ok(Field::new(field.name(), stored_type(field.data_type())?, true))
}

/// Can values of this type be finer than what they are stored as?
pub fn may_be_cut(data_type: &DataType) -> bool {
    match data_type {
        DataType::Timestamp(TimeUnit::Nanosecond, _) | DataType::Date64 => true,
        DataType::List(item) | DataType::LargeList(item) => may_be_cut(item.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| may_be_cut(field.data_type())),
        DataType::Map(entries, _) => may_be_cut(entries.data_type()),
        DataType::Dictionary(_, value) => may_be_cut(value),
        _ => false,
    }
}

/// The first row that is finer than what it would be stored as: a time with nanoseconds, or a date with a
/// time of day, also inside a list or a struct.
pub fn first_cut(values: &dyn Array) -> Option<usize> {
    const NANOS_A_MICRO: i64 = 1_000;
    const MILLIS_A_DAY: i64 = 86_400_000;
    match values.data_type() {
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            first_between(values.as_primitive::<TimestampNanosecondType>(), NANOS_A_MICRO)
        }
        DataType::Date64 => first_between(values.as_primitive::<Date64Type>(), MILLIS_A_DAY),
        DataType::Dictionary(_, value) if may_be_cut(value) => {
            cast(values, value).ok().and_then(|plain| first_cut(&plain))
        }
        nested if may_be_cut(nested) => {
            let is_cut = |row: usize| parts(values, row).iter().any(|p| first_cut(p).is_some());
            (0..values.len()).find(|row| values.is_valid(*row) && is_cut(*row))
        }
        _ => None,
    }
}

fn first_between<T>(values: &PrimitiveArray<T>, step: i64) -> Option<usize>
where
    T: ArrowPrimitiveType<Native = i64>,
{
    // Nearly every column has none, which is seen without asking which values are NULL.
    if values.values().iter().all(|value| value % step == 0) {
        return None;
    }
    (0..values.len()).find(|row| values.is_valid(*row) && values.value(*row) % step != 0)
}

/// What a value is made of.
fn parts(values: &dyn Array, row: usize) -> Vec<ArrayRef> {
    match values.data_type() {
        DataType::List(_) => vec![values.as_list::<i32>().value(row)],
        DataType::LargeList(_) => vec![values.as_list::<i64>().value(row)],
        DataType::Map(..) => vec![Arc::new(values.as_map().value(row))],
        DataType::Struct(_) => {
            values.as_struct().columns().iter().map(|column| column.slice(row, 1)).collect()
        }
        _ => Vec::new(),
    }
}

/// Can a value of type `from` always be stored as `to` without changing it?
pub(crate) fn widens(from: &DataType, to: &DataType) -> bool {
    use DataType::{Decimal128, Float32, Float64, Int8, Int16, Int32, Int64};
    let Ok(from) = stored_type(from) else { return false };
    match (&from, to) {
        (a, b) if a == b => true,
        (Int8, Int16 | Int32 | Int64 | Float32 | Float64)
        | (Int16, Int32 | Int64 | Float32 | Float64)
        | (Int32, Int64 | Float64)
        | (Float32, Float64) => true,
        (Decimal128(p, s), Decimal128(q, t)) => {
            s <= t && i16::from(*p) - i16::from(*s) <= i16::from(*q) - i16::from(*t)
        }
        (DataType::List(a), DataType::List(b)) => widens(a.data_type(), b.data_type()),
        (DataType::Struct(a), DataType::Struct(b)) => {
            a.len() == b.len()
                && a.iter()
                    .zip(b)
                    .all(|(x, y)| x.name() == y.name() && widens(x.data_type(), y.data_type()))
        }
        (DataType::Map(a, _), DataType::Map(b, _)) => widens(a.data_type(), b.data_type()),
        _ => false,
    }
}

/// Types a table may be partitioned by: those whose text form is exact and short.
pub(crate) fn can_partition_by(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Utf8
            | DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::Boolean
            | DataType::Date32
    )
}

#[cfg(test)]
mod tests {
    use arrow::array::{Date64Array, Int64Array, ListArray, TimestampNanosecondArray};

    use super::*;

    fn check(text: &str, expected: Result<&[(&str, &str, bool)], &str>) {
        let got = parse_schema(text).map(|s| {
            s.fields()
                .iter()
                .map(|f| (f.name().clone(), type_name(f.data_type()), f.is_nullable()))
                .collect::<Vec<_>>()
        });
        match (got, expected) {
            (Ok(got), Ok(want)) => {
                let want: Vec<_> =
                    want.iter().map(|(n, t, b)| ((*n).to_owned(), (*t).to_owned(), *b)).collect();
                assert_eq!(got, want, "{text}");
            }
            (Err(e), Err(part)) => assert!(e.to_string().contains(part), "{text}: {e}"),
            (got, want) => panic!("{text}: got {got:?}, expected {want:?}"),
        }
    }

    #[test]
    fn a_schema_is_names_and_types_separated_by_commas() {
        check("a int, b text not null", Ok(&[("a", "integer", true), ("b", "text", false)]));
        check(
            "p decimal(10, 2),\n \"my col\" timestamptz",
            Ok(&[("p", "decimal(10,2)", true), ("my col", "timestamptz", true)]),
        );
        check("a", Err("is not `NAME TYPE`"));
        check("a int, a text", Err("`a` twice"));
        check("a blurb", Err("known types: text, bigint"));
        check("a decimal(50,2)", Err("decimal(precision, scale)"));
    }

    #[test]
    fn a_value_that_is_too_fine_to_store_is_found() {
        let nanos = |values: Vec<Option<i64>>| -> ArrayRef {
            Arc::new(TimestampNanosecondArray::from(values))
        };
        assert_eq!(first_cut(&nanos(vec![Some(1_000), None, Some(-2_000)])), None);
        assert_eq!(first_cut(&nanos(vec![Some(1_000), None, Some(-2_001), Some(1)])), Some(2));
        assert_eq!(first_cut(&nanos(Vec::new())), None);
        let lists = vec![None, Some(vec![Some(1_000)]), Some(vec![None, Some(-1)])];
        let lists = ListArray::from_iter_primitive::<TimestampNanosecondType, _, _>(lists);
        assert_eq!(first_cut(&lists), Some(2));
        assert_eq!(first_cut(&lists.slice(0, 2)), None);
        let days = Date64Array::from(vec![86_400_000, -86_400_000, -43_200_000]);
        assert_eq!(first_cut(&days), Some(2));
        assert_eq!(first_cut(&Int64Array::from(vec![1])), None);
    }

    #[test]
    fn widening_never_changes_a_value() {
        use DataType::*;
        for (from, to, expected) in [
            (Int32, Int64, true),
            (Int64, Int32, false),
            (Int64, Float64, false),
            (UInt64, Int64, false),
            (UInt32, Int64, true),
            (Utf8View, Utf8, true),
            (Utf8, Int64, false),
            (Int64, Utf8, false),
            (Date32, Timestamp(TimeUnit::Microsecond, None), false),
            (Decimal128(10, 2), Decimal128(12, 4), true),
            (Decimal128(10, 2), Decimal128(10, 4), false),
        ] {
            assert_eq!(widens(&from, &to), expected, "{from} -> {to}");
        }
    }
}
