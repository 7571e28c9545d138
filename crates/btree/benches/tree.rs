//! How fast is the tree at what its users do, and beside an ordered map behind one lock?
//!
//! Run: `cargo bench -p uplake-btree -- [workload] [pool] [hits] [numbers] [reads]
//! [strings] [cold] [durable]` (all without arguments). The workload is the published one: 100,000 ordered inserts, then 4 readers and
//! 2 writers on runs of 2048 keys. Contestants take turns; figures are medians of the rounds.
//! `SECONDS` (1), `ROUNDS` (5) and `MILLIONS` (10) change the size.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::ops::{Bound, ControlFlow};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, RwLock};
use std::time::{Duration, Instant};

use uplake_btree::{Direction, DurableTree, MemoryFile, Options, PAGE_BYTES, PageFile, Tree};

struct Random(u64);

impl Random {
    #[inline]
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Seconds of processor time this process has used.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|t| t.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

/// Measures one thread: nanoseconds on a processor, which neighbours on the machine change less than
/// they change the time of the clock. The kernel's work for the thread is part of it, waiting is not.
struct Timer {
    wall: Instant,
    cpu: u64,
}

fn thread_cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

impl Timer {
    fn start() -> Self {
        Self { cpu: thread_cpu_ns(), wall: Instant::now() }
    }

    /// Nanoseconds on a processor per operation.
    fn ns(&self, operations: u64) -> f64 {
        (thread_cpu_ns() - self.cpu) as f64 / operations as f64
    }

    /// Seconds on a processor and by the clock.
    fn seconds(&self) -> String {
        let cpu = (thread_cpu_ns() - self.cpu) as f64 / 1e9;
        format!("{cpu:.2} s ({:.2} by the clock)", self.wall.elapsed().as_secs_f64())
    }
}

/// A folder for files, on the disk that holds the build.
fn scratch(name: &str) -> (File, PathBuf) {
    let path = std::env::current_exe().expect("a program has a path").with_file_name(name);
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path);
    (file.expect("a file beside the program"), path)
}

trait Map: Sync {
    fn get(&self, key: u64) -> Option<u64>;
    fn put(&self, key: u64, value: u64);
    fn remove(&self, key: u64);
}

impl Map for Tree<u64> {
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        Tree::get(self, &key).expect("get")
    }
    #[inline]
    fn put(&self, key: u64, value: u64) {
        Tree::put(self, &key, value).expect("put");
    }
    #[inline]
    fn remove(&self, key: u64) {
        Tree::remove(self, &key).expect("remove");
    }
}

impl Map for RwLock<BTreeMap<u64, u64>> {
    fn get(&self, key: u64) -> Option<u64> {
        self.read().expect("lock").get(&key).copied()
    }
    fn put(&self, key: u64, value: u64) {
        self.write().expect("lock").insert(key, value);
    }
    fn remove(&self, key: u64) {
        self.write().expect("lock").remove(&key);
    }
}

/// The published design: a page table behind a mutex, pin counts, an O(1) list of use, and a
/// read-write latch on every page, taken hand over hand. Leaves and inner pages are sorted lists of
/// the same capacity as ours; the tree is built before and never splits.
struct Classic {
    table: Mutex<ClassicTable>,
    frames: Vec<ClassicFrame>,
    disk: Mutex<HashMap<u32, ClassicPage>>,
    root: u32,
}

#[derive(Default)]
struct ClassicTable {
    frame_of: HashMap<u32, u32>,
    page_of: Vec<u32>,
    pins: Vec<u32>,
    previous: Vec<u32>,
    next: Vec<u32>,
    head: u32,
}

struct ClassicFrame {
    page: RwLock<ClassicPage>,
}

#[derive(Clone, Default)]
struct ClassicPage {
    is_leaf: bool,
    keys: Vec<u64>,
    values: Vec<u64>,
}

const CLASSIC_LEAF: usize = 220;

