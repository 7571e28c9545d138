//! From moments to a report.
//!
//! # Invariants
//! - Goals share one family for Holm's correction; guardrails are judged alone, because missing
//!   harm is worse than a false alarm; each metric's breakdown is a family of its own.
//! - A red sample ratio leaves the numbers in place and takes the verdict away.
//!
//! # Not here
//! No layout, no SQL.

use std::collections::BTreeMap;

use crate::cuped;
use crate::definition::{Direction, Experiment, Inference, Metric, MetricKind};
use crate::distribution::{chi2_sf, normal_isf};
use crate::effect::{ArmFigure, Estimate, Side, StatsError, absolute, relative};
use crate::format;
use crate::health::{SRM_ALARM_P, sample_ratio};
use crate::moments::Moments;
use crate::multiplicity::holm;
use crate::query::{Cell, MomentsQuery, MomentsTable, find_metric};
use crate::report::{
    Arm, ArmValue, Balance, Breakdown, BreakdownRow, Call, Comparison, Day, DimensionAlarm, Health,
    Heterogeneity, Imbalance, MetricReport, Report, SCHEMA, SampleRatioCheck, Scale,
    UnknownVariant,
};
use crate::sequential::confidence_sequence;
use crate::verdict;

/// Values of a dimension shown one by one; the rest is merged into one row.
pub const MAX_BREAKDOWN_ROWS: usize = 20;

/// Values of the variant column outside the definition that a report lists.
const MAX_UNKNOWN_VARIANTS: usize = 10;

/// Chance of being found that makes an effect "detectable", the usual 80 %.
const DETECTION_RATE: f64 = 0.8;

/// Below this many standard errors from 0 the control mean makes a poor divisor.
const STRONG_BASELINE: f64 = 10.0;

/// The engine's answer does not fit the question: a bug, or moments of another query.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnalyzeError {
    #[error("the query has metric `{metric}`, which experiment {experiment} does not define")]
    UnknownMetric { experiment: String, metric: String },
    #[error("cell {cell} has variant {variant}, but the experiment has {variants}")]
    Variant { cell: usize, variant: usize, variants: usize },
    #[error("cell {cell} has {found} groups of moments, the query asks for {expected}")]
    Groups { cell: usize, found: usize, expected: usize },
    #[error(
        "cell {cell}, group {group}: moments of {found} columns, the query asks for {expected}"
    )]
    Columns { cell: usize, group: usize, found: usize, expected: usize },
    #[error("cell {cell}, group {group}: {found} users, group 0 has {expected}")]
    Users { cell: usize, group: usize, found: u64, expected: u64 },
    #[error("a cell for {value:?}, variant {variant}, appears twice")]
    Repeated { value: Option<String>, variant: usize },
}

/// The cells of one value of the dimension (or of everyone): per arm, per metric.
type Slice = Vec<Vec<Moments>>;

/// Everything a report says, from the moments that `query` asked for.
///
/// # Errors
/// [`AnalyzeError`] if `table` does not answer `query`.
pub fn analyze(
    experiment: &Experiment,
    query: &MomentsQuery,
    table: &MomentsTable,
) -> Result<Report, AnalyzeError> {
    let metrics: Vec<&Metric> = query
        .metrics
        .iter()
        .map(|name| {
            find_metric(experiment, name).map_err(|_| AnalyzeError::UnknownMetric {
                experiment: experiment.name.clone(),
                metric: name.clone(),
            })
        })
        .collect::<Result<_, _>>()?;
    let mut slices = slices(experiment, query, &table.cells)?;
    let empty = || empty_slice(experiment, query);
    let total = slices.remove(&None).unwrap_or_else(empty);
    let mut results = judge_slice(experiment, &metrics, &total);
    correct_goals(experiment, &mut results);
    let breakdown =
        query.dimension.as_ref().map(|by| break_down(experiment, &metrics, &by.name, slices));
    let mut health = check_health(experiment, table, &users(&total), breakdown.as_ref());
    health.balance = check_balance(experiment, &metrics, &total);
    let arms = arms(experiment, &users(&total));
    let verdict = verdict::decide(experiment, &arms, &health, &results);
    Ok(Report {
        schema: SCHEMA,
        experiment: experiment.name.clone(),
        hypothesis: experiment.hypothesis.clone(),
        period: experiment.period.as_ref().map(|p| [p.start.clone(), p.end.clone()]),
        time_zone: experiment.time_zone.clone(),
        alpha: experiment.alpha,
        inference: match experiment.inference {
            Inference::Fixed => "fixed",
            Inference::Anytime { .. } => "anytime",
        },
        method: verdict::method(experiment, &results, breakdown.is_some()),
        arms,
        health,
        verdict,
        metrics: results,
        breakdown,
        first_exposures: days(experiment, table),
    })
}

