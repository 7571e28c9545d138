//! Rows that could not be read.

use std::fmt;

/// A row that could not be read, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRow {
    /// The file as the user named it.
    pub file: String,
    /// Line of a text file, row of a Parquet file; from 1.
    pub line: u64,
    /// Is `line` a row number?
    pub is_row: bool,
    /// The column, if one is to blame.
    pub column: Option<String>,
    /// The value as it stands in the file, shortened.
    pub value: Option<String>,
    /// What was expected, or what is wrong.
    pub problem: String,
    /// The whole record as it stands in the file (text files), for the rejects file.
    pub record: String,
}

impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.is_row { "row" } else { "line" };
        write!(f, "{}, {place} {}", self.file, self.line)?;
        if let Some(column) = &self.column {
            write!(f, ", column `{column}`")?;
        }
        match &self.value {
            Some(value) => write!(f, ": {value:?} {}", self.problem),
            None => write!(f, ": {}", self.problem),
        }
    }
}

/// Characters of a value that a message shows.
const SHOWN_VALUE_CHARS: usize = 60;

pub(crate) fn shorten(text: &str) -> String {
    if text.chars().count() <= SHOWN_VALUE_CHARS {
        return text.to_owned();
    }
    let head: String = text.chars().take(SHOWN_VALUE_CHARS).collect();
    format!("{head}…")
}
