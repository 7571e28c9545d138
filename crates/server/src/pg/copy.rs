//! COPY to the client, and from it into a table with one commit at its end.
//!
//! What the client sends goes to a file without a name in the spool's folder, as CSV, which is then loaded.
//!
//! # Not here
//! The options (`copy_options`), text and binary of values (`encode`).

use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use pgwire::messages::copy::{CopyDone, CopyInResponse, CopyOutResponse};
use tempfile::NamedTempFile;
use tokio::sync::{mpsc, oneshot};
use uplake_engine::{EngineError, Session};
use uplake_table::{
    AsOf, InputFile, Lake, LoadOptions, OnConflict, OnError, Progress, TextOptions, load,
};

use crate::failure::Failure;
use crate::pg::connection::{Connection, located};
use crate::pg::copy_lines::Lines;
use crate::pg::copy_options::{CopyCommand, What};
use crate::pg::encode::copy::CopyFormat;
use crate::pg::frames::Frontend;
use crate::pg::rows::{Ask, Begun, Form};
use crate::pg::transaction::WRITES_AT_ONCE;
use crate::pg::wire::{Step, Stop};
use crate::server::Shared;

/// Pieces between the socket and the file.
const PIECES: usize = 4;

/// What the client sends.
enum Piece {
    Data(Bytes),
    Done,
}

impl Connection {
    /// Runs COPY and returns its tag.
    ///
    /// # Errors
    /// Its own, with places in `text`.
    pub async fn copy(&mut self, copy: CopyCommand, text: &str) -> Step<String> {
        if copy.from { self.copy_in(copy, text).await } else { self.copy_out(copy, text).await }
    }

    async fn copy_out(&mut self, copy: CopyCommand, text: &str) -> Step<String> {
        let format = i16::from(copy.format == CopyFormat::Binary);
        let (query, at) = copy.query();
        let ask = Ask::Text(query.clone());
        let begun = self.begin(&query, ask, Form::Copy(copy)).await;
        let begun = begun.map_err(|stop| stop.map(|failure| located(failure, text, at)))?;
        let Begun::Rows(mut rows) = begun else {
            return Err(
                Failure::new("0A000", "COPY takes a query: it was run, and had no rows").into()
            );
        };
        let columns = rows.schema.fields().len();
        let formats = vec![format; columns];
        self.wire.put(&CopyOutResponse::new(format as i8, columns as i16, formats));
        self.send_all(&mut rows).await?;
        self.wire.put(&CopyDone::new());
        Ok(format!("COPY {}", rows.computed()))
    }

    async fn copy_in(&mut self, copy: CopyCommand, text: &str) -> Step<String> {
        let What::Table { name, columns, .. } = &copy.what else {
            return Err(Failure::new("42601", "write COPY table FROM STDIN").into());
        };
        let (table, columns) = (name.clone(), columns.clone());
        let lake = self.session.lake().clone();
        let (table, columns) = self.plan(text, into(lake.clone(), table, columns)).await?;
        self.shared.may_load(&self.client.role, &table).await?;
        let lines = Lines::new(&copy, &columns)?;
        let running = self.admit(text).await?;
        let _marked = self.cancellable.mark(running.id());
        let (pieces, come) = mpsc::channel(PIECES);
        let (tell, mut told) = oneshot::channel();
        let folder = self.shared.options.spool_folder.clone();
        let delimiter = copy.delimiter.filter(|_| copy.format == CopyFormat::Csv);
        let options = LoadOptions {
            schema: None,
            partition_by: Vec::new(),
            cluster_by: Vec::new(),
            indexes: Vec::new(),
            id_domains: Vec::new(),
            primary_key: Vec::new(),
            on_conflict: OnConflict::Replace,
            allow_new_columns: false,
            label: None,
            on_error: OnError::Abort,
            text: TextOptions {
                delimiter: Some(delimiter.unwrap_or(b',')),
                header: true,
                null: copy
                    .null
                    .clone()
                    .filter(|null| copy.format == CopyFormat::Csv && !null.is_empty()),
            },
            // As much as there is when the rows are here.
            memory_bytes: 0,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            now_millis: (self.shared.options.clock)(),
        };
        let (shared, session) = (Arc::clone(&self.shared), Arc::clone(&self.session));
        let work = Work { shared, session, table, options, lines, folder };
        let _task = running.drive(Box::pin(async move {
            let _ = tell.send(work.run(come).await);
        }));
        let count = columns.len();
        self.wire.put(&CopyInResponse::new(0, count as i16, vec![0; count]));
        self.wire.flush().await?;
        loop {
            let wire = &mut self.wire;
            let next = async { Ok::<_, Failure>(wire.next().await) };
            let (_, message) = running.unless_stopped(next).await??;
            match message? {
                Frontend::CopyData(data) => {
                    let (shared, role) = (&self.shared, &self.client.role);
                    let paced = async {
                        shared.pace_load(role, data.len()).await;
                        Ok(())
                    };
                    self.wire.unless_gone(running.unless_stopped(paced)).await?;
                    let sent = running.unless_stopped(async {
                        Ok::<_, Failure>(pieces.send(Piece::Data(data)).await.is_ok())
                    });
                    if !sent.await? {
                        // It failed, and says why.
                        break;
                    }
                }
                Frontend::CopyDone => {
                    let _ = pieces.send(Piece::Done).await;
                    break;
                }
                Frontend::CopyFail(why) => {
                    let message = format!("COPY from stdin failed: {why}");
                    return Err(Failure::new("57014", message).into());
                }
                Frontend::Sync | Frontend::Flush => {}
                Frontend::Terminate => return Err(Stop::Gone),
                other => {
                    let message = format!("unexpected message during COPY from stdin: {other:?}");
                    let message: String = message.chars().take(100).collect();
                    return Err(Stop::Fatal(Failure::new("08P01", message)));
                }
            }
        }
        drop(pieces);
        let lost = |_| Err(Failure::bug("the rows could not be loaded: a panic"));
        let loaded = async { (&mut told).await.unwrap_or_else(lost) };
        let rows = self.wire.unless_gone(running.unless_stopped(loaded)).await?;
        if self.transaction.is_open() {
            self.transaction.write();
            self.notice("NOTICE", "01000", WRITES_AT_ONCE);
            self.reading = None;
        }
        Ok(format!("COPY {rows}"))
    }
}

