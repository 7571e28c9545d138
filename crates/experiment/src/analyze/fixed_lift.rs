//! Lifts of a fixed look, and after the looks.

use super::figures::Figures;
use super::view::{Looks, View};
use crate::definition::Lift;
use crate::distribution::normal_isf;
use crate::effect::{Estimate, Pivot, StatsError, relative};
use crate::stratify::Stratified;

/// A lift of a fixed look.
#[derive(Debug, Clone, Copy)]
pub(super) enum FixedLift {
    Delta(Estimate),
    Pivot(Pivot),
}

impl FixedLift {
    /// `tested`: the difference, if its p-value is that of a test of its own.
    pub(super) fn of(
        view: &View<'_>,
        figures: &Figures,
        tested: Option<Estimate>,
    ) -> Result<Self, StatsError> {
        let (control, treatment) = (&figures.control, &figures.treatment);
        if view.experiment.lift != Lift::Delta {
            return Ok(Self::Pivot(Pivot::of(control, treatment)?));
        }
        let lift = relative(control, treatment, view.level)?;
        Ok(Self::Delta(Estimate { p: tested.map_or(lift.p, |tested| tested.p), ..lift }))
    }

    pub(super) fn pivot(self) -> Option<Pivot> {
        match self {
            Self::Delta(_) => None,
            Self::Pivot(pivot) => Some(pivot),
        }
    }

    pub(super) fn of_strata(view: &View<'_>, strata: &Stratified) -> Result<Self, StatsError> {
        match view.experiment.lift {
            Lift::Delta => strata.relative.map(Self::Delta),
            Lift::Fieller | Lift::None => strata.pivot.map(Self::Pivot),
        }
    }

    /// The lift after the looks; `absolute` is the difference after them.
    pub(super) fn looked_at(
        self,
        view: &View<'_>,
        looks: Looks,
        absolute: Estimate,
    ) -> Result<Estimate, StatsError> {
        let alpha = view.level;
        let pivot = match self {
            Self::Delta(estimate) => return looks.apply(view, estimate),
            Self::Pivot(pivot) => pivot,
        };
        match looks {
            Looks::Fixed => pivot.once(alpha, absolute.p),
            Looks::Anytime { .. } | Looks::GroupSequential { .. } => pivot.looked_at(&absolute),
            Looks::Bayesian => {
                let belief = pivot.with_difference(absolute.value, absolute.error.powi(2));
                let estimate = belief.estimate(|_| normal_isf(alpha / 2.0), absolute.p)?;
                Ok(Estimate { df: f64::INFINITY, ..estimate })
            }
        }
    }

    /// What decides whether there is a lift, as a lift: the difference, in units of the base.
    pub(super) fn decided_by(self, fixed: Estimate) -> Estimate {
        match self {
            Self::Delta(estimate) => estimate,
            Self::Pivot(pivot) => fixed.times(1.0 / pivot.base()),
        }
    }
}
