//! Table rows of effects: one per metric, or value of a dimension, and arm.
//!
//! # Invariants
//! - The cells' classes are the script's contract: `a` arm, `c` control, `v` value, `e` effect and
//!   interval, `g` drawing, `p` p-value or chance, `r` variance reduction, `s` path over days.
//!
//! - Closing tags and quotes that HTML leaves out (`</td>`, `</tr>`, `class=v`) are left out: a
//!   page may have thousands.
//!
//! # Not here
//! No choice of rows or axis.

use std::fmt::Write;

use super::markup::{ARM_SIGNS, escape};
use super::plot::{self, Marks};
use crate::definition::Direction;
use crate::forest::Axis;
use crate::format;
use crate::report::{ArmValue, Call, Comparison, MetricReport, Report, Scale};

/// Which columns a table has beside those it always has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Columns {
    /// With two or more treatment arms each row names its own.
    pub(super) arms: bool,
    /// Some comparison, perhaps of another choice, has a variance reduction.
    pub(super) reduction: bool,
    pub(super) series: bool,
    /// Beliefs instead of p-values.
    pub(super) bayesian: bool,
}

impl Columns {
    pub(super) fn of(report: &Report) -> Self {
        let own = report.metrics.iter().flat_map(|metric| &metric.comparisons);
        let other = report.alternatives.iter().flat_map(|view| view.comparisons.iter().flatten());
        Self {
            arms: report.arms.len() > 2,
            reduction: own.chain(other).any(|c| c.variance_reduction.is_some()),
            series: report.metrics.iter().any(|metric| !metric.series.is_empty()),
            bayesian: report.inference == "bayesian",
        }
    }

    /// `of2`: beside the third arm, whose sign stands for it where there is no room for names.
    pub(super) fn table_class(self, report: &Report) -> String {
        let mut class = format!("effects of{}", report.control() % ARM_SIGNS);
        for (has, name) in [(self.arms, " many"), (self.bayesian, " belief")] {
            class.push_str(if has { name } else { "" });
        }
        class
    }

    pub(super) fn count(self) -> usize {
        6 + usize::from(self.arms) + usize::from(self.reduction) + usize::from(self.series)
    }
}

/// A table's axis: lifts share one, differences have one per metric.
pub(super) fn shared_axis<'m>(metrics: impl Iterator<Item = &'m MetricReport>) -> Axis {
    let lifts: Vec<_> = metrics
        .flat_map(|metric| &metric.comparisons)
        .filter(|comparison| comparison.scale == Scale::Relative)
        .filter_map(|comparison| comparison.relative.ok())
        .collect();
    Axis::over(lifts.iter())
}

/// The table's head.
pub(super) fn head(out: &mut String, report: &Report, columns: Columns, label: &str, axis: &Axis) {
    let control = escape(&report.arms[report.control()].name);
    let treatment = report.arms.iter().find(|arm| !arm.control);
    let treatment = treatment.map_or("value".into(), |arm| escape(&arm.name));
    let _ = write!(out, "<thead><tr><th scope=\"col\">{label}</th>");
    let _ = write!(out, "<th scope=\"col\" class=\"c\">{control}</th>");
    let _ = match columns.arms {
        true => write!(out, "<th scope=\"col\" class=\"a\">arm</th><th scope=\"col\">value</th>"),
        false => write!(out, "<th scope=\"col\">{treatment}</th>"),
    };
    let reach = format::signed_percent(axis.reach);
    let _ = write!(
        out,
        "<th scope=\"col\" class=\"e\"><span class=\"scale\">lift</span> \
         <small>{} interval</small></th><th scope=\"col\" class=\"g\">{}</th>",
        format::coverage(report.alpha),
        plot::axis(&format::signed_percent(-axis.reach), &reach)
    );
    let p = if columns.bayesian { "chance to win" } else { "p" };
    let _ = write!(out, "<th scope=\"col\" class=\"p\">{p}</th>");
    if columns.reduction {
        out.push_str(
            "<th scope=\"col\" class=\"r\"><abbr title=\"share of the variance that CUPED or \
             strata removed\">variance</abbr></th>",
        );
    }
    if columns.series {
        out.push_str("<th scope=\"col\" class=\"s\">by day</th>");
    }
    out.push_str("</tr></thead>\n");
}

/// All rows of one metric or value. `label`: the first cell's markup.
pub(super) fn write(
    out: &mut String,
    report: &Report,
    columns: Columns,
    metric: &MetricReport,
    label: &str,
    axis: &Axis,
    overall: Option<&MetricReport>,
) {
    let many = metric.comparisons.len();
    let span = if many > 1 { format!(" rowspan={many}") } else { String::new() };
    for (index, comparison) in metric.comparisons.iter().enumerate() {
        let _ = write!(out, "<tr class={}>", call_class(comparison.call));
        if index == 0 {
            let scope = if many > 1 { "rowgroup" } else { "row" };
            let control = &metric.values[report.control()];
            let _ = write!(
                out,
                "<th scope={scope} class=n{span}>{label}<td class=c{span}>{}",
                value_cell(control, metric)
            );
        }
        if columns.arms {
            let name = escape(&report.arms[comparison.arm].name);
            let _ = write!(out, "<td class=\"a arm{}\">{name}", comparison.arm % ARM_SIGNS);
        }
        let value = value_cell(&metric.values[comparison.arm], metric);
        let _ = write!(out, "<td class=v>{value}");
        let overall = overall.and_then(|all| all.comparisons.get(index));
        effect_cells(out, metric, comparison, axis, overall);
        let _ = write!(out, "<td class=p>{}", p_cell(columns, comparison));
        if columns.reduction {
            let reduction = comparison.variance_reduction;
            let words = reduction.map_or("–".into(), reduction_words);
            let _ = write!(out, "<td class=r>{words}");
        }
        if columns.series {
            let points = metric.series.get(index).map_or(&[][..], |series| &series.points);
            let _ = write!(out, "<td class=s>{}", plot::spark(points));
            if let Some(Some(last)) = points.last() {
                let _ = write!(
                    out,
                    "<small>{}</small>",
                    format::effect(last.effect, comparison.scale, metric.is_share)
                );
            }
        }
        out.push('\n');
    }
}

