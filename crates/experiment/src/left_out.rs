//! What of the data no figure has: rows that cannot count, and conditions that no row passes.
//!
//! The engine counts ([`LeftOut`]); [`unmatched`] and [`notes`] say which metrics it concerns.
//!
//! # Not here
//! Users in several variants and unknown variants: [`crate::MomentsTable`] has them.

use serde::Serialize;

use crate::definition::{Metric, MetricKind};
use crate::query::{Aggregate, MomentsQuery, MomentsTable, UserColumn};
pub use crate::query::{LeftOut, NoExposures};

/// A condition of a metric that no row of its table passes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unmatched {
    pub metric: String,
    pub table: String,
    /// The condition; absent if the table has no row at all.
    #[serde(rename = "where")]
    pub filter: Option<String>,
}

/// What a row must pass to matter to a column, or to the last step of a funnel's.
pub fn filter_of(column: &UserColumn) -> Option<&str> {
    match &column.aggregate {
        Aggregate::Steps { steps, reached } => steps.get(reached - 1).map(String::as_str),
        _ => column.filter.as_deref(),
    }
}

/// By metric, what no row passes; each condition once for a metric.
pub(crate) fn unmatched(query: &MomentsQuery, left_out: &LeftOut) -> Vec<Unmatched> {
    let mut found = Vec::new();
    for (index, (metric, group)) in query.metrics.iter().zip(&query.groups).enumerate() {
        let columns = group.iter().filter(|column| left_out.unmatched_columns.contains(column));
        let quantiles = query.quantiles.iter().enumerate();
        let quantiles = quantiles
            .filter(|(number, of)| {
                of.metric == index && left_out.unmatched_quantiles.contains(number)
            })
            .map(|(_, of)| &of.column);
        for column in columns.map(|column| &query.columns[*column]).chain(quantiles) {
            let one = Unmatched {
                metric: metric.clone(),
                table: column.table.clone(),
                filter: filter_of(column).map(str::to_owned),
            };
            if !found.contains(&one) {
                found.push(one);
            }
        }
    }
    found
}

/// What a reader of the metric with this number should know.
pub(crate) fn notes(
    query: &MomentsQuery,
    left_out: &LeftOut,
    metric: &Metric,
    index: usize,
    unmatched: &[Unmatched],
) -> Vec<String> {
    let own = unmatched.iter().filter(|one| one.metric == metric.name);
    let mut notes: Vec<String> = own
        .map(|one| match &one.filter {
            Some(filter) => format!("no row of {} passes {filter}", one.table),
            None => format!("table {} has no rows", one.table),
        })
        .collect();
    // A threshold is 0 where sums are small, and what is given needs no rows of users.
    let adds_rows = !matches!(metric.kind, MetricKind::Threshold { .. } | MetricKind::Given { .. });
    let first = query.groups[index].first().filter(|first| left_out.zero_columns.contains(first));
    if let Some(first) = first.filter(|_| notes.is_empty() && adds_rows) {
        let column = &query.columns[*first];
        let that = if filter_of(column).is_some() { " that pass the condition" } else { "" };
        notes.push(format!("every user has 0, although {} has rows{that}", column.table));
    }
    notes
}

/// Is a column 0 for every user of the arms, and is there any?
pub fn is_zero(query: &MomentsQuery, table: &MomentsTable, column: usize) -> bool {
    let Some((group, place)) = query.groups.iter().enumerate().find_map(|(group, columns)| {
        columns.iter().position(|of_group| *of_group == column).map(|place| (group, place))
    }) else {
        return false;
    };
    let of_all = || table.cells.iter().filter(|cell| cell.slice.is_none());
    let is_zero = |moments: &crate::Moments| {
        let spread = moments.covariance(place, place);
        moments.count() == 0 || (moments.mean(place) == 0.0 && (spread == 0.0 || spread.is_nan()))
    };
    of_all().any(|cell| cell.users > 0) && of_all().all(|cell| is_zero(&cell.groups[group]))
}
