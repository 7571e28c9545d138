//! What every room needs: errors, settings, warnings, progress, what the process holds, what ends statements, which
//! columns are ids, what operators and rules share.

pub(crate) mod alarm;
pub(crate) mod answer;
pub(crate) mod budget;
pub(crate) mod can_fail;
pub(crate) mod durations;
pub(crate) mod error;
pub(crate) mod foreign_errors;
pub(crate) mod held;
pub(crate) mod id_column;
pub(crate) mod labels;
pub(crate) mod one_input;
pub(crate) mod progress;
pub(crate) mod refusal;
pub(crate) mod settings;
pub(crate) mod sql_state;
pub(crate) mod stop;
pub(crate) mod warnings;
