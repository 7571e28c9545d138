//! What functions refuse, by what is wrong, so that the engine can give each a code.
//!
//! An error travels in [`DataFusionError::External`]; DataFusion makes text of those that say which arguments a
//! function takes, and the engine knows that text.
//!
//! # Not here
//! SQLSTATEs: `engine` gives them.

use datafusion_common::DataFusionError;

/// Why a function is not computed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FunctionError {
    /// It takes arguments of other types, or another number of them.
    #[error("{0}")]
    Call(String),
    /// An argument has a value that it cannot take: a name of no method, a pattern that cannot be read.
    #[error("{0}")]
    Value(String),
    /// A number is outside of what it can be.
    #[error("{0}")]
    OutOfRange(String),
    /// Bytes are not what they are taken for.
    #[error("{0}")]
    Bytes(String),
    /// More of something than it can hold.
    #[error("{0}")]
    TooMany(String),
}

impl From<FunctionError> for DataFusionError {
    fn from(error: FunctionError) -> Self {
        Self::External(Box::new(error))
    }
}

/// `Err` of a [`FunctionError`]: its kind, then what `format!` takes.
macro_rules! refuse {
    ($kind:ident, $($text:tt)*) => {
        Err(datafusion_common::DataFusionError::from(
            $crate::error::FunctionError::$kind(format!($($text)*)),
        ))
    };
}
pub(crate) use refuse;
