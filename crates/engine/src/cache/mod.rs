//! What is kept in memory: columns as they are decoded, rows that were computed, sets of ids; and the budget.

pub(crate) mod columns;
pub(crate) mod computed_rows;
pub(crate) mod dictionary;
pub(crate) mod dictionary_filter;
pub(crate) mod memory;
pub(crate) mod pool;
pub(crate) mod predicates;
pub(crate) mod shelf;
pub(crate) mod stored_sets;
