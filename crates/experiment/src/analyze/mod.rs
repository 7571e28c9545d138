//! From moments to a report.
//!
//! # Invariants
//! - Goals share one family for the correction; guardrails are judged alone, because missing
//!   harm is worse than a false alarm; each metric's breakdown is a family of its own.
//! - A red sample ratio leaves the numbers in place and takes the verdict away.
//!
//! # Not here
//! No layout, no SQL.

mod breakdown;
mod checks;
mod dilute;
mod follow_up;
mod judge;
mod method;
mod minimum;
mod overlap;
mod progress;
mod series;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use crate::definition::{
    Correction, Direction, Experiment, Inference, Lift, Metric, MetricKind, Unit, Variant,
};
use crate::left_out::notes;
use crate::moments::Moments;
use crate::multiplicity::{benjamini_hochberg, holm};
use crate::paths::{DESCRIPTIVE, PathReport};
use crate::query::{Aggregate, Cell, MomentsQuery, MomentsTable, QuantileCell, find_metric};
use crate::report::{
    Alternative, Arm, Breakdown, Call, Comparison, Day, Funnel, FunnelStep, Health, MetricReport,
    Overlap, PTests, Report, SCHEMA,
};
use crate::verdict;
use judge::{
    ArmData, Exposed, MetricData, View, compare_all, judge_metric, leave_out_zero, set_call,
};
use overlap::correct_interactions;

use breakdown::correct_differences;
pub use breakdown::{MAX_BREAKDOWN_ROWS, OTHERS, values_put_together};

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
    #[error("cell {cell} is of dimension {found}, but the query has {expected}")]
    Dimension { cell: usize, found: usize, expected: usize },
    #[error("a quantile's cell does not fit the query")]
    Quantile,
}

/// Which users a slice holds: everyone, or those with a value of a dimension of the query.
type Key = Option<(usize, String)>;

/// Where the users of a metric in an arm are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counted {
    /// Everyone counts.
    Everyone,
    /// Units are users, of whom some are left out, or given.
    Moments,
    /// A column of the moments has them, per cluster.
    Column(usize),
}

impl Counted {
    /// Of moments of these columns, which leave users out.
    fn of(query: &MomentsQuery, columns: &[usize]) -> Self {
        let is_one = |column: &usize| query.columns[*column].aggregate == Aggregate::One;
        columns.iter().position(is_one).map_or(Self::Moments, Self::Column)
    }

    fn of_metric(experiment: &Experiment, query: &MomentsQuery, metric: usize) -> Self {
        if matches!(experiment.exposures.unit, Unit::Summary { .. }) {
            return Self::Moments;
        }
        match query.complete_ms(metric) {
            Some(_) => Self::of(query, &query.groups[metric]),
            None => Self::Everyone,
        }
    }

    /// Those whom the moments know.
    fn users(self, moments: &Moments) -> u64 {
        match self {
            Self::Column(column) => moments.sum(column).round() as u64,
            Self::Everyone | Self::Moments => moments.count(),
        }
    }
}

/// All arms of one slice.
#[derive(Debug, Clone)]
struct Slice<'t> {
    /// Per group of the query.
    counted: Vec<Counted>,
    /// Per arm.
    users: Vec<u64>,
    /// Per arm, one per group of the query.
    groups: Vec<Cow<'t, [Moments]>>,
    /// Per arm, one per quantile of the query.
    quantiles: Vec<Vec<Option<&'t QuantileCell>>>,
}

impl<'t> Slice<'t> {
    fn empty(experiment: &Experiment, query: &MomentsQuery) -> Self {
        let arms = experiment.variants.len();
        let groups: Vec<Moments> =
            query.groups.iter().map(|columns| Moments::new(columns.len())).collect();
        Self {
            counted: (0..query.groups.len())
                .map(|metric| Counted::of_metric(experiment, query, metric))
                .collect(),
            users: vec![0; arms],
            groups: vec![Cow::Owned(groups); arms],
            quantiles: vec![vec![None; query.quantiles.len()]; arms],
        }
    }

    /// Adds the users of another slice. Quantiles cannot be added: they are lost.
    fn merge(&mut self, from: &Self) {
        self.users.iter_mut().zip(&from.users).for_each(|(into, more)| *into += more);
        for (into, from) in self.groups.iter_mut().zip(&from.groups) {
            into.to_mut().iter_mut().zip(from.iter()).for_each(|(into, from)| into.merge(from));
        }
        self.quantiles.iter_mut().flatten().for_each(|cell| *cell = None);
    }

    fn arm(&self, arm: usize, metric: usize, quantile: Option<usize>) -> ArmData<'_> {
        let moments = &self.groups[arm][metric];
        ArmData {
            users: match self.counted[metric] {
                Counted::Everyone => self.users[arm],
                counted => counted.users(moments),
            },
            moments,
            quantile: quantile.and_then(|index| self.quantiles[arm][index]),
        }
    }
}

