//! The parts of one statement: each is asked of its node, of another if that is lost, and computed here if nobody is left.
//!
//! # Invariants
//! - Each part's rows are handed on once. A statement ends well only if those of all parts were.
//! - A node that was lost while it computed a part may have been lost because of it: two such nodes are an error, and no
//!   third is asked. One that did not take the part says nothing about it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arrow_flight::{Action, Ticket};
use futures::{StreamExt, TryStreamExt, stream};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tonic::Request;
use uplake_cluster::late;
use uplake_engine::{
    Asked, EngineError, NothingShuffled, PartError, PartRows, PartTold, Placed, Share, Shuffled,
    Spent, SqlState,
};

use super::attempt::{self, HeldRows, Outcome, Told, left_ms};
use super::channels::Client;
use super::messages::{CANCEL, Common, Shuffles};
use super::peers::Peers;
use super::token::{About, What};
use crate::metrics::{Metrics, Part};

/// What a node that is told to stop may take to hear of it.
const CANCEL_TIME: Duration = Duration::from_secs(1);

/// What statements of this node have in common.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub peers: Arc<Peers>,
    /// Whose nodes are asked.
    pub warehouse: String,
    pub metrics: Arc<Metrics>,
    /// The name of this node, if it computes parts.
    pub me: Option<String>,
    /// Second copies of parts that are late, over all statements.
    pub copies: Arc<Copies>,
}

impl Shared {
    /// The nodes that can be asked, as (name, address), in the order of their names.
    pub fn usable(&self) -> Vec<(String, String)> {
        self.peers.usable(&self.warehouse)
    }
}

/// How many copies may be started.
#[derive(Debug)]
pub(super) struct Copies {
    start: Instant,
    left: Mutex<late::Copies>,
}

impl Copies {
    pub fn new() -> Self {
        Self { start: Instant::now(), left: Mutex::default() }
    }

    fn with<T>(&self, work: impl FnOnce(&mut late::Copies, Duration) -> T) -> T {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        work(&mut left, self.start.elapsed())
    }
}

/// A statement whose parts are computed.
pub(super) struct Statement {
    asked: Asked,
    common: Common,
    shared: Arc<Shared>,
    began: Instant,
    parts: Vec<Mutex<PartState>>,
    times: Mutex<late::Parts>,
}

/// A part, while it is computed.
#[derive(Debug, Default)]
struct PartState {
    /// Nodes that were asked for it.
    asked: BTreeSet<String>,
    /// Its rows were handed on, or the statement has failed.
    is_done: bool,
}

/// What is asked of a node.
struct Call {
    name: String,
    address: String,
    client: Client,
    ticket: Request<Ticket>,
}

impl Statement {
    pub fn new(asked: Asked, common: Common, shared: Arc<Shared>) -> Self {
        let count = asked.parts.len();
        shared.copies.with(|copies, now| copies.begin(count, now));
        Self {
            asked,
            common,
            shared,
            began: Instant::now(),
            parts: (0..count).map(|_| Mutex::default()).collect(),
            times: Mutex::new(late::Parts::begin(count, Duration::ZERO)),
        }
    }

    /// The rows of all parts. What asks for them runs on the network's runtime, and ends with the stream.
    pub fn rows(self, network: &Handle) -> PartRows {
        let statement = Arc::new(self);
        let (parts, is_raw) = (statement.parts.len(), statement.asked.is_raw);
        let calls = (statement.common.clone(), Arc::clone(&statement.shared));
        asked_for((parts, is_raw), calls, network, |tell| statement.all(tell))
    }

