//! What a lake knows of experiments, and reports on them: definitions, the catalogue of metrics, saved results.
//!
//! ```text
//! text ─► Definitions (with what it uses of the catalogue) ─► ReportRequest ─► Session::report ─► Report
//!                                                                                 └─► save_report ─► lake
//! ```
//!
//! # Not here
//! How users are counted (`report`), what a figure means (the crate `experiment`), files of whoever asks and how
//! reports are written.

pub(crate) mod catalogue;
pub(crate) mod definitions;
pub(crate) mod list;
pub(crate) mod reports;
pub(crate) mod results;

/// Objects of the lake that are read at once.
const READS_AT_ONCE: usize = 16;
