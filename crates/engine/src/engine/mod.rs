//! A session: its catalog, its plans, who computes when, statements that are no queries.

pub(crate) mod added_statements;
pub(crate) mod additions;
pub(crate) mod admission;
pub(crate) mod catalog;
pub(crate) mod conditions;
pub(crate) mod ddl;
pub(crate) mod execution;
pub(crate) mod guard;
pub(crate) mod id_sets;
pub(crate) mod own_files;
pub(crate) mod parameter_types;
pub(crate) mod pending;
pub(crate) mod plan_cache;
pub(crate) mod planning;
pub(crate) mod preload;
pub(crate) mod prepared;
pub(crate) mod privileges;
pub(crate) mod registry;
pub(crate) mod repair;
pub(crate) mod row_writer;
pub(crate) mod run;
pub(crate) mod seen;
pub(crate) mod session;
pub(crate) mod stored_rows;
pub(crate) mod transaction;
pub(crate) mod warm;
