//! What is wrong with a definition, and where.

use std::fmt;

/// A line of a file, printed as `file:line`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub file: Box<str>,
    /// From 1.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// What is wrong with a definition, where, and what would be right.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DefinitionError {
    #[error("{place}: {message}")]
    Syntax { place: Place, message: String },
    #[error("{place}: unknown key `{key}` in {section}{}; allowed: {allowed}", suggestion(.nearest))]
    UnknownKey {
        place: Place,
        key: String,
        section: String,
        nearest: Option<String>,
        allowed: String,
    },
    #[error("{place}: {section} lacks `{key}`; write for example {example}")]
    Missing { place: Place, section: String, key: String, example: String },
    #[error("{place}: `{key}` must be {expected}, found {found}")]
    WrongType { place: Place, key: String, expected: String, found: String },
    #[error("{place}: `{key}` {problem}; allowed: {allowed}")]
    Invalid { place: Place, key: String, problem: String, allowed: String },
    #[error(
        "{name} has no users of its own, but regions or published figures, so there is no overlap of users"
    )]
    NoUsers { name: String },
    #[error("experiment {experiment} has no {what} `{name}`{}; it has: {allowed}", suggestion(.nearest))]
    Unknown {
        experiment: String,
        what: &'static str,
        name: String,
        nearest: Option<String>,
        allowed: String,
    },
}

fn suggestion(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|name| format!(", did you mean `{name}`?")).unwrap_or_default()
}
