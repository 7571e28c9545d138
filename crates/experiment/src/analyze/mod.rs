//! From moments to a report.
//!
//! # Invariants
//! - Goals share one family for the correction; guardrails are judged alone, because missing
//!   harm is worse than a false alarm; each metric's breakdown is a family of its own.
//! - A red sample ratio leaves the numbers in place and takes the verdict away.
//!
//! # Not here
//! No layout, no SQL.

mod analysis;
mod breakdown;
mod checks;
mod dilute;
mod families;
mod figures;
mod fixed_lift;
mod follow_up;
mod judge;
mod method;
mod minimum;
mod overlap;
mod progress;
mod series;
mod view;

use crate::definition::{Correction, Experiment, Inference, Lift, MetricKind, Variant};
use crate::left_out::notes;
use crate::paths::{DESCRIPTIVE, PathReport};
use crate::query::{MomentsQuery, MomentsTable};
use crate::report::{
    Alternative, Arm, Breakdown, Call, Comparison, Funnel, FunnelStep, Health, MetricReport,
    Overlap, PTests, Report, SCHEMA,
};
use crate::verdict;
use analysis::Analysis;
use breakdown::correct_differences;
use families::{correct_family, correct_goals, correction, family_level};
use judge::{compare_all, judge_metric};
use overlap::correct_interactions;
use view::View;

pub use analysis::AnalyzeError;
pub use breakdown::{MAX_BREAKDOWN_ROWS, OTHERS, values_put_together};

/// Everything a report says, from the moments that `query` asked for.
///
/// # Errors
/// [`AnalyzeError`] if `table` does not answer `query`.
pub fn analyze(
    experiment: &Experiment,
    query: &MomentsQuery,
    table: &MomentsTable,
) -> Result<Report, AnalyzeError> {
    Ok(Analysis::new(experiment, query, table)?.report())
}

/// The same judged for every choice of a reader that the data allow: baseline arm, CUPED or not,
/// one look or any. Calls use the definition's correction.
///
/// # Errors
/// As [`analyze`].
pub fn alternatives(
    experiment: &Experiment,
    query: &MomentsQuery,
    table: &MomentsTable,
) -> Result<Vec<Alternative>, AnalyzeError> {
    let analysis = Analysis::new(experiment, query, table)?;
    let users = &analysis.total.users;
    let watched = View::anytime(experiment.inference, users);
    let has_cuped = analysis.metrics.iter().any(|metric| metric.cuped.is_some());
    let is_off = analysis.check_health(&[]).sample_ratio.alarm;
    let mut found = Vec::new();
    for baseline in 0..experiment.variants.len() {
        for cuped in [true, false] {
            for anytime in [false, true] {
                if cuped && !has_cuped {
                    continue;
                }
                let inference = if anytime { watched } else { Inference::Fixed };
                let view = View::new(experiment, baseline, cuped, inference, users);
                let mut comparisons = analysis.compare_goals_and_guardrails(&view);
                if is_off {
                    comparisons.iter_mut().flatten().for_each(not_called);
                }
                found.push(Alternative { baseline, cuped, anytime, comparisons });
            }
        }
    }
    Ok(found)
}

impl<'a> Analysis<'a> {
    fn report(&self) -> Report {
        let experiment = self.experiment;
        let view = View::of(experiment, &self.total.users);
        let mut results = self.judge_goals_and_guardrails(&view);
        self.add_in_progress(&mut results);
        self.add_since(&mut results);
        let mut breakdowns = Vec::new();
        for (dimension, values) in self.by_value.iter().enumerate() {
            breakdowns.push(self.break_down(&view, dimension, values));
        }
        correct_differences(&mut breakdowns);
        let mut overlaps: Vec<Overlap> =
            self.query.others.iter().map(|other| self.overlap(&view, other)).collect();
        correct_interactions(&mut overlaps);
        let days = self.add_series(&view, &mut results);
        let health = self.check_health(&breakdowns);
        distrust(&health, &mut results, &mut breakdowns);
        for (index, (metric, result)) in self.metrics.iter().zip(&mut results).enumerate() {
            result.about.clone_from(&metric.about);
            minimum::note(experiment, metric, result);
            let left_out = &self.table.left_out;
            result.notes.extend(notes(self.query, left_out, metric, index, &health.unmatched));
        }
        dilute::add_notes(experiment, &mut results);
        let arms = self.arms();
        let first_exposures = self.first_exposures();
        let mut method = verdict::method(experiment, &results, !breakdowns.is_empty());
        if !self.query.paths.is_empty() {
            method.push(DESCRIPTIVE.into());
        }
        let verdict = verdict::decide(experiment, &arms, &health, &results, first_exposures.len());
        Report {
            schema: SCHEMA,
            experiment: experiment.name.clone(),
            hypothesis: experiment.hypothesis.clone(),
            period: experiment.period.as_ref().map(|p| [p.start.clone(), p.end.clone()]),
            time_zone: experiment.time_zone.clone(),
            alpha: experiment.alpha,
            inference: match experiment.inference {
                Inference::Fixed => "fixed",
                Inference::Anytime { .. } => "anytime",
                Inference::GroupSequential { .. } => "group_sequential",
                Inference::Bayesian { .. } => "bayesian",
            },
            correction: match correction(experiment) {
                Correction::Holm => "holm",
                Correction::BenjaminiHochberg => "benjamini-hochberg",
                Correction::None => "none",
            },
            p_tests: match (experiment.inference, experiment.lift) {
                (Inference::Bayesian { .. }, _) => PTests::Belief,
                (_, Lift::Delta) => PTests::ShownEffect,
                (_, Lift::Fieller | Lift::None) => PTests::Difference,
            },
            unit: experiment.exposures.unit.name(),
            method,
            arms,
            health,
            verdict,
            progress: self.progress(),
            primary: verdict::primary(&results),
            funnels: self.funnels(),
            paths: self.paths(),
            metrics: results,
            breakdowns,
            overlaps,
            first_exposures,
            days,
            observed_until: self.table.observed_until.clone(),
            reproduce: None,
            alternatives: Vec::new(),
        }
    }

