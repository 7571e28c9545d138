//! Rows as messages of the Postgres wire.
