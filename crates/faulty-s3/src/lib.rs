//! A seeded, fault-injecting S3 server on loopback, for tests and benchmarks.
//!
//! It listens on several addresses, keeps objects in memory, and answers as late, as slowly and as
//! wrongly as its [`Faults`] say. Objects named `synthetic-SIZE` need not be written: they hold
//! [`content`], and cost the server no memory however long they are.
//!
//! # Invariants
//! - What happens to a request depends on the seed, on the request, and on how many equal ones came
//!   before; not on what else is under way. A failing test fails again.
//! - Writes are atomic; a refused or reset one has no effect, a lost one has.
//!
//! # Not here
//! Signatures, TLS, permissions.
//!
//! # Examples
//! ```
//! use uplake_faulty_s3::{Faults, Server};
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let server = Server::start(2, Faults { median_ms: 1.0, ..Faults::none(7) }).await?;
//! assert_eq!(server.addresses().len(), 2);
//! assert!(server.endpoint().starts_with("http://127.0.0.1"));
//! # Ok::<(), std::io::Error>(())
//! # }).unwrap();
//! ```
#![forbid(unsafe_code)]

mod http;
mod objects;
mod serve;

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

pub use http::content;
use objects::Objects;

/// What goes wrong; probabilities are per request.
#[derive(Debug, Clone, PartialEq)]
pub struct Faults {
    /// Where all randomness comes from.
    pub seed: u64,
    /// Median time to the first byte, in milliseconds.
    pub median_ms: f64,
    /// Spread of a lognormal around the median.
    pub sigma: f64,
    /// Requests whose first byte comes later still.
    pub tail: f64,
    /// By how much, in milliseconds.
    pub tail_ms: Range<f64>,
    /// Bytes per second of one connection; 0 for no limit.
    pub bytes_per_second: f64,
    /// Requests per second of all addresses together before 503; 0 for no limit.
    pub requests_per_second: f64,
    /// Answered 503 SlowDown, without effect.
    pub unavailable: f64,
    /// Answered 500 InternalError, without effect.
    pub internal: f64,
    /// Connection reset before an answer, without effect.
    pub reset: f64,
    /// Connection reset in the middle of a body.
    pub cut: f64,
    /// A body whose head promises fewer bytes than the range has.
    pub short: f64,
    /// A body, or an answer, that stops for `stall_ms`.
    pub stall: f64,
    /// How long a stall lasts, in milliseconds.
    pub stall_ms: u64,
    /// Writes that take effect and whose connection is then reset.
    pub lost: f64,
    /// Whether the conditions of writes are ignored, as some look-alikes of S3 do; 0 for no.
    pub ignores_conditions: f64,
}

impl Faults {
    /// Nothing goes wrong and nothing takes time.
    #[must_use]
    pub fn none(seed: u64) -> Self {
        Self {
            seed,
            median_ms: 0.0,
            sigma: 0.0,
            tail: 0.0,
            tail_ms: 150.0..800.0,
            bytes_per_second: 0.0,
            requests_per_second: 0.0,
            unavailable: 0.0,
            internal: 0.0,
            reset: 0.0,
            cut: 0.0,
            short: 0.0,
            stall: 0.0,
            stall_ms: 60_000,
            lost: 0.0,
            ignores_conditions: 0.0,
        }
    }

    /// As S3 is on a usual day: 20 ms to the first byte, 1 % 150-800 ms later, 70 MB/s a connection.
    #[must_use]
    pub fn usual(seed: u64) -> Self {
        let bytes_per_second = 70e6;
        Self { median_ms: 20.0, sigma: 0.35, tail: 0.01, bytes_per_second, ..Self::none(seed) }
    }
}

/// How one address behaves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Address {
    /// Like the others.
    Well,
    /// So many times slower, first byte and bandwidth.
    Slow(f64),
    /// Takes connections and requests and never answers.
    Dead,
}

/// What one address was asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Connections taken.
    pub connections: u64,
    /// Requests read.
    pub requests: u64,
    /// Requests answered 503.
    pub throttled: u64,
    /// Body bytes sent.
    pub bytes: u64,
}

#[derive(Debug)]
struct Endpoint {
    address: SocketAddr,
    behaviour: Mutex<Address>,
    connections: AtomicU64,
    requests: AtomicU64,
    throttled: AtomicU64,
    bytes: AtomicU64,
}

/// One request, as a test sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// GET, HEAD, PUT, POST, DELETE.
    pub method: String,
    /// Of the object; the prefix of a listing.
    pub key: String,
    /// The `Range` header, or the query of a request to the bucket.
    pub detail: String,
}

