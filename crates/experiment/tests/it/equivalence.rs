//! Two one-sided tests: against statsmodels on transformed rows (docs/statistics/equivalence.py), against
//! intervals that are made elsewhere, and simulated at the margin.

use crate::answers::{Random, User, close, covariance, mean, read, report, single};
use uplake_experiment::distribution::normal_sf;
use uplake_experiment::report::{Comparison, Decision, Equivalence};
use uplake_experiment::{Experiment, Report};

const REVENUE: &str = "type = \"mean\"\nvalue = \"revenue\"";
const PER_ORDER: &str =
    "type = \"ratio\"\nnumerator = { value = \"revenue\" }\ndenominator = { value = \"orders\" }";

fn define(top: &str, exposures: &str, metrics: &str) -> Experiment {
    read(&format!(
        "name = \"same\"\n{top}\n[exposures]\ntable = \"exposures\"\nuser = \"user_id\"\n\
         variant = \"variant\"\ntime = \"ts\"\n{exposures}\n[[variant]]\nname = \"A\"\nshare = 0.5\n\
         [[variant]]\nname = \"B\"\nshare = 0.5\n{metrics}"
    ))
}

fn metric(keys: &str) -> String {
    format!("[[metric]]\nname = \"m\"\n{keys}")
}

/// The rows of equivalence.py.
fn users() -> Vec<User> {
    let user = |variant: usize, numbers: [f64; 3]| User {
        variant,
        numbers: ["orders", "revenue", "pre_revenue"]
            .map(str::to_owned)
            .into_iter()
            .zip(numbers)
            .collect(),
        ..User::default()
    };
    let control = (0..40u32).map(|i| {
        let (orders, revenue) = (f64::from(i * i * 37 % 7), f64::from(i * i * 37 % 101));
        let before = 18.0 + revenue / 12.0 + f64::from(i * 29 % 11);
        user(0, [1.0 + orders, 20.0 + revenue / 10.0, before])
    });
    let treatment = (0..55u32).map(|j| {
        let (orders, revenue) = (f64::from(j * j * 53 % 7), f64::from(j * j * 53 % 89));
        let before = 18.2 + revenue / 11.0 + f64::from(j * 31 % 13);
        user(1, [1.0 + orders, 20.3 + revenue / 9.0, before])
    });
    control.chain(treatment).collect()
}

fn comparison(top: &str, keys: &str, users: &[User]) -> Comparison {
    single(&report(&define(top, "", &metric(keys)), users)).1.clone()
}

fn check(top: &str, keys: &str, users: &[User]) -> Equivalence {
    comparison(top, keys, users).equivalence.expect("an equivalence margin and a lift")
}

#[test]
fn tests_at_both_margins_agree_with_statsmodels() {
    let cuped = format!("{REVENUE}\ncuped = {{ pre = \"14 days\" }}");
    for (keys, expected) in [
        (REVENUE, [0.24773679494186712, 0.002457435976598035, 3.894544617972702e-15]),
        (PER_ORDER, [0.5109119848738654, 0.30489309921164626, 0.015354498810558479]),
        (&cuped, [0.33441950650717395, 0.00018573687403763376, 1.536765205380077e-21]),
    ] {
        for (margin, p) in [0.02, 0.08, 0.3].into_iter().zip(expected) {
            let found = check("", &format!("{keys}\nequivalence = {margin}"), &users());
            close(found.p, p, 1e-9, &format!("{keys}, {margin}"));
            assert_eq!((found.margin, found.holds), (margin, p < 0.05));
        }
    }
}

/// A cluster of one user is a user.
#[test]
fn clusters_of_one_user_are_users() {
    let keys = metric(&format!("{REVENUE}\nequivalence = 0.08"));
    let mut users = users();
    users.iter_mut().enumerate().for_each(|(place, user)| user.cluster = place);
    let found = report(&define("", "cluster = \"shop\"", &keys), &users);
    let found = single(&found).1.equivalence.expect("a lift");
    close(found.p, 0.002457435976598035, 1e-9, "clusters");
}