/// A question, its answer cut into slices, and the metrics it was asked for.
struct Analysis<'a> {
    experiment: &'a Experiment,
    query: &'a MomentsQuery,
    table: &'a MomentsTable,
    metrics: Vec<&'a Metric>,
    total: Slice<'a>,
    /// Exposed users who were never activated, if users are to be.
    idle: Option<Slice<'a>>,
    /// Per dimension of the query.
    by_value: Vec<BTreeMap<String, Slice<'a>>>,
}

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
    fn new(
        experiment: &'a Experiment,
        query: &'a MomentsQuery,
        table: &'a MomentsTable,
    ) -> Result<Self, AnalyzeError> {
        let find = |name: &String| {
            find_metric(experiment, name).map_err(|_| AnalyzeError::UnknownMetric {
                experiment: experiment.name.clone(),
                metric: name.clone(),
            })
        };
        let metrics: Vec<&Metric> = query.metrics.iter().map(find).collect::<Result<_, _>>()?;
        let mut found = slices(experiment, query, &table.cells)?;
        place_quantiles(experiment, query, table, &mut found)?;
        for (index, cell) in table.others.iter().enumerate() {
            check_cell(experiment, query, index, cell)?;
        }
        let empty = || Slice::empty(experiment, query);
        let total = found.remove(&None).unwrap_or_else(empty);
        let activates = experiment.exposures.activated_by.is_some();
        let idle = activates.then(|| slices(experiment, query, &table.never_activated));
        let idle = idle.transpose()?.map(|mut all| all.remove(&None).unwrap_or_else(empty));
        let mut by_value = vec![BTreeMap::new(); query.dimensions.len()];
        for (key, slice) in found {
            if let Some((dimension, value)) = key {
                by_value[dimension].insert(value, slice);
            }
        }
        Ok(Self { experiment, query, table, metrics, total, idle, by_value })
    }

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

    /// What is known of one metric in one slice; with strata only for everyone.
    fn metric_data<'s>(
        &'s self,
        slice: &'s Slice<'a>,
        index: usize,
        everyone: bool,
    ) -> MetricData<'s> {
        let quantile = self.query.quantiles.iter().position(|q| q.metric == index);
        let arms = |slice: &'s Slice<'a>| -> Vec<ArmData<'s>> {
            (0..slice.users.len()).map(|arm| slice.arm(arm, index, quantile)).collect()
        };
        let stratify = self.experiment.stratify.as_ref().filter(|_| everyone);
        let strata = stratify.and_then(|name| {
            let dimension = self.query.dimensions.iter().position(|d| d.name == *name)?;
            Some(self.by_value[dimension].values().map(arms).collect())
        });
        let caps = self.query.groups[index]
            .first()
            .and_then(|column| self.table.caps.iter().find(|(capped, _)| capped == column));
        MetricData {
            arms: arms(slice),
            strata: strata.unwrap_or_default(),
            cap: caps.map(|(_, cap)| *cap),
            exposed: self.idle.as_ref().filter(|_| everyone).map(|idle| Exposed {
                activated: slice.users.iter().sum(),
                idle_users: idle.users.iter().sum(),
                idle: arms(idle),
            }),
            share: match slice.users.iter().sum::<u64>() {
                // gbstats tunes every breakdown as the whole.
                _ if everyone || self.experiment.growthbook => 1.0,
                users => users as f64 / self.total.users.iter().sum::<u64>().max(1) as f64,
            },
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

    /// Units of randomness per arm, whomever metrics leave out.
    fn units(&self) -> Vec<u64> {
        if !self.table.clusters.is_empty() {
            return self.table.clusters.clone();
        }
        let everyone = self.total.counted.iter().position(|counted| *counted == Counted::Everyone);
        let units = |arm: usize| match everyone {
            Some(group) => self.total.groups[arm][group].count(),
            None => self.total.users[arm],
        };
        (0..self.total.users.len()).map(units).collect()
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

    fn first_exposures(&self) -> Vec<Day> {
        let variants = self.experiment.variants.len();
        let mut days: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for (day, variant, users) in &self.table.first_exposures {
            let counts = days.entry(day).or_insert_with(|| vec![0; variants]);
            if let Some(count) = counts.get_mut(*variant) {
                *count += users;
            }
        }
        days.into_iter().map(|(day, users)| Day { day: day.to_owned(), users }).collect()
    }
}

/// Checks every cell and puts it into its slice.
fn slices<'t>(
    experiment: &Experiment,
    query: &MomentsQuery,
    cells: &'t [Cell],
) -> Result<BTreeMap<Key, Slice<'t>>, AnalyzeError> {
    let mut slices: BTreeMap<Key, Slice<'t>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for (index, cell) in cells.iter().enumerate() {
        check_cell(experiment, query, index, cell)?;
        if !seen.insert((&cell.slice, cell.variant)) {
            let value = cell.slice.as_ref().map(|(_, value)| value.clone());
            return Err(AnalyzeError::Repeated { value, variant: cell.variant });
        }
        let slice =
            slices.entry(cell.slice.clone()).or_insert_with(|| Slice::empty(experiment, query));
        slice.users[cell.variant] = cell.users;
        slice.groups[cell.variant] = Cow::Borrowed(&cell.groups);
    }
    Ok(slices)
}

