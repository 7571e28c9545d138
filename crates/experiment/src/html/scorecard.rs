//! All metrics in one table on one axis, and the switches above it.
//!
//! # Invariants
//! - A switch stands on the page only if the report has numbers for each of its choices; it is
//!   hidden until the script that serves it runs.
//!
//! # Not here
//! No rows (`rows`).

use std::fmt::Write;

use super::markup::{escape, open};
use super::plot;
use super::rows::{self, Columns};
use crate::definition::Direction;
use crate::report::{Comparison, MetricReport, Report, Scale};
use crate::scorecard::sections;

/// More notes than these wait behind a line that counts them.
const MAX_OPEN_NOTES: usize = 3;

/// Fewer metrics than these are found by looking.
const MIN_METRICS_TO_FIND: usize = 10;

pub(super) fn write(out: &mut String, report: &Report) {
    open(out, "scorecard", "Scorecard", report.is_distrusted());
    switches(out, report);
    if report.metrics.len() >= MIN_METRICS_TO_FIND {
        find(out, report);
    }
    let columns = Columns::of(report);
    let axis = rows::shared_axis(report.metrics.iter());
    let class = columns.table_class(report);
    let _ = writeln!(
        out,
        "<div class=\"card\">\n<table class=\"{class}\" id=\"scores\" data-reach=\"{}\">",
        plot::short(axis.reach)
    );
    out.push_str("<caption class=\"hidden\">Effects on goals and guardrails</caption>\n");
    rows::head(out, report, columns, "metric", &axis);
    for section in sections(report) {
        let _ = writeln!(
            out,
            "<tbody class=\"group\"><tr><th scope=\"rowgroup\" colspan=\"{}\">{}</th></tr></tbody>",
            columns.count(),
            escape(&section.title())
        );
        for index in section.metrics {
            let metric = &report.metrics[index];
            let _ = write!(out, "<tbody data-m=\"{index}\">");
            rows::write(out, report, columns, metric, &label(metric), &axis, None);
            out.push_str("</tbody>\n");
        }
    }
    out.push_str("</table>\n</div>\n");
    keys(out, report);
    notes(out, report);
    out.push_str("</section>\n");
}

/// The script shows and serves it.
fn find(out: &mut String, report: &Report) {
    let _ = writeln!(
        out,
        "<div id=\"find\" role=\"search\" hidden><input type=\"search\" aria-label=\"Find metrics\" \
         placeholder=\"Find among {} metrics\"> <label>Order <select><option value=\"\">as defined\
         <option value=\"name\">by name<option value=\"best\">best lift first<option value=\"worst\">\
         worst lift first<option value=\"p\">smallest p first</select></label> <label><input \
         type=\"checkbox\"> only what changed</label> <span class=\"quiet\" role=\"status\"></span></div>",
        report.metrics.len()
    );
}

/// The name, and what is wished for.
fn label(metric: &MetricReport) -> String {
    let wish = match metric.direction {
        Direction::Increase => "",
        Direction::Decrease => " <small>lower is better</small>",
    };
    format!("{}{wish}", escape(&metric.name))
}

/// What signs and short words in the table mean, if they are there.
fn keys(out: &mut String, report: &Report) {
    let comparisons = || report.metrics.iter().flat_map(|metric| &metric.comparisons);
    out.push_str(
        "<p class=\"quiet note keys\"><span><b>▲ better, ▼ worse</b> in the desired direction</span>",
    );
    let _ = write!(out, "<span>{}</span>", tested(report));
    let name = report.correction_name();
    if !name.is_empty() {
        let _ = write!(out, "<span><b>adj.</b> p corrected by {name}</span>");
    }
    if comparisons().any(|comparison| comparison.non_inferiority.is_some()) {
        out.push_str("<span><b>within, not within</b> the margin, the dashed tick</span>");
    }
    if comparisons().any(|comparison| comparison.variance_reduction.is_some()) {
        out.push_str("<span><b>variance</b> removed by CUPED or strata</span>");
    }
    out.push_str("</p>\n");
}

