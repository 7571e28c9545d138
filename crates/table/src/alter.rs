//! Changes of what a table is: its columns, how it is laid out, what is said of it.
//!
//! # Invariants
//! - Data files stay as they are for columns that are added, and have NULL there.
//! - A column that goes or gets another name is written so into all files: names are all that a Delta reader finds
//!   columns by, and one of an old name must not come back with its old values.
//! - A version before the change reads as it did.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use deltalake_core::kernel::StructField;
use deltalake_core::kernel::engine::arrow_conversion::TryIntoKernel;
use deltalake_core::protocol::DeltaOperation;

use crate::commit::{self, Called, Change, ColumnChange, Comment, layout_properties};
use crate::data_file::DataFile;
use crate::definition::{TableDefinition, check_definition, check_new_columns};
use crate::error::{Result, TableError};
use crate::id_domain::IdDomainSpec;
use crate::index::IndexSpec;
use crate::lake::Lake;
use crate::properties::CLUSTER_BY;
use crate::snapshot::Snapshot;

/// Adds columns, which are NULL in the rows that there are; returns the commit's number.
///
/// # Errors
/// [`TableError::Invalid`] for a name that is taken or kept, and for a column that takes no NULL;
/// [`TableError::Conflict`] if somebody else changed the columns meanwhile.
pub async fn add_columns(
    lake: &Lake,
    base: &Snapshot,
    new: &[Field],
    now_millis: i64,
) -> Result<u64> {
    check_new_columns(&Schema::new(new.to_vec()))?;
    let mut fields = base.schema().fields().to_vec();
    for field in new {
        let is_it = |other: &Arc<Field>| other.name().to_lowercase() == field.name().to_lowercase();
        if fields.iter().any(is_it) {
            return Err(TableError::Invalid(format!(
                "table `{}` has a column `{}` already",
                base.table(),
                field.name()
            )));
        }
        if !field.is_nullable() {
            return Err(TableError::Invalid(format!(
                "column `{}` must take NULL: the rows that there are have no value for it",
                field.name()
            )));
        }
        fields.push(Arc::new(field.clone()));
    }
    let added: Result<Vec<StructField>, _> =
        new.iter().map(|field| field.try_into_kernel()).collect();
    let fields_added =
        added.map_err(|e: ArrowError| TableError::arrow(format!("table `{}`", base.table()), e))?;
    let operation = DeltaOperation::AddColumn { fields: fields_added };
    let schema = Some(Arc::new(Schema::new(fields)));
    changed(lake, base, Change { schema, ..Change::nothing(operation, now_millis) }).await
}

/// Says something of the table, or of a column; nothing any more without text. Returns the commit's number.
///
/// # Errors
/// [`TableError::Invalid`] if there is no such column.
pub async fn set_comment(
    lake: &Lake,
    base: &Snapshot,
    column: Option<&str>,
    text: Option<&str>,
    now_millis: i64,
) -> Result<u64> {
    if let Some(column) = column
        && base.schema().field_with_name(column).is_err()
    {
        return Err(TableError::no_such_column("column", column, base.schema()));
    }
    let operation = DeltaOperation::SetTableProperties { properties: [].into() };
    let comment = Comment { column: column.map(str::to_owned), text: text.map(str::to_owned) };
    let change = Change { comment: Some(comment), ..Change::nothing(operation, now_millis) };
    changed(lake, base, change).await
}

/// Sorts files by other columns from now on; files that are there stay as they are until they are compacted. Returns the
/// commit's number.
///
/// # Errors
/// [`TableError::Invalid`] for columns that files cannot be sorted by.
pub async fn set_cluster_by(
    lake: &Lake,
    base: &Snapshot,
    cluster_by: Vec<String>,
    now_millis: i64,
) -> Result<u64> {
    let definition = TableDefinition { cluster_by, ..TableDefinition::of(base) };
    check_definition(&definition)?;
    let text = definition.cluster_by.join(",");
    let set = [(CLUSTER_BY.to_owned(), text.clone())].into();
    let operation = DeltaOperation::SetTableProperties { properties: set };
    let properties = vec![(CLUSTER_BY, text)];
    changed(lake, base, Change { properties, ..Change::nothing(operation, now_millis) }).await
}

/// The columns that a table is to have in place of its own: some of these, with other names maybe, and new ones.
#[derive(Clone, Debug)]
pub struct NewColumns {
    definition: TableDefinition,
    change: ColumnChange,
    called: Called,
    replaced: Vec<DataFile>,
}

