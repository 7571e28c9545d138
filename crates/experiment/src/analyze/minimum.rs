//! The smallest lift that matters, and intervals that have none as large.
//!
//! # Not here
//! No test of equivalence: an interval of `1 - alpha` within the limits is one at `alpha / 2` a side.

use crate::definition::{Experiment, Metric};
use crate::format;
use crate::report::{Call, Comparison, MetricReport};

/// Says of which arms every lift in the interval is smaller than what matters.
pub(super) fn note(experiment: &Experiment, metric: &Metric, report: &mut MetricReport) {
    let Some(minimum) = metric.minimum_effect else { return };
    report.minimum_effect = Some(minimum);
    let is_smaller = |comparison: &&Comparison| {
        comparison.call != Call::Untrusted
            && !comparison.unplanned_look
            && comparison.relative.is_ok_and(|lift| lift.low > -minimum && lift.high < minimum)
    };
    let words = |comparison: &Comparison| {
        let arm = &experiment.variants[comparison.arm].name;
        format!(
            "{arm}: smaller than {} %, which is the least that matters ({} interval).",
            format::plain_percent(minimum),
            format::coverage(experiment.alpha)
        )
    };
    let notes: Vec<String> = report.comparisons.iter().filter(is_smaller).map(words).collect();
    report.notes.extend(notes);
}
