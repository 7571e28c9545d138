//! First and last values, days, logs and caps without zeros: what is asked of the engine, and what is made of it,
//! against reference values or plain passes over users.

use crate::answers::{
    Random, User, close, covariance, golden, golden_users, mean, read, report, single,
};
use uplake_experiment::definition::{Cap, Transform};
use uplake_experiment::distribution::{t_isf, t_sf};
use uplake_experiment::effect::{StatsError, absolute};
use uplake_experiment::quantile::{self, Band, Width};
use uplake_experiment::query::{Aggregate, MomentsQuery, UserColumn, Window};
use uplake_experiment::report::Scale;
use uplake_experiment::{Experiment, plan};

/// The metric begins on line 16.
fn text(top: &str, metric: &str) -> String {
    format!(
        r#"name = "kinds"
{top}
[exposures]
table = "events"
user = "user_id"
variant = "variant"
time = "ts"
[[variant]]
name = "A"
share = 0.5
[[variant]]
name = "B"
share = 0.5
[[metric]]
name = "m"
{metric}
"#
    )
}

fn define(metric: &str) -> Experiment {
    read(&text("", metric))
}

fn asked(metric: &str) -> MomentsQuery {
    plan(&define(metric), &[], None).expect("names exist")
}

#[test]
fn each_kind_asks_for_its_own_numbers() {
    let column = |aggregate, value: &str| UserColumn {
        table: "events".into(),
        user: "user_id".into(),
        time: Some("ts".into()),
        filter: None,
        value: value.into(),
        aggregate,
        window: None,
        cap: None,
        transform: None,
        at_least: None,
        complete_ms: None,
        from_exposure: false,
    };
    let has = "(ts) IS NOT NULL AND abs(CAST(price AS DOUBLE)) < CAST('Infinity' AS DOUBLE)";
    let before = Some(Window { start_ms: -86_400_000, end_ms: Some(0) });
    let (first, of_some) = (column(Aggregate::First, "price"), column(Aggregate::Any, has));
    let logged = UserColumn {
        cap: Some(Cap::Quantile { level: 0.99, zeros: false }),
        transform: Some(Transform::Log1p),
        ..column(Aggregate::Sum, "price")
    };
    let cases = [
        ("type = \"unique_days\"", vec![column(Aggregate::Days, "1")]),
        (
            "type = \"unique_days\"\ncap = 3",
            vec![UserColumn { cap: Some(Cap::Value(3.0)), ..column(Aggregate::Days, "1") }],
        ),
        ("type = \"first\"\nvalue = \"price\"", vec![first.clone(), of_some.clone()]),
        (
            "type = \"last\"\nvalue = \"price\"\nzeros = true",
            vec![column(Aggregate::Last, "price")],
        ),
        (
            "type = \"first\"\nvalue = \"price\"\nwhere = \"x\"\ncuped = { pre = \"1 day\" }",
            [None, before]
                .iter()
                .flat_map(|window| {
                    [&first, &of_some].map(|column| UserColumn {
                        filter: Some("x".into()),
                        window: *window,
                        ..column.clone()
                    })
                })
                .collect(),
        ),
        (
            "type = \"mean\"\nvalue = \"price\"\ncap = { quantile = 0.99, zeros = false }\n\
             transform = \"log1p\"\ncuped = { pre = \"1 day\", with = [{ value = \"n\" }] }",
            vec![
                logged.clone(),
                UserColumn { window: before, ..logged },
                UserColumn { window: before, ..column(Aggregate::Sum, "n") },
            ],
        ),
        (
            "type = \"count\"\ncap = { quantile = 0.9 }",
            vec![UserColumn {
                cap: Some(Cap::Quantile { level: 0.9, zeros: true }),
                ..column(Aggregate::Sum, "1")
            }],
        ),
    ];
    for (metric, expected) in cases {
        assert_eq!(asked(metric).columns, expected, "{metric}");
    }
}

