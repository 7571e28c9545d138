//! How many users an experiment needs, and what it can see with those it has.
//!
//! # Not here
//! No dates: days needed are users needed over users a day, which the caller knows.

use crate::distribution::{normal_isf, normal_sf, t_isf};
use crate::effect::{Estimate, StatsError};

/// What to plan for. Effects and deviations are in one unit, the metric's own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Goal {
    /// Difference worth finding, above 0.
    pub effect: f64,
    /// Standard deviation of one user's value, above 0.
    pub deviation: f64,
    /// Two-sided error rate.
    pub alpha: f64,
}

impl Goal {
    fn check(&self) -> Result<(), StatsError> {
        if !(self.effect > 0.0 && self.effect.is_finite()) {
            return Err(StatsError::OutOfRange("effect"));
        }
        if !(self.deviation > 0.0 && self.deviation.is_finite()) {
            return Err(StatsError::OutOfRange("deviation"));
        }
        if !(self.alpha > 0.0 && self.alpha < 1.0) {
            return Err(StatsError::OutOfRange("alpha"));
        }
        Ok(())
    }
}

/// Chance that the two-sided t-test with `users_per_arm` in each of two arms finds the effect,
/// both tails counted.
///
/// # Errors
/// [`StatsError::OutOfRange`] for a goal out of range or fewer than 2 users per arm.
///
/// # Source
/// Noncentral t, as statsmodels' `TTestIndPower`; the tail is the normal's, averaged over the
/// distribution of the estimated deviation.
pub fn power(goal: &Goal, users_per_arm: f64) -> Result<f64, StatsError> {
    goal.check()?;
    if !(users_per_arm >= 2.0 && users_per_arm.is_finite()) {
        return Err(StatsError::OutOfRange("users"));
    }
    let df = 2.0 * users_per_arm - 2.0;
    let shift = goal.effect / goal.deviation * (users_per_arm / 2.0).sqrt();
    let critical = t_isf(goal.alpha / 2.0, df);
    let detected =
        |scale: f64| normal_sf(critical * scale - shift) + normal_sf(critical * scale + shift);
    Ok(average_over_deviation(df, detected))
}

/// Mean of `f(s)` where `s^2 df` is chi-square with `df` degrees of freedom. The density needs no
/// gamma function: it is normalised by its own sum on the same grid.
fn average_over_deviation(df: f64, f: impl Fn(f64) -> f64) -> f64 {
    const INTERVALS: usize = 2000;
    let spread = 9.0 / (2.0 * df).sqrt();
    let (low, high) = ((1.0 - spread).max(1e-9), 1.0 + spread);
    let step = (high - low) / INTERVALS as f64;
    let (mut sum, mut total) = (0.0, 0.0);
    for index in 0..=INTERVALS {
        let s = low + step * index as f64;
        let simpson = match index {
            0 | INTERVALS => 1.0,
            i if i % 2 == 1 => 4.0,
            _ => 2.0,
        };
        // The exponent is 0 at s = 1, so nothing over- or underflows.
        let density = ((df - 1.0) * s.ln() - 0.5 * df * (s * s - 1.0)).exp();
        sum += simpson * density * f(s);
        total += simpson * density;
    }
    sum / total
}

/// Users per arm that reach `power`, not rounded.
///
/// # Errors
/// [`StatsError::OutOfRange`] for a goal out of range or a power outside (alpha, 1).
///
/// # Source
/// Inverts [`power`]; agrees with statsmodels to 1e-9.
pub fn users_per_arm(goal: &Goal, wanted_power: f64) -> Result<f64, StatsError> {
    goal.check()?;
    if !(wanted_power > goal.alpha && wanted_power < 1.0) {
        return Err(StatsError::OutOfRange("power"));
    }
    let normal = normal_isf(goal.alpha / 2.0) + normal_isf(1.0 - wanted_power);
    let guess = 2.0 * (normal * goal.deviation / goal.effect).powi(2);
    let (mut low, mut high) = (2.0, guess.max(2.0) * 2.0 + 10.0);
    for _ in 0..100 {
        let middle = 0.5 * (low + high);
        if power(goal, middle)? < wanted_power {
            low = middle
        } else {
            high = middle
        }
        if high - low < 1e-9 * high {
            break;
        }
    }
    Ok(0.5 * (low + high))
}

/// The smallest difference that `users_per_arm` find with `wanted_power`, in the unit of
/// `deviation`, by the normal approximation.
///
/// # Errors
/// [`StatsError::OutOfRange`] for arguments that are not above 0, or rates outside (0, 1).
pub fn detectable_effect(
    deviation: f64,
    users_per_arm: f64,
    alpha: f64,
    wanted_power: f64,
) -> Result<f64, StatsError> {
    Goal { effect: 1.0, deviation, alpha }.check()?;
    if !(users_per_arm > 0.0 && wanted_power > 0.0 && wanted_power < 1.0) {
        return Err(StatsError::OutOfRange("users or power"));
    }
    let normal = normal_isf(alpha / 2.0) + normal_isf(1.0 - wanted_power);
    Ok(normal * deviation * (2.0 / users_per_arm).sqrt())
}

/// In a running experiment: how many times today's users must still come, for an effect of
/// `target` (on the estimate's scale) to be found with `wanted_power`. 0 or less: enough already.
///
/// # Errors
/// [`StatsError::OutOfRange`] if `target` is 0 or a rate is outside (0, 1).
///
/// # Source
/// The error shrinks with the root of the users; one tail, normal, as gbstats approximates.
pub fn further_users_factor(
    estimate: &Estimate,
    target: f64,
    alpha: f64,
    wanted_power: f64,
) -> Result<f64, StatsError> {
    Goal { effect: target.abs(), deviation: 1.0, alpha }.check()?;
    if !(wanted_power > 0.0 && wanted_power < 1.0) {
        return Err(StatsError::OutOfRange("power"));
    }
    let normal = normal_isf(alpha / 2.0) + normal_isf(1.0 - wanted_power);
    Ok((normal * estimate.error / target).powi(2) - 1.0)
}
