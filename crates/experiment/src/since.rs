//! Effects by days since exposure as words, for the terminal.
//!
//! # Not here
//! No numbers are computed (`analyze`); intervals are in the JSON and on the page.

use crate::format;
use crate::report::{MetricReport, Report, Scale, SinceExposure};

pub(crate) const TITLE: &str = "By days since exposure";
pub(crate) const NOTE: &str =
    "Each day by itself, of users for whom it is over; without CUPED, strata and corrections.";

/// From the least to the most.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A line per comparison: the first and the last day with an estimate, and the path between them.
pub(crate) fn lines(report: &Report) -> Vec<String> {
    let of_metric = |metric: &MetricReport| {
        let line = |since: &SinceExposure| line(report, metric, since);
        metric.since_exposure.iter().filter_map(line).collect::<Vec<_>>()
    };
    report.metrics.iter().flat_map(of_metric).collect()
}

/// The scale of a metric's comparison with an arm.
pub(crate) fn scale(metric: &MetricReport, arm: usize) -> Scale {
    let comparison = metric.comparisons.iter().find(|comparison| comparison.arm == arm);
    comparison.map_or(Scale::Absolute, |comparison| comparison.scale)
}

fn line(report: &Report, metric: &MetricReport, since: &SinceExposure) -> Option<String> {
    let known = |day: &crate::report::DaySinceExposure| Some((day.day, day.effect?));
    let (first, last) = {
        let mut days = since.points.iter().filter_map(known);
        let first = days.next()?;
        (first, days.next_back().unwrap_or(first))
    };
    let effects: Vec<Option<f64>> = since.points.iter().map(|point| point.effect).collect();
    let scale = scale(metric, since.arm);
    let on = |effect| format::effect(effect, scale, metric.is_share);
    Some(format!(
        "{}, {}: day {} {} {} day {} {}",
        metric.name,
        report.arms[since.arm].name,
        first.0,
        on(first.1),
        path(&effects),
        last.0,
        on(last.1)
    ))
}

/// A bar per day between the least and the most, 0 among them.
fn path(effects: &[Option<f64>]) -> String {
    let known = effects.iter().flatten();
    let (least, most) = known.fold((0.0_f64, 0.0_f64), |(a, b), x| (a.min(*x), b.max(*x)));
    let range = if most > least { most - least } else { 1.0 };
    let bar = |effect: &Option<f64>| match effect {
        Some(effect) => {
            let place = (effect - least) / range * (BARS.len() - 1) as f64;
            BARS[place.round() as usize]
        }
        None => '·',
    };
    effects.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::path;

    #[test]
    fn a_path_goes_from_the_least_to_the_most_and_has_gaps() {
        assert_eq!(path(&[Some(0.7), Some(0.35), None, Some(0.0)]), "█▅·▁");
        assert_eq!(path(&[Some(-2.0), Some(0.0)]), "▁█");
        assert_eq!(path(&[Some(0.0), Some(0.0)]), "▁▁");
    }
}
