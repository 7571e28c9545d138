//! A node that computes parts for others.
//!
//! # Invariants
//! - A part is a statement: it is listed, counted, stopped and waited for as those of clients are, and it is the stream of
//!   its call that owns it.
//! - The answer begins at once, before anything is computed: who asked knows that the part was taken.
//! - Nothing is looked at for who has no token for it, if there is a secret; what is refused is counted.
//!
//! # Not here
//! Rights of users, which are in the plan: who asks is a node, and believed.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arrow_flight::error::FlightError;
use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo,
    HandshakeRequest, HandshakeResponse, PollInfo, PutResult, SchemaResult, Ticket,
};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};
use uplake_engine::{
    Buckets, EngineError, NothingShuffled, PartError, PartRows, Problem, RunOptions, Session,
    Share, Shuffled, Spent, SqlState, parts_format,
};

use super::channels::{CONNECTION_WINDOW, Channels, PING_EVERY, PING_TIME, STREAM_WINDOW};
use super::messages::{
    CANCEL, Common, End, Fetch, HELLO, Head, HelloMessage, Keeps, Lost, TICKET_BYTES, read_ticket,
};
use super::row_messages::encoded;
use super::shuffle_rows::OtherNodes;
use super::shuffle_store::{Key, ShuffleStore, StoredRows};
use super::token::{About, What};
use super::trust::Trust;
use super::wire::incoming;
use crate::client::{Before, Client, Protocol};
use crate::drivers::AbortOnDrop;
use crate::failure::Failure;
use crate::labels::Labels;
use crate::metrics::RefusedCall;
use crate::server::{ServerOptions, Shared};
use crate::statements::{Cause, Running};

/// Messages that wait for the network.
const WAITING: usize = 8;
/// Parts of one coordinator at once, and calls beside them.
const STREAMS: u32 = 4096;
/// What a part has beyond what is left of its statement's time: the coordinator ends it, and this is for one that cannot.
const LATER: Duration = Duration::from_secs(5);

/// Who this node says it is.
#[derive(Clone, Debug)]
pub(crate) struct Me {
    pub name: String,
    pub start: u64,
    pub warehouse: String,
}

impl Me {
    /// A node is called as an address of its is, which stays when it begins anew.
    pub fn new(address: Option<SocketAddr>, options: &ServerOptions) -> Self {
        let mut start = [0; 8];
        (options.random)(&mut start);
        Self {
            name: address.map_or_else(|| "a node".to_owned(), |address| named(address, host())),
            start: u64::from_ne_bytes(start),
            warehouse: options.nodes.warehouse.clone(),
        }
    }

    /// A command that asks nodes and is asked by nobody.
    pub fn of_command(name: &str, warehouse: &str) -> Self {
        Self { name: name.to_owned(), start: 0, warehouse: warehouse.to_owned() }
    }
}

/// An address that is all of a machine's is that of others, too: nodes would be called alike.
fn named(address: SocketAddr, host: Option<String>) -> String {
    match host.filter(|_| address.ip().is_unspecified()) {
        Some(host) => format!("{host}:{}", address.port()),
        None => address.to_string(),
    }
}

/// What this machine calls itself: a pod's name, which stays when it begins anew.
fn host() -> Option<String> {
    let of_system = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = of_system.or_else(|| std::env::var("HOSTNAME").ok())?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// The parts that run: their statements here, by the number that their coordinator gave.
#[derive(Debug)]
struct Active {
    statements: Mutex<BTreeSet<(String, u64)>>,
    count: watch::Sender<usize>,
}

/// What answers other nodes.
#[derive(Clone)]
pub(crate) struct Worker {
    shared: Arc<Shared>,
    me: Me,
    lake: Arc<str>,
    trust: Arc<Trust>,
    drain: watch::Receiver<bool>,
    active: Arc<Active>,
    /// Rows of parts that others fetch, and connections to those whose rows parts of this node fetch.
    store: Arc<ShuffleStore>,
    channels: Arc<Channels>,
}

/// Serves other nodes until `drain` is true and their parts are done. To be called on the network's runtime.
pub(crate) async fn serve(worker: Worker, listener: TcpListener) {
    let Worker { mut drain, active, .. } = worker.clone();
    let over = async move {
        // Whoever could say so is gone: the same.
        let _ = drain.wait_for(|drain| *drain).await;
        // Until then hello says that this node drains.
        let _ = active.count.subscribe().wait_for(|count| *count == 0).await;
    };
    let (trust, metrics) = (Arc::clone(&worker.trust), Arc::clone(&worker.shared.metrics));
    let incoming = incoming(listener, trust, metrics);
    let service = FlightServiceServer::new(worker)
        .max_decoding_message_size(TICKET_BYTES + 1024)
        .max_encoding_message_size(usize::MAX);
    let served = tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(PING_EVERY))
        .http2_keepalive_timeout(Some(PING_TIME))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(STREAMS)
        .add_service(service)
        .serve_with_incoming_shutdown(incoming, over);
    if let Err(error) = served.await {
        eprintln!("warning: this node takes no parts any more: {error}");
    }
}

