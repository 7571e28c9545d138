//! From text to a statement: our clauses, long lists of literals, sets of ids.

pub(crate) mod about_query;
pub(crate) mod added_statement;
pub(crate) mod copies;
mod copy_formats;
pub(crate) mod dialect;
pub(crate) mod exact_casts;
pub(crate) mod id_set;
pub(crate) mod literals;
pub(crate) mod merged_joins;
mod named_windows;
pub(crate) mod plain_forms;
pub(crate) mod prepare_statement;
pub(crate) mod prepared;
pub(crate) mod quantified;
pub(crate) mod question_marks;
pub(crate) mod result_names;
pub(crate) mod rewrite;
pub(crate) mod row_changes;
mod similar_to;
pub(crate) mod statement;
pub(crate) mod statement_size;
pub(crate) mod token_rewrite;
pub(crate) mod using_joins;
pub(crate) mod view_statement;
pub(crate) mod views;
pub(crate) mod warm_statement;
pub(crate) mod words;