    /// All metrics for everyone: goals as one family, guardrails alone.
    fn judge_goals_and_guardrails(&self, view: &View<'_>) -> Vec<MetricReport> {
        let judge = |index: usize, view: &View<'_>| {
            judge_metric(view, self.metrics[index], &self.metric_data(&self.total, index, true))
        };
        let of_goals = self.view_of_goals(view);
        let is_goal = |index: &usize| !self.metrics[*index].guardrail;
        let view_of = |index: usize| if is_goal(&index) { &of_goals } else { view };
        let count = self.metrics.len();
        let mut results: Vec<MetricReport> =
            (0..count).map(|index| judge(index, view_of(index))).collect();
        if let Some(level) = correct_goals(self.experiment, &mut results) {
            let view = view.at(level);
            (0..count).filter(is_goal).for_each(|index| results[index] = judge(index, &view));
            correct_goals(self.experiment, &mut results);
        }
        results
    }

    /// How goals are compared, of which there are so many.
    fn view_of_goals<'v>(&self, view: &View<'v>) -> View<'v> {
        let goals = self.metrics.iter().filter(|metric| !metric.guardrail).count();
        view.at(family_level(self.experiment, goals * (self.experiment.variants.len() - 1)))
    }

    fn compare_goals_and_guardrails(&self, view: &View<'_>) -> Vec<Vec<Comparison>> {
        let compare = |index: usize, view: &View<'_>| {
            compare_all(view, self.metrics[index], &self.metric_data(&self.total, index, true)).0
        };
        let of_goals = self.view_of_goals(view);
        let is_goal = |index: &usize| !self.metrics[*index].guardrail;
        let view_of = |index: usize| if is_goal(&index) { &of_goals } else { view };
        let count = self.metrics.len();
        let mut all: Vec<Vec<Comparison>> =
            (0..count).map(|index| compare(index, view_of(index))).collect();
        let correct = |all: &mut Vec<Vec<Comparison>>| {
            let family = self.metrics.iter().zip(all).filter(|(metric, _)| !metric.guardrail);
            correct_family(
                self.experiment,
                family.flat_map(|(metric, comparisons)| {
                    comparisons.iter_mut().map(|comparison| (metric.direction, comparison))
                }),
            )
        };
        if let Some(level) = correct(&mut all) {
            let view = view.at(level);
            (0..count).filter(is_goal).for_each(|index| all[index] = compare(index, &view));
            correct(&mut all);
        }
        all
    }

    fn arms(&self) -> Vec<Arm> {
        let units = self.units();
        let total: u64 = units.iter().sum();
        let arm = |(index, variant): (usize, &Variant)| Arm {
            name: variant.name.clone(),
            control: variant.control,
            planned_share: variant.share,
            users: self.total.users[index],
            units: units[index],
            share: (total > 0).then(|| units[index] as f64 / total as f64),
        };
        self.experiment.variants.iter().enumerate().map(arm).collect()
    }

    fn funnels(&self) -> Vec<Funnel> {
        let mut funnels: Vec<Funnel> = Vec::new();
        for (index, metric) in self.metrics.iter().enumerate() {
            let MetricKind::Step { funnel, steps, reached, .. } = &metric.kind else { continue };
            let step = FunnelStep { name: steps[reached - 1].name.clone(), metric: index };
            match funnels.iter_mut().find(|known| known.name == *funnel) {
                Some(known) => known.steps.push(step),
                None => {
                    let asked = &self.query.conversion_times;
                    let place = asked.iter().position(|asked| asked.funnel == *funnel);
                    let found = place.and_then(|place| self.table.conversion_times.get(place));
                    let (name, steps) = (funnel.clone(), vec![step]);
                    funnels.push(Funnel { name, steps, conversion_time: found.cloned() });
                }
            }
        }
        funnels
    }

    fn paths(&self) -> Vec<PathReport> {
        let answers = self.query.paths.iter().zip(&self.table.paths);
        answers.map(|(path, table)| PathReport::new(path, table, &self.total.users)).collect()
    }
}

/// Where users did not fall into the arms as planned nothing is called: for everyone, or for a dimension's value.
fn distrust(health: &Health, metrics: &mut [MetricReport], breakdowns: &mut [Breakdown]) {
    if health.sample_ratio.alarm {
        metrics.iter_mut().flat_map(|metric| &mut metric.comparisons).for_each(not_called);
    }
    for Breakdown { dimension, rows, .. } in breakdowns {
        let is_off = |value: &str| {
            health.sample_ratio.alarm
                || health.sample_ratio_alarms.iter().any(|alarm| alarm.is_of(dimension, value))
        };
        for row in rows.iter_mut().filter(|row| is_off(&row.value)) {
            row.metrics.iter_mut().flat_map(|metric| &mut metric.comparisons).for_each(not_called);
        }
    }
}

fn not_called(comparison: &mut Comparison) {
    if comparison.call != Call::Unavailable {
        comparison.call = Call::Untrusted;
    }
}