impl Worker {
    pub fn new(
        shared: Arc<Shared>,
        me: Me,
        trust: Arc<Trust>,
        drain: watch::Receiver<bool>,
    ) -> Self {
        let lake = shared.engine.session().lake().location().into();
        let active = Active { statements: Mutex::default(), count: watch::Sender::new(0) };
        let channels = Arc::new(Channels::new(Arc::clone(&trust)));
        let (active, store) = (Arc::new(active), Arc::default());
        Self { shared, me, lake, trust, drain, active, store, channels }
    }

    fn hello(&self) -> HelloMessage {
        HelloMessage {
            name: self.me.name.clone(),
            start: self.me.start,
            warehouse: self.me.warehouse.clone(),
            works: true,
            draining: *self.drain.borrow(),
            format: parts_format(),
            lake: self.lake.to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            parts: *self.active.count.borrow(),
        }
    }

    /// Has who calls a token for this?
    fn check(&self, metadata: &MetadataMap, about: &About<'_>) -> Result<(), Status> {
        self.trust.check(metadata, about).map_err(|why| {
            self.shared.metrics.refused_call(RefusedCall::Token);
            Status::unauthenticated(format!("{} refuses: {why}", self.me.name))
        })
    }

    /// What a token for this node is about.
    fn about<'a>(&'a self, what: What, query: &'a str, part: usize, sum: &'a [u8]) -> About<'a> {
        About { what, query, part, warehouse: &self.me.warehouse, lake: &self.lake, sum }
    }

    /// Why this node does not compute a part, if it does not.
    fn refuses(&self, head: &Head) -> Option<End> {
        // What was computed here is handed out until nobody needs it any more.
        if *self.drain.borrow() && head.shuffles.fetch.is_none() {
            return Some(End::Draining);
        }
        if head.format != parts_format() {
            return Some(End::Refused(format!("{} is of another version", self.me.name)));
        }
        let other = *head.lake != *self.lake;
        other.then(|| End::Refused(format!("{} serves the lake {}", self.me.name, self.lake)))
    }

    /// Begins a part; its rows, then its end.
    fn part(&self, head: &Head, plan: Bytes, address: String) -> PartStream {
        let client = Client {
            role: String::new(),
            by_token: false,
            tenant: String::new(),
            protocol: Protocol::Node,
            application: head.from.clone(),
            address,
            labels: Labels::new(),
            before: Before::default(),
        };
        let of = match &head.shuffles.keeps {
            Some(keeps) => format!("shuffle {} of ", keeps.shuffle + 1),
            None => String::new(),
        };
        let text = format!("part {} of {} of {of}statement {}", head.part, head.parts, head.query);
        let running = self.shared.statements.begin(client, &text);
        let options = RunOptions {
            timeout: head.left_ms.map(|left| Duration::from_millis(left) + LATER),
            progress: Some(running.progress()),
            ..RunOptions::default()
        };
        let listed = self.active.add(&head.query, running.id());
        let session = self.shared.engine.session().for_parts();
        let (tell, told) = mpsc::channel(WAITING);
        let computed = Computed {
            plan,
            share: head.share(),
            text,
            from: self.other_nodes(head),
            session,
            shared: Arc::clone(&self.shared),
        };
        let (store, shuffles) = (Arc::clone(&self.store), head.shuffles.clone());
        let key = |shuffle| Key::of(head, shuffle);
        let keeps = shuffles.keeps.map(|keeps| (key(keeps.shuffle), keeps));
        let task = running.drive(async move {
            let Some((key, Keeps { keys, buckets, .. })) = keeps else {
                let end = computed.sent(options, &tell).await;
                // Nobody may want to know.
                let _ = tell.send(Message::End(end)).await;
                return;
            };
            let buckets = Buckets { keys, count: buckets };
            match computed.stored(options, &buckets).await {
                Ok(rows) => {
                    let sizes = rows.sizes();
                    let _listed = store.add(key, rows);
                    let end = End::Kept(sizes, Spent::default());
                    if tell.send(Message::End(end)).await.is_ok() {
                        // Whoever asked ends it.
                        tell.closed().await;
                    }
                }
                Err(end) => drop(tell.send(Message::End(end)).await),
            }
        });
        self.shared.metrics.part_computed();
        let flow = Flow { told, _task: task, _listed: listed, running };
        Box::pin(stream::unfold(Some(flow), |flow| async {
            let mut flow = flow?;
            let Flow { told, running, .. } = &mut flow;
            match running.unless_stopped(async { Ok(told.recv().await) }).await {
                // Without an end: a panic.
                Ok(None) => None,
                Ok(Some(Message::Rows(data))) => {
                    let bytes = data.data_header.len() + data.data_body.len();
                    flow.running.sent(0, bytes as u64);
                    Some((Ok(data), Some(flow)))
                }
                Ok(Some(Message::End(End::Kept(sizes, _)))) => {
                    let end = End::Kept(sizes, flow.running.spent());
                    Some((Ok(last(end.into_bytes())), Some(flow)))
                }
                Ok(Some(Message::End(mut end))) => {
                    if let End::Done { rows, spent } = &mut end {
                        flow.running.sent(*rows, 0);
                        *spent = flow.running.spent();
                    }
                    let end = end.into_bytes();
                    if let Some(failure) = failure_of(&end) {
                        flow.running.failed(&failure);
                    }
                    Some((Ok(last(end)), None))
                }
                Err(failure) => Some((Ok(last(end_of(failure).into_bytes())), None)),
            }
        }))
    }
}

