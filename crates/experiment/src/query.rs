//! The seam to the engine: which moments a report needs, and the table of moments it gets back.
//!
//! A [`MomentsQuery`] asks for numbers per exposed user and for the joint moments of some of
//! them; it says nothing of how rows are scanned. A [`MomentsTable`] is the answer.
//!
//! # Rules the engine keeps
//! - A user belongs to the arm of the first exposure within the period.
//! - A user seen in several arms is left out and counted in `users_in_many_variants`.
//! - A user without rows has 0 in every column and still counts.
//! - Rows count from the first exposure (or the window's start) up to, not including, the end.
//! - A window that starts before 0 reaches back before the period's start; its end is exclusive,
//!   so that the moment of exposure belongs to the time after.
//! - A user with a row that `exclude` names is left out and counted in `users_excluded`.
//! - With `activated_by`, the first such row at or after first exposure, within the period, is what
//!   windows, days and "from first exposure" go by, but of columns with `from_exposure`. Users without
//!   one are left out of the cells and make `never_activated`.
//! - With clusters, a user's numbers are added up per cluster (of the first exposure) and the
//!   moments are over clusters. With switchbacks the unit is a region and stretch of time; all its
//!   rows within the period count, from whichever moment.
//! - Of a summary, a column's value and variance are of as many users as the row says; the rows of
//!   the last time make the cells, those of each time a day's. Users may differ between metrics.
//! - A column of complete users ([`UserColumn::complete_ms`]) leaves the others out: of its group's
//!   moments, of its cap, and in clusters of the sums; a unit without any complete user is none. Of
//!   days, a user counts from the one by whose end it is complete.
//! - A day's cells say what the whole answer would be if the data ended with that day, except that
//!   a cap that is a quantile is the whole period's, and users seen in several arms by the end are
//!   left out of all days.
//!
//! # Invariants
//! - Equal columns appear once, however many metrics use them.
//! - `groups[i]` serves `metrics[i]`.

use crate::assignment::Assignment;
use crate::definition::{
    Cap, DAY_MS, DefinitionError, Dimension, Experiment, Exposures, InProgress, Metric, MetricKind,
    Path, Period, Shape, Term, Transform, Unit, UserRows, Variant,
};
use crate::expression::{Expression, expressions, of_other};
use crate::left_out::LeftOut;
use crate::moments::Moments;
use crate::paths::{ConversionTime, PathTable};
use crate::quantile::Band;
use crate::toml_reader::nearest;

/// What a report needs to know about the data.
#[derive(Debug, Clone, PartialEq)]
pub struct MomentsQuery {
    pub exposures: Exposures,
    pub variants: Vec<Variant>,
    pub period: Option<Period>,
    pub time_zone: String,
    /// One number per exposed user each.
    pub columns: Vec<UserColumn>,
    /// Per metric the columns whose joint moments it needs, in this order; none for quantiles.
    pub groups: Vec<Vec<usize>>,
    /// Per group the name of its metric.
    pub metrics: Vec<String>,
    pub quantiles: Vec<QuantileQuery>,
    /// Every cell comes once for everyone and once per value of each of these.
    pub dimensions: Vec<Dimension>,
    /// Each has a dimension, whose values are the other experiment's arms.
    pub others: Vec<Other>,
    /// Count users whose arm is not the one this assigns.
    pub assignment: Option<Assignment>,
    /// Also cells as of the end of every day of the period. Needs exposure times.
    pub days: bool,
    pub paths: Vec<Path>,
    pub conversion_times: Vec<ConversionQuery>,
    /// All SQL of the definition that answers this, as it is written there.
    pub expressions: Vec<Expression>,
    /// Up to when the data are known, if the definition says: a local time as of the period.
    pub observed_until: Option<String>,
    /// Metrics by days since each user's first exposure.
    pub since: Vec<DaySince>,
}

/// One metric on one day of 24 hours since each user's first exposure, of users for whom that day is
/// over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaySince {
    /// Index into the query's metrics.
    pub metric: usize,
    /// From 0.
    pub day: u32,
    /// As in the metric's group, without CUPED's.
    pub columns: Vec<usize>,
}

impl MomentsQuery {
    /// When after the exposure the window of a metric is over, milliseconds; `None`: it has no end.
    pub fn window_end_ms(&self, metric: usize) -> Option<i64> {
        self.figure(metric)?.window?.end_ms
    }

