//! Which tables the catalogs have, with their numbers and columns.

use std::collections::BTreeMap;

use super::rows::{Columns, read};

pub(in crate::catalog) const CATALOG: &str = "pg_catalog";
pub(in crate::catalog) const INFORMATION: &str = "information_schema";
pub(in crate::catalog) const PUBLIC: &str = "public";

/// Schemas and their numbers, the first two as in Postgres.
pub(in crate::catalog) const SCHEMAS: [(i64, &str); 3] =
    [(11, CATALOG), (2200, PUBLIC), (13_000, INFORMATION)];
/// Numbers of tables that clients know by heart.
const WELL_KNOWN: [(&str, i64); 10] = [
    ("pg_type", 1247),
    ("pg_attribute", 1249),
    ("pg_proc", 1255),
    ("pg_class", 1259),
    ("pg_database", 1262),
    ("pg_am", 2601),
    ("pg_constraint", 2606),
    ("pg_description", 2609),
    ("pg_index", 2610),
    ("pg_namespace", 2615),
];
/// Others count from here, in the order of their names.
const OTHERS: i64 = 12_000;

/// A table of a catalog.
#[derive(Debug)]
pub(in crate::catalog) struct SystemTable {
    pub schema: &'static str,
    pub name: String,
    pub oid: i64,
    pub columns: Columns,
}

/// All of them.
#[derive(Debug)]
pub(in crate::catalog) struct SystemTables(BTreeMap<(String, String), SystemTable>);

impl SystemTables {
    pub fn new() -> Self {
        let table = |(number, ((schema, name), columns)): (usize, ((String, String), Columns))| {
            let known = WELL_KNOWN.iter().find(|(known, _)| *known == name);
            let oid = known.map_or(OTHERS + number as i64, |(_, oid)| *oid);
            let schema_name = if schema == CATALOG { CATALOG } else { INFORMATION };
            let table = SystemTable { schema: schema_name, name: name.clone(), oid, columns };
            ((schema, name), table)
        };
        Self(read(include_str!("columns.txt")).into_iter().enumerate().map(table).collect())
    }

    pub fn get(&self, schema: &str, name: &str) -> Option<&SystemTable> {
        self.0.get(&(schema.to_owned(), name.to_owned()))
    }

    pub fn all(&self) -> impl Iterator<Item = &SystemTable> {
        self.0.values()
    }

    pub fn by_oid(&self, oid: i64) -> Option<&SystemTable> {
        self.0.values().find(|table| table.oid == oid)
    }
}
