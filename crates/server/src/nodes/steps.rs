//! A statement whose rows change nodes: one step after the other, each on all nodes, then its parts.
//!
//! ```text
//! coordinator     worker A                    worker B
//! shuffle 1  ───► part 1: keeps its rows      part 2: keeps its rows
//! parts      ───► part 1: fetches bucket 1 ◄── bucket 1
//!                         bucket 2        ──► part 2: fetches bucket 2
//! ```
//!
//! # Invariants
//! - Rows are kept for as long as the coordinator holds the call that made them: with it they go, whoever ends.
//! - What a lost node had is lost for all: the statement is begun anew without it, under another number, so that no rows of
//!   the first attempt are among those of the second. It is begun twice at most, and not after rows were handed on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use arrow_flight::Ticket;
use futures::stream::FuturesUnordered;
use futures::{StreamExt, future, stream};
use tokio::sync::mpsc;
use tonic::Request;
use uplake_engine::{Asked, Fragment, PartError, PartTold, Placed, Share, Shuffle, Spent};

use super::attempt::{self, KeptRows, Outcome, Told, gone, left_ms};
use super::channels::Client;
use super::messages::{At, Common, Keeps, Lost, Reads, Shuffles, Size};
use super::statement::{Shared, lost_twice};
use crate::metrics::Part;

/// A statement that is computed in steps.
pub(super) struct Steps {
    pub asked: Asked,
    pub common: Common,
    pub shared: Arc<Shared>,
    pub began: Instant,
}

/// Why an attempt came to nothing.
enum Trouble {
    Failed(PartError),
    /// A node did not take a part.
    NotBegun(Lost),
    /// A node is gone, with what it had.
    Lost(Lost),
    /// A node cannot do it.
    Refused(Lost),
    /// Nobody wants the rows any more.
    Unwanted,
}

/// What was shuffled so far.
#[derive(Default)]
struct Kept {
    /// By shuffle: who has rows, and how much each bucket has of all of them.
    at: BTreeMap<u32, (Vec<At>, Vec<Size>)>,
    calls: Vec<(String, KeptRows)>,
}

/// A node, by its name and address.
type Node = (String, String);

impl Steps {
    /// Tells the rows of each part, or one error.
    pub async fn run(&self, tell: &mpsc::Sender<Told>) {
        let (mut out, mut lost): (Vec<String>, Vec<String>) = Default::default();
        let handed_on = AtomicBool::new(false);
        for number in 0.. {
            let mut nodes = self.shared.usable();
            nodes.retain(|(_, address)| !out.contains(address));
            if nodes.is_empty() {
                return self.here("no node is left", tell).await;
            }
            let trouble = match self.attempt(number, &nodes, tell, &handed_on).await {
                Ok(()) | Err(Trouble::Unwanted) => return,
                Err(trouble) => trouble,
            };
            let is_out = handed_on.load(Ordering::Relaxed);
            let peers = &self.shared.peers;
            match trouble {
                Trouble::Failed(error) => return send(tell, Err(error)).await,
                Trouble::Unwanted => return,
                Trouble::Refused(Lost { address, why }) if !is_out => {
                    peers.refused(&address);
                    return self.here(&why, tell).await;
                }
                Trouble::NotBegun(Lost { address, .. }) if !is_out => {
                    peers.failed(&address);
                    out.push(address);
                }
                Trouble::Refused(Lost { address, why })
                | Trouble::NotBegun(Lost { address, why })
                | Trouble::Lost(Lost { address, why }) => {
                    peers.failed(&address);
                    self.shared.metrics.part(Part::Lost);
                    if is_out {
                        return send(tell, Err(gone(&why))).await;
                    }
                    out.push(address.clone());
                    lost.push(address);
                    if let [first, second] = lost.as_slice() {
                        let error = lost_twice("a step", first, second, &why);
                        return send(tell, Err(error)).await;
                    }
                }
            }
        }
    }

    /// The whole statement is computed by this process.
    async fn here(&self, why: &str, tell: &mpsc::Sender<Told>) {
        self.shared.metrics.part(Part::Here);
        self.asked.here.warn(&format!(
            "the statement was computed by the node that was asked, because no other could: {why}"
        ));
        send(tell, Ok(self.asked.clone().as_one())).await;
        // Whoever waits counts the parts.
        for _ in 1..self.asked.parts.len() {
            send(tell, Ok(stream::empty().boxed())).await;
        }
    }