impl Classic {
    fn new(keys: u64, frames: usize) -> Self {
        let mut disk = HashMap::new();
        let mut children = Vec::new();
        let all: Vec<u64> = (0..keys).collect();
        for (pid, keys) in all.chunks(CLASSIC_LEAF).enumerate() {
            let page = ClassicPage { is_leaf: true, keys: keys.to_vec(), values: keys.to_vec() };
            children.push((keys[0], pid as u64));
            disk.insert(pid as u32, page);
        }
        while children.len() > 1 {
            let mut above = Vec::new();
            for chunk in children.chunks(CLASSIC_LEAF) {
                let pid = disk.len() as u32;
                let (keys, values) = chunk.iter().copied().unzip();
                disk.insert(pid, ClassicPage { is_leaf: false, keys, values });
                above.push((chunk[0].0, u64::from(pid)));
            }
            children = above;
        }
        let root = children[0].1 as u32;
        let n = frames as u32;
        let table = ClassicTable {
            frame_of: HashMap::new(),
            page_of: vec![u32::MAX; frames],
            pins: vec![0; frames],
            previous: (0..n).map(|i| (i + n - 1) % n).collect(),
            next: (0..n).map(|i| (i + 1) % n).collect(),
            head: 0,
        };
        let frames = (0..frames).map(|_| ClassicFrame { page: RwLock::default() }).collect();
        Self { table: Mutex::new(table), frames, disk: Mutex::new(disk), root }
    }

    fn pin(&self, pid: u32) -> u32 {
        let mut table = self.table.lock().expect("lock");
        let frame = match table.frame_of.get(&pid) {
            Some(frame) => *frame,
            None => {
                let mut frame = table.previous[table.head as usize];
                while table.pins[frame as usize] > 0 {
                    frame = table.previous[frame as usize];
                }
                let old = std::mem::replace(&mut table.page_of[frame as usize], pid);
                let mut disk = self.disk.lock().expect("lock");
                let mut page = self.frames[frame as usize].page.write().expect("lock");
                if old != u32::MAX {
                    table.frame_of.remove(&old);
                    disk.insert(old, std::mem::take(&mut page));
                }
                *page = disk[&pid].clone();
                table.frame_of.insert(pid, frame);
                frame
            }
        };
        table.touch(frame);
        table.pins[frame as usize] += 1;
        frame
    }

    fn unpin(&self, frame: u32) {
        self.table.lock().expect("lock").pins[frame as usize] -= 1;
    }

    fn change(&self, key: u64, change: impl FnOnce(&mut ClassicPage, Result<usize, usize>)) {
        let mut frame = self.pin(self.root);
        let mut page = self.frames[frame as usize].page.read().expect("lock");
        loop {
            let at = page.keys.partition_point(|k| *k <= key).saturating_sub(1);
            let child = self.pin(page.values[at] as u32);
            let below = self.frames[child as usize].page.read().expect("lock");
            if below.is_leaf {
                drop(below);
                let mut leaf = self.frames[child as usize].page.write().expect("lock");
                drop(page);
                self.unpin(frame);
                let at = leaf.keys.binary_search(&key);
                change(&mut leaf, at);
                drop(leaf);
                self.unpin(child);
                return;
            }
            page = below;
            self.unpin(frame);
            frame = child;
        }
    }
}

impl ClassicTable {
    fn touch(&mut self, frame: u32) {
        if self.head == frame {
            return;
        }
        let (previous, next) = (self.previous[frame as usize], self.next[frame as usize]);
        self.next[previous as usize] = next;
        self.previous[next as usize] = previous;
        let head = self.head;
        let tail = self.previous[head as usize];
        self.next[tail as usize] = frame;
        self.previous[frame as usize] = tail;
        self.next[frame as usize] = head;
        self.previous[head as usize] = frame;
        self.head = frame;
    }
}

impl Map for Classic {
    fn get(&self, key: u64) -> Option<u64> {
        let mut frame = self.pin(self.root);
        let mut page = self.frames[frame as usize].page.read().expect("lock");
        while !page.is_leaf {
            let at = page.keys.partition_point(|k| *k <= key).saturating_sub(1);
            let child = self.pin(page.values[at] as u32);
            page = self.frames[child as usize].page.read().expect("lock");
            self.unpin(frame);
            frame = child;
        }
        let value = page.keys.binary_search(&key).ok().map(|at| page.values[at]);
        drop(page);
        self.unpin(frame);
        value
    }

