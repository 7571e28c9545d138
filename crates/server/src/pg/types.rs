//! Arrow's types and Postgres'.
