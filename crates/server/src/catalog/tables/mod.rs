//! The tables of `pg_catalog` and `information_schema`: which there are, their columns, and their rows of a lake.
//!
//! # Invariants
//! - Rows are made of what is kept; nobody is asked.
//! - Columns are those of Postgres 15 and 16 (`columns.txt`), in their order.

mod information;
mod listed;
mod objects;
mod rows;
mod server;
mod system;
mod view;

pub(super) use listed::rows_of;
pub(super) use system::{CATALOG, INFORMATION, PUBLIC, SCHEMAS, SystemTables};
pub(super) use view::View;
