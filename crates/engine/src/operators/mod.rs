//! Operators of ours.

pub(crate) mod array_aggregate;
pub(crate) mod build_side_cache;
pub(crate) mod fallback;
pub(crate) mod running_window;
pub(crate) mod spilling;
pub(crate) mod stoppable;
