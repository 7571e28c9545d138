//! One request, made until it is answered in full.
//!
//! # Invariants
//! - What a successful fetch leaves in the buffer is as long as the answer said, and the answer is
//!   about the range that was asked.
//! - At most two requests are under way for one fetch.

use std::net::SocketAddr;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::future::{Either, select};
use futures::stream::StreamExt;
use object_store::path::Path;
use object_store::{
    Attributes, Error, GetOptions, GetRange, GetResult, GetResultPayload, ObjectMeta, ObjectStore,
    Result,
};
use parking_lot::{Mutex, MutexGuard};

use super::limiter::{Bounds, Limiter};
use super::pace::Pace;
use crate::clock::Clock;
use crate::counters::count;
use crate::dice::Dice;
use crate::error::{StoreError, is_transient};
use crate::options::StorageOptions;

/// The first retry is made at once (another connection, another address); from the second on the
/// wait doubles from here.
const BACKOFF: Duration = Duration::from_millis(50);
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);

/// What one fetch asks.
#[derive(Debug)]
pub(super) struct Request<'a> {
    path: &'a Path,
    options: GetOptions,
    /// Bytes expected at most; what memory and pace are reckoned with.
    len: u64,
    trace: Trace,
}

impl<'a> Request<'a> {
    /// Bytes `range`, under the conditions of `options`.
    pub(super) fn range(path: &'a Path, range: Range<u64>, options: &GetOptions) -> Self {
        let len = range.end - range.start;
        let options =
            GetOptions { range: Some(GetRange::Bounded(range)), head: false, ..options.clone() };
        Self::new(path, options, len)
    }

    /// Metadata only.
    pub(super) fn head(path: &'a Path, options: &GetOptions) -> Self {
        Self::new(path, GetOptions { head: true, ..options.clone() }, 0)
    }

    /// As it is: for a suffix shorter than a piece, and for objects without bytes.
    pub(super) fn of(path: &'a Path, options: &GetOptions) -> Self {
        let len = if let Some(GetRange::Suffix(len)) = options.range { len } else { 0 };
        Self::new(path, options.clone(), len)
    }

    fn new(path: &'a Path, mut options: GetOptions, len: u64) -> Self {
        let trace = Trace::default();
        options.extensions.insert(trace.clone());
        Self { path, options, len, trace }
    }
}

/// What an answer said besides its bytes.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) meta: ObjectMeta,
    pub(super) range: Range<u64>,
    pub(super) attributes: Attributes,
}

impl Fetched {
    pub(super) fn into_result(self, bytes: Bytes) -> GetResult {
        GetResult {
            payload: GetResultPayload::Stream(futures::stream::iter([Ok(bytes)]).boxed()),
            meta: self.meta,
            range: self.range,
            attributes: self.attributes,
        }
    }
}

/// What a fetch and the connections tell each other; travels in the requests' extensions.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trace(Arc<TraceState>);

#[derive(Debug, Default)]
struct TraceState {
    /// Addresses that requests were sent to, so that the next one goes elsewhere.
    tried: Mutex<Vec<SocketAddr>>,
    held: Mutex<Held>,
}

/// Whether requests wait for the budget: then it is not the store that is slow.
#[derive(Debug, Default)]
struct Held {
    now: u32,
    ever: bool,
    /// When the last wait ended.
    ended: Duration,
}

impl Trace {
    /// The addresses tried so far.
    pub(crate) fn tried(&self) -> MutexGuard<'_, Vec<SocketAddr>> {
        self.0.tried.lock()
    }

    /// Marks a wait for the budget, until the guard is dropped.
    pub(crate) fn hold(&self, clock: &Arc<dyn Clock>) -> impl Drop + Send + use<> {
        let mut held = self.0.held.lock();
        held.now += 1;
        held.ever = true;
        Holding { trace: self.clone(), clock: Arc::clone(clock) }
    }

    /// When the last wait ended; now, if one lasts.
    fn held_until(&self, now: Duration) -> Duration {
        let held = self.0.held.lock();
        if held.now > 0 { now } else { held.ended }
    }

    fn was_held(&self) -> bool {
        self.0.held.lock().ever
    }
}

struct Holding {
    trace: Trace,
    clock: Arc<dyn Clock>,
}

