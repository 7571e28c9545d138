//! The tree beside redb and LMDB: the published workload, and 10 million numbers.
//!
//! Neither peer synchronizes the file while it is measured (redb `Durability::None`, LMDB
//! `NO_SYNC | WRITE_MAP`), and both are measured with one transaction per operation and with one
//! per run of 2048 keys. Contestants take turns. `SECONDS` (1), `ROUNDS` (3) and `MILLIONS` (10)
//! change the size.

use std::ops::{Bound, ControlFlow};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use heed::EnvFlags;
use heed::byteorder::BigEndian;
use heed::types::U64;
use redb::{Durability, TableDefinition};
use uplake_btree::{Direction, MemoryFile, Options, Tree};

const KEYS: u64 = 100_000;
const RUN: u64 = 2048;
const TABLE: TableDefinition<u64, u64> = TableDefinition::new("numbers");
type Numbers = U64<BigEndian>;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|t| t.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

/// What a write does to a key.
#[derive(Clone, Copy)]
enum Change {
    Put(u64),
    Remove,
}

trait Store: Sync {
    /// How many of the keys are there.
    fn get(&self, keys: &[u64]) -> u64;
    fn change(&self, changes: &[(u64, Change)]);
    /// Sum of the values of `count` entries from `key` on.
    fn scan(&self, key: u64, count: usize) -> u64;
}

impl Store for Tree<u64> {
    fn get(&self, keys: &[u64]) -> u64 {
        keys.iter().filter(|key| Tree::get(self, key).expect("get").is_some()).count() as u64
    }

    fn change(&self, changes: &[(u64, Change)]) {
        for (key, change) in changes {
            match change {
                Change::Put(value) => drop(self.put(key, *value).expect("put")),
                Change::Remove => drop(self.remove(key).expect("remove")),
            }
        }
    }

