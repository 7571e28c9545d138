//! Post-stratification: compare like with like, then average over strata.
//!
//! # Invariants
//! - Weights are the strata's shares of all users, and their own randomness is part of the error.
//!
//! # Not here
//! No choice of strata; they must be fixed before exposure.

use crate::effect::{ArmFigure, Estimate, Pivot, Side, StatsError, welch_df};

/// Both arms of one stratum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stratum {
    pub control: ArmFigure,
    pub treatment: ArmFigure,
}

/// Difference and lift of a post-stratified comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stratified {
    pub absolute: Estimate,
    /// By the delta method.
    pub relative: Result<Estimate, StatsError>,
    pub pivot: Result<Pivot, StatsError>,
}

/// Averages the strata's differences. `overall`: the same arms without strata; their Welch
/// degrees of freedom are used, as gbstats does.
///
/// # Errors
/// [`StatsError`] if any arm of any stratum has fewer than two users or no variance, or
/// [`StatsError::NoShares`] without strata.
///
/// # Source
/// Miratrix, Sekhon & Yu, "Adjusting treatment effect estimates by post-stratification", JRSS B
/// 75, 2013; the multinomial variance of the weights as in gbstats. For lifts [`Pivot`].
pub fn post_stratify(
    strata: &[Stratum],
    overall: &Stratum,
    alpha: f64,
) -> Result<Stratified, StatsError> {
    if strata.is_empty() {
        return Err(StatsError::NoShares);
    }
    for stratum in strata.iter().chain([overall]) {
        stratum.control.check(Side::Control)?;
        stratum.treatment.check(Side::Treatment)?;
    }
    let users = |stratum: &Stratum| (stratum.control.users + stratum.treatment.users) as f64;
    let total: f64 = strata.iter().map(users).sum();
    let mean = |f: &dyn Fn(&Stratum) -> f64| -> f64 {
        strata.iter().map(|stratum| users(stratum) / total * f(stratum)).sum()
    };
    // The variance of a weighted mean: within the strata, and of the weights.
    let variance = |within: &dyn Fn(&Stratum) -> f64, value: &dyn Fn(&Stratum) -> f64| -> f64 {
        let inside = mean(&|stratum| users(stratum) / total * within(stratum));
        let centre = mean(value);
        inside + mean(&|stratum| (value(stratum) - centre).powi(2)) / total
    };
    let difference = |stratum: &Stratum| stratum.treatment.value - stratum.control.value;
    let spread =
        |stratum: &Stratum| stratum.control.squared_error() + stratum.treatment.squared_error();
    let df = welch_df(&overall.control, &overall.treatment);
    let value = mean(&difference);
    let error = variance(&spread, &difference).sqrt();
    let absolute = Estimate::student(value, error, df, alpha).checked()?;

    let base = mean(&|stratum| stratum.control.raw_value);
    if base == 0.0 {
        let none = Err(StatsError::ZeroControlMean);
        return Ok(Stratified {
            absolute,
            relative: none,
            pivot: Err(StatsError::ZeroControlMean),
        });
    }
    let lift = mean(&|stratum| stratum.treatment.raw_value) / base - 1.0;
    let spread_of_lift = |stratum: &Stratum| {
        let users = stratum.control.users as f64;
        spread(stratum)
            + 2.0 * lift * stratum.control.raw_covariance / users
            + lift * lift * stratum.control.raw_variance / users
    };
    let linear = |stratum: &Stratum| difference(stratum) - lift * stratum.control.raw_value;
    let error = variance(&spread_of_lift, &linear).sqrt() / base.abs();
    let relative = Estimate::student(value / base.abs(), error, df, alpha).checked();
    let of_control = |within: fn(&ArmFigure) -> f64| {
        mean(&|stratum| {
            users(stratum) / total * within(&stratum.control) / stratum.control.users as f64
        })
    };
    let raw = |stratum: &Stratum| stratum.control.raw_value;
    // The weights are as random for the base as for the difference.
    let together = mean(&|stratum| (difference(stratum) - value) * (raw(stratum) - base)) / total;
    let own = absolute.error * absolute.error;
    let shared = of_control(|control| control.raw_covariance) - together;
    let of_base = of_control(|control| control.raw_variance)
        + mean(&|stratum| (raw(stratum) - base).powi(2)) / total;
    let errors = [own, shared, of_base];
    let pivot = Pivot::put_together([value, base], errors, &overall.control, &overall.treatment);
    Ok(Stratified { absolute, relative, pivot })
}
