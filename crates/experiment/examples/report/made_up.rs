//! A shop's experiment with made-up users: three arms, four weeks, history, a funnel.
//!
//! # Invariants
//! - The same definition and number of users give the same report on every machine.

use uplake_experiment::analyze::alternatives;
use uplake_experiment::definition::{Metric, MetricKind, Variant};
use uplake_experiment::query::{Cell, DayCells};
use uplake_experiment::report::Reproduce;
use uplake_experiment::{
    DailyMoments, Experiment, Moments, MomentsQuery, MomentsTable, Report, analyze, plan,
};

pub const DEFINITION: &str = r#"name = "free_shipping"
hypothesis = "Free shipping makes more visitors pay, without more refunds or errors."
start = "2026-10-05"
end = "2026-11-02"
time_zone = "Europe/Berlin"

[exposures]
table = "exposures"
user = "user_id"
variant = "variant"
time = "ts"

[[variant]]
name = "control"
share = 0.34
[[variant]]
name = "free from 40"
share = 0.33
[[variant]]
name = "always free"
share = 0.33

[[metric]]
name = "conversion"
type = "proportion"
table = "events"
where = "event = 'pay'"

[[metric]]
name = "revenue per visitor"
type = "mean"
table = "events"
value = "amount"
cuped = { pre = "14 days" }

[[metric]]
name = "orders per visitor"
type = "count"
table = "events"
where = "event = 'pay'"
cuped = { pre = "14 days" }

[[metric]]
name = "checkout"
type = "funnel"
table = "events"
steps = [
  { name = "cart", where = "event = 'cart'" },
  { name = "address", where = "event = 'address'" },
  { name = "payment", where = "event = 'pay'" },
]

[[metric]]
name = "refund ratio"
type = "ratio"
table = "refunds"
numerator = { value = "refund" }
denominator = { value = "amount" }
direction = "decrease"
guardrail = true

[[metric]]
name = "visits per visitor"
type = "count"
table = "events"
guardrail = true
margin = 0.05
cuped = { pre = "14 days" }

[[metric]]
name = "page errors"
type = "count"
table = "events"
where = "event = 'error'"
direction = "decrease"
guardrail = true

[[dimension]]
name = "country"
"#;

/// The shop's definition with so many metrics in its place: a primary one, others in groups, and at the end
/// guardrails, of three kinds in turn.
pub fn many(metrics: usize) -> String {
    const AREAS: [&str; 5] = ["search", "basket", "checkout", "engagement", "loyalty"];
    const PARTS: [&str; 4] = ["shoes", "books", "garden", "toys"];
    let mut text = DEFINITION.split("[[metric]]").next().unwrap_or_default().to_owned();
    let guardrails = metrics.div_ceil(10);
    for index in 0..metrics {
        let (what, kind) = match index % 3 {
            0 => ("bought from", "type = \"proportion\"\nvalue = \"paid\""),
            1 => ("spent on", "type = \"mean\"\nvalue = \"amount\"\ncuped = { pre = \"14 days\" }"),
            _ => (
                "pages per visit of",
                "type = \"ratio\"\nnumerator = { value = \"a\" }\ndenominator = { value = \"b\" }",
            ),
        };
        let purpose = if index == 0 {
            "role = \"primary\"".to_owned()
        } else if index + guardrails >= metrics {
            "role = \"guardrail\"\ndirection = \"decrease\"".into()
        } else {
            format!("group = \"{}\"", AREAS[index * AREAS.len() / metrics])
        };
        let name = format!("{what} {} {}", PARTS[index % PARTS.len()], index / PARTS.len() + 1);
        let head = format!("[[metric]]\nname = \"{name}\"\ntable = \"events\"\n");
        text.push_str(&format!("{head}{purpose}\n{kind}\n"));
    }
    text
}

const COUNTRIES: [(&str, f64); 4] = [("DE", 0.55), ("FR", 0.8), ("AT", 0.93), ("CH", 1.0)];

/// Numbers from 0 to 1 that look random: a linear congruential generator, of Knuth's MMIX.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    fn count(&mut self, mean: f64) -> f64 {
        let (floor, mut product, mut count) = ((-mean).exp(), self.roll(), 0.0);
        while product > floor {
            product *= self.roll();
            count += 1.0;
        }
        count
    }
}

