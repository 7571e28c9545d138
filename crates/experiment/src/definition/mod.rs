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
mod follow_up;
mod path;
mod read;

pub use catalogue::{
    About, Catalogue, Entry, NewMetric, Origin, Stored, Use, metrics_of, pinned, stored,
    stored_text, uses,
};

use crate::assignment::Assignment;
use crate::bayes::Prior;
use crate::expression::Written;
use crate::query::Window;
use crate::toml_reader::Place;
pub(crate) use follow_up::DAY_MS;
pub use follow_up::InProgress;

pub use path::Path;

/// One experiment, ready to be planned and analysed.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    pub name: String,
    pub hypothesis: Option<String>,
    /// `None`: every exposure counts.
    pub period: Option<Period>,
    /// IANA name, such as `Europe/Berlin`.
    pub time_zone: String,
    pub exposures: Exposures,
    /// In the order of the definition; indexes into it identify arms everywhere else.
    pub variants: Vec<Variant>,
    pub metrics: Vec<Metric>,
    pub dimensions: Vec<Dimension>,
    pub paths: Vec<Path>,
    /// Two-sided error rate; intervals cover `1 - alpha`.
    pub alpha: f64,
    pub inference: Inference,
    /// All arms together, where the definition says so.
    pub planned_users: Option<u64>,
    pub correction: Correction,
    pub lift: Lift,
    /// Name of the dimension whose values are compared one by one and then averaged.
    pub stratify: Option<String>,
    /// How the arms were meant to be assigned, to find exposures that differ.
    pub assignment: Option<Assignment>,
    /// Definitions of GrowthBook's gbstats where they differ from ours.
    pub growthbook: bool,
    /// Up to when the data are known, if they do not say by their last time: as the period's end.
    pub observed_until: Option<String>,
}

/// When results may be looked at, and what is said about them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Inference {
    /// Once, at the end.
    Fixed,
    /// At any time, by confidence sequences that are tightest at `planned_users`, all arms
    /// together.
    Anytime { planned_users: u64 },
    /// At `looks` equally spaced fractions of `planned_users`, by Lan and DeMets' spending.
    GroupSequential { planned_users: u64, looks: u32 },
    /// Beliefs about the deciding scale's effect instead of error rates.
    Bayesian { prior: Prior },
}

/// How comparisons on goals are corrected for their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Correction {
    /// Chance of any false call.
    Holm,
    /// Expected share of false calls.
    BenjaminiHochberg,
    None,
}

/// How lifts are tested and their intervals made, or whether they decide at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lift {
    /// A test of its own, which divides by the control mean as if the line were straight.
    Delta,
    /// The test of the difference, and the lifts that it does not reject.
    Fieller,
    /// Differences decide; lifts come beside them, as with `Fieller`.
    None,
}

/// Half-open `[start, end)`, local dates or date-times in the experiment's time zone
/// ("2026-11-01" or "2026-11-01T12:00:00").
#[derive(Debug, Clone, PartialEq)]
pub struct Period {
    pub start: String,
    pub end: String,
}

/// How far an experiment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    NotStarted,
    Running,
    Over,
}

impl Period {
    /// At a time, `YYYY-MM-DDTHH:MM:SS`, local to the experiment's zone.
    pub fn state(&self, local_now: &str) -> State {
        // A date sorts before all times of its day but midnight, which it stands for.
        let instant = |text: &str| format!("{text}{}", &"0000-00-00T00:00:00"[text.len()..]);
        match instant(local_now) {
            now if now < instant(&self.start) => State::NotStarted,
            now if now < instant(&self.end) => State::Running,
            _ => State::Over,
        }
    }
}

/// Where exposures are; SQL identifiers and expressions, opaque here.
#[derive(Debug, Clone, PartialEq)]
pub struct Exposures {
    pub table: String,
    pub user: String,
    pub variant: String,
    pub time: Option<String>,
    pub filter: Option<String>,
    pub unit: Unit,
    /// Users with any of these rows are left out: a holdout, or an experiment that excludes this one.
    pub exclude: Vec<UserRows>,
    /// Users count from their first such row at or after first exposure; without one, not at all.
    pub activated_by: Option<UserRows>,
}

/// Rows of users in some table.
#[derive(Debug, Clone, PartialEq)]
pub struct UserRows {
    pub table: String,
    pub user: String,
    /// Known of rows that activate.
    pub time: Option<String>,
    pub filter: Option<String>,
}

/// What was assigned to arms, and so is the unit of randomness.
#[derive(Debug, Clone, PartialEq)]
pub enum Unit {
    User,
    /// Groups of users, by a SQL expression over the exposures: shops, teams, cities. Metrics stay
    /// per user; errors come from clusters.
    Cluster {
        key: String,
    },
    /// Regions that change arms from one stretch of time to the next. A region and stretch is one
    /// unit; metrics are sums per unit. `region` is an expression that the exposures and every
    /// metric's table have.
    Switchback {
        region: String,
        every_ms: i64,
    },
    /// Users, of whom only counts, means and variances are known; `users` is the SQL of the count.
    Summary {
        users: String,
    },
}

