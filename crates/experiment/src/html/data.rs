//! The report's numbers inside the page, small enough for fifty metrics.
//!
//! Two elements of JSON. `report` is the report without moments, the daily series and the long texts of
//! `reproduce`, numbers to six digits, keys and long texts once: `{shapes, words, value}`, where
//! an object is `[n, values...]` with the keys `shapes[n]`, an array `[-1, items...]`, a long text
//! `[-2, n]` for `words[n]`. In Python:
//!
//! ```text
//! def unpack(v):
//!     if not isinstance(v, list): return v
//!     if v[0] == -2: return words[v[1]]
//!     rest = [unpack(x) for x in v[1:]]
//!     return rest if v[0] < 0 else dict(zip(shapes[v[0]], rest))
//! ```
//!
//! `views` is what the switches and charts show:
//!
//! - `views`: per baseline `b` and CUPED choice `c`, and per metric, the comparisons
//!   `[relative, absolute, impact, reduction, once, any]`. An effect is `[value, w, w]`, the
//!   half-widths of its interval (`[down, up]` if they differ) if one looks once and at any time,
//!   or the reason for having none. `impact` times the absolute effect is the impact; 1 stands for
//!   the users of all arms. 0 in place of a list is that of the other way round: an absolute effect
//!   with the opposite sign, a relative one as 1 / (1 + lift) - 1.
//!   A comparison `[once, any]` is that of the other way round but for these, and they may lack their p.
//!   A comparison `[0, relative w, absolute w, any]` is the report's own if one looks once, and has what is
//!   left for any time; `[1, relative w, absolute w, once]` the other way round.
//!   Where lifts have a test of their own, the p of the difference if one looks once and at any time follows.
//!   `once` and `any` are `[p, adjusted p, call, margin holds, margin p]`; 8 is added to the call
//!   if the absolute effect decides. 0 in place of the comparisons of a metric: as with CUPED.
//! - `series`: per metric the control's line, then per arm the lines value (0 if the control's and the
//!   effect on the comparison's scale make it), effect, its half-width
//!   (once, any time, both smooth), then how many of the first half-widths the detectable effect is (one number if
//!   that is nearly the same every day), then of an interval that is not symmetric by how many of its
//!   half-widths squared its middle lies above the effect (once, any time; one number likewise).
//!   A line is `[min, max, text]`: of the first two characters per day for 0 to 7,223 of the way,
//!   7,224 is no number; of the others one, for 0 to 83, and 84. A smooth line is `[last, text]`: from the
//!   last day to the first, the logarithm of its ratio to `last` in 1/2,000, less what goes straight on
//!   from the two days after, plus 42, as one character; if that is not in 0 to 83, then the 84th and two
//!   for it plus 3,612 (of what goes straight on, not plus 42), 7,224 is no number.
//!
//! # Not here
//! No reading: report.js does.

use serde_json::{Value, json};

use super::plot::significant;
use crate::effect::{Estimate, StatsError};
use crate::report::{Call, Comparison, MetricReport, Point, Report, Scale};

/// Digits of effects, half-widths and p-values: more than the page shows.
const REPORT_DIGITS: usize = 6;
const DIGITS: usize = 5;
const WIDTH_DIGITS: usize = 4;
/// Of differences more: their totals are shown to the last whole number.
const DIFFERENCE_MORE: usize = 1;
const P_DIGITS: usize = 3;
/// Digits of a series' ends; between them lie 7,223 steps.
const LINE_DIGITS: usize = 4;

/// A text of this length or more is said once and then by its place.
const LONG_WORDS: usize = 12;

/// Characters that need no escape in JSON and none in HTML: from `(` to `~` without `<` and `\`.
fn letters() -> Vec<char> {
    ('('..='~').filter(|c| !['<', '\\'].contains(c)).collect()
}

