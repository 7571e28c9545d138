//! What the server counts, as Prometheus reads it.
//!
//! Protocols call [`Metrics::connected`], [`Metrics::query`] and [`Metrics::cancelled`]; what others count anyway
//! (slots, memory, spools) is asked for when somebody looks.
//!
//! # Invariants
//! - Counters and histograms never get less; gauges are as of the look.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use uplake_engine::{KeptBytes, Usage};
use uplake_table::{CacheUsage, Counts};

use crate::cost::Prices;
use crate::failure::Failure;
use crate::process;
use crate::statements::{Cause, Listed, Protocol};

/// Seconds from 1 ms to 10 min, each about 2.5 times the one before.
const BUCKETS: [f64; 15] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0, 600.0];
/// Of the text that [`Metrics::text`] makes.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Labels<const N: usize> = [(&'static str, &'static str); N];

/// What the server counts.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    connections: Family<Labels<1>, Gauge>,
    queries: Family<Labels<2>, Counter>,
    query_seconds: Family<Labels<1>, Histogram>,
    queue_seconds: Histogram,
    queries_running: Gauge,
    queries_waiting: Gauge,
    rows_sent: Counter,
    bytes_sent: Family<Labels<1>, Counter>,
    cancelled: Family<Labels<1>, Counter>,
    refused: Family<Labels<1>, Counter>,
    spool_bytes: Gauge,
    memory_bytes: Family<Labels<1>, Gauge>,
    spill_files: Gauge,
    storage_reads: Gauge,
    statements: Gauge,
    access_is_read: Gauge,
    certificate_expires: Family<Labels<0>, Gauge>,
    certificate_is_read: Family<Labels<0>, Gauge>,
    node_certificate_expires: Family<Labels<0>, Gauge>,
    node_files_are_read: Family<Labels<0>, Gauge>,
    logins: Family<Labels<1>, Counter>,
    storage: Storage,
    cache_bytes: Family<Labels<1>, Counter>,
    cached_bytes: Family<Labels<1>, Gauge>,
    tenant_compute: Family<Vec<(&'static str, String)>, Seconds>,
    tenant_dollars: Family<Vec<(&'static str, String)>, Seconds>,
    unkept: Gauge,
    parts: Parts,
    process_cpu: Seconds,
    process_memory: Gauge,
    process_allocated: Gauge,
    process_files: Gauge,
}

/// Parts of statements: of those of clients, and of those that other nodes asked for.
#[derive(Debug, Default)]
struct Parts {
    asked: Family<Labels<1>, Counter>,
    bytes: Counter,
    computed: Counter,
    refused: Family<Labels<1>, Counter>,
    nodes: Gauge,
}

/// Why a call of another node was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusedCall {
    /// Who calls has no certificate of ours, or does not speak TLS.
    Certificate,
    /// It has no token for it.
    Token,
    /// It sends what is no part.
    Ticket,
    /// The part is of what is not here, or of more than parts may do.
    Plan,
}

impl RefusedCall {
    const ALL: [Self; 4] = [Self::Certificate, Self::Token, Self::Ticket, Self::Plan];

    const fn name(self) -> &'static str {
        match self {
            Self::Certificate => "certificate",
            Self::Token => "token",
            Self::Ticket => "ticket",
            Self::Plan => "plan",
        }
    }
}

/// What became of a part of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// It was sent to a node,
    Sent,
    /// to another one, because the first could not compute it,
    Again,
    /// or it was computed here.
    Here,
    /// A node was lost while it computed it.
    Lost,
    /// It was late, and a second copy was begun.
    Late,
}

impl Part {
    const ALL: [Self; 5] = [Self::Sent, Self::Again, Self::Here, Self::Lost, Self::Late];

    const fn name(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Again => "again",
            Self::Here => "here",
            Self::Lost => "lost",
            Self::Late => "late",
        }
    }
}

impl Parts {
    fn register(&self, all: &mut Registry) {
        let asked =
            "Parts of statements: sent to nodes, again to others, computed here, lost, late";
        all.register("uplake_parts", asked, Family::clone(&self.asked));
        for part in Part::ALL {
            drop(self.asked.get_or_create(&[("what", part.name())]));
        }
        all.register("uplake_part_bytes", "Bytes of answers of nodes", self.bytes.clone());
        let computed = "Parts of statements of other nodes that were begun here";
        all.register("uplake_parts_computed", computed, self.computed.clone());
        let refused = "Calls of other nodes, parts among them, that were refused here: why";
        all.register("uplake_parts_refused", refused, Family::clone(&self.refused));
        for why in RefusedCall::ALL {
            drop(self.refused.get_or_create(&[("why", why.name())]));
        }
        all.register("uplake_nodes", "Nodes that can be used", self.nodes.clone());
    }
}

