//! A server from its first connection to its last.
//!
//! # Invariants
//! - Nobody beyond this machine is served without users and TLS.
//! - A server that stops takes no new connection, lets statements end for as long as it is told, and then stops them.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use futures::FutureExt;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use uplake_cluster::members::Members;
use uplake_engine::{Engine, EngineError, Session, SessionOptions, SharedMemory};
use uplake_table::{Lake, TableError};

use crate::access::{AccessError, Directory};
use crate::access_sql::AccessStatements;
use crate::audit::{Action, Note};
use crate::catalog::{Catalog, Hidden, REFRESH_SECONDS, ServerState};
use crate::drivers::AbortOnDrop;
use crate::failure::Failure;
use crate::limits::{Quotas, kept};
use crate::node_options::Beyond;
use crate::nodes::{self, Me, Trust, TrustError, Warehouse, Worker};
use crate::roll::Roll;
use crate::server::{ServerOptions, Shared};
use crate::statements::{Cause, Clock, Statements};
use crate::system::{Sources, System};
use crate::tls::{Certificate, TlsError};
#[cfg(feature = "otel")]
use crate::traces::Traces;
use crate::{http, pg, sockets};

/// How often it is looked whether users have changed.
const USERS_EVERY: Duration = Duration::from_secs(5);
/// How often the certificate's files are read, who replaced them may have said so or not.
const CERTIFICATE_EVERY: Duration = Duration::from_secs(60);
/// How often what statements use is counted: a disk of 2.5 GB/s gives 256 MiB meanwhile.
const COUNTED_EVERY: Duration = Duration::from_millis(100);
/// How often what tenants have used is kept.
const KEPT_EVERY: Duration = Duration::from_secs(60);
/// How often rows of `system` tables are written to the lake, if not before for want of room, and after how many
/// times they are put in order.
const KEEP_EVERY: Duration = Duration::from_secs(60);
const TIDY_ROUNDS: u64 = 60;
/// What that may take when the server ends.
const KEEP_TIME: Duration = Duration::from_secs(10);
/// Said when they cannot be written.
const UNKEPT: &str =
    "warning: what is told of statements is not kept in the lake (--no-history says so)";
/// What a server waits for members to answer before it says that it serves.
const NODES_TIME: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// What statements that were stopped have to end.
const STOP_TIME: Duration = Duration::from_secs(1);

