//! Metrics of the catalogue as they are set and stored.
//!
//! # Not here
//! Definitions that use them: `catalogue`.

use super::catalogue::{METRIC, SET_AT, only_metric};
use super::error::DefinitionError;
use super::metric::{About, Direction, Metric};
use super::read_metric::of_catalogue;
use crate::toml_reader::Section;

type Result<T> = std::result::Result<T, DefinitionError>;

/// A metric as it shall be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMetric {
    pub name: String,
    /// Its part of the file, comments included.
    pub text: String,
}

/// A stored version.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    pub name: String,
    pub kind: &'static str,
    pub direction: Direction,
    pub guardrail: bool,
    pub minimum_effect: Option<f64>,
    pub about: About,
    /// RFC 3339.
    pub set_at: Option<String>,
    /// What was set, without what storing added.
    pub text: String,
}

/// The metrics of a file that is to be set, checked as far as they can be without an experiment.
///
/// # Errors
/// As of a definition's metrics; each begins with `[[metric]]`, is defined in full and named once.
pub fn metrics_of(text: &str, path: &str) -> Result<Vec<NewMetric>> {
    let text = text.trim_start_matches('\u{feff}');
    let document = crate::toml_reader::parse(text, path)?;
    let top = Section::top(&document, text, path);
    top.only(&[METRIC])?;
    let sections = top.sections(METRIC)?;
    if sections.is_empty() {
        return Err(top.missing(METRIC, "[[metric]] with a name and a type"));
    }
    let mut found: Vec<NewMetric> = Vec::new();
    let begins: Vec<usize> = sections.iter().map(|s| own_begin(text, s.begin())).collect();
    for (at, section) in sections.iter().enumerate() {
        if !text[section.begin()..].starts_with("[[") {
            let problem = "is a list in one line".to_owned();
            return Err(top.invalid(METRIC, problem, "[[metric]], with two brackets"));
        }
        let (name, _) = of_catalogue(section)?;
        if found.iter().any(|other| other.name == name) {
            return Err(section.repeated("name", &name));
        }
        let end = begins.get(at + 1).copied().unwrap_or(text.len());
        found.push(NewMetric { name, text: text[begins[at]..end].trim().replace("\r\n", "\n") });
    }
    Ok(found)
}

/// What is stored of a metric. `set_at`: RFC 3339.
pub fn stored_text(metric: &str, set_at: &str) -> String {
    format!("{SET_AT} = \"{set_at}\"\n\n{metric}\n")
}

/// Reads a stored version.
///
/// # Errors
/// As [`metrics_of`]; it holds one metric.
pub fn stored(text: &str, path: &str) -> Result<Stored> {
    let document = crate::toml_reader::parse(text, path)?;
    let top = Section::top(&document, text, path);
    let section = only_metric(&top)?;
    let (name, metrics) = of_catalogue(&section)?;
    let Metric { kind, direction, guardrail, minimum_effect, about, .. } =
        metrics.into_iter().next().expect("a section gives one metric at least");
    Ok(Stored {
        name,
        kind: kind.name(),
        direction,
        guardrail,
        minimum_effect,
        about,
        set_at: top.text(SET_AT)?,
        text: text[own_begin(text, section.begin())..].trim().to_owned(),
    })
}

/// Where a section begins with the comments that stand right above it.
fn own_begin(text: &str, begin: usize) -> usize {
    let mut begin = text[..begin].rfind('\n').map_or(0, |end| end + 1);
    while begin > 0 {
        let above = text[..begin - 1].rfind('\n').map_or(0, |end| end + 1);
        if !text[above..begin].trim_start().starts_with('#') {
            break;
        }
        begin = above;
    }
    begin
}
