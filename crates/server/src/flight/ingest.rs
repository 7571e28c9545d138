//! Rows in bulk: into a Parquet file on this machine, then into the table as one load.
//!
//! # Invariants
//! - All rows of a call appear in one commit, or none do: a stream that breaks off commits nothing.
//! - With a label they appear once, however often they are sent.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow_flight::sql::{CommandStatementIngest, TableExistsOption, TableNotExistOption};
use futures::{Stream, StreamExt};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use tempfile::NamedTempFile;
use uplake_engine::{EngineError, Session};
use uplake_table::{
    InputFile, Lake, LoadOptions, LoadSummary, Progress, TableError, check_table_name, load,
};

use super::listing::SCHEMA;
use crate::failure::Failure;
use crate::server::Shared;

const THREADS: usize = 4;
/// Rows of a row group in the file in between: what is held before it is written.
const GROUP_ROWS: usize = 128 << 10;
/// What options of drivers begin with, which mean nothing here.
const OF_DRIVERS: &str = "adbc.";

/// What a client wants done with the rows that follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub table: String,
    pub label: Option<String>,
    partition_by: Vec<String>,
    cluster_by: Vec<String>,
    primary_key: Vec<String>,
    if_missing: TableNotExistOption,
    if_there: TableExistsOption,
}

impl Target {
    /// What the command says.
    ///
    /// # Errors
    /// 0A000 for a replaced or temporary table and for a transaction; names and options that there are not.
    pub fn new(asked: CommandStatementIngest, catalog: &str) -> Result<Self, Failure> {
        let unsupported = |what: &str, hint: &str| {
            Err(Failure::new("0A000", format!("{what} is not supported")).with_hint(hint))
        };
        let options = asked.table_definition_options.unwrap_or_default();
        let (if_missing, if_there) = (options.if_not_exist(), options.if_exists());
        if if_there == TableExistsOption::Replace {
            return unsupported("replacing a table", "drop the table first, then create it");
        }
        if asked.temporary {
            return unsupported("a temporary table", "create a table, and drop it");
        }
        if asked.transaction_id.is_some() {
            return unsupported("ingest in a transaction", "ingest is one commit without it");
        }
        if let Some(other) = asked.catalog.filter(|name| !name.is_empty() && name != catalog) {
            return Err(Failure::new("3D000", format!("there is no database `{other}`"))
                .with_hint(format!("it is `{catalog}`")));
        }
        if let Some(other) = asked.schema.filter(|name| !name.is_empty() && name != SCHEMA) {
            return Err(Failure::new("3F000", format!("there is no schema `{other}`"))
                .with_hint(format!("it is `{SCHEMA}`")));
        }
        check_table_name(&asked.table).map_err(of_table)?;
        let mut target = Self {
            table: asked.table,
            label: None,
            partition_by: Vec::new(),
            cluster_by: Vec::new(),
            primary_key: Vec::new(),
            if_missing,
            if_there,
        };
        for (name, value) in asked.options {
            let columns = || value.split(',').map(|name| name.trim().to_owned()).collect();
            match name.as_str() {
                "label" => target.label = Some(value),
                "partition_by" => target.partition_by = columns(),
                "cluster_by" => target.cluster_by = columns(),
                "primary_key" => target.primary_key = columns(),
                name if name.starts_with(OF_DRIVERS) => {}
                other => {
                    let message = format!("ingest has no option `{other}`");
                    return Err(Failure::new("22023", message).with_hint(
                        "there are label, and for a new table partition_by, cluster_by, primary_key",
                    ));
                }
            }
        }
        Ok(target)
    }

    /// Text for the list of statements.
    pub fn text(&self) -> String {
        format!("INGEST INTO {}", self.table)
    }

    async fn check(&self, lake: &Lake) -> Result<(), Failure> {
        let is_there = lake.has_table(&self.table).await.map_err(of_table)?;
        if is_there && self.if_there == TableExistsOption::Fail && self.label.is_none() {
            return Err(of_table(TableError::TableExists { name: self.table.clone() }));
        }
        if !is_there && self.if_missing == TableNotExistOption::Fail {
            return Err(Failure::new("42P01", format!("there is no table `{}`", self.table))
                .with_hint("create it, or let it be created"));
        }
        Ok(())
    }
}

fn of_table(error: TableError) -> Failure {
    EngineError::from(error).into()
}