impl Worker {
    /// Whom a part asks for rows, if it does.
    fn other_nodes(&self, head: &Head) -> Option<Arc<OtherNodes>> {
        if head.shuffles.reads.is_empty() {
            return None;
        }
        let bucket = match head.share() {
            Share::Stretch { part, .. } => part,
            Share::Ids { .. } => 0,
        };
        let common = Common {
            query: head.query.clone(),
            parts: head.parts,
            from: self.me.name.clone(),
            format: head.format,
            lake: head.lake.clone(),
        };
        Some(Arc::new(OtherNodes {
            shuffles: head.shuffles.clone(),
            common,
            left_ms: head.left_ms,
            warehouse: self.me.warehouse.clone(),
            bucket,
            channels: Arc::clone(&self.channels),
            network: Handle::current(),
            lost: Arc::default(),
        }))
    }

    /// Rows that this node keeps for others.
    fn fetched(&self, head: &Head, fetch: &Fetch) -> PartStream {
        let stored = self.store.get(&Key::of(head, fetch.shuffle));
        let Some((messages, rows)) = stored.and_then(|stored| stored.messages(fetch.bucket)) else {
            let end = End::Refused(format!("{} does not have these rows any more", self.me.name));
            return Box::pin(stream::iter([Ok(last(end.into_bytes()))]));
        };
        let messages = messages.map(|message| message.map_err(Status::internal));
        let end = End::Done { rows, spent: Spent::default() };
        Box::pin(messages.chain(stream::iter([Ok(last(end.into_bytes()))])))
    }
}

/// What the part's task says.
enum Message {
    Rows(FlightData),
    End(End),
}

/// What a call owns; the task goes first.
struct Flow {
    told: mpsc::Receiver<Message>,
    _task: AbortOnDrop,
    _listed: Listed,
    running: Running,
}

/// A part that is listed, until this is dropped.
struct Listed {
    active: Arc<Active>,
    entry: (String, u64),
}

impl Active {
    fn add(self: &Arc<Self>, query: &str, running: u64) -> Listed {
        let entry = (query.to_owned(), running);
        self.statements.lock().unwrap_or_else(PoisonError::into_inner).insert(entry.clone());
        self.count.send_modify(|count| *count += 1);
        Listed { active: Arc::clone(self), entry }
    }

