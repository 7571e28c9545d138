//! Metrics of the catalogue: what a use of one means, that it means the same as the metric written out, and what
//! is refused.

use uplake_experiment::definition::{
    Cap, Catalogue, Entry, MetricKind, Origin, Period, State, Use, metrics_of, pinned, stored,
    stored_text, uses,
};
use uplake_experiment::query::Cell;
use uplake_experiment::{Experiment, Moments, MomentsTable, Report, alternatives, analyze, plan};

const HEAD: &str = r#"name = "e"
[exposures]
table = "exposures"
user = "user_id"
variant = "variant"
time = "ts"
[[variant]]
name = "a"
share = 0.5
[[variant]]
name = "b"
share = 0.5
"#;

const REVENUE: &str = r#"# What a user pays.
[[metric]]
name = "revenue"
type = "mean"
table = "orders"
value = "amount"
where = "paid"
cap = "99 %"  # whales
cuped = { pre = "14 days" }
direction = "increase"
minimum_effect = 0.01
owner = "growth"
tags = ["money", "core"]
description = "All that is paid, after discounts""#;

const BUYING: &str = r#"[[metric]]
name = "buying"
type = "funnel"
table = "events"
guardrail = true
[[metric.steps]]
name = "cart"
where = "e = 'cart'"
[[metric.steps]]
name = "pay"
where = "e = 'pay'""#;

fn entry(name: &str, version: u32, text: &str) -> Entry {
    let text = stored_text(text, "2026-11-25T13:00:00Z");
    Entry { name: name.into(), version, text, path: format!("metrics/{name}/{version}.toml") }
}

/// `revenue` in two versions, of which the first has no cap, and `buying`.
fn catalogue() -> Catalogue {
    let entries = vec![
        entry("revenue", 1, &REVENUE.replace("cap = \"99 %\"  # whales\n", "")),
        entry("revenue", 2, REVENUE),
        entry("buying", 1, BUYING),
    ];
    Catalogue { newest: [("revenue".into(), 2), ("buying".into(), 1)].into(), entries }
}

fn parse(metrics: &str) -> Experiment {
    let text = format!("{HEAD}{metrics}");
    Experiment::parse_with(&text, "e.toml", &catalogue()).unwrap_or_else(|e| panic!("{e}"))
}

#[track_caller]
fn refused(metrics: &str, catalogue: &Catalogue, parts: &[&str]) {
    let text = format!("{HEAD}{metrics}");
    let error = Experiment::parse_with(&text, "e.toml", catalogue).expect_err(metrics).to_string();
    for part in parts {
        assert!(error.contains(part), "{error:?} lacks {part:?}");
    }
}

#[test]
fn a_used_metric_is_the_metric_written_out() {
    let used = parse("[[metric]]\nuse = \"revenue\"\n[[metric]]\nuse = \"buying\"\n");
    let written = parse(&format!("{REVENUE}\n{BUYING}\n"));
    let without_origin = |experiment: &Experiment| {
        let mut metrics = experiment.metrics.clone();
        metrics.iter_mut().for_each(|metric| metric.about.catalogue = None);
        metrics
    };
    assert_eq!(without_origin(&used), written.metrics);
    assert_eq!(plan(&used, &[], None).unwrap(), plan(&written, &[], None).unwrap());
    let revenue = &used.metrics[0];
    assert_eq!(revenue.minimum_effect, Some(0.01));
    assert_eq!(revenue.about.owner.as_deref(), Some("growth"));
    assert_eq!(revenue.about.tags, ["money", "core"]);
    let origin = Origin { name: "revenue".into(), version: 2, overrides: Vec::new() };
    assert_eq!(revenue.about.catalogue, Some(origin));
    // Both steps of the funnel are of one metric.
    let of_steps: Vec<&str> = used.metrics[1..].iter().map(|m| m.name.as_str()).collect();
    assert_eq!(of_steps, ["buying: cart", "buying: pay"]);
    assert!(used.metrics[1..].iter().all(|m| m.about.catalogue.as_ref().unwrap().name == "buying"));
}

