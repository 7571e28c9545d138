//! The report as CSV: one line per comparison, of everyone and of each value of a dimension.
//!
//! # Invariants
//! - RFC 4180; numbers are written so that they read back unchanged; what is absent is empty.

use std::fmt::Write;

use crate::effect::{Estimate, StatsError};
use crate::report::{Comparison, DimensionAlarm, MetricReport, Report};

const HEADER: &str = "experiment,dimension,value,metric,kind,guardrail,baseline,arm,baseline_units,\
arm_units,baseline_value,arm_value,difference,difference_error,difference_low,difference_high,\
difference_p,lift,lift_error,lift_low,lift_high,lift_p,scale,p_adjusted,call,trusted,detectable,\
variance_reduction,impact,impact_low,impact_high,margin,margin_p,equivalence,equivalence_p,chance_to_win,unavailable,method";

impl Report {
    /// Did users fall into the arms as planned: all of them, and those of a dimension's value?
    fn is_trusted(&self, dimension: &str, value: &str) -> bool {
        let is_off = |alarm: &DimensionAlarm| alarm.is_of(dimension, value);
        !self.health.sample_ratio.alarm && !self.health.sample_ratio_alarms.iter().any(is_off)
    }

    /// The report as CSV with a header line. Lifts are fractions: 0.05 means +5 %.
    pub fn to_csv(&self) -> String {
        let mut out = String::from(HEADER);
        out.push('\n');
        for metric in &self.metrics {
            self.metric_csv(&mut out, "", "", metric);
        }
        for breakdown in &self.breakdowns {
            for row in &breakdown.rows {
                for metric in &row.metrics {
                    self.metric_csv(&mut out, &breakdown.dimension, &row.value, metric);
                }
            }
        }
        out
    }

    fn metric_csv(&self, out: &mut String, dimension: &str, value: &str, metric: &MetricReport) {
        for comparison in &metric.comparisons {
            let fields = self.fields(dimension, value, metric, comparison);
            let line: Vec<String> = fields.iter().map(|field| quoted(field)).collect();
            let _ = writeln!(out, "{}", line.join(","));
        }
    }

    fn fields(
        &self,
        dimension: &str,
        value: &str,
        metric: &MetricReport,
        comparison: &Comparison,
    ) -> Vec<String> {
        let control = self.control();
        let arm = comparison.arm;
        let number = |number: Option<f64>| number.map_or_else(String::new, |n| n.to_string());
        let units = |arm: usize| metric.moments.get(arm).map(|m| m.units).unwrap_or_default();
        let mut fields = vec![
            self.experiment.clone(),
            dimension.to_owned(),
            value.to_owned(),
            metric.name.clone(),
            metric.kind.to_owned(),
            metric.guardrail.to_string(),
            self.arms[control].name.clone(),
            self.arms[arm].name.clone(),
            units(control).to_string(),
            units(arm).to_string(),
            number(metric.values[control].value),
            number(metric.values[arm].value),
        ];
        for estimate in [comparison.absolute, comparison.relative] {
            fields.extend(estimate_fields(estimate));
        }
        let estimate = comparison.estimate();
        fields.extend([
            word(&comparison.scale),
            number(comparison.p_adjusted),
            word(&comparison.call),
            self.is_trusted(dimension, value).to_string(),
            number(comparison.detectable),
            number(comparison.variance_reduction),
            number(comparison.impact.map(|impact| impact.value)),
            number(comparison.impact.map(|impact| impact.low)),
            number(comparison.impact.map(|impact| impact.high)),
            number(comparison.non_inferiority.map(|check| check.margin)),
            number(comparison.non_inferiority.map(|check| check.p)),
            number(comparison.equivalence.map(|check| check.margin)),
            number(comparison.equivalence.map(|check| check.p)),
            number(comparison.belief.map(|belief| belief.chance_to_win)),
            estimate.err().map_or_else(String::new, |error| error.to_string()),
            comparison.method.clone(),
        ]);
        fields
    }
}

fn estimate_fields(estimate: Result<Estimate, StatsError>) -> Vec<String> {
    match estimate {
        Ok(e) => [e.value, e.error, e.low, e.high, e.p].map(|number| number.to_string()).to_vec(),
        Err(_) => vec![String::new(); 5],
    }
}

/// An enum's name as in the JSON.
fn word<T: serde::Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}
