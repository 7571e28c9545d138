//! What can go wrong with a table, and what to do about it.

use std::path::PathBuf;

use deltalake_core::DeltaTableError;
use deltalake_core::kernel::transaction::TransactionError;
use uplake_objectio::missing_credentials;

use crate::id_domain::LostIds;

/// Everything the crate reports. Messages name the remedy; variants carry the facts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The request itself is wrong; the message says how to mend it.
    #[error("{0}")]
    Invalid(String),
    /// The named table is not in the lake.
    #[error("there is no table `{name}` in {lake}; {}", tables(.known))]
    NoSuchTable { name: String, lake: String, known: Vec<String> },
    /// A file to read that is not there.
    #[error("there is no file `{pattern}`")]
    NoSuchFile { pattern: String },
    /// A column that is named for something, and which the table does not have.
    #[error("{what} `{column}` is not in the table; {}", columns(.known))]
    NoSuchColumn { what: String, column: String, known: Vec<String> },
    /// Something else that is named and not there: a version, an index, a set of ids, a lake.
    #[error("{0}")]
    NoSuch(String),
    /// Something other than a table is to be made, and there is one of that name.
    #[error("{0}")]
    AlreadyThere(String),
    /// A row without a value where the table must have one.
    #[error("column `{column}` is {}, but a row has NULL there; nothing was written", required(*.is_key))]
    Null { column: String, is_key: bool },
    /// CREATE TABLE of a name that is taken.
    #[error("table `{name}` exists already; {ANOTHER_NAME}")]
    TableExists { name: String },
    /// The table needs a Delta feature that would be read wrongly.
    #[error(
        "table `{table}` uses the Delta feature `{feature}`, which this version cannot read \
         correctly; it is refused rather than read wrongly"
    )]
    UnsupportedFeature { table: String, feature: String },
    /// A bad row, with `--on-error abort`.
    #[error("{0}\nnothing was loaded; {MEND_OR_SKIP}")]
    BadRow(Box<crate::decode::BadRow>),
    /// The same of files that a query reads in place, where nothing is loaded.
    #[error("{}", in_place(.0))]
    InPlace(Box<TableError>),
    /// A file whose column type does not fit the table's.
    #[error("{file}: column `{column}` is {found}, but the table has {expected}; {CONVERT}")]
    TypeClash { file: String, column: String, found: String, expected: String },
    /// A file brings a column the table does not have.
    #[error("{file}: column `{column}` ({type_name}) is not in the table; {ALLOW}")]
    NewColumn { file: String, column: String, type_name: String },
    /// An input file that cannot be read as what it claims to be.
    #[error("{file}: {reason}")]
    Input { file: String, reason: String },
    /// Someone else changed the same files first.
    #[error("another writer changed table `{table}` at the same time: {reason}; {AGAIN}")]
    Conflict { table: String, reason: String },
    /// The local file system or the object store refused.
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    /// The object store refused.
    #[error("{what}: {source}")]
    Store { what: String, source: object_store::Error },
    /// The store was asked without credentials; the message says what to set.
    #[error("{0}")]
    NoCredentials(&'static str),
    /// The store breaks the promise that commits rest on.
    #[error("{lake} cannot hold tables, and nothing was written: {reason}; {}", probe(lake))]
    UnsafeStore { lake: String, reason: String },
    /// The storage layer cannot be opened.
    #[error(transparent)]
    Storage(#[from] uplake_objectio::StoreError),
    /// A commit of which nobody knows whether it took effect: its answer was lost, or the disk failed.
    #[error(
        "table `{table}`: whether the commit took effect is not known ({reason}); {}",
        look(table)
    )]
    OutcomeUnknown { table: String, reason: String },
    /// A commit or checkpoint of the Delta log is not what was written.
    #[error(
        "table `{table}`: {file} of its log is damaged: {what}. Restore that file from a copy; to \
         read the table as it was before, use --as-of with an earlier version"
    )]
    DamagedLog { table: String, file: String, what: &'static str },
    /// An object of the lake is not what was written; the message names it.
    #[error("{0}")]
    Damaged(String),
    /// A load that ends because another part of it has failed, which is told instead.
    #[error("the load was stopped")]
    Stopped,
    /// A thread of ours died.
    #[error("a {0} thread panicked; please report this")]
    Panicked(&'static str),
    /// The Delta log cannot be read or written.
    #[error("table `{table}`: {source}")]
    Delta { table: String, source: Box<DeltaTableError> },
    /// A Parquet file cannot be read or written.
    #[error("{file}: {source}")]
    Parquet { file: String, source: parquet::errors::ParquetError },
    /// A conversion of values in memory failed.
    #[error("{what}: {source}")]
    Arrow { what: String, source: arrow::error::ArrowError },
    /// An index file cannot be made.
    #[error("{what}: {source}")]
    Index { what: String, source: uplake_index::IndexError },
    /// An id domain cannot be used.
    #[error(transparent)]
    Domain(Box<uplake_domain::DomainError>),
    /// A table has ids that its domain has no more.
    #[error(
        "{lost}. New keys would get ids of others, so nothing was written. {}",
        LostIds::REMEDY
    )]
    LostIds { lost: Box<LostIds> },
    /// Keys of a column cannot have ids.
    #[error("column `{column}`: {source}")]
    Keys { column: String, source: Box<uplake_domain::DomainError> },
    /// The lake was written by a newer version.
    #[error("{}: lake format {found} is newer than {supported}; {UPGRADE}", .path.display())]
    TooNew { path: PathBuf, found: u64, supported: u64 },
}

