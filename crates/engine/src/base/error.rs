//! What a statement can fail with.

use std::time::Duration;

use datafusion::common::DataFusionError;
use datafusion::object_store::Error as StoreError;
use uplake_table::TableError;

use crate::base::settings::duration_text;

/// A place in the SQL text, both from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Line.
    pub line: u64,
    /// Column, in characters.
    pub column: u64,
}

/// Why a statement was not answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The statement is wrong; the position is where, if it is known.
    #[error("{message}")]
    Statement { message: String, position: Option<Position> },
    /// The memory budget or the space for spill files is not enough.
    #[error(
        "the query needs more than its budget: {message}; give it more with --memory, \
         or ask for less (fewer groups, a narrower join, a LIMIT)"
    )]
    Limit { message: String },
    /// The time-out came first; with the place in the queue, from 1, and how many waited, if the
    /// statement was waiting for a slot.
    #[error("{}", timed_out_text(*timeout, *queued, *ran, *place))]
    TimedOut { timeout: Duration, queued: Duration, ran: Duration, place: Option<(usize, usize)> },
    /// The lake.
    #[error(transparent)]
    Table(#[from] TableError),
    /// Reading or computing failed half-way.
    #[error("{0}")]
    Execution(String),
    /// The answer of a report query is not what was asked for.
    #[error("{0}")]
    Report(String),
}

/// The crate's result.
pub type Result<T, E = EngineError> = std::result::Result<T, E>;

impl EngineError {
    /// The same error for another who asked the same.
    pub(crate) fn copy(&self) -> Self {
        match self {
            Self::Statement { message, position } => {
                Self::Statement { message: message.clone(), position: *position }
            }
            Self::Limit { message } => Self::Limit { message: message.clone() },
            Self::TimedOut { timeout, queued, ran, place } => {
                let (timeout, queued, ran, place) = (*timeout, *queued, *ran, *place);
                Self::TimedOut { timeout, queued, ran, place }
            }
            Self::Report(message) => Self::Report(message.clone()),
            Self::Execution(message) => Self::Execution(message.clone()),
            Self::Table(error) => Self::Execution(error.to_string()),
        }
    }

    /// A statement error without a place.
    pub fn statement(message: impl Into<String>) -> Self {
        Self::Statement { message: message.into(), position: None }
    }
}

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
             ({in_queue} there, {computing} of execution); run fewer at once, or give it more \
             (--timeout, SET uplake.timeout)"
        ),
        None => format!(
            "the time-out of {timeout} came after {in_queue} in the queue and {computing} of execution; \
             ask for less, or give it more (--timeout, SET uplake.timeout)"
        ),
    }
}

