//! What cannot be sent, with its SQLSTATE.

/// Why rows cannot be sent.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum EncodeError {
    #[error("a result has at most {most} columns, and this one has {columns}; ask for fewer")]
    TooManyColumns { columns: usize, most: usize },
    #[error("{formats} formats came for {columns} columns; send none, one, or one for each")]
    FormatCount { formats: usize, columns: usize },
    #[error("format code {format} is neither 0 (text) nor 1 (binary)")]
    Format { format: i16 },
    #[error("a row is larger than {most} bytes; ask for fewer or shorter values")]
    RowTooLarge { most: usize },
    #[error("{what} out of range: Postgres' types have no such value")]
    OutOfRange { what: &'static str },
    #[error("arrays of different lengths in one array have no binary form; ask for text")]
    Ragged,
    #[error("number of array dimensions exceeds the maximum allowed ({most})")]
    TooManyDimensions { most: usize },
    #[error("unrecognized time zone \"{name}\"")]
    UnknownZone { name: String },
    #[error("{message}")]
    CopyOption { message: String },
    #[error("values of type {data_type} cannot be sent")]
    Unsupported { data_type: String },
    #[error("bug: {message}")]
    Bug { message: String },
}

impl EncodeError {
    /// The SQLSTATE.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::TooManyColumns { .. } => "54011",
            Self::FormatCount { .. } | Self::Format { .. } => "08P01",
            Self::RowTooLarge { .. } | Self::TooManyDimensions { .. } => "54000",
            Self::OutOfRange { .. } => "22008",
            Self::Ragged => "2202E",
            Self::UnknownZone { .. } | Self::CopyOption { .. } => "22023",
            Self::Unsupported { .. } => "0A000",
            Self::Bug { .. } => "XX000",
        }
    }
}
