//! Users who are in another experiment, too: do its arms depend on ours, and do its effects?
//!
//! # Not here
//! Effects within each arm of the other, which are a breakdown.

use super::analysis::{Analysis, Slice};
use super::figures::figures;
use super::view::View;
use crate::definition::{Experiment, Metric, Unit};
use crate::effect::{ArmFigure, Estimate, Side, StatsError};
use crate::health::{SRM_ALARM_P, independence};
use crate::multiplicity::holm;
use crate::query::{NOT_THERE, Other, SEVERAL_ARMS};
use crate::report::{Interaction, Overlap};

impl<'a> Analysis<'a> {
    /// The users of this experiment by their arms in another.
    pub(super) fn overlap(&self, view: &View<'_>, other: &Other) -> Overlap {
        let empty = Slice::empty(self.experiment, self.query);
        let values = &self.by_value[other.dimension];
        let slice = |value: &str| values.get(value).unwrap_or(&empty);
        let arms: Vec<&Slice<'a>> = other.variants.iter().map(|arm| slice(&arm.name)).collect();
        let control = other.variants.iter().position(|arm| arm.control).unwrap_or(0);
        let users: Vec<Vec<u64>> = arms.iter().map(|slice| slice.users.clone()).collect();
        let (several, not_there) = (&slice(SEVERAL_ARMS).users, &slice(NOT_THERE).users);
        // Users of a cluster come together.
        let of_users = self.experiment.exposures.unit == Unit::User;
        let test = |table: &[Vec<u64>]| independence(table).filter(|_| of_users);
        let there = users.iter().chain([several]).fold(vec![0; self.total.users.len()], add);
        let arms_independent = test(&users);
        let presence_independent = test(&[there, not_there.clone()]);
        let tests = [arms_independent, presence_independent];
        let mut interactions = Vec::new();
        for (index, metric) in self.metrics.iter().enumerate() {
            for arm in (0..self.total.users.len()).filter(|arm| *arm != view.baseline) {
                for other_arm in (0..arms.len()).filter(|arm| *arm != control) {
                    let cells = [arms[control], arms[other_arm]];
                    let difference = self.interaction(view, (index, metric), arm, cells);
                    let (metric, p_adjusted) = (metric.name.clone(), None);
                    interactions.push(Interaction {
                        metric,
                        arm,
                        other_arm,
                        difference,
                        p_adjusted,
                    });
                }
            }
        }
        Overlap {
            experiment: other.name.clone(),
            dimension: self.query.dimensions[other.dimension].name.clone(),
            arms: other.variants.iter().map(|arm| arm.name.clone()).collect(),
            control,
            several: several.clone(),
            not_there: not_there.clone(),
            users,
            arms_independent,
            presence_independent,
            alarm: tests.iter().flatten().any(|test| test.p < SRM_ALARM_P),
            interactions,
        }
    }

    /// The effect of `arm` among users of the second slice less that among users of the first.
    fn interaction(
        &self,
        view: &View<'_>,
        (index, metric): (usize, &Metric),
        arm: usize,
        cells: [&Slice<'a>; 2],
    ) -> Result<Estimate, StatsError> {
        let mut figures_of = Vec::with_capacity(4);
        for slice in cells {
            let data = self.metric_data(slice, index, false);
            let pair = figures(view, metric, [data.arms[view.baseline], data.arms[arm]])?;
            pair.control.check(Side::Control)?;
            pair.treatment.check(Side::Treatment)?;
            figures_of.extend([pair.control, pair.treatment]);
        }
        difference_of_differences(&figures_of, view.experiment)
    }
}

fn add(mut sums: Vec<u64>, more: &Vec<u64>) -> Vec<u64> {
    sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
    sums
}

/// `(d - c) - (b - a)` of four independent figures, with Student's t.
///
/// # Source
/// Satterthwaite, "An approximate distribution of estimates of variance components", Biometrics Bulletin 2,
/// 1946; Welch 1947.
fn difference_of_differences(
    cells: &[ArmFigure],
    experiment: &Experiment,
) -> Result<Estimate, StatsError> {
    let signs = [1.0, -1.0, -1.0, 1.0];
    let value = cells.iter().zip(signs).map(|(cell, sign)| sign * cell.value).sum();
    let squared: f64 = cells.iter().map(ArmFigure::squared_error).sum();
    let own = |cell: &ArmFigure| cell.squared_error().powi(2) / (cell.users - 1) as f64;
    let df = squared * squared / cells.iter().map(own).sum::<f64>();
    Estimate::student(value, squared.sqrt(), df, experiment.alpha).checked()
}

/// Corrects all interactions of a report for their number.
pub(super) fn correct_interactions(overlaps: &mut [Overlap]) {
    let found = || overlaps.iter().flat_map(|overlap| &overlap.interactions);
    let p = found().filter_map(|found| Some(found.difference.ok()?.p)).collect::<Vec<_>>();
    let mut adjusted = holm(&p).into_iter();
    for found in overlaps.iter_mut().flat_map(|overlap| &mut overlap.interactions) {
        if found.difference.is_ok() {
            found.p_adjusted = adjusted.next();
        }
    }
}
