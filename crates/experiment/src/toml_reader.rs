//! Typed access to TOML tables with errors that name file, line, key and remedy.
//!
//! # Not here
//! No knowledge of experiments: which keys exist and what they mean is `definition`.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::definition::{DefinitionError, Place};

fn place(text: &str, file: &str, span: &Range<usize>) -> Place {
    let before = &text.as_bytes()[..span.start.min(text.len())];
    let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
    Place { file: file.into(), line }
}

pub(crate) fn parse<'t>(
    text: &'t str,
    file: &str,
) -> Result<Spanned<DeTable<'t>>, DefinitionError> {
    DeTable::parse(text).map_err(|error| DefinitionError::Syntax {
        place: place(text, file, &error.span().unwrap_or_default()),
        message: error.message().to_owned(),
    })
}

/// One table of the document, with its name and where it begins.
#[derive(Clone)]
pub(crate) struct Section<'t> {
    table: &'t DeTable<'t>,
    title: String,
    begin: Range<usize>,
    text: &'t str,
    file: &'t str,
    /// Holds for keys that this one lacks.
    base: Option<Box<Section<'t>>>,
}

impl<'t> Section<'t> {
    pub(crate) fn top(document: &'t Spanned<DeTable<'t>>, text: &'t str, file: &'t str) -> Self {
        let title = "the definition".to_owned();
        Self { table: document.get_ref(), title, begin: 0..0, text, file, base: None }
    }

    /// The same with the keys of `base` where it has none. `false` takes a key of `base` away that is no
    /// yes or no itself.
    pub(crate) fn over(self, base: Section<'t>) -> Self {
        Self { base: Some(Box::new(base)), ..self }
    }

    /// A value, and the section that it stands in.
    fn find(&self, key: &str) -> Option<(&Self, &'t Spanned<DeValue<'t>>)> {
        let own = self.table.get(key).map(|value| (self, value));
        let below = self.base.as_ref().and_then(|base| base.find(key));
        let is_yes_or_no = |value: &DeValue<'_>| matches!(value, DeValue::Boolean(_));
        match (own, below) {
            (Some((_, value)), Some((_, below)))
                if matches!(value.get_ref(), DeValue::Boolean(false))
                    && !is_yes_or_no(below.get_ref()) =>
            {
                None
            }
            (None, below) => below,
            (own, _) => own,
        }
    }

    fn value(&self, key: &str) -> Option<&'t DeValue<'t>> {
        self.find(key).map(|(_, value)| value.get_ref())
    }

    /// The keys that stand here, in the order of the file.
    pub(crate) fn own_keys(&self) -> Vec<String> {
        let mut keys: Vec<_> = self.table.keys().collect();
        keys.sort_by_key(|key| key.span().start);
        keys.into_iter().map(|key| key.get_ref().to_string()).collect()
    }

    /// Where its value stands in the text.
    pub(crate) fn span_of(&self, key: &str) -> Option<Range<usize>> {
        self.table.get(key).map(Spanned::span)
    }

    /// Where it begins in the text.
    pub(crate) fn begin(&self) -> usize {
        self.begin.start
    }

    /// Refuses keys that are not in `allowed`.
    pub(crate) fn only(&self, allowed: &[&str]) -> Result<(), DefinitionError> {
        if let Some(base) = &self.base {
            base.only(allowed)?;
        }
        let unknown = self.table.keys().find(|key| !allowed.contains(&key.get_ref().as_ref()));
        match unknown {
            None => Ok(()),
            Some(key) => Err(DefinitionError::UnknownKey {
                place: place(self.text, self.file, &key.span()),
                key: key.get_ref().to_string(),
                section: self.title.clone(),
                nearest: nearest(key.get_ref(), allowed.iter().copied()),
                allowed: allowed.join(", "),
            }),
        }
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.find(key).is_some()
    }

    pub(crate) fn is_table(&self, key: &str) -> bool {
        matches!(self.value(key), Some(DeValue::Table(_)))
    }

    pub(crate) fn is_text(&self, key: &str) -> bool {
        matches!(self.value(key), Some(DeValue::String(_)))
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<String>, DefinitionError> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        match value {
            DeValue::String(text) if text.trim().is_empty() => {
                Err(self.invalid(key, "is empty".into(), "some text, or leave the key out"))
            }
            DeValue::String(text) => Ok(Some(text.to_string())),
            other => Err(self.wrong_type(key, "text in quotes", other)),
        }
    }

    pub(crate) fn required_text(
        &self,
        key: &str,
        example: &str,
    ) -> Result<String, DefinitionError> {
        self.text(key)?.ok_or_else(|| self.missing(key, example))
    }