    /// The same, if users of whom it is not over are left out of the metric.
    pub fn complete_ms(&self, metric: usize) -> Option<i64> {
        self.figure(metric)?.complete_ms
    }

    /// Does it matter up to when the data are known?
    pub fn needs_end_of_data(&self) -> bool {
        let is_asked = |metric| self.window_end_ms(metric).is_some();
        (0..self.groups.len()).any(is_asked) || !self.since.is_empty()
    }

    /// The first column of a metric's figure.
    fn figure(&self, metric: usize) -> Option<&UserColumn> {
        let quantile = || self.quantiles.iter().find(|quantile| quantile.metric == metric);
        match self.groups[metric].first() {
            Some(column) => self.columns.get(*column),
            None => quantile().map(|quantile| &quantile.column),
        }
    }

    /// The tables it reads, each once.
    pub fn tables(&self) -> Vec<String> {
        let columns = self.columns.iter().filter(|column| column.aggregate != Aggregate::One);
        let columns = columns.chain(self.quantiles.iter().map(|quantile| &quantile.column));
        let mut tables = vec![self.exposures.table.clone()];
        tables.extend(self.user_rows().map(|rows| rows.table.clone()));
        tables.extend(self.others.iter().map(|other| other.exposures.table.clone()));
        tables.extend(columns.map(|column| column.table.clone()));
        tables.extend(self.paths.iter().map(|path| path.table.clone()));
        tables.sort();
        tables.dedup();
        tables
    }

    /// The same for some of the metrics, by their numbers, ascending; without paths.
    pub fn of_metrics(&self, metrics: &[usize]) -> Self {
        let mut columns: Vec<usize> =
            metrics.iter().flat_map(|metric| self.groups[*metric].iter().copied()).collect();
        columns.sort_unstable();
        columns.dedup();
        let group = |metric: &usize| {
            let places = self.groups[*metric].iter().map(|c| columns.binary_search(c));
            places.filter_map(Result::ok).collect()
        };
        let quantiles = self.quantiles.iter().filter_map(|quantile| {
            let metric = metrics.binary_search(&quantile.metric).ok()?;
            Some(QuantileQuery { metric, ..quantile.clone() })
        });
        Self {
            groups: metrics.iter().map(group).collect(),
            metrics: metrics.iter().map(|metric| self.metrics[*metric].clone()).collect(),
            quantiles: quantiles.collect(),
            paths: Vec::new(),
            since: Vec::new(),
            conversion_times: self
                .conversion_times
                .iter()
                .filter(|one| columns.iter().any(|column| self.columns[*column] == one.column))
                .cloned()
                .collect(),
            columns: columns.iter().map(|column| self.columns[*column].clone()).collect(),
            ..self.clone()
        }
    }

    /// Rows that say which of the exposed users count.
    fn user_rows(&self) -> impl Iterator<Item = &UserRows> {
        self.exposures.exclude.iter().chain(&self.exposures.activated_by)
    }

    /// Also tells apart what users are in another experiment: one more dimension, whose values are the
    /// names of its arms, [`SEVERAL_ARMS`], and [`NOT_THERE`] for users whom it does not have, or
    /// only in arms that it does not define.
    ///
    /// # Errors
    /// [`DefinitionError::NoUsers`] where either has no users, but regions or figures.
    pub fn tell_apart(&mut self, other: &Experiment) -> Result<(), DefinitionError> {
        for (unit, name) in [(&self.exposures.unit, None), (&other.exposures.unit, Some(other))] {
            if matches!(unit, Unit::Switchback { .. } | Unit::Summary { .. }) {
                let name = name.map_or("this experiment", |other| &other.name).to_owned();
                return Err(DefinitionError::NoUsers { name });
            }
        }
        let dimension = self.dimensions.len();
        self.dimensions.push(Dimension {
            name: format!("arm in {}", other.name),
            sql: format!("coalesce({}, '{NOT_THERE}')", Other::column(self.others.len())),
        });
        self.others.push(Other {
            dimension,
            name: other.name.clone(),
            exposures: other.exposures.clone(),
            variants: other.variants.clone(),
            period: other.period.clone(),
            time_zone: other.time_zone.clone(),
        });
        self.expressions.extend(of_other(other));
        Ok(())
    }
}

/// The value of users whom another experiment does not have.
pub const NOT_THERE: &str = "(not in it)";
/// The value of users who are in several arms of another experiment.
pub const SEVERAL_ARMS: &str = "(several)";

