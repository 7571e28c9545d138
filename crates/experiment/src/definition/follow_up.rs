//! How long users are followed: whether those whose window is not over count, and a metric's days
//! since exposure.

use super::error::DefinitionError;
use super::experiment::{Experiment, Inference};
use super::exposures::{Exposures, Unit};
use super::metric::{InProgress, Metric, MetricKind};
use crate::toml_reader::Section;

/// Each day is a question of its own to the tables.
const DAYS_MAX: f64 = 60.0;

/// Reads the keys of a metric, or else those that all metrics share, where they mean anything.
pub(super) fn read(
    top: &Section<'_>,
    section: &Section<'_>,
    exposures: &Exposures,
    metric: &mut Metric,
) -> Result<(), DefinitionError> {
    let words = [("include", InProgress::Include), ("exclude", InProgress::Exclude)];
    let ends = metric.window.is_some_and(|window| window.end_ms.is_some());
    let own = section.one_of("in_progress", &words)?;
    if own.is_some() && !ends {
        let problem = "needs a window that ends".to_owned();
        return Err(section.invalid("in_progress", problem, "with window = \"7 days\""));
    }
    let shared = top.one_of("in_progress", &words)?.filter(|_| ends);
    metric.in_progress = own.or(shared).unwrap_or(InProgress::Include);
    let timed = exposures.time.is_some()
        && metric.time.is_some()
        && matches!(exposures.unit, Unit::User | Unit::Cluster { .. });
    let own = read_days(section)?;
    let is_plain = !matches!(
        metric.kind,
        MetricKind::Quantile { .. } | MetricKind::Step { .. } | MetricKind::Distinct { .. }
    );
    if own.is_some() && !(timed && is_plain) {
        let problem = "has no meaning here".to_owned();
        let allowed = "sums, counts, shares and ratios of users with exposure times";
        return Err(section.invalid("days_since_exposure", problem, allowed));
    }
    let shared = read_days(top)?.filter(|_| timed && is_plain);
    metric.days_since_exposure = own.or(shared).unwrap_or(0);
    Ok(())
}

fn read_days(section: &Section<'_>) -> Result<Option<u32>, DefinitionError> {
    match section.number("days_since_exposure")? {
        Some(days) if !(1.0..=DAYS_MAX).contains(&days) || days.fract() != 0.0 => {
            let allowed = "a whole number from 1 to 60";
            Err(section.invalid("days_since_exposure", format!("is {days}"), allowed))
        }
        days => Ok(days.map(|days| days as u32)),
    }
}

/// Planned looks are at everyone's users.
pub(super) fn check(top: &Section<'_>, experiment: &Experiment) -> Result<(), DefinitionError> {
    let leaves_out = |metric: &Metric| metric.in_progress == InProgress::Exclude;
    let planned = matches!(experiment.inference, Inference::GroupSequential { .. });
    if planned && experiment.metrics.iter().any(leaves_out) {
        let problem = "plans looks at all users, and a metric leaves out those in progress";
        let allowed = "anytime, or no in_progress = \"exclude\"";
        return Err(top.invalid("inference", problem.into(), allowed));
    }
    Ok(())
}
