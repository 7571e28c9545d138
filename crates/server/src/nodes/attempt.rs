//! One try to have a part computed by one node.
//!
//! # Invariants
//! - Where rows are held, nothing of a try is seen before it has ended well.

use std::time::{Duration, Instant};

use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use arrow_flight::{FlightData, Ticket};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use tokio::sync::mpsc;
use tonic::{Request, Streaming};
use uplake_engine::{EngineError, HeldMemory, PartError, PartRows, PartRunner, Spent, SqlState};

use super::channels::Client;
use super::messages::{End, Lost, Size};
use super::wire::words;

/// Messages of a part whose rows are handed on as they come, which wait for whoever takes them.
const WAITING: usize = 8;
/// Memory for rows that are held is taken in pieces of at least this.
const HOLD_BYTES: usize = 1 << 20;

/// What became of a try.
#[derive(Debug)]
pub(super) enum Outcome {
    /// These are the rows.
    Held(HeldRows),
    /// They were handed on, or nobody wants them any more.
    HandedOn,
    Failed(PartError),
    /// The node cannot do it.
    Refused(String),
    Draining,
    /// Its rows are kept, so many in each bucket, until the call is dropped.
    Kept(Vec<Size>, Spent, KeptRows),
    /// It reads rows of another node, which is lost.
    RowsLost(Lost),
    /// The node did not take the part.
    NotBegun(String),
    /// The node took the part, and was lost. Were rows of it handed on?
    Lost {
        why: String,
        handed_on: bool,
    },
}

/// A call whose part keeps rows for others.
#[derive(Debug)]
pub(super) struct KeptRows(Streaming<FlightData>);

impl KeptRows {
    /// What became of them: there is an end only if they are gone.
    pub async fn gone(&mut self) -> Outcome {
        match next(&mut self.0).await {
            Next::Rows(_) => Outcome::Lost { why: unexpected(), handed_on: false },
            Next::End(end) => outcome_of(end),
            Next::Lost(why) => Outcome::Lost { why, handed_on: false },
        }
    }
}

/// Asks a node for a part whose rows it is to keep.
pub(super) async fn kept(client: Client, ticket: Request<Ticket>) -> Outcome {
    let mut answer = match begun(client, ticket).await {
        Ok(answer) => answer,
        Err(outcome) => return outcome,
    };
    match next(&mut answer).await {
        Next::End(End::Kept(sizes, spent)) => Outcome::Kept(sizes, spent, KeptRows(answer)),
        Next::End(End::Done { .. }) | Next::Rows(_) => {
            Outcome::Lost { why: unexpected(), handed_on: false }
        }
        Next::End(end) => outcome_of(end),
        Next::Lost(why) => Outcome::Lost { why, handed_on: false },
    }
}

fn unexpected() -> String {
    "it answers what was not asked".to_owned()
}

/// The rows of a part that has ended.
#[derive(Debug, Default)]
pub(super) struct HeldRows {
    messages: Vec<FlightData>,
    memory: Vec<HeldMemory>,
    pub rows: u64,
    pub bytes: u64,
    pub spent: Spent,
}

impl HeldRows {
    /// Decoded by whoever takes them.
    pub fn decoded(self) -> PartRows {
        let Self { messages, memory, .. } = self;
        let rows = decoded(stream::iter(messages.into_iter().map(Ok)));
        rows.inspect(move |_| {
            let _held = &memory;
        })
        .boxed()
    }
}

/// What whoever waits for rows of parts is told: those of one part, or why there are none.
pub(super) type Told = Result<PartRows, PartError>;

/// What comes of a part whose rows are handed on.
enum Taken {
    Rows(FlightData),
    Done,
    Failed(PartError),
}

/// Asks a node for a part; its rows are held.
pub(super) async fn held(
    client: Client,
    ticket: Request<Ticket>,
    memory: &dyn PartRunner,
) -> Outcome {
    let mut answer = match begun(client, ticket).await {
        Ok(answer) => answer,
        Err(outcome) => return outcome,
    };
    let mut rows = HeldRows::default();
    let mut room = 0;
    loop {
        match next(&mut answer).await {
            Next::Rows(data) => {
                let bytes = data.data_header.len() + data.data_body.len();
                rows.bytes += bytes as u64;
                if bytes > room {
                    let more = bytes.max(HOLD_BYTES);
                    match memory.hold(more) {
                        Ok(held) => rows.memory.push(held),
                        Err(error) => return Outcome::Failed(error.into()),
                    }
                    room += more;
                }
                room -= bytes;
                rows.messages.push(data);
            }
            Next::End(End::Done { rows: count, spent }) => {
                (rows.rows, rows.spent) = (count, spent);
                return Outcome::Held(rows);
            }
            Next::End(end) => return outcome_of(end),
            Next::Lost(why) => return Outcome::Lost { why, handed_on: false },
        }
    }
}

