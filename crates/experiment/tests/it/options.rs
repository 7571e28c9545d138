//! Every option of a definition, through `plan` and `analyze`: against reference values where a
//! package has the same definition, otherwise against the formula in two plain passes over rows.

use crate::answers::{
    Random, User, answer, close, covariance, golden, golden_users, mean, read, report, single,
};
use serde_json::Value;
use uplake_experiment::analyze::alternatives;
use uplake_experiment::distribution::{normal_isf, normal_sf, t_isf, t_sf};
use uplake_experiment::effect::{Estimate, StatsError};
use uplake_experiment::report::{Comparison, Decision, MetricReport, Scale};
use uplake_experiment::{Experiment, Report, analyze, plan};

/// A definition with arms A and B, `top` before the tables and `metric` as the only one.
fn define(top: &str, exposures: &str, metric: &str) -> Experiment {
    read(&format!(
        r#"name = "options"
{top}
[exposures]
table = "exposures"
user = "user_id"
variant = "variant"
time = "ts"
{exposures}
[[variant]]
name = "A"
share = 0.5
[[variant]]
name = "B"
share = 0.5
[[dimension]]
name = "country"
[[metric]]
name = "m"
{metric}
"#
    ))
}

/// As gbstats has it.
const DELTA: &str = "lift = \"delta\"";
const REVENUE: &str = "type = \"mean\"\nvalue = \"revenue\"";
const CUPED: &str = "type = \"mean\"\nvalue = \"revenue\"\ncuped = { pre = \"14 days\" }";
const CONVERTED: &str = "type = \"proportion\"\nvalue = \"converted\"";

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[track_caller]
fn holds(found: Result<Estimate, StatsError>, expected: &Value, what: &str) {
    let found = found.unwrap_or_else(|error| panic!("{what}: {error}"));
    close(found.value, number(&expected["expected"]), 1e-11, &format!("{what} estimate"));
    close(found.error, number(&expected["se"]), 1e-12, &format!("{what} error"));
    close(found.low, number(&expected["ci"][0]), 1e-9, &format!("{what} low"));
    close(found.high, number(&expected["ci"][1]), 1e-9, &format!("{what} high"));
    close(found.p, number(&expected["p"]), 1e-8, &format!("{what} p"));
}

/// Numbers of the users of one arm.
fn of(users: &[User], variant: usize, name: &str) -> Vec<f64> {
    let arm = users.iter().filter(|user| user.variant == variant);
    arm.map(|user| user.numbers[name]).collect()
}

/// Welch's test of two lists of numbers, from the textbook.
fn welch(control: &[f64], treatment: &[f64]) -> Estimate {
    let squared = |arm: &[f64]| covariance(arm, arm) / arm.len() as f64;
    let (a, b) = (squared(control), squared(treatment));
    let own = |s: f64, arm: &[f64]| s * s / (arm.len() - 1) as f64;
    let df = (a + b).powi(2) / (own(a, control) + own(b, treatment));
    student(mean(treatment) - mean(control), (a + b).sqrt(), df)
}

fn student(value: f64, error: f64, df: f64) -> Estimate {
    let half = t_isf(0.025, df) * error;
    let p = 2.0 * t_sf((value / error).abs(), df);
    Estimate { value, error, df, low: value - half, high: value + half, p }
}

#[track_caller]
fn same(found: Result<Estimate, StatsError>, expected: Estimate, tolerance: f64, what: &str) {
    let found = found.unwrap_or_else(|error| panic!("{what}: {error}"));
    for (name, found, expected) in [
        ("value", found.value, expected.value),
        ("error", found.error, expected.error),
        ("low", found.low, expected.low),
        ("high", found.high, expected.high),
        ("p", found.p, expected.p),
    ] {
        close(found, expected, tolerance, &format!("{what} {name}"));
    }
}

#[test]
fn lifts_are_those_that_a_test_of_the_difference_does_not_reject() {
    let (Some(golden), Some(users)) = (golden(), golden_users()) else { return };
    let report = report(&define("", "", REVENUE), &users);
    let (_, comparison) = single(&report);
    let (lift, difference) =
        (comparison.relative.expect("a lift"), comparison.absolute.expect("an estimate"));
    let expected = &golden["mean_revenue_A_vs_B"]["reference"];
    close(lift.value, number(&expected["relative_delta"]["expected"]), 1e-11, "lift");
    close(lift.error, number(&expected["relative_delta"]["se"]), 1e-11, "error");
    assert_eq!(lift.p, difference.p);
    // With normal quantiles nearly the same: 945 users.
    let interval = &expected["relative_fieller_ci_normal"];
    close(lift.low, number(&interval[0]), 1e-2, "low");
    close(lift.high, number(&interval[1]), 1e-2, "high");
    assert!(comparison.method.contains("Fieller"), "{}", comparison.method);
    assert!(report.method.iter().any(|sentence| sentence.contains("Fieller")));
}

/// The lift at which a test's p-value is 0.05, on one side of an estimate: by halving.
fn not_rejected(from: f64, step: f64, p: impl Fn(f64) -> f64) -> f64 {
    let (mut inside, mut outside) = (from, from + step);
    while p(outside) > 0.05 {
        (inside, outside) = (outside, outside + step);
    }
    for _ in 0..80 {
        let middle = 0.5 * (inside + outside);
        if p(middle) > 0.05 { inside = middle } else { outside = middle }
    }
    0.5 * (inside + outside)
}

/// Ends of intervals are where Welch's test of the treatment and the control times (1 + lift) has p = alpha, for
/// few users and many, with and without CUPED and strata, above and below 0.
#[test]
fn ends_of_lifts_are_where_tests_of_them_turn() {
    for (seed, count, sign) in [(1, 16, 1.0), (2, 60, 1.0), (3, 60, -1.0), (4, 800, 1.0)] {
        let mut random = Random(seed);
        let country = |i: usize| if i.is_multiple_of(3) { "DE" } else { "FR" };
        let mut users: Vec<User> =
            (0..count).map(|i| made_up(&mut random, i % 2, country(i))).collect();
        for user in &mut users {
            *user.numbers.get_mut("revenue").expect("a number") *= sign;
        }
        // The same users with the control's numbers times (1 + lift), as the sign has it.
        let moved = |lift: f64| {
            let mut users = users.clone();
            for user in users.iter_mut().filter(|user| user.variant == 0) {
                *user.numbers.get_mut("revenue").expect("a number") *= 1.0 + sign * lift;
            }
            users
        };
        for top in ["", "stratify = \"country\""] {
            let found = report(&define(top, "", REVENUE), &users);
            let (_, comparison) = single(&found);
            let (lift, difference) =
                (comparison.relative.expect("a lift"), comparison.absolute.expect("a difference"));
            let none = define(&format!("{top}\nlift = \"none\""), "", REVENUE);
            let p = |lift: f64| {
                let found = report(&none, &moved(lift));
                single(&found).1.absolute.expect("a difference").p
            };
            let what = format!("seed {seed}, {top}");
            close(lift.p, difference.p, 1e-12, &what);
            close(
                lift.low,
                not_rejected(lift.value, -lift.error, p),
                1e-9,
                &format!("{what}, low"),
            );
            close(
                lift.high,
                not_rejected(lift.value, lift.error, p),
                1e-9,
                &format!("{what}, high"),
            );
            assert_eq!(lift.low > 0.0 || lift.high < 0.0, difference.p < 0.05, "{what}");
        }
        let found = report(&define("", "", CUPED), &users);
        let lift = single(&found).1.relative.expect("a lift");
        let all = |name: &str| users.iter().map(|user| user.numbers[name]).collect::<Vec<f64>>();
        let (y, x) = (all("revenue"), all("pre_revenue"));
        let theta = covariance(&x, &y) / covariance(&x, &x);
        let p = |lift: f64| {
            let arm = |variant: usize| -> Vec<f64> {
                let raw = of(&users, variant, "revenue");
                let x = of(&users, variant, "pre_revenue");
                let times = if variant == 0 { 1.0 + sign * lift } else { 1.0 };
                raw.iter().zip(x).map(|(raw, x)| raw * times - theta * x).collect()
            };
            welch(&arm(0), &arm(1)).p
        };
        let what = format!("seed {seed}, CUPED");
        close(lift.low, not_rejected(lift.value, -lift.error, p), 1e-9, &format!("{what}, low"));
        close(lift.high, not_rejected(lift.value, lift.error, p), 1e-9, &format!("{what}, high"));
    }
}

