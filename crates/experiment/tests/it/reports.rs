//! From a definition and moments to a report: decisions, health and missing numbers.

use uplake_experiment::analyze::alternatives;
use uplake_experiment::definition::Lift;
use uplake_experiment::effect::{Side, StatsError};
use uplake_experiment::multiplicity::holm;
use uplake_experiment::query::Cell;
use uplake_experiment::report::{Call, Decision, Scale};
use uplake_experiment::saved::SavedReport;
use uplake_experiment::{
    AnalyzeError, Experiment, Moments, MomentsQuery, MomentsTable, OTHERS, Report, analyze, plan,
    values_put_together,
};

const DEFINITION: &str = r#"
name = "free_shipping"
start = "2026-11-01"
end = "2026-11-15"
[exposures]
table = "exposures"
user = "user_id"
variant = "variant"
time = "ts"
[[variant]]
name = "control"
share = 0.5
[[variant]]
name = "free"
share = 0.5
[[metric]]
name = "conversion"
type = "proportion"
table = "events"
[[metric]]
name = "revenue"
type = "mean"
table = "events"
value = "amount"
[[metric]]
name = "refunds"
type = "ratio"
table = "events"
numerator = { value = "refund" }
denominator = { value = "amount" }
direction = "decrease"
guardrail = true
[[dimension]]
name = "country"
"#;

fn experiment() -> Experiment {
    Experiment::parse(DEFINITION, "free.toml").expect("the definition is right")
}

/// Moments of a proportion, a mean with deviation 20, and a ratio of two sums.
fn groups(users: u64, conversion: f64, revenue: f64, refund_ratio: f64) -> Vec<Moments> {
    let count = (users as f64 * conversion).round();
    vec![
        Moments::from_raw_sums(users, &[count], &[count]),
        Moments::from_summary(users, &[revenue], &[400.0]),
        Moments::from_summary(users, &[refund_ratio * revenue, revenue], &[4.0, 10.0, 400.0]),
    ]
}

fn cell(value: Option<&str>, variant: usize, groups: Vec<Moments>) -> Cell {
    let users = groups[0].count();
    Cell { slice: value.map(|value| (0, value.to_owned())), variant, users, groups }
}

fn query(dimension: Option<&str>) -> MomentsQuery {
    plan(&experiment(), &dimension.map(str::to_owned).into_iter().collect::<Vec<_>>(), None)
        .expect("names exist")
}

fn report_on(control: Vec<Moments>, treatment: Vec<Moments>) -> Report {
    let cells = vec![cell(None, 0, control), cell(None, 1, treatment)];
    let table = MomentsTable { cells, ..MomentsTable::default() };
    analyze(&experiment(), &query(None), &table).expect("the table answers the query")
}

#[test]
fn a_clear_win_is_shipped() {
    let report = report_on(groups(50_000, 0.10, 10.0, 0.1), groups(50_100, 0.11, 10.0, 0.1));
    assert_eq!(report.verdict.decision, Decision::Ship);
    assert!(report.verdict.sentence.starts_with("Ship free: conversion +10.0 % ["));
    assert_eq!(report.metrics[0].comparisons[0].call, Call::Better);
    assert_eq!(report.metrics[1].comparisons[0].call, Call::Inconclusive);
    assert_eq!(report.arms[1].share, Some(50_100.0 / 100_100.0));
}

#[test]
fn a_broken_guardrail_rolls_back_in_its_own_direction() {
    let report = report_on(groups(50_000, 0.10, 10.0, 0.10), groups(50_000, 0.10, 10.0, 0.12));
    assert_eq!(report.metrics[2].comparisons[0].call, Call::Worse);
    assert_eq!(report.verdict.decision, Decision::RollBack);
    assert!(report.verdict.sentence.contains("refunds +20.0 %"), "{}", report.verdict.sentence);
}

#[test]
fn a_win_beside_a_broken_guardrail_is_a_trade_off() {
    let report = report_on(groups(50_000, 0.10, 10.0, 0.10), groups(50_000, 0.11, 10.0, 0.12));
    assert_eq!(report.verdict.decision, Decision::TradeOff);
}