impl Drop for Holding {
    fn drop(&mut self) {
        let mut held = self.trace.0.held.lock();
        held.now -= 1;
        held.ended = self.clock.now();
    }
}

/// The requests of one store: how many at once, when one is slow, how often one is made again.
#[derive(Debug)]
pub(super) struct Fetcher {
    pub(super) inner: Arc<dyn ObjectStore>,
    pub(super) limiter: Arc<Limiter>,
    clock: Arc<dyn Clock>,
    pace: Pace,
    dice: Dice,
    options: StorageOptions,
}

impl Fetcher {
    pub(super) fn new(
        inner: Arc<dyn ObjectStore>,
        options: &StorageOptions,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let bounds = Bounds {
            least: options.least_requests,
            start: options.start_requests,
            most: options.most_requests,
            bytes: options.bytes_under_way.0,
        };
        Self {
            inner,
            limiter: Limiter::new(bounds, Arc::clone(&clock)),
            clock,
            pace: Pace::new(options.hedge_budget),
            dice: Dice::new(options.seed),
            options: options.clone(),
        }
    }

    /// Fetches `request` into `buffer`, whose contents it replaces.
    pub(super) async fn fetch(
        &self,
        request: Request<'_>,
        buffer: &mut BytesMut,
    ) -> Result<Fetched> {
        let permit = self.limiter.acquire(request.len).await;
        let begun = self.clock.now();
        let mut failures = 0;
        loop {
            let error = match self.race(&request, buffer).await {
                Ok(fetched) => {
                    permit.done(buffer.len() as u64);
                    return Ok(fetched);
                }
                Err(error) => error,
            };
            failures += 1;
            let late = self.clock.now().saturating_sub(begun) >= self.options.read_timeout();
            if !is_transient(&error) || failures > self.options.retries || late {
                return Err(error);
            }
            count(|c| &c.retries, 1);
            if failures >= 2 {
                // Once may be one bad connection; twice means there is too much of us.
                self.limiter.overloaded();
                let longest = (BACKOFF * (1 << (failures - 2).min(10))).min(LONGEST_BACKOFF);
                // Between half and all of it, so that the failed of one moment do not return as one.
                self.clock.sleep(longest.mul_f64(0.5 + 0.5 * self.dice.unit())).await;
            }
        }
    }

    /// One attempt, and a second one beside it if the first is slow and the budget allows.
    async fn race(&self, request: &Request<'_>, buffer: &mut BytesMut) -> Result<Fetched> {
        self.pace.earn();
        let begun = self.clock.now();
        let mut other = BytesMut::new();
        let outcome = {
            let first = pin!(self.attempt(request, buffer));
            let Some(delay) = self.pace.delay(request.len) else { return first.await };
            match select(first, self.clock.sleep(delay)).await {
                Either::Left((fetched, _)) => {
                    if is_answer(&fetched) {
                        self.pace.record(request.len, self.clock.now() - begun);
                    }
                    return fetched;
                }
                Either::Right(((), first)) => {
                    let memory = self.limiter.try_bytes(request.len);
                    if memory.is_none() || request.trace.was_held() || !self.pace.try_hedge() {
                        first.await.map(|fetched| (fetched, false))
                    } else {
                        count(|c| &c.hedges, 1);
                        let hedged = self.clock.now();
                        let second = pin!(self.attempt(request, &mut other));
                        match select(first, second).await {
                            Either::Left((answer, _)) if is_answer(&answer) => {
                                answer.map(|fetched| (fetched, false))
                            }
                            Either::Right((answer, _)) if is_answer(&answer) => {
                                let now = self.clock.now();
                                self.pace.record(request.len, now - hedged);
                                answer.map(|fetched| (fetched, true))
                            }
                            Either::Left((_, second)) => {
                                second.await.map(|fetched| (fetched, true))
                            }
                            Either::Right((_, first)) => {
                                first.await.map(|fetched| (fetched, false))
                            }
                        }
                    }
                }
            }
        };
        // Of a first request that was overtaken this is less than it would have taken; either way
        // it is more than the delay, which is what the p95 needs to know.
        self.pace.record(request.len, self.clock.now() - begun);
        let (fetched, second_won) = outcome?;
        if second_won {
            count(|c| &c.hedges_won, 1);
            // `buffer` may be one part of a longer one, so its memory must stay.
            buffer.clear();
            buffer.extend_from_slice(&other);
        }
        Ok(fetched)
    }

