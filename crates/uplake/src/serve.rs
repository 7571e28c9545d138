//! `uplake serve`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};
use uplake_server::{
    DEFAULT_WAREHOUSE, Limits as Rules, Members, MembersError, NodeOptions, ServeError, Server,
    ServerOptions, system_random,
};
use uplake_table::{AsOf, Lake};

use crate::LakeArgs;
use crate::environment::{
    INTERRUPTED, Limits, Stopped, TERMINATED, is_first_to_tell, now_millis, parse_bytes,
    parse_timeout, session_options, writers_end,
};
use crate::node_trust::NodeTrustArgs;
use crate::{memory, spill};

/// What statements get back after one was stopped for memory, before another is.
const RELIEF_TIME: Duration = Duration::from_millis(200);

/// Half an m7i.large of Amazon's in us-east-1, on demand.
const DOLLARS_PER_CORE_HOUR: f64 = 0.0504;

/// Arguments of `uplake serve`.
#[derive(Args, Debug)]
pub struct ServeArgs {
    #[command(flatten)]
    lake: LakeArgs,
    /// Listen for clients of Postgres here: psql, drivers, BI tools [default: 127.0.0.1:5433; nowhere with `--roles work`]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pg: Option<SocketAddr>,
    /// Listen for HTTP here [default: 127.0.0.1:8440; nowhere with `--roles work`]
    #[arg(long, value_name = "ADDRESS:PORT")]
    http: Option<SocketAddr>,
    /// What this node does in a warehouse of several: compute parts of others' statements, have its own computed in parts, or both
    #[arg(long, value_enum, value_name = "ROLE", value_delimiter = ',')]
    roles: Vec<NodeRole>,
    /// Take parts of other nodes' statements here; on another address than this machine's own with --node-tls-… and
    /// --node-secret
    #[arg(long, value_name = "ADDRESS:PORT")]
    node: Option<SocketAddr>,
    /// The nodes that compute: ADDRESS:PORT,… as their --node says, or dns:NAME:PORT for all addresses of a name
    #[arg(long, value_name = "MEMBERS", value_parser = parse_members)]
    members: Option<Members>,
    /// The warehouse that this node belongs to: nodes ask those of their own
    #[arg(
        long,
        value_name = "NAME",
        default_value = DEFAULT_WAREHOUSE,
        value_parser = parse_warehouse,
        requires = "roles"
    )]
    warehouse: String,
    #[command(flatten)]
    trust: NodeTrustArgs,
    /// What clients call the database
    #[arg(long, value_name = "NAME", default_value = "lake")]
    database: String,
    /// The certificate for TLS, with those that vouch for it, in PEM; read again at SIGHUP
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its private key, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Disk for rows that slow clients have not taken yet: bytes, or with K, M, G, T
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "4G")]
    spool: usize,
    /// Connections at once
    #[arg(long, value_name = "N", default_value_t = 2000)]
    connections: usize,
    /// Connections at once of a role that has no limit of its own
    #[arg(long, value_name = "N", default_value_t = Rules::default().connections_of_role)]
    connections_of_role: usize,
    /// Connections at once from an address, other than this machine's
    #[arg(long, value_name = "N", default_value_t = Rules::default().connections_of_address)]
    connections_of_address: usize,
    /// Logins a second from an address, other than this machine's; 0 is no limit
    #[arg(long, value_name = "N", default_value_t = Rules::default().logins_per_second)]
    logins_per_second: u32,
    /// Statements a second from an address, other than this machine's; 0 is no limit
    #[arg(long, value_name = "N", default_value_t = Rules::default().statements_per_second)]
    statements_per_second: u32,
    /// US dollars for an hour of one core, for what statements are told to have cost and tenants have a day
    #[arg(long, value_name = "DOLLARS", value_parser = parse_price, default_value_t = DOLLARS_PER_CORE_HOUR)]
    dollars_per_core_hour: f64,
    /// Statements that compute at once; default: twice the threads
    #[arg(long, value_name = "N")]
    at_once: Option<usize>,
    /// What a statement may take, waiting included: 30s, 500ms, 2m; 0 is no limit
    #[arg(long, env = "UPLAKE_TIMEOUT", value_parser = parse_timeout, default_value = "30m")]
    timeout: Duration,
    /// Keep nothing of statements in the lake: `system` tables then tell of this process alone
    #[arg(long)]
    no_history: bool,
    /// The audit log [default: audit.jsonl in this machine's folder for the lake]
    #[arg(long, value_name = "FILE")]
    audit_log: Option<PathBuf>,
    /// What statements may still take when the server is told to end
    #[arg(long, value_parser = parse_timeout, default_value = "30s")]
    drain: Duration,
}

