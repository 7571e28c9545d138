//! How long users are followed: whether those whose window is not over count, and a metric's days
//! since exposure.

use super::read::one_of;
use super::{DefinitionError, Experiment, Exposures, Inference, Metric, MetricKind, Unit};
use crate::toml_reader::Section;

pub(crate) const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// Each day is a question of its own to the tables.
const DAYS_MAX: f64 = 60.0;

/// What becomes of users whose window ends after the data do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InProgress {
    /// They count, with what they did so far.
    Include,
    /// They are left out of the metric, in all arms alike.
    Exclude,
}

impl Metric {
    /// How long after exposure a user counts, if not from the first day.
    pub(crate) fn complete_ms(&self) -> Option<i64> {
        let end_ms = self.window.and_then(|window| window.end_ms);
        end_ms.filter(|_| self.in_progress == InProgress::Exclude)
    }

    /// The days since exposure asked for that lie in the window as a whole.
    pub(crate) fn days_since_exposure(&self) -> impl Iterator<Item = u32> + use<> {
        let window = self.window;
        (0..self.days_since_exposure).filter(move |day| {
            let start_ms = i64::from(*day) * DAY_MS;
            let is_within = |end_ms: i64| start_ms + DAY_MS <= end_ms;
            window.is_none_or(|w| w.start_ms <= start_ms && w.end_ms.is_none_or(is_within))
        })
    }
}

/// Reads the keys of a metric, or else those that all metrics share, where they mean anything.
pub(super) fn read(
    top: &Section<'_>,
    section: &Section<'_>,
    exposures: &Exposures,
    metric: &mut Metric,
) -> Result<(), DefinitionError> {
    let words = [("include", InProgress::Include), ("exclude", InProgress::Exclude)];
    let ends = metric.window.is_some_and(|window| window.end_ms.is_some());
    let own = one_of(section, "in_progress", &words)?;
    if own.is_some() && !ends {
        let problem = "needs a window that ends".to_owned();
        return Err(section.invalid("in_progress", problem, "with window = \"7 days\""));
    }
    let shared = one_of(top, "in_progress", &words)?.filter(|_| ends);
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
