//! What was tried, on whom and how; and what to do now.

use std::fmt::Write;

use super::markup::{arm_sign, escape};
use super::rows;
use crate::format;
use crate::headline::{self, Headline, headlines};
use crate::report::{Decision, Report};

/// Bytes of the sentences that are in sight at once: a third of a phone's page.
const OPEN_SENTENCES: usize = 500;

pub(super) fn write(out: &mut String, report: &Report) {
    let _ = writeln!(out, "<header>\n<h1>{}</h1>", escape(&report.experiment));
    if let Some(hypothesis) = &report.hypothesis {
        let _ = writeln!(out, "<p class=\"hypothesis\">{}</p>", escape(hypothesis));
    }
    out.push_str("<ul class=\"pills\">");
    let progress = &report.progress;
    let days = progress.day.zip(progress.days).map(|(day, days)| f64::from(day) / f64::from(days));
    let users = progress.planned_users.map(|planned| progress.users as f64 / planned as f64);
    for (done, words) in days.into_iter().chain(users).zip(headline::progress(report)) {
        let done = (100.0 * done.min(1.0)).round();
        let _ = write!(out, "<li class=\"progress\" style=\"--done:{done}%\">{words}</li>");
    }
    if let Some([start, end]) = &report.period {
        let (start, end, zone) = (escape(start), escape(end), escape(&report.time_zone));
        let _ = write!(out, "<li>{start} to {end}, end not counted, {zone}</li>");
    }
    if report.unit != "users" {
        let _ = write!(out, "<li>Unit: {}</li>", escape(report.unit));
    }
    let _ = writeln!(out, "<li class=\"how\">{}</li></ul>", how(report).join(" · "));
    out.push_str("<ul class=\"arms\">\n");
    for (index, arm) in report.arms.iter().enumerate() {
        let share = arm.share.map_or("–".into(), |share| format::percent(share, 2));
        let role = if arm.is_control_by_another_name() { " <small>control</small>" } else { "" };
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
    words.push(match report.correction_name() {
        "" => "no correction".into(),
        name => escape(name),
    });
    words
}

pub(super) fn verdict(out: &mut String, report: &Report) {
    let class = decision_class(report.verdict.decision);
    let _ = write!(out, "<section id=\"verdict\" class=\"{class}\" aria-label=\"Verdict\">");
    let lines = headlines(report);
    let Some(first) = lines.first() else {
        let word = headline::word(report.verdict.decision);
        let sentence = escape(&report.verdict.sentence);
        let _ = writeln!(
            out,
            "<p class=\"lead\"><strong>{word}</strong></p><p>{sentence}</p></section>"
        );
        return;
    };
    lead(out, report, first, "lead");
    let p = if report.inference == "bayesian" { "chance to win" } else { "p" };
    let _ = writeln!(
        out,
        "<p>{} interval, {p} {}</p>",
        format::coverage(report.alpha),
        rows::p_cell(rows::Columns::of(report), first.comparison)
    );
    lines[1..].iter().for_each(|line| lead(out, report, line, "other"));
    reasons(out, report, &lines);
    out.push_str("</section>\n");
}

/// The decision, the arm, the primary metric and its interval.
fn lead(out: &mut String, report: &Report, line: &Headline<'_>, class: &str) {
    let [effect, interval] = line.effect().unwrap_or_else(|| ["–".into(), "no estimate".into()]);
    let arm = line.verdict.arm;
    let _ = writeln!(
        out,
        "<p class=\"{class} {}\"><strong>{}</strong> <span>{} {}</span> <span>{}</span> \
         <b>{effect}</b> <span>{interval}</span></p>",
        rows::call_class(line.comparison.call),
        headline::word(line.verdict.decision),
        arm_sign(arm),
        escape(&report.arms[arm].name),
        escape(&line.metric.name),
    );
}

/// The sentences, in sight where the primary metric is not why and they fit on a phone.
fn reasons(out: &mut String, report: &Report, lines: &[Headline<'_>]) {
    let is_new = |line: &&Headline<'_>| line.verdict.sentence != line.words(report) + ".";
    let wanted: Vec<&Headline<'_>> = lines.iter().filter(is_new).collect();
    if wanted.is_empty() {
        return;
    }
    let length: usize = wanted.iter().map(|line| line.verdict.sentence.len()).sum();
    let is_open = !lines[0].says_why() && length <= OPEN_SENTENCES;
    let opened = if is_open { " open" } else { "" };
    let _ = write!(out, "<details{opened}><summary>In words</summary>");
    for line in wanted {
        let arm = line.verdict.arm;
        let _ = write!(out, "<p>{} {}</p>", arm_sign(arm), escape(&line.verdict.sentence));
    }
    out.push_str("</details>");
}

fn decision_class(decision: Decision) -> &'static str {
    match decision {
        Decision::Ship => "good",
        Decision::DoNotTrust | Decision::RollBack => "bad",
        Decision::TradeOff => "warn",
        Decision::KeepRunning => "open",
    }
}
