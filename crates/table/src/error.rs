//! What can go wrong with a table, and what to do about it.

use std::path::PathBuf;

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
    #[error("there is no table `{name}` in {lake}{}", suggestion(.known))]
    NoSuchTable { name: String, lake: String, known: Vec<String> },
    /// CREATE TABLE of a name that is taken.
    #[error("table `{name}` exists already; drop it first or choose another name")]
    TableExists { name: String },
    /// The table needs a Delta feature that would be read wrongly.
    #[error(
        "table `{table}` uses the Delta feature `{feature}`, which this version cannot read \
         correctly; it is refused rather than read wrongly"
    )]
    UnsupportedFeature { table: String, feature: String },
    /// A bad row, with `--on-error abort`.
    #[error(
        "{0}\nnothing was loaded; mend the row, or load the good ones with --on-error skip --rejects FILE"
    )]
    BadRow(Box<crate::decode::BadRow>),
    /// A file whose column type does not fit the table's.
    #[error(
        "{file}: column `{column}` is {found}, but the table has {expected}; \
         convert it first, or load into another table"
    )]
    TypeClash { file: String, column: String, found: String, expected: String },
    /// A file brings a column the table does not have.
    #[error(
        "{file}: column `{column}` ({type_name}) is not in the table; \
         add it with --allow-new-columns"
    )]
    NewColumn { file: String, column: String, type_name: String },
    /// An input file that cannot be read as what it claims to be.
    #[error("{file}: {reason}")]
    Input { file: String, reason: String },
    /// Someone else changed the same files first.
    #[error("another writer changed table `{table}` at the same time: {reason}; run it again")]
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
    #[error(
        "{lake} cannot hold tables, and nothing was written: {reason}; see `uplake lake probe {lake}` \
         and docs/storage.md"
    )]
    UnsafeStore { lake: String, reason: String },
    /// The storage layer cannot be opened.
    #[error(transparent)]
    Storage(#[from] uplake_objectio::StoreError),
    /// A commit of which nobody knows whether it took effect: its answer was lost, or the disk failed.
    #[error(
        "table `{table}`: whether the commit took effect is not known ({reason}); look with \
         `uplake table history {table}` before doing it again (a load with --label can simply be \
         run again)"
    )]
    OutcomeUnknown { table: String, reason: String },
    /// A commit or checkpoint of the Delta log is not what was written.
    #[error(
        "table `{table}`: {file} of its log is damaged: {what}. Restore that file from a copy; to \
         read the table as it was before, use --as-of with an earlier version"
    )]
    DamagedLog { table: String, file: String, what: &'static str },
    /// The Delta log cannot be read or written.
    #[error("table `{table}`: {source}")]
    Delta { table: String, source: Box<deltalake_core::DeltaTableError> },
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
    #[error("{}: lake format {found} is newer than {supported}; upgrade uplake", .path.display())]
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
    pub(crate) fn delta(table: &str, source: deltalake_core::DeltaTableError) -> Self {
        if let Some(what) = missing_credentials(&source) {
            return Self::NoCredentials(what);
        }
        Self::Delta { table: table.to_owned(), source: Box::new(source) }
    }
    pub(crate) fn arrow(what: impl Into<String>, source: arrow::error::ArrowError) -> Self {
        Self::Arrow { what: what.into(), source }
    }
}

/// ", did you mean `x`?" or ", it has: a, b" or nothing.
fn suggestion(known: &[String]) -> String {
    match known {
        [] => "; the lake is empty, load a file first: uplake load TABLE FILE".to_owned(),
        names => format!("; it has {}", names.join(", ")),
    }
}
