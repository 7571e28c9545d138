//! Whether the data can be trusted before anyone reads an effect.
//!
//! # Not here
//! No effects. Users in several variants are counted by the engine.

use statrs::function::gamma::ln_gamma;

use crate::distribution::chi2_sf;
use crate::effect::StatsError;
use crate::report::Independence;

/// A sample ratio below this p-value is an alarm. At one false alarm per 1,000 checks a platform
/// can afford to stop and look each time.
pub const SRM_ALARM_P: f64 = 0.001;

/// The result of a sample-ratio check.
#[derive(Debug, Clone, PartialEq)]
pub struct SampleRatio {
    pub chi_square: f64,
    /// Arms with a planned share above 0, less one.
    pub df: u32,
    pub p: f64,
    /// Users expected per arm.
    pub expected: Vec<f64>,
}

impl SampleRatio {
    /// True below [`SRM_ALARM_P`].
    pub fn is_alarm(&self) -> bool {
        self.p < SRM_ALARM_P
    }
}

/// Do the users fall into arms as planned? `users` and `shares`: one per arm, in one order;
/// shares are relative to their sum. A single user in an arm with share 0 gives p = 0.
///
/// # Errors
/// [`StatsError::NoShares`] unless two arms or more have a share above 0 and someone is exposed.
///
/// # Source
/// Pearson's chi-square; Fabijan et al., "Diagnosing Sample Ratio Mismatch in Online Controlled
/// Experiments", KDD 2019. Degrees of freedom count arms in use: gbstats counts all, which makes
/// the check too quiet.
pub fn sample_ratio(users: &[u64], shares: &[f64]) -> Result<SampleRatio, StatsError> {
    let total_users: u64 = users.iter().sum();
    let total_share: f64 = shares.iter().sum();
    let in_use = shares.iter().filter(|share| **share > 0.0).count();
    let valid = shares.iter().all(|share| share.is_finite() && *share >= 0.0);
    if users.len() != shares.len() || in_use < 2 || total_users == 0 || !valid {
        return Err(StatsError::NoShares);
    }
    let expected: Vec<f64> =
        shares.iter().map(|share| share / total_share * total_users as f64).collect();
    let mut chi_square = 0.0;
    for (count, expected) in users.iter().zip(&expected) {
        let gap = *count as f64 - expected;
        if *expected > 0.0 {
            chi_square += gap * gap / expected;
        } else if *count > 0 {
            chi_square = f64::INFINITY;
        }
    }
    let df = (in_use - 1) as u32;
    Ok(SampleRatio { chi_square, df, p: chi2_sf(chi_square, f64::from(df)), expected })
}

/// Do the rows of a table of counts depend on its columns? Rows and columns without counts are left out;
/// `None` if fewer than two of either remain.
///
/// # Source
/// Pearson, "On the criterion that a given system of deviations...", Philosophical Magazine 50, 1900, without
/// a correction for continuity.
pub fn independence(rows: &[Vec<u64>]) -> Option<Independence> {
    let width = rows.iter().map(Vec::len).max().unwrap_or(0);
    let at = |row: &[u64], column: usize| row.get(column).copied().unwrap_or(0) as f64;
    let of_rows: Vec<f64> = rows.iter().map(|row| row.iter().sum::<u64>() as f64).collect();
    let of_columns: Vec<f64> =
        (0..width).map(|column| rows.iter().map(|row| at(row, column)).sum()).collect();
    let in_use = |sums: &[f64]| sums.iter().filter(|sum| **sum > 0.0).count();
    let (height, width) = (in_use(&of_rows), in_use(&of_columns));
    if height < 2 || width < 2 {
        return None;
    }
    let total: f64 = of_rows.iter().sum();
    let mut chi_square = 0.0;
    for (row, of_row) in rows.iter().zip(&of_rows) {
        for (column, of_column) in of_columns.iter().enumerate() {
            let expected = of_row * of_column / total;
            if expected > 0.0 {
                chi_square += (at(row, column) - expected).powi(2) / expected;
            }
        }
    }
    let df = ((height - 1) * (width - 1)) as u32;
    Some(Independence { chi_square, df, p: chi2_sf(chi_square, f64::from(df)) })
}

/// The evidence a Dirichlet prior holds before the first user, in users; savvi's default.
const SEQUENTIAL_PRIOR_USERS: f64 = 100.0;

/// A sample-ratio p-value that may be looked at every day: it stays valid whenever one stops.
/// Weaker than [`sample_ratio`] at any single look.
///
/// # Errors
/// As [`sample_ratio`].
///
/// # Source
/// Lindon & Malek, "Anytime-valid inference for multinomial count data", NeurIPS 2022.
pub fn sequential_sample_ratio_p(users: &[u64], shares: &[f64]) -> Result<f64, StatsError> {
    sample_ratio(users, shares)?;
    let total_share: f64 = shares.iter().sum();
    let mut log_evidence = 0.0;
    let mut users_in_use = 0.0;
    for (count, share) in users.iter().zip(shares) {
        let (count, share) = (*count as f64, share / total_share);
        if share > 0.0 {
            let prior = SEQUENTIAL_PRIOR_USERS * share;
            log_evidence += ln_gamma(prior + count) - ln_gamma(prior) - count * share.ln();
            users_in_use += count;
        } else if count > 0.0 {
            return Ok(0.0);
        }
    }
    let prior = SEQUENTIAL_PRIOR_USERS;
    log_evidence += ln_gamma(prior) - ln_gamma(prior + users_in_use);
    Ok((-log_evidence).exp().min(1.0))
}
