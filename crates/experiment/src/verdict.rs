//! The report in words: what to do, and how the numbers were made.
//!
//! # Not here
//! No numbers are computed here; `analyze` has already judged each comparison.

use crate::definition::{Correction, Experiment, Inference, Lift, Metric};
use crate::effect::Estimate;
use crate::format;
use crate::report::{
    Arm, ArmVerdict, Call, Comparison, Decision, Health, MetricReport, Role, Scale, Verdict,
};

/// The decision for each treatment arm and for the experiment. `days`: with exposures so far.
pub(crate) fn decide(
    experiment: &Experiment,
    arms: &[Arm],
    health: &Health,
    metrics: &[MetricReport],
    days: usize,
) -> Verdict {
    if health.sample_ratio.alarm {
        let activation = health.activation.as_ref().filter(|check| check.alarm);
        if let Some(test) = activation.and_then(|check| check.independence) {
            let sentence = format!(
                "Do not trust these results: the arms differ in how many users were activated (p = {}), so \
                 those who were do not compare. Activate by something that the treatment cannot change.",
                format::p_value(test.p)
            );
            return Verdict { decision: Decision::DoNotTrust, sentence, arms: Vec::new() };
        }
        let sentence = format!(
            "Do not trust these results: users did not fall into the arms as planned (p = {}). \
             Find the cause, such as lost exposures, redirects or bots, before reading any effect.",
            format::p_value(health.sample_ratio.p.unwrap_or(0.0))
        );
        return Verdict { decision: Decision::DoNotTrust, sentence, arms: Vec::new() };
    }
    let judged: Vec<ArmVerdict> = (0..arms.len())
        .filter(|arm| !arms[*arm].control)
        .map(|arm| decide_arm(experiment, arms, arm, metrics, days))
        .collect();
    let best = judged.iter().map(|verdict| verdict.decision).min_by_key(|d| d.rank());
    let sentences: Vec<&str> = judged.iter().map(|verdict| verdict.sentence.as_str()).collect();
    Verdict {
        decision: best.unwrap_or(Decision::KeepRunning),
        sentence: sentences.join(" "),
        arms: judged,
    }
}

/// The metric that leads: the first primary one, without any the first goal.
pub(crate) fn primary(metrics: &[MetricReport]) -> usize {
    let first = |role: Role| metrics.iter().position(|metric| metric.role == role);
    first(Role::Primary).or_else(|| first(Role::Secondary)).unwrap_or(0)
}

fn decide_arm(
    experiment: &Experiment,
    arms: &[Arm],
    arm: usize,
    metrics: &[MetricReport],
    days: usize,
) -> ArmVerdict {
    let name = &arms[arm].name;
    let of_arm = |guardrail: bool| {
        let chosen = metrics.iter().filter(move |metric| metric.guardrail == guardrail);
        chosen.flat_map(move |metric| {
            metric.comparisons.iter().filter(move |c| c.arm == arm).map(move |c| (metric, c))
        })
    };
    let pick = |guardrail: bool, call: Call| -> Vec<String> {
        let found = of_arm(guardrail).filter(|(_, c)| c.call == call);
        found.map(|(metric, c)| effect_words(metric, c)).collect()
    };
    let better = pick(false, Call::Better);
    let mut worse = pick(true, Call::Worse);
    worse.extend(pick(false, Call::Worse));
    // A guardrail without an estimate guards nothing, and one that may still be worse by its margin
    // is not shown to hold: shipping is then for people to decide.
    let mut unguarded: Vec<String> = pick(true, Call::Unavailable)
        .into_iter()
        .map(|words| format!("{words} cannot be judged"))
        .collect();
    let has = |metric: &MetricReport, what: fn(&Metric) -> bool| {
        experiment.metrics.iter().find(|known| known.name == metric.name).is_some_and(what)
    };
    unguarded.extend(of_arm(true).filter_map(|(metric, c)| {
        match (c.non_inferiority, c.call) {
            (_, Call::Worse) | (None, Call::Unavailable) => None,
            (Some(check), _) => (!check.holds).then(|| {
                format!(
                    "{} may still be worse by {}",
                    metric.name,
                    format::percent(check.margin, 1)
                )
            }),
            (None, _) => has(metric, |known| known.margin.is_some())
                .then(|| format!("{} cannot be judged within its margin", metric.name)),
        }
    }));
    let differs = of_arm(true).filter(|(_, c)| c.call != Call::Worse);
    unguarded.extend(differs.filter_map(|(metric, c)| {
        match c.equivalence {
            Some(check) => (!check.holds).then(|| {
                format!("{} may still differ by {}", metric.name, format::percent(check.margin, 1))
            }),
            None => (has(metric, |known| known.equivalence.is_some())
                && c.call != Call::Unavailable)
                .then(|| format!("{} cannot be judged within its margin", metric.name)),
        }
    }));
    let unguarded = unguarded.join(", ");
    let same: Vec<String> =
        of_arm(false).filter_map(|(metric, c)| equivalent_words(metric, c)).collect();
    // Goals that are all to stay as they are: each is a test of its own, and all of them must hold.
    let all_same = !same.is_empty() && same.len() == of_arm(false).count();
    let same = same.join(", ");
    let (better_words, worse_words) = (better.join(", "), worse.join(", "));
    let (decision, sentence) = match (better.is_empty(), worse.is_empty()) {
        (false, true) if !unguarded.is_empty() => {
            (Decision::TradeOff, format!("Weigh {name}: better {better_words}, but {unguarded}."))
        }
        (false, true) => (Decision::Ship, format!("Ship {name}: {better_words}.")),
        (true, false) => (Decision::RollBack, format!("Roll back {name}: {worse_words}.")),
        (false, false) => (
            Decision::TradeOff,
            format!("Weigh {name}: better {better_words}, but worse {worse_words}."),
        ),
        (true, true) if all_same && unguarded.is_empty() => {
            (Decision::Ship, format!("Ship {name}: {same}."))
        }
        (true, true) if all_same => {
            (Decision::TradeOff, format!("Weigh {name}: {same}, but {unguarded}."))
        }
        (true, true) => {
            let users: u64 = arms.iter().map(|arm| arm.users).sum();
            let words = inconclusive(arm, name, metrics, experiment.alpha);
            let same = if same.is_empty() { same } else { format!(" Shown already: {same}.") };
            (Decision::KeepRunning, words + &further_words(arm, metrics, users, days) + &same)
        }
    };
    ArmVerdict { arm, decision, sentence }
}