#[test]
fn a_win_beside_a_guardrail_without_estimate_is_not_shipped() {
    let without_refunds = |mut groups: Vec<Moments>| {
        groups[2] = Moments::from_summary(50_000, &[0.0, 10.0], &[0.0, 0.0, 400.0]);
        groups
    };
    let report = report_on(
        without_refunds(groups(50_000, 0.10, 10.0, 0.1)),
        groups(50_000, 0.11, 10.0, 0.1),
    );
    assert_eq!(report.verdict.decision, Decision::TradeOff);
    assert!(report.verdict.sentence.ends_with("but refunds cannot be judged."));
}

#[test]
fn no_effect_says_what_the_data_still_allow() {
    let report = report_on(groups(500, 0.10, 10.0, 0.1), groups(500, 0.10, 10.0, 0.1));
    assert_eq!(report.verdict.decision, Decision::KeepRunning);
    let sentence = &report.verdict.sentence;
    assert!(sentence.contains("from −35.8 % to +55.8 % (95 % interval)"), "{sentence}");
}

#[test]
fn goals_are_corrected_together_and_guardrails_alone() {
    let report = report_on(groups(5_000, 0.10, 10.0, 0.1), groups(5_000, 0.112, 10.0, 0.1));
    let [conversion, revenue, refunds] = &report.metrics[..] else {
        panic!("three metrics");
    };
    let raw = conversion.comparisons[0].estimate().expect("an estimate").p;
    assert_eq!(conversion.comparisons[0].p_adjusted, Some(2.0 * raw));
    assert!(raw < 0.1 && revenue.comparisons[0].p_adjusted == Some(1.0));
    let guardrail = refunds.comparisons[0].estimate().expect("an estimate");
    assert_eq!(refunds.comparisons[0].p_adjusted, Some(guardrail.p));
}

#[test]
fn a_red_sample_ratio_takes_the_verdict_away() {
    let report = report_on(groups(50_000, 0.10, 10.0, 0.1), groups(52_000, 0.12, 10.0, 0.1));
    assert!(report.health.sample_ratio.alarm);
    assert_eq!(report.verdict.decision, Decision::DoNotTrust);
    assert!(report.verdict.arms.is_empty());
}

#[test]
fn degenerate_arms_are_named_and_nothing_is_nan() {
    let cases = [
        (groups(0, 0.0, 0.0, 0.0), StatsError::EmptyArm(Side::Treatment)),
        (groups(1, 0.0, 1.0, 0.0), StatsError::TooFewUsers(Side::Treatment)),
        (groups(100, 0.0, 1.0, 0.0), StatsError::ZeroVariance(Side::Treatment)),
        (groups(100, f64::NAN, f64::NAN, 0.1), StatsError::NotFinite(Side::Treatment)),
    ];
    for (treatment, expected) in cases {
        let report = report_on(groups(100, 0.1, 10.0, 0.1), treatment);
        let comparison = &report.metrics[0].comparisons[0];
        assert_eq!(comparison.relative, Err(expected));
        assert_eq!(comparison.call, Call::Unavailable);
        assert!(report.to_json().contains(expected.code()));
        for text in [report.to_json(), report.to_text(100, false), report.to_html()] {
            assert!(!text.contains("NaN") && !text.contains("inf "), "{expected}");
        }
    }
}

#[test]
fn a_control_mean_of_zero_falls_back_to_the_absolute_scale() {
    let report = report_on(groups(100, 0.1, 0.0, 0.1), groups(100, 0.1, 5.0, 0.1));
    let comparison = &report.metrics[1].comparisons[0];
    assert_eq!(comparison.relative, Err(StatsError::ZeroControlMean));
    assert_eq!(comparison.scale, Scale::Absolute);
    assert!(comparison.estimate().is_ok());
}

