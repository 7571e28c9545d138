//! Triggered analysis: who is activated, and what the effect on them is worth over everybody; and users
//! whom a definition excludes.

use uplake_experiment::effect::Estimate;
use uplake_experiment::expression::Expression;
use uplake_experiment::left_out::LeftOut;
use uplake_experiment::query::{Aggregate, Cell, Window};
use uplake_experiment::report::{Call, Comparison, Decision, Diluted};
use uplake_experiment::{Experiment, Moments, MomentsTable, Report, analyze, plan};

use crate::answers::{Random, close, covariance, mean, read};

const DAY_MS: i64 = 86_400_000;

fn text(exposures: &str, metrics: &str) -> String {
    format!(
        r#"
name = "cart"
[exposures]
table = "exposures"
user = "user_id"
variant = "variant"
time = "ts"
{exposures}
[[variant]]
name = "old"
share = 0.5
[[variant]]
name = "new"
share = 0.5
{metrics}
"#
    )
}

const ACTIVATED: &str = "activated_by = { table = \"events\", where = \"event = 'open_cart'\" }";
const SPEND: &str =
    "[[metric]]\nname = \"spend\"\ntype = \"mean\"\ntable = \"events\"\nvalue = \"amount\"\n";

fn refused(exposures: &str, more: &str, parts: &[&str]) {
    let text = text(exposures, &format!("{SPEND}{more}"));
    let error = Experiment::parse(&text, "e.toml").expect_err(exposures).to_string();
    for part in parts {
        assert!(error.contains(part), "{exposures}: {error:?} lacks {part:?}");
    }
}

#[test]
fn rows_that_activate_or_exclude_are_read() {
    let exclude =
        "exclude = [{ table = \"holdout\" }, { table = \"b\", user = \"uid\", where = \"x = 1\" }]";
    let experiment = read(&text(&format!("{ACTIVATED}\n{exclude}"), SPEND));
    let rows = experiment.exposures.activated_by.as_ref().expect("rows");
    assert_eq!((rows.table.as_str(), rows.user.as_str()), ("events", "user_id"));
    assert_eq!(rows.time.as_deref(), Some("ts"));
    assert_eq!(rows.filter.as_deref(), Some("event = 'open_cart'"));
    let excluded: Vec<(&str, &str, Option<&str>)> = (experiment.exposures.exclude.iter())
        .map(|rows| (rows.table.as_str(), rows.user.as_str(), rows.filter.as_deref()))
        .collect();
    assert_eq!(excluded, [("holdout", "user_id", None), ("b", "uid", Some("x = 1"))]);
    let query = plan(&experiment, &[], None).expect("no names");
    assert_eq!(query.tables(), ["b", "events", "exposures", "holdout"]);
    let written = |key: &str, sql: &str, table: &str| {
        let is_it = |one: &&Expression| (one.key.as_str(), one.sql.as_str()) == (key, sql);
        let found = query.expressions.iter().find(is_it).expect(key);
        assert_eq!((found.place.as_str(), found.table.as_str()), ("[exposures]", table));
    };
    written("activated_by.where", "event = 'open_cart'", "events");
    written("activated_by.time", "ts", "events");
    written("activated_by.user", "user_id", "events");
    written("exclude.user", "user_id", "holdout");
    written("exclude.where", "x = 1", "b");
}

#[test]
fn rows_that_make_no_sense_are_refused() {
    refused("activated_by = { where = \"x\" }", "", &["e.toml:8", "lacks `table`"]);
    refused("activated_by = { table = \"e\", value = \"x\" }", "", &["unknown key `value`"]);
    refused("exclude = [{ table = \"e\", time = \"ts\" }]", "", &["unknown key `time`"]);
    refused("exclude = { table = \"e\" }", "", &["exclude", "two brackets"]);
    let cluster = format!("{ACTIVATED}\ncluster = \"shop\"");
    refused(&cluster, "", &["activated_by", "users as the unit"]);
    let switchback = "[switchback]\nregion = \"city\"\nevery = \"1 day\"\n";
    refused("exclude = [{ table = \"e\" }]", switchback, &["exclude", "users as the unit"]);
    let timeless = text(ACTIVATED, SPEND).replace("time = \"ts\"\n", "");
    let error = Experiment::parse(&timeless, "e.toml").expect_err("no time").to_string();
    assert!(error.contains("`activated_by` needs to know when users were exposed"), "{error}");
}

