//! What all connections of a server share.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio_rustls::rustls::ServerConfig;
use uplake_engine::{Engine, QueryProgress};
use uplake_table::Lake;

use crate::access::{Directory, Strangers};
use crate::catalog::Catalog;
use crate::cost::Prices;
use crate::limits::{Connections, FailedLogins, LOADS_AT_ONCE, Limits, MemoryShares, Quotas, Rate};
use crate::logins::Logins;
use crate::metrics::{Metrics, Now};
use crate::node_options::NodeOptions;
use crate::pg::{ParsedTexts, Probes};
use crate::roll::Roll;
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
    /// What each address and role may do.
    pub limits: Limits,
    /// Where rows wait for slow clients, and how many bytes of them.
    pub spool_folder: PathBuf,
    pub spool_bytes: u64,
    /// Milliseconds since 1970, UTC.
    pub clock: Arc<dyn Fn() -> i64 + Send + Sync>,
    /// Fills with random bytes that nobody can guess.
    pub random: Arc<Random>,
    /// US dollars for an hour of one core: what statements are told to have cost, and tenants are charged. Requests have
    /// the store's prices.
    pub dollars_per_core_hour: f64,
    /// Are rows of `system` tables kept in the lake, in `_uplake/system`?
    pub history: bool,
    /// The audit log on this machine.
    pub audit: Option<PathBuf>,
    /// What it does for other nodes, and they for it.
    pub nodes: NodeOptions,
}

impl ServerOptions {
    /// What is charged for statements on this lake.
    pub(crate) fn prices(&self, lake: &Lake) -> Prices {
        let storage = lake.is_remote().then(|| lake.storage().options().prices);
        Prices { storage, core_hour: self.dollars_per_core_hour }
    }
}

/// What all connections share.
pub(crate) struct Shared {
    pub engine: Arc<Engine>,
    pub options: ServerOptions,
    pub statements: Arc<Statements>,
    pub spools: Arc<SpoolRoom>,
    pub metrics: Arc<Metrics>,
    /// Connections of all protocols.
    pub connections: Arc<Connections>,
    pub login_rate: Rate,
    pub statement_rate: Rate,
    pub failed_logins: FailedLogins,
    /// What tenants use.
    pub quotas: Arc<Quotas>,
    pub memory_shares: MemoryShares,
    /// Loads take turns.
    pub loads: Arc<Semaphore>,
    /// Who there is, and who may what.
    pub directory: Arc<Directory>,
    pub logins: Logins,
    /// What makes those up who are not there.
    pub strangers: Strangers,
    pub catalog: Catalog,
    /// What pools ask again and again.
    pub probes: Probes,
    pub texts: ParsedTexts,
    /// What the Postgres wire is encrypted with.
    pub pg_tls: Option<Arc<ServerConfig>>,
    /// Who is connected.
    pub roll: Arc<Roll>,
    /// What the server does for itself, such as a look at the lake: it pays.
    pub own: Arc<QueryProgress>,
}

impl Shared {
    /// What metrics are told of when somebody looks.
    pub fn now(&self) -> Now {
        let session = self.engine.session();
        let storage = session.lake().storage();
        Now {
            usage: session.usage(),
            spool_bytes: self.spools.used(),
            storage: storage.total(),
            own: self.own.counts().storage,
            cache: storage.cache_usage(),
            kept: session.caches(),
            statements: self.statements.count(),
            access_is_read: self.directory.is_read(),
        }
    }

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
        let directory = Arc::new(Directory::from(document));
        let prices = options.prices(engine.session().lake());
        let quotas = Quotas::new(Arc::clone(&directory), Arc::clone(&options.clock), prices);
        let statements = Statements::new(&compute, clock, quotas);
        Self::new(engine, options, statements, directory, catalog, None, Arc::default())
    }

    /// Of an engine that was made with the catalog's additions.
    pub fn new(
        engine: Arc<Engine>,
        options: ServerOptions,
        statements: Arc<Statements>,
        directory: Arc<Directory>,
        catalog: Catalog,
        pg_tls: Option<Arc<ServerConfig>>,
        roll: Arc<Roll>,
    ) -> Arc<Self> {
        let spools = SpoolRoom::new(options.spool_folder.clone(), options.spool_bytes, SLOW_READER);
        let metrics = Metrics::new((options.clock)());
        let (counted, prices) = (Arc::clone(&metrics), options.prices(engine.session().lake()));
        statements.at_end(move |listed| counted.ended(listed, &prices));
        let limits = options.limits;
        let connections = Connections::new(options.connections, limits.connections_of_address);
        let quotas = Arc::clone(statements.quotas());
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
            login_rate: Rate::new(limits.logins_per_second),
            statement_rate: Rate::new(limits.statements_per_second),
            failed_logins: FailedLogins::default(),
            quotas,
            memory_shares: MemoryShares::default(),
            loads: Arc::new(Semaphore::new(LOADS_AT_ONCE)),
            directory,
            logins: Logins::default(),
            strangers,
            catalog,
            probes: Probes::default(),
            texts: ParsedTexts::default(),
            pg_tls,
            roll,
            own: QueryProgress::new(),
        })
    }
}
