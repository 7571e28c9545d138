//! The HTTP client below `object_store`'s S3, GCS and Azure clients.
//!
//! [`Connector`] is what their builders take. Every HTTP request passes [`Service::call`], which is
//! the only place that makes requests again: it sees what was sent and what was answered, and it
//! draws every attempt from the [`Budget`]. The clients' own retries are turned off.
//!
//! # Invariants
//! - A conditional write is sent once. It is made again only if it never left this process.
//! - A request is counted when it is sent, so retries and hedges count like first ones.
//!
//! # Not here
//! HTTP/2 (S3 has none), redirects, proxies: with a proxy the stock client is used.

mod body;
mod dial;
mod health;
mod host;
mod xml;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use http::header::{HOST, IF_MATCH, IF_NONE_MATCH};
use http::{HeaderValue, Method, StatusCode, Uri};
use object_store::client::{
    ClientConfigKey, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest,
    HttpResponse, HttpResponseBody, HttpService,
};
use object_store::{ClientOptions, Result};
use parking_lot::Mutex;

use crate::budget::{Budget, Key};
use crate::clock::Clock;
use crate::counters::{Counters, count};
use crate::dice::Dice;
use crate::error::StoreError;
use crate::options::StorageOptions;
use crate::ranges::Trace;
use body::Arriving;
use health::Failure;
use host::Host;

/// Longest wait for the head of an answer; readers give up earlier by themselves.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// A body to send may take longer: at this rate.
const LEAST_BYTES_PER_SECOND: u64 = 1 << 20;
/// Requests other than reads are made again up to this often, and for this long.
const RETRIES: u32 = 10;
/// Of a piece of a read only connections that could not be made are tried again here.
const PIECE_RETRIES: u32 = 3;
const RETRY_TIMEOUT: Duration = Duration::from_secs(180);
const BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(15);
/// Where clients of a provider look for credentials on a machine of its cloud. Elsewhere nobody answers.
const CREDENTIAL_HOSTS: [&str; 3] =
    ["169.254.169.254", "169.254.170.2", "metadata.google.internal"];
const CREDENTIAL_TIMEOUT: Duration = Duration::from_secs(3);
/// A listing or another request without a body whose address has gone silent is sent to a second
/// address after this.
const SECOND_ADDRESS: Duration = Duration::from_millis(300);
/// From here on a wait for the budget counts as being held back.
const LONG_WAIT: Duration = Duration::from_millis(20);
/// A new connection is cheaper than a longer wait for the end of a refusal.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);
/// Errors inside of a 200 are short.
const MOST_CHECKED_BODY: usize = 1 << 20;

/// Makes [`HttpClient`]s that share hosts, budget and counters.
#[derive(Debug, Clone)]
pub(crate) struct Connector {
    shared: Arc<Shared>,
}

struct Shared {
    hosts: Mutex<HashMap<(String, u16, bool), Arc<Host>>>,
    fixed: BTreeMap<String, Vec<IpAddr>>,
    refresh: Duration,
    budget: Budget,
    clock: Arc<dyn Clock>,
    dice: Dice,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("budget", &self.budget).finish_non_exhaustive()
    }
}

impl Connector {
    pub(crate) fn new(options: &StorageOptions, clock: Arc<dyn Clock>) -> Self {
        let shared = Shared {
            hosts: Mutex::default(),
            fixed: options.addresses.clone(),
            refresh: Duration::from_millis(options.dns_refresh_ms),
            budget: Budget::new(options.reads_per_second, options.writes_per_second),
            clock,
            dice: Dice::new(options.seed),
        };
        Self { shared: Arc::new(shared) }
    }
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> Result<HttpClient> {
        let is_set = |key| options.get_config_value(&key).is_some_and(|value| value == "true");
        for key in [ClientConfigKey::AllowInvalidCertificates, ClientConfigKey::Http2Only] {
            if is_set(key) {
                let reason = "needs the stock client: set `connections = false`".to_owned();
                return Err(StoreError::Setting { key: key.as_ref().to_owned(), reason }.into());
            }
        }
        let allow_http = is_set(ClientConfigKey::AllowHttp);
        let user_agent = options.get_config_value(&ClientConfigKey::UserAgent);
        let user_agent = user_agent.and_then(|text| HeaderValue::from_str(&text).ok());
        let shared = Arc::clone(&self.shared);
        Ok(HttpClient::new(Service { shared, allow_http, user_agent }))
    }
}

