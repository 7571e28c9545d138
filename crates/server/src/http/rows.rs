//! Rows of an answer on their way: encoded where they are computed, kept for a slow client, sent as a body.
//!
//! # Invariants
//! - The slot is given back when the last row is encoded, whatever the client does.
//! - A body that is dropped stops its statement.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use axum::body::Body;
use bytes::Bytes;
use futures::{FutureExt, Stream, StreamExt, stream};
use uplake_engine::EngineError;

use crate::drivers::AbortOnDrop;
use crate::failure::Failure;
use crate::formats::{Document, FormatError, RowFormat, RowWriter};
use crate::metrics::QueryMeter;
use crate::spool::{SpoolReader, SpoolWriter};
use crate::statements::Running;

/// Encoded bytes that are handed on at once.
const CHUNK_BYTES: usize = 256 << 10;
/// Rows of an answer that is one JSON object, unless the client asks for more: it reads them as one.
const JSON_ROWS: u64 = 1_000_000;

/// How rows are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// One JSON object.
    Json,
    Rows(RowFormat),
}

/// How an answer is made of rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    pub format: Format,
    /// Rows beyond are left out.
    pub max_rows: Option<u64>,
}

/// Encodes all rows; `rows` counts them.
pub(super) async fn encode<S, E>(
    mut rows: S,
    schema: SchemaRef,
    how: How,
    to: SpoolWriter,
    count: Arc<AtomicU64>,
) where
    S: Stream<Item = Result<RecordBatch, E>> + Unpin + Send,
    E: Send,
    EngineError: From<E>,
{
    let end = encode_all(&mut rows, &schema, how, &to, &count).await;
    // The slot is free before the client knows of the end.
    drop(rows);
    to.finish(end);
}

async fn encode_all<S, E>(
    rows: &mut S,
    schema: &SchemaRef,
    how: How,
    to: &SpoolWriter,
    count: &AtomicU64,
) -> Result<(), Failure>
where
    S: Stream<Item = Result<RecordBatch, E>> + Unpin + Send,
    E: Send,
    EngineError: From<E>,
{
    let mut encoder: Option<Encoder> = None;
    let (mut sent, mut is_cut) = (0, false);
    while !is_cut {
        let next = match rows.next().now_or_never() {
            Some(next) => next,
            None => {
                // What there is goes out before more is waited for.
                if let Some(chunk) = encoder.as_mut().and_then(|encoder| encoder.take(1)) {
                    to.push(chunk).await?;
                }
                rows.next().await
            }
        };
        let Some(batch) = next else { break };
        let mut batch = batch.map_err(|error| Failure::from(EngineError::from(error)))?;
        let left = how.max_rows.map_or(u64::MAX, |most| most - sent);
        if batch.num_rows() as u64 > left {
            batch = batch.slice(0, left as usize);
            is_cut = true;
        }
        sent += batch.num_rows() as u64;
        if how.format == Format::Json && how.max_rows.is_none() && sent > JSON_ROWS {
            let message = format!(
                "the answer has more than {JSON_ROWS} rows, which is too much for one JSON object"
            );
            let hint = "ask for another format (jsonl, csv, arrow, parquet), or say how many with max_rows";
            return Err(Failure::new("54000", message).with_hint(hint));
        }
        let encoder = match &mut encoder {
            Some(encoder) => encoder,
            none => none.insert(Encoder::new(how.format, schema)?),
        };
        encoder.write(&batch)?;
        count.store(sent, Ordering::Relaxed);
        if let Some(chunk) = encoder.take(CHUNK_BYTES) {
            to.push(chunk).await?;
        }
    }
    let encoder = match encoder {
        Some(encoder) => encoder,
        None => Encoder::new(how.format, schema)?,
    };
    let rest = encoder.finish(is_cut)?;
    if rest.is_empty() { Ok(()) } else { to.push(rest).await }
}

enum Encoder {
    Json(Document, Vec<u8>),
    Rows(RowWriter<Buffer>, Buffer),
}

impl Encoder {
    fn new(format: Format, schema: &SchemaRef) -> Result<Self, Failure> {
        Ok(match format {
            Format::Json => {
                let mut out = Vec::new();
                Self::Json(Document::begin(schema, &mut out), out)
            }
            Format::Rows(format) => {
                let out = Buffer::default();
                let writer = RowWriter::new(format, schema, out.clone()).map_err(unfit)?;
                Self::Rows(writer, out)
            }
        })
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), Failure> {
        match self {
            Self::Json(document, out) => {
                document.write(batch, out).map_err(|error| unfit(error.into()))
            }
            Self::Rows(writer, _) => writer.write(batch).map_err(unfit),
        }
    }

    /// What is encoded, if it is so many bytes.
    fn take(&mut self, least: usize) -> Option<Bytes> {
        match self {
            Self::Json(_, out) => (out.len() >= least).then(|| std::mem::take(out).into()),
            Self::Rows(_, out) => {
                let mut out = out.lock();
                (out.len() >= least).then(|| std::mem::take(&mut *out).into())
            }
        }
    }

    fn finish(self, is_cut: bool) -> Result<Bytes, Failure> {
        match self {
            Self::Json(document, mut out) => {
                document.finish(is_cut, &mut out);
                Ok(out.into())
            }
            Self::Rows(writer, out) => {
                writer.finish().map_err(unfit)?;
                let rest = std::mem::take(&mut *out.lock());
                Ok(rest.into())
            }
        }
    }
}

fn unfit(error: FormatError) -> Failure {
    Failure::new("0A000", format!("the rows cannot be written in this format: {error}"))
}

/// What a writer has written, for whoever takes it.
#[derive(Clone, Debug, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Buffer {
    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A statement whose rows are sent.
pub(super) struct Sending {
    pub running: Running,
    pub meter: QueryMeter,
    pub reader: SpoolReader,
    pub count: Arc<AtomicU64>,
    /// Rows that were told of.
    pub told: u64,
    /// What makes the rows; dropped, it stops.
    pub _task: AbortOnDrop,
}

impl Sending {
    /// The next bytes of the body.
    async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        let Self { running, reader, .. } = self;
        let next = running.unless_stopped(async { reader.next().await.transpose() }).await;
        match &next {
            Ok(Some(chunk)) => {
                let count = self.count.load(Ordering::Relaxed);
                self.running.sent(count - self.told, chunk.len() as u64);
                self.meter.sent(count - self.told, chunk.len() as u64);
                self.told = count;
            }
            Ok(None) => self.meter.done(),
            Err(failure) => self.meter.failed(failure),
        }
        next
    }

    /// The body, once its first rows are there.
    ///
    /// # Errors
    /// Those that come before the first rows.
    pub async fn body(mut self) -> Result<Body, Failure> {
        let Some(first) = self.next().await? else { return Ok(Body::empty()) };
        if self.reader.is_ready() {
            // A body that is whole has a length.
            return Ok(match self.next().await {
                Ok(None) => Body::from(first),
                second => self.rest([Ok(first)].into_iter().chain(second.transpose())),
            });
        }
        Ok(self.rest([Ok(first)].into_iter()))
    }

    fn rest(self, first: impl Iterator<Item = Result<Bytes, Failure>> + Send + 'static) -> Body {
        let rest = stream::unfold(Some(self), |sending| async {
            let mut sending = sending?;
            match sending.next().await {
                Ok(Some(chunk)) => Some((Ok(chunk), Some(sending))),
                Ok(None) => None,
                Err(failure) => Some((Err(failure), None)),
            }
        });
        Body::from_stream(stream::iter(first).chain(rest))
    }
}
