//! CUPED: subtract from a metric what the time before exposure already explains.
//!
//! # Invariants
//! - The coefficient is fitted on both arms of a comparison together, so the adjustment cannot
//!   favour one of them.
//!
//! # Not here
//! No choice of covariates.

use crate::effect::{ArmFigure, unless_noise, without_noise};
use crate::moments::Moments;

/// Both figures of a comparison after adjustment, and what it gained.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adjusted {
    pub control: ArmFigure,
    pub treatment: ArmFigure,
    /// Unit of the metric per unit of the covariate; 0 if the covariate never varies, NaN if
    /// there are several, whose coefficients come beside this.
    pub theta: f64,
}

impl Adjusted {
    /// Share of the squared error of the difference that the adjustment removed; negative if it
    /// added some.
    pub fn variance_reduction(&self) -> f64 {
        let error = |variance: fn(&ArmFigure) -> f64| {
            variance(&self.control) / self.control.users as f64
                + variance(&self.treatment) / self.treatment.users as f64
        };
        1.0 - error(|arm| arm.variance) / error(|arm| arm.raw_variance)
    }
}

/// Adjusts the means of column `y` by those of column `x`, a covariate from before exposure.
/// Lifts then divide by the control mean before adjustment, as gbstats does; tea-tasting divides
/// by the adjusted one.
///
/// # Source
/// Deng, Xu, Kohavi & Walker, "Improving the Sensitivity of Online Controlled Experiments by
/// Utilizing Pre-Experiment Data", WSDM 2013.
pub fn adjust_mean(control: &Moments, treatment: &Moments, y: usize, x: usize) -> Adjusted {
    let mut pooled = control.clone();
    pooled.merge(treatment);
    let spread = pooled.variance(x);
    let theta = if spread > 0.0 { pooled.covariance(y, x) / spread } else { 0.0 };
    let centre = pooled.mean(x);
    let adjust = |arm: &Moments| {
        let (variance, shared) = (arm.variance(y), arm.covariance(y, x));
        ArmFigure {
            users: arm.count(),
            value: arm.mean(y) - theta * (arm.mean(x) - centre),
            variance: left_over(variance, theta * theta * arm.variance(x), theta * shared),
            raw_value: arm.mean(y),
            // gbstats takes the gradient before adjustment for means and after it for ratios; the
            // errors differ by less than one part in a thousand.
            gradient_value: arm.mean(y),
            raw_variance: variance,
            raw_covariance: variance - theta * shared,
        }
    };
    Adjusted { control: adjust(control), treatment: adjust(treatment), theta }
}

/// Adjusts the mean of column `y` by several covariates from before exposure. Covariates that
/// repeat others, or never vary, get coefficient 0.
///
/// Returns the figures and one coefficient per covariate, in the order of `covariates`.
///
/// # Source
/// As [`adjust_mean`]; coefficients of the least-squares fit over both arms together.
pub fn adjust_mean_by_many(
    control: &Moments,
    treatment: &Moments,
    y: usize,
    covariates: &[usize],
) -> (Adjusted, Vec<f64>) {
    let mut pooled = control.clone();
    pooled.merge(treatment);
    let theta = least_squares(&pooled, y, covariates);
    let adjust = |arm: &Moments| {
        let mut shift = 0.0;
        let mut shared = 0.0;
        let mut explained = 0.0;
        for (&i, a) in covariates.iter().zip(&theta) {
            shift += a * (arm.mean(i) - pooled.mean(i));
            shared += a * arm.covariance(y, i);
            let with = covariates.iter().zip(&theta);
            explained += with.map(|(&j, b)| a * b * arm.covariance(i, j)).sum::<f64>();
        }
        let variance = arm.variance(y);
        ArmFigure {
            users: arm.count(),
            value: arm.mean(y) - shift,
            variance: left_over(variance, explained, shared),
            raw_value: arm.mean(y),
            gradient_value: arm.mean(y),
            raw_variance: variance,
            raw_covariance: variance - shared,
        }
    };
    let theta_of_one = if theta.len() == 1 { theta[0] } else { f64::NAN };
    let adjusted =
        Adjusted { control: adjust(control), treatment: adjust(treatment), theta: theta_of_one };
    (adjusted, theta)
}

/// A covariate that others explain to all but this share of its variance adds nothing but noise.
const COLLINEAR: f64 = 1e-10;

