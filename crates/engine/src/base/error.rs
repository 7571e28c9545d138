//! What a statement can fail with.
//!
//! An error has a code, which is given where it is made, and fields for the place in the text and for what to
//! do; nobody has to read its words. Those of DataFusion and of the libraries below it get their codes in
//! `foreign_errors`.

use std::borrow::Cow;
use std::io;
use std::time::Duration;

use datafusion::common::DataFusionError;
use datafusion::object_store::Error as StoreError;
use uplake_experiment::{AnalyzeError, DefinitionError};
use uplake_functions::FunctionError;
use uplake_table::{DomainError, TableError};

use crate::base::durations::duration_text;
use crate::base::sql_state::{ErrorKind, SqlState};

/// A place in the SQL text, both from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Line.
    pub line: u64,
    /// Column, in characters.
    pub column: u64,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub code: SqlState,
    /// What it is, without the hint.
    pub message: String,
    /// What to do about it, or what there is instead.
    pub hint: Option<String>,
    /// Where, if that is known.
    pub position: Option<Position>,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "; {hint}"))
    }
}

/// Why a statement was not answered. Its text is the message, then "; " and the hint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The statement is refused before any row is read.
    #[error("{0}")]
    Statement(Problem),
    /// The memory budget or the space for spill files is not enough.
    #[error("{0}")]
    Limit(Problem),
    /// The time-out came first; with the place in the queue, from 1, and how many waited, if the
    /// statement was waiting for a slot.
    #[error(
        "{}; {}", timed_out_text(*timeout, *queued, *ran, *place), timed_out_hint(place.is_some())
    )]
    TimedOut { timeout: Duration, queued: Duration, ran: Duration, place: Option<(usize, usize)> },
    /// The lake.
    #[error(transparent)]
    Table(#[from] TableError),
    /// Reading or computing failed half-way.
    #[error("{0}")]
    Execution(Problem),
    /// A report cannot be made of its definition, or the answer of its query is not what was asked for.
    #[error("{0}")]
    Report(Problem),
    /// A definition is wrong, or has not what is asked of it.
    #[error(transparent)]
    Definition(#[from] DefinitionError),
    /// Moments are not what their query asked for: a fault of ours.
    #[error(transparent)]
    Analysis(#[from] AnalyzeError),
}

/// The crate's result.
pub type Result<T, E = EngineError> = std::result::Result<T, E>;

impl EngineError {
    /// A statement that is refused.
    pub fn statement(code: SqlState, message: impl Into<String>) -> Self {
        Self::Statement(Problem::new(code, message))
    }

    /// A statement that fails half-way.
    pub fn execution(code: SqlState, message: impl Into<String>) -> Self {
        Self::Execution(Problem::new(code, message))
    }

    /// A definition of which no report can be made.
    pub fn report(code: SqlState, message: impl Into<String>) -> Self {
        Self::Report(Problem::new(code, message))
    }

    /// What is asked for is no part of this SQL.
    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self::statement(SqlState::FeatureNotSupported, message)
    }

    /// A fault of this program.
    pub(crate) fn bug(message: impl Into<String>) -> Self {
        Self::execution(SqlState::InternalError, message)
    }

    /// Nobody knows whether a commit to a table took effect, because nobody waits for it any more.
    pub fn outcome_unknown(table: String, why: impl Into<String>) -> Self {
        Self::Table(TableError::OutcomeUnknown { table, reason: why.into() })
    }

    /// What is needed is more than the budget.
    pub(crate) fn limit(code: SqlState, what: &str) -> Self {
        Self::Limit(Problem::new(code, format!("the query needs more than its budget: {what}")))
            .with_hint(
                "give it more with --memory, or ask for less (fewer groups, a narrower join, a LIMIT)",
            )
    }

    /// The same with a hint: what to do, or what there is instead.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        if let Some(problem) = self.problem_mut() {
            problem.hint = Some(hint.into());
        }
        self
    }

    /// The same at a place.
    #[must_use]
    pub fn at(mut self, position: Option<Position>) -> Self {
        if let Some(problem) = self.problem_mut() {
            problem.position = position;
        }
        self
    }

    fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Statement(problem)
            | Self::Limit(problem)
            | Self::Execution(problem)
            | Self::Report(problem) => Some(problem),
            Self::TimedOut { .. } | Self::Table(_) | Self::Definition(_) | Self::Analysis(_) => {
                None
            }
        }
    }

    fn problem_mut(&mut self) -> Option<&mut Problem> {
        match self {
            Self::Statement(problem)
            | Self::Limit(problem)
            | Self::Execution(problem)
            | Self::Report(problem) => Some(problem),
            Self::TimedOut { .. } | Self::Table(_) | Self::Definition(_) | Self::Analysis(_) => {
                None
            }
        }
    }

    /// Its code.
    pub fn code(&self) -> SqlState {
        match self {
            Self::TimedOut { .. } => SqlState::QueryCanceled,
            Self::Table(error) => code_of_table(error),
            Self::Definition(_) => SqlState::InvalidParameterValue,
            Self::Analysis(_) => SqlState::InternalError,
            Self::Statement(problem)
            | Self::Limit(problem)
            | Self::Execution(problem)
            | Self::Report(problem) => problem.code,
        }
    }

    /// What kind it is of.
    pub fn kind(&self) -> ErrorKind {
        self.code().kind()
    }

    /// Where in the text it is, if that is known.
    pub fn position(&self) -> Option<Position> {
        self.problem().and_then(|problem| problem.position)
    }

    /// What to do about it, or what there is instead.
    pub fn hint(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::TimedOut { place, .. } => Some(timed_out_hint(place.is_some()).into()),
            Self::Table(error) => error.hint().map(Cow::Owned),
            other => other.problem()?.hint.as_deref().map(Cow::Borrowed),
        }
    }

    /// What is wrong, without the hint.
    pub fn message(&self) -> String {
        match self {
            Self::TimedOut { timeout, queued, ran, place } => {
                timed_out_text(*timeout, *queued, *ran, *place)
            }
            Self::Table(error) => error.message(),
            Self::Definition(error) => error.to_string(),
            Self::Analysis(error) => error.to_string(),
            other => other.problem().map_or_else(String::new, |problem| problem.message.clone()),
        }
    }

    /// The same error for another who asked the same.
    pub(crate) fn copy(&self) -> Self {
        match self {
            Self::Statement(problem) => Self::Statement(problem.clone()),
            Self::Limit(problem) => Self::Limit(problem.clone()),
            Self::TimedOut { timeout, queued, ran, place } => {
                let (timeout, queued, ran, place) = (*timeout, *queued, *ran, *place);
                Self::TimedOut { timeout, queued, ran, place }
            }
            Self::Report(problem) => Self::Report(problem.clone()),
            Self::Execution(problem) => Self::Execution(problem.clone()),
            Self::Definition(error) => Self::Definition(error.clone()),
            Self::Analysis(error) => Self::Analysis(error.clone()),
            Self::Table(error) => Self::Execution(Problem {
                hint: error.hint(),
                ..Problem::new(self.code(), error.message())
            }),
        }
    }
}

