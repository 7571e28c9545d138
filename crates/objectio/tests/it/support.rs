//! A clock that jumps, and a store with every fault, so that hours of bad weather take
//! milliseconds and every run is the same.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, StreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions,
    PutPayload, PutResult, RenameOptions, Result,
};
use parking_lot::Mutex;
use uplake_objectio::Clock;
use uplake_testkit::random::{Random, mix};

/// Time that passes only when everybody waits.
#[derive(Debug, Default, Clone)]
pub struct SimClock(Arc<Mutex<Timers>>);

#[derive(Debug, Default)]
struct Timers {
    now: Duration,
    next: u64,
    /// Due time and number; the waker is in `wakers` while somebody waits.
    due: BinaryHeap<Reverse<(Duration, u64)>>,
    wakers: HashMap<u64, Waker>,
}

impl Clock for SimClock {
    fn now(&self) -> Duration {
        self.0.lock().now
    }

    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()> {
        Box::pin(Sleep { clock: self.clone(), wait, timer: None })
    }
}

struct Sleep {
    clock: SimClock,
    wait: Duration,
    timer: Option<(Duration, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let clock = self.clock.clone();
        let mut timers = clock.0.lock();
        let (due, id) = match self.timer {
            Some(timer) => timer,
            None => {
                let timer = (timers.now + self.wait, timers.next);
                timers.next += 1;
                timers.due.push(Reverse(timer));
                self.timer = Some(timer);
                timer
            }
        };
        if timers.now >= due {
            return Poll::Ready(());
        }
        timers.wakers.insert(id, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some((_, id)) = self.timer {
            self.clock.0.lock().wakers.remove(&id);
        }
    }
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl SimClock {
    /// Runs `work` to its end; when nothing can go on, time jumps to the next timer. Panics when
    /// there is none: that would be a hang.
    pub fn run<F: Future>(&self, work: F) -> F::Output {
        let mut work = pin!(work);
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&woken));
        loop {
            while woken.0.swap(false, Ordering::SeqCst) {
                if let Poll::Ready(output) = work.as_mut().poll(&mut Context::from_waker(&waker)) {
                    return output;
                }
            }
            let waker = {
                let mut timers = self.0.lock();
                loop {
                    let Reverse((due, id)) = timers.due.pop().expect("hang: nobody will wake up");
                    // Timers that were dropped do not move the clock.
                    if let Some(waker) = timers.wakers.remove(&id) {
                        timers.now = timers.now.max(due);
                        break waker;
                    }
                }
            };
            waker.wake();
        }
    }
}

/// How bad the weather is; probabilities per request.
#[derive(Debug, Clone)]
pub struct Weather {
    pub median_ms: f64,
    pub sigma: f64,
    pub tail: f64,
    pub tail_ms: Range<f64>,
    pub bytes_per_ms: f64,
    /// The request fails before an answer.
    pub fail: f64,
    /// The body breaks off with an error.
    pub cut: f64,
    /// The body ends early and says nothing.
    pub short: f64,
    /// The body is longer than promised.
    pub long: f64,
    /// The answer is about another range.
    pub other: f64,
    /// The body stops for an hour, or the answer never comes.
    pub stall: f64,
}

impl Weather {
    /// 20 ms, no spread, 70 MB/s, no faults.
    pub const FAIR: Self = Self {
        median_ms: 20.0,
        sigma: 0.0,
        tail: 0.0,
        tail_ms: 150.0..800.0,
        bytes_per_ms: 70_000.0,
        fail: 0.0,
        cut: 0.0,
        short: 0.0,
        long: 0.0,
        other: 0.0,
        stall: 0.0,
    };
    /// What the published measurements of S3 look like: 1 % tail of 150 to 800 ms.
    pub const USUAL: Self = Self { sigma: 0.35, tail: 0.01, ..Self::FAIR };
    /// Everything at once.
    pub const FOUL: Self = Self {
        fail: 0.03,
        cut: 0.03,
        short: 0.03,
        long: 0.02,
        other: 0.02,
        stall: 0.01,
        ..Self::USUAL
    };
}

/// A prime, so that reading at a wrong offset shows.
const PERIOD: usize = 1_048_583;

/// Bytes anybody can check: every object holds the same random bytes, again and again.
pub fn content(range: Range<u64>) -> Vec<u8> {
    static PATTERN: LazyLock<Vec<u8>> =
        LazyLock::new(|| (0..PERIOD as u64).map(|i| mix(i) as u8).collect());
    let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
    let mut at = range.start;
    while at < range.end {
        let from = (at % PERIOD as u64) as usize;
        let part = &PATTERN[from..PERIOD.min(from + (range.end - at) as usize)];
        bytes.extend_from_slice(part);
        at += part.len() as u64;
    }
    bytes
}

/// A store in bad weather. Objects named `synthetic-SIZE` exist without being written.
#[derive(Debug)]
pub struct Faulty {
    pub inner: InMemory,
    pub weather: Mutex<Weather>,
    clock: SimClock,
    seed: u64,
    requests: AtomicU64,
    pub under_way: Arc<AtomicU64>,
    pub most_under_way: AtomicU64,
}