/// One client's way to the connections.
#[derive(Debug)]
struct Service {
    shared: Arc<Shared>,
    allow_http: bool,
    user_agent: Option<HeaderValue>,
}

/// What kind of request it is; all that decides about counting and trying again.
#[derive(Debug, Clone, Copy)]
struct Kind {
    counter: fn(&Counters) -> &std::sync::atomic::AtomicU64,
    writes: bool,
    /// Sent again only if it was not sent.
    once: bool,
    /// A 200 may hold an error.
    check_body: bool,
    /// A 200 is not an object but what the provider's client parses.
    is_parsed: bool,
}

impl Kind {
    fn of(request: &HttpRequest) -> Self {
        let has = |name: &str| {
            let query = request.uri().query().unwrap_or_default();
            query.split('&').any(|pair| pair.split('=').next() == Some(name))
        };
        let method = request.method();
        let headers = request.headers();
        let writes = ![Method::GET, Method::HEAD].contains(method);
        let is_conditional = headers.contains_key(IF_NONE_MATCH)
            || headers.contains_key(IF_MATCH)
            || headers.keys().any(|name| name.as_str().starts_with("x-goog-if-"));
        let is_list = *method == Method::GET && (has("list-type") || has("comp"));
        let counter: fn(&Counters) -> &std::sync::atomic::AtomicU64 = if is_list {
            |c| &c.lists
        } else if !writes {
            |c| &c.gets
        } else if *method == Method::DELETE || has("delete") {
            |c| &c.deletes
        } else {
            |c| &c.puts
        };
        let is_copy = headers.contains_key("x-amz-copy-source");
        Self {
            counter,
            writes,
            once: writes && is_conditional,
            check_body: (*method == Method::POST && (has("uploadId") || has("delete"))) || is_copy,
            is_parsed: is_list || *method == Method::POST || has("session") || is_copy,
        }
    }
}

/// Why an attempt failed.
#[derive(Debug)]
struct Failed {
    /// The request cannot have reached the store.
    unsent: bool,
    /// Another attempt fails as well.
    is_hopeless: bool,
    error: HttpError,
}

impl Failed {
    /// A request that cannot be sent, whoever would be there to take it.
    fn refused(error: io::Error) -> Self {
        let error = HttpError::new(HttpErrorKind::Connect, error);
        Self { unsent: true, is_hopeless: true, error }
    }

    fn unreached(host: &Host, source: io::Error) -> Self {
        let is_hopeless = host.is_hopeless(&source);
        let error = StoreError::Unreached { host: host.to_string(), is_hopeless, source };
        let error = HttpError::new(HttpErrorKind::Connect, error);
        Self { unsent: true, is_hopeless, error }
    }

    fn sent(kind: HttpErrorKind, error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::broken(HttpError::new(kind, error))
    }