    fn put(&self, key: u64, value: u64) {
        self.change(key, |page, at| match at {
            Ok(at) => page.values[at] = value,
            Err(at) => {
                page.keys.insert(at, key);
                page.values.insert(at, value);
            }
        });
    }

    fn remove(&self, key: u64) {
        self.change(key, |page, at| {
            if let Ok(at) = at {
                page.keys.remove(at);
                page.values.remove(at);
            }
        });
    }
}

const WORKLOAD_KEYS: u64 = 100_000;
const RUN: u64 = 2048;

/// Reads, writes, wrong answers, and operations per processor second.
fn workload(map: &dyn Map, seconds: f64, seed: u64) -> (f64, f64, u64, f64) {
    let (stop, wrong) = (AtomicBool::new(false), AtomicU64::new(0));
    let (reads, writes) = (AtomicU64::new(0), AtomicU64::new(0));
    let (cpu, start) = (cpu_seconds(), Instant::now());
    std::thread::scope(|scope| {
        let (stop, wrong, reads, writes) = (&stop, &wrong, &reads, &writes);
        for thread in 0..4u64 {
            scope.spawn(move || {
                let mut random = Random(seed * 100 + thread + 1);
                let (low, high) = (thread * 25_000, (thread + 1) * 25_000);
                while !stop.load(Relaxed) {
                    let base = low + random.next() % 25_000;
                    let end = (base + RUN).min(high);
                    let mut bad = 0;
                    for key in base..end {
                        let found = map.get(key);
                        let is_wrong = key % 7 != 0
                            && (found.is_none() || (key % 5 != 0 && found != Some(key)));
                        bad += u64::from(is_wrong);
                    }
                    reads.fetch_add(end - base, Relaxed);
                    wrong.fetch_add(bad, Relaxed);
                }
            });
        }
        for thread in 0..2u64 {
            scope.spawn(move || {
                let mut random = Random(seed * 100 + thread + 50);
                let (low, high) = (thread * 50_000, (thread + 1) * 50_000);
                let mut do_insert = false;
                while !stop.load(Relaxed) {
                    let base = low + random.next() % 50_000;
                    let end = (base + RUN).min(high);
                    let mut done = 0;
                    for key in base..end {
                        if key % 7 == 0 {
                            if do_insert { map.put(key, key) } else { map.remove(key) }
                        } else if key % 5 == 0 {
                            map.put(key, random.next());
                        } else {
                            continue;
                        }
                        done += 1;
                    }
                    do_insert = !do_insert;
                    writes.fetch_add(done, Relaxed);
                }
            });
        }
        std::thread::sleep(Duration::from_secs_f64(seconds));
        stop.store(true, Relaxed);
    });
    let (wall, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let (reads, writes) = (reads.into_inner() as f64, writes.into_inner() as f64);
    (reads / wall / 1e6, writes / wall / 1e6, wrong.into_inner(), (reads + writes) / cpu / 1e6)
}

fn loaded_tree(pool_bytes: usize, shards: Option<usize>) -> Tree<u64> {
    let options = Options { pool_bytes, max_pages: 1 << 16, shards };
    let tree = Tree::<u64>::create(MemoryFile::default(), options).expect("create");
    (0..WORKLOAD_KEYS).for_each(|key| Map::put(&tree, key, key));
    tree
}

fn bench_workload(seconds: f64, rounds: u64) {
    println!("workload: M op/s: total reads writes | per processor second | wrong");
    let map = RwLock::new((0..WORKLOAD_KEYS).map(|key| (key, key)).collect::<BTreeMap<_, _>>());
    let (tree, evicting) = (loaded_tree(64 << 20, None), loaded_tree(256 * PAGE_BYTES, None));
    let (classic, small) = (Classic::new(WORKLOAD_KEYS, 1000), Classic::new(WORKLOAD_KEYS, 256));
    let one_shard = loaded_tree(256 * PAGE_BYTES, Some(1));
    let four_shards = loaded_tree(256 * PAGE_BYTES, Some(4));
    let twelve_shards = loaded_tree(256 * PAGE_BYTES, Some(12));
    let before = (tree.counters(), evicting.counters());
    let contestants: [(&str, &dyn Map); 8] = [
        ("tree, all resident", &tree),
        ("RwLock<BTreeMap>", &map),
        ("classic, all resident", &classic),
        ("tree, 256 frames", &evicting),
        ("tree, 256 frames, 1 shard", &one_shard),
        ("tree, 256 frames, 4 shards", &four_shards),
        ("tree, 256 frames, 12 shards", &twelve_shards),
        ("classic, 256 frames", &small),
    ];
    let mut results = vec![Vec::new(); contestants.len()];
    for round in 0..rounds {
        for (result, (_, map)) in results.iter_mut().zip(contestants) {
            result.push(workload(map, seconds, round + 1));
        }
    }
    for (result, (name, _)) in results.iter().zip(contestants) {
        let of = |f: fn(&(f64, f64, u64, f64)) -> f64| median(result.iter().map(f).collect());
        let wrong: u64 = result.iter().map(|r| r.2).sum();
        let (total, reads, writes) = (of(|r| r.0 + r.1), of(|r| r.0), of(|r| r.1));
        println!(
            "  {name:28} {total:6.2} {reads:6.2} {writes:6.2} | {:6.2} | {wrong}",
            of(|r| r.3)
        );
    }
    for (name, tree, before) in [("resident", &tree, before.0), ("256 frames", &evicting, before.1)]
    {
        let after = tree.counters();
        println!(
            "  {name}: {} splits, {} merges, {} shifts while timed; {} reads, {} writes of pages",
            after.splits - before.splits,
            after.merges - before.merges,
            after.shifts - before.shifts,
            after.pool.reads - before.pool.reads,
            after.pool.writes - before.pool.writes
        );
    }
}

fn bench_numbers(millions: u64) {
    let n = millions * 1_000_000;
    println!("numbers: {millions}M u64 keys, pool 1 GiB");
    let options = Options { pool_bytes: 1 << 30, ..Options::default() };
    for is_bulk in [true, false] {
        let (file, path) = scratch("tree-numbers");
        let start = Timer::start();
        let mut tree = Tree::<u64>::create(file, options).expect("create");
        if is_bulk {
            tree.bulk_load((0..n).map(|key| (key, key))).expect("load");
        } else {
            (0..n).for_each(|key| Map::put(&tree, key, key));
        }
        let loaded = start.seconds();
        tree.checkpoint(1).expect("checkpoint");
        let durable = start.seconds();
        let stats = tree.inspect().expect("a whole tree");
        println!(
            "  sorted {}: {loaded}, durable {durable}, {:.1} B/entry, leaves {:.0} % full",
            if is_bulk { "bulk load" } else { "single puts" },
            f64::from(stats.blocks) * PAGE_BYTES as f64 / n as f64,
            stats.fill[0] * 100.0
        );
        if is_bulk {
            read_numbers(&tree, n);
        }
        std::fs::remove_file(path).expect("remove");
    }
    random_numbers(n, options);
}

fn read_numbers(tree: &Tree<u64>, n: u64) {
    let mut random = Random(42);
    let keys: Vec<u64> = (0..2_000_000).map(|_| random.next() % n).collect();
    let mut values = vec![None; keys.len()];
    let (mut single, mut batch, mut scan) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..3 {
        let start = Timer::start();
        let found = keys.iter().filter(|key| Map::get(tree, **key) == Some(**key)).count();
        single.push(start.ns(keys.len() as u64));
        assert_eq!(found, keys.len());
        let start = Timer::start();
        tree.get_many(&keys, &mut values).expect("get_many");
        batch.push(start.ns(keys.len() as u64));
        assert!(keys.iter().zip(&values).all(|(key, value)| *value == Some(*key)));
        let start = Timer::start();
        let mut sum = 0u64;
        for key in &keys[..200_000] {
            let mut left = 100;
            tree.scan(Bound::Included(key), Bound::Unbounded, Direction::Forward, |_, value| {
                sum = sum.wrapping_add(value);
                left -= 1;
                if left > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })
            .expect("scan");
        }
        scan.push(start.ns(200_000));
        assert!(sum > 0);
    }
    println!(
        "  random get {:.0} ns, batched {:.0} ns, scan of 100 {:.0} ns",
        median(single),
        median(batch),
        median(scan)
    );
}

/// Reads alone, of a tree that is bulk-loaded into memory: short, to compare two builds in turn.
fn bench_reads(millions: u64) {
    let n = millions * 1_000_000;
    println!("reads: {millions}M u64 keys, pool 1 GiB");
    let options = Options { pool_bytes: 1 << 30, ..Options::default() };
    let mut tree = Tree::<u64>::create(MemoryFile::default(), options).expect("create");
    tree.bulk_load((0..n).map(|key| (key, key))).expect("load");
    read_numbers(&tree, n);
}

fn random_numbers(n: u64, options: Options) {
    let tree = Tree::<u64>::create(MemoryFile::default(), options).expect("create");
    let start = Timer::start();
    (0..n).for_each(|i| Map::put(&tree, i.wrapping_mul(0x9e37_79b9_7f4a_7c15), i));
    let insert = start.ns(n);
    let stats = tree.inspect().expect("a whole tree");
    let bytes = stats.pages.iter().sum::<u64>() as f64 * PAGE_BYTES as f64 / n as f64;
    println!(
        "  random single puts {insert:.0} ns, {bytes:.1} B/entry, leaves {:.0} % full, {} splits, {} shifts",
        stats.fill[0] * 100.0,
        stats.splits,
        stats.shifts
    );
}

/// "user_" and 27 hexadecimal digits, in no order.
fn user(i: u64, key: &mut [u8; 32]) {
    let mixed = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let wide = u128::from(mixed) << 64 | u128::from(mixed.wrapping_mul(0xd6e8_feb8_6659_fd93));
    key[..5].copy_from_slice(b"user_");
    for (at, byte) in key[5..].iter_mut().enumerate() {
        *byte = b"0123456789abcdef"[(wide >> (124 - 4 * at) & 15) as usize];
    }
}

fn bench_strings(millions: u64) {
    let n = millions * 1_000_000;
    println!("strings: {millions}M keys of 32 bytes in random order, pool 2 GiB");
    let options = Options { pool_bytes: 2 << 30, ..Options::default() };
    for batch in [1_000_000usize, 1] {
        let (file, path) = scratch("tree-strings");
        let start = Timer::start();
        let tree = Tree::<[u8]>::create(file, options).expect("create");
        let mut key = [0; 32];
        if batch == 1 {
            for i in 0..n {
                user(i, &mut key);
                tree.put(&key, i).expect("put");
            }
        } else {
            let mut entries = Vec::with_capacity(batch);
            let mut previous = vec![None; batch];
            for first in (0..n).step_by(batch) {
                entries.clear();
                for i in first..n.min(first + batch as u64) {
                    user(i, &mut key);
                    entries.push((key, i));
                }
                entries.sort_unstable();
                let previous = &mut previous[..entries.len()];
                let borrowed: Vec<(&[u8], u64)> =
                    entries.iter().map(|(key, value)| (key.as_slice(), *value)).collect();
                tree.insert_sorted_if_absent(&borrowed, previous).expect("insert");
            }
        }
        let loaded = start.seconds();
        tree.checkpoint(1).expect("checkpoint");
        let durable = start.seconds();
        let stats = tree.inspect().expect("a whole tree");
        println!(
            "  load by {batch}: {loaded}, durable {durable}, {:.1} B/entry, leaves {:.0} % full",
            stats.pages.iter().sum::<u64>() as f64 * PAGE_BYTES as f64 / n as f64,
            stats.fill[0] * 100.0
        );
        if batch > 1 {
            read_strings(&tree, n);
        }
        drop(tree);
        std::fs::remove_file(path).expect("remove");
    }
}

fn read_strings(tree: &Tree<[u8]>, n: u64) {
    let mut random = Random(42);
    let ids: Vec<u64> = (0..1_000_000).map(|_| random.next() % n).collect();
    let mut bytes = vec![[0; 32]; ids.len()];
    ids.iter().zip(&mut bytes).for_each(|(id, key)| user(*id, key));
    let keys: Vec<&[u8]> = bytes.iter().map(|key| key.as_slice()).collect();
    let mut values = vec![None; keys.len()];
    let (mut single, mut batch) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let start = Timer::start();
        let pairs = keys.iter().zip(&ids);
        let found = pairs.filter(|(key, id)| tree.get(key).expect("get") == Some(**id)).count();
        single.push(start.ns(keys.len() as u64));
        assert_eq!(found, keys.len());
        let start = Timer::start();
        tree.get_many(&keys, &mut values).expect("get_many");
        batch.push(start.ns(keys.len() as u64));
        assert!(ids.iter().zip(&values).all(|(id, value)| *value == Some(*id)));
    }
    println!("  random get {:.0} ns, batched {:.0} ns", median(single), median(batch));
}

