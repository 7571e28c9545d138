//! Effects by days since exposure: a table per metric and arm. No script, and nothing at all unless the
//! definition asks.

use std::fmt::Write;

use super::markup::{escape, open};
use super::plot::{self, Marks};
use crate::effect::Estimate;
use crate::forest::Axis;
use crate::format;
use crate::report::{DaySinceExposure, MetricReport, Report, SinceExposure};
use crate::since::{NOTE, TITLE, scale};

pub(super) fn write(out: &mut String, report: &Report) {
    if report.metrics.iter().all(|metric| metric.since_exposure.is_empty()) {
        return;
    }
    open(out, "since", TITLE, report.is_distrusted());
    let _ = writeln!(out, "<p class=\"quiet note\">{NOTE}</p>\n<div class=\"card\">");
    let mut opened = " open";
    for metric in &report.metrics {
        for since in &metric.since_exposure {
            table(out, report, metric, since, opened);
            opened = "";
        }
    }
    out.push_str("</div>\n</section>\n");
}

fn table(
    out: &mut String,
    report: &Report,
    metric: &MetricReport,
    since: &SinceExposure,
    opened: &str,
) {
    let scale = scale(metric, since.arm);
    let estimates: Vec<Option<Estimate>> = since.points.iter().map(estimate).collect();
    let axis = Axis::over(estimates.iter().flatten());
    let on = |value| format::effect(value, scale, metric.is_share);
    let arm = escape(&report.arms[since.arm].name);
    let _ = writeln!(
        out,
        "<details class=\"by\"{opened}><summary><b>{}</b>, {arm}</summary>\n\
         <table class=\"effects\" data-reach=\"{}\"><thead><tr><th scope=\"col\">since exposure</th>\
         <th scope=\"col\" class=\"c\">{}</th><th scope=\"col\">{arm}</th>\
         <th scope=\"col\" class=\"e\">effect <small>{} interval</small></th>\
         <th scope=\"col\" class=\"g\">{}</th></tr></thead>\n<tbody>",
        escape(&metric.name),
        plot::short(axis.reach),
        escape(&report.arms[report.control()].name),
        format::coverage(report.alpha),
        plot::axis(&on(-axis.reach), &on(axis.reach))
    );
    for (point, estimate) in since.points.iter().zip(&estimates) {
        let value = |place: usize, value| {
            let users = format::count(point.users[place]);
            format!("{} <small>{users} users</small>", format::value(value, metric.is_share))
        };
        let (words, drawing) = match estimate {
            Some(e) => (
                format!("<b>{}</b> <small>[{}, {}]</small>", on(e.value), on(e.low), on(e.high)),
                plot::interval(&axis, false, e, Marks::default()),
            ),
            None => ("–".to_owned(), String::new()),
        };
        let _ = writeln!(
            out,
            "<tr><th scope=row class=n>day {}<td class=c>{}<td class=v>{}<td class=e>{words}\
             <td class=g>{drawing}",
            point.day,
            value(0, point.control),
            value(1, point.treatment)
        );
    }
    out.push_str("</tbody></table>\n</details>\n");
}

/// What is drawn of a day.
fn estimate(point: &DaySinceExposure) -> Option<Estimate> {
    let (value, low, high) = (point.effect?, point.low?, point.high?);
    Some(Estimate { value, error: 0.0, df: f64::INFINITY, low, high, p: 1.0 })
}
