//! What a new table is made of, and whether it can be that.

use std::sync::Arc;

use arrow::datatypes::Schema;

use crate::error::{Result, TableError};
use crate::id_domain::{self, ID_PREFIX, IdDomainSpec, is_id_column};
use crate::index::{IndexSpec, check_specs};
use crate::schema::{can_partition_by, type_name};
use crate::snapshot::Snapshot;

/// What a table is made of.
#[derive(Clone, Debug)]
pub struct TableDefinition {
    /// All columns, partition columns included.
    pub schema: Arc<Schema>,
    /// Columns that split the files; their values are kept in the log.
    pub partition_columns: Vec<String>,
    /// Columns that rows are sorted by inside each file.
    pub cluster_by: Vec<String>,
    /// Indexes that each data file gets.
    pub indexes: Vec<IndexSpec>,
    /// Columns whose values are keys of an id domain; each gets a column of ids.
    pub id_domains: Vec<IdDomainSpec>,
    /// Columns of which no two rows have the same values; empty for none.
    pub primary_key: Vec<String>,
}

impl TableDefinition {
    /// What a table is made of.
    pub(crate) fn of(base: &Snapshot) -> Self {
        Self {
            schema: Arc::clone(base.schema()),
            partition_columns: base.partition_columns().to_vec(),
            cluster_by: base.cluster_by().to_vec(),
            indexes: base.indexes().to_vec(),
            id_domains: base.id_domains().to_vec(),
            primary_key: base.primary_key().to_vec(),
        }
    }
}

/// New columns must not be named like columns of ids.
pub(crate) fn check_new_columns(schema: &Schema) -> Result<()> {
    match schema.fields().iter().find(|f| is_id_column(f.name())) {
        None => Ok(()),
        Some(field) => Err(TableError::Invalid(format!(
            "column `{}`: names that start with `{ID_PREFIX}` are kept for columns of ids, which \
             are made at load; rename the column or leave it out",
            field.name()
        ))),
    }
}

/// Do the partition and clustering columns exist, and can they be that?
pub(crate) fn check_definition(definition: &TableDefinition) -> Result<()> {
    let schema = &definition.schema;
    let find = |name: &String, what: &str| {
        schema
            .field_with_name(name)
            .map_err(|_| TableError::no_such_column(&format!("{what} column"), name, schema))
    };
    let mut lower: Vec<String> = schema.fields().iter().map(|f| f.name().to_lowercase()).collect();
    lower.sort();
    if let Some(pair) = lower.windows(2).find(|w| w[0] == w[1]) {
        return Err(TableError::Invalid(format!(
            "two columns are named `{}` (Delta does not tell case apart); rename one",
            pair[0]
        )));
    }
    for name in &definition.partition_columns {
        let field = find(name, "partition")?;
        if !can_partition_by(field.data_type()) {
            return Err(TableError::Invalid(format!(
                "cannot partition by `{name}`: it is {}; use text, a whole number, boolean or date",
                type_name(field.data_type())
            )));
        }
    }
    for name in &definition.cluster_by {
        if find(name, "clustering")?.data_type().is_nested() {
            return Err(TableError::Invalid(format!("cannot cluster by `{name}`: it is nested")));
        }
        if definition.partition_columns.contains(name) {
            return Err(TableError::Invalid(format!(
                "`{name}` is a partition column: it is the same in a whole file, so clustering by it does nothing; leave it out"
            )));
        }
    }
    check_specs(&definition.indexes, schema, &definition.partition_columns)?;
    check_primary_key(&definition.primary_key, schema, &definition.partition_columns)?;
    id_domain::check_specs(&definition.id_domains, schema, &definition.partition_columns)?;
    if definition.partition_columns.len() == schema.fields().len() {
        return Err(TableError::Invalid(
            "a table needs a column that is not a partition column".into(),
        ));
    }
    Ok(())
}

/// Can these columns be the table's primary key?
fn check_primary_key(key: &[String], schema: &Schema, partition_columns: &[String]) -> Result<()> {
    if key.is_empty() {
        return Ok(());
    }
    for column in key {
        let Ok(field) = schema.field_with_name(column) else {
            return Err(TableError::no_such_column("primary key column", column, schema));
        };
        if field.data_type().is_nested() || field.data_type().is_floating() {
            return Err(TableError::Invalid(format!(
                "`{column}` cannot be in a primary key: it is {}",
                type_name(field.data_type())
            )));
        }
    }
    if let Some(missing) = partition_columns.iter().find(|p| !key.contains(p)) {
        return Err(TableError::Invalid(format!(
            "the primary key must hold the partition column `{missing}`: rows of one key are \
             looked for in one partition only"
        )));
    }
    if key.iter().all(|column| partition_columns.contains(column)) {
        return Err(TableError::Invalid(
            "the primary key needs a column that is not a partition column".into(),
        ));
    }
    Ok(())
}