/// Per metric: how its columns count, as (aggregate, window, from first exposure).
fn columns(metrics: &str, exposures: &str) -> Vec<(Aggregate, Option<Window>, bool)> {
    let query = plan(&read(&text(exposures, metrics)), &[], None).expect("no names");
    let column = |index: &usize| {
        let column = &query.columns[*index];
        (column.aggregate.clone(), column.window, column.from_exposure)
    };
    query.groups[0].iter().map(column).collect()
}

#[test]
fn only_what_adds_up_is_also_asked_for_from_first_exposure_on() {
    let before = Some(Window { start_ms: -14 * DAY_MS, end_ms: Some(0) });
    let week = Some(Window { start_ms: 0, end_ms: Some(7 * DAY_MS) });
    let sum = Aggregate::Sum;
    let cuped = format!("{SPEND}cuped = {{ pre = \"14 days\" }}\n");
    assert_eq!(columns(SPEND, ""), [(sum.clone(), None, false)]);
    assert_eq!(columns(SPEND, ACTIVATED), [(sum.clone(), None, false), (sum.clone(), None, true)]);
    let expected =
        [(sum.clone(), None, false), (sum.clone(), before, true), (sum.clone(), None, true)];
    assert_eq!(columns(&cuped, ACTIVATED), expected);
    assert_eq!(columns(&cuped, ""), [(sum.clone(), None, false), (sum.clone(), before, false)]);
    let capped = format!("{SPEND}cap = 5\n");
    assert_eq!(columns(&capped, ACTIVATED), [(sum.clone(), None, false)]);
    let windowed = format!("{SPEND}window = \"7 days\"\n");
    assert_eq!(columns(&windowed, ACTIVATED), [(sum, week, false)]);
    let share = "[[metric]]\nname = \"paid\"\ntype = \"proportion\"\ntable = \"events\"\n";
    assert_eq!(columns(share, ACTIVATED), [(Aggregate::Any, None, false)]);
}

/// An exposed user: what is counted from the activation on, before first exposure, and from then on.
struct User {
    arm: usize,
    activated: bool,
    after: f64,
    before: f64,
    overall: f64,
}

/// 3 in 10 are activated; the treatment adds `effect` to what they do from then on.
fn users(count: usize, share: f64, effect: f64, seed: u64) -> Vec<User> {
    let mut random = Random(seed);
    (0..count)
        .map(|i| {
            let (size, arm) = (-random.uniform().ln(), i % 2);
            // Who does much is activated more often.
            let activated = random.uniform() < share * (0.5 + size).min(2.0);
            let after = size - 2.0 * random.uniform().ln() + effect * arm as f64;
            let after = if activated { after } else { 0.0 };
            let overall = after - random.uniform().ln() * size;
            User { arm, activated, after, before: size + random.uniform(), overall }
        })
        .collect()
}

/// `cuped`: the group has a covariate between the figure and what counts from first exposure.
fn report(experiment: &Experiment, users: &[User], cuped: bool) -> Report {
    let query = plan(experiment, &[], None).expect("no names");
    let cells = |activated: bool| -> Vec<Cell> {
        let cell = |variant: usize| {
            let mut moments = Moments::new(query.groups[0].len());
            for user in users.iter().filter(|u| u.arm == variant && u.activated == activated) {
                let mut row = vec![user.after];
                row.extend(Some(user.before).filter(|_| cuped));
                row.extend(Some(user.overall).filter(|_| row.len() < query.groups[0].len()));
                moments.add(&row);
            }
            Cell { slice: None, variant, users: moments.count(), groups: vec![moments] }
        };
        (0..2).map(cell).collect()
    };
    let table = MomentsTable {
        cells: cells(true),
        never_activated: cells(false),
        ..MomentsTable::default()
    };
    analyze(experiment, &query, &table).expect("the table answers the query")
}

fn only(report: &Report) -> (&Comparison, &Diluted) {
    let comparison = &report.metrics[0].comparisons[0];
    (comparison, comparison.diluted.as_ref().expect("a triggered analysis"))
}

