//! One metric's comparisons: figures, estimates, calls.
//!
//! # Not here
//! No corrections for many comparisons and no slices: `analyze` has them.

use std::borrow::Cow;

use super::dilute::dilute;
use super::figures::{ArmData, Figures, MetricData, figures, plain_figure, shape};
use super::fixed_lift::FixedLift;
use super::method;
use super::view::{Looks, View};
use crate::bayes::{Prior, posterior};
use crate::definition::{
    About, Direction, Experiment, Inference, Lift, Metric, MetricKind, ProportionTest, Shape,
    Transform, Unit,
};
use crate::distribution::{normal_isf, normal_sf};
use crate::effect::{
    ArmFigure, Estimate, Margin, Side, StatsError, absolute, non_inferiority, non_inferiority_p,
};
use crate::equivalence::{of_looks, of_one_look, two_one_sided};
use crate::format;
use crate::health::SRM_ALARM_P;
use crate::moments::Moments;
use crate::power::further_users_factor;
use crate::proportion::{Tally, fisher_exact, newcombe, pooled_z};
use crate::report::{
    ArmMoments, ArmValue, Belief, Call, Comparison, Equivalence, Impact, MetricReport,
    NonInferiority, Role, Scale,
};
use crate::sequential::confidence_sequence_above;
use crate::stratify::{Stratified, Stratum, post_stratify};

/// Chance of being found that makes an effect "detectable", the usual 80 %.
const DETECTION_RATE: f64 = 0.8;

/// The true effect that a fixed test with this error finds at the detection rate.
pub(super) fn detectable(error: f64, alpha: f64) -> f64 {
    (normal_isf(alpha / 2.0) + normal_isf(1.0 - DETECTION_RATE)) * error
}

/// Below this many standard errors from 0 the control mean makes a poor divisor.
const STRONG_BASELINE: f64 = 10.0;

/// Users of both arms that make a stratum. With 6 of them intervals at 95 % miss 13 % of A/A tests, with CUPED
/// 21 %; with 20 it is 5 %. Who counts are both arms' users together: their number says nothing of the split,
/// while strata that are chosen by it are not split by chance any more.
const STRATUM_USERS_MIN: u64 = 20;

