//! Users first exposed per day. The script draws lines in place of the bars.

use std::fmt::Write;

use super::markup::{ARM_SIGNS, arm_sign, escape, open};
use crate::format;
use crate::report::Report;

const HEIGHT: f64 = 80.0;

pub(super) fn write(out: &mut String, report: &Report) {
    let days = &report.first_exposures;
    let most = days.iter().map(|day| day.users.iter().sum::<u64>()).max().unwrap_or(0);
    if most == 0 {
        return;
    }
    open(out, "exposures", "Exposures over time", false);
    out.push_str("<div class=\"card\">\n<div class=\"charts\" id=\"exposure-charts\">\n");
    bars(out, report, most);
    out.push_str("</div>\n");
    let _ = writeln!(out, "<details><summary>Users first exposed per day</summary>");
    out.push_str("<table class=\"plain\"><thead><tr><th scope=\"col\">day</th>");
    for (index, arm) in report.arms.iter().enumerate() {
        let _ = write!(out, "<th scope=\"col\">{} {}</th>", arm_sign(index), escape(&arm.name));
    }
    out.push_str("</tr></thead><tbody>");
    for day in days {
        let _ = write!(out, "<tr><th scope=\"row\">{}</th>", escape(&day.day));
        for users in &day.users {
            let _ = write!(out, "<td>{}</td>", format::count(*users));
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></details>\n</div>\n</section>\n");
}

/// One bar per day, one piece per arm.
fn bars(out: &mut String, report: &Report, most: u64) {
    let days = &report.first_exposures;
    let bar = 720.0 / days.len() as f64;
    let _ = write!(
        out,
        "<svg class=\"days\" viewBox=\"0 0 720 {HEIGHT}\" preserveAspectRatio=\"none\" \
         role=\"img\" aria-label=\"Users first exposed per day and arm, highest day {}\">",
        format::count(most)
    );
    let mut tops = vec![0; days.len()];
    for arm in 0..report.arms.len() {
        let mut path = String::new();
        for ((index, day), top) in days.iter().enumerate().zip(&mut tops) {
            let bottom = *top;
            *top += day.users[arm];
            let y = |users: u64| HEIGHT - users as f64 / most as f64 * HEIGHT;
            let x = index as f64 * bar;
            let _ = write!(
                path,
                "M{x:.1} {:.1}V{:.1}h{:.1}V{:.1}z",
                y(bottom),
                y(*top),
                (bar * 0.9).min(60.0),
                y(bottom)
            );
        }
        let class = arm % ARM_SIGNS;
        let _ = write!(out, "<path class=\"arm{class}\" d=\"{path}\"/>");
    }
    out.push_str("</svg>\n");
}