#[test]
fn a_control_value_that_may_be_zero_is_not_divided_by() {
    // Deviation 20 over 100 users: a standard error of 2 around 1, then around 10.
    let report = report_on(groups(100, 0.5, 1.0, 0.1), groups(100, 0.5, 9.0, 0.1));
    let revenue = &report.metrics[1];
    assert_eq!(revenue.comparisons[0].scale, Scale::Absolute);
    // Any lift goes with a control value of nearly 0.
    assert_eq!(revenue.comparisons[0].relative, Err(StatsError::ZeroControlMean));
    assert!(revenue.notes[0].contains("cannot be told from 0"), "{:?}", revenue.notes);
    let report = report_on(groups(100, 0.5, 10.0, 0.1), groups(100, 0.5, 19.0, 0.1));
    let revenue = &report.metrics[1];
    assert_eq!(revenue.comparisons[0].scale, Scale::Relative);
    // Fieller's interval is right all the same, so there is nothing to warn of.
    assert!(revenue.notes.is_empty(), "{:?}", revenue.notes);
}

#[test]
fn breakdown_keeps_the_largest_values_and_merges_the_rest() {
    let mut cells = vec![
        cell(None, 0, groups(2000, 0.1, 10.0, 0.1)),
        cell(None, 1, groups(2000, 0.1, 10.0, 0.1)),
    ];
    for country in 0..25 {
        for variant in 0..2 {
            let users = 1000 - 10 * country;
            let lift = if country == 0 { 0.3 } else { 0.1 };
            let rate = if variant == 1 { lift } else { 0.1 };
            let name = format!("c{country:02}");
            cells.push(cell(Some(&name), variant, groups(users, rate, 10.0, 0.1)));
        }
    }
    let table = MomentsTable { cells, ..MomentsTable::default() };
    let report = analyze(&experiment(), &query(Some("country")), &table).expect("fits");
    let breakdown = &report.breakdowns[0];
    assert_eq!(breakdown.rows.len(), 20);
    assert_eq!(breakdown.rows[0].value, "c00");
    let other = &breakdown.rows[19];
    let merged: u64 = (19..25).map(|country| 1000 - 10 * country).sum();
    assert_eq!((other.value.as_str(), other.users[0]), ("(other)", merged));
    assert_eq!(breakdown.rows[0].metrics[0].comparisons[0].call, Call::Better);
    assert!(breakdown.differences[0].p < 1e-6, "conversion differs between countries");
    assert!(breakdown.differences[1].p > 0.5, "revenue does not");
    // Three tests: conversion, revenue and the ratio.
    let found: Vec<f64> = breakdown.differences.iter().map(|found| found.p_adjusted).collect();
    let p: Vec<f64> = breakdown.differences.iter().map(|found| found.p).collect();
    assert_eq!(found, holm(&p));
    assert_eq!(breakdown.differences[0].scale, Scale::Relative);
}

#[test]
fn the_same_lift_of_other_controls_is_the_same_effect() {
    // A tenth more of 10 and of 100, a deviation of 20 and of 200 over 50,000 users.
    let groups = |mean: f64| {
        vec![
            Moments::from_raw_sums(50_000, &[5_000.0], &[5_000.0]),
            Moments::from_summary(50_000, &[mean], &[4.0 * mean * mean]),
            Moments::from_summary(50_000, &[1.0, mean], &[4.0, 10.0, 4.0 * mean * mean]),
        ]
    };
    let cells = [("DE", 10.0), ("FR", 100.0)].into_iter().flat_map(|(country, mean)| {
        [(0, mean), (1, 1.1 * mean)]
            .map(|(variant, mean)| cell(Some(country), variant, groups(mean)))
    });
    let table = MomentsTable { cells: cells.collect(), ..MomentsTable::default() };
    let query = query(Some("country"));
    let of = |experiment: &Experiment| {
        let report = analyze(experiment, &query, &table).expect("fits");
        report.breakdowns[0].differences[1].clone()
    };
    let lifts = of(&experiment());
    assert_eq!((lifts.scale, lifts.df), (Scale::Relative, 1));
    assert!(lifts.q < 1e-20 && lifts.p > 0.999, "{lifts:?}");
    let differences = of(&Experiment { lift: Lift::None, ..experiment() });
    assert_eq!(differences.scale, Scale::Absolute);
    assert!(differences.p < 1e-6, "{differences:?}");
}