/// Averages over strata, where the metric's shape allows it. Small strata, and those in which an arm has no figure,
/// are put together; if they still make none, they join the smallest of the others.
fn stratified(
    view: &View<'_>,
    metric: &Metric,
    data: &MetricData<'_>,
    arm: usize,
    overall: &Figures,
) -> Option<Stratified> {
    if matches!(shape(view.experiment, metric), Shape::Ratio | Shape::Quantile) {
        return None;
    }
    let of = |pair: [&Moments; 2]| {
        if pair[0].count() + pair[1].count() < STRATUM_USERS_MIN {
            return None;
        }
        let arm = |moments| ArmData { users: 0, moments, quantile: None };
        let found = figures(view, metric, [arm(pair[0]), arm(pair[1])]).ok()?;
        found.control.check(Side::Control).ok()?;
        found.treatment.check(Side::Treatment).ok()?;
        Some(Stratum { control: found.control, treatment: found.treatment })
    };
    let mut strata: Vec<([Cow<'_, Moments>; 2], Option<Stratum>)> = data
        .strata
        .iter()
        .map(|arms| [arms[view.baseline].moments, arms[arm].moments])
        .filter(|pair| pair[0].count() + pair[1].count() > 0)
        .map(|pair| (pair.map(Cow::Borrowed), of(pair)))
        .collect();
    strata.sort_by_key(|(pair, _)| std::cmp::Reverse(pair[0].count() + pair[1].count()));
    let merge = |into: &mut [Cow<'_, Moments>; 2], from: &[Cow<'_, Moments>; 2]| {
        into.iter_mut().zip(from).for_each(|(into, from)| into.to_mut().merge(from));
    };
    let (mut good, poor): (Vec<_>, Vec<_>) =
        strata.into_iter().partition(|(_, stratum)| stratum.is_some());
    let rest = poor.into_iter().map(|(pair, _)| pair).reduce(|mut all, pair| {
        merge(&mut all, &pair);
        all
    });
    if let Some(rest) = rest {
        let of_rest = of([&rest[0], &rest[1]]);
        match good.last_mut() {
            Some((smallest, stratum)) if of_rest.is_none() => {
                merge(smallest, &rest);
                *stratum = of([&smallest[0], &smallest[1]]);
            }
            _ => good.push((rest, of_rest)),
        }
    }
    let strata: Option<Vec<Stratum>> = good.into_iter().map(|(_, stratum)| stratum).collect();
    let overall = Stratum { control: overall.control, treatment: overall.treatment };
    post_stratify(&strata?, &overall, view.level).ok()
}

/// All comparisons of one metric with the view's baseline, without correction.
pub(super) fn judge_metric(
    view: &View<'_>,
    metric: &Metric,
    data: &MetricData<'_>,
) -> MetricReport {
    let experiment = view.experiment;
    let (comparisons, strength) = compare_all(view, metric, data);
    let mut notes = kind_notes(view, metric, data);
    if metric.transform.is_none() {
        notes.extend(baseline_notes(experiment, metric, &comparisons, strength));
    }
    let values = data.arms.iter().map(|arm| arm_value(experiment, metric, *arm)).collect();
    MetricReport {
        name: metric.name.clone(),
        kind: metric.kind.name(),
        is_share: is_share(experiment, metric),
        direction: metric.direction,
        guardrail: metric.guardrail,
        role: match (metric.guardrail, metric.primary) {
            (true, _) => Role::Guardrail,
            (false, true) => Role::Primary,
            (false, false) => Role::Secondary,
        },
        group: metric.group.clone(),
        values,
        notes,
        comparisons,
        moments: data.arms.iter().map(|arm| arm_moments(arm.moments)).collect(),
        series: Vec::new(),
        cap: data.cap,
        minimum_effect: None,
        about: About::default(),
        in_progress: None,
        since_exposure: Vec::new(),
    }
}

pub(super) fn is_share(experiment: &Experiment, metric: &Metric) -> bool {
    metric.kind.shape() == Shape::Proportion
        && !matches!(experiment.exposures.unit, Unit::Switchback { .. })
}

/// The comparisons, and how many standard errors the baseline lies from 0.
pub(super) fn compare_all(
    view: &View<'_>,
    metric: &Metric,
    data: &MetricData<'_>,
) -> (Vec<Comparison>, f64) {
    let baseline = plain_figure(view.experiment, metric, data.arms[view.baseline], Side::Control);
    let strength = baseline.map_or(f64::INFINITY, |figure| figure.baseline_strength());
    // A control value that cannot be told from 0 cannot be divided by.
    let divisible = strength >= normal_isf(view.experiment.alpha / 2.0);
    let comparisons = (0..data.arms.len())
        .filter(|arm| *arm != view.baseline)
        .map(|arm| compare(view, metric, data, arm, divisible))
        .collect();
    (comparisons, strength)
}

fn arm_moments(moments: &Moments) -> ArmMoments {
    let finite = |value: f64| if value.is_finite() { value } else { 0.0 };
    let columns = moments.columns();
    let pairs = (0..columns).flat_map(|i| (i..columns).map(move |j| (i, j)));
    ArmMoments {
        units: moments.count(),
        means: (0..columns).map(|i| finite(moments.mean(i))).collect(),
        covariances: pairs.map(|(i, j)| finite(moments.covariance(i, j))).collect(),
    }
}

/// What a reader should know of the kind of metric: what logs mean, and that arms compare different users.
fn kind_notes(view: &View<'_>, metric: &Metric, data: &MetricData<'_>) -> Vec<String> {
    let experiment = view.experiment;
    if metric.transform == Some(Transform::Log1p) {
        let words = "of means of log(1 + x): 0.05 is about +5 % of the typical 1 + x";
        return vec![format!("Differences are {words} (the geometric mean).")];
    }
    let of_some = matches!(metric.kind, MetricKind::FirstOrLast { zeros: false, .. });
    if !of_some || matches!(experiment.exposures.unit, Unit::Cluster { .. }) {
        return Vec::new();
    }
    let with_value = |arm: usize| ArmFigure::mean(data.arms[arm].moments, 1);
    let note = |arm: usize| {
        let (control, treatment) = (with_value(view.baseline), with_value(arm));
        let difference = absolute(&control, &treatment, experiment.alpha).ok()?;
        let share = |value| format::percent(value, 1);
        (difference.p < SRM_ALARM_P).then(|| {
            format!(
                "{}: {} of users have a value, {} in {} (p {}), so the two means are of different \
                 users; look at zeros = true, or at a proportion, too.",
                experiment.variants[arm].name,
                share(treatment.value),
                share(control.value),
                experiment.variants[view.baseline].name,
                format::p_value(difference.p)
            )
        })
    };
    (0..data.arms.len()).filter(|arm| *arm != view.baseline).filter_map(note).collect()
}

/// What a reader should know when lifts divide by an uncertain control value.
fn baseline_notes(
    experiment: &Experiment,
    metric: &Metric,
    comparisons: &[Comparison],
    strength: f64,
) -> Vec<String> {
    if strength >= STRONG_BASELINE {
        return Vec::new();
    }
    let note = |comparison: &Comparison| {
        let difference = comparison.absolute.ok()?;
        let name = &experiment.variants[comparison.arm].name;
        if comparison.scale == Scale::Absolute && experiment.lift != Lift::None {
            let words = "the control value cannot be told from 0, so this is a difference";
            return Some(format!("{name}: {words}."));
        }
        if experiment.lift != Lift::Delta {
            return None;
        }
        let on = |value| format::effect(value, Scale::Absolute, is_share(experiment, metric));
        Some(format!(
            "{name}: the control value is only {strength:.1} standard errors from 0, so the \
             lift's interval is rough (lift = \"fieller\" is better here); the difference is {} \
             [{}, {}].",
            on(difference.value),
            on(difference.low),
            on(difference.high)
        ))
    };
    comparisons.iter().filter_map(note).collect()
}

fn arm_value(experiment: &Experiment, metric: &Metric, arm: ArmData<'_>) -> ArmValue {
    let finite = |value: f64| value.is_finite().then_some(value);
    // The side only names the error, which is not kept here.
    let figure = plain_figure(experiment, metric, arm, Side::Control).ok();
    let (value, numerator, denominator) = match shape(experiment, metric) {
        // A quantile needs no error to be shown.
        Shape::Quantile => {
            let band = arm.quantile.and_then(|cell| cell.band);
            let values = arm.quantile.map(|cell| cell.values as f64);
            (band.and_then(|band| finite(band.quantile)), None, values)
        }
        Shape::Ratio => (
            figure.map(|figure| figure.value),
            finite(arm.moments.sum(0)),
            finite(arm.moments.sum(1)),
        ),
        Shape::Proportion | Shape::Mean => (
            figure.map(|figure| figure.value),
            finite(arm.moments.sum(0)),
            Some(arm.moments.count() as f64),
        ),
    };
    ArmValue { users: arm.users, value, numerator, denominator }
}

/// Compares `arm` with the baseline. `divisible`: the baseline's value is a sound base for lifts.
fn compare(
    view: &View<'_>,
    metric: &Metric,
    data: &MetricData<'_>,
    arm: usize,
    divisible: bool,
) -> Comparison {
    let alpha = view.experiment.alpha;
    let pair = [data.arms[view.baseline], data.arms[arm]];
    let figures = figures(view, metric, pair);
    let mut reduction = figures.as_ref().ok().and_then(|figures| figures.reduction);
    let strata = match &figures {
        Ok(figures) if !data.strata.is_empty() => stratified(view, metric, data, arm, figures),
        _ => None,
    };
    let fixed = figures.as_ref().map_err(|error| *error).and_then(|figures| match &strata {
        Some(strata) => Ok(strata.absolute),
        None => tested(view, metric, figures, pair),
    });
    let lift = figures.as_ref().map_err(|error| *error).and_then(|figures| match &strata {
        _ if metric.transform.is_some() => Err(StatsError::LiftOfLogs),
        Some(strata) => FixedLift::of_strata(view, strata),
        None => FixedLift::of(view, figures, fixed.ok().filter(|_| is_tested(metric))),
    });
    if let (Some(strata), Ok(figures)) = (&strata, &figures)
        && let Ok(plain) = absolute(&figures.control, &figures.treatment, alpha)
    {
        // On top of what CUPED removed.
        let kept = 1.0 - reduction.unwrap_or(0.0);
        reduction = Some(1.0 - kept * (strata.absolute.error / plain.error).powi(2));
    }
    let looks = Looks::of(view, arm, pair[0].users + pair[1].users, data.share);
    // A prior of lifts is one of differences of logs.
    let unit = match metric.transform {
        Some(Transform::Log1p) => Ok(1.0),
        None => belief_unit(view, &figures, lift),
    };
    let absolute =
        looks.and_then(|looks| Ok(looks.apply(view, fixed?.times(1.0 / unit?))?.times(unit?)));
    let relative = looks.and_then(|looks| lift?.looked_at(view, looks, absolute?));
    let lift_holds = relative.is_ok() && divisible && view.experiment.lift != Lift::None;
    let is_difference = metric.transform.is_some() || absolute.is_ok() && !lift_holds;
    let scale = if is_difference { Scale::Absolute } else { Scale::Relative };
    // What a fixed look decides by, on that scale.
    let deciding = match scale {
        Scale::Absolute => fixed,
        Scale::Relative => fixed.and_then(|fixed| Ok(lift?.decided_by(fixed))),
    };
    let mut comparison = Comparison {
        arm,
        absolute,
        relative,
        scale,
        method: method::of(view, metric, strata.is_some(), scale),
        p_adjusted: None,
        interval_alpha: view.level,
        call: Call::Unavailable,
        unplanned_look: matches!(view.today.get(arm), Some(Ok(today)) if !today.planned),
        detectable: deciding.ok().map(|estimate| detectable(estimate.error, alpha)),
        variance_reduction: reduction,
        impact: impact(view, metric, &absolute, data),
        non_inferiority: figures
            .as_ref()
            .ok()
            .zip(looks.ok())
            .and_then(|(figures, looks)| non_inferior(view, metric, figures, looks)),
        equivalence: (|| {
            let looked_at = [absolute.ok()?, relative.ok().filter(|_| divisible)?];
            equivalent(view, metric, lift.ok()?, looked_at, looks.ok()?)
        })(),
        diluted: match (&figures, fixed, absolute, looks) {
            (Ok(figures), Ok(fixed), Ok(absolute), Ok(looks)) => {
                dilute(view, metric, data, (arm, figures), [fixed, absolute], looks)
            }
            _ => None,
        },
        belief: None,
        further_users: deciding.ok().and_then(|estimate| {
            let factor =
                further_users_factor(&estimate, estimate.value, alpha, DETECTION_RATE).ok()?;
            Some(factor.max(0.0)).filter(|factor| factor.is_finite())
        }),
        observed: fixed.ok().zip(lift.ok()).map(|(f, lift)| lift.decided_by(f)).filter(|lift| {
            divisible && lift.value.is_finite() && lift.error.is_finite() && lift.error > 0.0
        }),
        fixed: fixed.ok().map(|fixed| (fixed, lift.ok().and_then(FixedLift::pivot))),
    };
    if matches!(view.inference, Inference::Bayesian { .. }) {
        // The belief about what decides, which has the posterior's mean and deviation.
        let after = match (scale, lift) {
            (Scale::Relative, Ok(FixedLift::Delta(_))) => relative,
            (Scale::Relative, _) => absolute.and_then(|after| Ok(lift?.decided_by(after))),
            (Scale::Absolute, _) => absolute,
        };
        let belief = after.and_then(|after| posterior(&after, Prior::Flat, alpha));
        comparison.belief = belief.ok().map(|belief| {
            let up = metric.direction == Direction::Increase;
            let (win, lose) = (belief.chance_to_win, normal_sf(belief.mean / belief.deviation));
            let (arm, control) = (belief.risk_of_treatment, belief.risk_of_control);
            Belief {
                chance_to_win: if up { win } else { lose },
                risk_of_arm: if up { arm } else { control },
                risk_of_control: if up { control } else { arm },
            }
        });
    }
    if comparison.unplanned_look {
        comparison.non_inferiority.iter_mut().for_each(|check| check.holds = false);
        comparison.equivalence.iter_mut().for_each(|check| check.holds = false);
    }
    let p = comparison.estimate().ok().map(|estimate| estimate.p);
    set_call(&mut comparison, p, metric.direction, alpha);
    comparison
}

/// Has the metric a test of shares, whose p-value is not that of its difference and error?
fn is_tested(metric: &Metric) -> bool {
    metric.kind.shape() == Shape::Proportion && metric.test != ProportionTest::Unpooled
}

/// The difference of a fixed look, by the test the metric asks for.
fn tested(
    view: &View<'_>,
    metric: &Metric,
    figures: &Figures,
    pair: [ArmData<'_>; 2],
) -> Result<Estimate, StatsError> {
    let alpha = view.level;
    let (control, treatment) = (&figures.control, &figures.treatment);
    let plain = absolute(control, treatment, alpha);
    if !is_tested(metric) {
        return plain;
    }
    let tally = |arm: ArmData<'_>| Tally {
        successes: arm.moments.sum(0).round() as u64,
        users: arm.moments.count(),
    };
    let (a, b) = (tally(pair[0]), tally(pair[1]));
    if metric.test == ProportionTest::Pooled {
        return pooled_z(a, b, alpha);
    }
    let p = fisher_exact(a, b)?;
    let (low, high) = newcombe(a, b, alpha)?;
    // Where nobody or everybody converts there is no plain error, but an exact answer.
    let value = treatment.value - control.value;
    let error = plain.map_or((high - low) / (2.0 * normal_isf(alpha / 2.0)), |e| e.error);
    Estimate { value, error, df: f64::INFINITY, low, high, p }.checked()
}

/// What a prior of lifts is to be multiplied by to be one of differences.
fn belief_unit(
    view: &View<'_>,
    figures: &Result<Figures, StatsError>,
    lift: Result<FixedLift, StatsError>,
) -> Result<f64, StatsError> {
    let is_of_lifts = view.experiment.lift != Lift::None
        && matches!(view.inference, Inference::Bayesian { prior: Prior::Normal { .. } });
    if !is_of_lifts {
        return Ok(1.0);
    }
    match lift? {
        FixedLift::Pivot(pivot) => Ok(pivot.base()),
        FixedLift::Delta(_) => {
            figures.as_ref().map(|figures| figures.control.raw_value.abs()).map_err(|error| *error)
        }
    }
}

fn impact(
    view: &View<'_>,
    metric: &Metric,
    absolute: &Result<Estimate, StatsError>,
    data: &MetricData<'_>,
) -> Option<Impact> {
    if matches!(metric.kind.shape(), Shape::Ratio | Shape::Quantile) || metric.transform.is_some() {
        return None;
    }
    let estimate = absolute.ok()?;
    let units: u64 = match view.experiment.exposures.unit {
        Unit::Switchback { .. } => data.arms.iter().map(|arm| arm.moments.count()).sum(),
        _ => data.arms.iter().map(|arm| arm.users).sum(),
    };
    let times = |number: f64| number * units as f64;
    Some(Impact {
        value: times(estimate.value),
        low: times(estimate.low),
        high: times(estimate.high),
    })
}

/// Does a guardrail hold within its margin? One-sided, at half of alpha, also where one may look more than once: a
/// group sequential test spends that much on each side.
fn non_inferior(
    view: &View<'_>,
    metric: &Metric,
    figures: &Figures,
    looks: Looks,
) -> Option<NonInferiority> {
    let margin = metric.margin?;
    let worse = match metric.direction {
        Direction::Increase => Margin::Below(margin),
        Direction::Decrease => Margin::Above(margin),
    };
    let (control, treatment) = (&figures.control, &figures.treatment);
    // A share of a control value that is not above 0 says nothing.
    if control.value <= 0.0 {
        return None;
    }
    let alpha = view.experiment.alpha;
    let distance = || non_inferiority(control, treatment, worse, alpha);
    let p = match looks {
        // Beliefs about lifts say nothing of this distance.
        Looks::Fixed | Looks::Bayesian => non_inferiority_p(control, treatment, worse).ok()?,
        Looks::Anytime { users, planned } => {
            confidence_sequence_above(&distance().ok()?, users, planned, alpha / 2.0).ok()?.p
        }
        Looks::GroupSequential { .. } => {
            let distance = looks.apply(view, distance().ok()?).ok()?;
            if distance.value > 0.0 { distance.p / 2.0 } else { 1.0 }
        }
    };
    Some(NonInferiority { margin, p, holds: p < alpha / 2.0 })
}

/// Moves an interval's end to 0 where the correction rejects what the interval alone would leave open.
pub(super) fn leave_out_zero(comparison: &mut Comparison) {
    let cut = |value: f64, low: &mut f64, high: &mut f64| match value > 0.0 {
        true => *low = low.max(0.0),
        false => *high = high.min(0.0),
    };
    let diluted = comparison.diluted.iter_mut();
    let diluted = diluted.flat_map(|both| [&mut both.absolute, &mut both.relative]);
    let estimates = [&mut comparison.absolute, &mut comparison.relative].into_iter().chain(diluted);
    for estimate in estimates.flatten() {
        cut(estimate.value, &mut estimate.low, &mut estimate.high);
    }
    if let Some(impact) = &mut comparison.impact {
        cut(impact.value, &mut impact.low, &mut impact.high);
    }
}

/// Is the lift within the metric's margin to both sides? `absolute` and the lift after the looks.
fn equivalent(
    view: &View<'_>,
    metric: &Metric,
    lift: FixedLift,
    [absolute, relative]: [Estimate; 2],
    looks: Looks,
) -> Option<Equivalence> {
    let margin = metric.equivalence?;
    let alpha = view.experiment.alpha;
    let distance = |from: f64| match (lift, looks) {
        (FixedLift::Pivot(pivot), Looks::Bayesian) => {
            let belief = pivot.with_difference(absolute.value, absolute.error.powi(2));
            Ok(Estimate { df: f64::INFINITY, ..belief.distance(from, alpha)? })
        }
        (FixedLift::Pivot(pivot), _) => pivot.distance(from, alpha),
        (FixedLift::Delta(_), Looks::Bayesian) => {
            Ok(Estimate { value: relative.value - from, ..relative })
        }
        (FixedLift::Delta(fixed), _) => {
            Estimate::student(fixed.value - from, fixed.error, fixed.df, alpha).checked()
        }
    };
    let p = |distance: Estimate, side: f64| match looks {
        Looks::Fixed | Looks::Bayesian => of_one_look(distance, side),
        _ => Ok(of_looks(looks.apply(view, distance)?, side)),
    };
    let p = two_one_sided(margin, distance, p).ok()?;
    Some(Equivalence { margin, p, holds: p < alpha })
}

/// Sets the call from a p-value that is already corrected for its family.
pub(super) fn set_call(
    comparison: &mut Comparison,
    p: Option<f64>,
    direction: Direction,
    alpha: f64,
) {
    comparison.p_adjusted = p;
    comparison.call = match (comparison.estimate(), p) {
        (Ok(estimate), Some(p)) if p < alpha && !comparison.unplanned_look => {
            let rose = estimate.value > 0.0;
            if rose == (direction == Direction::Increase) { Call::Better } else { Call::Worse }
        }
        (Ok(_), Some(_)) => Call::Inconclusive,
        _ => Call::Unavailable,
    };
}