/// A pool of a quarter of the data. The system's cache still has the file, so this counts reads
/// and measures everything but the disk.
fn bench_cold(millions: u64) {
    let n = millions * 1_000_000;
    let pool_bytes = (n * 18 / 4) as usize;
    println!("cold: {millions}M u64 keys, pool a quarter of the data, file in the system's cache");
    let (file, path) = scratch("tree-cold");
    let options = Options { pool_bytes, ..Options::default() };
    let mut tree = Tree::<u64>::create(file, options).expect("create");
    tree.bulk_load((0..n).map(|key| (key, key))).expect("load");
    tree.checkpoint(1).expect("checkpoint");
    let mut random = Random(7);
    for round in ["warming up", "measured"] {
        let before = tree.counters().pool.reads;
        let start = Timer::start();
        for _ in 0..300_000 {
            let key = random.next() % n;
            assert_eq!(Map::get(&tree, key), Some(key));
        }
        let reads = tree.counters().pool.reads - before;
        println!(
            "  {round}: {:.2} µs and {:.2} page reads each",
            start.ns(300_000) / 1e3,
            reads as f64 / 300_000.0
        );
    }
    std::fs::remove_file(path).expect("remove");
}

/// Hits of the pool against hits of one mutex with a page table, one thread.
fn bench_pool() {
    let tree = loaded_tree(64 << 20, None);
    let classic = Classic::new(WORKLOAD_KEYS, 1000);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let mut random = Random(3);
        let start = Timer::start();
        let mut sum = 0;
        for _ in 0..2_000_000 {
            sum += Map::get(&tree, random.next() % WORKLOAD_KEYS).unwrap_or(0);
        }
        ours.push(start.ns(2_000_000));
        let start = Timer::start();
        for _ in 0..2_000_000 {
            sum += Map::get(&classic, random.next() % WORKLOAD_KEYS).unwrap_or(0);
        }
        theirs.push(start.ns(2_000_000));
        assert!(sum > 0);
    }
    let (ours, theirs) = (median(ours), median(theirs));
    println!(
        "pool: a look-up of 2 hits, 1 thread: {ours:.0} ns, classic {theirs:.0} ns: {:.1}x",
        theirs / ours
    );
}