/// Another experiment that the same users may be in.
#[derive(Debug, Clone, PartialEq)]
pub struct Other {
    /// Its place among the query's dimensions.
    pub dimension: usize,
    pub name: String,
    pub exposures: Exposures,
    pub variants: Vec<Variant>,
    pub period: Option<Period>,
    pub time_zone: String,
}

impl Other {
    /// The column with a user's arm in the other of this number, beside the exposures' own; NULL of
    /// users whom it does not have.
    pub fn column(number: usize) -> String {
        format!("__up_arm{number}")
    }
}

/// A number per exposed user: `aggregate` of `value` over the user's rows of `table` that pass
/// `filter` and lie in the window and the period. A user without such rows has 0.
#[derive(Debug, Clone, PartialEq)]
pub struct UserColumn {
    pub table: String,
    pub user: String,
    pub time: Option<String>,
    pub filter: Option<String>,
    pub value: String,
    pub aggregate: Aggregate,
    /// `None`: from first exposure to the end of the period.
    pub window: Option<Window>,
    /// The number is at most this.
    pub cap: Option<Cap>,
    /// What becomes of the number after its cap.
    pub transform: Option<Transform>,
    /// The number becomes 1 if it is at least this, otherwise 0.
    pub at_least: Option<f64>,
    /// Of users only whose first exposure (or activation) was so many milliseconds ago when the data end.
    pub complete_ms: Option<i64>,
    /// Counts from first exposure, although users are activated later.
    pub from_exposure: bool,
}

/// How a user's rows become one number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Aggregate {
    /// Sum of the values; NULL adds nothing.
    Sum,
    /// 1 if any row has a value that is not NULL, false or 0; otherwise 0.
    Any,
    /// Number of different values that are not NULL.
    Distinct,
    /// Number of different local days of rows whose value is not NULL. Rows without time have no day.
    Days,
    /// The value of the first row by time, the least of several then; of rows without time, and of
    /// values that are NULL or not finite, none.
    First,
    /// Of the last row, the greatest of several then.
    Last,
    /// 1 if rows passed the first `reached` of these filters in this order, each no earlier than
    /// the one before and each by another row; otherwise 0.
    Steps { steps: Vec<String>, reached: usize },
    /// 1 for every user, whatever the rows: the number of users of a cluster.
    One,
    /// Given as a mean over users with this variance; without one, a share of users.
    Given { variance: Option<String> },
}

/// Half-open, in milliseconds after the user's first exposure; no end is unbounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub start_ms: i64,
    pub end_ms: Option<i64>,
}

/// A quantile per cell: of the column's number per user (zeros included), or of its single values
/// that are not NULL.
#[derive(Debug, Clone, PartialEq)]
pub struct QuantileQuery {
    /// Index into the query's metrics.
    pub metric: usize,
    /// `Aggregate::Sum`; without cap.
    pub column: UserColumn,
    pub level: f64,
    /// Of single values, with users as clusters.
    pub per_row: bool,
}

/// How long users took from the first step of a funnel to the last.
#[derive(Debug, Clone, PartialEq)]
pub struct ConversionQuery {
    pub funnel: String,
    /// `Aggregate::Steps` that all are reached: among the query's columns, too.
    pub column: UserColumn,
}