/// Fieller's ends by halving: the lift of `base` that a normal test of the difference does not reject,
/// from what each user adds to the errors.
fn ends(users: &[User], figure: &dyn Fn(&User) -> f64, base: f64, of_base: &[f64]) -> (f64, f64) {
    let arm = |arm: usize| users.iter().filter(move |u| u.arm == arm && u.activated);
    let means: Vec<f64> = (0..2).map(|a| mean(&arm(a).map(figure).collect::<Vec<f64>>())).collect();
    let counts: Vec<f64> = (0..2).map(|a| arm(a).count() as f64).collect();
    let of_difference: Vec<f64> = users
        .iter()
        .map(|u| match (u.activated, u.arm) {
            (false, _) => 0.0,
            (true, 0) => -(figure(u) - means[0]) / counts[0],
            (true, _) => (figure(u) - means[1]) / counts[1],
        })
        .collect();
    let difference = means[1] - means[0];
    let rejected = |lift: f64| {
        let own = of_difference.iter().zip(of_base).map(|(d, b)| (d - lift * b).powi(2));
        (difference - lift * base).abs() > 1.959964 * own.sum::<f64>().sqrt()
    };
    let end = |side: f64| {
        let (mut inside, mut outside) = (difference / base, difference / base + side);
        for _ in 0..60 {
            let middle = 0.5 * (inside + outside);
            if rejected(middle) { outside = middle } else { inside = middle }
        }
        inside
    };
    (end(-10.0), end(10.0))
}

#[track_caller]
fn same_interval(found: &Estimate, (low, high): (f64, f64), what: &str) {
    let width = high - low;
    let off = (found.low - low).abs().max((found.high - high).abs()) / width;
    assert!(off < 2e-3, "{what}: [{}, {}] and [{low}, {high}]", found.low, found.high);
}

/// By what each user adds: the model knows no moments, no covariances and no formula of theirs.
#[test]
fn the_diluted_effect_is_that_of_errors_user_by_user() {
    for (share, effect, cuped) in [(0.3, 0.4, false), (0.05, -1.0, false), (0.3, 0.4, true)] {
        let users = users(20_000, share, effect, 7);
        let more = if cuped { "cuped = { pre = \"14 days\" }\n" } else { "" };
        let experiment = read(&text(ACTIVATED, &format!("{SPEND}{more}")));
        let report = report(&experiment, &users, cuped);
        let (comparison, diluted) = only(&report);
        // The one coefficient of CUPED is of all activated users.
        let activated: Vec<&User> = users.iter().filter(|u| u.activated).collect();
        let after: Vec<f64> = activated.iter().map(|u| u.after).collect();
        let before: Vec<f64> = activated.iter().map(|u| u.before).collect();
        let theta = covariance(&after, &before) / covariance(&before, &before);
        let figure = |u: &User| u.after - if cuped { theta * u.before } else { 0.0 };
        let exposed = users.len() as f64;
        let rate = activated.len() as f64 / exposed;
        let of_rate = |u: &User| (f64::from(u8::from(u.activated)) - rate) / exposed;
        let of_base: Vec<f64> = users.iter().map(|u| -of_rate(u) / rate / rate).collect();
        let absolute = diluted.absolute.expect("an estimate");
        same_interval(&absolute, ends(&users, &figure, 1.0 / rate, &of_base), "difference");
        let triggered = comparison.absolute.expect("an estimate");
        close(absolute.value, rate * triggered.value, 1e-12, "difference");
        assert_eq!(absolute.p, triggered.p);
        assert_eq!(absolute.low > 0.0, triggered.low > 0.0);
        assert_eq!(absolute.high < 0.0, triggered.high < 0.0);
        let control: Vec<f64> = users.iter().filter(|u| u.arm == 0).map(|u| u.overall).collect();
        let overall = mean(&control);
        let of_base: Vec<f64> = users
            .iter()
            .map(|u| {
                let own =
                    if u.arm == 0 { (u.overall - overall) / control.len() as f64 } else { 0.0 };
                own / rate - overall * of_rate(u) / rate / rate
            })
            .collect();
        let relative = diluted.relative.expect("an estimate");
        same_interval(&relative, ends(&users, &figure, overall / rate, &of_base), "lift");
        close(relative.value, rate * triggered.value / overall, 1e-12, "lift");
        assert_eq!(relative.p, triggered.p);
    }
}

