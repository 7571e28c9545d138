//! The same estimate read as a belief: chance to win and risk.
//!
//! # Not here
//! No choice of prior; a flat one reproduces the fixed-horizon interval with a normal quantile.

use crate::distribution::{normal_isf, normal_pdf, normal_sf};
use crate::effect::{Estimate, StatsError};

/// Belief about an effect before the data, on the scale of the estimate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Prior {
    Flat,
    Normal { mean: f64, variance: f64 },
}

/// Belief about an effect after the data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Posterior {
    pub mean: f64,
    pub deviation: f64,
    /// Ends of the central interval that holds `1 - alpha`.
    pub low: f64,
    pub high: f64,
    /// Probability that the effect is above 0.
    pub chance_to_win: f64,
    /// Expected loss, in units of the effect, of keeping the control: E[max(effect, 0)].
    pub risk_of_control: f64,
    /// Expected loss of shipping the treatment: E[max(-effect, 0)].
    pub risk_of_treatment: f64,
}

/// Normal likelihood, normal prior.
///
/// # Errors
/// [`StatsError::OutOfRange`] if the prior's variance is not above 0.
///
/// # Source
/// Conjugate normal model, as gbstats' effect-level Bayesian test; the risks are the closed form
/// `mu Phi(mu/sd) + sd phi(mu/sd)`.
pub fn posterior(estimate: &Estimate, prior: Prior, alpha: f64) -> Result<Posterior, StatsError> {
    let data = 1.0 / (estimate.error * estimate.error);
    let (mean, precision) = match prior {
        Prior::Flat => (estimate.value, data),
        Prior::Normal { mean, variance } if variance > 0.0 && mean.is_finite() => {
            let precision = data + 1.0 / variance;
            ((estimate.value * data + mean / variance) / precision, precision)
        }
        Prior::Normal { .. } => {
            return Err(StatsError::OutOfRange("the prior's variance must be above 0"));
        }
    };
    let deviation = precision.sqrt().recip();
    let (half, z) = (normal_isf(alpha / 2.0) * deviation, mean / deviation);
    let spread = deviation * normal_pdf(z);
    Ok(Posterior {
        mean,
        deviation,
        low: mean - half,
        high: mean + half,
        chance_to_win: normal_sf(-z),
        risk_of_control: mean * normal_sf(-z) + spread,
        risk_of_treatment: spread - mean * normal_sf(z),
    })
}