impl NewColumns {
    /// `columns` in their order, each with the name that it has in `base`, or none if it is new.
    ///
    /// # Errors
    /// [`TableError::Invalid`] for a column that the table needs by its name.
    pub fn new(base: &Snapshot, columns: &[(Option<String>, Field)]) -> Result<Self> {
        check_plain(base)?;
        let mut names: BTreeMap<String, Option<String>> = BTreeMap::new();
        for field in base.schema().fields() {
            let old = field.name();
            let kept = columns.iter().find(|(was, _)| was.as_ref() == Some(old));
            let new = kept.map(|(_, field)| field.name().clone());
            if new.as_ref() != Some(old) {
                names.insert(old.clone(), new);
            }
        }
        let is_new = |(was, field): &&(Option<String>, Field)| was.as_ref() != Some(field.name());
        let new: Vec<Field> = columns.iter().filter(is_new).map(|(_, f)| f.clone()).collect();
        check_new_columns(&Schema::new(new))?;
        let table = base.table();
        if let Some(column) = base.partition_columns().iter().find(|c| names.contains_key(*c)) {
            return Err(TableError::Invalid(format!(
                "`{column}` is a partition column of table `{table}`: files are told apart by it, so it keeps its name; \
                 CREATE TABLE … AS SELECT its rows into another table"
            )));
        }
        let gone = |column: &&String| matches!(names.get(*column), Some(None));
        for (columns, what) in [
            (base.primary_key(), "is of the primary key"),
            (base.cluster_by(), "is a column that files are sorted by"),
        ] {
            if let Some(column) = columns.iter().find(gone) {
                let remedy = match what {
                    "is of the primary key" => {
                        "CREATE TABLE … AS SELECT the other columns into another table".to_owned()
                    }
                    _ => format!("ALTER TABLE {table} SET (clustered_by = '…') to others first"),
                };
                return Err(TableError::Invalid(format!(
                    "`{column}` {what} of table `{table}`; {remedy}"
                )));
            }
        }
        let change = ColumnChange { names, id_domains: Vec::new() };
        let each = |columns: &[String]| -> Vec<String> {
            columns.iter().filter_map(|column| change.name(column.clone())).collect()
        };
        let index = |spec: &IndexSpec| {
            Some(IndexSpec { column: change.name(spec.column.clone())?, ..spec.clone() })
        };
        let ids = |spec: &IdDomainSpec| {
            Some(IdDomainSpec { column: change.name(spec.column.clone())?, ..spec.clone() })
        };
        let fields: Vec<Field> = columns.iter().map(|(_, field)| field.clone()).collect();
        let definition = TableDefinition {
            schema: Arc::new(Schema::new(fields)),
            partition_columns: base.partition_columns().to_vec(),
            cluster_by: each(base.cluster_by()),
            indexes: base.indexes().iter().filter_map(index).collect(),
            id_domains: base.id_domains().iter().filter_map(ids).collect(),
            primary_key: each(base.primary_key()),
        };
        check_definition(&definition)?;
        let called = called(&change.names);
        let change = ColumnChange { id_domains: definition.id_domains.clone(), ..change };
        Ok(Self { definition, change, called, replaced: base.files().to_vec() })
    }

    /// The columns as they are stored from now on.
    pub fn schema(&self) -> &SchemaRef {
        &self.definition.schema
    }

    pub(crate) fn definition(&self) -> &TableDefinition {
        &self.definition
    }

    pub(crate) fn replaced(&self) -> &[DataFile] {
        &self.replaced
    }

    /// The change that they are, but for files.
    pub(crate) fn change(self, now_millis: i64) -> Change {
        let operation = DeltaOperation::SetTableProperties { properties: [].into() };
        Change {
            schema: Some(Arc::clone(&self.definition.schema)),
            properties: layout_properties(&self.definition),
            columns: Some(self.change),
            on_these_files_only: true,
            called: Some(self.called),
            ..Change::nothing(operation, now_millis)
        }
    }
}

/// What Delta's documents call such a change.
fn called(names: &BTreeMap<String, Option<String>>) -> Called {
    let renamed: Vec<(&String, &String)> =
        names.iter().filter_map(|(old, new)| Some((old, new.as_ref()?))).collect();
    let dropped = names.iter().filter(|(_, new)| new.is_none());
    let dropped: Vec<String> = dropped.map(|(old, _)| old.clone()).collect();
    match renamed.as_slice() {
        [(old, new)] if dropped.is_empty() => Called {
            operation: "RENAME COLUMN",
            parameters: vec![("oldColumnPath", (*old).clone()), ("newColumnPath", (*new).clone())],
        },
        [] => {
            Called { operation: "DROP COLUMNS", parameters: vec![("columns", dropped.join(","))] }
        }
        renamed => {
            let renamed: Vec<String> =
                renamed.iter().map(|(old, new)| format!("{old} to {new}")).collect();
            Called {
                operation: "REPLACE COLUMNS",
                parameters: vec![("renamed", renamed.join(",")), ("dropped", dropped.join(","))],
            }
        }
    }
}

/// Refuses tables in which another writer has said things of columns that would have to be written anew.
fn check_plain(base: &Snapshot) -> Result<()> {
    let state = base.eager()?;
    let about_columns = |key: &&String| {
        key.starts_with("delta.constraints.") || *key == "delta.dataSkippingStatsColumns"
    };
    let fields = base.schema().fields().iter();
    let mut said = fields.flat_map(|field| field.metadata().keys());
    let property = state.metadata().configuration().keys().find(about_columns);
    match property.or_else(|| said.find(|key| key.starts_with("delta."))) {
        None => Ok(()),
        Some(property) => Err(TableError::Invalid(format!(
            "another writer has set `{property}` for table `{}`, which names columns: they keep their names here",
            base.table()
        ))),
    }
}

async fn changed(lake: &Lake, base: &Snapshot, change: Change) -> Result<u64> {
    let committed = commit::commit(lake, base, change).await;
    committed.map_err(|error| error.without_label(base.table()))
}