/// Keys in order, one thread, all in memory and near: what the code itself costs.
fn bench_hits(rounds: u64) {
    println!("hits: 100,000 keys in order, ns of processor time each");
    let tree = loaded_tree(64 << 20, None);
    let map: BTreeMap<u64, u64> = (0..WORKLOAD_KEYS).map(|k| (k, k)).collect();
    for _ in 0..rounds {
        let start = Timer::start();
        let mut sum = 0;
        for i in 0..10_000_000u64 {
            sum += map.get(&(i % WORKLOAD_KEYS)).unwrap_or(&0);
        }
        print!("  BTreeMap get {:.1}, tree ", start.ns(10_000_000));
        let start = Timer::start();
        let mut sum = 0;
        for i in 0..10_000_000u64 {
            sum += Map::get(&tree, i % WORKLOAD_KEYS).unwrap_or(0);
        }
        let get = start.ns(10_000_000);
        let start = Timer::start();
        for i in 0..5_000_000u64 {
            Map::put(&tree, i % WORKLOAD_KEYS, i);
        }
        let put = start.ns(5_000_000);
        let start = Timer::start();
        for i in 0..1_000_000u64 {
            Map::remove(&tree, i * 7 % WORKLOAD_KEYS);
            Map::put(&tree, i * 7 % WORKLOAD_KEYS, i);
        }
        assert!(sum > 0);
        println!("get {get:.1} put {put:.1} remove and put {:.1}", start.ns(1_000_000));
    }
}

