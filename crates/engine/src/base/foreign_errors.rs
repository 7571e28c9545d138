//! Errors of DataFusion, Arrow, Parquet and the parser as ours.
//!
//! They have variants, and words. What a variant says is used first; where it says too little, the words are
//! looked at, here and nowhere else. Each that is known has a statement in tests/it/error_codes.rs, which fails
//! when a new version of a library says it otherwise.
//!
//! # Not here
//! Errors of ours: they have their codes, and come through DataFusion inside [`DataFusionError::External`].

use std::num::{ParseFloatError, ParseIntError};

use datafusion::arrow::error::ArrowError;
use datafusion::common::{DataFusionError, Diagnostic, SchemaError};
use datafusion::object_store::Error as StoreError;
use datafusion::parquet::errors::ParquetError;
use datafusion::sql::sqlparser::parser::ParserError;
use uplake_functions::FunctionError;
use uplake_table::{DamagedBytes, DomainError, TableError};

use crate::base::error::{
    EngineError, Position, Problem, code_of_cause, code_of_domain, code_of_function, code_of_io,
    code_of_store, code_of_table,
};
use crate::base::sql_state::SqlState;

/// Words of [`DataFusionError::Plan`] and of diagnostics; the first that is found tells the code.
const PLAN_WORDS: &[(&str, SqlState)] = &[
    // nofn(1) in FROM
    ("table function '", SqlState::UndefinedFunction),
    // SELECT nofn(1), with or without a name that is like it.
    ("Invalid function '", SqlState::UndefinedFunction),
    // SELECT substr(), and what a function of ours says of its arguments.
    ("No function matches", SqlState::UndefinedFunction),
    // SELECT id, count(*) FROM t
    ("must appear in GROUP BY", SqlState::GroupingError),
    // WHERE count(*) > 1
    ("Aggregate functions are not allowed", SqlState::GroupingError),
    // max(sum(id))
    ("Aggregate function calls cannot be nested", SqlState::GroupingError),
    // UNION of 1 and 2 columns
    ("queries have different number of columns", SqlState::SyntaxError),
    // (SELECT 1, 2) in place of a value
    ("Too many columns!", SqlState::SyntaxError),
    // VALUES (1), (1, 2)
    ("Inconsistent data length across values list", SqlState::SyntaxError),
    // 1 + 'a'
    ("expressions have incompatible types", SqlState::DatatypeMismatch),
    // NOT 1, - 'a'
    (" cannot be used with ", SqlState::DatatypeMismatch),
    // WHERE id
    ("Cannot create filter with non-boolean predicate", SqlState::DatatypeMismatch),
    // id IN ('x', true)
    ("Can not find compatible types to compare", SqlState::DatatypeMismatch),
    // day * 2
    ("Cannot get result type for temporal operation", SqlState::DatatypeMismatch),
    // 'a' LIKE 1
    ("There isn't a common type to coerce", SqlState::DatatypeMismatch),
    // ORDER BY 5
    ("Order by column out of bounds", SqlState::InvalidColumnReference),
    // GROUP BY 5
    ("Cannot find column with position", SqlState::InvalidColumnReference),
    // SELECT *, *
    ("require unique expression names", SqlState::DuplicateAlias),
    // SELECT nope.*
    ("Invalid qualifier", SqlState::UndefinedTable),
    // LIMIT -1
    ("LIMIT must be >= 0", SqlState::InvalidParameterValue),
    // SHOW nope
    ("is not a variable which can be viewed", SqlState::UndefinedObject),
];

/// Words of [`DataFusionError::Execution`].
const EXECUTION_WORDS: &[(&str, SqlState)] = &[
    // SELECT (SELECT …) of two rows
    ("Scalar subquery returned more than one row", SqlState::CardinalityViolation),
    // SELECT $1
    ("Placeholder ", SqlState::UndefinedParameter),
    // a.s where the subquery has a column a and the query a table a
    (NO_FIELD, SqlState::UndefinedColumn),
    // factorial(100)
    ("Overflow happened", SqlState::NumericValueOutOfRange),
];

/// Words of [`DataFusionError::Internal`].
const INTERNAL_WORDS: &[(&str, SqlState)] = &[
    // substring('foo' FROM 'fo+')
    ("failed to match any signature", SqlState::UndefinedFunction),
];

