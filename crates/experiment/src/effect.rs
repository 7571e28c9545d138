//! The difference between two arms: absolute and relative, with interval and p-value.
//!
//! # Invariants
//! - The result is an [`Estimate`] of finite numbers or a [`StatsError`] that says why there is
//!   none; NaN never gets out.
//! - `p` tests the scale it stands on: the p-value of a lift is not that of the difference,
//!   because the lift also carries the error of the control mean.
//!
//! # Not here
//! No decision and no correction for many comparisons (`multiplicity`), no health (`health`).

use crate::definition::Shape;
use crate::distribution::{normal_isf, normal_sf, t_isf, t_sf};
use crate::moments::Moments;

/// Why there is no estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StatsError {
    #[error("{0} has no users")]
    EmptyArm(Side),
    #[error("{0} has a single user; an error needs two")]
    TooFewUsers(Side),
    #[error("{0} holds a value that is infinite, not a number, or too large to square")]
    NotFinite(Side),
    #[error("all users of {0} have the same value, so there is no error to compare with")]
    ZeroVariance(Side),
    #[error("the control mean is 0, so a relative lift is undefined")]
    ZeroControlMean,
    #[error("the denominator of {0} sums to 0")]
    ZeroDenominator(Side),
    #[error("counts of users and planned shares do not make a test")]
    NoShares,
    #[error("there are no values, or several groups put together, so there is no quantile")]
    NoQuantile,
    #[error("{0} is outside its range")]
    OutOfRange(&'static str),
}

impl StatsError {
    /// A stable name for programs: "zero_variance" and the like.
    pub fn code(&self) -> &'static str {
        match self {
            Self::EmptyArm(_) => "empty_arm",
            Self::TooFewUsers(_) => "too_few_users",
            Self::NotFinite(_) => "not_finite",
            Self::ZeroVariance(_) => "zero_variance",
            Self::ZeroControlMean => "zero_control_mean",
            Self::ZeroDenominator(_) => "zero_denominator",
            Self::NoShares => "no_shares",
            Self::NoQuantile => "no_quantile",
            Self::OutOfRange(_) => "out_of_range",
        }
    }
}

/// One of the two arms of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Control,
    Treatment,
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Control => "the control",
            Self::Treatment => "the variant",
        })
    }
}

/// What one arm contributes to a comparison. All variances are per user: divided by `users` they
/// are squared standard errors.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ArmFigure {
    pub users: u64,
    /// Mean, share or ratio; after adjustment, if there is one.
    pub value: f64,
    pub variance: f64,
    /// The same before adjustment: lifts divide by it.
    pub raw_value: f64,
    /// Of a treatment: where the delta method's gradient of the lift is taken.
    pub gradient_value: f64,
    pub raw_variance: f64,
    /// Covariance of the adjusted with the raw figure.
    pub raw_covariance: f64,
}

/// A sum of so small a share of its terms is what rounding leaves of 0: 10,000 steps of 2^-53.
const NOISE: f64 = 1e-12;

/// A variance from its terms, or 0 if it is nothing but their rounding: a ratio that is the same for
/// all users has no variance, and is no covariate.
pub(crate) fn without_noise(terms: [f64; 3]) -> f64 {
    unless_noise(terms.iter().sum(), terms.map(f64::abs).iter().sum())
}

/// The same of a sum whose terms have this size.
pub(crate) fn unless_noise(sum: f64, size: f64) -> f64 {
    if size.is_finite() && sum.abs() <= NOISE * size { 0.0 } else { sum }
}

impl ArmFigure {
    pub(crate) fn plain(users: u64, value: f64, variance: f64) -> Self {
        Self {
            users,
            value,
            variance,
            raw_value: value,
            gradient_value: value,
            raw_variance: variance,
            raw_covariance: variance,
        }
    }

    /// Mean of column `i`.
    pub fn mean(moments: &Moments, i: usize) -> Self {
        Self::plain(moments.count(), moments.mean(i), moments.variance(i))
    }

