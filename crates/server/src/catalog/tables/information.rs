//! Rows of `information_schema`, about the lake's tables alone.

use super::rows::{Row, row};
use super::system::{INFORMATION, PUBLIC, SCHEMAS};
use super::view::View;
use crate::access::{PUBLIC as PUBLIC_ROLE, Verb};
use crate::catalog::listing::{ListedColumn, ListedTable};
use crate::catalog::rights;
use crate::catalog::types::column_type;

/// The rows of a table of `information_schema`.
pub(super) fn rows(view: &View<'_>, table: &str) -> Vec<Row> {
    let database = view.server.database.as_str();
    let tables = || view.listing.tables.values();
    let with_key = || tables().filter(|table| !table.key.is_empty());
    match table {
        "tables" => tables().map(|table| of_table(database, table)).collect(),
        "columns" => tables().flat_map(|table| of_columns(database, table)).collect(),
        "views" => tables().filter_map(|table| of_view(database, table)).collect(),
        "schemata" => SCHEMAS
            .iter()
            .map(|(_, name)| {
                row! {
                    "catalog_name" => database, "schema_name" => *name,
                    "schema_owner" => view.server.owner.clone(),
                }
            })
            .collect(),
        "table_constraints" => with_key()
            .map(|table| {
                row! {
                    "constraint_catalog" => database, "constraint_schema" => PUBLIC,
                    "constraint_name" => format!("{}_pkey", table.name), "table_catalog" => database,
                    "table_schema" => PUBLIC, "table_name" => table.name.clone(),
                    "constraint_type" => "PRIMARY KEY", "is_deferrable" => "NO",
                    "initially_deferred" => "NO", "enforced" => "YES",
                }
            })
            .collect(),
        "key_column_usage" => with_key().flat_map(|table| of_key(database, table)).collect(),
        "constraint_column_usage" => with_key()
            .flat_map(|table| {
                table.key.iter().map(move |column| {
                    row! {
                        "table_catalog" => database, "table_schema" => PUBLIC,
                        "table_name" => table.name.clone(), "column_name" => column.clone(),
                        "constraint_catalog" => database, "constraint_schema" => PUBLIC,
                        "constraint_name" => format!("{}_pkey", table.name),
                    }
                })
            })
            .collect(),
        "enabled_roles" => {
            view.server.roles().into_iter().map(|role| row! {"role_name" => role.name}).collect()
        }
        "table_privileges" | "role_table_grants" => of_rights(view, database),
        "column_privileges" => of_column_rights(view, database),
        "information_schema_catalog_name" => vec![row! {"catalog_name" => database}],
        "character_sets" => vec![row! {
            "character_set_name" => "UTF8", "character_repertoire" => "UCS", "form_of_use" => "UTF8",
            "default_collate_catalog" => database, "default_collate_schema" => INFORMATION,
        }],
        _ => Vec::new(),
    }
}

fn grantee(role: &str) -> String {
    if role == PUBLIC_ROLE { "PUBLIC".to_owned() } else { role.to_owned() }
}

fn of_rights(view: &View<'_>, database: &str) -> Vec<Row> {
    let document = view.server.document();
    let mut rows = Vec::new();
    for table in view.listing.tables.keys() {
        for (role, verbs) in rights::of_table(&document.access, table) {
            rows.extend(verbs.into_iter().map(|verb| {
                row! {
                    "grantor" => view.server.owner.clone(), "grantee" => grantee(&role),
                    "table_catalog" => database, "table_schema" => PUBLIC,
                    "table_name" => table.clone(), "privilege_type" => verb.name(),
                    "is_grantable" => "NO",
                    "with_hierarchy" => if verb == Verb::Select { "YES" } else { "NO" },
                }
            }));
        }
    }
    rows
}