/// Loads the rows; how many they were. Those of a label that is there are not counted.
///
/// # Errors
/// What the target and the table refuse; 53100 if there is no room.
pub(super) async fn ingest(
    shared: &Shared,
    session: &Session,
    role: &str,
    target: Target,
    batches: impl Stream<Item = Result<RecordBatch, Failure>> + Unpin,
    now_millis: i64,
) -> Result<LoadSummary, Failure> {
    let lake = session.lake();
    target.check(lake).await?;
    let file = write(batches, shared, role).await?;
    let room = shared.load_room(session).await?;
    let options = LoadOptions {
        partition_by: target.partition_by,
        cluster_by: target.cluster_by,
        primary_key: target.primary_key,
        label: target.label,
        ..LoadOptions::new(room.bytes(), THREADS, now_millis)
    };
    let input = InputFile::of_path("the rows that were sent", file.path());
    let progress = Arc::new(Progress::default());
    let loaded = load(lake, &target.table, &[input], &options, &progress).await;
    loaded.map_err(of_table)
}

async fn write(
    mut batches: impl Stream<Item = Result<RecordBatch, Failure>> + Unpin,
    shared: &Shared,
    role: &str,
) -> Result<NamedTempFile, Failure> {
    let full = |error: String| Failure::new("53100", format!("rows could not be kept: {error}"));
    let (folder, most) = (&shared.options.spool_folder, shared.options.spool_bytes);
    let file = tempfile::Builder::new().suffix(".parquet").tempfile_in(folder);
    let file = file.map_err(|error| full(error.to_string()))?;
    let Some(first) = batches.next().await.transpose()? else {
        return Err(Failure::new("22000", "no rows and no columns came"));
    };
    let schema = first.schema();
    let mut next = Some(first);
    let properties = WriterProperties::builder()
        .set_compression(Compression::LZ4_RAW)
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .build();
    let handle = file.reopen().map_err(|error| full(error.to_string()))?;
    let wrong = |error: ParquetError| match error {
        ParquetError::External(error) => full(error.to_string()),
        other => Failure::new("22000", format!("the rows cannot be kept: {other}")),
    };
    let mut writer = ArrowWriter::try_new(handle, schema, Some(properties)).map_err(wrong)?;
    while let Some(batch) = next {
        shared.pace_load(role, batch.get_array_memory_size()).await;
        writer.write(&batch).map_err(wrong)?;
        if writer.bytes_written() as u64 > most {
            return Err(full(format!("more than {most} bytes came")));
        }
        next = batches.next().await.transpose()?;
    }
    writer.close().map_err(wrong)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use arrow_flight::sql::TableDefinitionOptions;

    use super::*;

    fn command(change: impl FnOnce(&mut CommandStatementIngest)) -> CommandStatementIngest {
        let mut command = CommandStatementIngest { table: "t".into(), ..Default::default() };
        change(&mut command);
        command
    }

    #[test]
    fn what_cannot_be_done_is_said_before_rows_come() {
        let code = |change: fn(&mut CommandStatementIngest)| {
            Target::new(command(change), "lake").map_err(|failure| failure.code.into_owned())
        };
        assert_eq!(code(|c| c.temporary = true).unwrap_err(), "0A000");
        assert_eq!(code(|c| c.transaction_id = Some("x".into())).unwrap_err(), "0A000");
        assert_eq!(code(|c| c.catalog = Some("other".into())).unwrap_err(), "3D000");
        assert_eq!(code(|c| c.schema = Some("other".into())).unwrap_err(), "3F000");
        let option = |c: &mut CommandStatementIngest| drop(c.options.insert("a".into(), "".into()));
        assert_eq!(code(option).unwrap_err(), "22023");
        let replace = |c: &mut CommandStatementIngest| {
            c.table_definition_options = Some(TableDefinitionOptions {
                if_not_exist: TableNotExistOption::Create as i32,
                if_exists: TableExistsOption::Replace as i32,
            });
        };
        assert_eq!(code(replace).unwrap_err(), "0A000");
        let target = code(|c| {
            c.options.insert("label".into(), "x".into());
            c.options.insert("cluster_by".into(), "a, b".into());
            c.options.insert("adbc.x".into(), "y".into());
        });
        let target = target.unwrap();
        assert_eq!((target.label.as_deref(), target.cluster_by.len()), (Some("x"), 2));
    }
}
