//! What changes of access and looks at it can fail with.

use uplake_table::TableError;

/// Why access was not read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// A name that nothing can have.
    #[error("the name `{name}` {problem}")]
    BadName { name: String, problem: String },
    /// There is none of that name.
    #[error("there is no {what} `{name}`")]
    NoSuch { what: &'static str, name: String },
    /// There is one of that name.
    #[error("there is a {what} `{name}` already")]
    Exists { what: &'static str, name: String },
    /// Built-in roles are what they are.
    #[error("`{name}` is a built-in role; it cannot be made, changed or dropped")]
    BuiltIn { name: String },
    /// A role would be a member of itself.
    #[error("`{role}` cannot be a member of `{of}`, which is a member of it")]
    Circle { role: String, of: String },
    /// Something else would name what is gone.
    #[error("{what} `{name}` is still used by {by}")]
    InUse { what: &'static str, name: String, by: String },
    /// A value that cannot be.
    #[error("{0}")]
    Value(String),
    /// The document is not what was written.
    #[error(
        "{place} is damaged: {reason}. Restore it from a copy; if there is none, remove it, so that the \
         document before it counts again"
    )]
    Damaged { place: String, reason: String },
    /// A document that was there is not there any more.
    #[error(
        "the access document {expected} of {lake} is missing; the newest is {found}. Restore it from a copy"
    )]
    Missing { lake: String, expected: u32, found: u32 },
    /// Written by a later version.
    #[error("{place}: access format {found} is newer than {supported}; upgrade uplake")]
    TooNew { place: String, found: u32, supported: u32 },
    /// Who asks is no admin.
    #[error("permission denied: only members of `admin` change who may what")]
    NotAdmin,
    /// Others were faster each time.
    #[error("others changed access at the same time, {tries} times; run it again")]
    Busy { tries: u32 },
    /// The document would be larger than it may be.
    #[error("roles, rights and tokens would take {bytes} bytes; at most {limit} are kept")]
    TooLarge { bytes: usize, limit: usize },
    /// The lake.
    #[error(transparent)]
    Table(#[from] TableError),
}

/// The module's result.
pub type Result<T, E = AccessError> = std::result::Result<T, E>;

impl AccessError {
    /// PostgreSQL's code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::BadName { .. } => "42602",
            Self::NoSuch { .. } => "42704",
            Self::Exists { .. } => "42710",
            Self::BuiltIn { .. } => "42939",
            Self::Circle { .. } => "0LP01",
            Self::InUse { .. } => "2BP01",
            Self::Value(_) => "22023",
            Self::NotAdmin => "42501",
            Self::Damaged { .. } | Self::Missing { .. } => "XX001",
            Self::TooNew { .. } => "0A000",
            Self::Busy { .. } => "40001",
            Self::TooLarge { .. } => "54000",
            Self::Table(_) => "58030",
        }
    }
}
