//! Reads as the store likes them: near ranges merged, long ones cut, many at once, slow ones twice,
//! every body's length checked.
//!
//! [`plan`] says which requests a call becomes, [`limiter`] how many run at once, [`pace`] when one
//! is slow; [`fetch`] makes one request until it is answered in full, and this module puts the
//! answers together.
//!
//! # Invariants
//! - A read returns exactly the bytes of one version of the object, or an error.
//! - Dropping a read's future drops its requests.

mod fetch;
mod limiter;
mod pace;
mod plan;

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    GetOptions, GetRange, GetResult, GetResultPayload, ObjectMeta, ObjectStore, Result,
};

use crate::clock::Clock;
use crate::error::{StoreError, is_out_of_range};
use crate::options::StorageOptions;
use crate::threads::on_io_threads;
use crate::version::is_same_version;
pub(crate) use fetch::Trace;
use fetch::{Fetched, Fetcher, Request};
pub(crate) use plan::cut;
use plan::{Group, Plan, plan};

/// Pieces of a streamed object that are fetched before the reader has taken the one before.
const READ_AHEAD: usize = 4;

/// Pieces are not made shorter than this to have more of them: at 70 MB/s it takes 30 ms, not much
/// more than the first byte does.
const LEAST_PIECE: u64 = 2 << 20;

/// Reads of one store.
#[derive(Debug)]
pub(crate) struct Ranges {
    fetcher: Fetcher,
    gap: u64,
    cap: u64,
}

/// The answer to one call.
#[derive(Debug)]
pub(crate) struct Read {
    /// Of the version that was read; `None` if nothing was asked.
    pub(crate) meta: Option<ObjectMeta>,
    /// In the order asked; a range that reaches beyond the object's end is cut there.
    pub(crate) bytes: Vec<Bytes>,
}

