//! Statements in, rows out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use serde::Deserialize;
use serde_json::Value;
use uplake_engine::{
    Answer, Class, EngineError, RunOptions, ScalarValue, Session, parse, parse_labels,
    parse_timeout, within,
};

use super::here::Here;
use super::refusal::{Refusal, invalid};
use super::rows::{Format, How, Sending, encode};
use crate::failure::Failure;
use crate::formats::{Document, RowFormat};
use crate::metrics::QueryMeter;
use crate::spool::spool;
use crate::statements::{Client, Parts, Protocol, Running};
use crate::traceparent::TRACEPARENT;

/// Bytes of a body of SQL.
const SQL_BYTES: usize = 16 << 20;
/// What a client may take for them.
const BODY_TIME: Duration = Duration::from_secs(60);
/// A statement's number, for `/queries`.
const QUERY_ID: &str = "x-uplake-query-id";
/// What was done, where the format has no place for it.
const MESSAGE: &str = "x-uplake-message";
/// Media types and formats, the first of which is what nobody asks otherwise.
const MEDIA: [(&str, &str); 9] = [
    ("application/json", "json"),
    ("*/*", "json"),
    ("application/*", "json"),
    ("application/x-ndjson", "jsonl"),
    ("application/jsonl", "jsonl"),
    ("text/csv", "csv"),
    ("text/*", "csv"),
    ("application/vnd.apache.arrow.stream", "arrow"),
    ("application/vnd.apache.parquet", "parquet"),
];

/// Options in the address.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    query: Option<String>,
    format: Option<String>,
    timeout: Option<String>,
    class: Option<String>,
    max_rows: Option<u64>,
}

/// A body of JSON.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ask {
    sql: String,
    #[serde(default)]
    params: Vec<Value>,
    #[serde(default)]
    settings: BTreeMap<String, Value>,
}

pub(super) async fn get(
    State(here): State<Here>,
    Extension(client): Extension<Client>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let mut options = options(&uri)?;
    let sql = options.query.take().ok_or_else(|| invalid("give the statement: /sql?query=…"))?;
    let ask = Ask { sql, ..Ask::default() };
    answer(&here, client, ask, &options, &headers, true).await
}

pub(super) async fn post(
    State(here): State<Here>,
    Extension(client): Extension<Client>,
    request: Request,
) -> Result<Response, Refusal> {
    let (head, body) = request.into_parts();
    let options = options(&head.uri)?;
    if options.query.is_some() {
        return Err(invalid("the statement is in the body; `query` is for GET"));
    }
    let body = tokio::time::timeout(BODY_TIME, whole(body)).await;
    let body = body.map_err(|_| Failure::new("57014", "the body did not come in time"))??;
    let media = head.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let ask = if media.is_some_and(|media| media.starts_with("application/json")) {
        serde_json::from_slice(&body).map_err(|error| invalid(format!("the body: {error}")))?
    } else {
        let sql = String::from_utf8(body)
            .map_err(|_| Failure::new("22021", "the statement is not UTF-8"))?;
        Ask { sql, ..Ask::default() }
    };
    answer(&here, client, ask, &options, &head.headers, false).await
}

fn options(uri: &Uri) -> Result<Options, Refusal> {
    let options = Query::<Options>::try_from_uri(uri);
    options.map(|Query(options)| options).map_err(|error| invalid(error.body_text()))
}

async fn whole(body: Body) -> Result<Vec<u8>, Failure> {
    let mut parts = body.into_data_stream();
    let mut all = Vec::new();
    while let Some(part) = parts.next().await {
        let part: Bytes =
            part.map_err(|error| Failure::new("57014", format!("the body ended: {error}")))?;
        if all.len() + part.len() > SQL_BYTES {
            let message = format!("a body of SQL has at most {SQL_BYTES} bytes");
            return Err(Failure::new("08P01", message).with_hint("rows are loaded by /load/TABLE"));
        }
        all.extend_from_slice(&part);
    }
    Ok(all)
}