    /// Has all parts computed, and those that are late a second time: whichever ends first.
    async fn all(self: Arc<Self>, tell: mpsc::Sender<Told>) {
        let mut tasks = JoinSet::new();
        let part = |number| Arc::clone(&self).part(number, tell.clone());
        let mut tries: Vec<Vec<AbortHandle>> =
            (0..self.parts.len()).map(|number| vec![tasks.spawn(part(number))]).collect();
        loop {
            // What has handed rows on is not begun anew.
            let look_at = self.times().look_at().filter(|_| !self.asked.is_raw);
            let late = async {
                match look_at.and_then(|at| self.began.checked_add(at)) {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                ended = tasks.join_next() => match ended {
                    None => return,
                    Some(Ok(Some(number))) => {
                        self.times().done(number, self.began.elapsed());
                        tries[number].drain(..).for_each(|other| other.abort());
                    }
                    // A copy that failed, or one that was stopped.
                    Some(Ok(None) | Err(_)) => {}
                },
                () = late => {
                    let now = self.began.elapsed();
                    let copies = &self.shared.copies;
                    for number in copies.with(|copies, at| self.late(now, copies, at)) {
                        tries[number].push(tasks.spawn(Arc::clone(&self).copy(number, tell.clone())));
                    }
                }
            }
        }
    }

    /// Parts that are late now, as far as copies may be started.
    fn late(&self, now: Duration, copies: &mut late::Copies, at: Duration) -> Vec<usize> {
        self.times().late_at(now, copies, at)
    }

    fn times(&self) -> MutexGuard<'_, late::Parts> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self, number: usize) -> MutexGuard<'_, PartState> {
        self.parts[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has one part computed, by whoever can; its number, once it is handed on.
    async fn part(self: Arc<Self>, number: usize, tell: mpsc::Sender<Told>) -> Option<usize> {
        let Placed { share, node } = &self.asked.parts[number];
        let mut first = Some(node.clone());
        let mut lost: Vec<String> = Vec::new();
        let mut why = None;
        loop {
            let sends = if first.is_some() { Part::Sent } else { Part::Again };
            let Some(call) = self.call(first.take(), number) else {
                if let Some(why) = why {
                    self.asked.here.warn(&format!(
                        "a part of the statement was computed by the node that was asked, because no other \
                         could: {why}"
                    ));
                }
                return self.here(number, share, &tell).await;
            };
            self.shared.metrics.part(sends);
            let (name, address) = (call.name.clone(), call.address.clone());
            match self.tried(number, call, &tell).await {
                Outcome::Held(rows) => return self.held(number, &name, rows, &tell).await,
                Outcome::HandedOn => return Some(number),
                Outcome::Kept(..) | Outcome::RowsLost(_) => {
                    let error = Err(bug("a part answers what it was not asked"));
                    return self.send(number, error, &tell).await;
                }
                Outcome::Failed(error) => return self.send(number, Err(error), &tell).await,
                Outcome::Refused(reason) => {
                    self.shared.peers.refused(&address);
                    self.asked.here.warn(&format!(
                        "a part of the statement was computed by the node that was asked: {reason}"
                    ));
                    return self.here(number, share, &tell).await;
                }
                Outcome::Draining => {
                    self.shared.peers.drains(&address);
                    why = Some(format!("{name} is about to end"));
                }
                Outcome::NotBegun(reason) => {
                    self.shared.peers.failed(&address);
                    why = Some(format!("{name}: {reason}"));
                }
                Outcome::Lost { why: reason, handed_on } => {
                    self.shared.peers.failed(&address);
                    self.shared.metrics.part(Part::Lost);
                    if handed_on {
                        return Some(number);
                    }
                    why = Some(format!("{name}: {reason}"));
                    lost.push(name);
                    if let [first, second] = lost.as_slice() {
                        let part = format!("part {}", number + 1);
                        let error = lost_twice(&part, first, second, &reason);
                        return self.send(number, Err(error), &tell).await;
                    }
                }
            }
            self.times().again(number, self.began.elapsed());
        }
    }

    /// Has a part that is late computed by another node, too; its number, if that was first.
    async fn copy(self: Arc<Self>, number: usize, tell: mpsc::Sender<Told>) -> Option<usize> {
        let call = self.call(None, number)?;
        self.shared.metrics.part(Part::Late);
        let (name, address) = (call.name.clone(), call.address.clone());
        match self.tried(number, call, &tell).await {
            Outcome::Held(rows) => self.held(number, &name, rows, &tell).await,
            Outcome::Lost { .. } | Outcome::NotBegun(_) => {
                self.shared.peers.failed(&address);
                None
            }
            // Whoever had it first goes on.
            _ => None,
        }
    }

    /// Whom to ask next: the node that the part was given to, or any other that has not been asked. None if that is this
    /// node, or if the part is too large to be sent.
    fn call(&self, first: Option<String>, number: usize) -> Option<Call> {
        let (peers, mut state) = (&self.shared.peers, self.state(number));
        let mut usable = self.shared.usable();
        let at = match first.and_then(|first| usable.iter().position(|(name, _)| *name == first)) {
            Some(at) => at,
            None => {
                usable.retain(|(name, _)| !state.asked.contains(name));
                // Parts of a node that was lost are spread over the others.
                number.checked_rem(usable.len())?
            }
        };
        let (name, address) = usable.swap_remove(at);
        if self.shared.me.as_ref() == Some(&name) {
            return None;
        }
        let share = &self.asked.parts[number].share;
        let (client, ticket) = peers.channels.part(
            (&address, peers.host(&address)?),
            (&self.common, &self.shared.warehouse),
            (number + 1, share, &Shuffles::default()),
            left_ms(self.asked.deadline),
            &self.asked.fragment.bytes,
        )?;
        state.asked.insert(name.clone());
        Some(Call { name, address, client, ticket })
    }

    async fn tried(&self, number: usize, call: Call, tell: &mpsc::Sender<Told>) -> Outcome {
        let Call { name, client, ticket, .. } = call;
        match self.asked.is_raw {
            true => {
                let done = |rows, bytes, spent| self.told(number, &name, (rows, bytes), spent);
                attempt::handed_on(client, ticket, tell, &done).await
            }
            false => attempt::held(client, ticket, self.asked.here.as_ref()).await,
        }
    }

    /// A part is done by a node.
    fn told(&self, number: usize, node: &str, (rows, bytes): (u64, u64), spent: Spent) {
        self.shared.metrics.part_bytes(bytes);
        self.asked.here.pay(spent);
        let others = self.state(number).asked.len() as u32 - 1;
        let (node, took) = (node.to_owned(), self.began.elapsed());
        self.asked.told.add(PartTold { shuffle: None, node, rows, bytes, took, others });
    }

    async fn held(
        &self,
        number: usize,
        node: &str,
        rows: HeldRows,
        tell: &mpsc::Sender<Told>,
    ) -> Option<usize> {
        if !self.ends(number) {
            return None;
        }
        self.told(number, node, (rows.rows, rows.bytes), rows.spent);
        let _ = tell.send(Ok(rows.decoded())).await;
        Some(number)
    }

    /// The part is computed by this process, by whoever takes its rows.
    async fn here(&self, number: usize, share: &Share, tell: &mpsc::Sender<Told>) -> Option<usize> {
        self.shared.metrics.part(Part::Here);
        self.send(number, Ok(computed_here(&self.asked, share.clone())), tell).await
    }

    async fn send(&self, number: usize, told: Told, tell: &mpsc::Sender<Told>) -> Option<usize> {
        if !self.ends(number) {
            return None;
        }
        // Whoever waits may be gone.
        let _ = tell.send(told).await;
        Some(number)
    }

    /// The part is over; false if it was before.
    fn ends(&self, number: usize) -> bool {
        !std::mem::replace(&mut self.state(number).is_done, true)
    }
}

/// A part, computed where it is taken.
pub(super) fn computed_here(asked: &Asked, share: Share) -> PartRows {
    let (here, fragment) = (Arc::clone(&asked.here), asked.fragment.bytes.clone());
    let mut counted = Counted { asked: asked.clone(), began: Instant::now(), rows: 0 };
    let rows = async move {
        let nothing: Arc<dyn Shuffled> = Arc::new(NothingShuffled);
        here.run_part(&fragment, &share, &nothing).await.map_err(PartError::from)
    };
    let rows = stream::once(rows).try_flatten();
    rows.inspect_ok(move |batch| counted.add(batch.num_rows())).boxed()
}

/// Tells of a part that was computed here, when it is dropped.
struct Counted {
    asked: Asked,
    began: Instant,
    rows: u64,
}

impl Counted {
    fn add(&mut self, rows: usize) {
        self.rows += rows as u64;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let (node, took) = ("here".to_owned(), self.began.elapsed());
        let (shuffle, rows) = (None, self.rows);
        self.asked.told.add(PartTold { shuffle, node, rows, bytes: 0, took, others: 0 });
    }
}

/// The rows of so many parts, of which a task on the network's runtime tells. It ends with the stream.
pub(super) fn asked_for<F: Future<Output = ()> + Send + 'static>(
    (parts, is_raw): (usize, bool),
    (common, shared): (Common, Arc<Shared>),
    network: &Handle,
    ask: impl FnOnce(mpsc::Sender<Told>) -> F,
) -> PartRows {
    let (tell, told) = mpsc::channel(parts.max(1));
    let is_over = Arc::new(AtomicBool::new(false));
    let task = {
        let (work, is_over) = (ask(tell), Arc::clone(&is_over));
        network.spawn(async move {
            work.await;
            is_over.store(true, Ordering::Relaxed);
        })
    };
    let all_are_here = (!is_raw).then(|| Arc::clone(&is_over));
    let (task, network) = (task.abort_handle(), network.clone());
    let guard = Guard { task, is_over, common, shared, network };
    let rows = stream::unfold(Some((told, parts, all_are_here)), |state| async {
        let (mut told, left, all_are_here) = state?;
        if left == 0 {
            return None;
        }
        match told.recv().await {
            Some(Ok(rows)) => {
                if let Some(is_over) = all_are_here.as_ref().filter(|_| left == 1) {
                    is_over.store(true, Ordering::Relaxed);
                }
                Some((Ok(rows), Some((told, left - 1, all_are_here))))
            }
            Some(Err(error)) => Some((Err(error), None)),
            None => Some((Err(unfinished()), None)),
        }
    });
    let rows = rows.try_flatten_unordered(None);
    rows.inspect(move |_| {
        let _held = &guard;
    })
    .boxed()
}

/// Ends what asks for parts when nobody wants them any more, and tells nodes.
struct Guard {
    task: AbortHandle,
    is_over: Arc<AtomicBool>,
    common: Common,
    shared: Arc<Shared>,
    network: Handle,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.task.abort();
        if self.is_over.load(Ordering::Relaxed) {
            return;
        }
        // The calls are dropped, which stops the parts; this is for a node that has not heard of it.
        let (common, shared) = (self.common.clone(), Arc::clone(&self.shared));
        self.network.spawn(async move {
            let peers = &shared.peers;
            let cancel = shared.usable().into_iter().map(async |(_, address)| {
                let body = common.query.clone().into();
                let action = Action { r#type: CANCEL.to_owned(), body };
                let Common { query, lake, .. } = &common;
                let (what, warehouse) = (What::Cancel, &shared.warehouse);
                let about = About { what, query, part: 0, warehouse, lake, sum: &[] };
                let action = peers.trust().request(action, &about);
                if let Some(mut client) = peers.client(&address) {
                    let _ = tokio::time::timeout(CANCEL_TIME, client.do_action(action)).await;
                }
            });
            futures::future::join_all(cancel).await;
        });
    }
}

pub(super) fn lost_twice(part: &str, first: &str, second: &str, why: &str) -> PartError {
    let message = format!(
        "{part} of the statement was lost twice, with {first} and with {second}; the last: {why}"
    );
    let error = EngineError::execution(SqlState::IoError, message);
    error
        .with_hint(
            "it may take more memory than nodes have: ask for less, or of one node (SET uplake.elsewhere = never, \
             uplake report without --members)",
        )
        .into()
}

fn bug(what: &str) -> PartError {
    EngineError::execution(SqlState::InternalError, what).into()
}

fn unfinished() -> PartError {
    let message = "parts of the statement were not computed: the node is about to end";
    EngineError::execution(SqlState::IoError, message).into()
}
