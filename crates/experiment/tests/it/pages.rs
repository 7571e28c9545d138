//! The report page as text: what it draws, carries and forbids. How it behaves is tested in a
//! browser, by tests/browser.

#[path = "../../examples/report/made_up.rs"]
mod made_up;

use serde_json::{Value, json};
use uplake_experiment::Report;
use uplake_experiment::digest::sha256;
use uplake_experiment::report::{Call, Comparison, Decision, Scale};

const USERS_PER_DAY: usize = 200;

fn rich() -> Report {
    made_up::report(made_up::DEFINITION, USERS_PER_DAY).expect("the definition is right")
}

/// The text between `name="` and the next quote, for each occurrence.
fn attributes(html: &str, name: &str) -> Vec<f64> {
    let opening = format!(" {name}=\"");
    html.split(&opening)
        .skip(1)
        .map(|rest| rest.split('"').next().expect("a closing quote").parse().expect("a number"))
        .collect()
}

/// Low end, value and high end that each drawing claims.
fn claims(html: &str) -> Vec<[f64; 3]> {
    let numbers = |text: &str| text.split(' ').map(|n| n.parse().expect("a number")).collect();
    html.split(" data-ci=\"")
        .skip(1)
        .map(|rest| numbers(rest.split('"').next().expect("a closing quote")))
        .map(|numbers: Vec<f64>| numbers.try_into().expect("three"))
        .collect()
}

/// The text between `start` and `end`.
fn between<'h>(html: &'h str, start: &str, end: &str) -> &'h str {
    let rest = html.split_once(start).unwrap_or_else(|| panic!("no {start}")).1;
    rest.split_once(end).unwrap_or_else(|| panic!("no {end}")).0
}

/// The number at the start of `text`.
fn leading(text: &str) -> f64 {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-'));
    text[..end.unwrap_or(text.len())].parse().expect("a number")
}

#[test]
fn page_draws_each_interval_where_it_says() {
    let report = rich();
    let html = report.to_html();
    let mut plots = 0;
    for table in html.split("<table class=\"effects").skip(1) {
        let table = table.split("</table>").next().expect("an end");
        let shared = attributes(table, "data-reach")[0];
        for drawing in table.split("<svg viewBox=\"0 0 240 24\"").skip(1) {
            let drawing = drawing.split("</svg>").next().expect("an end");
            let reach = attributes(drawing, "data-reach").first().copied().unwrap_or(shared);
            // The drawing is 240 wide with a margin of 6 on both sides; see plot.rs.
            let read = |x: f64| ((x - 6.0) / 228.0 * 2.0 - 1.0) * reach;
            let line = between(drawing, "<path d=\"M", "\"");
            let ends = [leading(line), leading(line.split_once('H').expect("an end").1)];
            let [low, value, high] = claims(drawing)[0];
            for (drawn, claimed) in ends.into_iter().zip([low, high]) {
                let claimed = claimed.clamp(-reach, reach);
                assert!((read(drawn) - claimed).abs() < reach * 1e-3, "{drawn} for {claimed}");
            }
            match attributes(drawing, "cx").first() {
                Some(drawn) => assert!((read(*drawn) - value).abs() < reach * 1e-3),
                None => assert!(value.abs() > reach, "{value} is not drawn on {reach}"),
            }
            plots += 1;
        }
    }
    // Nine metrics, two arms, for everyone, and in the breakdown for everyone and four countries.
    assert_eq!(plots, 9 * 2 * (1 + 1 + 4));
    let lift = report.metrics[0].comparisons[0].relative.expect("an estimate");
    let [drawn, ..] = claims(&html)[0];
    assert!((drawn / lift.low - 1.0).abs() < 1e-3, "{drawn} for {}", lift.low);
}