fn empty_slice(experiment: &Experiment, query: &MomentsQuery) -> Slice {
    let groups: Vec<Moments> =
        query.groups.iter().map(|columns| Moments::new(columns.len())).collect();
    vec![groups; experiment.variants.len()]
}

/// Checks every cell and sorts them by value of the dimension.
fn slices(
    experiment: &Experiment,
    query: &MomentsQuery,
    cells: &[Cell],
) -> Result<BTreeMap<Option<String>, Slice>, AnalyzeError> {
    let mut slices: BTreeMap<Option<String>, Slice> = BTreeMap::new();
    let mut seen = std::collections::BTreeSet::new();
    let variants = experiment.variants.len();
    for (index, cell) in cells.iter().enumerate() {
        check_cell(query, index, cell, variants)?;
        if !seen.insert((&cell.dimension_value, cell.variant)) {
            let value = cell.dimension_value.clone();
            return Err(AnalyzeError::Repeated { value, variant: cell.variant });
        }
        let slice = slices
            .entry(cell.dimension_value.clone())
            .or_insert_with(|| empty_slice(experiment, query));
        slice[cell.variant].clone_from(&cell.groups);
    }
    Ok(slices)
}

fn check_cell(
    query: &MomentsQuery,
    index: usize,
    cell: &Cell,
    variants: usize,
) -> Result<(), AnalyzeError> {
    if cell.variant >= variants {
        return Err(AnalyzeError::Variant { cell: index, variant: cell.variant, variants });
    }
    if cell.groups.len() != query.groups.len() {
        let (found, expected) = (cell.groups.len(), query.groups.len());
        return Err(AnalyzeError::Groups { cell: index, found, expected });
    }
    for (group, (moments, columns)) in cell.groups.iter().zip(&query.groups).enumerate() {
        if moments.columns() != columns.len() {
            let (found, expected) = (moments.columns(), columns.len());
            return Err(AnalyzeError::Columns { cell: index, group, found, expected });
        }
        let (found, expected) = (moments.count(), cell.groups[0].count());
        if found != expected {
            return Err(AnalyzeError::Users { cell: index, group, found, expected });
        }
    }
    Ok(())
}

fn users(slice: &Slice) -> Vec<u64> {
    slice.iter().map(|groups| groups.first().map_or(0, Moments::count)).collect()
}

fn arms(experiment: &Experiment, users: &[u64]) -> Vec<Arm> {
    let total: u64 = users.iter().sum();
    let arm = |(variant, users): (&crate::definition::Variant, &u64)| Arm {
        name: variant.name.clone(),
        control: variant.control,
        planned_share: variant.share,
        users: *users,
        share: (total > 0).then(|| *users as f64 / total as f64),
    };
    experiment.variants.iter().zip(users).map(arm).collect()
}

/// All metrics of one slice, judged without correction.
fn judge_slice(experiment: &Experiment, metrics: &[&Metric], slice: &Slice) -> Vec<MetricReport> {
    let judge = |(index, metric): (usize, &&Metric)| {
        let arms: Vec<&Moments> = slice.iter().map(|groups| &groups[index]).collect();
        judge_metric(experiment, metric, &arms)
    };
    metrics.iter().enumerate().map(judge).collect()
}

fn judge_metric(experiment: &Experiment, metric: &Metric, arms: &[&Moments]) -> MetricReport {
    let control = experiment.control();
    let strength = ArmFigure::of(&metric.kind, arms[control], Side::Control)
        .map_or(f64::INFINITY, |figure| figure.baseline_strength());
    // A control value that cannot be told from 0 cannot be divided by.
    let divisible = strength >= normal_isf(experiment.alpha / 2.0);
    let comparisons: Vec<Comparison> = (0..arms.len())
        .filter(|arm| *arm != control)
        .map(|arm| compare(experiment, metric, arm, [arms[control], arms[arm]], divisible))
        .collect();
    MetricReport {
        name: metric.name.clone(),
        kind: metric.kind.name(),
        direction: metric.direction,
        guardrail: metric.guardrail,
        values: arms.iter().map(|moments| arm_value(&metric.kind, moments)).collect(),
        notes: baseline_notes(experiment, metric, &comparisons, strength),
        comparisons,
    }
}

