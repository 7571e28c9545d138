//! Definitions: what is accepted, and that every error names its line and its remedy.

use uplake_experiment::assignment::{Assignment, System};
use uplake_experiment::bayes::Prior;
use uplake_experiment::definition::{
    Cap, Correction, Direction, Inference, Lift, MetricKind, ProportionTest, Step, Unit,
};
use uplake_experiment::query::{Aggregate, MomentsQuery, UserColumn, Window};
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
    let query = plan(&experiment, &["device".to_owned()], None).expect("names exist");
    assert_eq!(query.groups, [vec![0], vec![1, 2], vec![3, 4], vec![0]]);
    let day = 86_400_000;
    assert_eq!(query.columns[0].aggregate, Aggregate::Any);
    assert_eq!(query.columns[0].window, Some(Window { start_ms: 0, end_ms: Some(7 * day) }));
    assert_eq!(query.columns[1].cap, Some(Cap::Value(500.0)));
    assert_eq!(query.columns[2].window, Some(Window { start_ms: -14 * day, end_ms: Some(0) }));
    assert_eq!(query.dimensions[0].sql, "lower(device)");
}

#[test]
fn a_plan_keeps_only_the_metrics_asked_for() {
    let names = ["order value".to_owned()];
    let query = plan(&full(), &[], Some(&names)).expect("the name exists");
    assert_eq!((query.columns.len(), query.metrics.as_slice()), (2, &names[..]));
    let error =
        plan(&full(), &["contry".to_owned()], None).expect_err("no such dimension").to_string();
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
    refused(
        "\"ratio\"",
        "\"median\"",
        &["free.toml:43", "`median`", "mean, count, distinct, unique_days"],
    );
    refused("\"decrease\"", "\"down\"", &["free.toml:48", "increase, decrease"]);
    refused("\"7 days\"", "\"7 weeks\"", &["free.toml:28", "minutes, hours or days"]);
    refused("cap = 500", "cap = \"a\"", &["free.toml:38", "a number, or a percentage", "99 %"]);
    refused("cap = 500", "cap = \"40 %\"", &["free.toml:38", "above 50 and below 100"]);
    refused("cap = 500", "cap = inf", &["free.toml:38", "not finite"]);
    refused("cap = 500", "cap = true", &["free.toml:38", "a number", "boolean"]);
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
    let cuped =
        "denominator = { value = \"1\" }\ncuped = { pre = \"2 days\", with = [{ value = \"1\" }] }";
    refused("denominator = { value = \"1\", where = \"amount > 0\" }", cuped, &["`with`", "ratio"]);
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
    refused(line, "planned_users = 1", &["free.toml:5", "2 or more"]);
}

#[test]
fn broken_toml_names_its_line() {
    refused("name = \"revenue\"", "name = ", &["free.toml:31"]);
    let tail = "[[dimension]]\nname = \"country\"\n[[dimension]]";
    refused(tail, "[dimension]", &["free.toml:51", "[[dimension]], with two brackets"]);
}

const DAY_MS: i64 = 86_400_000;

/// Lines 1 to 13 of a definition; what a test adds begins on line 14.
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

fn with(metric: &str) -> Result<Experiment, String> {
    let text = format!("{HEAD}[[metric]]\nname = \"m\"\ntable = \"events\"\n{metric}\n");
    Experiment::parse(&text, "e.toml").map_err(|error| error.to_string())
}

fn planned(metric: &str) -> MomentsQuery {
    let experiment = with(metric).unwrap_or_else(|error| panic!("{metric}: {error}"));
    plan(&experiment, &[], None).expect("no names")
}

/// A metric that must be refused with a message that has every part; its lines are 13 to 15, then
/// the text's own.
fn metric_refused(metric: &str, parts: &[&str]) {
    let error = with(metric).expect_err(metric);
    for part in parts {
        assert!(error.contains(part), "{metric}: {error:?} lacks {part:?}");
    }
}

fn of_metrics(text: &str) -> Result<Experiment, String> {
    Experiment::parse(&format!("{HEAD}{text}"), "e.toml").map_err(|error| error.to_string())
}

fn of_metrics_refused(text: &str, parts: &[&str]) {
    let error = of_metrics(text).expect_err(text);
    parts.iter().for_each(|part| assert!(error.contains(part), "{error:?} lacks {part:?}"));
}

