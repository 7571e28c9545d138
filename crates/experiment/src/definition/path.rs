//! `[[path]]`: what users do from one event to another.
//!
//! ```toml
//! [[path]]
//! name = "to payment"
//! table = "events"
//! event = "event"               # what a step is called
//! from = "event = 'open'"
//! to = "event = 'pay'"
//! within = "1 day"              # of the first event; default: to the end of the period
//! steps = 5                     # told at most, of each user
//! top = 10                      # sequences in the report
//! collapse_repeats = true       # an event that follows one of the same name is no step
//! ```

use super::error::DefinitionError;
use super::exposures::{Exposures, Unit};
use crate::toml_reader::Section;

/// Steps of a path that a report tells.
const STEPS: (usize, usize) = (5, 20);
/// Sequences of events that a report tells.
const TOP: (usize, usize) = (10, 50);

/// Which sequences of events lead from one event to another, after exposure.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Path {
    pub name: String,
    pub table: String,
    pub user: String,
    pub time: String,
    /// The name of a row's event; rows without one do not count.
    pub event: String,
    pub filter: Option<String>,
    /// The condition of the first event, and of the last.
    pub from: String,
    pub to: String,
    /// After the first event, this instant included; `None`: to the end of the period.
    pub within_ms: Option<i64>,
    /// Events of a user that are told, from 1.
    pub steps: usize,
    /// Sequences that are told, from 1.
    pub top: usize,
    pub collapse_repeats: bool,
}

type Result<T> = std::result::Result<T, DefinitionError>;

pub(super) fn read(top: &Section<'_>, exposures: &Exposures) -> Result<Vec<Path>> {
    let mut paths: Vec<Path> = Vec::new();
    for section in top.sections("path")? {
        let Some(exposure_time) = &exposures.time else {
            let problem = "needs to know when users were exposed".to_owned();
            return Err(top.invalid("path", problem, "with `time` set under [exposures]"));
        };
        if matches!(exposures.unit, Unit::Switchback { .. }) {
            let problem = "follows users, not regions that switch".to_owned();
            return Err(top.invalid("path", problem, "without [switchback]"));
        }
        section.only(&[
            "name",
            "table",
            "user",
            "time",
            "where",
            "event",
            "from",
            "to",
            "within",
            "steps",
            "top",
            "collapse_repeats",
        ])?;
        let name = section.required_text("name", "name = \"to payment\"")?;
        if paths.iter().any(|path| path.name == name) {
            return Err(section.repeated("name", &name));
        }
        paths.push(Path {
            name,
            table: section.text("table")?.unwrap_or_else(|| exposures.table.clone()),
            user: section.text("user")?.unwrap_or_else(|| exposures.user.clone()),
            time: section.text("time")?.unwrap_or_else(|| exposure_time.clone()),
            event: section.required_text("event", "event = \"event\"")?,
            filter: section.text("where")?,
            from: section.required_text("from", "from = \"event = 'open'\"")?,
            to: section.required_text("to", "to = \"event = 'pay'\"")?,
            within_ms: section.duration_ms("within")?,
            steps: count(&section, "steps", STEPS)?,
            top: count(&section, "top", TOP)?,
            collapse_repeats: section.boolean("collapse_repeats")?.unwrap_or(false),
        });
    }
    Ok(paths)
}

/// A whole number from 1 to `most`.
fn count(section: &Section<'_>, key: &str, (default, most): (usize, usize)) -> Result<usize> {
    match section.number(key)? {
        None => Ok(default),
        Some(number) if number.fract() == 0.0 && (1.0..=most as f64).contains(&number) => {
            Ok(number as usize)
        }
        Some(number) => {
            let allowed = format!("a whole number from 1 to {most}");
            Err(section.invalid(key, format!("is {number}"), &allowed))
        }
    }
}