/// Why a server does not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// An address is taken, or is not this machine's.
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    /// The network has no thread.
    #[error("cannot start the network's thread: {0}")]
    Thread(io::Error),
    /// It would be open to everybody.
    #[error("{address} can be reached from other machines: {missing}")]
    Open { address: SocketAddr, missing: &'static str },
    /// Nodes would speak to each other over a network that others read, and write to.
    #[error(
        "{} is not of this machine: what nodes send each other is not encrypted without certificates, and without a \
         secret others can ask them; add {}, or use addresses of this machine (127.0.0.1, ::1, localhost)",
        .0.what, .0.missing
    )]
    NodeBeyond(Beyond),
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The audit log cannot be written.
    #[error("the audit log {}: {source}", path.display())]
    Audit { path: PathBuf, source: io::Error },
    /// The environment says where spans are to go, and they cannot.
    #[cfg(feature = "otel")]
    #[error("spans cannot be sent as OTEL_EXPORTER_OTLP_… say: {0}")]
    Traces(String),
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Users cannot be read: without, everybody would be let in.
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error(transparent)]
    Table(#[from] TableError),
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// A server that runs. Dropping it does not wait for anybody.
pub struct Server {
    shared: Arc<Shared>,
    pg: Option<SocketAddr>,
    http: Option<SocketAddr>,
    node: Option<SocketAddr>,
    certificate: Option<Arc<Certificate>>,
    trust: Arc<Trust>,
    drain: watch::Sender<bool>,
    network: JoinHandle<()>,
    system: Arc<System>,
    /// Looks at users and tables, counts what is used, and keeps what is told of statements.
    _own: [AbortOnDrop; 3],
    #[cfg(feature = "otel")]
    traces: Option<Arc<Traces>>,
}

impl Server {
    /// Listens, and answers from a thread of its own; what computes runs on the runtime that this is called on.
    ///
    /// # Errors
    /// [`ServeError`] if the lake or its users cannot be read, or an address cannot be had or is open to other
    /// machines without users and TLS.
    pub async fn start(
        lake: Lake,
        session: &SessionOptions,
        options: ServerOptions,
        tls: Option<(&Path, &Path)>,
    ) -> Result<Self, ServeError> {
        let certificate = tls.map(|(chain, key)| Certificate::open(chain, key)).transpose()?;
        let directory = Arc::new(Directory::open(&lake).await?);
        for address in options.pg.iter().chain(&options.http) {
            check_open(*address, certificate.is_some(), directory.has_users())?;
        }
        if let Some(beyond) = options.nodes.beyond_loopback() {
            return Err(ServeError::NodeBeyond(beyond));
        }
        let trust = Trust::open(&options.nodes.trust, Arc::clone(&options.clock))?;
        if let Some(members) = &options.nodes.members {
            nodes::check_names(members, &trust)?;
        }
        let mut state = ServerState::default();
        state.directory = Some(Arc::clone(&directory));
        state.database.clone_from(&options.database);
        state.started_micros = (options.clock)().saturating_mul(1000);
        let catalog = Catalog::new(state);
        let users = Arc::clone(&directory);
        catalog.hide(move |role, tables| {
            let rights = users.current().access.of(role);
            let unseen = tables.iter().filter(|table| !rights.sees(table));
            let tables = unseen.map(|table| (*table).to_owned()).collect();
            Hidden { tables, columns: rights.all_hidden().clone() }
        });
        let memory = SharedMemory::new(session.memory_bytes);
        let compute = tokio::runtime::Handle::current();
        let prices = options.prices(&lake);
        let quotas = Quotas::new(Arc::clone(&directory), Arc::clone(&options.clock), prices);
        if let Some(text) = lake.local_folder().and_then(|folder| kept(&folder)) {
            quotas.go_on(&text);
        }
        let statements = Statements::new(&compute, Clock(Arc::clone(&options.clock)), quotas);
        if let Some(path) = &options.audit {
            let failed = |source| ServeError::Audit { path: path.clone(), source };
            statements.audit.write_to(path).map_err(failed)?;
        }
        let mut additions = catalog.additions();
        let roll = Arc::new(Roll::default());
        let system = System::new(Sources {
            lake: lake.clone(),
            statements: Arc::clone(&statements),
            directory: Arc::clone(&directory),
            roll: Arc::clone(&roll),
            prices,
            settings: told(&options, session),
            node: number(&options),
            history: options.history,
        })?;
        let system = Arc::new(system);
        additions.schemas.push(Arc::<System>::clone(&system));
        let about_access = AccessStatements::new(
            lake.clone(),
            Some(Arc::clone(&directory)),
            Arc::clone(&options.clock),
            Arc::clone(&options.random),
        );
        let about_access = Arc::new(about_access.audited(Arc::clone(&statements.audit)));
        additions.statements = Some(Arc::clone(&about_access) as _);
        let engine = Engine::with_additions(lake, session, &memory, additions)?;
        about_access.set_engine(&engine);
        catalog.refresh_with_views(&engine.session()).await?;
        let (pg_listener, pg) = listen(options.pg)?.unzip();
        let (http_listener, http) = listen(options.http)?.unzip();
        let (node_listener, node) = listen(options.nodes.listen)?.unzip();
        let pg_tls = certificate.as_ref().map(Certificate::for_postgres).transpose()?;
        let http_tls = certificate.as_ref().map(Certificate::for_http).transpose()?;
        let shared = Shared::new(engine, options, statements, directory, catalog, pg_tls, roll);
        #[cfg(feature = "otel")]
        let traces = Traces::of_environment().map_err(ServeError::Traces)?.map(Arc::new);
        #[cfg(feature = "otel")]
        traces.iter().for_each(|traces| traces.follow(&shared));
        let drain = watch::Sender::new(false);
        let (for_network, drains) = (Arc::clone(&shared), drain.subscribe());
        let network = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ServeError::Thread)?;
        let me = Me::new(node.or(pg).or(http), &shared.options);
        let (of_worker, trusted) = (Arc::clone(&trust), Arc::clone(&trust));
        let worker = Worker::new(Arc::clone(&shared), me.clone(), of_worker, drain.subscribe());
        let members = shared.options.nodes.members.clone();
        let peers = members.map(|members| {
            let handle = network.handle().clone();
            let works = (node.is_some(), handle);
            Warehouse::join(&shared, members, me, works, trusted, drain.subscribe())
        });
        let (first, all_were_asked) = oneshot::channel();
        let work = async move {
            // Whoever registers a socket hears of it: not the runtime that computes.
            let pg = async {
                if let Some(Ok(listener)) = pg_listener.map(TcpListener::from_std) {
                    pg::serve(Arc::clone(&for_network), listener, drains.clone()).await;
                }
            };
            let http = async {
                if let Some(Ok(listener)) = http_listener.map(TcpListener::from_std) {
                    let shared = Arc::clone(&for_network);
                    http::serve(shared, listener, http_tls, drains.clone()).await;
                }
            };
            let nodes = async {
                if let Some(Ok(listener)) = node_listener.map(TcpListener::from_std) {
                    nodes::serve(worker, listener).await;
                }
            };
            // Ends with the runtime.
            drop(peers.map(|peers| tokio::spawn(peers.look(first))));
            tokio::join!(pg, http, nodes);
        };
        let thread = std::thread::Builder::new().name("network".to_owned());
        let network = thread.spawn(move || network.block_on(work)).map_err(ServeError::Thread)?;
        // The first statement finds those who answer. Without members nobody says so, and nobody waits.
        let _ = tokio::time::timeout(NODES_TIME, all_were_asked).await;
        if let Some(certificate) = &certificate {
            shared.metrics.certificate(certificate.expires(), true);
        }
        if trust.has_files() {
            shared.metrics.node_trust(trust.expires(), true);
        }
        let read_again = (certificate.clone(), Arc::clone(&trust));
        let looks = look(Arc::clone(&shared), read_again).boxed();
        let counts = count(Arc::clone(&shared)).boxed();
        let keeps = keep(Arc::clone(&shared), Arc::clone(&system)).boxed();
        let own = [looks, counts, keeps]
            .map(|work| shared.statements.spawn(shared.own.clone().during(work)));
        Ok(Self {
            shared,
            system,
            pg,
            http,
            node,
            certificate,
            trust,
            drain,
            network,
            _own: own,
            #[cfg(feature = "otel")]
            traces,
        })
    }

    /// Does `work` that is no statement's, and whose tasks are not either.
    pub fn own<T>(&self, work: impl FnOnce() -> T) -> T {
        self.shared.own.run(work)
    }

    /// A session that may do everything, for the process itself.
    pub fn session(&self) -> Session {
        self.shared.engine.session()
    }

    /// Where the Postgres wire listens.
    pub fn pg_address(&self) -> Option<SocketAddr> {
        self.pg
    }

    /// Where HTTP listens.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http
    }

    /// Where it takes parts of other nodes' statements.
    pub fn node_address(&self) -> Option<SocketAddr> {
        self.node
    }

    /// Reads the certificate's files again.
    ///
    /// # Errors
    /// [`TlsError`]; the old certificate stays.
    pub fn reload_certificate(&self) -> Result<(), TlsError> {
        self.certificate.as_ref().map_or(Ok(()), |certificate| reload(&self.shared, certificate))
    }

    /// Reads again whom this node believes among nodes; false if nobody has said.
    ///
    /// # Errors
    /// [`TrustError`]; what was believed before stays.
    pub fn reload_trust(&self) -> Result<bool, TrustError> {
        reload_trust(&self.shared, &self.trust)
    }

    /// The process holds more memory than it may: stops the statement that came last. False if none runs.
    pub fn relieve_memory(&self) -> bool {
        self.shared.statements.stop_newest(Cause::Memory)
    }

    /// Ends: no new connections; statements may end within `patience`, then they are stopped. How many were.
    /// Dropping the future leaves the server without new connections.
    pub async fn stop(&self, patience: Duration) -> usize {
        self.drain.send_replace(true);
        let is_over = self.is_over_within(patience).await;
        let stopped = if is_over { 0 } else { self.shared.statements.close(Cause::Shutdown) };
        if !is_over {
            self.is_over_within(STOP_TIME).await;
        }
        self.shared.keep_used();
        let system = Arc::clone(&self.system);
        let kept = Box::pin(async move {
            system.keep().await.map_err(|error| Failure::from(EngineError::from(error)))
        });
        let kept = self.shared.statements.compute(self.shared.own.clone().during(kept));
        match tokio::time::timeout(KEEP_TIME, kept).await {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => eprintln!("{UNKEPT}: {failure}"),
            Err(_) => eprintln!("{UNKEPT}: the lake did not answer within {KEEP_TIME:?}"),
        }
        self.shared.statements.audit.sync();
        #[cfg(feature = "otel")]
        self.traces.iter().for_each(|traces| traces.end());
        stopped
    }

    /// Waits for the network's thread, which ends with its last connection.
    async fn is_over_within(&self, patience: Duration) -> bool {
        let ends = async {
            while !self.network.is_finished() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        tokio::time::timeout(patience, ends).await.is_ok()
    }
}