#[test]
fn the_first_goal_is_primary_unless_roles_say_otherwise() {
    let metric = |name: &str, keys: &str| {
        format!("[[metric]]\nname = \"{name}\"\ntype = \"count\"\ntable = \"events\"\n{keys}\n")
    };
    let roles = |metrics: &[(&str, &str)]| -> String {
        let text: Vec<String> = metrics.iter().map(|(name, keys)| metric(name, keys)).collect();
        let read = of_metrics(&text.concat()).expect("right").metrics;
        let role = |metric: &uplake_experiment::definition::Metric| match (
            metric.primary,
            metric.guardrail,
        ) {
            (true, false) => 'p',
            (false, false) => 's',
            (false, true) => 'g',
            (true, true) => '?',
        };
        read.iter().map(role).collect()
    };
    let guardrail = "guardrail = true";
    assert_eq!(roles(&[("a", guardrail), ("b", ""), ("c", "")]), "gps");
    assert_eq!(roles(&[("a", ""), ("b", "role = \"primary\""), ("c", "")]), "sps");
    assert_eq!(roles(&[("a", "role = \"secondary\""), ("b", "")]), "ps");
    assert_eq!(roles(&[("a", "role = \"guardrail\"\nmargin = 0.1"), ("b", "")]), "gp");
    assert_eq!(roles(&[("a", "role = \"guardrail\"\nguardrail = true")]), "g");
    assert_eq!(roles(&[("a", "role = \"primary\"\nguardrail = false"), ("b", "")]), "ps");
    of_metrics_refused(
        &metric("a", "role = \"main\""),
        &["e.toml:17", "primary, secondary, guardrail"],
    );
    let both = metric("a", "role = \"primary\"\nguardrail = true");
    of_metrics_refused(&both, &["e.toml:18", "`guardrail` is true", "one of the two"]);
    let margin = metric("a", "role = \"secondary\"\nmargin = 0.1");
    of_metrics_refused(&margin, &["e.toml:18", "guardrail = true"]);
}

#[test]
fn a_funnel_that_is_primary_is_so_by_its_last_step() {
    let funnel = "[[metric]]\nname = \"f\"\ntype = \"funnel\"\ntable = \"events\"\nrole = \"primary\"\n\
                  group = \"buying\"\nsteps = [{ name = \"a\", where = \"x\" }, { name = \"b\", where = \"y\" }]\n";
    let metrics = of_metrics(funnel).expect("right").metrics;
    let found: Vec<(&str, bool)> = metrics.iter().map(|m| (m.name.as_str(), m.primary)).collect();
    assert_eq!(found, [("f: a", false), ("f: b", true)]);
    assert!(metrics.iter().all(|metric| metric.group.as_deref() == Some("buying")));
    let empty = funnel.replace("\"buying\"", "\" \"");
    of_metrics_refused(&empty, &["e.toml:18", "`group` is empty"]);
}

/// Top-level keys before the rest, so that they are on line 2.
fn top(keys: &str) -> Result<Experiment, String> {
    let rest = HEAD.strip_prefix("name = \"e\"\n").expect("the first line");
    let metric = "[[metric]]\nname = \"m\"\ntype = \"count\"\ntable = \"events\"\n";
    let dimension = "[[dimension]]\nname = \"country\"\n";
    let text = format!("name = \"e\"\n{keys}\n{rest}{metric}{dimension}");
    Experiment::parse(&text, "e.toml").map_err(|error| error.to_string())
}

fn top_refused(keys: &str, parts: &[&str]) {
    let error = top(keys).expect_err(keys);
    for part in parts {
        assert!(error.contains(part), "{keys}: {error:?} lacks {part:?}");
    }
}

/// The column that most metrics share, to be varied.
fn column(aggregate: Aggregate, value: &str) -> UserColumn {
    UserColumn {
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
    }
}

