//! The report in words: what to do, and how the numbers were made.
//!
//! # Not here
//! No numbers are computed here; `analyze` has already judged each comparison.

use crate::definition::{Experiment, Inference};
use crate::effect::Estimate;
use crate::format;
use crate::report::{
    Arm, ArmVerdict, Call, Comparison, Decision, Health, MetricReport, Scale, Verdict,
};

/// The decision for each treatment arm and for the experiment.
pub(crate) fn decide(
    experiment: &Experiment,
    arms: &[Arm],
    health: &Health,
    metrics: &[MetricReport],
) -> Verdict {
    if health.sample_ratio.alarm {
        let sentence = format!(
            "Do not trust these results: users did not fall into the arms as planned (p = {}). \
             Find the cause, such as lost exposures, redirects or bots, before reading any effect.",
            format::p_value(health.sample_ratio.p.unwrap_or(0.0))
        );
        return Verdict { decision: Decision::DoNotTrust, sentence, arms: Vec::new() };
    }
    let judged: Vec<ArmVerdict> = (0..arms.len())
        .filter(|arm| !arms[*arm].control)
        .map(|arm| decide_arm(arm, &arms[arm].name, metrics, experiment.alpha))
        .collect();
    let rank = |decision: Decision| match decision {
        Decision::Ship => 0,
        Decision::TradeOff => 1,
        Decision::KeepRunning => 2,
        Decision::RollBack => 3,
        Decision::DoNotTrust => 4,
    };
    let best = judged.iter().map(|verdict| verdict.decision).min_by_key(|d| rank(*d));
    let sentences: Vec<&str> = judged.iter().map(|verdict| verdict.sentence.as_str()).collect();
    Verdict {
        decision: best.unwrap_or(Decision::KeepRunning),
        sentence: sentences.join(" "),
        arms: judged,
    }
}

fn decide_arm(arm: usize, name: &str, metrics: &[MetricReport], alpha: f64) -> ArmVerdict {
    let pick = |guardrail: bool, call: Call| -> Vec<String> {
        let chosen = metrics.iter().filter(|metric| metric.guardrail == guardrail);
        let found = chosen.flat_map(|metric| {
            metric.comparisons.iter().filter(move |c| c.arm == arm).map(move |c| (metric, c))
        });
        found.filter(|(_, c)| c.call == call).map(|(metric, c)| effect_words(metric, c)).collect()
    };
    let better = pick(false, Call::Better);
    let mut worse = pick(true, Call::Worse);
    worse.extend(pick(false, Call::Worse));
    // A guardrail without an estimate guards nothing: shipping is then for people to decide.
    let unguarded = pick(true, Call::Unavailable).join(", ");
    let (better_words, worse_words) = (better.join(", "), worse.join(", "));
    let (decision, sentence) = match (better.is_empty(), worse.is_empty()) {
        (false, true) if !unguarded.is_empty() => (
            Decision::TradeOff,
            format!("Weigh {name}: better {better_words}, but {unguarded} cannot be judged."),
        ),
        (false, true) => (Decision::Ship, format!("Ship {name}: {better_words}.")),
        (true, false) => (Decision::RollBack, format!("Roll back {name}: {worse_words}.")),
        (false, false) => (
            Decision::TradeOff,
            format!("Weigh {name}: better {better_words}, but worse {worse_words}."),
        ),
        (true, true) => (Decision::KeepRunning, inconclusive(arm, name, metrics, alpha)),
    };
    ArmVerdict { arm, decision, sentence }
}

fn inconclusive(arm: usize, name: &str, metrics: &[MetricReport], alpha: f64) -> String {
    let goal = metrics.iter().find(|metric| !metric.guardrail).or_else(|| metrics.first());
    let estimate = goal.and_then(|metric| {
        let comparison = metric.comparisons.iter().find(|c| c.arm == arm)?;
        Some((metric, comparison, comparison.estimate()))
    });
    match estimate {
        Some((metric, comparison, Ok(estimate))) => format!(
            "Keep running {name}: no effect is shown yet. The data fit any change of {} from {} \
             to {} ({} interval).{}",
            metric.name,
            format::effect(estimate.low, comparison.scale, metric.kind),
            format::effect(estimate.high, comparison.scale, metric.kind),
            format::coverage(alpha),
            detectable_words(metric, comparison),
        ),
        Some((metric, _, Err(error))) => {
            format!("Keep running {name}: {} cannot be judged, {error}.", metric.name)
        }
        None => format!("Keep running {name}: there is no metric to judge."),
    }
}

fn detectable_words(metric: &MetricReport, comparison: &Comparison) -> String {
    comparison.detectable.map_or_else(String::new, |effect| {
        let effect = format::effect(effect, comparison.scale, metric.kind);
        let effect = effect.trim_start_matches('+');
        format!(" Today's users find a true change of {effect} four times in five.")
    })
}

fn effect_words(metric: &MetricReport, comparison: &Comparison) -> String {
    let words = |estimate: Estimate| {
        let on = |value| format::effect(value, comparison.scale, metric.kind);
        format!(
            "{} {} [{}, {}]",
            metric.name,
            on(estimate.value),
            on(estimate.low),
            on(estimate.high)
        )
    };
    comparison.estimate().map_or_else(|_| metric.name.clone(), words)
}

/// One sentence per choice that a statistician would ask about.
pub(crate) fn method(
    experiment: &Experiment,
    metrics: &[MetricReport],
    broken_down: bool,
) -> Vec<String> {
    let coverage = format::coverage(experiment.alpha);
    let mut sentences = vec![match experiment.inference {
        Inference::Fixed => format!(
            "Users are the unit; intervals cover {coverage} and p-values are two-sided, by \
             Welch's t-test with a fixed end date, so look once, at the end."
        ),
        Inference::Anytime { planned_users } => format!(
            "Users are the unit; intervals cover {coverage} at every look at once, and p-values \
             are two-sided, by asymptotic confidence sequences tightest at {} users, so look as \
             often as you like.",
            format::count(planned_users)
        ),
    }];
    if metrics.iter().any(|metric| metric.comparisons.iter().any(|c| c.scale == Scale::Relative)) {
        sentences.push(
            "Lifts are relative to the control, with the delta method's error; p-values test the \
             lift."
                .into(),
        );
    }
    if metrics.iter().any(|metric| metric.kind == "ratio") {
        sentences.push("Ratios use the delta method over users.".into());
    }
    if experiment.metrics.iter().any(|metric| {
        metric.cuped.is_some() && metrics.iter().any(|shown| shown.name == metric.name)
    }) {
        sentences.push(
            "CUPED subtracts what the same metric before exposure explains; arm values are shown \
             before it."
                .into(),
        );
    }
    let goals: usize =
        metrics.iter().filter(|metric| !metric.guardrail).map(|m| m.comparisons.len()).sum();
    if goals > 1 {
        sentences.push(format!(
            "Calls on goals use Holm's correction over {goals} comparisons; guardrails use none."
        ));
    }
    if broken_down {
        sentences.push("In the breakdown Holm's correction runs over each metric's rows.".into());
    }
    sentences.push(
        "First exposures count; users seen in several variants are left out; users without events \
         count as 0."
            .into(),
    );
    sentences
}