/// The element `report`.
pub(super) fn report(report: &Report) -> String {
    let mut value = serde_json::to_value(report).unwrap_or_default();
    let metrics = value.get_mut("metrics").and_then(Value::as_array_mut);
    for metric in metrics.into_iter().flatten().filter_map(Value::as_object_mut) {
        metric.remove("series");
        metric.remove("moments");
    }
    if let Some(again) = value.get_mut("reproduce").and_then(Value::as_object_mut) {
        again.remove("definition");
        again.remove("sql");
    }
    let mut once = Once::default();
    let value = once.packed(value);
    json!({ "shapes": once.shapes, "words": once.words, "value": value }).to_string()
}

/// What is said once.
#[derive(Default)]
struct Once {
    shapes: Vec<Vec<String>>,
    words: Vec<String>,
}

impl Once {
    fn packed(&mut self, value: Value) -> Value {
        match value {
            Value::Array(items) => {
                let rest: Vec<Value> = items.into_iter().map(|item| self.packed(item)).collect();
                Value::Array(std::iter::once(json!(-1)).chain(rest).collect())
            }
            Value::Object(fields) => {
                let shape = place(&mut self.shapes, fields.keys().cloned().collect());
                let rest: Vec<Value> = fields.into_iter().map(|(_, v)| self.packed(v)).collect();
                Value::Array(std::iter::once(json!(shape)).chain(rest).collect())
            }
            Value::String(text) if text.len() >= LONG_WORDS => {
                json!([-2, place(&mut self.words, text)])
            }
            Value::Number(number) if number.is_f64() => {
                number.as_f64().map_or(Value::Null, |value| figure(value, REPORT_DIGITS))
            }
            other => other,
        }
    }
}

/// Where `item` stands in `list`, at the end if it is new. Lists are short: a report has a dozen
/// shapes and a few texts per metric.
fn place<T: PartialEq>(list: &mut Vec<T>, item: T) -> usize {
    list.iter().position(|known| *known == item).unwrap_or_else(|| {
        list.push(item);
        list.len() - 1
    })
}

/// A number to so many digits, whole ones without ".0".
fn figure(value: f64, digits: usize) -> Value {
    let rounded = significant(value, digits);
    // Whole numbers up to 2^53 are the same as f64 and i64.
    if rounded.fract() == 0.0 && rounded.abs() < 9e15 {
        return json!(rounded as i64);
    }
    json!(rounded)
}

/// The element `views`.
pub(super) fn views(report: &Report) -> String {
    let series: Vec<Value> = report.metrics.iter().map(series).collect();
    let letters: String = letters().iter().collect();
    json!({ "letters": letters, "views": choices(report), "series": series }).to_string()
}

/// One choice of baseline and CUPED.
struct Choice {
    baseline: usize,
    cuped: bool,
    /// Per metric and comparison.
    rows: Vec<Vec<Value>>,
    /// Likewise what is left of those that the report has.
    beside: Vec<Vec<Option<Value>>>,
}

/// One entry per baseline and CUPED choice, those without CUPED after those with; what an entry
/// before it says already is 0.
fn choices(report: &Report) -> Vec<Value> {
    let all: Vec<Choice> = (0..report.arms.len())
        // Two arms the other way round tell nothing new.
        .filter(|baseline| report.arms.len() > 2 || *baseline == report.control())
        .flat_map(|baseline| [(baseline, true), (baseline, false)])
        .filter_map(|(baseline, cuped)| choice(report, baseline, cuped))
        .collect();
    let find = |baseline: usize, cuped: bool| {
        all.iter().find(|choice| choice.baseline == baseline && choice.cuped == cuped)
    };
    let short = |choice: &Choice, metric: usize| {
        let row = &choice.rows[metric];
        let adjusted = find(choice.baseline, true).filter(|_| !choice.cuped);
        if adjusted.is_some_and(|adjusted| adjusted.rows[metric] == *row) {
            return json!(0);
        }
        let said = |(index, value): (usize, &Value)| {
            if let Some(beside) = &choice.beside[metric][index] {
                return beside.clone();
            }
            // Comparisons are with all arms but the baseline, in their order.
            let arm = if index < choice.baseline { index } else { index + 1 };
            let other = find(arm, choice.cuped).filter(|_| arm < choice.baseline);
            let mut value = value.clone();
            if let Some(other) = other.map(|other| &other.rows[metric][choice.baseline - 1]) {
                if other[1] == mirrored(&value[1]) {
                    value[1] = json!(0);
                }
                if inverted(&other[0]).is_some_and(|inverted| is_alike(&inverted, &value[0])) {
                    value[0] = json!(0);
                }
                if value[0] == 0 && value[1] == 0 && value[2] == other[2] && value[3] == other[3] {
                    return turned(&value, other);
                }
            }
            value
        };
        Value::Array(row.iter().enumerate().map(said).collect())
    };
    let entry = |choice: &Choice| {
        let rows: Vec<Value> = (0..choice.rows.len()).map(|metric| short(choice, metric)).collect();
        json!({ "b": choice.baseline, "c": u8::from(choice.cuped), "m": rows })
    };
    all.iter().map(entry).collect()
}

