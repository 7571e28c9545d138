//! Plans of experiments: do they find what they are planned for, in simulated experiments?

use crate::answers::{Random, close};
use uplake_experiment::effect::{Estimate, StatsError};
use uplake_experiment::power::{Goal, Plan, PlannedLooks, users_per_arm};
use uplake_experiment::sequential::{Sides, confidence_sequence, group_sequential_bounds};

const EXPERIMENTS: usize = 20_000;
const GOAL: Goal = Goal { effect: 0.1, deviation: 1.0, alpha: 0.05 };

fn normal(random: &mut Random) -> f64 {
    (-2.0 * random.uniform().ln()).sqrt() * (std::f64::consts::TAU * random.uniform()).cos()
}

#[test]
fn a_plain_plan_is_that_of_a_t_test() {
    let plain = Plan::PLAIN.users(&GOAL, 0.8).expect("in range");
    let one = users_per_arm(&GOAL, 0.8).expect("in range");
    close(plain.control, one, 1e-12, "control");
    close(plain.total, 2.0 * one, 1e-12, "both");
    let once = Plan { looks: PlannedLooks::GroupSequential(1), ..Plan::PLAIN };
    close(once.users(&GOAL, 0.8).expect("in range").total, plain.total, 1e-5, "one look");
}

#[test]
fn shares_arms_and_clusters_take_more_users() {
    let plain = Plan::PLAIN.users(&GOAL, 0.8).expect("in range");
    let uneven = Plan { control_share: 0.9, ..Plan::PLAIN }.users(&GOAL, 0.8).expect("in range");
    // The difference has the same error: 1 / n1 + 1 / n2.
    let spread = |of: uplake_experiment::power::PlannedUsers| 1.0 / of.control + 1.0 / of.treatment;
    close(spread(uneven), spread(plain), 1e-12, "uneven");
    close(uneven.total / plain.total, 0.25 / 0.09, 1e-12, "a quarter over 0.9 times 0.1");
    let four = Plan { treatments: 3, control_share: 0.25, ..Plan::PLAIN };
    let of_four = four.users(&GOAL, 0.8).expect("in range");
    let third = users_per_arm(&Goal { alpha: 0.05 / 3.0, ..GOAL }, 0.8).expect("in range");
    close(of_four.control, third, 1e-12, "four arms alike");
    close(of_four.total, 4.0 * third, 1e-12, "four arms");
    let shops = Plan { clusters: Some((20.0, 0.05)), ..Plan::PLAIN };
    close(shops.users(&GOAL, 0.8).expect("in range").total, 1.95 * plain.total, 1e-12, "shops");
    for wrong in [
        Plan { treatments: 0, ..Plan::PLAIN },
        Plan { control_share: 1.0, ..Plan::PLAIN },
        Plan { clusters: Some((0.5, 0.1)), ..Plan::PLAIN },
        Plan { clusters: Some((5.0, 1.5)), ..Plan::PLAIN },
        Plan { looks: PlannedLooks::GroupSequential(0), ..Plan::PLAIN },
    ] {
        assert!(matches!(wrong.users(&GOAL, 0.8), Err(StatsError::OutOfRange(_))), "{wrong:?}");
    }
}

/// How often a statistic that drifts as planned is above the method's bounds at some look. Three standard errors are
/// 0.85 points.
#[test]
fn planned_looks_find_the_effect_as_often_as_planned() {
    for (looks, plan) in [
        (4, PlannedLooks::GroupSequential(4)),
        (28, PlannedLooks::GroupSequential(28)),
        (28, PlannedLooks::Anytime),
    ] {
        let users = Plan { looks: plan, ..Plan::PLAIN }.users(&GOAL, 0.8).expect("in range");
        let drift = GOAL.effect / (2.0 / users.control).sqrt();
        let fractions: Vec<f64> = (1..=looks).map(|k| f64::from(k) / f64::from(looks)).collect();
        let bounds = match plan {
            PlannedLooks::Anytime => {
                let planned = users.total.round() as u64;
                let at = |t: &f64| {
                    let one = Estimate {
                        value: 0.0,
                        error: 1.0,
                        df: f64::INFINITY,
                        low: 0.0,
                        high: 0.0,
                        p: 1.0,
                    };
                    let now = (t * users.total).round() as u64;
                    confidence_sequence(&one, now, planned, 0.05).expect("in range").high
                };
                fractions.iter().map(at).collect()
            }
            _ => group_sequential_bounds(&fractions, 0.05, Sides::Two).expect("in range"),
        };
        let mut random = Random(users.total as u64);
        let (mut found, mut at_the_end) = (0, 0);
        for _ in 0..EXPERIMENTS {
            let (mut score, mut any) = (0.0, false);
            let mut last = false;
            for (t, bound) in fractions.iter().zip(&bounds) {
                let step = 1.0 / f64::from(looks);
                score += drift * step + step.sqrt() * normal(&mut random);
                last = score / t.sqrt() > *bound;
                any |= last;
            }
            found += usize::from(any);
            at_the_end += usize::from(last);
        }
        let [found, at_the_end] = [found, at_the_end].map(|n| n as f64 / EXPERIMENTS as f64);
        match plan {
            // Planned for the last look alone.
            PlannedLooks::Anytime => {
                assert!((at_the_end - 0.8).abs() < 0.01 && found > 0.8, "{at_the_end}, {found}");
            }
            _ => assert!((found - 0.8).abs() < 0.01, "{looks} looks: {found}"),
        }
    }
}
