//! Statements that run for connections.
