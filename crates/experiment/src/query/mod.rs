//! The seam to the engine: which moments a report needs, and the table of moments it gets back.
//!
//! A [`MomentsQuery`] asks for numbers per exposed user and for the joint moments of some of
//! them; it says nothing of how rows are scanned. A [`MomentsTable`] is the answer.
//!
//! # Rules the engine keeps
//! - A user belongs to the arm of the first exposure within the period.
//! - A user seen in several arms is left out and counted in `users_in_many_variants`.
//! - A user without rows has 0 in every column and still counts.
//! - Rows count from the first exposure (or the window's start) up to, not including, the end.
//! - A window that starts before 0 reaches back before the period's start; its end is exclusive,
//!   so that the moment of exposure belongs to the time after.
//! - A user with a row that `exclude` names is left out and counted in `users_excluded`.
//! - With `activated_by`, the first such row at or after first exposure, within the period, is what
//!   windows, days and "from first exposure" go by, but of columns with `from_exposure`. Users without
//!   one are left out of the cells and make `never_activated`.
//! - With clusters, a user's numbers are added up per cluster (of the first exposure) and the
//!   moments are over clusters. With switchbacks the unit is a region and stretch of time; all its
//!   rows within the period count, from whichever moment.
//! - Of a summary, a column's value and variance are of as many users as the row says; the rows of
//!   the last time make the cells, those of each time a day's. Users may differ between metrics.
//! - A column of complete users ([`UserColumn::complete_ms`]) leaves the others out: of its group's
//!   moments, of its cap, and in clusters of the sums; a unit without any complete user is none. Of
//!   days, a user counts from the one by whose end it is complete.
//! - A day's cells say what the whole answer would be if the data ended with that day, except that
//!   a cap that is a quantile is the whole period's, and users seen in several arms by the end are
//!   left out of all days.
//!
//! # Invariants
//! - Equal columns appear once, however many metrics use them.
//! - `groups[i]` serves `metrics[i]`.

mod answer;
mod expressions;
mod plan;
mod question;

pub use crate::definition::Window;
pub use answer::{Cell, DayCells, LeftOut, MomentsTable, NoExposures, QuantileCell};
pub use plan::plan;
pub(crate) use plan::{find_metric, has_overall};
pub use question::{
    Aggregate, ConversionQuery, DaySince, MomentsQuery, NOT_THERE, Other, QuantileQuery,
    SEVERAL_ARMS, UserColumn,
};
