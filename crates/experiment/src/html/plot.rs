//! Drawings of effects as SVG: an interval on an axis, and its path over the days.
//!
//! # Invariants
//! - `data-ci`, its low end, value and high end, on `-data-reach..data-reach`, of the drawing or else of
//!   the table, gives the coordinates.
//! - The zero line is the middle, drawn by the style sheet.
//!
//! # Not here
//! No axis is chosen here (`forest`). report.js draws the same for other choices of a reader.

use std::fmt::Write;

use crate::effect::Estimate;
use crate::forest::Axis;
use crate::report::Point;

/// Width of an interval's drawing in its own units; the page scales it.
const WIDTH: f64 = 240.0;
/// Room at both ends for arrows and round dots.
const MARGIN: f64 = 6.0;
/// Width and half the height of a path over the days.
const SPARK: [f64; 2] = [96.0, 12.0];
/// One per eight pixels shows the path, and fifty metrics fit in the page.
const MAX_SPARK_POINTS: usize = 12;

/// Other places on the axis.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Marks {
    /// Where being worse becomes too much.
    pub(super) margin: Option<f64>,
    /// The effect on everyone, beside one on some.
    pub(super) overall: Option<f64>,
}

/// The interval. `own`: the axis is not the table's, so the drawing says its reach. A page may
/// have a thousand of these, so the style sheet has all that they share.
pub(super) fn interval(axis: &Axis, own: bool, estimate: &Estimate, marks: Marks) -> String {
    let drawn = axis.draw(estimate);
    let (low, value, high) = (x(drawn.low), x(drawn.value), x(drawn.high));
    let mut out = String::from("<svg viewBox=\"0 0 240 24\"");
    if own {
        let _ = write!(out, " data-reach=\"{}\"", short(axis.reach));
    }
    let _ = write!(
        out,
        " data-ci=\"{} {} {}\">",
        drawn_short(estimate.low),
        drawn_short(estimate.value),
        drawn_short(estimate.high)
    );
    for (class, at) in [("ni", marks.margin), ("all", marks.overall)] {
        if let Some(at) = at.filter(|at| at.abs() <= axis.reach) {
            let at = x(axis.position(at));
            let _ = write!(out, "<path class=\"{class}\" d=\"M{at} 1v22\"/>");
        }
    }
    // An arrow where the interval goes on, a bar where it ends.
    let start = if drawn.low_clipped { "12m5-5l-5 5l5 5m-5-5" } else { "8v8m0-4" };
    let end = if drawn.high_clipped { "m-5-5l5 5l-5 5" } else { "m0-4v8" };
    let _ = write!(out, "<path d=\"M{low} {start}H{high}{end}\"/>");
    if !drawn.value_clipped {
        let _ = write!(out, "<circle cx=\"{value}\"/>");
    }
    out.push_str("</svg>");
    out
}

/// Position on the axis in the drawing's units, to a tenth.
fn x(position: f64) -> f64 {
    ((MARGIN + position * (WIDTH - 2.0 * MARGIN)) * 10.0).round() / 10.0
}

/// The axis's ends and middle, above the drawings.
pub(super) fn axis(left: &str, right: &str) -> String {
    format!("<span class=\"ax\"><span>{left}</span><span>0</span><span>{right}</span></span>")
}

/// The effect as of each day, or of every other, about the zero line, with a dot at its end. The first fifth of the days
/// is cut off at the edges if need be: few users make large effects.
pub(super) fn spark(points: &[Option<Point>]) -> String {
    let points = thinned(points);
    let points = points.as_slice();
    let settled = points.len() / 5;
    let reach = |points: &[Option<Point>]| {
        points.iter().flatten().map(|point| point.effect.abs()).fold(0.0, f64::max)
    };
    let known = points.iter().flatten().count();
    let late = reach(&points[settled..]);
    let reach = if late > 0.0 { late } else { reach(points) };
    if known < 2 || reach == 0.0 {
        return String::new();
    }
    let [width, half] = SPARK;
    let step = (width - 6.0) / (points.len() - 1) as f64;
    let mut path = String::new();
    let mut at = (0, 0);
    let mut down = false;
    for (index, point) in points.iter().enumerate() {
        let Some(point) = point else {
            down = false;
            continue;
        };
        let here = (
            (3.0 + index as f64 * step).round() as i64,
            (14.0 - (point.effect / reach).clamp(-1.0, 1.0) * half).round() as i64,
        );
        let (right, below) = (here.0 - at.0, here.1 - at.1);
        let _ = match (down, below < 0) {
            (false, _) => write!(path, "M{} {}l", here.0, here.1),
            // A minus sign needs no space before it.
            (true, true) => write!(path, "{right}{below} "),
            (true, false) => write!(path, "{right} {below} "),
        };
        (at, down) = (here, true);
    }
    let path = path.trim_end();
    format!("<svg viewBox=\"0 0 96 28\"><path d=\"{path}\"/><circle cy=\"{}\"/></svg>", at.1)
}

/// At most [`MAX_SPARK_POINTS`], the last among them.
fn thinned(points: &[Option<Point>]) -> Vec<Option<Point>> {
    let step = points.len().div_ceil(MAX_SPARK_POINTS).max(1);
    let mut kept: Vec<Option<Point>> = points.iter().rev().step_by(step).copied().collect();
    kept.reverse();
    kept
}

/// Six significant digits are finer than a pixel and shorter than seventeen.
pub(super) fn short(value: f64) -> f64 {
    significant(value, 6)
}

/// Four are finer than a pixel of a drawing, of which there are many.
fn drawn_short(value: f64) -> f64 {
    significant(value, 4)
}

/// `value` to so many significant digits.
pub(super) fn significant(value: f64, digits: usize) -> f64 {
    // Writing and reading is the rounding that cannot overflow or drift.
    format!("{value:.*e}", digits - 1).parse().unwrap_or(value)
}
