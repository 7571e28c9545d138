//! What is known of arms for one metric, and the figures that are made of it.
//!
//! # Not here
//! No comparisons: `judge` has them.

use super::view::View;
use crate::cuped;
use crate::definition::{Experiment, Metric, MetricKind, Shape, Unit};
use crate::effect::{ArmFigure, Side, StatsError};
use crate::moments::Moments;
use crate::quantile::{self, Width};
use crate::query::QuantileCell;

/// Exposed users of all arms, whomever the metric leaves out because their window is not over.
#[derive(Debug, Clone)]
pub(super) struct Exposed<'t> {
    pub(super) activated: u64,
    pub(super) idle_users: u64,
    /// Per arm, those who were never activated.
    pub(super) idle: Vec<ArmData<'t>>,
}

/// What is known of one arm for one metric.
#[derive(Debug, Clone, Copy)]
pub(super) struct ArmData<'t> {
    pub(super) users: u64,
    pub(super) moments: &'t Moments,
    /// Of quantile metrics.
    pub(super) quantile: Option<&'t QuantileCell>,
}

/// The arms of one metric, and of each stratum if the experiment has any.
#[derive(Debug, Clone)]
pub(super) struct MetricData<'t> {
    pub(super) arms: Vec<ArmData<'t>>,
    pub(super) strata: Vec<Vec<ArmData<'t>>>,
    pub(super) cap: Option<f64>,
    /// Of a triggered analysis.
    pub(super) exposed: Option<Exposed<'t>>,
    /// These users' share of everyone, for where confidence sequences are tightest.
    pub(super) share: f64,
}

/// The figures of two arms and how they were made.
pub(super) struct Figures {
    pub(super) control: ArmFigure,
    pub(super) treatment: ArmFigure,
    /// Share of the squared error that CUPED removed.
    pub(super) reduction: Option<f64>,
}

/// A metric's figure is made of these columns of its moments.
pub(super) fn shape(experiment: &Experiment, metric: &Metric) -> Shape {
    match (&experiment.exposures.unit, metric.kind.shape()) {
        // Sums over clusters, divided by the clusters' users.
        (Unit::Cluster { .. }, Shape::Proportion | Shape::Mean) => Shape::Ratio,
        // A region-time's number is a sum or count, not a user's yes or no.
        (Unit::Switchback { .. }, Shape::Proportion) => Shape::Mean,
        (_, shape) => shape,
    }
}

/// One arm's figure without adjustment.
pub(super) fn plain_figure(
    experiment: &Experiment,
    metric: &Metric,
    arm: ArmData<'_>,
    side: Side,
) -> Result<ArmFigure, StatsError> {
    if let MetricKind::Quantile { level, per_row, .. } = &metric.kind {
        let missing = match arm.users {
            0 => StatsError::EmptyArm(side),
            _ => StatsError::NoQuantile,
        };
        let cell = arm.quantile.ok_or(missing)?;
        let band = cell.band.ok_or(missing)?;
        let finite = [band.low, band.quantile, band.high].iter().all(|value| value.is_finite());
        if !finite {
            return Err(StatsError::NotFinite(side));
        }
        if band.high <= band.low {
            return Err(StatsError::ZeroVariance(side));
        }
        let width = if experiment.growthbook { Width::Planned } else { Width::OfRanks };
        return match (&cell.clusters, per_row) {
            (Some(clusters), true) => {
                quantile::of_events(cell.values, *level, &band, width, clusters)
            }
            _ => quantile::of_users(cell.values, *level, &band, width),
        };
    }
    let figure = ArmFigure::of(shape(experiment, metric), arm.moments, side);
    figure.map_err(|error| match error {
        StatsError::NotFinite(side) if metric.transform.is_some() => StatsError::NoLog(side),
        other => other,
    })
}

pub(super) fn figures(
    view: &View<'_>,
    metric: &Metric,
    [control, treatment]: [ArmData<'_>; 2],
) -> Result<Figures, StatsError> {
    let plain = |arm, side| plain_figure(view.experiment, metric, arm, side);
    let plain = [plain(control, Side::Control)?, plain(treatment, Side::Treatment)?];
    let Some(covariates) = covariates(view, metric) else {
        return Ok(Figures { control: plain[0], treatment: plain[1], reduction: None });
    };
    let (control, treatment) = (control.moments, treatment.moments);
    let adjusted = match (shape(view.experiment, metric), covariates) {
        (Shape::Ratio, _) => cuped::adjust_ratio(control, treatment),
        (_, 1) => cuped::adjust_mean(control, treatment, 0, 1),
        (_, count) => {
            let columns: Vec<usize> = (1..=count).collect();
            cuped::adjust_mean_by_many(control, treatment, 0, &columns).0
        }
    };
    let reduction = Some(adjusted.variance_reduction()).filter(|share| share.is_finite());
    Ok(Figures { control: adjusted.control, treatment: adjusted.treatment, reduction })
}

/// Covariates that CUPED subtracts, if it does.
pub(super) fn covariates(view: &View<'_>, metric: &Metric) -> Option<usize> {
    let cuped = metric.cuped.as_ref().filter(|_| view.cuped)?;
    Some(1 + cuped.with.len())
}
