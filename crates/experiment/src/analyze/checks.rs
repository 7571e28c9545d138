//! Can the numbers be trusted?

use std::collections::BTreeMap;

use super::analysis::Analysis;
use super::figures::{covariates, shape};
use super::view::View;
use crate::definition::{Inference, Shape, Unit};
use crate::distribution::chi2_sf;
use crate::effect::{ArmFigure, absolute};
use crate::health::{SRM_ALARM_P, independence, sample_ratio, sequential_sample_ratio_p};
use crate::left_out::unmatched;
use crate::report::{
    ActivationCheck, Balance, Breakdown, DimensionAlarm, ExcludedUsers, Health, Imbalance,
    MissingDay, SampleRatioCheck, UnknownVariant,
};

/// Values of the variant column outside the definition that a report lists.
const MAX_UNKNOWN_VARIANTS: usize = 10;

/// A day without rows is missing data, not chance, if the table's median day has this many users:
/// a Poisson count of mean 30 is 0 once in 10^13 days.
const MISSING_DAY_USERS: u64 = 30;
/// Users of each arm that are expected in a slice whose ratio is looked at: with fewer, chi-square is much
/// larger by chance than its distribution says (one user in an arm of 5 %: p = 0.00001).
const EXPECTED_MIN: f64 = 5.0;