impl From<uplake_domain::DomainError> for TableError {
    fn from(error: uplake_domain::DomainError) -> Self {
        if let Some(what) = missing_credentials(&error) {
            return Self::NoCredentials(what);
        }
        Self::Domain(Box::new(error))
    }
}

/// The crate's result.
pub type Result<T, E = TableError> = std::result::Result<T, E>;

impl TableError {
    /// What a query hears of a file that it reads in place.
    pub(crate) fn of_query(self) -> Self {
        match self {
            Self::BadRow(_) | Self::TypeClash { .. } | Self::NewColumn { .. } => {
                Self::InPlace(Box::new(self))
            }
            other => other,
        }
    }

    pub(crate) fn io(what: impl Into<String>, source: std::io::Error) -> Self {
        Self::Io { what: what.into(), source }
    }
    pub(crate) fn store(what: impl Into<String>, source: object_store::Error) -> Self {
        if let Some(what) = missing_credentials(&source) {
            return Self::NoCredentials(what);
        }
        Self::Store { what: what.into(), source }
    }
    pub(crate) fn index(what: impl Into<String>, source: uplake_index::IndexError) -> Self {
        Self::Index { what: what.into(), source }
    }
    pub(crate) fn delta(table: &str, source: DeltaTableError) -> Self {
        if let Some(what) = missing_credentials(&source) {
            return Self::NoCredentials(what);
        }
        Self::Delta { table: table.to_owned(), source: Box::new(source) }
    }
    /// What to do about it, or what there is instead: what the text ends with, after "; ".
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoSuchTable { known, .. } => Some(tables(known)),
            Self::NoSuchColumn { known, .. } => Some(columns(known)),
            Self::TableExists { .. } => Some(ANOTHER_NAME.to_owned()),
            Self::BadRow(_) => Some(MEND_OR_SKIP.to_owned()),
            Self::InPlace(error) => in_place_hint(error).map(str::to_owned),
            Self::TypeClash { .. } => Some(CONVERT.to_owned()),
            Self::NewColumn { .. } => Some(ALLOW.to_owned()),
            Self::Conflict { .. } => Some(AGAIN.to_owned()),
            Self::UnsafeStore { lake, .. } => Some(probe(lake)),
            Self::OutcomeUnknown { table, .. } => Some(look(table)),
            Self::TooNew { .. } => Some(UPGRADE.to_owned()),
            _ => None,
        }
    }

    /// What is wrong, without the hint.
    pub fn message(&self) -> String {
        if let Self::InPlace(error) = self {
            return in_place_message(error);
        }
        let mut text = self.to_string();
        if let Some(hint) = self.hint() {
            text.truncate(text.len().saturating_sub(hint.len() + "; ".len()));
        }
        text
    }

    pub(crate) fn no_such_column(
        what: &str,
        column: &str,
        schema: &arrow::datatypes::Schema,
    ) -> Self {
        let known = schema.fields().iter().map(|field| field.name().clone()).collect();
        Self::NoSuchColumn { what: what.to_owned(), column: column.to_owned(), known }
    }
    pub(crate) fn arrow(what: impl Into<String>, source: arrow::error::ArrowError) -> Self {
        Self::Arrow { what: what.into(), source }
    }
}

/// Has another writer made the version, or the table, that a commit was to make?
pub(crate) fn already_exists(error: &DeltaTableError) -> bool {
    match error {
        DeltaTableError::VersionAlreadyExists(_)
        | DeltaTableError::Transaction {
            source:
                TransactionError::VersionAlreadyExists(_) | TransactionError::MaxCommitAttempts(_),
        } => true,
        // The error of CreateBuilder is private: "A Delta Lake table already exists at that location."
        DeltaTableError::GenericError { source } => source.to_string().contains("already exists"),
        _ => false,
    }
}