#[test]
fn a_method_names_only_what_was_done() {
    let mut random = Random(12);
    let users: Vec<User> = (0..80).map(|i| made_up(&mut random, i % 2, "DE")).collect();
    let found = report(&define("stratify = \"country\"\nlift = \"fieller\"", "", REVENUE), &users);
    let method = &single(&found).1.method;
    let other = ["delta", "Fisher", "Newcombe", "t-test"];
    assert!(!other.iter().any(|name| method.contains(name)), "{method}");
    assert!(!found.method.iter().any(|sentence| sentence.contains("delta")));
}

#[test]
fn differences_decide_where_lifts_are_not_wanted() {
    let Some(users) = golden_users() else { return };
    let found = report(&define("lift = \"none\"", "", REVENUE), &users);
    let usual = report(&define("", "", REVENUE), &users);
    let (comparison, usual) = (single(&found).1, single(&usual).1);
    assert_eq!((comparison.scale, usual.scale), (Scale::Absolute, Scale::Relative));
    assert_eq!((comparison.absolute, comparison.relative), (usual.absolute, usual.relative));
    assert_eq!(comparison.p_adjusted, Some(usual.absolute.expect("an estimate").p));
}

#[test]
fn shares_can_be_tested_pooled_or_exactly() {
    let (Some(golden), Some(users)) = (golden(), golden_users()) else { return };
    let expected = &golden["proportion_converted_A_vs_B"];
    let pooled = report(&define("", "", &format!("{CONVERTED}\ntest = \"pooled\"")), &users);
    let (_, comparison) = single(&pooled);
    let difference = comparison.absolute.expect("an estimate");
    let z = number(&expected["statsmodels_ztest_pooled"]["z"]);
    close(difference.value / difference.error, z, 1e-11, "pooled z");
    let p = number(&expected["statsmodels_ztest_pooled"]["p"]);
    close(difference.p, p, 1e-8, "pooled p");
    close(number(&expected["scipy_chi2_nocorr_p"]), p, 1e-8, "the same as chi-square");
    close(comparison.relative.expect("a lift").p, p, 1e-8, "of the lift");
    assert!(comparison.method.contains("pooled z-test"), "{}", comparison.method);

    let exact = report(&define("", "", &format!("{CONVERTED}\ntest = \"exact\"")), &users);
    let (_, comparison) = single(&exact);
    let difference = comparison.absolute.expect("an estimate");
    close(difference.p, number(&expected["scipy_fisher_p"]), 1e-8, "Fisher");
    let interval = &expected["statsmodels_newcomb_ci"];
    close(difference.low, number(&interval[0]), 1e-9, "Newcombe low");
    close(difference.high, number(&interval[1]), 1e-9, "Newcombe high");
    assert_eq!(comparison.relative.expect("a lift").p, difference.p);
    assert!(comparison.method.contains("Fisher"), "{}", comparison.method);

    let plain = report(&define("", "", CONVERTED), &users);
    let (_, comparison) = single(&plain);
    holds(comparison.absolute, &expected["gbstats_main"]["absolute"], "unpooled");
}

#[test]
fn an_exact_test_needs_no_failures() {
    // 0 of 4 against 4 of 4: Fisher's p is 2 / C(8, 4).
    let share = |variant: usize, converted: f64| User {
        variant,
        numbers: [("converted".to_owned(), converted)].into(),
        ..User::default()
    };
    let users: Vec<User> = (0..8).map(|i| share(i / 4, if i < 4 { 0.0 } else { 1.0 })).collect();
    let exact = report(&define("", "", &format!("{CONVERTED}\ntest = \"exact\"")), &users);
    let (_, comparison) = single(&exact);
    let difference = comparison.absolute.expect("exact tests need no variance");
    close(difference.p, 2.0 / 70.0, 1e-12, "p");
    assert_eq!((difference.value, comparison.scale), (1.0, Scale::Absolute));
    assert!(difference.low > 0.0 && difference.high <= 1.0, "{difference:?}");
    let plain = report(&define("", "", CONVERTED), &users);
    assert!(matches!(single(&plain).1.absolute, Err(StatsError::ZeroVariance(_))));
}

/// CUPED by hand: users' numbers less what the covariates explain, then Welch; the lift divides
/// by the control's raw mean, whose users also carry the lift's own share of it.
fn cuped_by_hand(users: &[User], y: &str, covariates: &[(&str, f64)]) -> [Estimate; 2] {
    let arm = |variant: usize| -> [Vec<f64>; 2] {
        let mut left = of(users, variant, y);
        for (x, theta) in covariates {
            let all: Vec<f64> = users.iter().map(|user| user.numbers[*x]).collect();
            let centre = mean(&all);
            let x = of(users, variant, x);
            left.iter_mut().zip(x).for_each(|(left, x)| *left -= theta * (x - centre));
        }
        [left, of(users, variant, y)]
    };
    let ([a, raw_a], [b, raw_b]) = (arm(0), arm(1));
    let difference = welch(&a, &b);
    let (base, lift) = (mean(&raw_a), mean(&raw_b) / mean(&raw_a) - 1.0);
    let with_base: Vec<f64> = a.iter().zip(&raw_a).map(|(left, raw)| left + lift * raw).collect();
    let squared = |arm: &[f64]| covariance(arm, arm) / arm.len() as f64;
    let error = (squared(&with_base) + squared(&b)).sqrt() / base.abs();
    [difference, student(difference.value / base.abs(), error, difference.df)]
}

