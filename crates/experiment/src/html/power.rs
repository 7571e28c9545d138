//! What today's users can find, and how many more it takes: of goals, which are what one waits for.

use std::fmt::Write;

use super::markup::{arm_sign, escape, open};
use crate::format;
use crate::report::{Comparison, MetricReport, Report};
use crate::scorecard::sections;

pub(super) fn write(out: &mut String, report: &Report) {
    let known = |metric: &&MetricReport| {
        let found = metric.comparisons.iter().any(|comparison| comparison.detectable.is_some());
        !metric.guardrail && found
    };
    let sections = sections(report);
    let in_order = sections.iter().flat_map(|section| &section.metrics);
    let goals: Vec<&MetricReport> =
        in_order.map(|index| &report.metrics[*index]).filter(known).collect();
    if goals.is_empty() {
        return;
    }
    open(out, "power", "Power", report.is_distrusted());
    let _ = write!(
        out,
        "<p class=\"quiet note\">The true effect that a test looking once finds four times in \
         five.</p>\n<div class=\"card split\">\n<div><div id=\"power-chart\"></div></div>\n\
         <div class=\"tall\"><table class=\"plain power\"><thead><tr><th scope=\"col\" rowspan=\"2\">metric</th>\
         <th scope=\"colgroup\" colspan=\"{arms}\">found with today’s users</th>\
         <th scope=\"colgroup\" colspan=\"{arms}\">users still needed for the effect seen</th></tr>\
         <tr>",
        arms = report.arms.len() - 1
    );
    for (arm, _) in report
        .arms
        .iter()
        .enumerate()
        .filter(|(_, arm)| !arm.control)
        .cycle()
        .take(2 * (report.arms.len() - 1))
    {
        let name = escape(&report.arms[arm].name);
        let _ = write!(out, "<th scope=\"col\">{} {name}</th>", arm_sign(arm));
    }
    out.push_str("</tr></thead>\n<tbody>");
    for metric in goals {
        let _ = write!(out, "<tr><th scope=\"row\">{}", escape(&metric.name));
        metric.comparisons.iter().for_each(|comparison| found(out, metric, comparison));
        for comparison in &metric.comparisons {
            let _ = write!(out, "<td>{}", needed(report, comparison.further_users));
        }
        out.push('\n');
    }
    out.push_str("</tbody></table></div>\n</div>\n</section>\n");
}

fn found(out: &mut String, metric: &MetricReport, comparison: &Comparison) {
    let on = |value| format::effect(value, comparison.scale, metric.is_share);
    let found = comparison
        .detectable
        .map_or("–".into(), |effect| on(effect).replace('+', "±").replace(' ', "\u{a0}"));
    let _ = write!(out, "<td>{found}");
}

/// Further users as a number, because "×0.4" is nothing to plan with.
fn needed(report: &Report, times: Option<f64>) -> String {
    let users: u64 = report.arms.iter().map(|arm| arm.users).sum();
    match times {
        None => "–".into(),
        Some(times) if times <= 0.0 => "✓ enough".into(),
        // Ten times the experiment is no plan, and an effect near 0 asks for any number.
        Some(times) if times > 10.0 => "over 10 × today".into(),
        Some(times) => format::count((times * users as f64).ceil() as u64),
    }
}