    /// Text, or a whole number as its decimal text.
    pub(crate) fn text_or_integer(&self, key: &str) -> Result<Option<String>, DefinitionError> {
        match self.value(key) {
            Some(DeValue::Integer(_)) => Ok(self.number(key)?.map(|number| format!("{number:.0}"))),
            Some(DeValue::Boolean(value)) => Ok(Some(value.to_string())),
            Some(DeValue::String(text)) => Ok(Some(text.to_string())),
            Some(other) => Err(self.wrong_type(key, "text or a whole number", other)),
            None => Ok(None),
        }
    }

    pub(crate) fn number(&self, key: &str) -> Result<Option<f64>, DefinitionError> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        let parsed = match value {
            DeValue::Integer(number) => {
                i64::from_str_radix(number.as_str(), number.radix()).ok().map(|whole| whole as f64)
            }
            DeValue::Float(number) => number.as_str().parse().ok(),
            _ => None,
        };
        parsed.map(Some).ok_or_else(|| self.wrong_type(key, "a number", value))
    }

    /// A number in the open range.
    pub(crate) fn number_within(
        &self,
        key: &str,
        low: f64,
        high: f64,
    ) -> Result<Option<f64>, DefinitionError> {
        match self.number(key)? {
            Some(number) if !(number > low && number < high) => {
                let allowed = format!("above {low} and below {high}");
                Err(self.invalid(key, format!("is {number}"), &allowed))
            }
            number => Ok(number),
        }
    }

    /// The value that the word under `key` stands for.
    pub(crate) fn one_of<T: Copy>(
        &self,
        key: &str,
        words: &[(&str, T)],
    ) -> Result<Option<T>, DefinitionError> {
        let Some(written) = self.text(key)? else {
            return Ok(None);
        };
        match words.iter().find(|(word, _)| *word == written) {
            Some((_, value)) => Ok(Some(*value)),
            None => {
                let allowed: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                Err(self.invalid(key, format!("is `{written}`"), &allowed.join(", ")))
            }
        }
    }

    pub(crate) fn boolean(&self, key: &str) -> Result<Option<bool>, DefinitionError> {
        match self.value(key) {
            None => Ok(None),
            Some(DeValue::Boolean(value)) => Ok(Some(*value)),
            Some(other) => Err(self.wrong_type(key, "true or false", other)),
        }
    }

    /// A local date or date-time, quoted or not, as `YYYY-MM-DD` or `YYYY-MM-DDTHH:MM:SS`.
    pub(crate) fn instant(&self, key: &str) -> Result<Option<String>, DefinitionError> {
        let written = match self.value(key) {
            None => return Ok(None),
            Some(DeValue::Datetime(instant)) => instant.to_string(),
            Some(DeValue::String(text)) => text.to_string(),
            Some(other) => return Err(self.wrong_type(key, "a date", other)),
        };
        match local_instant(&written) {
            Some(instant) => Ok(Some(instant)),
            None => Err(self.invalid(
                key,
                format!("is `{written}`"),
                "2026-11-01 or 2026-11-01T12:00:00, local to `time_zone`",
            )),
        }
    }

    /// "30 minutes", "12 hours" or "7 days", in milliseconds.
    pub(crate) fn duration_ms(&self, key: &str) -> Result<Option<i64>, DefinitionError> {
        let Some(written) = self.text(key)? else {
            return Ok(None);
        };
        match duration_ms(&written) {
            Some(length) => Ok(Some(length)),
            None => Err(self.invalid(
                key,
                format!("is `{written}`"),
                "a whole number above 0 and minutes, hours or days, such as \"7 days\"",
            )),
        }
    }

    /// A list of texts; empty without the key.
    pub(crate) fn texts(&self, key: &str) -> Result<Vec<String>, DefinitionError> {
        let Some(value) = self.value(key) else {
            return Ok(Vec::new());
        };
        let texts = match value {
            DeValue::Array(items) => items.iter().map(|item| match item.get_ref() {
                DeValue::String(text) if !text.trim().is_empty() => Some(text.to_string()),
                _ => None,
            }),
            other => return Err(self.wrong_type(key, "a list of texts in quotes", other)),
        };
        let texts: Option<Vec<String>> = texts.collect();
        let problem = || "is no list of texts".to_owned();
        texts.ok_or_else(|| self.invalid(key, problem(), &format!("{key} = [\"one\", \"two\"]")))
    }

    pub(crate) fn section(&self, key: &str) -> Result<Option<Section<'t>>, DefinitionError> {
        match self.find(key) {
            None => Ok(None),
            Some((owner, value)) => match value.get_ref() {
                DeValue::Table(table) => Ok(Some(Section {
                    table,
                    title: format!("`{key}`"),
                    begin: value.span(),
                    text: owner.text,
                    file: owner.file,
                    base: None,
                })),
                other => Err(self.wrong_type(key, "a table", other)),
            },
        }
    }

    pub(crate) fn required_section(
        &self,
        key: &str,
        example: &str,
    ) -> Result<Section<'t>, DefinitionError> {
        self.section(key)?.ok_or_else(|| self.missing(key, example))
    }

    /// All tables of `[[key]]`, in the order of the file.
    pub(crate) fn sections(&self, key: &str) -> Result<Vec<Section<'t>>, DefinitionError> {
        let Some((owner, value)) = self.find(key) else {
            return Ok(Vec::new());
        };
        let expected = format!("[[{key}]], with two brackets");
        let DeValue::Array(items) = value.get_ref() else {
            return Err(self.wrong_type(key, &expected, value.get_ref()));
        };
        let mut sections = Vec::with_capacity(items.len());
        for item in items.iter() {
            let DeValue::Table(table) = item.get_ref() else {
                return Err(self.wrong_type(key, &expected, item.get_ref()));
            };
            sections.push(Section {
                table,
                title: format!("[[{key}]]"),
                begin: item.span(),
                text: owner.text,
                file: owner.file,
                base: None,
            });
        }
        Ok(sections)
    }

    pub(crate) fn missing(&self, key: &str, example: &str) -> DefinitionError {
        DefinitionError::Missing {
            place: place(self.text, self.file, &self.begin),
            section: self.title.clone(),
            key: key.to_owned(),
            example: example.to_owned(),
        }
    }

    pub(crate) fn invalid(&self, key: &str, problem: String, allowed: &str) -> DefinitionError {
        DefinitionError::Invalid {
            place: self.place_of(key),
            key: key.to_owned(),
            problem,
            allowed: allowed.to_owned(),
        }
    }

    pub(crate) fn repeated(&self, key: &str, value: &str) -> DefinitionError {
        let problem = format!("is `{value}` a second time");
        self.invalid(key, problem, &format!("one {} per {key}", self.title))
    }

    fn wrong_type(&self, key: &str, expected: &str, found: &DeValue<'_>) -> DefinitionError {
        DefinitionError::WrongType {
            place: self.place_of(key),
            key: key.to_owned(),
            expected: expected.to_owned(),
            found: found.type_str().to_owned(),
        }
    }

    fn place_of(&self, key: &str) -> Place {
        let own = self.table.keys().find(|candidate| candidate.get_ref() == key);
        match (own, &self.base) {
            (None, Some(base)) if base.has(key) => base.place_of(key),
            _ => place(self.text, self.file, &own.map_or(self.begin.clone(), Spanned::span)),
        }
    }
}