#[test]
fn page_marks_margins_and_the_effect_on_everyone() {
    let report = rich();
    let html = report.to_html();
    let visits = report.metrics.iter().position(|m| m.name == "visits per visitor");
    let body = between(&html, &format!("data-m=\"{}\"", visits.expect("there")), "</tbody>");
    // The table's axis comes before its rows.
    let reach = attributes(between(&html, "id=\"scores\"", ">"), "data-reach")[0];
    let read = |x: f64| ((x - 6.0) / 228.0 * 2.0 - 1.0) * reach;
    let tick = leading(between(body, "class=\"ni\" d=\"M", "\""));
    assert!((read(tick) + 0.05).abs() < reach * 1e-3, "more is better, so the margin is below 0");
    let by_country = between(&html, "<section id=\"breakdown\"", "</section>");
    let table = between(by_country, "<table class=\"effects", "</table>");
    let reach = attributes(table, "data-reach")[0];
    let [_, everyone, _] = claims(table)[0];
    let line = leading(between(table, "class=\"all\" d=\"M", "\""));
    assert!((((line - 6.0) / 228.0 * 2.0 - 1.0) * reach - everyone).abs() < reach * 1e-3);
}

#[test]
fn page_needs_no_network_and_escapes_names() {
    let hostile = "</script><img src=x onerror=alert(1)>";
    let mut text = made_up::DEFINITION.to_owned();
    for name in ["free_shipping", "always free", "page errors", "country"] {
        text = text.replace(&format!("name = \"{name}\""), &format!("name = \"{hostile}{name}\""));
    }
    let html = made_up::report(&text, 50).expect("a name may hold anything").to_html();
    assert!(!html.contains("<img"));
    assert_eq!(html.matches("<script").count(), 3, "two of data and one of code");
    assert_eq!(html.matches("</script").count(), 3);
    let html = rich().to_html();
    for request in [" src=", " href=\"h", "url(", "@import", "<link", "<img", "<iframe"] {
        assert!(!html.contains(request), "{request}");
    }
}

#[test]
fn ids_are_given_once() {
    let html = rich().to_html();
    let body = between(&html, "<main>", "</main>");
    let mut ids: Vec<&str> =
        body.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    ids.sort_unstable();
    let all = ids.len();
    ids.dedup();
    assert_eq!(all, ids.len(), "{ids:?}");
}

#[test]
fn page_policy_allows_its_own_script_and_nothing_else() {
    let html = rich().to_html();
    let policy = between(&html, "Content-Security-Policy\" content=\"", "\"");
    assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"), "{policy}");
    let hash = between(policy, "sha256-", "'");
    let letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits: String = hash
        .trim_end_matches('=')
        .chars()
        .map(|c| format!("{:06b}", letters.find(c).expect("a letter of base64")))
        .collect();
    let bytes: Vec<u8> = (0..32)
        .map(|byte| u8::from_str_radix(&bits[8 * byte..8 * byte + 8], 2).expect("bits"))
        .collect();
    let script = between(&html, "<script>", "</script>");
    assert_eq!(bytes, sha256(script.as_bytes()));
}

/// The element `report` as data.rs says to read it.
fn unpack(packed: &Value, value: &Value) -> Value {
    let Some(items) = value.as_array() else {
        return value.clone();
    };
    let rest = || items[1..].iter().map(|item| unpack(packed, item));
    match items[0].as_i64().expect("a number first") {
        -1 => rest().collect(),
        -2 => packed["words"][items[1].as_u64().expect("a place") as usize].clone(),
        shape => {
            let keys = packed["shapes"][shape as usize].as_array().expect("keys");
            let keys = keys.iter().map(|key| key.as_str().expect("a key").to_owned());
            Value::Object(keys.zip(rest()).collect())
        }
    }
}

/// Equal, numbers to six digits.
fn assert_alike(read: &Value, own: &Value, path: &str) {
    match (read, own) {
        (Value::Number(read), Value::Number(own)) => {
            let (read, own) = (read.as_f64().expect("f64"), own.as_f64().expect("f64"));
            assert!((read - own).abs() <= 1e-5 * own.abs(), "{path}: {read} for {own}");
        }
        (Value::Array(read), Value::Array(own)) => {
            assert_eq!(read.len(), own.len(), "{path}");
            for (index, (read, own)) in read.iter().zip(own).enumerate() {
                assert_alike(read, own, &format!("{path}[{index}]"));
            }
        }
        (Value::Object(read), Value::Object(own)) => {
            assert_eq!(read.keys().collect::<Vec<_>>(), own.keys().collect::<Vec<_>>(), "{path}");
            read.iter().for_each(|(key, value)| {
                assert_alike(value, &own[key], &format!("{path}.{key}"));
            });
        }
        _ => assert_eq!(read, own, "{path}"),
    }
}