#[test]
fn every_metric_type_asks_for_its_own_numbers() {
    use Aggregate::{Any, Distinct, Sum};
    let week = Window { start_ms: 7 * DAY_MS, end_ms: Some(14 * DAY_MS) };
    let before = Window { start_ms: -14 * DAY_MS, end_ms: Some(0) };
    let cases: Vec<(&str, Vec<UserColumn>)> = vec![
        ("type = \"proportion\"", vec![column(Any, "1")]),
        ("type = \"proportion\"\nvalue = \"paid\"", vec![column(Any, "paid")]),
        (
            "type = \"retention\"\nwindow = { from = \"7 days\", to = \"14 days\" }",
            vec![UserColumn { window: Some(week), ..column(Any, "1") }],
        ),
        (
            "type = \"retention\"\nwindow = { from = \"7 days\" }",
            vec![UserColumn { window: Some(Window { end_ms: None, ..week }), ..column(Any, "1") }],
        ),
        (
            "type = \"threshold\"\nvalue = \"amount\"\nat_least = 100",
            vec![UserColumn { at_least: Some(100.0), ..column(Sum, "amount") }],
        ),
        (
            "type = \"mean\"\nvalue = \"amount\"\ncap = \"99 %\"",
            vec![UserColumn {
                cap: Some(Cap::Quantile { level: 0.99, zeros: true }),
                ..column(Sum, "amount")
            }],
        ),
        (
            "type = \"count\"\nwhere = \"event = 'view'\"\ncap = 20",
            vec![UserColumn {
                filter: Some("event = 'view'".into()),
                cap: Some(Cap::Value(20.0)),
                ..column(Sum, "1")
            }],
        ),
        ("type = \"distinct\"\nvalue = \"item\"", vec![column(Distinct, "item")]),
        (
            "type = \"ratio\"\nnumerator = { value = \"a\" }\ndenominator = { value = \"b\" }",
            vec![column(Sum, "a"), column(Sum, "b")],
        ),
        (
            "type = \"mean\"\nvalue = \"amount\"\n\
             cuped = { pre = \"14 days\", with = [{ value = \"1\", where = \"x = 1\" }] }",
            vec![
                column(Sum, "amount"),
                UserColumn { window: Some(before), ..column(Sum, "amount") },
                UserColumn {
                    window: Some(before),
                    filter: Some("x = 1".into()),
                    ..column(Sum, "1")
                },
            ],
        ),
        (
            "type = \"proportion\"\nwindow = \"7 days\"\ncuped = { pre = \"14 days\" }",
            vec![
                UserColumn {
                    window: Some(Window { start_ms: 0, end_ms: Some(7 * DAY_MS) }),
                    ..column(Any, "1")
                },
                UserColumn { window: Some(before), ..column(Any, "1") },
            ],
        ),
        (
            "type = \"ratio\"\nnumerator = { value = \"a\" }\n\
             denominator = { value = \"b\" }\ncuped = { pre = \"14 days\" }",
            vec![
                column(Sum, "a"),
                column(Sum, "b"),
                UserColumn { window: Some(before), ..column(Sum, "a") },
                UserColumn { window: Some(before), ..column(Sum, "b") },
            ],
        ),
    ];
    for (metric, expected) in cases {
        let query = planned(metric);
        assert_eq!(query.columns, expected, "{metric}");
        assert_eq!(query.groups, [(0..expected.len()).collect::<Vec<_>>()], "{metric}");
        assert!(query.quantiles.is_empty() && !query.days, "{metric}");
    }
}

#[test]
fn a_funnel_is_one_share_per_step_in_order() {
    let steps = "type = \"funnel\"\nwhere = \"shop = 1\"\nsteps = [{ name = \"cart\", where = \
                 \"event = 'cart'\" }, { name = \"pay\", where = \"event = 'pay'\" }]";
    let experiment = with(steps).expect("right");
    let names: Vec<&str> = experiment.metrics.iter().map(|metric| metric.name.as_str()).collect();
    assert_eq!(names, ["m: cart", "m: pay"]);
    let MetricKind::Step { funnel, steps: found, reached: 2, conversion_time: false } =
        &experiment.metrics[1].kind
    else {
        panic!("a second step");
    };
    assert_eq!(funnel, "m");
    let filter = "(shop = 1) AND (event = 'pay')".to_owned();
    assert_eq!(found[1], Step { name: "pay".into(), filter });
    let query = planned(steps);
    let filters =
        vec!["(shop = 1) AND (event = 'cart')".to_owned(), "(shop = 1) AND (event = 'pay')".into()];
    let reached = |reached| column(Aggregate::Steps { steps: filters.clone(), reached }, "1");
    assert_eq!(query.columns, [reached(1), reached(2)]);
    assert_eq!(query.groups, [[0], [1]]);

    metric_refused("type = \"funnel\"", &["e.toml:13", "`steps`", "name = \"cart\""]);
    let one = "type = \"funnel\"\nsteps = [{ name = \"a\", where = \"b\" }]";
    metric_refused(one, &["e.toml:17", "has 1", "two or more"]);
    metric_refused("type = \"funnel\"\nsteps = 3", &["e.toml:17", "[[steps]]"]);
    let nameless =
        "type = \"funnel\"\nsteps = [{ where = \"b\" }, { name = \"c\", where = \"d\" }]";
    metric_refused(nameless, &["e.toml:17", "`name`"]);
    let unfiltered =
        "type = \"funnel\"\nsteps = [{ name = \"b\" }, { name = \"c\", where = \"d\" }]";
    metric_refused(unfiltered, &["e.toml:17", "`where`"]);
}

