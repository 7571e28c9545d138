//! The report in one line for each arm: what to do, and what the primary metric did.
//!
//! # Not here
//! No layout (`text`, `html`), and nothing is decided (`verdict`).

use crate::definition::Direction;
use crate::format;
use crate::report::{ArmVerdict, Call, Comparison, Decision, MetricReport, Report};

/// One arm's decision beside its effect on the primary metric.
pub(crate) struct Headline<'r> {
    pub(crate) verdict: &'r ArmVerdict,
    pub(crate) metric: &'r MetricReport,
    pub(crate) comparison: &'r Comparison,
}

impl Headline<'_> {
    /// The effect and its interval, if there is an estimate.
    pub(crate) fn effect(&self) -> Option<[String; 2]> {
        let estimate = self.comparison.estimate().ok()?;
        let on = |number| format::effect(number, self.comparison.scale, self.metric.is_share);
        let interval = format!("[{}, {}]", on(estimate.low), on(estimate.high));
        Some([on(estimate.value), interval])
    }

    /// "Ship free: conversion +5.23 % [+1.10 %, +9.41 %]".
    pub(crate) fn words(&self, report: &Report) -> String {
        let effect = self.effect().map_or("without an estimate".into(), |words| words.join(" "));
        let arm = &report.arms[self.verdict.arm].name;
        format!("{} {arm}: {} {effect}", word(self.verdict.decision), self.metric.name)
    }

    /// Does the primary metric alone make this decision?
    pub(crate) fn says_why(&self) -> bool {
        match self.verdict.decision {
            Decision::Ship => self.comparison.call == Call::Better,
            Decision::RollBack => self.comparison.call == Call::Worse,
            Decision::KeepRunning => true,
            Decision::TradeOff | Decision::DoNotTrust => false,
        }
    }

    /// Seen from the desired direction; without an estimate last.
    fn gain(&self) -> f64 {
        let value = self.comparison.estimate().map_or(f64::NEG_INFINITY, |found| found.value);
        match self.metric.direction {
            Direction::Decrease if value.is_finite() => -value,
            _ => value,
        }
    }
}

/// One per treatment arm, the arm that made the decision first, then by their effects; none where the
/// data cannot be trusted.
pub(crate) fn headlines(report: &Report) -> Vec<Headline<'_>> {
    let Some(metric) = report.metrics.get(report.primary) else {
        return Vec::new();
    };
    let arms = report.verdict.arms.iter();
    let mut found: Vec<Headline<'_>> = arms
        .filter_map(|verdict| {
            let comparison = metric.comparisons.iter().find(|found| found.arm == verdict.arm)?;
            Some(Headline { verdict, metric, comparison })
        })
        .collect();
    found.sort_by(|a, b| {
        let rank = |line: &Headline<'_>| line.verdict.decision.rank();
        rank(a).cmp(&rank(b)).then(b.gain().total_cmp(&a.gain()))
    });
    found
}

pub(crate) fn word(decision: Decision) -> &'static str {
    match decision {
        Decision::Ship => "Ship",
        Decision::DoNotTrust => "Do not trust",
        Decision::RollBack => "Roll back",
        Decision::TradeOff => "Weigh",
        Decision::KeepRunning => "Keep running",
    }
}

/// "day 9 of 14", "64 % of 20,000 planned users": what is known of how far the experiment is.
pub(crate) fn progress(report: &Report) -> Vec<String> {
    let progress = &report.progress;
    let days = progress.day.zip(progress.days).map(|(day, days)| format!("day {day} of {days}"));
    let users = progress.planned_users.map(|planned| {
        let share = format::percent(progress.users as f64 / planned as f64, 0);
        format!("{share} of {} planned users", format::count(planned))
    });
    days.into_iter().chain(users).collect()
}
