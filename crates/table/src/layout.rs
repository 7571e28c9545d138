//! How a table's rows are laid out in files.

use arrow::datatypes::SchemaRef;
use object_store::path::Path;

use crate::definition::TableDefinition;
use crate::error::Result;
use crate::id_domain::{IdDomainSpec, id_column};
use crate::index::IndexSpec;
use crate::lake::Lake;
use crate::snapshot::Snapshot;

/// How a table's rows are laid out in files.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub table: String,
    pub schema: SchemaRef,
    pub partition_columns: Vec<String>,
    pub cluster_by: Vec<String>,
    pub indexes: Vec<IndexSpec>,
    pub id_domains: Vec<IdDomainSpec>,
    pub primary_key: Vec<String>,
    /// What becomes of rows whose keys are there.
    pub on_conflict: OnConflict,
    pub prefix: Path,
}

/// What becomes of a row whose key is there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnConflict {
    /// It takes the place of the other: the last load wins, and within a load the last row.
    #[default]
    Replace,
    /// It is left out: the first row of a key stays.
    Ignore,
}

impl Layout {
    /// The layout that a table has.
    pub fn of(base: &Snapshot) -> Self {
        Self::with(base.table(), TableDefinition::of(base), base.prefix().clone())
    }

    /// The layout that a new table is to have.
    pub fn new(lake: &Lake, table: &str, definition: &TableDefinition) -> Result<Self> {
        Ok(Self::with(table, definition.clone(), lake.table_prefix(table)?))
    }

    fn with(table: &str, definition: TableDefinition, prefix: Path) -> Self {
        let TableDefinition {
            schema,
            partition_columns,
            cluster_by,
            indexes,
            id_domains,
            primary_key,
        } = definition;
        Self {
            table: table.to_owned(),
            schema,
            partition_columns,
            cluster_by,
            indexes,
            id_domains,
            primary_key,
            on_conflict: OnConflict::default(),
            prefix,
        }
    }

    /// The columns that rows of a file are really sorted by: ids in place of their keys, so that
    /// the rows of a key are one run however long the key is.
    pub fn sort_by(&self) -> Vec<String> {
        let has_ids = |column: &str| self.id_domains.iter().any(|spec| spec.column == column);
        let one = |c: &String| if has_ids(c) { id_column(c) } else { c.clone() };
        self.cluster_by.iter().map(one).collect()
    }
}
