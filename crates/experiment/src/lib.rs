//! Experiments from values to values: a definition becomes a [`MomentsQuery`], the engine's
//! [`MomentsTable`] becomes a [`Report`].
//!
//! ```text
//! TOML ─► Experiment ─► plan ─► MomentsQuery ─► (engine) ─► MomentsTable ─► analyze ─► Report
//! ```
//!
//! # Not here
//! No rows, no SQL, no Arrow, no clock, no files: the engine has them.
#![forbid(unsafe_code)]

pub mod analyze;
pub mod assignment;
pub mod bayes;
mod csv;
pub mod cuped;
pub mod daily;
pub mod definition;
pub mod digest;
pub mod distribution;
mod double;
pub mod effect;
pub mod equivalence;
pub mod expression;
mod forest;
mod format;
mod headline;
pub mod health;
mod html;
pub mod left_out;
pub mod moments;
pub mod multiplicity;
pub mod past_lifts;
pub mod paths;
pub mod planning;
pub mod power;
pub mod proportion;
pub mod quantile;
pub mod query;
pub mod report;
pub mod saved;
mod scorecard;
pub mod sequential;
mod since;
pub mod stratify;
mod text;
mod toml_reader;
mod verdict;

pub use analyze::{AnalyzeError, OTHERS, alternatives, analyze, values_put_together};
pub use csv::escape_formula;
pub use daily::DailyMoments;
pub use definition::{DefinitionError, Experiment, Place};
pub use format::visible;
pub use moments::Moments;
pub use query::{MomentsQuery, MomentsTable, plan};
pub use report::Report;
