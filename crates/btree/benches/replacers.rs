//! Which page should leave memory? Page reads of several replacers on traces of this tree.
//!
//! Run: `cargo bench -p uplake-btree --bench replacers`. Each trace is recorded from a tree that is
//! wholly in memory and replayed by LRU, CLOCK, SIEVE and S3-FIFO; `pool` is the crate's own pool
//! doing the same operations. Memory is a quarter of the tree's pages (`SHARE`, 4). Figures are page
//! reads per 1000 operations, without the first read of each page; the root does not count.
//! `THOUSANDS` (1000) of operations.
//!
//! Sources: Zhang et al., "SIEVE is Simpler than LRU", NSDI 2024; Yang et al., "FIFO queues are all
//! you need for cache eviction", SOSP 2023.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use uplake_btree::{MemoryFile, Options, PAGE_BYTES, Tree};

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A rank below `n`, each as likely as 1 / (rank + 1).
    fn zipf(&mut self, n: u64) -> u64 {
        let unit = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        ((n as f64).powf(unit) as u64 - 1).min(n - 1)
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn scramble(i: u64) -> u64 {
    i.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// A cache of pages that are numbered without gaps.
trait Replacer {
    /// Whether the page was there; it is now.
    fn access(&mut self, page: u32) -> bool;
}

const NONE: u32 = u32::MAX;

/// A list through an array: the newest page first.
struct List {
    next: Vec<u32>,
    previous: Vec<u32>,
    first: u32,
    last: u32,
    len: usize,
}

impl List {
    fn new(pages: usize) -> Self {
        Self {
            next: vec![NONE; pages],
            previous: vec![NONE; pages],
            first: NONE,
            last: NONE,
            len: 0,
        }
    }

    fn push(&mut self, page: u32) {
        self.next[page as usize] = self.first;
        self.previous[page as usize] = NONE;
        match self.first {
            NONE => self.last = page,
            first => self.previous[first as usize] = page,
        }
        self.first = page;
        self.len += 1;
    }

    fn remove(&mut self, page: u32) {
        let (next, previous) = (self.next[page as usize], self.previous[page as usize]);
        match previous {
            NONE => self.first = next,
            previous => self.next[previous as usize] = next,
        }
        match next {
            NONE => self.last = previous,
            next => self.previous[next as usize] = previous,
        }
        self.len -= 1;
    }
}

struct Lru {
    list: List,
    is_in: Vec<bool>,
    frames: usize,
}

impl Replacer for Lru {
    fn access(&mut self, page: u32) -> bool {
        let was_in = std::mem::replace(&mut self.is_in[page as usize], true);
        if was_in {
            self.list.remove(page);
        } else if self.list.len == self.frames {
            let last = self.list.last;
            self.list.remove(last);
            self.is_in[last as usize] = false;
        }
        self.list.push(page);
        was_in
    }
}

/// One bit a page, and a hand that goes round.
struct Clock {
    frames: Vec<u32>,
    at: Vec<u32>,
    is_used: Vec<bool>,
    hand: usize,
    limit: usize,
}

impl Replacer for Clock {
    fn access(&mut self, page: u32) -> bool {
        if self.at[page as usize] != NONE {
            self.is_used[page as usize] = true;
            return true;
        }
        if self.frames.len() < self.limit {
            self.at[page as usize] = self.frames.len() as u32;
            self.frames.push(page);
            return false;
        }
        while std::mem::take(&mut self.is_used[self.frames[self.hand] as usize]) {
            self.hand = (self.hand + 1) % self.limit;
        }
        let old = std::mem::replace(&mut self.frames[self.hand], page);
        self.at[old as usize] = NONE;
        self.at[page as usize] = self.hand as u32;
        self.hand = (self.hand + 1) % self.limit;
        false
    }
}

/// A queue whose hand goes from the oldest to the newest and leaves used pages where they are.
struct Sieve {
    list: List,
    is_in: Vec<bool>,
    is_used: Vec<bool>,
    hand: u32,
    frames: usize,
}

impl Replacer for Sieve {
    fn access(&mut self, page: u32) -> bool {
        if self.is_in[page as usize] {
            self.is_used[page as usize] = true;
            return true;
        }
        if self.list.len == self.frames {
            let mut old = if self.hand == NONE { self.list.last } else { self.hand };
            while std::mem::take(&mut self.is_used[old as usize]) {
                let newer = self.list.previous[old as usize];
                old = if newer == NONE { self.list.last } else { newer };
            }
            self.hand = self.list.previous[old as usize];
            self.list.remove(old);
            self.is_in[old as usize] = false;
        }
        self.list.push(page);
        self.is_in[page as usize] = true;
        false
    }
}

/// A tenth of the frames is a queue on trial; who is used there, or comes back soon, gets into the
/// main one, which gives used pages up to three more rounds.
struct S3Fifo {
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    ghost: VecDeque<u32>,
    is_ghost: Vec<bool>,
    is_in: Vec<bool>,
    uses: Vec<u8>,
    frames: usize,
}

impl S3Fifo {
    fn evict(&mut self) {
        if self.small.len() >= (self.frames / 10).max(1) || self.main.is_empty() {
            while let Some(page) = self.small.pop_front() {
                if self.uses[page as usize] > 1 {
                    self.uses[page as usize] = 0;
                    self.main.push_back(page);
                    continue;
                }
                self.is_in[page as usize] = false;
                self.is_ghost[page as usize] = true;
                self.ghost.push_back(page);
                if self.ghost.len() > self.frames
                    && let Some(forgotten) = self.ghost.pop_front()
                {
                    self.is_ghost[forgotten as usize] = false;
                }
                return;
            }
        }
        while let Some(page) = self.main.pop_front() {
            if self.uses[page as usize] == 0 {
                self.is_in[page as usize] = false;
                return;
            }
            self.uses[page as usize] -= 1;
            self.main.push_back(page);
        }
    }
}

impl Replacer for S3Fifo {
    fn access(&mut self, page: u32) -> bool {
        let at = page as usize;
        if self.is_in[at] {
            self.uses[at] = (self.uses[at] + 1).min(3);
            return true;
        }
        while self.small.len() + self.main.len() >= self.frames {
            self.evict();
        }
        let queue = if self.is_ghost[at] { &mut self.main } else { &mut self.small };
        queue.push_back(page);
        (self.is_in[at], self.uses[at]) = (true, 0);
        false
    }
}

/// Reads of pages that had been in memory before.
fn replay(trace: &[u32], pages: usize, mut replacer: impl Replacer) -> usize {
    let mut is_known = vec![false; pages];
    let reads = trace.iter().filter(|page| {
        let was_known = std::mem::replace(&mut is_known[**page as usize], true);
        !replacer.access(**page) && was_known
    });
    reads.count()
}

/// What users of a tree do; `true` where the key is written.
type Operation = (Vec<u8>, bool);

fn number(key: u64) -> Vec<u8> {
    key.to_be_bytes().to_vec()
}

/// Name, keys loaded before, operations.
type Trace = (&'static str, u64, Vec<Operation>);

fn traces(count: u64) -> Vec<Trace> {
    let keys = 2 * count;
    let mut random = Random(7);
    let uniform = (0..count).map(|_| (number(random.next() % keys), false)).collect();
    let mut random = Random(8);
    let zipf = (0..count).map(|_| (number(scramble(random.zipf(keys)) % keys), false)).collect();
    let mut random = Random(9);
    let load = (0..count).map(|i| match i % 5 {
        4 => (number(random.next() % i), false),
        _ => (number(i), true),
    });
    let load = load.collect();
    let mut random = Random(10);
    let scan = (0..count).map(|i| match i % 5 {
        // The next leaf of a scan that starts anew when it is at the end.
        4 => (number(i / 5 * 230 % keys), false),
        _ => (number(scramble(random.zipf(keys)) % keys), false),
    });
    let scan = scan.collect();
    let mut random = Random(11);
    let mut users = 1;
    let encode = (0..count).map(|_| {
        // One event in five is a new user's; of the others, a user's share falls with time.
        let back = if random.next().is_multiple_of(5) { 0 } else { random.zipf(users) + 1 };
        users += u64::from(back == 0);
        (format!("user_{:016x}{:011x}", scramble(users - back), users - back).into_bytes(), true)
    });
    let encode = encode.collect();
    vec![
        ("random gets", keys, uniform),
        ("zipf gets", keys, zipf),
        ("ordered load, a get of any key every 5th", 0, load),
        ("zipf gets, every 5th the next leaf of a scan", keys, scan),
        ("encoding: growing keys, many repeats", 0, encode),
    ]
}

fn carry_out(tree: &Tree<[u8]>, (key, is_write): &Operation) {
    let result = if *is_write { tree.insert_if_absent(key, 1) } else { tree.get(key) };
    result.expect("an operation");
}

/// The pages below the root that the operations use, and how many pages the tree has.
fn record(file: &Arc<MemoryFile>, keys: u64, operations: &[Operation]) -> (Vec<u32>, usize) {
    let options = Options { pool_bytes: 256 << 20, ..Options::default() };
    let mut tree = Tree::<[u8]>::create(Arc::clone(file), options).expect("create");
    tree.bulk_load((0..keys).map(|key| (number(key), key))).expect("load");
    tree.checkpoint(1).expect("checkpoint");
    let mut trace = Vec::new();
    for operation in operations {
        carry_out(&tree, operation);
        trace.extend_from_slice(&tree.pages_to(&operation.0).expect("resident")[1..]);
    }
    let pages = trace.iter().max().map_or(0, |page| *page as usize + 1);
    (trace, pages)
}

fn main() {
    let share = setting("SHARE", 4) as usize;
    let count = setting("THOUSANDS", 1000) * 1000;
    println!("page reads per 1000 operations, memory 1/{share} of the pages\n");
    println!(
        "| trace | pages | LRU | CLOCK | SIEVE | S3-FIFO | pool |\n|---|--:|--:|--:|--:|--:|--:|"
    );
    for (name, keys, operations) in traces(count) {
        let file = Arc::new(MemoryFile::default());
        let (trace, pages) = record(&file, keys, &operations);
        let frames = (pages / share).max(64);
        let no = || vec![false; pages];
        let list = || List::new(pages);
        let lru = replay(&trace, pages, Lru { list: list(), is_in: no(), frames });
        let clock = Clock {
            frames: Vec::new(),
            at: vec![NONE; pages],
            is_used: no(),
            hand: 0,
            limit: frames,
        };
        let clock = replay(&trace, pages, clock);
        let sieve = Sieve { list: list(), is_in: no(), is_used: no(), hand: NONE, frames };
        let sieve = replay(&trace, pages, sieve);
        let s3 = S3Fifo {
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghost: VecDeque::new(),
            is_ghost: no(),
            is_in: no(),
            uses: vec![0; pages],
            frames,
        };
        let s3 = replay(&trace, pages, s3);
        // The pool has the root, too. A page a loaded tree reads first is not counted.
        let options = Options { pool_bytes: (frames + 1) * PAGE_BYTES, ..Options::default() };
        let tree = match keys {
            0 => Tree::<[u8]>::create(MemoryFile::default(), options).expect("create"),
            _ => Tree::<[u8]>::open(file, options).expect("open"),
        };
        operations.iter().for_each(|operation| carry_out(&tree, operation));
        let first = if keys == 0 { 0 } else { trace.iter().collect::<HashSet<_>>().len() + 1 };
        let own = (tree.counters().pool.reads as usize).saturating_sub(first);
        let per_1000 = |reads: usize| reads as f64 * 1000.0 / operations.len() as f64;
        let figures = [lru, clock, sieve, s3, own].map(|reads| format!("{:.0}", per_1000(reads)));
        println!("| {name} | {pages} | {} |", figures.join(" | "));
    }
}