#[test]
fn cuped_subtracts_one_covariate_or_several() {
    let (Some(golden), Some(users)) = (golden(), golden_users()) else { return };
    let one = report(&define(DELTA, "", CUPED), &users);
    let (metric, comparison) = single(&one);
    let expected = &golden["cuped_revenue_A_vs_B"]["gbstats_main"];
    holds(comparison.absolute, &expected["absolute"], "absolute");
    holds(comparison.relative, &expected["relative"], "relative");
    let raw_error = number(&golden["mean_revenue_A_vs_B"]["gbstats_main"]["absolute"]["se"]);
    let gain = 1.0 - (number(&expected["absolute"]["se"]) / raw_error).powi(2);
    close(comparison.variance_reduction.expect("CUPED"), gain, 1e-10, "reduction");
    let raw = &golden["mean_revenue_A_vs_B"]["tea_tasting"];
    close(metric.values[0].value.expect("a mean"), number(&raw["control"]), 1e-12, "raw control");
    close(metric.values[1].value.expect("a mean"), number(&raw["treatment"]), 1e-12, "raw");

    // Coefficients in exact rational arithmetic (docs/statistics/covariates.py).
    let theta = [("pre_revenue", 0.01052149067371059), ("pre_sessions", 3.1931598570846904)];
    let with = CUPED.replace("days\"", "days\", with = [{ value = \"sessions\" }]");
    let two = report(&define(DELTA, "", &with), &users);
    let (_, comparison) = single(&two);
    let [difference, lift] = cuped_by_hand(&users, "revenue", &theta);
    same(comparison.absolute, difference, 1e-9, "two covariates, difference");
    same(comparison.relative, lift, 1e-9, "two covariates, lift");
    assert!(comparison.method.contains("2 covariates"), "{}", comparison.method);
}

#[test]
fn cuped_works_on_shares_and_ratios() {
    let (Some(golden), Some(users)) = (golden(), golden_users()) else { return };
    let share = format!("{CONVERTED}\ncuped = {{ pre = \"14 days\" }}");
    let shares = report(&define(DELTA, "", &share), &users);
    let all = |name: &str| users.iter().map(|user| user.numbers[name]).collect::<Vec<f64>>();
    let (y, x) = (all("converted"), all("pre_converted"));
    let theta = covariance(&x, &y) / covariance(&x, &x);
    let [difference, lift] = cuped_by_hand(&users, "converted", &[("pre_converted", theta)]);
    same(single(&shares).1.absolute, difference, 1e-9, "share, difference");
    same(single(&shares).1.relative, lift, 1e-9, "share, lift");

    let ratio = "type = \"ratio\"\nnumerator = { value = \"orders\" }\n\
                 denominator = { value = \"sessions\" }\ncuped = { pre = \"14 days\" }";
    let ratios = report(&define(DELTA, "", ratio), &users);
    let expected = &golden["cuped_ratio_orders_per_session_A_vs_B"]["gbstats_main"];
    holds(single(&ratios).1.absolute, &expected["absolute"], "ratio, difference");
    holds(single(&ratios).1.relative, &expected["relative"], "ratio, lift");
}

#[test]
fn strata_agree_with_gbstats() {
    let (Some(golden), Some(users)) = (golden(), golden_users()) else { return };
    let stratified = define(&format!("stratify = \"country\"\n{DELTA}"), "", REVENUE);
    let found = report(&stratified, &users);
    let (_, comparison) = single(&found);
    let expected = &golden["post_stratification_revenue_by_country_A_vs_B"];
    holds(comparison.absolute, &expected["absolute"], "strata, difference");
    holds(comparison.relative, &expected["relative"], "strata, lift");
    let raw = number(&golden["mean_revenue_A_vs_B"]["gbstats_main"]["absolute"]["se"]);
    let gain = 1.0 - (number(&expected["absolute"]["se"]) / raw).powi(2);
    close(comparison.variance_reduction.expect("strata"), gain, 1e-9, "reduction");
    assert!(comparison.method.contains("values of country"), "{}", comparison.method);
    // A ratio has no strata, and says so by not naming them.
    let ratio = "type = \"ratio\"\nnumerator = { value = \"orders\" }\n\
                 denominator = { value = \"sessions\" }";
    let found = report(&define(&format!("stratify = \"country\"\n{DELTA}"), "", ratio), &users);
    let expected = &golden["ratio_orders_per_session_A_vs_B"]["gbstats_main"]["relative"];
    holds(single(&found).1.relative, expected, "ratio");
    assert!(!single(&found).1.method.contains("country"));
}

/// Strata by hand: each with its own coefficient, weighted by their share of users.
#[test]
fn strata_with_cuped_adjust_within_each_stratum() {
    let (Some(golden), Some(users)) = (golden(), golden_users()) else { return };
    let found = report(&define("stratify = \"country\"", "", CUPED), &users);
    let difference = single(&found).1.absolute.expect("an estimate");
    let (mut parts, mut inside) = (Vec::new(), 0.0);
    for country in ["US", "DE", "BR"] {
        let stratum: Vec<User> =
            users.iter().filter(|user| user.slices["country"] == country).cloned().collect();
        let all = |name: &str| stratum.iter().map(|user| user.numbers[name]).collect::<Vec<f64>>();
        let (y, x) = (all("revenue"), all("pre_revenue"));
        let theta = covariance(&x, &y) / covariance(&x, &x);
        let [own, _] = cuped_by_hand(&stratum, "revenue", &[("pre_revenue", theta)]);
        let weight = stratum.len() as f64 / users.len() as f64;
        inside += (weight * own.error).powi(2);
        parts.push((weight, own.value));
    }
    let value: f64 = parts.iter().map(|(weight, own)| weight * own).sum();
    let of_weights: f64 = parts.iter().map(|(weight, own)| weight * (own - value).powi(2)).sum();
    let error = (inside + of_weights / users.len() as f64).sqrt();
    close(difference.value, value, 1e-10, "difference");
    close(difference.error, error, 1e-10, "error");
    // gbstats fits ANCOVA per stratum, with one error variance for both arms: another definition.
    let expected = &golden["post_stratification_cuped_revenue_by_country_A_vs_B"]["absolute"];
    close(difference.value, number(&expected["expected"]), 2e-3, "ANCOVA's difference");
    close(difference.error, number(&expected["se"]), 1e-2, "ANCOVA's error");
}

#[test]
fn strata_without_users_in_an_arm_join_others() {
    let mut random = Random(11);
    let mut users: Vec<User> = (0..300)
        .map(|i| {
            let country = ["DE", "DE", "FR"][random.below(3)];
            made_up(&mut random, i % 2, country)
        })
        .collect();
    let stratified = define("stratify = \"country\"", "", REVENUE);
    // Only in the control: joins the smallest stratum, FR.
    users.extend((0..5).map(|_| made_up(&mut random, 0, "AT")));
    let found = report(&stratified, &users);
    let renamed = |from: &str, to: &str| -> Vec<User> {
        let mut users = users.clone();
        users.iter_mut().for_each(|user| {
            let country = user.slices.get_mut("country").expect("a country");
            if country == from {
                *country = to.into();
            }
        });
        users
    };
    assert_eq!(
        single(&found).1.absolute,
        single(&report(&stratified, &renamed("AT", "FR"))).1.absolute
    );
    // Two poor strata that make a whole one together.
    users.extend((0..18).map(|_| made_up(&mut random, 1, "CH")));
    let found = report(&stratified, &users);
    let mut together = users.clone();
    for user in &mut together {
        let country = user.slices.get_mut("country").expect("a country");
        if country == "CH" || country == "AT" {
            *country = "CH and AT".into();
        }
    }
    let expected = report(&stratified, &together);
    assert_eq!(single(&found).1.absolute, single(&expected).1.absolute);
    assert_eq!(single(&found).1.relative, single(&expected).1.relative);
    // No stratum has both arms: everyone is one stratum, whose weight is certain.
    users.iter_mut().for_each(|user| {
        let country = if user.variant == 0 { "DE" } else { "FR" };
        user.slices.insert("country".into(), country.into());
    });
    let plain = welch(&of(&users, 0, "revenue"), &of(&users, 1, "revenue"));
    same(single(&report(&stratified, &users)).1.absolute, plain, 1e-9, "no strata");
}