    /// Share of users with 1 in a 0/1 column. The variance is `p (1 - p)`, without the `n - 1`
    /// of a sample, as GrowthBook's gbstats has it.
    pub fn proportion(moments: &Moments, i: usize) -> Self {
        let share = moments.mean(i);
        Self::plain(moments.count(), share, share * (1.0 - share))
    }

    /// Sum of column `m` over sum of column `d`, with the delta method's variance: users, not
    /// rows, are the unit that was randomised.
    ///
    /// # Source
    /// Deng, Knoblich & Lu, "Applying the Delta Method in Metric Analytics", KDD 2018.
    pub fn ratio(moments: &Moments, m: usize, d: usize) -> Self {
        let ratio = moments.mean(m) / moments.mean(d);
        let (sum, size) = moments.ratio_covariance([m, d], [m, d]);
        let linearised = unless_noise(sum, size);
        let variance = linearised / (moments.mean(d) * moments.mean(d));
        Self::plain(moments.count(), ratio, variance)
    }

    /// The figure of a shape from its group of moments, without adjustment.
    ///
    /// # Errors
    /// [`StatsError`] for an empty arm, a value that is not finite or a denominator of 0.
    pub fn of(shape: Shape, moments: &Moments, side: Side) -> Result<Self, StatsError> {
        if moments.count() == 0 {
            return Err(StatsError::EmptyArm(side));
        }
        if !moments.is_finite() {
            return Err(StatsError::NotFinite(side));
        }
        let figure = match shape {
            Shape::Proportion => Self::proportion(moments, 0),
            Shape::Mean => Self::mean(moments, 0),
            Shape::Ratio if moments.mean(1) == 0.0 => {
                return Err(StatsError::ZeroDenominator(side));
            }
            Shape::Ratio => Self::ratio(moments, 0, 1),
            // Quantiles are no function of moments.
            Shape::Quantile => return Err(StatsError::OutOfRange("the figure's shape")),
        };
        if figure.value.is_finite() { Ok(figure) } else { Err(StatsError::NotFinite(side)) }
    }

    pub(crate) fn check(&self, side: Side) -> Result<(), StatsError> {
        if self.users < 2 {
            return Err(StatsError::TooFewUsers(side));
        }
        if !self.value.is_finite() || !self.variance.is_finite() {
            return Err(StatsError::NotFinite(side));
        }
        if self.variance <= 0.0 {
            return Err(StatsError::ZeroVariance(side));
        }
        Ok(())
    }

    pub(crate) fn squared_error(&self) -> f64 {
        self.variance / self.users as f64
    }

    /// How many standard errors the raw mean lies from 0. Below 10 the delta method's relative
    /// interval is only roughly right, and Fieller's is better.
    pub fn baseline_strength(&self) -> f64 {
        self.raw_value.abs() / (self.raw_variance / self.users as f64).sqrt()
    }
}

/// A difference with its error. Relative estimates are fractions: 0.05 means +5 %.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    pub value: f64,
    /// Standard error.
    pub error: f64,
    /// Degrees of freedom; infinite where the normal distribution is used.
    pub df: f64,
    /// Ends of the interval that covers `1 - alpha`.
    pub low: f64,
    pub high: f64,
    /// Two-sided, of no difference on this scale.
    pub p: f64,
}

impl Estimate {
    /// Student's t interval and two-sided p-value around `value`.
    pub(crate) fn student(value: f64, error: f64, df: f64, alpha: f64) -> Self {
        let half = t_isf(alpha / 2.0, df) * error;
        let p = 2.0 * t_sf((value / error).abs(), df);
        Self { value, error, df, low: value - half, high: value + half, p }
    }

    /// Refuses what left the range of `f64` on the way: huge means, vanishing errors.
    pub(crate) fn checked(self) -> Result<Self, StatsError> {
        if self.error == 0.0 {
            return Err(StatsError::ZeroVariance(Side::Control));
        }
        let finite = [self.value, self.error, self.low, self.high, self.p];
        if finite.iter().all(|number| number.is_finite()) {
            Ok(self)
        } else {
            Err(StatsError::NotFinite(Side::Treatment))
        }
    }
}

