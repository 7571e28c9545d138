//! How often does the interval of an effect on everybody, diluted from that on activated users, cover the
//! truth, and on which side does it miss? Beside it, the interval that takes the share activated as known.
//! Figures: docs/statistics/triggered.md. Fails if 95 % is not kept within half a percent a side.
//! Run: cargo run --release -p uplake-experiment --example triggered [RUNS]

use uplake_experiment::query::Cell;
use uplake_experiment::{Experiment, Moments, MomentsQuery, MomentsTable, analyze, plan};

const RUNS: u32 = 10_000;
/// Of 2.5 %: five standard errors of 10,000 runs are 0.8 %, and skewed numbers miss more on one side.
const MISSES_MAX: f64 = 0.035;

const DEFINITION: &str = r#"
name = "cart"
[exposures]
table = "exposures"
user = "user_id"
variant = "variant"
time = "ts"
activated_by = { table = "events", where = "event = 'open_cart'" }
[[variant]]
name = "old"
share = 0.5
[[variant]]
name = "new"
share = 0.5
[[metric]]
name = "spend"
type = "mean"
table = "events"
value = "amount"
"#;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (((z ^ (z >> 31)) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn exponential(&mut self) -> f64 {
        -self.uniform().ln()
    }
}

/// What a control user spends on average after activation, before it, and if never activated. Who spends
/// much after it has spent much before.
const SPENT: [f64; 3] = [1.0, 0.5, 0.4];

/// The cells of activated users, and of the others.
fn draw(random: &mut Random, exposed: usize, share: f64, effect: f64) -> [Vec<Cell>; 2] {
    let mut cells = [0, 1].map(|_| [Moments::new(2), Moments::new(2)]);
    for user in 0..exposed {
        let arm = user % 2;
        if random.uniform() < share {
            let size = random.exponential();
            let before = SPENT[1] * (0.5 * size + 0.5 * random.exponential());
            let after = SPENT[0] * size + effect * arm as f64;
            cells[0][arm].add(&[after, before + after]);
        } else {
            cells[1][arm].add(&[0.0, SPENT[2] * random.exponential()]);
        }
    }
    cells.map(|arms| {
        let cell = |(variant, moments): (usize, Moments)| Cell {
            slice: None,
            variant,
            users: moments.count(),
            groups: vec![moments],
        };
        arms.into_iter().enumerate().map(cell).collect()
    })
}

/// Runs whose interval lies above the truth, and below it.
#[derive(Default, Clone, Copy)]
struct Misses([u32; 2]);

impl Misses {
    fn count(&mut self, low: f64, high: f64, truth: f64) {
        self.0[0] += u32::from(low > truth);
        self.0[1] += u32::from(high < truth);
    }

    fn shares(self, runs: u32) -> [f64; 2] {
        self.0.map(|misses| f64::from(misses) / f64::from(runs))
    }
}

fn simulate(
    experiment: &Experiment,
    query: &MomentsQuery,
    runs: u32,
    (exposed, share, effect): (usize, f64, f64),
) -> ([Misses; 3], u32) {
    let mut random = Random((exposed as f64 * 1e6 + share * 1e4 + effect * 10.0) as u64);
    let (mut misses, mut alarms) = ([Misses::default(); 3], 0);
    let truth = share * effect;
    let overall = share * (SPENT[0] + SPENT[1]) + (1.0 - share) * SPENT[2];
    for _ in 0..runs {
        let [cells, never_activated] = draw(&mut random, exposed, share, effect);
        let table = MomentsTable { cells, never_activated, ..MomentsTable::default() };
        let report = analyze(experiment, query, &table).expect("the table answers the query");
        let comparison = &report.metrics[0].comparisons[0];
        let diluted = comparison.diluted.as_ref().expect("a triggered analysis");
        let absolute = diluted.absolute.expect("an estimate");
        misses[0].count(absolute.low, absolute.high, truth);
        let check = report.health.activation.as_ref().expect("a triggered analysis");
        let (triggered, rate) = (comparison.absolute, check.rate());
        let (triggered, rate) = (triggered.expect("an estimate"), rate.expect("users"));
        misses[1].count(rate * triggered.low, rate * triggered.high, truth);
        let relative = diluted.relative.expect("an estimate");
        misses[2].count(relative.low, relative.high, truth / overall);
        alarms += u32::from(check.alarm);
    }
    (misses, alarms)
}

fn main() {
    let runs = std::env::args().nth(1).and_then(|runs| runs.parse().ok()).unwrap_or(RUNS);
    let experiment = Experiment::parse(DEFINITION, "triggered.toml").expect("it is right");
    let query = plan(&experiment, &[], None).expect("no names");
    println!("{runs} runs; % of intervals above and below the truth, 2.5 each is right");
    println!("exposed activated effect  difference   share taken as known  lift         alarms");
    let mut worst: f64 = 0.0;
    for (exposed, share) in [(4_000, 0.05), (1_000, 0.3), (400, 0.9)] {
        // In standard deviations of activated users: none, found half the time, very large.
        for effect in [0.0, 0.25, -0.25, 1.0] {
            let (misses, alarms) = simulate(&experiment, &query, runs, (exposed, share, effect));
            let shares = misses.map(|misses| misses.shares(runs));
            let [difference, known, lift] =
                shares.map(|[above, below]| format!("{:.2} {:.2}", 100.0 * above, 100.0 * below));
            println!(
                "{exposed:>7} {share:>9} {effect:>6}  {difference:<12} {known:<21} {lift:<12} {:.2}",
                100.0 * f64::from(alarms) / f64::from(runs)
            );
            let decides = shares[0].into_iter().chain(shares[2]);
            worst = decides.fold(worst, f64::max);
        }
    }
    assert!(worst <= MISSES_MAX, "an interval misses on one side in {:.2} %", 100.0 * worst);
}
