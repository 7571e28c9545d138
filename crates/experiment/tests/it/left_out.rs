//! What is said of rows that are in no figure, of p, and of text that is not what it seems.

use uplake_experiment::expression::{Expression, Role};
use uplake_experiment::left_out::{LeftOut, NoExposures, is_zero};
use uplake_experiment::query::Cell;
use uplake_experiment::report::Report;
use uplake_experiment::{Experiment, Moments, MomentsQuery, MomentsTable, analyze, plan};

use crate::answers::read;

const DEFINITION: &str = r#"
name = "NAME"
start = "2026-11-02"
end = "2026-11-05"
[exposures]
table = "exposures"
user = "user_id"
variant = "variant"
time = "ts"
where = "exp = 1"
[[variant]]
name = "a"
share = 0.5
[[variant]]
name = "ARM"
value = "b"
share = 0.5
[[metric]]
name = "spend"
type = "mean"
table = "events"
value = "amount"
where = "event = 'payed'"
cuped = { pre = "7 days", with = [{ value = "n", where = "n > 2" }] }
[[metric]]
name = "rate"
type = "ratio"
table = "events"
user = "buyer"
where = "n > 0"
numerator = { value = "amount", where = "event = 'buy'" }
denominator = { value = "n" }
[[metric]]
name = "way"
type = "funnel"
table = "events"
where = "n > 1"
steps = [{ name = "view", where = "event = 'view'" }, { name = "buy", where = "event = 'buy'" }]
[[dimension]]
name = "country"
"#;

fn experiment(changes: &[(&str, &str)]) -> Experiment {
    let changed = |text: String, (from, to): &(&str, &str)| text.replacen(from, to, 1);
    let text = changes.iter().fold(DEFINITION.to_owned(), changed);
    read(&text.replace("ARM", "b").replace("NAME", "t"))
}

fn query(experiment: &Experiment) -> MomentsQuery {
    plan(experiment, &["country".to_owned()], None).expect("names exist")
}

/// 100 and 110 users with numbers from 1 to 7.
fn table(query: &MomentsQuery) -> MomentsTable {
    let cell = |variant: usize| {
        let moments = |columns: &Vec<usize>| {
            let mut moments = Moments::new(columns.len());
            (0..100 + 10 * variant).for_each(|user| {
                let number = |column: usize| 1.0 + ((user * (column + 2) + column) % 7) as f64;
                moments.add(&(0..columns.len()).map(number).collect::<Vec<f64>>());
            });
            moments
        };
        let users = 100 + 10 * variant as u64;
        Cell { slice: None, variant, users, groups: query.groups.iter().map(moments).collect() }
    };
    MomentsTable { cells: vec![cell(0), cell(1)], ..MomentsTable::default() }
}

fn report(experiment: &Experiment, left_out: LeftOut) -> Report {
    let query = query(experiment);
    let table = MomentsTable { left_out, ..table(&query) };
    analyze(experiment, &query, &table).expect("fits")
}

#[test]
fn what_is_left_out_is_said_by_every_output_and_nothing_if_there_is_none() {
    let plain = report(&experiment(&[]), LeftOut::default());
    let words = ["Left out", "without a time", "before the start", "condition of", "No row"];
    for says in words {
        assert!(!plain.to_text(160, false).contains(says), "{says}");
        assert!(!plain.to_html().contains(says), "{says}");
    }
    let left_out = LeftOut {
        exposures_without_user: 1,
        exposures_without_time: 1234,
        users_exposed_before: Some(21),
        unmatched_columns: vec![0],
        ..LeftOut::default()
    };
    let found = report(&experiment(&[]), left_out.clone());
    for says in [
        "Left out: 1 exposure without a user",
        "Left out: 1,234 exposures without a time",
        "21 users were exposed before the start, too, and counted (10.00 %)",
        "No row of the table passes a condition of: spend",
    ] {
        assert!(found.to_text(160, false).contains(&format!("! {says}\n")), "{says}");
        assert!(found.to_html().contains(says), "{says}");
    }
    let json: serde_json::Value = serde_json::from_str(&found.to_json()).expect("JSON");
    let health = &json["health"];
    assert_eq!(health["exposures_without_user"], 1);
    assert_eq!(health["exposures_without_time"], 1234);
    assert_eq!(health["users_exposed_before"], 21);
    assert_eq!(health["no_exposures"], serde_json::Value::Null);
    let unmatched = serde_json::json!(
        [{ "metric": "spend", "table": "events", "where": "event = 'payed'" }]
    );
    assert_eq!(health["unmatched"], unmatched);
    assert_eq!(found.metrics[0].notes, ["no row of events passes event = 'payed'"]);
    let timeless = [("start = \"2026-11-02\"\nend = \"2026-11-05\"\n", "")];
    let text = report(&experiment(&timeless), left_out).to_text(160, false);
    assert!(
        text.contains("! 1,234 exposures without a time: nothing counts as after them"),
        "{text}"
    );
}