async fn answer(
    here: &Here,
    mut client: Client,
    ask: Ask,
    options: &Options,
    headers: &HeaderMap,
    read_only: bool,
) -> Result<Response, Refusal> {
    let format = format(options, headers)?;
    let how = How { format, max_rows: options.max_rows };
    let mut run = RunOptions {
        class: match options.class.as_deref() {
            None | Some("interactive") => Class::Interactive,
            Some("batch") => Class::Batch,
            Some(_) => return Err(invalid("class is interactive or batch")),
        },
        ..RunOptions::default()
    };
    let mut ask = ask;
    if let Some(text) = &options.timeout {
        run.timeout = parse_timeout(text).map_err(invalid)?;
        if run.timeout.is_none() {
            ask.settings.insert("uplake.timeout".into(), "0".into());
        }
    }
    if let Some(Value::String(set)) = ask.settings.get("uplake.labels") {
        let set = parse_labels(set).map_err(|wrong| Failure::new("22023", wrong))?;
        client.labels.extend(set);
    }
    if let Some(Value::String(set)) = ask.settings.get("uplake.traceparent") {
        client.labels.insert(TRACEPARENT.to_owned(), set.clone());
    }
    let running = here.shared.admit(client, &ask.sql).await?;
    let meter = here.shared.metrics.query(Protocol::Http);
    let id = HeaderValue::from(running.id());
    run =
        RunOptions { timeout: run.timeout, class: run.class, ..here.shared.run_options(&running) };
    let answered = rows(here, running, meter, ask, run, how, read_only).await;
    let mut response = answered.unwrap_or_else(|failure| Refusal(failure).into_response());
    response.headers_mut().insert(QUERY_ID, id);
    Ok(response)
}

async fn rows(
    here: &Here,
    running: Running,
    meter: QueryMeter,
    ask: Ask,
    run: RunOptions,
    how: How,
    read_only: bool,
) -> Result<Response, Failure> {
    let client = running.client();
    let session = here.shared.session_of(client);
    let answers = Box::pin(run_all(session, ask, run, read_only, running.parts()));
    let answer = running.compute(answers).await;
    let answer = answer.inspect_err(|failure| meter.failed(failure))?;
    match answer {
        Answer::Rows { schema, stream } => {
            let share = here.shared.spool_share(running.role());
            let (writer, reader) = spool(&here.shared.spools, share, running.spooled());
            let count = Arc::new(AtomicU64::new(0));
            let task = running.spawn(encode(stream, schema, how, writer, Arc::clone(&count)));
            let sending = Sending { running, meter, reader, count, told: 0, _task: task };
            let body = sending.body().await?;
            Ok(([(header::CONTENT_TYPE, media_type(how.format))], body).into_response())
        }
        Answer::Done { message, rows } => {
            meter.done();
            let body = match how.format {
                Format::Json => Document::done(&message, rows),
                Format::Rows(_) => Vec::new(),
            };
            let mut response =
                ([(header::CONTENT_TYPE, media_type(how.format))], body).into_response();
            // Names of tables may have characters that a header cannot.
            let plain = message.chars().map(|c| if c.is_ascii_graphic() { c } else { ' ' });
            if let Ok(value) = HeaderValue::from_str(&plain.collect::<String>()) {
                response.headers_mut().insert(MESSAGE, value);
            }
            Ok(response)
        }
    }
}

