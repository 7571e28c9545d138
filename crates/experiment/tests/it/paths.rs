//! `[[path]]` and `conversion_time`: what is read, asked, counted and shown.

use std::collections::BTreeMap;

use uplake_experiment::definition::Path;
use uplake_experiment::paths::{ConversionTime, PathStep, PathTable, Sequence, Tally};
use uplake_experiment::query::Cell;
use uplake_experiment::{Experiment, Moments, MomentsTable, Report, analyze, plan};

const DEFINITION: &str = r#"
name = "checkout"
[exposures]
table = "exposures"
user = "user_id"
variant = "variant"
time = "ts"
[[variant]]
name = "old"
share = 0.5
[[variant]]
name = "new <1>"
share = 0.5
[[metric]]
name = "steps"
type = "funnel"
table = "events"
steps = [{ name = "open", where = "e = 'open'" }, { name = "pay", where = "e = 'pay'" }]
conversion_time = true
[[metric]]
name = "visits"
type = "count"
table = "visits"
[[path]]
name = "to payment"
table = "clicks"
event = "page"
from = "page = 'open'"
to = "page = 'pay'"
"#;

fn read(text: &str) -> Experiment {
    Experiment::parse(text, "e.toml").unwrap_or_else(|error| panic!("{error}"))
}

fn to_payment() -> Path {
    read(DEFINITION).paths.remove(0)
}

#[test]
fn a_path_is_read_with_its_defaults() {
    let expected = Path {
        name: "to payment".into(),
        table: "clicks".into(),
        user: "user_id".into(),
        time: "ts".into(),
        event: "page".into(),
        filter: None,
        from: "page = 'open'".into(),
        to: "page = 'pay'".into(),
        within_ms: None,
        steps: 5,
        top: 10,
        collapse_repeats: false,
    };
    assert_eq!(to_payment(), expected);
    let all = "user = \"buyer\"\ntime = \"at\"\nwhere = \"shop = 1\"\nwithin = \"90 minutes\"\n\
               steps = 20\ntop = 1\ncollapse_repeats = true\n";
    let expected = Path {
        user: "buyer".into(),
        time: "at".into(),
        filter: Some("shop = 1".into()),
        within_ms: Some(5_400_000),
        steps: 20,
        top: 1,
        collapse_repeats: true,
        ..expected
    };
    assert_eq!(read(&format!("{DEFINITION}{all}")).paths, [expected]);
}

#[test]
fn what_a_path_may_not_be_is_said_with_its_line() {
    let refused = |from: &str, to: &str, parts: &[&str]| {
        assert!(DEFINITION.contains(from), "the example lacks {from:?}");
        let text = DEFINITION.replacen(from, to, 1);
        let error = Experiment::parse(&text, "e.toml").expect_err(to).to_string();
        for part in parts {
            assert!(error.contains(part), "{error:?} lacks {part:?}");
        }
    };
    let last = "to = \"page = 'pay'\"";
    refused(last, &format!("{last}\nsteps = 21"), &["e.toml:30", "`steps` is 21", "1 to 20"]);
    refused(last, &format!("{last}\ntop = 0"), &["e.toml:30", "`top` is 0", "1 to 50"]);
    refused(last, &format!("{last}\nsteps = 2.5"), &["`steps` is 2.5", "whole"]);
    refused(last, &format!("{last}\nwindow = \"1 day\""), &["`window`", "within"]);
    refused(last, &format!("{last}\nwithin = \"soon\""), &["`within` is `soon`"]);
    refused(last, "", &["[[path]] lacks `to`"]);
    refused("event = \"page\"\n", "", &["[[path]] lacks `event`"]);
    let twin = "name = \"to payment\"\nevent = \"page\"\nfrom = \"a\"\nto = \"b\"";
    refused(last, &format!("{last}\n[[path]]\n{twin}"), &["`to payment` a second time"]);
    let timeless = "variant = \"variant\"\ntime = \"ts\"";
    let text = DEFINITION.replacen(timeless, "variant = \"variant\"", 1);
    let text = text.replacen("type = \"funnel\"", "type = \"count\"", 1);
    let text: String = text
        .lines()
        .filter(|line| !line.starts_with("steps") && !line.starts_with("conversion"))
        .map(|line| format!("{line}\n"))
        .collect();
    let error = Experiment::parse(&text, "e.toml").expect_err("no time").to_string();
    assert!(error.contains("`path` needs to know when users were exposed"), "{error}");
    let regions = "[switchback]\nregion = \"city\"\nevery = \"4 hours\"\n[[path]]";
    refused("[[path]]", regions, &["`conversion_time` is of users"]);
    let text = DEFINITION.replacen("conversion_time = true", "", 1);
    let text = text.replacen("[[path]]", regions, 1);
    let error = Experiment::parse(&text, "e.toml").expect_err("regions").to_string();
    assert!(error.contains("`path` follows users"), "{error}");
}