fn check_cell(
    experiment: &Experiment,
    query: &MomentsQuery,
    index: usize,
    cell: &Cell,
) -> Result<(), AnalyzeError> {
    let variants = experiment.variants.len();
    if cell.variant >= variants {
        return Err(AnalyzeError::Variant { cell: index, variant: cell.variant, variants });
    }
    if let Some((found, _)) = cell.slice
        && found >= query.dimensions.len()
    {
        let expected = query.dimensions.len();
        return Err(AnalyzeError::Dimension { cell: index, found, expected });
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
        // Who computed sums may have had other users for each metric, and some leave users out.
        let counts_all = |group| Counted::of_metric(experiment, query, group) == Counted::Everyone;
        let Some(first) = (0..group).find(|first| counts_all(*first) && counts_all(group)) else {
            continue;
        };
        let (found, expected) = (moments.count(), cell.groups[first].count());
        if found != expected {
            return Err(AnalyzeError::Users { cell: index, group, found, expected });
        }
    }
    Ok(())
}

fn place_quantiles<'t>(
    experiment: &Experiment,
    query: &MomentsQuery,
    table: &'t MomentsTable,
    slices: &mut BTreeMap<Key, Slice<'t>>,
) -> Result<(), AnalyzeError> {
    for cell in &table.quantiles {
        let fits = cell.quantile < query.quantiles.len()
            && cell.variant < experiment.variants.len()
            && cell.slice.as_ref().is_none_or(|(index, _)| *index < query.dimensions.len());
        if !fits {
            return Err(AnalyzeError::Quantile);
        }
        let slice =
            slices.entry(cell.slice.clone()).or_insert_with(|| Slice::empty(experiment, query));
        slice.quantiles[cell.variant][cell.quantile] = Some(cell);
    }
    Ok(())
}

/// The correction in force: beliefs need none.
fn correction(experiment: &Experiment) -> Correction {
    match experiment.inference {
        Inference::Bayesian { .. } => Correction::None,
        _ => experiment.correction,
    }
}

/// The level of the intervals of a family of so many comparisons. By Holm's method it is Bonferroni's: they hold
/// together with 1 - alpha. By Benjamini and Hochberg's it is known once they are judged.
fn family_level(experiment: &Experiment, comparisons: usize) -> f64 {
    match correction(experiment) {
        Correction::Holm => experiment.alpha / comparisons.max(1) as f64,
        _ => experiment.alpha,
    }
}

/// Corrects the p-values of one family and calls its comparisons anew. Gives the level that its intervals are to
/// have instead of alpha, where that depends on what is called.
///
/// # Source
/// Intervals after Holm's method: Bonferroni's, without what the method rejects. After Benjamini and Hochberg's:
/// Benjamini & Yekutieli, "False discovery rate-adjusted multiple confidence intervals for selected parameters",
/// JASA 100, 2005.
fn correct_family<'c>(
    experiment: &Experiment,
    family: impl Iterator<Item = (Direction, &'c mut Comparison)>,
) -> Option<f64> {
    let mut family: Vec<(Direction, &mut Comparison)> =
        family.filter(|(_, comparison)| comparison.estimate().is_ok()).collect();
    let p: Vec<f64> =
        family.iter().filter_map(|(_, c)| c.estimate().ok()).map(|estimate| estimate.p).collect();
    let (alpha, count) = (experiment.alpha, p.len());
    let correction = correction(experiment);
    let adjusted = match correction {
        Correction::Holm => holm(&p),
        Correction::BenjaminiHochberg => benjamini_hochberg(&p),
        Correction::None => p,
    };
    let rejected = adjusted.iter().filter(|p| **p < alpha).count();
    for ((direction, comparison), adjusted) in family.iter_mut().zip(adjusted) {
        set_call(comparison, Some(adjusted), *direction, alpha);
        if correction == Correction::Holm && adjusted < alpha {
            leave_out_zero(comparison);
        }
    }
    let is_level_new = correction == Correction::BenjaminiHochberg && rejected.max(1) < count;
    is_level_new.then(|| alpha * rejected.max(1) as f64 / count as f64)
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

fn correct_goals(experiment: &Experiment, metrics: &mut [MetricReport]) -> Option<f64> {
    let goals = metrics.iter_mut().filter(|metric| !metric.guardrail);
    correct_family(experiment, goals.flat_map(directed))
}

fn directed(metric: &mut MetricReport) -> impl Iterator<Item = (Direction, &mut Comparison)> {
    let direction = metric.direction;
    metric.comparisons.iter_mut().map(move |comparison| (direction, comparison))
}
