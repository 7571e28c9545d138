//! Plans that are computed in parts, by others or here: how they are cut, how they travel, and what the parts answer.

pub(crate) mod buckets;
pub(crate) mod bytes;
pub(crate) mod choice;
pub(crate) mod columns;
pub(crate) mod cut;
pub(crate) mod elsewhere;
pub(crate) mod fragment;
pub(crate) mod functions;
pub(crate) mod guard;
pub(crate) mod kind;
pub(crate) mod part_error;
pub(crate) mod partial;
pub(crate) mod parts;
pub(crate) mod plan;
pub(crate) mod questions;
pub(crate) mod rows_exec;
pub(crate) mod share;
pub(crate) mod shuffle_read;
pub(crate) mod shuffles;
