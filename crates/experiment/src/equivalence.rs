//! Equivalence: is the lift within a margin to both sides?
//!
//! Two one-sided tests, each at alpha: that the treatment is lower by the margin or more, and that it is higher
//! by it or more. Both are tests of a ratio of means, so the margin moves with the control mean, whose error
//! counts. They reject exactly when the interval of the lift that covers `1 - 2 alpha` is within the margin.
//!
//! # Not here
//! No decision what a margin is (`definition`), no correction: of several metrics that must all be equivalent, none
//! is needed.
//!
//! # Source
//! Schuirmann, "A comparison of the two one-sided tests procedure and the power approach for assessing the
//! equivalence of average bioavailability", J. Pharmacokinetics and Biopharmaceutics 15, 1987; Hauschke, Kieser,
//! Diletti & Burke, "Sample size determination for proving equivalence based on the ratio of two means for normally
//! distributed data", Statistics in Medicine 18, 1999; degrees of freedom as for [`Pivot`](crate::effect::Pivot).

use crate::distribution::t_sf;
use crate::effect::{Estimate, StatsError};

/// The larger p-value of the two tests. `distance`: how far the data are above a lift ([`Pivot::distance`]); `p`: of
/// being that far from it or farther, on the side that is given (1: above).
///
/// [`Pivot::distance`]: crate::effect::Pivot::distance
///
/// # Errors
/// Those of `distance` and `p`.
///
/// # Examples
/// ```
/// use uplake_experiment::effect::{ArmFigure, Pivot};
/// use uplake_experiment::equivalence::{of_one_look, two_one_sided};
/// use uplake_experiment::Moments;
/// let arm = |mean| ArmFigure::mean(&Moments::from_summary(1000, &[mean], &[4.0]), 0);
/// let pivot = Pivot::of(&arm(10.0), &arm(10.1))?;
/// let p = |margin| two_one_sided(margin, |lift| pivot.distance(lift, 0.05), of_one_look);
/// assert!(p(0.05)? < 0.001 && p(0.011)? > 0.4);
/// # Ok::<(), uplake_experiment::effect::StatsError>(())
/// ```
pub fn two_one_sided(
    margin: f64,
    distance: impl Fn(f64) -> Result<Estimate, StatsError>,
    p: impl Fn(Estimate, f64) -> Result<f64, StatsError>,
) -> Result<f64, StatsError> {
    let not_lower = p(distance(-margin)?, 1.0)?;
    let not_higher = p(distance(margin)?, -1.0)?;
    Ok(not_lower.max(not_higher))
}

/// One-sided p-value of a distance by Student's t.
///
/// # Errors
/// None; as [`two_one_sided`] wants it.
pub fn of_one_look(distance: Estimate, side: f64) -> Result<f64, StatsError> {
    Ok(t_sf(side * distance.value / distance.error, distance.df))
}

/// From the two-sided p-value of a method of several looks, which is cautious: alpha is then that of its interval.
pub fn of_looks(looked_at: Estimate, side: f64) -> f64 {
    if side * looked_at.value > 0.0 { looked_at.p } else { 1.0 }
}