/// What a node does.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum NodeRole {
    /// Compute parts of other nodes' statements
    Work,
    /// Have statements computed by those who do
    Coordinate,
}

/// Where clients find a server if nobody says.
const PG: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 5433);
pub const HTTP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8440);

pub fn parse_members(text: &str) -> std::result::Result<Members, String> {
    text.parse().map_err(|error: MembersError| error.to_string())
}

pub fn parse_warehouse(text: &str) -> std::result::Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    match (1..=63).contains(&text.len()) && text.chars().all(is_plain) {
        true => Ok(text.to_owned()),
        false => Err("a warehouse has letters, digits, _ and -, 63 at most".to_owned()),
    }
}

impl ServeArgs {
    /// Where it listens, and what it does with other nodes.
    fn nodes(&self) -> Result<(Option<SocketAddr>, Option<SocketAddr>, NodeOptions)> {
        let has = |role| self.roles.contains(&role);
        let (works, coordinates) = (has(NodeRole::Work), has(NodeRole::Coordinate));
        match (works, self.node) {
            (true, None) => bail!("--roles work needs --node ADDRESS:PORT, where parts come to"),
            (false, Some(_)) => bail!("--node is for nodes that compute: add --roles work"),
            _ => {}
        }
        match (coordinates, &self.members) {
            (true, None) => bail!("--roles coordinate needs --members, those who compute"),
            (false, Some(_)) if !works => {
                bail!("--members are asked by nodes that coordinate: add --roles coordinate")
            }
            _ => {}
        }
        let asked = NodeOptions {
            listen: self.node,
            members: self.members.clone(),
            warehouse: self.warehouse.clone(),
            trust: self.trust.files(works || coordinates, "--roles")?,
        };
        if let Some(beyond) = asked.beyond_loopback() {
            return Err(ServeError::NodeBeyond(beyond).into());
        }
        let is_for_clients = !works || coordinates;
        let of_clients = |said: Option<SocketAddr>, usual| said.or(is_for_clients.then_some(usual));
        let members = asked.members.clone().filter(|_| coordinates);
        let nodes = NodeOptions { members, ..asked };
        Ok((of_clients(self.pg, PG), of_clients(self.http, HTTP), nodes))
    }
}

/// A price in dollars.
fn parse_price(text: &str) -> std::result::Result<f64, String> {
    match text.parse() {
        Ok(dollars) if (0.0..=1e6).contains(&dollars) => Ok(dollars),
        _ => Err(format!("`{text}` is no price in dollars, such as 0.1")),
    }
}

/// Runs the command until a signal ends it.
pub async fn run(args: ServeArgs) -> Result<()> {
    let limits = Limits { timeout: Some(args.timeout), at_once: args.at_once };
    let (pg, http, nodes) = args.nodes()?;
    let (lake, of_sessions) = session_options(&args.lake, AsOf::Latest, limits)?;
    let spool_folder = spill::folder().context("making a folder to spill to")?;
    let options = ServerOptions {
        pg,
        http,
        database: args.database.clone(),
        connections: args.connections,
        limits: Rules {
            connections_of_role: args.connections_of_role,
            connections_of_address: args.connections_of_address,
            logins_per_second: args.logins_per_second,
            statements_per_second: args.statements_per_second,
        },
        spool_bytes: args.spool as u64,
        spool_folder,
        clock: Arc::new(now_millis),
        random: Arc::new(system_random),
        dollars_per_core_hour: args.dollars_per_core_hour,
        history: !args.no_history,
        audit: args.audit_log.clone().or_else(|| audit_log(&lake)),
        nodes,
    };
    let tls = args.tls_cert.as_deref().zip(args.tls_key.as_deref());
    let server = Server::start(lake, &of_sessions, options, tls).await?;
    let session = server.session();
    // End with the server.
    let (_preload, _repair) = server.own(|| (session.preload(), session.repair_indexes()));
    let (say, ended) = tokio::sync::oneshot::channel();
    let (ready, is_ready) = std::sync::mpsc::sync_channel(1);
    let greeting = greeting(&server, &session, &args);
    // Threads that compute may be too busy to hear of a signal, or of what time it is.
    let drain = args.drain;
    let watcher = std::thread::Builder::new().name("signals".to_owned());
    watcher.spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(anyhow::Error::from);
        let ended = runtime.and_then(|runtime| runtime.block_on(until_told(server, drain, ready)));
        // Nobody waits for it once the process ends.
        let _ = say.send(ended);
    })?;
    // Signals are heard from here on, or the thread says why not: whoever waits for these lines may send one.
    let _ = is_ready.recv();
    println!("{greeting}Ctrl-C ends it.");
    let stopped = ended.await.context("the thread of signals is gone")??;
    writers_end().await;
    session.lake().storage().flush_cache().await;
    if stopped > 0 {
        crate::output::tell(&format!("{stopped} statements were stopped"));
    }
    Ok(())
}