fn choice(report: &Report, baseline: usize, cuped: bool) -> Option<Choice> {
    let users = report.arms.iter().map(|arm| arm.users).sum();
    let find = |anytime: bool| {
        let mut views = report.alternatives.iter();
        let view = views
            .find(|view| (view.baseline, view.cuped, view.anytime) == (baseline, cuped, anytime));
        view.map(|view| &view.comparisons)
    };
    let looks = [find(false), find(true)];
    let base = looks[0].or(looks[1])?;
    let row = |(metric, row): (usize, &Vec<Comparison>)| {
        let pack = |(index, base): (usize, &Comparison)| {
            let [once, any] = looks.map(|look| look?.get(metric)?.get(index));
            comparison(base, once, any, users)
        };
        row.iter().enumerate().map(pack).collect()
    };
    let beside = |(metric, row): (usize, &Vec<Comparison>)| {
        let pack = |index: usize| {
            let own = report.metrics[metric].comparisons.get(index);
            let own = own.filter(|_| baseline == report.control());
            match looks.map(|look| look?.get(metric)?.get(index)) {
                [once, Some(any)] if once.is_some() && once == own => Some(beside(0, any)),
                [Some(once), any] if any.is_some() && any == own => Some(beside(1, once)),
                _ => None,
            }
        };
        (0..row.len()).map(pack).collect()
    };
    Some(Choice {
        baseline,
        cuped,
        rows: base.iter().enumerate().map(row).collect(),
        beside: base.iter().enumerate().map(beside).collect(),
    })
}

/// What is left of a comparison the other way round: its looks, without a p that is the same.
fn turned(value: &Value, other: &Value) -> Value {
    let Some(looks) = value.as_array().and_then(|parts| parts.get(4..)) else {
        return value.clone();
    };
    if looks.len() != 2 {
        return value.clone();
    }
    let looks = looks.iter().zip([&other[4], &other[5]]);
    looks
        .map(|(own, other)| match own.as_array().map(Vec::as_slice) {
            Some([p, adjusted, call]) if *p == other[0] => json!([adjusted, call]),
            _ => own.clone(),
        })
        .collect()
}

/// Value, low and high of an effect's looks.
fn ends(effect: &Value) -> Option<Vec<[f64; 3]>> {
    let [value, widths @ ..] = effect.as_array()?.as_slice() else { return None };
    let value = value.as_f64()?;
    let of = |width: &Value| match width.as_array().map(Vec::as_slice) {
        Some([down, up]) => Some([value, value - down.as_f64()?, value + up.as_f64()?]),
        _ => width.as_f64().map(|width| [value, value - width, value + width]),
    };
    widths.iter().map(of).collect()
}

/// The lift the other way round, if neither end is a fall by all there is: Fieller's interval of a ratio is that
/// of its inverse.
fn inverted(effect: &Value) -> Option<Vec<[f64; 3]>> {
    let turn = |lift: f64| (lift > -1.0).then(|| 1.0 / (1.0 + lift) - 1.0);
    let looks = ends(effect)?.into_iter();
    looks.map(|[value, low, high]| Some([turn(value)?, turn(high)?, turn(low)?])).collect()
}