fn made_up(random: &mut Random, variant: usize, country: &str) -> User {
    let base = if country == "DE" { 10.0 } else { 4.0 };
    let past = base - 5.0 * random.uniform().ln();
    let revenue = 0.6 * past - 4.0 * random.uniform().ln() + 0.5 * variant as f64;
    let numbers = [
        ("revenue", revenue),
        ("pre_revenue", past),
        ("converted", f64::from(u8::from(random.uniform() < 0.3))),
        ("pre_converted", f64::from(u8::from(random.uniform() < 0.2))),
        ("orders", (2.0 * random.uniform()).floor()),
        ("sessions", 1.0 + (4.0 * random.uniform()).floor()),
        ("pre_orders", (2.0 * random.uniform()).floor()),
        ("pre_sessions", 1.0 + (3.0 * random.uniform()).floor()),
        ("steps", (3.0 * random.uniform()).floor()),
    ];
    User {
        variant,
        cluster: random.below(20) + 100 * variant,
        day: random.below(14),
        slices: [("country".to_owned(), country.to_owned())].into(),
        numbers: numbers.map(|(name, number)| (name.to_owned(), number)).into(),
        rows: (0..1 + random.below(4)).map(|_| -200.0 * random.uniform().ln()).collect(),
    }
}

#[test]
fn group_sequential_intervals_are_the_bounds_times_the_error() {
    let (Some(golden), Some(users)) = (golden(), golden_users()) else { return };
    // 945 of 1,575 planned users: exactly the third of five looks.
    let top = "lift = \"delta\"\ninference = \"group_sequential\"\nplanned_users = 1575\nlooks = 5";
    let bound = number(&golden["group_sequential_bounds"]["2"][2]);
    for (metric, section) in [(REVENUE, "mean_revenue_A_vs_B"), (CUPED, "cuped_revenue_A_vs_B")] {
        let found = report(&define(top, "", metric), &users);
        for (scale, estimate) in
            [("absolute", single(&found).1.absolute), ("relative", single(&found).1.relative)]
        {
            let expected = &golden[section]["gbstats_main"][scale];
            let estimate = estimate.expect("an estimate");
            close(estimate.value, number(&expected["expected"]), 1e-11, section);
            close(estimate.error, number(&expected["se"]), 1e-12, section);
            // The package's own integration is off by up to 5e-5; exact values are in sequential.rs.
            let half = (estimate.high - estimate.low) / 2.0;
            close(half / estimate.error, bound, 5e-5, section);
            assert!(estimate.p > 0.05 && estimate.low < 0.0 && estimate.high > 0.0);
        }
        assert!(single(&found).1.method.contains("5 looks up to 1,575 users"));
    }
    // At the last look the bound is the last one, also past the plan.
    for planned in [945, 500] {
        let top = format!("inference = \"group_sequential\"\nplanned_users = {planned}\nlooks = 5");
        let found = report(&define(&top, "", REVENUE), &users);
        let estimate = single(&found).1.absolute.expect("an estimate");
        let last = number(&golden["group_sequential_bounds"]["2"][4]);
        close((estimate.high - estimate.low) / 2.0 / estimate.error, last, 5e-5, "last look");
    }
}

#[test]
fn group_sequential_p_reaches_alpha_where_the_interval_touches_zero() {
    for seed in 0..25 {
        let mut random = Random(seed);
        let users: Vec<User> = (0..200).map(|i| made_up(&mut random, i % 2, "DE")).collect();
        let top = "inference = \"group_sequential\"\nplanned_users = 300\nlooks = 3";
        let found = report(&define(top, "", CUPED), &users);
        let estimate = single(&found).1.estimate().expect("an estimate");
        let outside = estimate.low > 0.0 || estimate.high < 0.0;
        assert_eq!(estimate.p < 0.05, outside, "seed {seed}: {estimate:?}");
    }
}

#[test]
fn beliefs_follow_the_desired_direction() {
    let (Some(golden), Some(users)) = (golden(), golden_users()) else { return };
    for (prior, section) in [
        ("", "reference_flat"),
        ("\nprior = { mean = 0, deviation = 0.3 }", "reference_prior_N0_0_09"),
    ] {
        let top = format!("{DELTA}\ninference = \"bayesian\"{prior}");
        let expected = &golden["bayes_revenue_A_vs_B"][section];
        let (win, risk) = (number(&expected["ctw"]), &expected["risk"]);
        let up = report(&define(&top, "", REVENUE), &users);
        let comparison = single(&up).1;
        let belief = comparison.belief.expect("a belief");
        close(belief.chance_to_win, win, 1e-11, section);
        close(belief.risk_of_control, number(&risk[0]), 1e-9, section);
        close(belief.risk_of_arm, number(&risk[1]), 1e-9, section);
        let lift = comparison.relative.expect("a lift");
        close(lift.value, number(&expected["expected"]), 1e-11, section);
        close(lift.error, number(&expected["sd"]), 1e-12, section);
        close(lift.low, number(&expected["ci"][0]), 1e-9, section);
        close(lift.high, number(&expected["ci"][1]), 1e-9, section);

        let down = format!("{REVENUE}\ndirection = \"decrease\"");
        let down = report(&define(&top, "", &down), &users);
        let belief = single(&down).1.belief.expect("a belief");
        close(belief.chance_to_win, 1.0 - win, 1e-11, "down");
        close(belief.risk_of_arm, number(&risk[0]), 1e-9, "down");
        close(belief.risk_of_control, number(&risk[1]), 1e-9, "down");
        assert_eq!((down.correction, down.inference), ("none", "bayesian"));
    }
}

/// A prior of lifts is one of differences by the control mean: both scales say the same, and so does the impact.
#[test]
fn a_prior_of_lifts_is_one_of_differences_too() {
    let Some(users) = golden_users() else { return };
    let plain = report(&define("", "", REVENUE), &users);
    let difference = single(&plain).1.absolute.expect("an estimate");
    let base = mean(&of(&users, 0, "revenue"));
    let top = "inference = \"bayesian\"\nprior = { mean = 0.02, deviation = 0.1 }";
    let found = report(&define(top, "", REVENUE), &users);
    let comparison = single(&found).1;
    let (value, error) = (difference.value / base, difference.error / base);
    let precision = 1.0 / (error * error) + 1.0 / 0.01;
    let posterior = (value / (error * error) + 0.02 / 0.01) / precision;
    let deviation = precision.sqrt().recip();
    let (absolute, lift) =
        (comparison.absolute.expect("a difference"), comparison.relative.expect("a lift"));
    close(lift.value, posterior, 1e-12, "the lift");
    close(absolute.value, base * posterior, 1e-12, "the difference");
    close(absolute.error, base * deviation, 1e-12, "its deviation");
    close(comparison.impact.expect("a total").value, 945.0 * base * posterior, 1e-12, "impact");
    let belief = comparison.belief.expect("a belief");
    close(belief.chance_to_win, normal_sf(-posterior / deviation), 1e-12, "chance to win");
    assert!(lift.low < posterior && posterior < lift.high && lift.p == absolute.p);
    // Wider than as if the control mean were known.
    assert!(lift.high - lift.low > 2.0 * normal_isf(0.025) * deviation);
    // Without lifts a prior is of the difference.
    let top = format!("{top}\nlift = \"none\"").replace("0.02", "1").replace("0.1", "5");
    let found = report(&define(&top, "", REVENUE), &users);
    let absolute = single(&found).1.absolute.expect("a difference");
    let precision = difference.error.powi(-2) + 1.0 / 25.0;
    let posterior = (difference.value * difference.error.powi(-2) + 1.0 / 25.0) / precision;
    close(absolute.value, posterior, 1e-12, "a prior of differences");
}

