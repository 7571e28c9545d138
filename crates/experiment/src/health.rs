//! Whether the data can be trusted before anyone reads an effect.
//!
//! # Not here
//! No effects. Users in several variants are counted by the engine.

use crate::distribution::chi2_sf;
use crate::effect::StatsError;

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
