//! The difference between two arms: absolute and relative, with interval and p-value.
//!
//! # Invariants
//! - The result is an [`Estimate`] of finite numbers or a [`StatsError`] that says why there is
//!   none; NaN never gets out.
//! - `p` of a lift is that of the difference, and its interval leaves 0 out exactly when the difference's
//!   does; by the delta method alone ([`relative`]) it is another.
//!
//! # Not here
//! No decision and no correction for many comparisons (`multiplicity`), no health (`health`).

use serde::Serialize;

use crate::definition::Shape;
use crate::distribution::{NearTIsf, t_isf, t_sf};
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
    #[error("the control value cannot be told from 0, so there is no lift")]
    ZeroControlMean,
    #[error("the denominator of {0} sums to 0")]
    ZeroDenominator(Side),
    #[error("counts of users and planned shares do not make a test")]
    NoShares,
    #[error("a number of {0} is below 0 or not finite, so it has no log(1 + x)")]
    NoLog(Side),
    #[error("a lift of logs means nothing; their difference is about the lift of what is typical")]
    LiftOfLogs,
    #[error("there are no values, or several groups put together, so there is no quantile")]
    NoQuantile,
    #[error("only a sum or count without cap and window, outside strata, has a lift on everybody")]
    NoOverallLift,
    #[error("{0}")]
    /// Says which number, and where it must lie.
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
            Self::NoLog(_) => "no_log",
            Self::LiftOfLogs => "lift_of_logs",
            Self::NoQuantile => "no_quantile",
            Self::NoOverallLift => "no_overall_lift",
            Self::OutOfRange(_) => "out_of_range",
        }
    }
}

/// How an effect is told: relative unless the control mean is 0 or cannot be told from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    Relative,
    Absolute,
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
            Shape::Quantile => {
                return Err(StatsError::OutOfRange("a quantile is no difference of means"));
            }
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

    /// In another unit.
    pub(crate) fn times(self, factor: f64) -> Self {
        let [value, error, low, high] =
            [self.value, self.error, self.low, self.high].map(|number| number * factor);
        Self { value, error, low, high, ..self }
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

/// Lift `treatment / control - 1` by the delta method: 0.05 means +5 %. The sign follows the difference, also
/// where the control mean is negative. For agreement with other systems; to decide, see [`lift`].
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

/// How many times the next guess of an interval's end is made better.
const MOST_STEPS: usize = 40;
/// The same of a lift that errors at the lift before weigh.
const MOST_WEIGHINGS: usize = 2000;
/// Relative; what is left is rounding.
const CLOSE_ENOUGH: f64 = 1e-13;

/// Fieller's pivotal quantity of a lift: `difference - lift * base` over its standard error, which depends on
/// the lift. Lifts whose quantity a test does not reject make up the interval.
///
/// The lift that it is made for holds exactly when the difference is that much of the base, so no lift at all
/// is no difference: their p-values are the same, and the interval leaves 0 out exactly when the difference's
/// does. (The delta method divides by the control mean as if the line were straight: its error grows with the
/// treatment, so that at 5 % a variant of 200 users a side is called better in 1.2 and worse in 5.8 % of A/A
/// tests.)
///
/// # Source
/// Fieller, "Some problems in interval estimation", JRSS B 16, 1954; Hirschberg & Lye, "A geometric comparison
/// of the delta and Fieller confidence intervals", The American Statistician 64, 2010. Degrees of freedom that
/// depend on the lift: Tamhane & Logan, "Finding the maximum safe dose level for heteroscedastic data", 2004;
/// Hasler, Vonk & Hothorn, "Assessing non-inferiority of a new treatment in a three-arm trial in the presence of
/// heteroscedasticity", Statistics in Medicine 27, 2008.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pivot {
    difference: f64,
    /// The control mean before adjustment, its sign apart: lifts follow the difference.
    base: f64,
    /// The squared error of `difference - lift * base` is `own + 2 lift shared + lift^2 of_base`.
    own: f64,
    shared: f64,
    of_base: f64,
    freedom: Freedom,
}

/// Welch's degrees of freedom of a pivotal quantity.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Freedom {
    /// Squared error of the treatment.
    of_treatment: f64,
    /// Of `control + lift * base`: own, shared, of base.
    of_control: [f64; 3],
    /// Control, treatment.
    users: [u64; 2],
}