#[test]
fn anytime_intervals_agree_with_gbstats() {
    let (Some(golden), Some(users)) = (golden(), golden_users()) else { return };
    let golden = &golden["sequential_revenue_A_vs_B"];
    for (planned, metric, section) in [
        (5000, REVENUE, "gbstats_main"),
        (1000, REVENUE, "gbstats_main_tune_1000"),
        (5000, CUPED, "gbstats_main_cuped"),
    ] {
        let top = format!("{DELTA}\ninference = \"anytime\"\nplanned_users = {planned}");
        let found = report(&define(&top, "", metric), &users);
        holds(single(&found).1.relative, &golden[section]["relative"], section);
        holds(single(&found).1.absolute, &golden[section]["absolute"], section);
    }
}

#[test]
fn non_inferiority_holds_in_both_directions() {
    let (Some(golden), Some(users)) = (golden(), golden_users()) else { return };
    let orders = "type = \"mean\"\nvalue = \"orders\"\nguardrail = true\nmargin = 0.1";
    let found = report(&define("", "", orders), &users);
    let check = single(&found).1.non_inferiority.expect("a margin");
    let expected = &golden["non_inferiority_orders_margin_10pct_A_vs_B"];
    // The reference has normal quantiles: Student's t of 900 users is a little more.
    let p = number(&expected["one_sided_p_ratio_margin"]);
    assert!(p < check.p && check.p < 1.01 * p, "may not fall: {}", check.p);
    // 0.0257 is above the one-sided 0.025.
    assert!(check.margin == 0.1 && !check.holds);

    let down = format!("{orders}\ndirection = \"decrease\"");
    let found = report(&define("", "", &down), &users);
    let check = single(&found).1.non_inferiority.expect("a margin");
    let (a, b) = (of(&users, 0, "orders"), of(&users, 1, "orders"));
    let squared = |arm: &[f64]| covariance(arm, arm) / arm.len() as f64;
    let moved: Vec<f64> = a.iter().map(|number| 1.1 * number).collect();
    let t = (1.1 * mean(&a) - mean(&b)) / (squared(&b) + 1.21 * squared(&a)).sqrt();
    close(check.p, t_sf(t, welch(&moved, &b).df), 1e-9, "may not rise");
    assert_eq!(check.holds, check.p < 0.025);
    // Nobody is harmed by a guardrail that is only not shown to hold, but nobody ships on it.
    assert_eq!(found.verdict.decision, Decision::KeepRunning);
}

#[test]
fn corrections_are_those_named() {
    let mut random = Random(3);
    let users: Vec<User> = (0..400).map(|i| made_up(&mut random, i % 2, "DE")).collect();
    let metrics = format!(
        "{REVENUE}\n[[metric]]\nname = \"converted\"\n{CONVERTED}\n[[metric]]\nname = \"orders\"\n\
         type = \"mean\"\nvalue = \"orders\"\n[[metric]]\nname = \"guard\"\ntype = \"mean\"\n\
         value = \"sessions\"\nguardrail = true"
    );
    let adjusted = |top: &str| -> (Vec<f64>, Vec<f64>) {
        let found = report(&define(top, "", &metrics), &users);
        let raw = found.metrics.iter().map(|m| m.comparisons[0].estimate().expect("p").p);
        let adjusted = found.metrics.iter().map(|m| m.comparisons[0].p_adjusted.expect("p"));
        (raw.collect(), adjusted.collect())
    };
    let (p, none) = adjusted("correction = \"none\"");
    assert_eq!(p, none);
    let mut order = [0, 1, 2];
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let [first, second, third] = order;
    let (_, holm) = adjusted("");
    let steps = [3.0 * p[first], (2.0 * p[second]).max(3.0 * p[first]), 0.0];
    assert_eq!(holm[first], steps[0].min(1.0));
    assert_eq!(holm[second], steps[1].min(1.0));
    close(holm[third], p[third].max(steps[1]).min(1.0), 1e-15, "third");
    let (_, hochberg) = adjusted("correction = \"benjamini-hochberg\"");
    close(hochberg[third], p[third], 1e-15, "third");
    close(hochberg[second], (1.5 * p[second]).min(p[third]), 1e-15, "second");
    close(hochberg[first], (3.0 * p[first]).min(hochberg[second]), 1e-15, "first");
    assert!(holm[3] == p[3] && hochberg[3] == p[3], "guardrails stand alone");
}

/// The mean per user from sums over clusters, by hand.
fn cluster_arm(users: &[User], variant: usize, name: &str) -> (f64, f64, usize) {
    let mut sums = std::collections::BTreeMap::<usize, [f64; 2]>::new();
    for user in users.iter().filter(|user| user.variant == variant) {
        let sum = sums.entry(user.cluster).or_default();
        sum[0] += user.numbers[name];
        sum[1] += 1.0;
    }
    let clusters = sums.len() as f64;
    let [total, size] = [0, 1].map(|i| sums.values().map(|sum| sum[i]).sum::<f64>());
    let ratio = total / size;
    let left = sums.values().map(|sum| (sum[0] - ratio * sum[1]).powi(2)).sum::<f64>();
    let squared_error = left / (clusters - 1.0) / (size / clusters).powi(2) / clusters;
    (ratio, squared_error, sums.len())
}

#[test]
fn clusters_are_the_unit_of_error() {
    let mut random = Random(5);
    let users: Vec<User> = (0..500).map(|i| made_up(&mut random, i % 2, "DE")).collect();
    for (metric, name) in [(REVENUE, "revenue"), (CONVERTED, "converted")] {
        let found = report(&define("", "cluster = \"shop\"", metric), &users);
        let (ours, comparison) = single(&found);
        let (a, b) = (cluster_arm(&users, 0, name), cluster_arm(&users, 1, name));
        let df =
            (a.1 + b.1).powi(2) / (a.1 * a.1 / (a.2 - 1) as f64 + b.1 * b.1 / (b.2 - 1) as f64);
        let expected = student(b.0 - a.0, (a.1 + b.1).sqrt(), df);
        same(comparison.absolute, expected, 1e-9, name);
        close(ours.values[0].value.expect("a mean"), a.0, 1e-12, name);
        assert_eq!((found.unit, found.arms[0].units, found.arms[0].users), ("clusters", 20, 250));
        let impact = comparison.impact.expect("a total");
        close(impact.value, 500.0 * expected.value, 1e-9, "over users, not clusters");
        // The sample ratio counts clusters.
        assert_eq!(found.health.sample_ratio.expected, [20.0, 20.0]);
    }
    // Before exposure over clusters as well: the ratio's CUPED.
    let found = report(&define("", "cluster = \"shop\"", CUPED), &users);
    assert!(single(&found).1.variance_reduction.expect("CUPED") > 0.1);
    assert_eq!(found.health.balance.checks, 1);
}

