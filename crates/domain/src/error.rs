//! What can go wrong, and what to do about it.

/// Errors of this crate. Trouble with the local folder is one ([`DomainError::Local`]) only where keys
/// are read from it late; else see [`crate::Description::warning`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DomainError {
    /// A name that cannot be a domain's.
    #[error(
        "`{name}` cannot name an id domain; use 1 to 64 of a-z, 0-9, `_` and `-`, a letter first"
    )]
    Name {
        /// What was asked for.
        name: String,
    },
    /// There is no such domain.
    #[error("there is no id domain `{name}`; load a table with it, or list what there is")]
    Missing {
        /// Name of the domain.
        name: String,
    },
    /// A key is too long to have an id. Nothing was written.
    #[error("a key of {found} bytes is longer than the limit of {limit}; shorten or hash it")]
    KeyTooLong {
        /// Bytes of the key.
        found: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// The ids are used up. Nothing was written.
    #[error(
        "id domain `{name}` has {keys} keys and no room for {wanted} more, its limit is {limit}; \
         put the column into a domain of its own"
    )]
    Full {
        /// Name of the domain.
        name: String,
        /// Keys it has.
        keys: u64,
        /// New keys.
        wanted: u64,
        /// Keys allowed.
        limit: u64,
    },
    /// A run or base would be, or is, larger than what one object should hold.
    #[error("{object}: {found} {what}, the limit is {limit}")]
    TooLarge {
        /// Its path.
        object: String,
        /// What there is too much of.
        what: &'static str,
        /// How much.
        found: u64,
        /// How much is allowed.
        limit: u64,
    },
    /// An object of the log is not what a writer of this format writes.
    #[error(
        "{object} is corrupt ({what}); restore it from a copy of the lake: ids of its keys are \
         nowhere else"
    )]
    Corrupt {
        /// Its path.
        object: String,
        /// What is wrong with it.
        what: String,
    },
    /// An object of the log was written by a newer version.
    #[error("{object} has format {found}, this version reads {supported}; upgrade uplake")]
    TooNew {
        /// Its path.
        object: String,
        /// What it says.
        found: u16,
        /// What is understood.
        supported: u16,
    },
    /// A file of the local folder is damaged, and is read only where keys are asked for. Only of a
    /// domain that was opened with [`crate::Options::memory_bytes`].
    #[error("{path} is damaged ({what}); the next refresh of the domain reads the log instead")]
    Local {
        /// Path of the file.
        path: String,
        /// What is wrong with it.
        what: String,
    },
    /// The log is another one than the dictionary in memory was made of.
    #[error("id domain `{name}` was deleted and made anew while in use; open it again")]
    Replaced {
        /// Name of the domain.
        name: String,
    },
    /// Others kept winning.
    #[error("{attempts} runs of id domain `{name}` were taken by other writers; try again")]
    Contended {
        /// Name of the domain.
        name: String,
        /// Runs tried.
        attempts: u32,
    },
    /// The object store failed. What was to be written may be there; trying again is safe.
    #[error("{doing} {object}")]
    Store {
        /// Reading, writing, …
        doing: &'static str,
        /// Path of the object or folder.
        object: String,
        /// What the store said.
        source: object_store::Error,
    },
}

impl DomainError {
    pub(crate) fn corrupt(object: &str, what: impl Into<String>) -> Self {
        Self::Corrupt { object: object.to_owned(), what: what.into() }
    }

    pub(crate) fn store(
        doing: &'static str,
        object: &object_store::path::Path,
    ) -> impl FnOnce(object_store::Error) -> Self {
        let object = object.to_string();
        move |source| Self::Store { doing, object, source }
    }
}

/// What the functions of this crate return.
pub type Result<T> = std::result::Result<T, DomainError>;
