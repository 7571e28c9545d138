//! What all connections of a server share.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio_rustls::rustls::ServerConfig;
use uplake_engine::Engine;

use crate::access::{Directory, Strangers};
use crate::catalog::Catalog;
use crate::logins::Logins;
use crate::metrics::Metrics;
use crate::spool::{SLOW_READER, SpoolRoom};
use crate::statements::Statements;

/// Fills with random bytes.
pub type Random = dyn Fn(&mut [u8]) + Send + Sync;

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
    pub random: Arc<Random>,
}

/// What all connections share.
pub(crate) struct Shared {
    pub engine: Arc<Engine>,
    pub options: ServerOptions,
    pub statements: Arc<Statements>,
    pub spools: Arc<SpoolRoom>,
    pub metrics: Arc<Metrics>,
    /// Room for connections of all protocols.
    pub connections: Arc<Semaphore>,
    /// Who there is, and who may what.
    pub directory: Arc<Directory>,
    pub logins: Logins,
    /// What makes those up who are not there.
    pub strangers: Strangers,
    pub catalog: Catalog,
    /// What the Postgres wire is encrypted with.
    pub pg_tls: Option<Arc<ServerConfig>>,
}

impl Shared {
    /// Without users, and with a catalog that knows no table.
    #[cfg(test)]
    pub fn for_tests(engine: Arc<Engine>, options: ServerOptions) -> Arc<Self> {
        let document = crate::access::Document {
            number: 0,
            at: 0,
            by: "test".to_owned(),
            access: crate::access::Access::default(),
        };
        let catalog = Catalog::new(crate::catalog::ServerState::default());
        let compute = tokio::runtime::Handle::current();
        let clock = crate::statements::Clock(Arc::clone(&options.clock));
        let statements = Statements::new(&compute, clock);
        let directory = Arc::new(Directory::from(document));
        Self::new(engine, options, statements, directory, catalog, None)
    }

    /// Of an engine that was made with the catalog's additions.
    pub fn new(
        engine: Arc<Engine>,
        options: ServerOptions,
        statements: Arc<Statements>,
        directory: Arc<Directory>,
        catalog: Catalog,
        pg_tls: Option<Arc<ServerConfig>>,
    ) -> Arc<Self> {
        let spools = SpoolRoom::new(options.spool_folder.clone(), options.spool_bytes, SLOW_READER);
        let metrics = Metrics::new((options.clock)());
        let connections = Arc::new(Semaphore::new(options.connections));
        let mut secret = [0; 32];
        (options.random)(&mut secret);
        let strangers = Strangers::new(&secret);
        Arc::new(Self {
            engine,
            options,
            statements,
            spools,
            metrics,
            connections,
            directory,
            logins: Logins::default(),
            strangers,
            catalog,
            pg_tls,
        })
    }
}