    /// One request; its body goes into `buffer`.
    async fn attempt(&self, request: &Request<'_>, buffer: &mut BytesMut) -> Result<Fetched> {
        buffer.clear();
        let mut watch = Watch::new(self, request);
        let answer = self.inner.get_opts(request.path, request.options.clone());
        let GetResult { payload, meta, range, attributes } = watch.over(pin!(answer)).await??;
        let path = || request.path.to_string();
        let wanted = wanted(request.options.range.as_ref(), meta.size);
        if range != wanted {
            return Err(StoreError::OtherRange { path: path(), wanted, got: range }.into());
        }
        let fetched = Fetched { meta, range, attributes };
        if request.options.head {
            return Ok(fetched);
        }
        let len = fetched.range.end - fetched.range.start;
        if let GetResultPayload::Stream(mut body) = payload {
            buffer.reserve(len as usize);
            while let Some(chunk) = watch.over(body.next()).await? {
                let chunk = chunk?;
                if (buffer.len() + chunk.len()) as u64 > len {
                    let got = fetched.range.start..fetched.range.end + 1;
                    return Err(StoreError::OtherRange {
                        path: path(),
                        wanted: fetched.range,
                        got,
                    }
                    .into());
                }
                buffer.extend_from_slice(&chunk);
            }
        } else {
            let result = GetResult {
                payload,
                meta: fetched.meta.clone(),
                range: fetched.range.clone(),
                attributes: Attributes::new(),
            };
            buffer.extend_from_slice(&result.bytes().await?);
        }
        if buffer.len() as u64 != len {
            count(|c| &c.short_bodies, 1);
            let got = buffer.len() as u64;
            return Err(StoreError::Short { path: path(), wanted: len, got }.into());
        }
        Ok(fetched)
    }
}

/// Is it what any other request would say, too?
fn is_answer(outcome: &Result<Fetched>) -> bool {
    use object_store::Error::{NotFound, NotModified, Precondition};
    matches!(outcome, Ok(_) | Err(NotFound { .. } | NotModified { .. } | Precondition { .. }))
}

/// `range` of an object of `size` bytes, as a store answers it: cut at the end.
fn wanted(range: Option<&GetRange>, size: u64) -> Range<u64> {
    match range {
        None => 0..size,
        Some(GetRange::Bounded(range)) => range.start..range.end.min(size),
        Some(GetRange::Offset(start)) => *start..size,
        Some(GetRange::Suffix(len)) => size - size.min(*len)..size,
    }
}

/// Gives a request up when nothing comes for the stall time-out.
///
/// One timer per request and not one per chunk: when it fires early because chunks came, it is set
/// again for what is left.
struct Watch<'a> {
    fetcher: &'a Fetcher,
    request: &'a Request<'a>,
    progress: Duration,
    timer: futures::future::BoxFuture<'static, ()>,
}

impl<'a> Watch<'a> {
    fn new(fetcher: &'a Fetcher, request: &'a Request<'a>) -> Self {
        let timer = fetcher.clock.sleep(fetcher.options.stall_timeout());
        Self { fetcher, request, progress: fetcher.clock.now(), timer }
    }

    /// Waits for `work`; its completion is progress.
    async fn over<F: Future + Unpin>(&mut self, mut work: F) -> Result<F::Output, Error> {
        let stall = self.fetcher.options.stall_timeout();
        loop {
            match select(work, &mut self.timer).await {
                Either::Left((output, _)) => {
                    self.progress = self.fetcher.clock.now();
                    return Ok(output);
                }
                Either::Right(((), unfinished)) => {
                    let now = self.fetcher.clock.now();
                    let progress = self.progress.max(self.request.trace.held_until(now));
                    let idle = now.saturating_sub(progress);
                    if idle >= stall {
                        count(|c| &c.stalls, 1);
                        let waited_ms = u64::try_from(idle.as_millis()).unwrap_or(u64::MAX);
                        let path = self.request.path.to_string();
                        return Err(StoreError::Stalled { path, waited_ms }.into());
                    }
                    work = unfinished;
                    self.timer = self.fetcher.clock.sleep(stall - idle);
                }
            }
        }
    }
}
