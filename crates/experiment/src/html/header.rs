//! What was tried, on whom and how; and what to do now.

use std::fmt::Write;

use super::escape;
use crate::format;
use crate::report::{Decision, Report};

/// Colours and signs that report.css has for arms; more arms use them again.
pub(super) const ARM_SIGNS: usize = 6;

/// The arm's sign in its colour, before a name. The style sheet draws it, so that no arm is known
/// by its colour alone.
pub(super) fn arm_sign(arm: usize) -> String {
    format!("<i class=\"arm{}\"></i>", arm % ARM_SIGNS)
}

pub(super) fn write(out: &mut String, report: &Report) {
    let _ = writeln!(out, "<header>\n<h1>{}</h1>", escape(&report.experiment));
    if let Some(hypothesis) = &report.hypothesis {
        let _ = writeln!(out, "<p class=\"hypothesis\">{}</p>", escape(hypothesis));
    }
    out.push_str("<ul class=\"pills\">");
    if let Some([start, end]) = &report.period {
        let (start, end, zone) = (escape(start), escape(end), escape(&report.time_zone));
        let _ = write!(out, "<li>{start} to {end}, end not counted, {zone}</li>");
    }
    let _ = write!(out, "<li>Unit: {}</li>", escape(report.unit));
    let _ = writeln!(out, "<li class=\"how\">{}</li></ul>", how(report).join(" · "));
    out.push_str("<ul class=\"arms\">\n");
    for (index, arm) in report.arms.iter().enumerate() {
        let share = arm.share.map_or("–".into(), |share| format::percent(share, 2));
        let role = if arm.control { " <small>control</small>" } else { "" };
        let units = if arm.units == arm.users {
            String::new()
        } else {
            format!(", {} {}", format::count(arm.units), escape(report.unit))
        };
        let _ = writeln!(
            out,
            "<li><span>{} <b>{}</b>{role}</span><span>{} users{units}</span>\
             <small>{share}, planned {}</small></li>",
            arm_sign(index),
            escape(&arm.name),
            format::count(arm.users),
            format::percent(arm.planned_share, 0)
        );
    }
    out.push_str("</ul>\n</header>\n");
}

/// How the numbers were made, in a few words each.
fn how(report: &Report) -> Vec<String> {
    let mut words = vec![match report.inference {
        "fixed" => "Look once, at the end".into(),
        "anytime" => "Valid at every look".into(),
        "group_sequential" => "Valid at planned looks".into(),
        "bayesian" => "Bayesian".into(),
        other => escape(other),
    }];
    words.push(format!("{} intervals", format::coverage(report.alpha)));
    let comparisons = || report.metrics.iter().flat_map(|metric| &metric.comparisons);
    if comparisons().any(|comparison| comparison.variance_reduction.is_some()) {
        words.push("CUPED".into());
    }
    words.push(match crate::format::correction_name(report) {
        "" => "no correction".into(),
        name => escape(name),
    });
    words
}

pub(super) fn verdict(out: &mut String, report: &Report) {
    let (class, word) = match report.verdict.decision {
        Decision::Ship => ("good", "Ship"),
        Decision::DoNotTrust => ("bad", "Do not trust"),
        Decision::RollBack => ("bad", "Roll back"),
        Decision::TradeOff => ("warn", "Weigh"),
        Decision::KeepRunning => ("open", "Keep running"),
    };
    let _ = write!(
        out,
        "<section id=\"verdict\" class=\"{class}\" aria-label=\"Verdict\">\
         <strong>{word}</strong><div>"
    );
    if report.verdict.arms.is_empty() {
        let _ = write!(out, "<p>{}</p>", escape(&report.verdict.sentence));
    }
    // The arm that made the decision first.
    let (made, other): (Vec<_>, Vec<_>) =
        report.verdict.arms.iter().partition(|arm| arm.decision == report.verdict.decision);
    for arm in made.into_iter().chain(other) {
        let _ = write!(out, "<p>{} {}</p>", arm_sign(arm.arm), escape(&arm.sentence));
    }
    out.push_str("</div></section>\n");
}