#[test]
fn why_nobody_is_exposed_is_said() {
    for (why, says) in [
        (NoExposures::EmptyTable, "Table exposures has no rows"),
        (
            NoExposures::WherePassesNothing,
            "No row of exposures passes the `where` of the exposures",
        ),
        (
            NoExposures::NoneCounts,
            "Rows of exposures pass, but none has a user and a time within the period",
        ),
    ] {
        let experiment = experiment(&[]);
        let left_out = LeftOut { no_exposures: Some(why), ..LeftOut::default() };
        let table = MomentsTable { left_out, ..MomentsTable::default() };
        let report = analyze(&experiment, &query(&experiment), &table).expect("fits");
        assert!(report.to_text(160, false).contains(says), "{}", report.to_text(160, false));
    }
}

#[test]
fn a_condition_is_named_once_for_each_metric_it_is_of() {
    // The figure of `spend` and its time before exposure, the further covariate, then `rate`'s
    // numerator, and the last step.
    let query = query(&experiment(&[]));
    let last = query.groups[3][0];
    let unmatched = vec![query.groups[0][0], query.groups[0][1], query.groups[0][2], 3, last];
    let left_out = LeftOut { unmatched_columns: unmatched, ..LeftOut::default() };
    let found: Vec<(String, Option<String>)> = report(&experiment(&[]), left_out)
        .health
        .unmatched
        .into_iter()
        .map(|one| (one.metric, one.filter))
        .collect();
    let named = |metric: &str, filter: &str| (metric.to_owned(), Some(filter.to_owned()));
    assert_eq!(
        found,
        [
            named("spend", "event = 'payed'"),
            named("spend", "n > 2"),
            named("rate", "(n > 0) AND (event = 'buy')"),
            named("way: buy", "(n > 1) AND (event = 'buy')"),
        ]
    );
}

#[test]
fn a_number_that_is_0_for_everybody_is_noted_if_rows_pass() {
    let query = query(&experiment(&[]));
    let mut table = table(&query);
    assert!(!is_zero(&query, &table, 0));
    for cell in &mut table.cells {
        cell.groups[0] = Moments::new(3);
        cell.groups[0].add_zeros(cell.users);
    }
    assert!(is_zero(&query, &table, 0) && !is_zero(&query, &table, query.groups[1][0]));
    // One arm without users hides nothing.
    table.cells[0].users = 0;
    table.cells[0].groups = query.groups.iter().map(|g| Moments::new(g.len())).collect();
    assert!(is_zero(&query, &table, 0));
    let left_out = LeftOut { zero_columns: vec![0], ..LeftOut::default() };
    let notes = &report(&experiment(&[]), left_out).metrics[0].notes;
    assert_eq!(notes, &["every user has 0, although events has rows that pass the condition"]);
}

#[test]
fn every_expression_is_kept_as_it_is_written() {
    let expressions = query(&experiment(&[])).expressions;
    let found: Vec<(&str, &str, &str, Role)> = expressions
        .iter()
        .map(|Expression { place, key, sql, role, .. }| (&**place, &**key, &**sql, *role))
        .collect();
    use Role::{Any, Condition, Number, Text, Time};
    assert_eq!(
        found,
        [
            ("[exposures]", "user", "user_id", Any),
            ("[exposures]", "variant", "variant", Text),
            ("[exposures]", "time", "ts", Time),
            ("[exposures]", "where", "exp = 1", Condition),
            ("dimension `country`", "sql", "country", Text),
            ("metric `spend`", "user", "user_id", Any),
            ("metric `spend`", "time", "ts", Time),
            ("metric `spend`", "value", "amount", Number),
            ("metric `spend`", "where", "event = 'payed'", Condition),
            ("metric `spend`", "cuped.with.value", "n", Number),
            ("metric `spend`", "cuped.with.where", "n > 2", Condition),
            ("metric `rate`", "user", "buyer", Any),
            ("metric `rate`", "time", "ts", Time),
            ("metric `rate`", "where", "n > 0", Condition),
            ("metric `rate`", "numerator.value", "amount", Number),
            ("metric `rate`", "numerator.where", "event = 'buy'", Condition),
            ("metric `rate`", "denominator.value", "n", Number),
            ("metric `way`", "user", "user_id", Any),
            ("metric `way`", "time", "ts", Time),
            ("metric `way`", "where", "n > 1", Condition),
            ("metric `way`", "step view: where", "event = 'view'", Condition),
            ("metric `way`", "step buy: where", "event = 'buy'", Condition),
        ]
    );
    assert!(expressions[..5].iter().all(|expression| expression.table == "exposures"));
    assert!(expressions[5..].iter().all(|expression| expression.table == "events"));
}

