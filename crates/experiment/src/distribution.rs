//! Tails and quantiles of the normal, Student's t and chi-square distributions.
//!
//! # Invariants
//! - Tails are computed as tails, never as `1 - cdf`: a p-value of 1e-300 comes out right to
//!   1e-8 relative, and usually to 1e-12.
//! - The functions are total: NaN in gives NaN out, and the ends of the range give the limits.
//!
//! # Not here
//! No estimates; no densities except the normal's, which the risk of a decision needs.
//!
//! # What comes from libraries, and what does not
//! `libm`'s `erfc` holds a unit in the last place and is the normal's tail; that of statrs was measured at 4e-11,
//! so only its inverse is used, as a start. The incomplete gamma function of statrs holds 1e-12 and is
//! chi-square's tail. statrs takes the incomplete beta's leading factor as a difference of log-gammas, which at
//! 1e7 degrees of freedom leaves seven digits; Student's t is therefore our own. Quantiles in statrs search to a
//! fixed absolute error, which is nothing at 1e-300; ours are Newton steps on the log tail.

use statrs::function::{erf, gamma};

/// Upper tail of the standard normal: P(Z > z).
pub fn normal_sf(z: f64) -> f64 {
    0.5 * libm::erfc(z * std::f64::consts::FRAC_1_SQRT_2)
}