#[test]
fn switchbacks_compare_regions_and_times() {
    let mut random = Random(6);
    let users: Vec<User> = (0..60).map(|i| made_up(&mut random, i % 2, "DE")).collect();
    let section = "[switchback]\nregion = \"city\"\nevery = \"4 hours\"\n[[dimension]]";
    let build = |metric: &str| {
        let text = format!(
            "name = \"s\"\n[exposures]\ntable = \"e\"\nvariant = \"v\"\ntime = \"ts\"\n{section}\n\
             name = \"country\"\n[[variant]]\nname = \"A\"\nshare = 0.5\n[[variant]]\n\
             name = \"B\"\nshare = 0.5\n[[metric]]\nname = \"m\"\n{metric}\n"
        );
        read(&text)
    };
    for (metric, name) in [(REVENUE, "revenue"), (CONVERTED, "converted")] {
        let found = report(&build(metric), &users);
        let expected = welch(&of(&users, 0, name), &of(&users, 1, name));
        same(single(&found).1.absolute, expected, 1e-9, name);
        assert_eq!((found.unit, found.arms[1].units), ("region-times", 30));
        close(single(&found).1.impact.expect("a total").value, 60.0 * expected.value, 1e-9, name);
    }
}

#[test]
fn quantiles_of_rows_and_of_users() {
    let (Some(golden), Some(users)) = (golden(), golden_users()) else { return };
    let rows = "type = \"quantile\"\nvalue = \"latency\"\nlevel = 0.9\nper = \"row\"";
    let found = report(&define("compat = \"growthbook\"", "", rows), &users);
    let (metric, comparison) = single(&found);
    let expected = &golden["quantile_p90_latency_A_vs_B_clustered"];
    holds(comparison.absolute, &expected["gbstats"]["absolute"], "rows");
    holds(comparison.relative, &expected["gbstats"]["relative"], "rows");
    assert_eq!(metric.values[0].value, Some(347.0));
    assert_eq!(metric.values[0].denominator, Some(3027.0));
    assert!(comparison.impact.is_none() && metric.series.is_empty());

    let of_users = rows.replace("row", "user").replace("latency", "revenue");
    let found = report(&define(DELTA, "", &of_users), &users);
    let arm = |variant: usize| {
        let mut values = of(&users, variant, "revenue");
        values.sort_by(f64::total_cmp);
        let n = values.len() as f64;
        let at = |rank: f64| values[rank as usize - 1];
        let rank = |level: f64| (n * level).ceil();
        let band = normal_isf(0.025) * (0.9 * 0.1 / n).sqrt();
        let (low, high) = (rank(0.9 - band), rank(0.9 + band));
        // The values' distance over that of their ranks, times the rank's standard error.
        let error = (at(high) - at(low)) / (high - low) * (n * 0.9 * 0.1).sqrt();
        (at(rank(0.9)), error * error, high - low)
    };
    let (a, b) = (arm(0), arm(1));
    let df = (a.1 + b.1).powi(2) / (a.1 * a.1 / a.2 + b.1 * b.1 / b.2);
    let expected = student(b.0 - a.0, (a.1 + b.1).sqrt(), df);
    same(single(&found).1.absolute, expected, 1e-9, "users");
}

#[test]
fn a_quantile_caps_all_arms_alike() {
    let (Some(golden), Some(users)) = (golden(), golden_users()) else { return };
    let found = report(&define("", "", &format!("{REVENUE}\ncap = \"99 %\"")), &users);
    let (metric, comparison) = single(&found);
    let expected = &golden["winsorised_revenue_A_vs_B"]["p99_all"];
    assert_eq!(metric.cap, Some(number(&expected["cap"])));
    let difference = comparison.absolute.expect("an estimate");
    close(difference.value, number(&expected["diff"]), 1e-11, "capped");
    close(difference.p, number(&expected["welch_p"]), 1e-8, "capped p");
    let fixed = report(&define("", "", &format!("{REVENUE}\ncap = 155.81")), &users);
    assert_eq!(single(&fixed).1.absolute, comparison.absolute);
}

#[test]
fn thresholds_counts_and_funnels_are_shares_and_means_of_their_own() {
    let Some(users) = golden_users() else { return };
    let share = |variant: usize, keep: &dyn Fn(&User) -> bool| {
        let arm: Vec<&User> = users.iter().filter(|user| user.variant == variant).collect();
        arm.iter().filter(|user| keep(user)).count() as f64 / arm.len() as f64
    };
    let threshold = "type = \"threshold\"\nvalue = \"revenue\"\nat_least = 40";
    let found = report(&define("", "", threshold), &users);
    let rich = |user: &User| user.numbers["revenue"] >= 40.0;
    let metric = single(&found).0;
    close(metric.values[0].value.expect("a share"), share(0, &rich), 1e-14, "threshold");
    assert!(metric.is_share && metric.kind == "threshold");
    let distinct = "type = \"distinct\"\nvalue = \"orders\"";
    let found = report(&define("", "", distinct), &users);
    let plain = welch(&of(&users, 0, "orders"), &of(&users, 1, "orders"));
    same(single(&found).1.absolute, plain, 1e-9, "distinct is a mean");
    assert_eq!(single(&found).0.kind, "distinct");
}

#[test]
fn growthbook_definitions_on_request() {
    let Some(golden) = golden() else { return };
    let text = |compat: &str| {
        format!(
            "name = \"g\"\n{compat}\ninference = \"anytime\"\n[exposures]\ntable = \"e\"\n\
             user = \"u\"\nvariant = \"v\"\n[[variant]]\nname = \"A\"\nshare = 0.5\n[[variant]]\n\
             name = \"B\"\nshare = 0.5\n[[variant]]\nname = \"C\"\nshare = 0\n[[metric]]\n\
             name = \"m\"\ntype = \"mean\"\nvalue = \"x\"\n[[metric]]\nname = \"n\"\n\
             type = \"mean\"\nvalue = \"y\"\n"
        )
    };
    let mut random = Random(8);
    let users: Vec<User> = (0..1060)
        .map(|i| User {
            variant: usize::from(i >= 500),
            numbers: [("x".to_owned(), random.uniform()), ("y".to_owned(), random.uniform())]
                .into(),
            ..User::default()
        })
        .collect();
    let case = &golden["srm"]["gbstats_zero_weight_df_bug"];
    let theirs = report(&read(&text("compat = \"growthbook\"")), &users);
    let p = theirs.health.sample_ratio.p.expect("a test");
    close(p, number(&case["gbstats_p"]), 1e-8, "their degrees of freedom");
    assert!(theirs.method.iter().any(|sentence| sentence.contains("gbstats")));
    assert_eq!(theirs.correction, "none");
    // Tightest at 5,000 users of both arms.
    let ours = report(&read(&text("planned_users = 5000\ncorrection = \"none\"")), &users);
    let p = ours.health.sample_ratio.p.expect("a test");
    close(p, number(&case["correct_p"]), 1e-8, "ours");
    assert_eq!(theirs.metrics[0].comparisons[0].absolute, ours.metrics[0].comparisons[0].absolute);
    let corrected = report(&read(&text("planned_users = 5000")), &users);
    assert_eq!(corrected.correction, "holm");
    let empty = theirs.metrics[0].comparisons.iter().find(|c| c.arm == 2).expect("arm C");
    assert!(matches!(empty.absolute, Err(StatsError::EmptyArm(_))));
}