impl From<DataFusionError> for EngineError {
    fn from(error: DataFusionError) -> Self {
        if let Some(diagnostic) = error.diagnostic() {
            let position = diagnostic
                .span
                .map(|span| Position { line: span.start.line, column: span.start.column });
            let mut message = diagnostic.message.clone();
            for note in diagnostic.notes.iter().map(|n| &n.message) {
                message.push_str("; ");
                message.push_str(note);
            }
            // The diagnostic is short; the error itself lists the valid names.
            let detail = error.strip_backtrace();
            if let Some((_, names)) = detail.split_once("Valid fields are ") {
                message.push_str("; the columns are ");
                message.push_str(names.trim_end_matches('.'));
            }
            return Self::Statement { message, position };
        }
        match error {
            DataFusionError::External(inner) => match inner.downcast::<TableError>() {
                Ok(table) => Self::Table(*table),
                Err(other) => match other.downcast::<DataFusionError>() {
                    Ok(nested) => (*nested).into(),
                    Err(other) => match other.downcast::<Self>() {
                        Ok(own) => *own,
                        Err(other) => Self::Execution(other.to_string()),
                    },
                },
            },
            DataFusionError::ResourcesExhausted(message) => Self::Limit { message },
            // Which internal step noticed is of no use to the writer of the statement.
            DataFusionError::Context(context, inner) if context.starts_with("Optimizer rule") => {
                match Self::from(*inner) {
                    Self::Execution(message) => Self::statement(message),
                    other => other,
                }
            }
            DataFusionError::Context(context, inner) => match Self::from(*inner) {
                Self::Execution(message) => Self::Execution(format!("{context}: {message}")),
                other => other,
            },
            DataFusionError::Shared(inner) => match inner.find_root() {
                DataFusionError::ResourcesExhausted(message) => {
                    Self::Limit { message: message.clone() }
                }
                DataFusionError::External(source) => Self::Execution(source.to_string()),
                other => Self::Execution(other.strip_backtrace()),
            },
            DataFusionError::Collection(mut errors) if !errors.is_empty() => {
                errors.swap_remove(0).into()
            }
            DataFusionError::SQL(parser, _) => parser_error(&parser.to_string()),
            DataFusionError::NotImplemented(message)
                if message.starts_with("Unsupported SQL type") =>
            {
                Self::statement(format!(
                    "{message}; types are text, bigint, integer, smallint, tinyint, double, real, \
                     boolean, date, timestamp, timestamptz, decimal(p,s), binary"
                ))
            }
            // It would have made a join of it.
            DataFusionError::NotImplemented(message)
                if message.starts_with("Physical plan does not support logical expression")
                    && message.to_lowercase().contains("subquery") =>
            {
                Self::statement(
                    "a subquery here may compare with the outer query's columns by = only, and not in the \
                     ON of an outer join; join in FROM instead",
                )
            }
            DataFusionError::NotImplemented(message)
                if message.starts_with("Physical plan does not support logical expression")
                    && message.contains("OuterReferenceColumn") =>
            {
                Self::statement(
                    "LATERAL, or a function in FROM, may name columns of the tables before it only in conditions \
                     of a table of its own; write unnest(list) in SELECT, or join",
                )
            }
            // `a.s` in a subquery that has a column a, where the outer query has a table a.
            DataFusionError::Execution(message)
                if message.starts_with("Cannot access field at argument") =>
            {
                Self::statement(format!(
                    "{message}; if a table of the outer query is meant, give it an alias that is no column here"
                ))
            }
            DataFusionError::Plan(message) if message.contains("No function matches") => {
                let from = message.find("No function matches").unwrap_or_default();
                // What a function of ours says is wrong with its arguments stands before.
                let own = message[..from].split_once(OWN_WORDS).map(|(_, own)| own.trim());
                let own = own.map(|own| own.trim_start_matches("Error during planning: "));
                let of_all = || message[from..].lines().next().unwrap_or_default();
                Self::statement(own.filter(|own| !own.is_empty()).unwrap_or_else(of_all))
            }
            DataFusionError::Plan(message)
            | DataFusionError::NotImplemented(message)
            | DataFusionError::Configuration(message) => Self::statement(message),
            DataFusionError::SchemaError(inner, _) => Self::statement(inner.to_string()),
            DataFusionError::ArrowError(inner, _) => {
                Self::Execution(in_sql_words(&inner.to_string()))
            }
            DataFusionError::Internal(message) => {
                Self::statement(message.split("\nThis issue was likely").next().unwrap_or_default())
            }
            DataFusionError::ObjectStore(inner) => match *inner {
                // What a store of our own says of the bytes that it reads.
                StoreError::Generic { store, source } => match source.downcast::<DataFusionError>()
                {
                    Ok(own) => (*own).into(),
                    Err(source) => unread(StoreError::Generic { store, source }),
                },
                other => unread(other),
            },
            other => Self::Execution(other.strip_backtrace()),
        }
    }
}

fn unread(error: StoreError) -> EngineError {
    EngineError::Execution(DataFusionError::from(error).strip_backtrace())
}

/// What DataFusion puts before the message of a function that refuses its arguments.
const OWN_WORDS: &str = "user-defined coercion failed with: ";

/// Arrow's type names as SQL's: "Cannot cast string 'x' to value of Int64 type".
fn in_sql_words(message: &str) -> String {
    let Some((before, rest)) = message.split_once("Cannot cast string ") else {
        return message.to_owned();
    };
    let Some((value, rest)) = rest.split_once(" to value of ") else { return message.to_owned() };
    let name = match rest.trim_end_matches(" type") {
        "Int64" => "bigint",
        "Int32" => "integer",
        "Int16" => "smallint",
        "Int8" => "tinyint",
        "Float64" => "double",
        "Float32" => "real",
        "Boolean" => "boolean",
        "Date32" => "date",
        other if other.starts_with("Timestamp") => "timestamp",
        other => other,
    };
    format!("{}cannot read {value} as {name}", before.trim_start_matches("Cast error: "))
}

/// Takes the place out of a parser's message ("… at Line: 1, Column: 8").
pub(crate) fn parser_error(text: &str) -> EngineError {
    let text = text.trim_start_matches("sql parser error: ");
    let text = text.trim_start_matches("ParserError(\"").trim_end_matches("\")");
    let place = text.rsplit_once(" at Line: ").and_then(|(message, place)| {
        let (line, column) = place.split_once(", Column: ")?;
        let digits: String = column.chars().take_while(char::is_ascii_digit).collect();
        let position = Position { line: line.parse().ok()?, column: digits.parse().ok()? };
        Some((message.to_owned(), position))
    });
    match place {
        Some((message, position)) => EngineError::Statement { message, position: Some(position) },
        None => EngineError::statement(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parser_error_knows_its_place() {
        let error = parser_error(
            "sql parser error: Expected: an expression, found: FROM at Line: 2, Column: 8",
        );
        let EngineError::Statement { message, position } = error else { panic!("{error}") };
        assert_eq!(message, "Expected: an expression, found: FROM");
        assert_eq!(position, Some(Position { line: 2, column: 8 }));
    }
}
