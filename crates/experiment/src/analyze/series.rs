//! Every metric as of the end of every day.

use super::analysis::{Analysis, Slice, slices};
use super::figures::{figures, shape};
use super::fixed_lift::FixedLift;
use super::judge::detectable;
use super::view::{Looks, View};
use crate::definition::{Metric, Shape};
use crate::effect::absolute;
use crate::report::{MetricReport, Point, Scale, Series};

impl Analysis<'_> {
    /// Fills in the metrics' series and returns the days. Days whose cells do not fit the query
    /// have no points.
    pub(super) fn add_series(&self, view: &View<'_>, results: &mut [MetricReport]) -> Vec<String> {
        let days: Vec<Option<Slice<'_>>> = self
            .table
            .days
            .iter()
            .map(|day| slices(self.experiment, self.query, &day.cells).ok()?.remove(&None))
            .collect();
        if days.is_empty() {
            return Vec::new();
        }
        let (baseline, users) = (view.baseline, &self.total.users);
        let inference = View::anytime(view.inference, users);
        let alone = View::new(self.experiment, baseline, view.cuped, inference, users);
        for (index, (metric, result)) in self.metrics.iter().zip(results).enumerate() {
            if shape(self.experiment, metric) == Shape::Quantile {
                continue;
            }
            let series = result.comparisons.iter().map(|comparison| {
                let arm = comparison.arm;
                let anytime = alone.at(comparison.interval_alpha);
                let points = days.iter().map(|day| {
                    point(&anytime, metric, day.as_ref()?, index, arm, comparison.scale)
                });
                Series { arm, points: points.collect() }
            });
            result.series = series.collect();
        }
        self.table.days.iter().map(|day| day.day.clone()).collect()
    }
}

/// One day of one comparison, by the plain test without strata.
fn point(
    anytime: &View<'_>,
    metric: &Metric,
    day: &Slice<'_>,
    index: usize,
    arm: usize,
    scale: Scale,
) -> Option<Point> {
    let pair = [day.arm(anytime.baseline, index, None), day.arm(arm, index, None)];
    let figures = figures(anytime, metric, pair).ok()?;
    let (control, treatment) = (&figures.control, &figures.treatment);
    let difference = absolute(control, treatment, anytime.level).ok()?;
    let looks = Looks::of(anytime, arm, pair[0].users + pair[1].users, 1.0).ok()?;
    let always = looks.apply(anytime, difference).ok()?;
    let (fixed, always, error) = match scale {
        Scale::Absolute => (difference, always, difference.error),
        Scale::Relative => {
            let lift = FixedLift::of(anytime, &figures, None).ok()?;
            (
                lift.looked_at(anytime, Looks::Fixed, difference).ok()?,
                lift.looked_at(anytime, looks, always).ok()?,
                lift.decided_by(difference).error,
            )
        }
    };
    Some(Point {
        control: control.raw_value,
        treatment: treatment.raw_value,
        effect: fixed.value,
        low: fixed.low,
        high: fixed.high,
        anytime_low: always.low,
        anytime_high: always.high,
        detectable: detectable(error, anytime.experiment.alpha),
    })
}
