//! Results of experiments that are saved in the lake: `_uplake/results/free_shipping/00000003.json`, which is
//! the report as JSON with the time and the lifts as the data alone have them.

use std::collections::BTreeMap;

use futures::StreamExt;
use uplake_experiment::Report;
use uplake_experiment::saved::SavedReport;
use uplake_table::{Lake, Versioned};

use super::READS_AT_ONCE;
use super::catalogue::time_text;
use crate::base::error::{EngineError, Result};
use crate::base::sql_state::SqlState;

/// Another writer may save the same experiment meanwhile, so often at most.
const TRIES: u32 = 100;

/// The last saved result of each experiment.
#[derive(Debug, Default)]
pub struct LastResults {
    /// By experiment, with which of its results it is, from 1.
    pub results: BTreeMap<String, (u32, SavedReport)>,
    /// Why some are not among them.
    pub unreadable: Vec<EngineError>,
}

/// Saves a report beside the earlier ones of its experiment; which of them it is, from 1. `now_millis`: since 1970,
/// UTC.
///
/// # Errors
/// [`EngineError::Table`] if it cannot be written, also for an experiment whose name cannot be one of a file;
/// [`SqlState::SerializationFailure`] if others save results of the experiment without pause.
pub async fn save_report(lake: &Lake, report: &Report, now_millis: i64) -> Result<u32> {
    let text = SavedReport::text_of(report, &time_text(now_millis));
    let name = &report.experiment;
    for _ in 0..TRIES {
        let all = lake.versions(Versioned::Result).await?;
        let newest = all.get(name).and_then(|versions| versions.last()).copied().unwrap_or(0);
        if lake.add_version(Versioned::Result, name, newest + 1, &text).await? {
            return Ok(newest + 1);
        }
    }
    Err(EngineError::report(
        SqlState::SerializationFailure,
        format!("others save results of `{name}` without pause; run it again"),
    ))
}

/// Reads a saved result.
///
/// # Errors
/// One of kind *missing* if it is not there, [`SqlState::DataCorrupted`] if it is none, [`EngineError::Table`].
pub async fn saved_report(lake: &Lake, name: &str, version: u32) -> Result<SavedReport> {
    let found = lake.version(Versioned::Result, name, version).await?;
    let gone = || {
        EngineError::report(
            SqlState::UndefinedObject,
            format!("result {version} of {name} is gone"),
        )
    };
    let (text, path) = found.ok_or_else(gone)?;
    SavedReport::parse(&text).map_err(|error| {
        EngineError::report(SqlState::DataCorrupted, format!(
            "{path} is no saved result; restore it from a copy of the lake, or remove it: {error}"
        ))
    })
}

/// The last saved result of each experiment; those that cannot be read are no obstacle.
///
/// # Errors
/// [`EngineError::Table`] if nobody knows which there are.
pub async fn last_results(lake: &Lake) -> Result<LastResults> {
    let versions = lake.versions(Versioned::Result).await?.into_iter();
    let last = versions.filter_map(|(name, all)| Some((name, *all.last()?)));
    let read = |(name, version): (String, u32)| async move {
        (saved_report(lake, &name, version).await, name, version)
    };
    let mut reads = futures::stream::iter(last.map(read)).buffered(READS_AT_ONCE);
    let mut found = LastResults::default();
    while let Some((saved, name, version)) = reads.next().await {
        match saved {
            Ok(saved) => drop(found.results.insert(name, (version, saved))),
            Err(error) => found.unreadable.push(error),
        }
    }
    Ok(found)
}
