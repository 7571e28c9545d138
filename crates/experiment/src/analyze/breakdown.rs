//! All metrics for each value of a dimension.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::analysis::{Analysis, Slice};
use super::families::{correct_family, directed, family_level};
use super::judge::judge_metric;
use super::view::View;
use crate::definition::{Experiment, Lift};
use crate::distribution::chi2_sf;
use crate::effect::{Estimate, Pivot};
use crate::multiplicity::holm;
use crate::query::Cell;
use crate::report::{Breakdown, BreakdownRow, Heterogeneity, MetricReport, Scale};

/// Values of a dimension shown one by one; the rest is merged into one row.
pub const MAX_BREAKDOWN_ROWS: usize = 20;

/// What the values in the merged row are called.
pub const OTHERS: &str = "(other)";

/// The values of a dimension (its index in the query) that a breakdown puts into one row: none, or
/// those beyond the 19 with the most users.
pub fn values_put_together(cells: &[Cell], dimension: usize) -> BTreeSet<String> {
    let mut users: BTreeMap<&str, u64> = BTreeMap::new();
    for cell in cells {
        if let Some((_, value)) = cell.slice.as_ref().filter(|(found, _)| *found == dimension) {
            *users.entry(value).or_default() += cell.users;
        }
    }
    let mut values: Vec<(String, u64)> =
        users.into_iter().map(|(value, users)| (value.to_owned(), users)).collect();
    let rest = split_rest(&mut values, |users| *users);
    rest.into_iter().map(|(value, _)| value).collect()
}

/// Sorts values, most users first, and takes off those that share a row.
fn split_rest<T>(values: &mut Vec<(String, T)>, users: impl Fn(&T) -> u64) -> Vec<(String, T)> {
    values
        .sort_by(|(a, of_a), (b, of_b)| (Reverse(users(of_a)), a).cmp(&(Reverse(users(of_b)), b)));
    match values.len() {
        0..=MAX_BREAKDOWN_ROWS => Vec::new(),
        _ => values.split_off(MAX_BREAKDOWN_ROWS - 1),
    }
}

impl<'a> Analysis<'a> {
    pub(super) fn break_down(
        &self,
        view: &View<'_>,
        dimension: usize,
        slices: &BTreeMap<String, Slice<'a>>,
    ) -> Breakdown {
        let mut values: Vec<(String, Slice<'a>)> =
            slices.iter().map(|(value, slice)| (value.clone(), slice.clone())).collect();
        let rest = split_rest(&mut values, |slice| slice.users.iter().sum());
        let merged = rest.into_iter().map(|(_, slice)| slice).reduce(|mut all, slice| {
            all.merge(&slice);
            all
        });
        if let Some(mut merged) = merged {
            // Clusters that are in several of the slices are not to be counted for each.
            let of_dimension = |cell: &&Cell| matches!(cell.slice, Some((d, _)) if d == dimension);
            for cell in self.table.others.iter().filter(of_dimension) {
                merged.groups[cell.variant] = Cow::Borrowed(&cell.groups);
            }
            values.push((OTHERS.into(), merged));
        }
        let judge = |view: &View<'_>, slice: &Slice<'a>, index: usize| {
            judge_metric(view, self.metrics[index], &self.metric_data(slice, index, false))
        };
        let treatments = self.experiment.variants.len() - 1;
        let of_row = view.at(family_level(self.experiment, values.len() * treatments));
        let mut differences = Vec::new();
        let other = self.query.others.iter().find(|other| other.dimension == dimension);
        // Per metric, in the order of the rows.
        let mut columns = Vec::with_capacity(self.metrics.len());
        for index in 0..self.metrics.len() {
            let judge_all = |view: &View<'_>| -> Vec<MetricReport> {
                values.iter().map(|(_, slice)| judge(view, slice, index)).collect()
            };
            let mut family = judge_all(&of_row);
            let correct = |family: &mut Vec<MetricReport>| {
                correct_family(self.experiment, family.iter_mut().flat_map(directed))
            };
            if let Some(level) = correct(&mut family) {
                family = judge_all(&view.at(level));
                correct(&mut family);
            }
            // Whoever is not in another experiment has not one of its arms.
            let is_compared = |value: &str| {
                other.is_none_or(|other| other.variants.iter().any(|arm| arm.name == value))
            };
            let compared = values.iter().zip(&family).filter(|((value, _), _)| is_compared(value));
            let compared: Vec<&MetricReport> = compared.map(|(_, metric)| metric).collect();
            differences.extend(heterogeneity(self.experiment, &compared));
            columns.push(family.into_iter());
        }
        let row = |(value, slice): (String, Slice<'a>)| {
            let metrics = columns.iter_mut().filter_map(Iterator::next).collect();
            BreakdownRow { value, metrics, users: slice.users }
        };
        let rows = values.into_iter().map(row).collect();
        let dimension = self.query.dimensions[dimension].name.clone();
        Breakdown { dimension, rows, differences }
    }
}

/// Corrects what all breakdowns of a report found for its number: of 44 tests one in ten reports has none by chance.
pub(super) fn correct_differences(breakdowns: &mut [Breakdown]) {
    let found = || breakdowns.iter().flat_map(|breakdown| &breakdown.differences);
    let adjusted = holm(&found().map(|found| found.p).collect::<Vec<_>>());
    let all = breakdowns.iter_mut().flat_map(|breakdown| &mut breakdown.differences);
    all.zip(adjusted).for_each(|(found, adjusted)| found.p_adjusted = adjusted);
}

/// Do the effects differ between values of the dimension by more than their errors? Lifts where lifts decide,
/// because a change by the same share is another difference wherever the control is another.
///
/// # Source
/// Cochran, "The combination of estimates from different experiments", Biometrics 10, 1954. Of lifts the same sum
/// over [`Pivot`]s, at the lift that makes it smallest.
fn heterogeneity(experiment: &Experiment, rows: &[&MetricReport]) -> Vec<Heterogeneity> {
    let Some(first) = rows.first() else {
        return Vec::new();
    };
    let per_arm = (0..first.comparisons.len()).filter_map(|index| {
        let fixed: Vec<(Estimate, Option<Pivot>)> =
            rows.iter().filter_map(|metric| metric.comparisons[index].fixed).collect();
        let pivots: Vec<Pivot> = fixed.iter().filter_map(|(_, pivot)| *pivot).collect();
        let of_lifts = experiment.lift == Lift::Fieller && pivots.len() == fixed.len();
        let (scale, q, count) = if of_lifts {
            (Scale::Relative, Pivot::spread(&pivots), pivots.len())
        } else {
            let estimates: Vec<Estimate> =
                fixed.iter().map(|(e, _)| *e).filter(|e| e.error > 0.0).collect();
            let weight = |estimate: &Estimate| 1.0 / (estimate.error * estimate.error);
            let weights: f64 = estimates.iter().map(weight).sum();
            let centre = estimates.iter().map(|e| weight(e) * e.value).sum::<f64>() / weights;
            let q = estimates.iter().map(|e| weight(e) * (e.value - centre).powi(2)).sum();
            (Scale::Absolute, q, estimates.len())
        };
        if count < 2 || !q.is_finite() {
            return None;
        }
        let df = (count - 1) as u32;
        let (metric, arm) = (first.name.clone(), first.comparisons[index].arm);
        let p = chi2_sf(q, f64::from(df));
        Some(Heterogeneity { metric, arm, scale, q, df, p, p_adjusted: p })
    });
    per_arm.collect()
}