impl Unit {
    /// What units are called, plural.
    pub fn name(&self) -> &'static str {
        match self {
            Self::User | Self::Summary { .. } => "users",
            Self::Cluster { .. } => "clusters",
            Self::Switchback { .. } => "region-times",
        }
    }
}

/// One arm.
#[derive(Debug, Clone, PartialEq)]
pub struct Variant {
    pub name: String,
    /// What the variant column holds, compared as text.
    pub value: String,
    /// Planned share of users, above 0 for arms in use.
    pub share: f64,
    pub control: bool,
}

/// A way to break results down: an expression over the exposures, taken at first exposure.
#[derive(Debug, Clone, PartialEq)]
pub struct Dimension {
    pub name: String,
    pub sql: String,
}

/// One question about users.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    pub name: String,
    pub kind: MetricKind,
    pub table: String,
    pub user: String,
    pub time: Option<String>,
    pub direction: Direction,
    /// Must not get worse, instead of should get better.
    pub guardrail: bool,
    /// What the experiment is for; of a definition that names none, the first goal. No guardrail.
    pub primary: bool,
    /// Heading under which reports show it.
    pub group: Option<String>,
    /// After first exposure; `None` counts until the end of the period.
    pub window: Option<Window>,
    pub cuped: Option<Cuped>,
    /// Of a guardrail: the worst relative change that is still acceptable (0.02: 2 %).
    pub margin: Option<f64>,
    /// The relative change that is none, to both sides (0.02: within ±2 %).
    pub equivalence: Option<f64>,
    /// Of shares of users.
    pub test: ProportionTest,
    /// Of a user's number, after its cap.
    pub transform: Option<Transform>,
    /// The smallest lift, up or down, that matters (0.01: 1 %).
    pub minimum_effect: Option<f64>,
    pub about: About,
    /// Its SQL as the definition has it, before conditions are put together.
    pub written: Vec<Written>,
    /// Users whose window is not over.
    pub in_progress: InProgress,
    /// Also by day since exposure, for so many days.
    pub days_since_exposure: u32,
}

/// What a user's number becomes before it is averaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transform {
    /// log(1 + x); a number below 0 has none.
    Log1p,
}

/// How a difference of shares is tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProportionTest {
    /// Each arm's own variance, as everywhere else.
    Unpooled,
    /// Pearson's chi-square: one variance for both arms.
    Pooled,
    /// Fisher's exact p-value with Newcombe's interval.
    Exact,
}

/// How a metric makes one figure per arm.
#[derive(Debug, Clone, PartialEq)]
pub enum MetricKind {
    /// Share of users with at least one row that counts.
    Proportion(Term),
    /// The same in a window that starts after exposure.
    Retention(Term),
    /// Share of users whose sum reaches a value.
    Threshold { term: Term, at_least: f64 },
    /// Share of users who did the first `reached` steps in this order, of a funnel of that name.
    /// `conversion_time`: how long all steps took is asked for, too.
    Step { funnel: String, steps: Vec<Step>, reached: usize, conversion_time: bool },
    /// Mean over users of the sum of a value.
    Mean { term: Term, cap: Option<Cap> },
    /// Mean over users of the number of rows.
    Count { term: Term, cap: Option<Cap> },
    /// Mean over users of the number of different values.
    Distinct { term: Term, cap: Option<Cap> },
    /// Mean over users of the number of local days with a row.
    UniqueDays { term: Term, cap: Option<Cap> },
    /// Mean of a user's first value by time, or the last. `zeros`: over all users, with 0 for those
    /// without a value; otherwise over those who have one.
    FirstOrLast { term: Term, last: bool, zeros: bool },
    /// Sum of the numerator over sum of the denominator, users as the unit of randomness.
    Ratio { numerator: Term, denominator: Term },
    /// A quantile of users' sums, or of single rows with users as clusters.
    Quantile { term: Term, level: f64, per_row: bool },
    /// A mean over users that somebody else computed. `term.value` is the SQL of the mean; without
    /// a variance it is a share.
    Given { term: Term, variance: Option<String> },
}

/// What a metric's figure is made of, whatever its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Proportion,
    Mean,
    Ratio,
    Quantile,
}