/// What a reader should know when lifts divide by an uncertain control value.
fn baseline_notes(
    experiment: &Experiment,
    metric: &Metric,
    comparisons: &[Comparison],
    strength: f64,
) -> Vec<String> {
    if strength >= STRONG_BASELINE || comparisons.iter().all(|c| c.relative.is_err()) {
        return Vec::new();
    }
    let note = |comparison: &Comparison| {
        let difference = comparison.absolute.ok()?;
        if comparison.scale == Scale::Absolute {
            let words = "the control value cannot be told from 0, so this is a difference";
            return Some(format!("{}: {words}.", experiment.variants[comparison.arm].name));
        }
        let on = |value| format::effect(value, Scale::Absolute, metric.kind.name());
        Some(format!(
            "{}: the control value is only {strength:.1} standard errors from 0, so the lift's \
             interval is rough; the difference is {} [{}, {}].",
            experiment.variants[comparison.arm].name,
            on(difference.value),
            on(difference.low),
            on(difference.high)
        ))
    };
    comparisons.iter().filter_map(note).collect()
}

fn arm_value(kind: &MetricKind, moments: &Moments) -> ArmValue {
    let finite = |value: f64| value.is_finite().then_some(value);
    let denominator = match kind {
        MetricKind::Ratio { .. } => moments.sum(1),
        _ => moments.count() as f64,
    };
    ArmValue {
        users: moments.count(),
        // The side only names the error, which is not kept here.
        value: ArmFigure::of(kind, moments, Side::Control).ok().map(|figure| figure.value),
        numerator: finite(moments.sum(0)),
        denominator: finite(denominator),
    }
}

/// Compares `arm` with the control; the moments are the control's and the arm's. `divisible`:
/// the control value is a sound base for lifts.
fn compare(
    experiment: &Experiment,
    metric: &Metric,
    arm: usize,
    [control, treatment]: [&Moments; 2],
    divisible: bool,
) -> Comparison {
    let alpha = experiment.alpha;
    let mut variance_reduction = None;
    let mut figures = || -> Result<(ArmFigure, ArmFigure), StatsError> {
        let plain = (
            ArmFigure::of(&metric.kind, control, Side::Control)?,
            ArmFigure::of(&metric.kind, treatment, Side::Treatment)?,
        );
        if metric.cuped.is_none() {
            return Ok(plain);
        }
        let adjusted = match metric.kind {
            MetricKind::Ratio { .. } => cuped::adjust_ratio(control, treatment),
            _ => cuped::adjust_mean(control, treatment, 0, 1),
        };
        variance_reduction = Some(adjusted.variance_reduction()).filter(|share| share.is_finite());
        Ok((adjusted.control, adjusted.treatment))
    };
    let figures = figures();
    let on = |scale: fn(&ArmFigure, &ArmFigure, f64) -> Result<Estimate, StatsError>| {
        let (control, treatment) = figures?;
        let users = control.users + treatment.users;
        watch(experiment, arm, users, scale(&control, &treatment, alpha)?)
    };
    let (absolute, relative) = (on(absolute), on(relative));
    let lift_holds = relative.is_ok() && divisible;
    let scale = if absolute.is_ok() && !lift_holds { Scale::Absolute } else { Scale::Relative };
    let mut comparison = Comparison {
        arm,
        absolute,
        relative,
        scale,
        p_adjusted: None,
        call: Call::Unavailable,
        detectable: None,
        variance_reduction,
    };
    let sight = normal_isf(alpha / 2.0) + normal_isf(1.0 - DETECTION_RATE);
    comparison.detectable = comparison.estimate().ok().map(|estimate| sight * estimate.error);
    let p = comparison.estimate().ok().map(|estimate| estimate.p);
    judge(&mut comparison, p, metric.direction, alpha);
    comparison
}