    fn of(&self, query: &str) -> Vec<u64> {
        let all = self.statements.lock().unwrap_or_else(PoisonError::into_inner);
        let of_query = (query.to_owned(), 0)..=(query.to_owned(), u64::MAX);
        all.range(of_query).map(|(_, running)| *running).collect()
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.active.statements.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.entry);
        self.active.count.send_modify(|count| *count -= 1);
    }
}

/// A part that is computed.
struct Computed {
    plan: Bytes,
    share: Share,
    text: String,
    from: Option<Arc<OtherNodes>>,
    session: Session,
    shared: Arc<Shared>,
}

impl Computed {
    /// Its rows, as they are computed; or how it ended.
    async fn rows(&self, options: RunOptions) -> Result<PartRows, End> {
        let from: Arc<dyn Shuffled> = match &self.from {
            Some(from) => Arc::<OtherNodes>::clone(from),
            None => Arc::new(NothingShuffled),
        };
        let part = self.session.read_part(&self.plan, &self.share, &from).await;
        let part = part.map_err(|error| {
            self.shared.metrics.refused_call(RefusedCall::Plan);
            End::Refused(error.to_string())
        })?;
        let rows = self.session.run_part(&part, &self.text, options).await;
        rows.map_err(|error| self.failed(error))
    }

    /// How a part ended that failed: for lack of other nodes' rows, it may be.
    fn failed(&self, error: PartError) -> End {
        match self.from.as_ref().and_then(|from| from.lost()) {
            Some(lost) => End::RowsLost(lost),
            None => End::Failed(error),
        }
    }

    /// Sends its rows; how it ended.
    async fn sent(&self, options: RunOptions, tell: &mpsc::Sender<Message>) -> End {
        let rows = match self.rows(options).await {
            Ok(rows) => rows,
            Err(end) => return end,
        };
        let count = Arc::<AtomicU64>::default();
        let counted = Arc::clone(&count);
        let rows = rows.inspect_ok(move |batch| {
            counted.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
        });
        let mut encoded = encoded(rows);
        while let Some(data) = encoded.next().await {
            match data {
                Ok(data) => {
                    if tell.send(Message::Rows(data)).await.is_err() {
                        break;
                    }
                }
                Err(error) => return self.failed(part_error(error)),
            }
        }
        // What it cost is known to who drives it.
        End::Done { rows: count.load(Ordering::Relaxed), spent: Spent::default() }
    }

    /// Keeps its rows; how it ended, if it failed.
    async fn stored(&self, options: RunOptions, buckets: &Buckets) -> Result<StoredRows, End> {
        let rows = self.rows(options).await?;
        let stored = StoredRows::of(rows, buckets, &self.session, &self.shared.spools).await;
        stored.map_err(|error| self.failed(error))
    }
}

fn part_error(error: FlightError) -> PartError {
    let bug = |what: String| {
        let message = format!("rows of a part could not be sent: {what}");
        PartError::from(EngineError::execution(SqlState::InternalError, message))
    };
    match error {
        FlightError::ExternalError(inner) => match inner.downcast::<PartError>() {
            Ok(error) => *error,
            Err(other) => bug(other.to_string()),
        },
        other => bug(other.to_string()),
    }
}

/// The last message of an answer.
fn last(end: Bytes) -> FlightData {
    FlightData { app_metadata: end, ..FlightData::default() }
}

/// What the lists of this node say of a part that ended so.
fn failure_of(end: &[u8]) -> Option<Failure> {
    match End::from_bytes(end).ok()? {
        End::Failed(error) => Some(EngineError::from(error).into()),
        End::Refused(why) => Some(Failure::new("0A000", why)),
        End::RowsLost(Lost { address, why }) => {
            Some(Failure::new("58030", format!("rows of {address} are lost: {why}")))
        }
        End::Done { .. } | End::Draining | End::Kept(..) => None,
    }
}

/// How a part ended that was stopped here.
fn end_of(failure: Failure) -> End {
    let Failure { code, message, hint, .. } = failure;
    if code == "57P01" {
        return End::Draining;
    }
    let known = SqlState::ALL.iter().find(|known| known.as_str() == code);
    let code = known.copied().unwrap_or(SqlState::InternalError);
    let problem = Problem { code, message, hint, position: None };
    End::Failed(PartError::from(match code {
        SqlState::OutOfMemory => EngineError::Limit(problem),
        _ => EngineError::Execution(problem),
    }))
}

