//! Steps side by side: each bar is a share of all exposed users.

use std::fmt::Write;

use super::markup::{ARM_SIGNS, arm_sign, escape, open};
use crate::format;
use crate::report::{Funnel, Report};

pub(super) fn write(out: &mut String, report: &Report) {
    if report.funnels.is_empty() {
        return;
    }
    open(out, "funnel", "Funnel", report.is_distrusted());
    report.funnels.iter().for_each(|funnel| one(out, report, funnel));
    out.push_str("</section>\n");
}

fn one(out: &mut String, report: &Report, funnel: &Funnel) {
    let _ = write!(
        out,
        "<div class=\"card\"><h3>{}</h3>\n<table class=\"funnel\"><thead><tr><th scope=\"col\">step\
         </th><th scope=\"col\">arm</th><th scope=\"col\" class=\"bars\">share of all exposed</th>\
         <th scope=\"col\">lost since the step before</th></tr></thead>\n",
        escape(&funnel.name)
    );
    // Everyone exposed is the step before the first.
    let mut before: Vec<Option<f64>> = vec![Some(1.0); report.arms.len()];
    for step in &funnel.steps {
        let Some(metric) = report.metrics.get(step.metric) else {
            continue;
        };
        out.push_str("<tbody>");
        for (arm, value) in metric.values.iter().enumerate() {
            out.push_str("<tr>");
            if arm == 0 {
                let _ = write!(
                    out,
                    "<th scope=\"rowgroup\" rowspan=\"{}\">{}</th>",
                    report.arms.len(),
                    escape(&step.name)
                );
            }
            let share = value.value.unwrap_or(0.0);
            let lost = match (before[arm], value.value) {
                (Some(before), Some(now)) if before > 0.0 => {
                    format!("−{}", format::percent((1.0 - now / before).max(0.0), 1))
                }
                _ => "–".into(),
            };
            let _ = write!(
                out,
                "<td class=\"a\">{} {}</td><td class=\"bars\"><svg viewBox=\"0 0 100 10\" \
                 preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect class=\"track\" \
                 width=\"100\" height=\"10\"/><rect class=\"arm{}\" width=\"{:.2}\" height=\"10\" \
                 data-share=\"{}\"/></svg><span>{}</span></td><td>{lost}</td></tr>",
                arm_sign(arm),
                escape(&report.arms[arm].name),
                arm % ARM_SIGNS,
                share.clamp(0.0, 1.0) * 100.0,
                super::plot::short(share),
                format::value(value.value, true)
            );
            before[arm] = value.value;
        }
        out.push_str("</tbody>\n");
    }
    out.push_str("</table>");
    for (arm, time) in report.arms.iter().zip(funnel.conversion_time.iter().flatten()) {
        let (name, words) = (escape(&arm.name), time.words());
        let _ = write!(out, "<p class=\"quiet note\">{name}, first step to last: {words}</p>");
    }
    out.push_str("</div>\n");
}
