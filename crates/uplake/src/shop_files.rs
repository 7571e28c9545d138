//! The shop's tables as a newcomer would have them, CSV files, and the definitions of its experiments.
//!
//! README and docs use these files by name, and a test runs what they say (`tests/docs`).
//!
//! # Not here
//! What customers do: see `uplake_testkit::shop`.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;

use anyhow::{Context, Result};
use arrow::array::{AsArray, RecordBatch};
use arrow::csv::WriterBuilder;
use arrow::datatypes::Date32Type;
use chrono::DateTime;
use uplake_testkit::date_text;
use uplake_testkit::shop::Planted;

/// The names of the experiments' definitions, without `.toml`.
pub const EXPERIMENTS: [&str; 2] = uplake_testkit::shop::EXPERIMENTS;

/// Writes `events/DATE.csv`, `exposures.csv`, `my_test.toml`, `new_checkout.toml` and `metrics.toml` below
/// `out`; the number of files. Files of these names are replaced.
///
/// # Errors
/// If a file cannot be written; those written before it stay.
pub fn write(
    exposures: &RecordBatch,
    events: &RecordBatch,
    planted: &Planted,
    out: &Path,
) -> Result<usize> {
    let folder = out.join("events");
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    write_csv(exposures, &out.join("exposures.csv"))?;
    let days = events.column(0).as_primitive::<Date32Type>().values();
    let (mut start, mut files) = (0, 1);
    while start < days.len() {
        // Rows are sorted by time.
        let rows = days[start..].partition_point(|day| *day == days[start]);
        let path = folder.join(format!("{}.csv", date_text(days[start])));
        write_csv(&events.slice(start, rows), &path)?;
        start += rows;
        files += 1;
    }
    let [free_shipping, new_checkout] = EXPERIMENTS.map(|name| definition(name, planted));
    let texts = [
        ("my_test.toml", free_shipping.as_str()),
        ("new_checkout.toml", new_checkout.as_str()),
        ("metrics.toml", CATALOGUE),
    ];
    for (name, text) in texts {
        let path = out.join(name);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(files + texts.len())
}

fn write_csv(rows: &RecordBatch, path: &Path) -> Result<()> {
    let failed = || format!("writing {}", path.display());
    let file = BufWriter::new(File::create(path).with_context(failed)?);
    let mut writer = WriterBuilder::new()
        .with_header(true)
        .with_timestamp_format("%Y-%m-%d %H:%M:%S%.3f".to_owned())
        .build(file);
    writer.write(rows).with_context(failed)?;
    let file = writer.into_inner();
    file.into_inner().map_err(std::io::IntoInnerError::into_error).with_context(failed)?;
    Ok(())
}

/// The definition of an experiment of [`EXPERIMENTS`].
#[must_use]
pub fn definition(name: &str, planted: &Planted) -> String {
    let day = |ms: i64| {
        DateTime::from_timestamp_millis(ms).unwrap_or_default().format("%Y-%m-%d").to_string()
    };
    let (hypothesis, metrics) = if name == EXPERIMENTS[0] {
        ("Free shipping makes more visitors buy", FREE_SHIPPING_METRICS)
    } else {
        ("A shorter checkout makes more visitors buy", NEW_CHECKOUT_METRICS)
    };
    DEFINITION
        .replace("{name}", name)
        .replace("{hypothesis}", hypothesis)
        .replace("{start}", &day(planted.start_ms))
        .replace("{end}", &day(planted.end_ms))
        .replace("{metrics}", metrics)
}

const DEFINITION: &str = r#"# An experiment: who saw what, from when to when, and what is measured.
name = "{name}"
hypothesis = "{hypothesis}"
start = "{start}"          # the first instant that counts
end = "{end}"            # the first that does not
time_zone = "UTC"

[exposures]                   # one row or more per user who saw a variant
table = "exposures"
user = "user_id"
variant = "variant"
time = "ts"
where = "experiment = '{name}'"

[[variant]]
name = "control"
share = 0.5
control = true

[[variant]]
name = "treatment"
share = 0.5

[[dimension]]
name = "platform"

[[dimension]]
name = "country"
{metrics}"#;

const FREE_SHIPPING_METRICS: &str = r#"
[[metric]]
name = "conversion"           # share of users who bought
type = "proportion"
table = "events"
where = "event = 'purchase'"

[[metric]]
name = "revenue_per_user"
type = "mean"
table = "events"
value = "amount"
where = "event = 'purchase'"
cuped = { pre = "14 days" }   # less noise: subtract what the time before explains

[[metric]]
name = "average_order_value"
type = "ratio"
table = "events"
numerator = { value = "amount", where = "event = 'purchase'" }
denominator = { value = "1", where = "event = 'purchase'" }

[[metric]]
name = "purchase"             # each step a share of all users, in this order
type = "funnel"
table = "events"
steps = [
  { name = "view", where = "event = 'view'" },
  { name = "cart", where = "event = 'add_to_cart'" },
  { name = "buy", where = "event = 'purchase'" },
]
guardrail = true

[[metric]]
name = "page_load_ms"
type = "ratio"
table = "events"
numerator = { value = "load_ms", where = "event = 'page_load'" }
denominator = { value = "1", where = "event = 'page_load'" }
direction = "decrease"
guardrail = true
margin = 0.02                 # at most 2 % slower

[[metric]]
name = "page_load_p90"        # of page loads; users load many pages, which its error knows
type = "quantile"
table = "events"
value = "load_ms"
where = "event = 'page_load'"
level = 0.9
per = "row"
direction = "decrease"
guardrail = true
"#;

const NEW_CHECKOUT_METRICS: &str = r#"
[[metric]]
name = "conversion"
type = "proportion"
table = "events"
where = "event = 'purchase'"
"#;

/// Metrics for the catalogue, in full.
const CATALOGUE: &str = r#"# Metrics that experiments use by name: uplake metric set metrics.toml
[[metric]]
name = "revenue_per_user"
type = "mean"
table = "events"
value = "amount"
where = "event = 'purchase'"
cuped = { pre = "14 days" }
owner = "growth"
tags = ["money"]

[[metric]]
name = "orders_per_user"
type = "count"
table = "events"
where = "event = 'purchase'"
"#;
