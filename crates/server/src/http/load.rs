//! Files into tables: `uplake load` over a connection.
//!
//! # Invariants
//! - A file is never in memory as a whole: it goes to a temporary file first.
//! - A body that ends before its end loads nothing.

use std::io::Read;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use axum::Extension;
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Query, Request, State};
use futures::StreamExt;
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tokio::io::AsyncWriteExt;
use uplake_engine::EngineError;
use uplake_table::{
    Header, InputFile, LoadOptions, LoadSummary, OnConflict, OnError, Progress, TableError,
    TextOptions, check_table_name, load, parse_schema,
};

use super::here::Here;
use super::refusal::{Refusal, invalid};
use crate::failure::Failure;
use crate::loads::Loaded;
use crate::statements::{Client, Protocol};

/// A body may take as long as it likes, but not so long without a byte.
const QUIET_TIME: Duration = Duration::from_secs(600);
/// Of the bad rows, what is told.
const TOLD_BYTES: u64 = 16 << 10;

/// Options in the address, with the names of the command's.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Options {
    format: Option<String>,
    schema: Option<String>,
    partition_by: Option<String>,
    cluster_by: Option<String>,
    index: Option<String>,
    id_domain: Option<String>,
    primary_key: Option<String>,
    on_conflict: Option<String>,
    allow_new_columns: bool,
    label: Option<String>,
    on_error: Option<String>,
    delimiter: Option<char>,
    header: Option<bool>,
    null: Option<String>,
}

pub(super) async fn post(
    State(here): State<Here>,
    Extension(client): Extension<Client>,
    Path(table): Path<String>,
    request: Request,
) -> Result<Json<Value>, Refusal> {
    let (head, body) = request.into_parts();
    let options = Query::<Options>::try_from_uri(&head.uri);
    let Query(options) = options.map_err(|error| invalid(error.body_text()))?;
    check_table_name(&table).map_err(table_error)?;
    let folder = &here.shared.options.spool_folder;
    let is_parquet = match options.format.as_deref() {
        None | Some("csv" | "json" | "jsonl" | "ndjson") => false,
        Some("parquet") => true,
        Some(_) => return Err(invalid("format is csv, jsonl or parquet")),
    };
    let rejects = match options.on_error.as_deref() {
        None | Some("abort") => None,
        Some("skip") => {
            Some(NamedTempFile::with_prefix_in("rejects-", folder).map_err(|error| disk(&error))?)
        }
        Some(_) => return Err(invalid("on_error is abort or skip")),
    };
    let label = options.label.clone();
    let into = table.clone();
    let mut load_options = load_options(&here, &options, rejects.as_ref())?;
    let text = format!("LOAD {table}");
    let running = here.shared.admit(client, &text).await?;
    let meter = here.shared.metrics.query(Protocol::Http);
    let suffix = if is_parquet { ".parquet" } else { "" };
    let file = tempfile::Builder::new().prefix("load-").suffix(suffix).tempfile_in(folder);
    let file = file.map_err(|error| disk(&error))?;
    let progress = Arc::new(Progress::default());
    let loaded = running.unless_stopped(async {
        receive(&here, running.role(), body, &file).await?;
        let name = format!("the body for {table}");
        let input = InputFile::of_path(name, file.path());
        let (shared, progress) = (Arc::clone(&here.shared), Arc::clone(&progress));
        let client = running.client().clone();
        let work = Box::pin(async move {
            shared.may_load(&client.role, &table).await?;
            let session = shared.session_of(&client);
            let room = shared.load_room(&session).await?;
            load_options.memory_bytes = room.bytes();
            let files = [input];
            let loaded = load(session.lake(), &table, &files, &load_options, &progress).await;
            loaded.map_err(|error| Failure::from(EngineError::from(error)))
        });
        running.compute(work).await
    });
    let summary = loaded.await.inspect_err(|failure| meter.failed(failure))?;
    meter.done();
    running.loaded(&Loaded { table: &into, label: label.as_deref(), summary: &summary });
    let mut answer = told(&summary, rejects.as_ref());
    let notes = progress.notes.lock().unwrap_or_else(PoisonError::into_inner);
    if !notes.is_empty() {
        answer["notes"] = notes.clone().into();
    }
    Ok(Json(answer))
}