/// Runs the statements one after another; the last one's answer.
async fn run_all(
    session: Session,
    ask: Ask,
    run: RunOptions,
    read_only: bool,
    parts: Parts,
) -> Result<Answer, Failure> {
    for (name, value) in &ask.settings {
        set(&session, name, value).await?;
    }
    let mut statements = parse(&ask.sql)?;
    if read_only && !statements.iter().all(uplake_engine::Statement::only_asks) {
        let failure = Failure::new("25006", "GET answers queries only");
        return Err(failure.with_hint("send it with POST"));
    }
    let Some(mut last) = statements.pop() else {
        return Err(Failure::new("42601", "there is no statement"));
    };
    if !ask.params.is_empty() {
        if !statements.is_empty() {
            return Err(Failure::new("0A000", "parameters are for one statement alone"));
        }
        let values = ask.params.iter().map(value).collect::<Result<Vec<_>, _>>()?;
        last = within(run.timeout, session.prepare(&last)).await??.bind(&values)?;
    }
    for statement in &statements {
        parts.begins(&statement.text);
        if let Answer::Rows { mut stream, .. } = session.run_with(statement, run.clone()).await? {
            while let Some(batch) = stream.next().await {
                batch.map_err(EngineError::from)?;
            }
        }
    }
    if !statements.is_empty() {
        parts.begins(&last.text);
    }
    Ok(session.run_with(&last, run).await?)
}

async fn set(session: &Session, name: &str, value: &Value) -> Result<(), Failure> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    if name.is_empty() || !name.chars().all(is_plain) {
        return Err(Failure::new("42704", format!("there is no setting `{name}`")));
    }
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(_) | Value::Bool(_) => value.to_string(),
        _ => return Err(Failure::new("22023", format!("{name}: a setting is one value"))),
    };
    for statement in parse(&format!("SET {name} = '{}'", text.replace('\'', "''")))? {
        session.run(&statement).await?;
    }
    Ok(())
}

/// A parameter's value, which is cast to its type.
fn value(json: &Value) -> Result<ScalarValue, Failure> {
    Ok(match json {
        Value::Null => ScalarValue::Null,
        Value::Bool(value) => ScalarValue::Boolean(Some(*value)),
        Value::String(text) => ScalarValue::Utf8(Some(text.clone())),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(whole), _) => ScalarValue::Int64(Some(whole)),
            (None, Some(whole)) => ScalarValue::UInt64(Some(whole)),
            (None, None) => ScalarValue::Float64(number.as_f64()),
        },
        Value::Array(_) | Value::Object(_) => {
            let message = "a parameter is a text, a number, true, false or null";
            return Err(Failure::new("22023", message));
        }
    })
}

/// `?format=`, or the first of `Accept` that there is.
fn format(options: &Options, headers: &HeaderMap) -> Result<Format, Refusal> {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let name = match (&options.format, accept) {
        (Some(name), _) => name.as_str(),
        (None, None) => MEDIA[0].1,
        (None, Some(accept)) => {
            let wanted = accept.split(',').map(|part| part.split(';').next().unwrap_or("").trim());
            let found =
                wanted.filter_map(|wanted| MEDIA.iter().find(|(media, _)| *media == wanted));
            let mut found = found.map(|(_, name)| *name);
            found
                .next()
                .ok_or_else(|| invalid(format!("Accept: {accept} names no format that there is")))?
        }
    };
    Ok(match name {
        "json" => Format::Json,
        "jsonl" | "ndjson" => Format::Rows(RowFormat::JsonLines),
        "csv" => Format::Rows(RowFormat::Csv),
        "arrow" => Format::Rows(RowFormat::Arrow),
        "parquet" => Format::Rows(RowFormat::Parquet),
        _ => return Err(invalid("format is json, jsonl, csv, arrow or parquet")),
    })
}

fn media_type(format: Format) -> &'static str {
    match format {
        Format::Json => "application/json",
        Format::Rows(RowFormat::JsonLines) => "application/x-ndjson",
        Format::Rows(RowFormat::Csv) => "text/csv; charset=utf-8; header=present",
        Format::Rows(RowFormat::Arrow) => "application/vnd.apache.arrow.stream",
        Format::Rows(RowFormat::Parquet) => "application/vnd.apache.parquet",
    }
}