/// An address and what listens there, if one is wanted.
fn listen(
    address: Option<SocketAddr>,
) -> Result<Option<(std::net::TcpListener, SocketAddr)>, ServeError> {
    let Some(address) = address else { return Ok(None) };
    let failed = |source| ServeError::Listen { address, source };
    let listener = sockets::listen(address).map_err(failed)?;
    let found = listener.local_addr().map_err(failed)?;
    Ok(Some((listener, found)))
}

/// Reads the certificate's files again, and counts what came of it.
fn reload(shared: &Shared, certificate: &Certificate) -> Result<(), TlsError> {
    let read = certificate.reload((shared.options.clock)());
    shared.metrics.certificate(certificate.expires(), read.is_ok());
    read
}

/// Reads again what nodes are believed by, and counts what came of it; false if there is nothing.
fn reload_trust(shared: &Shared, trust: &Trust) -> Result<bool, TrustError> {
    if !trust.has_files() {
        return Ok(false);
    }
    let read = trust.reload();
    shared.metrics.node_trust(trust.expires(), read.is_ok());
    read.map(|()| true)
}

/// Looks at users, tables and certificates now and then. What cannot be read stays as it was known.
async fn look(shared: Arc<Shared>, (certificate, trust): (Option<Arc<Certificate>>, Arc<Trust>)) {
    let session = shared.engine.session();
    let lake = session.lake();
    for round in 1_u64.. {
        tokio::time::sleep(USERS_EVERY).await;
        let before = shared.directory.current().number;
        let _ = shared.directory.refresh(lake).await;
        let document = shared.directory.current();
        if document.number != before {
            shared.statements.audit.note(Note {
                at: shared.statements.now(),
                action: Action::Access,
                role: document.by.clone(),
                address: String::new(),
                protocol: String::new(),
                what: format!("users and rights are those of document {}", document.number),
                sqlstate: None,
            });
        }
        if round.is_multiple_of(REFRESH_SECONDS / USERS_EVERY.as_secs()) {
            let _ = shared.catalog.refresh_with_views(&session).await;
        }
        if round.is_multiple_of(CERTIFICATE_EVERY.as_secs() / USERS_EVERY.as_secs()) {
            // The metrics say so.
            let _ = certificate.as_ref().map(|certificate| reload(&shared, certificate));
            let _ = reload_trust(&shared, &trust);
        }
        if round.is_multiple_of(KEPT_EVERY.as_secs() / USERS_EVERY.as_secs()) {
            shared.keep_used();
        }
    }
}

