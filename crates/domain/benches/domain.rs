//! How fast is a domain at what a load and a query ask of it, and would a B+ tree do?
//!
//! Run: `cargo bench -p uplake-domain -- [dictionary] [encode] [cold] [limited]` (all without
//! arguments).
//! `dictionary`: random 32-byte keys, the hash over the key table beside `uplake-btree`.
//! `encode`: the XAB benchmark's events, ids "user_" and 16 to 32 hexadecimal digits.
//! `cold`: opening a domain from the local files, from the runs, from a base.
//! `limited`: the same random keys with a limit of memory that holds all, and with a quarter of it.
//! `MILLIONS` (10), `EVENTS_MILLIONS` (40), `USERS` (2,000,000) and `ROUNDS` (3) change the size;
//! `TREE=0` leaves the trees out.
//! Floor: two cache misses per look-up, 0.3 µs one by one, 15 ns each in a batch.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::{ObjectStore, path::Path as StorePath};
use tokio::runtime::{Builder, Runtime};
use uplake_btree::{MemoryFile, PAGE_BYTES, Tree};
use uplake_domain::{Columnar, Domain, Keys, Options};
use uplake_testkit::Strings;
use uplake_testkit::random::Random;
use uplake_testkit::xab::{World, XabOptions};

/// Keys looked up one by one, and in batches.
const LOOKUPS: usize = 2_000_000;
const BATCH: usize = 1 << 20;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Seconds that this process, or with `thread-self` this thread, has spent on processors.
fn cpu_seconds(whose: &str) -> f64 {
    let text = |file: &str| std::fs::read_to_string(format!("/proc/{whose}/{file}"));
    if whose == "thread-self" {
        let text = text("schedstat").unwrap_or_default();
        return text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0.0) / 1e9;
    }
    let stat = text("stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|t| t.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

/// Seconds by the clock and on a processor. Neighbours on the machine change the second less.
fn timed<T>(work: impl FnOnce() -> T) -> (T, f64, f64) {
    let (cpu, start) = (cpu_seconds("thread-self"), Instant::now());
    let out = work();
    (out, start.elapsed().as_secs_f64(), cpu_seconds("thread-self") - cpu)
}

/// The same of all threads.
fn timed_all<T>(work: impl FnOnce() -> T) -> (T, f64, f64) {
    let (cpu, start) = (cpu_seconds("self"), Instant::now());
    let out = work();
    (out, start.elapsed().as_secs_f64(), cpu_seconds("self") - cpu)
}

fn runtime() -> Runtime {
    Builder::new_current_thread().build().expect("a runtime")
}

fn domain(store: &Arc<dyn ObjectStore>, local: Option<PathBuf>, writer: u128) -> Arc<Domain> {
    limited(store, local, writer, None)
}

fn limited(
    store: &Arc<dyn ObjectStore>,
    local: Option<PathBuf>,
    writer: u128,
    memory_bytes: Option<u64>,
) -> Arc<Domain> {
    let (store, root) = (Arc::clone(store), StorePath::from("lake"));
    let mut options = Options::new(writer);
    options.memory_bytes = memory_bytes;
    let open = Domain::create(store, &root, "users", local, options);
    runtime().block_on(open).expect("open")
}

fn key(keys: &Strings, row: usize) -> &[u8] {
    &keys.bytes[keys.offsets[row] as usize..keys.offsets[row + 1] as usize]
}

fn slices(keys: &Strings, rows: impl Iterator<Item = usize>) -> Vec<&[u8]> {
    rows.map(|row| key(keys, row)).collect()
}

/// "user_" and 27 hexadecimal digits.
fn random_keys(count: usize) -> Strings {
    let mut random = Random::new(7);
    let mut keys = Strings::with_capacity(count, count * 32);
    for _ in 0..count {
        let (high, low) = (random.bits(), random.bits());
        keys.push(&format!("user_{high:016x}{:011x}", low >> 20));
    }
    keys
}

fn ns(seconds: f64, count: usize) -> f64 {
    seconds * 1e9 / count as f64
}

fn bench_dictionary(millions: usize, rounds: u64) {
    let count = millions * 1_000_000;
    println!("dictionary: {millions}M random keys of 32 bytes");
    let keys = random_keys(count);
    let mut random = Random::new(8);
    let hits: Vec<usize> = (0..LOOKUPS).map(|_| random.below(count as u64) as usize).collect();
    let hits = slices(&keys, hits.into_iter());
    let others = random_keys(count + LOOKUPS);
    let misses = slices(&others, count..count + LOOKUPS);

    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let users = domain(&store, None, 1);
    let (_, wall, cpu) = timed(|| {
        let mut ids = Vec::new();
        for first in (0..count).step_by(BATCH) {
            let offsets = &keys.offsets[first..=(first + BATCH).min(count)];
            let batch = Columnar::new(offsets, &keys.bytes);
            runtime().block_on(users.encode(&batch, &mut ids)).expect("encode");
        }
    });
    println!("  domain: load through encode {wall:.2} s ({cpu:.2} s of processor)");
    let described = runtime().block_on(users.describe()).expect("describe");
    println!(
        "  domain: memory {:.1} B a key (index {:.1}, keys {:.1}); log {:.1} B",
        (described.index_bytes + described.table_bytes) as f64 / count as f64,
        described.index_bytes as f64 / count as f64,
        described.table_bytes as f64 / count as f64,
        described.log_bytes as f64 / count as f64
    );

    let mut trees = Vec::new();
    if setting("TREE", 1) > 0 {
        let size = |tree: &Tree<[u8]>| {
            let stats = tree.inspect().expect("inspect");
            stats.pages.iter().sum::<u64>() as f64 * PAGE_BYTES as f64 / count as f64
        };
        let (tree, wall, cpu) = timed(|| random_tree(&keys, count));
        let bytes = size(&tree);
        println!("  tree: load in sorted batches {wall:.2} s ({cpu:.2} s), {bytes:.1} B a key");
        trees.push((4, tree));
        let (tree, wall, cpu) = timed(|| bulk_tree(&keys, count));
        let bytes = size(&tree);
        println!("  tree: sort and bulk load {wall:.2} s ({cpu:.2} s), {bytes:.1} B a key");
        trees.push((6, tree));
    }

    let wanted: Vec<u32> = (0..LOOKUPS).map(|at| (at * 7919 % count) as u32).collect();
    let mut figures = vec![Vec::new(); 9];
    for _ in 0..rounds {
        let mut ids = Vec::new();
        let mut values = vec![None; LOOKUPS];
        let mut many = |keys: &Vec<&[u8]>| timed(|| users.lookup_many(keys, &mut ids)).2;
        figures[0].push(many(&hits));
        figures[1].push(many(&misses));
        let single = |keys: &[&[u8]]| {
            timed(|| keys.iter().filter(|key| users.id_of(key).is_some()).count()).2
        };
        figures[2].push(single(&hits));
        figures[3].push(single(&misses));
        for (at, tree) in &trees {
            figures[*at].push(timed(|| tree.get_many(&hits, &mut values).expect("get")).2);
            let get = |key: &&&[u8]| tree.get(key).expect("get").is_some();
            figures[at + 1].push(timed(|| hits.iter().filter(get).count()).2);
        }
        let mut bytes = 0;
        let (_, _, cpu) =
            timed(|| users.keys_of(&wanted, |key| bytes += key.map_or(0, |key| key[9] as usize)));
        figures[8].push(cpu);
    }
    let names = [
        "domain: batched get",
        "domain: batched miss",
        "domain: get",
        "domain: miss",
        "tree: batched get",
        "tree: get",
        "bulk-loaded tree: batched get",
        "bulk-loaded tree: get",
        "domain: batched key of id",
    ];
    for (name, figures) in names.iter().zip(figures).filter(|(_, figures)| !figures.is_empty()) {
        let best = figures.iter().copied().fold(f64::INFINITY, f64::min);
        let (median, best) = (ns(median(figures), LOOKUPS), ns(best, LOOKUPS));
        println!("  {name:32} {median:6.0} ns of processor, best round {best:4.0}");
    }
}

/// As the log would fill it: batches in order of arrival, each sorted.
fn random_tree(keys: &Strings, count: usize) -> Tree<[u8]> {
    let tree = Tree::<[u8]>::create(MemoryFile::default(), tree_options()).expect("create");
    let mut old = vec![None; BATCH];
    for first in (0..count).step_by(BATCH) {
        let end = (first + BATCH).min(count);
        let mut rows: Vec<usize> = (first..end).collect();
        rows.sort_unstable_by_key(|&row| key(keys, row));
        let entries: Vec<(&[u8], u64)> =
            rows.into_iter().map(|row| (key(keys, row), row as u64)).collect();
        tree.put_sorted(&entries, &mut old[..entries.len()]).expect("put");
    }
    tree
}

fn bulk_tree(keys: &Strings, count: usize) -> Tree<[u8]> {
    let mut tree = Tree::<[u8]>::create(MemoryFile::default(), tree_options()).expect("create");
    let mut rows: Vec<usize> = (0..count).collect();
    rows.sort_unstable_by_key(|&row| key(keys, row));
    tree.bulk_load(rows.into_iter().map(|row| (key(keys, row), row as u64))).expect("load");
    tree
}

fn tree_options() -> uplake_btree::Options {
    uplake_btree::Options { pool_bytes: 2 << 30, ..uplake_btree::Options::default() }
}

/// The XAB benchmark's user of every event, in order of time, and the users' ids.
fn events(users: u32, events: usize) -> (Vec<u32>, Strings) {
    let per_day = 2_000_000;
    let days = events.div_ceil(per_day) as u32;
    let options = XabOptions { users, events_per_day: per_day, days, ..XabOptions::default() };
    let world = World::new(&options);
    let mut rows = Vec::with_capacity(events);
    for day in 0..days {
        rows.extend_from_slice(&world.day(day).events.user);
    }
    rows.truncate(events);
    let mut ids = Strings::with_capacity(users as usize, users as usize * 29);
    (0..users as usize).for_each(|user| ids.push(&format!("user_{}", world.user_ids.get(user))));
    (rows, ids)
}

fn bench_encode(events_millions: usize, users: u32, rounds: u64) {
    let (rows, ids) = events(users, events_millions * 1_000_000);
    let mut seen = vec![false; users as usize];
    rows.iter().for_each(|&user| seen[user as usize] = true);
    let distinct = seen.iter().filter(|seen| **seen).count();
    println!("encode: {} events of {distinct} users; 2 threads", rows.len());
    let mut bytes = Strings::with_capacity(rows.len(), rows.len() * 30);
    for batch in [64 << 10, 1 << 20] {
        let batches: Vec<Strings> = rows
            .chunks(batch)
            .map(|rows| {
                let mut keys = std::mem::replace(&mut bytes, Strings::with_capacity(0, 0));
                keys.offsets.truncate(1);
                keys.bytes.clear();
                rows.iter().for_each(|&user| keys.push(ids.get(user as usize)));
                keys
            })
            .collect();
        let mut figures = Vec::new();
        for round in 0..rounds {
            let folder = scratch(&format!("encode-{batch}-{round}"));
            let store: Arc<dyn ObjectStore> =
                Arc::new(LocalFileSystem::new_with_prefix(&folder).expect("a store"));
            let users = domain(&store, Some(folder.join("local")), 1);
            let first = timed_all(|| encode_all(&users, &batches));
            let again = timed_all(|| encode_all(&users, &batches));
            assert_eq!(users.keys(), distinct as u64);
            figures.push((first.1, first.2, again.1, again.2));
            let runs = runtime().block_on(users.describe()).expect("describe").runs;
            drop(users);
            std::fs::remove_dir_all(&folder).expect("remove");
            if round == 0 {
                println!("  batches of {batch}: {runs} runs");
            }
        }
        let of = |f: fn(&(f64, f64, f64, f64)) -> f64| {
            rows.len() as f64 / 1e6 / median(figures.iter().map(f).collect())
        };
        println!(
            "  batches of {batch}: first {:.1} M ids/s ({:.1} per processor second), \
             again, all known {:.1} ({:.1})",
            of(|f| f.0),
            of(|f| f.1),
            of(|f| f.2),
            of(|f| f.3)
        );
    }
}

/// Two threads take batches in turn, as a load's decoders do.
fn encode_all(users: &Domain, batches: &[Strings]) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let (runtime, mut ids) = (runtime(), Vec::new());
                while let Some(keys) = batches.get(next.fetch_add(1, Relaxed)) {
                    let keys = Columnar::new(&keys.offsets, &keys.bytes);
                    runtime.block_on(users.encode(&keys, &mut ids)).expect("encode");
                    assert_eq!(ids.len(), keys.len());
                }
            });
        }
    });
}

