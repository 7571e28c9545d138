//! Functions of SQL that need no lake.

pub(crate) mod assignment;
pub(crate) mod calls;
pub(crate) mod daily_sums;
pub(crate) mod daily_values;
pub(crate) mod distinct_ids;
pub(crate) mod domain_functions;
pub(crate) mod exact_sum;
pub(crate) mod funnel;
pub(crate) mod halves;
pub(crate) mod local_day;
pub(crate) mod match_words;
