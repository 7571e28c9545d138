//! Metrics that are defined once and used by name.
//!
//! A definition says `[[metric]] use = "revenue"`, or `use = "revenue@3"` for that version and no other. Keys
//! beside `use` take the place of the catalogue's, and `false` takes one away.
//!
//! # Invariants
//! - A version never changes; a metric's newest version is what its name alone stands for.
//! - A metric of the catalogue is defined in full, so none leads to another.
//!
//! # Not here
//! Where versions lie: they come as texts.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;
use toml::de::DeTable;

use super::read::{self, METRIC};
use super::{DefinitionError, Direction, Metric};
use crate::toml_reader::{Section, nearest};

/// The key of a stored version that says when it was set.
const SET_AT: &str = "set_at";

/// What definitions may use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Catalogue {
    /// The newest version of every metric there is.
    pub newest: BTreeMap<String, u32>,
    /// Versions that were read: those that the definition names, at least.
    pub entries: Vec<Entry>,
}

/// A metric of the catalogue at one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    pub version: u32,
    /// What is stored.
    pub text: String,
    /// Where, for messages.
    pub path: String,
}

/// A metric that a definition uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    pub name: String,
    /// `None`: the newest.
    pub version: Option<u32>,
}

/// Whose metric it is, and what it says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct About {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Absent for a metric that the definition defines itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub catalogue: Option<Origin>,
}

/// Which metric of the catalogue it is.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Origin {
    pub name: String,
    pub version: u32,
    /// Keys that the definition has of its own.
    pub overrides: Vec<String>,
}

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

type Result<T> = std::result::Result<T, DefinitionError>;

impl std::fmt::Display for Use {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)?;
        self.version.map_or(Ok(()), |version| write!(f, "@{version}"))
    }
}

impl Use {
    /// `revenue` or `revenue@3`; `None` if a version is none.
    pub fn parse(text: &str) -> Option<Self> {
        let Some((name, version)) = text.rsplit_once('@') else {
            return Some(Self { name: text.to_owned(), version: None });
        };
        let digits = version.bytes().all(|byte| byte.is_ascii_digit());
        let version = version.parse().ok().filter(|version| digits && *version > 0)?;
        Some(Self { name: name.to_owned(), version: Some(version) })
    }
}

impl Catalogue {
    /// The version that a use stands for, if the catalogue has it.
    pub fn version_of(&self, used: &Use) -> Option<u32> {
        let newest = *self.newest.get(&used.name)?;
        Some(used.version.unwrap_or(newest)).filter(|version| *version <= newest)
    }

    fn entry(&self, used: &Use) -> Option<&Entry> {
        let version = self.version_of(used)?;
        self.entries.iter().find(|entry| entry.name == used.name && entry.version == version)
    }
}

/// The catalogue's metrics that a definition uses, in its order.
///
/// # Errors
/// Those of the syntax, and of a `use` that is no name.
pub fn uses(text: &str, path: &str) -> Result<Vec<Use>> {
    let document = crate::toml_reader::parse(text, path)?;
    let mut found = Vec::new();
    for section in Section::top(&document, text, path).sections(METRIC)? {
        found.extend(used(&section)?);
    }
    Ok(found)
}

/// The definition with the version of every metric that it uses, so that it means the same for ever.
///
/// # Errors
/// Those of [`super::Experiment::parse_with`] that are about `use`.
pub fn pinned(text: &str, path: &str, catalogue: &Catalogue) -> Result<String> {
    let document = crate::toml_reader::parse(text, path)?;
    let mut places: Vec<(Range<usize>, String)> = Vec::new();
    for section in Section::top(&document, text, path).sections(METRIC)? {
        let (Some(used), Some(place)) = (used(&section)?, section.span_of("use")) else { continue };
        let version = find(&section, &used, catalogue)?.version;
        places.push((place, format!("\"{}@{version}\"", used.name)));
    }
    places.sort_by_key(|(place, _)| std::cmp::Reverse(place.start));
    let mut pinned = text.to_owned();
    for (place, words) in places {
        pinned.replace_range(place, &words);
    }
    Ok(pinned)
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
        let (name, _) = read::of_catalogue(section)?;
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
    let (name, metrics) = read::of_catalogue(&section)?;
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

/// Documents of a catalogue's entries, in their order.
pub(super) fn documents(catalogue: &Catalogue) -> Result<Vec<Spanned<DeTable<'_>>>> {
    catalogue.entries.iter().map(|e| crate::toml_reader::parse(&e.text, &e.path)).collect()
}

/// A metric's section, over that of the catalogue which it uses.
pub(super) fn resolved<'t>(
    section: Section<'t>,
    catalogue: &'t Catalogue,
    documents: &'t [Spanned<DeTable<'t>>],
) -> Result<(Section<'t>, Option<Origin>)> {
    let Some(used) = used(&section)? else { return Ok((section, None)) };
    let entry = find(&section, &used, catalogue)?;
    let at = catalogue.entries.iter().position(|other| other == entry);
    let document = &documents[at.expect("it was found among them")];
    let base = only_metric(&Section::top(document, &entry.text, &entry.path))?;
    refuse_use(&base)?;
    let mut overrides = section.own_keys();
    overrides.retain(|key| key != "use");
    let origin = Origin { name: used.name, version: entry.version, overrides };
    Ok((section.over(base), Some(origin)))
}

pub(super) fn refuse_use(section: &Section<'_>) -> Result<()> {
    match section.has("use") {
        true => {
            let problem = "has no meaning in the catalogue".to_owned();
            Err(section.invalid("use", problem, "metrics that are defined in full"))
        }
        false => Ok(()),
    }
}

fn used(section: &Section<'_>) -> Result<Option<Use>> {
    let Some(written) = section.text("use")? else { return Ok(None) };
    let wrong = || {
        let allowed = "the name of a metric, or NAME@VERSION with a version from 1";
        section.invalid("use", format!("is `{written}`"), allowed)
    };
    Use::parse(&written).map(Some).ok_or_else(wrong)
}

fn find<'c>(section: &Section<'_>, used: &Use, catalogue: &'c Catalogue) -> Result<&'c Entry> {
    if let Some(entry) = catalogue.entry(used) {
        return Ok(entry);
    }
    let Some(newest) = catalogue.newest.get(&used.name) else {
        let names = || catalogue.newest.keys().map(String::as_str);
        let hint = nearest(&used.name, names()).map(|name| format!(", did you mean `{name}`?"));
        let problem =
            format!("is `{used}`, which is no metric of the catalogue{}", hint.unwrap_or_default());
        let allowed = match names().next() {
            None => "metrics that were set with `uplake metric set`; there are none".to_owned(),
            Some(_) => names().collect::<Vec<_>>().join(", "),
        };
        return Err(section.invalid("use", problem, &allowed));
    };
    let problem = match used.version {
        Some(version) if version > *newest => format!("is `{used}`, which is not there yet"),
        _ => format!("is `{used}`, which is not there any more"),
    };
    Err(section.invalid("use", problem, &format!("versions 1 to {newest}")))
}

/// The metric of a stored version.
fn only_metric<'t>(top: &Section<'t>) -> Result<Section<'t>> {
    top.only(&[SET_AT, METRIC])?;
    let mut sections = top.sections(METRIC)?;
    match (sections.pop(), sections.pop()) {
        (Some(section), None) => Ok(section),
        (None, _) => Err(top.missing(METRIC, "[[metric]] with a name and a type")),
        (Some(_), Some(_)) => {
            Err(top.invalid(METRIC, "appears more than once".into(), "one [[metric]] a version"))
        }
    }
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
