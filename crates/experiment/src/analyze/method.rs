//! How one comparison was made, in a sentence.

use super::figures::{covariates, shape};
use super::view::View;
use crate::definition::{
    Inference, Lift, Metric, MetricKind, ProportionTest, Shape, Transform, Unit,
};
use crate::format;
use crate::report::Scale;

/// "Mean per user, compared by Welch's t-test; ...".
pub(super) fn of(view: &View<'_>, metric: &Metric, stratified: bool, scale: Scale) -> String {
    let experiment = view.experiment;
    let unit = match experiment.exposures.unit {
        Unit::User | Unit::Summary { .. } => "user",
        Unit::Cluster { .. } => "cluster",
        Unit::Switchback { .. } => "region-time",
    };
    let figure = match (&metric.kind, shape(experiment, metric)) {
        (MetricKind::Quantile { level, per_row, .. }, _) => {
            let of = if *per_row { "rows, with users as clusters" } else { "users' sums" };
            format!("Quantile {level} of {of}, its error from the values around it")
        }
        (_, Shape::Proportion) => "Share of users".into(),
        (MetricKind::FirstOrLast { zeros: false, .. }, _) => {
            format!("Mean over {unit}s with a value, as a ratio with the delta method over {unit}s")
        }
        (_, Shape::Ratio) if metric.kind.shape() == Shape::Ratio => {
            format!("Ratio of sums with the delta method over {unit}s")
        }
        (_, Shape::Ratio) => "Mean per user with the delta method over clusters".into(),
        _ => format!("Mean per {unit}"),
    };
    let figure = match metric.transform {
        Some(Transform::Log1p) => figure.replacen("Mean", "Mean of log(1 + x)", 1),
        None => figure,
    };
    let mut parts = vec![figure];
    match covariates(view, metric) {
        Some(1) => parts.push("adjusted by the same before exposure (CUPED)".into()),
        Some(count) => parts.push(format!("adjusted by {count} covariates (CUPED)")),
        None => {}
    }
    if stratified && let Some(name) = &experiment.stratify {
        parts.push(format!("compared within values of {name} and averaged"));
    }
    // Other inferences make interval and p-value anew, from the estimate and its error.
    let once = view.inference == Inference::Fixed;
    let test = match metric.test {
        _ if stratified => "Welch's degrees of freedom",
        ProportionTest::Pooled if metric.kind.shape() == Shape::Proportion => "pooled z-test",
        ProportionTest::Exact if once && metric.kind.shape() == Shape::Proportion => {
            "Fisher's exact test with Newcombe's interval for the difference"
        }
        _ if once => "Welch's t-test",
        _ => "each arm's own variance",
    };
    parts.push(test.into());
    if scale == Scale::Relative {
        parts.push(match experiment.lift {
            Lift::Delta => "lift by the delta method".into(),
            Lift::Fieller | Lift::None => "lift by Fieller's interval".into(),
        });
    }
    parts.push(match view.inference {
        Inference::Fixed => "one look".into(),
        Inference::Anytime { planned_users } => format!(
            "asymptotic confidence sequence, tightest at {} users",
            format::count(planned_users)
        ),
        Inference::GroupSequential { planned_users, looks } => format!(
            "group sequential, {looks} looks up to {} users, error spent as t squared",
            format::count(planned_users)
        ),
        Inference::Bayesian { .. } => "normal posterior".into(),
    });
    let mut sentence = parts.join("; ");
    sentence.push('.');
    sentence
}
