//! What all connections of a server share.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use uplake_engine::Engine;

use crate::metrics::Metrics;
use crate::spool::{SLOW_READER, SpoolRoom};
use crate::statements::{Clock, Statements};

/// How a server is to be run.
#[derive(Clone)]
pub struct ServerOptions {
    /// Where the Postgres wire listens.
    pub pg: Option<SocketAddr>,
    /// Where HTTP and Flight SQL listen.
    pub http: Option<SocketAddr>,
    /// The name that clients give as their database.
    pub database: String,
    /// Connections at once, of all protocols.
    pub connections: usize,
    /// Where rows wait for slow clients, and how many bytes of them.
    pub spool_folder: PathBuf,
    pub spool_bytes: u64,
    /// Milliseconds since 1970, UTC.
    pub clock: Arc<dyn Fn() -> i64 + Send + Sync>,
    /// Fills with random bytes that nobody can guess.
    pub random: Arc<dyn Fn(&mut [u8]) + Send + Sync>,
}

/// What all connections share.
pub(crate) struct Shared {
    pub engine: Arc<Engine>,
    pub options: ServerOptions,
    pub statements: Arc<Statements>,
    pub spools: Arc<SpoolRoom>,
    pub metrics: Arc<Metrics>,
}

impl Shared {
    /// To be called on the runtime that computes.
    pub fn new(engine: Arc<Engine>, options: ServerOptions) -> Arc<Self> {
        let compute = tokio::runtime::Handle::current();
        let statements = Statements::new(compute, Clock(Arc::clone(&options.clock)));
        let spools = SpoolRoom::new(options.spool_folder.clone(), options.spool_bytes, SLOW_READER);
        let metrics = Metrics::new((options.clock)());
        Arc::new(Self { engine, options, statements, spools, metrics })
    }
}
