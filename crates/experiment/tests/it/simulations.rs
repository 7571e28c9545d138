//! Do intervals cover as often as they promise? Seeded A/A experiments on skewed, clustered data.
//!
//! Expected rates come from theory: a two-sided test at 5 % rejects in 5 % of A/A experiments.
//! With 800 of them three standard errors are 2.3 points. `examples/simulate.rs` asks the same of
//! every metric type with 4,000 experiments.

use uplake_experiment::Moments;
use uplake_experiment::cuped;
use uplake_experiment::effect::{ArmFigure, absolute, relative};
use uplake_experiment::sequential::{Sides, confidence_sequence, group_sequential_bounds};

const EXPERIMENTS: u64 = 800;
const USERS_PER_ARM: usize = 250;
const ALLOWED: std::ops::RangeInclusive<f64> = 0.027..=0.073;

/// SplitMix64, printed seed: the number of the experiment.
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64 + f64::MIN_POSITIVE
    }

    fn exponential(&mut self) -> f64 {
        -self.uniform().ln()
    }

    /// Clicks, views, and both before the experiment: views differ between users and so does the
    /// chance that a view is a click, which makes views of one user alike.
    fn user(&mut self) -> [f64; 4] {
        let activity = 1.0 + 4.0 * self.exponential();
        let taste = 0.05 + 0.4 * self.uniform();
        let mut period = || {
            let views = 1.0 + (activity * (0.5 + self.uniform())).floor();
            let clicks = (0..views as u32).filter(|_| self.uniform() < taste).count() as f64;
            [clicks, views]
        };
        let ([clicks, views], [clicks_before, views_before]) = (period(), period());
        [clicks, views, clicks_before, views_before]
    }

    fn arm(&mut self, users: usize) -> Moments {
        let mut moments = Moments::new(4);
        (0..users).for_each(|_| moments.add(&self.user()));
        moments
    }
}

/// Share of A/A experiments in which `p` is below 5 %.
fn rejections(p: impl Fn(&Moments, &Moments) -> f64) -> f64 {
    let rejected = (0..EXPERIMENTS).filter(|seed| {
        let mut random = Random(*seed);
        let (a, b) = (random.arm(USERS_PER_ARM), random.arm(USERS_PER_ARM));
        p(&a, &b) < 0.05
    });
    rejected.count() as f64 / EXPERIMENTS as f64
}

#[test]
fn means_and_lifts_reject_five_percent_of_aa_experiments() {
    let difference = rejections(|a, b| {
        absolute(&ArmFigure::mean(a, 0), &ArmFigure::mean(b, 0), 0.05).expect("an estimate").p
    });
    assert!(ALLOWED.contains(&difference), "difference: {difference}");
    let lift = rejections(|a, b| {
        relative(&ArmFigure::mean(a, 0), &ArmFigure::mean(b, 0), 0.05).expect("an estimate").p
    });
    assert!(ALLOWED.contains(&lift), "lift: {lift}");
}

#[test]
fn ratios_need_the_delta_method_to_reject_five_percent() {
    let by_user = rejections(|a, b| {
        let (a, b) = (ArmFigure::ratio(a, 0, 1), ArmFigure::ratio(b, 0, 1));
        absolute(&a, &b, 0.05).expect("an estimate").p
    });
    assert!(ALLOWED.contains(&by_user), "users as units: {by_user}");
    // The same ratio as if every view were independent.
    let by_view = rejections(|a, b| {
        let share = |arm: &Moments| {
            let (clicks, views) = (arm.sum(0), arm.sum(1));
            ArmFigure::proportion(&Moments::from_raw_sums(views as u64, &[clicks], &[clicks]), 0)
        };
        absolute(&share(a), &share(b), 0.05).expect("an estimate").p
    });
    assert!(by_view > 0.10, "views as units reject too often: {by_view}");
}

#[test]
fn cuped_keeps_the_level_and_narrows_the_interval() {
    let means = rejections(|a, b| {
        let adjusted = cuped::adjust_mean(a, b, 0, 2);
        absolute(&adjusted.control, &adjusted.treatment, 0.05).expect("an estimate").p
    });
    assert!(ALLOWED.contains(&means), "means: {means}");
    let ratios = rejections(|a, b| {
        let adjusted = cuped::adjust_ratio(a, b);
        relative(&adjusted.control, &adjusted.treatment, 0.05).expect("an estimate").p
    });
    assert!(ALLOWED.contains(&ratios), "ratios: {ratios}");
    let mut random = Random(7);
    let (a, b) = (random.arm(5000), random.arm(5000));
    assert!(cuped::adjust_mean(&a, &b, 0, 2).variance_reduction() > 0.3);
}

#[test]
fn daily_looks_fool_the_fixed_test_and_not_the_anytime_one() {
    const DAYS: usize = 28;
    const USERS_PER_DAY: usize = 20;
    const WATCHED: u64 = 300;
    let planned = (2 * DAYS * USERS_PER_DAY) as u64;
    let fractions: Vec<f64> = (1..=DAYS).map(|day| day as f64 / DAYS as f64).collect();
    let bounds = group_sequential_bounds(&fractions, 0.05, Sides::Two).expect("rising");
    let (mut fixed, mut anytime, mut sequential) = (0, 0, 0);
    for seed in 0..WATCHED {
        let mut random = Random(seed + 1_000_000);
        let (mut a, mut b) = (Moments::new(4), Moments::new(4));
        let (mut fixed_called, mut anytime_called, mut sequential_called) = (false, false, false);
        for bound in &bounds {
            a.merge(&random.arm(USERS_PER_DAY));
            b.merge(&random.arm(USERS_PER_DAY));
            let (control, treatment) = (ArmFigure::mean(&a, 0), ArmFigure::mean(&b, 0));
            let estimate = absolute(&control, &treatment, 0.05).expect("an estimate");
            fixed_called |= estimate.p < 0.05;
            let users = a.count() + b.count();
            let always = confidence_sequence(&estimate, users, planned, 0.05).expect("in range");
            anytime_called |= always.p < 0.05;
            sequential_called |= (estimate.value / estimate.error).abs() > *bound;
        }
        fixed += u64::from(fixed_called);
        anytime += u64::from(anytime_called);
        sequential += u64::from(sequential_called);
    }
    let share = |count: u64| count as f64 / WATCHED as f64;
    assert!(share(fixed) > 0.18, "fixed: {}", share(fixed));
    assert!(share(anytime) <= 0.05, "anytime: {}", share(anytime));
    // Three standard errors of 300 experiments are 3.8 points.
    assert!(share(sequential) <= 0.088, "group sequential: {}", share(sequential));
}
