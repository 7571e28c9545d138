//! Plans of experiments: do they find what they are planned for, in simulated experiments?

use crate::answers::{Random, close};
use uplake_experiment::effect::{Estimate, StatsError};
use uplake_experiment::planning::plan_like;
use uplake_experiment::power::{Goal, Plan, PlannedLooks, users_per_arm};
use uplake_experiment::query::Cell;
use uplake_experiment::sequential::{Sides, confidence_sequence, group_sequential_bounds};
use uplake_experiment::{Experiment, Moments, MomentsTable, Report, analyze, plan};

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

/// A report of two means, the second with CUPED: 400 and 600 users (or clusters) of 3 days.
fn history(keys: &str, exposures: &str) -> (Experiment, Report) {
    let text = format!(
        "name = \"h\"\nstart = \"2026-11-01\"\nend = \"2026-11-04\"\n{keys}\n[exposures]\ntable = \"x\"\n\
         user = \"u\"\nvariant = \"v\"\ntime = \"t\"\n{exposures}\n[[variant]]\nname = \"a\"\nshare = 0.4\n\
         [[variant]]\nname = \"b\"\nshare = 0.6\n[[metric]]\nname = \"plain\"\ntype = \"mean\"\nvalue = \"y\"\n\
         [[metric]]\nname = \"cuped\"\ntype = \"mean\"\nvalue = \"y\"\ncuped = {{ pre = \"7 days\" }}\n\
         [[metric]]\nname = \"none\"\ntype = \"mean\"\nvalue = \"z\"\nguardrail = true\n"
    );
    let experiment = Experiment::parse(&text, "h.toml").expect("a definition");
    let query = plan(&experiment, &[], None).expect("a plan");
    let clustered = exposures.contains("cluster");
    let cells = [(0, 400u64), (1, 600)].map(|(variant, units)| {
        let group = |means: &[f64], covariances: &[f64]| match clustered {
            // Beside each number how many users the cluster has: always 5.
            true => {
                let mut all = Vec::new();
                means.iter().for_each(|mean| all.extend([5.0 * mean, 5.0]));
                let mut matrix = Vec::new();
                for i in 0..all.len() {
                    for j in i..all.len() {
                        let both = i.is_multiple_of(2) && j.is_multiple_of(2);
                        matrix.push(if both && i == j { 25.0 * covariances[0] } else { 0.0 });
                    }
                }
                Moments::from_summary(units, &all, &matrix)
            }
            false => Moments::from_summary(units, means, covariances),
        };
        let groups = vec![
            group(&[10.0], &[25.0]),
            // A correlation of 0.6 with the time before: 36 % of the variance.
            group(&[10.0, 8.0], &[25.0, 15.0, 25.0]),
            group(&[0.0], &[0.0]),
        ];
        let users = if clustered { 5 * units } else { units };
        Cell { slice: None, variant, users, groups }
    });
    let day = |day: &str, arm: usize, users: u64| (day.to_owned(), arm, users);
    let first_exposures = vec![
        day("2026-11-01", 0, 300),
        day("2026-11-01", 1, 300),
        day("2026-11-02", 1, 200),
        day("2026-11-03", 0, 100),
        day("2026-11-03", 1, 100),
    ];
    let table = MomentsTable { cells: cells.into(), first_exposures, ..MomentsTable::default() };
    let report = analyze(&experiment, &query, &table).expect("fits");
    (experiment, report)
}

#[test]
fn a_plan_from_history_is_that_of_its_means_errors_and_days() {
    let (experiment, report) = history("", "");
    let planned = plan_like(&experiment, &report, -0.1, 0.8).expect("a plan");
    // Two goals share the error; the arms have 40 and 60 %.
    let goal = Goal { effect: 1.0, deviation: 5.0, alpha: 0.025 };
    let equal = users_per_arm(&goal, 0.8).expect("in range");
    let total = 0.5 * equal * (1.0 / 0.4 + 1.0 / 0.6);
    close(planned[0].users.expect("users"), total, 1e-9, "plain");
    assert_eq!((planned[0].control, planned[0].comparisons), (Some(10.0), 2));
    let adjusted = planned[1].users.expect("users");
    close(adjusted / total, 0.64, 3e-3, "what CUPED leaves");
    // 600 on the first day, 800 on the second, 333 a day.
    let day = |users: f64| match users {
        users if users <= 600.0 => 1.0,
        users if users <= 800.0 => 2.0,
        users => 3.0 + ((users - 1000.0) / (1000.0 / 3.0)).ceil().max(0.0),
    };
    for planned in &planned[..2] {
        assert_eq!(planned.days, Some(day(planned.users.expect("users"))), "{planned:?}");
    }
    // What today's 1,000 users find is what 1,000 users are needed for.
    let found = planned[0].found.expect("a lift");
    let again = plan_like(&experiment, &report, found, 0.8).expect("a plan");
    close(again[0].users.expect("users") / 1000.0, 1.0, 5e-3, "there and back");
    assert!(planned[2].users.is_err() && planned[2].found.is_err() && planned[2].days.is_none());
    assert_eq!(planned[2].comparisons, 1);
    assert!(plan_like(&experiment, &report, 0.0, 0.8).is_err());
}

#[test]
fn a_plan_from_history_is_for_the_looks_and_units_of_its_definition() {
    let users = |keys: &str, exposures: &str| {
        let (experiment, report) = history(keys, exposures);
        plan_like(&experiment, &report, 0.1, 0.8).expect("a plan")[0].users.expect("users")
    };
    let once = users("", "");
    let goal = Goal { effect: 1.0, deviation: 5.0, alpha: 0.025 };
    for (keys, looks) in [
        ("inference = \"anytime\"\nplanned_users = 1000", PlannedLooks::Anytime),
        (
            "inference = \"group_sequential\"\nplanned_users = 1000\nlooks = 4",
            PlannedLooks::GroupSequential(4),
        ),
    ] {
        let plan = |looks| Plan { looks, ..Plan::PLAIN }.users(&goal, 0.8).expect("users").total;
        close(users(keys, "") / once, plan(looks) / plan(PlannedLooks::Once), 1e-9, keys);
    }
    close(users("correction = \"none\"", "") / once, 0.826, 5e-3, "alone");
    // Five users a cluster, which are all the same.
    close(users("", "cluster = \"shop\"") / once, 5.0, 1e-9, "clusters");
}