fn made_up(random: &mut Random, count: usize, factor: f64) -> Vec<User> {
    let user = |variant: usize, random: &mut Random| {
        let scale = if variant == 0 { 1.0 } else { factor };
        let activity = 1.0 - random.uniform().ln();
        let mut number = || scale * activity * (0.5 + random.uniform());
        let (revenue, before) = (number(), number() / scale);
        User {
            variant,
            numbers: [("revenue".to_owned(), revenue), ("pre_revenue".to_owned(), before)].into(),
            ..User::default()
        }
    };
    (0..count).map(|place| user(place % 2, random)).collect()
}

/// By methods of several looks the report's own interval decides; by one look that of a report at twice alpha.
#[test]
fn what_holds_has_its_interval_within_the_margin() {
    let methods = [
        ("", "alpha = 0.1"),
        ("lift = \"delta\"", "lift = \"delta\"\nalpha = 0.1"),
        ("alpha = 0.02\nlift = \"none\"", "alpha = 0.04"),
        ("inference = \"anytime\"\nplanned_users = 500", ""),
        ("inference = \"anytime\"\nplanned_users = 500\nlift = \"delta\"", ""),
        ("inference = \"group_sequential\"\nplanned_users = 800\nlooks = 2", ""),
        ("inference = \"bayesian\"", "inference = \"bayesian\"\nalpha = 0.1"),
    ];
    for cuped in ["", "\ncuped = { pre = \"14 days\" }"] {
        for (top, of_interval) in methods {
            let mut seen = [0, 0];
            for seed in 0..120 {
                let mut random = Random(seed);
                let factor = 0.7 + 0.6 * random.uniform();
                let users = made_up(&mut random, 400, factor);
                let keys = format!("{REVENUE}{cuped}\nequivalence = 0.3");
                let found = check(top, &keys, &users);
                let of_interval = if of_interval.is_empty() { top } else { of_interval };
                let interval = comparison(of_interval, &keys, &users).relative.expect("a lift");
                let within = interval.low > -0.3 && interval.high < 0.3;
                assert_eq!(found.holds, within, "{top}, seed {seed}: {found:?}, {interval:?}");
                assert_eq!(found.p < if top.contains("0.02") { 0.02 } else { 0.05 }, found.holds);
                seen[usize::from(within)] += 1;
            }
            assert!(seen.iter().all(|count| *count > 5), "{top}{cuped}: {seen:?}");
        }
    }
}

#[test]
fn a_belief_is_how_likely_the_lift_is_beyond_the_margin() {
    let users = users();
    let found =
        check("inference = \"bayesian\"", &format!("{REVENUE}\nequivalence = 0.08"), &users);
    let of = |variant: usize| -> Vec<f64> {
        users.iter().filter(|u| u.variant == variant).map(|u| u.numbers["revenue"]).collect()
    };
    let (a, b) = (of(0), of(1));
    let squared = |arm: &[f64]| covariance(arm, arm) / arm.len() as f64;
    let beyond = |kept: f64| {
        let error = (squared(&b) + kept * kept * squared(&a)).sqrt();
        normal_sf((mean(&b) - kept * mean(&a)).abs() / error)
    };
    close(found.p, beyond(0.92).max(beyond(1.08)), 1e-9, "belief");
}

