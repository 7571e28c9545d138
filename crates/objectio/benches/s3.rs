//! How fast and how even are reads from S3, against `object_store`'s own client in the same run?
//!
//! The store is the fault-injecting server on 8 loopback addresses: 20 ms to the first byte
//! (lognormal, sigma 0.35), 1 % of requests 150-800 ms later, 70 MB/s a connection. Stock and ours
//! take turns; medians of the rounds are printed. Floor: a bare TCP reader with as many connections,
//! which copies nothing and checks nothing.
//!
//! Run: `cargo bench -p uplake-objectio --bench s3 [-- ROW… [--rounds=N]]`; rows are `line ranges
//! gaps tail dead throttle faults cache`.

use std::fmt::Display;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::stream::{self, StreamExt};
use object_store::aws::AmazonS3Builder;
use object_store::client::{HttpClient, HttpConnector};
use object_store::path::Path;
use object_store::{ClientOptions, ObjectStore, ObjectStoreExt};
use tokio::runtime::{Builder, Runtime};
use uplake_faulty_s3::{Address, Faults, Server, content};
use uplake_objectio::{ByteSize, Counts, StorageOptions, Store};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const ADDRESSES: u8 = 8;

/// `object_store`'s client as it comes, but for the name that has several addresses: they are
/// shuffled for each connection, as its own resolver does.
#[derive(Debug)]
struct StockConnector(Vec<SocketAddr>);

#[derive(Debug)]
struct Shuffled(Vec<SocketAddr>, AtomicU64);

impl reqwest::dns::Resolve for Shuffled {
    fn resolve(&self, _: reqwest::dns::Name) -> reqwest::dns::Resolving {
        let mut addresses = self.0.clone();
        let mut random = self.1.fetch_add(1, Ordering::Relaxed);
        for i in (1..addresses.len()).rev() {
            random = uplake_testkit::random::mix(random);
            addresses.swap(i, (random % (i as u64 + 1)) as usize);
        }
        Box::pin(async move { Ok(Box::new(addresses.into_iter()) as reqwest::dns::Addrs) })
    }
}

impl HttpConnector for StockConnector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        // The defaults of `ClientOptions`.
        let client = reqwest::Client::builder()
            .timeout(Duration::from_secs(30))
            .connect_timeout(Duration::from_secs(5))
            .http1_only()
            .dns_resolver(Arc::new(Shuffled(self.0.clone(), AtomicU64::new(1))));
        Ok(HttpClient::new(client.build().expect("no TLS is asked for")))
    }
}

/// A name and a run that gives its seconds.
type Contender<'a> = (&'a str, Box<dyn FnMut() -> f64 + 'a>);

struct World {
    // Two runtimes: what the server does must not wait for what the client does.
    client: Runtime,
    _serving: Runtime,
    server: Server,
    rounds: usize,
}

impl World {
    fn new(rounds: usize) -> Self {
        let threads = |name| {
            Builder::new_multi_thread().worker_threads(2).thread_name(name).enable_all().build()
        };
        let (client, serving) =
            (threads("client").expect("threads"), threads("server").expect("threads"));
        let server = serving.block_on(Server::start(ADDRESSES, Faults::usual(1)));
        Self { client, _serving: serving, server: server.expect("loopback"), rounds }
    }

    fn stock(&self) -> Arc<dyn ObjectStore> {
        let addresses = self.server.addresses();
        let port = addresses[0].port();
        let store = AmazonS3Builder::new()
            .with_bucket_name("bucket")
            .with_region("us-east-1")
            .with_endpoint(format!("http://s3.test:{port}"))
            .with_allow_http(true)
            .with_access_key_id("test")
            .with_secret_access_key("secret")
            .with_http_connector(StockConnector(addresses));
        Arc::new(store.build().expect("valid settings"))
    }

