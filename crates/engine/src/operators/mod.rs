//! Operators of ours.

pub(crate) mod array_aggregate;
pub(crate) mod build_sides;
pub(crate) mod stoppable;
