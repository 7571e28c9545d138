//! Groups found by arrays instead of hash tables.
//!
//! Ids are dense and dimensions have few values, so the group of a row stands in an array. Every
//! thread groups the rows it reads, and the threads' groups are merged; rows are not handed from thread
//! to thread first.
//!
//! # Invariants
//! - Rows, names and types are those of the aggregate that was there.
//! - What does not fit is refused before a row is given out; the same aggregate in hash tables, which spill, goes
//!   on in its place ([`fallback`](crate::operators::fallback)).

pub(crate) mod aggregate;
pub(crate) mod exec;
pub(crate) mod expressions;
pub(crate) mod group_join;
mod groups;
pub(crate) mod keys;
pub(crate) mod rows;
pub(crate) mod sums;
pub(crate) mod whole_sums;
