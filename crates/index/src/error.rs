//! What can go wrong with an index file, and what to do about it.

use uplake_postings::PostingsError;

/// An error of this crate. Whoever reads an index falls back to the data on any of them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// The bytes are not what they should be; `at` is an offset in the file.
    #[error("corrupt index: {what} at byte {at}; rebuild it with `uplake table reindex`")]
    Corrupt { what: &'static str, at: u64 },
    /// A newer version wrote the file.
    #[error("index of format {found} is newer than {supported}; upgrade uplake or reindex")]
    TooNew { found: u16, supported: u16 },
    /// The index was made for another data file, or another version of it.
    #[error("index of {found}, not of {expected}; rebuild it with `uplake table reindex`")]
    Stale { found: String, expected: String },
    /// Texts were cut with the tables of another version of Unicode.
    #[error(
        "index cut with Unicode {found}, queries with {ours}; rebuild it with `uplake table reindex`"
    )]
    OtherUnicode { found: String, ours: String },
    /// More of something than the format can hold.
    #[error("{found} {what} are more than the limit of {limit}; index fewer columns")]
    TooLarge { what: &'static str, found: u64, limit: u64 },
    /// The bytes handed over are not of the range that was asked for.
    #[error(
        "{found} bytes were handed over for the range {start}..{end}; fetch exactly that range"
    )]
    WrongRange { start: u64, end: u64, found: u64 },
    /// A column of one kind was asked a question of another, or given values of another.
    #[error("column `{column}` is an index of {kind}; it cannot take or answer this")]
    WrongKind { column: String, kind: &'static str },
    /// The postings inside are corrupt, or a limit of theirs was passed.
    #[error(transparent)]
    Postings(#[from] PostingsError),
}

impl IndexError {
    pub(crate) const fn corrupt(what: &'static str, at: u64) -> Self {
        Self::Corrupt { what, at }
    }
}
