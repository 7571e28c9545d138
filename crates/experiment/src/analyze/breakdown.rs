//! All metrics for each value of a dimension.

use std::collections::BTreeMap;

use super::judge::View;
use super::{Analysis, Slice, correct_family};
use crate::distribution::chi2_sf;
use crate::effect::Estimate;
use crate::report::{Breakdown, BreakdownRow, Heterogeneity, MetricReport};

/// Values of a dimension shown one by one; the rest is merged into one row.
pub const MAX_BREAKDOWN_ROWS: usize = 20;

impl<'a> Analysis<'a> {
    pub(super) fn break_down(
        &self,
        view: &View<'_>,
        dimension: &str,
        slices: &BTreeMap<String, Slice<'a>>,
    ) -> Breakdown {
        let users = |slice: &Slice<'_>| slice.users.iter().sum::<u64>();
        let mut values: Vec<(String, Slice<'a>)> =
            slices.iter().map(|(value, slice)| (value.clone(), slice.clone())).collect();
        values.sort_by_key(|(value, slice)| (std::cmp::Reverse(users(slice)), value.clone()));
        if values.len() > MAX_BREAKDOWN_ROWS {
            let rest = values.split_off(MAX_BREAKDOWN_ROWS - 1);
            let mut rest = rest.into_iter().map(|(_, slice)| slice);
            if let Some(mut merged) = rest.next() {
                rest.for_each(|slice| merged.merge(&slice));
                values.push(("(other)".into(), merged));
            }
        }
        let mut rows: Vec<BreakdownRow> = values
            .into_iter()
            .map(|(value, slice)| BreakdownRow {
                value,
                metrics: self.judge_slice(view, &slice, false),
                users: slice.users,
            })
            .collect();
        let mut differences = Vec::new();
        for index in 0..self.metrics.len() {
            let mut family: Vec<&mut MetricReport> =
                rows.iter_mut().map(|row| &mut row.metrics[index]).collect();
            correct_family(
                self.experiment,
                family.iter_mut().flat_map(|metric| {
                    let direction = metric.direction;
                    metric.comparisons.iter_mut().map(move |comparison| (direction, comparison))
                }),
            );
            differences.extend(heterogeneity(&family));
        }
        Breakdown { dimension: dimension.to_owned(), rows, differences }
    }
}

/// Do the effects differ between values of the dimension by more than their errors?
///
/// # Source
/// Cochran, "The combination of estimates from different experiments", Biometrics 10, 1954.
fn heterogeneity(rows: &[&mut MetricReport]) -> Vec<Heterogeneity> {
    let Some(first) = rows.first() else {
        return Vec::new();
    };
    let per_arm = (0..first.comparisons.len()).filter_map(|index| {
        let estimates: Vec<Estimate> = rows
            .iter()
            .filter_map(|metric| metric.comparisons[index].absolute.ok())
            .filter(|estimate| estimate.error > 0.0)
            .collect();
        if estimates.len() < 2 {
            return None;
        }
        let weight = |estimate: &Estimate| 1.0 / (estimate.error * estimate.error);
        let weights: f64 = estimates.iter().map(weight).sum();
        let centre = estimates.iter().map(|e| weight(e) * e.value).sum::<f64>() / weights;
        let q = estimates.iter().map(|e| weight(e) * (e.value - centre).powi(2)).sum();
        let df = (estimates.len() - 1) as u32;
        let arm = first.comparisons[index].arm;
        let p = chi2_sf(q, f64::from(df));
        Some(Heterogeneity { metric: first.name.clone(), arm, q, df, p })
    });
    per_arm.collect()
}
