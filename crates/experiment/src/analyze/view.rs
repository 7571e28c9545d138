//! A choice of how to compare, and what looking more than once makes of an estimate.

use std::sync::Arc;

use crate::bayes::posterior;
use crate::definition::{Experiment, Inference};
use crate::distribution::normal_sf;
use crate::effect::{Estimate, StatsError};
use crate::sequential::{Look, confidence_sequence_tuned};

/// A choice of how to compare.
#[derive(Debug, Clone)]
pub(super) struct View<'e> {
    pub(super) experiment: &'e Experiment,
    pub(super) baseline: usize,
    pub(super) cuped: bool,
    pub(super) inference: Inference,
    /// Intervals cover 1 minus this: alpha, or less of it where a family shares it.
    pub(super) level: f64,
    /// Per arm, a group sequential test at today's users of everyone, and its critical value at the level.
    pub(super) today: Arc<[Result<Look, StatsError>]>,
    critical: Vec<f64>,
}

impl<'e> View<'e> {
    /// `users`: per arm, of everyone.
    pub(super) fn new(
        experiment: &'e Experiment,
        baseline: usize,
        cuped: bool,
        inference: Inference,
        users: &[u64],
    ) -> Self {
        let (level, today, critical) = (experiment.alpha, Arc::default(), Vec::new());
        let mut view = Self { experiment, baseline, cuped, inference, level, today, critical };
        if let Inference::GroupSequential { planned_users, looks } = inference {
            let bound = |arm: usize| {
                // Nobody compares the baseline with itself, and a bound costs up to 20 ms.
                if arm == baseline {
                    return Err(StatsError::NoShares);
                }
                let planned = view.planned_of_pair(planned_users, arm);
                Look::at(users[baseline] + users[arm], planned, looks, experiment.alpha)
            };
            view.today = (0..users.len()).map(bound).collect();
        }
        view.at(level)
    }

    /// The same with intervals of another level.
    pub(super) fn at(&self, level: f64) -> Self {
        let critical = |today: &Result<Look, StatsError>| match today {
            Ok(today) => today.p.critical_at(level),
            Err(_) => f64::INFINITY,
        };
        Self { level, critical: self.today.iter().map(critical).collect(), ..self.clone() }
    }

    /// What the definition asks for.
    pub(super) fn of(experiment: &'e Experiment, users: &[u64]) -> Self {
        Self::new(experiment, experiment.control(), true, experiment.inference, users)
    }

    /// Watched at any time, tightest at the plan; without a plan at today's users.
    pub(super) fn anytime(inference: Inference, users: &[u64]) -> Inference {
        let planned_users = match inference {
            Inference::Anytime { planned_users }
            | Inference::GroupSequential { planned_users, .. } => planned_users,
            Inference::Fixed | Inference::Bayesian { .. } => users.iter().sum::<u64>().max(2),
        };
        Inference::Anytime { planned_users }
    }

    /// How many of the planned users of all arms belong to `arm` and the baseline.
    fn planned_of_pair(&self, planned: u64, arm: usize) -> u64 {
        let variants = &self.experiment.variants;
        let total: f64 = variants.iter().map(|variant| variant.share).sum();
        let pair = variants[self.baseline].share + variants[arm].share;
        (planned as f64 * pair / total).round().max(1.0) as u64
    }
}

/// What looking more than once makes of a fixed look's estimate.
#[derive(Debug, Clone, Copy)]
pub(super) enum Looks {
    Fixed,
    Anytime {
        users: u64,
        planned: u64,
    },
    /// Today's look at this arm.
    GroupSequential {
        arm: usize,
    },
    Bayesian,
}

impl Looks {
    /// For a comparison of `arm` with the baseline, of so many users of both, who are this share
    /// of everyone.
    pub(super) fn of(
        view: &View<'_>,
        arm: usize,
        users: u64,
        share: f64,
    ) -> Result<Self, StatsError> {
        Ok(match view.inference {
            Inference::Fixed => Self::Fixed,
            Inference::Bayesian { .. } => Self::Bayesian,
            Inference::Anytime { planned_users } => {
                let planned = view.planned_of_pair(planned_users, arm);
                let planned = match share {
                    1.0 => planned,
                    share => (planned as f64 * share).round().max(1.0) as u64,
                };
                Self::Anytime { users: users.max(1), planned }
            }
            // Who is looked at in part was as often looked at as everyone.
            Inference::GroupSequential { .. } => {
                view.today[arm].as_ref().map_err(|error| *error)?;
                Self::GroupSequential { arm }
            }
        })
    }

    /// What a fixed look's estimate is worth.
    pub(super) fn apply(self, view: &View<'_>, estimate: Estimate) -> Result<Estimate, StatsError> {
        let alpha = view.level;
        match self {
            Self::Fixed => Ok(estimate),
            Self::Anytime { users, planned } => {
                let tuned_for = view.experiment.alpha;
                let always =
                    confidence_sequence_tuned(&estimate, users, planned, alpha, tuned_for)?;
                let (low, high, p) = (always.low, always.high, always.p);
                Estimate { df: f64::INFINITY, low, high, p, ..estimate }.checked()
            }
            Self::GroupSequential { arm } => {
                let today = view.today[arm].as_ref().map_err(|error| *error)?;
                let half = view.critical[arm] * estimate.error;
                let p = today.p.p((estimate.value / estimate.error).abs());
                let (low, high) = (estimate.value - half, estimate.value + half);
                Estimate { df: f64::INFINITY, low, high, p, ..estimate }.checked()
            }
            Self::Bayesian => {
                let Inference::Bayesian { prior } = view.inference else { return Ok(estimate) };
                let belief = posterior(&estimate, prior, alpha)?;
                Estimate {
                    value: belief.mean,
                    error: belief.deviation,
                    df: f64::INFINITY,
                    low: belief.low,
                    high: belief.high,
                    // Twice the smaller tail: below alpha when the interval leaves 0 out.
                    p: 2.0 * normal_sf((belief.mean / belief.deviation).abs()),
                }
                .checked()
            }
        }
    }
}
