//! Codes of errors: five characters with PostgreSQL's meaning, which drivers branch upon.
//!
//! An error gets its code where it is made; what kind it is of follows from that. docs/errors.md is the list
//! for users.

/// What to do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The request is wrong: mend it.
    Invalid,
    /// What it names is not there.
    Missing,
    /// Another writer was first: look, and run it again.
    Conflict,
    /// Something that is needed does not answer: try later.
    Unavailable,
    /// It takes too much: ask for less, or give it more.
    Limit,
    /// Data is damaged, or this program is wrong: report it.
    Fault,
}

impl ErrorKind {
    /// Its name, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Missing => "missing",
            Self::Conflict => "conflict",
            Self::Unavailable => "unavailable",
            Self::Limit => "limit",
            Self::Fault => "fault",
        }
    }
}

/// One line per code: its name, its characters, its kind, what PostgreSQL calls it and when it is given.
macro_rules! codes {
    ($($(#[$what:meta])* $name:ident $code:literal $kind:ident,)*) => {
        /// A code of PostgreSQL's appendix A, by its name there.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum SqlState {
            $($(#[$what])* $name,)*
        }

        impl SqlState {
            /// All that there are, in the order of their characters.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The five characters.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $code,)*
                }
            }

            /// What to do about an error of this code.
            pub const fn kind(self) -> ErrorKind {
                match self {
                    $(Self::$name => ErrorKind::$kind,)*
                }
            }
        }
    };
}

codes! {
    /// A role would be a member of itself.
    InvalidGrantOperation "0LP01" Invalid,
    /// What is asked for is no part of this SQL, or of this version.
    FeatureNotSupported "0A000" Invalid,
    /// A subquery in place of a value has several rows.
    CardinalityViolation "21000" Invalid,
    /// Values are wrong in a way that no other code says.
    DataException "22000" Invalid,
    /// A number does not fit its type, or is outside of what a function takes.
    NumericValueOutOfRange "22003" Invalid,
    /// Text is no date and no time.
    InvalidDatetimeFormat "22007" Invalid,
    /// A date or time is outside of the calendar, or finer than what is kept.
    DatetimeFieldOverflow "22008" Invalid,
    /// A number is divided by 0.
    DivisionByZero "22012" Invalid,
    /// A pattern of SIMILAR TO is none.
    InvalidRegularExpression "2201B" Invalid,
    /// An argument, an option, a setting or a definition has a value that it cannot have.
    InvalidParameterValue "22023" Invalid,
    /// Text is not of the type that it is read as.
    InvalidTextRepresentation "22P02" Invalid,
    /// Bytes are not what they are read as.
    InvalidBinaryRepresentation "22P03" Invalid,
    /// A file, or a row of it, is not what it should be.
    BadCopyFileFormat "22P04" Invalid,
    /// A row has NULL where the table must have a value.
    NotNullViolation "23502" Invalid,
    /// Two rows would have one primary key.
    UniqueViolation "23505" Invalid,
    /// Something still names what would be gone.
    DependentObjectsStillExist "2BP01" Invalid,
    /// There is no prepared statement of that name.
    InvalidSqlStatementName "26000" Missing,
    /// Another writer changed the same table at the same time.
    SerializationFailure "40001" Conflict,
    /// Nobody knows whether a commit took effect.
    StatementCompletionUnknown "40003" Conflict,
    /// A statement cannot be understood in a way that no other code says.
    SyntaxErrorOrAccessRuleViolation "42000" Invalid,
    /// The store or the file system does not let us, or the user has no right to it.
    InsufficientPrivilege "42501" Invalid,
    /// The text is no SQL.
    SyntaxError "42601" Invalid,
    /// What is written there can be no name.
    InvalidName "42602" Invalid,
    /// A column is named twice.
    DuplicateColumn "42701" Invalid,
    /// A name may be either of two columns.
    AmbiguousColumn "42702" Invalid,
    /// There is no such column.
    UndefinedColumn "42703" Invalid,
    /// There is no such index, version, set of ids, type or setting.
    UndefinedObject "42704" Missing,
    /// There is one of that name, and it is no table.
    DuplicateObject "42710" Invalid,
    /// Two columns or tables of a query have one name.
    DuplicateAlias "42712" Invalid,
    /// A column is neither grouped by nor in an aggregate, or an aggregate stands where none can.
    GroupingError "42803" Invalid,
    /// Types do not go together.
    DatatypeMismatch "42804" Invalid,
    /// There is no such function, or none that takes these arguments.
    UndefinedFunction "42883" Invalid,
    /// There is no such table.
    UndefinedTable "42P01" Missing,
    /// A parameter has no value.
    UndefinedParameter "42P02" Invalid,
    /// There is a prepared statement of that name.
    DuplicatePreparedStatement "42P05" Invalid,
    /// There is a table of that name.
    DuplicateTable "42P07" Invalid,
    /// What names a column by its place, or counts columns, is wrong.
    InvalidColumnReference "42P10" Invalid,
    /// A table cannot be made in this way.
    InvalidTableDefinition "42P16" Invalid,
    /// A window function stands where none can.
    WindowingError "42P20" Invalid,
    /// A built-in role cannot be made, changed or dropped.
    ReservedName "42939" Invalid,
    /// The disk is full, or the space for spilling.
    DiskFull "53100" Limit,
    /// The memory budget is not enough.
    OutOfMemory "53200" Limit,
    /// Somebody has had as much as was set for them: other statements are not to blame.
    ConfigurationLimitExceeded "53400" Limit,
    /// A text, a list, a value or a count is larger than it may be.
    ProgramLimitExceeded "54000" Limit,
    /// The statement is nested too deep.
    StatementTooComplex "54001" Limit,
    /// The time-out came first, or the statement was stopped.
    QueryCanceled "57014" Limit,
    /// The store or the file system failed.
    IoError "58030" Unavailable,
    /// There is no such file.
    UndefinedFile "58P01" Missing,
    /// A fault of this program.
    InternalError "XX000" Fault,
    /// A file, a log or an index is not what was written.
    DataCorrupted "XX001" Fault,
}

impl std::fmt::Display for SqlState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_different_and_stand_in_the_docs_with_their_kinds() {
        let docs = include_str!("../../../../docs/errors.md");
        let mut seen = std::collections::HashSet::new();
        for state in SqlState::ALL {
            let code = state.as_str();
            assert_eq!(code.len(), 5, "{code}");
            assert!(seen.insert(code), "{code} is there twice");
            let row = format!("| `{code}` | {} |", state.kind().name());
            assert!(docs.contains(&row), "docs/errors.md has no row that begins with {row}");
        }
        let rows = docs.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(rows, seen.len(), "docs/errors.md has other codes");
    }
}