impl Ranges {
    pub(crate) fn new(
        inner: Arc<dyn ObjectStore>,
        options: &StorageOptions,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            fetcher: Fetcher::new(inner, options, clock),
            gap: options.merge_gap.0,
            cap: options.piece.0,
        }
    }

    /// Requests that may run at once now.
    pub(crate) fn limit(&self) -> usize {
        self.fetcher.limiter.limit()
    }

    /// Reads `ranges` of one version of the object, under the `conditions` (its range and `head`
    /// are ignored).
    pub(crate) async fn read(
        self: &Arc<Self>,
        path: &Path,
        ranges: &[Range<u64>],
        conditions: &GetOptions,
    ) -> Result<Read> {
        let plan = self.plan(ranges);
        if plan.groups.is_empty() {
            return Ok(Read { meta: None, bytes: vec![Bytes::new(); ranges.len()] });
        }
        let mut again = true;
        loop {
            let (meta, buffers) = self.fill(path, &plan.groups, conditions).await?;
            let Some(meta) = meta else {
                // The object was replaced between two pieces. Data files are not; others may be.
                if std::mem::take(&mut again) {
                    continue;
                }
                return Err(StoreError::Changed { path: path.to_string() }.into());
            };
            let bytes = ranges
                .iter()
                .zip(&plan.places)
                .map(|(range, place)| match place {
                    Some(group) => slice(&plan.groups[*group], &buffers[*group], range),
                    None => Bytes::new(),
                })
                .collect();
            return Ok(Read { meta: Some(meta), bytes });
        }
    }

    /// Pieces as long as allowed if others wait too; shorter ones if there are connections to spare,
    /// because a connection brings 60 to 90 MB/s and no more.
    fn plan(&self, ranges: &[Range<u64>]) -> Plan {
        let longest = plan(ranges, self.gap, self.cap);
        let bytes: u64 = longest.groups.iter().map(|g| g.range.end - g.range.start).sum();
        let share = bytes / self.fetcher.limiter.free().max(1) as u64;
        let cap = share.max(self.cap.min(LEAST_PIECE));
        if cap >= self.cap { longest } else { plan(ranges, self.gap, cap) }
    }

    /// Fetches all pieces of all groups; no meta if they come from different versions.
    async fn fill(
        self: &Arc<Self>,
        path: &Path,
        groups: &[Group],
        conditions: &GetOptions,
    ) -> Result<(Option<ObjectMeta>, Vec<Bytes>)> {
        let mut requests = FuturesUnordered::new();
        let mut parts: Vec<Vec<BytesMut>> = Vec::with_capacity(groups.len());
        for (g, group) in groups.iter().enumerate() {
            parts.push(vec![BytesMut::new(); group.pieces.len()]);
            // One allocation for a group of several pieces: each fills its own part of it, and the
            // parts grow together again without a copy. A single piece allocates when it may start.
            let mut rest = match group.pieces.len() {
                1 => BytesMut::new(),
                _ => BytesMut::with_capacity((group.range.end - group.range.start) as usize),
            };
            for (p, piece) in group.pieces.iter().enumerate() {
                let len = (piece.end - piece.start) as usize;
                let tail =
                    if rest.capacity() > len { rest.split_off(len) } else { BytesMut::new() };
                let mut buffer = std::mem::replace(&mut rest, tail);
                let (ranges, path, piece) = (Arc::clone(self), path.clone(), piece.clone());
                let conditions = conditions.clone();
                let work = async move {
                    let request = Request::range(&path, piece, &conditions);
                    match ranges.fetcher.fetch(request, &mut buffer).await {
                        Ok(fetched) => Ok((g, p, Some(fetched), buffer)),
                        // A range may reach beyond the end by more than a piece.
                        Err(error) if p > 0 && is_out_of_range(&error) => {
                            Ok((g, p, None, BytesMut::new()))
                        }
                        Err(error) => Err(error),
                    }
                };
                requests.push(on_io_threads(work));
            }
        }
        let mut meta: Option<ObjectMeta> = None;
        let mut same = true;
        while let Some((g, p, fetched, buffer)) = requests.try_next().await? {
            if let Some(Fetched { meta: found, .. }) = fetched {
                same &= meta.as_ref().is_none_or(|meta| is_same_version(meta, &found));
                meta.get_or_insert(found);
            }
            parts[g][p] = buffer;
        }
        let buffers = parts
            .into_iter()
            .map(|parts| {
                let mut parts = parts.into_iter();
                let mut whole = parts.next().unwrap_or_default();
                parts.for_each(|part| whole.unsplit(part));
                whole.freeze()
            })
            .collect();
        Ok((meta.filter(|_| same), buffers))
    }

    /// Any read of `object_store`'s interface: small ones at once, long ones as a stream of pieces
    /// that are fetched ahead.
    pub(crate) async fn get(
        self: &Arc<Self>,
        path: &Path,
        options: GetOptions,
    ) -> Result<GetResult> {
        if options.head {
            let mut nothing = BytesMut::new();
            let fetched = self.fetcher.fetch(Request::head(path, &options), &mut nothing).await?;
            return Ok(fetched.into_result(Bytes::new()));
        }
        let (start, end) = match &options.range {
            Some(GetRange::Suffix(len)) if *len > self.cap => {
                // Where it starts depends on the size.
                let head = GetOptions { head: true, range: None, ..options.clone() };
                let size = Box::pin(self.get(path, head)).await?.meta.size;
                (size - size.min(*len), size)
            }
            Some(GetRange::Suffix(_)) => return self.whole(Request::of(path, &options)).await,
            Some(GetRange::Bounded(range)) => (range.start, range.end),
            Some(GetRange::Offset(start)) => (*start, u64::MAX),
            None => (0, u64::MAX),
        };
        let first = start..end.min(start.saturating_add(self.cap));
        if first.is_empty() {
            // The store says what it thinks of an empty or backward range.
            return self.fetcher.inner.get_opts(path, options).await;
        }
        let (fetched, first) = match self.piece(path, first, &options).await {
            // Only an empty object has no first byte.
            Err(error) if options.range.is_none() && is_out_of_range(&error) => {
                return self.whole(Request::of(path, &options)).await;
            }
            fetched => fetched?,
        };
        let end = end.min(fetched.meta.size);
        let rest = fetched.range.end..end;
        if rest.is_empty() {
            return Ok(fetched.into_result(first));
        }
        let range = fetched.range.start..end;
        let later = GetOptions { if_match: fetched.meta.e_tag.clone(), ..options };
        let ranges = Arc::clone(self);
        let path = path.clone();
        let rest = futures::stream::iter(cut(&rest, self.cap))
            .map(move |piece| {
                let fetched = ranges.piece(&path, piece, &later);
                async move { Ok(fetched.await?.1) }
            })
            .buffered(READ_AHEAD);
        let stream = futures::stream::once(async { Ok(first) }).chain(rest).boxed();
        Ok(GetResult {
            payload: GetResultPayload::Stream(stream),
            meta: fetched.meta,
            range,
            attributes: fetched.attributes,
        })
    }

    /// One piece of an object.
    fn piece(
        self: &Arc<Self>,
        path: &Path,
        piece: Range<u64>,
        conditions: &GetOptions,
    ) -> BoxFuture<'static, Result<(Fetched, Bytes)>> {
        let (ranges, path, conditions) = (Arc::clone(self), path.clone(), conditions.clone());
        on_io_threads(async move {
            let mut buffer = BytesMut::new();
            let request = Request::range(&path, piece, &conditions);
            let fetched = ranges.fetcher.fetch(request, &mut buffer).await?;
            Ok((fetched, buffer.freeze()))
        })
    }

    async fn whole(&self, request: Request<'_>) -> Result<GetResult> {
        let mut buffer = BytesMut::new();
        let fetched = self.fetcher.fetch(request, &mut buffer).await?;
        Ok(fetched.into_result(buffer.freeze()))
    }
}

/// The part of a group's buffer that is `range`, cut at the buffer's end.
fn slice(group: &Group, buffer: &Bytes, range: &Range<u64>) -> Bytes {
    let at = |offset: u64| ((offset - group.range.start) as usize).min(buffer.len());
    let part = buffer.slice(at(range.start)..at(range.end));
    // A slice keeps the whole buffer in memory. Copy it out where most of the buffer is gaps.
    let is_wasteful = group.wanted * 2 < group.range.end - group.range.start;
    if is_wasteful { Bytes::copy_from_slice(&part) } else { part }
}