impl Analysis<'_> {
    pub(super) fn check_health(&self, breakdowns: &[Breakdown]) -> Health {
        let shares: Vec<f64> = self.experiment.variants.iter().map(|arm| arm.share).collect();
        let mut unknown: Vec<UnknownVariant> = self
            .table
            .unknown_variants
            .iter()
            .map(|(value, users)| UnknownVariant { value: value.clone(), users: *users })
            .collect();
        unknown.sort_by_key(|variant| (std::cmp::Reverse(variant.users), variant.value.clone()));
        unknown.truncate(MAX_UNKNOWN_VARIANTS);
        // Users of a cluster come together, so only whole clusters can be counted.
        let of_users = !matches!(self.experiment.exposures.unit, Unit::Cluster { .. });
        let counts =
            |dimension: Option<&str>, counts: Vec<(String, Vec<u64>)>| -> Vec<DimensionAlarm> {
                if !of_users {
                    return Vec::new();
                }
                let level = SRM_ALARM_P / counts.len().max(1) as f64;
                let alarm = |(value, users): (String, Vec<u64>)| {
                    let ratio = sample_ratio(&users, &shares).ok()?;
                    let is_expected = |users: &f64| *users == 0.0 || *users >= EXPECTED_MIN;
                    let counts =
                        ratio.expected.iter().all(is_expected) || ratio.chi_square.is_infinite();
                    let dimension = dimension.map(str::to_owned);
                    let alarm = DimensionAlarm { dimension, value, p: ratio.p };
                    (counts && ratio.p < level).then_some(alarm)
                };
                counts.into_iter().filter_map(alarm).collect()
            };
        let values = |breakdown: &Breakdown| {
            let rows = breakdown.rows.iter().map(|row| (row.value.clone(), row.users.clone()));
            counts(Some(&breakdown.dimension), rows.collect())
        };
        let activation = self.check_activation();
        let excluded = self.experiment.exposures.exclude.iter().enumerate().map(|(place, rows)| {
            let users = self.table.users_excluded.get(place).copied().unwrap_or(0);
            ExcludedUsers { table: rows.table.clone(), filter: rows.filter.clone(), users }
        });
        let mut sample_ratio = self.check_sample_ratio(&shares);
        sample_ratio.alarm |= activation.as_ref().is_some_and(|check| check.alarm);
        let days = self.first_exposures().into_iter().map(|day| (day.day, day.users));
        let left_out = &self.table.left_out;
        Health {
            sample_ratio,
            users_in_many_variants: self.table.users_in_many_variants,
            unknown_variants: unknown,
            sample_ratio_alarms: breakdowns.iter().flat_map(values).collect(),
            sample_ratio_days: counts(None, days.collect()),
            balance: self.check_balance(),
            missing_days: self.missing_days(),
            users_assigned_otherwise: self.table.users_assigned_otherwise,
            exposures_without_user: left_out.exposures_without_user,
            exposures_without_time: left_out.exposures_without_time,
            users_exposed_before: left_out.users_exposed_before,
            no_exposures: left_out.no_exposures,
            unmatched: unmatched(self.query, left_out),
            exposures: self.experiment.exposures.table.clone(),
            excluded: excluded.collect(),
            activation,
        }
    }

    fn check_activation(&self) -> Option<ActivationCheck> {
        let idle = self.idle.as_ref()?;
        let activated = self.total.users.clone();
        let counts = [activated.clone(), idle.users.clone()];
        let independence = independence(&counts);
        Some(ActivationCheck {
            exposed: activated.iter().zip(&idle.users).map(|(a, b)| a + b).collect(),
            activated,
            independence,
            alarm: independence.is_some_and(|test| test.p < SRM_ALARM_P),
        })
    }

    fn check_sample_ratio(&self, shares: &[f64]) -> SampleRatioCheck {
        let units = self.units();
        let Ok(mut ratio) = sample_ratio(&units, shares) else {
            return SampleRatioCheck {
                p: None,
                chi_square: None,
                sequential_p: None,
                alarm: false,
                expected: Vec::new(),
                unavailable: Some(if self.idle.is_some() {
                    "no users are activated".into()
                } else {
                    "no users are exposed".into()
                }),
            };
        };
        if self.experiment.growthbook {
            // gbstats counts arms without a share as well.
            ratio.p = chi2_sf(ratio.chi_square, (shares.len() - 1) as f64);
        }
        SampleRatioCheck {
            p: Some(ratio.p),
            chi_square: Some(ratio.chi_square).filter(|value| value.is_finite()),
            sequential_p: sequential_sample_ratio_p(&units, shares).ok(),
            alarm: ratio.is_alarm(),
            expected: ratio.expected,
            unavailable: None,
        }
    }

    /// Compares the arms in the time before exposure, at the level of a sample-ratio alarm.
    fn check_balance(&self) -> Balance {
        let control = self.experiment.control();
        let view = View::new(self.experiment, control, true, Inference::Fixed, &[]);
        let mut found = Vec::new();
        for (index, metric) in self.metrics.iter().enumerate() {
            if covariates(&view, metric).is_none() {
                continue;
            }
            let before = |arm: usize| {
                let moments = &self.total.groups[arm][index];
                match shape(self.experiment, metric) {
                    Shape::Ratio => ArmFigure::ratio(moments, 2, 3),
                    _ => ArmFigure::mean(moments, 1),
                }
            };
            for arm in (0..self.total.users.len()).filter(|arm| *arm != control) {
                // Without history there is nothing to compare, and nothing to report.
                let difference = absolute(&before(control), &before(arm), self.experiment.alpha);
                if let Ok(difference) = difference {
                    found.push(Imbalance { metric: metric.name.clone(), arm, p: difference.p });
                }
            }
        }
        let checks = found.len();
        found.retain(|imbalance| imbalance.p < SRM_ALARM_P / checks as f64);
        Balance { checks, alarms: found }
    }

    fn missing_days(&self) -> Vec<MissingDay> {
        let mut tables: BTreeMap<&str, BTreeMap<&str, u64>> = BTreeMap::new();
        for (table, day, users) in &self.table.active_users {
            *tables.entry(table).or_default().entry(day).or_default() += users;
        }
        let mut missing = Vec::new();
        for (table, active) in tables {
            let mut counts: Vec<u64> = active.values().copied().collect();
            counts.sort_unstable();
            if counts[counts.len() / 2] < MISSING_DAY_USERS {
                continue;
            }
            // Before a table's first rows nothing is missing: metrics may start late.
            let first = active.keys().next().copied();
            let days = self.table.days.iter().map(|cells| cells.day.as_str());
            let gaps = days.filter(|day| Some(*day) > first && !active.contains_key(day));
            missing.extend(
                gaps.map(|day| MissingDay { table: table.to_owned(), day: day.to_owned() }),
            );
        }
        missing
    }
}