    async fn attempt(
        &self,
        number: u32,
        nodes: &[Node],
        tell: &mpsc::Sender<Told>,
        handed_on: &AtomicBool,
    ) -> Result<(), Trouble> {
        let mut kept = Kept::default();
        for step in &self.asked.shuffles {
            let began = Instant::now();
            let parts = step.parts.iter().enumerate().map(|(at, part)| {
                let shuffles = Shuffles {
                    keeps: Some(Keeps {
                        shuffle: step.number,
                        keys: step.buckets.keys.clone(),
                        buckets: step.buckets.count,
                    }),
                    ..kept.read_by(number, part_of(part, at), &step.reads)
                };
                self.kept(step, (at, part), shuffles, nodes, began)
            });
            let parts = future::try_join_all(parts).await?;
            let mut sizes = vec![Size::default(); step.buckets.count as usize];
            let mut places = Vec::new();
            for (at, of_part, call) in parts {
                for (all, size) in sizes.iter_mut().zip(of_part) {
                    all.rows += size.rows;
                    all.bytes += size.bytes;
                }
                kept.calls.push((at.address.clone(), call));
                places.push(at);
            }
            kept.at.insert(step.number, (places, sizes));
        }
        let reads: Vec<Shuffles> = (0..)
            .zip(&self.asked.parts)
            .map(|(at, part)| kept.read_by(number, part_of(part, at), &self.asked.reads))
            .collect();
        let parts = self.asked.parts.iter().enumerate().zip(reads);
        let parts =
            parts.map(|(part, shuffles)| self.answer(part, shuffles, nodes, tell, handed_on));
        let all = future::try_join_all(parts);
        // Rows that are gone are heard of before somebody looks for them.
        let watch = watched(kept.calls);
        tokio::select! {
            all = all => {
                for held in all? {
                    let Some((node, rows)) = held else { continue };
                    self.told(node, (rows.rows, rows.bytes), rows.spent);
                    if tell.send(Ok(rows.decoded())).await.is_err() {
                        return Err(Trouble::Unwanted);
                    }
                }
                Ok(())
            }
            trouble = watch => Err(trouble),
        }
    }

    /// Has a part computed whose rows stay where they are.
    async fn kept(
        &self,
        step: &Shuffle,
        part: (usize, &Placed),
        shuffles: Shuffles,
        nodes: &[Node],
        began: Instant,
    ) -> Result<(At, Vec<Size>, KeptRows), Trouble> {
        let ((name, address), client, ticket) =
            self.call(&step.fragment, (part, step.parts.len()), &shuffles, nodes)?;
        let (sizes, spent, call) = match attempt::kept(client, ticket).await {
            Outcome::Kept(sizes, spent, call) if sizes.len() == step.buckets.count as usize => {
                (sizes, spent, call)
            }
            other => return Err(trouble(address, other)),
        };
        let all =
            sizes.iter().fold((0, 0), |(rows, bytes), size| (rows + size.rows, bytes + size.bytes));
        self.asked.here.pay(spent);
        self.told_of(Some(step.number), name.clone(), all, began);
        let host = self.shared.peers.host(address).unwrap_or_default().to_owned();
        Ok((At { address: address.clone(), host, part: part.0 + 1 }, sizes, call))
    }

    /// Has a part computed whose rows are the statement's; `None` once they are handed on.
    async fn answer(
        &self,
        part: (usize, &Placed),
        shuffles: Shuffles,
        nodes: &[Node],
        tell: &mpsc::Sender<Told>,
        handed_on: &AtomicBool,
    ) -> Result<Option<(String, attempt::HeldRows)>, Trouble> {
        let parts = self.asked.parts.len();
        let ((name, address), client, ticket) =
            self.call(&self.asked.fragment, (part, parts), &shuffles, nodes)?;
        let outcome = match self.asked.is_raw {
            true => {
                let (first, mut taken) = mpsc::channel::<Told>(1);
                let done = |rows, bytes, spent| self.told(name.clone(), (rows, bytes), spent);
                let hand_on = async {
                    while let Some(rows) = taken.recv().await {
                        handed_on.store(true, Ordering::Relaxed);
                        send(tell, rows).await;
                    }
                };
                let ask = async {
                    let outcome = attempt::handed_on(client, ticket, &first, done).await;
                    drop(first);
                    outcome
                };
                future::join(ask, hand_on).await.0
            }
            false => attempt::held(client, ticket, self.asked.here.as_ref()).await,
        };
        match outcome {
            Outcome::Held(rows) => Ok(Some((name.clone(), rows))),
            Outcome::HandedOn => Ok(None),
            // Whoever takes the rows has been told.
            Outcome::Lost { handed_on: true, .. } => {
                self.shared.peers.failed(address);
                Ok(None)
            }
            other => Err(trouble(address, other)),
        }
    }