/// Words of [`DataFusionError::Configuration`].
const CONFIGURATION_WORDS: &[(&str, SqlState)] = &[
    // SET nope.x = 1
    ("not find config namespace", SqlState::UndefinedObject),
    // SET datafusion.execution.nope = 1
    ("Config value \"", SqlState::UndefinedObject),
];

/// Words of [`ArrowError`]s, whatever their variant.
const ARROW_WORDS: &[(&str, SqlState)] = &[
    // CAST(300 AS TINYINT)
    ("Can't cast value", SqlState::NumericValueOutOfRange),
    // CAST(CAST(12345678901 AS DECIMAL(12, 1)) AS INT)
    ("is out of range", SqlState::NumericValueOutOfRange),
    // CAST(12345678901 AS DECIMAL(5, 2))
    ("is too large to store in a Decimal", SqlState::NumericValueOutOfRange),
    // DATE '2020-01-01' + INTERVAL '900000 years'
    ("Date arithmetic overflow", SqlState::DatetimeFieldOverflow),
    // TIMESTAMP 'abc'
    ("Error parsing timestamp", SqlState::InvalidDatetimeFormat),
    // name ~ name, where one is no regular expression
    ("Regular expression did not compile", SqlState::InvalidRegularExpression),
    // INTERVAL 'abc'
    ("Invalid input syntax for type interval", SqlState::InvalidDatetimeFormat),
];

/// What DataFusion says where a plan has no step for an expression; the expression follows.
const NO_STEP: &str = "Physical plan does not support logical expression";
const NO_TYPE: &str = "Unsupported SQL type";
const NO_FIELD: &str = "Cannot access field at argument";
/// How an error of the crates of regular expressions begins, of which DataFusion uses two.
const NO_REGEX: &str = "regex parse error:";
/// What DataFusion puts before the message of a function that refuses its arguments.
const OWN_WORDS: &str = "user-defined coercion failed with: ";

fn by_words(words: &[(&str, SqlState)], message: &str, otherwise: SqlState) -> SqlState {
    let found = words.iter().find(|(part, _)| message.contains(part));
    found.map_or(otherwise, |(_, code)| *code)
}

fn code_of_plan(message: &str) -> SqlState {
    // FROM nope
    if without_table(message).is_some() {
        return SqlState::UndefinedTable;
    }
    by_words(PLAN_WORDS, message, SqlState::SyntaxErrorOrAccessRuleViolation)
}

/// The name in "table 'nope' not found".
fn without_table(message: &str) -> Option<&str> {
    message.strip_prefix("table '")?.strip_suffix("' not found")
}

/// The code of an error, whoever made it.
fn code_of(error: &DataFusionError) -> SqlState {
    match error {
        DataFusionError::External(inner) => code_of_external(inner.as_ref()),
        DataFusionError::Context(_, inner) => code_of(inner),
        DataFusionError::Shared(inner) => code_of(inner),
        DataFusionError::Collection(errors) => {
            errors.first().map_or(SqlState::InternalError, code_of)
        }
        DataFusionError::Diagnostic(diagnostic, inner) => match code_of(inner) {
            SqlState::SyntaxErrorOrAccessRuleViolation => code_of_plan(&diagnostic.message),
            code => code,
        },
        DataFusionError::ResourcesExhausted(_) => SqlState::OutOfMemory,
        DataFusionError::SQL(parser, _) => match parser.as_ref() {
            ParserError::RecursionLimitExceeded => SqlState::StatementTooComplex,
            ParserError::TokenizerError(_) | ParserError::ParserError(_) => SqlState::SyntaxError,
        },
        DataFusionError::NotImplemented(message) => match message.starts_with(NO_TYPE) {
            true => SqlState::UndefinedObject,
            false => SqlState::FeatureNotSupported,
        },
        DataFusionError::Plan(message) => code_of_plan(message),
        DataFusionError::Configuration(message) => {
            by_words(CONFIGURATION_WORDS, message, SqlState::InvalidParameterValue)
        }
        DataFusionError::SchemaError(inner, _) => match inner.as_ref() {
            SchemaError::FieldNotFound { .. } => SqlState::UndefinedColumn,
            SchemaError::AmbiguousReference { .. } => SqlState::AmbiguousColumn,
            SchemaError::DuplicateQualifiedField { .. }
            | SchemaError::DuplicateUnqualifiedField { .. } => SqlState::DuplicateColumn,
        },
        DataFusionError::Execution(message) => {
            by_words(EXECUTION_WORDS, message, SqlState::DataException)
        }
        DataFusionError::ArrowError(inner, _) => code_of_arrow(inner),
        DataFusionError::ParquetError(inner) => {
            code_of_cause(inner.as_ref()).unwrap_or(SqlState::DataCorrupted)
        }
        DataFusionError::IoError(inner) => code_of_io(inner),
        DataFusionError::ObjectStore(inner) => match inner.as_ref() {
            StoreError::Generic { source, .. } if source.is::<DataFusionError>() => {
                code_of_external(source.as_ref())
            }
            inner => code_of_store(inner),
        },
        DataFusionError::Internal(message) => {
            by_words(INTERNAL_WORDS, message, SqlState::InternalError)
        }
        _ => SqlState::InternalError,
    }
}

