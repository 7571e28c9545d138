//! The order of things: a message, its answer, the next.
//!
//! # Invariants
//! - After an error in Parse, Bind, Describe, Execute or Close everything is skipped to the next Sync.
//! - A client that does not ask hears of a shutdown at once; one that does, after its answer.

use pgwire::messages::response::ErrorResponse;
use tokio::sync::watch;

use crate::failure::Failure;
use crate::pg::connection::{Connection, fields};
use crate::pg::frames::Frontend;
use crate::pg::wire::{Step, Stop};
use crate::statements::Cause;

/// Bytes of answers that wait for a Sync.
const UNSENT_BYTES: usize = 64 << 10;

/// Returns once the server goes down, or nobody is left to say so.
pub(crate) async fn drained(drain: &mut watch::Receiver<bool>) {
    drop(drain.wait_for(|drain| *drain).await);
}

/// Answers a client until one of both goes.
pub(crate) async fn converse(mut connection: Connection, mut drain: watch::Receiver<bool>) {
    let end = connection.answer_all(&mut drain).await;
    if let Err(Stop::Fatal(failure) | Stop::Failed(failure)) = end {
        connection.wire.put(&ErrorResponse::new(fields("FATAL", &failure)));
    }
    let Connection { wire, portals, over, .. } = connection;
    // Statements of it end before the socket does.
    drop((portals, over));
    wire.close().await;
}

impl Connection {
    async fn answer_all(&mut self, drain: &mut watch::Receiver<bool>) -> Step {
        let mut skips = false;
        loop {
            let (kind, message) = tokio::select! {
                biased;
                () = self.cancellable.ended() => {
                    return Err(Stop::Fatal(Cause::Ended.failure()));
                }
                next = self.wire.next() => next?,
                () = drained(drain) => {
                    return Err(Stop::Fatal(Cause::Shutdown.failure()));
                }
            };
            let message = match message {
                Ok(message) => message,
                Err(failure) if kind == b'Q' => {
                    self.fail(&failure);
                    self.ready();
                    self.wire.flush().await?;
                    continue;
                }
                Err(failure) => {
                    if !skips {
                        self.fail(&failure);
                    }
                    skips = true;
                    continue;
                }
            };
            match message {
                Frontend::Terminate => return Ok(()),
                Frontend::Query(text) => {
                    skips = false;
                    Box::pin(self.query(&text)).await?;
                }
                Frontend::Sync => {
                    skips = false;
                    if !self.transaction.is_open() {
                        self.portals.clear();
                    }
                    self.ready();
                    self.flush().await?;
                }
                Frontend::Flush => self.flush().await?,
                // What a client sent before it heard that its COPY failed.
                Frontend::CopyData(_) | Frontend::CopyDone | Frontend::CopyFail(_) => {}
                _ if skips => {}
                message => match Box::pin(self.extended(message)).await {
                    Ok(()) => {}
                    Err(Stop::Failed(failure)) => {
                        self.fail(&failure);
                        skips = true;
                        // Whoever is in the middle of a COPY asks for nothing before it hears of it.
                        self.wire.flush().await?;
                    }
                    Err(stop) => return Err(stop),
                },
            }
            if self.wire.out.len() > UNSENT_BYTES {
                self.wire.flush().await?;
            }
        }
    }

    /// Sends what is written, and notes what is answered with it as over.
    pub async fn flush(&mut self) -> Step {
        self.wire.flush().await?;
        self.over = None;
        Ok(())
    }

    async fn extended(&mut self, message: Frontend) -> Step {
        match message {
            Frontend::Parse(parse) => self.parse(parse).await,
            Frontend::Bind(bind) => Ok(self.bind(bind)?),
            Frontend::Describe(describe) => self.describe(describe).await,
            Frontend::Execute(execute) => self.execute(execute).await,
            Frontend::Close(close) => {
                self.close(close);
                Ok(())
            }
            other => Err(Failure::bug(format!("{other:?} is not of the extended protocol")).into()),
        }
    }
}