/// A share of the variance as the change it is.
fn reduction_words(share: f64) -> String {
    if share > 0.0 {
        format!("−{}", format::percent(share, 1))
    } else {
        format!("+{}", format::percent(-share, 1))
    }
}

fn effect_cells(
    out: &mut String,
    metric: &MetricReport,
    comparison: &Comparison,
    axis: &Axis,
    overall: Option<&Comparison>,
) {
    let estimate = match comparison.estimate() {
        Ok(estimate) => estimate,
        Err(error) => {
            let reason = escape(&error.to_string());
            let _ = write!(out, "<td class=e>–<td class=g><small>no estimate: {reason}</small>");
            return;
        }
    };
    let on = |value| format::effect(value, comparison.scale, metric.is_share);
    let _ = write!(
        out,
        "<td class=e><b>{}</b> <small>[{}, {}]</small>",
        on(estimate.value),
        on(estimate.low),
        on(estimate.high)
    );
    let relative = comparison.scale == Scale::Relative;
    // A difference has a unit, so it cannot share the lifts' axis.
    let of_differences = metric.comparisons.iter().filter(|c| c.scale == Scale::Absolute);
    let differences: Vec<_> = of_differences.filter_map(|c| c.absolute.ok()).collect();
    let own = Axis::over(differences.iter());
    let margin = comparison.non_inferiority.filter(|_| relative).map(|ni| match metric.direction {
        Direction::Increase => -ni.margin,
        Direction::Decrease => ni.margin,
    });
    let same_scale = overall.filter(|all| all.scale == comparison.scale);
    let overall = same_scale.and_then(|all| Some(all.estimate().ok()?.value));
    let axis = if relative { axis } else { &own };
    let drawing = plot::interval(axis, !relative, &estimate, Marks { margin, overall });
    let _ = write!(out, "<td class=g>{drawing}");
}

/// The value, and in grey what it is made of.
fn value_cell(value: &ArmValue, metric: &MetricReport) -> String {
    let mut out = format::value(value.value, metric.is_share);
    if let (Some(numerator), Some(denominator)) = (value.numerator, value.denominator) {
        let (numerator, denominator) = (total(numerator), total(denominator));
        let _ = write!(out, " <small>{numerator} / {denominator}</small>");
    }
    out
}

/// A sum or count: whole where it is large.
fn total(value: f64) -> String {
    if (0.0..1e15).contains(&value) && (value.fract() == 0.0 || value >= 1000.0) {
        format::count(value.round() as u64)
    } else {
        format::plain(value)
    }
}

pub(super) fn p_cell(columns: Columns, comparison: &Comparison) -> String {
    let Ok(estimate) = comparison.estimate() else {
        return "–".into();
    };
    let mut out = match (columns.bayesian, comparison.belief) {
        (true, Some(belief)) => {
            let chance = format::percent(belief.chance_to_win, 1);
            let risk =
                format::effect(belief.risk_of_arm, comparison.scale, false).replace(['+', '±'], "");
            format!("{chance} <small>risk\u{a0}{}</small>", risk.replace(' ', "\u{a0}"))
        }
        _ => format::p_value(estimate.p),
    };
    if let Some(adjusted) = comparison.p_adjusted.filter(|p| !columns.bayesian && *p != estimate.p)
    {
        let _ = write!(out, " <small>adj.\u{a0}{}</small>", format::p_value(adjusted));
    }
    if let Some(ni) = comparison.non_inferiority {
        let words = if ni.holds { "within" } else { "not within" };
        let _ = write!(
            out,
            " <small>{words} {}, p\u{a0}{}</small>",
            format::percent(ni.margin, 1).replace(' ', "\u{a0}"),
            format::p_value(ni.p)
        );
    }
    if let Some(check) = comparison.equivalence {
        let words = if check.holds { "equivalent" } else { "not shown equivalent" };
        let _ = write!(
            out,
            " <small>{words} within ±{}, p\u{a0}{}</small>",
            format::percent(check.margin, 1).replace(' ', "\u{a0}"),
            format::p_value(check.p)
        );
    }
    out
}

/// The row's class; the style sheet gives it a colour, a sign and a word.
pub(super) fn call_class(call: Call) -> &'static str {
    match call {
        Call::Better => "better",
        Call::Worse => "worse",
        Call::Inconclusive => "open",
        Call::Unavailable => "none",
        Call::Untrusted => "untrusted",
    }
}
