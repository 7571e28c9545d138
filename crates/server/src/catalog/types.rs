//! Postgres' types that a lake's columns and the catalogs' have, with their numbers there.
//!
//! # Not here
//! Values on the wire: `pg`.

use arrow::datatypes::DataType;

/// A type of Postgres.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PgType {
    pub oid: i64,
    pub name: &'static str,
    /// As `format_type` and information_schema have it.
    pub shown: &'static str,
    /// Bytes of a value; -1 if they vary.
    pub bytes: i16,
    pub category: &'static str,
    /// Its list's type; 0 if there is none.
    pub list: i64,
    pub collation: i64,
}

const fn of(
    oid: i64,
    name: &'static str,
    shown: &'static str,
    bytes: i16,
    category: &'static str,
    list: i64,
) -> PgType {
    PgType { oid, name, shown, bytes, category, list, collation: 0 }
}

const fn text(oid: i64, name: &'static str, shown: &'static str, list: i64) -> PgType {
    PgType { collation: 100, ..of(oid, name, shown, -1, "S", list) }
}

/// Those there are. Types of lists come of these.
pub(super) const TYPES: [PgType; 36] = [
    of(16, "bool", "boolean", 1, "B", 1000),
    of(17, "bytea", "bytea", -1, "U", 1001),
    of(18, "char", "\"char\"", 1, "Z", 1002),
    PgType { collation: 950, ..of(19, "name", "name", 64, "S", 1003) },
    of(20, "int8", "bigint", 8, "N", 1016),
    of(21, "int2", "smallint", 2, "N", 1005),
    of(22, "int2vector", "int2vector", -1, "A", 1006),
    of(23, "int4", "integer", 4, "N", 1007),
    of(24, "regproc", "regproc", 4, "N", 1008),
    text(25, "text", "text", 1009),
    of(26, "oid", "oid", 4, "N", 1028),
    of(28, "xid", "xid", 4, "U", 1011),
    of(30, "oidvector", "oidvector", -1, "A", 1013),
    of(114, "json", "json", -1, "U", 199),
    PgType { collation: 100, ..of(194, "pg_node_tree", "pg_node_tree", -1, "Z", 0) },
    of(700, "float4", "real", 4, "N", 1021),
    of(701, "float8", "double precision", 8, "N", 1022),
    of(705, "unknown", "unknown", -2, "X", 0),
    of(869, "inet", "inet", -1, "I", 1041),
    of(1033, "aclitem", "aclitem", 12, "U", 1034),
    text(1042, "bpchar", "character", 1014),
    text(1043, "varchar", "character varying", 1015),
    of(1082, "date", "date", 4, "D", 1182),
    of(1083, "time", "time without time zone", 8, "D", 1183),
    of(1114, "timestamp", "timestamp without time zone", 8, "D", 1115),
    of(1184, "timestamptz", "timestamp with time zone", 8, "D", 1185),
    of(1186, "interval", "interval", 16, "T", 1187),
    of(1700, "numeric", "numeric", -1, "N", 1231),
    of(2205, "regclass", "regclass", 4, "N", 2210),
    of(2206, "regtype", "regtype", 4, "N", 2211),
    of(2249, "record", "record", -1, "P", 2287),
    of(2278, "void", "void", 4, "P", 0),
    of(2950, "uuid", "uuid", 16, "U", 2951),
    of(3802, "jsonb", "jsonb", -1, "U", 3807),
    of(4089, "regnamespace", "regnamespace", 4, "N", 4090),
    of(4096, "regrole", "regrole", 4, "N", 4097),
];

/// Names of types beside [`PgType::name`] and [`PgType::shown`].
const ALIASES: [(&str, &str); 6] = [
    ("int", "int4"),
    ("decimal", "numeric"),
    ("float", "float8"),
    ("string", "text"),
    ("time", "time"),
    ("timestamp", "timestamp"),
];

/// The type of a number; `true` if it is the list of it.
pub(super) fn by_oid(oid: i64) -> Option<(&'static PgType, bool)> {
    TYPES.iter().find_map(|of| match oid {
        oid if oid == of.oid => Some((of, false)),
        oid if oid == of.list && oid != 0 => Some((of, true)),
        _ => None,
    })
}

/// The type of that name.
pub(super) fn by_name(name: &str) -> Option<&'static PgType> {
    TYPES.iter().find(|of| of.name == name)
}

/// The number of a type as SQL writes it: `int4`, `pg_catalog.text`, `integer[]`, `numeric(10,2)`.
pub(super) fn oid_of_text(written: &str) -> Option<i64> {
    let lower = written.trim().to_lowercase();
    let name = lower.strip_prefix("pg_catalog.").unwrap_or(&lower);
    let (name, is_list) = match (name.strip_suffix("[]"), name.strip_prefix('_')) {
        (Some(name), _) | (None, Some(name)) => (name, true),
        (None, None) => (name, false),
    };
    let name = name.split_once('(').map_or(name, |(name, _)| name).trim();
    let alias = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, name)| name);
    let found =
        by_name(alias.trim_matches('"')).or_else(|| TYPES.iter().find(|of| of.shown == alias))?;
    Some(if is_list { found.list } else { found.oid }).filter(|oid| *oid != 0)
}

