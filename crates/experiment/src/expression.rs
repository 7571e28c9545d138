//! The SQL of a definition, expression by expression: where each stands and what it is used as.
//!
//! Whoever reads SQL checks them one by one, so that an error names the metric, the key and the place
//! within what somebody wrote.
//!
//! # Not here
//! No SQL is read.

/// An expression and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Expression {
    /// "metric `revenue`", "[exposures]".
    pub place: String,
    /// The key within it: "value", "numerator.where".
    pub key: String,
    pub sql: String,
    /// The table whose rows it is about.
    pub table: String,
    pub role: Role,
}

/// An expression of a section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    pub key: String,
    pub sql: String,
    pub role: Role,
}

/// What an expression is used as, and so what it can be cast to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Role {
    /// Rows pass where it is true.
    Condition,
    /// Added up, or compared with 0.
    Number,
    Text,
    Time,
    /// Told apart, no more.
    Any,
}
