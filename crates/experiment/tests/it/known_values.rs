//! Estimates against a small table of reference results that travels with the code.
//!
//! Expected values come from make_golden.py (gbstats at growthbook commit 8f1db445, SciPy 1.17,
//! statsmodels 0.15) and accept_data.py, never from our own output. The published raw sums lose
//! about three digits to cancellation, so tolerances are wider here than in `golden.rs`.

use uplake_experiment::Moments;
use uplake_experiment::cuped;
use uplake_experiment::effect::{ArmFigure, Estimate, StatsError, absolute, relative};
use uplake_experiment::health::sample_ratio;

/// Value, error, low, high and p.
type Expected = [f64; 5];

#[track_caller]
fn holds(found: Result<Estimate, StatsError>, expected: Expected) {
    let found = found.expect("an estimate");
    let names = ["value", "error", "low", "high", "p"];
    let found = [found.value, found.error, found.low, found.high, found.p];
    for ((name, found), expected) in names.iter().zip(found).zip(expected) {
        let error = ((found - expected) / expected).abs();
        assert!(error < 1e-9, "{name}: {found} instead of {expected}");
    }
}

fn revenue() -> (ArmFigure, ArmFigure) {
    let arm = |users, sum, squares| {
        ArmFigure::mean(&Moments::from_raw_sums(users, &[sum], &[squares]), 0)
    };
    (arm(468, 13264.76, 845826.8804), arm(477, 14265.47, 1148322.3657))
}

#[test]
fn mean_difference_and_lift_are_those_of_gbstats_and_scipy() {
    let (control, treatment) = revenue();
    holds(
        absolute(&control, &treatment, 0.05),
        [
            1.5631414288018064,
            2.3083214187480414,
            -2.9670958026073455,
            6.093378660210958,
            0.49846554320230985,
        ],
    );
    holds(
        relative(&control, &treatment, 0.05),
        [
            0.05514990008709142,
            0.08328225337172761,
            -0.10829716663244701,
            0.21859696680662985,
            0.5080072836795573,
        ],
    );
}

#[test]
fn proportion_is_that_of_gbstats() {
    let arm =
        |users, count| ArmFigure::proportion(&Moments::from_raw_sums(users, &[count], &[count]), 0);
    let (control, treatment) = (arm(468, 359.0), arm(477, 364.0));
    holds(
        absolute(&control, &treatment, 0.05),
        [
            -0.0039912917271408554,
            0.027581536310532655,
            -0.05811959512873707,
            0.05013701167445536,
            0.8849716974103486,
        ],
    );
}

#[test]
fn ratio_takes_users_as_the_unit() {
    let arm = |users, sums: [f64; 2], products: [f64; 3]| {
        ArmFigure::ratio(&Moments::from_raw_sums(users, &sums, &products), 0, 1)
    };
    let control = arm(468, [779.0, 3027.0], [2399.0, 7213.0, 28227.0]);
    let treatment = arm(477, [808.0, 3066.0], [2736.0, 7821.0, 28634.0]);
    holds(
        relative(&control, &treatment, 0.05),
        [
            0.024033521826617887,
            0.043958847745868695,
            -0.062234997081734314,
            0.11030204073497009,
            0.5846951701362657,
        ],
    );
}

#[test]
fn cuped_lift_is_that_of_gbstats() {
    let arm =
        |users, sums: [f64; 2], products: [f64; 3]| Moments::from_raw_sums(users, &sums, &products);
    let control = arm(468, [13264.76, 10149.58], [845826.8804, 365466.6658, 576180.1954]);
    let treatment = arm(477, [14265.47, 10446.15], [1148322.3657, 445110.9137, 680209.6079]);
    let adjusted = cuped::adjust_mean(&control, &treatment, 0, 1);
    holds(
        relative(&adjusted.control, &adjusted.treatment, 0.05),
        [
            0.053194418105946474,
            0.08135655572269762,
            -0.10647264971829803,
            0.21286148593019097,
            0.5133771720113947,
        ],
    );
    assert!((adjusted.variance_reduction() - 0.0459).abs() < 1e-3);
}

#[test]
fn cookie_cats_retention_fell_as_published() {
    let arm =
        |users, count| ArmFigure::proportion(&Moments::from_raw_sums(users, &[count], &[count]), 0);
    let (control, treatment) = (arm(44700, 8502.0), arm(45489, 8279.0));
    holds(
        relative(&control, &treatment, 0.05),
        [
            -0.043119034896460164,
            0.013329603155584745,
            -0.06924492805215379,
            -0.016993141740766535,
            0.0012175794283324493,
        ],
    );
    let ratio = sample_ratio(&[44700, 45489], &[0.5, 0.5]).expect("two arms");
    assert!((ratio.p / 0.008607987810836262 - 1.0).abs() < 1e-9);
    assert!(!ratio.is_alarm());
}

#[test]
fn a_negative_control_mean_keeps_the_sign_of_the_difference() {
    let arm = |users, sum, squares| {
        ArmFigure::mean(&Moments::from_raw_sums(users, &[sum], &[squares]), 0)
    };
    let lift = relative(&arm(5000, -10000.0, 70000.0), &arm(5200, -9880.0, 69000.0), 0.05);
    holds(
        lift,
        [0.05, 0.030262446776883705, -0.009320368797388914, 0.109320368797389, 0.09852207473989139],
    );
}

#[test]
fn sample_ratio_counts_only_arms_in_use() {
    let ratio = sample_ratio(&[500, 560, 0], &[0.5, 0.5, 0.0]).expect("two arms in use");
    assert_eq!(ratio.df, 1);
    assert!((ratio.p / 0.06534575162837782 - 1.0).abs() < 1e-9);
    let leak = sample_ratio(&[500, 500, 1], &[0.5, 0.5, 0.0]).expect("two arms in use");
    assert!(leak.is_alarm());
    assert_eq!(sample_ratio(&[0, 0], &[0.5, 0.5]), Err(StatsError::NoShares));
}

#[test]
fn degenerate_arms_are_named() {
    use uplake_experiment::effect::Side::{Control, Treatment};
    let good = ArmFigure::mean(&Moments::from_summary(100, &[1.0], &[2.0]), 0);
    let arm = |users, mean, variance| {
        ArmFigure::mean(&Moments::from_summary(users, &[mean], &[variance]), 0)
    };
    for (control, treatment, expected) in [
        (good, arm(1, 1.0, 0.0), StatsError::TooFewUsers(Treatment)),
        (arm(50, 1.0, 0.0), good, StatsError::ZeroVariance(Control)),
        (good, arm(50, f64::NAN, 1.0), StatsError::NotFinite(Treatment)),
        (arm(50, 1.0, f64::INFINITY), good, StatsError::NotFinite(Control)),
    ] {
        assert_eq!(absolute(&control, &treatment, 0.05), Err(expected));
        assert_eq!(relative(&control, &treatment, 0.05), Err(expected));
    }
    let zero = arm(50, 0.0, 1.0);
    assert!(absolute(&zero, &good, 0.05).is_ok());
    assert_eq!(relative(&zero, &good, 0.05), Err(StatsError::ZeroControlMean));
}
