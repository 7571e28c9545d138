//! The table of moments that answers a query.

use serde::Serialize;

use crate::moments::Moments;
use crate::paths::{ConversionTime, PathTable};
use crate::quantile::Band;

/// The engine's answer to a [`super::MomentsQuery`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MomentsTable {
    pub cells: Vec<Cell>,
    /// With clusters, of the values that a breakdown puts together
    /// ([`crate::values_put_together`]): one cell per dimension that has any, and variant. A
    /// cluster with users of several of them is one unit there, and one of each in `cells`.
    pub others: Vec<Cell>,
    /// In the order of time, if the query asks for days.
    pub days: Vec<DayCells>,
    pub quantiles: Vec<QuantileCell>,
    /// Per column with a cap that is a quantile: its index and the cap found.
    pub caps: Vec<(usize, f64)>,
    /// Exposed users seen in more than one variant, left out of the cells.
    pub users_in_many_variants: u64,
    /// Per `exclude`, users whom it is the first to leave out, whatever their arm.
    pub users_excluded: Vec<u64>,
    /// With `activated_by`, one cell per arm of the users who never were.
    pub never_activated: Vec<Cell>,
    /// Values of the variant column that the definition does not name, with their users.
    pub unknown_variants: Vec<(String, u64)>,
    /// Users first exposed per local day ("2026-11-01") and variant index; empty without an
    /// exposure time.
    pub first_exposures: Vec<(String, usize, u64)>,
    /// Users whose arm is not the one that the assignment gives, if the query asks.
    pub users_assigned_otherwise: Option<u64>,
    /// Per metric table and local day of the period, exposed users with rows that count; days
    /// without any are absent. Empty unless the query asks for days.
    pub active_users: Vec<(String, String, u64)>,
    /// One per path of the query.
    pub paths: Vec<PathTable>,
    /// One list per conversion time of the query, of one per arm.
    pub conversion_times: Vec<Vec<ConversionTime>>,
    /// Rows that are in no figure, and conditions that no row passes.
    pub left_out: LeftOut,
    /// With clusters, how many there are per variant, whomever metrics leave out.
    pub clusters: Vec<u64>,
    /// Up to when the data are known, exclusive: local, to the second that is over ("2026-11-05T08:00:00").
    /// `None` unless [`super::MomentsQuery::needs_end_of_data`].
    pub observed_until: Option<String>,
    /// Metric with a window that ends, variant, and users of the cells whose window is not over.
    pub in_progress: Vec<(usize, usize, u64)>,
    /// Per [`super::MomentsQuery::since`] and variant.
    pub since: Vec<Vec<Moments>>,
}

/// Moments of one arm, of everyone or of one value of a dimension.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// `None`: everyone. Otherwise the dimension's index in the query and its value; NULL is the
    /// text "(null)", and values put together are [`crate::OTHERS`].
    pub slice: Option<(usize, String)>,
    /// Index into the variants.
    pub variant: usize,
    /// Exposed users; the moments' count is of units (clusters).
    pub users: u64,
    /// One per group of the query.
    pub groups: Vec<Moments>,
}

/// All cells as of the end of a day.
#[derive(Debug, Clone, PartialEq)]
pub struct DayCells {
    /// Local, such as "2026-11-01".
    pub day: String,
    pub cells: Vec<Cell>,
}

/// A quantile of one arm, of everyone or of one value of a dimension.
#[derive(Debug, Clone, PartialEq)]
pub struct QuantileCell {
    /// Index into the query's quantiles.
    pub quantile: usize,
    /// As in [`Cell`].
    pub slice: Option<(usize, String)>,
    pub variant: usize,
    /// Users, or rows.
    pub values: u64,
    /// The values at the ranks of [`crate::quantile::ranks`]; `None` without values.
    pub band: Option<Band>,
    /// Over rows: per user, moments of (values at or below the quantile, values), of users with
    /// any value.
    pub clusters: Option<Moments>,
}

/// Rows and users that are not what a reader of the figures takes them for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeftOut {
    /// Exposures within the period, or of no time, that pass the filter and have no user (with
    /// switchbacks: no region). They are in no figure. Those without a time are counted below.
    pub exposures_without_user: u64,
    /// Exposures that pass the filter and have no time, where the definition names one. With a period
    /// they are in no figure; without one their users are exposed, and no row comes after that.
    pub exposures_without_time: u64,
    /// Users of the arms with an exposure before the period, too, so that their first exposure
    /// within it is not their first. They stay in. `None` without a period, without times and for
    /// units that are not users.
    pub users_exposed_before: Option<u64>,
    /// Why nobody is exposed; `None` if somebody is, in whichever arm.
    pub no_exposures: Option<NoExposures>,
    /// Columns of the query that are 0 for every user of the arms, and whose filter no row of their
    /// table passes, whoever's and whenever; of a funnel's step the step's own filter. Empty if
    /// nobody is in an arm.
    pub unmatched_columns: Vec<usize>,
    /// Columns that are 0 for every user of the arms although rows pass their filter.
    pub zero_columns: Vec<usize>,
    /// Quantiles of the query, likewise.
    pub unmatched_quantiles: Vec<usize>,
}

/// Why nobody is exposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NoExposures {
    /// The table has no row.
    EmptyTable,
    /// The table has rows, and none passes the filter.
    WherePassesNothing,
    /// Rows pass the filter, and none has a user and a time within the period.
    NoneCounts,
}