/// A sum of fractions.
type Seconds = Counter<f64, AtomicU64>;

/// What was asked of the store: by statements, and by the server for itself.
#[derive(Debug, Default)]
struct Storage {
    requests: Family<Labels<2>, Counter>,
    bytes: Family<Labels<2>, Counter>,
    retries: Counter,
    hedges: Counter,
}

/// What is asked for when somebody looks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Now {
    pub usage: Usage,
    pub spool_bytes: u64,
    /// Statements that are listed.
    pub statements: usize,
    /// Can the users of the lake be read?
    pub access_is_read: bool,
    /// All that was asked of the store.
    pub storage: Counts,
    /// And of it, what the server asked for itself.
    pub own: Counts,
    pub cache: Option<CacheUsage>,
    /// What the engine keeps.
    pub kept: [KeptBytes; 5],
}

impl Storage {
    fn register(&self, all: &mut Registry) {
        all.register(
            "uplake_storage_requests",
            "Requests to the store, for statements and for the server itself",
            self.requests.clone(),
        );
        all.register(
            "uplake_storage_bytes",
            "Bytes asked of the lake, and those from and to the store",
            self.bytes.clone(),
        );
        all.register("uplake_storage_retries", "Requests made again", self.retries.clone());
        all.register("uplake_storage_hedges", "Second requests for slow ones", self.hedges.clone());
    }

    fn set(&self, all: &Counts, own: &Counts) {
        let of_statements = all.since(own);
        for (whose, counts) in [("statements", &of_statements), ("server", own)] {
            let whose = ("for", whose);
            for (kind, count) in [
                ("get", counts.gets),
                ("put", counts.puts),
                ("list", counts.lists),
                ("delete", counts.deletes),
            ] {
                put(&self.requests.get_or_create(&[("kind", kind), whose]), count);
            }
            for (kind, count) in [
                ("asked", counts.bytes_asked),
                ("read", counts.bytes_read),
                ("written", counts.bytes_written),
            ] {
                put(&self.bytes.get_or_create(&[("kind", kind), whose]), count);
            }
        }
        put(&self.retries, all.retries);
        put(&self.hedges, all.hedges);
    }
}

/// What others count.
fn put(counter: &Counter, count: u64) {
    counter.inner().store(count, Ordering::Relaxed);
}

