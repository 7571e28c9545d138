//! Looking at results before the end without fooling oneself.
//!
//! Two ways: a confidence sequence holds at every look, forever, and is wide; a group sequential
//! test holds at looks planned in units of information, and costs almost nothing at the last.
//! Over 28 daily looks of an A/A test a fixed test rejects in 28 %, either of these in under 5 %.
//!
//! # Not here
//! No schedule of looks and no clock.

use std::ops::Range;

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
    confidence_sequence_tuned(estimate, users, planned_users, alpha, alpha)
}

/// The same with an interval of another level than the one that the sequence is tuned for; p is of the tuning.
pub(crate) fn confidence_sequence_tuned(
    estimate: &Estimate,
    users: u64,
    planned_users: u64,
    alpha: f64,
    tuned_for: f64,
) -> Result<AnytimeEstimate, StatsError> {
    let tuned = tune(users, planned_users, alpha, tuned_for)?;
    let boundary = 2.0 * tuned.growth / tuned.scaled.powi(2) * (tuned.growth.sqrt() / alpha).ln();
    let half = estimate.error * (tuned.users * boundary).sqrt();
    let z = estimate.value / estimate.error;
    let evidence = tuned.rho_squared * z * z * tuned.users / (2.0 * tuned.growth);
    let p = (tuned.growth.sqrt() * (-evidence).exp()).min(1.0);
    let (low, high) = (estimate.value - half, estimate.value + half);
    Ok(AnytimeEstimate { value: estimate.value, low, high, p })
}