fn code_of_external(error: &(dyn std::error::Error + Send + Sync + 'static)) -> SqlState {
    if let Some(own) = error.downcast_ref::<EngineError>() {
        own.code()
    } else if let Some(function) = error.downcast_ref::<FunctionError>() {
        code_of_function(function)
    } else if let Some(inner) = error.downcast_ref::<DataFusionError>() {
        code_of(inner)
    } else if let Some(table) = error.downcast_ref::<TableError>() {
        code_of_table(table)
    } else if let Some(domain) = error.downcast_ref::<DomainError>() {
        code_of_domain(domain)
    } else if let Some(arrow) = error.downcast_ref::<ArrowError>() {
        code_of_arrow(arrow)
    } else if error.is::<ParseIntError>() || error.is::<ParseFloatError>() {
        // SET datafusion.execution.batch_size = 'abc'
        SqlState::InvalidParameterValue
    } else if error.to_string().starts_with(NO_REGEX) {
        SqlState::InvalidRegularExpression
    } else {
        let is_damaged = error.is::<DamagedBytes>() || error.is::<ParquetError>();
        let otherwise = if is_damaged { SqlState::DataCorrupted } else { SqlState::InternalError };
        code_of_cause(error).unwrap_or(otherwise)
    }
}

fn code_of_arrow(error: &ArrowError) -> SqlState {
    let otherwise = match error {
        ArrowError::ExternalError(inner) => return code_of_external(inner.as_ref()),
        // What spills wraps its errors twice.
        ArrowError::IoError(_, inner) => {
            let wrapped = inner.get_ref().and_then(|inner| inner.downcast_ref::<DataFusionError>());
            return wrapped.map_or_else(|| code_of_io(inner), code_of);
        }
        ArrowError::DivideByZero => return SqlState::DivisionByZero,
        ArrowError::ArithmeticOverflow(_) => return SqlState::NumericValueOutOfRange,
        ArrowError::CastError(message) => match unread_text(message) {
            Some((_, "date" | "timestamp")) => return SqlState::InvalidDatetimeFormat,
            Some(_) => return SqlState::InvalidTextRepresentation,
            None => SqlState::DatatypeMismatch,
        },
        ArrowError::ParseError(_) => SqlState::InvalidTextRepresentation,
        ArrowError::InvalidArgumentError(_) => SqlState::InvalidParameterValue,
        ArrowError::NotYetImplemented(_) => SqlState::FeatureNotSupported,
        ArrowError::MemoryError(_) => SqlState::OutOfMemory,
        ArrowError::CsvError(_) | ArrowError::JsonError(_) | ArrowError::AvroError(_) => {
            SqlState::BadCopyFileFormat
        }
        ArrowError::DictionaryKeyOverflowError
        | ArrowError::RunEndIndexOverflowError
        | ArrowError::OffsetOverflowError(_) => SqlState::ProgramLimitExceeded,
        ArrowError::IpcError(_) | ArrowError::ParquetError(_) => SqlState::DataCorrupted,
        ArrowError::SchemaError(_) | ArrowError::CDataInterface(_) => SqlState::InternalError,
        ArrowError::ComputeError(_) => SqlState::DataException,
    };
    by_words(ARROW_WORDS, &error.to_string(), otherwise)
}

impl From<DataFusionError> for EngineError {
    fn from(error: DataFusionError) -> Self {
        if let Some(diagnostic) = error.diagnostic() {
            return diagnosed(&error, diagnostic);
        }
        let code = code_of(&error);
        match error {
            DataFusionError::External(inner) => external(inner),
            DataFusionError::ResourcesExhausted(message) => Self::limit(code, &message),
            // Which internal step noticed is of no use to the writer of the statement.
            DataFusionError::Context(context, inner) if context.starts_with("Optimizer rule") => {
                match Self::from(*inner) {
                    Self::Execution(problem) => Self::Statement(problem),
                    other => other,
                }
            }
            DataFusionError::Context(context, inner) => match Self::from(*inner) {
                Self::Execution(problem) => {
                    let message = format!("{context}: {}", problem.message);
                    Self::Execution(Problem { message, ..problem })
                }
                other => other,
            },
            DataFusionError::Shared(inner) => shared(code, &inner),
            DataFusionError::Collection(mut errors) if !errors.is_empty() => {
                errors.swap_remove(0).into()
            }
            DataFusionError::SQL(parser, _) => parser_error(&parser),
            DataFusionError::NotImplemented(message) => not_implemented(code, message),
            DataFusionError::Execution(message) if message.starts_with(NO_FIELD) => {
                Self::statement(code, message).with_hint(
                    "if a table of the outer query is meant, give it an alias that is no column here",
                )
            }
            DataFusionError::Plan(message) => Self::statement(code, without_candidates(&message)),
            DataFusionError::Configuration(message) => Self::statement(code, message),
            DataFusionError::SchemaError(inner, _) => Self::statement(code, inner.to_string()),
            DataFusionError::ArrowError(inner, _) => match *inner {
                ArrowError::ExternalError(inner) => external(inner),
                inner => Self::execution(code, in_sql_words(&inner.to_string())),
            },
            DataFusionError::Internal(message) => {
                let own = message.split("\nThis issue was likely").next();
                Self::statement(code, own.unwrap_or_default())
            }
            DataFusionError::ObjectStore(inner) => match *inner {
                // What a store of our own says of the bytes that it reads.
                StoreError::Generic { store, source } => match source.downcast::<DataFusionError>()
                {
                    Ok(own) => (*own).into(),
                    Err(source) => unread(code, StoreError::Generic { store, source }),
                },
                other => unread(code, other),
            },
            other => Self::execution(code, other.strip_backtrace()),
        }
    }
}

/// An error with a place, notes and, if a column is not there, the names of those that are.
fn diagnosed(error: &DataFusionError, diagnostic: &Diagnostic) -> EngineError {
    let place = |line, column| Position { line, column };
    let position = diagnostic.span.map(|span| place(span.start.line, span.start.column));
    let mut notes: Vec<String> = diagnostic.notes.iter().map(|note| note.message.clone()).collect();
    if let DataFusionError::SchemaError(inner, _) = error.find_root()
        && let SchemaError::FieldNotFound { valid_fields, .. } = inner.as_ref()
        && !valid_fields.is_empty()
    {
        let names: Vec<String> = valid_fields.iter().map(|c| c.quoted_flat_name()).collect();
        notes.push(format!("the columns are {}", names.join(", ")));
    }
    let (code, mut message) = (code_of(error), diagnostic.message.clone());
    // Notes about types say what is wrong; those about names, what there is instead.
    if code == SqlState::DatatypeMismatch {
        for note in notes.drain(..) {
            message.push_str("; ");
            message.push_str(&note);
        }
    }
    let found = EngineError::statement(code, message).at(position);
    if notes.is_empty() { found } else { found.with_hint(notes.join("; ")) }
}

fn external(error: Box<dyn std::error::Error + Send + Sync>) -> EngineError {
    let code = code_of_external(error.as_ref());
    let error = match error.downcast::<TableError>() {
        Ok(table) => return EngineError::Table(*table),
        Err(other) => other,
    };
    let error = match error.downcast::<DataFusionError>() {
        Ok(nested) => return (*nested).into(),
        Err(other) => other,
    };
    let error = match error.downcast::<EngineError>() {
        Ok(own) => return *own,
        Err(other) => other,
    };
    match error.downcast_ref::<FunctionError>() {
        Some(FunctionError::Call(message) | FunctionError::Value(message)) => {
            EngineError::statement(code, message)
        }
        _ => EngineError::execution(code, error.to_string()),
    }
}

/// An error that others have, too.
fn shared(code: SqlState, error: &DataFusionError) -> EngineError {
    match error.find_root() {
        DataFusionError::ResourcesExhausted(message) => EngineError::limit(code, message),
        DataFusionError::External(source) => match source.downcast_ref::<EngineError>() {
            Some(own) => own.copy(),
            None => EngineError::execution(code, source.to_string()),
        },
        other => EngineError::execution(code, in_sql_words(&other.strip_backtrace())),
    }
}

fn not_implemented(code: SqlState, message: String) -> EngineError {
    if message.starts_with(NO_TYPE) {
        return EngineError::statement(code, message).with_hint(
            "types are text, bigint, integer, smallint, tinyint, double, real, boolean, date, timestamp, \
             timestamptz, decimal(p,s), binary",
        );
    }
    let has_no_step = message.starts_with(NO_STEP);
    // It would have made a join of it.
    if has_no_step && message.to_lowercase().contains("subquery") {
        let what = "a subquery here may compare with the outer query's columns by = only, and not in the ON \
                    of an outer join";
        return EngineError::statement(code, what).with_hint("join in FROM instead");
    }
    if has_no_step && message.contains("OuterReferenceColumn") {
        let what = "LATERAL, or a function in FROM, may name columns of the tables before it only in \
                    conditions of a table of its own";
        return EngineError::statement(code, what)
            .with_hint("write unnest(list) in SELECT, or join");
    }
    EngineError::statement(code, message)
}

/// What is wrong with a call, without the forms of the function that there are.
fn without_candidates(message: &str) -> &str {
    let Some(from) = message.find("No function matches") else { return message };
    // What a function of ours says is wrong with its arguments stands before.
    let own = message[..from].split_once(OWN_WORDS).map(|(_, own)| own.trim());
    let own = own.map(|own| own.trim_start_matches("Error during planning: "));
    let own = own.map(|own| own.trim_start_matches("External error: "));
    let of_all = || message[from..].lines().next().unwrap_or_default();
    own.filter(|own| !own.is_empty()).unwrap_or_else(of_all)
}

fn unread(code: SqlState, error: StoreError) -> EngineError {
    EngineError::execution(code, DataFusionError::from(error).strip_backtrace())
}

/// The text and SQL's name of the type in "Cannot cast string 'x' to value of Int64 type".
fn unread_text(message: &str) -> Option<(&str, &str)> {
    let (_, rest) = message.split_once("Cannot cast string ")?;
    let (value, rest) = rest.split_once(" to value of ")?;
    Some((value, sql_name(rest.trim_end_matches(" type"))))
}

/// What stands before the value, the value and the type in "Can't cast value 3000000000 to type Int32" of a number, and
/// in "value of 3000000000 is out of range Int32" of a decimal.
fn unfit_number(message: &str) -> Option<(&str, &str, &str)> {
    let (before, rest, between) = match message.split_once("Can't cast value ") {
        Some((before, rest)) => (before, rest, " to type "),
        None => {
            let (before, rest) = message.split_once("value of ")?;
            (before, rest, " is out of range ")
        }
    };
    let (value, name) = rest.split_once(between)?;
    Some((before, value, name))
}

fn sql_name(arrow: &str) -> &str {
    match arrow {
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
    }
}

/// The value and the type of a cast that failed.
pub(crate) fn cast_error(error: &DataFusionError) -> Option<(String, String)> {
    cast_of(cast_message(error)?)
}

/// What a cast that failed says.
pub(crate) fn cast_message(error: &DataFusionError) -> Option<&str> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        let arrow = match error.downcast_ref::<DataFusionError>() {
            Some(DataFusionError::ArrowError(inner, _)) => Some(inner.as_ref()),
            _ => error.downcast_ref::<ArrowError>(),
        };
        if let Some(ArrowError::CastError(message)) = arrow {
            return Some(message);
        }
        cause = error.source();
    }
    None
}