/// Close enough to be read from: with CUPED, and by the delta method, lifts are not each other's inverse.
fn is_alike(found: &[[f64; 3]], effect: &Value) -> bool {
    let Some(own) = ends(effect).filter(|own| own.len() == found.len()) else { return false };
    own.iter().zip(found).all(|(own, found)| {
        let room = 2e-4 * (own[2] - own[1]);
        own.iter().zip(found).all(|(own, found)| (own - found).abs() <= room)
    })
}

/// The difference the other way round.
fn mirrored(effect: &Value) -> Value {
    let Some([value, widths @ ..]) = effect.as_array().map(Vec::as_slice) else {
        return Value::Null;
    };
    let value =
        value.as_f64().map_or(Value::Null, |value| figure(-value, DIGITS + DIFFERENCE_MORE));
    let turned = widths.iter().map(|width| match width.as_array().map(Vec::as_slice) {
        Some([down, up]) => json!([up, down]),
        _ => width.clone(),
    });
    std::iter::once(value).chain(turned).collect()
}

fn comparison(
    base: &Comparison,
    once: Option<&Comparison>,
    any: Option<&Comparison>,
    users: u64,
) -> Value {
    let on = |scale: Scale| {
        let of = |comparison: &Comparison| match scale {
            Scale::Relative => comparison.relative,
            Scale::Absolute => comparison.absolute,
        };
        let more = if scale == Scale::Absolute { DIFFERENCE_MORE } else { 0 };
        effect(of(base), once.map(of), any.map(of), more)
    };
    let mut out = vec![
        on(Scale::Relative),
        on(Scale::Absolute),
        impact(base, users),
        base.variance_reduction.map_or(Value::Null, |share| figure(share, P_DIGITS)),
        once.map_or(Value::Null, look),
        any.map_or(Value::Null, look),
    ];
    let looks = [once, any].map(|look| look.and_then(p_of_difference));
    if looks.iter().any(Option::is_some) {
        out.extend(looks.map(|p| p.map_or(Value::Null, |p| figure(p, P_DIGITS))));
    }
    Value::Array(out)
}

/// Where lifts have a test of their own.
fn p_of_difference(comparison: &Comparison) -> Option<f64> {
    let (lift, difference) = (comparison.relative.ok()?, comparison.absolute.ok()?);
    let own = comparison.scale == Scale::Relative && lift.p != difference.p;
    own.then_some(difference.p)
}

/// One look beside the other, which is the report's own.
fn beside(own: u8, other: &Comparison) -> Value {
    let width = |outcome: Outcome, more: usize| match effect(outcome, Some(outcome), None, more) {
        Value::Array(mut numbers) => numbers.swap_remove(1),
        reason => reason,
    };
    let mut out = vec![
        json!(own),
        width(other.relative, 0),
        width(other.absolute, DIFFERENCE_MORE),
        look(other),
    ];
    out.extend(p_of_difference(other).map(|p| figure(p, P_DIGITS)));
    Value::Array(out)
}

type Outcome = Result<Estimate, StatsError>;

fn effect(base: Outcome, once: Option<Outcome>, any: Option<Outcome>, more: usize) -> Value {
    let value = match base {
        Ok(estimate) => estimate.value,
        Err(error) => return json!(error.to_string()),
    };
    let reach = |outcome: Option<Outcome>| match outcome {
        Some(Ok(e)) => half_width(e.value, e.low, e.high, WIDTH_DIGITS + more),
        Some(Err(error)) => json!(error.to_string()),
        None => Value::Null,
    };
    json!([figure(value, DIGITS + more), reach(once), reach(any)])
}

fn half_width(value: f64, low: f64, high: f64, digits: usize) -> Value {
    let (down, up) = (value - low, high - value);
    if is_close(down, up) {
        return figure(up, digits);
    }
    json!([figure(down, digits), figure(up, digits)])
}