/// A type with its length or digits, as `format_type` writes it.
pub(super) fn shown(oid: i64, modifier: Option<i64>) -> String {
    let Some((of, is_list)) = by_oid(oid) else {
        return if oid == 0 { "-".into() } else { "???".into() };
    };
    let list = if is_list { "[]" } else { "" };
    let modifier = modifier.filter(|modifier| *modifier >= 4).map(|modifier| modifier - 4);
    match (of.name, modifier) {
        ("numeric", Some(of_digits)) => {
            format!("numeric({},{}){list}", of_digits >> 16, of_digits & 0xffff)
        }
        ("varchar" | "bpchar", Some(length)) => format!("{}({length}){list}", of.shown),
        _ => format!("{}{list}", of.shown),
    }
}

/// What a column is to Postgres.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ColumnType {
    pub of: &'static PgType,
    pub is_list: bool,
    /// `atttypmod`
    pub modifier: i64,
}

impl ColumnType {
    pub fn oid(&self) -> i64 {
        if self.is_list { self.of.list } else { self.of.oid }
    }

    /// As information_schema has it.
    pub fn shown(&self) -> &'static str {
        if self.is_list { "ARRAY" } else { self.of.shown }
    }

    /// `udt_name`
    pub fn name(&self) -> String {
        if self.is_list { format!("_{}", self.of.name) } else { self.of.name.to_owned() }
    }
}

/// The type that a column of a lake has in Postgres.
pub(super) fn column_type(data_type: &DataType) -> ColumnType {
    let (name, modifier) = match data_type {
        DataType::Boolean => ("bool", -1),
        DataType::Int8 | DataType::Int16 | DataType::UInt8 => ("int2", -1),
        DataType::Int32 | DataType::UInt16 => ("int4", -1),
        DataType::Int64 | DataType::UInt32 => ("int8", -1),
        DataType::UInt64 => ("numeric", -1),
        DataType::Float16 | DataType::Float32 => ("float4", -1),
        DataType::Float64 => ("float8", -1),
        DataType::Decimal32(digits, scale)
        | DataType::Decimal64(digits, scale)
        | DataType::Decimal128(digits, scale)
        | DataType::Decimal256(digits, scale) => {
            ("numeric", (i64::from(*digits) << 16 | i64::from(*scale) & 0xffff) + 4)
        }
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => ("bytea", -1),
        DataType::Date32 | DataType::Date64 => ("date", -1),
        DataType::Time32(_) | DataType::Time64(_) => ("time", -1),
        DataType::Timestamp(_, None) => ("timestamp", -1),
        DataType::Timestamp(_, Some(_)) => ("timestamptz", -1),
        DataType::Interval(_) | DataType::Duration(_) => ("interval", -1),
        DataType::Dictionary(_, values) => return column_type(values),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => {
            return ColumnType { is_list: true, ..column_type(item.data_type()) };
        }
        DataType::Struct(_) | DataType::Map(_, _) | DataType::Union(_, _) => ("json", -1),
        _ => ("text", -1),
    };
    // The names above are in the table: `every_column_has_a_type`.
    let of = by_name(name).unwrap_or(&TYPES[0]);
    ColumnType { of, is_list: false, modifier }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{Field, TimeUnit};

    use super::*;

    #[test]
    fn every_column_has_a_type() {
        let list = DataType::List(Arc::new(Field::new("item", DataType::Int64, true)));
        let check = |data_type: &DataType, oid: i64, shown: &str| {
            let found = column_type(data_type);
            assert_eq!((found.oid(), found.shown()), (oid, shown), "{data_type}");
        };
        check(&DataType::Int64, 20, "bigint");
        check(&DataType::Utf8View, 25, "text");
        check(
            &DataType::Timestamp(TimeUnit::Microsecond, None),
            1114,
            "timestamp without time zone",
        );
        check(&DataType::Float64, 701, "double precision");
        check(&DataType::Date32, 1082, "date");
        check(&DataType::Duration(TimeUnit::Second), 1186, "interval");
        check(&DataType::Struct(Vec::<Field>::new().into()), 114, "json");
        check(&list, 1016, "ARRAY");
        let decimal = column_type(&DataType::Decimal128(10, 2));
        assert_eq!(shown(decimal.oid(), Some(decimal.modifier)), "numeric(10,2)");
    }

    #[test]
    fn types_are_found_by_what_clients_write() {
        let check = |text: &str, oid: Option<i64>| assert_eq!(oid_of_text(text), oid, "{text}");
        check("int4", Some(23));
        check("pg_catalog.int4", Some(23));
        check("Timestamp with time zone", Some(1184));
        check("integer[]", Some(1007));
        check("_text", Some(1009));
        check("numeric(10,2)", Some(1700));
        check("\"char\"", Some(18));
        check("hstore", None);
    }

    #[test]
    fn numbers_are_used_once() {
        let mut oids: Vec<i64> =
            TYPES.iter().flat_map(|of| [of.oid, of.list]).filter(|oid| *oid != 0).collect();
        let all = oids.len();
        oids.sort_unstable();
        oids.dedup();
        assert_eq!(oids.len(), all);
    }
}