#[test]
fn where_the_sample_ratio_is_off_nothing_is_called() {
    let winning = |users| groups(users, 0.3, 10.0, 0.1);
    let plain = |users| groups(users, 0.1, 10.0, 0.1);
    // Of France alone, and then of everyone.
    for (france, is_all_off) in [(700, false), (4_000, true)] {
        let mut cells =
            vec![cell(None, 0, plain(5_000)), cell(None, 1, winning(5_000 + france - 500))];
        for (country, users) in [("DE", 4_500), ("FR", france)] {
            let control = if country == "DE" { 4_500 } else { 500 };
            cells.push(cell(Some(country), 0, plain(control)));
            cells.push(cell(Some(country), 1, winning(users)));
        }
        let table = MomentsTable { cells, ..MomentsTable::default() };
        let query = query(Some("country"));
        let report = analyze(&experiment(), &query, &table).expect("fits");
        let call = |row: Option<usize>| match row {
            None => report.metrics[0].comparisons[0].call,
            Some(row) => report.breakdowns[0].rows[row].metrics[0].comparisons[0].call,
        };
        let expected = if is_all_off { Call::Untrusted } else { Call::Better };
        assert_eq!(report.verdict.decision == Decision::DoNotTrust, is_all_off);
        assert_eq!(
            (call(None), call(Some(0)), call(Some(1))),
            (expected, expected, Call::Untrusted)
        );
        let csv = report.to_csv();
        let head: Vec<&str> = csv.lines().next().expect("a head").split(',').collect();
        let place = |name: &str| head.iter().position(|column| *column == name).expect(name);
        for line in csv.lines().skip(1) {
            let fields: Vec<&str> = line.split(',').collect();
            let off = is_all_off || fields[place("value")] == "FR";
            assert_eq!(fields[place("trusted")], if off { "false" } else { "true" }, "{line}");
            assert_eq!(fields[place("call")] == "untrusted", off, "{line}");
        }
        let all = alternatives(&experiment(), &query, &table).expect("fits");
        let calls = all.iter().flat_map(|a| a.comparisons.iter().flatten()).map(|c| c.call);
        assert_eq!(calls.into_iter().all(|call| call == Call::Untrusted), is_all_off);
    }
}

#[test]
fn a_row_of_merged_values_has_the_clusters_that_were_counted_for_it() {
    let text = DEFINITION.replacen("time = \"ts\"\n", "time = \"ts\"\ncluster = \"shop\"\n", 1);
    let experiment = Experiment::parse(&text, "free.toml").expect("right");
    let names = (["country".to_owned()], ["revenue".to_owned()]);
    let query = plan(&experiment, &names.0, Some(&names.1)).expect("names exist");
    let cell = |value: Option<&str>, variant: usize, users: u64, shops: u64| {
        let revenue = Moments::from_summary(shops, &[50.0, 5.0], &[40.0, 3.0, 2.0]);
        let slice = value.map(|value| (0, value.to_owned()));
        Cell { slice, variant, users, groups: vec![revenue] }
    };
    let mut cells = vec![cell(None, 0, 2200, 30), cell(None, 1, 2200, 30)];
    for country in 0..25 {
        let name = format!("c{country:02}");
        cells.extend([0, 1].map(|variant| cell(Some(&name), variant, 100 - country, 20)));
    }
    let together: Vec<String> = values_put_together(&cells, 0).into_iter().collect();
    assert_eq!(together, ["c19", "c20", "c21", "c22", "c23", "c24"]);
    let others = [0, 1].map(|variant| cell(Some(OTHERS), variant, 471, 30));
    let table = MomentsTable { cells, others: others.into(), ..MomentsTable::default() };
    let report = analyze(&experiment, &query, &table).expect("fits");
    let row = &report.breakdowns[0].rows[19];
    assert_eq!((row.value.as_str(), row.users.as_slice()), (OTHERS, &[471, 471][..]));
    assert_eq!(row.metrics[0].moments[0].units, 30);
    let shown = &report.breakdowns[0].rows[18];
    assert_eq!((shown.value.as_str(), shown.metrics[0].moments[1].units), ("c18", 20));
}