#[test]
fn the_reference_page_uses_metrics_that_are_found() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/experiments.md");
    let page = std::fs::read_to_string(page).expect("the reference of definitions");
    let mut blocks = page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let used = blocks.find(|block| block.contains("use = ")).expect("a use");
    let name = "revenue_per_user";
    let text = REVENUE.replace("\"revenue\"", &format!("\"{name}\""));
    let entries = vec![entry(name, 3, &text), entry(name, 4, &text)];
    let all = Catalogue { newest: [(name.into(), 4)].into(), entries };
    let text = format!("{HEAD}{used}");
    let experiment = Experiment::parse_with(&text, "e.toml", &all).unwrap();
    let versions = experiment.metrics.iter().map(|m| m.about.catalogue.as_ref().unwrap().version);
    assert_eq!(versions.collect::<Vec<_>>(), [4, 3]);
}

#[test]
fn keys_beside_a_use_take_the_place_of_the_catalogues() {
    let experiment = parse(
        "[[metric]]\nuse = \"revenue\"\ncap = 500\nname = \"first week\"\nwindow = \"7 days\"\n\
         [[metric]]\nuse = \"revenue\"\nguardrail = true\nmargin = 0.02\n",
    );
    let [first, second] = &experiment.metrics[..] else { panic!("two metrics") };
    assert_eq!((first.name.as_str(), second.name.as_str()), ("first week", "revenue"));
    assert!(matches!(first.kind, MetricKind::Mean { cap: Some(Cap::Value(500.0)), .. }));
    assert!(matches!(second.kind, MetricKind::Mean { cap: Some(Cap::Quantile { .. }), .. }));
    assert_eq!(first.window.unwrap().end_ms, Some(7 * 86_400_000));
    assert!(!first.guardrail && second.guardrail && second.margin == Some(0.02));
    let overrides = &first.about.catalogue.as_ref().unwrap().overrides;
    assert_eq!(*overrides, ["cap", "name", "window"]);
}

#[test]
fn false_takes_a_key_of_the_catalogue_away() {
    let experiment = parse(
        "[[metric]]\nuse = \"revenue\"\ncap = false\ncuped = false\nwhere = false\n\
         [[metric]]\nuse = \"buying\"\nguardrail = false\n",
    );
    let MetricKind::Mean { term, cap: None } = &experiment.metrics[0].kind else {
        panic!("a mean without cap")
    };
    assert_eq!(term.filter, None);
    assert!(experiment.metrics[0].cuped.is_none() && !experiment.metrics[1].guardrail);
    // What a metric cannot do without is missed where it was taken away.
    let taken = "[[metric]]\nuse = \"revenue\"\nvalue = false\n";
    refused(taken, &catalogue(), &["e.toml:13", "lacks `value`"]);
    // There is nothing to take away.
    let nothing = "[[metric]]\nuse = \"buying\"\nwindow = false\n";
    refused(nothing, &catalogue(), &["e.toml:15", "`window` must be text"]);
}

#[test]
fn a_version_can_be_named_and_pinning_names_it() {
    let one = parse("[[metric]]\nuse = \"revenue@1\"\n");
    assert!(matches!(one.metrics[0].kind, MetricKind::Mean { cap: None, .. }));
    assert_eq!(one.metrics[0].about.catalogue.as_ref().unwrap().version, 1);

    let text = format!(
        "{HEAD}[[metric]]\nuse = 'revenue' # ours\ncap = 3\n[[metric]]\nuse=\"revenue@1\"\nname = \"é\"\n\
         [[metric]]\nuse = \"\"\"buying\"\"\"\n"
    );
    let fixed = pinned(&text, "e.toml", &catalogue()).unwrap();
    let expected = text
        .replace("'revenue' # ours", "\"revenue@2\" # ours")
        .replace("\"\"\"buying\"\"\"", "\"buying@1\"");
    assert_eq!(fixed, expected);
    // Whatever comes later, it means the same.
    let mut later = catalogue();
    later.newest.insert("revenue".into(), 3);
    later.entries.push(entry("revenue", 3, &REVENUE.replace("amount", "net")));
    let (before, with) = (catalogue(), Experiment::parse_with);
    assert_eq!(with(&fixed, "e.toml", &later), with(&text, "e.toml", &before));
    assert_ne!(with(&text, "e.toml", &later), with(&text, "e.toml", &before));
    assert_eq!(pinned(HEAD, "e.toml", &catalogue()).unwrap(), HEAD);

    let named = |name: &str, version| Use { name: name.into(), version };
    let expected = [named("revenue", None), named("revenue", Some(1)), named("buying", None)];
    assert_eq!(uses(&text, "e.toml").unwrap(), expected);
}