impl Metrics {
    /// Nothing yet. `started`: milliseconds since 1970, UTC.
    pub fn new(started: i64) -> Arc<Self> {
        let mut registry = Registry::default();
        let all = &mut registry;
        let connections = Family::default();
        all.register(
            "uplake_connections",
            "Connections that are open",
            Family::clone(&connections),
        );
        let queries = Family::default();
        all.register("uplake_queries", "Statements that are over", Family::clone(&queries));
        let of_query: fn() -> Histogram = || Histogram::new(BUCKETS);
        let query_seconds = Family::new_with_constructor(of_query);
        all.register_with_unit(
            "uplake_query",
            "From a statement's text to its last row",
            Unit::Seconds,
            query_seconds.clone(),
        );
        let queue_seconds = of_query();
        all.register_with_unit(
            "uplake_query_queue",
            "Waiting for a slot",
            Unit::Seconds,
            queue_seconds.clone(),
        );
        let (queries_running, queries_waiting) = (Gauge::default(), Gauge::default());
        all.register("uplake_queries_running", "Statements in a slot", queries_running.clone());
        all.register("uplake_queries_waiting", "Statements in the queue", queries_waiting.clone());
        let rows_sent = Counter::default();
        all.register("uplake_rows_sent", "Rows of answers", rows_sent.clone());
        let bytes_sent = Family::default();
        all.register("uplake_bytes_sent", "Bytes of answers", Family::clone(&bytes_sent));
        let cancelled = Family::default();
        all.register("uplake_cancelled", "Statements stopped", Family::clone(&cancelled));
        let refused = Family::default();
        all.register(
            "uplake_refused",
            "Clients and statements over a limit",
            Family::clone(&refused),
        );
        let spool_bytes = Gauge::default();
        all.register(
            "uplake_spool_bytes",
            "Bytes in files that wait for slow clients",
            spool_bytes.clone(),
        );
        let memory_bytes = Family::default();
        all.register("uplake_memory_bytes", "Memory by use", Family::clone(&memory_bytes));
        let spill_files = Gauge::default();
        all.register("uplake_spill_files", "Files of queries that spill", spill_files.clone());
        let storage_reads = Gauge::default();
        all.register("uplake_storage_reads", "Reads under way", storage_reads.clone());
        let statements = Gauge::default();
        let listed = "Statements that wait, compute, send or are suspended";
        all.register("uplake_statements", listed, statements.clone());
        let access_is_read = Gauge::default();
        let of_access = "0: who may connect cannot be read, and nobody new is let in";
        all.register("uplake_access_readable", of_access, access_is_read.clone());
        let certificate_expires = Family::default();
        let of_expires = "When the certificate that clients get ends, in seconds since 1970";
        let into = Family::clone(&certificate_expires);
        all.register("uplake_tls_certificate_expires", of_expires, into);
        let certificate_is_read = Family::default();
        let of_read = "0: the certificate's files cannot be used, and the old one stays";
        let into = Family::clone(&certificate_is_read);
        all.register("uplake_tls_certificate_current", of_read, into);
        let node_certificate_expires = Family::default();
        let of_expires = "When the certificate that nodes get ends, in seconds since 1970";
        let into = Family::clone(&node_certificate_expires);
        all.register("uplake_node_certificate_expires", of_expires, into);
        let node_files_are_read = Family::default();
        let of_read = "0: the files of --node-tls-… or --node-secret cannot be used, and what they held before stays";
        let into = Family::clone(&node_files_are_read);
        all.register("uplake_node_trust_current", of_read, into);
        let logins = Family::default();
        all.register("uplake_logins", "Who came, and was let in or not", Family::clone(&logins));
        let storage = Storage::default();
        storage.register(all);
        let cache_bytes = Family::default();
        all.register(
            "uplake_cache_bytes",
            "Bytes asked for, by where they were",
            Family::clone(&cache_bytes),
        );
        let cached_bytes = Family::default();
        all.register("uplake_cached_bytes", "Bytes that caches hold", Family::clone(&cached_bytes));
        let (tenant_compute, tenant_dollars) = (Family::default(), Family::default());
        all.register(
            "uplake_tenant_compute_seconds",
            "How long threads were at statements that are over",
            Family::clone(&tenant_compute),
        );
        all.register("uplake_tenant_dollars", "What they cost", Family::clone(&tenant_dollars));
        let unkept = Gauge::default();
        all.register("uplake_history_rows_lost", "Rows that the lake did not take", unkept.clone());
        let parts = Parts::default();
        parts.register(all);
        let (process_cpu, process_memory) = (Seconds::default(), Gauge::default());
        let (process_allocated, process_files) = (Gauge::default(), Gauge::default());
        all.register("process_cpu_seconds", "What it has had of cores", process_cpu.clone());
        all.register("process_resident_memory_bytes", "Its memory", process_memory.clone());
        let about = "What of it is in use, caches included";
        all.register("process_allocated_memory_bytes", about, process_allocated.clone());
        all.register("process_open_fds", "Its open files", process_files.clone());
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        all.register("uplake_build", "The program", version);
        let start = Gauge::<f64, AtomicU64>::default();
        start.set(started as f64 / 1000.0);
        all.register("process_start_time_seconds", "When the process began, since 1970", start);
        Arc::new(Self {
            registry,
            connections,
            queries,
            query_seconds,
            queue_seconds,
            queries_running,
            queries_waiting,
            rows_sent,
            bytes_sent,
            cancelled,
            refused,
            spool_bytes,
            memory_bytes,
            spill_files,
            storage_reads,
            statements,
            access_is_read,
            certificate_expires,
            certificate_is_read,
            node_certificate_expires,
            node_files_are_read,
            logins,
            storage,
            cache_bytes,
            cached_bytes,
            tenant_compute,
            tenant_dollars,
            unkept,
            parts,
            process_cpu,
            process_memory,
            process_allocated,
            process_files,
        })
    }

    /// A connection, counted until what is given back is dropped.
    pub fn connected(&self, protocol: Protocol) -> Connected {
        let gauge = self.connections.get_or_create(&[("protocol", protocol.name())]).clone();
        gauge.inc();
        Connected(gauge)
    }

    /// A statement begins; it is counted when what is given back is dropped.
    pub fn query(self: &Arc<Self>, protocol: Protocol) -> QueryMeter {
        let metrics = Arc::clone(self);
        QueryMeter { metrics, protocol, began: Instant::now(), result: Mutex::default() }
    }