impl Freedom {
    fn of(control: &ArmFigure, treatment: &ArmFigure) -> Self {
        let users = control.users as f64;
        Self {
            of_treatment: treatment.squared_error(),
            of_control: [control.variance, control.raw_covariance, control.raw_variance]
                .map(|variance| variance / users),
            users: [control.users, treatment.users],
        }
    }

    fn df(&self, lift: f64) -> f64 {
        let [own, shared, of_base] = self.of_control;
        let (a, b) = (own + lift * (2.0 * shared + lift * of_base), self.of_treatment);
        let of = |share: f64, users: u64| share * share / (users - 1) as f64;
        (a + b).powi(2) / (of(a, self.users[0]) + of(b, self.users[1]))
    }
}

impl Pivot {
    /// Of two arms. With an adjustment the adjusted difference is divided by the control mean before it.
    ///
    /// # Errors
    /// As [`absolute`], and [`StatsError::ZeroControlMean`].
    pub fn of(control: &ArmFigure, treatment: &ArmFigure) -> Result<Self, StatsError> {
        let [own, shared, of_base] = Freedom::of(control, treatment).of_control;
        let errors = [own + treatment.squared_error(), shared, of_base];
        let values = [treatment.value - control.value, control.raw_value];
        Self::put_together(values, errors, control, treatment)
    }

    /// Of a difference and a base that are put together otherwise, with errors as the fields say. Degrees of
    /// freedom are those of two arms.
    pub(crate) fn put_together(
        [difference, base]: [f64; 2],
        [own, shared, of_base]: [f64; 3],
        control: &ArmFigure,
        treatment: &ArmFigure,
    ) -> Result<Self, StatsError> {
        control.check(Side::Control)?;
        treatment.check(Side::Treatment)?;
        if base == 0.0 {
            return Err(StatsError::ZeroControlMean);
        }
        let mut freedom = Freedom::of(control, treatment);
        freedom.of_control[1] *= base.signum();
        let (base, shared) = (base.abs(), shared * base.signum());
        Ok(Self { difference, base, own, shared, of_base, freedom })
    }

    /// The same with another belief about the difference, of this mean and squared error. What the base shares
    /// with it shrinks alike.
    pub(crate) fn with_difference(self, mean: f64, squared_error: f64) -> Self {
        let shared = self.shared * squared_error / self.own;
        Self { difference: mean, own: squared_error, shared, ..self }
    }

    pub(crate) fn base(&self) -> f64 {
        self.base
    }

    /// Degrees of freedom of no lift.
    fn df(&self) -> f64 {
        self.freedom.df(0.0)
    }

    fn value(&self) -> f64 {
        self.difference / self.base
    }

    fn squared_error(&self, lift: f64) -> f64 {
        self.own + 2.0 * lift * self.shared + lift * lift * self.of_base
    }

    /// The lift with the interval that a test with this critical value, of its degrees of freedom, makes.
    /// `p` is the difference's. `error` is the delta method's.
    ///
    /// # Errors
    /// [`StatsError::ZeroControlMean`] if the control mean cannot be told from 0 by this critical value: the
    /// interval is then unbounded.
    pub fn estimate(&self, critical: impl Fn(f64) -> f64, p: f64) -> Result<Estimate, StatsError> {
        let value = self.value();
        let error = self.squared_error(value).sqrt() / self.base;
        let low = self.end(-1.0, &critical).ok_or(StatsError::ZeroControlMean)?;
        let high = self.end(1.0, &critical).ok_or(StatsError::ZeroControlMean)?;
        Estimate { value, error, df: self.df(), low, high, p }.checked()
    }

    /// The estimate of one look, by Student's t.
    pub(crate) fn once(&self, alpha: f64, p: f64) -> Result<Estimate, StatsError> {
        let critical = NearTIsf::new(alpha / 2.0, self.df());
        self.estimate(|df| critical.at(df), p)
    }

    /// The estimate with the critical value that made the interval of this difference, as methods of several
    /// looks make it.
    ///
    /// # Errors
    /// As [`Pivot::estimate`].
    pub fn looked_at(&self, difference: &Estimate) -> Result<Estimate, StatsError> {
        let critical = (difference.high - difference.low) / (2.0 * difference.error);
        let estimate = self.estimate(|_| critical, difference.p)?;
        Ok(Estimate { df: f64::INFINITY, ..estimate })
    }

