//! Flight SQL.