#[test]
fn health_lists_what_was_left_out() {
    let cells = vec![
        cell(None, 0, groups(100, 0.1, 10.0, 0.1)),
        cell(None, 1, groups(100, 0.1, 10.0, 0.1)),
    ];
    let table = MomentsTable {
        cells,
        users_in_many_variants: 7,
        unknown_variants: vec![("b".into(), 1), ("a".into(), 3)],
        first_exposures: vec![
            ("2026-11-02".into(), 1, 60),
            ("2026-11-01".into(), 0, 100),
            ("2026-11-01".into(), 1, 40),
        ],
        ..MomentsTable::default()
    };
    let report = analyze(&experiment(), &query(None), &table).expect("fits");
    assert_eq!(report.health.users_in_many_variants, 7);
    assert_eq!(report.health.unknown_variants[0].value, "a");
    assert_eq!(report.first_exposures[0].users, [100, 40]);
    assert_eq!(report.first_exposures[1].users, [0, 60]);
}

#[test]
fn arms_that_differed_before_exposure_are_named() {
    let cuped = "value = \"amount\"\ncuped = { pre = \"7 days\" }";
    let text = DEFINITION.replacen("value = \"amount\"", cuped, 1);
    let experiment = Experiment::parse(&text, "free.toml").expect("right");
    let query = plan(&experiment, &[], None).expect("no names");
    let report = |before: f64| {
        let arm = |variant, before: f64| {
            let mut all = groups(5000, 0.1, 10.0, 0.1);
            all[1] = Moments::from_summary(5000, &[10.0, before], &[400.0, 100.0, 300.0]);
            cell(None, variant, all)
        };
        let table = MomentsTable { cells: vec![arm(0, 5.0), arm(1, before)], ..Default::default() };
        analyze(&experiment, &query, &table).expect("fits")
    };
    let alike = report(5.1).health.balance;
    assert_eq!((alike.checks, alike.alarms.len()), (1, 0));
    let off = report(7.0);
    assert_eq!(off.health.balance.alarms[0].metric, "revenue");
    assert!(off.to_text(100, false).contains("✗ revenue of free differed before anyone"));
}

#[test]
fn moments_of_another_query_are_refused() {
    let fits = || vec![cell(None, 0, groups(10, 0.5, 1.0, 0.1))];
    let refused = |cells: Vec<Cell>| {
        let table = MomentsTable { cells, ..MomentsTable::default() };
        analyze(&experiment(), &query(None), &table).expect_err("does not fit")
    };
    let mut cells = fits();
    cells[0].variant = 2;
    assert!(matches!(refused(cells), AnalyzeError::Variant { .. }));
    let mut cells = fits();
    cells[0].groups.pop();
    assert!(matches!(refused(cells), AnalyzeError::Groups { .. }));
    let mut cells = fits();
    cells[0].groups[2] = Moments::new(1);
    assert!(matches!(refused(cells), AnalyzeError::Columns { .. }));
    let mut cells = fits();
    cells[0].groups[1] = Moments::from_summary(11, &[1.0], &[1.0]);
    assert!(matches!(refused(cells), AnalyzeError::Users { .. }));
    let cells = [fits(), fits()].concat();
    assert!(matches!(refused(cells), AnalyzeError::Repeated { .. }));
}

#[test]
fn a_saved_report_is_the_report_and_reads_back() {
    let made = report_on(groups(5000, 0.1, 10.0, 0.1), groups(5000, 0.12, 10.0, 0.1));
    let text = SavedReport::text_of(&made, "2026-11-25T20:00:00Z");
    assert_eq!(text.trim_end().lines().count(), 1);
    let saved = SavedReport::parse(&text).expect("it was saved");
    assert_eq!(
        (saved.saved_at.as_str(), &saved.experiment),
        ("2026-11-25T20:00:00Z", &made.experiment)
    );
    let mut json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(json["verdict"]["decision"], saved.verdict.decision.as_str());
    let observed = made.metrics[0].comparisons[0].observed.expect("a lift");
    let first = &saved.lifts[0];
    assert_eq!((first.value, first.error), (observed.value, observed.error));
    assert_eq!((&first.metric, &first.arm), (&made.metrics[0].name, &made.arms[1].name));
    let keys = json.as_object_mut().expect("an object");
    assert!(keys.remove("saved_at").is_some() && keys.remove("lifts").is_some());
    let report: serde_json::Value = serde_json::from_str(&made.to_json()).expect("JSON");
    assert_eq!(json, report);
}

