//! Do decisions hold? How often variants without an effect are called better, and worse; how often a planted
//! effect is found; how often intervals cover; how often a family of goals has any false call, and any interval
//! that misses.
//!
//! Run: `cargo run --release -p uplake-experiment --example decisions [experiments [part]]`
//! (default 10,000 of all parts: lifts, coverage, families, together; seeded; some minutes on two cores).
//!
//! Floors: at most 2.5 % a side in A/A tests, plus three standard errors, and as often up as down (with few and
//! skewed units Welch's test rejects less often); 95 % intervals cover 94 to 96 % from 50 users an arm on and at least 93.5 % below; families
//! at most 5 % plus two standard errors. `!` marks a floor that is not met. Rows of the delta method and of
//! p-values scaled at alpha, which older versions decided by, are there to compare with.

use uplake_experiment::distribution::{normal_isf, normal_sf};
use uplake_experiment::multiplicity::{benjamini_hochberg, holm};
use uplake_experiment::query::Cell;
use uplake_experiment::report::{Call, Comparison};
use uplake_experiment::sequential::{SequentialP, Sides, group_sequential_bounds};
use uplake_experiment::{Experiment, Moments, MomentsTable, analyze, plan};

/// SplitMix64.
struct Random(u64);

impl Random {
    /// In (0, 1].
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (((z ^ (z >> 31)) >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Two at once, by Box and Muller.
    fn normals(&mut self) -> [f64; 2] {
        let (radius, angle) =
            ((-2.0 * self.uniform().ln()).sqrt(), std::f64::consts::TAU * self.uniform());
        [radius * angle.cos(), radius * angle.sin()]
    }
}

/// What becomes of a number in the second arm.
#[derive(Clone, Copy)]
struct Effect {
    times: f64,
    plus: f64,
}

impl Effect {
    const NONE: Self = Self { times: 1.0, plus: 0.0 };
}

/// What a metric is, and how users are made.
#[derive(Clone, Copy, PartialEq)]
enum Design {
    Mean,
    Cuped,
    Ratio,
    Strata,
    Clusters,
    GroupSequential,
    Anytime,
    Bayesian,
    Switchback,
    Share,
    SharePooled,
    ShareExact,
}

impl Design {
    fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Cuped => "mean, CUPED",
            Self::Ratio => "ratio",
            Self::Strata => "mean, strata",
            Self::Clusters => "mean, clusters",
            Self::GroupSequential => "mean, the last of 4 looks",
            Self::Anytime => "mean, anytime",
            Self::Bayesian => "mean, beliefs with a flat prior",
            Self::Switchback => "sum, regions that switch",
            Self::Share => "share of 10 %",
            Self::SharePooled => "share, pooled",
            Self::ShareExact => "share, exact",
        }
    }