impl Faulty {
    pub fn new(clock: &SimClock, weather: Weather, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            inner: InMemory::new(),
            weather: Mutex::new(weather),
            clock: clock.clone(),
            seed,
            requests: AtomicU64::new(0),
            under_way: Arc::default(),
            most_under_way: AtomicU64::new(0),
        })
    }

    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Writes an object of checkable bytes.
    pub async fn put_content(&self, path: &str, len: u64) {
        let bytes = Bytes::from(content(0..len));
        self.inner.put(&Path::from(path), bytes.into()).await.expect("a put");
    }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("faulty")
    }
}

struct UnderWay(Arc<AtomicU64>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn broken(what: &str) -> Error {
    Error::Generic { store: "faulty", source: what.into() }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let most = self.under_way.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_under_way.fetch_max(most, Ordering::Relaxed);
        let guard = UnderWay(Arc::clone(&self.under_way));
        let mut random = Random::stream(self.seed, number);
        let weather = self.weather.lock().clone();
        let clock = self.clock.clone();
        let mut first_ms = weather.median_ms * random.lognormal(0.0, weather.sigma.max(1e-9));
        if random.chance(weather.tail) {
            let span = weather.tail_ms.end - weather.tail_ms.start;
            first_ms += weather.tail_ms.start + random.unit() * span;
        }
        clock.sleep(Duration::from_secs_f64(first_ms / 1e3)).await;
        if random.chance(weather.fail) {
            return Err(broken("connection reset"));
        }
        let stalls = random.chance(weather.stall);
        if stalls && random.chance(0.5) {
            clock.sleep(Duration::from_secs(3600)).await;
        }
        let head = options.head;
        let mut result = match location.as_ref().strip_prefix("synthetic-") {
            Some(size) => synthetic(location, size.parse().expect("a size"), &options)?,
            None => self.inner.get_opts(location, options).await?,
        };
        if head {
            return Ok(result);
        }
        if random.chance(weather.other) {
            result.range = result.range.start + 1..result.range.end + 1;
        }
        let len = result.range.end - result.range.start;
        let stops_at = random.below(len.max(1));
        let cuts = random.chance(weather.cut);
        let shortens = random.chance(weather.short) && len > 0;
        let lengthens = random.chance(weather.long);
        let GetResultPayload::Stream(mut body) = result.payload else {
            unreachable!("memory has no files")
        };
        let whole = body.next().await.unwrap_or(Ok(Bytes::new()))?;
        assert!(body.next().await.is_none(), "memory answers in one piece");
        let mut chunks: Vec<Bytes> = Vec::new();
        for start in (0..whole.len()).step_by(64 << 10) {
            chunks.push(whole.slice(start..whole.len().min(start + (64 << 10))));
        }
        if lengthens {
            chunks.push(Bytes::from_static(b"surplus"));
        }
        let body = futures::stream::unfold(
            (chunks.into_iter(), 0u64, guard, false),
            move |(mut chunks, sent, guard, ended)| {
                let clock = clock.clone();
                async move {
                    let mut chunk = if ended { None } else { chunks.next() }?;
                    let end = sent + chunk.len() as u64;
                    let mut ended = false;
                    if end > stops_at && sent <= stops_at {
                        if stalls {
                            clock.sleep(Duration::from_secs(3600)).await;
                        }
                        if cuts {
                            let error = broken("body cut off");
                            return Some((Err(error), (chunks, sent, guard, true)));
                        }
                        if shortens {
                            chunk.truncate((stops_at - sent) as usize);
                            ended = true;
                        }
                    }
                    let ms = chunk.len() as f64 / weather.bytes_per_ms;
                    clock.sleep(Duration::from_secs_f64(ms / 1e3)).await;
                    Some((Ok(chunk), (chunks, end, guard, ended)))
                }
            },
        );
        result.payload = GetResultPayload::Stream(body.boxed());
        Ok(result)
    }

    async fn put_opts(&self, at: &Path, data: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.inner.put_opts(at, data, opts).await
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(at, opts).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.inner.rename_opts(from, to, options).await
    }
}

fn synthetic(location: &Path, size: u64, options: &GetOptions) -> Result<GetResult> {
    let meta = ObjectMeta {
        location: location.clone(),
        last_modified: Default::default(),
        size,
        e_tag: Some("synthetic".to_owned()),
        version: None,
    };
    let range = match &options.range {
        None => 0..size,
        Some(GetRange::Bounded(range)) => range.start..range.end.min(size),
        Some(GetRange::Offset(start)) => *start..size,
        Some(GetRange::Suffix(len)) => size - size.min(*len)..size,
    };
    if range.is_empty() && options.range.is_some() {
        return Err(broken("status code: 416 InvalidRange"));
    }
    let bytes = if options.head { Vec::new() } else { content(range.clone()) };
    Ok(GetResult {
        payload: GetResultPayload::Stream(futures::stream::iter([Ok(bytes.into())]).boxed()),
        meta,
        range,
        attributes: Default::default(),
    })
}
