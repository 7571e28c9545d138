//! Looking at results before the end without fooling oneself.
//!
//! Two ways: a confidence sequence holds at every look, forever, and is wide; a group sequential
//! test holds at looks planned in units of information, and costs almost nothing at the last.
//! Over 28 daily looks of an A/A test a fixed test rejects in 28 %, either of these in under 5 %.
//!
//! # Not here
//! No schedule of looks and no clock.

use crate::distribution::{normal_isf, normal_pdf, normal_sf};
use crate::effect::{ArmFigure, Estimate, Side, StatsError};

/// An interval and p-value that hold at every look at once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AnytimeEstimate {
    pub value: f64,
    pub low: f64,
    /// Infinite for [`confidence_sequence_above`].
    pub high: f64,
    /// At most 1; valid whenever one stops.
    pub p: f64,
}

/// Two-sided asymptotic confidence sequence. `users`: both arms together, now; `planned_users`:
/// where the interval should be tightest. Plan it: at N* = 5,000 and a million users the interval
/// is 1.4 times as wide as at N* = 1,000,000.
///
/// # Errors
/// [`StatsError::OutOfRange`] unless `alpha` lies in (0, 1) and both counts are above 0.
///
/// # Source
/// Waudby-Smith, Arbour, Sinha, Kennedy & Ramdas, "Time-uniform central limit theory and
/// asymptotic confidence sequences", Annals of Statistics 52, 2024, as gbstats uses it.
pub fn confidence_sequence(
    estimate: &Estimate,
    users: u64,
    planned_users: u64,
    alpha: f64,
) -> Result<AnytimeEstimate, StatsError> {
    let tuned = tune(users, planned_users, alpha, alpha)?;
    let boundary = 2.0 * tuned.growth / tuned.scaled.powi(2) * (tuned.growth.sqrt() / alpha).ln();
    let half = estimate.error * (tuned.users * boundary).sqrt();
    let z = estimate.value / estimate.error;
    let evidence = tuned.rho_squared * z * z * tuned.users / (2.0 * tuned.growth);
    let p = (tuned.growth.sqrt() * (-evidence).exp()).min(1.0);
    let (low, high) = (estimate.value - half, estimate.value + half);
    Ok(AnytimeEstimate { value: estimate.value, low, high, p })
}

/// One-sided confidence sequence: a lower bound that holds at every look. Mirror the estimate
/// for an upper one.
///
/// # Errors
/// As [`confidence_sequence`], and unless `alpha` lies below 0.5.
///
/// # Source
/// As [`confidence_sequence`]. gbstats finds the p-value by a bisection that stops at about
/// 1e-3; here it is in closed form.
pub fn confidence_sequence_above(
    estimate: &Estimate,
    users: u64,
    planned_users: u64,
    alpha: f64,
) -> Result<AnytimeEstimate, StatsError> {
    let tuned = tune(users, planned_users, alpha, 2.0 * alpha)?;
    let root = tuned.growth.sqrt();
    let boundary = 2.0 * tuned.growth / tuned.scaled.powi(2) * (root / (2.0 * alpha)).ln_1p();
    let half = estimate.error * (tuned.users * boundary).sqrt();
    let z = (estimate.value / estimate.error).max(0.0);
    let evidence = tuned.rho_squared * z * z * tuned.users / (2.0 * tuned.growth);
    let p = (root / (2.0 * evidence.exp_m1())).min(1.0);
    Ok(AnytimeEstimate {
        value: estimate.value,
        low: estimate.value - half,
        high: f64::INFINITY,
        p,
    })
}

/// The quantities both sequences share.
struct Tuned {
    users: f64,
    rho_squared: f64,
    /// N rho.
    scaled: f64,
    /// N rho^2 + 1.
    growth: f64,
}

fn tune(users: u64, planned: u64, alpha: f64, tuning_alpha: f64) -> Result<Tuned, StatsError> {
    if !(alpha > 0.0 && tuning_alpha < 1.0) {
        return Err(StatsError::OutOfRange("alpha"));
    }
    if users == 0 || planned == 0 {
        return Err(StatsError::OutOfRange("users"));
    }
    let log = -2.0 * tuning_alpha.ln();
    let rho_squared = (log + log.ln_1p()) / planned as f64;
    let users = users as f64;
    let growth = users * rho_squared + 1.0;
    Ok(Tuned { users, rho_squared, scaled: users * rho_squared.sqrt(), growth })
}

