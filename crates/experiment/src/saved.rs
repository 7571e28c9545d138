//! Reports that are saved, and read again: JSON with the time, and the lifts as the data alone have them.
//!
//! # Invariants
//! - What is saved is the report as [`Report::to_json`] has it, with keys before it.
//!
//! # Not here
//! Where results lie, and which of them is the last: the engine knows.

use serde::{Deserialize, Serialize};

use crate::past_lifts::PastLift;
use crate::report::{Comparison, Report};

/// What a report decides where arms are not as planned.
const UNTRUSTED: &str = "do_not_trust";
const ALWAYS_SERIALISES: &str = "a report holds text and numbers, which are always JSON";

#[derive(Serialize)]
struct Written<'r> {
    saved_at: &'r str,
    lifts: Vec<SavedLift>,
    #[serde(flatten)]
    report: &'r Report,
}

/// A saved report, as far as anybody reads it again.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct SavedReport {
    /// RFC 3339.
    pub saved_at: String,
    pub experiment: String,
    pub verdict: SavedVerdict,
    pub lifts: Vec<SavedLift>,
}

/// What it decided.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SavedVerdict {
    /// As the report's JSON has it: `ship`, `roll_back` …
    pub decision: String,
    pub sentence: String,
}

/// A lift before looks and beliefs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedLift {
    pub metric: String,
    /// The metric's name in the catalogue, if it is from there.
    pub catalogue: Option<String>,
    pub arm: String,
    pub value: f64,
    /// Standard error.
    pub error: f64,
}

/// A text that is no saved report.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct SavedError(#[from] serde_json::Error);

impl SavedReport {
    /// What is saved of a report, one line. `saved_at`: RFC 3339.
    pub fn text_of(report: &Report, saved_at: &str) -> String {
        let written = Written { saved_at, lifts: lifts(report), report };
        serde_json::to_string(&written).expect(ALWAYS_SERIALISES) + "\n"
    }

    /// Reads what was saved.
    ///
    /// # Errors
    /// [`SavedError`] says what is wrong and where.
    pub fn parse(text: &str) -> Result<Self, SavedError> {
        Ok(serde_json::from_str(text)?)
    }

    fn is_trusted(&self) -> bool {
        self.verdict.decision != UNTRUSTED
    }
}

fn lifts(report: &Report) -> Vec<SavedLift> {
    let of_metrics = report.metrics.iter().flat_map(|metric| {
        let lift = |c: &Comparison| {
            let observed = c.observed?;
            Some(SavedLift {
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

/// What saved reports say of one metric.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SavedLifts {
    /// Each arm's of each experiment that is to be trusted.
    pub lifts: Vec<PastLift>,
    /// Experiments that they are of.
    pub experiments: usize,
    /// Experiments that have lifts of it, but are not to be trusted.
    pub untrusted: usize,
}

impl SavedLifts {
    /// The lifts of the metric of that name in reports, or else in the catalogue.
    pub fn of<'s>(saved: impl IntoIterator<Item = &'s SavedReport>, metric: &str) -> Self {
        let mut all = Self::default();
        for saved in saved {
            let found = lifts_of(&saved.lifts, metric);
            if found.is_empty() {
                continue;
            }
            if !saved.is_trusted() {
                all.untrusted += 1;
                continue;
            }
            all.experiments += 1;
            all.lifts.extend(found);
        }
        all
    }
}

/// Each arm's lift of the metric of that name, or else of the first that is that of the catalogue.
fn lifts_of(lifts: &[SavedLift], metric: &str) -> Vec<PastLift> {
    let named = |lift: &&SavedLift| lift.metric == metric;
    let mut found: Vec<&SavedLift> = lifts.iter().filter(named).collect();
    if found.is_empty() {
        let is_it = |lift: &&SavedLift| lift.catalogue.as_deref() == Some(metric);
        let first = lifts.iter().find(is_it).map(|lift| lift.metric.as_str());
        found = lifts.iter().filter(|lift| Some(lift.metric.as_str()) == first).collect();
    }
    found.into_iter().map(|lift| PastLift { value: lift.value, error: lift.error }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lift(metric: &str, catalogue: Option<&str>, arm: &str, value: f64) -> SavedLift {
        SavedLift {
            metric: metric.into(),
            catalogue: catalogue.map(str::to_owned),
            arm: arm.into(),
            value,
            error: 0.1,
        }
    }

    #[test]
    fn a_metric_counts_once_in_each_arm() {
        let lifts = [
            lift("first week", Some("revenue"), "b", 1.0),
            lift("first week", Some("revenue"), "c", 2.0),
            lift("second week", Some("revenue"), "b", 3.0),
            lift("visits", None, "b", 4.0),
        ];
        let values = |metric| lifts_of(&lifts, metric).iter().map(|l| l.value).collect::<Vec<_>>();
        assert_eq!(values("revenue"), [1.0, 2.0]);
        assert_eq!(values("second week"), [3.0]);
        assert_eq!(values("visits"), [4.0]);
        assert!(values("x").is_empty());
    }

    #[test]
    fn lifts_of_experiments_that_are_not_to_be_trusted_are_counted_only() {
        let saved = |decision: &str, value| SavedReport {
            saved_at: "2026-11-01T00:00:00Z".into(),
            experiment: "e".into(),
            verdict: SavedVerdict { decision: decision.into(), sentence: "s".into() },
            lifts: vec![lift("revenue", None, "b", value)],
        };
        let all = [saved("ship", 1.0), saved("do_not_trust", 2.0), saved("roll_back", 3.0)];
        let found = SavedLifts::of(&all, "revenue");
        let values: Vec<f64> = found.lifts.iter().map(|lift| lift.value).collect();
        assert_eq!((values, found.experiments, found.untrusted), (vec![1.0, 3.0], 2, 1));
        assert_eq!(SavedLifts::of(&all, "visits"), SavedLifts::default());
    }

    #[test]
    fn what_is_no_saved_report_is_refused() {
        for text in ["", "{}", "[]", r#"{"saved_at": "x", "experiment": "e", "lifts": []}"#] {
            assert!(SavedReport::parse(text).is_err(), "{text}");
        }
    }
}