    /// Somebody stopped a statement.
    pub fn cancelled(&self, by: Cause) {
        self.cancelled.get_or_create(&[("by", by.name())]).inc();
    }

    /// The certificate's files were read, or could not be; without TLS nothing is said of them.
    pub fn certificate(&self, expires: Option<i64>, is_read: bool) {
        self.certificate_is_read.get_or_create(&[]).set(i64::from(is_read));
        if let Some(expires) = expires {
            self.certificate_expires.get_or_create(&[]).set(expires);
        }
    }

    /// What nodes are believed by was read, or could not be; of one alone nothing is said.
    pub fn node_trust(&self, expires: Option<i64>, is_read: bool) {
        self.node_files_are_read.get_or_create(&[]).set(i64::from(is_read));
        if let Some(expires) = expires {
            self.node_certificate_expires.get_or_create(&[]).set(expires);
        }
    }

    /// Another node asked, and was refused.
    pub fn refused_call(&self, why: RefusedCall) {
        self.parts.refused.get_or_create(&[("why", why.name())]).inc();
    }

    /// Somebody was refused because of a limit, or stopped.
    pub fn refused(&self, limit: &'static str) {
        self.refused.get_or_create(&[("limit", limit)]).inc();
    }

    /// Somebody came, and was let in or not.
    pub fn login(&self, is_in: bool) {
        let result = if is_in { "ok" } else { "refused" };
        self.logins.get_or_create(&[("result", result)]).inc();
    }

    /// Rows of `system` tables that the lake did not take.
    pub fn unkept(&self, rows: u64) {
        self.unkept.set(as_gauge(rows));
    }

    /// A part of a statement of this node.
    pub fn part(&self, what: Part) {
        self.parts.asked.get_or_create(&[("what", what.name())]).inc();
    }

    /// So many bytes of rows came from another node.
    pub fn part_bytes(&self, bytes: u64) {
        self.parts.bytes.inc_by(bytes);
    }

    /// A part of another node's statement begins here.
    pub fn part_computed(&self) {
        self.parts.computed.inc();
    }

    /// So many nodes can be used now.
    pub fn nodes(&self, count: usize) {
        self.parts.nodes.set(as_gauge(count as u64));
    }

    /// A statement is over.
    pub fn ended(&self, listed: &Listed, prices: &Prices) {
        let Listed { client, cost, failed, .. } = listed;
        let tenant = vec![("tenant", client.tenant.clone())];
        self.tenant_compute.get_or_create(&tenant).inc_by(cost.compute_seconds());
        self.tenant_dollars.get_or_create(&tenant).inc_by(listed.dollars(prices));
        self.queue_seconds.observe(cost.counts.queued.as_secs_f64());
        // HTTP has a meter, which knows whether the client has had all.
        if client.protocol == Protocol::Http {
            return;
        }
        let result = failed.as_ref().map_or("ok", result_of);
        self.rows_sent.inc_by(cost.rows_out);
        let protocol = ("protocol", client.protocol.name());
        self.bytes_sent.get_or_create(&[protocol]).inc_by(cost.bytes_out);
        self.over(client.protocol, result, cost.total);
    }

    fn over(&self, protocol: Protocol, result: &'static str, took: Duration) {
        let protocol = ("protocol", protocol.name());
        self.queries.get_or_create(&[protocol, ("result", result)]).inc();
        self.query_seconds.get_or_create(&[protocol]).observe(took.as_secs_f64());
    }

