//! From a definition to the query that answers it.

use super::expressions::expressions;
use super::question::{
    Aggregate, ConversionQuery, DaySince, MomentsQuery, QuantileQuery, UserColumn,
};
use crate::definition::{
    Cap, DAY_MS, DefinitionError, Dimension, Experiment, Exposures, InProgress, Metric, MetricKind,
    Shape, Term, Unit, Window,
};
use crate::toml_reader::nearest;

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