fn told(summary: &LoadSummary, rejects: Option<&NamedTempFile>) -> Value {
    let mut answer = json!({
        "rows": summary.rows,
        "bad_rows": summary.bad_rows,
        "replaced_rows": summary.replaced_rows,
        "bytes": summary.bytes,
        "files": summary.files,
        "version": summary.version,
        "created": summary.created,
        "new_columns": summary.new_columns,
        "already_loaded": summary.version.is_none(),
    });
    if let (Some(file), 1..) = (rejects, summary.bad_rows) {
        let mut text = Vec::new();
        // They are told of as far as they can be read.
        let _ = file.reopen().map(|file| file.take(TOLD_BYTES).read_to_end(&mut text));
        answer["rejects"] = String::from_utf8_lossy(&text).into();
    }
    answer
}

/// The body as a file.
async fn receive(here: &Here, role: &str, body: Body, file: &NamedTempFile) -> Result<(), Failure> {
    let handle = file.reopen().map_err(|error| disk(&error))?;
    let mut handle = tokio::fs::File::from_std(handle);
    let mut parts = body.into_data_stream();
    loop {
        let part = tokio::time::timeout(QUIET_TIME, parts.next()).await;
        let part = part.map_err(|_| Failure::new("57014", "the body did not come in time"))?;
        let Some(part) = part else { break };
        let part = part.map_err(|error| {
            Failure::new("57014", format!("the body ended before its end: {error}"))
        })?;
        here.shared.pace_load(role, part.len()).await;
        handle.write_all(&part).await.map_err(|error| disk(&error))?;
    }
    handle.flush().await.map_err(|error| disk(&error))
}

fn disk(error: &std::io::Error) -> Failure {
    Failure::new("53100", format!("the file could not be kept: {error}"))
}

fn table_error(error: TableError) -> Refusal {
    EngineError::from(error).into()
}

fn load_options(
    here: &Here,
    options: &Options,
    rejects: Option<&NamedTempFile>,
) -> Result<LoadOptions, Refusal> {
    let schema = options.schema.as_deref().map(parse_schema).transpose().map_err(table_error)?;
    let names = |list: &Option<String>| {
        let list = list.as_deref().unwrap_or_default().split(',').map(str::trim);
        list.filter(|name| !name.is_empty()).map(str::to_owned).collect::<Vec<String>>()
    };
    let indexes = names(&options.index).iter().map(|text| text.parse()).collect::<Result<_, _>>();
    let id_domains = names(&options.id_domain);
    let id_domains = id_domains.iter().map(|text| text.parse()).collect::<Result<_, _>>();
    let delimiter = options.delimiter.map(|c| match u8::try_from(c) {
        Ok(byte) if byte.is_ascii() && !matches!(byte, b'"' | b'\n' | b'\r') => Ok(byte),
        _ => Err(invalid("delimiter is one ASCII character")),
    });
    Ok(LoadOptions {
        schema: schema.map(Arc::new),
        partition_by: names(&options.partition_by),
        cluster_by: names(&options.cluster_by),
        indexes: indexes.map_err(table_error)?,
        id_domains: id_domains.map_err(table_error)?,
        primary_key: names(&options.primary_key),
        on_conflict: match options.on_conflict.as_deref() {
            None | Some("replace") => OnConflict::Replace,
            Some("ignore") => OnConflict::Ignore,
            Some(_) => return Err(invalid("on_conflict is replace or ignore")),
        },
        allow_new_columns: options.allow_new_columns,
        label: options.label.clone(),
        on_error: match rejects {
            None => OnError::Abort,
            Some(file) => OnError::Skip { rejects: file.path().to_owned() },
        },
        text: TextOptions {
            delimiter: delimiter.transpose()?,
            header: match options.header {
                None => Header::Find,
                Some(true) => Header::Yes,
                Some(false) => Header::No,
            },
            null: options.null.clone(),
        },
        // As much memory as there is when the rows are here.
        ..LoadOptions::new(
            0,
            std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get),
            (here.shared.options.clock)(),
        )
    })
}