/// More than this many times today's users is no plan.
const FURTHER_MAX: f64 = 20.0;

/// How long it takes if the primary metric's effect is as large as it looks.
fn further_words(arm: usize, metrics: &[MetricReport], users: u64, days: usize) -> String {
    let goal = metrics.get(primary(metrics));
    let comparison = goal.and_then(|goal| goal.comparisons.iter().find(|c| c.arm == arm));
    let Some(factor) = comparison.and_then(|comparison| comparison.further_users) else {
        return String::new();
    };
    if factor > FURTHER_MAX {
        return format!(
            " An effect as small as it looks would take more than {FURTHER_MAX:.0} times today's \
             users to show."
        );
    }
    let more = format::count((users as f64 * factor).ceil() as u64);
    let pace = match (days as f64 * factor).ceil() {
        wait if days > 1 && wait == 1.0 => ", 1 day at this pace,".into(),
        wait if days > 1 => format!(", {wait:.0} days at this pace,"),
        _ => String::new(),
    };
    if factor == 0.0 {
        return String::new();
    }
    format!(
        " If the effect is as large as it looks, {more} more users{pace} would show it four \
         times in five."
    )
}

fn inconclusive(arm: usize, name: &str, metrics: &[MetricReport], alpha: f64) -> String {
    let goal = metrics.get(primary(metrics));
    let estimate = goal.and_then(|metric| {
        let comparison = metric.comparisons.iter().find(|c| c.arm == arm)?;
        Some((metric, comparison, comparison.estimate()))
    });
    match estimate {
        Some((metric, comparison, Ok(estimate))) => format!(
            "Keep running {name}: no effect is shown yet. The data fit any change of {} from {} \
             to {} ({} interval).{}",
            metric.name,
            format::effect(estimate.low, comparison.scale, metric.is_share),
            format::effect(estimate.high, comparison.scale, metric.is_share),
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
        let effect = format::effect(effect, comparison.scale, metric.is_share);
        let effect = effect.trim_start_matches('+');
        format!(" Today's users find a true change of {effect} four times in five.")
    })
}

