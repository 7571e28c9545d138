//! Effects by value of a dimension, beside the effect on everyone.

use std::fmt::Write;

use super::markup::{escape, open};
use super::plot;
use super::rows::{self, Columns};
use crate::format;
use crate::report::{Breakdown, Report};
use crate::scorecard::sections;

/// Of more metrics those that lead or differ come first, and the others wait behind a line.
const MAX_METRICS: usize = 12;

pub(super) fn write(out: &mut String, report: &Report) {
    if report.breakdowns.is_empty() {
        return;
    }
    open(out, "breakdown", "Breakdown", report.is_distrusted());
    out.push_str(
        "<p class=\"quiet note\">As the definition has it; the switches above do not change this \
         block. The dotted line is the effect on everyone.</p>\n",
    );
    for (place, breakdown) in report.breakdowns.iter().enumerate() {
        out.push_str("<div class=\"card\">\n");
        let sections = sections(report);
        let in_order = sections.iter().flat_map(|section| section.metrics.iter().copied());
        let (first, rest): (Vec<usize>, Vec<usize>) = in_order.partition(|index| {
            let differ = breakdown.differences.iter().any(|found| {
                found.metric == report.metrics[*index].name && found.p_adjusted < report.alpha
            });
            report.metrics.len() <= MAX_METRICS || *index == report.primary || differ
        });
        for index in first {
            metric_by(out, report, breakdown, index, place == 0 && index == report.primary);
        }
        if !rest.is_empty() {
            let _ = writeln!(
                out,
                "<details class=\"by\"><summary>{} more metrics by {}</summary>",
                rest.len(),
                escape(&breakdown.dimension)
            );
            for index in rest {
                metric_by(out, report, breakdown, index, false);
            }
            out.push_str("</details>\n");
        }
        out.push_str("</div>\n");
    }
    out.push_str("</section>\n");
}

fn metric_by(out: &mut String, report: &Report, breakdown: &Breakdown, index: usize, opened: bool) {
    let metric = &report.metrics[index];
    let columns = Columns { reduction: false, series: false, ..Columns::of(report) };
    let found: Vec<_> =
        breakdown.differences.iter().filter(|found| found.metric == metric.name).collect();
    let differ = found.iter().any(|found| found.p_adjusted < report.alpha);
    let _ = writeln!(
        out,
        "<details class=\"by\" data-m=\"{index}\"{}><summary><b>{}</b> by {}{}</summary>",
        if opened { " open" } else { "" },
        escape(&metric.name),
        escape(&breakdown.dimension),
        if differ { " <span class=\"tag\">effects differ</span>" } else { "" }
    );
    let class = columns.table_class(report);
    let parts = breakdown.rows.iter().map(|row| &row.metrics[index]);
    let axis = rows::shared_axis(parts.chain([metric]));
    let _ = writeln!(out, "<table class=\"{class}\" data-reach=\"{}\">", plot::short(axis.reach));
    rows::head(out, report, columns, &escape(&breakdown.dimension), &axis);
    out.push_str("<tbody class=\"overall\">");
    rows::write(out, report, columns, metric, "(all)", &axis, None);
    out.push_str("</tbody>\n");
    for row in &breakdown.rows {
        let users: u64 = row.users.iter().sum();
        let label = format!("{} <small>{} users</small>", escape(&row.value), format::count(users));
        out.push_str("<tbody>");
        rows::write(out, report, columns, &row.metrics[index], &label, &axis, Some(metric));
        out.push_str("</tbody>\n");
    }
    out.push_str("</table>\n");
    for found in found {
        let words =
            if found.p_adjusted < report.alpha { "differ" } else { "do not clearly differ" };
        let _ = writeln!(
            out,
            "<p class=\"quiet note\">Interaction: {} of {} {words} between values (Cochran's Q = {} on \
             {} degrees of freedom, p = {}, corrected for all such tests of this report {}).</p>",
            found.effects(),
            escape(&report.arms[found.arm].name),
            format::plain(found.q),
            found.df,
            format::p_value(found.p),
            format::p_value(found.p_adjusted)
        );
    }
    out.push_str("</details>\n");
}