impl MetricKind {
    /// As written in a definition: "proportion", "mean" and so on.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Proportion(_) => "proportion",
            Self::Retention(_) => "retention",
            Self::Threshold { .. } => "threshold",
            Self::Step { .. } => "funnel",
            Self::Mean { .. } => "mean",
            Self::Count { .. } => "count",
            Self::Distinct { .. } => "distinct",
            Self::UniqueDays { .. } => "unique_days",
            Self::FirstOrLast { last: false, .. } => "first",
            Self::FirstOrLast { last: true, .. } => "last",
            Self::Ratio { .. } => "ratio",
            Self::Quantile { .. } => "quantile",
            Self::Given { variance: None, .. } => "proportion",
            Self::Given { .. } => "mean",
        }
    }

    pub fn shape(&self) -> Shape {
        match self {
            Self::Proportion(_)
            | Self::Retention(_)
            | Self::Threshold { .. }
            | Self::Step { .. }
            | Self::Given { variance: None, .. } => Shape::Proportion,
            Self::Mean { .. }
            | Self::Count { .. }
            | Self::Distinct { .. }
            | Self::UniqueDays { .. }
            | Self::FirstOrLast { zeros: true, .. }
            | Self::Given { .. } => Shape::Mean,
            // Of values over users who have one.
            Self::Ratio { .. } | Self::FirstOrLast { zeros: false, .. } => Shape::Ratio,
            Self::Quantile { .. } => Shape::Quantile,
        }
    }
}

/// One step of a funnel: rows that pass a SQL filter.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    pub name: String,
    pub filter: String,
}

/// A user's number counts at most this much (winsorising from above).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cap {
    Value(f64),
    /// This quantile of the numbers of all users, or of those whose number is not 0; all arms together.
    Quantile {
        level: f64,
        zeros: bool,
    },
    /// The cap found for another column of the query: a metric's, of the metric on one day.
    OfColumn(usize),
}

/// A SQL expression over the rows that pass a SQL filter.
#[derive(Debug, Clone, PartialEq)]
pub struct Term {
    pub value: String,
    pub filter: Option<String>,
}

/// Adjusts a metric by the same metric before exposure, which randomisation cannot have moved.
#[derive(Debug, Clone, PartialEq)]
pub struct Cuped {
    /// Length of the time before first exposure, milliseconds.
    pub pre_ms: i64,
    /// Further sums over the metric's table in the same time; not for ratios.
    pub with: Vec<Term>,
}

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Increase,
    Decrease,
}

/// What is wrong with a definition, where, and what would be right.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DefinitionError {
    #[error("{place}: {message}")]
    Syntax { place: Place, message: String },
    #[error("{place}: unknown key `{key}` in {section}{}; allowed: {allowed}", suggestion(.nearest))]
    UnknownKey {
        place: Place,
        key: String,
        section: String,
        nearest: Option<String>,
        allowed: String,
    },
    #[error("{place}: {section} lacks `{key}`; write for example {example}")]
    Missing { place: Place, section: String, key: String, example: String },
    #[error("{place}: `{key}` must be {expected}, found {found}")]
    WrongType { place: Place, key: String, expected: String, found: String },
    #[error("{place}: `{key}` {problem}; allowed: {allowed}")]
    Invalid { place: Place, key: String, problem: String, allowed: String },
    #[error(
        "{name} has no users of its own, but regions or published figures, so there is no overlap of users"
    )]
    NoUsers { name: String },
    #[error("experiment {experiment} has no {what} `{name}`{}; it has: {allowed}", suggestion(.nearest))]
    Unknown {
        experiment: String,
        what: &'static str,
        name: String,
        nearest: Option<String>,
        allowed: String,
    },
}

fn suggestion(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|name| format!(", did you mean `{name}`?")).unwrap_or_default()
}

impl Experiment {
    /// Reads a definition. `path` is only for messages.
    ///
    /// # Errors
    /// The first thing wrong, with its line and the allowed values.
    ///
    /// # Examples
    /// ```
    /// let text = r#"
    /// name = "cookie_cats"
    /// [exposures]
    /// table = "players"
    /// user = "id"
    /// variant = "version"
    /// [[variant]]
    /// name = "gate_30"
    /// share = 0.5
    /// [[variant]]
    /// name = "gate_40"
    /// share = 0.5
    /// [[metric]]
    /// name = "retention"
    /// type = "proportion"
    /// value = "retention_7"
    /// "#;
    /// let experiment = uplake_experiment::Experiment::parse(text, "cookie_cats.toml")?;
    /// assert!(experiment.variants[0].control);
    /// # Ok::<(), uplake_experiment::DefinitionError>(())
    /// ```
    pub fn parse(text: &str, path: &str) -> Result<Self, DefinitionError> {
        read::experiment(text, path, &Catalogue::default())
    }

    /// Reads a definition that may use metrics of a catalogue.
    ///
    /// # Errors
    /// As [`Self::parse`]; a mistake in a metric of the catalogue names its own file and line.
    pub fn parse_with(
        text: &str,
        path: &str,
        catalogue: &Catalogue,
    ) -> Result<Self, DefinitionError> {
        read::experiment(text, path, catalogue)
    }

    /// Index of the control arm.
    pub fn control(&self) -> usize {
        self.variants.iter().position(|variant| variant.control).unwrap_or(0)
    }
}