#[test]
fn json_is_one_documented_schema_with_the_same_bytes_each_time() {
    let make = || report_on(groups(5000, 0.1, 10.0, 0.1), groups(5000, 0.12, 10.0, 0.1));
    let text = make().to_json();
    assert_eq!(text, make().to_json());
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(json["schema"], "uplake.report/1");
    let lift = &json["metrics"][0]["comparisons"][0]["relative"];
    assert!((lift["value"].as_f64().expect("a number") - 0.2).abs() < 1e-12);
    assert!(lift["low"].as_f64() < lift["high"].as_f64());
}

#[test]
fn a_red_sample_ratio_greys_every_table() {
    let report = report_on(groups(50_000, 0.10, 10.0, 0.1), groups(52_000, 0.12, 10.0, 0.1));
    let text = report.to_text(100, false);
    assert!(text.contains("Primary metric (not to be trusted)"));
    assert_eq!(text.lines().nth(1), Some("Do not trust"), "{text}");
    assert!(text.contains("✗ Sample ratio mismatch") && text.contains("50,000 of 51,000"));
    assert!(!text.contains('▲') && !text.contains('▼'));
}

fn without_codes(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str(part.split_once('m').expect("a colour code ends in m").1);
    }
    out
}

#[test]
fn terminal_lines_keep_to_their_width_and_color_changes_no_letter() {
    let mut cells = vec![
        cell(None, 0, groups(5_012_345, 0.1, 10.0, 0.1)),
        cell(None, 1, groups(5_012_346, 0.11, 10.0, 0.1)),
    ];
    for variant in 0..2 {
        let name = "a value of the dimension that goes on and on without an end";
        cells.push(cell(Some(name), variant, groups(100, 0.1 + 0.5 * variant as f64, 10.0, 0.1)));
        cells.push(cell(Some("(null)"), variant, groups(1 + variant as u64, 0.5, 10.0, 0.1)));
    }
    let table = MomentsTable { cells, ..MomentsTable::default() };
    let report = analyze(&experiment(), &query(Some("country")), &table).expect("fits");
    for width in [40, 60, 80, 100, 120, 160] {
        let plain = report.to_text(width, false);
        for line in plain.lines() {
            assert!(line.chars().count() <= width, "{width}: {line:?}");
        }
        assert_eq!(without_codes(&report.to_text(width, true)), plain);
    }
}

/// The first fenced block of the worked example in the given language, without the command that wrote it.
fn worked_example(language: &str) -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/statistics/worked-example.md");
    let page = std::fs::read_to_string(path).expect("the worked example");
    let block = page.split(&format!("```{language}")).nth(1).expect("a block");
    let (_, block) = block.split_once('\n').expect("lines");
    let block = block.split("```").next().expect("its end");
    let command = block.lines().next().filter(|line| line.starts_with("$ "));
    block[command.map_or(0, |line| line.len() + 1)..].to_owned()
}

/// The public counts of Cookie Cats, an A/B test of a phone game.
fn cookie_cats() -> Report {
    let experiment = Experiment::parse(&worked_example("toml"), "cats.toml").expect("right");
    let query = plan(&experiment, &[], None).expect("no names");
    let counts = |users, seven: f64, one: f64| {
        let column = |count: f64| Moments::from_raw_sums(users, &[count], &[count]);
        vec![column(seven), column(one)]
    };
    let cells = vec![
        cell(None, 0, counts(44_700, 8_502.0, 20_034.0)),
        cell(None, 1, counts(45_489, 8_279.0, 20_119.0)),
    ];
    let table = MomentsTable { cells, ..MomentsTable::default() };
    analyze(&experiment, &query, &table).expect("fits")
}