/// A folder for files, on the disk that holds the build.
fn scratch(name: &str) -> PathBuf {
    let program = std::env::current_exe().expect("a program has a path");
    let folder = program.with_file_name(format!("domain-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder beside the program");
    folder
}

fn bench_cold(users: usize, rounds: u64) {
    println!("cold: opening a domain of {users} keys of 21 to 37 bytes; files in the page cache");
    let (_, ids) = events(users as u32, 1);
    let folder = scratch("cold");
    let store: Arc<dyn ObjectStore> =
        Arc::new(LocalFileSystem::new_with_prefix(&folder).expect("a store"));
    let local = folder.join("local");
    {
        let domain = domain(&store, Some(local.clone()), 1);
        let mut given = Vec::new();
        for first in (0..users).step_by(users.div_ceil(40)) {
            let offsets = &ids.offsets[first..=(first + users.div_ceil(40)).min(users)];
            let batch = Columnar::new(offsets, &ids.bytes);
            runtime().block_on(domain.encode(&batch, &mut given)).expect("encode");
        }
    }
    runtime().block_on(domain(&store, Some(local.clone()), 2).checkpoint());
    let first = ids.get(users / 2).as_bytes();
    let mut figures = Vec::new();
    for _ in 0..rounds {
        let (_, wall, cpu) = timed(|| {
            let domain = limited(&store, Some(local.clone()), 2, Some(1 << 40));
            assert_eq!(domain.try_id_of(first).expect("whole"), Some(users as u32 / 2));
        });
        figures.push((wall, cpu));
    }
    let (wall, cpu): (Vec<f64>, Vec<f64>) = figures.into_iter().unzip();
    let (wall, cpu) = (median(wall), median(cpu));
    println!("  {:44} {wall:6.4} s ({cpu:.4} of processor)", "with a limit, and one id");
    let open = |what: &str, local: Option<&Path>, remove: bool| {
        let mut figures = Vec::new();
        for _ in 0..rounds {
            if let (Some(local), true) = (local, remove) {
                let _ = std::fs::remove_dir_all(local);
            }
            let (domain, wall, cpu) = timed(|| domain(&store, local.map(Path::to_owned), 2));
            assert_eq!(domain.keys(), users as u64);
            figures.push((wall, cpu));
        }
        let (wall, cpu): (Vec<f64>, Vec<f64>) = figures.into_iter().unzip();
        println!("  {what:44} {:6.3} s ({:.3} of processor)", median(wall), median(cpu));
    };
    open("from the local file", Some(&local), false);
    open("from 41 runs, in memory", None, false);
    open("from 41 runs, writing the local file", Some(&local), true);
    let (_, wall, cpu) = timed(|| {
        runtime().block_on(domain(&store, Some(local.clone()), 3).compact()).expect("compact")
    });
    println!("  {:44} {wall:5.2} s ({cpu:.2} of processor)", "open and compact");
    open("from a base, in memory", None, false);
    std::fs::remove_dir_all(&folder).expect("remove");
}

fn bench_limited(millions: usize, rounds: u64) {
    let count = millions * 1_000_000;
    println!("limited: {millions}M random keys of 32 bytes; files in the page cache");
    let keys = random_keys(count);
    let mut random = Random::new(8);
    let lookups = LOOKUPS / 4;
    let rows: Vec<usize> = (0..lookups).map(|_| random.below(count as u64) as usize).collect();
    let hits = slices(&keys, rows.iter().copied());
    let ids: Vec<u32> = rows.iter().map(|row| *row as u32).collect();
    let others = random_keys(count + lookups);
    let misses = slices(&others, count..count + lookups);
    let folder = scratch("limited");
    let store: Arc<dyn ObjectStore> =
        Arc::new(LocalFileSystem::new_with_prefix(&folder).expect("a store"));
    let local = folder.join("local");
    let all = {
        let users = domain(&store, Some(local.clone()), 1);
        let (_, wall, cpu) = timed(|| {
            let mut ids = Vec::new();
            for first in (0..count).step_by(BATCH) {
                let offsets = &keys.offsets[first..=(first + BATCH).min(count)];
                let batch = Columnar::new(offsets, &keys.bytes);
                runtime().block_on(users.encode(&batch, &mut ids)).expect("encode");
            }
        });
        println!("  load through encode, files kept {wall:.2} s ({cpu:.2} s of processor)");
        let (_, wall, cpu) = timed(|| runtime().block_on(users.checkpoint()));
        println!("  checkpoint of the index at the end {wall:.2} s ({cpu:.2} s of processor)");
        let described = runtime().block_on(users.describe()).expect("describe");
        let file = |name: &str| std::fs::metadata(local.join(name)).map_or(0, |file| file.len());
        println!(
            "  files: keys {:.1} B a key, index {:.1} B",
            file("keys.log") as f64 / count as f64,
            file("index") as f64 / count as f64
        );
        described.index_bytes + described.table_bytes
    };
    let limits = [("all at once", None), ("all", Some(2 * all)), ("a quarter", Some(all / 4))];
    let names =
        ["open", "first get", "batched get", "get", "batched miss", "miss", "keys of ids", "all"];
    let mut figures = vec![vec![Vec::new(); names.len()]; limits.len()];
    let mut memory = [0.0; 3];
    for _ in 0..rounds {
        for (at, (_, limit)) in limits.iter().enumerate() {
            let (users, wall, cpu) = timed(|| limited(&store, Some(local.clone()), 2, *limit));
            let mut note = |name: &str, wall: f64, cpu: f64| {
                let name = names.iter().position(|known| *known == name).expect("a name");
                figures[at][name].push((wall, cpu));
            };
            note("open", wall, cpu);
            let (found, wall, cpu) = timed(|| users.try_id_of(hits[0]).expect("whole"));
            assert_eq!(found, Some(ids[0]));
            note("first get", wall, cpu);
            let mut found = Vec::new();
            let (_, wall, cpu) = timed(|| users.try_lookup_many(&hits, &mut found).expect("whole"));
            note("all", wall, cpu);
            assert!(found.iter().zip(&ids).all(|(found, id)| *found == Some(*id)));
            let (_, wall, cpu) = timed(|| users.try_lookup_many(&hits, &mut found).expect("whole"));
            note("batched get", wall, cpu);
            let (_, wall, cpu) =
                timed(|| users.try_lookup_many(&misses, &mut found).expect("whole"));
            note("batched miss", wall, cpu);
            let single = |key: &&&[u8]| users.try_id_of(key).expect("whole").is_some();
            let (found, wall, cpu) = timed(|| hits.iter().filter(single).count());
            assert_eq!(found, lookups);
            note("get", wall, cpu);
            let (found, wall, cpu) = timed(|| misses.iter().filter(single).count());
            assert_eq!(found, 0);
            note("miss", wall, cpu);
            let (_, wall, cpu) = timed(|| users.try_keys_of(&ids, |key| assert!(key.is_some())));
            note("keys of ids", wall, cpu);
            let described = runtime().block_on(users.describe()).expect("describe");
            memory[at] = (described.index_bytes + described.table_bytes) as f64 / count as f64;
        }
    }
    for ((what, _), (figures, memory)) in limits.iter().zip(figures.into_iter().zip(memory)) {
        println!("  limit: {what}; in the end {memory:.1} B of memory a key");
        for (name, figures) in names.iter().zip(figures) {
            let (wall, cpu): (Vec<f64>, Vec<f64>) = figures.into_iter().unzip();
            let (wall, cpu) = (median(wall), median(cpu));
            match *name {
                "open" | "first get" => {
                    println!("    {name:14} {:9.3} ms ({:.3} of processor)", wall * 1e3, cpu * 1e3);
                }
                "all" => println!("    first batch of {lookups}: {wall:.3} s ({cpu:.3})"),
                _ => println!(
                    "    {name:14} {:6.0} ns ({:.0} of processor)",
                    ns(wall, lookups),
                    ns(cpu, lookups)
                ),
            }
        }
    }
    std::fs::remove_dir_all(&folder).expect("remove");
}

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let is_asked = |name: &str| asked.is_empty() || asked.iter().any(|asked| asked == name);
    let (rounds, users) = (setting("ROUNDS", 3), setting("USERS", 2_000_000));
    if is_asked("dictionary") {
        bench_dictionary(setting("MILLIONS", 10) as usize, rounds);
    }
    if is_asked("encode") {
        bench_encode(setting("EVENTS_MILLIONS", 40) as usize, users as u32, rounds);
    }
    if is_asked("cold") {
        bench_cold(users as usize, rounds);
    }
    if is_asked("limited") {
        bench_limited(setting("MILLIONS", 10) as usize, rounds);
    }
}
