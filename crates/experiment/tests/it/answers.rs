//! A model of the engine for tests: users with their numbers by name, answered one query at a
//! time by adding rows, with nothing shared with the real engine.
//!
//! # Invariants
//! - A column's number is looked up by the column's `value`; before exposure it is `pre_` and
//!   that name. A name without a number counts as 0.

use std::collections::BTreeMap;

use crate::reference;
use uplake_experiment::definition::{Cap, Transform, Unit};
use uplake_experiment::quantile::{Band, ranks};
use uplake_experiment::query::{Aggregate, Cell, DayCells, QuantileCell, UserColumn};
use uplake_experiment::report::{Comparison, MetricReport};
use uplake_experiment::{
    DailyMoments, Experiment, Moments, MomentsQuery, MomentsTable, Report, analyze, plan,
};

/// One unit of the test's data: a user, or a region and stretch of time.
#[derive(Debug, Clone, Default)]
pub struct User {
    pub variant: usize,
    pub cluster: usize,
    /// Of first exposure.
    pub day: usize,
    /// By name of the dimension.
    pub slices: BTreeMap<String, String>,
    pub numbers: BTreeMap<String, f64>,
    /// Single values, for quantiles of rows.
    pub rows: Vec<f64>,
}

impl User {
    pub fn number(&self, column: &UserColumn) -> f64 {
        let before = column.window.is_some_and(|window| window.end_ms == Some(0));
        let name = if before { format!("pre_{}", column.value) } else { column.value.clone() };
        let number = self.numbers.get(&name).copied().unwrap_or(0.0);
        let number = match &column.aggregate {
            Aggregate::One => 1.0,
            Aggregate::Any => f64::from(u8::from(number != 0.0)),
            Aggregate::Steps { reached, .. } => {
                let got = self.numbers.get("steps").copied().unwrap_or(0.0);
                f64::from(u8::from(got >= *reached as f64))
            }
            _ => number,
        };
        let number = match column.cap {
            Some(Cap::Value(cap)) => number.min(cap),
            _ => number,
        };
        column.at_least.map_or(number, |least| f64::from(u8::from(number >= least)))
    }
}

pub fn read(definition: &str) -> Experiment {
    Experiment::parse(definition, "test.toml").unwrap_or_else(|error| panic!("{error}"))
}

/// The report on `users`, every dimension broken down.
pub fn report(experiment: &Experiment, users: &[User]) -> Report {
    let dimensions: Vec<String> = experiment.dimensions.iter().map(|d| d.name.clone()).collect();
    let query = plan(experiment, &dimensions, None).expect("names exist");
    analyze(experiment, &query, &answer(&query, users, 0)).expect("the answer fits the query")
}

/// The only comparison of the only metric.
pub fn single(report: &Report) -> (&MetricReport, &Comparison) {
    assert_eq!((report.metrics.len(), report.metrics[0].comparisons.len()), (1, 1));
    (&report.metrics[0], &report.metrics[0].comparisons[0])
}

/// Answers `query`; with days `0..days` if it asks for days.
pub fn answer(query: &MomentsQuery, users: &[User], days: usize) -> MomentsTable {
    let caps = caps(query, users);
    let mut table = MomentsTable {
        cells: cells(query, users, &caps),
        caps: caps.iter().map(|(column, cap)| (*column, *cap)).collect(),
        ..MomentsTable::default()
    };
    if query.days {
        table.days = (0..days)
            .map(|day| {
                let sofar: Vec<User> = users.iter().filter(|u| u.day <= day).cloned().collect();
                let cells = cells(query, &sofar, &caps);
                DayCells { day: format!("2026-11-{:02}", day + 1), cells }
            })
            .collect();
    }
    for (index, asked) in query.quantiles.iter().enumerate() {
        for (slice, variant, members) in groups(query, users) {
            let mut values: Vec<f64> = members
                .iter()
                .flat_map(|user| {
                    if asked.per_row { user.rows.clone() } else { vec![user.number(&asked.column)] }
                })
                .collect();
            values.sort_by(f64::total_cmp);
            let count = values.len() as u64;
            let band = ranks(count, asked.level).ok().map(|ranks| {
                let at = |rank: u64| values[rank as usize - 1];
                Band { low: at(ranks.low), quantile: at(ranks.quantile), high: at(ranks.high) }
            });
            let clusters = band.filter(|_| asked.per_row).map(|band| {
                let mut clusters = Moments::new(2);
                for user in members.iter().filter(|user| !user.rows.is_empty()) {
                    let below = user.rows.iter().filter(|value| **value <= band.quantile).count();
                    clusters.add(&[below as f64, user.rows.len() as f64]);
                }
                clusters
            });
            let cell =
                QuantileCell { quantile: index, slice, variant, values: count, band, clusters };
            table.quantiles.push(cell);
        }
    }
    table
}

/// The cap of every column that has a quantile for one: over all arms.
fn caps(query: &MomentsQuery, users: &[User]) -> BTreeMap<usize, f64> {
    let capped = query.columns.iter().enumerate().filter_map(|(index, column)| {
        let Some(Cap::Quantile { level, zeros }) = column.cap else { return None };
        let numbers = users.iter().map(|user| user.number(column));
        let mut values: Vec<f64> = numbers.filter(|number| zeros || *number != 0.0).collect();
        values.sort_by(f64::total_cmp);
        let rank = (values.len() as f64 * level).ceil() as usize;
        Some((index, *values.get(rank.max(1) - 1)?))
    });
    capped.collect()
}