/// Equal but for the last bits of the subtractions that made them.
fn is_close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * a.abs().max(b.abs())
}

/// What an absolute effect is multiplied by to be an impact: the users of all arms.
fn impact(comparison: &Comparison, users: u64) -> Value {
    match (comparison.impact, comparison.absolute) {
        (Some(impact), Ok(estimate)) if estimate.high != estimate.low => {
            let times = (impact.high - impact.low) / (estimate.high - estimate.low);
            if is_close(times, users as f64) { json!(1) } else { figure(times, DIGITS) }
        }
        _ => Value::Null,
    }
}

fn look(comparison: &Comparison) -> Value {
    let p = comparison.estimate().map_or(Value::Null, |e| figure(e.p, P_DIGITS));
    let adjusted = comparison.p_adjusted.map_or(Value::Null, |p| figure(p, P_DIGITS));
    let call = match comparison.call {
        Call::Better => 0,
        Call::Worse => 1,
        Call::Inconclusive => 2,
        Call::Unavailable => 3,
        Call::Untrusted => 4,
    };
    let absolute = if comparison.scale == Scale::Absolute { 8 } else { 0 };
    let mut out = vec![p, adjusted, json!(call + absolute)];
    if let Some(ni) = comparison.non_inferiority {
        out.push(json!(u8::from(ni.holds)));
        out.push(figure(ni.p, P_DIGITS));
    }
    Value::Array(out)
}

fn series(metric: &MetricReport) -> Value {
    let Some(first) = metric.series.first() else {
        return json!(0);
    };
    let mut out = vec![line(first.points.iter().map(|point| point.map(|p| p.control)), 2)];
    for series in &metric.series {
        let of = |number: fn(&Point) -> f64| {
            line(series.points.iter().map(|point| point.as_ref().map(number)), 2)
        };
        // Without CUPED the arm's value follows from the control's and the effect.
        let follows = |p: &Point| {
            let of_difference = p.treatment - p.control - p.effect;
            let of_lift = p.treatment / p.control - 1.0 - p.effect;
            of_difference.abs().min(of_lift.abs() * p.control.abs()) <= 1e-9 * p.treatment.abs()
        };
        let follows = series.points.iter().flatten().all(follows);
        let mut lines = vec![
            if follows { json!(0) } else { of(|p| p.treatment) },
            of(|p| p.effect),
            smooth(&series.points, |p| 0.5 * (p.high - p.low)),
            smooth(&series.points, |p| 0.5 * (p.anytime_high - p.anytime_low)),
            detectable(&series.points),
        ];
        let even = |p: &Point| {
            is_close(p.effect - p.low, p.high - p.effect)
                && is_close(p.effect - p.anytime_low, p.anytime_high - p.effect)
        };
        if !series.points.iter().flatten().all(even) {
            let above = |p: &Point, low: f64, high: f64| {
                let half = 0.5 * (high - low);
                (0.5 * (high + low) - p.effect) / (half * half)
            };
            let half = |low: f64, high: f64| 0.5 * (high - low);
            lines.push(skew(&series.points, |p| (above(p, p.low, p.high), half(p.low, p.high))));
            lines.push(skew(&series.points, |p| {
                (above(p, p.anytime_low, p.anytime_high), half(p.anytime_low, p.anytime_high))
            }));
        }
        out.push(Value::Array(lines));
    }
    Value::Array(out)
}

/// The detectable effect in half-widths: one number if it is nearly the same every day. Student's quantile
/// moves by 0.2 % from 700 users to infinity, a third of a pixel. On the first fifth of the days, which a
/// chart may cut off, 3 % are near enough.
fn detectable(points: &[Option<Point>]) -> Value {
    let times = |point: &Point| 2.0 * point.detectable / (point.high - point.low);
    let of_days = points.iter().map(|point| point.as_ref().map(times));
    let Some(last) = of_days.clone().rev().flatten().next() else { return line(of_days, 1) };
    let near = |(day, of_day): (usize, Option<f64>)| {
        let room = if day < points.len() / 5 { 0.03 } else { 0.003 };
        of_day.is_none_or(|of_day| (of_day / last - 1.0).abs() < room)
    };
    let even = of_days.clone().enumerate().all(near);
    if even && last.is_finite() { figure(last, LINE_DIGITS) } else { line(of_days, 1) }
}

