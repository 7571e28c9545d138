//! Rows about the lake's tables: relations, columns, indexes, keys, and the types that columns have.

use super::rows::{Row, Value, row};
use super::system::{CATALOG, PUBLIC, SCHEMAS, SystemTable};
use super::view::View;
use crate::catalog::listing::{ListedTable, Object};
use crate::catalog::rights;
use crate::catalog::state::OWNER;
use crate::catalog::types::{self, ColumnType, PgType, TYPES, column_type};
use crate::catalog::words::index_definition;

/// `pg_am`: how tables and their indexes are kept, to a client.
const HEAP: i64 = 2;
const BTREE: i64 = 403;
/// Bytes of a page, for clients that count in them.
const PAGE_BYTES: u64 = 8192;
const PUBLIC_OID: i64 = 2200;

/// The rows of a table of `pg_catalog`, if it is about these.
pub(super) fn rows(view: &View<'_>, table: &str) -> Option<Vec<Row>> {
    Some(match table {
        "pg_class" => classes(view),
        "pg_attribute" => attributes(view),
        "pg_type" => types(),
        "pg_index" => indexes(view),
        "pg_constraint" => constraints(view),
        "pg_description" => descriptions(view),
        "pg_am" => {
            [(HEAP, "heap", "t", "heap_tableam_handler"), (BTREE, "btree", "i", "bthandler")]
                .map(|(oid, name, kind, handler)| {
                    row! {"oid" => oid, "amname" => name, "amtype" => kind, "amhandler" => handler}
                })
                .into()
        }
        "pg_tables" => stored(view).map(|table| tables_row(view, table)).collect(),
        "pg_views" => view
            .listing
            .tables
            .values()
            .filter_map(|table| {
                let definition = table.view.as_ref()?.query.clone();
                Some(row! {
                    "schemaname" => PUBLIC, "viewname" => table.name.clone(),
                    "viewowner" => view.server.owner.clone(), "definition" => definition,
                })
            })
            .collect(),
        "pg_indexes" => listed_indexes(view),
        "pg_stat_user_tables" => user_tables(view),
        _ => return None,
    })
}