impl Problem {
    pub(crate) fn new(code: SqlState, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, position: None }
    }

    /// The same of a part of what was asked; a place in the part means nothing outside of it.
    pub(crate) fn within(self, what: &str) -> Self {
        Self { message: format!("{what}: {}", self.message), position: None, ..self }
    }
}

/// On its way through DataFusion.
impl From<EngineError> for DataFusionError {
    fn from(error: EngineError) -> Self {
        Self::External(Box::new(error))
    }
}

/// `Err` of a statement that is refused: its code, then what `format!` takes.
macro_rules! refuse {
    ($code:ident, $($text:tt)*) => {
        Err($crate::base::error::EngineError::statement(
            $crate::base::sql_state::SqlState::$code,
            format!($($text)*),
        )
        .into())
    };
}
pub(crate) use refuse;

fn timed_out_text(
    timeout: Duration,
    queued: Duration,
    ran: Duration,
    place: Option<(usize, usize)>,
) -> String {
    let [timeout, in_queue, computing] = [timeout, queued, ran].map(duration_text);
    match place {
        Some((place, of)) => format!(
            "the time-out of {timeout} came while the statement was number {place} of {of} in the queue \
             ({in_queue} there, {computing} of execution)"
        ),
        None => format!(
            "the time-out of {timeout} came after {in_queue} in the queue and {computing} of execution"
        ),
    }
}

const fn timed_out_hint(is_waiting: bool) -> &'static str {
    match is_waiting {
        true => "run fewer at once, or give it more (--timeout, SET uplake.timeout)",
        false => "ask for less, or give it more (--timeout, SET uplake.timeout)",
    }
}