#[test]
fn page_carries_the_report_as_data() {
    let report = rich();
    let html = report.to_html();
    let data = between(&html, "id=\"report\">", "</script>");
    let packed: Value = serde_json::from_str(data).expect("JSON");
    let mut own: Value = serde_json::from_str(&report.to_json()).expect("JSON");
    for metric in own["metrics"].as_array_mut().expect("metrics") {
        metric.as_object_mut().expect("an object").remove("series");
        metric.as_object_mut().expect("an object").remove("moments");
    }
    let again = own["reproduce"].as_object_mut().expect("an object");
    again.remove("definition");
    again.remove("sql");
    assert_alike(&unpack(&packed, &packed["value"]), &own, "report");
}

/// `[value, w, w]` against the interval of one look (1) or any (2).
fn assert_effect(effect: &Value, look: usize, comparison: &Comparison, scale: Scale) {
    let own = match scale {
        Scale::Relative => comparison.relative,
        Scale::Absolute => comparison.absolute,
    };
    let Ok(own) = own else {
        assert!(effect.is_string() || effect[look].is_string(), "{effect} has no reason");
        return;
    };
    let value = effect[0].as_f64().expect("a value");
    let width = &effect[look];
    let up = width.as_f64().or_else(|| width[1].as_f64()).expect("a half-width");
    let down = width.as_f64().or_else(|| width[0].as_f64()).expect("a half-width");
    // Four digits of either half-width, five of the value.
    let room = 3e-4 * (own.high - own.low) + 6e-5 * own.value.abs();
    for (read, own) in [(value, own.value), (value - down, own.low), (value + up, own.high)] {
        assert!((read - own).abs() < room, "{read} for {own}");
    }
}

#[test]
fn page_carries_every_alternative() {
    let report = rich();
    let html = report.to_html();
    let data: Value =
        serde_json::from_str(between(&html, "id=\"views\">", "</script>")).expect("JSON");
    let views = data["views"].as_array().expect("views");
    let (mut compared, mut beside, mut turned, mut inverted) = (0, 0, 0, 0);
    for own in &report.alternatives {
        let of = |cuped: bool| {
            views.iter().find(|view| {
                view["b"] == own.baseline as u64 && view["c"] == u64::from(u8::from(cuped))
            })
        };
        for (metric, comparisons) in own.comparisons.iter().enumerate() {
            let view = &of(own.cuped).expect("a view")["m"][metric];
            let view = if view.is_array() { view } else { &of(true).expect("a view")["m"][metric] };
            for (read, own_comparison) in view.as_array().expect("a list").iter().zip(comparisons) {
                let look = if own.anytime { 2 } else { 1 };
                compared += 1;
                // The report's own look is said once, and this is the other beside it.
                let parts = read.as_array().expect("a list").len();
                if parts == 2 {
                    turned += 1;
                    inverted += 1;
                    let look = read[look - 1].as_array().expect("a look");
                    let place = if look.len() == 2 { 1 } else { 2 };
                    let call = look[place].as_u64().expect("a call") % 8;
                    let calls = [Call::Better, Call::Worse, Call::Inconclusive, Call::Unavailable];
                    assert_eq!(calls[call as usize], own_comparison.call);
                    continue;
                }
                if parts < 6 {
                    let place = own_comparison.arm - 1;
                    if own.anytime {
                        beside += 1;
                        let of = |scale: usize| json!([0, 0, read[scale]]);
                        for (scale, place) in [(Scale::Relative, 1), (Scale::Absolute, 2)] {
                            let mut effect = of(place);
                            let found = match scale {
                                Scale::Relative => own_comparison.relative,
                                Scale::Absolute => own_comparison.absolute,
                            };
                            effect[0] = found.map_or(json!(null), |found| json!(found.value));
                            assert_effect(&effect, look, own_comparison, scale);
                        }
                    } else {
                        assert_eq!(report.metrics[metric].comparisons[place], *own_comparison);
                    }
                    continue;
                }
                if read[0] == 0 {
                    inverted += 1;
                } else {
                    assert_effect(&read[0], look, own_comparison, Scale::Relative);
                }
                if read[1] == 0 {
                    turned += 1;
                } else {
                    assert_effect(&read[1], look, own_comparison, Scale::Absolute);
                }
                let p = own_comparison.estimate().ok().map(|estimate| estimate.p);
                let shown = read[3 + look][0].as_f64();
                let alike = match (shown, p) {
                    (Some(shown), Some(p)) => (shown - p).abs() <= 5e-3 * p,
                    (shown, p) => shown.is_none() && p.is_none(),
                };
                assert!(alike, "{shown:?} for {p:?}");
            }
        }
    }
    // Three baselines, CUPED or not, once or any time, nine metrics, two arms.
    assert_eq!(compared, 3 * 2 * 2 * 9 * 2);
    // The report itself has all metrics with CUPED for one look, and those without CUPED are the same.
    assert!(beside >= 9 * 2, "{beside}");
    // Of six ordered pairs of arms three are the others turned round; the browser reads those.
    assert_eq!(turned, compared / 2);
    // Lifts likewise, but for those with CUPED.
    assert!(inverted > compared / 8 && inverted < turned, "{inverted} of {compared}");
}

