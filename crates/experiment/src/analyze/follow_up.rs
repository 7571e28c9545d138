//! Users whose window is not over, and metrics by days since exposure.

use super::analysis::{Analysis, Counted};
use super::figures::{ArmData, figures, plain_figure};
use super::fixed_lift::FixedLift;
use super::view::{Looks, View};
use crate::definition::{InProgress, Inference, Metric};
use crate::effect::{Estimate, Side, StatsError, absolute};
use crate::format;
use crate::moments::Moments;
use crate::query::DaySince;
use crate::report::{DaySinceExposure, MetricReport, Scale, SinceExposure, UsersInProgress};

impl Analysis<'_> {
    /// Counts users in progress in each metric whose window has an end, and says so.
    pub(super) fn add_in_progress(&self, results: &mut [MetricReport]) {
        if self.table.observed_until.is_none() {
            return;
        }
        for (index, (metric, result)) in self.metrics.iter().zip(results).enumerate() {
            if self.query.window_end_ms(index).is_none() {
                continue;
            }
            let mut users = vec![0; self.total.users.len()];
            let of_metric = self.table.in_progress.iter().filter(|(of, ..)| *of == index);
            of_metric.for_each(|(_, arm, more)| users[*arm] += more);
            let excluded = metric.in_progress == InProgress::Exclude;
            let (count, all): (u64, u64) = (users.iter().sum(), self.total.users.iter().sum());
            result.in_progress = Some(UsersInProgress { excluded, users });
            if count == 0 {
                continue;
            }
            let share = format::small_share(count as f64 / all as f64);
            let count = format::count(count);
            result.notes.push(match excluded {
                true => {
                    format!("{share} of users ({count}), whose window is not over, are left out.")
                }
                false => format!(
                    "the window of {share} of users ({count}) is not over; they count with what \
                     they did so far."
                ),
            });
        }
    }

    /// Fills in each metric's comparisons by days since exposure.
    pub(super) fn add_since(&self, results: &mut [MetricReport]) {
        let control = self.experiment.control();
        let view = View::new(self.experiment, control, false, Inference::Fixed, &[]);
        for (since, arms) in self.query.since.iter().zip(&self.table.since) {
            let result = &mut results[since.metric];
            for comparison in &result.comparisons {
                let (arm, scale) = (comparison.arm, comparison.scale);
                let pair = [&arms[control], &arms[arm]];
                let point = self.day_since(&view, since, pair, scale);
                match result.since_exposure.iter_mut().find(|known| known.arm == arm) {
                    Some(known) => known.points.push(point),
                    None => result.since_exposure.push(SinceExposure { arm, points: vec![point] }),
                }
            }
        }
    }

    fn day_since(
        &self,
        view: &View<'_>,
        since: &DaySince,
        pair: [&Moments; 2],
        scale: Scale,
    ) -> DaySinceExposure {
        let metric = self.metrics[since.metric];
        let counted = Counted::of(self.query, &since.columns);
        let arms =
            pair.map(|moments| ArmData { users: counted.users(moments), moments, quantile: None });
        let value = |arm, side| {
            let figure = plain_figure(self.experiment, metric, arm, side).ok();
            figure.map(|figure| figure.raw_value).filter(|value| value.is_finite())
        };
        let effect = effect(view, metric, arms, scale).ok();
        DaySinceExposure {
            day: since.day,
            users: arms.map(|arm| arm.users),
            control: value(arms[0], Side::Control),
            treatment: value(arms[1], Side::Treatment),
            effect: effect.map(|effect| effect.value),
            low: effect.map(|effect| effect.low),
            high: effect.map(|effect| effect.high),
        }
    }
}

fn effect(
    view: &View<'_>,
    metric: &Metric,
    arms: [ArmData<'_>; 2],
    scale: Scale,
) -> Result<Estimate, StatsError> {
    let figures = figures(view, metric, arms)?;
    let difference = absolute(&figures.control, &figures.treatment, view.experiment.alpha)?;
    match scale {
        Scale::Absolute => Ok(difference),
        Scale::Relative => {
            FixedLift::of(view, &figures, None)?.looked_at(view, Looks::Fixed, difference)
        }
    }
}