#[test]
fn where_everybody_is_activated_at_once_nothing_is_diluted() {
    let mut users = users(2_000, 0.4, 0.3, 3);
    users.retain(|user| user.activated);
    users.iter_mut().for_each(|user| user.overall = user.after);
    for inference in ["fixed", "anytime", "bayesian"] {
        let planned = if inference == "anytime" { "planned_users = 2000\n" } else { "" };
        let head = format!("inference = \"{inference}\"\n{planned}");
        let text = format!("{head}{}", text(ACTIVATED, SPEND));
        let report = report(&read(&text), &users, false);
        let (comparison, diluted) = only(&report);
        for (found, expected) in
            [(diluted.absolute, comparison.absolute), (diluted.relative, comparison.relative)]
        {
            let (found, expected) = (found.expect("an estimate"), expected.expect("an estimate"));
            for (found, expected) in [
                (found.value, expected.value),
                (found.low, expected.low),
                (found.high, expected.high),
                (found.p, expected.p),
            ] {
                close(found, expected, 1e-9, inference);
            }
        }
        let check = report.health.activation.expect("a triggered analysis");
        assert_eq!((check.rate(), check.independence, check.alarm), (Some(1.0), None, false));
    }
}

#[test]
fn what_does_not_add_up_has_no_lift_on_everybody() {
    let users = users(2_000, 0.4, 0.3, 3);
    let report = report(&read(&text(ACTIVATED, &format!("{SPEND}cap = 100\n"))), &users, false);
    let (_, diluted) = only(&report);
    assert!(diluted.absolute.is_ok());
    assert_eq!(diluted.relative.map_err(|error| error.code()), Err("no_overall_lift"));
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).expect("JSON");
    let diluted = &json["metrics"][0]["comparisons"][0]["diluted"];
    assert_eq!(diluted["relative"]["unavailable"], "no_overall_lift");
    assert!(diluted["absolute"]["low"].is_number());
}

#[test]
fn an_untriggered_experiment_has_neither_check_nor_diluted_effect() {
    let experiment = read(&text("", SPEND));
    let report = report(&experiment, &users(2_000, 0.4, 0.3, 3), false);
    assert!(report.health.activation.is_none());
    assert!(report.metrics[0].comparisons[0].diluted.is_none());
}

#[test]
fn activation_that_differs_between_arms_is_an_alarm() {
    // As many are activated in both arms, so that the sample ratio shows nothing.
    let counts = |arm: usize, activated: bool| match (arm, activated) {
        (_, true) => 500,
        (0, false) => 1500,
        _ => 1000,
    };
    let mut users = Vec::new();
    for arm in 0..2 {
        for activated in [true, false] {
            users.extend((0..counts(arm, activated)).map(|i| {
                let after = if activated { f64::from(i % 10 + 3 * arm as i32) } else { 0.0 };
                User { arm, activated, after, before: 0.0, overall: after }
            }));
        }
    }
    let report = report(&read(&text(ACTIVATED, SPEND)), &users, false);
    let check = report.health.activation.as_ref().expect("a triggered analysis");
    assert_eq!((&check.exposed, &check.activated), (&vec![2000, 1500], &vec![500, 500]));
    // SciPy: chi2_contingency([[500, 500], [1500, 1000]], correction=False).
    let test = check.independence.expect("a test");
    close(test.chi_square, 29.166666666666654, 1e-12, "chi-square");
    close(test.p, 6.641198786386171e-8, 1e-9, "p");
    assert!(check.alarm && report.health.sample_ratio.alarm);
    assert!(report.health.sample_ratio.p.is_some_and(|p| p > 0.9));
    assert_eq!(report.verdict.decision, Decision::DoNotTrust);
    assert!(report.verdict.sentence.contains("how many users were activated"));
    assert_eq!(only(&report).0.call, Call::Untrusted);
    assert!(report.to_csv().lines().nth(1).is_some_and(|line| line.contains(",untrusted,false,")));
    let text = report.to_text(200, false);
    let line = "✗ Of 3,500 exposed users were activated 25.00 % of old, 33.33 % of new, p = ";
    assert!(text.contains(line), "{text}");
    assert!(text.contains("✓ Sample ratio as planned"), "{text}");
}