/// Of "Cannot cast string 'x' to value of Int64 type", and of [`unfit_number`].
fn cast_of(message: &str) -> Option<(String, String)> {
    if let Some((_, rest)) = message.split_once("Cannot cast string ") {
        let (value, to) = rest.split_once(" to value of ")?;
        let value = value.trim_matches('\'');
        return Some((value.to_owned(), to.trim_end_matches(" type").to_owned()));
    }
    let (_, value, to) = unfit_number(message)?;
    Some((value.to_owned(), to.to_owned()))
}

fn in_sql_words(message: &str) -> String {
    let (before, says) = if let Some((value, name)) = unread_text(message) {
        (message.split("Cannot cast string ").next(), format!("cannot read {value} as {name}"))
    } else if let Some((before, value, name)) = unfit_number(message) {
        (Some(before), format!("{value} does not fit {}", sql_name(name)))
    } else {
        return message.to_owned();
    };
    let before = before.unwrap_or_default().trim_start_matches("Arrow error: ");
    format!("{}{says}", before.trim_start_matches("Cast error: "))
}

/// The parser's error; its place stands at the end of its words ("… at Line: 1, Column: 8").
pub(crate) fn parser_error(error: &ParserError) -> EngineError {
    let text = match error {
        ParserError::TokenizerError(text) | ParserError::ParserError(text) => text,
        ParserError::RecursionLimitExceeded => {
            return EngineError::statement(
                SqlState::StatementTooComplex,
                "recursion limit exceeded",
            );
        }
    };
    let place = text.rsplit_once(" at Line: ").and_then(|(message, place)| {
        let (line, column) = place.split_once(", Column: ")?;
        let digits: String = column.chars().take_while(char::is_ascii_digit).collect();
        let position = Position { line: line.parse().ok()?, column: digits.parse().ok()? };
        Some((message, position))
    });
    match place {
        Some((message, position)) => {
            EngineError::statement(SqlState::SyntaxError, message).at(Some(position))
        }
        None => EngineError::statement(SqlState::SyntaxError, text),
    }
}