/// Syncs of one page a second, the floor of what follows: by one thread, over bytes that exist.
fn bench_sync(seconds: f64) -> f64 {
    let (file, path) = scratch("sync.log");
    let page = [7u8; PAGE_BYTES];
    let pages = 4096;
    (0..pages).for_each(|at| PageFile::write_at(&file, at * 4096, &page).expect("write"));
    PageFile::sync(&file).expect("sync");
    let start = Instant::now();
    let mut syncs = 0;
    while start.elapsed().as_secs_f64() < seconds {
        PageFile::write_at(&file, syncs % pages * 4096, &page).expect("write");
        PageFile::sync(&file).expect("sync");
        syncs += 1;
    }
    let _ = std::fs::remove_file(path);
    syncs as f64 / start.elapsed().as_secs_f64()
}

/// Durable inserts of random numbers a second, and how many share a sync. Each thread waits when it
/// has `window` inserts under way: 1 is waiting for every single one.
fn durable_inserts(threads: u64, window: u64, seconds: f64) -> (f64, f64) {
    let ((file, path), (log, log_path)) = (scratch("durable.tree"), scratch("durable.log"));
    let tree = DurableTree::<u64>::create(file, log, Options::default()).expect("create");
    let (is_done, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (tree, is_done, done) = (&tree, &is_done, &done);
            scope.spawn(move || {
                let mut random = Random(thread * 2 + 99);
                while !is_done.load(Relaxed) {
                    let inserts = (0..window).map(|_| tree.start_put(&random.next(), thread));
                    let last = inserts.map(|put| put.expect("put").1).max();
                    tree.wait(last.expect("a window of 1 or more")).expect("wait");
                    done.fetch_add(window, Relaxed);
                }
            });
        }
        std::thread::sleep(Duration::from_secs_f64(seconds));
        is_done.store(true, Relaxed);
    });
    let inserts = done.load(Relaxed) as f64;
    let figures =
        (inserts / start.elapsed().as_secs_f64(), inserts / tree.log_stats().syncs as f64);
    drop(tree);
    [path, log_path].iter().for_each(|path| std::fs::remove_file(path).expect("remove"));
    figures
}

