//! Rules of ours: ids in place of keys, groups in arrays, scans by ranges.

pub(crate) mod array_aggregate;
pub(crate) mod changes;
pub(crate) mod group_join;
pub(crate) mod id_rewrite;
pub(crate) mod min_max_pruning;
pub(crate) mod pipeline;
pub(crate) mod push_down_semi_join;
pub(crate) mod range_scan;
pub(crate) mod running_windows;
pub(crate) mod shapes;
pub(crate) mod split_distinct;
pub(crate) mod steps;
pub(crate) mod text_tests;
pub(crate) mod top_candidates;
pub(crate) mod verified;
pub(crate) mod window_candidates;