/// How far an interval's middle lies above the effect, with its half-width: one number, the last day's, if that
/// moves no end by more than 0.15 % of a half-width, a tenth of a pixel; on the first fifth of the days 1 %.
fn skew(points: &[Option<Point>], of: impl Fn(&Point) -> (f64, f64)) -> Value {
    let of_days: Vec<Option<(f64, f64)>> =
        points.iter().map(|point| point.as_ref().map(&of)).collect();
    let last = of_days.iter().rev().flatten().next().map(|(above, _)| *above);
    let near = |last: f64, (day, of_day): (usize, &Option<(f64, f64)>)| {
        let room = if day < points.len() / 5 { 0.01 } else { 0.0015 };
        of_day.is_none_or(|(above, half)| (above - last).abs() * half < room)
    };
    match last.filter(|last| last.is_finite()) {
        Some(last) if of_days.iter().enumerate().all(|day| near(last, day)) => {
            figure(last, LINE_DIGITS)
        }
        _ => line(of_days.iter().map(|day| day.map(|(above, _)| above)), 1),
    }
}

/// Steps of a smooth line's logarithms: a half-width is right to 0.025 %.
const SMOOTH_STEPS: f64 = 2000.0;
/// In the middle of what one letter, and two, can say.
const ONE_LETTER: i64 = 42;
const TWO_LETTERS: i64 = 3612;

/// A line of numbers above 0 that change little from day to day; see the module.
fn smooth(points: &[Option<Point>], of: impl Fn(&Point) -> f64) -> Value {
    let of_days: Vec<Option<f64>> = points.iter().map(|point| point.as_ref().map(&of)).collect();
    let Some(last) = of_days.iter().rev().flatten().next().copied().filter(|last| *last > 0.0)
    else {
        return line(of_days.iter().copied(), 2);
    };
    let last = significant(last, LINE_DIGITS + 1);
    let letters = letters();
    let base = letters.len() as i64;
    let mut text = String::new();
    let (mut after, mut second) = (0, 0);
    for of_day in of_days.iter().rev() {
        let straight = 2 * after - second;
        let step = of_day.map(|own| ((own / last).ln() * SMOOTH_STEPS).round() as i64 - straight);
        match step {
            Some(step) if (-ONE_LETTER..ONE_LETTER).contains(&step) => {
                text.push(letters[(step + ONE_LETTER) as usize]);
                (after, second) = (straight + step, after);
            }
            Some(step) => {
                let step = step.clamp(-TWO_LETTERS, TWO_LETTERS - 1);
                let place = step + TWO_LETTERS;
                text.extend([base - 1, place / base, place % base].map(|l| letters[l as usize]));
                (after, second) = (straight + step, after);
            }
            None => text.extend([base - 1; 3].map(|l| letters[l as usize])),
        }
    }
    json!([last, text])
}