fn bench_durable(seconds: f64, rounds: u64) {
    let contestants = [(1, 1), (8, 1), (64, 1), (64, 4), (64, 16), (64, 64)];
    let mut figures = vec![Vec::new(); contestants.len()];
    let mut syncs = Vec::new();
    for _ in 0..rounds {
        syncs.push(bench_sync(seconds / 2.0));
        for (figures, (threads, window)) in figures.iter_mut().zip(contestants) {
            figures.push(durable_inserts(threads, window, seconds));
        }
    }
    println!("one page written and synced, one thread: {:.0}/s", median(syncs));
    for ((threads, window), figures) in contestants.iter().zip(figures) {
        let (rate, shared): (Vec<f64>, Vec<f64>) = figures.into_iter().unzip();
        let (least, most) = rate.iter().fold((f64::MAX, 0f64), |(a, b), r| (a.min(*r), b.max(*r)));
        println!(
            "{threads} threads, {window} under way each: {:.0} durable inserts/s ({least:.0} to \
             {most:.0}), {:.0} a sync",
            median(rate),
            median(shared)
        );
    }
}

fn main() {
    let chosen: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let runs = |name: &str| chosen.is_empty() || chosen.iter().any(|chosen| chosen == name);
    let millions = setting("MILLIONS", 10);
    if runs("pool") {
        bench_pool();
    }
    if runs("workload") {
        bench_workload(setting("SECONDS", 1) as f64, setting("ROUNDS", 5));
    }
    if runs("reads") {
        bench_reads(millions);
    }
    if runs("numbers") {
        bench_numbers(millions);
    }
    if runs("strings") {
        bench_strings(millions);
    }
    if runs("cold") {
        bench_cold(millions);
    }
    if runs("durable") {
        bench_durable(setting("SECONDS", 1) as f64, setting("ROUNDS", 5));
    }
    if runs("hits") {
        bench_hits(setting("ROUNDS", 5));
    }
}