/// Difference `treatment - control` in the metric's own unit, by Welch's test.
///
/// # Errors
/// [`StatsError::TooFewUsers`], [`StatsError::NotFinite`] or [`StatsError::ZeroVariance`] of
/// either side.
///
/// # Examples
/// ```
/// use uplake_experiment::effect::{ArmFigure, absolute};
/// use uplake_experiment::Moments;
/// let control = ArmFigure::mean(&Moments::from_summary(1000, &[10.0], &[4.0]), 0);
/// let treatment = ArmFigure::mean(&Moments::from_summary(1000, &[10.5], &[4.0]), 0);
/// let difference = absolute(&control, &treatment, 0.05)?;
/// assert!((difference.value - 0.5).abs() < 1e-12);
/// assert!((difference.error - 0.0894427).abs() < 1e-6);
/// # Ok::<(), uplake_experiment::effect::StatsError>(())
/// ```
///
/// # Source
/// Welch, "The generalization of Student's problem when several different population variances
/// are involved", Biometrika 34, 1947.
pub fn absolute(
    control: &ArmFigure,
    treatment: &ArmFigure,
    alpha: f64,
) -> Result<Estimate, StatsError> {
    control.check(Side::Control)?;
    treatment.check(Side::Treatment)?;
    let error = (control.squared_error() + treatment.squared_error()).sqrt();
    let value = treatment.value - control.value;
    Estimate::student(value, error, welch_df(control, treatment), alpha).checked()
}

/// Lift `treatment / control - 1`: 0.05 means +5 %. The sign follows the difference, also where
/// the control mean is negative.
///
/// The error is the delta method's, which treats the control mean as random; dividing the
/// difference's error by a fixed control mean would be too narrow. With an adjustment (CUPED)
/// the adjusted difference is divided by the control mean before adjustment.
///
/// # Errors
/// As [`absolute`], and [`StatsError::ZeroControlMean`].
///
/// # Source
/// Deng, Knoblich & Lu, "Applying the Delta Method in Metric Analytics", KDD 2018; the same
/// choice as GrowthBook's gbstats.
pub fn relative(
    control: &ArmFigure,
    treatment: &ArmFigure,
    alpha: f64,
) -> Result<Estimate, StatsError> {
    control.check(Side::Control)?;
    treatment.check(Side::Treatment)?;
    let base = control.raw_value;
    if base == 0.0 {
        return Err(StatsError::ZeroControlMean);
    }
    let users = control.users as f64;
    let difference = treatment.value - control.value;
    let lift = treatment.gradient_value / base - 1.0;
    // Var(D/b) = Var(D)/b^2 - 2 D Cov(D, b)/b^3 + D^2 Var(b)/b^4, and Cov(D, b) < 0 because b is
    // part of D with a minus sign.
    let spread = control.squared_error() + treatment.squared_error();
    let with_base = 2.0 * lift * control.raw_covariance / users;
    let of_base = lift * lift * control.raw_variance / users;
    let error = ((spread + with_base + of_base) / (base * base)).sqrt();
    let value = difference / base.abs();
    Estimate::student(value, error, welch_df(control, treatment), alpha).checked()
}

/// Welch and Satterthwaite's degrees of freedom.
pub(crate) fn welch_df(control: &ArmFigure, treatment: &ArmFigure) -> f64 {
    let (a, b) = (control.squared_error(), treatment.squared_error());
    let own = |share: f64, users: u64| share * share / (users - 1) as f64;
    (a + b) * (a + b) / (own(a, control.users) + own(b, treatment.users))
}

