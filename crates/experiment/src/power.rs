//! How many users an experiment needs, and what it can see with those it has.
//!
//! # Not here
//! No dates: days needed are users needed over users a day, which the caller knows.

use crate::distribution::{normal_isf, normal_sf, t_isf};
use crate::effect::{Estimate, StatsError};
use crate::sequential::{confidence_sequence, group_sequential_mean};

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
            return Err(StatsError::OutOfRange("the effect must be a number above 0"));
        }
        if !(self.deviation > 0.0 && self.deviation.is_finite()) {
            return Err(StatsError::OutOfRange("the deviation must be a number above 0"));
        }
        if !(self.alpha > 0.0 && self.alpha < 1.0) {
            return Err(StatsError::OutOfRange("alpha must lie between 0 and 1"));
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
        return Err(StatsError::OutOfRange("there must be at least 2 users per arm"));
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
        return Err(StatsError::OutOfRange("the power must lie between alpha and 1"));
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

/// How a test is planned that is more than one look at two equal arms of users.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// Treatment arms, each compared with the control; the error is shared as Holm's first step has it.
    pub treatments: u32,
    /// Share of all users in the control; the treatments share the rest evenly.
    pub control_share: f64,
    pub looks: PlannedLooks,
    /// Users of a cluster that was assigned as a whole, on average, and how alike they are: the share of the
    /// variance that is between clusters.
    pub clusters: Option<(f64, f64)>,
}

/// When results will be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlannedLooks {
    Once,
    /// So many, evenly spaced, the last at the end.
    GroupSequential(u32),
    /// Whenever: a confidence sequence that is tightest at the end.
    Anytime,
}

/// Users of all arms together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlannedUsers {
    pub control: f64,
    /// Of each of them.
    pub treatment: f64,
    pub total: f64,
}

impl Plan {
    /// Two equal arms, one look, users.
    pub const PLAIN: Self =
        Self { treatments: 1, control_share: 0.5, looks: PlannedLooks::Once, clusters: None };

    fn check(&self) -> Result<(), StatsError> {
        if self.treatments == 0 {
            return Err(StatsError::OutOfRange("there must be at least one treatment"));
        }
        if !(self.control_share > 0.0 && self.control_share < 1.0) {
            return Err(StatsError::OutOfRange(
                "the share of the control must lie between 0 and 1",
            ));
        }
        let alike =
            |(size, icc): (f64, f64)| size >= 1.0 && size.is_finite() && (0.0..=1.0).contains(&icc);
        if !self.clusters.is_none_or(alike) {
            return Err(StatsError::OutOfRange(
                "a cluster has at least 1 user, and its icc lies from 0 to 1",
            ));
        }
        Ok(())
    }

    /// The error rate of one comparison.
    pub fn alpha(&self, alpha: f64) -> f64 {
        alpha / f64::from(self.treatments.max(1))
    }

    /// How many times the users of one look at users that are assigned one by one.
    pub(crate) fn factor(&self, alpha: f64, wanted_power: f64) -> Result<f64, StatsError> {
        let once = normal_isf(alpha / 2.0) + normal_isf(1.0 - wanted_power);
        let of_looks = match self.looks {
            PlannedLooks::Once => 1.0,
            PlannedLooks::GroupSequential(looks) => {
                let fractions: Vec<f64> =
                    (1..=looks).map(|look| f64::from(look) / f64::from(looks)).collect();
                (group_sequential_mean(&fractions, alpha, wanted_power)? / once).powi(2)
            }
            PlannedLooks::Anytime => {
                // Of an estimate with error 1 after all users; how many they are makes no difference.
                let one = Estimate::student(0.0, 1.0, f64::INFINITY, alpha);
                let always = confidence_sequence(&one, PLANNED, PLANNED, alpha)?;
                ((always.high + normal_isf(1.0 - wanted_power)) / once).powi(2)
            }
        };
        let of_clusters = self.clusters.map_or(1.0, |(size, icc)| 1.0 + (size - 1.0) * icc);
        Ok(of_looks * of_clusters)
    }

    /// Users that find the goal with `wanted_power`; with sequential methods at the last look or before.
    ///
    /// # Errors
    /// As [`users_per_arm`], and [`StatsError::OutOfRange`] for a plan out of range.
    ///
    /// # Source
    /// Group sequential: exact under the normal approximation; confidence sequences: of the last look alone, so a
    /// little too many. Clusters: Kish's design effect 1 + (m - 1) icc, "Survey Sampling", 1965.
    pub fn users(&self, goal: &Goal, wanted_power: f64) -> Result<PlannedUsers, StatsError> {
        self.check()?;
        let goal = Goal { alpha: self.alpha(goal.alpha), ..*goal };
        let equal = users_per_arm(&goal, wanted_power)? * self.factor(goal.alpha, wanted_power)?;
        let share = (1.0 - self.control_share) / f64::from(self.treatments);
        // The difference's variance is that of two arms of `equal` users.
        let total = 0.5 * equal * (1.0 / self.control_share + 1.0 / share);
        Ok(PlannedUsers { control: total * self.control_share, treatment: total * share, total })
    }
}

/// Any number of users that is large.
const PLANNED: u64 = 1_000_000;

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
        return Err(StatsError::OutOfRange("users must be above 0, and the power between 0 and 1"));
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
        return Err(StatsError::OutOfRange("the power must lie between 0 and 1"));
    }
    let normal = normal_isf(alpha / 2.0) + normal_isf(1.0 - wanted_power);
    Ok((normal * estimate.error / target).powi(2) - 1.0)
}