    /// How far the difference lies above that of this lift, with the error and degrees of freedom that the lift
    /// has.
    ///
    /// # Errors
    /// [`StatsError`] for a distance without error or out of range.
    pub fn distance(&self, lift: f64, alpha: f64) -> Result<Estimate, StatsError> {
        let value = self.difference - lift * self.base;
        let error = self.squared_error(lift).sqrt();
        Estimate::student(value, error, self.freedom.df(lift), alpha).checked()
    }

    /// By how much several lifts differ: the sum of their pivotal quantities squared, at the one lift that makes
    /// it smallest. Of normal ones it is chi-squared with one degree of freedom less than there are.
    pub(crate) fn spread(pivots: &[Self]) -> f64 {
        let sum = |of: &dyn Fn(&Self) -> f64| pivots.iter().map(of).sum::<f64>();
        let mut lift = 0.0;
        for _ in 0..MOST_WEIGHINGS {
            // Weighted by the errors that they have at the lift before.
            let weighted = sum(&|p| p.base * p.difference / p.squared_error(lift));
            let next = weighted / sum(&|p| p.base * p.base / p.squared_error(lift));
            let step = (next - lift).abs();
            lift = next;
            if step <= CLOSE_ENOUGH * lift.abs().max(1.0) {
                break;
            }
        }
        sum(&|p| (p.difference - lift * p.base).powi(2) / p.squared_error(lift))
    }

    /// The end of the interval on one side; its critical value is that of its own degrees of freedom.
    fn end(&self, side: f64, critical: &impl Fn(f64) -> f64) -> Option<f64> {
        // Of lifts far away only the base's error counts. Critical values of ten degrees of freedom and more
        // are less than twice those of infinitely many.
        let (near, users) = (critical(self.df()), self.freedom.users[0]);
        let is_strong = users > 10 && self.base > 2.0 * near * self.of_base.sqrt();
        if !is_strong && self.base <= critical((users - 1) as f64) * self.of_base.sqrt() {
            return None;
        }
        self.end_by_steps(side, critical).or_else(|| self.end_by_halves(side, critical))
    }

    /// With the critical value of the guess before: a few steps, but where it changes much from lift to lift.
    fn end_by_steps(&self, side: f64, critical: &impl Fn(f64) -> f64) -> Option<f64> {
        let mut lift = self.root(critical(self.df()), side)?;
        for _ in 0..MOST_STEPS {
            let next = self.root(critical(self.freedom.df(lift)), side)?;
            let step = (next - lift).abs();
            lift = next;
            if step <= CLOSE_ENOUGH * lift.abs().max(1.0) {
                return Some(lift);
            }
        }
        None
    }

    /// From the estimate outwards until a lift is rejected, then between the two.
    fn end_by_halves(&self, side: f64, critical: &impl Fn(f64) -> f64) -> Option<f64> {
        let is_rejected = |lift: f64| {
            let distance = (self.difference - lift * self.base).abs();
            distance > critical(self.freedom.df(lift)) * self.squared_error(lift).sqrt()
        };
        let mut inside = self.value();
        let mut step = side * self.squared_error(inside).sqrt() / self.base;
        let mut outside = inside + step;
        while !is_rejected(outside) {
            (inside, step) = (outside, 1.5 * step);
            outside += step;
            if !outside.is_finite() {
                return None;
            }
        }
        while (outside - inside).abs() > CLOSE_ENOUGH * outside.abs().max(1.0) {
            let middle = 0.5 * (inside + outside);
            if is_rejected(middle) {
                outside = middle;
            } else {
                inside = middle;
            }
        }
        Some(0.5 * (inside + outside))
    }

    /// Where the pivotal quantity is this far from 0: a lift squared is a parabola that opens upwards as long
    /// as the base can be told from 0. Its ends are reckoned from the estimate: by their own formula, squares of
    /// means would cancel where errors are small beside them.
    fn root(&self, critical: f64, side: f64) -> Option<f64> {
        let (squared, value) = (critical * critical, self.value());
        let leading = self.base * self.base - squared * self.of_base;
        if leading <= 0.0 {
            return None;
        }
        let middle = squared * (self.shared + value * self.of_base);
        let unexplained = self.own * self.of_base - self.shared * self.shared;
        let spread = self.base * self.base * self.squared_error(value) - squared * unexplained;
        Some(value + (middle + side * critical * spread.max(0.0).sqrt()) / leading)
    }
}