    fn broken(error: HttpError) -> Self {
        Self { unsent: false, is_hopeless: false, error }
    }
}

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let clock = &self.shared.clock;
        let kind = Kind::of(&request);
        if request.uri().host().is_some_and(|host| CREDENTIAL_HOSTS.contains(&host)) {
            let trace = Trace::default();
            let asked = self.attempt(&request, kind, &trace, true);
            let asked = tokio::time::timeout(CREDENTIAL_TIMEOUT, asked).await;
            let late =
                || HttpError::new(HttpErrorKind::Timeout, io::Error::from(io::ErrorKind::TimedOut));
            return asked.map_err(|_| late())?.map_err(|failed| failed.error);
        }
        let key = Key { prefix: prefix_of(request.uri()), writes: kind.writes };
        // A read of a piece is hedged, timed and tried again above; here only what it should not
        // notice: refusals and connections that were never made.
        let piece = request.extensions().get::<Trace>().cloned();
        let trace = piece.clone().unwrap_or_default();
        let most = if piece.is_some() { PIECE_RETRIES } else { RETRIES };
        let begun = clock.now();
        let (mut failures, mut refusals) = (0, 0);
        loop {
            let wait = self.shared.budget.reserve(&key, clock.now());
            if !wait.is_zero() {
                // A moment's wait among many readers is no sign of a store that is overloaded.
                let _held = (wait >= LONG_WAIT).then(|| trace.hold(clock));
                clock.sleep(wait).await;
            }
            let sent = clock.now();
            let outcome = self.attempt(&request, kind, &trace, piece.is_none()).await;
            let now = clock.now();
            let is_late = now.saturating_sub(begun) >= RETRY_TIMEOUT;
            let backoff = match outcome {
                Ok(response) => match response.status() {
                    StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                        count(|c| &c.throttled, 1);
                        self.shared.budget.refused(&key, sent, now);
                        // Refusals do not use up retries: the store is there and will take it.
                        if kind.once || is_late {
                            return Ok(response);
                        }
                        refusals += 1;
                        drain(response).await;
                        Some(refusals.min(5))
                    }
                    status
                        if (status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT)
                            && !kind.once =>
                    {
                        if is_late || failures >= most || piece.is_some() {
                            return Ok(response);
                        }
                        failures += 1;
                        Some(failures)
                    }
                    _ => {
                        self.shared.budget.accepted(&key, now);
                        return Ok(response);
                    }
                },
                Err(Failed { unsent, is_hopeless, error }) => {
                    let may = unsent || (!kind.once && piece.is_none());
                    if !may || is_hopeless || is_late || failures >= most {
                        return Err(error);
                    }
                    failures += 1;
                    // The first time another address is tried at once.
                    failures.checked_sub(1).filter(|&n| n > 0)
                }
            };
            count(|c| &c.retries, 1);
            if let Some(times) = backoff {
                let longest = (BACKOFF * (1 << (times - 1).min(10))).min(LONGEST_BACKOFF);
                let _held = trace.hold(clock);
                clock.sleep(longest.mul_f64(0.5 + 0.5 * self.shared.dice.unit())).await;
            }
        }
    }
}

impl Service {
    /// Sends the request once; if it is alone (`is_alone`: nobody above hedges it) and its address
    /// stays silent, once more to another.
    async fn attempt(
        &self,
        request: &HttpRequest,
        kind: Kind,
        trace: &Trace,
        is_alone: bool,
    ) -> Result<HttpResponse, Failed> {
        use futures::future::{Either, select};
        let timeout = ANSWER_TIMEOUT
            + Duration::from_secs(request.body().content_length() as u64 / LEAST_BYTES_PER_SECOND);
        let late =
            || Failed::sent(HttpErrorKind::Timeout, io::Error::from(io::ErrorKind::TimedOut));
        let first = std::pin::pin!(self.send(request, kind, trace));
        let may_repeat = is_alone && !kind.once && request.body().content_length() == 0;
        let first = if may_repeat {
            match select(first, self.shared.clock.sleep(SECOND_ADDRESS)).await {
                Either::Left((outcome, _)) => return self.checked(outcome?, kind, true).await,
                Either::Right(((), first)) if !self.is_silent(request, trace) => {
                    tokio::time::timeout(timeout, first).await
                }
                Either::Right(((), first)) => {
                    count(|c| &c.hedges, 1);
                    let second = std::pin::pin!(self.send(request, kind, trace));
                    let either = async move {
                        match select(first, second).await {
                            Either::Left((Ok(response), _)) | Either::Right((Ok(response), _)) => {
                                Ok(response)
                            }
                            Either::Left((Err(_), second)) => second.await,
                            Either::Right((Err(_), first)) => first.await,
                        }
                    };
                    tokio::time::timeout(timeout, either).await
                }
            }
        } else {
            tokio::time::timeout(timeout, first).await
        };
        let response = first.map_err(|_| late())??;
        self.checked(response, kind, is_alone).await
    }

    fn is_silent(&self, request: &HttpRequest, trace: &Trace) -> bool {
        self.host(request.uri()).is_ok_and(|host| host.is_silent(trace))
    }