#[test]
fn a_red_sample_ratio_greys_the_scorecard() {
    let mut report = rich();
    assert!(!report.to_html().contains("Not to be trusted"));
    report.health.sample_ratio.alarm = true;
    report.verdict.decision = Decision::DoNotTrust;
    let html = report.to_html();
    assert!(html.contains("<section id=\"scorecard\" class=\"distrusted\""));
    assert!(html.contains("Not to be trusted"));
    let counts = between(&html, "<details open><summary>Sample ratio", "</details>");
    assert!(counts.contains("expected"), "observed and expected users are open to see");
}

#[test]
fn a_switch_without_numbers_is_absent() {
    let html = rich().to_html();
    for name in ["scale", "cuped", "look", "baseline"] {
        assert!(html.contains(&format!("name=\"{name}\"")), "{name}");
    }
    let third = "[[variant]]\nname = \"always free\"\nshare = 0.33\n";
    let text = made_up::DEFINITION.replace(third, "").replace("share = 0.33", "share = 0.66");
    let text = text.replace("cuped = { pre = \"14 days\" }\n", "");
    let mut two_arms = made_up::report(&text, 50).expect("right");
    let html = two_arms.to_html();
    assert!(html.contains("name=\"scale\"") && html.contains("name=\"look\""));
    assert!(!html.contains("name=\"cuped\"") && !html.contains("name=\"baseline\""));
    two_arms.alternatives.clear();
    assert!(!two_arms.to_html().contains("<form"));
}

#[test]
fn funnel_bars_are_shares_of_all_exposed() {
    let report = rich();
    let html = report.to_html();
    let funnel = between(&html, "<section id=\"funnel\"", "</section>");
    let own: Vec<f64> = report.funnels[0]
        .steps
        .iter()
        .flat_map(|step| &report.metrics[step.metric].values)
        .map(|value| value.value.expect("a share"))
        .collect();
    let shares = attributes(funnel, "data-share");
    let bars = funnel.split("<rect class=\"arm").skip(1).map(|bar| attributes(bar, "width")[0]);
    assert_eq!((own.len(), shares.len()), (9, 9));
    for ((own, share), width) in own.iter().zip(&shares).zip(bars) {
        assert!((own - share).abs() < 1e-6 && (100.0 * own - width).abs() < 0.01, "{own} {width}");
    }
}

