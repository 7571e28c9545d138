//! The rows of a table of the catalogs.

use arrow::array::RecordBatch;
use arrow::error::ArrowError;

use super::rows::{Row, row};
use super::system::{INFORMATION, SystemTable};
use super::view::View;
use super::{information, objects, server};
use crate::catalog::settings;

/// The rows of a table.
pub(in crate::catalog) fn rows_of(
    view: &View<'_>,
    table: &SystemTable,
) -> Result<RecordBatch, ArrowError> {
    let make = || table.columns.batch(&listed(view, table));
    let of_session = ["pg_settings", "pg_stat_activity"];
    match of_session.contains(&table.name.as_str()) {
        true => make(),
        false => {
            let access = view.server.document().number;
            view.listing.made(access, &format!("{}.{}", table.schema, table.name), make)
        }
    }
}

fn listed(view: &View<'_>, table: &SystemTable) -> Vec<Row> {
    if table.schema == INFORMATION {
        return information::rows(view, &table.name);
    }
    match table.name.as_str() {
        "pg_settings" => settings::rows(view.facts)
            .map(|(name, value)| {
                row! {
                    "name" => name.clone(), "setting" => value.clone(), "boot_val" => value.clone(),
                    "reset_val" => value, "context" => "user", "vartype" => "string",
                    "source" => "default", "category" => "Uplake", "pending_restart" => false,
                }
            })
            .collect(),
        name => objects::rows(view, name).or_else(|| server::rows(view, name)).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::listing::tests::example;
    use crate::catalog::oids;
    use crate::catalog::state::ServerState;
    use crate::catalog::tables::system::{CATALOG, SCHEMAS, SystemTables};
    use uplake_engine::SessionFacts;

    #[test]
    fn every_table_has_rows_of_its_columns() {
        let tables = SystemTables::new();
        let (listing, server, facts) = (example(), ServerState::default(), SessionFacts::default());
        let view = View { tables: &tables, listing: &listing, server: &server, facts: &facts };
        for table in tables.all() {
            let rows = rows_of(&view, table).unwrap();
            assert_eq!(rows.schema(), table.columns.schema, "{}", table.name);
        }
        let count = |schema: &str, name: &str| {
            rows_of(&view, tables.get(schema, name).unwrap()).unwrap().num_rows()
        };
        assert_eq!(count(CATALOG, "pg_namespace"), 3);
        assert_eq!(count(CATALOG, "pg_constraint"), 1);
        assert_eq!(count(CATALOG, "pg_index"), 1);
        assert_eq!(count(CATALOG, "pg_tables"), 3);
        assert_eq!(count(CATALOG, "pg_attrdef"), 0);
        assert_eq!(count(INFORMATION, "tables"), 3);
        assert_eq!(count(INFORMATION, "columns"), 4);
        assert_eq!(count(INFORMATION, "key_column_usage"), 1);
        // Three tables, an index, and the catalogs themselves.
        assert_eq!(count(CATALOG, "pg_class"), 4 + tables.all().count());
    }

    #[test]
    fn numbers_of_catalog_tables_are_their_own() {
        let tables = SystemTables::new();
        let oids: std::collections::HashSet<i64> = tables.all().map(|table| table.oid).collect();
        assert_eq!(oids.len(), tables.all().count());
        assert!(oids.iter().all(|oid| *oid < oids::FIRST && !SCHEMAS.iter().any(|s| s.0 == *oid)));
    }
}
