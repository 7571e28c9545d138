//! The most common sequences of events of each path, and where users drop off.

use std::fmt::Write;

use super::markup::{arm_sign, escape, open};
use crate::format;
use crate::paths::{PathReport, share};
use crate::report::Report;

pub(super) fn write(out: &mut String, report: &Report) {
    if report.paths.is_empty() {
        return;
    }
    open(out, "paths", "Paths", report.is_distrusted());
    report.paths.iter().for_each(|path| one(out, report, path));
    out.push_str("</section>\n");
}

fn one(out: &mut String, report: &Report, path: &PathReport) {
    let exposed: Vec<u64> = report.arms.iter().map(|arm| arm.users).collect();
    let shares = |part: &[u64], whole: &[u64]| -> Vec<Option<f64>> {
        part.iter().zip(whole).map(|(part, whole)| share(*part, *whole)).collect()
    };
    let _ = writeln!(out, "<div class=\"card\"><h3>{}</h3>", escape(&path.name));
    head(out, report, "share of all exposed");
    row(out, "began", &shares(&path.started, &exposed));
    row(out, "reached the end", &shares(&path.reached, &exposed));
    out.push_str("</tbody><tbody>");
    for sequence in &path.sequences {
        row(out, &sequence.words(), &sequence.shares);
    }
    out.push_str("</tbody></table>\n");
    let more = path.different_sequences - path.sequences.len() as u64;
    if more > 0 {
        let more = format::count(more);
        let _ = writeln!(out, "<p class=\"quiet note\">And {more} more.</p>");
    }
    out.push_str("<details><summary>Drop-off after each event</summary>");
    head(out, report, "share of those who came to it");
    for (number, step) in path.steps.iter().enumerate() {
        let lost = shares(&step.dropped_off, &step.users);
        row(out, &format!("event {}", number + 1), &lost);
    }
    out.push_str("</tbody></table></details></div>\n");
}

fn head(out: &mut String, report: &Report, title: &str) {
    let _ = write!(out, "<table class=\"plain\"><thead><tr><th scope=\"col\">{title}</th>");
    for (index, arm) in report.arms.iter().enumerate() {
        let _ = write!(out, "<th scope=\"col\">{} {}</th>", arm_sign(index), escape(&arm.name));
    }
    out.push_str("</tr></thead><tbody>");
}

fn row(out: &mut String, label: &str, shares: &[Option<f64>]) {
    let _ = write!(out, "<tr><th scope=\"row\">{}</th>", escape(label));
    for share in shares {
        let _ = write!(out, "<td>{}</td>", format::value(*share, true));
    }
    out.push_str("</tr>");
}