    fn options(&self) -> StorageOptions {
        let addresses = self.server.addresses();
        let mut options = StorageOptions { memory_cache: ByteSize(0), ..StorageOptions::default() };
        let ips = addresses.iter().map(SocketAddr::ip).collect();
        options.addresses.insert("s3.test".to_owned(), ips);
        for (key, value) in [
            ("endpoint", format!("http://s3.test:{}", addresses[0].port())),
            ("allow_http", "true".to_owned()),
            ("region", "us-east-1".to_owned()),
            ("access_key_id", "test".to_owned()),
            ("secret_access_key", "secret".to_owned()),
        ] {
            options.provider.insert(key.to_owned(), value);
        }
        options
    }

    fn ours(&self) -> Arc<Store> {
        Store::open("s3://bucket", &self.options()).expect("valid settings")
    }

    /// Requests the server saw while `work` ran, and how long it took.
    fn measure<T>(&self, work: impl Future<Output = T>) -> (T, Duration, u64) {
        let before = self.server.requests();
        let begun = Instant::now();
        let output = self.client.block_on(work);
        (output, begun.elapsed(), self.server.requests() - before)
    }

    fn row(&self, name: &str, value: impl Display) {
        println!("{name:<58} {value}");
    }

    /// Medians of `rounds` turns of each.
    fn compare(&self, name: &str, mut contenders: Vec<Contender<'_>>) {
        let mut seconds = vec![Vec::new(); contenders.len()];
        for _ in 0..self.rounds {
            for ((_, run), seconds) in contenders.iter_mut().zip(&mut seconds) {
                seconds.push(run());
            }
        }
        let results: Vec<String> = contenders
            .iter()
            .zip(&mut seconds)
            .map(|((name, _), seconds)| format!("{name} {:.2} s", median(seconds)))
            .collect();
        self.row(name, results.join(" | "));
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn path(size: u64) -> Path {
    Path::from(format!("bench/synthetic-{size}"))
}

fn every(count: u64, len: u64, step: u64) -> Vec<Range<u64>> {
    (0..count).map(|i| i * step..i * step + len).collect()
}

/// Reads `bytes` in pieces of 8 MiB over `connections` with nothing in the way; `keep`s them as a
/// reader must, or overwrites one buffer.
fn bare(addresses: &[SocketAddr], bytes: u64, connections: usize, keep: bool) -> f64 {
    let begun = Instant::now();
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for i in 0..connections {
            let (next, address) = (&next, addresses[i % addresses.len()]);
            scope.spawn(move || {
                let mut socket = std::net::TcpStream::connect(address).expect("loopback");
                let mut buffer = vec![0; 512 << 10];
                loop {
                    let start = next.fetch_add(8 * MIB, Ordering::Relaxed);
                    if start >= bytes {
                        return;
                    }
                    let end = start + 8 * MIB - 1;
                    let request = format!(
                        "GET /bucket/bench/synthetic-{bytes} HTTP/1.1\r\nrange: bytes={start}-{end}\r\n\r\n"
                    );
                    socket.write_all(request.as_bytes()).expect("sent");
                    let mut got = 0;
                    let mut kept = Vec::with_capacity(if keep { 9 << 20 } else { 0 });
                    // The head is some 200 bytes and counted as data: a floor may be too fast.
                    while got < 8 * MIB {
                        let read = socket.read(&mut buffer).expect("read");
                        if keep {
                            kept.extend_from_slice(&buffer[..read]);
                        }
                        got += read as u64;
                    }
                    if keep {
                        std::hint::black_box(&kept);
                    }
                    // What is left of the last piece is in the next read, or lost with the socket.
                    socket.set_nonblocking(true).expect("a flag");
                    while socket.read(&mut buffer).is_ok_and(|read| read > 0) {}
                    socket.set_nonblocking(false).expect("a flag");
                }
            });
        }
    });
    begun.elapsed().as_secs_f64()
}

async fn each(store: &dyn ObjectStore, ranges: &[Range<u64>], at_once: usize) {
    let path = path(4096 * MIB);
    stream::iter(ranges.to_vec())
        .map(|range| {
            let path = &path;
            async move { store.get_range(path, range).await.expect("a read").len() }
        })
        .buffer_unordered(at_once)
        .collect::<Vec<_>>()
        .await;
}

