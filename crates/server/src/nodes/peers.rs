//! Who there is: members are asked for hello every two seconds, by a coordinator that keeps what it hears to itself.
//!
//! # Invariants
//! - Connections are made and driven on the network's runtime, where [`Peers::look`] runs.
//! - Only addresses of this machine are asked, whoever a name is said to be.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arrow_flight::Action;
use arrow_flight::flight_service_client::FlightServiceClient;
use futures::StreamExt;
use tokio::sync::oneshot;
use tonic::transport::{Channel, Endpoint};
use uplake_cluster::members::Members;
use uplake_cluster::nodes::{HELLO_EVERY, Hello, Nodes, Unused};

use super::messages::{HELLO, HelloMessage};
use crate::metrics::Metrics;

/// What a connection takes to be made: nodes are near each other.
const CONNECT: Duration = Duration::from_millis(500);
/// What hello takes, connection included; a node that does not say it is asked again later.
const HELLO_TIME: Duration = Duration::from_millis(1500);
/// What a name takes to be looked up.
const LOOK_UP: Duration = Duration::from_millis(400);
/// A node that is gone without a word is found in the sum of both.
pub(super) const PING_EVERY: Duration = Duration::from_secs(2);
pub(super) const PING_TIME: Duration = Duration::from_secs(3);
/// Bytes of one message of rows: a state of an aggregate, which is not cut, may be large.
const MESSAGE_BYTES: usize = 1 << 30;
/// Bytes under way of a part, and of all parts of a connection: a round trip of 1 ms at 10 GB/s.
pub(super) const STREAM_WINDOW: u32 = 4 << 20;
pub(super) const CONNECTION_WINDOW: u32 = 16 << 20;

pub(super) type Client = FlightServiceClient<Channel>;

/// The nodes of a warehouse, as this one sees them.
pub(crate) struct Peers {
    members: Members,
    warehouse: String,
    start: Instant,
    nodes: Mutex<Nodes>,
    clients: Mutex<BTreeMap<String, Client>>,
    metrics: Arc<Metrics>,
}

impl fmt::Debug for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peers({} of {})", self.members, self.warehouse)
    }
}

impl Peers {
    /// Nobody yet. Nodes of this lake that understand this format will be used.
    pub fn new(
        members: Members,
        warehouse: &str,
        lake: &str,
        format: u64,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        Arc::new(Self {
            members,
            warehouse: warehouse.to_owned(),
            start: Instant::now(),
            nodes: Mutex::new(Nodes::new(lake, format)),
            clients: Mutex::default(),
            metrics,
        })
    }

    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Asks members for hello, for as long as it is polled; `first` hears when all have been asked once.
    pub async fn look(self: Arc<Self>, first: oneshot::Sender<()>) {
        let mut first = Some(first);
        loop {
            let began = Instant::now();
            self.ask_all().await;
            self.metrics.nodes(self.usable().len());
            // Who starts the server may not wait for it.
            let _ = first.take().map(|first| first.send(()));
            // However long one of them takes, the others are asked again before what they said is too old.
            tokio::time::sleep_until((began + HELLO_EVERY).into()).await;
        }
    }

    async fn ask_all(&self) {
        let addresses = self.addresses().await;
        self.nodes().nominate(&addresses);
        self.clients
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|address, _| addresses.contains(address));
        let ask = addresses.iter().map(async |address| {
            let hello = tokio::time::timeout(HELLO_TIME, self.ask(address)).await;
            // One that does not answer is silent, and after three seconds not used.
            if let Ok(Some(hello)) = hello {
                self.nodes().answered(address, hello, self.now());
            }
        });
        futures::future::join_all(ask).await;
    }

    async fn ask(&self, address: &str) -> Option<Hello> {
        let action = Action { r#type: HELLO.to_owned(), body: bytes::Bytes::new() };
        let mut answer = self.client(address)?.do_action(action).await.ok()?.into_inner();
        let said = answer.next().await?.ok()?;
        let said: HelloMessage = serde_json::from_slice(&said.body).ok()?;
        let HelloMessage { name, start, warehouse, works, draining, format, lake, .. } = said;
        Some(Hello { name, start, warehouse, works, draining, format, lake })
    }

    /// The addresses of members that are on this machine.
    async fn addresses(&self) -> Vec<String> {
        match &self.members {
            Members::Listed(listed) => listed.clone(),
            Members::Dns { host, port } => {
                let found = tokio::net::lookup_host((host.as_str(), *port));
                let Ok(Ok(found)) = tokio::time::timeout(LOOK_UP, found).await else {
                    // Nobody knows: those that there were.
                    return self.nodes().addresses();
                };
                let mut found: Vec<String> = found
                    .filter(|address: &SocketAddr| address.ip().is_loopback())
                    .map(|address| address.to_string())
                    .collect();
                found.sort_unstable();
                found.dedup();
                found
            }
        }
    }

    /// What asks the node at an address; to be called on the network's runtime.
    pub(super) fn client(&self, address: &str) -> Option<Client> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(address) {
            return Some(client.clone());
        }
        let endpoint = Endpoint::from_shared(format!("http://{address}")).ok()?;
        let channel = endpoint
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIME)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .connect_lazy();
        let client = FlightServiceClient::new(channel).max_decoding_message_size(MESSAGE_BYTES);
        clients.insert(address.to_owned(), client.clone());
        Some(client)
    }

    /// Nodes that can be used, as (name, address), in the order of their names.
    pub fn usable(&self) -> Vec<(String, String)> {
        let nodes = self.nodes();
        let usable = nodes.usable(&self.warehouse, self.now());
        usable.into_iter().map(|(name, address)| (name.to_owned(), address.to_owned())).collect()
    }

    /// How many members there are.
    pub fn members(&self) -> usize {
        self.nodes().addresses().len()
    }

    /// Why members are not used, in words.
    pub fn why_not(&self) -> String {
        let nodes = self.nodes();
        let of = |address: &String| {
            let why = match nodes.why_not(address, self.now())? {
                Unused::Silent => "does not answer",
                Unused::Out => "failed a moment ago",
                Unused::Draining => "is about to end",
                Unused::Coordinates => "takes no parts",
                Unused::OtherFormat => "is of another version",
                Unused::OtherLake => "serves another lake",
            };
            Some(format!("{address} {why}"))
        };
        let all: Vec<String> = nodes.addresses().iter().filter_map(of).collect();
        match all.is_empty() {
            true => format!("nobody of {} is of the warehouse {}", self.members, self.warehouse),
            false => all.join(", "),
        }
    }

    /// A part or a connection failed.
    pub(super) fn failed(&self, address: &str) {
        let now = self.now();
        self.nodes().failed(address, now);
    }

    /// It takes nothing more.
    pub(super) fn drains(&self, address: &str) {
        self.nodes().drains(address);
    }

    /// It did not understand a part.
    pub(super) fn refused(&self, address: &str) {
        self.nodes().refused(address);
    }
}
