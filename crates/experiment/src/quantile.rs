//! Differences of quantiles, with users as the unit of randomness.
//!
//! # Not here
//! No sorting and no sketches: the engine finds the values at the ranks that [`ranks`] names.
//!
//! # Source
//! Deng, Knoblich & Lu, "Applying the Delta Method in Metric Analytics", KDD 2018, section 4.2,
//! as gbstats computes it. (GrowthBook's documentation prints the ratio of variances upside
//! down; its code is right.)

use crate::distribution::normal_isf;
use crate::effect::{ArmFigure, StatsError};
use crate::moments::Moments;

/// Half the width, in standard errors, of the band that measures the density at the quantile.
const BAND_ALPHA: f64 = 0.05;

/// What an error is made of, besides the distance of the values at the ends of the band.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// The distance of their ranks; and Student's t has as many degrees of freedom, because a distance of values
    /// that lie so few ranks apart is not known better.
    OfRanks,
    /// Twice 1.96 standard errors, as in gbstats, though ranks are whole, and degrees of freedom of all values:
    /// of 36 users an arm 3.3 and 3.1 % of A/A tests of the median are called up and down.
    Planned,
}

/// One-based ranks, among `values` sorted values, of a quantile and of the band around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ranks {
    pub low: u64,
    pub quantile: u64,
    pub high: u64,
}

/// Which sorted values to fetch for the quantile at `level` (0.9 for p90). The quantile is the
/// inverted distribution function: the value at rank `ceil(n level)`.
///
/// # Errors
/// [`StatsError::OutOfRange`] unless `level` is in (0, 1) and there are values.
pub fn ranks(values: u64, level: f64) -> Result<Ranks, StatsError> {
    if !(level > 0.0 && level < 1.0) {
        return Err(StatsError::OutOfRange("the level of a quantile must lie between 0 and 1"));
    }
    if values == 0 {
        return Err(StatsError::OutOfRange("there are no values to have a quantile"));
    }
    let n = values as f64;
    let band = band_width(values, level);
    // The product of a share such as 0.999 may lie a little above the whole number that it is.
    let rank = |share: f64| {
        let (exact, whole) = (n * share, (n * share).round());
        let is_whole = (exact - whole).abs() <= whole * 4.0 * f64::EPSILON;
        ((if is_whole { whole } else { exact.ceil() }).max(1.0) as u64).min(values)
    };
    Ok(Ranks { low: rank(level - band), quantile: rank(level), high: rank(level + band) })
}

/// Half of the band's width, in shares of the values.
fn band_width(values: u64, level: f64) -> f64 {
    normal_isf(BAND_ALPHA / 2.0) * (level * (1.0 - level) / values as f64).sqrt()
}

/// Are there ranks for both ends of the band? One that is cut off is too narrow: with 100 users an arm,
/// tests of the 99 % quantile would reject 36 % of A/A tests.
fn check_band(values: u64, level: f64) -> Result<(), StatsError> {
    ranks(values, level)?;
    let band = band_width(values, level);
    if level - band <= 0.0 || level + band >= 1.0 {
        return Err(StatsError::OutOfRange("there are too few values for this quantile"));
    }
    Ok(())
}

/// Values at the [`Ranks`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Band {
    pub low: f64,
    pub quantile: f64,
    pub high: f64,
}

/// The arm's figure for a quantile over one value per user.
///
/// # Source
/// The density by the quotient of a difference of values by that of their ranks: Siddiqui, "Distribution of
/// quantiles in samples from a bivariate population", J. Res. NBS 64B, 1960.
///
/// # Errors
/// [`StatsError::OutOfRange`] for a level out of range, or a band of no width or beyond the values, which
/// leaves no inference: the values are too few or too coarse.
pub fn of_users(
    values: u64,
    level: f64,
    band: &Band,
    width: Width,
) -> Result<ArmFigure, StatsError> {
    let (error, freedom) = independent_error(values, level, band, width)?;
    Ok(figure(freedom, band.quantile, error * error))
}

/// The arm's figure for a quantile over events, where a user has any number of them.
/// `clusters`: per user, the joint moments of (events at or below the quantile, events).
///
/// # Errors
/// As [`of_users`].
pub fn of_events(
    events: u64,
    level: f64,
    band: &Band,
    width: Width,
    clusters: &Moments,
) -> Result<ArmFigure, StatsError> {
    let (error, freedom) = independent_error(events, level, band, width)?;
    let share = ArmFigure::ratio(clusters, 0, 1);
    let clustered = share.variance / share.users as f64;
    // gbstats divides by n - 1 here; so do we.
    let independent = level * (1.0 - level) / (events as f64 - 1.0);
    let freedom = match width {
        Width::OfRanks => freedom.min(share.users.saturating_sub(1)),
        Width::Planned => freedom,
    };
    Ok(figure(freedom, band.quantile, error * error * clustered / independent))
}

/// The error of independent values, and its degrees of freedom.
fn independent_error(
    values: u64,
    level: f64,
    band: &Band,
    width: Width,
) -> Result<(f64, u64), StatsError> {
    check_band(values, level)?;
    let apart = band.high - band.low;
    if !(apart > 0.0 && apart.is_finite()) {
        return Err(StatsError::OutOfRange("the values around the quantile are all alike"));
    }
    Ok(match width {
        Width::OfRanks => {
            let ranks = ranks(values, level)?;
            let ranks_apart = ranks.high - ranks.low;
            let error_in_ranks = (values as f64 * level * (1.0 - level)).sqrt();
            (apart / ranks_apart as f64 * error_in_ranks, ranks_apart)
        }
        Width::Planned => (apart / (2.0 * normal_isf(BAND_ALPHA / 2.0)), values - 1),
    })
}

fn figure(freedom: u64, quantile: f64, squared_error: f64) -> ArmFigure {
    let users = freedom + 1;
    ArmFigure::plain(users, quantile, squared_error * users as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1000 times 0.999 is a little more than 999 where 0.999 is 99.9 of 100.
    #[test]
    fn ranks_are_those_of_the_shares_as_they_are_written() {
        for (percent, millis) in [(99.9, 999), (55.0, 550), (7.0, 70), (97.5, 975)] {
            for values in 1..=200_000_u64 {
                let expected = (values * millis).div_ceil(1000);
                for level in [percent / 100.0, millis as f64 / 1000.0] {
                    let found = ranks(values, level).unwrap().quantile;
                    assert_eq!(found, expected, "{percent} % of {values}");
                }
            }
        }
    }
}
