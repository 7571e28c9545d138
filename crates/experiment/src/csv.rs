//! The report as CSV: one line per comparison, of everyone and of each value of a dimension.
//!
//! # Invariants
//! - RFC 4180; numbers are written so that they read back unchanged; what is absent is empty.
//! - Text is written as it is, control characters too, unless a spreadsheet is to open it.

use std::borrow::Cow;
use std::fmt::Write;

use crate::effect::{Estimate, StatsError};
use crate::report::{Comparison, DimensionAlarm, MetricReport, Report};

const HEADER: &str = "experiment,dimension,value,metric,kind,guardrail,baseline,arm,baseline_units,\
arm_units,baseline_value,arm_value,difference,difference_error,difference_low,difference_high,\
difference_p,lift,lift_error,lift_low,lift_high,lift_p,scale,p_adjusted,call,trusted,detectable,\
variance_reduction,impact,impact_low,impact_high,margin,margin_p,equivalence,equivalence_p,chance_to_win,unavailable,method,\
diluted,diluted_low,diluted_high,diluted_lift,diluted_lift_low,diluted_lift_high";

impl Report {
    /// Did users fall into the arms as planned: all of them, and those of a dimension's value?
    fn is_trusted(&self, dimension: &str, value: &str) -> bool {
        let is_off = |alarm: &DimensionAlarm| alarm.is_of(dimension, value);
        !self.health.sample_ratio.alarm && !self.health.sample_ratio_alarms.iter().any(is_off)
    }

    /// The report as CSV with a header line. Lifts are fractions: 0.05 means +5 %.
    pub fn to_csv(&self) -> String {
        self.csv(|text| Cow::Borrowed(text))
    }

    /// The same with text that a spreadsheet would compute ([`escape_formula`]) as text.
    pub fn to_csv_without_formulas(&self) -> String {
        self.csv(escape_formula)
    }

    fn csv(&self, of_text: fn(&str) -> Cow<'_, str>) -> String {
        let mut out = String::from(HEADER);
        out.push('\n');
        let mut add = |dimension: &str, value: &str, metric: &MetricReport| {
            for comparison in &metric.comparisons {
                let fields = self.fields(dimension, value, metric, comparison, of_text);
                let line: Vec<String> = fields.iter().map(|field| quoted(field)).collect();
                let _ = writeln!(out, "{}", line.join(","));
            }
        };
        self.metrics.iter().for_each(|metric| add("", "", metric));
        for breakdown in &self.breakdowns {
            for row in &breakdown.rows {
                let of_row = row.metrics.iter();
                of_row.for_each(|metric| add(&breakdown.dimension, &row.value, metric));
            }
        }
        out
    }

    fn fields(
        &self,
        dimension: &str,
        value: &str,
        metric: &MetricReport,
        comparison: &Comparison,
        of_text: fn(&str) -> Cow<'_, str>,
    ) -> Vec<String> {
        let text = |text: &str| of_text(text).into_owned();
        let control = self.control();
        let arm = comparison.arm;
        let number = |number: Option<f64>| number.map_or_else(String::new, |n| n.to_string());
        let units = |arm: usize| metric.moments.get(arm).map(|m| m.units).unwrap_or_default();
        let mut fields = vec![
            text(&self.experiment),
            text(dimension),
            text(value),
            text(&metric.name),
            metric.kind.to_owned(),
            metric.guardrail.to_string(),
            text(&self.arms[control].name),
            text(&self.arms[arm].name),
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
            text(&comparison.method),
        ]);
        let diluted = comparison.diluted.as_ref();
        for estimate in [diluted.map(|both| both.absolute), diluted.map(|both| both.relative)] {
            let estimate = estimate.and_then(Result::ok);
            fields.extend(match estimate {
                Some(e) => [e.value, e.low, e.high].map(|number| number.to_string()),
                None => Default::default(),
            });
        }
        fields
    }
}

/// Text that a spreadsheet takes for a formula, with an apostrophe before it, which says that it is text.
///
/// # Source
/// OWASP, "CSV Injection": `=`, `+`, `-`, `@`, a tab, a line's end, and the wide forms of the first four.
pub fn escape_formula(text: &str) -> Cow<'_, str> {
    let begins = ['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠'];
    if text.starts_with(begins) { format!("'{text}").into() } else { text.into() }
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
