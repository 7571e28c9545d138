//! Can the numbers be trusted? One chip per check, and behind them the counts.

use std::fmt::Write;

use super::markup::{arm_sign, escape};
use crate::format;
use crate::report::{Breakdown, Report};
use crate::scorecard::{Level, health};

pub(super) fn write(out: &mut String, report: &Report) {
    out.push_str("<section id=\"health\" aria-label=\"Health\">\n");
    let mut lines = health(report);
    // The sample ratio is said whatever it is, and first; what else is fine waits behind a line.
    let ratio = lines.remove(0);
    let (fine, look): (Vec<_>, Vec<_>) =
        lines.into_iter().partition(|(level, _)| *level == Level::Green);
    chips(out, std::iter::once(ratio).chain(look));
    out.push_str("<div class=\"more\">\n");
    if !fine.is_empty() {
        let more = match fine.len() {
            1 => "1 more check passed".to_owned(),
            many => format!("{many} more checks passed"),
        };
        let _ = writeln!(out, "<details><summary>✓ {more}</summary>");
        chips(out, fine.into_iter());
        out.push_str("</details>\n");
    }
    counts(out, report);
    out.push_str("</div>\n</section>\n");
}

fn chips(out: &mut String, lines: impl Iterator<Item = (Level, String)>) {
    out.push_str("<ul class=\"health\">\n");
    for (level, words) in lines {
        let (class, sign, word) = match level {
            Level::Green => ("good", "✓", "fine"),
            Level::Amber => ("warn", "!", "look"),
            Level::Red => ("bad", "✗", "alarm"),
        };
        let _ = writeln!(
            out,
            "<li class=\"{class}\"><i role=\"img\" aria-label=\"{word}\">{sign}</i> {}</li>",
            escape(&words)
        );
    }
    out.push_str("</ul>\n");
}

/// Observed against expected users: of all, by value of each dimension, by day.
fn counts(out: &mut String, report: &Report) {
    let check = &report.health.sample_ratio;
    if check.expected.is_empty() {
        return;
    }
    let opened = if check.alarm { " open" } else { "" };
    let _ = write!(
        out,
        "<details{opened}><summary>Sample ratio: observed and expected</summary>\n\
         <div class=\"columns\"><table class=\"plain\"><thead><tr><th scope=\"col\">arm</th>\
         <th scope=\"col\">observed</th><th scope=\"col\">expected</th>\
         <th scope=\"col\">difference</th></tr></thead><tbody>"
    );
    for (index, (arm, expected)) in report.arms.iter().zip(&check.expected).enumerate() {
        let _ = write!(
            out,
            "<tr><th scope=\"row\">{} {}</th><td>{}</td><td>{}</td><td>{}</td></tr>",
            arm_sign(index),
            escape(&arm.name),
            format::count(arm.units),
            format::count(expected.round() as u64),
            if *expected > 0.0 {
                format::signed_percent(arm.units as f64 / expected - 1.0)
            } else {
                "–".into()
            }
        );
    }
    out.push_str("</tbody></table>\n");
    let mut words: Vec<String> = Vec::new();
    words.extend(check.chi_square.map(|chi| format!("chi-square {}", format::plain(chi))));
    words.extend(check.p.map(|p| format!("p = {}", format::p_value(p))));
    let always = check.sequential_p.map(format::p_value);
    words.extend(always.map(|p| format!("valid at every look: p = {p}")));
    let _ = writeln!(out, "<p class=\"quiet\">{}</p>", words.join("; "));
    days(out, report);
    report.breakdowns.iter().for_each(|breakdown| by_value(out, report, breakdown));
    out.push_str("</div></details>\n");
}

/// One square per day.
fn days(out: &mut String, report: &Report) {
    if report.first_exposures.is_empty() {
        return;
    }
    out.push_str("<div><p class=\"quiet\">By day of first exposure</p><ol class=\"strip\">");
    for day in &report.first_exposures {
        let alarm = report.health.sample_ratio_days.iter().find(|alarm| alarm.value == day.day);
        let (class, sign) = if alarm.is_some() { ("bad", "✗") } else { ("good", "✓") };
        let users: Vec<String> = day.users.iter().map(|users| format::count(*users)).collect();
        let p = alarm.map(|a| format!(", p = {}", format::p_value(a.p))).unwrap_or_default();
        let words = format!("{}: {} users{p}", escape(&day.day), users.join(" / "));
        let _ = write!(out, "<li class=\"{class}\" title=\"{words}\">{sign}</li>");
    }
    out.push_str("</ol></div>\n");
}

fn by_value(out: &mut String, report: &Report, breakdown: &Breakdown) {
    let _ = write!(
        out,
        "<table class=\"plain\"><thead><tr><th scope=\"col\">{}</th>",
        escape(&breakdown.dimension)
    );
    for arm in &report.arms {
        let _ = write!(out, "<th scope=\"col\">{}</th>", escape(&arm.name));
    }
    out.push_str("<th scope=\"col\">check</th></tr></thead><tbody>");
    for row in &breakdown.rows {
        let total: u64 = row.users.iter().sum();
        let _ = write!(out, "<tr><th scope=\"row\">{}</th>", escape(&row.value));
        for users in &row.users {
            let share = match total {
                0 => "–".into(),
                _ => format::percent(*users as f64 / total as f64, 1),
            };
            let _ = write!(out, "<td>{} <small>{share}</small></td>", format::count(*users));
        }
        let alarms = &report.health.sample_ratio_alarms;
        let _ = match alarms.iter().find(|alarm| alarm.is_of(&breakdown.dimension, &row.value)) {
            Some(alarm) => {
                write!(out, "<td class=\"bad\">✗ p = {}</td></tr>", format::p_value(alarm.p))
            }
            None => write!(out, "<td class=\"good\">✓</td></tr>"),
        };
    }
    out.push_str("</tbody></table>\n");
}