/// Tables that are no views.
fn stored<'a>(view: &'a View<'_>) -> impl Iterator<Item = &'a ListedTable> {
    view.listing.tables.values().filter(|table| table.view.is_none())
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn pages(bytes: u64) -> i64 {
    i64::try_from(bytes.div_ceil(PAGE_BYTES)).unwrap_or(i64::MAX).min(i64::from(i32::MAX))
}

fn row_count(table: &ListedTable) -> Value {
    // -1 is what Postgres says when it does not know.
    Value::Float(table.rows.map_or(-1.0, |rows| rows as f64))
}

fn classes(view: &View<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    let document = view.server.document();
    for table in view.listing.tables.values() {
        let oid = view.listing.oid(&Object::Table(table.name.clone()));
        let is_view = table.view.is_some();
        let has_policy = document.access.policies.iter().any(|policy| policy.table == table.name);
        rows.push(row! {
            "relacl" => rights::acl(view.server, &document.access, &table.name).map(Value::Texts),
            "relrowsecurity" => has_policy, "oid" => oid, "relname" => table.name.clone(), "relnamespace" => PUBLIC_OID,
            "relowner" => OWNER, "relam" => if is_view { 0 } else { HEAP },
            "relfilenode" => if is_view { 0 } else { oid }, "relpages" => pages(table.bytes),
            "reltuples" => row_count(table), "relhasindex" => !table.indexes.is_empty(),
            "relpersistence" => "p", "relkind" => if is_view { "v" } else { "r" },
            "relnatts" => number(table.columns.len()),
            "relispopulated" => true, "relreplident" => if is_view { "n" } else { "d" },
        });
        for (place, index) in table.indexes.iter().enumerate() {
            let oid = view.listing.oid(&Object::Index(table.name.clone(), place));
            rows.push(row! {
                "oid" => oid, "relname" => index.name.clone(), "relnamespace" => PUBLIC_OID,
                "relowner" => OWNER, "relam" => BTREE, "relfilenode" => oid,
                "reltuples" => row_count(table), "relpersistence" => "p", "relkind" => "i",
                "relnatts" => number(index.columns.len()), "relispopulated" => true,
                "relreplident" => "n",
            });
        }
    }
    rows.extend(view.tables.all().map(|table| {
        let kind = if table.schema == CATALOG { "r" } else { "v" };
        row! {
            "oid" => table.oid, "relname" => table.name.clone(), "relnamespace" => schema_of(table),
            "relowner" => OWNER, "relam" => if kind == "r" { HEAP } else { 0 }, "reltuples" => -1_i64,
            "relpersistence" => "p", "relkind" => kind, "relispopulated" => true,
            "relnatts" => number(table.columns.types.len()), "relreplident" => "n",
        }
    }));
    rows
}

fn schema_of(table: &SystemTable) -> i64 {
    SCHEMAS.iter().find(|(_, name)| *name == table.schema).map_or(0, |(oid, _)| *oid)
}

fn attributes(view: &View<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in view.listing.tables.values() {
        let oid = view.listing.oid(&Object::Table(table.name.clone()));
        for (place, column) in table.columns.iter().enumerate() {
            let of = column_type(&column.data_type);
            rows.push(attribute(oid, &column.name, place, of, !column.nullable));
        }
        for (at, index) in table.indexes.iter().enumerate() {
            let oid = view.listing.oid(&Object::Index(table.name.clone(), at));
            for (place, name) in index.columns.iter().enumerate() {
                let Some(column) = table.columns.iter().find(|column| column.name == *name) else {
                    continue;
                };
                rows.push(attribute(oid, name, place, column_type(&column.data_type), false));
            }
        }
    }
    for table in view.tables.all() {
        let fields = table.columns.schema.fields().iter().zip(&table.columns.types);
        for (place, (field, written)) in fields.enumerate() {
            let of = match types::oid_of_text(written).and_then(types::by_oid) {
                Some((of, is_list)) => ColumnType { of, is_list, modifier: -1 },
                None => column_type(field.data_type()),
            };
            rows.push(attribute(table.oid, field.name(), place, of, false));
        }
    }
    rows
}

fn attribute(relation: i64, name: &str, place: usize, of: ColumnType, not_null: bool) -> Row {
    let PgType { bytes, collation, .. } = *of.of;
    let bytes = if of.is_list { -1 } else { bytes };
    row! {
        "attrelid" => relation, "attname" => name, "atttypid" => of.oid(), "attstattarget" => -1_i64,
        "attlen" => i64::from(bytes), "attnum" => number(place + 1),
        "attndims" => i64::from(of.is_list), "attcacheoff" => -1_i64, "atttypmod" => of.modifier,
        "attbyval" => is_by_value(bytes), "attalign" => alignment(bytes),
        "attstorage" => if bytes < 0 { "x" } else { "p" }, "attnotnull" => not_null,
        "attislocal" => true, "attcollation" => collation,
    }
}

fn descriptions(view: &View<'_>) -> Vec<Row> {
    /// The number of `pg_class`, of which tables are rows.
    const CLASS: i64 = 1259;
    let mut rows = Vec::new();
    for table in view.listing.tables.values() {
        let oid = view.listing.oid(&Object::Table(table.name.clone()));
        let columns = table.columns.iter().map(|column| &column.comment);
        for (at, comment) in std::iter::once(&table.comment).chain(columns).enumerate() {
            if let Some(text) = comment {
                rows.push(row! {
                    "objoid" => oid, "classoid" => CLASS, "objsubid" => number(at),
                    "description" => text.clone(),
                });
            }
        }
    }
    rows
}

fn is_by_value(bytes: i16) -> bool {
    [1, 2, 4, 8].contains(&bytes)
}

fn alignment(bytes: i16) -> &'static str {
    match bytes {
        1 => "c",
        2 => "s",
        8 => "d",
        _ => "i",
    }
}