/// The candidate within two edits (one in three letters) of `name`.
pub(crate) fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<String> {
    let limit = 2.min(name.chars().count() / 3).max(1);
    candidates
        .map(|candidate| (edits(name, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, candidate)| candidate.to_owned())
}

/// Insertions, deletions and replacements between two words.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// Checks and completes a local date or date-time.
fn local_instant(written: &str) -> Option<String> {
    let (date, time) = match written.split_once(['T', ' ']) {
        Some((date, time)) => (date, Some(time)),
        None => (written, None),
    };
    let mut fields = date.split('-');
    let year = digits(fields.next()?, 4)?;
    let month = digits(fields.next()?, 2)?;
    let day = digits(fields.next()?, 2)?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last_day = match month {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if fields.next().is_some() || !(1..=last_day).contains(&day) {
        return None;
    }
    let Some(time) = time else {
        return Some(date.to_owned());
    };
    let mut fields = time.split(':');
    let hour = digits(fields.next()?, 2)?;
    let minute = digits(fields.next()?, 2)?;
    let second = fields.next().map_or(Some(0), |field| digits(field, 2))?;
    let fits = hour < 24 && minute < 60 && second < 60 && fields.next().is_none();
    fits.then(|| format!("{date}T{hour:02}:{minute:02}:{second:02}"))
}

fn digits(field: &str, count: usize) -> Option<u32> {
    let all = field.len() == count && field.bytes().all(|byte| byte.is_ascii_digit());
    all.then(|| field.parse().ok()).flatten()
}

fn duration_ms(written: &str) -> Option<i64> {
    let (count, unit) = written.trim().split_once(' ')?;
    let count: i64 = count.parse().ok()?;
    let unit_ms = match unit.trim() {
        "minute" | "minutes" => 60_000,
        "hour" | "hours" => 3_600_000,
        "day" | "days" => 86_400_000,
        _ => return None,
    };
    (count > 0).then(|| count.checked_mul(unit_ms)).flatten()
}
