//! An experiment as a definition describes it.

use super::exposures::Exposures;
use super::metric::Metric;
use super::path::Path;
use crate::assignment::Assignment;
use crate::bayes::Prior;

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
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
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

/// One arm.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Variant {
    pub name: String,
    /// What the variant column holds, compared as text.
    pub value: String,
    /// Planned share of users, above 0 for arms in use.
    pub share: f64,
    pub control: bool,
}

/// A way to break results down: an expression over the exposures, taken at first exposure.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Dimension {
    pub name: String,
    pub sql: String,
}

impl Experiment {
    /// Index of the control arm.
    pub fn control(&self) -> usize {
        self.variants.iter().position(|variant| variant.control).unwrap_or(0)
    }
}
