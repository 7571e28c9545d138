//! A question, its answer cut into slices of users, and the metrics that it was asked for.
//!
//! # Invariants
//! - Every cell of the answer fits the question.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::figures::{ArmData, Exposed, MetricData};
use crate::definition::{Experiment, Metric, Unit};
use crate::moments::Moments;
use crate::query::{Aggregate, Cell, MomentsQuery, MomentsTable, QuantileCell, find_metric};
use crate::report::Day;

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
pub(super) type Key = Option<(usize, String)>;

/// Where the users of a metric in an arm are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counted {
    /// Everyone counts.
    Everyone,
    /// Units are users, of whom some are left out, or given.
    Moments,
    /// A column of the moments has them, per cluster.
    Column(usize),
}

impl Counted {
    /// Of moments of these columns, which leave users out.
    pub(super) fn of(query: &MomentsQuery, columns: &[usize]) -> Self {
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
    pub(super) fn users(self, moments: &Moments) -> u64 {
        match self {
            Self::Column(column) => moments.sum(column).round() as u64,
            Self::Everyone | Self::Moments => moments.count(),
        }
    }
}

/// All arms of one slice.
#[derive(Debug, Clone)]
pub(super) struct Slice<'t> {
    /// Per group of the query.
    pub(super) counted: Vec<Counted>,
    /// Per arm.
    pub(super) users: Vec<u64>,
    /// Per arm, one per group of the query.
    pub(super) groups: Vec<Cow<'t, [Moments]>>,
    /// Per arm, one per quantile of the query.
    pub(super) quantiles: Vec<Vec<Option<&'t QuantileCell>>>,
}

impl<'t> Slice<'t> {
    pub(super) fn empty(experiment: &Experiment, query: &MomentsQuery) -> Self {
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
    pub(super) fn merge(&mut self, from: &Self) {
        self.users.iter_mut().zip(&from.users).for_each(|(into, more)| *into += more);
        for (into, from) in self.groups.iter_mut().zip(&from.groups) {
            into.to_mut().iter_mut().zip(from.iter()).for_each(|(into, from)| into.merge(from));
        }
        self.quantiles.iter_mut().flatten().for_each(|cell| *cell = None);
    }

    pub(super) fn arm(&self, arm: usize, metric: usize, quantile: Option<usize>) -> ArmData<'_> {
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
pub(super) struct Analysis<'a> {
    pub(super) experiment: &'a Experiment,
    pub(super) query: &'a MomentsQuery,
    pub(super) table: &'a MomentsTable,
    pub(super) metrics: Vec<&'a Metric>,
    pub(super) total: Slice<'a>,
    /// Exposed users who were never activated, if users are to be.
    pub(super) idle: Option<Slice<'a>>,
    /// Per dimension of the query.
    pub(super) by_value: Vec<BTreeMap<String, Slice<'a>>>,
}

impl<'a> Analysis<'a> {
    pub(super) fn new(
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

    /// What is known of one metric in one slice; with strata only for everyone.
    pub(super) fn metric_data<'s>(
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

    /// Units of randomness per arm, whomever metrics leave out.
    pub(super) fn units(&self) -> Vec<u64> {
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

    pub(super) fn first_exposures(&self) -> Vec<Day> {
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
pub(super) fn slices<'t>(
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