/// Two-sided confidence sequence of the difference of two means under equal variances, without
/// asymptotics: it holds from the first users on if values are normal. Its prior expects effects
/// of about one standard deviation, which makes it wide for small ones.
///
/// # Errors
/// [`StatsError`] of either arm, or [`StatsError::OutOfRange`] while users are too few for any
/// bound.
///
/// # Source
/// Lindon, Ham, Tingley & Bojinov, "Anytime-valid linear models and regression adjusted causal
/// inference in randomized experiments", 2022, with phi = 1 as savvi's default.
pub fn anytime_linear_model(
    control: &ArmFigure,
    treatment: &ArmFigure,
    alpha: f64,
) -> Result<AnytimeEstimate, StatsError> {
    control.check(Side::Control)?;
    treatment.check(Side::Treatment)?;
    let (n1, n2) = (control.users as f64, treatment.users as f64);
    let squares = (n1 - 1.0) * control.variance + (n2 - 1.0) * treatment.variance;
    let (per_user, df) = (1.0 / n1 + 1.0 / n2, n1 + n2 - 3.0);
    let error = (squares / (n1 + n2 - 2.0) * per_user).sqrt();
    let shrink = per_user / (per_user + 1.0);
    let level = (shrink * alpha * alpha).powf(1.0 / (df + 1.0));
    let half = error * (df * (1.0 - level) / (level - shrink)).sqrt();
    if df < 1.0 || !half.is_finite() {
        return Err(StatsError::OutOfRange("users"));
    }
    let value = treatment.value - control.value;
    let t_squared = (value / error).powi(2);
    let growth = (t_squared / df).ln_1p() - (shrink * t_squared / df).ln_1p();
    let evidence = 0.5 * shrink.ln() + 0.5 * (df + 1.0) * growth;
    let p = (-evidence).exp().min(1.0);
    Ok(AnytimeEstimate { value, low: value - half, high: value + half, p })
}

/// One side or both of a group sequential test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sides {
    One,
    Two,
}

/// Critical |z| per look of a group sequential test that spends `alpha * t^2` of its error by
/// information fraction `t`. `fractions`: rising, within (0, 1], users so far over users planned.
/// Works with CUPED and ratios, whose z-values are normal like any other.
///
/// # Errors
/// [`StatsError::OutOfRange`] for fractions or an alpha out of order or range.
///
/// # Examples
/// ```
/// use uplake_experiment::sequential::{Sides, group_sequential_bounds};
/// let bounds = group_sequential_bounds(&[0.5, 1.0], 0.05, Sides::Two)?;
/// assert!(bounds[0] > 2.4 && bounds[1] < 2.1);
/// # Ok::<(), uplake_experiment::effect::StatsError>(())
/// ```
///
/// # Source
/// Lan & DeMets, "Discrete sequential boundaries for clinical trials", Biometrika 70, 1983;
/// integration as Armitage, McPherson & Rowe, JRSS A 132, 1969.
pub fn group_sequential_bounds(
    fractions: &[f64],
    alpha: f64,
    sides: Sides,
) -> Result<Vec<f64>, StatsError> {
    let rising = fractions.windows(2).all(|pair| pair[0] < pair[1]);
    let inside = fractions.iter().all(|t| *t > 0.0 && *t <= 1.0);
    if fractions.is_empty() || !rising || !inside {
        return Err(StatsError::OutOfRange("information fraction"));
    }
    if !(alpha > 0.0 && alpha < 0.5) {
        return Err(StatsError::OutOfRange("alpha"));
    }
    let side_share = if sides == Sides::Two { 0.5 } else { 1.0 };
    let spent = |t: f64| side_share * alpha * t * t;
    let mut bounds = Vec::with_capacity(fractions.len());
    let mut path = Path::start();
    let mut before = 0.0;
    for (look, t) in fractions.iter().enumerate() {
        let target = spent(*t) - spent(before);
        let bound = path.bound(*t - before, target);
        bounds.push(bound / t.sqrt());
        if look + 1 < fractions.len() {
            let floor = if sides == Sides::Two { -bound } else { -FAR * t.sqrt() };
            path = path.advance(*t - before, floor, bound, fractions[look + 1] - t);
        }
        before = *t;
    }
    Ok(bounds)
}