fn effect_words(metric: &MetricReport, comparison: &Comparison) -> String {
    let words = |estimate: Estimate| {
        let on = |value| format::effect(value, comparison.scale, metric.is_share);
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

/// Which versions of which metrics of the catalogue were used, and what the definition has of its own.
fn catalogued(experiment: &Experiment, metrics: &[MetricReport]) -> Option<String> {
    let shown = |name: &str| metrics.iter().any(|metric| metric.name == name);
    let mut used: Vec<String> = Vec::new();
    for metric in experiment.metrics.iter().filter(|metric| shown(&metric.name)) {
        let Some(origin) = &metric.about.catalogue else { continue };
        let own = match origin.overrides.as_slice() {
            [] => String::new(),
            keys => format!(", with its own {}", keys.join(", ")),
        };
        let words = format!("{} version {}{own}", origin.name, origin.version);
        // Steps of a funnel are one metric of the catalogue.
        if used.last() != Some(&words) {
            used.push(words);
        }
    }
    (!used.is_empty()).then(|| format!("Metrics of the catalogue: {}.", used.join("; ")))
}

/// Of a goal that is shown to be equivalent.
fn equivalent_words(metric: &MetricReport, comparison: &Comparison) -> Option<String> {
    let check = comparison.equivalence.filter(|check| check.holds)?;
    let margin = format::percent(check.margin, 1);
    Some(format!("{} is equivalent within ±{margin}", metric.name))
}

/// One sentence per choice that a statistician would ask about.
pub(crate) fn method(
    experiment: &Experiment,
    metrics: &[MetricReport],
    broken_down: bool,
) -> Vec<String> {
    let coverage = format::coverage(experiment.alpha);
    let units = match experiment.exposures.unit.name() {
        "users" => "Users are".to_owned(),
        other => format!("{}{} are", other[..1].to_uppercase(), &other[1..]),
    };
    let mut sentences = vec![match experiment.inference {
        Inference::Fixed => format!(
            "{units} the unit; intervals cover {coverage} and p-values are two-sided, by Welch's \
             t-test with a fixed end date, so look once, at the end."
        ),
        Inference::Anytime { planned_users } => format!(
            "{units} the unit; intervals cover {coverage} at every look at once, and p-values \
             are two-sided, by asymptotic confidence sequences tightest at {} users, so look as \
             often as you like.",
            format::count(planned_users)
        ),
        Inference::GroupSequential { planned_users, looks } => format!(
            "{units} the unit; intervals and two-sided p-values hold at {looks} looks spaced \
             evenly up to {} users, {coverage} over all of them, by a group sequential test \
             (Lan and DeMets, error spent as the square of the share of users).",
            format::count(planned_users)
        ),
        Inference::Bayesian { prior } => format!(
            "{units} the unit; intervals hold {coverage} of the belief after the data, from a \
             normal likelihood and {} prior; p is twice the smaller tail.",
            match prior {
                crate::bayes::Prior::Flat => "a flat".to_owned(),
                crate::bayes::Prior::Normal { mean, variance } =>
                    format!("a normal (mean {mean}, deviation {})", variance.sqrt()),
            }
        ),
    }];
    if metrics.iter().any(|metric| metric.comparisons.iter().any(|c| c.unplanned_look)) {
        sentences.push(
            "Today's users are between two planned looks, so nothing is called; wait for the next."
                .into(),
        );
    }
    if metrics.iter().any(|metric| metric.comparisons.iter().any(|c| c.scale == Scale::Relative)) {
        sentences.push(match experiment.lift {
            Lift::Delta => {
                "Lifts are relative to the control, with the delta method's error; p-values test \
                 the lift."
            }
            Lift::Fieller | Lift::None => {
                "Lifts are relative to the control, with Fieller's interval."
            }
        }
        .into());
    }
    if metrics.iter().any(|metric| metric.comparisons.iter().any(|c| c.equivalence.is_some())) {
        sentences.push(
            "Equivalence is shown by two one-sided tests, each at alpha, of lifts of the margin up and down."
                .into(),
        );
    }
    if let Some(name) = &experiment.stratify {
        sentences
            .push(format!("Means and shares are compared within values of {name} and averaged."));
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
    let over = match (experiment.correction, experiment.inference) {
        (_, Inference::Bayesian { .. }) | (Correction::None, _) => None,
        (Correction::Holm, _) => {
            Some(("Holm's correction", "are so wide that all of them hold together"))
        }
        (Correction::BenjaminiHochberg, _) => Some((
            "Benjamini and Hochberg's correction",
            "are so wide that those of what is called hold on average",
        )),
    };
    if let Some((name, intervals)) = over.filter(|_| goals > 1) {
        sentences.push(format!(
            "Calls on goals use {name} over {goals} comparisons, and their intervals {intervals}; \
             guardrails use none."
        ));
    }
    if let Some((name, _)) = over.filter(|_| broken_down) {
        sentences.push(format!("In breakdowns {name} runs over each metric's rows."));
    }
    sentences.extend(catalogued(experiment, metrics));
    if experiment.growthbook {
        sentences.push("Definitions are those of GrowthBook's gbstats.".into());
    }
    if experiment.exposures.activated_by.is_some() {
        sentences.push(
            "Users count from their first activation at or after first exposure; others only in \
             effects over all exposed users."
                .into(),
        );
    }
    sentences.push(
        "First exposures count; users seen in several variants are left out; users without events \
         count as 0."
            .into(),
    );
    sentences
}
