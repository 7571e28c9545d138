//! How far of the log somebody is.

/// Where in the log a dictionary is: everything up to a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Position {
    /// Number of the last run applied; 0 before the first.
    pub(crate) run: u32,
    /// Its nonce.
    pub(crate) nonce: u128,
    /// Nonce of run 1.
    pub(crate) domain: u128,
}