#[test]
fn a_quantile_asks_for_ranks_and_no_moments() {
    let quantile = "type = \"quantile\"\nvalue = \"ms\"\nlevel = 0.9";
    for (extra, per_row) in [("", false), ("\nper = \"user\"", false), ("\nper = \"row\"", true)] {
        let query = planned(&format!("{quantile}{extra}"));
        assert_eq!((query.columns.len(), query.groups.clone()), (0, vec![vec![]]));
        let [asked] = &query.quantiles[..] else { panic!("one quantile") };
        assert_eq!((asked.metric, asked.level, asked.per_row), (0, 0.9, per_row));
        assert_eq!(asked.column, column(Aggregate::Sum, "ms"));
    }
    metric_refused("type = \"quantile\"\nvalue = \"ms\"", &["e.toml:13", "`level`"]);
    metric_refused(&format!("{quantile}0\nper = \"day\""), &["e.toml:19", "user, row"]);
    let level = quantile.replace("0.9", "1");
    metric_refused(&level, &["e.toml:18", "above 0 and below 1"]);
    let margin = format!("{quantile}\nguardrail = true\nmargin = 0.1");
    metric_refused(&margin, &["e.toml:20", "quantiles excepted"]);
    metric_refused(&format!("{quantile}\ncap = 3"), &["e.toml:19", "type quantile"]);
}

#[test]
fn keys_of_a_metric_are_checked_with_their_type() {
    let retention = "type = \"retention\"";
    metric_refused(retention, &["e.toml:13", "`window`", "7 days"]);
    let at_once = format!("{retention}\nwindow = \"7 days\"");
    metric_refused(&at_once, &["e.toml:17", "start after exposure"]);
    let threshold = "type = \"threshold\"\nvalue = \"amount\"";
    metric_refused(threshold, &["e.toml:13", "at_least = 100"]);
    metric_refused(&format!("{threshold}\nat_least = 0"), &["e.toml:18", "users without rows"]);
    metric_refused(&format!("{threshold}\nat_least = nan"), &["e.toml:18", "above 0"]);
    metric_refused("type = \"threshold\"\nat_least = 1", &["e.toml:13", "`value`"]);
    metric_refused("type = \"count\"\nvalue = \"1\"", &["e.toml:17", "type count"]);
    metric_refused("type = \"distinct\"", &["e.toml:13", "`value`"]);
    metric_refused("type = \"funnel\"\ncuped = { pre = \"1 day\" }", &["e.toml:17", "type funnel"]);

    let share = "type = \"proportion\"";
    metric_refused(&format!("{share}\nmargin = 0.1"), &["e.toml:17", "guardrail = true"]);
    let wide = format!("{share}\nguardrail = true\nmargin = 1.5");
    metric_refused(&wide, &["e.toml:18", "above 0 and below 1"]);
    for equivalence in ["0", "1", "-0.02"] {
        let odd = format!("{share}\nequivalence = {equivalence}");
        metric_refused(&odd, &["e.toml:17", "above 0 and below 1"]);
    }
    metric_refused(&format!("{share}\ntest = \"z\""), &["e.toml:17", "unpooled, pooled, exact"]);
    let adjusted = format!("{share}\ntest = \"exact\"\ncuped = {{ pre = \"1 day\" }}");
    metric_refused(&adjusted, &["e.toml:17", "plain shares of users"]);
    metric_refused("type = \"mean\"\nvalue = \"a\"\ntest = \"exact\"", &["e.toml:18", "type mean"]);
    for (word, test) in [
        ("unpooled", ProportionTest::Unpooled),
        ("pooled", ProportionTest::Pooled),
        ("exact", ProportionTest::Exact),
    ] {
        let experiment = with(&format!("{share}\ntest = \"{word}\"")).expect(word);
        assert_eq!(experiment.metrics[0].test, test);
    }

    let mean = "type = \"mean\"\nvalue = \"amount\"";
    metric_refused(&format!("{mean}\ncuped = {{ }}"), &["e.toml:18", "pre = \"14 days\""]);
    let post = format!("{mean}\ncuped = {{ pre = \"1 day\", post = \"1 day\" }}");
    metric_refused(&post, &["e.toml:18", "allowed: pre, with"]);
    let valueless = format!("{mean}\ncuped = {{ pre = \"1 day\", with = [{{ where = \"x\" }}] }}");
    metric_refused(&valueless, &["e.toml:18", "`value`"]);
    let margin = format!("{mean}\nguardrail = true\nmargin = 0.02");
    assert_eq!(with(&margin).expect("right").metrics[0].margin, Some(0.02));
}

