//! Connections to other nodes, which are made once and shared.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow_flight::Ticket;
use arrow_flight::flight_service_client::FlightServiceClient;
use tonic::Request;
use tonic::transport::{Channel, Endpoint};
use uplake_engine::Share;

use super::messages::{Common, SUM_BYTES, Shuffles, ticket};
use super::token::{About, What};
use super::trust::Trust;
use super::wire::connector;
use crate::node_options::is_loopback;

/// What a connection takes to be made: nodes are near each other.
const CONNECT: Duration = Duration::from_millis(500);
/// A node that is gone without a word is found in the sum of both.
pub(super) const PING_EVERY: Duration = Duration::from_secs(2);
pub(super) const PING_TIME: Duration = Duration::from_secs(3);
/// Bytes of one message of rows: a state of an aggregate, which is not cut, may be large.
const MESSAGE_BYTES: usize = 1 << 30;
/// Bytes under way of a part, and of all parts of a connection: a round trip of 1 ms at 10 GB/s.
pub(super) const STREAM_WINDOW: u32 = 4 << 20;
pub(super) const CONNECTION_WINDOW: u32 = 16 << 20;
/// Connections that are kept; whoever has one may go on with it.
const KEPT: usize = 1024;

pub(super) type Client = FlightServiceClient<Channel>;

/// The connections of one node.
pub(super) struct Channels {
    pub trust: Arc<Trust>,
    /// With the number of what was believed when they were made.
    clients: Mutex<BTreeMap<String, (u64, Client)>>,
}

impl Channels {
    pub fn new(trust: Arc<Trust>) -> Self {
        Self { trust, clients: Mutex::default() }
    }

    /// What asks the node at an address, which has a certificate for this host; to be called on the network's runtime.
    pub fn client(&self, address: &str, host: &str) -> Option<Client> {
        if !self.trust.reaches_beyond() && !is_loopback(address) {
            return None;
        }
        let (number, tls) = self.trust.client();
        let mut clients = self.lock();
        if let Some((_, client)) = clients.get(address).filter(|(made, _)| *made == number) {
            return Some(client.clone());
        }
        let endpoint = Endpoint::from_shared(format!("http://{address}")).ok()?;
        let endpoint = endpoint
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIME)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW);
        let channel = match tls {
            Some(tls) => endpoint.connect_with_connector_lazy(connector(address, host, tls)?),
            None => endpoint.connect_lazy(),
        };
        let client = FlightServiceClient::new(channel).max_decoding_message_size(MESSAGE_BYTES);
        if clients.len() >= KEPT {
            clients.clear();
        }
        clients.insert(address.to_owned(), (number, client.clone()));
        Some(client)
    }

    /// What asks the node at an address for a part; `None` if there is no such address, or the part is too large.
    pub fn part(
        &self,
        (address, host): (&str, &str),
        (common, warehouse): (&Common, &str),
        (part, share, shuffles): (usize, &Share, &Shuffles),
        left_ms: Option<u64>,
        fragment: &[u8],
    ) -> Option<(Client, Request<Ticket>)> {
        let ticket = ticket(common, (part, share), shuffles, left_ms, fragment)?;
        let (Common { query, lake, .. }, sum) = (common, ticket.last_chunk::<SUM_BYTES>()?);
        let about = About { what: What::Part, query, part, warehouse, lake, sum };
        let request = self.trust.request(Ticket { ticket: ticket.clone() }, &about);
        Some((self.client(address, host)?, request))
    }

    /// Those to other addresses are not needed any more.
    pub fn retain(&self, addresses: &[String]) {
        self.lock().retain(|address, _| addresses.contains(address));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, (u64, Client)>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