/// Asks a node for a part; its rows are handed on as they come, from the first of them on. `done` hears of rows and bytes
/// before whoever takes them knows that they are all.
pub(super) async fn handed_on(
    client: Client,
    ticket: Request<Ticket>,
    tell: &mpsc::Sender<Told>,
    done: impl Fn(u64, u64, Spent),
) -> Outcome {
    let mut answer = match begun(client, ticket).await {
        Ok(answer) => answer,
        Err(outcome) => return outcome,
    };
    let mut first = next(&mut answer).await;
    match first {
        Next::Rows(_) | Next::End(End::Done { .. }) => {}
        Next::End(end) => return outcome_of(end),
        Next::Lost(why) => return Outcome::Lost { why, handed_on: false },
    }
    let (sender, receiver) = mpsc::channel(WAITING);
    if tell.send(Ok(decoded(received(receiver)))).await.is_err() {
        // Nobody wants them any more.
        return Outcome::HandedOn;
    }
    let mut bytes = 0;
    loop {
        let (taken, outcome) = match first {
            Next::Rows(data) => {
                bytes += (data.data_header.len() + data.data_body.len()) as u64;
                (Taken::Rows(data), None)
            }
            Next::End(End::Done { rows, spent }) => {
                done(rows, bytes, spent);
                (Taken::Done, Some(Outcome::HandedOn))
            }
            Next::End(End::Failed(error)) => (Taken::Failed(error), Some(Outcome::HandedOn)),
            // Rows of it are out: nobody else can begin anew.
            Next::End(End::Refused(why)) => lost(why),
            Next::End(End::Draining) => lost("it ended before the part did".to_owned()),
            Next::End(End::Kept(..)) => lost(unexpected()),
            Next::End(End::RowsLost(Lost { why, .. })) => lost(why),
            Next::Lost(why) => lost(why),
        };
        let is_wanted = sender.send(taken).await.is_ok();
        match outcome {
            Some(outcome) => return outcome,
            None if is_wanted => {}
            None => return Outcome::HandedOn,
        }
        first = next(&mut answer).await;
    }
}

fn lost(why: String) -> (Taken, Option<Outcome>) {
    (Taken::Failed(gone(&why)), Some(Outcome::Lost { why, handed_on: true }))
}

/// A node was lost whose rows were handed on already.
pub(super) fn gone(why: &str) -> PartError {
    let message = format!("a node that computed a part of the statement was lost: {why}");
    let error = EngineError::execution(SqlState::IoError, message);
    error.with_hint("run the statement again").into()
}

/// Sends the ticket; the answer, once the node says that it has taken the part.
async fn begun(
    mut client: Client,
    ticket: Request<Ticket>,
) -> Result<Streaming<FlightData>, Outcome> {
    let answer = client.do_get(ticket).await;
    answer.map(tonic::Response::into_inner).map_err(|status| Outcome::NotBegun(words(&status)))
}

/// What comes next of an answer.
enum Next {
    Rows(FlightData),
    End(End),
    Lost(String),
}

async fn next(answer: &mut Streaming<FlightData>) -> Next {
    match answer.next().await {
        Some(Ok(data)) if !data.app_metadata.is_empty() => {
            match End::from_bytes(&data.app_metadata) {
                Ok(end) => Next::End(end),
                Err(why) => Next::Lost(why),
            }
        }
        Some(Ok(data)) => Next::Rows(data),
        Some(Err(status)) => Next::Lost(words(&status)),
        None => Next::Lost("its answer has no end".to_owned()),
    }
}

fn outcome_of(end: End) -> Outcome {
    match end {
        End::Done { .. } => Outcome::HandedOn,
        End::Failed(error) => Outcome::Failed(error),
        End::Refused(why) => Outcome::Refused(why),
        End::Draining => Outcome::Draining,
        End::Kept(..) => Outcome::Lost { why: unexpected(), handed_on: false },
        End::RowsLost(lost) => Outcome::RowsLost(lost),
    }
}

fn decoded(
    messages: impl Stream<Item = Result<FlightData, FlightError>> + Send + 'static,
) -> PartRows {
    let batches = FlightRecordBatchStream::new_from_flight_data(messages);
    batches
        .map_err(|error| match error {
            FlightError::ExternalError(inner) => match inner.downcast::<PartError>() {
                Ok(error) => *error,
                Err(other) => unread(&other.to_string()),
            },
            other => unread(&other.to_string()),
        })
        .boxed()
}

fn unread(why: &str) -> PartError {
    let message = format!("rows of a part cannot be read: {why}");
    EngineError::execution(SqlState::InternalError, message).into()
}

/// Messages as they come. Whoever sends them may be stopped, and says nothing then: what has no end is not whole.
fn received(
    receiver: mpsc::Receiver<Taken>,
) -> impl Stream<Item = Result<FlightData, FlightError>> + Send + 'static {
    stream::unfold(Some(receiver), |receiver| async move {
        let mut receiver = receiver?;
        let failed = |error: PartError| Err(FlightError::ExternalError(Box::new(error)));
        match receiver.recv().await {
            Some(Taken::Rows(data)) => Some((Ok(data), Some(receiver))),
            Some(Taken::Done) => None,
            Some(Taken::Failed(error)) => Some((failed(error), None)),
            None => Some((failed(gone("nobody asks it any more")), None)),
        }
    })
}

/// What is left of a statement's time, as it travels.
pub(super) fn left_ms(deadline: Option<Instant>) -> Option<u64> {
    let left = deadline?.saturating_duration_since(Instant::now());
    Some(u64::try_from(left.as_millis()).unwrap_or(u64::MAX).min(YEAR_MS))
}

/// Longer than any statement.
const YEAR_MS: u64 = Duration::from_secs(365 * 24 * 3600).as_millis() as u64;
