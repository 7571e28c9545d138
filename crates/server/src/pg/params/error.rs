//! Why a parameter is refused, with its SQLSTATE.

use crate::pg::types;

/// Characters of a value that a message repeats.
const SHOWN: usize = 200;

/// Why the value of a parameter is refused. Messages are those of Postgres where it has one.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ParamError {
    #[error("invalid input syntax for type {type_name}: \"{text}\"")]
    Syntax { type_name: String, text: String },
    #[error("invalid input syntax for type {type_name}: \"{text}\"")]
    DateSyntax { type_name: String, text: String },
    #[error("malformed array literal: \"{text}\"")]
    Array { text: String },
    #[error("value \"{text}\" is out of range for type {type_name}")]
    OutOfRange { type_name: String, text: String },
    #[error(
        "value \"{text}\" has more digits than type {type_name}; round it, or cast the parameter"
    )]
    Inexact { type_name: String, text: String },
    #[error("date/time field value out of range for type {type_name}: \"{text}\"")]
    DateOutOfRange { type_name: String, text: String },
    #[error("incorrect binary data format for type {type_name}")]
    Binary { type_name: String },
    #[error("invalid byte sequence for encoding \"UTF8\"")]
    Encoding,
    #[error("the statement has {wanted} where a parameter of type {said} was sent")]
    Mismatch { said: String, wanted: String },
    #[error("parameters of type {type_name} are not supported")]
    Unsupported { type_name: String },
    #[error("format code {format} is neither 0 (text) nor 1 (binary)")]
    Format { format: i16 },
    #[error("bug: {message}")]
    Bug { message: String },
}

impl ParamError {
    /// The SQLSTATE.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Syntax { .. } | Self::Array { .. } => "22P02",
            Self::DateSyntax { .. } => "22007",
            Self::OutOfRange { .. } | Self::Inexact { .. } => "22003",
            Self::DateOutOfRange { .. } => "22008",
            Self::Binary { .. } => "22P03",
            Self::Encoding => "22021",
            Self::Mismatch { .. } => "42804",
            Self::Unsupported { .. } => "0A000",
            Self::Format { .. } => "08P01",
            Self::Bug { .. } => "XX000",
        }
    }

    pub(super) fn binary(oid: u32) -> Self {
        Self::Binary { type_name: types::name_of(oid) }
    }
}

/// A value as a message shows it.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}
