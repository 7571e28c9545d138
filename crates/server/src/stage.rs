//! What a statement is at.

/// What a statement is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stage {
    /// It waits for a slot, is planned, or computes its first rows.
    Computing,
    /// Its rows are on their way.
    Sending,
    /// It is planned, and run by another message or never.
    Planning,
}

impl Stage {
    /// Of its number.
    pub const fn of(number: u8) -> Self {
        match number {
            0 => Self::Computing,
            1 => Self::Sending,
            _ => Self::Planning,
        }
    }

    /// Its name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Computing => "computing",
            Self::Sending => "sending",
            Self::Planning => "planning",
        }
    }
}