/// The estimate of one look with the interval and p-value of [`confidence_sequence`].
///
/// # Errors
/// As [`confidence_sequence`], and [`StatsError::NotFinite`] if the interval leaves the range of `f64`.
pub fn anytime(
    estimate: Estimate,
    users: u64,
    planned_users: u64,
    alpha: f64,
) -> Result<Estimate, StatsError> {
    let always = confidence_sequence(&estimate, users, planned_users, alpha)?;
    let (low, high, p) = (always.low, always.high, always.p);
    Estimate { df: f64::INFINITY, low, high, p, ..estimate }.checked()
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
        return Err(StatsError::OutOfRange("alpha must lie between 0 and 1"));
    }
    if users == 0 || planned == 0 {
        return Err(StatsError::OutOfRange("there are too few users for an interval at any time"));
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
        return Err(StatsError::OutOfRange("there are too few users for an interval at any time"));
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
/// information fraction `t`. `fractions`: rising, within (0, 1], users so far over users planned;
/// before the last at least 0.00001 apart. Bounds are right to 1e-11. Works with CUPED and ratios,
/// whose z-values are normal like any other.
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
/// integration as Armitage, McPherson & Rowe, JRSS A 132, 1969, by Gauss and Legendre's rule.
pub fn group_sequential_bounds(
    fractions: &[f64],
    alpha: f64,
    sides: Sides,
) -> Result<Vec<f64>, StatsError> {
    let rising = fractions.windows(2).all(|pair| pair[0] < pair[1]);
    let inside = fractions.iter().all(|t| *t > 0.0 && *t <= 1.0);
    let before_last = &fractions[..fractions.len().saturating_sub(1)];
    let apart = before_last.windows(2).all(|pair| pair[1] - pair[0] >= CLOSEST_LOOKS);
    if fractions.is_empty() || !rising || !inside || !apart {
        return Err(StatsError::OutOfRange("looks must follow each other, apart, up to all users"));
    }
    if !(alpha > 0.0 && alpha < 0.5) {
        return Err(StatsError::OutOfRange("alpha must lie between 0 and 0.5"));
    }
    let side_share = if sides == Sides::Two { 0.5 } else { 1.0 };
    Ok(bounds_of(fractions, sides, |t| side_share * alpha * t * t))
}

/// The chance that a two-sided group sequential test, with looks and spending as [`group_sequential_bounds`] has
/// them, rejects at some look when the statistic of all users has this mean.
///
/// # Errors
/// As [`group_sequential_bounds`].
pub fn group_sequential_power(fractions: &[f64], alpha: f64, mean: f64) -> Result<f64, StatsError> {
    let stay = never_stopped(fractions, alpha)?;
    Ok(1.0 - stay.share(mean, fractions[fractions.len() - 1]))
}

/// The mean of the statistic of all users that such a test finds with this chance; 2.80 with one look, 5 % and
/// 80 %. Its square, over that of one look, is by how much more users are needed.
///
/// # Errors
/// As [`group_sequential_bounds`], and [`StatsError::OutOfRange`] for a power outside (alpha, 1).
pub fn group_sequential_mean(fractions: &[f64], alpha: f64, power: f64) -> Result<f64, StatsError> {
    if !(power > alpha && power < 1.0) {
        return Err(StatsError::OutOfRange("the power must lie between alpha and 1"));
    }
    let (stay, last) = (never_stopped(fractions, alpha)?, fractions.last().copied().unwrap_or(1.0));
    let (mut low, mut high) =
        (0.0, 2.0 * (normal_isf(alpha / 2.0) + normal_isf(1.0 - power)).max(1.0));
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if 1.0 - stay.share(middle, last) < power {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(0.5 * (low + high))
}

/// Trials without an effect that no look stops, the last included.
fn never_stopped(fractions: &[f64], alpha: f64) -> Result<Path, StatsError> {
    let bounds = group_sequential_bounds(fractions, alpha, Sides::Two)?;
    let mut path = Path::start();
    let mut before = 0.0;
    for (look, (t, bound)) in fractions.iter().zip(bounds).enumerate() {
        let deviation = (t - before).sqrt();
        let next = fractions.get(look + 1).map_or(deviation, |next| (next - t).sqrt());
        let stay = bound * t.sqrt();
        path = path.advance(deviation, -stay..stay, next);
        before = *t;
    }
    Ok(path)
}

/// The bounds of looks that spend `spent` of each side's error by information fraction.
fn bounds_of(fractions: &[f64], sides: Sides, spent: impl Fn(f64) -> f64) -> Vec<f64> {
    let mut bounds = Vec::with_capacity(fractions.len());
    let mut path = Path::start();
    let (mut before, mut spent_before) = (0.0, 0.0);
    for (look, t) in fractions.iter().enumerate() {
        let deviation = (*t - before).sqrt();
        let spent = spent(*t);
        let bound = path.bound(deviation, spent - spent_before);
        bounds.push(bound / t.sqrt());
        if let Some(next) = fractions.get(look + 1) {
            let next = (next - t).sqrt();
            let mut floor = if sides == Sides::Two { -bound } else { -FAR * t.sqrt() };
            if look + 2 == fractions.len() {
                // From farther away nobody reaches the last bound, be its look ever so soon.
                floor = floor.max(bound - 2.0 * FAR * next);
            }
            path = path.advance(deviation, floor..bound, next);
        }
        (before, spent_before) = (*t, spent);
    }
    bounds
}

/// Levels between which p-values are interpolated.
const LEVELS: [f64; 17] = [
    0.98, 0.9, 0.7, 0.5, 0.35, 0.2, 0.1, 0.05, 0.02, 0.01, 4e-3, 1e-3, 2e-4, 2e-5, 1e-6, 1e-8,
    1e-11,
];

/// p-values of a group sequential test at its last look: the smallest alpha at which the test, with the same
/// looks and the same way of spending, rejects at it. So they are right at every level, as corrections for many
/// comparisons need them.
///
/// # Source
/// Liu & Anderson, "On adaptive extensions of group sequential trials for clinical investigations", JASA 103,
/// 2008; Maurer & Bretz, "Multiple testing in group sequential trials using graphical approaches", Statistics in
/// Biopharmaceutical Research 5, 2013.
#[derive(Debug, Clone)]
pub struct SequentialP {
    /// Critical |z|, rising, and the logarithm of its level over that of the last look alone.
    nodes: Vec<(f64, f64)>,
    /// Of the error, what the last look may spend.
    share: f64,
    /// A level, and the critical |z| of the last look at it.
    exact: f64,
    critical: f64,
}

impl SequentialP {
    /// `fractions` as for [`group_sequential_bounds`]; `exact`: a level whose bound p-values pass exactly.
    ///
    /// # Errors
    /// As [`group_sequential_bounds`].
    pub fn new(fractions: &[f64], exact: f64) -> Result<Self, StatsError> {
        let bounds = group_sequential_bounds(fractions, exact, Sides::Two)?;
        let bound = bounds[bounds.len() - 1];
        let (last, before) = (fractions[fractions.len() - 1], fractions.iter().rev().nth(1));
        let share = last * last - before.map_or(0.0, |before| before * before);
        let critical = |level: f64| {
            let bounds = bounds_of(fractions, Sides::Two, |t| 0.5 * level * t * t);
            (bounds[bounds.len() - 1], level)
        };
        // With a single look there is nothing to interpolate.
        let levels = if before.is_some() { &LEVELS[..] } else { &[] };
        let levels = levels.iter().copied().filter(|level| (level / exact - 1.0).abs() > 0.1);
        let mut nodes: Vec<(f64, f64)> = levels.map(critical).collect();
        nodes.push((bound, exact));
        nodes.sort_by(|a, b| a.0.total_cmp(&b.0));
        let alone = |z: f64| 2.0 * normal_sf(z) / share;
        let nodes = nodes.into_iter().map(|(z, level)| (z, (level / alone(z)).ln())).collect();
        Ok(Self { nodes, share, exact, critical: bound })
    }

    /// Critical |z| of the last look at the exact level.
    pub fn critical(&self) -> f64 {
        self.critical
    }

    /// The same at another level, as exact as [`Self::p`].
    pub(crate) fn critical_at(&self, level: f64) -> f64 {
        if level == self.exact {
            return self.critical;
        }
        let (mut low, mut high) = (0.0, 40.0);
        while high - low > 1e-12 * high {
            let middle = 0.5 * (low + high);
            if self.p(middle) > level {
                low = middle;
            } else {
                high = middle;
            }
        }
        0.5 * (low + high)
    }

    /// Two-sided, of a statistic this far from 0; right to 1e-4 of itself below 0.3, else to 2e-3.
    pub fn p(&self, z: f64) -> f64 {
        let alone = 2.0 * normal_sf(z) / self.share;
        (alone * self.ratio(z).exp()).min(1.0)
    }

    /// Logarithms, by the cubic through the four nodes around.
    fn ratio(&self, z: f64) -> f64 {
        let (first, last) = (self.nodes[0], self.nodes[self.nodes.len() - 1]);
        let z = z.clamp(first.0, last.0);
        let after = self.nodes.partition_point(|(node, _)| *node < z);
        let from = after.saturating_sub(2).min(self.nodes.len().saturating_sub(4));
        let near = &self.nodes[from..self.nodes.len().min(from + 4)];
        let term = |(i, (at, value)): (usize, &(f64, f64))| {
            let others = near.iter().enumerate().filter(|(j, _)| *j != i);
            value * others.map(|(_, (other, _))| (z - other) / (at - other)).product::<f64>()
        };
        near.iter().enumerate().map(term).sum()
    }
}

/// Today's look of a group sequential test with evenly spaced looks.
#[derive(Debug, Clone)]
pub struct Look {
    pub(crate) p: SequentialP,
    /// Users are near one of the planned looks. In between nothing may be called: a plan of four
    /// looks that is read every day rejects 6.7 % of A/A tests.
    pub planned: bool,
}

/// Users come when they come: this share of the plan before or after a look is at it.
const LOOK_TOLERANCE: f64 = 0.02;

impl Look {
    /// At `users` of `planned`, after the planned looks before it.
    ///
    /// # Errors
    /// As [`group_sequential_bounds`].
    pub fn at(users: u64, planned: u64, looks: u32, alpha: f64) -> Result<Self, StatsError> {
        let now = (users.max(1) as f64 / planned as f64).min(1.0);
        let looks: Vec<f64> = (1..=looks).map(|look| f64::from(look) / f64::from(looks)).collect();
        let planned = looks.iter().any(|look| (look - now).abs() <= LOOK_TOLERANCE);
        let mut fractions = looks;
        fractions.retain(|fraction| *fraction < now * (1.0 - 1e-9));
        fractions.push(now);
        let p = SequentialP::new(&fractions, alpha)?;
        Ok(Self { p, planned })
    }

    /// What the estimate of one look is worth at this one.
    ///
    /// # Errors
    /// [`StatsError::NotFinite`] if its interval leaves the range of `f64`.
    pub fn apply(&self, estimate: Estimate) -> Result<Estimate, StatsError> {
        let half = self.p.critical() * estimate.error;
        let p = self.p.p((estimate.value / estimate.error).abs());
        let (low, high) = (estimate.value - half, estimate.value + half);
        Estimate { df: f64::INFINITY, low, high, p, ..estimate }.checked()
    }
}

/// Information between looks before the last at least: one user in 100,000. The grid of a look has
/// points in proportion to `1 / sqrt` of it, here up to 20,000.
const CLOSEST_LOOKS: f64 = 1e-5;

/// Where a one-sided path counts as lost: P(Z < -8) is 6e-16.
const FAR: f64 = 8.0;

/// Beyond so many deviations a step adds nothing to any tail: the normal density is 1e-56 there.
const REACH: f64 = 16.0;

/// Deviations of the shorter of two steps that one panel of the grid spans. With 16 points bounds are
/// then right to 1e-14; at 6 deviations to 1e-10.
const PANEL: f64 = 4.0;

/// Points and weights of Gauss and Legendre's rule of 16 points on -1..1, the positive half.
const GAUSS: [(f64, f64); 8] = [
    (0.095_012_509_837_637_44, 0.189_450_610_455_068_64),
    (0.281_603_550_779_258_9, 0.182_603_415_044_923_64),
    (0.458_016_777_657_227_37, 0.169_156_519_395_002_65),
    (0.617_876_244_402_643_8, 0.149_595_988_816_576_7),
    (0.755_404_408_355_003, 0.124_628_971_255_534_07),
    (0.865_631_202_387_831_8, 0.095_158_511_682_492_6),
    (0.944_575_023_073_232_6, 0.062_253_523_938_647_456),
    (0.989_400_934_991_649_9, 0.027_152_459_411_754_176),
];

/// Density of the score `z sqrt(t)` of trials that go on, at the points of panels.
struct Path {
    /// Rising.
    points: Vec<f64>,
    /// Density times the point's weight.
    mass: Vec<f64>,
}

impl Path {
    fn start() -> Self {
        Self { points: vec![0.0], mass: vec![1.0] }
    }

    /// The score above which `target` of the trials stop after a step with this deviation.
    fn bound(&self, deviation: f64, target: f64) -> f64 {
        // Trials that stop above the bound, and their density at it.
        let stops = |bound: f64| -> (f64, f64) {
            let from = self.points.partition_point(|point| *point < bound - REACH * deviation);
            let mut sums = (0.0, 0.0);
            for (point, mass) in self.points[from..].iter().zip(&self.mass[from..]) {
                let z = (bound - point) / deviation;
                sums.0 += mass * normal_sf(z);
                sums.1 += mass * normal_pdf(z) / deviation;
            }
            sums
        };
        let (mut low, mut high) = (-FAR, 2.0 * FAR);
        // Near the last bound, below which all trials are.
        let mut bound = self.points.last().map_or(0.0, |point| point + deviation);
        // Newton, kept between ends that close in: a bound takes five steps, and halving alone
        // would take 80.
        for _ in 0..80 {
            let (share, density) = stops(bound);
            // In logs the tail is nearly straight.
            let step = (share / target).ln() * share / density;
            // Newton squares the error.
            if step.abs() <= 1e-9 * deviation {
                return bound + step;
            }
            if share > target {
                low = bound;
            } else {
                high = bound;
            }
            let next = bound + step;
            bound = if next > low && next < high { next } else { 0.5 * (low + high) };
        }
        bound
    }

    /// Trials that are in `stay` after a step with this deviation, at points close enough for one
    /// with the deviation `next`.
    fn advance(&self, deviation: f64, stay: Range<f64>, next: f64) -> Self {
        let width = stay.end - stay.start;
        let panels = (width / (PANEL * deviation.min(next))).ceil().max(1.0);
        let half = 0.5 * width / panels;
        let mut path = Self { points: Vec::new(), mass: Vec::new() };
        for panel in 0..panels as usize {
            let middle = stay.start + half * (2 * panel + 1) as f64;
            let below = GAUSS.iter().rev().map(|(place, weight)| (-place, weight));
            let above = GAUSS.iter().map(|(place, weight)| (*place, weight));
            for (place, weight) in below.chain(above) {
                let point = middle + half * place;
                path.points.push(point);
                path.mass.push(self.density(point, deviation) * weight * half);
            }
        }
        path
    }

    /// The share of trials that are here if scores drift by `mean` until 1; it is `at`. By the likelihood ratio.
    fn share(&self, mean: f64, at: f64) -> f64 {
        let weight = |score: f64| (mean * (score - 0.5 * mean * at)).exp();
        self.points.iter().zip(&self.mass).map(|(score, mass)| mass * weight(*score)).sum()
    }

    /// Density at `score` after a step with this deviation.
    fn density(&self, score: f64, deviation: f64) -> f64 {
        let reach = REACH * deviation;
        let from = self.points.partition_point(|point| *point < score - reach);
        let to = self.points.partition_point(|point| *point <= score + reach);
        let near = self.points[from..to].iter().zip(&self.mass[from..to]);
        let sum: f64 =
            near.map(|(point, mass)| mass * normal_pdf((score - point) / deviation)).sum();
        sum / deviation
    }
}

/// Critical z of a single look at the end, to compare with.
pub fn fixed_bound(alpha: f64) -> f64 {
    normal_isf(alpha / 2.0)
}

#[cfg(test)]
mod tests {
    use super::{
        SequentialP, Sides, bounds_of, group_sequential_bounds, group_sequential_mean,
        group_sequential_power,
    };
    use crate::distribution::{normal_isf, normal_sf};

    fn close(found: &[f64], exact: &[f64], tolerance: f64) {
        assert_eq!(found.len(), exact.len());
        for (found, exact) in found.iter().zip(exact) {
            assert!((found - exact).abs() < tolerance, "{found} instead of {exact}");
        }
    }

    // Two looks integrated with mpmath at 25 digits.
    #[test]
    fn two_looks_agree_with_exact_integration() {
        for (sides, exact) in
            [(Sides::One, 2.470_228_522_810_306), (Sides::Two, 2.714_111_575_530_733)]
        {
            let bounds = group_sequential_bounds(&[0.2, 0.4], 0.05, sides).expect("in range");
            close(&bounds[1..], &[exact], 1e-11);
        }
    }

    #[test]
    fn power_is_alpha_without_an_effect_and_that_of_one_test_with_one_look() {
        for looks in [1, 4, 28] {
            let fractions: Vec<f64> =
                (1..=looks).map(|k| f64::from(k) / f64::from(looks)).collect();
            let none = group_sequential_power(&fractions, 0.05, 0.0).expect("in range");
            assert!((none - 0.05).abs() < 1e-9, "{looks} looks: {none}");
            let mean = group_sequential_mean(&fractions, 0.05, 0.8).expect("in range");
            let power = group_sequential_power(&fractions, 0.05, mean).expect("in range");
            assert!((power - 0.8).abs() < 1e-12, "{looks} looks: {power}");
            let one = normal_isf(0.025) - mean;
            let fixed = normal_sf(one) + normal_sf(normal_isf(0.025) + mean);
            assert_eq!((fixed - 0.8).abs() < 1e-9, looks == 1, "{looks} looks: {fixed}");
        }
    }

    #[test]
    fn p_values_are_the_levels_whose_bounds_are_reached() {
        for looks in [1, 2, 4, 28] {
            let fractions: Vec<f64> =
                (1..=looks).map(|k| f64::from(k) / f64::from(looks)).collect();
            let p = SequentialP::new(&fractions, 0.05).expect("in range");
            let critical = |level: f64| {
                let bounds = bounds_of(&fractions, Sides::Two, |t| 0.5 * level * t * t);
                bounds[bounds.len() - 1]
            };
            for level in [0.95, 0.6, 0.4, 0.15, 0.03, 0.0125, 0.005, 2.5e-3, 5e-4, 5e-5, 3e-7, 1e-9]
            {
                let found = p.p(critical(level));
                let room = if level < 0.3 { 1e-4 } else { 1e-3 };
                assert!((found / level - 1.0).abs() < room, "{looks} looks: {found} for {level}");
            }
            assert!((p.p(critical(0.05)) / 0.05 - 1.0).abs() < 1e-12);
            let mut before = 1.0;
            for step in 0..=4000 {
                let found = p.p(f64::from(step) * 0.01);
                assert!(found <= before, "{looks} looks, step {step}: {found} above {before}");
                before = found;
            }
            assert!(before == 0.0 && (p.p(0.0) - 1.0).abs() < 1e-12);
        }
    }

    // By Simpson's rule with 6,001 points a look, in NumPy.
    #[test]
    fn more_looks_agree_with_a_finer_rule() {
        for exact in [
            &[
                3.090232306167813,
                2.714111575530735,
                2.472777201913631,
                2.279863269315949,
                2.1140274230478,
            ][..],
            &[2.955166847497838, 2.559350156122401, 2.300855297779909, 2.09196639182348],
        ] {
            let looks = exact.len();
            let fractions: Vec<f64> = (1..=looks).map(|k| k as f64 / looks as f64).collect();
            let bounds = group_sequential_bounds(&fractions, 0.05, Sides::Two).expect("in range");
            close(&bounds, exact, 1e-11);
        }
    }

    // R's ldbounds and gsDesign publish them with four digits; the further ones are NumPy's, as above.
    #[test]
    fn spending_like_obrien_and_fleming_gives_the_published_bounds() {
        let start = normal_isf(0.0125);
        let spent = |t: f64| 2.0 * normal_sf(start / t.sqrt());
        for exact in [
            &[
                4.876884948790766,
                3.357011921574644,
                2.680280064544994,
                2.289816767711963,
                2.031032043310067,
            ][..],
            &[4.332633646051614, 2.963131597679905, 2.359044285300954, 2.014090143930873],
        ] {
            let looks = exact.len();
            let fractions: Vec<f64> = (1..=looks).map(|k| k as f64 / looks as f64).collect();
            close(&bounds_of(&fractions, Sides::Two, spent), exact, 1e-10);
        }
    }

    #[test]
    fn a_look_right_after_another_costs_and_spends_next_to_nothing() {
        let quarters = group_sequential_bounds(&[0.25, 0.5], 0.05, Sides::Two).expect("in range");
        for after in [1e-6_f64, 1e-9] {
            let fractions = [0.25, 0.5, 0.5 + after];
            let bounds = group_sequential_bounds(&fractions, 0.05, Sides::Two).expect("in range");
            assert_eq!(bounds[..2], quarters);
            let gap = bounds[2] - bounds[1];
            assert!(gap > 0.0 && gap < 10.0 * after.sqrt(), "{gap} after {after}");
        }
    }

    #[test]
    fn looks_out_of_order_are_refused() {
        for fractions in [&[0.5, 0.5][..], &[0.0, 1.0], &[0.5, 1.1], &[], &[0.5, 0.500_001, 1.0]] {
            assert!(group_sequential_bounds(fractions, 0.05, Sides::Two).is_err());
        }
    }
}