type Slice = Option<(usize, String)>;

/// Users of each arm, of everyone and of each value of each dimension.
fn groups<'u>(query: &MomentsQuery, users: &'u [User]) -> Vec<(Slice, usize, Vec<&'u User>)> {
    let mut found: BTreeMap<(Slice, usize), Vec<&User>> = BTreeMap::new();
    for user in users {
        found.entry((None, user.variant)).or_default().push(user);
        for (index, dimension) in query.dimensions.iter().enumerate() {
            let value = user.slices.get(&dimension.name).cloned().unwrap_or("(null)".into());
            found.entry((Some((index, value)), user.variant)).or_default().push(user);
        }
    }
    found.into_iter().map(|((slice, variant), members)| (slice, variant, members)).collect()
}

fn cells(query: &MomentsQuery, users: &[User], caps: &BTreeMap<usize, f64>) -> Vec<Cell> {
    let number = |user: &User, column: usize| {
        let number = user.number(&query.columns[column]);
        let number = caps.get(&column).map_or(number, |cap| number.min(*cap));
        query.columns[column].transform.map_or(number, |Transform::Log1p| number.ln_1p())
    };
    let cell = |(slice, variant, members): (Slice, usize, Vec<&User>)| {
        let moments = query.groups.iter().map(|columns| {
            let row = |user: &&User| -> Vec<f64> {
                columns.iter().map(|column| number(user, *column)).collect()
            };
            let mut moments = Moments::new(columns.len());
            if matches!(query.exposures.unit, Unit::Cluster { .. }) {
                let mut sums: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
                for user in &members {
                    let sum = sums.entry(user.cluster).or_insert_with(|| vec![0.0; columns.len()]);
                    sum.iter_mut().zip(row(user)).for_each(|(sum, more)| *sum += more);
                }
                sums.values().for_each(|sum| moments.add(sum));
            } else {
                members.iter().for_each(|user| moments.add(&row(user)));
            }
            moments
        });
        Cell { slice, variant, users: members.len() as u64, groups: moments.collect() }
    };
    groups(query, users).into_iter().map(cell).collect()
}

/// All days of one arm's column by [`DailyMoments`], for rows `(day, change of the number)` per
/// user in the order of time.
pub fn daily(users: &[Vec<(usize, Vec<f64>)>], columns: usize, days: usize) -> Vec<Moments> {
    let mut daily = DailyMoments::new(columns, days);
    for changes in users {
        let mut now = vec![0.0; columns];
        for (index, (day, more)) in changes.iter().enumerate() {
            let new: Vec<f64> = now.iter().zip(more).map(|(now, more)| now + more).collect();
            if index == 0 {
                daily.add(*day, &new)
            } else {
                daily.change(*day, &now, &new)
            }
            now = new;
        }
    }
    daily.cumulative()
}

pub fn golden() -> Option<serde_json::Value> {
    reference::json("golden.json")
}

/// The 945 users of arms A and B, with their latencies as rows.
pub fn golden_users() -> Option<Vec<User>> {
    let (csv, events) =
        (reference::text("inputs/users.csv")?, reference::text("inputs/events.csv")?);
    let mut rows: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for line in events.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let id = fields[0].parse().expect("an id");
        rows.entry(id).or_default().push(fields[2].parse().expect("milliseconds"));
    }
    let header: Vec<&str> = csv.lines().next()?.split(',').collect();
    let users = csv.lines().skip(1).filter_map(|line| {
        let fields: BTreeMap<&str, &str> = header.iter().copied().zip(line.split(',')).collect();
        let variant = ["A", "B"].iter().position(|arm| *arm == fields["variant"])?;
        let id: usize = fields["user_id"].parse().expect("an id");
        let mut numbers: BTreeMap<String, f64> = fields
            .iter()
            .filter_map(|(name, text)| Some(((*name).to_owned(), text.parse().ok()?)))
            .collect();
        // A share has a history too: did the user order before?
        numbers.insert("pre_converted".into(), f64::from(u8::from(numbers["pre_orders"] > 0.0)));
        Some(User {
            variant,
            cluster: id % 40 + 100 * variant,
            day: numbers["day"] as usize,
            slices: [("country".to_owned(), fields["country"].to_owned())].into(),
            numbers,
            rows: rows.remove(&id).unwrap_or_default(),
        })
    });
    Some(users.collect())
}

/// SplitMix64: a seeded source, so that a failure can be repeated.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// In (0, 1].
    pub fn uniform(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    pub fn below(&mut self, end: u64) -> usize {
        (self.next() % end) as usize
    }
}

pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Sample covariance in two passes, the plainest way.
pub fn covariance(a: &[f64], b: &[f64]) -> f64 {
    let (ma, mb) = (mean(a), mean(b));
    let sum: f64 = a.iter().zip(b).map(|(a, b)| (a - ma) * (b - mb)).sum();
    sum / (a.len() - 1) as f64
}

#[track_caller]
pub fn close(found: f64, expected: f64, tolerance: f64, what: &str) {
    let scale = expected.abs().max(f64::MIN_POSITIVE);
    let error = (found - expected).abs() / scale;
    assert!(error <= tolerance, "{what}: {found:e} instead of {expected:e}, off by {error:e}");
}