#[test]
fn a_plan_asks_for_paths_and_conversion_times_once() {
    let experiment = read(DEFINITION);
    let query = plan(&experiment, &[], None).expect("names exist");
    assert_eq!(query.paths, experiment.paths);
    let [conversion] = query.conversion_times.as_slice() else { panic!("one funnel") };
    // The number of the last step is that of users who have a conversion time.
    assert_eq!((conversion.funnel.as_str(), &conversion.column), ("steps", &query.columns[1]));
    assert_eq!(query.tables(), ["clicks", "events", "exposures", "visits"]);
    for text in ["page", "page = 'open'", "page = 'pay'"] {
        assert!(query.expressions.iter().any(|expression| expression.sql == text), "{text}");
    }
    let named = |name: &str| plan(&experiment, &[], Some(&[name.to_owned()])).expect("it exists");
    assert!(named("visits").paths.is_empty() && named("visits").conversion_times.is_empty());
    assert_eq!(named("steps: open").conversion_times, query.conversion_times);
}

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % end
    }
}

/// One user: events told, whether the end was reached, whether there were more, and the arm.
type User = (Vec<String>, bool, bool, usize);

#[test]
fn a_tally_counts_what_counting_users_one_by_one_does() {
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let (top, steps, arms) =
            (1 + dice.below(4) as usize, 1 + dice.below(3) as usize, 2 + dice.below(2) as usize);
        let users: Vec<User> = (0..dice.below(400))
            .map(|_| {
                let truncated = dice.below(4) == 0;
                let told = if truncated { steps } else { 1 + dice.below(steps as u64) as usize };
                let events = (0..told).map(|_| ["a", "b", "c"][dice.below(3) as usize].to_owned());
                (events.collect(), dice.below(2) == 0, truncated, dice.below(arms as u64) as usize)
            })
            .collect();
        let mut groups: BTreeMap<(Vec<String>, bool, bool), Vec<u64>> = BTreeMap::new();
        for (events, reached, truncated, arm) in &users {
            let key = (events.clone(), *reached, *truncated);
            groups.entry(key).or_insert_with(|| vec![0; arms])[*arm] += 1;
        }
        let mut sequences: Vec<Sequence> = groups
            .into_iter()
            .map(|((events, reached, truncated), users)| Sequence {
                events,
                reached,
                truncated,
                users,
            })
            .collect();
        for i in (1..sequences.len()).rev() {
            sequences.swap(i, dice.below(i as u64 + 1) as usize);
        }
        let mut tally = Tally::new(&Path { top, ..to_payment() }, arms);
        sequences.iter().cloned().for_each(|sequence| tally.add(sequence));
        let found = tally.finish();

        let count = |is: &dyn Fn(&User) -> bool| -> Vec<u64> {
            let of = |arm| users.iter().filter(|user| user.3 == arm && is(user)).count() as u64;
            (0..arms).map(of).collect()
        };
        assert_eq!(found.started, count(&|_| true), "seed {seed}");
        assert_eq!(found.reached, count(&|user| user.1), "seed {seed}");
        let longest = users.iter().map(|user| user.0.len()).max().unwrap_or(0);
        let step = |step: usize| PathStep {
            users: count(&|user| user.0.len() >= step),
            reached: count(&|user| user.0.len() == step && user.1 && !user.2),
            dropped_off: count(&|user| user.0.len() == step && !user.1 && !user.2),
        };
        assert_eq!(found.steps, (1..=longest).map(step).collect::<Vec<_>>(), "seed {seed}");
        assert_eq!(found.different_sequences, sequences.len() as u64, "seed {seed}");
        sequences.sort_by_key(|s| {
            let users: u64 = s.users.iter().sum();
            (std::cmp::Reverse(users), s.events.clone(), !s.reached, s.truncated)
        });
        sequences.truncate(top);
        assert_eq!(found.sequences, sequences, "seed {seed}");
    }
}

fn sequence(events: &[&str], reached: bool, truncated: bool, users: [u64; 2]) -> Sequence {
    let events = events.iter().map(|event| (*event).to_owned()).collect();
    Sequence { events, reached, truncated, users: users.into() }
}

/// 100 users of the old arm and none of the new, and `paths`.
fn report(definition: &str, paths: Vec<PathTable>, times: Vec<Vec<ConversionTime>>) -> Report {
    let experiment = read(definition);
    let query = plan(&experiment, &[], None).expect("names exist");
    let cell = |variant: usize, users: u64| {
        let moments = |columns: &Vec<usize>| {
            let mut moments = Moments::new(columns.len());
            (0..users).for_each(|_| moments.add(&vec![1.0; columns.len()]));
            moments
        };
        let groups = query.groups.iter().map(moments).collect();
        Cell { slice: None, variant, users, groups }
    };
    let cells = vec![cell(0, 100), cell(1, 0)];
    let table = MomentsTable { cells, paths, conversion_times: times, ..MomentsTable::default() };
    analyze(&experiment, &query, &table).expect("the answer fits the query")
}