fn line(world: &World) {
    let ranges = every(128, 8 * MIB, 8 * MIB);
    let stock = world.stock();
    let ours = world.ours();
    let addresses = world.server.addresses();
    world.compare(
        "1 GiB in 8 MiB pieces",
        vec![
            (
                "stock at 16:",
                Box::new(|| world.measure(each(&*stock, &ranges, 16)).1.as_secs_f64()),
            ),
            (
                "stock at 32:",
                Box::new(|| world.measure(each(&*stock, &ranges, 32)).1.as_secs_f64()),
            ),
            ("ours at 32:", Box::new(|| world.measure(each(&*ours, &ranges, 32)).1.as_secs_f64())),
            (
                "ours, one call:",
                Box::new(|| {
                    let path = path(4096 * MIB);
                    let (read, took, _) = world.measure(ours.get_ranges(&path, &ranges));
                    assert_eq!(read.expect("a read").len(), 128);
                    took.as_secs_f64()
                }),
            ),
            ("bare TCP at 32:", Box::new(|| bare(&addresses, 1024 * MIB, 32, false))),
            ("bare TCP at 32, into memory:", Box::new(|| bare(&addresses, 1024 * MIB, 32, true))),
        ],
    );
    world.row("  requests under way in the end", ours.concurrency());
}

fn call(world: &World, name: &str, ranges: &[Range<u64>]) {
    let stock = world.stock();
    let ours = world.ours();
    let path = path(4096 * MIB);
    let once = |store: &dyn ObjectStore| {
        let (read, took, _) = world.measure(store.get_ranges(&path, ranges));
        assert_eq!(read.expect("a read").len(), ranges.len());
        took.as_secs_f64()
    };
    world.compare(
        name,
        vec![("stock", Box::new(|| once(&*stock))), ("ours", Box::new(|| once(&*ours)))],
    );
}

/// Milliseconds of each of `count` reads of 64 KiB at concurrency 32, and requests per read.
fn small(world: &World, store: &dyn ObjectStore, count: u64) -> (Vec<f64>, f64) {
    let path = path(4096 * MIB);
    let reads = stream::iter(0..count)
        .map(|i| {
            let path = &path;
            async move {
                let begun = Instant::now();
                let at = i % 65_000 * 64 * KIB;
                store.get_range(path, at..at + 64 * KIB).await.expect("a read");
                begun.elapsed().as_secs_f64() * 1e3
            }
        })
        .buffer_unordered(32)
        .collect::<Vec<f64>>();
    let (mut took, _, requests) = world.measure(reads);
    took.sort_by(f64::total_cmp);
    (took, requests as f64 / count as f64)
}

fn tail(world: &World) {
    let stock = world.stock();
    let ours = world.ours();
    let (mut of_stock, mut of_ours) = (Vec::new(), Vec::new());
    let mut requests = Vec::new();
    for _ in 0..world.rounds {
        of_stock.extend(small(world, &*stock, 5000).0);
        let (took, per_read) = small(world, &*ours, 5000);
        of_ours.extend(took);
        requests.push(per_read);
    }
    for (name, took) in [("stock", &mut of_stock), ("ours", &mut of_ours)] {
        took.sort_by(f64::total_cmp);
        let at = |share: f64| took[((took.len() as f64 * share) as usize).min(took.len() - 1)];
        let text = format!(
            "{name} p50 {:.0} p99 {:.0} p99.9 {:.0} max {:.0} ms",
            at(0.5),
            at(0.99),
            at(0.999),
            at(1.0)
        );
        world.row("64 KiB reads, concurrency 32", text);
    }
    world.row("  requests per read", format!("ours {:.3}", median(&mut requests)));
}

