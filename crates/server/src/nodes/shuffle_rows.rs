//! What a part reads of other nodes' rows: one bucket of a step, from each node that has some.

use std::sync::{Arc, Mutex, PoisonError};

use futures::{StreamExt, TryStreamExt, stream};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use uplake_engine::{EngineError, NothingShuffled, PartError, PartRows, Share, Shuffled, SqlState};

use super::attempt::{Outcome, handed_on};
use super::channels::Channels;
use super::messages::{At, Common, Fetch, Lost, Reads, Shuffles};

/// Where a part's rows are.
#[derive(Clone)]
pub(super) struct OtherNodes {
    pub shuffles: Shuffles,
    /// The part's own statement and deadline.
    pub common: Common,
    pub left_ms: Option<u64>,
    pub warehouse: String,
    pub bucket: u32,
    pub channels: Arc<Channels>,
    pub network: Handle,
    /// The first node that could not be asked.
    pub lost: Arc<Mutex<Option<Lost>>>,
}

impl std::fmt::Debug for OtherNodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OtherNodes({:?})", self.shuffles.reads)
    }
}

impl OtherNodes {
    pub fn lost(&self) -> Option<Lost> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Hands on what one node has.
    async fn fetch(self, from: At, shuffle: u32, tell: mpsc::Sender<Result<PartRows, PartError>>) {
        let why = match self.asked(&from, shuffle, &tell).await {
            Ok(Outcome::Held(_) | Outcome::HandedOn | Outcome::Kept(..)) => return,
            Ok(Outcome::Failed(error)) => {
                let _ = tell.send(Err(error)).await;
                return;
            }
            Ok(Outcome::Draining) => "it is about to end".to_owned(),
            Ok(Outcome::Lost { why, .. } | Outcome::RowsLost(Lost { why, .. })) => why,
            Ok(Outcome::Refused(why) | Outcome::NotBegun(why)) | Err(why) => why,
        };
        let error = unread(&from.address, &why);
        let lost = Lost { address: from.address, why };
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(lost);
        // Whoever waits may be gone.
        let _ = tell.send(Err(error)).await;
    }

    async fn asked(
        &self,
        from: &At,
        shuffle: u32,
        tell: &mpsc::Sender<Result<PartRows, PartError>>,
    ) -> Result<Outcome, String> {
        let fetch = Fetch { shuffle, bucket: self.bucket };
        let shuffles = Shuffles { fetch: Some(fetch), ..Shuffles::of(self.shuffles.attempt) };
        let share = Share::Stretch { part: 0, parts: 1 };
        let called = self.channels.part(
            (&from.address, &from.host),
            (&self.common, &self.warehouse),
            (from.part, &share, &shuffles),
            self.left_ms,
            &[],
        );
        let (client, ticket) = called.ok_or("this is no address of a node")?;
        Ok(handed_on(client, ticket, tell, |_, _, _| {}).await)
    }
}

impl Shuffled for OtherNodes {
    fn rows(&self, shuffle: u32) -> PartRows {
        let Some(Reads { from, .. }) = self.shuffles.reads(shuffle) else {
            return NothingShuffled.rows(shuffle);
        };
        let (tell, told) = mpsc::channel(from.len().max(1));
        let mut tasks = JoinSet::new();
        for from in from.clone() {
            tasks.spawn_on(self.clone().fetch(from, shuffle, tell.clone()), &self.network);
        }
        // All of them are to say that they are done: one that was stopped has not.
        let rows = stream::unfold((told, from.len()), |(mut told, left)| async move {
            if left == 0 {
                return None;
            }
            match told.recv().await {
                Some(Ok(rows)) => Some((Ok(rows), (told, left - 1))),
                Some(Err(error)) => Some((Err(error), (told, 0))),
                None => Some((Err(unread("a node", "nobody asks it any more")), (told, 0))),
            }
        });
        let rows = rows.try_flatten_unordered(None);
        rows.inspect(move |_| {
            let _held = &tasks;
        })
        .boxed()
    }

    fn size(&self, shuffle: u32) -> Option<(usize, usize)> {
        let size = self.shuffles.reads(shuffle)?.size;
        Some((usize::try_from(size.rows).ok()?, usize::try_from(size.bytes).ok()?))
    }
}

fn unread(address: &str, why: &str) -> PartError {
    let message = format!("rows that {address} has for a part of the statement are lost: {why}");
    let error = EngineError::execution(SqlState::IoError, message);
    error.with_hint("run the statement again").into()
}