/// The code of what a lake refuses.
pub(crate) fn code_of_table(error: &TableError) -> SqlState {
    match error {
        TableError::NoSuchTable { .. } => SqlState::UndefinedTable,
        TableError::NoSuchFile { .. } => SqlState::UndefinedFile,
        TableError::NoSuchColumn { .. } | TableError::NewColumn { .. } => SqlState::UndefinedColumn,
        TableError::NoSuch(_) => SqlState::UndefinedObject,
        TableError::TableExists { .. } => SqlState::DuplicateTable,
        TableError::AlreadyThere(_) => SqlState::DuplicateObject,
        TableError::Null { .. } => SqlState::NotNullViolation,
        TableError::UnsupportedFeature { .. }
        | TableError::UnsafeStore { .. }
        | TableError::TooNew { .. } => SqlState::FeatureNotSupported,
        TableError::InPlace(error) => code_of_table(error),
        TableError::BadRow(_) | TableError::Input { .. } => SqlState::BadCopyFileFormat,
        TableError::TypeClash { .. } => SqlState::DatatypeMismatch,
        TableError::Conflict { .. } => SqlState::SerializationFailure,
        TableError::OutcomeUnknown { .. } => SqlState::StatementCompletionUnknown,
        TableError::NoCredentials(_) => SqlState::InsufficientPrivilege,
        TableError::Stopped => SqlState::QueryCanceled,
        TableError::Panicked(_) => SqlState::InternalError,
        TableError::Io { source, .. } => code_of_io(source),
        TableError::Store { source, .. } => code_of_store(source),
        TableError::Storage(error) => code_of_storage(error),
        TableError::Domain(error) | TableError::Keys { source: error, .. } => code_of_domain(error),
        TableError::Delta { source, .. } => {
            code_of_cause(source.as_ref()).unwrap_or(SqlState::DataCorrupted)
        }
        TableError::Parquet { source, .. } => {
            code_of_cause(source).unwrap_or(SqlState::DataCorrupted)
        }
        TableError::DamagedLog { .. }
        | TableError::Damaged(_)
        | TableError::LostIds { .. }
        | TableError::Index { .. } => SqlState::DataCorrupted,
        TableError::Arrow { .. } => SqlState::DataException,
        _ => SqlState::InvalidParameterValue,
    }
}

/// The code of what an id domain refuses.
pub(crate) fn code_of_domain(error: &DomainError) -> SqlState {
    match error {
        DomainError::Missing { .. } => SqlState::UndefinedObject,
        DomainError::KeyTooLong { .. }
        | DomainError::Full { .. }
        | DomainError::TooLarge { .. } => SqlState::ProgramLimitExceeded,
        DomainError::Corrupt { .. } | DomainError::Local { .. } => SqlState::DataCorrupted,
        DomainError::TooNew { .. } => SqlState::FeatureNotSupported,
        DomainError::Replaced { .. } | DomainError::Contended { .. } => {
            SqlState::SerializationFailure
        }
        DomainError::Store { source, .. } => code_of_store(source),
        _ => SqlState::InvalidParameterValue,
    }
}

fn code_of_storage(error: &uplake_table::StoreError) -> SqlState {
    use uplake_table::StoreError::{Conformance, Setting, Url};
    match error {
        Url { .. } | Setting { .. } => SqlState::InvalidParameterValue,
        Conformance(_) => SqlState::FeatureNotSupported,
        _ => SqlState::IoError,
    }
}

/// The code of what the file system says.
pub(crate) fn code_of_io(error: &io::Error) -> SqlState {
    match error.kind() {
        io::ErrorKind::NotFound => SqlState::UndefinedFile,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            SqlState::InsufficientPrivilege
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => SqlState::DiskFull,
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => SqlState::DataCorrupted,
        _ => SqlState::IoError,
    }
}

/// The code of what the object store says.
pub(crate) fn code_of_store(error: &StoreError) -> SqlState {
    match error {
        StoreError::NotFound { .. } => SqlState::UndefinedFile,
        StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } => {
            SqlState::InsufficientPrivilege
        }
        StoreError::AlreadyExists { .. } | StoreError::Precondition { .. } => {
            SqlState::SerializationFailure
        }
        // A folder's store has the file system's error inside.
        other => io_cause(other).map_or(SqlState::IoError, code_of_io),
    }
}

/// The code of what was to be read: the store's or the file system's if one of them failed.
pub(crate) fn code_of_cause(error: &(dyn std::error::Error + 'static)) -> Option<SqlState> {
    let mut chain = std::iter::successors(Some(error), |error| error.source());
    let store = chain.find_map(|error| error.downcast_ref::<StoreError>()).map(code_of_store);
    store.or_else(|| io_cause(error).map(code_of_io))
}

fn io_cause<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a io::Error> {
    let mut chain = std::iter::successors(Some(error), |error| error.source());
    chain.find_map(|error| error.downcast_ref::<io::Error>())
}

/// The code of what a function of ours refuses.
pub(crate) fn code_of_function(error: &FunctionError) -> SqlState {
    match error {
        FunctionError::Call(_) => SqlState::UndefinedFunction,
        FunctionError::OutOfRange(_) => SqlState::NumericValueOutOfRange,
        FunctionError::Bytes(_) => SqlState::InvalidBinaryRepresentation,
        FunctionError::TooMany(_) => SqlState::ProgramLimitExceeded,
        _ => SqlState::InvalidParameterValue,
    }
}
