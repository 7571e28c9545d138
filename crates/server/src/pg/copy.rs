//! COPY to the client, and from it into a table with one commit: at its end, or at that of its transaction.
//!
//! What the client sends becomes rows as it comes, by a task on the compute runtime.
//!
//! # Invariants
//! - All rows of a COPY are written, or none are.
//! - What is held of them is bounded: by [`PIECES`] messages, a batch and the writer's files.
//!
//! # Not here
//! The options (`copy_options`), bytes to values (`copy_lines`, `copy_binary`), values to rows (`copy_rows`), rows to bytes
//! (`encode`).

use std::time::Duration;

use bytes::Bytes;
use pgwire::messages::copy::{CopyDone, CopyInResponse, CopyOutResponse};
use tokio::sync::{mpsc, oneshot};
use uplake_engine::{EngineError, RowWriter};
use uplake_table::ID_PREFIX;

use crate::failure::Failure;
use crate::pg::connection::{Connection, located};
use crate::pg::copy_binary::Binary;
use crate::pg::copy_lines::Lines;
use crate::pg::copy_options::{CopyCommand, What};
use crate::pg::copy_rows::Rows;
use crate::pg::encode::copy::CopyFormat;
use crate::pg::encoders::Form;
use crate::pg::frames::Frontend;
use crate::pg::rows::{Ask, Begun};
use crate::pg::wire::{Step, Stop};
use crate::statements::Running;

/// Messages between the socket and the task.
const PIECES: usize = 4;
/// Bytes of a message that become rows at once: a row of one letter and its end takes many times its bytes.
const PART_BYTES: usize = 64 << 10;

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
        rows.running.sent(rows.computed(), 0);
        self.wire.put(&CopyDone::new());
        Ok(format!("COPY {}", rows.computed()))
    }

    async fn copy_in(&mut self, copy: CopyCommand, text: &str) -> Step<String> {
        let What::Table { name, columns, .. } = &copy.what else {
            return Err(Failure::new("42601", "write COPY table FROM STDIN").into());
        };
        let (table, mut columns) = (name.clone(), columns.clone());
        let session = self.session_of(text)?;
        let writer = Box::pin(async move { Ok(session.row_writer(&table).await?) });
        let writer = self.plan(text, writer).await?;
        self.shared.may_load(&self.client.role, writer.table()).await?;
        if columns.is_empty() {
            let names = writer.schema().fields().iter().map(|field| field.name().clone());
            columns = names.filter(|name| !name.starts_with(ID_PREFIX)).collect();
        }
        let zone = self.settings.zone_name();
        let rows = Rows::new(writer.table(), writer.schema(), &columns, &zone)?;
        let is_binary = copy.format == CopyFormat::Binary;
        let reader = match is_binary {
            true => Reader::Binary(Binary::new(writer.table(), columns.len())),
            false => Reader::Lines(Box::new(Lines::new(&copy, writer.table(), &columns))),
        };
        let running = self.admit(text).await?;
        let _marked = self.cancellable.mark(running.id());
        let (format, count) = (i16::from(is_binary), columns.len());
        self.wire.put(&CopyInResponse::new(format as i8, count as i16, vec![format; count]));
        let timeout = self.settings.timeout();
        let taken = self.take_rows(&running, Work { writer, reader, rows });
        let Some(timeout) = timeout else { return taken.await };
        // Whoever does not send, or does not take the answer, waits here and nowhere in the engine. What is dropped
        // commits nothing.
        tokio::time::timeout(timeout, taken).await.unwrap_or_else(|_| {
            let queued = Duration::ZERO;
            let late = EngineError::TimedOut { timeout, queued, ran: timeout, place: None };
            let failure = running.ended(Failure::from(late));
            running.failed(&failure);
            Err(failure.into())
        })
    }

    /// Does the work with what the client sends: the tag.
    async fn take_rows(&mut self, running: &Running, work: Work) -> Step<String> {
        let (pieces, come) = mpsc::channel(PIECES);
        let (tell, mut told) = oneshot::channel();
        let rows = Box::pin(work.run(come));
        let _task = running.drive(async move {
            let _ = tell.send(rows.await);
        });
        let wire = &mut self.wire;
        let flush = async { Ok::<Step, Failure>(wire.flush().await) };
        running.unless_stopped(flush).await??;
        loop {
            let wire = &mut self.wire;
            let next = async { Ok::<_, Failure>(wire.next().await) };
            let (_, message) = running.unless_stopped(next).await??;
            let (piece, is_last) = match message? {
                Frontend::CopyData(data) => {
                    let (shared, role) = (&self.shared, &self.client.role);
                    let paced = async {
                        shared.pace_load(role, data.len()).await;
                        Ok(())
                    };
                    self.wire.unless_gone(running.unless_stopped(paced)).await?;
                    (Piece::Data(data), false)
                }
                Frontend::CopyDone => (Piece::Done, true),
                Frontend::CopyFail(why) => {
                    let message = format!("COPY from stdin failed: {why}");
                    return Err(Failure::new("57014", message).into());
                }
                Frontend::Sync | Frontend::Flush => continue,
                Frontend::Terminate => return Err(Stop::Gone),
                other => {
                    let message = format!("unexpected message during COPY from stdin: {other:?}");
                    let message: String = message.chars().take(100).collect();
                    return Err(Stop::Fatal(Failure::new("08P01", message)));
                }
            };
            let sent = async { Ok::<_, Failure>(pieces.send(piece).await.is_ok()) };
            let is_taken = self.wire.unless_gone(running.unless_stopped(sent)).await?;
            // One that takes no more has failed, and says why.
            if is_last || !is_taken {
                break;
            }
        }
        drop(pieces);
        let lost = |_| Err(Failure::bug("the rows could not be loaded: a panic"));
        let loaded = async { (&mut told).await.unwrap_or_else(lost) };
        let rows = self.wire.unless_gone(running.unless_stopped(loaded)).await?;
        Ok(format!("COPY {rows}"))
    }
}

/// What the client sends, as it is written.
enum Reader {
    Lines(Box<Lines>),
    Binary(Binary),
}

impl Reader {
    fn take(&mut self, data: &[u8], is_last: bool, rows: &mut Rows) -> Result<(), Failure> {
        match self {
            Self::Lines(lines) => lines.take(data, is_last, rows),
            Self::Binary(binary) => binary.take(data, is_last, rows),
        }
    }
}

/// What the task of a COPY needs.
struct Work {
    writer: RowWriter,
    reader: Reader,
    rows: Rows,
}

impl Work {
    async fn run(self, mut come: mpsc::Receiver<Piece>) -> Result<u64, Failure> {
        let Self { mut writer, mut reader, mut rows } = self;
        loop {
            match come.recv().await {
                Some(Piece::Data(data)) => {
                    for part in data.chunks(PART_BYTES) {
                        reader.take(part, false, &mut rows)?;
                        if rows.are_many() {
                            writer.write(&rows.batch()?).await?;
                        }
                    }
                }
                Some(Piece::Done) => break,
                // The client is gone, or has given up.
                None => return Err(Failure::new("57014", "the rows did not come to their end")),
            }
        }
        reader.take(&[], true, &mut rows)?;
        if !rows.are_none() {
            writer.write(&rows.batch()?).await?;
        }
        Ok(writer.finish().await?)
    }
}