/// One visitor's numbers, before any metric asks for them.
struct Visitor {
    /// How much this one buys: 1 on average.
    appetite: f64,
    steps: f64,
    orders: f64,
    basket: f64,
    refund: f64,
}

impl Visitor {
    fn new(dice: &mut Dice, arm: usize) -> Self {
        let appetite = -(1.0 - dice.roll()).ln();
        let better = [1.0, 1.04, 1.14][arm % 3];
        let chance = |base: f64| 1.0 - (-base * better * (0.4 + 0.6 * appetite)).exp();
        let place = dice.roll();
        let steps = [chance(0.42), chance(0.24), chance(0.13)];
        let steps = steps.iter().filter(|chance| place < **chance).count() as f64;
        let orders = if steps > 2.0 { 1.0 + dice.count(0.35 * appetite) } else { 0.0 };
        let basket = orders * (18.0 + 30.0 * dice.roll() + 8.0 * appetite);
        let dearer = [0.06, 0.06, 0.062][arm % 3];
        let refund = if dice.roll() < dearer * 2.0 { basket * dice.roll() } else { 0.0 };
        Self { appetite, steps, orders, basket, refund }
    }

    /// The columns of one metric's group.
    fn columns(&self, dice: &mut Dice, metric: &Metric, arm: usize, columns: usize) -> Vec<f64> {
        // Of many metrics each has noise and a rate of its own.
        let number = metric
            .name
            .bytes()
            .fold(0usize, |sum, byte| sum.wrapping_mul(7).wrapping_add(byte.into()))
            % 11;
        if metric.name == "refund ratio" {
            return vec![self.refund, self.basket];
        } else if matches!(metric.kind, MetricKind::Ratio { .. }) {
            let visits = 1.0 + dice.count(2.0 * self.appetite);
            let better = if number > 7 && arm == 2 { 1.02 } else { 1.0 };
            return vec![visits * (0.4 + dice.roll()) * better, visits];
        }
        let errors = [0.11, 0.11, 0.12][arm % 3];
        let reached = |steps: f64| f64::from(u8::from(self.steps >= steps));
        let own = match metric.name.as_str() {
            "checkout: cart" => reached(1.0),
            "checkout: address" => reached(2.0),
            "conversion" | "checkout: payment" => reached(3.0),
            "revenue per visitor" => self.basket,
            "orders per visitor" => self.orders,
            "visits per visitor" => 1.0 + dice.count(2.0 * self.appetite),
            "page errors" => dice.count(errors),
            _ if matches!(metric.kind, MetricKind::Proportion(_)) => {
                let other = f64::from(u8::from(dice.roll() < 0.08 * number as f64));
                if number % 4 == 0 { other } else { reached(2.0).max(other) }
            }
            _ if number % 3 == 1 => 30.0 * dice.roll() * dice.count(self.appetite),
            _ => self.basket + 10.0 * number as f64 * dice.roll(),
        };
        let before = match metric.name.as_str() {
            "visits per visitor" => dice.count(2.0 * self.appetite),
            "orders per visitor" => dice.count(0.3 * self.appetite),
            _ => 22.0 * self.appetite * dice.roll(),
        };
        [own, before][..columns].to_vec()
    }
}

/// The report on about `users_per_day`, with numbers for all switches.
///
/// # Errors
/// Those of a definition or of moments that do not fit.
pub fn report(
    definition: &str,
    users_per_day: usize,
) -> Result<Report, Box<dyn std::error::Error>> {
    let experiment = Experiment::parse(definition, "free_shipping.toml")?;
    let dimensions: Vec<String> = experiment.dimensions.iter().map(|d| d.name.clone()).collect();
    let query = plan(&experiment, &dimensions, None)?;
    let table = answer(&experiment, &query, users_per_day);
    let mut report = analyze(&experiment, &query, &table)?;
    report.alternatives = alternatives(&experiment, &query, &table)?;
    report.reproduce = Some(Reproduce {
        command: "uplake report free_shipping.toml --dimension country".into(),
        definition: definition.into(),
        sql: "SELECT user_id, variant, min(ts) AS exposed FROM exposures GROUP BY ALL".into(),
        tables: vec![("exposures".into(), 412), ("events".into(), 1093), ("refunds".into(), 77)],
    });
    Ok(report)
}

const DAYS: usize = 28;

