//! Names: catalogs, schemas, tables, primary keys.

use std::sync::Arc;

use arrow::array::{Array, AsArray, Int32Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow_flight::error::FlightError;
use arrow_flight::sql::{
    CommandGetCatalogs, CommandGetDbSchemas, CommandGetPrimaryKeys, CommandGetTables,
};
use futures::{StreamExt, TryStreamExt, stream};
use uplake_engine::{EngineError, Session, ViewDescription};
use uplake_table::{AsOf, Lake, TableError};

use super::rows::sent_schema;
use crate::access::Rights;
use crate::failure::Failure;
use crate::readable::hidden;

/// The schema that holds the lake's tables.
pub(super) const SCHEMA: &str = "public";
/// What tables are.
pub(super) const TABLE: &str = "TABLE";
/// What views are.
pub(super) const VIEW: &str = "VIEW";
/// Tables that are looked at together.
const AT_ONCE: usize = 16;

fn bug(error: FlightError) -> Failure {
    Failure::bug(format!("names could not be listed: {error}"))
}

fn of_table(error: TableError) -> Failure {
    EngineError::from(error).into()
}

/// The one catalog.
pub(super) fn catalogs(asked: CommandGetCatalogs, catalog: &str) -> Result<RecordBatch, Failure> {
    let mut builder = asked.into_builder();
    builder.append(catalog);
    builder.build().map_err(bug)
}

/// The one schema.
pub(super) fn schemas(asked: CommandGetDbSchemas, catalog: &str) -> Result<RecordBatch, Failure> {
    let mut builder = asked.into_builder();
    builder.append(catalog, SCHEMA);
    builder.build().map_err(bug)
}

/// The tables and views that are asked for; only these tables are looked at, if their columns are to be told.
/// `session` may read all.
pub(super) async fn tables(
    session: &Session,
    asked: CommandGetTables,
    catalog: &str,
    rights: &Rights,
) -> Result<RecordBatch, Failure> {
    let lake = session.lake();
    let mut names = lake.table_names().await.map_err(of_table)?;
    let views = match asked.table_types.is_empty() || asked.table_types.iter().any(|t| t == VIEW) {
        true => session.views().await?,
        false => Vec::new(),
    };
    // A name is a table before it is a view.
    let views = views.into_iter().filter(|view| !names.contains(&view.name) && sees(rights, view));
    let views: Vec<ViewDescription> = views.collect();
    names.retain(|name| rights.sees(name));
    let without = CommandGetTables { include_schema: false, ..asked.clone() };
    let mut builder = without.into_builder();
    for name in &names {
        builder.append(catalog, SCHEMA, name, TABLE, &Schema::empty()).map_err(bug)?;
    }
    for view in views.iter().filter(|_| !asked.include_schema) {
        builder.append(catalog, SCHEMA, &view.name, VIEW, &Schema::empty()).map_err(bug)?;
    }
    let found = builder.build().map_err(bug)?;
    if !asked.include_schema {
        return Ok(found);
    }
    let names = found.column(2).as_string::<i32>();
    let names = names.iter().flatten().map(str::to_owned).collect::<Vec<_>>();
    let look = |name: String| async move {
        match lake.snapshot(&name, &AsOf::Latest).await {
            Ok(snapshot) => {
                let hidden = hidden(rights, &name);
                let fields = snapshot.schema().fields().iter();
                let seen = fields.filter(|field| !hidden.contains(&field.name().to_lowercase()));
                let seen = Arc::new(Schema::new(seen.cloned().collect::<Vec<_>>()));
                Ok(Some((name, sent_schema(&seen, false))))
            }
            // It was dropped meanwhile.
            Err(TableError::NoSuchTable { .. }) => Ok(None),
            Err(error) => Err(of_table(error)),
        }
    };
    let looks = stream::iter(names.into_iter().map(look)).buffered(AT_ONCE);
    let known: Vec<Option<(String, SchemaRef)>> = looks.try_collect().await?;
    let mut builder = asked.into_builder();
    for (name, schema) in known.iter().flatten() {
        builder.append(catalog, SCHEMA, name, TABLE, schema).map_err(bug)?;
    }
    for view in &views {
        let schema = sent_schema(&view.schema, false);
        builder.append(catalog, SCHEMA, &view.name, VIEW, &schema).map_err(bug)?;
    }
    builder.build().map_err(bug)
}

/// Does a role see a view? It was planned by somebody who sees all columns of its tables.
fn sees(rights: &Rights, view: &ViewDescription) -> bool {
    view.tables.iter().all(|table| rights.sees(table) && hidden(rights, table).is_empty())
}

/// Columns of what is told about primary keys.
pub(super) fn primary_key_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("catalog_name", DataType::Utf8, true),
        Field::new("db_schema_name", DataType::Utf8, true),
        Field::new("table_name", DataType::Utf8, false),
        Field::new("column_name", DataType::Utf8, false),
        Field::new("key_name", DataType::Utf8, true),
        Field::new("key_sequence", DataType::Int32, false),
    ]))
}

/// The columns of a table's primary key; no rows if there is none.
///
/// # Errors
/// 42P01 if there is no such table.
pub(super) async fn primary_keys(
    lake: &Lake,
    asked: &CommandGetPrimaryKeys,
    catalog: &str,
    rights: &Rights,
) -> Result<RecordBatch, Failure> {
    let here = asked.catalog.as_deref().is_none_or(|name| name == catalog)
        && asked.db_schema.as_deref().is_none_or(|name| name == SCHEMA);
    let mut key = Vec::new();
    if here {
        if !rights.sees(&asked.table) {
            // What there is instead would be told otherwise.
            let message = format!("there is no table `{}`", asked.table);
            return Err(Failure::new("42P01", message));
        }
        let snapshot = lake.snapshot(&asked.table, &AsOf::Latest).await.map_err(of_table)?;
        key = snapshot.primary_key().to_vec();
        let hidden = hidden(rights, &asked.table);
        if key.iter().any(|column| hidden.contains(&column.to_lowercase())) {
            key.clear();
        }
    }
    let all = |text: &str| Arc::new(StringArray::from(vec![text; key.len()])) as Arc<dyn Array>;
    let columns: Vec<Arc<dyn Array>> = vec![
        all(catalog),
        all(SCHEMA),
        all(&asked.table),
        Arc::new(StringArray::from(key.clone())),
        Arc::new(StringArray::new_null(key.len())),
        Arc::new(Int32Array::from_iter_values(1..=key.len() as i32)),
    ];
    RecordBatch::try_new(primary_key_schema(), columns)
        .map_err(|error| Failure::bug(error.to_string()))
}
