//! Who there is: members are asked for hello every two seconds, by a coordinator that keeps what it hears to itself.
//!
//! # Invariants
//! - Connections are made and driven on the network's runtime, where [`Peers::look`] runs.
//! - Without certificates and a secret only addresses of this machine are asked, whoever a name is said to be.
//! - With certificates a node is believed if its own is for the host of `--members`: of `dns:NAME:PORT` that is NAME.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arrow_flight::Action;
use futures::StreamExt;
use tokio::sync::oneshot;
use uplake_cluster::members::Members;
use uplake_cluster::nodes::{HELLO_EVERY, Hello, Nodes, Unused};

use super::channels::{Channels, Client};
use super::messages::{HELLO, HelloMessage};
use super::token::About;
use super::trust::Trust;
use super::wire::{host_of, words};
use crate::metrics::Metrics;

/// What hello takes, connection included; a node that does not say it is asked again later.
const HELLO_TIME: Duration = Duration::from_millis(1500);
/// What a name takes to be looked up.
const LOOK_UP: Duration = Duration::from_millis(400);
/// The nodes of a warehouse, as this one sees them.
pub(crate) struct Peers {
    members: Members,
    /// That of this node.
    warehouse: String,
    start: Instant,
    nodes: Mutex<Nodes>,
    pub(super) channels: Channels,
    /// Why those that do not answer do not, by address.
    troubles: Mutex<BTreeMap<String, String>>,
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
        trust: Arc<Trust>,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        Arc::new(Self {
            members,
            warehouse: warehouse.to_owned(),
            start: Instant::now(),
            nodes: Mutex::new(Nodes::new(lake, format)),
            channels: Channels::new(trust),
            troubles: Mutex::default(),
            metrics,
        })
    }

    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn troubles(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks members for hello, for as long as it is polled; `first` hears when all have been asked once.
    pub async fn look(self: Arc<Self>, first: oneshot::Sender<()>) {
        let mut first = Some(first);
        loop {
            let began = Instant::now();
            self.ask_all().await;
            self.metrics.nodes(self.usable(&self.warehouse).len());
            // Who starts the server may not wait for it.
            let _ = first.take().map(|first| first.send(()));
            // However long one of them takes, the others are asked again before what they said is too old.
            tokio::time::sleep_until((began + HELLO_EVERY).into()).await;
        }
    }

    async fn ask_all(&self) {
        let addresses = self.addresses().await;
        self.nodes().nominate(&addresses);
        self.channels.retain(&addresses);
        self.troubles().retain(|address, _| addresses.contains(address));
        let ask = addresses.iter().map(async |address| {
            // One that does not answer is silent, and after three seconds not used.
            let trouble = match tokio::time::timeout(HELLO_TIME, self.ask(address)).await {
                Ok(Ok(hello)) => {
                    self.nodes().answered(address, hello, self.now());
                    self.troubles().remove(address);
                    return;
                }
                Ok(Err(why)) => why,
                Err(_) => format!("nothing came within {HELLO_TIME:?}"),
            };
            self.troubles().insert(address.clone(), trouble);
        });
        futures::future::join_all(ask).await;
    }

    async fn ask(&self, address: &str) -> Result<Hello, String> {
        let no_node = || "what answers there is no node".to_owned();
        let action = Action { r#type: HELLO.to_owned(), body: bytes::Bytes::new() };
        let action = self.trust().request(action, &About::HELLO);
        let mut client = self.client(address).ok_or("this is no address")?;
        let answer = client.do_action(action).await.map_err(|status| words(&status))?;
        let said = answer.into_inner().next().await.ok_or_else(no_node)?;
        let said = said.map_err(|status| words(&status))?;
        let said = serde_json::from_slice(&said.body).map_err(|_| no_node())?;
        let HelloMessage { name, start, warehouse, works, draining, format, lake, .. } = said;
        Ok(Hello { name, start, warehouse, works, draining, format, lake })
    }

    /// The addresses of members that may be asked.
    async fn addresses(&self) -> Vec<String> {
        match &self.members {
            Members::Listed(listed) => listed.clone(),
            Members::Dns { host, port } => {
                let found = tokio::net::lookup_host((host.as_str(), *port));
                let Ok(Ok(found)) = tokio::time::timeout(LOOK_UP, found).await else {
                    // Nobody knows: those that there were.
                    return self.nodes().addresses();
                };
                let is_near = |address: &SocketAddr| address.ip().is_loopback();
                let all = self.trust().reaches_beyond();
                let mut found: Vec<String> = found
                    .filter(|address| all || is_near(address))
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
        self.channels.client(address, self.host(address)?)
    }

    /// Whom the certificate of the node at an address is for.
    pub(super) fn host<'a>(&'a self, address: &'a str) -> Option<&'a str> {
        match &self.members {
            Members::Listed(_) => host_of(address),
            Members::Dns { host, .. } => Some(host),
        }
    }

    pub(super) fn trust(&self) -> &Trust {
        &self.channels.trust
    }

    /// Nodes of a warehouse that can be used, as (name, address), in the order of their names.
    pub fn usable(&self, warehouse: &str) -> Vec<(String, String)> {
        let nodes = self.nodes();
        let usable = nodes.usable(warehouse, self.now());
        usable.into_iter().map(|(name, address)| (name.to_owned(), address.to_owned())).collect()
    }

    /// How many members there are.
    pub fn members(&self) -> usize {
        self.nodes().addresses().len()
    }

    /// Why members are not used for a warehouse, in words.
    pub fn why_not(&self, warehouse: &str) -> String {
        let nodes = self.nodes();
        let of = |address: &String| {
            let why = match nodes.why_not(address, self.now())? {
                Unused::Silent => match self.troubles().get(address) {
                    Some(why) => return Some(format!("{address} does not answer: {why}")),
                    None => "does not answer",
                },
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
            true => format!("nobody of {} is of the warehouse {warehouse}", self.members),
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