fn day_name(day: usize) -> String {
    // The period starts on 5 October, which has 27 days left.
    if day < 27 { format!("2026-10-{:02}", day + 5) } else { format!("2026-11-{:02}", day - 26) }
}

/// Users come day by day; each keeps the numbers of the first day.
fn answer(experiment: &Experiment, query: &MomentsQuery, users_per_day: usize) -> MomentsTable {
    let mut dice = Dice(20_261_105);
    let arms = experiment.variants.len();
    let widths: Vec<usize> = query.groups.iter().map(Vec::len).collect();
    let empty = || widths.iter().map(|width| Moments::new(*width)).collect::<Vec<_>>();
    let daily = || widths.iter().map(|width| DailyMoments::new(*width, DAYS)).collect::<Vec<_>>();
    let mut all: Vec<Vec<DailyMoments>> = (0..arms).map(|_| daily()).collect();
    let mut by_country: Vec<Vec<Vec<Moments>>> =
        COUNTRIES.iter().map(|_| (0..arms).map(|_| empty()).collect()).collect();
    let mut exposed = vec![vec![0u64; arms]; DAYS];
    for (day, exposed) in exposed.iter_mut().enumerate() {
        let weekend = if day % 7 > 4 { 1.35 } else { 1.0 };
        for _ in 0..(users_per_day as f64 * weekend * (0.85 + 0.3 * dice.roll())) as usize {
            let place = dice.roll();
            let mut reach = 0.0;
            let within = |variant: &Variant| {
                reach += variant.share;
                place < reach
            };
            let arm = experiment.variants.iter().position(within).unwrap_or(arms - 1);
            let place = dice.roll();
            let country = COUNTRIES.iter().position(|(_, reach)| place < *reach).unwrap_or(0);
            let visitor = Visitor::new(&mut dice, arm);
            exposed[arm] += 1;
            for (group, metric) in experiment.metrics.iter().enumerate() {
                let values = visitor.columns(&mut dice, metric, arm, widths[group]);
                all[arm][group].add(day, &values);
                by_country[country][arm][group].add(&values);
            }
        }
    }
    table(experiment, &all, by_country, &exposed)
}

fn table(
    experiment: &Experiment,
    all: &[Vec<DailyMoments>],
    by_country: Vec<Vec<Vec<Moments>>>,
    exposed: &[Vec<u64>],
) -> MomentsTable {
    let cell = |slice: Option<(usize, String)>, variant: usize, groups: Vec<Moments>| Cell {
        slice,
        variant,
        users: groups[0].count(),
        groups,
    };
    let cumulative: Vec<Vec<Vec<Moments>>> =
        all.iter().map(|groups| groups.iter().map(DailyMoments::cumulative).collect()).collect();
    let as_of = |day: usize| -> Vec<Cell> {
        let groups = |arm: &Vec<Vec<Moments>>| arm.iter().map(|days| days[day].clone()).collect();
        let arms = cumulative.iter().enumerate();
        arms.map(|(variant, arm)| cell(None, variant, groups(arm))).collect()
    };
    let mut cells = as_of(DAYS - 1);
    if !experiment.dimensions.is_empty() {
        for ((name, _), arms) in COUNTRIES.iter().zip(by_country) {
            let arms = arms.into_iter().enumerate();
            let slice = || Some((0, (*name).to_owned()));
            cells.extend(arms.map(|(variant, groups)| cell(slice(), variant, groups)));
        }
    }
    let days = 0..DAYS;
    let active = |table: &str, missing: usize| -> Vec<(String, String, u64)> {
        let present = days.clone().filter(|day| *day != missing);
        present.map(|day| (table.to_owned(), day_name(day), exposed[day].iter().sum())).collect()
    };
    MomentsTable {
        cells,
        days: days.clone().map(|day| DayCells { day: day_name(day), cells: as_of(day) }).collect(),
        users_in_many_variants: 37,
        unknown_variants: vec![("beta".into(), 12)],
        first_exposures: exposed
            .iter()
            .enumerate()
            .flat_map(|(day, arms)| {
                arms.iter().enumerate().map(move |(arm, users)| (day_name(day), arm, *users))
            })
            .collect(),
        active_users: [active("events", DAYS), active("refunds", 17)].concat(),
        ..MomentsTable::default()
    }
}