    /// All of it, of [`CONTENT_TYPE`].
    pub fn text(&self, now: &Now) -> String {
        self.queries_running.set(as_gauge(now.usage.running as u64));
        self.queries_waiting.set(as_gauge(now.usage.waiting as u64));
        self.spool_bytes.set(as_gauge(now.spool_bytes));
        self.spill_files.set(as_gauge(now.usage.spill_files as u64));
        self.storage_reads.set(as_gauge(now.usage.reads as u64));
        self.statements.set(as_gauge(now.statements as u64));
        self.access_is_read.set(i64::from(now.access_is_read));
        let memory = self.memory_bytes.get_or_create(&[("kind", "queries")]).clone();
        memory.set(as_gauge(now.usage.memory_bytes as u64));
        self.storage.set(&now.storage, &now.own);
        for (tier, bytes) in [
            ("memory", now.storage.bytes_from_memory),
            ("disk", now.storage.bytes_from_disk),
            ("missed", now.storage.bytes_missed),
        ] {
            put(&self.cache_bytes.get_or_create(&[("tier", tier)]), bytes);
        }
        if let Some(cache) = &now.cache {
            for (tier, bytes) in [("memory", cache.memory_bytes), ("disk", cache.disk_bytes)] {
                self.cached_bytes.get_or_create(&[("tier", tier)]).set(as_gauge(bytes));
            }
        }
        for kept in &now.kept {
            let tier = self.cached_bytes.get_or_create(&[("tier", kept.of)]);
            tier.set(as_gauge(kept.bytes as u64));
        }
        let process = process::now();
        self.process_cpu.inner().store(process.cpu_seconds.to_bits(), Ordering::Relaxed);
        self.process_memory.set(as_gauge(process.resident_bytes));
        self.process_allocated.set(as_gauge(uplake_engine::held_bytes() as u64));
        self.process_files.set(as_gauge(process.open_files));
        let mut text = String::new();
        // A String takes all that is written.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

fn result_of(failure: &Failure) -> &'static str {
    if failure.code == "57014" { "cancelled" } else { "error" }
}

fn as_gauge(number: u64) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

/// A connection that is open.
#[derive(Debug)]
pub(crate) struct Connected(Gauge);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// A statement that is counted when it is over. Without [`Self::done`] or [`Self::failed`] its client went away.
#[derive(Debug)]
pub(crate) struct QueryMeter {
    metrics: Arc<Metrics>,
    protocol: Protocol,
    began: Instant,
    result: Mutex<Option<&'static str>>,
}

impl QueryMeter {
    /// So much more has been sent.
    pub fn sent(&self, rows: u64, bytes: u64) {
        self.metrics.rows_sent.inc_by(rows);
        self.metrics.bytes_sent.get_or_create(&[("protocol", self.protocol.name())]).inc_by(bytes);
    }

    /// Everything has been sent.
    pub fn done(&self) {
        self.set("ok");
    }

    /// It failed, or was stopped.
    pub fn failed(&self, failure: &Failure) {
        self.set(result_of(failure));
    }

    /// The first counts.
    fn set(&self, result: &'static str) {
        self.result.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(result);
    }
}

impl Drop for QueryMeter {
    fn drop(&mut self) {
        let result = *self.result.lock().unwrap_or_else(PoisonError::into_inner);
        if result.is_none() {
            self.metrics.cancelled(Cause::Socket);
        }
        self.metrics.over(self.protocol, result.unwrap_or("cancelled"), self.began.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_is_in_the_text() {
        let metrics = Metrics::new(1_500);
        let connection = metrics.connected(Protocol::Http);
        let query = metrics.query(Protocol::Http);
        query.sent(3, 40);
        query.done();
        drop(query);
        drop(metrics.query(Protocol::Postgres));
        let now = Now { spool_bytes: 7, statements: 2, ..Now::default() };
        assert!(!metrics.text(&now).contains("uplake_tls_certificate_current{}"));
        metrics.certificate(Some(1_800_000_550), true);
        metrics.refused("login");
        metrics.login(false);
        metrics.part(Part::Again);
        metrics.part_bytes(70);
        metrics.nodes(3);
        let text = metrics.text(&now);
        for line in [
            "uplake_connections{protocol=\"http\"} 1\n",
            "uplake_queries_total{protocol=\"http\",result=\"ok\"} 1\n",
            "uplake_queries_total{protocol=\"postgres\",result=\"cancelled\"} 1\n",
            "uplake_query_seconds_count{protocol=\"http\"} 1\n",
            "uplake_rows_sent_total 3\n",
            "uplake_bytes_sent_total{protocol=\"http\"} 40\n",
            "uplake_cancelled_total{by=\"socket\"} 1\n",
            "uplake_refused_total{limit=\"login\"} 1\n",
            "uplake_spool_bytes 7\n",
            "uplake_memory_bytes{kind=\"queries\"} 0\n",
            "uplake_logins_total{result=\"refused\"} 1\n",
            "uplake_storage_requests_total{kind=\"get\",for=\"statements\"} 0\n",
            "uplake_build_info{version=",
            "uplake_statements 2\n",
            "uplake_parts_total{what=\"sent\"} 0\n",
            "uplake_parts_total{what=\"again\"} 1\n",
            "uplake_part_bytes_total 70\n",
            "uplake_parts_computed_total 0\n",
            "uplake_nodes 3\n",
            "uplake_access_readable 0\n",
            "uplake_tls_certificate_current{} 1\n",
            "uplake_tls_certificate_expires{} 1800000550\n",
            "process_start_time_seconds 1.5\n",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        drop(connection);
        assert!(metrics.text(&now).contains("uplake_connections{protocol=\"http\"} 0\n"));
    }
}