/// Coefficients of the regression of `y` on `covariates`, by Gauss-Jordan sweeps of the
/// correlation matrix, largest unexplained variance first.
fn least_squares(moments: &Moments, y: usize, covariates: &[usize]) -> Vec<f64> {
    let k = covariates.len();
    let deviation: Vec<f64> = covariates.iter().map(|&i| moments.variance(i).sqrt()).collect();
    let usable: Vec<bool> = deviation.iter().map(|d| d.is_finite() && *d > 0.0).collect();
    let entry = |i: usize, j: usize| {
        let shared = if j == k {
            moments.covariance(covariates[i], y)
        } else {
            moments.covariance(covariates[i], covariates[j]) / deviation[j]
        };
        if usable[i] && (j == k || usable[j]) { shared / deviation[i] } else { 0.0 }
    };
    let mut rows: Vec<Vec<f64>> = (0..k).map(|i| (0..=k).map(|j| entry(i, j)).collect()).collect();
    let mut swept = vec![false; k];
    for _ in 0..k {
        let open = (0..k).filter(|i| !swept[*i]);
        let Some(pivot) = open.max_by(|a, b| rows[*a][*a].total_cmp(&rows[*b][*b])) else {
            break;
        };
        if rows[pivot][pivot] <= COLLINEAR {
            break;
        }
        swept[pivot] = true;
        let scale = rows[pivot][pivot];
        rows[pivot].iter_mut().for_each(|value| *value /= scale);
        let pivot_row = rows[pivot].clone();
        for (_, row) in rows.iter_mut().enumerate().filter(|(i, _)| *i != pivot) {
            let factor = row[pivot];
            row.iter_mut().zip(&pivot_row).for_each(|(value, from)| *value -= factor * from);
        }
    }
    (0..k).map(|i| if swept[i] { rows[i][k] / deviation[i] } else { 0.0 }).collect()
}

/// The variance of a figure less what was predicted: of the figure, of the prediction and their
/// covariance.
fn left_over(figure: f64, prediction: f64, shared: f64) -> f64 {
    without_noise([figure, prediction, -2.0 * shared])
}