/// Lift with Fieller's interval, which stays right when the control mean is uncertain (fewer
/// than about ten standard errors from 0). Normal quantiles; `error` is the delta method's, and
/// `p` is that of the difference, because the interval holds 0 exactly when the difference's does.
///
/// # Errors
/// As [`relative`], and [`StatsError::ZeroControlMean`] also when the control mean cannot be told
/// from 0 at `alpha`: the interval is then unbounded.
///
/// # Source
/// Fieller, "Some problems in interval estimation", JRSS B 16, 1954.
pub fn relative_fieller(
    control: &ArmFigure,
    treatment: &ArmFigure,
    alpha: f64,
) -> Result<Estimate, StatsError> {
    let delta = relative(control, treatment, alpha)?;
    let z = normal_isf(alpha / 2.0);
    let base = control.value;
    let (a, b) = (control.squared_error(), treatment.squared_error());
    let g = z * z * a / (base * base);
    if g >= 1.0 {
        return Err(StatsError::ZeroControlMean);
    }
    let ratio = treatment.value / base;
    let centre = ratio / (1.0 - g);
    let half = z / base.abs() * (b * (1.0 - g) + ratio * ratio * a).sqrt() / (1.0 - g);
    // A negative control mean turns the ratio's direction, not the difference's.
    let sign = base.signum();
    let (first, second) = (sign * (centre - half - 1.0), sign * (centre + half - 1.0));
    let difference = (treatment.value - base) / (a + b).sqrt();
    Estimate {
        low: first.min(second),
        high: first.max(second),
        df: f64::INFINITY,
        p: 2.0 * normal_sf(difference.abs()),
        ..delta
    }
    .checked()
}

/// A relative change that is too much, and its side.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Margin {
    /// Lower by this share of the control or more is worse.
    Below(f64),
    /// Higher by this share or more is worse.
    Above(f64),
}

/// How far the treatment is on the good side of the margin (0.1: 10 % of the control mean), in
/// the metric's unit: `treatment - (1 - margin) control`, or above, `(1 + margin) control -
/// treatment`. So the margin moves with the control mean, whose error counts. Normal quantiles.
///
/// # Errors
/// As [`absolute`], and [`StatsError::OutOfRange`] unless the margin is in 0..1.
///
/// # Source
/// Ratio-margin test; see Hauschke et al., "Sample size determination for proving equivalence
/// based on the ratio of two means", Statistics in Medicine 18, 1999.
pub fn non_inferiority(
    control: &ArmFigure,
    treatment: &ArmFigure,
    margin: Margin,
    alpha: f64,
) -> Result<Estimate, StatsError> {
    control.check(Side::Control)?;
    treatment.check(Side::Treatment)?;
    let (kept, sign, margin) = match margin {
        Margin::Below(margin) => (1.0 - margin, 1.0, margin),
        Margin::Above(margin) => (1.0 + margin, -1.0, margin),
    };
    if !(0.0..1.0).contains(&margin) {
        return Err(StatsError::OutOfRange("margin"));
    }
    let error = (treatment.squared_error() + kept * kept * control.squared_error()).sqrt();
    let value = sign * (treatment.value - kept * control.value);
    let half = normal_isf(alpha / 2.0) * error;
    let p = 2.0 * normal_sf((value / error).abs());
    let df = f64::INFINITY;
    Estimate { value, error, df, low: value - half, high: value + half, p }.checked()
}

/// One-sided p-value that the treatment is worse than the control by the margin or more.
///
/// # Errors
/// As [`non_inferiority`].
pub fn non_inferiority_p(
    control: &ArmFigure,
    treatment: &ArmFigure,
    margin: Margin,
) -> Result<f64, StatsError> {
    let distance = non_inferiority(control, treatment, margin, 0.05)?;
    Ok(normal_sf(distance.value / distance.error))
}

/// One-sided p-value against a margin fixed in the metric's own unit: the treatment is worse than
/// the control by `margin` or more.
///
/// # Errors
/// As [`absolute`].
pub fn non_inferiority_fixed_p(
    control: &ArmFigure,
    treatment: &ArmFigure,
    margin: f64,
) -> Result<f64, StatsError> {
    let difference = absolute(control, treatment, 0.05)?;
    Ok(t_sf((difference.value + margin) / difference.error, difference.df))
}
