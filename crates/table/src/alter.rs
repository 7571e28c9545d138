//! Changes of what a table is, without its rows: columns that are added, what is said of it.
//!
//! # Invariants
//! - Data files stay as they are: rows of files that are older than a column have NULL there.
//! - A version before the change reads as it did.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use arrow::error::ArrowError;
use deltalake_core::kernel::StructField;
use deltalake_core::kernel::engine::arrow_conversion::TryIntoKernel;
use deltalake_core::protocol::DeltaOperation;

use crate::commit::{self, Change, Comment, CommitError};
use crate::definition::check_new_columns;
use crate::error::{Result, TableError};
use crate::lake::Lake;
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
    changed(lake, base, Change { schema, ..nothing(operation, now_millis) }).await
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
    let change = Change { comment: Some(comment), ..nothing(operation, now_millis) };
    changed(lake, base, change).await
}

fn nothing(operation: DeltaOperation, now_millis: i64) -> Change {
    Change {
        add: Vec::new(),
        remove: Vec::new(),
        schema: None,
        indexes: None,
        comment: None,
        on_these_files_only: false,
        label: None,
        operation,
        now_millis,
    }
}

async fn changed(lake: &Lake, base: &Snapshot, change: Change) -> Result<u64> {
    commit::commit(lake, base, change).await.map_err(|error| match error {
        CommitError::Failed(error) => error,
        CommitError::Conflict(reason) => {
            TableError::Conflict { table: base.table().to_owned(), reason }
        }
        CommitError::LabelTaken => {
            TableError::Conflict { table: base.table().to_owned(), reason: String::new() }
        }
    })
}