    /// `units` an arm.
    fn experiment(self, lift: &str, units: usize) -> Experiment {
        let planned = 2 * units;
        let top = match self {
            Self::Strata => "stratify = \"country\"".to_owned(),
            Self::GroupSequential => {
                format!("inference = \"group_sequential\"\nplanned_users = {planned}\nlooks = 4")
            }
            Self::Anytime => format!("inference = \"anytime\"\nplanned_users = {planned}"),
            Self::Bayesian => "inference = \"bayesian\"".into(),
            _ => String::new(),
        };
        let exposures = match self {
            Self::Clusters => "user = \"u\"\ncluster = \"shop\"",
            Self::Switchback => "",
            _ => "user = \"u\"",
        };
        let metric = match self {
            Self::Cuped => "type = \"mean\"\nvalue = \"x\"\ncuped = { pre = \"9 days\" }",
            Self::Ratio => {
                "type = \"ratio\"\nnumerator = { value = \"x\" }\ndenominator = { value = \"n\" }"
            }
            Self::Share => "type = \"proportion\"",
            Self::SharePooled => "type = \"proportion\"\ntest = \"pooled\"",
            Self::ShareExact => "type = \"proportion\"\ntest = \"exact\"",
            _ => "type = \"mean\"\nvalue = \"x\"",
        };
        let end = match self {
            Self::Strata => "[[dimension]]\nname = \"country\"",
            Self::Switchback => "[switchback]\nregion = \"city\"\nevery = \"4 hours\"",
            _ => "",
        };
        let text = format!(
            "name = \"s\"\n{top}\n{lift}\n[exposures]\ntable = \"e\"\nvariant = \"v\"\n\
             time = \"ts\"\n{exposures}\n[[variant]]\nname = \"A\"\nshare = 0.5\n[[variant]]\n\
             name = \"B\"\nshare = 0.5\n[[metric]]\nname = \"m\"\n{metric}\n{end}\n"
        );
        Experiment::parse(&text, self.name()).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    /// One unit's numbers, of mean 1 and this coefficient of variation before `effect`, and its stratum.
    fn unit(self, random: &mut Random, cv: f64, effect: Effect) -> ([f64; 2], usize) {
        let spread = (1.0 + cv * cv).ln().sqrt();
        let plain = |z: f64| (spread * z - 0.5 * spread * spread).exp();
        let money = |z: f64| effect.times * plain(z) + effect.plus;
        let [a, b] = random.normals();
        match self {
            Self::Cuped => ([money(a), plain(0.8 * a + 0.6 * b)], 0),
            Self::Ratio => {
                let sessions = 1.0 + (4.0 * plain(b)).floor();
                ([sessions * money(a), sessions], 0)
            }
            Self::Strata => {
                let country = usize::from(b > 0.5);
                ([money(a) + 2.0 * country as f64, 0.0], country)
            }
            Self::Clusters => {
                let users = 1.0 + (6.0 * random.uniform()).floor();
                ([users * money(a), users], 0)
            }
            Self::Share | Self::SharePooled | Self::ShareExact => {
                ([f64::from(random.uniform() < 0.1 * effect.times + effect.plus), 0.0], 0)
            }
            _ => ([money(a), 0.0], 0),
        }
    }

    fn columns(self) -> usize {
        if matches!(self, Self::Cuped | Self::Ratio | Self::Clusters) { 2 } else { 1 }
    }

    /// Both arms, of which the second has the effect.
    fn table(self, random: &mut Random, units: usize, cv: f64, effect: Effect) -> MomentsTable {
        let mut table = MomentsTable::default();
        for (variant, effect) in [Effect::NONE, effect].into_iter().enumerate() {
            let columns = self.columns();
            let mut slices = vec![Moments::new(columns), Moments::new(columns)];
            for _ in 0..units {
                let (row, country) = self.unit(random, cv, effect);
                slices[country].add(&row[..columns]);
            }
            let mut all = slices[0].clone();
            all.merge(&slices[1]);
            let mut add = |slice, moments: Moments| {
                let users = moments.count();
                table.cells.push(Cell { slice, variant, users, groups: vec![moments] });
            };
            add(None, all);
            if self == Self::Strata {
                for (country, moments) in slices.into_iter().enumerate() {
                    add(Some((0, country.to_string())), moments);
                }
            }
        }
        table
    }
}

/// Percent with its standard error.
struct Share {
    percent: f64,
    error: f64,
}

fn share(count: u64, of: u64) -> Share {
    let share = count as f64 / of as f64;
    Share { percent: 100.0 * share, error: 100.0 * (share * (1.0 - share) / of as f64).sqrt() }
}

fn marked(share: &Share, met: bool) -> String {
    format!("{:.2}{}", share.percent, if met { "" } else { " !" })
}

/// Sums what each of many seeds counts, on two threads.
fn counted<const N: usize>(experiments: u64, count: impl Fn(u64) -> [u64; N] + Sync) -> [u64; N] {
    let half = |seeds: std::ops::Range<u64>| {
        seeds.map(&count).fold([0; N], |mut all, more| {
            all.iter_mut().zip(more).for_each(|(all, more)| *all += more);
            all
        })
    };
    let middle = experiments / 2;
    std::thread::scope(|scope| {
        let first = scope.spawn(|| half(0..middle));
        let second = half(middle..experiments);
        let mut all = first.join().expect("no panic");
        all.iter_mut().zip(second).for_each(|(all, more)| *all += more);
        all
    })
}

fn compare(experiment: &Experiment, table: &MomentsTable) -> Comparison {
    let query = plan(experiment, &[], None).expect("no names");
    let report = analyze(experiment, &query, table).expect("fits");
    report.metrics[0].comparisons[0].clone()
}

/// A/A tests up and down, and planted wins that a fixed test finds in 75 % of cases.
fn lifts(experiments: u64) {
    println!("## A/A up and down, planted wins found, {experiments} experiments each, percent\n");
    println!(
        "| design | units an arm, CV | better | worse | found | delta: better | worse | found |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|---:|");
    let of_users = [(200, 2.0), (1000, 2.0), (5000, 3.0)];
    let mut rows: Vec<(Design, usize, f64)> =
        of_users.map(|(units, cv)| (Design::Mean, units, cv)).to_vec();
    for design in
        [Design::Cuped, Design::Ratio, Design::Strata, Design::GroupSequential, Design::Anytime]
    {
        rows.push((design, 500, 2.0));
    }
    rows.push((Design::Bayesian, 500, 2.0));
    rows.push((Design::Switchback, 84, 1.0));
    // The deviation of a share of 10 % is 0.3.
    for design in [Design::Share, Design::SharePooled, Design::ShareExact] {
        rows.extend([(design, 100, 0.3), (design, 2000, 0.3)]);
    }
    rows.extend([
        (Design::Mean, 6, 1.0),
        (Design::Clusters, 12, 1.0),
        (Design::Clusters, 100, 2.0),
    ]);
    for (design, units, cv) in rows {
        let rules = ["", "lift = \"delta\""].map(|lift| design.experiment(lift, units));
        let wanted = normal_isf(0.025) + normal_isf(0.25);
        let planted = Effect { plus: wanted * (2.0 / units as f64).sqrt() * cv, ..Effect::NONE };
        let calls = counted(experiments, |seed| {
            let mut counts = [0; 6];
            for (planted, effect) in [Effect::NONE, planted].into_iter().enumerate() {
                let mut random = Random((2 * seed + planted as u64 + 1) << 24);
                let table = design.table(&mut random, units, cv, effect);
                for (rule, experiment) in rules.iter().enumerate() {
                    let call = compare(experiment, &table).call;
                    let counts = &mut counts[3 * rule..];
                    counts[0] += u64::from(planted == 0 && call == Call::Better);
                    counts[1] += u64::from(planted == 0 && call == Call::Worse);
                    counts[2] += u64::from(planted == 1 && call == Call::Better);
                }
            }
            counts
        });
        let shares = calls.map(|count| share(count, experiments));
        let room = 3.0 * (2.5f64 * 97.5 / experiments as f64).sqrt();
        let alike = |pair: &[Share]| {
            (pair[0].percent - pair[1].percent).abs()
                <= 3.0 * pair[0].error.hypot(pair[1].error).max(room / 3.0)
        };
        let side = |pair: &[Share], side: usize| {
            marked(&pair[side], pair[side].percent - 2.5 <= room && alike(pair))
        };
        println!(
            "| {} | {units}, {cv} | {} | {} | {:.1} | {} | {} | {:.1} |",
            design.name(),
            side(&shares[..2], 0),
            side(&shares[..2], 1),
            shares[2].percent,
            side(&shares[3..5], 0),
            side(&shares[3..5], 1),
            shares[5].percent
        );
    }
}

/// Intervals of a true lift of 20 %, few users and many.
fn coverage(experiments: u64) {
    println!(
        "\n## Coverage of 95 % intervals, a true lift of 20 %, {experiments} experiments each, percent\n"
    );
    println!("| users an arm, CV | difference | lift | no lift | lift by delta |");
    println!("|---|---:|---:|---:|---:|");
    for units in [6, 12, 50, 500, 5000] {
        for cv in [1.0, 2.0, 3.0] {
            let rules = ["", "lift = \"delta\""].map(|lift| Design::Mean.experiment(lift, units));
            let counts = counted(experiments, |seed| {
                let mut random = Random((seed + 7) << 24);
                let table = Design::Mean.table(
                    &mut random,
                    units,
                    cv,
                    Effect { times: 1.2, ..Effect::NONE },
                );
                let [ours, delta] = [0, 1].map(|rule: usize| compare(&rules[rule], &table));
                let holds = |low: f64, high: f64, value| u64::from(low <= value && value <= high);
                let difference = ours.absolute.map_or(1, |e| holds(e.low, e.high, 0.2));
                // Without a lift the difference is shown.
                let [none, covered] = match ours.relative {
                    Ok(e) => [0, holds(e.low, e.high, 0.2)],
                    Err(_) => [1, 0],
                };
                let delta = delta.relative.map_or(1, |e| holds(e.low, e.high, 0.2));
                [difference, covered, none, delta]
            });
            let least = if units >= 50 { 94.0 } else { 93.5 };
            let most = if units >= 50 { 96.0 } else { 100.0 };
            let floor = |share: &Share| {
                share.percent >= least - 3.0 * share.error
                    && share.percent <= most + 3.0 * share.error
            };
            let difference = share(counts[0], experiments);
            let lift = share(counts[1], (experiments - counts[2]).max(1));
            let [none, delta] = [counts[2], counts[3]].map(|count| share(count, experiments));
            println!(
                "| {units}, {cv} | {} | {} | {:.1} | {:.2} |",
                marked(&difference, floor(&difference)),
                marked(&lift, floor(&lift)),
                none.percent,
                delta.percent
            );
        }
    }
}

/// Goals without any effect, looked at as often as planned.
fn families(experiments: u64) {
    println!("\n## Any false call in a family, {experiments} experiments each, percent\n");
    println!(
        "| goals | looks | Holm | Benjamini-Hochberg | scaled at alpha: Holm | Benjamini-Hochberg |"
    );
    println!("|---:|---:|---:|---:|---:|---:|");
    for looks in [1usize, 4, 28, 100] {
        let fractions: Vec<f64> = (1..=looks).map(|k| k as f64 / looks as f64).collect();
        let p: Vec<SequentialP> = (1..=looks)
            .map(|k| SequentialP::new(&fractions[..k], 0.05).expect("in range"))
            .collect();
        let bounds = group_sequential_bounds(&fractions, 0.05, Sides::Two).expect("in range");
        for goals in [2usize, 5, 20] {
            let counts = counted(experiments, |seed| {
                let mut random = Random(((seed + 1) << 24) + (looks * 100 + goals) as u64);
                let mut scores = vec![0.0; goals];
                let mut any = [false; 4];
                for look in 0..looks {
                    let step = (1.0 / looks as f64).sqrt();
                    for score in &mut scores {
                        *score += step * random.normals()[0];
                    }
                    let z = scores.iter().map(|score| (score / fractions[look].sqrt()).abs());
                    let z: Vec<f64> = z.collect();
                    let right: Vec<f64> = z.iter().map(|z| p[look].p(*z)).collect();
                    let scale = 0.05 / (2.0 * normal_sf(bounds[look]));
                    let scaled = z.iter().map(|z| (2.0 * normal_sf(*z) * scale).min(1.0));
                    let scaled: Vec<f64> = scaled.collect();
                    let called = |adjusted: Vec<f64>| adjusted.iter().any(|p| *p < 0.05);
                    any[0] |= called(holm(&right));
                    any[1] |= called(benjamini_hochberg(&right));
                    any[2] |= called(holm(&scaled));
                    any[3] |= called(benjamini_hochberg(&scaled));
                }
                any.map(u64::from)
            });
            let shares = counts.map(|count| share(count, experiments));
            let room = 2.0 * (5.0f64 * 95.0 / experiments as f64).sqrt();
            let cells = shares.map(|share| marked(&share, share.percent <= 5.0 + room));
            println!("| {goals} | {looks} | {} |", cells.join(" | "));
        }
    }
}

/// Do the intervals of a family hold together (Holm), or those of what is called on average (Benjamini and Hochberg)?
fn together(experiments: u64) {
    println!("\n## Intervals of a family, {experiments} experiments each, percent\n");
    println!(
        "| goals | with an effect of | Holm: any misses | alone: any misses | Benjamini-Hochberg: of those called | alone |"
    );
    println!("|---:|---|---:|---:|---:|---:|");
    const USERS: u64 = 5000;
    let error = (2.0 / USERS as f64).sqrt();
    for goals in [2usize, 5, 20] {
        let rules = ["holm", "benjamini-hochberg"].map(|correction| family(goals, correction));
        for (what, errors) in
            [("none", 0.0), ("half 0.5 errors", 0.5), ("half 3 errors", 3.0), ("half 6", 6.0)]
        {
            let truth = |goal: usize| if goal.is_multiple_of(2) { errors * error } else { 0.0 };
            let counts = counted(experiments, |seed| {
                let mut random =
                    Random(((seed + 1_000_003) << 24) + (goals * 100) as u64 + errors.to_bits());
                let mut arm = |has_effect: bool| {
                    let group = |goal: usize| {
                        let mean = 1.0 + if has_effect { truth(goal) } else { 0.0 };
                        let mean = mean + random.normals()[0] / (USERS as f64).sqrt();
                        Moments::from_summary(USERS, &[mean], &[1.0])
                    };
                    (0..goals).map(group).collect::<Vec<_>>()
                };
                let cells = [arm(false), arm(true)].into_iter().enumerate();
                let cells = cells.map(|(variant, groups)| Cell {
                    slice: None,
                    variant,
                    users: USERS,
                    groups,
                });
                let table = MomentsTable { cells: cells.collect(), ..MomentsTable::default() };
                let [holm, hochberg] = [0, 1].map(|rule: usize| judged(&rules[rule], &table));
                let misses =
                    |goal: usize, low: f64, high: f64| !(low..=high).contains(&truth(goal));
                let half = normal_isf(0.025) * error;
                // Unrounded, the interval of a single comparison.
                let alone = |goal: usize, c: &Comparison| {
                    let value = c.absolute.expect("an estimate").value;
                    misses(goal, value - half, value + half)
                };
                let wide = |goal: usize, c: &Comparison| {
                    let estimate = c.absolute.expect("an estimate");
                    misses(goal, estimate.low, estimate.high)
                };
                let any = |of: &dyn Fn(usize, &Comparison) -> bool| {
                    u64::from(holm.iter().enumerate().any(|(goal, c)| of(goal, c)))
                };
                let called: Vec<(usize, &Comparison)> = hochberg
                    .iter()
                    .enumerate()
                    .filter(|(_, c)| matches!(c.call, Call::Better | Call::Worse))
                    .collect();
                // In millionths of the experiment's calls.
                let part = |of: &dyn Fn(usize, &Comparison) -> bool| {
                    let missed = called.iter().filter(|(goal, c)| of(*goal, c)).count() as u64;
                    missed * 1_000_000 / called.len().max(1) as u64
                };
                [any(&wide), any(&alone), part(&wide), part(&alone)]
            });
            let room = 2.0 * (5.0f64 * 95.0 / experiments as f64).sqrt();
            let [holm, alone] = [0, 1].map(|i: usize| share(counts[i], experiments));
            let [called, called_alone] =
                [2, 3].map(|i: usize| share(counts[i] / 1_000_000, experiments));
            println!(
                "| {goals} | {what} | {} | {:.2} | {} | {:.2} |",
                marked(&holm, holm.percent <= 5.0 + room),
                alone.percent,
                marked(&called, called.percent <= 5.0 + room),
                called_alone.percent
            );
        }
    }
}

/// So many goals, each a mean, that nothing else is known of.
fn family(goals: usize, correction: &str) -> Experiment {
    let mut text = format!(
        "name = \"e\"\ncorrection = \"{correction}\"\n[exposures]\ntable = \"x\"\nuser = \"u\"\nvariant = \"v\"\n\
         [[variant]]\nname = \"a\"\nshare = 0.5\n[[variant]]\nname = \"b\"\nshare = 0.5\n"
    );
    for goal in 0..goals {
        text += &format!("[[metric]]\nname = \"m{goal}\"\ntype = \"mean\"\nvalue = \"y\"\n");
    }
    Experiment::parse(&text, "e.toml").expect("a definition")
}

fn judged(experiment: &Experiment, table: &MomentsTable) -> Vec<Comparison> {
    let query = plan(experiment, &[], None).expect("a plan");
    let report = analyze(experiment, &query, table).expect("fits");
    report.metrics.into_iter().map(|mut metric| metric.comparisons.remove(0)).collect()
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let experiments: u64 =
        arguments.next().map_or(10_000, |text| text.parse().expect("a number of experiments"));
    let part = arguments.next();
    let wanted = |name: &str| part.as_deref().is_none_or(|part| part == name);
    if wanted("lifts") {
        lifts(experiments);
    }
    if wanted("coverage") {
        coverage(experiments);
    }
    if wanted("families") {
        families(experiments);
    }
    if wanted("together") {
        together(experiments);
    }
}