/// Where a one-sided path counts as lost: P(Z < -8) is 6e-16.
const FAR: f64 = 8.0;

/// Density of the score `z sqrt(t)` of trials that go on, on a Simpson grid.
struct Path {
    points: Vec<f64>,
    /// Density times the grid's weight.
    mass: Vec<f64>,
}

impl Path {
    fn start() -> Self {
        Self { points: vec![0.0], mass: vec![1.0] }
    }

    /// The score above which `target` of the trials stop after `information` more.
    fn bound(&self, information: f64, target: f64) -> f64 {
        let deviation = information.sqrt();
        // Trials that stop above the bound, and their density at it.
        let stops = |bound: f64| -> (f64, f64) {
            let mut sums = (0.0, 0.0);
            for (point, mass) in self.points.iter().zip(&self.mass) {
                let z = (bound - point) / deviation;
                sums.0 += mass * normal_sf(z);
                sums.1 += mass * normal_pdf(z) / deviation;
            }
            sums
        };
        let (mut low, mut high) = (-FAR, 2.0 * FAR);
        let mut bound = normal_isf(target.clamp(1e-300, 0.5));
        // Newton, kept between ends that close in: a bound takes five steps, and halving alone
        // would take 80.
        for _ in 0..80 {
            let (share, density) = stops(bound);
            if share > target {
                low = bound
            } else {
                high = bound
            }
            // In logs the tail is nearly straight.
            let step = (share / target).ln() * share / density;
            let next = bound + step;
            let inside = next > low && next < high;
            let next = if inside { next } else { 0.5 * (low + high) };
            if (next - bound).abs() <= 1e-14 * next.abs() {
                return next;
            }
            bound = next;
        }
        bound
    }

    /// Trials that stay between `floor` and `bound`, on a grid fine enough for the next step.
    fn advance(&self, information: f64, floor: f64, bound: f64, next: f64) -> Self {
        let deviation = information.sqrt();
        // 24 points per deviation of the narrower kernel: Simpson's error is then below 1e-8.
        let step = deviation.min(next.sqrt()) / 24.0;
        let intervals = ((bound - floor) / step).ceil().clamp(64.0, 4096.0) as usize;
        let intervals = intervals + intervals % 2;
        let width = (bound - floor) / intervals as f64;
        let mut points = Vec::with_capacity(intervals + 1);
        let mut mass = Vec::with_capacity(intervals + 1);
        for index in 0..=intervals {
            let point = floor + width * index as f64;
            let parts = self.points.iter().zip(&self.mass);
            // Beyond FAR deviations the kernel adds nothing to 15 digits.
            let density: f64 = parts
                .map(|(from, mass)| (mass, (point - from) / deviation))
                .filter(|(_, z)| z.abs() < FAR)
                .map(|(mass, z)| mass * normal_pdf(z) / deviation)
                .sum();
            let weight = match index {
                i if i == 0 || i == intervals => 1.0,
                i if i % 2 == 1 => 4.0,
                _ => 2.0,
            };
            points.push(point);
            mass.push(density * weight * width / 3.0);
        }
        Self { points, mass }
    }
}

/// Critical z of a single look at the end, to compare with.
pub fn fixed_bound(alpha: f64) -> f64 {
    normal_isf(alpha / 2.0)
}

#[cfg(test)]
mod tests {
    use super::{Sides, group_sequential_bounds};

    // Two looks integrated with mpmath at 25 digits.
    #[test]
    fn two_looks_agree_with_exact_integration() {
        for (sides, exact) in
            [(Sides::One, 2.470_228_522_810_306), (Sides::Two, 2.714_111_575_530_733)]
        {
            let bounds = group_sequential_bounds(&[0.2, 0.4], 0.05, sides).expect("in range");
            assert!((bounds[1] - exact).abs() < 2e-8, "{sides:?}: {} {exact}", bounds[1]);
        }
    }

    #[test]
    fn looks_out_of_order_are_refused() {
        for fractions in [&[0.5, 0.5][..], &[0.0, 1.0], &[0.5, 1.1], &[]] {
            assert!(group_sequential_bounds(fractions, 0.05, Sides::Two).is_err());
        }
    }
}