const fn required(is_key: bool) -> &'static str {
    if is_key { "in the primary key" } else { "NOT NULL" }
}

const ANOTHER_NAME: &str = "drop it first or choose another name";
const MEND_OR_SKIP: &str =
    "mend the row, or load the good ones with --on-error skip --rejects FILE";
const MEND: &str = "mend the row";
const NAME_APART: &str = "name the files apart: SELECT … UNION ALL BY NAME SELECT …";
const CONVERT: &str = "convert it first, or load into another table";
const ALLOW: &str = "add it with --allow-new-columns";
const AGAIN: &str = "run it again";
const UPGRADE: &str = "upgrade uplake";

/// What is wrong with a file that is read in place.
fn in_place_message(error: &TableError) -> String {
    match error {
        // As a load says it: the first line is the place.
        TableError::BadRow(row) => {
            format!("{row}\na column has the type of the file's first rows")
        }
        TableError::TypeClash { file, column, found, expected } => {
            format!("{file}: column `{column}` is {found}, but the first file has {expected}")
        }
        TableError::NewColumn { file, column, type_name } => {
            format!("{file}: column `{column}` ({type_name}) is not in the first file")
        }
        other => other.message(),
    }
}

fn in_place_hint(error: &TableError) -> Option<&'static str> {
    match error {
        TableError::BadRow(_) => Some(MEND),
        TableError::TypeClash { .. } | TableError::NewColumn { .. } => Some(NAME_APART),
        _ => None,
    }
}

fn in_place(error: &TableError) -> String {
    match in_place_hint(error) {
        Some(hint) => format!("{}; {hint}", in_place_message(error)),
        None => error.to_string(),
    }
}

fn tables(known: &[String]) -> String {
    match known {
        [] => "the lake is empty, load a file first: uplake load TABLE FILE".to_owned(),
        names => format!("it has {}", names.join(", ")),
    }
}

fn columns(known: &[String]) -> String {
    format!("its columns are {}", known.join(", "))
}

fn probe(lake: &str) -> String {
    format!("see `uplake lake probe {lake}` and docs/storage.md")
}

fn look(table: &str) -> String {
    format!(
        "look with `uplake table history {table}` before doing it again (a load with --label can simply be run \
         again)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_end_with_their_hints() {
        let text = || "x".to_owned();
        let (table, name, lake, file, column) = (text(), text(), text(), text(), text());
        for error in [
            TableError::NoSuchTable { name: text(), lake: text(), known: vec![] },
            TableError::NoSuchTable { name: text(), lake: text(), known: vec![text(), text()] },
            TableError::NoSuchColumn { what: text(), column: text(), known: vec![text()] },
            TableError::TableExists { name },
            TableError::TypeClash { file: text(), column: text(), found: text(), expected: text() },
            TableError::NewColumn { file, column, type_name: text() },
            TableError::Conflict { table: text(), reason: text() },
            TableError::UnsafeStore { lake, reason: text() },
            TableError::OutcomeUnknown { table, reason: text() },
            TableError::TooNew { path: PathBuf::new(), found: 2, supported: 1 },
        ] {
            let hint = error.hint().expect("each of these has one");
            assert_eq!(error.to_string(), format!("{}; {hint}", error.message()));
        }
        let (file, column) = (|| "f.csv".to_owned(), || "c".to_owned());
        let clash = TableError::TypeClash {
            file: file(),
            column: column(),
            found: text(),
            expected: text(),
        };
        let new = TableError::NewColumn { file: file(), column: column(), type_name: text() };
        let row = crate::decode::BadRow {
            file: file(),
            line: 3,
            is_row: false,
            column: Some(column()),
            value: Some(text()),
            problem: text(),
            record: text(),
        };
        let place = row.to_string();
        let bad = TableError::BadRow(Box::new(row)).of_query();
        assert_eq!(bad.to_string().lines().next(), Some(&*place));
        for error in [clash.of_query(), new.of_query(), bad] {
            let hint = error.hint().expect("each of these has one");
            assert_eq!(error.to_string(), format!("{}; {hint}", error.message()));
            assert!(error.message().contains("first ") && !hint.contains("load"), "{error}");
        }
        let error = TableError::Stopped;
        assert_eq!((error.hint(), error.message()), (None, error.to_string()));
    }
}