#[test]
fn a_query_of_some_metrics_is_the_one_that_is_planned_for_them() {
    let experiment = experiment(&[(
        "[[dimension]]",
        "[[metric]]\nname = \"p90\"\ntype = \"quantile\"\nvalue = \"ms\"\nlevel = 0.9\n[[dimension]]",
    )]);
    let all = query(&experiment);
    for some in [&[][..], &[0], &[1, 4], &[2, 3], &[0, 1, 2, 3, 4]] {
        let names: Vec<String> = some.iter().map(|metric| all.metrics[*metric].clone()).collect();
        let mut planned = plan(&experiment, &["country".to_owned()], Some(&names)).expect("known");
        planned.expressions.clone_from(&all.expressions);
        assert_eq!(all.of_metrics(some), planned, "{some:?}");
    }
}

#[test]
fn a_line_says_what_p_tests() {
    for (top, says, json) in [
        ("", "p tests the difference", "difference"),
        ("lift = \"none\"\n", "p tests the difference", "difference"),
        ("lift = \"delta\"\n", "p tests the effect shown", "shown_effect"),
        ("inference = \"bayesian\"\n", "p is twice the belief's smaller tail", "belief"),
    ] {
        let experiment = experiment(&[("start =", &format!("{top}start ="))]);
        let report = report(&experiment, LeftOut::default());
        assert!(report.to_text(100, false).contains(says), "{top}");
        let value: serde_json::Value = serde_json::from_str(&report.to_json()).expect("JSON");
        assert_eq!(value["p_tests"], json);
    }
    let corrected = report(&experiment(&[]), LeftOut::default()).to_text(100, false);
    assert!(corrected.contains("p tests the difference; p (Holm) is corrected."), "{corrected}");
    let alone = experiment(&[("name = \"NAME\"", "name = \"NAME\"\ncorrection = \"none\"")]);
    let alone = report(&alone, LeftOut::default()).to_text(100, false);
    assert!(alone.contains("p tests the difference.") && !alone.contains("is corrected"));
}

/// Moves the cursor up, rings, changes colour in one byte, turns text round and hides.
const EVIL: &str = "x\u{1b}[2A\u{7}\u{9b}31m\u{202e}\u{200b}\u{85}\u{feff}\t\ny";

#[test]
fn text_of_others_moves_nothing_in_text_and_pages_and_is_whole_in_csv() {
    let mut report = report(
        &experiment(&[]),
        LeftOut { exposures_without_user: 3, unmatched_columns: vec![0], ..LeftOut::default() },
    );
    let evil = || EVIL.to_owned();
    report.experiment = evil();
    report.hypothesis = Some(evil());
    report.arms[1].name = evil();
    report.metrics[0].name = evil();
    report.metrics[0].notes.push(evil());
    report.health.unmatched[0].metric = evil();
    report.health.exposures = evil();
    report.health.no_exposures = Some(NoExposures::EmptyTable);
    report.method.push(evil());
    let moves = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{feff}')
    };
    for width in [40, 100] {
        let text = report.to_text(width, false);
        let moving: Vec<char> = text.chars().filter(|c| *c != '\n' && moves(*c)).collect();
        assert!(moving.is_empty(), "{moving:?}");
    }
    let html = report.to_html();
    let moving: Vec<char> = html.chars().filter(|c| !"\n\t".contains(*c) && moves(*c)).collect();
    assert!(moving.is_empty(), "{moving:?}");
    // A reader of CSV gets what there is.
    assert!(report.to_csv().contains(&format!("\"{EVIL}\"")));
}

#[test]
fn formulas_are_text_for_spreadsheets_that_are_told_so() {
    let mut report = report(&experiment(&[]), LeftOut::default());
    let names = ["=1+1", "+1", "-1", "@sum", "\tx", "\rx", "\nx", "＝1", "＋1", "－1", "＠x"];
    for name in names {
        report.metrics[0].name = name.to_owned();
        report.arms[1].name = format!("{name},\"x\"");
        let (plain, escaped) = (report.to_csv(), report.to_csv_without_formulas());
        let quoted = |text: &str| match text.contains(['\n', '\r', ',', '"']) {
            true => format!("\"{}\"", text.replace('"', "\"\"")),
            false => text.to_owned(),
        };
        let arm = format!("{name},\"x\"");
        assert!(plain.contains(&format!(",{},", quoted(name))), "{name}");
        assert!(plain.contains(&quoted(&arm)), "{name}");
        assert!(escaped.contains(&format!(",{},", quoted(&format!("'{name}")))), "{name}");
        assert!(escaped.contains(&quoted(&format!("'{arm}"))), "{name}");
        // But for the apostrophes nothing differs: negative numbers are numbers.
        assert_eq!(escaped.replace('\'', ""), plain.replace('\'', ""), "{name}");
    }
    let escaped = report.to_csv_without_formulas();
    let is_negative = |field: &str| field.starts_with('-') && field.parse::<f64>().is_ok();
    assert!(escaped.split(',').any(is_negative), "{escaped}");
}
