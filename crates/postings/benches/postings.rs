//! How long do 10,000 ids take to become row runs or a mask, against `roaring` in the same run?
//! How long does a dictionary take to build and to open, and how many bytes has a list?
//!
//! Floor: 10,000 independent reads of a cache line, 9 µs from a 4 MB table, 33 µs from 33 MB.
//! Run: cargo bench -p uplake-postings -- [SHAPE …], for example `10M-local build`
//!
//! The two sides take turns, query set by query set. Ids are 10 digits and unrelated to row order
//! unless the shape says otherwise.

use std::collections::{HashMap, HashSet};
use std::hint::black_box;
use std::time::{Duration, Instant};

use roaring::{MultiOps, RoaringBitmap};
use uplake_postings::{Dictionary, Encoded, IntegersBuilder, Options, Run, Scratch, Selection};
use uplake_testkit::random::{Random, mix};

const IDS: usize = 10_000;
const SETS: usize = 100;
const MILLION: u32 = 1_000_000;

/// How a file's rows belong to ids.
#[derive(Clone, Copy, PartialEq)]
enum Rows {
    /// One run of 50 to 150 rows an id.
    Fixed,
    /// One run an id, length Pareto with exponent 1: 10 to 100,000 rows.
    Zipf,
    /// Three runs an id, of 10 to 56 rows, far from each other.
    Three,
    /// Every row belongs to a random id.
    Random,
}

struct Shape {
    name: &'static str,
    rows: u32,
    kind: Rows,
    /// Query sets are drawn from 20,000 neighbouring ids.
    local: bool,
    /// Ids use all 64 bits.
    wide: bool,
}

const SHAPES: [Shape; 8] = [
    Shape { name: "10M-local", rows: 10 * MILLION, kind: Rows::Fixed, local: true, wide: false },
    Shape { name: "10M-scatter", rows: 10 * MILLION, kind: Rows::Fixed, local: false, wide: false },
    Shape { name: "10M-wide", rows: 10 * MILLION, kind: Rows::Fixed, local: false, wide: true },
    Shape { name: "10M-zipf", rows: 10 * MILLION, kind: Rows::Zipf, local: false, wide: false },
    Shape { name: "10M-three", rows: 10 * MILLION, kind: Rows::Three, local: false, wide: false },
    Shape { name: "10M-random", rows: 10 * MILLION, kind: Rows::Random, local: false, wide: false },
    Shape { name: "100M-local", rows: 100 * MILLION, kind: Rows::Fixed, local: true, wide: false },
    Shape {
        name: "100M-scatter",
        rows: 100 * MILLION,
        kind: Rows::Fixed,
        local: false,
        wide: false,
    },
];

/// The id of merchant `m`: distinct, 10 digits or 64 bits, in no order.
fn id(m: u32, wide: bool) -> u64 {
    if wide {
        return mix(u64::from(m));
    }
    let mut h = m;
    h = (h ^ (h >> 16)).wrapping_mul(0x85eb_ca6b);
    h = (h ^ (h >> 13)).wrapping_mul(0xc2b2_ae35);
    1_000_000_000 + u64::from(h ^ (h >> 16))
}

fn length(kind: Rows, m: u32) -> u32 {
    let x = mix(u64::from(m) ^ 0x5eed_5eed) >> 11;
    match kind {
        Rows::Zipf => (10.0 / ((x + 1) as f64 / (1u64 << 53) as f64)).min(100_000.0) as u32,
        _ => 50 + (x % 101) as u32,
    }
}

/// Runs by merchant, in row order.
fn runs(shape: &Shape) -> Vec<(u32, Run)> {
    let mut out = Vec::new();
    let passes = if shape.kind == Rows::Three { 3 } else { 1 };
    let merchants = shape.rows / 100;
    for _ in 0..passes {
        let pass_start = out.last().map_or(0, |&(_, run): &(u32, Run)| run.end);
        let mut start = pass_start;
        for m in 0.. {
            let end = (start + length(shape.kind, m) / passes).min(shape.rows);
            let enough = passes > 1 && m >= merchants - merchants / 20;
            if start >= shape.rows || enough {
                break;
            }
            out.push((m, Run::new(start, end)));
            start = end;
        }
    }
    out
}

fn random_column(shape: &Shape) -> Vec<u32> {
    (0..shape.rows)
        .map(|row| (mix(u64::from(row) ^ 0xdead) % u64::from(shape.rows / 100)) as u32)
        .collect()
}

