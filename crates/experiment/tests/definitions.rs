//! Definitions: what is accepted, and that every error names its line and its remedy.

use uplake_experiment::definition::{Direction, MetricKind};
use uplake_experiment::query::{Aggregate, Window};
use uplake_experiment::{Experiment, plan};

const FULL: &str = r#"name = "free_shipping"
hypothesis = "Free shipping makes more visitors pay"
start = "2026-11-01"
end = 2026-11-15
time_zone = "Europe/Berlin"

[exposures]
table = "exposures"
user = "user_id"
variant = "variant"
time = "ts"
where = "exp_id = 101"

[[variant]]
name = "control"
value = 0
share = 0.5
[[variant]]
name = "free"
value = "1"
share = 0.5

[[metric]]
name = "conversion"
type = "proportion"
table = "events"
where = "event = 'pay'"
window = "7 days"

[[metric]]
name = "revenue"
type = "mean"
table = "events"
user = "buyer"
time = "paid_at"
value = "amount"
where = "event = 'pay'"
cap = 500
cuped = { pre = "14 days" }

[[metric]]
name = "order value"
type = "ratio"
table = "events"
where = "event = 'pay'"
numerator = { value = "amount" }
denominator = { value = "1", where = "amount > 0" }
direction = "decrease"
guardrail = true

[[dimension]]
name = "country"
[[dimension]]
name = "device"
sql = "lower(device)"
"#;

fn full() -> Experiment {
    Experiment::parse(FULL, "free.toml").expect("the example is right")
}

/// `text` with `from` replaced by `to` must fail with a message that contains every part.
fn refused(from: &str, to: &str, parts: &[&str]) {
    assert!(FULL.contains(from), "the example lacks {from:?}");
    let text = FULL.replacen(from, to, 1);
    let error = Experiment::parse(&text, "free.toml").expect_err(to).to_string();
    for part in parts {
        assert!(error.contains(part), "{error:?} lacks {part:?}");
    }
}

#[test]
fn a_full_definition_is_read_with_its_defaults() {
    let experiment = full();
    let period = experiment.period.as_ref().expect("start and end are given");
    assert_eq!((period.start.as_str(), period.end.as_str()), ("2026-11-01", "2026-11-15"));
    assert_eq!(experiment.variants[0].value, "0");
    assert!(experiment.variants[0].control && !experiment.variants[1].control);
    assert_eq!(experiment.alpha, 0.05);
    let [conversion, revenue, order_value] = &experiment.metrics[..] else {
        panic!("three metrics");
    };
    assert_eq!((conversion.user.as_str(), conversion.time.as_deref()), ("user_id", Some("ts")));
    assert_eq!(conversion.direction, Direction::Increase);
    assert_eq!((revenue.user.as_str(), revenue.time.as_deref()), ("buyer", Some("paid_at")));
    let MetricKind::Ratio { numerator, denominator } = &order_value.kind else {
        panic!("a ratio");
    };
    assert_eq!(numerator.filter.as_deref(), Some("event = 'pay'"));
    assert_eq!(denominator.filter.as_deref(), Some("(event = 'pay') AND (amount > 0)"));
    assert!(order_value.guardrail);
    assert_eq!(experiment.dimensions[0].sql, "country");
}

#[test]
fn a_plan_asks_for_each_number_once() {
    let mut experiment = full();
    let mut twin = experiment.metrics[0].clone();
    twin.name = "conversion again".into();
    experiment.metrics.push(twin);
    let query = plan(&experiment, Some("device"), None).expect("names exist");
    assert_eq!(query.groups, [vec![0], vec![1, 2], vec![3, 4], vec![0]]);
    let day = 86_400_000;
    assert_eq!(query.columns[0].aggregate, Aggregate::Any);
    assert_eq!(query.columns[0].window, Some(Window { start_ms: 0, end_ms: Some(7 * day) }));
    assert_eq!(query.columns[1].cap, Some(500.0));
    assert_eq!(query.columns[2].window, Some(Window { start_ms: -14 * day, end_ms: Some(0) }));
    assert_eq!(query.dimension.expect("asked for").sql, "lower(device)");
}

#[test]
fn a_plan_keeps_only_the_metrics_asked_for() {
    let names = ["order value".to_owned()];
    let query = plan(&full(), None, Some(&names)).expect("the name exists");
    assert_eq!((query.columns.len(), query.metrics.as_slice()), (2, &names[..]));
    let error = plan(&full(), Some("contry"), None).expect_err("no such dimension").to_string();
    assert!(error.contains("did you mean `country`") && error.contains("device"), "{error}");
}

