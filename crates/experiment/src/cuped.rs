//! CUPED: subtract from a metric what the time before exposure already explains.
//!
//! # Invariants
//! - The coefficient is fitted on both arms of a comparison together, so the adjustment cannot
//!   favour one of them.
//!
//! # Not here
//! No choice of covariates.

use crate::effect::ArmFigure;
use crate::moments::Moments;

/// Both figures of a comparison after adjustment, and what it gained.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adjusted {
    pub control: ArmFigure,
    pub treatment: ArmFigure,
    /// Unit of the metric per unit of the covariate; 0 if the covariate never varies.
    pub theta: f64,
}

impl Adjusted {
    /// Share of the squared error of the difference that the adjustment removed; negative if it
    /// added some.
    pub fn variance_reduction(&self) -> f64 {
        let error = |variance: fn(&ArmFigure) -> f64| {
            variance(&self.control) / self.control.users as f64
                + variance(&self.treatment) / self.treatment.users as f64
        };
        1.0 - error(|arm| arm.variance) / error(|arm| arm.raw_variance)
    }
}

/// Adjusts the means of column `y` by those of column `x`, a covariate from before exposure.
/// Lifts then divide by the control mean before adjustment, as gbstats does; tea-tasting divides
/// by the adjusted one.
///
/// # Source
/// Deng, Xu, Kohavi & Walker, "Improving the Sensitivity of Online Controlled Experiments by
/// Utilizing Pre-Experiment Data", WSDM 2013.
pub fn adjust_mean(control: &Moments, treatment: &Moments, y: usize, x: usize) -> Adjusted {
    let mut pooled = control.clone();
    pooled.merge(treatment);
    let spread = pooled.variance(x);
    let theta = if spread > 0.0 { pooled.covariance(y, x) / spread } else { 0.0 };
    let centre = pooled.mean(x);
    let adjust = |arm: &Moments| {
        let (variance, shared) = (arm.variance(y), arm.covariance(y, x));
        ArmFigure {
            users: arm.count(),
            value: arm.mean(y) - theta * (arm.mean(x) - centre),
            variance: variance + theta * theta * arm.variance(x) - 2.0 * theta * shared,
            raw_value: arm.mean(y),
            raw_variance: variance,
            raw_covariance: variance - theta * shared,
        }
    };
    Adjusted { control: adjust(control), treatment: adjust(treatment), theta }
}