/// Widens an estimate to hold at every look, if the experiment is watched.
fn watch(
    experiment: &Experiment,
    arm: usize,
    users: u64,
    estimate: Estimate,
) -> Result<Estimate, StatsError> {
    let Inference::Anytime { planned_users } = experiment.inference else {
        return Ok(estimate);
    };
    let total: f64 = experiment.variants.iter().map(|variant| variant.share).sum();
    let pair = experiment.variants[experiment.control()].share + experiment.variants[arm].share;
    let planned = (planned_users as f64 * pair / total).round().max(1.0) as u64;
    let always = confidence_sequence(&estimate, users, planned, experiment.alpha)?;
    let (low, high, p) = (always.low, always.high, always.p);
    Estimate { df: f64::INFINITY, low, high, p, ..estimate }.checked()
}

/// Sets the call from a p-value that is already corrected for its family.
fn judge(comparison: &mut Comparison, p: Option<f64>, direction: Direction, alpha: f64) {
    comparison.p_adjusted = p;
    comparison.call = match (comparison.estimate(), p) {
        (Ok(estimate), Some(p)) if p < alpha => {
            let rose = estimate.value > 0.0;
            if rose == (direction == Direction::Increase) { Call::Better } else { Call::Worse }
        }
        (Ok(_), Some(_)) => Call::Inconclusive,
        _ => Call::Unavailable,
    };
}

/// Applies Holm's correction to the comparisons of `metrics` that `member` selects.
fn correct(metrics: &mut [&mut MetricReport], member: impl Fn(&MetricReport) -> bool, alpha: f64) {
    let mut family: Vec<(Direction, &mut Comparison)> = metrics
        .iter_mut()
        .filter(|metric| member(metric))
        .flat_map(|metric| {
            let direction = metric.direction;
            metric.comparisons.iter_mut().map(move |comparison| (direction, comparison))
        })
        .filter(|(_, comparison)| comparison.estimate().is_ok())
        .collect();
    let p: Vec<f64> =
        family.iter().filter_map(|(_, c)| c.estimate().ok()).map(|estimate| estimate.p).collect();
    for ((direction, comparison), adjusted) in family.iter_mut().zip(holm(&p)) {
        judge(comparison, Some(adjusted), *direction, alpha);
    }
}

fn correct_goals(experiment: &Experiment, metrics: &mut [MetricReport]) {
    let mut all: Vec<&mut MetricReport> = metrics.iter_mut().collect();
    correct(&mut all, |metric| !metric.guardrail, experiment.alpha);
}

fn break_down(
    experiment: &Experiment,
    metrics: &[&Metric],
    dimension: &str,
    slices: BTreeMap<Option<String>, Slice>,
) -> Breakdown {
    let mut values: Vec<(String, Slice)> =
        slices.into_iter().filter_map(|(value, slice)| Some((value?, slice))).collect();
    values.sort_by_key(|(value, slice)| {
        (std::cmp::Reverse(users(slice).iter().sum::<u64>()), value.clone())
    });
    if values.len() > MAX_BREAKDOWN_ROWS {
        let rest = values.split_off(MAX_BREAKDOWN_ROWS - 1);
        let mut slices = rest.into_iter().map(|(_, slice)| slice);
        if let Some(mut merged) = slices.next() {
            slices.for_each(|slice| merge_slice(&mut merged, &slice));
            values.push(("(other)".into(), merged));
        }
    }
    let mut rows: Vec<BreakdownRow> = values
        .into_iter()
        .map(|(value, slice)| BreakdownRow {
            value,
            users: users(&slice),
            metrics: judge_slice(experiment, metrics, &slice),
        })
        .collect();
    let mut differences = Vec::new();
    for index in 0..metrics.len() {
        let mut family: Vec<&mut MetricReport> =
            rows.iter_mut().map(|row| &mut row.metrics[index]).collect();
        correct(&mut family, |_| true, experiment.alpha);
        differences.extend(heterogeneity(&family));
    }
    Breakdown { dimension: dimension.to_owned(), rows, differences }
}

fn merge_slice(into: &mut Slice, from: &Slice) {
    for (into, from) in into.iter_mut().zip(from) {
        for (into, from) in into.iter_mut().zip(from) {
            into.merge(from);
        }
    }
}

