//! Could a report say how many different items all users of an arm saw, with an interval?
//!
//! The variance comes from deleting one of 100 buckets of users at a time (jackknife). An item is
//! missed without bucket `b` if only users of `b` saw it, so counting such items is enough. The
//! true difference is the mean over all simulated experiments. Floor: the 95 % interval covers 93
//! to 97 %, everywhere. It does not: see docs/statistics/distinct.md.
//!
//! Run: `cargo run --release -p uplake-experiment --example distinct [experiments]`

use uplake_experiment::distribution::t_isf;

const BUCKETS: usize = 100;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (((z ^ (z >> 31)) >> 11) + 1) as f64 / (1u64 << 53) as f64
    }
}

struct Case {
    popularity: &'static str,
    items: usize,
    heavy: bool,
    users: [usize; 2],
}

/// Items an arm saw, and the jackknife's variance of that number.
fn arm(random: &mut Random, case: &Case, cumulative: &[f64], users: usize) -> (f64, f64) {
    const NOBODY: u8 = u8::MAX;
    const MANY: u8 = u8::MAX - 1;
    let mut seen_by = vec![NOBODY; case.items];
    for user in 0..users {
        let bucket = (user % BUCKETS) as u8;
        // One user in a hundred sees a hundred times as much.
        let heavy = case.heavy && random.uniform() < 0.01;
        let mean = if heavy { 500.0 } else { 5.0 };
        let views = 1 + (-mean * random.uniform().ln()) as usize;
        for _ in 0..views {
            let at = random.uniform();
            let item = cumulative.partition_point(|edge| *edge < at).min(case.items - 1);
            seen_by[item] = match seen_by[item] {
                NOBODY => bucket,
                same if same == bucket => bucket,
                _ => MANY,
            };
        }
    }
    let mut only = [0.0; BUCKETS];
    let mut found = 0.0;
    for bucket in seen_by.into_iter().filter(|bucket| *bucket != NOBODY) {
        found += 1.0;
        if bucket != MANY {
            only[usize::from(bucket)] += 1.0;
        }
    }
    let buckets = BUCKETS as f64;
    let mean = only.iter().sum::<f64>() / buckets;
    let squares: f64 = only.iter().map(|count| (count - mean).powi(2)).sum();
    (found, squares * (buckets - 1.0) / buckets)
}

fn main() {
    let experiments: u64 =
        std::env::args().nth(1).map_or(2000, |text| text.parse().expect("a number"));
    println!("{experiments} experiments each, jackknife with {BUCKETS} buckets\n");
    println!(
        "| popularity | items | heavy users | users | seen by A | true sd | jackknife sd | covers |"
    );
    println!("|---|---:|---|---:|---:|---:|---:|---:|");
    for (popularity, items) in [
        ("uniform", 1_000),
        ("uniform", 20_000),
        ("uniform", 200_000),
        ("Zipf", 1_000),
        ("Zipf", 20_000),
        ("Zipf", 200_000),
    ] {
        let weight = |rank: usize| if popularity == "Zipf" { 1.0 / (rank + 1) as f64 } else { 1.0 };
        let total: f64 = (0..items).map(weight).sum();
        let mut sum = 0.0;
        let cumulative: Vec<f64> = (0..items)
            .map(|rank| {
                sum += weight(rank) / total;
                sum
            })
            .collect();
        for heavy in [false, true] {
            for users in [[1000, 1000], [1000, 3000]] {
                let case = Case { popularity, items, heavy, users };
                row(&case, &cumulative, experiments);
            }
        }
    }
}

fn row(case: &Case, cumulative: &[f64], experiments: u64) {
    let half = |seeds: std::ops::Range<u64>| -> Vec<[(f64, f64); 2]> {
        let one = |seed: u64| {
            let mut random = Random(seed << 24);
            case.users.map(|users| arm(&mut random, case, cumulative, users))
        };
        seeds.map(one).collect()
    };
    let results: Vec<[(f64, f64); 2]> = std::thread::scope(|scope| {
        let first = scope.spawn(|| half(0..experiments / 2));
        let second = half(experiments / 2..experiments);
        first.join().expect("no panic").into_iter().chain(second).collect()
    });
    let count = results.len() as f64;
    let differences: Vec<f64> = results.iter().map(|[a, b]| b.0 - a.0).collect();
    let truth = differences.iter().sum::<f64>() / count;
    let spread = differences.iter().map(|d| (d - truth).powi(2)).sum::<f64>() / (count - 1.0);
    let errors: Vec<f64> = results.iter().map(|[a, b]| (a.1 + b.1).sqrt()).collect();
    let critical = t_isf(0.025, 2.0 * (BUCKETS - 1) as f64);
    let covered = differences
        .iter()
        .zip(&errors)
        .filter(|(difference, error)| (**difference - truth).abs() <= critical * **error)
        .count();
    println!(
        "| {} | {} | {} | {} / {} | {:.0} | {:.1} | {:.1} | {:.1} % |",
        case.popularity,
        case.items,
        if case.heavy { "1 %" } else { "none" },
        case.users[0],
        case.users[1],
        results.iter().map(|[a, _]| a.0).sum::<f64>() / count,
        spread.sqrt(),
        errors.iter().sum::<f64>() / count,
        100.0 * covered as f64 / count
    );
}