#[test]
fn totals_and_further_users_follow_from_the_estimate() {
    let (Some(golden), Some(users)) = (golden(), golden_users()) else { return };
    let found = report(&define("", "", REVENUE), &users);
    let comparison = single(&found).1;
    let expected = &golden["mean_revenue_A_vs_B"]["reference"];
    let absolute = &expected["absolute"];
    let impact = comparison.impact.expect("a total");
    close(impact.value, 945.0 * number(&absolute["expected"]), 1e-11, "total");
    close(impact.low, 945.0 * number(&absolute["ci"][0]), 1e-9, "total low");
    close(impact.high, 945.0 * number(&absolute["ci"][1]), 1e-9, "total high");
    // 1.959964 and 0.841621: a two-sided test at 5 % that finds four effects in five.
    let sight = 1.959963984540054 + 0.8416212335729143;
    let base = mean(&of(&users, 0, "revenue"));
    let detectable = sight * number(&absolute["se"]);
    close(comparison.detectable.expect("an error"), detectable / base, 1e-11, "detectable");
    let factor = (detectable / number(&absolute["expected"])).powi(2) - 1.0;
    close(comparison.further_users.expect("an effect"), factor, 1e-10, "further users");
}

#[test]
fn alternatives_are_the_reports_of_other_definitions() {
    let mut random = Random(9);
    let users: Vec<User> = (0..400).map(|i| made_up(&mut random, i % 2, "DE")).collect();
    let metrics = format!("{CUPED}\n[[metric]]\nname = \"converted\"\n{CONVERTED}");
    let experiment = define("", "", &metrics);
    let query = plan(&experiment, &[], None).expect("no names");
    let table = answer(&query, &users, 0);
    let found = alternatives(&experiment, &query, &table).expect("fits");
    assert_eq!(found.len(), 8, "two baselines, CUPED or not, once or always");
    let plain = metrics.replace("\ncuped = { pre = \"14 days\" }", "");
    for alternative in &found {
        let metrics = if alternative.cuped { &metrics } else { &plain };
        let top = match alternative.anytime {
            // Without a plan the sequence is tightest at today's users.
            true => "inference = \"anytime\"\nplanned_users = 400",
            false => "",
        };
        let mut swapped = define(top, "", metrics);
        swapped.variants.iter_mut().enumerate().for_each(|(index, variant)| {
            variant.control = index == alternative.baseline;
        });
        let report = report(&swapped, &users);
        for (metric, comparisons) in report.metrics.iter().zip(&alternative.comparisons) {
            assert_eq!(&metric.comparisons, comparisons, "{} {top}", metric.name);
        }
    }
    let without = define("", "", &plain);
    let query = plan(&without, &[], None).expect("no names");
    let found = alternatives(&without, &query, &answer(&query, &users, 0)).expect("fits");
    assert!(found.len() == 4 && found.iter().all(|alternative| !alternative.cuped));
}

/// An estimate is finite or has a reason, and so is all that follows from it.
fn comparison_is_sound(c: &Comparison, what: &str) {
    for estimate in [c.absolute, c.relative] {
        match estimate {
            Ok(e) => {
                let all = [e.value, e.error, e.low, e.high, e.p];
                assert!(all.iter().all(|number| number.is_finite()), "{what}: {e:?}");
                let p_fits = (0.0..=1.0).contains(&e.p);
                assert!(e.error > 0.0 && e.low <= e.high && p_fits, "{what}: {e:?}");
                assert!(!e.df.is_nan() && e.df > 0.0, "{what}: {e:?}");
            }
            Err(error) => assert!(!error.code().is_empty()),
        }
    }
    let impact = c.impact.map(|i| [i.value, i.low, i.high]);
    let belief = c.belief.map(|b| [b.chance_to_win, b.risk_of_arm, b.risk_of_control]);
    let single = [
        c.p_adjusted,
        c.detectable,
        c.variance_reduction,
        c.further_users,
        c.non_inferiority.map(|check| check.p),
    ];
    let all = impact.into_iter().flatten().chain(belief.into_iter().flatten());
    for number in all.chain(single.into_iter().flatten()) {
        assert!(number.is_finite(), "{what}: {c:?}");
    }
    assert_eq!(c.estimate().is_ok(), c.p_adjusted.is_some(), "{what}");
}

/// Everything a report prints is a number or has a reason.
fn is_sound(report: &Report, what: &str) {
    let finite = |value: f64, name: &str| assert!(value.is_finite(), "{what}: {name} is {value}");
    let maybe = |value: Option<f64>, name: &str| value.into_iter().for_each(|v| finite(v, name));
    let comparison = |c: &Comparison| comparison_is_sound(c, what);
    let metric = |m: &MetricReport| {
        m.comparisons.iter().for_each(comparison);
        for value in &m.values {
            maybe(value.value, "value");
            maybe(value.numerator, "numerator");
            maybe(value.denominator, "denominator");
        }
        for arm in &m.moments {
            arm.means.iter().chain(&arm.covariances).for_each(|v| finite(*v, "moments"));
        }
        for point in m.series.iter().flat_map(|series| series.points.iter().flatten()) {
            let ends = [point.low, point.high, point.anytime_low, point.anytime_high];
            ends.into_iter().for_each(|v| finite(v, "series"));
            let rest = [point.control, point.treatment, point.effect, point.detectable];
            rest.into_iter().for_each(|v| finite(v, "series"));
        }
    };
    report.metrics.iter().for_each(metric);
    for breakdown in &report.breakdowns {
        breakdown.rows.iter().flat_map(|row| &row.metrics).for_each(metric);
        breakdown.differences.iter().for_each(|found| {
            finite(found.q, "q");
            finite(found.p, "p of q");
        });
    }
    maybe(report.health.sample_ratio.p, "sample ratio");
    maybe(report.health.sample_ratio.sequential_p, "sequential sample ratio");
}

/// No text says NaN; the page's scripts may.
fn reads_well(report: &Report, what: &str) {
    let page = report.to_html();
    let words: String = page
        .split("<script>")
        .enumerate()
        .map(|(index, part)| match index {
            0 => part,
            _ => part.split_once("</script>").map_or("", |(_, words)| words),
        })
        .collect();
    for text in [report.to_json(), report.to_text(100, false), words] {
        for word in text.split(|c: char| !c.is_alphanumeric()) {
            let number = matches!(word, "NaN" | "nan" | "inf" | "Infinity" | "infinity");
            assert!(!number, "{what}: {word} in {text}");
        }
    }
}