/// Do the effects differ between values of the dimension by more than their errors?
///
/// # Source
/// Cochran, "The combination of estimates from different experiments", Biometrics 10, 1954.
fn heterogeneity(rows: &[&mut MetricReport]) -> Vec<Heterogeneity> {
    let Some(first) = rows.first() else {
        return Vec::new();
    };
    let per_arm = (0..first.comparisons.len()).filter_map(|index| {
        let estimates: Vec<Estimate> = rows
            .iter()
            .filter_map(|metric| metric.comparisons[index].absolute.ok())
            .filter(|estimate| estimate.error > 0.0)
            .collect();
        if estimates.len() < 2 {
            return None;
        }
        let weight = |estimate: &Estimate| 1.0 / (estimate.error * estimate.error);
        let weights: f64 = estimates.iter().map(weight).sum();
        let centre = estimates.iter().map(|e| weight(e) * e.value).sum::<f64>() / weights;
        let q = estimates.iter().map(|e| weight(e) * (e.value - centre).powi(2)).sum();
        let df = (estimates.len() - 1) as u32;
        let arm = first.comparisons[index].arm;
        let p = chi2_sf(q, f64::from(df));
        Some(Heterogeneity { metric: first.name.clone(), arm, q, df, p })
    });
    per_arm.collect()
}

fn check_health(
    experiment: &Experiment,
    table: &MomentsTable,
    users: &[u64],
    breakdown: Option<&Breakdown>,
) -> Health {
    let shares: Vec<f64> = experiment.variants.iter().map(|variant| variant.share).collect();
    let check = match sample_ratio(users, &shares) {
        Ok(ratio) => SampleRatioCheck {
            p: Some(ratio.p),
            chi_square: Some(ratio.chi_square).filter(|value| value.is_finite()),
            alarm: ratio.is_alarm(),
            expected: ratio.expected,
            unavailable: None,
        },
        Err(_) => SampleRatioCheck {
            p: None,
            chi_square: None,
            alarm: false,
            expected: Vec::new(),
            unavailable: Some("no users are exposed".into()),
        },
    };
    let mut unknown: Vec<UnknownVariant> = table
        .unknown_variants
        .iter()
        .map(|(value, users)| UnknownVariant { value: value.clone(), users: *users })
        .collect();
    unknown.sort_by_key(|variant| (std::cmp::Reverse(variant.users), variant.value.clone()));
    unknown.truncate(MAX_UNKNOWN_VARIANTS);
    let rows = breakdown.map_or(&[][..], |breakdown| &breakdown.rows);
    let level = SRM_ALARM_P / rows.len().max(1) as f64;
    let alarms = rows.iter().filter_map(|row| {
        let p = sample_ratio(&row.users, &shares).ok()?.p;
        (p < level).then(|| DimensionAlarm { value: row.value.clone(), p })
    });
    Health {
        sample_ratio: check,
        users_in_many_variants: table.users_in_many_variants,
        unknown_variants: unknown,
        sample_ratio_alarms: alarms.collect(),
        balance: Balance::default(),
    }
}

/// Compares the arms in the time before exposure, at the level of a sample-ratio alarm.
fn check_balance(experiment: &Experiment, metrics: &[&Metric], total: &Slice) -> Balance {
    let control = experiment.control();
    let mut found = Vec::new();
    for (index, metric) in metrics.iter().enumerate().filter(|(_, m)| m.cuped.is_some()) {
        let before = |arm: usize| match metric.kind {
            MetricKind::Ratio { .. } => ArmFigure::ratio(&total[arm][index], 2, 3),
            _ => ArmFigure::mean(&total[arm][index], 1),
        };
        for arm in (0..total.len()).filter(|arm| *arm != control) {
            // Without history there is nothing to compare, and nothing to report.
            if let Ok(difference) = absolute(&before(control), &before(arm), experiment.alpha) {
                found.push(Imbalance { metric: metric.name.clone(), arm, p: difference.p });
            }
        }
    }
    let checks = found.len();
    found.retain(|imbalance| imbalance.p < SRM_ALARM_P / checks as f64);
    Balance { checks, alarms: found }
}

fn days(experiment: &Experiment, table: &MomentsTable) -> Vec<Day> {
    let variants = experiment.variants.len();
    let mut days: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for (day, variant, users) in &table.first_exposures {
        let counts = days.entry(day).or_insert_with(|| vec![0; variants]);
        if let Some(count) = counts.get_mut(*variant) {
            *count += users;
        }
    }
    days.into_iter().map(|(day, users)| Day { day: day.to_owned(), users }).collect()
}