/// The engine's answer to a [`MomentsQuery`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MomentsTable {
    pub cells: Vec<Cell>,
    /// With clusters, of the values that a breakdown puts together
    /// ([`crate::values_put_together`]): one cell per dimension that has any, and variant. A
    /// cluster with users of several of them is one unit there, and one of each in `cells`.
    pub others: Vec<Cell>,
    /// In the order of time, if the query asks for days.
    pub days: Vec<DayCells>,
    pub quantiles: Vec<QuantileCell>,
    /// Per column with a cap that is a quantile: its index and the cap found.
    pub caps: Vec<(usize, f64)>,
    /// Exposed users seen in more than one variant, left out of the cells.
    pub users_in_many_variants: u64,
    /// Per `exclude`, users whom it is the first to leave out, whatever their arm.
    pub users_excluded: Vec<u64>,
    /// With `activated_by`, one cell per arm of the users who never were.
    pub never_activated: Vec<Cell>,
    /// Values of the variant column that the definition does not name, with their users.
    pub unknown_variants: Vec<(String, u64)>,
    /// Users first exposed per local day ("2026-11-01") and variant index; empty without an
    /// exposure time.
    pub first_exposures: Vec<(String, usize, u64)>,
    /// Users whose arm is not the one that the assignment gives, if the query asks.
    pub users_assigned_otherwise: Option<u64>,
    /// Per metric table and local day of the period, exposed users with rows that count; days
    /// without any are absent. Empty unless the query asks for days.
    pub active_users: Vec<(String, String, u64)>,
    /// One per path of the query.
    pub paths: Vec<PathTable>,
    /// One list per conversion time of the query, of one per arm.
    pub conversion_times: Vec<Vec<ConversionTime>>,
    /// Rows that are in no figure, and conditions that no row passes.
    pub left_out: LeftOut,
    /// With clusters, how many there are per variant, whomever metrics leave out.
    pub clusters: Vec<u64>,
    /// Up to when the data are known, exclusive: local, to the second that is over ("2026-11-05T08:00:00").
    /// `None` unless [`MomentsQuery::needs_end_of_data`].
    pub observed_until: Option<String>,
    /// Metric with a window that ends, variant, and users of the cells whose window is not over.
    pub in_progress: Vec<(usize, usize, u64)>,
    /// Per [`MomentsQuery::since`] and variant.
    pub since: Vec<Vec<Moments>>,
}

/// Moments of one arm, of everyone or of one value of a dimension.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// `None`: everyone. Otherwise the dimension's index in the query and its value; NULL is the
    /// text "(null)", and values put together are [`crate::OTHERS`].
    pub slice: Option<(usize, String)>,
    /// Index into the variants.
    pub variant: usize,
    /// Exposed users; the moments' count is of units (clusters).
    pub users: u64,
    /// One per group of the query.
    pub groups: Vec<Moments>,
}

/// All cells as of the end of a day.
#[derive(Debug, Clone, PartialEq)]
pub struct DayCells {
    /// Local, such as "2026-11-01".
    pub day: String,
    pub cells: Vec<Cell>,
}

/// A quantile of one arm, of everyone or of one value of a dimension.
#[derive(Debug, Clone, PartialEq)]
pub struct QuantileCell {
    /// Index into the query's quantiles.
    pub quantile: usize,
    /// As in [`Cell`].
    pub slice: Option<(usize, String)>,
    pub variant: usize,
    /// Users, or rows.
    pub values: u64,
    /// The values at the ranks of [`crate::quantile::ranks`]; `None` without values.
    pub band: Option<Band>,
    /// Over rows: per user, moments of (values at or below the quantile, values), of users with
    /// any value.
    pub clusters: Option<Moments>,
}

/// What to ask the engine for. `dimensions`: names from the definition to break down by, the
/// one to stratify by comes by itself; `metrics`: names to keep, `None` for all.
///
/// # Errors
/// [`DefinitionError::Unknown`] for a name the definition does not have.
pub fn plan(
    experiment: &Experiment,
    dimensions: &[String],
    metrics: Option<&[String]>,
) -> Result<MomentsQuery, DefinitionError> {
    let mut wanted: Vec<Dimension> = Vec::new();
    for name in dimensions.iter().chain(&experiment.stratify) {
        let dimension = find_dimension(experiment, name)?;
        if !wanted.contains(&dimension) {
            wanted.push(dimension);
        }
    }
    let chosen: Vec<&Metric> = match metrics {
        None => experiment.metrics.iter().collect(),
        Some(names) => {
            names.iter().map(|name| find_metric(experiment, name)).collect::<Result<_, _>>()?
        }
    };
    let mut columns: Vec<UserColumn> = Vec::new();
    let mut groups: Vec<Vec<usize>> = Vec::with_capacity(chosen.len());
    let mut quantiles = Vec::new();
    let mut since = Vec::new();
    for (index, metric) in chosen.iter().enumerate() {
        if let MetricKind::Quantile { term, level, per_row } = &metric.kind {
            let column = user_column(metric, term, Aggregate::Sum);
            quantiles.push(QuantileQuery {
                metric: index,
                column,
                level: *level,
                per_row: *per_row,
            });
        }
        let mut places = |group: Vec<UserColumn>| -> Vec<usize> {
            let place = |column: UserColumn| {
                columns.iter().position(|known| *known == column).unwrap_or_else(|| {
                    columns.push(column);
                    columns.len() - 1
                })
            };
            group.into_iter().map(place).collect()
        };
        groups.push(places(user_columns(metric, experiment)));
        for day in metric.days_since_exposure() {
            let mut of_day = user_columns(&on_day(metric, day), experiment);
            let whole = groups[index][0];
            for column in of_day.iter_mut().filter(|c| matches!(c.cap, Some(Cap::Quantile { .. })))
            {
                column.cap = Some(Cap::OfColumn(whole));
            }
            since.push(DaySince { metric: index, day, columns: places(of_day) });
        }
    }
    Ok(MomentsQuery {
        exposures: experiment.exposures.clone(),
        variants: experiment.variants.clone(),
        period: experiment.period.clone(),
        time_zone: experiment.time_zone.clone(),
        columns,
        groups,
        metrics: chosen.iter().map(|metric| metric.name.clone()).collect(),
        quantiles,
        dimensions: wanted.clone(),
        others: Vec::new(),
        assignment: experiment.assignment.clone(),
        days: experiment.exposures.time.is_some()
            && (experiment.period.is_some()
                || matches!(experiment.exposures.unit, Unit::Summary { .. })),
        // Who names metrics wants these alone.
        paths: if metrics.is_none() { experiment.paths.clone() } else { Vec::new() },
        conversion_times: conversion_times(&chosen),
        expressions: expressions(experiment, &wanted, &chosen, metrics.is_none()),
        observed_until: experiment.observed_until.clone(),
        since,
    })
}

