//! Writes that must happen once or not at all: Delta commits, runs of id domains.
//!
//! `If-None-Match` makes one of many writers win. But when the winner's answer is lost, its second
//! attempt is refused by its own first one. So each write carries a token in the object's metadata,
//! and after a lost answer the object is read back: our token means we won, another's that we lost,
//! and no object that the write may be made again, with the same token.
//!
//! # Invariants
//! - `Ok` means the object holds, or held, our bytes and was written by this call. `AlreadyExists`
//!   and `Precondition` mean that this call wrote nothing.
//! - When neither can be known the error says so ([`StoreError::OutcomeUnknown`]).

use std::sync::Arc;
use std::time::Duration;

use object_store::path::Path;
use object_store::{
    Attribute, Error, GetOptions, GetResult, ObjectStore, ObjectStoreExt, PutMode, PutOptions,
    PutPayload, PutResult, Result,
};
use uuid::Uuid;

use crate::clock::Clock;
use crate::counters::count;
use crate::dice::Dice;
use crate::error::{StoreError, unreached};

/// Letters only: Azure takes nothing else for names of metadata.
const TOKEN: &str = "uplakewrite";
/// A commit is given up after this long.
const TIMEOUT: Duration = Duration::from_secs(60);
const BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);

/// Conditional writes of one store.
#[derive(Debug)]
pub(crate) struct Conditional {
    inner: Arc<dyn ObjectStore>,
    clock: Arc<dyn Clock>,
    dice: Dice,
}

/// Whose the object is that was read back.
enum Found {
    Ours(PutResult),
    /// Nothing, or the version we wanted to replace.
    Before,
    Theirs,
}

impl Conditional {
    pub(crate) fn new(inner: Arc<dyn ObjectStore>, clock: Arc<dyn Clock>, dice: Dice) -> Self {
        Self { inner, clock, dice }
    }

    /// Writes; unconditional writes are passed on.
    pub(crate) async fn put(
        &self,
        location: &Path,
        payload: PutPayload,
        mut opts: PutOptions,
    ) -> Result<PutResult> {
        if opts.mode == PutMode::Overwrite {
            return self.inner.put_opts(location, payload, opts).await;
        }
        let token = Uuid::new_v4().simple().to_string();
        opts.attributes.insert(attribute(), token.clone().into());
        let begun = self.clock.now();
        let mut is_lost = false;
        let mut times = 0;
        loop {
            let error = match self.inner.put_opts(location, payload.clone(), opts.clone()).await {
                Ok(result) => return Ok(result),
                Err(error) => error,
            };
            // After a lost answer no error says that the first attempt had no effect.
            if !is_lost && (is_final(&error) || is_refusal(&error)) {
                return Err(error);
            }
            // A conflict is an answer: nothing was written. Any other error may hide a success.
            is_lost |= !matches!(error, Error::AlreadyExists { .. } | Error::Precondition { .. });
            loop {
                count(|c| &c.read_backs, 1);
                let path = || location.to_string();
                match self.read_back(location, &payload, &opts.mode, &token).await {
                    Ok(Found::Ours(result)) => return Ok(result),
                    Ok(Found::Before) => break,
                    Ok(Found::Theirs) => {
                        let source = Box::new(error);
                        return Err(match opts.mode {
                            PutMode::Update(_) if !is_lost => {
                                Error::Precondition { path: path(), source }
                            }
                            // Ours may have been written and replaced since.
                            PutMode::Update(_) => {
                                StoreError::OutcomeUnknown { path: path(), source: *source }.into()
                            }
                            _ => Error::AlreadyExists { path: path(), source },
                        });
                    }
                    Err(unread) if self.is_over(begun) => {
                        return Err(
                            StoreError::OutcomeUnknown { path: path(), source: unread }.into()
                        );
                    }
                    Err(_) => self.pause(&mut times).await,
                }
            }
            if self.is_over(begun) {
                let path = location.to_string();
                // A request that is still on its way may yet be carried out.
                return Err(StoreError::OutcomeUnknown { path, source: error }.into());
            }
            self.pause(&mut times).await;
        }
    }

    fn is_over(&self, begun: Duration) -> bool {
        self.clock.now().saturating_sub(begun) >= TIMEOUT
    }

    async fn pause(&self, times: &mut u32) {
        let longest = (BACKOFF * (1 << (*times).min(10))).min(LONGEST_BACKOFF);
        *times += 1;
        self.clock.sleep(longest.mul_f64(0.5 + 0.5 * self.dice.unit())).await;
    }

    async fn read_back(
        &self,
        location: &Path,
        payload: &PutPayload,
        mode: &PutMode,
        token: &str,
    ) -> Result<Found> {
        let head = GetOptions { head: true, ..GetOptions::default() };
        let GetResult { meta, attributes, .. } = match self.inner.get_opts(location, head).await {
            Err(Error::NotFound { .. }) => return Ok(Found::Before),
            found => found?,
        };
        if let PutMode::Update(version) = mode
            && version.e_tag == meta.e_tag
        {
            return Ok(Found::Before);
        }
        let is_ours = match attributes.get(&attribute()) {
            Some(found) => **found == *token,
            // Written by another client, or by ours on a store that keeps no metadata.
            None if meta.size != payload.content_length() as u64 => false,
            None => {
                let bytes = self.inner.get(location).await?.bytes().await?;
                let ours = payload.iter().flat_map(|part| part.iter());
                bytes.iter().eq(ours)
            }
        };
        let result = PutResult { e_tag: meta.e_tag, version: meta.version };
        Ok(if is_ours { Found::Ours(result) } else { Found::Theirs })
    }
}

fn attribute() -> Attribute {
    Attribute::Metadata(TOKEN.into())
}

/// Errors that another attempt cannot change and that no success hides behind.
fn is_final(error: &Error) -> bool {
    match error {
        Error::PermissionDenied { .. }
        | Error::Unauthenticated { .. }
        | Error::NotSupported { .. }
        | Error::NotImplemented { .. }
        | Error::InvalidPath { .. }
        | Error::NotFound { .. } => true,
        // A request that the store found wrong, such as one for another region; but one that did not
        // arrive in time may be made again.
        Error::Generic { source, .. } => {
            let text = source.to_string();
            let is_wrong = text.contains("status code: 400") && !text.contains("RequestTimeout");
            is_wrong || unreached(source.as_ref()).is_some()
        }
        _ => false,
    }
}

/// Whether the store says that the condition does not hold, and not just that writers met.
///
/// S3 answers 412 for the first and 409 for the second; `object_store` makes both `AlreadyExists`
/// for a create, with the 412 inside, and `AlreadyExists` of a 409 may be followed by no object.
fn is_refusal(error: &Error) -> bool {
    match error {
        Error::Precondition { .. } => true,
        Error::AlreadyExists { source, .. } => {
            source.is::<Error>() || source.to_string().contains("412")
        }
        _ => false,
    }
}