#[test]
fn cookie_cats_counts_give_the_published_verdict() {
    let report = cookie_cats();
    assert_eq!(report.verdict.decision, Decision::RollBack);
    let words = "Roll back gate_40: back after 7 days −4.31 % [−7.25 %, −1.28 %].";
    assert_eq!(report.verdict.sentence, words);
}

#[test]
fn worked_example_shows_what_the_report_prints() {
    let printed = cookie_cats().to_text(100, false);
    assert_eq!(
        worked_example("text"),
        printed,
        "update docs/statistics/worked-example.md to:\n{printed}"
    );
}

#[test]
fn watching_at_any_time_widens_every_interval_and_says_so() {
    let fixed = report_on(groups(5000, 0.1, 10.0, 0.1), groups(5000, 0.12, 10.0, 0.1));
    let line = "name = \"free_shipping\"";
    let watched = format!("{line}\ninference = \"anytime\"\nplanned_users = 20000");
    let text = DEFINITION.replace(line, &watched);
    let experiment = Experiment::parse(&text, "free.toml").expect("right");
    let query = plan(&experiment, &[], None).expect("no names");
    let cells = vec![
        cell(None, 0, groups(5000, 0.1, 10.0, 0.1)),
        cell(None, 1, groups(5000, 0.12, 10.0, 0.1)),
    ];
    let table = MomentsTable { cells, ..MomentsTable::default() };
    let report = analyze(&experiment, &query, &table).expect("fits");
    assert_eq!(report.inference, "anytime");
    assert!(report.method[0].contains("tightest at 20,000 users"), "{}", report.method[0]);
    for (always, once) in report.metrics.iter().zip(&fixed.metrics) {
        let always = always.comparisons[0].relative.expect("an estimate");
        let once = once.comparisons[0].relative.expect("an estimate");
        assert_eq!((always.value, always.error), (once.value, once.error));
        assert!(always.low < once.low && always.high > once.high && always.p >= once.p);
    }
    // The interval holds 0 exactly when the corrected p reaches alpha.
    let conversion = &report.metrics[0].comparisons[0];
    let is_open = conversion.p_adjusted.expect("a p-value") > 0.05;
    assert_eq!(conversion.relative.expect("an estimate").low < 0.0, is_open);
}

#[test]
fn an_open_verdict_says_what_today_users_can_find() {
    let report = report_on(groups(500, 0.10, 10.0, 0.1), groups(500, 0.10, 10.0, 0.1));
    // (1.960 + 0.842) standard errors of 0.18974.
    let detectable = report.metrics[0].comparisons[0].detectable.expect("an estimate");
    assert!((detectable - 0.531_57).abs() < 1e-4, "{detectable}");
    assert!(report.verdict.sentence.contains("a true change of 53.2 % four times in five"));
}

#[test]
fn moments_of_any_order_give_the_same_report() {
    let rows: Vec<[f64; 3]> =
        (0..500).map(|i| [f64::from(i % 3 == 0), f64::from(i * 7 % 101) * 0.1, 1.0]).collect();
    let arm = |order: &mut dyn Iterator<Item = usize>| {
        let mut all = [Moments::new(1), Moments::new(1), Moments::new(2)];
        for index in order {
            let [converted, amount, count] = rows[index];
            all[0].add(&[converted]);
            all[1].add(&[amount]);
            all[2].add(&[amount * 0.1, amount + count]);
        }
        all.to_vec()
    };
    let forwards = report_on(arm(&mut (0..500)), arm(&mut (100..500)));
    let backwards = report_on(arm(&mut (0..500).rev()), arm(&mut (100..500).rev()));
    assert_eq!(forwards.to_json(), backwards.to_json());
    assert_eq!(forwards.to_html(), backwards.to_html());
}