/// Counts what statements use.
async fn count(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(COUNTED_EVERY).await;
        shared.count_use();
    }
}

/// Writes rows of `system` tables to the lake each minute, and puts them in order each hour. What cannot be written
/// stays in memory as long as there is room, and is tried again.
async fn keep(shared: Arc<Shared>, system: Arc<System>) {
    let mut is_told = false;
    for round in 1_u64.. {
        for _ in 0..KEEP_EVERY.as_secs() {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if system.is_pressing() && !is_told {
                break;
            }
        }
        let kept = match system.keep().await {
            Ok(()) if round.is_multiple_of(TIDY_ROUNDS) => system.tidy().await,
            kept => kept,
        };
        shared.metrics.unkept(system.lost());
        if let Err(error) = &kept
            && !is_told
        {
            eprintln!("{UNKEPT}: {error}");
        }
        is_told = kept.is_err();
    }
}

/// What the server was told, for `system.settings`.
fn told(options: &ServerOptions, session: &SessionOptions) -> Vec<(&'static str, String)> {
    let address = |address: Option<SocketAddr>| address.map_or_else(String::new, |a| a.to_string());
    let timeout = session.timeout.map_or_else(|| "0".to_owned(), |timeout| format!("{timeout:?}"));
    vec![
        ("pg", address(options.pg)),
        ("http", address(options.http)),
        ("database", options.database.clone()),
        ("connections", options.connections.to_string()),
        ("spool_bytes", options.spool_bytes.to_string()),
        ("memory_bytes", session.memory_bytes.to_string()),
        ("threads", session.threads.to_string()),
        ("timeout", timeout),
        ("dollars_per_core_hour", options.dollars_per_core_hour.to_string()),
        ("history", options.history.to_string()),
        ("node", address(options.nodes.listen)),
        ("members", options.nodes.members.as_ref().map_or_else(String::new, Members::to_string)),
        ("warehouse", options.nodes.warehouse.clone()),
        ("audit", options.audit.as_ref().map_or_else(String::new, |p| p.display().to_string())),
    ]
}

/// A name for this process that no other has.
fn number(options: &ServerOptions) -> String {
    let mut bytes = [0; 8];
    (options.random)(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Other machines need users, and users need TLS.
fn check_open(address: SocketAddr, has_tls: bool, has_users: bool) -> Result<(), ServeError> {
    let missing = match (has_tls, has_users) {
        _ if address.ip().is_loopback() => return Ok(()),
        (true, true) => return Ok(()),
        (_, false) => "make a user first: uplake user add NAME",
        (false, true) => "give it a certificate with --tls-cert and --tls-key",
    };
    Err(ServeError::Open { address, missing })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_machines_need_users_and_tls() {
        let check =
            |address: &str, tls, users| check_open(address.parse().unwrap(), tls, users).is_ok();
        assert!(check("127.0.0.1:1", false, false) && check("[::1]:1", false, false));
        assert!(!check("0.0.0.0:1", false, true) && !check("192.168.1.7:1", true, false));
        assert!(check("0.0.0.0:1", true, true));
    }
}