#[derive(Debug)]
struct State {
    faults: Mutex<Faults>,
    objects: Mutex<Objects>,
    endpoints: Vec<Endpoint>,
    /// How many equal requests came before.
    seen: Mutex<HashMap<u64, u64>>,
    /// Start and requests of the throttle's window.
    window: Mutex<(tokio::time::Instant, f64)>,
    stop: Mutex<Stop>,
    /// The end of keys about which nothing can be learned, and whether writes to them take effect.
    hidden: Mutex<Option<(String, bool)>>,
    /// Requests since somebody began to listen; `None` if nobody does.
    log: Mutex<Option<Vec<Asked>>>,
}

/// When the server falls silent.
#[derive(Debug, Default)]
struct Stop {
    /// Requests that are answered until then; `None` for all.
    left: Option<u64>,
    /// Does the first one that is not answered take effect?
    last_takes_effect: bool,
    is_silent: bool,
}

/// A running server; dropping it closes every connection.
#[derive(Debug)]
pub struct Server {
    state: Arc<State>,
    _tasks: JoinSet<()>,
}

impl Server {
    /// Listens on `addresses` addresses 127.0.0.11, .12, … (127.0.0.1 if it is one) at one free port.
    ///
    /// # Errors
    /// If an address cannot be bound; other systems than Linux have only 127.0.0.1.
    pub async fn start(addresses: u8, faults: Faults) -> io::Result<Self> {
        Self::start_at(addresses, 0, faults).await
    }

    /// The same at a given port; 0 takes a free one.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub async fn start_at(addresses: u8, port: u16, faults: Faults) -> io::Result<Self> {
        let mut listeners: Vec<TcpListener> = Vec::new();
        let mut port = port;
        for i in 0..addresses.max(1) {
            let last = if addresses <= 1 { 1 } else { 11 + i };
            let listener = TcpListener::bind((Ipv4Addr::new(127, 0, 0, last), port)).await?;
            port = listener.local_addr()?.port();
            listeners.push(listener);
        }
        let endpoints = listeners.iter().map(|listener| {
            Ok(Endpoint {
                address: listener.local_addr()?,
                behaviour: Mutex::new(Address::Well),
                connections: AtomicU64::new(0),
                requests: AtomicU64::new(0),
                throttled: AtomicU64::new(0),
                bytes: AtomicU64::new(0),
            })
        });
        let state = Arc::new(State {
            faults: Mutex::new(faults),
            objects: Mutex::default(),
            endpoints: endpoints.collect::<io::Result<_>>()?,
            seen: Mutex::default(),
            window: Mutex::new((tokio::time::Instant::now(), 0.0)),
            stop: Mutex::default(),
            hidden: Mutex::default(),
            log: Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        for (index, listener) in listeners.into_iter().enumerate() {
            tasks.spawn(serve::listen(Arc::clone(&state), index, listener));
        }
        Ok(Self { state, _tasks: tasks })
    }

    /// Every address it listens on.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.state.endpoints.iter().map(|endpoint| endpoint.address).collect()
    }

    /// The first address as a URL, for clients that know only one.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.state.endpoints[0].address)
    }

    /// Changes what goes wrong from now on.
    pub fn set_faults(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.state.faults.lock());
    }

    /// Changes how the `index`th address behaves, also on connections it has.
    pub fn set_address(&self, index: usize, behaviour: Address) {
        *self.state.endpoints[index].behaviour.lock() = behaviour;
    }

    /// Answers `requests` more and then none; the first of those may still take effect.
    pub fn stop_after(&self, requests: u64, last_takes_effect: bool) {
        let left = Some(requests);
        *self.state.stop.lock() = Stop { left, last_takes_effect, is_silent: false };
    }

    /// From now on every request for an object whose key ends with `suffix` is answered 500; writes
    /// take effect all the same, if `writes_take_effect`.
    pub fn hide(&self, suffix: &str, writes_take_effect: bool) {
        *self.state.hidden.lock() = Some((suffix.to_owned(), writes_take_effect));
    }

    /// Has a request come since that was not answered?
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.state.stop.lock().is_silent
    }

    /// Answers again, and hides nothing. Requests that came meanwhile stay without an answer.
    pub fn resume(&self) {
        *self.state.stop.lock() = Stop::default();
        *self.state.hidden.lock() = None;
    }

    /// What each address was asked so far.
    #[must_use]
    pub fn stats(&self) -> Vec<Stats> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let stats = self.state.endpoints.iter().map(|endpoint| Stats {
            connections: read(&endpoint.connections),
            requests: read(&endpoint.requests),
            throttled: read(&endpoint.throttled),
            bytes: read(&endpoint.bytes),
        });
        stats.collect()
    }

    /// Requests read by all addresses.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.stats().iter().map(|stats| stats.requests).sum()
    }

    /// Begins to write requests down, and returns those written down so far, in the order they came.
    pub fn take_log(&self) -> Vec<Asked> {
        self.state.log.lock().replace(Vec::new()).unwrap_or_default()
    }

    /// The keys that `bucket` has now.
    #[must_use]
    pub fn keys(&self, bucket: &str) -> Vec<String> {
        self.state.objects.lock().keys(bucket)
    }
}