#[test]
fn inference_and_its_keys_belong_together() {
    let read = |keys: &str| top(keys).expect(keys).inference;
    let planned_users = 9000;
    assert_eq!(read(""), Inference::Fixed);
    assert_eq!(
        read("inference = \"anytime\"\nplanned_users = 9000"),
        Inference::Anytime { planned_users }
    );
    let sequential = "inference = \"group_sequential\"\nplanned_users = 9000";
    assert_eq!(
        read(&format!("{sequential}\nlooks = 5")),
        Inference::GroupSequential { planned_users, looks: 5 }
    );
    let bayesian = "inference = \"bayesian\"";
    assert_eq!(read(bayesian), Inference::Bayesian { prior: Prior::Flat });
    assert_eq!(
        read(&format!("{bayesian}\nprior = {{ mean = 0.01, deviation = 0.3 }}")),
        Inference::Bayesian { prior: Prior::Normal { mean: 0.01, variance: 0.09 } }
    );
    top_refused(sequential, &["e.toml:1", "looks = 5"]);
    top_refused("inference = \"group_sequential\"\nlooks = 5", &["planned_users = 100000"]);
    top_refused(&format!("{sequential}\nlooks = 2.5"), &["e.toml:4", "whole number from 1 to 100"]);
    top_refused(&format!("{sequential}\nlooks = 101"), &["e.toml:4", "from 1 to 100"]);
    top_refused("looks = 5", &["e.toml:2", "with inference = group_sequential"]);
    top_refused("prior = { deviation = 1 }", &["e.toml:2", "with inference = bayesian"]);
    // Whoever looks once has planned how many users, too; it says how far the experiment is.
    for inference in [bayesian, "inference = \"fixed\""] {
        let planned = top(&format!("{inference}\nplanned_users = 10")).expect("right");
        assert_eq!(planned.planned_users, Some(10));
    }
    assert_eq!(top(bayesian).expect("right").planned_users, None);
    top_refused(&format!("{bayesian}\nprior = {{ mean = 0 }}"), &["e.toml:3", "deviation = 0.1"]);
    top_refused(&format!("{bayesian}\nprior = {{ deviation = 0 }}"), &["e.toml:3", "above 0"]);
    top_refused(&format!("{bayesian}\nprior = {{ width = 1 }}"), &["allowed: mean, deviation"]);
    let few = "inference = \"anytime\"\nplanned_users = 1";
    top_refused(few, &["e.toml:3", "2 or more"]);
}

#[test]
fn choices_for_all_metrics_have_defaults_and_bounds() {
    let plain = top("").expect("right");
    assert_eq!((plain.correction, plain.lift), (Correction::Holm, Lift::Fieller));
    assert!(!plain.growthbook && plain.stratify.is_none() && plain.assignment.is_none());
    for (word, correction) in [
        ("holm", Correction::Holm),
        ("benjamini-hochberg", Correction::BenjaminiHochberg),
        ("none", Correction::None),
    ] {
        let read = top(&format!("correction = \"{word}\"")).expect(word);
        assert_eq!(read.correction, correction);
    }
    for (word, lift) in [("delta", Lift::Delta), ("fieller", Lift::Fieller), ("none", Lift::None)] {
        assert_eq!(top(&format!("lift = \"{word}\"")).expect(word).lift, lift);
    }
    top_refused("correction = \"bh\"", &["e.toml:2", "holm, benjamini-hochberg, none"]);
    top_refused("lift = \"log\"", &["e.toml:2", "delta, fieller"]);
    top_refused("compat = \"statsig\"", &["e.toml:2", "growthbook"]);
    top_refused("alpha = 0.5", &["e.toml:2", "above 0 and below 0.5"]);
    top_refused("alpha = nan", &["e.toml:2"]);

    let growthbook = top("compat = \"growthbook\"\ninference = \"anytime\"").expect("right");
    assert!(growthbook.growthbook);
    assert_eq!(growthbook.correction, Correction::None);
    assert_eq!(growthbook.inference, Inference::Anytime { planned_users: 5000 });
    let corrected = top("compat = \"growthbook\"\ncorrection = \"holm\"").expect("right");
    assert_eq!(corrected.correction, Correction::Holm);

    let stratified = top("stratify = \"country\"").expect("right");
    assert_eq!(stratified.stratify.as_deref(), Some("country"));
    let query = plan(&stratified, &[], None).expect("no names");
    assert_eq!(query.dimensions.len(), 1, "the strata come by themselves");
    let again = plan(&stratified, &["country".to_owned()], None).expect("the name exists");
    assert_eq!(again.dimensions.len(), 1, "and once");
    top_refused("stratify = \"city\"", &["e.toml:2", "(country)"]);
}