#[test]
fn what_the_catalogue_has_not_is_refused_with_what_it_has() {
    let all = &catalogue();
    refused("[[metric]]\nuse = \"revenu\"\n", all, &["e.toml:14", "did you mean `revenue`?"]);
    refused("[[metric]]\nuse = \"x\"\n", all, &["no metric of the catalogue", "buying, revenue"]);
    refused("[[metric]]\nuse = \"revenue@3\"\n", all, &["not there yet", "versions 1 to 2"]);
    for wrong in
        ["revenue@", "revenue@0", "revenue@-1", "revenue@+1", "revenue@x", "revenue@9999999999"]
    {
        let parts = ["e.toml:14", "NAME@VERSION"];
        refused(&format!("[[metric]]\nuse = \"{wrong}\"\n"), all, &parts);
    }
    refused("[[metric]]\nuse = 3\n", all, &["`use` must be text"]);
    let none = &Catalogue::default();
    refused("[[metric]]\nuse = \"revenue\"\n", none, &["uplake metric set", "there are none"]);
    let mut lost = catalogue();
    lost.entries.remove(0);
    refused("[[metric]]\nuse = \"revenue@1\"\n", &lost, &["not there any more"]);
    let twice = "[[metric]]\nuse = \"revenue\"\n[[metric]]\nuse = \"revenue@1\"\n";
    refused(twice, all, &["`revenue` a second time"]);
    let summary = "name = \"s\"\n[summary]\ntable = \"t\"\nvariant = \"v\"\nusers = \"n\"\n[[variant]]\n\
                   name = \"a\"\nshare = 0.5\n[[variant]]\nname = \"b\"\nshare = 0.5\n[[metric]]\nuse = \"revenue\"\n";
    let error = Experiment::parse_with(summary, "s.toml", all).unwrap_err().to_string();
    assert!(error.contains("beside [summary]"), "{error}");
}

#[test]
fn a_mistake_is_named_in_the_file_that_it_is_in() {
    let mut all = catalogue();
    all.entries[1].text = all.entries[1].text.replace("\"99 %\"", "\"40 %\"");
    let used = "[[metric]]\nuse = \"revenue\"\n";
    refused(used, &all, &["metrics/revenue/2.toml:10", "above 50"]);
    refused("[[metric]]\nuse = \"revenue\"\ncap = \"40 %\"\n", &all, &["e.toml:15", "above 50"]);
    // The catalogue's key with an override that it does not go with.
    let counted = "[[metric]]\nuse = \"revenue@1\"\ntype = \"count\"\n";
    refused(counted, &all, &["metrics/revenue/1.toml:8", "no meaning for type count"]);
    all.entries[1].text = all.entries[1].text.replace("owner", "ownr");
    refused(used, &all, &["metrics/revenue/2.toml:14", "did you mean `owner`?"]);
    all.entries[1].text = all.entries[1].text.replace("type", "use = \"revenue\"\ntype");
    refused(used, &all, &["metrics/revenue/2.toml", "no meaning in the catalogue"]);
    all.entries[1].text = "[[metric".into();
    refused(used, &all, &["metrics/revenue/2.toml:1"]);
}

#[test]
fn a_file_is_cut_into_its_metrics_with_their_comments() {
    let text = format!("# Ours.\n\n{REVENUE}\n\n# Steps.\n# In order.\n{BUYING}\n# The end.\n");
    let metrics = metrics_of(&text, "m.toml").unwrap();
    let [revenue, buying] = &metrics[..] else { panic!("two") };
    assert_eq!((revenue.name.as_str(), revenue.text.as_str()), ("revenue", REVENUE));
    let with_comments = format!("# Steps.\n# In order.\n{BUYING}\n# The end.");
    assert_eq!((buying.name.as_str(), &buying.text), ("buying", &with_comments));
    for metric in &metrics {
        let again = stored(&stored_text(&metric.text, "2026-11-25T13:00:00Z"), "s.toml").unwrap();
        assert_eq!((&again.name, &again.text), (&metric.name, &metric.text));
        assert_eq!(again.set_at.as_deref(), Some("2026-11-25T13:00:00Z"));
    }
    let first = stored(&stored_text(REVENUE, "t"), "s.toml").unwrap();
    assert_eq!((first.kind, first.guardrail, first.minimum_effect), ("mean", false, Some(0.01)));
    // A file of another system is the same.
    let text = format!("\u{feff}{}", text.replace('\n', "\r\n"));
    assert_eq!(metrics_of(&text, "m.toml").unwrap(), metrics);
    // Text that looks like a table is none.
    let tricky = REVENUE.replace("\"paid\"", "\"\"\"a\n[[metric]]\n# b\n\"\"\"");
    assert_eq!(metrics_of(&format!("{tricky}\n{BUYING}"), "m.toml").unwrap()[0].text, tricky);
}

