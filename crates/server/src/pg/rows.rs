//! A statement that runs for a connection, and its rows as bytes of the wire.
//!
//! All of it runs on the compute runtime: parsing, planning, rows, their encoding. What crosses to the network's runtime
//! is the answer's head with its first chunk, and for an answer of one chunk nothing else: two hops in all. Literals that
//! were asked for before are answered without one (`probes`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arrow::datatypes::{Schema, SchemaRef};
use bytes::Bytes;
use futures::StreamExt;
use pgwire::messages::data::{FieldDescription, RowDescription};
use tokio::sync::oneshot;
use uplake_engine::{Answer, EngineError, RunOptions, Session, Statement};

use crate::catalog;
use crate::drivers::AbortOnDrop;
use crate::failure::Failure;
use crate::pg::encode::{EncodeError, Options};
use crate::pg::encoders::{CHUNK_BYTES, Encoders, Form};
use crate::pg::types;
use crate::server::Shared;
use crate::spool::{Share, SpoolReader, spool};
use crate::statements::Running;

/// What is asked.
pub(crate) enum Ask {
    /// One statement.
    Text(String),
    /// One with its values.
    Bound(Box<Statement>),
}

/// What a statement came to.
pub(crate) enum Begun {
    Done { command: &'static str, rows: Option<u64> },
    Rows(Box<Rows>),
}

/// Rows on their way.
pub(crate) struct Rows {
    pub command: &'static str,
    pub schema: SchemaRef,
    pub running: Running,
    counts: Arc<Counts>,
    /// What has come and is not handed out.
    left: Bytes,
    /// `None` if all rows are in `left`.
    reader: Option<SpoolReader>,
    is_copy: bool,
    _task: Option<AbortOnDrop>,
}

#[derive(Debug, Default)]
struct Counts {
    rows: AtomicU64,
    cut_nanoseconds: AtomicBool,
}

struct Head {
    command: &'static str,
    answer: HeadAnswer,
}

enum HeadAnswer {
    Done { rows: Option<u64> },
    Rows { schema: SchemaRef, first: Bytes, reader: Option<SpoolReader> },
}

impl From<EncodeError> for Failure {
    fn from(error: EncodeError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

/// What the task of a statement needs.
struct Work {
    session: Arc<Session>,
    options: RunOptions,
    form: Form,
    encoding: Options,
    counts: Arc<Counts>,
    spooled: Arc<AtomicU64>,
    shared: Arc<Shared>,
    share: Share,
}

/// Begins a statement; its first rows, or its end, are there when this returns. Dropping the future stops it.
///
/// # Errors
/// Those of the statement, and that of whoever stopped it.
pub(crate) async fn begin(
    shared: &Arc<Shared>,
    session: Arc<Session>,
    running: Running,
    ask: Ask,
    options: RunOptions,
    form: Form,
    encoding: Options,
) -> Result<Begun, Failure> {
    let counts = Arc::new(Counts::default());
    let known = || known(shared, &session, &ask, &form, encoding, &counts);
    if let Some(known) = running.progress().run(known) {
        let (schema, left) = running.unless_stopped(std::future::ready(known)).await?;
        running.sends();
        return Ok(Begun::Rows(Box::new(Rows {
            command: "SELECT",
            schema,
            running,
            counts,
            left,
            reader: None,
            is_copy: matches!(form, Form::Copy(_)),
            _task: None,
        })));
    }
    let (tell, told) = oneshot::channel();
    let is_copy = matches!(form, Form::Copy(_));
    let shared_too = Arc::clone(shared);
    let work = Work {
        session,
        options,
        form,
        encoding,
        counts: Arc::clone(&counts),
        spooled: running.spooled(),
        shared: shared_too,
        share: shared.spool_share(running.role()),
    };
    // On the heap: a statement's future is large.
    let task = running.drive(Box::pin(work.run(ask, tell)));
    let head = async {
        let lost = |_| Err(Failure::bug("the statement could not be computed: a panic"));
        told.await.unwrap_or_else(lost)
    };
    let Head { command, answer } = running.unless_stopped(head).await?;
    Ok(match answer {
        HeadAnswer::Done { rows } => Begun::Done { command, rows },
        HeadAnswer::Rows { schema, first, reader } => {
            running.sends();
            let rows = Rows {
                command,
                schema,
                running,
                counts,
                left: first,
                reader,
                is_copy,
                _task: Some(task),
            };
            Begun::Rows(Box::new(rows))
        }
    })
}

/// The columns and the bytes of an answer that needs no thread: literals that were asked for before.
fn known(
    shared: &Shared,
    session: &Session,
    ask: &Ask,
    form: &Form,
    encoding: Options,
    counts: &Counts,
) -> Option<Result<(SchemaRef, Bytes), Failure>> {
    let kept;
    let statement = match ask {
        Ask::Bound(statement) => statement.as_ref(),
        Ask::Text(text) => {
            kept = shared.probes.find(text)?;
            kept.as_ref()
        }
    };
    let row = session.known_row(statement)?;
    let schema = named(statement, &row.schema());
    let encode = || {
        let mut out = Vec::new();
        let mut encoders = Encoders::new(&schema, form, encoding, None, &mut out)?;
        encoders.encode_here(&row, 0, &mut out)?;
        counts.encoded(&mut encoders, row.num_rows(), &mut out);
        Ok(out.into())
    };
    Some(encode().map(|bytes| (schema, bytes)))
}

impl Counts {
    /// All rows are encoded, the last of them now.
    fn encoded(&self, encoders: &mut Encoders, rows: usize, out: &mut Vec<u8>) {
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
        encoders.finish(out);
        if encoders.cut_nanoseconds() {
            self.cut_nanoseconds.store(true, Ordering::Relaxed);
        }
    }
}

impl Work {
    async fn run(self, ask: Ask, tell: oneshot::Sender<Result<Head, Failure>>) {
        let mut tell = Some(tell);
        let failed = self.steps(ask, &mut tell).await.err();
        if let (Some(failure), Some(tell)) = (failed, tell) {
            let _ = tell.send(Err(failure));
        }
    }

    async fn steps(
        self,
        ask: Ask,
        tell: &mut Option<oneshot::Sender<Result<Head, Failure>>>,
    ) -> Result<(), Failure> {
        let (statement, text) = match ask {
            Ask::Bound(statement) => (Arc::from(statement), None),
            Ask::Text(text) => (self.shared.texts.parse(&text)?, Some(text)),
        };
        let command = statement.command();
        let mut tell_head = |answer| {
            if let Some(tell) = tell.take() {
                let _ = tell.send(Ok(Head { command, answer }));
            }
        };
        let answer = Box::pin(self.session.run_with(&statement, self.options.clone())).await?;
        let (schema, mut stream) = match answer {
            Answer::Done { rows, .. } => {
                // Others see it at the next look.
                if matches!(command, "CREATE TABLE" | "ALTER TABLE" | "COMMENT" | "DROP TABLE") {
                    let _ = self.shared.catalog.refresh(self.session.lake()).await;
                } else if matches!(command, "CREATE VIEW" | "DROP VIEW") {
                    let all = self.shared.engine.session();
                    let _ = self.shared.catalog.refresh_with_views(&all).await;
                }
                tell_head(HeadAnswer::Done { rows });
                return Ok(());
            }
            Answer::Rows { schema, stream } => (named(&statement, &schema), stream),
        };
        if let Some(text) = &text
            && self.session.known_row(&statement).is_some()
        {
            self.shared.probes.keep(text, statement);
        }
        let mut out = Vec::new();
        let progress = self.options.progress.clone();
        let mut encoders = Encoders::new(&schema, &self.form, self.encoding, progress, &mut out)?;
        let mut writer = None;
        while let Some(batch) = stream.next().await {
            let done = async {
                let batch = batch.map_err(|error| Failure::from(EngineError::from(error)))?;
                let mut at = 0;
                while at < batch.num_rows() {
                    let Some(writer) = &writer else {
                        let end = encoders.encode_here(&batch, at, &mut out)?;
                        self.count(end - at);
                        at = end;
                        if out.len() >= CHUNK_BYTES {
                            let (into, reader) = spool(
                                &self.shared.spools,
                                self.share.clone(),
                                Arc::clone(&self.spooled),
                            );
                            writer = Some(into);
                            tell_head(HeadAnswer::Rows {
                                schema: Arc::clone(&schema),
                                first: std::mem::take(&mut out).into(),
                                reader: Some(reader),
                            });
                        }
                        continue;
                    };
                    at = encoders.take(&batch, at);
                    if let Some(chunk) = encoders.next().await? {
                        self.count(chunk.rows);
                        writer.push(chunk.bytes.into()).await?;
                    }
                    tokio::task::consume_budget().await;
                }
                Ok::<_, Failure>(())
            };
            if let Err(failure) = done.await {
                return match writer {
                    Some(writer) => {
                        writer.finish(Err(failure));
                        Ok(())
                    }
                    None => Err(failure),
                };
            }
        }
        // The slot and the memory are free before the rest goes out.
        drop(stream);
        if let Some(writer) = writer {
            let rest = async {
                while let Some(chunk) = encoders.rest().await? {
                    self.count(chunk.rows);
                    writer.push(chunk.bytes.into()).await?;
                }
                self.counts.encoded(&mut encoders, 0, &mut out);
                if out.is_empty() { Ok(()) } else { writer.push(out.into()).await }
            };
            let end = rest.await;
            writer.finish(end);
        } else {
            self.counts.encoded(&mut encoders, 0, &mut out);
            tell_head(HeadAnswer::Rows { schema, first: out.into(), reader: None });
        }
        Ok(())
    }

    fn count(&self, rows: usize) {
        self.counts.rows.fetch_add(rows as u64, Ordering::Relaxed);
    }
}

impl Rows {
    /// Is everything here?
    pub fn is_whole(&self) -> bool {
        self.reader.is_none()
    }

    /// Up to `most` rows more, and how many they are; `None` at the end.
    ///
    /// # Errors
    /// Those of the statement while its rows came, and that of whoever stopped it.
    pub async fn next(&mut self, most: u64) -> Result<Option<(Bytes, u64)>, Failure> {
        while self.left.is_empty() {
            let Some(reader) = &mut self.reader else { return Ok(None) };
            let next = async { reader.next().await.transpose() };
            match self.running.unless_stopped(next).await? {
                Some(chunk) => self.left = chunk,
                None => self.reader = None,
            }
        }
        if self.is_copy {
            let chunk = std::mem::take(&mut self.left);
            self.running.sent(0, chunk.len() as u64);
            return Ok(Some((chunk, 0)));
        }
        let (bytes, rows) = cut(&self.left, most);
        if bytes == 0 {
            return Ok(None);
        }
        let chunk = self.left.split_to(bytes);
        self.running.sent(rows, bytes as u64);
        Ok(Some((chunk, rows)))
    }

    /// Rows that were computed so far; all of them at the end.
    pub fn computed(&self) -> u64 {
        self.counts.rows.load(Ordering::Relaxed)
    }

    /// Were nanoseconds left out, which Postgres' types do not have?
    pub fn cut_nanoseconds(&self) -> bool {
        self.counts.cut_nanoseconds.load(Ordering::Relaxed)
    }
}

/// The bytes of the first `most` messages of a chunk of whole ones, and how many these are.
fn cut(chunk: &[u8], most: u64) -> (usize, u64) {
    let (mut at, mut rows) = (0, 0);
    while rows < most
        && let Some(length) = chunk.get(at + 1..).and_then(|rest| rest.first_chunk())
    {
        at += 1 + u32::from_be_bytes(*length) as usize;
        rows += 1;
    }
    (at.min(chunk.len()), rows)
}

/// The columns of a statement's answer under the names that Postgres would give them.
pub(crate) fn named(statement: &Statement, schema: &SchemaRef) -> SchemaRef {
    let names = statement.result_names(schema.fields().len());
    let fields = schema.fields().iter().zip(names).map(|(field, name)| match name {
        Some(name) => Arc::new(field.as_ref().clone().with_name(name)),
        None => Arc::clone(field),
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// What the client is told of columns.
pub(crate) fn description(schema: &Schema, formats: &[i16]) -> RowDescription {
    let fields = schema.fields().iter().enumerate().map(|(at, field)| {
        let pg = match field.metadata().contains_key(catalog::ONE_CHARACTER) {
            true => types::ONE_CHARACTER,
            false => types::of(field.data_type()),
        };
        let format = match formats {
            [] => 0,
            [all] => *all,
            each => each.get(at).copied().unwrap_or(0),
        };
        let name = field.name().replace('\0', "");
        FieldDescription::new(name, 0, 0, pg.oid, pg.size, pg.typmod, format)
    });
    RowDescription::new(fields.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_cut_between_rows() {
        let row = |bytes: usize| {
            let mut row = vec![b'D'];
            row.extend(((bytes + 4) as u32).to_be_bytes());
            row.extend(vec![7; bytes]);
            row
        };
        let chunk = [row(3), row(0), row(9)].concat();
        assert_eq!(cut(&chunk, 0), (0, 0));
        assert_eq!(cut(&chunk, 1), (8, 1));
        assert_eq!(cut(&chunk, 2), (13, 2));
        assert_eq!(cut(&chunk, 9), (chunk.len(), 3));
    }
}
