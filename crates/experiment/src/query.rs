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
//!
//! # Invariants
//! - Equal columns appear once, however many metrics use them.
//! - `groups[i]` serves `metrics[i]`.

use crate::definition::{
    DefinitionError, Dimension, Experiment, Exposures, Metric, MetricKind, Period, Term, Variant,
};
use crate::moments::Moments;
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
    /// Per metric the columns whose joint moments it needs, in this order.
    pub groups: Vec<Vec<usize>>,
    /// Per group the name of its metric.
    pub metrics: Vec<String>,
    pub dimension: Option<Dimension>,
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
    pub cap: Option<f64>,
}

/// How a user's rows become one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aggregate {
    /// Sum of the values; NULL adds nothing.
    Sum,
    /// 1 if any row has a value that is not NULL, false or 0; otherwise 0.
    Any,
}

/// Half-open, in milliseconds after the user's first exposure; no end is unbounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub start_ms: i64,
    pub end_ms: Option<i64>,
}

/// The engine's answer to a [`MomentsQuery`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MomentsTable {
    pub cells: Vec<Cell>,
    /// Exposed users seen in more than one variant, left out of the cells.
    pub users_in_many_variants: u64,
    /// Values of the variant column that the definition does not name, with their users.
    pub unknown_variants: Vec<(String, u64)>,
    /// Users first exposed per local day ("2026-11-01") and variant index; empty without an
    /// exposure time.
    pub first_exposures: Vec<(String, usize, u64)>,
}

/// Moments of one arm, of everyone or of one value of the dimension.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// `None`: everyone. A NULL value is the text "(null)".
    pub dimension_value: Option<String>,
    /// Index into the variants.
    pub variant: usize,
    /// One per group of the query.
    pub groups: Vec<Moments>,
}

/// What to ask the engine for. `dimension`: a name from the definition to break down by;
/// `metrics`: names to keep, `None` for all.
///
/// # Errors
/// [`DefinitionError::Unknown`] for a name the definition does not have.
pub fn plan(
    experiment: &Experiment,
    dimension: Option<&str>,
    metrics: Option<&[String]>,
) -> Result<MomentsQuery, DefinitionError> {
    let dimension = dimension.map(|name| find_dimension(experiment, name)).transpose()?;
    let chosen: Vec<&Metric> = match metrics {
        None => experiment.metrics.iter().collect(),
        Some(names) => {
            names.iter().map(|name| find_metric(experiment, name)).collect::<Result<_, _>>()?
        }
    };
    let mut columns: Vec<UserColumn> = Vec::new();
    let mut groups = Vec::with_capacity(chosen.len());
    for metric in &chosen {
        let group = user_columns(metric).into_iter().map(|column| {
            columns.iter().position(|known| *known == column).unwrap_or_else(|| {
                columns.push(column);
                columns.len() - 1
            })
        });
        groups.push(group.collect());
    }
    Ok(MomentsQuery {
        exposures: experiment.exposures.clone(),
        variants: experiment.variants.clone(),
        period: experiment.period.clone(),
        time_zone: experiment.time_zone.clone(),
        columns,
        groups,
        metrics: chosen.iter().map(|metric| metric.name.clone()).collect(),
        dimension,
    })
}

/// The numbers per user that one metric needs, in the order `analyze` expects them.
fn user_columns(metric: &Metric) -> Vec<UserColumn> {
    let column = |term: &Term, aggregate, cap| UserColumn {
        table: metric.table.clone(),
        user: metric.user.clone(),
        time: metric.time.clone(),
        filter: term.filter.clone(),
        value: term.value.clone(),
        aggregate,
        window: metric.window,
        cap,
    };
    let mut columns = match &metric.kind {
        MetricKind::Proportion(term) => vec![column(term, Aggregate::Any, None)],
        MetricKind::Mean { term, cap } => vec![column(term, Aggregate::Sum, *cap)],
        MetricKind::Ratio { numerator, denominator } => {
            vec![column(numerator, Aggregate::Sum, None), column(denominator, Aggregate::Sum, None)]
        }
    };
    if let Some(cuped) = &metric.cuped {
        let before = Window { start_ms: -cuped.pre_ms, end_ms: Some(0) };
        let covariates: Vec<UserColumn> = columns
            .iter()
            .map(|column| UserColumn { window: Some(before), ..column.clone() })
            .collect();
        columns.extend(covariates);
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
