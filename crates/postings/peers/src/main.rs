//! How long do 10,000 ids take to become row runs or a mask: ours, CRoaring and `roaring`?
//!
//! The shapes are those of `benches/postings.rs`. All three look the ids up: ours in its
//! dictionary, the peers in a `HashMap` with the hash that `hashbrown` has by default. Contestants
//! take turns in rounds of 100 query sets; figures are of processor time of the thread.
//!
//! Run: cargo run --release --manifest-path crates/postings/peers/Cargo.toml -- [SHAPE …]

use std::collections::{HashMap, HashSet};
use std::hint::black_box;
use std::time::{Duration, Instant};

use croaring::Bitmap;
use roaring::{MultiOps, RoaringBitmap};
use uplake_postings::{Dictionary, IntegersBuilder, Options, Run, Scratch, Selection};

const IDS: usize = 10_000;
const SETS: usize = 100;
const BUDGET: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, PartialEq)]
enum Rows {
    Fixed,
    Zipf,
    Random,
}

/// Name, rows, how they belong to ids, and whether query sets are of 20,000 neighbours.
const SHAPES: [(&str, u32, Rows, bool); 6] = [
    ("10M-local", 10_000_000, Rows::Fixed, true),
    ("10M-scatter", 10_000_000, Rows::Fixed, false),
    ("10M-zipf", 10_000_000, Rows::Zipf, false),
    ("10M-random", 10_000_000, Rows::Random, false),
    ("100M-local", 100_000_000, Rows::Fixed, true),
    ("100M-scatter", 100_000_000, Rows::Fixed, false),
];

/// SplitMix64's output function, with its step.
fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The id of merchant `m`: 10 digits, in no order.
fn id(m: u32) -> u64 {
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

/// Runs with their merchants, in row order; every row is one where rows are random.
fn runs(rows: u32, kind: Rows) -> Vec<(u32, Run)> {
    if kind == Rows::Random {
        let merchant = |row: u32| (mix(u64::from(row) ^ 0xdead) % u64::from(rows / 100)) as u32;
        return (0..rows).map(|row| (merchant(row), Run::new(row, row + 1))).collect();
    }
    let (mut out, mut start) = (Vec::new(), 0);
    for m in 0.. {
        if start >= rows {
            break;
        }
        let end = (start + length(kind, m)).min(rows);
        out.push((m, Run::new(start, end)));
        start = end;
    }
    out
}

fn query_sets(local: bool, merchants: u32) -> Vec<Vec<u32>> {
    let window = if local { 20_000 } else { merchants };
    let draw = |set: usize| {
        let mut state = mix(set as u64 + 22);
        let mut below = |limit: u32| {
            state = mix(state);
            (state % u64::from(limit)) as u32
        };
        let first = below(merchants - window + 1);
        let (mut seen, mut out) = (HashSet::new(), Vec::new());
        while out.len() < IDS {
            let m = first + below(window);
            if seen.insert(m) {
                out.push(m);
            }
        }
        out
    };
    (0..SETS).map(draw).collect()
}

/// Microseconds of processor time of this thread.
fn cpu_us() -> f64 {
    unsafe extern "C" {
        fn clock_gettime(clock: i32, time: *mut [i64; 2]) -> i32;
    }
    const CLOCK_THREAD_CPUTIME_ID: i32 = 3;
    let mut time = [0; 2];
    // SAFETY: a `timespec` of 64-bit Linux is two i64.
    unsafe { clock_gettime(CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time[0] as f64 * 1e6 + time[1] as f64 / 1e3
}

fn measure((name, rows, kind, local): (&str, u32, Rows, bool)) {
    let all = runs(rows, kind);
    let merchants = all.iter().map(|&(m, _)| m).max().unwrap_or(0) + 1;
    let sets = query_sets(local, merchants);
    let wanted: HashSet<u32> = sets.iter().flatten().copied().collect();
    let mut builder = IntegersBuilder::new(Options::default());
    let mut theirs: HashMap<u64, RoaringBitmap, _> =
        HashMap::with_hasher(foldhash::fast::RandomState::default());
    for &(m, run) in &all {
        builder.push(id(m), run).expect("runs ascend");
        if wanted.contains(&m) {
            theirs.entry(id(m)).or_default().insert_range(run.start..run.end);
        }
    }
    drop(all);
    theirs.values_mut().for_each(|list| {
        list.optimize();
    });
    let mut c = HashMap::with_hasher(foldhash::fast::RandomState::default());
    for (&id, list) in &theirs {
        let mut bitmap = Bitmap::new();
        list.iter().for_each(|row| bitmap.add(row));
        bitmap.run_optimize();
        bitmap.shrink_to_fit();
        c.insert(id, bitmap);
    }
    let encoded = builder.finish(rows).expect("within the limits");
    let mut space = vec![0; encoded.dictionary.len() + 64];
    let start = space.as_ptr().align_offset(64);
    space[start..start + encoded.dictionary.len()].copy_from_slice(&encoded.dictionary);
    let dictionary =
        Dictionary::parse(&space[start..start + encoded.dictionary.len()]).expect("just built");
    let ids: Vec<Vec<u64>> = sets.iter().map(|set| set.iter().map(|&m| id(m)).collect()).collect();

    let mut scratch = Scratch::default();
    let mut times = [const { Vec::new() }; 3];
    let mut is_mask = false;
    let begin = Instant::now();
    let mut round = 0;
    while begin.elapsed() < BUDGET || round < 2 {
        for set in &ids {
            let start = cpu_us();
            let found = dictionary.union_integers(set, &encoded.heap, &mut scratch);
            times[0].push(cpu_us() - start);
            let found = found.expect("just built");
            is_mask = matches!(found, Selection::Mask(_));
            if round == 0 {
                let expected = set.iter().map(|id| &theirs[id]).union();
                assert_eq!(found.cardinality(), expected.len(), "{name}");
            }
        }
        // The peers are slower, and need fewer of them.
        for set in &ids[..10] {
            let start = cpu_us();
            let lists: Vec<&Bitmap> = set.iter().map(|id| &c[id]).collect();
            black_box(Bitmap::fast_or(&lists));
            times[1].push(cpu_us() - start);
            let start = cpu_us();
            black_box(set.iter().map(|id| &theirs[id]).union());
            times[2].push(cpu_us() - start);
        }
        round += 1;
    }
    let [ours, c, theirs] = times.map(|mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        (times[times.len() / 2], times[times.len() * 99 / 100])
    });
    println!(
        "| {name} | {} | {:.1} | {:.1} | {:.0} | {:.0} | {:.1} | {:.1} |",
        if is_mask { "mask" } else { "runs" },
        ours.0,
        ours.1,
        c.0,
        theirs.0,
        c.0 / ours.0,
        theirs.0 / ours.0,
    );
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    println!(
        "| CPU µs | result | uplake p50 | p99 | CRoaring p50 | roaring p50 | CRoaring / uplake | roaring / uplake |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|---:|");
    for shape in SHAPES {
        if wanted.is_empty() || wanted.iter().any(|name| name == shape.0) {
            measure(shape);
        }
    }
}