fn dead(world: &World) {
    world.server.set_address(5, Address::Dead);
    // A fresh store each: it is the first meeting that counts.
    for _ in 0..world.rounds {
        let ours = world.ours();
        let (took, per_read) = small(world, &*ours, 2000);
        let slow = took.iter().filter(|&&ms| ms > 200.0).count();
        let text = format!(
            "ours max {:.0} ms, {slow} of 2000 reads over 200 ms, {per_read:.3} requests per read",
            took[took.len() - 1]
        );
        world.row("one of 8 addresses dead, 64 KiB, concurrency 32", text);
    }
    let stock = world.stock();
    let (took, _) = small(world, &*stock, 450);
    let text = format!("stock max {:.0} ms (450 reads)", took[took.len() - 1]);
    world.row("one of 8 addresses dead, 64 KiB, concurrency 32", text);
    world.server.set_address(5, Address::Well);
}

fn throttle(world: &World) {
    world.server.set_faults(|faults| faults.requests_per_second = 200.0);
    let path = path(4096 * MIB);
    let run = |store: &dyn ObjectStore| {
        let reads =
            stream::iter(0..2000u64)
                .map(|i| {
                    let path = &path;
                    async move {
                        store.get_range(path, i * 64 * KIB..i * 64 * KIB + 64 * KIB).await.is_ok()
                    }
                })
                .buffer_unordered(32)
                .filter(|&ok| async move { ok })
                .count();
        let (succeeded, took, requests) = world.measure(reads);
        format!(
            "{} failures, {:.2} requests per success, {:.0} reads/s",
            2000 - succeeded,
            requests as f64 / succeeded as f64,
            succeeded as f64 / took.as_secs_f64()
        )
    };
    for _ in 0..world.rounds.min(3) {
        world.row("throttled at 200 requests/s", format!("stock: {}", run(&*world.stock())));
        world.row("throttled at 200 requests/s", format!("ours: {}", run(&*world.ours())));
    }
    world.server.set_faults(|faults| faults.requests_per_second = 0.0);
}

/// 10^5 reads in bad weather: every byte compared.
fn faults(world: &World) {
    world.server.set_faults(|faults| {
        *faults = Faults {
            median_ms: 2.0,
            sigma: 0.5,
            reset: 0.01,
            unavailable: 0.01,
            internal: 0.01,
            cut: 0.01,
            short: 0.01,
            stall: 0.0005,
            ..Faults::none(9)
        }
    });
    let ours = world.ours();
    let size = 64 * MIB;
    let path = path(size);
    let resident = resident_mib();
    let reads = stream::iter(0..100_000u64).map(|i| {
        let (ours, path) = (&ours, &path);
        async move {
            let mut random = uplake_testkit::random::Random::stream(8, i);
            let longest = if i % 200 == 0 { 4 * MIB } else { 16 * KIB };
            let start = random.below(size - longest);
            let range = start..start + 1 + random.below(longest);
            let bytes = ours.get_range(path, range.clone()).await.expect("a read");
            assert!(bytes == content(range.clone()), "wrong bytes in {range:?}");
        }
    });
    let (_, took, _) = world.measure(reads.buffer_unordered(64).collect::<Vec<()>>());
    let counts: Counts = ours.total();
    world.row("100,000 faulted reads, every byte right", format!("{:.0} s", took.as_secs_f64()));
    world.row("  counts", counts);
    let grown = resident_mib().saturating_sub(resident);
    world.row("  memory grown by", format!("{grown} MiB"));
    world.server.set_faults(|faults| *faults = Faults::usual(1));
}

fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

