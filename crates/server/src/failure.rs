//! What a client is told when something fails: five characters that drivers branch on, words, a place.

use std::borrow::Cow;

use uplake_engine::{EngineError, Position};

/// Why a request was not answered, for a client. The words are without control characters once they are sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    /// SQLSTATE.
    pub code: Cow<'static, str>,
    pub message: String,
    /// What to do about it, or what there is instead.
    pub hint: Option<String>,
    /// In the text of the statements that came together.
    pub position: Option<Position>,
    /// Where in what was being read.
    pub context: Option<String>,
}

impl Failure {
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: message.into(),
            hint: None,
            position: None,
            context: None,
        }
    }

    /// The same with what to do about it.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// The same with where in what was being read.
    #[must_use]
    pub fn with_context(self, context: impl Into<String>) -> Self {
        Self { context: Some(context.into()), ..self }
    }

    /// A fault of this program.
    pub fn bug(message: impl Into<String>) -> Self {
        Self::new("XX000", message)
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        Self {
            code: error.code().as_str().into(),
            message: error.message(),
            hint: error.hint().map(Cow::into_owned),
            position: error.position(),
            context: None,
        }
    }
}