#[test]
fn page_leads_with_the_decision_and_the_primary_metric() {
    let mut report = rich();
    let html = report.to_html();
    let [health, verdict] = ["<section id=\"health\"", "<section id=\"verdict\""]
        .map(|block| html.find(block).expect("there"));
    assert!(verdict < health);
    let lead = |html: &str| -> String {
        let lead =
            between(html, "<p class=\"lead", "</p>").split_once('>').expect("a tag").1.to_owned();
        let parts = lead.split('<').map(|part| part.split_once('>').map_or(part, |p| p.1));
        parts.collect::<String>().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(report.metrics[report.primary].name, "conversion");
    let best = &report.metrics[0].comparisons[1];
    let lift = best.relative.expect("an estimate");
    let percent = |v: f64| {
        let digits = if v.abs() < 0.1 { 2 } else { 1 };
        format!("{}{:.digits$} %", if v < 0.0 { "−" } else { "+" }, 100.0 * v.abs())
    };
    let words = lead(&html);
    let figures = [lift.value, lift.low, lift.high].map(percent);
    let expected =
        format!("always free conversion {} [{}, {}]", figures[0], figures[1], figures[2]);
    assert!(words.ends_with(&expected), "{words} for {expected}");
    let text = report.to_text(100, false);
    let line = text.lines().nth(1).expect("a second line");
    assert!(line.contains(&format!("always free: conversion {} [", figures[0])), "{line}");
    report.primary = 1;
    assert!(lead(&report.to_html()).contains("revenue per visitor"));
}

#[test]
fn sections_follow_roles_and_groups() {
    let with = |name: &str, keys: &str, text: &str| {
        let metric = format!("name = \"{name}\"\n");
        text.replacen(&metric, &format!("{metric}{keys}\n"), 1)
    };
    let text =
        with("revenue per visitor", "role = \"primary\"\ngroup = \"money\"", made_up::DEFINITION);
    let text = with("orders per visitor", "group = \"money\"", &text);
    let text = with("checkout", "group = \"funnel <b>\"", &text);
    let report = made_up::report(&text, 50).expect("right");
    let html = report.to_html();
    let scores = between(&html, "id=\"scores\"", "</table>");
    let mut found = Vec::new();
    for part in scores.split("<tbody").skip(1) {
        match part.split_once("data-m=\"") {
            Some((_, rest)) => found.push(report.metrics[leading(rest) as usize].name.clone()),
            None => found.push(format!(
                "# {}",
                between(part, "\">", "</th>").rsplit('>').next().expect("a title")
            )),
        }
    }
    let expected = [
        "# Primary metric",
        "revenue per visitor",
        "# Secondary metrics",
        "conversion",
        "# Secondary metrics: money",
        "orders per visitor",
        "# Secondary metrics: funnel &lt;b&gt;",
        "checkout: cart",
        "checkout: address",
        "checkout: payment",
        "# Guardrails",
        "refund ratio",
        "visits per visitor",
        "page errors",
    ];
    assert_eq!(found, expected);
    let text = report.to_text(100, false);
    let titles: Vec<usize> = expected
        .iter()
        .filter_map(|line| line.strip_prefix("# "))
        .map(|title| format!("\n{}\n", title.replace("&lt;", "<").replace("&gt;", ">")))
        .map(|title| text.find(&title).unwrap_or_else(|| panic!("no {title}")))
        .collect();
    assert!(titles.is_sorted(), "{titles:?}");
    let json: Value = serde_json::from_str(&report.to_json()).expect("JSON");
    assert_eq!(json["primary"], 1);
    assert_eq!(json["metrics"][1]["role"], "primary");
    assert_eq!(json["metrics"][2]["role"], "secondary");
    assert_eq!(json["metrics"][2]["group"], "money");
    assert_eq!(json["metrics"][6]["role"], "guardrail");
    assert_eq!(json["metrics"][6]["group"], Value::Null);
}

#[test]
fn progress_counts_days_with_data_and_planned_users() {
    let text = format!("planned_users = 12345\n{}", made_up::DEFINITION);
    let report = made_up::report(&text, 100).expect("right");
    let users: u64 = report.arms.iter().map(|arm| arm.users).sum();
    let json: Value = serde_json::from_str(&report.to_json()).expect("JSON");
    assert_eq!(
        json["progress"],
        json!({ "day": 28, "days": 28, "users": users, "planned_users": 12345 })
    );
    // The data end as before; the plan goes on.
    let longer = made_up::report(&text.replace("2026-11-02", "2026-11-09T06:00:00"), 100);
    let longer = longer.expect("right");
    let share = (100.0 * users as f64 / 12345.0).round();
    let words = format!("day 28 of 36, {share} % of 12,345 planned users");
    let [day, planned] = [&words[..12], &words[14..]];
    assert!(longer.to_text(100, false).contains(&format!("\nD{}\n", &words[1..])));
    let html = longer.to_html();
    let pills = between(&html, "<ul class=\"pills\">", "</ul>");
    assert!(pills.contains(&format!("style=\"--done:78%\">{day}</li>")), "{pills}");
    assert!(pills.contains(&format!("style=\"--done:{share}%\">{planned}</li>")), "{pills}");
    let never = text.replace("start = \"2026-10-05\"\nend = \"2026-11-02\"\n", "");
    let never = made_up::report(&never, 100).expect("right").progress;
    assert_eq!((never.day, never.days, never.planned_users), (None, None, Some(12345)));
}

#[test]
fn the_control_is_not_called_so_twice() {
    let arms = |text: &str| {
        let report = made_up::report(text, 50).expect("right");
        let html = report.to_html();
        let arms = between(&html, "<ul class=\"arms\">", "</ul>").to_owned();
        let text = report.to_text(100, false);
        [arms.matches("control").count(), text.matches("control)").count()]
    };
    assert_eq!(arms(made_up::DEFINITION), [1, 0]);
    assert_eq!(arms(&made_up::DEFINITION.replace("name = \"control\"", "name = \"paid\"")), [1, 1]);
}

#[test]
fn power_is_of_goals_and_many_metrics_wait_behind_lines() {
    let report =
        made_up::report(&format!("{}\n[[dimension]]\nname = \"country\"\n", made_up::many(22)), 60);
    let report = report.expect("right");
    let html = report.to_html();
    let power = between(&html, "<table class=\"plain power\">", "</table>");
    for metric in &report.metrics {
        assert_eq!(power.contains(&metric.name), !metric.guardrail, "{}", metric.name);
    }
    assert!(html.contains("<div id=\"find\"") && !rich().to_html().contains("<div id=\"find\""));
    let by = between(&html, "<section id=\"breakdown\"", "</section>");
    let first = by.find(&format!("data-m=\"{}\" open", report.primary)).expect("in sight");
    let more = by.find("more metrics by country").expect("a line for the rest");
    assert!(first < more);
    assert_eq!(by.matches(" data-m=\"").count(), 22);
}

/// Where the delta method tests lifts, absolute effects have another p.
#[test]
fn page_has_the_p_of_the_difference_where_lifts_have_their_own() {
    for (line, own) in [("lift = \"delta\"", true), ("", false)] {
        let text = format!("{line}\n{}", made_up::DEFINITION);
        let report = made_up::report(&text, 100).expect("right");
        let html = report.to_html();
        assert_eq!(html.contains("tests that the lift is 0"), own);
        assert_eq!(html.contains("tests that the difference from the control, and so"), !own);
        let data: Value =
            serde_json::from_str(between(&html, "id=\"views\">", "</script>")).expect("JSON");
        // Without CUPED the report has no numbers of its own.
        let view = &data["views"][1];
        assert_eq!((&view["b"], &view["c"]), (&json!(0), &json!(0)));
        let revenue = view["m"][1][1].as_array().expect("a comparison");
        assert_eq!(revenue.len(), if own { 8 } else { 6 });
        if own {
            let find = |alternative: &&uplake_experiment::report::Alternative| {
                (alternative.baseline, alternative.cuped, alternative.anytime) == (0, false, false)
            };
            let alternative = report.alternatives.iter().find(find).expect("there");
            let comparison = &alternative.comparisons[1][1];
            let [difference, lift] =
                [comparison.absolute, comparison.relative].map(|found| found.expect("one").p);
            let shown = revenue[6].as_f64().expect("a number");
            assert!((shown / difference - 1.0).abs() < 6e-3 && difference != lift);
        }
    }
}

/// Fifty metrics of three kinds, half of them with CUPED, three arms, four weeks, every switch.
#[test]
fn page_with_fifty_metrics_stays_below_300_kilobytes() {
    let head = made_up::DEFINITION.split("[[metric]]").next().expect("arms");
    let mut text = head.to_owned();
    for index in 0..50 {
        let kind = match index {
            0..15 => "type = \"proportion\"\nvalue = \"paid\"",
            15..40 => "type = \"mean\"\nvalue = \"amount\"\ncuped = { pre = \"14 days\" }",
            _ => "type = \"ratio\"\nnumerator = { value = \"a\" }\ndenominator = { value = \"b\" }",
        };
        let name = format!("a metric with number {index}");
        text.push_str(&format!("[[metric]]\nname = \"{name}\"\ntable = \"events\"\n{kind}\n"));
    }
    let html = made_up::report(&text, 150).expect("right").to_html();
    assert!(html.len() < 300_000, "{} bytes", html.len());
}
