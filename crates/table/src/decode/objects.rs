//! Files in buckets and on web servers, as bytes that are read one after the other.
//!
//! # Invariants
//! - Whoever reads is no thread of the runtime: bytes are waited for.
//! - At most [`AHEAD`] parts of an object wait to be read, and nothing is fetched for a reader that is gone.
//! - All bytes are of one version of an object in a bucket, or the reader gets an error.

use std::io::{Error, ErrorKind, Read, Result as IoResult};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{Error as StoreError, GetOptions, GetRange, GetResult, ObjectStore};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use uplake_objectio::Store;
use url::Url;

use crate::error::{Result, TableError};

/// Parts of an object that are there before they are asked for; a part is what the store hands on at once.
const AHEAD: usize = 2;
/// A web server from which nothing comes for so long is gone. (Buckets have their own, shorter times.)
pub(super) const STALLED: Duration = Duration::from_secs(60);

/// What an address names.
#[derive(Debug)]
pub struct Object {
    /// As messages have it.
    pub(super) address: String,
    pub(super) store: Arc<Store>,
    pub(super) location: Path,
    /// In bytes, where it is known before it is read.
    pub(super) size: Option<u64>,
    /// The version that was read first, where there are versions. Listings have other marks of it than answers.
    pub(super) e_tag: OnceLock<String>,
    /// That fetches.
    pub(super) runtime: Handle,
}

impl Object {
    /// From its beginning.
    pub(super) fn open(&self) -> Result<ObjectReader> {
        let got = self.runtime.block_on(self.get(None))?;
        let expected = got.meta.size;
        let (parts, reader) = channel(AHEAD);
        self.runtime.spawn(fetch(got.into_stream(), expected, parts));
        Ok(ObjectReader { parts: reader, part: Bytes::new() })
    }

    /// Does it begin so?
    pub(super) async fn begins_with(&self, magic: &[u8]) -> Result<bool> {
        let wanted = magic.len() as u64;
        if self.size.is_some_and(|size| size < wanted) {
            return Ok(false);
        }
        // Web servers need not give ranges.
        let range = self.size.map(|_| GetRange::Bounded(0..wanted));
        let mut parts = self.get(range).await?.into_stream();
        let mut head = Vec::new();
        while head.len() < magic.len()
            && let Some(part) = parts.next().await
        {
            head.extend_from_slice(&part.map_err(|error| self.failed(error))?);
        }
        Ok(head.starts_with(magic))
    }

    async fn get(&self, range: Option<GetRange>) -> Result<GetResult> {
        let if_match = self.e_tag.get().cloned();
        let options = GetOptions { range, if_match, ..GetOptions::default() };
        let got = self.store.charged().get_opts(&self.location, options).await;
        let got = got.map_err(|error| self.failed(error))?;
        // Those of web servers are often weak ones, which nothing matches.
        if let Some(e_tag) = got.meta.e_tag.clone().filter(|_| self.size.is_some()) {
            self.e_tag.get_or_init(|| e_tag);
        }
        Ok(got)
    }

    /// Where it is in a bucket, encoded.
    pub(super) fn url(&self) -> Option<Url> {
        let mut url = self.store.url().clone();
        let parts = self.location.parts().map(|part| part.as_ref().to_owned());
        // What a web server answers is the root itself.
        self.size?;
        url.path_segments_mut().ok()?.pop_if_empty().extend(parts);
        Some(url)
    }

    fn failed(&self, error: StoreError) -> TableError {
        match error {
            StoreError::NotFound { .. } => TableError::NoSuchFile { pattern: self.address.clone() },
            StoreError::Precondition { .. } => TableError::Input {
                file: self.address.clone(),
                reason: "was changed while it was being read".to_owned(),
            },
            error => TableError::store(format!("reading {}", self.address), error),
        }
    }
}

/// Hands on what comes, until nobody takes it.
async fn fetch(
    mut parts: BoxStream<'static, object_store::Result<Bytes>>,
    expected: u64,
    to: Sender<IoResult<Bytes>>,
) {
    let mut came = 0;
    loop {
        let part = match tokio::time::timeout(STALLED, parts.next()).await {
            Ok(Some(part)) => part.map_err(Error::other),
            Ok(None) if came == expected => return,
            Ok(None) => {
                let message = format!("{came} of {expected} bytes came");
                Err(Error::new(ErrorKind::UnexpectedEof, message))
            }
            Err(_) => {
                let message = format!("nothing came for {} s", STALLED.as_secs());
                Err(Error::new(ErrorKind::TimedOut, message))
            }
        };
        came += part.as_ref().map_or(0, |part| part.len() as u64);
        let is_last = part.is_err();
        if to.send(part).await.is_err() || is_last {
            return;
        }
    }
}

/// The bytes of an object.
pub(super) struct ObjectReader {
    parts: Receiver<IoResult<Bytes>>,
    /// What is left of the one that is being read.
    part: Bytes,
}

impl Read for ObjectReader {
    fn read(&mut self, buffer: &mut [u8]) -> IoResult<usize> {
        while self.part.is_empty() {
            match self.parts.blocking_recv() {
                Some(part) => self.part = part?,
                None => return Ok(0),
            }
        }
        let count = buffer.len().min(self.part.len());
        buffer[..count].copy_from_slice(&self.part.split_to(count));
        Ok(count)
    }
}