type Answer<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;
type PartStream = Answer<FlightData>;

fn not_here<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented(
        "this port is for nodes of a warehouse; clients have one of their own",
    ))
}

#[async_trait]
impl FlightService for Worker {
    type HandshakeStream = Answer<HandshakeResponse>;
    type ListFlightsStream = Answer<FlightInfo>;
    type DoGetStream = PartStream;
    type DoPutStream = Answer<PutResult>;
    type DoExchangeStream = Answer<FlightData>;
    type DoActionStream = Answer<arrow_flight::Result>;
    type ListActionsStream = Answer<ActionType>;

    async fn do_get(&self, request: Request<Ticket>) -> Result<Response<PartStream>, Status> {
        let address = request.remote_addr().map_or_else(String::new, |peer| peer.to_string());
        let (metadata, _, Ticket { ticket }) = request.into_parts();
        let (head, plan, sum) = read_ticket(&ticket).map_err(|why| {
            self.shared.metrics.refused_call(RefusedCall::Ticket);
            Status::invalid_argument(why)
        })?;
        self.check(&metadata, &self.about(What::Part, &head.query, head.part, sum))?;
        Ok(Response::new(match self.refuses(&head) {
            Some(end) => Box::pin(stream::iter([Ok(last(end.into_bytes()))])),
            None => match &head.shuffles.fetch {
                Some(fetch) => self.fetched(&head, fetch),
                None => self.part(&head, plan, address),
            },
        }))
    }

    async fn do_action(
        &self,
        request: Request<Action>,
    ) -> Result<Response<Self::DoActionStream>, Status> {
        let (metadata, _, action) = request.into_parts();
        let body = match action.r#type.as_str() {
            HELLO => {
                self.check(&metadata, &About::HELLO)?;
                serde_json::to_vec(&self.hello())
                    .map_err(|error| Status::internal(error.to_string()))?
            }
            CANCEL => {
                let query = std::str::from_utf8(&action.body)
                    .map_err(|_| Status::invalid_argument("this is no statement's number"))?;
                self.check(&metadata, &self.about(What::Cancel, query, 0, &[]))?;
                for running in self.active.of(query) {
                    self.shared.statements.stop(running, Cause::Client);
                }
                Vec::new()
            }
            _ => return not_here(),
        };
        let answer = arrow_flight::Result { body: body.into() };
        Ok(Response::new(Box::pin(stream::iter([Ok(answer)]))))
    }

    async fn handshake(
        &self,
        _: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        not_here()
    }

    async fn list_flights(
        &self,
        _: Request<Criteria>,
    ) -> Result<Response<Self::ListFlightsStream>, Status> {
        not_here()
    }

    async fn get_flight_info(
        &self,
        _: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        not_here()
    }

    async fn poll_flight_info(
        &self,
        _: Request<FlightDescriptor>,
    ) -> Result<Response<PollInfo>, Status> {
        not_here()
    }

    async fn get_schema(
        &self,
        _: Request<FlightDescriptor>,
    ) -> Result<Response<SchemaResult>, Status> {
        not_here()
    }

    async fn do_put(
        &self,
        _: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoPutStream>, Status> {
        not_here()
    }

    async fn do_exchange(
        &self,
        _: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoExchangeStream>, Status> {
        not_here()
    }

    async fn list_actions(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<Self::ListActionsStream>, Status> {
        not_here()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_on_all_addresses_are_called_as_their_machines() {
        for (address, host, name) in [
            ("127.0.0.1:19001", Some("pod-1"), "127.0.0.1:19001"),
            ("10.0.0.7:19001", Some("pod-1"), "10.0.0.7:19001"),
            ("0.0.0.0:19001", Some("pod-1"), "pod-1:19001"),
            ("[::]:19001", Some("pod-1"), "pod-1:19001"),
            ("0.0.0.0:19001", None, "0.0.0.0:19001"),
        ] {
            assert_eq!(named(address.parse().unwrap(), host.map(str::to_owned)), name);
        }
    }
}