#[test]
fn what_cannot_be_a_metric_of_the_catalogue_is_refused_when_it_is_set() {
    for (from, to, parts) in [
        ("\"mean\"", "\"median\"", &["m.toml:4", "`median`"][..]),
        ("owner = \"growth\"", "owner = 7", &["m.toml:12", "`owner` must be text"]),
        ("[\"money\", \"core\"]", "\"money\"", &["m.toml:13", "a list of texts"]),
        ("[\"money\", \"core\"]", "[1]", &["m.toml:13", "no list of texts"]),
        ("0.01", "0", &["m.toml:11", "above 0 and below 1"]),
        ("0.01", "\"1 %\"", &["m.toml:11", "`minimum_effect` must be a number"]),
        ("owner =", "ownr =", &["m.toml:12", "did you mean `owner`?"]),
        ("name = \"revenue\"\n", "", &["m.toml:2", "lacks `name`"]),
        ("name =", "use = \"other\"\nname =", &["m.toml:3", "defined in full"]),
        ("# What", "name = \"e\"\n# What", &["m.toml:1", "unknown key `name`"]),
        ("[[metric]]", "[metric]", &["m.toml:2", "two brackets"]),
        (REVENUE, "metric = [{ name = \"x\", type = \"count\" }]", &["m.toml:1", "in one line"]),
        (REVENUE, "", &["lacks `metric`"]),
        (REVENUE, "metric = []", &["lacks `metric`"]),
    ] {
        assert!(REVENUE.contains(from), "{from}");
        let error = metrics_of(&REVENUE.replacen(from, to, 1), "m.toml").expect_err(to).to_string();
        for part in parts {
            assert!(error.contains(part), "{error:?} lacks {part:?}");
        }
    }
    let twice = format!("{REVENUE}\n{REVENUE}");
    let error = metrics_of(&twice, "m.toml").unwrap_err().to_string();
    assert!(error.contains("a second time"), "{error}");
}

/// Both arms have so many users, whose values have a deviation of twice the control's mean of 10.
fn report(text: &str, users: u64, mean: f64) -> Report {
    let experiment = parse(text);
    let query = plan(&experiment, &[], None).expect("it fits");
    let cell = |variant: usize, mean: f64| {
        let groups = query.groups.iter().map(|columns| match columns.len() {
            1 => Moments::from_summary(users, &[mean], &[400.0]),
            _ => Moments::from_summary(users, &[mean, 10.0], &[400.0, 0.0, 400.0]),
        });
        Cell { slice: None, variant, users, groups: groups.collect() }
    };
    let table =
        MomentsTable { cells: vec![cell(0, 10.0), cell(1, mean)], ..MomentsTable::default() };
    let mut report = analyze(&experiment, &query, &table).expect("it fits");
    report.alternatives = alternatives(&experiment, &query, &table).expect("it fits");
    report
}

#[test]
fn an_interval_of_lifts_that_are_all_too_small_to_matter_is_said() {
    let used = "[[metric]]\nuse = \"revenue\"\ncuped = false\n";
    let note = "b: smaller than 1 %, which is the least that matters (95 % interval).";
    // The error of the lift is 2 sqrt(2 / users): at 500,000 users an arm the interval is +-0.78 %.
    for (users, mean, expected) in [
        (500_000, 10.0, true),
        (500_000, 10.0 + 10.0 * 0.002, true),
        (500_000, 10.0 - 10.0 * 0.002, true),
        (500_000, 10.0 + 10.0 * 0.0025, false),
        (500_000, 10.0 - 10.0 * 0.0025, false),
        (300_000, 10.0, false),
        (500_000, 12.0, false),
    ] {
        let report = report(used, users, mean);
        let notes = &report.metrics[0].notes;
        assert_eq!(notes.iter().any(|n| n == note), expected, "{users} {mean}: {notes:?}");
        assert_eq!(report.to_text(100, false).contains("smaller than 1 %, which"), expected);
        assert_eq!(report.to_html().contains("smaller than 1 %, which"), expected);
    }
    // Other limits, as they were written.
    for (written, shown) in [("0.5", "50 %"), ("0.07", "7 %"), ("0.0125", "1.25 %")] {
        let report = report(&format!("{used}minimum_effect = {written}\n"), 500_000, 10.0);
        let notes = report.metrics[0].notes.join(" ");
        assert!(notes.contains(&format!("smaller than {shown}, which")), "{notes}");
    }
    let silent = report(&format!("{used}minimum_effect = false\n"), 500_000, 10.0);
    assert!(silent.metrics[0].notes.is_empty() && silent.metrics[0].minimum_effect.is_none());
}

