//! Comparisons that are corrected together for their number.

use super::judge::{leave_out_zero, set_call};
use crate::definition::{Correction, Direction, Experiment, Inference};
use crate::multiplicity::{benjamini_hochberg, holm};
use crate::report::{Comparison, MetricReport};

/// The correction in force: beliefs need none.
pub(super) fn correction(experiment: &Experiment) -> Correction {
    match experiment.inference {
        Inference::Bayesian { .. } => Correction::None,
        _ => experiment.correction,
    }
}

/// The level of the intervals of a family of so many comparisons. By Holm's method it is Bonferroni's: they hold
/// together with 1 - alpha. By Benjamini and Hochberg's it is known once they are judged.
pub(super) fn family_level(experiment: &Experiment, comparisons: usize) -> f64 {
    match correction(experiment) {
        Correction::Holm => experiment.alpha / comparisons.max(1) as f64,
        _ => experiment.alpha,
    }
}

/// Corrects the p-values of one family and calls its comparisons anew. Gives the level that its intervals are to
/// have instead of alpha, where that depends on what is called.
///
/// # Source
/// Intervals after Holm's method: Bonferroni's, without what the method rejects. After Benjamini and Hochberg's:
/// Benjamini & Yekutieli, "False discovery rate-adjusted multiple confidence intervals for selected parameters",
/// JASA 100, 2005.
pub(super) fn correct_family<'c>(
    experiment: &Experiment,
    family: impl Iterator<Item = (Direction, &'c mut Comparison)>,
) -> Option<f64> {
    let mut family: Vec<(Direction, &mut Comparison)> =
        family.filter(|(_, comparison)| comparison.estimate().is_ok()).collect();
    let p: Vec<f64> =
        family.iter().filter_map(|(_, c)| c.estimate().ok()).map(|estimate| estimate.p).collect();
    let (alpha, count) = (experiment.alpha, p.len());
    let correction = correction(experiment);
    let adjusted = match correction {
        Correction::Holm => holm(&p),
        Correction::BenjaminiHochberg => benjamini_hochberg(&p),
        Correction::None => p,
    };
    let rejected = adjusted.iter().filter(|p| **p < alpha).count();
    for ((direction, comparison), adjusted) in family.iter_mut().zip(adjusted) {
        set_call(comparison, Some(adjusted), *direction, alpha);
        if correction == Correction::Holm && adjusted < alpha {
            leave_out_zero(comparison);
        }
    }
    let is_level_new = correction == Correction::BenjaminiHochberg && rejected.max(1) < count;
    is_level_new.then(|| alpha * rejected.max(1) as f64 / count as f64)
}

pub(super) fn correct_goals(experiment: &Experiment, metrics: &mut [MetricReport]) -> Option<f64> {
    let goals = metrics.iter_mut().filter(|metric| !metric.guardrail);
    correct_family(experiment, goals.flat_map(directed))
}

pub(super) fn directed(
    metric: &mut MetricReport,
) -> impl Iterator<Item = (Direction, &mut Comparison)> {
    let direction = metric.direction;
    metric.comparisons.iter_mut().map(move |comparison| (direction, comparison))
}
