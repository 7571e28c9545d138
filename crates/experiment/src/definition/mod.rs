//! What an experiment is: its exposures, arms, metrics and dimensions, read from TOML.
//!
//! ```toml
//! name = "free_shipping"
//! hypothesis = "Free shipping makes more visitors pay"
//! start = "2026-11-01"                # first instant counted
//! end = "2026-11-15"                  # first instant not counted
//! time_zone = "Europe/Berlin"         # default UTC
//! inference = "anytime"               # default "fixed": look once, at the end
//! planned_users = 100000              # all arms together; anytime and group_sequential need it
//! correction = "holm"                 # over goals; or "benjamini-hochberg", "none"
//! stratify = "country"                # compare like with like within a dimension
//!
//! [exposures]
//! table = "exposures"
//! user = "user_id"
//! variant = "variant"
//! time = "ts"                         # without it every row of a user counts
//! where = "exp_id = 101"
//!
//! [[variant]]
//! name = "control"                    # the first is the control unless one says `control = true`
//! share = 0.5
//! [[variant]]
//! name = "free"
//! value = 1                           # what the column holds, when that is not the name
//! share = 0.5
//!
//! [[metric]]
//! name = "conversion"
//! role = "primary"                    # default: the first goal; or "secondary", "guardrail"
//! group = "checkout"                  # a heading of the report
//! type = "proportion"
//! table = "events"
//! where = "event = 'pay'"
//! window = "7 days"                   # from the first exposure
//!
//! [[metric]]
//! name = "revenue"
//! type = "mean"
//! table = "events"
//! value = "amount"                    # summed per user
//! cap = 500                           # a user's sum counts at most this much
//! cuped = { pre = "14 days" }         # subtract what the time before exposure explains
//!
//! [[metric]]
//! name = "order value"
//! type = "ratio"
//! table = "events"
//! where = "event = 'pay'"
//! numerator = { value = "amount" }
//! denominator = { value = "1" }
//! guardrail = true
//!
//! [[metric]]
//! name = "back in the second week"    # retention
//! type = "proportion"
//! table = "events"
//! window = { from = "7 days", to = "14 days" }
//!
//! [[dimension]]
//! name = "country"
//!
//! [[path]]                            # which sequences of events lead from one to another
//! name = "to payment"
//! table = "events"
//! event = "event"
//! from = "event = 'open'"
//! to = "event = 'pay'"
//! ```
//!
//! Experiments of which only sums are known have `[summary]` instead of `[exposures]`: a row per arm
//! (and moment), with the number of users and each metric's mean and variance over them.
//!
//! ```toml
//! [summary]
//! table = "results"
//! variant = "variant"
//! users = "n"                         # rows hold figures of this many users
//! time = "day"                        # optional: figures until then; the last are the result
//!
//! [[metric]]
//! name = "revenue"
//! type = "mean"
//! where = "metric = 'revenue'"
//! mean = "mean"
//! variance = "variance"               # sample variance; not for proportions
//! ```
//!
//! Metric types: `proportion` (any row counts), `retention` (the same in a later window),
//! `threshold` (a user's sum reaches `at_least`), `funnel` (steps in order, a share each), `mean`
//! (sum per user), `count` (rows per user), `distinct` (different values per user), `ratio` (sum
//! over sum), `quantile` (of users' sums or of single rows).
//!
//! # Invariants
//! - A parsed [`Experiment`] has two arms or more with positive planned shares, shares that sum
//!   to 1, exactly one control, and names that differ.
//! - A metric is primary unless all are guardrails; of a funnel only its last step may say so.
//! - SQL texts are opaque here; only the engine reads them.
//!
//! # Not here
//! No check that tables and columns exist: the engine has the catalogue.

mod catalogue;
mod error;
mod experiment;
mod exposures;
mod follow_up;
mod metric;
mod path;
mod read;
mod read_metric;
mod stored;

pub use catalogue::{Catalogue, Entry, Use, pinned, uses};
pub use error::{DefinitionError, Place};
pub use experiment::{Correction, Dimension, Experiment, Inference, Lift, Period, State, Variant};
pub use exposures::{Exposures, Unit, UserRows};
pub(crate) use metric::DAY_MS;
pub use metric::{
    About, Cap, Cuped, Direction, InProgress, Metric, MetricKind, Origin, ProportionTest, Shape,
    Step, Term, Transform, Window,
};
pub use path::Path;
pub use stored::{NewMetric, Stored, metrics_of, stored, stored_text};