/// One for each funnel that asks for it.
fn conversion_times(metrics: &[&Metric]) -> Vec<ConversionQuery> {
    let mut found: Vec<ConversionQuery> = Vec::new();
    for metric in metrics {
        let MetricKind::Step { funnel, steps, conversion_time: true, .. } = &metric.kind else {
            continue;
        };
        if found.iter().all(|known| known.funnel != *funnel) {
            let filters = steps.iter().map(|step| step.filter.clone()).collect();
            let aggregate = Aggregate::Steps { steps: filters, reached: steps.len() };
            let column = user_column(metric, &Term { value: "1".into(), filter: None }, aggregate);
            found.push(ConversionQuery { funnel: funnel.clone(), column });
        }
    }
    found
}

/// The metric on a day since exposure, of users for whom that day is over.
fn on_day(metric: &Metric, day: u32) -> Metric {
    let start_ms = i64::from(day) * DAY_MS;
    let window = Some(Window { start_ms, end_ms: Some(start_ms + DAY_MS) });
    Metric { window, in_progress: InProgress::Exclude, cuped: None, ..metric.clone() }
}

fn user_column(metric: &Metric, term: &Term, aggregate: Aggregate) -> UserColumn {
    UserColumn {
        table: metric.table.clone(),
        user: metric.user.clone(),
        time: metric.time.clone(),
        filter: term.filter.clone(),
        value: term.value.clone(),
        aggregate,
        window: metric.window,
        cap: None,
        transform: None,
        at_least: None,
        complete_ms: metric.complete_ms(),
        from_exposure: false,
    }
}

/// Whether a row has a value that can be a user's first or last.
fn has_value(metric: &Metric, term: &Term) -> Term {
    let time = metric.time.as_deref().unwrap_or("NULL");
    let value = format!(
        "({time}) IS NOT NULL AND abs(CAST({} AS DOUBLE)) < CAST('Infinity' AS DOUBLE)",
        term.value
    );
    Term { value, filter: term.filter.clone() }
}

/// Has a triggered metric an effect on everybody relative to everybody's value? Only if the rows before
/// activation are a part of a user's number that is added to the rest: not where a cap, a log, a window or
/// a yes and no come between.
pub(crate) fn has_overall(experiment: &Experiment, metric: &Metric) -> bool {
    let uncapped = matches!(
        metric.kind,
        MetricKind::Mean { cap: None, .. } | MetricKind::Count { cap: None, .. }
    );
    let activated = experiment.exposures.activated_by.is_some();
    let adds_up = uncapped && metric.transform.is_none() && metric.window.is_none();
    activated && adds_up && experiment.stratify.is_none()
}