fn types() -> Vec<Row> {
    let mut rows = Vec::new();
    for of in &TYPES {
        let is_pseudo = ["X", "P"].contains(&of.category);
        let element = match of.name {
            "int2vector" => 21,
            "oidvector" => 26,
            _ => 0,
        };
        let binary = |direction: &str| match of.name {
            "date" | "time" | "timestamp" | "timestamptz" | "interval" | "numeric" | "json"
            | "jsonb" | "uuid" | "inet" | "void" | "record" | "pg_node_tree" => {
                format!("{}_{direction}", of.name)
            }
            name => format!("{name}{direction}"),
        };
        rows.push(row! {
            "oid" => of.oid, "typname" => of.name, "typnamespace" => 11_i64, "typowner" => OWNER,
            "typlen" => i64::from(of.bytes), "typbyval" => is_by_value(of.bytes),
            "typtype" => if is_pseudo { "p" } else { "b" }, "typcategory" => of.category,
            "typispreferred" => ["bool", "text", "oid", "float8", "timestamptz", "interval", "inet"].contains(&of.name),
            "typisdefined" => true, "typdelim" => ",", "typsubscript" => "-", "typelem" => element,
            "typarray" => of.list, "typinput" => binary("in"), "typoutput" => binary("out"),
            "typreceive" => binary("recv"), "typsend" => binary("send"), "typmodin" => "-",
            "typmodout" => "-", "typanalyze" => "-", "typalign" => alignment(of.bytes),
            "typstorage" => if of.bytes < 0 { "x" } else { "p" }, "typtypmod" => -1_i64,
            "typcollation" => of.collation,
        });
        if of.list != 0 {
            rows.push(row! {
                "oid" => of.list, "typname" => format!("_{}", of.name), "typnamespace" => 11_i64,
                "typowner" => OWNER, "typlen" => -1_i64, "typtype" => "b", "typcategory" => "A",
                "typisdefined" => true, "typdelim" => ",", "typsubscript" => "array_subscript_handler",
                "typelem" => of.oid, "typinput" => "array_in", "typoutput" => "array_out",
                "typreceive" => "array_recv", "typsend" => "array_send", "typmodin" => "-",
                "typmodout" => "-", "typanalyze" => "array_typanalyze", "typalign" => "i",
                "typstorage" => "x", "typtypmod" => -1_i64, "typcollation" => of.collation,
            });
        }
    }
    rows
}

fn numbers_of(table: &ListedTable, columns: &[String]) -> Vec<i64> {
    columns.iter().map(|column| table.number_of(column).unwrap_or_default()).collect()
}

fn indexes(view: &View<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in view.listing.tables.values() {
        for (place, index) in table.indexes.iter().enumerate() {
            let zeros = || Value::Numbers(vec![0; index.columns.len()]);
            rows.push(row! {
                "indexrelid" => view.listing.oid(&Object::Index(table.name.clone(), place)),
                "indrelid" => view.listing.oid(&Object::Table(table.name.clone())),
                "indnatts" => number(index.columns.len()), "indnkeyatts" => number(index.columns.len()),
                "indisunique" => index.is_key, "indisprimary" => index.is_key, "indimmediate" => true,
                "indisvalid" => true, "indisready" => true, "indislive" => true,
                "indkey" => Value::Numbers(numbers_of(table, &index.columns)),
                "indcollation" => zeros(), "indclass" => zeros(), "indoption" => zeros(),
            });
        }
    }
    rows
}

fn constraints(view: &View<'_>) -> Vec<Row> {
    let with_key = view.listing.tables.values().filter(|table| !table.key.is_empty());
    let constraint = |table: &ListedTable| {
        row! {
            "oid" => view.listing.oid(&Object::Key(table.name.clone())),
            "conname" => format!("{}_pkey", table.name), "connamespace" => PUBLIC_OID,
            "contype" => "p", "convalidated" => true, "conislocal" => true, "connoinherit" => true,
            "conrelid" => view.listing.oid(&Object::Table(table.name.clone())),
            "conindid" => view.listing.oid(&Object::Index(table.name.clone(), 0)),
            "confupdtype" => " ", "confdeltype" => " ", "confmatchtype" => " ",
            "conkey" => Value::Numbers(numbers_of(table, &table.key)),
        }
    };
    with_key.map(constraint).collect()
}

fn tables_row(view: &View<'_>, table: &ListedTable) -> Row {
    row! {
        "schemaname" => PUBLIC, "tablename" => table.name.clone(), "tableowner" => view.server.owner.clone(),
        "hasindexes" => !table.indexes.is_empty(), "hasrules" => false, "hastriggers" => false,
        "rowsecurity" => view.server.document().access.policies.iter().any(|policy| policy.table == table.name),
    }
}

fn listed_indexes(view: &View<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in view.listing.tables.values() {
        rows.extend(table.indexes.iter().map(|index| {
            row! {
                "schemaname" => PUBLIC, "tablename" => table.name.clone(),
                "indexname" => index.name.clone(),
                "indexdef" => index_definition(table, index),
            }
        }));
    }
    rows
}

fn user_tables(view: &View<'_>) -> Vec<Row> {
    let row = |table: &ListedTable| {
        let rows = table.rows.and_then(|rows| i64::try_from(rows).ok());
        row! {
            "relid" => view.listing.oid(&Object::Table(table.name.clone())), "schemaname" => PUBLIC,
            "relname" => table.name.clone(), "n_live_tup" => rows, "n_dead_tup" => 0_i64,
        }
    };
    stored(view).map(row).collect()
}
