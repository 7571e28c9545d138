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

use super::error::DefinitionError;
use super::metric::Origin;
use crate::toml_reader::{Section, nearest};

/// The key of metrics.
pub(super) const METRIC: &str = "metric";
/// The key of a stored version that says when it was set.
pub(super) const SET_AT: &str = "set_at";

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
pub(super) fn only_metric<'t>(top: &Section<'t>) -> Result<Section<'t>> {
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
