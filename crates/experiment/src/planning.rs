//! How many users and days an experiment needs, from what its definition measured before.
//!
//! The error of a difference that was measured has everything in it: CUPED and strata that make it smaller,
//! clusters and ratios that make it larger. So a plan takes the error and asks for how many users it is small enough.
//!
//! # Not here
//! No reading of data: the caller has made the report of the history, an A/A test by a hash if need be.

use crate::definition::{Correction, Experiment, Inference};
use crate::effect::StatsError;
use crate::format;
use crate::power::{Goal, Plan, PlannedLooks, detectable_effect};
use crate::report::{MetricReport, Report};

/// One metric's plan.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedMetric {
    pub name: String,
    pub guardrail: bool,
    /// A share of users.
    pub is_share: bool,
    /// The control's value.
    pub control: Option<f64>,
    /// Comparisons that share the error.
    pub comparisons: usize,
    /// Users of all arms that the lift takes.
    pub users: Result<f64, StatsError>,
    /// Days until so many have come, at the pace of the history; absent without days.
    pub days: Option<f64>,
    /// The smallest lift that as many users as the history's find, a fraction.
    pub found: Result<f64, StatsError>,
}

/// Days whose mean is the pace at which further users come: a week, as weekdays differ.
const PACE_DAYS: usize = 7;

/// Plans every metric of a report for a lift (0.05: 5 % up or down) that is to be found with this chance: by the
/// definition's arms, shares, looks and correction, of which Holm's first step is planned for. Beliefs are planned as
/// one look.
///
/// # Errors
/// [`StatsError::OutOfRange`] for a lift of 0 or that is not finite; each metric has its own.
pub fn plan_like(
    experiment: &Experiment,
    report: &Report,
    lift: f64,
    power: f64,
) -> Result<Vec<PlannedMetric>, StatsError> {
    if lift == 0.0 || !lift.is_finite() {
        return Err(StatsError::OutOfRange("the lift must be a number other than 0"));
    }
    let history = History::of(experiment, report);
    let of_goals: usize = report
        .metrics
        .iter()
        .filter(|metric| !metric.guardrail)
        .map(|metric| metric.comparisons.len())
        .sum();
    let plan = |metric: &MetricReport| {
        let is_corrected = !metric.guardrail && experiment.correction != Correction::None;
        let comparisons = if is_corrected { of_goals.max(1) } else { 1 };
        let alpha = experiment.alpha / comparisons as f64;
        let control = metric.values[report.control()].value;
        let of_logs = metric.comparisons.iter().any(|c| c.relative == Err(StatsError::LiftOfLogs));
        // A difference of logs is a lift itself.
        let baseline = if of_logs { Some(1.0) } else { control.filter(|value| *value != 0.0) };
        let baseline = baseline.ok_or(StatsError::ZeroControlMean);
        let asked =
            baseline.and_then(|baseline| Ok((baseline.abs(), history.deviation(metric, report)?)));
        let users = asked.and_then(|(baseline, deviation)| {
            let effect = baseline * lift.abs();
            history.users(&Goal { effect, deviation, alpha }, power)
        });
        let found = asked.and_then(|(baseline, deviation)| {
            Ok(history.found(deviation, alpha, power)? / baseline)
        });
        PlannedMetric {
            name: metric.name.clone(),
            guardrail: metric.guardrail,
            is_share: metric.is_share,
            control,
            comparisons,
            days: users.ok().and_then(|users| history.days(users)),
            users,
            found,
        }
    };
    Ok(report.metrics.iter().map(plan).collect())
}

/// The plans as a table for the terminal, with what they are for above it and the test below.
pub fn to_text(
    experiment: &Experiment,
    report: &Report,
    planned: &[PlannedMetric],
    lift: f64,
    power: f64,
) -> String {
    let users: u64 = report.arms.iter().map(|arm| arm.users).sum();
    let days = match report.first_exposures.len() {
        0 => String::new(),
        1 => " of 1 day".into(),
        days => format!(" of {days} days"),
    };
    let mut text = format!(
        "{}: a lift of {}, found with a chance of {}, as {} users{days} had it.\n\n",
        format::visible(&report.experiment),
        format::signed_percent(lift),
        format::percent(power, 0),
        format::count(users)
    );
    let heads = ["metric", "control", "users needed", "days", "found by as many"];
    let mut rows = vec![heads.map(str::to_owned)];
    let mut missing = Vec::new();
    for metric in planned {
        let name = format::visible(&metric.name);
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "·".into());
        rows.push([
            name.clone(),
            format::value(metric.control, metric.is_share),
            or_none(metric.users.ok().map(|users| format::count(users.ceil() as u64))),
            or_none(metric.days.map(|days| format::count(days as u64))),
            or_none(metric.found.ok().map(|lift| format::percent(lift, 2))),
        ]);
        if let Err(error) = metric.users {
            missing.push(format!("{name}: {error}.\n"));
        }
    }
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    for row in &rows {
        let pad = |column: usize| " ".repeat(widths[column] - row[column].chars().count());
        let mut line = format!("{}{}", row[0], pad(0));
        for (column, cell) in row.iter().enumerate().skip(1) {
            line += &format!("  {}{cell}", pad(column));
        }
        text += line.trim_end();
        text.push('\n');
    }
    text.push('\n');
    missing.iter().for_each(|line| text += line);
    let looks = match experiment.inference {
        Inference::Anytime { .. } => "A confidence sequence, tightest at all of these users".into(),
        Inference::GroupSequential { looks, .. } => {
            format!("A group sequential test with {looks} looks, the last at all of these users")
        }
        Inference::Fixed | Inference::Bayesian { .. } => "A t-test that looks once".to_owned(),
    };
    let shared = planned.iter().map(|metric| metric.comparisons).max().filter(|count| *count > 1);
    let shared = shared.map_or(String::new(), |count| {
        format!(", of goals divided by {count} comparisons (Holm's first step)")
    });
    text + &format!("{looks}; alpha {}{shared}.\n", experiment.alpha)
}