#[test]
fn unknown_keys_are_refused_with_the_nearest_name() {
    refused("guardrail = true", "gardrail = true", &["free.toml:49", "did you mean `guardrail`"]);
    refused("hypothesis", "hypotesis", &["free.toml:2", "did you mean `hypothesis`"]);
    refused("sql = ", "sequel = ", &["free.toml:55", "allowed: name, sql"]);
}

#[test]
fn wrong_values_name_the_line_and_what_is_allowed() {
    refused("\"ratio\"", "\"funnel\"", &["free.toml:43", "`funnel`", "proportion, mean, ratio"]);
    refused("\"decrease\"", "\"down\"", &["free.toml:48", "increase, decrease"]);
    refused("\"7 days\"", "\"7 weeks\"", &["free.toml:28", "minutes, hours or days"]);
    refused("cap = 500", "cap = \"a\"", &["free.toml:38", "a number", "string"]);
    refused("2026-11-15", "2026-10-15", &["free.toml:4", "not after `start` 2026-11-01"]);
    refused("2026-11-01", "2026-02-30", &["free.toml:3", "2026-02-30"]);
    refused("end = 2026-11-15", "end = 2026-11-15T00:00:00Z", &["free.toml:4", "local"]);
    refused("value = 0", "value = 0.5", &["free.toml:16", "text or a whole number"]);
}

#[test]
fn what_is_missing_is_named_with_an_example() {
    refused("type = \"mean\"\n", "", &["free.toml:30", "[[metric]]", "`type`", "\"mean\""]);
    refused("table = \"exposures\"\n", "", &["free.toml:7", "`exposures`", "`table`"]);
    refused("end = 2026-11-15\n", "", &["`end`"]);
    refused("value = \"amount\"\n", "", &["free.toml:30", "`value`"]);
}

#[test]
fn arms_must_make_an_experiment() {
    refused("share = 0.5\n[[", "share = 0.7\n[[", &["sum to 1.2", "free.toml:21"]);
    refused("share = 0.5\n[[", "share = 0.0\n[[", &["two or more [[variant]]"]);
    refused("name = \"free\"", "name = \"control\"", &["free.toml:19", "a second time"]);
    refused("value = \"1\"", "value = \"0\"", &["free.toml:20", "a second time"]);
    let thirds = "share = 0.33\n[[variant]]\nname = \"third\"\nshare = 0.33\n[[";
    let text =
        FULL.replacen("share = 0.5\n[[", thirds, 1).replacen("share = 0.5", "share = 0.33", 1);
    assert!(Experiment::parse(&text, "free.toml").is_ok(), "0.33 three times is meant as a third");
    let both = "control = true\nshare = 0.5\n[[variant]]\ncontrol = true";
    refused("share = 0.5\n[[variant]]", both, &["exactly one variant"]);
}

#[test]
fn keys_without_meaning_for_the_type_are_refused() {
    refused("cap = 500", "numerator = { value = \"1\" }", &["free.toml:38", "type mean"]);
    refused("guardrail = true", "cap = 3", &["free.toml:49", "type ratio"]);
    refused("time = \"ts\"\n", "", &["`window`", "[exposures]"]);
    let cuped = "window = \"7 days\"\ncuped = { pre = \"2 days\" }";
    refused("window = \"7 days\"", cuped, &["`cuped`", "mean or ratio"]);
}

#[test]
fn a_window_may_start_later_for_retention() {
    let later = "window = { from = \"7 days\", to = \"14 days\" }";
    let text = FULL.replace("window = \"7 days\"", later);
    let experiment = Experiment::parse(&text, "free.toml").expect("right");
    let day = 86_400_000;
    let window = Window { start_ms: 7 * day, end_ms: Some(14 * day) };
    assert_eq!(experiment.metrics[0].window, Some(window));
    let backwards = "window = { from = \"7 days\", to = \"1 day\" }";
    refused("window = \"7 days\"", backwards, &["free.toml:28", "not after `from`"]);
    refused("window = \"7 days\"", "window = { to = \"1 day\" }", &["free.toml:28", "`from`"]);
}

#[test]
fn watching_needs_a_plan() {
    let line = "time_zone = \"Europe/Berlin\"";
    refused(line, "inference = \"anytime\"", &["`planned_users`", "100000"]);
    refused(line, "inference = \"bayes\"", &["free.toml:5", "fixed, anytime"]);
    refused(line, "planned_users = 5", &["free.toml:5", "anytime"]);
}

#[test]
fn broken_toml_names_its_line() {
    refused("name = \"revenue\"", "name = ", &["free.toml:31"]);
    let tail = "[[dimension]]\nname = \"country\"\n[[dimension]]";
    refused(tail, "[dimension]", &["free.toml:51", "[[dimension]], with two brackets"]);
}