#[test]
fn keys_out_of_place_name_their_line_and_what_is_right() {
    let refused = |definition: &str, parts: &[&str]| {
        let error = Experiment::parse(definition, "e.toml").expect_err(definition).to_string();
        for part in parts {
            assert!(error.contains(part), "{error:?} lacks {part:?}");
        }
    };
    let mean = "type = \"mean\"\nvalue = \"price\"";
    let first = "type = \"first\"\nvalue = \"price\"";
    for (metric, parts) in [
        ("type = \"last\"".to_owned(), ["e.toml:14", "`value`"]),
        (format!("{first}\ncap = 3"), ["e.toml:18", "no meaning for type first"]),
        (format!("{first}\ntransform = \"log1p\""), ["e.toml:18", "no meaning for type first"]),
        (format!("{first}\nzeros = 1"), ["e.toml:18", "`zeros` must be"]),
        (
            format!("{first}\ncuped = {{ pre = \"1 day\", with = [{{ value = \"n\" }}] }}"),
            ["e.toml:18", "no meaning for type first"],
        ),
        ("type = \"unique_days\"\nvalue = \"x\"".into(), ["e.toml:17", "type unique_days"]),
        (format!("{mean}\nzeros = true"), ["e.toml:18", "no meaning for type mean"]),
        (format!("{mean}\ntransform = \"sqrt\""), ["e.toml:18", "allowed: log1p"]),
        (
            format!("{mean}\ntransform = \"log1p\"\nguardrail = true\nmargin = 0.1"),
            ["e.toml:20", "without `transform`"],
        ),
        (format!("{mean}\ncap = {{ zeros = false }}"), ["e.toml:18", "quantile = 0.99"]),
        (format!("{mean}\ncap = {{ quantile = 99 }}"), ["e.toml:18", "above 0.5 and below 1"]),
        (format!("{mean}\ncap = {{ quantile = 0.9, of = 1 }}"), ["e.toml:18", "quantile, zeros"]),
    ] {
        refused(&text("", &metric), &parts);
    }
    let timeless = text("", first).replace("time = \"ts\"\n", "");
    refused(&timeless, &["e.toml:13", "`time`", "time = \"ts\""]);
    let own_time = timeless.replace("value = \"price\"", "value = \"price\"\ntime = \"at\"");
    assert!(Experiment::parse(&own_time, "e.toml").is_ok(), "the rows' time is known");
}

/// Users of whom some have a value; with one, their numbers are above 0.
fn users_with_values(seed: u64, share: [f64; 2], has: &str) -> Vec<User> {
    let mut random = Random(seed);
    let mut user = |variant: usize| {
        let price = 10.0 * random.uniform() + variant as f64;
        let some = random.uniform() < share[variant];
        let numbers = [("price", price), (has, 1.0)].into_iter().filter(|_| some);
        let numbers = numbers.map(|(name, number)| (name.to_owned(), number)).collect();
        User { variant, numbers, ..User::default() }
    };
    (0..800).map(|number| user(number % 2)).collect()
}

#[test]
fn values_are_averaged_over_those_who_have_one_with_users_as_units() {
    let metric = "type = \"last\"\nvalue = \"price\"";
    let has = asked(metric).columns[1].value.clone();
    let users = users_with_values(3, [0.6, 0.6], &has);
    let found = report(&define(metric), &users);
    let (metric, comparison) = single(&found);
    assert_eq!(metric.kind, "last");
    let mut arms = Vec::new();
    for (variant, value) in metric.values.iter().enumerate() {
        let arm: Vec<&User> = users.iter().filter(|user| user.variant == variant).collect();
        let with: Vec<f64> =
            arm.iter().filter_map(|user| user.numbers.get("price")).copied().collect();
        close(value.value.expect("a mean"), mean(&with), 1e-12, "mean");
        assert_eq!((value.users, value.denominator), (400, Some(with.len() as f64)));
        // The delta method: residuals of everybody, over the share of those with a value.
        let residual = |user: &&User| user.numbers.get("price").map_or(0.0, |p| p - mean(&with));
        let residuals: Vec<f64> = arm.iter().map(residual).collect();
        let share = with.len() as f64 / arm.len() as f64;
        let squared = covariance(&residuals, &residuals) / (share * share) / arm.len() as f64;
        // Welch's over those with a value is the same but for n and n - 1.
        let plain = covariance(&with, &with) / with.len() as f64;
        close(squared, plain, 0.005, "as of a mean");
        arms.push((mean(&with), squared));
    }
    let difference = comparison.absolute.expect("an estimate");
    close(difference.value, arms[1].0 - arms[0].0, 1e-12, "difference");
    close(difference.error, (arms[0].1 + arms[1].1).sqrt(), 1e-12, "error");
    assert!(comparison.impact.is_none() && metric.notes.is_empty());
    assert!(comparison.method.starts_with("Mean over users with a value"), "{}", comparison.method);
}

#[test]
fn arms_whose_users_have_values_in_other_shares_are_pointed_out() {
    let metric = "type = \"first\"\nvalue = \"price\"";
    let has = asked(metric).columns[1].value.clone();
    let users = users_with_values(4, [0.5, 0.8], &has);
    let found = report(&define(metric), &users);
    let [note] = &single(&found).0.notes[..] else { panic!("one note") };
    assert!(note.contains("different users") && note.starts_with("B: "), "{note}");
    let all = report(&define(&format!("{metric}\nzeros = true")), &users);
    let metric = single(&all).0;
    assert!(metric.notes.is_empty(), "everybody counts");
    let sum: f64 = users
        .iter()
        .filter(|user| user.variant == 0)
        .filter_map(|user| user.numbers.get("price"))
        .sum();
    close(metric.values[0].value.expect("a mean"), sum / 400.0, 1e-12, "zeros count");
}