    /// The answer to a request nobody above will repeat: its body is read here, where a body that
    /// breaks off can be asked for again, and a 200 that holds an error becomes the error.
    async fn checked(
        &self,
        response: HttpResponse,
        kind: Kind,
        is_alone: bool,
    ) -> Result<HttpResponse, Failed> {
        if !is_alone {
            return Ok(response);
        }
        let (mut parts, body) = response.into_parts();
        let body = match (kind.is_parsed, parts.status.is_success()) {
            (true, true) => parsed_later(body).await?,
            (false, true) => body.bytes().await.map_err(Failed::broken)?,
            // Of a refusal only the beginning is shown.
            (_, false) => up_to(MOST_CHECKED_BODY, body).await?.0,
        };
        if kind.check_body && parts.status == StatusCode::OK {
            let head = &body[..body.len().min(MOST_CHECKED_BODY)];
            let text = String::from_utf8_lossy(head);
            if text.contains("<Error>") && text.contains("SlowDown") {
                parts.status = StatusCode::SERVICE_UNAVAILABLE;
            } else if text.contains("<Error>") && text.contains("InternalError") {
                parts.status = StatusCode::INTERNAL_SERVER_ERROR;
            }
        }
        Ok(HttpResponse::from_parts(parts, body.into()))
    }

    async fn send(
        &self,
        request: &HttpRequest,
        kind: Kind,
        trace: &Trace,
    ) -> Result<HttpResponse, Failed> {
        let uri = request.uri();
        let host = self.host(uri).map_err(Failed::refused)?;
        let mut outgoing = http::Request::new(request.body().clone());
        *outgoing.method_mut() = request.method().clone();
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        *outgoing.uri_mut() = Uri::try_from(path)
            .map_err(|error| Failed::refused(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
        *outgoing.headers_mut() = request.headers().clone();
        let headers = outgoing.headers_mut();
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        if let Ok(authority) = HeaderValue::from_str(authority) {
            headers.entry(HOST).or_insert(authority);
        }
        if let Some(agent) = &self.user_agent {
            headers.entry(http::header::USER_AGENT).or_insert_with(|| agent.clone());
        }
        let len = request.body().content_length() as u64;
        let careful = kind.once || len > 0;
        loop {
            let connected = host.connect(trace, careful).await;
            let (mut hold, mut sender) =
                connected.map_err(|error| Failed::unreached(&host, error))?;
            // An idle connection may be about to be closed; then it never becomes ready.
            if sender.ready().await.is_err() {
                continue;
            }
            count(kind.counter, 1);
            count(|c| &c.bytes_written, len);
            match sender.try_send_request(outgoing).await {
                Ok(response) => {
                    hold.answered();
                    let (parts, body) = response.into_parts();
                    let body = HttpResponseBody::new(Arriving::new(body, hold, sender));
                    return Ok(HttpResponse::from_parts(parts, body));
                }
                Err(mut error) => {
                    if let Some(unsent) = error.take_message() {
                        outgoing = unsent;
                        count(|c| &c.retries, 1);
                        continue;
                    }
                    hold.failed(Failure::Broken);
                    return Err(Failed::sent(HttpErrorKind::Interrupted, error.into_error()));
                }
            }
        }
    }

    fn host(&self, uri: &Uri) -> io::Result<Arc<Host>> {
        let refuse = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") if self.allow_http => false,
            Some("http") => return Err(refuse("http is not allowed; set `allow_http`")),
            _ => return Err(refuse("the endpoint is no http(s) URL")),
        };
        let name = uri.host().ok_or_else(|| refuse("the endpoint names no host"))?;
        let name = name.trim_start_matches('[').trim_end_matches(']');
        let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let shared = &self.shared;
        let mut hosts = shared.hosts.lock();
        let host = hosts.entry((name.to_owned(), port, tls)).or_insert_with(|| {
            let fixed = shared.fixed.get(name).cloned();
            let clock = Arc::clone(&shared.clock);
            let dice = Dice::new(Some(shared.dice.bits()));
            Host::new(name, port, tls, fixed, shared.refresh, clock, dice)
        });
        Ok(Arc::clone(host))
    }
}

/// Reads the rest of a refusal, so that its connection can be used again.
async fn drain(response: HttpResponse) {
    let body = response.into_body();
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, body.bytes()).await;
}