/// The numbers per user that one metric needs, in the order `analyze` expects them: the figure's
/// one or two columns, then the same before exposure and further covariates. Over clusters a mean
/// is a ratio, of sums over numbers of users. Last comes what [`has_overall`] needs: the figure's
/// column from first exposure on.
fn user_columns(metric: &Metric, experiment: &Experiment) -> Vec<UserColumn> {
    let Exposures { unit, activated_by, .. } = &experiment.exposures;
    let column = |term: &Term, aggregate| user_column(metric, term, aggregate);
    let number = |term: &Term, cap, aggregate| UserColumn {
        cap,
        transform: metric.transform,
        ..column(term, aggregate)
    };
    let one = Term { value: "1".into(), filter: None };
    let mut columns = match &metric.kind {
        MetricKind::Proportion(term) | MetricKind::Retention(term) => {
            vec![column(term, Aggregate::Any)]
        }
        MetricKind::Threshold { term, at_least } => {
            vec![UserColumn { at_least: Some(*at_least), ..column(term, Aggregate::Sum) }]
        }
        MetricKind::Step { steps, reached, .. } => {
            let steps = steps.iter().map(|step| step.filter.clone()).collect();
            vec![column(&one, Aggregate::Steps { steps, reached: *reached })]
        }
        MetricKind::Mean { term, cap } | MetricKind::Count { term, cap } => {
            vec![number(term, *cap, Aggregate::Sum)]
        }
        MetricKind::Distinct { term, cap } => vec![number(term, *cap, Aggregate::Distinct)],
        MetricKind::UniqueDays { term, cap } => vec![number(term, *cap, Aggregate::Days)],
        MetricKind::FirstOrLast { term, last, zeros } => {
            let aggregate = if *last { Aggregate::Last } else { Aggregate::First };
            let mut columns = vec![column(term, aggregate)];
            if !zeros {
                columns.push(column(&has_value(metric, term), Aggregate::Any));
            }
            columns
        }
        MetricKind::Ratio { numerator, denominator } => {
            vec![column(numerator, Aggregate::Sum), column(denominator, Aggregate::Sum)]
        }
        MetricKind::Quantile { .. } => return Vec::new(),
        MetricKind::Given { term, variance } => {
            vec![column(term, Aggregate::Given { variance: variance.clone() })]
        }
    };
    let clustered = matches!(unit, Unit::Cluster { .. });
    if let Some(cuped) = &metric.cuped {
        let before = Window { start_ms: -cuped.pre_ms, end_ms: Some(0) };
        // A share's history is no event of later days: its window is the time before exposure.
        let history = |column: UserColumn| UserColumn {
            window: Some(before),
            from_exposure: activated_by.is_some(),
            ..column
        };
        let mut covariates: Vec<UserColumn> = columns.iter().cloned().map(history).collect();
        covariates.extend(cuped.with.iter().map(|term| history(column(term, Aggregate::Sum))));
        columns.extend(covariates);
    }
    if has_overall(experiment, metric) {
        columns.push(UserColumn { from_exposure: true, ..columns[0].clone() });
    }
    let users = || UserColumn {
        table: String::new(),
        user: String::new(),
        time: None,
        window: None,
        ..column(&one, Aggregate::One)
    };
    if clustered && metric.kind.shape() == Shape::Ratio {
        // A ratio has no use for users, but says how many it is of.
        columns.extend(metric.complete_ms().map(|_| users()));
    } else if clustered {
        let mut pairs = Vec::with_capacity(2 * columns.len());
        for column in columns {
            pairs.extend([column, users()]);
        }
        columns = pairs;
    }
    columns
}

fn find_dimension(experiment: &Experiment, name: &str) -> Result<Dimension, DefinitionError> {
    let names = || experiment.dimensions.iter().map(|dimension| dimension.name.as_str());
    let found = experiment.dimensions.iter().find(|dimension| dimension.name == name);
    found.cloned().ok_or_else(|| unknown(experiment, "dimension", name, names().collect()))
}

pub(crate) fn find_metric<'e>(
    experiment: &'e Experiment,
    name: &str,
) -> Result<&'e Metric, DefinitionError> {
    let names = || experiment.metrics.iter().map(|metric| metric.name.as_str());
    let found = experiment.metrics.iter().find(|metric| metric.name == name);
    found.ok_or_else(|| unknown(experiment, "metric", name, names().collect()))
}

fn unknown(
    experiment: &Experiment,
    what: &'static str,
    name: &str,
    names: Vec<&str>,
) -> DefinitionError {
    DefinitionError::Unknown {
        experiment: experiment.name.clone(),
        what,
        name: name.to_owned(),
        nearest: nearest(name, names.iter().copied()),
        allowed: if names.is_empty() { "none".into() } else { names.join(", ") },
    }
}