/// Where the audit log is if nobody says: nowhere on a machine that keeps nothing, or cannot.
fn audit_log(lake: &Lake) -> Option<PathBuf> {
    let folder = lake.local_folder()?;
    let path = folder.join("audit.jsonl");
    let made = std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::OpenOptions::new().create(true).append(true).open(&path));
    if let Err(error) = made {
        let path = path.display();
        crate::output::tell(&format!("warning: no audit log on this machine: {path}: {error}"));
        return None;
    }
    Some(path)
}

/// Watches over the server until a signal ends it; how many statements were stopped then.
async fn until_told(
    server: Server,
    drain: Duration,
    ready: std::sync::mpsc::SyncSender<()>,
) -> Result<usize> {
    let (mut ends, mut reload) = (Ends::listen()?, signal(SignalKind::hangup())?);
    let _ = ready.send(());
    loop {
        tokio::select! {
            _ = ends.next() => break,
            _ = reload.recv() => read_again(&server),
            () = relieved(&server) => {}
        }
    }
    eprintln!("ending: statements have {drain:?}; a second signal ends them at once");
    let mut stop = std::pin::pin!(server.stop(drain));
    loop {
        tokio::select! {
            stopped = stop.as_mut() => return Ok(stopped),
            status = ends.next() => {
                if is_first_to_tell() {
                    crate::output::tell("ended before statements did");
                }
                return Err(Stopped::now(status).into());
            }
            () = relieved(&server) => {}
        }
    }
}

/// Reads again what may have been replaced.
fn read_again(server: &Server) {
    match server.reload_certificate() {
        Ok(()) => eprintln!("the certificate was read again"),
        Err(error) => crate::output::tell(&format!("warning: the old certificate stays: {error}")),
    }
    match server.reload_trust() {
        Ok(true) => eprintln!("the certificate and the secret of nodes were read again"),
        Ok(false) => {}
        Err(error) => {
            let stays = "the old certificate and the old secret of nodes stay";
            crate::output::tell(&format!("warning: {stays}: {error}"));
        }
    }
}

/// Returns once the process held too much and a statement was stopped for it.
async fn relieved(server: &Server) {
    memory::exceeded().await;
    server.relieve_memory();
    tokio::time::sleep(RELIEF_TIME).await;
}

/// What a user does next, in lines.
fn greeting(server: &Server, session: &uplake_engine::Session, args: &ServeArgs) -> String {
    let mut lines =
        format!("uplake {} serves {}\n", env!("CARGO_PKG_VERSION"), session.lake().location());
    if let Some(address) = server.pg_address() {
        let (host, port, database) = (address.ip(), address.port(), &args.database);
        lines += &format!("postgres  {address}   psql -h {host} -p {port} -U admin {database}\n");
    }
    if let Some(address) = server.http_address() {
        let scheme = if args.tls_cert.is_some() { "https" } else { "http" };
        lines += &format!("http      {address}   curl '{scheme}://{address}/sql' -d 'SELECT 1'\n");
    }
    if let Some(address) = server.node_address() {
        lines += &format!(
            "node      {address}   for parts of statements of the warehouse {}\n",
            args.warehouse
        );
    }
    if let Some(members) =
        args.members.as_ref().filter(|_| args.roles.contains(&NodeRole::Coordinate))
    {
        lines += &format!("members   {members}\n");
    }
    lines
}

/// Ctrl-C or SIGTERM.
struct Ends {
    interrupt: Signal,
    terminate: Signal,
}

impl Ends {
    fn listen() -> Result<Self> {
        let (interrupt, terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(Self { interrupt, terminate })
    }

    /// The exit status of who is ended by it at once.
    async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => INTERRUPTED,
            _ = self.terminate.recv() => TERMINATED,
        }
    }
}