#[test]
fn the_effect_on_everybody_is_written_beside_the_comparison() {
    let report = report(&read(&text(ACTIVATED, SPEND)), &users(5_000, 0.3, 0.8, 5), false);
    let (_, diluted) = only(&report);
    let (absolute, relative) = (diluted.absolute.expect("one"), diluted.relative.expect("one"));
    let text = report.to_text(200, false);
    assert!(text.contains("spend: new: over all exposed users a difference of +0."), "{text}");
    assert!(text.contains(", a lift of +"), "{text}");
    assert!(report.to_html().contains("over all exposed users a difference of"));
    let csv = report.to_csv();
    let (header, line) = csv.split_once('\n').expect("two lines");
    assert!(header.ends_with(
        "diluted,diluted_low,diluted_high,diluted_lift,diluted_lift_low,diluted_lift_high"
    ));
    let numbers = [absolute.value, absolute.low, absolute.high]
        .into_iter()
        .chain([relative.value, relative.low, relative.high])
        .map(|number| number.to_string())
        .collect::<Vec<_>>();
    assert!(line.trim_end().ends_with(&numbers.join(",")), "{line}");
}

#[test]
fn users_who_are_excluded_are_counted_by_what_excludes_them() {
    let exclude = "exclude = [{ table = \"holdout\" }, { table = \"b\", where = \"x = 1\" }]";
    let experiment = read(&text(exclude, SPEND));
    let query = plan(&experiment, &[], None).expect("no names");
    let table = MomentsTable { users_excluded: vec![1200, 3], ..MomentsTable::default() };
    let report = analyze(&experiment, &query, &table).expect("an answer");
    let found: Vec<(&str, Option<&str>, u64)> = (report.health.excluded.iter())
        .map(|rows| (rows.table.as_str(), rows.filter.as_deref(), rows.users))
        .collect();
    assert_eq!(found, [("holdout", None, 1200), ("b", Some("x = 1"), 3)]);
    let text = report.to_text(120, false);
    assert!(text.contains("1,200 users in holdout were left out"), "{text}");
    assert!(text.contains("3 users in b where x = 1 were left out"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).expect("JSON");
    assert_eq!(json["health"]["excluded"][1]["where"], "x = 1");
}

/// 500 of 2,000 users per arm are activated, and the windows of 400 of them are over.
#[test]
fn users_in_progress_are_activated_all_the_same() {
    let more = "window = \"7 days\"\nin_progress = \"exclude\"\n";
    let experiment = read(&text(ACTIVATED, &format!("{SPEND}{more}")));
    let query = plan(&experiment, &[], None).expect("no names");
    let cell = |variant: usize, users: u64, complete: usize| {
        let mut moments = Moments::new(query.groups[0].len());
        (0..complete).for_each(|i| moments.add(&[(i % 10 + 3 * variant) as f64]));
        Cell { slice: None, variant, users, groups: vec![moments] }
    };
    let table = MomentsTable {
        cells: vec![cell(0, 500, 400), cell(1, 500, 400)],
        never_activated: vec![cell(0, 1500, 0), cell(1, 1500, 0)],
        observed_until: Some("2026-11-10T08:00:00".into()),
        in_progress: vec![(0, 0, 100), (0, 1, 100)],
        left_out: LeftOut { users_exposed_before: Some(400), ..LeftOut::default() },
        ..MomentsTable::default()
    };
    let report = analyze(&experiment, &query, &table).expect("an answer");
    let (comparison, diluted) = only(&report);
    close(comparison.absolute.expect("an estimate").value, 3.0, 1e-12, "difference");
    close(diluted.absolute.expect("an estimate").value, 0.75, 1e-12, "of all exposed users");
    let metric = &report.metrics[0];
    assert_eq!(metric.values[0].users, 400);
    let in_progress = metric.in_progress.as_ref().expect("its window has an end");
    assert_eq!((in_progress.excluded, &in_progress.users), (true, &vec![100, 100]));
    let check = report.health.activation.as_ref().expect("a triggered analysis");
    assert_eq!((&check.exposed, check.rate()), (&vec![2000, 2000], Some(0.25)));
    // Of all who are exposed, not of those who count.
    let text = report.to_text(200, false);
    assert!(text.contains("exposed before the start, too, and counted (10.00 %)"), "{text}");
}

#[test]
fn logs_add_nothing_up() {
    let log = format!("{SPEND}transform = \"log1p\"\n");
    assert_eq!(columns(&log, ACTIVATED), [(Aggregate::Sum, None, false)]);
}