/// Draws the merchants of each query set, without repetition.
fn query_sets(shape: &Shape, merchants: u32) -> Vec<Vec<u32>> {
    let mut random = Random::new(22);
    let draw = |_| {
        let window = if shape.local { 20_000 } else { merchants };
        let first = random.below(u64::from(merchants - window + 1)) as u32;
        let mut seen = HashSet::new();
        while seen.len() < IDS {
            seen.insert(first + random.below(u64::from(window)) as u32);
        }
        let mut set: Vec<u32> = seen.into_iter().collect();
        // The order of a HashSet is not seeded; the bench's is.
        set.sort_by_key(|&m| mix(u64::from(m)));
        set
    };
    (0..SETS).map(draw).collect()
}

/// A copy that starts at a cache line, as a mapped file does.
fn aligned(bytes: &[u8], space: &mut Vec<u8>) -> std::ops::Range<usize> {
    space.resize(bytes.len() + 64, 0);
    let start = space.as_ptr().align_offset(64);
    space[start..start + bytes.len()].copy_from_slice(bytes);
    start..start + bytes.len()
}

/// Microseconds of processor time of this thread. On a busy machine the clock on the wall measures
/// the neighbours, and a peer that takes longer than a time slice more than us.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn cpu_us() -> f64 {
    unsafe extern "C" {
        fn clock_gettime(clock: i32, time: *mut [i64; 2]) -> i32;
    }
    const THREAD_CPU: i32 = 3;
    let mut time = [0; 2];
    // SAFETY: the call writes two 64-bit numbers, seconds and nanoseconds, where `time` is.
    let failed = unsafe { clock_gettime(THREAD_CPU, &raw mut time) } != 0;
    assert!(!failed, "every Linux has a clock per thread");
    time[0] as f64 * 1e6 + time[1] as f64 / 1e3
}

/// Elsewhere the time on the wall has to do.
#[cfg(not(target_os = "linux"))]
fn cpu_us() -> f64 {
    use std::sync::OnceLock;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_secs_f64() * 1e6
}

const HEADER: &str = "| µs | cpu p50 | cpu p99 | wall p50 | wall p99 | wall min | n |\n\
    |---|---:|---:|---:|---:|---:|---:|";

/// Times in microseconds.
#[derive(Default)]
struct Times {
    cpu: Vec<f64>,
    wall: Vec<f64>,
}

fn quantile(sorted: &[f64], q: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * q) as usize]
}

impl Times {
    fn time<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let (start, cpu) = (Instant::now(), cpu_us());
        let result = black_box(work());
        self.cpu.push(cpu_us() - cpu);
        self.wall.push(start.elapsed().as_secs_f64() * 1e6);
        result
    }

    /// Prints a row; gives the median of processor time.
    fn row(&mut self, what: &str) -> f64 {
        self.cpu.sort_by(f64::total_cmp);
        self.wall.sort_by(f64::total_cmp);
        let p50 = quantile(&self.cpu, 0.5);
        println!(
            "| {what} | {p50:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {} |",
            quantile(&self.cpu, 0.99),
            quantile(&self.wall, 0.5),
            quantile(&self.wall, 0.99),
            self.wall[0],
            self.wall.len()
        );
        p50
    }
}

fn builder(shape: &Shape) -> (IntegersBuilder, u32) {
    let mut builder = IntegersBuilder::new(Options::default());
    if shape.kind == Rows::Random {
        let column: Vec<u64> = random_column(shape).iter().map(|&m| id(m, shape.wide)).collect();
        builder.push_column(0, &column).expect("rows ascend");
        return (builder, shape.rows / 100);
    }
    let mut merchants = 0;
    for (m, run) in runs(shape) {
        builder.push(id(m, shape.wide), run).expect("runs ascend");
        merchants = merchants.max(m + 1);
    }
    (builder, merchants)
}

/// The lists of the peer; only those that are asked for, because random ones take 7 kB each.
fn peers(shape: &Shape, wanted: &HashSet<u32>) -> HashMap<u64, RoaringBitmap> {
    let mut lists: HashMap<u64, RoaringBitmap> = HashMap::new();
    if shape.kind == Rows::Random {
        for (row, m) in random_column(shape).into_iter().enumerate() {
            if wanted.contains(&m) {
                lists.entry(id(m, shape.wide)).or_default().insert(row as u32);
            }
        }
    } else {
        for (m, run) in runs(shape) {
            if wanted.contains(&m) {
                let list = lists.entry(id(m, shape.wide)).or_default();
                list.insert_range(run.start..run.end);
            }
        }
    }
    lists.values_mut().for_each(|list| {
        list.optimize();
    });
    lists
}

