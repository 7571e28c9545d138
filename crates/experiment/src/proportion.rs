//! Other tests of two proportions, for those who ask for them by name.
//!
//! # Not here
//! The report's own test, Welch with variance p (1 - p), is `effect`.

use crate::distribution::{normal_isf, normal_sf};
use crate::effect::{Estimate, Side, StatsError};

/// Successes among users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    pub successes: u64,
    pub users: u64,
}

impl Tally {
    fn share(&self) -> f64 {
        self.successes as f64 / self.users as f64
    }
}

fn check(control: Tally, treatment: Tally) -> Result<(), StatsError> {
    for (tally, side) in [(control, Side::Control), (treatment, Side::Treatment)] {
        if tally.users == 0 {
            return Err(StatsError::EmptyArm(side));
        }
        if tally.successes > tally.users {
            return Err(StatsError::OutOfRange("there are more successes than users"));
        }
    }
    Ok(())
}

/// Difference of proportions by the pooled z-test; the interval uses the pooled error too, so
/// that it excludes 0 exactly when the test rejects.
///
/// # Errors
/// [`StatsError::EmptyArm`], [`StatsError::OutOfRange`], or [`StatsError::ZeroVariance`] if all
/// users or none succeed.
///
/// # Source
/// Pearson's chi-square without correction, as statsmodels' `proportions_ztest`.
pub fn pooled_z(control: Tally, treatment: Tally, alpha: f64) -> Result<Estimate, StatsError> {
    check(control, treatment)?;
    let users = (control.users + treatment.users) as f64;
    let pooled = (control.successes + treatment.successes) as f64 / users;
    let per_user = 1.0 / control.users as f64 + 1.0 / treatment.users as f64;
    let error = (pooled * (1.0 - pooled) * per_user).sqrt();
    if error == 0.0 {
        return Err(StatsError::ZeroVariance(Side::Control));
    }
    let value = treatment.share() - control.share();
    let half = normal_isf(alpha / 2.0) * error;
    let p = 2.0 * normal_sf((value / error).abs());
    Ok(Estimate { value, error, df: f64::INFINITY, low: value - half, high: value + half, p })
}

/// Newcombe's interval for the difference of proportions, right also near 0 and 1.
///
/// # Errors
/// [`StatsError::EmptyArm`] or [`StatsError::OutOfRange`].
///
/// # Source
/// Newcombe, "Interval estimation for the difference between independent proportions",
/// Statistics in Medicine 17, 1998, method 10.
pub fn newcombe(control: Tally, treatment: Tally, alpha: f64) -> Result<(f64, f64), StatsError> {
    check(control, treatment)?;
    let z = normal_isf(alpha / 2.0);
    let wilson = |tally: Tally| {
        let (n, p) = (tally.users as f64, tally.share());
        let centre = p + z * z / (2.0 * n);
        let half = z * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
        let scale = 1.0 + z * z / n;
        ((centre - half) / scale, (centre + half) / scale)
    };
    let (a, b) = (control.share(), treatment.share());
    let ((a_low, a_high), (b_low, b_high)) = (wilson(control), wilson(treatment));
    let difference = b - a;
    Ok((difference - (b - b_low).hypot(a_high - a), difference + (b_high - b).hypot(a - a_low)))
}

/// Two-sided p-value of Fisher's exact test: the tables no likelier than the one seen.
/// Takes time linear in the smaller margin.
///
/// # Errors
/// [`StatsError::EmptyArm`] or [`StatsError::OutOfRange`].
///
/// # Source
/// Fisher 1935; ties within 1e-7 count as equally likely, as in R and SciPy.
pub fn fisher_exact(control: Tally, treatment: Tally) -> Result<f64, StatsError> {
    check(control, treatment)?;
    let (n, m) = (control.users, treatment.users);
    let successes = control.successes + treatment.successes;
    let first = successes.saturating_sub(m);
    let last = successes.min(n);
    // Weights relative to the likeliest table, so that the far ones underflow and not the near.
    let ratio = |k: u64| {
        let (up, down) = ((successes - k) as f64 * (n - k) as f64, (k + 1) as f64);
        up / (down * (m + k + 1 - successes) as f64)
    };
    let mut log_weight = 0.0;
    let mut weights = Vec::with_capacity((last - first + 1) as usize);
    for k in first..=last {
        weights.push(log_weight);
        if k < last {
            log_weight += ratio(k).ln();
        }
    }
    let top = weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    weights.iter_mut().for_each(|weight| *weight = (*weight - top).exp());
    let seen = weights[(control.successes - first) as usize];
    let total: f64 = weights.iter().sum();
    let as_rare: f64 = weights.iter().filter(|weight| **weight <= seen * (1.0 + 1e-7)).sum();
    Ok((as_rare / total).min(1.0))
}