/// Lift `treatment / control - 1` with Fieller's interval, of Student's t with Welch's degrees of freedom at each
/// of its ends. `p` is that of the difference ([`absolute`]); `error` is the delta method's.
///
/// # Errors
/// As [`Pivot::of`] and [`Pivot::estimate`].
///
/// # Source
/// [`Pivot`].
pub fn lift(
    control: &ArmFigure,
    treatment: &ArmFigure,
    alpha: f64,
) -> Result<Estimate, StatsError> {
    let p = absolute(control, treatment, alpha)?.p;
    Pivot::of(control, treatment)?.once(alpha, p)
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
/// treatment`. So the margin moves with the control mean, whose error counts, and so do Welch's degrees of
/// freedom.
///
/// # Errors
/// As [`absolute`], and [`StatsError::OutOfRange`] unless the margin is in 0..1.
///
/// # Source
/// Ratio-margin test; see Hauschke et al., "Sample size determination for proving equivalence
/// based on the ratio of two means", Statistics in Medicine 18, 1999; degrees of freedom as for [`Pivot`].
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
        return Err(StatsError::OutOfRange("the margin must lie from 0 to below 1"));
    }
    let kept_control = ArmFigure { variance: kept * kept * control.variance, ..*control };
    let error = (treatment.squared_error() + kept_control.squared_error()).sqrt();
    let value = sign * (treatment.value - kept * control.value);
    Estimate::student(value, error, welch_df(&kept_control, treatment), alpha).checked()
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
    Ok(t_sf(distance.value / distance.error, distance.df))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Of few users the critical value jumps from lift to lift: the ends are where the test turns all the same.
    #[test]
    fn ends_are_where_the_test_turns() {
        let mut by_halves = 0;
        for control_users in [3u64, 6, 40, 900] {
            for treatment_users in [2u64, 3, 5, 60] {
                for [variance, treatment_variance] in [[1.0, 1.0], [0.2, 30.0], [30.0, 0.2]] {
                    let control = ArmFigure::plain(control_users, 12.0, variance);
                    let treatment = ArmFigure::plain(treatment_users, 13.0, treatment_variance);
                    let pivot = Pivot::of(&control, &treatment).expect("a base");
                    let critical = |df: f64| t_isf(0.025, df);
                    let Ok(found) = lift(&control, &treatment, 0.05) else { continue };
                    for (end, side) in [(found.low, -1.0), (found.high, 1.0)] {
                        let distance = (pivot.difference - end * pivot.base).abs();
                        let error = pivot.squared_error(end).sqrt();
                        let turns = critical(pivot.freedom.df(end)) * error;
                        let what = format!("{control_users}, {treatment_users}, {variance}: {end}");
                        assert!((distance / turns - 1.0).abs() < 1e-6, "{what}");
                        by_halves += usize::from(pivot.end_by_steps(side, &critical).is_none());
                    }
                    assert!(found.low < found.value && found.value < found.high);
                    assert_eq!(found.low > 0.0 || found.high < 0.0, found.p < 0.05);
                }
            }
        }
        assert!(by_halves > 0, "no case needs halves");
    }

    /// Squares of means are 1e18 times the errors: nothing of them may be taken from each other.
    #[test]
    fn ends_of_errors_far_smaller_than_the_means_are_exact() {
        let control = ArmFigure::plain(14, 1e9, 40.0);
        let treatment = ArmFigure::plain(22, 1.5e9, 90.0);
        let pivot = Pivot::of(&control, &treatment).expect("a base");
        let critical = |df: f64| t_isf(0.025, df);
        let found = lift(&control, &treatment, 0.05).expect("a lift");
        for (end, side) in [(found.low, -1.0), (found.high, 1.0)] {
            let halved = pivot.end_by_halves(side, &critical).expect("an end");
            let (width, error) = ((halved - 0.5).abs(), (end - halved).abs());
            assert!(width > 1e-9 && error < 1e-4 * width, "{end}, by halves {halved}");
        }
    }
}
