//! Results of experiments that are saved in the lake: `_uplake/results/free_shipping/00000003.json`, which is
//! the report as JSON with the time and the lifts as the data alone have them.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use uplake_experiment::Report;
use uplake_table::{Lake, Versioned};

/// Another writer may save the same experiment meanwhile, so often at most.
const TRIES: u32 = 100;

#[derive(Serialize)]
struct Written<'r> {
    /// RFC 3339.
    saved_at: &'r str,
    lifts: Vec<Lift>,
    #[serde(flatten)]
    report: &'r Report,
}

/// A saved result, as far as anybody here reads it.
#[derive(Debug, Deserialize)]
pub struct Saved {
    pub saved_at: String,
    pub experiment: String,
    pub verdict: Verdict,
    pub lifts: Vec<Lift>,
}

#[derive(Debug, Deserialize)]
pub struct Verdict {
    pub decision: String,
    pub sentence: String,
}

/// A lift before looks and beliefs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Lift {
    pub metric: String,
    /// The metric's name in the catalogue, if it is from there.
    pub catalogue: Option<String>,
    pub arm: String,
    pub value: f64,
    pub error: f64,
}

fn lifts(report: &Report) -> Vec<Lift> {
    let of_metrics = report.metrics.iter().flat_map(|metric| {
        let lift = |c: &uplake_experiment::report::Comparison| {
            let observed = c.observed?;
            Some(Lift {
                metric: metric.name.clone(),
                catalogue: metric.about.catalogue.as_ref().map(|origin| origin.name.clone()),
                arm: report.arms[c.arm].name.clone(),
                value: observed.value,
                error: observed.error,
            })
        };
        metric.comparisons.iter().filter_map(lift).collect::<Vec<_>>()
    });
    of_metrics.collect()
}

/// Saves a report beside the earlier ones of its experiment; which of them it is.
pub async fn save(lake: &Lake, report: &Report, now_millis: i64) -> Result<u32> {
    let now = chrono::DateTime::from_timestamp_millis(now_millis).unwrap_or_default();
    let saved_at = now.format("%Y-%m-%dT%H:%M:%SZ").to_string();
    let written = Written { saved_at: &saved_at, lifts: lifts(report), report };
    let text = serde_json::to_string(&written)? + "\n";
    let name = &report.experiment;
    for _ in 0..TRIES {
        let newest = newest(lake, name).await?;
        if lake.add_version(Versioned::Result, name, newest + 1, &text).await? {
            return Ok(newest + 1);
        }
    }
    bail!("others save results of `{name}` without pause; run it again")
}

async fn newest(lake: &Lake, name: &str) -> Result<u32> {
    let all = lake.versions(Versioned::Result).await?;
    Ok(all.get(name).and_then(|versions| versions.last()).copied().unwrap_or(0))
}

/// Reads a saved result.
pub async fn read(lake: &Lake, name: &str, version: u32) -> Result<Saved> {
    let found = lake.version(Versioned::Result, name, version).await?;
    let (text, path) = found.with_context(|| format!("result {version} of {name} is gone"))?;
    serde_json::from_str(&text).with_context(|| {
        format!("{path} is no saved result; restore it from a copy of the lake, or remove it")
    })
}