#[test]
fn a_report_says_which_version_of_a_metric_it_used() {
    let report = report("[[metric]]\nuse = \"revenue@1\"\ncuped = false\n", 5_000, 10.0);
    let words = "Metrics of the catalogue: revenue version 1, with its own cuped.";
    assert!(report.method.iter().any(|sentence| sentence == words), "{:?}", report.method);
    let json = report.to_json();
    let json: Vec<&str> = json.split_whitespace().collect();
    let json = json.concat();
    for part in [
        "\"minimum_effect\":0.01,\"owner\":\"growth\",\"tags\":[\"money\",\"core\"]",
        "\"catalogue\":{\"name\":\"revenue\",\"version\":1,\"overrides\":[\"cuped\"]}",
    ] {
        assert!(json.contains(part), "{json} lacks {part}");
    }
    let plain = self::report("[[metric]]\nname = \"m\"\ntype = \"count\"\n", 5_000, 10.0);
    let json = plain.to_json();
    for key in ["catalogue", "minimum_effect", "owner", "tags", "description"] {
        assert!(!json.contains(&format!("\"{key}\"")), "{key} is said of a metric without it");
    }
    assert!(plain.method.iter().all(|sentence| !sentence.contains("catalogue")));
}

#[test]
fn the_lift_that_priors_are_made_of_is_that_of_the_data_alone() {
    let used = "[[metric]]\nuse = \"revenue\"\ncuped = false\n";
    let fixed = report(used, 5_000, 10.4).metrics[0].comparisons[0].observed.unwrap();
    assert!((fixed.value - 0.04).abs() < 1e-12);
    // Of the difference, in units of the control's mean.
    assert!((fixed.error - 2.0 * (2.0_f64 / 5_000.0).sqrt()).abs() < 1e-12);
    for method in [
        "inference = \"bayesian\"\nprior = { mean = 0, deviation = 0.01 }\n",
        "inference = \"anytime\"\nplanned_users = 10000\n",
        "lift = \"none\"\n",
    ] {
        let text = format!("{method}{HEAD}{used}");
        let experiment = Experiment::parse_with(&text, "e.toml", &catalogue()).unwrap();
        let query = plan(&experiment, &[], None).unwrap();
        let cell = |variant: usize, mean: f64| {
            let groups = vec![Moments::from_summary(5_000, &[mean], &[400.0])];
            Cell { slice: None, variant, users: 5_000, groups }
        };
        let cells = vec![cell(0, 10.0), cell(1, 10.4)];
        let table = MomentsTable { cells, ..MomentsTable::default() };
        let report = analyze(&experiment, &query, &table).unwrap();
        let observed = report.metrics[0].comparisons[0].observed.unwrap();
        assert_eq!((observed.value, observed.error), (fixed.value, fixed.error), "{method}");
    }
}

#[test]
fn a_period_has_not_begun_until_its_start_and_is_over_from_its_end() {
    let period = |start: &str, end: &str| Period { start: start.into(), end: end.into() };
    let days = period("2026-11-01", "2026-11-15");
    for (now, state) in [
        ("2026-10-31T23:59:59", State::NotStarted),
        ("2026-11-01T00:00:00", State::Running),
        ("2026-11-14T23:59:59", State::Running),
        ("2026-11-15T00:00:00", State::Over),
    ] {
        assert_eq!(days.state(now), state, "{now}");
    }
    let hours = period("2026-11-01T12:00:00", "2026-11-01T18:00:00");
    assert_eq!(hours.state("2026-11-01T11:59:59"), State::NotStarted);
    assert_eq!(hours.state("2026-11-01T12:00:00"), State::Running);
    assert_eq!(hours.state("2026-11-01T18:00:00"), State::Over);
}
