//! Why a part failed, on its way to whoever asked for the statement.
//!
//! # Invariants
//! - A statement that fails in a part fails with the kind, the code, the words and the hint that it has on one node. A
//!   cast that fails travels as the library has it: whoever has the whole plan names the column.

use datafusion::arrow::error::ArrowError;
use datafusion::common::{DataFusionError, Result, plan_err};

use crate::base::error::{EngineError, Position, Problem};
use crate::base::foreign_errors::cast_message;
use crate::base::sql_state::SqlState;
use crate::portable::bytes::{Reader, Writer};

/// Why a part failed.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct PartError(DataFusionError);

/// What stands before each kind of error.
const STATEMENT: u8 = 0;
const LIMIT: u8 = 1;
const EXECUTION: u8 = 2;
const REPORT: u8 = 3;
const CAST: u8 = 4;

impl PartError {
    /// As bytes, which [`Self::from_bytes`] reads.
    pub fn into_bytes(self) -> Vec<u8> {
        let mut to = Writer::default();
        if let Some(message) = cast_message(&self.0) {
            to.byte(CAST);
            to.text(message);
            return to.0;
        }
        let error = EngineError::from(self.0);
        let kind = match &error {
            EngineError::Statement(_) => STATEMENT,
            EngineError::Limit(_) => LIMIT,
            EngineError::Report(_) => REPORT,
            _ => EXECUTION,
        };
        to.byte(kind);
        to.text(error.code().as_str());
        to.text(&error.message());
        let hint = error.hint();
        to.flag(hint.is_some());
        to.text(hint.as_deref().unwrap_or_default());
        let position = error.position();
        to.option(position.map(|position| position.line));
        to.option(position.map(|position| position.column));
        to.0
    }

    /// What the bytes say; bytes that say nothing are an error, too.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        match read(bytes) {
            Ok(error) => Self(error),
            Err(error) => Self(error),
        }
    }

    /// Is there too little memory?
    pub fn is_limit(&self) -> bool {
        match &self.0 {
            DataFusionError::External(inner) => {
                matches!(inner.downcast_ref(), Some(EngineError::Limit(_)))
            }
            _ => false,
        }
    }

    /// The same, of which [`Self::is_limit`] knows what it is.
    #[must_use]
    pub(crate) fn settled(self) -> Self {
        match cast_message(&self.0) {
            Some(_) => self,
            None => EngineError::from(self.0).into(),
        }
    }
}

impl From<EngineError> for PartError {
    fn from(error: EngineError) -> Self {
        Self(error.into())
    }
}

impl From<DataFusionError> for PartError {
    fn from(error: DataFusionError) -> Self {
        Self(error)
    }
}

impl From<PartError> for EngineError {
    fn from(error: PartError) -> Self {
        error.0.into()
    }
}

impl From<PartError> for DataFusionError {
    fn from(error: PartError) -> Self {
        error.0
    }
}

fn read(bytes: &[u8]) -> Result<DataFusionError> {
    let mut from = Reader::new(bytes);
    let kind = from.byte()?;
    if kind == CAST {
        let error = ArrowError::CastError(from.text()?.to_owned());
        return Ok(DataFusionError::ArrowError(Box::new(error), None));
    }
    let code = from.text()?.to_owned();
    let known = SqlState::ALL.iter().find(|known| known.as_str() == code);
    let code = known.copied().unwrap_or(SqlState::InternalError);
    let message = from.text()?.to_owned();
    let has_hint = from.flag()?;
    let hint = from.text()?.to_owned();
    let (line, column) = (from.option()?, from.option()?);
    let position = line.zip(column).map(|(line, column)| Position { line, column });
    let problem =
        Problem { hint: has_hint.then_some(hint), position, ..Problem::new(code, message) };
    let error = match kind {
        STATEMENT => EngineError::Statement(problem),
        LIMIT => EngineError::Limit(problem),
        EXECUTION => EngineError::Execution(problem),
        REPORT => EngineError::Report(problem),
        _ => return plan_err!("a part failed, and does not say how"),
    };
    Ok(error.into())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sent(error: impl Into<PartError>) -> EngineError {
        let arrived = PartError::from_bytes(&error.into().into_bytes());
        EngineError::from(DataFusionError::from(arrived))
    }

    #[test]
    fn errors_arrive_as_they_were() {
        let position = Some(Position { line: 3, column: 14 });
        for error in [
            EngineError::statement(SqlState::UndefinedColumn, "no such column"),
            EngineError::limit(SqlState::OutOfMemory, "groups"),
            EngineError::execution(SqlState::DivisionByZero, "by zero").at(position),
            EngineError::report(SqlState::InvalidParameterValue, "no metric").with_hint("add one"),
        ] {
            let arrived = sent(error.copy());
            assert_eq!(format!("{arrived:?}"), format!("{error:?}"));
        }
        let (timeout, queued) = (Duration::from_secs(5), Duration::ZERO);
        let late = EngineError::TimedOut { timeout, queued, ran: timeout, place: None };
        let arrived = sent(late.copy());
        assert_eq!((arrived.code(), arrived.message()), (late.code(), late.message()));
        assert_eq!(arrived.hint(), late.hint());
    }

    #[test]
    fn casts_arrive_as_casts() {
        let message = "Cannot cast string 'x' to value of Int64 type";
        let cast =
            || DataFusionError::ArrowError(Box::new(ArrowError::CastError(message.into())), None);
        let arrived = PartError::from_bytes(&PartError::from(cast()).into_bytes());
        assert_eq!(cast_message(&arrived.0), Some(message));
        assert_eq!(sent(cast()).to_string(), EngineError::from(cast()).to_string());
    }

    #[test]
    fn what_is_no_error_is_one() {
        let whole = PartError::from(EngineError::limit(SqlState::OutOfMemory, "x")).into_bytes();
        for end in 0..whole.len() {
            let error = PartError::from_bytes(&whole[..end]);
            assert!(!error.is_limit(), "cut off after {end}");
        }
        assert!(PartError::from_bytes(&whole).is_limit());
        assert!(!PartError::from_bytes(&[9, 0, 0, 0, 0, 0, 0]).is_limit());
    }
}