#[test]
fn clusters_make_means_into_ratios_over_clusters() {
    let text = |metric: &str| {
        let head = HEAD.replace("time = \"ts\"\n", "time = \"ts\"\ncluster = \"shop\"\n");
        format!("{head}[[metric]]\nname = \"m\"\ntable = \"events\"\n{metric}\n")
    };
    let cuped = "type = \"mean\"\nvalue = \"amount\"\ncuped = { pre = \"1 day\" }";
    let experiment = Experiment::parse(&text(cuped), "e.toml").expect("right");
    assert_eq!(experiment.exposures.unit, Unit::Cluster { key: "shop".into() });
    assert_eq!(experiment.exposures.unit.name(), "clusters");
    let query = plan(&experiment, &[], None).expect("no names");
    let users = UserColumn {
        table: String::new(),
        user: String::new(),
        time: None,
        ..column(Aggregate::One, "1")
    };
    let before = Window { start_ms: -DAY_MS, end_ms: Some(0) };
    let past = UserColumn { window: Some(before), ..column(Aggregate::Sum, "amount") };
    assert_eq!(query.columns, [column(Aggregate::Sum, "amount"), users, past]);
    assert_eq!(query.groups, [[0, 1, 2, 1]], "sums over users, now and before");
    let ratio = "type = \"ratio\"\nnumerator = { value = \"a\" }\ndenominator = { value = \"b\" }";
    let experiment = Experiment::parse(&text(ratio), "e.toml").expect("right");
    assert_eq!(plan(&experiment, &[], None).expect("no names").groups, [[0, 1]]);

    for (metric, part) in [
        ("type = \"quantile\"\nvalue = \"ms\"\nlevel = 0.5", "needs users as the unit"),
        ("type = \"proportion\"\ntest = \"exact\"", "plain shares of users"),
    ] {
        let error = Experiment::parse(&text(metric), "e.toml").expect_err(metric).to_string();
        assert!(error.contains(part), "{error}");
    }
    let strata = format!(
        "stratify = \"country\"\n{}[[dimension]]\nname = \"country\"\n",
        text("type = \"count\"")
    );
    let error = Experiment::parse(&strata, "e.toml").expect_err("strata").to_string();
    assert!(error.contains("e.toml:1") && error.contains("no `cluster`"), "{error}");
}

#[test]
fn switchbacks_need_a_region_and_a_time() {
    let text = |section: &str, metric: &str| {
        let head = HEAD.replace("user = \"user_id\"\n", "");
        format!("{head}{section}\n[[metric]]\nname = \"m\"\ntable = \"events\"\n{metric}\n")
    };
    let section = "[switchback]\nregion = \"city\"\nevery = \"4 hours\"";
    let experiment =
        Experiment::parse(&text(section, "type = \"count\""), "e.toml").expect("right");
    let unit = Unit::Switchback { region: "city".into(), every_ms: 4 * 3_600_000 };
    assert_eq!(experiment.exposures.unit, unit);
    assert_eq!((unit.name(), experiment.exposures.user.as_str()), ("region-times", "NULL"));
    for (section, metric, parts) in [
        ("[switchback]\nregion = \"city\"", "type = \"count\"", ["`every`", "4 hours"]),
        ("[switchback]\nevery = \"4 hours\"", "type = \"count\"", ["`region`", "city"]),
        (section, "type = \"count\"\nwindow = \"7 days\"", ["`window`", "without [switchback]"]),
        (section, "type = \"count\"\ncuped = { pre = \"1 day\" }", ["`cuped`", "[switchback]"]),
        ("", "type = \"count\"", ["`user`", "user_id"]),
        (
            "[switchback]\nregion = \"city\"\nevery = \"1 moon\"",
            "type = \"count\"",
            ["1 moon", "hours or days"],
        ),
    ] {
        let error = Experiment::parse(&text(section, metric), "e.toml").expect_err(section);
        let error = error.to_string();
        assert!(error.contains("e.toml:"), "{error}");
        assert!(parts.iter().all(|part| error.contains(part)), "{error:?} lacks {parts:?}");
    }
    let timeless = text(section, "type = \"count\"").replace("time = \"ts\"\n", "");
    let error = Experiment::parse(&timeless, "e.toml").expect_err("no time").to_string();
    assert!(error.contains("with `time` set"), "{error}");
    let both = text(section, "type = \"count\"").replace("time =", "cluster = \"shop\"\ntime =");
    let error = Experiment::parse(&both, "e.toml").expect_err("two designs").to_string();
    assert!(error.contains("two designs"), "{error}");
}

