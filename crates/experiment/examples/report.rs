//! Prints a report on made-up moments. Run: `cargo run -p uplake-experiment --example report`
//! (`html` or `json` as an argument for the other forms, a number for the width).

use uplake_experiment::query::Cell;
use uplake_experiment::{Experiment, Moments, MomentsTable, analyze, plan};

const DEFINITION: &str = r#"
name = "free_shipping"
hypothesis = "Free shipping from 40 EUR makes more visitors pay, without more refunds."
start = "2026-11-01"
end = "2026-11-15"
time_zone = "Europe/Berlin"
[exposures]
table = "exposures"
user = "user_id"
variant = "variant"
time = "ts"
[[variant]]
name = "control"
share = 0.5
[[variant]]
name = "free"
share = 0.5
[[metric]]
name = "conversion"
type = "proportion"
table = "events"
[[metric]]
name = "revenue per visitor"
type = "mean"
table = "events"
value = "amount"
cuped = { pre = "14 days" }
[[metric]]
name = "refund ratio"
type = "ratio"
table = "events"
numerator = { value = "refund" }
denominator = { value = "amount" }
direction = "decrease"
guardrail = true
[[dimension]]
name = "country"
"#;

fn groups(users: u64, conversion: f64, revenue: f64, refunds: f64) -> Vec<Moments> {
    let count = (users as f64 * conversion).round();
    vec![
        Moments::from_raw_sums(users, &[count], &[count]),
        Moments::from_summary(users, &[revenue, 4.0], &[400.0, 150.0, 300.0]),
        Moments::from_summary(users, &[refunds * revenue, revenue], &[4.0, 10.0, 400.0]),
    ]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let experiment = Experiment::parse(DEFINITION, "free_shipping.toml")?;
    let query = plan(&experiment, Some("country"), None)?;
    let cell = |value: Option<&str>, variant, groups| Cell {
        dimension_value: value.map(str::to_owned),
        variant,
        groups,
    };
    let mut cells = vec![
        cell(None, 0, groups(60_113, 0.0812, 5.21, 0.081)),
        cell(None, 1, groups(59_902, 0.0874, 5.31, 0.084)),
    ];
    for (country, users, lift) in
        [("DE", 40_000, 0.09), ("FR", 15_000, 0.085), ("AT", 5_000, 0.079)]
    {
        cells.push(cell(Some(country), 0, groups(users, 0.0812, 5.2, 0.08)));
        cells.push(cell(Some(country), 1, groups(users, lift, 5.3, 0.08)));
    }
    let table = MomentsTable {
        cells,
        users_in_many_variants: 37,
        unknown_variants: vec![("beta".into(), 12)],
        first_exposures: vec![("2026-11-01".into(), 0, 60_113), ("2026-11-01".into(), 1, 59_902)],
    };
    let report = analyze(&experiment, &query, &table)?;
    let argument = std::env::args().nth(1).unwrap_or_default();
    match argument.as_str() {
        "html" => print!("{}", report.to_html()),
        "json" => print!("{}", report.to_json()),
        width => print!("{}", report.to_text(width.parse().unwrap_or(110), false)),
    }
    Ok(())
}