/// What the store counts requests by: host, and the first two parts of the path, which are bucket
/// and first folder, or two folders where the bucket is in the host's name.
fn prefix_of(uri: &Uri) -> String {
    let host = uri.host().unwrap_or_default();
    let mut parts = uri.path().split('/').skip(1);
    let (first, second) = (parts.next().unwrap_or_default(), parts.next());
    // The last part is the object's own name.
    let folder = second.filter(|_| parts.next().is_some()).unwrap_or_default();
    format!("{host}/{first}/{folder}")
}

/// The body's bytes, or the first `most` of them, and whether these are all.
async fn up_to(most: usize, body: HttpResponseBody) -> Result<(Bytes, bool), Failed> {
    let mut pieces = body.bytes_stream();
    let mut found = BytesMut::new();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(Failed::broken)?;
        let room = most - found.len();
        if piece.len() > room {
            found.extend_from_slice(&piece[..room]);
            return Ok((found.freeze(), false));
        }
        found.extend_from_slice(&piece);
    }
    Ok((found.freeze(), true))
}

/// The body of an answer that costs its parser no more than its bytes.
async fn parsed_later(body: HttpResponseBody) -> Result<Bytes, Failed> {
    let (body, is_all) = up_to(xml::MOST_BYTES, body).await?;
    if is_all && xml::has_short_tags(&body) {
        return Ok(body);
    }
    let what = "the store's answer is not what a store sends; is the endpoint the right one?";
    let error = io::Error::new(io::ErrorKind::InvalidData, what);
    let error = HttpError::new(HttpErrorKind::Decode, error);
    Err(Failed { unsent: false, is_hopeless: true, error })
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::client::HttpRequestBody;

    fn request(method: Method, uri: &str, header: Option<&'static str>) -> HttpRequest {
        let mut request = http::Request::new(HttpRequestBody::empty());
        *request.method_mut() = method;
        *request.uri_mut() = uri.parse().expect("a URI");
        if let Some(name) = header {
            request.headers_mut().insert(name, HeaderValue::from_static("*"));
        }
        request
    }

    #[test]
    fn conditional_writes_and_only_they_are_sent_once() {
        let object = "http://s3/bucket/a/b";
        for (method, uri, header, once) in [
            (Method::PUT, object, None, false),
            (Method::PUT, object, Some("if-none-match"), true),
            (Method::PUT, object, Some("if-match"), true),
            (Method::PUT, object, Some("x-goog-if-generation-match"), true),
            (Method::GET, object, Some("if-match"), false),
            (Method::DELETE, object, None, false),
            (Method::POST, "http://s3/bucket/a?uploadId=1", Some("if-none-match"), true),
        ] {
            let request = request(method, uri, header);
            assert_eq!(Kind::of(&request).once, once, "{request:?}");
        }
    }

    #[test]
    fn requests_are_counted_as_what_they_are() {
        let counters = Counters::default();
        let bump = |method: Method, uri: &str| {
            let counter = Kind::of(&request(method, uri, None)).counter;
            counter(&counters).fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        };
        bump(Method::GET, "http://s3/bucket/key?list-typed=1");
        bump(Method::HEAD, "http://s3/bucket/key");
        bump(Method::GET, "http://s3/bucket?list-type=2&prefix=a");
        bump(Method::POST, "http://s3/bucket?delete");
        bump(Method::DELETE, "http://s3/bucket/key");
        bump(Method::POST, "http://s3/bucket/key?uploads");
        bump(Method::PUT, "http://s3/bucket/key?partNumber=1&uploadId=2");
        let counts = counters.counts();
        assert_eq!((counts.gets, counts.lists, counts.deletes, counts.puts), (2, 1, 2, 2));
    }

    #[test]
    fn prefixes_are_bucket_and_first_folder() {
        for (uri, prefix) in [
            ("http://s3:9/bucket/key", "s3/bucket/"),
            ("http://s3/bucket/events/part-1", "s3/bucket/events"),
            ("http://s3/bucket/events/dt=1/part-1", "s3/bucket/events"),
            ("https://bucket.s3/events/dt=1/part-1", "bucket.s3/events/dt=1"),
            ("https://bucket.s3/", "bucket.s3//"),
        ] {
            assert_eq!(prefix_of(&uri.parse().expect("a URI")), prefix, "{uri}");
        }
    }
}