fn union(shape: &Shape) {
    let (builder, merchants) = builder(shape);
    let Encoded { dictionary, heap } = builder.finish(shape.rows).expect("within the limits");
    let mut space = Vec::new();
    let range = aligned(&dictionary, &mut space);
    let dictionary = Dictionary::parse(&space[range.clone()]).expect("just built");
    let sets = query_sets(shape, merchants);
    let ids: Vec<Vec<u64>> =
        sets.iter().map(|set| set.iter().map(|&m| id(m, shape.wide)).collect()).collect();
    let wanted: HashSet<u32> = sets.iter().flatten().copied().collect();
    let lists = peers(shape, &wanted);
    let get = |ids: &[u64]| -> Vec<&RoaringBitmap> { ids.iter().map(|id| &lists[id]).collect() };

    let mut scratch = Scratch::default();
    let (mut ours, mut probe, mut peer) = (Times::default(), Times::default(), Times::default());
    let mut runs = 0;
    let mut is_mask = false;
    let start = Instant::now();
    for round in 0.. {
        // The look-up alone takes another set, so that it does not warm the union's lines.
        let (set, other) = (&ids[round % SETS], &ids[(round + SETS / 2) % SETS]);
        // The peer's millions of reads leave our table cold, so it runs in its own rounds.
        let peers_turn = round / SETS % 10 == 9;
        if !peers_turn {
            probe
                .time(|| {
                    let mut sum = 0;
                    let found = dictionary.lookup_integers(other, |position, _| sum += position);
                    found.map(|()| sum)
                })
                .expect("a sound dictionary");
            let found = ours.time(|| dictionary.union_integers(set, &heap, &mut scratch));
            let found = found.expect("a sound dictionary");
            is_mask = matches!(found, Selection::Mask(_));
            if round < 3 {
                let expected = get(set).into_iter().union();
                let mut rows = found.into_row_set();
                assert_eq!(rows.cardinality(), expected.len());
                assert!(rows.rows().eq(expected.iter()), "{} differs from roaring", shape.name);
                runs += rows.run_count() / 3;
                rows = Default::default();
                black_box(rows);
            }
        } else {
            let lists = get(set);
            peer.time(|| lists.into_iter().union().len());
        }
        let budget = Duration::from_secs(if cfg!(debug_assertions) { 1 } else { 6 });
        if start.elapsed() > budget && round >= 11 * SETS {
            break;
        }
    }
    println!(
        "\n**{}**: {} terms, {:.1} + {:.1} bytes a list (dictionary + heap), {} -> {}\n",
        shape.name,
        dictionary.term_count(),
        range.len() as f64 / f64::from(dictionary.term_count()),
        heap.len() as f64 / f64::from(dictionary.term_count()),
        if dictionary.is_clustered() { "clustered" } else { "mixed" },
        if is_mask { "mask".to_owned() } else { format!("{runs} runs") },
    );
    println!("{HEADER}");
    probe.row("uplake, look-up alone");
    let fast = ours.row("uplake, look-up and union");
    let slow = peer.row("roaring, union alone");
    println!("\nroaring / uplake: {:.1}", slow / fast);
}

fn build() {
    let sorted: Vec<u64> = runs(&SHAPES[0])
        .into_iter()
        .flat_map(|(m, run)| std::iter::repeat_n(id(m, false), run.len() as usize))
        .collect();
    let random: Vec<u64> = random_column(&SHAPES[5]).into_iter().map(|m| id(m, false)).collect();
    println!("\n**build**: 10 M rows, 100,000 ids\n\n{HEADER}");
    let mut encoded = Vec::new();
    for (name, column, peer_rounds) in [("sorted", &sorted, 5), ("random", &random, 1)] {
        let (mut ours, mut peer) = (Times::default(), Times::default());
        for round in 0..5 {
            let built = ours.time(|| {
                let mut builder = IntegersBuilder::new(Options::default());
                builder.push_column(0, column).and_then(|()| builder.finish(column.len() as u32))
            });
            encoded.push(built.expect("within the limits"));
            if round < peer_rounds {
                peer.time(|| {
                    let mut lists: HashMap<u64, RoaringBitmap> = HashMap::new();
                    let mut row = 0;
                    for equal in column.chunk_by(|a, b| a == b) {
                        let end = row + equal.len() as u32;
                        lists.entry(equal[0]).or_default().insert_range(row..end);
                        row = end;
                    }
                    lists
                });
            }
        }
        let fast = ours.row(&format!("uplake, {name}"));
        let slow = peer.row(&format!("roaring, {name}"));
        println!("\nroaring / uplake, {name}: {:.1}\n", slow / fast);
    }
    let mut open = Times::default();
    for encoded in &encoded {
        for _ in 0..100 {
            let parsed =
                open.time(|| Dictionary::parse(&encoded.dictionary).map(|d| d.term_count()));
            parsed.expect("just built");
        }
    }
    open.row("uplake, open 100,000 lists");
}

fn main() {
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|arg| arg == name);
    SHAPES.iter().filter(|shape| is_wanted(shape.name)).for_each(union);
    if is_wanted("build") {
        build();
    }
}
