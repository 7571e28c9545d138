//! What does the analysis cost alone, from moments to a report?
//!
//! 200 metrics, 3 arms, 28 days, a dimension of 50 values: 79 cells of each arm, 47,400 groups of
//! moments. Unit: milliseconds of one core (time on the processor, so that neighbours do not
//! count), the median of several runs. Floor: at most 100 ms.
//!
//! Run: `cargo run --release -p uplake-experiment --example cost [runs]`

use uplake_experiment::analyze::alternatives;
use uplake_experiment::query::{Cell, DayCells};
use uplake_experiment::{Experiment, Moments, MomentsQuery, MomentsTable, analyze, plan};

const METRICS: usize = 200;
const VALUES: usize = 50;
const DAYS: usize = 28;
const ARMS: usize = 3;

fn definition(top: &str) -> Experiment {
    let mut text = format!(
        "name = \"cost\"\nstart = \"2026-11-01\"\nend = \"2026-11-29\"\n{top}\n[exposures]\n\
         table = \"e\"\nuser = \"u\"\nvariant = \"v\"\ntime = \"ts\"\n[[dimension]]\n\
         name = \"country\"\n"
    );
    for arm in 0..ARMS {
        text.push_str(&format!("[[variant]]\nname = \"arm {arm}\"\nshare = 0.333\n"));
    }
    for metric in 0..METRICS {
        let kind = match metric % 4 {
            0 => "type = \"proportion\"",
            1 => "type = \"mean\"\nvalue = \"amount\"",
            2 => "type = \"mean\"\nvalue = \"amount\"\ncuped = { pre = \"14 days\" }",
            _ => {
                "type = \"ratio\"\nnumerator = { value = \"amount\" }\n\
                 denominator = { value = \"1\" }"
            }
        };
        text.push_str(&format!("[[metric]]\nname = \"metric {metric}\"\n{kind}\n"));
    }
    Experiment::parse(&text, "cost.toml").unwrap_or_else(|error| panic!("{error}"))
}

/// Plausible moments: every group another mean.
fn cell(query: &MomentsQuery, slice: Option<(usize, String)>, arm: usize, users: u64) -> Cell {
    let group = |(index, columns): (usize, &Vec<usize>)| {
        let mean = 10.0 + (index % 17) as f64 + 0.01 * arm as f64;
        if index % 4 == 0 {
            let count = (users as f64 * mean / 100.0).round();
            return Moments::from_raw_sums(users, &[count], &[count]);
        }
        let k = columns.len();
        let means: Vec<f64> = (0..k).map(|i| mean + i as f64).collect();
        let pairs = (0..k).flat_map(|i| (i..k).map(move |j| if i == j { 400.0 } else { 150.0 }));
        Moments::from_summary(users, &means, &pairs.collect::<Vec<f64>>())
    };
    Cell {
        slice,
        variant: arm,
        users,
        groups: query.groups.iter().enumerate().map(group).collect(),
    }
}

fn table(query: &MomentsQuery) -> MomentsTable {
    let users = |arm: usize| 100_000 + 37 * arm as u64;
    let mut table = MomentsTable::default();
    for arm in 0..ARMS {
        table.cells.push(cell(query, None, arm, users(arm)));
        for value in 0..VALUES {
            let of_value = 3000 - 40 * value as u64 + arm as u64;
            let name = format!("value {value:02}");
            table.cells.push(cell(query, Some((0, name)), arm, of_value));
        }
    }
    table.days = (0..DAYS)
        .map(|day| {
            let sofar = |arm| users(arm) * (day as u64 + 1) / DAYS as u64;
            let cells = (0..ARMS).map(|arm| cell(query, None, arm, sofar(arm))).collect();
            DayCells { day: format!("2026-11-{:02}", day + 1), cells }
        })
        .collect();
    table
}

/// Milliseconds that this thread has been on a processor, as Linux counts them.
fn on_processor_ms() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let first = text.split_whitespace().next().and_then(|field| field.parse::<f64>().ok());
    first.expect("nanoseconds") / 1e6
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let runs = std::env::args().nth(1).map_or(9, |text| text.parse().expect("a number of runs"));
    println!("{METRICS} metrics x {ARMS} arms x {DAYS} days x {VALUES} values; median of {runs}\n");
    println!("| definition | report, ms | with the page's switches, ms |");
    println!("|---|---:|---:|");
    for (name, top) in [
        ("fixed", ""),
        ("anytime", "inference = \"anytime\"\nplanned_users = 300000"),
        (
            "group sequential, 5 looks",
            "inference = \"group_sequential\"\nplanned_users = 400000\nlooks = 5",
        ),
        (
            "group sequential, 28 looks",
            "inference = \"group_sequential\"\nplanned_users = 400000\nlooks = 28",
        ),
        ("bayesian", "inference = \"bayesian\""),
        ("fixed, stratified", "stratify = \"country\""),
    ] {
        let experiment = definition(top);
        let query = plan(&experiment, &["country".to_owned()], None).expect("the name exists");
        let table = table(&query);
        let time = |more: bool| {
            let started = on_processor_ms();
            let report = analyze(&experiment, &query, &table).expect("fits");
            assert_eq!(report.metrics.len(), METRICS);
            if more {
                assert!(!alternatives(&experiment, &query, &table).expect("fits").is_empty());
            }
            on_processor_ms() - started
        };
        let [report, all] =
            [false, true].map(|more| median((0..runs).map(|_| time(more)).collect()));
        println!("| {name} | {report:.1} | {all:.1} |");
    }
}