/// A line over the days, of one or two letters each; see the module.
fn line(points: impl Iterator<Item = Option<f64>> + Clone, letters_a_day: u32) -> Value {
    let letters = letters();
    let base = letters.len();
    let steps = base.pow(letters_a_day) - 2;
    let known = points.clone().flatten();
    let (least, most) =
        known.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| (a.min(x), b.max(x)));
    // Of 84 steps three digits are enough.
    let digits = if letters_a_day == 1 { LINE_DIGITS - 1 } else { LINE_DIGITS };
    let (least, most) = (significant(least, digits), significant(most, digits));
    let range = if most > least { most - least } else { 1.0 };
    let text: String = points
        .flat_map(|point| {
            let place = point.map_or(steps + 1, |x| {
                (((x - least) / range).clamp(0.0, 1.0) * steps as f64).round() as usize
            });
            let pair = [letters[place / base % base], letters[place % base]];
            pair.into_iter().skip(2 - letters_a_day as usize)
        })
        .collect();
    if least.is_finite() { json!([least, most, text]) } else { json!([0, 0, text]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_eighty_five_and_need_no_escape() {
        let letters = letters();
        assert_eq!(letters.len(), 85);
        let text: String = letters.iter().collect();
        assert_eq!(json!(text).to_string().len(), 87);
        assert!(!text.contains(['<', '&', '"']));
    }

    #[test]
    fn a_line_reads_back_to_a_part_in_seven_thousand() {
        let points = [Some(-1.0), None, Some(0.37), Some(3.0)];
        let line = line(points.iter().copied(), 2);
        let text: Vec<char> = line[2].as_str().expect("text").chars().collect();
        let place = |pair: &[char]| {
            let index = |c: char| letters().iter().position(|l| *l == c).expect("a letter");
            index(pair[0]) * 85 + index(pair[1])
        };
        for (pair, point) in text.chunks(2).zip(points) {
            match point {
                None => assert_eq!(place(pair), 7224),
                Some(point) => {
                    let read = -1.0 + 4.0 * place(pair) as f64 / 7223.0;
                    assert!((read - point).abs() < 4.0 / 7000.0, "{read} for {point}");
                }
            }
        }
    }

    #[test]
    fn a_smooth_line_reads_back_to_a_part_in_four_thousand() {
        let widths = [
            Some(0.9),
            Some(0.3),
            None,
            Some(0.19),
            Some(0.11),
            Some(1e-9),
            Some(0.1),
            None,
            Some(0.098),
        ];
        let points = widths.map(|width| {
            width.map(|high| Point {
                control: 0.0,
                treatment: 0.0,
                effect: 0.0,
                low: 0.0,
                high,
                anytime_low: 0.0,
                anytime_high: 0.0,
                detectable: 0.0,
            })
        });
        let line = smooth(&points, |point| point.high);
        let last = line[0].as_f64().expect("a number");
        let text = line[1].as_str().expect("text");
        let places: Vec<i64> = text
            .chars()
            .map(|c| letters().iter().position(|l| *l == c).expect("a letter") as i64)
            .collect();
        let (mut read, mut at, mut days) = (0, [0, 0], Vec::new());
        while read < places.len() {
            let mut step = Some(places[read] - 42);
            read += 1;
            if step == Some(42) {
                let place = places[read] * 85 + places[read + 1];
                read += 2;
                step = (place != 7224).then_some(place - 3612);
            }
            days.push(step.map(|step| {
                at = [2 * at[0] - at[1] + step, at[0]];
                last * (at[0] as f64 / 2000.0).exp()
            }));
        }
        days.reverse();
        assert_eq!(days.len(), widths.len());
        for (place, (day, width)) in days.iter().zip(widths).enumerate() {
            match (day, width) {
                // Before what two letters cannot say, days are as they were.
                (Some(_), Some(_)) if place < 6 && place > 3 => {}
                (Some(day), Some(width)) => {
                    assert!((day / width - 1.0).abs() < 3e-4 || place < 5, "{day} for {width}");
                }
                (day, width) => assert!(day.is_none() && width.is_none(), "{place}"),
            }
        }
    }

    #[test]
    fn objects_become_values_beside_keys_said_once() {
        let mut once = Once::default();
        let long = "a sentence of some length";
        let value = json!({"rows": [{"a": 0.123456789, "b": "x"}, {"a": 2.0, "b": long}]});
        let packed = once.packed(value);
        assert_eq!(once.shapes, [vec!["rows"], vec!["a", "b"]]);
        assert_eq!(once.words, [long]);
        assert_eq!(packed.to_string(), r#"[0,[-1,[1,0.123457,"x"],[1,2,[-2,0]]]]"#);
    }
}