/// Does a text that the parser says this of end too early? It has no place for that.
pub(crate) fn ends_early(code: SqlState, message: &str) -> bool {
    code == SqlState::SyntaxError && message.ends_with("found: EOF")
}

/// The first word of a type that a statement was refused for, because there is none of the name.
pub(crate) fn unknown_type(error: &DataFusionError) -> Option<String> {
    let DataFusionError::NotImplemented(message) = error.find_root() else { return None };
    let name = message.strip_prefix(NO_TYPE)?.trim_start();
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
    (end > 0).then(|| name[..end].to_owned())
}

/// The name of the table that a statement was refused for, because there is none.
pub(crate) fn missing_table(error: &DataFusionError) -> Option<String> {
    let message = match error.diagnostic() {
        Some(diagnostic) => diagnostic.message.clone(),
        None => error.find_root().message().into_owned(),
    };
    without_table(&message).map(str::to_owned)
}

/// Was a statement refused because a column is neither grouped by nor in an aggregate?
pub(crate) fn lacks_group(error: &DataFusionError) -> bool {
    let message = error.to_string();
    message.contains("must appear in") && message.contains("GROUP BY clause")
}

/// Was a statement refused because two things have one name?
pub(crate) fn repeats_name(error: &DataFusionError) -> bool {
    let message = error.to_string();
    let found = ["require unique expression names", "Schema contains"];
    found.iter().any(|text| message.contains(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parser_error_knows_its_place() {
        let text = "Expected: an expression, found: FROM at Line: 2, Column: 8";
        let error = parser_error(&ParserError::ParserError(text.into()));
        assert_eq!(error.message(), "Expected: an expression, found: FROM");
        assert_eq!(error.position(), Some(Position { line: 2, column: 8 }));
        assert_eq!(error.code(), SqlState::SyntaxError);
    }

    #[test]
    fn a_full_disk_is_known_however_it_is_wrapped() {
        let full = || std::io::Error::from(std::io::ErrorKind::StorageFull);
        let once = ArrowError::IoError("x".into(), full());
        let inner = std::io::Error::other(DataFusionError::IoError(full()));
        for error in [once, ArrowError::IoError("x".into(), inner)] {
            assert_eq!(code_of_arrow(&error), SqlState::DiskFull);
        }
    }
}