#[test]
fn no_option_prints_nan_for_degenerate_data() {
    let tops = [
        "",
        "lift = \"fieller\"",
        "lift = \"none\"",
        "stratify = \"country\"",
        "correction = \"benjamini-hochberg\"",
        "inference = \"anytime\"\nplanned_users = 100",
        "inference = \"group_sequential\"\nplanned_users = 100\nlooks = 3",
        "inference = \"bayesian\"",
        "inference = \"bayesian\"\nprior = { mean = 0, deviation = 0.1 }",
        "compat = \"growthbook\"",
    ];
    let ratio = "type = \"ratio\"\nnumerator = { value = \"orders\" }\n\
                 denominator = { value = \"sessions\" }";
    let guardrail = format!("{REVENUE}\nguardrail = true\nmargin = 0.1");
    let decrease = format!("{guardrail}\ndirection = \"decrease\"");
    let many = CUPED.replace("days\"", "days\", with = [{ value = \"sessions\" }]");
    let metrics: Vec<String> = vec![
        REVENUE.into(),
        CUPED.into(),
        many,
        CONVERTED.into(),
        format!("{CONVERTED}\ncuped = {{ pre = \"1 day\" }}"),
        format!("{CONVERTED}\ntest = \"pooled\""),
        format!("{CONVERTED}\ntest = \"exact\""),
        "type = \"threshold\"\nvalue = \"revenue\"\nat_least = 5".into(),
        "type = \"count\"\ncap = 3".into(),
        format!("{REVENUE}\ncap = \"90 %\""),
        format!("{REVENUE}\ncap = {{ quantile = 0.9, zeros = false }}\ntransform = \"log1p\""),
        "type = \"first\"\nvalue = \"revenue\"\ncuped = { pre = \"1 day\" }".into(),
        ratio.into(),
        format!("{ratio}\ncuped = {{ pre = \"1 day\" }}"),
        guardrail,
        decrease,
        "type = \"quantile\"\nvalue = \"revenue\"\nlevel = 0.9".into(),
        "type = \"quantile\"\nvalue = \"revenue\"\nlevel = 0.5\nper = \"row\"".into(),
        "type = \"funnel\"\nsteps = [{ name = \"a\", where = \"x\" }, { name = \"b\", where = \"y\" }]"
            .into(),
    ];
    let data = degenerate_data();
    for top in tops {
        for exposures in ["", "cluster = \"shop\""] {
            for metric in &metrics {
                let of_users = metric.contains("quantile") || metric.contains("test =");
                if !exposures.is_empty() && (of_users || top.contains("stratify")) {
                    continue;
                }
                if top.contains("inference") && metric.contains("test =") {
                    continue;
                }
                // Every metric with the defaults; with each option those that take other paths.
                let other_path = ["cuped", "exact", "row", "margin", "log1p"]
                    .iter()
                    .any(|key| metric.contains(key));
                if !top.is_empty() && !other_path && metric != REVENUE {
                    continue;
                }
                let period = "start = \"2026-11-01\"\nend = \"2026-11-03\"\n";
                let experiment = define(&format!("{period}{top}"), exposures, metric);
                let query = plan(&experiment, &["country".to_owned()], None).expect("fits");
                for (name, users) in &data {
                    let what = format!("{name}: {top} {exposures} {metric}");
                    let table = answer(&query, users, 2);
                    let report = analyze(&experiment, &query, &table).expect("fits");
                    is_sound(&report, &what);
                    // Pages cost 10 ms each, so only the first of each option is read.
                    if (top.is_empty() && exposures.is_empty()) || metric == REVENUE {
                        reads_well(&report, &what);
                    }
                    // Six pages' worth of comparisons: for the defaults, and one metric of the rest.
                    if !top.is_empty() && metric != CUPED {
                        continue;
                    }
                    let others = alternatives(&experiment, &query, &table).expect("fits");
                    let others = others.iter().flat_map(|other| other.comparisons.iter().flatten());
                    others.for_each(|comparison| comparison_is_sound(comparison, &what));
                }
            }
        }
    }
}

/// Users that leave some formula without an answer.
fn degenerate_data() -> Vec<(&'static str, Vec<User>)> {
    let mut random = Random(1);
    let good: Vec<User> = (0..24).map(|i| made_up(&mut random, i % 2, "DE")).collect();
    let all = |change: &dyn Fn(usize, &mut User)| {
        let mut users = good.clone();
        users.iter_mut().enumerate().for_each(|(index, user)| change(index, user));
        users
    };
    let set = |user: &mut User, value: f64| {
        user.numbers.values_mut().for_each(|number| *number = value);
        user.rows.iter_mut().for_each(|row| *row = value);
    };
    let only = |keep: &dyn Fn(&User) -> bool| {
        good.iter().filter(|user| keep(user)).cloned().collect::<Vec<_>>()
    };
    vec![
        ("nobody", Vec::new()),
        ("no treatment", only(&|user| user.variant == 0)),
        ("no control", only(&|user| user.variant == 1)),
        ("one user an arm", good[..2].to_vec()),
        ("one user in the treatment", [only(&|u| u.variant == 0), vec![good[1].clone()]].concat()),
        ("all zero", all(&|_, user| set(user, 0.0))),
        ("all one", all(&|_, user| set(user, 1.0))),
        (
            "constant control",
            all(&|i, user| {
                if i % 2 == 0 {
                    set(user, 3.0)
                }
            }),
        ),
        (
            "control mean 0",
            all(&|i, user| {
                let sign = if i % 4 == 0 { 1.0 } else { -1.0 };
                if i % 2 == 0 {
                    set(user, sign)
                }
            }),
        ),
        (
            "control ratio without denominator",
            all(&|i, user| {
                if i % 2 == 0 {
                    user.numbers.insert("sessions".into(), 0.0);
                }
            }),
        ),
        (
            "no history",
            all(&|_, user| {
                user.numbers.retain(|name, _| !name.starts_with("pre_"));
            }),
        ),
        (
            "one infinite value",
            all(&|i, user| {
                if i == 5 {
                    set(user, f64::INFINITY)
                }
            }),
        ),
        (
            "one negative infinite value",
            all(&|i, user| {
                if i == 4 {
                    set(user, f64::NEG_INFINITY)
                }
            }),
        ),
        (
            "one NaN",
            all(&|i, user| {
                if i == 4 {
                    set(user, f64::NAN)
                }
            }),
        ),
        (
            "infinite history",
            all(&|i, user| {
                if i == 5 {
                    let past = user.numbers.iter_mut().filter(|(name, _)| name.starts_with("pre_"));
                    past.for_each(|(_, number)| *number = f64::INFINITY);
                }
            }),
        ),
        ("huge values", all(&|i, user| set(user, 1e200 * (i + 1) as f64))),
        ("tiny values", all(&|i, user| set(user, 1e-200 * (i + 1) as f64))),
        ("values near a billion", all(&|i, user| set(user, 1e9 + (i % 7) as f64))),
        ("negative values", all(&|i, user| set(user, -1.0 - (i % 5) as f64))),
        ("one cluster an arm", all(&|i, user| user.cluster = i % 2)),
        ("empty rows", all(&|_, user| user.rows.clear())),
        (
            "one stratum each",
            all(&|i, user| {
                user.slices.insert("country".into(), format!("c{i}"));
            }),
        ),
    ]
}
