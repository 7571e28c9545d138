//! What can go wrong with posting bytes, and what to do about it.

/// An error of this crate; every message says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostingsError {
    /// The bytes are not what their header promises. `at` is a byte offset or an ordinal.
    #[error("corrupt postings: {what} (at {at}); rebuild the index")]
    Corrupt { what: &'static str, at: u64 },
    /// The bytes were written by a newer version.
    #[error("postings of format {found} are newer than {supported}; upgrade uplake")]
    TooNew { found: u16, supported: u16 },
    /// More of something than the format can number.
    #[error("{found} {what} are more than the limit of {limit}; split the file")]
    TooLarge { what: &'static str, found: u64, limit: u64 },
    /// A builder was given rows of one term out of order.
    #[error("rows {start}..{end} of a term come after row {last}; push rows in ascending order")]
    OutOfOrder { start: u32, end: u32, last: u32 },
    /// A list lies in heap bytes that the caller has not fetched.
    #[error("heap bytes {start}..{end} are not at hand; fetch them first")]
    NotFetched { start: u64, end: u64 },
    /// Integers were looked up in a dictionary of byte strings, or the other way round.
    #[error("the dictionary holds {holds}; look those up")]
    WrongTerms { holds: &'static str },
    /// A range or prefix was asked of a dictionary that only hashes.
    #[error("the dictionary has no term order; build it with `ordered`")]
    NotOrdered,
}

impl PostingsError {
    pub(crate) const fn corrupt(what: &'static str, at: u64) -> Self {
        Self::Corrupt { what, at }
    }
}