/// Standard normal density.
pub fn normal_pdf(z: f64) -> f64 {
    (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

/// The `z` with P(Z > z) = `p`.
pub fn normal_isf(p: f64) -> f64 {
    if !(0.0..=1.0).contains(&p) {
        return f64::NAN;
    }
    if p == 0.5 {
        return 0.0;
    }
    let z = std::f64::consts::SQRT_2 * erf::erfc_inv(2.0 * p);
    if !z.is_finite() {
        return z;
    }
    // One Newton step on the tail that is small, because the inverse holds only about 1e-10 there.
    let (tail, sign) = if p < 0.5 { (p, 1.0) } else { (1.0 - p, -1.0) };
    let distance = z * sign;
    sign * (distance + (normal_sf(distance) - tail) / normal_pdf(distance))
}

/// The `z` with P(Z <= z) = `p`.
pub fn normal_ppf(p: f64) -> f64 {
    -normal_isf(p)
}

/// Upper tail of Student's t with `df` degrees of freedom: P(T > t). `df` is positive and need
/// not be whole; infinite gives the normal's.
pub fn t_sf(t: f64, df: f64) -> f64 {
    if t.is_nan() || df.is_nan() || df <= 0.0 {
        return f64::NAN;
    }
    if t < 0.0 {
        return 1.0 - t_sf(-t, df);
    }
    if t.is_infinite() {
        return 0.0;
    }
    if df > NEARLY_NORMAL_DF {
        return normal_sf(normal_equivalent(t, df));
    }
    let half_df = 0.5 * df;
    // df / (df + t^2) and its complement, without squaring an extreme t.
    let ratio = t / df.sqrt();
    let near_one = 1.0 / (1.0 + ratio * ratio);
    let near_zero = if ratio > 1e150 { 1.0 } else { ratio * ratio * near_one };
    let factor = t_leading_factor(ratio, df);
    if near_one < (half_df + 1.0) / (half_df + 2.5) {
        0.5 * factor * beta_fraction(half_df, 0.5, near_one) / half_df
    } else {
        0.5 - factor * beta_fraction(0.5, half_df, near_zero)
    }
}

/// Half the central area, P(0 < T < t), exact for small `t`.
fn t_central(t: f64, df: f64) -> f64 {
    let ratio = t / df.sqrt();
    let near_zero = ratio * ratio / (1.0 + ratio * ratio);
    if df > NEARLY_NORMAL_DF || near_zero > 1.5 / (0.5 * df + 2.5) {
        return 0.5 - t_sf(t, df);
    }
    t_leading_factor(ratio, df) * beta_fraction(0.5, 0.5 * df, near_zero)
}

/// Density of Student's t.
fn t_pdf(t: f64, df: f64) -> f64 {
    if df > NEARLY_NORMAL_DF {
        return normal_pdf(t);
    }
    let ratio = t / df.sqrt();
    let kernel = -0.5 * (df + 1.0) * log_one_plus_square(ratio);
    kernel.exp() * t_peak(df)
}

/// Density of Student's t at 0.
fn t_peak(df: f64) -> f64 {
    gamma_half_step(0.5 * df) / (std::f64::consts::PI * df).sqrt()
}

/// The `t` with P(T > t) = `p` at `df` degrees of freedom, right to 1e-8 relative down to
/// p = 1e-300.
pub fn t_isf(p: f64, df: f64) -> f64 {
    if !(0.0..=1.0).contains(&p) || df.is_nan() || df <= 0.0 {
        return f64::NAN;
    }
    if p == 0.5 {
        return 0.0;
    }
    if p > 0.5 {
        return -t_isf(1.0 - p, df);
    }
    if p == 0.0 {
        return f64::INFINITY;
    }
    if df.is_infinite() {
        return normal_isf(p);
    }
    if p > 0.25 {
        // Concave and increasing: Newton from below converges without overshooting.
        let area = 0.5 - p;
        let mut t = area / t_pdf(0.0, df);
        for _ in 0..MAX_STEPS {
            let step = (area - t_central(t, df)) / t_pdf(t, df);
            t += step;
            if step.abs() <= 1e-9 * t.abs() {
                break;
            }
        }
        return t;
    }
    // t * density, with the product formed in logs because either factor may leave the range.
    let t_density = |t: f64| {
        if df > NEARLY_NORMAL_DF {
            return t * normal_pdf(t);
        }
        let log = t.ln() - 0.5 * (df + 1.0) * log_one_plus_square(t / df.sqrt());
        log.exp() * t_peak(df)
    };
    invert_log_tail(nearby_t(normal_isf(p), df), p, |t| (t_sf(t, df), t_density(t)))
}

/// Roughly the quantile of t that belongs to the normal's `z`: a start that saves Newton most of
/// its steps. Cornish and Fisher's expansion, which runs wild for few degrees of freedom.
fn nearby_t(z: f64, df: f64) -> f64 {
    let z2 = z * z;
    let first = (z2 + 1.0) * z / (4.0 * df);
    let second = ((5.0 * z2 + 16.0) * z2 + 3.0) * z / (96.0 * df * df);
    if z2 < df { z + first + second } else { z.max(0.1) }
}

/// [`t_isf`] at many degrees of freedom near some: 20 times as fast, and right to 1e-11.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NearTIsf {
    p: f64,
    z: f64,
    df: f64,
    value: f64,
}

impl NearTIsf {
    pub fn new(p: f64, df: f64) -> Self {
        Self { p, z: normal_isf(p), df, value: t_isf(p, df) }
    }

    pub fn at(&self, df: f64) -> f64 {
        // Then the first term that is left out is below 1e-10, and nearly the same for both.
        if self.df.min(df) > (60.0 * self.z * self.z).max(200.0) {
            return self.value + (expansion(self.z, df) - expansion(self.z, self.df));
        }
        if df == self.df { self.value } else { t_isf(self.p, df) }
    }
}

/// What Cornish and Fisher's expansion adds to the normal's quantile: Abramowitz & Stegun 26.7.5.
fn expansion(z: f64, df: f64) -> f64 {
    let (z2, x) = (z * z, 1.0 / df);
    let first = z * (z2 + 1.0) / 4.0;
    let second = z * ((5.0 * z2 + 16.0) * z2 + 3.0) / 96.0;
    let third = z * (((3.0 * z2 + 19.0) * z2 + 17.0) * z2 - 15.0) / 384.0;
    let fourth = z * ((((79.0 * z2 + 776.0) * z2 + 1482.0) * z2 - 1920.0) * z2 - 945.0) / 92160.0;
    x * (first + x * (second + x * (third + x * fourth)))
}

/// The `t` with P(T <= t) = `p`.
pub fn t_ppf(p: f64, df: f64) -> f64 {
    -t_isf(p, df)
}

/// Upper tail of chi-square with `df` degrees of freedom: P(X > x).
pub fn chi2_sf(x: f64, df: f64) -> f64 {
    if x.is_nan() || df.is_nan() || df <= 0.0 {
        return f64::NAN;
    }
    if x <= 0.0 {
        return 1.0;
    }
    if x.is_infinite() {
        return 0.0;
    }
    // For statrs 1e-15 is 0, whose square root is not: 3e-8 would be missing.
    if df == 1.0 && x < 1e-9 {
        return 2.0 * normal_sf(x.sqrt());
    }
    gamma::checked_gamma_ur(0.5 * df, 0.5 * x).unwrap_or(f64::NAN)
}

/// The `x` with P(X > x) = `p` for chi-square with `df` degrees of freedom.
pub fn chi2_isf(p: f64, df: f64) -> f64 {
    if !(0.0..=1.0).contains(&p) || df.is_nan() || df <= 0.0 {
        return f64::NAN;
    }
    if p == 1.0 {
        return 0.0;
    }
    if p == 0.0 {
        return f64::INFINITY;
    }
    // Wilson and Hilferty's cube is within a few per cent; Newton does the rest.
    let ninth = 2.0 / (9.0 * df);
    let start = df * (1.0 - ninth + normal_isf(p) * ninth.sqrt()).powi(3);
    let pdf = |x: f64| {
        let log = (0.5 * df - 1.0) * x.ln() - 0.5 * x - 0.5 * df * std::f64::consts::LN_2;
        (log - gamma::ln_gamma(0.5 * df)).exp()
    };
    if p < 0.5 {
        invert_log_tail(start.max(1e-3), p, |x| (chi2_sf(x, df), x * pdf(x)))
    } else {
        let below = 1.0 - p;
        // The lower tail rises with x: mirrored, it is the same problem in 1/x.
        let lower = |x: f64| gamma::checked_gamma_lr(0.5 * df, 0.5 * x).unwrap_or(f64::NAN);
        1.0 / invert_log_tail(1.0 / start.max(1e-3), below, |y| (lower(1.0 / y), pdf(1.0 / y) / y))
    }
}

/// The `x` with P(X <= x) = `p` for chi-square.
pub fn chi2_ppf(p: f64, df: f64) -> f64 {
    chi2_isf(1.0 - p, df)
}

/// Above this Hill's expansion holds 1e-11 and the continued fraction loses digits: its argument
/// is `1 - t^2/df`, rounded.
const NEARLY_NORMAL_DF: f64 = 1e5;

/// Newton steps allowed; a quantile takes under ten, a far one under forty.
const MAX_STEPS: usize = 200;

/// Solves `tail(x) = p` for positive `x`. `tail_and_density` returns a falling tail and `x`
/// times its density; the log of the tail is concave in `ln x`, so that Newton in those coordinates overshoots at most once and then
/// converges from one side.
fn invert_log_tail(start: f64, p: f64, tail_and_density: impl Fn(f64) -> (f64, f64)) -> f64 {
    let mut x = start;
    for _ in 0..MAX_STEPS {
        let (tail, x_density) = tail_and_density(x);
        let slope = x_density / tail;
        let mut step = (tail / p).ln() / slope;
        if !step.is_finite() {
            // Past the smallest number: come back.
            step = -2.0;
        }
        // Steps shrink x at most eightfold: the log tail is nearly flat near zero.
        let step = step.clamp(-2.0, 40.0);
        x *= step.exp();
        // Newton squares the error: after a step of 1e-9 what is left is below the last digit.
        if step.abs() < 1e-9 {
            break;
        }
    }
    x
}

/// The normal deviate with the same tail as `t`.
///
/// # Source
/// Hill, "Algorithm 395: Student's t-distribution", CACM 13, 1970.
fn normal_equivalent(t: f64, df: f64) -> f64 {
    if df.is_infinite() {
        return t;
    }
    let a = df - 0.5;
    let b = 48.0 * a * a;
    let squared = a * (t / df * t).ln_1p();
    let z = squared.sqrt();
    let third = ((4.0 * squared + 33.0) * squared + 240.0) * squared + 855.0;
    let correction =
        (squared + 3.0) / b - third / (10.0 * b * (b + 0.8 * squared * squared + 100.0));
    z + z * correction
}

/// The factor before both continued fractions of the t tail:
/// `(df/(df+t^2))^(df/2) (t^2/(df+t^2))^(1/2) / B(df/2, 1/2)`, where `ratio = t / sqrt(df)`.
fn t_leading_factor(ratio: f64, df: f64) -> f64 {
    let half_df = 0.5 * df;
    let log_sum = log_one_plus_square(ratio);
    let share = if ratio > 1e150 { 1.0 } else { ratio / (1.0 + ratio * ratio).sqrt() };
    let beta_inverse = gamma_half_step(half_df) / std::f64::consts::PI.sqrt();
    (-half_df * log_sum).exp() * share * beta_inverse
}

/// `ln(1 + ratio^2)`, also where the square overflows.
fn log_one_plus_square(ratio: f64) -> f64 {
    if ratio > 1e150 { 2.0 * ratio.ln() } else { (ratio * ratio).ln_1p() }
}

/// Gamma(a + 1/2) / Gamma(a), without the cancellation of two log-gammas.
///
/// # Source
/// Tricomi & Erdelyi, "The asymptotic expansion of a ratio of gamma functions", 1951.
fn gamma_half_step(a: f64) -> f64 {
    let (mut shifted, mut factor) = (a, 1.0);
    while shifted < 40.0 {
        factor *= shifted / (shifted + 0.5);
        shifted += 1.0;
    }
    let y = 1.0 / shifted;
    let series = 1.0
        + y * (-1.0 / 8.0
            + y * (1.0 / 128.0
                + y * (5.0 / 1024.0
                    + y * (-21.0 / 32768.0
                        + y * (-399.0 / 262_144.0
                            + y * (869.0 / 4_194_304.0 + y * (39_325.0 / 33_554_432.0)))))));
    factor * shifted.sqrt() * series
}

/// The continued fraction of the incomplete beta function by Lentz's method.
///
/// # Source
/// DLMF 8.17.22.
fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let guard = |v: f64| if v.abs() < TINY { TINY } else { v };
    let mut c = 1.0;
    let mut d = 1.0 / guard(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    // sqrt(max(a, b)) rounds suffice; at NEARLY_NORMAL_DF that is a few hundred.
    for m in 1..20_000 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        d = 1.0 / guard(1.0 + even * d);
        c = guard(1.0 + even / c);
        fraction *= d * c;
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / guard(1.0 + odd * d);
        c = guard(1.0 + odd / c);
        let change = d * c;
        fraction *= change;
        if (change - 1.0).abs() < 1e-16 {
            break;
        }
    }
    fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64, tolerance: f64, what: &str) {
        let error = ((found - expected) / expected).abs();
        assert!(error <= tolerance, "{what}: {found:e} instead of {expected:e} ({error:e})");
    }

    // Expected values at 50 digits from mpmath: the script make_extra.py of the reference data.
    #[test]
    fn quantiles_near_a_known_one_are_right() {
        for p in [0.25, 0.025, 0.005, 1e-4, 1e-7] {
            for df in [3.0, 150.0, 250.0, 900.0, 2_500.0, 40_000.0, 3e6] {
                let near = NearTIsf::new(p, df);
                for times in [0.5, 0.9, 0.999, 1.0, 1.1, 2.0] {
                    let (found, exact) = (near.at(times * df), t_isf(p, times * df));
                    assert!((found / exact - 1.0).abs() < 1e-9, "{p}, {df} times {times}: {found}");
                }
            }
        }
    }

    #[test]
    fn normal_tails_hold_to_1e_300() {
        for (z, expected) in [
            (0.5, 0.308_537_538_725_986_9),
            (1.959963984540054, 0.025000000000000012),
            (6.0, 9.86587645037698e-10),
            (10.0, 7.619853024160525e-24),
            (20.0, 2.7536241186062337e-89),
            (37.0, 5.725571222524577e-300),
        ] {
            close(normal_sf(z), expected, 1e-12, "sf");
            close(normal_isf(expected), z, 1e-12, "isf");
        }
    }

    #[test]
    fn t_tails_hold_for_few_and_many_degrees_of_freedom() {
        for (t, df, expected) in [
            (0.1, 1.0, 0.4682744825694464),
            (20.0, 1.0, 0.015902251256176374),
            (20.0, 2.5, 0.00039969412225121693),
            (5.0, 5.0, 0.0020523579900266612),
            (20.0, 30.0, 3.3745418328856433e-19),
            (1.96, 912.2730913771, 0.02514993558713695),
            (20.0, 912.2730913771, 2.259259161897838e-74),
            (20.0, 1e4, 1.3823262932703867e-87),
            (0.1, 1e7, 0.4601721637252762),
            (20.0, 1e7, 2.7647156034788506e-89),
        ] {
            close(t_sf(t, df), expected, 1e-11, &format!("sf({t}, {df})"));
            close(t_isf(expected, df), t, 1e-11, &format!("isf at {df}"));
        }
    }

    #[test]
    fn t_with_one_degree_of_freedom_is_cauchy_down_to_1e_300() {
        for p in [0.4, 0.1, 1e-5, 1e-50, 1e-300] {
            let cauchy = 1.0 / (std::f64::consts::PI * p).tan();
            close(t_isf(p, 1.0), cauchy, 1e-12, "isf");
            close(t_sf(cauchy, 1.0), p, 1e-12, "sf");
        }
    }

    #[test]
    fn expansion_and_fraction_agree_where_they_meet() {
        for t in [0.01, 0.3, 1.0, 3.0, 10.0, 30.0] {
            let below = t_sf(t, NEARLY_NORMAL_DF);
            let above = normal_sf(normal_equivalent(t, NEARLY_NORMAL_DF));
            close(below, above, 1e-11, &format!("t = {t}"));
        }
    }

    #[test]
    fn chi_square_tails_and_quantiles_hold() {
        for (x, df, expected) in [
            (0.01, 1.0, 0.920344325445942),
            (8.7379, 1.0, 0.0031166324404141663),
            (200.0, 1.0, 2.088487583762545e-45),
            (30.0, 2.0, 3.059023205018258e-07),
            (200.0, 9.0, 3.3129923939095533e-38),
        ] {
            close(chi2_sf(x, df), expected, 1e-12, "sf");
            close(chi2_isf(expected, df), x, 1e-11, "isf");
        }
        let far = chi2_isf(1e-300, 3.0);
        close(chi2_sf(far, 3.0), 1e-300, 1e-9, "far");
    }

    // 1/2 - z / sqrt(2 pi), of which nothing else is left beside 1/2.
    #[test]
    fn tails_near_the_middle_are_not_the_middle() {
        for z in [1e-12, 1e-9, 3e-8, 1e-6, 0.99e-4, 1.01e-4, 1e-3] {
            let area = z * (1.0 - z * z / 6.0) / (2.0 * std::f64::consts::PI).sqrt();
            close(normal_sf(z), 0.5 - area, 1e-13, "sf");
            close(normal_sf(-z), 0.5 + area, 1e-13, "sf below");
            close(chi2_sf(z * z, 1.0), 1.0 - 2.0 * area, 1e-13, "chi-square");
            close(t_sf(z, f64::INFINITY), 0.5 - area, 1e-13, "t");
        }
    }

    #[test]
    fn quantiles_undo_tails_everywhere() {
        for df in [1.0, 2.5, 5.0, 30.0, 912.2730913771, 1e5, 3e6, f64::INFINITY] {
            for p in [0.975, 0.7, 0.4999, 0.3, 0.05, 1e-3, 1e-12, 1e-100, 1e-300] {
                close(t_sf(t_isf(p, df), df), p, 1e-8, &format!("t {p} {df}"));
                if df.is_finite() && p < 0.999 {
                    close(chi2_sf(chi2_isf(p, df), df), p, 1e-8, &format!("chi2 {p} {df}"));
                }
            }
        }
    }

    #[test]
    fn nonsense_in_is_nan_out() {
        for value in [t_sf(1.0, 0.0), t_isf(1.5, 3.0), normal_isf(-0.1), chi2_sf(1.0, -1.0)] {
            assert!(value.is_nan());
        }
    }
}