/// What a report says of how users come and fall into arms.
struct History {
    plan: Plan,
    /// Of all users: the control's, and the smallest treatment's.
    shares: [f64; 2],
    users: f64,
    /// 1 unless groups of users are the units.
    users_per_unit: f64,
    /// First exposed, per day.
    days: Vec<f64>,
}

impl History {
    fn of(experiment: &Experiment, report: &Report) -> Self {
        let total: f64 = experiment.variants.iter().map(|variant| variant.share).sum();
        let share = |control: bool| {
            let arms = experiment.variants.iter().filter(|variant| variant.control == control);
            let used = arms.map(|variant| variant.share / total).filter(|share| *share > 0.0);
            used.fold(1.0, f64::min)
        };
        let looks = match experiment.inference {
            Inference::Anytime { .. } => PlannedLooks::Anytime,
            Inference::GroupSequential { looks, .. } => PlannedLooks::GroupSequential(looks),
            Inference::Fixed | Inference::Bayesian { .. } => PlannedLooks::Once,
        };
        let [users, units] = [
            report.arms.iter().map(|arm| arm.users).sum::<u64>() as f64,
            report.arms.iter().map(|arm| arm.units).sum::<u64>() as f64,
        ];
        Self {
            plan: Plan { looks, ..Plan::PLAIN },
            shares: [share(true), share(false)],
            users,
            users_per_unit: users / units,
            days: report
                .first_exposures
                .iter()
                .map(|day| day.users.iter().sum::<u64>() as f64)
                .collect(),
        }
    }

    /// Of one unit, as the errors of the metric's comparisons have it: their mean square.
    fn deviation(&self, metric: &MetricReport, report: &Report) -> Result<f64, StatsError> {
        let units = |arm: usize| match metric.moments[arm].units {
            0 => report.arms[arm].units as f64,
            units => units as f64,
        };
        let control = 1.0 / units(report.control());
        let squares: Vec<f64> = metric
            .comparisons
            .iter()
            .filter_map(|comparison| {
                let (fixed, _) = comparison.fixed?;
                Some(fixed.error.powi(2) / (control + 1.0 / units(comparison.arm)))
            })
            .collect();
        match (squares.len(), metric.comparisons.first().map(|comparison| comparison.absolute)) {
            (0, Some(Err(error))) => Err(error),
            (0, _) => Err(StatsError::OutOfRange("the deviation must be a number above 0")),
            (count, _) => Ok((squares.iter().sum::<f64>() / count as f64).sqrt()),
        }
    }

    /// Users of all arms that are worth one unit in each of two equal arms.
    fn arms(&self) -> f64 {
        0.5 * self.shares.iter().map(|share| 1.0 / share).sum::<f64>() * self.users_per_unit
    }

    fn users(&self, goal: &Goal, power: f64) -> Result<f64, StatsError> {
        // Of one of two equal arms, then of all.
        Ok(0.5 * self.plan.users(goal, power)?.total * self.arms())
    }

    fn found(&self, deviation: f64, alpha: f64, power: f64) -> Result<f64, StatsError> {
        let equal = self.users / self.arms() / self.plan.factor(alpha, power)?;
        detectable_effect(deviation, equal, alpha, power)
    }

    fn days(&self, users: f64) -> Option<f64> {
        let mut so_far = 0.0;
        for (day, more) in self.days.iter().enumerate() {
            so_far += more;
            if so_far >= users {
                return Some((day + 1) as f64);
            }
        }
        let last = &self.days[self.days.len().saturating_sub(PACE_DAYS)..];
        let pace = last.iter().sum::<f64>() / last.len() as f64;
        (pace > 0.0).then(|| (self.days.len() as f64 + (users - so_far) / pace).ceil())
    }
}
