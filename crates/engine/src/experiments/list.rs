//! What the experiments of a lake are at.

use std::collections::BTreeMap;

use chrono::DateTime;
use chrono_tz::Tz;
use futures::StreamExt;
use uplake_experiment::Experiment;
use uplake_experiment::definition::State;
use uplake_experiment::saved::SavedReport;
use uplake_table::Lake;

use super::READS_AT_ONCE;
use super::definitions::Definitions;
use super::results::{LastResults, last_results};
use crate::base::error::{EngineError, Result};
use crate::base::sql_state::SqlState;

/// The experiments of a lake as of a time.
#[derive(Debug)]
pub struct ExperimentList {
    /// By name.
    pub experiments: Vec<ListedExperiment>,
    /// Why some saved results are not told of.
    pub unreadable: Vec<EngineError>,
}

/// An experiment and what it is at.
#[derive(Debug)]
pub struct ListedExperiment {
    /// Under which the definition is in the lake.
    pub name: String,
    pub experiment: Result<Experiment>,
    /// `None` without a period. An error if nobody knows the definition's time zone.
    pub state: Result<Option<State>>,
    /// The last saved result and which of them it is, from 1.
    pub last: Option<(u32, SavedReport)>,
}

/// The definitions in the lake, with state and last saved result. `now_millis`: since 1970, UTC.
///
/// # Errors
/// [`EngineError::Table`] if the lake cannot be read; a definition that cannot is listed with its error.
pub async fn list_experiments(lake: &Lake, now_millis: i64) -> Result<ExperimentList> {
    let (names, saved) = futures::future::join(lake.experiments(), last_results(lake)).await;
    let (names, LastResults { results, unreadable }) = (names?, saved?);
    let mut definitions = Definitions::new(lake);
    let read = |name: String| async move { (lake.experiment(&name).await, name) };
    let mut texts = futures::stream::iter(names.into_iter().map(read)).buffered(READS_AT_ONCE);
    let mut experiments = Vec::new();
    while let Some((text, name)) = texts.next().await {
        // One that was removed meanwhile is none.
        let Some((text, path)) = text? else { continue };
        let read = definitions.read(&text, &path).await;
        let experiment = read.map(|definition| definition.experiment().clone());
        experiments.push(listed(name, experiment, now_millis, &results));
    }
    Ok(ExperimentList { experiments, unreadable })
}

fn listed(
    name: String,
    experiment: Result<Experiment>,
    now_millis: i64,
    results: &BTreeMap<String, (u32, SavedReport)>,
) -> ListedExperiment {
    let Ok(known) = &experiment else {
        return ListedExperiment { name, experiment, state: Ok(None), last: None };
    };
    let state = known.period.as_ref().map(|period| {
        let local = local_time(&known.time_zone, now_millis)?;
        Ok(period.state(&local))
    });
    // Two definitions may define experiments of one name.
    let last = results.get(&known.name).cloned();
    ListedExperiment { name, state: state.transpose(), last, experiment }
}

/// `YYYY-MM-DDTHH:MM:SS` where the experiment's days begin and end.
fn local_time(zone: &str, millis: i64) -> Result<String> {
    let known: Tz = zone.parse().map_err(|_| {
        EngineError::report(SqlState::InvalidParameterValue, format!("`{zone}` is no time zone"))
            .with_hint("write one like Europe/Berlin")
    })?;
    let utc = DateTime::from_timestamp_millis(millis);
    let utc = utc.ok_or_else(|| {
        EngineError::report(SqlState::DatetimeFieldOverflow, "a time out of range")
    })?;
    Ok(utc.with_timezone(&known).format("%Y-%m-%dT%H:%M:%S").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_zone() {
        // 2026-11-01 00:30 in Berlin, where it is an hour later.
        let millis = 1_793_489_400_000;
        assert_eq!(local_time("UTC", millis).unwrap(), "2026-10-31T23:30:00");
        assert_eq!(local_time("Europe/Berlin", millis).unwrap(), "2026-11-01T00:30:00");
        assert!(local_time("Europe/Nowhere", millis).is_err());
    }
}