/// Adjusts a ratio by the same ratio before exposure. Columns 0 to 3: numerator, denominator,
/// and both before exposure. Without events before exposure, or if the ratio never varied then, it
/// stays as it is.
///
/// # Source
/// As gbstats: linearised terms per user, one coefficient from the sum of both arms' moments.
/// tea-tasting fits it on the pooled total, which differs in the fourth digit of the effect.
pub fn adjust_ratio(control: &Moments, treatment: &Moments) -> Adjusted {
    let linear = |arm: &Moments| {
        let (now, before) = (ArmFigure::ratio(arm, 0, 1), ArmFigure::ratio(arm, 2, 3));
        // With a past that never varies a covariance is noise.
        let (shared, size) = arm.ratio_covariance([0, 1], [2, 3]);
        let shared = unless_noise(shared, size);
        (now, before, shared / (arm.mean(1) * arm.mean(3)))
    };
    let (a, b) = (linear(control), linear(treatment));
    let spread = a.1.variance + b.1.variance;
    let theta = (a.2 + b.2) / spread;
    let usable = theta.is_finite() && spread > 0.0;
    let theta = if usable { theta } else { 0.0 };
    let users = (a.0.users + b.0.users) as f64;
    let centre = if usable {
        (a.1.value * a.0.users as f64 + b.1.value * b.0.users as f64) / users
    } else {
        0.0
    };
    let adjust = |(now, before, shared): (ArmFigure, ArmFigure, f64)| {
        if !usable {
            return now;
        }
        ArmFigure {
            value: now.value - theta * (before.value - centre),
            variance: left_over(now.variance, theta * theta * before.variance, theta * shared),
            raw_covariance: now.variance - theta * shared,
            ..now
        }
    };
    let (control, mut treatment) = (adjust(a), adjust(b));
    treatment.gradient_value = control.raw_value + treatment.value - control.value;
    Adjusted { control, treatment, theta }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::{Side, StatsError, absolute};

    /// The treatment's past varies so little beside its size that its variance counts as none; its covariance
    /// is still a millionth of a percent of the control's. Expected is what fractions give.
    #[test]
    fn a_past_that_hardly_varies_still_counts() {
        let moments = |rows: &[[f64; 4]]| {
            let mut moments = Moments::new(4);
            rows.iter().for_each(|row| moments.add(row));
            moments
        };
        let control = moments(&[
            [1_000_000_005.0, 2.0, 2_000_000_003.0, 2.0],
            [1_000_000_001.0, 2.0, 1_000_000_007.0, 1.0],
            [1_000_000_000.0, 1.0, 1.0, 1.0],
        ]);
        let treatment = moments(&[
            [1_500_000_010.5, 1.0, 3_000_000_001.5, 2.0],
            [6_000_000_034.0, 5.0, 1_500_000_010.5, 1.0],
        ]);
        let adjusted = adjust_ratio(&control, &treatment);
        let effect = adjusted.treatment.value - adjusted.control.value;
        assert!((effect / 958_571_436.161_398_3 - 1.0).abs() < 1e-13, "{effect}");
    }

    /// One user of each arm has a past, so the ratio before exposure is the same for all that have one:
    /// the difference of its terms is rounding noise, which was taken for a covariate.
    #[test]
    fn a_ratio_that_never_varied_adjusts_nothing() {
        let moments = |rows: &[[f64; 4]]| {
            let mut moments = Moments::new(4);
            rows.iter().for_each(|row| moments.add(row));
            moments
        };
        let nobody = [[0.0; 4]; 6];
        let control = [
            &nobody[..],
            &[
                [0.0, 3.0, 0.0, 0.0],
                [0.0, 0.0, 3.444_884_012_000_56, 5.0],
                [3.264_125_879_779_765, 0.0, 0.0, 0.0],
                [0.0, 4.0, 0.0, 0.0],
            ],
        ]
        .concat();
        let treatment = [
            &nobody[..],
            &[
                [0.584_953_430_592_620_2, 4.0, 0.0, 0.0],
                [0.780_745_265_944_469_6, 7.0, 0.840_733_685_887_333_3, 7.0],
            ],
        ]
        .concat();
        let (control, treatment) = (moments(&control), moments(&treatment));
        let adjusted = adjust_ratio(&control, &treatment);
        assert_eq!(adjusted.theta, 0.0);
        assert_eq!(adjusted.treatment.value, ArmFigure::ratio(&treatment, 0, 1).value);
    }

    /// Clusters of `sizes` users who each have `now` and a past of `before`, as sums and numbers of users.
    fn clusters(sizes: &[u32], now: impl Fn(usize) -> f64, before: f64) -> Moments {
        let mut moments = Moments::new(4);
        for (place, size) in sizes.iter().enumerate() {
            let users = f64::from(*size);
            moments.add(&[now(place) * users, users, before * users, users]);
        }
        moments
    }

    #[test]
    fn a_past_that_is_the_same_in_all_clusters_adjusts_nothing() {
        for before in [0.0, 0.1, 1.0 / 3.0, 1.0, 7_654_321.987] {
            let now = |place: usize| 0.3 + (place % 5) as f64 * 0.7;
            let control = clusters(&[3, 1, 4, 1, 5, 9, 2, 6], now, before);
            let treatment = clusters(&[5, 3, 5, 8, 9, 7, 9, 3], now, before);
            let adjusted = adjust_ratio(&control, &treatment);
            assert_eq!(adjusted.theta, 0.0, "{before}");
            assert_eq!(adjusted.control, ArmFigure::ratio(&control, 0, 1), "{before}");
            let plain = ArmFigure::ratio(&treatment, 0, 1);
            assert_eq!(adjusted.treatment.value, plain.value, "{before}");
            assert_eq!(adjusted.treatment.variance, plain.variance, "{before}");
            // Nor is there anything in which the arms could differ before exposure.
            let past = [ArmFigure::ratio(&control, 2, 3), ArmFigure::ratio(&treatment, 2, 3)];
            assert!(absolute(&past[0], &past[1], 0.05).is_err(), "{before}");
        }
    }

    #[test]
    fn a_ratio_that_is_the_same_in_all_clusters_has_no_error() {
        let of = |now: f64, sizes: &[u32]| ArmFigure::ratio(&clusters(sizes, |_| now, 0.0), 0, 1);
        let (control, treatment) = (of(0.1, &[3, 1, 4, 1, 5]), of(0.7, &[9, 2, 6, 5, 3]));
        assert_eq!(
            absolute(&control, &treatment, 0.05),
            Err(StatsError::ZeroVariance(Side::Control))
        );
    }

    #[test]
    fn a_past_that_says_everything_leaves_no_variance() {
        let (mut control, mut treatment) = (Moments::new(2), Moments::new(2));
        for value in [0.1, 0.7, 1.3, 2.9, 1e3] {
            control.add(&[value * 3.0, value]);
            treatment.add(&[value * 2.7, value * 0.9]);
        }
        let adjusted = adjust_mean(&control, &treatment, 0, 1);
        assert_eq!((adjusted.control.variance, adjusted.treatment.variance), (0.0, 0.0));
        let (adjusted, _) = adjust_mean_by_many(&control, &treatment, 0, &[1]);
        assert_eq!((adjusted.control.variance, adjusted.treatment.variance), (0.0, 0.0));
    }
}
