//! A lake's table for DataFusion: pruning, indexes, kept columns, prefetch.

pub(crate) mod among_ids;
pub(crate) mod file_bounds;
pub(crate) mod gather;
pub(crate) mod id_facts;
pub(crate) mod id_range;
pub(crate) mod id_ranges;
pub(crate) mod index_predicate;
pub(crate) mod indexed;
pub(crate) mod indexed_source;
pub(crate) mod integer_ranges;
pub(crate) mod lake_table;
mod opened;
pub(crate) mod prefetch;
pub(crate) mod pruned;
pub(crate) mod repairs;
pub(crate) mod row_filter;
mod row_groups;
pub(crate) mod storage;
pub(crate) mod temporal_bounds;
pub(crate) mod text_files;
pub(crate) mod true_bounds;