/// What p is the chance of.
fn tested(report: &Report) -> &'static str {
    let by_the_lift = |comparison: &Comparison| match (comparison.relative, comparison.absolute) {
        (Ok(lift), Ok(difference)) => comparison.scale == Scale::Relative && lift.p != difference.p,
        _ => false,
    };
    if report.inference == "bayesian" {
        return "<b>chance to win</b> that the arm is better, <b>risk</b> what choosing it loses on average";
    }
    if report.metrics.iter().flat_map(|metric| &metric.comparisons).any(by_the_lift) {
        return "<b>p</b> two-sided, tests that the lift is 0; beside absolute effects, that the \
                difference is 0";
    }
    "<b>p</b> two-sided, tests that the difference from the control, and so the lift, is 0"
}

fn notes(out: &mut String, report: &Report) {
    let notes = report
        .metrics
        .iter()
        .flat_map(|metric| metric.notes.iter().map(move |note| format!("{}: {note}", metric.name)));
    let notes: Vec<String> = notes.collect();
    if notes.is_empty() {
        return;
    }
    let opened = if notes.len() <= MAX_OPEN_NOTES { " open" } else { "" };
    let _ = writeln!(out, "<details{opened}><summary>Notes on metrics: {}</summary>", notes.len());
    for note in notes {
        let _ = writeln!(out, "<p class=\"quiet note\">{}</p>", escape(&note));
    }
    out.push_str("</details>\n");
}

fn switches(out: &mut String, report: &Report) {
    if report.alternatives.is_empty() {
        return;
    }
    out.push_str("<form id=\"switches\" hidden>\n");
    let comparisons = || report.metrics.iter().flat_map(|metric| &metric.comparisons);
    let mut scales = vec![("default", "relative".to_owned()), ("absolute", "absolute".into())];
    if comparisons().any(|comparison| comparison.impact.is_some()) {
        scales.push(("impact", "impact".into()));
    }
    group(out, "scale", "Effect", &scales, "default");
    let views = &report.alternatives;
    let has = |test: &dyn Fn(&crate::report::Alternative) -> bool| views.iter().any(test);
    if has(&|view| view.cuped) && has(&|view| !view.cuped) {
        group(out, "cuped", "CUPED", &[("1", "on".into()), ("0", "off".into())], "1");
    }
    if has(&|view| view.anytime) && has(&|view| !view.anytime) {
        let mut looks = vec![("once", "one look".to_owned()), ("any", "any time".into())];
        let chosen = match report.inference {
            "fixed" => "once",
            "anytime" => "any",
            other => {
                let words = if other == "bayesian" { "beliefs" } else { "planned looks" };
                looks.insert(0, ("planned", words.into()));
                "planned"
            }
        };
        group(out, "look", "Intervals for", &looks, chosen);
    }
    let control = report.control();
    if report.arms.len() > 2 && has(&|view| view.baseline != control) {
        let arms: Vec<(String, String)> = report
            .arms
            .iter()
            .enumerate()
            .map(|(index, arm)| (index.to_string(), arm.name.clone()))
            .collect();
        let arms: Vec<(&str, String)> =
            arms.iter().map(|(index, name)| (index.as_str(), name.clone())).collect();
        group(out, "baseline", "Baseline", &arms, &control.to_string());
    }
    out.push_str("<p id=\"state\" class=\"quiet\" role=\"status\"></p></form>\n");
}

/// Native radio buttons: Tab reaches the group and arrow keys move in it.
fn group(out: &mut String, name: &str, title: &str, choices: &[(&str, String)], chosen: &str) {
    let _ = write!(out, "<fieldset><legend>{title}</legend>");
    for (value, words) in choices {
        let checked = if *value == chosen { " checked" } else { "" };
        let _ = write!(
            out,
            "<label><input type=\"radio\" name=\"{name}\" value=\"{value}\"{checked}>\
             <span>{}</span></label>",
            escape(words)
        );
    }
    out.push_str("</fieldset>\n");
}
