//! The effect of a triggered analysis on everybody who was exposed, activated or not.
//!
//! Who is activated is no matter of the arm, and before that, or without, the arms do not differ. So the
//! difference per exposed user is the difference per activated user times the share activated. The
//! share is of the users seen and has an error of its own, and so has the value that a lift divides by:
//! both are lifts of Fieller's kind, the difference over `1 / share` and over `value / share`.

use super::figures::{Exposed, Figures, MetricData, covariates};
use super::fixed_lift::FixedLift;
use super::view::{Looks, View};
use crate::cuped::{adjust_mean, adjust_mean_by_many};
use crate::definition::{Experiment, Metric, Shape};
use crate::effect::{ArmFigure, Estimate, Pivot, Side, StatsError};
use crate::format;
use crate::query::has_overall;
use crate::report::{Comparison, Diluted, MetricReport, Scale};

/// What a difference is divided by: a value, its squared error, and its covariance with the figure of the
/// control.
struct Base {
    value: f64,
    squared_error: f64,
    shared: f64,
}

impl Base {
    fn pivot(&self, figures: &Figures) -> Result<Pivot, StatsError> {
        // Rows before activation may hold what the figures do not.
        if ![self.value, self.squared_error, self.shared].iter().all(|number| number.is_finite()) {
            return Err(StatsError::NotFinite(Side::Control));
        }
        let users = figures.control.users as f64;
        let control = ArmFigure {
            raw_value: self.value,
            raw_variance: users * self.squared_error,
            raw_covariance: users * self.shared,
            ..figures.control
        };
        Pivot::of(&control, &figures.treatment)
    }
}

/// How many are activated of how many.
struct Share {
    value: f64,
    exposed: f64,
}

impl Share {
    /// `None` without anybody.
    fn of(data: &MetricData<'_>) -> Option<Self> {
        let Exposed { activated, idle_users, .. } = *data.exposed.as_ref()?;
        let exposed = (activated + idle_users) as f64;
        (activated > 0).then(|| Self { value: activated as f64 / exposed, exposed })
    }

    fn squared_error(&self) -> f64 {
        self.value * (1.0 - self.value) / self.exposed
    }
}

/// Of the comparison of `arm` with the baseline. `fixed`: the difference of one look; `absolute`: after the
/// looks.
pub(super) fn dilute(
    view: &View<'_>,
    metric: &Metric,
    data: &MetricData<'_>,
    (arm, figures): (usize, &Figures),
    [fixed, absolute]: [Estimate; 2],
    looks: Looks,
) -> Option<Diluted> {
    if matches!(metric.kind.shape(), Shape::Ratio | Shape::Quantile) {
        return None;
    }
    let share = Share::of(data)?;
    let squared_error = share.squared_error() / share.value.powi(4);
    let everybody = Base { value: 1.0 / share.value, squared_error, shared: 0.0 };
    let looked_at = |pivot: Pivot| FixedLift::Pivot(pivot).looked_at(view, looks, absolute);
    // Of strata the difference is another than that of the arms.
    let pivot = everybody.pivot(figures);
    let pivot = pivot.map(|pivot| pivot.with_difference(fixed.value, fixed.error.powi(2)));
    let relative = match has_overall(view.experiment, metric) {
        true => overall(view, metric, data, arm, &share).pivot(figures).and_then(looked_at),
        false => Err(StatsError::NoOverallLift),
    };
    Some(Diluted { absolute: pivot.and_then(looked_at), relative })
}

/// What an exposed user of the baseline has from first exposure on, over the share activated.
fn overall(
    view: &View<'_>,
    metric: &Metric,
    data: &MetricData<'_>,
    arm: usize,
    share: &Share,
) -> Base {
    let activated = data.arms[view.baseline].moments;
    let from_exposure = activated.columns() - 1;
    let mut everybody = activated.clone();
    let exposed = data.exposed.iter();
    exposed.for_each(|exposed| everybody.merge(exposed.idle[view.baseline].moments));
    let exposed = everybody.count() as f64;
    let value = everybody.mean(from_exposure);
    let own = everybody.variance(from_exposure) / exposed;
    // Of the share of all arms and the baseline's value: activated users may have more than others.
    let above = activated.mean(from_exposure) - value;
    let with_share = activated.count() as f64 / exposed * above / share.exposed;
    let ratio = value / share.value;
    let squared = own + ratio * ratio * share.squared_error() - 2.0 * ratio * with_share;
    // Users of the baseline who are activated are in its figure and in the value.
    let per_user = covariance(view, metric, data, arm, from_exposure);
    Base {
        value: ratio,
        squared_error: squared / (share.value * share.value),
        shared: per_user / (exposed * share.value),
    }
}

/// Of the baseline's number per activated user, after CUPED, with the number from first exposure on.
fn covariance(
    view: &View<'_>,
    metric: &Metric,
    data: &MetricData<'_>,
    arm: usize,
    other: usize,
) -> f64 {
    let (control, treatment) = (data.arms[view.baseline].moments, data.arms[arm].moments);
    let thetas = match covariates(view, metric) {
        None => Vec::new(),
        Some(1) => vec![adjust_mean(control, treatment, 0, 1).theta],
        Some(count) => {
            let columns: Vec<usize> = (1..=count).collect();
            adjust_mean_by_many(control, treatment, 0, &columns).1
        }
    };
    let explained =
        thetas.iter().zip(1..).map(|(theta, column)| theta * control.covariance(column, other));
    control.covariance(0, other) - explained.sum::<f64>()
}

/// Says the effects on everybody in words.
pub(super) fn add_notes(experiment: &Experiment, metrics: &mut [MetricReport]) {
    for metric in metrics {
        let words = |estimate: Estimate, scale: Scale| {
            let on = |value| format::effect(value, scale, metric.is_share);
            format!("{} [{}, {}]", on(estimate.value), on(estimate.low), on(estimate.high))
        };
        let note = |comparison: &Comparison| {
            let diluted = comparison.diluted.as_ref()?;
            let difference = words(diluted.absolute.ok()?, Scale::Absolute);
            let lift = diluted.relative.ok().map(|lift| words(lift, Scale::Relative));
            let lift = lift.map(|lift| format!(", a lift of {lift}")).unwrap_or_default();
            let name = &experiment.variants[comparison.arm].name;
            Some(format!("{name}: over all exposed users a difference of {difference}{lift}."))
        };
        let notes: Vec<String> = metric.comparisons.iter().filter_map(note).collect();
        metric.notes.extend(notes);
    }
}