#[test]
fn means_of_logs_are_compared_as_differences() {
    let Some(users) = golden_users() else { return };
    let logged = "type = \"mean\"\nvalue = \"revenue\"\ntransform = \"log1p\"";
    let found = report(&define(logged), &users);
    let (metric, comparison) = single(&found);
    let arm = |variant: usize| -> Vec<f64> {
        let arm = users.iter().filter(|user| user.variant == variant);
        arm.map(|user| (1.0 + user.numbers["revenue"]).ln()).collect()
    };
    let (a, b) = (arm(0), arm(1));
    let squared = |arm: &[f64]| covariance(arm, arm) / arm.len() as f64;
    let (va, vb) = (squared(&a), squared(&b));
    let error = (va + vb).sqrt();
    let own = |s: f64, arm: &[f64]| s * s / (arm.len() - 1) as f64;
    let df = (va + vb).powi(2) / (own(va, &a) + own(vb, &b));
    let value = mean(&b) - mean(&a);
    let difference = comparison.absolute.expect("an estimate");
    close(difference.value, value, 1e-10, "value");
    close(difference.error, error, 1e-12, "error");
    close(difference.p, 2.0 * t_sf((value / error).abs(), df), 1e-8, "p");
    close(difference.high, value + t_isf(0.025, df) * error, 1e-9, "high");
    assert_eq!(
        (comparison.scale, comparison.relative),
        (Scale::Absolute, Err(StatsError::LiftOfLogs))
    );
    assert!(comparison.impact.is_none());
    assert!(metric.notes[0].contains("geometric mean"), "{:?}", metric.notes);
    assert!(comparison.method.starts_with("Mean of log(1 + x) per user"), "{}", comparison.method);
    // A prior of lifts is one of differences of logs: precision-weighted means, by hand.
    let top = "inference = \"bayesian\"\nprior = { mean = 0, deviation = 0.1 }";
    let found = report(&read(&text(top, logged)), &users);
    let precision = 1.0 / (error * error) + 1.0 / 0.01;
    let belief = single(&found).1.absolute.expect("a belief");
    close(belief.value, value / (error * error) / precision, 1e-9, "posterior mean");
    close(belief.error, precision.sqrt().recip(), 1e-12, "posterior deviation");
}

#[test]
fn a_cap_without_zeros_is_the_quantile_of_the_others() {
    let (Some(golden), Some(users)) = (golden(), golden_users()) else { return };
    let metric = "type = \"mean\"\nvalue = \"revenue\"\ncap = { quantile = 0.99, zeros = false }";
    let found = report(&define(metric), &users);
    let (metric, comparison) = single(&found);
    let number = |key: &str| {
        let expected = &golden["winsorised_revenue_A_vs_B"]["p99_nonzero"][key];
        expected.as_f64().expect("a number")
    };
    assert_eq!(metric.cap, Some(number("cap")));
    let difference = comparison.absolute.expect("an estimate");
    close(difference.value, number("diff"), 1e-11, "capped");
    close(difference.p, number("welch_p"), 1e-8, "capped p");
}

/// Per cent of A/A tests of the median in which the second of two arms is called higher, and lower.
fn medians_called(users: usize, width: Width, experiments: u64) -> [f64; 2] {
    let mut calls = [0.0; 2];
    for seed in 0..experiments {
        let mut random = Random(seed);
        let mut arm = || {
            let normal = |random: &mut Random| {
                let radius = (-2.0 * random.uniform().ln()).sqrt();
                radius * (std::f64::consts::TAU * random.uniform()).cos()
            };
            let mut values: Vec<f64> = (0..users).map(|_| normal(&mut random)).collect();
            values.sort_by(f64::total_cmp);
            let ranks = quantile::ranks(users as u64, 0.5).expect("users");
            let at = |rank: u64| values[rank as usize - 1];
            let band =
                Band { low: at(ranks.low), quantile: at(ranks.quantile), high: at(ranks.high) };
            quantile::of_users(users as u64, 0.5, &band, width).expect("a band")
        };
        let found = absolute(&arm(), &arm(), 0.05).expect("an estimate");
        if found.p < 0.05 {
            calls[usize::from(found.value < 0.0)] += 100.0 / experiments as f64;
        }
    }
    calls
}

#[test]
fn medians_of_few_users_are_not_called_too_often() {
    // Of 20,000 tests three standard errors are 0.33 points.
    let most = 2.83;
    let called = medians_called(36, Width::OfRanks, 20_000);
    assert!(called.iter().all(|side| (1.5..most).contains(side)), "{called:?}");
    let planned = medians_called(36, Width::Planned, 20_000);
    assert!(planned.iter().all(|side| *side > most), "as gbstats has it: {planned:?}");
}