#[test]
fn a_group_sequential_test_calls_nothing_between_its_looks() {
    let report = |planned: u64| {
        let head =
            format!("inference = \"group_sequential\"\nplanned_users = {planned}\nlooks = 4\n");
        let text = DEFINITION.replacen("[exposures]", &(head + "[exposures]"), 1);
        let experiment = Experiment::parse(&text, "free.toml").expect("right");
        let query = plan(&experiment, &[], None).expect("no names");
        let arms = [groups(50_000, 0.10, 10.0, 0.1), groups(50_000, 0.11, 10.0, 0.1)];
        let cells = arms.into_iter().enumerate().map(|(arm, groups)| cell(None, arm, groups));
        let table = MomentsTable { cells: cells.collect(), ..MomentsTable::default() };
        analyze(&experiment, &query, &table).expect("fits")
    };
    let at_look = report(200_000);
    assert_eq!(at_look.verdict.decision, Decision::Ship);
    assert!(!at_look.metrics[0].comparisons[0].unplanned_look);
    let between = report(160_000);
    let conversion = &between.metrics[0].comparisons[0];
    assert!(conversion.unplanned_look && conversion.estimate().expect("an estimate").p < 0.01);
    assert_eq!(conversion.call, Call::Inconclusive);
    assert_eq!(between.verdict.decision, Decision::KeepRunning);
    assert!(between.to_text(100, false).contains("between two planned looks"));
}

/// Of many goals with effects of all sizes: what is called has 0 outside of its interval, or at an end that the
/// correction moved there, and nothing else has.
#[test]
fn intervals_leave_out_zero_exactly_where_goals_are_called() {
    let designs = [
        ("fixed", ""),
        ("anytime", "planned_users = 4000\n"),
        ("group_sequential", "planned_users = 4000\nlooks = 4\n"),
    ];
    let (mut moved, mut fdr) = (0, 0);
    for (inference, keys) in designs {
        for correction in ["holm", "benjamini-hochberg", "none"] {
            let mut text = format!(
                "name = \"e\"\ninference = \"{inference}\"\n{keys}correction = \"{correction}\"\n\
                 [exposures]\ntable = \"x\"\nuser = \"u\"\nvariant = \"v\"\n[[variant]]\nname = \"a\"\n\
                 share = 0.5\n[[variant]]\nname = \"b\"\nshare = 0.5\n"
            );
            let goals = 24;
            for goal in 0..goals {
                text +=
                    &format!("[[metric]]\nname = \"m{goal}\"\ntype = \"mean\"\nvalue = \"y\"\n");
            }
            let experiment = Experiment::parse(&text, "e.toml").expect("a definition");
            let query = plan(&experiment, &[], None).expect("a plan");
            let arm = |step: f64| {
                let mean = |goal: usize| 5.0 + step * (goal as f64 - 8.0) / 1000f64.sqrt();
                (0..goals).map(|g| Moments::from_summary(1000, &[mean(g)], &[1.0])).collect()
            };
            let cells = vec![cell(None, 0, arm(0.0)), cell(None, 1, arm(0.45))];
            let table = MomentsTable { cells, ..MomentsTable::default() };
            let report = analyze(&experiment, &query, &table).expect("fits");
            let comparisons = report.metrics.iter().map(|metric| &metric.comparisons[0]);
            let called = comparisons.clone().filter(|c| c.p_adjusted.expect("a p") < 0.05).count();
            assert!(called > 1 && called < goals, "{inference}, {correction}: {called}");
            let level = match correction {
                "holm" => 0.05 / goals as f64,
                "benjamini-hochberg" => 0.05 * called as f64 / goals as f64,
                _ => 0.05,
            };
            for comparison in comparisons {
                assert!((comparison.interval_alpha - level).abs() < 1e-15);
                let is_called = comparison.p_adjusted.expect("a p") < 0.05;
                for estimate in [comparison.absolute, comparison.relative] {
                    let e = estimate.expect("an estimate");
                    let what = format!("{inference}, {correction}: {e:?}");
                    assert_eq!(is_called, e.low >= 0.0 || e.high <= 0.0, "{what}");
                    moved += usize::from(e.low == 0.0 || e.high == 0.0);
                    fdr += usize::from(correction == "benjamini-hochberg" && is_called);
                }
            }
        }
    }
    assert!(moved > 0 && fdr > 0, "nothing was moved");
}