/// At the margin a test at 5 % finds equivalence in 5 % or fewer; where the arms are alike, often.
#[test]
fn a_lift_at_the_margin_is_rarely_called_equivalent() {
    let rate = |factor: f64, margin: f64| {
        let keys = format!("{REVENUE}\nequivalence = {margin}");
        let holds = |seed: &u64| check("", &keys, &made_up(&mut Random(*seed), 400, factor)).holds;
        (0..2000).filter(holds).count() as f64 / 2000.0
    };
    // Three standard errors are 1.5 points.
    for factor in [0.85, 1.15] {
        let at_margin = rate(factor, 0.15);
        assert!((0.03..=0.065).contains(&at_margin), "{factor}: {at_margin}");
    }
    // 80 users an arm could not show so little: the test does not say yes for want of data.
    let (narrow, wide) = (rate(1.0, 0.05), rate(1.0, 0.25));
    assert!(narrow < 0.01 && wide > 0.9, "{narrow}, {wide}");
}

fn decided(metrics: &[&str], users: &[User]) -> Report {
    let named = |(place, keys): (usize, &&str)| format!("[[metric]]\nname = \"m{place}\"\n{keys}");
    let metrics: Vec<String> = metrics.iter().enumerate().map(named).collect();
    report(&define("", "", &metrics.join("\n")), users)
}

#[test]
fn goals_that_are_all_equivalent_ship_and_guardrails_must_hold() {
    let (shown, open) =
        (format!("{REVENUE}\nequivalence = 0.08"), format!("{REVENUE}\nequivalence = 0.02"));
    let users = users();
    let both = decided(&[&shown, &shown], &users);
    assert_eq!(both.verdict.decision, Decision::Ship);
    let words = "m0 is equivalent within ±8.0 %, m1 is equivalent within ±8.0 %";
    assert!(both.verdict.sentence.contains(words), "{}", both.verdict.sentence);
    let one = decided(&[&shown, REVENUE], &users);
    assert_eq!(one.verdict.decision, Decision::KeepRunning);
    assert!(one.verdict.sentence.contains("Shown already: m0 is equivalent"));
    assert_eq!(decided(&[&shown, &open], &users).verdict.decision, Decision::KeepRunning);
    let guarded = decided(&[&shown, &format!("{open}\nguardrail = true")], &users);
    assert_eq!(guarded.verdict.decision, Decision::TradeOff);
    let sentence = &guarded.verdict.sentence;
    assert!(sentence.contains("but m1 may still differ by 2.0 %"), "{sentence}");

    let text = guarded.to_text(100, false);
    assert!(text.contains("m0: Equivalent within ±8.0 % (B, p = 0.0025)."), "{text}");
    assert!(text.contains("m1: Not shown to be equivalent within ±2.0 % (B, p = 0.25)."), "{text}");
    let html = guarded.to_html();
    assert!(html.contains("equivalent within ±8.0\u{a0}%, p\u{a0}0.0025"));
    assert!(html.contains("not shown equivalent within ±2.0\u{a0}%"));
    let json = guarded.to_json();
    assert!(json.contains("\"equivalence\": {\n            \"margin\": 0.08"), "{json}");
    let csv = guarded.to_csv();
    let header: Vec<&str> = csv.lines().next().expect("a header").split(',').collect();
    let place = header.iter().position(|name| *name == "equivalence_p").expect("a column");
    let row: Vec<&str> = csv.lines().nth(1).expect("a row").split(',').collect();
    assert_eq!(row[place - 1], "0.08");
    close(row[place].parse().expect("a number"), 0.002457435976598035, 1e-9, "CSV");
}

#[test]
fn without_a_lift_or_between_looks_nothing_is_equivalent() {
    let keys = format!("{REVENUE}\nequivalence = 0.9");
    let mut centred = users();
    for user in &mut centred {
        *user.numbers.get_mut("revenue").expect("revenue") -= 25.0;
    }
    assert_eq!(comparison("", &keys, &centred).equivalence, None);
    let guarded = decided(&[&format!("{keys}\nguardrail = true"), REVENUE], &centred);
    assert_eq!(guarded.verdict.decision, Decision::KeepRunning);
    let between = "inference = \"group_sequential\"\nplanned_users = 160\nlooks = 2";
    let found = check(between, &keys, &users());
    assert!(found.p < 0.001 && !found.holds, "{found:?}");
}