/// The table's own name, and the columns that are written to.
async fn into(
    lake: Lake,
    name: String,
    mut columns: Vec<String>,
) -> Result<(String, Vec<String>), Failure> {
    let missing = || {
        Failure::new("42P01", format!("there is no table `{name}`")).with_hint("CREATE TABLE first")
    };
    let mut table = name.clone();
    if !lake.has_table(&table).await.map_err(EngineError::from)? {
        let known = lake.table_names().await.map_err(EngineError::from)?;
        let same = known.into_iter().find(|known| known.to_lowercase() == name.to_lowercase());
        table = same.ok_or_else(missing)?;
    }
    let snapshot = lake.snapshot(&table, &AsOf::Latest).await.map_err(EngineError::from)?;
    if columns.is_empty() {
        let fields = snapshot.schema().fields().iter();
        let own = fields.filter(|field| !field.name().starts_with(uplake_table::ID_PREFIX));
        columns = own.map(|field| field.name().clone()).collect();
    }
    Ok((table, columns))
}

/// What the task of a COPY needs.
struct Work {
    shared: Arc<Shared>,
    session: Arc<Session>,
    table: String,
    options: LoadOptions,
    lines: Lines,
    folder: PathBuf,
}

impl Work {
    async fn run(mut self, mut come: mpsc::Receiver<Piece>) -> Result<u64, Failure> {
        let full = |error: std::io::Error| {
            Failure::new("53100", format!("the rows could not be kept: {error}"))
        };
        let file = NamedTempFile::new_in(&self.folder).map_err(full)?;
        let mut out = BufWriter::new(file);
        let mut csv = Vec::new();
        self.lines.begin(&mut csv);
        loop {
            match come.recv().await {
                Some(Piece::Data(data)) => self.lines.take(&data, &mut csv)?,
                Some(Piece::Done) => break,
                // The client is gone, or has given up.
                None => return Err(Failure::new("57014", "the rows did not come to their end")),
            }
            out.write_all(&csv).map_err(full)?;
            csv.clear();
        }
        self.lines.end(&mut csv)?;
        out.write_all(&csv).map_err(full)?;
        let file = out.into_inner().map_err(|error| full(error.into_error()))?;
        if self.lines.are_none() {
            return Ok(0);
        }
        let path = Some(file.path().to_owned());
        let files = [InputFile { name: "COPY from stdin".into(), path }];
        let progress = Arc::new(Progress::default());
        let room = self.shared.load_room(&self.session).await?;
        self.options.memory_bytes = room.bytes();
        let lake = self.session.lake();
        let loaded = load(lake, &self.table, &files, &self.options, &progress).await;
        Ok(loaded.map_err(EngineError::from)?.rows)
    }
}