    fn scan(&self, key: u64, count: usize) -> u64 {
        let (mut sum, mut left) = (0u64, count);
        Tree::scan(self, Bound::Included(&key), Bound::Unbounded, Direction::Forward, |_, value| {
            sum = sum.wrapping_add(value);
            left -= 1;
            if left > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
        .expect("scan");
        sum
    }
}

struct Redb(redb::Database);

impl Redb {
    fn new(path: &Path) -> Self {
        let _ = std::fs::remove_file(path);
        let mut builder = redb::Builder::new();
        Self(builder.set_cache_size(1 << 30).create(path).expect("create"))
    }
}

impl Store for Redb {
    fn get(&self, keys: &[u64]) -> u64 {
        let read = self.0.begin_read().expect("begin");
        let table = read.open_table(TABLE).expect("open");
        keys.iter().filter(|key| table.get(**key).expect("get").is_some()).count() as u64
    }

    fn change(&self, changes: &[(u64, Change)]) {
        let mut write = self.0.begin_write().expect("begin");
        write.set_durability(Durability::None);
        {
            let mut table = write.open_table(TABLE).expect("open");
            for (key, change) in changes {
                match change {
                    Change::Put(value) => drop(table.insert(*key, *value).expect("insert")),
                    Change::Remove => drop(table.remove(*key).expect("remove")),
                }
            }
        }
        write.commit().expect("commit");
    }

    fn scan(&self, key: u64, count: usize) -> u64 {
        let read = self.0.begin_read().expect("begin");
        let table = read.open_table(TABLE).expect("open");
        let range = table.range(key..).expect("range").take(count);
        range.fold(0, |sum, entry| sum.wrapping_add(entry.expect("entry").1.value()))
    }
}

struct Lmdb(heed::Env, heed::Database<Numbers, Numbers>);

impl Lmdb {
    fn new(path: &Path) -> Self {
        let _ = std::fs::remove_dir_all(path);
        std::fs::create_dir_all(path).expect("create");
        let mut options = heed::EnvOpenOptions::new();
        options.map_size(8 << 30).max_readers(64);
        // SAFETY: nobody else has the file, and losing it in a crash is fine here.
        let env = unsafe {
            options.flags(EnvFlags::NO_SYNC | EnvFlags::WRITE_MAP | EnvFlags::NO_READ_AHEAD);
            options.open(path).expect("open")
        };
        let mut write = env.write_txn().expect("begin");
        let database = env.create_database(&mut write, None).expect("create");
        write.commit().expect("commit");
        Self(env, database)
    }
}

impl Store for Lmdb {
    fn get(&self, keys: &[u64]) -> u64 {
        let read = self.0.read_txn().expect("begin");
        keys.iter().filter(|key| self.1.get(&read, key).expect("get").is_some()).count() as u64
    }

    fn change(&self, changes: &[(u64, Change)]) {
        let mut write = self.0.write_txn().expect("begin");
        for (key, change) in changes {
            match change {
                Change::Put(value) => self.1.put(&mut write, key, value).expect("put"),
                Change::Remove => drop(self.1.delete(&mut write, key).expect("delete")),
            }
        }
        write.commit().expect("commit");
    }

    fn scan(&self, key: u64, count: usize) -> u64 {
        let read = self.0.read_txn().expect("begin");
        let range = self.1.range(&read, &(key..)).expect("range").take(count);
        range.fold(0, |sum, entry| sum.wrapping_add(entry.expect("entry").1))
    }
}

/// M reads/s, M writes/s, M operations per processor second.
fn workload(store: &dyn Store, batch: usize, seconds: f64, seed: u64) -> [f64; 3] {
    let stop = AtomicBool::new(false);
    let (reads, writes) = (AtomicU64::new(0), AtomicU64::new(0));
    let (cpu, start) = (cpu_seconds(), Instant::now());
    std::thread::scope(|scope| {
        let (stop, reads, writes) = (&stop, &reads, &writes);
        for thread in 0..4u64 {
            scope.spawn(move || {
                let mut state = seed * 100 + thread + 1;
                while !stop.load(Relaxed) {
                    let base = thread * 25_000 + random(&mut state) % 25_000;
                    let keys: Vec<u64> = (base..(base + RUN).min((thread + 1) * 25_000)).collect();
                    for keys in keys.chunks(batch) {
                        let kept = keys.iter().filter(|key| **key % 7 != 0).count() as u64;
                        assert!(store.get(keys) >= kept, "a key that is never removed is missing");
                        reads.fetch_add(keys.len() as u64, Relaxed);
                        if stop.load(Relaxed) {
                            break;
                        }
                    }
                }
            });
        }
        for thread in 0..2u64 {
            scope.spawn(move || {
                let mut state = seed * 100 + thread + 50;
                let mut do_insert = false;
                while !stop.load(Relaxed) {
                    let base = thread * 50_000 + random(&mut state) % 50_000;
                    let run = base..(base + RUN).min((thread + 1) * 50_000);
                    let changes: Vec<(u64, Change)> = run
                        .filter(|key| key % 7 == 0 || key % 5 == 0)
                        .map(|key| match key % 7 {
                            0 if do_insert => (key, Change::Put(key)),
                            0 => (key, Change::Remove),
                            _ => (key, Change::Put(random(&mut state))),
                        })
                        .collect();
                    do_insert = !do_insert;
                    for changes in changes.chunks(batch) {
                        store.change(changes);
                        writes.fetch_add(changes.len() as u64, Relaxed);
                        if stop.load(Relaxed) {
                            break;
                        }
                    }
                }
            });
        }
        std::thread::sleep(Duration::from_secs_f64(seconds));
        stop.store(true, Relaxed);
    });
    let (wall, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let (reads, writes) = (reads.into_inner() as f64, writes.into_inner() as f64);
    [reads / wall / 1e6, writes / wall / 1e6, (reads + writes) / cpu / 1e6]
}

fn load(store: &dyn Store, keys: u64) {
    let changes: Vec<(u64, Change)> = (0..keys).map(|key| (key, Change::Put(key))).collect();
    changes.chunks(1_000_000).for_each(|changes| store.change(changes));
}

fn main() {
    let folder: PathBuf = std::env::current_exe().expect("a path").with_file_name("peers");
    std::fs::create_dir_all(&folder).expect("a folder beside the program");
    let options = Options { pool_bytes: 1 << 30, ..Options::default() };
    let stores = || -> [(&str, Box<dyn Store>); 3] {
        let tree = Tree::<u64>::create(MemoryFile::default(), options).expect("create");
        [
            ("tree", Box::new(tree)),
            ("redb", Box::new(Redb::new(&folder.join("redb")))),
            ("LMDB", Box::new(Lmdb::new(&folder.join("lmdb")))),
        ]
    };
    let small = stores();
    small.iter().for_each(|(_, store)| load(store.as_ref(), KEYS));
    println!("workload, M op/s: reads writes | both per processor second");
    for (batch, name) in [(1, "one by one"), (RUN as usize, "by runs of 2048")] {
        let mut results = vec![Vec::new(); small.len()];
        for round in 0..setting("ROUNDS", 3) {
            for ((_, store), results) in small.iter().zip(&mut results) {
                let seconds = setting("SECONDS", 1) as f64;
                results.push(workload(store.as_ref(), batch, seconds, round + 1));
            }
        }
        for ((store, _), results) in small.iter().zip(results) {
            let of = |i: usize| median(results.iter().map(|r| r[i]).collect());
            println!("  {store} {name}: {:.2} {:.2} | {:.2}", of(0), of(1), of(2));
        }
    }
    drop(small);
    let n = setting("MILLIONS", 10) * 1_000_000;
    println!("{n} numbers in order, then random gets and scans of 100; processor time");
    for (name, store) in stores() {
        let start = cpu_seconds();
        load(store.as_ref(), n);
        let loaded = cpu_seconds() - start;
        let mut state = 7;
        let keys: Vec<u64> = (0..1_000_000).map(|_| random(&mut state) % n).collect();
        let start = cpu_seconds();
        let found: u64 = keys.iter().map(|key| store.get(&[*key])).sum();
        let get = (cpu_seconds() - start) * 1e3;
        assert_eq!(found, 1_000_000);
        let start = cpu_seconds();
        let sum: u64 = keys[..100_000].iter().map(|key| store.scan(*key, 100) & 1).sum();
        let scan = (cpu_seconds() - start) * 1e4;
        println!("  {name}: load {loaded:.2} s, get {get:.0} ns, scan {scan:.0} ns ({sum})");
    }
    std::fs::remove_dir_all(&folder).expect("remove");
}