fn full() -> Report {
    let mut tally = Tally::new(&Path { top: 4, ..to_payment() }, 2);
    tally.add(sequence(&["open", "pay"], true, false, [20, 0]));
    tally.add(sequence(&["open"], false, false, [9, 0]));
    tally.add(sequence(&["open", "<b>", "x"], true, true, [5, 0]));
    tally.add(sequence(&["open", "<b>", "y"], false, true, [4, 0]));
    tally.add(sequence(&["open", "\u{1b}[2J"], false, false, [1, 0]));
    let time = |users, median, p90| ConversionTime { users, median, p90 };
    let times = vec![time(20, Some(90.0), Some(7_200.0)), time(0, None, None)];
    report(DEFINITION, vec![tally.finish()], vec![times])
}

#[test]
fn a_report_has_counts_and_shares_of_exposed_users() {
    let json: serde_json::Value = serde_json::from_str(&full().to_json()).expect("JSON");
    let path = &json["paths"][0];
    assert_eq!(path["started"], serde_json::json!([39, 0]));
    assert_eq!(path["reached"], serde_json::json!([25, 0]));
    assert_eq!(path["different_sequences"], 5);
    let first = serde_json::json!({
        "events": ["open", "pay"], "reached": true, "truncated": false,
        "users": [20, 0], "shares": [0.2, null],
    });
    assert_eq!(path["sequences"][0], first);
    let steps = serde_json::json!([
        { "users": [39, 0], "reached": [0, 0], "dropped_off": [9, 0] },
        { "users": [30, 0], "reached": [20, 0], "dropped_off": [1, 0] },
        { "users": [9, 0], "reached": [0, 0], "dropped_off": [0, 0] },
    ]);
    assert_eq!(path["steps"], steps);
    let times = serde_json::json!([
        { "users": 20, "median": 90.0, "p90": 7200.0 }, { "users": 0, "median": null, "p90": null },
    ]);
    assert_eq!(json["funnels"][0]["conversion_time"], times);
    let method = json["method"].as_array().expect("sentences");
    assert!(method.iter().any(|s| s.as_str().is_some_and(|s| s.contains("are not tested"))));
}

#[test]
fn text_and_page_tell_paths_and_conversion_times() {
    let report = full();
    for width in [40, 80, 160] {
        let text = report.to_text(width, false);
        assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
        assert!(!text.contains('\u{1b}'), "a name moves the cursor");
    }
    let text = report.to_text(120, false);
    for words in [
        "Path to payment, shares of exposed users",
        "Began: old 39.00 %, new <1> –",
        "Reached the end: old 25.00 %, new <1> –",
        "Dropped off after event 1, of those who came to it: old 23.08 %, new <1> –",
        "1. open → pay\n",
        "2. open → dropped off\n     old 9.00 %, new <1> –\n",
        "3. open → <b> → x → … → reached\n",
        "4. open → <b> → y → … → not reached\n",
        "And 1 more.",
        "From the first step of steps to the last",
        "old: median 1 min 30 s, 90 % within 2 h (20 users)",
        "new <1>: nobody",
    ] {
        assert!(text.contains(words), "{words:?} is not in\n{text}");
    }
    let html = report.to_html();
    for words in [
        "<section id=\"paths\"",
        "<a href=\"#paths\">Paths</a>",
        "<th scope=\"row\">open → &lt;b&gt; → x → … → reached</th><td>5.00 %</td><td>–</td>",
        "<th scope=\"row\">event 1</th><td>23.08 %</td>",
        "old, first step to last: median 1 min 30 s, 90 % within 2 h (20 users)",
        "new &lt;1&gt;, first step to last: nobody",
    ] {
        assert!(html.contains(words), "{words:?} is not in the page");
    }
    assert!(!html.contains("<b>\u{20}→"), "a name is markup");
}

#[test]
fn a_report_without_paths_says_nothing_of_them() {
    let (without, _) = DEFINITION.split_once("[[path]]").expect("a path");
    let report = report(&without.replace("conversion_time = true", ""), Vec::new(), Vec::new());
    let (json, text, html) = (report.to_json(), report.to_text(120, false), report.to_html());
    assert!(!json.contains("\"paths\"") && !json.contains("conversion_time"));
    assert!(!text.contains("Path") && !html.contains("id=\"paths\""));
    assert!(!html.contains("first step to last"));
}