#[test]
fn assignments_name_their_system_and_its_keys() {
    let read = |keys: &str| {
        let text =
            format!("{HEAD}[assignment]\n{keys}\n[[metric]]\nname = \"m\"\ntype = \"count\"\n");
        Experiment::parse(&text, "e.toml").map_err(|error| error.to_string())
    };
    let seed = "seed = \"s\"\n";
    for (keys, system) in [
        ("system = \"growthbook\"", System::GrowthBook { version: 2 }),
        ("system = \"growthbook\"\nversion = 1", System::GrowthBook { version: 1 }),
        ("system = \"optimizely\"", System::Optimizely),
        ("system = \"unleash\"", System::Unleash),
        ("system = \"statsig\"\nrule = \"r\"", System::Statsig { rule: "r".into() }),
        ("system = \"planout\"\nparameter = \"p\"", System::PlanOut { parameter: "p".into() }),
        ("system = \"eppo\"", System::Eppo),
    ] {
        let experiment = read(&format!("{seed}{keys}")).expect(keys);
        let expected = Assignment { system, seed: "s".into(), coverage: 1.0 };
        assert_eq!(experiment.assignment.as_ref(), Some(&expected));
        assert_eq!(plan(&experiment, &[], None).expect("fits").assignment, Some(expected));
    }
    for (keys, parts) in [
        ("", ["e.toml:13", "growthbook"]),
        ("system = \"growthbook\"", ["e.toml:13", "`seed`"]),
        ("system = \"split\"\nseed = \"s\"", ["e.toml:14", "growthbook, optimizely"]),
        ("system = \"growthbook\"\nseed = \"s\"\nversion = 3", ["e.toml:16", "1, 2"]),
        ("system = \"eppo\"\nseed = \"s\"\nversion = 2", ["e.toml:16", "system eppo"]),
        ("system = \"eppo\"\nseed = \"s\"\ncoverage = 0", ["e.toml:16", "at most 1"]),
        ("system = \"statsig\"\nseed = \"s\"", ["e.toml:13", "`rule`"]),
        ("system = \"planout\"\nseed = \"s\"", ["e.toml:13", "`parameter`"]),
        ("system = \"eppo\"\nseed = \"s\"\nsalt = \"s\"", ["e.toml:16", "allowed: system"]),
    ] {
        let error = read(keys).expect_err(keys);
        assert!(parts.iter().all(|part| error.contains(part)), "{error:?} lacks {parts:?}");
    }
}

#[test]
fn days_are_asked_for_where_days_exist() {
    let days = |text: &str| {
        plan(&Experiment::parse(text, "e.toml").expect("right"), &[], None).expect("fits").days
    };
    let period = "start = \"2026-11-01\"\nend = \"2026-11-15\"\n";
    let metric = "[[metric]]\nname = \"m\"\ntype = \"count\"\n";
    assert!(days(&format!("{period}{HEAD}{metric}")));
    assert!(!days(&format!("{HEAD}{metric}")), "no period");
    let timeless = HEAD.replace("time = \"ts\"\n", "");
    assert!(!days(&format!("{period}{timeless}{metric}")), "no exposure times");
}

#[test]
fn summaries_give_figures_instead_of_users() {
    let read = |top: &str, section: &str, metric: &str| {
        let variants = HEAD.split_once("[[variant]]").expect("arms").1;
        let text = format!(
            "name = \"e\"\n{top}\n[summary]\n{section}\n[[variant]]{variants}[[metric]]\n\
             name = \"m\"\n{metric}\n"
        );
        Experiment::parse(&text, "e.toml").map_err(|error| error.to_string())
    };
    let section = "table = \"results\"\nvariant = \"arm\"\nusers = \"n\"\ntime = \"day\"";
    let mean = "type = \"mean\"\nwhere = \"k = 1\"\nmean = \"mean\"\nvariance = \"var\"";
    let experiment = read("", section, mean).expect("right");
    assert_eq!(experiment.exposures.unit, Unit::Summary { users: "n".into() });
    let query = plan(&experiment, &[], None).expect("no names");
    let given = Aggregate::Given { variance: Some("var".into()) };
    assert_eq!((query.columns.len(), query.columns[0].value.as_str()), (1, "mean"));
    assert_eq!(query.columns[0].aggregate, given);
    let share = "type = \"proportion\"\nmean = \"share\"";
    let experiment = read("", section, share).expect("right");
    let query = plan(&experiment, &[], None).expect("no names");
    assert_eq!(query.columns[0].aggregate, Aggregate::Given { variance: None });

    let timeless = "table = \"results\"\nvariant = \"arm\"";
    for (top, section, metric, parts) in [
        ("start = \"2026-11-01\"", section, mean, ["`start`", "[summary]"]),
        ("", timeless, mean, ["`users`", "users = \"n\""]),
        ("", section, "type = \"ratio\"", ["ratio", "mean, proportion"]),
        ("", section, "type = \"mean\"\nmean = \"m\"", ["`variance`", "variance = "]),
        (
            "",
            section,
            "type = \"proportion\"\nmean = \"m\"\nvariance = \"v\"",
            ["variance", "mean"],
        ),
        ("", section, "type = \"proportion\"", ["`mean`", "mean = "]),
        ("", section, "type = \"mean\"\nvalue = \"v\"", ["unknown key `value`", "allowed: name"]),
    ] {
        let error = read(top, section, metric).expect_err(metric);
        assert!(error.contains("e.toml:"), "{error}");
        assert!(parts.iter().all(|part| error.contains(part)), "{error:?} lacks {parts:?}");
    }
}