    /// What is asked of the node that a part was given to, or of another one if that is not there.
    fn call<'n>(
        &self,
        fragment: &Fragment,
        ((at, part), parts): ((usize, &Placed), usize),
        shuffles: &Shuffles,
        nodes: &'n [Node],
    ) -> Result<(&'n Node, Client, Request<Ticket>), Trouble> {
        let own = nodes.iter().find(|(name, _)| *name == part.node);
        let node = own.unwrap_or(&nodes[at % nodes.len()]);
        let (peers, common) = (&self.shared.peers, Common { parts, ..self.common.clone() });
        let called = peers.channels.part(
            (&node.1, peers.host(&node.1).unwrap_or_default()),
            (&common, &self.shared.warehouse),
            (at + 1, &part.share, shuffles),
            left_ms(self.asked.deadline),
            &fragment.bytes,
        );
        let (client, request) = called.ok_or_else(|| {
            let why = "a part is too large to be sent, or its node has no address".to_owned();
            Trouble::Refused(Lost { address: node.1.clone(), why })
        })?;
        self.shared.metrics.part(if shuffles.attempt == 0 { Part::Sent } else { Part::Again });
        Ok((node, client, request))
    }

    fn told(&self, node: String, size: (u64, u64), spent: Spent) {
        self.shared.metrics.part_bytes(size.1);
        self.asked.here.pay(spent);
        self.told_of(None, node, size, self.began);
    }

    fn told_of(
        &self,
        shuffle: Option<u32>,
        node: String,
        (rows, bytes): (u64, u64),
        began: Instant,
    ) {
        let (took, others) = (began.elapsed(), 0);
        self.asked.told.add(PartTold { shuffle, node, rows, bytes, took, others });
    }
}

/// The bucket that a part reads.
fn part_of(part: &Placed, at: usize) -> usize {
    match part.share {
        Share::Stretch { part, .. } => part as usize,
        Share::Ids { .. } => at,
    }
}

impl Kept {
    /// What a part reads that has this bucket.
    fn read_by(&self, attempt: u32, bucket: usize, reads: &[u32]) -> Shuffles {
        let of = |shuffle: &u32| {
            let (from, sizes) = self.at.get(shuffle)?;
            let size = sizes.get(bucket).copied().unwrap_or_default();
            Some(Reads { shuffle: *shuffle, size, from: from.clone() })
        };
        Shuffles { reads: reads.iter().filter_map(of).collect(), ..Shuffles::of(attempt) }
    }
}

/// Returns when rows that are kept are gone.
async fn watched(calls: Vec<(String, KeptRows)>) -> Trouble {
    let each = calls.into_iter().map(async |(address, mut call)| {
        let outcome = call.gone().await;
        trouble(&address, outcome)
    });
    let mut each: FuturesUnordered<_> = each.collect();
    match each.next().await {
        Some(trouble) => trouble,
        None => future::pending().await,
    }
}

fn trouble(address: &str, outcome: Outcome) -> Trouble {
    let lost = |why: &str| Lost { address: address.to_owned(), why: why.to_owned() };
    match outcome {
        Outcome::Failed(error) => Trouble::Failed(error),
        Outcome::Refused(why) => Trouble::Refused(lost(&why)),
        Outcome::NotBegun(why) => Trouble::NotBegun(lost(&why)),
        Outcome::Draining => Trouble::NotBegun(lost("it is about to end")),
        Outcome::RowsLost(lost) => Trouble::Lost(lost),
        Outcome::Lost { why, .. } => Trouble::Lost(lost(&why)),
        Outcome::Held(_) | Outcome::HandedOn | Outcome::Kept(..) => {
            Trouble::Lost(lost("it answers what was not asked"))
        }
    }
}

async fn send(tell: &mpsc::Sender<Told>, told: Told) {
    // Whoever waits may be gone.
    let _ = tell.send(told).await;
}
