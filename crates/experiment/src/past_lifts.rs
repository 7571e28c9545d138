//! A prior from past experiments: how lifts of a metric are spread.
//!
//! # Not here
//! No choice of experiments: whoever leaves out those that found nothing gets a prior that is too wide.

use crate::distribution::normal_isf;

/// From fewer lifts a spread is a guess.
pub const MIN_LIFTS: usize = 5;

/// Points between 0 and the largest deviation there can be, among which the best is looked for: the likelihood
/// of lifts with very different errors may have several hills.
const GRID: u32 = 400;
/// The smallest of them is this share of the largest.
const FINEST: f64 = 1e-4;
/// Halvings until nothing changes: a double has 53 bits.
const HALVINGS: u32 = 100;
/// Intervals cover this much.
const COVERAGE: f64 = 0.95;

/// A lift as one experiment's data alone have it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PastLift {
    pub value: f64,
    /// Standard error.
    pub error: f64,
}

/// A normal distribution of true lifts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FittedPrior {
    pub mean: f64,
    /// 0 if errors explain all differences.
    pub deviation: f64,
    /// Ends of the deviation's 95 % interval by the profile likelihood.
    pub deviation_low: f64,
    pub deviation_high: f64,
}

/// Why there is no prior.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PastLiftsError {
    #[error("{found} lifts are too few to tell their spread; it takes {MIN_LIFTS} or more")]
    TooFew { found: usize },
    #[error("a lift or its error is not finite, or an error is not above 0")]
    OutOfRange,
}

/// The normal distribution under which lifts like these, each with its error, are most likely:
/// `value ~ N(mean, deviation² + error²)`, maximum likelihood.
///
/// # Errors
/// [`PastLiftsError::TooFew`] with fewer than [`MIN_LIFTS`], [`PastLiftsError::OutOfRange`].
///
/// # Examples
/// ```
/// use uplake_experiment::past_lifts::{PastLift, fit};
/// let lifts = [0.08, 0.01, -0.03, 0.02, 0.05, -0.01].map(|value| PastLift { value, error: 0.01 });
/// let prior = fit(&lifts)?;
/// assert!((prior.mean - 0.02).abs() < 1e-12);
/// // The variance of the lifts, 0.00133, without that of the errors.
/// assert!((prior.deviation.powi(2) - (0.008 / 6.0 - 0.0001)).abs() < 1e-9);
/// # Ok::<(), uplake_experiment::past_lifts::PastLiftsError>(())
/// ```
///
/// # Source
/// Efron & Morris, "Stein's estimation rule and its competitors: an empirical Bayes approach", JASA 1973; Deng,
/// "Objective Bayesian two sample hypothesis testing for online controlled experiments", WWW 2015.
pub fn fit(lifts: &[PastLift]) -> Result<FittedPrior, PastLiftsError> {
    let is_sound =
        |lift: &PastLift| lift.value.is_finite() && lift.error.is_finite() && lift.error > 0.0;
    if !lifts.iter().all(is_sound) {
        return Err(PastLiftsError::OutOfRange);
    }
    if lifts.len() < MIN_LIFTS {
        return Err(PastLiftsError::TooFew { found: lifts.len() });
    }
    let deviation = best_deviation(lifts);
    let at = Spread::at(lifts, deviation);
    // Twice the loss of likelihood is chi-square with one degree of freedom.
    let allowed = at.log_likelihood - normal_isf((1.0 - COVERAGE) / 2.0).powi(2) / 2.0;
    let is_within = |deviation: f64| Spread::at(lifts, deviation).log_likelihood >= allowed;
    let deviation_low =
        if is_within(0.0) { 0.0 } else { halved(0.0, deviation, |d| !is_within(d)) };
    let mut far = range(lifts).max(smallest_error(lifts));
    while is_within(far) {
        far *= 2.0;
    }
    let deviation_high = halved(deviation, far, is_within);
    Ok(FittedPrior { mean: at.mean, deviation, deviation_low, deviation_high })
}

/// The likelihood at one deviation and the best mean for it.
struct Spread {
    mean: f64,
    /// But for a constant.
    log_likelihood: f64,
    /// Its derivative by the variance.
    slope: f64,
}

impl Spread {
    fn at(lifts: &[PastLift], deviation: f64) -> Self {
        let variance = |lift: &PastLift| deviation * deviation + lift.error * lift.error;
        let weights: f64 = lifts.iter().map(|lift| 1.0 / variance(lift)).sum();
        let weighted: f64 = lifts.iter().map(|lift| lift.value / variance(lift)).sum();
        let mean = weighted / weights;
        let (mut log_likelihood, mut slope) = (0.0, 0.0);
        for lift in lifts {
            let variance = variance(lift);
            let squared = (lift.value - mean).powi(2) / variance;
            log_likelihood -= 0.5 * (variance.ln() + squared);
            slope -= 0.5 * (1.0 - squared) / variance;
        }
        Self { mean, log_likelihood, slope }
    }
}

fn best_deviation(lifts: &[PastLift]) -> f64 {
    // Beyond the largest distance from the mean every term falls.
    let most = range(lifts);
    let step = |point: u32| most * FINEST.powf(1.0 - f64::from(point) / f64::from(GRID - 1));
    let grid: Vec<f64> = std::iter::once(0.0).chain((0..GRID).map(step)).collect();
    let likelihood = |deviation: f64| Spread::at(lifts, deviation).log_likelihood;
    let best = (0..grid.len()).max_by(|a, b| likelihood(grid[*a]).total_cmp(&likelihood(grid[*b])));
    let best = best.unwrap_or(0);
    let rises = |deviation: f64| Spread::at(lifts, deviation).slope > 0.0;
    if best == 0 && !rises(0.0) {
        return 0.0;
    }
    let (low, high) = (grid[best.saturating_sub(1)], grid[(best + 1).min(grid.len() - 1)]);
    halved(low, high, rises)
}

fn range(lifts: &[PastLift]) -> f64 {
    let values = lifts.iter().map(|lift| lift.value);
    let (least, most) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| {
        (least.min(value), most.max(value))
    });
    most - least
}

fn smallest_error(lifts: &[PastLift]) -> f64 {
    lifts.iter().map(|lift| lift.error).fold(f64::INFINITY, f64::min)
}

/// Where `holds` ends, which it does once between `low` and `high`.
fn halved(mut low: f64, mut high: f64, holds: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..HALVINGS {
        let middle = 0.5 * (low + high);
        if holds(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}
