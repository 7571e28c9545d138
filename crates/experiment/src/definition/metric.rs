//! A metric: one question about users.

use crate::expression::Written;

/// A day of 24 hours.
pub(crate) const DAY_MS: i64 = 24 * 60 * 60 * 1000;

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

/// Half-open, in milliseconds after the user's first exposure; no end is unbounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Window {
    pub start_ms: i64,
    pub end_ms: Option<i64>,
}

/// What a user's number becomes before it is averaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
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

/// What becomes of users whose window ends after the data do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InProgress {
    /// They count, with what they did so far.
    Include,
    /// They are left out of the metric, in all arms alike.
    Exclude,
}

impl Metric {
    /// How long after exposure a user counts, if not from the first day.
    pub(crate) fn complete_ms(&self) -> Option<i64> {
        let end_ms = self.window.and_then(|window| window.end_ms);
        end_ms.filter(|_| self.in_progress == InProgress::Exclude)
    }

    /// The days since exposure asked for that lie in the window as a whole.
    pub(crate) fn days_since_exposure(&self) -> impl Iterator<Item = u32> + use<> {
        let window = self.window;
        (0..self.days_since_exposure).filter(move |day| {
            let start_ms = i64::from(*day) * DAY_MS;
            let is_within = |end_ms: i64| start_ms + DAY_MS <= end_ms;
            window.is_none_or(|w| w.start_ms <= start_ms && w.end_ms.is_none_or(is_within))
        })
    }
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
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
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

/// Whose metric it is, and what it says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct About {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Absent for a metric that the definition defines itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub catalogue: Option<Origin>,
}

/// Which metric of the catalogue it is.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Origin {
    pub name: String,
    pub version: u32,
    /// Keys that the definition has of its own.
    pub overrides: Vec<String>,
}