/// Rights on columns alone; who may read a table may read all of them.
fn of_column_rights(view: &View<'_>, database: &str) -> Vec<Row> {
    let document = view.server.document();
    let of_columns = rights::of_columns(&document.access);
    let there =
        of_columns.into_iter().filter(|(table, _, _)| view.listing.tables.contains_key(*table));
    let row = |(table, column, role): (&str, &str, &str)| {
        row! {
            "grantor" => view.server.owner.clone(), "grantee" => grantee(role),
            "table_catalog" => database, "table_schema" => PUBLIC, "table_name" => table,
            "column_name" => column, "privilege_type" => Verb::Select.name(), "is_grantable" => "NO",
        }
    };
    there.map(row).collect()
}

fn of_table(database: &str, table: &ListedTable) -> Row {
    row! {
        "table_catalog" => database, "table_schema" => PUBLIC, "table_name" => table.name.clone(),
        "table_type" => if table.view.is_some() { "VIEW" } else { "BASE TABLE" },
        "is_insertable_into" => if table.view.is_some() { "NO" } else { "YES" }, "is_typed" => "NO",
    }
}

fn of_columns<'a>(database: &'a str, table: &'a ListedTable) -> impl Iterator<Item = Row> + 'a {
    table
        .columns
        .iter()
        .zip(1_i64..)
        .map(move |(column, place)| of_column(database, table, column, place))
}

fn of_column(database: &str, table: &ListedTable, column: &ListedColumn, place: i64) -> Row {
    let of = column_type(&column.data_type);
    let (precision, radix, scale) = match (of.of.name, of.is_list) {
        ("int2", false) => (Some(16_i64), Some(2_i64), Some(0_i64)),
        ("int4", false) => (Some(32), Some(2), Some(0)),
        ("int8", false) => (Some(64), Some(2), Some(0)),
        ("float4", false) => (Some(24), Some(2), None),
        ("float8", false) => (Some(53), Some(2), None),
        ("numeric", false) if of.modifier >= 4 => {
            (Some((of.modifier - 4) >> 16), Some(10), Some((of.modifier - 4) & 0xffff))
        }
        ("numeric", false) => (None, Some(10), None),
        _ => (None, None, None),
    };
    let of_time = match (of.of.name, of.is_list) {
        ("date", false) => Some(0_i64),
        ("time" | "timestamp" | "timestamptz" | "interval", false) => Some(6),
        _ => None,
    };
    row! {
        "table_catalog" => database, "table_schema" => PUBLIC, "table_name" => table.name.clone(),
        "column_name" => column.name.clone(), "ordinal_position" => place,
        "is_nullable" => if column.nullable { "YES" } else { "NO" }, "data_type" => of.shown(),
        "numeric_precision" => precision, "numeric_precision_radix" => radix, "numeric_scale" => scale,
        "datetime_precision" => of_time, "udt_catalog" => database, "udt_schema" => "pg_catalog",
        "udt_name" => of.name(), "dtd_identifier" => place.to_string(), "is_self_referencing" => "NO",
        "is_identity" => "NO", "identity_cycle" => "NO", "is_generated" => "NEVER",
        "is_updatable" => if table.view.is_some() { "NO" } else { "YES" },
    }
}

fn of_view(database: &str, table: &ListedTable) -> Option<Row> {
    let definition = table.view.as_ref()?.query.clone();
    Some(row! {
        "table_catalog" => database, "table_schema" => PUBLIC, "table_name" => table.name.clone(),
        "view_definition" => definition, "check_option" => "NONE", "is_updatable" => "NO",
        "is_insertable_into" => "NO", "is_trigger_updatable" => "NO", "is_trigger_deletable" => "NO",
        "is_trigger_insertable_into" => "NO",
    })
}

fn of_key<'a>(database: &'a str, table: &'a ListedTable) -> impl Iterator<Item = Row> + 'a {
    table.key.iter().zip(1_i64..).map(move |(column, place)| {
        row! {
            "constraint_catalog" => database, "constraint_schema" => PUBLIC,
            "constraint_name" => format!("{}_pkey", table.name), "table_catalog" => database,
            "table_schema" => PUBLIC, "table_name" => table.name.clone(),
            "column_name" => column.clone(), "ordinal_position" => place,
        }
    })
}