fn reference_page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/experiments.md");
    std::fs::read_to_string(path).expect("the reference of definitions")
}

#[test]
fn the_reference_page_shows_definitions_that_are_read() {
    let page = reference_page();
    // What follows the language in the opening line is for the test that runs the docs.
    let after = page.split("```toml").skip(1).filter_map(|rest| rest.split_once('\n'));
    let mut blocks = after.map(|(_, rest)| rest.split("```").next());
    let full = blocks.next().flatten().expect("a definition");
    let experiment = Experiment::parse(full, "experiments.md").expect("the example is right");
    assert_eq!((experiment.metrics.len(), experiment.dimensions.len()), (3, 1));
    let mut blocks = blocks.flatten();
    let summary = blocks.find(|block| block.starts_with("[summary]")).expect("a summary");
    let variants = HEAD.split_once("[[variant]]").expect("arms").1;
    let (section, metric) = summary.split_once("[[metric]]").expect("a metric");
    let text = format!("name = \"e\"\n{section}[[variant]]{variants}[[metric]]{metric}");
    assert!(Experiment::parse(&text, "experiments.md").is_ok(), "{text}");
    let excluding = blocks.find(|block| block.contains("exclude = [")).expect("exposures");
    let text = format!("name = \"e\"\n{excluding}[[variant]]{variants}{COUNT}");
    let experiment = Experiment::parse(&text, "experiments.md").expect("the example is right");
    assert_eq!(experiment.exposures.exclude.len(), 2);
    let holdout = blocks.next().expect("a holdout's experiment");
    let experiment = Experiment::parse(&format!("{holdout}{COUNT}"), "experiments.md");
    assert_eq!(experiment.expect("the example is right").variants[0].value, "true");
    assert!(blocks.next().is_none());
}

const COUNT: &str = "[[metric]]\nname = \"m\"\ntype = \"count\"\ntable = \"events\"\n";

/// The keys that messages allow are those that the page explains.
#[test]
fn the_reference_page_has_every_key() {
    let page = reference_page();
    let allowed = |text: String| -> Vec<String> {
        let error = Experiment::parse(&text, "e.toml").expect_err("an unknown key").to_string();
        let (_, keys) = error.split_once("allowed: ").expect("keys");
        keys.split(", ").map(str::to_owned).collect()
    };
    let metric = |extra: &str| format!("{HEAD}[[metric]]\nname = \"m\"\n{extra}");
    let texts = [
        format!("nonsense = 1\n{HEAD}"),
        HEAD.replace("time =", "nonsense ="),
        HEAD.replace("share =", "nonsense ="),
        metric("type = \"mean\"\nnonsense = 1"),
        metric("type = \"mean\"\nvalue = \"x\"\ncuped = { nonsense = 1 }"),
        format!("{HEAD}[switchback]\nnonsense = 1"),
        metric("type = \"count\"\n[assignment]\nnonsense = 1"),
        metric("type = \"count\"\n[[path]]\nnonsense = 1"),
    ];
    for key in texts.into_iter().flat_map(allowed) {
        let explained =
            [format!("`{key}`"), format!("[{key}]"), format!(".{key}`"), format!("{key} =")];
        assert!(explained.iter().any(|words| page.contains(words)), "{key} is not on the page");
    }
}

#[test]
fn tests_of_one_look_are_refused_beside_other_inference() {
    let line = "time_zone = \"Europe/Berlin\"";
    let anytime = "inference = \"anytime\"\nplanned_users = 1000";
    let text = FULL.replacen(line, anytime, 1);
    let tested =
        text.replacen("type = \"proportion\"", "type = \"proportion\"\ntest = \"exact\"", 1);
    assert!(tested.contains("exact"));
    let error = Experiment::parse(&tested, "free.toml").expect_err("one look").to_string();
    assert!(error.contains("`inference`") && error.contains("`test`"), "{error}");
}