fn cache(world: &World) {
    let folder = tempfile::tempdir().expect("a folder");
    let len = 512 * MIB;
    let path = Path::from("bench/synthetic-536870912-a.parquet");
    // Columns of 1 MiB and footers, as a scan asks for them.
    let calls: Vec<Vec<Range<u64>>> = (0..64)
        .map(|i| {
            every(8, MIB, MIB).iter().map(|r| r.start + i * 8 * MIB..r.end + i * 8 * MIB).collect()
        })
        .collect();
    let scan = |store: &dyn ObjectStore, path: &Path| {
        let reads = stream::iter(&calls)
            .map(
                |ranges| async move { store.get_ranges(path, ranges).await.expect("a read").len() },
            )
            .buffer_unordered(4)
            .collect::<Vec<_>>();
        world.measure(reads).1.as_secs_f64()
    };
    let file = folder.path().join("local.parquet");
    std::fs::write(&file, content(0..len)).expect("written");
    let local = Store::open("file:///", &StorageOptions::default()).expect("files");
    let local_path = Path::from_absolute_path(&file).expect("a path");
    let memory = StorageOptions { memory_cache: ByteSize(1024 * MIB), ..world.options() };
    let memory = Store::open("s3://bucket", &memory).expect("valid");
    let disk = StorageOptions {
        disk_cache: ByteSize(1024 * MIB),
        disk_cache_path: Some(folder.path().join("cache")),
        ..world.options()
    };
    let on_disk = Store::open("s3://bucket", &disk).expect("valid");
    world.row("512 MiB cold, memory tier filled", format!("{:.2} s", scan(&*memory, &path)));
    world.row("512 MiB cold, disk tier filled", format!("{:.2} s", scan(&*on_disk, &path)));
    world.client.block_on(on_disk.flush_cache());
    world.compare(
        "512 MiB warm, 8 MiB a call, 4 calls at once",
        vec![
            ("local file", Box::new(|| scan(&*local, &local_path))),
            ("disk tier", Box::new(|| scan(&*on_disk, &path))),
            ("memory tier", Box::new(|| scan(&*memory, &path))),
        ],
    );
    let missed = on_disk.total();
    world.row("  counts of the disk tier", missed);
    drop(on_disk);
    let begun = Instant::now();
    let on_disk = Store::open("s3://bucket", &disk).expect("valid");
    world.row(
        "restart with 512 MiB on disk",
        format!("{:.0} ms", begun.elapsed().as_secs_f64() * 1e3),
    );
    drop(on_disk);
    // Many small extents are what a restart costs.
    let small = StorageOptions {
        disk_cache: ByteSize(8192 * MIB),
        disk_cache_path: Some(folder.path().join("small")),
        ..world.options()
    };
    world.server.set_faults(|faults| *faults = Faults::none(1));
    let store = Store::open("s3://bucket", &small).expect("valid");
    let pages = every(4096, 4 * KIB, 8 * KIB);
    for i in 0..25u64 {
        let path = Path::from(format!("bench/{i}/synthetic-536870912-a.parquet"));
        world.client.block_on(store.get_ranges(&path, &pages)).expect("a read");
        world.client.block_on(store.flush_cache());
    }
    let dropped = store.total().cache_dropped;
    drop(store);
    let begun = Instant::now();
    let store = Store::open("s3://bucket", &small).expect("valid");
    let took = begun.elapsed().as_secs_f64() * 1e3;
    world.row("restart with 102,400 extents on disk", format!("{took:.0} ms ({dropped} dropped)"));
    drop(store);
    world.server.set_faults(|faults| *faults = Faults::usual(1));
}

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let rounds = arguments.iter().find_map(|a| a.strip_prefix("--rounds=")?.parse().ok());
    let world = World::new(rounds.unwrap_or(5));
    let rows: Vec<&String> = arguments.iter().filter(|a| !a.starts_with("--")).collect();
    let wants = |row: &str| rows.is_empty() || rows.iter().any(|wanted| *wanted == row);
    if wants("line") {
        line(&world);
    }
    if wants("ranges") {
        call(&world, "32 adjacent ranges of 8 MiB in one call", &every(32, 8 * MIB, 8 * MIB));
    }
    if wants("gaps") {
        for (name, gap) in [("64 KiB", 64), ("256 KiB", 256), ("1 MiB", 1024)] {
            let ranges = every(1000, 64 * KIB, (64 + gap) * KIB);
            call(&world, &format!("1,000 x 64 KiB, gaps of {name}"), &ranges);
        }
    }
    if wants("tail") {
        tail(&world);
    }
    if wants("dead") {
        dead(&world);
    }
    if wants("throttle") {
        throttle(&world);
    }
    if wants("faults") {
        faults(&world);
    }
    if wants("cache") {
        cache(&world);
    }
}
